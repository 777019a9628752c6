//! Copies and fills: the work of a device's copy engines.

use crate::call::{Result, null_is_own};
use crate::state::Global;
use crate::state::checks::races::access::{self, Far};
use crate::state::checks::races::{self, Touched};
use crate::state::contexts::current;
use crate::state::graphs::capture;
use crate::state::graphs::{Params, Work};
use crate::state::memory::{Range, RangeOfLaunch, Use};
use crate::state::streams::Stream;
use cuda_sys::{CU_STREAM_PER_THREAD, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUmemorytype, CUstream};
use std::ptr;

/// The driver copies this much of a pageable source into its own memory before it returns, whatever the stream still does.
const MOST_STAGED: usize = 1 << 20;

/// Rows of bytes: `count` rows of `width` bytes. Each row begins `pitch` bytes after the one before; see [`Side`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) width: usize,
    pub(crate) count: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) range: Range,
    pub(crate) pitch: usize,
}

impl Side {
    /// The bytes of rows, for race checks.
    fn touched(&self, rows: Rows, purpose: Use) -> impl Iterator<Item = Touched> {
        (0..rows.count).filter_map(move |row| {
            let start = row * self.pitch;
            self.range.touched(start..start + rows.width, purpose)
        })
    }
}

impl From<Range> for Side {
    fn from(range: Range) -> Self {
        Self { pitch: range.length, range }
    }
}

/// Queues work on the thread's own default stream, and waits for it.
fn wait_own(queue: impl FnOnce() -> Result) -> Result {
    let stream = Stream::find(Global::get()?, CU_STREAM_PER_THREAD)?;
    capture::check_settled(&stream)?;
    queue()?;
    stream.synchronize();
    Ok(())
}

/// A checked copy.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) to: Side,
    pub(crate) from: Side,
    pub(crate) rows: Rows,
}

impl Copy {
    pub(crate) fn plain(to: Range, from: Range) -> Self {
        let rows = Rows { width: to.length, count: 1 };
        Self { to: to.into(), from: from.into(), rows }
    }

    fn run(&self) {
        self.from.range.check_flushed("a copy");
        for row in 0..self.rows.count {
            let from = ptr::with_exposed_provenance::<u8>(self.from.range.address + row * self.from.pitch);
            let to = ptr::with_exposed_provenance_mut::<u8>(self.to.range.address + row * self.to.pitch);
            // SAFETY: rows lie inside the ranges (checked when the copy was made). A range holds its allocation; the
            // caller vouches for the program's own memory. The ranges may overlap.
            unsafe { ptr::copy(from, to, self.rows.width) };
        }
    }

    /// Copies now, after the legacy default stream, or after the thread's own one.
    pub(crate) fn now(self) -> Result {
        if null_is_own() {
            return wait_own(|| self.queued(CU_STREAM_PER_THREAD));
        }
        let context = current(Global::get()?)?;
        // The call does not wait for copies inside a device.
        let waits = !(self.from.range.is_on_device() && self.to.range.is_on_device());
        capture::check_synchronous(&context, waits)?;
        self.from.range.check_live("a copy")?;
        self.to.range.check_live("a copy")?;
        context.wait_legacy();
        self.from.range.check_waited("a copy");
        self.to.range.check_waited("a copy");
        context.touch_now("a copy", || self.touched(), waits);
        let _inside = access::copy(None, "a copy", || self.far(context.device));
        self.run();
        Ok(())
    }

