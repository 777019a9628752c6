//! Element types that libraries exchange at run time: DLPack's definitions, numpy's names.

mod code;
mod error;
mod names;
#[cfg(test)]
mod tests;

pub use code::TypeCode;
pub use error::DataTypeError;

/// The type of an element: its meaning, its bits, and its lanes, the number of values side by side in one element.
///
/// Every value is a valid type: the fields are private, and [`new`](Self::new) checks them.
///
/// ```
/// use strided_layout::DataType;
/// assert_eq!(DataType::FLOAT32.to_string(), "float32");
/// assert_eq!("bfloat16".parse::<DataType>()?, DataType::BFLOAT16);
/// assert_eq!(DataType::FLOAT32.typestr()?, "<f4");
/// assert_eq!(DataType::FLOAT4_E2M1FN.packed_size(3), Some(2)); // half a byte each
/// # Ok::<(), strided_layout::DataTypeError>(())
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
        /// A boolean in one byte.
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
    /// DLPack defines no such code, the code has no type with this number of bits, or `lanes` is 0.
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

    /// A type of bytes without a meaning, as numpy's `V` types and structures.
    ///
    /// # Errors
    ///
    /// `bytes` is 0 or more than 65535.
    pub const fn opaque(bytes: usize) -> Result<Self, DataTypeError> {
        if bytes == 0 || bytes > u16::MAX as usize {
            return Err(DataTypeError::OpaqueSize { bytes });
        }
        Ok(Self { code: TypeCode::Opaque, bits: 8, lanes: bytes as u16 })
    }

    /// The opaque type of a struct. It fails to compile for a type without a size, and for one of more than 65535 bytes.
    ///
    /// ```
    /// use strided_layout::DataType;
    /// assert_eq!(DataType::structure::<[u32; 3]>(), DataType::opaque(12)?);
    /// # Ok::<(), strided_layout::DataTypeError>(())
    /// ```
    pub const fn structure<T>() -> Self {
        const { assert!(size_of::<T>() != 0 && size_of::<T>() <= u16::MAX as usize, "it must have 1 to 65535 bytes") };
        Self { code: TypeCode::Opaque, bits: 8, lanes: size_of::<T>() as u16 }
    }

    /// The meaning of the bits.
    pub const fn code(self) -> TypeCode {
        self.code
    }

    /// The bits of one lane.
    pub const fn bits(self) -> u8 {
        self.bits
    }

    /// The number of values side by side in one element; 1 unless it is a vector type.
    pub const fn lanes(self) -> u16 {
        self.lanes
    }

    /// The same type with another number of lanes.
    ///
    /// # Errors
    ///
    /// `lanes` is 0.
    pub const fn with_lanes(self, lanes: u16) -> Result<Self, DataTypeError> {
        Self::new(self.code as u8, self.bits, lanes)
    }

    /// The bits of an element, with all its lanes.
    pub const fn element_bits(self) -> usize {
        self.bits as usize * self.lanes as usize
    }

    /// The size of an element in bytes; `None` if it does not fill whole bytes.
    pub const fn size(self) -> Option<usize> {
        let bits = self.element_bits();
        if bits.is_multiple_of(8) { Some(bits / 8) } else { None }
    }

    /// The size in bytes of an element that shares no bytes with others: its bits rounded up to whole bytes.
    pub const fn padded_size(self) -> usize {
        self.element_bits().div_ceil(8)
    }

    /// The size in bytes of `elements` packed elements, without gaps; `None` if it overflows.
    pub const fn packed_size(self, elements: usize) -> Option<usize> {
        match self.size() {
            Some(size) => elements.checked_mul(size),
            // Computed in two parts, so that the number of bits cannot overflow.
            None => {
                let bits = self.element_bits();
                let Some(whole) = (elements / 8).checked_mul(bits) else { return None };
                whole.checked_add((elements % 8 * bits).div_ceil(8))
            }
        }
    }

    /// Whether packed elements share bytes.
    pub const fn is_sub_byte(self) -> bool {
        self.size().is_none()
    }
}
