// Flags, counters and rings between a running kernel and the CPU: the device's side of `cuda_mem::signal`.
//
// One header for CUDA C++ (nvcc, clang), C++11 and later, without dependencies. In plain C++ the same functions work
// for a CPU thread over the same memory, so programs can run and test them without a GPU.
//
//     #include <cudamem/signal.cuh>
//
//     __global__ void serve(cudamem::ring_descriptor requests, cudamem::ring_descriptor answers) {
//         cudamem::ring_consumer<uint64_t> input(requests);
//         cudamem::ring_producer<uint64_t> output(answers);
//         uint64_t item;
//         while (input.receive(item) == cudamem::outcome::done) output.send(work(item));
//     }
//
// One thread at a time uses an end of a ring; a later kernel continues where the last one ended. Whoever sees the value
// of a `set` or `add`, or a pushed item, also sees what the thread wrote before it. If other threads of the block wrote
// it, the block calls __syncthreads() before. After a function here has seen a value or item of the CPU, the thread
// sees what the CPU wrote before it. If other threads of the block need it, the block calls __syncthreads() after.
//
// Every wait takes a time limit in nanoseconds; 0 means none. Waits check the limit only now and then.
#ifndef CUDAMEM_SIGNAL_CUH
#define CUDAMEM_SIGNAL_CUH

#include <stddef.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define CUDAMEM_FUNCTION __device__ inline
#elif defined(__CUDA__) // clang without CUDA's headers
#define CUDAMEM_FUNCTION __attribute__((device)) inline
#else
#include <sched.h>
#include <time.h>
#define CUDAMEM_FUNCTION inline
#endif

namespace cudamem {

// ---- Shared with the CPU's side ----

// A ring, as `RingDescriptor` of the CPU's side describes it. Kernels take it by value.
struct ring_descriptor {
    uint64_t consumer_line; // where the consumer polls: the tail
    uint64_t producer_line; // where the producer polls: the head
    uint64_t items;
    uint32_t capacity; // a power of two
    uint32_t item_size;
};

// The begin of a line: the index that its writer publishes, and whether its writer has closed.
struct ring_line {
    uint32_t index;
    uint32_t closed;
};

// The size of each side's line in bytes.
static constexpr uint32_t ring_line_size = 128;

static_assert(sizeof(ring_descriptor) == 32 && alignof(ring_descriptor) == 8, "the layout of a ring's descriptor");
static_assert(offsetof(ring_descriptor, producer_line) == 8, "the layout of a ring's descriptor");
static_assert(offsetof(ring_descriptor, items) == 16, "the layout of a ring's descriptor");
static_assert(offsetof(ring_descriptor, capacity) == 24, "the layout of a ring's descriptor");
static_assert(offsetof(ring_descriptor, item_size) == 28, "the layout of a ring's descriptor");
static_assert(offsetof(ring_line, index) == 0 && offsetof(ring_line, closed) == 4, "the layout of a line");

// How a word is compared with a value, as streams of the driver compare.
enum class comparison : uint32_t {
    equal,
    at_least,     // or ahead by less than half of the number range: counters may wrap around
    any_bit,      // a bit of the value is set in the word
    not_all_bits, // a bit is clear in the word and in the value
};

// The result of a call.
enum class outcome : uint32_t {
    done,
    full,      // no room now
    empty,     // no item now
    closed,    // the other end has closed, and no item is left
    timed_out, // the wait reached its time limit
};

// ---- Memory ----

namespace detail {

#if defined(__CUDACC__) || defined(__CUDA__)

// Volatile accesses are single accesses that reach memory (ld.volatile: relaxed, in the scope of the system).
template <typename T> CUDAMEM_FUNCTION T load(uint64_t address) { return *reinterpret_cast<const volatile T *>(address); }

template <typename T> CUDAMEM_FUNCTION void store(uint64_t address, T value) {
    *reinterpret_cast<volatile T *>(address) = value;
}

// Makes earlier accesses visible, to the CPU too, before later ones.
CUDAMEM_FUNCTION void fence() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
    asm volatile("fence.acq_rel.sys;" ::: "memory");
#elif defined(__CUDA_ARCH__)
    asm volatile("membar.sys;" ::: "memory"); // __threadfence_system
#endif
}

// A load that makes visible what its writer wrote before. Unlike a fence it waits for nothing else.
CUDAMEM_FUNCTION uint32_t load_acquire(uint64_t address, uint32_t word) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(word) : "l"(address) : "memory");
#else
    word = load<uint32_t>(address);
    fence();
