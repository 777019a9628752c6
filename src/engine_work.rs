//! Copies of engines in stream order, of many pieces, and complete
//!
//! A copy in stream order runs after all work queued on the stream so far, and before its later work. It passes the
//! program's memory through the engine's page-locked staging, so that writes do not wait for the stream.

use crate::call::{
    self, Options, Out, Outcome, bytes, bytes_mut, destroy, drop_object, handle_type, invalid, list, object, out, run,
};
use crate::handles::cudamem_buffer;
use crate::handles::cudamem_engine;
use crate::handles::cudamem_pending_read;
use crate::handles::cudamem_stream;
use crate::status::cudamem_status;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering};
use cuda_mem::buffer::{BatchOptions, BatchWay, Piece};
use cuda_mem::copy::PendingRead;
use cuda_mem_dynamic::{Mutex, RwLock, with_buffer_mut};

/// The object behind a pending read's handle.
#[derive(Debug)]
pub struct Pending {
    /// None once a wait has begun.
    read: Mutex<Option<PendingRead<'static>>>,
    /// A thread waits.
    is_awaited: AtomicBool,
    /// Held during the wait, so that a concurrent wait also returns only when the bytes have arrived.
    turn: RwLock<()>,
}

handle_type!(cudamem_pending_read: Pending);

impl Pending {
    fn new(read: PendingRead<'static>) -> Self {
        Self { read: Mutex::new(Some(read)), is_awaited: AtomicBool::new(false), turn: RwLock::default() }
    }

    pub(crate) fn is_done(&self) -> cuda_mem::Result<bool> {
        match &*self.read.lock() {
            Some(read) => read.is_done(),
            // While another thread waits, the read is not done.
            None => Ok(!self.is_awaited.load(Ordering::Acquire)),
        }
    }

    fn wait(&self) -> cuda_mem::Result<()> {
        let _turn = self.turn.write();
        let read = {
            let mut read = self.read.lock();
            self.is_awaited.store(read.is_some(), Ordering::Release);
            read.take()
        };
        let waited = read.map_or(Ok(()), PendingRead::wait);
        self.is_awaited.store(false, Ordering::Release);
        waited
    }
}

/// Copies size bytes from host memory to a buffer, at offset, in order of a stream. Returns when the program may reuse
/// the source.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the stream captures a graph, or belongs to another device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_engine_write_buffer_on(
    engine: cudamem_engine,
    stream: cudamem_stream,
    buffer: cudamem_buffer,
    offset: usize,
    source: *const c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_engine_write_buffer_on", || {
        // SAFETY: the header requires `size` valid bytes.
        let source = unsafe { bytes("source", source, size) }?;
        let (engine, stream, memory) =
            (object("engine", engine)?, object("stream", stream)?, object("buffer", buffer)?);
        Ok(memory.write_aside(
            |content| with_buffer_mut!(content, buffer => engine.write_on(&stream, buffer, offset, source)),
        )?)
    })
}

/// Begins to copy size bytes of a buffer, from offset on, to host memory, in order of a stream.
/// cudamem_pending_read_wait stores the bytes at destination. Until that wait, or until the pending read is destroyed,
/// destination must stay valid and nothing else may use it.
///
/// Errors: as cudamem_engine_write_buffer_on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_engine_read_buffer_on(
    engine: cudamem_engine,
    stream: cudamem_stream,
    buffer: cudamem_buffer,
    offset: usize,
    destination: *mut c_void,
    size: usize,
    pending: Out<'_, cudamem_pending_read>,
) -> cudamem_status {
    run("cudamem_engine_read_buffer_on", || {
        let pending = out("pending", pending)?;
        // SAFETY: the header requires `size` valid bytes, and to keep them for the pending read.
        let destination: &'static mut [u8] = unsafe { bytes_mut("destination", destination, size) }?;
        let (engine, stream, memory) =
            (object("engine", engine)?, object("stream", stream)?, object("buffer", buffer)?);
        let read = memory.write_aside(
            |content| with_buffer_mut!(content, buffer => engine.read_on(&stream, buffer, offset, destination)),
        )?;
        pending.write(call::new_handle(Pending::new(read))?);
        Ok(())
    })
}

/// Waits for a pending read. Afterwards its destination holds the bytes and may be used. A second wait does nothing.
///
/// Errors: CUDAMEM_ERROR_DRIVER if the copy, or work before it, failed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_pending_read_wait(pending: cudamem_pending_read) -> cudamem_status {
    run("cudamem_pending_read_wait", || Ok(object("pending", pending)?.wait()?))
}

/// Destroys a pending read. Without a wait before, the destination stays unchanged. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_pending_read_destroy(pending: cudamem_pending_read) -> cudamem_status {
    run("cudamem_pending_read_destroy", || destroy("pending", pending, drop_object))
}

/// One write of a scatter.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_scatter {
    /// The destination's offset in the memory, in bytes.
    pub offset: usize,
    /// The source in host memory.
    pub source: *const c_void,
    /// The size in bytes.
    pub size: usize,
}

