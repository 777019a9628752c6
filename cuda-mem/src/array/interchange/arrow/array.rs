//! Exports of our arrays as Arrow's device structures.

use super::ArrowError;
use super::owned::DeviceArray;
use super::raw::{ArrowArray, ArrowDeviceArray};
use crate::array::interchange::dlpack::DLDevice;
use crate::array::interchange::{TensorDevice, device_of};
use crate::error::callback::call_back;
use crate::memory::resource::kind::Any;
use crate::{Error, Event, Result, SharedBuffer, Stream};
use core::ffi::c_void;
use core::ptr;
use cuda_sys::CUevent;

/// An Arrow array in memory of buffers: its numbers, its buffers in the order that its type defines, its children.
#[derive(Clone, Debug, Default)]
pub struct ArrayNode {
    /// The number of values.
    pub length: usize,
    /// The number of missing values, if it is known.
    pub null_count: Option<usize>,
    /// The number of values before the first.
    pub offset: usize,
    /// The buffers; `None` for an absent one, such as the validity of an array without missing values.
    pub buffers: Vec<Option<SharedBuffer<u8, Any>>>,
    /// The children.
    pub children: Vec<ArrayNode>,
    /// The dictionary's values.
    pub dictionary: Option<Box<ArrayNode>>,
}

impl ArrayNode {
    /// All buffers, including those of children.
    pub fn all_buffers(&self) -> Vec<&SharedBuffer<u8, Any>> {
        let own = self.buffers.iter().flatten();
        let inner = self.children.iter().chain(self.dictionary.as_deref()).flat_map(ArrayNode::all_buffers);
        own.chain(inner).collect()
    }

    /// The device of the memory; `None` if the array has no memory.
    ///
    /// # Errors
    ///
    /// The buffers lie on several devices.
    pub fn device(&self) -> Result<Option<TensorDevice>> {
        let mut device = None;
        for buffer in self.all_buffers().into_iter().filter(|buffer| !buffer.is_empty()) {
            let here = device_of(buffer);
            if device.is_some_and(|device| device != here) {
                let value = format!("on {here:?} and {:?}", device.unwrap_or(here));
                let rule = "the buffers of one array must lie on one device";
                return Err(Error::invalid("ArrayNode::export", "the buffers", value, rule));
            }
            device = Some(here);
        }
        Ok(device)
    }

    /// Exports the array. The consumer waits for an event on `stream`, after all work on the buffers so far. For memory
    /// of the CPU alone the call waits instead.
    ///
    /// The consumer's `release` has no stream parameter, so it must come after the consumer's work.
    /// [`DeviceArray::release_after`] needs no wait for that.
    ///
    /// # Errors
    ///
    /// The buffers lie on several devices.
    #[doc(alias = "ArrowDeviceArray")]
    pub fn export(&self, stream: &Stream) -> Result<DeviceArray> {
        let device = self.device()?.unwrap_or(TensorDevice::Cpu);
        let event = self.order(device, stream)?;
        let mut held = Box::new(ExportedArray::default());
        let array = held.fill(self);
        let mut order = event.map(|event| Box::new(SyncEvent { raw: event.raw(), event }));
        let sync_event = order.as_mut().map_or(ptr::null_mut(), |order| (&raw mut order.raw).cast::<c_void>());
        held.order = order;
        let DLDevice { device_type, device_id } = device.into();
        let device_id = if matches!(device, TensorDevice::Cuda(_)) { device_id.into() } else { -1 };
        let array = ArrowArray { private_data: Box::into_raw(held).cast(), ..array };
        Ok(DeviceArray::made(ArrowDeviceArray { array, device_id, device_type, sync_event, reserved: [0; 3] }))
    }

    /// Waits for the work on the memory, or returns an event after it.
    fn order(&self, device: TensorDevice, stream: &Stream) -> Result<Option<Event>> {
        let buffers = self.all_buffers();
        if device == TensorDevice::Cpu {
            buffers.iter().try_for_each(|buffer| buffer.synchronize())?;
            return Ok(None);
        }
        let mut joined: Vec<&Stream> = vec![stream];
        for buffer in &buffers {
            if !joined.contains(&buffer.stream()) {
                stream.order_after(buffer.stream())?;
                joined.push(buffer.stream());
            }
        }
        let event = Event::new(stream.context())?;
        event.mark(&stream.running("Arrow::export")?)?;
        Ok(Some(event))
    }
}

/// The data behind an exported array, which must not move.
#[derive(Default)]
pub(super) struct ExportedArray {
    memory: Vec<SharedBuffer<u8, Any>>,
    pointers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
    dictionary: *mut ArrowArray,
    order: Option<Box<SyncEvent>>,
}

