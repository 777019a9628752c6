//! Virtual memory
//!
//! Physical memory that is mapped at reserved addresses: buffers that grow without a copy, one memory at several
//! addresses, and memory that other processes import through a file descriptor.

use crate::call::{
    self, Failure, Options, Out, Outcome, destroy, drop_object, handle_type, invalid, list, object, options, out, run,
};
use crate::device::device;
use crate::handles::cudamem_buffer;
use crate::handles::cudamem_context;
use crate::handles::cudamem_physical;
use crate::handles::cudamem_resource;
use crate::handles::cudamem_stream;
use crate::made::{TypedUse, new_resource, of_type};
use crate::status::cudamem_status;
use core::mem::size_of;
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{
    Granularity, Growth, PhysicalLocation, PhysicalMemory, PhysicalOptions, VirtualMemory, VirtualOptions,
};
use cuda_mem_dynamic::Memory;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

handle_type!(cudamem_physical: PhysicalMemory);

/// The memory of a device: the context's device where memory is made; elsewhere the device whose ordinal is the number.
pub const CUDAMEM_LOCATION_DEVICE: i32 = 0;
/// The memory of the host. The number is 0.
pub const CUDAMEM_LOCATION_HOST: i32 = 1;
/// The memory of the host's NUMA node with that number.
pub const CUDAMEM_LOCATION_NODE: i32 = 2;
/// The memory of the NUMA node that the calling thread runs on. The number is 0.
pub const CUDAMEM_LOCATION_CURRENT_NODE: i32 = 3;

/// A flag of physical and virtual memory: other processes may import it. Host memory then needs CUDAMEM_LOCATION_NODE.
pub const CUDAMEM_PHYSICAL_SHAREABLE: u32 = 1;
/// A flag of physical and virtual memory: other devices of the machine can be given access over PCIe (GPUDirect RDMA).
pub const CUDAMEM_PHYSICAL_GPU_DIRECT_RDMA: u32 = 2;
/// A flag of physical and virtual memory: round sizes up to the driver's smallest unit instead of the unit that it
/// recommends for speed.
pub const CUDAMEM_PHYSICAL_MINIMUM_GRANULARITY: u32 = 4;

const FLAGS: u32 = CUDAMEM_PHYSICAL_SHAREABLE | CUDAMEM_PHYSICAL_GPU_DIRECT_RDMA | CUDAMEM_PHYSICAL_MINIMUM_GRANULARITY;

/// How physical memory is made. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_physical_options {
    /// sizeof(cudamem_physical_options).
    pub size: usize,
    /// CUDAMEM_LOCATION_DEVICE for the context's device, CUDAMEM_LOCATION_HOST or CUDAMEM_LOCATION_NODE.
    pub location: i32,
    /// The NUMA node, with CUDAMEM_LOCATION_NODE; otherwise 0.
    pub node: i32,
    /// CUDAMEM_PHYSICAL_... combined by |.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
}

// SAFETY: a size and four numbers of 4 bytes.
unsafe impl Options for cudamem_physical_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

fn location(location: i32, node: i32) -> Outcome<PhysicalLocation> {
    match (location, node) {
        (CUDAMEM_LOCATION_DEVICE, 0) => Ok(PhysicalLocation::Device),
        (CUDAMEM_LOCATION_HOST, 0) => Ok(PhysicalLocation::Host),
        (CUDAMEM_LOCATION_NODE, node) => Ok(PhysicalLocation::HostNuma(node)),
        _ => {
            let rule = "it must be CUDAMEM_LOCATION_DEVICE, _HOST or _NODE, with node 0 for all but _NODE";
            Err(invalid("options.location", format!("{location} with node {node}"), rule))
        }
    }
}

fn granularity(flags: u32) -> Granularity {
    match flags & CUDAMEM_PHYSICAL_MINIMUM_GRANULARITY {
        0 => Granularity::Recommended,
        _ => Granularity::Minimum,
    }
}

