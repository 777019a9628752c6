//! Memory and events that are shared with other processes.

use super::Role;
use super::lab::codes::*;
use super::lab::{DEVICE_0, FDS, HOST, Lab, MIB, NO_HANDLES, READ_WRITE, Run, Stop, access, physical, place, pool_of};
use cuda_mem::cuda_sys::*;
use std::ffi::c_void;
use std::ptr;

cases! {
    Shared handles_of_memory,
    Shared handles_of_other_memory,
    Shared opened_in_the_same_process,
    Shared opened_in_another_process,
    Shared opened_inside_an_allocation,
    Shared events_in_another_process,
    Shared pools_exported,
    Shared blocks_before_their_pool,
    Shared pools_imported_in_the_same_process,
    Shared pools_in_another_process,
    Shared numa_pools_exported,
    Shared bad_pool_imports,
    Shared virtual_memory_in_another_process,
}

/// The roles of other processes in these cases.
pub const ROLES: &[Role] = &[
    Role { name: "memory", run: memory_importer },
    Role { name: "event", run: event_importer },
    Role { name: "pool", run: pool_importer },
    Role { name: "physical", run: physical_importer },
];

fn bytes_of(handle: &[core::ffi::c_char; 64]) -> Vec<u8> {
    handle.iter().map(|byte| byte.to_ne_bytes()[0]).collect()
}

fn handle_of(bytes: &[u8]) -> Result<[core::ffi::c_char; 64], Stop> {
    let bytes: [u8; 64] = bytes.try_into().map_err(|_| Stop("no handle".to_owned()))?;
    Ok(bytes.map(|byte| core::ffi::c_char::from_ne_bytes([byte])))
}

fn handles_of_memory(l: &mut Lab) -> Run {
    let (memory, mut handle, mut other) = (l.alloc(4096)?, CUipcMemHandle::default(), CUipcMemHandle::default());
    ask!(l, "base" => OK, cuIpcGetMemHandle(&mut handle, memory));
    ask!(l, "again" => OK, cuIpcGetMemHandle(&mut other, memory));
    l.say("the same bytes", handle.reserved == other.reserved);
    ask!(l, "base + 256" => OK, cuIpcGetMemHandle(&mut other, memory + 256));
    l.say("the bytes of the base", handle.reserved == other.reserved);
    ask!(l, "past the end", cuIpcGetMemHandle(&mut other, memory + 4096));
    ask!(l, "without a result", cuIpcGetMemHandle(ptr::null_mut(), memory));
    Ok(())
}

fn handles_of_other_memory(l: &mut Lab) -> Run {
    let (mut handle, mut ordered, heap) = (CUipcMemHandle::default(), 0, vec![0_u8; 64]);
    need!(l, cuMemAllocAsync(&mut ordered, 4096, ptr::null_mut()))?;
    l.finally(move |l| drop(call!(l, cuMemFree_v2(ordered))));
    ask!(l, "pool memory" => VALUE, cuIpcGetMemHandle(&mut handle, ordered));
    let (host, managed) = (l.host(64)?, l.managed(64)?);
    ask!(l, "host memory", cuIpcGetMemHandle(&mut handle, host as CUdeviceptr));
    ask!(l, "managed memory", cuIpcGetMemHandle(&mut handle, managed));
    ask!(l, "the heap", cuIpcGetMemHandle(&mut handle, heap.as_ptr() as CUdeviceptr));
    ask!(l, "0", cuIpcGetMemHandle(&mut handle, 0));
    ask!(l, "garbage", cuIpcGetMemHandle(&mut handle, 0xdead_0000));
    Ok(())
}

fn opened_in_the_same_process(l: &mut Lab) -> Run {
    let (memory, mut handle, mut address) = (l.alloc(4096)?, CUipcMemHandle::default(), 0);
    need!(l, cuIpcGetMemHandle(&mut handle, memory))?;
    ask!(l, "open" => CONTEXT, cuIpcOpenMemHandle_v2(&mut address, handle, 1));
    ask!(l, "open a forged handle" => VALUE, cuIpcOpenMemHandle_v2(&mut address, CUipcMemHandle::default(), 1));
    ask!(l, "open without flags", cuIpcOpenMemHandle_v2(&mut address, handle, 0));
    ask!(l, "open with unknown flags", cuIpcOpenMemHandle_v2(&mut address, handle, 0x100));
    ask!(l, "open without a result", cuIpcOpenMemHandle_v2(ptr::null_mut(), handle, 1));
    ask!(l, "close what was not opened", cuIpcCloseMemHandle(memory));
    ask!(l, "close 0", cuIpcCloseMemHandle(0));
    Ok(())
}

