//! Copies that the CPU does.

use super::pattern::{Axis, Pattern};
use crate::host_copy::Stores;

/// Who may use the memories of a copy at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Users {
    /// Nobody else, or who only reads what is read.
    Alone,
    /// Others too: what is read and written is for them to order, but it must not be undefined.
    Others,
}

/// Copies a pattern between two memories that begin at these addresses.
///
/// # Safety
///
/// All runs lie within memory that may be written and read, and no run of the destination overlaps another or the source.
/// No other uses the memories meanwhile, unless `users` says so.
pub(super) unsafe fn copy(pattern: &Pattern, to: *mut u8, from: *const u8, users: Users) {
    let width = pattern.width as usize;
    // SAFETY: this function's contract, in all arms: each run is copied within it.
    unsafe {
        match (users, width) {
            (Users::Others, _) => {
                let mut stores = Stores::begin();
                runs(pattern, to, from, |to, from| stores.pass(from, to, width));
            }
            // Widths that the compiler knows.
            (_, 1) => runs(pattern, to, from, |to, from| from.copy_to_nonoverlapping(to, 1)),
            (_, 2) => runs(pattern, to, from, |to, from| from.copy_to_nonoverlapping(to, 2)),
            (_, 4) => runs(pattern, to, from, |to, from| from.copy_to_nonoverlapping(to, 4)),
            (_, 8) => runs(pattern, to, from, |to, from| from.copy_to_nonoverlapping(to, 8)),
            (_, 12) => runs(pattern, to, from, |to, from| from.copy_to_nonoverlapping(to, 12)),
            (_, 16) => runs(pattern, to, from, |to, from| from.copy_to_nonoverlapping(to, 16)),
            _ => runs(pattern, to, from, |to, from| from.copy_to_nonoverlapping(to, width)),
        }
    }
}

/// Visits the beginnings of all runs.
fn runs(pattern: &Pattern, to: *mut u8, from: *const u8, mut run: impl FnMut(*mut u8, *const u8)) {
    let outer = match pattern.axes.split_last() {
        None => Pattern { axes: Default::default(), ..*pattern },
        Some((_, slower)) => Pattern { axes: slower.into(), ..*pattern },
    };
    let inner = pattern.axes.last().copied().unwrap_or(Axis { extent: 1, to: 0, from: 0 });
    for (to_start, from_start) in outer.starts() {
        let (mut to, mut from) = (to.wrapping_offset(to_start as isize), from.wrapping_offset(from_start as isize));
        for _ in 0..inner.extent {
            run(to, from);
            (to, from) = (to.wrapping_offset(inner.to as isize), from.wrapping_offset(inner.from as isize));
        }
    }
}
