//! Memory of other libraries as buffers.

use super::allocation::{Allocation, Foreign, Hold, Origin, Part};
use super::{Buffer, SharedBuffer, check_stream};
use crate::context::ForeignOwner;
use crate::resource::{Accessibility, Block, PointerInfo, kind::Any};
use crate::{Error, Result, Stream};
use core::fmt::Debug;
use std::sync::Arc;

/// Where another library says that its memory lies.
pub(crate) struct Claim<'a> {
    /// In the other library's words.
    pub words: &'a dyn Debug,
    pub accessibility: Accessibility,
    /// The ordinal of the device, where one is named.
    pub device: Option<i32>,
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
        said: Claim<'_>,
        owner: ForeignOwner,
        stream: &Stream,
        freed_in_order_of: Option<&Stream>,
    ) -> Result<Self> {
        check_stream(call, stream)?;
        let info = match size {
            0 => None,
            _ => Some(PointerInfo::of(stream.context(), pointer)?),
        };
        let accessibility = info.map_or(said.accessibility, |info| info.accessibility);
        let ordinal = info.and_then(|info| info.device);
        let elsewhere = said.device.is_some_and(|device| ordinal.is_some_and(|ordinal| ordinal != device));
        if !accessibility.covers(Accessibility { managed: false, ..said.accessibility }) || elsewhere {
            return Err(Error::InvalidArgument {
                call,
                argument: "the tensor's device",
                value: format!("{:?}, but the driver says {accessibility:?} of device {ordinal:?}", said.words).into(),
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
        let foreign = Foreign { owner: Some(owner), accessibility, device: ordinal.or(said.device), ordered };
        let allocation = Allocation::new(block, Origin::Foreign(foreign), stream.clone());
        let part = Part::shared(Arc::new(allocation), stream.clone());
        Ok(Buffer::from_hold(Hold::Part(part), 0, size))
    }
}
