//! Arrays in memory that buffers hold.

use super::dlpack::{FLAG_IS_COPIED, FLAG_READ_ONLY, ImportedTensor, ManagedTensor, export};
use super::held::{After, Held};
use super::{Tensor, TensorDevice, TensorParts};
use crate::buffer::Claim;
use crate::resource::{Accessibility, Kind, SharedResource, kind::Any};
use crate::{Buffer, DataType, Element, Error, Refused, Result, SharedBuffer, Stream};
use bytemuck::{AnyBitPattern, NoUninit};
use std::sync::Arc;

/// An array in memory that it shares the ownership of: what is handed to other libraries, and what comes from them.
///
/// [`SharedBuffer::tensor`](SharedBuffer::tensor) makes one of a buffer; [`ImportedTensor::into_shared`] of another
/// library's. It lies within its memory: that was checked.
#[derive(Debug)]
pub struct SharedTensor {
    pub(super) memory: SharedBuffer<u8, Any>,
    tensor: Tensor,
}

impl Clone for SharedTensor {
    fn clone(&self) -> Self {
        Self { memory: self.memory.clone(), tensor: self.tensor.clone() }
    }
}

/// Who is to use the memory next, so that it comes in order.
#[derive(Clone, Copy, Debug, Default)]
pub enum Consumer<'a> {
    /// Not said. Memory of a device is then ordered before the legacy default stream, as DLPack has it; memory that the
    /// CPU addresses is waited for, since nothing else orders the CPU.
    #[default]
    Unsaid,
    /// Nobody wants an order: the consumer sees to it.
    Unordered,
    /// A stream, which waits for the memory's work.
    Stream(&'a Stream),
}

/// What the memory waits for when the consumer has let go, before it is used again or freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Release {
    /// For the work that the consumer's stream has by then, without holding the CPU up: an event. The stream has to live
    /// until then.
    #[default]
    AfterStream,
    /// For nothing: the consumer lets go when its work is done, or is ordered before ours.
    Immediately,
    /// For all work of the context, which the CPU waits for: where the consumer's stream may be gone by then, and its work
    /// not yet done. While a stream captures the driver refuses that wait: the memory stays then until another export ends
    /// outside of captures. A capture that another library began is lost by it.
    AfterContext,
}

/// Whether an export copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copying {
    /// Only where another device is wanted.
    #[default]
    WhereNeeded,
    /// Always: the consumer alone has the memory then.
    Always,
    /// Not at all: what would need one is refused.
    Never,
}

/// How an array is handed out.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExportOptions<'a> {
    /// Who uses it next.
    pub consumer: Consumer<'a>,
    /// What comes before its memory is used again.
    pub release: Release,
    /// Nobody may write it.
    pub read_only: bool,
    /// Whether it is copied.
    pub copying: Copying,
    /// The device that the consumer wants it on; that of the memory, unless said.
    pub device: Option<TensorDevice>,
    /// What a copy is allocated from; where none is needed, none has to be given.
    pub resource: Option<&'a SharedResource>,
}

impl SharedTensor {
    /// All of a buffer.
    pub(crate) fn of_bytes(memory: SharedBuffer<u8, Any>, data_type: DataType) -> Self {
        let extent = (memory.len() / data_type.padded_size()) as i64;
        let device = device_of(&memory);
        let parts = TensorParts {
            address: address_of(&memory, device),
            device,
            data_type,
            shape: &[extent],
            strides: None,
            read_only: false,
            padded: false,
        };
        match Tensor::new(&parts) {
            Ok(tensor) => Self { memory, tensor },
            Err(error) => unreachable!("a buffer is an array: {error}"),
        }
    }

    /// The same memory as an array of another shape: `offset` is where the element of index 0 lies, in bytes of the
    /// memory; strides are in elements, and without them the array is dense.
    ///
    /// # Errors
    ///
    /// It does not lie within the memory, or its numbers cannot be.
    pub fn with_layout(&self, offset: usize, shape: &[i64], strides: Option<&[i64]>) -> Result<Self> {
        self.with_type_and_layout(self.tensor.data_type, offset, shape, strides)
    }

