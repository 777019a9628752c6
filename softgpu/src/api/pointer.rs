//! Attributes of addresses.

use crate::call::{Result, driver_calls, ensure};
use crate::state::Global;
use crate::state::memory::{Allocation, Origin};
use crate::sync::lock;
use cuda_sys::{CU_DEVICE_INVALID, CUcontext, CUdeviceptr, CUmemoryPool, CUmemorytype, CUpointer_attribute, CUresult};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

/// The value of an attribute, with the width that the interface states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Word(u32),
    Number(c_int),
    Long(u64),
    Pointer(usize),
}

impl Value {
    /// Writes the value.
    ///
    /// # Safety
    ///
    /// `out` is writable for the width of the attribute's type.
    unsafe fn write(self, out: *mut c_void) {
        // SAFETY: by this function's contract; callers need not align.
        unsafe {
            match self {
                Value::Word(word) => out.cast::<c_uint>().write_unaligned(word),
                Value::Number(number) => out.cast::<c_int>().write_unaligned(number),
                Value::Long(long) => out.cast::<u64>().write_unaligned(long),
                Value::Pointer(address) => {
                    out.cast::<*mut c_void>().write_unaligned(ptr::without_provenance_mut(address));
                }
            }
        }
    }

    /// The value that cuPointerGetAttributes returns for an address that the driver does not know.
    fn unknown(attribute: CUpointer_attribute) -> Option<Self> {
        use CUpointer_attribute as A;
        Some(match attribute {
            A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Value::Number(CU_DEVICE_INVALID),
            A::CU_POINTER_ATTRIBUTE_CONTEXT
            | A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
            | A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER
            | A::CU_POINTER_ATTRIBUTE_HOST_POINTER
            | A::CU_POINTER_ATTRIBUTE_RANGE_SIZE
            | A::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
            | A::CU_POINTER_ATTRIBUTE_MAPPING_SIZE
            | A::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => Value::Pointer(0),
            A::CU_POINTER_ATTRIBUTE_BUFFER_ID
            | A::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES
            | A::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => Value::Long(0),
            A::CU_POINTER_ATTRIBUTE_P2P_TOKENS => return None,
            CUpointer_attribute(1..=21) => Value::Word(0),
            _ => return None,
        })
    }
}

driver_calls! {
    |global: &'static Global|

    /// Returns an attribute of an address.
    fn cuPointerGetAttribute[Started](data: *mut c_void, attribute: CUpointer_attribute, ptr: CUdeviceptr) {
        ensure(!data.is_null())?;
        let block = global.memory.known_at(ptr).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        value(global, attribute, &block, ptr)?.write(data);
        Ok(())
    }

    /// Returns several attributes of an address. Those of an unknown address are empty.
    fn cuPointerGetAttributes[Started](
        numAttributes: c_uint,
        attributes: *mut CUpointer_attribute,
        data: *mut *mut c_void,
        ptr: CUdeviceptr,
    ) {
        ensure(numAttributes > 0 && !attributes.is_null() && !data.is_null())?;
        let block = global.memory.known_at(ptr);
        for n in 0..numAttributes as usize {
            let (attribute, out) = (attributes.add(n).read(), data.add(n).read());
            ensure(!out.is_null())?;
            if block.is_none() && attribute == CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR {
                // Like the driver, leaves the caller's value.
                continue;
            }
            let empty = Value::unknown(attribute).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
            let value = match &block {
                Some(block) => value(global, attribute, block, ptr).unwrap_or(empty),
                None => empty,
            };
            value.write(out);
        }
        Ok(())
    }

    /// Sets an attribute of the allocation that contains an address: whether synchronous calls must always be
    /// synchronous. Here they always are.
    fn cuPointerSetAttribute[Started](value: *const c_void, attribute: CUpointer_attribute, ptr: CUdeviceptr) {
        ensure(!value.is_null() && attribute == CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)?;
        let block = global.memory.known_at(ptr).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        lock(&block.notes).sync_memops = value.cast::<c_uint>().read_unaligned() != 0;
        Ok(())
    }
}

fn value(global: &Global, attribute: CUpointer_attribute, block: &Allocation, address: u64) -> Result<Value> {
    use CUpointer_attribute as A;
    let of_pool = block.pool.as_ref();
    let pool: CUmemoryPool = match of_pool {
        Some(pool) => ptr::without_provenance_mut(global.pools.handle(pool.sequence) as usize),
        None => ptr::null_mut(),
    };
    let context: CUcontext = match &block.context {
        Some(context) => super::context::handle_of(context),
        None => ptr::null_mut(),
    };
    let in_host_pool = of_pool.is_some_and(|pool| pool.is_host());
    let flag = |set: bool| Value::Word(u32::from(set));
    Ok(match attribute {
        A::CU_POINTER_ATTRIBUTE_CONTEXT => Value::Pointer(context.addr()),
        A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => Value::Word(match block.is_host() {
            true => CUmemorytype::CU_MEMORYTYPE_HOST.0,
            false => CUmemorytype::CU_MEMORYTYPE_DEVICE.0,
        }),
        // Memory of a host pool has no separate device address, and its start is no address: an H200 reports 0 for the
        // first block of a pool, and numbers outside of the block for others.
        A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER if in_host_pool => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR if in_host_pool => Value::Pointer(block.start_in_pool() as usize),
        A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER => Value::Pointer(address as usize),
        A::CU_POINTER_ATTRIBUTE_HOST_POINTER if block.is_host_accessible() => Value::Pointer(address as usize),
        A::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => flag(lock(&block.notes).sync_memops || block.is_managed()),
        A::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => flag(false),
        A::CU_POINTER_ATTRIBUTE_BUFFER_ID | A::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => Value::Long(block.sequence),
        A::CU_POINTER_ATTRIBUTE_IS_MANAGED => flag(block.is_managed()),
        A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Value::Number(block.device as c_int),
        A::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => flag(block.origin == Origin::Device),
        // No other hardware can access the memory.
        A::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE => flag(false),
        A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR | A::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => {
            Value::Pointer(block.base as usize)
        }
        A::CU_POINTER_ATTRIBUTE_RANGE_SIZE => Value::Pointer(block.size),
        A::CU_POINTER_ATTRIBUTE_MAPPING_SIZE => Value::Pointer(mapping_size(block)),
        A::CU_POINTER_ATTRIBUTE_MAPPED => flag(true),
        A::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => {
            let of_pool = of_pool.is_some_and(|pool| pool.shared().is_some());
            Value::Long(u64::from(of_pool || block.mapped().is_some_and(|mapped| mapped.physical.is_shared())))
        }
        A::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => Value::Word(match of_pool {
            Some(_) if in_host_pool => 3,
            Some(pool) => pool.access(block.device).0,
            None if block.origin == Origin::Virtual => lock(&block.notes).rights_of_device(block.device).0,
            None => 3,
        }),
        A::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => Value::Pointer(pool.addr()),
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    })
}

/// The size of the driver's mapping that contains an allocation: whole pages of 2 MiB, or of 32 MiB for pools.
fn mapping_size(block: &Allocation) -> usize {
    let page = match block.origin {
        Origin::Device | Origin::Host | Origin::Managed => 2 << 20,
        Origin::Pool => 32 << 20,
        _ => return block.size,
    };
    block.size.checked_next_multiple_of(page).unwrap_or(block.size)
}
