//! Adaptors over resources: alone, stacked in many orders, and used by several threads. Runs on any driver.

mod accounts;
mod failures;
mod logs;
mod stacks;

use cuda_mem::adaptor::{
    AfterFailure, Aligned, FailWhen, FailureInjection, Fallback, Limit, Logging, Retry, Statistics, Tracking,
};
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{Accessibility, Block, MemoryResource};
use cuda_mem::memory::{ResourceHandle, SharedResource};
use cuda_mem::{Context, Error, Result, Stream};
use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use testkit::timing::Numbers;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread has panicked")
}

/// A text to which a log is written.
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

/// Panics when it is dropped, and so does the payload of that panic.
struct Bomb(u32);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 {
            std::panic::panic_any(Self(self.0 - 1));
        }
    }
}

/// A user's own resource: heap memory aligned to 16 bytes that records the calls.
#[derive(Debug)]
struct Heap {
    context: Context,
    live: Mutex<HashMap<u64, usize>>,
    calls: Mutex<Vec<String>>,
    /// Frees fail while this is set.
    stuck: AtomicBool,
    /// Allocations and frees panic while this is set.
    panics: AtomicBool,
    /// Bytes by which each block exceeds the request.
    surplus: usize,
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 16).expect("small")
}

impl Heap {
    fn new(context: &Context, surplus: usize) -> Arc<Self> {
        let context = context.clone();
        let (live, calls) = (Mutex::default(), Mutex::default());
        Arc::new(Self { context, live, calls, stuck: AtomicBool::default(), panics: AtomicBool::default(), surplus })
    }

    fn end(&self, block: Block) {
        let size = lock(&self.live).remove(&block.device_pointer());
        assert_eq!(size, Some(block.size()), "a block that is not the heap's: {block:?}");
        // SAFETY: `allocate` made it with this layout.
        unsafe { dealloc(block.host_pointer(), layout(block.size())) };
    }

    fn panic_if_set(&self) {
        if self.panics.load(Ordering::Relaxed) {
            std::panic::panic_any(Bomb(2));
        }
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
            return Err(Error::Alignment { call: "Heap", alignment, largest: 16 });
        }
        self.panic_if_set();
        let size = size + self.surplus;
        // SAFETY: the layout is not empty.
        let pointer = unsafe { alloc(layout(size)) };
        lock(&self.live).insert(pointer as u64, size);
        Ok(Block::unified(pointer, size))
    }

    unsafe fn deallocate(&self, block: Block, _stream: &Stream) -> Result<()> {
        self.panic_if_set();
        if self.stuck.load(Ordering::Relaxed) {
            return Err(Error::Foreign { resource: "Heap", message: "it is stuck".into() });
        }
        self.end(block);
        Ok(())
    }

    unsafe fn abandon(&self, block: Block) {
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
        true // differs from what the accessibility alone implies
    }

    unsafe fn invalidate(&self, start: *mut u8, length: usize) -> Result<()> {
        lock(&self.calls).push(format!("invalidate {:#x} {length}", start.addr()));
        Ok(())
    }

    unsafe fn flush(&self, start: *mut u8, length: usize) -> Result<()> {
        lock(&self.calls).push(format!("flush {:#x} {length}", start.addr()));
        Ok(())
    }
}

/// A stack of all adaptors, with access to each of them.
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

/// Stacks all adaptors, with the first of `order` directly over `base`. The fallback's second resource is also `base`.
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

/// Every rotation of all adaptors, in both directions.
fn orders() -> Vec<Vec<usize>> {
    let rotated = |start| (0..ADAPTORS).map(|n| (start + n) % ADAPTORS).collect::<Vec<_>>();
    (0..ADAPTORS).flat_map(|start| [rotated(start), rotated(start).into_iter().rev().collect()]).collect()
}

/// The log lines with this action, as (pointer, size).
fn logged(log: &Text, action: &str) -> Vec<(String, String)> {
    let line = |line: &String| {
        let fields: Vec<_> = line.split(',').map(str::to_owned).collect();
        assert_eq!(fields.len(), 6, "{line}");
        (fields[2] == action).then(|| (fields[3].clone(), fields[4].clone()))
    };
    log.lines().iter().filter_map(line).collect()
}

/// Pseudo-random numbers, the same in every run.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut numbers = Numbers(seed);
    move |below| numbers.below(below)
}
