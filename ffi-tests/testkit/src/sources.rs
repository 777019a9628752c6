//! The list of all sources of memory, for cases, tests and the soak, in Rust and in C. `tests/sources.rs` compares it
//! with the types of cuda-mem and of the C library.

use crate::suite::Outcome;
use crate::{Setup, c_objects as c};
use cuda_mem::mapped::CoherencePolicy;
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{
    DeviceMemory, DevicePool, DriverPool, DriverPoolOptions, ManagedMemory, ManagedPool, PinnedMemory, PinnedPool,
    ResourceHandle, SharedResource, VirtualMemory, VirtualOptions,
};
use cuda_mem::{Context, Error, MappedMemory, Result};
use cudamem::resource::*;
use cudamem::virtual_memory::{CUDAMEM_LOCATION_DEVICE, CUDAMEM_LOCATION_NODE, CUDAMEM_PHYSICAL_SHAREABLE};

/// A source of memory, and how programs make it.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Its name.
    pub name: &'static str,
    /// Makes it in Rust.
    pub make: fn(&Context) -> Result<Memory>,
    /// Makes it in C.
    pub make_in_c: fn(&c::Context) -> c::Result<c::Resource>,
}

macro_rules! memory {
    ($($name:ident($type:ty),)*) => {
        /// A source with its concrete type.
        #[derive(Clone, Debug)]
        pub enum Memory {
            $(#[doc = concat!("A `", stringify!($type), "`.")] $name($type),)*
        }

        impl Memory {
            /// The types of all sources.
            pub const TYPES: &[&str] = &[$(stringify!($type)),*];

            /// The source as a handle of any kind.
            pub fn share(&self) -> SharedResource {
                match self {
                    $(Memory::$name(memory) => memory.share(),)*
                }
            }
        }

        $(impl From<$type> for Memory {
            fn from(memory: $type) -> Self {
                Memory::$name(memory)
            }
        })*
    };
}
memory! {
    Device(DeviceMemory),
    Pinned(PinnedMemory),
    Managed(ManagedMemory),
    Mapped(MappedMemory),
    DriverPool(DriverPool<Any>),
    Virtual(VirtualMemory<Any>),
}

impl Memory {
    /// Whether other processes may get its memory through it.
    pub fn is_shareable(&self) -> bool {
        match self {
            Memory::DriverPool(pool) => pool.share().accessibility().processes,
            Memory::Virtual(memory) => memory.physical_options().shareable,
            Memory::Device(_) | Memory::Mapped(_) => true,
            Memory::Pinned(_) | Memory::Managed(_) => false,
        }
    }
}

macro_rules! sources {
    ($($name:literal: $make:expr, in C: $make_in_c:expr;)*) => {
        /// All sources of memory. Some devices lack some of them.
        ///
        /// Registered memory and memory of graphs are missing, because a program cannot allocate any number of buffers
        /// of them at any time.
        pub const SOURCES: &[Source] = &[$(Source { name: $name, make: $make, make_in_c: $make_in_c },)*];
    };
}
sources! {
    "device memory":
        |context| Ok(DeviceMemory::new(context).into()),
        in C: |context| context.device_memory();
    "pinned memory":
        |context| Ok(PinnedMemory::new(context).into()),
        in C: |context| context.pinned_memory(0);
    "managed memory":
        |context| Ok(ManagedMemory::new(context)?.into()),
        in C: |context| context.managed_memory(0);
    "mapped memory":
        |context| Ok(MappedMemory::new(context)?.into()),
        in C: |context| context.mapped_memory(CUDAMEM_COHERENCE_PREFERRED);
    "mapped memory that is never coherent":
        |context| Ok(MappedMemory::with_coherence(context, CoherencePolicy::ForcedNonCoherent)?.into()),
        in C: |context| context.mapped_memory(CUDAMEM_COHERENCE_FORCED_NON_COHERENT);
    "the driver's pool":
        |context| Ok(DevicePool::new(context, &pool_options(false))?.into_any().into()),
        in C: |context| context.driver_pool(CUDAMEM_MEMORY_DEVICE, 0);
    "the driver's pool, shareable":
        |context| Ok(DevicePool::new(context, &pool_options(true))?.into_any().into()),
        in C: |context| context.driver_pool(CUDAMEM_MEMORY_DEVICE, CUDAMEM_DRIVER_POOL_SHAREABLE);
    "the driver's pool of pinned memory":
        |context| Ok(PinnedPool::new(context, &pool_options(false))?.into_any().into()),
        in C: |context| context.driver_pool(CUDAMEM_MEMORY_PINNED, 0);
    "the driver's pool of pinned memory, shareable":
        |context| Ok(PinnedPool::on_numa_node(context, 0, &pool_options(true))?.into_any().into()),
        in C: |context| context.driver_pool(
            CUDAMEM_MEMORY_PINNED,
            CUDAMEM_DRIVER_POOL_SHAREABLE | CUDAMEM_DRIVER_POOL_ON_NUMA_NODE,
        );
    "the driver's pool of managed memory":
        |context| Ok(ManagedPool::new(context, &pool_options(false))?.into_any().into()),
        in C: |context| context.driver_pool(CUDAMEM_MEMORY_MANAGED, 0);
    "virtual memory":
        |context| Ok(VirtualMemory::new(context, &virtual_options(false))?.into_any().into()),
        in C: |context| context.virtual_memory(CUDAMEM_LOCATION_DEVICE, 0);
    "virtual memory, shareable":
        |context| Ok(VirtualMemory::new(context, &virtual_options(true))?.into_any().into()),
        in C: |context| context.virtual_memory(CUDAMEM_LOCATION_DEVICE, CUDAMEM_PHYSICAL_SHAREABLE);
    "virtual memory of the host":
        |context| Ok(VirtualMemory::host_numa(context, 0, &virtual_options(false))?.into_any().into()),
        in C: |context| context.virtual_memory(CUDAMEM_LOCATION_NODE, 0);
    "virtual memory of the host, shareable":
        |context| Ok(VirtualMemory::host_numa(context, 0, &virtual_options(true))?.into_any().into()),
        in C: |context| context.virtual_memory(CUDAMEM_LOCATION_NODE, CUDAMEM_PHYSICAL_SHAREABLE);
}

fn pool_options(shareable: bool) -> DriverPoolOptions {
    let mut options = DriverPoolOptions::default();
    options.shareable = shareable;
    options
}

fn virtual_options(shareable: bool) -> VirtualOptions {
    let mut options = VirtualOptions::default();
    options.shareable = shareable;
    options
}

/// The sources that the machine has. Prints the names of the others.
///
/// # Errors
///
/// The driver refuses a source that the machine has.
pub fn available(context: &Context) -> Result<Vec<(&'static str, Memory)>> {
    let mut found = Vec::new();
    for source in SOURCES {
        match (source.make)(context) {
            Ok(memory) => found.push((source.name, memory)),
            Err(error @ (Error::Unsupported { .. } | Error::Vkgdr { .. } | Error::Load(_))) => {
                println!("skipped: {}: {error}", source.name);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// A resource over a source: its name, with the resource or the feature that this device lacks.
pub type Combination = (&'static str, Result<SharedResource>);

/// Runs a test over every available source of memory, and over some combinations. Prints the names of the missing ones.
///
/// # Errors
///
/// The test failed. The error names the source.
pub fn over_every_source(
    setup: &Setup,
    more: impl IntoIterator<Item = Combination>,
    test: impl Fn(&Setup, &SharedResource) -> Outcome,
) -> Outcome {
    let sources = available(&setup.context)?.into_iter().map(|(name, memory)| (name, Ok(memory.share())));
    for (name, source) in sources.chain(more) {
        match source {
            Ok(source) => test(setup, &source).map_err(|error| format!("over {name}: {error}"))?,
            Err(error) => println!("skipped: {name}: {error}"),
        }
    }
    Ok(())
}

/// Runs the same work on four threads at once, each with its number, and returns the failures.
///
/// # Panics
///
/// A thread panicked.
pub fn failures_of_four_threads(one: impl Fn(u8) -> Outcome + Sync) -> Vec<String> {
    std::thread::scope(|scope| {
        let run = |thread| one(thread).err().map(|error| error.to_string());
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().filter_map(|thread| thread.join().expect("no thread panics")).collect()
    })
}
