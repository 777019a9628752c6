// The library itself, the libraries that it loads, and the devices.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_LIBRARY_HPP
#define CUDAMEM_LIBRARY_HPP

#include "object.hpp"

CUDAMEM_NAMESPACE_BEGIN

/// The library's release, such as "0.1.0".
inline const char *version() noexcept { return cudamem_version(); }

/// The library's release, to compare with CUDAMEM_VERSION_NUMBER, the release of the header.
inline std::uint32_t version_number() noexcept { return cudamem_version_number(); }

/// Loads the CUDA driver now; returns the CUDA release that it implements, such as 13000. `options.size` is set here.
inline result<std::uint32_t> load(cudamem_load_options options = {})
{
    options.size = sizeof options;
    return detail::get<std::uint32_t>(cudamem_load, &options);
}

/// The loaded libraries and the devices of this machine, as JSON.
inline result<std::string> describe() { return detail::get_text(cudamem_describe); }

/// Sets the function that the library calls for every failure, on the thread that fails. Null removes it.
inline result<void> set_log(cudamem_error_callback callback, void *user = nullptr)
{
    return check(cudamem_set_log(callback, user));
}

/// Sets the function that the library calls for errors that no function can return, such as those of destructors. Null
/// removes it.
inline result<void> set_drop_error_callback(cudamem_error_callback callback, void *user = nullptr)
{
    return check(cudamem_set_drop_error_callback(callback, user));
}

/// Sets the function that the library calls for long waits, instead of printing a line to the standard error stream.
/// Null restores the line.
inline result<void> set_slow_wait_callback(cudamem_slow_wait_callback callback, void *user = nullptr)
{
    return check(cudamem_set_slow_wait_callback(callback, user));
}

/// Sets how long a wait may take before it is reported; `no_limit` disables the reports.
inline result<void> set_slow_wait_limit(time_limit limit) { return check(cudamem_set_slow_wait_limit(limit.count())); }

inline result<std::int32_t> device_count() { return detail::get<std::int32_t>(cudamem_device_get_count); }

inline result<cudamem_device_info> device_info(std::int32_t ordinal)
{
    cudamem_device_info info{};
    info.size = sizeof info;
    const cudamem_status status = cudamem_device_get_info(ordinal, &info);
    return detail::give<cudamem_device_info>(status, info);
}

/// Returns one of CUDAMEM_SUPPORT_... for one of CUDAMEM_FEATURE_... .
inline result<std::int32_t> device_supports(std::int32_t ordinal, std::uint32_t feature)
{
    cudamem_device_info info{};
    info.size = sizeof info;
    const cudamem_status status = cudamem_device_get_info(ordinal, &info);
    return detail::give<std::int32_t>(status, feature < sizeof info.support ? info.support[feature] : CUDAMEM_SUPPORT_NO);
}

/// Whether kernels of a device can be given access to another's memory.
inline result<bool> device_can_access_peer(std::int32_t ordinal, std::int32_t other)
{
    return detail::get<bool>(cudamem_device_can_access_peer, ordinal, other);
}

/// What a device can do with another device's memory.
inline result<cudamem_peer_link> device_link(std::int32_t ordinal, std::int32_t other)
{
    cudamem_peer_link link{};
    link.size = sizeof link;
    const cudamem_status status = cudamem_device_get_link(ordinal, other, &link);
    return detail::give<cudamem_peer_link>(status, link);
}

/// The measured rate of copies from one device to another, in bytes per second; -1 is the host.
inline result<std::uint64_t> device_rate(std::int32_t from, std::int32_t to)
{
    std::uint64_t rate = 0;
    const cudamem_status status = cudamem_device_get_rate(from, to, &rate);
    return detail::give<std::uint64_t>(status, rate);
}

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_LIBRARY_HPP
