//! All memory that the driver knows, found by address.

use super::context::Context;
use super::device::Charge;
use super::handle::next_sequence;
use super::mapping::Mapping;
use super::pool::{Pool, Share};
use super::sync::{read, write};
use crate::call::{Result, ensure};
use crate::vulkan;
use cuda_sys::{CUdeviceptr, CUresult};
use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

/// How memory came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// cuMemAlloc, cuMemAllocPitch.
    Device,
    /// cuMemAllocHost, cuMemHostAlloc.
    Host,
    /// cuMemHostRegister.
    Registered,
    /// cuMemAllocManaged.
    Managed,
    /// cuMemAllocAsync, cuMemAllocFromPoolAsync.
    Pool,
    /// cuExternalMemoryGetMappedBuffer, and the device's side of vkgdr memory.
    Mapped,
}

/// What holds the bytes.
#[derive(Debug)]
pub(crate) enum Storage {
    /// A mapping of our own.
    Own(Mapping),
    /// Memory of a CPU Vulkan device.
    Vulkan(vulkan::Imported),
    /// The caller's memory.
    Caller(usize),
}

impl Storage {
    fn base(&self) -> usize {
        match self {
            Storage::Own(mapping) => mapping.base(),
            Storage::Vulkan(imported) => imported.base(),
            Storage::Caller(base) => *base,
        }
    }
}

/// A block of memory. Work that uses it holds it, so that its pages outlive a free that comes too early.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) sequence: u64,
    pub(crate) base: u64,
    pub(crate) size: usize,
    pub(crate) origin: Origin,
    pub(crate) device: usize,
    /// The context that it ends with.
    pub(crate) context: Option<Arc<Context>>,
    /// Its pool, when it has one.
    pub(crate) pool: Option<Arc<Pool>>,
    /// Flags that it was made with.
    pub(crate) flags: u32,
    _held: Held,
}

/// What goes back when a block is dropped: pages to the system, and their size to the device and the pool.
#[derive(Debug)]
pub(crate) struct Held {
    _storage: Storage,
    _charge: Option<Charge>,
    _share: Option<Share>,
}

impl Allocation {
    /// A block of a context's.
    pub(crate) fn new(
        context: &Arc<Context>,
        origin: Origin,
        size: usize,
        storage: Storage,
        charge: Option<Charge>,
    ) -> Self {
        Self {
            sequence: next_sequence(),
            base: storage.base() as u64,
            size,
            origin,
            device: context.device,
            context: Some(context.clone()),
            pool: None,
            flags: 0,
            _held: Held { _storage: storage, _charge: charge, _share: None },
        }
    }

    /// A block of a pool's, which no context ends.
    pub(crate) fn pooled(
        pool: &Arc<Pool>,
        size: usize,
        storage: Storage,
        charge: Option<Charge>,
        share: Share,
    ) -> Self {
        Self {
            sequence: next_sequence(),
            base: storage.base() as u64,
            size,
            origin: Origin::Pool,
            device: pool.device,
            context: None,
            pool: Some(pool.clone()),
            flags: 0,
            _held: Held { _storage: storage, _charge: charge, _share: Some(share) },
        }
    }

    pub(crate) fn flagged(self, flags: u32) -> Self {
        Self { flags, ..self }
    }

    /// Whether it lies in the host's memory.
    pub(crate) fn is_host(&self) -> bool {
        match &self.pool {
            Some(pool) => pool.is_host(),
            None => matches!(self.origin, Origin::Host | Origin::Registered),
        }
    }

    /// Whether the CPU may use its addresses.
    pub(crate) fn is_host_accessible(&self) -> bool {
        self.is_host() || self.origin == Origin::Managed || self.pool.as_ref().is_some_and(|pool| pool.is_managed())
    }
}

/// The map of all blocks.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    blocks: RwLock<BTreeMap<u64, Arc<Allocation>>>,
}

impl Memory {
    pub(crate) fn insert(&self, allocation: Allocation) -> Arc<Allocation> {
        let allocation = Arc::new(allocation);
        write(&self.blocks).insert(allocation.base, allocation.clone());
        allocation
    }

    /// Adds a block unless it overlaps one that is there.
    pub(crate) fn insert_apart(&self, allocation: Allocation) -> Option<Arc<Allocation>> {
        let mut blocks = write(&self.blocks);
        let end = allocation.base.checked_add(allocation.size as u64)?;
        let last = blocks.range(..end).next_back();
        if last.is_some_and(|(base, before)| base + before.size as u64 > allocation.base) {
            return None;
        }
        let allocation = Arc::new(allocation);
        blocks.insert(allocation.base, allocation.clone());
        Some(allocation)
    }

    /// The block that an address lies in.
    pub(crate) fn at(&self, address: u64) -> Option<Arc<Allocation>> {
        let blocks = read(&self.blocks);
        let (base, block) = blocks.range(..=address).next_back()?;
        (address - base < block.size as u64).then(|| block.clone())
    }

    /// Takes out the block that begins at an address, if it is what `select` wants.
    pub(crate) fn remove(&self, base: u64, select: impl FnOnce(&Allocation) -> bool) -> Option<Arc<Allocation>> {
        let mut blocks = write(&self.blocks);
        if !select(blocks.get(&base)?) {
            return None;
        }
        blocks.remove(&base)
    }

    /// Takes out every block that `select` names.
    pub(crate) fn remove_where(&self, select: impl Fn(&Allocation) -> bool) -> Vec<Arc<Allocation>> {
        let mut gone = Vec::new();
        write(&self.blocks).retain(|_, block| {
            let goes = select(block);
            if goes {
                gone.push(block.clone());
            }
            !goes
        });
        gone
    }

    pub(crate) fn all(&self) -> Vec<Arc<Allocation>> {
        read(&self.blocks).values().cloned().collect()
    }

    /// A range that must lie in one known block, for the work of a device.
    pub(crate) fn range(&self, address: CUdeviceptr, length: usize, device: usize) -> Result<Range> {
        let block = self.at(address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        ensure(length as u64 <= block.size as u64 - (address - block.base))?;
        // Pools say which devices may use their memory; everything else is open to all, as copies always are.
        ensure(block.pool.as_ref().is_none_or(|pool| pool.allows(device)))?;
        Ok(Range { address: address as usize, length, block: Some(block) })
    }

    /// A range anywhere: of a known block, or of the program's own memory.
    pub(crate) fn any_range(&self, address: u64, length: usize, device: usize) -> Result<Range> {
        ensure(address != 0 && address.checked_add(length as u64).is_some())?;
        if self.at(address).is_some() {
            return self.range(address, length, device);
        }
        Ok(Range { address: address as usize, length, block: None })
    }
}

/// Bytes that work will read or write.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) address: usize,
    pub(crate) length: usize,
    /// What keeps the bytes there; `None` for the program's own memory.
    pub(crate) block: Option<Arc<Allocation>>,
}

impl Range {
    /// Whether this is the program's memory, which the driver does not know: pageable.
    pub(crate) fn is_pageable(&self) -> bool {
        self.block.is_none()
    }
}
