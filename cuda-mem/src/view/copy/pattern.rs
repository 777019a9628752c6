//! A copy between two layouts, brought into its simplest form: bytes, and axes that go both ways.

use smallvec::SmallVec;

/// An axis of a copy: how many steps it has, and how far each goes on both sides, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    /// At least 2.
    pub extent: u64,
    /// More than 0, unless the copy reads the pattern only.
    pub to: i64,
    pub from: i64,
}

/// Runs of `width` bytes, repeated along axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// Where the first run begins in the destination's memory, in bytes.
    pub to: i64,
    /// And in the source's.
    pub from: i64,
    /// How many bytes lie side by side on both sides.
    pub width: u64,
    /// From the slowest to the fastest: by the destination's strides.
    pub axes: SmallVec<[Axis; 5]>,
}

/// Rows of planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planes {
    /// From row to row, in bytes.
    pub pitch: u64,
    /// From plane to plane, in rows.
    pub height: u64,
}

/// One side of a copy, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Strides {
    pub offset: i64,
    pub strides: SmallVec<[i64; 6]>,
}

impl Pattern {
    /// The simplest form of a copy of elements of `item_size` bytes. None where there is nothing to copy.
    ///
    /// Axes of one step are left out, axes on which the destination runs backwards are turned round, and axes are merged
    /// where both sides go on. The destination's elements do not overlap.
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
        // The fastest first, to be merged from there.
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

    /// How many runs there are.
    pub fn runs(&self) -> u64 {
        self.axes.iter().map(|axis| axis.extent).product()
    }

    /// How many bytes are copied.
    pub fn bytes(&self) -> u64 {
        self.runs() * self.width
    }

    /// Whether both sides are one run.
    pub fn is_run(&self) -> bool {
        self.axes.is_empty()
    }

    /// The pitches of destination and source, in bytes, if the runs are rows: one axis, which goes forward past each row.
    pub fn rows(&self) -> Option<(u64, u64)> {
        let [axis] = self.axes[..] else { return None };
        let pitch = |stride: i64| u64::try_from(stride).ok().filter(|pitch| *pitch >= self.width);
        Some((pitch(axis.to)?, pitch(axis.from)?))
    }

    /// The planes of destination and source, if the runs are rows of planes: two axes, of which the outer takes whole rows.
    pub fn planes(&self) -> Option<[Planes; 2]> {
        let [outer, inner] = self.axes[..] else { return None };
        let side = |outer: i64, pitch: i64| {
            let pitch = u64::try_from(pitch).ok().filter(|pitch| *pitch >= self.width)?;
            let step = u64::try_from(outer).ok().filter(|step| step.is_multiple_of(pitch))?;
            (step / pitch >= inner.extent).then_some(Planes { pitch, height: step / pitch })
        };
        Some([side(outer.to, inner.to)?, side(outer.from, inner.from)?])
    }

    /// The bytes of the destination's memory, from the first that is written to after the last.
    pub fn written(&self) -> (usize, usize) {
        span(self.to, self.width, self.axes.iter().map(|axis| (axis.extent, axis.to)))
    }

    /// The bytes of the source's memory, from the first that is read to after the last.
    pub fn read(&self) -> (usize, usize) {
        span(self.from, self.width, self.axes.iter().map(|axis| (axis.extent, axis.from)))
    }

    /// Where each run begins in both memories.
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

/// All lies within memory: so the ends are numbers of bytes.
fn span(start: i64, width: u64, axes: impl Iterator<Item = (u64, i64)>) -> (usize, usize) {
    let (first, last) = axes.fold((start, start), |(first, last), (extent, stride)| {
        let reach = (extent - 1) as i64 * stride;
        (first + reach.min(0), last + reach.max(0))
    });
    (first as usize, last as usize + width as usize)
}

impl Axis {
    /// Whether both sides, from the end of `inner` on, go on as it does.
    fn goes_on_after(&self, inner: &Axis) -> bool {
        let extent = inner.extent as i64;
        inner.to.checked_mul(extent) == Some(self.to) && inner.from.checked_mul(extent) == Some(self.from)
    }
}

/// The bytes that one side of a copy reaches, at addresses.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    /// The lowest byte.
    first: i128,
    /// After the highest.
    end: i128,
    /// How many bytes lie side by side.
    width: i128,
    /// The greatest step that all axes take multiples of.
    step: i128,
}

impl Reach {
    /// Of elements at `base` and on. None without elements.
    pub fn of(base: u64, shape: &[i64], item_size: usize, side: &Strides) -> Option<Self> {
        let own = Pattern::simplest(shape, item_size, side, side)?;
        let span: i128 = own.axes.iter().map(|axis| i128::from(axis.to) * (i128::from(axis.extent) - 1)).sum();
        let first = i128::from(base) + i128::from(own.to);
        let width = i128::from(own.width);
        let step = own.axes.iter().fold(0, |step, axis| greatest_divisor(step, i128::from(axis.to)));
        Some(Self { first, end: first + span + width, width, step })
    }

    /// The addresses that both reach; none where no byte is shared. It may give some where the two interleave in ways that
    /// have no common step.
    pub fn overlap(&self, other: &Self) -> Option<(u64, u64)> {
        let (first, end) = (self.first.max(other.first), self.end.min(other.end));
        if first >= end {
            return None;
        }
        let step = greatest_divisor(self.step, other.step);
        if step != 0 {
            // Modulo the step, each side is one run over and over.
            let ahead = (other.first - self.first).rem_euclid(step);
            if ahead >= self.width && ahead + other.width <= step {
                return None;
            }
        }
        Some((first as u64, end as u64))
    }
}

fn greatest_divisor(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.abs()
}
