//! Contexts: primary ones and others, and the calling thread's stack of them.

use crate::call::{Result, driver_calls, ensure, offer, put};
use crate::state::Global;
use crate::state::checks::races::access::{self, Change};
use crate::state::contexts::{Context, current, with_stack};
use crate::state::devices::Device;
use crate::state::graphs::capture;
use crate::state::handle::next_sequence;
use crate::sync::lock;
use cuda_sys::{CUcontext, CUctx_flags, CUctxCreateParams, CUdevice, CUexecAffinityParam, CUlimit, CUresult};
use std::ffi::{c_int, c_uint, c_ulonglong};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The lowest and the highest priority. Higher priorities are smaller numbers.
pub(crate) const PRIORITIES: (c_int, c_int) = (0, -5);

driver_calls! {
    |global: &'static Global|

    /// Adds a user of the primary context.
    fn cuDevicePrimaryCtxRetain[Started](pctx: *mut CUcontext, dev: CUdevice) {
        ensure(!pctx.is_null())?;
        let (_, device) = global.device(dev)?;
        let _turning = lock(&device.turning);
        device.retained.fetch_add(1, Ordering::Relaxed);
        if !device.primary.is_alive() {
            device.primary.revive();
        }
        put(pctx, handle_of(&device.primary))
    }

    /// Removes a user. The last one ends the context's life.
    fn cuDevicePrimaryCtxRelease_v2[Started](dev: CUdevice) {
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

    /// Returns the flags of the primary context, and whether it is alive.
    fn cuDevicePrimaryCtxGetState[Started](dev: CUdevice, flags: *mut c_uint, active: *mut c_int) {
        ensure(!flags.is_null() && !active.is_null())?;
        let (_, device) = global.device(dev)?;
        put(flags, device.primary.flags.load(Ordering::Relaxed))?;
        put(active, c_int::from(is_active(device)))
    }

    /// Sets the flags of the primary context.
    fn cuDevicePrimaryCtxSetFlags_v2[Started](dev: CUdevice, flags: c_uint) {
        let (_, device) = global.device(dev)?;
        check_flags(flags)?;
        device.primary.flags.store(flags, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the primary context's life, however often it is retained. The next retain begins another life.
    fn cuDevicePrimaryCtxReset_v2[Started](dev: CUdevice) {
        let (_, device) = global.device(dev)?;
        let _turning = lock(&device.turning);
        global.end_context(&device.primary);
        Ok(())
    }

    /// Makes a context and pushes it.
    fn cuCtxCreate_v2[Started](pctx: *mut CUcontext, flags: c_uint, dev: CUdevice) {
        create(global, pctx, flags, dev)
    }

    /// Makes a context and pushes it. Only a device under MPS gives a context a part of its processors.
    fn cuCtxCreate_v3[Started](
        pctx: *mut CUcontext,
        paramsArray: *mut CUexecAffinityParam,
        numParams: c_int,
        flags: c_uint,
        dev: CUdevice,
    ) {
        refuse_parts(paramsArray, numParams)?;
        create(global, pctx, flags, dev)
    }

    /// Makes a context and pushes it. softgpu has neither MPS nor graphics APIs, so parameters must be empty.
    fn cuCtxCreate_v4[Started](
        pctx: *mut CUcontext,
        ctxCreateParams: *mut CUctxCreateParams,
        flags: c_uint,
        dev: CUdevice,
    ) {
        if let Some(params) = ctxCreateParams.as_ref() {
            if let Some(share) = params.cigParams.as_ref() {
                ensure(params.numExecAffinityParams > 0 || !share.sharedData.is_null())?;
                return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
            }
            refuse_parts(params.execAffinityParams, params.numExecAffinityParams)?;
        }
        create(global, pctx, flags, dev)
    }

    /// Destroys a context and everything that it owns.
    fn cuCtxDestroy_v2[Started](ctx: CUcontext) {
        ensure(!ctx.is_null())?;
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

    /// Pushes a context, which becomes current. It may have ended; calls that work in it are refused then.
    fn cuCtxPushCurrent_v2[Started](ctx: CUcontext) {
        ensure(!ctx.is_null())?;
        let context = global.context_or_ended(ctx)?;
        with_stack(global, |stack| stack.push(context));
        Ok(())
    }

    /// Pops the current context.
    fn cuCtxPopCurrent_v2[Started](pctx: *mut CUcontext) {
        let popped = with_stack(global, Vec::pop).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        offer(pctx, handle_of(&popped));
        Ok(())
    }

    /// Replaces the current context; null pops it. As for cuCtxPushCurrent, the context may have ended.
    fn cuCtxSetCurrent[Started](ctx: CUcontext) {
        let context = if ctx.is_null() { None } else { Some(global.context_or_ended(ctx)?) };
        with_stack(global, |stack| {
            stack.pop();
            stack.extend(context);
        });
        Ok(())
    }

    /// Returns the current context, or null.
    fn cuCtxGetCurrent[Started](pctx: *mut CUcontext) {
        ensure(!pctx.is_null())?;
        let current = with_stack(global, |stack| stack.last().map(handle_of));
        put(pctx, current.unwrap_or(ptr::null_mut()))
    }

    /// Returns the current context's device, even for a primary context that has ended.
    fn cuCtxGetDevice[Started](device: *mut CUdevice) {
        put(device, current_device(global)?)
    }

    /// Returns a context's device. Null names the current context.
    fn cuCtxGetDevice_v2[Started](device: *mut CUdevice, ctx: CUcontext) {
        let found = if ctx.is_null() { current_device(global)? } else { global.context(ctx)?.device as CUdevice };
        put(device, found)
    }

    /// Returns the current context's flags. Those of a primary context include CU_CTX_MAP_HOST, which
    /// cuDevicePrimaryCtxGetState leaves out.
    fn cuCtxGetFlags[Started](flags: *mut c_uint) {
        let context = current(global)?;
        let maps = if context.primary { CUctx_flags::CU_CTX_MAP_HOST.0 } else { 0 };
        put(flags, context.flags.load(Ordering::Relaxed) | maps)
    }

    /// Sets the current context's flags. CU_CTX_MAP_HOST has no effect and is not returned: a context has it from its creation.
    fn cuCtxSetFlags[Started](flags: c_uint) {
        check_flags(flags)?;
        current(global)?.flags.store(flags & !CUctx_flags::CU_CTX_MAP_HOST.0, Ordering::Relaxed);
        Ok(())
    }

    /// Returns a number that no other context ever has. Null names the current context.
    fn cuCtxGetId[Started](ctx: CUcontext, ctxId: *mut c_ulonglong) {
        let context = named_or_current(global, ctx)?;
        put(ctxId, context.id.load(Ordering::Relaxed))
    }

    /// Returns the release of the interface that made the context.
    fn cuCtxGetApiVersion[Started](ctx: CUcontext, version: *mut c_uint) {
        known(named_or_current(global, ctx))?;
        put(version, 3020)
    }

    /// Waits for all work of the current context, without its lock.
    fn cuCtxSynchronize[Locked]() {
        wait_for(&current(global)?)
    }

    /// Waits for all work of a context, without its lock. Null names the current context.
    fn cuCtxSynchronize_v2[Locked](ctx: CUcontext) {
        wait_for(&named_or_current(global, ctx)?)
    }

    /// Returns the lowest and the highest priority.
    fn cuCtxGetStreamPriorityRange[Started](leastPriority: *mut c_int, greatestPriority: *mut c_int) {
        current(global)?;
        offer(leastPriority, PRIORITIES.0);
        offer(greatestPriority, PRIORITIES.1);
        Ok(())
    }

    /// Returns a limit of the current context.
    fn cuCtxGetLimit[Started](pvalue: *mut usize, limit: CUlimit) {
        ensure(!pvalue.is_null())?;
        put(pvalue, current(global)?.limits.get(limit)?)
    }

    /// Sets a limit of the current context.
    fn cuCtxSetLimit[Started](limit: CUlimit, value: usize) {
        current(global)?.limits.set(limit, value)
    }

    /// Lets the current context access another context's memory.
    fn cuCtxEnablePeerAccess[Started](peerContext: CUcontext, Flags: c_uint) {
        let (mine, other) = pair(global, peerContext)?;
        ensure(Flags == 0)?;
        if !global.reaches(mine.device, other.device) {
            return Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        }
        let _inside = access::change("cuCtxEnablePeerAccess", || vec![Change::given(&other)]);
        let mut peers = lock(&mine.peers);
        let is_peer = |context: &&Arc<Context>| context.is_alive() && peers.contains(&context.life());
        if !peers.contains(&other.life()) && global.contexts.all().iter().filter(is_peer).count() == MOST_PEERS {
            return Err(CUresult::CUDA_ERROR_TOO_MANY_PEERS);
        }
        let fresh = peers.insert(other.life());
        if fresh { Ok(()) } else { Err(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) }
    }

    /// Undoes cuCtxEnablePeerAccess.
    fn cuCtxDisablePeerAccess[Started](peerContext: CUcontext) {
        let (mine, other) = pair(global, peerContext)?;
        let taken = || lock(&mine.peers).contains(&other.life()).then(|| Change::taken(&other, mine.device));
        let _inside = access::change("cuCtxDisablePeerAccess", || taken().into_iter().collect());
        let was = lock(&mine.peers).remove(&other.life());
        if was { Ok(()) } else { Err(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED) }
    }
}

pub(crate) fn handle_of(context: &Arc<Context>) -> CUcontext {
    ptr::without_provenance_mut(context.handle as usize)
}

/// Makes a context and pushes it.
///
/// # Safety
///
/// `out` is null or writable.
unsafe fn create(global: &Global, out: *mut CUcontext, flags: c_uint, device: CUdevice) -> Result {
    ensure(!out.is_null())?;
    let (index, _) = global.device(device)?;
    check_flags(flags)?;
    let sequence = next_sequence();
    let context = Context::new(sequence, global.contexts.handle(sequence), index, flags, false);
    let (_, context) = global.contexts.insert(sequence, context);
    let handle = handle_of(&context);
    with_stack(global, |stack| stack.push(context));
    // SAFETY: by this function's contract.
    unsafe { put(out, handle) }
}

/// Refuses to give a context a part of a device's processors. A negative number of parts means none, as 0 does.
fn refuse_parts(parts: *const CUexecAffinityParam, count: c_int) -> Result {
    if count <= 0 {
        return Ok(());
    }
    ensure(!parts.is_null())?;
    Err(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY)
}

fn current_device(global: &Global) -> Result<CUdevice> {
    let top = with_stack(global, |stack| stack.last().cloned()).filter(|context| context.primary);
    Ok(top.map_or_else(|| current(global), Ok)?.device as CUdevice)
}

fn wait_for(context: &Arc<Context>) -> Result {
    capture::check_context(context)?;
    context.forget_plain_frees();
    context.synchronize();
    Ok(())
}

fn is_active(device: &Device) -> bool {
    device.primary.is_alive()
}

/// The most peers of a context. The manual states it for machines without NVSwitch.
const MOST_PEERS: usize = 8;

fn check_flags(flags: c_uint) -> Result {
    let scheduling = flags & CUctx_flags::CU_CTX_SCHED_MASK.0;
    ensure(flags & !CUctx_flags::CU_CTX_FLAGS_MASK.0 == 0 && matches!(scheduling, 0 | 1 | 2 | 4))
}

/// For calls that treat a context that has ended like one that never existed.
fn known<T>(found: Result<T>) -> Result<T> {
    found.map_err(|code| match code {
        CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED => CUresult::CUDA_ERROR_INVALID_CONTEXT,
        code => code,
    })
}

/// A context by its handle; null names the current one.
pub(super) fn named_or_current(global: &Global, context: CUcontext) -> Result<Arc<Context>> {
    if context.is_null() { current(global) } else { global.context(context) }
}

fn pair(global: &Global, peer: CUcontext) -> Result<(Arc<Context>, Arc<Context>)> {
    Ok((current(global)?, global.context(peer)?))
}
