//! Views of buffers.

use super::dtype::{dtype_of, item_size};
use super::layout::StridedLayout;
use super::layout_error::raised;
use super::view::{Exporter, StridedMemoryView, known};
use super::view_import::integer;
use crate::error::Outcome;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

type Dtype<'py> = Option<Bound<'py, PyAny>>;

/// What the arguments of StridedMemoryView.from_buffer say.
pub fn arguments<'py>(
    py: Python<'py>,
    shape: Option<&Bound<'py, PyAny>>,
    strides: Option<&Bound<'py, PyAny>>,
    itemsize: Option<usize>,
    dtype: Option<&Bound<'py, PyAny>>,
    layout: Option<&Bound<'py, StridedLayout>>,
) -> Outcome<(Py<StridedLayout>, Dtype<'py>)> {
    if let Some(layout) = layout.or_else(|| shape?.cast().ok()) {
        let dtype = dtype.or(strides).map(dtype_of).transpose()?;
        return Ok((layout.clone().unbind(), dtype));
    }
    let Some(shape) = shape else {
        return Err(PyTypeError::new_err("from_buffer needs a shape or a layout").into());
    };
    let dtype = dtype.map(dtype_of).transpose()?;
    let size = match (itemsize, &dtype) {
        (None, None) => {
            return Err(PyValueError::new_err("Either itemsize or dtype must be specified").into());
        }
        (Some(size), None) => size,
        (said, Some(dtype)) => {
            let size = item_size(dtype)?;
            if let Some(said) = said.filter(|said| *said != size) {
                let text = format!("itemsize ({said}) does not match dtype.itemsize ({size})");
                return Err(PyValueError::new_err(text).into());
            }
            size
        }
    };
    let layout = Py::new(py, StridedLayout::of_arguments(shape, strides, size, false)?)?;
    Ok((layout, dtype))
}

/// A view of a buffer, as the arguments of from_buffer and view say.
pub fn view(
    buffer: &Bound<'_, PyAny>,
    layout: Py<StridedLayout>,
    dtype: Option<Bound<'_, PyAny>>,
    readonly: bool,
) -> Outcome<StridedMemoryView> {
    let py = buffer.py();
    check_item_size(dtype.as_ref(), layout.get())?;
    let inner = &layout.get().inner;
    // The size of memory that no resource has allocated is unknown.
    if !buffer.getattr(intern!(py, "memory_resource"))?.is_none() {
        let (size, needed): (usize, _) = (buffer.getattr(intern!(py, "size"))?.extract()?, inner.required_size());
        let needed = needed.map_err(raised)?;
        if size < needed {
            let text =
                format!("Buffer size is too small for the layout. Expected at least {needed} bytes, got {size} bytes.");
            return Err(PyValueError::new_err(text).into());
        }
    }
    let origin = integer(&buffer.getattr(intern!(py, "handle"))?)? as u64;
    Ok(StridedMemoryView {
        ptr: origin.wrapping_add_signed(inner.byte_offset()),
        origin,
        device_id: match buffer.getattr(intern!(py, "device_id")) {
            // Resources of page-locked memory have no device.
            Err(error) if error.is_instance_of::<PyRuntimeError>(py) => -1,
            device => device?.extract()?,
        },
        is_device_accessible: buffer.getattr(intern!(py, "is_device_accessible"))?.extract()?,
        readonly,
        exporter: Exporter::Buffer(buffer.clone().unbind()),
        layout: known(py, Some(layout)),
        dtype: known(py, dtype.map(Bound::unbind)),
        data_type: PyOnceLock::new(),
    })
}

/// Refuses a dtype whose elements have another size than the layout's.
pub fn check_item_size(dtype: Option<&Bound<'_, PyAny>>, layout: &StridedLayout) -> PyResult<()> {
    let Some(dtype) = dtype else { return Ok(()) };
    let (found, expected) = (item_size(dtype)?, layout.inner.item_size());
    if found == expected {
        return Ok(());
    }
    let text = format!("The dtype's itemsize ({found}) does not match the layout's itemsize ({expected}).");
    Err(PyValueError::new_err(text))
}
