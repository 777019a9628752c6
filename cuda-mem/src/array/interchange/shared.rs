//! Arrays in memory of buffers.

use super::dlpack::{FLAG_IS_COPIED, FLAG_READ_ONLY, ImportedTensor, ManagedTensor, export};
use super::exported_memory::{After, ExportedMemory};
use super::{Tensor, TensorDevice, TensorParts};
use crate::array::element::data_type;
use crate::buffer::{Claim, Owner};
use crate::memory::resource::{Accessibility, Kind, SharedResource, kind::Any};
use crate::{Buffer, DataType, Element, Error, Refused, Result, SharedBuffer, Stream};
use bytemuck::{AnyBitPattern, NoUninit};
use smallvec::SmallVec;
use strided_layout::Extent;

/// An array that shares the ownership of its memory: an export to other libraries, or an import from them.
///
/// [`SharedBuffer::tensor`](SharedBuffer::tensor) makes one from a buffer, [`ImportedTensor::into_shared`] from another
/// library's array. It always lies within its memory.
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

/// The next user of the memory, which determines how its work is ordered.
#[derive(Clone, Copy, Debug, Default)]
pub enum Consumer<'a> {
    /// Unknown. The legacy default stream waits for the work on device memory, as DLPack specifies. The CPU waits for
    /// the work on memory that it can address, because no event could order the CPU.
    #[default]
    Unsaid,
    /// The consumer orders its own work.
    Unordered,
    /// A stream. It waits for the memory's work.
    Stream(&'a Stream),
}

/// What the next use or the free of the memory waits for after the consumer has released it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Release {
    /// The work that the consumer's stream has then, by an event, without a wait of the CPU. The stream must live until
    /// then.
    #[default]
    AfterStream,
    /// Nothing: the consumer releases the memory after its work is done, or orders that work before ours.
    Immediately,
    /// All work of the context, by a wait of the CPU: for consumers whose stream may end before their work. During a
    /// capture of this crate the driver would refuse the wait, so the memory stays until no such capture goes on. The
    /// wait breaks captures of other libraries.
    AfterContext,
}

/// Whether an export copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copying {
    /// Only if the consumer wants another device.
    #[default]
    WhereNeeded,
    /// Always, so that the consumer alone has the memory.
    Always,
    /// Never: an export that needs a copy is refused.
    Never,
}

/// Options of an export.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExportOptions<'a> {
    /// The next user of the memory.
    pub consumer: Consumer<'a>,
    /// What the memory waits for after its release.
    pub release: Release,
    /// Nobody may write the array.
    pub read_only: bool,
    /// Whether it is copied.
    pub copying: Copying,
    /// The device for the consumer; `None` for that of the memory.
    pub device: Option<TensorDevice>,
    /// Allocates the copy, if there is one.
    pub resource: Option<&'a SharedResource>,
}

impl SharedTensor {
    /// The whole memory as a one-dimensional array.
    pub(crate) fn of_bytes(memory: SharedBuffer<u8, Any>, data_type: DataType) -> Self {
        let extent = (memory.len() / data_type.padded_size()) as i64;
        let device = device_of(&memory);
        let parts = TensorParts {
            address: address_of(&memory, device),
            device,
            data_type,
            shape: &[extent],
            strides: None,
            read_only: memory.is_read_only(),
            padded: false,
        };
        match Tensor::new(&parts) {
            Ok(tensor) => Self { memory, tensor },
            Err(error) => unreachable!("a buffer is always a valid array: {error}"),
        }
    }

    /// The same memory as an array of another shape. `offset` is the place of the element with index 0, in bytes of the
    /// memory. Strides are in elements; without them the array is dense.
    ///
    /// # Errors
    ///
    /// The array leaves the memory, or its description is invalid.
    pub fn with_layout(&self, offset: usize, shape: &[impl Extent], strides: Option<&[i64]>) -> Result<Self> {
        self.with_type_and_layout(self.tensor.data_type, offset, shape, strides)
    }

    /// The same memory as an array of another element type and shape. Offset and strides are those of
    /// [`with_layout`](Self::with_layout).
    ///
    /// # Errors
    ///
    /// As [`with_layout`](Self::with_layout).
    pub fn with_type_and_layout(
        &self,
        data_type: DataType,
        offset: usize,
        shape: &[impl Extent],
        strides: Option<&[i64]>,
    ) -> Result<Self> {
        let shape: SmallVec<[i64; 4]> = shape.iter().map(|extent| extent.to_i64()).collect();
        let Tensor { read_only, padded, .. } = self.tensor;
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        Self::checked(&self.memory, data_type, offset, (&shape, strides), read_only, padded)
    }

