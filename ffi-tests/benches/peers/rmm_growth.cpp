// How the costs of RMM's pools grow: the cases of `growth` (ffi-tests/costs) with live blocks, streams, threads, free
// ranges and idle streams, as the same CSV table, so that scripts/growth-picture draws both. `--brief` is a short run.
//
// Without RMM's headers it measures our pool through cuda::mr; scripts/test builds and runs it that way on the software
// GPU. gpu-bundle/run-all uses RMM if librmm and rapids_logger (wheels of PyPI) are unpacked in the folder that RMM_SITE
// names.

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
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

using Clock = std::chrono::steady_clock;

constexpr std::size_t ALIGNMENT = 256;
constexpr std::size_t BATCH = 1000;
constexpr std::size_t BLOCKS_OF_STREAMS = 8192;

// The points, and the time limits in ns.
struct Effort {
    double replace, fill;
    std::size_t initial;
    std::vector<std::size_t> blocks, streams, threads, holes, idle;
};

const Effort FULL{300e6,
                  10e9,
                  std::size_t{4} << 30,
                  {1'000, 10'000, 100'000, 1'000'000, 10'000'000},
                  {1, 4, 16, 64, 256, 1024},
                  {1, 2, 4, 16, 64, 256},
                  {0, 1'000, 10'000, 100'000, 1'000'000},
                  {0, 4, 16, 64, 256, 1024}};
const Effort BRIEF{2e6, 1e9, 8 << 20, {1'000, 4'000}, {1, 16}, {1, 2}, {0, 100}, {0, 16}};

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
    std::size_t size() { return 256 * (1 + (next() >> 62)); }
    template <class T>
    void shuffle(std::vector<T>& values) {
        for (std::size_t last = values.size(); last-- > 1;) std::swap(values[last], values[next() % (last + 1)]);
    }
};

// The times of batches of calls.
struct Batches {
    std::vector<double> times;
    template <class Call>
    void time(std::size_t calls, std::size_t operations, Call call) {
        auto start = Clock::now();
        for (std::size_t n = 0; n < calls; ++n) call();
        times.push_back(nanoseconds(start) / static_cast<double>(operations));
    }
    double mean() const {
        double sum = 0;
        for (double time : times) sum += time;
        return sum / static_cast<double>(times.size());
    }
    double median() {
        std::sort(times.begin(), times.end());
        return times.empty() ? 0 : times[times.size() / 2];
    }
};

struct Block {
    void* address = nullptr;
    std::size_t size = 0;
};

using Streams = std::vector<cudamem::stream>;

// The streams take turns.
struct Turns {
    const Streams& streams;
    std::size_t at = 0;
    cuda::stream_ref next() {
        cuda::stream_ref stream{static_cast<cudaStream_t>(streams[at].raw())};
        at = at + 1 == streams.size() ? 0 : at + 1;
        return stream;
    }
};

Streams some(const cudamem::context& context, std::size_t count) {
    Streams streams;
    for (std::size_t n = 0; n < count; ++n) streams.emplace_back(context);
    return streams;
}

struct GaveUp : std::runtime_error {
    GaveUp() : std::runtime_error("given up after the time limit") {}
};

double resident() {
    std::size_t all = 0, pages = 0;
    std::ifstream("/proc/self/statm") >> all >> pages;
    return static_cast<double>(pages) * 4096;
}

template <class Pool>
struct Bench {
    Pool& pool;
    const Effort& effort;
    const cudamem::context& context;
    std::vector<Block> held;

    void allocate(Block& block, std::size_t size, cuda::stream_ref stream) {
        block = {pool.allocate(stream, size, ALIGNMENT), size};
    }
    void free(const Block& block, cuda::stream_ref stream) { pool.deallocate(stream, block.address, block.size, ALIGNMENT); }

    // The list is resident before, so that it is not measured.
    Batches fill(std::size_t count, const Streams& streams, Random& random) {
        held.assign(count, Block{});
        return refill(streams, random);
    }

    Batches refill(const Streams& streams, Random& random) {
        Batches batches;
        Turns turns{streams};
        auto start = Clock::now();
        for (std::size_t next = 0; next < held.size();) {
            std::size_t calls = std::min(BATCH, held.size() - next);
            batches.time(calls, calls, [&] { allocate(held[next++], random.size(), turns.next()); });
            if (nanoseconds(start) > effort.fill) {
                held.resize(next);
                free_all(streams);
                throw GaveUp();
            }
        }
        return batches;
    }

    double free_all(const Streams& streams) {
        Batches batches;
        Turns turns{streams};
        for (std::size_t next = 0; next < held.size();) {
            std::size_t calls = std::min(BATCH, held.size() - next);
            batches.time(calls, calls, [&] { free(held[next++], turns.next()); });
        }
        return batches.median();
    }

    double replace(const Streams& streams, Random& random, double limit) {
        Batches batches;
        Turns turns{streams};
        std::size_t next = 0;
        auto start = Clock::now();
        while (nanoseconds(start) < limit || batches.times.size() < 5) {
            batches.time(BATCH, 2 * BATCH, [&] {
                auto stream = turns.next();
                free(held[next], stream);
                allocate(held[next], random.size(), stream);
                next = next + 1 == held.size() ? 0 : next + 1;
            });
        }
        return batches.median();
    }

    double pairs(const Streams& streams) {
        Batches batches;
        Turns turns{streams};
        auto start = Clock::now();
        while (nanoseconds(start) < effort.replace || batches.times.size() < 5) {
            batches.time(BATCH, 2 * BATCH, [&] {
                auto stream = turns.next();
                Block block;
                allocate(block, 512, stream);
                free(block, stream);
            });
        }
        return batches.median();
    }
};

// Measures all cases, each point with a new pool. Returns whether every call worked.
template <class Make>
bool measure(const char* subject, const Effort& effort, const cudamem::context& context, Make make) {
    using Pool = std::remove_reference_t<decltype(*make())>;
    bool worked = true;
    auto run = [&](const char* name, const std::vector<std::size_t>& counts, auto work) {
        for (std::size_t count : counts) {
            try {
                auto pool = make();
                Bench<Pool> bench{*pool, effort, context, {}};
                work(bench, count, [&](const char* what, double value) {
                    std::printf("%s,%s,%zu,\"%s\",%.1f\n", name, subject, count, what, value);
                    std::fflush(stdout);
                });
            } catch (const GaveUp& error) {
                std::fprintf(stderr, "%s, %zu, %s: %s\n", name, count, subject, error.what());
                return;
            } catch (const std::exception& error) {
                std::fprintf(stderr, "%s, %zu, %s: %s\n", name, count, subject, error.what());
                worked = false;
                return;
            }
        }
    };
    run("blocks", effort.blocks, [&](auto& bench, std::size_t count, auto show) {
        Streams streams = some(context, 1);
        Random random{count};
        bench.held.assign(count, Block{});
        double before = resident();
        double first = bench.refill(streams, random).mean();
        show("resident host memory, B a block", std::max(0.0, resident() - before) / static_cast<double>(count));
        random.shuffle(bench.held);
        show("first allocations, ns", first);
        show("replace, ns", bench.replace(streams, random, effort.replace));
        show("pair, ns", bench.pairs(streams));
        random.shuffle(bench.held);
        show("frees, ns", bench.free_all(streams));
        show("allocations, ns", bench.refill(streams, random).median());
        bench.free_all(streams);
    });
    run("streams", effort.streams, [&](auto& bench, std::size_t count, auto show) {
        Streams streams = some(context, count);
        Random random{1};
        bench.fill(BLOCKS_OF_STREAMS, streams, random);
        bench.replace(streams, random, effort.replace);
        show("replace, ns", bench.replace(streams, random, effort.replace));
        show("pair, ns", bench.pairs(streams));
        bench.free_all(streams);
    });
    run("holes", effort.holes, [&](auto& bench, std::size_t count, auto show) {
        Streams streams = some(context, 1), other = some(context, 1);
        Random random{count};
        bench.fill(2 * count, streams, random);
        std::vector<Block> idle = std::move(bench.held);
        Turns mine{streams}, theirs{other};
        for (std::size_t n = 0; n < idle.size(); n += 2) bench.free(idle[n], n % 4 == 0 ? mine.next() : theirs.next());
        bench.fill(1000, streams, random);
        random.shuffle(bench.held);
        show("replace, ns", bench.replace(streams, random, effort.replace));
        show("pair, ns", bench.pairs(streams));
        bench.free_all(streams);
        for (std::size_t n = 1; n < idle.size(); n += 2) bench.free(idle[n], mine.next());
    });
    run("idle-streams", effort.idle, [&](auto& bench, std::size_t count, auto show) {
        Streams streams = some(context, 1), others = some(context, count);
        Random random{1};
        bench.fill(8 * count, others, random);
        std::vector<Block> idle = std::move(bench.held);
        bench.fill(1000, streams, random);
        std::swap(bench.held, idle);
        bench.free_all(others);
        std::swap(bench.held, idle);
        random.shuffle(bench.held);
        show("replace, ns", bench.replace(streams, random, effort.replace));
        show("pair, ns", bench.pairs(streams));
        bench.free_all(streams);
    });
    run("threads", effort.threads, [&](auto& bench, std::size_t count, auto show) {
        std::size_t processors = std::max(1u, std::thread::hardware_concurrency());
        for (bool own : {true, false}) {
            std::barrier together(static_cast<std::ptrdiff_t>(count) + 1);
            std::atomic<bool> end{false};
            std::atomic<std::uint64_t> operations{0};
            Streams one = some(context, 1);
            std::vector<std::thread> workers;
            for (std::size_t thread = 0; thread < count; ++thread) {
                workers.emplace_back([&, thread] {
                    Streams mine = some(context, own ? 1 : 0);
                    const Streams& streams = own ? mine : one;
                    Bench<Pool> each{bench.pool, effort, context, {}};
                    Random random{thread};
                    each.fill(64, streams, random);
                    together.arrive_and_wait();
                    while (!end.load(std::memory_order_relaxed)) {
                        each.replace(streams, random, 0);
                        operations += 5 * 2 * BATCH;
                    }
                    each.free_all(streams);
                });
            }
            together.arrive_and_wait();
            auto start = Clock::now();
            std::this_thread::sleep_for(std::chrono::nanoseconds(static_cast<std::int64_t>(effort.replace)));
            end = true;
            for (auto& worker : workers) worker.join();
            double time = nanoseconds(start) * static_cast<double>(std::min(count, processors));
            show(own ? "own streams, ns" : "one stream, ns", time / static_cast<double>(operations.load()));
        }
    });
    return worked;
}

int main(int count, char** arguments) {
    const Effort& effort = count > 1 && std::strcmp(arguments[1], "--brief") == 0 ? BRIEF : FULL;
    try {
        auto context = std::make_shared<const cudamem::context>(0);
        std::printf("case,subject,count,measure,value\n");
#if defined(WITH_RMM)
        rmm::mr::cuda_memory_resource base;
        bool worked = measure("RMM's pool", effort, *context, [&] {
            return std::make_unique<rmm::mr::pool_memory_resource>(base, effort.initial);
        });
        worked &= measure("RMM's arena", effort, *context, [&] {
            return std::make_unique<rmm::mr::arena_memory_resource>(base, effort.initial);
        });
#else
        std::fprintf(stderr, "left out: RMM, whose headers are not there; our pool through cuda::mr instead\n");
        bool worked = measure("pool through cuda::mr", effort, *context, [&] {
            auto pool = std::make_shared<const cudamem::pool>(cudamem::resource::device(*context));
            return std::make_unique<cudamem::device_resource>(context, pool);
        });
#endif
        return worked ? 0 : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
