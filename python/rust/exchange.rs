//! DLPack's exchange API: a table of C functions, as a capsule on the type, by which libraries exchange arrays without calls of
//! Python's methods.
//!
//! The order: the protocol names one current stream for each device. Ours is the legacy default stream, since each buffer has a
//! home stream of its own: an export orders that stream after the home stream.

use crate::array::Array;
use crate::buffer::Buffer;
use crate::capsule::{self, Request};
use crate::error::{Failure, Outcome, raise};
use core::ffi::{CStr, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use cuda_mem::interchange::dlpack::{
    DLManagedTensorVersioned, DLPackExchangeAPI, ExchangeApi, ExchangeProvider, ImportedTensor, ManagedTensor,
    offer_exchange_api,
};
use cuda_mem::interchange::{StreamName, Tensor, TensorDevice};
use cuda_mem::{Driver, Error, Stream};
use cudamem::address::{cudamem_free, cudamem_malloc};
use cudamem::status::cudamem_last_error_message;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

pub const NAME: &CStr = c"dlpack_exchange_api";

// ---- What we offer ----

struct Provider;

/// Device memory for another library, from the pools that all libraries of the process share.
struct Block {
    address: u64,
    size: usize,
    device: i32,
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the block is live, and the consumer's work is in the order of the legacy default stream.
        unsafe { cudamem_free(self.address, self.size, self.device, ptr::null_mut()) };
    }
}

// SAFETY: a block is nobody else's until its drop, has the prototype's size and device, and is allocated for work of the legacy
// default stream, which lives as long as the process.
unsafe impl ExchangeProvider for Provider {
    fn allocate(&self, prototype: &Tensor) -> cuda_mem::Result<ManagedTensor> {
        let TensorDevice::Cuda(device) = prototype.device() else {
            return Err(Error::Unsupported {
                feature: "allocation for another library",
                needs: format!("device memory, not memory of the kind {:?}", prototype.device()).into(),
            });
        };
        let range = prototype.byte_range();
        let size = (range.end - range.start) as usize;
        let mut address = MaybeUninit::uninit();
        // SAFETY: the stream is the legacy default stream.
        let status = unsafe { cudamem_malloc(size, device, ptr::null_mut(), Some(&mut address)) };
        if status != 0 {
            // SAFETY: the text lives until the thread's next call of the C library.
            let text = unsafe { CStr::from_ptr(cudamem_last_error_message()) }.to_string_lossy().into_owned();
            return Err(Error::Foreign { resource: "the pool of cudamem_malloc", message: text.into() });
        }
        // SAFETY: the call has succeeded, and so written it.
        let address = unsafe { address.assume_init() };
        let block = Block { address, size, device };
        Ok(prototype.moved_to(address, prototype.device())?.export(block))
    }

    fn current_stream(&self, device: TensorDevice) -> cuda_mem::Result<StreamName> {
        if let TensorDevice::Cuda(ordinal) = device {
            Driver::load()?.device(ordinal)?;
        }
        Ok(StreamName::Legacy)
    }
}

struct Table(DLPackExchangeAPI);

// SAFETY: nobody writes the table after its creation.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

/// The capsule for the classes' attribute.
pub fn offered(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static TABLE: OnceLock<Option<Table>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let offered = offer_exchange_api(Box::new(Provider)).ok()?;
        Some(Table(DLPackExchangeAPI {
            managed_tensor_from_py_object_no_sync: Some(tensor_of_object),
            managed_tensor_to_py_object_no_sync: Some(object_of_tensor),
            ..*offered
        }))
    });
    let Some(Table(table)) = table else {
        return Err(PyRuntimeError::new_err("another part of this process offers the exchange API of cuda-mem"));
    };
    // SAFETY: the table and the name live as long as the process.
    unsafe {
        let capsule = ffi::PyCapsule_New(ptr::from_ref(table).cast_mut().cast(), NAME.as_ptr(), None);
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}

