// Buffers of device memory, and page-locked ones.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#include "context.hpp"

#include <mutex>
#include <set>

namespace cuda_mem_arrow {

DeviceBuffer::DeviceBuffer(std::shared_ptr<Memory> memory, uintptr_t address, int64_t size)
    : arrow::Buffer(address, size, memory->context->memory_manager()), memory_(std::move(memory)), offset_(0)
{
    is_mutable_ = true;
}

DeviceBuffer::DeviceBuffer(std::shared_ptr<DeviceBuffer> parent, int64_t offset, int64_t size)
    : arrow::Buffer(parent, offset, size), memory_(parent->memory_), offset_(parent->offset_ + offset)
{
    is_mutable_ = true;
}

arrow::Result<std::shared_ptr<DeviceBuffer>> DeviceBuffer::of(std::shared_ptr<arrow::Buffer> buffer)
{
    int64_t offset = 0;
    const int64_t size = buffer->size();
    const auto whole = buffer;
    while (auto parent = std::dynamic_pointer_cast<DeviceBuffer>(buffer) ? nullptr : buffer->parent()) {
        offset += static_cast<int64_t>(buffer->address() - parent->address());
        buffer = std::move(parent);
    }
    if (auto device = std::dynamic_pointer_cast<DeviceBuffer>(buffer)) {
        return device == whole ? device : slice(std::move(device), offset, size);
    }
    if (whole->device_type() != arrow::DeviceAllocationType::kCUDA) {
        return arrow::Status::TypeError("buffer is not backed by a CudaBuffer");
    }
    // Of another library, such as an array that was imported by the C device interface.
    ARROW_ASSIGN_OR_RAISE(const auto context, Context::primary(whole->device()->device_id()));
    return context->view(whole->address(), size, whole);
}

arrow::Result<std::shared_ptr<DeviceBuffer>> DeviceBuffer::slice(std::shared_ptr<DeviceBuffer> buffer, int64_t offset,
                                                                 int64_t size)
{
    ARROW_RETURN_NOT_OK(buffer->check_range("slice", offset, size));
    return std::make_shared<DeviceBuffer>(std::move(buffer), offset, size);
}

arrow::Status DeviceBuffer::check_range(const char *call, int64_t position, int64_t size) const
{
    if (position < 0 || size < 0 || position > this->size() || size > this->size() - position) {
        return arrow::Status::Invalid(call, ": ", size, " bytes at position ", position, ", but the buffer has ",
                                      this->size(), " bytes");
    }
    return arrow::Status::OK();
}

arrow::Status DeviceBuffer::read(int64_t position, int64_t size, void *destination) const
{
    ARROW_RETURN_NOT_OK(check_range("read", position, size));
    return size == 0 ? arrow::Status::OK() : checked([&] { memory_->buffer.read(offset_ + position, destination, size); });
}

arrow::Status DeviceBuffer::write(int64_t position, const void *source, int64_t size)
{
    ARROW_RETURN_NOT_OK(check_range("write", position, size));
    return size == 0 ? arrow::Status::OK() : checked([&] { memory_->buffer.write(offset_ + position, source, size); });
}

arrow::Status DeviceBuffer::copy(int64_t position, const DeviceBuffer &source, int64_t size)
{
    ARROW_RETURN_NOT_OK(check_range("copy", position, size));
    ARROW_RETURN_NOT_OK(source.check_range("copy", 0, size));
    if (size == 0) {
        return arrow::Status::OK();
    }
    return checked([&] {
        memory_->buffer.copy(offset_ + position, source.memory_->buffer, source.offset_, size);
        // Arrow's arrays carry no event, so whoever sees the memory next takes it for ready.
        cudamem::check(cudamem_buffer_synchronize(memory_->buffer.get()));
    });
}

arrow::Result<cudamem::exported> DeviceBuffer::share() const
{
    static std::mutex mutex;
    static auto &shared = *new std::set<std::shared_ptr<Memory>>;
    ARROW_ASSIGN_OR_RAISE(auto exported, result_of([&] {
        const auto part = memory_->buffer.slice(offset_, size());
        return cudamem::exported::of(part);
    }));
    const std::lock_guard<std::mutex> lock(mutex);
    shared.insert(memory_);
    return exported;
}

HostBuffer::HostBuffer(std::shared_ptr<Context> context, cudamem::buffer buffer, uint8_t *data, int64_t size)
    : arrow::Buffer(data, size, arrow::default_cpu_memory_manager(), nullptr, arrow::DeviceAllocationType::kCUDA_HOST),
      context_(std::move(context)), buffer_(std::move(buffer))
{
    is_mutable_ = true;
}

arrow::Result<std::shared_ptr<HostBuffer>> HostBuffer::allocate(int device, int64_t size)
{
    // An address that is not null, as Arrow's own buffers have.
    static uint8_t nothing[64];
    ARROW_ASSIGN_OR_RAISE(auto context, Context::primary(device));
    ARROW_ASSIGN_OR_RAISE(auto buffer, context->allocate_pinned(size));
    uint8_t *data = nothing;
    if (size > 0) {
        ARROW_ASSIGN_OR_RAISE(data, result_of([&] { return static_cast<uint8_t *>(buffer.host_pointer()); }));
    }
    return std::shared_ptr<HostBuffer>(new HostBuffer(std::move(context), std::move(buffer), data, size));
}

} // namespace cuda_mem_arrow
