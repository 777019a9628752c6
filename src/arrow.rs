//! Arrow: arrays
//!
//! Arrays of Arrow's C device data interface, whose buffers are buffers of this library. What is handed out has an event
//! (sync_event) that the consumer waits for, and what comes in is used after its producer's. The structs are the host's; only
//! the buffers are on the device.
//!
//! Their release knows no streams, so it comes after the consumer's work: cudamem_arrow_array_destroy_after.

use crate::arrow_schema::entry;
use crate::call::{
    self, Options, Out, Outcome, check_struct, destroy, drop_object, fill, handle_type, invalid, list, object, options,
    out, run,
};
use crate::handle::Kind;
use crate::handles::cudamem_arrow_array;
use crate::handles::cudamem_buffer;
use crate::handles::cudamem_stream;
use crate::memory::Memory;
use crate::status::cudamem_status;
use core::mem::size_of;
use core::ptr;
use cuda_mem::interchange::TensorDevice;
use cuda_mem::interchange::arrow::{ArrayNode, ArrowArray, ArrowDeviceArray, DeviceArray, ImportedArray, ImportedNode};
use cuda_mem::interchange::dlpack::DLDevice;
use cuda_mem::memory::kind::Any;
use cuda_mem::{Error, SharedBuffer, Stream};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An array behind a handle.
#[derive(Debug)]
pub enum Array {
    /// Made here, of buffers.
    Own(ArrayNode),
    /// Another library's, or a child of one. None once it was released, for which threads take turns.
    Imported(Mutex<Option<ImportedArray>>, ImportedNode),
}

handle_type!(cudamem_arrow_array: Array, Kind::ArrowArray);

/// What an array is made of. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_arrow_array_options {
    /// sizeof(cudamem_arrow_array_options).
    pub size: usize,
    /// How many values.
    pub length: u64,
    /// How many of them are missing; -1 where that is not known.
    pub null_count: i64,
    /// How many values come before the first.
    pub offset: u64,
    /// The number of buffers.
    pub n_buffers: usize,
    /// They, in the order of the type; the null handle where there is nothing to say, as in a validity that nothing lacks. The
    /// handles stay the program's; the array shares the ownership of the memory.
    pub buffers: *const cudamem_buffer,
    /// The number of children.
    pub n_children: usize,
    /// They, made by cudamem_arrow_array_create; the handles stay the program's.
    pub children: *const cudamem_arrow_array,
    /// The dictionary's values, or the null handle; the handle stays the program's.
    pub dictionary: cudamem_arrow_array,
}

// SAFETY: numbers and pointers of 8 bytes.
unsafe impl Options for cudamem_arrow_array_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// The node of an array that was made here.
pub(crate) fn own(argument: &'static str, array: cudamem_arrow_array) -> Outcome<ArrayNode> {
    match &*object(argument, array)? {
        Array::Own(node) => Ok(node.clone()),
        Array::Imported(..) => {
            Err(invalid(argument, "an array of another library's", "it is made by cudamem_arrow_array_create"))
        }
    }
}

