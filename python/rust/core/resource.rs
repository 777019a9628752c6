//! Memory resources: the base of those that are written in Python, and those over cuda-mem's sources.

use super::buffer::Buffer;
use super::calls::checked;
use super::current::{self, needed};
use super::{calls, stream};
use crate::drop_errors;
use crate::error::{Outcome, failed_of_driver, raise};
use crate::signals;
use cuda_mem::cuda_sys::{CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemLocationType};
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{
    Block, DeviceMemory, Granularity, GraphMemory, PhysicalMemory, PinnedMemory, SharedResource, VirtualMemory,
    VirtualOptions,
};
use cuda_mem::{Context, Stream};
use cuda_mem_dynamic::{Resource, ResourceType, Source};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::OnceLock;

/// Abstract base of memory resources. A subclass defines `allocate`, which returns `Buffer.from_handle(..., mr=self)`,
/// `deallocate` and the properties.
#[pyclass(frozen, weakref, subclass, module = "cuda_mem.core")]
pub struct MemoryResource;

fn abstract_member<T>(name: &str) -> PyResult<T> {
    Err(PyTypeError::new_err(format!("MemoryResource.{name} must be implemented by subclasses.")))
}

#[pymethods]
impl MemoryResource {
    #[new]
    #[pyo3(signature = (*_arguments, **_options))]
    fn new(_arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> Self {
        Self
    }

    /// Allocates a Buffer of `size` bytes in order of `stream`.
    #[pyo3(signature = (size, *, stream))]
    fn allocate(&self, size: usize, stream: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let _ = (size, stream);
        abstract_member("allocate")
    }

    /// Frees what a Buffer of this resource had, in order of `stream`.
    #[pyo3(signature = (ptr, size, *, stream))]
    fn deallocate(&self, ptr: &Bound<'_, PyAny>, size: usize, stream: &Bound<'_, PyAny>) -> PyResult<()> {
        let _ = (ptr, size, stream);
        abstract_member("deallocate")
    }

    /// Whether devices address the memory.
    #[getter]
    fn is_device_accessible(&self) -> PyResult<bool> {
        abstract_member("is_device_accessible")
    }

    /// Whether the CPU addresses the memory.
    #[getter]
    fn is_host_accessible(&self) -> PyResult<bool> {
        abstract_member("is_host_accessible")
    }

    /// Whether the driver moves the memory between the host and devices.
    #[getter]
    fn is_managed(&self) -> bool {
        false
    }

    /// The ordinal of the device.
    #[getter]
    fn device_id(&self) -> PyResult<i32> {
        abstract_member("device_id")
    }
}

/// What the resources over cuda-mem's sources without a pool derive from.
#[pyclass(frozen, extends = MemoryResource, subclass, module = "cuda_mem._native.core")]
pub struct SourceBase {
    source: OnceLock<Opened>,
}

struct Opened {
    source: Source,
    context: Context,
}

impl SourceBase {
    fn set(&self, context: &Context, resource: impl ResourceType) {
        let source = Source::from(resource.into_resource());
        let _ = self.source.set(Opened { source, context: context.clone() });
    }

    fn opened(&self) -> Outcome<&Opened> {
        self.source.get().ok_or_else(|| {
            let text = "the memory resource is not initialized: call super().__init__(...) first";
            PyRuntimeError::new_err(text).into()
        })
    }

    /// The resource for calls of the library.
    pub fn share(&self) -> Outcome<SharedResource> {
        Ok(self.opened()?.source.share())
    }

    fn graph(&self) -> Outcome<&GraphMemory> {
        GraphMemory::of(&self.opened()?.source.resource)
            .ok_or_else(|| PyTypeError::new_err("the memory resource is not of graphs").into())
    }

    fn virtual_memory(&self) -> Outcome<&VirtualMemory<Any>> {
        match &self.opened()?.source.resource {
            Resource::Virtual(memory) => Ok(memory),
            _ => Err(PyTypeError::new_err("the memory resource is not of virtual memory").into()),
        }
    }

