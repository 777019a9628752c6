// Copy engines.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_ENGINE_HPP
#define CUDAMEM_ENGINE_HPP

#include "buffer.hpp"
#include "engine.h"
#include "typed_buffer.hpp"

CUDAMEM_NAMESPACE_BEGIN

/// A pending read. If it is destroyed without `wait`, its destination stays unchanged.
class pending_read : public object<cudamem_pending_read, cudamem_pending_read_destroy> {
public:
    using object::object;

    /// Waits until the destination holds the bytes.
    result<void> wait() const { return check(cudamem_pending_read_wait(get())); }
    result<bool> is_done() const { return detail::get<bool>(cudamem_is_done, get().id); }
};

/// A copy engine.
class engine : public object<cudamem_engine, cudamem_engine_destroy> {
public:
    using object::object;

    static result<engine> create(const context &context) { return detail::make<engine>(cudamem_engine_create, context.get(), nullptr); }

    /// `options.size` is set here.
    static result<engine> create(const context &context, cudamem_engine_options options)
    {
        options.size = sizeof options;
        return detail::make<engine>(cudamem_engine_create, context.get(), &options);
    }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    explicit engine(const context &context) : engine(create(context)) {}
#endif

    result<void> write(const buffer &buffer, std::size_t offset, const void *source, std::size_t size) const
    {
        return check(cudamem_engine_write_buffer(get(), buffer.get(), offset, source, size, nullptr));
    }

    result<void> read(const buffer &buffer, std::size_t offset, void *destination, std::size_t size) const
    {
        return check(cudamem_engine_read_buffer(get(), buffer.get(), offset, destination, size, nullptr));
    }

    /// With the program's choices for this copy. `options.size` is set here.
    result<void> write(const buffer &buffer, std::size_t offset, const void *source, std::size_t size,
                       cudamem_copy_options options) const
    {
        options.size = sizeof options;
        return check(cudamem_engine_write_buffer(get(), buffer.get(), offset, source, size, &options));
    }

    result<void> read(const buffer &buffer, std::size_t offset, void *destination, std::size_t size,
                      cudamem_copy_options options) const
    {
        options.size = sizeof options;
        return check(cudamem_engine_read_buffer(get(), buffer.get(), offset, destination, size, &options));
    }

    /// Returns only when the bytes are in the device's memory.
    result<void> write_complete(const buffer &buffer, std::size_t offset, const void *source, std::size_t size) const
    {
        cudamem_copy_options options{};
        options.size = sizeof options;
        options.flags = CUDAMEM_COPY_COMPLETE;
        return check(cudamem_engine_write_buffer(get(), buffer.get(), offset, source, size, &options));
    }

    /// Writes the values of an array, a std::vector, a std::span, ... to a buffer. The offset is in bytes.
    template <typename Values> result<void> write(const buffer &buffer, std::size_t offset, const Values &values) const
    {
        const auto bytes = detail::source_bytes(values);
        return write(buffer, offset, bytes.data, bytes.size);
    }

    /// Reads as many values as an array, a std::vector, a std::span, ... has. The offset is in bytes.
    template <typename Values> result<void> read(const buffer &buffer, std::size_t offset, Values &&values) const
    {
        const auto bytes = detail::destination_bytes(values);
        return read(buffer, offset, bytes.data, bytes.size);
    }

    /// Writes values of the buffer's type. The offset is in values.
    template <typename Value, typename Values>
    result<void> write(const typed_buffer<Value> &buffer, std::size_t offset, const Values &values) const
    {
        const span<const Value> source = detail::source_values<Value>(values);
        if (!buffer.has(offset, source.size())) {
            return fail<void>(buffer.out_of_range("cudamem::engine::write", offset, source.size()));
        }
        return write(buffer.untyped(), offset * sizeof(Value), source.data(), source.size_bytes());
    }

    /// Reads values of the buffer's type. The offset is in values.
    template <typename Value, typename Values>
    result<void> read(const typed_buffer<Value> &buffer, std::size_t offset, Values &&values) const
    {
        const span<Value> destination = detail::destination_values<Value>(values);
        if (!buffer.has(offset, destination.size())) {
            return fail<void>(buffer.out_of_range("cudamem::engine::read", offset, destination.size()));
        }
        return read(buffer.untyped(), offset * sizeof(Value), destination.data(), destination.size_bytes());
    }

    /// A new buffer with `size` bytes of a file, which is open for reading, from `offset` on.
    result<buffer> read_file(int file, std::uint64_t offset, std::size_t size, const resource &resource,
                             const stream &stream) const
    {
        return detail::make<buffer>(cudamem_engine_read_file, get(), file, offset, size, resource.get(), stream.get());
    }

    /// In order of a stream. The source may be reused when this returns.
    result<void> write_on(const stream &stream, const buffer &buffer, std::size_t offset, const void *source,
                          std::size_t size) const
    {
        return check(cudamem_engine_write_buffer_on(get(), stream.get(), buffer.get(), offset, source, size));
    }

    /// In order of a stream. The destination must stay valid, and nothing else may use it, until the read's `wait` or
    /// end.
    result<pending_read> read_on(const stream &stream, const buffer &buffer, std::size_t offset, void *destination,
                                 std::size_t size) const
    {
        return detail::make<pending_read>(cudamem_engine_read_buffer_on, get(), stream.get(), buffer.get(), offset, destination,
                                          size);
    }

    /// Several writes, in their order.
    result<void> scatter(const buffer &buffer, span<const cudamem_scatter> writes) const
    {
        return check(cudamem_engine_scatter_to_buffer(get(), buffer.get(), writes.data(), writes.size()));
    }

    /// The profile that chooses methods of copying, as JSON.
    result<std::string> profile() const { return detail::get_text(cudamem_engine_get_profile, get()); }

    /// Chooses methods of copying by another profile.
    result<void> set_profile(const std::string &json) const { return check(cudamem_engine_set_profile(get(), json.c_str())); }

    /// The size of the page-locked staging in bytes.
    result<std::size_t> staging() const { return detail::get<std::size_t>(cudamem_engine_get_staging, get()); }

    /// Frees staging that no copy uses.
    result<void> trim() const { return check(cudamem_engine_trim(get())); }

};

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_ENGINE_HPP
