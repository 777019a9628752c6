// Flags, counters and rings between the CPU, streams and kernels: the CPU's side. signal.cuh is the device's side.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_SIGNAL_HPP
#define CUDAMEM_SIGNAL_HPP

#include "resource.hpp"
#include "signals.h"
#include "stream.hpp"
#include "values.hpp"

#include <chrono>
#include <limits>
#include <type_traits>

CUDAMEM_NAMESPACE_BEGIN

/// A wait without a time limit.
inline cudamem_wait_options forever()
{
    cudamem_wait_options options{};
    options.size = sizeof options;
    return options;
}

/// The default wait with a time limit. A limit of 0 or less gives up at once.
inline cudamem_wait_options within(std::chrono::duration<double> timeout)
{
    cudamem_wait_options options = forever();
    // 0 means no limit to the library.
    options.timeout = timeout.count() <= 0 ? std::numeric_limits<double>::min() : timeout.count();
    return options;
}

/// The memory of a context's flags, counters and rings.
class signals : public object<cudamem_signals, cudamem_signals_destroy> {
public:
    using object::object;

    static result<signals> create(const context &context, std::uint32_t flags = 0)
    {
        cudamem_signals_options options{};
        options.size = sizeof options;
        options.flags = flags;
        return detail::make<signals>(cudamem_signals_create, context.get(), &options);
    }

    /// Uses mapped memory of a resource that resource::mapped made.
    static result<signals> create(const resource &mapped)
    {
        cudamem_signals_options options{};
        options.size = sizeof options;
        options.mapped = mapped.get();
        return detail::make<signals>(cudamem_signals_create, cudamem_context{0}, &options);
    }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    explicit signals(const context &context, std::uint32_t flags = 0) : signals(create(context, flags)) {}
#endif

    /// Why everything lies in pinned memory; empty if mapped memory is in use.
    result<std::string> missing() const { return detail::get_text(cudamem_signals_get_missing, get()); }
};

namespace detail {

template <typename Word> constexpr std::uint32_t bits_of_word()
{
    static_assert(std::is_same_v<Word, std::uint32_t> || std::is_same_v<Word, std::uint64_t>, "a signal is a std::uint32_t or a std::uint64_t");
    return sizeof(Word) * 8;
}

} // namespace detail

/// A word of std::uint32_t or std::uint64_t that CPU, streams and kernels write and wait for.
template <typename Word> class flag : public object<cudamem_flag, cudamem_flag_destroy> {
public:
    using object::object;

    /// Makes a flag with the value 0. `place` is one of CUDAMEM_PLACE_... .
    static result<flag> create(const signals &signals, std::int32_t place)
    {
        return detail::make<flag>(cudamem_flag_create, signals.get(), detail::bits_of_word<Word>(), place);
    }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    /// Makes a flag with the value 0. `place` is one of CUDAMEM_PLACE_... .
    flag(const signals &signals, std::int32_t place) : flag(create(signals, place)) {}
#endif

    result<Word> load() const
    {
        std::uint64_t value = 0;
        const cudamem_status status = cudamem_signal_load(get().id, &value);
        return detail::give<Word>(status, static_cast<Word>(value));
    }

    result<void> store(Word value) const { return check(cudamem_flag_store(get(), value)); }

    /// Waits until the comparison of the word with `value` holds (CUDAMEM_COMPARE_...); returns the word then.
    result<Word> wait(std::int32_t comparison, Word value, const cudamem_wait_options &options = forever()) const
    {
        std::uint64_t seen = 0;
        const cudamem_status status = cudamem_signal_wait(get().id, comparison, value, &options, &seen);
        return detail::give<Word>(status, static_cast<Word>(seen));
    }

    /// Makes later work of a stream wait for the word.
    result<void> wait_on(const stream &stream, std::int32_t comparison, Word value) const
    {
        return check(cudamem_signal_wait_on(get().id, stream.get(), comparison, value));
    }

    /// Writes the word when the stream's work so far is done.
    result<void> store_on(const stream &stream, Word value) const
    {
        return check(cudamem_signal_store_on(get().id, stream.get(), value));
    }

    /// CUDAMEM_PLACE_PINNED or CUDAMEM_PLACE_MAPPED.
    result<std::int32_t> place() const
    {
        return detail::field<std::int32_t>(cudamem_signal_get_info, get().id, &cudamem_signal_info::place);
    }

    /// A name for error messages and for reports of long waits.
    result<void> set_name(const char *name) const { return check(cudamem_set_name(get().id, name)); }

    /// Records kernels that were launched with the flag's address.
    result<void> record_use(const stream &stream) const { return check(cudamem_record_use(get().id, stream.get())); }

    /// The address of the word, for kernels.
    result<std::uint64_t> device_pointer() const
    {
        return detail::field<std::uint64_t>(cudamem_signal_get_info, get().id, &cudamem_signal_info::device_pointer);
    }
};

