# The names of pyarrow.cuda over the library.
#
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# cython: language_level=3


from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uintptr_t
from libcpp.utility cimport move

from pyarrow.includes.libarrow cimport *
from pyarrow.lib cimport *
from pyarrow.lib import ArrowTypeError, allocate_buffer, as_buffer
from pyarrow.util import get_contiguous_span

cimport cpython


cdef extern from "python.hpp" namespace "cuda_mem_arrow":
    shared_ptr[void] owner_of(PyObject* object)


cdef extern from "io.hpp" namespace "cuda_mem_arrow" nogil:
    cdef cppclass CContext "cuda_mem_arrow::Context":
        @staticmethod
        CResult[int] device_count()
        @staticmethod
        CResult[shared_ptr[CContext]] primary(int64_t device)
        @staticmethod
        CResult[shared_ptr[CContext]] borrow(int device, uintptr_t raw)
        int device_number()
        int64_t bytes_allocated()
        CResult[uintptr_t] handle()
        CStatus synchronize()
        shared_ptr[CDevice] device()
        shared_ptr[CMemoryManager] memory_manager()
        CResult[uintptr_t] device_address(uintptr_t address)
        CResult[unique_ptr[CDeviceBuffer]] allocate(int64_t size)
        CResult[unique_ptr[CDeviceBuffer]] view(uintptr_t address, int64_t size, shared_ptr[void] owner)

    cdef cppclass CDeviceBuffer "cuda_mem_arrow::DeviceBuffer"(CBuffer):
        @staticmethod
        CResult[shared_ptr[CDeviceBuffer]] of(shared_ptr[CBuffer] buffer)
        @staticmethod
        CResult[shared_ptr[CDeviceBuffer]] slice(shared_ptr[CDeviceBuffer] buffer, int64_t offset, int64_t size)
        shared_ptr[CContext] context()
        CStatus read(int64_t position, int64_t size, void* destination)
        CStatus write(int64_t position, const void* source, int64_t size)
        CStatus copy(int64_t position, const CDeviceBuffer& source, int64_t size)

    cdef cppclass CHostBuffer "cuda_mem_arrow::HostBuffer"(CBuffer):
        @staticmethod
        CResult[shared_ptr[CHostBuffer]] allocate(int device, int64_t size)

    cdef cppclass CReader "cuda_mem_arrow::Reader"(CRandomAccessFile):
        CReader(shared_ptr[CDeviceBuffer] buffer)
        CResult[shared_ptr[CDeviceBuffer]] read(int64_t size)

    cdef cppclass CWriter "cuda_mem_arrow::Writer"(COutputStream):
        CWriter(shared_ptr[CDeviceBuffer] buffer)
        CStatus Write(const shared_ptr[CBuffer]& data)
        CStatus WriteAt(int64_t position, const void* data, int64_t size)
        CStatus Seek(int64_t position)
        CStatus set_staging(int64_t size)
        int64_t staging()
        int64_t staged()

    cdef cppclass CIpcHandle "cuda_mem_arrow::IpcHandle":
        @staticmethod
        CResult[shared_ptr[CIpcHandle]] of(const CDeviceBuffer& buffer)
        @staticmethod
        CResult[shared_ptr[CIpcHandle]] parse(const CBuffer& bytes)
        CResult[shared_ptr[CBuffer]] serialize(CMemoryPool* pool)
        CResult[unique_ptr[CDeviceBuffer]] open(CContext& context)

    CStatus register_devices()
    CResult[shared_ptr[CDeviceBuffer]] c_serialize_record_batch "cuda_mem_arrow::serialize_record_batch"(
        const CRecordBatch& batch, CContext& context)
    CResult[shared_ptr[CRecordBatch]] c_read_record_batch "cuda_mem_arrow::read_record_batch"(
        const shared_ptr[CSchema]& schema, CDictionaryMemo* dictionaries, shared_ptr[CDeviceBuffer] buffer,
        CMemoryPool* pool)


check_status(register_devices())