    /// The stream of an argument, or the legacy default stream.
    fn stream(&self, stream: Option<&Bound<'_, PyAny>>) -> Outcome<Stream> {
        let context = &self.opened()?.context;
        match stream {
            Some(stream) => stream::of_argument(stream, Some(context)),
            None => Ok(Stream::legacy_default(context)),
        }
    }
}

/// Frees memory by its address in order of a stream.
pub fn free(py: Python<'_>, resource: SharedResource, address: u64, size: usize, stream: &Stream) -> Outcome {
    let block = match resource.accessibility().host {
        true => Block::unified(core::ptr::with_exposed_provenance_mut(address as usize), size),
        false => Block::device(address, size),
    };
    // SAFETY: the caller of `deallocate` owns memory of this resource, and does not use it any more.
    Ok(py.detach(|| unsafe { resource.deallocate(block, stream) })?)
}

#[pymethods]
impl SourceBase {
    #[new]
    #[pyo3(signature = (*_arguments, **_options))]
    fn new(_arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> PyClassInitializer<Self> {
        PyClassInitializer::from(MemoryResource).add_subclass(Self { source: OnceLock::new() })
    }

    /// Page-locked memory.
    fn _open_pinned(&self) -> Outcome {
        let context = needed("LegacyPinnedMemoryResource")?;
        self.set(&context, PinnedMemory::new(&context));
        Ok(())
    }

    /// Memory of a device, each allocation by the driver.
    fn _open_device(&self, py: Python<'_>, ordinal: i32) -> Outcome {
        let context = py.detach(|| current::primary(&calls::driver("MemoryResource")?, ordinal))?;
        self.set(&context, DeviceMemory::new(&context));
        Ok(())
    }

    /// Memory of a device's graphs.
    fn _open_graph(&self, py: Python<'_>, ordinal: i32) -> Outcome {
        let context = py.detach(|| current::primary(&calls::driver("GraphMemoryResource")?, ordinal))?;
        // SAFETY: that buffers which leave a capture are used after a launch of their graph only is cuda.core's own rule,
        // which `GraphMemoryResource` states.
        self.set(&context, unsafe { GraphMemory::new(&context) });
        Ok(())
    }

    /// Virtual memory of a device (`node` None), of the host (-1) or of a node of the host.
    #[expect(clippy::too_many_arguments, reason = "options of Python")]
    #[pyo3(signature = (ordinal, *, node, shareable, gpu_direct_rdma, minimum, alignment, address_hint, peers))]
    fn _open_virtual(
        &self,
        py: Python<'_>,
        ordinal: i32,
        node: Option<i32>,
        shareable: bool,
        gpu_direct_rdma: bool,
        minimum: bool,
        alignment: usize,
        address_hint: u64,
        peers: Vec<i32>,
    ) -> Outcome {
        let mut options = VirtualOptions::default();
        (options.shareable, options.gpu_direct_rdma) = (shareable, gpu_direct_rdma);
        (options.alignment, options.address_hint) = (alignment, address_hint);
        options.granularity = if minimum { Granularity::Minimum } else { Granularity::Recommended };
        let (context, memory) = py.detach(|| {
            let driver = calls::driver("VirtualMemoryResource")?;
            let context = current::primary(&driver, ordinal)?;
            options.peers = peers.into_iter().map(|peer| driver.device(peer)).collect::<cuda_mem::Result<_>>()?;
            let memory = match node {
                None => VirtualMemory::new(&context, &options)?.into_any(),
                Some(-1) => VirtualMemory::host(&context, &options)?.into_any(),
                Some(node) => VirtualMemory::host_numa(&context, node, &options)?.into_any(),
            };
            Ok::<_, cuda_mem::Error>((context, memory))
        })?;
        self.set(&context, memory);
        Ok(())
    }

    /// Allocates `size` bytes.
    #[pyo3(signature = (size, stream, resource = None))]
    fn _allocate<'py>(
        slf: &Bound<'py, Self>,
        size: usize,
        stream: Option<&Bound<'py, PyAny>>,
        resource: Option<Bound<'py, PyAny>>,
    ) -> Outcome<Buffer> {
        let (py, this) = (slf.py(), slf.get());
        drop_errors::warn(py)?;
        let (stream, opened) = (this.stream(stream)?, this.opened()?);
        if matches!(opened.source.resource, Resource::Graph(_)) && !stream.is_capturing()? {
            // cuda.core's words.
            let text = "GraphMemoryResource cannot perform memory operations on a non-capturing stream.";
            return Err(raise("CaptureError", text, None));
        }
        let buffer =
            signals::detach(py, || opened.source.allocate(size, &stream))?.map_err(|error| failed_of_driver(&error))?;
        let resource = resource.unwrap_or_else(|| slf.clone().into_any());
        Ok(Buffer::new(Buffer::whole(buffer, resource.unbind()), false))
    }

