//! The division of a copy into pieces, which threads claim.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The pieces of a copy. Threads claim them one by one.
#[derive(Debug)]
pub(super) struct Pieces {
    next: AtomicUsize,
    ended: AtomicBool,
    size: usize,
    piece: usize,
    /// Extra bytes of the first piece, so that the other pieces begin at multiples of `line`.
    head: usize,
}

impl Pieces {
    /// Divides `size` bytes into pieces of `piece` bytes, which is not 0. All but the first begin at multiples of
    /// `line`.
    pub fn new(size: usize, piece: usize, address: usize, line: usize) -> Self {
        let head = address.wrapping_neg() % line;
        Self { next: AtomicUsize::new(0), ended: AtomicBool::new(false), size, piece, head }
    }

    /// Claims the next piece.
    pub fn claim(&self) -> Option<Range<usize>> {
        if self.ended.load(Ordering::Relaxed) {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let begin = |number: usize| match number {
            0 => 0,
            _ => number.saturating_mul(self.piece).saturating_add(self.head).min(self.size),
        };
        let range = begin(number)..begin(number.saturating_add(1));
        if range.is_empty() {
            // Stop, so that the count cannot wrap around.
            self.ended.store(true, Ordering::Relaxed);
            return None;
        }
        Some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_claimed_once_and_begins_at_a_line() {
        for (size, piece, address) in
            [(1000, 64, 3), (0, 64, 0), (1, 64, 63), (128, 64, 64), (130, 128, 1), (64, 4096, 7)]
        {
            let pieces = Pieces::new(size, piece, address, 64);
            let mut at = 0;
            while let Some(range) = pieces.claim() {
                assert_eq!(range.start, at);
                assert!(at == 0 || (address + at).is_multiple_of(64));
                at = range.end;
            }
            assert_eq!(at, size);
            assert!(pieces.claim().is_none());
        }
    }
}
