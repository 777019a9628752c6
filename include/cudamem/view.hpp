// Views: arrays of any layout in memory, and copies between them.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_VIEW_HPP
#define CUDAMEM_VIEW_HPP

#include "buffer.hpp"
#include "views.h"

#include <initializer_list>
#include <vector>

CUDAMEM_NAMESPACE_BEGIN

/// The type of an element, as DLPack numbers it.
using data_type = cudamem_data_type;

/// The element type for a C++ type: integers, floats, bool.
template <typename Value> constexpr data_type data_type_of() noexcept
{
    static_assert(std::is_arithmetic_v<Value>, "give other types by their numbers, or find them by their names");
    static_assert(!std::is_same_v<std::remove_cv_t<Value>, long double>, "long double is a format of the CPU: devices have no such type");
    return {static_cast<std::uint8_t>(std::is_same_v<Value, bool>         ? CUDAMEM_TYPE_BOOL
                                      : std::is_floating_point_v<Value>   ? CUDAMEM_TYPE_FLOAT
                                      : std::is_signed_v<Value>           ? CUDAMEM_TYPE_INT
                                                                          : CUDAMEM_TYPE_UINT),
            static_cast<std::uint8_t>(8 * sizeof(Value)), 1};
}

/// The type for a name ("float32", "bfloat16") or a numpy typestr ("<f4").
inline result<data_type> find_data_type(const char *name)
{
    return detail::get<data_type>(cudamem_data_type_find, name);
}

/// The name of a type.
inline result<std::string> to_string(data_type type) { return detail::get_text(cudamem_data_type_get_name, type, 0u); }

/// numpy's typestr of a type.
inline result<std::string> typestr(data_type type)
{
    return detail::get_text(cudamem_data_type_get_name, type, std::uint32_t{CUDAMEM_NAME_TYPESTR});
}

/// A part of an axis: one index, a range with a step, or the whole axis. Negative numbers count from the end.
struct index : cudamem_index {
    /// A whole axis.
    constexpr index() noexcept : cudamem_index{CUDAMEM_INDEX_OPEN, CUDAMEM_INDEX_OPEN, 1} {}
    /// One index, which removes the axis.
    constexpr index(std::int64_t only) noexcept : cudamem_index{only, 0, 0} {}
    /// From an index up to, but excluding, another; CUDAMEM_INDEX_OPEN is the begin or end of the axis.
    constexpr index(std::int64_t from, std::int64_t to, std::int64_t every = 1) noexcept : cudamem_index{from, to, every} {}
};

/// The layout of a view.
struct layout {
    /// The type of the elements.
    data_type type;
    /// The extents. Without strides one may be -1: it becomes as large as the memory allows.
    std::vector<std::int64_t> shape;
    /// The strides in elements; empty for dense elements.
    std::vector<std::int64_t> strides = {};
    /// The offset of the element with indices 0, in elements.
    std::int64_t offset = 0;
    /// CUDAMEM_VIEW_READ_ONLY, _PADDED and _F_ORDER, combined by |.
    std::uint32_t flags = 0;

    /// The C struct, valid while this is unchanged.
    cudamem_view_layout raw() const noexcept
    {
        cudamem_view_layout raw{};
        raw.size = sizeof raw;
        raw.data_type = type;
        raw.flags = flags;
        raw.ndim = shape.size();
        raw.shape = shape.data();
        raw.strides = strides.empty() ? nullptr : strides.data();
        raw.offset = offset;
        return raw;
    }
};

/// An array of any layout in memory. It never changes: functions for other layouts make another view.
class view : public object<cudamem_view, cudamem_view_destroy> {
public:
    using object::object;

    /// A view of a buffer's memory, whose ownership it shares.
    static result<view> of(const buffer &buffer, const layout &layout)
    {
        if (layout.strides.size() != layout.shape.size() && !layout.strides.empty()) {
            return wrong_strides();
        }
        const cudamem_view_layout raw = layout.raw();
        return detail::make<view>(cudamem_view_create, buffer.get(), &raw);
    }

    /// A view of host memory that the driver need not know. `release` is called with `user` when nothing uses it any
    /// more; without `release`, it must outlive all views of it.
    static result<view> borrow_host(void *pointer, std::size_t size, const layout &layout,
                                    cudamem_release_callback release = nullptr, void *user = nullptr)
    {
        if (layout.strides.size() != layout.shape.size() && !layout.strides.empty()) {
            return wrong_strides();
        }
        const cudamem_view_layout raw = layout.raw();
        return detail::make<view>(cudamem_view_borrow_host, pointer, size, &raw, release, user);
    }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    view(const buffer &buffer, const layout &layout) : view(of(buffer, layout)) {}
#endif

    /// Describes the view. The lists are valid while this lives.
    result<cudamem_view_info> info() const
    {
        cudamem_view_info info{};
        info.size = sizeof info;
        const cudamem_status status = cudamem_view_get_info(get(), &info);
        return detail::give<cudamem_view_info>(status, info);
    }

