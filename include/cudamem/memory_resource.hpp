// A std::pmr memory resource over a resource, for containers of the standard library.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_MEMORY_RESOURCE_HPP
#define CUDAMEM_MEMORY_RESOURCE_HPP

#include "blocks.hpp"

#include <memory>
#include <memory_resource>

CUDAMEM_NAMESPACE_BEGIN

/// Memory of a resource that the CPU addresses (pinned or managed memory, and pools of them), for containers of the
/// standard library. The handles of resource and stream must outlive the last allocation. The CPU uses the memory at
/// once, so earlier work of the stream with that memory must be done: use a stream that does nothing else. Threads may
/// use it at the same time.
///
/// If there is no memory it throws cudamem::bad_alloc, a std::bad_alloc; other failures are cudamem::error. Without
/// exceptions, both abort the program with a message, because the standard's interface cannot report them. Freeing a
/// pointer twice always aborts.
class memory_resource : public std::pmr::memory_resource {
public:
    /// On the heap, because containers keep its address.
    static result<std::unique_ptr<memory_resource>> create(const resource &resource, const stream &stream)
    {
        std::unique_ptr<memory_resource> made(new memory_resource(resource.get(), stream.get()));
        return detail::check_access(resource.get(), CUDAMEM_ACCESS_HOST, "cudamem::memory_resource", std::move(made));
    }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    memory_resource(const resource &resource, const stream &stream) : memory_resource(resource.get(), stream.get())
    {
        detail::check_access(resource_, CUDAMEM_ACCESS_HOST, "cudamem::memory_resource", true);
    }

    // A temporary would be gone at the first allocation.
    memory_resource(const resource &&, const stream &) = delete;
    memory_resource(const resource &, const stream &&) = delete;
    memory_resource(const resource &&, const stream &&) = delete;
#endif

    static result<std::unique_ptr<memory_resource>> create(const resource &&, const stream &) = delete;
    static result<std::unique_ptr<memory_resource>> create(const resource &, const stream &&) = delete;
    static result<std::unique_ptr<memory_resource>> create(const resource &&, const stream &&) = delete;

private:
    template <typename Value> friend class allocator;

    memory_resource(cudamem_resource resource, cudamem_stream stream) : resource_(resource), stream_(stream) {}

    void *do_allocate(std::size_t size, std::size_t alignment) override
    {
        return blocks_.allocate(resource_, size, alignment, stream_, CUDAMEM_ACCESS_HOST);
    }

    void do_deallocate(void *pointer, std::size_t, std::size_t) override { blocks_.take(pointer); }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }

    cudamem_resource resource_;
    cudamem_stream stream_;
    detail::blocks blocks_;
};

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_MEMORY_RESOURCE_HPP