fn opened_in_another_process(l: &mut Lab) -> Run {
    let (memory, mut handle) = (l.alloc(4096)?, CUipcMemHandle::default());
    need!(l, cuMemsetD8_v2(memory, 0x2a, 4096))?;
    need!(l, cuCtxSynchronize())?;
    need!(l, cuIpcGetMemHandle(&mut handle, memory))?;
    l.other_process("memory", &bytes_of(&handle.reserved))?;
    l.bytes::<2>("what the other wrote", memory);
    Ok(())
}

fn opened_inside_an_allocation(l: &mut Lab) -> Run {
    let (memory, mut handle) = (l.alloc(4 * MIB)?, CUipcMemHandle::default());
    need!(l, cuMemsetD8_v2(memory, 0x11, 4 * MIB))?;
    need!(l, cuMemsetD8_v2(memory + 256, 0x22, 256))?;
    need!(l, cuCtxSynchronize())?;
    need!(l, cuIpcGetMemHandle(&mut handle, memory + 256))?;
    l.other_process("memory", &bytes_of(&handle.reserved))
}

fn memory_importer(l: &mut Lab, payload: &[u8]) -> Run {
    let handle = CUipcMemHandle { reserved: handle_of(payload)? };
    let (mut address, mut again, mut base, mut size) = (0, 0, 0, 0);
    ask!(l, "open" => OK, cuIpcOpenMemHandle_v2(&mut address, handle, 1));
    l.bytes::<2>("bytes", address);
    ask!(l, "open again", cuIpcOpenMemHandle_v2(&mut again, handle, 1));
    l.say("the same address", address == again);
    ask!(l, "range", cuMemGetAddressRange_v2(&mut base, &mut size, address));
    l.say("begins with the range", address == base);
    l.say("size", size);
    ask!(l, "write", cuMemsetD8_v2(address, 0x33, 1));
    ask!(l, "wait", cuCtxSynchronize());
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE;
    let value = l.pointer::<u32>(attribute, address);
    l.say("can be shared further", value);
    let mut further = CUipcMemHandle::default();
    ask!(l, "handle of the import", cuIpcGetMemHandle(&mut further, address));
    ask!(l, "cuMemFree of the import", cuMemFree_v2(address));
    ask!(l, "close" => OK, cuIpcCloseMemHandle(address));
    ask!(l, "use after one close of two", cuMemsetD8_v2(address, 0x44, 1));
    ask!(l, "close again", cuIpcCloseMemHandle(address));
    ask!(l, "close once more", cuIpcCloseMemHandle(address));
    ask!(l, "use after the end", cuMemsetD8_v2(address, 0x55, 1));
    Ok(())
}

fn events_in_another_process(l: &mut Lab) -> Run {
    let (event, mut handle) = (l.event(6)?, CUipcEventHandle::default());
    need!(l, cuIpcGetEventHandle(&mut handle, event))?;
    need!(l, cuEventRecord(event, ptr::null_mut()))?;
    need!(l, cuCtxSynchronize())?;
    l.other_process("event", &bytes_of(&handle.reserved))
}

fn event_importer(l: &mut Lab, payload: &[u8]) -> Run {
    let (handle, mut event, mut again) =
        (CUipcEventHandle { reserved: handle_of(payload)? }, ptr::null_mut(), ptr::null_mut());
    ask!(l, "open" => OK, cuIpcOpenEventHandle(&mut event, handle));
    ask!(l, "query", cuEventQuery(event));
    ask!(l, "synchronize", cuEventSynchronize(event));
    ask!(l, "wait", cuStreamWaitEvent(ptr::null_mut(), event, 0));
    ask!(l, "record", cuEventRecord(event, ptr::null_mut()));
    ask!(l, "open again", cuIpcOpenEventHandle(&mut again, handle));
    l.say("the same handle", event == again);
    let mut further = CUipcEventHandle::default();
    ask!(l, "handle of the import", cuIpcGetEventHandle(&mut further, event));
    ask!(l, "the stream", cuCtxSynchronize());
    ask!(l, "destroy" => OK, cuEventDestroy_v2(event));
    Ok(())
}

fn descriptor(fd: i32) -> *mut c_void {
    ptr::without_provenance_mut(usize::try_from(fd).unwrap_or(usize::MAX))
}

