//! The calls of vkgdr for `cuda_mem.vkgdr`: upstream's functions and texts, with checks where upstream has none.

use crate::error::{Failure, Outcome, raise};
use core::ffi::CStr;
use cuda_mem::vkgdr_sys::{vkgdr_memory_t, vkgdr_t};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// An exception of vkgdr: the library's text.
fn failure(driver: &cuda_mem::Driver) -> Failure {
    let text = driver.vkgdr().ok().and_then(|vkgdr| {
        // SAFETY: the function returns NULL, or a text that is ours.
        let text = unsafe { vkgdr.vkgdr_last_error() }.ok().filter(|text| !text.is_null())?;
        // SAFETY: as above.
        let copy = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        // SAFETY: the text was allocated by malloc, and nobody else has it.
        unsafe { libc::free(text.cast()) };
        Some(copy)
    });
    raise("VkgdrError", text.unwrap_or_else(|| "unknown error".to_owned()), None)
}

/// The library, unless this process was forked, which the library does not survive.
fn library(driver: &cuda_mem::Driver) -> cuda_mem::Result<&cuda_mem::vkgdr_sys::Vkgdr> {
    cuda_mem::check_not_forked("vkgdr")?;
    driver.vkgdr()
}

/// An open device.
struct Opened {
    driver: cuda_mem::Driver,
    raw: vkgdr_t,
}

// SAFETY: the library's functions may be called with the handle on all threads.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl Drop for Opened {
    fn drop(&mut self) {
        // In a forked child, the device is the parent's.
        if let Ok(vkgdr) = library(&self.driver) {
            // SAFETY: each memory keeps its device, so none is left.
            let _ = unsafe { vkgdr.vkgdr_close(self.raw) };
        }
    }
}

/// The handle behind cuda_mem.vkgdr.Vkgdr.
#[pyclass(frozen, module = "cuda_mem._native")]
pub struct Vkgdr {
    opened: Arc<Opened>,
}

#[pymethods]
impl Vkgdr {
    #[new]
    #[pyo3(signature = (device, flags = 0))]
    fn new(py: Python<'_>, device: i32, flags: u32) -> Outcome<Self> {
        let driver = py.detach(cuda_mem::Driver::load)?;
        let raw = py.detach(|| {
            // SAFETY: the function checks its arguments.
            library(&driver).and_then(|vkgdr| Ok(Address(unsafe { vkgdr.vkgdr_open(device, flags) }?)))
        })?;
        if raw.0.is_null() {
            return Err(failure(&driver));
        }
        Ok(Self { opened: Arc::new(Opened { driver, raw: raw.0 }) })
    }
}

/// A handle that crosses the release of the GIL.
struct Address<T>(*mut T);
// SAFETY: the library's handles may be used on all threads.
unsafe impl<T> Send for Address<T> {}

/// The memory, and how many views of Python it has.
struct Mapped {
    raw: vkgdr_memory_t,
    opened: Arc<Opened>,
}

// SAFETY: as for `Opened`.
unsafe impl Send for Mapped {}

/// The memory behind cuda_mem.vkgdr.RawMemory, which documents the methods.
#[pyclass(frozen, module = "cuda_mem._native")]
pub struct RawMemory {
    /// A thread may wait for the lock under the GIL, because nobody releases the GIL while holding the lock.
    memory: Mutex<(Option<Mapped>, usize)>,
}

impl RawMemory {
    fn with<R>(&self, work: impl FnOnce(&Mapped, &cuda_mem::vkgdr_sys::Vkgdr) -> Outcome<R>) -> Outcome<R> {
        let state = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        match &state.0 {
            Some(mapped) => work(mapped, library(&mapped.opened.driver)?),
            None => Err(raise("VkgdrError", "the memory has been freed", None)),
        }
    }

    fn check(&self, call: &str, offset: usize, size: usize) -> Outcome {
        let (length, atom) = (self.__len__()?, self.non_coherent_atom_size()?);
        let end = offset.checked_add(size).filter(|end| *end <= length).ok_or_else(|| {
            let text = format!("{call}: bytes {offset} to {offset}+{size} lie outside of memory of {length} bytes");
            raise("VkgdrError", text, None)
        })?;
        if !offset.is_multiple_of(atom) || !size.is_multiple_of(atom) && end != length {
            let text = format!(
                "{call}: offset {offset} and size {size} must be multiples of non_coherent_atom_size, {atom}, unless the \
                 range reaches the end of the memory"
            );
            return Err(raise("VkgdrError", text, None));
        }
        Ok(())
    }
}

