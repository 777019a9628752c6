//! Buffers.

mod uses;

use crate::array::Array;
use crate::buffer_protocol::{Views, byte_of, cast_to_bytes, readable};
use crate::capsule::{self, Request};
use crate::closable::Closable;
use crate::context::Context;
use crate::drop_errors;
use crate::error::{Outcome, refused};
use crate::signals;
use crate::stream::{Stream, with_stream};
use core::ffi::{c_int, c_void};
use cuda_mem::buffer::{BatchOptions, BatchWay, Piece};
use cuda_mem::memory::Growth;
use cuda_mem_dynamic::{Content, Memory, with};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyMemoryView, PySlice};

/// Memory. A resource makes it; `with` closes it. Offsets and sizes are in bytes.
///
/// Work of the buffer runs in the order of its home stream. A memoryview or numpy array of memory that the CPU addresses
/// waits for that work once, when it is made: later device work is the program's to wait for.
///
/// >>> with cuda_mem.PinnedMemory().allocate(8) as buffer:
/// ...     buffer.fill(7)
/// ...     buffer.to_bytes(0, 2)
/// b'\x07\x07'
#[pyclass(frozen, weakref, module = "cuda_mem")]
pub struct Buffer {
    memory: Closable<Memory>,
    views: Views,
    /// Whether a free neither calls the driver nor waits.
    quick_frees: bool,
    /// Whether this is a slice: its close gives up its share only, and while it lives, `close` of the whole buffer raises an
    /// error.
    is_part: bool,
}

impl Buffer {
    #[inline]
    pub fn new(memory: Memory, quick_frees: bool) -> Self {
        Self { memory: memory.into(), views: Views::default(), quick_frees, is_part: false }
    }
}

#[pymethods]
impl Buffer {
    /// The size in bytes; 0 when the buffer is closed.
    #[getter]
    fn size(&self) -> Outcome<usize> {
        self.len()
    }

    fn __len__(&self) -> Outcome<usize> {
        self.len()
    }

    /// The address for devices, a CUdeviceptr. Raises ClosedError when the buffer is closed.
    #[getter]
    fn handle(&self) -> Outcome<u64> {
        Ok(self.open()?.device_pointer())
    }

    /// The address for the CPU, or None if the CPU does not address the memory.
    #[getter]
    fn host_pointer(&self) -> Outcome<Option<usize>> {
        Ok(self.open()?.host_pointer().map(|pointer| pointer.addr()))
    }

    /// Whether the buffer is closed.
    #[getter]
    fn is_closed(&self) -> bool {
        self.memory.is_closed()
    }

    /// The home stream.
    #[getter]
    fn stream(&self) -> Outcome<Stream> {
        Ok(Stream { inner: self.home()? })
    }

    /// The context.
    #[getter]
    fn context(&self) -> Outcome<Context> {
        Ok(Context { inner: with!(&*self.open()?.read(), buffer => buffer.context().clone()).into() })
    }

    /// Whether the CPU addresses the memory.
    #[getter]
    fn is_host_accessible(&self) -> Outcome<bool> {
        Ok(self.accessibility()?.host)
    }

    /// Whether devices address the memory.
    #[getter]
    fn is_device_accessible(&self) -> Outcome<bool> {
        Ok(self.accessibility()?.device)
    }

    /// Whether the driver moves the memory between the host and devices.
    #[getter]
    fn is_managed(&self) -> Outcome<bool> {
        Ok(self.accessibility()?.managed)
    }

    /// The unit of `flush` and `invalidate` in bytes: 1 for coherent memory. The calls themselves take any range.
    #[getter]
    fn atom(&self) -> Outcome<usize> {
        Ok(with!(&*self.open()?.read(), buffer => buffer.coherence().atom()))
    }

