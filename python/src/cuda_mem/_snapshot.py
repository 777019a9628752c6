"""What a pool holds, as a picture and in the form that PyTorch's memory viewer reads."""

from __future__ import annotations

# Imported late: json, pickle and typing take longer than all the rest of this package.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The colour of each state of a block.
_COLOURS = {"allocated": "#3b6fb6", "in_cache": "#9ec3e6", "pending": "#e6b34d", "free": "#e4e4e4"}
_LABELS = {"allocated": "allocated", "in_cache": "free, in a thread's cache", "pending": "freed, work is queued", "free": "free"}
_STATES = {"allocated": "active_allocated", "in_cache": "inactive", "pending": "active_pending_free", "free": "inactive"}
_ACTIONS = {
    "allocate": "alloc",
    "free": "free_completed",
    "grow": "segment_alloc",
    "release": "segment_free",
    "out_of_memory": "oom",
}


class PoolSnapshot:
    """All regions and blocks of a pool at one moment. A notebook shows it as a picture.

    `data` is the snapshot as `cuda-mem pool-map` reads it: a dict with "device", "regions" (each with "address", "size" and
    "blocks"), "statistics", and with a `trace_capacity` of the pool also "trace".
    """

    data: dict[str, Any]

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    @staticmethod
    def from_json(text: str) -> PoolSnapshot:
        """Reads the JSON text of a snapshot."""
        import json

        return PoolSnapshot(json.loads(text))

    def to_json(self) -> str:
        """The snapshot as JSON text."""
        import json

        return json.dumps(self.data)

    def __repr__(self) -> str:
        regions = self.data["regions"]
        blocks = sum(len(region["blocks"]) for region in regions)
        return f"PoolSnapshot(device={self.data['device']}, regions={len(regions)}, blocks={blocks})"

    def _repr_svg_(self) -> str:
        """One bar for each region, from its first byte to its last, with the blocks in the colours of their states."""
        regions = self.data["regions"]
        width, height, gap, left = 720, 22, 8, 150
        largest = max((region["size"] for region in regions), default=1)
        parts: list[str] = []
        for row, region in enumerate(regions):
            top = row * (height + gap)
            parts.append(f'<text x="0" y="{top + 15}">{region["address"]:#x}</text>')
            for block in region["blocks"]:
                x = left + width * block["offset"] / largest
                w = max(width * block["size"] / largest, 0.5)
                title = f'{block["size"]} bytes, {_LABELS[block["state"]]}' + (f', {_escape(block["name"])}' if block.get("name") else "")
                parts.append(
                    f'<rect x="{x:.2f}" y="{top}" width="{w:.2f}" height="{height}" fill="{_COLOURS[block["state"]]}" '
                    f'stroke="white" stroke-width="0.5"><title>{title}</title></rect>'
                )
        top = len(regions) * (height + gap) + 4
        for place, (state, colour) in enumerate(_COLOURS.items()):
            x = left + place * 180
            parts.append(f'<rect x="{x}" y="{top}" width="12" height="12" fill="{colour}"/>')
            parts.append(f'<text x="{x + 18}" y="{top + 11}">{_LABELS[state]}</text>')
        size = f'width="{left + width}" height="{top + 20}"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">{"".join(parts)}</svg>'

    def memory_viz(self) -> dict[str, Any]:
        """The snapshot in the form of `torch.cuda.memory._snapshot()`."""
        device = self.data["device"]
        segments = []
        for region in self.data["regions"]:
            blocks = [
                {
                    "address": region["address"] + block["offset"],
                    "size": block["size"],
                    "requested_size": block["size"],
                    "state": _STATES[block["state"]],
                    "frames": _frames(block),
                }
                for block in region["blocks"]
            ]
            used = sum(block["size"] for block in blocks if block["state"] == "active_allocated")
            pending = sum(block["size"] for block in blocks if block["state"] == "active_pending_free")
            segments.append(
                {
                    "device": device,
                    "address": region["address"],
                    "total_size": region["size"],
                    "allocated_size": used,
                    "active_size": used + pending,
                    "requested_size": used,
                    "stream": 0,
                    "segment_type": "large",
                    "segment_pool_id": (0, 0),
                    "is_expandable": True,
                    "frames": [],
                    "blocks": blocks,
                }
            )
        events = []
        for event in (self.data.get("trace") or {"events": []})["events"]:
            if event["action"] in _ACTIONS:
                events.append(
                    {
                        "action": _ACTIONS[event["action"]],
                        "addr": event["address"],
                        "size": event["size"],
                        "stream": event["stream"],
                        "time_us": event["time_ns"] // 1000,
                        "device": device,
                        "frames": _frames(event),
                    }
                )
                if event["action"] == "out_of_memory":
                    events[-1]["device_free"] = 0
        return {
            "segments": segments,
            "device_traces": [[]] * device + [events],
            "external_annotations": [],
            "allocator_settings": {},
        }

    def save_memory_viz(self, path: str) -> None:
        """Writes a file that https://pytorch.org/memory_viz draws. With the pool's `trace_capacity`, it shows the newest
        allocations over time."""
        import pickle

        with open(path, "wb") as file:
            pickle.dump(self.memory_viz(), file)


def _frames(named: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": named["name"], "filename": "", "line": 0}] if named.get("name") else []


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