#[pymethods]
impl RawMemory {
    #[new]
    #[pyo3(signature = (owner, size, flags = 0))]
    fn new(py: Python<'_>, owner: &Bound<'_, Vkgdr>, size: usize, flags: u32) -> Outcome<Self> {
        if flags != 0 {
            return Err(raise("VkgdrError", format!("flags is {flags}, but it must be 0"), None));
        }
        let opened = owner.get().opened.clone();
        let raw = py.detach(|| {
            // SAFETY: the handle is open.
            library(&opened.driver)
                .and_then(|vkgdr| Ok(Address(unsafe { vkgdr.vkgdr_memory_alloc(opened.raw, size, 0) }?)))
        })?;
        match raw.0.is_null() {
            true => Err(failure(&opened.driver)),
            false => Ok(Self { memory: Mutex::new((Some(Mapped { raw: raw.0, opened }), 0)) }),
        }
    }

    fn free(&self) -> Outcome {
        let mut state = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if state.1 != 0 {
            let text = format!("{} memoryviews or arrays of the memory live: delete them first", state.1);
            return Err(PyBufferError::new_err(text).into());
        }
        if let Some(mapped) = state.0.take() {
            // SAFETY: the memory is live, and nobody else reaches it.
            unsafe { library(&mapped.opened.driver)?.vkgdr_memory_free(mapped.raw) }?;
        }
        Ok(())
    }

    #[getter]
    fn device_ptr(&self) -> Outcome<u64> {
        self.with(|mapped, vkgdr| {
            // SAFETY: the memory is live.
            Ok(unsafe { vkgdr.vkgdr_memory_get_device_ptr(mapped.raw) }?)
        })
    }

    fn __len__(&self) -> Outcome<usize> {
        self.with(|mapped, vkgdr| {
            // SAFETY: the memory is live.
            Ok(unsafe { vkgdr.vkgdr_memory_get_size(mapped.raw) }?)
        })
    }

    #[getter]
    fn is_coherent(&self) -> Outcome<bool> {
        self.with(|mapped, vkgdr| {
            // SAFETY: the memory is live.
            Ok(unsafe { vkgdr.vkgdr_memory_is_coherent(mapped.raw) }?)
        })
    }

    #[getter]
    fn non_coherent_atom_size(&self) -> Outcome<usize> {
        self.with(|mapped, vkgdr| {
            // SAFETY: the memory is live.
            Ok(unsafe { vkgdr.vkgdr_memory_non_coherent_atom_size(mapped.raw) }?)
        })
    }

    fn flush(&self, offset: usize, size: usize) -> Outcome {
        self.check("flush", offset, size)?;
        self.with(|mapped, vkgdr| {
            // SAFETY: the memory is live.
            Ok(unsafe { vkgdr.vkgdr_memory_flush(mapped.raw, offset, size) }?)
        })
    }

    fn invalidate(&self, offset: usize, size: usize) -> Outcome {
        self.check("invalidate", offset, size)?;
        self.with(|mapped, vkgdr| {
            // SAFETY: as in `flush`.
            Ok(unsafe { vkgdr.vkgdr_memory_invalidate(mapped.raw, offset, size) }?)
        })
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: core::ffi::c_int) -> PyResult<()> {
        let this = slf.get();
        let size = this.__len__()?;
        let mut state = this.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mapped) = &state.0 else {
            return Err(raise("VkgdrError", "the memory has been freed", None).into());
        };
        let vkgdr = library(&mapped.opened.driver).map_err(Failure::from)?;
        // SAFETY: the memory is live.
        let pointer = unsafe { vkgdr.vkgdr_memory_get_host_ptr(mapped.raw) }
            .map_err(|error| Failure::from(cuda_mem::Error::from(error)))?;
        // SAFETY: Python passes a view to fill; the memory stays while the count is not 0.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), pointer, size as ffi::Py_ssize_t, 0, flags) } {
            0 => {
                state.1 += 1;
                Ok(())
            }
            _ => Err(PyErr::fetch(slf.py())),
        }
    }

    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        let _ = view;
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).1 -= 1;
    }
}
