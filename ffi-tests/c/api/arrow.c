/* Arrow arrays, schemas and streams of arrays. */
#include "foreign.h"
#include "test.h"

static int ends;

static void end_schema(struct ArrowSchema *schema)
{
    ends++;
    schema->release = NULL;
}

static cudamem_arrow_schema schema_of(const char *format, const char *name, size_t n_children,
                                      const cudamem_arrow_schema *children)
{
    static const char *const KEYS[] = {"unit", "source"}, *const VALUES[] = {"EUR", "test"};
    cudamem_arrow_schema_options options;
    cudamem_arrow_schema schema;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.format = format, options.name = name, options.flags = CUDAMEM_ARROW_NULLABLE;
    options.n_children = n_children, options.children = children;
    options.n_metadata = 2, options.metadata_keys = KEYS, options.metadata_values = VALUES;
    OK(cudamem_arrow_schema_create(&options, &schema));
    return schema;
}

static cudamem_arrow_array_options array_options(size_t n_buffers, const cudamem_buffer *buffers)
{
    cudamem_arrow_array_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.length = 24;
    options.n_buffers = n_buffers, options.buffers = buffers;
    return options;
}

static cudamem_arrow_array_info array_info(cudamem_arrow_array array)
{
    cudamem_arrow_array_info info;
    info.size = sizeof info;
    OK(cudamem_arrow_array_get_info(array, &info));
    return info;
}

/* Makes a struct array with one column of numbers, in a resource's memory. */
static cudamem_arrow_array table_of(struct rig rig, cudamem_resource resource, int32_t numbers[24])
{
    cudamem_buffer buffers[2] = {{0}, {0}};
    cudamem_arrow_array column, table;
    cudamem_view view = numbers_in(resource, rig.stream, numbers);
    OK(cudamem_view_get_buffer(view, &buffers[1]));
    OK(cudamem_view_destroy(view));
    cudamem_arrow_array_options options = array_options(2, buffers);
    OK(cudamem_arrow_array_create(&options, &column));
    OK(cudamem_buffer_destroy(buffers[1]));
    options = array_options(1, buffers);
    options.n_children = 1, options.children = &column;
    OK(cudamem_arrow_array_create(&options, &table));
    OK(cudamem_arrow_array_destroy(column));
    return table;
}

/* Checks the only column of a table, read in order of a stream. */
static void check_table(cudamem_arrow_array table, cudamem_stream stream, const int32_t numbers[24])
{
    cudamem_arrow_array column;
    cudamem_buffer validity, buffer;
    int32_t seen[24];
    CHECK(array_info(table).n_children == 1 && array_info(table).length == 24 && array_info(table).n_buffers == 1);
    OK(cudamem_arrow_array_get_child(table, 0, &column));
    OK(cudamem_arrow_array_get_buffer(column, 0, 3, stream, &validity));
    CHECK(validity.id == 0);
    OK(cudamem_arrow_array_get_buffer(column, 1, sizeof seen, stream, &buffer));
    OK(cudamem_buffer_read(buffer, 0, seen, sizeof seen));
    CHECK(memcmp(seen, numbers, sizeof seen) == 0);
    OK(cudamem_buffer_destroy(buffer));
    OK(cudamem_arrow_array_destroy(column));
}

