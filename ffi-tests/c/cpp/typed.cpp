// include/cudamem/typed_buffer.hpp, and the containers that copies take, before C++20 too.
#include "test.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

using floats = cudamem::typed_buffer<float>;
static_assert(!std::is_copy_constructible_v<floats> && !std::is_copy_assignable_v<floats>);
static_assert(std::is_nothrow_move_constructible_v<floats> && std::is_nothrow_move_assignable_v<floats>);

// What spans take. Values that a span may change must be neither const nor temporary.
template <typename Value, typename Values>
static constexpr bool takes = std::is_convertible_v<Values, cudamem::span<Value>>;
static_assert(takes<const int, std::vector<int>> && takes<const int, const std::vector<int> &> && takes<int, int (&)[3]>);
static_assert(takes<int, std::vector<int> &> && takes<int, std::array<int, 2> &> && takes<const int, const std::array<int, 2> &>);
static_assert(takes<const int, cudamem::span<int>> && takes<const char, const std::string &>);
static_assert(!takes<int, const std::vector<int> &> && !takes<int, std::vector<int>> && !takes<const long, std::vector<int> &>);
static_assert(!takes<int, cudamem::span<const int>> && !takes<const float, floats &> && !takes<const int, int>);
static_assert(!takes<const bool, std::vector<bool> &>);

struct alignas(16) particle {
    float position[3];
    std::uint32_t kind;
};

template <typename Call> static std::string refused(cudamem_status status, Call call)
{
    try {
        call();
    } catch (const cudamem::error &error) {
        CHECK(error.status() == status);
        return error.what();
    }
    const bool was_refused = false;
    CHECK(was_refused);
    return "";
}

static void values_and_ranges(const cudamem::pool &pool, const cudamem::stream &stream)
{
    const floats memory(pool, 10, stream);
    CHECK(memory && memory.size() == 10 && memory.size_bytes() == 40 && !memory.empty() && memory.capacity() == 10);
    CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) == memory.untyped().device_pointer());

    memory.fill(1.5f);
    memory.write(1, std::vector<float>{2, 3});
    memory.write(3, {4, 5});
    const std::array<float, 1> constant = {6};
    memory.write(5, constant);
    const float plain[] = {7, 8};
    memory.write(6, plain);
    memory.fill(8, 2, 9);
    CHECK((memory.to_vector() == std::vector<float>{1.5f, 2, 3, 4, 5, 6, 7, 8, 9, 9}));
    float two[2];
    memory.read(4, two);
    CHECK(two[0] == 5 && two[1] == 6);
    memory.read(9, cudamem::span<float>(two + 1, 1));
    CHECK(two[1] == 9);
    memory.write(10, std::vector<float>());
    memory.fill(10, cudamem::whole_size, 1);

    // The message counts in values, and nothing is written.
    const std::string message = refused(CUDAMEM_ERROR_OUT_OF_RANGE, [&] { memory.write(9, two); });
    CHECK(message == "cudamem::typed_buffer::write: 2 values at offset 9 do not lie within the buffer's 10 values");
    CHECK(memory.to_vector()[9] == 9);
    refused(CUDAMEM_ERROR_OUT_OF_RANGE, [&] { memory.read(SIZE_MAX / 4 + 2, two); });
    refused(CUDAMEM_ERROR_OUT_OF_RANGE, [&] { memory.fill(11, cudamem::whole_size, 1); });
    refused(CUDAMEM_ERROR_OUT_OF_RANGE, [&] { memory.fill(0, 11, 1); });

    const floats other = floats::zeroed(pool, 4, stream);
    other.copy(1, memory, 8);
    CHECK((other.to_vector() == std::vector<float>{0, 9, 9, 0}));
    refused(CUDAMEM_ERROR_OUT_OF_RANGE, [&] { other.copy(3, memory, 8); });
    refused(CUDAMEM_ERROR_OUT_OF_RANGE, [&] { other.copy(0, memory, 8, 3); });
    const floats part = memory.slice(8);
    CHECK(part.size() == 2 && part.data() == memory.data() + 8 && part.equals(other.slice(1, 2)) && !part.equals(other));

    const auto particles = cudamem::typed_buffer<particle>::from_values(pool, {{{1, 2, 3}, 4}, {{5, 6, 7}, 8}}, stream);
    CHECK(particles.size() == 2 && particles.to_vector()[1].kind == 8);
    particles.fill({{9, 9, 9}, 9});
    CHECK(particles.to_vector()[0].kind == 9);
}

