// Signals, frames, adaptors, other sources of memory, graphs and copies in stream order, in C++.
#include "test.hpp"

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

/// An exception between wait and write destroys the signals. The stream goes on, and the next wait for it reports this.
static void released_by_an_exception(const cudamem::signals &memory, const cudamem::stream &stream)
{
    try {
        const cudamem::flag<std::uint32_t> ready(memory, CUDAMEM_PLACE_FOR_DEVICE);
        ready.set_name("ready");
        ready.wait_on(stream, CUDAMEM_COMPARE_EQUAL, 1);
        const cudamem::signal_counter<std::uint64_t> pieces(memory, CUDAMEM_COUNTED_BY_CPU);
        pieces.set_name("pieces");
        pieces.wait_on(stream, 3);
        const cudamem::ring_to_device<std::uint64_t> requests(memory, 4);
        requests.set_name("requests");
        requests.record_use(stream);
        throw std::runtime_error("the file is too short");
    } catch (const std::runtime_error &) {
    }
    std::string message;
    try {
        stream.synchronize();
    } catch (const cudamem::error &error) {
        CHECK(error.status() == CUDAMEM_ERROR_CLOSED);
        message = error.what();
    }
    CHECK(message.find(" was dropped while stream") != std::string::npos);
    stream.synchronize();
}

static void signals(const cudamem::context &context, const cudamem::stream &stream)
{
    context.load_kernels();
    context.reserve_streams(4);
    context.set_postponed_limit(1 << 20);
    const cudamem::signals memory(context);
    const auto patience = cudamem::within(std::chrono::seconds(10));
    const cudamem::flag<std::uint32_t> question(memory, CUDAMEM_PLACE_FOR_DEVICE);
    const cudamem::flag<std::uint64_t> answer(memory, CUDAMEM_PLACE_FOR_CPU);
    question.wait_on(stream, CUDAMEM_COMPARE_EQUAL, 5);
    answer.store_on(stream, 6);
    CHECK(answer.load() == 0 && !stream.is_done());
    CHECK(question.place() == CUDAMEM_PLACE_PINNED || question.place() == CUDAMEM_PLACE_MAPPED);
    question.store(5);
    CHECK(answer.wait(CUDAMEM_COMPARE_AT_LEAST, 6, patience) == 6 && question.device_pointer() != 0);
    cudamem_status in_vain = CUDAMEM_SUCCESS;
    try {
        answer.wait(CUDAMEM_COMPARE_EQUAL, 7, cudamem::within(std::chrono::milliseconds(1)));
    } catch (const cudamem::error &error) {
        in_vain = error.status();
    }
    CHECK(in_vain == CUDAMEM_ERROR_TIMED_OUT);
    // A time limit of 0 or less, as after a passed deadline, must not become an unlimited wait.
    for (const int seconds : {0, -1}) {
        in_vain = CUDAMEM_SUCCESS;
        try {
            answer.wait(CUDAMEM_COMPARE_EQUAL, 7, cudamem::within(std::chrono::seconds(seconds)));
        } catch (const cudamem::error &error) {
            in_vain = error.status();
        }
        CHECK(in_vain == CUDAMEM_ERROR_TIMED_OUT);
    }
    CHECK(cudamem::forever().timeout == 0);
    const cudamem::signal_counter<std::uint32_t> ready(memory, CUDAMEM_COUNTED_BY_CPU);
    const cudamem::signal_counter<std::uint32_t> done(memory, CUDAMEM_COUNTED_BY_DEVICE);
    ready.wait_on(stream, 2);
    done.store_on(stream, 3);
    CHECK(ready.add(2) == 2 && done.wait(3, patience) == 3 && done.value() == 3);
    released_by_an_exception(memory, stream);

    struct sample {
        float values[3];
    };
    const cudamem::ring_to_device<sample> to(memory, 4);
    const cudamem::ring_from_device<sample> from(memory, 4);
    std::array<sample, 5> samples{};
    CHECK(to.push(samples.data(), 5) == 4 && to.available() == 0 && to.descriptor().item_size == 12 && to.capacity() == 4);
    CHECK(from.pop(samples.data(), 5) == 0 && !from.is_closed() && from.available() == 0);
    to.close_end();
}

