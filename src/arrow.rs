//! Arrow: arrays
//!
//! Arrays of Arrow's C device data interface, whose buffers are buffers of this library. An exported array carries an
//! event (sync_event) that its consumer must wait for. Uses of an imported array are ordered after its producer's
//! event. The structs lie in host memory; only the buffers lie on the device.
//!
//! Arrow's release callback takes no stream. So call it after the consumer's work is done, or use
//! cudamem_arrow_array_destroy_after.

use crate::arrow_schema::{CUDAMEM_ARROW_DICTIONARY, entry};
use crate::call::{
    self, Options, Out, Outcome, check_struct, destroy, drop_object, fill, handle_type, invalid, list, object, options,
    out, run,
};
use crate::handles::cudamem_arrow_array;
use crate::handles::cudamem_buffer;
use crate::handles::cudamem_stream;
use cuda_mem_dynamic::{Memory, Mutex, range};

use crate::status::cudamem_status;
use core::mem::size_of;
use core::ptr;
use cuda_mem::interchange::TensorDevice;
use cuda_mem::interchange::arrow::{ArrayNode, ArrowArray, ArrowDeviceArray, DeviceArray, ImportedArray, ImportedNode};
use cuda_mem::interchange::dlpack::DLDevice;
use cuda_mem::memory::kind::Any;
use cuda_mem::{Error, SharedBuffer, Stream};

/// The object behind an array's handle.
#[derive(Debug)]
pub enum Array {
    /// Made by this library from buffers.
    Own(ArrayNode),
    /// Imported from another library, or a child of an imported array. None after its release. The lock serializes
    /// releases.
    Imported(Mutex<Option<ImportedArray>>, ImportedNode),
}

handle_type!(cudamem_arrow_array: Array);

/// How an array is made. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_arrow_array_options {
    /// sizeof(cudamem_arrow_array_options).
    pub size: usize,
    /// The number of values.
    pub length: u64,
    /// The number of missing values; -1 if it is unknown.
    pub null_count: i64,
    /// The number of values before the first one.
    pub offset: u64,
    /// The number of buffers.
    pub n_buffers: usize,
    /// The buffers, in the order that the type defines; the null handle for an absent buffer, such as the validity of
    /// an array without missing values. The handles stay the program's; the array shares ownership of the memory.
    pub buffers: *const cudamem_buffer,
    /// The number of children.
    pub n_children: usize,
    /// The children, which cudamem_arrow_array_create made. The handles stay the program's.
    pub children: *const cudamem_arrow_array,
    /// The dictionary's values, or the null handle. The handle stays the program's.
    pub dictionary: cudamem_arrow_array,
}

// SAFETY: only numbers and pointers of 8 bytes.
unsafe impl Options for cudamem_arrow_array_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// The node of an array that this library made. Imported arrays are refused.
pub(crate) fn own(argument: &'static str, array: cudamem_arrow_array) -> Outcome<ArrayNode> {
    match &*object(argument, array)? {
        Array::Own(node) => Ok(node.clone()),
        Array::Imported(..) => {
            Err(invalid(argument, "an array from another library", "it must be made by cudamem_arrow_array_create"))
        }
    }
}

/// Makes an array from buffers. The call does not check that the buffers suit the type.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if a number is out of range, or if the buffers lie on several devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_arrow_array_create(
    options: *const cudamem_arrow_array_options,
    array: Out<'_, cudamem_arrow_array>,
) -> cudamem_status {
    run("cudamem_arrow_array_create", || {
        let array = out("array", array)?;
        // SAFETY: the header requires NULL or `size` bytes.
        let said = unsafe { self::options("options", options) }?;
        // SAFETY: the header requires lists of the stated lengths.
        let (buffers, children) = unsafe {
            (
                list("options.buffers", said.buffers, said.n_buffers)?,
                list("options.children", said.children, said.n_children)?,
            )
        };
        if said.length.checked_add(said.offset).is_none_or(|end| end > i64::MAX as u64) {
            let value = format!("{} with offset {}", said.length, said.offset);
            return Err(invalid("options.length", value, "the sum of both must fit into 63 bits"));
        }
        let null_count = match said.null_count {
            -1 => None,
            count if (0..=said.length as i64).contains(&count) => Some(count as usize),
            count => {
                return Err(invalid("options.null_count", count.to_string(), "it must be -1, or from 0 to the length"));
            }
        };
        let share = |buffer: &cudamem_buffer| match buffer.id {
            0 => Ok(None),
            _ => Ok(Some(object("options.buffers", *buffer)?.slice(0, usize::MAX)?)),
        };
        let node = ArrayNode {
            length: said.length as usize,
            null_count,
            offset: said.offset as usize,
            buffers: buffers.iter().map(share).collect::<Outcome<Vec<Option<SharedBuffer<u8, Any>>>>>()?,
            children: children.iter().map(|child| own("options.children", *child)).collect::<Outcome<_>>()?,
            dictionary: match said.dictionary.id {
                0 => None,
                _ => Some(Box::new(own("options.dictionary", said.dictionary)?)),
            },
        };
        node.device()?;
        array.write(call::new_handle(Array::Own(node))?);
        Ok(())
    })
}