/// A word that only grows. The CPU counts, or a stream or kernel does (CUDAMEM_COUNTED_BY_...).
template <typename Word> class signal_counter : public object<cudamem_counter, cudamem_counter_destroy> {
public:
    using object::object;

    static result<signal_counter> create(const signals &signals, std::int32_t by)
    {
        return detail::make<signal_counter>(cudamem_counter_create, signals.get(), detail::bits_of_word<Word>(), by);
    }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    signal_counter(const signals &signals, std::int32_t by) : signal_counter(create(signals, by)) {}
#endif

    /// Adds to the count on the CPU; returns the new count.
    result<Word> add(Word more) const
    {
        std::uint64_t count = 0;
        const cudamem_status status = cudamem_counter_add(get(), more, &count);
        return detail::give<Word>(status, static_cast<Word>(count));
    }

    result<Word> value() const
    {
        std::uint64_t count = 0;
        const cudamem_status status = cudamem_signal_load(get().id, &count);
        return detail::give<Word>(status, static_cast<Word>(count));
    }

    /// Waits on the CPU for a count of the device; returns the count then.
    result<Word> wait(Word count, const cudamem_wait_options &options = forever()) const
    {
        std::uint64_t seen = 0;
        const cudamem_status status = cudamem_signal_wait(get().id, CUDAMEM_COMPARE_AT_LEAST, count, &options, &seen);
        return detail::give<Word>(status, static_cast<Word>(seen));
    }

    result<void> wait_on(const stream &stream, Word count) const
    {
        return check(cudamem_signal_wait_on(get().id, stream.get(), CUDAMEM_COMPARE_AT_LEAST, count));
    }

    result<void> store_on(const stream &stream, Word count) const
    {
        return check(cudamem_signal_store_on(get().id, stream.get(), count));
    }

    /// As flag::set_name.
    result<void> set_name(const char *name) const { return check(cudamem_set_name(get().id, name)); }

    result<void> record_use(const stream &stream) const { return check(cudamem_record_use(get().id, stream.get())); }

    result<std::uint64_t> device_pointer() const
    {
        return detail::field<std::uint64_t>(cudamem_signal_get_info, get().id, &cudamem_signal_info::device_pointer);
    }
};

/// The common part of both directions of a ring. Item is plain data.
template <typename Item> class ring : public object<cudamem_ring, cudamem_ring_destroy> {
    static_assert(std::is_trivially_copyable_v<Item>, "items are copied as bytes");

public:
    using object::object;

    /// For a kernel, by value: cudamem::ring_descriptor there.
    result<cudamem_ring_descriptor> descriptor() const
    {
        return detail::field<cudamem_ring_descriptor>(cudamem_ring_get_info, get(), &cudamem_ring_info::descriptor);
    }

    /// As flag::set_name.
    result<void> set_name(const char *name) const { return check(cudamem_set_name(get().id, name)); }

    /// Records kernels that were launched with the ring's descriptor.
    result<void> record_use(const stream &stream) const { return check(cudamem_record_use(get().id, stream.get())); }

    /// How many items can be pushed, or popped, now.
    result<std::size_t> available() const { return detail::get<std::size_t>(cudamem_ring_get_available, get()); }

    result<std::size_t> capacity() const
    {
        cudamem_ring_info info{};
        info.size = sizeof info;
        const cudamem_status status = cudamem_ring_get_info(get(), &info);
        return detail::give<std::size_t>(status, info.descriptor.capacity);
    }

    result<bool> is_closed() const { return detail::field<bool>(cudamem_ring_get_info, get(), &cudamem_ring_info::closed); }

    /// Closes the CPU's end, as the destructor does.
    result<void> close_end() const { return check(cudamem_ring_close(get())); }

protected:
    template <typename Ring>
    static result<Ring> create(const signals &signals, std::size_t items, std::int32_t direction, cudamem_ring_options options)
    {
        options.size = sizeof options;
        options.direction = direction;
        return detail::make<Ring>(cudamem_ring_create, signals.get(), items, sizeof(Item), &options);
    }
};

/// The CPU pushes, and a kernel pops.
template <typename Item> class ring_to_device : public ring<Item> {
public:
    using ring<Item>::ring;

    /// `options.size` and `options.direction` are set here.
    static result<ring_to_device> create(const signals &signals, std::size_t items, cudamem_ring_options options = {})
    {
        return ring<Item>::template create<ring_to_device>(signals, items, CUDAMEM_RING_TO_DEVICE, options);
    }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    ring_to_device(const signals &signals, std::size_t items) : ring_to_device(create(signals, items)) {}
#endif

    /// Pushes as many items as there is room for; returns how many.
    result<std::size_t> push(const Item *items, std::size_t count) const
    {
        return detail::get<std::size_t>(cudamem_ring_push, this->get(), items, count, nullptr);
    }

    /// Pushes at least one item, and waits for room; returns how many: 0 if the other end is closed.
    result<std::size_t> send(const Item *items, std::size_t count, const cudamem_wait_options &options = forever()) const
    {
        return detail::get<std::size_t>(cudamem_ring_push, this->get(), items, count, &options);
    }
};

/// A kernel pushes, and the CPU pops.
template <typename Item> class ring_from_device : public ring<Item> {
public:
    using ring<Item>::ring;

    /// `options.size` and `options.direction` are set here.
    static result<ring_from_device> create(const signals &signals, std::size_t items, cudamem_ring_options options = {})
    {
        return ring<Item>::template create<ring_from_device>(signals, items, CUDAMEM_RING_FROM_DEVICE, options);
    }

#if !defined(CUDAMEM_NO_EXCEPTIONS)
    ring_from_device(const signals &signals, std::size_t items) : ring_from_device(create(signals, items)) {}
#endif

    /// Pops the available items; returns how many.
    result<std::size_t> pop(Item *items, std::size_t count) const
    {
        return detail::get<std::size_t>(cudamem_ring_pop, this->get(), items, count, nullptr);
    }

    /// Pops at least one item, and waits for one; returns how many: 0 if the other end is closed and the ring is empty.
    result<std::size_t> receive(Item *items, std::size_t count, const cudamem_wait_options &options = forever()) const
    {
        return detail::get<std::size_t>(cudamem_ring_pop, this->get(), items, count, &options);
    }
};

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_SIGNAL_HPP
