//! Reads of files into memory.

use crate::buffer::Buffer;
use crate::context::{Context, context_of};
use crate::drop_errors;
use crate::error::{Outcome, refused};
use crate::resource::MemoryResource;
use crate::signals;
use crate::stream::with_stream;
use cuda_mem::copy::CopyEngine;
use cuda_mem_dynamic::{ResourceType, Source};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyString};
use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Reads files into the memory of a device, at the rate of the link or of the disk: threads read into page-locked memory,
/// from which the device copies. Any number of threads may use one reader, and a program needs only one.
///
/// >>> import pathlib, tempfile
/// >>> path = pathlib.Path(tempfile.mkdtemp()) / "weights"
/// >>> path.write_bytes(b"header, weights")
/// 15
/// >>> reader = cuda_mem.FileReader()
/// >>> reader.read(path, offset=8).to_bytes()
/// b'weights'
#[pyclass(frozen, weakref, module = "cuda_mem")]
pub struct FileReader {
    engine: CopyEngine,
    /// The memory of buffers for which the program names none.
    memory: Source,
    /// The home stream of buffers for which the program names none.
    stream: cuda_mem::Stream,
}

#[pymethods]
impl FileReader {
    /// `context` is a Context, a Device, an ordinal, or None for device 0.
    #[new]
    #[pyo3(signature = (context = None))]
    fn new(py: Python<'_>, context: Option<&Bound<'_, PyAny>>) -> Outcome<Self> {
        let context = context_of(py, context)?;
        let memory = cuda_mem::memory::DeviceMemory::new(&context).into_resource().into();
        let stream = cuda_mem::Stream::legacy_default(&context);
        Ok(Self { engine: py.detach(|| CopyEngine::new(&context))?, memory, stream })
    }

    /// Reads `size` bytes of a file from `offset` on into a new buffer; without `size`, all bytes up to the end of the file.
    /// `file` is a path, an open file, or a descriptor, whose position does not matter and does not change.
    ///
    /// The buffer is one of `memory`, a MemoryResource; by default one of DeviceMemory. `stream` becomes its home stream, as in
    /// MemoryResource.allocate. The bytes are there when this returns.
    ///
    /// What is in the page cache comes from there. The rest comes from the disk past the page cache, and does not fill it.
    ///
    /// Raises FileError if the file is shorter, is a pipe or a folder, or cannot be read, and what `open` raises for a path.
    #[pyo3(signature = (file, offset = 0, size = None, *, memory = None, stream = None))]
    fn read(
        &self,
        py: Python<'_>,
        file: &Bound<'_, PyAny>,
        offset: u64,
        size: Option<usize>,
        memory: Option<PyRef<'_, MemoryResource>>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Outcome<Buffer> {
        drop_errors::warn(py)?;
        let file = descriptor(file)?;
        let size = match size {
            Some(size) => size,
            None => rest(&file, offset)?,
        };
        let (source, default) = match &memory {
            Some(memory) => (&memory.source, &memory.stream),
            None => (&self.memory, &self.stream),
        };
        with_stream(stream, default, |stream| {
            let read = signals::detach(py, || source.read_file(&self.engine, &file, offset, size, stream))??;
            Ok(match &memory {
                Some(memory) => memory.buffer(read),
                None => Buffer::new(cuda_mem_dynamic::Memory::new(read), false),
            })
        })
    }

    /// The context.
    #[getter]
    fn context(&self) -> Context {
        Context { inner: self.engine.context().clone().into() }
    }

    /// How many bytes of page-locked memory the reader has for further reads.
    #[getter]
    fn staging(&self) -> usize {
        self.engine.reserved_staging()
    }

    /// Frees page-locked memory that no read uses.
    fn trim(&self, py: Python<'_>) {
        py.detach(|| self.engine.trim());
    }

    fn __repr__(&self) -> String {
        format!("FileReader(device={})", self.engine.context().device().ordinal())
    }
}

/// A descriptor of its own, so that no other thread closes it during the read.
fn descriptor(file: &Bound<'_, PyAny>) -> Outcome<OwnedFd> {
    let py = file.py();
    let by_path =
        file.is_instance_of::<PyString>() || file.is_instance_of::<PyBytes>() || file.hasattr("__fspath__")?;
    let opened = match by_path {
        // Its errors are those that Python programs know.
        true => py.import("builtins")?.getattr("open")?.call1((file, "rb", 0))?,
        false => file.clone(),
    };
    let number = match opened.is_instance_of::<PyInt>() {
        true => opened,
        false if opened.hasattr("fileno")? => opened.call_method0("fileno")?,
        false => {
            let text = format!("file must be a path, an open file, or a descriptor, not {}", crate::error::shown(file));
            return Err(PyTypeError::new_err(text).into());
        }
    };
    let number: i32 = number.extract()?;
    if number < 0 {
        return Err(refused(format!("file is {number}, but a descriptor must be 0 or more")));
    }
    // SAFETY: not -1; a number that is not open is refused by the system.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(borrowed.try_clone_to_owned().map_err(PyErr::from)?)
}

/// How many bytes a file has from `offset` on.
fn rest(file: &OwnedFd, offset: u64) -> Outcome<usize> {
    let file = File::from(file.try_clone().map_err(PyErr::from)?);
    let size = file.metadata().map_err(PyErr::from)?.len();
    // A file that is shorter is refused by the read.
    Ok(usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX))
}