cdef class Context(_Weakrefable):
    """A CUDA context: that of a device, or the program's own, whose CUcontext is `handle`.

    Copies of its buffers run on the legacy default stream and are done on return.
    """

    cdef shared_ptr[CContext] context

    def __init__(self, int device_number=0, uintptr_t handle=0):
        count = Context.get_num_devices()
        if not 0 <= device_number < count:
            raise ValueError(f"device_number argument must be non-negative less than {count}")
        # The first use of a primary context makes it.
        with nogil:
            if handle == 0:
                self.context = GetResultValue(CContext.primary(device_number))
            else:
                self.context = GetResultValue(CContext.borrow(device_number, handle))

    cdef CContext* get(self) except NULL:
        if not self.context:
            raise ValueError("the Context was not initialized")
        return self.context.get()

    @staticmethod
    def get_num_devices():
        """The number of devices."""
        cdef int count
        # The first call loads the driver.
        with nogil:
            count = GetResultValue(CContext.device_count())
        return count

    @staticmethod
    def from_numba(context=None):
        """The context of Numba's context, by default of its current one."""
        if context is None:
            import numba.cuda
            context = numba.cuda.current_context()
        handle = context.handle
        # A number of ctypes, or a CUcontext of cuda.bindings.
        return Context(context.device.id, getattr(handle, "value", None) or int(handle))

    def to_numba(self):
        """Numba's context for this context, which stays this object's."""
        import ctypes

        import numba.cuda
        from numba.cuda.cudadrv import driver

        binding = getattr(driver, "binding", None)
        handle = binding.CUcontext(self.handle) if binding else ctypes.c_void_p(self.handle)
        context = driver.Context(numba.cuda.gpus[self.device_number], handle)
        context.deallocations = _NothingToFree()
        return context

    @property
    def device_number(self):
        """The number of the device."""
        return self.get().device_number()

    @property
    def handle(self):
        """The CUcontext."""
        return GetResultValue(self.get().handle())

    @property
    def bytes_allocated(self):
        """The bytes of the context's live buffers."""
        return self.get().bytes_allocated()

    @property
    def device(self):
        """Arrow's device."""
        return Device.wrap(self.get().device())

    @property
    def memory_manager(self):
        """Arrow's memory manager."""
        return MemoryManager.wrap(self.get().memory_manager())

    def synchronize(self):
        """Waits for all work of the context."""
        cdef CContext* context = self.get()
        with nogil:
            check_status(context.synchronize())

    def get_device_address(self, uintptr_t address):
        """The address at which the device reads memory: device memory, or page-locked, registered or managed memory."""
        return GetResultValue(self.get().device_address(address))

    def new_buffer(self, int64_t nbytes):
        """Allocates device memory. The contents are undefined."""
        cdef:
            CContext* context = self.get()
            unique_ptr[CDeviceBuffer] buffer
        with nogil:
            buffer = GetResultValue(context.allocate(nbytes))
        return wrap(shared_ptr[CDeviceBuffer](move(buffer)))

    def foreign_buffer(self, address, size, base=None):
        """A view of memory of others. `base` lives as long as the view and its slices."""
        cdef:
            uintptr_t c_address
            unique_ptr[CDeviceBuffer] buffer
            shared_ptr[void] owner
        if not address and size == 0:
            return self.new_buffer(0)
        if base is not None:
            owner = owner_of(<PyObject*> base)
        c_address = self.get_device_address(address) if size else address
        buffer = GetResultValue(self.get().view(c_address, size, owner))
        return wrap(shared_ptr[CDeviceBuffer](move(buffer)))

    def open_ipc_buffer(self, IpcMemHandle ipc_handle not None):
        """Memory of another process."""
        cdef:
            CContext* context = self.get()
            CIpcHandle* handle = ipc_handle.get()
            unique_ptr[CDeviceBuffer] buffer
        with nogil:
            buffer = GetResultValue(handle.open(context[0]))
        return wrap(shared_ptr[CDeviceBuffer](move(buffer)))

    def buffer_from_data(self, object data, int64_t offset=0, int64_t size=-1):
        """A new buffer with a copy of a CudaBuffer's, a Buffer's or an array's bytes."""
        source = data if isinstance(data, CudaBuffer) else as_buffer(data)
        if not 0 <= offset <= source.size:
            raise ValueError("offset argument is out-of-range")
        if size < 0:
            size = source.size - offset
        elif size > source.size - offset:
            raise ValueError("requested larger slice than available in device buffer")
        part = source.slice(offset, size)
        result = self.new_buffer(size)
        if part.is_cpu:
            result.copy_from_host(part)
        else:
            result.copy_from_device(CudaBuffer.from_buffer(part))
        return result

    def buffer_from_object(self, obj):
        """A view of a HostBuffer, a CudaBuffer, a buffer behind which one is, or an object with the CUDA array interface."""
        if isinstance(obj, HostBuffer):
            return self.foreign_buffer(obj.address, obj.size, obj)
        if isinstance(obj, Buffer):
            return CudaBuffer.from_buffer(obj)
        if not hasattr(obj, "__cuda_array_interface__"):
            raise ArrowTypeError(f"cannot create device buffer view from `{type(obj)}` object")
        import numpy
        interface = obj.__cuda_array_interface__
        if interface.get("mask") is not None:
            raise NotImplementedError("cannot create device buffer view from an array with a mask")
        if interface.get("stream") is not None:
            self.synchronize()
        address = interface["data"][0]
        if not address:
            return self.new_buffer(0)
        start, end = get_contiguous_span(interface["shape"], interface.get("strides"),
                                         numpy.dtype(interface["typestr"]).itemsize)
        return self.foreign_buffer(address + start, end - start, obj)


