//! Copy engines
//!
//! A copy engine copies between the host and one device in the way that is fastest on this machine for each size and kind of
//! memory. The first large copy of its kind measures the machine, which takes up to 0.2 s. One engine serves any number of
//! threads at once.

use crate::call::{self, Out, bytes, bytes_mut, destroy, drop_object, handle_type, object, out, run};
use crate::handle::Kind;
use crate::handles::cudamem_buffer;
use crate::handles::cudamem_context;
use crate::handles::cudamem_engine;
use crate::handles::cudamem_mapped;
use crate::memory::{with_engine, with_engine_mut};
use crate::status::cudamem_status;
use core::ffi::c_void;
use cuda_mem::copy::CopyEngine;

handle_type!(cudamem_engine: CopyEngine, Kind::Engine);

/// Makes an engine for a context's device.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_engine_create(context: cudamem_context, engine: Out<'_, cudamem_engine>) -> cudamem_status {
    run("cudamem_engine_create", || {
        let engine = out("engine", engine)?;
        engine.write(call::new_handle(CopyEngine::new(&*object("context", context)?)?)?);
        Ok(())
    })
}

/// Copies size bytes of the host to a buffer, from offset on. Device work given after this sees them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_engine_write_buffer(
    engine: cudamem_engine,
    buffer: cudamem_buffer,
    offset: usize,
    source: *const c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_engine_write_buffer", || {
        // SAFETY: the header's rule for bytes.
        let source = unsafe { bytes("source", source, size) }?;
        let (engine, memory) = (object("engine", engine)?, object("buffer", buffer)?);
        with_engine_mut!(&mut *memory.write(), buffer => engine.write(buffer, offset, source))
    })
}

/// Copies size bytes of a buffer, from offset on, to the host. Returns when that is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_engine_read_buffer(
    engine: cudamem_engine,
    buffer: cudamem_buffer,
    offset: usize,
    destination: *mut c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_engine_read_buffer", || {
        // SAFETY: the header's rule for bytes.
        let destination = unsafe { bytes_mut("destination", destination, size) }?;
        let (engine, memory) = (object("engine", engine)?, object("buffer", buffer)?);
        with_engine!(&*memory.read(), buffer => engine.read(buffer, offset, destination))
    })
}

/// As cudamem_engine_write_buffer, to mapped memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_engine_write_mapped(
    engine: cudamem_engine,
    mapped: cudamem_mapped,
    offset: usize,
    source: *const c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_engine_write_mapped", || {
        // SAFETY: the header's rule for bytes.
        let source = unsafe { bytes("source", source, size) }?;
        let mut memory = object("mapped", mapped)?.clone();
        Ok(object("engine", engine)?.write(&mut memory, offset, source)?)
    })
}

/// As cudamem_engine_read_buffer, from mapped memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_engine_read_mapped(
    engine: cudamem_engine,
    mapped: cudamem_mapped,
    offset: usize,
    destination: *mut c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_engine_read_mapped", || {
        // SAFETY: the header's rule for bytes.
        let destination = unsafe { bytes_mut("destination", destination, size) }?;
        let memory = object("mapped", mapped)?;
        Ok(object("engine", engine)?.read(&*memory, offset, destination)?)
    })
}

/// Destroys an engine, and frees its staging. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_engine_destroy(engine: cudamem_engine) -> cudamem_status {
    run("cudamem_engine_destroy", || destroy("engine", engine, drop_object))
}
