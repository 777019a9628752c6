/* Sharing between two processes. The other process runs this program too. */
#define _GNU_SOURCE
#include "test.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { SIZE = 10000, BEGIN = 1000, LENGTH = 5000 };
static const char CHILD[] = "CUDAMEM_TEST_CHILD";

/* The other process. Its standard input is the other end of the channel. */
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
    OK(buffer_size(buffer, &size));
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
    cudamem_buffer mapped;
    OK(cudamem_resource_create_mapped(rig.context, CUDAMEM_COHERENCE_PREFERRED, &resource));
    OK(cudamem_buffer_import(resource, export, rig.stream, &mapped));
    OK(cudamem_buffer_load(mapped, 0, bytes, LENGTH));
    OK(cudamem_channel_send_bytes(channel, bytes, LENGTH));
    invert(bytes, LENGTH);
    OK(cudamem_buffer_store(mapped, 0, bytes, LENGTH));
    OK(cudamem_buffer_destroy(mapped));
    OK(cudamem_resource_destroy(resource));
    OK(cudamem_channel_send_bytes(channel, "done", 4));
}

/* Sends the contents of received memory back and inverts them, until a message other than an export arrives. */
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
            CHECK(kind_of(export) == 0); /* no other kind was sent */
        }
        OK(cudamem_export_destroy(export));
    }
    OK(cudamem_resource_destroy(pool));
    OK(cudamem_resource_destroy(device));
    OK(cudamem_channel_destroy(channel));
    rig_close(rig);
}

/* Checks that the other process has seen the bytes and inverted them. */
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

/* Shares a part of a buffer, and an event after the work on it. */
static void share_buffer(struct rig rig, struct other other, cudamem_resource resource, bool is_virtual)
{
    static unsigned char bytes[SIZE], seen[SIZE];
    cudamem_buffer buffer, part;
    cudamem_export export;
    cudamem_event event;
    OK(cudamem_buffer_allocate(resource, SIZE, rig.stream, &buffer));
    OK(cudamem_buffer_slice(buffer, BEGIN, LENGTH, &part));
    if (is_virtual) {
        FAILS(cudamem_buffer_export(part, (cudamem_resource){0}, &export), CUDAMEM_ERROR_UNSUPPORTED);
        OK(cudamem_buffer_export(part, resource, &export));
    } else {
        FAILS(cudamem_buffer_export(part, resource, &export), CUDAMEM_ERROR_INVALID_ARGUMENT);
        OK(cudamem_buffer_export(part, (cudamem_resource){0}, &export));
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
    cudamem_buffer mapped, part;
    cudamem_export export;
    OK(cudamem_resource_create_mapped(rig.context, CUDAMEM_COHERENCE_PREFERRED, &resource));
    OK(cudamem_buffer_allocate(resource, SIZE, rig.stream, &mapped));
    OK(cudamem_buffer_slice(mapped, BEGIN, LENGTH, &part));
    cudamem_status status = cudamem_buffer_export(part, resource, &export);
    if (status == CUDAMEM_SUCCESS) {
        CHECK(kind_of(export) == CUDAMEM_EXPORT_MAPPED);
        pattern(bytes, SIZE, 4);
        OK(cudamem_buffer_store(mapped, 0, bytes, SIZE));
        send_and_destroy(other.channel, export);
        check_mirror(other.channel, bytes);
        OK(cudamem_buffer_load(mapped, 0, seen, SIZE));
        CHECK(memcmp(seen, bytes, SIZE) == 0);
        OK(cudamem_buffer_read(mapped, 0, seen, SIZE));
        CHECK(memcmp(seen, bytes, SIZE) == 0);
    } else {
        CHECK(status == CUDAMEM_ERROR_MISSING_SYMBOL);
        printf("skipped: %s\n", cudamem_last_error_message());
    }
    OK(cudamem_buffer_destroy(part));
    OK(cudamem_buffer_destroy(mapped));
    OK(cudamem_resource_destroy(resource));
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

    /* When a process is killed, its channel ends, and nothing else happens. */
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
