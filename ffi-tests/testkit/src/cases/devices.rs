//! Devices, their attributes and names.

use super::lab::codes::*;
use super::lab::{Lab, Run};
use cuda_mem::cuda_sys::*;
use std::ptr;

cases! {
    Shared ordinals,
    Shared names,
    Shared identities,
    Shared addresses_on_the_bus,
    Shared attributes_of_bad_devices,
    Shared attributes_of_memory,
    Shared memory_sizes,
    Shared peers_of_itself,
    Shared priorities,
}

fn ordinals(l: &mut Lab) -> Run {
    let (mut device, mut count) = (7, 0);
    ask!(l, "count" => OK, cuDeviceGetCount(&mut count));
    ask!(l, "count without a result" => VALUE, cuDeviceGetCount(ptr::null_mut()));
    ask!(l, "device 0" => OK, cuDeviceGet(&mut device, 0));
    l.check("the handle of device 0", device, 0);
    ask!(l, "device -1" => DEVICE, cuDeviceGet(&mut device, -1));
    ask!(l, "device 99" => DEVICE, cuDeviceGet(&mut device, 99));
    ask!(l, "the device after the last" => DEVICE, cuDeviceGet(&mut device, count));
    ask!(l, "without a result" => VALUE, cuDeviceGet(ptr::null_mut(), 0));
    ask!(l, "device -1 without a result", cuDeviceGet(ptr::null_mut(), -1));
    Ok(())
}

fn names(l: &mut Lab) -> Run {
    let mut name = [0x55_u8; 256];
    ask!(l, "name" => OK, cuDeviceGetName(name.as_mut_ptr().cast(), 256, 0));
    l.check("has a name", name[0] != 0, true);
    name.fill(0x55);
    ask!(l, "room for 4 bytes" => OK, cuDeviceGetName(name.as_mut_ptr().cast(), 4, 0));
    l.say("3 letters and a zero", name[2] != 0 && name[3] == 0 && name[4] == 0x55);
    name.fill(0x55);
    ask!(l, "room for 1 byte", cuDeviceGetName(name.as_mut_ptr().cast(), 1, 0));
    l.say("1 byte is", format!("{:02x}", name[0]));
    ask!(l, "room for 0 bytes", cuDeviceGetName(name.as_mut_ptr().cast(), 0, 0));
    ask!(l, "room for -1 bytes", cuDeviceGetName(name.as_mut_ptr().cast(), -1, 0));
    ask!(l, "without a result" => VALUE, cuDeviceGetName(ptr::null_mut(), 256, 0));
    ask!(l, "device 99" => DEVICE, cuDeviceGetName(name.as_mut_ptr().cast(), 256, 99));
    Ok(())
}

fn identities(l: &mut Lab) -> Run {
    let (mut old, mut new) = (CUuuid::default(), CUuuid::default());
    ask!(l, "first form" => OK, cuDeviceGetUuid(&mut old, 0));
    ask!(l, "second form" => OK, cuDeviceGetUuid_v2(&mut new, 0));
    l.say("the same without MIG", old.bytes == new.bytes);
    l.check("not zero", old.bytes != [0; 16], true);
    ask!(l, "device -1" => DEVICE, cuDeviceGetUuid_v2(&mut new, -1));
    ask!(l, "device -1, first form" => DEVICE, cuDeviceGetUuid(&mut new, -1));
    ask!(l, "without a result" => VALUE, cuDeviceGetUuid_v2(ptr::null_mut(), 0));
    Ok(())
}

fn addresses_on_the_bus(l: &mut Lab) -> Run {
    let (mut id, mut device) = ([0_u8; 32], 7);
    ask!(l, "address" => OK, cuDeviceGetPCIBusId(id.as_mut_ptr().cast(), 32, 0));
    let length = id.iter().position(|byte| *byte == 0).unwrap_or(32);
    l.say("its length", length);
    ask!(l, "device of the address" => OK, cuDeviceGetByPCIBusId(&mut device, id.as_ptr().cast()));
    l.check("is device 0", device, 0);
    ask!(l, "room for 12 bytes", cuDeviceGetPCIBusId(id.as_mut_ptr().cast(), 12, 0));
    ask!(l, "room for 13 bytes", cuDeviceGetPCIBusId(id.as_mut_ptr().cast(), 13, 0));
    ask!(l, "room for 0 bytes", cuDeviceGetPCIBusId(id.as_mut_ptr().cast(), 0, 0));
    ask!(l, "without a result" => VALUE, cuDeviceGetPCIBusId(ptr::null_mut(), 32, 0));
    ask!(l, "device 99" => DEVICE, cuDeviceGetPCIBusId(id.as_mut_ptr().cast(), 32, 99));
    ask!(l, "an address that is no text", cuDeviceGetByPCIBusId(&mut device, c"nonsense".as_ptr()));
    ask!(l, "an address of nobody", cuDeviceGetByPCIBusId(&mut device, c"ffff:ff:1f.0".as_ptr()));
    ask!(l, "a null address", cuDeviceGetByPCIBusId(&mut device, ptr::null()));
    ask!(l, "an address without a result", cuDeviceGetByPCIBusId(ptr::null_mut(), id.as_ptr().cast()));
    Ok(())
}

fn attributes_of_bad_devices(l: &mut Lab) -> Run {
    let mut value = 0;
    let pitch = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_PITCH;
    ask!(l, "device 99" => DEVICE, cuDeviceGetAttribute(&mut value, pitch, 99));
    ask!(l, "device -1" => DEVICE, cuDeviceGetAttribute(&mut value, pitch, -1));
    ask!(l, "unknown attribute" => VALUE, cuDeviceGetAttribute(&mut value, CUdevice_attribute(9999), 0));
    ask!(l, "attribute 0", cuDeviceGetAttribute(&mut value, CUdevice_attribute(0), 0));
    ask!(l, "unknown attribute of device 99", cuDeviceGetAttribute(&mut value, CUdevice_attribute(9999), 99));
    ask!(l, "without a result" => VALUE, cuDeviceGetAttribute(ptr::null_mut(), pitch, 0));
    Ok(())
}

