//! What is said of a block of memory while it lives.

use super::spans::Spans;
use cuda_sys::{CUmemAccess_flags, CUmemLocation, CUmemLocationType};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Said of a block: advice, rights, the file that it was made into.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Whether synchronous calls on it are to be so at any price.
    pub(crate) sync_memops: bool,
    /// Managed memory that is mostly read.
    pub(crate) read_mostly: Spans<bool>,
    /// Where managed memory should live.
    pub(crate) preferred: Spans<Option<Place>>,
    /// Who managed memory should stay mapped for.
    pub(crate) accessed_by: Vec<CUmemLocation>,
    /// Where managed memory was sent last.
    pub(crate) prefetched: Spans<Option<Place>>,
    /// Who may use a mapping.
    pub(crate) rights: Vec<(CUmemLocation, CUmemAccess_flags)>,
    /// How often an import was opened, beyond the first time.
    pub(crate) opened: usize,
    /// The file that the memory was made into, to be shared.
    pub(crate) file: Option<Arc<OwnedFd>>,
}

impl Notes {
    /// What a place may do with a mapping.
    pub(crate) fn rights_of(&self, place: CUmemLocation) -> CUmemAccess_flags {
        let found = self.rights.iter().find(|(other, _)| same(*other, place));
        found.map_or(CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE, |(_, flags)| *flags)
    }

    /// What a device may do with a mapping.
    pub(crate) fn rights_of_device(&self, device: usize) -> CUmemAccess_flags {
        self.rights_of(CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device as i32 })
    }

    /// Sets what a place may do with a mapping.
    pub(crate) fn set_rights(&mut self, place: CUmemLocation, flags: CUmemAccess_flags) {
        self.rights.retain(|(other, _)| !same(*other, place));
        self.rights.push((place, flags));
    }

    /// What anybody may do with a mapping.
    pub(crate) fn all_rights(&self) -> u32 {
        self.rights.iter().fold(0, |all, (_, flags)| all | flags.0)
    }
}

/// A place of managed memory: its kind and its number, which is -1 for the host.
pub(crate) type Place = (CUmemLocationType, i32);

/// Whether two places are one; the host has no number.
pub(crate) fn same(one: CUmemLocation, other: CUmemLocation) -> bool {
    let host = one.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST;
    one.type_ == other.type_ && (host || one.id == other.id)
}
