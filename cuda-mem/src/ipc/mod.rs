//! Sharing between processes: memory, pools, and events that order the work on them.
//!
//! One process exports, another imports. A [`Descriptor`] goes from one to the other, as bytes, and for some exports
//! file descriptors too; a [`Channel`] carries both. Imports check what they receive: see [below](#what-is-protected).
//!
//! | to share | export | import |
//! |---|---|---|
//! | a pool | [`DriverPool::export`](crate::memory::DriverPool::export) | [`DevicePool::import`](crate::memory::DevicePool::import), [`PinnedPool::import`](crate::memory::PinnedPool::import) |
//! | memory of that pool | [`SharedBuffer::export`](crate::SharedBuffer::export) | [`DriverPool::import_buffer`](crate::memory::DriverPool::import_buffer) |
//! | memory of cuMemAlloc | [`SharedBuffer::export`](crate::SharedBuffer::export) | [`DeviceMemory::import_buffer`](crate::memory::DeviceMemory::import_buffer) |
//! | virtual memory | [`VirtualMemory::export`](crate::memory::VirtualMemory::export) | [`VirtualMemory::import`](crate::memory::VirtualMemory::import) |
//! | mapped memory | [`MappedMemory::export`](crate::MappedMemory::export) | [`MappedMemory::import`](crate::MappedMemory::import) |
//! | an event | [`Event::export`](crate::Event::export) | [`Event::import`](crate::Event::import) |
//!
//! In this example both ends are in one process; `examples/share.rs` has two.
//!
//! ```
//! let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
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
//! here.send(&memory.slice(1..3)?.export()?)?; // a part: the descriptor has its offset
//!
//! // The process that imports the memory.
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
//! An export names a whole allocation of its source, because a handle or file of the driver always reaches all of the
//! allocation. So an export is refused while any part of it is exclusive ([`split_at`](crate::Buffer::split_at)), and
//! for a block of this crate's pools ([`Pool`](crate::pool::Pool) and the others), which is a part of a larger
//! allocation: allocate memory to share from the pool's source. Exported or imported memory never becomes exclusive
//! again.
//!
//! A [shareable](crate::memory::DriverPoolOptions::shareable) pool of the driver is shared as a whole, and the driver
//! hands freed blocks to new buffers while an importer may still use them. So the CPU gets only copies of its host
//! memory, no slices ([`Accessibility::processes`](crate::memory::Accessibility::processes)), and the contents of its
//! exclusive buffers may change if another process has a bug or is malicious. Virtual memory has no such neighbours:
//! each allocation has its own physical memory, which its files keep alive and nobody else receives.
//!
//! The driver may put small cuMemAlloc allocations side by side into a unit of 2 MiB. An import by this crate stays
//! within the descriptor's range, but a process that calls the driver itself may reach the whole unit. Where that
//! matters, allocate multiples of 2 MiB, or virtual memory.
//!
//! # Who keeps what alive
//!
//! The exporter still owns its memory and frees it when its last buffer ends. It must keep the memory until all
//! importers have released it: the driver does not check that. Otherwise a pool's memory may hold the bytes of another
//! allocation, though never of another pool. Virtual memory and mapped memory stay alive in each process by themselves.
//!
//! Repeated imports of one pool, of the same pool memory or of the same cuMemAlloc memory share one import of the
//! driver, which ends when the last of them is dropped. A process that receives its own export of these gets the
//! original, but no part that it did not export ([`DescriptorError::NotExported`]). It recognises its own pool by the
//! file, which the kernel compares with the files of its pools (kcmp); the descriptor's claim does not count. If the
//! kernel refuses the comparison, a process that makes shareable pools cannot import others'
//! ([`DescriptorError::Unrecognised`]). Each import of virtual or mapped memory is a mapping of its own. A process
//! cannot import its own event ([`DescriptorError::OwnProcess`]).
//!
//! # What is protected
//!
//! - A process with a pool may use all memory of that pool and of no other: the driver has no finer permission. The
//!   pool's export contains a key, with which the library signs descriptors of the pool's memory. So send neither the
//!   export nor its bytes to anybody who must not have the pool.
//! - A process without the pool can neither make nor change a descriptor of its memory that
//!   [`import_buffer`](crate::memory::DriverPool::import_buffer) accepts ([`DescriptorError::Forged`]). That matters
//!   because drivers do not check these handles and crash on some changed ones. A process that has or made the pool can
//!   sign invented handles with its own code, and so crash importers. No decision about who owns memory relies on the
//!   signature.
//! - A descriptor of cuMemAlloc memory or of an event contains a handle that the driver checks, but may mistake for
//!   other shared memory if it was changed. The import compares the size and part with the driver's answer.
//! - Only the files of a pool, of virtual memory and of mapped memory give access to it. The import asks the driver for
//!   the place, and compares the length with what the driver and, for memory files, the system report. A file of
//!   virtual memory gives access to the whole chunk of physical memory.
//! - A process that dies ends no other process. But if a device of another process was copying its memory over NVLink, the
//!   driver ends that process's context too: its calls return CUDA_ERROR_CONTAINED, and it must start again.
//! - Nothing stops a process from writing shared memory at any time, or from filling a channel: use
//!   [`SharedBuffer`](crate::SharedBuffer) and [`Channel::set_timeout`].
//!
//! # Fork
//!
//! A driver does not survive a fork: in the child every call fails with [`Error::Forked`](crate::Error::Forked). Start
//! processes with exec, as `std::process::Command` does.

mod bare;
mod channel;
mod event;
mod export;
mod imports;
mod mapped;
mod memory;
mod physical;
mod pool;
mod virtual_memory;

pub use crate::error::ChannelError;
pub use crate::memory::descriptor::{Descriptor, DescriptorError, ExportKind, MAX_FILE_DESCRIPTORS, PoolId, ProcessId};
pub use channel::{Channel, Listener, MAX_MESSAGE};
pub use export::{Export, Exported, PoolExport};
pub use mapped::{MappedDescriptor, MappedExport};
pub use virtual_memory::{VirtualDescriptor, VirtualExport};
