//! Managed memory: advice, prefetches, and the attributes of ranges.

use super::lab::codes::*;
use super::lab::{DEVICE_0, HOST, Lab, MIB, Run, place};
use CUmem_advise as A;
use CUmem_range_attribute as R;
use CUmemLocationType as L;
use cuda_mem::cuda_sys::*;
use std::ptr;

cases! {
    Shared sizes_and_flags,
    Shared cpu_and_device,
    Shared advice,
    Shared bad_advice,
    Shared advice_of_the_old_form,
    Shared attributes,
    Shared many_attributes,
    Shared bad_attributes,
    Shared moves,
    Shared bad_moves,
    Shared batches,
    Shared bad_batches,
}

fn sizes_and_flags(l: &mut Lab) -> Run {
    let mut address = 0;
    ask!(l, "0 bytes" => VALUE, cuMemAllocManaged(&mut address, 0, 1));
    ask!(l, "flags 0" => VALUE, cuMemAllocManaged(&mut address, 64, 0));
    for flags in [1, 2, 3, 4, 0x10] {
        if ask!(l, format!("flags {flags}"), cuMemAllocManaged(&mut address, 64, flags)) {
            ask!(l, format!("flags {flags}: free") => OK, cuMemFree_v2(address));
        }
    }
    ask!(l, "without a result", cuMemAllocManaged(ptr::null_mut(), 64, 1));
    ask!(l, "all bytes", cuMemAllocManaged(&mut address, usize::MAX, 1));
    Ok(())
}

fn cpu_and_device(l: &mut Lab) -> Run {
    let managed = l.managed(4096)?;
    // SAFETY: managed memory of this case, which no device uses now.
    unsafe { (managed as *mut u8).write_volatile(4) };
    l.bytes::<1>("the device sees", managed);
    ask!(l, "memset" => OK, cuMemsetD8_v2(managed, 6, 4096));
    ask!(l, "the context" => OK, cuCtxSynchronize());
    // SAFETY: as above.
    l.check("the CPU sees", unsafe { (managed as *mut u8).read_volatile() }, 6);
    Ok(())
}

fn advice(l: &mut Lab) -> Run {
    let managed = l.managed(4 * MIB)?;
    let node = place(L::CU_MEM_LOCATION_TYPE_HOST_NUMA, 0);
    let current = place(L::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0);
    for (name, location) in [("device", DEVICE_0), ("host", HOST), ("NUMA node 0", node), ("current node", current)] {
        for (what, kind) in [
            ("prefer", A::CU_MEM_ADVISE_SET_PREFERRED_LOCATION),
            ("prefer no more", A::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION),
            ("accessed by", A::CU_MEM_ADVISE_SET_ACCESSED_BY),
            ("accessed no more by", A::CU_MEM_ADVISE_UNSET_ACCESSED_BY),
            ("read mostly", A::CU_MEM_ADVISE_SET_READ_MOSTLY),
            ("read mostly no more", A::CU_MEM_ADVISE_UNSET_READ_MOSTLY),
        ] {
            ask!(l, format!("{what}, {name}"), cuMemAdvise_v2(managed, 4 * MIB, kind, location));
        }
    }
    Ok(())
}

fn bad_advice(l: &mut Lab) -> Run {
    let (managed, memory) = (l.managed(4 * MIB)?, l.alloc(4 * MIB)?);
    let prefer = A::CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
    ask!(l, "0 bytes", cuMemAdvise_v2(managed, 0, prefer, DEVICE_0));
    ask!(l, "a part", cuMemAdvise_v2(managed + 4096, 4096, prefer, DEVICE_0));
    ask!(l, "at 100 bytes", cuMemAdvise_v2(managed + 100, 100, prefer, DEVICE_0));
    ask!(l, "past the end", cuMemAdvise_v2(managed, 64 * MIB, prefer, DEVICE_0));
    ask!(l, "device 99", cuMemAdvise_v2(managed, 4096, prefer, place(L(1), 99)));
    ask!(l, "no place", cuMemAdvise_v2(managed, 4096, prefer, place(L(0), 0)));
    ask!(l, "unknown place", cuMemAdvise_v2(managed, 4096, prefer, place(L(77), 0)));
    ask!(l, "NUMA node 999", cuMemAdvise_v2(managed, 4096, prefer, place(L(3), 999)));
    ask!(l, "unknown advice", cuMemAdvise_v2(managed, 4096, A(77), DEVICE_0));
    ask!(l, "device memory", cuMemAdvise_v2(memory, 4096, prefer, DEVICE_0));
    ask!(l, "address 0", cuMemAdvise_v2(0, 4096, prefer, DEVICE_0));
    let heap = vec![0_u8; 8192];
    ask!(l, "the heap", cuMemAdvise_v2(heap.as_ptr() as CUdeviceptr, 4096, prefer, DEVICE_0));
    Ok(())
}

