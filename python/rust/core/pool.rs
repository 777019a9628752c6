//! Pools of the driver.

use super::body::{Body, Held};
use super::buffer::Buffer;
use super::managed::{Place, located};
use super::resource::{MemoryResource, free};
use super::{calls, current, stream};
use crate::closable::{Closable, Open};
use crate::drop_errors;
use crate::error::{Outcome, failed_of_driver, raise};
use crate::signals;
use cuda_mem::ipc::DescriptorError;
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{
    DevicePool, DriverPool, DriverPoolOptions, Location, ManagedPool, PinnedPool, PoolAccess, ResourceHandle,
    SharedResource,
};
use cuda_mem::{Context, Device, Driver, Error, Stream};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple, PyType};
use std::os::fd::{BorrowedFd, IntoRawFd};

/// What the resources over pools of the driver derive from.
#[pyclass(frozen, extends = MemoryResource, subclass, module = "cuda_mem._native.core")]
pub struct PoolBase {
    pool: Closable<Opened>,
}

#[derive(Clone)]
struct Opened {
    pool: DriverPool<Any>,
    /// The class of the buffers, if it is not Buffer itself.
    class: Option<std::sync::Arc<Py<PyType>>>,
}

/// The state of a pool. It keeps the pool.
#[pyclass(frozen, name = "_MemPoolAttributes", module = "cuda_mem.core")]
pub struct PoolAttributes {
    pool: DriverPool<Any>,
}

/// The context of a pool: the primary one of a device, or, for memory of the host, the current one. Callers release the GIL.
fn context(driver: &Driver, ordinal: Option<i32>) -> Outcome<Context> {
    match ordinal {
        Some(ordinal) => Ok(current::primary(driver, ordinal)?),
        None => match current::current(driver)? {
            Some(context) => Ok(context),
            None => Ok(current::primary(driver, 0)?),
        },
    }
}

impl PoolBase {
    /// The resource for calls of the library.
    pub fn share(slf: &Bound<'_, Self>) -> Outcome<SharedResource> {
        Ok(Self::opened(slf)?.pool.share())
    }

    #[inline]
    fn opened<'pool>(slf: &'pool Bound<'_, Self>) -> Outcome<Open<'pool, Opened>> {
        match slf.get().pool.read() {
            Ok(opened) => Ok(opened),
            Err(why) => Err(why.of(slf.get_type().name()?.to_str()?)),
        }
    }

    /// The stream of a call's argument, which must be there.
    fn stream(slf: &Bound<'_, Self>, call: &str, opened: &Opened, given: Option<&Bound<'_, PyAny>>) -> Outcome<Stream> {
        let Some(given) = given else {
            // Python's own text for a missing argument would name this class.
            let text = format!(
                "{}.{call}: the keyword argument stream is missing: pass a Stream, as Device.create_stream makes it",
                slf.get_type().name()?
            );
            return Err(PyTypeError::new_err(text).into());
        };
        stream::of_argument(given, Some(opened.pool.context()))
    }

    fn set(&self, pool: DriverPool<Any>, class: Option<Bound<'_, PyType>>) -> Outcome {
        let class = class.map(|class| std::sync::Arc::new(class.unbind()));
        *self.pool.change("MemoryResource")? = Some(Opened { pool, class });
        Ok(())
    }
}

/// An error of the system.
fn system(error: std::io::Error) -> Error {
    Error::System { call: "dup", code: error.raw_os_error().unwrap_or(0) }
}

/// The refusal of a stream that captures, in cuda.core's words.
fn capture_refused() -> crate::error::Failure {
    let text = "_MemPool cannot perform memory operations on a capturing stream (consider using GraphMemoryResource).";
    raise("CaptureError", text, None)
}

