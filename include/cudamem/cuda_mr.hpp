// Resources for libraries that take cuda::mr resources: CCCL (Thrust, CUB), RMM and libraries on top of it.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Needs CCCL 3.2 or later (CUDA 13.2; RMM brings its own) and the headers of the CUDA runtime.
//
//     auto context = std::make_shared<cudamem::context>(0);
//     auto pool = std::make_shared<cudamem::pool>(cudamem::resource::device(*context));
//     rmm::mr::set_current_device_resource(cudamem::device_resource(context, pool));
#ifndef CUDAMEM_CUDA_MR_HPP
#define CUDAMEM_CUDA_MR_HPP

#include "blocks.hpp"
#include "context.hpp"
#include "pool.hpp"

#if !__has_include(<cuda/memory_resource>) || !__has_include(<cuda_runtime_api.h>)
#error "cudamem/cuda_mr.hpp needs CCCL (cuda/memory_resource) and the headers of the CUDA runtime (cuda_runtime_api.h)"
#endif
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#if CCCL_VERSION < 3002000
#error "cudamem/cuda_mr.hpp needs CCCL 3.2 or later (CUDA 13.2)"
#endif

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <type_traits>

CUDAMEM_NAMESPACE_BEGIN

namespace detail {

/// Handles for the driver's streams. No entry is removed before the destructor, so lookups take no lock. A new stream
/// at the address of an old one needs no new handle: the library sees the same stream.
class stream_handles {
public:
    explicit stream_handles(cudamem_context context) : context_(context) {}

    stream_handles(const stream_handles &) = delete;
    stream_handles &operator=(const stream_handles &) = delete;

    ~stream_handles()
    {
        for (std::atomic<entry *> &first : first_) {
            for (entry *each = first; each != nullptr;) {
                const std::unique_ptr<entry> ends(each);
                each = each->next;
            }
        }
    }

    /// Gets the handle of a stream, or returns why there is none.
    cudamem_status try_get(cudaStream_t raw, cudamem_stream &handle) noexcept
    {
        std::atomic<entry *> &first = first_[place_of(raw)];
        const entry *known = find(first.load(std::memory_order_acquire), raw);
        if (known == nullptr) {
            const std::lock_guard<std::mutex> lock(mutex_);
            known = find(first, raw);
            if (known == nullptr) {
                cudamem_stream made{};
                const cudamem_status status = cudamem_stream_borrow(context_, raw, &made);
                if (status != CUDAMEM_SUCCESS) {
                    return status;
                }
                stream owned(made);
                entry *const fresh = new (std::nothrow) entry{raw, std::move(owned), first};
                if (fresh == nullptr) {
                    return CUDAMEM_ERROR_OUT_OF_MEMORY;
                }
                known = fresh;
                first.store(fresh, std::memory_order_release);
            }
        }
        handle = known->handle.get();
        return CUDAMEM_SUCCESS;
    }

    /// Returns the handle of a stream. If there is none, fails like the allocation that it is for.
    cudamem_stream of(cudaStream_t raw)
    {
        cudamem_stream handle{};
        const cudamem_status status = try_get(raw, handle);
        if (status != CUDAMEM_SUCCESS) {
            throw_allocation_failure(last_error(status));
        }
        return handle;
    }

private:
    struct entry {
        cudaStream_t raw;
        stream handle;
        entry *next;
    };

    static const entry *find(const entry *from, cudaStream_t raw) noexcept
    {
        while (from != nullptr && from->raw != raw) {
            from = from->next;
        }
        return from;
    }

    cudamem_context context_;
    std::mutex mutex_;
    std::array<std::atomic<entry *>, 64> first_{};
};

} // namespace detail

