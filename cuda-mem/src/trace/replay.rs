//! Doing a trace again.

use super::{Latency, Operation, Plan, Step};
use crate::resource::{Block, SharedResource};
use crate::{Context, Error, Result, Stream};
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};
use serde::Serialize;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What blocks are aligned to, in bytes: as CUDA's own allocations.
const ALIGNMENT: usize = 256;
/// A thread that waits for its turn looks so often before it lets others run.
const SPINS: usize = 100;
/// How many threads a replay starts at most.
const MOST_THREADS: usize = 1024;

/// What a trace can be done again on. A [`SharedResource`] is one.
pub trait Target: Sync {
    /// What holds a block.
    type Block: Send;

    /// Allocates at least `size` bytes, which are not 0, for work of `stream` from now on.
    ///
    /// # Errors
    ///
    /// There is no room, or something is broken.
    fn allocate(&self, size: usize, stream: &Stream) -> Result<Self::Block>;

    /// Frees a block in order of `stream`.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    ///
    /// # Safety
    ///
    /// The block is of this target's [`allocate`](Self::allocate), was not freed before, and only work given to `stream` so
    /// far uses it.
    unsafe fn free(&self, block: Self::Block, stream: &Stream) -> Result<()>;

    /// The context to make streams in.
    fn context(&self) -> &Context;

    /// The most bytes that were taken from the system so far, if that is known.
    fn peak_reserved(&self) -> Option<u64> {
        None
    }
}

impl Target for SharedResource {
    type Block = Block;

    fn allocate(&self, size: usize, stream: &Stream) -> Result<Block> {
        (**self).allocate(size, ALIGNMENT, stream)
    }

    unsafe fn free(&self, block: Block, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { (**self).deallocate(block, stream) }
    }

    fn context(&self) -> &Context {
        (**self).context()
    }
}

/// How a replay went. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ReplayReport {
    /// How long allocations took, each by itself.
    pub allocate: Latency,
    /// How long frees took.
    pub free: Latency,
    /// What reading the clock takes, which is taken off every time.
    pub clock_ns: u64,
    /// How often there was no memory. The blocks are left out.
    pub out_of_memory: u64,
    /// The most that was asked for in blocks that were there at a time.
    pub peak_requested: u64,
    /// The most that was taken from the system, if that is known.
    pub peak_reserved: Option<u64>,
    /// How many streams and threads took part.
    pub streams: usize,
    /// As `streams`.
    pub threads: usize,
}

impl ReplayReport {
    /// Which part of what was taken from the system was more than the program asked for, at the peaks: 0 to 1.
    pub fn fragmentation(&self) -> Option<f64> {
        let reserved = self.peak_reserved.filter(|reserved| *reserved > 0)?;
        Some((1.0 - self.peak_requested as f64 / reserved as f64).max(0.0))
    }
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "allocate        {}", self.allocate)?;
        writeln!(f, "free            {}", self.free)?;
        writeln!(f, "peak requested  {} bytes", self.peak_requested)?;
        match self.peak_reserved {
            Some(reserved) => writeln!(f, "peak reserved   {reserved} bytes")?,
            None => writeln!(f, "peak reserved   not known for this resource")?,
        }
        if let Some(fragmentation) = self.fragmentation() {
            writeln!(f, "fragmentation   {:.1}% of what was reserved at the peak", fragmentation * 100.0)?;
        }
        if self.out_of_memory > 0 {
            writeln!(f, "out of memory   {} times", self.out_of_memory)?;
        }
        write!(
            f,
            "{} streams, {} threads; {} ns for the clock are taken off",
            self.streams, self.threads, self.clock_ns
        )
    }
}

/// What the threads of a replay share.
struct Stage<'replay, T: Target> {
    plan: &'replay Plan,
    target: &'replay T,
    streams: Vec<Stream>,
    blocks: Vec<Mutex<Option<Held<T::Block>>>>,
    /// Which operation is next.
    turn: AtomicUsize,
}

/// A block that is allocated.
struct Held<B> {
    block: B,
    /// Which it is freed on where the trace does not free it.
    stream: usize,
}

/// A turn; the next operation's begins when it ends, also in a panic.
struct Turn<'replay>(&'replay AtomicUsize);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// What one thread has seen.
#[derive(Default)]
struct Seen {
    allocate: Vec<u64>,
    free: Vec<u64>,
    out_of_memory: u64,
}

