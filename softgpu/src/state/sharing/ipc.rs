//! The 64 bytes of an IPC handle: the process, its file, and the part of the file.

use crate::call::{Result, ensure};
use crate::state::Global;
use crate::state::backing::Mapping;
use crate::state::backing::{file_name, file_number, file_size};
use crate::state::contexts::Context;
use crate::state::memory::{Allocation, Origin, Storage};
use crate::state::pools::{Pool, Shared};
use crate::sync::lock;
use cuda_sys::CUresult;
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// The numbers of the files for which this process made IPC handles.
static OWN: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Memory = 1,
    Event = 2,
    PoolMemory = 3,
}

/// The content of an IPC handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) purpose: Purpose,
    /// The exporting process, and the number of its descriptor; 0 for memory of pools.
    pub(crate) process: u32,
    pub(crate) descriptor: u32,
    /// The file's inode.
    pub(crate) file: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    /// The bytes from the start of the allocation to the exported address.
    pub(crate) within: u64,
}

const MAGIC: [u8; 7] = *b"softgpu";

impl Ticket {
    /// The handle for a file of this process.
    pub(crate) fn of_file(purpose: Purpose, file: BorrowedFd<'_>, size: u64) -> Result<Self> {
        let number = file_number(file).map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
        lock(&OWN).insert(number);
        Ok(Self {
            purpose,
            process: std::process::id(),
            descriptor: file.as_raw_fd() as u32,
            file: number,
            offset: 0,
            size,
            within: 0,
        })
    }

