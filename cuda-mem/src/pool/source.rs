//! The source of a pool's regions. Allocates regions, checks them, and gives them back.

use super::in_place::Chunks;
use super::options::PoolOptions;
use super::work_order::WorkOrder;
use crate::driver::context::Liveness;
use crate::driver::relaxed::RelaxedCalls;
use crate::error::callback::call_back;
use crate::error::told::told;
use crate::lifetime::captures::captures_under_way;
use crate::lifetime::drop_after_captures;
use crate::memory::resource::{Block, SharedResource};
use crate::{Error, Result, Stream};
use core::mem;
use cuda_sys::CU_STREAM_PER_THREAD;
use std::sync::Arc;

/// Refuses a region with larger atoms than the pool's blocks, or with another coherence than the pool's other regions.
/// A source may serve a request from other memory, as `Fallback` does.
fn check_alike(upstream: &SharedResource, region: Block, (atom, is_coherent): (usize, bool)) -> Result<()> {
    let (its_atom, it_is_coherent) = (upstream.atom(region), upstream.is_coherent(region));
    if it_is_coherent == is_coherent && atom.is_multiple_of(its_atom.max(1)) {
        return Ok(());
    }
    let say = |coherent, atom| {
        format!("{} memory with atoms of {atom} bytes", if coherent { "coherent" } else { "non-coherent" })
    };
    let value = format!("{}, in a pool of {}", say(it_is_coherent, its_atom), say(is_coherent, atom));
    let rule = "all regions of a pool must agree in coherence and atom; put the Fallback over two pools";
    Err(Error::invalid("Pool::allocate", "a new region of the source", value, rule))
}

/// A source, and the properties of its memory.
#[derive(Debug)]
pub(super) struct PoolSource {
    pub upstream: SharedResource,
    /// Regions are allocated and freed on this stream, and contents are saved and restored. It has no other work.
    pub own: Stream,
    /// The alignment of regions, at most 256.
    pub alignment: usize,
    pub atom: usize,
    pub is_coherent: bool,
    /// For a pool that grows in place.
    pub chunks: Option<Chunks>,
}

impl PoolSource {
    /// Allocates a first region of `size` bytes, and finds the largest alignment that the source accepts.
    pub fn open(call: &'static str, upstream: SharedResource, size: usize) -> Result<(Self, Block)> {
        let own = Stream::new(upstream.context())?;
        let mut source = Self { upstream, own, alignment: 0, atom: 1, is_coherent: true, chunks: None };
        let first = source.first(size).map_err(|error| match error {
            Error::OutOfMemory { requested, device, free, message, .. } => {
                Error::OutOfMemory { call, requested, device, free, message }
            }
            error => error,
        })?;
        (source.atom, source.is_coherent) = (source.upstream.atom(first), source.upstream.is_coherent(first));
        if first.device_pointer() != 0 && first.size() >= size {
            return Ok((source, first));
        }
        let error = unusable(call, first);
        source.free(first).and(Err(error))
    }

    fn first(&mut self, size: usize) -> Result<Block> {
        for alignment in [256, 128, 64, 32] {
            self.alignment = alignment;
            match self.allocate_any(size) {
                Err(Error::Alignment { .. }) => {}
                other => return other,
            }
        }
        self.alignment = 16;
        self.allocate_any(size)
    }

    /// Allocates a further region, with the properties of the first.
    pub fn allocate(&self, size: usize) -> Result<Block> {
        let block = self.allocate_any(size)?;
        let usable = match block.device_pointer() != 0 && block.size() >= size {
            true => check_alike(&self.upstream, block, (self.atom, self.is_coherent)),
            false => Err(unusable("Pool::allocate", block)),
        };
        match usable {
            Ok(()) => Ok(block),
            Err(error) => self.free(block).and(Err(error)),
        }
    }

    /// Allocates a region that every stream may use at once: waits for the allocation on the source's own stream.
    fn allocate_any(&self, size: usize) -> Result<Block> {
        let _relaxed = self.relaxed()?;
        let block = self.upstream.allocate(size, self.alignment, &self.own)?;
        match self.own.wait_for_work() {
            // No work uses a region.
            Ok(()) => Ok(block.fresh()),
            Err(error) => self.free(block).and(Err(error)),
        }
    }

