//! The functions that the Python tests of the interchange call through ctypes: they export and import tensors of every
//! kind of memory through each protocol. This is not a library for programs.
//!
//! Every object is a pointer. Null means an error, whose text `interchange_error` returns.

mod arrow;
mod dlpack;

use cuda_mem::interchange::array_interface::ArrayInterface;
use cuda_mem::interchange::dlpack::ManagedTensor;
use cuda_mem::interchange::{Consumer, ExportOptions, SharedTensor, StreamName, Tensor, TensorDevice};
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{DeviceMemory, ManagedMemory, PinnedMemory, ResourceHandle, SharedResource};
use cuda_mem::view::{Order, StridedLayout};
use cuda_mem::{Buffer, Context, DataType, Driver, Error, Stream};
use std::cell::RefCell;
use std::error::Error as StdError;
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
    static TEXT: RefCell<CString> = RefCell::default();
}

/// Returns the text of this thread's last error.
#[unsafe(no_mangle)]
pub extern "C" fn interchange_error() -> *const c_char {
    ERROR.with(|error| error.borrow().as_ptr())
}

type Outcome<T> = Result<T, Box<dyn StdError>>;

/// Runs a function, and keeps its error.
fn run<T>(part: impl FnOnce() -> Outcome<T>) -> Option<T> {
    part().map_err(|error| keep(&ERROR, &error.to_string())).ok()
}

fn keep(place: &'static std::thread::LocalKey<RefCell<CString>>, text: &str) -> *const c_char {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    place.with(|place| {
        *place.borrow_mut() = text;
        place.borrow().as_ptr()
    })
}

fn boxed<T>(part: impl FnOnce() -> Outcome<T>) -> *mut T {
    run(part).map_or(ptr::null_mut(), |value| Box::into_raw(Box::new(value)))
}

fn code(part: impl FnOnce() -> Outcome<()>) -> i32 {
    run(part).map_or(-1, |()| 0)
}

/// A context with a stream.
#[derive(Debug)]
pub struct Session {
    context: Context,
    stream: Stream,
}

/// Opens the driver that the environment names, else the system's driver, else the software GPU.
#[unsafe(no_mangle)]
pub extern "C" fn interchange_open() -> *mut Session {
    boxed(|| {
        let driver = match Driver::load() {
            Err(Error::Load(_)) if std::env::var_os("CUDA_MEM_LIBCUDA").is_none() => Driver::software()?,
            other => other?,
        };
        let context = driver.device(0)?.primary_context()?;
        let stream = Stream::new(&context)?;
        Ok(Session { context, stream })
    })
}

/// # Safety
///
/// The session comes from `interchange_open` and was not closed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_close(session: *mut Session) {
    // SAFETY: this function's contract.
    drop(unsafe { Box::from_raw(session) });
}

impl Session {
    fn resource(&self, kind: i32) -> Outcome<SharedResource> {
        Ok(match kind {
            0 => DeviceMemory::new(&self.context).share(),
            1 => PinnedMemory::new(&self.context).share(),
            2 => ManagedMemory::new(&self.context)?.share(),
            _ => return Err(format!("there is no kind {kind}").into()),
        })
    }

    /// # Safety
    ///
    /// A stream handle belongs to a live stream.
    unsafe fn stream(&self, number: i64) -> Outcome<Stream> {
        // SAFETY: this function's contract.
        let stream = unsafe { StreamName::from_dlpack(Some(number))?.stream(&self.context) };
        stream.ok_or_else(|| "no stream".into())
    }
}

/// Returns the handle of the session's stream.
///
/// # Safety
///
/// The session is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_stream(session: &Session) -> i64 {
    StreamName::of(&session.stream).number().unwrap_or(-1)
}

/// Delays the session's stream for this time.
///
/// # Safety
///
/// The session is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_delay(session: &Session, microseconds: u64) -> i32 {
    let sleep = move || std::thread::sleep(Duration::from_micros(microseconds));
    code(|| Ok(session.stream.launch_host_function(sleep)?))
}

/// Makes a foreign stream wait for the session's stream, or the session's stream for it.
///
/// # Safety
///
/// The session is open, and the stream is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_join(session: &Session, stream: i64, ours_waits: bool) -> i32 {
    code(|| {
        // SAFETY: this function's contract.
        let theirs = unsafe { session.stream(stream) }?;
        if ours_waits {
            session.stream.join(&theirs)?
        } else {
            theirs.join(&session.stream)?
        }
        Ok(())
    })
}

/// Allocates a tensor of zeros: kind 0 is device memory, 1 pinned, 2 managed.
///
/// # Safety
///
/// The session is open, the name is a C string, and the shape has that many extents.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_new(
    session: &Session,
    kind: i32,
    data_type: *const c_char,
    dimensions: usize,
    shape: *const i64,
) -> *mut SharedTensor {
    boxed(|| {
        // SAFETY: this function's contract.
        let (name, shape) =
            unsafe { (CStr::from_ptr(data_type).to_str()?, std::slice::from_raw_parts(shape, dimensions)) };
        let data_type: DataType = name.parse()?;
        let elements: i64 = shape.iter().product();
        let size = data_type.packed_size(usize::try_from(elements)?).ok_or("too large")?;
        let buffer = Buffer::<u8, Any>::zeroed(&session.resource(kind)?, size, &session.stream)?.into_shared();
        Ok(buffer.tensor().with_type_and_layout(data_type, 0, shape, None)?)
    })
}

