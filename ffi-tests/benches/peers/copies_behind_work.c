/* Which copies with host memory return before the stream's earlier work is done, and whether calls of
 * other threads go on meanwhile. Raw calls.
 *
 *     gcc -O2 -I/usr/local/cuda/include copies_behind_work.c -lcuda -lpthread -o copies_behind_work
 *     ./copies_behind_work
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static CUcontext context;
static CUstream stream;
static CUdeviceptr from, to;
static atomic_int released, copied, called;
static size_t size;
static int count;

static void CUDA_CB hold(void *unused) {
    (void)unused;
    struct timespec pause = {0, 1000000};
    while (!released) nanosleep(&pause, NULL);
}

static void *copy(void *unused) {
    (void)unused;
    cuCtxSetCurrent(context);
    for (int n = 0; n < count; n++) {
        CUresult code = cuMemcpyAsync(to, from, size, stream);
        if (code) printf("copy: %d\n", code);
    }
    copied = 1;
    return NULL;
}

static void *call(void *unused) {
    CUevent event;
    (void)unused;
    cuCtxSetCurrent(context);
    if (cuEventCreate(&event, 0) || cuEventDestroy(event)) printf("event failed\n");
    called = 1;
    return NULL;
}

static int soon(atomic_int *flag) {
    struct timespec pause = {0, 1000000};
    for (int n = 0; n < 150 && !*flag; n++) nanosleep(&pause, NULL);
    return *flag;
}

/* The places of a copy. */
enum { DEVICE, PAGEABLE, PINNED, MANAGED, PLACES };
static const char *names[] = {"device", "pageable", "pinned", "managed"};

int main(void) {
    static const size_t sizes[] = {64, 4096, 65536, 1 << 20, 16 << 20};
    CUdeviceptr place[2][PLACES];
    CUdevice device;
    if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context)) return 1;
    if (cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) return 1;
    for (int side = 0; side < 2; side++) {
        void *host;
        if (cuMemAlloc(&place[side][DEVICE], 16 << 20) || cuMemAllocManaged(&place[side][MANAGED], 16 << 20, 1)) return 1;
        if (cuMemHostAlloc(&host, 16 << 20, 0)) return 1;
        place[side][PINNED] = (CUdeviceptr)host;
        place[side][PAGEABLE] = (CUdeviceptr)calloc(16, 1 << 20);
    }
    printf("%-9s %-9s %9s %6s  %-22s %s\n", "from", "to", "bytes", "copies", "the copies", "other calls");
    for (int kind = 0; kind < PLACES * PLACES; kind++)
        for (int n = 0; n < 6; n++) {
            pthread_t copier, caller;
            from = place[0][kind / PLACES], to = place[1][kind % PLACES];
            size = n < 5 ? sizes[n] : 4096;
            count = n < 5 ? 1 : 2000;
            released = copied = called = 0;
            if (cuLaunchHostFunc(stream, hold, NULL)) return 1;
            pthread_create(&copier, NULL, copy, NULL);
            int returned = soon(&copied);
            pthread_create(&caller, NULL, call, NULL);
            int went_on = soon(&called);
            printf("%-9s %-9s %9zu %6d  %-22s %s\n", names[kind / PLACES], names[kind % PLACES], size, count,
                   returned ? "return at once" : "wait for earlier work", went_on ? "go on" : "WAIT");
            fflush(stdout);
            released = 1;
            pthread_join(copier, NULL);
            pthread_join(caller, NULL);
            if (cuCtxSynchronize()) return 1;
        }
    return 0;
}