fn attributes_of_memory(l: &mut Lab) -> Run {
    use CUdevice_attribute as A;
    for (name, attribute, expected) in [
        ("memory pools", A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, Some(1)),
        ("host memory pools", A::CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED, Some(1)),
        ("host NUMA memory pools", A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, Some(1)),
        ("virtual memory", A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, Some(1)),
        ("host virtual memory", A::CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, Some(1)),
        ("host NUMA virtual memory", A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, None),
        ("file descriptors", A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, Some(1)),
        ("fabric handles", A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, Some(1)),
        ("win32 handles", A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED, None),
        ("handle types of pools", A::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, Some(9)),
        ("events across processes", A::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, Some(1)),
        ("dma-buf", A::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, Some(1)),
        ("dma-buf of host memory", A::CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED, None),
        ("GPUDirect RDMA", A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, Some(1)),
        ("GPUDirect RDMA with virtual memory", A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, None),
        ("GPUDirect RDMA flush options", A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, None),
        ("GPUDirect RDMA ordering", A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, None),
        ("host register", A::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, Some(1)),
        ("read-only host register", A::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, None),
        ("host pointer for registered memory", A::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, None),
        ("mapped host memory", A::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, None),
        ("unified addressing", A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, None),
        ("managed memory", A::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, None),
        ("concurrent managed access", A::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, Some(1)),
        ("direct managed access", A::CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, None),
        ("pageable access", A::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, Some(0)),
        ("64-bit stream words", A::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, None),
        ("stream words with NOR", A::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, None),
        ("flush of remote writes", A::CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, None),
        ("stream priorities", A::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, None),
        ("largest pitch", A::CU_DEVICE_ATTRIBUTE_MAX_PITCH, None),
        ("timeline semaphores", A::CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED, None),
        ("compression", A::CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED, None),
        ("warp size", A::CU_DEVICE_ATTRIBUTE_WARP_SIZE, None),
    ] {
        let mut value = -1;
        let answer = call!(l, cuDeviceGetAttribute(&mut value, attribute, 0));
        let value = match answer {
            Ok(CUresult::CUDA_SUCCESS) => value.to_string(),
            other => super::lab::text(other),
        };
        match expected {
            Some(expected) => l.check(name, value, expected),
            None => l.say(name, value),
        }
    }
    Ok(())
}

fn memory_sizes(l: &mut Lab) -> Run {
    let (mut total, mut free, mut whole) = (0, 0, 0);
    ask!(l, "size" => OK, cuDeviceTotalMem_v2(&mut total, 0));
    ask!(l, "size of device 99" => DEVICE, cuDeviceTotalMem_v2(&mut total, 99));
    ask!(l, "size without a result" => VALUE, cuDeviceTotalMem_v2(ptr::null_mut(), 0));
    ask!(l, "free memory" => OK, cuMemGetInfo_v2(&mut free, &mut whole));
    l.say("as much as the device has", whole == total);
    l.check("free is not more than all", free > 0 && free <= whole, true);
    ask!(l, "only the free memory", cuMemGetInfo_v2(&mut free, ptr::null_mut()));
    ask!(l, "only the whole memory", cuMemGetInfo_v2(ptr::null_mut(), &mut whole));
    ask!(l, "neither", cuMemGetInfo_v2(ptr::null_mut(), ptr::null_mut()));
    Ok(())
}

fn peers_of_itself(l: &mut Lab) -> Run {
    use CUdevice_P2PAttribute as P;
    let mut value = 7;
    ask!(l, "access to itself", cuDeviceCanAccessPeer(&mut value, 0, 0));
    l.say("access to itself is", value);
    ask!(l, "access to device 99" => DEVICE, cuDeviceCanAccessPeer(&mut value, 0, 99));
    ask!(l, "access of device 99" => DEVICE, cuDeviceCanAccessPeer(&mut value, 99, 0));
    ask!(l, "access without a result" => VALUE, cuDeviceCanAccessPeer(ptr::null_mut(), 0, 0));
    let access = P::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
    ask!(l, "attribute of a device and itself", cuDeviceGetP2PAttribute(&mut value, access, 0, 0));
    ask!(l, "attribute with device 99", cuDeviceGetP2PAttribute(&mut value, access, 0, 99));
    ask!(l, "unknown attribute", cuDeviceGetP2PAttribute(&mut value, P(77), 0, 0));
    ask!(l, "attribute without a result", cuDeviceGetP2PAttribute(ptr::null_mut(), access, 0, 0));
    ask!(l, "peer access to the own context", cuCtxEnablePeerAccess(l.context, 0));
    ask!(l, "peer access to no context", cuCtxEnablePeerAccess(ptr::null_mut(), 0));
    ask!(l, "peer access with flags", cuCtxEnablePeerAccess(l.context, 1));
    ask!(l, "end of peer access that never began", cuCtxDisablePeerAccess(l.context));
    ask!(l, "end of peer access to no context", cuCtxDisablePeerAccess(ptr::null_mut()));
    Ok(())
}

fn priorities(l: &mut Lab) -> Run {
    let (mut least, mut greatest) = (7, 7);
    ask!(l, "range" => OK, cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
    l.say("least", least);
    l.say("greatest", greatest);
    ask!(l, "range without results", cuCtxGetStreamPriorityRange(ptr::null_mut(), ptr::null_mut()));
    Ok(())
}