/// Converts the writes for the engine.
///
/// # Safety
///
/// `writes` is NULL or points to `count` of them, whose sources are readable during the call.
unsafe fn scattered<'call>(writes: *const cudamem_scatter, count: usize) -> Outcome<Vec<(usize, &'call [u8])>> {
    // SAFETY: this function's contract.
    let writes = unsafe { list("writes", writes, count) }?;
    // SAFETY: as above.
    let write = |write: &cudamem_scatter| Ok((write.offset, unsafe { bytes("writes", write.source, write.size) }?));
    writes.iter().map(write).collect()
}

/// Writes count pieces of host memory to a buffer, in their order: where two overlap, the later one wins. The engine
/// gathers them and sends them with few driver calls. Device work that is queued later sees them.
///
/// Errors: CUDAMEM_ERROR_OUT_OF_RANGE if a write does not fit. The writes before it are done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_engine_scatter_to_buffer(
    engine: cudamem_engine,
    buffer: cudamem_buffer,
    writes: *const cudamem_scatter,
    count: usize,
) -> cudamem_status {
    run("cudamem_engine_scatter_to_buffer", || {
        // SAFETY: the header requires `count` valid entries.
        let writes = unsafe { scattered(writes, count) }?;
        let (engine, memory) = (object("engine", engine)?, object("buffer", buffer)?);
        Ok(memory.write_aside(|content| with_buffer_mut!(content, buffer => engine.write_scattered(buffer, writes)))?)
    })
}

/// One piece of a copy between two buffers, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_piece {
    /// The offset in the destination.
    pub offset: usize,
    /// The offset in the source.
    pub source_offset: usize,
    /// The size in bytes.
    pub size: usize,
}

/// What was measured as the fastest: a kernel of the library copies many small pieces, the driver all others.
pub const CUDAMEM_WAY_FASTEST: i32 = 0;
/// The driver alone, mostly by the device's copy engines.
pub const CUDAMEM_WAY_COPY_ENGINES: i32 = 1;
/// The kernel copies all pieces that it reaches, also a single one. It is the way for small work that must not wait behind
/// large copies of other streams: 64 KiB beside copies of 256 MiB take 10 ms by a copy engine, and 25 us by the kernel
/// (H200). The driver copies what the kernel does not reach: managed and pageable memory, memory of other devices, and
/// everything while the kernel cannot be loaded (cudamem_context_load_kernels).
pub const CUDAMEM_WAY_KERNEL: i32 = 2;

/// How pieces are copied. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_pieces_options {
    /// sizeof(cudamem_pieces_options).
    pub size: usize,
    /// One of CUDAMEM_WAY_... .
    pub way: i32,
    /// Must be 0.
    pub reserved: u32,
}

// SAFETY: a size and two numbers of 4 bytes.
unsafe impl Options for cudamem_pieces_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

impl cudamem_pieces_options {
    fn settings(self) -> Outcome<BatchOptions> {
        let mut settings = BatchOptions::default();
        settings.way = match self.way {
            CUDAMEM_WAY_FASTEST => BatchWay::Fastest,
            CUDAMEM_WAY_COPY_ENGINES => BatchWay::CopyEngines,
            CUDAMEM_WAY_KERNEL => BatchWay::Kernel,
            other => return Err(invalid("options.way", other.to_string(), "it must be one of CUDAMEM_WAY_...")),
        };
        call::check_flags("options.reserved", self.reserved, 0)?;
        Ok(settings)
    }
}

/// Copies count pieces of source to buffer, in order of stream. A few launches of a kernel copy them if they are many and
/// small, such as the blocks of a cache; otherwise the driver does, by one call if it has such a call (CUDA 12.8). options
/// may be NULL. The pieces are unordered among each other, so they must not overlap in buffer.
///
/// The first call with many pieces loads the kernel, and waits for all work of the context. If kernels of the program wait for
/// the CPU, call cudamem_context_load_kernels at its start.
///
/// Errors: CUDAMEM_ERROR_OUT_OF_RANGE if a piece does not fit. CUDAMEM_ERROR_INVALID_ARGUMENT if two pieces overlap, or
/// if both handles are the same. Nothing is copied after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_buffer_copy_pieces(
    buffer: cudamem_buffer,
    source: cudamem_buffer,
    pieces: *const cudamem_piece,
    count: usize,
    options: *const cudamem_pieces_options,
    stream: cudamem_stream,
) -> cudamem_status {
    run("cudamem_buffer_copy_pieces", || {
        // SAFETY: the header requires `count` valid entries.
        let pieces = unsafe { list("pieces", pieces, count) }?;
        // SAFETY: the header requires NULL or valid options.
        let settings = unsafe { call::options("options", options) }?.settings()?;
        if buffer == source {
            return Err(invalid("source", "also the destination", "it must be another buffer"));
        }
        let (memory, source, stream) =
            (object("buffer", buffer)?, object("source", source)?, object("stream", stream)?);
        let piece = |piece: &cudamem_piece| Piece { to: piece.offset, from: piece.source_offset, length: piece.size };
        let pieces: Vec<Piece> = pieces.iter().map(piece).collect();
        Ok(memory.copy_pieces(&source, &pieces, settings, &stream)?)
    })
}
