// Buffers of values of one type.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
//
//     cudamem::typed_buffer<float> samples(pool, 1000, stream);
//     samples.write(10, std::vector<float>{1, 2, 3}); // offsets and counts are in values
//     launch(samples.data(), samples.size());         // the device's address
#ifndef CUDAMEM_TYPED_BUFFER_HPP
#define CUDAMEM_TYPED_BUFFER_HPP

#include "buffer.hpp"

#include <initializer_list>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

CUDAMEM_NAMESPACE_BEGIN

/// Owns memory from any source, as values of one type: a buffer whose offsets and counts are in values. It can be moved
/// and not copied. An object without memory, such as one that was moved from, has the size 0.
///
/// The values may lie where only a device addresses them, so there are no iterators and no operator[]. For memory that
/// the CPU addresses, `host_span` has both.
template <typename Value> class typed_buffer {
    static_assert(!std::is_const_v<Value> && !std::is_volatile_v<Value> && !std::is_reference_v<Value>, "cudamem::typed_buffer<Value>: Value must be a type without const, volatile and &");
    static_assert(std::is_trivially_copyable_v<Value>, "cudamem::typed_buffer<Value>: Value must be trivially copyable, because copies to and from the device copy its bytes");
    static_assert(alignof(Value) <= 256, "cudamem::typed_buffer<Value>: memory lies at multiples of 256 bytes, and Value needs more");

public:
    /// The type of the values.
    using value_type = Value;
    /// The type of counts and offsets.
    using size_type = std::size_t;

    /// Holds no memory.
    typed_buffer() noexcept = default;

    /// Allocates `count` values, which are undefined. `stream` becomes the home stream.
    static result<typed_buffer> allocate(const resource &resource, std::size_t count, const stream &stream)
    {
        return made(resource, count, stream, nullptr, false);
    }

    /// Allocates `count` values whose bytes are zeros, in order of the stream.
    static result<typed_buffer> zeroed(const resource &resource, std::size_t count, const stream &stream)
    {
        return made(resource, count, stream, nullptr, true);
    }

    /// Allocates memory for the values of an array, a std::vector, a std::span, ... , and writes them.
    template <typename Values>
    static result<typed_buffer> from_values(const resource &resource, const Values &values, const stream &stream)
    {
        const span<const Value> source = detail::source_values<Value>(values);
        return made(resource, source.size(), stream, source.data(), false);
    }

    /// As from_values, of a list in braces.
    static result<typed_buffer> from_values(const resource &resource, std::initializer_list<Value> values, const stream &stream)
    {
        return made(resource, values.size(), stream, values.begin(), false);
    }

    /// Takes over a buffer, which must hold whole, aligned values. After a failure it stays the program's.
    static result<typed_buffer> of(buffer &&memory)
    {
        cudamem_buffer_info info{};
        info.size = sizeof info;
        const cudamem_status status = cudamem_buffer_get_info(memory.get(), &info);
        if (status != CUDAMEM_SUCCESS) {
            return fail<typed_buffer>(last_error(status));
        }
        if (info.length % sizeof(Value) != 0 || info.device_pointer % alignof(Value) != 0) {
            const std::string message = "cudamem::typed_buffer::of: " + std::to_string(info.length) + " bytes at " +
                                        std::to_string(info.device_pointer) + " are not whole values of " +
                                        std::to_string(sizeof(Value)) + " bytes, aligned to " +
                                        std::to_string(alignof(Value)) + ": slice the buffer at such an offset and size";
            return fail<typed_buffer>(error(CUDAMEM_ERROR_MISALIGNED, 0, message.c_str()));
        }
        return typed_buffer(std::move(memory), info);
    }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    /// Allocates `count` values, which are undefined. `stream` becomes the home stream.
    typed_buffer(const resource &resource, std::size_t count, const stream &stream)
        : typed_buffer(allocate(resource, count, stream))
    {
    }

    /// As `of`.
    explicit typed_buffer(buffer &&memory) : typed_buffer(of(std::move(memory))) {}
#endif

    /// The source of the move then holds no memory.
    typed_buffer(typed_buffer &&other) noexcept
        : memory_(std::move(other.memory_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)),
          capacity_(std::exchange(other.capacity_, 0))
    {
    }

    /// The source of the move then holds no memory.
    typed_buffer &operator=(typed_buffer &&other) noexcept
    {
        if (this != &other) {
            memory_ = std::move(other.memory_);
            data_ = std::exchange(other.data_, nullptr);
            size_ = std::exchange(other.size_, 0);
            capacity_ = std::exchange(other.capacity_, 0);
        }
        return *this;
    }

    typed_buffer(const typed_buffer &) = delete;
    typed_buffer &operator=(const typed_buffer &) = delete;

    /// The device's address of the first value, for kernels; null if there is no memory. Record work on other streams
    /// than the home stream: `record_use`.
    Value *data() const noexcept { return data_; }

    /// How many values there are.
    std::size_t size() const noexcept { return size_; }

    /// The size in bytes.
    std::size_t size_bytes() const noexcept { return size_ * sizeof(Value); }

    /// How many values `resize` makes without new memory.
    std::size_t capacity() const noexcept { return capacity_; }

    /// Whether there are no values.
    bool empty() const noexcept { return size_ == 0; }

    /// Whether there is a handle.
    explicit operator bool() const noexcept { return static_cast<bool>(memory_); }

    /// The handle. It stays this object's.
    cudamem_buffer get() const noexcept { return memory_.get(); }

    /// The same memory in bytes, for functions of buffers: views, exports, words, managed memory. It has `capacity`
    /// values.
    const buffer &untyped() const noexcept { return memory_; }

    /// Gives up the memory, and returns it as bytes. It has `capacity` values.
    buffer release() noexcept
    {
        forget();
        return std::move(memory_);
    }

    /// Whether values lie within the buffer.
    bool has(std::size_t offset, std::size_t count) const noexcept { return offset <= size_ && count <= size_ - offset; }

    /// The error that a call returns for values that do not lie within the buffer.
    error out_of_range(const char *call, std::size_t offset, std::size_t count) const
    {
        const std::string message = std::string(call) + ": " + std::to_string(count) + " values at offset " +
                                    std::to_string(offset) + " do not lie within the buffer's " + std::to_string(size_) +
                                    " values";
        return error(CUDAMEM_ERROR_OUT_OF_RANGE, 0, message.c_str());
    }

    /// Changes the number of values, and keeps the values that both sizes have; new ones are undefined. What fits into
    /// `capacity` needs no call. Otherwise the values move to new memory of the resource, in stream order and without
    /// waiting, and `stream` becomes the home stream; the old memory is freed after that. After a failure nothing has
    /// changed.
    result<void> resize(const resource &resource, std::size_t count, const stream &stream)
    {
        if (count <= capacity_ && *this) {
            size_ = count;
            return result<void>();
        }
        cudamem_buffer_info info{};
        buffer larger;
        cudamem_status status = new_memory(resource, count, stream, larger, info);
        if (status == CUDAMEM_SUCCESS && size_ != 0) {
            status = cudamem_buffer_copy(larger.get(), 0, get(), 0, size_bytes());
        }
        if (status != CUDAMEM_SUCCESS) {
            return fail<void>(failure(status, count));
        }
        *this = typed_buffer(std::move(larger), info);
        return result<void>();
    }

    /// Some of the values, which share ownership of the memory.
    result<typed_buffer> slice(std::size_t offset, std::size_t count = whole_size) const
    {
        count = rest(offset, count);
        if (!has(offset, count)) {
            return fail<typed_buffer>(out_of_range("cudamem::typed_buffer::slice", offset, count));
        }
        cudamem_buffer part{};
        cudamem_buffer_info info{};
        info.size = sizeof info;
        cudamem_status status = cudamem_buffer_slice(get(), offset * sizeof(Value), count * sizeof(Value), &part);
        buffer owner(part);
        if (status == CUDAMEM_SUCCESS) {
            status = cudamem_buffer_get_info(part, &info);
        }
        if (status != CUDAMEM_SUCCESS) {
            return fail<typed_buffer>(last_error(status));
        }
        return typed_buffer(std::move(owner), info);
    }

    /// Writes the values of an array, a std::vector, a std::span, ... . Returns when the copy is done.
    template <typename Values> result<void> write(std::size_t offset, const Values &values) const
    {
        return put(cudamem_buffer_write, "cudamem::typed_buffer::write", offset, detail::source_values<Value>(values));
    }

    /// As write, of a list in braces.
    result<void> write(std::size_t offset, std::initializer_list<Value> values) const
    {
        return put(cudamem_buffer_write, "cudamem::typed_buffer::write", offset, span<const Value>(values.begin(), values.size()));
    }

    /// Reads as many values as an array, a std::vector, a std::span, ... has.
    template <typename Values> result<void> read(std::size_t offset, Values &&values) const
    {
        return take(cudamem_buffer_read, "cudamem::typed_buffer::read", offset, detail::destination_values<Value>(values));
    }

    /// Reads all values.
    result<std::vector<Value>> to_vector() const
    {
        static_assert(!std::is_same_v<Value, bool>, "cudamem::typed_buffer<bool>::to_vector: std::vector<bool> has no contiguous values: read into a std::array or a std::unique_ptr<bool[]>");
        std::vector<Value> values(size_);
        const cudamem_status status = cudamem_buffer_read(get(), 0, values.data(), size_bytes());
        if (status != CUDAMEM_SUCCESS) {
            return fail<std::vector<Value>>(last_error(status));
        }
        return values;
    }

    /// Stores the values of an array, a std::vector, a std::span, ... with the CPU, which waits for no device work. For
    /// pinned and mapped memory.
    template <typename Values> result<void> store(std::size_t offset, const Values &values) const
    {
        return put(cudamem_buffer_store, "cudamem::typed_buffer::store", offset, detail::source_values<Value>(values));
    }

    /// As store, of a list in braces.
    result<void> store(std::size_t offset, std::initializer_list<Value> values) const
    {
        return put(cudamem_buffer_store, "cudamem::typed_buffer::store", offset, span<const Value>(values.begin(), values.size()));
    }

    /// Loads as many values as an array, a std::vector, a std::span, ... has with the CPU, which waits for no device
    /// work. For pinned and mapped memory.
    template <typename Values> result<void> load(std::size_t offset, Values &&values) const
    {
        return take(cudamem_buffer_load, "cudamem::typed_buffer::load", offset, detail::destination_values<Value>(values));
    }

    /// The values, for the CPU. As with `buffer::host_pointer`, wait for device work on them first.
    result<span<Value>> host_span() const
    {
        void *pointer = nullptr;
        const cudamem_status status = cudamem_buffer_get_host_pointer(get(), &pointer);
        if (status != CUDAMEM_SUCCESS) {
            return fail<span<Value>>(last_error(status));
        }
        return detail::values_at<Value>(pointer, size_bytes());
    }

    /// Copies values of another buffer, in order of the home stream.
    result<void> copy(std::size_t offset, const typed_buffer &source, std::size_t source_offset = 0,
                      std::size_t count = whole_size) const
    {
        count = source.rest(source_offset, count);
        if (!source.has(source_offset, count)) {
            return fail<void>(source.out_of_range("cudamem::typed_buffer::copy: source", source_offset, count));
        }
        if (!has(offset, count)) {
            return fail<void>(out_of_range("cudamem::typed_buffer::copy", offset, count));
        }
        return check(cudamem_buffer_copy(get(), offset * sizeof(Value), source.get(), source_offset * sizeof(Value),
                                         count * sizeof(Value)));
    }

    /// Sets all values, in order of the home stream.
    result<void> fill(const Value &value) const { return fill(0, whole_size, value); }

    /// Sets some values, in order of the home stream.
    result<void> fill(std::size_t offset, std::size_t count, const Value &value) const
    {
        static_assert(sizeof(Value) <= 16 && (sizeof(Value) & (sizeof(Value) - 1)) == 0, "cudamem::typed_buffer::fill: a device fills in values of 1, 2, 4, 8 or 16 bytes");
        count = rest(offset, count);
        if (!has(offset, count)) {
            return fail<void>(out_of_range("cudamem::typed_buffer::fill", offset, count));
        }
        return check(cudamem_buffer_fill(get(), offset * sizeof(Value), count * sizeof(Value), &value, sizeof value));
    }

    /// Whether both hold as many values, and the same bytes.
    result<bool> equals(const typed_buffer &other) const
    {
        bool equal = false;
        if (size_ != other.size_) {
            return equal;
        }
        cudamem_buffer ours{}, theirs{};
        cudamem_status status = cudamem_buffer_slice(get(), 0, size_bytes(), &ours);
        const buffer one(ours);
        if (status == CUDAMEM_SUCCESS) {
            status = cudamem_buffer_slice(other.get(), 0, size_bytes(), &theirs);
        }
        const buffer another(theirs);
        if (status == CUDAMEM_SUCCESS) {
            status = cudamem_buffer_equals(ours, theirs, &equal);
        }
        return detail::give<bool>(status, equal);
    }

    /// Makes CPU writes to values visible to device work that is queued later.
    result<void> flush(std::size_t offset = 0, std::size_t count = whole_size) const
    {
        return move_atoms(cudamem_buffer_flush, "cudamem::typed_buffer::flush", offset, count);
    }

    /// Makes device writes to values visible to the CPU, once the device work is done.
    result<void> invalidate(std::size_t offset = 0, std::size_t count = whole_size) const
    {
        return move_atoms(cudamem_buffer_invalidate, "cudamem::typed_buffer::invalidate", offset, count);
    }

    /// Makes another stream the home stream.
    result<void> set_stream(const stream &stream) const { return memory_.set_stream(stream); }

    /// Records kernels on another stream that were launched with the address.
    result<void> record_use(const stream &stream) const { return memory_.record_use(stream); }

    /// Waits for the work of the home stream so far.
    result<void> synchronize() const { return memory_.synchronize(); }

    /// Frees the memory now. After a failure it stays.
    result<void> close() { return closed(cudamem_buffer_destroy(get())); }

    /// Frees the memory in order of another stream. After a failure it stays.
    result<void> close(const stream &stream)
    {
        const cudamem_status status = *this ? cudamem_buffer_set_stream(get(), stream.get()) : CUDAMEM_SUCCESS;
        return closed(status == CUDAMEM_SUCCESS ? cudamem_buffer_destroy(get()) : status);
    }

private:
    typed_buffer(buffer &&memory, const cudamem_buffer_info &info) noexcept
        : memory_(std::move(memory)), data_(reinterpret_cast<Value *>(static_cast<std::uintptr_t>(info.device_pointer))),
          size_(info.length / sizeof(Value)), capacity_(size_)
    {
    }

    static cudamem_status new_memory(const resource &resource, std::size_t count, const stream &stream, buffer &memory,
                                     cudamem_buffer_info &info)
    {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(Value)) {
            return too_many;
        }
        cudamem_buffer handle{};
        cudamem_status status = cudamem_buffer_allocate(resource.get(), count * sizeof(Value), stream.get(), &handle);
        if (status == CUDAMEM_SUCCESS) {
            memory = buffer(handle);
            info.size = sizeof info;
            status = cudamem_buffer_get_info(handle, &info);
        }
        return status;
    }

    static result<typed_buffer> made(const resource &resource, std::size_t count, const stream &stream, const Value *values,
                                     bool zero)
    {
        cudamem_buffer_info info{};
        buffer memory;
        cudamem_status status = new_memory(resource, count, stream, memory, info);
        if (status == CUDAMEM_SUCCESS && zero && count != 0) {
            const unsigned char byte = 0;
            status = cudamem_buffer_fill(memory.get(), 0, info.length, &byte, 1);
        }
        if (status == CUDAMEM_SUCCESS && values != nullptr) {
            status = cudamem_buffer_write(memory.get(), 0, values, info.length);
        }
        if (status != CUDAMEM_SUCCESS) {
            return fail<typed_buffer>(failure(status, count));
        }
        return typed_buffer(std::move(memory), info);
    }

    static error failure(cudamem_status status, std::size_t count)
    {
        if (status == too_many) {
            const std::string message = "cudamem::typed_buffer: the size of " + std::to_string(count) + " values of " +
                                        std::to_string(sizeof(Value)) + " bytes overflows";
            return error(CUDAMEM_ERROR_OUT_OF_MEMORY, 0, message.c_str());
        }
        return last_error(status);
    }

    result<void> put(cudamem_status (*function)(cudamem_buffer, std::size_t, const void *, std::size_t), const char *call,
                     std::size_t offset, span<const Value> values) const
    {
        if (!has(offset, values.size())) {
            return fail<void>(out_of_range(call, offset, values.size()));
        }
        return check(function(get(), offset * sizeof(Value), values.data(), values.size_bytes()));
    }

    result<void> take(cudamem_status (*function)(cudamem_buffer, std::size_t, void *, std::size_t), const char *call,
                      std::size_t offset, span<Value> values) const
    {
        if (!has(offset, values.size())) {
            return fail<void>(out_of_range(call, offset, values.size()));
        }
        return check(function(get(), offset * sizeof(Value), values.data(), values.size_bytes()));
    }

    result<void> move_atoms(cudamem_status (*function)(cudamem_buffer, std::size_t, std::size_t), const char *call,
                            std::size_t offset, std::size_t count) const
    {
        count = rest(offset, count);
        if (!has(offset, count)) {
            return fail<void>(out_of_range(call, offset, count));
        }
        return check(function(get(), offset * sizeof(Value), count * sizeof(Value)));
    }

    /// The count of everything from the offset on.
    std::size_t rest(std::size_t offset, std::size_t count) const noexcept
    {
        return count != whole_size ? count : offset <= size_ ? size_ - offset : 0;
    }

    result<void> closed(cudamem_status status)
    {
        if (status == CUDAMEM_SUCCESS) {
            static_cast<void>(memory_.release());
            forget();
        }
        return check(status);
    }

    void forget() noexcept
    {
        data_ = nullptr;
        size_ = 0;
        capacity_ = 0;
    }

    /// No status of the library.
    static constexpr cudamem_status too_many = -1;

    buffer memory_;
    Value *data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_TYPED_BUFFER_HPP
