// libcudamem for C++17 and later: objects that end by themselves, and exceptions, over cudamem.h.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
//
//     cudamem::context context(0);
//     cudamem::stream stream(context);
//     cudamem::pool pool(cudamem::resource::device(context));
//     cudamem::buffer buffer(pool, 4096, stream);
//     buffer.write(0, data.data(), data.size());
//
// Every object has one handle of cudamem.h, which it destroys at its end. Objects can be moved and not copied; one that was
// moved from holds the null handle, and may be destroyed or assigned. What a destructor cannot tell goes to the function of
// cudamem_set_drop_error_callback; `close` throws it. What cudamem.h says of threads, offsets and sizes holds here too.
#ifndef CUDAMEM_HPP
#define CUDAMEM_HPP

#include "cudamem.h"

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace cudamem {

/// As a size: all from the offset on.
inline constexpr std::size_t whole_size = CUDAMEM_WHOLE_SIZE;

/// A call of the library failed. `what` names the function, the argument, its value, and what to do.
class error : public std::runtime_error {
public:
    error(cudamem_status status, std::int32_t driver_code, const char *message)
        : std::runtime_error(message != nullptr ? message : cudamem_status_name(status)), status_(status),
          driver_code_(driver_code)
    {
    }

    /// One of CUDAMEM_ERROR_... .
    cudamem_status status() const noexcept { return status_; }

    /// The CUDA driver's own code (CUresult), or 0 if the driver had no part in it.
    std::int32_t driver_code() const noexcept { return driver_code_; }

    bool is_out_of_memory() const noexcept { return status_ == CUDAMEM_ERROR_OUT_OF_MEMORY; }

private:
    cudamem_status status_;
    std::int32_t driver_code_;
};

/// Throws the calling thread's last failure, unless the status is success.
inline void check(cudamem_status status)
{
    if (status != CUDAMEM_SUCCESS) {
        throw error(status, cudamem_last_driver_code(), cudamem_last_error_message());
    }
}

/// Owns one handle.
template <typename Handle, cudamem_status (*Destroy)(Handle)> class object {
public:
    /// Holds the null handle.
    object() noexcept : handle_{0} {}

    /// Takes a handle of cudamem.h over.
    explicit object(Handle handle) noexcept : handle_(handle) {}

    object(object &&other) noexcept : handle_(other.release()) {}

    object &operator=(object &&other) noexcept
    {
        if (this != &other) {
            static_cast<void>(Destroy(handle_));
            handle_ = other.release();
        }
        return *this;
    }

    object(const object &) = delete;
    object &operator=(const object &) = delete;

    ~object() { static_cast<void>(Destroy(handle_)); }

    /// The handle, which stays this object's.
    Handle get() const noexcept { return handle_; }

    /// Gives the handle away.
    Handle release() noexcept { return std::exchange(handle_, Handle{0}); }

    /// Whether there is a handle.
    explicit operator bool() const noexcept { return handle_.id != 0; }

    /// Ends the object now. Where that fails, it stays.
    void close()
    {
        check(Destroy(handle_));
        handle_ = Handle{0};
    }

protected:
    Handle handle_;
};

/// A text of the library.
class text : public object<cudamem_text, cudamem_text_destroy> {
public:
    using object::object;

    std::string str() const
    {
        const char *characters = nullptr;
        std::size_t length = 0;
        check(cudamem_text_get(get(), &characters, &length));
        return std::string(characters, length);
    }
};

/// What serves on this machine, as JSON.
inline std::string describe()
{
    cudamem_text made;
    check(cudamem_describe(&made));
    return text(made).str();
}

/// A context.
class context : public object<cudamem_context, cudamem_context_destroy> {
public:
    using object::object;

    /// The primary context of a device.
    explicit context(std::int32_t ordinal) { check(cudamem_context_open_primary(ordinal, &handle_)); }

    /// A context of its own.
    static context create(std::int32_t ordinal)
    {
        cudamem_context made;
        check(cudamem_context_create(ordinal, &made));
        return context(made);
    }

    /// Uses a CUcontext of the program's, which must outlive this.
    static context borrow(void *raw)
    {
        cudamem_context made;
        check(cudamem_context_borrow(raw, &made));
        return context(made);
    }

    void *raw() const
    {
        void *raw = nullptr;
        check(cudamem_context_get_raw(get(), &raw));
        return raw;
    }

    void synchronize() const { check(cudamem_context_synchronize(get())); }
};

class event;

/// A stream.
class stream : public object<cudamem_stream, cudamem_stream_destroy> {
public:
    using object::object;

    explicit stream(const context &context, std::uint32_t flags = 0, std::int32_t priority = 0)
    {
        cudamem_stream_options options{};
        options.size = sizeof options;
        options.flags = flags;
        options.priority = priority;
        check(cudamem_stream_create(context.get(), &options, &handle_));
    }

    /// Uses a CUstream or cudaStream_t of the program's, which must outlive this.
    static stream borrow(const context &context, void *raw)
    {
        cudamem_stream made;
        check(cudamem_stream_borrow(context.get(), raw, &made));
        return stream(made);
    }

    void *raw() const
    {
        void *raw = nullptr;
        check(cudamem_stream_get_raw(get(), &raw));
        return raw;
    }

    void synchronize() const { check(cudamem_stream_synchronize(get())); }

    bool is_done() const
    {
        bool done = false;
        check(cudamem_stream_is_done(get(), &done));
        return done;
    }

    void wait(const event &event) const;

    void join(const stream &other) const { check(cudamem_stream_join(get(), other.get())); }
};

/// An event.
class event : public object<cudamem_event, cudamem_event_destroy> {
public:
    using object::object;

    explicit event(const context &context, std::uint32_t flags = 0)
    {
        check(cudamem_event_create(context.get(), flags, &handle_));
    }

    void record(const stream &stream) const { check(cudamem_event_record(get(), stream.get())); }

    void synchronize() const { check(cudamem_event_synchronize(get())); }

    bool has_passed() const
    {
        bool passed = false;
        check(cudamem_event_has_passed(get(), &passed));
        return passed;
    }
};

inline void stream::wait(const event &event) const { check(cudamem_stream_wait_event(get(), event.get())); }

/// A source of memory.
class resource : public object<cudamem_resource, cudamem_resource_destroy> {
public:
    using object::object;

    static resource device(const context &context)
    {
        cudamem_resource made;
        check(cudamem_resource_create_device(context.get(), &made));
        return resource(made);
    }

    static resource pinned(const context &context, std::uint32_t flags = 0)
    {
        cudamem_resource made;
        check(cudamem_resource_create_pinned(context.get(), flags, &made));
        return resource(made);
    }

    static resource managed(const context &context, std::uint32_t flags = 0)
    {
        cudamem_resource made;
        check(cudamem_resource_create_managed(context.get(), flags, &made));
        return resource(made);
    }

    static resource mapped(const context &context, std::int32_t coherence = CUDAMEM_COHERENCE_PREFERRED)
    {
        cudamem_resource made;
        check(cudamem_resource_create_mapped(context.get(), coherence, &made));
        return resource(made);
    }

    /// A pool of the driver's. `options.size` is set here.
    static resource driver_pool(const context &context, cudamem_driver_pool_options options = {})
    {
        cudamem_resource made;
        options.size = sizeof options;
        check(cudamem_resource_create_driver_pool(context.get(), &options, &made));
        return resource(made);
    }

    /// CUDAMEM_ACCESS_... combined by |.
    std::uint32_t access() const
    {
        std::uint32_t access = 0;
        check(cudamem_resource_get_access(get(), &access));
        return access;
    }
};

/// A pool over another resource, which it keeps alive.
class pool : public resource {
public:
    using resource::resource;

    /// `options.size` is set here.
    explicit pool(const resource &upstream, cudamem_pool_options options = {})
    {
        options.size = sizeof options;
        check(cudamem_pool_create(upstream.get(), &options, &handle_));
    }

    cudamem_pool_statistics statistics() const
    {
        cudamem_pool_statistics statistics{};
        statistics.size = sizeof statistics;
        check(cudamem_pool_get_statistics(get(), &statistics));
        return statistics;
    }

    /// Every region with its blocks, as JSON.
    std::string snapshot() const
    {
        cudamem_text made;
        check(cudamem_pool_get_snapshot(get(), &made));
        return text(made).str();
    }

    void reserve(std::size_t size) const { check(cudamem_pool_reserve(get(), size)); }
    void trim(std::size_t keep = 0) const { check(cudamem_pool_trim(get(), keep)); }
    void release_unused() const { check(cudamem_pool_release_unused(get())); }
    void release_stream(const stream &stream) const { check(cudamem_pool_release_stream(get(), stream.get())); }
};

/// Memory of any source, with a home stream.
class buffer : public object<cudamem_buffer, cudamem_buffer_destroy> {
public:
    using object::object;

    buffer(const resource &resource, std::size_t size, const stream &stream)
    {
        check(cudamem_buffer_allocate(resource.get(), size, stream.get(), &handle_));
    }

    buffer slice(std::size_t offset, std::size_t size = whole_size) const
    {
        cudamem_buffer made;
        check(cudamem_buffer_slice(get(), offset, size, &made));
        return buffer(made);
    }

    std::size_t size() const
    {
        std::size_t size = 0;
        check(cudamem_buffer_get_size(get(), &size));
        return size;
    }

    std::uint64_t device_pointer() const
    {
        std::uint64_t pointer = 0;
        check(cudamem_buffer_get_device_pointer(get(), &pointer));
        return pointer;
    }

    void *host_pointer() const
    {
        void *pointer = nullptr;
        check(cudamem_buffer_get_host_pointer(get(), &pointer));
        return pointer;
    }

    void write(std::size_t offset, const void *source, std::size_t size) const
    {
        check(cudamem_buffer_write(get(), offset, source, size));
    }

    void read(std::size_t offset, void *destination, std::size_t size) const
    {
        check(cudamem_buffer_read(get(), offset, destination, size));
    }

    void copy(std::size_t offset, const buffer &source, std::size_t source_offset = 0, std::size_t size = whole_size) const
    {
        check(cudamem_buffer_copy(get(), offset, source.get(), source_offset, size));
    }

    /// Fills with a value of 1, 2, 4, 8 or 16 bytes.
    template <typename Value> void fill(std::size_t offset, std::size_t size, const Value &value) const
    {
        static_assert(std::is_trivially_copyable_v<Value>, "a value is filled in as bytes");
        check(cudamem_buffer_fill(get(), offset, size, &value, sizeof value));
    }

    void flush(std::size_t offset = 0, std::size_t size = whole_size) const
    {
        check(cudamem_buffer_flush(get(), offset, size));
    }

    void invalidate(std::size_t offset = 0, std::size_t size = whole_size) const
    {
        check(cudamem_buffer_invalidate(get(), offset, size));
    }

    void set_stream(const stream &stream) const { check(cudamem_buffer_set_stream(get(), stream.get())); }
    void record_use(const stream &stream) const { check(cudamem_buffer_record_use(get(), stream.get())); }
    void synchronize() const { check(cudamem_buffer_synchronize(get())); }
};

/// Mapped memory, or a part of it.
class mapped : public object<cudamem_mapped, cudamem_mapped_destroy> {
public:
    using object::object;

    /// Of a resource that resource::mapped made.
    mapped(const resource &resource, std::size_t size) { check(cudamem_mapped_allocate(resource.get(), size, &handle_)); }

    mapped slice(std::size_t offset, std::size_t size = whole_size) const
    {
        cudamem_mapped made;
        check(cudamem_mapped_slice(get(), offset, size, &made));
        return mapped(made);
    }

    std::size_t size() const
    {
        std::size_t size = 0;
        check(cudamem_mapped_get_size(get(), &size));
        return size;
    }

    std::uint64_t device_pointer() const
    {
        std::uint64_t pointer = 0;
        check(cudamem_mapped_get_device_pointer(get(), &pointer));
        return pointer;
    }

    void *host_pointer() const
    {
        void *pointer = nullptr;
        check(cudamem_mapped_get_host_pointer(get(), &pointer));
        return pointer;
    }

    void write(std::size_t offset, const void *source, std::size_t size) const
    {
        check(cudamem_mapped_write(get(), offset, source, size));
    }

    void read(std::size_t offset, void *destination, std::size_t size) const
    {
        check(cudamem_mapped_read(get(), offset, destination, size));
    }

    void flush(std::size_t offset = 0, std::size_t size = whole_size) const
    {
        check(cudamem_mapped_flush(get(), offset, size));
    }

    void invalidate(std::size_t offset = 0, std::size_t size = whole_size) const
    {
        check(cudamem_mapped_invalidate(get(), offset, size));
    }
};

/// A copy engine.
class engine : public object<cudamem_engine, cudamem_engine_destroy> {
public:
    using object::object;

    explicit engine(const context &context) { check(cudamem_engine_create(context.get(), &handle_)); }

    void write(const buffer &buffer, std::size_t offset, const void *source, std::size_t size) const
    {
        check(cudamem_engine_write_buffer(get(), buffer.get(), offset, source, size));
    }

    void write(const mapped &mapped, std::size_t offset, const void *source, std::size_t size) const
    {
        check(cudamem_engine_write_mapped(get(), mapped.get(), offset, source, size));
    }

    void read(const buffer &buffer, std::size_t offset, void *destination, std::size_t size) const
    {
        check(cudamem_engine_read_buffer(get(), buffer.get(), offset, destination, size));
    }

    void read(const mapped &mapped, std::size_t offset, void *destination, std::size_t size) const
    {
        check(cudamem_engine_read_mapped(get(), mapped.get(), offset, destination, size));
    }
};

/// Memory of a resource that the CPU addresses (pinned or managed memory, and pools of them), for containers of the standard
/// library. Resource and stream must outlive it. The CPU uses the memory at once, so what the stream did with it before must
/// have been waited for: use a stream that does nothing else. Threads may use it at the same time.
class memory_resource : public std::pmr::memory_resource {
public:
    memory_resource(const resource &resource, const stream &stream) : resource_(resource.get()), stream_(stream.get())
    {
        if ((resource.access() & CUDAMEM_ACCESS_HOST) == 0) {
            throw std::invalid_argument("cudamem::memory_resource: the CPU does not address memory of this resource");
        }
    }

private:
    /// What all resources align to.
    static constexpr std::size_t alignment_ = 64;

    void *do_allocate(std::size_t size, std::size_t alignment) override
    {
        if (alignment > alignment_) {
            throw std::bad_alloc();
        }
        // An empty block has an address of its own too.
        cudamem_buffer made;
        const cudamem_status status = cudamem_buffer_allocate(resource_, size != 0 ? size : 1, stream_, &made);
        if (status == CUDAMEM_ERROR_OUT_OF_MEMORY) {
            throw std::bad_alloc();
        }
        check(status);
        buffer block(made);
        void *const pointer = block.host_pointer();
        const std::lock_guard<std::mutex> lock(mutex_);
        blocks_.emplace(pointer, std::move(block));
        return pointer;
    }

    void do_deallocate(void *pointer, std::size_t, std::size_t) override
    {
        buffer block;
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = blocks_.find(pointer);
        if (found != blocks_.end()) {
            block = std::move(found->second);
            blocks_.erase(found);
        }
    }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }

    cudamem_resource resource_;
    cudamem_stream stream_;
    std::mutex mutex_;
    std::unordered_map<void *, buffer> blocks_;
};

} // namespace cudamem

#endif // CUDAMEM_HPP
