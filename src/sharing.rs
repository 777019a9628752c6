//! Sharing between processes
//!
//! One process exports memory, a pool or an event, and another imports it. An export passes between them: bytes that
//! describe the object and, for some kinds, file descriptors. A channel carries both (cudamem_channel_send). For
//! another transport, cudamem_export_get_info gets both, and cudamem_export_create makes an export of them again.
//!
//!     to share                     export                              import
//!     a driver pool                cudamem_resource_export             cudamem_resource_import
//!     memory of that pool          cudamem_buffer_export               cudamem_buffer_import
//!     memory of cuMemAlloc         cudamem_buffer_export               cudamem_buffer_import
//!     virtual memory               cudamem_buffer_export               cudamem_buffer_import
//!     mapped memory                cudamem_buffer_export               cudamem_buffer_import
//!     an event                     cudamem_event_export                cudamem_event_import
//!
//! An export gives access to the whole allocation of a buffer, even if the buffer is only a part. So a block of
//! cudamem_pool_create and similar pools, which is a part of a larger allocation, cannot be exported: allocate memory
//! to share from the pool's upstream. A driver pool is shared as a whole, with blocks that are freed and allocated
//! again.
//!
//! The exporting process keeps owning a pool's memory and memory of cuMemAlloc, and must keep it until the others have
//! released it: the driver does not check this. Virtual and mapped memory live until the last process has released
//! them. A process that ends, or is killed, releases what it imported. Its exports end with it, except for virtual and
//! mapped memory.
//!
//! An import trusts nothing. An export that is truncated, of a later version, changed, forged, of another kind or of
//! another device is CUDAMEM_ERROR_DESCRIPTOR. A process recognizes its own pools by their files, with kcmp; the
//! sandbox of a process that makes shareable pools and imports others must permit kcmp. A pool's export contains a key
//! that signs the descriptors of its memory. Whoever has the key may use all memory of the pool, so do not send it to
//! others.
//!
//! The library duplicates file descriptors that the program passes; they stay the program's. File descriptors that the
//! library returns belong to their object, are closed with it, and are not inherited across exec.
//!
//! A driver does not survive a fork: every call of the child that takes a handle or needs the driver is
//! CUDAMEM_ERROR_FORKED, and destroying a handle does nothing. Start processes with fork and immediate exec, or with
//! posix_spawn.

use crate::call::{
    self, Options, Out, Outcome, bytes, destroy, drop_object, fill, handle_type, invalid, object, out, run,
};
use crate::handles::cudamem_buffer;
use crate::handles::cudamem_context;
use crate::handles::cudamem_event;
use crate::handles::cudamem_export;
use crate::handles::cudamem_resource;
use crate::handles::cudamem_stream;
use crate::made::{new_resource, of_type};
use crate::status::cudamem_status;
use core::ffi::c_void;
use core::mem::size_of;
use cuda_mem::ipc::{Descriptor, DescriptorError, Export, ExportKind, Exported, MAX_FILE_DESCRIPTORS};
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{DevicePool, PinnedPool, VirtualMemory};
use cuda_mem::{Error, Event};
use cuda_mem_dynamic::Memory;
use cuda_mem_dynamic::Resource;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// A driver pool.
pub const CUDAMEM_EXPORT_POOL: u32 = 1;
/// Memory of a driver pool.
pub const CUDAMEM_EXPORT_POOL_MEMORY: u32 = 2;
/// Memory of cuMemAlloc.
pub const CUDAMEM_EXPORT_DEVICE_MEMORY: u32 = 3;
/// Mapped memory.
pub const CUDAMEM_EXPORT_MAPPED: u32 = 4;
/// An event.
pub const CUDAMEM_EXPORT_EVENT: u32 = 5;
/// Virtual memory.
pub const CUDAMEM_EXPORT_VIRTUAL_MEMORY: u32 = 6;

/// The object behind an export's handle, with the data that C reads.
#[derive(Debug)]
pub struct Shared {
    export: Export,
    bytes: Vec<u8>,
    files: Vec<i32>,
}

handle_type!(cudamem_export: Shared);

impl Shared {
    pub(crate) fn new(export: Export) -> Self {
        let files = export.file_descriptors().iter().map(AsRawFd::as_raw_fd).collect();
        Self { bytes: export.message(), files, export }
    }

    pub(crate) fn export(&self) -> &Export {
        &self.export
    }

    /// The error for an export of the wrong kind.
    fn wrong_kind(&self, call: &'static str, expected: ExportKind) -> call::Failure {
        Error::Descriptor(DescriptorError::WrongKind { call, found: self.export.kind(), expected }).into()
    }
}

/// An export that consists of a descriptor only.
fn without_files(descriptor: Descriptor) -> cuda_mem::Result<Shared> {
    Ok(Shared::new(Export::from_parts(&descriptor.to_bytes(), Vec::new())?))
}