static void frames(const cudamem::context &context, const cudamem::stream &stream)
{
    const cudamem::frame_ring ring(cudamem::resource::pinned(context), cudamem::signals(context), 2, 100);
    const cudamem::buffer arrived(cudamem::resource::device(context), 100, stream);
    for (unsigned char round = 1; round <= 5; round++) {
        cudamem::frame frame = ring.next(cudamem::within(std::chrono::seconds(10)));
        CHECK(frame.number() == round && frame.device_pointer() != 0);
        frame.copy_to(arrived, 0, 0, 100);
        const std::vector<unsigned char> bytes(60, round);
        frame.store(0, bytes.data(), bytes.size());
        frame.flush(0, bytes.size());
        std::memset(static_cast<unsigned char *>(frame.host_pointer()) + 60, round, 40);
        CHECK(!stream.is_done());
        CHECK(frame.publish() == round && !frame);
        std::vector<unsigned char> seen(100);
        arrived.read(0, seen);
        CHECK(seen == std::vector<unsigned char>(100, round));
    }
    cudamem_status abandoned = CUDAMEM_SUCCESS;
    {
        const cudamem::frame frame = ring.next();
        frame.wait_on(stream);
        frame.record_use(stream);
        CHECK(ring.try_next());
    }
    try {
        stream.synchronize();
    } catch (const cudamem::error &error) {
        abandoned = error.status();
    }
    CHECK(abandoned == CUDAMEM_ERROR_CLOSED);
    CHECK(ring.statistics().published == 5 && ring.statistics().abandoned == 2);
}

static void adaptors(const cudamem::context &context, const cudamem::stream &stream)
{
    const auto device = cudamem::resource::device(context);
    const auto limit = cudamem::limit_adaptor::create(device, 10000);
    const auto counting = cudamem::counting_adaptor::create(limit);
    const auto tracking = cudamem::tracking_adaptor::create(counting);
    {
        const cudamem::buffer buffer(tracking, 5000, stream);
        CHECK(limit.used() >= 5000 && counting.counts().blocks == 1 && tracking.live_blocks() == 1);
        CHECK(tracking.report().find("1 live block") != std::string::npos);
        const auto failing = cudamem::failing_adaptor::create(device, {{CUDAMEM_FAIL_EVERY_NTH, 0, 1, 0}});
        const auto fallback = cudamem::adaptor::fallback(failing, device);
        const cudamem::buffer second(fallback, 10, stream);
        CHECK(cudamem::adaptor::fallback_blocks(fallback) == 1);
        CHECK(failing.counts().first == 1 && failing.counts().second == 1);
        failing.set_rules({});
        const auto aligned = cudamem::adaptor::aligned(device, 1 << 16);
        CHECK(cudamem::buffer(aligned, 1, stream).device_pointer() % (1 << 16) == 0);
    }
    CHECK(limit.used() == 0);
    const auto guarded = cudamem::guarded_adaptor::create(cudamem::resource::pinned(context));
    const cudamem::buffer watched(guarded, 100, stream);
    CHECK(guarded.findings() == 0);
    const auto recording = cudamem::adaptor::recording(device, 10);
    cudamem::buffer(recording, 10, stream).close();
    CHECK(cudamem::adaptor::trace(recording).find("allocate") != std::string::npos);
    const auto ring = cudamem::ring_pool::create(device, 4096);
    const cudamem::buffer staged(ring, 1000, stream);
    CHECK(ring.statistics().blocks.current == 1);
}