    /// The stream after which a block is free that is freed on `stream`. The per-thread default stream is another stream on
    /// each thread, so its work is waited for here, and the block is free at once.
    pub fn stream_of_free<'stream>(&'stream self, stream: &'stream Stream) -> Result<&'stream Stream> {
        if stream.raw() != CU_STREAM_PER_THREAD {
            return Ok(stream);
        }
        // If the context has ended, its work has ended too.
        stream.wait_for_work().or_else(|error| stream.context().unless_ended(error))?;
        Ok(&self.own)
    }

    /// Keeps the source's calls out of captures, also of those of other libraries, which this crate cannot see.
    pub fn relaxed(&self) -> Result<RelaxedCalls<'_>> {
        RelaxedCalls::begin(self.upstream.context().driver())
    }

    /// A source that grows in place, without memory yet. `None` if the pool must allocate regions.
    pub fn of_chunks(upstream: &SharedResource, options: &PoolOptions) -> Result<Option<Self>> {
        let Some(chunks) = Chunks::of(upstream, options) else { return Ok(None) };
        options.check("Pool::new", chunks.unit)?;
        let own = Stream::new(upstream.context())?;
        let (upstream, chunks) = (upstream.clone(), Some(chunks));
        Ok(Some(Self { upstream, own, alignment: 256, atom: 1, is_coherent: true, chunks }))
    }

    /// Gives a region back. No block of it is in use, and its work is done. A panic of the source becomes an error.
    pub fn free(&self, block: Block) -> Result<()> {
        let _relaxed = self.relaxed()?;
        if let Some(chunks) = &self.chunks {
            return chunks.unmap(block);
        }
        // SAFETY: the callers, the pools of this module, have handed out no block of the region, or have got all of
        // them back, and no work uses it.
        let freed = call_back(|| unsafe { self.upstream.deallocate(block, &self.own) });
        freed.unwrap_or_else(|panic| Err(panic.of("the source of a pool")))
    }

    /// Forgets a region of a context that has ended. Its pool ends too.
    fn abandon(&self, block: Block) {
        match &self.chunks {
            // Mappings do not end with the context.
            Some(chunks) => match chunks.unmap(block) {
                Err(error) if !error.is_teardown() => {
                    self.upstream.context().drop_errors().push("ending a pool", error);
                }
                _ => {}
            },
            // SAFETY: the pool ends, its regions were neither freed nor abandoned before, and the context has ended.
            None => unsafe { self.upstream.abandon(block) },
        }
    }

    /// Gives a pool's regions back at its end. `synchronize` waits for the events behind the work that may use them, and
    /// tells which work has none. If that work cannot be waited for while this crate captures, the regions are given back
    /// after the capture. If it cannot be waited for at all, only the regions that `settled` returns are given back. The
    /// other regions stay until their context ends.
    pub fn end<P>(
        self: &Arc<Self>,
        doing: &'static str,
        pool: &mut P,
        synchronize: impl FnOnce(&mut P) -> (Result<()>, Vec<WorkOrder>),
        regions: impl FnOnce(&mut P) -> Vec<Block>,
        settled: impl FnOnce(&mut P) -> Vec<Block>,
    ) {
        let context = self.upstream.context();
        match context.liveness() {
            Liveness::DriverGone => {}
            Liveness::Gone => regions(pool).into_iter().for_each(|block| self.abandon(block)),
            Liveness::Alive => {
                let _relaxed = RelaxedCalls::begin(context.driver());
                let (mut result, orders) = synchronize(pool);
                let ended = match orders.iter().try_for_each(|order| order.drain(doing)) {
                    Err(error) if context.is_ended_by(&error) => regions(pool),
                    Err(_) if captures_under_way() => {
                        let (source, regions) = (self.clone(), regions(pool));
                        return drop_after_captures(EndedInCapture { source, doing, orders, regions });
                    }
                    Err(error) => {
                        result = result.and(Err(error));
                        settled(pool)
                    }
                    Ok(()) => regions(pool),
                };
                for block in ended {
                    result = self.free(block).and(result);
                }
                if let Err(error) = result
                    && !context.is_ended_by(&error)
                {
                    context.drop_errors().push(doing, error);
                }
            }
        }
    }

    /// The error of a pool that has no memory. `message` is the pool's part of the text.
    pub fn out_of_memory(&self, call: &'static str, requested: usize, message: String) -> Error {
        let context = self.upstream.context();
        let _relaxed = self.relaxed();
        let free = context.memory_info().ok().map(|info| info.free);
        #[cfg(feature = "tracing")]
        let text = message.clone();
        told!("cuda_mem::pool", WARN, call, requested, free, "a pool is out of memory: {text}");
        Error::OutOfMemory {
            call,
            requested,
            device: context.device().name().unwrap_or_default().into(),
            free,
            message: message.into(),
        }
    }
}

