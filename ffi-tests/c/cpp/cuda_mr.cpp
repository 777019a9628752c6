// include/cudamem/cuda_mr.hpp with CCCL's concepts, resource_ref and any_resource, and memory of each kind.
#include "../api/software.h"
#include "cudamem/cuda_mr.hpp"
#include "test.hpp"

#include <new>
#include <thread>
#include <type_traits>
#include <vector>

using cuda::mr::device_accessible;
using cuda::mr::host_accessible;
using cudamem::device_resource;
using cudamem::host_device_resource;

static_assert(cuda::mr::synchronous_resource_with<device_resource, device_accessible>);
static_assert(!cuda::mr::resource_with<device_resource, host_accessible>);
static_assert(cuda::mr::resource_with<cudamem::cuda_resource<host_accessible>, host_accessible>);
// RMM takes these types: rmm::device_async_resource_ref, and rmm::mr::set_current_device_resource.
static_assert(std::is_constructible_v<cuda::mr::resource_ref<device_accessible>, device_resource &>);
static_assert(std::is_constructible_v<cuda::mr::any_resource<device_accessible>, device_resource>);
static_assert(std::is_constructible_v<cuda::mr::resource_ref<device_accessible>, host_device_resource &>);
static_assert(!std::is_constructible_v<cuda::mr::resource_ref<host_accessible>, device_resource &>);

// Blocks may outlive their stream; another stream then orders their free.
static void streams_that_end(const std::shared_ptr<const cudamem::context> &context,
                             const std::shared_ptr<const cudamem::pool> &pool)
{
    device_resource memory(context, pool);
    auto ends = std::make_unique<cudamem::stream>(*context);
    const cudamem::stream stays(*context);
    const cuda::stream_ref ending(static_cast<cudaStream_t>(ends->raw())), staying(static_cast<cudaStream_t>(stays.raw()));
    void *const block = memory.allocate(ending, 1 << 20), *const other = memory.allocate(ending, 100);
    cudamem::buffer::borrow(reinterpret_cast<std::uintptr_t>(block), 1 << 20, *ends).fill(0, 1 << 20, std::uint8_t{7});
    ends->synchronize();
    ends.reset();
    memory.deallocate(staying, block, 1 << 20);
    memory.deallocate(cuda::stream_ref(cudaStreamPerThread), other, 100);
}

// Memory of every kind, also on default streams. If a resource cannot order a free on a stream, the free waits.
static void other_resources(const std::shared_ptr<const cudamem::context> &context)
{
    const auto device = std::make_shared<const cudamem::resource>(cudamem::resource::device(*context));
    cudamem_resource ring{};
    cudamem::check(cudamem_ring_pool_create(device->get(), 1 << 20, 0, &ring));
    const cudamem::stream own(*context);
    for (const auto &resource : {device, std::make_shared<const cudamem::resource>(ring),
                                 std::make_shared<const cudamem::resource>(cudamem::resource::pinned(*context)),
                                 std::make_shared<const cudamem::resource>(cudamem::resource::managed(*context)),
                                 std::make_shared<const cudamem::resource>(cudamem::resource::driver_pool(*context))}) {
        device_resource memory(context, resource);
        for (cudaStream_t raw : {static_cast<cudaStream_t>(own.raw()), cudaStream_t{}}) {
            for (std::size_t alignment : {std::size_t{1}, std::size_t{256}, std::size_t{1} << 16}) {
                void *const block = memory.allocate(cuda::stream_ref(raw), 1000, alignment);
                CHECK(reinterpret_cast<std::uintptr_t>(block) % alignment == 0);
                context->synchronize();
                memory.deallocate(cuda::stream_ref(cudaStreamPerThread), block, 1000, alignment);
                memory.deallocate_sync(memory.allocate_sync(5, alignment), 5, alignment);
            }
        }
    }
}

static void resources()
{
    auto context = std::make_shared<cudamem::context>(0);
    const auto pool = std::make_shared<cudamem::pool>(cudamem::resource::device(*context));
    const auto live = [&] { return pool->statistics().blocks.current; };
    {
        const cudamem::stream first(*context), second(*context);
        const cuda::stream_ref stream(static_cast<cudaStream_t>(first.raw()));
        const cuda::stream_ref other(static_cast<cudaStream_t>(second.raw()));
        device_resource memory(context, pool);
        const device_resource copy(memory);
        CHECK(copy == memory && device_resource(context, pool) != memory);

        // Through a resource_ref, and through an any_resource.
        cuda::mr::resource_ref<device_accessible> reference(memory);
        void *const block = reference.allocate(stream, 1000, 256);
        CHECK(block != nullptr && reinterpret_cast<std::uintptr_t>(block) % 256 == 0 && live() == 1);
        cudamem::buffer::borrow(reinterpret_cast<std::uintptr_t>(block), 1000, first).fill(0, 1000, std::uint8_t{7});
        {
            cuda::mr::any_resource<device_accessible> any(memory);
            second.join(first);
            any.deallocate(other, block, 1000, 256);
            CHECK(live() == 0);
            void *const now = any.allocate_sync(100, 4096);
            CHECK(reinterpret_cast<std::uintptr_t>(now) % 4096 == 0 && live() == 1);
            any.deallocate_sync(now, 100, 4096);
        }
        CHECK(live() == 0);

        std::vector<std::thread> threads;
        for (int thread = 0; thread < 4; thread++) {
            threads.emplace_back([&, thread] {
                const cuda::stream_ref own = thread % 2 == 0 ? stream : other;
                for (std::size_t size = 1; size < 100; size++) {
                    memory.deallocate(own, memory.allocate(own, size), size);
                }
            });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        CHECK(live() == 0);

        bool refused = false;
        try {
            static_cast<void>(memory.allocate(stream, SIZE_MAX / 2));
        } catch (const std::bad_alloc &error) {
            refused = std::strlen(error.what()) > 20;
        }
        CHECK(refused);
    }
    streams_that_end(context, pool);
    other_resources(context);
    CHECK(live() == 0);

    // host_device_resource requires memory that the CPU can address.
    const auto pinned = std::make_shared<cudamem::pool>(cudamem::resource::pinned(*context));
    host_device_resource both(context, pinned);
    auto *const words = static_cast<int *>(both.allocate_sync(100 * sizeof(int), alignof(int)));
    words[99] = 5;
    both.deallocate_sync(words, 100 * sizeof(int), alignof(int));
    CHECK(pinned->statistics().blocks.current == 0);
    bool refused = false;
    try {
        host_device_resource none(context, pool);
    } catch (const cudamem::error &error) {
        refused = error.status() == CUDAMEM_ERROR_INVALID_ARGUMENT;
    }
    CHECK(refused);

    // The resource holds context and pool.
    context.reset();
    both.deallocate_sync(both.allocate_sync(1), 1);
}

int main()
{
    resources();
    check_ledger();
    return 0;
}
