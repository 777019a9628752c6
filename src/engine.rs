//! Copy engines
//!
//! A copy engine copies between host memory and one device, for each size and kind of memory in the way that is fastest.
//! Any number of threads may use one engine at once.

use crate::call::{
    self, Options, Out, Outcome, bytes, bytes_mut, destroy, drop_object, handle_type, invalid, object, options, out,
    run, text,
};
use crate::engine_profile;
use crate::handles::cudamem_buffer;
use crate::handles::cudamem_context;
use crate::handles::cudamem_engine;
use crate::handles::{cudamem_resource, cudamem_stream};
use crate::status::cudamem_status;
use core::ffi::{c_char, c_int, c_void};
use core::mem::size_of;
use cuda_mem::Error;
use cuda_mem::copy::{CopyEngine, CopyMethod, CopyOptions, HostSide, StagingOptions};
use cuda_mem_dynamic::{Memory, with_buffer, with_buffer_mut};
use std::os::fd::BorrowedFd;

handle_type!(cudamem_engine: CopyEngine);

/// A flag of cudamem_engine_options: no threads help the calling thread.
pub const CUDAMEM_ENGINE_NO_THREADS: u32 = 1;

/// How a copy engine is made. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_engine_options {
    /// sizeof(cudamem_engine_options).
    pub size: usize,
    /// The profile that chooses methods, as JSON: from cudamem_engine_get_profile, or the `profile` that
    /// `cuda-mem bench copy --json` prints. NULL for the typical profile.
    pub profile: *const c_char,
    /// The largest piece that passes through page-locked staging at once, in bytes. 2 MiB by default.
    pub slot_size: usize,
    /// How many staging pieces one copy cycles through. 8 by default.
    pub slots: u32,
    /// How many copies may use staging at once. 4 by default.
    pub lanes: u32,
    /// How many helper threads the engine starts for itself, at most 64. 0 for the threads that all engines of the
    /// process share.
    pub threads: u32,
    /// CUDAMEM_ENGINE_... combined by |.
    pub flags: u32,
}

// SAFETY: sizes, addresses that may be NULL, and four numbers of 4 bytes.
unsafe impl Options for cudamem_engine_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Makes an engine for a context's device. options may be NULL.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the profile is invalid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_engine_create(
    context: cudamem_context,
    options: *const cudamem_engine_options,
    engine: Out<'_, cudamem_engine>,
) -> cudamem_status {
    run("cudamem_engine_create", || {
        let engine = out("engine", engine)?;
        // SAFETY: the header requires NULL or `size` bytes.
        let chosen = unsafe { self::options("options", options) }?;
        call::check_flags("options.flags", chosen.flags, CUDAMEM_ENGINE_NO_THREADS)?;
        let has = |flag| chosen.flags & flag != 0;
        // SAFETY: the header requires NULL or a zero-terminated string.
        let json = unsafe { text("options.profile", chosen.profile) }?;
        let context = object("context", context)?;
        let mut builder = CopyEngine::builder(&context);
        if let Some(json) = json {
            builder = builder.profile(engine_profile::parse("options.profile", json)?);
        }
        const MOST_THREADS: u32 = 64;
        builder = match chosen.threads {
            0 if has(CUDAMEM_ENGINE_NO_THREADS) => builder.helper_threads(0),
            0 => builder,
            count if count > MOST_THREADS || has(CUDAMEM_ENGINE_NO_THREADS) => {
                let rule = format!("it must be at most {MOST_THREADS}, and 0 with CUDAMEM_ENGINE_NO_THREADS");
                return Err(invalid("options.threads", count.to_string(), rule));
            }
            count => builder.helper_threads(count as usize),
        };
        let mut staging = StagingOptions::default();
        for (size, place) in [
            (chosen.slot_size, &mut staging.slot_size),
            (chosen.slots as usize, &mut staging.slots),
            (chosen.lanes as usize, &mut staging.lanes),
        ] {
            *place = if size == 0 { *place } else { size };
        }
        engine.write(call::new_handle(builder.staging(staging).build()?)?);
        Ok(())
    })
}

/// The method that the profile chooses.
pub const CUDAMEM_METHOD_CHOSEN: i32 = 0;
/// Streaming stores or loads by the CPU, with `threads` threads. Mapped memory only.
pub const CUDAMEM_METHOD_CPU: i32 = 1;
/// One copy by the driver.
pub const CUDAMEM_METHOD_DRIVER: i32 = 2;
/// Page-locked staging, which `threads` threads fill or empty.
pub const CUDAMEM_METHOD_STAGED: i32 = 3;
/// `threads` threads store to the memory while `staging_threads` threads fill staging. Writes to mapped memory only.
pub const CUDAMEM_METHOD_MIXED: i32 = 4;
/// The host's pages are locked for the duration of the copy.
pub const CUDAMEM_METHOD_REGISTERED: i32 = 5;

