//! Views for other libraries, by DLPack.

use super::dtype::type_of_dtype;
use super::export::{BufferView, kind_of};
use super::view::{Exporter, StridedMemoryView};
use super::view_copy;
use crate::capsule::{self, Request};
use crate::error::{Outcome, raise};
use core::mem::ManuallyDrop;
use core::ptr;
use cuda_mem::DataType;
use cuda_mem::interchange::dlpack::{DLDataType, DLDevice, DLTensor, ManagedTensor};
use cuda_mem::interchange::{Tensor, TensorDevice, TensorParts};
use cuda_mem::memory::PointerInfo;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// A view that a consumer uses. The consumer's release frees the view at once. As in every exporter of Python, it takes the GIL.
struct Consumed(ManuallyDrop<(Py<StridedMemoryView>, Option<BufferView>)>);

impl Drop for Consumed {
    fn drop(&mut self) {
        // After the interpreter's end nothing can be freed.
        // SAFETY: this is the only drop.
        Python::try_attach(|_| unsafe { ManuallyDrop::drop(&mut self.0) });
    }
}

/// A capsule of a view, as the arguments of `__dlpack__` say.
pub fn capsule<'py>(
    view: &Bound<'py, StridedMemoryView>,
    stream: Option<&Bound<'py, PyAny>>,
    request: Request,
) -> Outcome<Bound<'py, PyAny>> {
    let py = view.py();
    let elsewhere = match request.device {
        Some((device_type, device_id)) => {
            TensorDevice::try_from(DLDevice { device_type, device_id })? != view.get().device(py)?
        }
        None => false,
    };
    let managed = if request.copy == Some(true) || elsewhere {
        view_copy::exported_copy(view, stream, request)?
    } else {
        StridedMemoryView::export(view)?
    };
    capsule::capsule(py, managed, request)
}

impl StridedMemoryView {
    /// The element type for DLPack.
    pub fn data_type(&self, py: Python<'_>) -> Outcome<DataType> {
        if let Exporter::Tensor { managed, .. } = &self.exporter {
            return type_of(managed);
        }
        if let Some(data_type) = self.data_type.get(py) {
            return Ok(*data_type);
        }
        let data_type = match self.dtype(py)? {
            Some(dtype) => type_of_dtype(&dtype)?,
            None => {
                let text = "Cannot export a view without dtype by DLPack: make the view with a dtype";
                return Err(raise("ExchangeError", text, None));
            }
        };
        Ok(*self.data_type.get_or_init(py, || data_type))
    }

    /// The kind of memory.
    pub fn device(&self, py: Python<'_>) -> Outcome<TensorDevice> {
        match &self.exporter {
            Exporter::Tensor { managed, .. } => Ok(managed.dl_tensor().device.try_into()?),
            Exporter::View(view) => view.get().device(py),
            Exporter::Buffer(buffer) => device_of_buffer(buffer.bind(py)),
            Exporter::Interface { .. } if self.is_device_accessible && self.ptr != 0 => {
                let context = crate::context::open(py, self.device_id)?;
                let known = py.detach(|| PointerInfo::of(&context, self.ptr))?.accessibility;
                Ok(match (known.managed, known.host) {
                    (true, _) => TensorDevice::CudaManaged,
                    (false, true) => TensorDevice::CudaHost,
                    (false, false) => TensorDevice::Cuda(self.device_id),
                })
            }
            _ if self.is_device_accessible => Ok(TensorDevice::Cuda(self.device_id)),
            _ => Ok(TensorDevice::Cpu),
        }
    }

    /// The tensor that this view describes.
    pub fn tensor(&self, py: Python<'_>, data_type: DataType) -> Outcome<Tensor> {
        self.check_open(py)?;
        let layout = &self.layout(py)?.get().inner;
        Ok(Tensor::new(&TensorParts {
            address: self.ptr,
            device: self.device(py)?,
            data_type,
            shape: layout.shape(),
            strides: Some(layout.strides()),
            read_only: self.readonly,
            padded: true,
        })?)
    }

    /// The view for a consumer, in no order with its work.
    pub fn export(slf: &Bound<'_, Self>) -> Outcome<ManagedTensor> {
        let (py, this) = (slf.py(), slf.get());
        let counted = this.buffer(py).map(BufferView::of).transpose()?;
        let owner = Consumed(ManuallyDrop::new((slf.clone().unbind(), counted)));
        if let Exporter::Tensor { managed, .. } = &this.exporter {
            return Ok(managed.describe()?.export(owner));
        }
        Ok(this.tensor(py, this.data_type(py)?)?.export(owner))
    }

    /// The view for a consumer that uses it only while the view lives.
    pub fn borrowed(&self, py: Python<'_>) -> Outcome<DLTensor> {
        self.check_open(py)?;
        let layout = &self.layout(py)?.get().inner;
        let data_type = self.data_type(py)?;
        let pointer = |numbers: &[i64]| if numbers.is_empty() { ptr::null_mut() } else { numbers.as_ptr().cast_mut() };
        Ok(DLTensor {
            data: ptr::with_exposed_provenance_mut(if layout.is_empty() { 0 } else { self.ptr as usize }),
            device: self.device(py)?.into(),
            ndim: layout.ndim() as i32,
            dtype: DLDataType { code: data_type.code() as u8, bits: data_type.bits(), lanes: data_type.lanes() },
            shape: pointer(layout.shape()),
            strides: pointer(layout.strides()),
            byte_offset: 0,
        })
    }
}

/// The element type of a tensor.
pub fn type_of(managed: &ManagedTensor) -> Outcome<DataType> {
    let DLDataType { code, bits, lanes } = managed.dl_tensor().dtype;
    Ok(DataType::new(code, bits, lanes)?)
}

/// The kind of a buffer's memory.
fn device_of_buffer(buffer: &Bound<'_, PyAny>) -> Outcome<TensorDevice> {
    let py = buffer.py();
    let is = |name: &Bound<'_, PyString>| -> Outcome<bool> { Ok(buffer.getattr(name)?.extract()?) };
    let addressed_by = (is(intern!(py, "is_device_accessible"))?, is(intern!(py, "is_host_accessible"))?);
    let ordinal = || Ok(buffer.getattr(intern!(py, "device_id"))?.extract()?);
    kind_of(addressed_by, ordinal, || is(intern!(py, "is_managed")))
}
