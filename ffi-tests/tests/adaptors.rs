//! Adaptors before resources: alone, stacked in many orders, and under threads. Runs on any driver.

use cuda_mem::adaptor::{
    AfterFailure, Aligned, FailWhen, FailureInjection, Fallback, Limit, Logging, Retry, Statistics, Tracking, named,
};
use cuda_mem::memory::kind::{self, Any, Pinned};
use cuda_mem::memory::{Accessibility, Block, DeviceMemory, MemoryResource};
use cuda_mem::memory::{ResourceHandle, SharedResource};
use cuda_mem::{Buffer, Context, Error, Result, Stream};
use ffi_tests::{Bench, pattern};
use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread has panicked")
}

/// A text that a log is written to.
#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Text {
    fn lines(&self) -> Vec<String> {
        String::from_utf8_lossy(&lock(&self.0)).lines().map(str::to_owned).collect()
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        lock(&self.0).extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A user's own resource: memory of the heap, aligned to 16 bytes, that records what it is asked.
#[derive(Debug)]
struct Heap {
    context: Context,
    live: Mutex<HashMap<u64, usize>>,
    calls: Mutex<Vec<String>>,
    /// Frees fail while this is set.
    stuck: AtomicBool,
    /// Bytes that each block has beyond what was asked for.
    surplus: usize,
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 16).expect("small")
}

impl Heap {
    fn new(context: &Context, surplus: usize) -> Arc<Self> {
        let context = context.clone();
        let (live, calls) = (Mutex::default(), Mutex::default());
        Arc::new(Self { context, live, calls, stuck: AtomicBool::new(false), surplus })
    }

    fn end(&self, block: Block) {
        let size = lock(&self.live).remove(&block.device_pointer);
        assert_eq!(size, Some(block.size), "a block that is not the heap's: {block:?}");
        // SAFETY: `allocate` made it with this layout.
        unsafe { dealloc(block.host_pointer, layout(block.size)) };
    }

    fn live(&self) -> usize {
        lock(&self.live).values().sum()
    }

    fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.calls))
    }
}

// SAFETY: the blocks are the heap's own, and are freed once.
unsafe impl MemoryResource for Heap {
    fn allocate(&self, size: usize, alignment: usize, _stream: &Stream) -> Result<Block> {
        if alignment > 16 {
            let value = alignment.to_string().into();
            return Err(Error::InvalidArgument { call: "Heap", argument: "alignment", value, rule: "16 at most" });
        }
        let size = size + self.surplus;
        // SAFETY: the layout is not of zero bytes.
        let pointer = unsafe { alloc(layout(size)) };
        lock(&self.live).insert(pointer as u64, size);
        Ok(Block::unified(pointer, size))
    }

    unsafe fn deallocate(&self, block: Block, _stream: &Stream) -> Result<()> {
        if self.stuck.load(Ordering::Relaxed) {
            return Err(Error::Unsupported { feature: "a free", needs: "a heap that is not stuck".into() });
        }
        self.end(block);
        Ok(())
    }

    fn abandon(&self, block: Block) {
        lock(&self.calls).push("abandon".into());
        self.end(block);
    }

    fn context(&self) -> &Context {
        &self.context
    }

    fn accessibility(&self) -> Accessibility {
        Accessibility::BOTH
    }

    fn is_on_device(&self) -> bool {
        true // unlike what the accessibility alone would say
    }

    fn invalidate(&self, start: *mut u8, length: usize) -> Result<()> {
        lock(&self.calls).push(format!("invalidate {:#x} {length}", start.addr()));
        Ok(())
    }

    fn flush(&self, start: *mut u8, length: usize) -> Result<()> {
        lock(&self.calls).push(format!("flush {:#x} {length}", start.addr()));
        Ok(())
    }
}

/// What a stack of all adaptors offers to look at.
struct Stack {
    top: SharedResource,
    statistics: Statistics<Any>,
    limit: Limit<Any>,
    tracking: Tracking<Any>,
    logging: Logging<Any>,
    log: Text,
    retries: Arc<AtomicUsize>,
    fallback: Fallback<Any>,
    injection: FailureInjection<Any>,
}

const ADAPTORS: usize = 8;

