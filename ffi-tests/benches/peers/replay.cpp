// Replays a log of allocations in RMM's format on our pool, as a resource of cuda::mr, and on RMM's pools: time of an
// operation, and the memory of the device that each takes.
//
//     replay LOG.csv...
//
// Without RMM's headers it measures only our pool. All work is of one stream, and no kernels run.

#include <cudamem.hpp>
#include <cudamem/cuda_mr.hpp>

#if __has_include(<rmm/mr/pool_memory_resource.hpp>)
#define WITH_RMM
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#endif

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

using Clock = std::chrono::steady_clock;

struct Operation {
    std::size_t block;
    std::size_t size;  // 0: a free
};

struct Log {
    std::vector<Operation> operations;
    std::size_t blocks = 0;
    std::size_t peak = 0;  // of what was asked for
};

// The columns of RMM's logs: Thread,Time,Action,Pointer,Size,Stream. Frees of unknown blocks are left out.
Log read(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("cannot open " + path);
    Log log;
    std::unordered_map<std::string, std::size_t> live;
    std::vector<std::size_t> sizes;
    std::size_t current = 0;
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
        std::istringstream fields(line);
        std::string thread, time, action, pointer, size;
        std::getline(fields, thread, ',');
        std::getline(fields, time, ',');
        std::getline(fields, action, ',');
        std::getline(fields, pointer, ',');
        std::getline(fields, size, ',');
        if (action == "allocate") {
            std::size_t bytes = std::max<std::size_t>(1, std::stoull(size));
            live[pointer] = log.blocks;
            log.operations.push_back({log.blocks++, bytes});
            sizes.push_back(bytes);
            log.peak = std::max(log.peak, current += bytes);
        } else if (auto found = live.find(pointer); found != live.end()) {
            log.operations.push_back({found->second, 0});
            current -= sizes[found->second];
            live.erase(found);
        }
    }
    return log;
}

struct Outcome {
    double mean = 0;
    double p999 = 0;
    double largest = 0;
    double taken = 0;  // bytes of the device
};

template <class Pool>
Outcome replay(Pool& pool, const Log& log, cuda::stream_ref stream, const std::function<std::size_t()>& free_bytes,
               std::size_t free_before) {
    constexpr std::size_t ALIGNMENT = 256;
    std::vector<std::pair<void*, std::size_t>> blocks(log.blocks);
    std::vector<double> times;
    times.reserve(log.operations.size());
    std::size_t least = free_before;
    for (const auto& [block, size] : log.operations) {
        auto before = Clock::now();
        if (size != 0) {
            blocks[block] = {pool.allocate(stream, size, ALIGNMENT), size};
        } else {
            pool.deallocate(stream, blocks[block].first, blocks[block].second, ALIGNMENT);
            blocks[block].second = 0;
        }
        times.push_back(std::chrono::duration<double, std::nano>(Clock::now() - before).count());
        if (times.back() > 5000) least = std::min(least, free_bytes());  // it may have grown
    }
    least = std::min(least, free_bytes());
    for (const auto& [address, size] : blocks)
        if (size != 0) pool.deallocate(stream, address, size, ALIGNMENT);
    double sum = 0;
    for (double time : times) sum += time;
    std::sort(times.begin(), times.end());
    return {sum / times.size(), times[times.size() * 999 / 1000], times.back(), double(free_before - least)};
}

int main(int count, char** arguments) {
    try {
        auto context = std::make_shared<const cudamem::context>(0);
        cudamem::stream own(*context);
        cuda::stream_ref stream{static_cast<cudaStream_t>(own.raw())};
        auto free_bytes = [&]() -> std::size_t { return context->memory().first; };
        for (int number = 1; number < count; ++number) {
            const Log log = read(arguments[number]);
            std::printf("%s: %zu operations, peak %.3f GiB\n", arguments[number], log.operations.size(),
                        log.peak / double(1 << 30));
            auto measure = [&](const char* name, auto make) {
                std::size_t before = free_bytes();
                try {
                    auto pool = make();
                    Outcome seen = replay(*pool, log, stream, free_bytes, before);
                    std::printf("  %-22s mean %8.0f ns, p99.9 %9.0f ns, largest %9.3f ms, takes %7.3f GiB, %+6.1f%%\n", name,
                                seen.mean, seen.p999, seen.largest / 1e6, seen.taken / double(1 << 30),
                                100 * (seen.taken / double(log.peak) - 1));
                } catch (const std::exception& error) {
                    std::printf("  %-22s %s\n", name, error.what());
                }
                std::fflush(stdout);
            };
            auto ours = [&](std::uint32_t flags) {
                cudamem_pool_options options{};
                options.flags = flags;
                auto pool = std::make_shared<const cudamem::pool>(cudamem::resource::device(*context), options);
                return std::make_unique<cudamem::device_resource>(context, pool);
            };
            measure("cudamem", [&] { return ours(0); });
            measure("cudamem, regions", [&] { return ours(CUDAMEM_POOL_REGIONS); });
#if defined(WITH_RMM)
            rmm::mr::cuda_memory_resource base;
            measure("RMM's pool", [&] { return std::make_unique<rmm::mr::pool_memory_resource>(base, std::size_t{2} << 20); });
            measure("RMM's arena", [&] { return std::make_unique<rmm::mr::arena_memory_resource>(base); });
            measure("RMM's async", [&] { return std::make_unique<rmm::mr::cuda_async_memory_resource>(); });
#else
            std::printf("  left out: RMM, whose headers are not there\n");
#endif
        }
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