/// Makes physical memory of at least size bytes. It has no address until it is mapped. options may be NULL.
///
/// Errors: CUDAMEM_ERROR_UNSUPPORTED if the device or the driver has none. CUDAMEM_ERROR_OUT_OF_MEMORY.
/// CUDAMEM_ERROR_INVALID_ARGUMENT if size is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_physical_create(
    context: cudamem_context,
    size: usize,
    options: *const cudamem_physical_options,
    physical: Out<'_, cudamem_physical>,
) -> cudamem_status {
    run("cudamem_physical_create", || {
        let physical = out("physical", physical)?;
        // SAFETY: the header requires NULL or `size` bytes.
        let chosen = unsafe { self::options("options", options) }?;
        call::check_flags("options.flags", chosen.flags, FLAGS)?;
        call::check_flags("options.reserved", chosen.reserved, 0)?;
        let mut settings = PhysicalOptions::default();
        settings.location = location(chosen.location, chosen.node)?;
        settings.shareable = chosen.flags & CUDAMEM_PHYSICAL_SHAREABLE != 0;
        settings.gpu_direct_rdma = chosen.flags & CUDAMEM_PHYSICAL_GPU_DIRECT_RDMA != 0;
        settings.granularity = granularity(chosen.flags);
        physical.write(call::new_handle(PhysicalMemory::new(&*object("context", context)?, size, &settings)?)?);
        Ok(())
    })
}

/// Gets a file descriptor through which another process imports the memory. The program must close it.
///
/// Errors: CUDAMEM_ERROR_UNSUPPORTED or CUDAMEM_ERROR_INVALID_ARGUMENT if the memory is not shareable.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_physical_export(physical: cudamem_physical, file: Out<'_, i32>) -> cudamem_status {
    run("cudamem_physical_export", || {
        let file = out("file", file)?;
        file.write(object("physical", physical)?.export()?.into_raw_fd());
        Ok(())
    })
}

/// Opens physical memory of size bytes from a file descriptor that another process exported. The library closes the
/// file, even after a failure, unless it is not a file.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_physical_import(
    context: cudamem_context,
    file: i32,
    size: usize,
    physical: Out<'_, cudamem_physical>,
) -> cudamem_status {
    run("cudamem_physical_import", || {
        if file < 0 {
            return Err(invalid("file", file.to_string(), "it must be an open file descriptor"));
        }
        // This comes first, so that the file is closed whatever fails.
        // SAFETY: the program gives the file away. If it is not a file, the system refuses to close it.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let physical = out("physical", physical)?;
        let context = object("context", context)?;
        physical.write(call::new_handle(PhysicalMemory::import(&context, file, size)?)?);
        Ok(())
    })
}

/// Gets the size in bytes, a multiple of the granularity.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_physical_get_size(physical: cudamem_physical, size: Out<'_, usize>) -> cudamem_status {
    run("cudamem_physical_get_size", || {
        let size = out("size", size)?;
        size.write(object("physical", physical)?.size());
        Ok(())
    })
}

/// Destroys the handle. The memory ends when nothing maps it any more. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_physical_destroy(physical: cudamem_physical) -> cudamem_status {
    run("cudamem_physical_destroy", || destroy("physical", physical, drop_object))
}

/// How virtual memory is made. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_virtual_options {
    /// sizeof(cudamem_virtual_options).
    pub size: usize,
    /// The alignment of allocations in bytes, a power of two. The granularity by default.
    pub alignment: usize,
    /// Where allocations should begin if the addresses are free: a multiple of the granularity. Anywhere by default.
    pub address_hint: u64,
    /// The ordinals of devices, besides the context's own, that may use the memory, which lies on the device.
    pub peers: *const i32,
    /// The number of peers.
    pub peer_count: usize,
    /// CUDAMEM_LOCATION_DEVICE for the context's device, CUDAMEM_LOCATION_HOST or CUDAMEM_LOCATION_NODE.
    pub location: i32,
    /// The NUMA node, with CUDAMEM_LOCATION_NODE; otherwise 0.
    pub node: i32,
    /// CUDAMEM_PHYSICAL_... combined by |.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
}

