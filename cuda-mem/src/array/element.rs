//! Rust types with an equivalent in other libraries.

use crate::DataType;

/// A Rust type with an equivalent [`DataType`], which other libraries understand.
///
/// Implemented for the numbers of Rust and for `bool`; with the feature `half` for `f16` and `bf16` of the crate `half`.
/// Programs implement it for their own types. The compiler refuses a view or an export of a type whose size is not that
/// of [`DATA_TYPE`](Self::DATA_TYPE). Whether the bits have the meaning of that type is the program's matter: a wrong
/// meaning gives wrong numbers, and nothing worse.
///
/// A small float of the program, in views and in DLPack:
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// # let stream = cuda_mem::Stream::new(&context)?;
/// use cuda_mem::bytemuck::{Pod, Zeroable};
/// use cuda_mem::{Allocate, DataType, Element, memory::DeviceMemory};
///
/// #[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
/// #[bytemuck(crate = "cuda_mem::bytemuck")] // not needed by packages that depend on bytemuck
/// #[repr(transparent)]
/// struct Fp8(u8);
///
/// impl Element for Fp8 {
///     const DATA_TYPE: DataType = DataType::FLOAT8_E4M3FN;
/// }
///
/// let weights = DeviceMemory::new(&context).from_slice(&[Fp8(0x38), Fp8(0x40)], &stream)?; // 1 and 2
/// assert_eq!(weights.view(&[2, 1])?.to_vec::<Fp8>()?, [Fp8(0x38), Fp8(0x40)]);
/// assert!(weights.view(&[2])?.to_vec::<u8>().is_err(), "a copy converts nothing");
/// let exported = weights.into_shared().tensor().to_dlpack(&Default::default())?;
/// assert_eq!(exported.check()?.tensor().data_type().to_string(), "float8_e4m3fn");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Element: Copy + Send + Sync + 'static {
    /// The equivalent type. It is as large as `Self`.
    const DATA_TYPE: DataType;
}

/// The type of an element. Fails to compile if its size is not that of `T`, on which the bounds of views rely.
pub(crate) const fn data_type<T: Element>() -> DataType {
    const {
        let is_as_large = matches!(T::DATA_TYPE.size(), Some(size) if size == size_of::<T>());
        assert!(is_as_large, "an `Element` has the size of its `DATA_TYPE`");
    }
    T::DATA_TYPE
}

macro_rules! elements {
    ($($rust:ty: $name:ident;)*) => { $(
        impl Element for $rust {
            const DATA_TYPE: DataType = DataType::$name;
        }
    )* };
}

elements! {
    i8: INT8; i16: INT16; i32: INT32; i64: INT64;
    u8: UINT8; u16: UINT16; u32: UINT32; u64: UINT64;
    f32: FLOAT32; f64: FLOAT64; bool: BOOL;
}

#[cfg(feature = "half")]
elements! {
    half::f16: FLOAT16; half::bf16: BFLOAT16;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_as_large_as_their_types() {
        fn check<T: Element>() {
            assert_eq!(data_type::<T>().size(), Some(size_of::<T>()));
        }
        check::<i8>();
        check::<u16>();
        check::<f32>();
        check::<f64>();
        check::<bool>();
    }
}
