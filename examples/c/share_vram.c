/*
 * Two processes share memory of a GPU.
 *
 * This program starts itself again. The parent allocates GPU memory and sends it through a channel, a Unix socket that
 * carries file descriptors. The child maps the same memory, reads what the parent wrote, and writes its answer. The
 * processes share two kinds of memory: device memory of a driver pool, with an event that orders the work of both
 * processes; and mapped memory, which loads and stores of both processes' CPUs also reach.
 *
 *     cc share_vram.c $(pkg-config --cflags --libs cudamem) -o share_vram && ./share_vram
 */
#define _GNU_SOURCE
#include <cudamem/sharing.h>

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

enum { COUNT = 1024, MAPPED_SIZE = 4096, ANSWER_AT = 2048 };

/* Prints why a call failed, and ends the program. */
static void check(const char *who, cudamem_status status)
{
    if (status != CUDAMEM_SUCCESS) {
        fprintf(stderr, "%s: %s: %s\n", who, cudamem_status_name(status), cudamem_last_error_message());
        exit(1);
    }
}
#define PARENT(call) check("parent", call)
#define CHILD(call) check("child", call)

static void child(void)
{
    cudamem_context context;
    cudamem_stream stream;
    cudamem_channel channel;
    cudamem_export export;
    cudamem_resource pool, mapped_resource;
    cudamem_buffer buffer;
    cudamem_event ready;
    cudamem_buffer mapped;

    /* The channel is the standard input. */
    CHILD(cudamem_channel_open_socket(0, &channel));
    CHILD(cudamem_channel_set_timeout(channel, 30));
    CHILD(cudamem_context_open_primary(0, &context));
    CHILD(cudamem_stream_create(context, NULL, &stream));

    /* Receives in the parent's order: the pool, a part of its memory, and the event after the parent's work. */
    CHILD(cudamem_channel_receive(channel, &export));
    CHILD(cudamem_resource_import(context, export, &pool));
    CHILD(cudamem_export_destroy(export));
    CHILD(cudamem_channel_receive(channel, &export));
    CHILD(cudamem_buffer_import(pool, export, stream, &buffer));
    CHILD(cudamem_export_destroy(export));
    CHILD(cudamem_channel_receive(channel, &export));
    CHILD(cudamem_event_import(context, export, &ready));
    CHILD(cudamem_export_destroy(export));

    float numbers[COUNT / 2];
    CHILD(cudamem_stream_wait_event(stream, ready));
    CHILD(cudamem_buffer_read(buffer, 0, numbers, sizeof numbers));
    printf("child: the second half begins with %g, %g, %g\n", (double)numbers[0], (double)numbers[1], (double)numbers[2]);
    for (int index = 0; index < COUNT / 2; index++) {
        numbers[index] = -numbers[index];
    }
    CHILD(cudamem_buffer_write(buffer, 0, numbers, sizeof numbers));

    /* Mapped memory: stores of this CPU reach the GPU's memory, where the parent sees them. */
    char text[64];
    CHILD(cudamem_resource_create_mapped(context, CUDAMEM_COHERENCE_PREFERRED, &mapped_resource));
    CHILD(cudamem_channel_receive(channel, &export));
    CHILD(cudamem_buffer_import(mapped_resource, export, stream, &mapped));
    CHILD(cudamem_export_destroy(export));
    CHILD(cudamem_buffer_load(mapped, 0, text, sizeof text));
    printf("child: the parent's CPU wrote \"%.*s\"\n", (int)sizeof text, text);
    memset(text, 0, sizeof text);
    strcpy(text, "and hello from the child");
    CHILD(cudamem_buffer_store(mapped, ANSWER_AT, text, sizeof text));

    /* Releases everything before telling the parent, which may then free its memory. */
    CHILD(cudamem_buffer_destroy(mapped));
    CHILD(cudamem_resource_destroy(mapped_resource));
    CHILD(cudamem_event_destroy(ready));
    CHILD(cudamem_buffer_destroy(buffer));
    CHILD(cudamem_stream_synchronize(stream));
    CHILD(cudamem_resource_destroy(pool));
    fflush(stdout);
    CHILD(cudamem_channel_send_bytes(channel, "done", 4));
    CHILD(cudamem_stream_destroy(stream));
    CHILD(cudamem_context_destroy(context));
    CHILD(cudamem_channel_destroy(channel));
}

/* Starts this program again, with one end of a channel as its standard input. A program that uses a driver must not
 * fork; posix_spawn starts a new program. */
