//! DLPack
//!
//! Views go to other libraries and come from them without a copy, as DLPack 1.3 has it. This header does not need dlpack.h; both
//! may be included, in any order.
//!
//! Order: what goes out is ordered before the consumer's stream, and the CPU waits only where the CPU is the consumer. When the
//! consumer calls the deleter, the memory is used again, or freed, after the work that its stream has by then.
//!
//! Life: memory that others have is not freed under them. Handles may be destroyed at any time; the deleter ends the last hold.

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
use std::sync::Arc;

/// A flag of cudamem_dlpack_options: the consumer may only read.
pub const CUDAMEM_DLPACK_READ_ONLY: u32 = 1;
/// A flag of cudamem_dlpack_options: the consumer gets a copy, which it alone has.
pub const CUDAMEM_DLPACK_COPY: u32 = 2;
/// A flag of cudamem_dlpack_options: what would need a copy is an error.
pub const CUDAMEM_DLPACK_NO_COPY: u32 = 4;

/// When the consumer has let go, the memory waits for the work that the consumer's stream has by then. That stream has to live
/// until then.
pub const CUDAMEM_RELEASE_AFTER_STREAM: i32 = 0;
/// When the consumer has let go, the memory waits for nothing: the consumer's work is done by then.
pub const CUDAMEM_RELEASE_IMMEDIATELY: i32 = 1;
/// When the consumer has let go, all work of the context is waited for: for consumers whose stream may be gone by then.
pub const CUDAMEM_RELEASE_AFTER_CONTEXT: i32 = 2;

/// How a view is handed out. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_dlpack_options {
    /// sizeof(cudamem_dlpack_options).
    pub size: usize,
    /// CUDAMEM_DLPACK_... combined by |.
    pub flags: u32,
    /// One of CUDAMEM_RELEASE_... .
    pub release: i32,
    /// The consumer's stream, as DLPack names it: 1 is the legacy default stream, 2 the calling thread's, -1 wants no order,
    /// others are a CUstream of the view's context. 0: it is not said. Memory of a device is then ordered before the legacy
    /// default stream, and memory of the host is waited for.
    pub stream: i64,
    /// What a copy is allocated from. The null handle where none is needed.
    pub resource: cudamem_resource,
    /// The device that the consumer wants the memory on, by DLPack's numbers: kDLCPU is 1, kDLCUDA 2, kDLCUDAHost 3,
    /// kDLCUDAManaged 13. 0 is where it lies. Another one needs a copy, but for the CPU where it addresses the memory.
    pub device_type: i32,
    /// The number of that device.
    pub device_id: i32,
}

// SAFETY: 8 + 4 + 4 + 8 + 8 + 4 + 4 bytes of numbers.
unsafe impl Options for cudamem_dlpack_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Options with the objects that they name.
struct Chosen {
    read_only: bool,
    copying: Copying,
    release: Release,
    /// None: not said.
    stream: Option<StreamName>,
    resource: Option<SharedResource>,
    device: Option<TensorDevice>,
}

impl Chosen {
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
            _ => return Err(invalid("options.flags", "both", "the consumer gets a copy, or it does not")),
        };
        let release = match said.release {
            CUDAMEM_RELEASE_AFTER_STREAM => Release::AfterStream,
            CUDAMEM_RELEASE_IMMEDIATELY => Release::Immediately,
            CUDAMEM_RELEASE_AFTER_CONTEXT => Release::AfterContext,
            other => return Err(invalid("options.release", other.to_string(), "it is one of CUDAMEM_RELEASE_...")),
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
/// As [`options`]; a stream that they name is one of the view's context.
unsafe fn export(view: cudamem_view, options: *const cudamem_dlpack_options) -> Outcome<ManagedTensor> {
    // SAFETY: this function's contract.
    let chosen = unsafe { Chosen::read(options) }?;
    let view = object("view", view)?;
    let Some(context) = view.context() else {
        return Err(invalid("view", "one of the host's memory", "it has to be a view of a buffer"));
    };
    // SAFETY: the program promises a stream of the context that lives as long as it is used.
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
    Ok(view.to_dlpack(&settings)?)
}

/// Hands a view to another library, in order: makes a DLManagedTensorVersioned, whose deleter has to be called once. options may
/// be NULL.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if a copy is needed that is forbidden or has no resource, if the view is of no buffer,
/// or if its first element begins within a byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_view_export_dlpack(
    view: cudamem_view,
    options: *const cudamem_dlpack_options,
    tensor: Out<'_, *mut DLManagedTensorVersioned>,
) -> cudamem_status {
    run("cudamem_view_export_dlpack", || {
        let tensor = out("tensor", tensor)?;
        // SAFETY: the header's rules for options and streams.
        tensor.write(unsafe { export(view, options) }?.into_versioned());
        Ok(())
    })
}

/// As cudamem_view_export_dlpack, for consumers that know only the layout before DLPack 1.0.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT also if the view may only be read or has padded elements, which that layout cannot say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_view_export_dlpack_legacy(
    view: cudamem_view,
    options: *const cudamem_dlpack_options,
    tensor: Out<'_, *mut DLManagedTensor>,
) -> cudamem_status {
    run("cudamem_view_export_dlpack_legacy", || {
        let tensor = out("tensor", tensor)?;
        // SAFETY: as above.
        let exported = unsafe { export(view, options) }?;
        tensor.write(exported.into_legacy().map_err(Error::from)?);
        Ok(())
    })
}

