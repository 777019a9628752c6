// Memory exchange with other libraries: DLPack, the array interfaces, Arrow.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
//
// dlpack.h and Arrow's headers are not needed, and may be included before or after.
#ifndef CUDAMEM_INTERCHANGE_HPP
#define CUDAMEM_INTERCHANGE_HPP

#include "interchange.h"
#include "view.hpp"

#include <utility>
#include <vector>

CUDAMEM_NAMESPACE_BEGIN

/// Exports a view to another library, in stream order. The consumer must call the tensor's deleter. `options.size` is
/// set here.
inline result<DLManagedTensorVersioned *> export_dlpack(const view &view, cudamem_dlpack_options options = {})
{
    options.size = sizeof options;
    DLManagedTensorVersioned *tensor = nullptr;
    const cudamem_status status = cudamem_view_export_dlpack(view.get(), &options, &tensor, nullptr);
    return detail::give<DLManagedTensorVersioned *>(status, tensor);
}

/// As export_dlpack, in the layout before DLPack 1.0.
inline result<DLManagedTensor *> export_dlpack_legacy(const view &view, cudamem_dlpack_options options = {})
{
    options.size = sizeof options;
    return detail::get<DLManagedTensor *>(cudamem_view_export_dlpack, view.get(), &options, nullptr);
}

/// Makes a view of another library's tensor, and takes it over. After a failure it stays the program's, unchanged.
inline result<view> import_dlpack(DLManagedTensorVersioned *tensor, const stream &consumer, const stream &producer = stream())
{
    return detail::make<view>(cudamem_view_import_dlpack, tensor, nullptr, consumer.get(), producer.get());
}

/// As import_dlpack, of a tensor in the layout before DLPack 1.0.
inline result<view> import_dlpack(DLManagedTensor *tensor, const stream &consumer, const stream &producer = stream())
{
    return detail::make<view>(cudamem_view_import_dlpack, nullptr, tensor, consumer.get(), producer.get());
}

/// The CUDA array interface of a view, as JSON.
inline result<std::string> cuda_array_interface(const view &view)
{
    return detail::get_text(cudamem_view_export_array_interface, view.get(), 0u);
}

/// numpy's array interface of a view, as JSON.
inline result<std::string> array_interface(const view &view)
{
    return detail::get_text(cudamem_view_export_array_interface, view.get(), std::uint32_t{CUDAMEM_ARRAY_INTERFACE_NUMPY});
}

/// Makes a view of an array that devices address. `flags` is 0 or CUDAMEM_ARRAY_INTERFACE_ORDERED.
inline result<view> import_cuda_array_interface(const std::string &json, const stream &stream, std::uint32_t flags = 0,
                                                cudamem_release_callback release = nullptr, void *user = nullptr)
{
    return detail::make<view>(cudamem_view_import_array_interface, json.c_str(), flags, stream.get(), release, user);
}

/// Makes a view of an array in host memory.
inline result<view> import_array_interface(const std::string &json, const stream &stream,
                                           cudamem_release_callback release = nullptr, void *user = nullptr)
{
    return detail::make<view>(cudamem_view_import_array_interface, json.c_str(), std::uint32_t{CUDAMEM_ARRAY_INTERFACE_NUMPY}, stream.get(), release, user);
}

/// The type of an Arrow array.
class arrow_schema : public object<cudamem_arrow_schema, cudamem_arrow_schema_destroy> {
public:
    using object::object;

    /// `format` is the specification's letters for the type, `metadata` pairs of keys and values.
    static result<arrow_schema> create(const std::string &format, const std::string &name = "",
                                       const std::vector<const arrow_schema *> &children = {}, std::int64_t flags = 0,
                                       const std::vector<std::pair<std::string, std::string>> &metadata = {})
    {
        std::vector<const char *> keys, values;
        for (const auto &pair : metadata) {
            keys.push_back(pair.first.c_str());
            values.push_back(pair.second.c_str());
        }
        std::vector<cudamem_arrow_schema> handles;
        for (const arrow_schema *child : children) {
            handles.push_back(child->get());
        }
        cudamem_arrow_schema_options options{};
        options.size = sizeof options;
        options.format = format.c_str();
        options.name = name.c_str();
        options.flags = flags;
        options.n_children = handles.size();
        options.children = handles.data();
        options.n_metadata = keys.size();
        options.metadata_keys = keys.data();
        options.metadata_values = values.data();
        return detail::make<arrow_schema>(cudamem_arrow_schema_create, &options);
    }

    /// Takes over a struct. After a failure it stays the program's, unchanged.
    static result<arrow_schema> import(ArrowSchema *source)
    {
        return detail::make<arrow_schema>(cudamem_arrow_schema_import, source);
    }

    /// Fills in the program's struct. The consumer must call its release once.
    result<void> export_to(ArrowSchema *result) const { return check(cudamem_arrow_schema_export(get(), result)); }

