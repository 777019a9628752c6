//! Tells the software GPU which bytes the CPU has borrowed, so that it reports queued work on the same bytes. On a real
//! GPU this does nothing. Without the feature `softgpu` it compiles to nothing.

/// Bytes that the CPU has borrowed, or lent to a copy, while the value lives. The value must not outlive the real
/// borrow. The borrow of a guard without a `Drop` may end before the guard is dropped, so such a guard holds no
/// `Borrowed`, but calls [`check_read`] whenever it hands out its slice.
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

macro_rules! check {
    ($start:expr, $size:expr, $kind:ident) => {{
        #[cfg(feature = "softgpu")]
        softgpu::CpuBorrow::check($start.addr(), $size, softgpu::Borrow::$kind);
        #[cfg(not(feature = "softgpu"))]
        let _ = ($start, $size);
    }};
}

impl Borrowed {
    /// The CPU writes the bytes, and may read them.
    #[inline]
    pub fn to_write<T>(start: *const T, size: usize) -> Self {
        borrow!(start, size, Write)
    }

    /// A copy reads the CPU's bytes, and ends before this value is dropped.
    #[inline]
    pub fn lent<T>(start: *const T, size: usize) -> Self {
        borrow!(start, size, LendToRead)
    }

    /// A copy writes the CPU's bytes, and ends before this value is dropped.
    #[inline]
    pub fn lent_to_write<T>(start: *const T, size: usize) -> Self {
        borrow!(start, size, LendToWrite)
    }
}

/// Reports that the CPU reads the bytes now.
#[inline]
pub(crate) fn check_read<T>(start: *const T, size: usize) {
    check!(start, size, Read);
}

/// Reports that the CPU writes the bytes now.
#[inline]
pub(crate) fn check_write<T>(start: *const T, size: usize) {
    check!(start, size, Write);
}

/// Reports that the CPU reads shared bytes now, beside work that may use them too.
#[inline]
pub(crate) fn check_shared_read<T>(start: *const T, size: usize) {
    check!(start, size, SharedRead);
}

/// Reports that the CPU writes shared bytes now, beside work that may use them too.
#[inline]
pub(crate) fn check_shared_write<T>(start: *const T, size: usize) {
    check!(start, size, SharedWrite);
}

/// Reports that the bytes at an address of the CPU or of a device now belong to a new owner. Work that was queued
/// before is a former owner's.
#[inline]
pub(crate) fn new_owner(start: u64, size: usize) {
    #[cfg(feature = "softgpu")]
    softgpu::CpuBorrow::new_owner(start as usize, size);
    #[cfg(not(feature = "softgpu"))]
    let _ = (start, size);
}
