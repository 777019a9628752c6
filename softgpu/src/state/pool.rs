//! Pools of memory, allocated in stream order.
//!
//! A pool keeps no memory back: what is freed goes to the system when its stream gets there. So its reserve is what
//! it uses, and a release threshold is remembered without effect.

use super::Global;
use super::device::Charge;
use super::handle::next_sequence;
use super::mapping::{Mapping, PAGE};
use super::memory::{Allocation, Storage};
use super::sync::lock;
use crate::call::{Result, ensure};
use cuda_sys::{
    CUmemAccess_flags, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation, CUmemLocationType,
    CUmemPool_attribute, CUmemPoolProps, CUmemoryPool, CUresult,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// What a pool's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A device's memory.
    Device,
    /// The host's.
    Host,
    /// Managed memory.
    Managed,
}

/// A pool.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) sequence: u64,
    pub(crate) device: usize,
    pub(crate) place: Place,
    /// The device's own pool, which lives as long as the device.
    pub(crate) builtin: bool,
    /// The most that it may hold; 0 for no limit.
    limit: u64,
    account: Mutex<Account>,
}

#[derive(Debug)]
struct Account {
    used: u64,
    used_high: u64,
    reserved: u64,
    reserved_high: u64,
    threshold: u64,
    reuse: [i32; 3],
    access: HashMap<usize, CUmemAccess_flags>,
}

/// A pool's size, given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    pool: Arc<Pool>,
    size: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut account = lock(&self.pool.account);
        account.used -= self.size;
        account.reserved -= reserve(self.size);
    }
}

fn reserve(size: u64) -> u64 {
    size.next_multiple_of(PAGE as u64)
}

impl Pool {
    /// The pool that a device always has.
    pub(crate) fn builtin(device: usize) -> Self {
        Self::new(device, Place::Device, true, 0)
    }

    fn new(device: usize, place: Place, builtin: bool, limit: u64) -> Self {
        let account = Account {
            used: 0,
            used_high: 0,
            reserved: 0,
            reserved_high: 0,
            threshold: 0,
            reuse: [1; 3],
            access: HashMap::new(),
        };
        Self { sequence: next_sequence(), device, place, builtin, limit, account: Mutex::new(account) }
    }

    /// Makes the pool that the properties describe.
    pub(crate) fn make(global: &Global, props: &CUmemPoolProps) -> Result<u64> {
        let posix = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        let shared = props.handleTypes == posix;
        ensure(shared || props.handleTypes == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE)?;
        let managed = match props.allocType {
            CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED => false,
            CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED => true,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        let (device, place) = match props.location.type_ {
            CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => {
                let device = usize::try_from(props.location.id).unwrap_or(usize::MAX);
                ensure(device < global.devices.len())?;
                (device, if managed { Place::Managed } else { Place::Device })
            }
            CUmemLocationType::CU_MEM_LOCATION_TYPE_NONE if managed => (0, Place::Managed),
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST if !shared => (0, Place::Host),
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => {
                ensure(props.location.id == 0)?;
                (0, Place::Host)
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        let pool = Self::new(device, place, false, props.maxSize as u64);
        Ok(global.pools.insert(pool.sequence, pool).0)
    }

    /// The pool of a handle.
    pub(crate) fn find(global: &Global, handle: CUmemoryPool) -> Result<Arc<Self>> {
        global.pools.get(handle.addr() as u64).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    pub(crate) fn is_host(&self) -> bool {
        self.place == Place::Host
    }

    pub(crate) fn is_managed(&self) -> bool {
        self.place == Place::Managed
    }

    /// Whether a device may use this pool's memory.
    pub(crate) fn allows(&self, device: usize) -> bool {
        self.access(device) != CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE
    }

    /// What a device may do with this pool's memory.
    pub(crate) fn access(&self, device: usize) -> CUmemAccess_flags {
        match self.place {
            Place::Device if device == self.device => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            Place::Managed => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            _ => lock(&self.account)
                .access
                .get(&device)
                .copied()
                .unwrap_or(CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE),
        }
    }

    /// Sets what a device may do.
    pub(crate) fn set_access(&self, devices: usize, location: CUmemLocation, flags: CUmemAccess_flags) -> Result {
        ensure(matches!(flags.0, 0 | 1 | 3))?;
        ensure(location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE)?;
        let device = usize::try_from(location.id).unwrap_or(usize::MAX);
        if device >= devices {
            return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
        }
        if self.place == Place::Device && device == self.device {
            // The owner keeps all rights.
            let all = flags == CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
            return if all { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_DEVICE) };
        }
        lock(&self.account).access.insert(device, flags);
        Ok(())
    }

    /// Takes a block.
    pub(crate) fn allocate(self: &Arc<Self>, global: &Global, size: usize) -> Result<Arc<Allocation>> {
        let share = self.take(size as u64)?;
        let charge: Option<Charge> = match self.place {
            Place::Device => Some(global.devices[self.device].store.take(size)?),
            Place::Host | Place::Managed => None,
        };
        let mapping = Mapping::anonymous(size).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let block = Allocation::pooled(self, size, Storage::Own(mapping), charge, share);
        Ok(global.memory.insert(block))
    }

    fn take(self: &Arc<Self>, size: u64) -> Result<Share> {
        let mut account = lock(&self.account);
        let used = account.used.checked_add(size).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        if self.limit > 0 && used > self.limit || size > u64::MAX - PAGE as u64 {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        account.used = used;
        account.used_high = account.used_high.max(used);
        account.reserved += reserve(size);
        account.reserved_high = account.reserved_high.max(account.reserved);
        Ok(Share { pool: self.clone(), size })
    }

    /// An attribute: sizes are 64-bit, the reuse switches 32-bit.
    pub(crate) fn attribute(&self, attribute: CUmemPool_attribute) -> Result<Attribute> {
        let account = lock(&self.account);
        Ok(match attribute {
            CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => Attribute::Size(account.threshold),
            CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => Attribute::Size(account.reserved),
            CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => Attribute::Size(account.reserved_high),
            CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT => Attribute::Size(account.used),
            CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH => Attribute::Size(account.used_high),
            CUmemPool_attribute(which @ 1..=3) => Attribute::Switch(account.reuse[which as usize - 1]),
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        })
    }

    /// Sets an attribute. High-water marks can only be set back, by 0.
    pub(crate) fn set_attribute(&self, attribute: CUmemPool_attribute, value: Attribute) -> Result {
        let mut account = lock(&self.account);
        match (attribute, value) {
            (CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, Attribute::Size(size)) => account.threshold = size,
            (CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, Attribute::Size(0)) => {
                account.reserved_high = account.reserved;
            }
            (CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, Attribute::Size(0)) => {
                account.used_high = account.used;
            }
            (CUmemPool_attribute(which @ 1..=3), Attribute::Switch(value)) => {
                account.reuse[which as usize - 1] = value;
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }
}

/// The value of a pool's attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attribute {
    Size(u64),
    Switch(i32),
}