/// All adaptors, the first of `order` directly before `base`. The fallback's second resource is `base` too.
fn stack(order: &[usize], base: &SharedResource, limit: usize, rules: &[FailWhen]) -> Result<Stack> {
    let (mut top, log, retries) = (base.clone(), Text::default(), Arc::<AtomicUsize>::default());
    let (mut statistics, mut limits, mut tracking, mut logging) = (None, None, None, None);
    let (mut fallback, mut injection) = (None, None);
    for adaptor in order {
        top = match adaptor {
            0 => statistics.insert(Statistics::new(&top)).share(),
            1 => limits.insert(Limit::new(&top, limit)).share(),
            2 => tracking.insert(Tracking::new(&top)).share(),
            3 => logging.insert(Logging::new(&top, log.clone())).share(),
            4 => fallback.insert(Fallback::new(&top, base)?).share(),
            5 => Aligned::new(&top, 4096)?.share(),
            6 => injection.insert(FailureInjection::new(&top, rules.iter().copied())).share(),
            _ => {
                let retries = retries.clone();
                Retry::new(&top, 2, move |_, _| {
                    retries.fetch_add(1, Ordering::Relaxed);
                    AfterFailure::Again
                })
                .share()
            }
        };
    }
    Ok(Stack {
        top,
        statistics: statistics.expect("in the order"),
        limit: limits.expect("in the order"),
        tracking: tracking.expect("in the order"),
        logging: logging.expect("in the order"),
        log,
        retries,
        fallback: fallback.expect("in the order"),
        injection: injection.expect("in the order"),
    })
}

/// Every rotation of all adaptors, forwards and backwards.
fn orders() -> Vec<Vec<usize>> {
    let rotated = |start| (0..ADAPTORS).map(|n| (start + n) % ADAPTORS).collect::<Vec<_>>();
    (0..ADAPTORS).flat_map(|start| [rotated(start), rotated(start).into_iter().rev().collect()]).collect()
}

/// The lines of a log with an action, as (pointer, size).
fn logged(log: &Text, action: &str) -> Vec<(String, String)> {
    let line = |line: &String| {
        let fields: Vec<_> = line.split(',').map(str::to_owned).collect();
        assert_eq!(fields.len(), 6, "{line}");
        (fields[2] == action).then(|| (fields[3].clone(), fields[4].clone()))
    };
    log.lines().iter().filter_map(line).collect()
}

#[test]
fn all_adaptors_stack_in_any_order() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    for order in orders() {
        // What a fallback above the alignment takes from elsewhere is not aligned.
        let place = |adaptor| order.iter().position(|other| *other == adaptor);
        let aligned = place(4) < place(5);
        for base in [pool.share(), DeviceMemory::new(&context).share()] {
            let stack = stack(&order, &base, 1 << 20, &[FailWhen::Nth(3)])?;
            let (mut buffers, mut failures) = (vec![], 0);
            for number in 0..6 {
                let bytes = pattern(1000 + number, number as u8);
                match named("stacked", || Buffer::from_slice(&stack.top, &bytes, &stream)) {
                    Ok(buffer) => {
                        assert!(!aligned || buffer.device_pointer().is_multiple_of(4096), "{order:?}");
                        buffers.push((buffer, bytes));
                    }
                    Err(error) => {
                        assert!(error.is_out_of_memory(), "{order:?}: {error}");
                        failures += 1;
                    }
                }
            }
            // The one failure on purpose is met by the fallback or by the retry, whichever is nearer above it, or by none.
            assert_eq!(stack.injection.injected(), 1, "{order:?}");
            let place = |adaptor| order.iter().position(|other| *other == adaptor);
            let (fallback, retry) = (place(4) > place(6), place(7) > place(6));
            let fell_back = usize::from(fallback && !(retry && place(7) < place(4)));
            let retried = usize::from(retry && fell_back == 0);
            assert_eq!(stack.fallback.blocks_of_second(), fell_back, "{order:?}");
            assert_eq!(stack.retries.load(Ordering::Relaxed), retried, "{order:?}");
            assert_eq!(failures, 1 - fell_back - retried, "{order:?}");
            for (buffer, bytes) in &buffers {
                assert_eq!(&buffer.to_vec()?, bytes, "{order:?}");
            }
            assert!(stack.limit.used() > 0 && stack.statistics.counts().blocks.current >= 5, "{order:?}");
            assert!(stack.tracking.live().iter().all(|block| block.name.as_deref() == Some("stacked")));
            drop(buffers);
            let counts = stack.statistics.counts();
            assert_eq!((counts.bytes.current, counts.blocks.current, stack.limit.used()), (0, 0, 0), "{order:?}");
            assert_eq!((stack.tracking.live().len(), stack.fallback.blocks_of_second()), (0, 0), "{order:?}");
            let (mut given, mut freed) = (logged(&stack.log, "allocate"), logged(&stack.log, "free"));
            given.sort();
            freed.sort();
            assert_eq!(given, freed, "{order:?}");
            assert!(given.len() >= 5 && stack.logging.lost_lines() == 0);
        }
    }
    stream.synchronize()?;
    assert_eq!(pool.attributes()?.used, 0);
    assert_eq!(context.take_drop_errors(), Default::default());
    Ok(())
}

