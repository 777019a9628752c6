"""Buffers of RMM, the memory manager of cuDF and its relatives, from the pools of cuda_mem.

    python rmm_pool.py [--memory own | ours] [--brief]
"""

import time

import cuda_mem.rmm
import report


def main() -> None:
    arguments = report.parser(__doc__, ["own", "ours"]).parse_args()
    try:
        import rmm
    except ImportError as error:
        report.skip(f"{error}: pip install rmm-cu13")
    report.needs_kernels()

    if arguments.memory == "ours":
        rmm.mr.set_current_device_resource(cuda_mem.rmm.resource())
    else:
        rmm.mr.set_current_device_resource(rmm.mr.StatisticsResourceAdaptor(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource())))
    stream = rmm.pylibrmm.stream.Stream()
    live = []
    begin = time.perf_counter()
    for number in range(50 if arguments.brief else 5000):
        data = number.to_bytes(4, "little") * (1 + number * 1009 % 20_000)
        live.append((data, rmm.DeviceBuffer.to_device(data, stream=stream)))
        if len(live) > 20:
            data, buffer = live.pop(number * 7919 % len(live))
            assert buffer.tobytes(stream=stream) == data, f"buffer {number}"
    for data, buffer in live:
        assert buffer.tobytes(stream=stream) == data
    seconds = time.perf_counter() - begin
    if arguments.memory == "ours":
        peak = report.peak_of_pools()
    else:
        # RMM's pool does not tell what it holds: this is what was asked for.
        peak = rmm.mr.get_current_device_resource().allocation_counts.peak_bytes
    report.line(arguments.memory, seconds, f"{number + 1} buffers", device_pool=peak)


if __name__ == "__main__":
    main()
