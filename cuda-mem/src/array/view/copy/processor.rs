//! Copies by the CPU.

use crate::cpu::host_copy::Stores;
use strided_layout::{Axis, Pattern};

/// Who may use the memories of a copy at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Users {
    /// Nobody else, or only readers of the source.
    Alone,
    /// Other threads or devices may use both sides. They order their accesses, but this copy must be defined even if
    /// they do not.
    Others,
}

/// Copies a pattern between two memories. `to` and `from` are their first bytes.
///
/// # Safety
///
/// All runs lie within the memories, which the CPU may write and read. No run of the destination overlaps another run
/// or the source. Nobody else uses the memories meanwhile, unless `users` is `Others`.
pub(super) unsafe fn copy(pattern: &Pattern, to: *mut u8, from: *const u8, users: Users) {
    let width = pattern.width as usize;
    // SAFETY: this function's contract covers each run.
    unsafe {
        match (users, width) {
            (Users::Others, _) => {
                let mut stores = Stores::begin();
                runs(pattern, to, from, |to, from| stores.pass(from, to, width));
            }
            // Constant widths compile to single moves.
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

/// Calls `run` with the start of each run on both sides.
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

#[cfg(test)]
mod tests {
    use super::*;
    use strided_layout::{Index, Order, StridedLayout, Strides};

    #[test]
    fn every_width_copies_the_bytes_of_all_runs() {
        // Under Miri only the widths that have code of their own, and some beside them.
        let widths = if cfg!(miri) { vec![1, 2, 4, 5, 8, 12, 16, 19] } else { (1..20_i64).collect() };
        for (width, users) in widths.into_iter().flat_map(|width| [(width, Users::Alone), (width, Users::Others)]) {
            let whole = StridedLayout::dense(&[3, 4, 2 * width], 1, Order::C).unwrap();
            let part = whole.sliced(&[Index::ALL, Index::reversed(), (..width).into()]).unwrap();
            let dense = StridedLayout::dense(&[3, 4, width], 1, Order::C).unwrap();
            let side = |of: &StridedLayout| Strides { offset: of.byte_offset(), strides: of.byte_strides().into() };
            let pattern = Pattern::simplest(&[3, 4, width], 1, &side(&dense), &side(&part)).unwrap();
            let source: Vec<u8> = (0..24 * width).map(|n| n as u8).collect();
            let (mut found, mut expected) = (vec![0; 12 * width as usize], vec![0; 12 * width as usize]);
            // SAFETY: all runs lie within the two vectors.
            unsafe { copy(&pattern, found.as_mut_ptr(), source.as_ptr(), users) };
            for (index, run) in expected.chunks_mut(width as usize).enumerate() {
                let (plane, row) = (index / 4, 3 - index % 4);
                let start = (plane * 4 + row) * 2 * width as usize;
                run.copy_from_slice(&source[start..start + width as usize]);
            }
            assert_eq!(found, expected, "{width} bytes, {users:?}");
        }
    }
}
