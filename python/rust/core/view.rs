//! Views: memory of any library with a shape, strides and an element type.

use super::buffer::Buffer;
use super::dtype::{dtype_of, dtype_of_type, dtype_of_typestr};
use super::layout::StridedLayout;
use super::{view_buffer, view_copy, view_exchange, view_export, view_import};
use crate::capsule::{self, Request};
use crate::error::{Outcome, raise};
use cuda_mem::DataType;
use cuda_mem::interchange::dlpack::ManagedTensor;
use pyo3::exceptions::{PyDeprecationWarning, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

/// A view of memory of this or another library, by DLPack, an array interface, or a Buffer: the address, the shape, the
/// strides, the element type and the device, without a copy. The object that exports the memory lives as long as the view.
///
/// >>> view = cuda_mem.core.utils.StridedMemoryView.from_any_interface(numpy.arange(6).reshape(2, 3), stream_ptr=-1)
/// >>> view.shape, view.dtype, view.device_id
/// ((2, 3), dtype('int64'), -1)
#[pyclass(frozen, weakref, module = "cuda_mem.core.utils")]
pub struct StridedMemoryView {
    /// The address of the element with indices 0.
    pub ptr: u64,
    /// The address of the element with offset 0.
    pub origin: u64,
    pub device_id: i32,
    pub is_device_accessible: bool,
    pub readonly: bool,
    pub exporter: Exporter,
    pub layout: PyOnceLock<Py<StridedLayout>>,
    /// What the program said, or numpy's dtype of the exporter's element type.
    pub dtype: PyOnceLock<Py<PyAny>>,
    pub data_type: PyOnceLock<DataType>,
}

/// Where the memory comes from.
pub enum Exporter {
    /// Nowhere: an empty view.
    Nobody,
    /// A tensor of DLPack, and the object that exported it.
    Tensor { managed: ManagedTensor, object: Option<Py<PyAny>> },
    /// An object with an array interface, and the interface's element type.
    Interface { object: Py<PyAny>, typestr: String },
    /// A buffer.
    Buffer(Py<PyAny>),
    /// Another view.
    View(Py<StridedMemoryView>),
}

/// A value that is known from the beginning, or not yet.
pub fn known<T>(py: Python<'_>, value: Option<T>) -> PyOnceLock<T> {
    let lock = PyOnceLock::new();
    if let Some(value) = value {
        let _is_empty = lock.set(py, value);
    }
    lock
}

impl StridedMemoryView {
    /// A view of nothing.
    pub fn empty() -> Self {
        Self {
            ptr: 0,
            origin: 0,
            device_id: 0,
            is_device_accessible: false,
            readonly: false,
            exporter: Exporter::Nobody,
            layout: PyOnceLock::new(),
            dtype: PyOnceLock::new(),
            data_type: PyOnceLock::new(),
        }
    }

    pub fn layout<'a>(&'a self, py: Python<'_>) -> Outcome<&'a Py<StridedLayout>> {
        if let Some(layout) = self.layout.get(py) {
            return Ok(layout);
        }
        let Exporter::Tensor { managed, .. } = &self.exporter else {
            let text = "Cannot infer layout from the exporting object: an empty view has none";
            return Err(PyValueError::new_err(text).into());
        };
        let tensor = managed.describe()?;
        let data_type = tensor.data_type();
        if data_type.is_sub_byte() && !tensor.is_padded() {
            let text = format!("the bits of an element must be a multiple of 8, but those of {data_type} are packed");
            return Err(PyValueError::new_err(text).into());
        }
        // Producers of before DLPack 1.2 leave the strides of dense arrays out.
        let strides = (!managed.dl_tensor().strides.is_null()).then(|| tensor.strides());
        let layout = StridedLayout::of(tensor.shape(), strides, data_type.padded_size(), false)?;
        let layout = Py::new(py, layout)?;
        Ok(self.layout.get_or_init(py, || layout))
    }

    /// The dtype, which an element type without a meaning does not have.
    pub fn dtype<'py>(&self, py: Python<'py>) -> Outcome<Option<Bound<'py, PyAny>>> {
        if let Some(dtype) = self.dtype.get(py) {
            return Ok(Some(dtype.bind(py).clone()));
        }
        let dtype = match &self.exporter {
            Exporter::Tensor { managed, .. } => dtype_of_type(py, view_export::type_of(managed)?)?,
            Exporter::Interface { typestr, .. } => dtype_of_typestr(py, typestr)?,
            _ => return Ok(None),
        };
        Ok(Some(self.dtype.get_or_init(py, || dtype.unbind()).bind(py).clone()))
    }

    /// The buffer, if it is one of this package.
    pub fn buffer<'a, 'py>(&'a self, py: Python<'py>) -> Option<&'a Bound<'py, Buffer>> {
        match &self.exporter {
            Exporter::Buffer(buffer) => buffer.bind(py).cast().ok(),
            _ => None,
        }
    }

    /// Refuses the use of a buffer that has been closed, or grown to another place, since the view was made.
    pub fn check_open(&self, py: Python<'_>) -> Outcome {
        let Exporter::Buffer(buffer) = &self.exporter else { return Ok(()) };
        if view_import::integer(&buffer.bind(py).getattr(intern!(py, "handle"))?)? as u64 == self.origin {
            return Ok(());
        }
        Err(raise("ClosedError", "the buffer of the view is closed: make a view of one that is open", None))
    }
}

