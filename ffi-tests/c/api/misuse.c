/* Misuse that crashes other libraries must return an error here, and change nothing. */
#define _GNU_SOURCE
#include "test.h"

#include <inttypes.h>
#include <pthread.h>

static const char OTHER[] = "PRINT_A_HANDLE";

/* Runs in the other process: prints a buffer's handle. */
static void print_handle(void)
{
    struct rig rig = rig_open();
    cudamem_resource device;
    cudamem_buffer buffer;
    OK(cudamem_resource_create_device(rig.context, &device));
    OK(cudamem_buffer_allocate(device, 8, rig.stream, &buffer));
    printf("%" PRIu64 "\n", buffer.id);
    OK(cudamem_buffer_destroy(buffer));
    OK(cudamem_resource_destroy(device));
    rig_close(rig);
}

static uint64_t handle_of_another_process(void)
{
    char command[4096];
    uint64_t handle = 0;
    CHECK(snprintf(command, sizeof command, "exec '%s' handles", program_path) < (int)sizeof command);
    CHECK(setenv(OTHER, "1", 1) == 0);
    FILE *other = popen(command, "r");
    CHECK(unsetenv(OTHER) == 0);
    CHECK(other != NULL && fscanf(other, "%" SCNu64, &handle) == 1 && handle != 0);
    CHECK(pclose(other) == 0);
    return handle;
}

/* A number that was never a handle is reported as such, whatever its bits. */
static void is_unknown(uint64_t number)
{
    cudamem_buffer buffer = {number};
    cudamem_stream stream = {number};
    size_t size = 99;
    FAILS(buffer_size(buffer, &size), CUDAMEM_ERROR_INVALID_HANDLE);
    SAYS("is not a handle: this process never made it");
    FAILS(cudamem_buffer_destroy(buffer), CUDAMEM_ERROR_INVALID_HANDLE);
    SAYS("is not a handle: this process never made it");
    FAILS(cudamem_stream_synchronize(stream), CUDAMEM_ERROR_INVALID_HANDLE);
    SAYS("is not a handle: this process never made it");
    CHECK(size == 99);
}

