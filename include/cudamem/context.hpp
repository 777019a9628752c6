// Contexts.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_CONTEXT_HPP
#define CUDAMEM_CONTEXT_HPP

#include "object.hpp"

CUDAMEM_NAMESPACE_BEGIN

/// A context.
class context : public object<cudamem_context, cudamem_context_destroy> {
public:
    using object::object;

    /// The primary context of a device.
    static result<context> open_primary(std::int32_t ordinal)
    {
        return detail::make<context>(cudamem_context_open_primary, ordinal);
    }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    /// The primary context of a device.
    explicit context(std::int32_t ordinal) : context(open_primary(ordinal)) {}
#endif

    /// A new context.
    static result<context> create(std::int32_t ordinal) { return detail::make<context>(cudamem_context_create, ordinal); }

    /// Uses the program's CUcontext, which must outlive this.
    static result<context> borrow(void *raw) { return detail::make<context>(cudamem_context_borrow, raw); }

    /// The CUcontext.
    result<void *> raw() const { return detail::get<void *>(cudamem_get_raw, get().id); }

    result<std::int32_t> device() const
    {
        return detail::field<std::int32_t>(cudamem_context_get_info, get(), &cudamem_context_info::device);
    }

    /// The device's free and total memory in bytes.
    result<std::pair<std::uint64_t, std::uint64_t>> memory() const
    {
        cudamem_context_info info{};
        info.size = sizeof info;
        const cudamem_status status = cudamem_context_get_info(get(), &info);
        const std::pair<std::uint64_t, std::uint64_t> memory(info.free_memory, info.total_memory);
        return detail::give<std::pair<std::uint64_t, std::uint64_t>>(status, memory);
    }

    result<void> synchronize() const { return check(cudamem_context_synchronize(get())); }

    /// Lets the device of another context access this context's plain memory, present and future.
    result<void> allow_access(const context &peer) const
    {
        return check(cudamem_context_set_access(get(), peer.get(), true));
    }

    /// Takes the device of another context its access to this context's plain memory, after that context's work.
    result<void> deny_access(const context &peer) const
    {
        return check(cudamem_context_set_access(get(), peer.get(), false));
    }

    /// Loads the library's kernels now, before their first use.
    result<void> load_kernels() const { return check(cudamem_context_load_kernels(get())); }

    /// Sets how many streams are kept ready for moments when queued work waits for the CPU.
    result<void> reserve_streams(std::size_t count) const { return check(cudamem_context_reserve_streams(get(), count)); }

    /// Sets how many bytes of destroyed memory may wait to be freed before allocations of such memory wait too.
    result<void> set_postponed_limit(std::size_t bytes) const
    {
        return check(cudamem_context_set_postponed_limit(get(), bytes));
    }
};

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_CONTEXT_HPP
