//! The subjects of measurements and replays: this project's pool, the driver's, and plain device memory.

use clap::ValueEnum;
use cuda_mem::memory::{
    Block, DeviceMemory, DevicePool, DriverPoolOptions, MemoryResource, ResourceHandle, SharedResource, kind,
};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::trace::Target;
use cuda_mem::{Buffer, Context, Error, Result, Stream};
use std::mem::MaybeUninit;

/// The command line's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Subject {
    /// This project's pool, as buffers use it
    OursBuffers,
    /// This project's pool, through its resource
    Ours,
    /// The driver's pool (cuMemAllocFromPoolAsync)
    Driver,
    /// Plain device memory (cuMemAlloc)
    Plain,
}

impl Subject {
    pub(crate) const ALL: [Self; 4] = [Self::OursBuffers, Self::Ours, Self::Driver, Self::Plain];

    /// For headings.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OursBuffers => "ours, buffers",
            Self::Ours => "ours, resource",
            Self::Driver => "driver's pool",
            Self::Plain => "cuMemAlloc",
        }
    }
}

/// This project's pool, as buffers use it.
#[derive(Debug)]
pub(crate) struct Buffers {
    pool: Pool<kind::Device>,
}

impl Buffers {
    pub(crate) fn new(context: &Context, settings: &PoolOptions) -> Result<Self> {
        Ok(Self { pool: Pool::new(&DeviceMemory::new(context), settings)? })
    }
}

impl Target for Buffers {
    type Block = Buffer<MaybeUninit<u8>, kind::Device>;

    #[inline]
    fn allocate(&self, size: usize, stream: &Stream) -> Result<Self::Block> {
        Buffer::<u8, _>::uninit(&self.pool, size, stream)
    }

    #[inline]
    unsafe fn free(&self, buffer: Self::Block, stream: &Stream) -> Result<()> {
        if buffer.stream() == stream {
            // An error goes to the context's queue, which is checked at the end.
            drop(buffer);
            return Ok(());
        }
        buffer.close_on(stream).map_err(Error::from)
    }

    fn context(&self) -> &Context {
        self.pool.context()
    }

    fn peak_reserved(&self) -> Option<u64> {
        Some(self.pool.statistics().reserved.peak)
    }
}

/// A resource, and the pools that report how much they took from the system.
#[derive(Debug)]
pub(crate) struct Resource {
    resource: SharedResource,
    pool: Option<Pool<kind::Device>>,
    driver_pool: Option<DevicePool>,
}

impl Resource {
    /// The resource of a subject. `OursBuffers` and `Ours` use the same one.
    pub(crate) fn new(subject: Subject, context: &Context, settings: &PoolOptions) -> Result<Self> {
        let memory = DeviceMemory::new(context);
        Ok(match subject {
            Subject::OursBuffers | Subject::Ours => {
                let pool = Pool::new(&memory, settings)?;
                Self { resource: pool.share(), pool: Some(pool), driver_pool: None }
            }
            Subject::Driver => {
                let pool = DevicePool::new(context, &DriverPoolOptions::default())?;
                Self { resource: pool.share(), pool: None, driver_pool: Some(pool) }
            }
            Subject::Plain => Self { resource: memory.share(), pool: None, driver_pool: None },
        })
    }
}

impl Target for Resource {
    type Block = Block;

    #[inline]
    fn allocate(&self, size: usize, stream: &Stream) -> Result<Block> {
        Target::allocate(&self.resource, size, stream)
    }

    #[inline]
    unsafe fn free(&self, block: Block, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { Target::free(&self.resource, block, stream) }
    }

    fn context(&self) -> &Context {
        MemoryResource::context(&*self.resource)
    }

    fn peak_reserved(&self) -> Option<u64> {
        if let Some(pool) = &self.pool {
            return Some(pool.statistics().reserved.peak);
        }
        let attributes = self.driver_pool.as_ref()?.attributes().ok()?;
        Some(attributes.reserved_high as u64)
    }
}

/// Passes a subject to code that accepts any subject. It is a macro because the subjects have two types.
macro_rules! with_subject {
    ($subject:expr, $context:expr, $settings:expr, |$target:ident| $work:expr) => {
        match $subject {
            $crate::subject::Subject::OursBuffers => {
                let $target = &$crate::subject::Buffers::new($context, $settings)?;
                $work
            }
            other => {
                let $target = &$crate::subject::Resource::new(other, $context, $settings)?;
                $work
            }
        }
    };
}
pub(crate) use with_subject;
