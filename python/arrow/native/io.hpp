// Files over device memory, record batches in it, and handles of memory for other processes.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDA_MEM_ARROW_IO_HPP
#define CUDA_MEM_ARROW_IO_HPP

#include "context.hpp"

#include <arrow/io/interfaces.h>
#include <arrow/ipc/type_fwd.h>
#include <arrow/type_fwd.h>

#include <mutex>
#include <vector>

namespace cuda_mem_arrow {

/// Reads device memory: into host memory by copies, and as slices without.
class Reader : public arrow::io::RandomAccessFile {
public:
    explicit Reader(std::shared_ptr<DeviceBuffer> buffer) : buffer_(std::move(buffer)) {}

    arrow::Status Close() override;
    bool closed() const override;
    arrow::Result<int64_t> Tell() const override;
    arrow::Status Seek(int64_t position) override;
    arrow::Result<int64_t> GetSize() override;
    bool supports_zero_copy() const override { return true; }
    arrow::Result<int64_t> Read(int64_t size, void *out) override;
    arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t size) override;
    arrow::Result<int64_t> ReadAt(int64_t position, int64_t size, void *out) override;
    arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position, int64_t size) override;
    using RandomAccessFile::ReadAt;

    arrow::Result<std::shared_ptr<DeviceBuffer>> read(int64_t size);

private:
    arrow::Status check_open() const;
    /// How many of the bytes at a position there are.
    arrow::Result<int64_t> available(int64_t position, int64_t size) const;

    mutable std::mutex mutex_;
    std::shared_ptr<DeviceBuffer> buffer_;
    int64_t position_ = 0;
    bool closed_ = false;
};

/// Writes device memory. With staging, small writes are collected in page-locked memory.
class Writer : public arrow::io::WritableFile {
public:
    explicit Writer(std::shared_ptr<DeviceBuffer> buffer) : buffer_(std::move(buffer)) {}
    ~Writer() override;

    arrow::Status Close() override;
    bool closed() const override;
    arrow::Result<int64_t> Tell() const override;
    arrow::Status Seek(int64_t position) override;
    arrow::Status Write(const void *data, int64_t size) override;
    arrow::Status Write(const std::shared_ptr<arrow::Buffer> &data) override;
    arrow::Status WriteAt(int64_t position, const void *data, int64_t size) override;
    arrow::Status Flush() override;
    using Writable::Write;

    /// Sets the size of the staging memory. 0, the initial value, is none.
    arrow::Status set_staging(int64_t size);
    int64_t staging() const;
    int64_t staged() const;

private:
    arrow::Status check_open() const;
    arrow::Status check_room(int64_t position, int64_t size) const;
    arrow::Status flush();
    arrow::Status write(const void *data, int64_t size);

    mutable std::mutex mutex_;
    std::shared_ptr<DeviceBuffer> buffer_;
    /// Of the next write; the staged bytes lie before it.
    int64_t position_ = 0;
    cudamem::buffer staging_;
    uint8_t *staging_data_ = nullptr;
    int64_t staging_size_ = 0;
    int64_t staged_ = 0;
    bool closed_ = false;
};

/// Writes a record batch to new device memory, as a message of Arrow's format.
arrow::Result<std::shared_ptr<DeviceBuffer>> serialize_record_batch(const arrow::RecordBatch &batch, Context &context);

/// Reads a record batch from such a message. The columns are slices of `buffer`.
arrow::Result<std::shared_ptr<arrow::RecordBatch>> read_record_batch(const std::shared_ptr<arrow::Schema> &schema,
                                                                     arrow::ipc::DictionaryMemo *dictionaries,
                                                                     std::shared_ptr<DeviceBuffer> buffer,
                                                                     arrow::MemoryPool *pool);

/// Names memory for other processes: its size, and an export of the library. The export is missing for no memory.
class IpcHandle {
public:
    static arrow::Result<std::shared_ptr<IpcHandle>> of(const DeviceBuffer &buffer);
    static arrow::Result<std::shared_ptr<IpcHandle>> parse(const arrow::Buffer &bytes);

    arrow::Result<std::shared_ptr<arrow::Buffer>> serialize(arrow::MemoryPool *pool) const;
    arrow::Result<std::unique_ptr<DeviceBuffer>> open(Context &context) const;

private:
    int64_t size_ = 0;
    cudamem::exported exported_;
};

} // namespace cuda_mem_arrow

#endif // CUDA_MEM_ARROW_IO_HPP
