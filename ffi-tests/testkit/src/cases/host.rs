//! Pinned host memory, and memory that the caller registers.

use super::lab::codes::*;
use super::lab::{Lab, Run};
use cuda_mem::cuda_sys::*;
use std::ffi::c_void;
use std::ptr;

cases! {
    Shared sizes,
    Shared flags,
    Shared frees,
    Shared device_addresses,
    Shared flags_of_memory,
    Shared registration,
    Shared registration_of_parts,
    Shared registration_over_each_other,
    Shared registration_flags,
    Shared registration_of_odd_places,
    Shared registration_of_device_memory,
    Shared registration_and_the_wrong_free,
}

fn sizes(l: &mut Lab) -> Run {
    let mut address: *mut c_void = ptr::dangling_mut();
    ask!(l, "cuMemHostAlloc of 0 bytes" => OK, cuMemHostAlloc(&mut address, 0, 0));
    l.check("cuMemHostAlloc of 0 bytes gives null", address.is_null(), true);
    address = ptr::dangling_mut();
    ask!(l, "cuMemAllocHost of 0 bytes" => OK, cuMemAllocHost_v2(&mut address, 0));
    l.check("cuMemAllocHost of 0 bytes gives null", address.is_null(), true);
    ask!(l, "cuMemHostAlloc without a result", cuMemHostAlloc(ptr::null_mut(), 64, 0));
    ask!(l, "cuMemAllocHost without a result", cuMemAllocHost_v2(ptr::null_mut(), 64));
    ask!(l, "cuMemAllocHost of all bytes", cuMemAllocHost_v2(&mut address, usize::MAX));
    ask!(l, "cuMemHostAlloc of all bytes", cuMemHostAlloc(&mut address, usize::MAX, 0));
    if ask!(l, "cuMemAllocHost of 1 byte" => OK, cuMemAllocHost_v2(&mut address, 1)) {
        l.say("1 byte is at a multiple of 4096", address.addr().is_multiple_of(4096));
        ask!(l, "free it" => OK, cuMemFreeHost(address));
    }
    Ok(())
}

fn flags(l: &mut Lab) -> Run {
    for flags in [0, 1, 2, 3, 4, 7, 8, 0x10, 0x100, u32::MAX] {
        let (mut address, mut seen) = (ptr::null_mut(), 0);
        if ask!(l, format!("flags {flags:#x}"), cuMemHostAlloc(&mut address, 64, flags)) {
            ask!(l, format!("flags {flags:#x}: asked"), cuMemHostGetFlags(&mut seen, address));
            l.say(format!("flags {flags:#x}: are then"), format!("{seen:#x}"));
            need!(l, cuMemFreeHost(address))?;
        }
    }
    let mut address = ptr::null_mut();
    ask!(l, "0 bytes with unknown flags", cuMemHostAlloc(&mut address, 0, 0x100));
    Ok(())
}

fn frees(l: &mut Lab) -> Run {
    let host = l.host(4096)?.cast::<c_void>();
    ask!(l, "garbage" => VALUE, cuMemFreeHost(0xdead_beef_usize as *mut _));
    ask!(l, "null" => OK, cuMemFreeHost(ptr::null_mut()));
    ask!(l, "address + 16", cuMemFreeHost(host.wrapping_byte_add(16)));
    ask!(l, "address" => OK, cuMemFreeHost(host));
    ask!(l, "again", cuMemFreeHost(host));
    Ok(())
}

fn device_addresses(l: &mut Lab) -> Run {
    let (host, mut device) = (l.host(4096)?.cast::<c_void>(), 0);
    ask!(l, "base" => OK, cuMemHostGetDevicePointer_v2(&mut device, host, 0));
    l.check("the same address", device == host as CUdeviceptr, true);
    ask!(l, "inside" => OK, cuMemHostGetDevicePointer_v2(&mut device, host.wrapping_byte_add(100), 0));
    l.check("inside: the same address", device == host as CUdeviceptr + 100, true);
    ask!(l, "with flags", cuMemHostGetDevicePointer_v2(&mut device, host, 1));
    ask!(l, "without a result", cuMemHostGetDevicePointer_v2(ptr::null_mut(), host, 0));
    ask!(l, "null", cuMemHostGetDevicePointer_v2(&mut device, ptr::null_mut(), 0));
    let heap = vec![0_u8; 64];
    ask!(l, "the heap", cuMemHostGetDevicePointer_v2(&mut device, heap.as_ptr().cast_mut().cast(), 0));
    let memory = l.alloc(64)?;
    ask!(l, "device memory", cuMemHostGetDevicePointer_v2(&mut device, memory as *mut _, 0));
    let managed = l.managed(64)?;
    ask!(l, "managed memory", cuMemHostGetDevicePointer_v2(&mut device, managed as *mut _, 0));
    Ok(())
}

