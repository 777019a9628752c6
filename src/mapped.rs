//! Mapped memory
//!
//! Device memory that the CPU addresses too, for the program, kernels and other processes at once. A CPU store to it reaches
//! the device in about 0.1 us. What is written is visible to device work given after it was flushed, and what the device wrote
//! to the CPU after that work is done and the range was invalidated; cudamem_mapped_write and _read do both. On coherent memory
//! a flush is a store fence. On non-coherent memory it moves whole atoms: what the CPU and what the device writes at one time
//! must not share one.
//!
//! Threads may use one memory at once. Writes of several bytes are not atomic; words are.

use crate::call::{self, Out, bytes, bytes_mut, destroy, drop_object, handle_type, invalid, object, out, range, run};
use crate::handle::Kind;
use crate::handles::cudamem_mapped;
use crate::handles::cudamem_resource;
use crate::resource::Resource;
use crate::status::cudamem_status;
use core::ffi::c_void;
use cuda_mem::SharedMemory;

handle_type!(cudamem_mapped: SharedMemory, Kind::Mapped);

/// Allocates size bytes, at least 1, of a resource that cudamem_resource_create_mapped made. A call of the driver each time (0.1
/// to 0.3 ms on a GPU, 1 to 2 ms for 64 MiB): allocate large pieces, and divide them.
///
/// Errors: CUDAMEM_ERROR_OUT_OF_MEMORY if there is no room; CUDAMEM_ERROR_INVALID_ARGUMENT if the resource is another's.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_allocate(
    resource: cudamem_resource,
    size: usize,
    mapped: Out<'_, cudamem_mapped>,
) -> cudamem_status {
    run("cudamem_mapped_allocate", || {
        let mapped = out("mapped", mapped)?;
        let resource = object("resource", resource)?;
        let Resource::Mapped { mapped: source, .. } = &*resource else {
            return Err(invalid("resource", "another resource", "it has to be made by cudamem_resource_create_mapped"));
        };
        mapped.write(call::new_handle(source.allocate(size)?.into_shared())?);
        Ok(())
    })
}

/// Makes a handle of a part, which shares the ownership: the memory is freed when the last part of it is destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_slice(
    mapped: cudamem_mapped,
    offset: usize,
    size: usize,
    slice: Out<'_, cudamem_mapped>,
) -> cudamem_status {
    run("cudamem_mapped_slice", || {
        let slice = out("slice", slice)?;
        let memory = object("mapped", mapped)?;
        let range = range(offset, size, memory.len())?;
        slice.write(call::new_handle(memory.slice(range)?)?);
        Ok(())
    })
}

/// Writes size bytes at offset by CPU stores, and flushes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_mapped_write(
    mapped: cudamem_mapped,
    offset: usize,
    source: *const c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_mapped_write", || {
        // SAFETY: the header's rule for bytes.
        let source = unsafe { bytes("source", source, size) }?;
        Ok(object("mapped", mapped)?.copy_from_slice(offset, source)?)
    })
}

/// Invalidates, and reads size bytes at offset by CPU loads. Loads from a GPU's memory are slow: 1 us for up
/// to 1 KiB, 4 to 5 us for 4 KiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_mapped_read(
    mapped: cudamem_mapped,
    offset: usize,
    destination: *mut c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_mapped_read", || {
        // SAFETY: the header's rule for bytes.
        let destination = unsafe { bytes_mut("destination", destination, size) }?;
        Ok(object("mapped", mapped)?.copy_to_slice(offset, destination)?)
    })
}

/// Makes what the CPU wrote to a range through its address visible to device work given after this.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_flush(mapped: cudamem_mapped, offset: usize, size: usize) -> cudamem_status {
    run("cudamem_mapped_flush", || {
        let memory = object("mapped", mapped)?;
        let range = range(offset, size, memory.len())?;
        Ok(memory.flush(range)?)
    })
}

/// Makes what the device wrote to a range visible to the CPU, when that work is done. On non-coherent memory, flush what the CPU
/// wrote through its address before, or it is lost.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_invalidate(mapped: cudamem_mapped, offset: usize, size: usize) -> cudamem_status {
    run("cudamem_mapped_invalidate", || {
        let memory = object("mapped", mapped)?;
        let range = range(offset, size, memory.len())?;
        Ok(memory.invalidate(range)?)
    })
}

