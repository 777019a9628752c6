/* Views, their layouts, and copies between them. */
#include "test.h"

static const cudamem_data_type FP4 = {CUDAMEM_TYPE_FLOAT4_E2M1FN, 4, 1};

static cudamem_view_layout layout_of(cudamem_data_type type, size_t ndim, const int64_t *shape)
{
    cudamem_view_layout layout;
    memset(&layout, 0, sizeof layout);
    layout.size = sizeof layout;
    layout.data_type = type;
    layout.ndim = ndim;
    layout.shape = shape;
    return layout;
}

static cudamem_view_info info_of(cudamem_view view)
{
    cudamem_view_info info;
    info.size = sizeof info;
    OK(cudamem_view_get_info(view, &info));
    return info;
}

static bool has(const int64_t *numbers, size_t count, const int64_t *expected)
{
    return count == 0 || memcmp(numbers, expected, count * sizeof *numbers) == 0;
}

/* Checks the layout of a view, and destroys it. */
static void check_layout(cudamem_view view, size_t ndim, const int64_t *shape, const int64_t *strides, int64_t offset)
{
    cudamem_view_info info = info_of(view);
    CHECK(info.ndim == ndim && has(info.shape, ndim, shape) && has(info.strides, ndim, strides));
    CHECK(info.offset == offset);
    OK(cudamem_view_destroy(view));
}
#define NUMBERS(...) ((const int64_t[]){__VA_ARGS__})