    /// Describes the schema. The texts are valid while this lives.
    result<cudamem_arrow_schema_info> info() const
    {
        cudamem_arrow_schema_info info{};
        info.size = sizeof info;
        const cudamem_status status = cudamem_arrow_schema_get_info(get(), &info);
        return detail::give<cudamem_arrow_schema_info>(status, info);
    }

    result<arrow_schema> child(std::size_t index) const
    {
        return detail::make<arrow_schema>(cudamem_arrow_schema_get_child, get(), index);
    }

    /// The type of the dictionary's values; a null handle if there is no dictionary.
    result<arrow_schema> dictionary() const { return detail::make<arrow_schema>(cudamem_arrow_schema_get_child, get(), CUDAMEM_ARROW_DICTIONARY); }

    /// One metadata pair of key and value.
    result<std::pair<std::string, std::string>> metadata(std::size_t index) const
    {
        using pair = std::pair<std::string, std::string>;
        cudamem_text key{}, value{};
        const cudamem_status status = cudamem_arrow_schema_get_metadata(get(), index, &key, &value);
        if (status != CUDAMEM_SUCCESS) {
            return detail::give<pair>(status, pair());
        }
        const text first(key), second(value);
        return pair(detail::characters(first), detail::characters(second));
    }
};

/// An Arrow array, made of buffers or imported.
class arrow_array : public object<cudamem_arrow_array, cudamem_arrow_array_destroy> {
public:
    using object::object;

    /// Makes an array from the options of cudamem/interchange.h. `options.size` is set here.
    static result<arrow_array> create(cudamem_arrow_array_options options)
    {
        options.size = sizeof options;
        return detail::make<arrow_array>(cudamem_arrow_array_create, &options);
    }

    /// Takes over a struct. After a failure it stays the program's, unchanged.
    static result<arrow_array> import(ArrowDeviceArray *source)
    {
        return detail::make<arrow_array>(cudamem_arrow_array_import, source);
    }

    /// Fills in the program's struct. The consumer must call its release once.
    result<void> export_to(ArrowDeviceArray *result, const stream &stream) const
    {
        return check(cudamem_arrow_array_export(get(), stream.get(), result));
    }

    result<cudamem_arrow_array_info> info() const
    {
        cudamem_arrow_array_info info{};
        info.size = sizeof info;
        const cudamem_status status = cudamem_arrow_array_get_info(get(), &info);
        return detail::give<cudamem_arrow_array_info>(status, info);
    }

    result<arrow_array> child(std::size_t index) const
    {
        return detail::make<arrow_array>(cudamem_arrow_array_get_child, get(), index);
    }

    /// The dictionary's values; a null handle if there is no dictionary.
    result<arrow_array> dictionary() const { return detail::make<arrow_array>(cudamem_arrow_array_get_child, get(), CUDAMEM_ARROW_DICTIONARY); }

    /// One of the buffers; a null handle if it is absent. `size` is in bytes and follows from the type.
    result<cudamem::buffer> buffer(std::size_t index, std::size_t size, const stream &stream) const
    {
        return detail::make<cudamem::buffer>(cudamem_arrow_array_get_buffer, get(), index, size, stream.get());
    }

    using object::close;

    /// Destroys the array now. Its memory is reused only after the work that the stream has by now.
    result<void> close(const stream &stream)
    {
        const cudamem_status status = cudamem_arrow_array_destroy_after(get(), stream.get());
        if (status == CUDAMEM_SUCCESS) {
            release();
        }
        return check(status);
    }
};

/// A stream of Arrow arrays of one type.
class arrow_stream : public object<cudamem_arrow_stream, cudamem_arrow_stream_destroy> {
public:
    using object::object;

    /// Takes over a struct. After a failure it stays the program's, unchanged.
    static result<arrow_stream> import(ArrowDeviceArrayStream *source)
    {
        return detail::make<arrow_stream>(cudamem_arrow_stream_import, source);
    }

    result<arrow_schema> schema() const { return detail::make<arrow_schema>(cudamem_arrow_stream_get_schema, get()); }

    /// The next array; a null handle after the last one.
    result<arrow_array> next() const { return detail::make<arrow_array>(cudamem_arrow_stream_next, get()); }
};

/// Fills in the program's struct, which yields the arrays one after the other. The consumer must call its release once.
inline result<void> export_arrow_stream(const arrow_schema &schema, const std::vector<const arrow_array *> &arrays,
                                        const stream &stream, ArrowDeviceArrayStream *result)
{
    std::vector<cudamem_arrow_array> handles;
    for (const arrow_array *array : arrays) {
        handles.push_back(array->get());
    }
    return check(cudamem_arrow_stream_export(schema.get(), handles.data(), handles.size(), stream.get(), result));
}

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_INTERCHANGE_HPP