/// Exports a buffer's memory, or the part of it that the buffer is. The memory must come from a pool made with
/// CUDAMEM_DRIVER_POOL_SHAREABLE or from cudamem_resource_create_device, or must be imported memory, which is passed
/// on. Waits for the work on the buffer so far.
///
/// For virtual and mapped memory, resource is its resource; virtual memory must be made by
/// cudamem_resource_create_virtual with CUDAMEM_PHYSICAL_SHAREABLE. Each process then keeps the memory independently, and
/// a process that gets the export may use the whole chunks of physical memory, or the whole mapped memory, even beside a
/// part. For other memory, resource is the null handle.
///
/// Errors: CUDAMEM_ERROR_MISSING_SYMBOL if the vkgdr library cannot share mapped memory. CUDAMEM_ERROR_UNSUPPORTED or CUDAMEM_ERROR_INVALID_ARGUMENT if the resource cannot share memory, like a pool
/// that divides the allocations of another resource, if the memory is of another resource, or if it lies in more than
/// 64 chunks.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_export(
    buffer: cudamem_buffer,
    resource: cudamem_resource,
    exported: Out<'_, cudamem_export>,
) -> cudamem_status {
    run("cudamem_buffer_export", || {
        let exported = out("exported", exported)?;
        let part = object("buffer", buffer)?.slice(0, usize::MAX)?;
        let shared = match resource.id {
            0 => without_files(part.export()?)?,
            _ => Shared::new(match &object("resource", resource)?.resource {
                Resource::Mapped(mapped) => mapped.export(&part.try_into_kind()?)?.into(),
                _ => of_type::<VirtualMemory<Any>>("resource", resource)?.export(&part)?.into(),
            }),
        };
        exported.write(call::new_handle(shared)?);
        Ok(())
    })
}

/// Exports a driver pool that was made with CUDAMEM_DRIVER_POOL_SHAREABLE, or imported. Send the export once to each
/// process, and then the pool's memory by cudamem_buffer_export. A process that gets the export may use all memory of
/// the pool.
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
        let Resource::DriverPool(pool) = &resource.resource else {
            return Err(invalid("resource", "another resource", "it must be a shareable driver pool"));
        };
        exported.write(call::new_handle(Shared::new(pool.export()?.into()))?);
        Ok(())
    })
}

/// Exports an event that was made with CUDAMEM_EVENT_SHAREABLE: one process records it, and others wait for it. The
/// event must live until the others have imported it. Each importer then keeps it independently.
///
/// Errors: CUDAMEM_ERROR_DRIVER if the event was made without that flag, or was imported.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_event_export(event: cudamem_event, exported: Out<'_, cudamem_export>) -> cudamem_status {
    run("cudamem_event_export", || {
        let exported = out("exported", exported)?;
        let descriptor = object("event", event)?.export()?;
        exported.write(call::new_handle(without_files(descriptor)?)?);
        Ok(())
    })
}

/// Imports a pool. The program imports the pool's memory with cudamem_buffer_import, and cannot allocate from the pool.
/// If this process made or imported the pool before, it gets the same pool again. The import does not carry other
/// devices' access: call cudamem_resource_set_access.
///
/// Errors: CUDAMEM_ERROR_DESCRIPTOR as above. CUDAMEM_ERROR_DRIVER if the file is something else.
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
            None => DevicePool::import(&context, pool)?.into_any(),
            Some(_) => PinnedPool::import(&context, pool)?.into_any(),
        };
        resource.write(new_resource(imported)?);
        Ok(())
    })
}

/// Imports memory as a buffer with the home stream stream. resource is the memory's pool, imported or this process's
/// own; for memory of cuMemAlloc, a resource of cudamem_resource_create_device, for the device that uses the memory, which
/// may be another than the one that holds it; for virtual memory, a resource of cudamem_resource_create_virtual for the
/// same location. In the exporting process, the import is the exported memory itself. Memory imported twice is one memory:
/// it is released when its last buffer is destroyed and the work of all is done. The other process may write it at any
/// time: order the work with events, or wait and send a message.
///
/// Errors: CUDAMEM_ERROR_DESCRIPTOR as above, and if the memory belongs to another pool. CUDAMEM_ERROR_NO_ACCESS if the
/// device cannot access the memory of the device that holds it. CUDAMEM_ERROR_DRIVER if it no longer exists.
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
        let imported = match &resource.resource {
            Resource::Device(memory) => memory.import_buffer::<u8>(&descriptor, &stream)?.into_any(),
            Resource::Virtual(memory) => match shared.export.try_clone()? {
                Export::VirtualMemory(export) => memory.import::<u8>(export, &stream)?,
                _ => return Err(shared.wrong_kind("cudamem_buffer_import", ExportKind::VirtualMemory)),
            },
            Resource::Mapped(mapped) => match shared.export.try_clone()? {
                Export::Mapped(export) => mapped.import::<u8>(export, &stream)?.into_any(),
                _ => return Err(shared.wrong_kind("cudamem_buffer_import", ExportKind::Mapped)),
            },
            Resource::DriverPool(pool) => pool.import_buffer::<u8>(&descriptor, &stream)?,
            _ => {
                let rule = "it must be a driver pool, or made by cudamem_resource_create_device or _create_virtual";
                return Err(invalid("resource", "another resource", rule));
            }
        };
        buffer.write(call::new_handle(Memory::shared(imported))?);
        Ok(())
    })
}

