//! Contexts: a thread's context stack, primary contexts, and destroyed contexts.

use super::lab::codes::*;
use super::lab::{Lab, Run};
use cuda_mem::cuda_sys::*;
use std::ptr;

cases! {
    Shared none_current,
    Shared frees_without_a_context,
    Shared stream_order_without_a_context,
    Shared stack,
    Shared null_and_null_results,
    Shared flags_and_ids,
    Shared flags_set_later,
    Shared creation,
    Shared frees_in_another_context,
    Shared work_of_another_context,
    Shared primary_state,
    Shared limits,
    Alone primary_flags_while_alive,
    Alone primary_release,
    Alone primary_reset,
    Alone memory_of_an_ended_context,
    Alone destroyed_context_in_its_place,
    Alone destroyed_on_another_thread,
    Alone id_of_a_destroyed_context,
    Alone destroyed_context_pushed,
    Alone destroyed_context_made_current,
    Alone destroyed_twice,
    Alone api_version_of_a_destroyed_context,
}

/// The limit of the part of the L2 cache that keeps data. Two H200 answered 9,830,400 and 11,796,480 bytes.
const OF_ONE_UNIT: u32 = 6;

fn limits(l: &mut Lab) -> Run {
    for limit in 0..=11 {
        let mut value = 77;
        let label = format!("limit {limit}");
        ask!(l, label.clone(), cuCtxGetLimit(&mut value, CUlimit(limit)));
        if limit != OF_ONE_UNIT {
            l.say(format!("{label} of a fresh context"), value);
        }
    }
    ask!(l, "without a result", cuCtxGetLimit(ptr::null_mut(), CUlimit::CU_LIMIT_STACK_SIZE));
    ask!(l, "an unknown limit", cuCtxSetLimit(CUlimit(99), 1));
    let context = l.second_context()?;
    need!(l, cuCtxSetCurrent(context))?;
    for (limit, wish) in [(0, 4096), (1, 2 << 20), (2, 16 << 20), (3, 4), (4, 4096), (5, 32), (5, 4096), (6, 1 << 20)] {
        let (mut value, label) = (77, format!("limit {limit} to {wish}"));
        if ask!(l, label.clone(), cuCtxSetLimit(CUlimit(limit), wish)) {
            need!(l, cuCtxGetLimit(&mut value, CUlimit(limit)))?;
            if limit != OF_ONE_UNIT {
                l.say(format!("{label}: value"), value);
            }
        }
    }
    Ok(())
}

