//! What is measured at each point. Times are CPU times in ns an operation: an allocation or a free.

use crate::memory::HostMemory;
use crate::subject::{Source, Subject};
use cuda_mem::memory::Block;
use cuda_mem::{Context, Error, Stream};
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A measured value, with its name.
pub(crate) type Value = (&'static str, f64);

/// How long one point may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// A phase that replaces blocks ends after this time.
    pub replace: Duration,
    /// A point whose filling takes longer is given up.
    pub fill: Duration,
}

/// Calls in one reading of the clock.
const BATCH: usize = 1000;

/// SplitMix64, which gives the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// 256 to 1024 bytes, in steps of 256.
    #[inline]
    fn size(&mut self) -> usize {
        256 * (1 + (self.next() >> 62) as usize)
    }

    fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            values.swap(last, (self.next() % (last as u64 + 1)) as usize);
        }
    }
}

/// The times of batches of calls.
#[derive(Default)]
struct Batches(Vec<f64>);

impl Batches {
    fn time(
        &mut self,
        calls: usize,
        operations: usize,
        mut call: impl FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let start = Instant::now();
        for _ in 0..calls {
            call()?;
        }
        self.0.push(start.elapsed().as_secs_f64() * 1e9 / operations as f64);
        Ok(())
    }

    /// The mean of one operation: growth of the pool and of its tables counts.
    fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// The median of the batches' means, 0 without batches. What other programs do to the machine does not count.
    fn median(&mut self) -> f64 {
        self.0.sort_by(f64::total_cmp);
        self.0.get(self.0.len() / 2).copied().unwrap_or(0.0)
    }
}

/// The indices of a list, again and again. Cheaper than a remainder.
struct Turns {
    next: usize,
    count: usize,
}

impl Turns {
    fn of<T>(list: &[T]) -> Self {
        Self { next: 0, count: list.len() }
    }

    #[inline]
    fn next(&mut self) -> usize {
        let turn = self.next;
        self.next = if turn + 1 == self.count { 0 } else { turn + 1 };
        turn
    }
}

/// Blocks in memory that is resident already, so that the program's own list is not measured.
struct Held {
    blocks: Vec<Block>,
}

impl Held {
    fn new(count: usize) -> Self {
        Self { blocks: vec![black_box(Block::EMPTY); count] }
    }

    /// Allocates all blocks; the streams take turns, and the number of blocks is a multiple of theirs. `None` after the
    /// time limit.
    fn fill(
        &mut self,
        source: &Source,
        streams: &[Stream],
        random: &mut Random,
        limit: Duration,
    ) -> Result<Option<Batches>, Error> {
        let (start, mut batches, mut next) = (Instant::now(), Batches::default(), 0);
        let (count, mut turns) = (self.blocks.len(), Turns::of(streams));
        while next < count {
            let calls = BATCH.min(count - next);
            batches.time(calls, calls, || {
                self.blocks[next] = source.allocate(random.size(), &streams[turns.next()])?;
                next += 1;
                Ok(())
            })?;
            if start.elapsed() > limit {
                self.blocks.truncate(next);
                self.free(source, streams)?;
                return Ok(None);
            }
        }
        Ok(Some(batches))
    }

    /// Frees all blocks and forgets them, in their order.
    fn free(&mut self, source: &Source, streams: &[Stream]) -> Result<f64, Error> {
        let (mut batches, mut turns) = (Batches::default(), Turns::of(streams));
        for part in self.blocks.chunks(BATCH) {
            let mut blocks = part.iter();
            batches.time(part.len(), part.len(), || {
                blocks.next().map_or(Ok(()), |block| source.free(*block, &streams[turns.next()]))
            })?;
        }
        Ok(batches.median())
    }