/// Unknown: for copies that are not small, the engine asks the driver what the host memory is.
pub const CUDAMEM_HOST_UNKNOWN: i32 = 0;
/// The host memory is on the heap, on the stack or in a file.
pub const CUDAMEM_HOST_PAGEABLE: i32 = 1;
/// The host memory is page-locked: allocated by the driver, or registered with it.
pub const CUDAMEM_HOST_PINNED: i32 = 2;

/// A flag of cudamem_copy_options, for cudamem_engine_write_buffer: return only when the bytes have arrived in the
/// device's memory. The engine then chooses the method.
pub const CUDAMEM_COPY_COMPLETE: u32 = 1;

/// What the program decides for one copy. Zeros leave the decision to the engine.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_copy_options {
    /// sizeof(cudamem_copy_options).
    pub size: usize,
    /// One of CUDAMEM_METHOD_... .
    pub method: i32,
    /// One of CUDAMEM_HOST_... .
    pub host: i32,
    /// The number of threads of the method, including the calling thread; 0 for methods without threads.
    pub threads: u32,
    /// The number of threads that fill staging, with CUDAMEM_METHOD_MIXED; otherwise 0.
    pub staging_threads: u32,
    /// 0 or CUDAMEM_COPY_COMPLETE.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
}

// SAFETY: a size and six numbers of 4 bytes.
unsafe impl Options for cudamem_copy_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

impl cudamem_copy_options {
    /// Whether the options are those of a complete write, which has no others.
    ///
    /// # Safety
    ///
    /// As [`options`].
    unsafe fn is_complete(chosen: *const Self) -> Outcome<bool> {
        // SAFETY: this function's contract.
        let chosen = unsafe { options("options", chosen) }?;
        let others = [chosen.method, chosen.host].map(i32::cast_unsigned);
        if chosen.flags != CUDAMEM_COPY_COMPLETE {
            return Ok(false);
        }
        match others
            .into_iter()
            .chain([chosen.threads, chosen.staging_threads, chosen.reserved])
            .all(|field| field == 0)
        {
            true => Ok(true),
            false => Err(invalid("options.flags", "CUDAMEM_COPY_COMPLETE", "all other options must then be 0")),
        }
    }

    /// Reads the options. None for NULL: the engine decides everything.
    ///
    /// # Safety
    ///
    /// As [`options`].
    unsafe fn read(chosen: *const Self) -> Outcome<Option<CopyOptions>> {
        if chosen.is_null() {
            return Ok(None);
        }
        // SAFETY: this function's contract.
        let chosen = unsafe { options("options", chosen) }?;
        call::check_flags("options.flags", chosen.flags, 0)?;
        call::check_flags("options.reserved", chosen.reserved, 0)?;
        let mut settings = CopyOptions::default();
        let count = |field, threads: u32| {
            let fits = u8::try_from(threads).ok().filter(|threads| *threads > 0);
            fits.ok_or_else(|| invalid(field, threads.to_string(), "it must be from 1 to 255 for this method"))
        };
        let threads = || count("options.threads", chosen.threads);
        let (method, with_threads, with_staging) = match chosen.method {
            CUDAMEM_METHOD_CHOSEN => (None, false, false),
            CUDAMEM_METHOD_CPU => (Some(CopyMethod::Cpu { threads: threads()? }), true, false),
            CUDAMEM_METHOD_DRIVER => (Some(CopyMethod::Driver), false, false),
            CUDAMEM_METHOD_STAGED => (Some(CopyMethod::Staged { threads: threads()? }), true, false),
            CUDAMEM_METHOD_MIXED => {
                let staging = count("options.staging_threads", chosen.staging_threads)?;
                (Some(CopyMethod::Mixed { storing: threads()?, staging }), true, true)
            }
            CUDAMEM_METHOD_REGISTERED => (Some(CopyMethod::Registered), false, false),
            other => return Err(invalid("options.method", other.to_string(), "it must be one of CUDAMEM_METHOD_...")),
        };
        if (!with_threads && chosen.threads != 0) || (!with_staging && chosen.staging_threads != 0) {
            let value = format!("{} and {} for staging", chosen.threads, chosen.staging_threads);
            return Err(invalid("options.threads", value, "it must be 0 for methods without such threads"));
        }
        settings.method = method;
        settings.host = match chosen.host {
            CUDAMEM_HOST_UNKNOWN => None,
            CUDAMEM_HOST_PAGEABLE => Some(HostSide::Pageable),
            CUDAMEM_HOST_PINNED => Some(HostSide::Pinned),
            other => return Err(invalid("options.host", other.to_string(), "it must be one of CUDAMEM_HOST_...")),
        };
        Ok(Some(settings))
    }
}

