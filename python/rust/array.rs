//! Arrays: memory with an element type, a shape and strides, of ours or of other libraries.

use crate::capsule::{self, Request};
use crate::context::context_of;
use crate::error::{Outcome, raise, refused, shown};
use crate::exchange;
use crate::names::in_python;
use crate::signals;
use crate::stream::{Stream, with_stream};
use cuda_mem::DataType;
use cuda_mem::interchange::SharedTensor;
use cuda_mem::interchange::array_interface::ArrayInterface;
use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::Arc;

/// Memory with an element type, a shape and strides. It shares the ownership of the memory, and other libraries take it
/// without a copy. `Buffer.view` makes one, and `from_dlpack` and `from_array_interface` make one of another library's
/// array.
///
/// >>> array = cuda_mem.PinnedMemory().allocate(24).view("float32", (2, 3))
/// >>> array.shape, array.strides, array.dtype
/// ((2, 3), (3, 1), 'float32')
#[pyclass(frozen, weakref, module = "cuda_mem")]
pub struct Array {
    tensor: SharedTensor,
}

/// The element type of an argument: a name, a numpy dtype or type, or a torch dtype.
fn data_type(argument: &Bound<'_, PyAny>) -> Outcome<DataType> {
    // The name of a dtype does not tell the order of its bytes.
    if argument.getattr("isnative").and_then(|native| native.extract::<bool>()).is_ok_and(|native| !native) {
        let text = format!("dtype is {}, but it must have the bytes in the machine's order", argument.repr()?);
        return Err(refused(text));
    }
    let name: String = match argument.extract() {
        Ok(name) => name,
        Err(_) => match argument.getattr("name").or_else(|_| argument.getattr("__name__")) {
            Ok(name) => name.extract()?,
            Err(_) => argument.str()?.extract()?,
        },
    };
    Ok(name.trim_start_matches("torch.").parse::<DataType>()?)
}

/// A shape: an int or a sequence of ints.
fn shape_of(argument: &Bound<'_, PyAny>) -> Outcome<Vec<i64>> {
    if let Ok(extent) = argument.extract::<i64>() {
        return Ok(vec![extent]);
    }
    argument.extract().map_err(|_| {
        let text = format!("shape must be an int of at most 64 bits or a sequence of such, not {}", shown(argument));
        PyTypeError::new_err(text).into()
    })
}

impl Array {
    pub fn from_tensor(tensor: SharedTensor) -> Self {
        Self { tensor }
    }

    /// A part of an array of bytes, with a type and a layout.
    pub fn of(
        bytes: &SharedTensor,
        dtype: Option<&Bound<'_, PyAny>>,
        shape: Option<&Bound<'_, PyAny>>,
        strides: Option<Vec<i64>>,
        offset: usize,
    ) -> Outcome<Self> {
        let kind = dtype.map_or(Ok(bytes.tensor().data_type()), data_type)?;
        let shape = match shape {
            Some(shape) => shape_of(shape)?,
            None => {
                let length = bytes.tensor().len();
                let rest = length.checked_sub(offset).ok_or_else(|| {
                    refused(format!("offset is {offset}, but it must be at most {length}, the number of bytes"))
                })?;
                vec![(rest / kind.padded_size().max(1)) as i64]
            }
        };
        Ok(Self { tensor: bytes.with_type_and_layout(kind, offset, &shape, strides.as_deref())? })
    }

    pub fn tensor(&self) -> &SharedTensor {
        &self.tensor
    }

    fn dict<'py>(py: Python<'py>, interface: &ArrayInterface, cuda: bool) -> PyResult<Bound<'py, PyAny>> {
        let answer = PyDict::new(py);
        answer.set_item("shape", PyTuple::new(py, &interface.shape)?)?;
        answer.set_item("typestr", &interface.typestr)?;
        answer.set_item("data", interface.data)?;
        answer.set_item("version", interface.version)?;
        let strides = interface.strides.as_ref().map(|strides| PyTuple::new(py, strides)).transpose()?;
        answer.set_item("strides", strides)?;
        if cuda {
            answer.set_item("stream", interface.stream)?;
        }
        Ok(answer.into_any())
    }

    pub fn cuda_array_interface<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyAny>> {
        match py.detach(|| self.tensor.cuda_array_interface()) {
            Ok(interface) => Ok(Self::dict(py, &interface, true)?),
            // Consumers ask by hasattr.
            Err(error) => Err(PyAttributeError::new_err(in_python(&error.to_string())).into()),
        }
    }
}

