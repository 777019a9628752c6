/* Mapped memory, resources, pools and buffers. */
#include "test.h"

static void mapped_memory(struct rig rig, int32_t coherence, size_t size)
{
    cudamem_resource resource;
    cudamem_buffer memory, part;
    OK(cudamem_resource_create_mapped(rig.context, coherence, &resource));
    OK(cudamem_buffer_allocate(resource, size, rig.stream, &memory));
    OK(cudamem_resource_destroy(resource)); /* the memory outlives its resource */
    INFO(cudamem_buffer_info, info, cudamem_buffer_get_info, memory);
    CHECK(info.length == size && info.atom >= 1 && (info.atom & (info.atom - 1)) == 0);

    unsigned char *bytes = malloc(size), *seen = malloc(size);
    CHECK(bytes != NULL && seen != NULL);
    pattern(bytes, size, 1);
    OK(cudamem_buffer_store(memory, 0, bytes, size));
    OK(cudamem_buffer_read(memory, 0, seen, size));
    CHECK(memcmp(bytes, seen, size) == 0);
    pattern(bytes, size, 2);
    OK(cudamem_buffer_write(memory, 0, bytes, size));
    OK(cudamem_buffer_load(memory, 0, seen, size));
    CHECK(memcmp(bytes, seen, size) == 0);

    /* Access through the addresses. */
    void *host = NULL;
    uint64_t device = 0;
    OK(cudamem_buffer_get_host_pointer(memory, &host));
    OK(cudamem_buffer_get_device_pointer(memory, &device));
    CHECK(device != 0);
    pattern(bytes, size, 3);
    memcpy(host, bytes, size);
    OK(cudamem_buffer_flush(memory, 0, CUDAMEM_WHOLE_SIZE));
    OK(cudamem_buffer_read(memory, 0, seen, size));
    CHECK(memcmp(bytes, seen, size) == 0);
    pattern(bytes, size, 4);
    OK(cudamem_buffer_write(memory, 0, bytes, size));
    OK(cudamem_buffer_invalidate(memory, 0, size));
    CHECK(memcmp(host, bytes, size) == 0);

    /* Words in a slice, which outlives the whole. */
    if (size >= 64) {
        uint32_t word = 0;
        uint64_t long_word = 0;
        OK(cudamem_buffer_slice(memory, 16, CUDAMEM_WHOLE_SIZE, &part));
        OK(cudamem_buffer_destroy(memory));
        OK(cudamem_buffer_store_u32(part, 4, 0xdeadbeef));
        OK(cudamem_buffer_load_u32(part, 4, &word));
        OK(cudamem_buffer_store_u64(part, 8, 0x0123456789abcdefu));
        OK(cudamem_buffer_load_u64(part, 8, &long_word));
        CHECK(word == 0xdeadbeef && long_word == 0x0123456789abcdefu);
        FAILS(cudamem_buffer_store_u32(part, 2, 1), CUDAMEM_ERROR_MISALIGNED);
        FAILS(cudamem_buffer_store_u64(part, size - 16, 1), CUDAMEM_ERROR_OUT_OF_RANGE);
        OK(cudamem_buffer_read(part, 4, &word, sizeof word));
        CHECK(word == 0xdeadbeef);
        OK(cudamem_buffer_destroy(part));
    } else {
        OK(cudamem_buffer_destroy(memory));
    }
    free(bytes);
    free(seen);
}