class _NothingToFree:
    """Numba's list of what to free: our contexts and buffers free themselves."""

    def add_item(self, *args, **kwargs):
        pass


cdef class IpcMemHandle(_Weakrefable):
    """Names device memory for other processes."""

    cdef shared_ptr[CIpcHandle] handle

    def __init__(self):
        raise TypeError("Do not call IpcMemHandle's constructor directly, use `CudaBuffer.export_for_ipc` or "
                        "`IpcMemHandle.from_buffer` instead.")

    cdef CIpcHandle* get(self) except NULL:
        if not self.handle:
            raise ValueError("the IpcMemHandle was not initialized")
        return self.handle.get()

    @staticmethod
    def from_buffer(Buffer opaque_handle not None):
        """The handle that `serialize` wrote in another process."""
        cdef IpcMemHandle result = IpcMemHandle.__new__(IpcMemHandle)
        result.handle = GetResultValue(CIpcHandle.parse(opaque_handle.buffer.get()[0]))
        return result

    def serialize(self, MemoryPool pool=None):
        """The handle as bytes."""
        return pyarrow_wrap_buffer(GetResultValue(self.get().serialize(maybe_unbox_memory_pool(pool))))


cdef class CudaBuffer(Buffer):
    """Device memory. It is freed after its last slice."""

    cdef shared_ptr[CDeviceBuffer] device_buffer

    def __init__(self):
        raise TypeError("Do not call CudaBuffer's constructor directly, use `Context.new_buffer` instead.")

    cdef CDeviceBuffer* get(self) except NULL:
        if not self.device_buffer:
            raise ValueError("the CudaBuffer was not initialized")
        return self.device_buffer.get()

    @staticmethod
    def from_buffer(Buffer buf not None):
        """The device memory behind a buffer."""
        cdef shared_ptr[CBuffer] buffer = buf.buffer
        return wrap(GetResultValue(CDeviceBuffer.of(buffer)))

    @staticmethod
    def from_numba(mem):
        """A view of Numba's memory."""
        pointer = mem.device_pointer
        # As the handle of a context.
        address = getattr(pointer, "value", None) or int(pointer or 0)
        return Context.from_numba(mem.context).foreign_buffer(address, mem.size, mem)

    def to_numba(self):
        """Numba's view of the memory, which keeps this buffer."""
        import ctypes

        from numba.cuda.cudadrv.driver import MemoryPointer

        return MemoryPointer(self.context.to_numba(), pointer=ctypes.c_void_p(self.address), size=self.size, owner=self)

    @property
    def context(self):
        """The buffer's context."""
        cdef Context context = Context.__new__(Context)
        context.context = self.get().context()
        return context

    cdef getitem(self, int64_t i):
        cdef uint8_t value = 0
        source = self.get()
        # The copy waits for earlier work, which may call Python.
        with nogil:
            check_status(source.read(i, 1, &value))
        return value

    def slice(self, offset=0, length=None):
        """A part, which shares the memory. A longer length than there is means the rest."""
        if not 0 <= offset <= self.size:
            raise ValueError("offset argument is out-of-range")
        rest = self.size - offset
        if length is None or length > rest:
            length = rest
        return wrap(GetResultValue(CDeviceBuffer.slice(self.device_buffer, offset, length)))

    def copy_to_host(self, int64_t position=0, int64_t nbytes=-1, Buffer buf=None, MemoryPool memory_pool=None,
                     c_bool resizable=False):
        """Copies bytes, by default the rest or as many as fit, to `buf` or a new buffer, and returns it."""
        cdef:
            CDeviceBuffer* source = self.get()
            void* destination
        if not 0 <= position <= self.size:
            raise ValueError("position argument is out-of-range")
        rest = self.size - position
        if buf is not None and nbytes > buf.size:
            raise ValueError("requested copy does not fit into host buffer")
        if nbytes > rest:
            raise ValueError("requested more to copy than available from device buffer")
        if nbytes < 0:
            nbytes = rest if buf is None else min(rest, buf.size)
        if buf is None:
            buf = allocate_buffer(nbytes, memory_pool=memory_pool, resizable=resizable)
        elif not (buf.is_cpu and buf.is_mutable):
            raise ValueError("requested copy into a buffer that is not mutable host memory")
        destination = <void*> buf.buffer.get().mutable_data()
        with nogil:
            check_status(source.read(position, nbytes, destination))
        return buf

    def copy_from_host(self, data, int64_t position=0, int64_t nbytes=-1):
        """Copies bytes of a buffer or an array, by default as many as fit, and returns their number."""
        cdef:
            CDeviceBuffer* destination = self.get()
            Buffer source = as_buffer(data)
            const void* bytes
        if not source.is_cpu:
            raise TypeError("expected data in host memory; use `copy_from_device` for a CudaBuffer")
        nbytes = self.copied(source.size, position, nbytes, "host")
        bytes = source.buffer.get().data()
        with nogil:
            check_status(destination.write(position, bytes, nbytes))
        return nbytes

    def copy_from_device(self, buf, int64_t position=0, int64_t nbytes=-1):
        """Copies bytes of another CudaBuffer, by default as many as fit, and returns their number. The buffers may lie on
        two devices."""
        cdef:
            CDeviceBuffer* destination = self.get()
            CDeviceBuffer* source
        if not isinstance(buf, CudaBuffer):
            raise TypeError(f"expected CudaBuffer instance, got {type(buf).__name__}")
        source = (<CudaBuffer> buf).get()
        nbytes = self.copied(buf.size, position, nbytes, "device")
        with nogil:
            check_status(destination.copy(position, source[0], nbytes))
        return nbytes

    cdef int64_t copied(self, int64_t available, int64_t position, int64_t nbytes, kind) except -1:
        """How many bytes a copy to `position` copies."""
        if not 0 <= position <= self.size:
            raise ValueError("position argument is out-of-range")
        if nbytes < 0:
            return min(self.size - position, available)
        if nbytes > available:
            raise ValueError(f"requested more to copy than available from {kind} buffer")
        if nbytes > self.size - position:
            raise ValueError("requested more to copy than available in device buffer")
        return nbytes

    def to_pybytes(self):
        """The contents as bytes."""
        return self.copy_to_host().to_pybytes()

    def export_for_ipc(self):
        """A handle for other processes. The memory then lives as long as this process."""
        cdef:
            IpcMemHandle result = IpcMemHandle.__new__(IpcMemHandle)
            CDeviceBuffer* buffer = self.get()
        with nogil:
            result.handle = GetResultValue(CIpcHandle.of(buffer[0]))
        return result

    def __getbuffer__(self, cpython.Py_buffer* buffer, int flags):
        raise BufferError("buffer protocol for device buffer not supported")


