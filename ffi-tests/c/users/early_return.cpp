// C++ code that throws in the middle of its work, so that destructors clean up objects, containers and statics.
#include <cudamem.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory_resource>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

void expect(bool condition, const char *what)
{
    if (!condition) {
        std::cerr << what << '\n';
        std::_Exit(1);
    }
}

// The static object is destroyed after main; its members in reverse order.
struct engine {
    cudamem::context context{0};
    cudamem::stream stream{context};
    cudamem::pool pool{cudamem::resource::device(context)};
};

engine &shared()
{
    static engine made;
    return made;
}

// Destroyed at the end of its thread.
cudamem::buffer &of_this_thread()
{
    thread_local cudamem::buffer made(shared().pool, 1000, shared().stream);
    return made;
}

struct gives_up : std::runtime_error {
    gives_up() : std::runtime_error("the program's own reason") {}
};

// Queued work still runs when the destructors run.
void throws_in_the_middle(int depth)
{
    const cudamem::stream stream(shared().context);
    std::vector<cudamem::buffer> buffers;
    for (int index = 0; index < 10; index++) {
        buffers.emplace_back(shared().pool, 100000, stream);
        buffers.back().fill(0, cudamem::whole_size, index);
    }
    const cudamem::buffer part = buffers.front().slice(0, 1000);
    buffers.front().copy(0, buffers.back(), 0, 1000);
    if (depth == 0) {
        throw gives_up();
    }
    throws_in_the_middle(depth - 1);
}

void fails_in_the_middle()
{
    const cudamem::buffer buffer(shared().pool, 10, shared().stream);
    std::array<char, 11> bytes{};
    buffer.write(0, bytes);
}

void constructor_that_fails()
{
    struct several {
        cudamem::buffer first{shared().pool, 10, shared().stream};
        cudamem::buffer second{shared().pool, static_cast<std::size_t>(1) << 62, shared().stream};
    };
    several();
}

template <typename Expected, typename Work> void throws(Work work, const char *words)
{
    try {
        work();
    } catch (const Expected &error) {
        expect(std::string(error.what()).find(words) != std::string::npos, error.what());
        return;
    }
    expect(false, "nothing was thrown");
}

// Its destructor makes a call that fails, while another exception unwinds the stack.
struct fails_at_its_end {
    ~fails_at_its_end()
    {
        try {
            fails_in_the_middle();
        } catch (const cudamem::error &error) {
            expect(error.status() == CUDAMEM_ERROR_OUT_OF_RANGE, error.what());
        }
    }
};

void moved_from()
{
    cudamem::buffer buffer(shared().pool, 10, shared().stream);
    cudamem::buffer taken = std::move(buffer);
    expect(!buffer && taken, "a move must empty its source and fill its target");
    throws<cudamem::error>([&] { static_cast<void>(buffer.size()); }, "null handle");
    buffer = std::move(taken);
    cudamem::buffer &itself = buffer;
    buffer = std::move(itself);
    expect(buffer.size() == 10, "a buffer must survive a move to itself");
    buffer.close();
    throws<cudamem::error>([&] { static_cast<void>(buffer.size()); }, "null handle");
    buffer.close();
    // Two objects own the same handle by mistake. The library refuses the second destroy, so it frees nothing twice.
    cudamem::buffer owner(shared().pool, 10, shared().stream);
    const cudamem::buffer thief(owner.get());
    owner.close();
}

void containers()
{
    const cudamem::pool pool(cudamem::resource::pinned(shared().context));
    cudamem::memory_resource memory(pool, shared().stream);
    std::pmr::vector<int> numbers(1000, 7, &memory);
    throws<gives_up>(
        [&] {
            std::pmr::vector<int> more(numbers, &memory);
            more.resize(100000);
            throw gives_up();
        },
        "own reason");
    throws<std::bad_alloc>([&] { numbers.reserve(numbers.max_size()); }, "no room");
    expect(numbers.size() == 1000 && numbers.back() == 7, "failed growth must not change the vector");
}

void callbacks()
{
    // The functions run and are destroyed although their stream is destroyed first.
    const auto number = std::make_shared<int>(0);
    {
        const cudamem::stream stream(shared().context);
        for (int index = 0; index < 100; index++) {
            stream.launch_host_function([number] { ++*number; });
        }
    }
    shared().context.synchronize();
    expect(*number == 100 && number.use_count() == 1, "all functions must have run and been destroyed");
}

void threads()
{
    std::vector<std::thread> threads;
    for (int index = 0; index < 4; index++) {
        threads.emplace_back([index] {
            try {
                of_this_thread().fill(0, cudamem::whole_size, index);
                fails_in_the_middle();
            } catch (const cudamem::error &) {
                std::optional<cudamem::buffer> late(std::in_place, shared().pool, 10u, shared().stream);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

// The static object is constructed after the engine, so its destructor runs while the engine still exists.
struct last_words {
    ~last_words()
    {
        try {
            const cudamem::buffer buffer(shared().pool, 10, shared().stream);
            std::array<char, 10> bytes{};
            buffer.write(0, bytes);
            fails_in_the_middle();
        } catch (const cudamem::error &error) {
            expect(error.status() == CUDAMEM_ERROR_OUT_OF_RANGE, error.what());
        }
    }
};

} // namespace

int main()
{
    try {
        shared();
    } catch (const cudamem::error &error) {
        std::cerr << error << '\n';
        return 1;
    }
    static const last_words words;
    throws<gives_up>([] { throws_in_the_middle(3); }, "own reason");
    throws<cudamem::error>(fails_in_the_middle, "cudamem_buffer_write");
    throws<cudamem::error>(constructor_that_fails, "cudamem_buffer_allocate");
    throws<gives_up>(
        [] {
            const fails_at_its_end failing;
            throw gives_up();
        },
        "own reason");
    moved_from();
    containers();
    callbacks();
    threads();
    of_this_thread().fill(0, cudamem::whole_size, 1);
    std::puts("done");
    // A local object is alive: std::exit does not destroy it.
    const cudamem::buffer left(shared().pool, 10, shared().stream);
    std::exit(0);
}
