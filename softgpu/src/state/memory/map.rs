//! All memory that the driver knows, by address.

use super::allocation::Allocation;
use super::virtual_memory::Reservation;
use crate::call::{Result, ensure};
use crate::misuse::{Misuse, report};
use crate::state::Global;
use crate::state::backing::freed;
use crate::state::checks::races::Touched;
use crate::sync::{lock, read, write};
use cuda_sys::{CUdeviceptr, CUresult};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, RwLock, Weak};

#[derive(Debug, Default)]
pub(crate) struct Memory {
    blocks: RwLock<BTreeMap<u64, Arc<Allocation>>>,
    /// The allocations that were freed last: start, size, number.
    freed: Mutex<VecDeque<(u64, usize, u64)>>,
}

/// How many freed allocations are remembered.
const REMEMBERED: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
}

impl Memory {
    pub(crate) fn insert(&self, allocation: Allocation) -> Arc<Allocation> {
        let allocation = Arc::new(allocation);
        write(&self.blocks).insert(allocation.base, allocation.clone());
        allocation
    }

    /// Adds an allocation unless it overlaps another one.
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

    /// The allocation that contains an address.
    pub(crate) fn at(&self, address: u64) -> Option<Arc<Allocation>> {
        let blocks = read(&self.blocks);
        let (base, block) = blocks.range(..=address).next_back()?;
        (address - base < block.size as u64).then(|| block.clone())
    }

    /// The allocation that contains an address, if programs may know it: a graph's only while it is live.
    pub(crate) fn known_at(&self, address: u64) -> Option<Arc<Allocation>> {
        self.at(address).filter(|block| block.graph.as_ref().is_none_or(|graph| graph.is_live()))
    }

    /// Whether the allocation at an address is hidden from the CPU. Does not wait for the lock: for a signal handler.
    pub(crate) fn try_at(&self, address: u64) -> Option<bool> {
        let blocks = self.blocks.try_read().ok()?;
        let (base, block) = blocks.range(..=address).next_back()?;
        (address - base < block.size as u64).then(|| block.access as u64 != block.base)
    }

    /// Whether no allocation begins in a range.
    pub(crate) fn is_free(&self, base: u64, size: u64) -> bool {
        read(&self.blocks).range(base..base.saturating_add(size)).next().is_none()
    }

    /// Removes the allocation that begins at an address, if `select` accepts it.
    pub(crate) fn remove(&self, base: u64, select: impl FnOnce(&Allocation) -> bool) -> Option<Arc<Allocation>> {
        let mut blocks = write(&self.blocks);
        if !select(blocks.get(&base)?) {
            return None;
        }
        let block = blocks.remove(&base)?;
        let mut freed = lock(&self.freed);
        if freed.len() == REMEMBERED {
            freed.pop_front();
        }
        freed.push_back((block.base, block.size, block.sequence));
        Some(block)
    }

    /// The last freed allocation that contained an address: start, size, number.
    pub(crate) fn freed(&self, address: u64) -> Option<(u64, usize, u64)> {
        let freed = lock(&self.freed);
        freed.iter().rev().find(|(base, size, _)| address >= *base && address - base < *size as u64).copied()
    }

    /// Reports the misuse of freeing an address, and returns its code.
    pub(crate) fn wrong_free(&self, call: &'static str, address: u64) -> CUresult {
        let what = match self.at(address) {
            Some(_) => Misuse::WrongFree,
            None => match self.freed(address) {
                Some((base, ..)) if base == address => Misuse::DoubleFree,
                _ => Misuse::WrongFree,
            },
        };
        let block = self.at(address).map(|block| block.sequence);
        report(what, call, address, block.or_else(|| Some(self.freed(address)?.2)));
        CUresult::CUDA_ERROR_INVALID_VALUE
    }

    /// Removes and returns every allocation that `select` accepts.
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

    /// What `look` finds in each allocation. It runs under the lock.
    pub(crate) fn each<T>(&self, look: impl FnMut(&Arc<Allocation>) -> T) -> Vec<T> {
        read(&self.blocks).values().map(look).collect()
    }

