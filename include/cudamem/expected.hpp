// A value or an error, for standard libraries without std::expected (C++23).
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_EXPECTED_HPP
#define CUDAMEM_EXPECTED_HPP

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <variant>

namespace cudamem {
inline namespace own_expected {

/// An error that an `expected` is made from.
template <typename Error> class unexpected {
public:
    explicit unexpected(Error error) : error_(std::move(error)) {}

    const Error &error() const & noexcept { return error_; }
    Error &&error() && noexcept { return std::move(error_); }

private:
    Error error_;
};

/// A value or an error: the commonly used part of C++23's std::expected. Taking a missing value or a missing error
/// aborts the program, as std::expected does without exceptions.
template <typename Value, typename Error> class [[nodiscard]] expected {
public:
    using value_type = Value;
    using error_type = Error;

    expected(Value value) : content_(std::in_place_index<0>, std::move(value)) {}
    expected(unexpected<Error> error) : content_(std::in_place_index<1>, std::move(error).error()) {}

    bool has_value() const noexcept { return content_.index() == 0; }
    explicit operator bool() const noexcept { return has_value(); }

    Value &value() & { return content<0>(); }
    const Value &value() const & { return content<0>(); }
    Value &&value() && { return std::move(content<0>()); }

    Value &operator*() & { return value(); }
    const Value &operator*() const & { return value(); }
    Value &&operator*() && { return std::move(*this).value(); }
    Value *operator->() { return &content<0>(); }
    const Value *operator->() const { return &content<0>(); }

    const Error &error() const { return content<1>(); }

    template <typename Other> Value value_or(Other &&other) const &
    {
        return has_value() ? value() : static_cast<Value>(std::forward<Other>(other));
    }

    template <typename Other> Value value_or(Other &&other) &&
    {
        return has_value() ? std::move(*this).value() : static_cast<Value>(std::forward<Other>(other));
    }

private:
    template <std::size_t Index> auto &content()
    {
        check(Index);
        return std::get<Index>(content_);
    }

    template <std::size_t Index> const auto &content() const
    {
        check(Index);
        return std::get<Index>(content_);
    }

    void check(std::size_t wanted) const
    {
        if (content_.index() == wanted) {
            return;
        }
        if (const Error *const error = std::get_if<1>(&content_)) {
            std::fprintf(stderr, "cudamem::expected: holds no value, but an error: %s\n", error->what());
        } else {
            std::fputs("cudamem::expected: holds no error\n", stderr);
        }
        std::abort();
    }

    std::variant<Value, Error> content_;
};

/// Success or an error.
template <typename Error> class [[nodiscard]] expected<void, Error> {
public:
    using value_type = void;
    using error_type = Error;

    expected() : content_(std::monostate{}) {}
    expected(unexpected<Error> error) : content_(std::move(error)) {}

    bool has_value() const noexcept { return content_.has_value(); }
    explicit operator bool() const noexcept { return has_value(); }
    void value() const { static_cast<void>(content_.value()); }
    void operator*() const { value(); }
    const Error &error() const { return content_.error(); }

private:
    expected<std::monostate, Error> content_;
};

} // namespace own_expected
} // namespace cudamem

#endif // CUDAMEM_EXPECTED_HPP
