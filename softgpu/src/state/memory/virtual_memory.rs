//! Reserved addresses, physical memory, and its mappings.

use super::allocation::{Allocation, Origin};
use super::map::Use;
use crate::call::{Result, ensure};
use crate::misuse::{Misuse, report_after};
use crate::state::Global;
use crate::state::backing::Charge;
use crate::state::backing::Mapping;
use crate::state::backing::{file_name, file_size, named_file, open_descriptor};
use crate::state::checks::races;
use crate::state::checks::races::access::{self, Change};
use crate::state::handle::next_sequence;
use crate::sync::lock;
use cuda_sys::{
    CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationType, CUmemLocation,
    CUmemLocationType, CUresult,
};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// The unit of physical sizes and mappings.
pub(crate) const GRANULARITY: usize = 2 << 20;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

fn full(_: io::Error) -> CUresult {
    CUresult::CUDA_ERROR_OUT_OF_MEMORY
}

#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) sequence: u64,
    pub(crate) size: usize,
    shown: Mapping,
    /// The addresses at which softgpu accesses mapped memory, if the program must not touch its own ones.
    own: Option<Mapping>,
    lingering: Mutex<Lingering>,
}

/// Mappings that ended and whose memory queued work may still use: the addresses that are still theirs, by the numbers
/// of the mappings.
type Lingering = HashMap<u64, Vec<Range<usize>>>;

/// Takes addresses from the mappings that have ended. Returns whether one of them had any.
fn take_over(lingering: &mut Lingering, taken: &Range<usize>) -> bool {
    let mut any = false;
    for parts in lingering.values_mut() {
        let is_apart = |part: &Range<usize>| part.end <= taken.start || taken.end <= part.start;
        if parts.iter().all(is_apart) {
            continue;
        }
        any = true;
        let left =
            parts.iter().flat_map(|part| [part.start..part.end.min(taken.start), part.start.max(taken.end)..part.end]);
        *parts = left.filter(|part| !part.is_empty()).collect();
    }
    any
}

impl Reservation {
    pub(crate) fn base(&self) -> usize {
        self.shown.base()
    }

    fn access(&self) -> &Mapping {
        self.own.as_ref().unwrap_or(&self.shown)
    }
}

/// All reservations, by address.
pub(crate) type Reservations = Mutex<BTreeMap<u64, Arc<Reservation>>>;

#[derive(Debug)]
pub(crate) struct Physical {
    pub(crate) sequence: u64,
    pub(crate) size: usize,
    pub(crate) location: CUmemLocation,
    shared: CUmemAllocationHandleType,
    gpu_direct: u8,
    file: OwnedFd,
    /// How many handles the program has yet to release.
    pub(crate) handles: Mutex<usize>,
    /// Whether it may have contents: another mapping or process had it before.
    has_contents: AtomicBool,
    _charge: Option<Charge>,
}

/// Physical memory mapped at reserved addresses.
#[derive(Debug)]
pub(crate) struct Mapped {
    number: u64,
    pub(crate) base: usize,
    pub(crate) access: usize,
    pub(crate) physical: Arc<Physical>,
    pub(crate) reservation: Arc<Reservation>,
}

impl Mapped {
    fn part(&self) -> Range<usize> {
        self.access..self.access + self.physical.size
    }

    /// Ends the mapping for the program. Queued work keeps the memory until it is done.
    fn end(&self) -> io::Result<()> {
        lock(&self.reservation.lingering).insert(self.number, vec![self.part()]);
        if self.reservation.own.is_some() {
            self.reservation.shown.clear(self.base, self.physical.size)?;
        }
        Ok(())
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let mut lingering = lock(&self.reservation.lingering);
        for part in lingering.remove(&self.number).into_iter().flatten() {
            // If this fails, the memory stays, at addresses that nobody uses.
            let _ = self.reservation.access().clear(part.start, part.len());
        }
    }
}

/// Checks the properties that apply to every place: type and handle types.
pub(crate) fn check_kind(prop: &CUmemAllocationProp) -> Result {
    ensure(prop.type_ == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED)?;
    match prop.requestedHandleTypes {
        CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_WIN32 => Err(INVALID),
        CUmemAllocationHandleType(2..=15) => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        _ => Ok(()),
    }
}

