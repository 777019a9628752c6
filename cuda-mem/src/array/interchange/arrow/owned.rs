//! Arrays with their owner, ours and others'. Their `release` is called exactly once.

use super::ArrowError;
use super::array::{count, order_after};
use super::raw::{ArrowArray, ArrowDeviceArray};
use super::schema::MAX_DEPTH;
use crate::array::interchange::dlpack::DLDevice;
use crate::array::interchange::{SharedTensor, Tensor, TensorDevice, TensorError, TensorParts};
use crate::buffer::Owner;
use crate::error::call;
use crate::error::callback::call_through;
use crate::lifetime::waiting::{Target, watched};
use crate::memory::resource::kind::Any;
use crate::{Context, DataType, Error, Result, SharedBuffer, Stream};
use core::mem::ManuallyDrop;
use cuda_sys::CUevent;
use std::sync::Arc;

/// An Arrow array on a device, with its owner. The drop calls `release`, once.
///
/// [`ArrayNode::export`](super::ArrayNode::export) returns it, and an import begins with it.
#[derive(Debug)]
pub struct DeviceArray {
    raw: ArrowDeviceArray,
}

// SAFETY: Arrow allows `release` on any thread, and nothing is written through a shared reference.
unsafe impl Send for DeviceArray {}
// SAFETY: as above.
unsafe impl Sync for DeviceArray {}

impl DeviceArray {
    /// Takes ownership of an array and marks `raw` as released.
    ///
    /// # Errors
    ///
    /// The pointer is null, or the array was released already.
    ///
    /// # Safety
    ///
    /// `raw` is null or points to an array that nobody else releases.
    pub unsafe fn from_raw(raw: *mut ArrowDeviceArray) -> Result<Self, ArrowError> {
        // SAFETY: this function's contract.
        let raw = unsafe { raw.as_mut() }.ok_or(ArrowError::Null { what: "the device array" })?;
        if raw.array.release.is_none() {
            return Err(ArrowError::Released { what: "the device array" });
        }
        // Arrow moves a structure by copying its bits and marking the source as released.
        // SAFETY: readable, by this function's contract.
        let moved = unsafe { core::ptr::read(raw) };
        raw.array.release = None;
        Ok(Self { raw: moved })
    }

    pub(super) fn made(raw: ArrowDeviceArray) -> Self {
        Self { raw }
    }

    /// Hands the array out. The receiver must call `release`.
    pub fn into_raw(self) -> ArrowDeviceArray {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not used afterwards.
        unsafe { core::ptr::read(&raw const this.raw) }
    }

    /// The structure, unchecked.
    pub fn raw(&self) -> &ArrowDeviceArray {
        &self.raw
    }

    /// Releases the array; its memory is reused only after the work that `stream` has now. An event orders arrays of
    /// this library. For others' the call waits, because their `release` has no stream parameter.
    ///
    /// # Errors
    ///
    /// As every call of the driver. The array is then released after all work of the context, or leaked if that wait
    /// fails too.
    pub fn release_after(self, stream: &Stream) -> Result<()> {
        // SAFETY: the array was not released.
        let ordered = unsafe { order_after(&self.raw.array, stream) };
        let (outcome, waited) = match ordered {
            Ok(true) => return Ok(()),
            Ok(false) => (Ok(()), stream.wait_beside_captures()),
            Err(error) => (Err(error), stream.context().synchronize()),
        };
        if waited.is_err() {
            // The work may still use the memory.
            core::mem::forget(self);
        }
        outcome.and(waited)
    }

