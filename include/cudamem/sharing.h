/*
 * libcudamem: memory, pools and events shared between processes.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * scripts/header generates this file from the library's sources.
 *
 * cudamem.h has the rules for all functions.
 */
#ifndef CUDAMEM_SHARING_H
#define CUDAMEM_SHARING_H

#include "../cudamem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Sharing between processes --------------------------------------------------------------------------------------
 *
 * One process exports memory, a pool or an event, and another imports it. An export passes between them: bytes that
 * describe the object and, for some kinds, file descriptors. A channel carries both (cudamem_channel_send). For
 * another transport, cudamem_export_get_info gets both, and cudamem_export_create makes an export of them again.
 *
 * to share                     export                              import
 * a driver pool                cudamem_resource_export             cudamem_resource_import
 * memory of that pool          cudamem_buffer_export               cudamem_buffer_import
 * memory of cuMemAlloc         cudamem_buffer_export               cudamem_buffer_import
 * virtual memory               cudamem_buffer_export               cudamem_buffer_import
 * mapped memory                cudamem_buffer_export               cudamem_buffer_import
 * an event                     cudamem_event_export                cudamem_event_import
 *
 * An export gives access to the whole allocation of a buffer, even if the buffer is only a part. So a block of
 * cudamem_pool_create and similar pools, which is a part of a larger allocation, cannot be exported: allocate memory
 * to share from the pool's upstream. A driver pool is shared as a whole, with blocks that are freed and allocated
 * again.
 *
 * The exporting process keeps owning a pool's memory and memory of cuMemAlloc, and must keep it until the others have
 * released it: the driver does not check this. Virtual and mapped memory live until the last process has released
 * them. A process that ends, or is killed, releases what it imported. Its exports end with it, except for virtual and
 * mapped memory.
 *
 * An import trusts nothing. An export that is truncated, of a later version, changed, forged, of another kind or of
 * another device is CUDAMEM_ERROR_DESCRIPTOR. A process recognizes its own pools by their files, with kcmp; the
 * sandbox of a process that makes shareable pools and imports others must permit kcmp. A pool's export contains a key
 * that signs the descriptors of its memory. Whoever has the key may use all memory of the pool, so do not send it to
 * others.
 *
 * The library duplicates file descriptors that the program passes; they stay the program's. File descriptors that the
 * library returns belong to their object, are closed with it, and are not inherited across exec.
 *
 * A driver does not survive a fork: every call of the child that takes a handle or needs the driver is
 * CUDAMEM_ERROR_FORKED, and destroying a handle does nothing. Start processes with fork and immediate exec, or with
 * posix_spawn.
 */

/** A driver pool. */
#define CUDAMEM_EXPORT_POOL 1
/** Memory of a driver pool. */
#define CUDAMEM_EXPORT_POOL_MEMORY 2
/** Memory of cuMemAlloc. */
#define CUDAMEM_EXPORT_DEVICE_MEMORY 3
/** Mapped memory. */
#define CUDAMEM_EXPORT_MAPPED 4
/** An event. */
#define CUDAMEM_EXPORT_EVENT 5
/** Virtual memory. */
#define CUDAMEM_EXPORT_VIRTUAL_MEMORY 6
/** What an export states about itself. */
typedef struct {
    /** sizeof(cudamem_export_info), set by the program. */
    size_t size;
    /** One of CUDAMEM_EXPORT_... . Later releases may add values. */
    uint32_t kind;
    /** The number of file descriptors that belong to the export. */
    uint32_t file_count;
    /** The size of the whole allocation in bytes; 0 if the export is not memory. */
    uint64_t allocation_size;
    /** The offset of the exported part in the allocation. */
    uint64_t offset;
    /** The size of the exported part. */
    uint64_t length;
    /** The process ID of the process that first exported the object. */
    uint32_t process;
    /** The host's NUMA node on which a pool or virtual memory lies; -1 for memory on a device. */
    int32_t numa_node;
    /** The UUID of the device. */
    uint8_t device[16];
    /** The pool's name, the same in all processes; zeros if the export is not of a pool. */
    uint8_t pool[16];
    /** The export's bytes, to send over the program's own transport. */
    const void *bytes;
    /** The number of bytes. */
    size_t byte_count;
    /**
     * The file descriptors that go with the bytes, file_count of them. Pass them to another process with SCM_RIGHTS,
     * or let a child inherit duplicates (dup2).
     */
    const int32_t *files;
} cudamem_export_info;