fn advice_of_the_old_form(l: &mut Lab) -> Run {
    let managed = l.managed(4 * MIB)?;
    let prefer = A::CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
    ask!(l, "device 0" => OK, cuMemAdvise(managed, 4 * MIB, prefer, 0));
    ask!(l, "the host" => OK, cuMemAdvise(managed, 4 * MIB, prefer, -1));
    ask!(l, "device -2", cuMemAdvise(managed, 4 * MIB, prefer, -2));
    ask!(l, "device 99", cuMemAdvise(managed, 4 * MIB, prefer, 99));
    ask!(l, "read mostly, device 99", cuMemAdvise(managed, 4 * MIB, A::CU_MEM_ADVISE_SET_READ_MOSTLY, 99));
    ask!(l, "unknown advice", cuMemAdvise(managed, 4 * MIB, A(77), 0));
    Ok(())
}

const ALL: [(&str, R); 8] = [
    ("read mostly", R::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY),
    ("preferred", R::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION),
    ("accessed by", R::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY),
    ("last move", R::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION),
    ("preferred kind", R::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE),
    ("preferred id", R::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID),
    ("last kind", R::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE),
    ("last id", R::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID),
];

fn state(l: &mut Lab, when: &str, address: CUdeviceptr, size: usize) {
    for (name, attribute) in ALL {
        let mut value = 77_i32;
        let data = ptr::from_mut(&mut value).cast();
        if ask!(l, format!("{when}: {name}"), cuMemRangeGetAttribute(data, 4, attribute, address, size)) {
            l.say(format!("{when}: {name} is"), value);
        }
    }
}

fn attributes(l: &mut Lab) -> Run {
    let (managed, stream) = (l.managed(4 * MIB)?, l.stream(0)?);
    state(l, "new", managed, 4 * MIB);
    need!(l, cuMemAdvise_v2(managed, 4 * MIB, A::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, DEVICE_0))?;
    need!(l, cuMemAdvise_v2(managed, 4 * MIB, A::CU_MEM_ADVISE_SET_READ_MOSTLY, DEVICE_0))?;
    need!(l, cuMemAdvise_v2(managed, 4 * MIB, A::CU_MEM_ADVISE_SET_ACCESSED_BY, DEVICE_0))?;
    need!(l, cuMemPrefetchAsync_v2(managed, 4 * MIB, DEVICE_0, 0, stream))?;
    need!(l, cuStreamSynchronize(stream))?;
    state(l, "advised", managed, 4 * MIB);
    need!(l, cuMemAdvise_v2(managed, 2 * MIB, A::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, HOST))?;
    need!(l, cuMemPrefetchAsync_v2(managed, 2 * MIB, HOST, 0, stream))?;
    need!(l, cuStreamSynchronize(stream))?;
    state(l, "half to the host", managed, 2 * MIB);
    state(l, "two halves", managed, 4 * MIB);
    Ok(())
}

