//! The simplest form of a copy between two layouts: runs of bytes, repeated along axes.

use crate::Numbers;
use crate::sums::Sum;
use smallvec::SmallVec;

/// An axis of a copy. Strides are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The number of runs along the axis: at least 2.
    pub extent: u64,
    /// The destination's stride. It is positive, unless nothing writes the pattern.
    pub to: i64,
    /// The source's stride.
    pub from: i64,
}

/// Runs of `width` bytes, repeated along axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The first run's offset in the destination's memory, in bytes.
    pub to: i64,
    /// The first run's offset in the source's memory, in bytes.
    pub from: i64,
    /// The length of a run, in bytes.
    pub width: u64,
    /// The axes, ordered by the destination's strides, the slowest first.
    pub axes: SmallVec<[Axis; 5]>,
}

/// The distances between rows and between planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planes {
    /// The distance between rows, in bytes.
    pub pitch: u64,
    /// The distance between planes, in rows.
    pub height: u64,
}

/// The positions of the elements of one side of a copy, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strides {
    /// The offset of the first element.
    pub offset: i64,
    /// The distance between neighbours along each axis.
    pub strides: Numbers,
}

impl Pattern {
    /// The simplest form of a copy of elements of `item_size` bytes. `None` if there are no elements.
    ///
    /// Drops axes of extent 1, reverses axes on which the destination runs backwards, and merges axes that continue
    /// each other on both sides. The destination's elements must not overlap.
    pub fn simplest(shape: &[i64], item_size: usize, to: &Strides, from: &Strides) -> Option<Self> {
        if shape.contains(&0) {
            return None;
        }
        let mut found = Self {
            to: to.offset,
            from: from.offset,
            width: item_size as u64,
            axes: SmallVec::with_capacity(shape.len()),
        };
        for ((&extent, &to), &from) in shape.iter().zip(&to.strides).zip(&from.strides) {
            if extent == 1 {
                continue;
            }
            let mut axis = Axis { extent: extent as u64, to, from };
            if to < 0 {
                found.to += (extent - 1) * to;
                found.from += (extent - 1) * from;
                (axis.to, axis.from) = (-to, -from);
            }
            found.axes.push(axis);
        }
        // Merging starts at the fastest axis.
        found.axes.sort_by_key(|axis| axis.to);
        let mut merged: SmallVec<[Axis; 5]> = SmallVec::new();
        for axis in found.axes {
            match merged.last_mut() {
                None if axis.to == found.width as i64 && axis.from == axis.to => found.width *= axis.extent,
                Some(inner) if axis.goes_on_after(inner) => inner.extent *= axis.extent,
                _ => merged.push(axis),
            }
        }
        merged.reverse();
        found.axes = merged;
        Some(found)
    }

    /// The number of runs.
    pub fn runs(&self) -> u64 {
        self.axes.iter().map(|axis| axis.extent).product()
    }

    /// The number of bytes that the copy moves.
    pub fn bytes(&self) -> u64 {
        self.runs() * self.width
    }

    /// Whether the pattern is a single run.
    pub fn is_run(&self) -> bool {
        self.axes.is_empty()
    }

    /// The pitches of destination and source in bytes, if the runs are rows: one axis, with strides of at least the
    /// width of a run.
    pub fn rows(&self) -> Option<(u64, u64)> {
        let [axis] = self.axes[..] else { return None };
        let pitch = |stride: i64| u64::try_from(stride).ok().filter(|pitch| *pitch >= self.width);
        Some((pitch(axis.to)?, pitch(axis.from)?))
    }

    /// The planes of destination and source, if the runs are rows of planes: two axes, and the outer strides are whole
    /// numbers of rows.
    pub fn planes(&self) -> Option<[Planes; 2]> {
        let [outer, inner] = self.axes[..] else { return None };
        let side = |outer: i64, pitch: i64| {
            let pitch = u64::try_from(pitch).ok().filter(|pitch| *pitch >= self.width)?;
            let step = u64::try_from(outer).ok().filter(|step| step.is_multiple_of(pitch))?;
            (step / pitch >= inner.extent).then_some(Planes { pitch, height: step / pitch })
        };
        Some([side(outer.to, inner.to)?, side(outer.from, inner.from)?])
    }

