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

    /// Puts the pool to sleep: the device has its memory back, and its addresses stay. `options.size` is set here.
    result<cudamem_slept> sleep(cudamem_sleep_options options = {}) const
    {
        options.size = sizeof options;
        cudamem_slept slept{};
        slept.size = sizeof slept;
        const cudamem_status status = cudamem_pool_sleep(get(), &options, &slept);
        return detail::give<cudamem_slept>(status, slept);
    }

    /// Gives a pool that sleeps memory at its addresses again, with the contents that were saved.
    result<void> wake() const { return check(cudamem_pool_wake(get())); }

    result<bool> is_asleep() const { return detail::get<bool>(cudamem_pool_is_asleep, get()); }

    /// Names the block at a device address, for snapshots.
    result<void> set_name(std::uint64_t device_pointer, const char *name) const
    {
        return check(cudamem_pool_set_name(get(), device_pointer, name));
    }
};

/// Device memory that the program frees by its address: cudamem_malloc and its group. A stream is a CUstream or
/// cudaStream_t, and is used only during the call. For PyTorch, pass the names `cudamem_torch_alloc` and
/// `cudamem_torch_free` to its CUDAPluggableAllocator, and the addresses of `cudamem_torch_record_stream` and
/// `cudamem_torch_empty_cache` to its set_record_stream_fn and set_reset_fn.
namespace by_address {

/// Sets how the pools are made, before the first allocation. `options.size` is set here.
inline result<void> set_options(cudamem_pool_options options = {})
{
    options.size = sizeof options;
    return check(cudamem_malloc_set_options(&options));
}

/// Allocates `size` bytes on a device, for work of a stream.
inline result<std::uint64_t> allocate(std::size_t size, std::int32_t device, void *stream)
{
    return detail::get<std::uint64_t>(cudamem_malloc, size, device, stream);
}

/// Frees memory that only work queued on the stream so far still uses.
inline result<void> free(std::uint64_t address, std::size_t size, std::int32_t device, void *stream)
{
    return check(cudamem_free(address, size, device, stream));
}

/// Notes that work of a further stream uses memory until its free. The next user gets the memory after that work.
inline result<void> record_use(std::uint64_t address, void *stream)
{
    return check(cudamem_malloc_record_use(address, stream));
}

/// The pool of a device, for statistics and snapshots.
inline result<pool> pool_of(std::int32_t device) { return detail::make<pool>(cudamem_malloc_get_pool, device); }

} // namespace by_address

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_POOL_HPP
