/* Reads of files and large page-locked memory while each call of the driver fails in turn. */
#define _GNU_SOURCE
#include "software.h"
#include "test.h"

enum { SIZE = 150000, SLOT = 8192, TRIES = 10 };
static unsigned char bytes[SIZE + 5], seen[SIZE];

/* What runs with faults. It may leave a buffer, of which the first bytes are those of `bytes` from byte 5 on. */
struct faulty {
    struct rig rig;
    cudamem_engine engine;
    cudamem_resource resource;
    int file;
    size_t size, checked;
    cudamem_status (*run)(const struct faulty *, cudamem_buffer *);
};

static cudamem_status read_file(const struct faulty *faulty, cudamem_buffer *buffer)
{
    return cudamem_engine_read_file(faulty->engine, faulty->file, 5, SIZE, faulty->resource, faulty->rig.stream, buffer);
}

static cudamem_status allocate(const struct faulty *faulty, cudamem_buffer *buffer)
{
    return cudamem_buffer_allocate(faulty->resource, faulty->size, faulty->rig.stream, buffer);
}

/* Runs with a fault at one call. Returns whether the run had such a call. */
static bool run_with_fault(const struct faulty *faulty, int number, int *errors)
{
    cudamem_buffer buffer = {.id = 77};
    OK(cudamem_engine_trim(faulty->engine)); /* so that staging is made while calls fail */
    fail_call(number);
    const cudamem_status status = faulty->run(faulty, &buffer);
    const bool failed = end_faults() == 1;
    if (status == CUDAMEM_SUCCESS) {
        OK(cudamem_buffer_read(buffer, 0, seen, faulty->checked));
        CHECK(memcmp(seen, bytes + 5, faulty->checked) == 0);
        OK(cudamem_buffer_destroy(buffer));
    } else {
        CHECK(failed && buffer.id == 77);
        CHECK(strlen(cudamem_last_error_message()) > 20);
        ++*errors;
    }
    return failed;
}

/* Fails each call in turn. Each run gives a whole buffer or an error. The case's end finds what a run leaves behind. */
static void fail_each(const struct faulty *faulty, int least)
{
    int errors = 0, number = 0;
    bool failed = true;
    cudamem_buffer first;
    OK(faulty->run(faulty, &first)); /* also ends what earlier work has left */
    OK(cudamem_buffer_destroy(first));
    cudamem_set_drop_error_callback(NULL, NULL);
    while (failed) {
        number++;
        failed = false;
        /* A run that waits less than others asks the driver less often. */
        for (int tries = 0; tries < TRIES && !failed; tries++) {
            failed = run_with_fault(faulty, number, &errors);
        }
    }
    CHECK(number > least && errors >= least);
    printf("%d calls, %d errors; ", number - 1, errors);
}

void case_faults(void)
{
    struct rig rig = rig_open();
    if (can_inject_faults()) {
        cudamem_engine_options options = {.size = sizeof options, .threads = 2, .slot_size = SLOT, .slots = 3, .lanes = 1};
        struct faulty faulty = {.rig = rig, .checked = SIZE, .run = read_file};
        FILE *file = tmpfile();
        pattern(bytes, sizeof bytes, 1);
        CHECK(file != NULL && fwrite(bytes, 1, sizeof bytes, file) == sizeof bytes && fflush(file) == 0);
        faulty.file = fileno(file);
        OK(cudamem_engine_create(rig.context, &options, &faulty.engine));
        OK(cudamem_resource_create_device(rig.context, &faulty.resource));
        fail_each(&faulty, 2 * SIZE / SLOT); /* a copy and an event for each piece */
        OK(cudamem_resource_destroy(faulty.resource));
        OK(cudamem_resource_create_pinned(rig.context, 0, &faulty.resource));
        fail_each(&faulty, 1);
        faulty.run = allocate;
        faulty.size = (size_t)256 << 20;
        faulty.checked = 0;
        fail_each(&faulty, 1);
        OK(cudamem_resource_destroy(faulty.resource));
        OK(cudamem_engine_destroy(faulty.engine));
        fclose(file);
    }
    rig_close(rig);
}
