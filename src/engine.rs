//! Copy engines
//!
//! A copy engine copies between the host and one device in the way that is fastest on this machine for each size and kind of
//! memory. The first large copy of its kind measures the machine, which takes up to 0.2 s. One engine serves any number of
//! threads at once.

use crate::call::{
    self, Options, Out, Outcome, bytes, bytes_mut, destroy, drop_object, handle_type, invalid, object, options, out,
    run, text,
};
use crate::engine_profile;
use crate::handle::Kind;
use crate::handles::cudamem_buffer;
use crate::handles::cudamem_context;
use crate::handles::cudamem_engine;
use crate::handles::cudamem_mapped;
use crate::memory::{with_engine, with_engine_mut};
use crate::status::cudamem_status;
use core::ffi::{c_char, c_void};
use core::mem::size_of;
use cuda_mem::copy::{
    CopyEngine, CopyOptions, HostSide, Measuring, NoThreads, ProfileCache, StagingOptions, ThreadPool, Way,
};
use std::sync::Arc;

handle_type!(cudamem_engine: CopyEngine, Kind::Engine);

/// A flag of cudamem_engine_options: what is measured is neither kept nor read from where it was kept.
pub const CUDAMEM_ENGINE_NO_CACHE: u32 = 1;
/// A flag of cudamem_engine_options: nothing is measured but by cudamem_engine_measure.
pub const CUDAMEM_ENGINE_MEASURE_ON_REQUEST: u32 = 2;
/// A flag of cudamem_engine_options: nobody helps the calling thread.
pub const CUDAMEM_ENGINE_NO_THREADS: u32 = 4;

/// How a copy engine is made. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_engine_options {
    /// sizeof(cudamem_engine_options).
    pub size: usize,
    /// A profile as cudamem_engine_get_profile gives it, to choose ways by. NULL for what is kept of this machine, or measured.
    pub profile: *const c_char,
    /// The folder where profiles are kept. NULL for the user's cache folder, or what CUDA_MEM_PROFILES names.
    pub cache: *const c_char,
    /// The largest piece that goes through page-locked staging at once, in bytes. 2 MiB by default.
    pub slot_size: usize,
    /// How many such pieces one copy uses in turns. 8 by default.
    pub slots: u32,
    /// How many copies may use staging at once. 4 by default.
    pub lanes: u32,
    /// How many threads of the engine's own help, at most 64. 0 for those that all engines of the process share.
    pub threads: u32,
    /// CUDAMEM_ENGINE_... combined by |.
    pub flags: u32,
}

