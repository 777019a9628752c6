//! Calls of methods without a tuple and a dict for their arguments, which cost more than the calls of DLPack's methods.

use core::{mem, ptr};
use pyo3::exceptions::PyNotImplementedError;
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use std::sync::OnceLock;

type VectorcallMethod =
    unsafe extern "C" fn(*mut PyObject, *const *mut PyObject, usize, *mut PyObject) -> *mut PyObject;

/// CPython's function. The stable interface has it from 3.12 on; 3.11 has it outside of the stable interface, so it is looked up.
fn vectorcall_method() -> PyResult<VectorcallMethod> {
    static FUNCTION: OnceLock<Option<VectorcallMethod>> = OnceLock::new();
    let function = FUNCTION.get_or_init(|| {
        // SAFETY: the name is a text. Every CPython from 3.9 on has the function, with this type.
        unsafe {
            let found = libc::dlsym(libc::RTLD_DEFAULT, c"PyObject_VectorcallMethod".as_ptr());
            (!found.is_null()).then(|| mem::transmute::<*mut libc::c_void, VectorcallMethod>(found))
        }
    });
    function.ok_or_else(|| PyNotImplementedError::new_err("this Python lacks CPython's PyObject_VectorcallMethod"))
}

/// Calls a method with at most two arguments, which all have names.
pub fn call_method<'py>(
    object: &Bound<'py, PyAny>,
    method: &Bound<'py, PyString>,
    names: Option<&Bound<'py, PyTuple>>,
    values: &[&Bound<'py, PyAny>],
) -> PyResult<Bound<'py, PyAny>> {
    let function = vectorcall_method()?;
    let mut arguments = [ptr::null_mut(); 3];
    arguments[0] = object.as_ptr();
    for (place, value) in arguments[1..].iter_mut().zip(values) {
        *place = value.as_ptr();
    }
    let names = names.map_or(ptr::null_mut(), |names| names.as_ptr());
    // SAFETY: the objects live during the call; there is one positional argument, the object, and a value for each name.
    unsafe { Bound::from_owned_ptr_or_err(object.py(), function(method.as_ptr(), arguments.as_ptr(), 1, names)) }
}

/// The names of arguments, as `call_method` takes them.
pub fn names<const N: usize>(py: Python<'_>, names: [&Bound<'_, PyString>; N]) -> PyResult<Py<PyTuple>> {
    Ok(PyTuple::new(py, names)?.unbind())
}