static void growth(const cudamem::pool &pool, const cudamem::stream &stream)
{
    const cudamem::stream other(cudamem::context(0));
    floats memory = floats::from_values(pool, std::vector<float>{1, 2, 3, 4}, stream);
    const float *const before = memory.data();
    memory.resize(pool, 2, stream);
    CHECK(memory.size() == 2 && memory.capacity() == 4 && memory.data() == before);
    refused(CUDAMEM_ERROR_OUT_OF_RANGE, [&] { memory.fill(0, 3, 1); });
    memory.fill(9);
    memory.resize(pool, 4, stream);
    CHECK((memory.to_vector() == std::vector<float>{9, 9, 3, 4}));
    memory.resize(pool, 1000, other);
    CHECK(memory.size() == 1000 && memory.capacity() == 1000 && pool.statistics().blocks.current == 1);
    memory.fill(4, cudamem::whole_size, 5);
    const std::vector<float> seen = memory.to_vector();
    CHECK(seen[0] == 9 && seen[3] == 4 && seen[4] == 5 && seen[999] == 5);

    // A failure keeps everything.
    refused(CUDAMEM_ERROR_OUT_OF_MEMORY, [&] { memory.resize(pool, SIZE_MAX / 8, stream); });
    const std::string message = refused(CUDAMEM_ERROR_OUT_OF_MEMORY, [&] { memory.resize(pool, SIZE_MAX / 2, stream); });
    CHECK(message.find("values of 4 bytes overflows") != std::string::npos);
    CHECK(memory.size() == 1000 && memory.to_vector()[999] == 5);

    const floats none;
    CHECK(!none && none.empty() && none.data() == nullptr);
    refused(CUDAMEM_ERROR_INVALID_HANDLE, [&] { none.to_vector(); });
}

static void owners(const cudamem::pool &pool, const cudamem::stream &stream)
{
    floats memory(pool, 8, stream);
    float *const data = memory.data();
    floats moved(std::move(memory));
    CHECK(!memory && memory.size() == 0 && memory.data() == nullptr && moved.size() == 8 && moved.data() == data);
    memory = std::move(moved);
    memory.fill(2);
    cudamem::buffer bytes = memory.release();
    CHECK(!memory && memory.capacity() == 0 && bytes.size() == 32 && pool.statistics().blocks.current == 1);

    // The same bytes as other values, and back.
    cudamem::typed_buffer<std::uint32_t> words(std::move(bytes));
    CHECK(!bytes && words.size() == 8 && words.to_vector()[7] == 0x40000000);
    bytes = words.release();
    const std::string message = refused(CUDAMEM_ERROR_MISALIGNED, [&] { cudamem::typed_buffer<std::array<char, 5>>::of(std::move(bytes)); });
    CHECK(message.find("32 bytes at ") != std::string::npos && bytes.size() == 32);
    refused(CUDAMEM_ERROR_MISALIGNED, [&] { cudamem::typed_buffer<std::uint32_t>::of(bytes.slice(2, 8)); });
    words = cudamem::typed_buffer<std::uint32_t>::of(std::move(bytes));
    words.record_use(stream);
    words.set_stream(stream);
    words.synchronize();
    words.close();
    words.close();
    CHECK(!words && words.data() == nullptr && pool.statistics().blocks.current == 0);

    const cudamem::stream other(cudamem::context(0));
    floats(pool, 8, stream).close(other);
    floats none(pool, 0, stream);
    CHECK(none && none.empty() && none.data() == nullptr && none.to_vector().empty());
    none.fill(1);
    none.resize(pool, 3, stream);
    CHECK(none.size() == 3);
    floats nothing;
    nothing.resize(pool, 3, stream);
    CHECK(nothing.size() == 3 && nothing.capacity() == 3);
    CHECK(floats::zeroed(pool, 0, stream).empty() && floats::from_values(pool, std::vector<float>(), stream).empty());
}

static void memory_of_the_cpu(const cudamem::context &context, const cudamem::stream &stream)
{
    const auto memory = floats::zeroed(cudamem::resource::pinned(context), 100, stream);
    memory.store(98, {1, 2});
    float seen[2];
    memory.load(98, seen);
    CHECK(seen[1] == 2);
    memory.store(0, std::vector<float>{3});
    memory.synchronize();
    memory.invalidate();
    const cudamem::span<float> values = memory.host_span();
    CHECK(values.size() == 100 && values[0] == 3 && values[99] == 2);
    values[1] = 4;
    memory.flush(1, 1);
    CHECK(memory.to_vector()[1] == 4);
    refused(CUDAMEM_ERROR_OUT_OF_RANGE, [&] { memory.store(99, seen); });
    refused(CUDAMEM_ERROR_OUT_OF_RANGE, [&] { memory.flush(99, 2); });

    // Copy engines take both kinds of buffers.
    const cudamem::engine engine(context);
    const floats device(cudamem::resource::device(context), 100, stream);
    engine.write(device, 98, seen);
    float back[2] = {};
    engine.read(device, 98, back);
    CHECK(back[0] == 1 && back[1] == 2);
    engine.read(device.untyped(), 98 * sizeof(float), back);
    CHECK(back[1] == 2);
    refused(CUDAMEM_ERROR_OUT_OF_RANGE, [&] { engine.write(device, 99, seen); });
    refused(CUDAMEM_ERROR_OUT_OF_RANGE, [&] { engine.read(device, 99, back); });
    refused(CUDAMEM_ERROR_INVALID_ARGUMENT, [&] { device.host_span(); });
    const cudamem::view view(device.untyped(), {cudamem::data_type_of<float>(), {50, 2}});
    const auto last = view.slice({49});
    last.read(back);
    CHECK(back[1] == 2);
}

void typed_buffers()
{
    const cudamem::context context(0);
    const cudamem::stream stream(context);
    const cudamem::pool pool(cudamem::resource::device(context));
    values_and_ranges(pool, stream);
    growth(pool, stream);
    owners(pool, stream);
    CHECK(pool.statistics().blocks.current == 0);
    memory_of_the_cpu(context, stream);
}