void case_handles(void)
{
    if (getenv(OTHER) != NULL) {
        print_handle();
        return;
    }
    struct rig rig = rig_open();
    cudamem_resource device;
    cudamem_buffer buffer, twin;
    size_t size = 99;
    OK(cudamem_resource_create_device(rig.context, &device));
    OK(cudamem_buffer_allocate(device, 8, rig.stream, &buffer));

    /* The null handle: queries fail, and destroy does nothing. */
    cudamem_buffer null_buffer = {0};
    cudamem_stream null_stream = {0};
    cudamem_context null_context = {0};
    cudamem_event null_event = {0};
    cudamem_resource null_resource = {0};
    cudamem_engine null_engine = {0};
    cudamem_text null_text = {0};
    FAILS(buffer_size(null_buffer, &size), CUDAMEM_ERROR_INVALID_HANDLE);
    SAYS("buffer is the null handle, but must be a buffer");
    FAILS(cudamem_buffer_allocate(device, 8, null_stream, &twin), CUDAMEM_ERROR_INVALID_HANDLE);
    FAILS(cudamem_buffer_allocate(null_resource, 8, rig.stream, &twin), CUDAMEM_ERROR_INVALID_HANDLE);
    OK(cudamem_buffer_destroy(null_buffer));
    OK(cudamem_stream_destroy(null_stream));
    OK(cudamem_context_destroy(null_context));
    OK(cudamem_event_destroy(null_event));
    OK(cudamem_resource_destroy(null_resource));
    OK(cudamem_engine_destroy(null_engine));
    OK(cudamem_text_destroy(null_text));

    /* Handles of another kind. */
    cudamem_buffer no_buffer = {rig.stream.id};
    cudamem_stream no_stream = {buffer.id};
    FAILS(buffer_size(no_buffer, &size), CUDAMEM_ERROR_INVALID_HANDLE);
    SAYS("is a stream, but must be a buffer");
    FAILS(cudamem_buffer_destroy(no_buffer), CUDAMEM_ERROR_INVALID_HANDLE);
    FAILS(cudamem_stream_synchronize(no_stream), CUDAMEM_ERROR_INVALID_HANDLE);
    OK(cudamem_stream_synchronize(rig.stream));

    /* Made-up handles: one flipped bit, fixed and random numbers, an address, another process's handle. */
    cudamem_buffer neighbours[8];
    for (int index = 0; index < 8; index++) {
        OK(cudamem_buffer_allocate(device, 8, rig.stream, &neighbours[index]));
    }
    for (int bit = 0; bit < 64; bit++) {
        cudamem_buffer forged = {buffer.id ^ ((uint64_t)1 << bit)};
        if (bit < 32 || bit >= 56) {
            is_unknown(forged.id);
        } else { /* another case may have had this handle in the same slot */
            FAILS(buffer_size(forged, &size), CUDAMEM_ERROR_INVALID_HANDLE);
            FAILS(cudamem_buffer_destroy(forged), CUDAMEM_ERROR_INVALID_HANDLE);
        }
    }
    static const uint64_t FORGED[] = {1, 2, UINT64_MAX, 0x7fffffffffffffff, 0xdeadbeef, (uint64_t)1 << 32};
    for (size_t index = 0; index < sizeof FORGED / sizeof FORGED[0]; index++) {
        is_unknown(FORGED[index]);
    }
    uint64_t random = 0x9e3779b97f4a7c15;
    for (int round = 0; round < 1000; round++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        is_unknown(random);
    }
    is_unknown((uint64_t)(uintptr_t)&rig);
    is_unknown(handle_of_another_process());
    for (int index = 0; index < 8; index++) {
        OK(cudamem_buffer_destroy(neighbours[index]));
    }
    CHECK(size == 99);

    /* A stale handle, and a double destroy. A new buffer in the same slot gets another handle. */
    OK(buffer_size(buffer, &size));
    OK(cudamem_buffer_destroy(buffer));
    FAILS(cudamem_buffer_destroy(buffer), CUDAMEM_ERROR_INVALID_HANDLE);
    SAYS("was a buffer that has been destroyed");
    no_stream.id = buffer.id;
    FAILS(cudamem_stream_synchronize(no_stream), CUDAMEM_ERROR_INVALID_HANDLE);
    SAYS("was a buffer that has been destroyed, but must be a stream");
    for (int round = 0; round < 1000; round++) {
        OK(cudamem_buffer_allocate(device, 8, rig.stream, &twin));
        CHECK(twin.id != buffer.id);
        CHECK(buffer_size(buffer, &size) == CUDAMEM_ERROR_INVALID_HANDLE);
        CHECK(cudamem_buffer_write(buffer, 0, "abc", 3) == CUDAMEM_ERROR_INVALID_HANDLE);
        CHECK(cudamem_buffer_destroy(buffer) == CUDAMEM_ERROR_INVALID_HANDLE);
        OK(cudamem_buffer_destroy(twin));
    }
    OK(cudamem_resource_destroy(device));

    /* A stream outlives its context's handle. */
    OK(cudamem_context_destroy(rig.context));
    FAILS(cudamem_stream_create(rig.context, NULL, &null_stream), CUDAMEM_ERROR_INVALID_HANDLE);
    OK(cudamem_stream_synchronize(rig.stream));
    OK(cudamem_stream_destroy(rig.stream));
}

