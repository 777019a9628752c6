// Thrust's algorithms allocate their temporary memory from the pools of this library, in order of a stream.
//
//     nvcc -std=c++17 -I include examples/cuda/thrust_pool.cu -lcudamem -o thrust_pool
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <cudamem.hpp>

#include <cuda_runtime_api.h>
#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

#include <cstdio>

// What Thrust asks of an allocator. It uses the memory on `stream` only.
struct pool_allocator {
    using value_type = char;
    cudaStream_t stream;

    char *allocate(std::ptrdiff_t size)
    {
        return reinterpret_cast<char *>(cudamem::by_address::allocate(static_cast<std::size_t>(size), 0, stream));
    }

    void deallocate(char *memory, std::size_t size)
    {
        cudamem::by_address::free(reinterpret_cast<std::uint64_t>(memory), size, 0, stream);
    }
};

int main()
{
    constexpr int COUNT = 1 << 22;
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    pool_allocator pool{stream};
    const std::size_t size = COUNT * sizeof(int);
    int *values = reinterpret_cast<int *>(pool.allocate(size));
    for (int round = 0; round < 10; ++round) {
        thrust::device_ptr<int> first(values);
        auto policy = thrust::cuda::par(pool).on(stream);
        thrust::sequence(policy, first, first + COUNT, COUNT, -1);
        thrust::sort(policy, first, first + COUNT);
    }
    int ends[2];
    cudaMemcpyAsync(&ends[0], values, sizeof(int), cudaMemcpyDeviceToHost, stream);
    cudaMemcpyAsync(&ends[1], values + COUNT - 1, sizeof(int), cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    pool.deallocate(reinterpret_cast<char *>(values), size);
    cudaStreamDestroy(stream);
    std::printf("sorted: %d to %d\n", ends[0], ends[1]);
    return ends[0] == 1 && ends[1] == COUNT ? 0 : 1;
}
