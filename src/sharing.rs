//! Sharing between processes
//!
//! One process exports memory, a pool or an event; another imports it. Between them goes an export: bytes that describe it,
//! and for some kinds file descriptors. A channel carries both (cudamem_channel_send); by another way, take them apart with
//! cudamem_export_get_bytes and _get_files, and put them together with cudamem_export_create.
//!
//!     to share                     export                              import
//!     a pool of the driver's       cudamem_resource_export             cudamem_resource_import
//!     memory of that pool          cudamem_buffer_export               cudamem_buffer_import
//!     memory of cuMemAlloc         cudamem_buffer_export               cudamem_buffer_import
//!     virtual memory               cudamem_buffer_export_virtual       cudamem_buffer_import
//!     mapped memory                cudamem_mapped_export               cudamem_mapped_import
//!     an event                     cudamem_event_export                cudamem_event_import
//!
//! An export reaches the whole allocation that a buffer is of, whatever part it names. So a block of cudamem_resource_create_pool
//! and its like, which is a part of a larger allocation, is not exported: allocate what is to be shared from the resource behind.
//! A pool of the driver's is shared as a whole, with blocks that are freed and allocated anew.
//!
//! The exporting process goes on to own a pool's memory and that of cuMemAlloc, and keeps it until the others have let go: the
//! driver does not watch over that. Virtual memory and mapped memory are kept by each process on its own. A process
//! that ends, or is killed, lets go of what it imported; what it exported ends with it, but for these two.
//!
//! An import believes nothing of what it gets: what is cut off, of a later version, changed, forged, of another kind or of
//! another device is CUDAMEM_ERROR_DESCRIPTOR. A process knows its own pools by their files, by kcmp, which a sandbox has to
//! permit to a process that makes shareable pools and imports others. A pool's export brings a key along, with which descriptors of its memory are
//! signed: who has it may use all memory of the pool. Do not send it to others.
//!
//! File descriptors that the program gives are duplicated, and stay the program's. Those that it is given belong to the object,
//! are closed with it, and are not inherited by programs that are started.
//!
//! A driver does not survive a fork: every call of the child that needs the driver is CUDAMEM_ERROR_FORKED. Start processes by
//! fork and exec at once, or by posix_spawn.

use crate::call::{
    self, Options, Out, Outcome, bytes, destroy, drop_object, fill, handle_type, invalid, object, out, run,
};
use crate::handle::Kind;
use crate::handles::cudamem_buffer;
use crate::handles::cudamem_context;
use crate::handles::cudamem_event;
use crate::handles::cudamem_export;
use crate::handles::cudamem_mapped;
use crate::handles::cudamem_resource;
use crate::handles::cudamem_stream;
use crate::made::{Made, of_sort};
use crate::memory::Memory;
use crate::resource::{AnyDriverPool, Resource};
use crate::status::cudamem_status;
use core::ffi::c_void;
use core::mem::size_of;
use cuda_mem::ipc::{Descriptor, DescriptorError, Export, ExportKind, Exported, MAX_FILE_DESCRIPTORS};
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{DevicePool, PinnedPool, VirtualMemory};
use cuda_mem::{Error, Event};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// A pool of the driver's.
pub const CUDAMEM_EXPORT_POOL: u32 = 1;
/// Memory of such a pool.
pub const CUDAMEM_EXPORT_POOL_MEMORY: u32 = 2;
/// Memory of cuMemAlloc.
pub const CUDAMEM_EXPORT_DEVICE_MEMORY: u32 = 3;
/// Mapped memory.
pub const CUDAMEM_EXPORT_MAPPED: u32 = 4;
/// An event.
pub const CUDAMEM_EXPORT_EVENT: u32 = 5;
/// Virtual memory.
pub const CUDAMEM_EXPORT_VIRTUAL_MEMORY: u32 = 6;

/// An export behind a handle, with what C reads of it.
#[derive(Debug)]
pub struct Shared {
    export: Export,
    bytes: Vec<u8>,
    files: Vec<i32>,
}

handle_type!(cudamem_export: Shared, Kind::Export);

