//! Types of elements that other libraries name at run time: DLPack's, and how numpy spells them.

use core::fmt;
use core::str::FromStr;

/// What the bits of an element mean. The numbers are DLPack's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
#[doc(alias = "DLDataTypeCode")]
pub enum TypeCode {
    /// A signed integer.
    Int = 0,
    /// An unsigned integer.
    UInt = 1,
    /// An IEEE 754 number.
    Float = 2,
    /// Bytes without a meaning of their own: structures, and types of others.
    Opaque = 3,
    /// A float of 32 bits whose lower half is left out.
    Bfloat = 4,
    /// Two floats: real and imaginary part. The bits are those of both.
    Complex = 5,
    /// A truth value in a byte.
    Bool = 6,
    /// 8 bits: 3 of the exponent, 4 of the mantissa.
    Float8E3m4 = 7,
    /// 8 bits: 4 of the exponent, 3 of the mantissa.
    Float8E4m3 = 8,
    /// As [`Float8E4m3`](Self::Float8E4m3): a bias of 11, no infinities, no negative zero.
    Float8E4m3b11fnuz = 9,
    /// As [`Float8E4m3`](Self::Float8E4m3), without infinities.
    Float8E4m3fn = 10,
    /// As [`Float8E4m3`](Self::Float8E4m3), without infinities and negative zero.
    Float8E4m3fnuz = 11,
    /// 8 bits: 5 of the exponent, 2 of the mantissa.
    Float8E5m2 = 12,
    /// As [`Float8E5m2`](Self::Float8E5m2), without infinities and negative zero.
    Float8E5m2fnuz = 13,
    /// 8 bits, all of the exponent: a power of two.
    Float8E8m0fnu = 14,
    /// 6 bits: 2 of the exponent, 3 of the mantissa, without infinities.
    Float6E2m3fn = 15,
    /// 6 bits: 3 of the exponent, 2 of the mantissa, without infinities.
    Float6E3m2fn = 16,
    /// 4 bits: 2 of the exponent, 1 of the mantissa, without infinities.
    Float4E2m1fn = 17,
}

impl TypeCode {
    /// Every code, in the order of its number.
    pub const ALL: [Self; 18] = [
        Self::Int,
        Self::UInt,
        Self::Float,
        Self::Opaque,
        Self::Bfloat,
        Self::Complex,
        Self::Bool,
        Self::Float8E3m4,
        Self::Float8E4m3,
        Self::Float8E4m3b11fnuz,
        Self::Float8E4m3fn,
        Self::Float8E4m3fnuz,
        Self::Float8E5m2,
        Self::Float8E5m2fnuz,
        Self::Float8E8m0fnu,
        Self::Float6E2m3fn,
        Self::Float6E3m2fn,
        Self::Float4E2m1fn,
    ];

    /// The code of a number; none where DLPack's list has none.
    pub const fn from_number(number: u8) -> Option<Self> {
        if (number as usize) < Self::ALL.len() { Some(Self::ALL[number as usize]) } else { None }
    }

