//! Mapped memory
//!
//! Device memory that the CPU addresses too, for the program, kernels and other processes at once. A CPU store reaches
//! it in about 0.1 us. Device work sees CPU writes if it is queued after they were flushed. The CPU sees device writes
//! after the device work is done and the range was invalidated. cudamem_mapped_write flushes, and cudamem_mapped_read
//! invalidates. On coherent memory a flush is a store fence. On non-coherent memory flushes and invalidates act on
//! whole atoms, so data that the CPU writes and data that the device writes at the same time must not share an atom.
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

/// Allocates size bytes, at least 1, from a resource that cudamem_resource_create_mapped made. Each allocation is a
/// driver call (0.1 to 0.3 ms on a GPU, 1 to 2 ms for 64 MiB): allocate large pieces and divide them.
///
/// Errors: CUDAMEM_ERROR_OUT_OF_MEMORY if there is no room. CUDAMEM_ERROR_INVALID_ARGUMENT for any other resource.
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
            return Err(invalid("resource", "another resource", "it must be made by cudamem_resource_create_mapped"));
        };
        mapped.write(call::new_handle(source.allocate(size)?.into_shared())?);
        Ok(())
    })
}

/// Makes a handle for a part of the memory. Both share ownership: the memory is freed when its last part is destroyed.
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

/// Writes size bytes at offset with CPU stores, and flushes them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_mapped_write(
    mapped: cudamem_mapped,
    offset: usize,
    source: *const c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_mapped_write", || {
        // SAFETY: the header requires `size` valid bytes.
        let source = unsafe { bytes("source", source, size) }?;
        Ok(object("mapped", mapped)?.copy_from_slice(offset, source)?)
    })
}

/// Invalidates, and reads size bytes at offset with CPU loads. Loads from a GPU's memory are slow: 1 us for up to 1
/// KiB, 4 to 5 us for 4 KiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_mapped_read(
    mapped: cudamem_mapped,
    offset: usize,
    destination: *mut c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_mapped_read", || {
        // SAFETY: the header requires `size` valid bytes.
        let destination = unsafe { bytes_mut("destination", destination, size) }?;
        Ok(object("mapped", mapped)?.copy_to_slice(offset, destination)?)
    })
}

/// Makes CPU writes to a range through its address visible to device work that is queued later.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_flush(mapped: cudamem_mapped, offset: usize, size: usize) -> cudamem_status {
    run("cudamem_mapped_flush", || {
        let memory = object("mapped", mapped)?;
        let range = range(offset, size, memory.len())?;
        Ok(memory.flush(range)?)
    })
}

/// Makes device writes to a range visible to the CPU, once the device work is done. On non-coherent memory, first flush
/// what the CPU wrote through its address, or it is lost.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_invalidate(mapped: cudamem_mapped, offset: usize, size: usize) -> cudamem_status {
    run("cudamem_mapped_invalidate", || {
        let memory = object("mapped", mapped)?;
        let range = range(offset, size, memory.len())?;
        Ok(memory.invalidate(range)?)
    })
}

/// Writes a 32-bit word after all earlier writes of this thread, and flushes it: for flags. offset is a multiple of 4.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_store_u32(mapped: cudamem_mapped, offset: usize, word: u32) -> cudamem_status {
    run("cudamem_mapped_store_u32", || Ok(object("mapped", mapped)?.cell::<u32>(offset)?.store(word)?))
}

/// Reads a 32-bit word before all later reads of this thread: for flags. offset is a multiple of 4.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_load_u32(mapped: cudamem_mapped, offset: usize, word: Out<'_, u32>) -> cudamem_status {
    run("cudamem_mapped_load_u32", || {
        let word = out("word", word)?;
        word.write(object("mapped", mapped)?.cell::<u32>(offset)?.load()?);
        Ok(())
    })
}

/// As cudamem_mapped_store_u32, with a 64-bit word. offset is a multiple of 8.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_store_u64(mapped: cudamem_mapped, offset: usize, word: u64) -> cudamem_status {
    run("cudamem_mapped_store_u64", || Ok(object("mapped", mapped)?.cell::<u64>(offset)?.store(word)?))
}

/// As cudamem_mapped_load_u32, with a 64-bit word. offset is a multiple of 8.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_load_u64(mapped: cudamem_mapped, offset: usize, word: Out<'_, u64>) -> cudamem_status {
    run("cudamem_mapped_load_u64", || {
        let word = out("word", word)?;
        word.write(object("mapped", mapped)?.cell::<u64>(offset)?.load()?);
        Ok(())
    })
}

/// Writes the device's side of the memory with the driver's copy, which is done when this returns. Earlier CPU writes
/// to the range are flushed first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_mapped_device_write(
    mapped: cudamem_mapped,
    offset: usize,
    source: *const c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_mapped_device_write", || {
        // SAFETY: the header requires `size` valid bytes.
        let source = unsafe { bytes("source", source, size) }?;
        Ok(object("mapped", mapped)?.device_write(offset, source)?)
    })
}

/// Reads the device's side of the memory with the driver's copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_mapped_device_read(
    mapped: cudamem_mapped,
    offset: usize,
    destination: *mut c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_mapped_device_read", || {
        // SAFETY: the header requires `size` valid bytes.
        let destination = unsafe { bytes_mut("destination", destination, size) }?;
        Ok(object("mapped", mapped)?.device_read(offset, destination)?)
    })
}

/// Gets the size in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_get_size(mapped: cudamem_mapped, size: Out<'_, usize>) -> cudamem_status {
    run("cudamem_mapped_get_size", || {
        let size = out("size", size)?;
        size.write(object("mapped", mapped)?.len());
        Ok(())
    })
}

/// Gets the atom, the unit of flush and invalidate, in bytes: 1 for coherent memory.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_get_atom(mapped: cudamem_mapped, atom: Out<'_, usize>) -> cudamem_status {
    run("cudamem_mapped_get_atom", || {
        let atom = out("atom", atom)?;
        atom.write(object("mapped", mapped)?.coherence().atom());
        Ok(())
    })
}

/// Gets the address for kernels and for the driver (a CUdeviceptr), valid while a part of the memory lives.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_get_device_pointer(mapped: cudamem_mapped, pointer: Out<'_, u64>) -> cudamem_status {
    run("cudamem_mapped_get_device_pointer", || {
        let pointer = out("pointer", pointer)?;
        pointer.write(object("mapped", mapped)?.device_pointer());
        Ok(())
    })
}

/// Gets the CPU's address, valid while a part of the memory lives. Flush after writing through it.
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

/// Destroys the handle. If no other part of the memory is left, it is freed at once: device work that uses it must have
/// ended. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_mapped_destroy(mapped: cudamem_mapped) -> cudamem_status {
    run("cudamem_mapped_destroy", || destroy("mapped", mapped, drop_object))
}
