//! Tells the software GPU what the CPU has borrowed, so that it reports queued work on the same bytes. With a GPU it does
//! nothing, and without the feature `softgpu` nothing of it is left.

/// Memory that the CPU has borrowed, or has lent to a copy, as long as the value is there. The value must not outlive the
/// borrow that it stands for: so a guard without a `Drop` of its own, whose borrow may end before it is dropped, does
/// not hold one, but calls [`check_read`] whenever it hands out its slice.
#[derive(Debug, Default)]
#[must_use = "the borrow lasts as long as the value"]
pub(crate) struct Borrowed {
    #[cfg(feature = "softgpu")]
    _told: softgpu::CpuBorrow,
}

macro_rules! borrow {
    ($start:expr, $size:expr, $kind:ident) => {{
        #[cfg(feature = "softgpu")]
        let borrowed = Borrowed { _told: softgpu::CpuBorrow::new($start.addr(), $size, softgpu::Borrow::$kind) };
        #[cfg(not(feature = "softgpu"))]
        let borrowed = {
            let _ = ($start, $size);
            Borrowed {}
        };
        borrowed
    }};
}

impl Borrowed {
    /// The CPU writes the bytes, and may read them.
    #[inline]
    pub fn to_write<T>(start: *const T, size: usize) -> Self {
        borrow!(start, size, Write)
    }

    /// A copy reads the bytes for the CPU, and is done when this value ends.
    #[inline]
    pub fn lent<T>(start: *const T, size: usize) -> Self {
        borrow!(start, size, LendToRead)
    }

    /// A copy writes the bytes for the CPU, and is done when this value ends.
    #[inline]
    pub fn lent_to_write<T>(start: *const T, size: usize) -> Self {
        borrow!(start, size, LendToWrite)
    }
}

/// The CPU reads the bytes now.
#[inline]
pub(crate) fn check_read<T>(start: *const T, size: usize) {
    let _at_once = borrow!(start, size, Read);
}

/// The CPU writes the bytes now.
#[inline]
pub(crate) fn check_write<T>(start: *const T, size: usize) {
    let _at_once = borrow!(start, size, Write);
}
