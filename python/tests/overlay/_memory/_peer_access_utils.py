"""The module of peers, under upstream's name. Upstream's plan of a change is what our set of peers does to a set in memory."""

import sys
from collections import namedtuple
from typing import Any

from .. import _peers
from .._sets import DriverSet

PeerAccessPlan = namedtuple("PeerAccessPlan", ("target_ids", "to_add", "to_remove"))


def plan_peer_access_update(
    *, owner_device_id: int, current_peer_ids: Any, requested_devices: Any, resolve_device_id: Any, can_access_peer: Any
) -> PeerAccessPlan:
    """What a set of peers would change."""
    added: set[int] = set()
    removed: set[int] = set()

    class Planned(DriverSet[int]):
        def _read(self) -> list[int]:
            return list(current_peer_ids)

        def _change(self, more: set[int], less: set[int]) -> None:
            refused = sorted(peer for peer in more if not can_access_peer(peer))
            if refused:
                raise ValueError(f"Device {owner_device_id} cannot access peer(s): {', '.join(map(str, refused))}")
            added.update(more)
            removed.update(less)

        def _member(self, value: Any) -> int | None:
            peer = resolve_device_id(value)
            return None if peer == owner_device_id else peer

        _found = _member

    Planned()._assign(requested_devices)
    target = (set(current_peer_ids) | added) - removed
    return PeerAccessPlan(*(tuple(sorted(peers)) for peers in (target, added, removed)))


_peers.PeerAccessPlan = PeerAccessPlan  # type: ignore[attr-defined]
_peers.plan_peer_access_update = plan_peer_access_update  # type: ignore[attr-defined]
sys.modules[__name__] = _peers
