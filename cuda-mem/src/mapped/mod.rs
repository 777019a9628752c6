//! Mapped memory: device memory that the CPU addresses too.
//!
//! A CPU store to it reaches the device in about 0.1 us, where a copy by the driver takes 5. It is made by the vkgdr
//! library (Vulkan allocates and maps, CUDA imports), and needs no kernel module.
//!
//! | type | what it is |
//! |---|---|
//! | [`MappedResource`] | a device, open for mapped memory |
//! | [`MappedMemory`] | memory that this value alone reaches by the CPU: copies, guards |
//! | [`ReadGuard`], [`WriteGuard`] | a range of it as a slice |
//! | [`StoreScope`] | several stores that are posted together |
//! | [`SharedMemory`] | memory that others write at the same time (kernels, other threads, other processes): copies, words |
//! | [`SharedCell`] | one word of it |
//! | [`MappedExport`] | on its way to another process |
//!
//! [`Buffer`](crate::Buffer)s are allocated from a [`MappedResource`] too, of kind [`Mapped`](crate::memory::kind::Mapped):
//! typed, with a home stream, and read and written by the CPU through guards.
//!
//! ```
//! # let driver = cuda_mem::Driver::software()?;
//! # let context = driver.device(0)?.primary_context()?;
//! use cuda_mem::MappedResource;
//! let mut memory = MappedResource::new(&context)?.allocate(4096)?;
//! memory.copy_from_slice(0, &[1u32, 2, 3])?; // CPU stores, and the flush that they need
//! let mut guard = memory.write(64..72)?; // a slice, flushed when the guard ends
//! guard.copy_from_slice(b"straight");
//! guard.finish()?;
//! let mut seen = [0u8; 8];
//! memory.device_read(64, &mut seen)?; // what the device sees
//! assert_eq!(&seen, b"straight");
//! # Ok::<(), cuda_mem::Error>(())
//! ```
//!
//! # When is a CPU write visible?
//!
//! A write is *posted* when it is flushed: device work given to the driver after that sees it. A kernel that runs
//! already sees it some time later; write the data, flush, write a flag, flush, and the kernel that sees the flag sees
//! the data. On coherent memory (NVIDIA's desktop and server drivers offer it) a flush is a store fence. On
//! non-coherent memory it moves whole [atoms](Coherence): what the CPU writes and what the device writes must not lie
//! in one atom at one time.
//!
//! # When is a device write visible?
//!
//! When the work that wrote it is done (wait for its stream or event) and, on non-coherent memory, the range is
//! invalidated, which reads of this crate do. Invalidating never loses CPU writes that were not flushed: they are
//! flushed first.

mod allocation;
mod atoms;
mod buffers;
mod engine;
mod export;
mod guard;
mod memory;
mod pending;
mod resource;
mod scope;
mod shared;
mod window;

pub use atoms::Coherence;
pub use export::{MappedDescriptor, MappedExport};
pub use guard::{ReadGuard, WriteGuard};
pub use memory::MappedMemory;
pub use resource::{CoherenceWish, MappedResource};
pub use scope::StoreScope;
pub use shared::{SharedCell, SharedMemory, SharedWord};