#[pymethods]
impl PoolBase {
    #[new]
    #[pyo3(signature = (*_arguments, **_options))]
    fn new(_arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> PyClassInitializer<Self> {
        PyClassInitializer::from(MemoryResource).add_subclass(Self { pool: Closable::empty() })
    }

    /// The driver's current pool of a kind.
    #[pyo3(signature = (kind, ordinal, buffer_type = None))]
    fn _open_current(
        &self,
        py: Python<'_>,
        kind: &str,
        ordinal: Option<i32>,
        buffer_type: Option<Bound<'_, PyType>>,
    ) -> Outcome {
        let pool = py.detach(|| -> Outcome<_> {
            let context = context(&calls::driver("MemoryResource")?, ordinal)?;
            let pool = match kind {
                "device" => DevicePool::current(&context)?.into_any(),
                "pinned" => PinnedPool::current(&context)?.into_any(),
                _ => ManagedPool::current(&context, None)?.into_any(),
            };
            if kind == "device" && pool.attributes()?.release_threshold == 0 {
                // As cuda.core does: otherwise each wait returns the memory to the system.
                pool.set_release_threshold(usize::MAX)?;
            }
            Ok(pool)
        })?;
        self.set(pool, buffer_type)
    }

    /// A new pool of a kind.
    #[expect(clippy::too_many_arguments, reason = "options of Python")]
    #[pyo3(signature = (kind, ordinal, max_size = 0, shareable = false, location = None, buffer_type = None))]
    fn _open_new(
        &self,
        py: Python<'_>,
        kind: &str,
        ordinal: Option<i32>,
        max_size: usize,
        shareable: bool,
        location: Option<Place>,
        buffer_type: Option<Bound<'_, PyType>>,
    ) -> Outcome {
        let mut options = DriverPoolOptions::default();
        (options.max_size, options.shareable) = ((max_size != 0).then_some(max_size), shareable);
        let pool = py.detach(|| -> Outcome<_> {
            let driver = calls::driver("MemoryResource")?;
            let location = location.map(|place| located(&driver, &place)).transpose()?;
            let context = context(&driver, ordinal)?;
            Ok(match (kind, location) {
                ("device", _) => DevicePool::new(&context, &options)?.into_any(),
                ("pinned", Some(Location::HostNuma(node))) => {
                    PinnedPool::on_numa_node(&context, node, &options)?.into_any()
                }
                ("pinned", _) => PinnedPool::new(&context, &options)?.into_any(),
                (_, location) => {
                    options.preferred_location = location;
                    ManagedPool::new(&context, &options)?.into_any()
                }
            })
        })?;
        self.set(pool, buffer_type)
    }

    /// The pool of another process, by a file descriptor, which stays the caller's.
    #[pyo3(signature = (kind, ordinal, file))]
    fn _open_file(&self, py: Python<'_>, kind: &str, ordinal: Option<i32>, file: i32) -> Outcome {
        // SAFETY: a number that is no open file is refused by the duplication.
        let file = unsafe { BorrowedFd::borrow_raw(file) }.try_clone_to_owned().map_err(PyErr::from)?;
        let pool = py.detach(|| -> Outcome<_> {
            let context = context(&calls::driver("MemoryResource")?, ordinal)?;
            Ok(match kind {
                // cuda.core takes pools of the host here too, and its tests rely on it.
                "device" => match DevicePool::import_file(&context, file.try_clone().map_err(system)?) {
                    Err(Error::Descriptor(DescriptorError::WrongPlace { .. })) => {
                        PinnedPool::import_file(&context, file)?.into_any()
                    }
                    pool => pool?.into_any(),
                },
                _ => PinnedPool::import_file(&context, file)?.into_any(),
            })
        })?;
        self.set(pool, None)
    }

    /// Allocates a Buffer of `size` bytes in order of `stream`, which is required.
    #[pyo3(signature = (size, *, stream = None), text_signature = "($self, size, *, stream)")]
    fn allocate<'py>(
        slf: &Bound<'py, Self>,
        size: usize,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> Outcome<Bound<'py, PyAny>> {
        let py = slf.py();
        drop_errors::warn(py)?;
        let opened = Self::opened(slf)?;
        let stream = Self::stream(slf, "allocate", &opened, stream)?;
        let pool = &opened.pool;
        // SAFETY: driver memory always holds bytes, and every byte is a valid `u8`.
        let allocate = || unsafe { cuda_mem::Buffer::<u8, Any>::uninit_assumed(pool, size, &stream) };
        let buffer = match signals::detach(py, allocate)? {
            Ok(buffer) => buffer,
            Err(Error::Capturing { .. }) => return Err(capture_refused()),
            Err(Error::ImportedPool { .. }) => {
                // cuda.core's words.
                let text = "Cannot allocate from a mapped IPC-enabled memory resource";
                return Err(PyTypeError::new_err(text).into());
            }
            Err(error) => return Err(failed_of_driver(&error)),
        };
        let body = Buffer::whole(buffer, slf.clone().into_any().unbind());
        match &opened.class {
            None => Ok(Bound::new(py, Buffer::new(body, false))?.into_any()),
            Some(class) => Ok(Buffer::of_class(class.bind(py), body, false)?),
        }
    }