    /// A range of known memory for the work of a device. It lies in one allocation, or in adjacent mappings.
    pub(crate) fn range(&self, address: CUdeviceptr, length: usize, device: usize, purpose: Use) -> Result<Range> {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let Some(block) = self.at(address) else {
            if let Some((.., number)) = self.freed(address) {
                report(Misuse::UseAfterFree, "a call", address, Some(number));
            }
            return Err(invalid);
        };
        // Pools and mappings restrict which devices may use their memory; all devices may use other memory.
        ensure(block.allows(device, purpose))?;
        let start = block.access + (address - block.base) as usize;
        let end = address.checked_add(length as u64).ok_or(invalid)?;
        let mut reached = block.base + block.size as u64;
        let mut more = Vec::new();
        while reached < end {
            let mine = block.mapped().ok_or(invalid)?;
            let next = self.at(reached).ok_or(invalid)?;
            let same = next.mapped().is_some_and(|other| Arc::ptr_eq(&other.reservation, &mine.reservation));
            ensure(same && next.allows(device, purpose))?;
            reached = next.base + next.size as u64;
            more.push(next);
        }
        Ok(Range { address: start, length, block: Some(block), more })
    }

    /// A range anywhere: in a known allocation, or in the program's own memory.
    pub(crate) fn any_range(&self, address: u64, length: usize, device: usize, purpose: Use) -> Result<Range> {
        ensure(address != 0 && address.checked_add(length as u64).is_some())?;
        // The host accesses host pools itself, whatever the rights of devices.
        let pooled = self.at(address).filter(|block| block.pool.as_ref().is_some_and(|pool| pool.is_host()));
        if let Some(block) = pooled {
            let within = (address - block.base) as usize;
            ensure(length <= block.size - within)?;
            return Ok(Range { address: block.access + within, length, block: Some(block), more: Vec::new() });
        }
        if self.at(address).is_some() || freed::is_dead(address) {
            return self.range(address, length, device, purpose);
        }
        Ok(Range::of_program(address as usize, length))
    }
}

/// Bytes that work reads or writes.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) address: usize,
    pub(crate) length: usize,
    /// The allocation that keeps the bytes; `None` for the program's own memory.
    pub(crate) block: Option<Arc<Allocation>>,
    /// The adjacent mappings, if the range lies in several.
    more: Vec<Arc<Allocation>>,
}

/// Queued work that has yet to write an allocation.
pub(crate) struct ToBeWritten(Option<Arc<Allocation>>);

