/* Callbacks for failures. The calls that they make may fail in the same way. */
#include "test.h"

static int logged;
static cudamem_status logged_status;

/* Makes calls that fail. */
static void on_log(cudamem_status status, const char *message, void *user)
{
    cudamem_text null_text = {0};
    const char *characters;
    CHECK(message[0] != 0 && user == &logged);
    CHECK(status != CUDAMEM_SUCCESS && strcmp(cudamem_last_error_message(), message) == 0);
    logged_status = status;
    logged++;
    FAILS(cudamem_device_get_count(NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_text_get(null_text, &characters, NULL), CUDAMEM_ERROR_INVALID_HANDLE);
}

static void logs(void)
{
    cudamem_text text;
    OK(cudamem_describe(&text));
    OK(cudamem_text_destroy(text));
    OK(cudamem_set_log(on_log, &logged));
    for (int round = 1; round <= 3; round++) {
        CHECK(cudamem_text_destroy(text) == CUDAMEM_ERROR_INVALID_HANDLE);
        CHECK(logged == round && logged_status == CUDAMEM_ERROR_INVALID_HANDLE);
        /* Failures within the log function do not hide the logged failure. */
        CHECK(strstr(cudamem_last_error_message(), "cudamem_text_destroy") != NULL);
    }
    OK(cudamem_set_log(NULL, NULL));
    CHECK(cudamem_text_destroy(text) == CUDAMEM_ERROR_INVALID_HANDLE && logged == 3);
}

/* Guarded memory that was written after its free. Its release from quarantine reports a drop error. */
static cudamem_resource damaged(struct rig rig)
{
    cudamem_resource pinned, guarded;
    cudamem_buffer buffer;
    void *host = NULL;
    OK(cudamem_resource_create_pinned(rig.context, 0, &pinned));
    OK(cudamem_resource_create_guarded(pinned, NULL, &guarded));
    OK(cudamem_buffer_allocate(guarded, 100, rig.stream, &buffer));
    OK(cudamem_buffer_get_host_pointer(buffer, &host));
    OK(cudamem_buffer_destroy(buffer));
    OK(cudamem_stream_synchronize(rig.stream));
    ((volatile unsigned char *)host)[7] = 1;
    OK(cudamem_resource_destroy(pinned));
    return guarded;
}

struct drops {
    cudamem_resource inner;
    int told;
};

static void on_drop_error(cudamem_status status, const char *message, void *user)
{
    struct drops *drops = user;
    CHECK(status == CUDAMEM_ERROR_DAMAGED && message[0] != 0);
    drops->told++;
    OK(cudamem_pool_release_unused(drops->inner)); /* causes another drop error */
}

static void drop_errors(struct rig rig)
{
    struct drops drops = {damaged(rig), 0};
    cudamem_resource outer = damaged(rig), again = damaged(rig);
    OK(cudamem_set_drop_error_callback(on_drop_error, &drops));
    OK(cudamem_pool_release_unused(outer));
    CHECK(drops.told >= 1);
    int once = drops.told;
    OK(cudamem_pool_release_unused(again));
    CHECK(drops.told == 2 * once);
    OK(cudamem_set_drop_error_callback(NULL, NULL));
    OK(cudamem_resource_destroy(again));
    OK(cudamem_resource_destroy(outer));
    OK(cudamem_resource_destroy(drops.inner));
}

struct hungry {
    struct rig rig;
    cudamem_resource resource;
    int calls;
};

/* Makes an allocation that fails for lack of memory. */
static bool allocate_more(struct hungry *hungry)
{
    cudamem_buffer buffer;
    hungry->calls++;
    FAILS(cudamem_buffer_allocate(hungry->resource, 1 << 20, hungry->rig.stream, &buffer), CUDAMEM_ERROR_OUT_OF_MEMORY);
    return hungry->calls < 3;
}

static bool on_out_of_memory(size_t requested, size_t available, uint32_t attempt, void *user)
{
    (void)requested, (void)available, (void)attempt;
    return allocate_more(user);
}

static bool on_retry(const char *message, uint32_t attempt, void *user)
{
    (void)message, (void)attempt;
    return allocate_more(user);
}

static void memory_that_is_out(struct rig rig)
{
    struct hungry hungry = {rig, {0}, 0};
    cudamem_resource device, limit;
    cudamem_buffer buffer, kept;
    OK(cudamem_resource_create_device(rig.context, &device));
    cudamem_pool_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.maximum = options.smallest_growth = options.largest_growth = 1 << 16;
    options.initial = 1 << 16;
    options.on_out_of_memory = on_out_of_memory;
    options.user = &hungry;
    OK(cudamem_pool_create(device, &options, &hungry.resource));
    /* Nobody can make room for more than the maximum. */
    FAILS(cudamem_buffer_allocate(hungry.resource, 1 << 20, rig.stream, &buffer), CUDAMEM_ERROR_OUT_OF_MEMORY);
    CHECK(hungry.calls == 0);
    OK(cudamem_buffer_allocate(hungry.resource, 1 << 16, rig.stream, &kept));
    FAILS(cudamem_buffer_allocate(hungry.resource, 1 << 16, rig.stream, &buffer), CUDAMEM_ERROR_OUT_OF_MEMORY);
    CHECK(hungry.calls == 3);
    OK(cudamem_buffer_destroy(kept));
    OK(cudamem_resource_destroy(hungry.resource));

    hungry.calls = 0;
    OK(cudamem_resource_create_adaptor(device, CUDAMEM_ADAPTOR_LIMIT, 1000, &limit));
    OK(cudamem_resource_create_retry(limit, 10, on_retry, &hungry, &hungry.resource));
    FAILS(cudamem_buffer_allocate(hungry.resource, 1 << 20, rig.stream, &buffer), CUDAMEM_ERROR_OUT_OF_MEMORY);
    CHECK(hungry.calls == 3);
    OK(cudamem_resource_destroy(hungry.resource));
    OK(cudamem_resource_destroy(limit));
    OK(cudamem_resource_destroy(device));
}

/* Progress of a large allocation of page-locked memory. */
struct progress {
    int calls, cancel_at;
    size_t last;
};

static int on_progress(size_t done, size_t total, void *user)
{
    struct progress *progress = user;
    CHECK(total == (size_t)256 << 20 && done <= total && done >= progress->last / 2);
    progress->last = done;
    return ++progress->calls == progress->cancel_at;
}

static void progress_of_large_memory(struct rig rig)
{
    const size_t size = (size_t)256 << 20;
    struct progress progress = {0};
    cudamem_resource pinned, none;
    cudamem_buffer buffer;
    char seen[2] = {0};
    FAILS(cudamem_resource_create_pinned_with_progress(rig.context, 0, NULL, NULL, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_resource_create_pinned_with_progress(rig.context, 2, on_progress, NULL, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_resource_create_pinned_with_progress(rig.context, 0, on_progress, &progress, &pinned));
    OK(cudamem_buffer_allocate(pinned, size, rig.stream, &buffer));
    CHECK(progress.calls >= 1 && progress.last == size);
    OK(cudamem_buffer_write(buffer, size - 2, "ab", 2));
    OK(cudamem_buffer_read(buffer, size - 2, seen, 2));
    CHECK(seen[0] == 'a' && seen[1] == 'b');
    OK(cudamem_buffer_destroy(buffer));
    progress = (struct progress){.cancel_at = 1};
    FAILS(cudamem_buffer_allocate(pinned, size, rig.stream, &buffer), CUDAMEM_ERROR_CANCELED);
    SAYS("canceled");
    CHECK(progress.calls == 1);
    OK(cudamem_resource_destroy(pinned));
}

void case_callbacks(void)
{
    logs();
    struct rig rig = rig_open();
    drop_errors(rig);
    progress_of_large_memory(rig);
    memory_that_is_out(rig);
    rig_close(rig);
}