/// Imports an event of another process.
///
/// Errors: CUDAMEM_ERROR_DESCRIPTOR as above, and if this process made the event. CUDAMEM_ERROR_DRIVER if the event no
/// longer exists.
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

/// What an export states about itself.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_export_info {
    /// sizeof(cudamem_export_info), set by the program.
    pub size: usize,
    /// One of CUDAMEM_EXPORT_... . Later releases may add values.
    pub kind: u32,
    /// The number of file descriptors that belong to the export.
    pub file_count: u32,
    /// The size of the whole allocation in bytes; 0 if the export is not memory.
    pub allocation_size: u64,
    /// The offset of the exported part in the allocation.
    pub offset: u64,
    /// The size of the exported part.
    pub length: u64,
    /// The process ID of the process that first exported the object.
    pub process: u32,
    /// The host's NUMA node on which a pool or virtual memory lies; -1 for memory on a device.
    pub numa_node: i32,
    /// The UUID of the device.
    pub device: [u8; 16],
    /// The pool's name, the same in all processes; zeros if the export is not of a pool.
    pub pool: [u8; 16],
    /// The export's bytes, to send over the program's own transport.
    pub bytes: *const c_void,
    /// The number of bytes.
    pub byte_count: usize,
    /// The file descriptors that go with the bytes, file_count of them. Pass them to another process with SCM_RIGHTS,
    /// or let a child inherit duplicates (dup2).
    pub files: *const i32,
}

// SAFETY: numbers and addresses of 8 + 2 * 4 + 3 * 8 + 2 * 4 + 2 * 16 + 3 * 8 bytes.
unsafe impl Options for cudamem_export_info {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Gets what an export states about itself; only an import verifies it. Bytes and files are valid until the export is
/// destroyed. Set info->size first.
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
            bytes: shared.bytes.as_ptr().cast(),
            byte_count: shared.bytes.len(),
            files: shared.files.as_ptr(),
        };
        // SAFETY: the header requires NULL or `size` writable bytes.
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
            return Err(invalid("exported", other.to_string(), "this release has no number for it"));
        }
    })
}

/// Makes an export from what came over the program's own transport: its bytes, and count file descriptors, which the
/// library duplicates.
///
/// Errors: CUDAMEM_ERROR_DESCRIPTOR if the bytes are not an export. CUDAMEM_ERROR_CHANNEL if the files are not those of
/// the export. CUDAMEM_ERROR_SYSTEM if a file descriptor is not open.
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
        // SAFETY: the header requires `size` valid bytes.
        let bytes = unsafe { self::bytes("bytes", bytes, size) }?;
        // SAFETY: the header requires count file descriptors.
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
        let rule = format!("it must be at most {MAX_FILE_DESCRIPTORS} file descriptors");
        return Err(invalid("count", count.to_string(), rule));
    }
    if count == 0 {
        return Ok(&[]);
    }
    if files.is_null() || !files.is_aligned() {
        return Err(invalid("files", format!("{files:p}"), "it must point to as many file descriptors as count says"));
    }
    // SAFETY: this function's contract.
    Ok(unsafe { core::slice::from_raw_parts(files, count) })
}

/// Duplicates the program's file descriptor.
pub(crate) fn duplicate(argument: &'static str, file: i32) -> Outcome<OwnedFd> {
    if file < 0 {
        return Err(invalid(argument, file.to_string(), "it must be 0 or more"));
    }
    // SAFETY: the descriptor is not -1. The system checks whether it is open, and the header obliges the program not to
    // close it on another thread meanwhile.
    let file = unsafe { BorrowedFd::borrow_raw(file) };
    let code = |error: std::io::Error| error.raw_os_error().unwrap_or_default();
    Ok(file.try_clone_to_owned().map_err(|error| Error::System { call: "fcntl", code: code(error) })?)
}

/// Destroys an export and closes its file descriptors. The exported object lives on. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_export_destroy(exported: cudamem_export) -> cudamem_status {
    run("cudamem_export_destroy", || destroy("exported", exported, drop_object))
}