    /// Makes `stream` the home stream. It waits for all work of the buffer so far.
    fn set_stream(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> Outcome {
        let memory = self.open()?;
        let memory: &Memory = &memory;
        with_stream(Some(stream), &self.home()?, |stream| {
            Ok(py.detach(|| with!(&mut *memory.write(), buffer => buffer.set_stream(stream)))?)
        })
    }

    /// Tells that work of another stream, queued until now, uses the memory: the home stream waits for it before the
    /// memory is used again or freed. The stream may be of another device that uses the memory; an object with
    /// `__cuda_stream__` is taken for a stream of the memory's device, so pass `Stream.from_handle(object, context)` for one
    /// of another.
    fn record_use(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> Outcome {
        let memory = self.open()?;
        let memory: &Memory = &memory;
        with_stream(Some(stream), &self.home()?, |stream| {
            Ok(py.detach(|| with!(&*memory.read(), buffer => buffer.record_use(stream)))?)
        })
    }

    /// Waits for the work of the home stream so far.
    fn synchronize(&self, py: Python<'_>) -> Outcome {
        let home = self.home()?;
        Ok(signals::detach(py, || home.synchronize())??)
    }

    /// Copies `source` to this buffer, to `offset`: `size` bytes of a Buffer from `source_offset` on, in stream order, or
    /// of an object with the buffer protocol, such as bytes or a contiguous numpy array; the copy of such an object is
    /// done when this returns. Without `size`, all the rest of the source.
    #[pyo3(signature = (source, *, offset = 0, source_offset = 0, size = None))]
    fn copy_from(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        offset: usize,
        source_offset: usize,
        size: Option<usize>,
    ) -> Outcome {
        if let Ok(source) = source.cast::<Buffer>() {
            let (memory, source) = (self.open()?, source.get().open()?);
            let (memory, source): (&Memory, &Memory) = (&memory, &source);
            let size = size.unwrap_or(usize::MAX);
            return Ok(signals::detach(py, || memory.copy_from(offset, source, source_offset, size))??);
        }
        let bytes = readable("source", source)?;
        let range =
            cuda_mem_dynamic::range("Buffer.copy_from", source_offset, size.unwrap_or(usize::MAX), bytes.len())?;
        self.write(py, offset, &bytes[range])
    }

    /// Copies pieces of another buffer to this one, each an offset in this buffer, an offset in `source` and a size. They
    /// must not overlap in this buffer. They are copied in the order of `stream`, by default the home stream.
    ///
    /// By default, "fastest", a kernel copies many small pieces, such as the blocks of a cache, and the driver all others.
    /// "copy_engines" leaves them all to the driver. "kernel" is the way for small work that must not wait behind large
    /// copies of other streams; the driver then copies only what the kernel does not reach.
    #[pyo3(signature = (source, pieces, *, stream = None, way = "fastest"))]
    fn copy_pieces(
        &self,
        py: Python<'_>,
        source: PyRef<'_, Buffer>,
        pieces: Vec<(usize, usize, usize)>,
        stream: Option<&Bound<'_, PyAny>>,
        way: &str,
    ) -> Outcome {
        let (memory, source) = (self.open()?, source.open()?);
        let (memory, source): (&Memory, &Memory) = (&memory, &source);
        let mut options = BatchOptions::default();
        options.way = match way {
            "fastest" => BatchWay::Fastest,
            "copy_engines" => BatchWay::CopyEngines,
            "kernel" => BatchWay::Kernel,
            other => {
                let text = format!("way is {other:?}, but it must be \"fastest\", \"copy_engines\" or \"kernel\"");
                return Err(PyValueError::new_err(text).into());
            }
        };
        let pieces: Vec<Piece> = pieces.into_iter().map(|(to, from, length)| Piece { to, from, length }).collect();
        with_stream(stream, &self.home()?, |stream| {
            Ok(signals::detach(py, || memory.copy_pieces(source, &pieces, options, stream))??)
        })
    }

    /// Copies `len(destination)` bytes from `offset` on to a writable object with the buffer protocol. Waits for the
    /// buffer's work and for the copy.
    #[pyo3(signature = (destination, *, offset = 0))]
    fn copy_to(&self, py: Python<'_>, destination: &Bound<'_, PyAny>, offset: usize) -> Outcome {
        let view = cast_to_bytes("destination", destination)?;
        if view.readonly() {
            return Err(PyTypeError::new_err("destination is read-only: pass a bytearray or a writable array").into());
        }
        let memory = self.open()?;
        let memory: &Memory = &memory;
        let size = view.len_bytes();
        let bytes: &mut [u8] = match size {
            0 => &mut [],
            // SAFETY: the view is contiguous and writable, and lives until the copy is done. That the program does not use
            // its memory meanwhile is Python's rule for such views.
            size => unsafe { core::slice::from_raw_parts_mut(view.buf_ptr().cast(), size) },
        };
        let copy = || memory.read_aside(|content| with!(content, buffer => buffer.copy_to_slice(offset, bytes)));
        Ok(signals::detach(py, copy)??)
    }

    /// The bytes from `offset` on; without `size`, all the rest. Waits for the buffer's work.
    #[pyo3(signature = (offset = 0, size = None))]
    fn to_bytes<'py>(&self, py: Python<'py>, offset: usize, size: Option<usize>) -> Outcome<Bound<'py, PyBytes>> {
        let memory = self.open()?;
        let memory: &Memory = &memory;
        let length = with!(&*memory.read(), buffer => buffer.len());
        let range = cuda_mem_dynamic::range("Buffer.to_bytes", offset, size.unwrap_or(usize::MAX), length)?;
        Ok(PyBytes::new_with(py, range.len(), |bytes| {
            let copy =
                || memory.read_aside(|content| with!(content, buffer => buffer.copy_to_slice(range.start, bytes)));
            Ok(signals::detach(py, copy)?.map_err(crate::error::Failure::from)?)
        })?)
    }

