//! How types are written: numpy's names and typestrs.

use super::{DataType, DataTypeError, TypeCode};
use core::fmt;
use core::str::FromStr;

/// The typestr's letter for this machine's byte order.
pub(super) const NATIVE: char = if cfg!(target_endian = "little") { '<' } else { '>' };

impl DataType {
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
