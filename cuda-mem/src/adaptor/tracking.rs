//! Records of live blocks.

use super::{Adapted, Observe, current_name, handle};
use crate::error::size::Size;
use crate::error::{check_not_forked, unless_forked};
use crate::locks::Mutex;
use crate::memory::resource::{Block, Kind, ResourceHandle};
use crate::{Error, Result, Stream};
use core::fmt;
use core::time::Duration;
use cuda_sys::CUdeviceptr;
use std::backtrace::Backtrace;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::Instant;

handle! {
    /// Records each live block: its address, size, age, thread and [name](super::named). A free of a block that is not
    /// live is an error, and does not reach the driver. Cheap to clone; the clones share the records.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// use cuda_mem::{Buffer, adaptor::{Tracking, named}, memory::DeviceMemory};
    /// let tracking = Tracking::new(&DeviceMemory::new(&context));
    /// let weights = named("weights", || Buffer::<u8, _>::zeroed(&tracking, 4096, &stream))?;
    /// let live = &tracking.live()[0];
    /// assert_eq!((live.address, live.size, live.name.as_deref()), (weights.device_pointer(), 4096, Some("weights")));
    /// assert!(tracking.leak_report().to_string().starts_with("1 live block, 4 KiB"));
    /// drop(weights);
    /// assert_eq!(tracking.leak_report().to_string(), "no live blocks");
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    Tracking holds Adapted<Account>
}

impl<K: Kind> Tracking<K> {
    /// Records the allocations from `upstream` through the new handle.
    pub fn new<R: ResourceHandle<Kind = K> + ?Sized>(upstream: &R) -> Self {
        Self::make(upstream, false)
    }

    /// Records the allocations from `upstream` through the new handle, each with a backtrace. A backtrace takes
    /// microseconds, and is readable if the program has debug information.
    pub fn with_backtraces<R: ResourceHandle<Kind = K> + ?Sized>(upstream: &R) -> Self {
        Self::make(upstream, true)
    }

    fn make<R: ResourceHandle<Kind = K> + ?Sized>(upstream: &R, backtraces: bool) -> Self {
        let adaptor = Account::new("Tracking::deallocate", backtraces);
        Self::from_inner(Adapted { adaptor, upstream: upstream.share() })
    }

    /// The live blocks, oldest first.
    pub fn live(&self) -> Vec<LiveBlock> {
        self.inner.adaptor.live()
    }

    /// The live blocks as a printable report.
    pub fn leak_report(&self) -> LeakReport {
        LeakReport { blocks: self.live() }
    }
}

/// A live block.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LiveBlock {
    /// The device address.
    pub address: CUdeviceptr,
    /// The size in bytes.
    pub size: usize,
    /// The time since it was allocated.
    pub age: Duration,
    /// The [name](super::named) under which it was allocated.
    pub name: Option<Arc<str>>,
    /// The thread that allocated it.
    pub thread: Thread,
    /// Where it was allocated, with [`Tracking::with_backtraces`].
    pub backtrace: Option<Arc<Backtrace>>,
}

impl fmt::Display for LiveBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_deref().unwrap_or("without a name");
        let (thread, id) = (self.thread.name().unwrap_or("without a name"), self.thread.id());
        let size = Size(self.size as u64);
        write!(f, "{:#x}: {size}, {name}, {:.3?} old, of thread {thread} ({id:?})", self.address, self.age)
    }
}

/// The live blocks. At a program's end, they are its leaks. It prints the sum for each name, then each block.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeakReport {
    /// Oldest first.
    pub blocks: Vec<LiveBlock>,
}

impl fmt::Display for LeakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: usize = self.blocks.iter().map(|block| block.size).sum();
        match self.blocks.len() {
            0 => return f.write_str("no live blocks"),
            1 => write!(f, "1 live block, {}", Size(bytes as u64))?,
            count => write!(f, "{count} live blocks, {}", Size(bytes as u64))?,
        }
        let mut sums = BTreeMap::<&str, (usize, u64)>::new();
        for block in &self.blocks {
            let (count, bytes) = sums.entry(block.name.as_deref().unwrap_or("without a name")).or_default();
            (*count, *bytes) = (*count + 1, *bytes + block.size as u64);
        }
        if self.blocks.len() > sums.len() {
            for (name, (count, bytes)) in sums {
                write!(f, "\n  {name}: {count} blocks, {}", Size(bytes))?;
            }
        }
        for block in &self.blocks {
            write!(f, "\n  {block}")?;
            if let Some(backtrace) = &block.backtrace {
                for line in backtrace.to_string().lines() {
                    write!(f, "\n    {line}")?;
                }
            }
        }
        Ok(())
    }
}

/// The records of live blocks.
#[derive(Debug)]
pub(crate) struct Account {
    /// The freeing call that errors name.
    call: &'static str,
    backtraces: bool,
    live: Mutex<Records>,
}