/// Models cuda::mr::resource_with<Properties...> over any resource of this library. Copies share one resource, and keep
/// context and resource alive. Threads may use it at once.
///
/// Streams must belong to the context and must not be per-thread default streams. Before a stream with memory of a pool
/// is destroyed, call `release_stream`. For a stream that another library captures, a pool gives memory that belongs to the
/// graph until the graph ends; other resources fail.
///
/// If there is no memory it throws cudamem::bad_alloc, a std::bad_alloc; other failures are cudamem::error. Without
/// exceptions, both abort the program with a message. Freeing a pointer twice always aborts.
template <typename... Properties> class cuda_resource {
    template <typename Property> static constexpr bool has = (std::is_same_v<Property, Properties> || ...);
    static_assert(has<cuda::mr::device_accessible> || has<cuda::mr::host_accessible>, "device or host must address the memory");

public:
    /// The properties that cuda::mr uses when a resource is passed without naming any.
    using default_queries = cuda::mr::properties_list<Properties...>;

    static result<cuda_resource> create(std::shared_ptr<const context> context, std::shared_ptr<const resource> resource)
    {
        cuda_resource made(std::make_shared<resource_and_blocks>(std::move(context), std::move(resource)));
        return detail::check_access(made.owned_->resource->get(), access_, "cudamem::cuda_resource", std::move(made));
    }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    /// The resource's memory must have the access that the properties name.
    cuda_resource(std::shared_ptr<const context> context, std::shared_ptr<const resource> resource)
        : cuda_resource(create(std::move(context), std::move(resource)))
    {
    }
#endif

    // No moves: the source of a move must stay a resource.
    cuda_resource(const cuda_resource &) noexcept = default;
    cuda_resource &operator=(const cuda_resource &) noexcept = default;

    /// Allocates memory for later work of the stream.
    [[nodiscard]] void *allocate(cuda::stream_ref stream, std::size_t size, std::size_t alignment = default_alignment)
    {
        const cudamem_stream handle = owned_->streams.of(stream.get());
        return owned_->blocks.allocate(owned_->resource->get(), size, alignment, handle, access_);
    }

    /// Frees after the work queued so far on this stream and on the stream of the allocation. If it cannot (the stream
    /// is a per-thread default stream), it waits for all work of the context and frees then.
    void deallocate(cuda::stream_ref stream, void *pointer, std::size_t, std::size_t = default_alignment) noexcept
    {
        buffer block = owned_->blocks.take(pointer);
        cudamem_stream handle{};
        cudamem_status status = owned_->streams.try_get(stream.get(), handle);
        if (status == CUDAMEM_SUCCESS) {
            status = cudamem_buffer_set_stream(block.get(), handle);
        }
        if (status == CUDAMEM_SUCCESS) {
            status = cudamem_buffer_destroy(block.get());
        }
        if (status == CUDAMEM_SUCCESS) {
            static_cast<void>(block.release());
        } else {
            // If this fails too, the context is lost, and nothing uses the memory any more.
            static_cast<void>(cudamem_context_synchronize(owned_->context->get()));
        }
    }

    /// Allocates memory for every stream and the CPU at once.
    [[nodiscard]] void *allocate_sync(std::size_t size, std::size_t alignment = default_alignment)
    {
        void *const pointer = allocate(cudaStream_t{}, size, alignment);
        const cudamem_status status = cudamem_stream_synchronize(owned_->streams.of(nullptr));
        if (status != CUDAMEM_SUCCESS) {
            const error error = last_error(status);
            owned_->blocks.take(pointer);
            detail::throw_allocation_failure(error);
        }
        return pointer;
    }

    /// Frees memory whose work is done.
    void deallocate_sync(void *pointer, std::size_t, std::size_t = default_alignment) noexcept
    {
        owned_->blocks.take(pointer);
    }

    /// Waits for the work of a stream, and drops references to it: call this before you destroy the stream. Live memory
    /// that was allocated for it is ordered after the default stream from then on. The resource must be a pool.
    result<void> release_stream(cuda::stream_ref stream)
    {
        cudamem_stream handle{}, fallback{};
        cudamem_status status = owned_->streams.try_get(stream.get(), handle);
        if (status == CUDAMEM_SUCCESS) {
            status = owned_->streams.try_get(nullptr, fallback);
        }
        if (status == CUDAMEM_SUCCESS) {
            status = owned_->blocks.move_home(handle, fallback);
        }
        if (status == CUDAMEM_SUCCESS) {
            status = cudamem_pool_release_stream(owned_->resource->get(), handle);
        }
        return check(status);
    }

    bool operator==(const cuda_resource &other) const noexcept { return owned_ == other.owned_; }
    bool operator!=(const cuda_resource &other) const noexcept { return owned_ != other.owned_; }

    template <typename Property, std::enable_if_t<has<Property>, int> = 0>
    friend constexpr void get_property(const cuda_resource &, Property) noexcept
    {
    }

private:
    static constexpr std::size_t default_alignment = cuda::mr::default_cuda_malloc_alignment;

    static constexpr std::uint32_t access_ = (has<cuda::mr::device_accessible> ? CUDAMEM_ACCESS_DEVICE : 0) |
                                             (has<cuda::mr::host_accessible> ? CUDAMEM_ACCESS_HOST : 0);

    struct resource_and_blocks {
        resource_and_blocks(std::shared_ptr<const cudamem::context> of, std::shared_ptr<const cudamem::resource> over)
            : context(std::move(of)), resource(std::move(over)), streams(context->get())
        {
        }

        std::shared_ptr<const cudamem::context> context;
        std::shared_ptr<const cudamem::resource> resource;
        detail::blocks blocks;
        detail::stream_handles streams;
    };

    explicit cuda_resource(std::shared_ptr<resource_and_blocks> made) : owned_(std::move(made)) {}

    std::shared_ptr<resource_and_blocks> owned_;
};

/// For device memory, pinned memory, and other memory that kernels address.
using device_resource = cuda_resource<cuda::mr::device_accessible>;

/// For memory that kernels and the CPU address alike: pinned and managed memory, and pools of them.
using host_device_resource = cuda_resource<cuda::mr::device_accessible, cuda::mr::host_accessible>;

static_assert(cuda::mr::resource_with<device_resource, cuda::mr::device_accessible>);
static_assert(cuda::mr::resource_with<host_device_resource, cuda::mr::device_accessible, cuda::mr::host_accessible>);

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_CUDA_MR_HPP
