// Files over device memory.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#include "io.hpp"

#include <algorithm>
#include <cstring>

namespace cuda_mem_arrow {

using Lock = std::lock_guard<std::mutex>;

arrow::Status Reader::check_open() const
{
    return closed_ ? arrow::Status::Invalid("Operation on closed BufferReader") : arrow::Status::OK();
}

arrow::Result<int64_t> Reader::available(int64_t position, int64_t size) const
{
    ARROW_RETURN_NOT_OK(check_open());
    if (position < 0 || position > buffer_->size() || size < 0) {
        return arrow::Status::IOError("read of ", size, " bytes at position ", position, ": the buffer has ", buffer_->size(),
                                      " bytes");
    }
    return std::min(size, buffer_->size() - position);
}

arrow::Status Reader::Close()
{
    const Lock lock(mutex_);
    closed_ = true;
    return arrow::Status::OK();
}

bool Reader::closed() const
{
    const Lock lock(mutex_);
    return closed_;
}

arrow::Result<int64_t> Reader::Tell() const
{
    const Lock lock(mutex_);
    ARROW_RETURN_NOT_OK(check_open());
    return position_;
}

arrow::Status Reader::Seek(int64_t position)
{
    const Lock lock(mutex_);
    ARROW_RETURN_NOT_OK(available(position, 0));
    position_ = position;
    return arrow::Status::OK();
}

arrow::Result<int64_t> Reader::GetSize()
{
    const Lock lock(mutex_);
    ARROW_RETURN_NOT_OK(check_open());
    return buffer_->size();
}

arrow::Result<int64_t> Reader::Read(int64_t size, void *out)
{
    const Lock lock(mutex_);
    ARROW_ASSIGN_OR_RAISE(const int64_t there, available(position_, size));
    ARROW_RETURN_NOT_OK(buffer_->read(position_, there, out));
    position_ += there;
    return there;
}

arrow::Result<std::shared_ptr<DeviceBuffer>> Reader::read(int64_t size)
{
    const Lock lock(mutex_);
    ARROW_ASSIGN_OR_RAISE(const int64_t there, available(position_, size));
    ARROW_ASSIGN_OR_RAISE(auto slice, DeviceBuffer::slice(buffer_, position_, there));
    position_ += there;
    return slice;
}

arrow::Result<std::shared_ptr<arrow::Buffer>> Reader::Read(int64_t size) { return read(size); }

arrow::Result<int64_t> Reader::ReadAt(int64_t position, int64_t size, void *out)
{
    const Lock lock(mutex_);
    ARROW_ASSIGN_OR_RAISE(const int64_t there, available(position, size));
    ARROW_RETURN_NOT_OK(buffer_->read(position, there, out));
    return there;
}

arrow::Result<std::shared_ptr<arrow::Buffer>> Reader::ReadAt(int64_t position, int64_t size)
{
    const Lock lock(mutex_);
    ARROW_ASSIGN_OR_RAISE(const int64_t there, available(position, size));
    return DeviceBuffer::slice(buffer_, position, there);
}

Writer::~Writer()
{
    // A destructor cannot fail; Close returns the error.
    static_cast<void>(Close());
}

arrow::Status Writer::check_open() const
{
    return closed_ ? arrow::Status::Invalid("Operation on closed BufferWriter") : arrow::Status::OK();
}

arrow::Status Writer::check_room(int64_t position, int64_t size) const
{
    ARROW_RETURN_NOT_OK(check_open());
    if (position < 0 || size < 0 || position > buffer_->size() || size > buffer_->size() - position) {
        return arrow::Status::IOError("write of ", size, " bytes at position ", position, ": the buffer has ", buffer_->size(),
                                      " bytes");
    }
    return arrow::Status::OK();
}

arrow::Status Writer::flush()
{
    const int64_t staged = std::exchange(staged_, 0);
    return buffer_->write(position_ - staged, staging_data_, staged);
}

arrow::Status Writer::write(const void *data, int64_t size)
{
    ARROW_RETURN_NOT_OK(check_room(position_, size));
    if (size >= staging_size_ - staged_) {
        ARROW_RETURN_NOT_OK(flush());
    }
    if (size < staging_size_) {
        std::memcpy(staging_data_ + staged_, data, size);
        staged_ += size;
    } else {
        ARROW_RETURN_NOT_OK(buffer_->write(position_, data, size));
    }
    position_ += size;
    return arrow::Status::OK();
}

arrow::Status Writer::Close()
{
    const Lock lock(mutex_);
    if (std::exchange(closed_, true)) {
        return arrow::Status::OK();
    }
    return flush();
}

bool Writer::closed() const
{
    const Lock lock(mutex_);
    return closed_;
}

arrow::Result<int64_t> Writer::Tell() const
{
    const Lock lock(mutex_);
    ARROW_RETURN_NOT_OK(check_open());
    return position_;
}

arrow::Status Writer::Seek(int64_t position)
{
    const Lock lock(mutex_);
    ARROW_RETURN_NOT_OK(check_room(position, 0));
    ARROW_RETURN_NOT_OK(flush());
    position_ = position;
    return arrow::Status::OK();
}

arrow::Status Writer::Write(const void *data, int64_t size)
{
    const Lock lock(mutex_);
    return write(data, size);
}

arrow::Status Writer::Write(const std::shared_ptr<arrow::Buffer> &data)
{
    const Lock lock(mutex_);
    if (data->is_cpu()) {
        return write(data->data(), data->size());
    }
    ARROW_RETURN_NOT_OK(check_room(position_, data->size()));
    ARROW_ASSIGN_OR_RAISE(const auto source, DeviceBuffer::of(data));
    ARROW_RETURN_NOT_OK(flush());
    ARROW_RETURN_NOT_OK(buffer_->copy(position_, *source, source->size()));
    position_ += source->size();
    return arrow::Status::OK();
}

arrow::Status Writer::WriteAt(int64_t position, const void *data, int64_t size)
{
    const Lock lock(mutex_);
    ARROW_RETURN_NOT_OK(check_room(position, size));
    // Before the position moves: the staged bytes lie before it.
    ARROW_RETURN_NOT_OK(flush());
    position_ = position;
    return write(data, size);
}

arrow::Status Writer::Flush()
{
    const Lock lock(mutex_);
    ARROW_RETURN_NOT_OK(check_open());
    return flush();
}

arrow::Status Writer::set_staging(int64_t size)
{
    const Lock lock(mutex_);
    ARROW_RETURN_NOT_OK(check_open());
    ARROW_RETURN_NOT_OK(flush());
    ARROW_ASSIGN_OR_RAISE(auto staging, buffer_->context()->allocate_pinned(size));
    uint8_t *data = nullptr;
    if (size > 0) {
        ARROW_ASSIGN_OR_RAISE(data, result_of([&] { return static_cast<uint8_t *>(staging.host_pointer()); }));
    }
    staging_ = std::move(staging);
    staging_data_ = data;
    staging_size_ = size;
    return arrow::Status::OK();
}

int64_t Writer::staging() const
{
    const Lock lock(mutex_);
    return staging_size_;
}

int64_t Writer::staged() const
{
    const Lock lock(mutex_);
    return staged_;
}

} // namespace cuda_mem_arrow
