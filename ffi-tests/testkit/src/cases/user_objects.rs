//! User objects: who holds references, and when the object ends.

use super::captures::{GLOBAL, begin, end};
use super::lab::codes::*;
use super::lab::{Lab, Run, Stop};
use cuda_mem::cuda_sys::*;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

cases! {
    Shared creation,
    Shared references_of_the_program,
    Shared references_of_graphs,
    Shared the_end_after_a_launch,
    Shared instantiation_with_parameters,
}

const MOVE: u32 = 1;

unsafe extern "C" fn count(ended: *mut c_void) {
    // SAFETY: the cases pass a static counter.
    unsafe { &*ended.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

fn object(l: &mut Lab, ended: &'static AtomicU32, references: u32) -> Result<CUuserObject, Stop> {
    let (mut object, data) = (ptr::null_mut(), ptr::from_ref(ended).cast_mut().cast());
    need!(l, cuUserObjectCreate(&mut object, data, Some(count), references, 1))?;
    Ok(object)
}

/// Records how many objects ended. Destructors may run on another thread, so this waits a moment for them.
fn say_ended(l: &mut Lab, label: &str, ended: &AtomicU32, expected: u32) {
    let start = Instant::now();
    while ended.load(Ordering::SeqCst) < expected && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(50));
    l.say(format!("{label}: ended"), ended.load(Ordering::SeqCst));
}

fn empty_graph(l: &mut Lab) -> Result<CUgraph, Stop> {
    let stream = l.stream(1)?;
    begin(l, stream, GLOBAL)?;
    end(l, stream)
}

fn creation(l: &mut Lab) -> Run {
    static ENDED: AtomicU32 = AtomicU32::new(0);
    let (mut made, data) = (ptr::null_mut(), (&raw const ENDED).cast_mut().cast());
    ask!(l, "without a destructor", cuUserObjectCreate(&mut made, data, None, 1, 1));
    ask!(l, "without references", cuUserObjectCreate(&mut made, data, Some(count), 0, 1));
    ask!(l, "2^31 references", cuUserObjectCreate(&mut made, data, Some(count), 1 << 31, 1));
    ask!(l, "without a flag", cuUserObjectCreate(&mut made, data, Some(count), 1, 0));
    ask!(l, "with another flag", cuUserObjectCreate(&mut made, data, Some(count), 1, 3));
    ask!(l, "without a result", cuUserObjectCreate(ptr::null_mut(), data, Some(count), 1, 1));
    say_ended(l, "refused", &ENDED, 0);
    Ok(())
}

fn references_of_the_program(l: &mut Lab) -> Run {
    static ENDED: AtomicU32 = AtomicU32::new(0);
    let object = object(l, &ENDED, 2)?;
    ask!(l, "retain" => OK, cuUserObjectRetain(object, 3));
    ask!(l, "retain 0", cuUserObjectRetain(object, 0));
    ask!(l, "release 0", cuUserObjectRelease(object, 0));
    ask!(l, "release 4 of 5" => OK, cuUserObjectRelease(object, 4));
    say_ended(l, "one left", &ENDED, 0);
    ask!(l, "release the last" => OK, cuUserObjectRelease(object, 1));
    say_ended(l, "none left", &ENDED, 1);
    Ok(())
}

fn references_of_graphs(l: &mut Lab) -> Run {
    static ENDED: AtomicU32 = AtomicU32::new(0);
    let (graph, object) = (empty_graph(l)?, object(l, &ENDED, 1)?);
    ask!(l, "unknown flag", cuGraphRetainUserObject(graph, object, 1, 2));
    ask!(l, "no reference", cuGraphRetainUserObject(graph, object, 0, 0));
    ask!(l, "no graph", cuGraphRetainUserObject(ptr::null_mut(), object, 1, 0));
    ask!(l, "new references" => OK, cuGraphRetainUserObject(graph, object, 2, 0));
    ask!(l, "the program's reference" => OK, cuGraphRetainUserObject(graph, object, 1, MOVE));
    say_ended(l, "the graph has three", &ENDED, 0);
    ask!(l, "take four", cuGraphReleaseUserObject(graph, object, 4));
    ask!(l, "take two" => OK, cuGraphReleaseUserObject(graph, object, 2));
    say_ended(l, "the graph has one", &ENDED, 0);
    ask!(l, "take the last" => OK, cuGraphReleaseUserObject(graph, object, 1));
    say_ended(l, "the graph has none", &ENDED, 1);
    Ok(())
}

fn the_end_after_a_launch(l: &mut Lab) -> Run {
    static ENDED: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn pause(_: *mut c_void) {
        std::thread::sleep(Duration::from_millis(200));
    }
    let (stream, mut graph, mut executable) = (l.stream(1)?, ptr::null_mut(), ptr::null_mut());
    begin(l, stream, GLOBAL)?;
    need!(l, cuLaunchHostFunc(stream, Some(pause), ptr::null_mut()))?;
    need!(l, cuStreamEndCapture(stream, &mut graph))?;
    let object = object(l, &ENDED, 1)?;
    need!(l, cuGraphRetainUserObject(graph, object, 1, MOVE))?;
    need!(l, cuGraphInstantiateWithFlags(&mut executable, graph, 0))?;
    ask!(l, "destroy the graph" => OK, cuGraphDestroy(graph));
    say_ended(l, "the executable graph is there", &ENDED, 0);
    ask!(l, "launch" => OK, cuGraphLaunch(executable, stream));
    ask!(l, "destroy the executable graph" => OK, cuGraphExecDestroy(executable));
    l.say("during the launch: ended", ENDED.load(Ordering::SeqCst));
    ask!(l, "wait" => OK, cuStreamSynchronize(stream));
    say_ended(l, "after the launch", &ENDED, 1);
    Ok(())
}

fn instantiation_with_parameters(l: &mut Lab) -> Run {
    let (graph, stream, mut executable) = (empty_graph(l)?, l.stream(1)?, ptr::null_mut());
    for (label, flags, upload) in
        [("no flags", 0, ptr::null_mut()), ("upload", 2, stream), ("upload on the default stream", 2, ptr::null_mut())]
    {
        let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS { flags, hUploadStream: upload, ..Default::default() };
        params.result_out = CUgraphInstantiateResult(77);
        if ask!(l, label, cuGraphInstantiateWithParams(&mut executable, graph, &mut params)) {
            ask!(l, format!("{label}: upload"), cuGraphUpload(executable, stream));
            ask!(l, format!("{label}: launch"), cuGraphLaunch(executable, stream));
            ask!(l, format!("{label}: wait"), cuStreamSynchronize(stream));
            ask!(l, format!("{label}: destroy"), cuGraphExecDestroy(executable));
        }
        l.say(format!("{label}: result"), params.result_out.0);
    }
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS { flags: 1 << 20, ..Default::default() };
    ask!(l, "unknown flag", cuGraphInstantiateWithParams(&mut executable, graph, &mut params));
    l.say("unknown flag: result", params.result_out.0);
    ask!(l, "without parameters", cuGraphInstantiateWithParams(&mut executable, graph, ptr::null_mut()));
    ask!(l, "upload nothing", cuGraphUpload(ptr::null_mut(), stream));
    Ok(())
}
