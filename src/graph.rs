//! Graphs
//!
//! A graph records the work of a stream once, and can be launched many times. Everything that the work uses must be
//! alive at each launch: memory, kernels, and the arguments of host functions.

use crate::call::{self, Failure, Out, destroy, drop_object, handle_type, invalid, object, out, run};
use crate::handles::cudamem_context;
use crate::handles::cudamem_executable;
use crate::handles::cudamem_graph;
use crate::handles::cudamem_resource;
use crate::handles::cudamem_stream;
use crate::made::new_resource;
use crate::status::cudamem_status;
use core::ffi::c_void;
use cuda_mem::graph::{CaptureMode, ExecutableGraph, Graph, GraphOptions};
use cuda_mem::memory::GraphMemory;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A graph. The driver allows one thread at a time.
#[derive(Debug)]
pub struct Recorded(Mutex<Graph>);

/// An executable graph. The driver allows one thread at a time.
#[derive(Debug)]
pub struct Executable(Mutex<ExecutableGraph>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

handle_type!(cudamem_graph: Recorded);
handle_type!(cudamem_executable: Executable);

impl Recorded {
    pub(crate) fn raw(&self) -> *mut c_void {
        lock(&self.0).raw().cast()
    }
}

/// Queues the work to record on stream, with functions of this library and of CUDA. user is the program's pointer.
/// CUDAMEM_SUCCESS makes the graph; any other status discards the recording. It must not unwind.
pub type cudamem_record_callback = Option<extern "C" fn(stream: cudamem_stream, user: *mut c_void) -> cudamem_status>;

/// During the capture, no thread may make calls that a capture does not record, such as plain allocations.
pub const CUDAMEM_CAPTURE_GLOBAL: i32 = 0;
/// During the capture, the calling thread may not make such calls.
pub const CUDAMEM_CAPTURE_THREAD_LOCAL: i32 = 1;
/// All threads may make such calls. None of them becomes part of the recorded work.
pub const CUDAMEM_CAPTURE_RELAXED: i32 = 2;

/// Calls record, and makes a graph of the work that it queues on stream. That work does not run now. mode is one of
/// CUDAMEM_CAPTURE_... . Another stream joins the capture when it waits for this one (cudamem_stream_join); this stream
/// must join it again before record returns.
///
/// Errors: the status of record. CUDAMEM_ERROR_DRIVER if the stream already captures or is the legacy default stream,
/// or if a forbidden call invalidated the capture.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_graph_capture(
    stream: cudamem_stream,
    mode: i32,
    record: cudamem_record_callback,
    user: *mut c_void,
    graph: Out<'_, cudamem_graph>,
) -> cudamem_status {
    run("cudamem_graph_capture", || {
        let graph = out("graph", graph)?;
        let record =
            record.ok_or_else(|| invalid("record", "NULL", "it must be the function that records the work"))?;
        let mode = match mode {
            CUDAMEM_CAPTURE_GLOBAL => CaptureMode::Global,
            CUDAMEM_CAPTURE_THREAD_LOCAL => CaptureMode::ThreadLocal,
            CUDAMEM_CAPTURE_RELAXED => CaptureMode::Relaxed,
            other => return Err(invalid("mode", other.to_string(), "it must be one of CUDAMEM_CAPTURE_...")),
        };
        let captured = object("stream", stream)?;
        let mut status = 0;
        let made = captured.capture(mode, |_| {
            status = record(stream, user);
            Ok(())
        });
        if status != 0 {
            return Err(Failure::GivenUp { argument: "record", status });
        }
        graph.write(call::new_handle(Recorded(Mutex::new(made?)))?);
        Ok(())
    })
}

/// Gets the number of nodes of a graph.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_graph_get_node_count(graph: cudamem_graph, count: Out<'_, usize>) -> cudamem_status {
    run("cudamem_graph_get_node_count", || {
        let count = out("count", count)?;
        count.write(lock(&object("graph", graph)?.0).node_count()?);
        Ok(())
    })
}

/// Destroys a graph. Executable graphs made from it stay. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_graph_destroy(graph: cudamem_graph) -> cudamem_status {
    run("cudamem_graph_destroy", || destroy("graph", graph, drop_object))
}

/// A flag of cudamem_graph_instantiate: a launch first frees the memory that the previous launch allocated and nothing
/// freed.
pub const CUDAMEM_GRAPH_AUTO_FREE: u32 = 1;

/// Makes an executable graph from a graph. flags is 0 or CUDAMEM_GRAPH_AUTO_FREE.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_graph_instantiate(
    graph: cudamem_graph,
    flags: u32,
    executable: Out<'_, cudamem_executable>,
) -> cudamem_status {
    run("cudamem_graph_instantiate", || {
        let executable = out("executable", executable)?;
        call::check_flags("flags", flags, CUDAMEM_GRAPH_AUTO_FREE)?;
        let mut options = GraphOptions::default();
        options.auto_free_on_launch = flags & CUDAMEM_GRAPH_AUTO_FREE != 0;
        let made = lock(&object("graph", graph)?.0).instantiate(options)?;
        executable.write(call::new_handle(Executable(Mutex::new(made)))?);
        Ok(())
    })
}

/// Runs the recorded work after all work queued on stream so far, and after the previous launch.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_executable_launch(executable: cudamem_executable, stream: cudamem_stream) -> cudamem_status {
    run("cudamem_executable_launch", || {
        let (executable, stream) = (object("executable", executable)?, object("stream", stream)?);
        let executable = lock(&executable.0);
        // SAFETY: the header requires the program to keep everything alive that the work uses.
        Ok(unsafe { executable.launch(&stream) }?)
    })
}

/// Destroys an executable graph. A running launch keeps what it needs. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_executable_destroy(executable: cudamem_executable) -> cudamem_status {
    run("cudamem_executable_destroy", || destroy("executable", executable, drop_object))
}

/// Makes a resource whose memory a graph allocates at each launch. Allocate from it during a recording, on the
/// recording stream. If the buffer is destroyed during the recording, the graph frees it. Otherwise use and destroy it
/// only after a launch of its graph and before the next: until then its address may be another graph's.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_create_graph(
    context: cudamem_context,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_create_graph", || {
        let resource = out("resource", resource)?;
        // SAFETY: the header requires the program to uphold the contract of `GraphMemory::new`.
        resource.write(new_resource(unsafe { GraphMemory::new(&*object("context", context)?) })?);
        Ok(())
    })
}
