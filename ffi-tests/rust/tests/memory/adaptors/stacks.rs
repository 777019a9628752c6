//! Stacks of adaptors.

use super::{Heap, Text, lock, logged, numbers, orders, stack};
use cuda_mem::adaptor::{
    AfterFailure, Aligned, FailWhen, Fallback, Limit, Logging, Retry, Statistics, Tracking, named,
};
use cuda_mem::memory::kind;
use cuda_mem::memory::{Accessibility, DeviceMemory, ResourceHandle, SharedResource};
use cuda_mem::{Buffer, Error, Result, Stream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use testkit::{Bench, pattern};

#[test]
fn all_adaptors_stack_in_any_order() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    for order in orders() {
        // A fallback above the alignment allocates unaligned blocks from its second resource.
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
            // The nearest of fallback and retry above it handles the one injected failure, or neither does.
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
        // SAFETY: there is no reference into the block.
        unsafe { top.invalidate(block.host_pointer().wrapping_add(3), 5) }?;
        // SAFETY: nobody else uses the block.
        unsafe { top.flush(block.host_pointer().wrapping_add(4), 6) }?;
        let address = block.host_pointer().addr();
        let expected = [format!("invalidate {:#x} 5", address + 3), format!("flush {:#x} 6", address + 4)];
        assert_eq!(heap.take_calls(), expected, "{order:?}");
        // SAFETY: the block is the resource's, and nothing uses it. The heap belongs to no context.
        unsafe { top.abandon(block) };
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
        // Once without a limit, and once with a limit of 0 bytes: then the fallback allocates, if it is above the
        // limit.
        for limit in [usize::MAX, 0] {
            let stack = stack(&order, &base, limit, &[])?;
            let Ok(block) = stack.top.allocate(100, 16, &stream) else { continue };
            let figures = || {
                let counts = stack.statistics.counts();
                (counts.bytes, counts.blocks, stack.limit.used(), stack.tracking.live().len(), heap.live())
            };
            let (before, second) = (figures(), stack.fallback.blocks_of_second());
            heap.stuck.store(true, Ordering::Relaxed);
            // SAFETY: the block is the stack's, and nothing uses it.
            let error = unsafe { stack.top.deallocate(block, &stream) }.unwrap_err();
            assert!(matches!(error, Error::Foreign { .. }), "{error}");
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

#[test]
fn eight_threads_over_a_stack_leave_the_figures_of_a_model() -> Result<()> {
    let Bench { context, pool, .. } = Bench::new()?;
    let limit = Limit::new(&Statistics::new(&pool), 200_000);
    let (statistics, tracking) = (Statistics::new(&limit), Tracking::new(&limit));
    let log = Text::default();
    let top = Logging::new(&Retry::new(&Tracking::new(&statistics), 2, |_, _| AfterFailure::Again), log.clone());
    let section = statistics.section();
    let over = AtomicUsize::new(0);
    // Each thread counts its allocations and refusals.
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
    // Each refusal had two attempts. A successful allocation may also have had one failed attempt.
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
