/* Allocations, copies and frees of 16 threads on two GPUs, each with its own memory, while access between the devices is
 * given. Raw calls, none of which may fail.
 *
 *     gcc -O2 -I/usr/local/cuda/include allocations_beside_access.c -lcuda -lpthread -o allocations_beside_access
 *     ./allocations_beside_access SECONDS KINDS [near] [apart]
 *     ./allocations_beside_access SECONDS pool|plain give [apart]
 *
 * `give`: all threads allocate from one new pool, or in one new context, for 5 ms, without copies; meanwhile device 0 gets
 * access to its memory.
 *
 * KINDS are letters: p, memory of cuMemAlloc; n, a new pool for each round; u, the same, destroyed before its free is done; d, the
 * default pool; v, virtual memory; each on device 1. Each round writes its memory, copies it to device 0 by cuMemcpyPeerAsync, and looks at the bytes. `near`
 * gives device 0 access to new pools and virtual memory. `apart` makes no other call while access is given.
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

#define SIZE 6000

static CUdevice device[2];
static CUcontext primary[2];
static const char *kinds;
static int near_access, apart;
static pthread_rwlock_t access_lock;
static atomic_int over;
static atomic_long rounds, changes;
static size_t granularity = 2 << 20;

static int failed(const char *what, CUresult code) {
    if (code != CUDA_SUCCESS && !atomic_exchange(&over, 1))
        printf("%s: %s: %d after %ld rounds, %ld changes of access\n", kinds, what, code, (long)rounds, (long)changes);
    return code != CUDA_SUCCESS;
}
#define CALL(call)                                                   \
    do {                                                             \
        if (apart) pthread_rwlock_rdlock(&access_lock);              \
        CUresult code_ = call;                                       \
        if (apart) pthread_rwlock_unlock(&access_lock);              \
        if (failed(#call, code_)) return 1;                          \
    } while (0)
#define CHANGE(call)                                                 \
    do {                                                             \
        if (apart) pthread_rwlock_wrlock(&access_lock);              \
        CUresult code_ = call;                                       \
        if (apart) pthread_rwlock_unlock(&access_lock);              \
        changes++;                                                   \
        if (failed(#call, code_)) return 1;                          \
    } while (0)

static int use(CUdeviceptr there, CUdeviceptr here, CUstream far, CUstream near) {
    unsigned char seen[SIZE], value = (unsigned char)rand();
    CALL(cuMemsetD8Async(there, value, SIZE, far));
    CALL(cuStreamSynchronize(far));
    CALL(cuMemcpyPeerAsync(here, primary[0], there, primary[1], SIZE, near));
    CALL(cuMemcpyDtoHAsync(seen, here, SIZE, near));
    CALL(cuStreamSynchronize(near));
    for (int n = 0; n < SIZE; n++)
        if (seen[n] != value && !atomic_exchange(&over, 1)) return printf("%s: a wrong byte\n", kinds), 1;
    return 0;
}

static int round_of(char kind, CUdeviceptr here, CUstream far, CUstream near) {
    CUdeviceptr there = 0;
    CUmemoryPool pool = NULL;
    CUmemAccessDesc access[2];
    memset(access, 0, sizeof access);
    for (int n = 0; n < 2; n++) {
        access[n].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access[n].location.id = device[1 - n];
        access[n].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    if (kind == 'p') {
        CALL(cuMemAlloc(&there, SIZE));
        if (use(there, here, far, near)) return 1;
        CALL(cuMemFree(there));
    } else if (kind == 'n' || kind == 'u' || kind == 'd') {
        if (kind != 'd') {
            CUmemPoolProps properties;
            memset(&properties, 0, sizeof properties);
            properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
            properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
            properties.location.id = device[1];
            CALL(cuMemPoolCreate(&pool, &properties));
            if (near_access) CHANGE(cuMemPoolSetAccess(pool, &access[1], 1));
        } else
            CALL(cuDeviceGetDefaultMemPool(&pool, device[1]));
        CALL(cuMemAllocFromPoolAsync(&there, SIZE, pool, far));
        if (use(there, here, far, near)) return 1;
        CALL(cuMemFreeAsync(there, far));
        if (kind != 'u') CALL(cuStreamSynchronize(far));
        if (kind != 'd') CALL(cuMemPoolDestroy(pool));
    } else {
        CUmemAllocationProp properties;
        CUmemGenericAllocationHandle memory;
        memset(&properties, 0, sizeof properties);
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = device[1];
        CALL(cuMemCreate(&memory, granularity, &properties, 0));
        CALL(cuMemAddressReserve(&there, granularity, 0, 0, 0));
        CALL(cuMemMap(there, granularity, 0, memory, 0));
        CALL(cuMemSetAccess(there, granularity, &access[0], 1));
        if (near_access) CHANGE(cuMemSetAccess(there, granularity, &access[1], 1));
        if (use(there, here, far, near)) return 1;
        CALL(cuMemUnmap(there, granularity));
        CALL(cuMemRelease(memory));
        CALL(cuMemAddressFree(there, granularity));
    }
    return 0;
}

static pthread_barrier_t epoch;
static CUmemoryPool shared_pool;
static CUcontext shared_context[2];
static atomic_int ended;

/* Allocates, writes and frees until the epoch ends. */
static int allocate_beside(int plain) {
    CUstream stream;
    CUdeviceptr block[8];
    cuCtxSetCurrent(shared_context[1]);
    CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (!ended && !over) {
        for (int n = 0; n < 8; n++) {
            size_t size = 1 + (size_t)rand() % 100000;
            if (plain) CALL(cuMemAlloc(&block[n], size));
            else CALL(cuMemAllocFromPoolAsync(&block[n], size, shared_pool, stream));
            CALL(cuMemsetD8Async(block[n], 1, size, stream));
        }
        CALL(cuStreamSynchronize(stream));
        for (int n = 0; n < 8; n++) {
            if (plain) CALL(cuMemFree(block[n]));
            else CALL(cuMemFreeAsync(block[n], stream));
        }
        rounds++;
    }
    CALL(cuStreamSynchronize(stream));
    CALL(cuStreamDestroy(stream));
    return 0;
}

