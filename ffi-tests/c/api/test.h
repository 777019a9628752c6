/* Shared parts of the C library's test cases. `program CASE...` runs the named cases in turn. */
#ifndef TEST_H
#define TEST_H

#include "cudamem/adaptors.h"
#include "cudamem/engine.h"
#include "cudamem/graphs.h"
#include "cudamem/interchange.h"
#include "cudamem/memory.h"
#include "cudamem/sharing.h"
#include "cudamem/signals.h"
#include "cudamem/views.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                                 \
    do {                                                                                                                 \
        if (!(condition)) {                                                                                              \
            const char *message = cudamem_last_error_message();                                                          \
            fprintf(stderr, "%s:%d: %s\n  last error: %s\n", __FILE__, __LINE__, #condition, message ? message : "none"); \
            exit(1);                                                                                                     \
        }                                                                                                                \
    } while (0)

/* Checks that a call succeeds. */
#define OK(call) CHECK((call) == CUDAMEM_SUCCESS)

/* Checks that a call fails with a status and a message. */
#define FAILS(call, status)                                                                                              \
    do {                                                                                                                 \
        CHECK((call) == (status));                                                                                       \
        CHECK(cudamem_last_error_message() != NULL && strlen(cudamem_last_error_message()) > 20);                        \
    } while (0)

/* Declares a struct of results, and fills it. */
#define INFO(type, name, function, ...)                                                                                  \
    type name;                                                                                                           \
    name.size = sizeof name;                                                                                             \
    OK(function(__VA_ARGS__, &name))

/* Checks that the last failure's message contains some words. */
#define SAYS(words) CHECK(strstr(cudamem_last_error_message(), (words)) != NULL)

/* The objects that most cases need. */
struct rig {
    cudamem_context context;
    cudamem_stream stream;
};

/* The path of this program, for cases that start it as another process. */
extern const char *program_path;

struct rig rig_open(void);
void rig_close(struct rig rig);

/* A resource and its name. The resource is the null handle if the device does not support it. */
struct source {
    const char *name;
    cudamem_resource resource;
};
enum { SOURCES = 9 };
void sources_open(struct rig rig, struct source sources[SOURCES]);
void sources_close(struct source sources[SOURCES]);

/* A pool that other processes can import; the null handle if the device cannot share pools. */
cudamem_resource shareable_pool(struct rig rig);

/* Fills bytes with values that depend on position and seed. */
void pattern(unsigned char *bytes, size_t size, unsigned seed);

/* A view of 4 rows of 6 numbers in a resource's memory. Also returns the numbers. */
cudamem_view numbers_in(cudamem_resource resource, cudamem_stream stream, int32_t numbers[24]);

/* The size of a buffer. */
cudamem_status buffer_size(cudamem_buffer buffer, size_t *size);

/* The memory of signals in its default places. */
cudamem_signals signals_open(struct rig rig);

/* The characters of a text, which the caller must free. Destroys the text. */
char *take_text(cudamem_text text);

void case_library(void);
void case_callbacks(void);
void case_waits(void);
void case_devices(void);
void case_streams(void);
void case_foreign(void);
void case_mapped(void);
void case_resources(void);
void case_pools(void);
void case_sleep(void);
void case_out_of_memory(void);
void case_addresses(void);
void case_buffers(void);
void case_slices(void);
void case_borrowed(void);
void case_engine(void);
void case_handles(void);
void case_arguments(void);
void case_options(void);
void case_threads(void);
void case_data_types(void);
void case_views(void);
void case_view_copies(void);
void case_view_misuse(void);
void case_dlpack(void);
void case_dlpack_misuse(void);
void case_array_interfaces(void);
void case_arrow(void);
void case_arrow_misuse(void);
void case_flags(void);
void case_rings(void);
void case_signal_ends(void);
void case_frames(void);
void case_adaptors(void);
void case_ring_pools(void);
void case_virtual_memory(void);
void case_host_memory(void);
void case_graphs(void);
void case_copies(void);
void case_faults(void);
void case_sharing(void);
void case_exports(void);
void case_channels(void);

#endif
