//! Copies between the host and a device that take the fastest way.
//!
//! What is fastest depends on the size and on the memory: a CPU store into mapped memory is there in 0.1 us, where the
//! driver's copy takes 5; reads of mapped memory want streaming loads, and from some kilobytes on the device's copy engine;
//! large copies from pageable memory want page-locked staging that several threads fill. A [`CopyEngine`] knows what each
//! [`Way`] takes on its machine (a [`MachineProfile`], measured once and kept), and goes the fastest.
//!
//! | type | what it is |
//! |---|---|
//! | [`CopyEngine`] | copies, blocking or in order of a stream, one or many |
//! | [`PendingRead`] | a read that has begun |
//! | [`Route`], [`Way`] | what a copy connects, and how it is done |
//! | [`MachineProfile`], [`ProfileCache`] | what the ways take, and where that is kept |
//! | [`CopyThreads`], [`ThreadPool`], [`NoThreads`] | who helps with large copies |
//!
//! ```
//! # let driver = cuda_mem::Driver::software()?;
//! # let context = driver.device(0)?.primary_context()?;
//! use cuda_mem::copy::CopyEngine;
//! use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
//! let engine = CopyEngine::new(&context)?; // one for a program; any number of threads use it
//! let mut buffer = Buffer::<f32, _>::zeroed(&DeviceMemory::new(&context), 1000, &Stream::new(&context)?)?;
//! engine.write(&mut buffer, 100, &[1.5; 800])?; // returns when device work given after this sees it
//! let mut seen = [0.0; 2];
//! engine.read(&buffer, 99, &mut seen)?;
//! assert_eq!(seen, [0.0, 1.5]);
//! # Ok::<(), cuda_mem::Error>(())
//! ```

mod builder;
mod cache;
mod choice;
mod engine;
mod host_memory;
mod job;
mod machine;
mod measure;
mod ordered;
mod profile;
mod scatter;
mod staged;
mod staging;
mod threads;
mod typical;
mod way;

pub use crate::copy_memory::{CopyMemory, OrderedCopyMemory};
pub use builder::{CopyEngineBuilder, CopyOptions, Measuring, StagingOptions};
pub use cache::ProfileCache;
pub use engine::CopyEngine;
pub use ordered::PendingRead;
pub use profile::{MachineProfile, RouteProfile, Sample, WayProfile};
pub use threads::{CopyThreads, NoThreads, ThreadPool};
pub use way::{DeviceSide, Direction, HostSide, Route, Way};
