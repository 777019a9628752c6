// Arrow's device and memory manager: how Arrow copies our memory, and finds the manager for arrays that it imports.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#include "io.hpp"

#include <arrow/c/abi.h>

#include <string>

namespace cuda_mem_arrow {

namespace {

/// How much the writers that Arrow asks for collect before they copy.
constexpr int64_t staging_size = 8 << 20;

bool is_cuda(const arrow::MemoryManager &manager)
{
    return manager.device()->device_type() == arrow::DeviceAllocationType::kCUDA;
}

class Device : public arrow::Device {
public:
    explicit Device(int number) : arrow::Device(false), number_(number) {}

    const char *type_name() const override { return "CudaDevice"; }
    std::string ToString() const override { return "CudaDevice(device_number=" + std::to_string(number_) + ")"; }

    bool Equals(const arrow::Device &other) const override
    {
        return other.device_type() == device_type() && other.device_id() == device_id();
    }

    int64_t device_id() const override { return number_; }
    arrow::DeviceAllocationType device_type() const override { return arrow::DeviceAllocationType::kCUDA; }

    /// Null without a driver: this function cannot fail.
    std::shared_ptr<arrow::MemoryManager> default_memory_manager() override
    {
        auto context = Context::primary(number_);
        return context.ok() ? (*context)->memory_manager() : nullptr;
    }

private:
    int number_;
};

/// An event of another library, which the import of an array has waited for.
class PassedEvent : public arrow::Device::SyncEvent {
public:
    PassedEvent(void *event, release_fn_t release) : SyncEvent(event, std::move(release)) {}

    arrow::Status Wait() override { return arrow::Status::OK(); }
    arrow::Status Record(const arrow::Device::Stream &) override
    {
        return arrow::Status::NotImplemented("the event of an imported array cannot be recorded");
    }
};

class Manager : public arrow::MemoryManager {
public:
    explicit Manager(std::shared_ptr<Context> context)
        : arrow::MemoryManager(context->device()), context_(std::move(context))
    {
    }

    arrow::Result<std::shared_ptr<arrow::io::RandomAccessFile>> GetBufferReader(std::shared_ptr<arrow::Buffer> buffer) override
    {
        ARROW_ASSIGN_OR_RAISE(auto device, DeviceBuffer::of(std::move(buffer)));
        return std::make_shared<Reader>(std::move(device));
    }

    arrow::Result<std::shared_ptr<arrow::io::OutputStream>> GetBufferWriter(std::shared_ptr<arrow::Buffer> buffer) override
    {
        ARROW_ASSIGN_OR_RAISE(auto device, DeviceBuffer::of(std::move(buffer)));
        auto writer = std::make_shared<Writer>(std::move(device));
        ARROW_RETURN_NOT_OK(writer->set_staging(staging_size));
        return writer;
    }

    arrow::Result<std::unique_ptr<arrow::Buffer>> AllocateBuffer(int64_t size) override { return context_->allocate(size); }

    arrow::Result<std::shared_ptr<arrow::Device::SyncEvent>>
    WrapDeviceSyncEvent(void *event, arrow::Device::SyncEvent::release_fn_t release) override
    {
        // Now, because the buffers of an imported array do not know its event.
        ARROW_RETURN_NOT_OK(context_->wait_for(event));
        return std::make_shared<PassedEvent>(event, std::move(release));
    }

protected:
    arrow::Result<std::shared_ptr<arrow::Buffer>> CopyBufferFrom(const std::shared_ptr<arrow::Buffer> &buffer,
                                                                 const std::shared_ptr<arrow::MemoryManager> &from) override
    {
        return CopyNonOwnedFrom(*buffer, from);
    }

    arrow::Result<std::unique_ptr<arrow::Buffer>> CopyNonOwnedFrom(const arrow::Buffer &buffer,
                                                                   const std::shared_ptr<arrow::MemoryManager> &from) override
    {
        if (!from->is_cpu() && !is_cuda(*from)) {
            return nullptr;
        }
        ARROW_ASSIGN_OR_RAISE(auto copy, context_->allocate(buffer.size()));
        if (from->is_cpu()) {
            ARROW_RETURN_NOT_OK(copy->write(0, buffer.data(), buffer.size()));
        } else {
            ARROW_ASSIGN_OR_RAISE(const auto source, view_of(buffer, *from));
            ARROW_RETURN_NOT_OK(copy->copy(0, *source, buffer.size()));
        }
        return copy;
    }

    arrow::Result<std::shared_ptr<arrow::Buffer>> CopyBufferTo(const std::shared_ptr<arrow::Buffer> &buffer,
                                                               const std::shared_ptr<arrow::MemoryManager> &to) override
    {
        return CopyNonOwnedTo(*buffer, to);
    }

    arrow::Result<std::unique_ptr<arrow::Buffer>> CopyNonOwnedTo(const arrow::Buffer &buffer,
                                                                 const std::shared_ptr<arrow::MemoryManager> &to) override
    {
        if (!to->is_cpu()) {
            return nullptr;
        }
        ARROW_ASSIGN_OR_RAISE(auto copy, to->AllocateBuffer(buffer.size()));
        ARROW_ASSIGN_OR_RAISE(const auto source, view_of(buffer, *this));
        ARROW_RETURN_NOT_OK(source->read(0, buffer.size(), copy->mutable_data()));
        return copy;
    }

private:
    /// The buffer's bytes, for one copy. The buffer may be any of a CUDA device: a slice, or another library's.
    static arrow::Result<std::unique_ptr<DeviceBuffer>> view_of(const arrow::Buffer &buffer, const arrow::MemoryManager &from)
    {
        const auto *ours = dynamic_cast<const Manager *>(&from);
        std::shared_ptr<Context> context;
        if (ours != nullptr) {
            context = ours->context_;
        } else {
            ARROW_ASSIGN_OR_RAISE(context, Context::primary(from.device()->device_id()));
        }
        return context->view(buffer.address(), buffer.size(), nullptr);
    }

    std::shared_ptr<Context> context_;
};

} // namespace

std::shared_ptr<arrow::Device> Context::device() const { return std::make_shared<Device>(device_); }

std::shared_ptr<arrow::MemoryManager> Context::memory_manager() { return std::make_shared<Manager>(shared_from_this()); }

arrow::Status Context::wait_for(void *event)
{
    // The library takes events of others with arrays only. In this one is a buffer of no bytes, whose address nobody uses.
    const void *buffers[] = {this};
    ArrowDeviceArray array{};
    array.array.n_buffers = 1;
    array.array.buffers = buffers;
    array.array.release = [](ArrowArray *released) { released->release = nullptr; };
    array.device_type = ARROW_DEVICE_CUDA;
    array.device_id = device_;
    array.sync_event = event;
    return checked([&] {
        const auto imported = cudamem::arrow_array::import(&array);
        const auto buffer = imported.buffer(0, 0, stream_);
        stream_.synchronize();
    });
}

arrow::Status register_devices()
{
    const auto status = arrow::RegisterDeviceMapper(
        arrow::DeviceAllocationType::kCUDA, [](int64_t device) -> arrow::Result<std::shared_ptr<arrow::MemoryManager>> {
            ARROW_ASSIGN_OR_RAISE(auto context, Context::primary(device));
            return context->memory_manager();
        });
    return status.IsKeyError() ? arrow::Status::OK() : status;
}

} // namespace cuda_mem_arrow
