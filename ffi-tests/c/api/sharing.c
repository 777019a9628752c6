/* Sharing between processes. The other process is this program, started once more. */
#define _GNU_SOURCE
#include "test.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { SIZE = 10000, BEGIN = 1000, LENGTH = 5000 };
static const char CHILD[] = "CUDAMEM_TEST_CHILD";

/* Another process, whose standard input is the other end of the channel. */
struct other {
    pid_t process;
    cudamem_channel channel;
};

static struct other start(const char *case_name)
{
    struct other other;
    cudamem_channel theirs;
    int socket = -1;
    OK(cudamem_channel_create_pair(&other.channel, &theirs));
    OK(cudamem_channel_set_timeout(other.channel, 60));
    OK(cudamem_channel_get_socket(theirs, &socket));
    posix_spawn_file_actions_t actions;
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, socket, 0) == 0);
    char *const arguments[] = {(char *)(uintptr_t)program_path, (char *)(uintptr_t)case_name, NULL};
    CHECK(setenv(CHILD, "1", 1) == 0);
    CHECK(posix_spawn(&other.process, program_path, &actions, NULL, arguments, environ) == 0);
    CHECK(unsetenv(CHILD) == 0);
    posix_spawn_file_actions_destroy(&actions);
    OK(cudamem_channel_destroy(theirs));
    return other;
}

static void finish(struct other other)
{
    int status = -1;
    OK(cudamem_channel_send_bytes(other.channel, "end", 3));
    CHECK(waitpid(other.process, &status, 0) == other.process);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(cudamem_channel_destroy(other.channel));
}

static uint32_t kind_of(cudamem_export export)
{
    cudamem_export_info info = {0};
    info.size = sizeof info;
    OK(cudamem_export_get_info(export, &info));
    return info.kind;
}

static void send_and_destroy(cudamem_channel channel, cudamem_export export)
{
    OK(cudamem_channel_send(channel, export));
    OK(cudamem_export_destroy(export));
}

static void invert(unsigned char *bytes, size_t size)
{
    for (size_t index = 0; index < size; index++) {
        bytes[index] = (unsigned char)~bytes[index];
    }
}

static void mirror_buffer(struct rig rig, cudamem_channel channel, cudamem_resource resource, cudamem_export export)
{
    static unsigned char bytes[LENGTH];
    cudamem_buffer buffer;
    size_t size = 0;
    OK(cudamem_buffer_import(resource, export, rig.stream, &buffer));
    OK(cudamem_buffer_get_size(buffer, &size));
    CHECK(size == LENGTH);
    OK(cudamem_buffer_read(buffer, 0, bytes, LENGTH));
    OK(cudamem_channel_send_bytes(channel, bytes, LENGTH));
    invert(bytes, LENGTH);
    OK(cudamem_buffer_write(buffer, 0, bytes, LENGTH));
    OK(cudamem_buffer_destroy(buffer));
    OK(cudamem_stream_synchronize(rig.stream));
    OK(cudamem_channel_send_bytes(channel, "done", 4));
}

static void mirror_mapped(struct rig rig, cudamem_channel channel, cudamem_export export)
{
    static unsigned char bytes[LENGTH];
    cudamem_resource resource;
    cudamem_mapped mapped;
    OK(cudamem_resource_create_mapped(rig.context, CUDAMEM_COHERENCE_PREFERRED, &resource));
    OK(cudamem_mapped_import(resource, export, &mapped));
    OK(cudamem_mapped_read(mapped, 0, bytes, LENGTH));
    OK(cudamem_channel_send_bytes(channel, bytes, LENGTH));
    invert(bytes, LENGTH);
    OK(cudamem_mapped_write(mapped, 0, bytes, LENGTH));
    OK(cudamem_mapped_destroy(mapped));
    OK(cudamem_resource_destroy(resource));
    OK(cudamem_channel_send_bytes(channel, "done", 4));
}

