//! What Python's tests of the interchange call through ctypes: tensors of every kind of memory, handed out and taken over
//! by each protocol. It is no library for programs.
//!
//! Everything is a pointer, and null is an error, whose text is `interchange_error`'s.

use cuda_mem::interchange::array_interface::ArrayInterface;
use cuda_mem::interchange::arrow::{
    ArrayNode, ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema, DeviceArray, DeviceArrayStream, Schema,
};
use cuda_mem::interchange::dlpack::{DLManagedTensor, DLManagedTensorVersioned, ManagedTensor};
use cuda_mem::interchange::{
    Consumer, Copying, ExportOptions, Release, SharedTensor, StreamName, Tensor, TensorDevice,
};
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{DeviceMemory, ManagedMemory, PinnedMemory, ResourceHandle, SharedResource};
use cuda_mem::{Buffer, Context, DataType, Driver, Error, Stream};
use std::cell::RefCell;
use std::error::Error as StdError;
use std::ffi::{CStr, CString, c_char, c_void};
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
    code(|| Ok(tensor.memory().clone().fill(.., byte)?))
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
    code(|| Ok(tensor.memory().clone().copy_from_slice(0, bytes)?))
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
    code(|| Ok(tensor.memory().copy_to_slice(0, bytes)?))
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
    let json = serde_json::json!({
        "address": said.address(), "device": [device_type, device_id], "dtype": said.data_type().to_string(),
        "shape": said.shape(), "strides": said.strides(), "read_only": said.is_read_only(), "bytes": tensor.memory().len(),
    });
    keep(&TEXT, &json.to_string())
}

/// How a tensor is exported: a word of bits.
const READ_ONLY: u32 = 1;
const COPY: u32 = 2;
const LEGACY: u32 = 4;
const TO_CPU: u32 = 8;

/// Exports a tensor by DLPack. `stream` is the consumer's number, 0 where it says nothing. A copy comes from pinned memory
/// where the CPU wants it, else from the tensor's own kind.
///
/// # Safety
///
/// Session and tensor live; a stream's handle lives until the deleter is called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_to_dlpack(
    session: &Session,
    tensor: &SharedTensor,
    stream: i64,
    how: u32,
) -> *mut c_void {
    let export = || -> Outcome<*mut c_void> {
        let theirs = match StreamName::from_dlpack((stream != 0).then_some(stream))? {
            // SAFETY: this function's contract.
            name if stream != 0 => unsafe { name.stream(&session.context) },
            _ => None,
        };
        let consumer = match &theirs {
            Some(theirs) => Consumer::Stream(theirs),
            None if stream == -1 => Consumer::Unordered,
            None => Consumer::Unsaid,
        };
        let kind = match tensor.tensor().device() {
            TensorDevice::Cuda(_) if how & TO_CPU == 0 => 0,
            TensorDevice::CudaManaged => 2,
            _ => 1,
        };
        let resource = session.resource(kind)?;
        let managed = tensor.to_dlpack(&ExportOptions {
            consumer,
            release: Release::AfterStream,
            read_only: how & READ_ONLY != 0,
            copying: if how & COPY != 0 { Copying::Always } else { Copying::WhereNeeded },
            device: (how & TO_CPU != 0).then_some(TensorDevice::Cpu),
            resource: Some(&resource),
        })?;
        Ok(match how & LEGACY {
            0 => managed.into_versioned().cast(),
            _ => managed.into_legacy()?.cast(),
        })
    };
    run(export).unwrap_or(ptr::null_mut())
}

/// Calls the deleter of what was exported and not consumed.
///
/// # Safety
///
/// From `interchange_to_dlpack`, and not consumed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_end_dlpack(managed: *mut c_void, legacy: bool) {
    // SAFETY: this function's contract.
    unsafe {
        match legacy {
            true => drop(ManagedTensor::from_legacy(managed.cast::<DLManagedTensor>())),
            false => drop(ManagedTensor::from_versioned(managed.cast::<DLManagedTensorVersioned>())),
        }
    }
}

/// Takes a tensor of DLPack's over; its work is ordered on the session's stream, and its end waits for that.
///
/// # Safety
///
/// The session is open; the tensor is one, and is consumed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_from_dlpack(
    session: &Session,
    managed: *mut c_void,
    legacy: bool,
) -> *mut SharedTensor {
    boxed(|| {
        // SAFETY: this function's contract; the caller has ordered it before the session's stream.
        unsafe {
            let managed = match legacy {
                true => ManagedTensor::from_legacy(managed.cast())?,
                false => ManagedTensor::from_versioned(managed.cast())?,
            };
            Ok(managed.check()?.into_shared(&session.stream, None)?)
        }
    })
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

fn format_of(data_type: DataType) -> Outcome<&'static str> {
    Ok(match data_type {
        DataType::INT8 => "c",
        DataType::INT32 => "i",
        DataType::INT64 => "l",
        DataType::FLOAT32 => "f",
        DataType::FLOAT64 => "g",
        other => return Err(format!("{other} has no letter here").into()),
    })
}

