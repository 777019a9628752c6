// Streams.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_STREAM_HPP
#define CUDAMEM_STREAM_HPP

#include "context.hpp"

#include <memory>

CUDAMEM_NAMESPACE_BEGIN

class event;

/// A stream.
class stream : public object<cudamem_stream, cudamem_stream_destroy> {
public:
    using object::object;

    static result<stream> create(const context &context, std::uint32_t flags = 0, std::int32_t priority = 0)
    {
        cudamem_stream_options options{};
        options.size = sizeof options;
        options.flags = flags;
        options.priority = priority;
        return detail::make<stream>(cudamem_stream_create, context.get(), &options);
    }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    explicit stream(const context &context, std::uint32_t flags = 0, std::int32_t priority = 0)
        : stream(create(context, flags, priority))
    {
    }
#endif

    /// Uses the program's CUstream or cudaStream_t, which must outlive this.
    static result<stream> borrow(const context &context, void *raw)
    {
        return detail::make<stream>(cudamem_stream_borrow, context.get(), raw);
    }

    /// The CUstream or cudaStream_t.
    result<void *> raw() const { return detail::get<void *>(cudamem_get_raw, get().id); }

    result<void> synchronize() const { return check(cudamem_stream_synchronize(get())); }

    /// Waits for at most `limit`. Then it fails with CUDAMEM_ERROR_TIMED_OUT, and the work continues.
    result<void> synchronize_for(time_limit limit) const
    {
        return check(cudamem_synchronize_for(get().id, limit.count()));
    }

    result<bool> is_done() const { return detail::get<bool>(cudamem_is_done, get().id); }

    /// Makes later work wait for an event (event.hpp).
    result<void> wait(const event &event) const;

    /// Makes later work wait for all work of the other stream so far.
    result<void> join(const stream &other) const { return check(cudamem_stream_join(get(), other.get())); }

    /// Runs a function on the host when all earlier work is done; later work waits for it. It must call neither CUDA
    /// nor this library. An exception from it ends the program.
    template <typename Function> result<void> launch_host_function(Function function) const
    {
        auto kept = std::make_unique<Function>(std::move(function));
        const cudamem_host_function run = [](void *user) noexcept {
            const std::unique_ptr<Function> taken(static_cast<Function *>(user));
            (*taken)();
        };
        const cudamem_status status = cudamem_stream_launch_host_function(get(), run, kept.get());
        if (status == CUDAMEM_SUCCESS) {
            // The stream owns it now, and may have run and destroyed it already.
            static_cast<void>(kept.release());
        }
        return check(status);
    }
};

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_STREAM_HPP
