//! Reserved addresses, physical memory, and its mappings.

use crate::common::{Machine, both, machine};
use crate::cu;
use cuda_sys::*;
use softgpu::{Kind, Misuse, MisuseReport, Settings};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;
use std::sync::mpsc::channel;

const VALUE: u32 = 1;
const UNIT: usize = 2 << 20;

fn prop(shared: bool) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: CUmemAllocationHandleType(u32::from(shared)),
        location: device(0),
        ..Default::default()
    }
}

fn device(id: i32) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id }
}

fn wish(id: i32, flags: u32) -> CUmemAccessDesc {
    CUmemAccessDesc { location: device(id), flags: CUmemAccess_flags(flags) }
}

fn reserve(m: &Machine, units: usize) -> CUdeviceptr {
    let mut at = 0;
    assert_eq!(cu!(m, cuMemAddressReserve(&mut at, units * UNIT, 0, 0, 0)), 0);
    assert_eq!(at as usize % UNIT, 0);
    at
}

fn create(m: &Machine, units: usize, shared: bool) -> u64 {
    let mut handle = 0;
    assert_eq!(cu!(m, cuMemCreate(&mut handle, units * UNIT, &prop(shared), 0)), 0);
    handle
}

#[test]
fn memory_is_mapped_in_pieces_and_used_as_one() {
    both(|m| {
        let (at, one, two) = (reserve(m, 3), create(m, 1, false), create(m, 2, false));
        assert_eq!(cu!(m, cuMemMap(at, UNIT, 0, one, 0)), 0);
        assert_eq!(cu!(m, cuMemMap(at + UNIT as u64, 2 * UNIT, 0, two, 0)), 0);
        // No device may use the memory before cuMemSetAccess, and then only the named one.
        assert_eq!(cu!(m, cuMemsetD8_v2(at, 1, 1)), VALUE);
        let mut flags = 9;
        assert_eq!(cu!(m, cuMemGetAccess(&mut flags, &device(0), at)), 0);
        assert_eq!(flags, 0);
        assert_eq!(cu!(m, cuMemSetAccess(at, 3 * UNIT, &wish(0, 3), 1)), 0);
        assert_eq!(cu!(m, cuMemGetAccess(&mut flags, &device(0), at)), 0);
        assert_eq!(flags, 3);
        // A fill across two physical allocations.
        assert_eq!(cu!(m, cuMemsetD8_v2(at, 7, 3 * UNIT)), 0);
        assert_eq!(m.read(at + UNIT as u64 - 1, 2), [7, 7]);
        assert_eq!(cu!(m, cuMemsetD8_v2(at, 7, 3 * UNIT + 1)), VALUE);
        // Releasing a handle leaves its mapping.
        assert_eq!(cu!(m, cuMemRelease(one)), 0);
        assert_eq!(m.read(at, 1), [7]);
        let (mut again, mut told) = (0, CUmemAllocationProp::default());
        assert_eq!(cu!(m, cuMemRetainAllocationHandle(&mut again, ptr::with_exposed_provenance_mut(at as usize))), 0);
        assert_eq!(again, one);
        assert_eq!(cu!(m, cuMemGetAllocationPropertiesFromHandle(&mut told, again)), 0);
        assert_eq!(told.location.type_, CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE);
        assert_eq!((cu!(m, cuMemRelease(again)), cu!(m, cuMemRelease(again))), (0, VALUE));
        assert_eq!(cu!(m, cuMemRelease(two)), 0);
        assert_eq!(softgpu::ledger().count(Kind::Mapping), 2);
        // Only whole mappings can be unmapped, and only empty reservations can be freed.
        assert_eq!(cu!(m, cuMemAddressFree(at, 3 * UNIT)), VALUE);
        assert_eq!(cu!(m, cuMemUnmap(at, 2 * UNIT)), VALUE);
        assert_eq!(cu!(m, cuMemUnmap(at, 3 * UNIT)), 0);
        assert_eq!(cu!(m, cuMemsetD8_v2(at, 7, 1)), VALUE);
        assert_eq!(cu!(m, cuMemAddressFree(at, UNIT)), VALUE);
        assert_eq!(cu!(m, cuMemAddressFree(at, 3 * UNIT)), 0);
    });
}