fn none_current(l: &mut Lab) -> Run {
    let (mut address, mut device, mut context, mut flags) = (0, 7, ptr::dangling_mut(), 0);
    let (mut byte, mut stream, mut event) = (0_u8, ptr::null_mut(), ptr::null_mut());
    let (mut free, mut host, mut least) = (0, ptr::null_mut(), 0);
    let memory = l.alloc(64)?;
    need!(l, cuCtxSetCurrent(ptr::null_mut()))?;
    ask!(l, "cuCtxGetCurrent" => OK, cuCtxGetCurrent(&mut context));
    l.check("the current context is null", context.is_null(), true);
    ask!(l, "cuMemAlloc" => CONTEXT, cuMemAlloc_v2(&mut address, 64));
    ask!(l, "cuMemAlloc of 0 bytes", cuMemAlloc_v2(&mut address, 0));
    ask!(l, "cuMemAlloc without a result", cuMemAlloc_v2(ptr::null_mut(), 64));
    ask!(l, "cuMemAllocManaged", cuMemAllocManaged(&mut address, 64, 1));
    ask!(l, "cuMemHostAlloc", cuMemHostAlloc(&mut host, 64, 0));
    ask!(l, "cuMemFreeHost of null", cuMemFreeHost(ptr::null_mut()));
    ask!(l, "cuCtxGetDevice" => CONTEXT, cuCtxGetDevice(&mut device));
    ask!(l, "cuCtxGetFlags", cuCtxGetFlags(&mut flags));
    ask!(l, "cuCtxPopCurrent" => CONTEXT, cuCtxPopCurrent_v2(&mut context));
    ask!(l, "cuCtxSynchronize" => CONTEXT, cuCtxSynchronize());
    ask!(l, "cuCtxGetStreamPriorityRange", cuCtxGetStreamPriorityRange(&mut least, ptr::null_mut()));
    ask!(l, "cuMemGetInfo", cuMemGetInfo_v2(&mut free, ptr::null_mut()));
    ask!(l, "cuMemcpyDtoH" => CONTEXT, cuMemcpyDtoH_v2(ptr::from_mut(&mut byte).cast(), memory, 1));
    ask!(l, "cuMemcpyDtoH of 0 bytes", cuMemcpyDtoH_v2(ptr::from_mut(&mut byte).cast(), memory, 0));
    ask!(l, "cuMemsetD8", cuMemsetD8_v2(memory, 1, 1));
    ask!(l, "cuStreamCreate", cuStreamCreate(&mut stream, 0));
    ask!(l, "cuEventCreate", cuEventCreate(&mut event, 0));
    ask!(l, "cuStreamQuery of the default stream", cuStreamQuery(ptr::null_mut()));
    ask!(l, "cuStreamSynchronize of the default stream", cuStreamSynchronize(ptr::null_mut()));
    let mut kind = 0_u32;
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    ask!(l, "cuPointerGetAttribute", cuPointerGetAttribute(ptr::from_mut(&mut kind).cast(), attribute, memory));
    ask!(l, "cuMemGetAddressRange", cuMemGetAddressRange_v2(ptr::null_mut(), &mut free, memory));
    let mut handle = CUipcMemHandle { reserved: [0; 64] };
    ask!(l, "cuIpcGetMemHandle", cuIpcGetMemHandle(&mut handle, memory));
    Ok(())
}

fn frees_without_a_context(l: &mut Lab) -> Run {
    let (memory, host, managed) = (l.alloc(64)?, l.host(64)?, l.managed(64)?);
    need!(l, cuCtxSetCurrent(ptr::null_mut()))?;
    ask!(l, "cuMemFree of 0" => OK, cuMemFree_v2(0));
    ask!(l, "cuMemFree" => OK, cuMemFree_v2(memory));
    ask!(l, "cuMemFree again", cuMemFree_v2(memory));
    ask!(l, "cuMemFree of managed memory", cuMemFree_v2(managed));
    ask!(l, "cuMemFreeHost", cuMemFreeHost(host.cast()));
    Ok(())
}

fn stream_order_without_a_context(l: &mut Lab) -> Run {
    let (stream, event, mut memory, mut more) = (l.stream(0)?, l.event(0)?, 0, 0);
    need!(l, cuMemAllocAsync(&mut memory, 64, stream))?;
    need!(l, cuCtxSetCurrent(ptr::null_mut()))?;
    ask!(l, "cuMemAllocAsync on a stream", cuMemAllocAsync(&mut more, 64, stream));
    ask!(l, "cuMemAllocAsync on the default stream", cuMemAllocAsync(&mut more, 64, ptr::null_mut()));
    ask!(l, "cuMemsetD8Async on a stream", cuMemsetD8Async(memory, 1, 64, stream));
    ask!(l, "cuMemFreeAsync on a stream" => OK, cuMemFreeAsync(memory, stream));
    ask!(l, "cuMemFreeAsync of 0 on the default stream", cuMemFreeAsync(0, ptr::null_mut()));
    ask!(l, "cuEventRecord", cuEventRecord(event, stream));
    ask!(l, "cuEventSynchronize", cuEventSynchronize(event));
    ask!(l, "cuStreamWaitEvent", cuStreamWaitEvent(stream, event, 0));
    ask!(l, "cuStreamSynchronize", cuStreamSynchronize(stream));
    Ok(())
}

