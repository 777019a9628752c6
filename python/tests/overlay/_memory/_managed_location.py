"""The location of managed memory as upstream's tests see it."""

from collections import namedtuple
from typing import Any

from .._managed import place_of

_Spec = namedtuple("_Spec", ("kind", "id"))


def _coerce_location(value: Any, *, allow_none: bool = False) -> Any:
    place = place_of(value, allow_none)
    return None if place is None else _Spec(*place)
