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

    /// Unmaps the chunks at addresses: whole chunks. An error leaves all of them mapped. No work may use them.
    pub fn unmap(&mut self, addresses: &Range<CUdeviceptr>) -> Result<()> {
        let Some(reservation) = self.reservation.as_ref().filter(|_| !addresses.is_empty()) else { return Ok(()) };
        let cuda = reservation.context().driver().raw();
        let size = (addresses.end - addresses.start) as usize;
        let mut access = self.access.lock();
        // SAFETY: the range consists of whole mappings of ours, which nobody uses.
        unsafe { call!(cuda.cuMemUnmap(addresses.start, size)) }?;
        access.forget(addresses);
        drop(access);
        let mut rest = self.mapped.split_off(&addresses.start);
        self.mapped.append(&mut rest.split_off(&addresses.end));
        // The physical memory of a chunk ends here, unless it is mapped elsewhere too.
        drop(rest);
        Ok(())
    }
}

impl Drop for ChunkMap {
    fn drop(&mut self) {
        if !self.mapped.is_empty() {
            core::mem::forget((self.reservation.take(), core::mem::take(&mut self.mapped)));
        }
    }
}