fn stack(l: &mut Lab) -> Run {
    let second = l.second_context()?;
    let mut context = ptr::null_mut();
    ask!(l, "push" => OK, cuCtxPushCurrent_v2(second));
    ask!(l, "push the same again" => OK, cuCtxPushCurrent_v2(second));
    ask!(l, "pop" => OK, cuCtxPopCurrent_v2(&mut context));
    l.check("pop gives the last", context == second, true);
    ask!(l, "replace by the primary" => OK, cuCtxSetCurrent(l.context));
    ask!(l, "pop" => OK, cuCtxPopCurrent_v2(&mut context));
    l.check("pop gives the one that replaced", context == l.context, true);
    ask!(l, "pop without a result" => OK, cuCtxPopCurrent_v2(ptr::null_mut()));
    ask!(l, "pop an empty stack" => CONTEXT, cuCtxPopCurrent_v2(&mut context));
    ask!(l, "replace nothing" => OK, cuCtxSetCurrent(l.context));
    ask!(l, "replace by null" => OK, cuCtxSetCurrent(ptr::null_mut()));
    ask!(l, "and again" => OK, cuCtxSetCurrent(ptr::null_mut()));
    let current = l.thread(|l| {
        let mut context = ptr::dangling_mut();
        ask!(l, "current on a new thread" => OK, cuCtxGetCurrent(&mut context));
        context.is_null()
    });
    l.check("a new thread has none", current, true);
    Ok(())
}

fn null_and_null_results(l: &mut Lab) -> Run {
    let mut context = ptr::null_mut();
    ask!(l, "push null", cuCtxPushCurrent_v2(ptr::null_mut()));
    ask!(l, "current after that", cuCtxGetCurrent(&mut context));
    l.say("is the primary still", context == l.context);
    ask!(l, "destroy null", cuCtxDestroy_v2(ptr::null_mut()));
    ask!(l, "cuCtxGetCurrent without a result", cuCtxGetCurrent(ptr::null_mut()));
    ask!(l, "cuCtxGetDevice without a result", cuCtxGetDevice(ptr::null_mut()));
    ask!(l, "cuCtxGetFlags without a result", cuCtxGetFlags(ptr::null_mut()));
    ask!(l, "cuCtxGetId without a result", cuCtxGetId(l.context, ptr::null_mut()));
    ask!(l, "cuCtxGetApiVersion without a result", cuCtxGetApiVersion(l.context, ptr::null_mut()));
    ask!(l, "cuCtxCreate without a result", cuCtxCreate_v2(ptr::null_mut(), 0, 0));
    ask!(l, "cuDevicePrimaryCtxRetain without a result", cuDevicePrimaryCtxRetain(ptr::null_mut(), 0));
    Ok(())
}

fn flags_set_later(l: &mut Lab) -> Run {
    let (mut context, mut flags) = (ptr::null_mut(), 0);
    need!(l, cuCtxCreate_v2(&mut context, 0, 0))?;
    for new in [0x1, 0x3, 0x4, 0x8, 0x10, 0x100] {
        if ask!(l, format!("set {new:#x}"), cuCtxSetFlags(new)) {
            ask!(l, format!("get {new:#x}") => OK, cuCtxGetFlags(&mut flags));
            l.say(format!("flags {new:#x}"), flags);
        }
    }
    ask!(l, "destroy" => OK, cuCtxDestroy_v2(context));
    Ok(())
}

fn flags_and_ids(l: &mut Lab) -> Run {
    let second = l.second_context()?;
    let (mut flags, mut one, mut two, mut version) = (99, 0, 0, 0);
    ask!(l, "flags of the primary context" => OK, cuCtxGetFlags(&mut flags));
    l.say("flags", flags);
    ask!(l, "id" => OK, cuCtxGetId(l.context, &mut one));
    ask!(l, "id of the second context" => OK, cuCtxGetId(second, &mut two));
    l.check("the ids differ", one != two, true);
    l.say("the second id is larger", two > one);
    ask!(l, "id of null means the current one", cuCtxGetId(ptr::null_mut(), &mut two));
    l.say("the id of the current one", two == one);
    ask!(l, "interface of the primary context", cuCtxGetApiVersion(l.context, &mut version));
    l.say("interface", version);
    ask!(l, "interface of the second context", cuCtxGetApiVersion(second, &mut version));
    l.say("interface of the second", version);
    ask!(l, "interface of the current context", cuCtxGetApiVersion(ptr::null_mut(), &mut version));
    Ok(())
}

