//! The kernels that copy words along axes.

use crate::state::memory::Range;
use std::ptr;

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

    /// Copies between the two ranges of [`spans`](Self::spans), line by line of the first axis.
    pub(super) fn run(&self, to: &Range, from: &Range) {
        let (count, to_stride, from_stride) = self.axes.first().copied().unwrap_or((1, 0, 0));
        self.each_line(|to_place, from_place| {
            let inside = |range: &Range, place: usize, stride: i64| {
                let last = place as i64 + (count as i64 - 1) * stride;
                let (low, high) = (last.min(place as i64), last.max(place as i64));
                assert!(low >= 0 && high + self.word as i64 <= range.length as i64, "a copy leaves its memory");
                range.address as isize + place as isize
            };
            let line = Line {
                to: inside(to, to_place, to_stride),
                from: inside(from, from_place, from_stride),
                to_stride: to_stride as isize,
                from_stride: from_stride as isize,
                count,
            };
            let fits = |size: isize| (line.to | line.from | line.to_stride | line.from_stride) % size == 0;
            // SAFETY: the line lies within the ranges, which hold their allocations, and its words are aligned.
            unsafe {
                match self.word {
                    1 => line.copy::<u8>(),
                    2 if fits(2) => line.copy::<u16>(),
                    4 if fits(4) => line.copy::<u32>(),
                    8 if fits(8) => line.copy::<u64>(),
                    16 if fits(16) => line.copy::<u128>(),
                    _ => line.copy_words(self.word_size()),
                }
            }
        });
    }

    /// Visits all words: the offset of each in the destination and in the source, from the start of its range.
    pub(super) fn each(&self, mut visit: impl FnMut(usize, usize)) {
        let (count, to_stride, from_stride) = self.axes.first().copied().unwrap_or((1, 0, 0));
        self.each_line(|to, from| {
            for n in 0..count as i64 {
                visit((to as i64 + n * to_stride) as usize, (from as i64 + n * from_stride) as usize);
            }
        });
    }

    /// Visits the first word of each line along the first axis: its offset in the destination and in the source, from
    /// the start of its range.
    fn each_line(&self, mut visit: impl FnMut(usize, usize)) {
        let mut index = vec![0_u64; self.axes.len()];
        let [to, from] = self.spans();
        let (mut to_place, mut from_place) = (self.to as i64 - to.0 as i64, self.from as i64 - from.0 as i64);
        loop {
            visit(to_place as usize, from_place as usize);
            let mut axis = 1;
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

/// Words at equal distances: addresses and strides in bytes.
#[derive(Clone, Copy)]
struct Line {
    to: isize,
    from: isize,
    to_stride: isize,
    from_stride: isize,
    count: u64,
}

impl Line {
    /// Copies words of a machine type. The loop calls nothing, because programs in development build softgpu without
    /// optimisation, where each call takes longer than a word.
    ///
    /// # Safety
    ///
    /// Both lines lie within memory, and their words are aligned.
    unsafe fn copy<T: Copy>(self) {
        let Self { mut to, mut from, to_stride, from_stride, count } = self;
        let mut left = count;
        while left != 0 {
            // SAFETY: this function's contract.
            unsafe {
                *ptr::with_exposed_provenance_mut::<T>(to as usize) = *ptr::with_exposed_provenance::<T>(from as usize);
            }
            left -= 1;
            if left != 0 {
                to += to_stride;
                from += from_stride;
            }
        }
    }

    /// Copies words of any size.
    ///
    /// # Safety
    ///
    /// Both lines lie within memory, and do not overlap.
    unsafe fn copy_words(self, size: usize) {
        for n in 0..self.count as isize {
            let to = ptr::with_exposed_provenance_mut::<u8>((self.to + n * self.to_stride) as usize);
            let from = ptr::with_exposed_provenance::<u8>((self.from + n * self.from_stride) as usize);
            // SAFETY: this function's contract.
            unsafe { ptr::copy(from, to, size) };
        }
    }
}
