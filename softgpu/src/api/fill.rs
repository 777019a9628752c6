//! Fills.

use crate::call::{Result, driver_calls, ensure};
use crate::state::Global;

use crate::state::contexts::{Context, current};
use crate::state::copies::{Fill, Rows, Side, Word};
use crate::state::memory::Use;
use crate::state::streams::Stream;
use cuda_sys::{CUdeviceptr, CUresult, CUstream};
use std::ffi::{c_uchar, c_uint, c_ushort};

driver_calls! {
    |global: &'static Global|

    /// Fills memory with a byte.
    fn cuMemsetD8_v2[Locked, cuMemsetD8_v2_ptds](dstDevice: CUdeviceptr, uc: c_uchar, N: usize) {
        fill(global, dstDevice, 0, Word::Byte(uc), N, 1, Fill::now)
    }

    /// Fills memory with a 16-bit word.
    fn cuMemsetD16_v2[Locked, cuMemsetD16_v2_ptds](dstDevice: CUdeviceptr, us: c_ushort, N: usize) {
        fill(global, dstDevice, 0, Word::Half(us), N, 1, Fill::now)
    }

    /// Fills memory with a 32-bit word.
    fn cuMemsetD32_v2[Locked, cuMemsetD32_v2_ptds](dstDevice: CUdeviceptr, ui: c_uint, N: usize) {
        fill(global, dstDevice, 0, Word::Full(ui), N, 1, Fill::now)
    }

    /// Fills rows with a byte.
    fn cuMemsetD2D8_v2[Locked, cuMemsetD2D8_v2_ptds](dstDevice: CUdeviceptr, dstPitch: usize, uc: c_uchar, Width: usize, Height: usize) {
        fill(global, dstDevice, dstPitch, Word::Byte(uc), Width, Height, Fill::now)
    }

    /// Fills rows with a 16-bit word.
    fn cuMemsetD2D16_v2[Locked, cuMemsetD2D16_v2_ptds](dstDevice: CUdeviceptr, dstPitch: usize, us: c_ushort, Width: usize, Height: usize) {
        fill(global, dstDevice, dstPitch, Word::Half(us), Width, Height, Fill::now)
    }

    /// Fills rows with a 32-bit word.
    fn cuMemsetD2D32_v2[Locked, cuMemsetD2D32_v2_ptds](dstDevice: CUdeviceptr, dstPitch: usize, ui: c_uint, Width: usize, Height: usize) {
        fill(global, dstDevice, dstPitch, Word::Full(ui), Width, Height, Fill::now)
    }

    /// Fills memory with a byte in stream order.
    fn cuMemsetD8Async[Locked, cuMemsetD8Async_ptsz](dstDevice: CUdeviceptr, uc: c_uchar, N: usize, hStream: CUstream) {
        queue(global, dstDevice, 0, Word::Byte(uc), N, 1, hStream)
    }

    /// Fills memory with a 16-bit word in stream order.
    fn cuMemsetD16Async[Locked, cuMemsetD16Async_ptsz](dstDevice: CUdeviceptr, us: c_ushort, N: usize, hStream: CUstream) {
        queue(global, dstDevice, 0, Word::Half(us), N, 1, hStream)
    }

    /// Fills memory with a 32-bit word in stream order.
    fn cuMemsetD32Async[Locked, cuMemsetD32Async_ptsz](dstDevice: CUdeviceptr, ui: c_uint, N: usize, hStream: CUstream) {
        queue(global, dstDevice, 0, Word::Full(ui), N, 1, hStream)
    }

    /// Fills rows with a byte in stream order.
    fn cuMemsetD2D8Async[Locked, cuMemsetD2D8Async_ptsz](
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        uc: c_uchar,
        Width: usize,
        Height: usize,
        hStream: CUstream,
    ) {
        queue(global, dstDevice, dstPitch, Word::Byte(uc), Width, Height, hStream)
    }

    /// Fills rows with a 16-bit word in stream order.
    fn cuMemsetD2D16Async[Locked, cuMemsetD2D16Async_ptsz](
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        us: c_ushort,
        Width: usize,
        Height: usize,
        hStream: CUstream,
    ) {
        queue(global, dstDevice, dstPitch, Word::Half(us), Width, Height, hStream)
    }

    /// Fills rows with a 32-bit word in stream order.
    fn cuMemsetD2D32Async[Locked, cuMemsetD2D32Async_ptsz](
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        ui: c_uint,
        Width: usize,
        Height: usize,
        hStream: CUstream,
    ) {
        queue(global, dstDevice, dstPitch, Word::Full(ui), Width, Height, hStream)
    }
}

/// Fills memory in the current context, after its work.
fn fill(
    global: &Global,
    address: CUdeviceptr,
    pitch: usize,
    word: Word,
    words: usize,
    count: usize,
    run: impl FnOnce(Fill) -> Result,
) -> Result {
    checked(global, &*current(global)?, address, pitch, word, words, count)?.map_or(Ok(()), run)
}

/// Fills memory in stream order, in the stream's context. No context need be current.
fn queue(
    global: &Global,
    address: CUdeviceptr,
    pitch: usize,
    word: Word,
    words: usize,
    count: usize,
    stream: CUstream,
) -> Result {
    let context = Stream::find(global, stream)?.context.clone();
    let fill = checked(global, &context, address, pitch, word, words, count)?;
    fill.map_or(Ok(()), |fill| fill.queued(stream))
}

/// Checks a fill of `count` rows of `words` words. `None` if it fills nothing.
pub(super) fn checked(
    global: &Global,
    context: &Context,
    address: CUdeviceptr,
    pitch: usize,
    word: Word,
    words: usize,
    count: usize,
) -> Result<Option<Fill>> {
    if words == 0 || count == 0 {
        return Ok(None);
    }
    let overflow = CUresult::CUDA_ERROR_INVALID_VALUE;
    let width = words.checked_mul(word.size()).ok_or(overflow)?;
    ensure(address.is_multiple_of(word.size() as u64))?;
    ensure(count == 1 || pitch >= width && pitch.is_multiple_of(word.size()))?;
    let length = (count - 1).checked_mul(pitch).and_then(|rows| rows.checked_add(width)).ok_or(overflow)?;
    let range = global.memory.range(address, length, context.device, Use::Write)?;
    ensure(range.block.as_deref().is_none_or(|block| block.is_reached_by(context)))?;
    Ok(Some(Fill { to: Side { range, pitch }, rows: Rows { width, count }, word }))
}