/* Shows what memory holds, and inverts it, until something else comes. */
static void play_child(void)
{
    struct rig rig = rig_open();
    cudamem_channel channel;
    cudamem_resource device, virtual_memory, pool = {0};
    OK(cudamem_channel_open_socket(0, &channel));
    close(0);
    OK(cudamem_resource_create_device(rig.context, &device));
    for (;;) {
        cudamem_export export;
        cudamem_event event;
        cudamem_status status = cudamem_channel_receive(channel, &export);
        if (status == CUDAMEM_ERROR_DESCRIPTOR) {
            break;
        }
        CHECK(status == CUDAMEM_SUCCESS);
        switch (kind_of(export)) {
        case CUDAMEM_EXPORT_POOL:
            OK(cudamem_resource_import(rig.context, export, &pool));
            cudamem_buffer nothing;
            FAILS(cudamem_buffer_allocate(pool, 100, rig.stream, &nothing), CUDAMEM_ERROR_UNSUPPORTED);
            break;
        case CUDAMEM_EXPORT_EVENT:
            OK(cudamem_event_import(rig.context, export, &event));
            OK(cudamem_stream_wait_event(rig.stream, event));
            OK(cudamem_event_destroy(event));
            break;
        case CUDAMEM_EXPORT_POOL_MEMORY:
            mirror_buffer(rig, channel, pool, export);
            break;
        case CUDAMEM_EXPORT_DEVICE_MEMORY:
            mirror_buffer(rig, channel, device, export);
            break;
        case CUDAMEM_EXPORT_VIRTUAL_MEMORY:
            OK(cudamem_resource_create_virtual(rig.context, NULL, &virtual_memory));
            mirror_buffer(rig, channel, virtual_memory, export);
            OK(cudamem_resource_destroy(virtual_memory));
            break;
        case CUDAMEM_EXPORT_MAPPED:
            mirror_mapped(rig, channel, export);
            break;
        default:
            CHECK(kind_of(export) == 0); /* a kind that nobody sent */
        }
        OK(cudamem_export_destroy(export));
    }
    OK(cudamem_resource_destroy(pool));
    OK(cudamem_resource_destroy(device));
    OK(cudamem_channel_destroy(channel));
    rig_close(rig);
}

/* The other process saw the bytes, and has inverted them. */
static void check_mirror(cudamem_channel channel, unsigned char *bytes)
{
    static unsigned char seen[LENGTH];
    char word[4];
    size_t size = 0;
    OK(cudamem_channel_receive_bytes(channel, seen, sizeof seen, &size));
    CHECK(size == LENGTH && memcmp(seen, bytes + BEGIN, LENGTH) == 0);
    OK(cudamem_channel_receive_bytes(channel, word, sizeof word, &size));
    CHECK(size == 4 && memcmp(word, "done", 4) == 0);
    invert(bytes + BEGIN, LENGTH);
}

/* A part of a buffer of a resource, with an event behind the work on it. */
static void share_buffer(struct rig rig, struct other other, cudamem_resource resource, bool is_virtual)
{
    static unsigned char bytes[SIZE], seen[SIZE];
    cudamem_buffer buffer, part;
    cudamem_export export;
    cudamem_event event;
    OK(cudamem_buffer_allocate(resource, SIZE, rig.stream, &buffer));
    OK(cudamem_buffer_slice(buffer, BEGIN, LENGTH, &part));
    if (is_virtual) {
        FAILS(cudamem_buffer_export(part, &export), CUDAMEM_ERROR_UNSUPPORTED);
        OK(cudamem_buffer_export_virtual(part, resource, &export));
    } else {
        FAILS(cudamem_buffer_export_virtual(part, resource, &export), CUDAMEM_ERROR_INVALID_ARGUMENT);
        OK(cudamem_buffer_export(part, &export));
    }
    pattern(bytes, SIZE, 3);
    OK(cudamem_buffer_write(buffer, 0, bytes, SIZE));
    memset(bytes + 2000, 7, 500);
    OK(cudamem_buffer_fill(buffer, 2000, 500, "\7", 1));
    cudamem_status status = cudamem_event_create(rig.context, CUDAMEM_EVENT_SHAREABLE, &event);
    if (status == CUDAMEM_SUCCESS) {
        cudamem_export exported_event;
        OK(cudamem_event_record(event, rig.stream));
        OK(cudamem_event_export(event, &exported_event));
        send_and_destroy(other.channel, exported_event);
    } else {
        CHECK(status == CUDAMEM_ERROR_UNSUPPORTED);
        OK(cudamem_buffer_synchronize(buffer));
    }
    send_and_destroy(other.channel, export);
    check_mirror(other.channel, bytes);
    OK(cudamem_buffer_read(buffer, 0, seen, SIZE));
    CHECK(memcmp(seen, bytes, SIZE) == 0);
    if (status == CUDAMEM_SUCCESS) {
        OK(cudamem_event_destroy(event));
    }
    OK(cudamem_buffer_destroy(part));
    OK(cudamem_buffer_destroy(buffer));
}

