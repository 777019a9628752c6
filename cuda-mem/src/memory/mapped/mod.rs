//! Mapped memory: device memory that the CPU can also address.
//!
//! A CPU store to mapped memory reaches the device in about 0.1 us; a driver copy takes 5 us. The vkgdr library
//! provides mapped memory (Vulkan allocates and maps, CUDA imports) and needs no kernel module.
//!
//! | type | what it is |
//! |---|---|
//! | [`MappedMemory`] | a device opened for mapped memory: the source of [`Buffer`](crate::Buffer)s of kind [`Mapped`](crate::memory::kind::Mapped) |
//! | [`Buffer::store`](crate::Buffer::store), [`load`](crate::Buffer::load) | copies by the CPU |
//! | [`Buffer::read`](crate::Buffer::read), [`write`](crate::Buffer::write) | a range as a slice |
//! | [`Buffer::store_scope`](crate::Buffer::store_scope) | several stores with one fence |
//! | [`SharedBuffer`](crate::SharedBuffer) | memory that others write at the same time (kernels, threads, other processes) |
//! | [`SharedCell`](crate::buffer::SharedCell) | one word of it |
//! | [`MappedExport`](crate::ipc::MappedExport) | an export for another process |
//!
//! ```
//! let driver = cuda_mem::Driver::software()?; // softgpu; a GPU: Driver::load()
//! # let context = driver.device(0)?.primary_context()?;
//! use cuda_mem::{Buffer, MappedMemory, Stream};
//! let stream = Stream::new(&context)?;
//! let mut memory = Buffer::<u32, _>::zeroed(&MappedMemory::new(&context)?, 1024, &stream)?;
//! memory.store(0, &[1, 2, 3])?; // CPU stores and their flush
//! let mut guard = memory.write(16..18)?; // a slice, flushed when the guard ends
//! guard.copy_from_slice(&[4, 5]);
//! guard.finish()?;
//! let mut seen = [0; 2];
//! memory.copy_to_slice(16, &mut seen)?; // a copy by the driver: what the device sees
//! assert_eq!(seen, [4, 5]);
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
mod resource;

pub use crate::memory::resource::Coherence;
#[cfg(feature = "sharing")]
pub(crate) use resource::failure;
pub use resource::{CoherencePolicy, MappedMemory};
