// Errors of the C++ header, as exceptions or as values.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A function that can fail returns `result<Value>`. With exceptions that is the value itself, and failures throw
// `cudamem::error`. If CUDAMEM_NO_EXCEPTIONS is defined before the first header, or the compiler has no exceptions
// (-fno-exceptions), it is `cudamem::expected<Value, cudamem::error>`, and nothing is thrown. Files of one program may
// differ in this.
#ifndef CUDAMEM_ERROR_HPP
#define CUDAMEM_ERROR_HPP

#if __cplusplus < 201703L
#error "the C++ headers of cudamem need C++17 or later: compile with -std=c++17, or in CMake link the target cudamem::cpp"
#endif

#include "../cudamem.h"

#include <cstdint>
#include <iosfwd>
#include <stdexcept>
#include <string>
#include <utility>
#if __has_include(<version>)
#include <version>
#endif
#if defined(__cpp_lib_format)
#include <format>
#endif

#if !defined(CUDAMEM_NO_EXCEPTIONS) && !defined(__cpp_exceptions)
#define CUDAMEM_NO_EXCEPTIONS
#endif

// Functions with one name but different result types need different names for the linker: in files with different
// result types, and with different releases of this header.
#if !defined(CUDAMEM_NO_EXCEPTIONS)
#define CUDAMEM_RESULTS throwing
#elif defined(__cpp_lib_expected)
#define CUDAMEM_RESULTS standard_expected
#include <expected>
#else
#define CUDAMEM_RESULTS own_expected
#include "expected.hpp"
#endif
#define CUDAMEM_JOIN(major, minor, results) v##major##_##minor##_##results
#define CUDAMEM_ABI(major, minor, results) CUDAMEM_JOIN(major, minor, results)
#define CUDAMEM_NAMESPACE_BEGIN                                                                                            \
    namespace cudamem {                                                                                                    \
    inline namespace CUDAMEM_ABI(CUDAMEM_VERSION_MAJOR, CUDAMEM_VERSION_MINOR, CUDAMEM_RESULTS) {
#define CUDAMEM_NAMESPACE_END                                                                                              \
    }                                                                                                                      \
    }

CUDAMEM_NAMESPACE_BEGIN

/// A failed call of the library. `what` names the function, the argument, its value, and what to do.
class error : public std::runtime_error {
public:
    error(cudamem_status status, std::int32_t driver_code, const char *message)
        : std::runtime_error(message != nullptr ? message : cudamem_status_name(status)), status_(status),
          driver_code_(driver_code)
    {
    }

    /// One of CUDAMEM_ERROR_... .
    cudamem_status status() const noexcept { return status_; }

    /// The CUDA driver's code (CUresult), or 0 if it was not a driver error.
    std::int32_t driver_code() const noexcept { return driver_code_; }

    bool is_out_of_memory() const noexcept { return status_ == CUDAMEM_ERROR_OUT_OF_MEMORY; }

    /// The call needs memory of a pool that sleeps.
    bool is_asleep() const noexcept { return status_ == CUDAMEM_ERROR_ASLEEP; }

private:
    cudamem_status status_;
    std::int32_t driver_code_;
};

/// The name of the status, the driver's code if there is one, and the message.
inline std::string to_string(const error &error)
{
    std::string text = cudamem_status_name(error.status());
    if (error.driver_code() != 0) {
        text += " (CUresult " + std::to_string(error.driver_code()) + ")";
    }
    return text + ": " + error.what();
}

template <typename Traits>
std::basic_ostream<char, Traits> &operator<<(std::basic_ostream<char, Traits> &stream, const error &error)
{
    return stream << to_string(error).c_str();
}

#if !defined(CUDAMEM_NO_EXCEPTIONS)
template <typename Value> using result = Value;
#else
#if defined(__cpp_lib_expected)
using std::expected;
using std::unexpected;
#endif
template <typename Value> using result = expected<Value, error>;
#endif

/// Fails with an error that the program made.
template <typename Value> result<Value> fail(error error)
{
#if !defined(CUDAMEM_NO_EXCEPTIONS)
    throw error;
#else
    return unexpected<cudamem::error>(std::move(error));
#endif
}

/// The calling thread's last failure, which had this status.
inline error last_error(cudamem_status status)
{
    return error(status, cudamem_last_driver_code(), cudamem_last_error_message());
}

/// Fails with the calling thread's last failure, unless the status is success.
inline result<void> check(cudamem_status status)
{
    if (status != CUDAMEM_SUCCESS) {
        return fail<void>(last_error(status));
    }
    return result<void>();
}

namespace detail {

/// The result of a C function, unless it failed.
template <typename Value, typename Made> result<Value> give(cudamem_status status, const Made &made)
{
    if (status != CUDAMEM_SUCCESS) {
        return fail<Value>(last_error(status));
    }
    return Value(made);
}

/// Calls a C function whose last argument receives its result.
template <typename Value, typename... Parameters, typename... Arguments>
result<Value> get(cudamem_status (*function)(Parameters...), Arguments... arguments)
{
    Value value{};
    const cudamem_status status = function(arguments..., &value);
    return give<Value>(status, value);
}

/// Calls a C function that fills a struct of results, which begins with its size.
template <typename Handle, typename Results>
result<Results> fill(cudamem_status (*function)(Handle, Results *), Handle handle)
{
    Results results{};
    results.size = sizeof results;
    const cudamem_status status = function(handle, &results);
    return give<Results>(status, results);
}

/// Calls a C function that fills a struct of results, and returns one of its fields.
template <typename Value, typename Handle, typename Results, typename Field>
result<Value> field(cudamem_status (*function)(Handle, Results *), Handle handle, Field Results::*member)
{
    Results results{};
    results.size = sizeof results;
    const cudamem_status status = function(handle, &results);
    return give<Value>(status, static_cast<Value>(results.*member));
}

/// Calls a C function whose last argument receives a handle, and makes an object of the handle.
template <typename Object, typename... Parameters, typename... Arguments>
result<Object> make(cudamem_status (*function)(Parameters...), Arguments... arguments)
{
    typename Object::handle_type handle{};
    const cudamem_status status = function(arguments..., &handle);
    return give<Object>(status, handle);
}

} // namespace detail

CUDAMEM_NAMESPACE_END

#if defined(__cpp_lib_format)
/// Formats an error as `cudamem::to_string`, with the format specification of a string.
template <> struct std::formatter<cudamem::error> : std::formatter<std::string> {
    template <typename Context> auto format(const cudamem::error &error, Context &context) const
    {
        return std::formatter<std::string>::format(to_string(error), context);
    }
};
#endif

#endif // CUDAMEM_ERROR_HPP
