//! Buffers of other libraries' memory.

use super::allocation::{Allocation, Foreign, Origin, OwnersFree};
use super::cpu_gate::CpuGate;
use super::creation::check_stream;
use super::holder::Part;
use super::work::Work;
use super::{Buffer, SharedBuffer};
use crate::driver::context::ForeignOwner;
use crate::memory::resource::{Accessibility, Block, PointerInfo, kind::Any};
use crate::{Error, Result, Stream};
use core::ffi::c_void;
use core::fmt::Debug;
use core::ptr::NonNull;
use std::sync::Arc;

/// Where another library claims that its memory lies.
pub(crate) struct Claim<'a> {
    /// The claim in the other library's terms.
    pub words: &'a dyn Debug,
    pub accessibility: Accessibility,
    /// The ordinal of the device, if the claim names one.
    pub device: Option<i32>,
    /// The producer has made the memory for the importer alone.
    pub is_ours_alone: bool,
}

/// What keeps another library's memory alive. Its drop lets the memory go.
pub(crate) enum Owner {
    /// A value that others may hold too.
    Shared(#[expect(dead_code, reason = "held until its drop")] ForeignOwner),
    /// An object behind a pointer.
    Single(#[expect(dead_code, reason = "held until its drop")] SingleOwner),
}

/// An object that only this value ends, by a function. It needs no memory of its own, as a box would.
pub(crate) struct SingleOwner {
    object: NonNull<c_void>,
    end: unsafe fn(NonNull<c_void>),
}

// SAFETY: the caller of `new` has promised that any thread may end the object. Nothing else is done with it.
unsafe impl Send for SingleOwner {}
// SAFETY: as above.
unsafe impl Sync for SingleOwner {}

impl SingleOwner {
    /// # Safety
    ///
    /// `end` may be called once with `object`, on any thread, and nobody else does so.
    pub unsafe fn new(object: NonNull<c_void>, end: unsafe fn(NonNull<c_void>)) -> Self {
        Self { object, end }
    }
}

impl Drop for SingleOwner {
    fn drop(&mut self) {
        // SAFETY: the caller of `new` has allowed one call, on any thread.
        unsafe { (self.end)(self.object) };
    }
}

impl SharedBuffer<u8, Any> {
    /// Bytes of another library; `owner` keeps them alive. If the owner frees in order of the stream
    /// `freed_in_order_of`, the drop orders the buffer's work before it; otherwise the drop waits for the work.
    ///
    /// # Safety
    ///
    /// The memory has `size` bytes and stays allocated while `owner` is alive. Meanwhile, only work ordered with
    /// `stream` uses it.
    pub(crate) unsafe fn foreign_bytes(
        call: &'static str,
        (pointer, size): (u64, usize),
        said: Claim<'_>,
        owner: Owner,
        stream: &Stream,
        freed_in_order_of: Option<&Stream>,
    ) -> Result<Self> {
        check_stream(call, stream)?;
        let known = match size {
            0 => None,
            _ => Some(PointerInfo::of_range(stream.context(), pointer, size)?),
        };
        let info = known.map(|known| match (said.accessibility, known.accessibility) {
            // The producer promises nothing about devices. Another owner of the same pages may have registered them, and
            // may unregister them while work uses the memory.
            (Accessibility::HOST, Accessibility::BOTH) => PointerInfo::host_only(pointer),
            _ => known,
        });
        let accessibility = info.map_or(said.accessibility, |info| info.accessibility);
        let ordinal = info.and_then(|info| info.device);
        let elsewhere = said.device.is_some_and(|device| ordinal.is_some_and(|ordinal| ordinal != device));
        if !accessibility.covers(Accessibility { managed: false, ..said.accessibility }) || elsewhere {
            let rule = "the producer must name the device that the memory lies on";
            let found =
                format!("{:?}, which the driver reports as {accessibility:?} of device {ordinal:?}", said.words);
            return Err(Error::invalid(call, "the tensor's device", found, rule));
        }
        let block = info.map_or(Block::EMPTY, |info| info.block(pointer, size));
        let free = freed_in_order_of.map_or(OwnersFree::AtOnce, |freed| OwnersFree::in_order_of(freed, stream));
        let foreign = Foreign { owner: Some(owner), accessibility, device: ordinal.or(said.device), free };
        let mut allocation = Allocation::new(block, Origin::Foreign(foreign), stream.clone());
        if !said.is_ours_alone {
            allocation.expose_foreign();
        }
        // The producer's work may be queued before the stream. Without an order of the CPU there is none.
        let is_queued = accessibility.device || freed_in_order_of.is_some();
        let waits = is_queued && allocation.block.is_on_cpu();
        let cpu = if waits { CpuGate::behind(stream, Work::new(true)) } else { None };
        let part = Part::shared(Arc::new(allocation), stream).open(cpu);
        Ok(Buffer::from_hold(part, 0, size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Driver, HostBuffer, memory::PinnedMemory};

    #[test]
    #[cfg_attr(miri, ignore = "needs the software GPU")]
    fn producer_claim_overrides_page_locking_for_accessibility() -> Result<()> {
        let context = Driver::software()?.device(0)?.primary_context()?;
        let stream = Stream::new(&context)?;
        let bytes = Arc::new(HostBuffer::<u8>::zeroed(&PinnedMemory::new(&context), 4096)?);
        let memory = (bytes.as_ptr().expose_provenance() as u64, bytes.len());
        let import = |accessibility| {
            let said = Claim { words: &"kDLCPU", accessibility, device: None, is_ours_alone: true };
            let owner = Owner::Shared(bytes.clone());
            // SAFETY: the owner keeps the bytes, which nobody uses.
            unsafe { SharedBuffer::foreign_bytes("test", memory, said, owner, &stream, None) }
        };
        assert_eq!(import(Accessibility::HOST)?.accessibility(), Accessibility::HOST);
        assert_eq!(import(Accessibility::BOTH)?.accessibility(), Accessibility::BOTH);
        Ok(())
    }
}