    /// Checks the producer's whole description.
    ///
    /// # Errors
    ///
    /// The description is invalid. The array has been released.
    pub fn check(self) -> Result<ImportedArray, ArrowError> {
        let raw = &self.raw;
        if let Some(value) = raw.reserved.iter().copied().find(|value| *value != 0) {
            let rule = "it must be 0 in this release of the specification";
            return Err(ArrowError::Number { what: "a reserved field", value, rule });
        }
        let number = match i32::try_from(raw.device_id) {
            // Devices without a number have -1 or any number.
            Ok(number) if raw.device_type == 2 => number,
            _ if raw.device_type != 2 => 0,
            _ => {
                return Err(ArrowError::Number {
                    what: "device_id",
                    value: raw.device_id,
                    rule: "it must be an ordinal",
                });
            }
        };
        let device = TensorDevice::try_from(DLDevice { device_type: raw.device_type, device_id: number })?;
        // SAFETY: the caller of `from_raw` promised an array whose pointers fit its numbers.
        let node = unsafe { read(&raw.array, 0) }?;
        Ok(ImportedArray { node, device, owner: Arc::new(self) })
    }
}

impl Drop for DeviceArray {
    fn drop(&mut self) {
        if let Some(release) = self.raw.array.release {
            // SAFETY: this value owns the array, and it was not released.
            call_through(|| unsafe { release(&mut self.raw.array) });
        }
    }
}

/// The checked numbers of an array, and the addresses of its buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedNode {
    /// The number of values.
    pub length: usize,
    /// The number of missing values, if it is known.
    pub null_count: Option<usize>,
    /// The number of values before the first.
    pub offset: usize,
    /// The addresses of the buffers; 0 for an absent one.
    pub buffers: Vec<u64>,
    /// The children.
    pub children: Vec<ImportedNode>,
    /// The dictionary's values.
    pub dictionary: Option<Box<ImportedNode>>,
}

/// Another library's array with checked numbers. `release` is called after the array and its buffers have been dropped.
#[derive(Clone, Debug)]
pub struct ImportedArray {
    node: ImportedNode,
    device: TensorDevice,
    owner: Arc<DeviceArray>,
}

impl ImportedArray {
    /// The array's numbers and addresses.
    pub fn node(&self) -> &ImportedNode {
        &self.node
    }

    /// The device of the buffers.
    pub fn device(&self) -> TensorDevice {
        self.device
    }

    /// Orders later work on `stream` after the producer's event, if there is one.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    ///
    /// # Safety
    ///
    /// `sync_event` is null or points to an event of the stream's driver, as the specification requires.
    #[doc(alias = "sync_event")]
    pub unsafe fn wait(&self, stream: &Stream) -> Result<()> {
        match self.event() {
            Some(event) => {
                let (cuda, _ready) = stream.ready()?;
                // SAFETY: an event by this function's contract; the stream lives.
                unsafe { call!(cuda.cuStreamWaitEvent(stream.raw(), event, 0)) }
            }
            None => Ok(()),
        }
    }

    /// Waits on the CPU for the producer's event.
    ///
    /// # Errors
    ///
    /// The producer's work failed.
    ///
    /// # Safety
    ///
    /// As for [`wait`](Self::wait), with the context's driver.
    pub unsafe fn synchronize(&self, context: &Context) -> Result<()> {
        let Some(event) = self.event() else { return Ok(()) };
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        // SAFETY: an event by this function's contract.
        unsafe { watched!(Target::event(context), cuda.cuEventSynchronize(event)) }
    }

    fn event(&self) -> Option<CUevent> {
        // Memory of the CPU has no event, even if the producer names one.
        let pointer = self.owner.raw().sync_event.cast::<CUevent>();
        let is_there = self.device != TensorDevice::Cpu && !pointer.is_null();
        // SAFETY: the callers' contracts: a pointer to a variable that holds an event.
        is_there.then(|| unsafe { pointer.read() })
    }

