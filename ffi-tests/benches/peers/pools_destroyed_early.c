/* Pools that are destroyed while frees of their memory are under way on two streams, which other threads use next. Raw calls,
 * all allowed: the driver says that a pool ends by itself after its last free.
 *
 *     gcc -O2 -I/usr/local/cuda/include pools_destroyed_early.c -lcuda -lpthread -o pools_destroyed_early
 *     ./pools_destroyed_early SECONDS early|one|free|trim|half|query|event|stream|context|default
 *         [keep] [release] [near]
 *
 * Sixteen threads share a stock of 64 streams. In each round, a thread takes two, allocates 6000 bytes on each from a new
 * pool, writes them, frees them, destroys the pool, and puts the streams back. What differs, between the frees and the end:
 *
 *     early    nothing
 *     one      one stream for both blocks
 *     free     both frees are on the first stream
 *     trim     cuMemPoolTrimTo
 *     half     a wait for the first stream
 *     query    cuStreamQuery of both streams, until they are idle
 *     event    an event on each stream, and cuEventQuery until it has passed
 *     stream   a wait for both streams
 *     context  a wait for the context
 *     default  the pool is the device's, and never destroyed
 *
 * With `keep`, the pool keeps its unused memory until its end; with `keep release`, until cuMemPoolTrimTo before its end. With
 * `near`, device 0 has access to the pool, which is device 1's.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 16, STREAMS = 64, SIZE = 6000 };

static const char *mode;
static CUdevice device;
static int keep, release, near;
static atomic_long unreleased;
static CUcontext context;
static CUstream stock[STREAMS];
static int left = STREAMS;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int over;
static atomic_long rounds;

static int is(const char *name) { return !strcmp(mode, name); }

static int failed(const char *what, CUresult code) {
    if (code != CUDA_SUCCESS && !atomic_exchange(&over, 1)) printf("%s: %s: %d after %ld rounds\n", mode, what, code, (long)rounds);
    return code != CUDA_SUCCESS;
}
#define CALL(call) \
    do { \
        if (failed(#call, call)) return 1; \
    } while (0)
/* Asks again until the answer is another one than "not ready". */
#define UNTIL_DONE(call) \
    do { \
        CUresult answer; \
        while ((answer = call) == CUDA_ERROR_NOT_READY) usleep(5); \
        if (failed(#call, answer)) return 1; \
    } while (0)

static CUstream take(unsigned *seed) {
    pthread_mutex_lock(&lock);
    int n = rand_r(seed) % left;
    CUstream stream = stock[n];
    stock[n] = stock[--left];
    pthread_mutex_unlock(&lock);
    return stream;
}

static void put(CUstream stream) {
    pthread_mutex_lock(&lock);
    stock[left++] = stream;
    pthread_mutex_unlock(&lock);
}

static int order(CUstream first, CUstream then) {
    CUevent event;
    CALL(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CALL(cuEventRecord(event, first));
    CALL(cuStreamWaitEvent(then, event, 0));
    CALL(cuEventDestroy(event));
    return 0;
}

static int one_round(unsigned *seed) {
    CUmemPoolProps properties;
    CUmemoryPool pool;
    CUdeviceptr block[2];
    CUstream stream[2];
    CUevent event;
    memset(&properties, 0, sizeof properties);
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    stream[0] = take(seed);
    stream[1] = is("one") ? stream[0] : take(seed);
    if (is("default")) CALL(cuDeviceGetDefaultMemPool(&pool, device));
    else CALL(cuMemPoolCreate(&pool, &properties));
    if (keep) {
        cuuint64_t all = UINT64_MAX;
        CALL(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    }
    if (near) {
        CUmemAccessDesc access;
        memset(&access, 0, sizeof access);
        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        CALL(cuMemPoolSetAccess(pool, &access, 1));
    }
    for (int n = 0; n < 2; n++) {
        CALL(cuMemAllocFromPoolAsync(&block[n], SIZE, pool, stream[n]));
        CALL(cuMemsetD8Async(block[n], (unsigned char)n, SIZE, stream[n]));
    }
    CALL(cuStreamSynchronize(stream[0]));
    if (is("free") && order(stream[1], stream[0])) return 1;
    for (int n = 0; n < 2; n++) CALL(cuMemFreeAsync(block[n], stream[is("free") ? 0 : n]));
    if (is("trim")) CALL(cuMemPoolTrimTo(pool, 0));
    if (is("context")) CALL(cuCtxSynchronize());
    if (is("half") || is("stream")) CALL(cuStreamSynchronize(stream[0]));
    if (is("stream")) CALL(cuStreamSynchronize(stream[1]));
    for (int n = 0; n < 2; n++) {
        if (is("query")) UNTIL_DONE(cuStreamQuery(stream[n]));
        if (!is("event")) continue;
        CALL(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        CALL(cuEventRecord(event, stream[n]));
        UNTIL_DONE(cuEventQuery(event));
        CALL(cuEventDestroy(event));
    }
    if (release) {
        cuuint64_t none = 0, left = 0;
        CALL(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &none));
        CALL(cuMemPoolTrimTo(pool, 0));
        CALL(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &left));
        if (left) unreleased++;
    }
    if (!is("default")) CALL(cuMemPoolDestroy(pool));
    put(stream[0]);
    if (!is("one")) put(stream[1]);
    rounds++;
    return 0;
}

static void *work(void *number) {
    unsigned seed = 77 * (unsigned)(size_t)number + 1;
    cuCtxSetCurrent(context);
    while (!over && !one_round(&seed)) {}
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t thread;
    if (argc < 3) return 1;
    mode = argv[2];
    for (int n = 3; n < argc; n++) {
        keep |= !strcmp(argv[n], "keep");
        release |= !strcmp(argv[n], "release");
        near |= !strcmp(argv[n], "near");
    }
    if (cuInit(0) || cuDeviceGet(&device, near) || cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context)) return 1;
    for (int n = 0; n < STREAMS; n++)
        if (cuStreamCreate(&stock[n], CU_STREAM_NON_BLOCKING)) return 1;
    time_t end = time(NULL) + atoi(argv[1]);
    for (size_t n = 0; n < THREADS; n++) pthread_create(&thread, NULL, work, (void *)n);
    while (time(NULL) < end && !over) usleep(10000);
    int went_well = !atomic_exchange(&over, 1);
    printf("%s%s%s%s: %ld rounds, %ld pools with memory at their end, %s\n", mode, keep ? " keep" : "", release ? " release" : "",
           near ? " near" : "", (long)rounds, (long)unreleased, went_well ? "all well" : "FAILED");
    fflush(stdout);
    _exit(!went_well);
}
