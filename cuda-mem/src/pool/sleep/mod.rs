//! Pools that sleep. A pool that grows in place gives its physical memory back and keeps its addresses. When it wakes, new
//! memory is mapped at the same addresses, with the old contents if they were saved.
//!
//! Each change has three steps, so that a failure leaves the state before or the state after. The first refuses all use of
//! the memory; the second waits, with nothing held; the third copies, and maps or unmaps in the pool's turn.

mod plan;
mod saved;

use super::in_place::{Chunks, Placed, size_of};
use super::shared::{PoolState, SharedPool};
use super::work_order::WorkOrder;
use crate::error::{CaptureRefusal, SleepError};
use crate::lifetime::captures::captures_under_way;
use crate::lifetime::{check_outside, waiting};
use crate::memory::asleep::{self, Listed};
use crate::memory::resource::{Block, MemoryResource, ResourceHandle, SharedResource};
use crate::memory::virtual_memory::total_size;
use crate::memory::{PhysicalMemory, PinnedMemory};
use crate::{Error, Result};
use core::mem;
use core::ops::Range;
use core::time::Duration;
use saved::{Restored, Saved};
use std::time::Instant;
use stream_heap::HeapRange;

const SLEEP: &str = "Pool::sleep";
const WAKE: &str = "Pool::wake";

/// How much memory is mapped before its contents are copied, while more is mapped: the copy takes 10 ms, and the first one
/// waits for 1 ms of mapping.
const WAKE_STEP: usize = 512 << 20;

/// What becomes of the contents of a pool that sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contents {
    /// They are copied to host memory, and back when the pool wakes.
    #[default]
    Save,
    /// They are lost. When the pool wakes, its blocks have any contents, as new memory of the driver.
    Discard,
}

/// How a pool sleeps.
///
/// ```
/// use cuda_mem::pool::{Contents, SleepOptions};
/// let mut options = SleepOptions::default();
/// options.contents = Contents::Discard;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SleepOptions {
    /// Whether the contents are saved. They are by default.
    pub contents: Contents,
    /// Where they are saved: [`PinnedMemory`], or a pool over it. By default the call allocates
    /// page-locked memory, which takes longer than the copies: 60 ms for a GiB. So a program that sleeps often
    /// passes a pool of pinned memory that has room already.
    pub host: Option<SharedResource>,
    /// How long the call waits for a moment in which no queued work waits for the CPU. 10 s by default.
    pub patience: Duration,
}

impl Default for SleepOptions {
    fn default() -> Self {
        Self { contents: Contents::default(), host: None, patience: Duration::from_secs(10) }
    }
}

/// What a pool did when it fell asleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Slept {
    /// How many bytes lie in host memory.
    pub saved: usize,
    /// How many bytes the device got back.
    pub released: usize,
}

/// Whether a pool sleeps.
#[derive(Debug, Default)]
pub(super) enum SleepState {
    #[default]
    Awake,
    /// A thread puts the pool to sleep, or wakes it.
    Changing,
    Asleep(Sleeper),
}

/// Chunks side by side: the first address, and the sizes.
type Run = (u64, Vec<usize>);

/// What a pool needs to wake.
#[derive(Debug)]
pub(super) struct Sleeper {
    runs: Vec<Run>,
    saved: Option<Saved>,
    listed: Listed,
}

/// A change by this thread. Its drop sets the state that comes next.
struct Change<'pool> {
    pool: &'pool SharedPool,
    next: SleepState,
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        *self.pool.sleep.lock() = mem::take(&mut self.next);
    }
}

/// Keeps all use of the pool's memory out. Its drop lets it in again.
struct KeptOut<'pool> {
    pool: &'pool SharedPool,
    listed: Option<Listed>,
}

impl Drop for KeptOut<'_> {
    fn drop(&mut self) {
        if self.listed.take().is_some() {
            self.pool.let_in();
        }
    }
}

impl SharedPool {
    /// Lets others have the addresses of a pool that ends while it sleeps. Returns what to drop with nothing held.
    pub fn end_sleep(&mut self) -> Option<impl Sized + use<>> {
        match mem::take(self.sleep.get_mut()) {
            SleepState::Asleep(sleeper) => {
                drop(sleeper.listed);
                sleeper.saved
            }
            _ => None,
        }
    }

