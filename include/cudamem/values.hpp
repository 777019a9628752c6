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
#include <utility>
#if defined(__cpp_lib_span)
#include <span>
#endif

CUDAMEM_NAMESPACE_BEGIN

namespace detail {

/// Whether a type holds contiguous values that the CPU addresses: an array, std::array, std::vector, std::string,
/// std::span. A typed_buffer has a pointer and a size too, but no iterators, because the CPU may not address its memory.
template <typename Values, typename = void> inline constexpr bool are_values = false;

template <typename Values>
inline constexpr bool are_values<Values, std::void_t<decltype(std::data(std::declval<Values &>())), decltype(std::size(std::declval<Values &>())),
                                                     decltype(std::begin(std::declval<Values &>()))>> = true;

/// The type of contiguous values, const if they are. Of other types: unsigned char.
template <typename Values, bool = are_values<Values>> struct element {
    using type = unsigned char;
};

template <typename Values> struct element<Values, true> {
    using type = std::remove_pointer_t<decltype(std::data(std::declval<Values &>()))>;
};

/// Contiguous values as bytes: for calls of the C library.
template <typename Pointer> struct bytes {
    Pointer data;
    std::size_t size;
};

/// The bytes of values that a call reads.
template <typename Values> bytes<const void *> source_bytes(const Values &values)
{
    using value_type = typename element<const Values>::type;
    static_assert(are_values<const Values>, "cudamem: the source is no contiguous values of the CPU: give an array, a std::array, a std::vector, a std::span, ... (for memory of a device: copy)");
    static_assert(std::is_trivially_copyable_v<value_type>, "cudamem: values are copied as bytes, so their type must be trivially copyable");
    if constexpr (are_values<const Values>) {
        return {std::data(values), std::size(values) * sizeof(value_type)};
    } else {
        return {nullptr, 0};
    }
}

/// The bytes of values that a call writes.
template <typename Values> bytes<void *> destination_bytes(Values &values)
{
    using value_type = typename element<Values>::type;
    static_assert(are_values<Values>, "cudamem: the destination is no contiguous values of the CPU: give an array, a std::array, a std::vector, a std::span, ... (for memory of a device: copy)");
    static_assert(std::is_trivially_copyable_v<value_type>, "cudamem: values are copied as bytes, so their type must be trivially copyable");
    static_assert(!std::is_const_v<value_type>, "cudamem: the destination is const: give values that may be written");
    if constexpr (are_values<Values> && !std::is_const_v<value_type>) {
        return {std::data(values), std::size(values) * sizeof(value_type)};
    } else {
        return {nullptr, 0};
    }
}

} // namespace detail

#if defined(__cpp_lib_span)
template <typename Value> using span = std::span<Value>;
#else
/// Contiguous values: a pointer and a count. In C++20 it is std::span.
template <typename Value> class span {
    /// Whether the pointer to an element converts, without a conversion of the elements: only const may be added.
    template <typename Values>
    static constexpr bool takes = detail::are_values<std::remove_reference_t<Values>> &&
                                  !std::is_same_v<std::remove_cv_t<std::remove_reference_t<Values>>, span> &&
                                  (std::is_lvalue_reference_v<Values> || std::is_const_v<Value>) &&
                                  std::is_convertible_v<typename detail::element<std::remove_reference_t<Values>>::type (*)[], Value (*)[]>;

public:
    using element_type = Value;
    using value_type = std::remove_cv_t<Value>;

    constexpr span() noexcept = default;
    constexpr span(Value *data, std::size_t size) noexcept : data_(data), size_(size) {}

    /// The values of an array, a std::array, a std::vector, a span, ... . Only a span of const values takes a temporary.
    template <typename Values, typename = std::enable_if_t<takes<Values>>>
    constexpr span(Values &&values) noexcept : data_(std::data(values)), size_(std::size(values))
    {
    }

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

/// Values of one type that a call reads.
template <typename Value, typename Values> span<const Value> source_values(const Values &values)
{
    using value_type = std::remove_cv_t<typename element<const Values>::type>;
    const bytes<const void *> source = source_bytes(values);
    static_assert(!are_values<const Values> || std::is_same_v<value_type, Value>, "cudamem: the source has values of another type than the typed_buffer: a copy converts nothing");
    return span<const Value>(static_cast<const Value *>(source.data), source.size / sizeof(Value));
}

/// Values of one type that a call writes.
template <typename Value, typename Values> span<Value> destination_values(Values &values)
{
    using value_type = std::remove_cv_t<typename element<Values>::type>;
    const bytes<void *> destination = destination_bytes(values);
    static_assert(!are_values<Values> || std::is_same_v<value_type, Value>, "cudamem: the destination has values of another type than the typed_buffer: a copy converts nothing");
    return span<Value>(static_cast<Value *>(destination.data), destination.size / sizeof(Value));
}

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
