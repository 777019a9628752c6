// Reads of files and large page-locked memory in C++, while each call of the driver fails in turn.
#include "../api/software.h"
#include "test.hpp"

#include <optional>
#include <string>

/// Calls `run` with a fault at one call. It gives a whole buffer, which `check` sees, or throws an error. Returns whether it
/// had such a call.
template <typename Run, typename Check>
static bool run_with_fault(int number, const Run &run, const Check &check, int &errors)
{
    std::optional<cudamem::buffer> buffer;
    std::string message;
    fail_call(number);
    try {
        buffer.emplace(run());
    } catch (const cudamem::error &error) {
        message = error.what();
    }
    const bool failed = end_faults() == 1;
    if (buffer) {
        check(*buffer);
    } else {
        CHECK(failed && message.size() > 20);
        errors++;
    }
    return failed;
}

/// Fails each call of `run` in turn. The program's end finds any object that a run leaves behind.
template <typename Run, typename Check>
static void fail_each(const cudamem::engine &engine, int least, const Run &run, const Check &check)
{
    int errors = 0, number = 0;
    bool failed = true;
    run(); // also ends what earlier work has left
    while (failed) {
        number++;
        failed = false;
        // A run that waits less than others asks the driver less often.
        for (int tries = 0; tries < 10 && !failed; tries++) {
            engine.trim(); // so that staging is made while calls fail
            failed = run_with_fault(number, run, check, errors);
        }
    }
    CHECK(number > least && errors >= least);
}

void faults()
{
    if (!can_inject_faults()) {
        return;
    }
    constexpr std::size_t size = 150000, slot = 8192;
    const cudamem::context context(0);
    const cudamem::stream stream(context);
    cudamem_engine_options options{};
    options.threads = 2;
    options.slot_size = slot;
    options.slots = 3;
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
    const auto device = cudamem::resource::device(context);
    const auto to_device = [&] { return engine.read_file(fileno(file), 5, size, device, stream); };
    fail_each(engine, 2 * size / slot, to_device, whole); // a copy and an event for each piece
    fail_each(engine, 1, [&] { return engine.read_file(fileno(file), 5, size, pinned, stream); }, whole);
    const std::size_t large = std::size_t{256} << 20;
    const auto allocate = [&] { return cudamem::buffer(pinned, large, stream); };
    fail_each(engine, 1, allocate, [&](const cudamem::buffer &buffer) { CHECK(buffer.size() == large); });
    CHECK(std::fclose(file) == 0);
}