void case_arrow(void)
{
    struct rig rig = rig_open();
    struct source sources[SOURCES];
    sources_open(rig, sources);
    cudamem_stream theirs;
    OK(cudamem_stream_create(rig.context, NULL, &theirs));
    int32_t numbers[24];

    /* Export and import of a schema. */
    cudamem_arrow_schema price = schema_of("i", "price", 0, NULL), table_type = schema_of("+s", NULL, 1, &price), read, child;
    struct ArrowSchema raw_schema;
    OK(cudamem_arrow_schema_export(table_type, &raw_schema));
    CHECK(strcmp(raw_schema.format, "+s") == 0 && raw_schema.n_children == 1);
    CHECK(strcmp(raw_schema.children[0]->name, "price") == 0 && raw_schema.children[0]->metadata != NULL);
    OK(cudamem_arrow_schema_import(&raw_schema, &read));
    CHECK(raw_schema.release == NULL);
    cudamem_arrow_schema_info type;
    type.size = sizeof type;
    OK(cudamem_arrow_schema_get_child(read, 0, &child));
    OK(cudamem_arrow_schema_destroy(read));
    OK(cudamem_arrow_schema_get_info(child, &type));
    CHECK(strcmp(type.format, "i") == 0 && strcmp(type.name, "price") == 0 && type.flags == 2 && type.n_metadata == 2);
    cudamem_text key, value;
    OK(cudamem_arrow_schema_get_metadata(child, 1, &key, &value));
    char *word = take_text(key);
    CHECK(strcmp(word, "source") == 0);
    free(word);
    word = take_text(value);
    CHECK(strcmp(word, "test") == 0);
    free(word);
    OK(cudamem_arrow_schema_get_child(child, CUDAMEM_ARROW_DICTIONARY, &read));
    CHECK(read.id == 0);
    OK(cudamem_arrow_schema_destroy(child));

    /* Metadata with arbitrary bytes: one pair, with a key of four bytes and a value of five. */
    static const struct {
        int32_t pairs, key_size;
        char key[4];
        int32_t value_size;
        char value[8];
    } BINARY = {1, 4, {'k', 0, 'e', 'y'}, 5, {'a', 0, '\xff', 0, 'c'}};
    memset(&raw_schema, 0, sizeof raw_schema);
    raw_schema.format = "i", raw_schema.metadata = (const char *)&BINARY, raw_schema.release = end_schema;
    OK(cudamem_arrow_schema_import(&raw_schema, &child));
    OK(cudamem_arrow_schema_get_metadata(child, 0, &key, &value));
    const char *characters = NULL;
    size_t length = 0;
    OK(cudamem_text_get(key, &characters, &length));
    CHECK(length == 4 && memcmp(characters, BINARY.key, 4) == 0 && characters[length] == 0);
    OK(cudamem_text_get(value, &characters, &length));
    CHECK(length == 5 && memcmp(characters, BINARY.value, 5) == 0 && characters[length] == 0);
    OK(cudamem_text_destroy(key));
    OK(cudamem_text_destroy(value));
    OK(cudamem_arrow_schema_destroy(child));

    for (int index = 0; index < SOURCES; index++) {
        if (sources[index].resource.id == 0) {
            continue;
        }
        cudamem_arrow_array table = table_of(rig, sources[index].resource, numbers), again;
        check_table(table, theirs, numbers);
        struct ArrowDeviceArray raw;
        OK(cudamem_arrow_array_export(table, rig.stream, &raw));
        CHECK(raw.array.length == 24 && raw.array.n_children == 1 && raw.array.release != NULL && raw.sync_event != NULL);
        CHECK(raw.device_type == array_info(table).device_type);
        OK(cudamem_arrow_array_import(&raw, &again));
        CHECK(raw.array.release == NULL);
        check_table(again, theirs, numbers);
        cudamem_arrow_array part;
        OK(cudamem_arrow_array_get_child(again, 0, &part));
        FAILS(cudamem_arrow_array_destroy_after(again, theirs), CUDAMEM_ERROR_INVALID_ARGUMENT);
        OK(cudamem_arrow_array_destroy(part));
        OK(cudamem_arrow_array_destroy_after(again, theirs));
        OK(cudamem_arrow_array_export(table, rig.stream, &raw));
        OK(cudamem_arrow_array_destroy_after(table, theirs));
        raw.array.release(&raw.array);

        /* A stream of several arrays. */
        cudamem_arrow_array tables[2] = {table_of(rig, sources[index].resource, numbers), {0}}, next;
        tables[1] = tables[0];
        struct ArrowDeviceArrayStream raw_stream;
        cudamem_arrow_stream arrays;
        OK(cudamem_arrow_stream_export(table_type, tables, 2, rig.stream, &raw_stream));
        OK(cudamem_arrow_array_destroy(tables[0]));
        OK(cudamem_arrow_stream_import(&raw_stream, &arrays));
        CHECK(raw_stream.release == NULL);
        OK(cudamem_arrow_stream_get_schema(arrays, &read));
        OK(cudamem_arrow_schema_get_info(read, &type));
        CHECK(strcmp(type.format, "+s") == 0 && type.n_children == 1);
        OK(cudamem_arrow_schema_destroy(read));
        for (int round = 0; round < 2; round++) {
            OK(cudamem_arrow_stream_next(arrays, &next));
            check_table(next, theirs, numbers);
            OK(cudamem_arrow_array_destroy(next));
        }
        OK(cudamem_arrow_stream_next(arrays, &next));
        CHECK(next.id == 0);
        OK(cudamem_arrow_stream_destroy(arrays));
    }
    OK(cudamem_arrow_schema_destroy(price));
    OK(cudamem_arrow_schema_destroy(table_type));
    OK(cudamem_stream_destroy(theirs));
    sources_close(sources);
    rig_close(rig);
}

