/* What the cases of the C library's tests share. Each runs in a process of its own: `program CASE`; or several in turn. */
#ifndef TEST_H
#define TEST_H

#include "cudamem.h"

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

/* A call that works. */
#define OK(call) CHECK((call) == CUDAMEM_SUCCESS)

/* A call that fails with a status, and says why. */
#define FAILS(call, status)                                                                                              \
    do {                                                                                                                 \
        CHECK((call) == (status));                                                                                       \
        CHECK(cudamem_last_error() == (status));                                                                         \
        CHECK(cudamem_last_error_message() != NULL && strlen(cudamem_last_error_message()) > 20);                        \
    } while (0)

/* What the last failure's message says. */
#define SAYS(words) CHECK(strstr(cudamem_last_error_message(), (words)) != NULL)

/* What most cases begin with. */
struct rig {
    cudamem_context context;
    cudamem_stream stream;
};

/* How this program was started: it starts itself again as another process. */
extern const char *program_path;

struct rig rig_open(void);
void rig_close(struct rig rig);

/* The resources that the device has, by name; there is none where *resource is the null handle. */
struct source {
    const char *name;
    cudamem_resource resource;
};
enum { SOURCES = 9 };
void sources_open(struct rig rig, struct source sources[SOURCES]);
void sources_close(struct source sources[SOURCES]);

/* A pool that other processes may import; the null handle where the device cannot share pools. */
cudamem_resource shareable_pool(struct rig rig);

/* Bytes that differ by place and by seed. */
void pattern(unsigned char *bytes, size_t size, unsigned seed);

/* A view of 4 rows of 6 numbers in memory of a resource, and the numbers in it. */
cudamem_view numbers_in(cudamem_resource resource, cudamem_stream stream, int32_t numbers[24]);

/* The characters of a text, which is destroyed; to be freed. */
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
void case_out_of_memory(void);
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
void case_small_pools(void);
void case_virtual_memory(void);
void case_host_memory(void);
void case_graphs(void);
void case_copies(void);
void case_sharing(void);
void case_exports(void);
void case_channels(void);

#endif
