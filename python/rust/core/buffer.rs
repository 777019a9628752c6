//! Buffers: memory of a resource, of another library, or of a resource that is written in Python.

use super::body::{Body, Held, NotFreed};
use super::foreign::{self, facts_of};
use super::stream::of_argument;
use super::{export, transfer};
use crate::buffer_protocol::{Views, byte_of, readable};
use crate::capsule::{self, Request};
use crate::closable::{Closable, NotOpen, Open};
use crate::drop_errors;
use crate::error::Outcome;
use core::ffi::{c_int, c_void};
use cuda_mem::memory::Accessibility;
use cuda_mem::memory::kind::Any;
use pyo3::exceptions::{PyBufferError, PyOverflowError, PyRuntimeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyTuple, PyType};
use pyo3::{ffi, intern};
use std::sync::{Mutex, OnceLock};

/// Memory. A memory resource makes it; `with` closes it. Its work runs on the streams that the calls name, and its free
/// waits for that work.
///
/// A close is refused while a numpy array or another library uses the memory.
#[pyclass(frozen, weakref, subclass, module = "cuda_mem.core")]
pub struct Buffer {
    body: Closable<Body>,
    /// Address and size.
    place: (u64, usize),
    views: Views,
    /// Whether another process made the memory.
    is_mapped: bool,
    /// What the driver says about memory of no resource. Asked once.
    facts: OnceLock<(Accessibility, i32)>,
    /// The resource and the descriptor of an import, which stay after a close: a queue of multiprocessing pickles later than
    /// it is given the buffer.
    origin: OnceLock<(Py<PyAny>, Py<PyAny>)>,
}

/// What makes an object of a subclass of Buffer. Only this module makes one.
#[pyclass(frozen, module = "cuda_mem._native.core")]
pub struct Ticket(Mutex<Option<(Body, bool)>>);

impl Buffer {
    #[inline]
    pub fn new(body: Body, is_mapped: bool) -> Self {
        Self {
            place: (body.address, body.size),
            body: body.into(),
            views: Views::default(),
            is_mapped,
            facts: OnceLock::new(),
            origin: OnceLock::new(),
        }
    }

    /// A buffer of a class of Python.
    pub fn of_class<'py>(class: &Bound<'py, PyType>, body: Body, is_mapped: bool) -> PyResult<Bound<'py, PyAny>> {
        let py = class.py();
        if class.is(py.get_type::<Self>()) {
            return Ok(Bound::new(py, Self::new(body, is_mapped))?.into_any());
        }
        class.call1((Bound::new(py, Ticket(Mutex::new(Some((body, is_mapped)))))?,))
    }

    /// A buffer of memory that cuda-mem allocated.
    #[inline]
    pub fn whole(buffer: cuda_mem::Buffer<u8, Any>, resource: Py<PyAny>) -> Body {
        Body {
            address: buffer.device_pointer(),
            size: buffer.len(),
            memory: Held::Whole(buffer),
            resource: Some(resource),
            owner: None,
        }
    }

    /// The memory, if the buffer is open.
    #[inline]
    pub fn open(&self) -> Outcome<Open<'_, Body>> {
        self.body.open("Buffer")
    }

    /// The memory, with one more use of it that no close ends.
    pub fn open_view(&self) -> Outcome<Open<'_, Body>> {
        let body = self.open()?;
        // A close reads the count with the lock that `body` has.
        self.views.add();
        Ok(body)
    }

    pub fn set_origin(&self, resource: Py<PyAny>, descriptor: Py<PyAny>) {
        let _ = self.origin.set((resource, descriptor));
    }

    pub fn end_view(&self) {
        self.views.end();
    }

    /// Who may address the memory, and the device: that of the resource, or what the driver says about the address.
    pub fn facts(&self, py: Python<'_>) -> Outcome<(Accessibility, i32)> {
        let body = self.open()?;
        let (address, resource) = (body.address, body.resource.as_ref().map(|resource| resource.clone_ref(py)));
        // The resource may be written in Python.
        drop(body);
        if let Some(resource) = resource {
            let resource = resource.into_bound(py);
            let flag = |name| resource.getattr(name).and_then(|value| value.is_truthy());
            let mut accessibility = Accessibility::HOST;
            accessibility.device = flag(intern!(py, "is_device_accessible"))?;
            accessibility.host = flag(intern!(py, "is_host_accessible"))?;
            accessibility.managed = flag(intern!(py, "is_managed"))?;
            return Ok((accessibility, -1));
        }
        if let Some(facts) = self.facts.get() {
            return Ok(*facts);
        }
        let facts = py.detach(|| facts_of(address))?;
        Ok(*self.facts.get_or_init(|| facts))
    }

    /// Whether the memory is managed, also if its resource does not say so.
    pub fn managed(&self, py: Python<'_>, facts: Accessibility) -> Outcome<bool> {
        if facts.managed || !(facts.device && facts.host) {
            return Ok(facts.managed);
        }
        // A resource of Python may not say that its memory is managed.
        let address = self.open()?.address;
        Ok(address != 0 && py.detach(|| facts_of(address))?.0.managed)
    }

    /// Takes the memory out, for its free.
    fn take(&self) -> Outcome<Option<Body>> {
        let mut body = self.body.change("Buffer.close")?;
        if body.is_some() {
            self.views.refuse("close")?;
        }
        Ok(body.take())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(body) = self.body.end() {
            body.end();
        }
    }
}

