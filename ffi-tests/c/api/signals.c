/* Flags, counters and rings. */
#define _GNU_SOURCE
#include "kernels.h"

#include <pthread.h>
#include <time.h>

/* Wait options with a time limit. Ten seconds are enough on any machine. */
static cudamem_wait_options within(double seconds)
{
    cudamem_wait_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.timeout = seconds;
    options.spins = -1;
    return options;
}

static void flags_of(cudamem_signals signals, struct rig rig, uint32_t bits, int32_t place)
{
    const uint64_t largest = bits == 32 ? UINT32_MAX : UINT64_MAX;
    cudamem_wait_options soon = within(0.002), patient = within(10);
    cudamem_flag flag;
    uint64_t value = 1;
    OK(cudamem_flag_create(signals, bits, place, &flag));
    OK(cudamem_signal_load(flag.id, &value));
    CHECK(value == 0);
    INFO(cudamem_signal_info, info, cudamem_signal_get_info, flag.id);
    CHECK(info.device_pointer != 0 && info.device_pointer % 128 == 0 && info.bits == bits);
    CHECK(info.place == CUDAMEM_PLACE_PINNED || info.place == CUDAMEM_PLACE_MAPPED);
    OK(cudamem_flag_store(flag, largest));
    OK(cudamem_signal_wait(flag.id, CUDAMEM_COMPARE_EQUAL, largest, NULL, &value));
    CHECK(value == largest);
    OK(cudamem_signal_wait(flag.id, CUDAMEM_COMPARE_AT_LEAST, largest - 5, &patient, NULL));
    OK(cudamem_signal_wait(flag.id, CUDAMEM_COMPARE_ANY_BIT, 4, NULL, NULL));
    FAILS(cudamem_signal_wait(flag.id, CUDAMEM_COMPARE_NOT_ALL_BITS, 1, &soon, &value), CUDAMEM_ERROR_TIMED_OUT);
    FAILS(cudamem_signal_wait(flag.id, CUDAMEM_COMPARE_ANY_BIT, 0, NULL, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_signal_wait(flag.id, 4, 0, NULL, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_signal_wait(flag.id, -1, 0, NULL, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    if (bits == 32) {
        FAILS(cudamem_flag_store(flag, largest + 1), CUDAMEM_ERROR_INVALID_ARGUMENT);
        OK(cudamem_signal_load(flag.id, &value));
        CHECK(value == largest);
    }

    /* A stream waits for the CPU, then reports to it. */
    cudamem_flag done;
    bool idle = true;
    OK(cudamem_flag_create(signals, bits, CUDAMEM_PLACE_FOR_CPU, &done));
    OK(cudamem_flag_store(flag, 0));
    cudamem_status status = cudamem_signal_wait_on(flag.id, rig.stream, CUDAMEM_COMPARE_AT_LEAST, 7);
    if (status == CUDAMEM_ERROR_UNSUPPORTED) {
        printf("skipped: waits of streams: %s\n", cudamem_last_error_message());
    } else {
        CHECK(status == CUDAMEM_SUCCESS);
        OK(cudamem_signal_store_on(done.id, rig.stream, 3));
        OK(cudamem_is_done(rig.stream.id, &idle));
        OK(cudamem_signal_load(done.id, &value));
        CHECK(!idle && value == 0);
        OK(cudamem_flag_store(flag, 7));
        OK(cudamem_signal_wait(done.id, CUDAMEM_COMPARE_EQUAL, 3, &patient, NULL));
    }
    OK(cudamem_record_use(done.id, rig.stream));
    OK(cudamem_flag_destroy(done));
    OK(cudamem_flag_destroy(flag));
    FAILS(cudamem_signal_load(flag.id, &value), CUDAMEM_ERROR_INVALID_HANDLE);
}

void case_flags(void)
{
    struct rig rig = rig_open();
    cudamem_signals signals, pinned;
    cudamem_flag flag;
    cudamem_text missing;
    signals = signals_open(rig);
    OK(cudamem_signals_get_missing(signals, &missing));
    OK(cudamem_text_destroy(missing));
    for (uint32_t bits = 32; bits <= 64; bits += 32) {
        flags_of(signals, rig, bits, CUDAMEM_PLACE_FOR_CPU);
        flags_of(signals, rig, bits, CUDAMEM_PLACE_FOR_DEVICE);
        if (missing.id == 0) {
            flags_of(signals, rig, bits, CUDAMEM_PLACE_MAPPED);
        }
    }
    FAILS(cudamem_flag_create(signals, 16, 0, &flag), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_flag_create(signals, 32, 4, &flag), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_flag_create(signals, 32, 0, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);

    cudamem_signals_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.flags = CUDAMEM_SIGNALS_PINNED_ONLY;
    OK(cudamem_signals_create(rig.context, &options, &pinned));
    OK(cudamem_signals_get_missing(pinned, &missing));
    CHECK(missing.id != 0);
    OK(cudamem_text_destroy(missing));
    FAILS(cudamem_flag_create(pinned, 32, CUDAMEM_PLACE_MAPPED, &flag), CUDAMEM_ERROR_UNSUPPORTED);
    flags_of(pinned, rig, 32, CUDAMEM_PLACE_FOR_DEVICE);
    options.flags = 2;
    FAILS(cudamem_signals_create(rig.context, &options, &pinned), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options.flags = 0;
    cudamem_resource device, mapped;
    cudamem_signals over;
    OK(cudamem_resource_create_device(rig.context, &device));
    options.mapped = device;
    FAILS(cudamem_signals_create(rig.context, &options, &over), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_resource_create_mapped(rig.context, CUDAMEM_COHERENCE_PREFERRED, &mapped));
    cudamem_context other, none = {0};
    OK(cudamem_context_create(0, &other));
    options.mapped = mapped;
    FAILS(cudamem_signals_create(other, &options, &over), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_context_destroy(other));
    OK(cudamem_signals_create(none, &options, &over));
    OK(cudamem_signals_destroy(over));
    OK(cudamem_signals_create(rig.context, &options, &over));
    options.flags = CUDAMEM_SIGNALS_PINNED_ONLY;
    FAILS(cudamem_signals_create(rig.context, &options, &pinned), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_resource_destroy(mapped));
    flags_of(over, rig, 32, CUDAMEM_PLACE_FOR_DEVICE);
    OK(cudamem_resource_destroy(device));
    OK(cudamem_signals_destroy(over));
    OK(cudamem_signals_destroy(pinned));

    /* Counters: one that the CPU raises for a stream, one that the stream raises for the CPU. */
    cudamem_wait_options patient = within(10), soon = within(0.002);
    for (uint32_t bits = 32; bits <= 64; bits += 32) {
        cudamem_counter ready, finished;
        uint64_t count = 0;
        OK(cudamem_counter_create(signals, bits, CUDAMEM_COUNTED_BY_CPU, &ready));
        OK(cudamem_counter_create(signals, bits, CUDAMEM_COUNTED_BY_DEVICE, &finished));
        INFO(cudamem_signal_info, info, cudamem_signal_get_info, ready.id);
        CHECK(info.device_pointer != 0 && info.bits == bits && info.place == CUDAMEM_PLACE_FOR_DEVICE);
        FAILS(cudamem_signal_wait_on(ready.id, rig.stream, CUDAMEM_COMPARE_EQUAL, 1), CUDAMEM_ERROR_INVALID_ARGUMENT);
        for (uint64_t piece = 1; piece <= 3; piece++) {
            OK(cudamem_signal_wait_on(ready.id, rig.stream, CUDAMEM_COMPARE_AT_LEAST, piece));
            OK(cudamem_signal_store_on(finished.id, rig.stream, piece));
        }
        FAILS(cudamem_signal_wait(finished.id, CUDAMEM_COMPARE_AT_LEAST, 1, &soon, NULL), CUDAMEM_ERROR_TIMED_OUT);
        OK(cudamem_counter_add(ready, 2, &count));
        CHECK(count == 2);
        OK(cudamem_signal_wait(finished.id, CUDAMEM_COMPARE_AT_LEAST, 2, &patient, &count));
        CHECK(count == 2);
        OK(cudamem_counter_add(ready, 1, NULL));
        OK(cudamem_signal_load(ready.id, &count));
        CHECK(count == 3);
        OK(cudamem_signal_wait_on(finished.id, rig.stream, CUDAMEM_COMPARE_AT_LEAST, 3));
        OK(cudamem_stream_synchronize(rig.stream));
        FAILS(cudamem_counter_add(finished, 1, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
        FAILS(cudamem_signal_wait(ready.id, CUDAMEM_COMPARE_AT_LEAST, 1, NULL, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
        FAILS(cudamem_signal_store_on(ready.id, rig.stream, 1), CUDAMEM_ERROR_INVALID_ARGUMENT);
        OK(cudamem_record_use(ready.id, rig.stream));
        OK(cudamem_counter_destroy(ready));
        OK(cudamem_counter_destroy(finished));
        FAILS(cudamem_counter_create(signals, bits, 2, &ready), CUDAMEM_ERROR_INVALID_ARGUMENT);
    }

    /* Invalid wait options. */
    OK(cudamem_flag_create(signals, 32, 0, &flag));
    cudamem_wait_options wrong = within(-1);
    FAILS(cudamem_signal_wait(flag.id, 0, 0, &wrong, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    wrong = within(1e300);
    FAILS(cudamem_signal_wait(flag.id, 0, 0, &wrong, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    wrong = within(1);
    wrong.spins = -2;
    FAILS(cudamem_signal_wait(flag.id, 0, 0, &wrong, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    wrong = within(1);
    wrong.size--;
    FAILS(cudamem_signal_wait(flag.id, 0, 0, &wrong, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    /* A flag outlives the handle of its signals. */
    OK(cudamem_signals_destroy(signals));
    OK(cudamem_flag_store(flag, 1));
    OK(cudamem_flag_destroy(flag));
    rig_close(rig);
}

/* Destroys signals before the stream's waits for them are satisfied, as an early return does. */
static void give_up(struct rig rig, cudamem_signals signals)
{
    cudamem_flag ready;
    OK(cudamem_flag_create(signals, 32, CUDAMEM_PLACE_FOR_DEVICE, &ready));
    OK(cudamem_set_name(ready.id, "ready"));
    FAILS(cudamem_set_name(ready.id, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    cudamem_status status = cudamem_signal_wait_on(ready.id, rig.stream, CUDAMEM_COMPARE_EQUAL, 5);
    if (status == CUDAMEM_SUCCESS) {
        OK(cudamem_flag_destroy(ready));
        FAILS(cudamem_stream_synchronize(rig.stream), CUDAMEM_ERROR_CLOSED);
        CHECK(strstr(cudamem_last_error_message(), "flag \"ready\" was dropped while stream") != NULL);
        OK(cudamem_stream_synchronize(rig.stream));

        cudamem_counter pieces;
        OK(cudamem_counter_create(signals, 64, CUDAMEM_COUNTED_BY_CPU, &pieces));
        OK(cudamem_set_name(pieces.id, "pieces"));
        OK(cudamem_signal_wait_on(pieces.id, rig.stream, CUDAMEM_COMPARE_AT_LEAST, 3));
        OK(cudamem_counter_destroy(pieces));
        FAILS(cudamem_stream_synchronize(rig.stream), CUDAMEM_ERROR_CLOSED);
        CHECK(strstr(cudamem_last_error_message(), "counter \"pieces\"") != NULL);
    } else {
        CHECK(status == CUDAMEM_ERROR_UNSUPPORTED);
        printf("skipped: waits of streams: %s\n", cudamem_last_error_message());
        OK(cudamem_flag_destroy(ready));
    }
    cudamem_ring requests;
    OK(cudamem_ring_create(signals, 16, 8, NULL, &requests));
    OK(cudamem_set_name(requests.id, "requests"));
    OK(cudamem_record_use(requests.id, rig.stream));
    OK(cudamem_ring_destroy(requests));
    OK(cudamem_stream_synchronize(rig.stream));
}

static void *wait_for_ever(void *flag)
{
    cudamem_status *status = malloc(sizeof *status);
    CHECK(status != NULL);
    *status = cudamem_signal_wait(((cudamem_flag *)flag)->id, CUDAMEM_COMPARE_EQUAL, 1, NULL, NULL);
    return status;
}

/* Destroying a signal ends the waits for it with an error. */
void case_signal_ends(void)
{
    struct rig rig = rig_open();
    cudamem_signals signals;
    signals = signals_open(rig);
    give_up(rig, signals);

    cudamem_flag flag;
    OK(cudamem_flag_create(signals, 64, CUDAMEM_PLACE_FOR_CPU, &flag));
    pthread_t waiter;
    CHECK(pthread_create(&waiter, NULL, wait_for_ever, &flag) == 0);
    struct timespec moment = {0, 20000000};
    nanosleep(&moment, NULL);
    OK(cudamem_flag_destroy(flag));
    void *result = NULL;
    CHECK(pthread_join(waiter, &result) == 0);
    /* If the thread starts late, the flag is already destroyed. */
    cudamem_status status = *(cudamem_status *)result;
    CHECK(status == CUDAMEM_ERROR_CLOSED || status == CUDAMEM_ERROR_INVALID_HANDLE);
    free(result);

    /* The signals are destroyed before their flag, while a stream waits for it. */
    cudamem_stream other;
    OK(cudamem_stream_create(rig.context, NULL, &other));
    OK(cudamem_flag_create(signals, 32, CUDAMEM_PLACE_FOR_DEVICE, &flag));
    if (cudamem_signal_wait_on(flag.id, other, CUDAMEM_COMPARE_AT_LEAST, 2) == CUDAMEM_SUCCESS) {
        OK(cudamem_signals_destroy(signals));
        OK(cudamem_flag_destroy(flag));
        FAILS(cudamem_stream_synchronize(other), CUDAMEM_ERROR_CLOSED);
    } else {
        OK(cudamem_flag_destroy(flag));
        OK(cudamem_signals_destroy(signals));
    }
    OK(cudamem_stream_destroy(other));
    rig_close(rig);
}

/* The CPU's end of a ring without a kernel: capacity, time limits, refused calls. */
static void ring_alone(cudamem_signals signals)
{
    struct item {
        uint32_t parts[3];
    } items[9];
    memset(items, 0x11, sizeof items);
    cudamem_wait_options soon = within(0.002);
    cudamem_ring_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    cudamem_ring ring, from;
    size_t count = 99;
    OK(cudamem_ring_create(signals, 5, sizeof items[0], NULL, &ring));
    INFO(cudamem_ring_info, info, cudamem_ring_get_info, ring);
    const cudamem_ring_descriptor descriptor = info.descriptor;
    CHECK(descriptor.capacity == 8 && descriptor.item_size == 12 && descriptor.items == descriptor.consumer_line + 128);
    OK(cudamem_ring_push(ring, items, 3, NULL, &count));
    CHECK(count == 3);
    OK(cudamem_ring_get_available(ring, &count));
    CHECK(count == 5);
    OK(cudamem_ring_push(ring, NULL, 0, NULL, &count));
    CHECK(count == 0);
    FAILS(cudamem_ring_push(ring, NULL, 1, NULL, &count), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_ring_push(ring, items, SIZE_MAX, NULL, &count), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_ring_push(ring, items, 1, NULL, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_ring_push(ring, items, 9, &soon, &count));
    CHECK(count == 5);
    OK(cudamem_ring_push(ring, items, 1, NULL, &count));
    CHECK(count == 0);
    count = 99;
    FAILS(cudamem_ring_push(ring, items, 1, &soon, &count), CUDAMEM_ERROR_TIMED_OUT);
    FAILS(cudamem_ring_pop(ring, items, 1, NULL, &count), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_ring_pop(ring, items, 1, NULL, &count), CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(count == 99);
    CHECK(info.closed == 0);
    OK(cudamem_ring_close(ring));

    options.direction = CUDAMEM_RING_FROM_DEVICE;
    options.choose_places = 1;
    options.consumer_place = CUDAMEM_PLACE_PINNED;
    options.producer_place = CUDAMEM_PLACE_FOR_DEVICE;
    OK(cudamem_ring_create(signals, 4, 1, &options, &from));
    OK(cudamem_ring_pop(from, items, 4, NULL, &count));
    CHECK(count == 0);
    FAILS(cudamem_ring_pop(from, items, 4, &soon, &count), CUDAMEM_ERROR_TIMED_OUT);
    FAILS(cudamem_ring_push(from, items, 1, NULL, &count), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_ring_destroy(from));
    options.choose_places = 0;
    FAILS(cudamem_ring_create(signals, 4, 1, &options, &from), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options.consumer_place = options.producer_place = 0;
    options.direction = 2;
    FAILS(cudamem_ring_create(signals, 4, 1, &options, &from), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_ring_create(signals, 4, 0, NULL, &from), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_ring_create(signals, SIZE_MAX, 4, NULL, &from), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_ring_destroy(ring));
    FAILS(cudamem_ring_close(ring), CUDAMEM_ERROR_INVALID_HANDLE);
}

void case_rings(void)
{
    enum { COUNT = 5000 };
    struct rig rig = rig_open();
    cudamem_signals signals;
    signals = signals_open(rig);
    ring_alone(signals);

    struct kernels kernels = kernels_open(rig);
    cudamem_wait_options patient = within(10);
    uint64_t patience = 10000000000u, items[100], total = 0;
    size_t count = 0;

    /* A kernel answers a flag. */
    cudamem_flag question, answer;
    uint64_t asked = 0, answered = 0, rounds = 3, ordered = 1;
    OK(cudamem_flag_create(signals, 32, CUDAMEM_PLACE_FOR_DEVICE, &question));
    OK(cudamem_flag_create(signals, 32, CUDAMEM_PLACE_FOR_CPU, &answer));
    INFO(cudamem_signal_info, info, cudamem_signal_get_info, question.id);
    asked = info.device_pointer;
    OK(cudamem_signal_get_info(answer.id, &info));
    answered = info.device_pointer;
    void *echo[] = {&asked, &answered, &rounds, &patience, &ordered};
    kernels_launch(kernels, "cuda_mem_echo_flag", rig.stream, echo);
    OK(cudamem_record_use(question.id, rig.stream));
    OK(cudamem_record_use(answer.id, rig.stream));
    for (uint64_t round = 1; round <= rounds; round++) {
        OK(cudamem_flag_store(question, round));
        OK(cudamem_signal_wait(answer.id, CUDAMEM_COMPARE_EQUAL, round, &patient, NULL));
    }

    /* A kernel adds up the items of a ring. */
    cudamem_ring ring;
    cudamem_flag sum;
    cudamem_ring_descriptor descriptor;
    uint64_t place = 0;
    OK(cudamem_ring_create(signals, 64, sizeof items[0], NULL, &ring));
    OK(cudamem_flag_create(signals, 64, CUDAMEM_PLACE_FOR_CPU, &sum));
    INFO(cudamem_ring_info, ends, cudamem_ring_get_info, ring);
    descriptor = ends.descriptor;
    OK(cudamem_signal_get_info(sum.id, &info));
    place = info.device_pointer;
    void *adding[] = {&descriptor, &place, &patience};
    kernels_launch(kernels, "cuda_mem_sum_ring", rig.stream, adding);
    OK(cudamem_record_use(ring.id, rig.stream));
    OK(cudamem_record_use(sum.id, rig.stream));
    for (uint64_t next = 0; next < COUNT; next += count) {
        const uint64_t some = COUNT - next < 100 ? COUNT - next : 100;
        for (uint64_t index = 0; index < some; index++) {
            items[index] = next + index;
        }
        OK(cudamem_ring_push(ring, items, (size_t)some, &patient, &count));
        CHECK(count >= 1 && count <= some);
    }
    OK(cudamem_ring_close(ring));
    OK(cudamem_stream_synchronize(rig.stream));
    OK(cudamem_signal_load(sum.id, &total));
    CHECK(total == (uint64_t)COUNT * (COUNT - 1) / 2);
    OK(cudamem_ring_destroy(ring));
    OK(cudamem_flag_destroy(sum));

    /* A kernel counts in the items of a ring. */
    cudamem_ring_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.direction = CUDAMEM_RING_FROM_DEVICE;
    OK(cudamem_ring_create(signals, 64, sizeof items[0], &options, &ring));
    OK(cudamem_ring_get_info(ring, &ends));
    descriptor = ends.descriptor;
    uint64_t most = COUNT, next = 0;
    void *counting[] = {&descriptor, &most, &patience};
    kernels_launch(kernels, "cuda_mem_count_ring", rig.stream, counting);
    OK(cudamem_record_use(ring.id, rig.stream));
    for (;;) {
        OK(cudamem_ring_pop(ring, items, 100, &patient, &count));
        if (count == 0) {
            break;
        }
        for (size_t index = 0; index < count; index++) {
            CHECK(items[index] == next);
            next++;
        }
    }
    OK(cudamem_ring_get_info(ring, &ends));
    CHECK(next == COUNT && ends.closed == 1);
    OK(cudamem_ring_destroy(ring));
    OK(cudamem_stream_synchronize(rig.stream));
    kernels_close(kernels);
    OK(cudamem_flag_destroy(question));
    OK(cudamem_flag_destroy(answer));
    OK(cudamem_signals_destroy(signals));
    rig_close(rig);
}