/// Fills in the program's struct ArrowDeviceArray. The consumer must call its release once, after its work is done. The
/// library records the event that the consumer waits for on stream, after all work on the buffers so far. If all
/// buffers lie in host memory, the call waits for that work instead.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT for an imported array.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_arrow_array_export(
    array: cudamem_arrow_array,
    stream: cudamem_stream,
    result: Out<'_, ArrowDeviceArray>,
) -> cudamem_status {
    run("cudamem_arrow_array_export", || {
        let result = out("result", result)?;
        let node = own("array", array)?;
        result.write(node.export(&*object("stream", stream)?)?.into_raw());
        Ok(())
    })
}

/// The release callback of a copied struct that is only checked.
unsafe extern "C" fn keep(array: *mut ArrowArray) {
    // SAFETY: only this library's own copy of the struct carries this callback.
    unsafe { (*array).release = None };
}

/// Makes a handle for a foreign array if the array is valid. On success the source counts as released.
///
/// # Safety
///
/// `source` points to another library's array.
pub(crate) unsafe fn take(source: *mut ArrowDeviceArray) -> Outcome<cudamem_arrow_array> {
    check_struct("source", source)?;
    // The check runs on a copy, so that an invalid array stays the program's.
    // SAFETY: the caller passes a valid struct; the copy is never released.
    let mut looked_at = unsafe { ptr::read(source) };
    looked_at.array.release = looked_at.array.release.map(|_| keep as _);
    // SAFETY: the header requires a valid array.
    drop(unsafe { DeviceArray::from_raw(&mut looked_at) }.and_then(DeviceArray::check).map_err(Error::from)?);
    call::new_handle_with(|| {
        // SAFETY: as above.
        let array = unsafe { DeviceArray::from_raw(source) }?.check()?;
        let node = array.node().clone();
        Ok::<_, Error>(Array::Imported(Mutex::new(Some(array)), node))
    })
}

/// Takes over a struct ArrowDeviceArray. On success source counts as released, and the library calls the array's
/// release, on any thread, when its last handle and buffer have ended. On failure source stays unchanged.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the array was released, if its numbers are out of range, or if it lies on
/// another kind of device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_arrow_array_import(
    source: *mut ArrowDeviceArray,
    array: Out<'_, cudamem_arrow_array>,
) -> cudamem_status {
    run("cudamem_arrow_array_import", || {
        let array = out("array", array)?;
        // SAFETY: the header requires a valid array.
        array.write(unsafe { take(source) }?);
        Ok(())
    })
}

/// What an array is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_arrow_array_info {
    /// sizeof(cudamem_arrow_array_info), set by the program.
    pub size: usize,
    /// The number of values.
    pub length: u64,
    /// The number of missing values; -1 if it is unknown.
    pub null_count: i64,
    /// The number of values before the first one.
    pub offset: u64,
    /// The number of buffers.
    pub n_buffers: usize,
    /// The number of children.
    pub n_children: usize,
    /// The number of dictionaries: 0 or 1.
    pub n_dictionaries: usize,
    /// The kind of device that the memory lies on, as DLPack numbers it.
    pub device_type: i32,
    /// The number of that device.
    pub device_id: i32,
}

// SAFETY: numbers of 8 bytes and two of 4 bytes.
unsafe impl Options for cudamem_arrow_array_info {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Describes an array. Set info->size first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_arrow_array_get_info(
    array: cudamem_arrow_array,
    info: *mut cudamem_arrow_array_info,
) -> cudamem_status {
    run("cudamem_arrow_array_get_info", || {
        let array = object("array", array)?;
        macro_rules! answer {
            ($node:expr, $device:expr) => {{
                let DLDevice { device_type, device_id } = $device.into();
                cudamem_arrow_array_info {
                    size: size_of::<cudamem_arrow_array_info>(),
                    length: $node.length as u64,
                    null_count: $node.null_count.map_or(-1, |count| count as i64),
                    offset: $node.offset as u64,
                    n_buffers: $node.buffers.len(),
                    n_children: $node.children.len(),
                    n_dictionaries: usize::from($node.dictionary.is_some()),
                    device_type,
                    device_id,
                }
            }};
        }
        let answer = match &*array {
            Array::Own(node) => answer!(node, node.device()?.unwrap_or(TensorDevice::Cpu)),
            Array::Imported(owner, node) => answer!(node, there(&owner.lock())?.device()),
        };
        // SAFETY: the header requires NULL or `size` writable bytes.
        unsafe { fill("info", info, answer) }
    })
}

/// The imported array, unless its release has begun.
fn there(owner: &Option<ImportedArray>) -> Outcome<&ImportedArray> {
    owner.as_ref().ok_or_else(|| invalid("array", "being destroyed", "it must be alive"))
}

/// A part of an imported array. It keeps the whole array alive.
fn part_of(owner: &Mutex<Option<ImportedArray>>, node: &ImportedNode) -> Array {
    Array::Imported(Mutex::new(owner.lock().clone()), node.clone())
}

/// Gets a handle for a child, or for the dictionary's values if index is CUDAMEM_ARROW_DICTIONARY. It keeps the whole
/// array alive. The null handle if there is no dictionary.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_arrow_array_get_child(
    array: cudamem_arrow_array,
    index: usize,
    child: Out<'_, cudamem_arrow_array>,
) -> cudamem_status {
    run("cudamem_arrow_array_get_child", || {
        let child = out("child", child)?;
        let found = match &*object("array", array)? {
            Array::Own(node) => match index {
                CUDAMEM_ARROW_DICTIONARY => node.dictionary.as_deref().cloned(),
                index => Some(entry("index", index, &node.children)?.clone()),
            }
            .map(Array::Own),
            Array::Imported(owner, node) => match index {
                CUDAMEM_ARROW_DICTIONARY => node.dictionary.as_deref(),
                index => Some(entry("index", index, &node.children)?),
            }
            .map(|node| part_of(owner, node)),
        };
        child.write(match found {
            Some(found) => call::new_handle(found)?,
            None => cudamem_arrow_array { id: 0 },
        });
        Ok(())
    })
}