    /// Fills `size` bytes from `offset` on, in stream order. `value` is an int from 0 to 255, or an object of 1, 2, 4, 8 or
    /// 16 bytes with the buffer protocol.
    #[pyo3(signature = (value, *, offset = 0, size = None))]
    fn fill(&self, py: Python<'_>, value: &Bound<'_, PyAny>, offset: usize, size: Option<usize>) -> Outcome {
        let memory = self.open()?;
        let memory: &Memory = &memory;
        let size = size.unwrap_or(usize::MAX);
        if value.is_instance_of::<PyInt>() || value.extract::<i64>().is_ok() {
            let byte = byte_of(value).map_err(refused)?;
            return Ok(py.detach(|| memory.fill(offset, size, &[byte]))?);
        }
        let bytes = readable("value", value)?;
        let bytes: &[u8] = &bytes;
        Ok(py.detach(|| memory.fill(offset, size, bytes))?)
    }

    /// Whether two buffers have the same bytes. Waits for the work of both.
    fn equals(&self, py: Python<'_>, other: PyRef<'_, Buffer>) -> Outcome<bool> {
        let homes = [self.home()?, other.home()?];
        let (memory, other) = (self.open()?, other.open()?);
        let (memory, other): (&Memory, &Memory) = (&memory, &other);
        Ok(signals::detach(py, || {
            // The wait of the comparison itself keeps its memory, and is not cut.
            homes.iter().try_for_each(|home| home.synchronize())?;
            memory.equals(other)
        })??)
    }

    /// Makes the CPU's writes to a range visible to device work that is queued later. Mapped and write-combined memory need
    /// this; for other memory it does nothing.
    #[pyo3(signature = (offset = 0, size = None))]
    fn flush(&self, py: Python<'_>, offset: usize, size: Option<usize>) -> Outcome {
        // SAFETY: the range is the buffer's, which is open.
        self.on_host(py, "flush", offset, size, |resource, start, size| unsafe { resource.flush(start, size) })
    }

