//! Element types as numpy's dtypes. numpy and ml_dtypes are imported when a dtype is asked for.

use crate::error::{Outcome, raise};
use cuda_mem::{DataType, TypeCode};
use pyo3::exceptions::{PyNotImplementedError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

/// numpy.dtype.
fn constructor(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "numpy", "dtype")
}

/// An argument as a dtype.
pub fn dtype_of<'py>(argument: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    constructor(argument.py())?.call1((argument,))
}

/// The dtype of a typestr of an array interface.
pub fn dtype_of_typestr<'py>(py: Python<'py>, typestr: &str) -> PyResult<Bound<'py, PyAny>> {
    constructor(py)?.call1((typestr,))
}

/// The size of an element in bytes.
pub fn item_size(dtype: &Bound<'_, PyAny>) -> PyResult<usize> {
    dtype.getattr(intern!(dtype.py(), "itemsize"))?.extract()
}

/// The size of an element of an array interface, in bytes.
pub fn item_size_of_typestr(py: Python<'_>, typestr: &str) -> PyResult<usize> {
    match DataType::from_typestr(typestr) {
        Ok(data_type) => Ok(data_type.padded_size()),
        // Text, dates, and bytes in the other order.
        Err(_) => item_size(&dtype_of_typestr(py, typestr)?),
    }
}

/// The dtype of an element type.
pub fn dtype_of_type(py: Python<'_>, data_type: DataType) -> Outcome<Bound<'_, PyAny>> {
    static KNOWN: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let known = KNOWN.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
    let key = (data_type.code() as u32) << 24 | u32::from(data_type.bits()) << 16 | u32::from(data_type.lanes());
    if let Some(dtype) = known.get_item(key)? {
        return Ok(dtype);
    }
    let dtype = match (data_type.typestr(), data_type.lanes()) {
        (Ok(typestr), _) => dtype_of_typestr(py, &typestr)?,
        (Err(_), 1) => extension(py, data_type)?,
        (Err(_), lanes) => {
            let text = format!("numpy has no dtype for elements with several lanes (lanes={lanes})");
            return Err(PyNotImplementedError::new_err(text).into());
        }
    };
    known.set_item(key, &dtype)?;
    Ok(dtype)
}

/// The dtype of ml_dtypes for an element type.
fn extension(py: Python<'_>, data_type: DataType) -> Outcome<Bound<'_, PyAny>> {
    let name = data_type.to_string();
    let Ok(module) = py.import("ml_dtypes") else {
        // cuda.core's words.
        let text = format!("the dtype {name} requires `ml_dtypes`: pip install ml_dtypes");
        return Err(PyNotImplementedError::new_err(text).into());
    };
    match module.getattr_opt(name.as_str())? {
        Some(class) => Ok(dtype_of(&class)?),
        None => {
            Err(PyTypeError::new_err(format!("Unsupported dtype: neither numpy nor ml_dtypes has a dtype {name}"))
                .into())
        }
    }
}

/// The element type of a dtype, for DLPack.
pub fn type_of_dtype(dtype: &Bound<'_, PyAny>) -> Outcome<DataType> {
    let py = dtype.py();
    let typestr: String = dtype.getattr(intern!(py, "str"))?.extract()?;
    match DataType::from_typestr(&typestr) {
        Ok(data_type) if data_type.code() != TypeCode::Opaque => return Ok(data_type),
        _ => {}
    }
    // cuda.core's words.
    let refused = |text: String| raise("ExchangeError", text, None);
    if !dtype.getattr(intern!(py, "fields"))?.is_none() {
        return Err(refused(format!("Structured dtypes are not supported for DLPack export: {dtype}")));
    }
    if !dtype.getattr(intern!(py, "isnative"))?.extract::<bool>()? {
        return Err(refused(format!("Non-native-endian dtypes are not supported for DLPack export: {dtype}")));
    }
    // ml_dtypes has a name for each of its types, but the typestr of opaque bytes.
    let name: String = dtype.getattr(intern!(py, "name"))?.extract()?;
    let unsupported = || refused(format!("Unsupported dtype for DLPack export: {dtype}"));
    let data_type: DataType = name.parse().map_err(|_| unsupported())?;
    let is_whole = data_type.padded_size() == item_size(dtype)? && data_type.typestr().is_err();
    let is_extended = matches!(data_type.code(), TypeCode::Float | TypeCode::Complex | TypeCode::Opaque);
    if is_whole && !is_extended { Ok(data_type) } else { Err(unsupported()) }
}
