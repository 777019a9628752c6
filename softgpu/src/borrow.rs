//! Memory that the CPU has borrowed. The library under test reports borrows, because no driver call does.

use crate::state::Global;
use crate::state::checks::races::{self, Hold};

/// What the CPU does with memory that it borrows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Borrow {
    /// The CPU reads. Work that writes the memory meanwhile is a misuse.
    Read,
    /// The CPU writes. Any work on the memory meanwhile is a misuse.
    Write,
    /// The CPU reads shared memory at once, beside work that may use the memory too. Only work of a
    /// [former owner](CpuBorrow::new_owner) must not write it any more.
    SharedRead,
    /// The CPU writes shared memory at once, beside work that may use the memory too. Only work of a
    /// [former owner](CpuBorrow::new_owner) must not use it any more.
    SharedWrite,
    /// The CPU lends the memory to a copy that reads it. The borrow from which the CPU lends does not forbid that copy.
    /// The copy must be done when this borrow ends.
    LendToRead,
    /// The CPU lends the memory to a copy that writes it. The copy must be done when this borrow ends.
    LendToWrite,
}

/// Memory that the CPU has borrowed, until the value is dropped. softgpu [reports](crate::Misuse::Borrowed) queued work
/// that must not use the memory during the borrow, and earlier work of that kind whose end nobody has waited for. It
/// also reports a read of bytes that [no executed work](crate::Misuse::NeverRan) has written.
///
/// Without [`Settings::races`](crate::Settings::races) it does nothing.
///
/// If the value is forgotten, the borrow lasts until the memory is freed. A test that forgets the guard behind this
/// value ends the borrow with [`end_all`](Self::end_all).
#[derive(Debug, Default)]
#[must_use = "the borrow lasts as long as the value"]
pub struct CpuBorrow(Option<ActiveBorrow>);

#[derive(Debug)]
struct ActiveBorrow {
    number: u64,
    start: usize,
    shown: u64,
    block: Option<u64>,
}

impl CpuBorrow {
    /// Records that the CPU borrows `length` bytes at its address `address`. Memory that the driver does not know is
    /// ignored.
    #[inline]
    pub fn new(address: usize, length: usize, borrow: Borrow) -> Self {
        if races::is_on() && length > 0 { Self::begin(address, length, borrow) } else { Self(None) }
    }

    /// As a borrow that ends at once.
    #[inline]
    pub fn check(address: usize, length: usize, borrow: Borrow) {
        if races::is_on() && length > 0 {
            drop(Self::begin(address, length, borrow));
        }
    }

    #[cold]
    fn begin(address: usize, length: usize, borrow: Borrow) -> Self {
        let Some((start, block)) = place(address) else { return Self(None) };
        let hold = match borrow {
            Borrow::Read => Hold::Read,
            Borrow::Write => Hold::Write,
            Borrow::LendToRead => Hold::Source,
            Borrow::LendToWrite => Hold::Destination,
            Borrow::SharedRead | Borrow::SharedWrite => {
                races::share(&(start..start + length), borrow == Borrow::SharedWrite, address as u64, block);
                return Self(None);
            }
        };
        let number = races::borrow(start..start + length, hold, address as u64, block);
        Self(number.map(|number| ActiveBorrow { number, start, shown: address as u64, block }))
    }

    /// Records that `length` bytes now belong to a new owner: a pool has handed them out, at an address of the CPU or of
    /// a device. What was written before counts for nothing, and the CPU must not meet the work that was queued before:
    /// an access while the host has not seen the end of such work is a [misuse](crate::Misuse::FormerOwner).
    #[inline]
    pub fn new_owner(address: usize, length: usize) {
        if races::is_on() && length > 0 {
            Self::hand_over(address, length);
        }
    }

    #[cold]
    fn hand_over(address: usize, length: usize) {
        if let Some((start, _)) = place(address) {
            races::new_owner(&(start..start + length));
        }
    }

    /// Ends all borrows that overlap `length` bytes at `address`, without checking them. Their values were forgotten.
    pub fn end_all(address: usize, length: usize) {
        if let Some((start, _)) = place(address) {
            races::end_borrows(&(start..start + length));
        }
    }
}

impl Drop for CpuBorrow {
    #[inline]
    fn drop(&mut self) {
        if let Some(held) = &self.0 {
            races::give_back(held.number, held.start, held.shown, held.block);
        }
    }
}

/// Where softgpu accesses the memory behind an address, and the number of the allocation there.
fn place(address: usize) -> Option<(usize, Option<u64>)> {
    let global = Global::get().ok()?;
    if let Some(block) = global.memory.at(address as u64) {
        return Some((block.access + (address - block.base as usize), Some(block.sequence)));
    }
    global.mapped.all().iter().find_map(|memory| memory.place_of(address))
}