static void sources(const cudamem::context &context, const cudamem::stream &stream)
{
    const auto memory = cudamem::virtual_memory::create(context);
    const auto unit = memory.granularity();
    const auto growing = cudamem::growable_buffer::create(memory, unit, stream);
    CHECK(!growing.grow(100) && growing.capacity() == unit && growing.size() == 100);
    growing.write(0, std::string("grown"));
    CHECK(growing.grow(2 * unit));
    std::array<char, 5> seen{};
    growing.read(0, seen);
    CHECK(std::string(seen.data(), 5) == "grown");
    growing.shrink(1);
    const auto chunk = cudamem::physical::create(context, 1);
    const auto left = memory.map({&chunk}, stream), right = memory.map({&chunk, &chunk}, stream);
    CHECK(left.size() == chunk.size() && right.size() == 2 * chunk.size());

    std::vector<std::uint32_t> own(4096, 1);
    {
        const auto registered = cudamem::register_memory(own.data(), own.size() * 4, stream);
        registered.fill(0, 8, std::uint32_t{7});
        registered.synchronize();
    }
    CHECK(own[0] == 7 && own[1] == 7 && own[2] == 1);
}

template <typename Call> static bool is_refused(Call call, cudamem_status status = CUDAMEM_ERROR_INVALID_ARGUMENT)
{
    try {
        call();
        return false;
    } catch (const cudamem::error &error) {
        return error.status() == status;
    }
}

void memory_by_address()
{
    namespace by_address = cudamem::by_address;
    by_address::set_options();
    const std::uint64_t address = by_address::allocate(1000, 0, nullptr);
    CHECK(address % 256 == 0);
    CHECK(is_refused([&] { by_address::free(address, 999, 0, nullptr); }));
    by_address::record_use(address, nullptr);
    CHECK(is_refused([&] { by_address::record_use(address + 256, nullptr); }));
    by_address::free(address, 1000, 0, nullptr);
    CHECK(is_refused([&] { by_address::free(address, 1000, 0, nullptr); }));
    CHECK(by_address::pool_of(0) && is_refused([] { by_address::pool_of(1000); }));
    CHECK(is_refused([] { by_address::set_options(); }));

    // Of one resource.
    const cudamem::context context(0);
    const cudamem::resource pinned = cudamem::resource::pinned(context), other = pinned.share();
    const std::uint32_t both = CUDAMEM_ACCESS_DEVICE | CUDAMEM_ACCESS_HOST;
    const std::uint64_t words = pinned.allocate(100, 1 << 14, both, nullptr);
    CHECK(words % (1 << 14) == 0);
    std::memset(reinterpret_cast<void *>(static_cast<std::uintptr_t>(words)), 7, 100);
    CHECK(is_refused([&] { other.free(words, 100, nullptr); }) && is_refused([&] { pinned.free(words, 99, nullptr); }));
    pinned.free(words, 100, nullptr);
    CHECK(is_refused([&] { pinned.free(words, 100, nullptr); }));
    CHECK(is_refused([&] { cudamem::resource::device(context).allocate(1, 1, both, nullptr); }));

    // Large memory whose progress is canceled.
    const auto cancel = [](std::size_t, std::size_t total, void *user) {
        *static_cast<std::size_t *>(user) = total;
        return 1;
    };
    std::size_t total = 0;
    const auto large = cudamem::resource::pinned_with_progress(context, cancel, &total);
    const std::size_t size = std::size_t{256} << 20;
    CHECK(is_refused([&] { large.allocate(size, 1, both, nullptr); }, CUDAMEM_ERROR_CANCELED) && total >= size);
}

