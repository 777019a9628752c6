//! Names of types: numpy's names and typestrs.

use super::{DataType, DataTypeError, TypeCode};
use core::fmt;
use core::str::FromStr;

/// The typestr's letter for this machine's byte order.
pub(super) const NATIVE: char = if cfg!(target_endian = "little") { '<' } else { '>' };

impl DataType {
    /// The type's name in the array interfaces of numpy and CUDA: byte order, kind, size.
    ///
    /// # Errors
    ///
    /// The array interfaces do not have the type: bfloat16, floats of 8 bits or fewer, types with several lanes.
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

    /// Reads a numpy typestr.
    ///
    /// # Errors
    ///
    /// The text is not a typestr, does not have this machine's byte order, or names a kind that DLPack does not have
    /// (dates, text, objects).
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
        // Accepts only what `typestr` writes: numpy has no integers of 16 bytes, and its f16 is the x87 format of 80
        // bits.
        Self::new(code as u8, bits, 1).ok().filter(|data_type| data_type.typestr().is_ok()).ok_or_else(unknown)
    }
}

/// Writes numpy's name, such as `float32`, `bfloat16`, `float8_e4m3fn`; with several lanes `float32x4`.
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

    /// Reads the output of [`Display`](fmt::Display).
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
                // `Display` never writes a count of 1.
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

/// The beginning of a caller's text, for an error message.
fn shortened(text: &str) -> Box<str> {
    text.chars().take(32).collect::<String>().into()
}
