//! Descriptions of arrays as libraries exchange them. Their numbers are checked before any use.

use crate::DataType;
use crate::error::TensorError;
use crate::memory::resource::Accessibility;
use core::ops::Range;
use smallvec::SmallVec;

/// The most dimensions of an array.
pub const MAX_DIMENSIONS: usize = 64;

/// The extents, then the strides. Those of up to four dimensions need no heap memory.
pub(crate) type Numbers = SmallVec<[i64; INLINE]>;
const INLINE: usize = 8;

/// The device of an array: those of DLPack's list that this library handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "DLDevice")]
pub enum TensorDevice {
    /// Memory of the host.
    Cpu,
    /// Memory of the CUDA device of this ordinal.
    Cuda(i32),
    /// Page-locked memory of the host.
    CudaHost,
    /// Memory that the driver moves between host and devices.
    CudaManaged,
}

impl TensorDevice {
    /// Who can address the memory.
    pub const fn accessibility(self) -> Accessibility {
        match self {
            Self::Cpu => Accessibility::HOST,
            Self::Cuda(_) => Accessibility::DEVICE,
            Self::CudaHost => Accessibility::BOTH,
            Self::CudaManaged => Accessibility::MANAGED,
        }
    }
}

/// An unchecked description of an array. [`Tensor::new`] checks it.
#[derive(Clone, Copy, Debug)]
pub struct TensorParts<'a> {
    /// The address of the element with index 0.
    pub address: u64,
    /// The device of the memory.
    pub device: TensorDevice,
    /// The type of an element.
    pub data_type: DataType,
    /// The extents, in elements.
    pub shape: &'a [i64],
    /// The distances between neighbours, in elements. Without them the array is dense, in row-major order.
    pub strides: Option<&'a [i64]>,
    /// Nobody may write the array.
    pub read_only: bool,
    /// Each element of less than a byte has its own bytes. Otherwise such elements are packed.
    pub padded: bool,
}

/// A checked description of an array: its numbers do not overflow, and the array lies within the address space.
///
/// It holds no memory and gives no access to any.
///
/// ```
/// use cuda_mem::DataType;
/// use cuda_mem::interchange::{Tensor, TensorDevice, TensorParts};
/// let tensor = Tensor::new(&TensorParts {
///     address: 0x1000,
///     device: TensorDevice::Cuda(0),
///     data_type: DataType::FLOAT32,
///     shape: &[2, 3],
///     strides: None,
///     read_only: false,
///     padded: false,
/// })?;
/// assert_eq!(tensor.strides(), [3, 1]);
/// assert_eq!(tensor.byte_range(), 0x1000..0x1018);
/// # Ok::<(), cuda_mem::interchange::TensorError>(())
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Tensor {
    pub(crate) address: u64,
    pub(crate) device: TensorDevice,
    pub(crate) data_type: DataType,
    pub(crate) numbers: Numbers,
    pub(crate) read_only: bool,
    pub(crate) padded: bool,
    elements: usize,
    /// Begin and end of the bytes.
    bytes: (u64, u64),
}

impl Clone for Tensor {
    fn clone(&self) -> Self {
        // The clone of a `SmallVec` copies number by number.
        Self { numbers: Numbers::from_slice(&self.numbers), ..*self }
    }
}

impl Tensor {
    /// Checks the description of an array.
    ///
    /// # Errors
    ///
    /// More than 64 dimensions; another number of strides; a negative extent; a size that overflows; elements without
    /// an address; bytes outside of the address space.
    pub fn new(parts: &TensorParts<'_>) -> Result<Self, TensorError> {
        let (shape, dimensions) = (parts.shape, parts.shape.len());
        if dimensions > MAX_DIMENSIONS {
            return Err(TensorError::TooManyDimensions { dimensions: dimensions as i64 });
        }
        if let Some(strides) = parts.strides
            && strides.len() != dimensions
        {
            return Err(TensorError::StrideCount { strides: strides.len(), dimensions });
        }
        let mut numbers = match 2 * dimensions {
            count if count <= INLINE => Numbers::from_buf_and_len([0; INLINE], count),
            count => Numbers::from_elem(0, count),
        };
        let (extents, strides) = numbers.split_at_mut(dimensions);
        let mut elements = 1_i64;
        let (mut overflows, mut is_empty) = (false, false);
        for (dimension, (extent, place)) in shape.iter().copied().zip(extents).enumerate() {
            *place = extent;
            if extent < 0 {
                return Err(TensorError::NegativeExtent { dimension, extent });
            }
            is_empty |= extent == 0;
            match elements.checked_mul(extent) {
                Some(product) => elements = product,
                // Still valid if a later extent is 0.
                None => (overflows, elements) = (true, 1),
            }
        }
        if overflows && !is_empty {
            return Err(TensorError::TooLarge);
        }
        match parts.strides {
            Some(said) => strides.copy_from_slice(said),
            None => set_dense_strides(shape, strides),
        }
        let mut tensor = Self {
            address: parts.address,
            device: parts.device,
            data_type: parts.data_type,
            numbers,
            read_only: parts.read_only,
            padded: parts.padded && parts.data_type.is_sub_byte(),
            elements: if is_empty { 0 } else { elements as usize },
            bytes: (parts.address, parts.address),
        };
        if !is_empty {
            tensor.bytes = tensor.find_bytes()?;
        }
        Ok(tensor)
    }

