/* Beginners' mistakes. The library must refuse each call with a message, and change nothing. */
#include <cudamem/adaptors.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSED(call)                                                                                                    \
    do {                                                                                                                 \
        if ((call) == CUDAMEM_SUCCESS || strlen(cudamem_last_error_message()) < 20) {                                    \
            fprintf(stderr, "%d: %s succeeded\n", __LINE__, #call);                                                      \
            exit(1);                                                                                                     \
        }                                                                                                                \
        printf("%s\n", cudamem_last_error_message());                                                                    \
    } while (0)

#define NEEDED(call)                                                                                                     \
    do {                                                                                                                 \
        if ((call) != CUDAMEM_SUCCESS) {                                                                                 \
            fprintf(stderr, "%d: %s\n", __LINE__, cudamem_last_error_message());                                         \
            exit(1);                                                                                                     \
        }                                                                                                                \
    } while (0)

static void release_twice(void *user)
{
    /* Destroys a buffer that is already being destroyed, and queries its size. */
    cudamem_buffer *own = user;
    cudamem_buffer_info info = {0};
    info.size = sizeof info;
    cudamem_buffer_destroy(*own);
    cudamem_buffer_get_info(*own, &info);
    own->id = 1;
}

int main(void)
{
    /* Uninitialized handles, before any library is loaded. */
    cudamem_context context;
    cudamem_stream stream;
    cudamem_resource device, mapped;
    cudamem_buffer buffer, other;
    memset(&context, 0xa5, sizeof context);
    memset(&stream, 0xa5, sizeof stream);
    memset(&device, 0xa5, sizeof device);
    memset(&buffer, 0xa5, sizeof buffer);
    REFUSED(cudamem_context_synchronize(context));
    REFUSED(cudamem_stream_create(context, NULL, &stream));
    REFUSED(cudamem_resource_create_device(context, &device));
    REFUSED(cudamem_buffer_destroy(buffer));

    REFUSED(cudamem_context_open_primary(-1, &context));
    REFUSED(cudamem_context_open_primary(99, &context));
    REFUSED(cudamem_context_borrow(NULL, &context));
    NEEDED(cudamem_context_open_primary(0, &context));
    NEEDED(cudamem_stream_create(context, NULL, &stream));
    NEEDED(cudamem_resource_create_device(context, &device));
    NEEDED(cudamem_buffer_allocate(device, 100, stream, &buffer));

    /* Options that were not zeroed, or have no size. */
    cudamem_stream_options options;
    memset(&options, 0xa5, sizeof options);
    REFUSED(cudamem_stream_create(context, &options, &stream));
    options.size = sizeof options;
    REFUSED(cudamem_stream_create(context, &options, &stream));
    cudamem_pool_options pool_options = {0};
    cudamem_resource pool = {7};
    REFUSED(cudamem_pool_create(device, &pool_options, &pool));
    cudamem_device_info info = {0};
    REFUSED(cudamem_device_get_info(0, &info));

    /* Sizes and offsets beyond the end, also from negative numbers. */
    char bytes[200] = {0};
    REFUSED(cudamem_buffer_write(buffer, 0, bytes, sizeof bytes));
    REFUSED(cudamem_buffer_read(buffer, 101, bytes, 0));
    REFUSED(cudamem_buffer_read(buffer, (size_t)-1, bytes, 1));
    REFUSED(cudamem_buffer_read(buffer, 0, bytes, (size_t)-2));
    REFUSED(cudamem_buffer_copy(buffer, 0, buffer, 0, (size_t)-2));
    REFUSED(cudamem_buffer_fill(buffer, 0, 100, bytes, 3));
    REFUSED(cudamem_buffer_slice(buffer, 50, 51, &other));
    REFUSED(cudamem_buffer_allocate(device, (size_t)-1, stream, &other));
    REFUSED(cudamem_buffer_allocate(device, (size_t)-1 / 2, stream, &other));
    REFUSED(cudamem_buffer_get_host_pointer(buffer, (void **)bytes));

    /* NULL, texts that are not UTF-8, a missing folder, a wrong alignment, a made-up handle. */
    REFUSED(cudamem_buffer_write(buffer, 0, NULL, 10));
    REFUSED(cudamem_resource_create_logging(device, "\xff\xfe", &pool));
    REFUSED(cudamem_resource_create_logging(device, "/no/such/folder/log.csv", &pool));
    REFUSED(cudamem_resource_create_adaptor(device, CUDAMEM_ADAPTOR_ALIGNED, 0, &pool));
    REFUSED(cudamem_resource_create_adaptor(pool, CUDAMEM_ADAPTOR_STATISTICS, 0, &pool));

    /* A resource of the wrong kind: for stores of the CPU, and for a function of an adaptor. */
    NEEDED(cudamem_resource_create_mapped(context, CUDAMEM_COHERENCE_PREFERRED, &mapped));
    cudamem_buffer memory;
    REFUSED(cudamem_buffer_store(buffer, 0, bytes, 1));
    REFUSED(cudamem_buffer_allocate(mapped, (size_t)-1, stream, &memory));
    cudamem_counts counts;
    counts.size = sizeof counts;
    REFUSED(cudamem_resource_get_counts(device, &counts));
    NEEDED(cudamem_buffer_allocate(mapped, 10, stream, &memory));
    uint32_t word;
    REFUSED(cudamem_buffer_load_u32(memory, 8, &word));
    REFUSED(cudamem_buffer_load_u32(memory, 1, &word));
    NEEDED(cudamem_buffer_destroy(memory));
    REFUSED(cudamem_buffer_load_u32(memory, 0, &word));

    /* A release function that destroys its own buffer again. */
    NEEDED(cudamem_buffer_borrow((uint64_t)(uintptr_t)bytes, sizeof bytes, stream, release_twice, &other, &other));
    cudamem_buffer ended = other;
    NEEDED(cudamem_buffer_destroy(ended));
    NEEDED(cudamem_stream_synchronize(stream));
    REFUSED(cudamem_buffer_destroy(ended));

    /* Objects destroyed in the wrong order, and used afterwards. */
    NEEDED(cudamem_context_destroy(context));
    REFUSED(cudamem_context_synchronize(context));
    REFUSED(cudamem_stream_create(context, NULL, &stream));
    NEEDED(cudamem_stream_destroy(stream));
    REFUSED(cudamem_stream_synchronize(stream));
    REFUSED(cudamem_buffer_allocate(device, 100, stream, &other));
    NEEDED(cudamem_buffer_write(buffer, 0, bytes, 100));
    NEEDED(cudamem_buffer_destroy(buffer));
    NEEDED(cudamem_resource_destroy(mapped));
    NEEDED(cudamem_resource_destroy(device));
    return other.id != 1;
}
