/* Uses only installed files. Parts of it are examples in the documentation. */
#include <cudamem.h>

#include <stdio.h>
#include <string.h>

//! [check]
#define CHECK(call)                                                              \
    do {                                                                         \
        if ((call) != CUDAMEM_SUCCESS) {                                         \
            fprintf(stderr, "%s\n", cudamem_last_error_message());               \
            return 1;                                                            \
        }                                                                        \
    } while (0)
//! [check]

static int use_pool(cudamem_context context)
{
    //! [pool]
    cudamem_stream stream;
    cudamem_resource device, pool;
    cudamem_buffer buffer;
    float sent[256], received[256];
    const float value = 1.5f;

    CHECK(cudamem_stream_create(context, NULL, &stream));
    CHECK(cudamem_resource_create_device(context, &device));
    CHECK(cudamem_pool_create(device, NULL, &pool));
    CHECK(cudamem_buffer_allocate(pool, sizeof sent, stream, &buffer));

    memset(sent, 0, sizeof sent);
    CHECK(cudamem_buffer_write(buffer, 0, sent, sizeof sent));
    CHECK(cudamem_buffer_fill(buffer, 0, 128 * sizeof value, &value, sizeof value));
    CHECK(cudamem_buffer_read(buffer, 0, received, sizeof received));

    CHECK(cudamem_buffer_destroy(buffer)); /* in stream order; the pool keeps the memory */
    CHECK(cudamem_resource_destroy(pool));
    CHECK(cudamem_resource_destroy(device));
    CHECK(cudamem_stream_destroy(stream));
    //! [pool]
    return received[127] == value && received[128] == sent[128] ? 0 : 1;
}

static int use_mapped(cudamem_context context)
{
    //! [mapped]
    cudamem_stream stream;
    cudamem_resource resource;
    cudamem_buffer mapped;
    uint64_t pointer;
    char seen[6];

    CHECK(cudamem_stream_create(context, NULL, &stream));
    CHECK(cudamem_resource_create_mapped(context, CUDAMEM_COHERENCE_PREFERRED, &resource));
    CHECK(cudamem_buffer_allocate(resource, 4096, stream, &mapped));
    CHECK(cudamem_buffer_get_device_pointer(mapped, &pointer)); /* for kernels */
    CHECK(cudamem_buffer_store(mapped, 64, "hello", 6));        /* CPU stores, and a flush if they need one */
    CHECK(cudamem_buffer_read(mapped, 64, seen, 6));     /* what the device sees */
    CHECK(cudamem_buffer_destroy(mapped));
    CHECK(cudamem_resource_destroy(resource));
    CHECK(cudamem_stream_destroy(stream));
    //! [mapped]
    return pointer != 0 && strcmp(seen, "hello") == 0 ? 0 : 1;
}

static int is_refused(void)
{
    //! [refused]
    cudamem_buffer none = {0};
    cudamem_status status = cudamem_buffer_synchronize(none);
    if (status == CUDAMEM_ERROR_INVALID_HANDLE) {
        /* "cudamem_buffer_synchronize: buffer is the null handle, but must be a buffer" */
        puts(cudamem_last_error_message());
    }
    //! [refused]
    return status == CUDAMEM_ERROR_INVALID_HANDLE ? 0 : 1;
}

int main(void)
{
    cudamem_context context;
    if (cudamem_version_number() != CUDAMEM_VERSION_NUMBER) {
        fprintf(stderr, "the header has version %d, the library has %s\n", CUDAMEM_VERSION_NUMBER, cudamem_version());
        return 1;
    }
    CHECK(cudamem_context_open_primary(0, &context));
    if (use_pool(context) != 0 || use_mapped(context) != 0 || is_refused() != 0) {
        return 1;
    }
    CHECK(cudamem_context_destroy(context));
    puts("everything as expected");
    return 0;
}