    /// Frees memory of this pool by its address, in order of `stream`.
    #[pyo3(signature = (ptr, size, *, stream = None), text_signature = "($self, ptr, size, *, stream)")]
    fn deallocate(
        slf: &Bound<'_, Self>,
        ptr: &Bound<'_, PyAny>,
        size: usize,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Outcome {
        let opened = Self::opened(slf)?;
        let stream = Self::stream(slf, "deallocate", &opened, stream)?;
        let address = super::foreign::address(ptr)?;
        if address == 0 { Ok(()) } else { free(slf.py(), opened.pool.share(), address, size.max(1), &stream) }
    }

    /// Gives the pool up. A pool that this resource made ends with its last buffer.
    fn close(&self, py: Python<'_>) -> Outcome {
        self.pool.close(py, "MemoryResource.close")
    }

    /// Whether the resource is closed.
    #[getter]
    fn is_closed(&self) -> bool {
        self.pool.is_closed()
    }

    /// The driver's handle, a CUmemoryPool; 0 when the resource is closed.
    #[getter]
    fn handle(&self) -> usize {
        self.pool.read().map_or(0, |opened| opened.pool.raw().addr())
    }

    /// Whether the resource made or imported the pool, rather than using the driver's current one.
    #[getter]
    fn is_handle_owned(slf: &Bound<'_, Self>) -> Outcome<bool> {
        let opened = Self::opened(slf)?;
        Ok(opened.pool.is_owned() || opened.pool.is_imported())
    }

    /// Whether another process made the pool. Nothing can be allocated from it then.
    #[getter]
    fn is_mapped(&self) -> bool {
        self.pool.read().is_ok_and(|opened| opened.pool.is_imported())
    }

    /// The state of the pool.
    #[getter]
    fn attributes(slf: &Bound<'_, Self>) -> Outcome<PoolAttributes> {
        Ok(PoolAttributes { pool: Self::opened(slf)?.pool.clone() })
    }

    /// The access of a device to the pool's memory: "rw", "r" or "".
    fn _access(slf: &Bound<'_, Self>, ordinal: i32) -> Outcome<&'static str> {
        let opened = Self::opened(slf)?;
        let device = opened.pool.context().driver().device(ordinal)?;
        Ok(match opened.pool.access(&device)? {
            PoolAccess::ReadWrite => "rw",
            PoolAccess::Read => "r",
            PoolAccess::None => "",
        })
    }

    /// Gives devices access to the pool's memory, and takes it from others.
    fn _change_access(slf: &Bound<'_, Self>, added: Vec<i32>, removed: Vec<i32>) -> Outcome {
        let pool = Self::opened(slf)?.pool.clone();
        let driver = pool.context().driver();
        let devices = |ordinals: Vec<i32>| -> cuda_mem::Result<Vec<Device>> {
            ordinals.into_iter().map(|ordinal| driver.device(ordinal)).collect()
        };
        let (added, removed) = (devices(added)?, devices(removed)?);
        Ok(slf.py().detach(|| {
            added.iter().try_for_each(|device| pool.allow_access(device))?;
            removed.iter().try_for_each(|device| pool.deny_access(device))
        })?)
    }

    /// A new file descriptor, by which other processes import the pool.
    fn _export_file(slf: &Bound<'_, Self>) -> Outcome<i32> {
        Ok(Self::opened(slf)?.pool.export_file()?.into_raw_fd())
    }

    /// The 64 bytes by which another process imports a buffer of the pool.
    fn _export_pointer<'py>(slf: &Bound<'py, Self>, buffer: PyRef<'py, Buffer>) -> Outcome<Bound<'py, PyBytes>> {
        let (pool, body) = (Self::opened(slf)?.pool.clone(), buffer.open()?);
        let (address, py) = (body.address, slf.py());
        let bytes = py.detach(|| pool.export_address(address))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// A buffer of the pool of another process, by the 64 bytes that the other made.
    fn _import_pointer<'py>(
        slf: &Bound<'py, Self>,
        buffer_type: &Bound<'py, PyType>,
        bytes: [u8; 64],
        size: usize,
        stream: &Bound<'py, PyAny>,
        descriptor: Py<PyAny>,
    ) -> Outcome<Bound<'py, PyAny>> {
        let (pool, py) = (Self::opened(slf)?.pool.clone(), slf.py());
        let stream = stream::of_argument(stream, Some(pool.context()))?;
        // SAFETY: that the bytes are of a process that the program trusts is what the documentation requires.
        let imported = signals::detach(py, || unsafe { pool.import_address(&bytes, size, &stream) })?;
        let buffer = imported.map_err(super::ipc::import_refused)?;
        let body = Body {
            address: buffer.device_pointer(),
            size,
            memory: Held::Imported(buffer),
            resource: Some(slf.clone().into_any().unbind()),
            owner: None,
        };
        let imported = Buffer::of_class(buffer_type, body, true)?;
        if let Ok(buffer) = imported.cast::<Buffer>() {
            buffer.get().set_origin(slf.clone().into_any().unbind(), descriptor);
        }
        Ok(imported)
    }
}

#[pymethods]
impl PoolAttributes {
    /// Whether a free of one stream is used on another that an event orders after it.
    #[getter]
    fn reuse_follow_event_dependencies(&self) -> Outcome<bool> {
        Ok(self.pool.attributes()?.reuse_follow_event_dependencies)
    }

