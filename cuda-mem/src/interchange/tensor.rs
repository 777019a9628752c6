//! Arrays as libraries describe them to each other: numbers that are checked before anything is done with them.

use crate::resource::Accessibility;
use crate::{DataType, DataTypeError};
use core::ops::Range;
use smallvec::SmallVec;

/// The most dimensions that an array may have.
pub const MAX_DIMENSIONS: usize = 64;

/// Extents or strides: few, so that they need no memory of their own.
pub(crate) type Numbers = SmallVec<[i64; 4]>;

/// The device that an array lies on, by DLPack's list, as far as this library knows what to do with it.
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
    /// Who may address the memory.
    pub const fn accessibility(self) -> Accessibility {
        match self {
            Self::Cpu => Accessibility::HOST,
            Self::Cuda(_) => Accessibility::DEVICE,
            Self::CudaHost => Accessibility::BOTH,
            Self::CudaManaged => Accessibility::MANAGED,
        }
    }
}

/// What is said of an array. [`Tensor::new`] checks it.
#[derive(Clone, Copy, Debug)]
pub struct TensorParts<'a> {
    /// Where the element of index 0 lies.
    pub address: u64,
    /// Where the memory is.
    pub device: TensorDevice,
    /// The type of an element.
    pub data_type: DataType,
    /// The extents, in elements.
    pub shape: &'a [i64],
    /// How far neighbours are from each other, in elements; without them the array is dense, the last dimension first.
    pub strides: Option<&'a [i64]>,
    /// Nobody may write it.
    pub read_only: bool,
    /// Elements of less than a byte have bytes of their own. Else they are packed.
    pub padded: bool,
}

/// An array in memory, as libraries describe it to each other. Its numbers have been checked: they overflow nowhere, and
/// the array lies within the address space.
///
/// It holds nothing, and reaches nothing: whoever has it knows what an array would look like.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    pub(crate) address: u64,
    pub(crate) device: TensorDevice,
    pub(crate) data_type: DataType,
    pub(crate) shape: Numbers,
    pub(crate) strides: Numbers,
    pub(crate) read_only: bool,
    pub(crate) padded: bool,
    elements: usize,
    /// The addresses of all bytes.
    bytes: (u64, u64),
}

