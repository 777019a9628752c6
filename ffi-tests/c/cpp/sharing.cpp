// include/cudamem/sharing.hpp: exports and messages through a channel, here within one process.
#include "test.hpp"

#include <string>
#include <thread>
#include <vector>

template <typename Work> static cudamem_status status_of(Work work)
{
    try {
        work();
    } catch (const cudamem::error &error) {
        return error.status();
    }
    return CUDAMEM_SUCCESS;
}

static void messages(const cudamem::channel &here, const cudamem::channel &there)
{
    here.send_bytes(std::string("hello"));
    const std::vector<unsigned char> seen = there.receive_bytes();
    CHECK(std::string(seen.begin(), seen.end()) == "hello");
    there.set_timeout(std::chrono::milliseconds(20));
    CHECK(status_of([&] { there.receive(); }) == CUDAMEM_ERROR_TIMED_OUT);
    CHECK(status_of([&] { there.set_timeout(std::chrono::seconds(0)); }) == CUDAMEM_ERROR_INVALID_ARGUMENT);
    there.set_timeout(cudamem::no_limit);
    std::thread waiting([&] { CHECK(status_of([&] { there.receive_bytes(); }) == CUDAMEM_ERROR_CLOSED); });
    const cudamem::channel same = cudamem::channel::open_socket(here.socket());
    same.shut_down();
    waiting.join();
}

void sharing()
{
    const cudamem::context context(0);
    const cudamem::stream stream(context);
    const auto device = cudamem::resource::device(context);
    const cudamem::buffer buffer(device, 1000, stream);
    buffer.write(0, std::vector<int>(250, 7));

    auto [here, there] = cudamem::channel::create_pair();
    here.send(cudamem::exported::of(buffer.slice(100, 200)));
    const cudamem::exported received = there.receive();
    const cudamem_export_info info = received.info();
    CHECK(info.kind == CUDAMEM_EXPORT_DEVICE_MEMORY && info.allocation_size >= 1000 && info.length == 200);
    const cudamem::buffer part = received.import_buffer(device, stream);
    CHECK(part.device_pointer() == buffer.device_pointer() + 100);

    // The program sends the bytes by itself.
    const auto bytes = received.bytes();
    CHECK(received.files().empty());
    const auto again = cudamem::exported::create(bytes.data(), bytes.size());
    CHECK(again.import_buffer(device, stream).size() == 200);
    CHECK(status_of([&] { cudamem::exported::create(bytes.data(), bytes.size() - 1); }) == CUDAMEM_ERROR_DESCRIPTOR);
    CHECK(status_of([&] { received.import_event(context); }) == CUDAMEM_ERROR_DESCRIPTOR);
    CHECK(status_of([&] { cudamem::exported::of(device); }) == CUDAMEM_ERROR_INVALID_ARGUMENT);

    cudamem_driver_pool_options options{};
    options.flags = CUDAMEM_DRIVER_POOL_SHAREABLE;
    if (status_of([&] { cudamem::resource::driver_pool(context, options); }) == CUDAMEM_SUCCESS) {
        const auto pool = cudamem::resource::driver_pool(context, options);
        const cudamem::buffer pooled(pool, 100, stream);
        here.send(cudamem::exported::of(pool));
        here.send(cudamem::exported::of(pooled));
        const auto twin = there.receive().import_pool(context);
        CHECK(there.receive().import_buffer(twin, stream).device_pointer() == pooled.device_pointer());
    }
    const auto mapped_resource = cudamem::resource::mapped(context);
    const cudamem::buffer mapped(mapped_resource, 64, stream);
    if (status_of([&] { cudamem::exported::of(mapped, mapped_resource); }) == CUDAMEM_SUCCESS) {
        const auto twin = cudamem::exported::of(mapped, mapped_resource).import_buffer(mapped_resource, stream);
        twin.store_word<std::uint32_t>(4, 77);
        CHECK(mapped.load_word<std::uint32_t>(4) == 77);
    }
    CHECK(status_of([&] { cudamem::listener("/nowhere/at/all"); }) == CUDAMEM_ERROR_SYSTEM);
    CHECK(status_of([&] { cudamem::channel::connect("/nowhere/at/all"); }) == CUDAMEM_ERROR_SYSTEM);
    messages(here, there);
}