// SAFETY: sizes, addresses, of which NULL is one, and four numbers of 4 bytes.
unsafe impl Options for cudamem_engine_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Makes an engine for a context's device. options may be NULL.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the profile is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_engine_create(
    context: cudamem_context,
    options: *const cudamem_engine_options,
    engine: Out<'_, cudamem_engine>,
) -> cudamem_status {
    run("cudamem_engine_create", || {
        let engine = out("engine", engine)?;
        // SAFETY: the header's rule for options.
        let chosen = unsafe { self::options("options", options) }?;
        let known = CUDAMEM_ENGINE_NO_CACHE | CUDAMEM_ENGINE_MEASURE_ON_REQUEST | CUDAMEM_ENGINE_NO_THREADS;
        call::check_flags("options.flags", chosen.flags, known)?;
        let has = |flag| chosen.flags & flag != 0;
        // SAFETY: the header's rule for texts.
        let (json, cache) = unsafe { (text("options.profile", chosen.profile)?, text("options.cache", chosen.cache)?) };
        let context = object("context", context)?;
        let mut builder = CopyEngine::builder(&context);
        if let Some(json) = json {
            builder = builder.profile(engine_profile::parse("options.profile", json)?);
        }
        builder = match cache {
            Some(_) if has(CUDAMEM_ENGINE_NO_CACHE) => {
                return Err(invalid("options.cache", "a folder", "CUDAMEM_ENGINE_NO_CACHE asks for none"));
            }
            Some(folder) => builder.profile_cache(ProfileCache::Directory(folder.into())),
            None if has(CUDAMEM_ENGINE_NO_CACHE) => builder.profile_cache(ProfileCache::Off),
            None => builder,
        };
        if has(CUDAMEM_ENGINE_MEASURE_ON_REQUEST) {
            builder = builder.measuring(Measuring::OnRequest);
        }
        const MOST_THREADS: u32 = 64;
        builder = match chosen.threads {
            0 if has(CUDAMEM_ENGINE_NO_THREADS) => builder.threads(Arc::new(NoThreads)),
            0 => builder,
            count if count > MOST_THREADS || has(CUDAMEM_ENGINE_NO_THREADS) => {
                let rule = format!("at most {MOST_THREADS} help, and none with CUDAMEM_ENGINE_NO_THREADS");
                return Err(invalid("options.threads", count.to_string(), rule));
            }
            count => builder.threads(Arc::new(ThreadPool::new(count as usize))),
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

/// As the profile says.
pub const CUDAMEM_WAY_CHOSEN: i32 = 0;
/// By streaming stores or loads of the CPU, of `threads` threads. Mapped memory only.
pub const CUDAMEM_WAY_CPU: i32 = 1;
/// By one copy of the driver.
pub const CUDAMEM_WAY_DRIVER: i32 = 2;
/// Through page-locked staging, which `threads` threads fill or empty.
pub const CUDAMEM_WAY_STAGED: i32 = 3;
/// `threads` threads store, and `staging_threads` fill staging. To mapped memory only.
pub const CUDAMEM_WAY_MIXED: i32 = 4;
/// The host's pages are locked for the time of the copy.
pub const CUDAMEM_WAY_REGISTERED: i32 = 5;

/// The driver is asked what the host's memory is, for copies that are not small.
pub const CUDAMEM_HOST_UNKNOWN: i32 = 0;
/// The host's memory is of the heap, the stack or a file.
pub const CUDAMEM_HOST_PAGEABLE: i32 = 1;
/// The host's memory is page-locked: allocated by the driver, or registered with it.
pub const CUDAMEM_HOST_PINNED: i32 = 2;

/// What a program decides for one copy. Zeros leave it to the engine.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_copy_options {
    /// sizeof(cudamem_copy_options).
    pub size: usize,
    /// One of CUDAMEM_WAY_... .
    pub way: i32,
    /// One of CUDAMEM_HOST_... .
    pub host: i32,
    /// The threads of the way, the calling one included; 0 for ways without.
    pub threads: u32,
    /// The threads that fill staging, with CUDAMEM_WAY_MIXED; else 0.
    pub staging_threads: u32,
}

// SAFETY: a size and four numbers of 4 bytes.
unsafe impl Options for cudamem_copy_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

impl cudamem_copy_options {
    /// None for NULL, where the engine decides everything.
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
        let mut settings = CopyOptions::default();
        let count = |field, threads: u32| {
            let fits = u8::try_from(threads).ok().filter(|threads| *threads > 0);
            fits.ok_or_else(|| invalid(field, threads.to_string(), "with this way it is 1 to 255"))
        };
        let threads = || count("options.threads", chosen.threads);
        let (way, with_threads, with_staging) = match chosen.way {
            CUDAMEM_WAY_CHOSEN => (None, false, false),
            CUDAMEM_WAY_CPU => (Some(Way::Cpu { threads: threads()? }), true, false),
            CUDAMEM_WAY_DRIVER => (Some(Way::Driver), false, false),
            CUDAMEM_WAY_STAGED => (Some(Way::Staged { threads: threads()? }), true, false),
            CUDAMEM_WAY_MIXED => {
                let staging = count("options.staging_threads", chosen.staging_threads)?;
                (Some(Way::Mixed { storing: threads()?, staging }), true, true)
            }
            CUDAMEM_WAY_REGISTERED => (Some(Way::Registered), false, false),
            other => return Err(invalid("options.way", other.to_string(), "it is one of CUDAMEM_WAY_...")),
        };
        if (!with_threads && chosen.threads != 0) || (!with_staging && chosen.staging_threads != 0) {
            let value = format!("{} and {} for staging", chosen.threads, chosen.staging_threads);
            return Err(invalid("options.threads", value, "it is 0 where the way has no such threads"));
        }
        settings.way = way;
        settings.host = match chosen.host {
            CUDAMEM_HOST_UNKNOWN => None,
            CUDAMEM_HOST_PAGEABLE => Some(HostSide::Pageable),
            CUDAMEM_HOST_PINNED => Some(HostSide::Pinned),
            other => return Err(invalid("options.host", other.to_string(), "it is one of CUDAMEM_HOST_...")),
        };
        Ok(Some(settings))
    }
}

/// Copies size bytes of the host to a buffer, from offset on. Device work given after this sees them. options may be NULL.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the memory cannot be copied as the options say.
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
        // SAFETY: the header's rules for bytes and options.
        let (source, options) = unsafe { (bytes("source", source, size)?, cudamem_copy_options::read(options)?) };
        let (engine, memory) = (object("engine", engine)?, object("buffer", buffer)?);
        with_engine_mut!(&mut *memory.write(), buffer => match &options {
            None => engine.write(buffer, offset, source),
            Some(options) => engine.write_with(buffer, offset, source, options),
        })
    })
}

/// Copies size bytes of a buffer, from offset on, to the host. Returns when that is done. options may be NULL.
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
        // SAFETY: the header's rules for bytes and options.
        let (destination, options) =
            unsafe { (bytes_mut("destination", destination, size)?, cudamem_copy_options::read(options)?) };
        let (engine, memory) = (object("engine", engine)?, object("buffer", buffer)?);
        with_engine!(&*memory.read(), buffer => match &options {
            None => engine.read(buffer, offset, destination),
            Some(options) => engine.read_with(buffer, offset, destination, options),
        })
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
    options: *const cudamem_copy_options,
) -> cudamem_status {
    run("cudamem_engine_write_mapped", || {
        // SAFETY: the header's rules for bytes and options.
        let (source, options) = unsafe { (bytes("source", source, size)?, cudamem_copy_options::read(options)?) };
        let mut memory = object("mapped", mapped)?.clone();
        let engine = object("engine", engine)?;
        Ok(match &options {
            None => engine.write(&mut memory, offset, source),
            Some(options) => engine.write_with(&mut memory, offset, source, options),
        }?)
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
    options: *const cudamem_copy_options,
) -> cudamem_status {
    run("cudamem_engine_read_mapped", || {
        // SAFETY: the header's rules for bytes and options.
        let (destination, options) =
            unsafe { (bytes_mut("destination", destination, size)?, cudamem_copy_options::read(options)?) };
        let (engine, memory) = (object("engine", engine)?, object("mapped", mapped)?);
        Ok(match &options {
            None => engine.read(&*memory, offset, destination),
            Some(options) => engine.read_with(&*memory, offset, destination, options),
        }?)
    })
}

/// Destroys an engine, and frees its staging. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_engine_destroy(engine: cudamem_engine) -> cudamem_status {
    run("cudamem_engine_destroy", || destroy("engine", engine, drop_object))
}
