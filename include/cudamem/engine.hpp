// Copy engines.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_ENGINE_HPP
#define CUDAMEM_ENGINE_HPP

#include "buffer.hpp"
#include "mapped.hpp"

CUDAMEM_NAMESPACE_BEGIN

/// A copy engine.
class engine : public object<cudamem_engine, cudamem_engine_destroy> {
public:
    using object::object;

    static result<engine> create(const context &context) { return detail::make<engine>(cudamem_engine_create, context.get()); }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    explicit engine(const context &context) : engine(create(context)) {}
#endif

    result<void> write(const buffer &buffer, std::size_t offset, const void *source, std::size_t size) const
    {
        return check(cudamem_engine_write_buffer(get(), buffer.get(), offset, source, size));
    }

    result<void> write(const mapped &mapped, std::size_t offset, const void *source, std::size_t size) const
    {
        return check(cudamem_engine_write_mapped(get(), mapped.get(), offset, source, size));
    }

    result<void> read(const buffer &buffer, std::size_t offset, void *destination, std::size_t size) const
    {
        return check(cudamem_engine_read_buffer(get(), buffer.get(), offset, destination, size));
    }

    result<void> read(const mapped &mapped, std::size_t offset, void *destination, std::size_t size) const
    {
        return check(cudamem_engine_read_mapped(get(), mapped.get(), offset, destination, size));
    }

    /// Writes the values of an array, a std::vector, a std::span, ... to a buffer or to mapped memory.
    template <typename Memory, typename Values>
    result<void> write(const Memory &memory, std::size_t offset, const Values &values) const
    {
        return write(memory, offset, std::data(values), detail::size_in_bytes(values));
    }

    /// Reads as many values as an array, a std::vector, a std::span, ... has.
    template <typename Memory, typename Values>
    result<void> read(const Memory &memory, std::size_t offset, Values &&values) const
    {
        return read(memory, offset, std::data(values), detail::size_in_bytes(values));
    }
};

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_ENGINE_HPP