static void graphs_and_copies(const cudamem::context &context, const cudamem::stream &stream)
{
    const auto device = cudamem::resource::device(context);
    const cudamem::buffer from(device, 4, stream), to(device, 4, stream);
    from.write(0, std::array<char, 4>{'a', 'b', 'c', 'd'});
    to.fill(0, 4, std::uint32_t{0});
    const auto graph = cudamem::graph::capture(stream, [&] { to.copy(0, from, 0, 4); });
    CHECK(graph.node_count() == 1);
    const auto memory = cudamem::graph::memory(context);
    CHECK(graph.raw() != nullptr && memory.usage().first <= memory.usage().second);
    memory.trim();
    const auto executable = graph.instantiate();
    executable.launch(stream);
    std::array<char, 4> seen{};
    to.read(0, seen);
    CHECK(seen[0] == 'a' && seen[3] == 'd');
    bool thrown = false;
    try {
        cudamem::graph::capture(stream, [] { throw std::runtime_error("given up"); });
    } catch (const std::runtime_error &error) {
        thrown = std::string(error.what()) == "given up";
    }
    CHECK(thrown);

    cudamem_engine_options options{};
    const auto engine = cudamem::engine::create(context, options);
    engine.write_on(stream, to, 1, "xy", 2);
    const auto read = engine.read_on(stream, to, 0, seen.data(), 4);
    read.wait();
    CHECK(read.is_done() && std::string(seen.data(), 4) == "axyd");
    const std::array<cudamem_scatter, 2> writes{{{0, "1", 1}, {3, "4", 1}}};
    engine.scatter(to, cudamem::span<const cudamem_scatter>(writes.data(), writes.size()));
    to.read(0, seen);
    CHECK(std::string(seen.data(), 4) == "1xy4");
    engine.set_profile(engine.profile());

    // Options for a single copy.
    cudamem_copy_options by_driver{};
    by_driver.method = CUDAMEM_METHOD_DRIVER;
    by_driver.host = CUDAMEM_HOST_PAGEABLE;
    engine.write(to, 0, "wxyz", 4, by_driver);
    engine.read(to, 0, seen.data(), 4, by_driver);
    CHECK(std::string(seen.data(), 4) == "wxyz");
    engine.write_complete(to, 0, "done", 4);
    std::FILE *file = std::tmpfile();
    CHECK(file != nullptr && std::fputs("in a file", file) >= 0 && std::fflush(file) == 0);
    engine.read_file(fileno(file), 5, 4, cudamem::resource::device(context), stream).read(0, seen);
    CHECK(std::string(seen.data(), 4) == "file" && std::fclose(file) == 0);
    const cudamem_piece piece = {0, 2, 2};
    from.copy_pieces(to, cudamem::span<const cudamem_piece>(&piece, 1), stream);
    from.read(0, seen);
    CHECK(std::string(seen.data(), 4) == "necd");
    cudamem_pieces_options by_kernel{};
    by_kernel.way = CUDAMEM_WAY_KERNEL;
    const cudamem_piece last = {3, 3, 1};
    from.copy_pieces(to, cudamem::span<const cudamem_piece>(&last, 1), stream, by_kernel);
    from.read(0, seen);
    CHECK(std::string(seen.data(), 4) == "nece");
    engine.trim();
    CHECK(engine.staging() == 0);
}

static void managed(const cudamem::context &context, const cudamem::stream &stream)
{
    if (cudamem::device_supports(0, CUDAMEM_FEATURE_CONCURRENT_MANAGED) != CUDAMEM_SUPPORT_YES) {
        std::puts("skipped: concurrent managed access is missing");
        return;
    }
    const cudamem::buffer buffer(cudamem::resource::managed(context), 1 << 21, stream);
    buffer.advise(CUDAMEM_ADVICE_READ_MOSTLY);
    CHECK(buffer.is_read_mostly());
    buffer.advise(CUDAMEM_ADVICE_NOT_READ_MOSTLY);
    buffer.prefetch(CUDAMEM_LOCATION_DEVICE);
    buffer.synchronize();
    const auto last = buffer.prefetched();
    CHECK(!buffer.is_read_mostly() && last.known && last.location == CUDAMEM_LOCATION_DEVICE && last.number == 0);
    try {
        buffer.discard();
    } catch (const cudamem::error &error) {
        CHECK(error.status() == CUDAMEM_ERROR_MISSING_SYMBOL || error.status() == CUDAMEM_ERROR_UNSUPPORTED);
    }
}

void other_sources()
{
    const cudamem::context context(0);
    const cudamem::stream stream(context);
    signals(context, stream);
    frames(context, stream);
    adaptors(context, stream);
    sources(context, stream);
    graphs_and_copies(context, stream);
    managed(context, stream);
}
