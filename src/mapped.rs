//! CPU stores and loads
//!
//! The CPU reaches pinned and mapped memory without the driver: a store to mapped memory, which is device memory, takes
//! about 0.1 us, where cudamem_buffer_write takes 5. Device work sees CPU writes if it is queued after they were flushed.
//! The CPU sees device writes after the device work is done and the range was invalidated. The functions here flush and
//! invalidate by themselves, and kernels may use the memory at the same time. The first of these calls for a buffer waits
//! for the work that this library queued for it, and for work of the memory's former owner. It waits for no kernel that
//! the program queued after it had asked for the address. Later calls wait for no device work. On coherent memory
//! a flush is a store fence. On non-coherent memory flushes and invalidates act on whole atoms, so data that the CPU
//! writes and data that the device writes at the same time must not share an atom.
//!
//! Threads may use one buffer at once. Writes of several bytes are not atomic; words are. After the first of these calls,
//! the buffer counts as divided: it no longer grows.

use crate::call::{Out, Outcome, bytes, bytes_mut, object, out, run};
use crate::handles::cudamem_buffer;
use crate::status::cudamem_status;
use core::ffi::c_void;
use cuda_mem::SharedBuffer;
use cuda_mem::memory::kind::Any;

/// Calls `work` with the buffer. Other threads may use it at the same time.
fn by_cpu<R>(buffer: cudamem_buffer, work: impl FnOnce(&SharedBuffer<u8, Any>) -> cuda_mem::Result<R>) -> Outcome<R> {
    Ok(work(object("buffer", buffer)?.cpu_alias()?)?)
}

/// Writes size bytes at offset with CPU stores, and flushes them.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the CPU does not address the memory, or if it is managed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_buffer_store(
    buffer: cudamem_buffer,
    offset: usize,
    source: *const c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_buffer_store", || {
        // SAFETY: the header requires `size` valid bytes.
        let source = unsafe { bytes("source", source, size) }?;
        by_cpu(buffer, |memory| memory.store(offset, source))
    })
}

/// Invalidates, and reads size bytes at offset with CPU loads. Loads from a GPU's memory are slow: 1 us for up to 1
/// KiB, 4 to 5 us for 4 KiB.
///
/// Errors: as cudamem_buffer_store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_buffer_load(
    buffer: cudamem_buffer,
    offset: usize,
    destination: *mut c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_buffer_load", || {
        // SAFETY: the header requires `size` valid bytes.
        let destination = unsafe { bytes_mut("destination", destination, size) }?;
        by_cpu(buffer, |memory| memory.load(offset, destination))
    })
}

/// Writes a 32-bit word after all earlier writes of this thread, and flushes it: for flags. offset is a multiple of 4.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_store_u32(buffer: cudamem_buffer, offset: usize, word: u32) -> cudamem_status {
    run("cudamem_buffer_store_u32", || by_cpu(buffer, |memory| memory.cell::<u32>(offset)?.store(word)))
}

/// Reads a 32-bit word before all later reads of this thread: for flags. offset is a multiple of 4.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_load_u32(buffer: cudamem_buffer, offset: usize, word: Out<'_, u32>) -> cudamem_status {
    run("cudamem_buffer_load_u32", || {
        let word = out("word", word)?;
        word.write(by_cpu(buffer, |memory| memory.cell::<u32>(offset)?.load())?);
        Ok(())
    })
}

/// As cudamem_buffer_store_u32, with a 64-bit word. offset is a multiple of 8.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_store_u64(buffer: cudamem_buffer, offset: usize, word: u64) -> cudamem_status {
    run("cudamem_buffer_store_u64", || by_cpu(buffer, |memory| memory.cell::<u64>(offset)?.store(word)))
}

/// As cudamem_buffer_load_u32, with a 64-bit word. offset is a multiple of 8.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_load_u64(buffer: cudamem_buffer, offset: usize, word: Out<'_, u64>) -> cudamem_status {
    run("cudamem_buffer_load_u64", || {
        let word = out("word", word)?;
        word.write(by_cpu(buffer, |memory| memory.cell::<u64>(offset)?.load())?);
        Ok(())
    })
}