/// The name of a value's class, with its module unless that is builtins.
fn class_name(value: Option<&Bound<'_, PyAny>>) -> PyResult<String> {
    match value {
        None => Ok("NoneType".to_owned()),
        Some(value) => Ok(value.get_type().fully_qualified_name()?.to_string()),
    }
}

#[pymethods]
impl StridedMemoryView {
    /// Deprecated: call from_any_interface, from_dlpack or from_cuda_array_interface.
    #[new]
    #[pyo3(signature = (obj = None, stream_ptr = None))]
    fn new(py: Python<'_>, obj: Option<&Bound<'_, PyAny>>, stream_ptr: Option<&Bound<'_, PyAny>>) -> Outcome<Self> {
        // cuda.core's words.
        let (what, instead, view) = match obj {
            None => ("an empty StridedMemoryView", "one of its classmethods `from_...`", Self::empty()),
            Some(obj) => {
                let (found, view) = view_import::of_any(obj, stream_ptr)?;
                match found {
                    view_import::Found::Dlpack => {
                        ("a StridedMemoryView directly from a DLPack-supporting object", "`from_dlpack`", view)
                    }
                    view_import::Found::Interface => (
                        "a StridedMemoryView directly from a CUDA-array-interface-supporting object",
                        "`from_cuda_array_interface`",
                        view,
                    ),
                }
            }
        };
        let text = std::ffi::CString::new(format!("Constructing {what} is deprecated; use {instead} instead."));
        let text = text.map_err(PyErr::from)?;
        PyErr::warn(py, py.get_type::<PyDeprecationWarning>().as_any(), &text, 1)?;
        Ok(view)
    }

    /// A view of an object with DLPack's methods. `stream_ptr` is the stream, as a number, on which the view will be used;
    /// the exporter orders its work before it. -1 needs no order.
    #[classmethod]
    #[pyo3(signature = (obj, stream_ptr = None))]
    fn from_dlpack(
        _class: &Bound<'_, PyType>,
        obj: &Bound<'_, PyAny>,
        stream_ptr: Option<&Bound<'_, PyAny>>,
    ) -> Outcome<Self> {
        view_import::of_dlpack(obj, stream_ptr)
    }

    /// A view of an object with `__cuda_array_interface__`, version 3. The stream of `stream_ptr`, a number, waits for the
    /// stream that the interface names. -1 needs no order.
    #[classmethod]
    #[pyo3(signature = (obj, stream_ptr = None))]
    fn from_cuda_array_interface(
        _class: &Bound<'_, PyType>,
        obj: &Bound<'_, PyAny>,
        stream_ptr: Option<&Bound<'_, PyAny>>,
    ) -> Outcome<Self> {
        view_import::of_cuda_interface(obj, stream_ptr)
    }

    /// A view of an object with `__array_interface__`, version 3, such as a numpy array. `device_id` is that of the current
    /// context, or -1 without one.
    #[classmethod]
    fn from_array_interface(_class: &Bound<'_, PyType>, obj: &Bound<'_, PyAny>) -> Outcome<Self> {
        view_import::of_host_interface(obj)
    }

    /// A view by DLPack, or else by the CUDA array interface.
    #[classmethod]
    #[pyo3(signature = (obj, stream_ptr = None))]
    fn from_any_interface(
        _class: &Bound<'_, PyType>,
        obj: &Bound<'_, PyAny>,
        stream_ptr: Option<&Bound<'_, PyAny>>,
    ) -> Outcome<Self> {
        Ok(view_import::of_any(obj, stream_ptr)?.1)
    }

