"""The module cuda.core.checkpoint of the package cuda-core."""

from typing import Any


def __getattr__(name: str) -> Any:
    from ._forward import forwarded

    return forwarded("checkpoint", name)