static void *worker(void *plain) {
    for (;;) {
        pthread_barrier_wait(&epoch);
        allocate_beside(plain != NULL);
        pthread_barrier_wait(&epoch);
    }
    return NULL;
}

static int one_epoch(int plain) {
    struct timespec pause = {0, 2500000};
    CUmemPoolProps properties;
    CUmemAccessDesc access;
    memset(&properties, 0, sizeof properties);
    memset(&access, 0, sizeof access);
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device[1];
    access.location.id = device[0];
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (plain) {
        CALL(cuCtxCreate(&shared_context[1], NULL, 0, device[1]));
        CALL(cuCtxCreate(&shared_context[0], NULL, 0, device[0]));
    } else {
        shared_context[0] = primary[0], shared_context[1] = primary[1];
        CALL(cuMemPoolCreate(&shared_pool, &properties));
    }
    ended = 0;
    pthread_barrier_wait(&epoch);
    nanosleep(&pause, NULL);
    cuCtxSetCurrent(shared_context[0]);
    if (plain) CHANGE(cuCtxEnablePeerAccess(shared_context[1], 0));
    else CHANGE(cuMemPoolSetAccess(shared_pool, &access, 1));
    nanosleep(&pause, NULL);
    ended = 1;
    pthread_barrier_wait(&epoch);
    if (over) return 1;
    if (!plain) CALL(cuMemPoolDestroy(shared_pool));
    else for (int n = 0; n < 2; n++) CALL(cuCtxDestroy(shared_context[n]));
    return 0;
}

static void *work(void *unused) {
    CUstream far, near;
    CUdeviceptr here;
    (void)unused;
    if (cuCtxSetCurrent(primary[0]) || cuStreamCreate(&near, CU_STREAM_NON_BLOCKING) || cuMemAlloc(&here, SIZE)) return NULL;
    while (!over) {
        cuCtxSetCurrent(primary[1]);
        if (failed("cuStreamCreate", cuStreamCreate(&far, CU_STREAM_NON_BLOCKING))) break;
        if (round_of(kinds[(unsigned)rand() % strlen(kinds)], here, far, near)) break;
        if (failed("cuStreamDestroy", cuStreamDestroy(far))) break;
        rounds++;
    }
    return NULL;
}

int main(int argc, char **argv) {
    enum { THREADS = 16 };
    pthread_t threads[THREADS];
    if (argc < 3 || cuInit(0)) return 1;
    time_t end = time(NULL) + atoi(argv[1]);
    kinds = argv[2];
    for (int n = 3; n < argc; n++) {
        near_access |= !strcmp(argv[n], "near");
        apart |= !strcmp(argv[n], "apart");
    }
    pthread_rwlockattr_t fair;
    pthread_rwlockattr_init(&fair);
    pthread_rwlockattr_setkind_np(&fair, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&access_lock, &fair);
    for (int n = 0; n < 2; n++)
        if (cuDeviceGet(&device[n], n) || cuDevicePrimaryCtxRetain(&primary[n], device[n])) return 1;
    if (argc > 3 && !strcmp(argv[3], "give")) {
        int plain = !strcmp(kinds, "plain");
        pthread_barrier_init(&epoch, NULL, THREADS + 1);
        for (int n = 0; n < THREADS; n++) pthread_create(&threads[n], NULL, worker, plain ? "" : NULL);
        while (time(NULL) < end && !over && !one_epoch(plain)) {}
        printf("%s give%s: %ld rounds, %ld changes of access, %s\n", kinds, apart ? " apart" : "", (long)rounds, (long)changes,
               over ? "FAILED" : "all well");
        fflush(stdout);
        _exit(over);
    }
    for (int n = 0; n < THREADS; n++) pthread_create(&threads[n], NULL, work, NULL);
    while (time(NULL) < end && !over) {
        struct timespec pause = {0, 10000000};
        nanosleep(&pause, NULL);
    }
    int ended_well = !atomic_exchange(&over, 1);
    for (int n = 0; n < THREADS; n++) pthread_join(threads[n], NULL);
    printf("%s%s%s: %ld rounds, %ld changes of access, %s\n", kinds, near_access ? " near" : "", apart ? " apart" : "",
           (long)rounds, (long)changes, ended_well ? "all well" : "FAILED");
    return !ended_well;
}