#endif
    return word;
}

CUDAMEM_FUNCTION uint64_t load_acquire(uint64_t address, uint64_t word) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(word) : "l"(address) : "memory");
#else
    word = load<uint64_t>(address);
    fence();
#endif
    return word;
}

CUDAMEM_FUNCTION uint64_t now() {
    uint64_t nanoseconds = 0;
#if defined(__CUDA_ARCH__)
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
#endif
    return nanoseconds;
}

CUDAMEM_FUNCTION void rest() {}

constexpr uint32_t looks_between_times = 16;

#else

template <typename T> CUDAMEM_FUNCTION T load(uint64_t address) {
    return __atomic_load_n(reinterpret_cast<const T *>(static_cast<uintptr_t>(address)), __ATOMIC_RELAXED);
}

template <typename T> CUDAMEM_FUNCTION void store(uint64_t address, T value) {
    __atomic_store_n(reinterpret_cast<T *>(static_cast<uintptr_t>(address)), value, __ATOMIC_RELAXED);
}

template <typename T> CUDAMEM_FUNCTION T load_acquire(uint64_t address, T) {
    return __atomic_load_n(reinterpret_cast<const T *>(static_cast<uintptr_t>(address)), __ATOMIC_ACQUIRE);
}

CUDAMEM_FUNCTION void fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// The thread that is waited for may need this processor.
constexpr uint32_t looks_between_times = 1;
CUDAMEM_FUNCTION void rest() { sched_yield(); }

CUDAMEM_FUNCTION uint64_t now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1000000000u + static_cast<uint64_t>(time.tv_nsec);
}

#endif

// The time limit of a wait. Reading the clock takes longer than polling a word, so it is read only now and then.
class deadline {
  public:
    CUDAMEM_FUNCTION explicit deadline(uint64_t patience) : patience_(patience), start_(0), turns_(0) {}

    CUDAMEM_FUNCTION bool passed() {
        if (++turns_ % 32 != 0) return false;
        rest();
        if (patience_ == 0) return false;
        if (start_ == 0) start_ = now();
        return now() - start_ > patience_;
    }

  private:
    uint64_t patience_;
    uint64_t start_;
    uint32_t turns_;
};

template <size_t Size> struct unsigned_of;
template <> struct unsigned_of<1> { typedef uint8_t type; };
template <> struct unsigned_of<2> { typedef uint16_t type; };
template <> struct unsigned_of<4> { typedef uint32_t type; };
template <> struct unsigned_of<8> { typedef uint64_t type; };

// The largest word that divides items of a size. Items follow each other without gaps, so their size determines their
// alignment.
template <typename T> struct word_of {
    typedef typename unsigned_of<sizeof(T) % 8 == 0 ? 8 : sizeof(T) % 4 == 0 ? 4 : sizeof(T) % 2 == 0 ? 2 : 1>::type type;
};

template <typename T> CUDAMEM_FUNCTION void write_item(uint64_t address, const T &item) {
    typedef typename word_of<T>::type word;
    const char *from = static_cast<const char *>(__builtin_assume_aligned(&item, alignof(T)));
    for (size_t at = 0; at < sizeof(T); at += sizeof(word)) {
        word part;
        __builtin_memcpy(&part, from + at, sizeof(word));
        store<word>(address + at, part);
    }
}

template <typename T> CUDAMEM_FUNCTION void read_item(uint64_t address, T &item) {
    typedef typename word_of<T>::type word;
    char *to = static_cast<char *>(__builtin_assume_aligned(&item, alignof(T)));
    for (size_t at = 0; at < sizeof(T); at += sizeof(word)) {
        word part = load<word>(address + at);
        __builtin_memcpy(to + at, &part, sizeof(word));
    }
}

