//! Launches of the kernels in `pieces.cu`, and their parameters.

use crate::driver::kernels::PiecesKernels;
use crate::{Result, Stream};
use bytemuck::NoUninit;
use core::ops::Range;
use cuda_sys::CUdeviceptr;
use std::borrow::Cow;

/// The pieces of a launch of either kernel.
const FEW: usize = 168;
const MANY: usize = 1360;
/// The most blocks of a launch, which fill the link, and the threads of each.
const BLOCKS: usize = 32;
const THREADS: usize = 256;
/// Small pieces have a warp each, so that more of them are under way.
const WARP: usize = 32;
/// Below this size on average, in bytes, pieces are small.
const SMALL: usize = 8 << 10;
/// Larger pieces are divided among the blocks, into parts of such sizes.
const LEAST: usize = 4 << 10;
const MOST: usize = 64 << 10;

/// A piece as the kernels expect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, NoUninit)]
#[repr(C)]
pub(super) struct KernelPiece {
    pub to: CUdeviceptr,
    pub from: CUdeviceptr,
    pub size: u64,
}

/// Copies pieces, in stream order.
///
/// # Safety
///
/// The device of the stream's context may write and read the pieces until the copies are done. No destination overlaps
/// another, or its source.
pub(super) unsafe fn copy_by_kernel(kernels: PiecesKernels, pieces: &[KernelPiece], stream: &Stream) -> Result<()> {
    let parts = divided(pieces);
    let (cuda, _ready) = stream.ready()?;
    launches(parts.len()).into_iter().try_for_each(|range| {
        let parts = &parts[range];
        let (kernel, room) = if parts.len() <= FEW { (kernels.few, FEW) } else { (kernels.many, MANY) };
        let (group, blocks) = shape(parts);
        let mut parameters: Vec<u64> = Vec::with_capacity(2 + 3 * room);
        parameters.extend([parts.len() as u64, group as u64]);
        parameters.extend_from_slice(bytemuck::cast_slice(parts));
        parameters.resize(2 + 3 * room, 0);
        let mut arguments = [parameters.as_mut_ptr().cast()];
        // SAFETY: the only argument has the layout and the size of the kernel's parameter. The rest is this function's contract.
        unsafe { kernel.launch(cuda, blocks as u32, THREADS as u32, &mut arguments, stream.raw()) }
    })
}

/// The pieces in parts, of which the blocks have about equally many bytes.
fn divided(pieces: &[KernelPiece]) -> Cow<'_, [KernelPiece]> {
    let bytes: u64 = pieces.iter().map(|piece| piece.size).sum();
    let most = bytes.div_ceil(BLOCKS as u64).next_multiple_of(LEAST as u64).clamp(LEAST as u64, MOST as u64);
    if pieces.iter().all(|piece| piece.size <= most) {
        return pieces.into();
    }
    let parts = |piece: &KernelPiece| {
        let KernelPiece { to, from, size } = *piece;
        let part = move |done| KernelPiece { to: to + done, from: from + done, size: most.min(size - done) };
        (0..size).step_by(most as usize).map(part)
    };
    pieces.iter().flat_map(parts).collect()
}

/// The parts of each launch.
fn launches(count: usize) -> Vec<Range<usize>> {
    (0..count).step_by(MANY).map(|first| first..count.min(first + MANY)).collect()
}

/// The threads for a part, and the blocks of a launch.
fn shape(parts: &[KernelPiece]) -> (usize, usize) {
    let bytes: u64 = parts.iter().map(|part| part.size).sum();
    let is_small = bytes < (SMALL * parts.len()) as u64;
    let group = if is_small && parts.len() > BLOCKS { WARP } else { THREADS };
    (group, parts.len().div_ceil(THREADS / group).min(BLOCKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(count: usize, size: usize) -> Vec<KernelPiece> {
        let piece =
            |n: usize| KernelPiece { to: (n << 32) as u64, from: (n << 32 | 1 << 31) as u64, size: size as u64 };
        (0..count).map(piece).collect()
    }

    #[test]
    fn each_piece_is_in_one_launch() {
        for count in [0, 1, 168, 169, 1360, 1361, 5000] {
            let launches = launches(count);
            assert_eq!(launches.len(), count.div_ceil(MANY));
            assert!(launches.iter().cloned().flatten().eq(0..count), "{count}");
        }
    }

    #[test]
    fn large_pieces_are_divided_among_the_blocks() {
        for (count, size, parts) in [(1, 1, 1), (1, 4096, 1), (1, 64 << 10, 16), (1, 1 << 20, 32), (8, 64 << 10, 32)] {
            let whole = pieces(count, size);
            let divided = divided(&whole);
            assert_eq!(divided.len(), parts, "{count} of {size}");
            // The parts of a piece follow each other, on both sides.
            for (n, piece) in whole.iter().enumerate() {
                let own = &divided[n * parts / count..(n + 1) * parts / count];
                let sizes = own.iter().scan(0, |done, part| Some(core::mem::replace(done, *done + part.size)));
                for (part, done) in own.iter().zip(sizes) {
                    assert_eq!((part.to, part.from), (piece.to + done, piece.from + done));
                }
                assert_eq!(own.iter().map(|part| part.size).sum::<u64>(), piece.size);
            }
        }
        for (count, size) in [(32, 16 << 10), (168, 64 << 10), (5000, 100), (33, 4096)] {
            let whole = pieces(count, size);
            assert_eq!(*divided(&whole), *whole, "{count} of {size}");
        }
        assert_eq!(divided(&pieces(1, (1 << 20) + 5)).last().unwrap().size, ((1 << 20) + 5) % (36 << 10));
    }

    #[test]
    fn many_small_pieces_have_a_warp_each() {
        for (count, size, expected) in [
            (1, 1, (THREADS, 1)),
            (16, 4096, (THREADS, 16)),
            (32, 64 << 10, (THREADS, 32)),
            (33, 4096, (WARP, 5)),
            (168, 512, (WARP, 21)),
            (168, 8192, (THREADS, 32)),
            (1360, 100, (WARP, 32)),
            (1360, 16 << 10, (THREADS, 32)),
        ] {
            assert_eq!(shape(&pieces(count, size)), expected, "{count} of {size}");
        }
    }
}