    pub fn is_asleep(&self) -> bool {
        matches!(*self.sleep.lock(), SleepState::Asleep(_))
    }

    pub fn fall_asleep(&self, options: &SleepOptions) -> Result<Slept> {
        check_outside()?;
        let chunks = self.chunks_on_device()?;
        let mut change = {
            let mut state = self.sleep.lock();
            match *state {
                SleepState::Awake => *state = SleepState::Changing,
                SleepState::Changing => return Err(SleepError::UnderWay { call: SLEEP }.into()),
                SleepState::Asleep(_) => return Err(SleepError::AlreadyAsleep { call: SLEEP }.into()),
            }
            Change { pool: self, next: SleepState::Awake }
        };
        // None: a patience without an end.
        let deadline = Instant::now().checked_add(options.patience);
        // First beside other threads, which may have to do what the work waits for.
        self.wait_for_users(chunks, deadline)?;
        let mut kept_out = self.keep_out(chunks)?;
        self.wait_for_users(chunks, deadline)?;
        self.unmap_stale_chunks(chunks)?;
        let saved = match options.contents {
            Contents::Save => Some(self.room_for_contents(options)?),
            Contents::Discard => None,
        };
        let runs = sizes_of(chunks);
        match &saved {
            Some(saved) => self.save_and_unmap(chunks, saved, &runs)?,
            None => self.unmap_all(chunks)?,
        }
        let left: usize = chunks.runs().iter().map(|(_, run)| total_size(run)).sum();
        let released = runs.iter().flat_map(|(_, sizes)| sizes).sum::<usize>() - left;
        self.state().asleep = Some(released as u64);
        let slept = Slept { saved: saved.as_ref().map_or(0, Saved::size), released };
        if let Some(listed) = kept_out.listed.take() {
            change.next = SleepState::Asleep(Sleeper { runs, saved, listed });
        }
        Ok(slept)
    }

    pub fn wake(&self) -> Result<()> {
        check_outside()?;
        let chunks = self.chunks_on_device()?;
        // The drop puts the pool back to sleep, unless it has woken.
        let mut change = {
            let mut state = self.sleep.lock();
            match *state {
                SleepState::Asleep(_) => {}
                SleepState::Changing => return Err(SleepError::UnderWay { call: WAKE }.into()),
                SleepState::Awake => return Err(SleepError::Awake { call: WAKE }.into()),
            }
            Change { pool: self, next: mem::replace(&mut *state, SleepState::Changing) }
        };
        if let SleepState::Asleep(sleeper) = &change.next {
            self.restore(chunks, &sleeper.runs, sleeper.saved.as_ref())?;
        }
        if let SleepState::Asleep(sleeper) = mem::take(&mut change.next) {
            drop(sleeper.listed);
            self.let_in();
        }
        Ok(())
    }

    /// The chunks of a pool that can sleep.
    fn chunks_on_device(&self) -> Result<&Chunks> {
        let chunks = self.source.chunks.as_ref().filter(|chunks| chunks.memory().inner.is_on_device());
        chunks.ok_or_else(|| Error::Unsupported {
            feature: "sleep of a pool of regions, or of host memory",
            needs: "a pool that grows in place: over DeviceMemory with PoolOptions::in_place and a maximum of at least 64 MiB, \
                    or over VirtualMemory of the device"
                .into(),
        })
    }