void case_mapped(void)
{
    static const size_t SIZES[] = {1, 3, 64, 4096, 4099, 1 << 20};
    struct rig rig = rig_open();
    for (size_t index = 0; index < sizeof SIZES / sizeof SIZES[0]; index++) {
        mapped_memory(rig, CUDAMEM_COHERENCE_PREFERRED, SIZES[index]);
        mapped_memory(rig, CUDAMEM_COHERENCE_FORCED_NON_COHERENT, SIZES[index]);
    }
    cudamem_resource resource;
    cudamem_buffer memory;
    OK(cudamem_resource_create_mapped(rig.context, CUDAMEM_COHERENCE_PREFERRED, &resource));
    FAILS(cudamem_buffer_allocate(resource, (size_t)1 << 60, rig.stream, &memory), CUDAMEM_ERROR_OUT_OF_MEMORY);
    OK(cudamem_buffer_allocate(resource, 100, rig.stream, &memory));
    FAILS(cudamem_buffer_store(memory, 99, "ab", 2), CUDAMEM_ERROR_OUT_OF_RANGE);
    FAILS(cudamem_buffer_store(memory, SIZE_MAX, "ab", 2), CUDAMEM_ERROR_OUT_OF_RANGE);
    FAILS(cudamem_buffer_flush(memory, 101, CUDAMEM_WHOLE_SIZE), CUDAMEM_ERROR_OUT_OF_RANGE);
    OK(cudamem_buffer_store(memory, 100, NULL, 0));
    OK(cudamem_buffer_flush(memory, 100, CUDAMEM_WHOLE_SIZE));
    OK(cudamem_buffer_destroy(memory));
    OK(cudamem_resource_destroy(resource));
    rig_close(rig);
}

/* Calls that work for memory of every source. */
void case_resources(void)
{
    enum { SIZE = 100000 };
    static unsigned char bytes[SIZE], seen[SIZE];
    struct rig rig = rig_open();
    struct source sources[SOURCES];
    sources_open(rig, sources);
    for (int index = 0; index < SOURCES; index++) {
        cudamem_resource resource = sources[index].resource;
        if (resource.id == 0) {
            continue;
        }
        cudamem_buffer buffer, nothing;
        INFO(cudamem_resource_info, source, cudamem_resource_get_info, resource);
        OK(cudamem_buffer_allocate(resource, SIZE, rig.stream, &buffer));
        INFO(cudamem_buffer_info, info, cudamem_buffer_get_info, buffer);
        CHECK(source.access == info.access && (info.access & CUDAMEM_ACCESS_DEVICE) && info.length == SIZE);
        CHECK((info.host_pointer != NULL) == ((info.access & CUDAMEM_ACCESS_HOST) != 0));
        pattern(bytes, SIZE, (unsigned)index);
        OK(cudamem_buffer_write(buffer, 0, bytes, SIZE));
        OK(cudamem_buffer_read(buffer, 0, seen, SIZE));
        CHECK(memcmp(bytes, seen, SIZE) == 0);
        void *host = NULL;
        if (info.access & CUDAMEM_ACCESS_HOST) {
            OK(cudamem_buffer_get_host_pointer(buffer, &host));
            OK(cudamem_buffer_synchronize(buffer));
            OK(cudamem_buffer_invalidate(buffer, 0, CUDAMEM_WHOLE_SIZE));
            CHECK(memcmp(host, bytes, SIZE) == 0);
            memset((unsigned char *)host + 10, 0xab, 20);
            OK(cudamem_buffer_flush(buffer, 10, 20));
            OK(cudamem_buffer_read(buffer, 0, seen, SIZE));
            memset(bytes + 10, 0xab, 20);
            CHECK(memcmp(bytes, seen, SIZE) == 0);
        } else {
            FAILS(cudamem_buffer_get_host_pointer(buffer, &host), CUDAMEM_ERROR_INVALID_ARGUMENT);
            FAILS(cudamem_buffer_flush(buffer, 0, 1), CUDAMEM_ERROR_INVALID_ARGUMENT);
        }
        OK(cudamem_buffer_destroy(buffer));
        OK(cudamem_buffer_allocate(resource, 0, rig.stream, &nothing));
        OK(cudamem_buffer_write(nothing, 0, NULL, 0));
        OK(cudamem_buffer_destroy(nothing));
        FAILS(cudamem_buffer_allocate(resource, (size_t)1 << 60, rig.stream, &nothing), CUDAMEM_ERROR_OUT_OF_MEMORY);
        FAILS(cudamem_buffer_allocate(resource, SIZE_MAX, rig.stream, &nothing), CUDAMEM_ERROR_INVALID_ARGUMENT);
    }
    /* Functions for driver pools, also with other resources. */
    INFO(cudamem_pool_statistics, figures, cudamem_pool_get_statistics, sources[4].resource);
    CHECK(figures.reserved.peak >= SIZE && figures.active.peak >= SIZE);
    OK(cudamem_stream_synchronize(rig.stream));
    OK(cudamem_pool_trim(sources[4].resource, 0));
    OK(cudamem_pool_reset_peaks(sources[4].resource));
    OK(cudamem_pool_get_statistics(sources[4].resource, &figures));
    CHECK(figures.reserved.current == 0 && figures.active.current == 0 && figures.reserved.peak == 0);
    FAILS(cudamem_pool_get_statistics(sources[0].resource, &figures), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_pool_reset_peaks(sources[0].resource), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_pool_release_unused(sources[0].resource), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_pool_trim(sources[0].resource, 0), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_resource_set_access(sources[4].resource, 0, true));
    FAILS(cudamem_resource_set_access(sources[0].resource, 0, false), CUDAMEM_ERROR_INVALID_ARGUMENT);
    cudamem_resource current;
    cudamem_driver_pool_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.flags = CUDAMEM_DRIVER_POOL_CURRENT;
    OK(cudamem_resource_create_driver_pool(rig.context, &options, &current));
    OK(cudamem_pool_get_statistics(current, &figures));
    options.max_size = 1;
    FAILS(cudamem_resource_create_driver_pool(rig.context, &options, &current), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_resource_destroy(current));
    sources_close(sources);
    rig_close(rig);
}

