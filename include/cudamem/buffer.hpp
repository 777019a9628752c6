// Buffers.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_BUFFER_HPP
#define CUDAMEM_BUFFER_HPP

#include "engine.h"
#include "memory.h"
#include "resource.hpp"
#include "stream.hpp"
#include "values.hpp"

CUDAMEM_NAMESPACE_BEGIN

/// Memory from any source, with a home stream.
class buffer : public object<cudamem_buffer, cudamem_buffer_destroy, cudamem_buffer_drop> {
public:
    using object::object;

    static result<buffer> allocate(const resource &resource, std::size_t size, const stream &stream)
    {
        return detail::make<buffer>(cudamem_buffer_allocate, resource.get(), size, stream.get());
    }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    buffer(const resource &resource, std::size_t size, const stream &stream) : buffer(allocate(resource, size, stream)) {}
#endif

    /// Uses the program's memory. `release` is called with `user` when nothing uses it any more; without `release`, it
    /// must outlive this.
    static result<buffer> borrow(std::uint64_t pointer, std::size_t size, const stream &stream,
                                 cudamem_release_callback release = nullptr, void *user = nullptr)
    {
        return detail::make<buffer>(cudamem_buffer_borrow, pointer, size, stream.get(), release, user);
    }

    /// A part, which shares ownership.
    result<buffer> slice(std::size_t offset, std::size_t size = whole_size) const
    {
        return detail::make<buffer>(cudamem_buffer_slice, get(), offset, size);
    }

    /// In bytes.
    result<std::size_t> size() const
    {
        return detail::field<std::size_t>(cudamem_buffer_get_info, get(), &cudamem_buffer_info::length);
    }

    result<cudamem_buffer_info> info() const { return detail::fill(cudamem_buffer_get_info, get()); }

    result<std::uint64_t> device_pointer() const
    {
        return detail::get<std::uint64_t>(cudamem_buffer_get_device_pointer, get());
    }

    result<void *> host_pointer() const { return detail::get<void *>(cudamem_buffer_get_host_pointer, get()); }

    /// The memory as values that the CPU reads and writes. As with `host_pointer`, wait for device work on it first.
    template <typename Value> result<span<Value>> host_span() const
    {
        void *pointer = nullptr;
        cudamem_buffer_info info{};
        info.size = sizeof info;
        cudamem_status status = cudamem_buffer_get_host_pointer(get(), &pointer);
        if (status == CUDAMEM_SUCCESS) {
            status = cudamem_buffer_get_info(get(), &info);
        }
        if (status != CUDAMEM_SUCCESS) {
            return detail::give<span<Value>>(status, span<Value>());
        }
        return detail::values_at<Value>(pointer, info.length);
    }

    /// CUDAMEM_ACCESS_... combined by |.
    result<std::uint32_t> access() const
    {
        return detail::field<std::uint32_t>(cudamem_buffer_get_info, get(), &cudamem_buffer_info::access);
    }

    result<void> write(std::size_t offset, const void *source, std::size_t size) const
    {
        return check(cudamem_buffer_write(get(), offset, source, size));
    }

    /// Writes the values of an array, a std::vector, a std::span, ... . The offset is in bytes.
    template <typename Values> result<void> write(std::size_t offset, const Values &values) const
    {
        const auto bytes = detail::source_bytes(values);
        return write(offset, bytes.data, bytes.size);
    }

    result<void> read(std::size_t offset, void *destination, std::size_t size) const
    {
        return check(cudamem_buffer_read(get(), offset, destination, size));
    }

    /// Reads as many values as an array, a std::vector, a std::span, ... has. The offset is in bytes.
    template <typename Values> result<void> read(std::size_t offset, Values &&values) const
    {
        const auto bytes = detail::destination_bytes(values);
        return read(offset, bytes.data, bytes.size);
    }

    /// Writes with CPU stores, which wait for no device work. For pinned and mapped memory.
    result<void> store(std::size_t offset, const void *source, std::size_t size) const
    {
        return check(cudamem_buffer_store(get(), offset, source, size));
    }

    /// Stores the values of an array, a std::vector, a std::span, ... . The offset is in bytes.
    template <typename Values> result<void> store(std::size_t offset, const Values &values) const
    {
        const auto bytes = detail::source_bytes(values);
        return store(offset, bytes.data, bytes.size);
    }

    /// Reads with CPU loads, which wait for no device work. For pinned and mapped memory.
    result<void> load(std::size_t offset, void *destination, std::size_t size) const
    {
        return check(cudamem_buffer_load(get(), offset, destination, size));
    }

    /// Loads as many values as an array, a std::vector, a std::span, ... has. The offset is in bytes.
    template <typename Values> result<void> load(std::size_t offset, Values &&values) const
    {
        const auto bytes = detail::destination_bytes(values);
        return load(offset, bytes.data, bytes.size);
    }

    /// Writes a flag of std::uint32_t or std::uint64_t, after all earlier writes of this thread.
    template <typename Word> result<void> store_word(std::size_t offset, Word word) const
    {
        static_assert(std::is_same_v<Word, std::uint32_t> || std::is_same_v<Word, std::uint64_t>, "a flag is a std::uint32_t or a std::uint64_t");
        if constexpr (sizeof(Word) == 4) {
            return check(cudamem_buffer_store_u32(get(), offset, word));
        } else {
            return check(cudamem_buffer_store_u64(get(), offset, word));
        }
    }