#[test]
fn one_memory_at_two_addresses_is_one() {
    both(|m| {
        let (one, two, handle) = (reserve(m, 1), reserve(m, 1), create(m, 1, false));
        for (at, flags) in [(one, 3), (two, 1)] {
            assert_eq!(cu!(m, cuMemMap(at, UNIT, 0, handle, 0)), 0);
            assert_eq!(cu!(m, cuMemSetAccess(at, UNIT, &wish(0, flags), 1)), 0);
        }
        assert_eq!(cu!(m, cuMemsetD8_v2(one + 5, 9, 1)), 0);
        assert_eq!(m.read(two + 5, 1), [9]);
        // Read-only memory cannot be written.
        assert_eq!(cu!(m, cuMemsetD8_v2(two + 5, 9, 1)), VALUE);
        assert_eq!(cu!(m, cuMemRelease(handle)), 0);
        for at in [one, two] {
            assert_eq!(cu!(m, cuMemUnmap(at, UNIT)), 0);
            assert_eq!(cu!(m, cuMemAddressFree(at, UNIT)), 0);
        }
    });
}

#[test]
fn bad_sizes_places_and_overlaps_are_refused() {
    let m = machine(Settings { memory: 8 << 20, ..Settings::default() });
    let (mut at, mut handle, mut unit) = (0, 0, 0);
    let option = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    assert_eq!(cu!(m, cuMemGetAllocationGranularity(&mut unit, &prop(false), option)), 0);
    assert_eq!(unit, UNIT);
    for (size, alignment, flags) in [(0, 0, 0), (UNIT + 1, 0, 0), (UNIT, 3, 0), (UNIT, 0, 1)] {
        assert_eq!(cu!(m, cuMemAddressReserve(&mut at, size, alignment, 0, flags)), VALUE);
    }
    assert_eq!(cu!(m, cuMemAddressReserve(&mut at, UNIT, 1 << 30, 0, 0)), 0);
    assert_eq!(at % (1 << 30), 0);
    assert_eq!(cu!(m, cuMemAddressFree(at, UNIT)), 0);
    for size in [0, 4096, UNIT + 1] {
        assert_eq!(cu!(m, cuMemCreate(&mut handle, size, &prop(false), 0)), VALUE);
    }
    assert_eq!(cu!(m, cuMemCreate(&mut handle, 8 * UNIT, &prop(false), 0)), 2);
    let managed = CUmemAllocationProp { type_: CUmemAllocationType(2), ..prop(false) };
    assert_eq!(cu!(m, cuMemCreate(&mut handle, UNIT, &managed, 0)), VALUE);
    assert_eq!(cu!(m, cuMemRelease(0x1234)), VALUE);

    let (at, handle) = (reserve(&m, 2), create(&m, 1, false));
    assert_eq!(cu!(m, cuMemMap(at + 4096, UNIT, 0, handle, 0)), VALUE);
    assert_eq!(cu!(m, cuMemMap(at, UNIT / 2, 0, handle, 0)), 801);
    assert_eq!(cu!(m, cuMemMap(at + 2 * UNIT as u64, UNIT, 0, handle, 0)), VALUE);
    assert_eq!(cu!(m, cuMemMap(at, UNIT, 0, handle, 0)), 0);
    assert_eq!(cu!(m, cuMemMap(at, UNIT, 0, handle, 0)), VALUE);
    assert_eq!(cu!(m, cuMemSetAccess(at, 2 * UNIT, &wish(0, 3), 1)), VALUE);
    assert_eq!(cu!(m, cuMemSetAccess(at, UNIT, &wish(0, 2), 1)), VALUE);
    assert_eq!(cu!(m, cuMemSetAccess(at, UNIT, &wish(9, 3), 1)), VALUE);
    let mut fd = -1;
    let posix = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    assert_eq!(cu!(m, cuMemExportToShareableHandle((&raw mut fd).cast(), handle, posix, 0)), VALUE);
    assert_eq!(cu!(m, cuMemUnmap(at, UNIT)), 0);
    assert_eq!(cu!(m, cuMemRelease(handle)), 0);
    assert_eq!(cu!(m, cuMemAddressFree(at, 2 * UNIT)), 0);
    m.finish();
}

