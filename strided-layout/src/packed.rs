//! Elements smaller than a byte, grouped into whole bytes.

use crate::{Order, StridedLayout};

/// Turns two layouts of elements of `bits` bits into layouts of groups of elements that fill whole bytes. `ends` holds
/// the layouts, each with the size of its memory in bytes. `None` if a run of elements begins or ends within a byte.
pub fn in_bytes(bits: usize, ends: [(&StridedLayout, usize); 2]) -> Option<[StridedLayout; 2]> {
    let [(to, to_size), (from, from_size)] = ends;
    // The smallest number of elements that fills whole bytes.
    let group = 8 >> bits.trailing_zeros().min(3);
    let bytes = bits * group / 8;
    let along = |axis: usize| Some([packed(to, group, bytes, axis)?, packed(from, group, bytes, axis)?]);
    if let Some(found) = (0..to.ndim()).find_map(along) {
        return Some(found);
    }
    // A single run may end within the memory's last byte, because no other element shares that byte.
    let whole = |layout: &StridedLayout, size: usize| {
        let (start, count) = (usize::try_from(layout.offset()).ok()?, layout.volume() as usize);
        let end = ((start + count) * bits).div_ceil(8);
        let apart = (start + count).is_multiple_of(group) || end == size;
        (layout.is_contiguous_c() && start.is_multiple_of(group) && apart).then_some((start * bits / 8, end))
    };
    let line = |(start, end): (usize, usize)| {
        StridedLayout::dense(&[(end - start) as i64], 1, Order::C).ok()?.with_offset(start as i64).ok()
    };
    Some([line(whole(to, to_size)?)?, line(whole(from, from_size)?)?])
}

/// A layout of groups of elements along an axis.
fn packed(layout: &StridedLayout, group: usize, bytes: usize, axis: usize) -> Option<StridedLayout> {
    let single = StridedLayout::new(layout.shape(), layout.strides(), 1).ok()?.with_offset(layout.offset()).ok()?;
    let groups = single.repacked(group, 0, axis as i64).ok()?;
    StridedLayout::new(groups.shape(), groups.strides(), bytes).ok()?.with_offset(groups.offset()).ok()
}