impl Account {
    pub fn new(call: &'static str, backtraces: bool) -> Self {
        Self { call, backtraces, live: Mutex::default() }
    }

    /// The live blocks, oldest first.
    pub fn live(&self) -> Vec<LiveBlock> {
        unless_forked(|| self.with(|records| records.list(Instant::now())))
    }

    fn with<R>(&self, work: impl FnOnce(&mut Records) -> R) -> R {
        work(&mut self.live.lock())
    }
}

impl Observe for Account {
    type Free = TrackedBlock;

    fn allocated(&self, _size: usize, _stream: &Stream, block: &Result<Block>) {
        let Ok(block) = block else { return };
        let record = TrackedBlock {
            size: block.size(),
            since: Instant::now(),
            name: current_name(),
            thread: thread::current(),
            backtrace: self.backtraces.then(|| Arc::new(Backtrace::force_capture())),
        };
        self.with(|records| records.insert(block.device_pointer(), record));
    }

    /// Removes the block from the list, or refuses: it is not live.
    fn freeing(&self, block: Block, _stream: Option<&Stream>) -> Result<TrackedBlock> {
        check_not_forked(self.call)?;
        self.with(|records| records.remove(self.call, block.device_pointer(), block.size()))
    }

    fn free_failed(&self, block: Block, _stream: &Stream, record: TrackedBlock) {
        self.with(|records| records.insert(block.device_pointer(), record));
    }
}

#[derive(Debug)]
pub(crate) struct TrackedBlock {
    size: usize,
    since: Instant,
    name: Option<Arc<str>>,
    thread: Thread,
    backtrace: Option<Arc<Backtrace>>,
}

/// The live blocks by device address.
#[derive(Debug, Default)]
struct Records(HashMap<CUdeviceptr, TrackedBlock>);

impl Records {
    fn insert(&mut self, address: CUdeviceptr, record: TrackedBlock) {
        self.0.insert(address, record);
    }

    /// Removes the record of a live block of this size.
    fn remove(&mut self, call: &'static str, address: CUdeviceptr, size: usize) -> Result<TrackedBlock> {
        let wrong = |value: String, rule| Err(Error::invalid(call, "block", value, rule));
        match self.0.get(&address).map(|record| record.size) {
            None => wrong(
                format!("{address:#x} of {size} bytes"),
                "it must be a live block of this resource: this one was freed before, or came from elsewhere",
            ),
            Some(live) if live != size => wrong(
                format!("{address:#x} of {size} bytes, allocated with {live}"),
                "a block must be freed with the size that it was allocated with",
            ),
            Some(_) => match self.0.remove(&address) {
                Some(record) => Ok(record),
                None => unreachable!("the record was just found"),
            },
        }
    }

    fn list(&self, now: Instant) -> Vec<LiveBlock> {
        let block = |(address, record): (&CUdeviceptr, &TrackedBlock)| LiveBlock {
            address: *address,
            size: record.size,
            age: now.saturating_duration_since(record.since),
            name: record.name.clone(),
            thread: record.thread.clone(),
            backtrace: record.backtrace.clone(),
        };
        let mut blocks: Vec<_> = self.0.iter().map(block).collect();
        blocks.sort_by_key(|block| (core::cmp::Reverse(block.age), block.address));
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(size: usize, since: Instant, name: Option<&str>) -> TrackedBlock {
        TrackedBlock { size, since, name: name.map(Arc::from), thread: thread::current(), backtrace: None }
    }

    #[test]
    fn only_live_blocks_of_the_right_size_are_freed_and_once() {
        let now = Instant::now();
        let mut records = Records::default();
        records.insert(0x100, record(16, now, None));
        let text = records.remove("test", 0x100, 17).unwrap_err().to_string();
        assert!(text.contains("0x100 of 17 bytes, allocated with 16"), "{text}");
        assert!(records.remove("test", 0x101, 16).unwrap_err().to_string().contains("came from elsewhere"));
        assert_eq!(records.remove("test", 0x100, 16).unwrap().size, 16);
        assert!(records.remove("test", 0x100, 16).unwrap_err().to_string().contains("freed before"));
    }

    #[test]
    fn the_report_lists_the_oldest_first() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut records = Records::default();
        records.insert(0x200, record(10, at(2), Some("young")));
        records.insert(0x300, record(20, at(1), Some("old")));
        let report = LeakReport { blocks: records.list(at(3)) };
        let text = report.to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "2 live blocks, 30 bytes");
        assert!(lines[1].starts_with("  0x300: 20 bytes, old, 2.000s old, of thread "), "{text}");
        assert!(lines[2].starts_with("  0x200: 10 bytes, young, 1.000s old, of thread "), "{text}");
    }
}
