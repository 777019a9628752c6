/* cuEventSynchronize beside the making and destroying of contexts by another thread. Raw calls; with two GPUs also copies
 * between them. Each of the threads 2 to 5 can be left out, which shows the two that do not go together:
 *
 *     gcc -O2 -I/usr/local/cuda/include waits_beside_contexts.c -lcuda -lpthread -o waits_beside_contexts
 *     ./waits_beside_contexts SECONDS [contexts] [memory] [modules] [virtual]
 */
#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SIZE (1 << 20)

static CUdevice device[2];
static CUcontext primary[2];
static int devices;
static atomic_int over;
static atomic_long waits, refused, contexts, memories, modules, mappings;

/* Waits for events of a stream of its own, on either device. */
static void *wait_for_events(void *number) {
    int here = (int)(size_t)number % devices;
    CUstream stream;
    CUdeviceptr memory[2] = {0, 0};
    void *host = malloc(SIZE);
    for (int n = 0; n < devices; n++)
        if (cuCtxSetCurrent(primary[n]) || cuMemAlloc(&memory[n], SIZE)) return NULL;
    if (cuCtxSetCurrent(primary[here]) || cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) return NULL;
    while (!over) {
        CUevent event;
        unsigned size = 1 + (unsigned)rand() % SIZE;
        if (cuEventCreate(&event, CU_EVENT_DISABLE_TIMING)) { refused++; continue; }
        cuMemsetD8Async(memory[here], 1, size, stream);
        if (devices > 1) cuMemcpyPeerAsync(memory[!here], primary[!here], memory[here], primary[here], size, stream);
        if (rand() % 4 == 0) cuMemcpyAsync((CUdeviceptr)host, memory[here], size, stream);
        if (cuEventRecord(event, stream) || cuEventSynchronize(event)) refused++;
        cuEventDestroy(event);
        waits++;
    }
    cuStreamDestroy(stream);
    for (int n = 0; n < devices; n++) cuMemFree(memory[n]);
    return NULL;
}

static void *make_contexts(void *unused) {
    (void)unused;
    while (!over) {
        CUcontext context;
        CUstream stream;
        CUevent event;
        CUdeviceptr memory;
        int here = rand() % devices;
#if CUDA_VERSION >= 13000
        if (cuCtxCreate(&context, NULL, 0, device[here])) { refused++; continue; }
#else
        if (cuCtxCreate(&context, 0, device[here])) { refused++; continue; }
#endif
        if (devices > 1) cuCtxEnablePeerAccess(primary[!here], 0);
        if (!cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) && !cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) &&
            !cuMemAlloc(&memory, SIZE)) {
            cuMemsetD8Async(memory, 2, SIZE, stream);
            cuEventRecord(event, stream);
            cuEventSynchronize(event);
            cuEventDestroy(event);
            cuStreamDestroy(stream);
        }
        cuCtxDestroy(context);
        contexts++;
    }
    return NULL;
}

static void *make_memory(void *unused) {
    (void)unused;
    while (!over) {
        CUdeviceptr memory;
        cuCtxSetCurrent(primary[rand() % devices]);
        if (cuMemAlloc(&memory, 1 + (unsigned)rand() % SIZE)) { refused++; continue; }
        if (cuMemFree(memory)) refused++;
        memories++;
    }
    return NULL;
}

static const char ptx[] = ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry nothing() { ret; }\n";

static void *load_modules(void *unused) {
    (void)unused;
    while (!over) {
        CUmodule module;
        cuCtxSetCurrent(primary[rand() % devices]);
        if (cuModuleLoadData(&module, ptx)) { refused++; continue; }
        if (cuModuleUnload(module)) refused++;
        modules++;
    }
    return NULL;
}

static void *map_memory(void *unused) {
    (void)unused;
    while (!over) {
        int here = rand() % devices;
        CUmemAllocationProp kind;
        CUmemAccessDesc access;
        CUmemGenericAllocationHandle memory;
        CUdeviceptr address;
        memset(&kind, 0, sizeof kind);
        memset(&access, 0, sizeof access);
        kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        kind.location.id = device[here];
        access.location = kind.location;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        cuCtxSetCurrent(primary[here]);
        if (cuMemCreate(&memory, 2 << 20, &kind, 0)) { refused++; continue; }
        if (!cuMemAddressReserve(&address, 2 << 20, 0, 0, 0)) {
            if (cuMemMap(address, 2 << 20, 0, memory, 0) || cuMemSetAccess(address, 2 << 20, &access, 1)) refused++;
            cuMemUnmap(address, 2 << 20);
            cuMemAddressFree(address, 2 << 20);
        }
        cuMemRelease(memory);
        mappings++;
    }
    return NULL;
}

static int wanted(int argc, char **argv, const char *name) {
    for (int n = 2; n < argc; n++)
        if (!strcmp(argv[n], name)) return 1;
    return 0;
}

int main(int argc, char **argv) {
    enum { WAITERS = 8 };
    pthread_t threads[WAITERS + 8];
    int count = 0;
    time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 10);
    if (cuInit(0) || cuDeviceGetCount(&devices) || devices < 1) return 1;
    if (devices > 2) devices = 2;
    for (int n = 0; n < devices; n++)
        if (cuDeviceGet(&device[n], n) || cuDevicePrimaryCtxRetain(&primary[n], device[n])) return 1;
    for (int n = 0; n < devices && devices > 1; n++) {
        cuCtxSetCurrent(primary[n]);
        cuCtxEnablePeerAccess(primary[!n], 0);
    }
    for (size_t n = 0; n < WAITERS; n++) pthread_create(&threads[count++], NULL, wait_for_events, (void *)n);
    if (wanted(argc, argv, "contexts")) {
        pthread_create(&threads[count++], NULL, make_contexts, NULL);
        pthread_create(&threads[count++], NULL, make_contexts, NULL);
    }
    if (wanted(argc, argv, "memory")) pthread_create(&threads[count++], NULL, make_memory, NULL);
    if (wanted(argc, argv, "modules")) pthread_create(&threads[count++], NULL, load_modules, NULL);
    if (wanted(argc, argv, "virtual")) pthread_create(&threads[count++], NULL, map_memory, NULL);
    while (time(NULL) < end) usleep(10000);
    over = 1;
    for (int n = 0; n < count; n++) pthread_join(threads[n], NULL);
    printf("%ld waits, %ld contexts, %ld allocations, %ld modules, %ld mappings; %ld calls refused\n", (long)waits,
           (long)contexts, (long)memories, (long)modules, (long)mappings, (long)refused);
    return 0;
}
