// Sharing between processes, and channels.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
//
//     channel.send(cudamem::exported::of(buffer));                          // one process
//     auto buffer = channel.receive().import_buffer(pool, stream);          // the other, which has the pool
#ifndef CUDAMEM_SHARING_HPP
#define CUDAMEM_SHARING_HPP

#include "buffer.hpp"
#include "event.hpp"
#include "sharing.h"

#include <utility>
#include <vector>

CUDAMEM_NAMESPACE_BEGIN

/// An export, which one process sends to another: bytes, and file descriptors.
class exported : public object<cudamem_export, cudamem_export_destroy> {
public:
    using object::object;

    /// The memory of a buffer, or the part of it that the buffer is.
    static result<exported> of(const buffer &buffer) { return detail::make<exported>(cudamem_buffer_export, buffer.get(), cudamem_resource{0}); }

    /// A buffer of mapped memory, or of virtual memory that was made with CUDAMEM_PHYSICAL_SHAREABLE, or a part of one.
    static result<exported> of(const buffer &buffer, const resource &source)
    {
        return detail::make<exported>(cudamem_buffer_export, buffer.get(), source.get());
    }

    /// A driver pool that was made with CUDAMEM_DRIVER_POOL_SHAREABLE. A process that gets the export may use all
    /// memory of the pool.
    static result<exported> of(const resource &pool) { return detail::make<exported>(cudamem_resource_export, pool.get()); }

    /// An event that was made with CUDAMEM_EVENT_SHAREABLE.
    static result<exported> of(const event &event) { return detail::make<exported>(cudamem_event_export, event.get()); }

    /// Makes an export from what came over the program's own transport. The library duplicates the file descriptors.
    static result<exported> create(const void *bytes, std::size_t size, const std::int32_t *files = nullptr,
                                   std::size_t count = 0)
    {
        return detail::make<exported>(cudamem_export_create, bytes, size, files, count);
    }

    /// What the export states about itself. Only an import verifies it.
    result<cudamem_export_info> info() const
    {
        cudamem_export_info info{};
        info.size = sizeof info;
        const cudamem_status status = cudamem_export_get_info(get(), &info);
        return detail::give<cudamem_export_info>(status, info);
    }

    /// The bytes, valid while this lives.
    result<span<const unsigned char>> bytes() const
    {
        cudamem_export_info info{};
        info.size = sizeof info;
        const cudamem_status status = cudamem_export_get_info(get(), &info);
        const span<const unsigned char> all(static_cast<const unsigned char *>(info.bytes), info.byte_count);
        return detail::give<span<const unsigned char>>(status, all);
    }

    /// The file descriptors that go with the bytes, open while this lives.
    result<span<const std::int32_t>> files() const
    {
        cudamem_export_info info{};
        info.size = sizeof info;
        const cudamem_status status = cudamem_export_get_info(get(), &info);
        return detail::give<span<const std::int32_t>>(status, span<const std::int32_t>(info.files, info.file_count));
    }

    /// Imports a pool.
    result<resource> import_pool(const context &context) const
    {
        return detail::make<resource>(cudamem_resource_import, context.get(), get());
    }

    /// Imports memory: of a pool that was imported before, of cuMemAlloc with resource::device, or mapped memory.
    result<buffer> import_buffer(const resource &resource, const stream &stream) const
    {
        return detail::make<buffer>(cudamem_buffer_import, resource.get(), get(), stream.get());
    }

    /// Imports an event.
    result<event> import_event(const context &context) const
    {
        return detail::make<event>(cudamem_event_import, context.get(), get());
    }
};

/// A connection to another process that carries exports with their file descriptors, and short messages.
class channel : public object<cudamem_channel, cudamem_channel_destroy> {
public:
    using object::object;

    /// A connected pair.
    static result<std::pair<channel, channel>> create_pair()
    {
        cudamem_channel one{}, other{};
        const cudamem_status status = cudamem_channel_create_pair(&one, &other);
        if (status != CUDAMEM_SUCCESS) {
            return fail<std::pair<channel, channel>>(last_error(status));
        }
        return std::pair<channel, channel>(channel(one), channel(other));
    }

    /// Uses a connected Unix stream socket, which the library duplicates.
    static result<channel> open_socket(std::int32_t socket)
    {
        return detail::make<channel>(cudamem_channel_open_socket, socket);
    }

    /// Connects to the listener at a path.
    static result<channel> connect(const char *path) { return detail::make<channel>(cudamem_channel_connect, path); }

    /// Sets the time limit for each later send or receive as a whole.
    result<void> set_timeout(time_limit limit) const { return check(cudamem_channel_set_timeout(get(), limit.count())); }

    /// The socket: for poll, and for a child to inherit.
    result<std::int32_t> socket() const { return detail::get<std::int32_t>(cudamem_channel_get_socket, get()); }

    result<void> send(const exported &exported) const { return check(cudamem_channel_send(get(), exported.get())); }

    result<exported> receive() const { return detail::make<exported>(cudamem_channel_receive, get()); }

    result<void> send_bytes(const void *source, std::size_t size) const
    {
        return check(cudamem_channel_send_bytes(get(), source, size));
    }

    /// Sends the values of an array, a std::string, a std::vector, a std::span, ... .
    template <typename Values> result<void> send_bytes(const Values &values) const
    {
        const auto bytes = detail::source_bytes(values);
        return send_bytes(bytes.data, bytes.size);
    }

    /// Receives a message.
    result<std::vector<unsigned char>> receive_bytes() const
    {
        std::vector<unsigned char> message(CUDAMEM_MESSAGE_SIZE);
        std::size_t size = 0;
        const cudamem_status status = cudamem_channel_receive_bytes(get(), message.data(), message.size(), &size);
        message.resize(size);
        return detail::give<std::vector<unsigned char>>(status, message);
    }

    /// Shuts down the connection for both ends: waiting calls fail with CUDAMEM_ERROR_CLOSED.
    result<void> shut_down() const { return check(cudamem_channel_shut_down(get())); }
};

/// Accepts connections at a path. Its destructor removes the path's file.
class listener : public object<cudamem_listener, cudamem_listener_destroy> {
public:
    using object::object;

    static result<listener> create(const char *path) { return detail::make<listener>(cudamem_listener_create, path); }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    explicit listener(const char *path) : listener(create(path)) {}
#endif

    /// Waits for a connection.
    result<channel> accept(time_limit limit = no_limit) const
    {
        return detail::make<channel>(cudamem_listener_accept, get(), limit.count());
    }
};

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_SHARING_HPP