impl Drop for ToBeWritten {
    fn drop(&mut self) {
        if let Some(block) = &self.0 {
            block.writers.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Range {
    pub(crate) fn of_program(address: usize, length: usize) -> Self {
        Self { address, length, block: None, more: Vec::new() }
    }

    pub(crate) fn of_block(block: &Arc<Allocation>) -> Self {
        Self { address: block.access, length: block.size, block: Some(block.clone()), more: Vec::new() }
    }

    /// A part of it by the address that the program knows; `None` if it does not lie in the range's first allocation.
    pub(crate) fn part_at(&self, address: u64, length: usize) -> Option<Self> {
        let block = self.block.as_ref()?;
        let offset = usize::try_from(address.checked_sub(block.base)?).ok()?;
        let inside = offset.checked_add(length)? <= block.size;
        inside.then(|| Self { address: block.access + offset, length, block: Some(block.clone()), more: Vec::new() })
    }

    /// An access to some of its bytes, for race checks; `None` for the program's own memory.
    pub(crate) fn touched(&self, bytes: core::ops::Range<usize>, purpose: Use) -> Option<Touched> {
        let block = self.block.as_ref()?;
        let bytes = self.address + bytes.start..self.address + bytes.end;
        let shown = block.base + (bytes.start - block.access) as u64;
        Some(Touched { bytes, write: purpose == Use::Write, shown, block: Some(block.sequence) })
    }

    /// Reports bytes that the CPU wrote and did not flush, before a device reads them.
    pub(crate) fn check_flushed(&self, call: &'static str) {
        let Some(block) = &self.block else { return };
        if let Some(mirror) = &block.mirror {
            mirror.check(call, block.base, block.sequence, self.address - block.access, self.length);
        }
    }

    /// Marks the allocation as to be written by queued work, until the mark is dropped.
    pub(crate) fn to_be_written(&self) -> ToBeWritten {
        let block = self.block.clone();
        if let Some(block) = &block {
            block.writers.fetch_add(1, Ordering::AcqRel);
        }
        ToBeWritten(block)
    }

    /// Reports a call that uses the allocation while queued work has yet to write it.
    pub(crate) fn check_waited(&self, call: &'static str) {
        let Some(block) = &self.block else { return };
        if block.writers.load(Ordering::Acquire) > 0 {
            report(Misuse::MissingWait, call, block.base, Some(block.sequence));
        }
    }

    /// Fails if a graph's memory is not live, in the order of the program's calls.
    pub(crate) fn check_live(&self, call: &'static str) -> Result {
        let Some(block) = &self.block else { return Ok(()) };
        let live = block.graph.as_ref().is_none_or(|graph| graph.is_live());
        if !live {
            report(Misuse::UseAfterFree, call, block.base, Some(block.sequence));
        }
        ensure(live)
    }

    /// Whether the memory is present, in the order of the streams' work.
    pub(crate) fn is_present(&self) -> bool {
        let graph = self.block.as_ref().and_then(|block| block.graph.as_ref());
        graph.is_none_or(|graph| graph.is_present())
    }

    /// The allocations in which it lies.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Arc<Allocation>> {
        self.block.iter().chain(&self.more)
    }

    /// Whether it is neither host nor managed memory.
    pub(crate) fn is_on_device(&self) -> bool {
        self.block.as_ref().is_some_and(|block| !block.is_host() && !block.is_managed())
    }

    /// Whether it is host memory that the driver knows.
    pub(crate) fn is_page_locked(&self) -> bool {
        self.block.as_ref().is_some_and(|block| block.is_host() && !block.is_managed())
    }

    /// Whether it is the program's own memory, which the driver does not know: pageable memory.
    pub(crate) fn is_pageable(&self) -> bool {
        self.block.is_none()
    }
}

/// A range that a graph remembers. It does not hold the memory, because no work waits for it.
#[derive(Debug)]
pub(crate) struct RangeOfLaunch {
    address: usize,
    length: usize,
    block: Option<Weak<Allocation>>,
    more: Vec<Weak<Allocation>>,
    /// Of virtual memory, whose address may get other memory: the device, the address, and the reservation.
    mapped: Option<(usize, u64, Weak<Reservation>)>,
}

impl RangeOfLaunch {
    pub(crate) fn new(range: &Range) -> Self {
        let mapped = range.block.as_ref().and_then(|block| {
            let address = block.base + (range.address - block.access) as u64;
            Some((block.device, address, Arc::downgrade(&block.mapped()?.reservation)))
        });
        Self {
            address: range.address,
            length: range.length,
            block: range.block.as_ref().map(Arc::downgrade),
            more: range.more.iter().map(Arc::downgrade).collect(),
            mapped,
        }
    }

    /// The range for one launch. Fails if the memory was freed since.
    pub(crate) fn find(&self) -> Result<Range> {
        if let Some((device, address, reservation)) = &self.mapped
            && reservation.strong_count() > 0
        {
            return Global::get()?.memory.range(*address, self.length, *device, Use::Read);
        }
        let gone = || {
            report(Misuse::UseAfterFree, "cuGraphLaunch", self.address as u64, None);
            CUresult::CUDA_ERROR_INVALID_VALUE
        };
        let block = self.block.as_ref().map(|block| block.upgrade().ok_or_else(gone)).transpose()?;
        let more = self.more.iter().map(|block| block.upgrade().ok_or_else(gone)).collect::<Result<_>>()?;
        let range = Range { address: self.address, length: self.length, block, more };
        range.check_live("cuGraphLaunch")?;
        Ok(range)
    }
}
