//! Exports of buffers by DLPack.

use super::buffer::Buffer;
use super::calls;
use super::foreign::context_of;
use crate::capsule::{self, Request};
use crate::error::Outcome;
use crate::signals;
use cuda_mem::interchange::{StreamName, Tensor, TensorDevice, TensorParts};
use cuda_mem::{DataType, Stream};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use std::sync::Arc;

/// The device of a buffer for other libraries.
pub fn device(py: Python<'_>, buffer: &Buffer) -> Outcome<TensorDevice> {
    let facts = buffer.facts(py)?.0;
    kind_of((facts.device, facts.host), || ordinal(py, buffer), || buffer.managed(py, facts))
}

/// The device of memory that devices address, or the CPU, or both.
pub fn kind_of(
    addressed_by: (bool, bool),
    ordinal: impl FnOnce() -> Outcome<i32>,
    is_managed: impl FnOnce() -> Outcome<bool>,
) -> Outcome<TensorDevice> {
    Ok(match addressed_by {
        (true, false) => TensorDevice::Cuda(ordinal()?),
        (true, true) if is_managed()? => TensorDevice::CudaManaged,
        (true, true) => TensorDevice::CudaHost,
        (false, true) => TensorDevice::Cpu,
        (false, false) => {
            // cuda.core's words.
            return Err(PyBufferError::new_err("buffer is neither device-accessible nor host-accessible").into());
        }
    })
}

fn ordinal(py: Python<'_>, buffer: &Buffer) -> Outcome<i32> {
    let resource = buffer.open()?.resource.as_ref().map(|resource| resource.clone_ref(py));
    match resource {
        Some(resource) => Ok(resource.getattr(py, "device_id")?.extract(py)?),
        None => Ok(buffer.facts(py)?.1.max(0)),
    }
}

/// Keeps the memory of a buffer while another library uses it.
pub struct BufferView(Py<Buffer>);

impl Drop for BufferView {
    fn drop(&mut self) {
        self.0.get().end_view();
    }
}

impl BufferView {
    /// Raises an exception if the buffer is closed.
    pub fn of(buffer: &Bound<'_, Buffer>) -> Outcome<Self> {
        Ok(opened(buffer)?.0)
    }
}

/// The owner of an export; the address, the size and the home stream of the memory.
fn opened(buffer: &Bound<'_, Buffer>) -> Outcome<(BufferView, u64, usize, Option<Stream>)> {
    let body = buffer.get().open_view()?;
    Ok((BufferView(buffer.clone().unbind()), body.address, body.size, body.memory.home().cloned()))
}

/// A capsule of a buffer, as the arguments of `__dlpack__` say.
pub fn export<'py>(buffer: &Bound<'py, Buffer>, stream: Option<i64>, request: Request) -> Outcome<Bound<'py, PyAny>> {
    let (py, this) = (buffer.py(), buffer.get());
    let own = device(py, this)?;
    if request.copy == Some(true) || request.device.is_some_and(|wanted| wanted != capsule::device(own)) {
        return elsewhere(buffer, stream, request);
    }
    let (owner, address, size, home) = opened(buffer)?;
    match (home, own, stream) {
        // A consumer on the CPU names no stream, and reads at once.
        (Some(home), TensorDevice::Cpu | TensorDevice::CudaHost, None) => signals::detach(py, || home.synchronize())??,
        (Some(home), ..) => {
            let name = StreamName::from_dlpack(stream)?;
            // SAFETY: the consumer names a stream that lives during this call.
            if let Some(theirs) = unsafe { name.stream(home.context()) } {
                py.detach(|| theirs.join(&home))?;
            }
        }
        (None, ..) => {}
    }
    let tensor = Tensor::new(&TensorParts {
        address,
        device: own,
        data_type: DataType::INT8,
        shape: &[size as i64],
        strides: Some(&[1]),
        read_only: false,
        padded: false,
    })?;
    capsule::capsule(py, tensor.export(owner), request)
}

/// A capsule of a copy, or of the same memory for another device.
fn elsewhere<'py>(buffer: &Bound<'py, Buffer>, stream: Option<i64>, request: Request) -> Outcome<Bound<'py, PyAny>> {
    let py = buffer.py();
    let (owner, address, size, home) = opened(buffer)?;
    let made = signals::detach(py, || {
        calls::driver("Buffer.__dlpack__")?;
        let home = match home {
            Some(home) => home,
            None => Stream::legacy_default(&context_of(address)?),
        };
        // SAFETY: the owner keeps the memory, whose bytes have values; the program orders other writes.
        let bytes = unsafe {
            cuda_mem::Buffer::<i8, cuda_mem::memory::kind::Any>::from_raw_with_owner(
                address,
                size,
                Arc::new(owner),
                &home,
            )
        }?;
        Ok::<_, cuda_mem::Error>(bytes.into_shared())
    })??;
    capsule::export(py, &made.tensor(), stream, request)
}