/// Makes an array of buffers. What its type makes of them is not looked at.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if a number cannot be, or if the buffers lie on several devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_arrow_array_create(
    options: *const cudamem_arrow_array_options,
    array: Out<'_, cudamem_arrow_array>,
) -> cudamem_status {
    run("cudamem_arrow_array_create", || {
        let array = out("array", array)?;
        // SAFETY: the header's rule for options.
        let said = unsafe { self::options("options", options) }?;
        // SAFETY: the lists are as long as is said.
        let (buffers, children) = unsafe {
            (
                list("options.buffers", said.buffers, said.n_buffers)?,
                list("options.children", said.children, said.n_children)?,
            )
        };
        if said.length.checked_add(said.offset).is_none_or(|end| end > i64::MAX as u64) {
            let value = format!("{} after {} others", said.length, said.offset);
            return Err(invalid("options.length", value, "with the offset it fits into 63 bits"));
        }
        let null_count = match said.null_count {
            -1 => None,
            count if (0..=said.length as i64).contains(&count) => Some(count as usize),
            count => return Err(invalid("options.null_count", count.to_string(), "it is -1, or 0 up to the length")),
        };
        let share = |buffer: &cudamem_buffer| match buffer.id {
            0 => Ok(None),
            _ => object("options.buffers", *buffer)?.slice(0, usize::MAX).map(Some),
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

/// Fills in a struct ArrowDeviceArray of the program's, whose release has to be called once, when the consumer's work is done. On
/// stream comes the event that the consumer waits for, after the work of all buffers so far; memory of the host alone is waited
/// for.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT for an array that was imported.
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

/// The release of what is only looked at.
unsafe extern "C" fn keep(array: *mut ArrowArray) {
    // SAFETY: called with a struct of ours.
    unsafe { (*array).release = None };
}

/// A handle for an array that is taken over if it is sound. What it was moved from counts as released.
///
/// # Safety
///
/// `source` is an array of another library's.
pub(crate) unsafe fn take(source: *mut ArrowDeviceArray) -> Outcome<cudamem_arrow_array> {
    check_struct("source", source)?;
    // What is wrong with it is found while it is still the program's.
    // SAFETY: the program's struct; the copy is not released.
    let mut looked_at = unsafe { ptr::read(source) };
    looked_at.array.release = looked_at.array.release.map(|_| keep as _);
    // SAFETY: the program promises an array.
    drop(unsafe { DeviceArray::from_raw(&mut looked_at) }.and_then(DeviceArray::check).map_err(Error::from)?);
    call::new_handle_with(|| {
        // SAFETY: as above.
        let array = unsafe { DeviceArray::from_raw(source) }?.check()?;
        let node = array.node().clone();
        Ok(Array::Imported(Mutex::new(Some(array)), node))
    })
}

/// Takes a struct ArrowDeviceArray over: what source points to counts as released afterwards, and the array's release is called,
/// on any thread, when its handles and buffers have ended. After a failure it is the program's as before.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if it was released, if its numbers cannot be, or if it lies on another kind of device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_arrow_array_import(
    source: *mut ArrowDeviceArray,
    array: Out<'_, cudamem_arrow_array>,
) -> cudamem_status {
    run("cudamem_arrow_array_import", || {
        let array = out("array", array)?;
        // SAFETY: the program promises an array.
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
    /// How many values.
    pub length: u64,
    /// How many of them are missing; -1 where that is not known.
    pub null_count: i64,
    /// How many values come before the first.
    pub offset: u64,
    /// The number of buffers.
    pub n_buffers: usize,
    /// The number of children.
    pub n_children: usize,
    /// The number of dictionaries: 0 or 1.
    pub n_dictionaries: usize,
    /// The kind of device that the memory lies on, by DLPack's numbers.
    pub device_type: i32,
    /// The number of that device.
    pub device_id: i32,
}

// SAFETY: numbers of 8 bytes, and two of 4.
unsafe impl Options for cudamem_arrow_array_info {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Tells what an array is. info->size is set by the program.
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
            Array::Imported(owner, node) => answer!(node, there(&locked(owner))?.device()),
        };
        // SAFETY: the header's rule for results.
        unsafe { fill("info", info, answer) }
    })
}

fn locked(owner: &Mutex<Option<ImportedArray>>) -> MutexGuard<'_, Option<ImportedArray>> {
    owner.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An imported array, which is there until its handle ends.
fn there(owner: &Option<ImportedArray>) -> Outcome<&ImportedArray> {
    owner.as_ref().ok_or_else(|| invalid("array", "being destroyed", "it is not"))
}

/// A part of an imported array, which holds the whole.
fn part_of(owner: &Mutex<Option<ImportedArray>>, node: &ImportedNode) -> Array {
    Array::Imported(Mutex::new(locked(owner).clone()), node.clone())
}

/// Gives a handle for a child, which holds the whole.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_arrow_array_get_child(
    array: cudamem_arrow_array,
    index: usize,
    child: Out<'_, cudamem_arrow_array>,
) -> cudamem_status {
    run("cudamem_arrow_array_get_child", || {
        let child = out("child", child)?;
        let found = match &*object("array", array)? {
            Array::Own(node) => Array::Own(entry("index", index, &node.children)?.clone()),
            Array::Imported(owner, node) => part_of(owner, entry("index", index, &node.children)?),
        };
        child.write(call::new_handle(found)?);
        Ok(())
    })
}

/// Gives a handle for the dictionary's values, which holds the whole; the null handle where there is none.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_arrow_array_get_dictionary(
    array: cudamem_arrow_array,
    dictionary: Out<'_, cudamem_arrow_array>,
) -> cudamem_status {
    run("cudamem_arrow_array_get_dictionary", || {
        let dictionary = out("dictionary", dictionary)?;
        let found = match &*object("array", array)? {
            Array::Own(node) => node.dictionary.as_deref().cloned().map(Array::Own),
            Array::Imported(owner, node) => node.dictionary.as_deref().map(|values| part_of(owner, values)),
        };
        dictionary.write(match found {
            Some(found) => call::new_handle(found)?,
            None => cudamem_arrow_array { id: 0 },
        });
        Ok(())
    })
}

