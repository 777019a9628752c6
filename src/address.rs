//! Memory by address
//!
//! Device memory that the program frees by its address, as with malloc and free: for allocators that other libraries
//! call. There is one pool for each device, which the library makes when it is first needed, over the primary context.
//!
//! A stream is a CUstream, which is the same as a cudaStream_t. NULL is the legacy default stream. A call uses the stream
//! only until it returns. So the program may destroy it after any call, and needs no handle for it. During a call no
//! other thread may begin or end a capture of the stream.
//!
//! The process never ends these pools, so that destructors may still free memory.
//!
//! cudamem_resource_malloc and cudamem_resource_free do the same with memory of one resource, of any kind.

use crate::call::{Failure, Out, Outcome, invalid, object, options, out, run};
use crate::handles::cudamem_resource;
use crate::library::driver;
use crate::made::new_resource;
use crate::pool::cudamem_pool_options;
use crate::resource::{CUDAMEM_ACCESS_DEVICE, CUDAMEM_ACCESS_HOST};
use crate::status::{CUDAMEM_SUCCESS, cudamem_status};
use crate::{call, message};
use core::ffi::{CStr, c_int, c_void};
use core::mem::MaybeUninit;
use cuda_mem::check_not_forked;
use cuda_mem::memory::Accessibility;
use cuda_mem::pool::{AddressPools, PoolOptions};
use std::io::Write;
use std::sync::{Mutex, OnceLock, PoisonError};

static POOLS: OnceLock<AddressPools> = OnceLock::new();
/// The options of pools that are not made yet.
static CHOSEN: Mutex<Option<PoolOptions>> = Mutex::new(None);

#[inline]
fn pools() -> Outcome<&'static AddressPools> {
    match POOLS.get() {
        Some(pools) => Ok(pools),
        None => make_pools(),
    }
}

#[cold]
fn make_pools() -> Outcome<&'static AddressPools> {
    check_not_forked("making pools")?;
    let driver = driver()?;
    let chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(made) = POOLS.get() {
        return Ok(made);
    }
    let pools = AddressPools::new(driver, &chosen.clone().unwrap_or_default())?;
    Ok(POOLS.get_or_init(|| pools))
}

/// Sets how the pools of cudamem_malloc are made, each with these options. options may be NULL. Call it before the first
/// function of this group.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the pools have been made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_malloc_set_options(options: *const cudamem_pool_options) -> cudamem_status {
    run("cudamem_malloc_set_options", || {
        // SAFETY: the header requires NULL or `size` bytes.
        let settings = unsafe { self::options("options", options) }?.settings()?;
        check_not_forked("cudamem_malloc_set_options")?;
        let mut chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
        if POOLS.get().is_some() {
            let rule = "the pools have been made: set options before the first allocation";
            return Err(invalid("options", "set too late", rule));
        }
        *chosen = Some(settings);
        Ok(())
    })
}

/// Allocates bytes on a device, for work of a stream. The address is a multiple of 256. 0 bytes have an address too. If
/// another library captures the stream, the memory belongs to the graph; it returns to the pool when it has been freed
/// and the graph has ended.
///
/// Errors: CUDAMEM_ERROR_OUT_OF_MEMORY. CUDAMEM_ERROR_INVALID_ARGUMENT if there is no such device, or if the stream is
/// not of the device's primary context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_malloc(
    size: usize,
    device: i32,
    stream: *mut c_void,
    address: Out<'_, u64>,
) -> cudamem_status {
    run("cudamem_malloc", || {
        let address = out("address", address)?;
        // SAFETY: the header requires a live stream.
        address.write(unsafe { pools()?.malloc(size, device, stream.cast()) }?);
        Ok(())
    })
}

/// Frees memory of cudamem_malloc that only work queued on the stream so far still uses. size and device are those of
/// the allocation. The stream may be another one: the next user then gets the memory after the work of this stream.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if no live block of this size begins at the address, or the stream is not of
/// the device's primary context. Nothing is freed then. A second free is an error, unless the address was handed out
/// again meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_free(address: u64, size: usize, device: i32, stream: *mut c_void) -> cudamem_status {
    run("cudamem_free", || {
        // SAFETY: the header requires a live stream and memory that no later work uses.
        unsafe { pools()?.free(address, size, device, stream.cast()) }.map_err(Failure::from)
    })
}

/// Notes that work of a further stream uses memory of cudamem_malloc, until its free. The next user then gets the memory
/// after all work that was queued on that stream before the free. Nothing waits for it now, and the stream may end at any
/// time. NULL is the legacy default stream of the memory's device. If another library captures the stream, the memory also
/// stays until no work of the graph can run any more.
///
/// After the free, the memory is given out when the program has named the stream in another call of this group, such as
/// this one for later memory, or when the pool has waited for the context because memory ran short.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if no live block begins at the address; nothing is noted then. The same if the
/// stream is of a context without a pool, and CUDAMEM_ERROR_DRIVER if the driver refuses: nobody can tell when that work
/// ends, so the memory is never given out again after its free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_malloc_record_use(address: u64, stream: *mut c_void) -> cudamem_status {
    run("cudamem_malloc_record_use", || {
        // SAFETY: the header requires a live stream.
        unsafe { pools()?.record_use(address, stream.cast()) }.map_err(Failure::from)
    })
}

/// Gets a handle of a device's pool, for its statistics and snapshots. Destroy the handle after use; the pool stays.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_malloc_get_pool(device: i32, pool: Out<'_, cudamem_resource>) -> cudamem_status {
    run("cudamem_malloc_get_pool", || {
        let pool = out("pool", pool)?;
        pool.write(new_resource(pools()?.pool(device)?.to_any())?);
        Ok(())
    })
}

