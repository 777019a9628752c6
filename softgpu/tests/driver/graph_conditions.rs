//! Conditional nodes of graphs, and captures into graphs that are there.

use crate::common::graphs::{GLOBAL, done};
use crate::common::{Machine, machine};
use crate::cu;
use cuda_sys::*;
use softgpu::Settings;
use std::ffi::c_void;
use std::ptr;

const IF: CUgraphConditionalNodeType = CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_IF;
const WHILE: CUgraphConditionalNodeType = CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE;
const SWITCH: CUgraphConditionalNodeType = CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_SWITCH;

const CONTEXT: u32 = CUresult::CUDA_ERROR_INVALID_CONTEXT.0;

fn graph(m: &Machine) -> CUgraph {
    let mut graph = ptr::null_mut();
    assert_eq!(cu!(m, cuGraphCreate(&mut graph, 0)), 0);
    graph
}

fn current(m: &Machine) -> CUcontext {
    let mut context = ptr::null_mut();
    assert_eq!(cu!(m, cuCtxGetCurrent(&mut context)), 0);
    context
}

fn condition(m: &Machine, graph: CUgraph, value: u32) -> u64 {
    let mut handle = 0;
    assert_eq!(cu!(m, cuGraphConditionalHandleCreate(&mut handle, graph, current(m), value, 1)), 0);
    handle
}

/// Adds a conditional node in the current context. Returns it with its graphs.
fn decide(
    m: &Machine,
    graph: CUgraph,
    handle: u64,
    kind: CUgraphConditionalNodeType,
    size: u32,
) -> Result<(CUgraphNode, Vec<CUgraph>), u32> {
    decide_in(m, graph, handle, kind, size, current(m))
}

fn decide_in(
    m: &Machine,
    graph: CUgraph,
    handle: u64,
    type_: CUgraphConditionalNodeType,
    size: u32,
    ctx: CUcontext,
) -> Result<(CUgraphNode, Vec<CUgraph>), u32> {
    let conditional = CUDA_CONDITIONAL_NODE_PARAMS { handle, type_, size, ctx, ..Default::default() };
    let mut words = [0_u64; 32];
    words[0] = CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL.0.into();
    let at = words[2..].as_mut_ptr().cast::<CUDA_CONDITIONAL_NODE_PARAMS>();
    // SAFETY: the parameters of a kind begin at the third word.
    unsafe { at.write(conditional) };
    let mut node = ptr::null_mut();
    match cu!(m, cuGraphAddNode(&mut node, graph, ptr::null(), 0, words.as_mut_ptr().cast())) {
        // SAFETY: the call wrote the address of as many handles.
        0 => Ok((node, unsafe { std::slice::from_raw_parts((*at).phGraph_out, size as usize) }.to_vec())),
        code => Err(code),
    }
}

fn fill(m: &Machine, graph: CUgraph, address: u64, value: u32) {
    let params = CUDA_MEMSET_NODE_PARAMS { dst: address, pitch: 0, value, elementSize: 1, width: 1, height: 1 };
    let mut node = ptr::null_mut();
    assert_eq!(cu!(m, cuGraphAddMemsetNode(&mut node, graph, ptr::null(), 0, &params, ptr::null_mut())), 0);
}

/// Adds a launch of a kernel that sets a condition to a word of memory, less 1, and stores that.
fn count_down(m: &Machine, graph: CUgraph, address: u64, handle: u64) -> CUgraphNode {
    softgpu::register_kernel("count_down", |launch| {
        let (word, condition) = (launch.argument(0)?, launch.argument(1)?);
        let left = launch.read::<u32>(word, 1)?[0] - 1;
        launch.write(word, &[left])?;
        launch.set_condition(condition, left)
    });
    let image = c".version 8.0\n.target sm_80\n.entry count_down(.param .u64 word, .param .u64 condition) { ret; }";
    let (_, mut params) = m.one_thread(image, c"count_down");
    let (mut word, mut condition) = (address, handle);
    let mut list: [*mut c_void; 2] = [(&raw mut word).cast(), (&raw mut condition).cast()];
    params.kernelParams = list.as_mut_ptr();
    let mut node = ptr::null_mut();
    assert_eq!(cu!(m, cuGraphAddKernelNode_v2(&mut node, graph, ptr::null(), 0, &params)), 0);
    node
}

