/* Rings of frames. */
#include "test.h"

enum { SIZE = 1000 };

static void check_arrived(cudamem_buffer arrived, unsigned char value)
{
    unsigned char bytes[SIZE];
    OK(cudamem_buffer_read(arrived, 0, bytes, SIZE));
    for (int index = 0; index < SIZE; index++) {
        CHECK(bytes[index] == value);
    }
}

/* Options of a wait without a time limit. */
static const cudamem_wait_options patient = {sizeof(cudamem_wait_options), 0, 0, 0, 0, 0};

static void frames_of(struct rig rig, cudamem_resource memory, cudamem_signals signals, cudamem_buffer arrived)
{
    cudamem_frame_ring ring;
    cudamem_frame frame, other;
    uint64_t number = 0;
    void *bytes = NULL;
    unsigned char value[SIZE];
    bool done = true;
    OK(cudamem_frame_ring_create(memory, signals, 2, SIZE, &ring));
    for (int round = 1; round <= 6; round++) {
        memset(value, round, SIZE);
        OK(cudamem_frame_ring_next(ring, &patient, &frame));
        OK(cudamem_buffer_copy_from_frame(arrived, 0, frame, 0, SIZE));
        if (round % 2 == 0) {
            OK(cudamem_frame_get_host_pointer(frame, &bytes));
            memset(bytes, round, SIZE);
        } else {
            OK(cudamem_frame_store(frame, 0, value, 600));
            OK(cudamem_frame_flush(frame, 0, 600));
            OK(cudamem_frame_store(frame, 600, value, 400));
        }
        OK(cudamem_is_done(rig.stream.id, &done));
        CHECK(!done);
        OK(cudamem_frame_publish(frame, round == 3 ? NULL : &number));
        FAILS(cudamem_frame_publish(frame, NULL), CUDAMEM_ERROR_INVALID_HANDLE);
        CHECK(round == 3 || number == (uint64_t)round);
        check_arrived(arrived, (unsigned char)round);
    }

    /* When all frames are open, `next` fails at once: a wait would never end. */
    OK(cudamem_frame_ring_next(ring, &patient, &frame));
    OK(cudamem_frame_ring_next(ring, NULL, &other));
    CHECK(frame.id != 0 && other.id != 0);
    cudamem_frame none = {1};
    FAILS(cudamem_frame_ring_next(ring, &patient, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(none.id == 1);

    /* The calls for kernels that use a frame. */
    OK(cudamem_frame_wait_on(other, rig.stream));
    INFO(cudamem_frame_info, info, cudamem_frame_get_info, other);
    CHECK(info.device_pointer != 0 && info.length == SIZE);
    OK(cudamem_record_use(other.id, rig.stream));
    OK(cudamem_frame_publish(other, NULL));
    OK(cudamem_stream_synchronize(rig.stream));

    /* A frame, then a ring, destroyed while work waits for the frame. */
    OK(cudamem_frame_wait_on(frame, rig.stream));
    OK(cudamem_frame_destroy(frame));
    FAILS(cudamem_stream_synchronize(rig.stream), CUDAMEM_ERROR_CLOSED);
    CHECK(strstr(cudamem_last_error_message(), "was abandoned") != NULL);
    OK(cudamem_stream_synchronize(rig.stream));
    cudamem_frame_ring_statistics statistics;
    memset(&statistics, 0, sizeof statistics);
    statistics.size = sizeof statistics;
    OK(cudamem_frame_ring_get_statistics(ring, &statistics));
    CHECK(statistics.taken == 8 && statistics.published == 7 && statistics.abandoned == 1 && statistics.open == 0);
    CHECK(statistics.captured == 0);

    OK(cudamem_frame_ring_next(ring, &patient, &frame));
    OK(cudamem_frame_get_info(frame, &info));
    CHECK(info.number == 9);
    OK(cudamem_buffer_copy_from_frame(arrived, 0, frame, 0, 1));
    OK(cudamem_frame_flush(frame, 0, SIZE));
    OK(cudamem_frame_ring_destroy(ring));
    FAILS(cudamem_buffer_synchronize(arrived), CUDAMEM_ERROR_CLOSED);
    FAILS(cudamem_frame_store(frame, 0, value, 1), CUDAMEM_ERROR_CLOSED);
    FAILS(cudamem_frame_publish(frame, NULL), CUDAMEM_ERROR_CLOSED);
    OK(cudamem_frame_destroy(frame));
}

void case_frames(void)
{
    struct rig rig = rig_open();
    cudamem_resource device, pinned, mapped, atoms;
    cudamem_signals signals;
    cudamem_buffer arrived;
    cudamem_frame_ring ring;
    cudamem_frame frame;
    void *bytes;
    signals = signals_open(rig);
    OK(cudamem_resource_create_device(rig.context, &device));
    OK(cudamem_resource_create_pinned(rig.context, 0, &pinned));
    OK(cudamem_buffer_allocate(device, SIZE, rig.stream, &arrived));
    frames_of(rig, pinned, signals, arrived);
    if (cudamem_resource_create_mapped(rig.context, CUDAMEM_COHERENCE_PREFERRED, &mapped) == CUDAMEM_SUCCESS) {
        frames_of(rig, mapped, signals, arrived);
        OK(cudamem_resource_destroy(mapped));
        OK(cudamem_resource_create_mapped(rig.context, CUDAMEM_COHERENCE_FORCED_NON_COHERENT, &atoms));
        frames_of(rig, atoms, signals, arrived);
        OK(cudamem_resource_destroy(atoms));
    } else {
        printf("skipped: frames of mapped memory: %s\n", cudamem_last_error_message());
    }

    FAILS(cudamem_frame_ring_create(pinned, signals, 0, 1, &ring), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_frame_ring_create(pinned, signals, 1, 0, &ring), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_frame_ring_create(device, signals, 1, 1, &ring), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_frame_ring_create(pinned, signals, 1, 1, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_frame_ring_create(pinned, signals, 1, SIZE, &ring));
    FAILS(cudamem_frame_ring_next(ring, NULL, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_frame_ring_next(ring, &patient, &frame));
    FAILS(cudamem_frame_store(frame, SIZE, "x", 1), CUDAMEM_ERROR_OUT_OF_RANGE);
    FAILS(cudamem_frame_flush(frame, 1, SIZE), CUDAMEM_ERROR_OUT_OF_RANGE);
    FAILS(cudamem_buffer_copy_from_frame(arrived, 1, frame, 0, SIZE), CUDAMEM_ERROR_OUT_OF_RANGE);
    FAILS(cudamem_buffer_copy_from_frame(arrived, 0, frame, 1, SIZE), CUDAMEM_ERROR_OUT_OF_RANGE);
    cudamem_frame_info info;
    info.size = sizeof info;
    FAILS(cudamem_frame_get_info(frame, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_frame_get_host_pointer(frame, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_frame_destroy(frame));
    FAILS(cudamem_frame_get_info(frame, &info), CUDAMEM_ERROR_INVALID_HANDLE);
    FAILS(cudamem_frame_get_host_pointer(frame, &bytes), CUDAMEM_ERROR_INVALID_HANDLE);
    OK(cudamem_frame_ring_destroy(ring));
    FAILS(cudamem_frame_ring_next(ring, &patient, &frame), CUDAMEM_ERROR_INVALID_HANDLE);
    cudamem_frame no_frame = {0};
    cudamem_frame_ring no_ring = {0};
    OK(cudamem_frame_destroy(no_frame));
    OK(cudamem_frame_ring_destroy(no_ring));

    OK(cudamem_buffer_destroy(arrived));
    OK(cudamem_resource_destroy(pinned));
    OK(cudamem_resource_destroy(device));
    OK(cudamem_signals_destroy(signals));
    rig_close(rig);
}
