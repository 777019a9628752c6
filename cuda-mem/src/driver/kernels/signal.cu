// Kernels that answer the CPU through cudamem/signal.cuh, for trials, tests and measurements. Each uses one thread.
// `scripts/kernels` compiles this file to signal.ptx.

#include "cudamem/signal.cuh"

using namespace cudamem;

#define KERNEL extern "C" __attribute__((global)) void

// For 1, 2, ... `rounds`: waits until `question` is at least the number, then sets `answer` to it. If `ordered`, all
// earlier writes are visible before the answer.
KERNEL cuda_mem_echo_flag(
    const uint32_t *question, uint32_t *answer, uint64_t rounds, uint64_t patience, uint64_t ordered) {
    for (uint64_t number = 1; number <= rounds; ++number) {
        const uint32_t word = static_cast<uint32_t>(number);
        if (wait(question, comparison::at_least, word, patience) != outcome::done) return;
        if (ordered) {
            set(answer, word);
        } else {
            post(answer, word);
        }
    }
}

// Sends every item back until the input is closed, then closes the output. Items that arrive together return together.
KERNEL cuda_mem_echo_ring(ring_descriptor requests, ring_descriptor answers, uint64_t patience) {
    ring_consumer<uint64_t> input(requests);
    ring_producer<uint64_t> output(answers);
    uint64_t items[16];
    while (input.receive(items[0], patience) == outcome::done) {
        const uint32_t count = 1 + input.pop(items + 1, 15);
        uint32_t sent = 0;
        detail::deadline deadline(patience);
        while (sent < count && !deadline.passed()) {
            const uint32_t some = output.push(items + sent, count - sent);
            if (some == 0 && output.is_closed()) break;
            sent += some;
        }
        if (sent < count) break;
    }
    input.close();
    output.close();
}

// Pushes 0, 1, ... `count` - 1, then closes the ring.
KERNEL cuda_mem_count_ring(ring_descriptor ring, uint64_t count, uint64_t patience) {
    ring_producer<uint64_t> output(ring);
    uint64_t next = 0, items[16];
    detail::deadline deadline(patience);
    while (next < count && !deadline.passed()) {
        const uint32_t batch = count - next < 16 ? static_cast<uint32_t>(count - next) : 16;
        for (uint32_t n = 0; n < batch; ++n) items[n] = next + n;
        const uint32_t some = output.push(items, batch);
        if (some == 0 && output.is_closed()) break;
        if (some != 0) deadline = detail::deadline(patience);
        next += some;
    }
    output.close();
}

// Adds up all items until the ring is closed, then sets `sum`.
KERNEL cuda_mem_sum_ring(ring_descriptor ring, uint64_t *sum, uint64_t patience) {
    ring_consumer<uint64_t> input(ring);
    uint64_t total = 0, items[16];
    while (input.receive(items[0], patience) == outcome::done) {
        const uint32_t more = input.pop(items + 1, 15);
        for (uint32_t n = 0; n <= more; ++n) total += items[n];
    }
    input.close();
    set(sum, total);
}

// Does nothing: measures the cost of a launch.
KERNEL cuda_mem_nothing() {}
