/* cuCtxSynchronize beside captures of another thread. Raw calls, one GPU. The driver (580.159.04) crashes in
 * cuCtxSynchronize within a second; before that it refuses, and invalidates captures:
 *
 *     gcc -O2 -I/usr/local/cuda/include waits_beside_captures.c -lcuda -lpthread -o waits_beside_captures
 *     ./waits_beside_captures [SECONDS]
 */
#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static CUcontext context;
static atomic_int over;
static atomic_long captures, invalidated, waits, refused;

/* Begins and ends empty captures of a stream of its own. */
static void *capture(void *unused) {
    CUstream stream;
    (void)unused;
    if (cuCtxSetCurrent(context) || cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) return NULL;
    while (!over) {
        CUgraph graph = NULL;
        if (cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED)) continue;
        usleep((unsigned)rand() % 300);
        if (cuStreamEndCapture(stream, &graph)) invalidated++;
        if (graph) cuGraphDestroy(graph);
        captures++;
    }
    cuStreamDestroy(stream);
    return NULL;
}

static void *wait_for_all(void *unused) {
    (void)unused;
    cuCtxSetCurrent(context);
    while (!over) {
        if (cuCtxSynchronize()) refused++;
        waits++;
        usleep(1000);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    CUdevice device;
    time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 5);
    if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device)) return 1;
    pthread_create(&threads[0], NULL, capture, NULL);
    pthread_create(&threads[1], NULL, wait_for_all, NULL);
    while (time(NULL) < end) usleep(10000);
    over = 1;
    for (int n = 0; n < 2; n++) pthread_join(threads[n], NULL);
    printf("%ld captures, %ld of them invalidated; %ld waits, %ld of them refused\n", (long)captures,
           (long)invalidated, (long)waits, (long)refused);
    return 0;
}