// Reads the other end's index, and whether that end has closed, in one load of its line.
CUDAMEM_FUNCTION bool look(uint64_t line, uint32_t &index) {
    const uint64_t both = load_acquire(line, uint64_t(0));
    index = static_cast<uint32_t>(both);
    return (both >> 32) != 0;
}

template <typename T> CUDAMEM_FUNCTION uint64_t address_of(T *pointer) {
    return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(pointer));
}

} // namespace detail

// ---- Flags and counters ----

// Whether a word satisfies a comparison.
template <typename T> CUDAMEM_FUNCTION bool holds(comparison how, T word, T value) {
    const T zero = 0, all = static_cast<T>(~zero), half = static_cast<T>(all / 2);
    switch (how) {
    case comparison::equal: return word == value;
    case comparison::at_least: return static_cast<T>(word - value) <= half;
    case comparison::any_bit: return (word & value) != zero;
    default: return (word | value) != all;
    }
}

// Reads the word of a flag. T is uint32_t or uint64_t.
template <typename T> CUDAMEM_FUNCTION T get(const T *flag) {
    return detail::load_acquire(detail::address_of(flag), T(0));
}

// Waits until the comparison of a flag's word with a value holds.
template <typename T>
CUDAMEM_FUNCTION outcome wait(const T *flag, comparison how, T value, uint64_t patience = 0) {
    detail::deadline deadline(patience);
    const uint64_t address = detail::address_of(flag);
    // Reading the clock takes about as long as polling once.
    for (uint32_t look = 1; !holds<T>(how, detail::load_acquire(address, T(0)), value); ++look) {
        if (look % detail::looks_between_times == 0 && deadline.passed()) return outcome::timed_out;
    }
    return outcome::done;
}

// Writes the word of a flag, after everything that this thread wrote before.
template <typename T> CUDAMEM_FUNCTION void set(T *flag, T value) {
    detail::fence();
    detail::store<T>(detail::address_of(flag), value);
}

// Writes the word of a flag, unordered with this thread's earlier writes: for flags that announce no other data.
template <typename T> CUDAMEM_FUNCTION void post(T *flag, T value) { detail::store<T>(detail::address_of(flag), value); }

// A count that only this thread changes, in a word that the CPU waits for (`DeviceCounter`).
template <typename T> class counter {
  public:
    // Continues from the word's current count.
    CUDAMEM_FUNCTION explicit counter(T *word) : word_(word), count_(get(word)) {}

    // Adds to the count; returns the new count.
    CUDAMEM_FUNCTION T add(T more) {
        count_ += more;
        set(word_, count_);
        return count_;
    }

    CUDAMEM_FUNCTION T value() const { return count_; }

  private:
    T *word_;
    T count_;
};

// ---- Rings ----