    /// The name without bits: what numpy, ml_dtypes and DLPack call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::UInt => "uint",
            Self::Float => "float",
            Self::Opaque => "opaque",
            Self::Bfloat => "bfloat",
            Self::Complex => "complex",
            Self::Bool => "bool",
            Self::Float8E3m4 => "float8_e3m4",
            Self::Float8E4m3 => "float8_e4m3",
            Self::Float8E4m3b11fnuz => "float8_e4m3b11fnuz",
            Self::Float8E4m3fn => "float8_e4m3fn",
            Self::Float8E4m3fnuz => "float8_e4m3fnuz",
            Self::Float8E5m2 => "float8_e5m2",
            Self::Float8E5m2fnuz => "float8_e5m2fnuz",
            Self::Float8E8m0fnu => "float8_e8m0fnu",
            Self::Float6E2m3fn => "float6_e2m3fn",
            Self::Float6E3m2fn => "float6_e3m2fn",
            Self::Float4E2m1fn => "float4_e2m1fn",
        }
    }

    /// The number of bits, where a code has only one.
    const fn only_bits(self) -> Option<u8> {
        match self {
            Self::Int | Self::UInt | Self::Float | Self::Opaque | Self::Complex => None,
            Self::Bfloat => Some(16),
            Self::Float6E2m3fn | Self::Float6E3m2fn => Some(6),
            Self::Float4E2m1fn => Some(4),
            _ => Some(8),
        }
    }

    /// The number of bits, where the name says it already.
    const fn written_bits(self) -> Option<u8> {
        match self {
            Self::Bfloat => None,
            _ => self.only_bits(),
        }
    }

    const fn allows(self, bits: u8) -> bool {
        match self {
            Self::Int | Self::UInt => matches!(bits, 1 | 2 | 4 | 8 | 16 | 32 | 64 | 128),
            Self::Float => matches!(bits, 16 | 32 | 64 | 128),
            Self::Complex => matches!(bits, 32 | 64 | 128),
            Self::Opaque => bits != 0 && bits.is_multiple_of(8),
            _ => matches!(self.only_bits(), Some(only) if only == bits),
        }
    }
}

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

    /// The type as numpy's and CUDA's array interfaces spell it: byte order, kind, size.
    ///
    /// # Errors
    ///
    /// They have no such type: bfloat16, floats of 8 bits and less, types with lanes.
    pub fn typestr(self) -> Result<String, DataTypeError> {
        let none = DataTypeError::NoTypestr { data_type: self };
        let size = self.size().ok_or(none.clone())?;
        let kind = match self.code {
            TypeCode::Opaque => return Ok(format!("|V{size}")),
            _ if self.lanes != 1 => return Err(none),
            TypeCode::Int if size <= 8 => 'i',
            TypeCode::UInt if size <= 8 => 'u',
            TypeCode::Float if size <= 8 => 'f',
            TypeCode::Complex if size >= 8 => 'c',
            TypeCode::Bool => 'b',
            _ => return Err(none),
        };
        Ok(format!("{}{kind}{size}", if size == 1 { '|' } else { NATIVE }))
    }

    /// The type of a numpy typestr.
    ///
    /// # Errors
    ///
    /// It is not one, is of the other byte order, or of a kind that is no type of DLPack's (dates, text, objects).
    pub fn from_typestr(text: &str) -> Result<Self, DataTypeError> {
        let unknown = || DataTypeError::Typestr { text: shortened(text) };
        let mut letters = text.chars();
        let (Some(order), Some(kind)) = (letters.next(), letters.next()) else { return Err(unknown()) };
        let digits = letters.as_str();
        if !digits.bytes().all(|digit| digit.is_ascii_digit()) || digits.starts_with('0') {
            return Err(unknown());
        }
        let size: usize = digits.parse().map_err(|_| unknown())?;
        match order {
            '|' | '=' => {}
            '<' | '>' if order == NATIVE || size == 1 || kind == 'V' => {}
            '<' | '>' => return Err(DataTypeError::ByteOrder { text: shortened(text) }),
            _ => return Err(unknown()),
        }
        let code = match kind {
            'V' => return Self::opaque(size),
            'i' => TypeCode::Int,
            'u' => TypeCode::UInt,
            'f' => TypeCode::Float,
            'c' => TypeCode::Complex,
            'b' => TypeCode::Bool,
            _ => return Err(unknown()),
        };
        let bits = size.checked_mul(8).and_then(|bits| u8::try_from(bits).ok()).ok_or_else(unknown)?;
        // Only what is also written: numpy has no integers of 16 bytes, and its f16 is the processor's 80 bits.
        Self::new(code as u8, bits, 1).ok().filter(|data_type| data_type.typestr().is_ok()).ok_or_else(unknown)
    }
}

