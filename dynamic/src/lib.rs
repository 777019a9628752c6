//! Memory of cuda-mem whose source, kind and ownership are known at run time only.
//!
//! In Rust, the compiler knows from which source a buffer comes, and whether it has one owner or several. A binding to
//! another language learns both at run time: the C library from a handle, the Python package from an object. This crate
//! has what both need, and nothing of either language: [`Source`] is any source of memory with its concrete type, and
//! [`Memory`] is any buffer, be it exclusive, shared or growable, which several threads use.
//!
//! ```
//! use cuda_mem::memory::{DeviceMemory, VirtualMemory};
//! use cuda_mem_dynamic::{Memory, Resource, ResourceType, Source};
//!
//! let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
//! let stream = cuda_mem::Stream::new(&context)?;
//! let source = Source::from(DeviceMemory::new(&context).into_resource());
//! assert!(matches!(source.resource, Resource::Device(_)) && VirtualMemory::of(&source.resource).is_none());
//!
//! let memory = Memory::new(source.allocate(4096, &stream)?);
//! let part = memory.slice(1024, 1024)?; // from now on the memory is shared
//! assert_eq!(part.device_pointer(), memory.device_pointer() + 1024);
//! # Ok::<(), cuda_mem::Error>(())
//! ```

#![allow(clippy::disallowed_types, reason = "an object lets one call at a time pass, also calls that wait")]

mod locks;
mod memory;
mod names;
mod resource;
mod transfer;

pub use locks::{Guard, Mutex, RwLock};
pub use memory::{Content, Memory, lock_both, range};
pub use names::renamed;
pub use resource::{Resource, ResourceType, Source};
