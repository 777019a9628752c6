//! Memory of the host
//!
//! The program's own memory can be registered: it is page-locked then, devices copy it as fast as memory that the driver
//! allocated, and kernels may address it. Managed memory lies where it is used, and takes advice. Page-locked memory of the
//! driver's is a buffer of cudamem_resource_create_pinned, whose CPU address cudamem_buffer_get_host_pointer gives.

use crate::buffer::{Owner, cudamem_release_callback};
use crate::call::{self, Out, Outcome, invalid, object, out, run};
use crate::device::device;
use crate::handles::cudamem_buffer;
use crate::handles::cudamem_stream;
use crate::memory::Memory;
use crate::status::cudamem_status;
use crate::virtual_memory::{
    CUDAMEM_LOCATION_CURRENT_NODE, CUDAMEM_LOCATION_DEVICE, CUDAMEM_LOCATION_HOST, CUDAMEM_LOCATION_NODE,
};
use core::ffi::c_void;
use core::ptr::NonNull;
use cuda_mem::SharedBuffer;
use cuda_mem::memory::kind::Managed;
use cuda_mem::memory::{HostOwner, Location, RegisterOptions, RegisteredMemory};
use std::sync::Arc;

/// A flag of cudamem_buffer_register: devices only read the memory. Not every device makes the difference.
pub const CUDAMEM_REGISTER_READ_ONLY: u32 = 1;
/// A flag of cudamem_buffer_register: it is memory of another device's, mapped into the process.
pub const CUDAMEM_REGISTER_IO_MEMORY: u32 = 2;

/// Memory of the program's, and who is told of its end.
struct Lent {
    start: NonNull<u8>,
    size: usize,
    /// Nobody is told.
    borrowed: bool,
    #[expect(dead_code, reason = "held for its drop")]
    owner: Arc<Owner>,
}

// SAFETY: the header asks for memory that nothing else uses, on any thread, until its end was told.
unsafe impl Send for Lent {}

// SAFETY: the program promises as many bytes, which stay where they are.
unsafe impl HostOwner for Lent {
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
}

/// Registers size bytes of the program's memory at pointer, and uses them as a buffer. They must stay allocated, and be used through
/// the buffer alone, until release was called with user, which the end of the last part of the buffer does when its work is done,
/// or which happens later, on any thread, if queued work waits for the CPU then;
/// where release is NULL, until that end. Pages are locked, one by one: some 0.1 ms for each MiB. flags is CUDAMEM_REGISTER_...
/// combined by |. After a failure release is not called.
///
/// Errors: CUDAMEM_ERROR_DRIVER if some of the memory is registered already, is the driver's, or cannot be written;
/// CUDAMEM_ERROR_OUT_OF_MEMORY if the limit of locked memory is reached; CUDAMEM_ERROR_UNSUPPORTED.
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
        let start = start.ok_or_else(|| invalid("pointer", "NULL", "it points to the memory"))?;
        if size == 0 || size > isize::MAX as usize || pointer.addr().checked_add(size).is_none() {
            return Err(invalid("size", size.to_string(), "it is 1 or more, and ends within the address space"));
        }
        let mut settings = RegisterOptions::default();
        settings.read_only = flags & CUDAMEM_REGISTER_READ_ONLY != 0;
        settings.io_memory = flags & CUDAMEM_REGISTER_IO_MEMORY != 0;
        let owner = Owner::new(release, user);
        let lent = Lent { start, size, borrowed: release.is_none(), owner: owner.clone() };
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
            let rule = "it is one of CUDAMEM_LOCATION_..., with number 0 where it takes none";
            Err(invalid("location", format!("{location} with number {number}"), rule))
        }
    }
}

/// Does something with a part of a buffer of managed memory.
fn managed<R>(
    buffer: cudamem_buffer,
    offset: usize,
    size: usize,
    work: impl FnOnce(SharedBuffer<u8, Managed>) -> Outcome<R>,
) -> Outcome<R> {
    let memory = object("buffer", buffer)?;
    if !memory.is_managed() {
        return Err(invalid("buffer", "other memory", "it has to be managed memory"));
    }
    memory.with_part(offset, size, |part| work(part.try_into_kind()?))
}

