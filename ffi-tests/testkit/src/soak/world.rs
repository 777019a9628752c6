//! The objects that threads share for several rounds: contexts, sources of memory, engines.

use super::checked_buffer::CheckedBuffer;
use crate::Setup;
use crate::sources::{Memory, available};
use cuda_mem::adaptor::{
    AfterFailure, Aligned, FailWhen, FailureInjection, Fallback, GuardOptions, Guarded, Limit, Logging, Recording,
    Retry, Statistics, Tracking,
};
use cuda_mem::copy::{CopyEngine, StagingOptions};
use cuda_mem::memory::kind::{Any, Pinned};
use cuda_mem::memory::{DeviceMemory, DriverPool, PinnedMemory, ResourceHandle, SharedResource};
use cuda_mem::pool::{Pool, PoolOptions, Reuse, RingOptions, RingPool, Tracked};
use cuda_mem::signal::{SignalKernels, Signals};
use cuda_mem::{Context, Error, MappedMemory, Result};
use std::sync::{Mutex, PoisonError, RwLock};

/// The maximum number of buffers that threads leave for each other.
const LEFT: usize = 16;

/// A source of memory.
#[derive(Debug)]
pub struct Source {
    /// Its name.
    pub name: &'static str,
    /// The source.
    pub resource: SharedResource,
    /// The largest single request, in bytes.
    pub most: usize,
}

/// The objects that all threads share.
#[derive(Debug)]
pub struct World {
    /// The first device's primary context.
    pub context: Context,
    /// The second device's, if there is one.
    pub far: Option<Context>,
    /// Whether the linked-in software GPU is used.
    pub software: bool,
    /// All sources, device memory first.
    pub sources: Vec<Source>,
    /// Pools over some of them.
    pub pools: Vec<Pool<Any>>,
    /// Rings of pinned memory.
    pub rings: Vec<RingPool<Pinned>>,
    /// An engine that copies with the CPU and the driver.
    pub engine: CopyEngine,
    /// Device memory that the CPU addresses: one resource prefers coherence, the other is never coherent.
    pub mapped: Vec<MappedMemory>,
    /// Flags and rings.
    pub signals: Signals,
    /// The kernels that use the signals.
    pub kernels: SignalKernels,
    /// A pool of device memory that other processes may import.
    pub shareable: Option<DriverPool<Any>>,
    /// A thread that captures holds this for reading. A thread that lets the CPU wait for the whole context holds it
    /// for writing: the driver refuses that wait while a stream captures, and the capture is lost.
    pub captures: RwLock<()>,
    statistics: Statistics<Any>,
    tracking: Tracking<Any>,
    limit: Limit<Any>,
    guards: Vec<Guarded<Any>>,
    left: Mutex<Vec<CheckedBuffer>>,
}

impl World {
    /// Creates everything that the device supports.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    pub fn new(setup: &Setup, seed: u64, with_mapped: bool) -> Result<Self> {
        let context = &setup.context;
        let far = match setup.driver.device_count()? {
            0 | 1 => None,
            _ => Some(setup.driver.device(1)?.primary_context()?),
        };
        let (mut sources, mut mapped, mut shareable) = (Vec::new(), Vec::new(), None);
        for (name, memory) in available(context)? {
            sources.push(Source { name, resource: memory.share(), most: 1 << 16 });
            match &memory {
                Memory::Mapped(_) if !with_mapped => drop(sources.pop()),
                Memory::Mapped(memory) => mapped.push(memory.clone()),
                Memory::DriverPool(pool) if memory.is_shareable() && !memory.share().accessibility().host => {
                    shareable = Some(pool.clone());
                }
                _ => {}
            }
        }
        let mut pools = Vec::new();
        for (number, source) in sources.iter().enumerate() {
            pools.push(Pool::new(&source.resource, &pool_settings(number))?);
        }
        let rings = [RingOptions::default(), RingOptions::default()];
        let rings = rings.iter().map(|settings| RingPool::new(&PinnedMemory::new(context), 1 << 18, settings));
        let rings = rings.collect::<Result<Vec<_>>>()?;

