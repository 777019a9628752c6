/* Reads of files and large page-locked memory while each call of the driver fails in turn. */
#define _GNU_SOURCE
#include "software.h"
#include "test.h"

enum { SIZE = 150000 };
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

/* Fails each call in turn. Each run gives a whole buffer or an error. The case's end finds what a run leaves behind. */
static void fail_each(const struct faulty *faulty)
{
    uint64_t injected = 1;
    int failed = 0, number = 0;
    cudamem_set_drop_error_callback(NULL, NULL);
    while (injected == 1) {
        OK(cudamem_engine_trim(faulty->engine)); /* so that staging is made while calls fail */
        cudamem_buffer buffer = {.id = 77};
        fail_call(++number);
        const cudamem_status status = faulty->run(faulty, &buffer);
        injected = end_faults();
        if (status == CUDAMEM_SUCCESS) {
            OK(cudamem_buffer_read(buffer, 0, seen, faulty->checked));
            CHECK(memcmp(seen, bytes + 5, faulty->checked) == 0);
            OK(cudamem_buffer_destroy(buffer));
        } else {
            CHECK(injected == 1 && buffer.id == 77);
            CHECK(strlen(cudamem_last_error_message()) > 20);
            failed++;
        }
    }
    CHECK(number > 3 && failed > 0);
    printf("%d calls, %d errors; ", number - 1, failed);
}

void case_faults(void)
{
    struct rig rig = rig_open();
    if (can_inject_faults()) {
        cudamem_engine_options options = {.size = sizeof options, .threads = 2, .slot_size = 32 << 10, .slots = 2, .lanes = 1};
        struct faulty faulty = {.rig = rig, .checked = SIZE, .run = read_file};
        FILE *file = tmpfile();
        pattern(bytes, sizeof bytes, 1);
        CHECK(file != NULL && fwrite(bytes, 1, sizeof bytes, file) == sizeof bytes && fflush(file) == 0);
        faulty.file = fileno(file);
        OK(cudamem_engine_create(rig.context, &options, &faulty.engine));
        OK(cudamem_resource_create_device(rig.context, &faulty.resource));
        fail_each(&faulty);
        OK(cudamem_resource_destroy(faulty.resource));
        OK(cudamem_resource_create_pinned(rig.context, 0, &faulty.resource));
        fail_each(&faulty);
        faulty.run = allocate;
        faulty.size = (size_t)256 << 20;
        faulty.checked = 0;
        fail_each(&faulty);
        OK(cudamem_resource_destroy(faulty.resource));
        OK(cudamem_engine_destroy(faulty.engine));
        fclose(file);
    }
    rig_close(rig);
}
