//! DLPack
//!
//! Exports views to other libraries and imports their tensors without a copy, as DLPack 1.3 defines it. This header
//! does not need dlpack.h; a program may include both, in any order.
//!
//! Order: an export is ordered before the consumer's stream; the call waits only if the consumer is the CPU. When the
//! consumer calls the deleter, the memory is reused or freed after the work then queued on its stream.
//!
//! Lifetime: memory that others use is never freed. Handles may be destroyed at any time; the deleter ends the
//! consumer's use.

use crate::call::{self, Options, Out, Outcome, check_flags, check_struct, invalid, object, options, out, run};
use crate::handle::Use;
use crate::handles::cudamem_resource;
use crate::handles::cudamem_stream;
use crate::handles::cudamem_view;
use crate::status::cudamem_status;
use core::ffi::c_void;
use core::mem::size_of;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use cuda_mem::interchange::dlpack::{
    DLDevice, DLManagedTensor, DLManagedTensorVersioned, DlpackError, ManagedTensor, VERSION,
};
use cuda_mem::interchange::{Consumer, Copying, ExportOptions, Release, StreamName, TensorDevice};
use cuda_mem::memory::SharedResource;
use cuda_mem::view::StridedView;
use cuda_mem::{Error, Stream};

/// A flag of cudamem_dlpack_options: the consumer may only read.
pub const CUDAMEM_DLPACK_READ_ONLY: u32 = 1;
/// A flag of cudamem_dlpack_options: the consumer gets its own copy.
pub const CUDAMEM_DLPACK_COPY: u32 = 2;
/// A flag of cudamem_dlpack_options: fail where a copy would be needed.
pub const CUDAMEM_DLPACK_NO_COPY: u32 = 4;

/// After the consumer calls the deleter, the memory waits for the work that the consumer's stream has by then. That
/// stream must live until the call.
pub const CUDAMEM_RELEASE_AFTER_STREAM: i32 = 0;
/// The memory is reused as soon as the consumer calls the deleter. The consumer's work must be done by then.
pub const CUDAMEM_RELEASE_IMMEDIATELY: i32 = 1;
/// The deleter waits for all work of the context: for consumers whose stream may be gone by then.
pub const CUDAMEM_RELEASE_AFTER_CONTEXT: i32 = 2;

/// How a view is exported. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_dlpack_options {
    /// sizeof(cudamem_dlpack_options).
    pub size: usize,
    /// CUDAMEM_DLPACK_... combined by |.
    pub flags: u32,
    /// One of CUDAMEM_RELEASE_... .
    pub release: i32,
    /// The consumer's stream, as DLPack names it: 1 is the legacy default stream, 2 the calling thread's, -1 requests
    /// no order, others are a CUstream of the view's context. 0 is unspecified: device memory is then ordered before
    /// the legacy default stream, and host memory is waited for.
    pub stream: i64,
    /// The resource that a copy is allocated from. The null handle if no copy is needed.
    pub resource: cudamem_resource,
    /// The device that the consumer wants the memory on, as DLPack numbers it: kDLCPU is 1, kDLCUDA 2, kDLCUDAHost 3,
    /// kDLCUDAManaged 13. 0 keeps the memory where it lies. Any other device needs a copy, except the CPU if it
    /// addresses the memory.
    pub device_type: i32,
    /// The number of that device.
    pub device_id: i32,
}

// SAFETY: numbers of 8 + 4 + 4 + 8 + 8 + 4 + 4 bytes.
unsafe impl Options for cudamem_dlpack_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Options with the objects that their handles name.
struct ExportSettings {
    read_only: bool,
    copying: Copying,
    release: Release,
    /// None if the program left it unspecified.
    stream: Option<StreamName>,
    resource: Option<SharedResource>,
    device: Option<TensorDevice>,
}

