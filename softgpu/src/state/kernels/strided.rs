//! The kernels that copy words along axes.

use crate::state::memory::Range;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

const AXES: usize = 8;

/// The parameter's 8-byte words: destination, source, word size, number of axes, number of words; the axes' extents,
/// the destination's strides and the source's, in bytes; words that only device code needs.
pub(super) const WORDS: usize = 5 + 4 * AXES + 4;

/// A copy.
pub(super) struct Strided {
    to: u64,
    from: u64,
    word: u64,
    /// Extent, and the strides of destination and source in bytes.
    axes: Vec<(u64, i64, i64)>,
}

impl Strided {
    /// Reads the parameter. `None` if there is nothing to copy.
    pub(super) fn of(values: &[u64]) -> Option<Self> {
        let &[to, from, word, axes, count, ref rest @ ..] = values else { return None };
        let axis = |n: usize| Some((*rest.get(n)?, *rest.get(AXES + n)? as i64, *rest.get(2 * AXES + n)? as i64));
        let axes = (0..AXES.min(axes as usize)).map(axis).collect::<Option<Vec<_>>>()?;
        (count != 0).then_some(Self { to, from, word, axes })
    }

    /// The addresses and lengths of the written range and the read range.
    pub(super) fn spans(&self) -> [(u64, u64); 2] {
        let span = |start: u64, stride: fn(&(u64, i64, i64)) -> i64| {
            let (low, high) = self.axes.iter().fold((0_i64, 0_i64), |(low, high), axis| {
                let reach = (axis.0 as i64 - 1).saturating_mul(stride(axis));
                (low.saturating_add(reach.min(0)), high.saturating_add(reach.max(0)))
            });
            (start.wrapping_add_signed(low), (high as u64).wrapping_sub(low as u64).saturating_add(self.word))
        };
        [span(self.to, |axis| axis.1), span(self.from, |axis| axis.2)]
    }

    /// The size of a word in bytes.
    pub(super) fn word_size(&self) -> usize {
        self.word as usize
    }

    /// Copies byte by byte between the two ranges of [`spans`](Self::spans).
    pub(super) fn run(&self, to: &Range, from: &Range) {
        self.each(|to_place, from_place| {
            for n in 0..self.word_size() {
                let value = byte(from, from_place + n).load(Ordering::Relaxed);
                byte(to, to_place + n).store(value, Ordering::Relaxed);
            }
        });
    }

    /// Visits all words: the offset of each in the destination and in the source, from the start of its range.
    pub(super) fn each(&self, mut visit: impl FnMut(usize, usize)) {
        let mut index = vec![0_u64; self.axes.len()];
        let [to, from] = self.spans();
        let (mut to_place, mut from_place) = (self.to as i64 - to.0 as i64, self.from as i64 - from.0 as i64);
        loop {
            visit(to_place as usize, from_place as usize);
            let mut axis = 0;
            loop {
                let Some(&(extent, to_stride, from_stride)) = self.axes.get(axis) else { return };
                index[axis] += 1;
                (to_place, from_place) = (to_place + to_stride, from_place + from_stride);
                if index[axis] < extent {
                    break;
                }
                to_place -= extent as i64 * to_stride;
                from_place -= extent as i64 * from_stride;
                index[axis] = 0;
                axis += 1;
            }
        }
    }
}

fn byte(range: &Range, offset: usize) -> &AtomicU8 {
    assert!(offset < range.length);
    // SAFETY: inside the range, which holds its allocation. Atomic, because others may use the byte.
    unsafe { AtomicU8::from_ptr(ptr::with_exposed_provenance_mut(range.address + offset)) }
}