    /// As [`with_layout`](Self::with_layout), of another type of elements.
    ///
    /// # Errors
    ///
    /// As [`with_layout`](Self::with_layout).
    pub fn with_type_and_layout(
        &self,
        data_type: DataType,
        offset: usize,
        shape: &[i64],
        strides: Option<&[i64]>,
    ) -> Result<Self> {
        let Tensor { read_only, padded, .. } = self.tensor;
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        Self::checked(&self.memory, data_type, offset, (shape, strides), read_only, padded)
    }

    /// An array in memory, if it lies within it. `offset` is in bytes.
    pub(super) fn checked(
        memory: &SharedBuffer<u8, Any>,
        data_type: DataType,
        offset: i64,
        (shape, strides): (&[i64], Option<&[i64]>),
        read_only: bool,
        padded: bool,
    ) -> Result<Self> {
        let device = device_of(memory);
        let (base, size) = (address_of(memory, device), memory.len());
        let address = base.saturating_add_signed(offset);
        let tensor = Tensor::new(&TensorParts { address, device, data_type, shape, strides, read_only, padded })?;
        let range = tensor.byte_range();
        if !tensor.is_empty() && (range.start < base || range.end > base + size as u64) {
            return Err(Error::OutOfRange {
                call: "SharedTensor::with_layout",
                offset: range.start.wrapping_sub(base) as usize,
                length: (range.end - range.start) as usize,
                size,
            });
        }
        Ok(Self { memory: memory.clone(), tensor })
    }

    /// The array with no more memory than it reaches.
    pub(super) fn narrowed(self) -> Result<(SharedBuffer<u8, Any>, Tensor)> {
        let range = self.tensor.byte_range();
        let begin = match self.tensor.is_empty() {
            true => 0,
            false => (range.start - address_of(&self.memory, self.tensor.device)) as usize,
        };
        Ok((self.memory.slice(begin..begin + (range.end - range.start) as usize)?, self.tensor))
    }

    /// What it looks like.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The memory of an array that may be written. Its home stream is the one that the array's work is ordered on.
    ///
    /// # Errors
    ///
    /// The array is read-only, and a buffer may be written: [`into_view`](Self::into_view) reads it, and
    /// [`copied`](Self::copied) gives a copy that may be written.
    pub fn memory(&self) -> Result<&SharedBuffer<u8, Any>> {
        match self.tensor.read_only {
            false => Ok(&self.memory),
            true => Err(read_only("SharedTensor::memory")),
        }
    }

    /// The memory as a buffer, of an array that is contiguous, of `T`s, and may be written.
    ///
    /// # Errors
    ///
    /// It is not; or its kind is another. It is given back.
    pub fn into_buffer<T, K>(self) -> Result<SharedBuffer<T, K>, Box<Refused<Self>>>
    where
        T: Element + NoUninit + AnyBitPattern,
        K: Kind,
    {
        let tensor = &self.tensor;
        const CALL: &str = "SharedTensor::into_buffer";
        let refusal =
            |argument, value: String, rule| Error::InvalidArgument { call: CALL, argument, value: value.into(), rule };
        let error = if tensor.data_type != T::DATA_TYPE {
            refusal("the type of an element", tensor.data_type.to_string(), "it must be the buffer's")
        } else if !tensor.is_contiguous() {
            let value = format!("shape {:?}, strides {:?}", tensor.shape(), tensor.strides());
            refusal("the layout", value, "a buffer's elements lie side by side; make a dense copy")
        } else if tensor.read_only {
            read_only(CALL)
        } else {
            let begin = (tensor.address - address_of(&self.memory, tensor.device)) as usize;
            let range = if tensor.is_empty() { 0..0 } else { begin..begin + tensor.len() * size_of::<T>() };
            let part = self.memory.slice(range).and_then(|part| {
                let part: SharedBuffer<u8, K> = part.try_into_kind()?;
                Ok(part.cast::<T>()?)
            });
            match part {
                Ok(buffer) => return Ok(buffer),
                Err(error) => error,
            }
        };
        Err(Refused::new(self, error))
    }

