//! Events.

use crate::call::{Result, driver_calls, ensure, ensure_done, put};
use crate::misuse::Misuse;
use crate::state::Global;
use crate::state::contexts::current;
use crate::state::graphs::capture;
use crate::state::graphs::{Params, Work};
use crate::state::handle::next_sequence;
use crate::state::sharing::SharedEvent;
use crate::state::streams::Event;
use crate::state::streams::Stream;
use cuda_sys::{CUevent, CUevent_flags, CUevent_record_flags, CUresult, CUstream};
use std::ffi::c_uint;
use std::ptr;
use std::sync::Arc;

driver_calls! {
    |global: &'static Global|

    /// Makes an event.
    fn cuEventCreate[Locked](phEvent: *mut CUevent, Flags: c_uint) {
        ensure(!phEvent.is_null())?;
        let context = current(global)?;
        ensure(Flags <= 7)?;
        let untimed = Flags & CUevent_flags::CU_EVENT_DISABLE_TIMING.0 != 0;
        // An event for other processes must not measure time.
        let shared = Flags & CUevent_flags::CU_EVENT_INTERPROCESS.0 != 0;
        ensure(!shared || untimed)?;
        let shared = shared.then(SharedEvent::make).transpose()?;
        let sequence = next_sequence();
        let (handle, _) = global.events.insert(sequence, Event::new(sequence, context, !untimed, shared));
        put(phEvent, ptr::without_provenance_mut(handle as usize))
    }

    /// Destroys an event.
    fn cuEventDestroy_v2[Locked](hEvent: CUevent) {
        let gone = global.events.remove(hEvent.addr() as u64);
        gone.map(|event| event.check_thread(Misuse::EndOfEvent, "cuEventDestroy_v2"))
            .ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Records an event after the stream's present work.
    fn cuEventRecord[Started, cuEventRecord_ptsz](hEvent: CUevent, hStream: CUstream) {
        record(global, hEvent, hStream)
    }

    /// Records an event after the stream's present work. In a capture, an external record is a node of the graph: it
    /// marks a point of each launch.
    fn cuEventRecordWithFlags[Started, cuEventRecordWithFlags_ptsz](hEvent: CUevent, hStream: CUstream, flags: c_uint) {
        ensure(flags & !CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL.0 == 0)?;
        let stream = Stream::find(global, hStream)?;
        if flags != 0 {
            let event = used(global, hEvent, "cuEventRecordWithFlags")?;
            return external(&stream, Params::Record(hEvent), Work::Record(event));
        }
        record(global, hEvent, hStream)
    }

    /// Returns whether an event has passed.
    fn cuEventQuery[Started](hEvent: CUevent) {
        let event = used(global, hEvent, "cuEventQuery")?;
        check_asked(global, &event)?;
        ensure_done(event.passed())
    }

    /// Waits for an event.
    fn cuEventSynchronize[Started](hEvent: CUevent) {
        let event = used(global, hEvent, "cuEventSynchronize")?;
        check_asked(global, &event)?;
        event.wait();
        Ok(())
    }

    /// Returns the milliseconds between two events.
    fn cuEventElapsedTime[Started](pMilliseconds: *mut f32, hStart: CUevent, hEnd: CUevent) {
        put(pMilliseconds, elapsed(global, pMilliseconds.is_null(), hStart, hEnd)?)
    }

    /// Returns the milliseconds between two events.
    fn cuEventElapsedTime_v2[Started](pMilliseconds: *mut f32, hStart: CUevent, hEnd: CUevent) {
        put(pMilliseconds, elapsed(global, pMilliseconds.is_null(), hStart, hEnd)?)
    }
}

pub(crate) fn find(global: &Global, handle: CUevent) -> Result<Arc<Event>> {
    let event = global.events.get(handle.addr() as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    if event.context.is_alive() { Ok(event) } else { Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED) }
}

/// The event for a call, which must not meet a capture of the event by another thread.
pub(crate) fn used(global: &Global, handle: CUevent, call: &'static str) -> Result<Arc<Event>> {
    let event = find(global, handle)?;
    event.check_thread(Misuse::ForeignCapture, call);
    Ok(event)
}

/// Makes a node of an external record or wait. Outside of a capture it is refused.
pub(crate) fn external(stream: &Stream, params: Params, work: Work) -> Result {
    if !capture::enter(stream)? {
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    capture::add(stream, params, work)
}

/// Refuses to say whether an event has passed if its last record was captured, or while a capture forbids the question.
fn check_asked(global: &Global, event: &Event) -> Result {
    match event.place() {
        Some(place) => Err(place.asked()),
        None => capture::check_unsafe(global),
    }
}

/// Records an event. It must belong to the stream's context.
fn record(global: &Global, event: CUevent, stream: CUstream) -> Result {
    let event = used(global, event, "cuEventRecord")?;
    let stream = Stream::find(global, stream)?;
    if !Arc::ptr_eq(&event.context, &stream.context) {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    event.record(&stream)
}

fn elapsed(global: &Global, nowhere: bool, start: CUevent, end: CUevent) -> Result<f32> {
    if nowhere {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    let [start, end] = [start, end].map(|event| used(global, event, "cuEventElapsedTime"));
    Event::elapsed(&*start?, &*end?)
}
