// The base of all objects: owns one handle of cudamem.h.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_OBJECT_HPP
#define CUDAMEM_OBJECT_HPP

#include "error.hpp"

#include <chrono>
#include <cstddef>
#include <limits>
#include <utility>

CUDAMEM_NAMESPACE_BEGIN

/// As a size: everything from the offset on.
inline constexpr std::size_t whole_size = CUDAMEM_WHOLE_SIZE;

/// A time limit in seconds. Any std::chrono::duration converts to it.
using time_limit = std::chrono::duration<double>;

/// No limit.
inline constexpr time_limit no_limit{std::numeric_limits<double>::infinity()};

/// Owns one handle. `Drop` is for destructors, which cannot return errors; its errors go to the callback of
/// cudamem_set_drop_error_callback.
template <typename Handle, cudamem_status (*Destroy)(Handle), cudamem_status (*Drop)(Handle) = Destroy> class object {
public:
    using handle_type = Handle;

    /// Holds the null handle.
    object() noexcept : handle_{0} {}

    /// Takes over a handle of cudamem.h.
    explicit object(Handle handle) noexcept : handle_(handle) {}

    object(object &&other) noexcept : handle_(other.release()) {}

    object &operator=(object &&other) noexcept
    {
        if (this != &other) {
            static_cast<void>(Drop(handle_));
            handle_ = other.release();
        }
        return *this;
    }

    object(const object &) = delete;
    object &operator=(const object &) = delete;

    ~object() { static_cast<void>(Drop(handle_)); }

    /// The handle. It stays this object's.
    Handle get() const noexcept { return handle_; }

    /// Gives up the handle, and returns it.
    Handle release() noexcept { return std::exchange(handle_, Handle{0}); }

    /// Whether there is a handle.
    explicit operator bool() const noexcept { return handle_.id != 0; }

    /// Destroys the object now. After a failure it stays.
    result<void> close()
    {
        const cudamem_status status = Destroy(handle_);
        if (status == CUDAMEM_SUCCESS) {
            handle_ = Handle{0};
        }
        return check(status);
    }

private:
    Handle handle_;
};

/// A text of the library.
class text : public object<cudamem_text, cudamem_text_destroy> {
public:
    using object::object;

    result<std::string> str() const
    {
        const char *characters = nullptr;
        std::size_t length = 0;
        const cudamem_status status = cudamem_text_get(get(), &characters, &length);
        return detail::give<std::string>(status, std::string(characters != nullptr ? characters : "", length));
    }
};

namespace detail {

/// The characters of a new text. This cannot fail.
inline std::string characters(const text &made)
{
    const char *characters = "";
    std::size_t length = 0;
    static_cast<void>(cudamem_text_get(made.get(), &characters, &length));
    return std::string(characters, length);
}

/// Calls a C function whose last argument receives a text.
template <typename... Parameters, typename... Arguments>
result<std::string> get_text(cudamem_status (*function)(Parameters...), Arguments... arguments)
{
    cudamem_text made{};
    const cudamem_status status = function(arguments..., &made);
    return status == CUDAMEM_SUCCESS ? text(made).str() : give<std::string>(status, "");
}

} // namespace detail

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_OBJECT_HPP
