/* Copies between two GPUs, while another thread gives the copying device access to the source and takes it back. Raw
 * calls. A copy by cuMemcpyPeerAsync needs no access.
 *
 *     gcc -O2 -I/usr/local/cuda/include copies_beside_access.c -lcuda -lpthread -o copies_beside_access
 *     ./copies_beside_access SECONDS pool|plain|virtual apart|giving|taking|running|beside [to] [OTHER]
 *
 * The source is memory of the driver's pool, of cuMemAlloc, or virtual memory. Access changes only while no copy is queued
 * or runs (apart), while copies run but none is being queued (running; giving and taking: only the one of the two changes,
 * and the other apart), or at any time (beside). `to`: the copies go the other way, by a stream of device 1, to the memory.
 * OTHER, a kind: access to other memory of that kind changes.
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
static CUdeviceptr far_memory;
static pthread_rwlock_t access_lock;
/* Keeps copies that run apart from changes; access_lock keeps those apart that are being queued. */
static pthread_rwlock_t until_done;
static int apart, giving, taking, beside, to;
static atomic_int over;
static atomic_long copies, changes;

static void stop(const char *what, CUresult code) {
    if (code != CUDA_SUCCESS && !over) printf("%s: %d after %ld copies, %ld changes\n", what, code, (long)copies, (long)changes);
    if (code != CUDA_SUCCESS) over = 1;
}

static void *copy(void *unused) {
    CUstream stream;
    CUdeviceptr here;
    CUresult code;
    (void)unused;
    if (cuCtxSetCurrent(primary[0]) || cuMemAlloc(&here, SIZE)) return NULL;
    if (cuCtxSetCurrent(primary[to]) || cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) return NULL;
    while (!over) {
        if (!beside) pthread_rwlock_rdlock(&until_done);
        if (!beside) pthread_rwlock_rdlock(&access_lock);
        if (to) code = cuMemcpyPeerAsync(far_memory, primary[1], here, primary[0], SIZE, stream);
        else code = cuMemcpyPeerAsync(here, primary[0], far_memory, primary[1], SIZE, stream);
        if (!beside) pthread_rwlock_unlock(&access_lock);
        if (!code) code = cuStreamSynchronize(stream);
        if (!beside) pthread_rwlock_unlock(&until_done);
        stop("a copy", code);
        copies++;
    }
    return NULL;
}

static CUmemoryPool pool;
static CUstream far_stream;
static size_t granularity = 2 << 20;

static CUresult make_far_memory(const char *kind) {
    CUresult code;
    cuCtxSetCurrent(primary[1]);
    if ((code = cuStreamCreate(&far_stream, CU_STREAM_NON_BLOCKING))) return code;
    if (!strcmp(kind, "pool")) {
        CUmemPoolProps properties;
        memset(&properties, 0, sizeof properties);
        properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = device[1];
        if ((code = cuMemPoolCreate(&pool, &properties))) return code;
        if ((code = cuMemAllocFromPoolAsync(&far_memory, SIZE, pool, far_stream))) return code;
        return cuStreamSynchronize(far_stream);
    }
    if (!strcmp(kind, "plain")) return cuMemAlloc(&far_memory, SIZE);
    CUmemAllocationProp properties;
    CUmemAccessDesc own;
    CUmemGenericAllocationHandle memory;
    memset(&properties, 0, sizeof properties);
    memset(&own, 0, sizeof own);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    own.location.type = properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    own.location.id = properties.location.id = device[1];
    own.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if ((code = cuMemCreate(&memory, granularity, &properties, 0))) return code;
    if ((code = cuMemAddressReserve(&far_memory, granularity, 0, 0, 0))) return code;
    if ((code = cuMemMap(far_memory, granularity, 0, memory, 0))) return code;
    return cuMemSetAccess(far_memory, granularity, &own, 1);
}

static CUmemoryPool changed_pool;
static CUdeviceptr changed_memory;

static CUresult change_access(const char *kind, int allowed) {
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device[0];
    access.flags = allowed ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (!strcmp(kind, "pool")) return cuMemPoolSetAccess(changed_pool, &access, 1);
    if (!strcmp(kind, "virtual")) return cuMemSetAccess(changed_memory, granularity, &access, 1);
    cuCtxSetCurrent(primary[0]);
    return allowed ? cuCtxEnablePeerAccess(primary[1], 0) : cuCtxDisablePeerAccess(primary[1]);
}

int main(int argc, char **argv) {
    enum { COPIERS = 3 };
    pthread_t threads[COPIERS];
    pthread_rwlockattr_t fair;
    CUresult code;
    if (argc < 4 || cuInit(0)) return 1;
    time_t end = time(NULL) + atoi(argv[1]);
    const char *kind = argv[2], *changed = kind;
    for (int n = 4; n < argc; n++) {
        if (!strcmp(argv[n], "to")) to = 1;
        else changed = argv[n];
    }
    apart = !strcmp(argv[3], "apart");
    giving = !strcmp(argv[3], "giving");
    taking = !strcmp(argv[3], "taking");
    beside = !strcmp(argv[3], "beside");
    pthread_rwlockattr_init(&fair);
    pthread_rwlockattr_setkind_np(&fair, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&access_lock, &fair);
    pthread_rwlock_init(&until_done, &fair);
    for (int n = 0; n < 2; n++)
        if (cuDeviceGet(&device[n], n) || cuDevicePrimaryCtxRetain(&primary[n], device[n])) return 1;
    if ((code = make_far_memory(changed))) return printf("no memory: %d\n", code), 1;
    changed_pool = pool, changed_memory = far_memory;
    if (changed != kind && (code = make_far_memory(kind))) return printf("no memory: %d\n", code), 1;
    for (int n = 0; n < COPIERS; n++) pthread_create(&threads[n], NULL, copy, NULL);
    while (time(NULL) < end && !over) {
        int gives = changes % 2 == 0, all = apart || (giving && !gives) || (taking && gives);
        if (all) pthread_rwlock_wrlock(&until_done);
        if (!beside) pthread_rwlock_wrlock(&access_lock);
        stop(gives ? "giving access" : "taking access back", change_access(changed, gives));
        if (!beside) pthread_rwlock_unlock(&access_lock);
        if (all) pthread_rwlock_unlock(&until_done);
        changes++;
        usleep((unsigned)rand() % 300);
    }
    over = 1;
    for (int n = 0; n < COPIERS; n++) pthread_join(threads[n], NULL);
    printf("%s%s, %s, changes of %s: %ld copies, %ld changes of access\n", to ? "to " : "", kind, argv[3], changed, (long)copies,
           (long)changes);
    return 0;
}