static void share_virtual(struct rig rig, struct other other)
{
    cudamem_resource memory;
    cudamem_virtual_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.flags = CUDAMEM_PHYSICAL_SHAREABLE;
    cudamem_status status = cudamem_resource_create_virtual(rig.context, &options, &memory);
    CHECK(status == CUDAMEM_SUCCESS || status == CUDAMEM_ERROR_UNSUPPORTED);
    if (status == CUDAMEM_SUCCESS) {
        share_buffer(rig, other, memory, true);
        OK(cudamem_resource_destroy(memory));
    }
}

static void share_mapped(struct rig rig, struct other other)
{
    static unsigned char bytes[SIZE], seen[SIZE];
    cudamem_resource resource;
    cudamem_mapped mapped, part;
    cudamem_export export;
    OK(cudamem_resource_create_mapped(rig.context, CUDAMEM_COHERENCE_PREFERRED, &resource));
    OK(cudamem_mapped_allocate(resource, SIZE, &mapped));
    OK(cudamem_mapped_slice(mapped, BEGIN, LENGTH, &part));
    cudamem_status status = cudamem_mapped_export(part, &export);
    if (status == CUDAMEM_SUCCESS) {
        CHECK(kind_of(export) == CUDAMEM_EXPORT_MAPPED);
        pattern(bytes, SIZE, 4);
        OK(cudamem_mapped_write(mapped, 0, bytes, SIZE));
        send_and_destroy(other.channel, export);
        check_mirror(other.channel, bytes);
        OK(cudamem_mapped_read(mapped, 0, seen, SIZE));
        CHECK(memcmp(seen, bytes, SIZE) == 0);
        OK(cudamem_mapped_device_read(mapped, 0, seen, SIZE));
        CHECK(memcmp(seen, bytes, SIZE) == 0);
    } else {
        CHECK(status == CUDAMEM_ERROR_MISSING_SYMBOL);
        printf("skipped: %s\n", cudamem_last_error_message());
    }
    OK(cudamem_mapped_destroy(part));
    OK(cudamem_mapped_destroy(mapped));
    OK(cudamem_resource_destroy(resource));
}

/* Gives the null handle where the device cannot share pools. */
static cudamem_resource shareable_pool(struct rig rig)
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

void case_sharing(void)
{
    if (getenv(CHILD) != NULL) {
        play_child();
        return;
    }
    struct rig rig = rig_open();
    struct other other = start("sharing");
    cudamem_resource device, pool = shareable_pool(rig);
    if (pool.id != 0) {
        cudamem_export export;
        OK(cudamem_resource_export(pool, &export));
        send_and_destroy(other.channel, export);
        share_buffer(rig, other, pool, false);
    }
    OK(cudamem_resource_create_device(rig.context, &device));
    share_buffer(rig, other, device, false);
    share_virtual(rig, other);
    share_mapped(rig, other);
    finish(other);

    /* A process that is killed harms nobody: its channel ends. */
    other = start("sharing");
    int status = 0;
    cudamem_export export = {5};
    CHECK(kill(other.process, SIGKILL) == 0 && waitpid(other.process, &status, 0) == other.process);
    FAILS(cudamem_channel_receive(other.channel, &export), CUDAMEM_ERROR_CLOSED);
    CHECK(export.id == 5);
    OK(cudamem_channel_destroy(other.channel));
    OK(cudamem_resource_destroy(device));
    OK(cudamem_resource_destroy(pool));
    rig_close(rig);
}

/* The checksum that ends the bytes, made anew, as anybody can. */
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