impl Shared {
    pub(crate) fn new(export: Export) -> Self {
        let files = export.file_descriptors().iter().map(AsRawFd::as_raw_fd).collect();
        Self { bytes: export.message(), files, export }
    }

    pub(crate) fn export(&self) -> &Export {
        &self.export
    }

    /// Refuses it where something else is imported.
    fn wrong_kind(&self, call: &'static str, expected: ExportKind) -> call::Failure {
        Error::Descriptor(DescriptorError::WrongKind { call, found: self.export.kind(), expected }).into()
    }
}

/// What a descriptor alone says.
fn without_files(descriptor: Descriptor) -> cuda_mem::Result<Shared> {
    Ok(Shared::new(Export::from_parts(&descriptor.to_bytes(), Vec::new())?))
}

/// Exports a buffer's memory, or the part of it that the buffer is: of a pool made with CUDAMEM_DRIVER_POOL_SHAREABLE, of
/// cudamem_resource_create_device, or imported, which is passed on. Waits for the buffer's work so far.
///
/// Errors: CUDAMEM_ERROR_UNSUPPORTED or CUDAMEM_ERROR_INVALID_ARGUMENT if memory of its resource cannot be shared, as that of a
/// pool cannot which divides the allocations of another resource.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_export(buffer: cudamem_buffer, exported: Out<'_, cudamem_export>) -> cudamem_status {
    run("cudamem_buffer_export", || {
        let exported = out("exported", exported)?;
        let part = object("buffer", buffer)?.slice(0, usize::MAX)?;
        exported.write(call::new_handle(without_files(part.export()?)?)?);
        Ok(())
    })
}

/// Exports a buffer of virtual memory, or the part of it that the buffer is: of a resource that
/// cudamem_resource_create_virtual made with CUDAMEM_PHYSICAL_SHAREABLE. Waits for the buffer's work so far. Each process keeps
/// the memory on its own. Who gets it may use the chunks of physical memory whole, also what lies beside a part.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the buffer is of another resource, was not made shareable, or lies in more than 64
/// chunks; CUDAMEM_ERROR_UNSUPPORTED if it is a block of a pool.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_export_virtual(
    buffer: cudamem_buffer,
    resource: cudamem_resource,
    exported: Out<'_, cudamem_export>,
) -> cudamem_status {
    run("cudamem_buffer_export_virtual", || {
        let exported = out("exported", exported)?;
        let memory = of_sort::<VirtualMemory<Any>>("resource", resource)?;
        let part = object("buffer", buffer)?.slice(0, usize::MAX)?;
        exported.write(call::new_handle(Shared::new(memory.export(&part)?.into()))?);
        Ok(())
    })
}

/// Exports mapped memory, or a part of it.
///
/// Errors: CUDAMEM_ERROR_MISSING_SYMBOL if the vkgdr library cannot share memory.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_export(mapped: cudamem_mapped, exported: Out<'_, cudamem_export>) -> cudamem_status {
    run("cudamem_mapped_export", || {
        let exported = out("exported", exported)?;
        let made = object("mapped", mapped)?.export()?;
        exported.write(call::new_handle(Shared::new(made.into()))?);
        Ok(())
    })
}

/// Exports a pool of the driver's that was made with CUDAMEM_DRIVER_POOL_SHAREABLE, or imported. Send it once to each process;
/// after it, its memory by cudamem_buffer_export. Who gets it may use all memory of the pool.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the resource is something else.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_export(
    resource: cudamem_resource,
    exported: Out<'_, cudamem_export>,
) -> cudamem_status {
    run("cudamem_resource_export", || {
        let exported = out("exported", exported)?;
        let resource = object("resource", resource)?;
        let Resource::Driver { pool, .. } = &*resource else {
            return Err(invalid("resource", "another resource", "it is a pool of the driver's that is shareable"));
        };
        let made = match pool {
            AnyDriverPool::Device(pool) => pool.export(),
            AnyDriverPool::Pinned(pool) => pool.export(),
            AnyDriverPool::Managed(pool) => pool.export(),
        }?;
        exported.write(call::new_handle(Shared::new(made.into()))?);
        Ok(())
    })
}

