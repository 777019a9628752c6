//! The workloads: common patterns of pool use, which other projects measure too.

use crate::bench::clock::{clock_ns, nanoseconds};
use cuda_mem::trace::{Latency, Plan, Target, replay};
use cuda_mem::{Result, Stream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A measured workload, one row for each subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    /// Allocates and frees one block of this many bytes.
    Pair(usize),
    /// Allocates and frees blocks of random sizes, with many blocks live.
    Random,
    /// Allocates and frees one block beside this many separate free holes.
    Holes(usize),
    /// Allocates and frees on this many threads at once.
    Threads { count: usize, own_streams: bool },
    /// Replays a trace.
    Replay,
}

/// How much work each measurement does.
#[derive(Debug)]
pub(super) struct Effort {
    /// The size of our pool's first region.
    pub(super) initial: usize,
    /// The time limit for one figure.
    budget: Duration,
    /// The maximum number of single operations that are timed.
    samples: usize,
    /// For `Random`: the minimum number of live blocks and the number that they stay below, and the largest block.
    live: (usize, usize),
    largest: usize,
    holes: &'static [usize],
    threads: &'static [usize],
}

impl Effort {
    pub(super) const FULL: Self = Self {
        initial: 4 << 30,
        budget: Duration::from_millis(400),
        samples: 200_000,
        live: (1000, 2000),
        largest: 1 << 20,
        holes: &[64, 1024, 4096, 16_384, 65_536],
        threads: &[1, 2, 4, 8, 16],
    };

    pub(super) const BRIEF: Self = Self {
        initial: 64 << 20,
        budget: Duration::from_millis(3),
        samples: 200,
        live: (20, 40),
        largest: 1 << 16,
        holes: &[64, 256],
        threads: &[1, 2],
    };
}

/// The figures of one row, with times in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    pub(super) mean_ns: f64,
    pub(super) single: Option<Latency>,
    /// Operations of all threads together.
    pub(super) per_second: Option<f64>,
    pub(super) memory: Option<Memory>,
}

/// The memory that a replay used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub(super) peak_requested: u64,
    pub(super) peak_reserved: Option<u64>,
    pub(super) fragmentation: Option<f64>,
    pub(super) out_of_memory: u64,
}

/// All cases, in the order of the table.
pub(super) fn cases(effort: &Effort) -> Vec<Case> {
    let mut cases: Vec<_> = [256, 4096, 1 << 20].map(Case::Pair).into();
    cases.push(Case::Random);
    cases.extend(effort.holes.iter().map(|count| Case::Holes(*count)));
    for own_streams in [false, true] {
        cases.extend(effort.threads.iter().map(|count| Case::Threads { count: *count, own_streams }));
    }
    cases.push(Case::Replay);
    cases
}

/// Measures one case on one subject.
pub(super) fn run<T: Target>(case: &Case, target: &T, effort: &Effort, plan: &Plan) -> Result<Figures> {
    let stream = Stream::new(target.context())?;
    let figures = match *case {
        Case::Pair(size) => pairs(target, size, &stream, effort),
        Case::Random => random(target, &stream, effort),
        Case::Holes(count) => holes(target, count, &stream, effort),
        Case::Threads { count, own_streams } => threads(target, count, own_streams, effort),
        Case::Replay => replayed(target, plan),
    }?;
    stream.synchronize()?;
    Ok(figures)
}

fn pair<T: Target>(target: &T, size: usize, stream: &Stream) -> Result<()> {
    let block = target.allocate(size, stream)?;
    // SAFETY: the block was just allocated, and nothing uses it.
    unsafe { target.free(block, stream) }
}