    /// A view of a Buffer. `strides` counts elements. Of `itemsize` and `dtype` one is needed. As before cuda.core 0.5, a
    /// StridedLayout may stand for the shape, and a dtype for the strides then. The elements must lie within the buffer. Nothing
    /// is ordered: the program orders its work on the buffer.
    #[classmethod]
    #[pyo3(signature = (buffer, shape = None, strides = None, *, itemsize = None, dtype = None, is_readonly = false, layout = None))]
    #[allow(clippy::too_many_arguments, reason = "upstream's")]
    fn from_buffer(
        _class: &Bound<'_, PyType>,
        buffer: &Bound<'_, PyAny>,
        shape: Option<&Bound<'_, PyAny>>,
        strides: Option<&Bound<'_, PyAny>>,
        itemsize: Option<usize>,
        dtype: Option<&Bound<'_, PyAny>>,
        is_readonly: bool,
        layout: Option<&Bound<'_, StridedLayout>>,
    ) -> Outcome<Self> {
        let (layout, dtype) = view_buffer::arguments(buffer.py(), shape, strides, itemsize, dtype, layout)?;
        view_buffer::view(buffer, layout, dtype, is_readonly)
    }

    /// The same memory in another layout, as another type of the same size, or both. The layout's offset counts from the
    /// first element of the exporting object, or from the begin of the buffer. Without arguments it is this view.
    #[pyo3(signature = (layout = None, dtype = None))]
    fn view(
        slf: &Bound<'_, Self>,
        layout: Option<&Bound<'_, StridedLayout>>,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> Outcome<Py<Self>> {
        let (py, this) = (slf.py(), slf.get());
        if layout.is_none() && dtype.is_none() {
            return Ok(slf.clone().unbind());
        }
        let layout = match layout {
            Some(layout) => layout.clone().unbind(),
            None => this.layout(py)?.clone_ref(py),
        };
        let dtype = match dtype {
            Some(dtype) => Some(dtype_of(dtype)?),
            None => this.dtype(py)?,
        };
        let view = match &this.exporter {
            Exporter::Buffer(buffer) => view_buffer::view(buffer.bind(py), layout, dtype, this.readonly)?,
            _ => {
                view_buffer::check_item_size(dtype.as_ref(), layout.get())?;
                Self {
                    ptr: this.origin.wrapping_add_signed(layout.get().inner.byte_offset()),
                    exporter: Exporter::View(slf.clone().unbind()),
                    layout: known(py, Some(layout)),
                    dtype: known(py, dtype.map(Bound::unbind)),
                    data_type: PyOnceLock::new(),
                    ..*this
                }
            }
        };
        Ok(Py::new(py, view)?)
    }

    /// Copies the elements of another view of the same shape and type into this one, whatever their layouts and devices, on
    /// `stream`: a Stream, or None for the legacy default stream. `allocator` serves temporary memory, if some is needed.
    /// With `blocking` None, the call waits for the end of the copy if the CPU addresses one of the sides. Copies within
    /// memory of the CPU use no stream.
    #[pyo3(signature = (other, stream = None, allocator = None, blocking = None))]
    fn copy_from(
        slf: &Bound<'_, Self>,
        other: &Bound<'_, Self>,
        stream: Option<&Bound<'_, PyAny>>,
        allocator: Option<&Bound<'_, PyAny>>,
        blocking: Option<bool>,
    ) -> Outcome {
        view_copy::copy(slf, other, stream, allocator, blocking)
    }

    /// Copies the elements of this view into another one; see copy_from.
    #[pyo3(signature = (other, stream = None, allocator = None, blocking = None))]
    fn copy_to(
        slf: &Bound<'_, Self>,
        other: &Bound<'_, Self>,
        stream: Option<&Bound<'_, PyAny>>,
        allocator: Option<&Bound<'_, PyAny>>,
        blocking: Option<bool>,
    ) -> Outcome {
        view_copy::copy(other, slf, stream, allocator, blocking)
    }

    /// A descriptor for tiled copies in kernels, made by cuda.core, which must be installed.
    #[pyo3(signature = (box_dim = None, **options))]
    fn as_tensor_map<'py>(
        slf: &Bound<'py, Self>,
        box_dim: Option<&Bound<'py, PyAny>>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> Outcome<Bound<'py, PyAny>> {
        let Ok(theirs) = slf.py().import("cuda.core.utils") else {
            let text = "tensor maps are cuda.core's: pip install cuda-core";
            return Err(raise("UnsupportedError", text, None));
        };
        let view = theirs.getattr("StridedMemoryView")?.call_method1("from_dlpack", (slf, -1))?;
        Ok(view.call_method("as_tensor_map", (box_dim,), options)?)
    }