static pid_t start_child(char *program, cudamem_channel *channel)
{
    cudamem_channel theirs;
    int socket = -1;
    PARENT(cudamem_channel_create_pair(channel, &theirs));
    PARENT(cudamem_channel_set_timeout(*channel, 30));
    PARENT(cudamem_channel_get_socket(theirs, &socket));
    pid_t process = -1;
    char child_argument[] = "child";
    char *arguments[] = {program, child_argument, NULL};
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    error = error ? error : posix_spawn_file_actions_adddup2(&actions, socket, 0);
    error = error ? error : posix_spawn(&process, "/proc/self/exe", &actions, NULL, arguments, environ);
    if (error != 0) {
        fprintf(stderr, "parent: the child does not start: %s\n", strerror(error));
        exit(1);
    }
    posix_spawn_file_actions_destroy(&actions);
    /* The child has its own copy. Closing ours lets the parent notice the child's death. */
    PARENT(cudamem_channel_destroy(theirs));
    return process;
}

static void send_and_destroy(cudamem_channel channel, cudamem_export export)
{
    PARENT(cudamem_channel_send(channel, export));
    PARENT(cudamem_export_destroy(export));
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "child") == 0) {
        child();
        return 0;
    }
    cudamem_context context;
    cudamem_stream stream;
    cudamem_channel channel;
    cudamem_export export;
    cudamem_resource pool, mapped_resource;
    cudamem_buffer buffer, half;
    cudamem_event ready;
    cudamem_buffer mapped;

    /* Without a GPU this reports what is missing. */
    PARENT(cudamem_context_open_primary(0, &context));
    PARENT(cudamem_stream_create(context, NULL, &stream));
    cudamem_driver_pool_options options = {0};
    options.size = sizeof options;
    options.flags = CUDAMEM_DRIVER_POOL_SHAREABLE;
    PARENT(cudamem_resource_create_driver_pool(context, &options, &pool));
    PARENT(cudamem_resource_create_mapped(context, CUDAMEM_COHERENCE_PREFERRED, &mapped_resource));
    PARENT(cudamem_event_create(context, CUDAMEM_EVENT_SHAREABLE, &ready));
    pid_t process = start_child(arguments[0], &channel);

    float numbers[COUNT];
    for (int index = 0; index < COUNT; index++) {
        numbers[index] = (float)index;
    }
    PARENT(cudamem_buffer_allocate(pool, sizeof numbers, stream, &buffer));
    PARENT(cudamem_buffer_slice(buffer, sizeof numbers / 2, CUDAMEM_WHOLE_SIZE, &half));
    PARENT(cudamem_resource_export(pool, &export));
    send_and_destroy(channel, export);
    PARENT(cudamem_buffer_export(half, (cudamem_resource){0}, &export)); /* a part is enough */
    send_and_destroy(channel, export);
    PARENT(cudamem_buffer_write(buffer, 0, numbers, sizeof numbers));
    PARENT(cudamem_event_record(ready, stream));
    PARENT(cudamem_event_export(ready, &export));
    send_and_destroy(channel, export);

    PARENT(cudamem_buffer_allocate(mapped_resource, MAPPED_SIZE, stream, &mapped));
    PARENT(cudamem_buffer_store(mapped, 0, "hello from the parent", sizeof "hello from the parent"));
    PARENT(cudamem_buffer_export(mapped, mapped_resource, &export));
    send_and_destroy(channel, export);

    char text[64];
    size_t size = 0;
    cudamem_status answered = cudamem_channel_receive_bytes(channel, text, sizeof text, &size);
    int status = 0;
    if (answered != CUDAMEM_SUCCESS) {
        fprintf(stderr, "parent: the child does not answer: %s\n", cudamem_last_error_message());
    }
    if (waitpid(process, &status, 0) != process || status != 0 || answered != CUDAMEM_SUCCESS) {
        return 1;
    }
    PARENT(cudamem_buffer_read(buffer, 0, numbers, sizeof numbers));
    PARENT(cudamem_buffer_load(mapped, ANSWER_AT, text, sizeof text));
    for (int index = 0; index < COUNT; index++) {
        if (numbers[index] != (float)(index < COUNT / 2 ? index : -index)) {
            fprintf(stderr, "parent: number %d is %g\n", index, (double)numbers[index]);
            return 1;
        }
    }
    printf("parent: the child has changed its half, and wrote \"%.*s\"\n", (int)sizeof text, text);

    PARENT(cudamem_buffer_destroy(mapped));
    PARENT(cudamem_buffer_destroy(half));
    PARENT(cudamem_buffer_destroy(buffer));
    PARENT(cudamem_event_destroy(ready));
    PARENT(cudamem_resource_destroy(mapped_resource));
    PARENT(cudamem_resource_destroy(pool));
    PARENT(cudamem_stream_destroy(stream));
    PARENT(cudamem_context_destroy(context));
    PARENT(cudamem_channel_destroy(channel));
    return 0;
}
