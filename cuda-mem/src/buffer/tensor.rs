//! Buffers as tensors: what the interchange with other libraries stands on.

use super::allocation::{Allocation, Foreign, Hold, Origin, Part};
use super::{Buffer, SharedBuffer, check_stream};
use crate::context::ForeignOwner;
use crate::interchange::{SharedTensor, TensorDevice};
use crate::memory::{Accessibility, Block, Kind, PointerInfo, kind::Any};
use crate::{Element, Error, Refused, Result, Stream};
use std::sync::Arc;

impl<T: Element, K: Kind> SharedBuffer<T, K> {
    /// The buffer as an array of one dimension, to be handed to other libraries. It shares the ownership of the memory:
    /// who drops the buffer defers the free until the last consumer has let go, and [`close`](SharedBuffer::close) is
    /// refused until then.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// let buffer = Buffer::from_slice(&memory, &[1.0f32, 2.0, 3.0, 4.0], &stream)?.into_shared();
    /// let square = buffer.tensor().with_layout(0, &[2, 2], None)?;
    /// let exported = square.to_dlpack(&Default::default())?;
    /// assert!(buffer.clone().close().is_err(), "a consumer has it");
    /// drop(exported);
    /// # drop(square);
    /// buffer.close()?;
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn tensor(&self) -> SharedTensor {
        SharedTensor::of_bytes(self.bytes(), T::DATA_TYPE)
    }
}

impl<T, K: Kind> SharedBuffer<T, K> {
    /// Frees the memory in order of the home stream, and gives errors, if nothing else holds it. A drop is never refused:
    /// the last holder, which may be another library, then frees.
    ///
    /// # Errors
    ///
    /// A clone, a slice, another library or another process holds the memory, or the driver refuses; the buffer is given
    /// back.
    pub fn close(self) -> Result<(), Box<Refused<Self>>> {
        let exclusive = self.try_into_exclusive()?;
        exclusive.close().map_err(|refused| {
            let Refused { value, error } = *refused;
            Refused::new(value.into_shared(), error)
        })
    }

    /// The bytes, whatever the elements are.
    pub(crate) fn bytes(&self) -> SharedBuffer<u8, Any> {
        Buffer::from_hold(Hold::Part(self.part()), self.offset, self.size())
    }
}

impl SharedBuffer<u8, Any> {
    /// Bytes of another library, which `owner` keeps. Where a stream is given that the owner frees in order of, the end of
    /// the bytes is ordered before that; else it is waited for.
    ///
    /// # Safety
    ///
    /// The memory is as large, stays allocated while `owner` lives, and meanwhile is used by nothing else that is not
    /// ordered with `stream`.
    pub(crate) unsafe fn foreign_bytes(
        call: &'static str,
        (pointer, size): (u64, usize),
        device: TensorDevice,
        owner: ForeignOwner,
        stream: &Stream,
        freed_in_order_of: Option<&Stream>,
    ) -> Result<Self> {
        check_stream(call, stream)?;
        let said = device.accessibility();
        let info = match size {
            0 => None,
            _ => Some(PointerInfo::of(stream.context(), pointer)?),
        };
        let accessibility = info.map_or(said, |info| info.accessibility);
        let number = match device {
            TensorDevice::Cuda(number) => Some(number),
            _ => None,
        };
        let ordinal = info.and_then(|info| info.device);
        let elsewhere = number.is_some_and(|number| ordinal.is_some_and(|ordinal| ordinal != number));
        if !accessibility.covers(Accessibility { managed: false, ..said }) || elsewhere {
            return Err(Error::InvalidArgument {
                call,
                argument: "the tensor's device",
                value: format!("{device:?}, but the driver says {accessibility:?} of device {ordinal:?}").into(),
                rule: "the producer must name the device that the memory lies on",
            });
        }
        let block = info.map_or(Block::EMPTY, |info| Block {
            // The driver's copies take the CPU's address of memory that devices do not address.
            device_pointer: if accessibility.device { info.device_pointer } else { pointer },
            host_pointer: info.host_pointer,
            size,
        });
        let ordered = freed_in_order_of.cloned();
        let foreign = Foreign { owner: Some(owner), accessibility, device: ordinal.or(number), ordered };
        let allocation = Allocation::new(block, Origin::Foreign(foreign), stream.clone());
        let part = Part { allocation: Arc::new(allocation), home: stream.clone() };
        Ok(Buffer::from_hold(Hold::Part(part), 0, size))
    }
}
