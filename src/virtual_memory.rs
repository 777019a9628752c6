//! Virtual memory
//!
//! Physical memory that is mapped at reserved addresses: buffers that grow without a copy, one memory at several addresses, and
//! memory that others import by a file descriptor.

use crate::call::{
    self, Options, Out, Outcome, destroy, drop_object, handle_type, invalid, list, object, options, out, run,
};
use crate::device::device;
use crate::handle::Kind;
use crate::handles::cudamem_buffer;
use crate::handles::cudamem_context;
use crate::handles::cudamem_physical;
use crate::handles::cudamem_resource;
use crate::handles::cudamem_stream;
use crate::made::{OfSort, new_resource, of_sort};
use crate::memory::Memory;
use crate::status::cudamem_status;
use core::mem::size_of;
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{
    Granularity, Growth, PhysicalLocation, PhysicalMemory, PhysicalOptions, VirtualMemory, VirtualOptions,
};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

handle_type!(cudamem_physical: PhysicalMemory, Kind::Physical);

/// The memory of a device: the context's, where memory is made; else the one whose ordinal is the number.
pub const CUDAMEM_LOCATION_DEVICE: i32 = 0;
/// The memory of the host; the number is 0.
pub const CUDAMEM_LOCATION_HOST: i32 = 1;
/// The memory of the host's NUMA node of that number.
pub const CUDAMEM_LOCATION_NODE: i32 = 2;
/// The memory of the NUMA node that the calling thread runs on; the number is 0.
pub const CUDAMEM_LOCATION_CURRENT_NODE: i32 = 3;

/// A flag of physical and virtual memory: other processes may import it. The host's memory needs CUDAMEM_LOCATION_NODE.
pub const CUDAMEM_PHYSICAL_SHAREABLE: u32 = 1;
/// A flag of physical and virtual memory: other devices of the machine may be let reach it over PCIe (GPUDirect RDMA).
pub const CUDAMEM_PHYSICAL_GPU_DIRECT_RDMA: u32 = 2;
/// A flag of physical and virtual memory: sizes are rounded up to the smallest unit that the driver takes, and not to what it
/// recommends for speed.
pub const CUDAMEM_PHYSICAL_MINIMUM_GRANULARITY: u32 = 4;

const FLAGS: u32 = CUDAMEM_PHYSICAL_SHAREABLE | CUDAMEM_PHYSICAL_GPU_DIRECT_RDMA | CUDAMEM_PHYSICAL_MINIMUM_GRANULARITY;

/// How physical memory is made. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_physical_options {
    /// sizeof(cudamem_physical_options).
    pub size: usize,
    /// CUDAMEM_LOCATION_DEVICE, which is the context's, CUDAMEM_LOCATION_HOST or CUDAMEM_LOCATION_NODE.
    pub location: i32,
    /// The NUMA node, with CUDAMEM_LOCATION_NODE; else 0.
    pub node: i32,
    /// CUDAMEM_PHYSICAL_... combined by |.
    pub flags: u32,
    /// 0.
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
            let rule =
                "it is CUDAMEM_LOCATION_DEVICE, _HOST or _NODE, and the node is 0 for all but CUDAMEM_LOCATION_NODE";
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

/// Makes physical memory of at least size bytes, which has no address until it is mapped. options may be NULL.
///
/// Errors: CUDAMEM_ERROR_UNSUPPORTED if the device or the driver has none; CUDAMEM_ERROR_OUT_OF_MEMORY;
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
        // SAFETY: the header's rule for options.
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

/// Gives a file descriptor, the program's to close, by which another process imports the memory.
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

/// Opens physical memory of size bytes by a file descriptor that another process has exported. The library closes the file, also
/// after a failure, unless it is no file.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_physical_import(
    context: cudamem_context,
    file: i32,
    size: usize,
    physical: Out<'_, cudamem_physical>,
) -> cudamem_status {
    run("cudamem_physical_import", || {
        if file < 0 {
            return Err(invalid("file", file.to_string(), "it is an open file descriptor"));
        }
        // First of all: whatever fails, the file is closed.
        // SAFETY: the program gives the file away; what is none, the system refuses to close.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let physical = out("physical", physical)?;
        let context = object("context", context)?;
        physical.write(call::new_handle(PhysicalMemory::import(&context, file, size)?)?);
        Ok(())
    })
}

