// Frames that the CPU fills while device work on them is already queued.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_FRAMES_HPP
#define CUDAMEM_FRAMES_HPP

#include "buffer.hpp"
#include "resource.hpp"
#include "signal.hpp"
#include "stream.hpp"

CUDAMEM_NAMESPACE_BEGIN

/// A frame that belongs to the CPU until it is published. Destroying it earlier abandons it: streams that wait for it
/// go on, and their next wait fails.
class frame : public object<cudamem_frame, cudamem_frame_destroy> {
public:
    using object::object;

    /// The frame's number: 1 for the first frame taken from the ring.
    result<std::uint64_t> number() const
    {
        return detail::field<std::uint64_t>(cudamem_frame_get_info, get(), &cudamem_frame_info::number);
    }

    /// The CPU's address, for filling the frame. The whole frame then counts as written.
    result<void *> host_pointer() const { return detail::get<void *>(cudamem_frame_get_host_pointer, get()); }

    /// Copies bytes to the frame.
    result<void> store(std::size_t offset, const void *source, std::size_t size) const
    {
        return check(cudamem_frame_store(get(), offset, source, size));
    }

    /// Flushes writes to a range, so that publishing has less to flush.
    result<void> flush(std::size_t offset, std::size_t size) const { return check(cudamem_frame_flush(get(), offset, size)); }

    /// Queues a copy to a buffer, in order of its home stream. It runs when the frame is published.
    result<void> copy_to(const buffer &destination, std::size_t offset, std::size_t frame_offset, std::size_t size) const
    {
        return check(cudamem_buffer_copy_from_frame(destination.get(), offset, get(), frame_offset, size));
    }

    /// Makes later work of a stream wait until the frame is published.
    result<void> wait_on(const stream &stream) const { return check(cudamem_frame_wait_on(get(), stream.get())); }

    /// The address for kernels. They may only read, after `wait_on` on their stream.
    result<std::uint64_t> device_pointer() const
    {
        return detail::field<std::uint64_t>(cudamem_frame_get_info, get(), &cudamem_frame_info::device_pointer);
    }

    /// Records kernels that were launched after `wait_on`.
    result<void> record_use(const stream &stream) const { return check(cudamem_record_use(get().id, stream.get())); }

    /// Publishes the frame; returns its number. The object then holds the null handle.
    result<std::uint64_t> publish()
    {
        std::uint64_t number = 0;
        const cudamem_status status = cudamem_frame_publish(get(), &number);
        if (status == CUDAMEM_SUCCESS) {
            static_cast<void>(release());
        }
        return detail::give<std::uint64_t>(status, number);
    }
};

/// A ring of frames.
class frame_ring : public object<cudamem_frame_ring, cudamem_frame_ring_destroy> {
public:
    using object::object;

    /// Uses memory of a resource that both CPU and device address.
    static result<frame_ring> create(const resource &memory, const signals &signals, std::size_t frames,
                                     std::size_t frame_size)
    {
        return detail::make<frame_ring>(cudamem_frame_ring_create, memory.get(), signals.get(), frames, frame_size);
    }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    /// Uses memory of a resource that both CPU and device address.
    frame_ring(const resource &memory, const signals &signals, std::size_t frames, std::size_t frame_size)
        : frame_ring(create(memory, signals, frames, frame_size))
    {
    }
#endif

    /// Takes the oldest frame, and waits until all device work that reads it is done.
    result<frame> next(const cudamem_wait_options &options = forever()) const
    {
        return detail::make<frame>(cudamem_frame_ring_next, get(), &options);
    }

    /// Takes the oldest frame if no device work reads it; otherwise the frame holds the null handle.
    result<frame> try_next() const { return detail::make<frame>(cudamem_frame_ring_next, get(), nullptr); }

    result<cudamem_frame_ring_statistics> statistics() const
    {
        return detail::fill(cudamem_frame_ring_get_statistics, get());
    }
};

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_FRAMES_HPP
