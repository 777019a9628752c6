//! Tests that run over every source of memory.

use crate::Setup;
use crate::suite::Outcome;
use cuda_mem::memory::{
    DeviceMemory, DevicePool, DriverPoolOptions, ManagedMemory, PinnedMemory, ResourceHandle, SharedResource,
    VirtualMemory, VirtualOptions,
};
use cuda_mem::{MappedMemory, Result};

/// A source's name, with the source or the feature that this device lacks.
pub type Source = (&'static str, Result<SharedResource>);

/// Runs a test over every available source of memory, and over some combinations. Prints the names of the missing
/// sources.
///
/// # Errors
///
/// The test failed. The error names the source.
pub fn over_every_source(
    setup: &Setup,
    more: impl IntoIterator<Item = Source>,
    test: impl Fn(&Setup, &SharedResource) -> Outcome,
) -> Outcome {
    let context = &setup.context;
    let sources = [
        ("device memory", Ok(DeviceMemory::new(context).share())),
        ("pinned memory", Ok(PinnedMemory::new(context).share())),
        ("managed memory", ManagedMemory::new(context).map(|memory| memory.share())),
        ("mapped memory", MappedMemory::new(context).map(|memory| memory.share())),
        ("a pool of the driver", DevicePool::new(context, &DriverPoolOptions::default()).map(|pool| pool.share())),
        ("virtual memory", VirtualMemory::new(context, &VirtualOptions::default()).map(|memory| memory.share())),
    ];
    for (name, source) in sources.into_iter().chain(more) {
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