void case_arguments(void)
{
    struct rig rig = rig_open();
    cudamem_resource device, mapped_resource;
    cudamem_buffer buffer;
    cudamem_buffer mapped;
    OK(cudamem_resource_create_device(rig.context, &device));
    OK(cudamem_resource_create_mapped(rig.context, CUDAMEM_COHERENCE_PREFERRED, &mapped_resource));
    OK(cudamem_buffer_allocate(device, 8, rig.stream, &buffer));
    OK(cudamem_buffer_allocate(mapped_resource, 8, rig.stream, &mapped));

    /* NULL as the place for a result. */
    FAILS(cudamem_device_get_count(NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_context_open_primary(0, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_context_create(0, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_stream_create(rig.context, NULL, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_event_create(rig.context, 0, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_resource_create_device(rig.context, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_resource_create_mapped(rig.context, 0, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_pool_create(device, NULL, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_pool_get_statistics(device, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_buffer_allocate(device, 8, rig.stream, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_buffer_slice(buffer, 0, 1, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_buffer_get_info(buffer, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_buffer_load_u32(mapped, 0, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_engine_create(rig.context, NULL, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_describe(NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);

    /* NULL as bytes. */
    FAILS(cudamem_buffer_write(buffer, 0, NULL, 1), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_buffer_read(buffer, 0, NULL, 1), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_buffer_store(mapped, 0, NULL, 1), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_buffer_load(mapped, 0, NULL, 1), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_buffer_write(buffer, 8, NULL, 0));

    /* Unknown flags and values. */
    cudamem_event event;
    cudamem_resource other = {5};
    FAILS(cudamem_event_create(rig.context, 4, &event), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_resource_create_pinned(rig.context, 0x80000000u, &other), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_resource_create_managed(rig.context, 6, &other), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_resource_create_mapped(rig.context, 3, &other), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_resource_create_mapped(rig.context, -1, &other), CUDAMEM_ERROR_INVALID_ARGUMENT);
    /* Resources of the wrong kind. */
    FAILS(cudamem_buffer_store(buffer, 0, "x", 1), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_pool_trim(mapped_resource, 0), CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(other.id == 5);

    OK(cudamem_buffer_destroy(mapped));
    OK(cudamem_buffer_destroy(buffer));
    OK(cudamem_resource_destroy(mapped_resource));
    OK(cudamem_resource_destroy(device));
    rig_close(rig);
}

/* The options of a newer release. */
struct newer_options {
    cudamem_stream_options known;
    uint64_t unknown;
};

void case_options(void)
{
    struct rig rig = rig_open();
    cudamem_stream stream = {1};
    struct newer_options newer;
    memset(&newer, 0, sizeof newer);
    FAILS(cudamem_stream_create(rig.context, &newer.known, &stream), CUDAMEM_ERROR_INVALID_ARGUMENT); /* a size of 0 */
    newer.known.size = sizeof newer.known - 1;
    FAILS(cudamem_stream_create(rig.context, &newer.known, &stream), CUDAMEM_ERROR_INVALID_ARGUMENT);
    newer.known.size = SIZE_MAX;
    FAILS(cudamem_stream_create(rig.context, &newer.known, &stream), CUDAMEM_ERROR_INVALID_ARGUMENT);
    newer.known.size = sizeof newer;
    newer.unknown = 1;
    FAILS(cudamem_stream_create(rig.context, &newer.known, &stream), CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(stream.id == 1);
    newer.unknown = 0;
    OK(cudamem_stream_create(rig.context, &newer.known, &stream));
    OK(cudamem_stream_destroy(stream));
    newer.known.flags = 2;
    FAILS(cudamem_stream_create(rig.context, &newer.known, &stream), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_stream_create(rig.context, (const cudamem_stream_options *)3, &stream), CUDAMEM_ERROR_INVALID_ARGUMENT);

    cudamem_resource device, pool = {1};
    OK(cudamem_resource_create_device(rig.context, &device));
    cudamem_pool_options good, bad;
    memset(&good, 0, sizeof good);
    good.size = sizeof good;
    bad = good, bad.reuse = 3;
    FAILS(cudamem_pool_create(device, &bad, &pool), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.flags = 8;
    FAILS(cudamem_pool_create(device, &bad, &pool), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.growth_factor = 0.5;
    FAILS(cudamem_pool_create(device, &bad, &pool), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.growth_factor = -1;
    FAILS(cudamem_pool_create(device, &bad, &pool), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.maximum = UINT64_MAX;
    FAILS(cudamem_pool_create(device, &bad, &pool), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.trace_capacity = UINT64_MAX;
    FAILS(cudamem_pool_create(device, &bad, &pool), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.initial = (uint64_t)1 << 60;
    FAILS(cudamem_pool_create(device, &bad, &pool), CUDAMEM_ERROR_OUT_OF_MEMORY);
    cudamem_driver_pool_options driver_pool = {0};
    driver_pool.size = sizeof driver_pool;
    driver_pool.memory = 3;
    FAILS(cudamem_resource_create_driver_pool(rig.context, &driver_pool, &pool), CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(pool.id == 1);
    /* A result struct without a size. No struct has grown yet, so each has only one valid size. */
    OK(cudamem_pool_create(device, &good, &pool));
    cudamem_pool_statistics figures = {0};
    FAILS(cudamem_pool_get_statistics(pool, &figures), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_resource_destroy(pool));
    OK(cudamem_resource_destroy(device));
    rig_close(rig);
}

enum { THREADS = 8, BUFFERS = 16, ROUNDS = 500 };

struct arena {
    struct rig rig;
    cudamem_resource pool;
    /* All threads use, replace and destroy these handles. */
    pthread_mutex_t lock;
    cudamem_buffer buffers[BUFFERS];
};

static void *use_and_destroy(void *user)
{
    struct arena *arena = user;
    unsigned state = (unsigned)(uintptr_t)pthread_self();
    for (int round = 0; round < ROUNDS; round++) {
        state = state * 1664525u + 1013904223u;
        unsigned place = (state >> 16) % BUFFERS, other = (state >> 24) % BUFFERS;
        pthread_mutex_lock(&arena->lock);
        cudamem_buffer buffer = arena->buffers[place], source = arena->buffers[other];
        pthread_mutex_unlock(&arena->lock);
        /* Another thread may destroy them at any moment. */
        char bytes[64];
        cudamem_buffer fresh;
        cudamem_status status = CUDAMEM_SUCCESS;
        switch (state >> 8 & 3) {
        case 0:
            status = cudamem_buffer_write(buffer, 0, memset(bytes, 1, sizeof bytes), sizeof bytes);
            break;
        case 1:
            status = place == other ? CUDAMEM_SUCCESS : cudamem_buffer_copy(buffer, 0, source, 0, 64);
            break;
        case 2:
            status = cudamem_buffer_read(buffer, 0, bytes, sizeof bytes);
            break;
        default:
            OK(cudamem_buffer_allocate(arena->pool, 64, arena->rig.stream, &fresh));
            pthread_mutex_lock(&arena->lock);
            buffer = arena->buffers[place];
            arena->buffers[place] = fresh;
            pthread_mutex_unlock(&arena->lock);
            OK(cudamem_buffer_destroy(buffer));
        }
        CHECK(status == CUDAMEM_SUCCESS || status == CUDAMEM_ERROR_INVALID_HANDLE);
    }
    return NULL;
}

void case_threads(void)
{
    struct arena arena;
    memset(&arena, 0, sizeof arena);
    pthread_mutex_init(&arena.lock, NULL);
    arena.rig = rig_open();
    cudamem_resource device;
    OK(cudamem_resource_create_device(arena.rig.context, &device));
    OK(cudamem_pool_create(device, NULL, &arena.pool));
    for (int index = 0; index < BUFFERS; index++) {
        OK(cudamem_buffer_allocate(arena.pool, 64, arena.rig.stream, &arena.buffers[index]));
    }
    pthread_t threads[THREADS];
    for (int index = 0; index < THREADS; index++) {
        CHECK(pthread_create(&threads[index], NULL, use_and_destroy, &arena) == 0);
    }
    for (int index = 0; index < THREADS; index++) {
        CHECK(pthread_join(threads[index], NULL) == 0);
    }
    for (int index = 0; index < BUFFERS; index++) {
        OK(cudamem_buffer_destroy(arena.buffers[index]));
    }
    OK(cudamem_resource_destroy(arena.pool));
    OK(cudamem_resource_destroy(device));
    rig_close(arena.rig);
    pthread_mutex_destroy(&arena.lock);
}
