//! The [CUDA array interface](https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html) of versions 0
//! to 3, and numpy's array interface: the same facts as plain data, in a struct and as JSON.
//!
//! These interfaces transfer no ownership. An importer must keep the owner of the array alive, and an exporter must
//! keep the [`SharedTensor`].

#[cfg(feature = "json")]
mod json;

use super::shared::{adopt, device_of};
use super::{SharedTensor, StreamName, Tensor, TensorDevice, TensorError, TensorParts};
use crate::buffer::Owner;
use crate::memory::resource::PointerInfo;
use crate::{DataType, Error, ForeignOwner, Result, Stream};

pub use crate::error::ArrayInterfaceError;

/// The version of exports, and the newest of imports.
pub const VERSION: u32 = 3;

/// The contents of an array interface, for memory of CUDA or of the host.
///
/// ```
/// use cuda_mem::interchange::TensorDevice;
/// use cuda_mem::interchange::array_interface::ArrayInterface;
/// let json = r#"{"shape": [2, 3], "typestr": "<f4", "data": [4096, false], "strides": [4, 8], "version": 3}"#;
/// let tensor = ArrayInterface::from_json(json)?.check(TensorDevice::Cuda(0))?;
/// assert_eq!(tensor.strides(), [1, 2]); // elements
/// # Ok::<(), cuda_mem::interchange::array_interface::ArrayInterfaceError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[doc(alias("__cuda_array_interface__", "__array_interface__"))]
pub struct ArrayInterface {
    /// The extents, in elements.
    pub shape: Vec<i64>,
    /// The element type in numpy's spelling.
    pub typestr: String,
    /// The address, and whether the array is read-only.
    pub data: (u64, bool),
    /// The distances between neighbours in each dimension, in bytes; without strides the array is dense.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub strides: Option<Vec<i64>>,
    /// The version: 3 in exports. Older versions differ in what they leave out: strides, masks (0), streams (0 to 2).
    pub version: u32,
    /// The stream of the producer's work, in CUDA's interface: 1, 2 or a handle. `None` if all work is done or needs no
    /// order.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub stream: Option<i64>,
    /// Whether the array has a mask for its elements. No library supports masks, so any mask is refused.
    #[cfg_attr(
        feature = "json",
        serde(rename = "mask", default, skip_serializing, deserialize_with = "json::is_there")
    )]
    pub has_mask: bool,
}

impl ArrayInterface {
    /// Describes an array. Strides appear only if the array is not dense.
    ///
    /// # Errors
    ///
    /// The element type has no typestr: export it through DLPack, or as opaque bytes.
    pub fn of(tensor: &Tensor, stream: Option<StreamName>) -> Result<Self, ArrayInterfaceError> {
        let data_type = tensor.data_type();
        let size = data_type.padded_size() as i64;
        let strides: Option<Vec<i64>> = match tensor.is_contiguous() {
            true => None,
            // The tensor's check bounds the strides, except those of dimensions with one element, which mean nothing.
            false => Some(tensor.strides().iter().map(|stride| stride.saturating_mul(size)).collect()),
        };
        Ok(Self {
            shape: tensor.shape().to_vec(),
            typestr: data_type.typestr().map_err(TensorError::DataType)?,
            data: (if tensor.is_empty() { 0 } else { tensor.address() }, tensor.is_read_only()),
            strides,
            version: VERSION,
            stream: stream.and_then(StreamName::number),
            has_mask: false,
        })
    }

    /// Checks the description of an array on a device.
    ///
    /// # Errors
    ///
    /// The version is newer than 3; the array has a mask; its numbers are invalid; a stride ends within an element; the
    /// stream is forbidden.
    pub fn check(&self, device: TensorDevice) -> Result<Tensor, ArrayInterfaceError> {
        if self.version > VERSION {
            return Err(ArrayInterfaceError::Version { version: self.version });
        }
        if self.has_mask {
            return Err(ArrayInterfaceError::Mask);
        }
        self.stream_name()?;
        let data_type = DataType::from_typestr(&self.typestr).map_err(TensorError::DataType)?;
        let size = data_type.padded_size();
        let strides = match &self.strides {
            None => None,
            Some(strides) => Some(
                strides
                    .iter()
                    .enumerate()
                    .map(|(dimension, stride)| match stride % size as i64 {
                        0 => Ok(stride / size as i64),
                        _ => Err(TensorError::StrideNotMultiple { dimension, stride: *stride, size }),
                    })
                    .collect::<Result<Vec<i64>, _>>()?,
            ),
        };
        let (address, read_only) = self.data;
        let (shape, strides) = (&self.shape[..], strides.as_deref());
        Ok(Tensor::new(&TensorParts { address, device, data_type, shape, strides, read_only, padded: false })?)
    }

    /// The producer's stream. Versions before 3 name none; the producer's work is then taken to be on the legacy default
    /// stream, as PyTorch's is by default.
    ///
    /// # Errors
    ///
    /// The stream is 0 or negative.
    pub fn stream_name(&self) -> Result<StreamName, TensorError> {
        if self.stream.is_none() && self.version < VERSION {
            return Ok(StreamName::Legacy);
        }
        StreamName::from_array_interface(self.stream)
    }

