//! Copies through page-locked staging. The device's copy engine moves large pieces between device memory and slots,
//! while threads copy small parts between the slots and host memory, or read them from a file.
//!
//! Threads claim parts in order. Slots are reused: in *round* `r`, slot `number` holds piece `r * slots + number`. The
//! thread that finishes the last part of a piece hands the slot to the driver. If the bytes come from a file, the thread hands
//! over the pieces that may be sent now ([`sending`](super::sending)). So each piece needs one driver call, whatever the number
//! of threads.
//!
//! The threads are the program's, so only the calls that queue a piece enter the stream's gate. A capture may begin between
//! two pieces. Then the next piece is refused, and the copy fails.

use super::file::{DIRECT_BLOCK, FileRange};
use super::job::Job;
use super::method::{CopyMethod, Direction};
use super::sending::Sending;
use super::staging::{Lease, Staging, StagingSlot};
use super::threads::ThreadPool;
use crate::cpu::host_copy::{self, Stores};
use crate::error::callback::or_undo;
use crate::lifetime::waiting::{self, Target};
use crate::locks::Mutex;
use crate::{Error, Result};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use core::time::Duration;
use cuda_sys::{CU_STREAM_PER_THREAD, CUdeviceptr};
use std::time::Instant;

/// How long a thread polls the device. Then the caller's thread waits, and a helper leaves.
const PATIENCE: Duration = Duration::from_micros(100);
/// The smallest piece, unless slots are smaller. Between two copies of one stream, with the events after them, a GPU
/// takes about 3 us to the device and 10 us from it.
fn smallest_piece(direction: Direction) -> usize {
    match direction {
        Direction::ToDevice => 512 << 10,
        Direction::FromDevice => 1 << 20,
    }
}

/// The least number of pieces of a large copy. Nothing overlaps with the first and the last piece.
fn pieces(direction: Direction) -> usize {
    match direction {
        Direction::ToDevice => 16,
        Direction::FromDevice => 8,
    }
}

/// The smallest part, in bytes.
const SMALLEST_PART: usize = 32 << 10;
/// The smallest part of a file, in bytes: disks give little for less.
const SMALLEST_PART_OF_FILE: usize = 256 << 10;
/// How long a thread sleeps while others still read from a file, or the slot is not sent yet.
const NAP: Duration = Duration::from_micros(50);
/// From this size on the CPU's copies bypass its caches: cached stores would fetch each line first, usually from
/// another CPU's cache, and evict everything else.
const STREAMING_FROM: usize = 512 << 10;

/// Where the host side of a copy is.
#[derive(Clone, Copy)]
pub(super) enum HostBytes<'copy> {
    /// In memory: the host side of the job's `sides`.
    Memory,
    /// In a file, from which a copy to the device reads.
    File(&'copy FileRange<'copy>),
}

/// The division of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StagedPlan {
    /// In bytes, with the skew.
    size: usize,
    /// The bytes of the first piece that come before the copy's: pieces of a file begin at its blocks.
    skew: usize,
    /// Bytes that the driver copies at once.
    piece: usize,
    /// Bytes that a thread copies at once.
    part: usize,
}

impl StagedPlan {
    /// Several pieces, so that copies of the driver and of the threads overlap; and in each piece a part for each
    /// thread.
    fn new(size: usize, direction: Direction, threads: usize, slot_size: usize) -> Self {
        let piece =
            (size / pieces(direction)).max(smallest_piece(direction)).next_multiple_of(4096).min(slot_size).min(size);
        let part = piece.div_ceil(threads).max(SMALLEST_PART).next_multiple_of(64).min(piece);
        Self { size, skew: 0, piece, part }
    }

    /// As [`new`](Self::new), for a file, whose parts but the last are whole blocks if the slots are.
    fn of_file(size: usize, skew: usize, threads: usize, slot_size: usize) -> Self {
        let plan = Self::new(size + skew, Direction::ToDevice, threads, slot_size);
        let part = plan.part.max(SMALLEST_PART_OF_FILE).next_multiple_of(DIRECT_BLOCK).min(plan.piece);
        Self { skew, part, ..plan }
    }

