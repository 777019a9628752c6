// include/cudamem.hpp without exceptions (-fno-exceptions or CUDAMEM_NO_EXCEPTIONS): functions return values or errors.
#include "test.hpp"

#include <array>
#include <cstdint>
#include <list>
#include <memory_resource>
#include <string>
#include <vector>

static_assert(std::is_same_v<cudamem::result<int>, cudamem::expected<int, cudamem::error>>);
#if defined(__cpp_lib_expected)
static_assert(std::is_same_v<cudamem::result<void>, std::expected<void, cudamem::error>>);
#endif

template <typename Result> static cudamem_status status_of(const Result &result)
{
    if (result) {
        return CUDAMEM_SUCCESS;
    }
    CHECK(std::strlen(result.error().what()) > 20);
    return result.error().status();
}

static cudamem::result<std::size_t> size_of(const cudamem::result<cudamem::buffer> &buffer)
{
    return buffer ? buffer->size() : cudamem::unexpected<cudamem::error>(buffer.error());
}

static void objects()
{
    const auto context = cudamem::context::open_primary(0);
    CHECK(context.has_value());
    const auto stream = cudamem::stream::create(*context);
    CHECK(cudamem::load().has_value() && status_of(cudamem::device_info(-1)) != CUDAMEM_SUCCESS);
    int number = 0;
    CHECK(stream->launch_host_function([&number] { number = 1; }) && stream->synchronize() && number == 1);
    CHECK(stream->synchronize_for(cudamem::time_limit(0)) && cudamem::set_slow_wait_limit(std::chrono::seconds(10)));
    const auto device = cudamem::resource::device(*context);
    auto pool = cudamem::pool::create(*device);
    CHECK(stream && device && pool);
    CHECK(cudamem::describe()->find("\"devices\"") != std::string::npos);

    auto buffer = cudamem::buffer::allocate(*pool, 1000, *stream);
    CHECK(buffer && buffer->size().value() == 1000 && size_of(buffer).value_or(0) == 1000);
    const std::vector<int> numbers = {1, 2, 3};
    std::array<int, 3> read{};
    CHECK(buffer->write(8, numbers).has_value() && buffer->read(8, read) && read[2] == 3);
    const auto part = buffer->slice(8, 12);
    CHECK(part && pool->statistics()->blocks.current == 1);
    buffer = cudamem::buffer();
    CHECK(pool->statistics()->blocks.current == 1 && part->read(0, read) && read[1] == 2);
    buffer = part->slice(0);
    cudamem::buffer taken = *std::move(buffer);
    CHECK(taken && !*buffer && taken.close() && taken.close() && !taken);

    // Failures are returned as values, and leak nothing.
    CHECK(status_of(part->write(11, &read, 4)) == CUDAMEM_ERROR_OUT_OF_RANGE);
    CHECK(status_of(taken.size()) == CUDAMEM_ERROR_INVALID_HANDLE);
    CHECK(status_of(cudamem::context::open_primary(-1)) == CUDAMEM_ERROR_DRIVER);
    CHECK(status_of(part->host_span<int>()) == CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(status_of(cudamem::check(CUDAMEM_SUCCESS)) == CUDAMEM_SUCCESS);
    const auto none = size_of(cudamem::buffer::allocate(*pool, SIZE_MAX / 2, *stream));
    CHECK(!none && none.value_or(5) == 5 && none.error().is_out_of_memory());
    CHECK(to_string(none.error()).find("CUDAMEM_ERROR_OUT_OF_MEMORY: cudamem_buffer_allocate: ") == 0);
}

static void pools_that_sleep()
{
    const auto context = cudamem::context::open_primary(0);
    const auto stream = cudamem::stream::create(*context);
    const auto pool = cudamem::pool::create(*cudamem::resource::device(*context));
    const auto buffer = cudamem::buffer::allocate(*pool, 1000, *stream);
    cudamem_sleep_options options{};
    options.contents = CUDAMEM_CONTENTS_DISCARD;
    const auto slept = pool->sleep(options);
    if (!slept) {
        CHECK(status_of(slept) == CUDAMEM_ERROR_UNSUPPORTED);
        std::printf("skipped: pools that sleep: %s\n", slept.error().what());
        return;
    }
    CHECK(slept->saved == 0 && slept->released > 0 && *pool->is_asleep());
    const auto refused = buffer->write(0, "abc", 3);
    CHECK(!refused && refused.error().is_asleep());
    CHECK(pool->wake() && !*pool->is_asleep() && buffer->write(0, "abc", 3));
    CHECK(status_of(pool->wake()) == CUDAMEM_ERROR_INVALID_ARGUMENT);
}

static void containers()
{
    const auto context = cudamem::context::open_primary(0);
    const auto stream = cudamem::stream::create(*context);
    const auto pool = cudamem::pool::create(*cudamem::resource::pinned(*context));
    {
        const auto memory = cudamem::memory_resource::create(*pool, *stream);
        std::pmr::vector<std::pmr::string> words(100, "a string that is too long for its small buffer", memory->get());
        const auto allocator = cudamem::allocator<int>::create(*pool, *stream);
        const std::list<int, cudamem::allocator<int>> numbers(100, 3, *allocator);
        CHECK(words[99].size() == 46 && numbers.back() == 3 && pool->statistics()->blocks.current >= 200);
    }
    CHECK(pool->statistics()->blocks.current == 0);
    const auto device = cudamem::resource::device(*context);
    CHECK(status_of(cudamem::memory_resource::create(*device, *stream)) == CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(status_of(cudamem::allocator<int>::create(*device, *stream)) == CUDAMEM_ERROR_INVALID_ARGUMENT);
}

void ask_for_too_much()
{
    const auto context = cudamem::context::open_primary(0);
    const auto stream = cudamem::stream::create(*context);
    const auto pinned = cudamem::resource::pinned(*context);
    const auto memory = cudamem::memory_resource::create(*pinned, *stream);
    static_cast<void>((*memory)->allocate(SIZE_MAX / 2));
}

static void views()
{
    const auto context = cudamem::context::open_primary(0);
    const auto stream = cudamem::stream::create(*context);
    const auto device = cudamem::resource::device(*context);
    const auto buffer = cudamem::buffer::allocate(*device, 16, *stream);
    const auto type = cudamem::data_type_of<float>();
    const auto view = cudamem::view::of(*buffer, {type, {-1, 2}});
    std::array<float, 4> numbers = {1, 2, 3, 4};
    CHECK(view && view->write(numbers) && view->info()->elements == 4);
    const auto column = view->slice({cudamem::index(), 1});
    std::array<float, 2> read{};
    CHECK(column && column->read(read) && read[1] == 4);
    CHECK(status_of(view->reshape({3})) == CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(status_of(cudamem::view::of(*buffer, {type, {2, 3}})) == CUDAMEM_ERROR_OUT_OF_RANGE);
    CHECK(status_of(cudamem::find_data_type("float31")) == CUDAMEM_ERROR_INVALID_ARGUMENT);
    const auto tensor = cudamem::export_dlpack(*view);
    const auto again = cudamem::import_dlpack(*tensor, *stream);
    CHECK(again && again->read(numbers) && numbers[3] == 4);
    CHECK(status_of(cudamem::arrow_schema::import(nullptr)) == CUDAMEM_ERROR_INVALID_ARGUMENT);
}

static void typed()
{
    const auto context = cudamem::context::open_primary(0);
    const auto stream = cudamem::stream::create(*context);
    const auto device = cudamem::resource::device(*context);
    auto numbers = cudamem::typed_buffer<float>::from_values(*device, {1, 2, 3}, *stream);
    CHECK(numbers && numbers->size() == 3 && numbers->data() != nullptr);
    std::array<float, 2> read{};
    CHECK(numbers->write(1, std::vector<float>{5, 6}) && numbers->read(1, read) && read[1] == 6);
    CHECK(numbers->resize(*device, 5, *stream) && numbers->fill(3, 2, 7) && numbers->to_vector()->back() == 7);

    // Failures are values, and change nothing.
    CHECK(status_of(numbers->write(4, read)) == CUDAMEM_ERROR_OUT_OF_RANGE);
    CHECK(status_of(numbers->resize(*device, SIZE_MAX / 2, *stream)) == CUDAMEM_ERROR_OUT_OF_MEMORY);
    CHECK(status_of(numbers->slice(6)) == CUDAMEM_ERROR_OUT_OF_RANGE && numbers->size() == 5);
    CHECK(status_of(cudamem::typed_buffer<float>::zeroed(*device, SIZE_MAX / 8, *stream)) == CUDAMEM_ERROR_OUT_OF_MEMORY);
    auto bytes = cudamem::buffer::allocate(*device, 10, *stream);
    CHECK(status_of(cudamem::typed_buffer<float>::of(*std::move(bytes))) == CUDAMEM_ERROR_MISALIGNED);
    CHECK(bytes->size().value() == 10 && status_of(cudamem::typed_buffer<float>().host_span()) == CUDAMEM_ERROR_INVALID_HANDLE);
    const auto taken = cudamem::typed_buffer<std::uint16_t>::of(*std::move(bytes));
    CHECK(taken && taken->size() == 5 && !*bytes);
}

void take_no_value()
{
    std::printf("went on with %zu\n", cudamem::buffer().size().value());
}

void without_exceptions()
{
    objects();
    pools_that_sleep();
    views();
    typed();
    containers();
}