#[test]
fn a_condition_selects_the_body() {
    let m = machine(Settings::default());
    let context = m.context(0);
    let (memory, stream) = (m.alloc(8), m.stream(1));
    for (kind, size, value, expected) in [
        (IF, 1, 1, [1, 0, 0]),
        (IF, 1, 0, [0, 0, 0]),
        (IF, 2, 0, [0, 2, 0]),
        (SWITCH, 3, 2, [0, 0, 3]),
        (SWITCH, 3, 3, [0, 0, 0]),
    ] {
        assert_eq!(cu!(m, cuMemsetD8_v2(memory, 0, 8)), 0);
        let graph = graph(&m);
        let handle = condition(&m, graph, value);
        let (_, bodies) = decide(&m, graph, handle, kind, size).unwrap();
        for (n, body) in bodies.iter().enumerate() {
            fill(&m, *body, memory + n as u64, n as u32 + 1);
        }
        let executable = m.ready(graph, 0);
        m.run(executable, stream);
        assert_eq!(m.read(memory, 3), expected);
        assert_eq!(cu!(m, cuGraphExecDestroy(executable)), 0);
    }
    assert_eq!(cu!(m, cuCtxDestroy_v2(context)), 0);
    done(m);
}

#[test]
fn a_body_repeats_while_kernels_want_it_in_each_launch() {
    let m = machine(Settings::default());
    let context = m.context(0);
    let (memory, stream, outer) = (m.alloc(4), m.stream(1), graph(&m));
    let handle = condition(&m, outer, 1);
    let (_, bodies) = decide(&m, outer, handle, WHILE, 1).unwrap();
    count_down(&m, bodies[0], memory, handle);
    let executable = m.ready(outer, 0);
    for start in [5_u32, 1000] {
        m.write(memory, &start.to_le_bytes());
        m.run(executable, stream);
        assert_eq!(m.read(memory, 4), [0; 4]);
    }
    assert_eq!(cu!(m, cuCtxDestroy_v2(context)), 0);
    done(m);
}

#[test]
fn conditions_and_their_nodes_are_checked() {
    let m = machine(Settings::default());
    let context = m.context(0);
    let (first, other) = (graph(&m), graph(&m));
    let (mut handle, none) = (0, ptr::null_mut());
    assert_eq!(cu!(m, cuGraphConditionalHandleCreate(&mut handle, first, context, 1, 2)), 1);
    assert_eq!(cu!(m, cuGraphConditionalHandleCreate(ptr::null_mut(), first, context, 1, 0)), 1);
    assert_eq!(cu!(m, cuGraphConditionalHandleCreate(&mut handle, first, none, 1, 0)), CONTEXT);
    let handle = condition(&m, first, 1);
    assert_eq!(decide_in(&m, first, handle, IF, 1, none), Err(CONTEXT));
    assert_eq!(decide(&m, other, handle, IF, 1), Err(1));
    assert_eq!(decide(&m, first, 77, IF, 1), Err(1));
    for (kind, size) in [(IF, 0), (IF, 3), (WHILE, 2), (SWITCH, 0), (CUgraphConditionalNodeType(7), 1)] {
        assert_eq!(decide(&m, first, handle, kind, size), Err(1), "{kind:?} {size}");
    }
    let mut executable = ptr::null_mut();
    assert_eq!(cu!(m, cuGraphInstantiateWithFlags(&mut executable, first, 0)), 1);
    let (node, bodies) = decide(&m, first, handle, IF, 1).unwrap();
    assert_eq!(decide(&m, first, handle, IF, 1), Err(1));
    let mut kind = CUgraphNodeType(99);
    assert_eq!(cu!(m, cuGraphNodeGetType(node, &mut kind)), 0);
    assert_eq!(kind, CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL);
    assert_eq!(cu!(m, cuGraphDestroy(bodies[0])), 1);
    let mut copy = ptr::null_mut();
    assert_eq!(cu!(m, cuGraphClone(&mut copy, first)), 801);
    // A body does not call the host.
    unsafe extern "C" fn nothing(_data: *mut c_void) {}
    let host = CUDA_HOST_NODE_PARAMS { fn_: Some(nothing), userData: ptr::null_mut() };
    let mut of_host = ptr::null_mut();
    assert_eq!(cu!(m, cuGraphAddHostNode(&mut of_host, bodies[0], ptr::null(), 0, &host)), 0);
    assert_eq!(cu!(m, cuGraphInstantiateWithFlags(&mut executable, first, 0)), 1);
    assert_eq!(cu!(m, cuGraphDestroyNode(of_host)), 0);
    let executable = m.ready(first, 0);
    assert_eq!(cu!(m, cuGraphExecDestroy(executable)), 0);
    assert_eq!(cu!(m, cuCtxDestroy_v2(context)), 0);
    done(m);
}

