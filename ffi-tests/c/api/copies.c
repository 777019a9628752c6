/* Copy engines: options, copies in stream order, copies of many pieces, complete writes. */
#define _GNU_SOURCE
#include "test.h"

#include <unistd.h>

enum { SIZE = 300000 };
static unsigned char bytes[SIZE], seen[SIZE];

static void profiles(struct rig rig)
{
    cudamem_engine_options options;
    cudamem_engine engine, other;
    cudamem_text json, again;
    const char *characters = NULL, *same = NULL;
    size_t staging = 99;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.threads = 2;
    options.slot_size = 4096;
    options.slots = 2;
    options.lanes = 1;
    OK(cudamem_engine_create(rig.context, &options, &engine));
    OK(cudamem_engine_get_profile(engine, &json));
    OK(cudamem_text_get(json, &characters, NULL));
    CHECK(strstr(characters, "\"routes\"") != NULL);
    options.profile = characters;
    OK(cudamem_engine_create(rig.context, &options, &other));
    OK(cudamem_engine_set_profile(engine, characters));
    OK(cudamem_engine_get_profile(other, &again));
    OK(cudamem_text_get(again, &same, NULL));
    CHECK(strcmp(characters, same) == 0);
    OK(cudamem_engine_get_staging(engine, &staging));
    CHECK(staging == 0);
    OK(cudamem_engine_trim(engine));
    OK(cudamem_engine_destroy(other));
    FAILS(cudamem_engine_set_profile(engine, "{}"), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_engine_set_profile(engine, NULL)); /* the typical profile */
    options.profile = "no json";
    FAILS(cudamem_engine_create(rig.context, &options, &other), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options.profile = NULL;
    options.threads = 65;
    FAILS(cudamem_engine_create(rig.context, &options, &other), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options.threads = 0;
    options.flags = 8;
    FAILS(cudamem_engine_create(rig.context, &options, &other), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_text_destroy(json));
    OK(cudamem_text_destroy(again));
    OK(cudamem_engine_destroy(engine));
}

/* Buffers from files, by memory of every source. There is a buffer only after a complete read. */
static void files(struct rig rig, cudamem_engine engine)
{
    struct source sources[SOURCES];
    cudamem_buffer buffer;
    FILE *file = tmpfile();
    int ends[2];
    CHECK(file != NULL && pipe(ends) == 0);
    const int number = fileno(file);
    pattern(bytes, SIZE, 5);
    CHECK(fwrite(bytes, 1, SIZE, file) == SIZE && fflush(file) == 0);
    sources_open(rig, sources);
    for (int index = 0; index < SOURCES; index++) {
        if (sources[index].resource.id == 0) {
            continue;
        }
        const cudamem_resource resource = sources[index].resource;
        static const size_t OFFSETS[] = {0, 1, 4096, SIZE - 3, SIZE};
        for (size_t at = 0; at < sizeof OFFSETS / sizeof OFFSETS[0]; at++) {
            const size_t size = SIZE - OFFSETS[at];
            OK(cudamem_engine_read_file(engine, number, OFFSETS[at], size, resource, rig.stream, &buffer));
            OK(cudamem_buffer_read(buffer, 0, seen, size));
            CHECK(memcmp(bytes + OFFSETS[at], seen, size) == 0);
            OK(cudamem_buffer_destroy(buffer));
        }
        buffer.id = 3;
        FAILS(cudamem_engine_read_file(engine, number, 1, SIZE, resource, rig.stream, &buffer), CUDAMEM_ERROR_OUT_OF_RANGE);
        FAILS(cudamem_engine_read_file(engine, number, UINT64_MAX, 1, resource, rig.stream, &buffer), CUDAMEM_ERROR_OUT_OF_RANGE);
        FAILS(cudamem_engine_read_file(engine, -1, 0, 1, resource, rig.stream, &buffer), CUDAMEM_ERROR_INVALID_ARGUMENT);
        FAILS(cudamem_engine_read_file(engine, ends[0], 0, 1, resource, rig.stream, &buffer), CUDAMEM_ERROR_INVALID_ARGUMENT);
        FAILS(cudamem_engine_read_file(engine, 1 << 20, 0, 1, resource, rig.stream, &buffer), CUDAMEM_ERROR_SYSTEM);
        FAILS(cudamem_engine_read_file(engine, number, 0, 1, resource, rig.stream, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
        CHECK(buffer.id == 3);
    }
    sources_close(sources);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0 && fclose(file) == 0);
}

/* Every method of copying, on memory of every source. A source may refuse some methods. */
static void methods(struct rig rig, cudamem_engine engine)
{
    struct source sources[SOURCES];
    cudamem_copy_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    sources_open(rig, sources);
    for (int index = 0; index < SOURCES; index++) {
        if (sources[index].resource.id == 0) {
            continue;
        }
        cudamem_buffer buffer;
        int served = 0;
        OK(cudamem_buffer_allocate(sources[index].resource, SIZE, rig.stream, &buffer));
        for (int32_t method = CUDAMEM_METHOD_CHOSEN; method <= CUDAMEM_METHOD_REGISTERED; method++) {
            options.method = method;
            options.host = CUDAMEM_HOST_PAGEABLE;
            const bool threaded = method == CUDAMEM_METHOD_CPU || method == CUDAMEM_METHOD_STAGED || method == CUDAMEM_METHOD_MIXED;
            options.threads = threaded ? 2 : 0;
            options.staging_threads = method == CUDAMEM_METHOD_MIXED ? 1 : 0;
            pattern(bytes, SIZE, (unsigned)(index * 10 + method));
            cudamem_status status = cudamem_engine_write_buffer(engine, buffer, 0, bytes, SIZE, &options);
            CHECK(status == CUDAMEM_SUCCESS || status == CUDAMEM_ERROR_INVALID_ARGUMENT);
            served += status == CUDAMEM_SUCCESS;
            if (status == CUDAMEM_SUCCESS) {
                memset(seen, 0, SIZE);
                options.method = method == CUDAMEM_METHOD_MIXED ? CUDAMEM_METHOD_DRIVER : method;
                options.staging_threads = 0;
                options.threads = method == CUDAMEM_METHOD_MIXED ? 0 : options.threads;
                OK(cudamem_engine_read_buffer(engine, buffer, 0, seen, SIZE, &options));
                CHECK(memcmp(bytes, seen, SIZE) == 0);
            }
        }
        CHECK(served >= 2);

        /* In order of a stream other than the home stream. */
        cudamem_stream other;
        cudamem_pending_read pending;
        bool done = false;
        OK(cudamem_stream_create(rig.context, NULL, &other));
        pattern(bytes, SIZE, 77);
        OK(cudamem_engine_write_buffer_on(engine, other, buffer, 0, bytes, SIZE));
        memset(seen, 0, SIZE);
        OK(cudamem_engine_read_buffer_on(engine, rig.stream, buffer, 0, seen, SIZE, &pending));
        OK(cudamem_pending_read_wait(pending));
        CHECK(memcmp(bytes, seen, SIZE) == 0);
        OK(cudamem_is_done(pending.id, &done));
        CHECK(done);
        OK(cudamem_pending_read_wait(pending));
        OK(cudamem_pending_read_destroy(pending));
        /* A read that nobody waits for. */
        OK(cudamem_engine_read_buffer_on(engine, rig.stream, buffer, 0, seen, 100, &pending));
        OK(cudamem_pending_read_destroy(pending));
        FAILS(cudamem_pending_read_wait(pending), CUDAMEM_ERROR_INVALID_HANDLE);
        FAILS(cudamem_engine_write_buffer_on(engine, other, buffer, 1, bytes, SIZE), CUDAMEM_ERROR_OUT_OF_RANGE);
        FAILS(cudamem_engine_read_buffer_on(engine, other, buffer, 0, NULL, 1, &pending), CUDAMEM_ERROR_INVALID_ARGUMENT);

        /* Many writes. Where two overlap, the later one wins. */
        const cudamem_scatter writes[] = {{0, "abcd", 4}, {SIZE - 2, "yz", 2}, {2, "xx", 2}, {7, NULL, 0}};
        OK(cudamem_engine_scatter_to_buffer(engine, buffer, writes, 4));
        cudamem_copy_options complete;
        memset(&complete, 0, sizeof complete);
        complete.size = sizeof complete;
        complete.flags = CUDAMEM_COPY_COMPLETE;
        OK(cudamem_engine_write_buffer(engine, buffer, 4, "efgh", 4, &complete));
        FAILS(cudamem_engine_read_buffer(engine, buffer, 0, seen, 1, &complete), CUDAMEM_ERROR_INVALID_ARGUMENT);
        complete.method = CUDAMEM_METHOD_DRIVER;
        FAILS(cudamem_engine_write_buffer(engine, buffer, 4, "efgh", 4, &complete), CUDAMEM_ERROR_INVALID_ARGUMENT);
        OK(cudamem_buffer_read(buffer, 0, seen, SIZE));
        memcpy(bytes, "abxxefgh", 8);
        memcpy(bytes + SIZE - 2, "yz", 2);
        CHECK(memcmp(bytes, seen, SIZE) == 0);
        const cudamem_scatter beyond = {SIZE - 1, "ab", 2}, nowhere = {0, NULL, 1};
        FAILS(cudamem_engine_scatter_to_buffer(engine, buffer, &beyond, 1), CUDAMEM_ERROR_OUT_OF_RANGE);
        FAILS(cudamem_engine_scatter_to_buffer(engine, buffer, &nowhere, 1), CUDAMEM_ERROR_INVALID_ARGUMENT);
        FAILS(cudamem_engine_scatter_to_buffer(engine, buffer, NULL, 1), CUDAMEM_ERROR_INVALID_ARGUMENT);

        /* Pieces of one buffer, copied to offsets of another. */
        cudamem_buffer copy;
        const cudamem_piece pieces[] = {{10, 0, 4}, {0, 4, 4}, {20, SIZE - 2, 2}};
        const cudamem_piece overlap[] = {{10, 0, 4}, {12, 4, 4}};
        OK(cudamem_buffer_allocate(sources[index].resource, 100, rig.stream, &copy));
        OK(cudamem_buffer_copy_pieces(copy, buffer, pieces, 3, NULL, other));
        OK(cudamem_buffer_read(copy, 0, seen, 100));
        CHECK(memcmp(seen, "efgh", 4) == 0 && memcmp(seen + 10, "abxx", 4) == 0 && memcmp(seen + 20, "yz", 2) == 0);
        FAILS(cudamem_buffer_copy_pieces(copy, buffer, overlap, 2, NULL, other), CUDAMEM_ERROR_INVALID_ARGUMENT);
        FAILS(cudamem_buffer_copy_pieces(copy, copy, pieces, 1, NULL, other), CUDAMEM_ERROR_INVALID_ARGUMENT);
        /* Each way, also by the kernel, copies the same. */
        OK(cudamem_context_load_kernels(rig.context));
        for (int32_t way = CUDAMEM_WAY_FASTEST; way <= CUDAMEM_WAY_KERNEL; way++) {
            cudamem_pieces_options options = {0};
            options.size = sizeof options;
            options.way = way;
            OK(cudamem_buffer_fill(copy, 0, 100, "-", 1));
            OK(cudamem_buffer_copy_pieces(copy, buffer, pieces, 3, &options, other));
            OK(cudamem_buffer_read(copy, 0, seen, 100));
            CHECK(memcmp(seen, "efgh-", 5) == 0 && memcmp(seen + 10, "abxx-", 5) == 0 && memcmp(seen + 20, "yz-", 3) == 0);
        }
        cudamem_pieces_options wrong = {0};
        wrong.size = sizeof wrong;
        wrong.way = 3;
        FAILS(cudamem_buffer_copy_pieces(copy, buffer, pieces, 3, &wrong, other), CUDAMEM_ERROR_INVALID_ARGUMENT);
        wrong.way = CUDAMEM_WAY_KERNEL;
        wrong.reserved = 1;
        FAILS(cudamem_buffer_copy_pieces(copy, buffer, pieces, 3, &wrong, other), CUDAMEM_ERROR_INVALID_ARGUMENT);
        OK(cudamem_buffer_destroy(copy));
        OK(cudamem_buffer_destroy(buffer));
        OK(cudamem_stream_destroy(other));
    }
    sources_close(sources);
}

/* Copies between two devices, if there are two that access each other. */
static void between_devices(struct rig rig)
{
    int32_t count = 0;
    bool can = false;
    OK(cudamem_device_get_count(&count));
    if (count > 1) {
        OK(cudamem_device_can_access_peer(0, 1, &can));
    }
    if (!can) {
        puts("skipped: copies between devices need two devices that access each other");
        return;
    }
    cudamem_context far;
    cudamem_stream stream;
    cudamem_resource there, here, pinned;
    cudamem_buffer source, copy, host;
    cudamem_route route = -1;
    char seen[4] = "";
    OK(cudamem_context_open_primary(1, &far));
    OK(cudamem_stream_create(far, NULL, &stream));
    OK(cudamem_resource_create_device(far, &there));
    OK(cudamem_resource_create_device(rig.context, &here));
    OK(cudamem_resource_create_pinned(rig.context, 0, &pinned));
    OK(cudamem_buffer_allocate(there, 4, stream, &source));
    OK(cudamem_buffer_allocate(here, 4, rig.stream, &copy));
    OK(cudamem_buffer_allocate(pinned, 4, rig.stream, &host));
    OK(cudamem_buffer_write(source, 0, "far", 4));
    OK(cudamem_buffer_copy(copy, 0, source, 0, 4));
    OK(cudamem_buffer_read(copy, 0, seen, 4));
    CHECK(strcmp(seen, "far") == 0);
    OK(cudamem_buffer_get_route(copy, source, &route));
    CHECK(route == CUDAMEM_ROUTE_DIRECT);
    OK(cudamem_buffer_get_route(copy, copy, &route));
    CHECK(route == CUDAMEM_ROUTE_SAME_DEVICE);
    OK(cudamem_buffer_get_route(copy, host, &route));
    CHECK(route == CUDAMEM_ROUTE_HOST_MEMORY);
    OK(cudamem_resource_set_access(there, 0, false));
    OK(cudamem_buffer_get_route(copy, source, &route));
    CHECK(route == CUDAMEM_ROUTE_THROUGH_HOST);
    OK(cudamem_resource_set_access(there, 0, true));
    OK(cudamem_context_set_access(far, rig.context, true));
    OK(cudamem_buffer_get_route(copy, source, &route));
    CHECK(route == CUDAMEM_ROUTE_DIRECT);
    OK(cudamem_context_set_access(far, rig.context, false));
    FAILS(cudamem_resource_set_access(there, 1, false), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_resource_set_access(pinned, 1, true), CUDAMEM_ERROR_UNSUPPORTED);
    FAILS(cudamem_buffer_get_route(copy, source, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_buffer_destroy(source));
    OK(cudamem_buffer_destroy(copy));
    OK(cudamem_buffer_destroy(host));
    OK(cudamem_resource_destroy(there));
    OK(cudamem_resource_destroy(here));
    OK(cudamem_resource_destroy(pinned));
    OK(cudamem_stream_destroy(stream));
    OK(cudamem_context_destroy(far));
}

void case_copies(void)
{
    struct rig rig = rig_open();
    cudamem_engine_options options;
    cudamem_engine engine;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.slot_size = 1 << 16;
    profiles(rig);
    OK(cudamem_engine_create(rig.context, &options, &engine));
    methods(rig, engine);
    files(rig, engine);
    between_devices(rig);

    /* The same calls for mapped memory. */
    cudamem_resource resource;
    cudamem_buffer mapped;
    cudamem_copy_options copy;
    memset(&copy, 0, sizeof copy);
    copy.size = sizeof copy;
    copy.method = CUDAMEM_METHOD_CPU;
    copy.threads = 1;
    OK(cudamem_resource_create_mapped(rig.context, CUDAMEM_COHERENCE_PREFERRED, &resource));
    OK(cudamem_buffer_allocate(resource, 1000, rig.stream, &mapped));
    const cudamem_scatter writes[] = {{0, "abcd", 4}, {996, "wxyz", 4}};
    OK(cudamem_engine_write_buffer(engine, mapped, 0, bytes, 1000, &copy));
    OK(cudamem_engine_scatter_to_buffer(engine, mapped, writes, 2));
    cudamem_copy_options complete;
    memset(&complete, 0, sizeof complete);
    complete.size = sizeof complete;
    complete.flags = CUDAMEM_COPY_COMPLETE;
    OK(cudamem_engine_write_buffer(engine, mapped, 500, "mid", 3, &complete));
    OK(cudamem_buffer_read(mapped, 0, seen, 1000));
    CHECK(memcmp(seen, "abcd", 4) == 0 && memcmp(seen + 996, "wxyz", 4) == 0 && memcmp(seen + 500, "mid", 3) == 0);
    OK(cudamem_engine_read_buffer(engine, mapped, 500, seen, 3, &copy));
    CHECK(memcmp(seen, "mid", 3) == 0);
    copy.threads = 256;
    FAILS(cudamem_engine_write_buffer(engine, mapped, 0, bytes, 10, &copy), CUDAMEM_ERROR_INVALID_ARGUMENT);
    copy.method = CUDAMEM_METHOD_DRIVER;
    copy.threads = 1;
    FAILS(cudamem_engine_write_buffer(engine, mapped, 0, bytes, 10, &copy), CUDAMEM_ERROR_INVALID_ARGUMENT);
    copy.threads = 0;
    copy.host = 3;
    FAILS(cudamem_engine_write_buffer(engine, mapped, 0, bytes, 10, &copy), CUDAMEM_ERROR_INVALID_ARGUMENT);
    copy.host = 0;
    copy.method = 6;
    FAILS(cudamem_engine_write_buffer(engine, mapped, 0, bytes, 10, &copy), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_buffer_destroy(mapped));
    OK(cudamem_resource_destroy(resource));
    OK(cudamem_engine_destroy(engine));
    rig_close(rig);
}