/// Writes one word of 32 bits after all earlier writes of this thread, and flushes: for flags. offset is a multiple of 4.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_store_u32(mapped: cudamem_mapped, offset: usize, word: u32) -> cudamem_status {
    run("cudamem_mapped_store_u32", || Ok(object("mapped", mapped)?.cell::<u32>(offset)?.store(word)?))
}

/// Reads one word of 32 bits before all later reads of this thread: for flags. offset is a multiple of 4.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_load_u32(mapped: cudamem_mapped, offset: usize, word: Out<'_, u32>) -> cudamem_status {
    run("cudamem_mapped_load_u32", || {
        let word = out("word", word)?;
        word.write(object("mapped", mapped)?.cell::<u32>(offset)?.load()?);
        Ok(())
    })
}

/// As cudamem_mapped_store_u32, of 64 bits. offset is a multiple of 8.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_store_u64(mapped: cudamem_mapped, offset: usize, word: u64) -> cudamem_status {
    run("cudamem_mapped_store_u64", || Ok(object("mapped", mapped)?.cell::<u64>(offset)?.store(word)?))
}

/// As cudamem_mapped_load_u32, of 64 bits. offset is a multiple of 8.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_load_u64(mapped: cudamem_mapped, offset: usize, word: Out<'_, u64>) -> cudamem_status {
    run("cudamem_mapped_load_u64", || {
        let word = out("word", word)?;
        word.write(object("mapped", mapped)?.cell::<u64>(offset)?.load()?);
        Ok(())
    })
}

/// Writes what the device sees, by the driver's copy, which is done when this returns. What the CPU wrote there is flushed
/// before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_mapped_device_write(
    mapped: cudamem_mapped,
    offset: usize,
    source: *const c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_mapped_device_write", || {
        // SAFETY: the header's rule for bytes.
        let source = unsafe { bytes("source", source, size) }?;
        Ok(object("mapped", mapped)?.device_write(offset, source)?)
    })
}

/// Reads what the device sees, by the driver's copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_mapped_device_read(
    mapped: cudamem_mapped,
    offset: usize,
    destination: *mut c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_mapped_device_read", || {
        // SAFETY: the header's rule for bytes.
        let destination = unsafe { bytes_mut("destination", destination, size) }?;
        Ok(object("mapped", mapped)?.device_read(offset, destination)?)
    })
}

/// Gives the size in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_get_size(mapped: cudamem_mapped, size: Out<'_, usize>) -> cudamem_status {
    run("cudamem_mapped_get_size", || {
        let size = out("size", size)?;
        size.write(object("mapped", mapped)?.len());
        Ok(())
    })
}

/// Gives the unit of flush and invalidate in bytes: 1 for coherent memory.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_get_atom(mapped: cudamem_mapped, atom: Out<'_, usize>) -> cudamem_status {
    run("cudamem_mapped_get_atom", || {
        let atom = out("atom", atom)?;
        atom.write(object("mapped", mapped)?.coherence().atom());
        Ok(())
    })
}

/// Gives the address for kernels and for the driver (a CUdeviceptr), valid while a part of the memory lives.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_get_device_pointer(mapped: cudamem_mapped, pointer: Out<'_, u64>) -> cudamem_status {
    run("cudamem_mapped_get_device_pointer", || {
        let pointer = out("pointer", pointer)?;
        pointer.write(object("mapped", mapped)?.device_pointer());
        Ok(())
    })
}

/// Gives the address for the CPU, valid while a part of the memory lives. Flush after writing through it.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_get_host_pointer(
    mapped: cudamem_mapped,
    pointer: Out<'_, *mut c_void>,
) -> cudamem_status {
    run("cudamem_mapped_get_host_pointer", || {
        let pointer = out("pointer", pointer)?;
        pointer.write(object("mapped", mapped)?.host_pointer().cast());
        Ok(())
    })
}

/// Destroys the handle. The memory is freed at once if no other part of it is left: device work that uses it must have ended.
/// The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_destroy(mapped: cudamem_mapped) -> cudamem_status {
    run("cudamem_mapped_destroy", || destroy("mapped", mapped, drop_object))
}