/**
 * Exports a buffer's memory, or the part of it that the buffer is. The memory must come from a pool made with
 * CUDAMEM_DRIVER_POOL_SHAREABLE or from cudamem_resource_create_device, or must be imported memory, which is passed
 * on. Waits for the work on the buffer so far.
 *
 * For virtual and mapped memory, resource is its resource; virtual memory must be made by
 * cudamem_resource_create_virtual with CUDAMEM_PHYSICAL_SHAREABLE. Each process then keeps the memory independently, and
 * a process that gets the export may use the whole chunks of physical memory, or the whole mapped memory, even beside a
 * part. For other memory, resource is the null handle.
 *
 * Errors: CUDAMEM_ERROR_MISSING_SYMBOL if the vkgdr library cannot share mapped memory. CUDAMEM_ERROR_UNSUPPORTED or CUDAMEM_ERROR_INVALID_ARGUMENT if the resource cannot share memory, like a pool
 * that divides the allocations of another resource, if the memory is of another resource, or if it lies in more than
 * 64 chunks.
 */
cudamem_status cudamem_buffer_export(cudamem_buffer buffer,
                                     cudamem_resource resource,
                                     cudamem_export *exported);

/**
 * Exports a driver pool that was made with CUDAMEM_DRIVER_POOL_SHAREABLE, or imported. Send the export once to each
 * process, and then the pool's memory by cudamem_buffer_export. A process that gets the export may use all memory of
 * the pool.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the resource is something else.
 */
cudamem_status cudamem_resource_export(cudamem_resource resource, cudamem_export *exported);

/**
 * Exports an event that was made with CUDAMEM_EVENT_SHAREABLE: one process records it, and others wait for it. The
 * event must live until the others have imported it. Each importer then keeps it independently.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if the event was made without that flag, or was imported.
 */
cudamem_status cudamem_event_export(cudamem_event event, cudamem_export *exported);

/**
 * Imports a pool. The program imports the pool's memory with cudamem_buffer_import, and cannot allocate from the pool.
 * If this process made or imported the pool before, it gets the same pool again. The import does not carry other
 * devices' access: call cudamem_resource_set_access.
 *
 * Errors: CUDAMEM_ERROR_DESCRIPTOR as above. CUDAMEM_ERROR_DRIVER if the file is something else.
 */
cudamem_status cudamem_resource_import(cudamem_context context, cudamem_export exported, cudamem_resource *resource);

/**
 * Imports memory as a buffer with the home stream stream. resource is the memory's pool, imported or this process's
 * own; for memory of cuMemAlloc, a resource of cudamem_resource_create_device, for the device that uses the memory, which
 * may be another than the one that holds it; for virtual memory, a resource of cudamem_resource_create_virtual for the
 * same location. In the exporting process, the import is the exported memory itself. Memory imported twice is one memory:
 * it is released when its last buffer is destroyed and the work of all is done. The other process may write it at any
 * time: order the work with events, or wait and send a message.
 *
 * Errors: CUDAMEM_ERROR_DESCRIPTOR as above, and if the memory belongs to another pool. CUDAMEM_ERROR_NO_ACCESS if the
 * device cannot access the memory of the device that holds it. CUDAMEM_ERROR_DRIVER if it no longer exists.
 */
cudamem_status cudamem_buffer_import(cudamem_resource resource,
                                     cudamem_export exported,
                                     cudamem_stream stream,
                                     cudamem_buffer *buffer);

/**
 * Imports an event of another process.
 *
 * Errors: CUDAMEM_ERROR_DESCRIPTOR as above, and if this process made the event. CUDAMEM_ERROR_DRIVER if the event no
 * longer exists.
 */
cudamem_status cudamem_event_import(cudamem_context context, cudamem_export exported, cudamem_event *event);

/**
 * Gets what an export states about itself; only an import verifies it. Bytes and files are valid until the export is
 * destroyed. Set info->size first.
 */
cudamem_status cudamem_export_get_info(cudamem_export exported, cudamem_export_info *info);

/**
 * Makes an export from what came over the program's own transport: its bytes, and count file descriptors, which the
 * library duplicates.
 *
 * Errors: CUDAMEM_ERROR_DESCRIPTOR if the bytes are not an export. CUDAMEM_ERROR_CHANNEL if the files are not those of
 * the export. CUDAMEM_ERROR_SYSTEM if a file descriptor is not open.
 */
cudamem_status cudamem_export_create(const void *bytes,
                                     size_t size,
                                     const int32_t *files,
                                     size_t count,
                                     cudamem_export *exported);

/** Destroys an export and closes its file descriptors. The exported object lives on. The null handle is allowed. */
cudamem_status cudamem_export_destroy(cudamem_export exported);

/* ---- Channels -------------------------------------------------------------------------------------------------------
 *
 * A channel is a Unix stream socket that carries exports with their file descriptors, and short messages of the
 * program's own, in order. If the other process dies, everything that it sent still arrives, and then calls fail with
 * CUDAMEM_ERROR_CLOSED.
 *
 * One thread may send while another receives. Concurrent sends run one after the other, and so do concurrent receives;
 * a call's time limit starts when it begins to send or receive.
 */

/** The largest size of a message in bytes. */
#define CUDAMEM_MESSAGE_SIZE 65536

