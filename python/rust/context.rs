//! Drivers, devices and contexts.

use crate::detached::Detached;
use crate::drop_errors;
use crate::error::{Outcome, shown};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The CUDA driver of this process. All methods raise DriverError with the driver's code where it refuses.
///
/// The driver is the system's libcuda.so.1, or what the environment variable CUDA_MEM_LIBCUDA names, as
/// `python -m cuda_mem.softgpu run -- program` does.
///
/// >>> cuda_mem.Driver().device_count >= 1
/// True
#[pyclass(frozen, module = "cuda_mem")]
pub struct Driver {
    pub inner: cuda_mem::Driver,
}

#[pymethods]
impl Driver {
    /// Loads and starts the driver, once in a process. LoadError says where it was searched for.
    #[new]
    fn new(py: Python<'_>) -> Outcome<Self> {
        Ok(Self { inner: py.detach(cuda_mem::Driver::load)? })
    }

    /// The path or name of the library.
    #[getter]
    fn library(&self) -> String {
        self.inner.provider().library.to_string()
    }

    /// The CUDA release that the driver serves, as (major, minor); None if it does not say.
    #[getter]
    fn release(&self) -> Option<(u32, u32)> {
        self.inner.provider().version.map(|release| (release.major(), release.minor()))
    }

    /// Whether the driver is the software GPU.
    #[getter]
    fn is_software(&self) -> bool {
        self.inner.is_software()
    }

    /// The number of devices.
    #[getter]
    fn device_count(&self, py: Python<'_>) -> Outcome<usize> {
        Ok(py.detach(|| self.inner.device_count())?)
    }

    /// What vkgdr finds on this machine for mapped memory, as JSON.
    fn describe_vkgdr(&self, py: Python<'_>) -> Outcome<String> {
        Ok(py.detach(|| self.inner.describe_vkgdr())?)
    }

    fn __repr__(&self) -> String {
        format!("Driver({:?})", self.library())
    }
}

/// A device, by its ordinal, which begins at 0.
///
/// >>> cuda_mem.Device(0).name != ""
/// True
#[pyclass(frozen, module = "cuda_mem", eq, hash)]
#[derive(Clone)]
pub struct Device {
    pub inner: cuda_mem::Device,
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl core::hash::Hash for Device {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.inner.ordinal().hash(state);
    }
}

#[pymethods]
impl Device {
    /// Raises DriverError if there is no device of that ordinal.
    #[new]
    #[pyo3(signature = (ordinal = 0))]
    fn new(py: Python<'_>, ordinal: i32) -> Outcome<Self> {
        Ok(Self { inner: py.detach(|| cuda_mem::Driver::load()?.device(ordinal))? })
    }

    /// The ordinal.
    #[getter]
    fn ordinal(&self) -> i32 {
        self.inner.ordinal()
    }

    /// The name, such as "NVIDIA H100".
    #[getter]
    fn name(&self, py: Python<'_>) -> Outcome<String> {
        Ok(py.detach(|| self.inner.name())?)
    }

    /// The UUID, in the form that CUDA_VISIBLE_DEVICES takes.
    #[getter]
    fn uuid(&self, py: Python<'_>) -> Outcome<String> {
        Ok(py.detach(|| self.inner.uuid())?.to_string())
    }

    /// The place on the PCI bus.
    #[getter]
    fn pci_bus_id(&self, py: Python<'_>) -> Outcome<String> {
        Ok(py.detach(|| self.inner.pci_bus_id())?)
    }

    /// The memory in bytes.
    #[getter]
    fn total_memory(&self, py: Python<'_>) -> Outcome<usize> {
        Ok(py.detach(|| self.inner.total_memory())?)
    }

    /// Whether this device may access the other's memory directly.
    fn can_access_peer(&self, py: Python<'_>, other: PyRef<'_, Device>) -> Outcome<bool> {
        let other = other.inner.clone();
        Ok(py.detach(|| self.inner.can_access_peer(&other))?)
    }

    fn __int__(&self) -> i32 {
        self.inner.ordinal()
    }

    fn __repr__(&self) -> String {
        format!("Device({})", self.inner.ordinal())
    }
}

/// The primary context of a device, which PyTorch, CuPy and all libraries of the CUDA runtime share.
///
/// >>> context = cuda_mem.Context(0)
/// >>> context.memory_info()["free"] > 0
/// True
#[pyclass(frozen, weakref, module = "cuda_mem")]
pub struct Context {
    pub inner: Detached<cuda_mem::Context>,
}

/// The context of an argument: a Context, a Device, an ordinal, or None for device 0.
pub fn context_of(py: Python<'_>, argument: Option<&Bound<'_, PyAny>>) -> Outcome<cuda_mem::Context> {
    let Some(argument) = argument.filter(|argument| !argument.is_none()) else { return open(py, 0) };
    if let Ok(context) = argument.cast::<Context>() {
        return Ok(context.get().inner.clone());
    }
    if let Ok(device) = argument.cast::<Device>() {
        let device = device.get().inner.clone();
        return primary(py, &device);
    }
    let ordinal = argument.extract::<i32>().map_err(|_| {
        let text = format!("context must be a Context, a Device, an ordinal, or None, not {}", shown(argument));
        pyo3::exceptions::PyTypeError::new_err(text)
    })?;
    open(py, ordinal)
}

/// The primary context of a device.
pub fn open(py: Python<'_>, ordinal: i32) -> Outcome<cuda_mem::Context> {
    primary(py, &py.detach(|| cuda_mem::Driver::load()?.device(ordinal))?)
}

fn primary(py: Python<'_>, device: &cuda_mem::Device) -> Outcome<cuda_mem::Context> {
    let context = py.detach(|| device.primary_context())?;
    drop_errors::collect(&context);
    Ok(context)
}

#[pymethods]
impl Context {
    /// `device` is a Device or an ordinal.
    #[new]
    #[pyo3(signature = (device = None))]
    fn new(py: Python<'_>, device: Option<&Bound<'_, PyAny>>) -> Outcome<Self> {
        Ok(Self { inner: context_of(py, device)?.into() })
    }

    /// The device.
    #[getter]
    fn device(&self) -> Device {
        Device { inner: self.inner.device().clone() }
    }

    /// The driver's handle, a CUcontext.
    #[getter]
    fn handle(&self) -> usize {
        self.inner.raw().addr()
    }

    /// Waits for all work of the context. Handlers of signals, as that of Ctrl-C, run after the wait: to end it, wait for the
    /// streams first.
    fn synchronize(&self, py: Python<'_>) -> Outcome {
        Ok(py.detach(|| self.inner.synchronize())?)
    }

    /// The device's memory in bytes: {"free": ..., "total": ...}.
    fn memory_info<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyDict>> {
        let info = py.detach(|| self.inner.memory_info())?;
        let answer = PyDict::new(py);
        answer.set_item("free", info.free)?;
        answer.set_item("total", info.total)?;
        Ok(answer)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Context>().is_ok_and(|other| *other.get().inner == *self.inner)
    }

    fn __hash__(&self) -> isize {
        self.inner.raw().addr() as isize
    }

    fn __repr__(&self) -> String {
        format!("Context(device={})", self.inner.device().ordinal())
    }
}
