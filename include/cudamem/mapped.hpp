// Mapped memory.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_MAPPED_HPP
#define CUDAMEM_MAPPED_HPP

#include "resource.hpp"
#include "values.hpp"

CUDAMEM_NAMESPACE_BEGIN

/// Mapped memory, or a part of it.
class mapped : public object<cudamem_mapped, cudamem_mapped_destroy> {
public:
    using object::object;

    /// Allocates from a resource that resource::mapped made.
    static result<mapped> allocate(const resource &resource, std::size_t size)
    {
        return detail::make<mapped>(cudamem_mapped_allocate, resource.get(), size);
    }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    /// Allocates from a resource that resource::mapped made.
    mapped(const resource &resource, std::size_t size) : mapped(allocate(resource, size)) {}
#endif

    /// A part, which shares ownership.
    result<mapped> slice(std::size_t offset, std::size_t size = whole_size) const
    {
        return detail::make<mapped>(cudamem_mapped_slice, get(), offset, size);
    }

    /// In bytes.
    result<std::size_t> size() const { return detail::get<std::size_t>(cudamem_mapped_get_size, get()); }

    /// The atom: the unit of flush and invalidate, in bytes.
    result<std::size_t> atom() const { return detail::get<std::size_t>(cudamem_mapped_get_atom, get()); }

    result<std::uint64_t> device_pointer() const
    {
        return detail::get<std::uint64_t>(cudamem_mapped_get_device_pointer, get());
    }

    result<void *> host_pointer() const { return detail::get<void *>(cudamem_mapped_get_host_pointer, get()); }

    /// The memory as values. Invalidate before reading them, and flush after writing them.
    template <typename Value> result<span<Value>> host_span() const
    {
        return detail::host_span<Value>(cudamem_mapped_get_host_pointer, cudamem_mapped_get_size, get());
    }

    result<void> write(std::size_t offset, const void *source, std::size_t size) const
    {
        return check(cudamem_mapped_write(get(), offset, source, size));
    }

    /// Writes the values of an array, a std::vector, a std::span, ... . The offset is in bytes.
    template <typename Values> result<void> write(std::size_t offset, const Values &values) const
    {
        return write(offset, std::data(values), detail::size_in_bytes(values));
    }

    result<void> read(std::size_t offset, void *destination, std::size_t size) const
    {
        return check(cudamem_mapped_read(get(), offset, destination, size));
    }

    /// Reads as many values as an array, a std::vector, a std::span, ... has. The offset is in bytes.
    template <typename Values> result<void> read(std::size_t offset, Values &&values) const
    {
        return read(offset, std::data(values), detail::size_in_bytes(values));
    }

    result<void> flush(std::size_t offset = 0, std::size_t size = whole_size) const
    {
        return check(cudamem_mapped_flush(get(), offset, size));
    }

    result<void> invalidate(std::size_t offset = 0, std::size_t size = whole_size) const
    {
        return check(cudamem_mapped_invalidate(get(), offset, size));
    }

    /// Writes a flag of std::uint32_t or std::uint64_t, after all earlier writes of this thread.
    template <typename Word> result<void> store(std::size_t offset, Word word) const
    {
        static_assert(std::is_same_v<Word, std::uint32_t> || std::is_same_v<Word, std::uint64_t>, "a flag is a std::uint32_t or a std::uint64_t");
        if constexpr (sizeof(Word) == 4) {
            return check(cudamem_mapped_store_u32(get(), offset, word));
        } else {
            return check(cudamem_mapped_store_u64(get(), offset, word));
        }
    }

    /// Reads a flag of std::uint32_t or std::uint64_t, before all later reads of this thread.
    template <typename Word> result<Word> load(std::size_t offset) const
    {
        static_assert(std::is_same_v<Word, std::uint32_t> || std::is_same_v<Word, std::uint64_t>, "a flag is a std::uint32_t or a std::uint64_t");
        if constexpr (sizeof(Word) == 4) {
            return detail::get<Word>(cudamem_mapped_load_u32, get(), offset);
        } else {
            return detail::get<Word>(cudamem_mapped_load_u64, get(), offset);
        }
    }

    /// Writes the device's side of the memory with the driver's copy.
    result<void> device_write(std::size_t offset, const void *source, std::size_t size) const
    {
        return check(cudamem_mapped_device_write(get(), offset, source, size));
    }

    /// Reads the device's side of the memory with the driver's copy.
    result<void> device_read(std::size_t offset, void *destination, std::size_t size) const
    {
        return check(cudamem_mapped_device_read(get(), offset, destination, size));
    }
};

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_MAPPED_HPP
