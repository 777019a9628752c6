//! The current context of a thread, and devices by their ordinals.

use super::calls::{answer, checked, driver};
use crate::context::Context;
use crate::drop_errors;
use crate::error::Outcome;
use core::cell::RefCell;
use core::ptr;
use cuda_mem::cuda_sys::{CUcontext, CUdevice_attribute, CUresult};
use cuda_mem::{Device, Driver};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

thread_local! {
    /// The primary contexts that this thread has met. Each keeps its context.
    static KNOWN: RefCell<Vec<cuda_mem::Context>> = const { RefCell::new(Vec::new()) };
}

/// The context of a handle of the driver, which is of a context that lives.
pub fn known(driver: &Driver, raw: CUcontext) -> cuda_mem::Result<cuda_mem::Context> {
    let found = KNOWN.with_borrow(|known| known.iter().find(|context| context.raw() == raw).cloned());
    if let Some(context) = found {
        return Ok(context);
    }
    // SAFETY: the driver has just named it. A program that destroys a context in use breaks cuda.core's own rule.
    let context = unsafe { cuda_mem::Context::borrow_raw(driver, raw) }?;
    drop_errors::collect(&context);
    // A primary context that nobody uses is another one, and stays unused.
    if is_active(context.device())? {
        let primary = primary(driver, context.device().ordinal())?;
        if primary.raw() == raw {
            return Ok(primary);
        }
    }
    Ok(context)
}

/// Whether somebody in this process uses the device's primary context.
fn is_active(device: &Device) -> cuda_mem::Result<bool> {
    let (cuda, mut flags, mut active) = (device.driver().raw(), 0, 0);
    // SAFETY: both are writable.
    answer("cuDevicePrimaryCtxGetState", unsafe {
        cuda.cuDevicePrimaryCtxGetState(device.raw(), &mut flags, &mut active)
    })?;
    Ok(active != 0)
}

/// The primary context of a device. Its first use in a process takes 100 ms and more: callers release the GIL.
pub fn primary(driver: &Driver, ordinal: i32) -> cuda_mem::Result<cuda_mem::Context> {
    let is_it = |context: &&cuda_mem::Context| context.device().ordinal() == ordinal;
    let found = KNOWN.with_borrow(|known| known.iter().find(is_it).cloned());
    if let Some(context) = found {
        return Ok(context);
    }
    let context = driver.device(ordinal)?.primary_context()?;
    drop_errors::collect(&context);
    KNOWN.with_borrow_mut(|known| known.push(context.clone()));
    Ok(context)
}

/// The current context of this thread, if there is one.
pub fn current(driver: &Driver) -> Outcome<Option<cuda_mem::Context>> {
    let (cuda, mut raw) = (driver.raw(), ptr::null_mut());
    // SAFETY: `raw` is writable.
    checked("cuCtxGetCurrent", unsafe { cuda.cuCtxGetCurrent(&mut raw) })?;
    if raw.is_null() { Ok(None) } else { Ok(Some(known(driver, raw)?)) }
}

/// The current context of this thread, or an exception that says what to do.
pub fn needed(call: &'static str) -> Outcome<cuda_mem::Context> {
    let driver = driver(call)?;
    current(&driver)?.ok_or_else(|| {
        PyRuntimeError::new_err("no CUDA context is current on this thread: call Device.set_current() first").into()
    })
}

/// The number of devices.
#[pyfunction]
pub fn device_count(py: Python<'_>) -> Outcome<usize> {
    Ok(py.detach(|| driver("device_count")?.device_count())?)
}

/// An attribute of a device, by its number in the driver's enumeration; None if the driver does not know it.
#[pyfunction]
pub fn device_attribute(py: Python<'_>, ordinal: i32, attribute: u32) -> Outcome<Option<i32>> {
    let value = py.detach(|| driver("device_attribute")?.device(ordinal)?.attribute(CUdevice_attribute(attribute)));
    match value {
        Err(error) if error.driver_code() == Some(CUresult::CUDA_ERROR_INVALID_VALUE) => Ok(None),
        value => Ok(Some(value?)),
    }
}

/// Whether a device has pools of the driver.
#[pyfunction]
pub fn can_use_pools(py: Python<'_>, ordinal: i32) -> Outcome<bool> {
    let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED.0;
    Ok(device_attribute(py, ordinal, attribute)?.is_some_and(|value| value != 0))
}

/// The current context of this thread, or None.
#[pyfunction]
pub fn current_context() -> Outcome<Option<Context>> {
    Ok(current(&driver("current_context")?)?.map(|inner| Context { inner: inner.into() }))
}

/// Makes a context current on this thread, or none.
#[pyfunction]
#[pyo3(signature = (context))]
pub fn set_current_context(context: Option<PyRef<'_, Context>>) -> Outcome {
    let driver = driver("set_current_context")?;
    let raw = context.map_or(ptr::null_mut(), |context| context.inner.raw());
    // SAFETY: the context lives: the object has it, and the program keeps it while it is current.
    checked("cuCtxSetCurrent", unsafe { driver.raw().cuCtxSetCurrent(raw) })
}

/// The primary context of a device. The thread keeps it.
#[pyfunction]
pub fn primary_context(py: Python<'_>, ordinal: i32) -> Outcome<Context> {
    Ok(Context { inner: py.detach(|| primary(&driver("primary_context")?, ordinal))?.into() })
}

/// A new context of a device, beside the primary one.
#[pyfunction]
pub fn create_context(py: Python<'_>, ordinal: i32) -> Outcome<Context> {
    let inner = py.detach(|| driver("create_context")?.device(ordinal)?.create_context())?;
    drop_errors::collect(&inner);
    Ok(Context { inner: inner.into() })
}

/// Waits for all work of the current context.
#[pyfunction]
pub fn synchronize_current(py: Python<'_>) -> Outcome {
    let context = needed("Device.sync")?;
    Ok(py.detach(|| context.synchronize())?)
}

/// The context of a stream, by the stream's handle.
#[pyfunction]
pub fn context_of_stream(handle: usize) -> Outcome<Context> {
    Ok(Context { inner: of_stream(handle)?.into() })
}

/// The context of a stream that lives.
pub fn of_stream(handle: usize) -> Outcome<cuda_mem::Context> {
    let driver = driver("cuStreamGetCtx")?;
    let mut raw = ptr::null_mut();
    // SAFETY: `raw` is writable. The caller's stream lives.
    checked("cuStreamGetCtx", unsafe {
        driver.raw().cuStreamGetCtx(ptr::with_exposed_provenance_mut(handle), &mut raw)
    })?;
    if raw.is_null() {
        return Err(PyValueError::new_err(format!("the stream {handle:#x} has no context")).into());
    }
    Ok(known(&driver, raw)?)
}