/// A pool's descriptor, which ends with the case and is inherited by processes that the case starts.
fn export(l: &mut Lab, pool: CUmemoryPool) -> Result<i32, Stop> {
    let mut fd = -1_i32;
    need!(l, cuMemPoolExportToShareableHandle(ptr::from_mut(&mut fd).cast(), pool, FDS, 0))?;
    inherit(l, fd);
    Ok(fd)
}

fn inherit(l: &mut Lab, fd: i32) {
    // SAFETY: the descriptor is the case's own.
    unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    l.finally(move |_| {
        // SAFETY: as above.
        unsafe { libc::close(fd) };
    });
}

fn pools_exported(l: &mut Lab) -> Run {
    let (shared, own) = (l.pool(&pool_of(DEVICE_0, FDS))?, l.pool(&pool_of(DEVICE_0, NO_HANDLES))?);
    let (mut fd, mut data) = (-1_i32, CUmemPoolPtrExportData::default());
    let out = ptr::from_mut(&mut fd).cast();
    if ask!(l, "export" => OK, cuMemPoolExportToShareableHandle(out, shared, FDS, 0)) {
        // SAFETY: the descriptor is this case's own.
        unsafe { libc::close(fd) };
    }
    ask!(l, "export with flags", cuMemPoolExportToShareableHandle(out, shared, FDS, 1));
    ask!(l, "export as no type", cuMemPoolExportToShareableHandle(out, shared, NO_HANDLES, 0));
    let win32 = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_WIN32;
    ask!(l, "export as another type", cuMemPoolExportToShareableHandle(out, shared, win32, 0));
    ask!(l, "export a pool without handles", cuMemPoolExportToShareableHandle(out, own, FDS, 0));
    let mut usual = ptr::null_mut();
    need!(l, cuDeviceGetDefaultMemPool(&mut usual, 0))?;
    ask!(l, "export the default pool", cuMemPoolExportToShareableHandle(out, usual, FDS, 0));
    let (block, plain) = (l.block(shared, 4096, ptr::null_mut())?, l.block(own, 4096, ptr::null_mut())?);
    ask!(l, "export a block" => OK, cuMemPoolExportPointer(&mut data, block));
    ask!(l, "export inside a block", cuMemPoolExportPointer(&mut data, block + 256));
    ask!(l, "export a block of a pool without handles", cuMemPoolExportPointer(&mut data, plain));
    let memory = l.alloc(4096)?;
    ask!(l, "export cuMemAlloc's memory", cuMemPoolExportPointer(&mut data, memory));
    ask!(l, "export 0", cuMemPoolExportPointer(&mut data, 0));
    ask!(l, "export without a result", cuMemPoolExportPointer(ptr::null_mut(), block));
    Ok(())
}

fn blocks_before_their_pool(l: &mut Lab) -> Run {
    let node = place(CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, 0);
    for (name, location) in [("device", DEVICE_0), ("host", node)] {
        let pool = l.pool(&pool_of(location, FDS))?;
        let (early, mut data) = (l.block(pool, 4096, ptr::null_mut())?, CUmemPoolPtrExportData::default());
        ask!(l, format!("{name}: a block before the pool" ) => VALUE, cuMemPoolExportPointer(&mut data, early));
        export(l, pool)?;
        ask!(l, format!("{name}: the same block after the pool"), cuMemPoolExportPointer(&mut data, early));
        let late = l.block(pool, 4096, ptr::null_mut())?;
        ask!(l, format!("{name}: a block allocated after the pool" ) => OK, cuMemPoolExportPointer(&mut data, late));
    }
    Ok(())
}

fn pools_imported_in_the_same_process(l: &mut Lab) -> Run {
    let pool = l.pool(&pool_of(DEVICE_0, FDS))?;
    let (fd, block) = (export(l, pool)?, l.block(pool, 4096, ptr::null_mut())?);
    need!(l, cuMemsetD8_v2(block, 0x2a, 4096))?;
    let mut data = CUmemPoolPtrExportData::default();
    need!(l, cuMemPoolExportPointer(&mut data, block))?;
    imported(l, fd, &mut data);
    l.bytes::<2>("the block at the end", block);
    Ok(())
}