    /// Copies in stream order. As in the driver, the copy does not touch pageable memory after the call: it reads a little of a
    /// pageable source at once, and returns from other copies of pageable memory, and from copies within host memory, only when
    /// they are done. Until then it holds the context's lock, as on an H200 (driver 580).
    pub(crate) fn queued(mut self, stream: CUstream) -> Result {
        let stream = Stream::find(Global::get()?, stream)?;
        if capture::enter(&stream)? {
            stream.note_recorded("a copy", || self.touched());
            return capture::add(&stream, Params::Copy(self.stated()), self.recorded());
        }
        self.from.range.check_live("a copy")?;
        self.to.range.check_live("a copy")?;
        let is_large = self.rows.width * self.rows.count > MOST_STAGED;
        let wait = match (self.to.range.is_pageable(), self.from.range.is_pageable()) {
            (true, _) => true,
            (false, true) => is_large || self.to.range.is_page_locked(),
            (false, false) => self.to.range.is_page_locked() && self.from.range.is_page_locked(),
        };
        let writes = self.to.range.to_be_written();
        let mut noted = stream.touch("a copy", || self.touched());
        let _inside = stream.copy_far("a copy", || self.far(stream.context.device));
        if self.from.range.is_pageable() && !wait {
            let staged = self.stage();
            stream.submit(Vec::new(), move || {
                self.from = Side {
                    range: Range::of_program(staged.as_ptr().expose_provenance(), staged.len()),
                    pitch: self.rows.width,
                };
                noted.begin();
                self.run();
                drop((writes, noted));
            })?;
            return Ok(());
        }
        let run = move || {
            noted.begin();
            self.run();
            drop((writes, noted));
        };
        let end = wait.then(|| stream.moment());
        let point = stream.submit(Vec::new(), run)?;
        if let Some(end) = end {
            stream.context.wait_with_lock(&point);
            races::observe(&end);
        }
        Ok(())
    }

