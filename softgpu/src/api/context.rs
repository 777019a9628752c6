//! Contexts: primary and plain ones, and the calling thread's stack.

use crate::call::{Result, driver_calls, ensure, offer, put};
use crate::state::context::{Context, current, with_stack};
use crate::state::device::Device;
use crate::state::handle::next_sequence;
use crate::state::sync::lock;
use crate::state::{Global, capture};
use cuda_sys::{CUcontext, CUctx_flags, CUdevice, CUresult};
use std::ffi::{c_int, c_uint, c_ulonglong};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Higher priorities are smaller numbers: lowest and highest.
pub(crate) const PRIORITIES: (c_int, c_int) = (0, -5);

driver_calls! {
    /// Counts one more user of the primary context.
    fn cuDevicePrimaryCtxRetain[Started](pctx: *mut CUcontext, dev: CUdevice) {
        ensure(!pctx.is_null())?;
        let (_, device) = Global::get()?.device(dev)?;
        let _turning = lock(&device.turning);
        device.retained.fetch_add(1, Ordering::Relaxed);
        if !device.primary.is_alive() {
            device.primary.revive();
        }
        put(pctx, handle_of(&device.primary))
    }

    /// Counts one user less; the last one ends the context's life.
    fn cuDevicePrimaryCtxRelease_v2[Started](dev: CUdevice) {
        let global = Global::get()?;
        let (_, device) = global.device(dev)?;
        let _turning = lock(&device.turning);
        match device.retained.load(Ordering::Relaxed) {
            0 => return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
            1 => global.end_context(&device.primary),
            _ => {}
        }
        device.retained.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// Tells whether the primary context is alive, and its flags.
    fn cuDevicePrimaryCtxGetState[Started](dev: CUdevice, flags: *mut c_uint, active: *mut c_int) {
        ensure(!flags.is_null() && !active.is_null())?;
        let (_, device) = Global::get()?.device(dev)?;
        put(flags, device.primary.flags.load(Ordering::Relaxed))?;
        put(active, c_int::from(is_active(device)))
    }

    /// Sets the flags of the primary context.
    fn cuDevicePrimaryCtxSetFlags_v2[Started](dev: CUdevice, flags: c_uint) {
        let (_, device) = Global::get()?.device(dev)?;
        check_flags(flags)?;
        device.primary.flags.store(flags, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the primary context's life, however often it is retained; the next retain begins another.
    fn cuDevicePrimaryCtxReset_v2[Started](dev: CUdevice) {
        let global = Global::get()?;
        let (_, device) = global.device(dev)?;
        let _turning = lock(&device.turning);
        global.end_context(&device.primary);
        Ok(())
    }

    /// Makes a context and pushes it.
    fn cuCtxCreate_v2[Started](pctx: *mut CUcontext, flags: c_uint, dev: CUdevice) {
        ensure(!pctx.is_null())?;
        let global = Global::get()?;
        let (index, _) = global.device(dev)?;
        check_flags(flags)?;
        let sequence = next_sequence();
        let context = Context::new(sequence, global.contexts.handle(sequence), index, flags, false);
        let (_, context) = global.contexts.insert(sequence, context);
        let handle = handle_of(&context);
        with_stack(global, |stack| stack.push(context));
        put(pctx, handle)
    }

    /// Destroys a context and all that it holds.
    fn cuCtxDestroy_v2[Started](ctx: CUcontext) {
        ensure(!ctx.is_null())?;
        let global = Global::get()?;
        let context = known(global.context(ctx))?;
        if context.primary {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        global.end_context(&context);
        with_stack(global, |stack| {
            if stack.last().is_some_and(|top| Arc::ptr_eq(top, &context)) {
                stack.pop();
            }
        });
        Ok(())
    }

    /// Makes a context current, above the one that was. It may have ended: then calls that work in it are refused.
    fn cuCtxPushCurrent_v2[Started](ctx: CUcontext) {
        ensure(!ctx.is_null())?;
        let global = Global::get()?;
        let context = global.context_or_ended(ctx)?;
        with_stack(global, |stack| stack.push(context));
        Ok(())
    }

    /// Takes the current context off the thread's stack.
    fn cuCtxPopCurrent_v2[Started](pctx: *mut CUcontext) {
        let popped = with_stack(Global::get()?, Vec::pop).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        offer(pctx, handle_of(&popped));
        Ok(())
    }

    /// Replaces the current context; null takes it off. As with cuCtxPushCurrent it may have ended.
    fn cuCtxSetCurrent[Started](ctx: CUcontext) {
        let global = Global::get()?;
        let context = if ctx.is_null() { None } else { Some(global.context_or_ended(ctx)?) };
        with_stack(global, |stack| {
            stack.pop();
            stack.extend(context);
        });
        Ok(())
    }

    /// Gives the current context, or null.
    fn cuCtxGetCurrent[Started](pctx: *mut CUcontext) {
        ensure(!pctx.is_null())?;
        let current = with_stack(Global::get()?, |stack| stack.last().map(handle_of));
        put(pctx, current.unwrap_or(ptr::null_mut()))
    }

    /// Gives the current context's device; also of a primary context that has ended.
    fn cuCtxGetDevice[Started](device: *mut CUdevice) {
        let global = Global::get()?;
        let top = with_stack(global, |stack| stack.last().cloned()).filter(|context| context.primary);
        let context = top.map_or_else(|| current(global), Ok)?;
        put(device, context.device as CUdevice)
    }

    /// Gives the current context's flags. A primary context maps host memory, which its state does not say.
    fn cuCtxGetFlags[Started](flags: *mut c_uint) {
        let context = current(Global::get()?)?;
        let maps = if context.primary { CUctx_flags::CU_CTX_MAP_HOST.0 } else { 0 };
        put(flags, context.flags.load(Ordering::Relaxed) | maps)
    }

    /// Gives a number that no other context ever has; of the current context when none is named.
    fn cuCtxGetId[Started](ctx: CUcontext, ctxId: *mut c_ulonglong) {
        let context = named_or_current(ctx)?;
        put(ctxId, context.id.load(Ordering::Relaxed))
    }

    /// Gives the release of the interface that made the context.
    fn cuCtxGetApiVersion[Started](ctx: CUcontext, version: *mut c_uint) {
        known(named_or_current(ctx))?;
        put(version, 3020)
    }

    /// Waits for all work of the current context.
    fn cuCtxSynchronize[Locked]() {
        let context = current(Global::get()?)?;
        capture::check_context(&context)?;
        context.finish();
        Ok(())
    }

    /// Gives the lowest and the highest priority.
    fn cuCtxGetStreamPriorityRange[Started](leastPriority: *mut c_int, greatestPriority: *mut c_int) {
        current(Global::get()?)?;
        offer(leastPriority, PRIORITIES.0);
        offer(greatestPriority, PRIORITIES.1);
        Ok(())
    }

    /// Lets the current context address another context's memory.
    fn cuCtxEnablePeerAccess[Started](peerContext: CUcontext, Flags: c_uint) {
        let (mine, other) = pair(peerContext)?;
        ensure(Flags == 0)?;
        if mine.device == other.device {
            return Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        }
        let fresh = lock(&mine.peers).insert(other.handle);
        if fresh { Ok(()) } else { Err(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) }
    }

    /// Ends what cuCtxEnablePeerAccess began.
    fn cuCtxDisablePeerAccess[Started](peerContext: CUcontext) {
        let (mine, other) = pair(peerContext)?;
        let was = lock(&mine.peers).remove(&other.handle);
        if was { Ok(()) } else { Err(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED) }
    }
}

/// A context's handle as C sees it.
pub(crate) fn handle_of(context: &Arc<Context>) -> CUcontext {
    ptr::without_provenance_mut(context.handle as usize)
}

fn is_active(device: &Device) -> bool {
    device.primary.is_alive()
}

fn check_flags(flags: c_uint) -> Result {
    let scheduling = flags & CUctx_flags::CU_CTX_SCHED_MASK.0;
    ensure(flags & !CUctx_flags::CU_CTX_FLAGS_MASK.0 == 0 && matches!(scheduling, 0 | 1 | 2 | 4))
}

/// For calls to which a context that has ended is like one that never was.
fn known<T>(found: Result<T>) -> Result<T> {
    found.map_err(|code| match code {
        CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED => CUresult::CUDA_ERROR_INVALID_CONTEXT,
        code => code,
    })
}

fn named_or_current(context: CUcontext) -> Result<Arc<Context>> {
    let global = Global::get()?;
    if context.is_null() { current(global) } else { global.context(context) }
}

/// The current context and another one.
fn pair(peer: CUcontext) -> Result<(Arc<Context>, Arc<Context>)> {
    let global = Global::get()?;
    Ok((current(global)?, global.context(peer)?))
}
