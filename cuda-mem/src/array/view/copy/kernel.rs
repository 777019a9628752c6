//! Launches of the kernels in `strided.cu`, and their parameters.

use crate::{Result, Stream};
use cuda_sys::CUdeviceptr;
use smallvec::SmallVec;
use strided_layout::{Axis, Pattern};

const THREADS: u32 = 256;
/// How many words a thread of a plain kernel copies: more if they are small, so that enough bytes are in flight.
const fn each(word: u64) -> u64 {
    if word < 4 { 8 } else { 4 }
}
/// The most axes of a launch.
const AXES: usize = 8;
/// The most words of a launch: indices have 31 bits.
const MOST_WORDS: u64 = i32::MAX as u64;
/// The smallest unit that the device fetches, in bytes.
const SECTOR: u64 = 32;
/// Tiles pay off from this extent on, on both axes.
const FEW: u64 = 16;

/// Copies a pattern between two memories, in stream order. `to` and `from` are their first bytes.
///
/// # Safety
///
/// The device of the stream's context may write and read all runs until the copy is done. No run of the destination
/// overlaps another run or the source.
pub unsafe fn copy_by_kernel(pattern: &Pattern, to: CUdeviceptr, from: CUdeviceptr, stream: &Stream) -> Result<()> {
    let kernels = stream.context().strided_kernels()?;
    let (cuda, _ready) = stream.ready()?;
    launches(pattern, to, from).into_iter().try_for_each(|mut launch| {
        let by_word = if launch.tiled { &kernels.tiled } else { &kernels.plain };
        let kernel = by_word[launch.parameters.word.trailing_zeros() as usize];
        let mut arguments = [(&raw mut launch.parameters).cast()];
        // SAFETY: the only argument has the layout that the kernels expect. The rest is this function's contract.
        unsafe { kernel.launch(cuda, launch.blocks, THREADS, &mut arguments, stream.raw()) }
    })
}

/// The argument of a kernel, with the layout of `Copy` in strided.cu.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C)]
struct Parameters {
    to: u64,
    from: u64,
    word: u64,
    axes: u64,
    count: u64,
    extents: [u64; AXES],
    to_strides: [i64; AXES],
    from_strides: [i64; AXES],
    divisors: [u64; AXES],
    tiles: [u64; 2],
    tile_divisors: [u64; 2],
}

/// One launch of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Launch {
    tiled: bool,
    blocks: u32,
    parameters: Parameters,
}

/// The launches that copy a pattern: one, unless the pattern has more words or axes than a launch allows.
fn launches(pattern: &Pattern, to: CUdeviceptr, from: CUdeviceptr) -> Vec<Launch> {
    let (to, from) = (to.wrapping_add_signed(pattern.to), from.wrapping_add_signed(pattern.from));
    let word = word(pattern, to, from);
    let mut axes: SmallVec<[Axis; 8]> = pattern.axes.as_slice().into();
    if pattern.width > word {
        axes.push(Axis { extent: pattern.width / word, to: word as i64, from: word as i64 });
    }
    let mut launches = vec![];
    divide(&axes, word, to, from, &mut launches);
    launches
}

/// The largest word, in bytes, that divides all addresses, strides and the width.
fn word(pattern: &Pattern, to: u64, from: u64) -> u64 {
    let strides = pattern.axes.iter().fold(0, |bits, axis| bits | axis.to as u64 | axis.from as u64);
    1 << (to | from | pattern.width | strides).trailing_zeros().min(4)
}

/// Divides the slowest axis until each part fits into a launch.
fn divide(axes: &[Axis], word: u64, to: u64, from: u64, launches: &mut Vec<Launch>) {
    let count = |axes: &[Axis]| axes.iter().map(|axis| axis.extent).product::<u64>();
    if axes.len() <= AXES && count(axes) <= MOST_WORDS {
        launches.push(launch(axes, word, to, from));
        return;
    }
    let Some((slowest, rest)) = axes.split_first() else { return };
    let at_once = if axes.len() <= AXES { (MOST_WORDS / count(rest)).clamp(1, slowest.extent) } else { 1 };
    for start in (0..slowest.extent).step_by(at_once as usize) {
        let to = to.wrapping_add_signed(start as i64 * slowest.to);
        let from = from.wrapping_add_signed(start as i64 * slowest.from);
        let extent = at_once.min(slowest.extent - start);
        if extent == 1 {
            divide(rest, word, to, from, launches);
        } else {
            let mut part: SmallVec<[Axis; 8]> = axes.into();
            part[0].extent = extent;
            divide(&part, word, to, from, launches);
        }
    }
}

