//! Memory of a source, for pools that divide it.

use crate::beside_captures::RelaxedCalls;
use crate::callback::call_back;
use crate::context::Liveness;
use crate::pool::recorder::drain;
use crate::resource::{Block, SharedResource};
use crate::{Error, Result, Stream};

/// Refuses a region whose atoms are larger than those that a pool divides its memory by, or whose coherence differs from that
/// of its other regions: a source may serve a request from elsewhere, as `Fallback` does.
pub(super) fn check_alike(upstream: &SharedResource, region: Block, (atom, is_coherent): (usize, bool)) -> Result<()> {
    let (its_atom, it_is_coherent) = (upstream.atom(region), upstream.is_coherent(region));
    if it_is_coherent == is_coherent && atom.is_multiple_of(its_atom.max(1)) {
        return Ok(());
    }
    let say = |coherent, atom| {
        format!("{} memory with atoms of {atom} bytes", if coherent { "coherent" } else { "non-coherent" })
    };
    Err(Error::InvalidArgument {
        call: "Pool::allocate",
        argument: "a new region of the source",
        value: format!("{}, beside {}", say(it_is_coherent, its_atom), say(is_coherent, atom)).into(),
        rule: "all memory of a pool is of one coherence; put the Fallback around two pools",
    })
}

/// A source, and what is known of its memory.
#[derive(Debug)]
pub(super) struct Source {
    pub upstream: SharedResource,
    /// Regions are allocated and freed in order of this stream, which has no other work.
    pub own: Stream,
    /// What the source aligns regions to, so far as it matters.
    pub alignment: usize,
    pub atom: usize,
    pub is_coherent: bool,
}

impl Source {
    /// Takes a first region of `size` bytes, and finds out how far the source aligns.
    pub fn open(call: &'static str, upstream: SharedResource, size: usize) -> Result<(Self, Block)> {
        let own = Stream::new(upstream.context())?;
        let mut source = Self { upstream, own, alignment: 0, atom: 1, is_coherent: true };
        let first = source.first(size)?;
        (source.atom, source.is_coherent) = (source.upstream.atom(first), source.upstream.is_coherent(first));
        if first.device_pointer != 0 && first.size >= size {
            return Ok((source, first));
        }
        let value = format!("{} bytes at {:#x}", first.size, first.device_pointer).into();
        source.free(first)?;
        let rule = "a region has an address for devices and at least the size that was asked for";
        Err(Error::InvalidArgument { call, argument: "the source's memory", value, rule })
    }

    fn first(&mut self, size: usize) -> Result<Block> {
        for alignment in [256, 128, 64, 32] {
            self.alignment = alignment;
            match self.allocate_any(size) {
                Err(Error::InvalidArgument { argument: "alignment", .. }) => {}
                other => return other,
            }
        }
        self.alignment = 16;
        self.allocate_any(size)
    }

    /// Allocates a further region, which is as the first.
    pub fn allocate(&self, size: usize) -> Result<Block> {
        let block = self.allocate_any(size)?;
        match check_alike(&self.upstream, block, (self.atom, self.is_coherent)) {
            Ok(()) => Ok(block),
            Err(error) => self.free(block).and(Err(error)),
        }
    }

    /// Allocates a region that every stream may use at once.
    fn allocate_any(&self, size: usize) -> Result<Block> {
        let block = self.upstream.allocate(size, self.alignment, &self.own)?;
        match self.own.drain() {
            Ok(()) => Ok(block),
            Err(error) => self.free(block).and(Err(error)),
        }
    }

    /// Gives a region back that nobody uses, and whose work is done.
    pub fn free(&self, block: Block) -> Result<()> {
        // SAFETY: the callers, this module's pools, have handed none of it out, or had all of it back; and no work uses
        // it any more.
        unsafe { self.upstream.deallocate(block, &self.own) }
    }

    /// Gives all regions back at a pool's end. `synchronize` waits for the work that may use them, and gives the streams
    /// of which no event could be had. Where these cannot be waited for, the regions are left to their context.
    pub fn end(
        &self,
        doing: &'static str,
        regions: impl Iterator<Item = Block>,
        synchronize: impl FnOnce() -> (Result<()>, Vec<Stream>),
    ) {
        let context = self.upstream.context();
        match context.liveness() {
            Liveness::DriverGone => {}
            // SAFETY: the pool ends, and its regions were neither freed nor abandoned before; the context has ended.
            Liveness::Gone => regions.for_each(|block| unsafe { self.upstream.abandon(block) }),
            Liveness::Alive => {
                let _relaxed = RelaxedCalls::begin(context.driver());
                let (mut result, streams) = synchronize();
                match drain(doing, &streams) {
                    Err(error) if !error.is_teardown() => result = result.and(Err(error)),
                    _ => regions.for_each(|block| {
                        let freed = call_back(|| self.free(block));
                        result =
                            freed.unwrap_or_else(|panic| Err(panic.of("the source of a pool"))).and(result.clone());
                    }),
                }
                if let Err(error) = result
                    && !error.is_teardown()
                {
                    context.drop_errors().push(doing, error);
                }
            }
        }
    }

    /// "No room", in a pool's own words.
    pub fn out_of_memory(&self, call: &'static str, requested: usize, message: String) -> Error {
        let context = self.upstream.context();
        Error::OutOfMemory {
            call,
            requested,
            device: context.device().name().unwrap_or_default().into(),
            free: context.memory_info().ok().map(|info| info.free),
            message: message.into(),
        }
    }
}

/// What the memory is, in an implementation of [`MemoryResource`](crate::memory::MemoryResource): a pool's blocks are its
/// source's memory.
macro_rules! memory_of_source {
    () => {
        fn context(&self) -> &$crate::Context {
            self.source.upstream.context()
        }

        fn accessibility(&self) -> $crate::resource::Accessibility {
            self.source.upstream.accessibility()
        }

        fn is_on_device(&self) -> bool {
            self.source.upstream.is_on_device()
        }

        fn atom(&self, _block: $crate::resource::Block) -> usize {
            self.source.atom
        }

        fn is_coherent(&self, _block: $crate::resource::Block) -> bool {
            self.source.is_coherent
        }

        unsafe fn invalidate(&self, start: *mut u8, length: usize) -> $crate::Result<()> {
            // SAFETY: the caller's contract; the range lies within the source's region.
            unsafe { self.source.upstream.invalidate(start, length) }
        }

        unsafe fn begin_write(&self, start: *mut u8, length: usize) -> $crate::Result<bool> {
            // SAFETY: the caller's contract.
            unsafe { self.source.upstream.begin_write(start, length) }
        }

        fn flush(&self, start: *mut u8, length: usize) -> $crate::Result<()> {
            self.source.upstream.flush(start, length)
        }
    };
}
pub(super) use memory_of_source;
