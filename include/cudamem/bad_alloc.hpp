// Out of memory as std::bad_alloc, and what allocators do about failures that their interfaces cannot return.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_BAD_ALLOC_HPP
#define CUDAMEM_BAD_ALLOC_HPP

#include "error.hpp"

#include <cstdio>
#include <cstdlib>
#include <new>

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

} // namespace detail

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_BAD_ALLOC_HPP
