//! Rust types with an equivalent in other libraries.

use crate::DataType;

/// A Rust type with an equivalent [`DataType`], which other libraries understand.
///
/// # Safety
///
/// Values have the layout of [`DATA_TYPE`](Self::DATA_TYPE), without padding.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The equivalent type.
    const DATA_TYPE: DataType;
}

macro_rules! elements {
    ($($rust:ty: $name:ident;)*) => { $(
        // SAFETY: Rust's numbers have the hardware's layout, and a bool is one byte, 0 or 1.
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
}
