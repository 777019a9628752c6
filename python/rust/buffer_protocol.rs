//! Python's buffer protocol: memory of other objects in calls, and memory of ours for others.

use crate::error::{Failure, Outcome, raise, refused, shown};
use crate::signals;
use core::ffi::{c_int, c_void};
use core::ops::Deref;
use core::sync::atomic::{AtomicUsize, Ordering};
use cuda_mem::Stream;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

/// The live views and exports of a buffer, which keep its memory where it is.
#[derive(Default)]
pub struct Views(AtomicUsize);

impl Views {
    /// Counts one more. The caller has the buffer's lock, so that no close runs.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn end(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Refuses a call that would move or free the memory.
    pub fn refuse(&self, call: &str) -> Outcome {
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(()),
            count => {
                let text = format!(
                    "Buffer.{call}: the memory has {count} users, which are memoryviews, numpy arrays or arrays of other \
                     libraries: delete them first"
                );
                Err(raise("SharedError", text, None))
            }
        }
    }

    /// Fills a view of the buffer protocol, which has been counted, after the work of the home stream.
    ///
    /// # Safety
    ///
    /// `view` is Python's place for the view of `object`, whose memory of `size` bytes stays until the view is released.
    pub unsafe fn fill(
        &self,
        object: &Bound<'_, PyAny>,
        (view, flags): (*mut ffi::Py_buffer, c_int),
        (pointer, size): (*mut c_void, usize),
        home: Option<Stream>,
    ) -> PyResult<()> {
        let py = object.py();
        let waited = home.map_or(Ok(Ok(())), |home| signals::detach(py, || home.synchronize()));
        let filled = waited.and_then(|waited| Ok(waited.map_err(Failure::from)?)).and_then(|()| {
            // SAFETY: this function's contract.
            match unsafe { ffi::PyBuffer_FillInfo(view, object.as_ptr(), pointer, size as ffi::Py_ssize_t, 0, flags) } {
                0 => Ok(()),
                _ => Err(PyErr::fetch(py)),
            }
        });
        if filled.is_err() {
            self.end();
        }
        filled
    }
}

/// The bytes of an object with the buffer protocol.
pub struct Bytes(PyBuffer<u8>);

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self.0.len_bytes() {
            0 => &[],
            // SAFETY: the view is contiguous, and its object keeps the memory while this lives. That the program does not
            // write it meanwhile is Python's rule for such views.
            size => unsafe { core::slice::from_raw_parts(self.0.buf_ptr().cast(), size) },
        }
    }
}

/// The bytes of an argument, such as bytes, a memoryview or a numpy array of any type of values.
pub fn readable(argument: &str, object: &Bound<'_, PyAny>) -> Outcome<Bytes> {
    let view = cast_to_bytes(argument, object)?;
    Ok(Bytes(view))
}

/// The byte that an integer for Buffer.fill is, or the text of the refusal.
pub fn byte_of(value: &Bound<'_, PyAny>) -> Result<u8, String> {
    value.extract().map_err(|_| {
        let value = shown(value);
        format!("Buffer.fill: value is {value}, but an integer must be from 0 to 255: pass a larger pattern as bytes")
    })
}

/// Whether elements of a format, as the module struct and PEP 3118 spell it, contain addresses: of objects of Python, or
/// pointers.
fn has_addresses(format: &str) -> bool {
    // Names of fields stand between colons.
    let types: String = format.split(':').step_by(2).collect();
    let real = |place: usize| types[place + 1..].starts_with(['e', 'f', 'd', 'g']);
    types.char_indices().any(|(place, code)| match code {
        'O' | 'P' | '&' | 'X' | 'z' => true,
        // Zf is a complex number, and a single Z a text's address.
        'Z' => !real(place),
        _ => false,
    })
}

/// Whether an object has the buffer protocol.
fn has_buffer(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the object lives.
    unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) != 0 }
}

/// The memory of an argument as bytes.
pub fn cast_to_bytes(argument: &str, object: &Bound<'_, PyAny>) -> Outcome<PyBuffer<u8>> {
    let py = object.py();
    if !has_buffer(object) {
        let kind = object.get_type().qualname()?;
        let text = format!(
            "{argument} must be an object with the buffer protocol, such as bytes or a numpy array, not {kind}"
        );
        return Err(PyTypeError::new_err(text).into());
    }
    // memoryview.cast takes contiguous views of any type, and an empty one only as bytes.
    let view = PyMemoryView::from(object)?;
    let format: String = view.getattr("format")?.extract()?;
    if has_addresses(&format) {
        let dtype = match object.getattr_opt("dtype")? {
            Some(dtype) => format!("dtype {}", dtype.str()?),
            None => format!("format {format:?}"),
        };
        let text = format!(
            "{argument} has elements of {dtype}, which are addresses and mean nothing elsewhere: pass numbers or bytes, as \
             array.astype(\"float32\") does"
        );
        return Err(PyTypeError::new_err(text).into());
    }
    let is_contiguous: bool = view.getattr("c_contiguous")?.extract()?;
    if !is_contiguous {
        let text = format!("{argument} is not C-contiguous in memory: copy it first, as numpy.ascontiguousarray does");
        return Err(refused(text));
    }
    let is_empty = view.getattr("nbytes")?.extract::<usize>()? == 0;
    let bytes = if is_empty { PyBytes::new(py, b"").into_any() } else { view.call_method1("cast", ("B",))? };
    Ok(PyBuffer::get(&bytes)?)
}
