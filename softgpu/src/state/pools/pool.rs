//! Pools, which allocate in stream order.
//!
//! A pool keeps no memory: a freed block goes to the system when its stream reaches the free. The pool only counts its
//! reserve, as the driver does: in steps of [`STEP`], up to the release threshold.

use super::places::Places;
use crate::call::{Result, ensure};
use crate::settings::USUAL;
use crate::state::Global;
use crate::state::backing::Charge;
use crate::state::backing::{Mapping, PAGE};
use crate::state::backing::{file_name, file_number, named_file, open_descriptor};
use crate::state::checks::races::QueueId;
use crate::state::checks::races::access::{self, Change, Domain, Inside};
use crate::state::handle::next_sequence;
use crate::sync::lock;
use cuda_sys::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation,
    CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool, CUresult,
};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The kind of a pool's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Device,
    Host,
    Managed,
}

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) sequence: u64,
    pub(crate) device: usize,
    pub(crate) place: Place,
    /// The location in its properties.
    location: CUmemLocation,
    /// Whether it is the default pool of a place, which never ends.
    pub(crate) builtin: bool,
    /// Its maximum size in bytes, a multiple of [`STEP`]; 0 for no limit.
    limit: u64,
    account: Mutex<Account>,
    /// The file of its memory, if other processes may have it.
    shared: Option<Shared>,
}

/// A pool's memory as a file.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) file: OwnedFd,
    /// The file's inode.
    pub(crate) number: u64,
    pub(crate) imported: bool,
    /// Whether the pool was exported. Before that, none of its blocks can be exported.
    pub(crate) exported: AtomicBool,
    /// The used parts of the file. The file has pages only there.
    places: Mutex<Places>,
    /// The addresses of imported blocks, by their offset in the file.
    pub(crate) mapped: Mutex<HashMap<u64, u64>>,
}

/// The length of a pool's file in bytes.
const FILE: u64 = 1 << 46;

impl Shared {
    fn new(file: OwnedFd, imported: bool) -> Result<Self> {
        let number = file_number(file.as_fd()).map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
        let (exported, places) = (AtomicBool::new(false), Mutex::new(Places::new(FILE)));
        Ok(Self { file, number, imported, exported, places, mapped: Mutex::default() })
    }

    /// Takes space for a block. Returns its offset.
    fn place(&self, size: usize) -> Result<u64> {
        lock(&self.places).take(reserve(size as u64)).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// Gives a block's space and pages back.
    fn free(&self, offset: u64, size: u64) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the file is ours. If the call fails, the pages stay until the pool ends.
        unsafe {
            libc::fallocate(self.file.as_raw_fd(), mode, offset as libc::off_t, reserve(size) as libc::off_t);
        }
        lock(&self.places).give(offset, reserve(size));
    }
}

#[derive(Debug)]
struct Account {
    used: u64,
    used_high: u64,
    /// The used bytes, with each block rounded up to whole pages.
    pages: u64,
    reserved: u64,
    reserved_high: u64,
    threshold: u64,
    reuse: [i32; 3],
    access: HashMap<usize, CUmemAccess_flags>,
    /// The stream that allocated or freed first, and whether others did too.
    stream: Option<QueueId>,
    has_several_streams: bool,
}

impl Account {
    /// Reduces the reserve to `least` bytes, but not below the used bytes, in whole steps.
    fn keep(&mut self, least: u64) {
        self.reserved = self.reserved.min(steps(least)).max(steps(self.pages));
    }
}

/// Bytes taken from a pool. Dropping the value gives them back.
#[derive(Debug)]
pub(crate) struct Share {
    pool: Arc<Pool>,
    size: u64,
    /// The bytes that the pool had handed out before, in whole pages.
    before: u64,
    offset: Option<u64>,
}

impl Share {
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// What the driver reports as the start of memory of a host pool: 0 for the pool's first block.
    pub(crate) fn start(&self) -> u64 {
        self.before
    }

