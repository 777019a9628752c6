//! Exports of buffers.

use super::SharedTensor;
use crate::array::element::data_type;
use crate::memory::resource::Kind;
use crate::{Element, SharedBuffer};
use bytemuck::{AnyBitPattern, NoUninit};

impl<T: Element + NoUninit + AnyBitPattern, K: Kind> SharedBuffer<T, K> {
    /// The buffer as a one-dimensional array for other libraries. It shares the ownership of the memory: a drop of the
    /// buffer defers the free until the last consumer has released the array, and [`close`](SharedBuffer::close) is
    /// refused until then.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
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
        SharedTensor::of_bytes(self.bytes(), data_type::<T>())
    }
}
