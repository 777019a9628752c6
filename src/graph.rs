//! Graphs
//!
//! Work of a stream can be recorded once and launched many times. What the work uses has to live at each launch: memory, kernels,
//! and what host functions get.

use crate::call::{self, Failure, Out, destroy, drop_object, handle_type, invalid, object, out, run};
use crate::handle::Kind;
use crate::handles::cudamem_context;
use crate::handles::cudamem_executable;
use crate::handles::cudamem_graph;
use crate::handles::cudamem_resource;
use crate::handles::cudamem_stream;
use crate::made::{new_resource, of_sort};
use crate::status::cudamem_status;
use core::ffi::c_void;
use cuda_mem::graph::{CaptureMode, ExecutableGraph, Graph, GraphMemory, GraphOptions};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A graph, which one thread at a time uses.
#[derive(Debug)]
pub struct Recorded(Mutex<Graph>);

/// An executable graph, which one thread at a time uses.
#[derive(Debug)]
pub struct Executable(Mutex<ExecutableGraph>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

handle_type!(cudamem_graph: Recorded, Kind::Graph);
handle_type!(cudamem_executable: Executable, Kind::Executable);

/// Gives a stream what is to be recorded, by functions of this library and of CUDA's, with what was given along with the function.
/// CUDAMEM_SUCCESS makes the graph; any other status gives the recording up. It must not unwind.
pub type cudamem_record_callback = Option<extern "C" fn(stream: cudamem_stream, user: *mut c_void) -> cudamem_status>;

/// No thread may make calls that a capture does not notice, such as plain allocations.
pub const CUDAMEM_CAPTURE_GLOBAL: i32 = 0;
/// The calling thread may not make such calls.
pub const CUDAMEM_CAPTURE_THREAD_LOCAL: i32 = 1;
/// All threads may make them: none belongs to the recorded work.
pub const CUDAMEM_CAPTURE_RELAXED: i32 = 2;

/// Calls record, and makes a graph of what it gives the stream, which is not done now. mode is one of CUDAMEM_CAPTURE_... . Another
/// stream takes part once it waits for this one (cudamem_stream_join), and must be joined again before the end.
///
/// Errors: the status of record; CUDAMEM_ERROR_DRIVER if the stream captures already, is the legacy default stream, or the capture
/// was lost by a call that may not be made meanwhile.
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
        let record = record.ok_or_else(|| invalid("record", "NULL", "it is the function that gives the work"))?;
        let mode = match mode {
            CUDAMEM_CAPTURE_GLOBAL => CaptureMode::Global,
            CUDAMEM_CAPTURE_THREAD_LOCAL => CaptureMode::ThreadLocal,
            CUDAMEM_CAPTURE_RELAXED => CaptureMode::Relaxed,
            other => return Err(invalid("mode", other.to_string(), "it is one of CUDAMEM_CAPTURE_...")),
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

/// Gives how many nodes a graph has.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_graph_get_node_count(graph: cudamem_graph, count: Out<'_, usize>) -> cudamem_status {
    run("cudamem_graph_get_node_count", || {
        let count = out("count", count)?;
        count.write(lock(&object("graph", graph)?.0).node_count()?);
        Ok(())
    })
}

/// Gives the driver's handle, a CUgraph. It is valid while the handle lives.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_graph_get_raw(graph: cudamem_graph, raw: Out<'_, *mut c_void>) -> cudamem_status {
    run("cudamem_graph_get_raw", || {
        let raw = out("raw", raw)?;
        raw.write(lock(&object("graph", graph)?.0).raw().cast());
        Ok(())
    })
}

/// Destroys a graph; what was instantiated of it stays. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_graph_destroy(graph: cudamem_graph) -> cudamem_status {
    run("cudamem_graph_destroy", || destroy("graph", graph, drop_object))
}

/// A flag of cudamem_graph_instantiate: a launch first frees the memory that the one before allocated and nobody freed.
pub const CUDAMEM_GRAPH_AUTO_FREE: u32 = 1;

/// Makes a graph ready for launches. flags is 0 or CUDAMEM_GRAPH_AUTO_FREE.
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

/// Does the recorded work after all work given to stream so far, and after the launch before.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_executable_launch(executable: cudamem_executable, stream: cudamem_stream) -> cudamem_status {
    run("cudamem_executable_launch", || {
        let (executable, stream) = (object("executable", executable)?, object("stream", stream)?);
        let executable = lock(&executable.0);
        // SAFETY: the program keeps alive what the work uses; the header says so.
        Ok(unsafe { executable.launch(&stream) }?)
    })
}

/// Destroys an executable graph; a launch that goes on keeps what it needs. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_executable_destroy(executable: cudamem_executable) -> cudamem_status {
    run("cudamem_executable_destroy", || destroy("executable", executable, drop_object))
}

/// Makes a resource of memory that a graph allocates at each launch: allocate it within a recording, of the stream that records.
/// A buffer that is destroyed within the recording is freed by the graph. One that outlives the recording is used and destroyed
/// only after a launch of its graph, and before the next launch: until then its address may be another graph's.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_create_graph(
    context: cudamem_context,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_create_graph", || {
        let resource = out("resource", resource)?;
        // SAFETY: the contract is the C program's.
        resource.write(new_resource(unsafe { GraphMemory::new(&*object("context", context)?) })?);
        Ok(())
    })
}

/// Gives how much memory the graphs of a device use, and how much is set aside for them, in bytes. Either place may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_get_graph_memory(
    resource: cudamem_resource,
    used: Out<'_, u64>,
    reserved: Out<'_, u64>,
) -> cudamem_status {
    run("cudamem_resource_get_graph_memory", || {
        let attributes = of_sort::<GraphMemory>("resource", resource)?.attributes()?;
        if let Some(used) = used {
            used.write(attributes.used as u64);
        }
        if let Some(reserved) = reserved {
            reserved.write(attributes.reserved as u64);
        }
        Ok(())
    })
}

/// Gives memory that no graph uses back to the system.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_trim_graph_memory(resource: cudamem_resource) -> cudamem_status {
    run("cudamem_resource_trim_graph_memory", || Ok(of_sort::<GraphMemory>("resource", resource)?.trim()?))
}