#[test]
fn every_adaptor_hands_on_what_it_does_not_change() -> Result<()> {
    let Bench { context, stream, .. } = Bench::new()?;
    for order in orders() {
        let heap = Heap::new(&context, 0);
        let base: SharedResource = heap.clone();
        let top = stack(&order, &base, usize::MAX, &[])?.top;
        assert_eq!((top.accessibility(), top.is_on_device()), (Accessibility::BOTH, true), "{order:?}");
        assert_eq!(*top.context(), context);
        let block = top.allocate(100, 16, &stream)?;
        top.invalidate(block.host_pointer.wrapping_add(3), 5)?;
        top.flush(block.host_pointer.wrapping_add(4), 6)?;
        let address = block.host_pointer.addr();
        let expected = [format!("invalidate {:#x} 5", address + 3), format!("flush {:#x} 6", address + 4)];
        assert_eq!(heap.take_calls(), expected, "{order:?}");
        top.abandon(block);
        assert_eq!((heap.take_calls(), heap.live()), (vec!["abandon".to_owned()], 0), "{order:?}");
    }
    Ok(())
}

#[test]
fn a_failed_free_leaves_the_block_live_in_every_account() -> Result<()> {
    let Bench { context, stream, .. } = Bench::new()?;
    for order in orders() {
        let heap = Heap::new(&context, 0);
        let base: SharedResource = heap.clone();
        // Without a limit, and below a limit of 0 bytes, where the fallback serves, if it is further up.
        for limit in [usize::MAX, 0] {
            let stack = stack(&order, &base, limit, &[])?;
            let Ok(block) = stack.top.allocate(100, 16, &stream) else { continue };
            let figures = || {
                let counts = stack.statistics.counts();
                (counts.bytes, counts.blocks, stack.limit.used(), stack.tracking.live().len(), heap.live())
            };
            let (before, second) = (figures(), stack.fallback.blocks_of_second());
            heap.stuck.store(true, Ordering::Relaxed);
            // SAFETY: the block is the stack's, and nobody uses it.
            let error = unsafe { stack.top.deallocate(block, &stream) }.unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            assert_eq!((figures(), stack.fallback.blocks_of_second()), (before, second), "{order:?}");
            heap.stuck.store(false, Ordering::Relaxed);
            // SAFETY: as above; it was not freed.
            unsafe { stack.top.deallocate(block, &stream) }?;
            assert_eq!((heap.live(), stack.limit.used(), stack.fallback.blocks_of_second()), (0, 0, 0), "{order:?}");
        }
    }
    Ok(())
}

#[test]
fn kinds_are_kept() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    let statistics: Statistics<kind::Device> = Statistics::new(&pool);
    let aligned: Aligned<kind::Device> = Aligned::new(&Limit::new(&statistics, 1 << 20), 512)?;
    let fallback: Fallback<kind::Device> = Fallback::new(&aligned, &DeviceMemory::new(&context))?;
    let buffer: Buffer<u32, kind::Device> = Buffer::filled(&fallback.clone(), 10, 7, &stream)?;
    assert_eq!(buffer.to_vec()?, [7; 10]);
    assert_eq!(buffer.try_clone()?.to_vec()?, [7; 10]);
    assert_eq!(statistics.counts().blocks.total, 2);
    Ok(())
}

