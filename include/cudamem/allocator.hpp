// A typed allocator for containers of the standard library, over memory that the CPU addresses.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_ALLOCATOR_HPP
#define CUDAMEM_ALLOCATOR_HPP

#include "memory_resource.hpp"

#include <limits>
#include <memory>
#include <new>
#include <type_traits>

CUDAMEM_NAMESPACE_BEGIN

/// Allocates values of one type from a resource that the CPU addresses (pinned or managed memory, and pools of them).
/// Copies of an allocator share one memory_resource, whose rules hold here too, and keep it alive. Unlike with
/// std::pmr::polymorphic_allocator, the memory follows its container when that is moved, copied by assignment, or
/// swapped.
///
///     cudamem::allocator<int> allocator(pool, stream);
///     std::vector<int, cudamem::allocator<int>> numbers(allocator);
template <typename Value> class allocator {
public:
    using value_type = Value;
    using propagate_on_container_copy_assignment = std::true_type;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;
    using is_always_equal = std::false_type;

    static result<allocator> create(const resource &resource, const stream &stream)
    {
        using pointer = std::shared_ptr<memory_resource>;
#if !defined(CUDAMEM_NO_EXCEPTIONS)
        return allocator(memory_resource::made<pointer>(resource, stream, "cudamem::allocator"));
#else
        result<pointer> memory = memory_resource::made<pointer>(resource, stream, "cudamem::allocator");
        if (!memory) {
            return unexpected<error>(memory.error());
        }
        return allocator(std::move(*memory));
#endif
    }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    allocator(const resource &resource, const stream &stream) : memory_(std::make_shared<memory_resource>(resource, stream)) {}

    // As with memory_resource.
    allocator(const resource &&, const stream &) = delete;
    allocator(const resource &, const stream &&) = delete;
    allocator(const resource &&, const stream &&) = delete;
#endif

    static result<allocator> create(const resource &&, const stream &) = delete;
    static result<allocator> create(const resource &, const stream &&) = delete;
    static result<allocator> create(const resource &&, const stream &&) = delete;

    /// Shares a memory_resource with other containers.
    explicit allocator(std::shared_ptr<memory_resource> memory) noexcept : memory_(std::move(memory)) {}

    // No moves: the source of a move must stay equal to its target.
    allocator(const allocator &) noexcept = default;
    allocator &operator=(const allocator &) noexcept = default;

    template <typename Other> allocator(const allocator<Other> &other) noexcept : memory_(other.memory()) {}

    [[nodiscard]] Value *allocate(std::size_t count)
    {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(Value)) {
            const char *message = "cudamem::allocator: the size of that many values overflows";
            detail::throw_allocation_failure(error(CUDAMEM_ERROR_OUT_OF_MEMORY, 0, message));
        }
        return static_cast<Value *>(memory_->allocate(count * sizeof(Value), alignof(Value)));
    }

    void deallocate(Value *pointer, std::size_t count) noexcept
    {
        memory_->deallocate(pointer, count * sizeof(Value), alignof(Value));
    }

    /// The memory_resource that it allocates from.
    const std::shared_ptr<memory_resource> &memory() const noexcept { return memory_; }

    template <typename Other> bool operator==(const allocator<Other> &other) const noexcept { return memory_ == other.memory(); }
    template <typename Other> bool operator!=(const allocator<Other> &other) const noexcept { return !(*this == other); }

private:
    std::shared_ptr<memory_resource> memory_;
};

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_ALLOCATOR_HPP
