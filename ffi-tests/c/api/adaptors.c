/* Adaptors and ring pools. */
#define _GNU_SOURCE
#include "test.h"

static bool make_room(const char *message, uint32_t attempt, void *user)
{
    cudamem_buffer *kept = user;
    CHECK(message != NULL && strlen(message) > 10 && attempt >= 1);
    if (kept->id == 0) {
        return false;
    }
    OK(cudamem_buffer_destroy(*kept));
    kept->id = 0;
    return true;
}

static void counting_and_limits(struct rig rig, cudamem_resource device)
{
    cudamem_resource limit, same, retry, counted;
    cudamem_buffer kept, buffer, more;
    OK(cudamem_resource_create_adaptor(device, CUDAMEM_ADAPTOR_LIMIT, 10000, &limit));
    /* Another handle has the functions of the resource too. */
    OK(cudamem_resource_share(limit, &same));
    OK(cudamem_resource_set_limit(same, 10000));
    OK(cudamem_resource_destroy(same));
    OK(cudamem_buffer_allocate(limit, 8000, rig.stream, &kept));
    INFO(cudamem_resource_info, info, cudamem_resource_get_info, limit);
    CHECK(info.limit == 10000 && info.used >= 8000 && info.access == CUDAMEM_ACCESS_DEVICE);
    FAILS(cudamem_buffer_allocate(limit, 4000, rig.stream, &buffer), CUDAMEM_ERROR_OUT_OF_MEMORY);
    OK(cudamem_resource_create_retry(limit, 3, make_room, &kept, &retry));
    OK(cudamem_resource_create_adaptor(retry, CUDAMEM_ADAPTOR_STATISTICS, 0, &counted));
    OK(cudamem_buffer_allocate(counted, 4000, rig.stream, &buffer)); /* the callback frees `kept` */
    CHECK(kept.id == 0);
    FAILS(cudamem_buffer_allocate(counted, 9000, rig.stream, &more), CUDAMEM_ERROR_OUT_OF_MEMORY);
    OK(cudamem_resource_set_limit(limit, 20000));
    OK(cudamem_buffer_allocate(counted, 9000, rig.stream, &more));
    OK(cudamem_buffer_destroy(more));
    cudamem_counts counts;
    counts.size = sizeof counts;
    OK(cudamem_resource_get_counts(counted, &counts));
    CHECK(counts.bytes >= 4000 && counts.bytes_peak >= 13000 && counts.bytes_total >= 13000);
    CHECK(counts.blocks == 1 && counts.blocks_peak == 2 && counts.blocks_total == 2);
    CHECK(counts.failed_allocations == 1 && counts.failed_frees == 0);
    CHECK(counts.sizes[11] + counts.sizes[12] + counts.sizes[13] == 2);
    OK(cudamem_pool_reset_peaks(counted));
    OK(cudamem_resource_get_counts(counted, &counts));
    CHECK(counts.blocks_peak == 1);
    counts.size = 8;
    FAILS(cudamem_resource_get_counts(counted, &counts), CUDAMEM_ERROR_INVALID_ARGUMENT);
    counts.size = sizeof counts;
    FAILS(cudamem_resource_get_counts(limit, &counts), CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(cudamem_last_error_message(), "CUDAMEM_ADAPTOR_STATISTICS") != NULL);
    FAILS(cudamem_resource_set_limit(counted, 1), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_resource_create_retry(limit, 3, NULL, NULL, &counted), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_buffer_destroy(buffer));
    OK(cudamem_resource_destroy(counted));
    OK(cudamem_resource_destroy(retry));
    OK(cudamem_resource_destroy(limit));
}