impl Tensor {
    /// Checks what is said of an array.
    ///
    /// # Errors
    ///
    /// There are more than 64 dimensions or not as many strides; an extent is negative; a size overflows; an array with
    /// elements has no address; the array leaves the address space.
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
        let mut elements = 1_i64;
        let mut overflows = false;
        for (dimension, extent) in shape.iter().copied().enumerate() {
            if extent < 0 {
                return Err(TensorError::NegativeExtent { dimension, extent });
            }
            match elements.checked_mul(extent) {
                Some(product) => elements = product,
                // A later extent of 0 makes it right.
                None => (overflows, elements) = (true, 1),
            }
        }
        let is_empty = shape.contains(&0);
        if overflows && !is_empty {
            return Err(TensorError::TooLarge);
        }
        let strides = match parts.strides {
            Some(strides) => Numbers::from_slice(strides),
            None => dense_strides(shape),
        };
        let mut tensor = Self {
            address: parts.address,
            device: parts.device,
            data_type: parts.data_type,
            shape: Numbers::from_slice(shape),
            strides,
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

    /// The addresses of all bytes, of an array with elements.
    fn find_bytes(&self) -> Result<(u64, u64), TensorError> {
        if self.address == 0 {
            return Err(TensorError::NullData { elements: self.elements });
        }
        let (mut low, mut high) = (0_i64, 0_i64);
        for (extent, stride) in self.shape.iter().zip(&self.strides) {
            let reach = (extent - 1).checked_mul(*stride).ok_or(TensorError::TooLarge)?;
            let end = if reach < 0 { &mut low } else { &mut high };
            *end = end.checked_add(reach).ok_or(TensorError::TooLarge)?;
        }
        let bits = if self.padded { self.data_type.padded_size() * 8 } else { self.data_type.element_bits() } as i128;
        // No product overflows: an i64 times 24 bits.
        // Shifts round down, also below zero.
        let begin = i128::from(self.address) + ((i128::from(low) * bits) >> 3);
        let end = i128::from(self.address) + (((i128::from(high) + 1) * bits + 7) >> 3);
        match (u64::try_from(begin), u64::try_from(end)) {
            (Ok(begin), Ok(end)) if begin != 0 && end - begin <= isize::MAX as u64 => Ok((begin, end)),
            _ => Err(TensorError::OutsideOfAddressSpace { address: self.address, low, high }),
        }
    }

    /// Where the element of index 0 lies.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Where the memory is.
    pub fn device(&self) -> TensorDevice {
        self.device
    }

    /// The type of an element.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// The extents, in elements.
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// How far neighbours are from each other, in elements. As many as extents.
    pub fn strides(&self) -> &[i64] {
        &self.strides
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// Whether nobody may write it.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether elements of less than a byte have bytes of their own.
    pub fn is_padded(&self) -> bool {
        self.padded
    }

    /// The addresses of all bytes that belong to elements, and of those between them. Negative strides reach below
    /// [`address`](Self::address).
    pub fn byte_range(&self) -> Range<u64> {
        self.bytes.0..self.bytes.1
    }

    /// Whether the elements lie side by side, the last dimension first.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.is_empty()
            || self.shape.iter().zip(&self.strides).rev().all(|(extent, stride)| {
                let fits = *extent == 1 || *stride == expected;
                expected *= extent;
                fits
            })
    }

    /// The same array at another place.
    ///
    /// # Errors
    ///
    /// It leaves the address space there.
    pub fn moved_to(&self, address: u64, device: TensorDevice) -> Result<Self, TensorError> {
        let mut moved = Self { address, device, bytes: (address, address), ..self.clone() };
        if !moved.is_empty() {
            moved.bytes = moved.find_bytes()?;
        }
        Ok(moved)
    }

    /// The same array in memory that may be written: a copy's.
    pub(crate) fn into_writable(self) -> Self {
        Self { read_only: false, ..self }
    }

    /// The same array, which nobody may write.
    #[must_use]
    pub fn into_read_only(self) -> Self {
        Self { read_only: true, ..self }
    }
}

/// The strides of an array without gaps, the last dimension first. Of one without elements they mean nothing, so they
/// may saturate.
fn dense_strides(shape: &[i64]) -> Numbers {
    let mut strides = Numbers::from_elem(1, shape.len());
    let mut stride = 1_i64;
    for (place, extent) in strides.iter_mut().zip(shape).rev() {
        *place = stride;
        stride = stride.saturating_mul((*extent).max(1));
    }
    strides
}

/// Why something is no array.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// More dimensions than there may be, or fewer than none.
    #[error("an array of {dimensions} dimensions: there may be 0 to 64")]
    TooManyDimensions {
        /// How many.
        dimensions: i64,
    },
    /// Not a stride for each dimension.
    #[error("{strides} strides for {dimensions} dimensions: each has one")]
    StrideCount {
        /// The strides.
        strides: usize,
        /// The dimensions.
        dimensions: usize,
    },
    /// An extent below 0.
    #[error("dimension {dimension} has {extent} elements: an extent is not negative")]
    NegativeExtent {
        /// Which dimension, from 0.
        dimension: usize,
        /// Its extent.
        extent: i64,
    },
    /// A product of extents, or of an extent and its stride, overflows.
    #[error("the extents and strides reach further than 64 bits can say")]
    TooLarge,
    /// Elements without an address.
    #[error("an array of {elements} elements at address 0: only one without elements may be there")]
    NullData {
        /// How many elements.
        elements: usize,
    },
    /// No extents where there are dimensions.
    #[error("an array of {dimensions} dimensions whose shape is a null pointer")]
    NullShape {
        /// How many dimensions.
        dimensions: i32,
    },
    /// The array begins before address 1 or ends after the last.
    #[error("an array at {address:#x} with elements {low} to {high} leaves the address space")]
    OutsideOfAddressSpace {
        /// Where it begins.
        address: u64,
        /// The first element in memory, counted from there.
        low: i64,
        /// The last.
        high: i64,
    },
    /// A stride in bytes that ends within an element.
    #[error("dimension {dimension} has a stride of {stride} bytes: it must be a multiple of an element's {size} bytes")]
    StrideNotMultiple {
        /// Which dimension, from 0.
        dimension: usize,
        /// Its stride in bytes.
        stride: i64,
        /// The size of an element in bytes.
        size: usize,
    },
    /// A stream that the protocol forbids.
    #[error("stream {stream} is not allowed: {rule}")]
    Stream {
        /// The number.
        stream: i64,
        /// What is allowed.
        rule: &'static str,
    },
    /// The type of the elements.
    #[error(transparent)]
    DataType(#[from] DataTypeError),
}

#[cfg(test)]
#[path = "tensor_tests.rs"]
mod tests;
