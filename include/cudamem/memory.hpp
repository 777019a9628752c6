// Virtual memory, the program's own memory, and graphs.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_MEMORY_HPP
#define CUDAMEM_MEMORY_HPP

#include "buffer.hpp"
#include "graphs.h"
#include "memory.h"

#include <exception>
#include <vector>

CUDAMEM_NAMESPACE_BEGIN

/// Physical memory: bytes without an address.
class physical : public object<cudamem_physical, cudamem_physical_destroy> {
public:
    using object::object;

    /// `options.size` is set here.
    static result<physical> create(const context &context, std::size_t size, cudamem_physical_options options = {})
    {
        options.size = sizeof options;
        return detail::make<physical>(cudamem_physical_create, context.get(), size, &options);
    }

    /// Takes over the file.
    static result<physical> import_file(const context &context, std::int32_t file, std::size_t size)
    {
        return detail::make<physical>(cudamem_physical_import, context.get(), file, size);
    }

    /// A file descriptor, which the program must close.
    result<std::int32_t> export_file() const { return detail::get<std::int32_t>(cudamem_physical_export, get()); }

    /// In bytes.
    result<std::size_t> size() const { return detail::get<std::size_t>(cudamem_physical_get_size, get()); }
};

/// A resource of virtual memory.
class virtual_memory : public resource {
public:
    using resource::resource;

    /// `options.size` is set here.
    static result<virtual_memory> create(const context &context, cudamem_virtual_options options = {})
    {
        options.size = sizeof options;
        return detail::make<virtual_memory>(cudamem_resource_create_virtual, context.get(), &options);
    }

    result<std::size_t> granularity() const
    {
        return detail::field<std::size_t>(cudamem_resource_get_info, get(), &cudamem_resource_info::granularity);
    }

    /// Maps pieces of physical memory side by side, as one buffer.
    result<buffer> map(const std::vector<const physical *> &pieces, const stream &stream) const
    {
        std::vector<cudamem_physical> handles;
        for (const physical *piece : pieces) {
            handles.push_back(piece->get());
        }
        return detail::make<buffer>(cudamem_resource_map, get(), handles.data(), handles.size(), stream.get());
    }
};

/// A buffer that grows without a copy.
class growable_buffer : public buffer {
public:
    using buffer::buffer;

    /// Reserves addresses for `capacity` bytes. The buffer has no bytes yet.
    static result<growable_buffer> create(const virtual_memory &memory, std::size_t capacity, const stream &stream)
    {
        return detail::make<growable_buffer>(cudamem_buffer_create_growable, memory.get(), capacity, stream.get());
    }

    /// Grows to `size` bytes; new bytes are zeros. Returns whether the memory has moved to another address.
    result<bool> grow(std::size_t size) const { return detail::get<bool>(cudamem_buffer_grow, get(), size); }
    result<void> shrink(std::size_t size) const { return check(cudamem_buffer_shrink(get(), size)); }

    /// How far it grows without moving, in bytes.
    result<std::size_t> capacity() const
    {
        return detail::field<std::size_t>(cudamem_buffer_get_info, get(), &cudamem_buffer_info::capacity);
    }
};

/// Registers the program's memory. It must stay until the buffer's end, and only the buffer may use it.
inline result<buffer> register_memory(void *pointer, std::size_t size, const stream &stream, std::uint32_t flags = 0)
{
    return detail::make<buffer>(cudamem_buffer_register, pointer, size, stream.get(), flags, cudamem_release_callback(nullptr),
                                static_cast<void *>(nullptr));
}

/// A graph that is ready for launches.
class executable : public object<cudamem_executable, cudamem_executable_destroy> {
public:
    using object::object;

    /// Everything that the recorded work uses must live until it is done.
    result<void> launch(const stream &stream) const { return check(cudamem_executable_launch(get(), stream.get())); }
};

/// Memory that graphs allocate at each launch.
class graph_memory : public resource {
public:
    using resource::resource;

    /// The bytes that the device's graphs use, and the bytes reserved for them.
    result<std::pair<std::uint64_t, std::uint64_t>> usage() const
    {
        cudamem_pool_statistics figures{};
        figures.size = sizeof figures;
        const cudamem_status status = cudamem_pool_get_statistics(get(), &figures);
        const std::pair<std::uint64_t, std::uint64_t> usage(figures.active.current, figures.reserved.current);
        return detail::give<std::pair<std::uint64_t, std::uint64_t>>(status, usage);
    }
};

/// Recorded work.
class graph : public object<cudamem_graph, cudamem_graph_destroy> {
public:
    using object::object;

    /// Records the work that `record()` queues on the stream. `record` returns a cudamem_status or nothing. An
    /// exception discards the recording, and propagates to the caller.
    template <typename Record>
    static result<graph> capture(const stream &stream, Record &&record, std::int32_t mode = CUDAMEM_CAPTURE_GLOBAL)
    {
        recording<Record> under_way{record};
        cudamem_graph made{};
        const cudamem_status status = cudamem_graph_capture(stream.get(), mode, under_way.run, &under_way, &made);
#if !defined(CUDAMEM_NO_EXCEPTIONS)
        if (under_way.failure) {
            std::rethrow_exception(under_way.failure);
        }
#endif
        return detail::give<graph>(status, made);
    }

    /// The CUgraph.
    result<void *> raw() const { return detail::get<void *>(cudamem_get_raw, get().id); }

    result<std::size_t> node_count() const { return detail::get<std::size_t>(cudamem_graph_get_node_count, get()); }

    /// `flags` is 0 or CUDAMEM_GRAPH_AUTO_FREE.
    result<executable> instantiate(std::uint32_t flags = 0) const
    {
        return detail::make<executable>(cudamem_graph_instantiate, get(), flags);
    }

    /// Memory that a graph allocates at each launch.
    static result<graph_memory> memory(const context &context)
    {
        return detail::make<graph_memory>(cudamem_resource_create_graph, context.get());
    }

private:
    template <typename Record> struct recording {
        Record &record;
#if !defined(CUDAMEM_NO_EXCEPTIONS)
        std::exception_ptr failure = nullptr;
#endif

        static cudamem_status run(cudamem_stream, void *user)
        {
            recording &self = *static_cast<recording *>(user);
#if !defined(CUDAMEM_NO_EXCEPTIONS)
            try {
                return self.give();
            } catch (...) {
                self.failure = std::current_exception();
                return CUDAMEM_ERROR_INVALID_ARGUMENT;
            }
#else
            return self.give();
#endif
        }

        cudamem_status give()
        {
            if constexpr (std::is_void_v<decltype(record())>) {
                record();
                return CUDAMEM_SUCCESS;
            } else {
                return record();
            }
        }
    };
};

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_MEMORY_HPP