fn launch(axes: &[Axis], word: u64, to: u64, from: u64) -> Launch {
    // The kernels expect the fastest axis first.
    let mut axes: SmallVec<[Axis; 8]> = axes.iter().rev().copied().collect();
    if axes.is_empty() {
        axes.push(Axis { extent: 1, to: 0, from: 0 });
    }
    let second = axis_of_tiles(&axes);
    if let Some(second) = second {
        // The other axes keep their order.
        axes[1..=second].rotate_right(1);
    }
    let mut parameters = Parameters {
        to,
        from,
        word,
        axes: axes.len() as u64,
        count: axes.iter().map(|axis| axis.extent).product(),
        extents: [1; AXES],
        to_strides: [0; AXES],
        from_strides: [0; AXES],
        divisors: [divisor(1); AXES],
        tiles: [1; 2],
        tile_divisors: [divisor(1); 2],
    };
    for (n, axis) in axes.iter().enumerate() {
        parameters.extents[n] = axis.extent;
        parameters.divisors[n] = divisor(axis.extent);
        (parameters.to_strides[n], parameters.from_strides[n]) = (axis.to, axis.from);
    }
    let blocks = if second.is_some() {
        let tile = if word > 4 { 32 } else { 64 };
        for n in 0..2 {
            parameters.tiles[n] = axes[n].extent.div_ceil(tile);
            parameters.tile_divisors[n] = divisor(parameters.tiles[n]);
        }
        axes[2..].iter().map(|axis| axis.extent).product::<u64>() * parameters.tiles[0] * parameters.tiles[1]
    } else {
        parameters.count.div_ceil(each(word) * u64::from(THREADS))
    };
    Launch { tiled: second.is_some(), blocks: blocks as u32, parameters }
}

/// The source's fastest axis, if tiles pay off: it is not the destination's fastest, and the source's neighbours on it
/// share a sector. Axes come fastest first.
fn axis_of_tiles(axes: &[Axis]) -> Option<usize> {
    let first = axes.first().filter(|axis| axis.extent >= FEW && axis.from.unsigned_abs() >= SECTOR)?;
    let others = axes.iter().enumerate().skip(1).filter(|(_, axis)| axis.from != 0 && axis.extent >= FEW);
    let (second, axis) = others.min_by_key(|(_, axis)| axis.from.unsigned_abs())?;
    (axis.from.unsigned_abs() < SECTOR.min(first.from.unsigned_abs())).then_some(second)
}

/// A divisor for numbers below 2^31 in the kernels' form: a factor in the lower half, a shift in the upper.
fn divisor(divisor: u64) -> u64 {
    let shift = u64::from(divisor.next_power_of_two().trailing_zeros());
    let factor = (((1_u128 << 32) * ((1_u128 << shift) - u128::from(divisor))) / u128::from(divisor) + 1) as u64;
    factor | shift << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The kernels' `divide`.
    fn divided(n: u32, divisor: u64) -> u32 {
        let high = ((u64::from(n) * (divisor & u64::from(u32::MAX))) >> 32) as u32;
        (high + n) >> (divisor >> 32)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 16 } else { 4096 }, ..ProptestConfig::default() })]

        #[test]
        fn divisors_divide(n in 0..1_u32 << 31, d in prop_oneof![1..1_u32 << 31, 1..100_u32]) {
            for n in [n, n / d * d, (n / d * d).saturating_sub(1)] {
                prop_assert_eq!(divided(n, divisor(d.into())), n / d);
            }
        }
    }

    fn pattern(width: u64, axes: &[(u64, i64, i64)]) -> Pattern {
        let axes = axes.iter().map(|&(extent, to, from)| Axis { extent, to, from }).collect();
        Pattern { to: 0, from: 0, width, axes }
    }

    #[test]
    fn words_are_as_wide_as_all_is_aligned() {
        let wide = pattern(48, &[(5, 64, 96)]);
        assert_eq!((word(&wide, 0x1000, 0x2000), word(&wide, 0x1008, 0x2000), word(&wide, 0x1000, 0x2001)), (16, 8, 1));
        assert_eq!(word(&pattern(48, &[(5, 64, 100)]), 0, 0), 4);
        assert_eq!(word(&pattern(6, &[(5, 64, 100)]), 0, 0), 2);
    }

    #[test]
    fn transposes_go_through_tiles_and_others_do_not() {
        let only = |pattern: &Pattern| {
            let launches = launches(pattern, 0, 0);
            assert_eq!(launches.len(), 1);
            launches.into_iter().next().unwrap()
        };
        // Three transposes of 100 times 200 words of 4 bytes.
        let transpose = only(&pattern(4, &[(3, 80_000, 80_000), (100, 800, 4), (200, 4, 400)]));
        assert!(transpose.tiled);
        assert_eq!(transpose.parameters.extents[..3], [200, 100, 3]);
        assert_eq!((transpose.parameters.tiles, transpose.blocks), ([4, 2], 24));
        let slice = only(&pattern(4, &[(100, 800, 1600), (200, 4, 8)]));
        assert!(!slice.tiled);
        assert_eq!(slice.blocks, 20);
        assert!(!only(&pattern(4, &[(100, 800, 4), (200, 4, 0)])).tiled, "the source repeats a row");
        assert!(!only(&pattern(4, &[(3, 800, 4), (200, 4, 12)])).tiled, "extent 3 is too small for tiles");
    }

    #[test]
    fn what_a_launch_cannot_take_is_divided() {
        let many = pattern(1, &[(3, 1 << 40, 1 << 40), (1 << 30, 2, 2)]);
        let parts = launches(&many, 0, 0);
        assert_eq!(parts.len(), 3, "3 * 2^30 words; two rows of 2^30 would exceed the limit by one");
        assert!(parts.iter().all(|part| part.parameters.count <= MOST_WORDS));
        assert_eq!(parts[2].parameters.to, 2 << 40);
        let deep: Vec<(u64, i64, i64)> = (0..10).rev().map(|n| (2, 3 << n, 5 << n)).collect();
        assert_eq!(launches(&pattern(1, &deep), 0, 0).len(), 4, "ten axes of extent 2, eight in each launch");
    }
}
