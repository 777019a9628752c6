// Memory that programs free by its address, as allocators of C++ do.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_BLOCKS_HPP
#define CUDAMEM_BLOCKS_HPP

#include "buffer.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <unordered_map>

CUDAMEM_NAMESPACE_BEGIN

/// Out of memory: std::bad_alloc with the library's message.
class bad_alloc : public std::bad_alloc {
public:
    explicit bad_alloc(error error) : error_(std::move(error)) {}

    const char *what() const noexcept override { return error_.what(); }
    const error &reason() const noexcept { return error_; }

private:
    error error_;
};

namespace detail {

/// Aborts the program with a message.
[[noreturn]] inline void give_up(const char *message)
{
    std::fprintf(stderr, "cudamem: %s\n", message);
    std::abort();
}

/// Throws for a failed allocation. Without exceptions it aborts, because the standard's interfaces cannot report the
/// failure otherwise.
[[noreturn]] inline void throw_allocation_failure(const error &error)
{
#if !defined(CUDAMEM_NO_EXCEPTIONS)
    if (error.is_out_of_memory()) {
        throw bad_alloc(error);
    }
    throw error;
#else
    give_up(error.what());
#endif
}

/// Hashes a pointer to one of 64 places. Most pointers share their low bits; a multiplication by the golden ratio moves
/// the other bits to the top.
inline std::size_t place_of(const void *pointer) noexcept
{
    const std::uint64_t mixed = (reinterpret_cast<std::uintptr_t>(pointer) >> 6) * 0x9E3779B97F4A7C15;
    return static_cast<std::size_t>(mixed >> 58);
}

/// The buffers behind addresses, for any number of threads at once.
class blocks {
public:
    /// Allocates, and returns the address that is valid for everything that `access` names. An empty block has its own
    /// address too.
    void *allocate(cudamem_resource resource, std::size_t size, std::size_t alignment, cudamem_stream stream,
                   std::uint32_t access)
    {
        if (size == 0) {
            size = 1;
        }
        buffer block = allocate(resource, size, stream);
        std::uintptr_t address = address_of(block, access);
        if (address % alignment != 0) {
            // Most sources align sufficiently by themselves. A block that is larger by one alignment contains an
            // aligned address.
            if (size + alignment < size) {
                throw_allocation_failure(error(CUDAMEM_ERROR_OUT_OF_MEMORY, 0, "the size with its alignment overflows"));
            }
            block = buffer();
            block = allocate(resource, size + alignment, stream);
            address = address_of(block, access);
            address += (alignment - address % alignment) % alignment;
        }
        void *const pointer = reinterpret_cast<void *>(address);
        part &own = parts_[place_of(pointer)];
        const std::lock_guard<std::mutex> lock(own.mutex);
        own.entries.emplace(pointer, entry{std::move(block), stream});
        return pointer;
    }

    /// Removes and returns the buffer of an address. An address that has no block aborts the program: it was freed
    /// twice, or belongs to another resource.
    buffer take(void *pointer)
    {
        part &own = parts_[place_of(pointer)];
        const std::lock_guard<std::mutex> lock(own.mutex);
        const auto found = own.entries.find(pointer);
        if (found == own.entries.end()) {
            give_up("a freed pointer is not a live block of this memory resource: freed twice, or from elsewhere");
        }
        buffer block = std::move(found->second.block);
        own.entries.erase(found);
        return block;
    }

    /// Makes another stream the home stream of all blocks that were allocated for `from`, which may then be destroyed.
    cudamem_status move_home(cudamem_stream from, cudamem_stream to)
    {
        for (part &own : parts_) {
            const std::lock_guard<std::mutex> lock(own.mutex);
            for (auto &each : own.entries) {
                if (each.second.home.id == from.id) {
                    const cudamem_status status = cudamem_buffer_set_stream(each.second.block.get(), to);
                    if (status != CUDAMEM_SUCCESS) {
                        return status;
                    }
                    each.second.home = to;
                }
            }
        }
        return CUDAMEM_SUCCESS;
    }

private:
    struct entry {
        buffer block;
        cudamem_stream home;
    };

    static buffer allocate(cudamem_resource resource, std::size_t size, cudamem_stream stream)
    {
        cudamem_buffer made{};
        const cudamem_status status = cudamem_buffer_allocate(resource, size, stream, &made);
        if (status != CUDAMEM_SUCCESS) {
            throw_allocation_failure(last_error(status));
        }
        return buffer(made);
    }

    static std::uintptr_t address_of(const buffer &block, std::uint32_t access)
    {
        cudamem_status status = CUDAMEM_SUCCESS;
        std::uint64_t device = 0;
        void *host = nullptr;
        if ((access & CUDAMEM_ACCESS_DEVICE) != 0) {
            status = cudamem_buffer_get_device_pointer(block.get(), &device);
        }
        if (status == CUDAMEM_SUCCESS && (access & CUDAMEM_ACCESS_HOST) != 0) {
            status = cudamem_buffer_get_host_pointer(block.get(), &host);
        }
        if (status != CUDAMEM_SUCCESS) {
            throw_allocation_failure(last_error(status));
        }
        const auto on_host = reinterpret_cast<std::uintptr_t>(host);
        if (device != 0 && on_host != 0 && device != on_host) {
            const char *message = "the CPU and the device have different addresses for this memory, but must share one: "
                                  "use pinned or managed memory, or a pool of it";
            throw_allocation_failure(error(CUDAMEM_ERROR_INVALID_ARGUMENT, 0, message));
        }
        return on_host != 0 ? on_host : static_cast<std::uintptr_t>(device);
    }

    /// Each part has its own lock, so that threads rarely contend.
    struct alignas(64) part {
        std::mutex mutex;
        std::unordered_map<void *, entry> entries;
    };

    std::array<part, 64> parts_;
};

/// Returns `value`, or fails if the resource's memory lacks the access in `wanted`.
template <typename Value>
result<Value> check_access(cudamem_resource resource, std::uint32_t wanted, const char *who, Value value)
{
    cudamem_resource_info info{};
    info.size = sizeof info;
    const cudamem_status status = cudamem_resource_get_info(resource, &info);
    const std::uint32_t access = info.access;
    if (status != CUDAMEM_SUCCESS) {
        return fail<Value>(last_error(status));
    }
    if ((access & wanted) != wanted) {
        const bool host = (wanted & ~access & CUDAMEM_ACCESS_HOST) != 0;
        const std::string message = std::string(who) + ": " + (host ? "the CPU" : "the device") +
                                    " does not address memory of this resource: use one of " +
                                    (host ? "pinned or managed memory, or a pool of it" : "another kind");
        return fail<Value>(error(CUDAMEM_ERROR_INVALID_ARGUMENT, 0, message.c_str()));
    }
    return result<Value>(std::move(value));
}

} // namespace detail

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_BLOCKS_HPP
