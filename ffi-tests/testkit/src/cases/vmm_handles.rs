//! Handles of physical memory: retained, shared, released too often.

use super::lab::codes::*;
use super::lab::{DEVICE_0, FDS, Lab, NO_HANDLES, READ_WRITE, Run, access, physical};
use super::vmm::{UNIT, create, mapped, reserve};
use cuda_mem::cuda_sys::*;
use std::ptr;

cases! {
    Shared retained,
    Shared exported,
    Shared bad_exports,
    Shared remote_memory_access,
    Shared frees_by_the_wrong_function,
    Alone released_twice,
    Alone handle_of_nobody,
}

fn retained(l: &mut Lab) -> Run {
    let (address, handle) = mapped(l, 1)?;
    let mut again = 0;
    if ask!(l, "at the start" => OK, cuMemRetainAllocationHandle(&mut again, address as *mut _)) {
        l.say("the same handle", again == handle);
        ask!(l, "release it" => OK, cuMemRelease(again));
    }
    if ask!(l, "inside", cuMemRetainAllocationHandle(&mut again, (address + 100) as *mut _)) {
        need!(l, cuMemRelease(again))?;
    }
    let memory = l.alloc(UNIT)?;
    ask!(l, "of cuMemAlloc's memory", cuMemRetainAllocationHandle(&mut again, memory as *mut _));
    let empty = reserve(l, UNIT)?;
    ask!(l, "of reserved addresses", cuMemRetainAllocationHandle(&mut again, empty as *mut _));
    ask!(l, "of null", cuMemRetainAllocationHandle(&mut again, ptr::null_mut()));
    ask!(l, "without a result", cuMemRetainAllocationHandle(ptr::null_mut(), address as *mut _));
    Ok(())
}

fn exported(l: &mut Lab) -> Run {
    let (address, handle) = mapped(l, 1)?;
    let (mut fd, mut other) = (-1_i32, 0);
    let kind = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    ask!(l, "export" => OK, cuMemExportToShareableHandle(ptr::from_mut(&mut fd).cast(), handle, kind, 0));
    let os = std::ptr::without_provenance_mut(usize::try_from(fd).unwrap_or(usize::MAX));
    if ask!(l, "import in the same process", cuMemImportFromShareableHandle(&mut other, os, kind)) {
        l.say("another handle", other != handle);
        let second = reserve(l, UNIT)?;
        ask!(l, "map the import", cuMemMap(second, UNIT, 0, other, 0));
        ask!(l, "its access", cuMemSetAccess(second, UNIT, &access(DEVICE_0, READ_WRITE), 1));
        need!(l, cuMemsetD8_v2(address, 6, 64))?;
        need!(l, cuCtxSynchronize())?;
        l.bytes::<1>("the import sees", second);
        let mut back = CUmemAllocationProp::default();
        ask!(l, "its properties", cuMemGetAllocationPropertiesFromHandle(&mut back, other));
        l.say("its handles", back.requestedHandleTypes.0);
        let mut third = 0;
        ask!(l, "import again", cuMemImportFromShareableHandle(&mut third, os, kind));
        l.say("the same handle again", third == other);
        ask!(l, "release" => OK, cuMemRelease(other));
    }
    // SAFETY: the descriptor is this case's own.
    unsafe { libc::close(fd) };
    Ok(())
}

