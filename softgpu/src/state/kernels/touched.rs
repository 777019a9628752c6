//! The bytes that kernels touch, for race checks.

use super::built_in::Builtin;
use super::launch::Launch;
use super::pieces::Pieces;
use super::strided::Strided;
use crate::state::checks::races::Touched;
use crate::state::memory::Use;

impl Builtin {
    /// The bytes that the kernel touches. `None` if it waits for words or rings, so that its order is unknown.
    pub(super) fn bytes_touched(self, launch: &Launch) -> Option<Vec<Touched>> {
        let count = launch.value(1).min(launch.shape.threads());
        let bytes = |address, count, size, purpose| {
            let range = launch.memory(address, count, size, purpose).ok();
            // A wrong address is reported when the kernel runs.
            range.and_then(|range| range.touched(0..range.length, purpose))
        };
        Some(match self {
            Self::FillBytes | Self::DoubleBytes => bytes(launch.value(0), count, 1, Use::Write).into_iter().collect(),
            Self::IncrementU32 => bytes(launch.value(0), count, 4, Use::Write).into_iter().collect(),
            Self::Differ => {
                let sides = [0, 1].map(|n| bytes(launch.value(n), launch.value(3), 1, Use::Read));
                sides.into_iter().chain([bytes(launch.value(4), 1, 4, Use::Write)]).flatten().collect()
            }
            Self::CopyStrided | Self::CopyTiles => {
                Strided::of(&launch.values).map_or_else(Vec::new, |copy| launch.touched_by(&copy))
            }
            Self::CopyPieces | Self::CopyManyPieces => Pieces::of(&launch.values).touched(launch),
            Self::Nothing => Vec::new(),
            Self::SpinUntil | Self::Answer | Self::EchoFlag | Self::EchoRing | Self::CountRing | Self::SumRing => {
                return None;
            }
        })
    }
}

impl Launch {
    fn touched_by(&self, copy: &Strided) -> Vec<Touched> {
        let Ok([to, from]) = self.memory_of(copy) else { return Vec::new() };
        let (mut written, mut read) = (Vec::new(), Vec::new());
        copy.each(|to_offset, from_offset| {
            append(&mut written, to_offset, copy.word_size());
            append(&mut read, from_offset, copy.word_size());
        });
        let written = written.into_iter().filter_map(|bytes| to.touched(bytes, Use::Write));
        let read = read.into_iter().filter_map(|bytes| from.touched(bytes, Use::Read));
        written.chain(read).collect()
    }
}

/// Adds a word to ranges, or extends the last range if the word follows it.
fn append(ranges: &mut Vec<std::ops::Range<usize>>, offset: usize, size: usize) {
    match ranges.last_mut() {
        Some(last) if last.end == offset => last.end += size,
        _ => ranges.push(offset..offset + size),
    }
}