/// Does a trace again: one operation at a time, in the order of the trace, each on a thread and on a stream that stand for
/// those of the trace. What is live at the end is freed then, and not measured.
///
/// # Errors
///
/// The driver refuses something; the trace has more than 1024 threads. That there is no memory for a block is no error: it
/// is counted.
pub fn replay<T: Target>(plan: &Plan, target: &T) -> Result<ReplayReport> {
    if plan.threads > MOST_THREADS {
        return Err(Error::InvalidArgument {
            call: "trace::replay",
            argument: "plan",
            value: format!("{} threads", plan.threads).into(),
            rule: "a trace is replayed by as many threads as it has, 1024 at most; divide it",
        });
    }
    let streams = (0..plan.streams).map(|_| Stream::new(target.context())).collect::<Result<_>>()?;
    let blocks = (0..plan.blocks).map(|_| Mutex::new(None)).collect();
    let stage = Stage { plan, target, streams, blocks, turn: AtomicUsize::new(0) };
    let clock_ns = clock_ns();
    let played: Vec<Result<Seen>> = std::thread::scope(|scope| {
        let stage = &stage;
        let threads: Vec<_> = (0..plan.threads).map(|thread| scope.spawn(move || stage.play(thread))).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|played| played.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let peak_reserved = target.peak_reserved();
    let cleared = stage.clear();
    let mut seen = Seen::default();
    for part in played {
        let part = part?;
        seen.allocate.extend(part.allocate);
        seen.free.extend(part.free);
        seen.out_of_memory += part.out_of_memory;
    }
    cleared?;
    seen.allocate.iter_mut().chain(&mut seen.free).for_each(|time| *time = time.saturating_sub(clock_ns));
    Ok(ReplayReport {
        allocate: Latency::of(&mut seen.allocate),
        free: Latency::of(&mut seen.free),
        clock_ns,
        out_of_memory: seen.out_of_memory,
        peak_requested: plan.peak_requested(),
        peak_reserved,
        streams: plan.streams,
        threads: plan.threads,
    })
}

impl<T: Target> Stage<'_, T> {
    fn play(&self, thread: usize) -> Result<Seen> {
        // As programs do: the context is current on the thread that works.
        let bound = self.target.context().bind();
        let own = self.plan.operations.iter().enumerate().filter(|(_, operation)| operation.thread == thread);
        let mut seen = Seen::default();
        let mut result = bound.as_ref().map(|_| ()).map_err(Error::clone);
        for (index, operation) in own {
            let _turn = self.wait_for_turn(index);
            // After an error the others still get their turns; what is left undone is freed at the end.
            if result.is_ok() {
                result = self.step(*operation, &mut seen);
            }
        }
        result.map(|()| seen)
    }

    fn wait_for_turn(&self, index: usize) -> Turn<'_> {
        let mut looks = 0;
        while self.turn.load(Ordering::Acquire) != index {
            looks += 1;
            if looks % SPINS == 0 { std::thread::yield_now() } else { core::hint::spin_loop() }
        }
        Turn(&self.turn)
    }

    fn step(&self, operation: Operation, seen: &mut Seen) -> Result<()> {
        let stream = &self.streams[operation.stream];
        let slot = |block: usize| self.blocks[block].lock().unwrap_or_else(PoisonError::into_inner);
        match operation.step {
            Step::Allocate { block, size } => {
                let start = Instant::now();
                let allocated = self.target.allocate(size, stream);
                let time = nanoseconds(start);
                match allocated {
                    Ok(held) => {
                        seen.allocate.push(time);
                        *slot(block) = Some(Held { block: held, stream: operation.stream });
                    }
                    Err(error) if error.is_out_of_memory() => seen.out_of_memory += 1,
                    Err(error) => return Err(error),
                }
            }
            Step::Free { block } => {
                let Some(held) = slot(block).take() else { return Ok(()) };
                let start = Instant::now();
                // SAFETY: the target gave the block, its slot has it no more, and nobody uses it.
                let freed = unsafe { self.target.free(held.block, stream) };
                seen.free.push(nanoseconds(start));
                freed?;
            }
        }
        Ok(())
    }

    /// Frees what is left.
    fn clear(self) -> Result<()> {
        let _bound = self.target.context().bind()?;
        let mut result = Ok(());
        for slot in self.blocks {
            if let Some(held) = slot.into_inner().unwrap_or_else(PoisonError::into_inner) {
                // SAFETY: the target gave the block, its slot has it no more, and nobody uses it.
                result = unsafe { self.target.free(held.block, &self.streams[held.stream]) }.and(result);
            }
        }
        self.streams.iter().fold(result, |result, stream| stream.synchronize().and(result))
    }
}

fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// What reading the clock twice takes.
fn clock_ns() -> u64 {
    let mut times: Vec<u64> = (0..1001).map(|_| nanoseconds(Instant::now())).collect();
    Latency::of(&mut times).p50_ns
}

#[cfg(test)]
mod tests {
    use super::super::{Action, Trace, TraceEvent};
    use super::*;
    use crate::Driver;
    use crate::adaptor::{Limit, Statistics};
    use crate::memory::DeviceMemory;
    use crate::resource::ResourceHandle;

    /// A trace of three threads that free each other's blocks.
    fn woven(blocks: u64) -> Plan {
        let event = |thread, action, number: u64| {
            let (address, stream, size) = (number + 1, number % 2, 100 * (number + 1));
            TraceEvent { time_ns: 0, thread, action, address, size, stream, name: None }
        };
        let mut events = Vec::new();
        for number in 0..blocks {
            events.push(event(number % 3, Action::Allocate, number));
            if number >= 5 {
                events.push(event((number + 1) % 3, Action::Free, number - 5));
            }
        }
        Plan::new(&Trace { lost: 0, events })
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the software GPU")]
    fn what_was_live_in_the_trace_is_live_in_the_replay_whichever_threads_take_part() -> Result<()> {
        let context = Driver::software()?.device(0)?.primary_context()?;
        let statistics = Statistics::new(&DeviceMemory::new(&context));
        let plan = woven(40);
        let report = replay(&plan, &statistics.share())?;
        assert_eq!((report.allocate.count, report.free.count, report.out_of_memory), (40, 35, 0));
        assert_eq!((report.streams, report.threads, report.peak_reserved), (2, 3, None));
        let counts = statistics.counts();
        assert_eq!(counts.bytes.peak as u64, report.peak_requested);
        assert_eq!((counts.bytes.current, counts.blocks.total), (0, 40));
        assert!(report.to_string().contains("not known for this resource"), "{report}");
        Ok(())
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the software GPU")]
    fn no_memory_is_counted_and_any_other_failure_ends_it_with_nothing_left() -> Result<()> {
        let context = Driver::software()?.device(0)?.primary_context()?;
        let statistics = Statistics::new(&DeviceMemory::new(&context));
        let report = replay(&woven(40), &Limit::new(&statistics, 15_000).share())?;
        assert!(report.out_of_memory > 0 && report.allocate.count + report.out_of_memory == 40, "{report}");
        assert!(report.to_string().contains("out of memory"), "{report}");
        assert_eq!(statistics.counts().bytes.current, 0);

        struct Broken(SharedResource, AtomicUsize);
        impl Target for Broken {
            type Block = Block;
            fn allocate(&self, size: usize, stream: &Stream) -> Result<Block> {
                if self.1.fetch_add(1, Ordering::Relaxed) == 7 {
                    return Err(Error::OutOfRange { call: "test", offset: 0, length: 0, size: 0 });
                }
                Target::allocate(&self.0, size, stream)
            }
            unsafe fn free(&self, block: Block, stream: &Stream) -> Result<()> {
                // SAFETY: the caller's contract.
                unsafe { Target::free(&self.0, block, stream) }
            }
            fn context(&self) -> &Context {
                self.0.as_ref().context()
            }
        }
        let broken = Broken(statistics.share(), AtomicUsize::new(0));
        assert!(matches!(replay(&woven(40), &broken), Err(Error::OutOfRange { .. })));
        assert_eq!(statistics.counts().bytes.current, 0);
        Ok(())
    }

    #[test]
    fn fragmentation_is_what_was_reserved_beyond_the_request() {
        let report = ReplayReport {
            allocate: Latency::default(),
            free: Latency::default(),
            clock_ns: 20,
            out_of_memory: 0,
            peak_requested: 75,
            peak_reserved: Some(100),
            streams: 1,
            threads: 1,
        };
        assert_eq!(report.fragmentation(), Some(0.25));
        assert!(report.to_string().contains("25.0% of what was reserved at the peak"));
        assert_eq!(ReplayReport { peak_reserved: None, ..report.clone() }.fragmentation(), None);
        // Memory of blocks that share pages may be less than what was asked for.
        assert_eq!(ReplayReport { peak_reserved: Some(50), ..report }.fragmentation(), Some(0.0));
    }
}