    /// Whether a free that is done is used on any stream.
    #[getter]
    fn reuse_allow_opportunistic(&self) -> Outcome<bool> {
        Ok(self.pool.attributes()?.reuse_allow_opportunistic)
    }

    /// Whether the driver makes a stream wait in order to use another's free.
    #[getter]
    fn reuse_allow_internal_dependencies(&self) -> Outcome<bool> {
        Ok(self.pool.attributes()?.reuse_allow_internal_dependencies)
    }

    /// The bytes that stay reserved when a wait ends.
    #[getter]
    fn release_threshold(&self) -> Outcome<usize> {
        Ok(self.pool.attributes()?.release_threshold)
    }

    /// The bytes that the pool has of the device.
    #[getter]
    fn reserved_mem_current(&self) -> Outcome<usize> {
        Ok(self.pool.attributes()?.reserved)
    }

    /// The most bytes that the pool had of the device.
    #[getter]
    fn reserved_mem_high(&self) -> Outcome<usize> {
        Ok(self.pool.attributes()?.reserved_high)
    }

    /// The bytes that buffers have.
    #[getter]
    fn used_mem_current(&self) -> Outcome<usize> {
        Ok(self.pool.attributes()?.used)
    }

    /// The most bytes that buffers had.
    #[getter]
    fn used_mem_high(&self) -> Outcome<usize> {
        Ok(self.pool.attributes()?.used_high)
    }

    fn __repr__(&self) -> Outcome<String> {
        let all = self.pool.attributes()?;
        let flag = |value: bool| if value { "True" } else { "False" };
        Ok(format!(
            "_MemPoolAttributes(release_threshold={}, reserved_mem_current={}, reserved_mem_high={}, \
             reuse_allow_internal_dependencies={}, reuse_allow_opportunistic={}, reuse_follow_event_dependencies={}, \
             used_mem_current={}, used_mem_high={})",
            all.release_threshold,
            all.reserved,
            all.reserved_high,
            flag(all.reuse_allow_internal_dependencies),
            flag(all.reuse_allow_opportunistic),
            flag(all.reuse_follow_event_dependencies),
            all.used,
            all.used_high,
        ))
    }
}
