//! Replaying a trace.

use super::{Latency, Operation, Plan, Step};
use crate::locks::Mutex;
use crate::memory::resource::{Block, SharedResource};
use crate::{Context, Error, Result, Stream};
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The alignment of blocks in bytes: that of CUDA's own allocations.
const ALIGNMENT: usize = 256;
/// How often a waiting thread checks for its operation before it yields.
const SPINS: usize = 100;
/// The maximum number of threads of a replay.
const MOST_THREADS: usize = 1024;

/// A source of memory on which a trace can be replayed. A [`SharedResource`] is one.
pub trait Target: Sync {
    /// The handle of an allocated block.
    type Block: Send;

    /// Allocates at least `size` bytes, which is not 0, for later work of `stream`.
    ///
    /// # Errors
    ///
    /// There is not enough memory, or another failure.
    fn allocate(&self, size: usize, stream: &Stream) -> Result<Self::Block>;

    /// Frees a block in order of `stream`.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    ///
    /// # Safety
    ///
    /// This target allocated the block, it was not freed before, and only work queued on `stream` so far uses it.
    unsafe fn free(&self, block: Self::Block, stream: &Stream) -> Result<()>;

    /// The context in which the replay makes its streams.
    fn context(&self) -> &Context;

    /// The most bytes taken from the system so far, if known.
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

/// The result of a replay. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "json", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ReplayReport {
    /// Durations of allocations.
    pub allocate: Latency,
    /// Durations of frees.
    pub free: Latency,
    /// The time to read the clock, subtracted from every duration.
    pub clock_ns: u64,
    /// Allocations that ran out of memory. Their blocks are omitted.
    pub out_of_memory: u64,
    /// The peak of the requested size.
    pub peak_requested: u64,
    /// The peak of the size taken from the system, if known.
    pub peak_reserved: Option<u64>,
    /// The number of streams.
    pub streams: usize,
    /// The number of threads.
    pub threads: usize,
}

impl ReplayReport {
    /// The fraction, 0 to 1, of the peak reserved size that exceeds the peak requested size.
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
            "{} streams, {} threads; durations exclude {} ns for reading the clock",
            self.streams, self.threads, self.clock_ns
        )
    }
}

/// The data that the threads of a replay share.
struct Stage<'replay, T: Target> {
    plan: &'replay Plan,
    target: &'replay T,
    streams: Vec<Stream>,
    blocks: Vec<Mutex<Option<AllocatedBlock<T::Block>>>>,
    /// The index of the next operation.
    turn: AtomicUsize,
}

/// A block that is allocated.
struct AllocatedBlock<B> {
    block: B,
    /// Where the replay frees it if the trace does not.
    stream: usize,
}

/// A running operation. Its drop lets the next one run, also after a panic.
struct RunningOperation<'replay>(&'replay AtomicUsize);

impl Drop for RunningOperation<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// The measurements of one thread.
#[derive(Default)]
struct Measurements {
    allocate: Vec<u64>,
    free: Vec<u64>,
    out_of_memory: u64,
}

/// Replays a trace: one operation at a time, in the order of the trace, with one thread and one stream for each in the
/// trace. At the end, the live blocks are freed and not measured.
///
/// # Errors
///
/// The trace has more than 1024 threads. Running out of memory is no error: the report counts it.
pub fn replay<T: Target>(plan: &Plan, target: &T) -> Result<ReplayReport> {
    if plan.threads > MOST_THREADS {
        let rule = "a replay needs as many threads as the trace has, at most 1024: split the trace";
        return Err(Error::invalid("trace::replay", "plan", format_args!("{} threads", plan.threads), rule));
    }
    let streams = (0..plan.streams).map(|_| Stream::new(target.context())).collect::<Result<_>>()?;
    let blocks = (0..plan.blocks).map(|_| Mutex::new(None)).collect();
    let stage = Stage { plan, target, streams, blocks, turn: AtomicUsize::new(0) };
    let clock_ns = clock_ns();
    let played: Vec<Result<Measurements>> = std::thread::scope(|scope| {
        let stage = &stage;
        let threads: Vec<_> = (0..plan.threads).map(|thread| scope.spawn(move || stage.play(thread))).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|played| played.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let peak_reserved = target.peak_reserved();
    let cleared = stage.clear();
    let mut seen = Measurements::default();
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
    fn play(&self, thread: usize) -> Result<Measurements> {
        // As in programs, the context is current on the working thread.
        let bound = self.target.context().bind();
        let own = self.plan.operations.iter().enumerate().filter(|(_, operation)| operation.thread == thread);
        let mut seen = Measurements::default();
        let mut result = bound.as_ref().map(|_| ()).map_err(Error::clone);
        for (index, operation) in own {
            let _turn = self.wait_for_turn(index);
            // After an error the other threads continue; the remaining blocks are freed at the end.
            if result.is_ok() {
                result = self.step(*operation, &mut seen);
            }
        }
        result.map(|()| seen)
    }

    fn wait_for_turn(&self, index: usize) -> RunningOperation<'_> {
        let mut looks = 0;
        while self.turn.load(Ordering::Acquire) != index {
            looks += 1;
            if looks % SPINS == 0 { std::thread::yield_now() } else { core::hint::spin_loop() }
        }
        RunningOperation(&self.turn)
    }

    fn step(&self, operation: Operation, seen: &mut Measurements) -> Result<()> {
        let stream = &self.streams[operation.stream];
        let slot = |block: usize| self.blocks[block].lock();
        match operation.step {
            Step::Allocate { block, size } => {
                let start = Instant::now();
                let allocated = self.target.allocate(size, stream);
                let time = nanoseconds(start);
                match allocated {
                    Ok(held) => {
                        seen.allocate.push(time);
                        *slot(block) = Some(AllocatedBlock { block: held, stream: operation.stream });
                    }
                    Err(error) if error.is_out_of_memory() => seen.out_of_memory += 1,
                    Err(error) => return Err(error),
                }
            }
            Step::Free { block } => {
                let Some(held) = slot(block).take() else { return Ok(()) };
                let start = Instant::now();
                // SAFETY: the target allocated the block, its slot no longer holds it, and nobody uses it.
                let freed = unsafe { self.target.free(held.block, stream) };
                seen.free.push(nanoseconds(start));
                freed?;
            }
        }
        Ok(())
    }

    /// Frees the remaining blocks.
    fn clear(self) -> Result<()> {
        let _bound = self.target.context().bind()?;
        let mut result = Ok(());
        for slot in self.blocks {
            if let Some(held) = slot.into_inner() {
                // SAFETY: the target allocated the block, its slot no longer holds it, and nobody uses it.
                result = unsafe { self.target.free(held.block, &self.streams[held.stream]) }.and(result);
            }
        }
        self.streams.iter().fold(result, |result, stream| stream.synchronize().and(result))
    }
}

fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The median time between two reads of the clock.
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
    use crate::memory::resource::ResourceHandle;

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
    fn replay_matches_the_live_memory_of_a_multithreaded_trace() -> Result<()> {
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
    fn replay_counts_out_of_memory_and_cleans_up_after_other_errors() -> Result<()> {
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
        // Blocks that share pages may take less memory than was requested.
        assert_eq!(ReplayReport { peak_reserved: Some(50), ..report }.fragmentation(), Some(0.0));
    }
}