/// A tensor of the program's in our hands. It is the program's again unless it was kept.
#[repr(C)]
struct Borrowed<R> {
    /// What the producer says. First, so that a pointer to it is one to all.
    said: R,
    original: *mut R,
    delete: fn(*mut R),
    kept: Arc<AtomicBool>,
}

/// The deleter of what stands for a tensor of the program's.
///
/// # Safety
///
/// `said` is the first field of a boxed [`Borrowed`]; the deleter is called once.
unsafe extern "C" fn give_up<R>(said: *mut R) {
    // SAFETY: this function's contract.
    let borrowed = unsafe { Box::from_raw(said.cast::<Borrowed<R>>()) };
    if borrowed.kept.load(Ordering::Acquire) {
        (borrowed.delete)(borrowed.original);
    }
}

fn delete_versioned(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: a tensor that was kept is ours, and its deleter is called here alone.
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

/// Makes a view of a tensor, and a handle of it, in `place`. On success the tensor is kept.
///
/// # Safety
///
/// The memory is as the tensor says.
unsafe fn import(
    tensor: ManagedTensor,
    kept: &AtomicBool,
    stream: &Stream,
    producer: Option<Use<Stream>>,
    place: &mut core::mem::MaybeUninit<cudamem_view>,
) -> Outcome {
    let checked = tensor.check().map_err(Error::from)?;
    // SAFETY: this function's contract.
    let shared = unsafe { checked.into_shared(stream, producer.as_deref()) }?;
    let view: StridedView<'static> = shared.into_view()?;
    place.write(call::new_handle(view)?);
    kept.store(true, Ordering::Release);
    Ok(())
}

/// The producer's stream, where there is one.
fn producer_stream(producer: cudamem_stream) -> Outcome<Option<Use<Stream>>> {
    if producer.id == 0 { Ok(None) } else { object("producer", producer).map(Some) }
}

/// Makes a view of another library's tensor. The deleter is called, on any thread, when the last view or buffer of the memory has
/// ended; after a failure the tensor is the program's as before.
///
/// stream becomes the home stream of the memory's work. Without a producer (the null handle), the producer must have ordered its
/// work before stream already, as DLPack's producers do for the stream that they are asked for, and the end waits for ours. With
/// one, stream waits for the producer's work so far, and the producer for ours in the end, all without holding up the CPU.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the tensor's numbers cannot be, if it is of another release of DLPack or of another
/// kind of device, or if the driver says that the memory is elsewhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_view_import_dlpack(
    tensor: *mut DLManagedTensorVersioned,
    stream: cudamem_stream,
    producer: cudamem_stream,
    view: Out<'_, cudamem_view>,
) -> cudamem_status {
    run("cudamem_view_import_dlpack", || {
        let view = out("view", view)?;
        check_struct("tensor", tensor)?;
        let (stream, producer) = (object("stream", stream)?, producer_stream(producer)?);
        // SAFETY: the program's tensor, in which every release has the version first.
        let version = unsafe { (&raw const (*tensor).version).read() };
        if version.major != VERSION.major {
            return Err(Error::from(DlpackError::Version { major: version.major, minor: version.minor }).into());
        }
        let kept = Arc::new(AtomicBool::new(false));
        // SAFETY: of this major release it is laid out as here.
        let mut said = unsafe { ptr::read(tensor) };
        said.deleter = Some(give_up::<DLManagedTensorVersioned>);
        said.manager_ctx = tensor.cast::<c_void>();
        let borrowed = Borrowed { said, original: tensor, delete: delete_versioned, kept: kept.clone() };
        let borrowed = Box::into_raw(Box::new(borrowed)).cast::<DLManagedTensorVersioned>();
        // SAFETY: made just now for this one import; the program promises that the memory is as it says.
        unsafe {
            let taken = ManagedTensor::from_versioned(borrowed).map_err(Error::from)?;
            import(taken, &kept, &stream, producer, view)
        }
    })
}

/// As cudamem_view_import_dlpack, of a tensor in the layout before DLPack 1.0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_view_import_dlpack_legacy(
    tensor: *mut DLManagedTensor,
    stream: cudamem_stream,
    producer: cudamem_stream,
    view: Out<'_, cudamem_view>,
) -> cudamem_status {
    run("cudamem_view_import_dlpack_legacy", || {
        let view = out("view", view)?;
        check_struct("tensor", tensor)?;
        let (stream, producer) = (object("stream", stream)?, producer_stream(producer)?);
        let kept = Arc::new(AtomicBool::new(false));
        // SAFETY: the program's tensor.
        let mut said = unsafe { ptr::read(tensor) };
        said.deleter = Some(give_up::<DLManagedTensor>);
        said.manager_ctx = tensor.cast::<c_void>();
        let borrowed = Borrowed { said, original: tensor, delete: delete_legacy, kept: kept.clone() };
        let borrowed = Box::into_raw(Box::new(borrowed)).cast::<DLManagedTensor>();
        // SAFETY: as above.
        unsafe {
            let taken = ManagedTensor::from_legacy(borrowed).map_err(Error::from)?;
            import(taken, &kept, &stream, producer, view)
        }
    })
}
