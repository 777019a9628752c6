// The cost of our pool as a resource of cuda::mr, compared with RMM's pools, for the workloads of `cuda-mem bench pool`
// and for RMM's own benchmark of random allocations: the same rows, with a column for each pool. `--brief` is a short
// run.
//
// Without RMM's headers it measures only our pool; scripts/test builds and runs it that way on the software GPU.
// gpu-bundle/run-all uses RMM if librmm and rapids_logger (wheels of PyPI) are unpacked in the folder that RMM_SITE
// names.

#include <cudamem.hpp>
#include <cudamem/cuda_mr.hpp>

#if __has_include(<rmm/mr/pool_memory_resource.hpp>)
#define WITH_RMM
#include <rmm/device_uvector.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#endif

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using Clock = std::chrono::steady_clock;

constexpr std::size_t ALIGNMENT = 256;
constexpr std::size_t MEBIBYTE = 1 << 20;

// How much work each measurement does.
struct Effort {
    double budget;  // ns
    std::size_t samples;
    std::size_t initial;  // of the pools
    std::size_t live;     // the minimum; the maximum is twice as many
    std::size_t largest;
    std::vector<std::size_t> holes;
    std::vector<int> threads;
    std::vector<std::pair<std::size_t, std::size_t>> as_rmm;  // number of allocations, and the largest in MiB
};