    /// Frees each block and allocates another in its place, in turn, until the time is over.
    fn replace(
        &mut self,
        source: &Source,
        streams: &[Stream],
        random: &mut Random,
        limit: Duration,
    ) -> Result<f64, Error> {
        let (start, mut batches) = (Instant::now(), Batches::default());
        let (mut turns, mut next) = (Turns::of(streams), Turns::of(&self.blocks));
        while start.elapsed() < limit || batches.0.len() < 5 {
            batches.time(BATCH, 2 * BATCH, || {
                let (stream, block) = (&streams[turns.next()], &mut self.blocks[next.next()]);
                source.free(*block, stream)?;
                *block = source.allocate(random.size(), stream)?;
                Ok(())
            })?;
        }
        Ok(batches.median())
    }
}

fn pairs(source: &Source, streams: &[Stream], limit: Duration) -> Result<f64, Error> {
    let (start, mut batches, mut turns) = (Instant::now(), Batches::default(), Turns::of(streams));
    while start.elapsed() < limit || batches.0.len() < 5 {
        batches.time(BATCH, 2 * BATCH, || {
            let stream = &streams[turns.next()];
            let block = source.allocate(black_box(512), stream)?;
            source.free(black_box(block), stream)
        })?;
    }
    Ok(batches.median())
}

/// Many live blocks on one stream. `None` after the time limit.
pub(crate) fn blocks(
    subject: Subject,
    context: &Context,
    count: usize,
    limits: Limits,
) -> Result<Option<Vec<Value>>, Error> {
    let (streams, source) = ([Stream::new(context)?], subject.open(context)?);
    let (mut held, mut random) = (Held::new(count), Random(count as u64));
    let before = HostMemory::now();
    let Some(first) = held.fill(&source, &streams, &mut random, limits.fill)? else { return Ok(None) };
    let after = HostMemory::now();
    let each = |after: usize, before: usize| after.saturating_sub(before) as f64 / count as f64;
    // In random order, as programs free.
    random.shuffle(&mut held.blocks);
    let replace = held.replace(&source, &streams, &mut random, limits.replace)?;
    let pair = pairs(&source, &streams, limits.replace)?;
    random.shuffle(&mut held.blocks);
    let free = held.free(&source, &streams)?;
    // From memory that the pool has.
    let Some(mut again) = held.fill(&source, &streams, &mut random, limits.fill)? else { return Ok(None) };
    held.free(&source, &streams)?;
    let mut values = vec![
        ("first allocations, ns", first.mean()),
        ("allocations, ns", again.median()),
        ("frees, ns", free),
        ("replace, ns", replace),
        ("pair, ns", pair),
        ("resident host memory, B a block", each(after.resident, before.resident)),
    ];
    // The driver does not allocate with this program's allocator.
    if subject != Subject::Driver {
        values.push(("allocated host memory, B a block", each(after.allocated, before.allocated)));
    }
    Ok(Some(values))
}

/// The live blocks of all streams together.
const BLOCKS_OF_STREAMS: usize = 8192;

/// Streams that take turns, with the same number of live blocks in all.
pub(crate) fn streams(
    subject: Subject,
    context: &Context,
    count: usize,
    limits: Limits,
) -> Result<Option<Vec<Value>>, Error> {
    let streams = (0..count).map(|_| Stream::new(context)).collect::<Result<Vec<_>, _>>()?;
    let source = subject.open(context)?;
    let (mut held, mut random) = (Held::new(BLOCKS_OF_STREAMS), Random(1));
    if held.fill(&source, &streams, &mut random, limits.fill)?.is_none() {
        return Ok(None);
    }
    // Each stream has freed memory before, as after a while.
    held.replace(&source, &streams, &mut random, limits.replace)?;
    let replace = held.replace(&source, &streams, &mut random, limits.replace)?;
    let pair = pairs(&source, &streams, limits.replace)?;
    held.free(&source, &streams)?;
    Ok(Some(vec![("replace, ns", replace), ("pair, ns", pair)]))
}

