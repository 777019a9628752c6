//! Tests of counts, limits and tracking.

use super::Heap;
use cuda_mem::adaptor::{Limit, Statistics, Tracking, named};
use cuda_mem::memory::{Accessibility, Block, MemoryResource, ResourceHandle, SharedResource};
use cuda_mem::{Context, Error, Result, Stream};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use testkit::Bench;

/// A resource whose frees give the memory back, then let another thread act before they return.
#[derive(Debug)]
struct SlowToReturn {
    heap: SharedResource,
    freed: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

// SAFETY: the blocks are the heap's.
unsafe impl MemoryResource for SlowToReturn {
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        self.heap.allocate(size, alignment, stream)
    }

    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.heap.deallocate(block, stream) }?;
        let _ = self.freed.send(());
        let _ = self.go_on.lock().expect("no thread panics").recv();
        Ok(())
    }

    fn context(&self) -> &Context {
        self.heap.context()
    }

    fn accessibility(&self) -> Accessibility {
        self.heap.accessibility()
    }
}

#[test]
fn a_peak_never_counts_memory_that_was_freed() -> Result<()> {
    let Bench { context, stream, .. } = Bench::new()?;
    let ((freed, when_freed), (let_go, go_on)) = (channel(), channel());
    // One block at a time.
    let heap = Limit::new(&Heap::new(&context, 0), 64).share();
    let statistics = Statistics::new(&Arc::new(SlowToReturn { heap, freed, go_on: Mutex::new(go_on) }));
    let (resource, section) = (statistics.share(), statistics.section());
    let block = resource.allocate(64, 1, &stream)?;
    let next = thread::scope(|scope| {
        // SAFETY: the block is the resource's, and nothing uses it.
        let freeing = scope.spawn(|| unsafe { resource.deallocate(block, &stream) });
        when_freed.recv().expect("the free sends");
        let next = resource.allocate(64, 1, &stream);
        let_go.send(()).expect("the free waits");
        freeing.join().expect("no thread panics").and(next)
    })?;
    for counts in [statistics.counts(), section.counts()] {
        assert_eq!((counts.blocks.peak, counts.blocks.current, counts.blocks.total), (1, 1, 2));
        assert_eq!((counts.bytes.peak, counts.failed_frees), (64, 0));
    }
    let_go.send(()).expect("the free will wait");
    // SAFETY: as above.
    unsafe { resource.deallocate(next, &stream) }
}

#[test]
fn a_free_that_fails_is_still_counted_as_live() -> Result<()> {
    let Bench { context, stream, .. } = Bench::new()?;
    let heap = Heap::new(&context, 0);
    let statistics = Statistics::new(&heap);
    let (resource, section) = (statistics.share(), statistics.section());
    let block = resource.allocate(64, 1, &stream)?;
    heap.stuck.store(true, Ordering::Relaxed);
    // SAFETY: the block is the resource's, and nothing uses it.
    assert!(unsafe { resource.deallocate(block, &stream) }.is_err());
    for counts in [statistics.counts(), section.counts()] {
        assert_eq!((counts.blocks.current, counts.bytes.current, counts.blocks.peak), (1, 64, 1));
        assert_eq!((counts.failed_frees, counts.blocks.total), (1, 1));
    }
    heap.stuck.store(false, Ordering::Relaxed);
    // SAFETY: as above.
    unsafe { resource.deallocate(block, &stream) }
}

#[test]
fn limit_counts_actual_block_sizes_and_frees_oversized_blocks() -> Result<()> {
    let Bench { context, stream, .. } = Bench::new()?;
    let heap = Heap::new(&context, 10);
    let limit = Limit::new(&heap, 100);
    let block = limit.share().allocate(90, 1, &stream)?;
    assert_eq!((limit.used(), limit.available(), heap.live()), (100, 0, 100));
    // SAFETY: the block is the limit's, and nothing uses it.
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
    // A block whose free fails stays counted, and the failure is reported.
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
    assert_eq!((live.len(), live[0].address, live[0].size), (1, block.device_pointer(), 1000));
    assert_eq!((live[0].name.as_deref(), live[0].thread.id()), (Some("outer/inner"), std::thread::current().id()));
    let trace = live[0].backtrace.as_ref().expect("asked for").to_string();
    // A program without symbols prints no names.
    assert!(trace.contains("racking") || trace.contains("<unknown>"), "{trace}");
    let report = tracking.leak_report().to_string();
    assert!(report.starts_with("1 live block, 1000 bytes\n") && report.contains("outer/inner"), "{report}");

    let wrong = [block.with_size(999), block.part(256, block.size())];
    for wrong in wrong {
        // SAFETY: tracking refuses it.
        let error = unsafe { resource.deallocate(wrong, &stream) }.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "block", .. }), "{error}");
        // SAFETY: tracking refuses it.
        unsafe { resource.abandon(wrong) };
    }
    assert_eq!(below.counts().blocks.current, 1);
    // SAFETY: the block is the resource's, and nothing uses it.
    unsafe { resource.deallocate(block, &stream) }?;
    // SAFETY: tracking refuses it.
    let error = unsafe { resource.deallocate(block, &stream) }.unwrap_err();
    assert!(error.to_string().contains("freed before"), "{error}");
    assert_eq!((below.counts().blocks.current, below.counts().failed_frees), (0, 0));
    assert_eq!(tracking.leak_report().to_string(), "no live blocks");
    Ok(())
}
