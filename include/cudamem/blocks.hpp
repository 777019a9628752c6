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

/// The buffers behind addresses. Threads use it at once.
class blocks {
public:
    /// Allocates, and gives the address as device or host has it. An empty block has an address of its own too.
    void *allocate(cudamem_resource resource, std::size_t size, std::size_t alignment, cudamem_stream stream, bool for_device)
    {
        if (size == 0) {
            size = 1;
        }
        buffer block;
        std::uintptr_t address = place(block, resource, size, stream, for_device);
        if (address % alignment != 0) {
            // Most sources align far enough without being asked. A block that is larger by one alignment has such an address.
            block = buffer();
            if (size + alignment < size) {
                throw_allocation_failure(error(CUDAMEM_ERROR_OUT_OF_MEMORY, 0, "a block of this size and alignment cannot be"));
            }
            address = place(block, resource, size + alignment, stream, for_device);
            address += (alignment - address % alignment) % alignment;
        }
        void *const pointer = reinterpret_cast<void *>(address);
        shard &own = shard_of(pointer);
        const std::lock_guard<std::mutex> lock(own.mutex);
        own.buffers.emplace(pointer, std::move(block));
        return pointer;
    }

    /// Takes the buffer out, to be ended. What is no block of these ends the program: it was given back twice, or is another's.
    buffer take(void *pointer) noexcept
    {
        shard &own = shard_of(pointer);
        const std::lock_guard<std::mutex> lock(own.mutex);
        const auto found = own.buffers.find(pointer);
        if (found == own.buffers.end()) {
            give_up("a pointer was given back that is no block of this memory resource, or no more");
        }
        buffer block = std::move(found->second);
        own.buffers.erase(found);
        return block;
    }

private:
    static std::uintptr_t place(buffer &block, cudamem_resource resource, std::size_t size, cudamem_stream stream,
                                bool for_device)
    {
        cudamem_buffer made{};
        cudamem_status status = cudamem_buffer_allocate(resource, size, stream, &made);
        if (status != CUDAMEM_SUCCESS) {
            throw_allocation_failure(last_error(status));
        }
        block = buffer(made);
        std::uint64_t device_pointer = 0;
        void *host_pointer = nullptr;
        status = for_device ? cudamem_buffer_get_device_pointer(made, &device_pointer)
                            : cudamem_buffer_get_host_pointer(made, &host_pointer);
        if (status != CUDAMEM_SUCCESS) {
            throw_allocation_failure(last_error(status));
        }
        return for_device ? static_cast<std::uintptr_t>(device_pointer) : reinterpret_cast<std::uintptr_t>(host_pointer);
    }

    /// One lock for each: threads seldom meet.
    struct alignas(64) shard {
        std::mutex mutex;
        std::unordered_map<void *, buffer> buffers;
    };

    shard &shard_of(void *pointer)
    {
        // The low bits are alike in all addresses. A multiplication by the golden ratio spreads the others over the high bits.
        const std::uint64_t mixed = (reinterpret_cast<std::uintptr_t>(pointer) >> 6) * 0x9E3779B97F4A7C15;
        return shards_[mixed >> 60];
    }

    std::array<shard, 16> shards_;
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