/// The median of the batches' mean times of pairs, and the times of single pairs.
fn pairs<T: Target>(target: &T, size: usize, stream: &Stream, effort: &Effort) -> Result<Figures> {
    const BATCH: Duration = Duration::from_micros(200);
    for _ in 0..100 {
        pair(target, size, stream)?;
    }
    let start = Instant::now();
    pair(target, size, stream)?;
    let once = start.elapsed().max(Duration::from_nanos(20));
    let batch = u32::try_from(BATCH.as_nanos().div_ceil(once.as_nanos())).unwrap_or(1);
    let mut means = Vec::new();
    let start = Instant::now();
    while means.len() < 5 || start.elapsed() < effort.budget {
        let before = Instant::now();
        for _ in 0..batch {
            pair(target, size, stream)?;
        }
        means.push(before.elapsed().as_secs_f64() * 1e9 / f64::from(batch));
    }
    means.sort_by(f64::total_cmp);
    let single = singles(effort, || pair(target, size, stream))?;
    Ok(Figures { mean_ns: means[means.len() / 2], single: Some(single), ..Figures::default() })
}

/// The times of single calls, less the time that the clock readings take.
fn singles(effort: &Effort, mut call: impl FnMut() -> Result<()>) -> Result<Latency> {
    let mut times = Vec::new();
    let start = Instant::now();
    while times.len() < effort.samples && start.elapsed() < effort.budget {
        let before = Instant::now();
        call()?;
        times.push(nanoseconds(before));
    }
    let clock = clock_ns();
    times.iter_mut().for_each(|time| *time = time.saturating_sub(clock));
    Ok(Latency::of(&mut times))
}

/// Live blocks. All of them are freed at the end, even if the run failed.
struct Live<'run, T: Target> {
    target: &'run T,
    stream: &'run Stream,
    blocks: Vec<T::Block>,
}

impl<T: Target> Live<'_, T> {
    fn allocate(&mut self, size: usize) -> Result<()> {
        self.blocks.push(self.target.allocate(size, self.stream)?);
        Ok(())
    }

    fn free(&mut self, index: usize) -> Result<()> {
        let block = self.blocks.swap_remove(index);
        // SAFETY: the target allocated the block, nothing uses it, and it is no longer in the list.
        unsafe { self.target.free(block, self.stream) }
    }
}

impl<T: Target> Drop for Live<'_, T> {
    fn drop(&mut self) {
        for block in self.blocks.drain(..) {
            // The error was reported already, or the driver's next call will report it.
            // SAFETY: as in `free`.
            let _ = unsafe { self.target.free(block, self.stream) };
        }
    }
}

/// SplitMix64, which gives the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Random sizes, with as many live blocks as `effort` says. Filling up to the minimum is not measured.
fn random<T: Target>(target: &T, stream: &Stream, effort: &Effort) -> Result<Figures> {
    let (least, most) = effort.live;
    let mut random = Random(1);
    let mut live = Live { target, stream, blocks: Vec::with_capacity(most) };
    let mut step = || {
        if live.blocks.len() < least || (random.next() & 1 == 1 && live.blocks.len() < most) {
            live.allocate((1 + random.below(effort.largest)).next_multiple_of(256))
        } else {
            let index = random.below(live.blocks.len());
            live.free(index)
        }
    };
    for _ in 0..least {
        step()?;
    }
    let (mut count, start) = (0u32, Instant::now());
    while count < 1000 || start.elapsed() < effort.budget {
        for _ in 0..100 {
            step()?;
        }
        count += 100;
        if start.elapsed() > 10 * effort.budget {
            break;
        }
    }
    let mean_ns = start.elapsed().as_secs_f64() * 1e9 / f64::from(count);
    Ok(Figures { mean_ns, single: Some(singles(effort, step)?), ..Figures::default() })
}

fn holes<T: Target>(target: &T, count: usize, stream: &Stream, effort: &Effort) -> Result<Figures> {
    const SIZE: usize = 1024;
    let mut live = Live { target, stream, blocks: Vec::with_capacity(2 * count) };
    for _ in 0..2 * count {
        live.allocate(SIZE)?;
    }
    let mut blocks = std::mem::take(&mut live.blocks).into_iter();
    while let (Some(kept), Some(hole)) = (blocks.next(), blocks.next()) {
        live.blocks.push(kept);
        // SAFETY: as in `Live::free`.
        unsafe { target.free(hole, stream) }?;
    }
    pairs(target, SIZE, stream, effort)
}

