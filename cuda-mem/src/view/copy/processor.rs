//! Copies that the CPU does.

use super::pattern::{Axis, Pattern};

/// Copies a pattern between two memories that begin at these addresses.
///
/// # Safety
///
/// All runs lie within memory that may be written and read, and no run of the destination overlaps another or the source.
pub(super) unsafe fn copy(pattern: &Pattern, to: *mut u8, from: *const u8) {
    // SAFETY: this function's contract, in all arms.
    unsafe {
        match pattern.width {
            1 => runs::<1>(pattern, to, from),
            2 => runs::<2>(pattern, to, from),
            4 => runs::<4>(pattern, to, from),
            8 => runs::<8>(pattern, to, from),
            12 => runs::<12>(pattern, to, from),
            16 => runs::<16>(pattern, to, from),
            _ => runs::<0>(pattern, to, from),
        }
    }
}

/// Runs of a width that the compiler knows; 0 stands for any.
///
/// # Safety
///
/// As [`copy`].
unsafe fn runs<const WIDTH: usize>(pattern: &Pattern, to: *mut u8, from: *const u8) {
    let width = if WIDTH == 0 { pattern.width as usize } else { WIDTH };
    let outer = match pattern.axes.split_last() {
        None => Pattern { axes: Default::default(), ..*pattern },
        Some((_, slower)) => Pattern { axes: slower.into(), ..*pattern },
    };
    let inner = pattern.axes.last().copied().unwrap_or(Axis { extent: 1, to: 0, from: 0 });
    for (to_start, from_start) in outer.starts() {
        let (mut to, mut from) = (to.wrapping_offset(to_start as isize), from.wrapping_offset(from_start as isize));
        for _ in 0..inner.extent {
            // SAFETY: this function's contract.
            unsafe { from.copy_to_nonoverlapping(to, width) };
            (to, from) = (to.wrapping_offset(inner.to as isize), from.wrapping_offset(inner.from as isize));
        }
    }
}