fn flags_of_memory(l: &mut Lab) -> Run {
    let (host, mut flags) = (l.host(4096)?.cast::<c_void>(), 99);
    ask!(l, "base" => OK, cuMemHostGetFlags(&mut flags, host));
    l.say("base: flags", flags);
    ask!(l, "inside", cuMemHostGetFlags(&mut flags, host.wrapping_byte_add(100)));
    ask!(l, "null", cuMemHostGetFlags(&mut flags, ptr::null_mut()));
    ask!(l, "without a result", cuMemHostGetFlags(ptr::null_mut(), host));
    let heap = vec![0_u8; 64];
    ask!(l, "the heap", cuMemHostGetFlags(&mut flags, heap.as_ptr().cast_mut().cast()));
    let memory = l.alloc(64)?;
    ask!(l, "device memory", cuMemHostGetFlags(&mut flags, memory as *mut _));
    Ok(())
}

/// Anonymous pages that end with the case.
fn pages(l: &mut Lab, count: usize) -> *mut c_void {
    let length = count * 4096;
    // SAFETY: fresh anonymous memory.
    let address = unsafe {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        libc::mmap(ptr::null_mut(), length, access, kind, -1, 0)
    };
    l.finally(move |_| {
        // SAFETY: these are the pages of above, and the case has unregistered them.
        unsafe { libc::munmap(address, length) };
    });
    address
}

fn registration(l: &mut Lab) -> Run {
    let address = pages(l, 4);
    ask!(l, "register" => OK, cuMemHostRegister_v2(address, 4 * 4096, 0));
    ask!(l, "register again", cuMemHostRegister_v2(address, 4 * 4096, 0));
    ask!(l, "a smaller part again", cuMemHostRegister_v2(address, 4096, 0));
    let (mut device, mut flags) = (0, 99);
    ask!(l, "device address", cuMemHostGetDevicePointer_v2(&mut device, address, 0));
    l.say("the same address", device == address as CUdeviceptr);
    ask!(l, "flags", cuMemHostGetFlags(&mut flags, address));
    l.say("flags are", flags);
    ask!(l, "memset by the device", cuMemsetD8_v2(address as CUdeviceptr, 7, 4096));
    ask!(l, "the context" => OK, cuCtxSynchronize());
    // SAFETY: mapped memory of this case.
    l.say("the CPU sees", unsafe { address.cast::<u8>().read_volatile() });
    ask!(l, "unregister inside", cuMemHostUnregister(address.wrapping_byte_add(4096)));
    ask!(l, "unregister" => OK, cuMemHostUnregister(address));
    ask!(l, "unregister again", cuMemHostUnregister(address));
    ask!(l, "device address afterwards", cuMemHostGetDevicePointer_v2(&mut device, address, 0));
    Ok(())
}

fn registration_of_parts(l: &mut Lab) -> Run {
    let address = pages(l, 4);
    for (label, offset, size) in
        [("100 bytes", 0, 100), ("at 100 bytes", 100, 100), ("a page at 1 byte", 1, 4096), ("0 bytes", 0, 0)]
    {
        let part = address.wrapping_byte_add(offset);
        if ask!(l, label, cuMemHostRegister_v2(part, size, 0)) {
            let mut device = 0;
            let after = part.wrapping_byte_add(size);
            ask!(l, format!("{label}: device address behind"), cuMemHostGetDevicePointer_v2(&mut device, after, 0));
            ask!(l, format!("{label}: unregister"), cuMemHostUnregister(part));
        }
    }
    Ok(())
}