/// Numbers that look random, the same in every run.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

#[test]
fn eight_threads_over_a_stack_leave_the_figures_of_a_model() -> Result<()> {
    let Bench { context, pool, .. } = Bench::new()?;
    let limit = Limit::new(&Statistics::new(&pool), 200_000);
    let (statistics, tracking) = (Statistics::new(&limit), Tracking::new(&limit));
    let log = Text::default();
    let top = Logging::new(&Retry::new(&Tracking::new(&statistics), 2, |_, _| AfterFailure::Again), log.clone());
    let section = statistics.section();
    let over = AtomicUsize::new(0);
    // Each thread counts what it was given and refused.
    let model: Vec<(u64, u64, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let (top, limit, over, context) = (&top, &limit, &over, &context);
                scope.spawn(move || -> Result<(u64, u64, u64)> {
                    let (stream, mut next) = (Stream::new(context)?, numbers(thread));
                    let (mut live, mut bytes, mut blocks, mut refused) = (vec![], 0, 0, 0);
                    for _ in 0..200 {
                        let size = next(20_000) + 1;
                        match Buffer::<u8, _>::filled(top, size, size as u8, &stream) {
                            Ok(buffer) => {
                                (bytes, blocks) = (bytes + size as u64, blocks + 1);
                                live.push(buffer);
                            }
                            Err(error) => {
                                assert!(matches!(error, Error::LimitReached { .. }), "{error}");
                                refused += 1;
                                live.clear();
                            }
                        }
                        over.fetch_max(limit.used(), Ordering::Relaxed);
                        if next(3) == 0 && !live.is_empty() {
                            let buffer = live.swap_remove(next(live.len()));
                            assert_eq!(buffer.to_vec()?, vec![buffer.len() as u8; buffer.len()]);
                        }
                    }
                    Ok((bytes, blocks, refused))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Result<_>>()
    })?;
    let sum = |figure: fn(&(u64, u64, u64)) -> u64| model.iter().map(figure).sum::<u64>();
    let (bytes, blocks, refused) = (sum(|m| m.0), sum(|m| m.1), sum(|m| m.2));
    assert!(refused > 0, "the limit was never met");
    let counts = statistics.counts();
    assert_eq!(section.finish(), counts);
    assert_eq!((counts.bytes.total, counts.blocks.total), (bytes, blocks));
    assert_eq!((counts.bytes.current, counts.blocks.current, counts.failed_frees), (0, 0, 0));
    // Each refusal had two attempts; an attempt may also have failed before one that did not.
    assert!(counts.failed_allocations >= 2 * refused);
    assert_eq!(counts.sizes.iter().map(|(_, count)| count).sum::<u64>(), blocks);
    assert!(over.into_inner() <= 200_000 && limit.used() == 0);
    assert!(counts.bytes.peak > 0 && counts.bytes.peak <= counts.bytes.total as i64);
    assert_eq!(tracking.live().len(), 0);
    assert_eq!(logged(&log, "allocate").len() as u64, blocks);
    assert_eq!(logged(&log, "free").len() as u64, blocks);
    assert_eq!(logged(&log, "allocate failure").len() as u64, refused);
    assert_eq!(context.take_drop_errors(), Default::default());
    Ok(())
}

#[test]
fn a_limit_counts_what_blocks_take_and_gives_back_what_goes_over() -> Result<()> {
    let Bench { context, stream, .. } = Bench::new()?;
    let heap = Heap::new(&context, 10);
    let limit = Limit::new(&heap, 100);
    let block = limit.share().allocate(90, 1, &stream)?;
    assert_eq!((limit.used(), limit.available(), heap.live()), (100, 0, 100));
    // SAFETY: the block is the limit's, and nobody uses it.
    unsafe { limit.share().deallocate(block, &stream) }?;
    let error = limit.share().allocate(91, 1, &stream).unwrap_err();
    assert!(matches!(error, Error::LimitReached { requested: 101, used: 91, limit: 100, .. }), "{error}");
    assert_eq!((limit.used(), heap.live()), (0, 0));
    limit.set_limit(101);
    let block = limit.share().allocate(91, 1, &stream)?;
    limit.set_limit(50);
    assert_eq!((limit.used(), limit.available()), (101, 0));
    // SAFETY: as above.
    unsafe { limit.share().deallocate(block, &stream) }?;
    // What cannot be given back stays counted, and is reported.
    heap.stuck.store(true, Ordering::Relaxed);
    limit.set_limit(100);
    assert!(limit.share().allocate(91, 1, &stream).unwrap_err().is_out_of_memory());
    assert_eq!((limit.used(), heap.live()), (101, 101));
    assert_eq!(context.take_drop_errors().errors.len(), 1);
    Ok(())
}

#[test]
fn wrong_and_double_frees_are_errors_and_reach_no_driver() -> Result<()> {
    let Bench { stream, pool, .. } = Bench::new()?;
    let below = Statistics::new(&pool);
    let tracking = Tracking::with_backtraces(&below);
    let resource = tracking.share();
    let block = named("outer", || named("inner", || resource.allocate(1000, 1, &stream)))?;
    let live = tracking.live();
    assert_eq!((live.len(), live[0].address, live[0].size), (1, block.device_pointer, 1000));
    assert_eq!((live[0].name.as_deref(), live[0].thread.id()), (Some("outer/inner"), std::thread::current().id()));
    let trace = live[0].backtrace.as_ref().expect("asked for").to_string();
    // A program without symbols has no names.
    assert!(trace.contains("racking") || trace.contains("<unknown>"), "{trace}");
    let report = tracking.leak_report().to_string();
    assert!(report.starts_with("1 live block, 1000 bytes\n") && report.contains("outer/inner"), "{report}");

    let wrong = [Block { size: 999, ..block }, Block { device_pointer: block.device_pointer + 256, ..block }];
    for wrong in wrong {
        // SAFETY: tracking refuses it.
        let error = unsafe { resource.deallocate(wrong, &stream) }.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "block", .. }), "{error}");
        resource.abandon(wrong);
    }
    assert_eq!(below.counts().blocks.current, 1);
    // SAFETY: the block is the resource's, and nobody uses it.
    unsafe { resource.deallocate(block, &stream) }?;
    // SAFETY: tracking refuses it.
    let error = unsafe { resource.deallocate(block, &stream) }.unwrap_err();
    assert!(error.to_string().contains("freed before"), "{error}");
    assert_eq!((below.counts().blocks.current, below.counts().failed_frees), (0, 0));
    assert_eq!(tracking.leak_report().to_string(), "no live blocks");
    Ok(())
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing() -> Result<()> {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let count = bytes.len().min(self.0);
            self.0 -= count;
            if count == 0 { Err(std::io::Error::other("no space left")) } else { Ok(count) }
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Err(std::io::Error::other("no flush"))
        }
    }
    let Bench { context, stream, pool } = Bench::new()?;
    let logging = Logging::new(&pool, Full(50));
    drop(Buffer::from_slice(&logging, &[1u8, 2, 3], &stream)?);
    drop(Buffer::from_slice(&logging, &[1u8, 2, 3], &stream)?);
    assert_eq!(logging.lost_lines(), 4);
    assert_eq!(logging.take_error().expect("kept").to_string(), "no space left");
    assert!(logging.take_error().is_none());
    assert_eq!(logging.flush().unwrap_err().to_string(), "no flush");
    assert_eq!(context.take_drop_errors(), Default::default());
    Ok(())
}

