//! Buffers by methods of their sources.

use super::Buffer;
use crate::memory::resource::ResourceHandle;
use crate::{Result, Stream};
use bytemuck::{NoUninit, Zeroable};
use core::mem::MaybeUninit;

/// Allocation by a method of the source: `pool.zeroed::<f32>(n, &stream)`. Every source, pool and adaptor has these
/// methods. They are the constructors of [`Buffer`], and return the same errors.
///
/// ```
/// use cuda_mem::{Allocate, Buffer, Driver, MappedMemory, Stream, memory::DeviceMemory, memory::kind};
///
/// struct Receiver {
///     frames: Buffer<f32, kind::Mapped>,
///     sums: Buffer<f32>, // of any kind of memory
/// }
///
/// let context = Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// let stream = Stream::new(&context)?;
/// let receiver = Receiver {
///     frames: MappedMemory::new(&context)?.from_slice(&[1.0, 2.0], &stream)?,
///     sums: DeviceMemory::new(&context).zeroed(2, &stream)?.into_any(),
/// };
/// assert_eq!((receiver.frames.to_vec()?, receiver.sums.to_vec()?), (vec![1.0, 2.0], vec![0.0; 2]));
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub trait Allocate: ResourceHandle {
    /// Allocates `length` uninitialised elements: [`Buffer::uninit`].
    ///
    /// # Errors
    ///
    /// As [`Buffer::uninit`].
    fn uninit<T>(&self, length: usize, stream: &Stream) -> Result<Buffer<MaybeUninit<T>, Self::Kind>> {
        Buffer::<T, _>::uninit(self, length, stream)
    }

    /// Allocates `length` zeroed elements: [`Buffer::zeroed`].
    ///
    /// # Errors
    ///
    /// As [`Buffer::zeroed`].
    fn zeroed<T: Zeroable>(&self, length: usize, stream: &Stream) -> Result<Buffer<T, Self::Kind>> {
        Buffer::zeroed(self, length, stream)
    }

    /// Allocates `length` elements with one value: [`Buffer::filled`].
    ///
    /// # Errors
    ///
    /// As [`Buffer::filled`].
    fn filled<T: NoUninit>(&self, length: usize, value: T, stream: &Stream) -> Result<Buffer<T, Self::Kind>> {
        Buffer::filled(self, length, value, stream)
    }

    /// Allocates memory and copies a slice into it: [`Buffer::from_slice`].
    ///
    /// # Errors
    ///
    /// As [`Buffer::from_slice`].
    #[expect(clippy::wrong_self_convention, reason = "the name of the constructor")]
    fn from_slice<T: NoUninit>(&self, source: &[T], stream: &Stream) -> Result<Buffer<T, Self::Kind>> {
        Buffer::from_slice(self, source, stream)
    }
}

impl<R: ResourceHandle + ?Sized> Allocate for R {}