/// Regions of a pool that has ended during a capture, and the work that may use them. The drop gives them back.
struct EndedInCapture {
    source: Arc<PoolSource>,
    doing: &'static str,
    orders: Vec<WorkOrder>,
    regions: Vec<Block>,
}

impl Drop for EndedInCapture {
    fn drop(&mut self) {
        let (source, doing) = (self.source.clone(), self.doing);
        let synchronize = |ended: &mut Self| (Ok(()), mem::take(&mut ended.orders));
        source.end(doing, self, synchronize, |ended| mem::take(&mut ended.regions), |_| vec![]);
    }
}

/// The rule for blocks that a pool frees.
pub(super) const UNKNOWN_TO_POOL: &str =
    "it must be a live block of this pool: this one was freed before, or came from elsewhere";

/// The error of a free of a block that is not in use here.
#[cold]
pub(super) fn unknown_block(call: &'static str, block: Block, rule: &'static str) -> Error {
    Error::invalid(call, "block", format_args!("{} bytes at {:#x}", block.size(), block.device_pointer()), rule)
}

fn unusable(call: &'static str, region: Block) -> Error {
    let value = format!("{} bytes at {:#x}", region.size(), region.device_pointer());
    let rule = "a region needs a device address and at least the requested size";
    Error::invalid(call, "the source's memory", value, rule)
}

/// Methods of [`MemoryResource`](crate::memory::MemoryResource) for a pool whose blocks have the properties of its
/// source's memory.
macro_rules! memory_of_source {
    ($pool:ident => $source:expr) => {
        fn context(&$pool) -> &$crate::Context {
            $source.upstream.context()
        }

        fn accessibility(&$pool) -> $crate::memory::resource::Accessibility {
            $source.upstream.accessibility()
        }

        fn peer_source(&$pool) -> Option<$crate::memory::peers::PeerSource<'_>> {
            match &$source.chunks {
                Some(chunks) => Some(chunks.peer_source()),
                None => $source.upstream.peer_source(),
            }
        }

        fn is_on_device(&$pool) -> bool {
            $source.upstream.is_on_device()
        }

        fn atom(&$pool, _block: $crate::memory::resource::Block) -> usize {
            $source.atom
        }

        fn is_coherent(&$pool, _block: $crate::memory::resource::Block) -> bool {
            $source.is_coherent
        }

        unsafe fn invalidate(&$pool, start: *mut u8, length: usize) -> $crate::Result<()> {
            // SAFETY: by the caller's contract, the range lies within a block, which lies in a region of the source.
            unsafe { $source.upstream.invalidate(start, length) }
        }

        unsafe fn begin_write(&$pool, start: *mut u8, length: usize) -> $crate::Result<bool> {
            // SAFETY: as in `invalidate`.
            unsafe { $source.upstream.begin_write(start, length) }
        }

        unsafe fn store(&$pool, start: *mut u8, bytes: &[u8]) -> $crate::Result<()> {
            // SAFETY: as in `invalidate`.
            unsafe { $source.upstream.store(start, bytes) }
        }

        unsafe fn load(&$pool, start: *mut u8, to: *mut u8, length: usize) -> $crate::Result<()> {
            // SAFETY: as in `invalidate`.
            unsafe { $source.upstream.load(start, to, length) }
        }

        unsafe fn flush(&$pool, start: *mut u8, length: usize) -> $crate::Result<()> {
            // SAFETY: as in `invalidate`.
            unsafe { $source.upstream.flush(start, length) }
        }
    };
}
pub(super) use memory_of_source;
