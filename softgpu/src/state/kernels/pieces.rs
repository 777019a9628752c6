//! The kernels that copy pieces of memory.

use super::code::Wrong;
use super::launch::Launch;
use crate::state::checks::races::Touched;
use crate::state::memory::{Range, Use};
use std::ptr;

/// The words of 8 bytes of a parameter with room for some pieces: their number, the threads for each piece, which only device
/// code needs, and the pieces.
const fn words(room: usize) -> usize {
    2 + 3 * room
}

/// The words of the parameters of the two kernels.
pub(super) const FEW: usize = words(168);
pub(super) const MANY: usize = words(1360);

/// The pieces of a copy: the address of the destination, that of the source, the size in bytes.
pub(super) struct Pieces(Vec<[u64; 3]>);

impl Pieces {
    /// Reads the parameter. Pieces without bytes are left out.
    pub(super) fn of(values: &[u64]) -> Self {
        let [count, _, pieces @ ..] = values else { return Self(Vec::new()) };
        let pieces = pieces.as_chunks::<3>().0.iter().take(*count as usize);
        Self(pieces.copied().filter(|piece| piece[2] != 0).collect())
    }

    /// The memory of all pieces: the destination and the source of each.
    pub(super) fn held(&self, launch: &Launch) -> Result<Vec<Range>, Wrong> {
        let mut ranges = Vec::with_capacity(2 * self.0.len());
        for &[to, from, size] in &self.0 {
            ranges.push(launch.memory(to, size, 1, Use::Write)?);
            ranges.push(launch.memory(from, size, 1, Use::Read)?);
        }
        Ok(ranges)
    }

    /// The bytes that the copies write and read, as far as they are memory.
    pub(super) fn touched(&self, launch: &Launch) -> Vec<Touched> {
        let touched = |address, size, purpose| {
            let range = launch.memory(address, size, 1, purpose).ok()?;
            range.touched(0..range.length, purpose)
        };
        let sides = |&[to, from, size]: &[u64; 3]| [touched(to, size, Use::Write), touched(from, size, Use::Read)];
        self.0.iter().flat_map(sides).flatten().collect()
    }

    /// Copies the pieces. Stops at the first one that does not lie in memory, with the address of that side.
    pub(super) fn run(&self, launch: &Launch, held: &[Range], call: &'static str) -> Result<(), Wrong> {
        let looked_up = if held.is_empty() { self.held(launch)? } else { Vec::new() };
        let ranges = if held.is_empty() { &looked_up[..] } else { held };
        for [to, from] in ranges.as_chunks::<2>().0 {
            from.check_flushed(call);
            let (to_start, from_start) = (to.address, from.address);
            // SAFETY: both ranges hold their allocations, and have one length. They may overlap if the program is wrong.
            unsafe {
                let from = ptr::with_exposed_provenance::<u8>(from_start);
                ptr::copy(from, ptr::with_exposed_provenance_mut(to_start), to.length);
            }
        }
        Ok(())
    }
}