    /// The range of the copy's bytes that a piece holds, and where in its slot they begin.
    fn bytes(&self, number: usize) -> (Range<usize>, usize) {
        let piece = self.piece(number);
        let begin = piece.start.max(self.skew);
        (begin - self.skew..piece.end - self.skew, begin - piece.start)
    }

    fn pieces(&self) -> usize {
        self.size.div_ceil(self.piece)
    }

    fn piece(&self, number: usize) -> Range<usize> {
        number * self.piece..((number + 1) * self.piece).min(self.size)
    }

    /// The number of parts in a piece.
    fn parts(&self, number: usize) -> usize {
        self.piece(number).len().div_ceil(self.part)
    }

    /// A part's piece and range. Parts are numbered through all pieces.
    fn part(&self, number: usize) -> Option<(usize, Range<usize>)> {
        let parts = self.piece.div_ceil(self.part);
        let (piece, part) = (number / parts, number % parts);
        if piece >= self.pieces() {
            return None;
        }
        let whole = self.piece(piece);
        let begin = whole.start + part * self.part;
        let end = (begin + self.part).min(whole.end);
        (begin < end).then_some((piece, begin..end))
    }
}

/// A slot that threads share.
struct SharedSlot<'lane> {
    /// The slot for driver calls. None while a thread makes one, without the lock: the call may wait.
    slot: Mutex<Option<&'lane mut StagingSlot>>,
    memory: *mut u8,
    /// For how many rounds the slot was handed to the driver.
    given: AtomicUsize,
    /// For how many rounds the CPU may use the slot.
    ready: AtomicUsize,
    /// Parts of the current piece that are not copied yet.
    left: AtomicUsize,
}

/// Who copies a piece, where some threads store.
const FREE: u8 = 0;
const STAGED: u8 = 1;
const STORED: u8 = 2;

struct Staged<'copy> {
    job: &'copy Job<'copy>,
    host: HostBytes<'copy>,
    plan: StagedPlan,
    turns: Vec<SharedSlot<'copy>>,
    /// The next part to claim.
    next: AtomicUsize,
    /// The pieces of a file that were sent.
    sending: Mutex<Sending>,
    /// Set while one thread asks the driver whether a copy is done; other threads use its result.
    asking: AtomicBool,
    /// Whether the CPU's copies bypass its caches.
    streaming: bool,
    /// One per piece, if some threads store.
    takers: Vec<AtomicU8>,
    stopped: AtomicBool,
    failed: Mutex<Option<Error>>,
}

// SAFETY: threads use different parts of a slot's memory, and the driver uses it when all parts are done, as the
// counters with release and acquire ensure.
unsafe impl Sync for Staged<'_> {}

/// Copies by [`CopyMethod::Staged`] or [`CopyMethod::Mixed`]. Returns the staging, whose last pieces may still be in
/// progress. After an error or a panic, none is.
pub(super) fn run(
    job: &Job<'_>,
    host: HostBytes<'_>,
    method: CopyMethod,
    threads: &ThreadPool,
    staging: &Staging,
) -> Result<Lease> {
    // Threads at the staging, including the calling thread, and threads that store.
    let (filling, storing) = match method {
        CopyMethod::Mixed { storing, staging } => (usize::from(staging), usize::from(storing)),
        _ => (method.threads(), 0),
    };
    let (size, slot_size) = (job.sides.size, staging.slot_size());
    let plan = match host {
        HostBytes::Memory => StagedPlan::new(size, job.sides.direction, filling, slot_size),
        HostBytes::File(file) => StagedPlan::of_file(size, file.skew(), filling, slot_size),
    };
    let mut lane = staging.take()?;
    let used = lane.slots.len().min(plan.pieces());
    let turn = |(number, slot): (usize, _)| SharedSlot::new(slot, plan.parts(number));
    let turns = lane.slots[..used].iter_mut().enumerate().map(turn).collect();
    debug_assert!(storing == 0 || matches!(host, HostBytes::Memory), "storing threads take pieces of a file away");
    let takers = if storing > 0 { (0..plan.pieces()).map(|_| AtomicU8::new(FREE)).collect() } else { vec![] };
    let copy = Staged {
        job,
        host,
        plan,
        turns,
        next: AtomicUsize::new(0),
        sending: Mutex::new(Sending::new(plan.pieces(), used)),
        asking: AtomicBool::new(false),
        streaming: job.sides.size >= STREAMING_FROM,
        takers,
        stopped: AtomicBool::new(false),
        failed: Mutex::default(),
    };
    let joined = AtomicUsize::new(0);
    let work = || {
        let outcome = match joined.fetch_add(1, Ordering::Relaxed) {
            0 => copy.help(false),
            // A disk takes longer than a thread's patience, so threads that read a file stay.
            number if number < filling => copy.help(matches!(host, HostBytes::Memory)),
            _ => {
                copy.store();
                Ok(())
            }
        };
        if let Err(error) = outcome {
            copy.stopped.store(true, Ordering::Relaxed);
            copy.failed.lock().get_or_insert(error);
        }
    };
    // A small copy has fewer parts than there are threads. `CU_STREAM_PER_THREAD` names another stream on each thread.
    let alone = job.stream.raw() == CU_STREAM_PER_THREAD;
    let helpers = if alone { 0 } else { (storing + filling - 1).min(plan.size.div_ceil(plan.part) - 1) };
    let run = || {
        if job.sides.direction == Direction::FromDevice {
            (0..used).try_for_each(|piece| copy.give(piece))?;
        }
        threads.run(helpers, &work);
        copy.failed.lock().take().map_or(Ok(()), Err)
    };
    // The caller gets the first error, or the panic.
    or_undo(run, || copy.turns.iter().for_each(|turn| drop(turn.with(StagingSlot::settle))))?;
    drop(copy);
    Ok(lane)
}

