// include/cudamem.hpp with exceptions: destructors, values, containers.
#include "test.hpp"

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

static_assert(std::is_same_v<cudamem::result<int>, int>);
static_assert(!std::is_copy_constructible_v<cudamem::buffer> && std::is_nothrow_move_constructible_v<cudamem::buffer>);

template <typename Call> static cudamem_status status_of(Call call)
{
    try {
        call();
    } catch (const cudamem::error &error) {
        CHECK(std::strlen(error.what()) > 20);
        return error.status();
    }
    return CUDAMEM_SUCCESS;
}

template <typename Call> static bool has_no_memory(Call call)
{
    try {
        call();
    } catch (const std::bad_alloc &error) {
        CHECK(std::strlen(error.what()) > 10);
        return true;
    }
    return false;
}

static void objects()
{
    const cudamem::context context(0);
    const cudamem::stream stream(context);
    CHECK(context.device() == 0 && context.raw() != nullptr);

    // Moves. The handle is destroyed once.
    cudamem::pool pool(cudamem::resource::device(context));
    cudamem::buffer buffer(pool, 1000, stream);
    const cudamem_buffer handle = buffer.get();
    cudamem::buffer moved(std::move(buffer));
    CHECK(!buffer && moved && moved.get().id == handle.id && moved.size() == 1000);
    buffer = std::move(moved);
    CHECK(buffer && pool.statistics().blocks.current == 1);
    cudamem::buffer part = buffer.slice(100, 4);
    buffer = cudamem::buffer();
    CHECK(pool.statistics().blocks.current == 1);
    part.fill(0, 4, std::uint32_t{0x01020304});
    std::uint32_t word = 0;
    part.read(0, &word, sizeof word);
    CHECK(word == 0x01020304);
    part.close();
    part.close();
    CHECK(!part && pool.statistics().blocks.current == 0 && pool.snapshot().front() == '{');

    // A free in order of another stream.
    const cudamem::stream other(context);
    cudamem::buffer(pool, 100, stream).close(other);
    CHECK(pool.statistics().blocks.current == 0);

    // Failures throw, also in constructors, and leak nothing.
    CHECK(status_of([&] { cudamem::buffer(pool, 1000, stream).write(999, &word, 4); }) == CUDAMEM_ERROR_OUT_OF_RANGE);
    CHECK(status_of([&] { part.size(); }) == CUDAMEM_ERROR_INVALID_HANDLE);
    CHECK(status_of([&] { cudamem::context none(-1); }) == CUDAMEM_ERROR_DRIVER);
    CHECK(pool.statistics().blocks.current == 0);

    cudamem::event event(context);
    event.record(stream);
    stream.wait(event);
    event.synchronize();
    CHECK(event.is_done());
}

