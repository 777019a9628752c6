/* Exports that are changed or rebuilt from their bytes; channels and how they end. */
#define _GNU_SOURCE
#include "test.h"

#include <math.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

/* Recomputes the checksum at the end of the bytes, as any program can. */
static void check_sum(unsigned char *bytes, size_t size)
{
    uint64_t sum = 0xcbf29ce484222325u;
    for (size_t index = 0; index < size - 8; index++) {
        sum = (sum ^ bytes[index]) * 0x100000001b3u;
    }
    for (int index = 0; index < 8; index++) {
        bytes[size - 8 + (size_t)index] = (unsigned char)(sum >> 8 * index);
    }
}

/* Checks that an export with one changed byte is refused. */
static void refused(const void *bytes, size_t size, size_t place, unsigned char value, bool new_sum)
{
    unsigned char changed[512];
    cudamem_export export = {5};
    CHECK(size <= sizeof changed);
    memcpy(changed, bytes, size);
    changed[place] ^= value;
    if (new_sum) {
        check_sum(changed, size);
    }
    FAILS(cudamem_export_create(changed, size, NULL, 0, &export), CUDAMEM_ERROR_DESCRIPTOR);
    CHECK(export.id == 5);
}

static void pool_exports(struct rig rig, cudamem_resource device, cudamem_export device_memory)
{
    cudamem_resource pool = shareable_pool(rig), again, other_pool;
    if (pool.id == 0) {
        return;
    }
    cudamem_buffer buffer, twin = {5};
    cudamem_export pool_export, export, forged, rebuilt = {5};
    cudamem_export_info info = {0};
    uint64_t address = 0, twin_address = 1;
    info.size = sizeof info;
    OK(cudamem_buffer_allocate(pool, 1000, rig.stream, &buffer));
    OK(cudamem_resource_export(pool, &pool_export));
    OK(cudamem_buffer_export(buffer, (cudamem_resource){0}, &export));
    OK(cudamem_export_get_info(pool_export, &info));
    CHECK(info.kind == CUDAMEM_EXPORT_POOL && info.file_count == 1 && info.numa_node == -1);
    unsigned char name[16];
    memcpy(name, info.pool, sizeof name);
    OK(cudamem_export_get_info(export, &info));
    CHECK(info.kind == CUDAMEM_EXPORT_POOL_MEMORY && memcmp(name, info.pool, sizeof name) == 0);
    CHECK(info.allocation_size == 1000 && info.offset == 0 && info.length == 1000 && info.process == (uint32_t)getpid());

    /* In the exporting process, an import returns the pool and the memory themselves. */
    OK(cudamem_resource_import(rig.context, pool_export, &again));
    OK(cudamem_buffer_import(again, export, rig.stream, &twin));
    OK(cudamem_buffer_get_device_pointer(buffer, &address));
    OK(cudamem_buffer_get_device_pointer(twin, &twin_address));
    CHECK(address == twin_address);
    OK(cudamem_buffer_destroy(twin));
    OK(cudamem_resource_destroy(again));

    /* Rebuilt from its bytes and files, also with wrong files. */
    INFO(cudamem_export_info, whole, cudamem_export_get_info, pool_export);
    const void *bytes = whole.bytes;
    const int *files = whole.files;
    size_t size = whole.byte_count, count = whole.file_count;
    CHECK(size > 0 && count == 1);
    FAILS(cudamem_export_create(bytes, size, NULL, 0, &rebuilt), CUDAMEM_ERROR_CHANNEL);
    FAILS(cudamem_export_create(bytes, size, NULL, 1, &rebuilt), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_export_create(bytes, size, files, 65, &rebuilt), CUDAMEM_ERROR_INVALID_ARGUMENT);
    int closed = -1;
    FAILS(cudamem_export_create(bytes, size, &closed, 1, &rebuilt), CUDAMEM_ERROR_INVALID_ARGUMENT);
    closed = 1000000;
    FAILS(cudamem_export_create(bytes, size, &closed, 1, &rebuilt), CUDAMEM_ERROR_SYSTEM);
    CHECK(rebuilt.id == 5);
    OK(cudamem_export_create(bytes, size, files, count, &rebuilt));
    OK(cudamem_resource_import(rig.context, rebuilt, &again));
    OK(cudamem_resource_destroy(again));
    OK(cudamem_export_destroy(rebuilt));

    /* Imports into another pool and into a resource that is no pool; wrong kinds; a forged handle. */
    other_pool = shareable_pool(rig);
    twin.id = 5;
    FAILS(cudamem_buffer_import(other_pool, export, rig.stream, &twin), CUDAMEM_ERROR_DESCRIPTOR);
    FAILS(cudamem_buffer_import(device, export, rig.stream, &twin), CUDAMEM_ERROR_DESCRIPTOR);
    FAILS(cudamem_buffer_import(pool, device_memory, rig.stream, &twin), CUDAMEM_ERROR_DESCRIPTOR);
    FAILS(cudamem_buffer_import(pool, pool_export, rig.stream, &twin), CUDAMEM_ERROR_DESCRIPTOR);
    FAILS(cudamem_resource_import(rig.context, export, &again), CUDAMEM_ERROR_DESCRIPTOR);
    unsigned char changed[512];
    OK(cudamem_export_get_info(export, &whole));
    bytes = whole.bytes, size = whole.byte_count;
    CHECK(size <= sizeof changed);
    memcpy(changed, bytes, size);
    changed[100] ^= 1; /* the driver's handle */
    check_sum(changed, size);
    OK(cudamem_export_create(changed, size, NULL, 0, &forged));
    FAILS(cudamem_buffer_import(pool, forged, rig.stream, &twin), CUDAMEM_ERROR_DESCRIPTOR);
    CHECK(twin.id == 5);
    OK(cudamem_export_destroy(forged));

    /* Import of memory that has been freed. */
    OK(cudamem_buffer_destroy(buffer));
    FAILS(cudamem_buffer_import(pool, export, rig.stream, &twin), CUDAMEM_ERROR_DESCRIPTOR);
    OK(cudamem_export_destroy(export));
    OK(cudamem_export_destroy(pool_export));
    OK(cudamem_resource_destroy(other_pool));
    OK(cudamem_resource_destroy(pool));
}

