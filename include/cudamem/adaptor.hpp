// Adaptors and rings of staging.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_ADAPTOR_HPP
#define CUDAMEM_ADAPTOR_HPP

#include "adaptors.h"
#include "resource.hpp"
#include "values.hpp"

#include <vector>

CUDAMEM_NAMESPACE_BEGIN

/// Counts allocations.
class counting_adaptor : public resource {
public:
    using resource::resource;

    static result<counting_adaptor> create(const resource &upstream)
    {
        return detail::make<counting_adaptor>(cudamem_resource_create_adaptor, upstream.get(), CUDAMEM_ADAPTOR_STATISTICS,
                                              std::size_t{0});
    }

    result<cudamem_counts> counts() const { return detail::fill(cudamem_resource_get_counts, get()); }
};

/// Refuses allocations beyond a limit of live bytes.
class limit_adaptor : public resource {
public:
    using resource::resource;

    static result<limit_adaptor> create(const resource &upstream, std::size_t limit)
    {
        return detail::make<limit_adaptor>(cudamem_resource_create_adaptor, upstream.get(), CUDAMEM_ADAPTOR_LIMIT, limit);
    }

    result<void> set_limit(std::size_t limit) const { return check(cudamem_resource_set_limit(get(), limit)); }

    /// In bytes.
    result<std::size_t> used() const
    {
        return detail::field<std::size_t>(cudamem_resource_get_info, get(), &cudamem_resource_info::used);
    }
};

/// Records the live blocks.
class tracking_adaptor : public resource {
public:
    using resource::resource;

    /// `flags` is 0 or CUDAMEM_TRACKING_BACKTRACES.
    static result<tracking_adaptor> create(const resource &upstream, std::size_t flags = 0)
    {
        return detail::make<tracking_adaptor>(cudamem_resource_create_adaptor, upstream.get(), CUDAMEM_ADAPTOR_TRACKING, flags);
    }

    result<std::size_t> live_blocks() const
    {
        std::size_t blocks = 0;
        const cudamem_status status = cudamem_resource_get_report(get(), &blocks, nullptr);
        return detail::give<std::size_t>(status, blocks);
    }

    /// A readable report on each live block.
    result<std::string> report() const
    {
        cudamem_text made{};
        const cudamem_status status = cudamem_resource_get_report(get(), nullptr, &made);
        return status == CUDAMEM_SUCCESS ? text(made).str() : detail::give<std::string>(status, "");
    }
};

/// Detects writes outside of blocks and after their free.
class guarded_adaptor : public resource {
public:
    using resource::resource;

    /// `options.size` is set here.
    static result<guarded_adaptor> create(const resource &upstream, cudamem_guard_options options = {})
    {
        options.size = sizeof options;
        return detail::make<guarded_adaptor>(cudamem_resource_create_guarded, upstream.get(), &options);
    }

    /// The number of findings.
    result<std::size_t> findings() const
    {
        std::size_t findings = 0;
        const cudamem_status status = cudamem_resource_get_report(get(), &findings, nullptr);
        return detail::give<std::size_t>(status, findings);
    }

    result<void> release_quarantine() const { return release_unused(); }
};

/// Fails allocations by rules.
class failing_adaptor : public resource {
public:
    using resource::resource;

    static result<failing_adaptor> create(const resource &upstream, const std::vector<cudamem_failure_rule> &rules)
    {
        return detail::make<failing_adaptor>(cudamem_resource_create_failing, upstream.get(), rules.data(), rules.size());
    }

    /// How many allocations were requested since the rules were set, and how many of them the rules failed.
    result<std::pair<std::uint64_t, std::uint64_t>> counts() const
    {
        cudamem_resource_info info{};
        info.size = sizeof info;
        const cudamem_status status = cudamem_resource_get_info(get(), &info);
        const std::pair<std::uint64_t, std::uint64_t> counts(info.allocations, info.injected);
        return detail::give<std::pair<std::uint64_t, std::uint64_t>>(status, counts);
    }

    result<void> set_rules(const std::vector<cudamem_failure_rule> &rules) const
    {
        return check(cudamem_resource_set_failures(get(), rules.data(), rules.size()));
    }
};

/// Adaptors without functions of their own.
namespace adaptor {

/// Allocates from `second` when `first` is out of memory.
inline result<resource> fallback(const resource &first, const resource &second)
{
    return detail::make<resource>(cudamem_resource_create_fallback, first.get(), second.get());
}

/// Aligns blocks to multiples of `alignment`.
inline result<resource> aligned(const resource &upstream, std::size_t alignment)
{
    return detail::make<resource>(cudamem_resource_create_adaptor, upstream.get(), CUDAMEM_ADAPTOR_ALIGNED, alignment);
}

/// How many live blocks of a fallback come from its second resource.
inline result<std::size_t> fallback_blocks(const resource &fallback)
{
    return detail::field<std::size_t>(cudamem_resource_get_info, fallback.get(), &cudamem_resource_info::fallback_blocks);
}

/// Tries again after a function that may free memory.
inline result<resource> retry(const resource &upstream, std::uint32_t attempts, cudamem_retry_callback callback, void *user)
{
    return detail::make<resource>(cudamem_resource_create_retry, upstream.get(), attempts, callback, user);
}

/// Writes each allocation to a file.
inline result<resource> logging(const resource &upstream, const char *path)
{
    return detail::make<resource>(cudamem_resource_create_logging, upstream.get(), path);
}

/// Writes all buffered lines of a logging adaptor to its file; returns how many were lost.
inline result<std::uint64_t> flush_log(const resource &logging)
{
    return detail::get<std::uint64_t>(cudamem_resource_flush_log, logging.get());
}

/// Keeps the newest allocations, for `trace`.
inline result<resource> recording(const resource &upstream, std::size_t capacity)
{
    return detail::make<resource>(cudamem_resource_create_adaptor, upstream.get(), CUDAMEM_ADAPTOR_RECORDING, capacity);
}

/// The trace of a recording adaptor, or of a pool with a trace, as CSV.
inline result<std::string> trace(const resource &recorded)
{
    return detail::get_text(cudamem_resource_get_report, recorded.get(), nullptr);
}

} // namespace adaptor

/// A ring of staging memory.
class ring_pool : public resource {
public:
    using resource::resource;

    /// `flags` is 0 or CUDAMEM_RING_POOL_REFUSE.
    static result<ring_pool> create(const resource &upstream, std::size_t capacity, std::uint32_t flags = 0)
    {
        return detail::make<ring_pool>(cudamem_ring_pool_create, upstream.get(), capacity, flags);
    }

    /// Waits for the work of all freed blocks. Afterwards they take no room.
    result<void> synchronize() const { return release_unused(); }
};

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_ADAPTOR_HPP
