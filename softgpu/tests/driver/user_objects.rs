//! User objects end after their last reference: of the program, of graphs, of executable graphs, of launches.

use crate::common::graphs::{GLOBAL, VALUE};
use crate::common::{Machine, machine};
use crate::cu;
use cuda_sys::{CUgraph, CUgraphExecUpdateResultInfo, CUstream, CUuserObject};
use softgpu::{Kind, Settings};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const MOVE: u32 = 1;

/// The number of objects that ended, and a destructor that counts them.
#[derive(Default)]
struct Ended(AtomicU32);

unsafe extern "C" fn count(ended: *mut c_void) {
    // SAFETY: the tests pass their `Ended`, which outlives the objects.
    unsafe { &*ended.cast::<Ended>() }.0.fetch_add(1, Ordering::Release);
}

impl Ended {
    fn object(&self, m: &Machine, references: u32) -> CUuserObject {
        let mut object = ptr::null_mut();
        let data = ptr::from_ref(self).cast_mut().cast();
        assert_eq!(cu!(m, cuUserObjectCreate(&mut object, data, Some(count), references, 1)), 0);
        object
    }

    /// Waits for the end of `count` objects; destructors run on another thread.
    fn wait(&self, count: u32) {
        let start = Instant::now();
        while self.0.load(Ordering::Acquire) < count {
            assert!(start.elapsed() < Duration::from_secs(10), "a destructor did not run");
            std::thread::yield_now();
        }
        assert_eq!(self.0.load(Ordering::Acquire), count);
    }

    /// Checks that no other object ends.
    fn stay(&self, count: u32) {
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(self.0.load(Ordering::Acquire), count);
    }
}

fn graph(m: &Machine, stream: CUstream, record: impl FnOnce()) -> CUgraph {
    m.begin(stream, GLOBAL);
    record();
    m.end(stream)
}

#[test]
fn the_program_counts_its_references() {
    let (m, ended) = (machine(Settings::default()), Ended::default());
    let mut object = ptr::null_mut();
    let data = ptr::from_ref(&ended).cast_mut().cast();
    for (function, references, flags) in [(None, 1, 1), (Some(count as _), 0, 1), (Some(count as _), 1, 0)] {
        assert_eq!(cu!(m, cuUserObjectCreate(&mut object, data, function, references, flags)), VALUE);
    }
    assert_eq!(cu!(m, cuUserObjectCreate(ptr::null_mut(), data, Some(count), 1, 1)), VALUE);
    assert_eq!(cu!(m, cuUserObjectCreate(&mut object, data, Some(count), 1 << 31, 1)), 0, "more than INT_MAX");
    assert_eq!(cu!(m, cuUserObjectRelease(object, 1 << 31)), 0);
    ended.wait(1);
    let object = ended.object(&m, 2);
    assert_eq!(softgpu::ledger().count(Kind::UserObject), 1);
    assert_eq!(cu!(m, cuUserObjectRetain(object, 3)), 0);
    assert_eq!(cu!(m, cuUserObjectRetain(object, 0)), VALUE);
    assert_eq!(cu!(m, cuUserObjectRelease(object, 6)), VALUE, "there are five");
    assert_eq!(cu!(m, cuUserObjectRelease(object, 4)), 0);
    ended.stay(1);
    assert_eq!(cu!(m, cuUserObjectRelease(object, 1)), 0);
    ended.wait(2);
    assert_eq!(cu!(m, cuUserObjectRelease(object, 1)), VALUE);
    assert_eq!(cu!(m, cuUserObjectRetain(object, 1)), VALUE);
    m.finish();
}

