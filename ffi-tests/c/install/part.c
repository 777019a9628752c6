#include "part.h"

static cudamem_context context;
static cudamem_stream stream;
static cudamem_resource device, pool;

static cudamem_status open_buffer(cudamem_buffer *buffer)
{
    cudamem_status status = cudamem_context_open_primary(0, &context);
    status = status ? status : cudamem_stream_create(context, NULL, &stream);
    status = status ? status : cudamem_resource_create_device(context, &device);
    status = status ? status : cudamem_pool_create(device, NULL, &pool);
    return status ? status : cudamem_buffer_allocate(pool, 4096, stream, buffer);
}

static cudamem_status write_buffer(cudamem_buffer buffer, unsigned char value)
{
    return cudamem_buffer_fill(buffer, 0, CUDAMEM_WHOLE_SIZE, &value, 1);
}

static cudamem_status read_buffer(cudamem_buffer buffer, unsigned char *value)
{
    return cudamem_buffer_read(buffer, 4095, value, 1);
}

static cudamem_status destroy_buffer(cudamem_buffer buffer)
{
    cudamem_status status = cudamem_buffer_destroy(buffer);
    status = status ? status : cudamem_resource_destroy(pool);
    status = status ? status : cudamem_resource_destroy(device);
    status = status ? status : cudamem_stream_destroy(stream);
    return status ? status : cudamem_context_destroy(context);
}

const part *PART(void)
{
    static const part here = {cudamem_version_number, open_buffer,    write_buffer,
                              read_buffer,            destroy_buffer, cudamem_last_error_message};
    return &here;
}