    /// Reads a flag of std::uint32_t or std::uint64_t, before all later reads of this thread.
    template <typename Word> result<Word> load_word(std::size_t offset) const
    {
        static_assert(std::is_same_v<Word, std::uint32_t> || std::is_same_v<Word, std::uint64_t>, "a flag is a std::uint32_t or a std::uint64_t");
        if constexpr (sizeof(Word) == 4) {
            return detail::get<Word>(cudamem_buffer_load_u32, get(), offset);
        } else {
            return detail::get<Word>(cudamem_buffer_load_u64, get(), offset);
        }
    }

    /// The unit of flush and invalidate, in bytes.
    result<std::size_t> atom() const
    {
        return detail::field<std::size_t>(cudamem_buffer_get_info, get(), &cudamem_buffer_info::atom);
    }

    result<void> copy(std::size_t offset, const buffer &source, std::size_t source_offset = 0,
                      std::size_t size = whole_size) const
    {
        return check(cudamem_buffer_copy(get(), offset, source.get(), source_offset, size));
    }

    /// Copies pieces of another buffer in order of a stream, unordered among each other. options.size is set here.
    result<void> copy_pieces(const buffer &source, span<const cudamem_piece> pieces, const stream &stream,
                             cudamem_pieces_options options = {}) const
    {
        options.size = sizeof options;
        return check(
            cudamem_buffer_copy_pieces(get(), source.get(), pieces.data(), pieces.size(), &options, stream.get()));
    }

    /// Fills with a value of 1, 2, 4, 8 or 16 bytes.
    template <typename Value> result<void> fill(std::size_t offset, std::size_t size, const Value &value) const
    {
        static_assert(std::is_trivially_copyable_v<Value>, "a value is filled in as bytes");
        return check(cudamem_buffer_fill(get(), offset, size, &value, sizeof value));
    }

    /// Whether both hold the same bytes.
    result<bool> equals(const buffer &other) const { return detail::get<bool>(cudamem_buffer_equals, get(), other.get()); }

    result<void> flush(std::size_t offset = 0, std::size_t size = whole_size) const
    {
        return check(cudamem_buffer_flush(get(), offset, size));
    }

    result<void> invalidate(std::size_t offset = 0, std::size_t size = whole_size) const
    {
        return check(cudamem_buffer_invalidate(get(), offset, size));
    }

    /// Managed memory: `advice` is one of CUDAMEM_ADVICE_..., for CUDAMEM_LOCATION_... and its number.
    result<void> advise(std::int32_t advice, std::int32_t location = CUDAMEM_LOCATION_DEVICE, std::int32_t number = 0,
                        std::size_t offset = 0, std::size_t size = whole_size) const
    {
        return check(cudamem_buffer_advise(get(), offset, size, advice, location, number));
    }

    /// Managed memory: moves it to CUDAMEM_LOCATION_... and its number, in order of the home stream.
    result<void> prefetch(std::int32_t location, std::int32_t number = 0, std::size_t offset = 0,
                          std::size_t size = whole_size) const
    {
        return check(cudamem_buffer_prefetch(get(), offset, size, location, number));
    }

    /// Managed memory: where all of it was last prefetched.
    struct place {
        bool known;
        std::int32_t location;
        std::int32_t number;
    };

    result<place> prefetched(std::size_t offset = 0, std::size_t size = whole_size) const
    {
        cudamem_managed_info info{};
        const cudamem_status status = managed_info(offset, size, info);
        return detail::give<place>(status, place{info.prefetched != 0, info.location, info.number});
    }

    /// Managed memory: whether all of it was advised to be mostly read.
    result<bool> is_read_mostly(std::size_t offset = 0, std::size_t size = whole_size) const
    {
        cudamem_managed_info info{};
        const cudamem_status status = managed_info(offset, size, info);
        return detail::give<bool>(status, info.read_mostly != 0);
    }

    /// Managed memory: declares its contents no longer needed.
    result<void> discard(std::size_t offset = 0, std::size_t size = whole_size) const
    {
        return check(cudamem_buffer_discard(get(), offset, size));
    }

    result<void> set_stream(const stream &stream) const { return check(cudamem_buffer_set_stream(get(), stream.get())); }
    result<void> record_use(const stream &stream) const { return check(cudamem_record_use(get().id, stream.get())); }
    result<void> synchronize() const { return check(cudamem_buffer_synchronize(get())); }

    /// The route of copies from this buffer to another one: CUDAMEM_ROUTE_... .
    result<cudamem_route> route_to(const buffer &destination) const
    {
        return detail::get<cudamem_route>(cudamem_buffer_get_route, destination.get(), get());
    }

    using object::close;

    /// Destroys the buffer now, and frees in order of another stream. After a failure it stays.
    result<void> close(const stream &stream)
    {
        const cudamem_status status = *this ? cudamem_buffer_set_stream(get(), stream.get()) : CUDAMEM_SUCCESS;
        return status == CUDAMEM_SUCCESS ? close() : check(status);
    }

private:
    cudamem_status managed_info(std::size_t offset, std::size_t size, cudamem_managed_info &info) const
    {
        info.size = sizeof info;
        return cudamem_buffer_get_managed_info(get(), offset, size, &info);
    }
};

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_BUFFER_HPP
