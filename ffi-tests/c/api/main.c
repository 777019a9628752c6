#define _GNU_SOURCE
#include "software.h"
#include "test.h"

static const struct {
    const char *name;
    void (*run)(void);
} CASES[] = {
    {"library", case_library},   {"devices", case_devices},     {"streams", case_streams},
    {"callbacks", case_callbacks}, {"waits", case_waits},
    {"foreign", case_foreign},   {"mapped", case_mapped},       {"resources", case_resources},
    {"pools", case_pools},       {"sleep", case_sleep},       {"out_of_memory", case_out_of_memory}, {"addresses", case_addresses},
    {"buffers", case_buffers},   {"slices", case_slices},       {"borrowed", case_borrowed},
    {"engine", case_engine},     {"handles", case_handles},     {"arguments", case_arguments},
    {"options", case_options},   {"threads", case_threads},
    {"data_types", case_data_types}, {"views", case_views},   {"view_copies", case_view_copies},
    {"view_misuse", case_view_misuse}, {"dlpack", case_dlpack}, {"dlpack_misuse", case_dlpack_misuse},
    {"array_interfaces", case_array_interfaces}, {"arrow", case_arrow}, {"arrow_misuse", case_arrow_misuse},
    {"flags", case_flags},       {"rings", case_rings},         {"signal_ends", case_signal_ends}, {"frames", case_frames},
    {"adaptors", case_adaptors},
    {"ring_pools", case_ring_pools},                            {"virtual_memory", case_virtual_memory},
    {"host_memory", case_host_memory},                          {"graphs", case_graphs},
    {"copies", case_copies},     {"faults", case_faults},
    {"sharing", case_sharing},   {"exports", case_exports},     {"channels", case_channels},
};

const char *program_path;

static int drop_errors;

static void on_drop_error(cudamem_status status, const char *message, void *user)
{
    (void)user;
    fprintf(stderr, "drop error %d: %s\n", status, message);
    drop_errors++;
}

static void run_case(const char *name)
{
    for (size_t index = 0; index < sizeof CASES / sizeof CASES[0]; index++) {
        if (strcmp(name, CASES[index].name) == 0) {
            OK(cudamem_set_drop_error_callback(on_drop_error, NULL));
            CASES[index].run();
            CHECK(drop_errors == 0);
            check_ledger();
            return;
        }
    }
    fprintf(stderr, "unknown case: %s\n", name);
    exit(2);
}

cudamem_status buffer_size(cudamem_buffer buffer, size_t *size)
{
    cudamem_buffer_info info;
    info.size = sizeof info;
    cudamem_status status = cudamem_buffer_get_info(buffer, &info);
    if (status == CUDAMEM_SUCCESS) {
        *size = info.length;
    }
    return status;
}

cudamem_signals signals_open(struct rig rig)
{
    cudamem_signals signals;
    OK(cudamem_signals_create(rig.context, NULL, &signals));
    return signals;
}

int main(int count, char **arguments)
{
    program_path = arguments[0];
    for (size_t index = 0; count < 2 && index < sizeof CASES / sizeof CASES[0]; index++) {
        puts(CASES[index].name);
    }
    for (int index = 1; index < count; index++) {
        run_case(arguments[index]);
    }
    return 0;
}

struct rig rig_open(void)
{
    struct rig rig;
    OK(cudamem_context_open_primary(0, &rig.context));
    OK(cudamem_stream_create(rig.context, NULL, &rig.stream));
    return rig;
}

void rig_close(struct rig rig)
{
    OK(cudamem_stream_destroy(rig.stream));
    OK(cudamem_context_destroy(rig.context));
}

/* Stores a resource, or the null handle if the device does not support it. */
static void take(struct source *source, const char *name, cudamem_status status, cudamem_resource resource)
{
    CHECK(status == CUDAMEM_SUCCESS || status == CUDAMEM_ERROR_UNSUPPORTED);
    source->name = name;
    if (status == CUDAMEM_SUCCESS) {
        source->resource = resource;
    } else {
        source->resource.id = 0;
        printf("skipped: %s: %s\n", name, cudamem_last_error_message());
    }
}

void sources_open(struct rig rig, struct source sources[SOURCES])
{
    cudamem_resource made = {0};
    cudamem_status status = cudamem_resource_create_device(rig.context, &made);
    take(&sources[0], "device", status, made);
    status = cudamem_resource_create_pinned(rig.context, 0, &made);
    take(&sources[1], "pinned", status, made);
    status = cudamem_resource_create_managed(rig.context, 0, &made);
    take(&sources[2], "managed", status, made);
    status = cudamem_resource_create_mapped(rig.context, CUDAMEM_COHERENCE_PREFERRED, &made);
    take(&sources[3], "mapped", status, made);
    cudamem_driver_pool_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    static const char *const NAMES[] = {"device pool", "pinned pool", "managed pool"};
    for (int memory = CUDAMEM_MEMORY_DEVICE; memory <= CUDAMEM_MEMORY_MANAGED; memory++) {
        options.memory = memory;
        status = cudamem_resource_create_driver_pool(rig.context, &options, &made);
        take(&sources[4 + memory], NAMES[memory], status, made);
    }
    status = cudamem_pool_create(sources[0].resource, NULL, &made);
    take(&sources[7], "pool of device memory", status, made);
    status = cudamem_pool_create(sources[1].resource, NULL, &made);
    take(&sources[8], "pool of pinned memory", status, made);
}

void sources_close(struct source sources[SOURCES])
{
    for (int index = 0; index < SOURCES; index++) {
        OK(cudamem_resource_destroy(sources[index].resource));
    }
}

void pattern(unsigned char *bytes, size_t size, unsigned seed)
{
    for (size_t index = 0; index < size; index++) {
        bytes[index] = (unsigned char)((index * 31) ^ (index >> 8) ^ seed);
    }
}

cudamem_resource shareable_pool(struct rig rig)
{
    cudamem_resource pool = {0};
    cudamem_driver_pool_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.flags = CUDAMEM_DRIVER_POOL_SHAREABLE;
    cudamem_status status = cudamem_resource_create_driver_pool(rig.context, &options, &pool);
    CHECK(status == CUDAMEM_SUCCESS || status == CUDAMEM_ERROR_UNSUPPORTED);
    return pool;
}
