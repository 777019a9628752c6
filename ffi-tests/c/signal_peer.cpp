// The device's side of signals, run on a CPU thread with the same header, and the header's constants.

#include "cudamem/signal.cuh"

using namespace cudamem;

namespace {
struct item {
    uint32_t number;
    uint8_t bytes[9];
    uint8_t end[3];
};
static_assert(sizeof(item) == 16, "the test's item");

template <typename T> uint32_t echo(ring_descriptor requests, ring_descriptor answers, uint64_t patience) {
    ring_consumer<T> input(requests);
    ring_producer<T> output(answers);
    T item;
    outcome result;
    while ((result = input.receive(item, patience)) == outcome::done) {
        if ((result = output.send(item, patience)) != outcome::done) break;
    }
    input.close();
    output.close();
    return static_cast<uint32_t>(result);
}
} // namespace

extern "C" {
uint32_t peer_echo_u64(const ring_descriptor *requests, const ring_descriptor *answers, uint64_t patience) {
    return echo<uint64_t>(*requests, *answers, patience);
}

uint32_t peer_echo_items(const ring_descriptor *requests, const ring_descriptor *answers, uint64_t patience) {
    return echo<item>(*requests, *answers, patience);
}

uint32_t peer_echo_bytes(const ring_descriptor *requests, const ring_descriptor *answers, uint64_t patience) {
    return echo<uint8_t>(*requests, *answers, patience);
}

// Counts to `rounds`. Adds each 1 when the flag has reached that number.
uint32_t peer_count(const uint32_t *flag, uint64_t *count, uint32_t rounds, uint64_t patience) {
    counter<uint64_t> answers(count);
    for (uint32_t number = 1; number <= rounds; ++number) {
        const outcome result = wait(flag, comparison::at_least, number, patience);
        if (result != outcome::done) return static_cast<uint32_t>(result);
        answers.add(1);
    }
    return get(flag) == rounds && answers.value() == rounds ? 0 : 99;
}

uint32_t peer_holds_u32(uint32_t how, uint32_t word, uint32_t value) {
    return holds(static_cast<comparison>(how), word, value);
}

uint32_t peer_holds_u64(uint32_t how, uint64_t word, uint64_t value) {
    return holds(static_cast<comparison>(how), word, value);
}

void peer_layout(uint64_t out[8]) {
    out[0] = sizeof(ring_descriptor);
    out[1] = offsetof(ring_descriptor, consumer_line);
    out[2] = offsetof(ring_descriptor, producer_line);
    out[3] = offsetof(ring_descriptor, items);
    out[4] = offsetof(ring_descriptor, capacity);
    out[5] = offsetof(ring_descriptor, item_size);
    out[6] = ring_line_size;
    out[7] = offsetof(ring_line, index) + 256 * offsetof(ring_line, closed);
}
}
