//! Physical memory mapped at reserved addresses.

use super::access::AccessList;
use super::end_detached;
use super::physical::PhysicalMemory;
use super::reservation::Reservation;
use crate::Result;
use crate::error::call;
use crate::memory::resource::BlockOwner;
use cuda_sys::CUdeviceptr;
use std::sync::Arc;

/// A range of addresses. Chunks of physical memory are mapped side by side from its start.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// The chunks in address order, from the base on, without gaps.
    chunks: Vec<PhysicalMemory>,
    /// The size of all chunks in bytes.
    mapped: usize,
    reservation: Reservation,
    access: Arc<AccessList>,
    /// A free has waited for all work that uses the mapping, but could not unmap it.
    pub is_unused: bool,
}

impl Mapping {
    /// Addresses at which nothing is mapped yet, for memory of these places.
    pub fn new(reservation: Reservation, access: Arc<AccessList>) -> Self {
        Self { chunks: Vec::new(), mapped: 0, reservation, access, is_unused: false }
    }

    pub fn base(&self) -> CUdeviceptr {
        self.reservation.base()
    }

    pub fn mapped(&self) -> usize {
        self.mapped
    }

    /// The size of the addresses in bytes.
    pub fn reserved(&self) -> usize {
        self.reservation.size()
    }

    pub fn chunks(&self) -> &[PhysicalMemory] {
        &self.chunks
    }

    /// Maps a chunk behind the others, and gives access to it. The caller guarantees that it fits into the addresses.
    /// An error leaves the mapping unchanged.
    pub fn push(&mut self, chunk: PhysicalMemory) -> Result<()> {
        let cuda = self.reservation.context().driver().raw();
        let (start, size, before) = (self.base() + self.mapped as CUdeviceptr, chunk.size(), self.mapped);
        debug_assert!(before + size <= self.reserved());
        let mut access = self.access.lock();
        // SAFETY: the range lies within our addresses, and nothing is mapped there; the chunk lives and is mapped
        // whole.
        unsafe { call!(cuda.cuMemMap(start, size, 0, chunk.raw(), 0)) }?;
        self.chunks.push(chunk);
        self.mapped += size;
        let allowed = access.give(cuda, start, size);
        drop(access);
        if allowed.is_err()
            && let Err(error) = self.truncate(before)
        {
            self.reservation.context().drop_errors().push("undoing a mapping", error);
        }
        allowed
    }

    /// The smallest size, in whole chunks, that still contains `size` bytes.
    pub fn border(&self, size: usize) -> usize {
        let mut border = 0;
        for chunk in &self.chunks {
            if border >= size {
                break;
            }
            border += chunk.size();
        }
        border
    }

    /// Unmaps the chunks from `border` on, which is the start of a chunk. An error leaves all of them mapped. No work
    /// may use them.
    pub fn truncate(&mut self, border: usize) -> Result<()> {
        if border >= self.mapped {
            return Ok(());
        }
        let cuda = self.reservation.context().driver().raw();
        let start = self.base() + border as CUdeviceptr;
        let mut access = self.access.lock();
        // SAFETY: the range consists of whole mappings of ours, which nobody uses.
        unsafe { call!(cuda.cuMemUnmap(start, self.mapped - border)) }?;
        access.forget(&(start..self.base() + self.mapped as CUdeviceptr));
        drop(access);
        while self.mapped > border
            && let Some(chunk) = self.chunks.pop()
        {
            self.mapped -= chunk.size();
        }
        Ok(())
    }
}

impl BlockOwner for Mapping {
    fn end_with_resource(mut self) {
        if !self.is_unused {
            // Physical memory lives while it is mapped.
            self.mapped = 0;
            self.reservation.leak();
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.mapped > 0 {
            let context = self.reservation.context().clone();
            end_detached(&context, "unmapping memory", |_| self.truncate(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::physical::{PhysicalOptions, device_place};
    use super::*;
    use crate::Driver;

    #[test]
    #[cfg_attr(miri, ignore = "needs the software GPU")]
    fn chunks_lie_side_by_side_and_are_cut_off_at_their_borders() -> Result<()> {
        let context = Driver::software()?.device(0)?.primary_context()?;
        let options = PhysicalOptions::default();
        let unit = PhysicalMemory::granularity(&context, &options)?;
        let access = Arc::new(AccessList::new([device_place(0)]));
        let mut mapping = Mapping::new(Reservation::new("test", &context, 8 * unit, 0, 0)?, access.clone());
        for units in [1, 3, 2] {
            mapping.push(PhysicalMemory::new(&context, units * unit, &options)?)?;
        }
        assert_eq!((mapping.mapped(), mapping.reserved(), mapping.chunks().len()), (6 * unit, 8 * unit, 3));
        for (size, border) in [(0, 0), (1, 1), (unit, 1), (unit + 1, 4), (4 * unit, 4), (6 * unit, 6)] {
            assert_eq!(mapping.border(size), border * unit, "{size} bytes");
        }
        mapping.truncate(4 * unit)?;
        assert_eq!((mapping.mapped(), mapping.chunks().len()), (4 * unit, 2));
        // No places at all are refused; the chunk is removed again, and its place is free for the next one.
        let nobody = core::mem::replace(&mut mapping.access, Arc::new(AccessList::new([])));
        let refused = mapping.push(PhysicalMemory::new(&context, unit, &options)?);
        mapping.access = nobody;
        assert!(refused.is_err());
        assert_eq!((mapping.mapped(), mapping.chunks().len()), (4 * unit, 2));
        mapping.push(PhysicalMemory::new(&context, 4 * unit, &options)?)?;
        mapping.truncate(0)?;
        mapping.truncate(0)?; // nothing left to do
        assert_eq!((mapping.mapped(), mapping.chunks().len()), (0, 0));
        drop(mapping);
        assert!(context.take_drop_errors().errors.is_empty());
        Ok(())
    }
}