    result<view> reshape(const std::vector<std::int64_t> &shape) const
    {
        return detail::make<view>(cudamem_view_reshape, get(), shape.data(), shape.size());
    }

    result<view> permute(const std::vector<std::int64_t> &axes) const
    {
        return detail::make<view>(cudamem_view_permute, get(), axes.data(), axes.size());
    }

    /// A part of each axis; axes without an index stay whole.
    result<view> slice(std::initializer_list<index> indices) const
    {
        const std::vector<cudamem_index> raw(indices.begin(), indices.end());
        return detail::make<view>(cudamem_view_slice, get(), raw.data(), raw.size());
    }

    /// Repeats axes of extent 1 and adds axes in front, without more memory.
    result<view> broadcast(const std::vector<std::int64_t> &shape) const
    {
        return detail::make<view>(cudamem_view_broadcast, get(), shape.data(), shape.size());
    }

    /// Removes the axes of extent 1. Without elements, one axis of extent 0 remains.
    result<view> squeeze() const
    {
        cudamem_view_info info{};
        info.size = sizeof info;
        const cudamem_status status = cudamem_view_get_info(get(), &info);
        std::vector<std::int64_t> shape;
        if (status != CUDAMEM_SUCCESS) {
            return detail::give<view>(status, cudamem_view{0});
        }
        if (info.elements == 0) {
            shape.push_back(0);
        }
        for (std::size_t axis = 0; info.elements != 0 && axis < info.ndim; axis++) {
            if (info.shape[axis] != 1) {
                shape.push_back(info.shape[axis]);
            }
        }
        return reshape(shape);
    }

    /// Adds axes of extent 1, at the given places of the new shape.
    result<view> unsqueeze(const std::vector<std::size_t> &axes) const
    {
        cudamem_view_info info{};
        info.size = sizeof info;
        const cudamem_status status = cudamem_view_get_info(get(), &info);
        if (status != CUDAMEM_SUCCESS) {
            return detail::give<view>(status, cudamem_view{0});
        }
        std::vector<std::int64_t> shape(info.shape, info.shape + info.ndim);
        std::vector<bool> added(info.ndim + axes.size(), false);
        for (const std::size_t axis : axes) {
            if (axis >= added.size() || added[axis]) {
                return fail<view>(error(CUDAMEM_ERROR_INVALID_ARGUMENT, 0,
                                        "cudamem::view::unsqueeze: each axis must lie within the new shape, and be new"));
            }
            added[axis] = true;
        }
        for (std::size_t axis = 0; axis < added.size(); axis++) {
            if (added[axis]) {
                shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), 1);
            }
        }
        return reshape(shape);
    }

    result<view> flatten() const { return detail::make<view>(cudamem_view_flatten, get()); }

    /// The same bytes as elements of another type.
    result<view> repack(data_type type, std::int64_t axis = -1) const
    {
        return detail::make<view>(cudamem_view_repack, get(), type, axis);
    }

    /// The whole memory in another layout.
    result<view> with_layout(const layout &layout) const
    {
        if (layout.strides.size() != layout.shape.size() && !layout.strides.empty()) {
            return wrong_strides();
        }
        const cudamem_view_layout raw = layout.raw();
        return detail::make<view>(cudamem_view_with_layout, get(), &raw);
    }

    result<view> read_only() const { return detail::make<view>(cudamem_view_make_read_only, get()); }

    /// The view's memory, if it is writable.
    result<cudamem::buffer> buffer() const { return detail::make<cudamem::buffer>(cudamem_view_get_buffer, get()); }

    result<void> record_use(const stream &stream) const { return check(cudamem_record_use(get().id, stream.get())); }

    /// Copies the elements of another view of the same type and shape. `options.size` is set here.
    result<void> copy(const view &source, cudamem_view_copy_options options = {}) const
    {
        options.size = sizeof options;
        return check(cudamem_view_copy(get(), source.get(), &options));
    }

    /// Writes dense values in C order, as many as the view has elements: an array, a std::vector, a std::span, ... .
    template <typename Values> result<void> write(const Values &values, cudamem_view_copy_options options = {}) const
    {
        options.size = sizeof options;
        const auto bytes = detail::source_bytes(values);
        return check(cudamem_view_write(get(), bytes.data, bytes.size, &options));
    }

    /// Reads dense values in C order, as many as the view has elements.
    template <typename Values> result<void> read(Values &&values, cudamem_view_copy_options options = {}) const
    {
        options.size = sizeof options;
        const auto bytes = detail::destination_bytes(values);
        return check(cudamem_view_read(get(), bytes.data, bytes.size, &options));
    }

private:
    static result<view> wrong_strides()
    {
        return fail<view>(error(CUDAMEM_ERROR_INVALID_ARGUMENT, 0,
                                "cudamem::layout: give as many strides as extents, or none"));
    }
};

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_VIEW_HPP