cdef wrap(shared_ptr[CDeviceBuffer] buffer):
    cdef CudaBuffer result = CudaBuffer.__new__(CudaBuffer)
    result.device_buffer = buffer
    result.init(<shared_ptr[CBuffer]> buffer)
    return result


cdef class HostBuffer(Buffer):
    """Page-locked memory of the host, which devices read and write."""

    def __init__(self):
        raise TypeError("Do not call HostBuffer's constructor directly, use `new_host_buffer` instead.")


def new_host_buffer(int64_t size, int device=0):
    """Allocates page-locked memory. The contents are undefined."""
    cdef:
        HostBuffer result = HostBuffer.__new__(HostBuffer)
        shared_ptr[CHostBuffer] buffer
    with nogil:
        buffer = GetResultValue(CHostBuffer.allocate(device, size))
    result.init(<shared_ptr[CBuffer]> buffer)
    return result


cdef class BufferReader(NativeFile):
    """A file over a CudaBuffer: `read` copies to host memory, and `read_buffer` returns slices of the buffer."""

    cdef shared_ptr[CReader] reader

    def __cinit__(self, CudaBuffer obj not None):
        obj.get()
        self.reader = make_shared[CReader](obj.device_buffer)
        self.set_random_access_file(<shared_ptr[CRandomAccessFile]> self.reader)
        self.is_readable = True

    def read_buffer(self, nbytes=None):
        """A slice of the next bytes, by default of all."""
        cdef:
            int64_t size = self.size() - self.tell() if nbytes is None else nbytes
            shared_ptr[CDeviceBuffer] buffer
        with nogil:
            buffer = GetResultValue(self.reader.get().read(size))
        return wrap(buffer)