/// Exports an event that was made with CUDAMEM_EVENT_SHAREABLE: what one process records, others wait for. It has to live while
/// others import it; each that did keeps it on its own.
///
/// Errors: CUDAMEM_ERROR_DRIVER if the event was made without that flag, or imported.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_event_export(event: cudamem_event, exported: Out<'_, cudamem_export>) -> cudamem_status {
    run("cudamem_event_export", || {
        let exported = out("exported", exported)?;
        let descriptor = object("event", event)?.export()?;
        exported.write(call::new_handle(without_files(descriptor)?)?);
        Ok(())
    })
}

/// Imports a pool. Memory of it is imported, by cudamem_buffer_import, and not allocated. A process that has the pool already,
/// because it made or imported it, gets it again. Access of other devices does not come along: cudamem_resource_allow_access.
///
/// Errors: CUDAMEM_ERROR_DESCRIPTOR as above; CUDAMEM_ERROR_DRIVER if the file is something else.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_import(
    context: cudamem_context,
    exported: cudamem_export,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_import", || {
        let resource = out("resource", resource)?;
        let (context, shared) = (object("context", context)?, object("exported", exported)?);
        let Export::Pool(pool) = shared.export.try_clone()? else {
            return Err(shared.wrong_kind("cudamem_resource_import", ExportKind::Pool));
        };
        let imported = match pool.numa_node() {
            None => Resource::driver(DevicePool::import(&context, pool)?, AnyDriverPool::Device),
            Some(_) => Resource::driver(PinnedPool::import(&context, pool)?, AnyDriverPool::Pinned),
        };
        resource.write(call::new_handle(imported)?);
        Ok(())
    })
}

/// Imports memory as a buffer, with stream as its home. resource is the pool that the memory is of, imported or the process's
/// own; for memory of cuMemAlloc, one that cudamem_resource_create_device made; for virtual memory, one of the same place that
/// cudamem_resource_create_virtual made. In the process that exported it, it is the
/// exported memory itself; what is imported twice is one memory, which is let go of when the last buffer of it is destroyed and
/// the work of all is done. The other process may write it at any time: order the work by events, or by waiting and a message.
///
/// Errors: CUDAMEM_ERROR_DESCRIPTOR as above, and if the memory is another pool's; CUDAMEM_ERROR_DRIVER if it is no more.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_import(
    resource: cudamem_resource,
    exported: cudamem_export,
    stream: cudamem_stream,
    buffer: Out<'_, cudamem_buffer>,
) -> cudamem_status {
    run("cudamem_buffer_import", || {
        let buffer = out("buffer", buffer)?;
        let (resource, shared) = (object("resource", resource)?, object("exported", exported)?);
        let stream = object("stream", stream)?;
        let descriptor = shared.export.descriptor();
        let imported = match &*resource {
            Resource::Made { made: Made::Device(memory), .. } => {
                memory.import_buffer::<u8>(&descriptor, &stream)?.into_any()
            }
            Resource::Made { made: Made::Virtual(memory), .. } => match shared.export.try_clone()? {
                Export::VirtualMemory(export) => memory.import::<u8>(export, &stream)?,
                _ => return Err(shared.wrong_kind("cudamem_buffer_import", ExportKind::VirtualMemory)),
            },
            Resource::Driver { pool, .. } => match pool {
                AnyDriverPool::Device(pool) => pool.import_buffer::<u8>(&descriptor, &stream)?.into_any(),
                AnyDriverPool::Pinned(pool) => pool.import_buffer::<u8>(&descriptor, &stream)?.into_any(),
                AnyDriverPool::Managed(pool) => pool.import_buffer::<u8>(&descriptor, &stream)?.into_any(),
            },
            _ => {
                let rule = "it is a pool of the driver's, or made by cudamem_resource_create_device or _create_virtual";
                return Err(invalid("resource", "another resource", rule));
            }
        };
        buffer.write(call::new_handle(Memory::shared(imported))?);
        Ok(())
    })
}

