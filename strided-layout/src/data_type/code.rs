//! The meaning of an element's bits.

/// The meaning of an element's bits. The numbers are those of DLPack.
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
    /// Bytes without a meaning: structures, and types of other libraries.
    Opaque = 3,
    /// The upper half of a float of 32 bits.
    Bfloat = 4,
    /// Two floats: real and imaginary part. The number of bits counts both.
    Complex = 5,
    /// A boolean in one byte.
    Bool = 6,
    /// 8 bits: 3 of the exponent, 4 of the mantissa.
    Float8E3m4 = 7,
    /// 8 bits: 4 of the exponent, 3 of the mantissa.
    Float8E4m3 = 8,
    /// 8 bits: 4 of the exponent, 3 of the mantissa, with a bias of 11, no infinities, no negative zero.
    Float8E4m3b11fnuz = 9,
    /// 8 bits: 4 of the exponent, 3 of the mantissa, without infinities.
    Float8E4m3fn = 10,
    /// 8 bits: 4 of the exponent, 3 of the mantissa, without infinities and negative zero.
    Float8E4m3fnuz = 11,
    /// 8 bits: 5 of the exponent, 2 of the mantissa.
    Float8E5m2 = 12,
    /// 8 bits: 5 of the exponent, 2 of the mantissa, without infinities and negative zero.
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
    /// Every code, ordered by its number.
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

    /// The code with a number; `None` if DLPack defines none.
    pub const fn from_number(number: u8) -> Option<Self> {
        if (number as usize) < Self::ALL.len() { Some(Self::ALL[number as usize]) } else { None }
    }

    /// The name without bits, as in numpy, ml_dtypes and DLPack.
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

    /// The number of bits, for codes that allow only one.
    pub(super) const fn only_bits(self) -> Option<u8> {
        match self {
            Self::Int | Self::UInt | Self::Float | Self::Opaque | Self::Complex => None,
            Self::Bfloat => Some(16),
            Self::Float6E2m3fn | Self::Float6E3m2fn => Some(6),
            Self::Float4E2m1fn => Some(4),
            _ => Some(8),
        }
    }

    /// The number of bits, for codes whose name contains it.
    pub(super) const fn written_bits(self) -> Option<u8> {
        match self {
            Self::Bfloat => None,
            _ => self.only_bits(),
        }
    }

    pub(super) const fn allows(self, bits: u8) -> bool {
        match self {
            Self::Int | Self::UInt => matches!(bits, 1 | 2 | 4 | 8 | 16 | 32 | 64 | 128),
            Self::Float => matches!(bits, 16 | 32 | 64 | 128),
            Self::Complex => matches!(bits, 32 | 64 | 128),
            Self::Opaque => bits != 0 && bits.is_multiple_of(8),
            _ => matches!(self.only_bits(), Some(only) if only == bits),
        }
    }
}