    /// A buffer of `size` bytes at an address of the array, which it keeps alive. `stream` becomes its home stream. Its
    /// drop waits for its work, because `release` has no stream parameter. Sizes follow from the array's type: Arrow
    /// does not transmit them.
    ///
    /// # Errors
    ///
    /// The address or size is invalid; the driver reports another place of the memory.
    ///
    /// # Safety
    ///
    /// The memory has `size` bytes, nobody writes it, and `stream` waits for the producer's event
    /// ([`wait`](Self::wait)).
    pub unsafe fn buffer(&self, address: u64, size: usize, stream: &Stream) -> Result<SharedBuffer<u8, Any>> {
        let shape = [i64::try_from(size).map_err(|_| TensorError::TooLarge)?];
        let tensor = Tensor::new(&TensorParts {
            address,
            device: self.device,
            data_type: DataType::UINT8,
            shape: &shape,
            strides: None,
            read_only: false,
            padded: false,
        })?;
        let (call, owner) = ("ImportedArray::buffer", Owner::Shared(self.owner.clone()));
        // SAFETY: this function's contract.
        let shared: SharedTensor =
            unsafe { crate::array::interchange::adopt(call, tensor, false, owner, stream, None) }?;
        Ok(shared.memory)
    }

    /// The array again, to hand it on, if none of its buffers remains.
    ///
    /// # Errors
    ///
    /// A buffer remains; the error returns the array.
    pub fn into_device_array(self) -> Result<DeviceArray, Self> {
        let Self { node, device, owner } = self;
        Arc::try_unwrap(owner).map_err(|owner| Self { node, device, owner })
    }

    /// Releases the array after a stream's work: [`DeviceArray::release_after`].
    ///
    /// # Errors
    ///
    /// A buffer of the array remains, whose drop waits for its own work.
    pub fn release_after(self, stream: &Stream) -> Result<()> {
        match self.into_device_array() {
            Ok(array) => array.release_after(stream),
            Err(_) => {
                let rule = "they must be dropped first";
                Err(Error::invalid("ImportedArray::release_after", "the array", "in use by its buffers", rule))
            }
        }
    }
}

/// # Safety
///
/// The array was not released, and its pointers fit its numbers.
unsafe fn read(raw: &ArrowArray, depth: usize) -> Result<ImportedNode, ArrowError> {
    if depth > MAX_DEPTH {
        return Err(ArrowError::TooDeep { limit: MAX_DEPTH });
    }
    if raw.release.is_none() {
        return Err(ArrowError::Released { what: "a child of the array" });
    }
    let size = |what, value: i64| {
        usize::try_from(value).map_err(|_| ArrowError::Number { what, value, rule: "it must not be negative" })
    };
    let (length, offset) = (size("length", raw.length)?, size("offset", raw.offset)?);
    if raw.length.checked_add(raw.offset).is_none() {
        return Err(ArrowError::Number {
            what: "offset",
            value: raw.offset,
            rule: "it must fit into 64 bits together with the length",
        });
    }
    let null_count = match raw.null_count {
        -1 => None,
        count if (0..=raw.length).contains(&count) => Some(count as usize),
        value => {
            return Err(ArrowError::Number { what: "null_count", value, rule: "it must be -1, or 0 to the length" });
        }
    };
    let mut buffers = Vec::new();
    for index in 0..count(["n_buffers", "buffers"], raw.n_buffers, raw.buffers.is_null())? {
        // SAFETY: this function's contract.
        buffers.push(unsafe { *raw.buffers.add(index) }.expose_provenance() as u64);
    }
    let mut children = Vec::new();
    for index in 0..count(["n_children", "children"], raw.n_children, raw.children.is_null())? {
        // SAFETY: as above.
        let child = unsafe { (*raw.children.add(index)).as_ref() };
        // SAFETY: as above.
        children.push(unsafe { read(child.ok_or(ArrowError::Null { what: "a child of the array" })?, depth + 1) }?);
    }
    // SAFETY: as above.
    let dictionary = match unsafe { raw.dictionary.as_ref() } {
        // SAFETY: as above.
        Some(dictionary) => Some(Box::new(unsafe { read(dictionary, depth + 1) }?)),
        None => None,
    };
    Ok(ImportedNode { length, null_count, offset, buffers, children, dictionary })
}
