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

#include "addresses.hpp"
#include "context.hpp"
#include "pool.hpp"
#include "stream.hpp"

#if !__has_include(<cuda/memory_resource>) || !__has_include(<cuda_runtime_api.h>)
#error "cudamem/cuda_mr.hpp needs CCCL (cuda/memory_resource) and the headers of the CUDA runtime (cuda_runtime_api.h)"
#endif
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#if CCCL_VERSION < 3002000
#error "cudamem/cuda_mr.hpp needs CCCL 3.2 or later (CUDA 13.2)"
#endif

#include <memory>
#include <type_traits>

CUDAMEM_NAMESPACE_BEGIN

/// Models cuda::mr::resource_with<Properties...> over any resource of this library. Copies share one resource, and keep
/// context and resource alive. Threads may use it at once.
///
/// Streams must belong to the resource's context. A call uses its stream only until it returns, so the program may destroy
/// the stream after any call. For a stream that another library captures, a pool gives memory that belongs to the graph
/// until the graph ends; other resources may fail. The resource is fastest over a `pool`.
///
/// If there is no memory it throws cudamem::bad_alloc, a std::bad_alloc; other failures are cudamem::error. Without
/// exceptions, both abort the program with a message. Freeing a pointer twice, or with another size, always aborts.
template <typename... Properties> class cuda_resource {
    template <typename Property> static constexpr bool has = (std::is_same_v<Property, Properties> || ...);
    static_assert(has<cuda::mr::device_accessible> || has<cuda::mr::host_accessible>, "device or host must address the memory");

public:
    /// The properties that cuda::mr uses when a resource is passed without naming any.
    using default_queries = cuda::mr::properties_list<Properties...>;

    static result<cuda_resource> create(std::shared_ptr<const context> context, std::shared_ptr<const resource> resource)
    {
        cuda_resource made(std::make_shared<held>(std::move(context), std::move(resource)));
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
        return detail::allocate(owned_->resource->get(), size, alignment, access_, stream.get());
    }

    /// Frees after the work queued so far on this stream, which comes after all uses of the memory. If the resource cannot
    /// order the free there (some refuse per-thread default streams), it waits for all work of the context and frees then.
    /// If it cannot wait either, the memory stays.
    void deallocate(cuda::stream_ref stream, void *pointer, std::size_t size, std::size_t = default_alignment) noexcept
    {
        if (detail::try_free(owned_->resource->get(), pointer, size, stream.get()) != CUDAMEM_SUCCESS) {
            if (cudamem_context_synchronize(owned_->context->get()) == CUDAMEM_SUCCESS) {
                deallocate_sync(pointer, size);
            }
        }
    }

    /// Allocates memory for every stream and the CPU at once.
    [[nodiscard]] void *allocate_sync(std::size_t size, std::size_t alignment = default_alignment)
    {
        void *const pointer = allocate(cudaStream_t{}, size, alignment);
        const cudamem_status status = wait_for_default_stream();
        if (status != CUDAMEM_SUCCESS) {
            const error error = last_error(status);
            deallocate_sync(pointer, size);
            detail::throw_allocation_failure(error);
        }
        return pointer;
    }

    /// Frees memory whose work is done.
    void deallocate_sync(void *pointer, std::size_t size, std::size_t = default_alignment) noexcept
    {
        detail::free(owned_->resource->get(), pointer, size, nullptr);
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

    struct held {
        held(std::shared_ptr<const cudamem::context> of, std::shared_ptr<const cudamem::resource> over)
            : context(std::move(of)), resource(std::move(over))
        {
        }

        std::shared_ptr<const cudamem::context> context;
        std::shared_ptr<const cudamem::resource> resource;
    };

    /// Waits for the stream on which `allocate_sync` allocates.
    cudamem_status wait_for_default_stream() const
    {
        cudamem_stream made{};
        const cudamem_status status = cudamem_stream_borrow(owned_->context->get(), nullptr, &made);
        const stream handle(made);
        return status == CUDAMEM_SUCCESS ? cudamem_stream_synchronize(handle.get()) : status;
    }

    explicit cuda_resource(std::shared_ptr<held> made) : owned_(std::move(made)) {}

    std::shared_ptr<held> owned_;
};

/// For device memory, pinned memory, and other memory that kernels address.
using device_resource = cuda_resource<cuda::mr::device_accessible>;

/// For memory that kernels and the CPU address alike: pinned and managed memory, and pools of them.
using host_device_resource = cuda_resource<cuda::mr::device_accessible, cuda::mr::host_accessible>;

static_assert(cuda::mr::resource_with<device_resource, cuda::mr::device_accessible>);
static_assert(cuda::mr::resource_with<host_device_resource, cuda::mr::device_accessible, cuda::mr::host_accessible>);

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_CUDA_MR_HPP
