//! The pools that are measured.

use cuda_mem::memory::{Block, DeviceMemory, DevicePool, DriverPoolOptions, ResourceHandle, SharedResource};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Context, Error, Stream};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Our pool, as it is by default.
    Pool,
    /// Our pool without thread caches: the heap, which thread caches spare most calls.
    Heap,
    /// The driver's own pool.
    Driver,
}

pub(crate) const SUBJECTS: [Subject; 3] = [Subject::Pool, Subject::Heap, Subject::Driver];

impl Subject {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Heap => "pool without thread caches",
            Self::Driver => "driver",
        }
    }

    /// A new pool that holds no memory yet.
    pub fn open(self, context: &Context) -> Result<Source, Error> {
        let mut options = PoolOptions::default();
        if self == Self::Heap {
            options.cache_capacity = 0;
        }
        Ok(Source(match self {
            Self::Pool | Self::Heap => Pool::new(&DeviceMemory::new(context), &options)?.share(),
            Self::Driver => {
                let mut options = DriverPoolOptions::default();
                // Otherwise it returns its memory whenever the program waits.
                options.release_threshold = usize::MAX;
                DevicePool::new(context, &options)?.share()
            }
        }))
    }
}

/// A pool.
#[derive(Clone, Debug)]
pub(crate) struct Source(SharedResource);

impl Source {
    #[inline]
    pub fn allocate(&self, size: usize, stream: &Stream) -> Result<Block, Error> {
        self.0.allocate(size, 256, stream)
    }

    #[inline]
    pub fn free(&self, block: Block, stream: &Stream) -> Result<(), Error> {
        // SAFETY: no work uses the blocks, and each is freed once.
        unsafe { self.0.deallocate(block, stream) }
    }
}