    /// The copy as a program would state it.
    fn stated(&self) -> CUDA_MEMCPY3D {
        CUDA_MEMCPY3D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
            srcDevice: self.from.range.address as u64,
            srcPitch: self.from.pitch,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
            dstDevice: self.to.range.address as u64,
            dstPitch: self.to.pitch,
            WidthInBytes: self.rows.width,
            Height: self.rows.count,
            Depth: 1,
            ..Default::default()
        }
    }

    /// The copy as a node of a graph. Each launch touches pageable memory too.
    pub(crate) fn recorded(self) -> Work {
        let ranges = [RangeOfLaunch::new(&self.to.range), RangeOfLaunch::new(&self.from.range)];
        let ([to_pitch, from_pitch], rows) = ([self.to.pitch, self.from.pitch], self.rows);
        Work::Again(Box::new(move |stream| {
            let [to, from] = &ranges;
            let to = Side { range: to.find()?, pitch: to_pitch };
            let copy = Copy { to, from: Side { range: from.find()?, pitch: from_pitch }, rows };
            let writes = copy.to.range.to_be_written();
            let mut noted = stream.touch("a graph's copy", || copy.touched());
            Ok(Box::new(move || {
                noted.begin();
                copy.run();
                drop((writes, noted));
            }))
        }))
    }

    fn touched(&self) -> Vec<Touched> {
        let written = self.to.touched(self.rows, Use::Write);
        written.chain(self.from.touched(self.rows, Use::Read)).collect()
    }

    /// The memory to which access must not change, if the copy is between devices.
    fn far(&self, device: usize) -> Vec<Far> {
        let (to, from) = (&self.to.range, &self.from.range);
        let owner = |range: &Range| range.block.as_ref().filter(|_| range.is_on_device()).map(|block| block.device);
        match owner(to).zip(owner(from)) {
            Some((there, here)) if there != here => {
                to.blocks().chain(from.blocks()).filter_map(|block| Far::new(block, [here, there, device])).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The source's bytes, row after row.
    fn stage(&self) -> Vec<u8> {
        let mut staged = vec![0_u8; self.rows.width * self.rows.count];
        for (row, to) in staged.chunks_exact_mut(self.rows.width.max(1)).enumerate() {
            let from = ptr::with_exposed_provenance::<u8>(self.from.range.address + row * self.from.pitch);
            // SAFETY: as in `run`; `to` is as long as a row.
            unsafe { ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        }
        staged
    }
}

/// A checked fill with words of 1, 2 or 4 bytes.
#[derive(Clone, Debug)]
pub(crate) struct Fill {
    pub(crate) to: Side,
    /// Widths in bytes.
    pub(crate) rows: Rows,
    pub(crate) word: Word,
}

/// The word with which memory is filled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word {
    Byte(u8),
    Half(u16),
    Full(u32),
}

impl Word {
    pub(crate) fn size(self) -> usize {
        match self {
            Word::Byte(_) => 1,
            Word::Half(_) => 2,
            Word::Full(_) => 4,
        }
    }
}

/// Writes `count` equal words: copies of an array of them, which are fast in builds without optimisation too.
///
/// # Safety
///
/// The words lie within memory.
unsafe fn repeat<T: core::marker::Copy, const N: usize>(to: *mut T, words: &[T; N], count: usize) {
    let mut done = 0;
    while done < count {
        let some = N.min(count - done);
        // SAFETY: this function's contract.
        unsafe { ptr::copy_nonoverlapping(words.as_ptr(), to.add(done), some) };
        done += some;
    }
}

impl Fill {
    fn run(&self) {
        for row in 0..self.rows.count {
            let to = ptr::with_exposed_provenance_mut::<u8>(self.to.range.address + row * self.to.pitch);
            let words = self.rows.width / self.word.size();
            // SAFETY: rows lie inside the range, and address and pitch suit the word (checked when the fill was made).
            // The range holds its allocation.
            unsafe {
                match self.word {
                    Word::Byte(byte) => to.write_bytes(byte, words),
                    Word::Half(half) => repeat(to.cast(), &[half; 512], words),
                    Word::Full(full) => repeat(to.cast(), &[full; 256], words),
                }
            }
        }
    }

    fn touched(&self) -> Vec<Touched> {
        self.to.touched(self.rows, Use::Write).collect()
    }

    /// Fills now, after the legacy default stream, or after the thread's own one.
    pub(crate) fn now(self) -> Result {
        if null_is_own() {
            return wait_own(|| self.queued(CU_STREAM_PER_THREAD));
        }
        let context = current(Global::get()?)?;
        let waits = !self.to.range.is_on_device();
        capture::check_synchronous(&context, waits)?;
        self.to.range.check_live("a fill")?;
        context.wait_legacy();
        self.to.range.check_waited("a fill");
        context.touch_now("a fill", || self.touched(), waits);
        self.run();
        Ok(())
    }

    pub(crate) fn queued(self, stream: CUstream) -> Result {
        let stream = Stream::find(Global::get()?, stream)?;
        if capture::enter(&stream)? {
            stream.note_recorded("a fill", || self.touched());
            return capture::add(&stream, Params::Fill(self.stated()), self.recorded());
        }
        self.to.range.check_live("a fill")?;
        let writes = self.to.range.to_be_written();
        let mut noted = stream.touch("a fill", || self.touched());
        let run = move || {
            noted.begin();
            self.run();
            drop((writes, noted));
        };
        stream.submit(Vec::new(), run).map(drop)
    }

    /// The fill as a program would state it.
    fn stated(&self) -> CUDA_MEMSET_NODE_PARAMS {
        let (value, size) = match self.word {
            Word::Byte(byte) => (u32::from(byte), 1),
            Word::Half(half) => (u32::from(half), 2),
            Word::Full(full) => (full, 4),
        };
        CUDA_MEMSET_NODE_PARAMS {
            dst: self.to.range.address as u64,
            pitch: self.to.pitch,
            value,
            elementSize: size,
            width: self.rows.width / size as usize,
            height: self.rows.count,
        }
    }

    pub(crate) fn recorded(self) -> Work {
        let (range, pitch, rows, word) = (RangeOfLaunch::new(&self.to.range), self.to.pitch, self.rows, self.word);
        Work::Again(Box::new(move |stream| {
            let fill = Fill { to: Side { range: range.find()?, pitch }, rows, word };
            let writes = fill.to.range.to_be_written();
            let mut noted = stream.touch("a graph's fill", || fill.touched());
            Ok(Box::new(move || {
                noted.begin();
                fill.run();
                drop((writes, noted));
            }))
        }))
    }
}