    /// Hands the array to another library, in order. The consumer's deleter lets go of the memory, which lives until then.
    ///
    /// # Errors
    ///
    /// A copy is needed that is forbidden or has no resource; the resource's memory is not the device's that is wanted;
    /// there is no room; the driver refuses.
    pub fn to_dlpack(&self, options: &ExportOptions<'_>) -> Result<ManagedTensor> {
        let placed = self.place(options)?;
        let (array, flags) = placed.as_ref().map_or((self, 0), |(array, flags)| (array, *flags));
        let consumer = array.order_before(options.consumer)?;
        let held = Held { memory: array.memory.clone(), after: After::new(options.release, consumer) };
        let read_only = if options.read_only { FLAG_READ_ONLY } else { 0 };
        Ok(export(&array.tensor, flags | read_only, held))
    }

    /// The array on the device that is wanted, with DLPack's flags of it; none where it is there already.
    fn place(&self, options: &ExportOptions<'_>) -> Result<Option<(Self, u64)>> {
        const CALL: &str = "SharedTensor::to_dlpack";
        let own = self.tensor.device;
        let wanted = options.device.unwrap_or(own);
        let refusal =
            |argument, value: String, rule| Error::InvalidArgument { call: CALL, argument, value: value.into(), rule };
        // The CPU may use what it addresses, as memory of its own.
        let serves = wanted == own
            || wanted == TensorDevice::Cpu && self.memory.accessibility().host && self.memory.is_coherent();
        if serves && options.copying != Copying::Always {
            if wanted == own {
                return Ok(None);
            }
            let tensor = self.tensor.moved_to(self.address_on(wanted), wanted)?;
            return Ok(Some((Self { memory: self.memory.clone(), tensor }, 0)));
        }
        if options.copying == Copying::Never {
            return Err(refusal(
                "copying",
                format!("never, from {own:?} to {wanted:?}"),
                "another device needs a copy",
            ));
        }
        let Some(resource) = options.resource else {
            return Err(refusal("resource", "none".into(), "a copy is allocated from one"));
        };
        let copy = self.copied(resource)?;
        let there = copy.tensor.device;
        let serves = there == wanted || wanted == TensorDevice::Cpu && copy.memory.accessibility().host;
        if !serves {
            return Err(refusal(
                "resource",
                format!("of {there:?}"),
                "its memory must be of the device that is wanted",
            ));
        }
        let tensor = copy.tensor.moved_to(copy.address_on(wanted), wanted)?;
        Ok(Some((Self { memory: copy.memory, tensor }, FLAG_IS_COPIED)))
    }

    /// Where the element of index 0 lies for a device.
    pub(super) fn address_on(&self, device: TensorDevice) -> u64 {
        address_of(&self.memory, device)
            + self.tensor.address.wrapping_sub(address_of(&self.memory, self.tensor.device))
    }

    /// A copy of the same layout, in stream order. It may be written.
    ///
    /// # Errors
    ///
    /// There is no room; the driver refuses.
    pub fn copied(&self, resource: &SharedResource) -> Result<Self> {
        let range = self.tensor.byte_range();
        let begin = (range.start.saturating_sub(address_of(&self.memory, self.tensor.device))) as usize;
        let size = (range.end - range.start) as usize;
        let home = self.home_for(resource)?;
        let copy = Buffer::<u8, Any>::uninit(resource, size, &home)?;
        // SAFETY: nothing reads the bytes before the copy has written all of them; where it fails, the buffer ends here.
        let mut copy = unsafe { copy.assume_init() };
        if size != 0 {
            copy.copy_from_buffer(0, &self.memory.slice(begin..begin + size)?, ..)?;
        }
        let memory = copy.into_shared();
        let device = device_of(&memory);
        let address = address_of(&memory, device) + (self.tensor.address - range.start);
        let tensor = self.tensor.moved_to(address, device)?.into_writable();
        Ok(Self { memory, tensor })
    }

    /// A stream that memory of a resource can be at home on: ours, or a new one of its device.
    fn home_for(&self, resource: &SharedResource) -> Result<Stream> {
        let (there, home) = (resource.context(), self.memory.stream());
        let near = there == home.context() || there.device() == home.context().device() || !resource.is_on_device();
        if near { Ok(home.clone()) } else { Stream::new(there) }
    }

