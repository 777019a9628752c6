// What RMM's pools cost for what `cuda-mem bench pool` measures: the same rows, a column for each pool. It is built and run
// by gpu-bundle/run-all where librmm and rapids_logger (wheels of PyPI) are unpacked in the folder that RMM_SITE names.

#include <rmm/cuda_stream.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>
#include <vector>

using Clock = std::chrono::steady_clock;

constexpr double BUDGET = 400e6;  // ns
constexpr std::size_t SAMPLES = 200'000;
constexpr std::size_t ALIGNMENT = 256;

double nanoseconds(Clock::time_point start) {
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

// SplitMix64, as in the Rust program: the same sizes in the same order.
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
double tail(Call call) {
    std::vector<double> times;
    auto start = Clock::now();
    while (times.size() < SAMPLES && nanoseconds(start) < BUDGET) {
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
    rmm::cuda_stream own{};
    cuda::stream_ref stream{own.value()};

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
        while (means.size() < 5 || nanoseconds(start) < BUDGET) {
            auto before = Clock::now();
            for (int n = 0; n < batch; ++n) pair(size, stream);
            means.push_back(nanoseconds(before) / batch);
        }
        std::sort(means.begin(), means.end());
        return {means[means.size() / 2], tail([&] { pair(size, stream); })};
    }

    Figures random() {
        Random random{1};
        std::vector<std::pair<void*, std::size_t>> live;
        auto step = [&] {
            if (live.size() < 1000 || ((random.next() & 1) && live.size() < 2000)) {
                std::size_t size = (1 + random.below(1 << 20) + 255) & ~std::size_t{255};
                live.emplace_back(pool.allocate(stream, size, ALIGNMENT), size);
            } else {
                std::size_t index = random.below(live.size());
                pool.deallocate(stream, live[index].first, live[index].second, ALIGNMENT);
                live[index] = live.back();
                live.pop_back();
            }
        };
        for (int n = 0; n < 1000; ++n) step();
        std::size_t count = 0;
        auto start = Clock::now();
        while (count < 1000 || nanoseconds(start) < BUDGET) {
            for (int n = 0; n < 100; ++n) step();
            count += 100;
        }
        double mean = nanoseconds(start) / count;
        double last = tail(step);
        for (auto [block, size] : live) pool.deallocate(stream, block, size, ALIGNMENT);
        return {mean, last};
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
                rmm::cuda_stream mine;
                cuda::stream_ref on = own_streams ? cuda::stream_ref{mine.value()} : stream;
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
        std::this_thread::sleep_for(std::chrono::nanoseconds(static_cast<std::int64_t>(BUDGET)));
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
void measure(const char* name, Make make) {
    auto run = [&](const std::string& what, auto work) {
        try {
            auto pool = make();
            Bench<std::remove_reference_t<decltype(*pool)>> bench{*pool};
            row(what, name, work(bench));
        } catch (const std::exception& error) {
            std::printf("%-28s %-8s failed: %s\n", what.c_str(), name, error.what());
        }
    };
    for (std::size_t size : {std::size_t{256}, std::size_t{4096}, std::size_t{1} << 20}) {
        run("pair, " + std::to_string(size) + " B", [&](auto& bench) { return bench.pairs(size); });
    }
    run("random", [](auto& bench) { return bench.random(); });
    for (std::size_t count : {64, 1024, 4096, 16384, 65536}) {
        run(std::to_string(count) + " holes", [&](auto& bench) { return bench.holes(count); });
    }
    for (bool own : {false, true}) {
        for (int count : {1, 2, 4, 8, 16}) {
            run(std::to_string(count) + (own ? " threads, own streams" : " threads, one stream"),
                [&](auto& bench) { return bench.threads(count, own); });
        }
    }
}

int main() {
    rmm::mr::cuda_memory_resource base;
    constexpr std::size_t INITIAL = std::size_t{4} << 30;
    std::printf("RMM, nanoseconds: the mean (p99.9) of an allocation and its free; of random, of one operation\n");
    measure("pool", [&] { return std::make_unique<rmm::mr::pool_memory_resource>(base, INITIAL); });
    measure("arena", [&] { return std::make_unique<rmm::mr::arena_memory_resource>(base, INITIAL); });
    measure("async", [&] { return std::make_unique<rmm::mr::cuda_async_memory_resource>(); });
}
