// Values in memory: copies as bytes, and typed access to memory that the CPU addresses.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_VALUES_HPP
#define CUDAMEM_VALUES_HPP

#include "object.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <type_traits>
#if defined(__cpp_lib_span)
#include <span>
#endif

CUDAMEM_NAMESPACE_BEGIN

namespace detail {

/// The size in bytes of contiguous values: an array, std::array, std::vector, std::string, std::span.
template <typename Values> std::size_t size_in_bytes(const Values &values)
{
    using value_type = std::remove_pointer_t<decltype(std::data(values))>;
    static_assert(std::is_trivially_copyable_v<value_type>, "values are copied as bytes");
    return std::size(values) * sizeof(value_type);
}

} // namespace detail

#if defined(__cpp_lib_span)
template <typename Value> using span = std::span<Value>;
#else
/// Contiguous values: a pointer and a count. In C++20 it is std::span.
template <typename Value> class span {
public:
    using element_type = Value;
    using value_type = std::remove_cv_t<Value>;

    constexpr span() noexcept = default;
    constexpr span(Value *data, std::size_t size) noexcept : data_(data), size_(size) {}

    constexpr Value *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr std::size_t size_bytes() const noexcept { return size_ * sizeof(Value); }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr Value *begin() const noexcept { return data_; }
    constexpr Value *end() const noexcept { return data_ + size_; }
    constexpr Value &operator[](std::size_t index) const { return data_[index]; }

private:
    Value *data_ = nullptr;
    std::size_t size_ = 0;
};
#endif

namespace detail {

/// Views memory that the CPU addresses as values. It must hold whole, aligned values.
template <typename Value> result<span<Value>> values_at(void *pointer, std::size_t size)
{
    static_assert(std::is_trivially_copyable_v<Value>, "a device sees values in shared memory as bytes");
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    if (address % alignof(Value) != 0 || size % sizeof(Value) != 0) {
        const std::string message = std::to_string(size) + " bytes at " + std::to_string(address) +
                                    " are not whole values of " + std::to_string(sizeof(Value)) + " bytes, aligned to " +
                                    std::to_string(alignof(Value)) + ": slice the memory at such an offset and size";
        return fail<span<Value>>(error(CUDAMEM_ERROR_MISALIGNED, 0, message.c_str()));
    }
    return span<Value>(static_cast<Value *>(pointer), size / sizeof(Value));
}

/// The CPU's view of a buffer or of mapped memory.
template <typename Value, typename Handle>
result<span<Value>> host_span(cudamem_status (*get_pointer)(Handle, void **), cudamem_status (*get_size)(Handle, std::size_t *),
                              Handle handle)
{
    void *pointer = nullptr;
    std::size_t size = 0;
    cudamem_status status = get_size(handle, &size);
    if (status == CUDAMEM_SUCCESS) {
        status = get_pointer(handle, &pointer);
    }
    if (status != CUDAMEM_SUCCESS) {
        return give<span<Value>>(status, span<Value>());
    }
    return values_at<Value>(pointer, size);
}

} // namespace detail

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_VALUES_HPP
