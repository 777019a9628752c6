//! Fallbacks, alignments, injected failures.

use super::{Bomb, Heap, orders, stack};
use cuda_mem::adaptor::{Aligned, FailWhen, FailureInjection, Fallback, Limit, Statistics};
use cuda_mem::memory::kind::{Any, Pinned};
use cuda_mem::memory::{Accessibility, DeviceMemory, ResourceHandle, SharedResource};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Buffer, Error, Result, Stream};
use std::sync::atomic::Ordering;
use testkit::Bench;

#[test]
fn fallback_frees_at_the_origin_and_handles_only_out_of_memory() -> Result<()> {
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

    // An error other than out of memory does not use the fallback.
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
fn fallback_of_two_kinds_offers_the_access_common_to_both() -> Result<()> {
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
    // SAFETY: the writes below initialise every byte that is read.
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
    // SAFETY: every byte of it belongs to the array.
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
    // If the pool itself aligns the block, the adaptor requests no more than the program.
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
fn injected_failures_default_to_out_of_memory_or_a_chosen_error() -> Result<()> {
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

/// Checks that `work` panics. The panic's payload is leaked, because it panics when it is dropped.
fn panics<R>(work: impl FnOnce() -> R) {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    assert!(outcome.is_err_and(|panic| std::mem::ManuallyDrop::new(panic).is::<Bomb>()));
}

#[test]
fn a_resource_that_panics_leaves_every_account_as_it_was() -> Result<()> {
    let Bench { context, stream, .. } = Bench::new()?;
    for order in orders() {
        let heap = Heap::new(&context, 0);
        let stack = stack(&order, &(heap.clone() as SharedResource), 1 << 20, &[])?;
        let block = stack.top.allocate(1000, 4096, &stream)?;
        let account = || {
            let used = (stack.limit.used(), stack.statistics.counts().bytes.current, stack.fallback.blocks_of_second());
            (used, stack.tracking.live().len(), heap.live())
        };
        let before = account();
        heap.panics.store(true, Ordering::Relaxed);
        panics(|| stack.top.allocate(1000, 4096, &stream));
        // SAFETY: nothing uses the block, and it is not freed, because the heap panics first.
        panics(|| unsafe { stack.top.deallocate(block, &stream) });
        heap.panics.store(false, Ordering::Relaxed);
        assert_eq!(account(), before, "{order:?}");
        // SAFETY: the block is freed once.
        unsafe { stack.top.deallocate(block, &stream) }?;
        assert_eq!((heap.live(), stack.limit.used()), (0, 0));
    }
    Ok(())
}

#[test]
fn a_pool_survives_a_source_that_panics() -> Result<()> {
    let Bench { context, stream, .. } = Bench::new()?;
    let heap = Heap::new(&context, 0);
    let mut options = PoolOptions::default();
    (options.initial, options.maximum) = (1 << 16, 1 << 18);
    let pool = Pool::new(&(heap.clone() as SharedResource), &options)?;
    heap.panics.store(true, Ordering::Relaxed);
    panics(|| pool.reserve(1 << 18));
    heap.panics.store(false, Ordering::Relaxed);
    pool.reserve(1 << 18)?;
    assert_eq!(heap.live(), 1 << 18);
    heap.panics.store(true, Ordering::Relaxed);
    let error = pool.release_unused().unwrap_err();
    heap.panics.store(false, Ordering::Relaxed);
    assert_eq!(error.to_string(), "the source of a pool panicked: the panic has no text");
    // It is unknown whether the regions were freed, so the pool no longer holds them.
    assert_eq!(pool.statistics().regions.current, 0);
    drop(Buffer::<u8, _>::uninit(&pool, 1 << 10, &stream)?);
    Ok(())
}

#[test]
fn a_panic_that_a_drop_meets_is_an_error_with_its_text() -> Result<()> {
    let context = Bench::new()?.context.device().create_context()?;
    let stream = Stream::new(&context)?;
    let heap = Heap::new(&context, 0);
    let base: SharedResource = heap.clone();
    let buffer = Buffer::<u8, _>::uninit(&base, 100, &stream)?;
    heap.panics.store(true, Ordering::Relaxed);
    drop(buffer);
    heap.panics.store(false, Ordering::Relaxed);
    let report = context.take_drop_errors();
    assert_eq!(report.errors.len(), 1, "{report:?}");
    assert_eq!(report.errors[0].to_string(), "while freeing a buffer: a resource panicked: the panic has no text");
    Ok(())
}
