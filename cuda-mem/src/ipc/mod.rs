//! Sharing between processes: memory, pools, and events to order the work on them.
//!
//! One process exports, another imports; between them go a [`Descriptor`], and for some a file descriptor. A [`Channel`]
//! carries both. What an import believes of what it receives, and what it checks, [stands below](#what-is-protected).
//!
//! | to share | export | import |
//! |---|---|---|
//! | a pool | [`DriverPool::export`](crate::memory::DriverPool::export) | [`DevicePool::import`](crate::memory::DevicePool::import), [`PinnedPool::import`](crate::memory::PinnedPool::import) |
//! | memory of that pool | [`SharedBuffer::export`](crate::SharedBuffer::export) | [`DriverPool::import_buffer`](crate::memory::DriverPool::import_buffer) |
//! | memory of cuMemAlloc | [`SharedBuffer::export`](crate::SharedBuffer::export) | [`DeviceMemory::import_buffer`](crate::memory::DeviceMemory::import_buffer) |
//! | virtual memory | [`VirtualMemory::export`](crate::memory::VirtualMemory::export) | [`VirtualMemory::import`](crate::memory::VirtualMemory::import) |
//! | mapped memory | [`SharedMemory::export`](crate::SharedMemory::export) | [`MappedResource::import`](crate::MappedResource::import) |
//! | an event | [`Event::export`](crate::Event::export) | [`Event::import`](crate::Event::import) |
//!
//! Here both ends are in one process; `examples/share.rs` has two.
//!
//! ```
//! # let driver = cuda_mem::Driver::software()?;
//! # let context = driver.device(0)?.primary_context()?;
//! use cuda_mem::ipc::{Channel, Export};
//! use cuda_mem::memory::{DevicePool, DriverPoolOptions};
//! use cuda_mem::{Buffer, Stream};
//! let (mut here, mut there) = Channel::pair()?;
//!
//! // The process that has the memory.
//! let stream = Stream::new(&context)?;
//! let mut options = DriverPoolOptions::default();
//! options.shareable = true;
//! let pool = DevicePool::new(&context, &options)?;
//! let memory = Buffer::from_slice(&pool, &[1.0f32, 2.0, 3.0, 4.0], &stream)?.into_shared();
//! here.send(&pool.export()?)?; // once for each pool
//! here.send(&memory.slice(1..3)?.export()?)?; // a part keeps its place
//!
//! // The process that shall have it too.
//! let Export::Pool(pool) = there.receive()? else { panic!("the pool comes first") };
//! let pool = DevicePool::import(&context, pool)?;
//! let Export::PoolMemory(descriptor) = there.receive()? else { panic!("then its memory") };
//! let part = pool.import_buffer::<f32>(&descriptor, &stream)?;
//! assert_eq!(part.to_vec()?, [2.0, 3.0]);
//! # Ok::<(), cuda_mem::Error>(())
//! ```
//!
//! # What is exported
//!
//! An export names a whole allocation of its source, and none of it may be in exclusive hands
//! ([`split_at`](crate::Buffer::split_at)): a handle or a file of the driver's reaches all of the allocation, whatever part of it
//! the export names. So a block of this crate's pools ([`Pool`](crate::pool::Pool) and the others), which is a part of a larger
//! allocation, is refused; allocate what is to be shared from its source itself. What was exported or imported never becomes
//! exclusive again.
//!
//! A [shareable](crate::memory::DriverPoolOptions::shareable) pool of the driver's is shared as a whole: the driver gives blocks
//! that were freed to new buffers, while an importer may still have them. So the CPU gets no slices of a shareable
//! pool's host memory ([`Accessibility::processes`](crate::memory::Accessibility::processes)), only copies, and the contents
//! of an exclusive buffer of a shareable pool may change where a peer errs or lies. Virtual memory has no such neighbours:
//! each allocation has physical memory of its own, which its files keep, and which is handed out to nobody else.
//!
//! The driver may put small allocations of cuMemAlloc side by side into a unit of 2 MiB. An import by this crate
//! stays within what the descriptor names, but a process that calls the driver itself may reach all of the unit: where that
//! matters, allocate multiples of 2 MiB, or virtual memory.
//!
//! # Who keeps what alive
//!
//! The exporter goes on to own its memory, and frees it when its last buffer ends. It has to keep it until the others
//! have let go: the driver does not watch over that (a pool's memory may then hold another allocation's bytes; it never
//! crosses into another pool). Virtual memory and mapped memory are kept by each process on its own.
//!
//! In one process each thing is imported once, however often it is asked for, and ended once, when the last importer
//! drops it. What a process exported and gets back is its own allocation; it gets no part that it did not export
//! ([`DescriptorError::NotExported`]). A pool is known as one's own by its file, which the kernel compares with the one that
//! was kept (kcmp): a descriptor's word does not count. Where the kernel may not be asked, a process that makes shareable
//! pools imports none of others ([`DescriptorError::Unrecognised`]).
//!
//! # What is protected
//!
//! - Whoever was given a pool may use all of the pool's memory, and only it: the driver knows no finer right. Its export
//!   brings a key along, with which the library signs descriptors of the pool's memory. So do not send it, or its bytes, to
//!   who shall not have the pool.
//! - Whoever was not given the pool cannot make, or change, a descriptor of its memory that
//!   [`import_buffer`](crate::memory::DriverPool::import_buffer) takes ([`DescriptorError::Forged`]). That matters: drivers do
//!   not check these handles, and crash on some that were changed. A process that has the pool, or made it, and signs
//!   invented handles by code of its own can crash those that import them. No decision about who owns memory rests on the
//!   signature.
//! - A descriptor of memory of cuMemAlloc, or of an event, is a handle that the driver checks; it may take a changed one
//!   for other memory that was shared. Its size and part are compared with what the driver says.
//! - A pool, virtual memory and mapped memory are reached by their files alone. Where they lie, the driver is asked; how long
//!   they are, the system, where it knows, and the driver. Who has a file of virtual memory has that chunk of physical
//!   memory whole.
//! - Nobody is kept from writing what he shares at any time, nor from filling a channel: that is what
//!   [`SharedBuffer`](crate::SharedBuffer) and [`Channel::set_timeout`] are for.
//!
//! # Fork
//!
//! A driver does not survive a fork: in the child every call fails, with [`Error::Forked`](crate::Error::Forked). Start
//! processes with exec, as `std::process::Command` does.

mod channel;
mod event;
mod export;
mod imports;
pub(crate) mod memory;
mod virtual_memory;

pub use crate::descriptor::{Descriptor, DescriptorError, ExportKind, MAX_FILE_DESCRIPTORS, PoolId, ProcessId};
pub use channel::{Channel, ChannelError, Listener, MAX_MESSAGE};
pub use export::{Export, Exported, PoolExport};
pub use virtual_memory::{VirtualDescriptor, VirtualExport};

pub(crate) use imports::Imports;

use core::ffi::c_char;

/// The driver's handles are of C's char.
fn to_driver(bytes: [u8; 64]) -> [c_char; 64] {
    bytes.map(|byte| c_char::from_ne_bytes([byte]))
}

fn from_driver(bytes: [c_char; 64]) -> [u8; 64] {
    bytes.map(|byte| byte.to_ne_bytes()[0])
}
