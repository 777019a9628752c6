/* The library, devices, contexts, streams, events; borrowed driver handles. */
#include "test.h"

void case_library(void)
{
    CHECK(cudamem_version_number() == CUDAMEM_VERSION_NUMBER);
    CHECK(cudamem_last_error_message() == NULL);
    uint32_t release = 0;
    OK(cudamem_load(NULL, &release));
    CHECK(release >= 11000);
    OK(cudamem_load(NULL, NULL));
    cudamem_load_options options = {0};
    options.size = sizeof options;
    OK(cudamem_load(&options, &release));
    options.cuda = "/nowhere/libcuda.so.1";
    FAILS(cudamem_load(&options, &release), CUDAMEM_ERROR_INVALID_ARGUMENT);

    cudamem_text text;
    const char *characters;
    size_t length;
    OK(cudamem_describe(&text));
    OK(cudamem_text_get(text, &characters, &length));
    CHECK(strlen(characters) == length && characters[0] == '{' && strstr(characters, "\"devices\"") != NULL);
    OK(cudamem_text_get(text, &characters, NULL));
    OK(cudamem_text_destroy(text));
    FAILS(cudamem_text_get(text, &characters, &length), CUDAMEM_ERROR_INVALID_HANDLE);
}

void case_devices(void)
{
    int32_t count = 0;
    OK(cudamem_device_get_count(&count));
    CHECK(count >= 1);
    for (int32_t ordinal = 0; ordinal < count; ordinal++) {
        cudamem_device_info info;
        memset(&info, 0xff, sizeof info);
        info.size = sizeof info;
        OK(cudamem_device_get_info(ordinal, &info));
        CHECK(info.size == sizeof info && info.total_memory > 0);
        CHECK(memchr(info.name, 0, sizeof info.name) != NULL && info.name[0] != 0);
        CHECK(strchr(info.pci_bus_id, ':') != NULL);
        bool can = false;
        OK(cudamem_device_can_access_peer(ordinal, ordinal, &can));
        CHECK(can && info.numa_node >= -1);
        for (int32_t other = 0; other < count; other++) {
            cudamem_peer_link link;
            memset(&link, 0xff, sizeof link);
            link.size = sizeof link;
            if (other == ordinal) {
                FAILS(cudamem_device_get_link(ordinal, other, &link), CUDAMEM_ERROR_INVALID_ARGUMENT);
                continue;
            }
            OK(cudamem_device_can_access_peer(ordinal, other, &can));
            OK(cudamem_device_get_link(ordinal, other, &link));
            CHECK(link.access == can && link.native_atomics <= link.access && link.performance_rank >= -1);
        }
        for (int32_t feature = CUDAMEM_FEATURE_DEVICE_POOLS; feature <= CUDAMEM_FEATURE_STREAM_MEMORY_OPERATIONS; feature++) {
            CHECK(info.support[feature] <= CUDAMEM_SUPPORT_UNKNOWN);
        }
    }
    uint64_t rate = 0, again = 0;
    OK(cudamem_device_get_rate(-1, 0, &rate));
    OK(cudamem_device_get_rate(-1, 0, &again));
    CHECK(rate > 0 && again == rate);
    OK(cudamem_device_get_rate(0, -1, &rate));
    if (count > 1) {
        OK(cudamem_device_get_rate(0, 1, &rate));
        CHECK(rate > 0);
    }
    FAILS(cudamem_device_get_rate(0, 0, &rate), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_device_get_rate(-1, -1, &rate), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_device_get_rate(-1, count, &rate), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_device_get_rate(-1, 0, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    cudamem_device_info info;
    info.size = sizeof info;
    FAILS(cudamem_device_get_link(0, count, NULL), CUDAMEM_ERROR_DRIVER);
    FAILS(cudamem_device_get_info(count, &info), CUDAMEM_ERROR_DRIVER);
    CHECK(cudamem_last_driver_code() == 101); /* CUDA_ERROR_INVALID_DEVICE */
    char expected[64];
    snprintf(expected, sizeof expected, "device is %d, of %d device", (int)count, (int)count);
    CHECK(strstr(cudamem_last_error_message(), expected) != NULL);
}

static void on_stream(void *user)
{
    *(volatile int *)user = 7;
}

void case_streams(void)
{
    struct rig rig = rig_open();
    cudamem_stream other;
    cudamem_stream_options options = {0};
    options.size = sizeof options;
    options.flags = CUDAMEM_STREAM_BLOCKING;
    options.priority = -100000;
    OK(cudamem_stream_create(rig.context, &options, &other));
    cudamem_event begin, end;
    OK(cudamem_event_create(rig.context, CUDAMEM_EVENT_TIMING, &begin));
    OK(cudamem_event_create(rig.context, CUDAMEM_EVENT_TIMING, &end));
    OK(cudamem_event_record(begin, rig.stream));
    volatile int seen = 0;
    OK(cudamem_stream_launch_host_function(rig.stream, on_stream, (void *)&seen));
    OK(cudamem_event_record(end, rig.stream));
    OK(cudamem_stream_wait_event(other, end));
    OK(cudamem_stream_join(rig.stream, other));
    OK(cudamem_stream_synchronize(other));
    CHECK(seen == 7);
    OK(cudamem_event_synchronize(end));
    bool passed = false, done = false;
    OK(cudamem_is_done(end.id, &passed));
    OK(cudamem_stream_synchronize(rig.stream));
    OK(cudamem_is_done(rig.stream.id, &done));
    CHECK(passed && done);
    double seconds = -1;
    OK(cudamem_event_elapsed(begin, end, &seconds));
    CHECK(seconds >= 0);
    OK(cudamem_context_synchronize(rig.context));
    OK(cudamem_context_load_kernels(rig.context));
    OK(cudamem_context_reserve_streams(rig.context, 40));
    OK(cudamem_context_reserve_streams(rig.context, 0));
    OK(cudamem_context_set_postponed_limit(rig.context, 1 << 20));
    FAILS(cudamem_context_set_postponed_limit((cudamem_context){0}, 1), CUDAMEM_ERROR_INVALID_HANDLE);
    FAILS(cudamem_context_load_kernels((cudamem_context){0}), CUDAMEM_ERROR_INVALID_HANDLE);
    FAILS(cudamem_context_reserve_streams((cudamem_context){0}, 1), CUDAMEM_ERROR_INVALID_HANDLE);
    INFO(cudamem_context_info, info, cudamem_context_get_info, rig.context);
    CHECK(info.free_memory <= info.total_memory && info.total_memory > 0 && info.device == 0);
    FAILS(cudamem_stream_launch_host_function(rig.stream, NULL, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_event_destroy(begin));
    OK(cudamem_event_destroy(end));
    OK(cudamem_stream_destroy(other));
    rig_close(rig);
}

/* Exports contexts, streams and events as driver handles, and borrows such handles. */
void case_foreign(void)
{
    cudamem_context own, borrowed;
    cudamem_stream stream, same, legacy;
    void *raw = NULL, *again = NULL;
    OK(cudamem_context_create(0, &own));
    OK(cudamem_get_raw(own.id, &raw));
    OK(cudamem_context_borrow(raw, &borrowed));
    OK(cudamem_get_raw(borrowed.id, &again));
    INFO(cudamem_context_info, info, cudamem_context_get_info, borrowed);
    CHECK(raw == again && info.device == 0);
    FAILS(cudamem_context_borrow(NULL, &borrowed), CUDAMEM_ERROR_INVALID_ARGUMENT);

    OK(cudamem_stream_create(own, NULL, &stream));
    OK(cudamem_get_raw(stream.id, &raw));
    OK(cudamem_stream_borrow(borrowed, raw, &same));
    OK(cudamem_get_raw(same.id, &again));
    CHECK(raw == again);
    OK(cudamem_stream_borrow(borrowed, NULL, &legacy));
    OK(cudamem_stream_synchronize(legacy));
    FAILS(cudamem_stream_borrow(borrowed, (void *)2, &legacy), CUDAMEM_ERROR_INVALID_ARGUMENT);

    /* Memory whose home stream is borrowed. */
    cudamem_resource device;
    cudamem_buffer buffer;
    int number = 5, seen = 0;
    OK(cudamem_resource_create_device(borrowed, &device));
    OK(cudamem_buffer_allocate(device, sizeof number, same, &buffer));
    OK(cudamem_buffer_write(buffer, 0, &number, sizeof number));
    OK(cudamem_buffer_read(buffer, 0, &seen, sizeof seen));
    CHECK(seen == 5);
    OK(cudamem_buffer_destroy(buffer));
    OK(cudamem_resource_destroy(device));

    cudamem_event event;
    OK(cudamem_event_create(own, 0, &event));
    OK(cudamem_get_raw(event.id, &raw));
    CHECK(raw != NULL);
    OK(cudamem_event_destroy(event));
    OK(cudamem_stream_destroy(legacy));
    OK(cudamem_stream_destroy(same));
    OK(cudamem_stream_destroy(stream));
    OK(cudamem_context_destroy(borrowed));
    OK(cudamem_context_destroy(own));
}
