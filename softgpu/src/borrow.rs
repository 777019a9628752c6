//! What the CPU has borrowed: told by the library under test, since no call of the driver says it.

use crate::state::Global;
use crate::state::races::{self, Hold};

/// What the CPU does with memory that it borrows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Borrow {
    /// It reads: work that writes the memory meanwhile is a misuse.
    Read,
    /// It writes: all work on the memory meanwhile is a misuse.
    Write,
    /// It lends the memory to a copy that reads it. The copy must be done at the end, and what the memory was borrowed for
    /// does not count until then.
    LendToRead,
    /// It lends the memory to a copy that writes it. The copy must be done at the end.
    LendToWrite,
}

/// Memory that the CPU has borrowed, until the value is dropped. Queued work that must not use it meanwhile is
/// [reported](crate::Misuse::Borrowed), and so is such work from before whose end nobody has waited for.
///
/// Where [`Settings::races`](crate::Settings::races) is not set, it does nothing.
///
/// A value that is forgotten goes on until the block of memory is freed: where a test forgets the borrow that this value
/// stands for, it [ends](Self::end_all) it in that way.
#[derive(Debug, Default)]
#[must_use = "the borrow lasts as long as the value"]
pub struct CpuBorrow(Option<Held>);

#[derive(Debug)]
struct Held {
    number: u64,
    start: usize,
    shown: u64,
    block: Option<u64>,
}

impl CpuBorrow {
    /// The CPU borrows memory at an address of its own. What the driver does not know is not looked at.
    #[inline]
    pub fn new(address: usize, length: usize, borrow: Borrow) -> Self {
        if races::is_on() && length > 0 { Self::begin(address, length, borrow) } else { Self(None) }
    }

    #[cold]
    fn begin(address: usize, length: usize, borrow: Borrow) -> Self {
        let hold = match borrow {
            Borrow::Read => Hold::Read,
            Borrow::Write => Hold::Write,
            Borrow::LendToRead => Hold::Source,
            Borrow::LendToWrite => Hold::Destination,
        };
        let Some((start, block)) = place(address) else { return Self(None) };
        let number = races::borrow(start..start + length, hold, address as u64, block);
        Self(number.map(|number| Held { number, start, shown: address as u64, block }))
    }

    /// Ends all borrows of memory without looking at them: the values that stand for them were forgotten.
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

/// Where softgpu itself reaches an address of the CPU's, and the number of the block there.
fn place(address: usize) -> Option<(usize, Option<u64>)> {
    let global = Global::get().ok()?;
    if let Some(block) = global.memory.at(address as u64) {
        return Some((block.access + (address - block.base as usize), Some(block.sequence)));
    }
    global.mapped.all().iter().find_map(|memory| memory.place_of(address))
}