void case_data_types(void)
{
    static const struct {
        const char *name, *typestr;
        cudamem_data_type type;
    } TYPES[] = {
        {"float32", "<f4", {CUDAMEM_TYPE_FLOAT, 32, 1}},     {"int64", "<i8", {CUDAMEM_TYPE_INT, 64, 1}},
        {"uint8", "|u1", {CUDAMEM_TYPE_UINT, 8, 1}},         {"complex64", "<c8", {CUDAMEM_TYPE_COMPLEX, 64, 1}},
        {"bool", "|b1", {CUDAMEM_TYPE_BOOL, 8, 1}},          {"bfloat16", NULL, {CUDAMEM_TYPE_BFLOAT, 16, 1}},
        {"opaque8x12", "|V12", {CUDAMEM_TYPE_OPAQUE, 8, 12}}, {"float4_e2m1fn", NULL, {CUDAMEM_TYPE_FLOAT4_E2M1FN, 4, 1}},
        {"float32x4", NULL, {CUDAMEM_TYPE_FLOAT, 32, 4}},    {"uint1", NULL, {CUDAMEM_TYPE_UINT, 1, 1}},
    };
    for (size_t index = 0; index < sizeof TYPES / sizeof TYPES[0]; index++) {
        cudamem_data_type found;
        cudamem_text text, none = {9};
        const char *characters;
        OK(cudamem_data_type_find(TYPES[index].name, &found));
        CHECK(memcmp(&found, &TYPES[index].type, sizeof found) == 0);
        OK(cudamem_data_type_get_name(found, 0, &text));
        OK(cudamem_text_get(text, &characters, NULL));
        CHECK(strcmp(characters, TYPES[index].name) == 0);
        OK(cudamem_text_destroy(text));
        if (TYPES[index].typestr == NULL) {
            FAILS(cudamem_data_type_get_name(found, CUDAMEM_NAME_TYPESTR, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
            CHECK(none.id == 9);
            continue;
        }
        OK(cudamem_data_type_get_name(found, CUDAMEM_NAME_TYPESTR, &text));
        OK(cudamem_text_get(text, &characters, NULL));
        CHECK(strcmp(characters, TYPES[index].typestr) == 0);
        OK(cudamem_data_type_find(characters, &found));
        CHECK(memcmp(&found, &TYPES[index].type, sizeof found) == 0);
        OK(cudamem_text_destroy(text));
    }
    cudamem_data_type untouched = {77, 1, 1}, wrong = {99, 8, 1};
    cudamem_text none = {9};
    FAILS(cudamem_data_type_find("float31", &untouched), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_data_type_find(">f4", &untouched), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_data_type_find(NULL, &untouched), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_data_type_find("\xff", &untouched), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_data_type_find("int8", NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_data_type_get_name(wrong, 0, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_data_type_get_name(untouched, 2, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(untouched.code == 77 && none.id == 9);
}

void case_views(void)
{
    struct rig rig = rig_open();
    cudamem_resource device;
    cudamem_buffer buffer;
    cudamem_view whole, view;
    uint64_t address = 0;
    float numbers[24], seen[24];
    for (int index = 0; index < 24; index++) {
        numbers[index] = (float)index;
    }
    OK(cudamem_resource_create_device(rig.context, &device));
    OK(cudamem_buffer_allocate(device, sizeof numbers, rig.stream, &buffer));
    OK(cudamem_buffer_get_device_pointer(buffer, &address));
    OK(cudamem_buffer_write(buffer, 0, numbers, sizeof numbers));

    cudamem_view_layout layout = layout_of(CUDAMEM_FLOAT32, 3, NUMBERS(2, -1, 4));
    OK(cudamem_view_create(buffer, &layout, &whole));
    OK(cudamem_buffer_destroy(buffer)); /* the view holds the memory */
    OK(cudamem_resource_destroy(device));
    cudamem_view_info info = info_of(whole);
    CHECK(info.ndim == 3 && has(info.shape, 3, NUMBERS(2, 3, 4)) && has(info.strides, 3, NUMBERS(12, 4, 1)));
    CHECK(memcmp(&info.data_type, &CUDAMEM_FLOAT32, sizeof CUDAMEM_FLOAT32) == 0 && info.elements == 24 && info.dense_size == 96);
    CHECK(info.flags == (CUDAMEM_VIEW_C_ORDER | CUDAMEM_VIEW_DENSE | CUDAMEM_VIEW_UNIQUE));
    CHECK(info.device_pointer == address && info.host_pointer == NULL && info.access == CUDAMEM_ACCESS_DEVICE);
    CHECK(info.device == 0 && info.offset == 0);

    /* The same elements in other layouts. */
    OK(cudamem_view_reshape(whole, NUMBERS(-1, 6), 2, &view));
    check_layout(view, 2, NUMBERS(4, 6), NUMBERS(6, 1), 0);
    OK(cudamem_view_permute(whole, NUMBERS(-1, 0, 1), 3, &view));
    check_layout(view, 3, NUMBERS(4, 2, 3), NUMBERS(1, 12, 4), 0);
    OK(cudamem_view_flatten(whole, &view));
    check_layout(view, 1, NUMBERS(24), NUMBERS(1), 0);
    OK(cudamem_view_reshape(whole, NUMBERS(1, 2, 3, 4), 4, &view));
    cudamem_view squeezed;
    OK(cudamem_view_reshape(view, NUMBERS(2, 3, 4), 3, &squeezed));
    check_layout(view, 4, NUMBERS(1, 2, 3, 4), NUMBERS(24, 12, 4, 1), 0);
    check_layout(squeezed, 3, NUMBERS(2, 3, 4), NUMBERS(12, 4, 1), 0);
    OK(cudamem_view_broadcast(whole, NUMBERS(5, 2, 3, 4), 4, &view));
    CHECK((info_of(view).flags & CUDAMEM_VIEW_UNIQUE) == 0);
    check_layout(view, 4, NUMBERS(5, 2, 3, 4), NUMBERS(0, 12, 4, 1), 0);
    OK(cudamem_view_repack(whole, CUDAMEM_INT16, -1, &view));
    check_layout(view, 3, NUMBERS(2, 3, 8), NUMBERS(24, 8, 1), 0);
    layout = layout_of(CUDAMEM_INT16, 2, NUMBERS(3, 4));
    layout.strides = NUMBERS(-8, 2);
    layout.offset = 20;
    layout.flags = CUDAMEM_VIEW_READ_ONLY;
    OK(cudamem_view_with_layout(whole, &layout, &view));
    CHECK(info_of(view).device_pointer == address + 40 && (info_of(view).flags & CUDAMEM_VIEW_READ_ONLY));
    check_layout(view, 2, NUMBERS(3, 4), NUMBERS(-8, 2), 20);
    layout = layout_of(CUDAMEM_FLOAT32, 2, NUMBERS(4, 6));
    layout.flags = CUDAMEM_VIEW_F_ORDER;
    OK(cudamem_view_with_layout(whole, &layout, &view));
    CHECK(info_of(view).flags == (CUDAMEM_VIEW_F_ORDER | CUDAMEM_VIEW_DENSE | CUDAMEM_VIEW_UNIQUE));
    check_layout(view, 2, NUMBERS(4, 6), NUMBERS(1, 4), 0);
    layout = layout_of(CUDAMEM_FLOAT32, 0, NULL);
    layout.offset = 23;
    OK(cudamem_view_with_layout(whole, &layout, &view));
    OK(cudamem_view_read(view, seen, sizeof *seen, NULL));
    CHECK(seen[0] == 23.0f);
    check_layout(view, 0, NULL, NULL, 23);

    /* Slices, by Python's rules. */
    const cudamem_index last = {-1, 0, 0}, all = {0, CUDAMEM_INDEX_OPEN, 1};
    const cudamem_index indices[] = {last, all, {CUDAMEM_INDEX_OPEN, CUDAMEM_INDEX_OPEN, -2}};
    OK(cudamem_view_slice(whole, indices, 3, &view));
    CHECK(info_of(view).device_pointer == address + 4 * 15);
    OK(cudamem_view_read(view, seen, 6 * sizeof *seen, NULL));
    CHECK(memcmp(seen, ((const float[]){15, 13, 19, 17, 23, 21}), 6 * sizeof *seen) == 0);
    check_layout(view, 2, NUMBERS(3, 2), NUMBERS(4, -2), 15);
    const cudamem_index empty = {2, 1, 1};
    OK(cudamem_view_slice(whole, &empty, 1, &view));
    CHECK(info_of(view).elements == 0);
    OK(cudamem_view_read(view, NULL, 0, NULL));
    OK(cudamem_view_destroy(view));

    /* The view's buffer becomes the last owner of the memory. */
    OK(cudamem_view_slice(whole, NULL, 0, &view));
    OK(cudamem_record_use(view.id, rig.stream));
    OK(cudamem_view_destroy(whole));
    OK(cudamem_view_get_buffer(view, &buffer));
    OK(cudamem_view_destroy(view));
    OK(cudamem_buffer_read(buffer, 4, seen, 8));
    CHECK(seen[0] == 1.0f && seen[1] == 2.0f);
    OK(cudamem_buffer_destroy(buffer));
    rig_close(rig);
}

static void on_release(void *user)
{
    ++*(int *)user;
}

/* Transposed and reversed copies between every two sources, and to the host. */
void case_view_copies(void)
{
    enum { ROWS = 7, COLUMNS = 5, ALL = ROWS * COLUMNS };
    struct rig rig = rig_open();
    struct source sources[SOURCES];
    sources_open(rig, sources);
    cudamem_stream other;
    OK(cudamem_stream_create(rig.context, NULL, &other));
    int16_t numbers[ALL], seen[ALL], turned[ALL];
    for (int index = 0; index < ALL; index++) {
        numbers[index] = (int16_t)(index * 3);
        turned[index % COLUMNS * ROWS + (ROWS - 1 - index / COLUMNS)] = numbers[index];
    }
    cudamem_view_layout layout = layout_of(CUDAMEM_INT16, 2, NUMBERS(ROWS, COLUMNS));
    for (int from = 0; from < SOURCES; from++) {
        for (int to = 0; to < SOURCES; to++) {
            if (sources[from].resource.id == 0 || sources[to].resource.id == 0) {
                continue;
            }
            cudamem_buffer buffer;
            cudamem_view rows, columns, target;
            OK(cudamem_buffer_allocate(sources[from].resource, sizeof numbers, rig.stream, &buffer));
            OK(cudamem_view_create(buffer, &layout, &rows));
            OK(cudamem_buffer_destroy(buffer));
            OK(cudamem_view_write(rows, numbers, sizeof numbers, NULL));
            const cudamem_index backwards = {CUDAMEM_INDEX_OPEN, CUDAMEM_INDEX_OPEN, -1};
            OK(cudamem_view_slice(rows, &backwards, 1, &target));
            OK(cudamem_view_permute(target, NUMBERS(1, 0), 2, &columns));
            OK(cudamem_view_destroy(target));
            cudamem_view_layout dense = layout_of(CUDAMEM_INT16, 2, NUMBERS(COLUMNS, ROWS));
            OK(cudamem_buffer_allocate(sources[to].resource, sizeof numbers, rig.stream, &buffer));
            OK(cudamem_view_create(buffer, &dense, &target));
            cudamem_view_copy_options options;
            memset(&options, 0, sizeof options);
            options.size = sizeof options;
            options.flags = to % 2 ? CUDAMEM_VIEW_COPY_WAIT : CUDAMEM_VIEW_COPY_NO_WAIT;
            options.stream = other;
            options.temporary = sources[from % 2].resource;
            OK(cudamem_view_copy(target, columns, from % 3 ? &options : NULL));
            OK(cudamem_buffer_read(buffer, 0, seen, sizeof seen));
            CHECK(memcmp(seen, turned, sizeof seen) == 0);
            OK(cudamem_view_read(columns, seen, sizeof seen, &options));
            CHECK(memcmp(seen, turned, sizeof seen) == 0);
            OK(cudamem_buffer_destroy(buffer));
            OK(cudamem_view_destroy(target));
            OK(cudamem_view_destroy(columns));
            OK(cudamem_view_destroy(rows));
        }
    }

    /* Views of the program's own memory. */
    cudamem_view here, there, column;
    cudamem_buffer buffer;
    int released = 0;
    OK(cudamem_view_borrow_host(numbers, sizeof numbers, &layout, on_release, &released, &here));
    CHECK(info_of(here).device == -1 && info_of(here).host_pointer == numbers && info_of(here).access == CUDAMEM_ACCESS_HOST);
    FAILS(cudamem_view_get_buffer(here, &buffer), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_buffer_allocate(sources[0].resource, sizeof numbers, rig.stream, &buffer));
    OK(cudamem_view_create(buffer, &layout, &there));
    OK(cudamem_view_copy(there, here, NULL));
    OK(cudamem_buffer_read(buffer, 0, seen, sizeof seen));
    CHECK(memcmp(seen, numbers, sizeof seen) == 0);
    const cudamem_index second[] = {{0, CUDAMEM_INDEX_OPEN, 1}, {1, 2, 1}};
    OK(cudamem_view_slice(here, second, 2, &column));
    OK(cudamem_view_write(column, turned, ROWS * sizeof *turned, NULL));
    for (int row = 0; row < ROWS; row++) {
        CHECK(numbers[row * COLUMNS + 1] == turned[row]);
    }
    OK(cudamem_view_destroy(here));
    CHECK(released == 0);
    OK(cudamem_view_destroy(column));
    CHECK(released == 1);
    OK(cudamem_view_destroy(there));

    /* Pairs of elements that share a byte. */
    cudamem_view_layout nibbles = layout_of(FP4, 2, NUMBERS(4, 8));
    unsigned char bytes[16], packed[8];
    pattern(bytes, sizeof bytes, 3);
    OK(cudamem_buffer_write(buffer, 0, bytes, sizeof bytes));
    OK(cudamem_view_create(buffer, &nibbles, &here));
    CHECK(info_of(here).dense_size == 16 && (info_of(here).flags & CUDAMEM_VIEW_PADDED) == 0);
    const cudamem_index right[] = {{0, CUDAMEM_INDEX_OPEN, 1}, {4, CUDAMEM_INDEX_OPEN, 1}};
    OK(cudamem_view_slice(here, right, 2, &column));
    OK(cudamem_view_read(column, packed, sizeof packed, NULL));
    for (int row = 0; row < 4; row++) {
        CHECK(memcmp(packed + 2 * row, bytes + 4 * row + 2, 2) == 0);
    }
    FAILS(cudamem_view_repack(here, CUDAMEM_UINT8, -1, &there), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_view_destroy(here));
    OK(cudamem_view_destroy(column));
    nibbles.flags = CUDAMEM_VIEW_PADDED;
    OK(cudamem_view_create(buffer, &nibbles, &here));
    CHECK(info_of(here).dense_size == 32 && (info_of(here).flags & CUDAMEM_VIEW_PADDED));
    OK(cudamem_view_write(here, numbers, 32, NULL));
    OK(cudamem_buffer_read(buffer, 0, seen, 32));
    CHECK(memcmp(seen, numbers, 32) == 0);
    OK(cudamem_view_destroy(here));
    OK(cudamem_buffer_destroy(buffer));
    OK(cudamem_stream_destroy(other));
    sources_close(sources);
    rig_close(rig);
}

void case_view_misuse(void)
{
    struct rig rig = rig_open();
    cudamem_resource device;
    cudamem_buffer buffer, other_buffer;
    cudamem_view view, other, turned, none = {5}, null_view = {0};
    cudamem_view_layout good = layout_of(CUDAMEM_FLOAT32, 2, NUMBERS(4, 6)), bad;
    char room[96] = "untouched";
    int released = 0;
    OK(cudamem_resource_create_device(rig.context, &device));
    OK(cudamem_buffer_allocate(device, 96, rig.stream, &buffer));
    OK(cudamem_buffer_allocate(device, 96, rig.stream, &other_buffer));

    /* Invalid layouts. */
    FAILS(cudamem_view_create(buffer, NULL, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_create(buffer, &good, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    cudamem_buffer null_buffer = {0};
    FAILS(cudamem_view_create(null_buffer, &good, &none), CUDAMEM_ERROR_INVALID_HANDLE);
    bad = good, bad.size = 8;
    FAILS(cudamem_view_create(buffer, &bad, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.data_type.bits = 31;
    FAILS(cudamem_view_create(buffer, &bad, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.data_type.lanes = 0;
    FAILS(cudamem_view_create(buffer, &bad, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.flags = CUDAMEM_VIEW_C_ORDER;
    FAILS(cudamem_view_create(buffer, &bad, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.ndim = 65;
    FAILS(cudamem_view_create(buffer, &bad, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.ndim = SIZE_MAX;
    FAILS(cudamem_view_create(buffer, &bad, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.shape = NULL;
    FAILS(cudamem_view_create(buffer, &bad, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.shape = (const int64_t *)(const void *)(room + 1);
    FAILS(cudamem_view_create(buffer, &bad, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.shape = NUMBERS(4, -2);
    FAILS(cudamem_view_create(buffer, &bad, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.shape = NUMBERS(-1, -1);
    FAILS(cudamem_view_create(buffer, &bad, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.shape = NUMBERS(-1, 5);
    FAILS(cudamem_view_create(buffer, &bad, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.shape = NUMBERS(INT64_MAX, INT64_MAX);
    FAILS(cudamem_view_create(buffer, &bad, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.flags = CUDAMEM_VIEW_F_ORDER, bad.strides = NUMBERS(6, 1);
    FAILS(cudamem_view_create(buffer, &bad, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.data_type = (cudamem_data_type){CUDAMEM_TYPE_OPAQUE, 8, 7}, bad.shape = NUMBERS(-1, 1);
    FAILS(cudamem_view_create(buffer, &bad, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    /* Layouts that reach outside the memory. */
    bad = good, bad.shape = NUMBERS(5, 5);
    FAILS(cudamem_view_create(buffer, &bad, &none), CUDAMEM_ERROR_OUT_OF_RANGE);
    bad = good, bad.offset = 1;
    FAILS(cudamem_view_create(buffer, &bad, &none), CUDAMEM_ERROR_OUT_OF_RANGE);
    bad = good, bad.strides = NUMBERS(-6, 1);
    FAILS(cudamem_view_create(buffer, &bad, &none), CUDAMEM_ERROR_OUT_OF_RANGE);
    bad = good, bad.offset = INT64_MIN;
    FAILS(cudamem_view_create(buffer, &bad, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_borrow_host(NULL, 96, &good, on_release, &released, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_borrow_host(room, 95, &good, on_release, &released, &none), CUDAMEM_ERROR_OUT_OF_RANGE);
    FAILS(cudamem_view_borrow_host(room, SIZE_MAX, &good, on_release, &released, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(released == 0);

    OK(cudamem_view_create(buffer, &good, &view));
    OK(cudamem_view_create(other_buffer, &good, &other));
    OK(cudamem_view_permute(view, NUMBERS(1, 0), 2, &turned));
    cudamem_view_info info = {0};
    FAILS(cudamem_view_get_info(view, &info), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_get_info(view, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);

    /* Invalid slices and shapes. */
    const cudamem_index outside = {4, 0, 0};
    FAILS(cudamem_view_slice(view, &outside, 1, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_slice(view, NULL, 1, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    const cudamem_index many[] = {{0, 1, 1}, {0, 1, 1}, {0, 1, 1}};
    FAILS(cudamem_view_slice(view, many, 3, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_slice(null_view, NULL, 0, &none), CUDAMEM_ERROR_INVALID_HANDLE);
    FAILS(cudamem_view_reshape(view, NUMBERS(5, 5), 2, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_reshape(turned, NUMBERS(-1), 1, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_reshape(view, NUMBERS(-1), 65, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_reshape(view, NUMBERS(-1), 1, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_permute(view, NUMBERS(0, 0), 2, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_permute(view, NUMBERS(0), 1, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_broadcast(view, NUMBERS(4, 7), 2, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_repack(view, CUDAMEM_UINT8, 2, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_repack(turned, CUDAMEM_UINT8, -1, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.shape = NUMBERS(-1, 6);
    FAILS(cudamem_view_with_layout(view, &bad, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.shape = NUMBERS(4, 7);
    FAILS(cudamem_view_with_layout(view, &bad, &none), CUDAMEM_ERROR_OUT_OF_RANGE);
    CHECK(none.id == 5);

    /* Invalid copies. */
    cudamem_view protected_view, repeated, shifted, integers;
    OK(cudamem_view_make_read_only(view, &protected_view));
    FAILS(cudamem_view_copy(protected_view, other, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_write(protected_view, room, 96, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_copy(view, turned, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.data_type.code = CUDAMEM_TYPE_INT;
    OK(cudamem_view_with_layout(view, &bad, &integers));
    FAILS(cudamem_view_copy(other, integers, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    bad = good, bad.shape = NUMBERS(3, 6);
    OK(cudamem_view_with_layout(view, &bad, &repeated));
    bad.offset = 6;
    OK(cudamem_view_with_layout(view, &bad, &shifted));
    FAILS(cudamem_view_copy(repeated, shifted, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT); /* they overlap */
    OK(cudamem_view_destroy(repeated));
    bad = good, bad.strides = NUMBERS(0, 1);
    OK(cudamem_view_with_layout(view, &bad, &repeated));
    FAILS(cudamem_view_copy(repeated, other, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_view_copy(view, view, NULL)); /* the same elements */
    cudamem_view_copy_options options = {0};
    FAILS(cudamem_view_copy(view, other, &options), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options.size = sizeof options, options.flags = CUDAMEM_VIEW_COPY_WAIT | CUDAMEM_VIEW_COPY_NO_WAIT;
    FAILS(cudamem_view_copy(view, other, &options), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options.flags = 0, options.reserved = 1;
    FAILS(cudamem_view_copy(view, other, &options), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options.reserved = 0, options.stream.id = view.id;
    FAILS(cudamem_view_copy(view, other, &options), CUDAMEM_ERROR_INVALID_HANDLE);
    options.stream.id = 0, options.temporary.id = view.id;
    FAILS(cudamem_view_read(view, room, 96, &options), CUDAMEM_ERROR_INVALID_HANDLE);
    FAILS(cudamem_view_read(view, room, 95, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_read(view, NULL, 96, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_view_write(view, room, SIZE_MAX, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(strcmp(room, "untouched") == 0);

    OK(cudamem_view_destroy(view));
    FAILS(cudamem_view_copy(other, view, NULL), CUDAMEM_ERROR_INVALID_HANDLE);
    FAILS(cudamem_view_destroy(view), CUDAMEM_ERROR_INVALID_HANDLE);
    OK(cudamem_view_destroy(null_view));
    const cudamem_view rest[] = {other, turned, protected_view, repeated, shifted, integers};
    for (size_t index = 0; index < sizeof rest / sizeof rest[0]; index++) {
        OK(cudamem_view_destroy(rest[index]));
    }
    OK(cudamem_buffer_destroy(buffer));
    OK(cudamem_buffer_destroy(other_buffer));
    OK(cudamem_resource_destroy(device));
    rig_close(rig);
}
