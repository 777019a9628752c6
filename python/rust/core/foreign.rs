//! Memory by its address, which another library, a resource of Python, or nobody owns.

use super::body::{Body, Held};
use super::resource::MemoryResource;
use super::{calls, current};
use crate::error::{Outcome, shown};
use cuda_mem::memory::{Accessibility, PointerInfo};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyFloat;

/// What the arguments of Buffer.from_handle say.
pub fn body_of(
    ptr: &Bound<'_, PyAny>,
    size: usize,
    mr: Option<Bound<'_, PyAny>>,
    owner: Option<Bound<'_, PyAny>>,
    stream: Option<Bound<'_, PyAny>>,
) -> Outcome<Body> {
    let py = ptr.py();
    if mr.is_some() && owner.is_some() {
        let text = "Buffer.from_handle: owner and memory resource cannot be both specified together: pass mr if it frees \
                    the memory, or owner if that does";
        return Err(PyValueError::new_err(text).into());
    }
    let mut context = None;
    match &mr {
        None if stream.is_some() => {
            return Err(PyValueError::new_err(
                "Buffer.from_handle: stream requires a memory resource (mr), whose deallocate takes it",
            )
            .into());
        }
        Some(mr) if !mr.is_instance_of::<MemoryResource>() => {
            let text = format!(
                "Buffer.from_handle: mr is {}, but it must be a cuda_mem.core.MemoryResource, whose deallocate frees the \
                 memory: derive a class from it, or pass the object as owner",
                shown(mr)
            );
            return Err(PyTypeError::new_err(text).into());
        }
        // Memory of the host alone needs no driver.
        Some(mr) if mr.getattr(intern!(py, "is_device_accessible"))?.is_truthy()? => {
            context = current::current(&calls::driver("Buffer.from_handle")?)?;
        }
        _ => {}
    }
    let address = address(ptr)?;
    if size > 0 && (address == 0 || isize::try_from(size).is_err() || address.checked_add(size as u64).is_none()) {
        let text = format!(
            "Buffer.from_handle: ptr is {address:#x} and size is {size}, but ptr must not be 0, size must be below 2**63, and \
             both together must be below 2**64: pass the address and the size of an allocation"
        );
        return Err(PyValueError::new_err(text).into());
    }
    Ok(Body {
        address,
        size,
        memory: Held::Foreign { stream: stream.map(Bound::unbind), context },
        resource: mr.map(Bound::unbind),
        owner: owner.map(Bound::unbind),
    })
}

/// An address: an integer, an object that becomes one, or None for 0.
pub fn address(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    if object.is_none() {
        return Ok(0);
    }
    match object.extract::<u64>() {
        Ok(address) => Ok(address),
        // Handles of cuda-bindings have no `__index__`.
        Err(_) if !object.is_instance_of::<PyFloat>() && object.hasattr(intern!(object.py(), "__int__"))? => {
            object.call_method0(intern!(object.py(), "__int__"))?.extract()
        }
        Err(_) => {
            Err(PyTypeError::new_err(format!("an address must be an integer or a handle, not {}", shown(object))))
        }
    }
}

/// What the driver says about an address of no resource.
pub fn facts_of(address: u64) -> cuda_mem::Result<(Accessibility, i32)> {
    let driver = calls::driver("cuPointerGetAttributes")?;
    let context = match current::current(&driver) {
        Ok(Some(context)) => context,
        _ => current::primary(&driver, 0)?,
    };
    let info = PointerInfo::of(&context, address)?;
    Ok((info.accessibility, info.device.unwrap_or(-1)))
}

/// A context for memory of another library: the current one, or that of the pointer.
pub fn context_of(address: u64) -> cuda_mem::Result<cuda_mem::Context> {
    let (_, ordinal) = facts_of(address)?;
    let driver = calls::driver("Buffer")?;
    match current::current(&driver) {
        Ok(Some(context)) => Ok(context),
        _ => current::primary(&driver, ordinal.max(0)),
    }
}