    /// Orders the memory's work so far before the consumer's from now on. Gives the consumer's stream, where there is one.
    fn order_before(&self, consumer: Consumer<'_>) -> Result<Option<Stream>> {
        let home = self.memory.stream();
        let stream = match consumer {
            Consumer::Unordered => return Ok(None),
            Consumer::Unsaid if self.tensor.is_empty() => return Ok(None),
            Consumer::Unsaid if !matches!(self.tensor.device, TensorDevice::Cuda(_)) => {
                self.memory.synchronize()?;
                return Ok(None);
            }
            Consumer::Unsaid => Stream::legacy_default(home.context()),
            Consumer::Stream(stream) => stream.clone(),
        };
        stream.follow_for_work(home)?;
        Ok(Some(stream))
    }
}

impl ImportedTensor {
    /// Makes the array usable here: its memory lives as long as what is made of it, and its work is ordered on `stream`.
    /// Where the producer's stream is given, `stream` waits for its work so far, and it waits for ours in the end, all
    /// without holding the CPU up. Else the producer has ordered its work already, and the end waits for ours.
    ///
    /// # Errors
    ///
    /// The driver says that the memory is not where the producer does; the stream cannot be a home stream; the driver
    /// refuses. The tensor ends.
    ///
    /// # Safety
    ///
    /// The memory is as the tensor says, is allocated until the deleter is called, and is meanwhile used by others only in
    /// order with `stream`. Where `producer` is given, the deleter frees in its order.
    pub unsafe fn into_shared(self, stream: &Stream, producer: Option<&Stream>) -> Result<SharedTensor> {
        const CALL: &str = "ImportedTensor::into_shared";
        let (tensor, copied) = (self.tensor().clone(), self.is_copied());
        // SAFETY: this function's contract.
        unsafe { adopt(CALL, tensor, copied, Arc::new(self.into_managed()), stream, producer) }
    }
}

fn read_only(call: &'static str) -> Error {
    let rule = "a buffer may be written; make a copy";
    Error::InvalidArgument { call, argument: "the array", value: "read-only".into(), rule }
}

/// Makes an array of another library's usable here.
///
/// # Safety
///
/// As of [`ImportedTensor::into_shared`], for the life of `owner`.
pub(super) unsafe fn adopt(
    call: &'static str,
    tensor: Tensor,
    is_ours_alone: bool,
    owner: crate::ForeignOwner,
    stream: &Stream,
    producer: Option<&Stream>,
) -> Result<SharedTensor> {
    if let Some(producer) = producer {
        stream.follow(producer)?;
    }
    let range = tensor.byte_range();
    let bytes = (range.start, (range.end - range.start) as usize);
    let device = match tensor.device {
        TensorDevice::Cuda(ordinal) => Some(ordinal),
        _ => None,
    };
    let said = Claim { words: &tensor.device, accessibility: tensor.device.accessibility(), device };
    // SAFETY: this function's contract.
    let memory = unsafe { SharedBuffer::foreign_bytes(call, bytes, said, owner, stream, producer) }?;
    if !is_ours_alone {
        memory.expose();
    }
    Ok(SharedTensor { memory: memory.into_any(), tensor }.rebased())
}

impl SharedTensor {
    /// What another library calls an address of the CPU, the driver may know by another for devices.
    fn rebased(self) -> Self {
        let Self { memory, tensor } = self;
        let begin = tensor.byte_range().start;
        let address = address_of(&memory, tensor.device).wrapping_add(tensor.address.wrapping_sub(begin));
        match tensor.moved_to(address, tensor.device) {
            Ok(moved) if !tensor.is_empty() => Self { memory, tensor: moved },
            _ => Self { memory, tensor },
        }
    }
}

/// The device that a buffer's memory is on for other libraries.
pub(super) fn device_of(memory: &SharedBuffer<u8, Any>) -> TensorDevice {
    let Accessibility { device, host, managed, .. } = memory.accessibility();
    match memory.device_ordinal() {
        _ if managed => TensorDevice::CudaManaged,
        Some(ordinal) => TensorDevice::Cuda(ordinal),
        None if host && device => TensorDevice::CudaHost,
        None if device => TensorDevice::Cuda(memory.context().device().ordinal()),
        None => TensorDevice::Cpu,
    }
}

/// The address that others on a device know the memory by.
fn address_of(memory: &SharedBuffer<u8, Any>, device: TensorDevice) -> u64 {
    let host = memory.host_address();
    match device {
        TensorDevice::Cpu | TensorDevice::CudaHost if !host.is_null() => host.expose_provenance() as u64,
        _ => memory.device_pointer(),
    }
}
