/*
 * Memory that the CPU and the device both address: each writes a greeting, and the other reads it.
 *
 * Needs libcudamem, and an NVIDIA GPU or the software GPU: see ../README.md.
 */
#include <cudamem.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Every function returns a status; the message explains a failure. */
static void check(cudamem_status status)
{
    if (status != CUDAMEM_SUCCESS) {
        fprintf(stderr, "hello_mapped: %s\n", cudamem_last_error_message());
        exit(1);
    }
}

static double seconds(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(void)
{
    /* Loads the driver. Without a driver the program still starts, and reports what is missing. */
    uint32_t release = 0;
    check(cudamem_load(NULL, &release));
    cudamem_device_info device = {0};
    device.size = sizeof device;
    check(cudamem_device_get_info(0, &device));
    printf("libcudamem %s, CUDA %u.%u: %s\n", cudamem_version(), release / 1000, release % 1000 / 10, device.name);

    cudamem_context context;
    cudamem_resource resource;
    cudamem_buffer memory;
    cudamem_stream stream;
    cudamem_buffer_info info = {0};
    info.size = sizeof info;
    check(cudamem_context_open_primary(0, &context));
    check(cudamem_stream_create(context, NULL, &stream));
    check(cudamem_resource_create_mapped(context, CUDAMEM_COHERENCE_PREFERRED, &resource));
    check(cudamem_buffer_allocate(resource, 4096, stream, &memory));
    check(cudamem_buffer_get_info(memory, &info));
    printf("4096 bytes of the device's memory, which the CPU addresses too, %s\n", info.atom == 1 ? "coherent" : "non-coherent");

    /* Stores by the CPU; the device's copy engine reads. */
    char seen[64];
    const char *words = "Hello from the CPU";
    check(cudamem_buffer_store(memory, 0, words, strlen(words) + 1));
    check(cudamem_buffer_read(memory, 0, seen, strlen(words) + 1));
    printf("the device sees: %s\n", seen);

    /* The other direction, outside of the CPU's atoms: an atom of non-coherent memory has at most 256 bytes. */
    words = "Hello from the device";
    check(cudamem_buffer_write(memory, 1024, words, strlen(words) + 1));
    check(cudamem_buffer_load(memory, 1024, seen, strlen(words) + 1));
    printf("the CPU sees:    %s\n", seen);

    /* A flag: a running kernel sees each store as soon as it arrives. */
    enum { COUNT = 100000 };
    const double start = seconds();
    for (uint32_t number = 1; number <= COUNT; number++) {
        check(cudamem_buffer_store_u32(memory, 2048, number));
    }
    const double each = (seconds() - start) / COUNT;
    uint32_t last = 0;
    check(cudamem_buffer_read(memory, 2048, &last, sizeof last));
    printf("flag %u, set and flushed in %.3f us\n", last, each * 1e6);

    /* Any order is fine: objects in use stay alive. */
    check(cudamem_buffer_destroy(memory));
    check(cudamem_resource_destroy(resource));
    check(cudamem_stream_destroy(stream));
    check(cudamem_context_destroy(context));
    return 0;
}
