//! Mapped memory: device memory that the CPU can also address.
//!
//! A CPU store to mapped memory reaches the device in about 0.1 us; a driver copy takes 5 us. The vkgdr library
//! provides mapped memory (Vulkan allocates and maps, CUDA imports) and needs no kernel module.
//!
//! | type | what it is |
//! |---|---|
//! | [`MappedResource`] | a device opened for mapped memory |
//! | [`MappedMemory`] | memory to which one value has exclusive CPU access: copies, guards |
//! | [`ReadGuard`], [`WriteGuard`] | a range of `MappedMemory` as a slice |
//! | [`StoreScope`] | several stores with one flush |
//! | [`SharedMemory`] | memory that others write at the same time (kernels, other threads, other processes): copies, words |
//! | [`SharedCell`] | one word of `SharedMemory` |
//! | [`MappedExport`] | an export for another process |
//!
//! A [`MappedResource`] also allocates [`Buffer`](crate::Buffer)s, of kind [`Mapped`](crate::memory::kind::Mapped).
//! They are typed, have a home stream, and give the CPU access through guards.
//!
//! ```
//! # let driver = cuda_mem::Driver::software()?;
//! # let context = driver.device(0)?.primary_context()?;
//! use cuda_mem::MappedResource;
//! let mut memory = MappedResource::new(&context)?.allocate(4096)?;
//! memory.copy_from_slice(0, &[1u32, 2, 3])?; // CPU stores and their flush
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
//! Device work queued after a flush sees the CPU writes before the flush. A kernel that is already running sees them
//! some time later: write the data, flush, write a flag, flush; a kernel that sees the flag then sees the data. On
//! coherent memory (which NVIDIA's desktop and server drivers offer) a flush is a store fence. On non-coherent memory a
//! flush moves whole [atoms](Coherence): the CPU and the device must not write to the same atom at the same time.
//!
//! # When is a device write visible?
//!
//! After the work that wrote it is done (wait for its stream or event) and, on non-coherent memory, after an invalidate
//! of the range. Reads of this crate invalidate. An invalidate never loses unflushed CPU writes: it flushes them first.

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
