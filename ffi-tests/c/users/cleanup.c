/* A careful C program: every handle begins as null, and every failure goes to one place, which destroys all handles.
 * The call with the number FAIL_AT (an environment variable) counts as failed. Without a driver the first call fails. */
#include <cudamem.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int calls, fail_at;

/* Whether a call failed, or counts as failed. Then the program only destroys the result of the call. */
static int failed(cudamem_status status, const char *what)
{
    if (status != CUDAMEM_SUCCESS) {
        fprintf(stderr, "%s: %s: %s\n", what, cudamem_status_name(status), cudamem_last_error_message());
        return 1;
    }
    return ++calls == fail_at;
}

#define TRY(call)                                                                                                        \
    do {                                                                                                                 \
        if (failed((call), #call)) {                                                                                     \
            goto end;                                                                                                    \
        }                                                                                                                \
    } while (0)

int main(void)
{
    cudamem_context context = {0};
    cudamem_stream stream = {0};
    cudamem_event event = {0};
    cudamem_resource device = {0}, pool = {0}, pinned = {0};
    cudamem_buffer buffer = {0}, staging = {0}, part = {0};
    cudamem_text text = {0};
    cudamem_device_info info = {0};
    const char *characters = NULL;
    int result = 1;
    fail_at = getenv("FAIL_AT") ? atoi(getenv("FAIL_AT")) : 0;

    info.size = sizeof info;
    TRY(cudamem_device_get_info(0, &info));
    printf("%s at %s\n", info.name, info.pci_bus_id);
    TRY(cudamem_context_open_primary(0, &context));
    TRY(cudamem_stream_create(context, NULL, &stream));
    TRY(cudamem_event_create(context, CUDAMEM_EVENT_TIMING, &event));
    TRY(cudamem_resource_create_device(context, &device));
    TRY(cudamem_pool_create(device, NULL, &pool));
    TRY(cudamem_resource_create_pinned(context, 0, &pinned));
    TRY(cudamem_buffer_allocate(pool, 4096, stream, &buffer));
    TRY(cudamem_buffer_allocate(pinned, 4096, stream, &staging));
    TRY(cudamem_buffer_slice(buffer, 1024, 1024, &part));
    TRY(cudamem_buffer_fill(staging, 0, CUDAMEM_WHOLE_SIZE, "abcd", 4));
    TRY(cudamem_buffer_copy(part, 0, staging, 0, 1024));
    TRY(cudamem_event_record(event, stream));
    TRY(cudamem_pool_get_snapshot(pool, &text));
    TRY(cudamem_text_get(text, &characters, NULL));
    TRY(cudamem_stream_synchronize(stream));
    char seen[4];
    TRY(cudamem_buffer_read(buffer, 2044, seen, sizeof seen));
    result = memcmp(seen, "abcd", 4) != 0;

end:
    /* The order of these calls must not matter. */
    cudamem_resource_destroy(device);
    cudamem_context_destroy(context);
    cudamem_text_destroy(text);
    cudamem_buffer_destroy(buffer);
    cudamem_resource_destroy(pool);
    cudamem_stream_destroy(stream);
    cudamem_buffer_destroy(part);
    cudamem_event_destroy(event);
    cudamem_resource_destroy(pinned);
    cudamem_buffer_destroy(staging);
    /* A second destroy by mistake. */
    if (staging.id != 0 && cudamem_buffer_destroy(staging) != CUDAMEM_ERROR_INVALID_HANDLE) {
        result = 2;
    }
    printf("%d calls, %d\n", calls, result);
    return result;
}
