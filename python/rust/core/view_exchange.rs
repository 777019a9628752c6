//! DLPack's exchange API for views: a table of C functions on the type. Nothing is ordered by them, as the protocol says; views
//! belong to no stream, so the current one is the legacy default stream. They allocate nothing.

use super::view::StridedMemoryView;
use super::view_import::of_managed;
use crate::error::Outcome;
use crate::exchange::{NAME, answer};
use core::ffi::{c_char, c_int, c_void};
use core::ptr;
use cuda_mem::interchange::dlpack::{
    DLManagedTensorVersioned, DLPackExchangeAPI, DLPackExchangeAPIHeader, DLTensor, ManagedTensor, SetError, VERSION,
};
use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::ffi::CStr;

struct Table(DLPackExchangeAPI);

// SAFETY: nobody writes the table.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

static TABLE: Table = Table(DLPackExchangeAPI {
    header: DLPackExchangeAPIHeader { version: VERSION, prev_api: ptr::null_mut() },
    managed_tensor_allocator: Some(allocate),
    managed_tensor_from_py_object_no_sync: Some(tensor_of_object),
    managed_tensor_to_py_object_no_sync: Some(object_of_tensor),
    dltensor_from_py_object_no_sync: Some(description_of_object),
    current_work_stream: Some(current_stream),
});

/// The capsule for the class's attributes.
pub fn offered(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static CAPSULE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let capsule = CAPSULE.get_or_try_init(py, || {
        // SAFETY: the table and the name live as long as the process.
        unsafe {
            let capsule = ffi::PyCapsule_New(ptr::from_ref(&TABLE.0).cast_mut().cast(), NAME.as_ptr(), None);
            Bound::from_owned_ptr_or_err(py, capsule).map(Bound::unbind)
        }
    })?;
    Ok(capsule.bind(py).clone())
}

/// Empties the place of an answer; an error if there is none.
///
/// # Safety
///
/// `out` is null or room for a pointer.
unsafe fn emptied<T>(out: *mut *mut T) -> PyResult<()> {
    if out.is_null() {
        return Err(PyRuntimeError::new_err("the place of the answer cannot be NULL"));
    }
    // SAFETY: this function's contract.
    unsafe { out.write(ptr::null_mut()) };
    Ok(())
}

/// The view that an object is.
///
/// # Safety
///
/// `object` is an object of Python.
unsafe fn view_of(py: Python<'_>, object: *mut c_void) -> PyResult<Bound<'_, StridedMemoryView>> {
    // SAFETY: this function's contract.
    let object = unsafe { Borrowed::from_ptr(py, object.cast()) };
    // cuda.core's words.
    object
        .cast::<StridedMemoryView>()
        .map(|view| view.to_owned())
        .map_err(|_| PyTypeError::new_err("the object must be a StridedMemoryView"))
}

/// # Safety
///
/// The thread holds the GIL, and the pointers are null or as the header of DLPack says.
unsafe extern "C" fn allocate(
    _prototype: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    error_ctx: *mut c_void,
    set_error: Option<SetError>,
) -> c_int {
    const KIND: &CStr = c"NotImplementedError";
    const TEXT: &CStr = c"allocation is not supported by StridedMemoryView: allocate by cuda_mem.Buffer's exchange API";
    if let Some(set_error) = set_error {
        // SAFETY: this function's contract.
        unsafe { set_error(error_ctx, KIND.as_ptr().cast::<c_char>(), TEXT.as_ptr()) };
    }
    answer(|_| {
        // SAFETY: this function's contract.
        unsafe { emptied(out) }?;
        Err(PyNotImplementedError::new_err(TEXT.to_string_lossy().into_owned()).into())
    })
}

/// # Safety
///
/// The thread holds the GIL, `object` is an object of Python, and `out` is null or room for a pointer.
unsafe extern "C" fn tensor_of_object(object: *mut c_void, out: *mut *mut DLManagedTensorVersioned) -> c_int {
    answer(|py| {
        // SAFETY: this function's contract.
        unsafe {
            emptied(out)?;
            out.write(StridedMemoryView::export(&view_of(py, object)?)?.into_versioned());
        }
        Ok(())
    })
}

/// # Safety
///
/// The thread holds the GIL, `tensor` is null or a tensor that this function takes, and `out` is null or room for a pointer.
unsafe extern "C" fn object_of_tensor(tensor: *mut DLManagedTensorVersioned, out: *mut *mut c_void) -> c_int {
    answer(|py| {
        // SAFETY: this function's contract.
        unsafe { emptied(out) }?;
        if tensor.is_null() {
            // cuda.core's words.
            return Err(PyRuntimeError::new_err("tensor cannot be NULL").into());
        }
        // SAFETY: this function's contract.
        let view = Bound::new(py, of_managed(unsafe { ManagedTensor::from_versioned(tensor) }?, None)?)?;
        // SAFETY: as above.
        unsafe { out.write(view.into_ptr().cast()) };
        Ok(())
    })
}

/// # Safety
///
/// The thread holds the GIL, `object` is an object of Python that lives while the description is used, and `out` is null or room
/// for a description.
unsafe extern "C" fn description_of_object(object: *mut c_void, out: *mut DLTensor) -> c_int {
    answer(|py| -> Outcome {
        if out.is_null() {
            return Err(PyRuntimeError::new_err("the place of the answer cannot be NULL").into());
        }
        // SAFETY: this function's contract.
        let view = unsafe { view_of(py, object)? };
        let said = view.get().borrowed(py)?;
        // SAFETY: this function's contract.
        unsafe { out.write(said) };
        Ok(())
    })
}

/// # Safety
///
/// The thread holds the GIL, and `out` is null or room for a pointer.
unsafe extern "C" fn current_stream(_device_type: i32, _device_id: i32, out: *mut *mut c_void) -> c_int {
    // SAFETY: this function's contract.
    answer(|_| unsafe { emptied(out) }.map_err(Into::into))
}
