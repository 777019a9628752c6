//! Allocates buffers, and checks what may become one.

use super::Buffer;
use super::allocation::{Allocation, Origin};
use super::work::Work;
use crate::cpu::borrowed::new_owner;
use crate::error::check_not_forked;
use crate::memory::resource::{
    Accessibility, Block, BlockKind, Held, Kind, PendingUse, ResourceHandle, SharedResource,
};
use crate::{Error, Result, Stream};
use bytemuck::{NoUninit, Zeroable};
use core::mem::MaybeUninit;
use cuda_sys::{CU_STREAM_PER_THREAD, CUdeviceptr};

impl<T, K: Kind> Buffer<T, K> {
    /// Allocates `length` uninitialized elements. `stream` becomes the home stream.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if there is no room; the size overflows; the stream captures, is a per-thread default
    /// stream, or belongs to another device than the resource.
    pub fn uninit<R>(resource: &R, length: usize, stream: &Stream) -> Result<Buffer<MaybeUninit<T>, K>>
    where
        R: ResourceHandle<Kind = K> + ?Sized,
    {
        const { assert!(size_of::<T>() != 0, "the elements of a buffer must not be zero-sized") };
        Buffer::allocate_from(resource, length, stream)
    }

    /// Allocates `length` zeroed elements.
    ///
    /// # Errors
    ///
    /// As [`uninit`](Self::uninit).
    pub fn zeroed<R>(resource: &R, length: usize, stream: &Stream) -> Result<Self>
    where
        R: ResourceHandle<Kind = K> + ?Sized,
        T: Zeroable,
    {
        let buffer = Self::uninit(resource, length, stream)?;
        // SAFETY: `T: Zeroable`, and the fill writes every element.
        unsafe { buffer.initialised_by("Buffer::zeroed", |buffer| buffer.fill_bytes(0..buffer.len(), 0)) }
    }

    /// Allocates `length` elements with one value.
    ///
    /// # Errors
    ///
    /// As [`uninit`](Self::uninit); and as [`fill`](Self::fill).
    pub fn filled<R>(resource: &R, length: usize, value: T, stream: &Stream) -> Result<Self>
    where
        R: ResourceHandle<Kind = K> + ?Sized,
        T: NoUninit,
    {
        const CALL: &str = "Buffer::filled";
        let buffer = Self::uninit(resource, length, stream)?;
        let fill = |buffer: &mut Self| buffer.fill_pattern(CALL, 0..length, bytemuck::bytes_of(&value));
        // SAFETY: the fill writes every element.
        unsafe { buffer.initialised_by(CALL, fill) }
    }

    /// Allocates memory and copies a slice into it.
    ///
    /// # Errors
    ///
    /// As [`uninit`](Self::uninit); and as [`copy_from_slice`](Self::copy_from_slice).
    pub fn from_slice<R>(resource: &R, source: &[T], stream: &Stream) -> Result<Self>
    where
        R: ResourceHandle<Kind = K> + ?Sized,
        T: NoUninit,
    {
        Self::uninit(resource, source.len(), stream)?.init_from_slice(source)
    }

    #[inline]
    pub(super) fn allocate_from<R>(resource: &R, length: usize, stream: &Stream) -> Result<Self>
    where
        R: ResourceHandle<Kind = K> + ?Sized,
    {
        match resource.shared_resource() {
            Some(resource) => Self::allocate(resource, length, stream),
            None => Self::allocate(&resource.share(), length, stream),
        }
    }

    #[inline]
    pub(super) fn allocate(resource: &SharedResource, length: usize, stream: &Stream) -> Result<Self> {
        const CALL: &str = "Buffer::uninit";
        let size = length.checked_mul(size_of::<T>()).filter(|size| *size <= isize::MAX as usize);
        let Some(size) = size else {
            let value = format!("{length} elements of {} bytes", size_of::<T>());
            let rule = "the size in bytes must fit into isize";
            return Err(Error::invalid(CALL, "length", value, rule));
        };
        check_not_forked(CALL)?;
        check_home(CALL, resource, stream)?;
        let mut held = None;
        let block = match size {
            0 => Block::EMPTY,
            _ => resource.allocate_held(size, align_of::<T>(), stream, &mut held)?,
        };
        new_owner(block.device_pointer(), block.size());
        debug_assert!(fits_kind(block, resource), "a resource handed out memory of another kind: {block:?}");
        let pending = block.pending_use() != PendingUse::Over;
        let Held { resource, home } = held.unwrap_or_else(|| Held { resource: resource.clone(), home: stream.clone() });
        let allocation = Allocation::new(block, Origin::Resource(resource), home);
        Ok(Self::whole(allocation, length, Work::new(pending)))
    }
}

/// Whether a block's kind agrees with what its resource says of all its memory.
fn fits_kind(block: Block, resource: &SharedResource) -> bool {
    let Accessibility { host, managed, .. } = resource.accessibility();
    match block.kind() {
        BlockKind::Nothing => block.size() == 0,
        BlockKind::Device => true,
        BlockKind::Managed => managed,
        // A source may serve a request from other memory, as `Fallback` does.
        BlockKind::Host | BlockKind::Mapped | BlockKind::ReadOnly => host && resource.is_coherent(block),
        BlockKind::NonCoherent => host && !resource.is_coherent(block),
    }
}

/// Checks that a stream may be the home stream of a resource's memory.
#[inline]
pub(super) fn check_home(call: &'static str, resource: &SharedResource, stream: &Stream) -> Result<()> {
    check_stream(call, stream)?;
    let (memory, home) = (resource.context(), stream.context());
    if memory == home || memory.device() == home.device() {
        return Ok(());
    }
    if memory.driver().is_same(home.driver()) && !resource.is_on_device() {
        return resource.peer_source().map_or(Ok(()), |source| source.require(call, home));
    }
    let rule = "it must belong to the device that holds the memory";
    Err(Error::invalid(call, "stream", format_args!("of device {}", home.device().ordinal()), rule))
}

/// Checks that both addresses of the memory, for devices and for the CPU, are aligned for the elements.
pub(super) fn check_aligned<T>(call: &'static str, device_pointer: CUdeviceptr, host_pointer: *const u8) -> Result<()> {
    let multiple = align_of::<T>();
    for (what, value) in [("address", device_pointer as usize), ("the CPU's address", host_pointer.addr())] {
        if !value.is_multiple_of(multiple) {
            return Err(Error::Misaligned { call, what, value, multiple });
        }
    }
    Ok(())
}

/// Checks that a stream may be a home stream.
#[inline]
pub(super) fn check_stream(call: &'static str, stream: &Stream) -> Result<()> {
    if stream.raw() == CU_STREAM_PER_THREAD {
        let rule = "a home stream must be the same on every thread; make one with Stream::new";
        return Err(Error::invalid(call, "stream", "the per-thread default stream", rule));
    }
    Ok(())
}