static void end_array(struct ArrowArray *array)
{
    ends++;
    array->release = NULL;
}

static int fail_next(struct ArrowDeviceArrayStream *self, struct ArrowDeviceArray *result)
{
    (void)self, (void)result;
    return 5;
}

static int fail_schema(struct ArrowDeviceArrayStream *self, struct ArrowSchema *result)
{
    (void)self, (void)result;
    return 5;
}

static const char *tell_error(struct ArrowDeviceArrayStream *self)
{
    (void)self;
    return "the producer cannot read more";
}

static void end_stream(struct ArrowDeviceArrayStream *self)
{
    ends++;
    self->release = NULL;
}

void case_arrow_misuse(void)
{
    struct rig rig = rig_open();
    cudamem_resource device, pinned;
    cudamem_arrow_array none = {5}, own, null_array = {0};
    cudamem_arrow_schema no_schema = {5}, null_schema = {0}, schema = schema_of("i", "n", 0, NULL);
    cudamem_arrow_stream no_stream = {5}, stream;
    int32_t numbers[24];
    ends = 0;
    OK(cudamem_resource_create_device(rig.context, &device));
    OK(cudamem_resource_create_pinned(rig.context, 0, &pinned));
    own = table_of(rig, device, numbers);

    /* Invalid arrays. */
    cudamem_arrow_array_options options = array_options(0, NULL);
    FAILS(cudamem_arrow_array_create(&options, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options.null_count = 25;
    FAILS(cudamem_arrow_array_create(&options, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options = array_options(0, NULL), options.offset = UINT64_MAX;
    FAILS(cudamem_arrow_array_create(&options, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options = array_options(1, NULL);
    FAILS(cudamem_arrow_array_create(&options, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    options = array_options(SIZE_MAX, (const cudamem_buffer *)(const void *)numbers);
    FAILS(cudamem_arrow_array_create(&options, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    const cudamem_buffer forged = {own.id};
    options = array_options(1, &forged);
    FAILS(cudamem_arrow_array_create(&options, &none), CUDAMEM_ERROR_INVALID_HANDLE);
    options = array_options(0, NULL), options.n_children = 1, options.children = &null_array;
    FAILS(cudamem_arrow_array_create(&options, &none), CUDAMEM_ERROR_INVALID_HANDLE);
    cudamem_buffer two[2];
    OK(cudamem_buffer_allocate(device, 8, rig.stream, &two[0]));
    OK(cudamem_buffer_allocate(pinned, 8, rig.stream, &two[1]));
    options = array_options(2, two);
    FAILS(cudamem_arrow_array_create(&options, &none), CUDAMEM_ERROR_INVALID_ARGUMENT); /* two device types */
    OK(cudamem_buffer_destroy(two[0]));
    OK(cudamem_buffer_destroy(two[1]));

    /* After a failed import the program still owns the struct. */
    struct ArrowDeviceArray raw = {0};
    const void *buffers[1] = {numbers};
    FAILS(cudamem_arrow_array_import(&raw, &none), CUDAMEM_ERROR_INVALID_ARGUMENT); /* released */
    FAILS(cudamem_arrow_array_import(NULL, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    raw.array.release = end_array, raw.array.length = 24, raw.device_type = ON_CPU;
    raw.array.n_buffers = 1, raw.array.buffers = buffers;
    FAILS(cudamem_arrow_array_import(&raw, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    raw.reserved[1] = 1;
    FAILS(cudamem_arrow_array_import(&raw, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    raw.reserved[1] = 0, raw.array.length = -1;
    FAILS(cudamem_arrow_array_import(&raw, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    raw.array.length = 24, raw.array.buffers = NULL;
    FAILS(cudamem_arrow_array_import(&raw, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    raw.array.buffers = buffers, raw.device_type = 10;
    FAILS(cudamem_arrow_array_import(&raw, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    raw.device_type = ON_CPU;
    CHECK(ends == 0 && raw.array.release == end_array && none.id == 5);
    cudamem_arrow_array imported;
    cudamem_buffer no_buffer = {5}, buffer;
    OK(cudamem_arrow_array_import(&raw, &imported));
    FAILS(cudamem_arrow_array_export(imported, rig.stream, &raw), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_arrow_array_get_buffer(imported, 1, 4, rig.stream, &no_buffer), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_arrow_array_get_buffer(imported, 0, SIZE_MAX, rig.stream, &no_buffer), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_arrow_array_get_child(imported, 0, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_arrow_array_get_buffer(imported, 0, sizeof numbers, rig.stream, &buffer));
    OK(cudamem_arrow_array_destroy(imported));
    CHECK(ends == 0 && no_buffer.id == 5);
    OK(cudamem_buffer_destroy(buffer));
    CHECK(ends == 1);

    struct ArrowSchema raw_schema = {0};
    FAILS(cudamem_arrow_schema_import(&raw_schema, &no_schema), CUDAMEM_ERROR_INVALID_ARGUMENT);
    raw_schema.release = end_schema;
    FAILS(cudamem_arrow_schema_import(&raw_schema, &no_schema), CUDAMEM_ERROR_INVALID_ARGUMENT); /* no format */
    CHECK(ends == 1 && raw_schema.release == end_schema && no_schema.id == 5);
    raw_schema.format = "u";
    OK(cudamem_arrow_schema_import(&raw_schema, &no_schema));
    CHECK(ends == 2 && raw_schema.release == NULL);
    OK(cudamem_arrow_schema_destroy(no_schema));
    cudamem_arrow_schema_options schema_options;
    memset(&schema_options, 0, sizeof schema_options);
    no_schema.id = 5;
    FAILS(cudamem_arrow_schema_create(NULL, &no_schema), CUDAMEM_ERROR_INVALID_ARGUMENT);
    schema_options.size = sizeof schema_options;
    FAILS(cudamem_arrow_schema_create(&schema_options, &no_schema), CUDAMEM_ERROR_INVALID_ARGUMENT);
    schema_options.format = "i", schema_options.n_children = 1, schema_options.children = &null_schema;
    FAILS(cudamem_arrow_schema_create(&schema_options, &no_schema), CUDAMEM_ERROR_INVALID_HANDLE);
    FAILS(cudamem_arrow_schema_get_child(schema, 0, &no_schema), CUDAMEM_ERROR_INVALID_ARGUMENT);
    FAILS(cudamem_arrow_schema_get_info(schema, NULL), CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(no_schema.id == 5);

    struct ArrowDeviceArrayStream raw_stream = {0};
    FAILS(cudamem_arrow_stream_import(&raw_stream, &no_stream), CUDAMEM_ERROR_INVALID_ARGUMENT);
    raw_stream.release = end_stream, raw_stream.device_type = ON_CPU;
    FAILS(cudamem_arrow_stream_import(&raw_stream, &no_stream), CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(ends == 2 && no_stream.id == 5);
    raw_stream.get_schema = fail_schema, raw_stream.get_next = fail_next, raw_stream.get_last_error = tell_error;
    OK(cudamem_arrow_stream_import(&raw_stream, &stream));
    CHECK(raw_stream.release == NULL);
    FAILS(cudamem_arrow_stream_next(stream, &none), CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(cudamem_last_error_message(), "cannot read more") != NULL);
    FAILS(cudamem_arrow_stream_get_schema(stream, &no_schema), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_arrow_stream_destroy(stream));
    CHECK(ends == 3 && none.id == 5);
    FAILS(cudamem_arrow_stream_next(stream, &none), CUDAMEM_ERROR_INVALID_HANDLE);
    cudamem_arrow_array of_host = table_of(rig, pinned, numbers);
    const cudamem_arrow_array mixed[] = {own, of_host};
    FAILS(cudamem_arrow_stream_export(schema, mixed, 2, rig.stream, &raw_stream), CUDAMEM_ERROR_INVALID_ARGUMENT);
    OK(cudamem_arrow_array_destroy(of_host));
    OK(cudamem_arrow_array_destroy(own));
    OK(cudamem_arrow_array_destroy(null_array));
    OK(cudamem_arrow_schema_destroy(schema));
    OK(cudamem_arrow_schema_destroy(null_schema));
    OK(cudamem_resource_destroy(pinned));
    OK(cudamem_resource_destroy(device));
    rig_close(rig);
}
