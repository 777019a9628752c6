//! Streams, and the work that needs no memory.

use super::context::{PRIORITIES, handle_of};
use crate::call::{Result, driver_calls, ensure, host_function, offer, put};
use crate::state::Global;
use crate::state::context::{Role, current};
use crate::state::memory::{Range, Use};
use crate::state::stream::Stream;
use cuda_sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUevent_wait_flags, CUgraph, CUgraphNode, CUhostFn, CUresult, CUstream,
    CUstreamCaptureMode, CUstreamCaptureStatus, CUstreamWaitValue_flags, cuuint32_t, cuuint64_t,
};
use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

driver_calls! {
    /// Makes a stream.
    fn cuStreamCreate[Started](phStream: *mut CUstream, Flags: c_uint) {
        put(phStream, create(phStream.is_null(), Flags, 0)?)
    }

    /// Makes a stream of a priority, which is clamped to the range.
    fn cuStreamCreateWithPriority[Started](phStream: *mut CUstream, flags: c_uint, priority: c_int) {
        put(phStream, create(phStream.is_null(), flags, priority)?)
    }

    /// Ends a stream; its work goes on to the end.
    fn cuStreamDestroy_v2[Started](hStream: CUstream) {
        let global = Global::get()?;
        let stream = global.streams.remove(hStream.addr() as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        stream.close();
        Ok(())
    }

    /// Tells whether a stream's work is done.
    fn cuStreamQuery[Started](hStream: CUstream) {
        let idle = Stream::find(Global::get()?, hStream)?.is_idle();
        if idle { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_READY) }
    }

    /// Waits for a stream's work.
    fn cuStreamSynchronize[Started](hStream: CUstream) {
        Stream::find(Global::get()?, hStream)?.synchronize();
        Ok(())
    }

    /// Lets later work of a stream wait for an event.
    fn cuStreamWaitEvent[Started](hStream: CUstream, hEvent: CUevent, Flags: c_uint) {
        let global = Global::get()?;
        let stream = Stream::find(global, hStream)?;
        let event = super::event::find(global, hEvent)?;
        ensure(Flags & !CUevent_wait_flags::CU_EVENT_WAIT_EXTERNAL.0 == 0)?;
        super::event::refuse_external(Flags)?;
        event.hold(&stream)
    }

    /// Gives a stream's priority.
    fn cuStreamGetPriority[Started](hStream: CUstream, priority: *mut c_int) {
        put(priority, Stream::find(Global::get()?, hStream)?.priority)
    }

    /// Gives a stream's flags.
    fn cuStreamGetFlags[Started](hStream: CUstream, flags: *mut c_uint) {
        put(flags, Stream::find(Global::get()?, hStream)?.flags())
    }

    /// Gives a number that no other stream ever has.
    fn cuStreamGetId[Started](hStream: CUstream, streamId: *mut c_ulonglong) {
        put(streamId, Stream::find(Global::get()?, hStream)?.id)
    }

    /// Gives a stream's context.
    fn cuStreamGetCtx[Started](hStream: CUstream, pctx: *mut CUcontext) {
        put(pctx, handle_of(&Stream::find(Global::get()?, hStream)?.context))
    }

    /// Gives a stream's device.
    fn cuStreamGetDevice[Started](hStream: CUstream, device: *mut CUdevice) {
        put(device, Stream::find(Global::get()?, hStream)?.context.device as CUdevice)
    }

    /// Tells whether a stream records into a graph: never.
    fn cuStreamIsCapturing[Started](hStream: CUstream, captureStatus: *mut CUstreamCaptureStatus) {
        Stream::find(Global::get()?, hStream)?;
        put(captureStatus, CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Tells what a stream records into: nothing.
    fn cuStreamGetCaptureInfo_v2[Started](
        hStream: CUstream,
        captureStatus_out: *mut CUstreamCaptureStatus,
        id_out: *mut cuuint64_t,
        graph_out: *mut CUgraph,
        dependencies_out: *mut *const CUgraphNode,
        numDependencies_out: *mut usize,
    ) {
        Stream::find(Global::get()?, hStream)?;
        put(captureStatus_out, CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)?;
        offer(id_out, 0);
        offer(graph_out, ptr::null_mut());
        offer(dependencies_out, ptr::null());
        offer(numDependencies_out, 0);
        Ok(())
    }

    /// Swaps the calling thread's capture mode, which concerns nothing that is served.
    fn cuThreadExchangeStreamCaptureMode[Started](mode: *mut CUstreamCaptureMode) {
        // An unknown mode is taken too, as by the driver.
        ensure(!mode.is_null())?;
        mode.write(CAPTURE_MODE.with(|kept| kept.replace(mode.read())));
        Ok(())
    }

    /// Runs a host function in stream order.
    fn cuLaunchHostFunc[Started](hStream: CUstream, fn_: CUhostFn, userData: *mut c_void) {
        let stream = Stream::find(Global::get()?, hStream)?;
        let function = fn_.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let data = Forwarded(userData);
        stream.submit(Vec::new(), move || {
            let Forwarded(data) = { data };
            // SAFETY: the caller of cuLaunchHostFunc vouches that the function takes this argument on any thread.
            host_function(|| unsafe { function(data) });
        })?;
        Ok(())
    }

    /// Lets later work of a stream wait for a 32-bit word in memory.
    fn cuStreamWaitValue32_v2[Started](stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: c_uint) {
        wait_value(stream, Word::find(stream, addr, 4, Use::Read)?, u64::from(value), flags)
    }

    /// Lets later work of a stream wait for a 64-bit word in memory.
    fn cuStreamWaitValue64_v2[Started](stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: c_uint) {
        wait_value(stream, Word::find(stream, addr, 8, Use::Read)?, value, flags)
    }

    /// Writes a 32-bit word in stream order.
    fn cuStreamWriteValue32_v2[Started](stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: c_uint) {
        write_value(stream, Word::find(stream, addr, 4, Use::Write)?, u64::from(value), flags)
    }

    /// Writes a 64-bit word in stream order.
    fn cuStreamWriteValue64_v2[Started](stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: c_uint) {
        write_value(stream, Word::find(stream, addr, 8, Use::Write)?, value, flags)
    }
}

thread_local! {
    static CAPTURE_MODE: Cell<CUstreamCaptureMode> =
        const { Cell::new(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

fn create(nowhere: bool, flags: c_uint, priority: c_int) -> Result<CUstream> {
    ensure(!nowhere)?;
    let global = Global::get()?;
    let context = current(global)?;
    let role = match flags {
        0 => Role::Blocking,
        1 => Role::NonBlocking,
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    let handle = Stream::make(global, &context, role, priority.clamp(PRIORITIES.1, PRIORITIES.0));
    Ok(ptr::without_provenance_mut(handle as usize))
}

/// A host function's argument on its way to the worker.
struct Forwarded(*mut c_void);

// SAFETY: the pointer is only handed on; who passed it to cuLaunchHostFunc vouches that any thread may use it.
unsafe impl Send for Forwarded {}

/// A word in memory that streams wait for and write.
struct Word(Range);

impl Word {
    fn find(stream: CUstream, address: CUdeviceptr, size: usize, purpose: Use) -> Result<Self> {
        let global = Global::get()?;
        let stream = Stream::find(global, stream)?;
        ensure(address != 0 && address.is_multiple_of(size as u64))?;
        let range = global.memory.range(address, size, stream.context.device, purpose)?;
        // Managed memory may move, so that it holds no such words.
        ensure(!range.block.as_ref().is_some_and(|block| block.is_managed()))?;
        Ok(Self(range))
    }

    fn load(&self) -> u64 {
        let at = ptr::with_exposed_provenance_mut::<c_void>(self.0.address);
        // SAFETY: the word is aligned and lies in a block that `self` holds; all access to it here is atomic.
        unsafe {
            match self.0.length {
                4 => u64::from(AtomicU32::from_ptr(at.cast()).load(Ordering::Acquire)),
                _ => AtomicU64::from_ptr(at.cast()).load(Ordering::Acquire),
            }
        }
    }

    fn store(&self, value: u64) {
        let at = ptr::with_exposed_provenance_mut::<c_void>(self.0.address);
        // SAFETY: as in `load`.
        unsafe {
            match self.0.length {
                4 => AtomicU32::from_ptr(at.cast()).store(value as u32, Ordering::Release),
                _ => AtomicU64::from_ptr(at.cast()).store(value, Ordering::Release),
            }
        }
    }

    /// Whether the word is what a stream waits for. `>=` is cyclic: a word that wrapped around is still ahead.
    fn meets(&self, value: u64, comparison: u32) -> bool {
        let word = self.load();
        let mask = if self.0.length == 4 { u64::from(u32::MAX) } else { u64::MAX };
        match CUstreamWaitValue_flags(comparison) {
            CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_EQ => word == value,
            CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_AND => word & value != 0,
            CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_NOR => !(word | value) & mask != 0,
            _ if self.0.length == 4 => (word as u32).wrapping_sub(value as u32) as i32 >= 0,
            _ => word.wrapping_sub(value) as i64 >= 0,
        }
    }
}

fn wait_value(stream: CUstream, word: Word, value: u64, flags: c_uint) -> Result {
    let flush = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_FLUSH.0;
    let comparison = flags & !flush;
    ensure(comparison <= CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_NOR.0)?;
    if flags != comparison {
        // As cuDeviceGetAttribute says: no device flushes what others wrote to it.
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let stream = Stream::find(Global::get()?, stream)?;
    let context = stream.context.clone();
    stream.submit(Vec::new(), move || {
        let mut turns = 0_u32;
        while !word.meets(value, comparison) && context.is_alive() {
            turns = turns.saturating_add(1);
            match turns {
                0..100 => std::hint::spin_loop(),
                100..1000 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(20)),
            }
        }
    })?;
    Ok(())
}

fn write_value(stream: CUstream, word: Word, value: u64, flags: c_uint) -> Result {
    // A write without a barrier is refused too.
    ensure(flags == 0)?;
    let stream = Stream::find(Global::get()?, stream)?;
    stream.submit(Vec::new(), move || word.store(value))?;
    Ok(())
}