fn bad_exports(l: &mut Lab) -> Run {
    let (mut handle, mut fd, mut other) = (0, -1_i32, 0);
    need!(l, cuMemCreate(&mut handle, UNIT, &physical(NO_HANDLES), 0))?;
    l.finally(move |l| drop(call!(l, cuMemRelease(handle))));
    let out = ptr::from_mut(&mut fd).cast();
    ask!(l, "of memory without handles", cuMemExportToShareableHandle(out, handle, FDS, 0));
    let shared = create(l, UNIT)?;
    ask!(l, "with flags", cuMemExportToShareableHandle(out, shared, FDS, 1));
    ask!(l, "of no type", cuMemExportToShareableHandle(out, shared, NO_HANDLES, 0));
    let win32 = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_WIN32;
    ask!(l, "of another type", cuMemExportToShareableHandle(out, shared, win32, 0));
    ask!(l, "without a result", cuMemExportToShareableHandle(ptr::null_mut(), shared, FDS, 0));
    let minus = ptr::without_provenance_mut(usize::MAX);
    ask!(l, "import descriptor -1", cuMemImportFromShareableHandle(&mut other, minus, FDS));
    // SAFETY: a path that exists everywhere.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
    let os = ptr::without_provenance_mut(usize::try_from(null).unwrap_or(usize::MAX));
    ask!(l, "import a descriptor of something else", cuMemImportFromShareableHandle(&mut other, os, FDS));
    ask!(l, "import of no type", cuMemImportFromShareableHandle(&mut other, os, NO_HANDLES));
    // SAFETY: the descriptor is this case's own.
    unsafe { libc::close(null) };
    Ok(())
}

fn remote_memory_access(l: &mut Lab) -> Run {
    let (address, mut handle, mut prop) = (reserve(l, UNIT)?, 0, physical(NO_HANDLES));
    prop.allocFlags.gpuDirectRDMACapable = 1;
    ask!(l, "create", cuMemCreate(&mut handle, UNIT, &prop, 0));
    l.finally(move |l| drop(call!(l, cuMemRelease(handle))));
    need!(l, cuMemMap(address, UNIT, 0, handle, 0))?;
    need!(l, cuMemSetAccess(address, UNIT, &access(DEVICE_0, READ_WRITE), 1))?;
    let capable = CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE;
    let value = l.pointer::<u32>(capable, address);
    l.say("capable", value);
    let (mut fd, kind) = (-1_i32, CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
    if ask!(l, "dma-buf", cuMemGetHandleForAddressRange(ptr::from_mut(&mut fd).cast(), address, UNIT, kind, 0)) {
        // SAFETY: the descriptor is this case's own.
        unsafe { libc::close(fd) };
    }
    let (plain, _) = mapped(l, 1)?;
    let value = l.pointer::<u32>(capable, plain);
    l.say("capable without the flag", value);
    if ask!(l, "dma-buf without it", cuMemGetHandleForAddressRange(ptr::from_mut(&mut fd).cast(), plain, UNIT, kind, 0))
    {
        // SAFETY: the descriptor is this case's own.
        unsafe { libc::close(fd) };
    }
    Ok(())
}

fn frees_by_the_wrong_function(l: &mut Lab) -> Run {
    let (address, _) = mapped(l, 1)?;
    ask!(l, "cuMemFree", cuMemFree_v2(address));
    ask!(l, "cuMemFreeAsync", cuMemFreeAsync(address, ptr::null_mut()));
    ask!(l, "cuMemFreeHost", cuMemFreeHost(address as *mut _));
    ask!(l, "memset" => OK, cuMemsetD8_v2(address, 1, 64));
    Ok(())
}

fn released_twice(l: &mut Lab) -> Run {
    let mut handle = 0;
    need!(l, cuMemCreate(&mut handle, UNIT, &physical(NO_HANDLES), 0))?;
    ask!(l, "release" => OK, cuMemRelease(handle));
    ask!(l, "again", cuMemRelease(handle));
    Ok(())
}

fn handle_of_nobody(l: &mut Lab) -> Run {
    let (address, mut prop, mut fd) = (reserve(l, UNIT)?, CUmemAllocationProp::default(), -1_i32);
    ask!(l, "release 0", cuMemRelease(0));
    ask!(l, "map 0", cuMemMap(address, UNIT, 0, 0, 0));
    ask!(l, "properties of 0", cuMemGetAllocationPropertiesFromHandle(&mut prop, 0));
    ask!(l, "export 0", cuMemExportToShareableHandle(ptr::from_mut(&mut fd).cast(), 0, FDS, 0));
    Ok(())
}
