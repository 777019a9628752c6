//! The contents of a pool in host memory.

use super::SLEEP;
use super::plan::{Piece, plan};
use crate::error::call;
use crate::memory::kind;
use crate::memory::resource::SharedResource;
use crate::{Buffer, Error, Event, Result, Stream};
use core::mem::MaybeUninit;
use core::ops::Range;

/// The largest block of host memory. `PinnedMemory` makes and locks the pages of such a block in 20 ms. A copy of it takes 5 ms.
const LARGEST: u64 = 256 << 20;

/// How many pieces are saved between two events: the memory of the pool goes back to the device in such steps, while the next
/// pieces are saved.
const STEP: usize = 2;

/// Copies of the used bytes of a pool, in order of their addresses.
#[derive(Debug)]
pub(super) struct Saved {
    pieces: Vec<(Buffer<MaybeUninit<u8>, kind::Any>, Piece)>,
}

/// How much of the pool is restored.
#[derive(Debug, Default)]
pub(super) struct Restored(usize);

/// The direction of a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ToHost,
    ToDevice,
}

impl Saved {
    /// Memory of `host` for the used bytes of runs of memory, which come in order of their addresses.
    pub fn new(own: &Stream, host: &SharedResource, runs: impl IntoIterator<Item = Vec<Range<u64>>>) -> Result<Self> {
        check_host(host)?;
        let allocate = |piece: Piece| Ok((Buffer::uninit(host, piece.size, own)?, piece));
        Ok(Self { pieces: plan(runs, LARGEST).into_iter().map(allocate).collect::<Result<_>>()? })
    }

    /// Queues the copies of all bytes. No work may change them meanwhile. Returns events, and the address below which all
    /// bytes are saved once an event has come. After an error, copies may run.
    pub fn save(&self, own: &Stream) -> Result<Vec<(Event, u64)>> {
        let mut steps = Vec::new();
        for step in self.pieces.chunks(STEP) {
            step.iter().try_for_each(|piece| queue(own, piece, Way::ToHost))?;
            let event = Event::new(own.context())?;
            event.mark(&own.running(SLEEP)?)?;
            steps.push((event, step.last().map_or(0, |(_, piece)| piece.end())));
        }
        Ok(steps)
    }

    /// Queues the copies back to where the bytes were, of all whole pieces below an address that were not queued before. After
    /// an error, copies may run.
    pub fn restore(&self, own: &Stream, restored: &mut Restored, below: u64) -> Result<()> {
        while let Some(piece) = self.pieces.get(restored.0).filter(|(_, piece)| piece.end() <= below) {
            queue(own, piece, Way::ToDevice)?;
            restored.0 += 1;
        }
        Ok(())
    }

    /// The number of bytes.
    pub fn size(&self) -> usize {
        self.pieces.iter().map(|(_, piece)| piece.size).sum()
    }
}

/// Queues the copies of a piece.
fn queue(own: &Stream, (host, piece): &(Buffer<MaybeUninit<u8>, kind::Any>, Piece), way: Way) -> Result<()> {
    let (cuda, _ready) = own.ready()?;
    let mut host = host.device_pointer();
    for part in &piece.parts {
        let size = part.end - part.start;
        let (to, from) = if way == Way::ToHost { (host, part.start) } else { (part.start, host) };
        // SAFETY: the part lies within memory of the pool, which the caller keeps mapped; the host's memory has room for all
        // parts of the piece. Both outlive the copy, which the caller awaits.
        unsafe { call!(cuda.cuMemcpyAsync(to, from, size as usize, own.raw())) }?;
        host += size;
    }
    Ok(())
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
