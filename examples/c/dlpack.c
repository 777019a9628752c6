/*
 * DLPack exports and imports: arrays go to another library and come from one, and are copied only if necessary.
 *
 * Needs libcudamem, and an NVIDIA GPU or the software GPU: see ../README.md.
 */
#include <cudamem/interchange.h>
#include <cudamem/views.h>

#include <stdio.h>
#include <stdlib.h>

/* The part of dlpack.h that this program needs. Other programs include dlpack.h, before or after these headers. */
typedef struct {
    void *data;
    struct {
        int32_t device_type, device_id;
    } device;
    int32_t ndim;
    cudamem_data_type dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensorVersioned {
    struct {
        uint32_t major, minor;
    } version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;
enum { kDLCPU = 1 };

/* Every function returns a status; the message explains a failure. */
static void check(cudamem_status status)
{
    if (status != CUDAMEM_SUCCESS) {
        fprintf(stderr, "dlpack: %s\n", cudamem_last_error_message());
        exit(1);
    }
}

/* The other library, which only knows tensors. It adds 1 to all numbers of an array of 2 axes, and calls the deleter. */
static void consume(const char *what, DLManagedTensorVersioned *tensor)
{
    const DLTensor *array = &tensor->dl_tensor;
    float sum = 0;
    for (int64_t row = 0; row < array->shape[0]; row++) {
        for (int64_t column = 0; column < array->shape[1]; column++) {
            float *number = (float *)array->data + row * array->strides[0] + column * array->strides[1];
            sum += *number;
            *number += 1;
        }
    }
    printf("%s: the consumer sees %d x %d numbers, whose sum is %g\n", what, (int)array->shape[0], (int)array->shape[1], sum);
    tensor->deleter(tensor);
}

/* It also produces tensors: 3 rows of 2 numbers in its own memory, which its deleter frees. */
struct produced {
    DLManagedTensorVersioned tensor;
    int64_t shape[2], strides[2];
    float numbers[6];
};

static void end_produced(DLManagedTensorVersioned *tensor)
{
    printf("the producer's tensor ends\n");
    free(tensor->manager_ctx);
}

static DLManagedTensorVersioned *produce(void)
{
    struct produced *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return NULL;
    }
    made->tensor.version.major = 1;
    made->tensor.manager_ctx = made;
    made->tensor.deleter = end_produced;
    DLTensor *array = &made->tensor.dl_tensor;
    array->data = made->numbers;
    array->device.device_type = kDLCPU;
    array->ndim = 2;
    array->dtype = CUDAMEM_FLOAT32;
    array->shape = made->shape;
    array->strides = made->strides;
    made->shape[0] = 3, made->shape[1] = 2;
    made->strides[0] = 2, made->strides[1] = 1;
    for (int index = 0; index < 6; index++) {
        made->numbers[index] = (float)(index + 1);
    }
    return &made->tensor;
}

/* A view of 2 rows of 3 numbers in new memory from a resource. Only the view keeps the memory alive. */
static cudamem_view make_view(cudamem_resource resource, cudamem_stream stream)
{
    const int64_t shape[] = {2, 3};
    cudamem_view_layout layout = {0};
    layout.size = sizeof layout;
    layout.data_type = CUDAMEM_FLOAT32;
    layout.ndim = 2;
    layout.shape = shape;
    cudamem_buffer buffer;
    cudamem_view view;
    check(cudamem_buffer_allocate(resource, 6 * sizeof(float), stream, &buffer));
    check(cudamem_view_create(buffer, &layout, &view));
    check(cudamem_buffer_destroy(buffer));
    return view;
}

static void print(const char *what, cudamem_view view)
{
    float numbers[6];
    check(cudamem_view_read(view, numbers, sizeof numbers, NULL));
    printf("%s:", what);
    for (int index = 0; index < 6; index++) {
        printf(" %g", numbers[index]);
    }
    printf("\n");
}

int main(void)
{
    static const float NUMBERS[] = {0, 1, 2, 3, 4, 5};
    cudamem_context context;
    cudamem_stream stream, no_stream = {0};
    cudamem_resource device, pinned;
    check(cudamem_context_open_primary(0, &context));
    check(cudamem_stream_create(context, NULL, &stream));
    check(cudamem_resource_create_device(context, &device));
    check(cudamem_resource_create_pinned(context, 0, &pinned));

    /* Export of memory that the CPU addresses: the consumer uses the same numbers, after our work on them. */
    DLManagedTensorVersioned *tensor;
    cudamem_view view = make_view(pinned, stream), turned;
    check(cudamem_view_write(view, NUMBERS, sizeof NUMBERS, NULL));
    check(cudamem_view_export_dlpack(view, NULL, &tensor, NULL));
    consume("page-locked", tensor);
    print("afterwards", view);
    check(cudamem_view_destroy(view));

    /* Export of device memory to a consumer on the CPU: the consumer gets its own copy. */
    cudamem_dlpack_options options = {0};
    options.size = sizeof options;
    options.device_type = kDLCPU;
    options.resource = pinned;
    view = make_view(device, stream);
    check(cudamem_view_write(view, NUMBERS, sizeof NUMBERS, NULL));
    check(cudamem_view_export_dlpack(view, &options, &tensor, NULL));
    consume("on the device", tensor);
    print("unchanged", view);

    /* Import: a view of the producer's numbers, which we transpose and copy to the device. The library calls the
     * deleter when we destroy the last view. */
    cudamem_view imported;
    const int64_t axes[] = {1, 0};
    tensor = produce();
    check(cudamem_view_import_dlpack(tensor, NULL, stream, no_stream, &imported));
    check(cudamem_view_permute(imported, axes, 2, &turned));
    check(cudamem_view_destroy(imported));
    check(cudamem_view_copy(view, turned, NULL));
    check(cudamem_view_destroy(turned));
    print("on the device, turned", view);

    check(cudamem_view_destroy(view));
    check(cudamem_resource_destroy(pinned));
    check(cudamem_resource_destroy(device));
    check(cudamem_stream_destroy(stream));
    check(cudamem_context_destroy(context));
    return 0;
}