    /// Begin and end of the bytes of an array with elements.
    fn find_bytes(&self) -> Result<(u64, u64), TensorError> {
        if self.address == 0 {
            return Err(TensorError::NullData { elements: self.elements });
        }
        let (mut low, mut high) = (0_i64, 0_i64);
        for (extent, stride) in self.shape().iter().zip(self.strides()) {
            let reach = (extent - 1).checked_mul(*stride).ok_or(TensorError::TooLarge)?;
            let end = if reach < 0 { &mut low } else { &mut high };
            *end = end.checked_add(reach).ok_or(TensorError::TooLarge)?;
        }
        let bits = if self.padded { self.data_type.padded_size() * 8 } else { self.data_type.element_bits() } as i128;
        // No product overflows: an i64 times 24 bits. Shifts round down, also below zero.
        let begin = i128::from(self.address) + ((i128::from(low) * bits) >> 3);
        let end = i128::from(self.address) + (((i128::from(high) + 1) * bits + 7) >> 3);
        match (u64::try_from(begin), u64::try_from(end)) {
            (Ok(begin), Ok(end)) if begin != 0 && end - begin <= isize::MAX as u64 => Ok((begin, end)),
            _ => Err(TensorError::OutsideOfAddressSpace { address: self.address, low, high }),
        }
    }

    /// The address of the element with index 0.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The device of the memory.
    pub fn device(&self) -> TensorDevice {
        self.device
    }

    /// The type of an element.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// The extents, in elements.
    pub fn shape(&self) -> &[i64] {
        &self.numbers[..self.numbers.len() / 2]
    }

    /// The distances between neighbours, in elements, one for each dimension.
    pub fn strides(&self) -> &[i64] {
        &self.numbers[self.numbers.len() / 2..]
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// Whether nobody may write the array.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether each element of less than a byte has its own bytes.
    pub fn is_padded(&self) -> bool {
        self.padded
    }

    /// The range of addresses with all elements. Negative strides reach below [`address`](Self::address).
    pub fn byte_range(&self) -> Range<u64> {
        self.bytes.0..self.bytes.1
    }

    /// Whether the elements lie side by side, in row-major order.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.is_empty()
            || self.shape().iter().zip(self.strides()).rev().all(|(extent, stride)| {
                let fits = *extent == 1 || *stride == expected;
                expected *= extent;
                fits
            })
    }

    /// The same array at another place.
    ///
    /// # Errors
    ///
    /// The array leaves the address space.
    pub fn moved_to(&self, address: u64, device: TensorDevice) -> Result<Self, TensorError> {
        let mut moved = Self { address, device, bytes: (address, address), ..self.clone() };
        if !moved.is_empty() {
            moved.bytes = moved.find_bytes()?;
        }
        Ok(moved)
    }

    /// The same array, writable: for a copy.
    pub(crate) fn into_writable(self) -> Self {
        Self { read_only: false, ..self }
    }

    /// The same array as read-only.
    #[must_use]
    pub fn into_read_only(self) -> Self {
        Self { read_only: true, ..self }
    }
}

/// Sets the strides of a dense array in row-major order. Without elements they mean nothing, so they may saturate.
fn set_dense_strides(shape: &[i64], strides: &mut [i64]) {
    let mut stride = 1_i64;
    for (place, extent) in strides.iter_mut().zip(shape).rev() {
        *place = stride;
        stride = stride.saturating_mul((*extent).max(1));
    }
}

#[cfg(test)]
#[path = "tensor_tests.rs"]
mod tests;
