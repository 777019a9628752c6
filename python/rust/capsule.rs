//! DLPack's capsules.

use crate::error::{Failure, Outcome, failed_as, raise, shown};
use crate::exchange;
use crate::signals;
use core::ffi::CStr;
use core::ptr::NonNull;
use cuda_mem::Stream;
use cuda_mem::interchange::dlpack::{
    DLDevice, DLManagedTensor, DLManagedTensorVersioned, ImportedTensor, ManagedTensor,
};
use cuda_mem::interchange::{Consumer, Copying, ExportOptions, Release, SharedTensor, StreamName, TensorDevice};
use cuda_mem::memory::{DeviceMemory, PinnedMemory, ResourceHandle, SharedResource};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

const VERSIONED: &CStr = c"dltensor_versioned";
const LEGACY: &CStr = c"dltensor";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";
const USED_LEGACY: &CStr = c"used_dltensor";

/// DLPack's (type, number) of a device.
pub fn device(device: TensorDevice) -> (i32, i32) {
    let DLDevice { device_type, device_id } = device.into();
    (device_type, device_id)
}

/// How the memory is released by a consumer on the stream.
fn release(name: StreamName, home: &Stream) -> Release {
    match name {
        StreamName::Handle(handle) if handle.get() == home.raw().addr() => Release::AfterStream,
        // Nobody knows whether the consumer's stream lives until then.
        StreamName::Handle(_) => Release::AfterContext,
        StreamName::Unordered => Release::Immediately,
        StreamName::Legacy | StreamName::PerThread => Release::AfterStream,
    }
}

/// Where a copy for a device is allocated.
fn resource(context: &cuda_mem::Context, wanted: TensorDevice) -> SharedResource {
    match wanted {
        TensorDevice::Cuda(_) => DeviceMemory::new(context).share(),
        _ => PinnedMemory::new(context).share(),
    }
}

/// The arguments of `__dlpack__` beside the stream.
#[derive(Clone, Copy, Default)]
pub struct Request {
    /// Whether the consumer takes the capsules of DLPack 1.
    versioned: bool,
    /// DLPack's (type, number) of a device.
    pub device: Option<(i32, i32)>,
    pub copy: Option<bool>,
}

impl Request {
    pub fn new(max_version: Option<(i64, i64)>, device: Option<(i32, i32)>, copy: Option<bool>) -> Self {
        Self { versioned: max_version.is_some_and(|(major, _)| major >= 1), device, copy }
    }

    /// Arguments of any type.
    pub fn of(
        max_version: Option<&Bound<'_, PyAny>>,
        device: Option<&Bound<'_, PyAny>>,
        copy: Option<bool>,
    ) -> Outcome<Self> {
        let max_version = max_version.map(|version| {
            version.extract().map_err(|_| {
                // cuda.core's words.
                let text = format!("Expected max_version tuple[int, int], got {}", shown(version));
                raise("ExchangeError", text, None)
            })
        });
        let device = device.map(|device| {
            device.extract().map_err(|_| {
                let text = format!("dl_device must be a tuple[int, int], not {}", shown(device));
                raise("ExchangeError", text, None)
            })
        });
        Ok(Self::new(max_version.transpose()?, device.transpose()?, copy))
    }
}

/// A capsule of the array, in the order that the arguments of `__dlpack__` say.
pub fn export<'py>(
    py: Python<'py>,
    array: &SharedTensor,
    stream: Option<i64>,
    request: Request,
) -> Outcome<Bound<'py, PyAny>> {
    capsule(py, managed(py, array, stream, request)?, request)
}

/// The array for a consumer, as the arguments of `__dlpack__` say.
pub fn managed(py: Python<'_>, array: &SharedTensor, stream: Option<i64>, request: Request) -> Outcome<ManagedTensor> {
    let copy = request.copy;
    let memory = array.memory()?;
    let context = memory.context();
    let name = StreamName::from_dlpack(stream)?;
    // SAFETY: the consumer names a stream of the context, which lives at least during this call; `release` uses none
    // afterwards that may have ended.
    let theirs = stream.and_then(|_| unsafe { name.stream(context) });
    let consumer = match (&theirs, stream) {
        (Some(theirs), _) => Consumer::Stream(theirs),
        (None, Some(_)) => Consumer::Unordered,
        (None, None) => Consumer::Unsaid,
    };
    let wanted = match request.device {
        Some((device_type, device_id)) => Some(TensorDevice::try_from(DLDevice { device_type, device_id })?),
        None => None,
    };
    let own = array.tensor().device();
    let may_copy = copy == Some(true) || copy.is_none() && wanted.is_some_and(|wanted| wanted != own);
    let resource = may_copy.then(|| resource(context, wanted.unwrap_or(own)));
    let options = ExportOptions {
        consumer,
        release: release(name, memory.stream()),
        read_only: false,
        copying: match copy {
            Some(true) => Copying::Always,
            Some(false) => Copying::Never,
            None => Copying::WhereNeeded,
        },
        device: wanted,
        resource: resource.as_ref(),
    };
    // A view that needs no order needs no call of the driver.
    match options.consumer {
        Consumer::Unordered if copy != Some(true) && wanted.is_none() => array.to_dlpack(&options),
        _ => signals::detach(py, || array.to_dlpack(&options))?,
    }
    .map_err(|error| failed_as("ExchangeError", &error))
}

