//! The places that may access virtual memory, and where it is mapped.

use crate::Result;
use crate::error::call;
use crate::locks::{Mutex, MutexGuard};
use core::ops::Range;
use cuda_sys::{CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemLocationType};
use std::collections::BTreeMap;

/// The places that may access all mappings of a resource, present and future.
#[derive(Debug)]
pub(crate) struct AccessList {
    state: Mutex<Accessed>,
}

/// The locked state. The lock is held during calls that map, so that each mapping gets each right.
#[derive(Debug)]
pub(crate) struct Accessed {
    places: Vec<CUmemAccessDesc>,
    mapped: MappedRanges,
}

impl AccessList {
    pub fn new(places: impl IntoIterator<Item = CUmemLocation>) -> Self {
        let places = places.into_iter().map(|place| description(place, true)).collect();
        Self { state: Mutex::new(Accessed { places, mapped: MappedRanges::default() }) }
    }

    pub fn lock(&self) -> MutexGuard<'_, Accessed> {
        self.state.lock()
    }

    /// The devices that have access, by their numbers.
    pub fn devices(&self) -> Vec<i32> {
        let places = self.lock().places.clone().into_iter().map(|place| place.location);
        places
            .filter(|place| place.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE)
            .map(|place| place.id)
            .collect()
    }

    /// Gives a place access to all mappings, or takes it. An error leaves all as it was. Whether that changed anything.
    pub fn set(&self, cuda: &cuda_sys::Driver, place: CUmemLocation, allowed: bool) -> Result<bool> {
        let mut state = self.lock();
        let same = |other: &CUmemAccessDesc| other.location.type_ == place.type_ && other.location.id == place.id;
        if state.places.iter().any(same) == allowed {
            return Ok(false);
        }
        let (wish, undo) = (description(place, allowed), description(place, !allowed));
        let set = |start: CUdeviceptr, size: usize, wish: &CUmemAccessDesc| {
            // SAFETY: the range consists of mappings, which the lock keeps; the description is readable.
            unsafe { call!(cuda.cuMemSetAccess(start, size, wish, 1)) }
        };
        let mut done = Vec::new();
        for (start, size) in state.mapped.iter() {
            if let Err(error) = set(start, size, &wish) {
                // The first error counts.
                done.into_iter().for_each(|(start, size)| drop(set(start, size, &undo)));
                return Err(error);
            }
            done.push((start, size));
        }
        state.places.retain(|other| !same(other));
        if allowed {
            state.places.push(wish);
        }
        Ok(true)
    }
}

impl Accessed {
    /// Gives the places access to new mappings, and remembers these.
    pub fn give(&mut self, cuda: &cuda_sys::Driver, start: CUdeviceptr, size: usize) -> Result<()> {
        let places = &self.places;
        // SAFETY: the caller has just mapped the range; the descriptions are readable.
        unsafe { call!(cuda.cuMemSetAccess(start, size, places.as_ptr(), places.len())) }?;
        self.mapped.add(start, size);
        Ok(())
    }

    /// Forgets mappings that have ended.
    pub fn forget(&mut self, addresses: &Range<CUdeviceptr>) {
        self.mapped.remove(addresses);
    }
}

fn description(location: CUmemLocation, allowed: bool) -> CUmemAccessDesc {
    let flags = match allowed {
        true => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        false => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
    };
    CUmemAccessDesc { location, flags }
}

/// Ranges of addresses that do not overlap: start and size.
#[derive(Debug, Default)]
struct MappedRanges(BTreeMap<CUdeviceptr, usize>);

impl MappedRanges {
    fn iter(&self) -> impl Iterator<Item = (CUdeviceptr, usize)> + '_ {
        self.0.iter().map(|(start, size)| (*start, *size))
    }

    fn add(&mut self, start: CUdeviceptr, size: usize) {
        self.0.insert(start, size);
    }

    /// Removes addresses. A range that they cut stays in one or two parts.
    fn remove(&mut self, gone: &Range<CUdeviceptr>) {
        let before = self.0.range(..gone.start).next_back().map(|(start, _)| *start);
        let touched: Vec<CUdeviceptr> =
            before.into_iter().chain(self.0.range(gone.clone()).map(|(start, _)| *start)).collect();
        for start in touched {
            let Some(size) = self.0.remove(&start) else { continue };
            let end = start + size as CUdeviceptr;
            if start < gone.start {
                self.0.insert(start, (end.min(gone.start) - start) as usize);
            }
            if end > gone.end {
                let rest = start.max(gone.end);
                self.0.insert(rest, (end - rest) as usize);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unmapped_leaves_the_parts_around_it() {
        let of = |ranges: &[(CUdeviceptr, usize)], gone: Range<CUdeviceptr>| {
            let mut all = MappedRanges::default();
            ranges.iter().for_each(|(start, size)| all.add(*start, *size));
            all.remove(&gone);
            all.iter().collect::<Vec<_>>()
        };
        let three = [(10, 10), (20, 10), (40, 10)];
        assert_eq!(of(&three, 20..30), [(10, 10), (40, 10)]);
        assert_eq!(of(&three, 12..15), [(10, 2), (15, 5), (20, 10), (40, 10)]);
        assert_eq!(of(&three, 15..45), [(10, 5), (45, 5)]);
        assert_eq!(of(&three, 0..100), []);
        assert_eq!(of(&three, 30..40), three);
        assert_eq!(of(&three, 5..10), three);
        assert_eq!(of(&[], 5..10), []);
    }
}