    /// Makes the device's writes to a range visible to the CPU, once the device's work is done: wait for it first.
    /// Non-coherent mapped memory needs this; for other memory it does nothing.
    #[pyo3(signature = (offset = 0, size = None))]
    fn invalidate(&self, py: Python<'_>, offset: usize, size: Option<usize>) -> Outcome {
        // SAFETY: as in `flush`; programs reach the memory by views of Python only, so no Rust reference to it exists.
        self.on_host(py, "invalidate", offset, size, |resource, start, size| unsafe {
            resource.invalidate(start, size)
        })
    }

    /// A part of the memory as a buffer of its own, which shares its ownership. Without `size`, all the rest.
    #[pyo3(signature = (offset = 0, size = None))]
    fn slice(&self, offset: usize, size: Option<usize>) -> Outcome<Buffer> {
        let part = self.open()?.slice(offset, size.unwrap_or(usize::MAX))?;
        let mut part = Buffer::new(Memory::shared(part), self.quick_frees);
        part.is_part = true;
        Ok(part)
    }

    /// `buffer[start:stop]` is `slice`.
    fn __getitem__(&self, index: &Bound<'_, PyAny>) -> Outcome<Buffer> {
        let Ok(slice) = index.cast::<PySlice>() else {
            let text = "a Buffer takes slices, as buffer[0:4]; memoryview(buffer) has single bytes";
            return Err(PyTypeError::new_err(text).into());
        };
        let range = slice.indices(self.len()? as isize)?;
        if range.step != 1 {
            return Err(PyIndexError::new_err("the step of a slice of a Buffer must be 1").into());
        }
        self.slice(range.start as usize, Some(range.slicelength))
    }

    /// The memory as an array that other libraries take: `dtype` is a name such as "float32" or a numpy dtype, `shape` an
    /// int or a sequence, `strides` are in elements, `offset` is in bytes. Without a shape it has one dimension.
    #[pyo3(signature = (dtype = None, shape = None, *, strides = None, offset = 0))]
    fn view(
        &self,
        dtype: Option<&Bound<'_, PyAny>>,
        shape: Option<&Bound<'_, PyAny>>,
        strides: Option<Vec<i64>>,
        offset: usize,
    ) -> Outcome<Array> {
        Array::of(&self.tensor()?, dtype, shape, strides, offset)
    }

