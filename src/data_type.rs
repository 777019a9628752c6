//! Types of elements
//!
//! Element types that libraries exchange at run time, with DLPack's numbers: a code, the bits of one lane, and the
//! number of lanes, which is 1 except for vectors. CUDAMEM_FLOAT32, which is {CUDAMEM_TYPE_FLOAT, 32, 1}, and its like
//! are values of the usual types. A record of n bytes is {CUDAMEM_TYPE_OPAQUE, 8, n}.

use crate::call::{Out, check_flags, invalid, out, run, text};
use crate::handles::cudamem_text;
use crate::status::cudamem_status;
use crate::text::new_text;
use core::ffi::c_char;
use cuda_mem::{DataType, Error};

/// An element type, laid out as DLPack's DLDataType.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_data_type {
    /// One of CUDAMEM_TYPE_... .
    pub code: u8,
    /// The bits of one lane.
    pub bits: u8,
    /// The number of lanes of an element: 1, except for vectors.
    pub lanes: u16,
}

/// Signed integers.
pub const CUDAMEM_TYPE_INT: u8 = 0;
/// Unsigned integers.
pub const CUDAMEM_TYPE_UINT: u8 = 1;
/// IEEE 754 floating-point numbers.
pub const CUDAMEM_TYPE_FLOAT: u8 = 2;
/// Opaque bytes.
pub const CUDAMEM_TYPE_OPAQUE: u8 = 3;
/// bfloat16: the upper half of a float.
pub const CUDAMEM_TYPE_BFLOAT: u8 = 4;
/// Complex numbers. The bits count both parts.
pub const CUDAMEM_TYPE_COMPLEX: u8 = 5;
/// Booleans.
pub const CUDAMEM_TYPE_BOOL: u8 = 6;
/// An 8-bit floating-point format; the suffix names it.
pub const CUDAMEM_TYPE_FLOAT8_E3M4: u8 = 7;
/// An 8-bit floating-point format; the suffix names it.
pub const CUDAMEM_TYPE_FLOAT8_E4M3: u8 = 8;
/// An 8-bit floating-point format; the suffix names it.
pub const CUDAMEM_TYPE_FLOAT8_E4M3B11FNUZ: u8 = 9;
/// An 8-bit floating-point format; the suffix names it.
pub const CUDAMEM_TYPE_FLOAT8_E4M3FN: u8 = 10;
/// An 8-bit floating-point format; the suffix names it.
pub const CUDAMEM_TYPE_FLOAT8_E4M3FNUZ: u8 = 11;
/// An 8-bit floating-point format; the suffix names it.
pub const CUDAMEM_TYPE_FLOAT8_E5M2: u8 = 12;
/// An 8-bit floating-point format; the suffix names it.
pub const CUDAMEM_TYPE_FLOAT8_E5M2FNUZ: u8 = 13;
/// An 8-bit power of two.
pub const CUDAMEM_TYPE_FLOAT8_E8M0FNU: u8 = 14;
/// A 6-bit floating-point format; the suffix names it.
pub const CUDAMEM_TYPE_FLOAT6_E2M3FN: u8 = 15;
/// A 6-bit floating-point format; the suffix names it.
pub const CUDAMEM_TYPE_FLOAT6_E3M2FN: u8 = 16;
/// A 4-bit floating-point format; the suffix names it.
pub const CUDAMEM_TYPE_FLOAT4_E2M1FN: u8 = 17;

impl From<DataType> for cudamem_data_type {
    fn from(data_type: DataType) -> Self {
        Self { code: data_type.code() as u8, bits: data_type.bits(), lanes: data_type.lanes() }
    }
}

impl TryFrom<cudamem_data_type> for DataType {
    type Error = Error;

    fn try_from(data_type: cudamem_data_type) -> Result<Self, Error> {
        Ok(DataType::new(data_type.code, data_type.bits, data_type.lanes)?)
    }
}

/// Finds the type for a name ("float32", "bfloat16", "float8_e4m3fn", "float32x4") or for a numpy typestr ("<f4",
/// "|u1").
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_data_type_find(
    name: *const c_char,
    data_type: Out<'_, cudamem_data_type>,
) -> cudamem_status {
    run("cudamem_data_type_find", || {
        let data_type = out("data_type", data_type)?;
        // SAFETY: the header requires NULL or a zero-terminated string.
        let Some(name) = unsafe { text("name", name) }? else {
            return Err(invalid("name", "NULL", "it must be the name of a type"));
        };
        let found = match name.starts_with(['<', '>', '|', '=']) {
            true => DataType::from_typestr(name),
            false => name.parse(),
        };
        data_type.write(found.map_err(Error::from)?.into());
        Ok(())
    })
}

/// A flag of cudamem_data_type_get_name: numpy's typestr instead of the name.
pub const CUDAMEM_NAME_TYPESTR: u32 = 1;

/// Gets the name of a type, as cudamem_data_type_find takes it. flags is 0 or CUDAMEM_NAME_TYPESTR.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if numpy has no such type.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_data_type_get_name(
    data_type: cudamem_data_type,
    flags: u32,
    name: Out<'_, cudamem_text>,
) -> cudamem_status {
    run("cudamem_data_type_get_name", || {
        let name = out("name", name)?;
        check_flags("flags", flags, CUDAMEM_NAME_TYPESTR)?;
        let data_type = DataType::try_from(data_type)?;
        let text = if flags == 0 { data_type.to_string() } else { data_type.typestr().map_err(Error::from)? };
        name.write(new_text(text)?);
        Ok(())
    })
}