fn many_attributes(l: &mut Lab) -> Run {
    let managed = l.managed(4 * MIB)?;
    let (mut one, mut two) = (77_i32, 77_i32);
    let mut data = [ptr::from_mut(&mut one).cast(), ptr::from_mut(&mut two).cast()];
    let (mut sizes, mut wanted) = ([4, 4], [ALL[0].1, ALL[1].1]);
    let (d, s, w) = (data.as_mut_ptr(), sizes.as_mut_ptr(), wanted.as_mut_ptr());
    ask!(l, "two" => OK, cuMemRangeGetAttributes(d, s, w, 2, managed, 4 * MIB));
    l.say("are", format!("{one} {two}"));
    ask!(l, "none", cuMemRangeGetAttributes(d, s, w, 0, managed, 4 * MIB));
    wanted[1] = R(77);
    ask!(l, "one of two is unknown", cuMemRangeGetAttributes(d, s, wanted.as_mut_ptr(), 2, managed, 4 * MIB));
    ask!(l, "no results", cuMemRangeGetAttributes(ptr::null_mut(), s, w, 1, managed, 4 * MIB));
    Ok(())
}

fn bad_attributes(l: &mut Lab) -> Run {
    let (managed, memory, mut value) = (l.managed(4 * MIB)?, l.alloc(4096)?, [0_i32; 4]);
    let data = value.as_mut_ptr().cast();
    let wanted = R::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION;
    let by = R::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
    for size in [0, 1, 3, 8] {
        ask!(l, format!("{size} bytes for a number"), cuMemRangeGetAttribute(data, size, wanted, managed, 4096));
    }
    for size in [0, 6, 8, 16] {
        ask!(l, format!("{size} bytes for devices"), cuMemRangeGetAttribute(data, size, by, managed, 4096));
    }
    ask!(l, "no result", cuMemRangeGetAttribute(ptr::null_mut(), 4, wanted, managed, 4096));
    ask!(l, "unknown attribute", cuMemRangeGetAttribute(data, 4, R(77), managed, 4096));
    ask!(l, "no range", cuMemRangeGetAttribute(data, 4, wanted, managed, 0));
    ask!(l, "past the end", cuMemRangeGetAttribute(data, 4, wanted, managed, 64 * MIB));
    ask!(l, "device memory", cuMemRangeGetAttribute(data, 4, wanted, memory, 64));
    ask!(l, "address 0", cuMemRangeGetAttribute(data, 4, wanted, 0, 64));
    Ok(())
}

fn moves(l: &mut Lab) -> Run {
    let (managed, stream) = (l.managed(4 * MIB)?, l.stream(0)?);
    ask!(l, "to the device" => OK, cuMemPrefetchAsync_v2(managed, 4 * MIB, DEVICE_0, 0, stream));
    ask!(l, "to the host" => OK, cuMemPrefetchAsync_v2(managed, 4 * MIB, HOST, 0, stream));
    ask!(l, "to NUMA node 0", cuMemPrefetchAsync_v2(managed, 4 * MIB, place(L(3), 0), 0, stream));
    ask!(l, "to the current node", cuMemPrefetchAsync_v2(managed, 4 * MIB, place(L(4), 0), 0, stream));
    ask!(l, "old form to the device" => OK, cuMemPrefetchAsync(managed, 4 * MIB, 0, stream));
    ask!(l, "old form to the host" => OK, cuMemPrefetchAsync(managed, 4 * MIB, -1, stream));
    ask!(l, "on the default stream" => OK, cuMemPrefetchAsync_v2(managed, 64, DEVICE_0, 0, ptr::null_mut()));
    ask!(l, "the stream" => OK, cuStreamSynchronize(stream));
    Ok(())
}

