// Reads of files and large page-locked memory in C++, while each call of the driver fails in turn.
#include "../api/software.h"
#include "test.hpp"

#include <optional>
#include <string>

/// Fails each call of `run` in turn. Each run gives a whole buffer, which `check` sees, or throws an error. The program's
/// end finds any object that a run leaves behind.
template <typename Run, typename Check>
static void fail_each(const cudamem::engine &engine, const Run &run, const Check &check)
{
    std::uint64_t injected = 1;
    int failed = 0, number = 0;
    while (injected == 1) {
        engine.trim(); // so that staging is made while calls fail
        std::optional<cudamem::buffer> buffer;
        std::string message;
        fail_call(++number);
        try {
            buffer.emplace(run());
        } catch (const cudamem::error &error) {
            message = error.what();
        }
        injected = end_faults();
        if (buffer) {
            check(*buffer);
            buffer.reset();
        } else {
            CHECK(injected == 1 && message.size() > 20);
            failed++;
        }
    }
    CHECK(number > 3 && failed > 0);
}

void faults()
{
    if (!can_inject_faults()) {
        return;
    }
    constexpr std::size_t size = 150000;
    const cudamem::context context(0);
    const cudamem::stream stream(context);
    cudamem_engine_options options{};
    options.threads = 2;
    options.slot_size = 32 << 10;
    options.slots = 2;
    options.lanes = 1;
    const auto engine = cudamem::engine::create(context, options);
    std::string bytes(5 + size, ' ');
    for (std::size_t index = 0; index < bytes.size(); index++) {
        bytes[index] = static_cast<char>((index * 31) ^ (index >> 8));
    }
    std::FILE *file = std::tmpfile();
    CHECK(file != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size() && std::fflush(file) == 0);
    const auto pinned = cudamem::resource::pinned(context);
    const auto whole = [&](const cudamem::buffer &buffer) {
        std::string seen(size, ' ');
        buffer.read(0, seen);
        CHECK(bytes.compare(5, size, seen) == 0);
    };
    for (const auto &memory : {cudamem::resource::device(context), pinned.share()}) {
        fail_each(engine, [&] { return engine.read_file(fileno(file), 5, size, memory, stream); }, whole);
    }
    const std::size_t large = std::size_t{256} << 20;
    const auto allocate = [&] { return cudamem::buffer(pinned, large, stream); };
    fail_each(engine, allocate, [&](const cudamem::buffer &buffer) { CHECK(buffer.size() == large); });
    CHECK(std::fclose(file) == 0);
}
