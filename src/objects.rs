//! Objects of several kinds
//!
//! These functions take the id of an object of any kind that the description names: stream.id, buffer.id. Another kind
//! gives CUDAMEM_ERROR_INVALID_HANDLE, and the message names both.

use crate::call::{self, Out, object, out, run};
use crate::handle;
use crate::handles::{
    cudamem_buffer, cudamem_context, cudamem_counter, cudamem_event, cudamem_flag, cudamem_frame, cudamem_graph,
    cudamem_pending_read, cudamem_ring, cudamem_stream, cudamem_view,
};
use crate::status::cudamem_status;
use core::ffi::{c_char, c_void};
use cuda_mem_dynamic::with;

/// Finds the object of an id that may be of several kinds, and evaluates the expression of its kind.
macro_rules! of_kinds {
    ($argument:literal, $id:expr; $($handle:ident as $found:ident => $body:expr,)+) => {
        match $crate::handle::kind_of($id) {
            $(Some(kind) if kind == $handle::KIND => {
                let $found = $crate::call::object($argument, $handle { id: $id })?;
                $body
            })+
            _ => return Err($crate::objects::wrong_kind($argument, $id, const { &[$($handle::KIND),+] })),
        }
    };
}
pub(crate) use of_kinds;

/// The failure for an id that is of none of the wanted kinds.
#[cold]
pub(crate) fn wrong_kind(argument: &'static str, value: u64, wanted: &'static [handle::Kind]) -> call::Failure {
    call::Failure::Handle { argument, wanted, value, refusal: handle::refuse(value) }
}

/// Gets the driver's handle of a context, a stream, an event or a graph: a CUcontext, CUstream, CUevent or CUgraph. It
/// is valid while the object's handle lives.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_get_raw(id: u64, raw: Out<'_, *mut c_void>) -> cudamem_status {
    run("cudamem_get_raw", || {
        let raw = out("raw", raw)?;
        raw.write(of_kinds!("id", id;
            cudamem_context as context => context.raw().cast(),
            cudamem_stream as stream => stream.raw().cast(),
            cudamem_event as event => event.raw().cast(),
            cudamem_graph as graph => graph.raw(),
        ));
        Ok(())
    })
}

/// Checks whether work is done: all work queued on a stream so far, the work before an event, or a pending read, whose
/// wait then does not wait. An event that was never recorded counts as done.
///
/// Errors: CUDAMEM_ERROR_DRIVER if work failed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_is_done(id: u64, done: Out<'_, bool>) -> cudamem_status {
    run("cudamem_is_done", || {
        let done = out("done", done)?;
        done.write(of_kinds!("id", id;
            cudamem_stream as stream => stream.is_done()?,
            cudamem_event as event => event.is_done()?,
            cudamem_pending_read as pending => pending.is_done()?,
        ));
        Ok(())
    })
}

/// As cudamem_stream_synchronize or cudamem_event_synchronize, but waits for at most seconds. 0 only checks; INFINITY
/// (from math.h) means no limit.
///
/// Errors: CUDAMEM_ERROR_TIMED_OUT if the work is not done by then. The work continues, and the message names what it
/// waits for, if the library knows. CUDAMEM_ERROR_DRIVER if work failed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_synchronize_for(id: u64, seconds: f64) -> cudamem_status {
    run("cudamem_synchronize_for", || {
        let limit = call::time_limit("seconds", seconds)?;
        of_kinds!("id", id;
            cudamem_stream as stream => match limit {
                Some(limit) => stream.synchronize_for(limit)?,
                None => stream.synchronize()?,
            },
            cudamem_event as event => match limit {
                Some(limit) => event.synchronize_for(limit)?,
                None => event.synchronize()?,
            },
        );
        Ok(())
    })
}

/// Records that work queued on stream so far uses a buffer, a view, a flag, a counter, a ring, or a frame: kernels that
/// were launched with its address or descriptor. Later operations of a buffer, including its free, wait for that work.
/// The memory of the others is not reused, and a frame is not handed out again, before that work is done. The stream may
/// be of another device, which uses the memory directly.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if a frame is used on a stream that captures a graph, or on a per-thread
/// default stream.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_record_use(id: u64, stream: cudamem_stream) -> cudamem_status {
    run("cudamem_record_use", || {
        let stream = object("stream", stream)?;
        of_kinds!("id", id;
            cudamem_buffer as memory => with!(&*memory.read(), buffer => buffer.record_use(&stream))?,
            cudamem_view as view => view.record_use(&stream)?,
            cudamem_flag as flag => flag.record_use(&stream),
            cudamem_counter as counter => counter.record_use(&stream),
            cudamem_ring as ring => ring.record_use(&stream),
            cudamem_frame as frame => frame.record_use(&stream)?,
        );
        Ok(())
    })
}

/// Names a flag, a counter or a ring, for error messages and for reports of long waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_set_name(id: u64, name: *const c_char) -> cudamem_status {
    run("cudamem_set_name", || {
        // SAFETY: the header requires NULL or a zero-terminated string.
        let name = unsafe { call::name(name) }?;
        of_kinds!("id", id;
            cudamem_flag as flag => flag.set_name(name),
            cudamem_counter as counter => counter.set_name(name),
            cudamem_ring as ring => ring.set_name(name),
        );
        Ok(())
    })
}