/// Its drop lets another thread ask.
struct Asking<'copy>(&'copy AtomicBool);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A slot that one thread has taken. Its drop puts the slot back.
struct TakenSlot<'turn, 'lane> {
    of: &'turn SharedSlot<'lane>,
    slot: Option<&'lane mut StagingSlot>,
}

impl Drop for TakenSlot<'_, '_> {
    fn drop(&mut self) {
        *self.of.slot.lock() = self.slot.take();
    }
}

impl<'lane> SharedSlot<'lane> {
    /// Makes driver calls with the slot. `given` and `ready` give each thread its time, so no thread waits here for long.
    fn with<R>(&self, calls: impl FnOnce(&mut StagingSlot) -> R) -> R {
        loop {
            let slot = self.slot.lock().take();
            let mut taken = TakenSlot { of: self, slot };
            match &mut taken.slot {
                Some(slot) => return calls(slot),
                // Nothing to put back.
                None => core::mem::forget(taken),
            }
            std::thread::yield_now();
        }
    }

    fn new(slot: &'lane mut StagingSlot, parts: usize) -> Self {
        let (memory, zero) = (slot.start(), || AtomicUsize::new(0));
        Self { slot: Mutex::new(Some(slot)), memory, given: zero(), ready: zero(), left: AtomicUsize::new(parts) }
    }
}

