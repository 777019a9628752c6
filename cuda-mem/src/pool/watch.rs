//! The trace of a pool and the list of its live blocks, if its options request them.

use super::Pool;
use super::options::{LeakHook, PoolOptions, Tracked};
use crate::adaptor::trace::{Action, Ring, Trace};
use crate::adaptor::{Account, LeakReport, Observe, observed_free};
use crate::error::callback::call_back;
use crate::error::drop_errors::DropErrors;
use crate::memory::resource::Block;
use crate::{Result, Stream};

/// The trace of a pool and the list of its live blocks. A pool that records neither has no `Watch`.
#[derive(Debug)]
pub(super) struct Watch {
    ring: Option<Ring>,
    account: Option<Account>,
}

impl Watch {
    pub fn new(options: &PoolOptions) -> Option<Box<Self>> {
        let tracked = match options.tracking {
            Tracked::No if options.on_leak.is_some() => Tracked::Names,
            tracked => tracked,
        };
        let account =
            (tracked != Tracked::No).then(|| Account::new("Pool::deallocate", tracked == Tracked::Backtraces));
        let ring = Ring::new(options.trace_capacity);
        (ring.is_some() || account.is_some()).then(|| Box::new(Self { ring, account }))
    }

    /// Records the outcome of an allocation.
    #[cold]
    pub fn allocated(&self, size: usize, stream: &Stream, block: Result<Block>) -> Result<Block> {
        self.ring.allocated(size, stream, &block);
        self.account.allocated(size, stream, &block);
        block
    }

    /// Records a free, and carries it out.
    #[cold]
    pub fn freed(&self, block: Block, stream: &Stream, free: impl FnOnce() -> Result<()>) -> Result<()> {
        observed_free(&self.account, block, stream, || observed_free(&self.ring, block, stream, free))
    }

    /// Records a block whose context has ended.
    #[cold]
    pub fn abandoned(&self, block: Block) {
        let _ = self.ring.freeing(block, None);
        let _ = self.account.freeing(block, None);
    }

    /// Records that the pool added or returned a region.
    pub fn region(&self, action: Action, region: Block) {
        if let Some(ring) = &self.ring {
            ring.note(action, region.device_pointer(), region.size(), 0, None);
        }
    }

    /// Records that the pool made a stream wait before its use of a block.
    pub fn waited(&self, block: Block, stream: &Stream) {
        if let Some(ring) = &self.ring {
            ring.note(Action::Wait, block.device_pointer(), block.size(), stream.raw().addr() as u64, None);
        }
    }

    pub fn trace(&self) -> Option<Trace> {
        self.ring.as_ref().map(Ring::trace)
    }

    /// The live blocks, if the pool records them.
    pub fn leak_report(&self) -> Option<LeakReport> {
        self.account.as_ref().map(|account| LeakReport { blocks: account.live() })
    }

    /// Reports the live blocks to the hook when the last handle is dropped.
    pub fn last_handle_gone(&self, hook: &LeakHook, drop_errors: &DropErrors) {
        if let Some(report) = self.leak_report().filter(|report| !report.blocks.is_empty())
            && let Err(panicked) = call_back(|| hook(&report))
        {
            drop_errors.push("reporting a pool's leaks", panicked.of("the leak hook"));
        }
    }
}

impl<K> Pool<K> {
    /// The newest events, oldest first. Empty unless [`PoolOptions::trace_capacity`] requests events.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory, pool::{Pool, PoolOptions}};
    /// # let stream = Stream::new(&context)?;
    /// use cuda_mem::trace::Action;
    /// let mut options = PoolOptions::default();
    /// options.trace_capacity = 1000;
    /// let pool = Pool::new(&DeviceMemory::new(&context), &options)?;
    /// drop(Buffer::<u8, _>::zeroed(&pool, 4096, &stream)?);
    /// let actions: Vec<_> = pool.trace().events.iter().map(|event| event.action).collect();
    /// assert_eq!(actions, [Action::Grow, Action::Allocate, Action::Free]);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn trace(&self) -> Trace {
        self.core().watch.as_ref().and_then(|watch| watch.trace()).unwrap_or_default()
    }

    /// The live blocks, with names, threads, ages and perhaps backtraces. `None` unless [`PoolOptions::tracking`]
    /// requests them; a [snapshot](Self::snapshot) then still shows addresses, sizes, and the names that were
    /// [set](Self::set_name).
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory, pool::{Pool, PoolOptions}};
    /// # let stream = Stream::new(&context)?;
    /// use cuda_mem::{adaptor::named, pool::Tracked};
    /// let mut options = PoolOptions::default();
    /// options.tracking = Tracked::Names;
    /// let pool = Pool::new(&DeviceMemory::new(&context), &options)?;
    /// let kept = named("weights", || Buffer::<u8, _>::zeroed(&pool, 4096, &stream))?;
    /// let report = pool.leak_report().map(|report| report.to_string());
    /// assert!(report.is_some_and(|text| text.contains("4 KiB, weights")));
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn leak_report(&self) -> Option<LeakReport> {
        self.core().watch.as_ref()?.leak_report()
    }
}
