//! Memory of the host
//!
//! The program can register its own memory. Registered memory is page-locked: devices copy it as fast as memory that
//! the driver allocated, and kernels may address it. Managed memory moves to where it is used, and takes advice on
//! that. For page-locked memory of the driver, allocate from cudamem_resource_create_pinned;
//! cudamem_buffer_get_host_pointer returns the CPU's address.

use crate::buffer::{Owner, cudamem_release_callback};
use crate::call::{self, Options, Out, Outcome, fill, invalid, object, out, run};
use crate::device::device;
use crate::handles::cudamem_buffer;
use crate::handles::cudamem_stream;
use crate::status::cudamem_status;
use crate::virtual_memory::{
    CUDAMEM_LOCATION_CURRENT_NODE, CUDAMEM_LOCATION_DEVICE, CUDAMEM_LOCATION_HOST, CUDAMEM_LOCATION_NODE,
};
use core::ffi::c_void;
use core::ptr::NonNull;
use cuda_mem::SharedBuffer;
use cuda_mem::memory::kind::Managed;
use cuda_mem::memory::{HostOwner, Location, RegisterOptions, RegisteredMemory};
use cuda_mem_dynamic::Memory;
use std::sync::Arc;

/// A flag of cudamem_buffer_register: neither devices nor the CPU write the memory while it is registered. Calls that
/// would write it are refused, and its views and exports are read-only. Needed for memory that the program itself may
/// not write, such as a mapped file.
pub const CUDAMEM_REGISTER_READ_ONLY: u32 = 1;
/// A flag of cudamem_buffer_register: the memory belongs to another device and is mapped into the process.
pub const CUDAMEM_REGISTER_IO_MEMORY: u32 = 2;

/// The program's registered memory, with the owner that reports its end.
struct ProgramMemory {
    start: NonNull<u8>,
    size: usize,
    /// Whether the program passed no callback.
    borrowed: bool,
    read_only: bool,
    #[expect(dead_code, reason = "held for its drop")]
    owner: Arc<Owner>,
}

// SAFETY: the header requires memory that nothing else uses, on any thread, until its end is reported.
unsafe impl Send for ProgramMemory {}

// SAFETY: the header requires the program to keep `size` bytes at one address.
unsafe impl HostOwner for ProgramMemory {
    type Element = u8;

    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    fn length(&self) -> usize {
        self.size
    }

    fn is_borrowed(&self) -> bool {
        self.borrowed
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }
}

/// Registers size bytes of the program's memory at pointer, and uses them as a buffer. The memory must stay allocated,
/// and be used through the buffer alone, until the library calls release with user, after the last part of the buffer
/// has ended and its work is done; if queued work waits for the CPU then, the call comes later, on any thread. If
/// release is NULL, the rule ends with the last part. Registering locks the pages one by one, at about 0.1 ms for each
/// MiB. flags is CUDAMEM_REGISTER_... combined by |. After a failure the library does not call release.
///
/// Errors: CUDAMEM_ERROR_DRIVER if some of the memory is registered already, belongs to the driver, or cannot be
/// written though it is not registered as read-only. CUDAMEM_ERROR_OUT_OF_MEMORY at the limit of locked memory. CUDAMEM_ERROR_UNSUPPORTED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_buffer_register(
    pointer: *mut c_void,
    size: usize,
    stream: cudamem_stream,
    flags: u32,
    release: cudamem_release_callback,
    user: *mut c_void,
    buffer: Out<'_, cudamem_buffer>,
) -> cudamem_status {
    run("cudamem_buffer_register", || {
        let buffer = out("buffer", buffer)?;
        call::check_flags("flags", flags, CUDAMEM_REGISTER_READ_ONLY | CUDAMEM_REGISTER_IO_MEMORY)?;
        let stream = object("stream", stream)?;
        let start = NonNull::new(pointer.cast::<u8>());
        let start = start.ok_or_else(|| invalid("pointer", "NULL", "it must point to the memory"))?;
        if size == 0 || size > isize::MAX as usize || pointer.addr().checked_add(size).is_none() {
            return Err(invalid("size", size.to_string(), "it must be 1 or more, and fit into the address space"));
        }
        let mut settings = RegisterOptions::default();
        settings.io_memory = flags & CUDAMEM_REGISTER_IO_MEMORY != 0;
        let owner = Owner::new(release, user);
        let read_only = flags & CUDAMEM_REGISTER_READ_ONLY != 0;
        let lent = ProgramMemory { start, size, borrowed: release.is_none(), read_only, owner: owner.clone() };
        let registered = RegisteredMemory::new(stream.context(), lent, settings)?;
        buffer.write(call::new_handle(Memory::new(registered.buffer(&stream)?.into_any()))?);
        owner.arm();
        Ok(())
    })
}

fn location(location: i32, number: i32) -> Outcome<Location> {
    match (location, number) {
        (CUDAMEM_LOCATION_DEVICE, ordinal) => Ok(Location::Device(device(ordinal)?)),
        (CUDAMEM_LOCATION_HOST, 0) => Ok(Location::Host),
        (CUDAMEM_LOCATION_NODE, node) => Ok(Location::HostNuma(node)),
        (CUDAMEM_LOCATION_CURRENT_NODE, 0) => Ok(Location::HostNumaCurrent),
        _ => {
            let rule = "it must be one of CUDAMEM_LOCATION_..., with number 0 if it takes none";
            Err(invalid("location", format!("{location} with number {number}"), rule))
        }
    }
}

/// Calls `work` with a part of a buffer of managed memory.
fn managed<R>(
    buffer: cudamem_buffer,
    offset: usize,
    size: usize,
    work: impl FnOnce(SharedBuffer<u8, Managed>) -> Outcome<R>,
) -> Outcome<R> {
    let memory = object("buffer", buffer)?;
    if !memory.is_managed() {
        return Err(invalid("buffer", "other memory", "it must be managed memory"));
    }
    memory.with_part(offset, size, |part| work(part.try_into_kind()?))
}