void case_exports(void)
{
    struct rig rig = rig_open();
    cudamem_resource device, pinned, mapped_resource;
    cudamem_buffer buffer, host;
    cudamem_buffer mapped, twin = {5};
    cudamem_event event;
    cudamem_export export = {5}, device_memory;
    OK(cudamem_resource_create_device(rig.context, &device));
    OK(cudamem_resource_create_pinned(rig.context, 0, &pinned));
    OK(cudamem_resource_create_mapped(rig.context, CUDAMEM_COHERENCE_PREFERRED, &mapped_resource));
    OK(cudamem_buffer_allocate(device, 1000, rig.stream, &buffer));
    OK(cudamem_buffer_allocate(pinned, 1000, rig.stream, &host));
    OK(cudamem_buffer_allocate(mapped_resource, 1000, rig.stream, &mapped));
    OK(cudamem_event_create(rig.context, 0, &event));

    /* Memory and events that cannot be shared. */
    FAILS(cudamem_buffer_export(host, (cudamem_resource){0}, &export), CUDAMEM_ERROR_UNSUPPORTED);
    FAILS(cudamem_resource_export(device, &export), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_event_export(event, &export), CUDAMEM_ERROR_DRIVER);
    FAILS(cudamem_event_create(rig.context, CUDAMEM_EVENT_SHAREABLE | CUDAMEM_EVENT_TIMING, &event),
          CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_buffer_export(buffer, (cudamem_resource){0}, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(export.id == 5);

    OK(cudamem_buffer_export(buffer, (cudamem_resource){0}, &device_memory));
    INFO(cudamem_export_info, whole, cudamem_export_get_info, device_memory);
    const void *bytes = whole.bytes;
    size_t size = whole.byte_count;
    CHECK(size > 100 && whole.file_count == 0);
    for (size_t length = 0; length < size; length++) {
        FAILS(cudamem_export_create(bytes, length, NULL, 0, &export), CUDAMEM_ERROR_DESCRIPTOR);
    }
    for (size_t place = 0; place < size; place++) {
        refused(bytes, size, place, 1, false);
    }
    refused(bytes, size, 0, 1, true);   /* the magic word */
    refused(bytes, size, 8, 3, true);   /* version 2 */
    refused(bytes, size, 10, 8, true);  /* a kind that does not exist */
    refused(bytes, size, 95, 128, true); /* a range beyond the end */
    OK(cudamem_export_create(bytes, size, NULL, 0, &export));
    OK(cudamem_export_destroy(export));
    FAILS(cudamem_export_destroy(export), CUDAMEM_ERROR_INVALID_HANDLE);
    FAILS(cudamem_export_get_info(export, &whole), CUDAMEM_ERROR_INVALID_HANDLE);
    cudamem_export_info info = {0};
    FAILS(cudamem_export_get_info(device_memory, &info), CUDAMEM_ERROR_INVALID_ARGUMENT);

    /* Wrong kinds and resources. */
    cudamem_event imported = {5};
    FAILS(cudamem_event_import(rig.context, device_memory, &imported), CUDAMEM_ERROR_DESCRIPTOR);
    FAILS(cudamem_buffer_import(mapped_resource, device_memory, rig.stream, &twin), CUDAMEM_ERROR_DESCRIPTOR);
    cudamem_buffer copy = {5};
    FAILS(cudamem_buffer_import(pinned, device_memory, rig.stream, &copy), CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(imported.id == 5 && twin.id == 5 && copy.id == 5);

    /* A process cannot import its own event. */
    cudamem_event shareable;
    if (cudamem_event_create(rig.context, CUDAMEM_EVENT_SHAREABLE, &shareable) == CUDAMEM_SUCCESS) {
        OK(cudamem_event_export(shareable, &export));
        FAILS(cudamem_event_import(rig.context, export, &imported), CUDAMEM_ERROR_DESCRIPTOR);
        OK(cudamem_export_destroy(export));
        OK(cudamem_event_destroy(shareable));
    }
    /* Each import maps the memory again. One export serves several imports. */
    if (cudamem_buffer_export(mapped, mapped_resource, &export) == CUDAMEM_SUCCESS) {
        for (uint32_t word = 1; word < 3; word++) {
            uint32_t seen = 0;
            OK(cudamem_buffer_import(mapped_resource, export, rig.stream, &twin));
            OK(cudamem_buffer_store_u32(twin, 8, word));
            OK(cudamem_buffer_load_u32(mapped, 8, &seen));
            CHECK(seen == word);
            OK(cudamem_buffer_destroy(twin));
        }
        OK(cudamem_export_destroy(export));
    }
    pool_exports(rig, device, device_memory);

    OK(cudamem_export_destroy(device_memory));
    OK(cudamem_event_destroy(event));
    OK(cudamem_buffer_destroy(mapped));
    OK(cudamem_buffer_destroy(host));
    OK(cudamem_buffer_destroy(buffer));
    OK(cudamem_resource_destroy(mapped_resource));
    OK(cudamem_resource_destroy(pinned));
    OK(cudamem_resource_destroy(device));
    rig_close(rig);
}

static void *receive_until_closed(void *user)
{
    char bytes[8];
    size_t size = 0;
    OK(cudamem_channel_receive_bytes(*(cudamem_channel *)user, bytes, sizeof bytes, &size));
    CHECK(size == 5);
    FAILS(cudamem_channel_receive_bytes(*(cudamem_channel *)user, bytes, sizeof bytes, &size), CUDAMEM_ERROR_CLOSED);
    return NULL;
}

/* A listener on a new path, and a channel through it. */
static void listen_and_connect(void)
{
    char folder[] = "/tmp/cudamem-test-XXXXXX", path[64];
    cudamem_listener listener, second = {5};
    cudamem_channel here, there = {5};
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/socket", folder);
    OK(cudamem_listener_create(path, &listener));
    FAILS(cudamem_listener_create(path, &second), CUDAMEM_ERROR_SYSTEM);
    FAILS(cudamem_listener_create(NULL, &second), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_listener_accept(listener, 0.01, &there), CUDAMEM_ERROR_TIMED_OUT);
    FAILS(cudamem_listener_accept(listener, 0, &there), CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(second.id == 5 && there.id == 5);
    OK(cudamem_channel_connect(path, &here));
    OK(cudamem_listener_accept(listener, INFINITY, &there));
    OK(cudamem_channel_send_bytes(here, "hi", 2));
    char bytes[2];
    size_t size = 0;
    OK(cudamem_channel_receive_bytes(there, bytes, sizeof bytes, &size));
    CHECK(size == 2 && memcmp(bytes, "hi", 2) == 0);
    OK(cudamem_listener_destroy(listener));
    cudamem_channel none = {5};
    FAILS(cudamem_channel_connect(path, &none), CUDAMEM_ERROR_SYSTEM);
    CHECK(none.id == 5);
    OK(cudamem_channel_destroy(here));
    OK(cudamem_channel_destroy(there));
    CHECK(rmdir(folder) == 0); /* the listener has removed its socket */
}

void case_channels(void)
{
    cudamem_channel one, other, third = {5};
    static char bytes[CUDAMEM_MESSAGE_SIZE + 1];
    size_t size = 77;
    OK(cudamem_channel_create_pair(&one, &other));
    OK(cudamem_channel_send_bytes(one, NULL, 0));
    OK(cudamem_channel_receive_bytes(other, NULL, 0, &size));
    CHECK(size == 0);
    /* A message that does not fit stays in the channel. A receive for exports refuses and drops it. */
    OK(cudamem_channel_send_bytes(one, "hello", 5));
    size = 77;
    FAILS(cudamem_channel_receive_bytes(other, bytes, 4, &size), CUDAMEM_ERROR_OUT_OF_RANGE);
    CHECK(size == 77);
    OK(cudamem_channel_receive_bytes(other, bytes, 5, &size));
    CHECK(size == 5 && memcmp(bytes, "hello", 5) == 0);
    OK(cudamem_channel_send_bytes(one, bytes, CUDAMEM_MESSAGE_SIZE));
    FAILS(cudamem_channel_receive_bytes(other, bytes, 0, &size), CUDAMEM_ERROR_OUT_OF_RANGE);
    cudamem_export export = {5};
    FAILS(cudamem_channel_receive(other, &export), CUDAMEM_ERROR_DESCRIPTOR);
    FAILS(cudamem_channel_send_bytes(one, bytes, sizeof bytes), CUDAMEM_ERROR_CHANNEL);
    FAILS(cudamem_channel_send(one, export), CUDAMEM_ERROR_INVALID_HANDLE);
    FAILS(cudamem_channel_receive(one, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    /* Time limits. */
    static const double WRONG[] = {0, -1, -INFINITY, NAN};
    for (size_t index = 0; index < sizeof WRONG / sizeof WRONG[0]; index++) {
        FAILS(cudamem_channel_set_timeout(other, WRONG[index]), CUDAMEM_ERROR_INVALID_ARGUMENT);
    }
    OK(cudamem_channel_set_timeout(other, 0.02));
    FAILS(cudamem_channel_receive(other, &export), CUDAMEM_ERROR_TIMED_OUT);
    CHECK(export.id == 5);
    OK(cudamem_channel_set_timeout(other, INFINITY));
    /* One thread receives while another sends; the shutdown wakes the receiver. */
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, receive_until_closed, &other) == 0);
    OK(cudamem_channel_send_bytes(other, "back", 4));
    OK(cudamem_channel_receive_bytes(one, bytes, 4, &size));
    OK(cudamem_channel_send_bytes(one, "hello", 5));
    OK(cudamem_channel_shut_down(one));
    CHECK(pthread_join(thread, NULL) == 0);
    FAILS(cudamem_channel_send_bytes(one, "more", 4), CUDAMEM_ERROR_CLOSED);
    OK(cudamem_channel_destroy(one));
    FAILS(cudamem_channel_send_bytes(one, "more", 4), CUDAMEM_ERROR_INVALID_HANDLE);
    OK(cudamem_channel_destroy(other));

    /* The program's own sockets. An incomplete message breaks the channel. */
    int pair[2], null_file[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && pipe(null_file) == 0);
    FAILS(cudamem_channel_open_socket(-1, &third), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_channel_open_socket(1000000, &third), CUDAMEM_ERROR_SYSTEM);
    FAILS(cudamem_channel_open_socket(null_file[0], &third), CUDAMEM_ERROR_SYSTEM);
    int unconnected = socket(AF_UNIX, SOCK_STREAM, 0), packets = socket(AF_UNIX, SOCK_DGRAM, 0);
    FAILS(cudamem_channel_open_socket(unconnected, &third), CUDAMEM_ERROR_SYSTEM);
    FAILS(cudamem_channel_open_socket(packets, &third), CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(third.id == 5);
    OK(cudamem_channel_open_socket(pair[0], &third));
    CHECK(write(pair[1], "\5\0\0\0he", 6) == 6);
    const int open_files[] = {pair[0], pair[1], null_file[0], null_file[1], unconnected, packets};
    for (size_t index = 0; index < sizeof open_files / sizeof open_files[0]; index++) {
        CHECK(close(open_files[index]) == 0); /* the program still owns them */
    }
    FAILS(cudamem_channel_receive(third, &export), CUDAMEM_ERROR_CLOSED);
    FAILS(cudamem_channel_receive(third, &export), CUDAMEM_ERROR_CHANNEL);
    OK(cudamem_channel_destroy(third));
    listen_and_connect();
}
