// Memory that the CPU and the device both address: each writes numbers, and the other reads them.
//
// Needs libcudamem, and an NVIDIA GPU or the software GPU: see ../README.md.
#include <cudamem.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <numeric>

static void hello()
{
    const cudamem::context context(0);
    const cudamem::stream stream(context);
    const cudamem::buffer memory(cudamem::resource::mapped(context), 4096, stream);

    // The CPU's view of the memory: std::span in C++20. Flush CPU writes before the device reads them.
    const cudamem::span<std::uint32_t> words = memory.host_span<std::uint32_t>();
    std::iota(words.begin(), words.begin() + 4, 1u);
    memory.flush(0, 4 * sizeof(std::uint32_t));

    // Reads, fills and copies are work of the device.
    std::array<std::uint32_t, 4> seen{};
    memory.read(0, seen);
    std::cout << "the device sees: " << seen[0] << ' ' << seen[1] << ' ' << seen[2] << ' ' << seen[3] << '\n';

    memory.fill(1024, 16, std::uint32_t{42});
    memory.synchronize();
    memory.load(1024, seen);
    std::cout << "the CPU sees:    " << seen[0] << ' ' << seen[1] << ' ' << seen[2] << ' ' << seen[3] << '\n';
}

int main()
{
    try {
        hello();
        return 0;
    } catch (const cudamem::error &error) {
        // Without a driver, a device or Vulkan, the message says what is missing and what to do.
        std::cerr << "hello_mapped: " << error << '\n';
        return 1;
    }
}