    pub(crate) fn write(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[..7].copy_from_slice(&MAGIC);
        bytes[7] = self.purpose as u8;
        bytes[8..12].copy_from_slice(&self.process.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.descriptor.to_le_bytes());
        let numbers = [self.file, self.offset, self.size, self.within];
        for (place, number) in bytes[16..48].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let sum = checksum(&bytes[..56]);
        bytes[56..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a handle. Bytes that `write` did not make are an invalid value.
    pub(crate) fn read(bytes: &[u8; 64], purpose: Purpose) -> Result<Self> {
        let number = |at: usize| bytes[at..at + 8].iter().rev().fold(0_u64, |all, byte| all << 8 | u64::from(*byte));
        ensure(bytes[..7] == MAGIC && bytes[7] == purpose as u8 && number(56) == checksum(&bytes[..56]))?;
        let both = number(8);
        let (process, descriptor) = (both as u32, (both >> 32) as u32);
        let (file, offset, size, within) = (number(16), number(24), number(32), number(40));
        Ok(Self { purpose, process, descriptor, file, offset, size, within })
    }

    /// Opens the exporting process's file. That process itself cannot open it, even if the handle was changed to name
    /// another process that has the file open.
    pub(crate) fn open(&self, name: &str) -> Result<OwnedFd> {
        if self.process == std::process::id() || lock(&OWN).contains(&self.file) {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        let path = format!("/proc/{}/fd/{}", self.process, self.descriptor);
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(|_| INVALID)?;
        let file = OwnedFd::from(file);
        ensure(file_name(file.as_fd()).as_deref() == Some(name))?;
        ensure(file_number(file.as_fd()).is_ok_and(|number| number == self.file))?;
        Ok(file)
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    let mix = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// The handle for the cuMemAlloc allocation that contains an address.
pub(crate) fn export_memory(global: &Global, address: u64) -> Result<[u8; 64]> {
    let block = global.memory.at(address).filter(|block| block.origin == Origin::Device).ok_or(INVALID)?;
    let file = shared_file(&block)?;
    Ok(Ticket::of_file(Purpose::Memory, file.as_fd(), block.size as u64)?.write())
}

/// The file of a cuMemAlloc allocation. Waits for the work of its context first, as the real driver does not: here the
/// bytes move into the file, and no work may use them meanwhile.
pub(crate) fn shared_file(block: &Allocation) -> Result<Arc<OwnedFd>> {
    if let Some(context) = &block.context {
        context.synchronize();
    }
    block.file()
}

/// Opens an allocation of another process, or counts one more use if it is open already.
pub(crate) fn open_memory(global: &Global, context: &Arc<Context>, bytes: &[u8; 64]) -> Result<u64> {
    let ticket = Ticket::read(bytes, Purpose::Memory)?;
    let file = ticket.open("softgpu-device")?;
    let mut opened = lock(&global.opened);
    if let Some(base) = opened.get(&(ticket.file, context.device)) {
        let block = global.memory.at(*base).filter(|block| block.origin == Origin::Ipc && block.base == *base);
        if let Some(block) = block {
            lock(&block.notes).opened += 1;
            return Ok(*base);
        }
    }
    let size = usize::try_from(ticket.size).map_err(|_| INVALID)?;
    ensure(size > 0 && file_size(file.as_fd()).is_ok_and(|room| ticket.size <= room))?;
    let storage = Mapping::shared(file.as_fd(), 0, size)
        .and_then(|mapping| Storage::device(mapping, size, global.settings.strict))
        .map_err(|_| CUresult::CUDA_ERROR_MAP_FAILED)?;
    let block = Allocation::new(context, Origin::Ipc, size, storage, None).with_contents();
    let block = global.memory.insert(block);
    opened.insert((ticket.file, context.device), block.base);
    Ok(block.base)
}

/// Ends one use of another process's allocation. The last one waits for all work and unmaps the memory.
pub(crate) fn close_memory(global: &Global, base: u64) -> Result {
    let opened = lock(&global.opened);
    let block = global.memory.at(base).filter(|block| block.origin == Origin::Ipc && block.base == base);
    let block = block.ok_or(INVALID)?;
    {
        let mut notes = lock(&block.notes);
        if notes.opened > 0 {
            notes.opened -= 1;
            return Ok(());
        }
    }
    global.memory.remove(base, |_| true);
    drop(opened);
    if let Some(context) = &block.context {
        context.finish();
    }
    Ok(())
}

/// The handle for a block of an exported pool.
pub(crate) fn export_pool_memory(global: &Global, address: u64) -> Result<[u8; 64]> {
    let block = global.memory.at(address).ok_or(INVALID)?;
    let pool = block.pool.as_ref().ok_or(INVALID)?;
    let shared = pool.shared().filter(|shared| !shared.imported).ok_or(INVALID)?;
    ensure(address == block.base && shared.exported.load(Ordering::Relaxed))?;
    let ticket = Ticket {
        purpose: Purpose::PoolMemory,
        process: 0,
        descriptor: 0,
        file: shared.number,
        offset: block.file_offset.ok_or(INVALID)?,
        size: block.size as u64,
        within: address - block.base,
    };
    Ok(ticket.write())
}

/// Maps a block of an imported pool. A block that is mapped already keeps its address, and like the driver, nothing
/// counts the imports. A block in host memory cannot be mapped twice. A mapping of another size belongs to an earlier
/// block at the same offset.
pub(crate) fn import_pool_memory(global: &Global, pool: &Arc<Pool>, bytes: &[u8; 64]) -> Result<u64> {
    let ticket = Ticket::read(bytes, Purpose::PoolMemory)?;
    let shared = pool.shared().filter(|shared| shared.imported && shared.number == ticket.file).ok_or(INVALID)?;
    let mut mapped = lock(&shared.mapped);
    if let Some(base) = mapped.get(&ticket.offset) {
        let is_it = |block: &Arc<Allocation>| {
            block.size as u64 == ticket.size && block.pool.as_ref().is_some_and(|other| Arc::ptr_eq(other, pool))
        };
        if global.memory.at(*base).is_some_and(|block| is_it(&block)) {
            return if pool.is_host() { Err(CUresult::CUDA_ERROR_ALREADY_MAPPED) } else { Ok(base + ticket.within) };
        }
    }
    let block = map_part(global, pool, shared, ticket.offset, ticket.size)?;
    let base = global.memory.insert(block).base;
    mapped.insert(ticket.offset, base);
    Ok(base + ticket.within)
}

/// Maps part of an imported pool's file.
fn map_part(global: &Global, pool: &Arc<Pool>, shared: &Shared, offset: u64, size: u64) -> Result<Allocation> {
    let room = file_size(shared.file.as_fd()).map_err(|_| INVALID)?;
    ensure(size > 0 && offset.checked_add(size).is_some_and(|end| end <= room))?;
    let size = usize::try_from(size).map_err(|_| INVALID)?;
    let hidden = !pool.is_host() && global.settings.strict;
    let storage = Mapping::shared(shared.file.as_fd(), offset, size)
        .and_then(|mapping| Storage::device(mapping, size, hidden))
        .map_err(|_| CUresult::CUDA_ERROR_MAP_FAILED)?;
    Ok(Allocation::pooled(pool, size, storage).with_contents())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipc_ticket_round_trips_and_rejects_any_changed_byte() {
        let ticket = Ticket {
            purpose: Purpose::PoolMemory,
            process: 7,
            descriptor: 9,
            file: u64::MAX - 1,
            offset: 4096,
            size: 100,
            within: 3,
        };
        let bytes = ticket.write();
        assert_eq!(Ticket::read(&bytes, Purpose::PoolMemory), Ok(ticket));
        assert_eq!(Ticket::read(&bytes, Purpose::Memory), Err(INVALID));
        assert_eq!(Ticket::read(&[0; 64], Purpose::Memory), Err(INVALID));
        for n in 0..64 {
            let mut forged = bytes;
            forged[n] ^= 1;
            assert_eq!(Ticket::read(&forged, Purpose::PoolMemory), Err(INVALID), "byte {n}");
        }
    }
}
