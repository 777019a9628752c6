//! Types of Rust's that others know.

use super::DataType;

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
