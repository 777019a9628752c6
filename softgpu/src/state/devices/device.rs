//! Devices: their contexts and pools, their names and attributes.

use crate::state::backing::Store;
use crate::state::contexts::Context;
use crate::state::memory::GraphMemory;
use crate::state::pools::Pool;
use crate::sync::lock;
use crate::vulkan::Vulkan;
use cuda_sys::CUdevice_attribute;
use std::ffi::c_int;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

#[derive(Debug)]
pub(crate) struct Device {
    /// Its number in the machine, of whose devices the program may see only some.
    pub(crate) unit: usize,
    pub(crate) store: Arc<Store>,
    /// Its primary context, which always exists, and is alive while it is retained.
    pub(crate) primary: Arc<Context>,
    /// How often the primary context is retained. Changes only under `turning`.
    pub(crate) retained: AtomicUsize,
    /// Locked while the primary context's life begins or ends.
    pub(crate) turning: Mutex<()>,
    pub(crate) graph_memory: Arc<GraphMemory>,
    /// Its default pool, which never ends.
    pub(crate) default_pool: (u64, Arc<Pool>),
    /// The pool from which cuMemAllocAsync allocates.
    pub(crate) pool: Mutex<(u64, Arc<Pool>)>,
}

impl Device {
    pub(crate) fn current_pool(&self) -> (u64, Arc<Pool>) {
        lock(&self.pool).clone()
    }
}

/// The name of a device of the machine.
pub(crate) fn name(unit: usize) -> String {
    format!("softgpu {unit} (host memory)")
}

/// The PCI bus of a device of the machine.
pub(crate) fn bus(unit: usize) -> u32 {
    unit as u32 + 1
}

/// The UUID of a device of the machine: that of the CPU Vulkan device with the same number, or else one of 16 bytes that no
/// other device has at the same place, as the UUIDs of GPUs differ everywhere.
pub(crate) fn identity(unit: usize, vulkan: Option<&Vulkan>) -> [u8; 16] {
    vulkan.and_then(|vulkan| vulkan.uuid(unit)).unwrap_or_else(|| {
        let first = *b"\x5c\xe1\x90\x3b\xf4\x27\x4a\x88\x9d\x06\xb3\x71\x2e\xda\x65\xc8";
        // An odd step gives each of 256 devices another byte.
        std::array::from_fn(|place| first[place].wrapping_add((unit as u8).wrapping_mul(37 + 14 * place as u8)))
    })
}

/// An attribute of a device; `None` if CUDA 13.0 does not know it.
pub(crate) fn attribute(attribute: CUdevice_attribute, unit: usize) -> Option<c_int> {
    use CUdevice_attribute as A;
    Some(match attribute {
        A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK | A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X => 1024,
        A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y => 1024,
        A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z => 64,
        A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X | A::CU_DEVICE_ATTRIBUTE_MAX_PITCH => c_int::MAX,
        A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y | A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z => 65535,
        A::CU_DEVICE_ATTRIBUTE_WARP_SIZE | A::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR => 32,
        A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR => 2048,
        A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK => 48 << 10,
        A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => 227 << 10,
        A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => 228 << 10,
        A::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK => 1 << 10,
        A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK
        | A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR
        | A::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY => 64 << 10,
        A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => bus(unit) as c_int,
        A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => 9,
        A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID => 0,
        A::CU_DEVICE_ATTRIBUTE_NUMA_ID => -1,
        A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        | A::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT
        | A::CU_DEVICE_ATTRIBUTE_GPU_OVERLAP
        | A::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY
        | A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
        | A::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY
        | A::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
        | A::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        | A::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES
        | A::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH
        | A::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH
        | A::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS
        | A::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR => 1,
        CUdevice_attribute(1..=147) => 0,
        _ => return None,
    })
}