/// The memory is mostly read: each reader gets a copy, until a write invalidates the copies. Takes no location.
pub const CUDAMEM_ADVICE_READ_MOSTLY: i32 = 0;
/// Revokes CUDAMEM_ADVICE_READ_MOSTLY. Takes no location.
pub const CUDAMEM_ADVICE_NOT_READ_MOSTLY: i32 = 1;
/// Where the memory should lie. This moves nothing yet.
pub const CUDAMEM_ADVICE_PREFERRED_LOCATION: i32 = 2;
/// Revokes CUDAMEM_ADVICE_PREFERRED_LOCATION. Takes no location.
pub const CUDAMEM_ADVICE_NO_PREFERRED_LOCATION: i32 = 3;
/// Keep the memory mapped for a device, or for the host, wherever it lies.
pub const CUDAMEM_ADVICE_ACCESSED_BY: i32 = 4;
/// Revokes CUDAMEM_ADVICE_ACCESSED_BY.
pub const CUDAMEM_ADVICE_NOT_ACCESSED_BY: i32 = 5;

/// Advises the driver on a range of managed memory. advice is one of CUDAMEM_ADVICE_..., location one of
/// CUDAMEM_LOCATION_... with its number. Advice that takes no location ignores both. The driver works in pages, which
/// several buffers may share.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the memory is not managed. CUDAMEM_ERROR_UNSUPPORTED if the driver does
/// not know NUMA nodes.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_advise(
    buffer: cudamem_buffer,
    offset: usize,
    size: usize,
    advice: i32,
    location: i32,
    number: i32,
) -> cudamem_status {
    run("cudamem_buffer_advise", || {
        let place = || self::location(location, number);
        managed(buffer, offset, size, |part| {
            match advice {
                CUDAMEM_ADVICE_READ_MOSTLY => part.set_read_mostly(true)?,
                CUDAMEM_ADVICE_NOT_READ_MOSTLY => part.set_read_mostly(false)?,
                CUDAMEM_ADVICE_PREFERRED_LOCATION => part.set_preferred_location(Some(&place()?))?,
                CUDAMEM_ADVICE_NO_PREFERRED_LOCATION => part.set_preferred_location(None)?,
                CUDAMEM_ADVICE_ACCESSED_BY => part.add_accessed_by(place()?)?,
                CUDAMEM_ADVICE_NOT_ACCESSED_BY => part.remove_accessed_by(place()?)?,
                other => return Err(invalid("advice", other.to_string(), "it must be one of CUDAMEM_ADVICE_...")),
            }
            Ok(())
        })
    })
}

/// Moves a range of managed memory to a location, in order of the home stream.
///
/// Errors: as cudamem_buffer_advise. CUDAMEM_ERROR_DRIVER if the device has no concurrent managed access.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_prefetch(
    buffer: cudamem_buffer,
    offset: usize,
    size: usize,
    location: i32,
    number: i32,
) -> cudamem_status {
    run("cudamem_buffer_prefetch", || {
        let place = self::location(location, number)?;
        managed(buffer, offset, size, |part| Ok(part.prefetch(place)?))
    })
}

/// What the driver keeps about a range of managed memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_managed_info {
    /// sizeof(cudamem_managed_info), set by the program.
    pub size: usize,
    /// Whether the whole range was advised to be mostly read: 0 or 1.
    pub read_mostly: u32,
    /// Whether the whole range was last prefetched to one place: 0 or 1.
    pub prefetched: u32,
    /// That place: one of CUDAMEM_LOCATION_... .
    pub location: i32,
    /// The location's number.
    pub number: i32,
}

// SAFETY: a size and four numbers of 4 bytes.
unsafe impl Options for cudamem_managed_info {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Describes a range of managed memory. Set info->size first.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the memory is not managed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_buffer_get_managed_info(
    buffer: cudamem_buffer,
    offset: usize,
    size: usize,
    info: *mut cudamem_managed_info,
) -> cudamem_status {
    run("cudamem_buffer_get_managed_info", || {
        let (read_mostly, place) =
            managed(buffer, offset, size, |part| Ok((part.is_read_mostly()?, part.last_prefetch_location()?)))?;
        let (location, number) = match &place {
            None => (0, 0),
            Some(Location::Device(device)) => (CUDAMEM_LOCATION_DEVICE, device.ordinal()),
            Some(Location::Host) => (CUDAMEM_LOCATION_HOST, 0),
            Some(Location::HostNuma(node)) => (CUDAMEM_LOCATION_NODE, *node),
            Some(Location::HostNumaCurrent) => (CUDAMEM_LOCATION_CURRENT_NODE, 0),
        };
        let answer = cudamem_managed_info {
            size: size_of::<cudamem_managed_info>(),
            read_mostly: read_mostly.into(),
            prefetched: place.is_some().into(),
            location,
            number,
        };
        // SAFETY: the header requires NULL or `size` writable bytes.
        unsafe { fill("info", info, answer) }
    })
}

/// Declares that the contents of a range of managed memory are no longer needed, in order of the home stream. The range
/// then lies on the device, without a transfer of its contents. Until it is written again, its contents are undefined.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the memory is not managed. CUDAMEM_ERROR_MISSING_SYMBOL or
/// CUDAMEM_ERROR_UNSUPPORTED on drivers before CUDA 13.0.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_discard(buffer: cudamem_buffer, offset: usize, size: usize) -> cudamem_status {
    run("cudamem_buffer_discard", || managed(buffer, offset, size, |mut part| Ok(part.discard()?)))
}