fn registration_over_each_other(l: &mut Lab) -> Run {
    let address = pages(l, 8);
    let at = |page: usize| address.wrapping_byte_add(page * 4096);
    ask!(l, "pages 2 to 4" => OK, cuMemHostRegister_v2(at(2), 2 * 4096, 0));
    ask!(l, "pages 1 to 3", cuMemHostRegister_v2(at(1), 2 * 4096, 0));
    ask!(l, "pages 3 to 5", cuMemHostRegister_v2(at(3), 2 * 4096, 0));
    ask!(l, "pages 0 to 8", cuMemHostRegister_v2(at(0), 8 * 4096, 0));
    ask!(l, "pages 4 to 6, beside", cuMemHostRegister_v2(at(4), 2 * 4096, 0));
    for page in [0, 1, 2, 3, 4] {
        let _ = call!(l, cuMemHostUnregister(at(page)));
    }
    let (low, high) = (at(6), at(6).wrapping_byte_add(100));
    ask!(l, "the first 100 bytes of a page" => OK, cuMemHostRegister_v2(low, 100, 0));
    ask!(l, "the next 100 bytes of it", cuMemHostRegister_v2(high, 100, 0));
    ask!(l, "unregister the first" => OK, cuMemHostUnregister(low));
    ask!(l, "unregister the second", cuMemHostUnregister(high));
    Ok(())
}

fn registration_flags(l: &mut Lab) -> Run {
    let address = pages(l, 1);
    for flags in [1, 2, 3, 4, 8, 0xa, 0x10, u32::MAX] {
        if ask!(l, format!("flags {flags:#x}"), cuMemHostRegister_v2(address, 4096, flags)) {
            let mut seen = 0;
            ask!(l, format!("flags {flags:#x}: asked"), cuMemHostGetFlags(&mut seen, address));
            l.say(format!("flags {flags:#x}: are then"), format!("{seen:#x}"));
            need!(l, cuMemHostUnregister(address))?;
        }
    }
    Ok(())
}

fn registration_of_odd_places(l: &mut Lab) -> Run {
    ask!(l, "null", cuMemHostRegister_v2(ptr::null_mut(), 4096, 0));
    ask!(l, "unmapped memory", cuMemHostRegister_v2(0x10_0000_usize as *mut _, 4096, 0));
    static CONSTANT: [u8; 8192] = [1; 8192];
    let constant = CONSTANT.as_ptr().cast_mut().cast::<c_void>();
    if ask!(l, "read-only memory", cuMemHostRegister_v2(constant, 4096, 0)) {
        need!(l, cuMemHostUnregister(constant))?;
    }
    let address = pages(l, 2);
    // SAFETY: this is the second of this case's pages, which nothing uses.
    unsafe { libc::mprotect(address.wrapping_byte_add(4096), 4096, libc::PROT_NONE) };
    ask!(l, "one page of two may not be touched", cuMemHostRegister_v2(address, 2 * 4096, 0));
    ask!(l, "all bytes", cuMemHostRegister_v2(address, usize::MAX, 0));
    Ok(())
}

fn registration_of_device_memory(l: &mut Lab) -> Run {
    let (memory, host, managed) = (l.alloc(4096)?, l.host(4096)?, l.managed(4096)?);
    ask!(l, "pinned memory", cuMemHostRegister_v2(host.cast(), 4096, 0));
    ask!(l, "managed memory", cuMemHostRegister_v2(managed as *mut _, 4096, 0));
    ask!(l, "device memory", cuMemHostRegister_v2(memory as *mut _, 4096, 0));
    Ok(())
}

fn registration_and_the_wrong_free(l: &mut Lab) -> Run {
    let address = pages(l, 1);
    need!(l, cuMemHostRegister_v2(address, 4096, 0))?;
    ask!(l, "cuMemFreeHost", cuMemFreeHost(address));
    ask!(l, "cuMemFree", cuMemFree_v2(address as CUdeviceptr));
    ask!(l, "cuMemFreeAsync", cuMemFreeAsync(address as CUdeviceptr, ptr::null_mut()));
    ask!(l, "cuMemHostUnregister", cuMemHostUnregister(address));
    Ok(())
}
