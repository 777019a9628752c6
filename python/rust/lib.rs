//! The native module of the Python package `cuda_mem`.
//!
//! A method checks its arguments, releases the GIL, calls one function of cuda-mem, and turns an error into an exception.
//! What is longer belongs into cuda-mem, or into `dynamic/`, which the C library uses too. The rules:
//!
//! - Classes are frozen. A lock of an object is only tried, never waited for: a thread that waited for it under the GIL
//!   would stop the thread that has it and wants the GIL. `vkgdr` differs, and says why.
//! - The GIL is released around each call that may call the driver or wait. Frees of pools do neither. Calls that may wait
//!   for work are made by `signals::detach`, so that Ctrl-C ends them.
//! - Drops of cuda-mem's values touch no Python object, and wait for nothing.

#![allow(clippy::disallowed_types, reason = "locks are only tried")]

// For its C symbols.
extern crate cudamem;

mod array;
mod buffer;
mod buffer_protocol;
mod capsule;
mod closable;
mod context;
mod core;
mod detached;
mod drop_errors;
mod error;
mod event;
mod exchange;
mod file_reader;
mod names;
mod pool;
mod resource;
mod signals;
mod stream;
mod vkgdr;

use pyo3::prelude::*;

/// Memory shared by CPU and NVIDIA GPU.
#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::array::{Array, from_array_interface, from_dlpack};
    #[pymodule_export]
    use super::buffer::Buffer;
    #[pymodule_export]
    use super::context::{Context, Device, Driver};
    #[pymodule_export]
    use super::core::module::core;
    #[pymodule_export]
    use super::drop_errors::take_drop_errors;
    #[pymodule_export]
    use super::event::Event;
    #[pymodule_export]
    use super::file_reader::FileReader;
    #[pymodule_export]
    use super::pool::{Pool, PoolStatistics, RingPool, Slept};
    #[pymodule_export]
    use super::resource::{
        DeviceMemory, DriverPool, ManagedMemory, MappedMemory, MemoryResource, PinnedMemory, VirtualMemory,
    };
    #[pymodule_export]
    use super::stream::Stream;
    #[pymodule_export]
    use super::vkgdr::{RawMemory, Vkgdr};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::refuse_subinterpreters(module.py())?;
        // So that `from ._native.core import` works.
        let modules = module.py().import("sys")?.getattr("modules")?;
        modules.set_item("cuda_mem._native.core", module.getattr("core")?)
    }
}

/// CPython 3.11 does not know that pyo3's modules serve one interpreter only; later releases do.
fn refuse_subinterpreters(py: Python<'_>) -> PyResult<()> {
    // SAFETY: the interpreter's state lives while this thread is attached to it.
    let id = unsafe { pyo3::ffi::PyInterpreterState_GetID(pyo3::ffi::PyInterpreterState_Get()) };
    if id != 0 {
        let text = "cuda_mem does not work in subinterpreters: import it in the main interpreter, or start a process";
        return Err(pyo3::exceptions::PyImportError::new_err(text));
    }
    let _ = py;
    Ok(())
}
