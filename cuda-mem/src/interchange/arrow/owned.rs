//! Arrays with their owner, ours and those of others: `release` is called once.

use super::ArrowError;
use super::array::{count, order_after};
use super::raw::{ArrowArray, ArrowDeviceArray};
use super::schema::MAX_DEPTH;
use crate::error::call;
use crate::interchange::dlpack::DLDevice;
use crate::interchange::{SharedTensor, Tensor, TensorDevice, TensorParts};
use crate::resource::kind::Any;
use crate::{Context, DataType, Error, Result, SharedBuffer, Stream};
use core::mem::ManuallyDrop;
use cuda_sys::CUevent;
use std::sync::Arc;

/// An array of Arrow's on a device, with its owner. Its end calls `release`, once.
///
/// It is what [`ArrayNode::export`](super::ArrayNode::export) gives, and what an import begins with.
#[derive(Debug)]
pub struct DeviceArray {
    raw: ArrowDeviceArray,
}

// SAFETY: Arrow lets `release` be called on any thread, and nothing is written through a shared reference.
unsafe impl Send for DeviceArray {}
// SAFETY: as above.
unsafe impl Sync for DeviceArray {}

impl DeviceArray {
    /// Takes an array over: what `raw` points to counts as released afterwards.
    ///
    /// # Errors
    ///
    /// It is a null pointer, or was released already.
    ///
    /// # Safety
    ///
    /// A pointer that is not null is one of an array, which nobody else releases.
    pub unsafe fn from_raw(raw: *mut ArrowDeviceArray) -> Result<Self, ArrowError> {
        // SAFETY: this function's contract.
        let raw = unsafe { raw.as_mut() }.ok_or(ArrowError::Null { what: "the device array" })?;
        if raw.array.release.is_none() {
            return Err(ArrowError::Released { what: "the device array" });
        }
        // A move is a copy of the bits, and a source that was released.
        // SAFETY: readable, by this function's contract.
        let moved = unsafe { core::ptr::read(raw) };
        raw.array.release = None;
        Ok(Self { raw: moved })
    }

    pub(super) fn made(raw: ArrowDeviceArray) -> Self {
        Self { raw }
    }

    /// Hands the array out: who gets it calls `release`.
    pub fn into_raw(self) -> ArrowDeviceArray {
        let this = ManuallyDrop::new(self);
        // SAFETY: not used afterwards.
        unsafe { core::ptr::read(&raw const this.raw) }
    }

    /// The structure, unchecked.
    pub fn raw(&self) -> &ArrowDeviceArray {
        &self.raw
    }

    /// Lets go of the array, so that its memory is used again only after the work that `stream` has by now: of an array
    /// that was made here by an event, of others' arrays by waiting, since their `release` knows no streams.
    ///
    /// # Errors
    ///
    /// The driver refuses. The array is released after all work of the context; it is leaked if the driver refuses to wait
    /// for that too.
    pub fn release_after(self, stream: &Stream) -> Result<()> {
        // SAFETY: the array was not released.
        let ordered = unsafe { order_after(&self.raw.array, stream) };
        let (outcome, waited) = match ordered {
            Ok(true) => return Ok(()),
            Ok(false) => (Ok(()), stream.finish()),
            Err(error) => (Err(error), stream.context().synchronize()),
        };
        if waited.is_err() {
            // The work may go on with the memory.
            core::mem::forget(self);
        }
        outcome.and(waited)
    }

    /// Checks all that its producer says.
    ///
    /// # Errors
    ///
    /// What is wrong with it. It has been released.
    pub fn check(self) -> Result<ImportedArray, ArrowError> {
        let raw = &self.raw;
        if let Some(value) = raw.reserved.iter().copied().find(|value| *value != 0) {
            let rule = "it is zero in this release of the specification";
            return Err(ArrowError::Number { what: "a reserved field", value, rule });
        }
        let number = match i32::try_from(raw.device_id) {
            // What needs no number has -1, or any.
            Ok(number) if raw.device_type == 2 => number,
            _ if raw.device_type != 2 => 0,
            _ => return Err(ArrowError::Number { what: "device_id", value: raw.device_id, rule: "it is an ordinal" }),
        };
        let device = TensorDevice::try_from(DLDevice { device_type: raw.device_type, device_id: number })?;
        // SAFETY: whoever took the array over promised one, whose pointers are valid as its numbers say.
        let node = unsafe { read(&raw.array, 0) }?;
        Ok(ImportedArray { node, device, owner: Arc::new(self) })
    }
}

impl Drop for DeviceArray {
    fn drop(&mut self) {
        if let Some(release) = self.raw.array.release {
            // SAFETY: ours, and not released yet.
            unsafe { release(&mut self.raw.array) };
        }
    }
}

/// The numbers of an array, checked, with the addresses of its buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedNode {
    /// How many values.
    pub length: usize,
    /// How many of them are missing, where that is known.
    pub null_count: Option<usize>,
    /// How many values come before the first.
    pub offset: usize,
    /// The addresses of the buffers; 0 where there is none.
    pub buffers: Vec<u64>,
    /// The children.
    pub children: Vec<ImportedNode>,
    /// The dictionary's values.
    pub dictionary: Option<Box<ImportedNode>>,
}