// SAFETY: sizes, an address that may be NULL, and four numbers of 4 bytes.
unsafe impl Options for cudamem_virtual_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Makes a resource of virtual memory. Its allocations have whole units of about 2 MiB. options may be NULL.
///
/// Errors: CUDAMEM_ERROR_UNSUPPORTED if the device or the driver does not support the options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_resource_create_virtual(
    context: cudamem_context,
    options: *const cudamem_virtual_options,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_create_virtual", || {
        let resource = out("resource", resource)?;
        // SAFETY: the header requires NULL or `size` bytes.
        let chosen = unsafe { self::options("options", options) }?;
        call::check_flags("options.flags", chosen.flags, FLAGS)?;
        call::check_flags("options.reserved", chosen.reserved, 0)?;
        // SAFETY: the header requires `count` valid entries.
        let peers = unsafe { list("options.peers", chosen.peers, chosen.peer_count) }?;
        let mut settings = VirtualOptions::default();
        settings.shareable = chosen.flags & CUDAMEM_PHYSICAL_SHAREABLE != 0;
        settings.gpu_direct_rdma = chosen.flags & CUDAMEM_PHYSICAL_GPU_DIRECT_RDMA != 0;
        settings.granularity = granularity(chosen.flags);
        settings.peers = peers.iter().map(|ordinal| device(*ordinal)).collect::<Outcome<_>>()?;
        settings.address_hint = chosen.address_hint;
        settings.alignment = chosen.alignment;
        let context = object("context", context)?;
        let made = match location(chosen.location, chosen.node)? {
            PhysicalLocation::Device => VirtualMemory::new(&context, &settings)?.into_any(),
            PhysicalLocation::Host => VirtualMemory::host(&context, &settings)?.into_any(),
            PhysicalLocation::HostNuma(node) => VirtualMemory::host_numa(&context, node, &settings)?.into_any(),
        };
        resource.write(new_resource(made)?);
        Ok(())
    })
}

fn virtual_memory(resource: cudamem_resource) -> Outcome<TypedUse<VirtualMemory<Any>>> {
    of_type("resource", resource)
}

/// Maps count pieces of physical memory side by side, as one buffer. The pieces may have other addresses already. If
/// the program uses the same bytes through several addresses, it must order the uses.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if a piece lies elsewhere than the resource's memory, or if count is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_resource_map(
    resource: cudamem_resource,
    physical: *const cudamem_physical,
    count: usize,
    stream: cudamem_stream,
    buffer: Out<'_, cudamem_buffer>,
) -> cudamem_status {
    run("cudamem_resource_map", || {
        let buffer = out("buffer", buffer)?;
        // SAFETY: the header requires `count` valid entries.
        let physical = unsafe { list("physical", physical, count) }?;
        let resource = virtual_memory(resource)?;
        let pieces = physical.iter().map(|piece| Ok(object("physical", *piece)?.clone()));
        let pieces = pieces.collect::<Outcome<Vec<_>>>()?;
        // SAFETY: the header requires the program to order uses of the same bytes.
        let mapped = unsafe { resource.map(&pieces, &*object("stream", stream)?) }?;
        buffer.write(call::new_handle(Memory::new(mapped))?);
        Ok(())
    })
}

/// Makes a growable buffer: reserves addresses for capacity bytes of a resource that cudamem_resource_create_virtual
/// made. The buffer has no bytes yet; cudamem_buffer_grow enlarges it. Slicing it ends its growth.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_create_growable(
    resource: cudamem_resource,
    capacity: usize,
    stream: cudamem_stream,
    buffer: Out<'_, cudamem_buffer>,
) -> cudamem_status {
    run("cudamem_buffer_create_growable", || {
        let buffer = out("buffer", buffer)?;
        let (resource, stream) = (virtual_memory(resource)?, object("stream", stream)?);
        buffer.write(call::new_handle(Memory::growable(&resource, capacity, &stream)?)?);
        Ok(())
    })
}

/// Grows a buffer to size bytes. The new bytes are zeros, written in stream order. Up to its capacity the buffer keeps
/// its address. Beyond it, the same memory is mapped at another address; moved, which may be NULL, reports whether that
/// happened. Does nothing if the buffer has that many bytes already.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the buffer is not growable. CUDAMEM_ERROR_OUT_OF_MEMORY: the buffer is
/// then unchanged.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_grow(buffer: cudamem_buffer, size: usize, moved: Out<'_, bool>) -> cudamem_status {
    run("cudamem_buffer_grow", || {
        let growth =
            object("buffer", buffer)?.with_growable(|growable| growable.grow_to(size)).ok_or_else(not_growable)??;
        if let Some(moved) = moved {
            moved.write(growth == Growth::Moved);
        }
        Ok(())
    })
}

/// Shrinks a buffer to size bytes. Physical memory that holds none of them returns to the system, after the home
/// stream's work; addresses stay reserved. Does nothing if the buffer has no more bytes than that.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the buffer is not growable.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_shrink(buffer: cudamem_buffer, size: usize) -> cudamem_status {
    run("cudamem_buffer_shrink", || {
        let shrunk = object("buffer", buffer)?.with_growable(|growable| growable.shrink_to(size));
        Ok(shrunk.ok_or_else(not_growable)??)
    })
}

fn not_growable() -> Failure {
    let rule = "it must be made by cudamem_buffer_create_growable, and must not be sliced";
    invalid("buffer", "a buffer that does not grow", rule)
}
