// A program that logs every failure on every thread. The log function itself calls the library.
#include <cudamem.hpp>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

struct log {
    std::mutex mutex;
    std::vector<std::string> lines;
    std::atomic<int> drops{0};
};

// Makes library calls of which one always fails. The library must not call this function for those failures.
void on_failure(cudamem_status status, const char *message, void *user)
{
    log &own = *static_cast<log *>(user);
    std::string line = std::string(cudamem_status_name(status)) + ": " + message;
    try {
        line += ", of " + std::to_string(cudamem::device_count()) + " devices";
        cudamem::device_info(-1);
    } catch (const cudamem::error &error) {
        line += std::string(" (") + error.what() + ")";
    }
    const std::lock_guard<std::mutex> lock(own.mutex);
    own.lines.push_back(line);
}

void on_drop_error(cudamem_status status, const char *message, void *user)
{
    ++static_cast<log *>(user)->drops;
    on_failure(status, message, user);
}

} // namespace

int main()
{
    static log own;
    cudamem::set_log(on_failure, &own);
    cudamem::set_drop_error_callback(on_drop_error, &own);
    try {
        const cudamem::context context(0);
        const cudamem::pool pool(cudamem::resource::device(context));
        std::vector<std::thread> threads;
        for (int index = 0; index < 4; index++) {
            threads.emplace_back([&] {
                const cudamem::stream stream(context);
                for (int round = 0; round < 100; round++) {
                    const cudamem::buffer buffer(pool, 100, stream);
                    try {
                        buffer.fill(1, 100, 0);
                    } catch (const cudamem::error &error) {
                        // A failure within the log function must not replace the error that it logs.
                        if (error.status() != CUDAMEM_ERROR_OUT_OF_RANGE && error.status() != CUDAMEM_ERROR_MISALIGNED) {
                            std::cerr << error << '\n';
                            std::_Exit(2);
                        }
                    }
                }
            });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
    } catch (const cudamem::error &error) {
        std::cerr << error << '\n' << own.lines.size() << " lines\n";
        return 1;
    }
    const bool as_expected = own.lines.size() == 400 && own.drops == 0;
    for (const std::string &line : own.lines) {
        if (!as_expected || line.find("devices (cudamem_device_get_info: ") == std::string::npos) {
            std::cerr << line << '\n';
            return 3;
        }
    }
    return as_expected ? 0 : 4;
}