impl<'copy> Staged<'copy> {
    fn turn(&self, piece: usize) -> &SharedSlot<'copy> {
        &self.turns[piece % self.turns.len()]
    }

    fn round(&self, piece: usize) -> usize {
        piece / self.turns.len()
    }

    /// Hands a piece to the driver: to send the slot's bytes, or to fill the slot.
    fn give(&self, piece: usize) -> Result<()> {
        let (turn, (range, begin)) = (self.turn(piece), self.plan.bytes(piece));
        let device = self.job.device + range.start as CUdeviceptr;
        turn.with(|slot| match self.job.sides.direction {
            // SAFETY: the piece lies within the device side; the job's contract covers the rest.
            Direction::ToDevice => unsafe { slot.send(begin, device, range.len(), self.job.stream) },
            Direction::FromDevice => {
                slot.wait()?;
                // SAFETY: as above.
                unsafe { slot.fetch(device, range.len(), self.job.stream) }
            }
        })?;
        turn.given.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Whether the CPU may use a piece's slot: to write it, once the bytes sent before have left; to read it, once the
    /// piece has arrived. With `wait`, waits for the device.
    fn is_ready(&self, piece: usize, wait: bool) -> Result<bool> {
        let (turn, round) = (self.turn(piece), self.round(piece));
        if turn.ready.load(Ordering::Acquire) > round {
            return Ok(true);
        }
        let needed = match self.job.sides.direction {
            Direction::ToDevice => round,
            Direction::FromDevice => round + 1,
        };
        if turn.given.load(Ordering::Acquire) < needed {
            // Other threads still copy from or to the slot.
            return Ok(false);
        }
        if self.asking.load(Ordering::Relaxed) || self.asking.swap(true, Ordering::Acquire) {
            return Ok(false);
        }
        let _asking = Asking(&self.asking);
        if turn.ready.load(Ordering::Acquire) > round {
            return Ok(true);
        }
        let is_free = turn.with(|slot| {
            let is_free = wait || slot.is_free()?;
            if is_free { slot.wait().map(|()| true) } else { Ok(false) }
        })?;
        if is_free {
            turn.ready.store(round + 1, Ordering::Release);
        }
        Ok(is_free)
    }

    /// Copies parts until none are left.
    fn help(&self, may_leave: bool) -> Result<()> {
        let context = self.job.stream.context();
        // This thread will call the driver.
        let _current = context.bind()?;
        let mut waits_since = None;
        while !self.stopped.load(Ordering::Relaxed) {
            let number = self.next.load(Ordering::Relaxed);
            let Some((piece, range)) = self.plan.part(number) else { return Ok(()) };
            if !self.takes(piece) {
                // Storing threads work backwards: they have taken this piece and all later ones.
                return Ok(());
            }
            let impatient = waits_since.is_some_and(|since: Instant| since.elapsed() > PATIENCE);
            if !self.is_ready(piece, impatient && !may_leave)? {
                if impatient && may_leave {
                    return Ok(());
                }
                waits_since = waits_since.or_else(|| Some(Instant::now()));
                match self.host {
                    _ if !impatient => core::hint::spin_loop(),
                    HostBytes::Memory => std::thread::yield_now(),
                    HostBytes::File(_) => {
                        let _watched = waiting::enter(&"reads of other parts of a file", Target::THREAD);
                        waiting::nap(NAP);
                    }
                }
                continue;
            }
            if self.next.compare_exchange_weak(number, number + 1, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                continue;
            }
            waits_since = None;
            self.copy_part(piece, range)?;
        }
        Ok(())
    }

    /// Copies a part that this thread has claimed. The thread that copies the last part of a piece hands slots back.
    fn copy_part(&self, piece: usize, range: Range<usize>) -> Result<()> {
        let (turn, begin) = (self.turn(piece), self.plan.piece(piece).start);
        // SAFETY: the part lies within the slot, and no other thread uses it.
        let slot = unsafe { turn.memory.add(range.start - begin) };
        match self.host {
            // SAFETY: as above. A file that is read directly has slots of whole blocks, so a part that is not ends its
            // piece, and its last block lies within the slot.
            HostBytes::File(file) => unsafe { file.read(slot, range) }?,
            // SAFETY: as above, and the part lies within the host side, which staging does not overlap. The device has
            // written what is read from a slot.
            HostBytes::Memory => unsafe {
                let host = self.job.sides.host.add(range.start);
                let (from, to) = match self.job.sides.direction {
                    Direction::ToDevice => (host.cast_const(), slot),
                    Direction::FromDevice => (slot.cast_const(), host),
                };
                if self.streaming {
                    // `store` fences before `left` below publishes the part.
                    host_copy::store(from, to, range.len());
                } else {
                    core::ptr::copy_nonoverlapping(from, to, range.len());
                }
            },
        }
        // AcqRel: the last thread sees what the other threads copied.
        if turn.left.fetch_sub(1, Ordering::AcqRel) != 1 {
            return Ok(());
        }
        if matches!(self.host, HostBytes::File(_)) {
            while let Some(piece) = self.next_to_send() {
                self.give(piece)?;
            }
            return Ok(());
        }
        let following = piece + self.turns.len();
        self.expect_parts(following);
        match self.job.sides.direction {
            Direction::ToDevice => self.give(piece),
            Direction::FromDevice if following < self.plan.pieces() => self.give(following),
            Direction::FromDevice => Ok(()),
        }
    }

    /// Counts the parts of the piece that its slot holds next. No thread copies one before the slot is ready again.
    fn expect_parts(&self, piece: usize) {
        if piece < self.plan.pieces() {
            self.turn(piece).left.store(self.plan.parts(piece), Ordering::Relaxed);
        }
    }

    /// Claims the next piece of a file to send. Two threads may then queue two pieces in either order.
    fn next_to_send(&self) -> Option<usize> {
        let mut sending = self.sending.lock();
        // A slot without parts left may have a filled piece of the round before. `sending` does not ask for the next piece of
        // that slot, because the earlier one was not sent. Acquire: the driver sends what other threads have read.
        let piece = sending.next(|piece| self.turn(piece).left.load(Ordering::Acquire) == 0)?;
        // Under the lock, so that no thread takes the slot's next piece for filled.
        self.expect_parts(piece + self.turns.len());
        Some(piece)
    }

    /// Whether a piece passes through staging.
    fn takes(&self, piece: usize) -> bool {
        let Some(taker) = self.takers.get(piece) else { return true };
        match taker.compare_exchange(FREE, STAGED, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(taker) => taker == STAGED,
        }
    }

    /// Stores pieces, from the last backwards, until it meets a staged one.
    fn store(&self) {
        // Each thread fences its own stores; the caller's fence does not order them.
        let mut stores = Stores::begin();
        for (piece, taker) in self.takers.iter().enumerate().rev() {
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
            match taker.compare_exchange(FREE, STORED, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => self.job.sides.store_or_load(&mut stores, self.plan.piece(piece)),
                Err(STORED) => {}
                Err(_) => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_are_all_of_a_copy_and_lie_in_their_pieces(size in 1usize..20 << 20, threads in 1usize..17, slot in 1usize..3 << 20) {
            let plan = StagedPlan::new(size, Direction::FromDevice, threads, slot);
            prop_assert!(plan.piece <= slot && plan.piece >= 1 && plan.part >= 1 && plan.part <= plan.piece);
            let (mut at, mut number, mut counts) = (0, 0, vec![0; plan.pieces()]);
            while let Some((piece, range)) = plan.part(number) {
                prop_assert_eq!(range.start, at);
                prop_assert!(range.start >= plan.piece(piece).start && range.end <= plan.piece(piece).end);
                counts[piece] += 1;
                (at, number) = (range.end, number + 1);
            }
            prop_assert_eq!(at, size);
            for (piece, count) in counts.into_iter().enumerate() {
                prop_assert_eq!(count, plan.parts(piece));
            }
        }
    }

    proptest! {
        #[test]
        fn pieces_of_a_file_give_each_byte_once_and_begin_at_blocks(
            size in 1usize..9 << 20, skew in 0..DIRECT_BLOCK, threads in 1usize..17, blocks in 1usize..600,
        ) {
            let slot = blocks * DIRECT_BLOCK;
            let plan = StagedPlan::of_file(size, skew, threads, slot);
            let mut at = 0;
            for piece in 0..plan.pieces() {
                let (range, begin) = plan.bytes(piece);
                prop_assert!(range.start == at && !range.is_empty() && begin + range.len() <= slot);
                prop_assert_eq!(range.start + skew - begin, plan.piece(piece).start);
                at = range.end;
            }
            prop_assert_eq!(at, size);
            let mut number = 0;
            while let Some((piece, part)) = plan.part(number) {
                prop_assert!(part.start.is_multiple_of(DIRECT_BLOCK));
                prop_assert!(part.len().is_multiple_of(DIRECT_BLOCK) || part.end == plan.piece(piece).end);
                number += 1;
            }
        }
    }

    #[test]
    fn staged_plan_splits_only_large_copies_among_threads() {
        let plan = |size, threads, slot| StagedPlan::new(size, Direction::ToDevice, threads, slot);
        assert_eq!(plan(1 << 20, 4, 2 << 20), StagedPlan { size: 1 << 20, skew: 0, piece: 512 << 10, part: 128 << 10 });
        assert_eq!(plan(1 << 28, 8, 2 << 20), StagedPlan { size: 1 << 28, skew: 0, piece: 2 << 20, part: 256 << 10 });
        assert_eq!(StagedPlan::new(1 << 20, Direction::FromDevice, 8, 2 << 20).pieces(), 1);
        assert_eq!(plan(100, 8, 1 << 20), StagedPlan { size: 100, skew: 0, piece: 100, part: 100 });
        assert_eq!(plan(1 << 20, 2, 1000).pieces(), 1049);
    }
}