/**
 * Makes a connected pair of channels: for two threads, or for a child process, which inherits the socket of one
 * (cudamem_channel_get_socket).
 */
cudamem_status cudamem_channel_create_pair(cudamem_channel *one, cudamem_channel *other);

/**
 * Makes a channel from the program's connected Unix stream socket. The library duplicates the socket, so the program
 * may close its own. The socket becomes blocking.
 *
 * Errors: CUDAMEM_ERROR_SYSTEM if the file descriptor is closed, is not a socket, or is not connected.
 * CUDAMEM_ERROR_INVALID_ARGUMENT if it is another kind of socket.
 */
cudamem_status cudamem_channel_open_socket(int32_t socket, cudamem_channel *channel);

/**
 * Connects to the listener at a path.
 *
 * Errors: CUDAMEM_ERROR_SYSTEM if nothing listens there, or if the file's permissions forbid the connection.
 */
cudamem_status cudamem_channel_connect(const char *path, cudamem_channel *channel);

/**
 * Sets the time limit in seconds for each later send or receive as a whole. INFINITY (from math.h), the initial value,
 * means no limit.
 */
cudamem_status cudamem_channel_set_timeout(cudamem_channel channel, double seconds);

/**
 * Gets the socket, valid until the channel is destroyed: to wait for a message together with other files (poll), or
 * for a child to inherit (dup2). Do not read or write it. A message for which cudamem_channel_receive_bytes had no
 * room is no longer in the socket.
 */
cudamem_status cudamem_channel_get_socket(cudamem_channel channel, int32_t *socket);

/**
 * Sends an export, which stays the program's. cudamem_channel_receive receives it.
 *
 * Errors: CUDAMEM_ERROR_CLOSED if the other process is gone. CUDAMEM_ERROR_TIMED_OUT if it does not receive in time.
 * CUDAMEM_ERROR_CHANNEL if an earlier call failed in the middle of a message.
 */
cudamem_status cudamem_channel_send(cudamem_channel channel, cudamem_export exported);

/**
 * Receives an export. cudamem_export_get_info returns its kind, which decides the function that imports it.
 *
 * Errors: as cudamem_channel_send. CUDAMEM_ERROR_DESCRIPTOR if the message is not an export. CUDAMEM_ERROR_CHANNEL if
 * it comes with the wrong files, or is longer than messages may be.
 */
cudamem_status cudamem_channel_receive(cudamem_channel channel, cudamem_export *exported);

/**
 * Sends a message of size bytes, at most CUDAMEM_MESSAGE_SIZE. cudamem_channel_receive_bytes receives it.
 *
 * Errors: as cudamem_channel_send. CUDAMEM_ERROR_CHANNEL if the message is longer.
 */
cudamem_status cudamem_channel_send_bytes(cudamem_channel channel, const void *source, size_t size);

/**
 * Receives a message into a buffer of capacity bytes, and stores its size. If the message is longer, the call fails
 * with its length in the error text, and the next call gets the message. CUDAMEM_MESSAGE_SIZE bytes hold every
 * message.
 *
 * Errors: as cudamem_channel_receive. CUDAMEM_ERROR_OUT_OF_RANGE if the message is longer than capacity.
 */
cudamem_status cudamem_channel_receive_bytes(cudamem_channel channel, void *destination, size_t capacity, size_t *size);

/**
 * Shuts the connection down, for both ends and for all duplicates of their sockets. Waiting and later calls receive
 * what was sent before, and then fail with CUDAMEM_ERROR_CLOSED. Destroying a channel does not do this, because other
 * processes may have the socket too.
 */
cudamem_status cudamem_channel_shut_down(cudamem_channel channel);

/**
 * Destroys a channel and closes its socket. Calls of other threads that wait on the channel go on waiting. The null
 * handle is allowed.
 */
cudamem_status cudamem_channel_destroy(cudamem_channel channel);

/**
 * Listens for connections at a path where no file exists yet. The permissions of the file and of its folder decide who
 * may connect. The process that made the listener removes the file when it destroys the listener, if the file is still
 * the same.
 *
 * Errors: CUDAMEM_ERROR_SYSTEM if a file exists already, or if the folder's permissions forbid it.
 */
cudamem_status cudamem_listener_create(const char *path, cudamem_listener *listener);

/**
 * Waits for a connection, for at most seconds; INFINITY means no limit. Concurrent calls wait one after the other,
 * each for its own time.
 *
 * Errors: CUDAMEM_ERROR_TIMED_OUT if nothing connects in time.
 */
cudamem_status cudamem_listener_accept(cudamem_listener listener, double seconds, cudamem_channel *channel);

/** Destroys a listener and removes its file. Channels that it accepted stay open. The null handle is allowed. */
cudamem_status cudamem_listener_destroy(cudamem_listener listener);

#ifdef __cplusplus
}
#endif

#endif /* CUDAMEM_SHARING_H */
