/* Waits with a time limit, and reports of long waits. */
#define _GNU_SOURCE
#include "test.h"

#include <math.h>
#include <stdatomic.h>
#include <time.h>

/* A host function that blocks its stream until `opened` is set, or for some ten seconds. */
static void until_opened(void *user)
{
    const struct timespec nap = {0, 1000000};
    atomic_bool *opened = user;
    for (int round = 0; round < 10000 && !atomic_load(opened); round++) {
        nanosleep(&nap, NULL);
    }
}

static void time_limits(struct rig rig)
{
    atomic_bool opened = false;
    cudamem_event event, null_event = {0};
    cudamem_stream null_stream = {0};
    OK(cudamem_event_create(rig.context, 0, &event));
    OK(cudamem_synchronize_for(event.id, 0)); /* never recorded, so done */
    OK(cudamem_stream_launch_host_function(rig.stream, until_opened, &opened));
    OK(cudamem_event_record(event, rig.stream));
    static const double SECONDS[] = {0, 1e-9, 0.01};
    for (int index = 0; index < 3; index++) {
        FAILS(cudamem_synchronize_for(rig.stream.id, SECONDS[index]), CUDAMEM_ERROR_TIMED_OUT);
        SAYS("cudamem_synchronize_for");
        FAILS(cudamem_synchronize_for(event.id, SECONDS[index]), CUDAMEM_ERROR_TIMED_OUT);
        SAYS("cudamem_synchronize_for");
    }
    static const double WRONG[] = {-1, -INFINITY, NAN, 1e30};
    for (int index = 0; index < 4; index++) {
        FAILS(cudamem_synchronize_for(rig.stream.id, WRONG[index]), CUDAMEM_ERROR_INVALID_ARGUMENT);
        FAILS(cudamem_synchronize_for(event.id, WRONG[index]), CUDAMEM_ERROR_INVALID_ARGUMENT);
        FAILS(cudamem_set_slow_wait_limit(WRONG[index]), CUDAMEM_ERROR_INVALID_ARGUMENT);
    }
    FAILS(cudamem_synchronize_for(null_stream.id, 1), CUDAMEM_ERROR_INVALID_HANDLE);
    FAILS(cudamem_synchronize_for(null_event.id, INFINITY), CUDAMEM_ERROR_INVALID_HANDLE);
    atomic_store(&opened, true);
    OK(cudamem_synchronize_for(event.id, 60));
    OK(cudamem_synchronize_for(rig.stream.id, INFINITY));
    OK(cudamem_synchronize_for(rig.stream.id, 0));
    OK(cudamem_event_destroy(event));
}

struct slow {
    atomic_bool opened;
    atomic_int calls;
};

/* Ends the reported wait. */
static void on_slow_wait(const char *message, double seconds, void *user)
{
    struct slow *slow = user;
    CHECK(strstr(message, "cudamem") == NULL && strstr(message, "has waited") != NULL && strstr(message, "stream") != NULL);
    if (!(seconds >= 0.02)) {
        fprintf(stderr, "reported after %g s: %s\n", seconds, message);
        exit(1);
    }
    atomic_fetch_add(&slow->calls, 1);
    atomic_store(&slow->opened, true);
}

static void slow_waits(struct rig rig)
{
    /* Static, because the callback may still run after the wait has ended. */
    static struct slow slow;
    OK(cudamem_set_slow_wait_limit(0.02));
    OK(cudamem_set_slow_wait_callback(on_slow_wait, &slow));
    OK(cudamem_stream_launch_host_function(rig.stream, until_opened, &slow.opened));
    OK(cudamem_stream_synchronize(rig.stream));
    CHECK(atomic_load(&slow.calls) >= 1);
    OK(cudamem_set_slow_wait_limit(INFINITY));
    OK(cudamem_set_slow_wait_callback(NULL, NULL));
    OK(cudamem_set_slow_wait_limit(10));
}

void case_waits(void)
{
    struct rig rig = rig_open();
    time_limits(rig);
    slow_waits(rig);
    rig_close(rig);
}
