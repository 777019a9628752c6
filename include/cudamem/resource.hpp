// Memory resources.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_RESOURCE_HPP
#define CUDAMEM_RESOURCE_HPP

#include "context.hpp"

CUDAMEM_NAMESPACE_BEGIN

/// A source of memory.
class resource : public object<cudamem_resource, cudamem_resource_destroy> {
public:
    using object::object;

    static result<resource> device(const context &context)
    {
        return detail::make<resource>(cudamem_resource_create_device, context.get());
    }

    static result<resource> pinned(const context &context, std::uint32_t flags = 0)
    {
        return detail::make<resource>(cudamem_resource_create_pinned, context.get(), flags);
    }

    /// As `pinned`, and tells `progress` of large allocations. A result other than 0 cancels one.
    static result<resource> pinned_with_progress(const context &context, cudamem_progress_callback progress,
                                                 void *user = nullptr, std::uint32_t flags = 0)
    {
        return detail::make<resource>(cudamem_resource_create_pinned_with_progress, context.get(), flags, progress, user);
    }

    static result<resource> managed(const context &context, std::uint32_t flags = 0)
    {
        return detail::make<resource>(cudamem_resource_create_managed, context.get(), flags);
    }

    static result<resource> mapped(const context &context, std::int32_t coherence = CUDAMEM_COHERENCE_PREFERRED)
    {
        return detail::make<resource>(cudamem_resource_create_mapped, context.get(), coherence);
    }

    /// A driver pool. `options.size` is set here.
    static result<resource> driver_pool(const context &context, cudamem_driver_pool_options options = {})
    {
        options.size = sizeof options;
        return detail::make<resource>(cudamem_resource_create_driver_pool, context.get(), &options);
    }

    /// The pool that the context's device currently allocates from.
    static result<resource> current_driver_pool(const context &context)
    {
        cudamem_driver_pool_options current{};
        current.flags = CUDAMEM_DRIVER_POOL_CURRENT;
        return driver_pool(context, current);
    }

    /// Another handle of the same resource, with its own memory by address.
    result<resource> share() const { return detail::make<resource>(cudamem_resource_share, get()); }

    /// Allocates memory that is freed by its address, for everything that `access` names (CUDAMEM_ACCESS_... combined by
    /// |). A stream is a CUstream or cudaStream_t, and is used only during the call.
    result<std::uint64_t> allocate(std::size_t size, std::size_t alignment, std::uint32_t access, void *stream) const
    {
        return detail::get<std::uint64_t>(cudamem_resource_malloc, get(), size, alignment, access, stream);
    }

    /// Frees memory of `allocate`, with its size, that only work queued on the stream so far still uses.
    result<void> free(std::uint64_t address, std::size_t size, void *stream) const
    {
        return check(cudamem_resource_free(get(), address, size, stream));
    }

    /// Lets another device access all memory of the source, present and future.
    result<void> allow_access(std::int32_t ordinal) const
    {
        return check(cudamem_resource_set_access(get(), ordinal, true));
    }

    result<void> deny_access(std::int32_t ordinal) const
    {
        return check(cudamem_resource_set_access(get(), ordinal, false));
    }

    result<cudamem_resource_info> info() const { return detail::fill(cudamem_resource_get_info, get()); }

    /// CUDAMEM_ACCESS_... combined by |.
    result<std::uint32_t> access() const
    {
        return detail::field<std::uint32_t>(cudamem_resource_get_info, get(), &cudamem_resource_info::access);
    }

    /// Of pools of any kind, and of the memory of graphs.
    result<cudamem_pool_statistics> statistics() const { return detail::fill(cudamem_pool_get_statistics, get()); }

    result<void> reset_peaks() const { return check(cudamem_pool_reset_peaks(get())); }

    /// Grows a pool to `size` bytes.
    result<void> reserve(std::size_t size) const { return check(cudamem_pool_reserve(get(), size)); }

    /// Returns unused memory of a pool of any kind, but keeps at least `keep` bytes. Does not wait.
    result<void> trim(std::size_t keep = 0) const { return check(cudamem_pool_trim(get(), keep)); }

    /// Waits for the work of freed memory, and returns all unused memory.
    result<void> release_unused() const { return check(cudamem_pool_release_unused(get())); }
};

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_RESOURCE_HPP