static void pools_that_sleep()
{
    const cudamem::context context(0);
    const cudamem::stream stream(context);
    const cudamem::pool pool(cudamem::resource::device(context));
    const cudamem::pool host(cudamem::resource::pinned(context));
    const cudamem::buffer buffer(pool, 1000, stream);
    const std::vector<int> numbers = {1, 2, 3};
    buffer.write(8, numbers);
    const std::uint64_t address = buffer.device_pointer();
    cudamem_sleep_options options{};
    options.host = host.get();
    cudamem_slept slept{};
    try {
        slept = pool.sleep(options);
    } catch (const cudamem::error &error) {
        CHECK(error.status() == CUDAMEM_ERROR_UNSUPPORTED);
        std::printf("skipped: pools that sleep: %s\n", error.what());
        return;
    }
    CHECK(pool.is_asleep() && slept.saved >= 1000 && slept.released >= slept.saved && host.statistics().blocks.current > 0);
    bool refused = false;
    try {
        buffer.write(0, numbers);
    } catch (const cudamem::error &error) {
        refused = error.is_asleep();
    }
    CHECK(refused && status_of([&] { pool.sleep(); }) == CUDAMEM_ERROR_INVALID_ARGUMENT);
    pool.wake();
    std::array<int, 3> read{};
    buffer.read(8, read);
    CHECK(!pool.is_asleep() && read[2] == 3 && buffer.device_pointer() == address);
    CHECK(status_of([&] { pool.wake(); }) == CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(status_of([&] { host.sleep(); }) == CUDAMEM_ERROR_UNSUPPORTED);
}

// A destructor cannot throw, so its errors go to the drop error callback.
static void ends_that_are_told()
{
    const cudamem::context context(0);
    const cudamem::stream stream(context);
    const auto guarded = cudamem::guarded_adaptor::create(cudamem::resource::pinned(context));
    int told = 0;
    cudamem::set_drop_error_callback(
        [](cudamem_status status, const char *, void *user) {
            CHECK(status == CUDAMEM_ERROR_DAMAGED);
            ++*static_cast<int *>(user);
        },
        &told);
    const auto damaged = [&] {
        cudamem::buffer buffer(guarded, 100, stream);
        stream.synchronize();
        static_cast<unsigned char *>(buffer.host_pointer())[100] = 1;
        return buffer;
    };
    cudamem_buffer handle{};
    std::uint64_t address = 0;
    {
        const cudamem::buffer ends = damaged();
        handle = ends.get();
    }
    CHECK(told == 1 && cudamem_buffer_get_device_pointer(handle, &address) == CUDAMEM_ERROR_INVALID_HANDLE);
    cudamem::buffer other = damaged();
    handle = other.get();
    other = cudamem::buffer();
    CHECK(told == 2 && cudamem_buffer_get_device_pointer(handle, &address) == CUDAMEM_ERROR_INVALID_HANDLE);
    // A failed close throws and keeps the buffer. The damage is reported once, so the second close succeeds.
    other = damaged();
    CHECK(status_of([&] { other.close(); }) == CUDAMEM_ERROR_DAMAGED && other.size() == 100 && told == 2);
    other.close();
    CHECK(!other && told == 2);
    cudamem::set_drop_error_callback(nullptr);
}

static void library()
{
    CHECK(cudamem::version_number() == CUDAMEM_VERSION_NUMBER && std::strlen(cudamem::version()) >= 5);
    CHECK(cudamem::load() >= 11000 && cudamem::describe().find("\"devices\"") != std::string::npos);
    cudamem_load_options options{};
    options.cuda = "/there/is/none.so";
    CHECK(status_of([&] { cudamem::load(options); }) == CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(cudamem::device_count() >= 1 && cudamem::device_can_access_peer(0, 0));
    CHECK(cudamem::device_rate(-1, 0) > 0);
    if (cudamem::device_count() > 1 && cudamem::device_link(0, 1).access != 0) {
        const cudamem::context near(0), far(1);
        const cudamem::stream near_stream(near), far_stream(far);
        const cudamem::buffer source(cudamem::resource::device(far), 4, far_stream);
        const cudamem::buffer copy(cudamem::resource::device(near), 4, near_stream);
        CHECK(source.route_to(copy) == CUDAMEM_ROUTE_DIRECT && copy.route_to(copy) == CUDAMEM_ROUTE_SAME_DEVICE);
        far.deny_access(near);
        CHECK(source.route_to(copy) == CUDAMEM_ROUTE_THROUGH_HOST);
        far.allow_access(near);
        CHECK(source.route_to(copy) == CUDAMEM_ROUTE_DIRECT);
        far.deny_access(near);
    }
    const auto [free, total] = cudamem::context(0).memory();
    CHECK(free <= total && total != 0 && cudamem::device_info(0).total_memory != 0);
    CHECK(!std::string(cudamem::device_info(0).name).empty());
    CHECK(cudamem::device_supports(0, CUDAMEM_FEATURE_MANAGED) <= CUDAMEM_SUPPORT_UNKNOWN);

    // A host function's captures live until it has run, and no longer.
    const cudamem::context context(0);
    const cudamem::stream stream(context);
    const auto number = std::make_shared<int>(1);
    stream.launch_host_function([number] { *number = 2; });
    stream.synchronize();
    CHECK(*number == 2);
    CHECK(status_of([&] { cudamem::stream().launch_host_function([number] { *number = 3; }); }) ==
          CUDAMEM_ERROR_INVALID_HANDLE);
    context.synchronize();
    CHECK(*number == 2 && number.use_count() == 1);

    stream.synchronize_for(cudamem::no_limit);
    const cudamem::event reached(context);
    reached.synchronize_for(std::chrono::milliseconds(1));
    CHECK(status_of([&] { stream.synchronize_for(std::chrono::seconds(-1)); }) == CUDAMEM_ERROR_INVALID_ARGUMENT);
    cudamem::set_slow_wait_callback([](const char *, double, void *) {});
    cudamem::set_slow_wait_limit(std::chrono::minutes(1));
    cudamem::set_slow_wait_callback(nullptr);
    cudamem::set_slow_wait_limit(cudamem::no_limit);

    int failures = 0;
    cudamem::set_log([](cudamem_status, const char *, void *user) { ++*static_cast<int *>(user); }, &failures);
    CHECK(status_of([&] { cudamem::device_info(-1); }) != CUDAMEM_SUCCESS && failures == 1);
    cudamem::set_log(nullptr);

    if (cudamem::device_supports(0, CUDAMEM_FEATURE_DEVICE_POOLS) == CUDAMEM_SUPPORT_YES) {
        const cudamem::resource pool = cudamem::resource::driver_pool(context);
        const cudamem::buffer buffer(pool, 1000, stream);
        CHECK(pool.statistics().active.current >= 1000);
        pool.trim();
    }
    CHECK(status_of([&] { cudamem::resource::device(context).statistics(); }) == CUDAMEM_ERROR_INVALID_ARGUMENT);
}

static void errors()
{
    const cudamem::error own(CUDAMEM_ERROR_DRIVER, 2, "a call");
    CHECK(to_string(own) == "CUDAMEM_ERROR_DRIVER (CUresult 2): a call");
    std::ostringstream text;
    text << cudamem::error(CUDAMEM_ERROR_LOAD, 0, "no library");
    CHECK(text.str() == "CUDAMEM_ERROR_LOAD: no library");
#if defined(__cpp_lib_format)
    CHECK(std::format("<{:>50}>", own) == "<         CUDAMEM_ERROR_DRIVER (CUresult 2): a call>");
#endif
}

static void values()
{
    const cudamem::context context(0);
    const cudamem::stream stream(context);
    const cudamem::buffer buffer(cudamem::resource::pinned(context), 64, stream);
    const std::vector<float> written = {1, 2, 3, 4};
    buffer.write(16, written);
    std::array<float, 4> read{};
    buffer.read(16, read);
    CHECK(read[0] == 1 && read[3] == 4);
    std::uint8_t bytes[2] = {7, 8};
    buffer.write(0, bytes);
    const cudamem::span<float> seen = buffer.slice(16, 16).host_span<float>();
    CHECK(seen.size() == 4 && seen[1] == 2 && !seen.empty() && *seen.begin() == 1 && seen.end() - seen.begin() == 4);
    buffer.read(16, cudamem::span<float>(read.data(), 2));
    CHECK(status_of([&] { buffer.slice(1, 4).host_span<float>(); }) == CUDAMEM_ERROR_MISALIGNED);
    CHECK(status_of([&] { buffer.slice(0, 6).host_span<float>(); }) == CUDAMEM_ERROR_MISALIGNED);
    const cudamem::buffer device(cudamem::resource::device(context), 64, stream);
    CHECK(status_of([&] { device.host_span<float>(); }) == CUDAMEM_ERROR_INVALID_ARGUMENT);
    device.copy(0, buffer);
    CHECK(device.equals(buffer) && (device.access() & CUDAMEM_ACCESS_HOST) == 0);

    cudamem::resource source;
    try {
        source = cudamem::resource::mapped(context);
    } catch (const cudamem::error &error) {
        std::printf("skipped: mapped memory: %s\n", error.what());
        return;
    }
    const cudamem::buffer memory(source, 4096, stream);
    const cudamem::engine engine(context);
    memory.store_word(0, std::uint64_t{9});
    memory.store_word(8, std::uint32_t{10});
    CHECK(memory.load_word<std::uint64_t>(0) == 9 && memory.load_word<std::uint32_t>(8) == 10);
    memory.store(16, written);
    engine.read(memory.slice(16), 0, read);
    CHECK(read[2] == 3);
    engine.write(buffer, 0, std::vector<int>{5, 6});
    int two[2];
    engine.read(buffer, 0, two);
    CHECK(two[0] == 5 && two[1] == 6);
    memory.write(0, two, sizeof two);
    memory.invalidate();
    const cudamem::span<int> words = memory.slice(0, memory.atom() < 64 ? 64 : memory.atom()).host_span<int>();
    CHECK(words[1] == 6);
    words[0] = 11;
    memory.flush();
    memory.read(0, two, sizeof two);
    CHECK(two[0] == 11);
}

static void memory_resources()
{
    const cudamem::context context(0);
    const cudamem::stream stream(context);
    cudamem_pool_options options{};
    options.maximum = 4 << 20;
    const cudamem::pool pool(cudamem::resource::pinned(context), options);
    {
        cudamem::memory_resource memory(pool, stream);
        cudamem::memory_resource other(pool, stream);
        CHECK(memory == memory && memory != other);
        std::pmr::vector<std::pmr::string> words(&memory);
        for (int index = 0; index < 1000; index++) {
            words.emplace_back("a string that is too long for its small buffer " + std::to_string(index));
        }
        CHECK(words[999].back() == '9' && pool.statistics().blocks.current >= 1000);

        for (std::size_t alignment = 1; alignment <= 1 << 16; alignment *= 2) {
            void *const pointer = memory.allocate(alignment / 2, alignment);
            CHECK(reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0);
            std::memset(pointer, 1, alignment / 2);
            memory.deallocate(pointer, alignment / 2, alignment);
        }

        // Allocations beyond the pool's maximum change nothing.
        const std::uint64_t blocks = pool.statistics().blocks.current;
        CHECK(has_no_memory([&] { static_cast<void>(memory.allocate(8 << 20)); }));
        CHECK(has_no_memory([&] { words.resize(100 << 20); }));
        CHECK(words.size() == 1000 && pool.statistics().blocks.current == blocks);

        // Threads free memory that other threads allocated.
        std::vector<std::thread> threads;
        std::array<void *, 4 * 50> pointers{};
        const auto both = [&](auto each) {
            for (std::size_t thread = 0; thread < 4; thread++) {
                threads.emplace_back([&, thread, each] {
                    for (std::size_t index = 0; index < 50; index++) {
                        each(pointers[index * 4 + thread], pointers[thread * 50 + index]);
                    }
                });
            }
            for (std::thread &thread : threads) {
                thread.join();
            }
            threads.clear();
        };
        both([&](void *&mine, void *&) { mine = memory.allocate(100, 8); });
        both([&](void *&, void *&mine) { memory.deallocate(mine, 100, 8); });
        CHECK(pool.statistics().blocks.current == blocks);
    }
    CHECK(pool.statistics().blocks.current == 0);
    const cudamem::resource device = cudamem::resource::device(context);
    CHECK(status_of([&] { cudamem::memory_resource none(device, stream); }) == CUDAMEM_ERROR_INVALID_ARGUMENT);
    CHECK(status_of([&] { cudamem::memory_resource::create(device, stream); }) == CUDAMEM_ERROR_INVALID_ARGUMENT);
}

// A memory_resource outlives the handles that it was made of.
static void resource_that_ends_first()
{
    const cudamem::context context(0);
    cudamem::stream stream(context);
    cudamem::pool pool(cudamem::resource::pinned(context));
    cudamem::memory_resource memory(pool, stream);
    std::pmr::vector<int> numbers(1000, 1, &memory);
    pool.close();
    stream.close();
    CHECK(numbers[999] == 1);
    numbers.resize(2000, 2);
    CHECK(numbers[999] == 1 && numbers[1999] == 2);
    const cudamem::stream default_stream = cudamem::stream::borrow(context, nullptr);
    CHECK(status_of([&] { cudamem::memory_resource none(pool, default_stream); }) == CUDAMEM_ERROR_INVALID_HANDLE);
}

struct alignas(128) wide {
    int value;
};

static void allocators()
{
    const cudamem::context context(0);
    const cudamem::stream stream(context);
    const cudamem::pool pool(cudamem::resource::pinned(context));
    {
        const cudamem::allocator<int> numbers(pool, stream);
        std::vector<int, cudamem::allocator<int>> vector(numbers);
        for (int index = 0; index < 1000; index++) {
            vector.push_back(index);
        }
        std::list<int, cudamem::allocator<int>> list(vector.begin(), vector.end(), numbers);
        using pair = std::pair<const int, std::string>;
        const cudamem::allocator<pair> pairs(numbers);
        std::unordered_map<int, std::string, std::hash<int>, std::equal_to<int>, cudamem::allocator<pair>> map(pairs);
        for (int index : list) {
            map.emplace(index, std::to_string(index));
        }
        list.remove_if([](int number) { return number % 2 == 0; });
        CHECK(map.at(999) == "999" && list.size() == 500 && pool.statistics().blocks.current > 1500);
        const std::vector<wide, cudamem::allocator<wide>> wides(3, wide{5}, cudamem::allocator<wide>(numbers));
        CHECK(reinterpret_cast<std::uintptr_t>(wides.data()) % 128 == 0 && wides[2].value == 5);

        // Copies, moved allocators and allocators of other types equal the original.
        cudamem::allocator<int> copy(numbers);
        const cudamem::allocator<int> taken(std::move(copy));
        CHECK(copy == numbers && taken == numbers && cudamem::allocator<wide>(numbers) == numbers);
        const cudamem::allocator<int> other(pool, stream);
        CHECK(other != numbers);

        // Memory moves with its container.
        const int *const first = vector.data();
        std::vector<int, cudamem::allocator<int>> elsewhere(other);
        elsewhere = std::move(vector);
        CHECK(elsewhere.data() == first && elsewhere.get_allocator() == numbers);
        std::vector<int, cudamem::allocator<int>> third(3, 7, other);
        std::swap(elsewhere, third);
        CHECK(third.data() == first && third.get_allocator() == numbers && elsewhere.get_allocator() == other);
        elsewhere = third;
        CHECK(elsewhere.get_allocator() == numbers && elsewhere[999] == 999);

        CHECK(has_no_memory([&] { static_cast<void>(copy.allocate(SIZE_MAX / 2)); }));
        CHECK(status_of([&] {
                  const cudamem::resource device = cudamem::resource::device(context);
                  cudamem::allocator<int> none(device, stream);
              }) == CUDAMEM_ERROR_INVALID_ARGUMENT);
    }
    CHECK(pool.statistics().blocks.current == 0);
}

void give_back_twice()
{
    const cudamem::context context(0);
    const cudamem::stream stream(context);
    const cudamem::pool pool(cudamem::resource::pinned(context));
    cudamem::memory_resource memory(pool, stream);
    void *const pointer = memory.allocate(8);
    memory.deallocate(pointer, 8);
    memory.deallocate(pointer, 8);
}

void give_back_with_another_size()
{
    const cudamem::context context(0);
    const cudamem::stream stream(context);
    const cudamem::pool pool(cudamem::resource::pinned(context));
    cudamem::memory_resource memory(pool, stream);
    memory.deallocate(memory.allocate(8), 9);
}

void with_exceptions()
{
    library();
    objects();
    pools_that_sleep();
    ends_that_are_told();
    errors();
    values();
    memory_resources();
    resource_that_ends_first();
    allocators();
}
