//! Whether access between devices works. Some machines claim it, and copies that use it write nothing.

use super::PeerSource;
use crate::error::call;
use crate::memory::device::{DRIVER_ALIGNMENT, DeviceMemory};
use crate::memory::pool::{DevicePool, DriverPoolOptions, PoolAccess};
use crate::memory::resource::{Block, MemoryResource, ResourceHandle};
use crate::stream::host_copies::CopySide;
use crate::{Context, Result, Stream};
use cuda_sys::CUdeviceptr;

const DOING: &str = "verifying access between devices";

/// A few bytes that no memory holds by chance.
type Sample = [u8; 64];

fn sample(seed: u8) -> Sample {
    core::array::from_fn(|n| (n as u8).wrapping_mul(167) ^ seed)
}

/// Gives access, if `give` finds that it works: whether a few bytes arrive that the peer's device copies in both
/// directions. `give` is called when all is prepared that may run code of the program.
pub(super) fn try_out(
    memory: &dyn MemoryResource,
    peer: &Context,
    give: impl FnOnce(&mut dyn FnMut() -> Result<bool>) -> Result<()>,
) -> Result<()> {
    let (near, far) = (Stream::new(peer)?, Stream::new(memory.context())?);
    let scratch = DeviceMemory::new(peer).share();
    let there = memory.allocate(size_of::<Sample>(), DRIVER_ALIGNMENT, &far)?;
    let here = match scratch.allocate(size_of::<Sample>(), DRIVER_ALIGNMENT, &near) {
        Ok(here) => here,
        Err(error) => {
            free(memory, there, &far);
            return Err(error);
        }
    };
    let given = give(&mut || exchange((here, &near), (there, &far)));
    free(&*scratch, here, &near);
    free(memory, there, &far);
    given
}

/// Gives access to an imported pool, if `give` finds that it works. Only the process that made such a pool can allocate
/// from it, so the bytes for the test come from a new pool of the same device. See [`try_out`].
pub(super) fn by_another_pool(
    owner: &Context,
    peer: &Context,
    give: impl FnOnce(&mut dyn FnMut() -> Result<bool>) -> Result<()>,
) -> Result<()> {
    let pool = DevicePool::new(owner, &DriverPoolOptions::default())?;
    pool.inner.set_access(peer.device().raw(), PoolAccess::ReadWrite)?;
    try_out(&*pool.inner, peer, give)
}

/// Frees a block that no work uses any more. An error does not concern the access, so it becomes a drop error.
fn free(memory: &dyn MemoryResource, block: Block, stream: &Stream) {
    // SAFETY: `exchange` has waited for all work on the block, which is freed once.
    if let Err(error) = unsafe { memory.deallocate(block, stream) }
        && !error.is_teardown()
    {
        memory.context().drop_errors().push("freeing memory of a test copy", error);
    }
}

/// Reads the far block by the near device, then writes it. Whether both arrived. Waits for all its work.
fn exchange((here, near): (Block, &Stream), (there, far): (Block, &Stream)) -> Result<bool> {
    let (here, there) = (here.device_pointer(), there.device_pointer());
    let (read, written) = (sample(0x5a), sample(0xc3));
    let mut seen = [0; 64];
    store(there, &read, far)?;
    store(here, &written, near)?;
    let spare = sample(0);
    // SAFETY: all addresses are of blocks or arrays of this size, which outlive the waits.
    unsafe {
        copy(here, there, near)?;
        load(&mut seen, here, near)?;
        let arrived = seen == read;
        store(here, &written, near)?;
        copy(there, here, near)?;
        seen = spare;
        load(&mut seen, there, far)?;
        Ok(arrived && seen == written)
    }
}

fn store(to: CUdeviceptr, bytes: &Sample, stream: &Stream) -> Result<()> {
    // SAFETY: the callers pass blocks of this size, and `copy` waits.
    unsafe { copy(to, bytes.as_ptr().expose_provenance() as CUdeviceptr, stream) }
}

/// # Safety
///
/// The address is of a block of this size.
unsafe fn load(bytes: &mut Sample, from: CUdeviceptr, stream: &Stream) -> Result<()> {
    // SAFETY: this function's contract, and `copy` waits.
    unsafe { copy(bytes.as_mut_ptr().expose_provenance() as CUdeviceptr, from, stream) }
}

/// Copies a sample, and waits.
///
/// # Safety
///
/// Both addresses are of memory of a sample's size.
unsafe fn copy(to: CUdeviceptr, from: CUdeviceptr, stream: &Stream) -> Result<()> {
    stream.run_copy(&DOING, (CopySide::Pageable, CopySide::Pageable), size_of::<Sample>(), || {
        let (cuda, _current) = (stream.context().driver().raw(), stream.context().bind()?);
        // The peer's scratch memory is plain.
        let _access = PeerSource::plain(stream.context()).enter();
        // SAFETY: this function's contract; `run_copy` waits for the copy.
        unsafe { call!(cuda.cuMemcpyAsync(to, from, size_of::<Sample>(), stream.raw())) }
    })
}