const Effort FULL{400e6, 200'000, std::size_t{4} << 30, 1000, MEBIBYTE, {64, 1024, 4096, 16384, 65536}, {1, 2, 4, 8, 16},
                  {{1000, 1}, {1000, 4}, {1000, 64}, {1000, 256}, {10'000, 1}, {10'000, 64}, {100'000, 1}}};
const Effort BRIEF{3e6, 200, 8 * MEBIBYTE, 20, 1 << 16, {64, 256}, {1, 2}, {{100, 1}}};

double nanoseconds(Clock::time_point start) {
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

// SplitMix64 as in the Rust program, so that sizes and their order are the same.
struct Random {
    std::uint64_t state;
    std::uint64_t next() {
        state += 0x9E3779B97F4A7C15;
        std::uint64_t mixed = state;
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
        return mixed ^ (mixed >> 31);
    }
    std::size_t below(std::size_t limit) { return next() % limit; }
};

struct Figures {
    double mean = 0;
    double p999 = 0;
};

double clock_itself() {
    std::vector<double> times(1001);
    for (auto& time : times) time = nanoseconds(Clock::now());
    std::sort(times.begin(), times.end());
    return times[500];
}

template <class Call>
double tail(const Effort& effort, Call call) {
    std::vector<double> times;
    auto start = Clock::now();
    while (times.size() < effort.samples && nanoseconds(start) < effort.budget) {
        auto before = Clock::now();
        call();
        times.push_back(nanoseconds(before));
    }
    std::sort(times.begin(), times.end());
    return std::max(0.0, times[times.size() * 999 / 1000] - clock_itself());
}

template <class Pool>
struct Bench {
    Pool& pool;
    const Effort& effort;
    const cudamem::context& context;
    cudamem::stream own{context};
    cuda::stream_ref stream{static_cast<cudaStream_t>(own.raw())};

    void pair(std::size_t size, cuda::stream_ref on) {
        void* block = pool.allocate(on, size, ALIGNMENT);
        pool.deallocate(on, block, size, ALIGNMENT);
    }

    Figures pairs(std::size_t size) {
        for (int n = 0; n < 100; ++n) pair(size, stream);
        auto once = Clock::now();
        pair(size, stream);
        int batch = static_cast<int>(200e3 / std::max(20.0, nanoseconds(once))) + 1;
        std::vector<double> means;
        auto start = Clock::now();
        while (means.size() < 5 || nanoseconds(start) < effort.budget) {
            auto before = Clock::now();
            for (int n = 0; n < batch; ++n) pair(size, stream);
            means.push_back(nanoseconds(before) / batch);
        }
        std::sort(means.begin(), means.end());
        return {means[means.size() / 2], tail(effort, [&] { pair(size, stream); })};
    }

    Figures random() {
        Random random{1};
        std::vector<std::pair<void*, std::size_t>> live;
        auto step = [&] {
            if (live.size() < effort.live || ((random.next() & 1) && live.size() < 2 * effort.live)) {
                std::size_t size = (1 + random.below(effort.largest) + 255) & ~std::size_t{255};
                live.emplace_back(pool.allocate(stream, size, ALIGNMENT), size);
            } else {
                std::size_t index = random.below(live.size());
                pool.deallocate(stream, live[index].first, live[index].second, ALIGNMENT);
                live[index] = live.back();
                live.pop_back();
            }
        };
        for (std::size_t n = 0; n < effort.live; ++n) step();
        std::size_t count = 0;
        auto start = Clock::now();
        while (count < 1000 || nanoseconds(start) < effort.budget) {
            for (int n = 0; n < 100; ++n) step();
            count += 100;
        }
        double mean = nanoseconds(start) / count;
        double last = tail(effort, step);
        for (auto [block, size] : live) pool.deallocate(stream, block, size, ALIGNMENT);
        return {mean, last};
    }

    // RMM's benchmark of twice `count` steps. Of 100 steps 73 allocate, until `count` blocks were allocated, and the
    // others free a live block. The mean is the time of one step.
    Figures as_rmm(std::size_t count, std::size_t largest) {
        constexpr std::size_t MOST = 16'000 * MEBIBYTE;
        std::vector<std::pair<void*, std::size_t>> live;
        auto run = [&] {
            Random random{1};
            std::size_t allocated = 0, bytes = 0;
            for (std::size_t n = 0; n < 2 * count; ++n) {
                std::size_t size = 1 + random.below(largest);
                bool allocates = live.empty() || random.below(100) < 73;
                if (allocates && allocated < count && bytes + size < MOST) {
                    live.emplace_back(pool.allocate(stream, size, ALIGNMENT), size);
                    ++allocated;
                    bytes += size;
                } else if (!live.empty()) {
                    std::swap(live[random.below(live.size())], live.back());
                    auto [block, freed] = live.back();
                    pool.deallocate(stream, block, freed, ALIGNMENT);
                    bytes -= freed;
                    live.pop_back();
                }
            }
            for (auto [block, size] : live) pool.deallocate(stream, block, size, ALIGNMENT);
            live.clear();
        };
        run();
        std::vector<double> means;
        auto start = Clock::now();
        while (means.size() < 3 || nanoseconds(start) < effort.budget) {
            auto before = Clock::now();
            run();
            means.push_back(nanoseconds(before) / (2.0 * static_cast<double>(count)));
        }
        std::sort(means.begin(), means.end());
        return {means[means.size() / 2], 0};
    }

    Figures holes(std::size_t count) {
        constexpr std::size_t SIZE = 1024;
        std::vector<void*> blocks(2 * count);
        for (auto& block : blocks) block = pool.allocate(stream, SIZE, ALIGNMENT);
        for (std::size_t n = 1; n < blocks.size(); n += 2) pool.deallocate(stream, blocks[n], SIZE, ALIGNMENT);
        Figures figures = pairs(SIZE);
        for (std::size_t n = 0; n < blocks.size(); n += 2) pool.deallocate(stream, blocks[n], SIZE, ALIGNMENT);
        return figures;
    }

    Figures threads(int count, bool own_streams) {
        std::barrier together(count + 1);
        std::atomic<bool> end{false};
        std::atomic<std::uint64_t> total{0};
        std::vector<std::thread> workers;
        for (int n = 0; n < count; ++n) {
            workers.emplace_back([&] {
                cudamem::stream mine(context);
                cuda::stream_ref on = own_streams ? cuda::stream_ref{static_cast<cudaStream_t>(mine.raw())} : stream;
                for (int n = 0; n < 100; ++n) pair(4096, on);
                together.arrive_and_wait();
                std::uint64_t pairs = 0;
                while (!end.load(std::memory_order_relaxed)) {
                    for (int n = 0; n < 16; ++n) pair(4096, on);
                    pairs += 16;
                }
                total += pairs;
            });
        }
        together.arrive_and_wait();
        auto start = Clock::now();
        std::this_thread::sleep_for(std::chrono::nanoseconds(static_cast<std::int64_t>(effort.budget)));
        end = true;
        double elapsed = nanoseconds(start);
        for (auto& worker : workers) worker.join();
        return {elapsed * count / std::max<double>(1, total.load()), 0};
    }
};

void row(const std::string& name, const char* pool, Figures figures) {
    std::printf("%-28s %-8s %12.1f", name.c_str(), pool, figures.mean);
    if (figures.p999 > 0) std::printf(" (%.0f)", figures.p999);
    std::printf("\n");
    std::fflush(stdout);
}

template <class Make>
bool measure(const char* name, const Effort& effort, const cudamem::context& context, Make make) {
    bool worked = true;
    auto run = [&](const std::string& what, auto work) {
        try {
            auto pool = make();
            Bench<std::remove_reference_t<decltype(*pool)>> bench{*pool, effort, context};
            row(what, name, work(bench));
        } catch (const std::exception& error) {
            std::printf("%-28s %-8s failed: %s\n", what.c_str(), name, error.what());
            worked = false;
        }
    };
    for (std::size_t size : {std::size_t{256}, std::size_t{4096}, std::size_t{1} << 20}) {
        run("pair, " + std::to_string(size) + " B", [&](auto& bench) { return bench.pairs(size); });
    }
    run("random", [](auto& bench) { return bench.random(); });
    for (auto [count, largest] : effort.as_rmm) {
        run("RMM's " + std::to_string(count) + ", " + std::to_string(largest) + " MiB",
            [&, count = count, largest = largest](auto& bench) { return bench.as_rmm(count, largest * MEBIBYTE); });
    }
    for (std::size_t count : effort.holes) {
        run(std::to_string(count) + " holes", [&](auto& bench) { return bench.holes(count); });
    }
    for (bool own : {false, true}) {
        for (int count : effort.threads) {
            run(std::to_string(count) + (own ? " threads, own streams" : " threads, one stream"),
                [&](auto& bench) { return bench.threads(count, own); });
        }
    }
    return worked;
}

#if defined(WITH_RMM)
// RMM's containers allocate from our pool once it is the current resource.
bool serves_rmm(const std::shared_ptr<const cudamem::context>& context) {
    auto pool = std::make_shared<const cudamem::pool>(cudamem::resource::device(*context));
    cudamem::device_resource ours(context, pool);
    cudamem::stream own(*context);
    cuda::stream_ref stream{static_cast<cudaStream_t>(own.raw())};
    rmm::mr::set_current_device_resource(ours);
    bool serves = true;
    {
        rmm::device_uvector<int> numbers(1000, stream);
        rmm::device_uvector<int> copy(numbers, stream);
        serves &= pool->statistics().blocks.current == 2;
    }
    serves &= pool->statistics().blocks.current == 0;
    rmm::mr::reset_current_device_resource();
    std::printf("rmm::device_uvector in our pool: %s\n", serves ? "yes" : "NO");
    return serves;
}
#endif

int main(int count, char** arguments) {
    const Effort& effort = count > 1 && std::strcmp(arguments[1], "--brief") == 0 ? BRIEF : FULL;
    try {
        auto context = std::make_shared<const cudamem::context>(0);
        std::printf("nanoseconds: the mean (p99.9) of an allocation and its free; of random and RMM's, of one operation\n");
        auto ours = [&](std::uint32_t flags) {
            cudamem_pool_options options{};
            options.initial = effort.initial;
            options.flags = flags;
            auto pool = std::make_shared<const cudamem::pool>(cudamem::resource::device(*context), options);
            return std::make_unique<cudamem::device_resource>(context, pool);
        };
        bool worked = measure("cudamem", effort, *context, [&] { return ours(0); });
        worked &= measure("regions", effort, *context, [&] { return ours(CUDAMEM_POOL_REGIONS); });
#if defined(WITH_RMM)
        worked &= serves_rmm(context);
        rmm::mr::cuda_memory_resource base;
        worked &= measure("pool", effort, *context,
                          [&] { return std::make_unique<rmm::mr::pool_memory_resource>(base, effort.initial); });
        worked &= measure("arena", effort, *context,
                          [&] { return std::make_unique<rmm::mr::arena_memory_resource>(base, effort.initial); });
        worked &= measure("async", effort, *context,
                          [&] { return std::make_unique<rmm::mr::cuda_async_memory_resource>(); });
#else
        std::printf("left out: RMM, whose headers are not there\n");
#endif
        return worked ? 0 : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
