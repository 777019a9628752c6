/* Exchange of memory with other libraries: DLPack and the array interfaces. */
#include "foreign.h"
#include "test.h"

static const cudamem_data_type INT32 = {CUDAMEM_TYPE_INT, 32, 1};

cudamem_view numbers_in(cudamem_resource resource, cudamem_stream stream, int32_t numbers[24])
{
    cudamem_buffer buffer;
    cudamem_view view;
    cudamem_view_layout layout;
    const int64_t shape[] = {4, 6};
    memset(&layout, 0, sizeof layout);
    layout.size = sizeof layout, layout.data_type = INT32, layout.ndim = 2, layout.shape = shape;
    for (int index = 0; index < 24; index++) {
        numbers[index] = index * 7;
    }
    OK(cudamem_buffer_allocate(resource, 96, stream, &buffer));
    OK(cudamem_view_create(buffer, &layout, &view));
    OK(cudamem_buffer_destroy(buffer));
    OK(cudamem_view_write(view, numbers, 96, NULL));
    return view;
}

/* Every other column, with the rows in reverse order. */
static cudamem_view part_of(cudamem_view view)
{
    const cudamem_index indices[] = {{CUDAMEM_INDEX_OPEN, CUDAMEM_INDEX_OPEN, -1}, {1, CUDAMEM_INDEX_OPEN, 2}};
    cudamem_view part;
    OK(cudamem_view_slice(view, indices, 2, &part));
    return part;
}

static cudamem_dlpack_options dlpack_options(void)
{
    cudamem_dlpack_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    return options;
}

static cudamem_view_info info_of(cudamem_view view)
{
    cudamem_view_info info;
    info.size = sizeof info;
    OK(cudamem_view_get_info(view, &info));
    return info;
}

static int ends;

/* A tensor of another library. */
struct producer {
    struct DLManagedTensorVersioned tensor;
    int64_t shape[3];
    int32_t numbers[12];
};

static void end_tensor(struct DLManagedTensorVersioned *tensor)
{
    ends++;
    free(tensor->manager_ctx);
}

static struct DLManagedTensorVersioned *foreign_tensor(void)
{
    struct producer *made = calloc(1, sizeof *made);
    CHECK(made != NULL);
    made->tensor.version.major = 1, made->tensor.version.minor = 1;
    made->tensor.manager_ctx = made, made->tensor.deleter = end_tensor;
    made->tensor.tensor.data = made->numbers;
    made->tensor.tensor.device.type = ON_CPU;
    made->tensor.tensor.ndim = 3;
    made->tensor.tensor.type.code = CUDAMEM_TYPE_INT, made->tensor.tensor.type.bits = 32, made->tensor.tensor.type.lanes = 1;
    made->tensor.tensor.shape = made->shape;
    made->shape[0] = 2, made->shape[1] = 3, made->shape[2] = 2;
    for (int index = 0; index < 12; index++) {
        made->numbers[index] = 100 + index;
    }
    return &made->tensor;
}