#[test]
fn a_log_names_thread_time_action_pointer_size_and_stream() -> Result<()> {
    let Bench { stream, pool, .. } = Bench::new()?;
    let log = Text::default();
    let logging = Logging::new(&Limit::new(&pool, 1000), log.clone());
    let buffer = Buffer::<u8, _>::zeroed(&logging, 600, &stream)?;
    let pointer = buffer.device_pointer();
    assert!(Buffer::<u8, _>::zeroed(&logging, 600, &stream).is_err());
    let other = logging.clone();
    std::thread::scope(|scope| scope.spawn(move || drop((buffer, other))).join()).expect("no panic");
    let lines = log.lines();
    assert_eq!(lines[0], "Thread,Time,Action,Pointer,Size,Stream");
    let ends = [
        format!(",allocate,{pointer:#x},600,{:#x}", stream.raw().addr()),
        format!(",allocate failure,0x0,600,{:#x}", stream.raw().addr()),
        format!(",free,{pointer:#x},600,{:#x}", stream.raw().addr()),
    ];
    assert_eq!(lines.len(), 4);
    for (line, end) in lines[1..].iter().zip(&ends) {
        assert!(line.ends_with(end), "{line} {end}");
    }
    let thread = |line: &str| line.split(',').next().expect("a field").parse::<u64>().expect("a number");
    assert_eq!(thread(&lines[1]), thread(&lines[2]));
    assert_ne!(thread(&lines[1]), thread(&lines[3]));
    let time: Vec<_> = lines[1].split(',').nth(1).expect("a time").split([':', '.']).map(str::len).collect();
    assert_eq!(time, [2, 2, 2, 6]);
    Ok(())
}