/// An array of another library's whose numbers have been checked. `release` is called when it and all that was made of
/// its memory have ended.
#[derive(Clone, Debug)]
pub struct ImportedArray {
    node: ImportedNode,
    device: TensorDevice,
    owner: Arc<DeviceArray>,
}

impl ImportedArray {
    /// What it is made of.
    pub fn node(&self) -> &ImportedNode {
        &self.node
    }

    /// Where its buffers are.
    pub fn device(&self) -> TensorDevice {
        self.device
    }

    /// Lets work given to `stream` from now on wait for the producer's event, if there is one.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    ///
    /// # Safety
    ///
    /// The producer's `sync_event` is null or a pointer to an event of the stream's driver, as the specification has it.
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

    /// Waits for the producer's event, for the CPU's use.
    ///
    /// # Errors
    ///
    /// The producer's work failed.
    ///
    /// # Safety
    ///
    /// As of [`wait`](Self::wait), of the context's driver.
    pub unsafe fn synchronize(&self, context: &Context) -> Result<()> {
        let Some(event) = self.event() else { return Ok(()) };
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        // SAFETY: an event by this function's contract.
        unsafe { call!(cuda.cuEventSynchronize(event)) }
    }

    fn event(&self) -> Option<CUevent> {
        // Memory of the CPU has no event, whatever is said.
        let pointer = self.owner.raw().sync_event.cast::<CUevent>();
        let is_there = self.device != TensorDevice::Cpu && !pointer.is_null();
        // SAFETY: a pointer to a variable, by the contract of those who call.
        is_there.then(|| unsafe { pointer.read() })
    }

    /// A buffer of `size` bytes at an address that the array names, held by it. `stream` becomes the home of its work; the
    /// end of the buffer waits for that, since `release` knows no streams. Arrow does not say how large buffers are: their
    /// type does.
    ///
    /// # Errors
    ///
    /// The numbers cannot be, or the driver says that the memory is elsewhere.
    ///
    /// # Safety
    ///
    /// The memory is so large, is written by nobody, and `stream` waits for the producer's event ([`wait`](Self::wait)).
    pub unsafe fn buffer(&self, address: u64, size: usize, stream: &Stream) -> Result<SharedBuffer<u8, Any>> {
        let shape = [i64::try_from(size).unwrap_or(i64::MAX)];
        let tensor = Tensor::new(&TensorParts {
            address,
            device: self.device,
            data_type: DataType::UINT8,
            shape: &shape,
            strides: None,
            read_only: false,
            padded: false,
        })?;
        let owner = self.owner.clone();
        // SAFETY: this function's contract.
        let shared: SharedTensor =
            unsafe { crate::interchange::adopt("ImportedArray::buffer", tensor, false, owner, stream, None) }?;
        Ok(shared.memory)
    }

    /// The array again, to hand it on, if no buffer of it is left.
    ///
    /// # Errors
    ///
    /// One is; the array is given back.
    pub fn into_device_array(self) -> Result<DeviceArray, Self> {
        let Self { node, device, owner } = self;
        Arc::try_unwrap(owner).map_err(|owner| Self { node, device, owner })
    }

    /// Lets go of the array after a stream's work: [`DeviceArray::release_after`].
    ///
    /// # Errors
    ///
    /// A buffer of it is left, whose end waits for its own work; the driver refuses.
    pub fn release_after(self, stream: &Stream) -> Result<()> {
        match self.into_device_array() {
            Ok(array) => array.release_after(stream),
            Err(_) => Err(Error::InvalidArgument {
                call: "ImportedArray::release_after",
                argument: "the array",
                value: "held by buffers of it".into(),
                rule: "they are to end before",
            }),
        }
    }
}

/// # Safety
///
/// The array was not released, and its pointers are valid as its numbers say.
unsafe fn read(raw: &ArrowArray, depth: usize) -> Result<ImportedNode, ArrowError> {
    if depth > MAX_DEPTH {
        return Err(ArrowError::TooDeep { limit: MAX_DEPTH });
    }
    if raw.release.is_none() {
        return Err(ArrowError::Released { what: "a child of the array" });
    }
    let size = |what, value: i64| {
        usize::try_from(value).map_err(|_| ArrowError::Number { what, value, rule: "it is not negative" })
    };
    let (length, offset) = (size("length", raw.length)?, size("offset", raw.offset)?);
    if raw.length.checked_add(raw.offset).is_none() {
        return Err(ArrowError::Number {
            what: "offset",
            value: raw.offset,
            rule: "with the length it fits into 64 bits",
        });
    }
    let null_count = match raw.null_count {
        -1 => None,
        count if (0..=raw.length).contains(&count) => Some(count as usize),
        value => {
            return Err(ArrowError::Number { what: "null_count", value, rule: "it is -1, or 0 up to the length" });
        }
    };
    let mut buffers = Vec::new();
    for index in 0..count("n_buffers", raw.n_buffers, raw.buffers.is_null())? {
        // SAFETY: this function's contract.
        buffers.push(unsafe { *raw.buffers.add(index) }.expose_provenance() as u64);
    }
    let mut children = Vec::new();
    for index in 0..count("n_children", raw.n_children, raw.children.is_null())? {
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