/// Allocates bytes of a resource at a multiple of alignment, a power of two, for work of a stream of the resource's
/// context. 0 bytes have an address too. The address is one for all users that access names: CUDAMEM_ACCESS_DEVICE,
/// CUDAMEM_ACCESS_HOST, or both combined by |. The CPU may use the memory when the stream's work is done. A resource that
/// does not align so far by itself gives a block that is larger by the alignment.
///
/// Of a pool (cudamem_pool_create) a pair takes no lock that all threads share. If another library captures the stream,
/// a pool gives memory that belongs to the graph; other resources may refuse.
///
/// Errors: CUDAMEM_ERROR_OUT_OF_MEMORY. CUDAMEM_ERROR_INVALID_ARGUMENT if the memory has no such users, if they have no
/// common address for it, or if the stream is of another context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_resource_malloc(
    resource: cudamem_resource,
    size: usize,
    alignment: usize,
    access: u32,
    stream: *mut c_void,
    address: Out<'_, u64>,
) -> cudamem_status {
    run("cudamem_resource_malloc", || {
        let address = out("address", address)?;
        call::check_flags("access", access, CUDAMEM_ACCESS_DEVICE | CUDAMEM_ACCESS_HOST)?;
        let mut users = Accessibility::NONE;
        users.device = access & CUDAMEM_ACCESS_DEVICE != 0;
        users.host = access & CUDAMEM_ACCESS_HOST != 0;
        let resource = object("resource", resource)?;
        // SAFETY: the header requires a live stream.
        address.write(unsafe { resource.addresses()?.malloc(size, alignment, users, stream.cast()) }?);
        Ok(())
    })
}

/// Frees memory of cudamem_resource_malloc that only work queued on the stream so far still uses. resource is the handle
/// and size the size of the allocation. The stream may be another one, whose work so far comes after the allocation, as all
/// uses of the memory do; the next user then gets the memory after the work of this stream.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if no live block of this size begins at the address, or the stream is of
/// another context. CUDAMEM_ERROR_DRIVER if the driver refuses. Nothing is freed then. A second free is an error, unless
/// the address was handed out again meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_resource_free(
    resource: cudamem_resource,
    address: u64,
    size: usize,
    stream: *mut c_void,
) -> cudamem_status {
    run("cudamem_resource_free", || {
        let resource = object("resource", resource)?;
        // SAFETY: the header requires a live stream and memory that no later work uses.
        unsafe { resource.addresses()?.free(address, size, stream.cast()) }.map_err(Failure::from)
    })
}

/// The allocating function for torch.cuda.memory.CUDAPluggableAllocator: cudamem_malloc with PyTorch's arguments.
/// Returns NULL if it fails; cudamem_last_error_message says why. torch.cuda.MemPool turns NULL into
/// torch.OutOfMemoryError. As the allocator of a whole program, PyTorch does not check for NULL: docs/guide/pytorch.md
/// shows how to raise the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_torch_alloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    let mut address = MaybeUninit::new(0);
    // A negative size is refused like one that no device has.
    // SAFETY: the header requires a live stream.
    let status = unsafe { cudamem_malloc(size as usize, device, stream, Some(&mut address)) };
    if status != CUDAMEM_SUCCESS {
        return core::ptr::null_mut();
    }
    // SAFETY: initialised above.
    core::ptr::without_provenance_mut(unsafe { address.assume_init() } as usize)
}

/// The freeing function for torch.cuda.memory.CUDAPluggableAllocator: cudamem_free with PyTorch's arguments. It cannot
/// return errors, so it writes them to the standard error output.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_torch_free(pointer: *mut c_void, size: isize, device: c_int, stream: *mut c_void) {
    if pointer.is_null() {
        return;
    }
    // SAFETY: the header requires what cudamem_free requires.
    tell(unsafe { cudamem_free(pointer.addr() as u64, size as usize, device, stream) });
}

/// The function for `set_record_stream_fn` of PyTorch's pluggable allocators, which calls it for torch.Tensor.record_stream:
/// cudamem_malloc_record_use with PyTorch's arguments. Without it, the memory of a tensor that a second stream still uses
/// goes to the next tensor. Memory from elsewhere has its own owner, and is left alone. Errors go to the standard error
/// output.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_torch_record_stream(pointer: *mut c_void, stream: *mut c_void) {
    let address = pointer.addr() as u64;
    if POOLS.get().is_some_and(|pools| pools.contains(address)) {
        // SAFETY: the header requires what cudamem_malloc_record_use requires.
        tell(unsafe { cudamem_malloc_record_use(address, stream) });
    }
}

/// The function for `set_reset_fn` of PyTorch's pluggable allocators, which calls it for torch.cuda.empty_cache: waits for
/// the work of freed memory, and gives unused memory of all pools of cudamem_malloc back to the driver. Errors go to the
/// standard error output.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_torch_empty_cache() {
    if let Some(pools) = POOLS.get() {
        tell(run("cudamem_torch_empty_cache", || pools.release_unused().map_err(Failure::from)));
    }
}

/// Writes the error of a call that returns nothing to PyTorch.
fn tell(status: cudamem_status) {
    if status != CUDAMEM_SUCCESS {
        // SAFETY: the text belongs to this thread until its next failure.
        let text = unsafe { CStr::from_ptr(message::last_text()) }.to_string_lossy();
        // Nobody could handle the error of a closed output.
        let _ = writeln!(std::io::stderr(), "cudamem: {text}");
    }
}
