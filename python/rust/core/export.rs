//! Exports of buffers by DLPack.

use super::body::context_of;
use super::buffer::Buffer;
use super::calls;
use crate::error::{Outcome, raise};
use crate::signals;
use cuda_mem::interchange::{StreamName, Tensor, TensorDevice, TensorParts};
use cuda_mem::{DataType, Stream};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use std::sync::Arc;

/// The device of a buffer for other libraries.
pub fn device(py: Python<'_>, buffer: &Buffer) -> Outcome<TensorDevice> {
    let facts = buffer.facts(py)?.0;
    Ok(match (facts.device, facts.host) {
        (true, false) => TensorDevice::Cuda(ordinal(py, buffer)?),
        (true, true) if buffer.managed(py, facts)? => TensorDevice::CudaManaged,
        (true, true) => TensorDevice::CudaHost,
        (false, true) => TensorDevice::Cpu,
        (false, false) => {
            // test_memory.py looks for this text.
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

/// Whether the consumer takes the capsules of DLPack 1.
fn is_versioned(max_version: Option<&Bound<'_, PyAny>>) -> Outcome<bool> {
    let Some(max_version) = max_version else { return Ok(false) };
    match max_version.extract::<(u32, u32)>() {
        Ok((major, _)) => Ok(major >= 1),
        Err(_) => {
            let text = format!("Expected max_version tuple[int, int], got {}", max_version.repr()?);
            Err(PyBufferError::new_err(text).into())
        }
    }
}

/// A capsule of a buffer, as the arguments of `__dlpack__` say.
pub fn capsule<'py>(
    buffer: &Bound<'py, Buffer>,
    stream: Option<i64>,
    max_version: Option<&Bound<'py, PyAny>>,
    wanted: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> Outcome<Bound<'py, PyAny>> {
    let (py, this) = (buffer.py(), buffer.get());
    let versioned = is_versioned(max_version)?;
    let own = device(py, this)?;
    let wanted: Option<(i32, i32)> = match wanted {
        Some(wanted) => match wanted.extract() {
            Ok(wanted) => Some(wanted),
            Err(_) => {
                let text = format!("dl_device must be a tuple[int, int], not {}", wanted.repr()?);
                return Err(raise("ExchangeError", text, None));
            }
        },
        None => None,
    };
    if copy == Some(true) || wanted.is_some_and(|wanted| wanted != crate::capsule::device(own)) {
        return elsewhere(buffer, stream, versioned, wanted, copy);
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
    crate::capsule::capsule(py, tensor.export(owner), versioned)
}

/// A capsule of a copy, or of the same memory for another device.
fn elsewhere<'py>(
    buffer: &Bound<'py, Buffer>,
    stream: Option<i64>,
    versioned: bool,
    wanted: Option<(i32, i32)>,
    copy: Option<bool>,
) -> Outcome<Bound<'py, PyAny>> {
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
    crate::capsule::export(py, &made.tensor(), stream, versioned.then_some((1, 0)), wanted, copy)
}