/* Bytes that somebody changed at a place. */
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
    OK(cudamem_buffer_export(buffer, &export));
    OK(cudamem_export_get_info(pool_export, &info));
    CHECK(info.kind == CUDAMEM_EXPORT_POOL && info.file_count == 1 && info.numa_node == -1);
    unsigned char name[16];
    memcpy(name, info.pool, sizeof name);
    OK(cudamem_export_get_info(export, &info));
    CHECK(info.kind == CUDAMEM_EXPORT_POOL_MEMORY && memcmp(name, info.pool, sizeof name) == 0);
    CHECK(info.allocation_size == 1000 && info.offset == 0 && info.length == 1000 && info.process == (uint32_t)getpid());

    /* In the process that made them, they are the pool and the memory itself. */
    OK(cudamem_resource_import(rig.context, pool_export, &again));
    OK(cudamem_buffer_import(again, export, rig.stream, &twin));
    OK(cudamem_buffer_get_device_pointer(buffer, &address));
    OK(cudamem_buffer_get_device_pointer(twin, &twin_address));
    CHECK(address == twin_address);
    OK(cudamem_buffer_destroy(twin));
    OK(cudamem_resource_destroy(again));

    /* Taken apart and put together; with other files. */
    const void *bytes = NULL;
    const int *files = NULL;
    size_t size = 0, count = 0;
    OK(cudamem_export_get_bytes(pool_export, &bytes, &size));
    OK(cudamem_export_get_files(pool_export, &files, &count));
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

    /* Memory of another pool, of no pool; forged; wrong kinds. */
    other_pool = shareable_pool(rig);
    twin.id = 5;
    FAILS(cudamem_buffer_import(other_pool, export, rig.stream, &twin), CUDAMEM_ERROR_DESCRIPTOR);
    FAILS(cudamem_buffer_import(device, export, rig.stream, &twin), CUDAMEM_ERROR_DESCRIPTOR);
    FAILS(cudamem_buffer_import(pool, device_memory, rig.stream, &twin), CUDAMEM_ERROR_DESCRIPTOR);
    FAILS(cudamem_buffer_import(pool, pool_export, rig.stream, &twin), CUDAMEM_ERROR_DESCRIPTOR);
    FAILS(cudamem_resource_import(rig.context, export, &again), CUDAMEM_ERROR_DESCRIPTOR);
    unsigned char changed[512];
    OK(cudamem_export_get_bytes(export, &bytes, &size));
    CHECK(size <= sizeof changed);
    memcpy(changed, bytes, size);
    changed[100] ^= 1; /* the driver's handle */
    check_sum(changed, size);
    OK(cudamem_export_create(changed, size, NULL, 0, &forged));
    FAILS(cudamem_buffer_import(pool, forged, rig.stream, &twin), CUDAMEM_ERROR_DESCRIPTOR);
    CHECK(twin.id == 5);
    OK(cudamem_export_destroy(forged));

    /* The memory is gone. */
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
    cudamem_mapped mapped, twin = {5};
    cudamem_event event;
    cudamem_export export = {5}, device_memory;
    OK(cudamem_resource_create_device(rig.context, &device));
    OK(cudamem_resource_create_pinned(rig.context, 0, &pinned));
    OK(cudamem_resource_create_mapped(rig.context, CUDAMEM_COHERENCE_PREFERRED, &mapped_resource));
    OK(cudamem_buffer_allocate(device, 1000, rig.stream, &buffer));
    OK(cudamem_buffer_allocate(pinned, 1000, rig.stream, &host));
    OK(cudamem_mapped_allocate(mapped_resource, 1000, &mapped));
    OK(cudamem_event_create(rig.context, 0, &event));

    /* What cannot be shared; nothing is made. */
    FAILS(cudamem_buffer_export(host, &export), CUDAMEM_ERROR_UNSUPPORTED);
    FAILS(cudamem_resource_export(device, &export), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_event_export(event, &export), CUDAMEM_ERROR_DRIVER);
    FAILS(cudamem_event_create(rig.context, CUDAMEM_EVENT_SHAREABLE | CUDAMEM_EVENT_TIMING, &event),
          CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_buffer_export(buffer, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(export.id == 5);

    OK(cudamem_buffer_export(buffer, &device_memory));
    const void *bytes = NULL;
    const int *files = NULL;
    size_t size = 0, count = 1;
    OK(cudamem_export_get_bytes(device_memory, &bytes, &size));
    OK(cudamem_export_get_files(device_memory, &files, &count));
    CHECK(size > 100 && count == 0);
    for (size_t length = 0; length < size; length++) {
        FAILS(cudamem_export_create(bytes, length, NULL, 0, &export), CUDAMEM_ERROR_DESCRIPTOR);
    }
    for (size_t place = 0; place < size; place++) {
        refused(bytes, size, place, 1, false);
    }
    refused(bytes, size, 0, 1, true);   /* the magic word */
    refused(bytes, size, 8, 3, true);   /* version 2 */
    refused(bytes, size, 10, 8, true);  /* a kind that does not exist */
    refused(bytes, size, 95, 128, true); /* a part beyond the end */
    OK(cudamem_export_create(bytes, size, NULL, 0, &export));
    OK(cudamem_export_destroy(export));
    FAILS(cudamem_export_destroy(export), CUDAMEM_ERROR_INVALID_HANDLE);
    FAILS(cudamem_export_get_bytes(export, &bytes, &size), CUDAMEM_ERROR_INVALID_HANDLE);
    cudamem_export_info info = {0};
    FAILS(cudamem_export_get_info(device_memory, &info), CUDAMEM_ERROR_INVALID_ARGUMENT);

    /* Wrong kinds and resources. */
    cudamem_event imported = {5};
    FAILS(cudamem_event_import(rig.context, device_memory, &imported), CUDAMEM_ERROR_DESCRIPTOR);
    FAILS(cudamem_mapped_import(mapped_resource, device_memory, &twin), CUDAMEM_ERROR_DESCRIPTOR);
    FAILS(cudamem_mapped_import(device, device_memory, &twin), CUDAMEM_ERROR_INVALID_ARGUMENT);
    cudamem_buffer copy = {5};
    FAILS(cudamem_buffer_import(pinned, device_memory, rig.stream, &copy), CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(imported.id == 5 && twin.id == 5 && copy.id == 5);

    /* An event that this process made is not imported. */
    cudamem_event shareable;
    if (cudamem_event_create(rig.context, CUDAMEM_EVENT_SHAREABLE, &shareable) == CUDAMEM_SUCCESS) {
        OK(cudamem_event_export(shareable, &export));
        FAILS(cudamem_event_import(rig.context, export, &imported), CUDAMEM_ERROR_DESCRIPTOR);
        OK(cudamem_export_destroy(export));
        OK(cudamem_event_destroy(shareable));
    }
    /* Mapped memory is mapped once more; the export is used twice. */
    if (cudamem_mapped_export(mapped, &export) == CUDAMEM_SUCCESS) {
        for (uint32_t word = 1; word < 3; word++) {
            uint32_t seen = 0;
            OK(cudamem_mapped_import(mapped_resource, export, &twin));
            OK(cudamem_mapped_store_u32(twin, 8, word));
            OK(cudamem_mapped_load_u32(mapped, 8, &seen));
            CHECK(seen == word);
            OK(cudamem_mapped_destroy(twin));
        }
        OK(cudamem_export_destroy(export));
    }
    pool_exports(rig, device, device_memory);

    OK(cudamem_export_destroy(device_memory));
    OK(cudamem_event_destroy(event));
    OK(cudamem_mapped_destroy(mapped));
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

/* A listener's channel, under a path of its own. */
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
    CHECK(rmdir(folder) == 0); /* the socket is gone */
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
    /* A message that has no room stays, and is no export either. */
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
    /* Nothing waits longer than it may. */
    static const double WRONG[] = {0, -1, -INFINITY, NAN};
    for (size_t index = 0; index < sizeof WRONG / sizeof WRONG[0]; index++) {
        FAILS(cudamem_channel_set_timeout(other, WRONG[index]), CUDAMEM_ERROR_INVALID_ARGUMENT);
    }
    OK(cudamem_channel_set_timeout(other, 0.02));
    FAILS(cudamem_channel_receive(other, &export), CUDAMEM_ERROR_TIMED_OUT);
    CHECK(export.id == 5);
    OK(cudamem_channel_set_timeout(other, INFINITY));
    /* One thread receives while another sends; the end wakes it. */
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

    /* Sockets of the program's. A message that ends within is the end of the channel. */
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
        CHECK(close(open_files[index]) == 0); /* still the program's */
    }
    FAILS(cudamem_channel_receive(third, &export), CUDAMEM_ERROR_CLOSED);
    FAILS(cudamem_channel_receive(third, &export), CUDAMEM_ERROR_CHANNEL);
    OK(cudamem_channel_destroy(third));
    listen_and_connect();
}
