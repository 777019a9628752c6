//! Elements of less than a byte, as the bytes that they lie in.

use super::{Order, StridedLayout};

/// The layouts of two views of packed elements, each with its memory's size, in whole bytes: several elements are one
/// there. None where a run of elements begins or ends within a byte.
pub(super) fn in_bytes(bits: usize, ends: [(&StridedLayout, usize); 2]) -> Option<[StridedLayout; 2]> {
    let [(to, to_size), (from, from_size)] = ends;
    // So many elements fill whole bytes.
    let group = 8 >> bits.trailing_zeros().min(3);
    let bytes = bits * group / 8;
    let along = |axis: usize| Some([packed(to, group, bytes, axis)?, packed(from, group, bytes, axis)?]);
    if let Some(found) = (0..to.ndim()).find_map(along) {
        return Some(found);
    }
    // One run, whose last byte may be shared with nobody: it is the memory's last.
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

/// A layout whose elements are groups along an axis.
fn packed(layout: &StridedLayout, group: usize, bytes: usize, axis: usize) -> Option<StridedLayout> {
    let single = StridedLayout::new(layout.shape(), layout.strides(), 1).ok()?.with_offset(layout.offset()).ok()?;
    let groups = single.repacked(group, 0, axis as i64).ok()?;
    StridedLayout::new(groups.shape(), groups.strides(), bytes).ok()?.with_offset(groups.offset()).ok()
}