/// Returns another layout of a tensor's memory. Strides are in elements, the offset in bytes.
///
/// # Safety
///
/// The tensor is alive. Shape and strides have that many entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_layout(
    tensor: &SharedTensor,
    offset: usize,
    dimensions: usize,
    shape: *const i64,
    strides: *const i64,
) -> *mut SharedTensor {
    boxed(|| {
        // SAFETY: this function's contract.
        let (shape, strides) =
            unsafe { (std::slice::from_raw_parts(shape, dimensions), std::slice::from_raw_parts(strides, dimensions)) };
        Ok(tensor.with_layout(offset, shape, Some(strides))?)
    })
}

/// # Safety
///
/// The tensor comes from this library and was not dropped before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_drop(tensor: *mut SharedTensor) {
    // SAFETY: this function's contract.
    drop(unsafe { Box::from_raw(tensor) });
}

/// Fills the tensor's memory with a byte, in the order of its stream.
///
/// # Safety
///
/// The tensor is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_fill(tensor: &SharedTensor, byte: u8) -> i32 {
    code(|| Ok(tensor.memory()?.clone().fill(.., byte)?))
}

/// Writes bytes to the beginning of the tensor's memory, and waits.
///
/// # Safety
///
/// The tensor is alive, and there are that many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_write(tensor: &SharedTensor, bytes: *const u8, length: usize) -> i32 {
    // SAFETY: this function's contract.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, length) };
    code(|| Ok(tensor.memory()?.clone().copy_from_slice(0, bytes)?))
}

/// Waits for the tensor's stream, and reads the beginning of its memory.
///
/// # Safety
///
/// The tensor is alive, and there is that much room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_read(tensor: &SharedTensor, bytes: *mut u8, length: usize) -> i32 {
    // SAFETY: this function's contract.
    let bytes = unsafe { std::slice::from_raw_parts_mut(bytes, length) };
    code(|| {
        if !tensor.tensor().is_read_only() {
            return Ok(tensor.memory()?.copy_to_slice(0, bytes)?);
        }
        let line = StridedLayout::dense(&[length as i64], 1, Order::C)?;
        let view = tensor.clone().into_view()?.with_type_and_layout(DataType::UINT8, line)?;
        bytes.copy_from_slice(&view.to_vec::<u8>()?);
        Ok(())
    })
}

/// Describes the tensor as JSON. The text is valid until the next call on this thread.
///
/// # Safety
///
/// The tensor is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_describe(tensor: &SharedTensor) -> *const c_char {
    let said: &Tensor = tensor.tensor();
    let (device_type, device_id) = match said.device() {
        TensorDevice::Cpu => (1, 0),
        TensorDevice::Cuda(ordinal) => (2, ordinal),
        TensorDevice::CudaHost => (3, 0),
        TensorDevice::CudaManaged => (13, 0),
    };
    let range = said.byte_range();
    let bytes = tensor.memory().map_or((range.end - range.start) as usize, |memory| memory.len());
    let json = serde_json::json!({
        "address": said.address(), "device": [device_type, device_id], "dtype": said.data_type().to_string(),
        "shape": said.shape(), "strides": said.strides(), "read_only": said.is_read_only(), "bytes": bytes,
    });
    keep(&TEXT, &json.to_string())
}

/// Returns the tensor's array interface as JSON, CUDA's or numpy's. The text is valid until the next call on this
/// thread.
///
/// # Safety
///
/// The tensor is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_array_interface(tensor: &SharedTensor, cuda: bool) -> *const c_char {
    let said = run(|| Ok(if cuda { tensor.cuda_array_interface()? } else { tensor.array_interface()? }.to_json()));
    said.map_or(ptr::null(), |said| keep(&TEXT, &said))
}

/// Imports an array interface, CUDA's or numpy's. The caller keeps the memory's owner alive.
///
/// # Safety
///
/// The session is open. The text is JSON, and its statements hold until the tensor is dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_from_array_interface(
    session: &Session,
    json: *const c_char,
    cuda: bool,
) -> *mut SharedTensor {
    boxed(|| {
        // SAFETY: this function's contract.
        let said = ArrayInterface::from_json(unsafe { CStr::from_ptr(json) }.to_str()?)?;
        // SAFETY: as above.
        Ok(unsafe {
            match cuda {
                true => said.import_cuda(Arc::new(()), &session.stream, false)?,
                false => said.import_host(Arc::new(()), &session.stream)?,
            }
        })
    })
}

/// Returns the mean time of a DLPack export and import without the driver, in nanoseconds, over `rounds` rounds.
///
/// # Safety
///
/// The tensor is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_round_trip(tensor: &SharedTensor, rounds: u32) -> f64 {
    let options = ExportOptions { consumer: Consumer::Unordered, ..Default::default() };
    let begin = Instant::now();
    for _ in 0..rounds {
        let imported = tensor.to_dlpack(&options).map(ManagedTensor::into_versioned).and_then(|raw| {
            // SAFETY: the tensor was exported just now.
            Ok(unsafe { ManagedTensor::from_versioned(raw) }?.check()?)
        });
        drop(std::hint::black_box(imported));
    }
    begin.elapsed().as_nanos() as f64 / f64::from(rounds)
}