/// Gives one of the buffers; the null handle where there is none. size is its size in bytes, which Arrow does not say: the type
/// does. For an array that was made here it may be CUDAMEM_WHOLE_SIZE.
///
/// Of an array that was imported, stream becomes the home stream of the buffer, and waits for the producer's event. The memory is
/// not to be written.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if there are not as many buffers, or if the driver says that the memory is elsewhere.
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
                Some(shared) => Some(shared.slice(call::range(0, size, shared.len())?)?),
                None => None,
            },
            Array::Imported(owner, node) => match *entry("index", index, &node.buffers)? {
                0 => None,
                address => {
                    let owner = locked(owner);
                    let array = there(&owner)?;
                    // SAFETY: the producer has set an event of the driver's, or NULL; the program promises as many bytes.
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

/// Destroys the handle. What was imported is released when no handle or buffer of it is left; the consumer's work is to be done by
/// then. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_arrow_array_destroy(array: cudamem_arrow_array) -> cudamem_status {
    run("cudamem_arrow_array_destroy", || destroy("array", array, drop_object))
}

/// As cudamem_arrow_array_destroy, so that the memory is used again only after the work that stream has by now: by an event where
/// the producer is this library, else by waiting. Beside calls of other threads with an imported array it takes its turn.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if another handle or buffer of an imported array is left; the handle then stays valid.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_arrow_array_destroy_after(
    array: cudamem_arrow_array,
    stream: cudamem_stream,
) -> cudamem_status {
    run("cudamem_arrow_array_destroy_after", || {
        let stream = object("stream", stream)?;
        if array.id != 0 {
            // Apart from the end, which another thread's call may be the one to do.
            match &*object("array", array)? {
                Array::Own(node) => node.all_buffers().into_iter().try_for_each(|buffer| buffer.record_use(&stream))?,
                Array::Imported(owner, _) => release_after(&mut locked(owner), &stream)?,
            }
        }
        destroy("array", array, drop_object)
    })
}

/// Releases an array that nothing else holds; what was released stays so.
fn release_after(owner: &mut Option<ImportedArray>, stream: &Stream) -> cuda_mem::Result<()> {
    match owner.take().map(ImportedArray::into_device_array) {
        Some(Ok(device_array)) => device_array.release_after(stream),
        Some(Err(held)) => {
            *owner = Some(held);
            Err(Error::InvalidArgument {
                call: "the release",
                argument: "array",
                value: "held by other handles or buffers of it".into(),
                rule: "they are to end before",
            })
        }
        None => Ok(()),
    }
}
