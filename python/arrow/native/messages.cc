// Record batches in device memory, and handles of memory for other processes.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#include "io.hpp"

#include <arrow/ipc/dictionary.h>
#include <arrow/ipc/message.h>
#include <arrow/ipc/options.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>
#include <arrow/record_batch.h>

#include <algorithm>
#include <cstring>

namespace cuda_mem_arrow {

arrow::Result<std::shared_ptr<DeviceBuffer>> serialize_record_batch(const arrow::RecordBatch &batch, Context &context)
{
    constexpr int64_t most_staging = 8 << 20;
    int64_t size = 0;
    ARROW_RETURN_NOT_OK(arrow::ipc::GetRecordBatchSize(batch, &size));
    ARROW_ASSIGN_OR_RAISE(std::shared_ptr<DeviceBuffer> buffer, context.allocate(size));
    Writer writer(buffer);
    ARROW_RETURN_NOT_OK(writer.set_staging(std::min(size, most_staging)));
    ARROW_RETURN_NOT_OK(arrow::ipc::SerializeRecordBatch(batch, arrow::ipc::IpcWriteOptions::Defaults(), &writer));
    ARROW_RETURN_NOT_OK(writer.Close());
    return buffer;
}

arrow::Result<std::shared_ptr<arrow::RecordBatch>> read_record_batch(const std::shared_ptr<arrow::Schema> &schema,
                                                                     arrow::ipc::DictionaryMemo *dictionaries,
                                                                     std::shared_ptr<DeviceBuffer> buffer,
                                                                     arrow::MemoryPool *pool)
{
    Reader reader(std::move(buffer));
    ARROW_ASSIGN_OR_RAISE(const auto message, arrow::ipc::ReadMessage(&reader, pool));
    if (!message) {
        return arrow::Status::Invalid("the buffer contains no message");
    }
    auto options = arrow::ipc::IpcReadOptions::Defaults();
    options.memory_pool = pool;
    return arrow::ipc::ReadRecordBatch(*message, schema, dictionaries, options);
}

arrow::Result<std::shared_ptr<IpcHandle>> IpcHandle::of(const DeviceBuffer &buffer)
{
    auto handle = std::make_shared<IpcHandle>();
    handle->size_ = buffer.size();
    if (handle->size_ > 0) {
        ARROW_ASSIGN_OR_RAISE(handle->exported_, buffer.share());
    }
    return handle;
}

arrow::Result<std::shared_ptr<IpcHandle>> IpcHandle::parse(const arrow::Buffer &bytes)
{
    auto handle = std::make_shared<IpcHandle>();
    constexpr int64_t header = sizeof handle->size_;
    if (!bytes.is_cpu() || bytes.size() < header) {
        return arrow::Status::Invalid("a serialized IpcMemHandle has at least ", header,
                                      " bytes in host memory, but this buffer has ", bytes.size());
    }
    std::memcpy(&handle->size_, bytes.data(), header);
    if (handle->size_ < 0 || (handle->size_ == 0) != (bytes.size() == header)) {
        return arrow::Status::Invalid("these ", bytes.size(), " bytes are no serialized IpcMemHandle: they state ", handle->size_,
                                      " bytes of memory");
    }
    if (handle->size_ > 0) {
        ARROW_ASSIGN_OR_RAISE(handle->exported_, result_of([&] {
            return cudamem::exported::create(bytes.data() + header, bytes.size() - header);
        }));
    }
    return handle;
}

arrow::Result<std::shared_ptr<arrow::Buffer>> IpcHandle::serialize(arrow::MemoryPool *pool) const
{
    ARROW_ASSIGN_OR_RAISE(const auto bytes, result_of([&] {
        return size_ > 0 ? exported_.bytes() : cudamem::span<const unsigned char>();
    }));
    ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateBuffer(sizeof size_ + bytes.size(), pool));
    std::memcpy(buffer->mutable_data(), &size_, sizeof size_);
    if (bytes.size() > 0) {
        std::memcpy(buffer->mutable_data() + sizeof size_, bytes.data(), bytes.size());
    }
    return buffer;
}

arrow::Result<std::unique_ptr<DeviceBuffer>> IpcHandle::open(Context &context) const
{
    if (size_ == 0) {
        return context.allocate(0);
    }
    ARROW_ASSIGN_OR_RAISE(auto buffer, context.import(exported_));
    if (buffer->size() != size_) {
        return arrow::Status::Invalid("the handle states ", size_, " bytes of memory, but its export ", buffer->size());
    }
    return buffer;
}

} // namespace cuda_mem_arrow