/// Imports mapped memory, for the CPU and the device, by a resource that cudamem_resource_create_mapped made.
///
/// Errors: CUDAMEM_ERROR_DESCRIPTOR as above; CUDAMEM_ERROR_INVALID_ARGUMENT if the memory is another device's;
/// CUDAMEM_ERROR_VKGDR if the file is something else.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_import(
    resource: cudamem_resource,
    exported: cudamem_export,
    mapped: Out<'_, cudamem_mapped>,
) -> cudamem_status {
    run("cudamem_mapped_import", || {
        let mapped = out("mapped", mapped)?;
        let (resource, shared) = (object("resource", resource)?, object("exported", exported)?);
        let Resource::Mapped { mapped: source, .. } = &*resource else {
            return Err(invalid("resource", "another resource", "it has to be made by cudamem_resource_create_mapped"));
        };
        let Export::Mapped(memory) = shared.export.try_clone()? else {
            return Err(shared.wrong_kind("cudamem_mapped_import", ExportKind::Mapped));
        };
        mapped.write(call::new_handle(source.import(memory)?)?);
        Ok(())
    })
}

/// Imports an event of another process.
///
/// Errors: CUDAMEM_ERROR_DESCRIPTOR as above, and if this process made it; CUDAMEM_ERROR_DRIVER if it is no more.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_event_import(
    context: cudamem_context,
    exported: cudamem_export,
    event: Out<'_, cudamem_event>,
) -> cudamem_status {
    run("cudamem_event_import", || {
        let event = out("event", event)?;
        let (context, shared) = (object("context", context)?, object("exported", exported)?);
        event.write(call::new_handle(Event::import(&context, &shared.export.descriptor())?)?);
        Ok(())
    })
}

/// What an export says of itself.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_export_info {
    /// sizeof(cudamem_export_info), set by the program.
    pub size: usize,
    /// CUDAMEM_EXPORT_... ; later releases may add some.
    pub kind: u32,
    /// How many file descriptors belong to it.
    pub file_count: u32,
    /// The size of the whole allocation, in bytes; 0 for what is no memory.
    pub allocation_size: u64,
    /// Where in the allocation the exported part begins.
    pub offset: u64,
    /// How long the part is.
    pub length: u64,
    /// The system's number of the process that exported it first.
    pub process: u32,
    /// The host's NUMA node that a pool or virtual memory lies on; -1 for what lies on a device.
    pub numa_node: i32,
    /// The UUID of the device.
    pub device: [u8; 16],
    /// The name of the pool, the same in all processes; zeros for what is of no pool.
    pub pool: [u8; 16],
}

// SAFETY: 8 + 2 * 4 + 3 * 8 + 2 * 4 + 2 * 16 bytes of numbers.
unsafe impl Options for cudamem_export_info {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Tells what an export says of itself; an import checks it. info->size is set by the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_export_get_info(
    exported: cudamem_export,
    info: *mut cudamem_export_info,
) -> cudamem_status {
    run("cudamem_export_get_info", || {
        let shared = object("exported", exported)?;
        let descriptor = shared.export.descriptor();
        let node = match &shared.export {
            Export::Pool(pool) => pool.numa_node(),
            Export::VirtualMemory(memory) => memory.descriptor().numa_node(),
            _ => None,
        };
        let answer = cudamem_export_info {
            size: size_of::<cudamem_export_info>(),
            kind: kind_number(shared.export.kind())?,
            file_count: shared.files.len() as u32,
            allocation_size: descriptor.size(),
            offset: descriptor.offset(),
            length: descriptor.length(),
            process: descriptor.process().number,
            numa_node: node.unwrap_or(-1),
            device: descriptor.device().0,
            pool: descriptor.pool().0,
        };
        // SAFETY: the header's rule for results.
        unsafe { fill("info", info, answer) }
    })
}

fn kind_number(kind: ExportKind) -> Outcome<u32> {
    Ok(match kind {
        ExportKind::Pool => CUDAMEM_EXPORT_POOL,
        ExportKind::PoolMemory => CUDAMEM_EXPORT_POOL_MEMORY,
        ExportKind::DeviceMemory => CUDAMEM_EXPORT_DEVICE_MEMORY,
        ExportKind::Mapped => CUDAMEM_EXPORT_MAPPED,
        ExportKind::Event => CUDAMEM_EXPORT_EVENT,
        ExportKind::VirtualMemory => CUDAMEM_EXPORT_VIRTUAL_MEMORY,
        other => {
            return Err(invalid("exported", other.to_string(), "this release of the interface has no number for it"));
        }
    })
}

/// Gives an export's bytes, to be sent by a way of the program's own. They are valid until the export is destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_export_get_bytes(
    exported: cudamem_export,
    bytes: Out<'_, *const c_void>,
    size: Out<'_, usize>,
) -> cudamem_status {
    run("cudamem_export_get_bytes", || {
        let (bytes, size) = (out("bytes", bytes)?, out("size", size)?);
        let shared = object("exported", exported)?;
        bytes.write(shared.bytes.as_ptr().cast());
        size.write(shared.bytes.len());
        Ok(())
    })
}

