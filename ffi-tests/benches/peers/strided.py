"""Measures PyTorch's and CuPy's copies between the views of `strided_cases.json`. Run it and `cargo bench -p benches --bench
strided -- --json` on one machine, one after the other.

It prints a line of JSON for each case and peer: microseconds on the stream, and of the call, and GB/s, where each byte counts
as read once and written once. `--brief` runs only small cases, once. With `--compare FILE`, which contains the bench's lines,
it compares the bench with the best peer, and marks cases where the bench is slower than 0.9 of it. It leaves out peers that
are not installed, and cases for which a peer has no such views.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

CASES = pathlib.Path(__file__).resolve().parent.parent / "strided_cases.json"


def part(array, side, permute):
    if "slice" in side:
        array = array[tuple(slice(*one) for one in side["slice"])]
    if "permute" in side:
        array = permute(array, side["permute"])
    return array


class Torch:
    name = "PyTorch"

    def __init__(self):
        import torch

        self.torch = torch
        self.stream = torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)

    def view(self, side, kind):
        torch = self.torch
        place = side.get("place", "device")
        options = {"dtype": getattr(torch, kind), "device": "cuda" if place == "device" else "cpu"}
        whole = torch.ones(side["shape"], pin_memory=place == "pinned", **options)
        view = part(whole, side, lambda array, axes: array.permute(axes))
        return view.expand(side["broadcast"]) if "broadcast" in side else view

    def copier(self, to, source):
        return lambda: to.copy_(source)

    def event(self):
        return self.torch.cuda.Event(enable_timing=True)

    def record(self, event):
        event.record(self.stream)

    def elapsed(self, start, end):
        return start.elapsed_time(end)

    def synchronize(self):
        self.torch.cuda.synchronize()


class Cupy:
    name = "CuPy"

    def __init__(self):
        import cupy

        self.cupy = cupy
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.use()

    def view(self, side, kind):
        if "place" in side:
            return None
        whole = self.cupy.ones(side["shape"], dtype=kind)
        view = part(whole, side, lambda array, axes: array.transpose(axes))
        return self.cupy.broadcast_to(view, side["broadcast"]) if "broadcast" in side else view

    def copier(self, to, source):
        return lambda: self.cupy.copyto(to, source)

    def event(self):
        return self.cupy.cuda.Event()

    def record(self, event):
        event.record(self.stream)

    def elapsed(self, start, end):
        return self.cupy.cuda.get_elapsed_time(start, end)

    def synchronize(self):
        self.stream.synchronize()


def measure(peer, copy, brief):
    rounds, batch = (1, 1) if brief else (31, 10)
    device, call = [], []
    for number in range(rounds + 1):
        peer.synchronize()
        start, end = peer.event(), peer.event()
        peer.record(start)
        begun = time.perf_counter()
        for _ in range(batch):
            copy()
        took = time.perf_counter() - begun
        peer.record(end)
        peer.synchronize()
        # The first round is a warm-up, which compiles.
        if number:
            device.append(peer.elapsed(start, end) * 1e3 / batch)
            call.append(took * 1e6 / batch)
    return statistics.median(device), statistics.median(call)


def peers():
    for kind in (Torch, Cupy):
        try:
            yield kind()
        except Exception as error:  # not installed, or no device
            print(f"{kind.name} is left out: {error}", file=sys.stderr)


def run(brief):
    cases = [case for case in json.loads(CASES.read_text()) if case.get("brief") or not brief]
    lines = []
    for peer in peers():
        for case in cases:
            to, source = peer.view(case["to"], case["type"]), peer.view(case["from"], case["type"])
            if to is None or source is None:
                continue
            device, call = measure(peer, peer.copier(to, source), brief)
            moved = 2 * to.itemsize * (to.numel() if hasattr(to, "numel") else to.size)
            line = {"peer": peer.name, "case": case["name"], "type": case["type"], "us": device, "us_call": call}
            line["gb_s"] = moved / device / 1e3
            lines.append(line)
            print(json.dumps(line), flush=True)
            del to, source
    return lines


def compare(ours, theirs):
    """Prints the ratio of the best peer's time to ours: 1 is equal, and more means that ours is faster."""
    for line in ours:
        of = [peer for peer in theirs if (peer["case"], peer["type"]) == (line["case"], line["type"])]
        if not of:
            continue
        best = min(of, key=lambda peer: peer["us"])
        ratio = best["us"] / line["us"]
        mark = "  slower" if ratio < 0.9 else ""
        names, times = f"{line['case']:>42} {line['type']:>10}", f"{line['us']:>10.2f} us, {best['us']:>10.2f} us"
        print(f"{names} {times} of {best['peer']}: {ratio:.2f}{mark}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brief", action="store_true")
    parser.add_argument("--compare", type=pathlib.Path)
    options = parser.parse_args()
    theirs = run(options.brief)
    if options.compare:
        lines = options.compare.read_text().splitlines()
        ours = [json.loads(line) for line in lines if line.startswith("{")]
        compare(ours, theirs)


if __name__ == "__main__":
    main()
