/* Pools that sleep. */
#include "test.h"

#include <math.h>

enum { SIZE = 5 << 20, CHUNK = 2 << 20 };

static bool is_asleep(cudamem_resource pool)
{
    bool asleep = false;
    OK(cudamem_pool_is_asleep(pool, &asleep));
    return asleep;
}

static cudamem_sleep_options sleep_options(void)
{
    cudamem_sleep_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    return options;
}

static bool has_contents(cudamem_buffer buffer, unsigned seed)
{
    unsigned char *expected = malloc(SIZE), *bytes = malloc(SIZE);
    CHECK(expected != NULL && bytes != NULL);
    pattern(expected, SIZE, seed);
    OK(cudamem_buffer_read(buffer, 0, bytes, SIZE));
    const bool same = memcmp(expected, bytes, SIZE) == 0;
    free(expected);
    free(bytes);
    return same;
}

/* Refusals while the pool sleeps, and while it is awake. */
static void check_refusals(struct rig rig, cudamem_resource pool, cudamem_buffer buffer, cudamem_resource others[3])
{
    cudamem_buffer none;
    cudamem_slept slept;
    slept.size = sizeof slept;
    FAILS(cudamem_pool_wake(pool), CUDAMEM_ERROR_INVALID_ARGUMENT);
    SAYS("the pool is awake");

    cudamem_sleep_options options = sleep_options();
    options.contents = 2;
    FAILS(cudamem_pool_sleep(pool, &options, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options = sleep_options();
    options.reserved = 1;
    FAILS(cudamem_pool_sleep(pool, &options, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options = sleep_options();
    options.patience = -1;
    FAILS(cudamem_pool_sleep(pool, &options, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    SAYS("options.patience");
    options = sleep_options();
    options.host.id = 12345;
    FAILS(cudamem_pool_sleep(pool, &options, NULL), CUDAMEM_ERROR_INVALID_HANDLE);
    SAYS("options.host");
    options.host = others[0];
    FAILS(cudamem_pool_sleep(pool, &options, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    SAYS("page-locked host memory");
    options.size = 7;
    FAILS(cudamem_pool_sleep(pool, &options, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    slept.size = 8;
    FAILS(cudamem_pool_sleep(pool, NULL, &slept), CUDAMEM_ERROR_INVALID_ARGUMENT);
    SAYS("slept");
    FAILS(cudamem_pool_is_asleep(pool, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(!is_asleep(pool));

    /* A source without a pool, a pool of regions, a pool of host memory. */
    FAILS(cudamem_pool_sleep(others[0], NULL, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    SAYS("cudamem_pool_create");
    for (int other = 1; other < 3; other++) {
        FAILS(cudamem_pool_sleep(others[other], NULL, NULL), CUDAMEM_ERROR_UNSUPPORTED);
        SAYS("without CUDAMEM_POOL_REGIONS");
        FAILS(cudamem_pool_wake(others[other]), CUDAMEM_ERROR_UNSUPPORTED);
        CHECK(!is_asleep(others[other]));
    }

    OK(cudamem_pool_sleep(pool, NULL, NULL));
    FAILS(cudamem_pool_sleep(pool, NULL, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    SAYS("asleep already");
    FAILS(cudamem_buffer_allocate(pool, 100, rig.stream, &none), CUDAMEM_ERROR_ASLEEP);
    SAYS("(cudamem_pool_wake)");
    FAILS(cudamem_buffer_write(buffer, 0, "abc", 3), CUDAMEM_ERROR_ASLEEP);
    FAILS(cudamem_buffer_fill(buffer, 0, 10, "x", 1), CUDAMEM_ERROR_ASLEEP);
    FAILS(cudamem_pool_reserve(pool, (size_t)1 << 30), CUDAMEM_ERROR_ASLEEP);
    OK(cudamem_pool_wake(pool));
}

/* Work that waits for the CPU keeps a pool awake. */
static void check_patience(struct rig rig, cudamem_resource pool, cudamem_buffer buffer)
{
    const cudamem_signals signals = signals_open(rig);
    cudamem_flag flag;
    cudamem_sleep_options options = sleep_options();
    options.patience = 0.01;
    OK(cudamem_flag_create(signals, 32, CUDAMEM_PLACE_FOR_DEVICE, &flag));
    const cudamem_status status = cudamem_signal_wait_on(flag.id, rig.stream, CUDAMEM_COMPARE_EQUAL, 1);
    CHECK(status == CUDAMEM_SUCCESS || status == CUDAMEM_ERROR_UNSUPPORTED);
    if (status == CUDAMEM_SUCCESS) {
        OK(cudamem_buffer_fill(buffer, 0, SIZE, "x", 1));
        FAILS(cudamem_pool_sleep(pool, &options, NULL), CUDAMEM_ERROR_TIMED_OUT);
        SAYS("flag");
        CHECK(!is_asleep(pool));
        OK(cudamem_flag_store(flag, 1));
        options.patience = HUGE_VAL; /* no limit */
        OK(cudamem_pool_sleep(pool, &options, NULL));
        OK(cudamem_pool_wake(pool));
        char first = 0;
        OK(cudamem_buffer_read(buffer, SIZE - 1, &first, 1));
        CHECK(first == 'x');
    }
    OK(cudamem_flag_destroy(flag));
    OK(cudamem_signals_destroy(signals));
}

void case_sleep(void)
{
    const struct rig rig = rig_open();
    cudamem_resource device, pool, pinned, host, regions;
    cudamem_pool_options made;
    memset(&made, 0, sizeof made);
    made.size = sizeof made;
    made.flags = CUDAMEM_POOL_REGIONS;
    OK(cudamem_resource_create_device(rig.context, &device));
    OK(cudamem_resource_create_pinned(rig.context, 0, &pinned));
    OK(cudamem_pool_create(device, NULL, &pool));
    OK(cudamem_pool_create(device, &made, &regions));
    OK(cudamem_pool_create(pinned, NULL, &host));

    cudamem_buffer buffer, twin;
    uint64_t address = 0, again = 0;
    unsigned char *bytes = malloc(SIZE);
    CHECK(bytes != NULL);
    pattern(bytes, SIZE, 3);
    OK(cudamem_buffer_allocate(pool, SIZE, rig.stream, &buffer));
    OK(cudamem_buffer_allocate(pool, 100, rig.stream, &twin));
    OK(cudamem_buffer_get_device_pointer(buffer, &address));
    OK(cudamem_buffer_write(buffer, 0, bytes, SIZE));
    free(bytes);

    cudamem_slept slept;
    slept.size = sizeof slept;
    const cudamem_status status = cudamem_pool_sleep(pool, NULL, &slept);
    if (status == CUDAMEM_ERROR_UNSUPPORTED) {
        printf("skipped: pools that sleep: %s\n", cudamem_last_error_message());
    } else {
        INFO(cudamem_pool_statistics, figures, cudamem_pool_get_statistics, pool);
        CHECK(status == CUDAMEM_SUCCESS && is_asleep(pool) && figures.reserved.current == 0);
        CHECK(slept.saved >= SIZE && slept.saved <= slept.released && slept.released >= 3 * (uint64_t)CHUNK);
        FAILS(cudamem_buffer_read(buffer, 0, &again, 1), CUDAMEM_ERROR_ASLEEP);
        OK(cudamem_pool_wake(pool));
        OK(cudamem_pool_get_statistics(pool, &figures));
        OK(cudamem_buffer_get_device_pointer(buffer, &again));
        CHECK(!is_asleep(pool) && figures.reserved.current == slept.released && again == address);
        CHECK(has_contents(buffer, 3));

        /* Saved in a pool of the program, and not at all. */
        cudamem_sleep_options options = sleep_options();
        options.host = host;
        OK(cudamem_pool_sleep(pool, &options, &slept));
        OK(cudamem_pool_get_statistics(host, &figures));
        CHECK(figures.blocks.current > 0 && slept.saved >= SIZE);
        OK(cudamem_pool_wake(pool));
        OK(cudamem_pool_get_statistics(host, &figures));
        CHECK(figures.blocks.current == 0 && has_contents(buffer, 3));
        options.contents = CUDAMEM_CONTENTS_DISCARD;
        OK(cudamem_pool_sleep(pool, &options, &slept));
        CHECK(slept.saved == 0 && slept.released >= 3 * (uint64_t)CHUNK);
        OK(cudamem_pool_wake(pool));

        cudamem_resource others[3] = {device, regions, host};
        check_refusals(rig, pool, buffer, others);
        check_patience(rig, pool, buffer);

        /* Buffers and the pool may end while it sleeps. */
        OK(cudamem_pool_sleep(pool, NULL, NULL));
        OK(cudamem_buffer_destroy(twin));
        OK(cudamem_pool_wake(pool));
        OK(cudamem_buffer_allocate(pool, 100, rig.stream, &twin));
        OK(cudamem_pool_sleep(pool, NULL, NULL));
    }
    OK(cudamem_buffer_destroy(buffer));
    OK(cudamem_resource_destroy(pool));
    OK(cudamem_buffer_destroy(twin));
    OK(cudamem_resource_destroy(regions));
    OK(cudamem_resource_destroy(host));
    OK(cudamem_resource_destroy(pinned));
    OK(cudamem_resource_destroy(device));
    rig_close(rig);
}
