//! Sources of memory.

use crate::buffer::Buffer;
use crate::buffer_protocol::readable;
use crate::context::{Context, context_of};
use crate::drop_errors;
use crate::error::{Outcome, cancels_by, refused, shown};
use crate::signals;
use crate::stream::with_stream;
use cuda_mem::mapped::CoherencePolicy;
use cuda_mem::memory::{self, DevicePool, DriverPoolOptions, ManagedPool, PinnedOptions, PinnedPool, VirtualOptions};
use cuda_mem_dynamic::{Memory, ResourceType, Source};
use pyo3::PyClass;
use pyo3::prelude::*;

/// A source of memory: DeviceMemory, PinnedMemory, ManagedMemory, MappedMemory, VirtualMemory, DriverPool, Pool or
/// RingPool. It cannot be made by itself.
#[pyclass(frozen, subclass, weakref, module = "cuda_mem")]
pub struct MemoryResource {
    pub source: Source,
    /// The legacy default stream, the home stream of buffers that name none.
    pub stream: cuda_mem::Stream,
    /// Whether frees neither call the driver nor wait.
    quick_frees: bool,
}

impl MemoryResource {
    fn new(resource: impl ResourceType, context: &cuda_mem::Context) -> Self {
        let source = Source::from(resource.into_resource());
        let quick_frees = matches!(source.resource, cuda_mem_dynamic::Resource::Pool(_));
        Self { source, stream: cuda_mem::Stream::legacy_default(context), quick_frees }
    }

    /// A buffer of this resource as an object.
    #[inline]
    pub fn buffer(&self, buffer: cuda_mem::Buffer<u8, memory::kind::Any>) -> Buffer {
        Buffer::new(Memory::new(buffer), self.quick_frees)
    }

    /// An object of a subclass.
    pub fn init<S: PyClass<BaseType = Self>>(
        subclass: S,
        resource: impl ResourceType,
        context: &cuda_mem::Context,
    ) -> PyClassInitializer<S> {
        PyClassInitializer::from(Self::new(resource, context)).add_subclass(subclass)
    }
}

#[pymethods]
impl MemoryResource {
    /// Allocates `size` bytes, whose contents are undefined. `stream` becomes the buffer's home stream, in whose order it
    /// is used and freed: a Stream, an object with `__cuda_stream__`, or None for the legacy default stream. A size of 0
    /// is allowed. Raises OutOfMemoryError if there is no room.
    #[pyo3(signature = (size, *, stream = None))]
    fn allocate(&self, py: Python<'_>, size: usize, stream: Option<&Bound<'_, PyAny>>) -> Outcome<Buffer> {
        drop_errors::warn(py)?;
        with_stream(stream, &self.stream, |stream| {
            Ok(self.buffer(signals::detach(py, || self.source.allocate(size, stream))??))
        })
    }

    /// Allocates memory for the bytes of an object with the buffer protocol, such as bytes or a contiguous numpy array, and
    /// copies them. The copy is done when this returns.
    #[pyo3(signature = (data, *, stream = None))]
    fn copy_of(&self, py: Python<'_>, data: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> Outcome<Buffer> {
        let view = readable("data", data)?;
        let buffer = self.allocate(py, view.len(), stream)?;
        buffer.write(py, 0, &view)?;
        Ok(buffer)
    }

    /// The context.
    #[getter]
    fn context(&self) -> Context {
        Context { inner: self.stream.context().clone().into() }
    }

    /// Whether the CPU addresses the memory.
    #[getter]
    fn is_host_accessible(&self) -> bool {
        self.source.share().accessibility().host
    }

    /// Whether devices address the memory.
    #[getter]
    fn is_device_accessible(&self) -> bool {
        self.source.share().accessibility().device
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let ordinal = slf.get().stream.context().device().ordinal();
        Ok(format!("{}(device={ordinal})", slf.get_type().name()?))
    }
}

/// Memory of a device, each allocation by the driver (cuMemAlloc). A Pool over it is a thousand times faster.
///
/// >>> memory = cuda_mem.DeviceMemory()
/// >>> memory.copy_of(b"abc").to_bytes()
/// b'abc'
#[pyclass(frozen, extends = MemoryResource, module = "cuda_mem")]
pub struct DeviceMemory;

