//! When the pieces of a file are sent to the device.
//!
//! A filled piece waits in host memory until a later piece is filled too. Without this delay, 8 threads brought files to an
//! H200 at 19 GB/s, and with it at 40: threads copied from the page cache at a third of their rate while the device read what
//! they had just written (docs/measurements/2026-11-30-h200-pages-and-files.md).

/// The most pieces that wait. Of 8 slots, 4 gave about the same rate, and 6 less: too few slots were left for the device.
const MOST_BEHIND: usize = 3;

/// Which pieces were sent.
#[derive(Debug)]
pub(super) struct Sending {
    /// The next piece to send.
    next: usize,
    /// How many pieces there are.
    pieces: usize,
    /// A piece waits until the piece so many places after it is filled.
    behind: usize,
}

impl Sending {
    /// For pieces that pass through `slots` slots. The first piece waits for a sixteenth of the file at most. Most slots are
    /// left for the device.
    pub fn new(pieces: usize, slots: usize) -> Self {
        Self { next: 0, pieces, behind: (pieces / 16).min(slots * 3 / 8).min(MOST_BEHIND) }
    }

    /// The next piece to send, if it is filled and the piece `behind` places after it is too. Near the end, the last piece stands
    /// for the latter. `is_filled` is asked for pieces whose slots have no earlier piece that was not sent.
    pub fn next(&mut self, is_filled: impl Fn(usize) -> bool) -> Option<usize> {
        let (piece, last) = (self.next, self.pieces - 1);
        if piece > last || !is_filled(piece) || !is_filled((piece + self.behind).min(last)) {
            return None;
        }
        self.next += 1;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::RefCell;

    /// The pieces that are sent after each piece that is filled, in this order.
    fn sent_after(pieces: usize, slots: usize, order: &[usize]) -> Vec<Vec<usize>> {
        let (mut sending, filled) = (Sending::new(pieces, slots), RefCell::new(vec![false; pieces]));
        let fill = |piece: &usize| {
            filled.borrow_mut()[*piece] = true;
            std::iter::from_fn(|| sending.next(|piece| filled.borrow()[piece])).collect()
        };
        order.iter().map(fill).collect()
    }

    #[test]
    fn pieces_of_a_large_file_wait_for_three_later_ones() {
        let sent = sent_after(48, 8, &(0..48).collect::<Vec<_>>());
        assert!(sent[..3].iter().all(Vec::is_empty));
        assert!((3..47).all(|piece| sent[piece] == [piece - 3]));
        assert_eq!(sent[47], [44, 45, 46, 47]);
    }

    #[test]
    fn a_piece_that_comes_late_leaves_first() {
        assert_eq!(sent_after(3, 8, &[1, 2, 0]), [vec![], vec![], vec![0, 1, 2]]);
        let order = [1, 2, 3, 4, 0].into_iter().chain(5..48).collect::<Vec<_>>();
        assert_eq!(sent_after(48, 8, &order)[3..6], [vec![], vec![0, 1], vec![2]]);
    }

    #[test]
    fn small_files_and_few_slots_delay_nothing() {
        for (pieces, slots) in [(15, 8), (1000, 2), (1, 1)] {
            let sent = sent_after(pieces, slots, &(0..pieces).collect::<Vec<_>>());
            assert!((0..pieces).all(|piece| sent[piece] == [piece]));
        }
    }

    proptest! {
        /// Threads fill a slot only after its earlier piece was sent.
        #[test]
        fn every_piece_leaves_once_and_frees_its_slot(pieces in 1usize..200, slots in 1usize..20, seed in any::<u64>()) {
            let (mut sending, mut filled, mut sent) = (Sending::new(pieces, slots), vec![false; pieces], 0);
            let mut random = seed;
            while sent < pieces {
                // Threads fill any of the pieces whose slots are free.
                let mut open: Vec<usize> = (sent..(sent + slots).min(pieces)).filter(|piece| !filled[*piece]).collect();
                prop_assert!(!open.is_empty(), "all slots wait");
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                filled[open.swap_remove((random >> 33) as usize % open.len())] = true;
                while let Some(piece) = sending.next(|piece| filled[piece]) {
                    prop_assert!(piece == sent && filled[piece]);
                    sent += 1;
                }
            }
            prop_assert!(sending.next(|_| true).is_none());
        }
    }
}