/// Mostly read: each reader gets a copy, which a write ends. Takes no location.
pub const CUDAMEM_ADVICE_READ_MOSTLY: i32 = 0;
/// Takes CUDAMEM_ADVICE_READ_MOSTLY back.
pub const CUDAMEM_ADVICE_NOT_READ_MOSTLY: i32 = 1;
/// Where the memory should lie. Nothing moves yet.
pub const CUDAMEM_ADVICE_PREFERRED_LOCATION: i32 = 2;
/// Takes CUDAMEM_ADVICE_PREFERRED_LOCATION back. Takes no location.
pub const CUDAMEM_ADVICE_NO_PREFERRED_LOCATION: i32 = 3;
/// The memory is kept mapped for a device, or the host, wherever it lies.
pub const CUDAMEM_ADVICE_ACCESSED_BY: i32 = 4;
/// Takes CUDAMEM_ADVICE_ACCESSED_BY back.
pub const CUDAMEM_ADVICE_NOT_ACCESSED_BY: i32 = 5;

/// Advises the driver on a range of managed memory. advice is one of CUDAMEM_ADVICE_..., location one of CUDAMEM_LOCATION_... with
/// its number; advice that takes no location ignores both. The driver works in pages, which buffers may share.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the memory is not managed; CUDAMEM_ERROR_UNSUPPORTED if the driver knows no NUMA nodes.
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
                other => return Err(invalid("advice", other.to_string(), "it is one of CUDAMEM_ADVICE_...")),
            }
            Ok(())
        })
    })
}

/// Moves a range of managed memory to a location, in order of the home stream.
///
/// Errors: as cudamem_buffer_advise; CUDAMEM_ERROR_DRIVER if the device has no concurrent managed access.
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

/// Tells whether all of a range of managed memory was advised to be mostly read.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_is_read_mostly(
    buffer: cudamem_buffer,
    offset: usize,
    size: usize,
    read_mostly: Out<'_, bool>,
) -> cudamem_status {
    run("cudamem_buffer_is_read_mostly", || {
        let read_mostly = out("read_mostly", read_mostly)?;
        read_mostly.write(managed(buffer, offset, size, |part| Ok(part.is_read_mostly()?))?);
        Ok(())
    })
}

/// Tells where a range of managed memory was last sent: one of CUDAMEM_LOCATION_... and its number; known is false if nowhere, or its
/// parts to different places, and the others then stay as they are.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_get_prefetched(
    buffer: cudamem_buffer,
    offset: usize,
    size: usize,
    known: Out<'_, bool>,
    location: Out<'_, i32>,
    number: Out<'_, i32>,
) -> cudamem_status {
    run("cudamem_buffer_get_prefetched", || {
        let (known, location, number) = (out("known", known)?, out("location", location)?, out("number", number)?);
        let place = managed(buffer, offset, size, |part| Ok(part.last_prefetch_location()?))?;
        known.write(place.is_some());
        if let Some(place) = place {
            let (sort, at) = match place {
                Location::Device(device) => (CUDAMEM_LOCATION_DEVICE, device.ordinal()),
                Location::Host => (CUDAMEM_LOCATION_HOST, 0),
                Location::HostNuma(node) => (CUDAMEM_LOCATION_NODE, node),
                Location::HostNumaCurrent => (CUDAMEM_LOCATION_CURRENT_NODE, 0),
            };
            location.write(sort);
            number.write(at);
        }
        Ok(())
    })
}

/// Says that the contents of a range of managed memory are not needed any more, in order of the home stream: the range is the
/// device's without having been moved. Until it is written again its contents are undefined.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the memory is not managed; CUDAMEM_ERROR_MISSING_SYMBOL or CUDAMEM_ERROR_UNSUPPORTED on
/// drivers before CUDA 13.0.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_discard(buffer: cudamem_buffer, offset: usize, size: usize) -> cudamem_status {
    run("cudamem_buffer_discard", || managed(buffer, offset, size, |mut part| Ok(part.discard()?)))
}