    /// Its offset in the pool's file, if the pool has one.
    pub(crate) fn offset(&self) -> Option<u64> {
        self.offset
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut account = lock(&self.pool.account);
        account.used -= self.size;
        account.pages -= reserve(self.size);
        let threshold = account.threshold;
        account.keep(threshold);
        drop(account);
        if let (Some(shared), Some(offset)) = (&self.pool.shared, self.offset) {
            shared.free(offset, self.size);
        }
    }
}

/// The unit in which a pool reserves memory.
const STEP: u64 = 32 << 20;
/// More bytes than a process has addresses for.
const ADDRESSES: usize = 1 << 47;

fn steps(size: u64) -> u64 {
    size.checked_next_multiple_of(STEP).unwrap_or(u64::MAX)
}

fn reserve(size: u64) -> u64 {
    size.next_multiple_of(PAGE as u64)
}

impl Pool {
    /// The default pool of a place.
    pub(crate) fn builtin(device: usize, place: Place, location: CUmemLocation) -> Self {
        Self::new(device, place, location, true, 0, None)
    }

    fn new(
        device: usize,
        place: Place,
        location: CUmemLocation,
        builtin: bool,
        limit: u64,
        shared: Option<Shared>,
    ) -> Self {
        let account = Account {
            used: 0,
            used_high: 0,
            pages: 0,
            reserved: 0,
            reserved_high: 0,
            threshold: 0,
            reuse: [1; 3],
            access: HashMap::new(),
            stream: None,
            has_several_streams: false,
        };
        Self {
            sequence: next_sequence(),
            device,
            place,
            location,
            builtin,
            limit,
            account: Mutex::new(account),
            shared,
        }
    }

