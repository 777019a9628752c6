//! Types of elements that other libraries name at run time: DLPack's, and how numpy spells them.

mod code;
mod element;
mod error;
mod names;
#[cfg(test)]
mod tests;

pub use code::TypeCode;
pub use element::Element;
pub use error::DataTypeError;

/// The type of an element: what it means, how many bits it has, and how many of them stand side by side as one.
///
/// Only types that can be are made: the fields are private, and [`new`](Self::new) checks.
///
/// ```
/// use cuda_mem::DataType;
/// assert_eq!(DataType::FLOAT32.to_string(), "float32");
/// assert_eq!("bfloat16".parse::<DataType>()?, DataType::BFLOAT16);
/// assert_eq!(DataType::FLOAT32.typestr()?, "<f4");
/// assert_eq!(DataType::FLOAT4_E2M1FN.packed_size(3), Some(2)); // half a byte each
/// # Ok::<(), cuda_mem::DataTypeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "DLDataType")]
pub struct DataType {
    code: TypeCode,
    bits: u8,
    lanes: u16,
}

macro_rules! types {
    ($($(#[$text:meta])* $name:ident = $code:ident, $bits:literal;)*) => {
        $($(#[$text])* pub const $name: Self = Self { code: TypeCode::$code, bits: $bits, lanes: 1 };)*
    };
}

impl DataType {
    types! {
        /// A signed integer of 2 bits.
        INT2 = Int, 2;
        /// A signed integer of 4 bits.
        INT4 = Int, 4;
        /// A signed integer of 8 bits.
        INT8 = Int, 8;
        /// A signed integer of 16 bits.
        INT16 = Int, 16;
        /// A signed integer of 32 bits.
        INT32 = Int, 32;
        /// A signed integer of 64 bits.
        INT64 = Int, 64;
        /// An unsigned integer of 1 bit.
        UINT1 = UInt, 1;
        /// An unsigned integer of 2 bits.
        UINT2 = UInt, 2;
        /// An unsigned integer of 4 bits.
        UINT4 = UInt, 4;
        /// An unsigned integer of 8 bits: a byte.
        UINT8 = UInt, 8;
        /// An unsigned integer of 16 bits.
        UINT16 = UInt, 16;
        /// An unsigned integer of 32 bits.
        UINT32 = UInt, 32;
        /// An unsigned integer of 64 bits.
        UINT64 = UInt, 64;
        /// A number of half precision.
        FLOAT16 = Float, 16;
        /// A number of single precision.
        FLOAT32 = Float, 32;
        /// A number of double precision.
        FLOAT64 = Float, 64;
        /// The upper half of a float of 32 bits.
        BFLOAT16 = Bfloat, 16;
        /// Two floats of 16 bits.
        COMPLEX32 = Complex, 32;
        /// Two floats of 32 bits.
        COMPLEX64 = Complex, 64;
        /// Two floats of 64 bits.
        COMPLEX128 = Complex, 128;
        /// A truth value in a byte.
        BOOL = Bool, 8;
        /// [`TypeCode::Float8E3m4`].
        FLOAT8_E3M4 = Float8E3m4, 8;
        /// [`TypeCode::Float8E4m3`].
        FLOAT8_E4M3 = Float8E4m3, 8;
        /// [`TypeCode::Float8E4m3b11fnuz`].
        FLOAT8_E4M3B11FNUZ = Float8E4m3b11fnuz, 8;
        /// [`TypeCode::Float8E4m3fn`].
        FLOAT8_E4M3FN = Float8E4m3fn, 8;
        /// [`TypeCode::Float8E4m3fnuz`].
        FLOAT8_E4M3FNUZ = Float8E4m3fnuz, 8;
        /// [`TypeCode::Float8E5m2`].
        FLOAT8_E5M2 = Float8E5m2, 8;
        /// [`TypeCode::Float8E5m2fnuz`].
        FLOAT8_E5M2FNUZ = Float8E5m2fnuz, 8;
        /// [`TypeCode::Float8E8m0fnu`].
        FLOAT8_E8M0FNU = Float8E8m0fnu, 8;
        /// [`TypeCode::Float6E2m3fn`].
        FLOAT6_E2M3FN = Float6E2m3fn, 6;
        /// [`TypeCode::Float6E3m2fn`].
        FLOAT6_E3M2FN = Float6E3m2fn, 6;
        /// [`TypeCode::Float4E2m1fn`].
        FLOAT4_E2M1FN = Float4E2m1fn, 4;
    }

    /// A type from DLPack's three numbers.
    ///
    /// # Errors
    ///
    /// The code is not one of DLPack's list, it has no type of so many bits, or there are no lanes.
    pub const fn new(code: u8, bits: u8, lanes: u16) -> Result<Self, DataTypeError> {
        let Some(known) = TypeCode::from_number(code) else {
            return Err(DataTypeError::UnknownCode { code });
        };
        if !known.allows(bits) {
            return Err(DataTypeError::Bits { code: known, bits });
        }
        if lanes == 0 {
            return Err(DataTypeError::NoLanes { code: known });
        }
        Ok(Self { code: known, bits, lanes })
    }

    /// Bytes without a meaning of their own: numpy's `V` types, and structures.
    ///
    /// # Errors
    ///
    /// There are no bytes, or more than 65535.
    pub const fn opaque(bytes: usize) -> Result<Self, DataTypeError> {
        if bytes == 0 || bytes > u16::MAX as usize {
            return Err(DataTypeError::OpaqueSize { bytes });
        }
        Ok(Self { code: TypeCode::Opaque, bits: 8, lanes: bytes as u16 })
    }

    /// What the bits mean.
    pub const fn code(self) -> TypeCode {
        self.code
    }

    /// The bits of one lane.
    pub const fn bits(self) -> u8 {
        self.bits
    }

    /// How many values stand side by side as one element; 1 unless it is a vector type.
    pub const fn lanes(self) -> u16 {
        self.lanes
    }

    /// The same type with other lanes.
    ///
    /// # Errors
    ///
    /// There are none.
    pub const fn with_lanes(self, lanes: u16) -> Result<Self, DataTypeError> {
        Self::new(self.code as u8, self.bits, lanes)
    }

    /// The bits of an element, of all lanes.
    pub const fn element_bits(self) -> usize {
        self.bits as usize * self.lanes as usize
    }

    /// The size of an element in bytes; none where it does not fill whole bytes.
    pub const fn size(self) -> Option<usize> {
        let bits = self.element_bits();
        if bits.is_multiple_of(8) { Some(bits / 8) } else { None }
    }

    /// The size in bytes of an element that stands in bytes of its own: the last one filled up.
    pub const fn padded_size(self) -> usize {
        self.element_bits().div_ceil(8)
    }

    /// The size in bytes of so many elements, packed without a gap; none where it overflows.
    pub const fn packed_size(self, elements: usize) -> Option<usize> {
        match self.size() {
            Some(size) => elements.checked_mul(size),
            // In two parts, so that the bits need not fit.
            None => {
                let bits = self.element_bits();
                let Some(whole) = (elements / 8).checked_mul(bits) else { return None };
                whole.checked_add((elements % 8 * bits).div_ceil(8))
            }
        }
    }

    /// Whether elements share bytes when they are packed.
    pub const fn is_sub_byte(self) -> bool {
        self.size().is_none()
    }
}
