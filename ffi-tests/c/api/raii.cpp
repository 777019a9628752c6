// include/cudamem.hpp: objects that end by themselves, exceptions, containers in memory of the library.
#include "cudamem.hpp"
#include "ledger.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory_resource>
#include <string>
#include <vector>

#define CHECK(condition)                                                                                                 \
    do {                                                                                                                 \
        if (!(condition)) {                                                                                              \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                         \
            std::exit(1);                                                                                                \
        }                                                                                                                \
    } while (0)

template <typename Call> static cudamem_status status_of(Call call)
{
    try {
        call();
    } catch (const cudamem::error &error) {
        CHECK(std::strlen(error.what()) > 20);
        return error.status();
    }
    return CUDAMEM_SUCCESS;
}

static int drop_errors;

static void on_drop_error(cudamem_status, const char *message, void *)
{
    std::fprintf(stderr, "drop error: %s\n", message);
    drop_errors++;
}

static void objects()
{
    const cudamem::context context(0);
    const cudamem::stream stream(context);
    CHECK(cudamem::describe().find("\"devices\"") != std::string::npos);

    // Moved, and ended once.
    cudamem::pool pool(cudamem::resource::device(context));
    cudamem::buffer buffer(pool, 1000, stream);
    const cudamem_buffer handle = buffer.get();
    cudamem::buffer moved(std::move(buffer));
    CHECK(!buffer && moved && moved.get().id == handle.id && moved.size() == 1000);
    buffer = std::move(moved);
    CHECK(buffer && pool.statistics().blocks.current == 1);
    cudamem::buffer part = buffer.slice(100, 4);
    buffer = cudamem::buffer();
    CHECK(pool.statistics().blocks.current == 1);
    part.fill(0, 4, std::uint32_t{0x01020304});
    std::uint32_t word = 0;
    part.read(0, &word, sizeof word);
    CHECK(word == 0x01020304);
    part.close();
    part.close();
    CHECK(!part && pool.statistics().blocks.current == 0 && pool.snapshot().front() == '{');

    // What fails throws, also in constructors, and leaves nothing.
    CHECK(status_of([&] { cudamem::buffer(pool, 1000, stream).write(999, &word, 4); }) == CUDAMEM_ERROR_OUT_OF_RANGE);
    CHECK(status_of([&] { part.size(); }) == CUDAMEM_ERROR_INVALID_HANDLE);
    CHECK(status_of([&] { cudamem::context none(-1); }) == CUDAMEM_ERROR_DRIVER);
    CHECK(pool.statistics().blocks.current == 0);

    cudamem::resource source = cudamem::resource::mapped(context);
    cudamem::mapped memory(source, 4096);
    cudamem::engine engine(context);
    memory.write(16, &word, sizeof word);
    std::uint32_t seen = 0;
    engine.read(memory.slice(16), 0, &seen, sizeof seen);
    CHECK(seen == word);

    cudamem::event event(context);
    event.record(stream);
    stream.wait(event);
    event.synchronize();
    CHECK(event.has_passed());
}

static void containers()
{
    const cudamem::context context(0);
    const cudamem::stream stream(context);
    const cudamem::pool pool(cudamem::resource::pinned(context));
    {
        cudamem::memory_resource memory(pool, stream);
        std::pmr::vector<std::pmr::string> words(&memory);
        for (int index = 0; index < 1000; index++) {
            words.emplace_back("a string that is too long for its small buffer " + std::to_string(index));
        }
        CHECK(words[999].back() == '9' && pool.statistics().blocks.current >= 1000);
        bool refused = false;
        try {
            static_cast<void>(memory.allocate(16, 4096));
        } catch (const std::bad_alloc &) {
            refused = true;
        }
        CHECK(refused);
    }
    CHECK(pool.statistics().blocks.current == 0);
    bool refused = false;
    try {
        cudamem::memory_resource none(cudamem::resource::device(context), stream);
    } catch (const std::invalid_argument &) {
        refused = true;
    }
    CHECK(refused);
}

int main()
{
    cudamem::check(cudamem_set_drop_error_callback(on_drop_error, nullptr));
    objects();
    containers();
    CHECK(drop_errors == 0);
    check_ledger();
    return 0;
}