/// Gives the size in bytes, in whole units.
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
    /// What allocations begin at a multiple of, in bytes: a power of two. The granularity by default.
    pub alignment: usize,
    /// Where allocations should begin, if the addresses are free: a multiple of the granularity. Anywhere by default.
    pub address_hint: u64,
    /// Ordinals of devices, besides the context's own, that may use the memory, which lies on the device.
    pub peers: *const i32,
    /// How many.
    pub peer_count: usize,
    /// CUDAMEM_LOCATION_DEVICE, which is the context's, CUDAMEM_LOCATION_HOST or CUDAMEM_LOCATION_NODE.
    pub location: i32,
    /// The NUMA node, with CUDAMEM_LOCATION_NODE; else 0.
    pub node: i32,
    /// CUDAMEM_PHYSICAL_... combined by |.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: sizes, an address, of which NULL is one, and four numbers of 4 bytes.
unsafe impl Options for cudamem_virtual_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Makes a resource of virtual memory: what is allocated of it is whole units, some 2 MiB. options may be NULL.
///
/// Errors: CUDAMEM_ERROR_UNSUPPORTED if the device or the driver cannot do what the options say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_resource_create_virtual(
    context: cudamem_context,
    options: *const cudamem_virtual_options,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_create_virtual", || {
        let resource = out("resource", resource)?;
        // SAFETY: the header's rule for options.
        let chosen = unsafe { self::options("options", options) }?;
        call::check_flags("options.flags", chosen.flags, FLAGS)?;
        call::check_flags("options.reserved", chosen.reserved, 0)?;
        // SAFETY: the header's rule for pointers.
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

fn virtual_memory(resource: cudamem_resource) -> Outcome<OfSort<VirtualMemory<Any>>> {
    of_sort("resource", resource)
}

/// Gives the unit of virtual memory in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_get_granularity(
    resource: cudamem_resource,
    granularity: Out<'_, usize>,
) -> cudamem_status {
    run("cudamem_resource_get_granularity", || {
        let granularity = out("granularity", granularity)?;
        granularity.write(virtual_memory(resource)?.granularity());
        Ok(())
    })
}

/// Maps count pieces of physical memory side by side, as one buffer, where they may have other addresses already. Who uses the same
/// bytes at several addresses keeps the order.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if a piece lies elsewhere than the resource's memory, or there is none.
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
        // SAFETY: the header's rule for pointers.
        let physical = unsafe { list("physical", physical, count) }?;
        let resource = virtual_memory(resource)?;
        let pieces = physical.iter().map(|piece| Ok(object("physical", *piece)?.clone()));
        let pieces = pieces.collect::<Outcome<Vec<_>>>()?;
        // SAFETY: the program keeps the order of what uses the same bytes.
        let mapped = unsafe { resource.map(&pieces, &*object("stream", stream)?) }?;
        buffer.write(call::new_handle(Memory::new(mapped))?);
        Ok(())
    })
}

/// Reserves addresses for capacity bytes of a resource that cudamem_resource_create_virtual made, as a buffer of no bytes yet, which
/// cudamem_buffer_grow makes larger. A slice of it ends its growth.
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

/// Grows a buffer to size bytes; the new ones are zeros, written in stream order. Up to its capacity its address stays; beyond, the
/// same memory is mapped at another address: moved, which may be NULL, says whether. Does nothing where it has as many bytes
/// already.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the buffer is not growable; CUDAMEM_ERROR_OUT_OF_MEMORY: it is then as it was.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_grow(buffer: cudamem_buffer, size: usize, moved: Out<'_, bool>) -> cudamem_status {
    run("cudamem_buffer_grow", || {
        let growth = object("buffer", buffer)?.with_growable(|growable| growable.grow_to(size))?;
        if let Some(moved) = moved {
            moved.write(growth == Growth::Moved);
        }
        Ok(())
    })
}

/// Shrinks a buffer to size bytes. Physical memory that holds none of them any more goes back to the system, after the work of the
/// home stream; addresses stay reserved. Does nothing where it has no more bytes.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the buffer is not growable.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_shrink(buffer: cudamem_buffer, size: usize) -> cudamem_status {
    run("cudamem_buffer_shrink", || object("buffer", buffer)?.with_growable(|growable| growable.shrink_to(size)))
}

/// Gives how many bytes the reserved addresses of a growable buffer have room for, and how much physical memory it has. Either place
/// may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_get_capacity(
    buffer: cudamem_buffer,
    capacity: Out<'_, usize>,
    physical: Out<'_, usize>,
) -> cudamem_status {
    run("cudamem_buffer_get_capacity", || {
        let sizes = |growable: &mut cuda_mem::memory::GrowableBuffer<u8, Any>| {
            Ok((growable.capacity(), growable.physical_size()))
        };
        let (reserved, backed) = object("buffer", buffer)?.with_growable(sizes)?;
        if let Some(capacity) = capacity {
            capacity.write(reserved);
        }
        if let Some(physical) = physical {
            physical.write(backed);
        }
        Ok(())
    })
}