#[test]
fn exported_memory_is_imported_as_the_same_memory() {
    let m = machine(Settings::default());
    let (handle, mut fd, mut other) = (create(&m, 1, true), -1, 0);
    let posix = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    assert_eq!(cu!(m, cuMemExportToShareableHandle((&raw mut fd).cast(), handle, posix, 0)), 0);
    let as_pointer = |fd: i32| ptr::without_provenance_mut(fd as usize);
    assert_eq!(cu!(m, cuMemImportFromShareableHandle(&mut other, as_pointer(fd), posix)), 0);
    assert_eq!(cu!(m, cuMemImportFromShareableHandle(&mut other, as_pointer(9999), posix)), 999);
    // SAFETY: the descriptor is still ours after the import.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    let at = reserve(&m, 2);
    for (n, handle) in [handle, other].into_iter().enumerate() {
        assert_eq!(cu!(m, cuMemMap(at + (n * UNIT) as u64, UNIT, 0, handle, 0)), 0);
        assert_eq!(cu!(m, cuMemRelease(handle)), 0);
    }
    assert_eq!(cu!(m, cuMemSetAccess(at, 2 * UNIT, &wish(0, 3), 1)), 0);
    assert_eq!(cu!(m, cuMemsetD8_v2(at + 100, 3, 1)), 0);
    assert_eq!(m.read(at + UNIT as u64 + 100, 1), [3]);
    assert_eq!(cu!(m, cuMemUnmap(at, 2 * UNIT)), 0);
    assert_eq!(cu!(m, cuMemAddressFree(at, 2 * UNIT)), 0);
    m.finish();
}

/// Maps new memory.
fn map(m: &Machine, at: CUdeviceptr) {
    let handle = create(m, 1, false);
    assert_eq!(cu!(m, cuMemMap(at, UNIT, 0, handle, 0)), 0);
    assert_eq!(cu!(m, cuMemRelease(handle)), 0);
}

#[test]
fn calls_of_virtual_memory_do_not_wait_for_work() {
    for strict in [false, true] {
        let m = machine(Settings { strict, ..Settings::default() });
        let (at, stream) = (reserve(&m, 2), m.stream(1));
        map(&m, at);
        assert_eq!(cu!(m, cuMemSetAccess(at, UNIT, &wish(0, 3), 1)), 0);
        let (open, gate) = channel::<()>();
        m.launch(stream, move || gate.recv().unwrap_or_default());
        assert_eq!(cu!(m, cuMemsetD8Async(at, 7, UNIT, stream)), 0);
        // None of these returns before the host function, if it waits.
        assert_eq!(cu!(m, cuMemUnmap(at, UNIT)), 0);
        assert_eq!(cu!(m, cuMemsetD8_v2(at, 1, 1)), VALUE);
        let told = |report: &MisuseReport| (report.misuse, report.call, report.address);
        let reports: Vec<_> = softgpu::misuse().iter().map(told).collect();
        assert_eq!(reports[0], (Misuse::FreeWhileInUse, "cuMemUnmap", at));
        // The work goes on without a fault, whatever is mapped there by then.
        for place in [at, at + UNIT as u64] {
            map(&m, place);
        }
        open.send(()).unwrap();
        assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
        // The end of the old mapping leaves the new one.
        assert_eq!(cu!(m, cuMemSetAccess(at, 2 * UNIT, &wish(0, 3), 1)), 0);
        assert_eq!(cu!(m, cuMemsetD8_v2(at, 3, 2 * UNIT)), 0);
        assert_eq!(m.read(at + UNIT as u64 - 1, 2), [3, 3]);
        assert_eq!(cu!(m, cuMemUnmap(at, 2 * UNIT)), 0);
        assert_eq!(cu!(m, cuMemAddressFree(at, 2 * UNIT)), 0);
        assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
        m.finish();
    }
}

/// The work is done in every run, but nobody has waited for it.
#[test]
fn an_unmap_after_work_that_nobody_saw_end_is_reported() {
    let m = machine(Settings { races: true, ..Settings::default() });
    let (at, stream) = (reserve(&m, 1), m.stream(1));
    for waits in [true, false] {
        map(&m, at);
        assert_eq!(cu!(m, cuMemSetAccess(at, UNIT, &wish(0, 3), 1)), 0);
        assert_eq!(cu!(m, cuMemsetD8Async(at, 7, UNIT, stream)), 0);
        if waits {
            assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
        } else {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(cu!(m, cuMemUnmap(at, UNIT)), 0);
        let reports: Vec<_> = softgpu::misuse().iter().map(|report| (report.misuse, report.other)).collect();
        assert_eq!(reports, if waits { vec![] } else { vec![(Misuse::FreeWhileInUse, Some("a fill"))] });
    }
    assert_eq!(cu!(m, cuMemAddressFree(at, UNIT)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    m.finish();
}
