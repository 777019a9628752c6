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
        return detail::make<resource>(cudamem_resource_open_current_pool, context.get());
    }

    /// Statistics of a driver pool.
    result<cudamem_driver_pool_info> driver_pool_info() const
    {
        cudamem_driver_pool_info info{};
        info.size = sizeof info;
        const cudamem_status status = cudamem_resource_get_driver_pool_info(get(), &info);
        return detail::give<cudamem_driver_pool_info>(status, info);
    }

    /// Returns unused memory of a driver pool to the system, but keeps at least `keep` bytes.
    result<void> trim_driver_pool(std::size_t keep = 0) const
    {
        return check(cudamem_resource_trim_driver_pool(get(), keep));
    }

    /// Gives another device access to the memory of a driver pool.
    result<void> allow_access(std::int32_t ordinal) const { return check(cudamem_resource_allow_access(get(), ordinal)); }
    result<void> deny_access(std::int32_t ordinal) const { return check(cudamem_resource_deny_access(get(), ordinal)); }

    /// CUDAMEM_ACCESS_... combined by |.
    result<std::uint32_t> access() const { return detail::get<std::uint32_t>(cudamem_resource_get_access, get()); }
};

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_RESOURCE_HPP
