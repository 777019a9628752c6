//! Virtual memory: addresses, physical memory, mappings and access.

use super::lab::codes::*;
use super::lab::{
    DEVICE_0, FDS, HOST, Lab, MIB, NO_ACCESS, NO_HANDLES, READ_WRITE, Run, Stop, access, physical, place,
};
use CUmemAllocationGranularity_flags as G;
use CUmemLocationType as L;
use cuda_mem::cuda_sys::*;
use std::ptr;

cases! {
    Shared granularity,
    Shared reservations,
    Shared reservations_freed,
    Shared creation,
    Shared bad_creation,
    Shared mapping,
    Shared access_before_the_mapping,
    Shared access_to_mappings,
    Shared bad_access,
    Shared use_before_access,
    Shared lives_of_handles,
    Shared mapped_twice,
    Shared unmapped_in_part,
    Shared freed_while_mapped,
}

/// The size of the mapped memory, which is a real driver's granularity.
pub(super) const UNIT: usize = 2 * MIB;

fn granularity(l: &mut Lab) -> Run {
    let mut unit = 0;
    let (least, best) = (G::CU_MEM_ALLOC_GRANULARITY_MINIMUM, G::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    ask!(l, "least" => OK, cuMemGetAllocationGranularity(&mut unit, &physical(NO_HANDLES), least));
    l.say("least is", unit);
    ask!(l, "best" => OK, cuMemGetAllocationGranularity(&mut unit, &physical(NO_HANDLES), best));
    l.say("best is", unit);
    for (name, location) in [
        ("host", HOST),
        ("NUMA node 0", place(L::CU_MEM_LOCATION_TYPE_HOST_NUMA, 0)),
        ("current NUMA node", place(L::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0)),
        ("device 99", place(L::CU_MEM_LOCATION_TYPE_DEVICE, 99)),
        ("no place", place(L::CU_MEM_LOCATION_TYPE_INVALID, 0)),
    ] {
        let prop = CUmemAllocationProp { location, ..physical(NO_HANDLES) };
        if ask!(l, name, cuMemGetAllocationGranularity(&mut unit, &prop, least)) {
            l.say(format!("{name} is"), unit);
        }
    }
    ask!(l, "unknown option", cuMemGetAllocationGranularity(&mut unit, &physical(NO_HANDLES), G(7)));
    ask!(l, "without a result", cuMemGetAllocationGranularity(ptr::null_mut(), &physical(NO_HANDLES), least));
    ask!(l, "without properties", cuMemGetAllocationGranularity(&mut unit, ptr::null(), least));
    Ok(())
}

fn reservations(l: &mut Lab) -> Run {
    let mut address = 0;
    for (label, size, alignment, wanted, flags) in [
        ("2 MiB", UNIT, 0, 0, 0),
        ("0 bytes", 0, 0, 0, 0),
        ("4 KiB", 4096, 0, 0, 0),
        ("64 KiB", 65536, 0, 0, 0),
        ("2 MiB and a byte", UNIT + 1, 0, 0, 0),
        ("aligned to 16 MiB", UNIT, 16 * MIB, 0, 0),
        ("aligned to 3 MiB", UNIT, 3 * MIB, 0, 0),
        ("aligned to 4 KiB", UNIT, 4096, 0, 0),
        ("unknown flags", UNIT, 0, 0, 0x100),
        ("2^60 bytes", 1 << 60, 0, 0, 0),
        ("at a wish that is not aligned", UNIT, 0, 0x7000_0000_1000, 0),
    ] {
        if ask!(l, label, cuMemAddressReserve(&mut address, size, alignment, wanted, flags)) {
            l.say(format!("{label}: at a multiple of 2 MiB"), address.is_multiple_of(2 << 20));
            if alignment > UNIT {
                l.say(format!("{label}: as asked"), address.is_multiple_of(alignment as u64));
            }
            ask!(l, format!("{label}: free"), cuMemAddressFree(address, size));
        }
    }
    ask!(l, "without a result", cuMemAddressReserve(ptr::null_mut(), UNIT, 0, 0, 0));
    Ok(())
}

/// Reserved addresses that end with the case, together with everything mapped there.
pub(super) fn reserve(l: &mut Lab, size: usize) -> Result<CUdeviceptr, Stop> {
    let mut address = 0;
    need!(l, cuMemAddressReserve(&mut address, size, 0, 0, 0))?;
    l.finally(move |l| {
        let _ = call!(l, cuMemUnmap(address, size));
        let _ = call!(l, cuMemAddressFree(address, size));
    });
    Ok(address)
}

/// Physical memory that ends with the case.
pub(super) fn create(l: &mut Lab, size: usize) -> Result<CUmemGenericAllocationHandle, Stop> {
    let mut handle = 0;
    need!(l, cuMemCreate(&mut handle, size, &physical(FDS), 0))?;
    l.finally(move |l| drop(call!(l, cuMemRelease(handle))));
    Ok(handle)
}

fn reservations_freed(l: &mut Lab) -> Run {
    let mut address = 0;
    need!(l, cuMemAddressReserve(&mut address, 4 * UNIT, 0, 0, 0))?;
    ask!(l, "less than all", cuMemAddressFree(address, UNIT));
    ask!(l, "more than all", cuMemAddressFree(address, 8 * UNIT));
    ask!(l, "the second half", cuMemAddressFree(address + 2 * UNIT as u64, 2 * UNIT));
    ask!(l, "0 bytes", cuMemAddressFree(address, 0));
    ask!(l, "all" => OK, cuMemAddressFree(address, 4 * UNIT));
    ask!(l, "again", cuMemAddressFree(address, 4 * UNIT));
    ask!(l, "address 0", cuMemAddressFree(0, UNIT));
    ask!(l, "garbage", cuMemAddressFree(0xdead_0000, UNIT));
    Ok(())
}

fn creation(l: &mut Lab) -> Run {
    let (mut handle, mut back) = (0, CUmemAllocationProp::default());
    ask!(l, "2 MiB" => OK, cuMemCreate(&mut handle, UNIT, &physical(FDS), 0));
    ask!(l, "properties back" => OK, cuMemGetAllocationPropertiesFromHandle(&mut back, handle));
    l.check("type", back.type_.0, 1);
    l.check("handles", back.requestedHandleTypes.0, 1);
    l.check("place", format!("{} {}", back.location.type_.0, back.location.id), "1 0");
    l.say("compression", back.allocFlags.compressionType);
    l.say("remote memory access", back.allocFlags.gpuDirectRDMACapable);
    ask!(l, "properties without a result", cuMemGetAllocationPropertiesFromHandle(ptr::null_mut(), handle));
    ask!(l, "release" => OK, cuMemRelease(handle));
    for (name, location) in [
        ("host", HOST),
        ("NUMA node 0", place(L::CU_MEM_LOCATION_TYPE_HOST_NUMA, 0)),
        ("current NUMA node", place(L::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0)),
    ] {
        let prop = CUmemAllocationProp { location, ..physical(NO_HANDLES) };
        if ask!(l, name, cuMemCreate(&mut handle, UNIT, &prop, 0)) {
            ask!(l, format!("{name}: properties"), cuMemGetAllocationPropertiesFromHandle(&mut back, handle));
            l.say(format!("{name}: place"), format!("{} {}", back.location.type_.0, back.location.id));
            need!(l, cuMemRelease(handle))?;
        }
    }
    Ok(())
}

fn bad_creation(l: &mut Lab) -> Run {
    let (mut handle, good) = (0, physical(NO_HANDLES));
    for (label, size, prop, flags) in [
        ("0 bytes", 0, good, 0),
        ("1 byte", 1, good, 0),
        ("2 MiB and 4 KiB", UNIT + 4096, good, 0),
        ("2^60 bytes", 1 << 60, good, 0),
        ("flags", UNIT, good, 1),
        ("type 0", UNIT, CUmemAllocationProp { type_: CUmemAllocationType(0), ..good }, 0),
        ("managed", UNIT, CUmemAllocationProp { type_: CUmemAllocationType(2), ..good }, 0),
        ("unknown type", UNIT, CUmemAllocationProp { type_: CUmemAllocationType(77), ..good }, 0),
        ("win32 handles", UNIT, physical(CUmemAllocationHandleType(2)), 0),
        ("unknown handles", UNIT, physical(CUmemAllocationHandleType(0x40)), 0),
        ("device 99", UNIT, CUmemAllocationProp { location: place(L(1), 99), ..good }, 0),
        ("device -1", UNIT, CUmemAllocationProp { location: place(L(1), -1), ..good }, 0),
        ("no place", UNIT, CUmemAllocationProp { location: place(L(0), 0), ..good }, 0),
        ("unknown place", UNIT, CUmemAllocationProp { location: place(L(77), 0), ..good }, 0),
        ("host with descriptors", UNIT, CUmemAllocationProp { location: HOST, ..physical(FDS) }, 0),
        ("NUMA node 999", UNIT, CUmemAllocationProp { location: place(L(3), 999), ..good }, 0),
    ] {
        if ask!(l, label, cuMemCreate(&mut handle, size, &prop, flags)) {
            need!(l, cuMemRelease(handle))?;
        }
    }
    ask!(l, "without a result", cuMemCreate(ptr::null_mut(), UNIT, &good, 0));
    ask!(l, "without properties", cuMemCreate(&mut handle, UNIT, ptr::null(), 0));
    Ok(())
}

fn mapping(l: &mut Lab) -> Run {
    let (address, handle) = (reserve(l, 4 * UNIT)?, create(l, 2 * UNIT)?);
    let unit = UNIT as u64;
    ask!(l, "0 bytes", cuMemMap(address, 0, 0, handle, 0));
    ask!(l, "4 KiB", cuMemMap(address, 4096, 0, handle, 0));
    ask!(l, "at 4 KiB", cuMemMap(address + 4096, UNIT, 0, handle, 0));
    ask!(l, "from 4 KiB", cuMemMap(address, UNIT, 4096, handle, 0));
    ask!(l, "flags", cuMemMap(address, 2 * UNIT, 0, handle, 1));
    ask!(l, "more than there is", cuMemMap(address, 4 * UNIT, 0, handle, 0));
    ask!(l, "a part from 0", cuMemMap(address, UNIT, 0, handle, 0));
    let _ = call!(l, cuMemUnmap(address, UNIT));
    ask!(l, "a part from 2 MiB", cuMemMap(address, UNIT, UNIT, handle, 0));
    let _ = call!(l, cuMemUnmap(address, UNIT));
    ask!(l, "all" => OK, cuMemMap(address, 2 * UNIT, 0, handle, 0));
    ask!(l, "over what is mapped", cuMemMap(address, 2 * UNIT, 0, handle, 0));
    ask!(l, "past the reservation", cuMemMap(address + 3 * unit, 2 * UNIT, 0, handle, 0));
    ask!(l, "where nothing is reserved", cuMemMap(0x10_0000_0000, 2 * UNIT, 0, handle, 0));
    ask!(l, "unmap 0 bytes", cuMemUnmap(address, 0));
    ask!(l, "unmap all that is reserved", cuMemUnmap(address, 4 * UNIT));
    ask!(l, "unmap", cuMemUnmap(address, 2 * UNIT));
    ask!(l, "unmap again", cuMemUnmap(address, 2 * UNIT));
    ask!(l, "unmap where nothing is reserved", cuMemUnmap(0x10_0000_0000, UNIT));
    Ok(())
}

/// Mapped memory with access for device 0.
pub(super) fn mapped(l: &mut Lab, units: usize) -> Result<(CUdeviceptr, CUmemGenericAllocationHandle), Stop> {
    let (address, handle) = (reserve(l, units * UNIT)?, create(l, units * UNIT)?);
    need!(l, cuMemMap(address, units * UNIT, 0, handle, 0))?;
    need!(l, cuMemSetAccess(address, units * UNIT, &access(DEVICE_0, READ_WRITE), 1))?;
    Ok((address, handle))
}

fn asked(l: &mut Lab, label: &str, location: CUmemLocation, address: CUdeviceptr) {
    let mut flags = 77;
    if ask!(l, label, cuMemGetAccess(&mut flags, &location, address)) {
        l.say(format!("{label} is"), flags);
    }
}

fn access_before_the_mapping(l: &mut Lab) -> Run {
    let (address, handle) = (reserve(l, 2 * UNIT)?, create(l, 2 * UNIT)?);
    ask!(l, "set", cuMemSetAccess(address, 2 * UNIT, &access(DEVICE_0, READ_WRITE), 1));
    asked(l, "get", DEVICE_0, address);
    ask!(l, "then map", cuMemMap(address, 2 * UNIT, 0, handle, 0));
    Ok(())
}

fn access_to_mappings(l: &mut Lab) -> Run {
    let (address, handle) = (reserve(l, 2 * UNIT)?, create(l, 2 * UNIT)?);
    need!(l, cuMemMap(address, 2 * UNIT, 0, handle, 0))?;
    asked(l, "as mapped", DEVICE_0, address);
    ask!(l, "set" => OK, cuMemSetAccess(address, 2 * UNIT, &access(DEVICE_0, READ_WRITE), 1));
    asked(l, "as set", DEVICE_0, address);
    asked(l, "inside", DEVICE_0, address + 100);
    asked(l, "of the host", HOST, address);
    ask!(l, "memset" => OK, cuMemsetD8_v2(address, 7, 2 * UNIT));
    l.bytes::<2>("bytes", address + 2 * UNIT as u64 - 2);
    let read = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ;
    ask!(l, "set to reading", cuMemSetAccess(address, 2 * UNIT, &access(DEVICE_0, read), 1));
    asked(l, "after reading was set", DEVICE_0, address);
    ask!(l, "set to none", cuMemSetAccess(address, 2 * UNIT, &access(DEVICE_0, NO_ACCESS), 1));
    asked(l, "after none was set", DEVICE_0, address);
    ask!(l, "memset without access", cuMemsetD8_v2(address, 7, 64));
    ask!(l, "the context goes on", cuCtxSynchronize());
    Ok(())
}

fn bad_access(l: &mut Lab) -> Run {
    let (address, _) = mapped(l, 2)?;
    let good = access(DEVICE_0, READ_WRITE);
    ask!(l, "half of it", cuMemSetAccess(address, UNIT, &good, 1));
    ask!(l, "0 bytes", cuMemSetAccess(address, 0, &good, 1));
    ask!(l, "4 KiB", cuMemSetAccess(address, 4096, &good, 1));
    ask!(l, "more than is mapped", cuMemSetAccess(address, 4 * UNIT, &good, 1));
    ask!(l, "no descriptions", cuMemSetAccess(address, 2 * UNIT, ptr::null(), 0));
    ask!(l, "null for one description", cuMemSetAccess(address, 2 * UNIT, ptr::null(), 1));
    ask!(l, "device 99", cuMemSetAccess(address, 2 * UNIT, &access(place(L(1), 99), READ_WRITE), 1));
    ask!(l, "the host", cuMemSetAccess(address, 2 * UNIT, &access(HOST, READ_WRITE), 1));
    ask!(l, "NUMA node 0", cuMemSetAccess(address, 2 * UNIT, &access(place(L(3), 0), READ_WRITE), 1));
    ask!(l, "unknown flags", cuMemSetAccess(address, 2 * UNIT, &access(DEVICE_0, CUmemAccess_flags(2)), 1));
    ask!(l, "get without a result", cuMemGetAccess(ptr::null_mut(), &DEVICE_0, address));
    ask!(l, "get without a place", cuMemGetAccess(&mut 0, ptr::null(), address));
    asked(l, "get of device 99", place(L(1), 99), address);
    asked(l, "get at garbage", DEVICE_0, 0xdead_0000);
    let memory = l.alloc(UNIT)?;
    asked(l, "get of cuMemAlloc's memory", DEVICE_0, memory);
    ask!(l, "set for cuMemAlloc's memory", cuMemSetAccess(memory, UNIT, &good, 1));
    Ok(())
}

fn use_before_access(l: &mut Lab) -> Run {
    let (address, handle) = (reserve(l, UNIT)?, create(l, UNIT)?);
    let byte = 1_u8;
    ask!(l, "memset of reserved addresses", cuMemsetD8_v2(address, 1, 64));
    ask!(l, "copy to reserved addresses", cuMemcpyHtoD_v2(address, ptr::from_ref(&byte).cast(), 1));
    need!(l, cuMemMap(address, UNIT, 0, handle, 0))?;
    ask!(l, "memset before access", cuMemsetD8_v2(address, 1, 64));
    ask!(l, "copy before access", cuMemcpyHtoD_v2(address, ptr::from_ref(&byte).cast(), 1));
    ask!(l, "copy between before access", cuMemcpyDtoD_v2(address, address + 4096, 64));
    ask!(l, "the context goes on", cuCtxSynchronize());
    Ok(())
}

fn lives_of_handles(l: &mut Lab) -> Run {
    let (address, mut handle) = (reserve(l, UNIT)?, 0);
    need!(l, cuMemCreate(&mut handle, UNIT, &physical(NO_HANDLES), 0))?;
    need!(l, cuMemMap(address, UNIT, 0, handle, 0))?;
    ask!(l, "release while mapped" => OK, cuMemRelease(handle));
    ask!(l, "access after the release" => OK, cuMemSetAccess(address, UNIT, &access(DEVICE_0, READ_WRITE), 1));
    ask!(l, "memset after the release" => OK, cuMemsetD8_v2(address, 5, 64));
    l.bytes::<1>("bytes after the release", address);
    ask!(l, "unmap" => OK, cuMemUnmap(address, UNIT));
    ask!(l, "memset after the end", cuMemsetD8_v2(address, 5, 64));
    Ok(())
}

fn mapped_twice(l: &mut Lab) -> Run {
    let (address, handle) = mapped(l, 1)?;
    let second = reserve(l, UNIT)?;
    if ask!(l, "map a second time", cuMemMap(second, UNIT, 0, handle, 0)) {
        need!(l, cuMemSetAccess(second, UNIT, &access(DEVICE_0, READ_WRITE), 1))?;
        need!(l, cuMemsetD8_v2(address, 9, 64))?;
        need!(l, cuCtxSynchronize())?;
        l.bytes::<1>("what one writes the other sees", second);
    }
    Ok(())
}

fn unmapped_in_part(l: &mut Lab) -> Run {
    let (address, _) = mapped(l, 2)?;
    let unit = UNIT as u64;
    ask!(l, "the first half", cuMemUnmap(address, UNIT));
    ask!(l, "memset of the first half", cuMemsetD8_v2(address, 1, 64));
    ask!(l, "memset of the second half", cuMemsetD8_v2(address + unit, 1, 64));
    ask!(l, "the second half", cuMemUnmap(address + unit, UNIT));
    ask!(l, "all", cuMemUnmap(address, 2 * UNIT));
    let (whole, one, two) = (reserve(l, 2 * UNIT)?, create(l, UNIT)?, create(l, UNIT)?);
    need!(l, cuMemMap(whole, UNIT, 0, one, 0))?;
    need!(l, cuMemMap(whole + unit, UNIT, 0, two, 0))?;
    ask!(l, "access to two mappings at once", cuMemSetAccess(whole, 2 * UNIT, &access(DEVICE_0, READ_WRITE), 1));
    ask!(l, "memset over two mappings", cuMemsetD8_v2(whole + unit - 64, 1, 128));
    ask!(l, "two mappings at once", cuMemUnmap(whole, 2 * UNIT));
    Ok(())
}

fn freed_while_mapped(l: &mut Lab) -> Run {
    let (address, _) = mapped(l, 1)?;
    ask!(l, "free the addresses", cuMemAddressFree(address, UNIT));
    ask!(l, "memset after that", cuMemsetD8_v2(address, 1, 64));
    ask!(l, "unmap after that", cuMemUnmap(address, UNIT));
    Ok(())
}