#[pymethods]
impl DeviceMemory {
    /// `context` is a Context, a Device, an ordinal, or None for device 0.
    #[new]
    #[pyo3(signature = (context = None))]
    fn new(py: Python<'_>, context: Option<&Bound<'_, PyAny>>) -> Outcome<PyClassInitializer<Self>> {
        let context = context_of(py, context)?;
        Ok(MemoryResource::init(Self, memory::DeviceMemory::new(&context), &context))
    }
}

/// Page-locked memory of the host, which devices access directly.
///
/// >>> buffer = cuda_mem.PinnedMemory().copy_of(b"abc")
/// >>> bytes(buffer)
/// b'abc'
#[pyclass(frozen, extends = MemoryResource, module = "cuda_mem")]
pub struct PinnedMemory;

#[pymethods]
impl PinnedMemory {
    /// `write_combined` memory is written fast and read slowly by the CPU. `progress(done, total)` is called in bytes while
    /// 256 MiB or more are allocated: the first half is done when the pages exist, the second when they are locked. An
    /// exception from it cancels the allocation and is raised there.
    #[new]
    #[pyo3(signature = (context = None, *, write_combined = false, progress = None))]
    fn new(
        py: Python<'_>,
        context: Option<&Bound<'_, PyAny>>,
        write_combined: bool,
        progress: Option<Bound<'_, PyAny>>,
    ) -> Outcome<PyClassInitializer<Self>> {
        if let Some(progress) = progress.as_ref().filter(|progress| !progress.is_callable()) {
            return Err(refused(format!("progress is {}, but it must be callable", shown(progress))));
        }
        let context = context_of(py, context)?;
        let mut options = PinnedOptions::default();
        options.write_combined = write_combined;
        let source = match progress.map(Bound::unbind) {
            None => memory::PinnedMemory::with_options(&context, options),
            Some(progress) => {
                let hear =
                    move |done: usize, total: usize| cancels_by(|py| progress.call1(py, (done, total)).map(drop));
                memory::PinnedMemory::on_progress(&context, options, hear)
            }
        };
        Ok(MemoryResource::init(Self, source, &context))
    }
}

/// Memory that the driver moves between the host and devices.
#[pyclass(frozen, extends = MemoryResource, module = "cuda_mem")]
pub struct ManagedMemory;

#[pymethods]
impl ManagedMemory {
    /// Raises UnsupportedError if the device has none.
    #[new]
    #[pyo3(signature = (context = None))]
    fn new(py: Python<'_>, context: Option<&Bound<'_, PyAny>>) -> Outcome<PyClassInitializer<Self>> {
        let context = context_of(py, context)?;
        let managed = py.detach(|| memory::ManagedMemory::new(&context))?;
        Ok(MemoryResource::init(Self, managed, &context))
    }
}

/// Memory of a device that the CPU addresses directly, over vkgdr. The CPU's stores reach the device without a copy of the
/// driver. Call Buffer.flush after the CPU has written, and Buffer.invalidate before it reads what the device wrote.
///
/// >>> buffer = cuda_mem.MappedMemory().allocate(4096)
/// >>> memoryview(buffer)[:3] = b"abc"
/// >>> buffer.flush(0, 3)
/// >>> buffer.to_bytes(0, 3)
/// b'abc'
#[pyclass(frozen, extends = MemoryResource, module = "cuda_mem")]
pub struct MappedMemory;

#[pymethods]
impl MappedMemory {
    /// `coherence` is "preferred", "required" for memory that is coherent by itself, or else an error, or
    /// "force_non_coherent", which finds missing flushes.
    #[new]
    #[pyo3(signature = (context = None, *, coherence = "preferred"))]
    fn new(py: Python<'_>, context: Option<&Bound<'_, PyAny>>, coherence: &str) -> Outcome<PyClassInitializer<Self>> {
        let policy = match coherence {
            "preferred" => CoherencePolicy::Preferred,
            "required" => CoherencePolicy::Required,
            "force_non_coherent" => CoherencePolicy::ForcedNonCoherent,
            other => {
                let text = format!(
                    "coherence is {other:?}, but it must be \"preferred\", \"required\" or \"force_non_coherent\""
                );
                return Err(refused(text));
            }
        };
        let context = context_of(py, context)?;
        let mapped = py.detach(|| cuda_mem::MappedMemory::with_coherence(&context, policy))?;
        Ok(MemoryResource::init(Self, mapped, &context))
    }
}

