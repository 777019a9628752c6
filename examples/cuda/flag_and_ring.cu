// A running kernel that communicates with the CPU: it answers a flag, and sends back the items of a ring.
//
// nvcc or clang compiles the kernels to PTX, and the driver loads the PTX. So the same program runs on a GPU, and on
// the software GPU, which runs its own kernels of these names. examples/README.md says how to build it.

#if defined(__CUDACC__) || defined(__CUDA__)

// ---- The device ----

#include <cudamem/signal.cuh>

#if !defined(__global__) // clang without CUDA's headers
#define __global__ __attribute__((global))
#endif

using namespace cudamem;

// Sets `answer` to 1, 2, ... `rounds`, each when `question` is at least that. Waits end after `patience` nanoseconds.
extern "C" __global__ void cuda_mem_echo_flag(
    const uint32_t *question, uint32_t *answer, uint64_t rounds, uint64_t patience, uint64_t ordered) {
    for (uint64_t round = 1; round <= rounds; ++round) {
        const uint32_t word = static_cast<uint32_t>(round);
        if (wait(question, comparison::at_least, word, patience) != outcome::done) return;
        if (ordered) {
            set(answer, word); // after everything that this thread wrote before
        } else {
            post(answer, word);
        }
    }
}

// Sends back every item until the CPU closes its end, and then closes its own.
extern "C" __global__ void cuda_mem_echo_ring(ring_descriptor requests, ring_descriptor answers, uint64_t patience) {
    ring_consumer<uint64_t> input(requests);
    ring_producer<uint64_t> output(answers);
    uint64_t item;
    while (input.receive(item, patience) == outcome::done) {
        if (output.send(item, patience) != outcome::done) break;
    }
    input.close();
    output.close();
}

#else

// ---- The host ----

#include <cudamem.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace {

constexpr std::uint64_t PATIENCE = 10'000'000'000; // nanoseconds
constexpr std::uint64_t ROUNDS = 2000;
constexpr std::size_t ITEMS = 100000;

/// The few driver functions that a launch needs. A program with CUDA's headers uses <cuda.h> instead.
class module {
public:
    module(const cudamem::context &context, const char *path)
    {
        void *raw = nullptr;
        cudamem::check(cudamem_get_raw(context.get().id, &raw));
        std::ifstream file(path);
        std::stringstream text;
        text << file.rdbuf();
        if (text.str().empty()) throw std::runtime_error(std::string(path) + " holds no PTX: see examples/README.md");
        const char *name = std::getenv("CUDA_MEM_LIBCUDA");
        library_ = dlopen(name != nullptr && *name != 0 ? name : "libcuda.so.1", RTLD_NOW);
        if (library_ == nullptr) throw std::runtime_error(dlerror());
        call<int(void *)>("cuCtxSetCurrent", raw);
        call<int(void **, const void *)>("cuModuleLoadData", &module_, text.str().c_str());
    }

    /// Runs one thread of a kernel.
    template <typename... Arguments> void launch(const char *name, const cudamem::stream &stream, Arguments... arguments)
    {
        void *kernel = nullptr, *raw = nullptr;
        call<int(void **, void *, const char *)>("cuModuleGetFunction", &kernel, module_, name);
        cudamem::check(cudamem_get_raw(stream.get().id, &raw));
        void *places[] = {&arguments...};
        call<int(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **)>(
            "cuLaunchKernel", kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, raw, places, nullptr);
    }

    void unload() { call<int(void *)>("cuModuleUnload", module_); }

private:
    template <typename Function, typename... Arguments> void call(const char *name, Arguments... arguments)
    {
        const auto function = reinterpret_cast<Function *>(dlsym(library_, name));
        const int code = function != nullptr ? function(arguments...) : -1;
        if (code != 0) throw std::runtime_error(std::string(name) + " failed with code " + std::to_string(code));
    }

    void *library_ = nullptr;
    void *module_ = nullptr;
};

double microseconds_since(std::chrono::steady_clock::time_point start)
{
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

void run(const char *path)
{
    const auto patience = cudamem::within(std::chrono::seconds(10));
    cudamem::context context(0);
    cudamem::stream stream(context);
    cudamem::signals signals(context);
    // Each word lies where its waiter polls it fastest.
    cudamem::flag<std::uint32_t> question(signals, CUDAMEM_PLACE_FOR_DEVICE), answer(signals, CUDAMEM_PLACE_FOR_CPU);
    cudamem::ring_to_device<std::uint64_t> requests(signals, 1024);
    cudamem::ring_from_device<std::uint64_t> answers(signals, 1024);
    module kernels(context, path);

    // A flag: the kernel starts once and answers many times.
    kernels.launch("cuda_mem_echo_flag", stream, question.device_pointer(), answer.device_pointer(), ROUNDS, PATIENCE,
                   std::uint64_t{0});
    question.record_use(stream);
    answer.record_use(stream);
    auto start = std::chrono::steady_clock::now();
    for (std::uint32_t round = 1; round <= ROUNDS; round++) {
        question.store(round);
        answer.wait(CUDAMEM_COMPARE_EQUAL, round, patience);
    }
    std::printf("flag: %u answers, %.2f us each\n", answer.load(), microseconds_since(start) / double(ROUNDS));

    // Two rings: what is pushed comes back, in order.
    kernels.launch("cuda_mem_echo_ring", stream, requests.descriptor(), answers.descriptor(), PATIENCE);
    requests.record_use(stream);
    answers.record_use(stream);
    std::uint64_t next = 0, expected = 0, items[64];
    start = std::chrono::steady_clock::now();
    while (expected < ITEMS) {
        while (next < ITEMS && requests.push(&next, 1) == 1) next++;
        const std::size_t count = answers.receive(items, 64, patience);
        for (std::size_t index = 0; index < count; index++, expected++) {
            if (items[index] != expected) throw std::runtime_error("an item is out of its order");
        }
        if (count == 0) throw std::runtime_error("the kernel has given up");
    }
    std::printf("ring: %zu items and back, %.3f us each\n", std::size_t(expected), microseconds_since(start) / double(ITEMS));
    requests.close_end(); // the kernel ends
    stream.synchronize();
    std::printf("the kernel has closed its end: %s\n", answers.is_closed() ? "yes" : "no");
    kernels.unload();
}

} // namespace

int main(int count, char **arguments)
{
    try {
        run(count > 1 ? arguments[1] : "flag_and_ring.ptx");
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}

#endif