/// The typestr's letter for this machine's byte order.
const NATIVE: char = if cfg!(target_endian = "little") { '<' } else { '>' };

/// numpy's name, as in `float32`, `bfloat16`, `float8_e4m3fn`; with lanes as in `float32x4`.
impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code.name())?;
        if self.code.written_bits().is_none() {
            write!(f, "{}", self.bits)?;
        }
        if self.lanes == 1 { Ok(()) } else { write!(f, "x{}", self.lanes) }
    }
}

impl FromStr for DataType {
    type Err = DataTypeError;

    /// Reads what [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<Self, DataTypeError> {
        let unknown = || DataTypeError::Name { text: shortened(text) };
        let number = |digits: &str| -> Option<u16> {
            let canonical = digits.bytes().all(|digit| digit.is_ascii_digit()) && !digits.starts_with('0');
            if canonical { digits.parse().ok() } else { None }
        };
        for code in TypeCode::ALL {
            // Another code's name may begin with this one.
            let Some(rest) = text.strip_prefix(code.name()) else { continue };
            let (bits, lanes) = match rest.split_once('x') {
                // A count of one is not written.
                Some((bits, lanes)) => (bits, number(lanes).filter(|lanes| *lanes != 1)),
                None => (rest, Some(1)),
            };
            let bits = match code.written_bits() {
                Some(only) => bits.is_empty().then_some(u16::from(only)),
                None => number(bits),
            };
            if let (Some(bits), Some(lanes)) = (bits.and_then(|bits| u8::try_from(bits).ok()), lanes) {
                return Self::new(code as u8, bits, lanes);
            }
        }
        Err(unknown())
    }
}

/// Only the beginning of what a stranger wrote.
fn shortened(text: &str) -> Box<str> {
    text.chars().take(32).collect::<String>().into()
}

/// Why something is no type of elements.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DataTypeError {
    /// DLPack's list has no such code.
    #[error("type code {code} is none of DLPack's, which end at 17: a newer release of DLPack may have it")]
    UnknownCode {
        /// The code.
        code: u8,
    },
    /// The code has no type of so many bits.
    #[error("there is no type \"{}\" of {bits} bits", .code.name())]
    Bits {
        /// The code.
        code: TypeCode,
        /// The bits of a lane.
        bits: u8,
    },
    /// An element of no lanes has no bits.
    #[error("a type \"{}\" of 0 lanes: there is at least 1", .code.name())]
    NoLanes {
        /// The code.
        code: TypeCode,
    },
    /// Bytes without a meaning, too few or too many.
    #[error("an opaque type of {bytes} bytes: it may have 1 to 65535")]
    OpaqueSize {
        /// The size.
        bytes: usize,
    },
    /// The array interfaces of numpy and CUDA have no such type.
    #[error("numpy's array interface has no type for {data_type}: export it through DLPack, or as opaque bytes")]
    NoTypestr {
        /// The type.
        data_type: DataType,
    },
    /// Not a typestr, or one of a kind that is no type of DLPack's.
    #[error("\"{text}\" is no typestr of numbers, truth values or opaque bytes, such as \"<f4\"")]
    Typestr {
        /// What was given.
        text: Box<str>,
    },
    /// The other byte order.
    #[error("\"{text}\" is of the other byte order: convert it to this machine's first")]
    ByteOrder {
        /// What was given.
        text: Box<str>,
    },
    /// Not a name of a type.
    #[error("\"{text}\" is no name of a type, such as \"float32\", \"bfloat16\" or \"float32x4\"")]
    Name {
        /// What was given.
        text: Box<str>,
    },
}

/// A type of Rust's that other libraries know as well.
///
/// # Safety
///
/// A value is laid out as [`DATA_TYPE`](Self::DATA_TYPE) says, without padding.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// How others call it.
    const DATA_TYPE: DataType;
}

