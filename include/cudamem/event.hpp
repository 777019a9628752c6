// Events.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_EVENT_HPP
#define CUDAMEM_EVENT_HPP

#include "stream.hpp"

CUDAMEM_NAMESPACE_BEGIN

/// An event.
class event : public object<cudamem_event, cudamem_event_destroy> {
public:
    using object::object;

    static result<event> create(const context &context, std::uint32_t flags = 0)
    {
        return detail::make<event>(cudamem_event_create, context.get(), flags);
    }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    explicit event(const context &context, std::uint32_t flags = 0) : event(create(context, flags)) {}
#endif

    /// The CUevent or cudaEvent_t.
    result<void *> raw() const { return detail::get<void *>(cudamem_get_raw, get().id); }

    result<void> record(const stream &stream) const { return check(cudamem_event_record(get(), stream.get())); }

    result<void> synchronize() const { return check(cudamem_event_synchronize(get())); }

    /// Waits for at most `limit`. Then it fails with CUDAMEM_ERROR_TIMED_OUT, and the work continues.
    result<void> synchronize_for(time_limit limit) const
    {
        return check(cudamem_synchronize_for(get().id, limit.count()));
    }

    result<bool> is_done() const { return detail::get<bool>(cudamem_is_done, get().id); }

    /// The seconds from this event to a later one.
    result<double> elapsed(const event &later) const
    {
        return detail::get<double>(cudamem_event_elapsed, get(), later.get());
    }
};

inline result<void> stream::wait(const event &event) const { return check(cudamem_stream_wait_event(get(), event.get())); }

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_EVENT_HPP
