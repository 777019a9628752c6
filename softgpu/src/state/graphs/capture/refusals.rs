//! Calls that captures refuse. Mostly the call also invalidates the capture.

use super::{MODE, Member, Members, look, look_at_all, waits_for};
use crate::call::Result;
use crate::state::Global;
use crate::state::contexts::{Context, Role};
use crate::state::streams::Stream;
use cuda_sys::CUresult;
use std::cell::Cell;
use std::sync::Arc;
use std::thread;

/// Invalidates the captures that `select` accepts. Returns whether there are any.
fn invalidate(members: &Members, select: impl Fn(&Member) -> bool) -> bool {
    let mut any = false;
    for member in members.values().filter(|member| select(member)) {
        member.capture.invalidate();
        any = true;
    }
    any
}

/// Invalidates the captures of streams for which the legacy default stream would wait. Fails if there are any.
pub(super) fn legacy(members: &Members, context: &Arc<Context>) -> Result {
    let implied = invalidate(members, |member| waits_for(context, member));
    if implied { Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) } else { Ok(()) }
}

/// Invalidates a stream's capture because of a call that cannot be recorded. Returns the code.
pub(crate) fn refuse(stream: &Stream, code: CUresult) -> CUresult {
    if let Ok(global) = Global::get()
        && let Some(members) = global.captures.members()
    {
        invalidate(&members, |member| member.stream.key() == stream.key());
    }
    code
}

/// Refuses a call that no capture of its stream allows, whatever its mode, and invalidates the capture.
pub(crate) fn check_not_captured(stream: &Stream) -> Result {
    let global = Global::get()?;
    look(global, stream);
    let Some(members) = global.captures.members() else { return Ok(()) };
    let captured = invalidate(&members, |member| member.stream.key() == stream.key());
    if captured { Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
}

/// Refuses a call that waits for the work of a capturing stream, or that asks about that work.
pub(crate) fn check_settled(stream: &Stream) -> Result {
    let global = Global::get()?;
    look(global, stream);
    let Some(members) = global.captures.members() else { return Ok(()) };
    if stream.role == Role::Legacy {
        legacy(&members, &stream.context)?;
    } else if invalidate(&members, |member| member.stream.key() == stream.key()) {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    forbid(&members)
}

/// Refuses a call that waits for all work of a context while one of its streams captures.
pub(crate) fn check_context(context: &Arc<Context>) -> Result {
    let global = Global::get()?;
    look_at_all(global, context);
    let Some(members) = global.captures.members() else { return Ok(()) };
    if invalidate(&members, |member| Arc::ptr_eq(&member.stream.context, context)) {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    forbid(&members)
}

/// Refuses a synchronous call, which comes after the legacy default stream. If it does not wait for its work (`waits`),
/// it is refused only if that stream would wait for a capturing stream.
pub(crate) fn check_synchronous(context: &Arc<Context>, waits: bool) -> Result {
    let Some(members) = Global::get()?.captures.members() else { return Ok(()) };
    legacy(&members, context)?;
    if waits { forbid(&members) } else { Ok(()) }
}

/// Refuses a call if a capture forbids it to this thread: captures would not notice the call, or it waits for them.
#[inline]
pub(crate) fn check_unsafe(global: &Global) -> Result {
    global.captures.members().map_or(Ok(()), |members| forbid(&members))
}

fn forbid(members: &Members) -> Result {
    let (thread, mode) = (thread::current().id(), MODE.with(Cell::get));
    let forbidden = invalidate(members, |member| member.capture.forbids(thread, mode));
    if forbidden { Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
}