#[pymethods]
impl Buffer {
    #[new]
    #[pyo3(signature = (*arguments, **_options))]
    fn make(arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> Outcome<Self> {
        let ticket = arguments.get_item(0).ok().and_then(|first| first.cast_into::<Ticket>().ok());
        let body = ticket.and_then(|ticket| ticket.get().0.lock().ok().and_then(|mut body| body.take()));
        let Some((body, is_mapped)) = body else {
            let text = "Buffer objects cannot be instantiated directly. Please use MemoryResource APIs.";
            return Err(PyRuntimeError::new_err(text).into());
        };
        Ok(Self::new(body, is_mapped))
    }

    /// A buffer of an address. With a resource `mr`, the buffer owns the memory: `mr.deallocate(ptr, size, stream=...)`
    /// frees it, in order of `stream` or of the default stream. With an `owner`, the buffer keeps that. Otherwise the
    /// program keeps the memory.
    #[classmethod]
    #[pyo3(signature = (ptr, size, mr = None, owner = None, *, stream = None))]
    fn from_handle<'py>(
        class: &Bound<'py, PyType>,
        ptr: &Bound<'py, PyAny>,
        size: usize,
        mr: Option<Bound<'py, PyAny>>,
        owner: Option<Bound<'py, PyAny>>,
        stream: Option<Bound<'py, PyAny>>,
    ) -> Outcome<Bound<'py, PyAny>> {
        Ok(Self::of_class(class, foreign::body_of(ptr, size, mr, owner, stream)?, false)?)
    }

    /// Imports memory of another process. Raises CUDAError for memory of another resource.
    #[classmethod]
    #[pyo3(signature = (mr, ipc_descriptor, *, stream))]
    fn from_ipc_descriptor<'py>(
        class: &Bound<'py, PyType>,
        mr: &Bound<'py, PyAny>,
        ipc_descriptor: &Bound<'py, PyAny>,
        stream: &Bound<'py, PyAny>,
    ) -> Outcome<Bound<'py, PyAny>> {
        let module = class.py().import("cuda_mem.core._ipc")?;
        Ok(module.call_method1("import_buffer", (class, mr, ipc_descriptor, stream))?)
    }

    /// What another process imports the memory by. The resource must be made with `ipc_enabled`.
    #[getter]
    fn ipc_descriptor<'py>(slf: &Bound<'py, Self>) -> Outcome<Bound<'py, PyAny>> {
        Ok(slf.py().import("cuda_mem.core._ipc")?.call_method1("export_buffer", (slf,))?)
    }

    /// Frees the memory in order of `stream`, or of the stream of the allocation. Does nothing if the buffer is closed.
    #[pyo3(signature = (stream = None))]
    fn close(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> Outcome {
        let Some(body) = self.take()? else { return Ok(()) };
        match body.free(py, stream) {
            // A warning may be an exception.
            Ok(()) => Ok(drop_errors::warn(py)?),
            Err(failed) => {
                let NotFreed { left, error } = *failed;
                if let Some(left) = left {
                    self.body.put_back(left);
                }
                Err(error)
            }
        }
    }

    /// Makes `stream` the one in whose order the memory is freed. It does not wait for earlier work that the program queued
    /// by itself.
    fn set_deallocation_stream(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> Outcome {
        let given = of_argument(stream, None)?;
        let mut body = self.body.change("Buffer.set_deallocation_stream")?;
        match body.as_mut().map(|body| &mut body.memory) {
            None => Err(NotOpen::Closed.of("Buffer")),
            Some(Held::Whole(buffer)) => Ok(py.detach(|| buffer.set_stream(&given))?),
            Some(Held::Imported(buffer)) => Ok(py.detach(|| buffer.set_stream(&given))?),
            Some(Held::Foreign { stream: kept, .. }) => {
                *kept = Some(stream.clone().unbind());
                Ok(())
            }
        }
    }

    /// Whether the buffer is closed.
    #[getter]
    fn is_closed(&self) -> bool {
        self.body.is_closed()
    }

    /// The address as an integer; 0 when the buffer is closed.
    #[getter]
    fn handle(&self) -> Outcome<u64> {
        match self.open() {
            Ok(body) => {
                if let Held::Whole(buffer) = &body.memory {
                    buffer.mark_work()?;
                }
                Ok(body.address)
            }
            // Another thread changes the stream of the free, or closes the buffer.
            Err(_) => Ok(self.place().0),
        }
    }

    /// The size in bytes; 0 when the buffer is closed.
    #[getter]
    fn size(&self) -> usize {
        self.place().1
    }

    /// The memory resource, or None.
    #[getter]
    fn memory_resource(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.open().ok()?.resource.as_ref().map(|resource| resource.clone_ref(py))
    }

    /// The owner of memory of another library, or None.
    #[getter]
    fn owner(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.open().ok()?.owner.as_ref().map(|owner| owner.clone_ref(py))
    }

    /// The ordinal of the device; -1 for memory of the host.
    #[getter]
    fn device_id(&self, py: Python<'_>) -> Outcome<Py<PyAny>> {
        let resource = self.open()?.resource.as_ref().map(|resource| resource.clone_ref(py));
        match resource {
            Some(resource) => Ok(resource.getattr(py, intern!(py, "device_id"))?),
            None => Ok(self.facts(py)?.1.into_pyobject(py).map_err(PyErr::from)?.into_any().unbind()),
        }
    }

    /// Whether devices address the memory.
    #[getter]
    fn is_device_accessible(&self, py: Python<'_>) -> Outcome<bool> {
        Ok(self.facts(py)?.0.device)
    }

    /// Whether the CPU addresses the memory.
    #[getter]
    fn is_host_accessible(&self, py: Python<'_>) -> Outcome<bool> {
        Ok(self.facts(py)?.0.host)
    }

    /// Whether the driver moves the memory between the host and devices.
    #[getter]
    fn is_managed(&self, py: Python<'_>) -> Outcome<bool> {
        let facts = self.facts(py)?.0;
        self.managed(py, facts)
    }

    /// The resource and the descriptor of an import.
    #[getter]
    fn _origin(&self, py: Python<'_>) -> Option<(Py<PyAny>, Py<PyAny>)> {
        self.origin.get().map(|(resource, descriptor)| (resource.clone_ref(py), descriptor.clone_ref(py)))
    }

    /// Whether another process made the memory.
    #[getter]
    fn is_mapped(&self) -> bool {
        self.is_mapped
    }

    /// Copies all of this buffer to `dst`, of the same size, on `stream`; without `dst`, to a new buffer of the same
    /// resource. Returns the destination.
    #[pyo3(signature = (dst = None, *, stream, options = None))]
    fn copy_to<'py>(
        slf: &Bound<'py, Self>,
        dst: Option<Bound<'py, Buffer>>,
        stream: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, PyAny>>,
    ) -> Outcome<Bound<'py, Buffer>> {
        let py = slf.py();
        let dst = match dst {
            Some(dst) => dst,
            None => {
                let Some(resource) = slf.get().open()?.resource.as_ref().map(|resource| resource.clone_ref(py)) else {
                    let text = "a destination buffer must be provided (this buffer does not have a memory_resource)";
                    return Err(PyValueError::new_err(text).into());
                };
                let arguments = PyDict::new(py);
                arguments.set_item("stream", stream)?;
                let size = slf.get().size();
                resource
                    .bind(py)
                    .call_method("allocate", (size,), Some(&arguments))?
                    .cast_into()
                    .map_err(PyErr::from)?
            }
        };
        transfer::copy(py, slf.get(), dst.get(), stream, options)?;
        Ok(dst)
    }

    /// Copies all of `src`, of the same size, to this buffer on `stream`.
    #[pyo3(signature = (src, *, stream, options = None))]
    fn copy_from(
        &self,
        py: Python<'_>,
        src: PyRef<'_, Buffer>,
        stream: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyAny>>,
    ) -> Outcome {
        transfer::copy(py, &src, self, stream, options)
    }

    /// Fills the buffer on `stream` with an integer from 0 to 255, or with a pattern of 1, 2 or 4 bytes: an object with the
    /// buffer protocol, such as bytes or a number of numpy.
    #[pyo3(signature = (value, *, stream))]
    fn fill(&self, py: Python<'_>, value: &Bound<'_, PyAny>, stream: &Bound<'_, PyAny>) -> Outcome {
        let pattern = if value.is_instance_of::<PyInt>() {
            vec![byte_of(value).map_err(PyOverflowError::new_err)?]
        } else {
            readable("value", value)?.to_vec()
        };
        transfer::fill(py, self, &pattern, stream)
    }

    /// DLPack's protocol: an array of int8. The memory is ordered before the consumer's `stream`.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<i64>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> Outcome<Bound<'py, PyAny>> {
        export::export(slf, stream, Request::of(max_version, dl_device, copy)?)
    }

    /// DLPack's device: (type, number).
    fn __dlpack_device__(&self, py: Python<'_>) -> Outcome<(i32, i32)> {
        Ok(capsule::device(export::device(py, self)?))
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (this, py) = (slf.get(), slf.py());
        if !this.facts(py)?.0.host {
            let text = "the CPU does not address this memory: copy it to a buffer that the CPU addresses";
            return Err(PyBufferError::new_err(text));
        }
        // Counted before the wait, so that the memory stays.
        let body = this.open_view()?;
        let (pointer, size) = (core::ptr::with_exposed_provenance_mut::<c_void>(body.address as usize), body.size);
        let home = body.memory.home().cloned();
        drop(body);
        // SAFETY: Python passes a view to fill; the memory stays while the view is counted.
        unsafe { this.views.fill(&slf, (view, flags), (pointer, size), home) }
    }

    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        let _ = view;
        self.end_view();
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> Outcome {
        let _ = (kind, traceback);
        let closed = self.close(py, None);
        // An exception of the body goes on: its traceback often has the array that keeps the buffer open.
        if value.is_none() { closed } else { Ok(()) }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Outcome<Bound<'py, PyAny>> {
        Ok(slf.py().import("cuda_mem.core._ipc")?.call_method1("reduce_buffer", (slf,))?)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Buffer>().is_ok_and(|other| self.place() == other.get().place())
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        let (address, size) = self.place();
        PyTuple::new(py, [address, size as u64])?.hash()
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let (address, size) = slf.get().place();
        let mapped = if slf.get().is_mapped { " is_mapped=True" } else { "" };
        Ok(format!("<{} ptr={address:#x} size={size}{mapped}>", slf.get_type().name()?))
    }

    // Without a `__clear__`: each cycle has an object of Python that can be changed, which ends it.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(body) = self.body.read() else { return Ok(()) };
        visit.call(&body.resource)?;
        visit.call(&body.owner)
    }
}

impl Buffer {
    /// Address and size; zeros when it is closed.
    fn place(&self) -> (u64, usize) {
        if self.is_closed() { (0, 0) } else { self.place }
    }
}
