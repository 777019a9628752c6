//! The contents of a pool in host memory.

use super::SLEEP;
use super::plan::{Piece, plan};
use crate::error::call;
use crate::memory::kind;
use crate::memory::resource::SharedResource;
use crate::{Buffer, Error, Result, Stream};
use core::mem::MaybeUninit;
use core::ops::Range;

/// The largest block of host memory. cuMemHostAlloc of this size takes some 30 ms, and a copy of it 1 ms.
const LARGEST: u64 = 64 << 20;

/// Copies of the used bytes of a pool.
#[derive(Debug)]
pub(super) struct Saved {
    pieces: Vec<(Buffer<MaybeUninit<u8>, kind::Any>, Piece)>,
}

/// The direction of a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ToHost,
    ToDevice,
}

impl Saved {
    /// Copies the used bytes of runs of memory to memory of `host`. No work changes them meanwhile.
    pub fn of(own: &Stream, host: &SharedResource, runs: impl IntoIterator<Item = Vec<Range<u64>>>) -> Result<Self> {
        check_host(host)?;
        let allocate = |piece: Piece| Ok((Buffer::uninit(host, piece.size, own)?, piece));
        let saved = Self { pieces: plan(runs, LARGEST).into_iter().map(allocate).collect::<Result<_>>()? };
        saved.copy(own, Way::ToHost)?;
        Ok(saved)
    }

    /// Copies the bytes back to where they were.
    pub fn restore(&self, own: &Stream) -> Result<()> {
        self.copy(own, Way::ToDevice)
    }

    /// The number of bytes.
    pub fn size(&self) -> usize {
        self.pieces.iter().map(|(_, piece)| piece.size).sum()
    }

    fn copy(&self, own: &Stream, way: Way) -> Result<()> {
        let queued = self.queue(own, way);
        // Also after an error: copies may run.
        queued.and(own.wait_certainly())
    }

    fn queue(&self, own: &Stream, way: Way) -> Result<()> {
        let (cuda, _ready) = own.ready()?;
        for (host, piece) in &self.pieces {
            let mut host = host.device_pointer();
            for part in &piece.parts {
                let size = part.end - part.start;
                let (to, from) = if way == Way::ToHost { (host, part.start) } else { (part.start, host) };
                // SAFETY: the part lies within memory of the pool, which the caller keeps mapped; the host's memory has
                // room for all parts of the piece. Both outlive the copy, which `copy` awaits.
                unsafe { call!(cuda.cuMemcpyAsync(to, from, size as usize, own.raw())) }?;
                host += size;
            }
        }
        Ok(())
    }
}

/// Checks that the host's memory stays where it is while the pool sleeps, and that the device can address it.
fn check_host(host: &SharedResource) -> Result<()> {
    let its = host.accessibility();
    if its.host && its.device && !its.managed {
        return Ok(());
    }
    let rule = "it must be page-locked host memory: PinnedMemory, or a pool over it";
    Err(Error::invalid(SLEEP, "SleepOptions::host", format_args!("{host:?}"), rule))
}