/// Physical memory of a device at reserved addresses: buffers that grow without a copy.
///
/// >>> buffer = cuda_mem.VirtualMemory().allocate_growable(1 << 30)
/// >>> buffer.grow_to(1 << 21)
/// False
/// >>> buffer.size
/// 2097152
#[pyclass(frozen, extends = MemoryResource, module = "cuda_mem")]
pub struct VirtualMemory;

#[pymethods]
impl VirtualMemory {
    #[new]
    #[pyo3(signature = (context = None))]
    fn new(py: Python<'_>, context: Option<&Bound<'_, PyAny>>) -> Outcome<PyClassInitializer<Self>> {
        let context = context_of(py, context)?;
        let memory = py.detach(|| memory::VirtualMemory::new(&context, &VirtualOptions::default()))?;
        Ok(MemoryResource::init(Self, memory.into_any(), &context))
    }

    /// Makes a buffer of 0 bytes that grows to `capacity` bytes without moving, by Buffer.grow_to, and beyond that by a move.
    #[pyo3(signature = (capacity, *, stream = None))]
    fn allocate_growable(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        capacity: usize,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Outcome<Buffer> {
        let resource = slf.as_super();
        let Some(memory) = memory::VirtualMemory::of(&resource.source.resource) else {
            return Err(refused("this object is not virtual memory"));
        };
        with_stream(stream, &resource.stream, |stream| {
            Ok(Buffer::new(py.detach(|| Memory::growable(memory, capacity, stream))?, false))
        })
    }
}

/// A pool of the driver (cuMemAllocAsync), as other libraries use it.
#[pyclass(frozen, extends = MemoryResource, module = "cuda_mem")]
pub struct DriverPool;

#[pymethods]
impl DriverPool {
    /// `kind` is "device", "pinned" or "managed". A pool with `maximum` bytes, or one that is `own`, is a new pool;
    /// otherwise it is the one that the driver has for everybody. `release_threshold` is how many unused bytes a new pool
    /// keeps at each synchronization.
    #[new]
    #[pyo3(signature = (context = None, kind = "device", *, own = false, maximum = None, release_threshold = 0))]
    fn new(
        py: Python<'_>,
        context: Option<&Bound<'_, PyAny>>,
        kind: &str,
        own: bool,
        maximum: Option<usize>,
        release_threshold: usize,
    ) -> Outcome<PyClassInitializer<Self>> {
        let context = context_of(py, context)?;
        let mut options = DriverPoolOptions::default();
        (options.max_size, options.release_threshold) = (maximum, release_threshold);
        let own = own || maximum.is_some() || release_threshold != 0;
        let pool = py.detach(|| {
            Ok::<_, cuda_mem::Error>(Some(match (kind, own) {
                ("device", false) => DevicePool::current(&context)?.into_any(),
                ("device", true) => DevicePool::new(&context, &options)?.into_any(),
                ("pinned", false) => PinnedPool::current(&context)?.into_any(),
                ("pinned", true) => PinnedPool::new(&context, &options)?.into_any(),
                ("managed", false) => ManagedPool::current(&context, None)?.into_any(),
                ("managed", true) => ManagedPool::new(&context, &options)?.into_any(),
                _ => return Ok(None),
            }))
        })?;
        match pool {
            Some(pool) => Ok(MemoryResource::init(Self, pool, &context)),
            None => Err(refused(format!("kind is {kind:?}, but it must be \"device\", \"pinned\" or \"managed\""))),
        }
    }

    /// Returns unused memory to the device, but keeps `keep` bytes.
    #[pyo3(signature = (keep = 0))]
    fn trim_to(slf: PyRef<'_, Self>, py: Python<'_>, keep: usize) -> Outcome {
        match memory::DriverPool::of(&slf.as_super().source.resource) {
            Some(pool) => Ok(py.detach(|| pool.trim_to(keep))?),
            None => Err(refused("this object is not a pool of the driver")),
        }
    }
}