/// The event, and the variable to which the consumer gets a pointer.
struct SyncEvent {
    raw: CUevent,
    #[expect(dead_code, reason = "held for its drop")]
    event: Event,
}

impl ExportedArray {
    /// Holds a node's buffers and describes the node, without the private data.
    fn fill(&mut self, node: &ArrayNode) -> ArrowArray {
        let boxed = |node: &ArrayNode| {
            let mut held = Box::new(ExportedArray::default());
            let array = held.fill(node);
            Box::into_raw(Box::new(ArrowArray { private_data: Box::into_raw(held).cast(), ..array }))
        };
        self.memory = node.buffers.iter().flatten().cloned().collect();
        let address = |buffer: &SharedBuffer<u8, Any>| match buffer.host_address() {
            host if host.is_null() || matches!(device_of(buffer), TensorDevice::Cuda(_)) => {
                ptr::with_exposed_provenance(buffer.device_pointer() as usize)
            }
            host => host.cast_const().cast::<c_void>(),
        };
        self.pointers = node.buffers.iter().map(|buffer| buffer.as_ref().map_or(ptr::null(), address)).collect();
        self.children = node.children.iter().map(boxed).collect();
        self.dictionary = node.dictionary.as_deref().map_or(ptr::null_mut(), boxed);
        ArrowArray {
            length: node.length as i64,
            null_count: node.null_count.map_or(-1, |count| count as i64),
            offset: node.offset as i64,
            n_buffers: self.pointers.len() as i64,
            n_children: self.children.len() as i64,
            buffers: self.pointers.as_mut_ptr(),
            children: self.children.as_mut_ptr(),
            dictionary: self.dictionary,
            release: Some(end),
            private_data: ptr::null_mut(),
        }
    }

    /// Orders the memory after a stream's work so far.
    fn order_after(&self, stream: &Stream) -> Result<()> {
        self.memory.iter().try_for_each(|buffer| buffer.record_use(stream))?;
        for child in self.children.iter().copied().chain([self.dictionary]).filter(|child| !child.is_null()) {
            // SAFETY: this value owns the child. If a consumer moved the child away, its new owner orders it.
            if let Some(held) = unsafe { held_by(&*child) } {
                held.order_after(stream)?;
            }
        }
        Ok(())
    }
}

/// The data behind one of our arrays; `None` for released arrays and those of other libraries.
///
/// # Safety
///
/// An array whose `release` is [`end`] was made by this module.
unsafe fn held_by(array: &ArrowArray) -> Option<&ExportedArray> {
    let ours = array.release.is_some_and(|release| core::ptr::fn_addr_eq(release, end as unsafe extern "C" fn(_)));
    // SAFETY: made by this module, and not released.
    if ours { unsafe { array.private_data.cast::<ExportedArray>().as_ref() } } else { None }
}

/// Orders one of our arrays after a stream's work. Returns false for arrays of other libraries.
///
/// # Safety
///
/// The array was not released.
pub(super) unsafe fn order_after(array: &ArrowArray, stream: &Stream) -> Result<bool> {
    // SAFETY: an array with our `release` was made by this module; Arrow forbids others to set it.
    match unsafe { held_by(array) } {
        Some(held) => held.order_after(stream).map(|()| true),
        None => Ok(false),
    }
}

/// The `release` of our arrays.
unsafe extern "C" fn end(raw: *mut ArrowArray) {
    // SAFETY: `export` made the private data for this one call.
    let held = unsafe {
        let Some(raw) = raw.as_mut() else { return };
        raw.release = None;
        Box::from_raw(raw.private_data.cast::<ExportedArray>())
    };
    for child in held.children.iter().copied().chain([held.dictionary]).filter(|child| !child.is_null()) {
        // SAFETY: boxed in `fill`; a consumer may have moved the content away.
        unsafe {
            if let Some(release) = (*child).release {
                release(child);
            }
            drop(Box::from_raw(child));
        }
    }
    // A panic must not unwind into foreign code.
    let _ = call_back(|| drop(held));
}

/// Checks a count, and that the pointer to the counted is not null. Errors name the count, or the pointer.
pub(super) fn count([what, pointer]: [&'static str; 2], number: i64, is_null: bool) -> Result<usize, ArrowError> {
    let rule = "it must be a count from 0 to 2147483647";
    let count = i32::try_from(number).ok().and_then(|number| usize::try_from(number).ok());
    match count.ok_or(ArrowError::Number { what, value: number, rule })? {
        count if count != 0 && is_null => Err(ArrowError::Null { what: pointer }),
        count => Ok(count),
    }
}
