//! Mapped memory for the copies of a copy engine.

use super::allocation::Allocation;
use super::{Coherence, MappedMemory, SharedMemory};
use crate::copy_memory::{Memory, Place, sealed};
use crate::host_copy::Stores;
use crate::{Result, Stream};
use core::ops::Range;

impl Allocation {
    fn place(&self, range: Range<usize>) -> Place<'_> {
        Place {
            context: self.resource().context(),
            device: self.device(range.start),
            host: self.host(range.start),
            size: range.len(),
            memory: match self.coherence() {
                Coherence::Coherent => Memory::Mapped,
                Coherence::NonCoherent { .. } => Memory::NonCoherent,
            },
            home: None,
        }
    }

    fn range(&self, place: &Place<'_>) -> Range<usize> {
        let start = place.host.addr() - self.host(0).addr();
        start..start + place.size
    }

    /// Flushes only the unflushed CPU writes.
    fn hand_over(&self, place: &Place<'_>) -> Result<()> {
        self.invalidate(self.range(place))
    }
}

macro_rules! sides {
    ($($memory:ident, $settle:expr;)*) => { $(
        impl<T> sealed::Side<T> for $memory {
            #[inline]
            fn place(&self, call: &'static str, offset: usize, count: usize) -> Result<Place<'_>> {
                // A product that overflows exceeds every length.
                let size = count.saturating_mul(size_of::<T>());
                Ok(self.allocation.place(self.window.span(call, offset, size)?))
            }

            #[inline]
            fn settle(&self) -> Result<()> {
                let settle: fn(&Self) -> Result<()> = $settle;
                settle(self)
            }

            fn store(&self, place: &Place<'_>, source: &[u8]) -> Result<()> {
                self.allocation.store(&mut Stores::begin(), self.allocation.range(place).start, source)
            }

            fn load(&self, place: &Place<'_>, destination: &mut [u8]) -> Result<()> {
                self.allocation.load(self.allocation.range(place).start, destination)
            }

            fn flush(&self, place: &Place<'_>) -> Result<()> {
                self.allocation.flush(self.allocation.range(place))
            }

            fn hand_over(&self, place: &Place<'_>) -> Result<()> {
                self.allocation.hand_over(place)
            }
        }
    )* };
}
sides! {
    MappedMemory, |memory| memory.pending.settle();
    // The program decides who uses shared memory, and when.
    SharedMemory, |_| Ok(());
}

impl sealed::Ordered for MappedMemory {
    fn order_before(&self, stream: &Stream) -> Result<()> {
        self.pending.order_before(stream)
    }

    fn order_after(&mut self, stream: &Stream) -> Result<()> {
        self.pending.record(stream)
    }

    fn is_idle(&self) -> Result<bool> {
        self.pending.is_over()
    }
}