#[test]
fn a_graph_holds_references_until_its_end() {
    let (m, ended) = (machine(Settings::default()), Ended::default());
    let stream = m.stream(1);
    let graph = graph(&m, stream, || ());
    let object = ended.object(&m, 1);
    assert_eq!(cu!(m, cuGraphRetainUserObject(graph, object, 1, 2)), VALUE);
    assert_eq!(cu!(m, cuGraphRetainUserObject(graph, object, 0, 0)), VALUE);
    assert_eq!(cu!(m, cuGraphRetainUserObject(ptr::null_mut(), object, 1, 0)), VALUE);
    assert_eq!(cu!(m, cuGraphRetainUserObject(graph, object, 2, MOVE)), VALUE, "the program owns one");
    assert_eq!(cu!(m, cuGraphRetainUserObject(graph, object, 3, 0)), 0);
    assert_eq!(cu!(m, cuGraphReleaseUserObject(graph, object, 4)), VALUE);
    assert_eq!(cu!(m, cuGraphReleaseUserObject(graph, object, 2)), 0);
    assert_eq!(cu!(m, cuUserObjectRelease(object, 1)), 0);
    ended.stay(0);
    assert_eq!(cu!(m, cuGraphReleaseUserObject(graph, object, 1)), 0);
    ended.wait(1);

    let second = ended.object(&m, 1);
    assert_eq!(cu!(m, cuGraphRetainUserObject(graph, second, 1, MOVE)), 0);
    assert_eq!(cu!(m, cuUserObjectRelease(second, 1)), VALUE, "the graph has it now");
    ended.stay(1);
    assert_eq!(cu!(m, cuGraphDestroy(graph)), 0);
    ended.wait(2);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    m.finish();
}

#[test]
fn a_launch_under_way_keeps_what_its_graph_holds() {
    let (m, ended) = (machine(Settings::default()), Ended::default());
    let stream = m.stream(1);
    let (begun, gate) = (channel::<()>(), channel::<()>());
    let graph = graph(&m, stream, || {
        m.launch(stream, move || {
            begun.0.send(()).unwrap();
            let _ = gate.1.recv();
        });
    });
    let object = ended.object(&m, 1);
    assert_eq!(cu!(m, cuGraphRetainUserObject(graph, object, 1, MOVE)), 0);
    let executable = m.ready(graph, 0);
    ended.stay(0);
    assert_eq!(cu!(m, cuGraphLaunch(executable, stream)), 0);
    begun.1.recv().unwrap();
    assert_eq!(cu!(m, cuGraphExecDestroy(executable)), 0);
    ended.stay(0);
    drop(gate.0);
    ended.wait(1);
    assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    m.finish();
}

#[test]
fn the_program_may_forget_an_object_at_a_reset() {
    let (m, ended) = (machine(Settings::default()), Ended::default());
    ended.object(&m, 1);
    assert_eq!(softgpu::reset().count(Kind::UserObject), 1);
    ended.stay(0);
    drop(m);
}

#[test]
fn an_update_brings_the_user_objects_of_its_graph() {
    let (m, first, second) = (machine(Settings::default()), Ended::default(), Ended::default());
    let (stream, memory) = (m.stream(1), m.alloc(64));
    let holding = |ended: &Ended, value: u8| {
        let graph = graph(&m, stream, || assert_eq!(cu!(m, cuMemsetD8Async(memory, value, 64, stream)), 0));
        assert_eq!(cu!(m, cuGraphRetainUserObject(graph, ended.object(&m, 1), 1, MOVE)), 0);
        graph
    };
    let executable = m.ready(holding(&first, 1), 0);
    // A launch under way keeps what it had.
    let (open, gate) = channel::<()>();
    m.launch(stream, move || gate.recv().unwrap_or_default());
    assert_eq!(cu!(m, cuGraphLaunch(executable, stream)), 0);
    let other = holding(&second, 2);
    let mut told = CUgraphExecUpdateResultInfo::default();
    assert_eq!(cu!(m, cuGraphExecUpdate_v2(executable, other, &mut told)), 0);
    assert_eq!(cu!(m, cuGraphDestroy(other)), 0);
    first.stay(0);
    open.send(()).unwrap();
    first.wait(1);
    second.stay(0);
    m.run(executable, stream);
    assert_eq!(cu!(m, cuGraphExecDestroy(executable)), 0);
    second.wait(1);
    assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    m.finish();
}