    /// Imports an array of the CUDA array interface. `stream` becomes its home stream. An event orders `stream` after
    /// the producer's stream, unless `is_ordered` states that no order is needed. The drop of the memory waits for its
    /// work.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check); the driver does not know the address as one for devices; the array exceeds the
    /// allocation, as far as the driver tells.
    ///
    /// # Safety
    ///
    /// The memory is as described. It stays allocated while `owner` lives, and meanwhile others use it only in order
    /// with `stream`. The producer's stream lives during this call and belongs to the context of `stream`.
    pub unsafe fn import_cuda(&self, owner: ForeignOwner, stream: &Stream, is_ordered: bool) -> Result<SharedTensor> {
        const CALL: &str = "ArrayInterface::import_cuda";
        let context = stream.context();
        // The interface does not name the device, so the code below asks the driver.
        let here = TensorDevice::Cuda(context.device().ordinal());
        let mut tensor = self.check(here)?;
        if !tensor.is_empty() {
            let info = PointerInfo::of(context, tensor.address())?;
            if !info.accessibility.device {
                let value = format!("{:#x}, known to the driver as {:?}", tensor.address(), info.accessibility);
                let rule = "devices must address it";
                return Err(Error::invalid(CALL, "data", value, rule));
            }
            let range = tensor.byte_range();
            let size = (range.end - range.start) as usize;
            if !info.contains(context, tensor.address(), range.start, size)? {
                let value = format!("{:?} of {size} bytes at {:#x}", tensor.shape(), range.start);
                let rule = "the array must lie within one allocation: check the shape, the strides, and the address, which is \
                            that of the element with index 0, the highest one if strides are negative";
                return Err(Error::invalid(CALL, "shape", value, rule));
            }
            let device = match info.device {
                _ if info.accessibility.managed => TensorDevice::CudaManaged,
                Some(ordinal) if !info.accessibility.host => TensorDevice::Cuda(ordinal),
                _ if info.accessibility.host => TensorDevice::CudaHost,
                _ => here,
            };
            tensor = tensor.moved_to(tensor.address(), device)?;
        }
        // SAFETY: this function's contract.
        if !is_ordered && let Some(producer) = unsafe { self.stream_name()?.stream(context) } {
            stream.order_after(&producer)?;
        }
        // SAFETY: this function's contract.
        unsafe { adopt(CALL, tensor, false, Owner::Shared(owner), stream, None) }
    }

    /// Imports an array of the host from numpy's array interface.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    ///
    /// # Safety
    ///
    /// As for [`import_cuda`](Self::import_cuda).
    pub unsafe fn import_host(&self, owner: ForeignOwner, stream: &Stream) -> Result<SharedTensor> {
        let tensor = self.check(TensorDevice::Cpu)?;
        // SAFETY: this function's contract.
        unsafe { adopt("ArrayInterface::import_host", tensor, false, Owner::Shared(owner), stream, None) }
    }
}

impl SharedTensor {
    /// The CUDA array interface of the array: the address for devices, and the home stream, after which a consumer must
    /// order its work. Does not wait. The tensor must live while the consumer uses it. Record the consumer's work on
    /// the memory with [`record_use`](crate::Buffer::record_use).
    ///
    /// # Errors
    ///
    /// Devices cannot address the memory; the type has no typestr.
    pub fn cuda_array_interface(&self) -> Result<ArrayInterface> {
        let memory = &self.memory;
        if !memory.accessibility().device {
            return Err(self.not_addressable("SharedTensor::cuda_array_interface", "devices must address it"));
        }
        let wanted = match device_of(memory) {
            device @ TensorDevice::Cuda(_) => device,
            // Selects the device address of host memory, which may differ from the CPU's.
            _ => TensorDevice::CudaManaged,
        };
        let tensor = self.tensor().moved_to(self.address_on(wanted), wanted)?;
        Ok(ArrayInterface::of(&tensor, Some(StreamName::of(memory.stream())))?)
    }

    /// numpy's array interface of the array: the address for the CPU. Waits for the memory's work, because the CPU has
    /// no stream.
    ///
    /// # Errors
    ///
    /// The CPU cannot address the memory, or only with flushes; the type has no typestr; work failed.
    pub fn array_interface(&self) -> Result<ArrayInterface> {
        let memory = &self.memory;
        if !memory.accessibility().host || !memory.is_coherent() {
            return Err(self.not_addressable(
                "SharedTensor::array_interface",
                "numpy needs memory that the CPU addresses coherently: copy it to host memory first",
            ));
        }
        memory.synchronize()?;
        let tensor = self.tensor().moved_to(self.address_on(TensorDevice::Cpu), TensorDevice::Cpu)?;
        Ok(ArrayInterface::of(&tensor, None)?)
    }

    fn not_addressable(&self, call: &'static str, rule: &'static str) -> Error {
        Error::invalid(call, "the memory", self.memory.accessibility(), rule)
    }
}

#[cfg(test)]
mod tests;