/// Imports a pool twice, and a block of it twice.
fn imported(l: &mut Lab, fd: i32, data: &mut CUmemPoolPtrExportData) {
    let (mut pool, mut again, mut one, mut two, mut block) = (ptr::null_mut(), ptr::null_mut(), 0, 0, 0);
    ask!(l, "import" => OK, cuMemPoolImportFromShareableHandle(&mut pool, descriptor(fd), FDS, 0));
    ask!(l, "import again" => OK, cuMemPoolImportFromShareableHandle(&mut again, descriptor(fd), FDS, 0));
    l.say("the same pool", pool == again);
    ask!(l, "allocate from it" => VALUE, cuMemAllocFromPoolAsync(&mut block, 64, pool, ptr::null_mut()));
    let mut flags = CUmemAccess_flags(77);
    ask!(l, "access of device 0", cuMemPoolGetAccess(&mut flags, pool, &mut DEVICE_0.clone()));
    l.say("access of device 0 is", flags.0);
    ask!(l, "set access", cuMemPoolSetAccess(pool, &access(DEVICE_0, READ_WRITE), 1));
    let mut fd = -1_i32;
    ask!(l, "export it", cuMemPoolExportToShareableHandle(ptr::from_mut(&mut fd).cast(), pool, FDS, 0));
    ask!(l, "trim it", cuMemPoolTrimTo(pool, 0));
    let (mut used, attribute) = (0_u64, CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    ask!(l, "ask for what is used", cuMemPoolGetAttribute(pool, attribute, ptr::from_mut(&mut used).cast()));
    let mut forged = CUmemPoolPtrExportData::default();
    ask!(l, "import a forged block" => VALUE, cuMemPoolImportPointer(&mut one, pool, &mut forged));
    ask!(l, "import a block" => OK, cuMemPoolImportPointer(&mut one, pool, data));
    // A process maps memory of the host once. Memory of the device keeps its address.
    ask!(l, "import it again", cuMemPoolImportPointer(&mut two, pool, data));
    l.say("the same address", one == two);
    l.bytes::<2>("its bytes", one);
    ask!(l, "memset it", cuMemsetD8_v2(one, 0x2a, 2));
    let mut copied = [0_u8; 2];
    ask!(l, "cuMemcpy from it", cuMemcpy(copied.as_mut_ptr() as CUdeviceptr, one, 2));
    l.say("cuMemcpy gives", format!("{copied:02x?}"));
    ask!(l, "import it by the second pool", cuMemPoolImportPointer(&mut two, again, data));
    l.say("the same address by the second pool", one == two);
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
    let mut of: CUmemoryPool = ptr::null_mut();
    ask!(l, "its pool", cuPointerGetAttribute(ptr::from_mut(&mut of).cast(), attribute, one));
    l.say("is the imported pool", of == pool);
    ask!(l, "free it", cuMemFreeAsync(one, ptr::null_mut()));
    ask!(l, "wait" => OK, cuCtxSynchronize());
    ask!(l, "touch it after one free", cuMemsetD8_v2(two, 0x33, 1));
    ask!(l, "free it again", cuMemFreeAsync(two, ptr::null_mut()));
    ask!(l, "wait again", cuCtxSynchronize());
    ask!(l, "destroy", cuMemPoolDestroy(pool));
    if pool != again {
        ask!(l, "destroy the second", cuMemPoolDestroy(again));
    }
}

fn pools_in_another_process(l: &mut Lab) -> Run {
    let pool = l.pool(&pool_of(DEVICE_0, FDS))?;
    let (fd, block) = (export(l, pool)?, l.block(pool, 4096, ptr::null_mut())?);
    need!(l, cuMemsetD8_v2(block, 0x2a, 4096))?;
    need!(l, cuCtxSynchronize())?;
    let mut data = CUmemPoolPtrExportData::default();
    need!(l, cuMemPoolExportPointer(&mut data, block))?;
    let mut payload = fd.to_ne_bytes().to_vec();
    payload.extend_from_slice(&data.reserved);
    l.other_process("pool", &payload)?;
    ask!(l, "the owner frees it" => OK, cuMemFreeAsync(block, ptr::null_mut()));
    Ok(())
}

fn fd_of(payload: &[u8]) -> Result<i32, Stop> {
    let bytes =
        payload.get(..4).and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| Stop("no descriptor".to_owned()))?;
    Ok(i32::from_ne_bytes(bytes))
}

fn pool_importer(l: &mut Lab, payload: &[u8]) -> Run {
    let reserved = payload[4..].try_into().map_err(|_| Stop("no block".to_owned()))?;
    imported(l, fd_of(payload)?, &mut CUmemPoolPtrExportData { reserved });
    Ok(())
}

