// Pools.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_POOL_HPP
#define CUDAMEM_POOL_HPP

#include "resource.hpp"
#include "stream.hpp"

CUDAMEM_NAMESPACE_BEGIN

/// A pool over another resource, which it keeps alive.
class pool : public resource {
public:
    using resource::resource;

    /// `options.size` is set here.
    static result<pool> create(const resource &upstream, cudamem_pool_options options = {})
    {
        options.size = sizeof options;
        return detail::make<pool>(cudamem_pool_create, upstream.get(), &options);
    }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    /// `options.size` is set here.
    explicit pool(const resource &upstream, cudamem_pool_options options = {}) : pool(create(upstream, options)) {}
#endif

    /// Every region with its blocks, as JSON.
    result<std::string> snapshot() const { return detail::get_text(cudamem_pool_get_snapshot, get()); }

    /// Drops the pool's references to a stream of the program's own, before the program destroys it.
    result<void> release_stream(const stream &stream) const
    {
        return check(cudamem_pool_release_stream(get(), stream.get()));
    }

    /// Names the block at a device address, for snapshots.
    result<void> set_name(std::uint64_t device_pointer, const char *name) const
    {
        return check(cudamem_pool_set_name(get(), device_pointer, name));
    }
};

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_POOL_HPP