    /// Checks that an array lies within the memory. `offset` is in bytes.
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
        let read_only = read_only || memory.is_read_only();
        let tensor = Tensor::new(&TensorParts { address, device, data_type, shape, strides, read_only, padded })?;
        let range = tensor.byte_range();
        if !tensor.is_empty() && range.start < base {
            let value = format_args!("{offset}, and the array begins {} bytes before the memory", base - range.start);
            let rule = "negative strides go down from the element at the offset: raise the offset to that of the first element";
            return Err(Error::invalid("SharedTensor::with_layout", "offset", value, rule));
        }
        if !tensor.is_empty() && range.end > base + size as u64 {
            return Err(Error::OutOfRange {
                call: "SharedTensor::with_layout",
                offset: range.start.wrapping_sub(base) as usize,
                length: (range.end - range.start) as usize,
                size,
            });
        }
        Ok(Self { memory: memory.clone(), tensor })
    }

    /// Keeps only the part of the memory that the array reaches.
    pub(super) fn narrow(&mut self) -> Result<()> {
        let range = self.tensor.byte_range();
        let size = (range.end - range.start) as usize;
        if size != self.memory.len() {
            let begin = match self.tensor.is_empty() {
                true => 0,
                false => (range.start - address_of(&self.memory, self.tensor.device)) as usize,
            };
            self.memory = self.memory.slice(begin..begin + size)?;
        }
        Ok(())
    }

    /// The array's description.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The memory of a writable array. Its home stream orders the array's work.
    ///
    /// # Errors
    ///
    /// The array is read-only, but a buffer can be written. [`into_view`](Self::into_view) reads it,
    /// [`copied`](Self::copied) makes a writable copy.
    pub fn memory(&self) -> Result<&SharedBuffer<u8, Any>> {
        match self.tensor.read_only {
            false => Ok(&self.memory),
            true => Err(read_only("SharedTensor::memory")),
        }
    }

    /// The memory as a buffer, if the array is contiguous and writable, with elements of type `T`.
    ///
    /// # Errors
    ///
    /// It is not, or the memory has another kind. The error returns the array.
    pub fn into_buffer<T, K>(self) -> Result<SharedBuffer<T, K>, Box<Refused<Self>>>
    where
        T: Element + NoUninit + AnyBitPattern,
        K: Kind,
    {
        let tensor = &self.tensor;
        const CALL: &str = "SharedTensor::into_buffer";
        let refusal = |argument, value: String, rule| Error::invalid(CALL, argument, value, rule);
        let error = if tensor.data_type != data_type::<T>() {
            refusal("the type of an element", tensor.data_type.to_string(), "it must be that of the buffer")
        } else if !tensor.is_contiguous() {
            let value = format!("shape {:?}, strides {:?}", tensor.shape(), tensor.strides());
            refusal("the layout", value, "a buffer's elements must lie side by side: make a dense copy")
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

    /// Hands the array to another library, with its work in order. The memory lives until the consumer calls the
    /// deleter.
    ///
    /// # Errors
    ///
    /// A copy is needed, but forbidden or without a resource; the resource's memory is not that of the wanted device;
    /// no memory is left.
    pub fn to_dlpack(&self, options: &ExportOptions<'_>) -> Result<ManagedTensor> {
        let placed = self.place(options)?;
        let (array, flags) = placed.as_ref().map_or((self, 0), |(array, flags)| (array, *flags));
        let consumer = array.order_before(options.consumer)?;
        let exported = ExportedMemory { memory: array.memory.clone(), after: After::new(options.release, consumer) };
        let read_only = if options.read_only { FLAG_READ_ONLY } else { 0 };
        Ok(export(&array.tensor, flags | read_only, exported))
    }

    /// The array on the device for the consumer, with DLPack's flags; `None` if `self` serves.
    fn place(&self, options: &ExportOptions<'_>) -> Result<Option<(Self, u64)>> {
        const CALL: &str = "SharedTensor::to_dlpack";
        let own = self.tensor.device;
        let wanted = options.device.unwrap_or(own);
        let refusal = |argument, value: String, rule| Error::invalid(CALL, argument, value, rule);
        // The CPU may use any coherent memory that it can address.
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
                format!("Never, with an array on {own:?} that is wanted on {wanted:?}"),
                "another device needs a copy",
            ));
        }
        let Some(resource) = options.resource else {
            return Err(refusal("resource", "none".into(), "a copy must be allocated from one"));
        };
        let copy = self.copied(resource)?;
        let there = copy.tensor.device;
        let serves = there == wanted || wanted == TensorDevice::Cpu && copy.memory.accessibility().host;
        if !serves {
            return Err(refusal(
                "resource",
                format!("one of memory on {there:?}"),
                "its memory must lie on the wanted device",
            ));
        }
        let tensor = copy.tensor.moved_to(copy.address_on(wanted), wanted)?;
        Ok(Some((Self { memory: copy.memory, tensor }, FLAG_IS_COPIED)))
    }

    /// The address of the element with index 0 for a device.
    pub(super) fn address_on(&self, device: TensorDevice) -> u64 {
        address_of(&self.memory, device)
            + self.tensor.address.wrapping_sub(address_of(&self.memory, self.tensor.device))
    }

    /// A writable copy with the same layout, in stream order.
    ///
    /// # Errors
    ///
    /// No memory is left.
    pub fn copied(&self, resource: &SharedResource) -> Result<Self> {
        let range = self.tensor.byte_range();
        let begin = (range.start.saturating_sub(address_of(&self.memory, self.tensor.device))) as usize;
        let size = (range.end - range.start) as usize;
        let home = self.home_for(resource)?;
        let copy = Buffer::<u8, Any>::uninit(resource, size, &home)?;
        let source = if size == 0 { None } else { Some(self.memory.slice(begin..begin + size)?) };
        // SAFETY: the copy writes every byte.
        let copy = unsafe {
            copy.initialised_by("SharedTensor::copied", |copy| {
                source.as_ref().map_or(Ok(()), |source| copy.copy_from_buffer(0, source, ..))
            })
        }?;
        let memory = copy.into_shared();
        let device = device_of(&memory);
        let address = address_of(&memory, device) + (self.tensor.address - range.start);
        let tensor = self.tensor.moved_to(address, device)?.into_writable();
        Ok(Self { memory, tensor })
    }

    /// A home stream for a resource's memory: ours, or a new one of its device.
    fn home_for(&self, resource: &SharedResource) -> Result<Stream> {
        let (there, home) = (resource.context(), self.memory.stream());
        let near = there == home.context() || there.device() == home.context().device() || !resource.is_on_device();
        if near { Ok(home.clone()) } else { Stream::new(there) }
    }

    /// Orders the consumer's work after the memory's work so far. Returns the consumer's stream, if there is one.
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
        stream.order_work_after(home)?;
        Ok(Some(stream))
    }
}