fn creation(l: &mut Lab) -> Run {
    let mut context = ptr::null_mut();
    ask!(l, "device 99" => DEVICE, cuCtxCreate_v2(&mut context, 0, 99));
    ask!(l, "device -1" => DEVICE, cuCtxCreate_v2(&mut context, 0, -1));
    for flags in [0x1, 0x3, 0x4, 0x8, 0x18, 0x80, 0x100, 0xffff_ffff_u32] {
        if ask!(l, format!("flags {flags:#x}"), cuCtxCreate_v2(&mut context, flags, 0)) {
            let mut seen = 0;
            need!(l, cuCtxGetFlags(&mut seen))?;
            l.say(format!("flags {flags:#x} are then"), format!("{seen:#x}"));
            ask!(l, format!("destroy the context of flags {flags:#x}") => OK, cuCtxDestroy_v2(context));
        }
    }
    let mut current = ptr::null_mut();
    ask!(l, "current after the destruction", cuCtxGetCurrent(&mut current));
    l.say("is the one below", current == l.context);
    ask!(l, "destroy the primary context", cuCtxDestroy_v2(l.context));
    Ok(())
}

fn frees_in_another_context(l: &mut Lab) -> Run {
    let (memory, host, stream) = (l.alloc(64)?, l.host(64)?, l.stream(0)?);
    let mut ordered = 0;
    need!(l, cuMemAllocAsync(&mut ordered, 64, stream))?;
    let second = l.second_context()?;
    need!(l, cuCtxPushCurrent_v2(second))?;
    ask!(l, "memset of the other context's memory", cuMemsetD8_v2(memory, 1, 64));
    ask!(l, "cuMemFreeAsync on the other context's stream", cuMemFreeAsync(ordered, stream));
    ask!(l, "cuMemFree of the other context's memory", cuMemFree_v2(memory));
    ask!(l, "cuMemFreeHost of the other context's memory", cuMemFreeHost(host.cast()));
    ask!(l, "pop" => OK, cuCtxPopCurrent_v2(ptr::null_mut()));
    ask!(l, "the memory is gone for its own context", cuMemFree_v2(memory));
    Ok(())
}

fn work_of_another_context(l: &mut Lab) -> Run {
    let (stream, event, memory) = (l.stream(0)?, l.event(0)?, l.alloc(64)?);
    let second = l.second_context()?;
    let mut own = ptr::null_mut();
    need!(l, cuCtxPushCurrent_v2(second))?;
    need!(l, cuStreamCreate(&mut own, 0))?;
    ask!(l, "the other context's stream: query", cuStreamQuery(stream));
    ask!(l, "the other context's stream: synchronize", cuStreamSynchronize(stream));
    ask!(l, "the other context's stream: memset", cuMemsetD8Async(memory, 1, 64, stream));
    ask!(l, "the other context's event: record here", cuEventRecord(event, own));
    ask!(l, "the other context's event: record there", cuEventRecord(event, stream));
    ask!(l, "the other context's event: wait here", cuStreamWaitEvent(own, event, 0));
    ask!(l, "the other context's event: synchronize", cuEventSynchronize(event));
    let mut context = ptr::null_mut();
    ask!(l, "context of the other stream" => OK, cuStreamGetCtx(stream, &mut context));
    l.check("is the other context", context == l.context, true);
    ask!(l, "context of the default stream", cuStreamGetCtx(ptr::null_mut(), &mut context));
    l.say("is the current one", context == second);
    need!(l, cuStreamDestroy_v2(own))?;
    need!(l, cuCtxPopCurrent_v2(ptr::null_mut()))
}

