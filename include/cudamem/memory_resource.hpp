// A std::pmr memory resource over a resource, for containers of the standard library.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_MEMORY_RESOURCE_HPP
#define CUDAMEM_MEMORY_RESOURCE_HPP

#include "addresses.hpp"
#include "buffer.hpp"

#include <memory>
#include <memory_resource>

CUDAMEM_NAMESPACE_BEGIN

/// Memory of a resource that the CPU addresses (pinned or managed memory, and pools of them), for containers of the
/// standard library. It keeps resource and stream alive; the stream is of the resource's context. The CPU uses the memory
/// at once, so an allocation waits for the stream: use a stream that does nothing else. Threads may use it at the same
/// time.
///
/// If there is no memory it throws cudamem::bad_alloc, a std::bad_alloc; other failures are cudamem::error. Without
/// exceptions, both abort the program with a message, because the standard's interface cannot report them. Freeing a
/// pointer twice, or with another size, always aborts.
class memory_resource : public std::pmr::memory_resource {
public:
    /// On the heap, because containers keep its address.
    static result<std::unique_ptr<memory_resource>> create(const resource &resource, const stream &stream)
    {
        return made<std::unique_ptr<memory_resource>>(resource, stream, "cudamem::memory_resource");
    }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    memory_resource(const resource &resource, const stream &stream)
        : memory_resource(held::of(resource, stream, "cudamem::memory_resource"))
    {
    }

    // The program would have to end what a temporary began.
    memory_resource(const resource &&, const stream &) = delete;
    memory_resource(const resource &, const stream &&) = delete;
    memory_resource(const resource &&, const stream &&) = delete;
#endif

    static result<std::unique_ptr<memory_resource>> create(const resource &&, const stream &) = delete;
    static result<std::unique_ptr<memory_resource>> create(const resource &, const stream &&) = delete;
    static result<std::unique_ptr<memory_resource>> create(const resource &&, const stream &&) = delete;

private:
    template <typename Value> friend class allocator;

    /// A handle of its own, and the stream. A buffer without memory keeps the stream, because frees name it.
    struct held {
        cudamem::resource resource;
        buffer keeps_stream;
        void *stream;

        static result<held> of(const cudamem::resource &over, const cudamem::stream &home, const char *who)
        {
            cudamem_resource own{};
            cudamem_buffer none{};
            held made{{}, {}, nullptr};
            cudamem_status status = cudamem_resource_share(over.get(), &own);
            if (status == CUDAMEM_SUCCESS) {
                made.resource = cudamem::resource(own);
                status = cudamem_buffer_allocate(own, 0, home.get(), &none);
            }
            if (status == CUDAMEM_SUCCESS) {
                made.keeps_stream = buffer(none);
                status = cudamem_get_raw(home.get().id, &made.stream);
            }
            if (status != CUDAMEM_SUCCESS) {
                return fail<held>(last_error(status));
            }
            return detail::check_access(own, CUDAMEM_ACCESS_HOST, who, std::move(made));
        }
    };

    explicit memory_resource(held parts) : held_(std::move(parts)) {}

    /// A pointer to a new one.
    template <typename Pointer>
    static result<Pointer> made(const resource &resource, const stream &stream, const char *who)
    {
#if !defined(CUDAMEM_NO_EXCEPTIONS)
        return Pointer(new memory_resource(held::of(resource, stream, who)));
#else
        result<held> opened = held::of(resource, stream, who);
        if (!opened) {
            return unexpected<error>(opened.error());
        }
        return Pointer(new memory_resource(std::move(*opened)));
#endif
    }

    void *do_allocate(std::size_t size, std::size_t alignment) override
    {
        void *const pointer = detail::allocate(held_.resource.get(), size, alignment, CUDAMEM_ACCESS_HOST, held_.stream);
        // The memory may come after work of other streams, for which only this stream waits.
        const cudamem_status status = cudamem_buffer_synchronize(held_.keeps_stream.get());
        if (status != CUDAMEM_SUCCESS) {
            const error error = last_error(status);
            detail::free(held_.resource.get(), pointer, size, held_.stream);
            detail::throw_allocation_failure(error);
        }
        return pointer;
    }

    void do_deallocate(void *pointer, std::size_t size, std::size_t) override
    {
        detail::free(held_.resource.get(), pointer, size, held_.stream);
    }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }

    held held_;
};

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_MEMORY_RESOURCE_HPP