/// Pairs of 4 KiB on many threads, for the time limit of one figure.
fn threads<T: Target>(target: &T, count: usize, own_streams: bool, effort: &Effort) -> Result<Figures> {
    const SIZE: usize = 4096;
    let shared = Stream::new(target.context())?;
    let (barrier, end) = (Barrier::new(count + 1), AtomicBool::new(false));
    let work = || -> Result<u64> {
        let prepared = || -> Result<_> {
            let bound = target.context().bind()?;
            let stream = if own_streams { Stream::new(target.context())? } else { shared.clone() };
            (0..100).try_for_each(|_| pair(target, SIZE, &stream))?;
            Ok((bound, stream))
        };
        let prepared = prepared();
        // All threads wait for each other, including those that have failed.
        barrier.wait();
        let (_bound, stream) = prepared?;
        let mut pairs = 0;
        while !end.load(Ordering::Relaxed) {
            for _ in 0..16 {
                pair(target, SIZE, &stream)?;
            }
            pairs += 16;
        }
        stream.synchronize()?;
        Ok(pairs)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
        barrier.wait();
        let start = Instant::now();
        std::thread::sleep(effort.budget);
        end.store(true, Ordering::Relaxed);
        let seconds = start.elapsed().as_secs_f64();
        let done =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let pairs = done.sum::<Result<u64>>()? as f64;
        let mean_ns = seconds * 1e9 * count as f64 / pairs.max(1.0);
        Ok(Figures { mean_ns, per_second: Some(pairs / seconds), ..Figures::default() })
    })
}

fn replayed<T: Target>(target: &T, plan: &Plan) -> Result<Figures> {
    let report = replay(plan, target)?;
    let operations = (report.allocate.count + report.free.count).max(1) as f64;
    let sum = |latency: &Latency| latency.mean_ns * latency.count as f64;
    let memory = Memory {
        peak_requested: report.peak_requested,
        peak_reserved: report.peak_reserved,
        fragmentation: report.fragmentation(),
        out_of_memory: report.out_of_memory,
    };
    let mean_ns = (sum(&report.allocate) + sum(&report.free)) / operations;
    Ok(Figures { mean_ns, single: Some(report.allocate), memory: Some(memory), ..Figures::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_mem::adaptor::{FailWhen, FailureInjection, Statistics};
    use cuda_mem::memory::{DeviceMemory, ResourceHandle};
    use cuda_mem::{Context, Driver};

    fn context() -> Context {
        Driver::software().unwrap().device(0).unwrap().primary_context().unwrap()
    }

    #[test]
    fn every_workload_has_its_peak_block_count_and_frees_all_blocks() {
        let context = context();
        let plan = Plan::new(&super::super::program::trace(true));
        for case in cases(&Effort::BRIEF) {
            let statistics = Statistics::new(&DeviceMemory::new(&context));
            let figures = run(&case, &statistics.share(), &Effort::BRIEF, &plan).unwrap();
            let counts = statistics.counts();
            assert!(figures.mean_ns > 0.0, "{case:?}");
            assert_eq!((counts.blocks.current, counts.failed_allocations), (0, 0), "{case:?}");
            match case {
                Case::Pair(size) => assert_eq!((counts.blocks.peak, counts.bytes.peak), (1, size as i64)),
                Case::Random => assert!((20..=40).contains(&counts.blocks.peak), "{}", counts.blocks.peak),
                Case::Holes(count) => assert_eq!(counts.blocks.peak, 2 * count as i64),
                Case::Threads { count, .. } => assert!((1..=count as i64).contains(&counts.blocks.peak)),
                Case::Replay => assert_eq!(counts.bytes.peak as u64, plan.peak_requested()),
            }
        }
    }

    #[test]
    fn failing_workload_frees_all_blocks_and_returns() {
        let context = context();
        let plan = Plan::new(&super::super::program::trace(true));
        for case in cases(&Effort::BRIEF) {
            let statistics = Statistics::new(&DeviceMemory::new(&context));
            let failing = FailureInjection::new(&statistics, [FailWhen::EveryNth(30)]);
            let result = run(&case, &failing.share(), &Effort::BRIEF, &plan);
            // A replay counts failed allocations and goes on.
            assert_eq!(result.is_err(), case != Case::Replay, "{case:?}");
            assert_eq!(statistics.counts().blocks.current, 0, "{case:?}");
        }
    }
}