    /// The offset of the first byte that the copy writes, and the offset after the last one.
    pub fn written(&self) -> (usize, usize) {
        span(self.to, self.width, self.axes.iter().map(|axis| (axis.extent, axis.to)))
    }

    /// The offset of the first byte that the copy reads, and the offset after the last one.
    pub fn read(&self) -> (usize, usize) {
        span(self.from, self.width, self.axes.iter().map(|axis| (axis.extent, axis.from)))
    }

    /// The offsets of each run in the destination's and the source's memory.
    pub fn starts(&self) -> impl Iterator<Item = (i64, i64)> {
        let mut index: SmallVec<[u64; 5]> = SmallVec::from_elem(0, self.axes.len());
        let (mut to, mut from) = (self.to, self.from);
        (0..self.runs()).map(move |_| {
            let here = (to, from);
            for (index, axis) in index.iter_mut().zip(&self.axes).rev() {
                if *index + 1 < axis.extent {
                    *index += 1;
                    (to, from) = (to + axis.to, from + axis.from);
                    break;
                }
                (to, from) = (to - *index as i64 * axis.to, from - *index as i64 * axis.from);
                *index = 0;
            }
            here
        })
    }
}

/// The first byte of one side, and the byte after its last. The pattern lies within memory, so both offsets are valid.
fn span(start: i64, width: u64, axes: impl Iterator<Item = (u64, i64)>) -> (usize, usize) {
    let (first, last) = axes.fold((start, start), |(first, last), (extent, stride)| {
        let reach = (extent - 1) as i64 * stride;
        (first + reach.min(0), last + reach.max(0))
    });
    (first as usize, last as usize + width as usize)
}

impl Axis {
    /// Whether this axis continues `inner` on both sides.
    fn goes_on_after(&self, inner: &Axis) -> bool {
        let extent = inner.extent as i64;
        inner.to.checked_mul(extent) == Some(self.to) && inner.from.checked_mul(extent) == Some(self.from)
    }
}

/// The addresses that one side of a copy accesses.
#[derive(Clone, Debug)]
pub struct Reach {
    /// The lowest address.
    first: i128,
    /// The address after the highest one.
    end: i128,
    /// The length of a run.
    width: i128,
    /// The extents and the strides, which are not negative.
    axes: SmallVec<[(i128, i128); 5]>,
}

impl Reach {
    /// The addresses of the elements in memory that begins at `base`. `None` without elements.
    pub fn of(base: u64, shape: &[i64], item_size: usize, side: &Strides) -> Option<Self> {
        let own = Pattern::simplest(shape, item_size, side, side)?;
        let span: i128 = own.axes.iter().map(|axis| i128::from(axis.to) * (i128::from(axis.extent) - 1)).sum();
        let first = i128::from(base) + i128::from(own.to);
        let width = i128::from(own.width);
        let axes = own.axes.iter().map(|axis| (axis.extent.into(), axis.to.into())).collect();
        Some(Self { first, end: first + span + width, width, axes })
    }

    /// The address range that both sides access; `None` if they share no byte. Sides with contrived strides, for
    /// which nothing but a long search would tell, get a range too.
    pub fn overlap(&self, other: &Self) -> Option<(u64, u64)> {
        let (first, end) = (self.first.max(other.first), self.end.min(other.end));
        if first >= end {
            return None;
        }
        // The distance between a byte of one side and a byte of the other one.
        let mut distance = Sum::default();
        distance.add(1, 1 - other.width, self.width - 1);
        for (extent, stride) in &self.axes {
            distance.add(*stride, 0, extent - 1);
        }
        for (extent, stride) in &other.axes {
            distance.add(-stride, 0, extent - 1);
        }
        if distance.reaches(other.first - self.first) == Some(false) { None } else { Some((first as u64, end as u64)) }
    }
}