/// Copies size bytes from host memory to a buffer, at offset. Device work that is queued later sees them. options may
/// be NULL.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the memory cannot be copied in the way that the options request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_engine_write_buffer(
    engine: cudamem_engine,
    buffer: cudamem_buffer,
    offset: usize,
    source: *const c_void,
    size: usize,
    options: *const cudamem_copy_options,
) -> cudamem_status {
    run("cudamem_engine_write_buffer", || {
        // SAFETY: the header requires valid bytes and options.
        let (source, complete) =
            unsafe { (bytes("source", source, size)?, cudamem_copy_options::is_complete(options)?) };
        let (engine, memory) = (object("engine", engine)?, object("buffer", buffer)?);
        if complete {
            return Ok(memory.write_aside(
                |content| with_buffer_mut!(content, buffer => engine.write_complete(buffer, offset, source)),
            )?);
        }
        // SAFETY: as above.
        let options = unsafe { cudamem_copy_options::read(options) }?;
        Ok(memory.write_aside(|content| {
            with_buffer_mut!(content, buffer => match &options {
                None => engine.write(buffer, offset, source),
                Some(options) => engine.write_with(buffer, offset, source, options),
            })
        })?)
    })
}

/// Copies size bytes of a buffer, from offset on, to host memory. Returns when the copy is done. options may be NULL.
///
/// Errors: as cudamem_engine_write_buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_engine_read_buffer(
    engine: cudamem_engine,
    buffer: cudamem_buffer,
    offset: usize,
    destination: *mut c_void,
    size: usize,
    options: *const cudamem_copy_options,
) -> cudamem_status {
    run("cudamem_engine_read_buffer", || {
        // SAFETY: the header requires valid bytes and options.
        let (destination, options) =
            unsafe { (bytes_mut("destination", destination, size)?, cudamem_copy_options::read(options)?) };
        let (engine, memory) = (object("engine", engine)?, object("buffer", buffer)?);
        Ok(memory.read_aside(|content| {
            with_buffer!(content, buffer => match &options {
                None => engine.read(buffer, offset, destination),
                Some(options) => engine.read_with(buffer, offset, destination, options),
            })
        })?)
    })
}

/// Allocates size bytes and fills them with the bytes of a file from byte offset on. file is a descriptor that is open for
/// reading; its position does not matter and does not change. stream becomes the buffer's home stream, as in
/// cudamem_buffer_allocate. When the call returns, the bytes are in the memory, and the file may change or end. There is a
/// buffer only after a complete read.
///
/// The engine's threads read the file into page-locked staging, from which the device copies. What is in the page cache comes
/// from there; the rest comes from the disk past the page cache, and does not fill it.
///
/// Errors: CUDAMEM_ERROR_OUT_OF_RANGE if the file is shorter; CUDAMEM_ERROR_INVALID_ARGUMENT if it is a directory, a pipe or
/// a socket, if the resource is of another device, or if the stream captures a graph; CUDAMEM_ERROR_SYSTEM if the file
/// cannot be read.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_engine_read_file(
    engine: cudamem_engine,
    file: c_int,
    offset: u64,
    size: usize,
    resource: cudamem_resource,
    stream: cudamem_stream,
    buffer: Out<'_, cudamem_buffer>,
) -> cudamem_status {
    run("cudamem_engine_read_file", || {
        let buffer = out("buffer", buffer)?;
        if file < 0 {
            return Err(invalid("file", file.to_string(), "it must be a descriptor of an open file"));
        }
        // SAFETY: it is not -1. The header requires that it stays open during the call; the system refuses others.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        let (engine, resource) = (object("engine", engine)?, object("resource", resource)?);
        let stream = object("stream", stream)?;
        let read = || Ok::<_, Error>(Memory::new(resource.read_file(&engine, file, offset, size, &stream)?));
        buffer.write(call::new_handle_with(read)?);
        Ok(())
    })
}

/// Destroys an engine and frees its staging. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_engine_destroy(engine: cudamem_engine) -> cudamem_status {
    run("cudamem_engine_destroy", || destroy("engine", engine, drop_object))
}