fn primary_state(l: &mut Lab) -> Run {
    let (mut flags, mut active, mut context) = (99, 99, ptr::null_mut());
    ask!(l, "state" => OK, cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    l.check("active", active, 1);
    l.say("flags", flags);
    ask!(l, "state without flags", cuDevicePrimaryCtxGetState(0, ptr::null_mut(), &mut active));
    ask!(l, "state without active", cuDevicePrimaryCtxGetState(0, &mut flags, ptr::null_mut()));
    ask!(l, "state of device 99" => DEVICE, cuDevicePrimaryCtxGetState(99, &mut flags, &mut active));
    ask!(l, "retain again" => OK, cuDevicePrimaryCtxRetain(&mut context, 0));
    l.check("gives the same context", context == l.context, true);
    ask!(l, "release once" => OK, cuDevicePrimaryCtxRelease_v2(0));
    ask!(l, "retain of device 99" => DEVICE, cuDevicePrimaryCtxRetain(&mut context, 99));
    ask!(l, "release of device 99" => DEVICE, cuDevicePrimaryCtxRelease_v2(99));
    ask!(l, "reset of device 99" => DEVICE, cuDevicePrimaryCtxReset_v2(99));
    ask!(l, "flags of device 99", cuDevicePrimaryCtxSetFlags_v2(99, 0));
    Ok(())
}

fn primary_flags_while_alive(l: &mut Lab) -> Run {
    let (mut flags, mut active) = (99, 99);
    for wanted in [0x1, 0x4, 0x3, 0x80, 0x100] {
        ask!(l, format!("set flags {wanted:#x}"), cuDevicePrimaryCtxSetFlags_v2(0, wanted));
        ask!(l, format!("state after {wanted:#x}") => OK, cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
        l.say(format!("flags after {wanted:#x}"), format!("{flags:#x}"));
    }
    Ok(())
}

fn primary_release(l: &mut Lab) -> Run {
    let (mut flags, mut active, mut memory, mut context) = (99, 99, 0, ptr::null_mut());
    need!(l, cuMemAlloc_v2(&mut memory, 64))?;
    ask!(l, "release the last" => OK, cuDevicePrimaryCtxRelease_v2(0));
    ask!(l, "state" => OK, cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    l.check("active", active, 0);
    ask!(l, "release once more", cuDevicePrimaryCtxRelease_v2(0));
    ask!(l, "current", cuCtxGetCurrent(&mut context));
    l.say("the ended context is still current", context == l.context);
    ask!(l, "allocate in it", cuMemAlloc_v2(&mut memory, 64));
    ask!(l, "device of it", cuCtxGetDevice(&mut active));
    let mut again = ptr::null_mut();
    ask!(l, "retain anew" => OK, cuDevicePrimaryCtxRetain(&mut again, 0));
    l.say("the same address", again == l.context);
    l.context = again;
    ask!(l, "set current" => OK, cuCtxSetCurrent(again));
    ask!(l, "free the memory of before", cuMemFree_v2(memory));
    ask!(l, "allocate" => OK, cuMemAlloc_v2(&mut memory, 64));
    Ok(())
}

fn primary_reset(l: &mut Lab) -> Run {
    let (mut flags, mut active, mut memory) = (99, 99, 0);
    need!(l, cuMemAlloc_v2(&mut memory, 64))?;
    ask!(l, "reset" => OK, cuDevicePrimaryCtxReset_v2(0));
    ask!(l, "state" => OK, cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    l.say("active", active);
    ask!(l, "memory of before", cuMemsetD8_v2(memory, 1, 64));
    ask!(l, "free the memory of before", cuMemFree_v2(memory));
    ask!(l, "allocate without a new retain", cuMemAlloc_v2(&mut memory, 64));
    ask!(l, "reset again", cuDevicePrimaryCtxReset_v2(0));
    ask!(l, "release", cuDevicePrimaryCtxRelease_v2(0));
    Ok(())
}

fn memory_of_an_ended_context(l: &mut Lab) -> Run {
    let (mut context, mut memory, mut host, mut ordered) = (ptr::null_mut(), 0, ptr::null_mut(), 0);
    need!(l, cuCtxCreate_v2(&mut context, 0, 0))?;
    need!(l, cuMemAlloc_v2(&mut memory, 64))?;
    need!(l, cuMemHostAlloc(&mut host, 64, 0))?;
    need!(l, cuMemAllocAsync(&mut ordered, 64, ptr::null_mut()))?;
    need!(l, cuStreamSynchronize(ptr::null_mut()))?;
    ask!(l, "destroy" => OK, cuCtxDestroy_v2(context));
    ask!(l, "free its memory", cuMemFree_v2(memory));
    ask!(l, "free its host memory", cuMemFreeHost(host));
    ask!(l, "memset of its pool memory", cuMemsetD8_v2(ordered, 1, 64));
    ask!(l, "free its pool memory", cuMemFree_v2(ordered));
    Ok(())
}

fn destroyed_context_in_its_place(l: &mut Lab) -> Run {
    let (mut context, mut current, mut memory) = (ptr::null_mut(), ptr::null_mut(), 0);
    need!(l, cuCtxCreate_v2(&mut context, 0, 0))?;
    need!(l, cuCtxPushCurrent_v2(l.context))?;
    ask!(l, "destroy a context below the current one" => OK, cuCtxDestroy_v2(context));
    need!(l, cuCtxPopCurrent_v2(ptr::null_mut()))?;
    ask!(l, "current", cuCtxGetCurrent(&mut current));
    l.say("the destroyed one is current", current == context);
    ask!(l, "allocate in it", cuMemAlloc_v2(&mut memory, 64));
    ask!(l, "synchronize it", cuCtxSynchronize());
    ask!(l, "pop it", cuCtxPopCurrent_v2(&mut current));
    ask!(l, "allocate in the one below", cuMemAlloc_v2(&mut memory, 64));
    Ok(())
}

fn destroyed_on_another_thread(l: &mut Lab) -> Run {
    let (mut context, mut memory) = (ptr::null_mut(), 0);
    need!(l, cuCtxCreate_v2(&mut context, 0, 0))?;
    l.thread(|l| ask!(l, "destroy on another thread" => OK, cuCtxDestroy_v2(context)));
    ask!(l, "allocate where it is current", cuMemAlloc_v2(&mut memory, 64));
    ask!(l, "synchronize", cuCtxSynchronize());
    Ok(())
}

/// A destroyed context.
fn ended(l: &mut Lab) -> Result<CUcontext, super::lab::Stop> {
    let mut context = ptr::null_mut();
    need!(l, cuCtxCreate_v2(&mut context, 0, 0))?;
    need!(l, cuCtxDestroy_v2(context))?;
    Ok(context)
}

fn id_of_a_destroyed_context(l: &mut Lab) -> Run {
    let (context, mut id) = (ended(l)?, 0);
    ask!(l, "id", cuCtxGetId(context, &mut id));
    Ok(())
}

fn destroyed_context_pushed(l: &mut Lab) -> Run {
    let (context, mut memory) = (ended(l)?, 0);
    ask!(l, "push", cuCtxPushCurrent_v2(context));
    ask!(l, "allocate", cuMemAlloc_v2(&mut memory, 64));
    Ok(())
}

fn destroyed_context_made_current(l: &mut Lab) -> Run {
    let (context, mut memory) = (ended(l)?, 0);
    ask!(l, "set current", cuCtxSetCurrent(context));
    ask!(l, "allocate", cuMemAlloc_v2(&mut memory, 64));
    Ok(())
}

fn destroyed_twice(l: &mut Lab) -> Run {
    let context = ended(l)?;
    ask!(l, "destroy again", cuCtxDestroy_v2(context));
    Ok(())
}

fn api_version_of_a_destroyed_context(l: &mut Lab) -> Run {
    let (context, mut version) = (ended(l)?, 0);
    ask!(l, "interface", cuCtxGetApiVersion(context, &mut version));
    Ok(())
}
