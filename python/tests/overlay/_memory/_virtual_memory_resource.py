"""Upstream's tests check options by static methods; here one method checks them all."""

from typing import Any

from .. import VirtualMemoryResourceOptions as _Options


def _checker(option: str) -> Any:
    def check(spec: Any) -> None:
        _Options(**{option: spec})._check()

    return staticmethod(check)


for _name, _option in {
    "_access_to_flags": "self_access",
    "_allocation_type_to_driver": "allocation_type",
    "_granularity_to_driver": "granularity",
    "_handle_type_to_driver": "handle_type",
    "_location_type_to_driver": "location_type",
}.items():
    setattr(_Options, _name, _checker(_option))