impl ExportSettings {
    /// # Safety
    ///
    /// As [`options`].
    unsafe fn read(given: *const cudamem_dlpack_options) -> Outcome<Self> {
        // SAFETY: this function's contract.
        let said = unsafe { options("options", given) }?;
        let known = CUDAMEM_DLPACK_READ_ONLY | CUDAMEM_DLPACK_COPY | CUDAMEM_DLPACK_NO_COPY;
        check_flags("options.flags", said.flags, known)?;
        let copying = match said.flags & (CUDAMEM_DLPACK_COPY | CUDAMEM_DLPACK_NO_COPY) {
            0 => Copying::WhereNeeded,
            CUDAMEM_DLPACK_COPY => Copying::Always,
            CUDAMEM_DLPACK_NO_COPY => Copying::Never,
            _ => return Err(invalid("options.flags", "both _COPY and _NO_COPY", "it must have at most one of them")),
        };
        let release = match said.release {
            CUDAMEM_RELEASE_AFTER_STREAM => Release::AfterStream,
            CUDAMEM_RELEASE_IMMEDIATELY => Release::Immediately,
            CUDAMEM_RELEASE_AFTER_CONTEXT => Release::AfterContext,
            other => {
                return Err(invalid("options.release", other.to_string(), "it must be one of CUDAMEM_RELEASE_..."));
            }
        };
        let stream = match said.stream {
            0 => None,
            number => Some(StreamName::from_dlpack(Some(number)).map_err(Error::from)?),
        };
        let resource = match said.resource.id {
            0 => None,
            _ => Some(object("options.resource", said.resource)?.share()),
        };
        let device = match said.device_type {
            0 => None,
            device_type => {
                let device = DLDevice { device_type, device_id: said.device_id };
                Some(TensorDevice::try_from(device).map_err(Error::from)?)
            }
        };
        let read_only = said.flags & CUDAMEM_DLPACK_READ_ONLY != 0;
        Ok(Self { read_only, copying, release, stream, resource, device })
    }
}

/// # Safety
///
/// As [`options`]; a stream that the options name belongs to the view's context.
unsafe fn export(view: cudamem_view, options: *const cudamem_dlpack_options) -> Outcome<ManagedTensor> {
    // SAFETY: this function's contract.
    let chosen = unsafe { ExportSettings::read(options) }?;
    let view = object("view", view)?;
    let Some(context) = view.context() else {
        return Err(invalid("view", "a view of host memory", "it must be a view of a buffer"));
    };
    // SAFETY: the header requires the program to name a stream of the context that lives as long as it is used.
    let stream = chosen.stream.and_then(|name| unsafe { name.stream(context) });
    let settings = ExportOptions {
        consumer: match (&chosen.stream, &stream) {
            (None, _) => Consumer::Unsaid,
            (Some(_), None) => Consumer::Unordered,
            (Some(_), Some(stream)) => Consumer::Stream(stream),
        },
        release: chosen.release,
        read_only: chosen.read_only,
        copying: chosen.copying,
        device: chosen.device,
        resource: chosen.resource.as_ref(),
    };
    Ok(view.to_tensor()?.to_dlpack(&settings)?)
}

/// Exports a view to another library, in stream order: as a DLManagedTensorVersioned if tensor is not NULL, or as a
/// DLManagedTensor, for consumers that only know the layout before DLPack 1.0, if legacy is not NULL. One of the two
/// must be NULL. The consumer must call the tensor's deleter once. options may be NULL.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if a needed copy is forbidden or has no resource, if the view is not of a
/// buffer, or if its first element begins within a byte; for the old layout also if the view is read-only or has padded
/// elements, which that layout cannot express.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_view_export_dlpack(
    view: cudamem_view,
    options: *const cudamem_dlpack_options,
    tensor: Out<'_, *mut DLManagedTensorVersioned>,
    legacy: Out<'_, *mut DLManagedTensor>,
) -> cudamem_status {
    run("cudamem_view_export_dlpack", || {
        // SAFETY: the header requires valid options, and a live stream of the context.
        let exported = || unsafe { export(view, options) };
        match (tensor, legacy) {
            (Some(tensor), None) => drop(tensor.write(exported()?.into_versioned())),
            (None, Some(legacy)) => drop(legacy.write(exported()?.into_legacy().map_err(Error::from)?)),
            (given, _) => return Err(one_layout(given.is_some())),
        }
        Ok(())
    })
}

/// The failure of a program that names both layouts, or none.
fn one_layout(both: bool) -> call::Failure {
    let value = if both { "not NULL, and neither is legacy" } else { "NULL, and so is legacy" };
    invalid("tensor", value, "one of the two must be NULL")
}

/// Stands in for the program's tensor during an import. The tensor goes back to the program unless the import keeps it.
#[repr(C)]
struct TensorStandIn<R> {
    /// A copy of the producer's tensor. It comes first, so that its address is the struct's.
    said: R,
    original: *mut R,
    delete: fn(*mut R),
    kept: AtomicBool,
}

/// Makes a stand-in. Its deleter frees it.
fn stand_in<R>(said: R, original: *mut R, delete: fn(*mut R)) -> *mut TensorStandIn<R> {
    Box::into_raw(Box::new(TensorStandIn { said, original, delete, kept: AtomicBool::new(false) }))
}

