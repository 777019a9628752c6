/* Virtual memory, registered and managed host memory, and graphs. */
#define _GNU_SOURCE
#include "test.h"

#include <unistd.h>

void case_virtual_memory(void)
{
    struct rig rig = rig_open();
    cudamem_resource memory, device;
    cudamem_physical chunk, again;
    OK(cudamem_resource_create_device(rig.context, &device));
    cudamem_virtual_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.flags = CUDAMEM_PHYSICAL_SHAREABLE | CUDAMEM_PHYSICAL_MINIMUM_GRANULARITY;
    cudamem_status status = cudamem_resource_create_virtual(rig.context, &options, &memory);
    if (status == CUDAMEM_ERROR_UNSUPPORTED) {
        printf("skipped: virtual memory: %s\n", cudamem_last_error_message());
        OK(cudamem_resource_destroy(device));
        rig_close(rig);
        return;
    }
    CHECK(status == CUDAMEM_SUCCESS);
    INFO(cudamem_resource_info, info, cudamem_resource_get_info, memory);
    size_t unit = info.granularity, size = 0;
    CHECK(unit >= 4096 && (unit & (unit - 1)) == 0);

    /* The same memory at two addresses. */
    cudamem_physical_options on_device;
    memset(&on_device, 0, sizeof on_device);
    on_device.size = sizeof on_device;
    on_device.flags = CUDAMEM_PHYSICAL_SHAREABLE | CUDAMEM_PHYSICAL_MINIMUM_GRANULARITY;
    OK(cudamem_physical_create(rig.context, 1, &on_device, &chunk));
    OK(cudamem_physical_get_size(chunk, &size));
    CHECK(size == unit);
    cudamem_buffer left, right, growing, part;
    uint64_t one = 0, other = 0;
    char seen[4] = "";
    OK(cudamem_resource_map(memory, &chunk, 1, rig.stream, &left));
    OK(cudamem_resource_map(memory, &chunk, 1, rig.stream, &right));
    OK(cudamem_buffer_get_device_pointer(left, &one));
    OK(cudamem_buffer_get_device_pointer(right, &other));
    OK(cudamem_buffer_write(left, 5, "abc", 4));
    OK(cudamem_buffer_read(right, 5, seen, 4));
    CHECK(one != other && strcmp(seen, "abc") == 0);

    /* Import from a file descriptor, as in another process. */
    int32_t file = -1;
    OK(cudamem_physical_export(chunk, &file));
    OK(cudamem_physical_import(rig.context, file, unit, &again));
    OK(cudamem_physical_get_size(again, &size));
    CHECK(size == unit);
    FAILS(cudamem_physical_import(rig.context, -1, unit, &again), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_physical_destroy(again));
    FAILS(cudamem_resource_map(memory, NULL, 1, rig.stream, &growing), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_resource_map(memory, &chunk, 0, rig.stream, &growing), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_resource_map(memory, &again, 1, rig.stream, &growing), CUDAMEM_ERROR_INVALID_HANDLE);
    FAILS(cudamem_resource_map(device, &chunk, 1, rig.stream, &growing), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_physical_destroy(chunk)); /* the mappings hold it */
    OK(cudamem_buffer_destroy(left));
    OK(cudamem_buffer_read(right, 5, seen, 4));
    CHECK(strcmp(seen, "abc") == 0);
    OK(cudamem_buffer_destroy(right));
    on_device.location = CUDAMEM_LOCATION_HOST;
    on_device.node = 1;
    FAILS(cudamem_physical_create(rig.context, 1, &on_device, &chunk), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_physical_create(rig.context, 0, NULL, &chunk), CUDAMEM_ERROR_INVALID_ARGUMENT);

    /* A buffer that grows in place, then moves. */
    bool moved = true;
    OK(cudamem_buffer_create_growable(memory, 2 * unit, rig.stream, &growing));
    INFO(cudamem_buffer_info, sizes, cudamem_buffer_get_info, growing);
    CHECK(sizes.length == 0 && sizes.capacity == 2 * unit && sizes.physical == 0);
    OK(cudamem_buffer_grow(growing, 100, &moved));
    OK(cudamem_buffer_write(growing, 90, "0123456789", 10));
    FAILS(cudamem_buffer_write(growing, 91, "0123456789", 10), CUDAMEM_ERROR_OUT_OF_RANGE);
    CHECK(!moved);
    OK(cudamem_buffer_get_device_pointer(growing, &one));
    OK(cudamem_buffer_grow(growing, 2 * unit, &moved));
    OK(cudamem_buffer_get_device_pointer(growing, &other));
    CHECK(!moved && one == other);
    OK(cudamem_buffer_grow(growing, 4 * unit, &moved));
    OK(cudamem_buffer_get_info(growing, &sizes));
    CHECK(moved && sizes.physical == 4 * unit);
    char bytes[20];
    OK(cudamem_buffer_read(growing, 90, bytes, 20));
    CHECK(memcmp(bytes, "0123456789\0\0\0\0\0\0\0\0\0\0", 20) == 0);
    OK(cudamem_buffer_shrink(growing, 10));
    OK(buffer_size(growing, &size));
    CHECK(size == 10);
    FAILS(cudamem_buffer_grow(growing, SIZE_MAX, &moved), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_buffer_grow(growing, (size_t)1 << 60, &moved), CUDAMEM_ERROR_OUT_OF_MEMORY);
    OK(cudamem_buffer_fill(growing, 0, 10, "x", 1));
    OK(cudamem_buffer_slice(growing, 0, 5, &part));
    FAILS(cudamem_buffer_grow(growing, 100, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_buffer_read(part, 0, bytes, 5));
    CHECK(memcmp(bytes, "xxxxx", 5) == 0);
    OK(cudamem_buffer_destroy(growing));
    OK(cudamem_buffer_destroy(part));
    OK(cudamem_buffer_create_growable(memory, 1, rig.stream, &growing));
    OK(cudamem_buffer_grow(growing, 3, NULL));
    OK(cudamem_buffer_allocate(device, 100, rig.stream, &left));
    OK(cudamem_buffer_copy(growing, 0, left, 0, 3));
    FAILS(cudamem_buffer_grow(left, 200, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_buffer_create_growable(device, 1, rig.stream, &part), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_buffer_destroy(left));
    OK(cudamem_resource_destroy(memory));
    OK(cudamem_buffer_destroy(growing));

    const int32_t nobody = 99;
    options.peers = &nobody;
    options.peer_count = 1;
    CHECK(cudamem_resource_create_virtual(rig.context, &options, &memory) != CUDAMEM_SUCCESS);
    options.peers = NULL;
    FAILS(cudamem_resource_create_virtual(rig.context, &options, &memory), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options.peer_count = 0;
    options.flags = 8;
    FAILS(cudamem_resource_create_virtual(rig.context, &options, &memory), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_resource_destroy(device));
    rig_close(rig);
}

static void count_release(void *user)
{
    ++*(int *)user;
}

void case_host_memory(void)
{
    enum { SIZE = 3 * 4096 };
    struct rig rig = rig_open();
    cudamem_buffer buffer, twin;
    cudamem_resource device, managed;
    int released = 0;
    unsigned char *own = aligned_alloc(4096, SIZE);
    CHECK(own != NULL);
    pattern(own, SIZE, 1);
    OK(cudamem_resource_create_device(rig.context, &device));

    /* The device fills the program's own memory. */
    OK(cudamem_buffer_register(own, SIZE, rig.stream, 0, count_release, &released, &buffer));
    void *host = NULL;
    OK(cudamem_buffer_get_host_pointer(buffer, &host));
    INFO(cudamem_buffer_info, info, cudamem_buffer_get_info, buffer);
    CHECK(host == own && info.host_pointer == own && info.access == (CUDAMEM_ACCESS_DEVICE | CUDAMEM_ACCESS_HOST));
    CHECK(info.length == SIZE && info.capacity == SIZE && info.physical == 0 && info.device_pointer != 0);
    OK(cudamem_buffer_fill(buffer, 100, 50, "z", 1));
    OK(cudamem_buffer_synchronize(buffer));
    CHECK(own[99] == (unsigned char)(99 * 31 ^ 1) && own[100] == 'z' && own[149] == 'z');
    /* A second registration is refused, and its release callback does not run. */
    FAILS(cudamem_buffer_register(own, SIZE, rig.stream, 0, count_release, &released, &twin), CUDAMEM_ERROR_DRIVER);
    CHECK(cudamem_last_driver_code() != 0);
    OK(cudamem_buffer_slice(buffer, 0, 10, &twin));
    OK(cudamem_buffer_destroy(buffer));
    CHECK(released == 0);
    OK(cudamem_buffer_destroy(twin));
    CHECK(released == 1);
    OK(cudamem_buffer_register(own, SIZE, rig.stream, 0, NULL, NULL, &buffer));
    OK(cudamem_buffer_destroy(buffer));
    FAILS(cudamem_buffer_register(NULL, SIZE, rig.stream, 0, NULL, NULL, &buffer), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_buffer_register(own, 0, rig.stream, 0, NULL, NULL, &buffer), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_buffer_register(own, SIZE_MAX, rig.stream, 0, NULL, NULL, &buffer), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_buffer_register(own, SIZE, rig.stream, 4, NULL, NULL, &buffer), CUDAMEM_ERROR_INVALID_ARGUMENT);
    free(own);

    /* Managed memory and advice. */
    cudamem_status status = cudamem_resource_create_managed(rig.context, 0, &managed);
    if (status == CUDAMEM_SUCCESS) {
        OK(cudamem_buffer_allocate(managed, 1 << 20, rig.stream, &buffer));
        OK(cudamem_buffer_advise(buffer, 0, CUDAMEM_WHOLE_SIZE, CUDAMEM_ADVICE_READ_MOSTLY, 0, 0));
        INFO(cudamem_managed_info, kept, cudamem_buffer_get_managed_info, buffer, 0, CUDAMEM_WHOLE_SIZE);
        CHECK(kept.read_mostly == 1);
        OK(cudamem_buffer_advise(buffer, 0, CUDAMEM_WHOLE_SIZE, CUDAMEM_ADVICE_NOT_READ_MOSTLY, 0, 0));
        OK(cudamem_buffer_get_managed_info(buffer, 0, CUDAMEM_WHOLE_SIZE, &kept));
        CHECK(kept.read_mostly == 0 && kept.prefetched == 0 && kept.location == 0 && kept.number == 0);
        status = cudamem_buffer_prefetch(buffer, 0, CUDAMEM_WHOLE_SIZE, CUDAMEM_LOCATION_DEVICE, 0);
        if (status == CUDAMEM_SUCCESS) {
            OK(cudamem_buffer_synchronize(buffer));
            OK(cudamem_buffer_get_managed_info(buffer, 0, CUDAMEM_WHOLE_SIZE, &kept));
            CHECK(kept.prefetched == 1 && kept.location == CUDAMEM_LOCATION_DEVICE && kept.number == 0);
        } else {
            CHECK(status == CUDAMEM_ERROR_DRIVER || status == CUDAMEM_ERROR_UNSUPPORTED);
            printf("skipped: prefetches: %s\n", cudamem_last_error_message());
        }
        const size_t all = CUDAMEM_WHOLE_SIZE;
        FAILS(cudamem_buffer_prefetch(buffer, 0, all, 4, 0), CUDAMEM_ERROR_INVALID_ARGUMENT);
        FAILS(cudamem_buffer_prefetch(buffer, 0, all, CUDAMEM_LOCATION_HOST, 1), CUDAMEM_ERROR_INVALID_ARGUMENT);
        FAILS(cudamem_buffer_prefetch(buffer, 1, 1 << 20, CUDAMEM_LOCATION_HOST, 0), CUDAMEM_ERROR_OUT_OF_RANGE);
        FAILS(cudamem_buffer_advise(buffer, 0, all, 6, 0, 0), CUDAMEM_ERROR_INVALID_ARGUMENT);
        OK(cudamem_buffer_destroy(buffer));
        OK(cudamem_resource_destroy(managed));
    } else {
        CHECK(status == CUDAMEM_ERROR_UNSUPPORTED);
        printf("skipped: managed memory: %s\n", cudamem_last_error_message());
    }
    OK(cudamem_buffer_allocate(device, 10, rig.stream, &buffer));
    FAILS(cudamem_buffer_discard(buffer, 0, 10), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_buffer_destroy(buffer));
    OK(cudamem_resource_destroy(device));
    rig_close(rig);
}

struct work {
    cudamem_buffer from, to;
    cudamem_resource scratch;
    cudamem_status answer;
};

static cudamem_status copy_through_scratch(cudamem_stream stream, void *user)
{
    struct work *work = user;
    cudamem_buffer scratch;
    if (work->answer != CUDAMEM_SUCCESS) {
        return work->answer;
    }
    OK(cudamem_buffer_allocate(work->scratch, 8, stream, &scratch));
    OK(cudamem_buffer_copy(scratch, 0, work->from, 0, 8));
    OK(cudamem_buffer_copy(work->to, 0, scratch, 0, 8));
    OK(cudamem_buffer_destroy(scratch));
    return CUDAMEM_SUCCESS;
}

void case_graphs(void)
{
    struct rig rig = rig_open();
    cudamem_resource device;
    struct work work = {{0}, {0}, {0}, CUDAMEM_SUCCESS};
    cudamem_graph graph;
    cudamem_executable executable;
    char seen[8] = "";
    size_t nodes = 0;
    OK(cudamem_resource_create_device(rig.context, &device));
    OK(cudamem_resource_create_graph(rig.context, &work.scratch));
    OK(cudamem_buffer_allocate(device, 8, rig.stream, &work.from));
    OK(cudamem_buffer_allocate(device, 8, rig.stream, &work.to));
    FAILS(cudamem_buffer_allocate(work.scratch, 8, rig.stream, &work.to), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_buffer_write(work.to, 0, "before!", 8));
    OK(cudamem_graph_capture(rig.stream, CUDAMEM_CAPTURE_GLOBAL, copy_through_scratch, &work, &graph));
    OK(cudamem_graph_get_node_count(graph, &nodes));
    CHECK(nodes == 4);
    OK(cudamem_buffer_read(work.to, 0, seen, 8));
    CHECK(strcmp(seen, "before!") == 0);
    OK(cudamem_graph_instantiate(graph, CUDAMEM_GRAPH_AUTO_FREE, &executable));
    void *raw = NULL;
    OK(cudamem_get_raw(graph.id, &raw));
    CHECK(raw != NULL);
    OK(cudamem_graph_destroy(graph));
    static const char *const TEXTS[] = {"launch1", "launch2"};
    for (int launch = 0; launch < 2; launch++) {
        OK(cudamem_buffer_write(work.from, 0, TEXTS[launch], 8));
        OK(cudamem_executable_launch(executable, rig.stream));
        OK(cudamem_buffer_read(work.to, 0, seen, 8));
        CHECK(strcmp(seen, TEXTS[launch]) == 0);
    }
    INFO(cudamem_pool_statistics, figures, cudamem_pool_get_statistics, work.scratch);
    CHECK(figures.reserved.current >= figures.active.current && figures.reserved.peak >= figures.reserved.current);
    OK(cudamem_pool_reset_peaks(work.scratch));
    OK(cudamem_executable_destroy(executable));
    OK(cudamem_stream_synchronize(rig.stream));
    OK(cudamem_pool_trim(work.scratch, 0));
    FAILS(cudamem_pool_trim(work.scratch, 1), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_pool_trim(device, 0), CUDAMEM_ERROR_INVALID_ARGUMENT);

    /* A capture whose function fails, and invalid calls. */
    work.answer = CUDAMEM_ERROR_OUT_OF_RANGE;
    const cudamem_record_callback record = copy_through_scratch;
    FAILS(cudamem_graph_capture(rig.stream, 0, record, &work, &graph), CUDAMEM_ERROR_OUT_OF_RANGE);
    FAILS(cudamem_graph_capture(rig.stream, 3, record, &work, &graph), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_graph_capture(rig.stream, 0, NULL, NULL, &graph), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_executable_launch(executable, rig.stream), CUDAMEM_ERROR_INVALID_HANDLE);
    OK(cudamem_stream_synchronize(rig.stream));
    OK(cudamem_buffer_destroy(work.from));
    OK(cudamem_buffer_destroy(work.to));
    OK(cudamem_resource_destroy(work.scratch));
    OK(cudamem_resource_destroy(device));
    rig_close(rig);
}