    /// DLPack's protocol. As in cuda.core, the stream is not used: nothing is ordered, unless `dl_device` or `copy` asks for
    /// a copy, which is made in order with the consumer's stream.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> Outcome<Bound<'py, PyAny>> {
        view_export::capsule(slf, stream, Request::of(max_version, dl_device, copy)?)
    }

    /// DLPack's device: (type, number).
    fn __dlpack_device__(&self, py: Python<'_>) -> Outcome<(i32, i32)> {
        Ok(capsule::device(self.device(py)?))
    }

    /// DLPack's exchange API: C functions for other libraries.
    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        view_exchange::offered(py)
    }

    /// The same under its older name.
    #[classattr]
    fn __c_dlpack_exchange_api__(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        view_exchange::offered(py)
    }

    /// The address of the element with indices 0.
    #[getter]
    fn ptr(&self) -> u64 {
        self.ptr
    }

    /// The ordinal of the device; -1 for memory of the CPU.
    #[getter]
    fn device_id(&self) -> i32 {
        self.device_id
    }

    /// Whether devices address the memory.
    #[getter]
    fn is_device_accessible(&self) -> bool {
        self.is_device_accessible
    }

    /// Whether nobody may write the memory.
    #[getter]
    fn readonly(&self) -> bool {
        self.readonly
    }

    /// The object that exports the memory.
    #[getter]
    fn exporting_obj(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &self.exporter {
            Exporter::Nobody => None,
            Exporter::Tensor { object, .. } => object.as_ref().map(|object| object.clone_ref(py)),
            Exporter::Interface { object, .. } | Exporter::Buffer(object) => Some(object.clone_ref(py)),
            Exporter::View(view) => view.get().exporting_obj(py),
        }
    }

    /// The layout.
    #[getter(_layout)]
    fn private_layout(&self, py: Python<'_>) -> Outcome<Py<StridedLayout>> {
        Ok(self.layout(py)?.clone_ref(py))
    }

    /// The layout.
    #[getter(layout)]
    fn public_layout(&self, py: Python<'_>) -> Outcome<Py<StridedLayout>> {
        Ok(self.layout(py)?.clone_ref(py))
    }

    /// The extents.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyTuple>> {
        Ok(self.layout(py)?.get().shape(py)?)
    }

    /// The strides in elements; None if the exporter has left them out, because the array is dense in C order.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> Outcome<Option<Bound<'py, PyTuple>>> {
        Ok(self.layout(py)?.get().strides_or_none(py)?)
    }

    /// The number of elements.
    #[getter]
    fn size(&self, py: Python<'_>) -> Outcome<i64> {
        Ok(self.layout(py)?.get().inner.volume())
    }

    /// The numpy dtype of the elements; None if the view was made without one. Types such as bfloat16 need ml_dtypes.
    #[getter(dtype)]
    fn public_dtype<'py>(&self, py: Python<'py>) -> Outcome<Option<Bound<'py, PyAny>>> {
        self.dtype(py)
    }

    fn __repr__(&self, py: Python<'_>) -> Outcome<String> {
        let layout = self.layout(py)?.get();
        let strides = match layout.strides_or_none(py)? {
            Some(strides) => strides.repr()?.to_string(),
            None => "None".to_owned(),
        };
        let truth = |value: bool| if value { "True" } else { "False" };
        let facts = [
            ("ptr", self.ptr.to_string()),
            ("shape", layout.shape(py)?.repr()?.to_string()),
            ("strides", strides),
            ("itemsize", layout.inner.item_size().to_string()),
            ("dtype", class_name(self.dtype(py)?.as_ref())?),
            ("device_id", self.device_id.to_string()),
            ("is_device_accessible", truth(self.is_device_accessible).to_owned()),
            ("readonly", truth(self.readonly).to_owned()),
            ("exporting_obj", class_name(self.exporting_obj(py).as_ref().map(|object| object.bind(py)))?),
        ];
        let facts = facts.map(|(name, value)| format!("{name}={value}"));
        Ok(format!("StridedMemoryView({})", facts.join(",\n                  ")))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.exporter {
            Exporter::Nobody => Ok(()),
            Exporter::Tensor { object, .. } => object.as_ref().map_or(Ok(()), |object| visit.call(object)),
            Exporter::Interface { object, .. } | Exporter::Buffer(object) => visit.call(object),
            Exporter::View(view) => visit.call(view),
        }
    }
}