void case_pools(void)
{
    struct rig rig = rig_open();
    cudamem_resource device, pool;
    OK(cudamem_resource_create_device(rig.context, &device));
    cudamem_pool_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.initial = 1 << 20;
    options.maximum = 16 << 20;
    options.trace_capacity = 100;
    options.growth_factor = 1.5;
    options.reuse = CUDAMEM_REUSE_WHEN_PASSED;
    options.flags = CUDAMEM_POOL_TRACKED;
    OK(cudamem_pool_create(device, &options, &pool));
    FAILS(cudamem_pool_reserve(device, 1), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_resource_destroy(device)); /* the pool holds it */

    cudamem_buffer first, second;
    uint64_t address = 0, again = 0;
    OK(cudamem_buffer_allocate(pool, 1000, rig.stream, &first));
    OK(cudamem_buffer_get_device_pointer(first, &address));
    OK(cudamem_pool_set_name(pool, address, "weights"));
    FAILS(cudamem_pool_set_name(pool, address + 1, "nothing"), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_pool_set_name(pool, address, "\xff"), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_pool_set_name(pool, address, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    cudamem_pool_statistics figures;
    figures.size = sizeof figures;
    OK(cudamem_pool_get_statistics(pool, &figures));
    CHECK(figures.requested.current == 1000 && figures.blocks.current == 1 && figures.reserved.current == 1 << 20);
    cudamem_text json;
    const char *characters;
    OK(cudamem_pool_get_snapshot(pool, &json));
    OK(cudamem_text_get(json, &characters, NULL));
    CHECK(strstr(characters, "\"weights\"") != NULL);
    OK(cudamem_text_destroy(json));

    /* Stream order lets the pool reuse the block at once. */
    OK(cudamem_buffer_destroy(first));
    OK(cudamem_buffer_allocate(pool, 1000, rig.stream, &second));
    OK(cudamem_buffer_get_device_pointer(second, &again));
    CHECK(address == again);
    OK(cudamem_pool_reserve(pool, 8 << 20));
    OK(cudamem_pool_get_statistics(pool, &figures));
    CHECK(figures.reserved.current >= 8 << 20);
    FAILS(cudamem_pool_reserve(pool, 32 << 20), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_buffer_allocate(pool, 32 << 20, rig.stream, &first), CUDAMEM_ERROR_OUT_OF_MEMORY);
    OK(cudamem_pool_trim(pool, 0));
    OK(cudamem_buffer_destroy(second));
    OK(cudamem_pool_release_stream(pool, rig.stream));
    OK(cudamem_pool_release_unused(pool));
    OK(cudamem_pool_reset_peaks(pool));
    OK(cudamem_pool_get_statistics(pool, &figures));
    CHECK(figures.reserved.current == 0 && figures.reserved.peak == 0 && figures.blocks.total == 2);

    /* Memory outlives its pool's handle. */
    OK(cudamem_buffer_allocate(pool, 1000, rig.stream, &first));
    OK(cudamem_resource_destroy(pool));
    OK(cudamem_buffer_write(first, 0, "abc", 3));
    OK(cudamem_buffer_destroy(first));
    rig_close(rig);
}

/* Memory by address of one resource: a pool, and a resource whose blocks are in the table with locks. */
void case_addresses(void)
{
    const struct rig rig = rig_open();
    const uint32_t both = CUDAMEM_ACCESS_DEVICE | CUDAMEM_ACCESS_HOST;
    cudamem_resource pinned, pool, device;
    void *stream;
    uint64_t none;
    int each;
    OK(cudamem_resource_create_pinned(rig.context, 0, &pinned));
    OK(cudamem_resource_create_device(rig.context, &device));
    OK(cudamem_pool_create(pinned, NULL, &pool));
    OK(cudamem_get_raw(rig.stream.id, &stream));
    for (each = 0; each < 2; each++) {
        const cudamem_resource resource = each == 0 ? pool : pinned;
        cudamem_resource other;
        uint64_t address, aligned, others;
        OK(cudamem_resource_malloc(resource, 100, 8, both, stream, &address));
        OK(cudamem_resource_malloc(resource, 0, 1 << 16, CUDAMEM_ACCESS_HOST, NULL, &aligned));
        CHECK(address % 8 == 0 && aligned % (1 << 16) == 0);
        OK(cudamem_stream_synchronize(rig.stream));
        memset((void *)(uintptr_t)address, 7, 100);

        FAILS(cudamem_resource_free(resource, address + 8, 100, stream), CUDAMEM_ERROR_INVALID_ARGUMENT);
        SAYS("address");
        FAILS(cudamem_resource_free(resource, address, 99, stream), CUDAMEM_ERROR_INVALID_ARGUMENT);
        SAYS("a block of 100 bytes");
        FAILS(cudamem_resource_free(resource, aligned, 1, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
        /* Another handle has its own memory. */
        OK(cudamem_resource_share(resource, &other));
        FAILS(cudamem_resource_free(other, address, 100, stream), CUDAMEM_ERROR_INVALID_ARGUMENT);
        OK(cudamem_resource_malloc(other, 1, 1, both, stream, &others));
        OK(cudamem_resource_free(other, others, 1, stream));
        OK(cudamem_resource_destroy(other));
        FAILS(cudamem_resource_free(other, others, 1, stream), CUDAMEM_ERROR_INVALID_HANDLE);

        FAILS(cudamem_resource_malloc(resource, 1, 3, both, stream, &others), CUDAMEM_ERROR_INVALID_ARGUMENT);
        FAILS(cudamem_resource_malloc(resource, 1, 1, 0, stream, &others), CUDAMEM_ERROR_INVALID_ARGUMENT);
        FAILS(cudamem_resource_malloc(resource, 1, 1, 8, stream, &others), CUDAMEM_ERROR_INVALID_ARGUMENT);
        FAILS(cudamem_resource_malloc(resource, 1, 1, both, stream, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
        FAILS(cudamem_resource_malloc(resource, SIZE_MAX, 1, both, stream, &others), CUDAMEM_ERROR_OUT_OF_MEMORY);
        FAILS(cudamem_resource_malloc(resource, SIZE_MAX, 4096, both, stream, &others), CUDAMEM_ERROR_OUT_OF_MEMORY);

        OK(cudamem_resource_free(resource, address, 100, stream));
        OK(cudamem_resource_free(resource, aligned, 0, NULL));
        FAILS(cudamem_resource_free(resource, address, 100, stream), CUDAMEM_ERROR_INVALID_ARGUMENT);
        SAYS("freed before");
    }
    FAILS(cudamem_resource_malloc(device, 1, 1, both, stream, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    SAYS("the CPU does not address");
    FAILS(cudamem_resource_share(device, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_resource_destroy(pool));
    OK(cudamem_resource_destroy(pinned));
    OK(cudamem_resource_destroy(device));
    rig_close(rig);
}

struct spare {
    cudamem_buffer buffer;
    unsigned calls;
};

static bool give_up_spare(size_t requested, size_t available, uint32_t attempt, void *user)
{
    struct spare *spare = user;
    CHECK(requested == 1 << 20 && available < requested && attempt == spare->calls);
    spare->calls++;
    if (spare->buffer.id == 0) {
        return false;
    }
    OK(cudamem_buffer_destroy(spare->buffer));
    spare->buffer.id = 0;
    return true;
}

/* The callback of a failed allocation frees memory of the pool. */
void case_out_of_memory(void)
{
    struct rig rig = rig_open();
    cudamem_resource device, pool;
    cudamem_buffer buffer, none = {77};
    struct spare spare = {{0}, 0};
    cudamem_pool_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.maximum = 1 << 20;
    options.initial = 1 << 20;
    options.on_out_of_memory = give_up_spare;
    options.user = &spare;
    OK(cudamem_resource_create_device(rig.context, &device));
    OK(cudamem_pool_create(device, &options, &pool));
    OK(cudamem_buffer_allocate(pool, 1 << 20, rig.stream, &spare.buffer));
    OK(cudamem_buffer_allocate(pool, 1 << 20, rig.stream, &buffer));
    CHECK(spare.calls == 1 && spare.buffer.id == 0);
    spare.calls = 0;
    FAILS(cudamem_buffer_allocate(pool, 1 << 20, rig.stream, &none), CUDAMEM_ERROR_OUT_OF_MEMORY);
    CHECK(spare.calls == 1 && none.id == 77);
    OK(cudamem_buffer_destroy(buffer));
    OK(cudamem_resource_destroy(pool));
    OK(cudamem_resource_destroy(device));
    rig_close(rig);
}

void case_buffers(void)
{
    enum { SIZE = 4096 };
    static unsigned char bytes[SIZE], seen[SIZE];
    struct rig rig = rig_open();
    cudamem_stream other;
    cudamem_resource resource;
    cudamem_buffer one, two;
    bool equal = false;
    OK(cudamem_stream_create(rig.context, NULL, &other));
    OK(cudamem_resource_create_driver_pool(rig.context, NULL, &resource));
    OK(cudamem_buffer_allocate(resource, SIZE, rig.stream, &one));
    OK(cudamem_buffer_allocate(resource, SIZE, other, &two));
    pattern(bytes, SIZE, 9);
    OK(cudamem_buffer_write(one, 0, bytes, SIZE));
    OK(cudamem_buffer_copy(two, 0, one, 0, SIZE));
    OK(cudamem_buffer_equals(one, two, &equal));
    CHECK(equal);
    OK(cudamem_buffer_equals(one, one, &equal));
    CHECK(equal);

    /* Fills a part with values of every size. */
    static const unsigned char VALUE[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    for (size_t size = 1; size <= 16; size *= 2) {
        OK(cudamem_buffer_fill(two, 32, 64, VALUE, size));
        for (size_t index = 0; index < 64; index++) {
            bytes[32 + index] = VALUE[index % size];
        }
        OK(cudamem_buffer_read(two, 0, seen, SIZE));
        CHECK(memcmp(bytes, seen, SIZE) == 0);
    }
    FAILS(cudamem_buffer_fill(two, 0, 3, VALUE, 3), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_buffer_fill(two, 0, 6, VALUE, 4), CUDAMEM_ERROR_MISALIGNED);
    FAILS(cudamem_buffer_fill(two, 2, 8, VALUE, 4), CUDAMEM_ERROR_MISALIGNED);
    FAILS(cudamem_buffer_fill(two, SIZE, 1, VALUE, 1), CUDAMEM_ERROR_OUT_OF_RANGE);
    FAILS(cudamem_buffer_fill(two, 0, 4, NULL, 4), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_buffer_equals(one, two, &equal));
    CHECK(!equal);

    /* Copies within one buffer: apart, then overlapping. */
    OK(cudamem_buffer_copy(two, 2048, two, 0, 2048));
    memcpy(bytes + 2048, bytes, 2048);
    OK(cudamem_buffer_read(two, 0, seen, SIZE));
    CHECK(memcmp(bytes, seen, SIZE) == 0);
    FAILS(cudamem_buffer_copy(two, 1, two, 0, 100), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_buffer_copy(two, 1, one, 0, CUDAMEM_WHOLE_SIZE), CUDAMEM_ERROR_OUT_OF_RANGE);
    FAILS(cudamem_buffer_copy(two, 0, one, SIZE + 1, CUDAMEM_WHOLE_SIZE), CUDAMEM_ERROR_OUT_OF_RANGE);
    FAILS(cudamem_buffer_write(two, SIZE, bytes, 1), CUDAMEM_ERROR_OUT_OF_RANGE);
    FAILS(cudamem_buffer_read(two, SIZE_MAX, seen, 2), CUDAMEM_ERROR_OUT_OF_RANGE);
    FAILS(cudamem_buffer_read(two, 0, seen, SIZE_MAX), CUDAMEM_ERROR_INVALID_ARGUMENT);

    /* Streams. */
    OK(cudamem_record_use(one.id, other));
    OK(cudamem_buffer_set_stream(one, other));
    OK(cudamem_stream_destroy(other)); /* buffers hold their home stream */
    OK(cudamem_buffer_synchronize(one));
    OK(cudamem_buffer_set_stream(one, rig.stream));
    OK(cudamem_buffer_destroy(one));
    OK(cudamem_buffer_destroy(two));
    OK(cudamem_resource_destroy(resource));
    rig_close(rig);
}

void case_slices(void)
{
    struct rig rig = rig_open();
    cudamem_resource device;
    cudamem_buffer whole, left, right, middle;
    char seen[9] = "";
    size_t size = 0;
    bool equal = true;
    OK(cudamem_resource_create_device(rig.context, &device));
    OK(cudamem_buffer_allocate(device, 8, rig.stream, &whole));
    OK(cudamem_buffer_write(whole, 0, "abcdefgh", 8));
    OK(cudamem_buffer_slice(whole, 0, 4, &left));
    OK(cudamem_buffer_slice(whole, 4, CUDAMEM_WHOLE_SIZE, &right));
    OK(cudamem_buffer_slice(right, 1, 2, &middle));
    OK(buffer_size(right, &size));
    CHECK(size == 4);
    FAILS(cudamem_buffer_slice(right, 3, 2, &middle), CUDAMEM_ERROR_OUT_OF_RANGE);
    OK(cudamem_buffer_copy(left, 0, right, 0, 4));
    FAILS(cudamem_buffer_copy(middle, 0, right, 0, 2), CUDAMEM_ERROR_INVALID_ARGUMENT); /* the same bytes */
    OK(cudamem_buffer_equals(left, right, &equal));
    CHECK(equal);
    OK(cudamem_buffer_write(middle, 0, "XY", 2));
    OK(cudamem_buffer_destroy(whole));
    OK(cudamem_buffer_destroy(left));
    OK(cudamem_buffer_read(right, 0, seen, 4));
    CHECK(strcmp(seen, "eXYh") == 0);
    OK(cudamem_buffer_destroy(right));
    OK(cudamem_buffer_read(middle, 0, seen, 2));
    OK(cudamem_buffer_destroy(middle));
    OK(cudamem_resource_destroy(device));
    rig_close(rig);
}

static void on_release(void *user)
{
    ++*(int *)user;
}

/* The program's own memory. */
void case_borrowed(void)
{
    struct rig rig = rig_open();
    cudamem_buffer buffer, part, none = {3};
    static char heap[64] = "memory of the program";
    char seen[64] = "";
    int released = 0;
    uint64_t address = (uint64_t)(uintptr_t)heap;
    OK(cudamem_buffer_borrow(address, sizeof heap, rig.stream, on_release, &released, &buffer));
    OK(cudamem_buffer_read(buffer, 0, seen, sizeof seen));
    CHECK(strcmp(seen, heap) == 0);
    OK(cudamem_buffer_slice(buffer, 0, 6, &part));
    OK(cudamem_buffer_destroy(buffer));
    CHECK(released == 0);
    OK(cudamem_buffer_write(part, 0, "MEMORY", 6));
    CHECK(memcmp(heap, "MEMORY of", 9) == 0);
    OK(cudamem_buffer_destroy(part));
    OK(cudamem_stream_synchronize(rig.stream));
    CHECK(released == 1);
    FAILS(cudamem_buffer_borrow(0, 4, rig.stream, on_release, &released, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_buffer_borrow(UINT64_MAX, 4, rig.stream, on_release, &released, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(released == 1 && none.id == 3);
    OK(cudamem_buffer_borrow(address, sizeof heap, rig.stream, NULL, NULL, &buffer));
    OK(cudamem_buffer_destroy(buffer));
    rig_close(rig);
}

void case_engine(void)
{
    enum { SIZE = 300000 };
    static unsigned char bytes[SIZE], seen[SIZE];
    struct rig rig = rig_open();
    cudamem_resource device, mapped_resource;
    cudamem_buffer buffer;
    cudamem_buffer mapped;
    cudamem_engine engine;
    OK(cudamem_engine_create(rig.context, NULL, &engine));
    OK(cudamem_resource_create_device(rig.context, &device));
    OK(cudamem_resource_create_mapped(rig.context, CUDAMEM_COHERENCE_PREFERRED, &mapped_resource));
    OK(cudamem_buffer_allocate(device, SIZE, rig.stream, &buffer));
    OK(cudamem_buffer_allocate(mapped_resource, SIZE, rig.stream, &mapped));
    static const size_t SIZES[] = {0, 1, 4, 1000, SIZE};
    for (size_t index = 0; index < sizeof SIZES / sizeof SIZES[0]; index++) {
        size_t size = SIZES[index];
        pattern(bytes, size, (unsigned)index);
        OK(cudamem_engine_write_buffer(engine, buffer, SIZE - size, bytes, size, NULL));
        OK(cudamem_engine_read_buffer(engine, buffer, SIZE - size, seen, size, NULL));
        CHECK(memcmp(bytes, seen, size) == 0);
        pattern(bytes, size, (unsigned)index + 100);
        OK(cudamem_engine_write_buffer(engine, mapped, SIZE - size, bytes, size, NULL));
        OK(cudamem_engine_read_buffer(engine, mapped, SIZE - size, seen, size, NULL));
        CHECK(memcmp(bytes, seen, size) == 0);
    }
    FAILS(cudamem_engine_write_buffer(engine, buffer, 1, bytes, SIZE, NULL), CUDAMEM_ERROR_OUT_OF_RANGE);
    FAILS(cudamem_engine_read_buffer(engine, mapped, SIZE, seen, 1, NULL), CUDAMEM_ERROR_OUT_OF_RANGE);
    OK(cudamem_engine_destroy(engine));
    FAILS(cudamem_engine_write_buffer(engine, mapped, 0, bytes, 1, NULL), CUDAMEM_ERROR_INVALID_HANDLE);
    OK(cudamem_buffer_destroy(mapped));
    OK(cudamem_buffer_destroy(buffer));
    OK(cudamem_resource_destroy(mapped_resource));
    OK(cudamem_resource_destroy(device));
    rig_close(rig);
}