/// Checks the properties of physical memory. Returns the device, or `None` for the host.
pub(crate) fn check(global: &Global, prop: &CUmemAllocationProp) -> Result<Option<usize>> {
    check_kind(prop)?;
    match prop.location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => Ok(Some(global.device(prop.location.id)?.0)),
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST => {
            ensure(prop.requestedHandleTypes == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE).map(|()| None)
        }
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => ensure(prop.location.id == 0).map(|()| None),
        _ => Err(INVALID),
    }
}

impl Physical {
    pub(crate) fn make(global: &Global, size: usize, prop: &CUmemAllocationProp) -> Result<u64> {
        let device = check(global, prop)?;
        ensure(size > 0 && size.is_multiple_of(GRANULARITY))?;
        // Host memory belongs to the first NUMA node.
        let host = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, id: 0 };
        let prop = &CUmemAllocationProp { location: device.map_or(host, |_| prop.location), ..*prop };
        let charge = device.map(|device| global.devices[device].store.take(size)).transpose()?;
        let name = format!("softgpu-physical-{}-{}", prop.location.type_.0, prop.location.id);
        let file = named_file(&name, size as u64).map_err(full)?;
        Ok(Self::keep(global, size, prop, file, false, charge))
    }

    fn keep(
        global: &Global,
        size: usize,
        prop: &CUmemAllocationProp,
        file: OwnedFd,
        imported: bool,
        charge: Option<Charge>,
    ) -> u64 {
        let sequence = next_sequence();
        let physical = Self {
            sequence,
            size,
            location: prop.location,
            shared: prop.requestedHandleTypes,
            gpu_direct: prop.allocFlags.gpuDirectRDMACapable,
            file,
            handles: Mutex::new(1),
            has_contents: AtomicBool::new(imported),
            _charge: charge,
        };
        global.physical.insert(sequence, physical).0
    }

    pub(crate) fn find(global: &Global, handle: u64) -> Result<Arc<Self>> {
        global.physical.get(handle).ok_or(INVALID)
    }

    /// Releases one handle. Mappings keep the memory.
    pub(crate) fn release(global: &Global, handle: u64) -> Result {
        let physical = Self::find(global, handle)?;
        let mut handles = lock(&physical.handles);
        *handles = handles.checked_sub(1).ok_or(INVALID)?;
        if *handles == 0 {
            global.physical.remove(handle);
        }
        Ok(())
    }

    pub(crate) fn prop(&self) -> CUmemAllocationProp {
        let mut prop = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: self.shared,
            location: self.location,
            ..Default::default()
        };
        prop.allocFlags.gpuDirectRDMACapable = self.gpu_direct;
        prop
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    }

    pub(crate) fn is_host(&self) -> bool {
        self.location.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE
    }

    pub(crate) fn export(&self, kind: CUmemAllocationHandleType) -> Result<OwnedFd> {
        ensure(kind == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)?;
        ensure(self.shared.0 & kind.0 != 0)?;
        self.descriptor()
    }

    pub(crate) fn descriptor(&self) -> Result<OwnedFd> {
        self.file.try_clone().map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)
    }

    /// Imports exported physical memory. The caller keeps the descriptor.
    pub(crate) fn import(global: &Global, fd: RawFd) -> Result<u64> {
        let foreign = CUresult::CUDA_ERROR_UNKNOWN;
        let file = open_descriptor(fd).map_err(|_| foreign)?;
        let name = file_name(file).ok_or(foreign)?;
        let (kind, id) = name.strip_prefix("softgpu-physical-").and_then(|rest| rest.split_once('-')).ok_or(foreign)?;
        let location = CUmemLocation {
            type_: CUmemLocationType(kind.parse().map_err(|_| INVALID)?),
            id: id.parse().map_err(|_| INVALID)?,
        };
        let prop = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            // Imported memory cannot be exported again.
            requestedHandleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location,
            ..Default::default()
        };
        check(global, &prop)?;
        let size = file_size(file).map_err(|_| INVALID)? as usize;
        let own = file.try_clone_to_owned().map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
        Ok(Self::keep(global, size, &prop, own, true, None))
    }
}