macro_rules! elements {
    ($($rust:ty: $name:ident;)*) => { $(
        // SAFETY: Rust lays its numbers out as the hardware does, and a bool is a byte of 0 or 1.
        unsafe impl Element for $rust {
            const DATA_TYPE: DataType = DataType::$name;
        }
    )* };
}

elements! {
    i8: INT8; i16: INT16; i32: INT32; i64: INT64;
    u8: UINT8; u16: UINT16; u32: UINT32; u64: UINT64;
    f32: FLOAT32; f64: FLOAT64; bool: BOOL;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_names_are_numpys_and_ml_dtypes() {
        let named = [
            (DataType::INT8, "int8"),
            (DataType::UINT64, "uint64"),
            (DataType::FLOAT16, "float16"),
            (DataType::BFLOAT16, "bfloat16"),
            (DataType::COMPLEX128, "complex128"),
            (DataType::BOOL, "bool"),
            (DataType::FLOAT8_E4M3FN, "float8_e4m3fn"),
            (DataType::FLOAT8_E4M3B11FNUZ, "float8_e4m3b11fnuz"),
            (DataType::FLOAT8_E5M2, "float8_e5m2"),
            (DataType::FLOAT6_E3M2FN, "float6_e3m2fn"),
            (DataType::FLOAT4_E2M1FN, "float4_e2m1fn"),
            (DataType::INT4, "int4"),
            (DataType::UINT1, "uint1"),
            (DataType::FLOAT32.with_lanes(4).unwrap(), "float32x4"),
            (DataType::opaque(5).unwrap(), "opaque8x5"),
        ];
        for (data_type, name) in named {
            assert_eq!(data_type.to_string(), name);
            assert_eq!(name.parse(), Ok(data_type));
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for text in
            ["", "x", "float", "float33", "float032", "float32x0", "float32x1", "float32x", "bool8", "int 8", "f4"]
        {
            assert!(text.parse::<DataType>().is_err(), "{text}");
        }
        let error = "float33".parse::<DataType>().unwrap_err();
        assert_eq!(error, DataTypeError::Bits { code: TypeCode::Float, bits: 33 });
        let error = "é".repeat(500).parse::<DataType>().unwrap_err();
        assert!(error.to_string().chars().count() < 150);
    }

    #[test]
    fn odd_numbers_are_refused_by_name() {
        assert_eq!(DataType::new(18, 8, 1), Err(DataTypeError::UnknownCode { code: 18 }));
        for (code, bits) in
            [(0, 0), (0, 3), (1, 12), (2, 8), (2, 80), (3, 7), (4, 32), (5, 16), (6, 1), (10, 16), (17, 8)]
        {
            let known = TypeCode::from_number(code).unwrap();
            assert_eq!(DataType::new(code, bits, 1), Err(DataTypeError::Bits { code: known, bits }));
        }
        assert_eq!(DataType::new(2, 32, 0), Err(DataTypeError::NoLanes { code: TypeCode::Float }));
        assert_eq!(DataType::opaque(0), Err(DataTypeError::OpaqueSize { bytes: 0 }));
        assert_eq!(DataType::opaque(65536), Err(DataTypeError::OpaqueSize { bytes: 65536 }));
    }

    #[test]
    fn the_numbers_of_the_codes_are_their_places() {
        for (number, code) in TypeCode::ALL.into_iter().enumerate() {
            assert_eq!(code as usize, number);
            assert_eq!(TypeCode::from_number(number as u8), Some(code));
        }
        assert_eq!(TypeCode::from_number(18), None);
    }

    #[test]
    fn sizes_of_elements_that_share_bytes() {
        assert_eq!(DataType::FLOAT4_E2M1FN.size(), None);
        assert_eq!(DataType::FLOAT4_E2M1FN.padded_size(), 1);
        assert_eq!(DataType::FLOAT4_E2M1FN.with_lanes(2).unwrap().size(), Some(1));
        assert_eq!(DataType::FLOAT6_E2M3FN.packed_size(3), Some(3)); // 18 bits
        assert_eq!(DataType::UINT1.packed_size(9), Some(2));
        assert_eq!(DataType::UINT1.packed_size(usize::MAX), Some(usize::MAX / 8 + 1));
        assert_eq!(DataType::FLOAT32.packed_size(usize::MAX), None);
        assert_eq!(DataType::COMPLEX128.size(), Some(16));
        assert!(DataType::INT4.is_sub_byte() && !DataType::BOOL.is_sub_byte());
    }

    #[test]
    fn typestrs_are_numpys() {
        let native = |text: &str| text.replace('<', &NATIVE.to_string());
        for (data_type, text) in [
            (DataType::FLOAT32, "<f4"),
            (DataType::INT8, "|i1"),
            (DataType::BOOL, "|b1"),
            (DataType::COMPLEX64, "<c8"),
            (DataType::UINT16, "<u2"),
            (DataType::opaque(16).unwrap(), "|V16"),
        ] {
            assert_eq!(data_type.typestr(), Ok(native(text)));
            assert_eq!(DataType::from_typestr(&native(text)), Ok(data_type));
        }
        for data_type in [DataType::BFLOAT16, DataType::FLOAT8_E5M2, DataType::INT4, DataType::COMPLEX32] {
            assert_eq!(data_type.typestr(), Err(DataTypeError::NoTypestr { data_type }));
        }
        let other = if NATIVE == '<' { ">f4" } else { "<f4" };
        assert!(matches!(DataType::from_typestr(other), Err(DataTypeError::ByteOrder { .. })));
        for text in [
            "",
            "<",
            "<f",
            "f4",
            "<M8",
            "|O8",
            "<U4",
            "<f16",
            "<u16",
            "|u16",
            "<i16",
            "<c4",
            "<c32",
            "<f04",
            "<f-4",
            "<i3",
            "<f99999999999999999999",
        ] {
            assert!(matches!(DataType::from_typestr(text), Err(DataTypeError::Typestr { .. })), "{text}");
        }
        assert_eq!(DataType::from_typestr(">i1"), Ok(DataType::INT8)); // a byte has no order
    }

    #[test]
    fn elements_are_as_large_as_their_types() {
        fn check<T: Element>() {
            assert_eq!(T::DATA_TYPE.size(), Some(size_of::<T>()));
        }
        check::<i8>();
        check::<u16>();
        check::<f32>();
        check::<f64>();
        check::<bool>();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 2000 }))]

        #[test]
        fn typestrs_are_read_only_if_they_are_written(order in 0..4usize, letter in 0..26u8, upper: bool, size in 0..1000u32) {
            let letter = char::from(letter + if upper { b'A' } else { b'a' });
            let text = format!("{}{letter}{size}", ["<", "|", "=", ">"][order]);
            if let Ok(data_type) = DataType::from_typestr(&text) {
                let written = data_type.typestr();
                prop_assert!(written.is_ok(), "{text}: {written:?}");
                prop_assert_eq!(DataType::from_typestr(&written.unwrap_or_default()), Ok(data_type));
            }
        }

        #[test]
        fn every_type_that_can_be_is_read_as_it_is_written(code: u8, bits: u8, lanes: u16) {
            if let Ok(data_type) = DataType::new(code % 20, bits, lanes) {
                prop_assert_eq!(data_type.to_string().parse(), Ok(data_type));
                let (packed, elements) = (data_type.packed_size(100), 100 * data_type.element_bits());
                prop_assert_eq!(packed, Some(elements.div_ceil(8)));
            }
        }

        #[test]
        fn no_text_is_read_with_a_panic(text in "\\PC{0,12}") {
            let _ = text.parse::<DataType>();
            if let Ok(data_type) = DataType::from_typestr(&text) {
                prop_assert!(data_type.size().is_some());
            }
        }
    }
}