void case_dlpack(void)
{
    struct rig rig = rig_open();
    struct source sources[SOURCES];
    sources_open(rig, sources);
    cudamem_stream theirs, null_stream = {0};
    void *raw = NULL;
    OK(cudamem_stream_create(rig.context, NULL, &theirs));
    OK(cudamem_get_raw(theirs.id, &raw));
    int32_t numbers[24], seen[24];
    for (int index = 0; index < SOURCES; index++) {
        if (sources[index].resource.id == 0) {
            continue;
        }
        cudamem_view whole = numbers_in(sources[index].resource, rig.stream, numbers), view = part_of(whole), again;
        cudamem_view_info info = info_of(view);
        struct DLManagedTensorVersioned *tensor = NULL;
        cudamem_dlpack_options options = dlpack_options();
        const int64_t streams[] = {0, 1, -1, (int64_t)(intptr_t)raw};
        for (size_t stream = 0; stream < 4; stream++) {
            options.stream = streams[stream];
            options.release = (int32_t)stream % 3;
            options.flags = stream == 1 ? CUDAMEM_DLPACK_READ_ONLY : CUDAMEM_DLPACK_NO_COPY;
            OK(cudamem_view_export_dlpack(view, &options, &tensor, NULL));
            CHECK(tensor->version.major == 1 && tensor->flags == (stream == 1 ? 1u : 0u));
            const struct tensor *said = &tensor->tensor;
            CHECK(said->ndim == 2 && said->shape[0] == 4 && said->shape[1] == 3);
            CHECK(said->strides[0] == -6 && said->strides[1] == 2);
            CHECK(said->type.code == CUDAMEM_TYPE_INT && said->type.bits == 32 && said->type.lanes == 1);
            if (said->device.type == ON_CUDA || said->device.type == ON_CUDA_MANAGED) {
                CHECK((uint64_t)(uintptr_t)said->data + said->byte_offset == info.device_pointer);
            } else {
                CHECK(said->device.type == ON_CUDA_HOST && said->data == info.host_pointer);
            }
            /* Import, ordered on another stream, with and without a stream of the producer. */
            OK(cudamem_view_import_dlpack(tensor, NULL, theirs, stream == 2 ? rig.stream : null_stream, &again));
            CHECK(((info_of(again).flags & CUDAMEM_VIEW_READ_ONLY) != 0) == (stream == 1));
            OK(cudamem_view_read(again, seen, 48, NULL));
            for (int row = 0; row < 4; row++) {
                for (int column = 0; column < 3; column++) {
                    CHECK(seen[row * 3 + column] == numbers[(3 - row) * 6 + 1 + 2 * column]);
                }
            }
            OK(cudamem_view_destroy(again));
        }
        /* The consumer writes the same memory, and its view outlives the exported one. */
        OK(cudamem_view_export_dlpack(whole, NULL, &tensor, NULL));
        OK(cudamem_view_destroy(view));
        OK(cudamem_view_import_dlpack(tensor, NULL, rig.stream, null_stream, &again));
        memset(seen, 0x11, sizeof seen);
        OK(cudamem_view_write(again, seen, sizeof seen, NULL));
        OK(cudamem_view_destroy(again));
        OK(cudamem_view_read(whole, numbers, sizeof numbers, NULL));
        CHECK(memcmp(numbers, seen, sizeof seen) == 0);
        OK(cudamem_view_export_dlpack(whole, NULL, &tensor, NULL));
        OK(cudamem_view_destroy(whole));
        tensor->deleter(tensor);

        /* The legacy struct. */
        struct DLManagedTensor *legacy = NULL;
        whole = numbers_in(sources[index].resource, rig.stream, numbers);
        OK(cudamem_view_export_dlpack(whole, NULL, NULL, &legacy));
        CHECK(legacy->tensor.ndim == 2);
        OK(cudamem_view_import_dlpack(NULL, legacy, rig.stream, null_stream, &again));
        OK(cudamem_view_destroy(whole));
        OK(cudamem_view_read(again, seen, sizeof seen, NULL));
        CHECK(memcmp(numbers, seen, sizeof seen) == 0);
        OK(cudamem_view_destroy(again));
    }
    /* A copy for the CPU, which only the consumer owns. */
    cudamem_view view = numbers_in(sources[0].resource, rig.stream, numbers);
    cudamem_dlpack_options options = dlpack_options();
    struct DLManagedTensorVersioned *tensor = NULL;
    options.device_type = ON_CPU;
    FAILS(cudamem_view_export_dlpack(view, &options, &tensor, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options.resource = sources[1].resource;
    OK(cudamem_view_export_dlpack(view, &options, &tensor, NULL));
    CHECK(tensor->flags == 2 && tensor->tensor.device.type == ON_CPU);
    CHECK(memcmp(tensor->tensor.data, numbers, sizeof numbers) == 0);
    OK(cudamem_view_destroy(view));
    tensor->deleter(tensor);

    /* Another library's tensor in host memory. */
    cudamem_view part;
    cudamem_buffer buffer;
    OK(cudamem_view_import_dlpack(foreign_tensor(), NULL, rig.stream, null_stream, &view));
    CHECK(info_of(view).ndim == 3 && info_of(view).elements == 12);
    OK(cudamem_view_slice(view, (const cudamem_index[]){{1, 0, 0}}, 1, &part));
    OK(cudamem_view_destroy(view));
    OK(cudamem_view_read(part, seen, 24, NULL));
    CHECK(seen[0] == 106 && seen[5] == 111 && ends == 0);
    OK(cudamem_view_get_buffer(part, &buffer));
    OK(cudamem_view_destroy(part));
    CHECK(ends == 0);
    OK(cudamem_buffer_destroy(buffer));
    CHECK(ends == 1);
    OK(cudamem_stream_destroy(theirs));
    sources_close(sources);
    rig_close(rig);
}

void case_dlpack_misuse(void)
{
    struct rig rig = rig_open();
    cudamem_stream null_stream = {0};
    cudamem_resource device;
    cudamem_view none = {5}, view, host;
    struct DLManagedTensorVersioned *tensor = foreign_tensor(), untouched, *result = &untouched;
    int32_t numbers[24];
    ends = 0;
    OK(cudamem_resource_create_device(rig.context, &device));
    view = numbers_in(device, rig.stream, numbers);

    /* After a failed import the program still owns the tensor. */
    FAILS(cudamem_view_import_dlpack(NULL, NULL, rig.stream, null_stream, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_import_dlpack(NULL, NULL, rig.stream, null_stream, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_import_dlpack(tensor, NULL, null_stream, null_stream, &none), CUDAMEM_ERROR_INVALID_HANDLE);
    FAILS(cudamem_view_import_dlpack(tensor, NULL, rig.stream, (cudamem_stream){view.id}, &none), CUDAMEM_ERROR_INVALID_HANDLE);
    FAILS(cudamem_view_import_dlpack(tensor, NULL, rig.stream, null_stream, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_import_dlpack((struct DLManagedTensorVersioned *)((char *)tensor + 1), NULL, rig.stream, null_stream, &none),
          CUDAMEM_ERROR_INVALID_ARGUMENT);
    tensor->version.major = 2;
    FAILS(cudamem_view_import_dlpack(tensor, NULL, rig.stream, null_stream, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    tensor->version.major = 1;
    tensor->tensor.shape[1] = -3;
    FAILS(cudamem_view_import_dlpack(tensor, NULL, rig.stream, null_stream, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    tensor->tensor.shape[1] = 3;
    tensor->tensor.ndim = 65;
    FAILS(cudamem_view_import_dlpack(tensor, NULL, rig.stream, null_stream, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    tensor->tensor.ndim = 3;
    tensor->flags = 1u << 9;
    FAILS(cudamem_view_import_dlpack(tensor, NULL, rig.stream, null_stream, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    tensor->flags = 0;
    tensor->tensor.device.type = ON_CUDA; /* the memory is the host's */
    CHECK(cudamem_view_import_dlpack(tensor, NULL, rig.stream, null_stream, &none) != CUDAMEM_SUCCESS);
    tensor->tensor.device.type = 10; /* ROCm */
    FAILS(cudamem_view_import_dlpack(tensor, NULL, rig.stream, null_stream, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    tensor->tensor.device.type = ON_CPU;
    CHECK(ends == 0 && none.id == 5);
    tensor->deleter(tensor);
    CHECK(ends == 1);

    /* Invalid options. */
    cudamem_dlpack_options options = dlpack_options();
    struct DLManagedTensor *legacy = NULL;
    FAILS(cudamem_view_export_dlpack(view, &options, NULL, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_export_dlpack(view, &options, &result, &legacy), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options.size = 1;
    FAILS(cudamem_view_export_dlpack(view, &options, &result, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options = dlpack_options(), options.flags = 8;
    FAILS(cudamem_view_export_dlpack(view, &options, &result, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options.flags = CUDAMEM_DLPACK_COPY | CUDAMEM_DLPACK_NO_COPY;
    FAILS(cudamem_view_export_dlpack(view, &options, &result, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options.flags = CUDAMEM_DLPACK_COPY;
    FAILS(cudamem_view_export_dlpack(view, &options, &result, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT); /* no resource */
    options = dlpack_options(), options.release = 3;
    FAILS(cudamem_view_export_dlpack(view, &options, &result, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options = dlpack_options(), options.stream = -2;
    FAILS(cudamem_view_export_dlpack(view, &options, &result, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options = dlpack_options(), options.device_type = 99;
    FAILS(cudamem_view_export_dlpack(view, &options, &result, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options = dlpack_options(), options.resource.id = view.id;
    FAILS(cudamem_view_export_dlpack(view, &options, &result, NULL), CUDAMEM_ERROR_INVALID_HANDLE);
    options = dlpack_options(), options.flags = CUDAMEM_DLPACK_READ_ONLY;
    FAILS(cudamem_view_export_dlpack(view, &options, NULL, &legacy), CUDAMEM_ERROR_INVALID_ARGUMENT);
    cudamem_view_layout layout = {0};
    const int64_t shape[] = {24};
    layout.size = sizeof layout, layout.data_type = INT32, layout.ndim = 1, layout.shape = shape;
    OK(cudamem_view_borrow_host(numbers, sizeof numbers, &layout, NULL, NULL, &host));
    FAILS(cudamem_view_export_dlpack(host, NULL, &result, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_view_destroy(host));
    OK(cudamem_view_destroy(view));
    FAILS(cudamem_view_export_dlpack(view, NULL, &result, NULL), CUDAMEM_ERROR_INVALID_HANDLE);
    CHECK(result == &untouched && legacy == NULL);
    OK(cudamem_resource_destroy(device));
    rig_close(rig);
}

static void on_release(void *user)
{
    ++*(int *)user;
}

char *take_text(cudamem_text text)
{
    const char *characters;
    OK(cudamem_text_get(text, &characters, NULL));
    char *taken = malloc(strlen(characters) + 1);
    CHECK(taken != NULL);
    strcpy(taken, characters);
    OK(cudamem_text_destroy(text));
    return taken;
}

void case_array_interfaces(void)
{
    struct rig rig = rig_open();
    struct source sources[SOURCES];
    sources_open(rig, sources);
    cudamem_stream theirs;
    OK(cudamem_stream_create(rig.context, NULL, &theirs));
    cudamem_text none = {5}, text;
    cudamem_view nothing = {5};
    int released = 0, imports = 0;
    int32_t numbers[24], seen[12];
    for (int index = 0; index < SOURCES; index++) {
        if (sources[index].resource.id == 0) {
            continue;
        }
        cudamem_view whole = numbers_in(sources[index].resource, rig.stream, numbers), view = part_of(whole), again;
        uint32_t access = info_of(view).access;
        OK(cudamem_view_export_array_interface(view, 0, &text));
        char *json = take_text(text);
        CHECK(strstr(json, "\"typestr\":\"<i4\"") != NULL && strstr(json, "\"strides\":[-24,8]") != NULL);
        for (uint32_t flags = 0; flags <= CUDAMEM_ARRAY_INTERFACE_ORDERED; flags += 2) {
            OK(cudamem_view_import_array_interface(json, flags, theirs, on_release, &released, &again));
            imports++;
            OK(cudamem_view_read(again, seen, sizeof seen, NULL));
            CHECK(seen[0] == numbers[19] && seen[11] == numbers[5]);
            OK(cudamem_view_destroy(again));
            OK(cudamem_stream_synchronize(theirs));
            CHECK(released == imports);
        }
        free(json);
        if (access & CUDAMEM_ACCESS_HOST && strcmp(sources[index].name, "mapped") != 0) {
            OK(cudamem_view_export_array_interface(view, CUDAMEM_ARRAY_INTERFACE_NUMPY, &text));
            json = take_text(text);
            CHECK(strstr(json, "\"stream\"") == NULL);
            OK(cudamem_view_import_array_interface(json, CUDAMEM_ARRAY_INTERFACE_NUMPY, rig.stream, on_release, &released, &again));
            imports++;
            OK(cudamem_view_read(again, seen, sizeof seen, NULL));
            CHECK(seen[0] == numbers[19] && seen[11] == numbers[5]);
            OK(cudamem_view_destroy(again));
            CHECK(released == imports);
            free(json);
        } else if (!(access & CUDAMEM_ACCESS_HOST)) {
            FAILS(cudamem_view_export_array_interface(view, CUDAMEM_ARRAY_INTERFACE_NUMPY, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
        }
        OK(cudamem_view_destroy(view));
        OK(cudamem_view_destroy(whole));
    }
    static const char *const WRONG[] = {
        NULL, "", "{}", "[1", "{\"shape\":[2],\"typestr\":\"<f4\",\"data\":[0,false],\"version\":3}",
        "{\"shape\":[-2],\"typestr\":\"<f4\",\"data\":[4096,false],\"version\":3}",
        "{\"shape\":[2],\"typestr\":\">f4\",\"data\":[4096,false],\"version\":3}",
        "{\"shape\":[2],\"typestr\":\"<f4\",\"data\":[4096,false],\"version\":-2}",
        "{\"shape\":[2],\"typestr\":\"<f4\",\"data\":[4096,false],\"version\":3,\"stream\":0}",
        "{\"shape\":[2],\"typestr\":\"<f4\",\"data\":[4096,false],\"version\":3,\"strides\":[3]}",
    };
    for (size_t index = 0; index < sizeof WRONG / sizeof WRONG[0]; index++) {
        FAILS(cudamem_view_import_array_interface(WRONG[index], 0, theirs, on_release, &released, &nothing),
              CUDAMEM_ERROR_INVALID_ARGUMENT);
        FAILS(cudamem_view_import_array_interface(WRONG[index], CUDAMEM_ARRAY_INTERFACE_NUMPY, theirs, on_release, &released, &nothing),
              CUDAMEM_ERROR_INVALID_ARGUMENT);
    }
    FAILS(cudamem_view_import_array_interface("{}", 4, theirs, NULL, NULL, &nothing), CUDAMEM_ERROR_INVALID_ARGUMENT);
    cudamem_view null_view = {0};
    FAILS(cudamem_view_export_array_interface(null_view, 0, &none), CUDAMEM_ERROR_INVALID_HANDLE);
    CHECK(released == imports && none.id == 5 && nothing.id == 5);
    OK(cudamem_stream_destroy(theirs));
    sources_close(sources);
    rig_close(rig);
}