    /// Frees memory by its address.
    fn _deallocate(&self, py: Python<'_>, address: u64, size: usize, stream: Option<&Bound<'_, PyAny>>) -> Outcome {
        let stream = self.stream(stream)?;
        if size == 0 { Ok(()) } else { free(py, self.share()?, address, size, &stream) }
    }

    /// Returns memory that no graph uses to the system.
    fn _trim(&self, py: Python<'_>) -> Outcome {
        let graph = self.graph()?;
        Ok(py.detach(|| graph.trim())?)
    }

    /// The bytes that graphs have: used, the most used, reserved, the most reserved.
    fn _graph_attributes(&self, py: Python<'_>) -> Outcome<(usize, usize, usize, usize)> {
        let graph = self.graph()?;
        let all = py.detach(|| graph.attributes())?;
        Ok((all.used, all.used_high, all.reserved, all.reserved_high))
    }

    /// Resets both maxima.
    fn _reset_high_marks(&self, py: Python<'_>) -> Outcome {
        let graph = self.graph()?;
        Ok(py.detach(|| graph.reset_high_marks())?)
    }

    /// The unit of virtual memory in bytes.
    fn _granularity(&self) -> Outcome<usize> {
        Ok(self.virtual_memory()?.granularity())
    }

    /// A second mapping of a buffer of virtual memory, with `added` bytes more at its end.
    fn _extend(&self, py: Python<'_>, buffer: PyRef<'_, Buffer>, added: usize, resource: Py<PyAny>) -> Outcome<Buffer> {
        let (memory, opened) = (self.virtual_memory()?, self.opened()?);
        let body = buffer.open()?;
        let super::body::Held::Whole(whole) = &body.memory else {
            return Err(PyTypeError::new_err("the buffer is not of virtual memory").into());
        };
        let extended = signals::detach(py, || {
            let mut chunks = memory.physical_memory(whole);
            if chunks.is_empty() {
                return Ok(None);
            }
            chunks.push(PhysicalMemory::new(&opened.context, added, memory.physical_options())?);
            // SAFETY: both buffers are raw bytes, and whether their uses may overlap is the program's to say.
            unsafe { memory.map(&chunks, &Stream::legacy_default(&opened.context)) }.map(Some)
        })??;
        let Some(extended) = extended else {
            return Err(PyTypeError::new_err("the buffer is not of this VirtualMemoryResource").into());
        };
        Ok(Buffer::new(Buffer::whole(extended.into_any(), resource), false))
    }

    /// Sets the access of a device to a buffer of virtual memory: "rw", "r" or None.
    #[pyo3(signature = (buffer, ordinal, access))]
    fn _set_access(&self, buffer: PyRef<'_, Buffer>, ordinal: i32, access: Option<&str>) -> Outcome {
        let body = buffer.open()?;
        let description = CUmemAccessDesc {
            location: CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: ordinal },
            flags: match access {
                Some("rw") => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                Some("r") => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ,
                None => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
                Some(other) => return Err(PyValueError::new_err(format!("Unknown access spec: {other:?}")).into()),
            },
        };
        let cuda = self.opened()?.context.driver().raw();
        // SAFETY: the description is readable, and the mapping lives as long as the open buffer.
        checked("cuMemSetAccess", unsafe { cuda.cuMemSetAccess(body.address, body.size, &description, 1) })
    }
}