/// Threads at work at once, each with 64 live blocks, on streams of their own and on one stream. The time is that of one
/// processor for one operation.
pub(crate) fn threads(
    subject: Subject,
    context: &Context,
    count: usize,
    limits: Limits,
) -> Result<Option<Vec<Value>>, Error> {
    let streams = (0..count).map(|_| Stream::new(context)).collect::<Result<Vec<_>, _>>()?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut values = Vec::new();
    for (name, streams) in [("own streams, ns", &streams[..]), ("one stream, ns", &streams[..1])] {
        let source = subject.open(context)?;
        let (together, end) = (Barrier::new(count + 1), AtomicBool::new(false));
        let work = |thread: usize| -> Result<usize, Error> {
            let stream = &streams[thread % streams.len()..][..1];
            let (mut held, mut random) = (Held::new(64), Random(thread as u64));
            held.fill(&source, stream, &mut random, Duration::MAX)?;
            together.wait();
            let mut operations = 0;
            while !end.load(Ordering::Relaxed) {
                held.replace(&source, stream, &mut random, Duration::ZERO)?;
                operations += 5 * 2 * BATCH;
            }
            held.free(&source, stream)?;
            Ok(operations)
        };
        let time = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..count)
                .map(|thread| {
                    let work = &work;
                    scope.spawn(move || work(thread))
                })
                .collect();
            together.wait();
            let start = Instant::now();
            std::thread::sleep(limits.replace);
            end.store(true, Ordering::Relaxed);
            let mut operations = 0;
            for worker in workers {
                operations += worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            Ok::<_, Error>(start.elapsed().as_secs_f64() * 1e9 * count.min(processors) as f64 / operations as f64)
        })?;
        values.push((name, time));
    }
    Ok(Some(values))
}

/// One stream at work beside free memory: as many holes between blocks, half of them freed by this stream, and half by
/// another.
pub(crate) fn holes(
    subject: Subject,
    context: &Context,
    count: usize,
    limits: Limits,
) -> Result<Option<Vec<Value>>, Error> {
    let (streams, source) = ([Stream::new(context)?, Stream::new(context)?], subject.open(context)?);
    let (mut idle, mut random) = (Held::new(2 * count), Random(count as u64));
    if idle.fill(&source, &streams[..1], &mut random, limits.fill)?.is_none() {
        return Ok(None);
    }
    for (index, block) in idle.blocks.iter().enumerate().step_by(2) {
        source.free(*block, &streams[index / 2 % 2])?;
    }
    let mut held = Held::new(1000);
    held.fill(&source, &streams[..1], &mut random, limits.fill)?;
    random.shuffle(&mut held.blocks);
    let replace = held.replace(&source, &streams[..1], &mut random, limits.replace)?;
    let pair = pairs(&source, &streams[..1], limits.replace)?;
    held.free(&source, &streams[..1])?;
    idle.blocks.iter().skip(1).step_by(2).try_for_each(|block| source.free(*block, &streams[0]))?;
    Ok(Some(vec![("replace, ns", replace), ("pair, ns", pair)]))
}

/// One stream at work beside streams that have freed memory and are idle since.
pub(crate) fn idle_streams(
    subject: Subject,
    context: &Context,
    count: usize,
    limits: Limits,
) -> Result<Option<Vec<Value>>, Error> {
    let others = (0..count).map(|_| Stream::new(context)).collect::<Result<Vec<_>, _>>()?;
    let (own, source) = ([Stream::new(context)?], subject.open(context)?);
    let (mut held, mut idle, mut random) = (Held::new(1000), Held::new(8 * count), Random(1));
    held.fill(&source, &own, &mut random, limits.fill)?;
    idle.fill(&source, &others, &mut random, limits.fill)?;
    idle.free(&source, &others)?;
    random.shuffle(&mut held.blocks);
    let replace = held.replace(&source, &own, &mut random, limits.replace)?;
    let pair = pairs(&source, &own, limits.replace)?;
    held.free(&source, &own)?;
    Ok(Some(vec![("replace, ns", replace), ("pair, ns", pair)]))
}
