//! Streams, and work on them that needs no memory.

use super::context::{PRIORITIES, handle_of};
use crate::call::{Result, driver_calls, ensure, ensure_done, host_function, offer, put};
use crate::state::Global;
use crate::state::checks::races;
use crate::state::contexts::{Role, current};
use crate::state::graphs::capture;
use crate::state::graphs::{Params, Work};
use crate::state::memory::{Range, Use};
use crate::state::streams::Stream;
use cuda_sys::{
    CUDA_HOST_NODE_PARAMS, CUcontext, CUdevice, CUdeviceptr, CUevent, CUevent_wait_flags, CUgreenCtx, CUhostFn,
    CUhostTaskSyncMode, CUresult, CUstream, CUstreamCallback, CUstreamWaitValue_flags, cuuint32_t, cuuint64_t,
};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

driver_calls! {
    |global: &'static Global|

    /// Makes a stream.
    fn cuStreamCreate[Locked](phStream: *mut CUstream, Flags: c_uint) {
        put(phStream, create(global, phStream.is_null(), Flags, 0)?)
    }

    /// Makes a stream with a priority, which is clamped to the range.
    fn cuStreamCreateWithPriority[Locked](phStream: *mut CUstream, flags: c_uint, priority: c_int) {
        put(phStream, create(global, phStream.is_null(), flags, priority)?)
    }

    /// Destroys a stream. Its work continues to the end. But the call waits for it if plain memory was freed in the stream's
    /// order since its last synchronization.
    fn cuStreamDestroy_v2[Locked](hStream: CUstream) {
        let stream = global.streams.remove(hStream.addr() as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        capture::forget(global, &stream);
        stream.wait_after_plain_frees();
        stream.close();
        Ok(())
    }

    /// Returns whether a stream's work is done.
    fn cuStreamQuery[Started, cuStreamQuery_ptsz](hStream: CUstream) {
        let stream = Stream::find(global, hStream)?;
        capture::check_settled(&stream)?;
        let moment = stream.moment();
        ensure_done(stream.is_idle())?;
        stream.settle(&moment);
        Ok(())
    }

    /// Waits for a stream's work.
    fn cuStreamSynchronize[Started, cuStreamSynchronize_ptsz](hStream: CUstream) {
        let stream = Stream::find(global, hStream)?;
        capture::check_settled(&stream)?;
        stream.forget_plain_frees();
        stream.synchronize();
        Ok(())
    }

    /// Makes later work of a stream wait for an event. In a capture, an external wait is a node of the graph: each launch
    /// waits for the event's last recording.
    fn cuStreamWaitEvent[Started, cuStreamWaitEvent_ptsz](hStream: CUstream, hEvent: CUevent, Flags: c_uint) {
        let stream = Stream::find(global, hStream)?;
        let event = super::event::used(global, hEvent, "cuStreamWaitEvent")?;
        ensure(Flags & !CUevent_wait_flags::CU_EVENT_WAIT_EXTERNAL.0 == 0)?;
        if Flags != 0 {
            return super::event::external(&stream, Params::Wait(hEvent), Work::Wait(event));
        }
        event.hold(&stream)
    }

    /// Returns a stream's priority.
    fn cuStreamGetPriority[Started, cuStreamGetPriority_ptsz](hStream: CUstream, priority: *mut c_int) {
        put(priority, Stream::find(global, hStream)?.priority)
    }

    /// Returns a stream's flags. If the stream captures, the question invalidates the capture, also in relaxed mode.
    fn cuStreamGetFlags[Started, cuStreamGetFlags_ptsz](hStream: CUstream, flags: *mut c_uint) {
        let stream = Stream::find(global, hStream)?;
        capture::check_not_captured(&stream)?;
        put(flags, stream.flags())
    }

    /// Returns a number that no other stream ever has. If the stream captures, the question invalidates the capture, also
    /// in relaxed mode.
    fn cuStreamGetId[Started, cuStreamGetId_ptsz](hStream: CUstream, streamId: *mut c_ulonglong) {
        let stream = Stream::find(global, hStream)?;
        capture::check_not_captured(&stream)?;
        put(streamId, stream.id)
    }

    /// Returns a stream's context.
    fn cuStreamGetCtx[Started, cuStreamGetCtx_ptsz](hStream: CUstream, pctx: *mut CUcontext) {
        put(pctx, handle_of(&Stream::find(global, hStream)?.context))
    }

    /// Returns a stream's context. No stream belongs to a green context, so `pGreenCtx` receives null.
    fn cuStreamGetCtx_v2[Started, cuStreamGetCtx_v2_ptsz](hStream: CUstream, pCtx: *mut CUcontext, pGreenCtx: *mut CUgreenCtx) {
        offer(pCtx, handle_of(&Stream::find(global, hStream)?.context));
        offer(pGreenCtx, ptr::null_mut());
        Ok(())
    }

    /// Returns a stream's device.
    fn cuStreamGetDevice[Started, cuStreamGetDevice_ptsz](hStream: CUstream, device: *mut CUdevice) {
        put(device, Stream::find(global, hStream)?.context.device as CUdevice)
    }

    /// Runs a host function in stream order.
    fn cuLaunchHostFunc[Locked, cuLaunchHostFunc_ptsz](hStream: CUstream, fn_: CUhostFn, userData: *mut c_void) {
        launch_host(global, hStream, fn_, userData)
    }

    /// Runs a host function in stream order. How the stream waits for it makes no difference here.
    fn cuLaunchHostFunc_v2[Locked, cuLaunchHostFunc_v2_ptsz](hStream: CUstream, fn_: CUhostFn, userData: *mut c_void, syncMode: c_uint) {
        ensure(syncMode <= CUhostTaskSyncMode::CU_HOST_TASK_SPINWAIT.0)?;
        launch_host(global, hStream, fn_, userData)
    }

    /// Runs a host function in stream order, and tells it the stream and the state of the stream's context. It cannot be
    /// recorded.
    fn cuStreamAddCallback[Locked, cuStreamAddCallback_ptsz](
        hStream: CUstream,
        callback: CUstreamCallback,
        userData: *mut c_void,
        flags: c_uint,
    ) {
        let stream = Stream::find(global, hStream)?;
        let function = callback.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        ensure(flags == 0)?;
        let (data, moment) = (Forwarded(userData), stream.moment());
        let (named, context) = (Forwarded(hStream.cast()), stream.context.clone());
        let run = move || {
            races::observe(&moment);
            let status = context.failure().unwrap_or(CUresult::CUDA_SUCCESS);
            // SAFETY: the caller of cuStreamAddCallback vouches that the function takes this argument on any thread.
            host_function(|| unsafe { function(named.get().cast(), status, data.get()) });
        };
        stream.submit(Vec::new(), run).map(drop)
    }

    /// Makes later work of a stream wait for a 32-bit word in memory.
    fn cuStreamWaitValue32_v2[Started, cuStreamWaitValue32_v2_ptsz](stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: c_uint) {
        wait_value(global, stream, addr, 4, u64::from(value), flags)
    }

    /// Makes later work of a stream wait for a 64-bit word in memory.
    fn cuStreamWaitValue64_v2[Started, cuStreamWaitValue64_v2_ptsz](stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: c_uint) {
        wait_value(global, stream, addr, 8, value, flags)
    }

    /// Writes a 32-bit word in stream order.
    fn cuStreamWriteValue32_v2[Started, cuStreamWriteValue32_v2_ptsz](stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: c_uint) {
        write_value(global, stream, addr, 4, u64::from(value), flags)
    }

    /// Writes a 64-bit word in stream order.
    fn cuStreamWriteValue64_v2[Started, cuStreamWriteValue64_v2_ptsz](stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: c_uint) {
        write_value(global, stream, addr, 8, value, flags)
    }
}

fn create(global: &Global, nowhere: bool, flags: c_uint, priority: c_int) -> Result<CUstream> {
    ensure(!nowhere)?;
    let context = current(global)?;
    let role = match flags {
        0 => Role::Blocking,
        1 => Role::NonBlocking,
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    let handle = Stream::make(global, &context, role, priority.clamp(PRIORITIES.1, PRIORITIES.0));
    Ok(ptr::without_provenance_mut(handle as usize))
}

fn launch_host(global: &Global, stream: CUstream, function: CUhostFn, data: *mut c_void) -> Result {
    let stream = Stream::find(global, stream)?;
    let function = function.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let params = Params::Host(CUDA_HOST_NODE_PARAMS { fn_: Some(function), userData: data });
    let (data, moment) = (Forwarded(data), stream.moment());
    stream.perform(params, move || {
        // The function may tell the host that earlier work is done.
        races::observe(&moment);
        // SAFETY: the caller of cuLaunchHostFunc vouches that the function takes this argument on any thread, and
        // at each launch if it is recorded.
        host_function(|| unsafe { function(data.get()) });
    })
}

/// A host function as a node of a graph.
pub(super) fn host_work(function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> Work {
    let data = Arc::new(Forwarded(data));
    Work::Again(Box::new(move |stream| {
        let (data, moment) = (data.clone(), stream.moment());
        Ok(Box::new(move || {
            races::observe(&moment);
            // SAFETY: the caller of cuGraphAddHostNode vouches that the function takes this argument on any thread.
            host_function(|| unsafe { function(data.get()) });
        }))
    }))
}

/// A host function's argument, on its way to the worker.
struct Forwarded(*mut c_void);

impl Forwarded {
    /// A method, so that a closure captures the whole value and not its field.
    fn get(&self) -> *mut c_void {
        self.0
    }
}

// SAFETY: softgpu only hands the pointer on. The caller of cuLaunchHostFunc vouches that any thread may use it.
unsafe impl Send for Forwarded {}
// SAFETY: as above.
unsafe impl Sync for Forwarded {}

/// A word in memory that streams wait for or write.
fn word(global: &Global, stream: &Stream, address: CUdeviceptr, size: usize, purpose: Use) -> Result<Range> {
    ensure(address != 0 && address.is_multiple_of(size as u64))?;
    let range = global.memory.range(address, size, stream.context.device, purpose)?;
    // Managed memory may move, so it cannot hold such words.
    ensure(!range.block.as_ref().is_some_and(|block| block.is_managed()))?;
    Ok(range)
}

fn load(word: &Range) -> u64 {
    let at = ptr::with_exposed_provenance_mut::<c_void>(word.address);
    // SAFETY: the word is aligned and lies in an allocation that the range holds. All accesses to it here are atomic.
    unsafe {
        match word.length {
            4 => u64::from(AtomicU32::from_ptr(at.cast()).load(Ordering::Acquire)),
            _ => AtomicU64::from_ptr(at.cast()).load(Ordering::Acquire),
        }
    }
}

fn store(word: &Range, value: u64) {
    let at = ptr::with_exposed_provenance_mut::<c_void>(word.address);
    // SAFETY: as in `load`.
    unsafe {
        match word.length {
            4 => AtomicU32::from_ptr(at.cast()).store(value as u32, Ordering::Release),
            _ => AtomicU64::from_ptr(at.cast()).store(value, Ordering::Release),
        }
    }
}

/// Whether the word has the value for which a stream waits. `>=` is cyclic: a word that wrapped around is still ahead.
fn meets(range: &Range, value: u64, comparison: u32) -> bool {
    let word = load(range);
    let mask = if range.length == 4 { u64::from(u32::MAX) } else { u64::MAX };
    match CUstreamWaitValue_flags(comparison) {
        CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_EQ => word == value,
        CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_AND => word & value != 0,
        CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_NOR => !(word | value) & mask != 0,
        _ if range.length == 4 => (word as u32).wrapping_sub(value as u32) as i32 >= 0,
        _ => word.wrapping_sub(value) as i64 >= 0,
    }
}

fn wait_value(
    global: &Global,
    stream: CUstream,
    address: CUdeviceptr,
    size: usize,
    value: u64,
    flags: c_uint,
) -> Result {
    let stream = Stream::find(global, stream)?;
    let word = word(global, &stream, address, size, Use::Read)?;
    let flush = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_FLUSH.0;
    let comparison = flags & !flush;
    ensure(comparison <= CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_NOR.0)?;
    if flags != comparison {
        // As cuDeviceGetAttribute reports, devices cannot flush remote writes.
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let context = stream.context.clone();
    stream.blur();
    stream.perform_on(word, move |word| {
        let mut turns = 0_u32;
        while !meets(word, value, comparison) && context.is_alive() {
            turns = turns.saturating_add(1);
            match turns {
                0..100 => std::hint::spin_loop(),
                100..1000 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(20)),
            }
        }
    })
}

fn write_value(
    global: &Global,
    stream: CUstream,
    address: CUdeviceptr,
    size: usize,
    value: u64,
    flags: c_uint,
) -> Result {
    let stream = Stream::find(global, stream)?;
    let word = word(global, &stream, address, size, Use::Write)?;
    // The flag for a write without a barrier is refused too.
    ensure(flags == 0)?;
    let moment = stream.moment();
    stream.perform_on(word, move |word| {
        // Before the store, which may tell the host.
        races::observe(&moment);
        races::wrote(&(word.address..word.address + word.length));
        store(word, value);
    })
}
