//! Views of objects of other libraries.

use super::dtype::item_size_of_typestr;
use super::layout::StridedLayout;
use super::vector_call::{call_method, names};
use super::view::{Exporter, StridedMemoryView, known};
use super::{calls, current};
use crate::capsule;
use crate::context::open;
use crate::error::{Failure, Outcome, raise};
use cuda_mem::interchange::dlpack::{DLDevice, FLAG_READ_ONLY, ManagedTensor};
use cuda_mem::interchange::{StreamName, TensorDevice};
use cuda_mem::memory::PointerInfo;
use pyo3::exceptions::{PyAttributeError, PyKeyError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyInt, PyString, PyTuple};

/// By what an object was viewed.
pub enum Found {
    Dlpack,
    Interface,
}

fn refused(text: impl Into<String>) -> Failure {
    raise("ExchangeError", text, None)
}

/// As Python's int(): handles of other packages are objects with `__int__`.
pub fn integer(argument: &Bound<'_, PyAny>) -> PyResult<i64> {
    match argument.cast::<PyInt>() {
        Ok(number) => number.extract::<i64>().or_else(|_| Ok(number.extract::<u64>()? as i64)),
        Err(_) => integer(&argument.py().get_type::<PyInt>().call1((argument,))?),
    }
}

/// The stream of an argument; an error if there is none.
fn consumer(stream_ptr: Option<&Bound<'_, PyAny>>) -> Outcome<i64> {
    match stream_ptr {
        Some(stream) => Ok(integer(stream)?),
        // cuda.core's words.
        None => Err(refused("stream=None is ambiguous with view(): pass a stream, or -1 for no order")),
    }
}

/// A view by the first protocol that the object has.
pub fn of_any(object: &Bound<'_, PyAny>, stream_ptr: Option<&Bound<'_, PyAny>>) -> Outcome<(Found, StridedMemoryView)> {
    let py = object.py();
    let failure = match of_dlpack(object, stream_ptr) {
        Ok(view) => return Ok((Found::Dlpack, view)),
        Err(failure) => PyErr::from(failure),
    };
    let has = |name: &Bound<'_, PyString>| object.hasattr(name);
    let is_lacking = failure.is_instance_of::<PyAttributeError>(py)
        && !(has(intern!(py, "__dlpack__"))? && has(intern!(py, "__dlpack_device__"))?);
    if !is_lacking {
        return Err(failure.into());
    }
    match object.getattr_opt(intern!(py, "__cuda_array_interface__"))? {
        Some(said) => Ok((Found::Interface, of_cuda(object, &said, stream_ptr)?)),
        // cuda.core's words.
        None => {
            let kind = object.get_type().qualname()?;
            Err(refused(format!("the input object, a {kind}, does not support any data exchange protocol")))
        }
    }
}

pub fn of_dlpack(object: &Bound<'_, PyAny>, stream_ptr: Option<&Bound<'_, PyAny>>) -> Outcome<StridedMemoryView> {
    static NAMES: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
    static NEWEST: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
    let py = object.py();
    let device = call_method(object, intern!(py, "__dlpack_device__"), None, &[])?;
    let (device_type, device_id): (i32, i32) = device.extract()?;
    let device = TensorDevice::try_from(DLDevice { device_type, device_id })
        .map_err(|error| refused(format!("device not supported: {error}")))?;
    let stream = match device {
        // The protocol names no streams for memory of the CPU.
        TensorDevice::Cpu => Some(consumer(stream_ptr)?).filter(|stream| *stream != -1),
        TensorDevice::Cuda(_) => Some(consumer(stream_ptr)?),
        TensorDevice::CudaHost | TensorDevice::CudaManaged => stream_ptr.map(integer).transpose()?,
    };
    // DLPack has no 0: None is the legacy default stream, which is 0 for the driver.
    let stream = stream.filter(|stream| *stream != 0).into_pyobject(py).map_err(PyErr::from)?;
    let names = NAMES.get_or_try_init(py, || names(py, [intern!(py, "stream"), intern!(py, "max_version")]))?;
    let newest = NEWEST.get_or_try_init(py, || Ok::<_, PyErr>((1, 3).into_pyobject(py)?.unbind()))?;
    let export = intern!(py, "__dlpack__");
    let said = match call_method(object, export, Some(names.bind(py)), &[&stream, newest.bind(py)]) {
        // Producers of before DLPack 1.0 do not know the argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            static STREAM: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
            let names = STREAM.get_or_try_init(py, || self::names(py, [intern!(py, "stream")]))?;
            call_method(object, export, Some(names.bind(py)), &[&stream])?
        }
        answer => answer?,
    };
    of_managed(capsule::take(&said)?, Some(object.clone().unbind()))
}

/// A view of a tensor. Its numbers are checked when they are asked for.
pub fn of_managed(managed: ManagedTensor, object: Option<Py<PyAny>>) -> Outcome<StridedMemoryView> {
    let said = managed.dl_tensor();
    let (device_id, is_device_accessible) = match TensorDevice::try_from(said.device)? {
        TensorDevice::Cpu => (-1, false),
        TensorDevice::Cuda(ordinal) => (ordinal, true),
        TensorDevice::CudaHost | TensorDevice::CudaManaged => (0, true),
    };
    let data = said.data.expose_provenance() as u64;
    let ptr = if data == 0 { 0 } else { data.wrapping_add(said.byte_offset) };
    Ok(StridedMemoryView {
        ptr,
        origin: ptr,
        device_id,
        is_device_accessible,
        readonly: managed.flags() & FLAG_READ_ONLY != 0,
        exporter: Exporter::Tensor { managed, object },
        ..StridedMemoryView::empty()
    })
}