/// The deleter of a stand-in. It calls the producer's deleter only if the import kept the tensor.
///
/// # Safety
///
/// `said` is the first field of a boxed [`TensorStandIn`]; the deleter is called once.
unsafe extern "C" fn give_up<R>(said: *mut R) {
    // SAFETY: this function's contract.
    let borrowed = unsafe { Box::from_raw(said.cast::<TensorStandIn<R>>()) };
    if borrowed.kept.load(Ordering::Acquire) {
        (borrowed.delete)(borrowed.original);
    }
}

fn delete_versioned(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: the import kept the tensor, so this library owns it, and only this function calls its deleter.
    if let Some(deleter) = unsafe { (*tensor).deleter } {
        // SAFETY: as above.
        unsafe { deleter(tensor) };
    }
}

fn delete_legacy(tensor: *mut DLManagedTensor) {
    // SAFETY: as above.
    if let Some(deleter) = unsafe { (*tensor).deleter } {
        // SAFETY: as above.
        unsafe { deleter(tensor) };
    }
}

/// Makes a view of a tensor, and stores its handle in `place`. On success the import keeps the tensor.
///
/// # Safety
///
/// The memory is as the tensor describes it. `kept` is a field of the stand-in that the tensor is.
unsafe fn import(
    tensor: ManagedTensor,
    kept: *const AtomicBool,
    stream: &Stream,
    producer: Option<Use<Stream>>,
    place: &mut core::mem::MaybeUninit<cudamem_view>,
) -> Outcome {
    let checked = tensor.check().map_err(Error::from)?;
    // SAFETY: this function's contract.
    let shared = unsafe { checked.into_shared(stream, producer.as_deref()) }?;
    let view: StridedView<'static> = shared.into_view()?;
    let handle = call::new_handle_with(|| {
        // SAFETY: the view, which ends later, holds the stand-in (this function's contract).
        unsafe { &*kept }.store(true, Ordering::Release);
        Ok::<_, Error>(view)
    });
    place.write(handle?);
    Ok(())
}

/// The producer's stream, or None for the null handle.
fn producer_stream(producer: cudamem_stream) -> Outcome<Option<Use<Stream>>> {
    if producer.id == 0 { Ok(None) } else { object("producer", producer).map(Some) }
}

/// Makes a view of another library's tensor: of tensor, or of legacy for the layout before DLPack 1.0. The other must
/// be NULL. The library calls the tensor's deleter, on any thread, when the last view or buffer of the memory has
/// ended. On failure the tensor stays the program's, unchanged.
///
/// stream becomes the memory's home stream. If producer is the null handle, the producer must already have ordered its
/// work before stream, as DLPack producers do for the stream that the consumer names, and the end of the memory waits
/// for its work. Otherwise stream waits for the producer's work so far, and at the end the producer's stream waits for
/// the memory's work, without blocking the CPU.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the tensor's numbers are invalid, if it comes from another major version
/// of DLPack or lies on another kind of device, or if the driver reports that the memory lies elsewhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_view_import_dlpack(
    tensor: *mut DLManagedTensorVersioned,
    legacy: *mut DLManagedTensor,
    stream: cudamem_stream,
    producer: cudamem_stream,
    view: Out<'_, cudamem_view>,
) -> cudamem_status {
    run("cudamem_view_import_dlpack", || {
        let view = out("view", view)?;
        if tensor.is_null() == legacy.is_null() {
            return Err(one_layout(!tensor.is_null()));
        }
        let (stream, producer) = (object("stream", stream)?, producer_stream(producer)?);
        // SAFETY: the header requires a tensor in the layout of its argument.
        unsafe {
            let (taken, kept) = if legacy.is_null() {
                check_struct("tensor", tensor)?;
                // Every version of DLPack begins the tensor with the version.
                let version = (&raw const (*tensor).version).read();
                if version.major != VERSION.major {
                    return Err(Error::from(DlpackError::Version { major: version.major, minor: version.minor }).into());
                }
                let mut said = ptr::read(tensor);
                said.deleter = Some(give_up::<DLManagedTensorVersioned>);
                said.manager_ctx = tensor.cast::<c_void>();
                let ours = stand_in(said, tensor, delete_versioned);
                (ManagedTensor::from_versioned(ours.cast()), &raw const (*ours).kept)
            } else {
                check_struct("legacy", legacy)?;
                let mut said = ptr::read(legacy);
                said.deleter = Some(give_up::<DLManagedTensor>);
                said.manager_ctx = legacy.cast::<c_void>();
                let ours = stand_in(said, legacy, delete_legacy);
                (ManagedTensor::from_legacy(ours.cast()), &raw const (*ours).kept)
            };
            import(taken.map_err(Error::from)?, kept, &stream, producer, view)
        }
    })
}