/// Gets one of the buffers, or the null handle if it is absent. size is the buffer's size in bytes, which follows from
/// the type, because Arrow does not state it. For an array that this library made, it may be CUDAMEM_WHOLE_SIZE.
///
/// For an imported array, stream becomes the buffer's home stream and waits for the producer's event. The program must
/// not write the memory.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if index is out of range, or if the driver reports that the memory lies
/// elsewhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_arrow_array_get_buffer(
    array: cudamem_arrow_array,
    index: usize,
    size: usize,
    stream: cudamem_stream,
    buffer: Out<'_, cudamem_buffer>,
) -> cudamem_status {
    run("cudamem_arrow_array_get_buffer", || {
        let buffer = out("buffer", buffer)?;
        let (array, stream) = (object("array", array)?, object("stream", stream)?);
        let found = match &*array {
            Array::Own(node) => match entry("index", index, &node.buffers)? {
                Some(shared) => Some(shared.slice(range("Buffer::slice", 0, size, shared.len())?)?),
                None => None,
            },
            Array::Imported(owner, node) => match *entry("index", index, &node.buffers)? {
                0 => None,
                address => {
                    let array = there(&owner.lock())?.clone();
                    // SAFETY: Arrow obliges the producer to set a driver event or NULL; the header requires the
                    // buffer's size.
                    unsafe {
                        array.wait(&stream)?;
                        Some(array.buffer(address, size, &stream)?)
                    }
                }
            },
        };
        buffer.write(match found {
            Some(shared) => call::new_handle(Memory::shared(shared))?,
            None => cudamem_buffer { id: 0 },
        });
        Ok(())
    })
}

/// Destroys the handle. The library releases an imported array when its last handle and buffer are gone. The consumer's
/// work must be done by then. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_arrow_array_destroy(array: cudamem_arrow_array) -> cudamem_status {
    run("cudamem_arrow_array_destroy", || destroy("array", array, drop_object))
}

/// As cudamem_arrow_array_destroy, but the memory is reused only after the work that stream has now. If this library
/// made the array, an event orders the reuse; otherwise this call waits. Calls of other threads with an imported array
/// run before or after it.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if an imported array has other handles or buffers. The handle then stays
/// valid.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_arrow_array_destroy_after(
    array: cudamem_arrow_array,
    stream: cudamem_stream,
) -> cudamem_status {
    run("cudamem_arrow_array_destroy_after", || {
        let stream = object("stream", stream)?;
        if array.id != 0 {
            // This runs before the destroy, because a concurrent call may be the one that ends the value.
            match &*object("array", array)? {
                Array::Own(node) => node.all_buffers().into_iter().try_for_each(|buffer| buffer.record_use(&stream))?,
                Array::Imported(owner, _) => release_after(owner, &stream)?,
            }
        }
        destroy("array", array, drop_object)
    })
}

/// Releases an array that has no other handles or buffers. A released array is left as it is. The producer's release
/// runs without the lock.
fn release_after(owner: &Mutex<Option<ImportedArray>>, stream: &Stream) -> cuda_mem::Result<()> {
    let taken = {
        let mut place = owner.lock();
        match place.take().map(ImportedArray::into_device_array) {
            Some(Err(held)) => {
                *place = Some(held);
                Some(Err(()))
            }
            Some(Ok(array)) => Some(Ok(array)),
            None => None,
        }
    };
    match taken {
        Some(Ok(device_array)) => device_array.release_after(stream),
        Some(Err(())) => Err(Error::InvalidArgument {
            call: "the release",
            argument: "array",
            value: "held by other handles or buffers of it".into(),
            rule: "they must be destroyed first",
        }),
        None => Ok(()),
    }
}
