// The C++ classes for views and interchange, with exceptions.
#include "test.hpp"

#include "../api/foreign.h" // after our header, which declares these structs too

#include <array>
#include <cstdint>
#include <string>
#include <vector>

static_assert(cudamem::data_type_of<float>().code == CUDAMEM_TYPE_FLOAT && cudamem::data_type_of<float>().bits == 32);
static_assert(cudamem::data_type_of<bool>().code == CUDAMEM_TYPE_BOOL);
static_assert(cudamem::data_type_of<unsigned short>().code == CUDAMEM_TYPE_UINT);
static_assert(cudamem::data_type_of<long long>().bits == 64);
static_assert(CUDAMEM_FLOAT32.code == CUDAMEM_TYPE_FLOAT && CUDAMEM_FLOAT32.bits == 32 && CUDAMEM_FLOAT32.lanes == 1);

static void layouts(const cudamem::stream &stream, const cudamem::resource &device)
{
    std::vector<std::int32_t> numbers(24), seen(6);
    for (std::size_t index = 0; index < numbers.size(); index++) {
        numbers[index] = static_cast<std::int32_t>(index);
    }
    const auto type = cudamem::data_type_of<std::int32_t>();
    const cudamem::view whole(cudamem::buffer(device, 96, stream), {type, {2, 3, -1}});
    whole.write(numbers);
    const auto info = whole.info();
    CHECK(info.ndim == 3 && info.shape[2] == 4 && info.elements == 24);
    CHECK(cudamem::to_string(type) == "int32" && cudamem::typestr(type) == "<i4");
    CHECK(cudamem::find_data_type("<i4").bits == 32);
    const auto part = whole.slice({-1, cudamem::index(), {CUDAMEM_INDEX_OPEN, CUDAMEM_INDEX_OPEN, -2}});
    part.read(seen);
    CHECK((seen == std::vector<std::int32_t>{15, 13, 19, 17, 23, 21}));
    CHECK(whole.permute({2, 0, 1}).info().strides[0] == 1 && whole.reshape({-1, 6}).info().shape[0] == 4);
    CHECK(whole.unsqueeze({0}).squeeze().flatten().info().shape[0] == 24);
    CHECK(whole.broadcast({5, 2, 3, 4}).info().elements == 120);
    CHECK(whole.repack(cudamem::data_type_of<std::int16_t>()).info().shape[2] == 8);
    CHECK(whole.read_only().info().flags & CUDAMEM_VIEW_READ_ONLY);
    CHECK(whole.with_layout({type, {3}, {-4}, 20}).info().offset == 20);

    // A copy to a view of the program's own memory.
    std::array<std::int32_t, 6> room{};
    const auto here = cudamem::view::borrow_host(room.data(), sizeof room, {type, {3, 2}});
    cudamem_view_copy_options options{};
    options.stream = stream.get();
    here.copy(part, options);
    CHECK(room[0] == 15 && room[5] == 21);
    CHECK(whole.buffer().size() == 96);
    bool thrown = false;
    try {
        static_cast<void>(whole.with_layout({type, {3, 2}, {2}}));
    } catch (const cudamem::error &error) {
        thrown = error.status() == CUDAMEM_ERROR_INVALID_ARGUMENT;
    }
    CHECK(thrown);
}

static void interchange(const cudamem::stream &stream, const cudamem::resource &device)
{
    const std::array<double, 4> numbers = {1, 2, 3, 4};
    std::array<double, 4> seen{};
    cudamem::view view(cudamem::buffer(device, 32, stream), {cudamem::data_type_of<double>(), {2, 2}});
    view.write(numbers);
    cudamem_dlpack_options options{};
    options.flags = CUDAMEM_DLPACK_READ_ONLY;
    DLManagedTensorVersioned *tensor = cudamem::export_dlpack(view, options);
    CHECK(tensor->tensor.ndim == 2 && tensor->flags == 1);
    const auto again = cudamem::import_dlpack(tensor, stream, stream);
    again.read(seen);
    CHECK(seen == numbers);
    cudamem::import_dlpack(cudamem::export_dlpack_legacy(view), stream).read(seen);
    const std::string json = cudamem::cuda_array_interface(view);
    CHECK(json.find("\"<f8\"") != std::string::npos);
    cudamem::import_cuda_array_interface(json, stream).read(seen);
    CHECK(seen == numbers);

    // Arrow: a struct type with one column.
    const auto type = cudamem::arrow_schema::create("g", "price", {}, CUDAMEM_ARROW_NULLABLE, {{"unit", "EUR"}});
    CHECK(type.metadata(0).first == "unit" && type.metadata(0).second == "EUR" && !type.dictionary());
    const auto table_type = cudamem::arrow_schema::create("+s", "", {&type});
    CHECK(std::string(table_type.child(0).info().name) == "price");
    const cudamem::buffer buffer = view.buffer();
    const std::array<cudamem_buffer, 2> buffers = {cudamem_buffer{0}, buffer.get()};
    cudamem_arrow_array_options column{};
    column.length = 4;
    column.n_buffers = buffers.size();
    column.buffers = buffers.data();
    const auto array = cudamem::arrow_array::create(column);
    CHECK(!array.dictionary());
    ArrowDeviceArray raw{};
    array.export_to(&raw, stream);
    auto imported = cudamem::arrow_array::import(&raw);
    CHECK(imported.info().length == 4 && !imported.buffer(0, 1, stream));
    imported.buffer(1, 32, stream).read(0, seen);
    CHECK(seen == numbers);
    imported.close(stream);
    ArrowDeviceArrayStream raw_arrays{};
    cudamem::export_arrow_stream(type, {&array, &array}, stream, &raw_arrays);
    const auto arrays = cudamem::arrow_stream::import(&raw_arrays);
    CHECK(std::string(arrays.schema().info().format) == "g");
    CHECK(arrays.next() && arrays.next() && !arrays.next());
    ArrowSchema raw_type{};
    type.export_to(&raw_type);
    CHECK(cudamem::arrow_schema::import(&raw_type).info().flags == CUDAMEM_ARROW_NULLABLE);
}

void views_with_exceptions()
{
    const cudamem::context context(0);
    const cudamem::stream stream(context);
    const auto device = cudamem::resource::device(context);
    layouts(stream, device);
    interchange(stream, device);
}