pub fn of_cuda_interface(
    object: &Bound<'_, PyAny>,
    stream_ptr: Option<&Bound<'_, PyAny>>,
) -> Outcome<StridedMemoryView> {
    let py = object.py();
    let said = object.getattr(intern!(py, "__cuda_array_interface__"))?;
    // Before version 3, the interface names no stream. PyTorch's tensors have version 2, and name theirs by DLPack.
    let names_no_stream = said.cast::<PyDict>().is_ok_and(|said| matches!(version(said), Ok(..3)));
    if names_no_stream && object.hasattr(intern!(py, "__dlpack__"))? {
        return of_dlpack(object, stream_ptr);
    }
    of_cuda(object, &said, stream_ptr)
}

fn of_cuda(
    object: &Bound<'_, PyAny>,
    said: &Bound<'_, PyAny>,
    stream_ptr: Option<&Bound<'_, PyAny>>,
) -> Outcome<StridedMemoryView> {
    let py = object.py();
    let said = said.cast::<PyDict>().map_err(PyErr::from)?;
    check_interface(said, "CUDA")?;
    let stream = consumer(stream_ptr)?;
    let mut view = of_interface(object, said)?;
    view.is_device_accessible = true;
    view.device_id = match view.ptr {
        0 => current_device(py).unwrap_or(0),
        address => {
            let context = open(py, current_device(py).unwrap_or(0))?;
            let known = py.detach(|| PointerInfo::of(&context, address))?;
            known.device.ok_or_else(|| refused(format!("the driver knows no memory of a device at {address:#x}")))?
        }
    };
    let producer = said.get_item(intern!(py, "stream"))?.filter(|producer| !producer.is_none());
    if let Some(producer) = producer
        && stream != -1
    {
        order(py, view.device_id, integer(&producer)?, stream)?;
    }
    Ok(view)
}

pub fn of_host_interface(object: &Bound<'_, PyAny>) -> Outcome<StridedMemoryView> {
    let py = object.py();
    let said = object.getattr(intern!(py, "__array_interface__"))?;
    let said = said.cast::<PyDict>().map_err(PyErr::from)?;
    check_interface(said, "NumPy")?;
    let mut view = of_interface(object, said)?;
    view.device_id = current_device(py).unwrap_or(-1);
    Ok(view)
}

fn check_interface(said: &Bound<'_, PyDict>, whose: &str) -> Outcome {
    let py = said.py();
    // cuda.core's words.
    if version(said)? < 3 {
        return Err(refused(format!("only {whose} Array Interface v3 or above is supported")));
    }
    if said.get_item(intern!(py, "mask"))?.is_some_and(|mask| !mask.is_none()) {
        return Err(refused("mask is not supported"));
    }
    Ok(())
}

fn version(said: &Bound<'_, PyDict>) -> PyResult<i64> {
    item(said, intern!(said.py(), "version"))?.extract()
}

fn item<'py>(said: &Bound<'py, PyDict>, name: &Bound<'py, pyo3::types::PyString>) -> PyResult<Bound<'py, PyAny>> {
    said.get_item(name)?.ok_or_else(|| PyKeyError::new_err(name.clone().unbind()))
}

fn of_interface(object: &Bound<'_, PyAny>, said: &Bound<'_, PyDict>) -> Outcome<StridedMemoryView> {
    let py = object.py();
    let typestr: String = item(said, intern!(py, "typestr"))?.extract()?;
    let strides = said.get_item(intern!(py, "strides"))?.filter(|strides| !strides.is_none());
    let shape = item(said, intern!(py, "shape"))?;
    let size = item_size_of_typestr(py, &typestr)?;
    let layout = StridedLayout::of_arguments(&shape, strides.as_ref(), size, true)?;
    let (ptr, readonly): (u64, bool) = item(said, intern!(py, "data"))?.extract()?;
    Ok(StridedMemoryView {
        ptr,
        origin: ptr,
        readonly,
        exporter: Exporter::Interface { object: object.clone().unbind(), typestr },
        layout: known(py, Some(Py::new(py, layout)?)),
        ..StridedMemoryView::empty()
    })
}

/// Orders the consumer's stream after the producer's work so far.
fn order(py: Python<'_>, device: i32, producer: i64, consumer: i64) -> Outcome {
    let producer = StreamName::from_array_interface(Some(producer))?;
    // Here 0 names the legacy default stream, as for the driver.
    let consumer = StreamName::from_array_interface(Some(if consumer == 0 { 1 } else { consumer }))?;
    if producer == consumer {
        return Ok(());
    }
    let context = open(py, device)?;
    // SAFETY: the interface names a live stream of the producer, and the program one of its own; both live during this call.
    let streams = unsafe { (consumer.stream(&context), producer.stream(&context)) };
    let (Some(consumer), Some(producer)) = streams else { return Ok(()) };
    Ok(py.detach(|| consumer.join(&producer))?)
}

/// The device of the thread's current context.
fn current_device(py: Python<'_>) -> Option<i32> {
    let context = py.detach(|| current::current(&calls::driver("cuCtxGetCurrent").ok()?).ok().flatten())?;
    Some(context.device().ordinal())
}