#[test]
fn a_fallback_frees_where_it_allocated_and_only_falls_back_for_want_of_memory() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    let first = Statistics::new(&Limit::new(&pool, 1000));
    let second = Statistics::new(&Limit::new(&DeviceMemory::new(&context), 1000));
    let fallback = Fallback::new(&first, &second)?;
    let live = || (first.counts().bytes.current, second.counts().bytes.current);
    let make = |size| Buffer::<u8, _>::filled(&fallback, size, 5, &stream);
    let (one, two) = (make(700)?, make(600)?);
    assert_eq!((live(), fallback.blocks_of_second()), ((700, 600), 1));
    let error = make(500).unwrap_err();
    assert!(matches!(error, Error::LimitReached { used: 600, .. }), "{error}");
    drop(one);
    let three = make(800)?;
    assert_eq!((live(), three.to_vec()?), ((800, 600), vec![5; 800]));
    drop(two);
    assert_eq!((live(), fallback.blocks_of_second()), ((800, 0), 0));
    drop(three);
    assert_eq!(live(), (0, 0));

    // Another error is no want of memory.
    let failing = FailureInjection::new(&pool, [FailWhen::EveryNth(1)]);
    failing.fail_with(Error::Unsupported { feature: "memory", needs: "luck".into() });
    let fallback = Fallback::new(&failing, &second)?;
    assert!(matches!(Buffer::<u8, _>::zeroed(&fallback, 1, &stream), Err(Error::Unsupported { .. })));
    assert_eq!(second.counts().blocks.current, 0);

    let elsewhere = context.device().create_context()?;
    let error = Fallback::new(&pool, &DeviceMemory::new(&elsewhere)).unwrap_err();
    assert!(error.to_string().contains("one context"), "{error}");
    Ok(())
}

#[test]
fn a_fallback_over_two_kinds_promises_what_both_offer_and_tells_their_blocks_apart() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    let heap = Heap::new(&context, 0);
    let base: SharedResource = heap.clone();
    let mixed = Fallback::new(&pool.share(), &base)?;
    assert_eq!(mixed.share().accessibility(), Accessibility::DEVICE);
    assert!(mixed.share().is_on_device());

    let (first, second) = (Heap::new(&context, 0), Heap::new(&context, 0));
    let fallback = Fallback::new(&Limit::new(&first, 100), &second)?;
    let make = || Buffer::<u8, Any>::uninit(&fallback, 100, &stream)?.try_into_kind::<Pinned>().map_err(Error::from);
    let (one, two) = (make()?, make()?);
    // SAFETY: the writes below give every byte that is read a value.
    let (mut one, mut two) = unsafe { (one.assume_init(), two.assume_init()) };
    two.write(10..20)?.fill(7);
    assert_eq!((first.take_calls().len(), second.take_calls().len()), (0, 2));
    assert_eq!(two.read(10..20)?[..], [7; 10]);
    one.write(99..)?.fill(8);
    let start = one.host_pointer().addr() + 99;
    assert_eq!(first.take_calls(), [format!("invalidate {start:#x} 1"), format!("flush {start:#x} 1")]);
    assert_eq!(second.take_calls().len(), 1);
    drop((one, two));
    assert_eq!((first.live(), second.live()), (0, 0));
    Ok(())
}

