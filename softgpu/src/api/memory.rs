//! Device memory and managed memory.

use crate::call::{Result, driver_calls, ensure, offer, put};
use crate::misuse::{Misuse, report};
use crate::state::Global;
use crate::state::backing::Mapping;
use crate::state::contexts::current;
use crate::state::graphs::freeing;
use crate::state::memory::{Allocation, Origin, Storage};
use cuda_sys::{CUdeviceptr, CUmemAttach_flags, CUresult};
use std::ffi::c_uint;
use std::sync::Arc;

/// Rows of pitched memory begin at multiples of this many bytes.
const PITCH: usize = 512;

driver_calls! {
    |global: &'static Global|

    /// Returns the free and the total memory of the current device in bytes.
    fn cuMemGetInfo_v2[Started](free: *mut usize, total: *mut usize) {
        let store = &global.devices[current(global)?.device].store;
        offer(free, store.free() as usize);
        offer(total, store.total as usize);
        Ok(())
    }

    /// Allocates device memory.
    fn cuMemAlloc_v2[Uncaptured](dptr: *mut CUdeviceptr, bytesize: usize) {
        current(global)?;
        ensure(!dptr.is_null())?;
        put(dptr, 0)?;
        put(dptr, allocate(global, bytesize)?)
    }

    /// Allocates rows at a pitch.
    fn cuMemAllocPitch_v2[Uncaptured](
        dptr: *mut CUdeviceptr,
        pPitch: *mut usize,
        WidthInBytes: usize,
        Height: usize,
        ElementSizeBytes: c_uint,
    ) {
        ensure(!dptr.is_null() && !pPitch.is_null() && matches!(ElementSizeBytes, 4 | 8 | 16))?;
        ensure(WidthInBytes > 0 && Height > 0)?;
        let pitch = WidthInBytes.checked_next_multiple_of(PITCH);
        let size = pitch.and_then(|pitch| pitch.checked_mul(Height));
        let (Some(pitch), Some(size)) = (pitch, size) else { return Err(CUresult::CUDA_ERROR_INVALID_VALUE) };
        put(dptr, allocate(global, size)?)?;
        put(pPitch, pitch)
    }

    /// Frees memory of cuMemAlloc, cuMemAllocManaged, cuMemAllocAsync or a mapped buffer, after all work of its
    /// context.
    fn cuMemFree_v2[Uncaptured](dptr: CUdeviceptr) {
        if dptr == 0 {
            return Ok(());
        }
        free(global, "cuMemFree_v2", dptr)
    }

    /// Returns the allocation that contains an address.
    fn cuMemGetAddressRange_v2[Started](pbase: *mut CUdeviceptr, psize: *mut usize, dptr: CUdeviceptr) {
        current(global)?;
        let block = global.memory.known_at(dptr).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        offer(pbase, block.base);
        offer(psize, block.size);
        Ok(())
    }

    /// Allocates managed memory. CPU and devices share it, as they share all memory here.
    fn cuMemAllocManaged[Uncaptured](dptr: *mut CUdeviceptr, bytesize: usize, flags: c_uint) {
        ensure(!dptr.is_null())?;
        let context = current(global)?;
        ensure(bytesize > 0)?;
        ensure(matches!(CUmemAttach_flags(flags), CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL
            | CUmemAttach_flags::CU_MEM_ATTACH_HOST))?;
        let charge = global.host.take(bytesize)?;
        let mapping = Mapping::anonymous(bytesize).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let block = Allocation::new(&context, Origin::Managed, bytesize, Storage::Own(mapping), Some(charge));
        let block = block.flagged(flags);
        put(dptr, global.memory.insert(block).base)
    }
}

fn allocate(global: &Global, size: usize) -> Result<CUdeviceptr> {
    let context = current(global)?;
    ensure(size > 0)?;
    let charge = global.devices[context.device].store.take(size)?;
    let mapping = Mapping::recycled(size);
    let storage = mapping.and_then(|mapping| Storage::device(mapping, size, global.settings.strict));
    let storage = storage.map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    let block = Allocation::new(&context, Origin::Device, size, storage, Some(charge));
    Ok(global.memory.insert(block).base)
}

/// Frees memory that cuMemFree can free, for any caller.
pub(crate) fn free(global: &Global, call: &'static str, address: CUdeviceptr) -> Result {
    let of_graph = global.memory.at(address).filter(|block| block.base == address && block.graph.is_some());
    if let Some(block) = of_graph {
        return free_of_graph(global, call, &block);
    }
    let freeable =
        |block: &Allocation| matches!(block.origin, Origin::Device | Origin::Managed | Origin::Pool | Origin::Mapped);
    let block = global.memory.remove(address, freeable);
    let Some(block) = block else {
        let code = global.memory.wrong_free(call, address);
        // The end of a context freed its memory. While it is still current, its error is the answer.
        return Err(current(global).err().filter(|code| *code != CUresult::CUDA_ERROR_INVALID_CONTEXT).unwrap_or(code));
    };
    // The vkgdr allocation still holds memory that vkgdr frees.
    check_idle(call, &block, if call == "vkgdr_memory_free" { 2 } else { 1 });
    wait_for_users(global, &block);
    Ok(())
}

/// Frees memory that a graph allocated and did not free.
fn free_of_graph(global: &Global, call: &'static str, block: &Arc<Allocation>) -> Result {
    let Some(of_graph) = &block.graph else { return Ok(()) };
    if let Err(code) = of_graph.retire() {
        report(Misuse::DoubleFree, call, block.base, Some(block.sequence));
        return Err(code);
    }
    check_idle(call, block, 2);
    wait_for_users(global, block);
    freeing(of_graph.clone())();
    Ok(())
}

fn wait_for_users(global: &Global, block: &Allocation) {
    match &block.context {
        Some(context) => context.finish(),
        None => {
            for context in global.contexts.all().iter().filter(|context| context.device == block.device) {
                context.finish();
            }
        }
    }
}

/// Reports work that still uses an allocation that is being freed. `own` is the number of holders that are not work.
pub(crate) fn check_idle(call: &'static str, block: &Arc<Allocation>, own: usize) {
    let used = Arc::strong_count(block) > own;
    // Checked after the count: a later launch of the graph makes the allocation live before it adds users.
    let lives_again = || block.graph.as_ref().is_some_and(|graph| graph.is_live());
    if used && !lives_again() {
        report(Misuse::FreeWhileInUse, call, block.base, Some(block.sequence));
    }
}