#[pymethods]
impl Array {
    /// The extents.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tensor.tensor().shape())
    }

    /// The distances between neighbours in each dimension, in elements.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tensor.tensor().strides())
    }

    /// The name of the element type, such as "float32".
    #[getter]
    fn dtype(&self) -> String {
        self.tensor.tensor().data_type().to_string()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.tensor.tensor().len()
    }

    /// The address of the element with index 0.
    #[getter]
    fn handle(&self) -> u64 {
        self.tensor.tensor().address()
    }

    /// Whether nobody may write the array.
    #[getter]
    fn is_read_only(&self) -> bool {
        self.tensor.tensor().is_read_only()
    }

    /// The home stream of the memory.
    #[getter]
    fn stream(&self) -> Outcome<Stream> {
        Ok(Stream { inner: self.tensor.memory()?.stream().clone() })
    }

    /// The memory as an array of another shape and type; see Buffer.view. `offset` counts from the begin of the memory,
    /// in bytes.
    #[pyo3(signature = (dtype = None, shape = None, *, strides = None, offset = 0))]
    fn view(
        &self,
        dtype: Option<&Bound<'_, PyAny>>,
        shape: Option<&Bound<'_, PyAny>>,
        strides: Option<Vec<i64>>,
        offset: usize,
    ) -> Outcome<Self> {
        Self::of(&self.tensor.memory()?.tensor(), dtype, shape, strides, offset)
    }

    /// Copies an array of the same shape and type into this one, in stream order, whatever the layouts and devices.
    fn copy_from(&self, py: Python<'_>, source: PyRef<'_, Array>) -> Outcome {
        let (target, source) = (self.tensor.clone(), source.tensor.clone());
        Ok(signals::detach(py, || {
            let mut target = target.into_view()?;
            target.copy_from(&source.into_view()?)
        })??)
    }

    /// Waits for the work of the home stream so far.
    fn synchronize(&self, py: Python<'_>) -> Outcome {
        let home = self.tensor.memory()?.stream().clone();
        Ok(signals::detach(py, || home.synchronize())??)
    }

    /// The array as a numpy array without a copy, if the CPU addresses the memory.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> Outcome<Bound<'py, PyAny>> {
        // Without the interface numpy would make an array of one object.
        if !slf.hasattr("__array_interface__")? {
            return Err(refused(
                "Array.numpy needs memory that the CPU addresses: np.from_dlpack(array, device=\"cpu\") copies",
            ));
        }
        Ok(slf.py().import("numpy")?.call_method1("asarray", (slf,))?)
    }

    /// DLPack's protocol; see Buffer.__dlpack__.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(i64, i64)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> Outcome<Bound<'py, PyAny>> {
        capsule::export(py, &self.tensor, stream, Request::new(max_version, dl_device, copy))
    }

    /// DLPack's exchange API: C functions for other libraries.
    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        exchange::offered(py)
    }

    /// DLPack's device: (type, number).
    fn __dlpack_device__(&self) -> (i32, i32) {
        capsule::device(self.tensor.tensor().device())
    }

    /// The CUDA array interface, version 3. AttributeError if devices do not address the memory.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyAny>> {
        self.cuda_array_interface(py)
    }

    /// numpy's array interface. Waits for the work on the memory. AttributeError if the CPU does not address it.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyAny>> {
        match signals::detach(py, || self.tensor.array_interface())? {
            Ok(interface) => Ok(Self::dict(py, &interface, false)?),
            Err(error) => Err(PyAttributeError::new_err(in_python(&error.to_string())).into()),
        }
    }

    fn __len__(&self) -> PyResult<usize> {
        match self.tensor.tensor().shape().first() {
            Some(extent) => Ok(*extent as usize),
            None => Err(PyTypeError::new_err("an Array without dimensions has no length")),
        }
    }

    fn __repr__(&self) -> String {
        let tensor = self.tensor.tensor();
        let (device, number) = capsule::device(tensor.device());
        format!("Array(dtype={}, shape={:?}, device=({device}, {number}))", tensor.data_type(), tensor.shape())
    }
}

/// An Array of another library's array, by DLPack: its memory, without a copy. The other library's work is ordered before
/// `stream`, which becomes the home stream; without one, the legacy default stream of `context` does (a Context, a Device,
/// an ordinal, or None for device 0). The other library keeps the memory while the Array or anything made from it lives.
/// Raises BufferError for memory of other kinds of devices.
#[pyfunction]
#[pyo3(signature = (array, *, stream = None, context = None))]
pub fn from_dlpack(
    py: Python<'_>,
    array: &Bound<'_, PyAny>,
    stream: Option<&Bound<'_, PyAny>>,
    context: Option<&Bound<'_, PyAny>>,
) -> Outcome<Array> {
    let default = cuda_mem::Stream::legacy_default(&context_of(py, context)?);
    with_stream(stream, &default, |stream| {
        let imported = capsule::import(array, stream)?;
        // SAFETY: DLPack requires the producer to describe memory that lives until the deleter is called, and has ordered
        // its work before the stream.
        Ok(Array { tensor: py.detach(|| unsafe { imported.into_shared(stream, None) })? })
    })
}

/// As from_dlpack, for arrays with `__cuda_array_interface__` or `__array_interface__`. `stream` waits for the stream that
/// the interface names. The array object lives as long as the memory is used.
#[pyfunction]
#[pyo3(signature = (array, *, stream = None, context = None))]
pub fn from_array_interface(
    py: Python<'_>,
    array: &Bound<'_, PyAny>,
    stream: Option<&Bound<'_, PyAny>>,
    context: Option<&Bound<'_, PyAny>>,
) -> Outcome<Array> {
    let (cuda, said) = match array.getattr_opt("__cuda_array_interface__")? {
        Some(said) => (true, said),
        None => match array.getattr_opt("__array_interface__")? {
            Some(said) => (false, said),
            None => {
                let text = format!("an object with an array interface is needed, not {}", array.get_type().qualname()?);
                return Err(PyTypeError::new_err(text).into());
            }
        },
    };
    let text = py.import("json")?.call_method1("dumps", (&said,)).and_then(|text| text.extract::<String>());
    let text = text.map_err(|error| {
        let text = format!("the array interface {} is not one of ints, texts and tuples: {error}", shown(&said));
        raise("ExchangeError", text, None)
    })?;
    let interface = ArrayInterface::from_json(&text)?;
    let default = cuda_mem::Stream::legacy_default(&context_of(py, context)?);
    let owner = Arc::new(array.clone().unbind());
    with_stream(stream, &default, |stream| {
        // SAFETY: the interface requires its object to describe memory that lives as long as the object, which the owner
        // keeps, and names a live stream of the producer.
        let import = || unsafe {
            if cuda { interface.import_cuda(owner, stream, false) } else { interface.import_host(owner, stream) }
        };
        Ok(Array { tensor: py.detach(import)? })
    })
}