fn bad_moves(l: &mut Lab) -> Run {
    let (managed, memory, stream) = (l.managed(4 * MIB)?, l.alloc(4096)?, l.stream(0)?);
    ask!(l, "0 bytes", cuMemPrefetchAsync_v2(managed, 0, DEVICE_0, 0, stream));
    ask!(l, "flags", cuMemPrefetchAsync_v2(managed, 4096, DEVICE_0, 1, stream));
    ask!(l, "past the end", cuMemPrefetchAsync_v2(managed, 64 * MIB, DEVICE_0, 0, stream));
    ask!(l, "device 99", cuMemPrefetchAsync_v2(managed, 4096, place(L(1), 99), 0, stream));
    ask!(l, "no place", cuMemPrefetchAsync_v2(managed, 4096, place(L(0), 0), 0, stream));
    ask!(l, "NUMA node 999", cuMemPrefetchAsync_v2(managed, 4096, place(L(3), 999), 0, stream));
    ask!(l, "device memory", cuMemPrefetchAsync_v2(memory, 4096, DEVICE_0, 0, stream));
    ask!(l, "address 0", cuMemPrefetchAsync_v2(0, 4096, DEVICE_0, 0, stream));
    ask!(l, "old form, device 99", cuMemPrefetchAsync(managed, 4096, 99, stream));
    ask!(l, "old form, device -2", cuMemPrefetchAsync(managed, 4096, -2, stream));
    ask!(l, "the stream", cuStreamSynchronize(stream));
    Ok(())
}

fn batches(l: &mut Lab) -> Run {
    let (managed, stream) = (l.managed(8 * MIB)?, l.stream(0)?);
    let mut at = [managed, managed + 4 * (1 << 20)];
    let (mut sizes, mut places, mut indices) = ([2 * MIB, 4 * MIB], [DEVICE_0, HOST], [0, 1]);
    let (a, s, p, i) = (at.as_mut_ptr(), sizes.as_mut_ptr(), places.as_mut_ptr(), indices.as_mut_ptr());
    ask!(l, "move two", cuMemPrefetchBatchAsync(a, s, 2, p, i, 2, 0, stream));
    ask!(l, "move two to one place", cuMemPrefetchBatchAsync(a, s, 2, p, i, 1, 0, stream));
    ask!(l, "drop two", cuMemDiscardBatchAsync(a, s, 2, 0, stream));
    ask!(l, "drop and move two", cuMemDiscardAndPrefetchBatchAsync(a, s, 2, p, i, 1, 0, stream));
    ask!(l, "the stream", cuStreamSynchronize(stream));
    ask!(l, "drop on the default stream", cuMemDiscardBatchAsync(a, s, 2, 0, ptr::null_mut()));
    ask!(l, "the context", cuCtxSynchronize());
    Ok(())
}

fn bad_batches(l: &mut Lab) -> Run {
    let (managed, memory, stream) = (l.managed(8 * MIB)?, l.alloc(4 * MIB)?, l.stream(0)?);
    let (mut at, mut sizes, mut places, mut indices) = ([managed, memory], [MIB, MIB], [DEVICE_0, HOST], [0, 0]);
    let (a, s, p, i) = (at.as_mut_ptr(), sizes.as_mut_ptr(), places.as_mut_ptr(), indices.as_mut_ptr());
    ask!(l, "move none", cuMemPrefetchBatchAsync(a, s, 0, p, i, 1, 0, stream));
    ask!(l, "move to no places", cuMemPrefetchBatchAsync(a, s, 1, p, i, 0, 0, stream));
    ask!(l, "move to more places than ranges", cuMemPrefetchBatchAsync(a, s, 1, p, i, 2, 0, stream));
    ask!(l, "move with flags", cuMemPrefetchBatchAsync(a, s, 1, p, i, 1, 1, stream));
    ask!(l, "move device memory", cuMemPrefetchBatchAsync(a, s, 2, p, i, 1, 0, stream));
    ask!(l, "drop none", cuMemDiscardBatchAsync(a, s, 0, 0, stream));
    ask!(l, "drop with flags", cuMemDiscardBatchAsync(a, s, 1, 1, stream));
    ask!(l, "drop device memory", cuMemDiscardBatchAsync(a, s, 2, 0, stream));
    ask!(l, "drop without addresses", cuMemDiscardBatchAsync(ptr::null_mut(), s, 1, 0, stream));
    ask!(l, "drop and move to no places", cuMemDiscardAndPrefetchBatchAsync(a, s, 1, p, i, 0, 0, stream));
    ask!(l, "the stream", cuStreamSynchronize(stream));
    Ok(())
}