#[test]
fn every_alignment_is_served() -> Result<()> {
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[repr(C, align(4096))]
    struct Page([u8; 4096]);
    // SAFETY: every byte of it is of the array.
    unsafe impl bytemuck::Zeroable for Page {}
    // SAFETY: as above, and any bytes are a value.
    unsafe impl bytemuck::Pod for Page {}

    let Bench { stream, pool, .. } = Bench::new()?;
    let error = Buffer::<Page, _>::zeroed(&pool, 1, &stream).unwrap_err();
    assert!(error.to_string().contains("adaptor::Aligned"), "{error}");
    let statistics = Statistics::new(&pool);
    let pages = Aligned::new(&statistics, 1)?;
    let page = Buffer::from_slice(&pages, &[Page([3; 4096])], &stream)?;
    assert_eq!((page.device_pointer() % 4096, page.to_vec()?), (0, vec![Page([3; 4096])]));
    assert_eq!(statistics.counts().bytes.current, 2 * 4096 - 1);
    drop(page);
    // What the pool aligns by itself takes no more than asked for.
    let small = Buffer::<u64, _>::zeroed(&pages, 1, &stream)?;
    assert_eq!(statistics.counts().bytes.current, 8);
    drop(small);

    for shift in 0..=21 {
        let aligned = Aligned::new(&statistics, 1 << shift)?;
        let buffers: Vec<_> =
            (1..=5).map(|size| Buffer::filled(&aligned, size * 100, size as u8, &stream)).collect::<Result<_>>()?;
        for (index, buffer) in buffers.iter().enumerate() {
            assert_eq!(buffer.device_pointer() % (1 << shift), 0);
            assert_eq!(buffer.to_vec()?, vec![index as u8 + 1; (index + 1) * 100]);
        }
    }
    assert_eq!(statistics.counts().bytes.current, 0);
    assert!(Aligned::new(&pool, 0).is_err() && Aligned::new(&pool, 24).is_err());
    let huge = Aligned::new(&pool, 1 << 62)?;
    assert!(Buffer::<u8, _>::zeroed(&huge, isize::MAX as usize - 1, &stream).is_err());
    Ok(())
}

#[test]
fn injected_failures_look_like_want_of_memory_or_like_what_was_asked_for() -> Result<()> {
    let Bench { stream, pool, .. } = Bench::new()?;
    let below = Statistics::new(&pool);
    let failing = FailureInjection::new(&below, [FailWhen::LargerThan(100)]);
    let error = Buffer::<u8, _>::zeroed(&failing, 101, &stream).unwrap_err();
    assert!(error.is_out_of_memory() && error.to_string().contains("on purpose"), "{error}");
    failing.fail_with(Error::Unsupported { feature: "memory", needs: "luck".into() });
    failing.set_rules([FailWhen::Nth(1)]);
    assert!(matches!(Buffer::<u8, _>::zeroed(&failing, 1, &stream), Err(Error::Unsupported { .. })));
    drop(Buffer::<u8, _>::zeroed(&failing, 101, &stream)?);
    assert_eq!((failing.allocations(), failing.injected()), (2, 1));
    assert_eq!((below.counts().blocks.total, below.counts().failed_allocations), (1, 0));
    Ok(())
}

#[test]
fn a_hook_may_free_and_allocate_through_the_same_stack() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    let limit = Limit::new(&pool, 1000);
    let spilled: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let cache =
        Mutex::new(vec![Buffer::filled(&limit, 400, 1u8, &stream)?, Buffer::filled(&limit, 400, 2u8, &stream)?]);
    let retry = {
        let (spilled, limit, stream) = (spilled.clone(), limit.clone(), stream.clone());
        Retry::new(&limit.clone(), 10, move |error, _| {
            assert!(error.is_out_of_memory(), "{error}");
            let Some(buffer) = lock(&cache).pop() else { return AfterFailure::GiveUp };
            lock(&spilled).push(buffer.to_vec().expect("a copy"));
            drop(buffer);
            Buffer::<u8, _>::zeroed(&limit, 1, &stream).expect("room for one");
            AfterFailure::Again
        })
    };
    let buffer = Buffer::<u8, _>::zeroed(&retry, 1000, &stream)?;
    assert_eq!(*lock(&spilled), [vec![2; 400], vec![1; 400]]);
    assert!(Buffer::<u8, _>::zeroed(&retry, 1, &stream).is_err());
    drop(buffer);
    assert_eq!((limit.used(), context.take_drop_errors()), (0, Default::default()));
    Ok(())
}