/// The tensor as one column of Arrow's, without missing values.
fn column(tensor: &SharedTensor) -> Outcome<(ArrayNode, Schema)> {
    let format = format_of(tensor.tensor().data_type())?;
    let buffers = vec![None, Some(tensor.memory().clone())];
    let node = ArrayNode { length: tensor.tensor().len(), null_count: Some(0), buffers, ..ArrayNode::default() };
    Ok((node, Schema::new(format)))
}

/// Exports a tensor as an array of Arrow's.
///
/// # Safety
///
/// Session and tensor live; there is room for both structures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_to_arrow(
    session: &Session,
    tensor: &SharedTensor,
    array: *mut ArrowDeviceArray,
    schema: *mut ArrowSchema,
    as_cpu: bool,
) -> i32 {
    code(|| {
        let (node, kind) = column(tensor)?;
        let mut exported = node.export(&session.stream)?.into_raw();
        if as_cpu {
            // For consumers that know no other device: pinned and managed memory is the CPU's as well.
            session.stream.synchronize()?;
            (exported.device_type, exported.sync_event) = (1, ptr::null_mut());
        }
        // SAFETY: this function's contract.
        unsafe {
            schema.write(kind.export()?);
            array.write(exported);
        }
        Ok(())
    })
}

/// Takes an array of numbers over, without missing values, after its event.
///
/// # Safety
///
/// The session is open; both are structures of Arrow's, and are consumed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_from_arrow(
    session: &Session,
    array: *mut ArrowDeviceArray,
    schema: *mut ArrowSchema,
) -> *mut SharedTensor {
    boxed(|| {
        // SAFETY: this function's contract.
        unsafe {
            let kind = Schema::import(schema.as_mut().ok_or("no schema")?)?;
            let array = DeviceArray::from_raw(array)?.check()?;
            let numbers = [DataType::INT8, DataType::INT32, DataType::INT64, DataType::FLOAT32, DataType::FLOAT64];
            let data_type = numbers.into_iter().find(|number| format_of(*number).ok() == Some(&kind.format));
            let data_type = data_type.ok_or_else(|| format!("format {:?} is none of numbers", kind.format))?;
            array.wait(&session.stream)?;
            let node = array.node();
            let [_, values] = node.buffers[..] else { return Err("an array of numbers has two buffers".into()) };
            let size = data_type.padded_size();
            let buffer = array.buffer(values, (node.offset + node.length) * size, &session.stream)?;
            let shape = [i64::try_from(node.length)?];
            Ok(buffer.tensor().with_type_and_layout(data_type, node.offset * size, &shape, None)?)
        }
    })
}

/// Exports a stream of as many arrays, each of the tensor.
///
/// # Safety
///
/// Session and tensor live; there is room for the structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_to_arrow_stream(
    session: &Session,
    tensor: &SharedTensor,
    count: usize,
    out: *mut ArrowDeviceArrayStream,
) -> i32 {
    code(|| {
        let (node, kind) = column(tensor)?;
        let stream = session.stream.clone();
        let table = ArrayNode {
            length: node.length,
            null_count: Some(0),
            buffers: vec![None],
            children: vec![node],
            ..ArrayNode::default()
        };
        let schema = Schema { children: vec![Schema { name: "x".into(), ..kind }], ..Schema::new("+s") };
        let arrays = (0..count).map(move |_| {
            let mut array = table.export(&stream)?.into_raw();
            stream.synchronize()?;
            (array.device_type, array.sync_event) = (1, ptr::null_mut());
            // SAFETY: exported just now.
            Ok(unsafe { DeviceArray::from_raw(&mut array) }?)
        });
        // SAFETY: this function's contract.
        unsafe { out.write(DeviceArrayStream::new(schema, TensorDevice::Cpu, arrays).into_raw()) };
        Ok(())
    })
}

/// Counts the rows of a stream of arrays, which is consumed; -1 is an error.
///
/// # Safety
///
/// The stream is one of Arrow's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_count_rows(stream: *mut ArrowDeviceArrayStream) -> i64 {
    let rows = run(|| {
        // SAFETY: this function's contract.
        let mut stream = unsafe { DeviceArrayStream::from_raw(stream) }?;
        stream.schema()?;
        stream.try_fold(0, |rows, array| Ok(rows + array?.check()?.node().length as i64))
    });
    rows.unwrap_or(-1)
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