/// Runs a function of the table. An error or a panic becomes the thread's exception, and the answer -1.
pub fn answer(work: impl FnOnce(Python<'_>) -> Outcome) -> c_int {
    // The consumer holds the GIL, so this attaches at once; after the interpreter's end it does not.
    let done = Python::try_attach(|py| {
        let done = catch_unwind(AssertUnwindSafe(|| work(py).map_err(PyErr::from)))
            .unwrap_or_else(|_| Err(PyRuntimeError::new_err("cuda_mem panicked in DLPack's exchange API")));
        match done {
            Ok(()) => 0,
            Err(error) => {
                error.restore(py);
                -1
            }
        }
    });
    done.unwrap_or(-1)
}

/// # Safety
///
/// The thread holds the GIL, `object` is an object of Python, and `out` is room for a pointer.
unsafe extern "C" fn tensor_of_object(object: *mut c_void, out: *mut *mut DLManagedTensorVersioned) -> c_int {
    answer(|py| {
        // SAFETY: this function's contract.
        let object = unsafe { Bound::from_borrowed_ptr(py, object.cast()) };
        let tensor = match object.cast::<Array>() {
            Ok(array) => array.get().tensor().clone(),
            Err(_) => object.cast::<Buffer>().map_err(PyErr::from)?.get().tensor()?,
        };
        let managed = capsule::managed(py, &tensor, None, Request::default())?;
        // SAFETY: this function's contract.
        unsafe { out.write(managed.into_versioned()) };
        Ok(())
    })
}

/// # Safety
///
/// The thread holds the GIL, `tensor` is a tensor that this function takes, and `out` is room for a pointer.
unsafe extern "C" fn object_of_tensor(tensor: *mut DLManagedTensorVersioned, out: *mut *mut c_void) -> c_int {
    answer(|py| {
        // SAFETY: this function's contract.
        let imported = unsafe { ManagedTensor::from_versioned(tensor) }?.check()?;
        let ordinal = match imported.tensor().device() {
            TensorDevice::Cuda(ordinal) => ordinal,
            _ => 0,
        };
        let stream = Stream::legacy_default(&crate::context::open(py, ordinal)?);
        // SAFETY: the tensor describes memory that lives until its deleter is called; the consumer has ordered its work before
        // our current stream, which is this one.
        let tensor = py.detach(|| unsafe { imported.into_shared(&stream, None) })?;
        let array = Bound::new(py, Array::from_tensor(tensor))?;
        // SAFETY: this function's contract.
        unsafe { out.write(array.into_ptr().cast()) };
        Ok(())
    })
}

// ---- What we use ----

/// The tensor of another library's array by its table, ordered before `stream`; None if the library has none, or if only its
/// `__dlpack__` can tell whether the array may be exported.
pub fn import(object: &Bound<'_, PyAny>, stream: &Stream) -> Outcome<Option<ImportedTensor>> {
    let py = object.py();
    // Ours orders its home stream itself, by `__dlpack__`.
    if object.is_instance_of::<Array>() || object.is_instance_of::<Buffer>() {
        return Ok(None);
    }
    let Some(capsule) = object.get_type().getattr_opt(intern!(py, "__dlpack_c_exchange_api__"))? else {
        return Ok(None);
    };
    // SAFETY: the capsule lives during the calls. A capsule of this name contains a table that lives as long as the process.
    let api = unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), NAME.as_ptr()) == 0 {
            return Ok(None);
        }
        let table = ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr());
        ExchangeApi::from_raw(table.cast_const().cast())
    };
    // A table of a later major release: `__dlpack__` says which ones the library has.
    let Ok(api) = api else { return Ok(None) };
    let Some(tensor_of) = api.table().managed_tensor_from_py_object_no_sync else { return Ok(None) };
    if !is_plain(object)? {
        return Ok(None);
    }
    let mut raw = ptr::null_mut();
    // SAFETY: the object has the type of the table, this thread holds the GIL, and `raw` is room for a pointer.
    if unsafe { tensor_of(object.as_ptr().cast(), &mut raw) } != 0 {
        let error = PyErr::take(py);
        return Err(error
            .map_or_else(|| raise("ExchangeError", "the exchange API failed without an error", None), Failure::from));
    }
    // SAFETY: the other library has just made it for this call.
    let imported = unsafe { ManagedTensor::from_versioned(raw) }?.check()?;
    let device = match imported.tensor().device() {
        TensorDevice::Cpu | TensorDevice::CudaHost => return Ok(Some(imported)),
        TensorDevice::CudaManaged => TensorDevice::Cuda(stream.context().device().ordinal()),
        device => device,
    };
    let name = api.current_work_stream(device)?;
    py.detach(|| {
        let context = match device {
            TensorDevice::Cuda(ordinal) if ordinal != stream.context().device().ordinal() => {
                &Driver::load()?.device(ordinal)?.primary_context()?
            }
            _ => stream.context(),
        };
        // SAFETY: the library works on the stream now, so it lives.
        match unsafe { name.stream(context) } {
            Some(theirs) => stream.join(&theirs),
            None => Ok(()),
        }
    })?;
    Ok(Some(imported))
}

/// Whether the memory of an array tells its values. PyTorch's tables export tensors too that its `__dlpack__` refuses: those that
/// record gradients, and views that negate or conjugate what is in memory.
fn is_plain(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    if let Some(requires) = object.getattr_opt(intern!(py, "requires_grad"))?
        && requires.is_truthy()?
    {
        return Ok(false);
    }
    for name in [intern!(py, "is_conj"), intern!(py, "is_neg")] {
        if let Some(method) = object.getattr_opt(name)?
            && method.call0()?.is_truthy()?
        {
            return Ok(false);
        }
    }
    Ok(true)
}