cdef class BufferWriter(NativeFile):
    """A file that writes to a CudaBuffer. With a `buffer_size`, it collects small writes in page-locked memory."""

    cdef shared_ptr[CWriter] writer

    def __cinit__(self, CudaBuffer buffer not None):
        buffer.get()
        self.writer = make_shared[CWriter](buffer.device_buffer)
        self.set_output_stream(<shared_ptr[COutputStream]> self.writer)
        self.is_writable = True

    def write(self, data):
        """Writes the bytes of a buffer, also of a CudaBuffer, or of an array, and returns their number."""
        cdef Buffer source = as_buffer(data)
        with nogil:
            check_status(self.writer.get().Write(source.buffer))
        return source.size

    def writeat(self, int64_t position, object data):
        """Writes at a position. The next write goes on behind it."""
        self.seek(position)
        self.write(data)

    def flush(self):
        """Writes what is collected."""
        with nogil:
            check_status(self.writer.get().Flush())

    def seek(self, int64_t position, int whence=0):
        """Sets the position, from the start (0) or the current position (1), and returns it."""
        if whence not in (0, 1):
            raise ValueError(f"Invalid value of whence: {whence}")
        if whence == 1:
            position += self.tell()
        with nogil:
            check_status(self.writer.get().Seek(position))
        return position

    @property
    def buffer_size(self):
        """The size of the memory for small writes; 0 for none."""
        return self.writer.get().staging()

    @buffer_size.setter
    def buffer_size(self, int64_t buffer_size):
        with nogil:
            check_status(self.writer.get().set_staging(buffer_size))

    @property
    def num_bytes_buffered(self):
        """How many bytes are collected."""
        return self.writer.get().staged()


def serialize_record_batch(RecordBatch batch not None, Context ctx not None):
    """Writes a record batch to a new CudaBuffer, as a message of Arrow's format."""
    cdef:
        shared_ptr[CRecordBatch] c_batch = pyarrow_unwrap_batch(batch)
        CContext* context = ctx.get()
        shared_ptr[CDeviceBuffer] buffer
    with nogil:
        buffer = GetResultValue(c_serialize_record_batch(c_batch.get()[0], context[0]))
    return wrap(buffer)


def read_message(source, MemoryPool pool=None):
    """Reads a message from a CudaBuffer or a BufferReader. The body stays on the device."""
    cdef:
        Message result = Message.__new__(Message)
        BufferReader reader = source if isinstance(source, BufferReader) else BufferReader(source)
        CMemoryPool* c_pool = maybe_unbox_memory_pool(pool)
        unique_ptr[CMessage] message
    with nogil:
        message = move(GetResultValue(ReadMessage(reader.reader.get(), c_pool)))
    if message.get() == NULL:
        raise EOFError("the buffer contains no message")
    result.message = move(message)
    return result


def read_record_batch(CudaBuffer buffer not None, Schema schema not None, *, DictionaryMemo dictionary_memo=None,
                      MemoryPool pool=None):
    """Reads a record batch from a message in a CudaBuffer. The columns are slices of the buffer."""
    cdef:
        shared_ptr[CSchema] c_schema = pyarrow_unwrap_schema(schema)
        shared_ptr[CDeviceBuffer] c_buffer = buffer.device_buffer
        CDictionaryMemo none
        CDictionaryMemo* memo = &none if dictionary_memo is None else dictionary_memo.memo
        CMemoryPool* c_pool = maybe_unbox_memory_pool(pool)
        shared_ptr[CRecordBatch] batch
    buffer.get()
    with nogil:
        batch = GetResultValue(c_read_record_batch(c_schema, memo, c_buffer, c_pool))
    return pyarrow_wrap_batch(batch)