pub(crate) fn reserve(global: &Global, size: usize, alignment: usize, wish: u64) -> Result<u64> {
    ensure(size > 0 && size.is_multiple_of(GRANULARITY))?;
    ensure(alignment == 0 || alignment.is_power_of_two())?;
    ensure(wish.is_multiple_of(GRANULARITY as u64))?;
    let alignment = alignment.max(GRANULARITY);
    let shown = Mapping::aligned(size, alignment, wish as usize).map_err(full)?;
    let own = global.settings.strict.then(|| Mapping::aligned(size, GRANULARITY, 0)).transpose().map_err(full)?;
    let reservation = Reservation { sequence: next_sequence(), size, shown, own, lingering: Mutex::default() };
    let reservation = Arc::new(reservation);
    let base = reservation.base() as u64;
    lock(&global.reservations).insert(base, reservation);
    Ok(base)
}

/// Frees a reservation: exactly one, in which nothing is mapped.
pub(crate) fn unreserve(global: &Global, base: u64, size: usize) -> Result {
    let mut all = lock(&global.reservations);
    ensure(all.get(&base).is_some_and(|found| found.size == size))?;
    ensure(global.memory.is_free(base, size as u64))?;
    all.remove(&base);
    Ok(())
}

/// Maps a whole physical allocation.
pub(crate) fn map(global: &Global, base: u64, size: usize, offset: usize, handle: u64) -> Result {
    let physical = Physical::find(global, handle)?;
    ensure(size > 0)?;
    if offset != 0 || size != physical.size {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    ensure(base.is_multiple_of(GRANULARITY as u64))?;
    let all = lock(&global.reservations);
    let (start, reservation) = all.range(..=base).next_back().ok_or(INVALID)?;
    let inside = (base - start) as usize;
    ensure(inside.checked_add(size).is_some_and(|end| end <= reservation.size))?;
    let access = reservation.access();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mapped = Mapped {
        number: NEXT.fetch_add(1, Ordering::Relaxed),
        base: base as usize,
        access: access.base() + inside,
        physical: physical.clone(),
        reservation: reservation.clone(),
    };
    let (at, part) = (mapped.access, mapped.part());
    let device = if physical.is_host() { 0 } else { physical.location.id as usize };
    // Nobody else maps while this thread locks the reservations. An existing mapping stays as it is.
    let block = global.memory.insert_apart(Allocation::placed(device, size, mapped)).ok_or(INVALID)?;
    if physical.has_contents.swap(true, Ordering::Relaxed) {
        block.note_contents();
    }
    let mut lingering = lock(&reservation.lingering);
    // Work for the memory that was here before must not fault in this process. It writes to the new memory.
    let rights = if take_over(&mut lingering, &part) { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
    let done = access.place(at, size, physical.file.as_fd(), rights);
    drop(lingering);
    let done = done.and_then(|()| {
        let both = physical.is_host() && reservation.own.is_some();
        if both { reservation.shown.place(base as usize, size, physical.file.as_fd(), libc::PROT_NONE) } else { Ok(()) }
    });
    done.map_err(|error| {
        global.memory.remove(base, |_| true);
        full(error)
    })
}

/// The mappings that make up a range. They must be whole and without gaps.
fn pieces(global: &Global, base: u64, size: usize) -> Result<Vec<Arc<Allocation>>> {
    let end = base.checked_add(size as u64).ok_or(INVALID)?;
    let (mut found, mut at) = (Vec::new(), base);
    ensure(size > 0)?;
    while at < end {
        let block = global.memory.at(at).filter(|block| block.base == at && block.origin == Origin::Virtual);
        let block = block.ok_or(INVALID)?;
        at += block.size as u64;
        found.push(block);
    }
    ensure(at == end).map(|()| found)
}

/// Whether a range lies in one reservation.
fn holds(all: &BTreeMap<u64, Arc<Reservation>>, base: u64, size: usize) -> bool {
    let Some((start, reservation)) = all.range(..=base).next_back() else { return false };
    ((base - start) as usize).checked_add(size).is_some_and(|end| end <= reservation.size)
}

fn is_empty(global: &Global, base: u64, size: usize) -> bool {
    global.memory.at(base).is_none() && global.memory.is_free(base, size as u64)
}

pub(crate) fn is_reserved(global: &Global, address: u64) -> bool {
    holds(&lock(&global.reservations), address, 1)
}

/// Ends mappings without waiting for work. On a device, queued work would fault, or use what is mapped there next.
pub(crate) fn unmap(global: &Global, base: u64, size: usize) -> Result {
    let all = lock(&global.reservations);
    // Unmapping a range without mappings changes nothing.
    if size > 0 && holds(&all, base, size) && is_empty(global, base, size) {
        return Ok(());
    }
    let blocks = pieces(global, base, size)?;
    for block in &blocks {
        let work = races::unseen(&(block.access..block.access + block.size));
        if work.is_some() || is_held(block) {
            report_after(Misuse::FreeWhileInUse, "cuMemUnmap", block.base, Some(block.sequence), work);
        }
    }
    for block in blocks {
        global.memory.remove(block.base, |_| true);
        block.mapped().map_or(Ok(()), Mapped::end).map_err(full)?;
    }
    Ok(())
}

/// Whether queued work holds a mapping. A call of another thread that asks about its address also does, but not for long.
fn is_held(block: &Arc<Allocation>) -> bool {
    // The table of all memory holds it, and so does the caller.
    let is_held = || Arc::strong_count(block) > 2;
    (0..100).all(|_| {
        thread::yield_now();
        is_held()
    })
}

/// Sets the rights of places to mappings.
pub(crate) fn set_access(global: &Global, base: u64, size: usize, wishes: &[CUmemAccessDesc]) -> Result {
    let _all = lock(&global.reservations);
    let blocks = pieces(global, base, size)?;
    ensure(!wishes.is_empty())?;
    for wish in wishes {
        ensure(matches!(wish.flags.0, 0 | 1 | 3))?;
        match wish.location.type_ {
            CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => {
                ensure(global.device(wish.location.id).is_ok())?;
                let device = wish.location.id as usize;
                let far = |block: &&Arc<Allocation>| !block.is_host() && block.device != device;
                if wish.flags.0 != 0 && blocks.iter().filter(far).any(|block| !global.reaches(device, block.device)) {
                    return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
                }
            }
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => {
                let host = |block: &Arc<Allocation>| block.mapped().is_some_and(|mapped| mapped.physical.is_host());
                if !blocks.iter().all(host) {
                    return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
                }
            }
            _ => return Err(INVALID),
        }
    }
    let change = |block: &Arc<Allocation>| {
        let allows = |device| block.allows(device, Use::Read) || block.allows(device, Use::Write);
        Change::of_rights(block.domain()?, block.device, wishes, allows)
    };
    let _inside = access::change("cuMemSetAccess", || blocks.iter().filter_map(change).collect());
    for block in blocks {
        let Some(mapped) = block.mapped() else { continue };
        let rights = {
            let mut notes = lock(&block.notes);
            wishes.iter().for_each(|wish| notes.set_rights(wish.location, wish.flags));
            match notes.all_rights() {
                0 => libc::PROT_NONE,
                1 => libc::PROT_READ,
                _ => libc::PROT_READ | libc::PROT_WRITE,
            }
        };
        mapped.reservation.access().protect(mapped.access, block.size, rights).map_err(full)?;
        if mapped.physical.is_host() && mapped.reservation.own.is_some() {
            mapped.reservation.shown.protect(mapped.base, block.size, rights).map_err(full)?;
        }
    }
    Ok(())
}

impl crate::state::handle::Handles<Physical> {
    /// Adds a handle to mapped memory. It has the same number, even if the other handles were released.
    pub(crate) fn retain(&self, physical: &Arc<Physical>) -> u64 {
        let mut handles = lock(&physical.handles);
        *handles += 1;
        self.put_back(physical.sequence, physical)
    }
}
