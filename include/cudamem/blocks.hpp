// Memory that programs give back by its address, as allocators of C++ do.
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

/// There is no memory: std::bad_alloc with the library's message.
class bad_alloc : public std::bad_alloc {
public:
    explicit bad_alloc(error error) : error_(std::move(error)) {}

    const char *what() const noexcept override { return error_.what(); }
    const error &reason() const noexcept { return error_; }

private:
    error error_;
};

namespace detail {

/// Ends the program, where nothing else can be done.
[[noreturn]] inline void give_up(const char *message)
{
    std::fprintf(stderr, "cudamem: %s\n", message);
    std::abort();
}

/// The end of an allocation that failed: the standard's interfaces throw, and have no other way to say it.
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

/// One of 64 places for a pointer. The low bits are alike in most pointers; a multiplication by the golden ratio brings the
/// others to the highest bits.
inline std::size_t place_of(const void *pointer) noexcept
{
    const std::uint64_t mixed = (reinterpret_cast<std::uintptr_t>(pointer) >> 6) * 0x9E3779B97F4A7C15;
    return static_cast<std::size_t>(mixed >> 58);
}

/// The buffers behind addresses. Threads use it at once.
class blocks {
public:
    /// Allocates, and gives the address that all whom `access` names have. An empty block has an address of its own too.
    void *allocate(cudamem_resource resource, std::size_t size, std::size_t alignment, cudamem_stream stream,
                   std::uint32_t access)
    {
        if (size == 0) {
            size = 1;
        }
        buffer block = allocate(resource, size, stream);
        std::uintptr_t address = address_of(block, access);
        if (address % alignment != 0) {
            // Most sources align far enough without being asked. A block that is larger by one alignment has such an address.
            if (size + alignment < size) {
                throw_allocation_failure(error(CUDAMEM_ERROR_OUT_OF_MEMORY, 0, "no memory has this size and alignment"));
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

    /// Takes the buffer out, to be ended. What is no block of these ends the program: it was given back twice, or is another's.
    buffer take(void *pointer)
    {
        part &own = parts_[place_of(pointer)];
        const std::lock_guard<std::mutex> lock(own.mutex);
        const auto found = own.entries.find(pointer);
        if (found == own.entries.end()) {
            give_up("a pointer was given back that is no block of this memory resource, or no more");
        }
        buffer block = std::move(found->second.block);
        own.entries.erase(found);
        return block;
    }

    /// Makes another stream the home of all blocks that were allocated for a stream, which may end then.
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
            const char *message = "the CPU and the device have different addresses for this memory, where one is to serve both: "
                                  "take pinned or managed memory, or a pool of it";
            throw_allocation_failure(error(CUDAMEM_ERROR_INVALID_ARGUMENT, 0, message));
        }
        return on_host != 0 ? on_host : static_cast<std::uintptr_t>(device);
    }

    /// Each has a lock of its own, so that threads seldom meet.
    struct alignas(64) part {
        std::mutex mutex;
        std::unordered_map<void *, entry> entries;
    };

    std::array<part, 64> parts_;
};

/// Gives a value on, unless memory of a resource is not for whom it has to be.
template <typename Value>
result<Value> check_access(cudamem_resource resource, std::uint32_t wanted, const char *who, Value value)
{
    std::uint32_t access = 0;
    const cudamem_status status = cudamem_resource_get_access(resource, &access);
    if (status != CUDAMEM_SUCCESS) {
        return fail<Value>(last_error(status));
    }
    if ((access & wanted) != wanted) {
        const bool host = (wanted & ~access & CUDAMEM_ACCESS_HOST) != 0;
        const std::string message = std::string(who) + ": " + (host ? "the CPU" : "the device") +
                                    " does not address memory of this resource: take one of " +
                                    (host ? "pinned or managed memory, or a pool of it" : "another kind");
        return fail<Value>(error(CUDAMEM_ERROR_INVALID_ARGUMENT, 0, message.c_str()));
    }
    return result<Value>(std::move(value));
}

} // namespace detail

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_BLOCKS_HPP