#[test]
fn an_update_takes_another_condition_but_no_other_type() {
    let m = machine(Settings::default());
    let context = m.context(0);
    let (memory, stream) = (m.alloc(8), m.stream(1));
    let made = |kind, size, value, byte| {
        let graph = graph(&m);
        let handle = condition(&m, graph, value);
        let (node, bodies) = decide(&m, graph, handle, kind, size).unwrap();
        fill(&m, *bodies.last().unwrap(), memory, byte);
        (graph, node)
    };
    assert_eq!(cu!(m, cuMemsetD8_v2(memory, 0, 8)), 0);
    let executable = m.ready(made(SWITCH, 2, 0, 1).0, 0);
    m.run(executable, stream);
    assert_eq!(m.read(memory, 1), [0]);
    let mut info = CUgraphExecUpdateResultInfo::default();
    assert_eq!(cu!(m, cuGraphExecUpdate_v2(executable, made(SWITCH, 2, 1, 2).0, &mut info)), 0);
    m.run(executable, stream);
    assert_eq!(m.read(memory, 1), [2]);
    for (kind, size) in [(IF, 2), (SWITCH, 3)] {
        let (graph, node) = made(kind, size, 1, 3);
        assert_eq!(cu!(m, cuGraphExecUpdate_v2(executable, graph, &mut info)), 910);
        let parameters = CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
        assert_eq!((info.result, info.errorNode), (parameters, node));
    }
    assert_eq!(cu!(m, cuGraphExecDestroy(executable)), 0);
    assert_eq!(cu!(m, cuCtxDestroy_v2(context)), 0);
    done(m);
}

#[test]
fn a_capture_continues_a_graph_that_is_there() {
    let m = machine(Settings::default());
    let context = m.context(0);
    let (memory, stream, graph) = (m.alloc(8), m.stream(1), graph(&m));
    let mut first = ptr::null_mut();
    assert_eq!(cu!(m, cuGraphAddEmptyNode(&mut first, graph, ptr::null(), 0)), 0);
    let none = ptr::null();
    assert_eq!(cu!(m, cuStreamBeginCaptureToGraph(stream, graph, &first, none, 1, GLOBAL)), 0);
    assert_eq!(cu!(m, cuMemsetD8Async(memory, 3, 4, stream)), 0);
    assert_eq!(cu!(m, cuStreamUpdateCaptureDependencies_v2(stream, ptr::null_mut(), none, 0, 0)), 0);
    assert_eq!(cu!(m, cuStreamUpdateCaptureDependencies(stream, &mut first, 1, 0)), 0);
    assert_eq!(cu!(m, cuMemsetD8Async(memory + 4, 4, 4, stream)), 0);
    assert_eq!(m.end(stream), graph);
    let mut edges = 0;
    let no = ptr::null_mut();
    assert_eq!(cu!(m, cuGraphGetEdges_v2(graph, no, no, ptr::null_mut(), &mut edges)), 0);
    assert_eq!((m.nodes(graph), edges), (3, 3));
    let executable = m.ready(graph, 0);
    m.run(executable, stream);
    assert_eq!(m.read(memory, 8), [3, 3, 3, 3, 4, 4, 4, 4]);
    assert_eq!(cu!(m, cuStreamUpdateCaptureDependencies_v2(stream, ptr::null_mut(), none, 0, 1)), 401);
    assert_eq!(cu!(m, cuCtxDestroy_v2(context)), 0);
    done(m);
}
