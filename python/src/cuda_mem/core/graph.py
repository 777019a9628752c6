"""The module cuda.core.graph of the package cuda-core."""

from typing import Any


def __getattr__(name: str) -> Any:
    from ._forward import forwarded

    return forwarded("graph", name)