    /// Refuses allocations and work on buffers from now on, after a growth or a trim that is under way.
    fn keep_out(&self, chunks: &Chunks) -> Result<KeptOut<'_>> {
        let _turn = self.resizing.enter();
        let runs = chunks.runs();
        let addresses = runs.iter().map(|(start, run)| *start..*start + total_size(run) as u64);
        let listed = asleep::list(self.context().driver(), addresses);
        let mut state = self.state();
        state.asleep = Some(0);
        let kept_out = KeptOut { pool: self, listed: Some(listed) };
        let Some(spill) = self.caches.close() else {
            drop(state);
            return Err(Error::Unsupported {
                feature: "sleep of a pool",
                needs: "the system call membarrier, which a sandbox of this process forbids".into(),
            });
        };
        state.take_back_all(spill);
        Ok(kept_out)
    }

    fn let_in(&self) {
        self.state().asleep = None;
        self.caches.open();
    }

    /// Waits for the work of all contexts that may use the memory.
    fn wait_for_users(&self, chunks: &Chunks, deadline: Option<Instant>) -> Result<()> {
        let _relaxed = self.source.relaxed()?;
        for context in chunks.memory().inner.contexts_of_users()? {
            loop {
                let until = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
                let left = deadline.map_or(Duration::MAX, until);
                if context.try_synchronize(&SLEEP, left)? {
                    break;
                }
                let waits = context.cpu_waits();
                // Without such work, only a capture can be in the way.
                if captures_under_way() || waits.is_empty() && left.is_zero() {
                    return Err(CaptureRefusal::RecordsOnly.of(SLEEP));
                }
                if left.is_zero() {
                    return Err(SleepError::Busy { call: SLEEP, waits: waits.join("; ").into() }.into());
                }
                // A capture that has just ended was in the way.
                waiting::nap(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Unmaps what chunks have left behind that have moved.
    fn unmap_stale_chunks(&self, chunks: &Chunks) -> Result<()> {
        self.wait_for_freed(false)?;
        let _relaxed = self.source.relaxed()?;
        let _turn = self.resizing.enter();
        let stale = self.state().heap.stale();
        for block in stale {
            chunks.unmap(block)?;
            self.state().heap.vacated(block);
        }
        if self.state().heap.all_stale().is_empty() {
            return Ok(());
        }
        // Two addresses of one chunk could not wake as one.
        let waits =
            "a graph of another library uses memory at addresses that the pool has left: destroy the graph".into();
        Err(SleepError::Busy { call: SLEEP, waits }.into())
    }

    /// Memory of the host for the contents of all used memory.
    fn room_for_contents(&self, options: &SleepOptions) -> Result<Saved> {
        // A graph may read bytes that were freed since it was captured.
        let is_needed =
            |range: &HeapRange<WorkOrder>| range.used || range.stream.as_ref().is_some_and(WorkOrder::waits_for_graphs);
        let needed = |(_, ranges): (Block, Vec<HeapRange<WorkOrder>>)| {
            ranges.into_iter().filter(is_needed).map(|range| range.bytes).collect()
        };
        let mut needed: Vec<Vec<Range<u64>>> = self.state().heap.ranges().into_iter().map(needed).collect();
        needed.sort_unstable_by_key(|ranges| ranges.first().map(|range| range.start));
        let default = || PinnedMemory::new(self.context()).share();
        let host = options.host.clone().unwrap_or_else(default);
        let _relaxed = self.source.relaxed()?;
        Saved::new(&self.source.own, &host, needed)
    }

    /// Saves the contents, and gives memory back while the rest is saved. An error leaves the pool as it was. If the undoing
    /// fails, the pool falls asleep, and the errors are drop errors.
    fn save_and_unmap(&self, chunks: &Chunks, saved: &Saved, runs: &[Run]) -> Result<()> {
        let own = &self.source.own;
        let _relaxed = self.source.relaxed()?;
        let all: Vec<Range<u64>> = each_chunk(runs).collect();
        let mut unmapped = 0;
        let mut unmap_below = |address: u64| {
            let _turn = self.resizing.enter();
            while let Some(chunk) = all.get(unmapped).filter(|chunk| chunk.end <= address) {
                chunks.unmap_at(chunk)?;
                unmapped += 1;
            }
            Ok(())
        };
        let outcome = saved.save(own).and_then(|steps| {
            steps.iter().try_for_each(|(event, address)| {
                event.wait_beside_captures()?;
                unmap_below(*address)
            })?;
            // What holds no contents.
            unmap_below(u64::MAX)
        });
        let Err(error) = outcome else { return Ok(()) };
        // Copies may run.
        own.wait_certainly()?;
        if unmapped == 0 {
            return Err(error);
        }
        let Err(undoing) = self.restore(chunks, runs, Some(saved)) else { return Err(error) };
        self.note_undoing([error, undoing]);
        Ok(())
    }

    /// Notes why a pool falls asleep only in part, or against the answer of the driver.
    fn note_undoing(&self, [error, undoing]: [Error; 2]) {
        let errors = self.context().drop_errors();
        errors.push("putting a pool to sleep", error);
        errors.push("undoing that", undoing);
    }

    /// Unmaps all chunks, whose memory ends. An error leaves all as it was. If the undoing fails, the pool falls asleep with
    /// the rest of its memory, and the errors are drop errors.
    fn unmap_all(&self, chunks: &Chunks) -> Result<()> {
        let _relaxed = self.source.relaxed()?;
        let _turn = self.resizing.enter();
        let runs = chunks.runs();
        for (number, (start, run)) in runs.iter().enumerate() {
            let Err(error) = chunks.unmap_at(&(*start..*start + total_size(run) as u64)) else {
                continue;
            };
            let undone = runs[..number].iter().try_for_each(|(start, run)| chunks.map(placed(*start, run)));
            let Err(undoing) = undone else { return Err(error) };
            self.note_undoing([error, undoing]);
            break;
        }
        Ok(())
    }

    /// Maps new memory where a pool had memory, and restores its contents, the first while the next memory is mapped. An error
    /// leaves nothing mapped, unless the undoing fails too.
    fn restore(&self, chunks: &Chunks, runs: &[Run], saved: Option<&Saved>) -> Result<()> {
        self.context().check_alive()?;
        let _relaxed = self.source.relaxed()?;
        let outcome = self.map_and_copy(chunks, runs, saved);
        // Also after an error: copies may run.
        let outcome = outcome.and(saved.map_or(Ok(()), |_| self.source.own.wait_certainly()));
        if outcome.is_err() {
            let _turn = self.resizing.enter();
            for (start, run) in chunks.runs() {
                if let Err(error) = chunks.unmap_at(&(start..start + total_size(&run) as u64)) {
                    self.context().drop_errors().push("undoing the wake of a pool", error);
                }
            }
        }
        outcome
    }

    fn map_and_copy(&self, chunks: &Chunks, runs: &[Run], saved: Option<&Saved>) -> Result<()> {
        let (mut new, mut restored): (Vec<Placed>, _) = (Vec::new(), Restored::default());
        let mut use_new = |new: Vec<Placed>, below| {
            {
                let _turn = self.resizing.enter();
                chunks.map(new)?;
            }
            saved.map_or(Ok(()), |saved| saved.restore(&self.source.own, &mut restored, below))
        };
        let mut size = 0;
        for chunk in each_chunk(runs) {
            // What an earlier undoing has left is used again.
            if chunks.at(chunk.start).is_none() {
                let bytes = size_of(&chunk);
                new.push((chunk.start, chunks.memory().inner.create(WAKE, bytes)?));
                size += bytes;
            }
            if size >= WAKE_STEP {
                use_new(mem::take(&mut new), chunk.end)?;
                size = 0;
            }
        }
        use_new(new, u64::MAX)
    }
}

impl PoolState {
    /// Refuses a call while the pool sleeps.
    #[inline]
    pub fn check_awake(&self, call: &'static str) -> Result<()> {
        match self.asleep {
            None => Ok(()),
            Some(_) => Err(SleepError::Asleep { call, address: None }.into()),
        }
    }
}

/// All chunks that are mapped, in order of their addresses.
fn sizes_of(chunks: &Chunks) -> Vec<Run> {
    let sizes = |(start, run): (u64, Vec<PhysicalMemory>)| (start, run.iter().map(PhysicalMemory::size).collect());
    let mut runs: Vec<Run> = chunks.runs().into_iter().map(sizes).collect();
    runs.sort_unstable_by_key(|(start, _)| *start);
    runs
}

/// The addresses of each chunk.
fn each_chunk(runs: &[Run]) -> impl Iterator<Item = Range<u64>> {
    runs.iter().flat_map(|(start, sizes)| {
        sizes.iter().scan(*start, |start, size| {
            let chunk = *start..*start + *size as u64;
            *start = chunk.end;
            Some(chunk)
        })
    })
}

/// Chunks side by side, each with its address.
fn placed(mut start: u64, run: &[PhysicalMemory]) -> Vec<Placed> {
    let place = |chunk: &PhysicalMemory| {
        let placed = (start, chunk.clone());
        start += chunk.size() as u64;
        placed
    };
    run.iter().map(place).collect()
}
