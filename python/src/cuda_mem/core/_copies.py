"""Copies of many buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .._native import core as _core
from .._native.core import Buffer
from ._device import Device
from ._errors import options_of
from ._host import Host
from ._managed import buffers_of
from ._stream import LEGACY_DEFAULT_STREAM, IsStreamType

__all__ = ["CopyOptions", "copy_batch"]

_ORDERS = ("stream", "during_api_call", "any")
_OVERLAPS = ("default", "prefer_overlap_with_compute")


@dataclass(frozen=True)
class CopyOptions:
    """Options of a copy. With `src_access_order="during_api_call"`, the program may use the source again when the call
    returns. The other options are hints, and none is needed."""

    src_access_order: Literal["stream", "during_api_call", "any"] = "stream"
    src_location_hint: Device | Host | None = None
    dst_location_hint: Device | Host | None = None
    overlap_mode: Literal["default", "prefer_overlap_with_compute"] = "default"

    def __post_init__(self) -> None:
        if self.src_access_order not in _ORDERS:
            raise ValueError(f"invalid src_access_order: {self.src_access_order!r}: it must be one of {_ORDERS}")
        if self.overlap_mode not in _OVERLAPS:
            raise ValueError(f"invalid overlap_mode: {self.overlap_mode!r}: it must be one of {_OVERLAPS}")


_Options = CopyOptions | dict[str, Any] | None


def _one(options: Any) -> CopyOptions:
    if options is not None and not isinstance(options, (CopyOptions, dict)):
        raise TypeError(f"options must be CopyOptions, got {type(options).__name__}")
    return options_of(CopyOptions, options, "options")


def copy_batch(
    stream: IsStreamType,
    srcs: Sequence[Buffer],
    dsts: Sequence[Buffer],
    *,
    options: _Options | Sequence[_Options] = None,
) -> None:
    """Copies each buffer of `srcs` to the one of `dsts` at its place, of the same size, in order of `stream`. `options` are
    for all copies, or a sequence with one for each."""
    call = "copy_batch"
    if stream == LEGACY_DEFAULT_STREAM:
        raise TypeError(f"{call}: the legacy default stream takes no batches: pass another stream")
    sources, destinations = buffers_of(call, srcs), buffers_of(call, dsts)
    if len(sources) != len(destinations):
        raise ValueError(f"{call}: srcs length {len(sources)} does not match dsts length {len(destinations)}")
    for index, (src, dst) in enumerate(zip(sources, destinations)):
        if src.size != dst.size:
            raise ValueError(f"{call}: size mismatch at index {index} (sizes are: src={src.size}, dst={dst.size})")
    if isinstance(options, Sequence):
        if len(options) != len(sources):
            raise ValueError(f"{call}: options length {len(options)} does not match srcs length {len(sources)}")
        chosen = [_one(option) for option in options]
    else:
        chosen = [_one(options)]
    waits = any(option.src_access_order == "during_api_call" for option in chosen)
    _core.copy_batch(stream, sources, destinations, waits)
