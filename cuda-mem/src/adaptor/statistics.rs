//! Counters of allocations.

use super::{Adapted, Counts, Observe, handle};
use crate::error::unless_forked;
use crate::locks::Mutex;
use crate::memory::resource::{Block, Kind, ResourceHandle};
use crate::{Result, Stream};
use core::fmt;
use std::sync::Arc;

handle! {
    /// Counts the bytes and blocks of a resource: live, peak and total amounts, and failures. Cheap to clone; the
    /// clones share the counters.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// use cuda_mem::{Buffer, adaptor::Statistics, memory::DeviceMemory};
    /// let statistics = Statistics::new(&DeviceMemory::new(&context));
    /// let kept = Buffer::<u8, _>::zeroed(&statistics, 1000, &stream)?;
    ///
    /// let step = statistics.section(); // what one step of the program does
    /// drop(Buffer::<u8, _>::zeroed(&statistics, 300, &stream)?);
    /// let counts = step.finish();
    /// assert_eq!((counts.bytes.current, counts.bytes.peak, counts.blocks.total), (0, 300, 1));
    ///
    /// let counts = statistics.counts(); // all
    /// assert_eq!((counts.bytes.current, counts.bytes.peak, counts.bytes.total), (1000, 1300, 1300));
    /// assert_eq!(counts.sizes.of(1000), 1); // blocks of 512 to 1023 bytes
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    Statistics holds Adapted<Counting>
}

#[derive(Debug, Default)]
struct Counting(Mutex<SectionCounts>);

#[derive(Debug, Default)]
struct SectionCounts {
    all: Counts,
    /// The open sections, each with its number.
    sections: Vec<(u64, Counts)>,
    next_section: u64,
}

impl<K: Kind> Statistics<K> {
    /// Counts the allocations from `upstream` through the new handle.
    pub fn new<R: ResourceHandle<Kind = K> + ?Sized>(upstream: &R) -> Self {
        Self::from_inner(Adapted { adaptor: Counting::default(), upstream: upstream.share() })
    }

    /// The counters since this value was made.
    pub fn counts(&self) -> Counts {
        self.inner.adaptor.with(|state| state.all)
    }

    /// Resets the peaks to the live amounts. Sections keep their peaks.
    pub fn reset_peaks(&self) {
        self.inner.adaptor.with(|state| state.all.reset_peaks());
    }

    /// Starts additional counters at 0. Sections of one resource may nest and overlap; each counts the calls of all
    /// threads while it is open.
    #[doc(alias("push_counters", "pop_counters"))]
    pub fn section(&self) -> Section {
        let number = self.inner.adaptor.with(|state| {
            state.next_section += 1;
            state.sections.push((state.next_section, Counts::default()));
            state.next_section
        });
        Section { inner: self.inner.clone(), number }
    }
}

/// Counters of one part of a program's run. Made by [`Statistics::section`].
#[must_use = "a section counts until it is dropped"]
pub struct Section {
    inner: Arc<Adapted<Counting>>,
    number: u64,
}

impl Section {
    /// The counters since the section began.
    pub fn counts(&self) -> Counts {
        self.inner.adaptor.with(|state| {
            let own = state.sections.iter().find(|(number, _)| *number == self.number);
            own.map(|(_, counts)| *counts).unwrap_or_default()
        })
    }

    /// Ends the section, and returns its counters.
    pub fn finish(self) -> Counts {
        self.counts()
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        self.inner.adaptor.with(|state| state.sections.retain(|(number, _)| *number != self.number));
    }
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Section").field(&self.counts()).finish()
    }
}

impl Counting {
    fn with<R: Default>(&self, work: impl FnOnce(&mut SectionCounts) -> R) -> R {
        unless_forked(|| work(&mut self.0.lock()))
    }

    /// Applies a change to the counters since the beginning and to those of all open sections. Returns the number of the
    /// newest section.
    fn note(&self, change: impl Fn(&mut Counts)) -> u64 {
        self.with(|state| {
            change(&mut state.all);
            state.sections.iter_mut().for_each(|(_, counts)| change(counts));
            state.next_section
        })
    }
}

impl Observe for Counting {
    /// The number of the newest section that has counted the free.
    type Free = u64;

    fn allocated(&self, _size: usize, _stream: &Stream, block: &Result<Block>) {
        self.note(|counts| match block {
            Ok(block) => counts.allocated(block.size()),
            Err(_) => counts.failed_allocations += 1,
        });
    }

    fn freeing(&self, block: Block, _stream: Option<&Stream>) -> Result<u64> {
        Ok(self.note(|counts| counts.freed(block.size())))
    }

    /// Takes the counted free back, in the sections too that have counted it.
    fn free_failed(&self, block: Block, _stream: &Stream, newest: u64) {
        self.with(|state| {
            let sections = state.sections.iter_mut();
            let knowing = sections.filter(|(number, _)| *number <= newest).map(|(_, counts)| counts);
            knowing.chain([&mut state.all]).for_each(|counts| counts.free_failed(block.size()));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_overlap_and_end_in_any_order() {
        let counting = Counting::default();
        let open = |number| counting.with(|state| state.sections.push((number, Counts::default())));
        let close = |number| {
            counting.with(|state| {
                let place = state.sections.iter().position(|(other, _)| *other == number).unwrap();
                state.sections.remove(place).1
            })
        };
        open(1);
        counting.note(|counts| counts.allocated(10));
        open(2);
        counting.note(|counts| counts.allocated(5));
        let first = close(1);
        counting.note(|counts| counts.freed(10));
        let second = close(2);
        assert_eq!((first.bytes.current, first.blocks.total), (15, 2));
        assert_eq!((second.bytes.current, second.bytes.peak, second.blocks.total), (-5, 5, 1));
        let all = counting.with(|state| state.all);
        assert_eq!((all.bytes.current, all.bytes.peak, all.blocks.current), (5, 15, 1));
    }
}