fn numa_pools_exported(l: &mut Lab) -> Run {
    let node = place(CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, 0);
    let pool = l.pool(&pool_of(node, FDS))?;
    need!(l, cuMemPoolSetAccess(pool, &access(DEVICE_0, READ_WRITE), 1))?;
    let (fd, block) = (export(l, pool)?, l.block(pool, 4096, ptr::null_mut())?);
    need!(l, cuMemsetD8_v2(block, 0x2a, 4096))?;
    need!(l, cuCtxSynchronize())?;
    let mut data = CUmemPoolPtrExportData::default();
    need!(l, cuMemPoolExportPointer(&mut data, block))?;
    let mut payload = fd.to_ne_bytes().to_vec();
    payload.extend_from_slice(&data.reserved);
    l.other_process("pool", &payload)
}

fn bad_pool_imports(l: &mut Lab) -> Run {
    let (mut pool, owner) = (ptr::null_mut(), l.pool(&pool_of(DEVICE_0, FDS))?);
    let fd = export(l, owner)?;
    ask!(l, "descriptor -1", cuMemPoolImportFromShareableHandle(&mut pool, descriptor(-1), FDS, 0));
    // SAFETY: a path that exists everywhere.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
    inherit(l, null);
    ask!(l, "a descriptor of something else", cuMemPoolImportFromShareableHandle(&mut pool, descriptor(null), FDS, 0));
    ask!(l, "as no type", cuMemPoolImportFromShareableHandle(&mut pool, descriptor(fd), NO_HANDLES, 0));
    ask!(l, "with flags", cuMemPoolImportFromShareableHandle(&mut pool, descriptor(fd), FDS, 1));
    ask!(l, "without a result", cuMemPoolImportFromShareableHandle(ptr::null_mut(), descriptor(fd), FDS, 0));
    let mut data = CUmemPoolPtrExportData::default();
    ask!(l, "a block into the owner's pool", cuMemPoolImportPointer(&mut 0, owner, &mut data));
    let host = l.pool(&pool_of(HOST, NO_HANDLES))?;
    let mut fd = -1_i32;
    ask!(l, "export of a host pool", cuMemPoolExportToShareableHandle(ptr::from_mut(&mut fd).cast(), host, FDS, 0));
    Ok(())
}

const UNIT: usize = 2 * MIB;

fn map(l: &mut Lab, handle: CUmemGenericAllocationHandle) -> Result<CUdeviceptr, Stop> {
    let mut address = 0;
    need!(l, cuMemAddressReserve(&mut address, UNIT, 0, 0, 0))?;
    l.finally(move |l| {
        let _ = call!(l, cuMemUnmap(address, UNIT));
        let _ = call!(l, cuMemAddressFree(address, UNIT));
    });
    need!(l, cuMemMap(address, UNIT, 0, handle, 0))?;
    need!(l, cuMemSetAccess(address, UNIT, &access(DEVICE_0, READ_WRITE), 1))?;
    Ok(address)
}

fn virtual_memory_in_another_process(l: &mut Lab) -> Run {
    let (mut handle, mut fd) = (0, -1_i32);
    need!(l, cuMemCreate(&mut handle, UNIT, &physical(FDS), 0))?;
    l.finally(move |l| drop(call!(l, cuMemRelease(handle))));
    let address = map(l, handle)?;
    need!(l, cuMemsetD8_v2(address, 0x2a, UNIT))?;
    need!(l, cuCtxSynchronize())?;
    need!(l, cuMemExportToShareableHandle(ptr::from_mut(&mut fd).cast(), handle, FDS, 0))?;
    inherit(l, fd);
    l.other_process("physical", &fd.to_ne_bytes())?;
    l.bytes::<2>("what the other wrote", address);
    Ok(())
}

fn physical_importer(l: &mut Lab, payload: &[u8]) -> Run {
    let (mut handle, os) = (0, descriptor(fd_of(payload)?));
    ask!(l, "import" => OK, cuMemImportFromShareableHandle(&mut handle, os, FDS));
    let address = map(l, handle)?;
    l.bytes::<2>("bytes", address);
    ask!(l, "write" => OK, cuMemsetD8_v2(address, 0x33, 1));
    ask!(l, "wait" => OK, cuCtxSynchronize());
    ask!(l, "release" => OK, cuMemRelease(handle));
    Ok(())
}
