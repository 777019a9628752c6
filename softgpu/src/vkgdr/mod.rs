//! The vkgdr interface over host memory.

pub(crate) mod error;
mod memory;

use crate::call::refusal;
use crate::settings;
use crate::state::Global;
use crate::state::contexts::current;
use crate::state::handle::next_sequence;
use cuda_sys::{CUdevice, CUdeviceptr, CUresult};
use error::{Before, Error, call, may_fail};
use memory::Direction;
pub(crate) use memory::MappedMemory;
use std::ffi::{c_char, c_int, c_void};
use std::fmt::Write;
use std::os::fd::IntoRawFd;
use std::ptr;
use std::sync::Arc;
use vkgdr_sys::{
    Functions, VKGDR_OPEN_CURRENT_CONTEXT_BIT, VKGDR_OPEN_FORCE_NON_COHERENT_BIT, VKGDR_OPEN_REQUIRE_COHERENT_BIT,
    vkgdr_memory_t, vkgdr_symbol_fn, vkgdr_t,
};

#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) sequence: u64,
    pub(crate) device: usize,
    coherent: bool,
    atom: usize,
}

macro_rules! vkgdr_calls {
    ($( $(#[doc = $doc:literal])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block )*) => {
        $(
            $(#[doc = $doc])*
            ///
            /// # Safety
            ///
            /// Each pointer is null, or valid for what the interface says of this function.
            #[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
            pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? $body
        )*

        /// The whole interface, with the signatures that vkgdr-sys states.
        pub(crate) static FUNCTIONS: Functions = Functions { $($name: Some($name),)* };
    };
}

vkgdr_calls! {
    /// Opens a device.
    fn vkgdr_open(device: CUdevice, flags: u32) -> vkgdr_t {
        as_handle(call(Before::Forget, || {
            may_fail("vkgdr_open")?;
            open(device, flags)
        }))
    }

    /// Opens a device. softgpu is its own CUDA driver and does not use `symbol`.
    fn vkgdr_open_with_cuda(device: CUdevice, flags: u32, symbol: vkgdr_symbol_fn, user: *mut c_void) -> vkgdr_t {
        let _ = (symbol, user);
        as_handle(call(Before::Forget, || {
            may_fail("vkgdr_open_with_cuda")?;
            open(device, flags)
        }))
    }

    /// Closes a device. Memory allocated from it stays usable.
    fn vkgdr_close(g: vkgdr_t) {
        let _ = call(Before::Keep, || {
            let gone = if g.is_null() { None } else { Some(global("device")?.vkgdrs.remove(g.addr() as u64)) };
            gone.is_none_or(|gone| gone.is_some()).then_some(()).ok_or(Error::InvalidHandle("device"))
        });
    }

    /// Allocates memory.
    fn vkgdr_memory_alloc(g: vkgdr_t, size: usize, flags: u32) -> vkgdr_memory_t {
        as_handle(call(Before::Forget, || {
            may_fail("vkgdr_memory_alloc")?;
            let global = global("device")?;
            MappedMemory::allocate(global, find_device(global, g)?, size, flags)
        }))
    }

    /// Frees memory.
    fn vkgdr_memory_free(mem: vkgdr_memory_t) {
        let _ = call(Before::Keep, || {
            if mem.is_null() {
                return Ok(());
            }
            let global = global("memory")?;
            let memory = global.mapped.remove(mem.addr() as u64).ok_or(Error::InvalidHandle("memory"))?;
            memory.release(global);
            Ok(())
        });
    }

    /// Returns the CPU's address.
    fn vkgdr_memory_get_host_ptr(mem: vkgdr_memory_t) -> *mut c_void {
        ask(mem, |memory| memory.host_address()).map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
    }

    /// Returns the device's address.
    fn vkgdr_memory_get_device_ptr(mem: vkgdr_memory_t) -> CUdeviceptr {
        ask(mem, |memory| memory.device_address()).unwrap_or(0)
    }

    /// Returns the size in bytes.
    fn vkgdr_memory_get_size(mem: vkgdr_memory_t) -> usize {
        ask(mem, |memory| memory.size).unwrap_or(0)
    }

    /// Returns whether the memory is coherent.
    fn vkgdr_memory_is_coherent(mem: vkgdr_memory_t) -> bool {
        ask(mem, |memory| memory.is_coherent()).unwrap_or(false)
    }

    /// Returns the unit of flush and invalidate in bytes.
    fn vkgdr_memory_non_coherent_atom_size(mem: vkgdr_memory_t) -> usize {
        ask(mem, |memory| memory.atom()).unwrap_or(1)
    }

    /// Makes the CPU's writes visible to the device.
    fn vkgdr_memory_flush(mem: vkgdr_memory_t, offset: usize, size: usize) {
        let _ = call(Before::Keep, || find_memory(mem)?.synchronize(Direction::Flush, offset, size));
    }

    /// Makes the device's writes visible to the CPU.
    fn vkgdr_memory_invalidate(mem: vkgdr_memory_t, offset: usize, size: usize) {
        let _ = call(Before::Keep, || find_memory(mem)?.synchronize(Direction::Invalidate, offset, size));
    }

    /// Makes the CPU's writes visible to the device, and returns a code.
    fn vkgdr_memory_flush_checked(mem: vkgdr_memory_t, offset: usize, size: usize) -> c_int {
        status(call(Before::Forget, || {
            may_fail("vkgdr_memory_flush_checked")?;
            find_memory(mem)?.synchronize(Direction::Flush, offset, size)
        }))
    }

    /// Makes the device's writes visible to the CPU, and returns a code.
    fn vkgdr_memory_invalidate_checked(mem: vkgdr_memory_t, offset: usize, size: usize) -> c_int {
        status(call(Before::Forget, || {
            may_fail("vkgdr_memory_invalidate_checked")?;
            find_memory(mem)?.synchronize(Direction::Invalidate, offset, size)
        }))
    }

    /// Returns a new file descriptor of the memory.
    fn vkgdr_memory_export_fd(mem: vkgdr_memory_t, fd: *mut c_int) -> c_int {
        status(call(Before::Forget, || {
            may_fail("vkgdr_memory_export_fd")?;
            let memory = find_memory(mem)?;
            if fd.is_null() {
                return Err(Error::InvalidValue("the pointer for the file descriptor is NULL".to_owned()));
            }
            let exported = memory.export()?.into_raw_fd();
            // SAFETY: not null, so writable by the interface's contract.
            unsafe { fd.write(exported) };
            Ok(())
        }))
    }

    /// Imports exported memory.
    fn vkgdr_memory_import_fd(g: vkgdr_t, fd: c_int, size: usize, flags: u32) -> vkgdr_memory_t {
        as_handle(call(Before::Forget, || {
            may_fail("vkgdr_memory_import_fd")?;
            let global = global("device")?;
            MappedMemory::import(global, find_device(global, g)?, fd, size, flags)
        }))
    }

    /// Returns the thread's last error.
    fn vkgdr_last_error() -> *mut c_char {
        error::last()
    }

    /// Returns the version of the interface and of this library.
    fn vkgdr_version() -> *const c_char {
        concat!("0.1.0+softgpu.", env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
    }

    /// Describes the simulated machine as JSON.
    fn vkgdr_describe() -> *mut c_char {
        call(Before::Keep, describe).map_or(ptr::null_mut(), |text| crate::ledger::c_text(&text))
    }

    /// Frees cached resources. softgpu has none.
    fn vkgdr_trim() {}
}

fn as_handle<T>(answer: Result<u64, c_int>) -> *mut T {
    answer.map_or(ptr::null_mut(), |handle| ptr::without_provenance_mut(handle as usize))
}

fn status(answer: Result<(), c_int>) -> c_int {
    answer.err().unwrap_or(0)
}

/// The driver to which a handle could belong. A forked child has none.
fn global(what: &'static str) -> Result<&'static Global, Error> {
    if refusal() == Err(CUresult::CUDA_ERROR_NOT_INITIALIZED) {
        return Err(Error::InvalidHandle(what));
    }
    Global::get().map_err(|_| Error::InvalidHandle(what))
}

fn find_device(global: &Global, handle: vkgdr_t) -> Result<Arc<Handle>, Error> {
    global.vkgdrs.get(handle.addr() as u64).ok_or(Error::InvalidHandle("device"))
}

fn find_memory(handle: vkgdr_memory_t) -> Result<Arc<MappedMemory>, Error> {
    global("memory")?.mapped.get(handle.addr() as u64).ok_or(Error::InvalidHandle("memory"))
}

fn ask<T>(handle: vkgdr_memory_t, what: impl FnOnce(&MappedMemory) -> T) -> Result<T, c_int> {
    call(Before::Keep, || Ok(what(&*find_memory(handle)?)))
}

fn open(device: CUdevice, flags: u32) -> Result<u64, Error> {
    let (of_context, divided, coherent) =
        (VKGDR_OPEN_CURRENT_CONTEXT_BIT, VKGDR_OPEN_FORCE_NON_COHERENT_BIT, VKGDR_OPEN_REQUIRE_COHERENT_BIT);
    if flags & !(of_context | divided | coherent) != 0 {
        return Err(Error::InvalidValue(format!("the flags are {flags:#x}, which has unknown bits")));
    }
    refusal().map_err(Error::cuda("the CUDA driver refuses all calls"))?;
    let global = Global::get().map_err(Error::cuda("cuInit was not called"))?;
    let device = if flags & of_context != 0 {
        current(global).map_err(Error::cuda("no context is current from which to take the device"))?.device
    } else {
        global.device(device).map_err(Error::cuda(format!("there is no CUDA device {device}")))?.0
    };
    let settings = settings::chosen().map_err(|error| Error::InvalidValue(error.to_string()))?;
    let is_coherent = settings.coherent && flags & divided == 0;
    if flags & coherent != 0 && !is_coherent {
        return Err(Error::NotCoherent("coherent memory is required, but settings or flags make it non-coherent"));
    }
    let sequence = next_sequence();
    let handle = Handle { sequence, device, coherent: is_coherent, atom: settings.atom };
    Ok(global.vkgdrs.insert(sequence, handle).0)
}

fn describe() -> Result<String, Error> {
    let settings = settings::chosen().map_err(|error| Error::InvalidValue(error.to_string()))?;
    let mut text = format!(
        "{{\"version\":\"0.1.0+softgpu.{}\",\"libraries\":[{{\"library\":\"softgpu\",\"kind\":\"simulator\",\
         \"error\":null}}],\"error\":null,\"devices\":[",
        env!("CARGO_PKG_VERSION")
    );
    for index in 0..settings.devices {
        let comma = if index > 0 { "," } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "{comma}{{\"name\":\"softgpu {index} (host memory)\",\"memory\":{},\"coherent\":{},\
             \"non_coherent_atom_size\":{}}}",
            settings.memory, settings.coherent, settings.atom
        );
    }
    text.push_str("]}");
    Ok(text)
}