/// Gives the file descriptors that go with an export's bytes, and their number. They are valid until the export is destroyed.
/// They go to another process by SCM_RIGHTS, or by inheritance of duplicates (dup2).
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_export_get_files(
    exported: cudamem_export,
    files: Out<'_, *const i32>,
    count: Out<'_, usize>,
) -> cudamem_status {
    run("cudamem_export_get_files", || {
        let (files, count) = (out("files", files)?, out("count", count)?);
        let shared = object("exported", exported)?;
        files.write(shared.files.as_ptr());
        count.write(shared.files.len());
        Ok(())
    })
}

/// Puts an export together that came by a way of the program's own: its bytes, and count file descriptors, which are
/// duplicated.
///
/// Errors: CUDAMEM_ERROR_DESCRIPTOR if the bytes are no export's; CUDAMEM_ERROR_CHANNEL if other files belong to it;
/// CUDAMEM_ERROR_SYSTEM if a file descriptor is not open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_export_create(
    bytes: *const c_void,
    size: usize,
    files: *const i32,
    count: usize,
    exported: Out<'_, cudamem_export>,
) -> cudamem_status {
    run("cudamem_export_create", || {
        let exported = out("exported", exported)?;
        // SAFETY: the header's rule for bytes.
        let bytes = unsafe { self::bytes("bytes", bytes, size) }?;
        // SAFETY: the header's rule for what a pointer points to.
        let files = unsafe { file_numbers(files, count) }?;
        let files = files.iter().map(|file| duplicate("files", *file)).collect::<Outcome<_>>()?;
        exported.write(call::new_handle(Shared::new(Export::from_parts(bytes, files)?))?);
        Ok(())
    })
}

/// # Safety
///
/// `files` is NULL or readable for `count` numbers.
unsafe fn file_numbers<'call>(files: *const i32, count: usize) -> Outcome<&'call [i32]> {
    if count > MAX_FILE_DESCRIPTORS {
        let rule = format!("no export has more than {MAX_FILE_DESCRIPTORS} file descriptors");
        return Err(invalid("count", count.to_string(), rule));
    }
    if count == 0 {
        return Ok(&[]);
    }
    if files.is_null() || !files.is_aligned() {
        return Err(invalid("files", format!("{files:p}"), "it points to as many file descriptors as count says"));
    }
    // SAFETY: this function's contract.
    Ok(unsafe { core::slice::from_raw_parts(files, count) })
}

/// A file descriptor of the library's own for the program's file.
pub(crate) fn duplicate(argument: &'static str, file: i32) -> Outcome<OwnedFd> {
    if file < 0 {
        return Err(invalid(argument, file.to_string(), "a file descriptor is not negative"));
    }
    // SAFETY: it is not -1; the system says whether it is open, and no other thread of a program that keeps the header's rule
    // closes it meanwhile.
    let file = unsafe { BorrowedFd::borrow_raw(file) };
    let code = |error: std::io::Error| error.raw_os_error().unwrap_or_default();
    Ok(file.try_clone_to_owned().map_err(|error| Error::System { call: "fcntl", code: code(error) })?)
}

/// Destroys an export, and closes its file descriptors. What it exports goes on to live. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_export_destroy(exported: cudamem_export) -> cudamem_status {
    run("cudamem_export_destroy", || destroy("exported", exported, drop_object))
}