    /// The memory as a numpy array without a copy, if the CPU addresses it. While the array lives, the buffer cannot be
    /// closed. For mapped memory call `flush` after writes, and `invalidate` before reads of what a device wrote.
    #[pyo3(signature = (dtype = None, shape = None))]
    fn numpy<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        shape: Option<&Bound<'py, PyAny>>,
    ) -> Outcome<Bound<'py, PyAny>> {
        let numpy = slf.py().import("numpy")?;
        let bytes = numpy.call_method1("asarray", (PyMemoryView::from(slf)?,))?;
        let array = match dtype {
            Some(dtype) => bytes.call_method1("view", (dtype,))?,
            None => bytes,
        };
        Ok(match shape {
            Some(shape) => array.call_method1("reshape", (shape,))?,
            None => array,
        })
    }

    /// Grows a growable buffer to `size` bytes; the new bytes are zeros. Returns whether the memory has moved.
    ///
    /// Up to the capacity, the addresses stay. Beyond it, the same memory moves to twice as many addresses, after a wait for
    /// the home stream: `handle` is then another number, and kernels and libraries that still use the old one fail. No
    /// Python object is left with old addresses: raises SharedError while a memoryview lives, and ArgumentError if the
    /// buffer does not grow, as after a slice, a `view` or an export.
    ///
    /// >>> buffer = cuda_mem.VirtualMemory().allocate_growable(1 << 21)
    /// >>> buffer.grow_to(1 << 21), buffer.grow_to(1 << 23)
    /// (False, True)
    fn grow_to(&self, py: Python<'_>, size: usize) -> Outcome<bool> {
        self.with_growable(py, "grow_to", move |growable| Ok(growable.grow_to(size)? == Growth::Moved))
    }

    /// Shrinks a growable buffer to `size` bytes, after a wait for the home stream. The addresses stay. Raises as `grow_to`.
    fn shrink_to(&self, py: Python<'_>, size: usize) -> Outcome {
        self.with_growable(py, "shrink_to", move |growable| growable.shrink_to(size))
    }

    /// Frees the memory in the order of the home stream; with `stream`, that becomes the home stream first. Closing again
    /// does nothing. Raises SharedError, and frees nothing, while a slice, a view, a memoryview or another library has
    /// the memory, or while another thread uses the buffer. The close of a slice gives up its share.
    #[pyo3(signature = (stream = None))]
    fn close(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> Outcome {
        cuda_mem::check_not_forked("Buffer.close")?;
        drop_errors::warn(py)?;
        if let Some(stream) = stream.filter(|_| !self.is_closed()) {
            self.set_stream(py, stream)?;
        }
        let mut place = self.memory.change("Buffer.close")?;
        self.views.refuse("close")?;
        let Some(memory) = &mut *place else { return Ok(()) };
        let is_part = self.is_part;
        // SAFETY: after a success the value is only dropped.
        let mut end = || unsafe { if is_part { memory.close_in_place() } else { memory.close_alone_in_place() } };
        if self.quick_frees { end() } else { py.detach(end) }?;
        *place = None;
        Ok(())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (kind, value, traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> Outcome {
        let _ = (kind, traceback);
        let closed = self.close(py, None);
        // An exception of the body goes on: its traceback often has the array that keeps the buffer open. The memory is then
        // freed with the last of them.
        if value.is_none() { closed } else { Ok(()) }
    }

    /// DLPack's protocol. The memory is ordered before `stream`; `dl_device` (1, 0) gives the CPU the memory itself if it
    /// addresses it. Raises BufferError where that needs a copy and `copy` is False.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(i64, i64)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> Outcome<Bound<'py, PyAny>> {
        capsule::export(py, &self.tensor()?, stream, Request::new(max_version, dl_device, copy))
    }

    /// DLPack's exchange API: C functions for other libraries.
    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        crate::exchange::offered(py)
    }

    /// DLPack's device: (type, number).
    fn __dlpack_device__(&self) -> Outcome<(i32, i32)> {
        Ok(capsule::device(self.tensor()?.tensor().device()))
    }

    /// The CUDA array interface, version 3, of the bytes. It does not keep the buffer from being closed.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyAny>> {
        Array::from_tensor(self.tensor()?).cuda_array_interface(py)
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        let memory = this.host_memory("__getbuffer__")?;
        let (pointer, length, home) = with!(&*memory.read(), buffer => {
            (buffer.host_pointer_if_any(), buffer.len(), buffer.stream().clone())
        });
        // Before the wait, so that the memory stays.
        this.views.add();
        drop(memory);
        let pointer = pointer.unwrap_or(core::ptr::dangling_mut()).cast::<c_void>();
        // SAFETY: Python passes a view to fill; the memory stays while `views` counts it.
        unsafe { this.views.fill(&slf, (view, flags), (pointer, length), Some(home)) }
    }

    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        let _ = view;
        self.views.end();
    }

    /// Memory is not pickled: another process would get a copy, not the memory.
    fn __reduce__(&self) -> PyResult<String> {
        Err(PyTypeError::new_err("a Buffer cannot be pickled: pickle its bytes (to_bytes)"))
    }

    fn __repr__(&self) -> String {
        match self.open() {
            Ok(memory) => {
                let kind = match &*memory.read() {
                    Content::Exclusive(_) => "",
                    Content::Shared(_) => ", shared",
                    Content::Growable(_) => ", growable",
                };
                let size = with!(&*memory.read(), buffer => buffer.len());
                format!("Buffer(handle={:#x}, size={size}{kind})", memory.device_pointer())
            }
            Err(_) if self.is_closed() => "Buffer(closed)".to_owned(),
            Err(_) if cuda_mem::check_not_forked("repr").is_err() => "Buffer(of the parent process)".to_owned(),
            Err(_) => "Buffer(closing)".to_owned(),
        }
    }
}
