// Memory of a resource for libraries that take cuda::mr resources: CCCL (Thrust, CUB), RMM and what is built on it.
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

/// Handles for the driver's streams. None is taken away before the end, so that to look for one takes no lock. A stream that is
/// made anew under an old stream's name needs no new handle: to the library it is the same.
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

    /// The handle of a stream, or why there is none.
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

    /// The handle of a stream. Where there is none, the allocation that it is for fails.
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

/// Models cuda::mr::resource_with<Properties...> over any resource of this library. Copies are the same one; it keeps context and
/// resource alive. Threads may use it at once.
///
/// Streams are those of the context, but for per-thread default streams. Before a stream that memory of a pool was for is destroyed,
/// call `release_stream`. A pool does not see that a stream captures a graph by the driver or the CUDA runtime: do not allocate for
/// it then.
///
/// Where there is no memory it throws cudamem::bad_alloc, a std::bad_alloc; other failures are cudamem::error. Without
/// exceptions both end the program with a message. So does always what is given back twice.
template <typename... Properties> class cuda_resource {
    template <typename Property> static constexpr bool has = (std::is_same_v<Property, Properties> || ...);
    static_assert(has<cuda::mr::device_accessible> || has<cuda::mr::host_accessible>, "somebody has to address the memory");

public:
    /// What cuda::mr asks of a resource that is taken without naming its properties.
    using default_queries = cuda::mr::properties_list<Properties...>;

    static result<cuda_resource> create(std::shared_ptr<const context> context, std::shared_ptr<const resource> resource)
    {
        cuda_resource made(std::make_shared<state>(std::move(context), std::move(resource)));
        return detail::check_access(made.state_->resource->get(), access_, "cudamem::cuda_resource", std::move(made));
    }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    /// Memory of the resource has to be for whom the properties say.
    cuda_resource(std::shared_ptr<const context> context, std::shared_ptr<const resource> resource)
        : cuda_resource(create(std::move(context), std::move(resource)))
    {
    }
#endif

    // No moves: what was moved from stays a resource.
    cuda_resource(const cuda_resource &) noexcept = default;
    cuda_resource &operator=(const cuda_resource &) noexcept = default;

    /// For work of the stream from now on.
    [[nodiscard]] void *allocate(cuda::stream_ref stream, std::size_t size, std::size_t alignment = default_alignment)
    {
        const cudamem_stream handle = state_->streams.of(stream.get());
        return state_->blocks.allocate(state_->resource->get(), size, alignment, handle, access_);
    }

    /// Frees when the work given to the stream so far is done, and that of the stream that the memory was allocated for. Where
    /// that cannot be (the stream is a per-thread default stream), it waits for all work of the context, and frees then.
    void deallocate(cuda::stream_ref stream, void *pointer, std::size_t, std::size_t = default_alignment) noexcept
    {
        buffer block = state_->blocks.take(pointer);
        cudamem_stream handle{};
        cudamem_status status = state_->streams.try_get(stream.get(), handle);
        if (status == CUDAMEM_SUCCESS) {
            status = cudamem_buffer_destroy_on(block.get(), handle);
        }
        if (status == CUDAMEM_SUCCESS) {
            static_cast<void>(block.release());
        } else {
            // Where this fails too, the context is lost, and nothing works on the memory any more.
            static_cast<void>(cudamem_context_synchronize(state_->context->get()));
        }
    }

    /// For every stream, and for the CPU, at once.
    [[nodiscard]] void *allocate_sync(std::size_t size, std::size_t alignment = default_alignment)
    {
        void *const pointer = allocate(cudaStream_t{}, size, alignment);
        const cudamem_status status = cudamem_stream_synchronize(state_->streams.of(nullptr));
        if (status != CUDAMEM_SUCCESS) {
            const error error = last_error(status);
            state_->blocks.take(pointer);
            detail::throw_allocation_failure(error);
        }
        return pointer;
    }

    /// The work on the memory is done.
    void deallocate_sync(void *pointer, std::size_t, std::size_t = default_alignment) noexcept
    {
        state_->blocks.take(pointer);
    }

    /// Waits for the work of a stream, and lets go of it: before it is destroyed. Memory that was allocated for it and is still
    /// there is ordered after the default stream from then on. The resource has to be a pool.
    result<void> release_stream(cuda::stream_ref stream)
    {
        cudamem_stream handle{}, fallback{};
        cudamem_status status = state_->streams.try_get(stream.get(), handle);
        if (status == CUDAMEM_SUCCESS) {
            status = state_->streams.try_get(nullptr, fallback);
        }
        if (status == CUDAMEM_SUCCESS) {
            status = state_->blocks.move_home(handle, fallback);
        }
        if (status == CUDAMEM_SUCCESS) {
            status = cudamem_pool_release_stream(state_->resource->get(), handle);
        }
        return check(status);
    }

    bool operator==(const cuda_resource &other) const noexcept { return state_ == other.state_; }
    bool operator!=(const cuda_resource &other) const noexcept { return state_ != other.state_; }

    template <typename Property, std::enable_if_t<has<Property>, int> = 0>
    friend constexpr void get_property(const cuda_resource &, Property) noexcept
    {
    }

private:
    static constexpr std::size_t default_alignment = cuda::mr::default_cuda_malloc_alignment;

    static constexpr std::uint32_t access_ = (has<cuda::mr::device_accessible> ? CUDAMEM_ACCESS_DEVICE : 0) |
                                             (has<cuda::mr::host_accessible> ? CUDAMEM_ACCESS_HOST : 0);

    struct state {
        state(std::shared_ptr<const cudamem::context> of, std::shared_ptr<const cudamem::resource> over)
            : context(std::move(of)), resource(std::move(over)), streams(context->get())
        {
        }

        std::shared_ptr<const cudamem::context> context;
        std::shared_ptr<const cudamem::resource> resource;
        detail::blocks blocks;
        detail::stream_handles streams;
    };

    explicit cuda_resource(std::shared_ptr<state> made) : state_(std::move(made)) {}

    std::shared_ptr<state> state_;
};

/// For what device memory, pinned memory, and others that kernels address.
using device_resource = cuda_resource<cuda::mr::device_accessible>;

/// For what kernels and the CPU address alike: pinned and managed memory, and pools of them.
using host_device_resource = cuda_resource<cuda::mr::device_accessible, cuda::mr::host_accessible>;

static_assert(cuda::mr::resource_with<device_resource, cuda::mr::device_accessible>);
static_assert(cuda::mr::resource_with<host_device_resource, cuda::mr::device_accessible, cuda::mr::host_accessible>);

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_CUDA_MR_HPP
