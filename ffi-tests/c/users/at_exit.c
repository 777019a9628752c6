/* Destroys global handles late: in atexit, in a destructor function, and in the destructor of thread-specific data. */
#define _GNU_SOURCE
#include <cudamem.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static cudamem_context context;
static cudamem_stream stream;
static cudamem_resource pool;
static cudamem_buffer buffers[2], of_thread;
static pthread_key_t key;

#define NEEDED(call) needed((call), #call)

static void needed(cudamem_status status, const char *what)
{
    if (status != CUDAMEM_SUCCESS) {
        const char *message = cudamem_last_error_message();
        fprintf(stderr, "%s: %s: %s\n", what, cudamem_status_name(status), message ? message : "without a message");
        _exit(3); /* exit must not be called during exit */
    }
}

/* A late failure must be reported like any other. */
static void refused(void)
{
    cudamem_buffer none = {12345};
    if (cudamem_buffer_destroy(none) != CUDAMEM_ERROR_INVALID_HANDLE || cudamem_last_error_message() == NULL ||
        strstr(cudamem_last_error_message(), "is not a handle") == NULL) {
        fprintf(stderr, "a late failure was not reported as CUDAMEM_ERROR_INVALID_HANDLE with a message\n");
        _exit(4);
    }
}

static void use(cudamem_buffer buffer)
{
    char bytes[] = "written late", seen[sizeof bytes];
    NEEDED(cudamem_buffer_write(buffer, 0, bytes, sizeof bytes));
    NEEDED(cudamem_buffer_read(buffer, 0, seen, sizeof seen));
    if (strcmp(bytes, seen) != 0) {
        _exit(5);
    }
}

static void end_of_thread(void *user)
{
    cudamem_buffer *kept = user;
    use(*kept);
    NEEDED(cudamem_buffer_destroy(*kept));
    refused();
    kept->id = 0;
}

static void *thread(void *user)
{
    (void)user;
    refused();
    NEEDED(cudamem_buffer_allocate(pool, 64, stream, &of_thread));
    use(of_thread);
    pthread_setspecific(key, &of_thread);
    return NULL;
}

static void at_exit(void)
{
    refused();
    use(buffers[0]);
    NEEDED(cudamem_buffer_destroy(buffers[0]));
    cudamem_buffer more;
    NEEDED(cudamem_buffer_allocate(pool, 64, stream, &more));
    use(more);
    NEEDED(cudamem_buffer_destroy(more));
    NEEDED(cudamem_stream_synchronize(stream));
}

/* Runs after the functions of atexit. */
__attribute__((destructor)) static void last(void)
{
    if (context.id == 0) {
        return; /* main found no driver */
    }
    NEEDED(cudamem_buffer_destroy(buffers[1]));
    NEEDED(cudamem_resource_destroy(pool));
    NEEDED(cudamem_stream_destroy(stream));
    NEEDED(cudamem_context_destroy(context));
    refused();
    if (of_thread.id != 0) {
        _exit(6);
    }
}

int main(void)
{
    cudamem_resource device;
    if (cudamem_context_open_primary(0, &context) != CUDAMEM_SUCCESS) {
        fprintf(stderr, "%s\n", cudamem_last_error_message());
        return 1;
    }
    NEEDED(cudamem_stream_create(context, NULL, &stream));
    NEEDED(cudamem_resource_create_device(context, &device));
    NEEDED(cudamem_pool_create(device, NULL, &pool));
    NEEDED(cudamem_resource_destroy(device));
    for (int index = 0; index < 2; index++) {
        NEEDED(cudamem_buffer_allocate(pool, 64, stream, &buffers[index]));
    }
    pthread_key_create(&key, end_of_thread);
    pthread_t other;
    pthread_create(&other, NULL, thread, NULL);
    pthread_join(other, NULL);
    atexit(at_exit);
    return 0;
}
