//! Properties of an allocation that calls set while it lives.

use super::spans::Spans;
use cuda_sys::{CUmemAccess_flags, CUmemLocation, CUmemLocationType};
use std::os::fd::OwnedFd;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Whether synchronous calls on it must always be synchronous.
    pub(crate) sync_memops: bool,
    pub(crate) read_mostly: Spans<bool>,
    pub(crate) preferred: Spans<Option<Place>>,
    /// The places for which managed memory shall stay mapped.
    pub(crate) accessed_by: Vec<CUmemLocation>,
    /// The places to which managed memory was prefetched last.
    pub(crate) prefetched: Spans<Option<Place>>,
    /// The places that may use a mapping.
    pub(crate) rights: Vec<(CUmemLocation, CUmemAccess_flags)>,
    /// How often imported memory was opened, beyond the first time.
    pub(crate) opened: usize,
    /// The file that the memory was moved into, to be shared.
    pub(crate) file: Option<Arc<OwnedFd>>,
}

impl Notes {
    pub(crate) fn rights_of(&self, place: CUmemLocation) -> CUmemAccess_flags {
        let found = self.rights.iter().find(|(other, _)| same(*other, place));
        found.map_or(CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE, |(_, flags)| *flags)
    }

    pub(crate) fn rights_of_device(&self, device: usize) -> CUmemAccess_flags {
        self.rights_of(CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device as i32 })
    }

    pub(crate) fn set_rights(&mut self, place: CUmemLocation, flags: CUmemAccess_flags) {
        self.rights.retain(|(other, _)| !same(*other, place));
        self.rights.push((place, flags));
    }

    /// The rights of all places to a mapping, combined.
    pub(crate) fn all_rights(&self) -> u32 {
        self.rights.iter().fold(0, |all, (_, flags)| all | flags.0)
    }
}

/// A place of managed memory: its kind and its number, which is -1 for the host.
pub(crate) type Place = (CUmemLocationType, i32);

/// Whether two places are the same. The number is ignored for the host.
pub(crate) fn same(one: CUmemLocation, other: CUmemLocation) -> bool {
    let host = one.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST;
    one.type_ == other.type_ && (host || one.id == other.id)
}
