//! Reserved addresses at which chunks of physical memory are mapped, each at any place.

use super::physical::PhysicalMemory;
use super::reservation::Reservation;
use crate::Result;
use crate::error::call;
use core::ops::Range;
use cuda_sys::{CUdeviceptr, CUmemAccessDesc};

/// Addresses, and the chunks that are mapped there. All chunks have one size.
///
/// The drop frees the addresses if nothing is mapped there. Otherwise it leaves both: work may still use the memory.
#[derive(Debug)]
pub(crate) struct ChunkMap {
    /// By place: the chunk that is mapped there.
    places: Vec<Option<PhysicalMemory>>,
    chunk: usize,
    reservation: Option<Reservation>,
    base: CUdeviceptr,
}

impl ChunkMap {
    /// Addresses at which nothing is mapped yet: a multiple of `chunk` bytes.
    pub fn new(reservation: Reservation, chunk: usize) -> Self {
        let places = (0..reservation.size() / chunk).map(|_| None).collect();
        Self { places, chunk, base: reservation.base(), reservation: Some(reservation) }
    }

    pub fn base(&self) -> CUdeviceptr {
        self.base
    }

    /// The size of the addresses in bytes.
    pub fn size(&self) -> usize {
        self.places.len() * self.chunk
    }

    pub fn contains(&self, address: CUdeviceptr) -> bool {
        address.checked_sub(self.base).is_some_and(|offset| (offset as usize) < self.size())
    }

    fn places(&self, addresses: &Range<CUdeviceptr>) -> Range<usize> {
        let place = |address: CUdeviceptr| (address - self.base) as usize / self.chunk;
        place(addresses.start)..place(addresses.end)
    }

    /// Maps chunks side by side at addresses of ours where nothing is mapped, and gives `access` to them. An error
    /// leaves nothing mapped there, and drops the chunks.
    pub fn map(
        &mut self,
        addresses: &Range<CUdeviceptr>,
        chunks: impl Iterator<Item = PhysicalMemory>,
        access: &[CUmemAccessDesc],
    ) -> Result<()> {
        let Some(context) = self.reservation.as_ref().map(|reservation| reservation.context().clone()) else {
            return Ok(());
        };
        let cuda = context.driver().raw();
        let mut end = addresses.start;
        let mut outcome = Ok(());
        for (place, chunk) in self.places(addresses).zip(chunks) {
            // SAFETY: the range lies within our addresses, and nothing is mapped there; the chunk is mapped whole.
            outcome = unsafe { call!(cuda.cuMemMap(end, self.chunk, 0, chunk.raw(), 0)) };
            if outcome.is_err() {
                break;
            }
            self.places[place] = Some(chunk);
            end += self.chunk as CUdeviceptr;
        }
        let size = (addresses.end - addresses.start) as usize;
        // SAFETY: the range consists of the new mappings; the descriptions are readable.
        let allow = || unsafe { call!(cuda.cuMemSetAccess(addresses.start, size, access.as_ptr(), access.len())) };
        let outcome = outcome.and_then(|()| allow());
        if outcome.is_err()
            && let Err(error) = self.unmap(&(addresses.start..end))
        {
            context.drop_errors().push("undoing a mapping", error);
        }
        outcome
    }

    /// Unmaps the chunks at addresses, and returns them. An error leaves all of them mapped. No work may use them.
    pub fn unmap(&mut self, addresses: &Range<CUdeviceptr>) -> Result<Vec<PhysicalMemory>> {
        let Some(reservation) = self.reservation.as_ref().filter(|_| !addresses.is_empty()) else {
            return Ok(Vec::new());
        };
        let cuda = reservation.context().driver().raw();
        let size = (addresses.end - addresses.start) as usize;
        // SAFETY: the range consists of whole mappings of ours, which nobody uses.
        unsafe { call!(cuda.cuMemUnmap(addresses.start, size)) }?;
        let places = self.places(addresses);
        Ok(self.places[places].iter_mut().filter_map(Option::take).collect())
    }
}

impl Drop for ChunkMap {
    fn drop(&mut self) {
        if self.places.iter().any(Option::is_some) {
            core::mem::forget((self.reservation.take(), core::mem::take(&mut self.places)));
        }
    }
}
