//! What Python's tests of the interchange call through ctypes: tensors of every kind of memory, handed out and taken over
//! by each protocol. It is no library for programs.
//!
//! Everything is a pointer, and null is an error, whose text is `interchange_error`'s.

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

/// The text of this thread's last error.
#[unsafe(no_mangle)]
pub extern "C" fn interchange_error() -> *const c_char {
    ERROR.with(|error| error.borrow().as_ptr())
}

type Outcome<T> = Result<T, Box<dyn StdError>>;

/// Runs a part; an error is kept.
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

/// A context, and a stream of ours in it.
#[derive(Debug)]
pub struct Session {
    context: Context,
    stream: Stream,
}

/// Opens the driver that the environment names, else the system's, else the software GPU.
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
/// From `interchange_open`, and not closed before.
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
    /// A handle is one of a stream that lives.
    unsafe fn stream(&self, number: i64) -> Outcome<Stream> {
        // SAFETY: this function's contract.
        let stream = unsafe { StreamName::from_dlpack(Some(number))?.stream(&self.context) };
        stream.ok_or_else(|| "no stream".into())
    }
}

/// The handle of the session's stream.
///
/// # Safety
///
/// The session is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_stream(session: &Session) -> i64 {
    StreamName::of(&session.stream).number().unwrap_or(-1)
}

/// Holds the session's stream back for a while.
///
/// # Safety
///
/// The session is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_delay(session: &Session, microseconds: u64) -> i32 {
    let sleep = move || std::thread::sleep(Duration::from_micros(microseconds));
    code(|| Ok(session.stream.launch_host_function(sleep)?))
}

/// Lets a stream of others wait for the session's, or the session's for it.
///
/// # Safety
///
/// The session is open, and the stream lives.
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

/// A tensor of zeros: kind 0 is device memory, 1 pinned, 2 managed.
///
/// # Safety
///
/// The session is open; the name is text; the shape is as long as said.
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

/// Another layout of a tensor's memory; strides in elements, the offset in bytes.
///
/// # Safety
///
/// The tensor lives; shape and strides are as long as said.
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
/// From this library, and not dropped before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_drop(tensor: *mut SharedTensor) {
    // SAFETY: this function's contract.
    drop(unsafe { Box::from_raw(tensor) });
}

/// Fills the tensor's memory with a byte, in order of its stream.
///
/// # Safety
///
/// The tensor lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_fill(tensor: &SharedTensor, byte: u8) -> i32 {
    code(|| Ok(tensor.memory()?.clone().fill(.., byte)?))
}

/// Writes bytes to the begin of the tensor's memory; waits.
///
/// # Safety
///
/// The tensor lives, and there are as many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_write(tensor: &SharedTensor, bytes: *const u8, length: usize) -> i32 {
    // SAFETY: this function's contract.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, length) };
    code(|| Ok(tensor.memory()?.clone().copy_from_slice(0, bytes)?))
}

/// Reads the begin of the tensor's memory; waits for its stream.
///
/// # Safety
///
/// The tensor lives, and there is as much room.
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

/// The tensor's numbers as JSON. Valid until the next call on this thread.
///
/// # Safety
///
/// The tensor lives.
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

/// The tensor's array interface as JSON, CUDA's or numpy's. Valid until the next call on this thread.
///
/// # Safety
///
/// The tensor lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_array_interface(tensor: &SharedTensor, cuda: bool) -> *const c_char {
    let said = run(|| Ok(if cuda { tensor.cuda_array_interface()? } else { tensor.array_interface()? }.to_json()));
    said.map_or(ptr::null(), |said| keep(&TEXT, &said))
}

/// A tensor of an array interface, CUDA's or numpy's. The caller keeps what it belongs to.
///
/// # Safety
///
/// The session is open; the text is JSON, and what it says is true until the tensor is dropped.
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

/// The time of an export and import by DLPack without the driver, in nanoseconds, the mean of so many.
///
/// # Safety
///
/// The tensor lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_round_trip(tensor: &SharedTensor, rounds: u32) -> f64 {
    let options = ExportOptions { consumer: Consumer::Unordered, ..Default::default() };
    let begin = Instant::now();
    for _ in 0..rounds {
        let imported = tensor.to_dlpack(&options).map(ManagedTensor::into_versioned).and_then(|raw| {
            // SAFETY: exported just now.
            Ok(unsafe { ManagedTensor::from_versioned(raw) }?.check()?)
        });
        drop(std::hint::black_box(imported));
    }
    begin.elapsed().as_nanos() as f64 / f64::from(rounds)
}
