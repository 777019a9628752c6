// Containers of the standard library in page-locked memory of a pool, which the device reads in place.
//
// Needs libcudamem, and an NVIDIA GPU or the software GPU: see ../README.md.
#include <cudamem.hpp>

#include <cstdint>
#include <iostream>
#include <map>
#include <memory_resource>
#include <string>
#include <vector>

static void containers()
{
    const cudamem::context context(0);
    const cudamem::pool pool(cudamem::resource::pinned(context));
    // One stream that only orders CPU allocations, and one for work.
    const cudamem::stream quiet(context), work(context);

    {
        // With std::pmr: any container, and its elements.
        cudamem::memory_resource memory(pool, quiet);
        std::pmr::map<std::pmr::string, int> counts(&memory);
        for (const char *word : {"memory", "that", "moves", "no", "memory"}) {
            counts[std::pmr::string(word, &memory)]++;
        }
        std::cout << "memory: " << counts.find("memory")->second << " times, in "
                  << pool.statistics().blocks.current << " blocks of the pool\n";
    }

    {
        // With a typed allocator, whose memory follows a moved container.
        const cudamem::allocator<float> allocator(pool, quiet);
        const std::vector<float, cudamem::allocator<float>> samples(1 << 20, 0.5f, allocator);

        // The device copies from the vector itself, because it addresses that memory.
        const std::size_t size = samples.size() * sizeof(float);
        const auto address = reinterpret_cast<std::uintptr_t>(samples.data());
        const cudamem::buffer source = cudamem::buffer::borrow(address, size, work);
        const cudamem::buffer device(cudamem::resource::device(context), size, work);
        device.copy(0, source);
        float last = 0;
        device.read(size - sizeof last, &last, sizeof last);
        std::cout << "the device has " << samples.size() << " samples, the last is " << last << '\n';
    }
    std::cout << pool.statistics().blocks.current << " blocks are left\n";
}

int main()
{
    try {
        containers();
        return 0;
    } catch (const cudamem::error &error) {
        std::cerr << "pmr_pool: " << error << '\n';
        return 1;
    }
}