static void what_is_live(struct rig rig, cudamem_resource device)
{
    cudamem_resource tracking, recording, logging, pool;
    cudamem_buffer buffer;
    cudamem_text text;
    const char *characters = NULL;
    size_t blocks = 99;
    OK(cudamem_resource_create_adaptor(device, CUDAMEM_ADAPTOR_TRACKING, 0, &tracking));
    OK(cudamem_buffer_allocate(tracking, 1234, rig.stream, &buffer));
    OK(cudamem_resource_get_report(tracking, &blocks, &text));
    OK(cudamem_text_get(text, &characters, NULL));
    CHECK(blocks == 1 && strstr(characters, "1 live block") != NULL);
    OK(cudamem_text_destroy(text));
    OK(cudamem_buffer_destroy(buffer));
    OK(cudamem_resource_get_report(tracking, &blocks, NULL));
    CHECK(blocks == 0);
    FAILS(cudamem_resource_create_adaptor(device, CUDAMEM_ADAPTOR_TRACKING, 2, &recording), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_resource_create_adaptor(device, CUDAMEM_ADAPTOR_STATISTICS, 1, &recording), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_resource_create_adaptor(device, 5, 0, &recording), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_resource_destroy(tracking));

    /* Traces of an adaptor and of a pool. */
    cudamem_pool_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.trace_capacity = 10;
    OK(cudamem_resource_create_adaptor(device, CUDAMEM_ADAPTOR_RECORDING, 10, &recording));
    OK(cudamem_pool_create(device, &options, &pool));
    const cudamem_resource traced[] = {recording, pool};
    for (int index = 0; index < 2; index++) {
        OK(cudamem_buffer_allocate(traced[index], 4321, rig.stream, &buffer));
        OK(cudamem_buffer_destroy(buffer));
        OK(cudamem_resource_get_report(traced[index], &blocks, &text));
        OK(cudamem_text_get(text, &characters, NULL));
        CHECK(blocks >= 2 && strstr(characters, "allocate") != NULL && strstr(characters, "free") != NULL);
        OK(cudamem_text_destroy(text));
    }
    FAILS(cudamem_resource_get_report(device, &blocks, &text), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_resource_create_adaptor(device, CUDAMEM_ADAPTOR_RECORDING, SIZE_MAX, &recording), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_resource_destroy(recording));
    OK(cudamem_resource_destroy(pool));

    char path[] = "/tmp/cudamem-log-XXXXXX", line[200] = "";
    int file = mkstemp(path);
    CHECK(file >= 0);
    uint64_t lost = 99;
    OK(cudamem_resource_create_logging(device, path, &logging));
    OK(cudamem_buffer_allocate(logging, 77, rig.stream, &buffer));
    OK(cudamem_buffer_destroy(buffer));
    OK(cudamem_resource_flush_log(logging, &lost));
    FILE *log = fdopen(file, "r");
    CHECK(log != NULL && lost == 0);
    CHECK(fgets(line, sizeof line, log) != NULL && strcmp(line, "Thread,Time,Action,Pointer,Size,Stream\n") == 0);
    CHECK(fgets(line, sizeof line, log) != NULL && strstr(line, ",allocate,0x") != NULL);
    CHECK(fclose(log) == 0 && remove(path) == 0);
    FAILS(cudamem_resource_create_logging(device, "/nowhere/at/all", &pool), CUDAMEM_ERROR_SYSTEM);
    FAILS(cudamem_resource_create_logging(device, NULL, &pool), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_resource_destroy(logging));
}

