//! Copies between the host and a device, each by the fastest method, and reads of files into device memory.
//!
//! Which method is the fastest depends on the size and on the memory. A CPU store reaches mapped memory in 0.1 us; a
//! driver copy takes 5 us. Small reads of mapped memory need streaming loads of the CPU, reads of more than some
//! kilobytes driver copies. Large copies from pageable memory need page-locked staging that several threads fill. A
//! [`CopyEngine`] knows the time of each [`CopyMethod`] (a [`MachineProfile`]), and uses the fastest. The built-in
//! profile is that of an H200 on PCIe Gen5; `cuda-mem bench copy` measures another machine.
//!
//! | type | what it is |
//! |---|---|
//! | [`CopyEngine`] | copies: blocking or stream-ordered, one or many |
//! | [`PendingRead`] | a read in progress |
//! | [`Route`], [`CopyMethod`] | what a copy connects, and the method |
//! | [`MachineProfile`] | the times of the methods |
//! | [`HostLinks`] | copies between the host and one device over the host links of several devices |
//! | [`LinkRate`] | a measured rate of [`Topology::rates`](crate::Topology::rates) or of [`HostLinks::rates`] |
//!
//! ```
//! let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
//! use cuda_mem::copy::CopyEngine;
//! use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
//! let engine = CopyEngine::new(&context)?; // one per program; any number of threads may use it
//! let mut buffer = Buffer::<f32, _>::zeroed(&DeviceMemory::new(&context), 1000, &Stream::new(&context)?)?;
//! engine.write(&mut buffer, 100, &[1.5; 800])?; // device work queued from here on sees the values
//! let mut seen = [0.0; 2];
//! engine.read(&buffer, 99, &mut seen)?;
//! assert_eq!(seen, [0.0, 1.5]);
//! # Ok::<(), cuda_mem::Error>(())
//! ```

mod builder;
mod choice;
mod engine;
mod file;
mod file_calls;
mod host_memory;
mod job;
mod link;
mod links;
mod machine;
mod method;
mod ordered;
mod pieces;
mod profile;
mod rates;
mod read_file;
mod scatter;
mod sending;
mod shares;
mod staged;
mod staging;
mod threads;
mod typical;

pub use crate::error::{FileError, FileErrorCause};
pub use builder::{CopyEngineBuilder, CopyOptions, StagingOptions};
pub use engine::CopyEngine;
pub use links::{HostLinks, HostLinksOptions};
pub use method::{CopyMethod, DeviceSide, Direction, HostSide, Route};
pub use ordered::PendingRead;
pub use profile::{MachineProfile, MethodProfile, RouteProfile, Sample};
pub use rates::LinkRate;