impl ImportedTensor {
    /// Imports the array. `stream` becomes its home stream. The memory lives as long as anything made from it.
    ///
    /// With a `producer`, `stream` waits for that stream's work so far, and that stream for ours in the end, by events.
    /// Without one, the producer must have ordered its work already, and the drop of the memory waits for our work.
    ///
    /// # Errors
    ///
    /// The driver reports another place of the memory; `stream` cannot be a home stream. The deleter has been called
    /// then.
    ///
    /// # Safety
    ///
    /// The memory is as described, and allocated until the deleter is called. Until then others use it only in order
    /// with `stream`. With a `producer`, the deleter frees in order of that stream.
    pub unsafe fn into_shared(self, stream: &Stream, producer: Option<&Stream>) -> Result<SharedTensor> {
        const CALL: &str = "ImportedTensor::into_shared";
        let copied = self.is_copied();
        let (tensor, managed) = self.into_parts();
        // SAFETY: this function's contract.
        unsafe { adopt(CALL, tensor, copied, Owner::Single(managed.into_owner()), stream, producer) }
    }
}

fn read_only(call: &'static str) -> Error {
    let rule = "a buffer can be written: make a copy";
    Error::invalid(call, "the array", "read-only", rule)
}

/// Imports an array of another library. `is_ours_alone`: the producer has copied it for us.
///
/// # Safety
///
/// As for [`ImportedTensor::into_shared`], for the lifetime of `owner`.
pub(super) unsafe fn adopt(
    call: &'static str,
    tensor: Tensor,
    is_ours_alone: bool,
    owner: Owner,
    stream: &Stream,
    producer: Option<&Stream>,
) -> Result<SharedTensor> {
    if let Some(producer) = producer {
        stream.order_after(producer)?;
    }
    let range = tensor.byte_range();
    let bytes = (range.start, (range.end - range.start) as usize);
    let device = match tensor.device {
        TensorDevice::Cuda(ordinal) => Some(ordinal),
        _ => None,
    };
    let said = Claim { words: &tensor.device, accessibility: tensor.device.accessibility(), device, is_ours_alone };
    // SAFETY: this function's contract.
    let memory = unsafe { SharedBuffer::foreign_bytes(call, bytes, said, owner, stream, producer) }?;
    let mut shared = SharedTensor { memory, tensor };
    shared.rebase();
    Ok(shared)
}

impl SharedTensor {
    /// Moves the description to the driver's address; the other library may have named another one, such as the CPU's.
    fn rebase(&mut self) {
        let (begin, there) = (self.tensor.byte_range().start, address_of(&self.memory, self.tensor.device));
        if begin == there || self.tensor.is_empty() {
            return;
        }
        let address = there.wrapping_add(self.tensor.address.wrapping_sub(begin));
        if let Ok(tensor) = self.tensor.moved_to(address, self.tensor.device) {
            self.tensor = tensor;
        }
    }
}

/// The device of a buffer's memory for other libraries.
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

/// The address of the memory on a device.
fn address_of(memory: &SharedBuffer<u8, Any>, device: TensorDevice) -> u64 {
    let host = memory.host_address();
    match device {
        TensorDevice::Cpu | TensorDevice::CudaHost if !host.is_null() => host.expose_provenance() as u64,
        _ => memory.device_pointer(),
    }
}
