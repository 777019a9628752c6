//! Reserved addresses at which chunks of physical memory are mapped, each at any place.

use super::access::AccessList;
use super::physical::PhysicalMemory;
use super::reservation::Reservation;
use crate::Result;
use crate::error::call;
use core::ops::Range;
use cuda_sys::CUdeviceptr;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Addresses, and the chunks that are mapped there.
///
/// The drop frees the addresses if nothing is mapped there. Otherwise it leaves both: work may still use the memory.
#[derive(Debug)]
pub(crate) struct ChunkMap {
    /// The chunks by their first address.
    mapped: BTreeMap<CUdeviceptr, PhysicalMemory>,
    reservation: Option<Reservation>,
    access: Arc<AccessList>,
}

impl ChunkMap {
    /// Addresses at which nothing is mapped yet, for memory of these places.
    pub fn new(reservation: Reservation, access: Arc<AccessList>) -> Self {
        Self { mapped: BTreeMap::new(), reservation: Some(reservation), access }
    }

    pub fn base(&self) -> CUdeviceptr {
        self.reservation.as_ref().map_or(0, Reservation::base)
    }

    /// The size of the addresses in bytes.
    pub fn size(&self) -> usize {
        self.reservation.as_ref().map_or(0, Reservation::size)
    }

    pub fn contains(&self, address: CUdeviceptr) -> bool {
        address.checked_sub(self.base()).is_some_and(|offset| (offset as usize) < self.size())
    }

    /// The chunk that is mapped at this address.
    pub fn at(&self, address: CUdeviceptr) -> Option<&PhysicalMemory> {
        self.mapped.get(&address)
    }

    /// The runs of chunks that lie side by side: the first address of each, and its chunks.
    pub fn runs(&self) -> Vec<(CUdeviceptr, Vec<PhysicalMemory>)> {
        self.runs_in(0..CUdeviceptr::MAX)
    }

    fn runs_in(&self, addresses: Range<CUdeviceptr>) -> Vec<(CUdeviceptr, Vec<PhysicalMemory>)> {
        let mut runs: Vec<(CUdeviceptr, Vec<PhysicalMemory>)> = Vec::new();
        let mut end = None;
        for (start, chunk) in self.mapped.range(addresses) {
            match runs.last_mut().filter(|_| end == Some(*start)) {
                Some((_, run)) => run.push(chunk.clone()),
                None => runs.push((*start, vec![chunk.clone()])),
            }
            end = Some(start + chunk.size() as CUdeviceptr);
        }
        runs
    }

    /// Maps chunks side by side at addresses of ours where nothing is mapped, and gives access to them. An error
    /// leaves nothing mapped there, unless the undoing fails too.
    pub fn map(&mut self, start: CUdeviceptr, chunks: impl IntoIterator<Item = PhysicalMemory>) -> Result<()> {
        let Some(context) = self.reservation.as_ref().map(|reservation| reservation.context().clone()) else {
            return Ok(());
        };
        let cuda = context.driver().raw();
        let mut access = self.access.lock();
        let mut end = start;
        let mut outcome = Ok(());
        for chunk in chunks {
            let size = chunk.size();
            // SAFETY: the range lies within our addresses, and nothing is mapped there; the chunk is mapped whole.
            outcome = unsafe { call!(cuda.cuMemMap(end, size, 0, chunk.raw(), 0)) };
            if outcome.is_err() {
                break;
            }
            self.mapped.insert(end, chunk);
            end += size as CUdeviceptr;
        }
        let size = (end - start) as usize;
        let outcome = outcome.and_then(|()| access.give(cuda, start, size));
        drop(access);
        if outcome.is_err()
            && let Err(error) = self.unmap(&(start..end))
        {
            context.drop_errors().push("undoing a mapping", error);
        }
        outcome
    }

    /// Unmaps the chunks at addresses: whole chunks, one run after the other. An error leaves the chunks of its run mapped. No
    /// work may use them.
    pub fn unmap(&mut self, addresses: &Range<CUdeviceptr>) -> Result<()> {
        // Of a pool that sleeps, nothing may be mapped, or only some chunks.
        for (start, chunks) in self.runs_in(addresses.clone()) {
            self.unmap_run(&(start..start + total_size(&chunks) as CUdeviceptr))?;
        }
        Ok(())
    }

    fn unmap_run(&mut self, addresses: &Range<CUdeviceptr>) -> Result<()> {
        let Some(reservation) = &self.reservation else { return Ok(()) };
        let cuda = reservation.context().driver().raw();
        let size = (addresses.end - addresses.start) as usize;
        let mut access = self.access.lock();
        // SAFETY: the range consists of whole mappings of ours, which nobody uses.
        unsafe { call!(cuda.cuMemUnmap(addresses.start, size)) }?;
        access.forget(addresses);
        drop(access);
        while let Some((&start, _)) = self.mapped.range(addresses.clone()).next() {
            // The physical memory of the chunk ends here, unless it is mapped elsewhere too.
            self.mapped.remove(&start);
        }
        Ok(())
    }
}

/// The size of chunks together, in bytes.
pub(crate) fn total_size(chunks: &[PhysicalMemory]) -> usize {
    chunks.iter().map(PhysicalMemory::size).sum()
}

impl Drop for ChunkMap {
    fn drop(&mut self) {
        if !self.mapped.is_empty() {
            core::mem::forget((self.reservation.take(), core::mem::take(&mut self.mapped)));
        }
    }
}