// The end that pushes items to the CPU. T is plain data of the ring's item size.
template <typename T> class ring_producer {
  public:
    CUDAMEM_FUNCTION explicit ring_producer(const ring_descriptor &ring)
        : ring_(ring), tail_(detail::load<uint32_t>(ring.consumer_line)), head_(detail::load<uint32_t>(ring.producer_line)),
          closed_(false) {
        detail::fence();
    }

    // Pushes as many items as there is room for, and publishes them at once. Returns how many.
    CUDAMEM_FUNCTION uint32_t push(const T *items, uint32_t count) {
        if (room() < count) closed_ = detail::look(ring_.producer_line, head_);
        const uint32_t some = count < room() ? count : room();
        for (uint32_t n = 0; n < some; ++n) detail::write_item(slot(tail_ + n), items[n]);
        if (some != 0) publish(tail_ + some);
        return some;
    }

    // Pushes an item if there is room: done, full or closed.
    CUDAMEM_FUNCTION outcome try_send(const T &item) {
        if (push(&item, 1) == 1) return outcome::done;
        return closed_ ? outcome::closed : outcome::full;
    }

    // Pushes an item, and waits for room: done, closed or timed_out.
    CUDAMEM_FUNCTION outcome send(const T &item, uint64_t patience = 0) {
        detail::deadline deadline(patience);
        for (;;) {
            const outcome now = try_send(item);
            if (now != outcome::full) return now;
            if (deadline.passed()) return outcome::timed_out;
        }
    }

    // Whether the consumer has closed, so that nothing is popped any more.
    CUDAMEM_FUNCTION bool is_closed() const {
        return detail::load<uint32_t>(ring_.producer_line + offsetof(ring_line, closed)) != 0;
    }

    // Announces that no more items come. The consumer still gets the pushed items.
    CUDAMEM_FUNCTION void close() {
        detail::fence();
        detail::store<uint32_t>(ring_.consumer_line + offsetof(ring_line, closed), 1);
    }

  private:
    CUDAMEM_FUNCTION uint32_t room() const { return ring_.capacity - (tail_ - head_); }

    CUDAMEM_FUNCTION uint64_t slot(uint32_t index) const {
        return ring_.items + static_cast<uint64_t>(index & (ring_.capacity - 1)) * sizeof(T);
    }

    CUDAMEM_FUNCTION void publish(uint32_t tail) {
        tail_ = tail;
        detail::fence();
        detail::store<uint32_t>(ring_.consumer_line, tail);
    }

    ring_descriptor ring_;
    uint32_t tail_;
    uint32_t head_; // as last seen
    bool closed_;
};

// The end that pops items from the CPU. T is plain data of the ring's item size.
template <typename T> class ring_consumer {
  public:
    CUDAMEM_FUNCTION explicit ring_consumer(const ring_descriptor &ring)
        : ring_(ring), head_(detail::load<uint32_t>(ring.producer_line)), tail_(detail::load<uint32_t>(ring.consumer_line)),
          closed_(false) {
        detail::fence();
    }

    // Pops the available items, at most `most`, and frees their slots at once. Returns how many.
    CUDAMEM_FUNCTION uint32_t pop(T *items, uint32_t most) {
        if (tail_ - head_ < most) closed_ = detail::look(ring_.consumer_line, tail_);
        const uint32_t filled = tail_ - head_, some = most < filled ? most : filled;
        for (uint32_t n = 0; n < some; ++n) detail::read_item(slot(head_ + n), items[n]);
        if (some != 0) publish(head_ + some);
        return some;
    }

    // Pops an item if there is one: done, empty or closed.
    CUDAMEM_FUNCTION outcome try_receive(T &item) {
        if (pop(&item, 1) == 1) return outcome::done;
        if (!closed_) return outcome::empty;
        // The producer closes after its last push, so every remaining item is visible now.
        detail::fence();
        return pop(&item, 1) == 1 ? outcome::done : outcome::closed;
    }

    // Pops an item, and waits for one: done, closed or timed_out.
    CUDAMEM_FUNCTION outcome receive(T &item, uint64_t patience = 0) {
        detail::deadline deadline(patience);
        for (;;) {
            const outcome now = try_receive(item);
            if (now != outcome::empty) return now;
            if (deadline.passed()) return outcome::timed_out;
        }
    }

    // Whether the producer has closed. Items that it pushed before may still be there.
    CUDAMEM_FUNCTION bool is_closed() const {
        return detail::load<uint32_t>(ring_.consumer_line + offsetof(ring_line, closed)) != 0;
    }

    // Announces that no more items are popped, so that the producer need not wait for room.
    CUDAMEM_FUNCTION void close() {
        detail::fence();
        detail::store<uint32_t>(ring_.producer_line + offsetof(ring_line, closed), 1);
    }

  private:
    CUDAMEM_FUNCTION uint64_t slot(uint32_t index) const {
        return ring_.items + static_cast<uint64_t>(index & (ring_.capacity - 1)) * sizeof(T);
    }

    CUDAMEM_FUNCTION void publish(uint32_t head) {
        head_ = head;
        detail::fence();
        detail::store<uint32_t>(ring_.producer_line, head);
    }

    ring_descriptor ring_;
    uint32_t head_;
    uint32_t tail_; // as last seen
    bool closed_;
};

} // namespace cudamem

#undef CUDAMEM_FUNCTION

#endif
