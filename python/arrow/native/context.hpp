// Contexts, Arrow's device and memory manager over them, and buffers of device memory.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDA_MEM_ARROW_CONTEXT_HPP
#define CUDA_MEM_ARROW_CONTEXT_HPP

#include "cudamem.hpp"

#include <arrow/buffer.h>
#include <arrow/device.h>
#include <arrow/result.h>
#include <arrow/status.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace cuda_mem_arrow {

/// Arrow's status for an error of the library.
arrow::Status status_of(const cudamem::error &error);

/// Calls a function of the library, and returns its error as a status.
template <typename Function> arrow::Status checked(Function function)
{
    try {
        function();
        return arrow::Status::OK();
    } catch (const cudamem::error &error) {
        return status_of(error);
    }
}

/// Calls a function of the library, and returns its result, or its error as a status.
template <typename Function> auto result_of(Function function) -> arrow::Result<decltype(function())>
{
    try {
        return function();
    } catch (const cudamem::error &error) {
        return status_of(error);
    }
}

class DeviceBuffer;

/// A context, and its legacy default stream: Arrow knows no streams, so all copies wait for earlier work and are done on
/// return.
class Context : public std::enable_shared_from_this<Context> {
public:
    Context(cudamem::context context, int device);

    static arrow::Result<int> device_count();

    /// The primary context of a device: one for the process, which lives as long as it.
    static arrow::Result<std::shared_ptr<Context>> primary(int64_t device);

    /// A context of the program (a CUcontext), which must outlive this.
    static arrow::Result<std::shared_ptr<Context>> borrow(int device, uintptr_t raw);

    int device_number() const { return device_; }
    int64_t bytes_allocated() const { return allocated_; }
    arrow::Result<uintptr_t> handle() const;
    arrow::Status synchronize() const;
    std::shared_ptr<arrow::Device> device() const;
    std::shared_ptr<arrow::MemoryManager> memory_manager();

    /// The address at which the device reads memory of any kind.
    arrow::Result<uintptr_t> device_address(uintptr_t address) const;

    arrow::Result<std::unique_ptr<DeviceBuffer>> allocate(int64_t size);

    /// Memory of others. `owner` ends after the last part of the buffer.
    arrow::Result<std::unique_ptr<DeviceBuffer>> view(uintptr_t address, int64_t size, std::shared_ptr<void> owner);

    /// Memory of another process.
    arrow::Result<std::unique_ptr<DeviceBuffer>> import(const cudamem::exported &exported);

    /// Waits for an event of another library (a CUevent *).
    arrow::Status wait_for(void *event);

    /// Page-locked memory.
    arrow::Result<cudamem::buffer> allocate_pinned(int64_t size) const;

private:
    friend struct Memory;

    arrow::Result<cudamem::buffer> borrowed(uintptr_t address, int64_t size) const;

    cudamem::context context_;
    cudamem::stream stream_;
    cudamem::resource memory_;
    cudamem::resource pinned_;
    int device_;
    std::atomic<int64_t> allocated_ = 0;
};

/// What a buffer and its slices share.
struct Memory {
    ~Memory() { context->allocated_ -= counted; }

    std::shared_ptr<Context> context;
    /// How many bytes `Context::bytes_allocated` counts for it.
    int64_t counted = 0;
    /// Ends after `buffer`.
    std::shared_ptr<void> owner;
    cudamem::buffer buffer;
};

/// Device memory, or a part of it.
class DeviceBuffer : public arrow::Buffer {
public:
    DeviceBuffer(std::shared_ptr<Memory> memory, uintptr_t address, int64_t size);
    DeviceBuffer(std::shared_ptr<DeviceBuffer> parent, int64_t offset, int64_t size);

    /// The device memory behind a buffer, which may be a slice that Arrow made.
    static arrow::Result<std::shared_ptr<DeviceBuffer>> of(std::shared_ptr<arrow::Buffer> buffer);

    /// A part of a buffer.
    static arrow::Result<std::shared_ptr<DeviceBuffer>> slice(std::shared_ptr<DeviceBuffer> buffer, int64_t offset,
                                                              int64_t size);

    const std::shared_ptr<Context> &context() const { return memory_->context; }

    arrow::Status read(int64_t position, int64_t size, void *destination) const;
    arrow::Status write(int64_t position, const void *source, int64_t size);
    arrow::Status copy(int64_t position, const DeviceBuffer &source, int64_t size);

    /// For another process. The memory then lives as long as this process, as in upstream's module: the driver does not
    /// check whether another process uses it.
    arrow::Result<cudamem::exported> share() const;

private:
    arrow::Status check_range(const char *call, int64_t position, int64_t size) const;

    std::shared_ptr<Memory> memory_;
    int64_t offset_;
};

/// Page-locked memory of the host.
class HostBuffer : public arrow::Buffer {
public:
    static arrow::Result<std::shared_ptr<HostBuffer>> allocate(int device, int64_t size);

private:
    HostBuffer(std::shared_ptr<Context> context, cudamem::buffer buffer, uint8_t *data, int64_t size);

    std::shared_ptr<Context> context_;
    cudamem::buffer buffer_;
};

/// Makes Arrow find our memory manager for arrays of CUDA devices. Where another library did so, its manager stays: it
/// understands our memory too.
arrow::Status register_devices();

} // namespace cuda_mem_arrow

#endif // CUDA_MEM_ARROW_CONTEXT_HPP