static void failures_and_guards(struct rig rig, cudamem_resource device)
{
    cudamem_resource failing, fallback, aligned, pinned, guarded;
    cudamem_buffer buffers[4];
    cudamem_failure_rule rules[] = {{CUDAMEM_FAIL_NTH, 0, 2, 0}, {CUDAMEM_FAIL_LARGER_THAN, 0, 1000, 0}};
    uint64_t address = 0;
    OK(cudamem_resource_create_failing(device, rules, 2, &failing));
    OK(cudamem_buffer_allocate(failing, 10, rig.stream, &buffers[0]));
    FAILS(cudamem_buffer_allocate(failing, 10, rig.stream, &buffers[1]), CUDAMEM_ERROR_OUT_OF_MEMORY);
    FAILS(cudamem_buffer_allocate(failing, 2000, rig.stream, &buffers[1]), CUDAMEM_ERROR_OUT_OF_MEMORY);
    INFO(cudamem_resource_info, info, cudamem_resource_get_info, failing);
    CHECK(info.allocations == 3 && info.injected == 2);
    rules[0].when = CUDAMEM_FAIL_EVERY_NTH;
    rules[0].number = 1;
    OK(cudamem_resource_set_failures(failing, rules, 1));
    OK(cudamem_resource_create_fallback(failing, device, &fallback));
    OK(cudamem_buffer_allocate(fallback, 10, rig.stream, &buffers[1]));
    OK(cudamem_resource_get_info(fallback, &info));
    CHECK(info.fallback_blocks == 1 && info.allocations == 0);
    rules[0].when = 9;
    FAILS(cudamem_resource_set_failures(failing, rules, 1), CUDAMEM_ERROR_INVALID_ARGUMENT);
    rules[0].when = CUDAMEM_FAIL_BY_CHANCE;
    rules[0].probability = 2;
    FAILS(cudamem_resource_set_failures(failing, rules, 1), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_resource_set_failures(failing, NULL, 1), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_resource_create_adaptor(device, CUDAMEM_ADAPTOR_ALIGNED, 1 << 20, &aligned));
    OK(cudamem_buffer_allocate(aligned, 10, rig.stream, &buffers[2]));
    OK(cudamem_buffer_get_device_pointer(buffers[2], &address));
    CHECK(address % (1 << 20) == 0);
    FAILS(cudamem_resource_create_adaptor(device, CUDAMEM_ADAPTOR_ALIGNED, 3, &guarded), CUDAMEM_ERROR_INVALID_ARGUMENT);

    /* A write beyond the end: a check finds it; the destroy reports it and fails; a second destroy succeeds. */
    OK(cudamem_resource_create_pinned(rig.context, 0, &pinned));
    OK(cudamem_resource_create_guarded(pinned, NULL, &guarded));
    OK(cudamem_buffer_allocate(guarded, 100, rig.stream, &buffers[3]));
    OK(cudamem_stream_synchronize(rig.stream));
    void *host = NULL;
    OK(cudamem_buffer_get_host_pointer(buffers[3], &host));
    size_t findings = 99;
    cudamem_text report;
    const char *characters = NULL;
    OK(cudamem_resource_get_report(guarded, &findings, NULL));
    CHECK(findings == 0);
    ((volatile unsigned char *)host)[100] = 7;
    OK(cudamem_resource_get_report(guarded, &findings, &report));
    OK(cudamem_text_get(report, &characters, NULL));
    CHECK(findings == 1 && strstr(characters, "beyond the block's end") != NULL);
    OK(cudamem_text_destroy(report));
    FAILS(cudamem_buffer_destroy(buffers[3]), CUDAMEM_ERROR_DAMAGED);
    OK(cudamem_buffer_destroy(buffers[3]));
    OK(cudamem_pool_release_unused(guarded));
    cudamem_guard_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.flags = 4;
    cudamem_resource none;
    FAILS(cudamem_resource_create_guarded(pinned, &options, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    for (int index = 0; index < 3; index++) {
        OK(cudamem_buffer_destroy(buffers[index]));
    }
    OK(cudamem_resource_destroy(failing));
    OK(cudamem_resource_destroy(fallback));
    OK(cudamem_resource_destroy(aligned));
    OK(cudamem_resource_destroy(guarded));
    OK(cudamem_resource_destroy(pinned));
}

void case_adaptors(void)
{
    struct rig rig = rig_open();
    cudamem_resource device;
    OK(cudamem_resource_create_device(rig.context, &device));
    counting_and_limits(rig, device);
    what_is_live(rig, device);
    failures_and_guards(rig, device);
    OK(cudamem_resource_destroy(device));
    rig_close(rig);
}

void case_ring_pools(void)
{
    struct rig rig = rig_open();
    cudamem_resource device, pinned, ring;
    cudamem_buffer first, second;
    OK(cudamem_resource_create_device(rig.context, &device));
    OK(cudamem_resource_create_pinned(rig.context, 0, &pinned));
    cudamem_pool_statistics figures;
    figures.size = sizeof figures;
    FAILS(cudamem_pool_trim(device, 0), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_ring_pool_create(pinned, 4096, CUDAMEM_RING_POOL_REFUSE, &ring));
    OK(cudamem_buffer_allocate(ring, 3000, rig.stream, &first));
    FAILS(cudamem_buffer_allocate(ring, 3000, rig.stream, &second), CUDAMEM_ERROR_OUT_OF_MEMORY);
    OK(cudamem_buffer_destroy(first));
    OK(cudamem_pool_release_unused(ring));
    OK(cudamem_buffer_allocate(ring, 3000, rig.stream, &second));
    OK(cudamem_pool_get_statistics(ring, &figures));
    CHECK(figures.reserved.current == 4096 && figures.blocks.current == 1 && figures.active.current >= 3000);
    CHECK(figures.out_of_memory >= 1 && figures.active.current + figures.pending + figures.largest_free == 4096);
    OK(cudamem_buffer_destroy(second));
    FAILS(cudamem_pool_trim(ring, 0), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_pool_reserve(ring, 1), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_pool_release_unused(device), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_ring_pool_create(pinned, 4096, 2, &ring), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_ring_pool_create(pinned, SIZE_MAX, 0, &ring), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_resource_destroy(ring));
    OK(cudamem_resource_destroy(pinned));
    OK(cudamem_resource_destroy(device));
    rig_close(rig);
}