        let device = DeviceMemory::new(context).share();
        let statistics = Statistics::new(&pools[0]);
        let limit = Limit::new(&statistics, 4 << 20);
        let tracking = Tracking::new(&limit);
        let failing = FailureInjection::new(&device, [FailWhen::Chance { probability: 0.2, seed }]);
        let retry = Retry::new(&failing, 4, |_, _| AfterFailure::Again);
        let fallback = Fallback::new(&failing, &pools[0])?;
        let aligned = Aligned::new(&Logging::new(&device, std::io::sink()), 4096)?;
        let recording = Recording::new(&Pool::new(&PinnedMemory::new(context).share(), &pool_settings(1))?, 1000);
        let mut settings = GuardOptions::default();
        settings.quarantine = 1 << 18;
        let guards =
            vec![Guarded::new(&device, &settings)?, Guarded::new(&PinnedMemory::new(context).share(), &settings)?];
        let mut add = |name, resource: SharedResource, most| sources.push(Source { name, resource, most });
        for pool in &pools {
            add("a pool", pool.share(), 1 << 16);
        }
        add("tracked memory within a limit", tracking.share(), 1 << 16);
        add("memory that fails at times", failing.share(), 1 << 14);
        add("memory asked for again", retry.share(), 1 << 14);
        add("memory of two sources", fallback.share(), 1 << 14);
        add("aligned memory", aligned.share(), 1 << 14);
        add("recorded memory", recording.share(), 1 << 16);
        for guarded in &guards {
            add("guarded memory", guarded.share(), 1 << 12);
        }
        let mut staging = StagingOptions::default();
        (staging.slot_size, staging.slots, staging.lanes) = (16 << 10, 4, 3);
        let engine = CopyEngine::builder(context).staging(staging).helper_threads(2).build()?;
        let signals = Signals::new(context)?;
        let kernels = SignalKernels::of(context)?;
        let (context, software) = (context.clone(), setup.is_software());
        let left = Mutex::default();
        Ok(Self {
            context,
            far,
            software,
            sources,
            pools,
            rings,
            engine,
            mapped,
            signals,
            kernels,
            shareable,
            captures: RwLock::default(),
            statistics,
            tracking,
            limit,
            guards,
            left,
        })
    }

    /// Leaves a buffer for another thread.
    pub fn leave(&self, held: CheckedBuffer) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = if left.len() < LEFT { None } else { Some(left.remove(0)) };
        left.push(held);
        drop(left);
        // Drop the buffer outside the lock, because its end may wait.
        drop(gone);
    }

    /// Takes a buffer that a thread left.
    pub fn take_left(&self) -> Option<CheckedBuffer> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Runs when no thread works: checks and ends the remaining buffers, and then checks that all accounts agree.
    ///
    /// # Errors
    ///
    /// Bytes differ, or an account counts memory that nobody holds.
    pub fn settle(&self) -> core::result::Result<(), String> {
        let words = |error: Error| format!("at the end of a round, without faults: {error}");
        while let Some(held) = self.take_left() {
            held.same(&held.buffer.to_vec().map_err(words)?, 0..held.model.len())?;
        }
        self.context.synchronize().map_err(words)?;
        // The pools learn of the ends of graphs there.
        softgpu::finish_destructors();
        let live: Vec<u64> = self.pools.iter().map(|pool| pool.statistics().blocks.current).collect();
        let rings: Vec<u64> = self.rings.iter().map(|ring| ring.statistics().used.current).collect();
        if live.iter().chain(&rings).any(|live| *live != 0) {
            return Err(format!("pools count live blocks that nothing holds: {live:?}, {rings:?}"));
        }
        let counted = self.statistics.counts();
        if (counted.bytes.current, counted.blocks.current, self.limit.used()) != (0, 0, 0) {
            return Err(format!(
                "adaptors count memory that nothing holds: {counted:?}, {} of the limit",
                self.limit.used()
            ));
        }
        if !self.tracking.live().is_empty() {
            return Err(format!("tracked blocks without an owner: {:?}", self.tracking.live()));
        }
        for guarded in &self.guards {
            let damage = guarded.check().map_err(words)?;
            if !damage.is_empty() {
                return Err(format!("damaged: {damage:?}"));
            }
        }
        self.engine.trim();
        if self.engine.reserved_staging() != 0 {
            return Err(format!("{} bytes of staging have no owner", self.engine.reserved_staging()));
        }
        for pool in &self.pools {
            pool.release_unused().map_err(words)?;
            let reserved = pool.statistics().reserved.current;
            if reserved != 0 {
                return Err(format!("a pool without blocks has {reserved} bytes: {pool:?}"));
            }
        }
        Ok(())
    }
}

/// Small growth steps, and a limit that is reached.
fn pool_settings(number: usize) -> PoolOptions {
    let mut settings = PoolOptions::default();
    (settings.initial, settings.smallest_growth, settings.largest_growth) = (0, 1 << 17, 1 << 18);
    (settings.maximum, settings.cache_capacity) = (2 << 20, 1 << 17);
    settings.reuse = [Reuse::Wait, Reuse::WhenPassed, Reuse::SameStreamOnly][number % 3];
    settings.trace_capacity = if number % 4 == 1 { 1000 } else { 0 };
    settings.tracking = if number % 4 == 2 { Tracked::Names } else { Tracked::No };
    settings
}