/// A capsule of a tensor.
pub fn capsule(py: Python<'_>, managed: ManagedTensor, request: Request) -> Outcome<Bound<'_, PyAny>> {
    // SAFETY: the names are static; the destructors release what nobody took. A capsule that cannot be made, which only
    // happens without memory, leaks its tensor.
    unsafe {
        let capsule = if request.versioned {
            ffi::PyCapsule_New(managed.into_versioned().cast(), VERSIONED.as_ptr(), Some(end_versioned))
        } else {
            ffi::PyCapsule_New(managed.into_legacy()?.cast(), LEGACY.as_ptr(), Some(end_legacy))
        };
        Ok(Bound::from_owned_ptr_or_err(py, capsule)?)
    }
}

/// # Safety
///
/// `capsule` is a capsule of [`capsule`] that ends.
unsafe extern "C" fn end_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule that still has its name owns its tensor.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) != 0 {
            let raw = ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast::<DLManagedTensorVersioned>();
            drop(ManagedTensor::from_versioned(raw));
        }
    }
}

/// # Safety
///
/// As [`end_versioned`].
unsafe extern "C" fn end_legacy(capsule: *mut ffi::PyObject) {
    // SAFETY: as in `end_versioned`.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, LEGACY.as_ptr()) != 0 {
            let raw = ffi::PyCapsule_GetPointer(capsule, LEGACY.as_ptr()).cast::<DLManagedTensor>();
            drop(ManagedTensor::from_legacy(raw));
        }
    }
}

/// Asks an object of another library for its tensor, ordered before `stream`, and checks it.
pub fn import(object: &Bound<'_, PyAny>, stream: &Stream) -> Outcome<ImportedTensor> {
    let py = object.py();
    if let Some(imported) = exchange::import(object, stream)? {
        return Ok(imported);
    }
    if !object.hasattr("__dlpack__")? {
        let text = format!("an object with __dlpack__ is needed, not {}", object.get_type().qualname()?);
        return Err(PyTypeError::new_err(text).into());
    }
    let (device_type, device_id): (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
    let arguments = PyDict::new(py);
    // The protocol names a stream for devices only.
    if let Ok(TensorDevice::Cuda(_) | TensorDevice::CudaManaged) =
        TensorDevice::try_from(DLDevice { device_type, device_id })
    {
        arguments.set_item("stream", StreamName::of(stream).number())?;
    }
    arguments.set_item("max_version", (1, 1))?;
    let capsule = match object.call_method("__dlpack__", (), Some(&arguments)) {
        // Producers of before DLPack 1.0 do not know the argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            arguments.del_item("max_version")?;
            object.call_method("__dlpack__", (), Some(&arguments))?
        }
        answer => answer?,
    };
    Ok(take(&capsule)?.check()?)
}

/// Takes the tensor out of a capsule.
pub fn take(capsule: &Bound<'_, PyAny>) -> Outcome<ManagedTensor> {
    let raw = capsule.as_ptr();
    // SAFETY: the capsule lives during this call. A capsule of this name contains a tensor of its kind; renamed, it no
    // longer owns it.
    unsafe {
        if ffi::PyCapsule_IsValid(raw, VERSIONED.as_ptr()) != 0 {
            let tensor = pointer(raw, VERSIONED)?;
            ffi::PyCapsule_SetName(raw, USED_VERSIONED.as_ptr());
            Ok(ManagedTensor::from_versioned(tensor.cast().as_ptr())?)
        } else if ffi::PyCapsule_IsValid(raw, LEGACY.as_ptr()) != 0 {
            let tensor = pointer(raw, LEGACY)?;
            ffi::PyCapsule_SetName(raw, USED_LEGACY.as_ptr());
            Ok(ManagedTensor::from_legacy(tensor.cast().as_ptr())?)
        } else {
            Err(raise("ExchangeError", "__dlpack__ returned something else than an unused capsule", None))
        }
    }
}

/// # Safety
///
/// `capsule` is a valid capsule of that name.
unsafe fn pointer(capsule: *mut ffi::PyObject, name: &CStr) -> Result<NonNull<core::ffi::c_void>, Failure> {
    // SAFETY: this function's contract.
    let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) };
    NonNull::new(pointer).ok_or_else(|| raise("ExchangeError", "the capsule contains no tensor", None))
}