    pub(crate) fn make(global: &Global, props: &CUmemPoolProps) -> Result<u64> {
        ensure(props.reserved.iter().all(|byte| *byte == 0))?;
        if props.maxSize >= ADDRESSES {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        let posix = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        let shared = props.handleTypes == posix;
        ensure(shared || props.handleTypes == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE)?;
        let managed = match props.allocType {
            CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED => false,
            CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED if !shared => true,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        let host = if managed { Place::Managed } else { Place::Host };
        let (device, place) = match props.location.type_ {
            CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => {
                let device = usize::try_from(props.location.id).unwrap_or(usize::MAX);
                ensure(device < global.devices.len())?;
                (device, if managed { Place::Managed } else { Place::Device })
            }
            CUmemLocationType::CU_MEM_LOCATION_TYPE_NONE if managed => (0, Place::Managed),
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST if !shared => (0, host),
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => {
                ensure(props.location.id == 0)?;
                (0, host)
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        let shared = if shared {
            let name = format!("softgpu-pool-{}-{device}", u8::from(place == Place::Host));
            let file = named_file(&name, FILE).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
            Some(Shared::new(file, false)?)
        } else {
            None
        };
        let pool = Self::new(device, place, props.location, false, steps(props.maxSize as u64), shared);
        Ok(global.pools.insert(pool.sequence, pool).0)
    }

    /// Notes a stream that allocates or frees.
    pub(crate) fn note_stream(&self, stream: QueueId) {
        let mut account = lock(&self.account);
        account.has_several_streams |= *account.stream.get_or_insert(stream) != stream;
    }

    /// Whether the pool has memory that no stream has freed yet, and several streams allocated from it.
    pub(crate) fn is_in_use_by_several(&self) -> bool {
        let account = lock(&self.account);
        account.used > 0 && account.has_several_streams
    }

    pub(crate) fn export(&self) -> Result<OwnedFd> {
        let shared = self.shared.as_ref().filter(|shared| !shared.imported);
        let shared = shared.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let file = shared.file.try_clone().map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
        shared.exported.store(true, Ordering::Relaxed);
        Ok(file)
    }

    /// Imports an exported pool. The caller keeps the descriptor.
    pub(crate) fn import(global: &Global, fd: RawFd) -> Result<u64> {
        let invalid = CUresult::CUDA_ERROR_UNKNOWN;
        let file = open_descriptor(fd).map_err(|_| invalid)?;
        let name = file_name(file).ok_or(invalid)?;
        let (host, device) = name.strip_prefix("softgpu-pool-").and_then(|rest| rest.split_once('-')).ok_or(invalid)?;
        let device: usize = device.parse().map_err(|_| invalid)?;
        ensure(device < global.devices.len())?;
        // A pool that was imported already keeps its handle.
        let number = file_number(file).map_err(|_| invalid)?;
        let same =
            |pool: &Arc<Self>| pool.shared.as_ref().is_some_and(|shared| shared.imported && shared.number == number);
        if let Some(pool) = global.pools.all().into_iter().find(same) {
            return Ok(global.pools.handle(pool.sequence));
        }
        let place = if host == "1" { Place::Host } else { Place::Device };
        let own = file.try_clone_to_owned().map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
        let kind = match place {
            Place::Host => CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA,
            _ => CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        };
        let location = CUmemLocation { type_: kind, id: device as i32 };
        let pool = Self::new(device, place, location, false, 0, Some(Shared::new(own, true)?));
        Ok(global.pools.insert(pool.sequence, pool).0)
    }

    pub(crate) fn shared(&self) -> Option<&Shared> {
        self.shared.as_ref()
    }

    pub(crate) fn find(global: &Global, handle: CUmemoryPool) -> Result<Arc<Self>> {
        global.pools.get(handle.addr() as u64).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    pub(crate) fn is_host(&self) -> bool {
        self.place == Place::Host
    }

    pub(crate) fn is_managed(&self) -> bool {
        self.place == Place::Managed
    }

    /// The rights of a device to this pool's memory.
    pub(crate) fn access(&self, device: usize) -> CUmemAccess_flags {
        if self.is_managed() { CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE } else { self.given(device) }
    }

    /// The rights that a device was given; the owner has all rights.
    fn given(&self, device: usize) -> CUmemAccess_flags {
        if self.place == Place::Device && device == self.device {
            return CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        }
        let none = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE;
        lock(&self.account).access.get(&device).copied().unwrap_or(none)
    }

    /// The rights that a place was given. All devices may use managed memory without them.
    pub(crate) fn access_of(&self, devices: usize, location: CUmemLocation) -> Result<CUmemAccess_flags> {
        match location.type_ {
            CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => {
                let device = usize::try_from(location.id).unwrap_or(usize::MAX);
                ensure(device < devices)?;
                Ok(self.given(device))
            }
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => {
                Ok(match self.is_host() {
                    true => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                    false => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
                })
            }
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Whether a device has a right to this pool's memory.
    pub(crate) fn allows(&self, device: usize, right: u32) -> bool {
        self.access(device).0 & right != 0
    }

    pub(crate) fn set_access(&self, global: &Global, location: CUmemLocation, flags: CUmemAccess_flags) -> Result {
        ensure(matches!(flags.0, 0 | 1 | 3))?;
        let unable = CUresult::CUDA_ERROR_NOT_SUPPORTED;
        match location.type_ {
            CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => {}
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => {
                return Err(unable);
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
        let device = usize::try_from(location.id).unwrap_or(usize::MAX);
        if device >= global.devices.len() {
            return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
        }
        if flags == CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ {
            return Err(unable);
        }
        if self.place == Place::Device && device == self.device {
            // The owner keeps all rights.
            let all = flags == CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
            return if all { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_DEVICE) };
        }
        if self.place == Place::Device && flags.0 != 0 && !global.reaches(device, self.device) {
            return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
        }
        lock(&self.account).access.insert(device, flags);
        Ok(())
    }

    /// Begins a call that sets rights, for race checks.
    pub(crate) fn change_access(&self, wishes: &[CUmemAccessDesc]) -> Inside {
        access::change("cuMemPoolSetAccess", || {
            let of_device = (self.place == Place::Device).then_some(Domain::Pool(self.sequence));
            let change = |domain| Change::of_rights(domain, self.device, wishes, |device| self.allows(device, 3));
            of_device.and_then(change).into_iter().collect()
        })
    }

    /// Takes the pages of a block, their charge to the device, and the block's share of the pool.
    pub(crate) fn take(self: &Arc<Self>, global: &Global, size: usize) -> Result<(Mapping, Option<Charge>, Share)> {
        self.own()?;
        let mut share = self.count(size as u64)?;
        let charge = match self.place {
            Place::Device => Some(global.devices[self.device].store.take(size)?),
            Place::Host | Place::Managed => None,
        };
        let mapping = match &self.shared {
            Some(shared) => {
                let offset = shared.place(size)?;
                share.offset = Some(offset);
                Mapping::shared(shared.file.as_fd(), offset, size)
            }
            None => Mapping::recycled(size),
        };
        Ok((mapping.map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?, charge, share))
    }

    fn count(self: &Arc<Self>, size: u64) -> Result<Share> {
        let mut account = lock(&self.account);
        let used = account.used.checked_add(size).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        if self.limit > 0 && used > self.limit || size > u64::MAX - PAGE as u64 {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        account.used = used;
        account.used_high = account.used_high.max(used);
        let before = account.pages;
        account.pages += reserve(size);
        account.reserved = account.reserved.max(steps(account.pages));
        account.reserved_high = account.reserved_high.max(account.reserved);
        Ok(Share { pool: self.clone(), size, before, offset: None })
    }

    /// Gives back unused reserve beyond `least` bytes.
    pub(crate) fn trim(&self, least: u64) -> Result {
        self.own()?;
        lock(&self.account).keep(least);
        Ok(())
    }

    /// Fails for an imported pool, whose figures are not known here.
    fn own(&self) -> Result {
        ensure(self.shared.as_ref().is_none_or(|shared| !shared.imported))
    }

    /// An attribute: sizes are 64-bit, the reuse switches 32-bit.
    pub(crate) fn attribute(&self, attribute: CUmemPool_attribute) -> Result<Attribute> {
        self.own()?;
        let account = lock(&self.account);
        Ok(match attribute {
            CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => Attribute::Size(account.threshold),
            CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => Attribute::Size(account.reserved),
            CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => Attribute::Size(account.reserved_high),
            CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT => Attribute::Size(account.used),
            CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH => Attribute::Size(account.used_high),
            CUmemPool_attribute(which @ 1..=3) => Attribute::Switch(account.reuse[which as usize - 1]),
            // CUDA 13.0 does not know the other attributes.
            _ if Global::get()?.settings.version > USUAL => self.property(attribute)?,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        })
    }

    /// An attribute that tells how the pool was made.
    fn property(&self, attribute: CUmemPool_attribute) -> Result<Attribute> {
        let kind = if self.is_managed() {
            CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED
        } else {
            CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED
        };
        let handles = match &self.shared {
            Some(_) => CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            None => CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        };
        Ok(match attribute {
            CUmemPool_attribute::CU_MEMPOOL_ATTR_ALLOCATION_TYPE => Attribute::Switch(kind.0 as i32),
            CUmemPool_attribute::CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES => Attribute::Switch(handles.0 as i32),
            CUmemPool_attribute::CU_MEMPOOL_ATTR_LOCATION_ID => Attribute::Switch(self.location.id),
            CUmemPool_attribute::CU_MEMPOOL_ATTR_LOCATION_TYPE => Attribute::Switch(self.location.type_.0 as i32),
            CUmemPool_attribute::CU_MEMPOOL_ATTR_MAX_POOL_SIZE => Attribute::Size(self.limit),
            CUmemPool_attribute::CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED => Attribute::Switch(0),
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        })
    }

    /// Sets an attribute. A high-water mark can only be reset, with 0.
    pub(crate) fn set_attribute(&self, attribute: CUmemPool_attribute, value: Attribute) -> Result {
        let mut account = lock(&self.account);
        match (attribute, value) {
            (CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, Attribute::Size(size)) => account.threshold = size,
            (CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, Attribute::Size(0)) => {
                account.reserved_high = account.reserved;
            }
            (CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, Attribute::Size(0)) => {
                account.used_high = account.used;
            }
            (CUmemPool_attribute(which @ 1..=3), Attribute::Switch(value)) => {
                account.reuse[which as usize - 1] = i32::from(value != 0);
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }
}

/// The value of a pool's attribute: a size, or a 32-bit number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attribute {
    Size(u64),
    Switch(i32),
}
