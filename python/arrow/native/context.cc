// Contexts.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#include "context.hpp"

#include <mutex>
#include <string>
#include <vector>

namespace cuda_mem_arrow {

arrow::Status status_of(const cudamem::error &error)
{
    switch (error.status()) {
    case CUDAMEM_ERROR_OUT_OF_MEMORY:
        return arrow::Status::OutOfMemory(error.what());
    case CUDAMEM_ERROR_INVALID_ARGUMENT:
    case CUDAMEM_ERROR_OUT_OF_RANGE:
    case CUDAMEM_ERROR_DESCRIPTOR:
        return arrow::Status::Invalid(error.what());
    case CUDAMEM_ERROR_UNSUPPORTED:
    case CUDAMEM_ERROR_MISSING_SYMBOL:
        return arrow::Status::NotImplemented(error.what());
    default:
        return arrow::Status::IOError(error.what());
    }
}

Context::Context(cudamem::context context, int device)
    : context_(std::move(context)), stream_(cudamem::stream::borrow(context_, nullptr)),
      memory_(cudamem::resource::device(context_)), pinned_(cudamem::resource::pinned(context_)), device_(device)
{
}

arrow::Result<int> Context::device_count()
{
    return result_of([] { return cudamem::detail::get<std::int32_t>(cudamem_device_get_count); });
}

arrow::Result<std::shared_ptr<Context>> Context::primary(int64_t device)
{
    static std::mutex mutex;
    // Never freed: buffers may outlive static objects.
    static auto &contexts = *new std::vector<std::shared_ptr<Context>>;
    ARROW_ASSIGN_OR_RAISE(const int count, device_count());
    if (device < 0 || device >= count) {
        return arrow::Status::Invalid("device number ", device, ", but there are ", count, " devices");
    }
    const std::lock_guard<std::mutex> lock(mutex);
    contexts.resize(count);
    auto &context = contexts[device];
    if (!context) {
        ARROW_ASSIGN_OR_RAISE(context, result_of([&] {
            return std::make_shared<Context>(cudamem::context::open_primary(device), static_cast<int>(device));
        }));
    }
    return context;
}

arrow::Result<std::shared_ptr<Context>> Context::borrow(int device, uintptr_t raw)
{
    return result_of([&] {
        auto context = cudamem::context::borrow(reinterpret_cast<void *>(raw));
        const int actual = context.device();
        if (actual != device) {
            throw cudamem::error(CUDAMEM_ERROR_INVALID_ARGUMENT, 0,
                                 ("the context is one of device " + std::to_string(actual) + ", not of device_number "
                                  + std::to_string(device)).c_str());
        }
        return std::make_shared<Context>(std::move(context), device);
    });
}

arrow::Result<uintptr_t> Context::handle() const
{
    return result_of([&] { return reinterpret_cast<uintptr_t>(context_.raw()); });
}

arrow::Status Context::synchronize() const
{
    return checked([&] { context_.synchronize(); });
}

arrow::Result<cudamem::buffer> Context::borrowed(uintptr_t address, int64_t size) const
{
    return result_of([&] { return cudamem::buffer::borrow(address, size, stream_); });
}

arrow::Result<uintptr_t> Context::device_address(uintptr_t address) const
{
    ARROW_ASSIGN_OR_RAISE(const auto buffer, borrowed(address, 1));
    return result_of([&] {
        if ((buffer.access() & (CUDAMEM_ACCESS_DEVICE | CUDAMEM_ACCESS_MANAGED)) == 0) {
            throw cudamem::error(CUDAMEM_ERROR_DRIVER, 0, "the device cannot read this memory of the host: register it first");
        }
        return static_cast<uintptr_t>(buffer.device_pointer());
    });
}

arrow::Result<std::unique_ptr<DeviceBuffer>> Context::allocate(int64_t size)
{
    if (size < 0) {
        return arrow::Status::Invalid("an allocation of ", size, " bytes: the size must not be negative");
    }
    auto memory = std::make_shared<Memory>();
    memory->context = shared_from_this();
    ARROW_ASSIGN_OR_RAISE(memory->buffer, result_of([&] { return cudamem::buffer::allocate(memory_, size, stream_); }));
    ARROW_ASSIGN_OR_RAISE(const uintptr_t address, result_of([&] { return memory->buffer.device_pointer(); }));
    allocated_ += size;
    memory->counted = size;
    return std::make_unique<DeviceBuffer>(std::move(memory), address, size);
}

arrow::Result<std::unique_ptr<DeviceBuffer>> Context::view(uintptr_t address, int64_t size, std::shared_ptr<void> owner)
{
    if (size < 0) {
        return arrow::Status::Invalid("a view of ", size, " bytes: the size must not be negative");
    }
    auto memory = std::make_shared<Memory>();
    memory->context = shared_from_this();
    memory->owner = std::move(owner);
    if (size > 0) {
        ARROW_ASSIGN_OR_RAISE(memory->buffer, borrowed(address, size));
    }
    return std::make_unique<DeviceBuffer>(std::move(memory), address, size);
}

arrow::Result<std::unique_ptr<DeviceBuffer>> Context::import(const cudamem::exported &exported)
{
    auto memory = std::make_shared<Memory>();
    memory->context = shared_from_this();
    ARROW_ASSIGN_OR_RAISE(memory->buffer, result_of([&] { return exported.import_buffer(memory_, stream_); }));
    ARROW_ASSIGN_OR_RAISE(const uintptr_t address, result_of([&] { return memory->buffer.device_pointer(); }));
    ARROW_ASSIGN_OR_RAISE(const int64_t size, result_of([&] { return memory->buffer.size(); }));
    return std::make_unique<DeviceBuffer>(std::move(memory), address, size);
}

arrow::Result<cudamem::buffer> Context::allocate_pinned(int64_t size) const
{
    if (size < 0) {
        return arrow::Status::Invalid("an allocation of ", size, " bytes: the size must not be negative");
    }
    return result_of([&] { return cudamem::buffer::allocate(pinned_, size, stream_); });
}

} // namespace cuda_mem_arrow
