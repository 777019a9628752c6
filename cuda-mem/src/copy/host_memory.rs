//! The type of the host memory of a copy.

use super::method::HostSide;
use crate::error::call;
use crate::{Context, Result};
use core::ffi::{c_uint, c_void};
use cuda_sys::{CUdeviceptr, CUmemorytype, CUpointer_attribute as Attribute};

/// Asks the driver whether all of a range is page-locked.
pub(super) fn of(context: &Context, start: *const u8, size: usize) -> Result<HostSide> {
    let (cuda, _current) = (context.driver().raw(), context.bind()?);
    let (mut kind, mut managed): (c_uint, c_uint) = (0, 0);
    let (mut range_start, mut range_size): (CUdeviceptr, usize) = (0, 0);
    let mut attributes = [
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    ];
    let mut places: [*mut c_void; 4] = [
        (&raw mut kind).cast(),
        (&raw mut managed).cast(),
        (&raw mut range_start).cast(),
        (&raw mut range_size).cast(),
    ];
    let address = start.expose_provenance() as CUdeviceptr;
    let (count, attributes, places) = (attributes.len() as c_uint, attributes.as_mut_ptr(), places.as_mut_ptr());
    // SAFETY: each place is as wide as its attribute, and both arrays hold `count` elements. The driver looks the
    // address up and does not dereference it.
    unsafe { call!(cuda.cuPointerGetAttributes(count, attributes, places, address)) }?;
    Ok(judge(CUmemorytype(kind), managed != 0, range_start, range_size, address, size))
}

/// A range is pinned if the driver knows it as host memory from the first byte to the last. A range that only begins in
/// such memory, or spans two registrations, counts as pageable, which every method serves.
fn judge(
    kind: CUmemorytype,
    managed: bool,
    range_start: CUdeviceptr,
    range_size: usize,
    start: CUdeviceptr,
    size: usize,
) -> HostSide {
    let inside = range_start <= start && start + size as u64 <= range_start + range_size as u64;
    if kind == CUmemorytype::CU_MEMORYTYPE_HOST && !managed && inside { HostSide::Pinned } else { HostSide::Pageable }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_as_a_whole_is_pinned() {
        let host = CUmemorytype::CU_MEMORYTYPE_HOST;
        assert_eq!(judge(host, false, 100, 50, 100, 50), HostSide::Pinned);
        assert_eq!(judge(host, false, 100, 50, 120, 30), HostSide::Pinned);
        assert_eq!(judge(host, false, 100, 50, 120, 31), HostSide::Pageable);
        assert_eq!(judge(host, true, 100, 50, 100, 50), HostSide::Pageable);
        assert_eq!(judge(CUmemorytype(0), false, 0, 0, 100, 50), HostSide::Pageable);
        assert_eq!(judge(CUmemorytype::CU_MEMORYTYPE_DEVICE, false, 100, 50, 100, 50), HostSide::Pageable);
    }
}
