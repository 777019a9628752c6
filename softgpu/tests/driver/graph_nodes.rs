//! Graphs that a program builds node by node.

use crate::common::graphs::{GLOBAL, VALUE, done};
use crate::common::{Machine, machine};
use crate::cu;
use cuda_sys::*;
use softgpu::{Kind, Settings};
use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;
use std::sync::mpsc::channel;

const NONE: *const CUgraphNode = ptr::null();

impl Machine {
    fn graph(&self) -> CUgraph {
        let mut graph = ptr::null_mut();
        assert_eq!(cu!(self, cuGraphCreate(&mut graph, 0)), 0);
        graph
    }

    fn add_fill(&self, graph: CUgraph, after: &[CUgraphNode], fill: CUDA_MEMSET_NODE_PARAMS) -> CUgraphNode {
        let mut node = ptr::null_mut();
        let none = ptr::null_mut();
        assert_eq!(cu!(self, cuGraphAddMemsetNode(&mut node, graph, after.as_ptr(), after.len(), &fill, none)), 0);
        node
    }

    fn add_empty(&self, graph: CUgraph, after: &[CUgraphNode]) -> CUgraphNode {
        let mut node = ptr::null_mut();
        assert_eq!(cu!(self, cuGraphAddEmptyNode(&mut node, graph, after.as_ptr(), after.len())), 0);
        node
    }

    fn kind(&self, node: CUgraphNode) -> u32 {
        let mut kind = CUgraphNodeType(99);
        assert_eq!(cu!(self, cuGraphNodeGetType(node, &mut kind)), 0);
        kind.0
    }

    fn end_graph(&self, graph: CUgraph) {
        assert_eq!(cu!(self, cuGraphDestroy(graph)), 0);
    }

    fn end_ready(&self, executable: CUgraphExec) {
        assert_eq!(cu!(self, cuGraphExecDestroy(executable)), 0);
    }
}

fn bytes(address: CUdeviceptr, value: u32, count: usize) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS { dst: address, pitch: 0, value, elementSize: 1, width: count, height: 1 }
}

fn copy(to: CUdeviceptr, from: CUdeviceptr, count: usize) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcDevice: from,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstDevice: to,
        WidthInBytes: count,
        Height: 1,
        Depth: 1,
        ..Default::default()
    }
}

#[test]
fn graph_nodes_run_in_edge_order_regardless_of_insertion_order() {
    static SEEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    unsafe extern "C" fn see(number: *mut c_void) {
        SEEN.lock().unwrap().push(number.addr());
    }
    let m = machine(Settings::default());
    let (graph, stream) = (m.graph(), m.stream(1));
    let host = |after: &[CUgraphNode], number| {
        let mut node = ptr::null_mut();
        let params = CUDA_HOST_NODE_PARAMS { fn_: Some(see), userData: ptr::without_provenance_mut(number) };
        assert_eq!(cu!(m, cuGraphAddHostNode(&mut node, graph, after.as_ptr(), after.len(), &params)), 0);
        node
    };
    let four = host(&[], 4);
    let three = host(&[], 3);
    let two = m.add_empty(graph, &[]);
    let one = host(&[], 1);
    let five = host(&[four, three], 5);
    let (from, to) = ([three, two, one], [four, three, two]);
    assert_eq!(cu!(m, cuGraphAddDependencies(graph, from.as_ptr(), to.as_ptr(), 3)), 0);
    assert_eq!(cu!(m, cuGraphAddDependencies(graph, &one, &two, 1)), VALUE, "the edge is there");
    assert_eq!(cu!(m, cuGraphAddDependencies(graph, &one, &one, 1)), VALUE);
    let executable = m.instantiate(graph, 0);
    m.run(executable, stream);
    m.run(executable, stream);
    assert_eq!(std::mem::take(&mut *SEEN.lock().unwrap()), [1, 3, 4, 5].repeat(2));

    let mut roots = [ptr::null_mut(); 3];
    let mut count = 3;
    assert_eq!(cu!(m, cuGraphGetRootNodes(graph, roots.as_mut_ptr(), &mut count)), 0);
    assert_eq!((roots, count), ([one, ptr::null_mut(), ptr::null_mut()], 1));
    let (mut starts, mut ends, mut data) =
        ([ptr::null_mut(); 9], [ptr::null_mut(); 9], [CUgraphEdgeData::default(); 9]);
    data.fill(CUgraphEdgeData { type_: 7, ..Default::default() });
    count = 9;
    let answer =
        cu!(m, cuGraphGetEdges_v2(graph, starts.as_mut_ptr(), ends.as_mut_ptr(), data.as_mut_ptr(), &mut count));
    assert_eq!((answer, count), (0, 5));
    let mut edges: Vec<_> = starts.into_iter().zip(ends).take(5).collect();
    edges.sort_unstable();
    let mut want = vec![(three, four), (two, three), (one, two), (four, five), (three, five)];
    want.sort_unstable();
    assert_eq!(edges, want);
    assert_eq!((data[4], data[5].type_), (CUgraphEdgeData::default(), 7));
    count = 0;
    assert_eq!(cu!(m, cuGraphGetEdges(graph, ptr::null_mut(), ptr::null_mut(), &mut count)), 0);
    assert_eq!(count, 5);
    count = 9;
    assert_eq!(cu!(m, cuGraphNodeGetDependencies(five, starts.as_mut_ptr(), &mut count)), 0);
    assert_eq!((count, &starts[..2]), (2, &[four, three][..]));
    count = 1;
    assert_eq!(cu!(m, cuGraphNodeGetDependentNodes(three, ends.as_mut_ptr(), &mut count)), 0);
    assert_eq!((count, ends[0]), (1, four));

    // A circle shows when the graph is made ready.
    assert_eq!(cu!(m, cuGraphAddDependencies_v2(graph, &five, &one, ptr::null(), 1)), 0);
    let mut other = ptr::null_mut();
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS::default();
    assert_eq!(cu!(m, cuGraphInstantiateWithParams(&mut other, graph, &mut params)), VALUE);
    assert_eq!(params.result_out, CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
    let part = CUgraphEdgeData { from_port: 1, ..Default::default() };
    assert_eq!(cu!(m, cuGraphRemoveDependencies_v2(graph, &five, &one, &part, 1)), VALUE);
    assert_eq!(cu!(m, cuGraphRemoveDependencies(graph, &five, &one, 1)), 0);
    assert_eq!(cu!(m, cuGraphRemoveDependencies(graph, &five, &one, 1)), VALUE);
    assert_eq!(cu!(m, cuGraphDestroyNode(three)), 0);
    assert_eq!(cu!(m, cuGraphDestroyNode(three)), VALUE);
    assert_eq!(m.nodes(graph), 4);
    let second = m.ready(graph, 0);
    m.run(second, stream);
    assert_eq!(*SEEN.lock().unwrap(), [4, 1, 5], "without edges, the oldest comes first");
    [executable, second].into_iter().for_each(|executable| m.end_ready(executable));
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    m.finish();
}

#[test]
fn copies_and_fills_have_parameters_that_can_be_changed() {
    let m = machine(Settings::default());
    let (graph, stream, memory) = (m.graph(), m.stream(1), m.alloc(256));
    m.write(memory, &[0; 256]);
    let fill = m.add_fill(graph, &[], bytes(memory, 7, 8));
    let (mut node, none) = (ptr::null_mut(), ptr::null_mut());
    assert_eq!(cu!(m, cuGraphAddMemcpyNode(&mut node, graph, &fill, 1, &copy(memory + 64, memory, 8), none)), 0);
    assert_eq!([m.kind(fill), m.kind(node)], [2, 1]);
    let executable = m.instantiate(graph, 0);
    m.run(executable, stream);
    assert_eq!(m.read(memory + 64, 9), [7, 7, 7, 7, 7, 7, 7, 7, 0]);

    let (mut told, mut fill_told) = (CUDA_MEMCPY3D::default(), CUDA_MEMSET_NODE_PARAMS::default());
    assert_eq!(cu!(m, cuGraphMemcpyNodeGetParams(node, &mut told)), 0);
    assert_eq!((told.dstDevice, told.WidthInBytes), (memory + 64, 8));
    assert_eq!(cu!(m, cuGraphMemsetNodeGetParams(fill, &mut fill_told)), 0);
    assert_eq!(fill_told, bytes(memory, 7, 8));
    assert_eq!(cu!(m, cuGraphMemsetNodeGetParams(node, &mut fill_told)), VALUE, "it is a copy");

    // Changes of the graph do not reach what was made from it, and the other way round.
    let words = CUDA_MEMSET_NODE_PARAMS { elementSize: 4, value: 0x0403_0201, width: 2, ..bytes(memory, 0, 0) };
    assert_eq!(cu!(m, cuGraphMemsetNodeSetParams(fill, &words)), 0);
    m.run(executable, stream);
    assert_eq!(m.read(memory, 4), [7; 4]);
    assert_eq!(cu!(m, cuGraphExecMemsetNodeSetParams(executable, fill, &bytes(memory, 9, 8), none)), 0);
    assert_eq!(cu!(m, cuGraphExecMemcpyNodeSetParams(executable, node, &copy(memory + 128, memory, 8), none)), 0);
    assert_eq!(cu!(m, cuGraphExecMemsetNodeSetParams(executable, node, &words, none)), VALUE);
    m.run(executable, stream);
    assert_eq!((m.read(memory + 64, 1), m.read(memory + 128, 8)), (vec![7], vec![9; 8]));
    assert_eq!(cu!(m, cuGraphMemcpyNodeSetParams(node, &copy(memory + 192, memory, 8))), 0);
    let second = m.ready(graph, 0);
    m.run(second, stream);
    assert_eq!(m.read(memory + 192, 8), [1, 2, 3, 4].repeat(2));

    let mut on = 9;
    assert_eq!(cu!(m, cuGraphNodeSetEnabled(second, fill, 0)), 0);
    assert_eq!(cu!(m, cuGraphNodeGetEnabled(second, fill, &mut on)), 0);
    assert_eq!(on, 0);
    m.write(memory, &[5; 8]);
    m.run(second, stream);
    assert_eq!(m.read(memory + 192, 8), [5; 8], "the fill was off");
    let mut flags = 9;
    assert_eq!(cu!(m, cuGraphExecGetFlags(second, &mut flags)), 0);
    assert_eq!(flags, 0);
    [executable, second].into_iter().for_each(|executable| m.end_ready(executable));
    assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    m.finish();
}

#[test]
fn wrong_parameters_add_no_node() {
    let m = machine(Settings::default());
    let (graph, other, memory, mut node) = (m.graph(), m.graph(), m.alloc(64), ptr::null_mut());
    let (stranger, none) = (m.add_empty(other, &[]), ptr::null_mut());
    let fill = bytes(memory, 1, 64);
    for wrong in [
        CUDA_MEMSET_NODE_PARAMS { width: 65, ..fill },
        CUDA_MEMSET_NODE_PARAMS { elementSize: 3, ..fill },
        CUDA_MEMSET_NODE_PARAMS { width: 0, ..fill },
        CUDA_MEMSET_NODE_PARAMS { dst: 0x5000, ..fill },
    ] {
        assert_eq!(cu!(m, cuGraphAddMemsetNode(&mut node, graph, NONE, 0, &wrong, none)), VALUE, "{wrong:?}");
    }
    assert_eq!(cu!(m, cuGraphAddMemsetNode(&mut node, graph, NONE, 0, ptr::null(), none)), VALUE);
    assert_eq!(cu!(m, cuGraphAddMemsetNode(&mut node, graph, &stranger, 1, &fill, none)), VALUE);
    assert_eq!(cu!(m, cuGraphAddMemsetNode(&mut node, graph, NONE, 1, &fill, none)), VALUE);
    assert_eq!(cu!(m, cuGraphAddMemsetNode(&mut node, ptr::null_mut(), NONE, 0, &fill, none)), VALUE);
    assert_eq!(cu!(m, cuGraphAddMemsetNode(ptr::null_mut(), graph, NONE, 0, &fill, none)), VALUE);
    assert_eq!(cu!(m, cuGraphAddMemcpyNode(&mut node, graph, NONE, 0, &copy(memory, 0, 8), none)), VALUE);
    assert_eq!(cu!(m, cuGraphAddHostNode(&mut node, graph, NONE, 0, &CUDA_HOST_NODE_PARAMS::default())), VALUE);
    assert_eq!(cu!(m, cuGraphAddChildGraphNode(&mut node, graph, NONE, 0, graph)), VALUE);
    assert_eq!(cu!(m, cuGraphAddMemcpyNode(&mut node, graph, NONE, 0, &copy(memory, memory, 0), none)), VALUE);
    assert_eq!(cu!(m, cuGraphAddEventRecordNode(&mut node, graph, NONE, 0, ptr::null_mut())), VALUE);
    assert_eq!(cu!(m, cuGraphAddMemFreeNode(&mut node, graph, NONE, 0, memory)), VALUE, "not a graph's memory");
    let twice = [stranger; 2];
    assert_eq!(cu!(m, cuGraphAddEmptyNode(&mut node, other, twice.as_ptr(), 2)), VALUE);
    assert_eq!(cu!(m, cuGraphCreate(&mut ptr::null_mut(), 1)), VALUE);
    assert_eq!(cu!(m, cuGraphNodeGetType(node, &mut CUgraphNodeType(0))), VALUE);
    assert_eq!((m.nodes(graph), node), (0, ptr::null_mut()));
    [graph, other].into_iter().for_each(|graph| m.end_graph(graph));
    assert_eq!(cu!(m, cuGraphNodeGetType(stranger, &mut CUgraphNodeType(0))), VALUE, "its graph has ended");
    assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
    m.finish();
}

#[test]
fn a_graph_inside_a_graph_is_a_copy() {
    let m = machine(Settings::default());
    let (inner, outer, stream, memory) = (m.graph(), m.graph(), m.stream(1), m.alloc(64));
    m.write(memory, &[0; 64]);
    let fill = m.add_fill(inner, &[], bytes(memory, 3, 8));
    let (mut child, mut copy, mut inside) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    assert_eq!(cu!(m, cuGraphAddChildGraphNode(&mut child, outer, NONE, 0, inner)), 0);
    m.add_fill(outer, &[child], bytes(memory + 4, 4, 8));
    assert_eq!(cu!(m, cuGraphMemsetNodeSetParams(fill, &bytes(memory, 9, 8))), 0);
    assert_eq!(cu!(m, cuGraphChildGraphNodeGetGraph(child, &mut copy)), 0);
    assert_eq!(cu!(m, cuGraphDestroy(copy)), VALUE, "it belongs to the node");
    assert_eq!(cu!(m, cuGraphNodeFindInClone(&mut inside, fill, copy)), 0);
    assert_eq!((m.kind(child), m.kind(inside)), (4, 2));
    assert_eq!(softgpu::ledger().count(Kind::Graph), 2);
    let executable = m.instantiate(outer, 0);
    m.run(executable, stream);
    assert_eq!(m.read(memory, 13), [[3; 4].as_slice(), &[4; 8], &[0]].concat());
    assert_eq!(cu!(m, cuGraphExecChildGraphNodeSetParams(executable, child, inner)), 0);
    m.run(executable, stream);
    assert_eq!(m.read(memory, 5), [9, 9, 9, 9, 4]);
    m.add_empty(inner, &[]);
    assert_eq!(cu!(m, cuGraphExecChildGraphNodeSetParams(executable, child, inner)), VALUE, "of another shape");

    let mut clone = ptr::null_mut();
    assert_eq!(cu!(m, cuGraphClone(&mut clone, outer)), 0);
    m.end_graph(outer);
    assert_eq!(cu!(m, cuGraphGetNodes(copy, ptr::null_mut(), &mut 0)), VALUE, "it ended with its node");
    let mut cloned = ptr::null_mut();
    assert_eq!(cu!(m, cuGraphNodeFindInClone(&mut cloned, child, clone)), 0);
    assert_eq!((m.kind(cloned), m.nodes(clone)), (4, 2));
    m.write(memory, &[0; 64]);
    let second = m.ready(clone, 0);
    m.run(second, stream);
    assert_eq!(m.read(memory, 5), [3, 3, 3, 3, 4]);
    [executable, second].into_iter().for_each(|executable| m.end_ready(executable));
    m.end_graph(inner);
    assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    m.finish();
}

#[test]
fn external_event_nodes_record_and_wait_at_each_launch() {
    let m = machine(Settings::default());
    let (graph, one, two, memory) = (m.graph(), m.stream(1), m.stream(1), m.alloc(8));
    m.write(memory, &[0; 8]);
    let (before, after, mut node, mut told) = (m.event(), m.event(), ptr::null_mut(), ptr::null_mut());
    assert_eq!(cu!(m, cuGraphAddEventWaitNode(&mut node, graph, NONE, 0, before)), 0);
    let fill = m.add_fill(graph, &[node], bytes(memory, 6, 8));
    let mut record = ptr::null_mut();
    assert_eq!(cu!(m, cuGraphAddEventRecordNode(&mut record, graph, &fill, 1, before)), 0);
    assert_eq!(cu!(m, cuGraphEventRecordNodeSetEvent(record, after)), 0);
    assert_eq!(cu!(m, cuGraphEventRecordNodeGetEvent(record, &mut told)), 0);
    assert_eq!((told, m.kind(node), m.kind(record)), (after, 6, 7));
    assert_eq!(cu!(m, cuGraphEventWaitNodeGetEvent(record, &mut told)), VALUE);
    let executable = m.ready(graph, 0);
    let (open, gate) = channel::<()>();
    m.launch(two, move || {
        let _ = gate.recv();
    });
    assert_eq!(cu!(m, cuEventRecord(before, two)), 0);
    assert_eq!(cu!(m, cuGraphLaunch(executable, one)), 0);
    assert_eq!(cu!(m, cuEventQuery(after)), 600);
    assert_eq!(cu!(m, cuStreamQuery(one)), 600);
    drop(open);
    assert_eq!(cu!(m, cuEventSynchronize(after)), 0);
    assert_eq!(m.read(memory, 8), [6; 8]);
    assert_eq!(cu!(m, cuStreamSynchronize(one)), 0);

    // A capture makes the same nodes.
    m.begin(one, GLOBAL);
    assert_eq!(cu!(m, cuStreamWaitEvent(one, before, 1)), 0);
    assert_eq!(cu!(m, cuEventRecordWithFlags(after, one, 1)), 0);
    let captured = m.end(one);
    let mut nodes = [ptr::null_mut(); 2];
    assert_eq!(cu!(m, cuGraphGetNodes(captured, nodes.as_mut_ptr(), &mut 2)), 0);
    assert_eq!(nodes.map(|node| m.kind(node)), [6, 7]);
    m.end_graph(captured);
    m.end_ready(executable);
    [before, after].into_iter().for_each(|event| assert_eq!(cu!(m, cuEventDestroy_v2(event)), 0));
    [one, two].into_iter().for_each(|stream| assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0));
    assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
    m.finish();
}

#[test]
fn memory_is_allocated_and_freed_by_nodes() {
    let m = machine(Settings::default());
    let (graph, stream, out) = (m.graph(), m.stream(1), m.alloc(8));
    let (mut allocate, mut free) = (ptr::null_mut(), ptr::null_mut());
    let mut params = CUDA_MEM_ALLOC_NODE_PARAMS { bytesize: 4096, ..Default::default() };
    assert_eq!(cu!(m, cuGraphAddMemAllocNode(&mut allocate, graph, NONE, 0, &mut params)), VALUE);
    params.poolProps.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    let access = CUmemAccessDesc { location: params.poolProps.location, ..Default::default() };
    (params.accessDescs, params.accessDescCount) = (&access, 1);
    assert_eq!(cu!(m, cuGraphAddMemAllocNode(&mut allocate, graph, NONE, 0, &mut params)), 0);
    let fill = m.add_fill(graph, &[allocate], bytes(params.dptr, 8, 4096));
    let mut node = ptr::null_mut();
    let back = copy(out, params.dptr + 4088, 8);
    assert_eq!(cu!(m, cuGraphAddMemcpyNode(&mut node, graph, &fill, 1, &back, ptr::null_mut())), 0);
    assert_eq!(cu!(m, cuGraphAddMemFreeNode(&mut free, graph, &node, 1, params.dptr)), 0);
    assert_eq!(cu!(m, cuGraphAddMemFreeNode(&mut node, graph, &node, 1, params.dptr)), VALUE, "once only");
    let (mut told, mut freed) = (CUDA_MEM_ALLOC_NODE_PARAMS::default(), 0);
    assert_eq!(cu!(m, cuGraphMemAllocNodeGetParams(allocate, &mut told)), 0);
    assert_eq!((told.dptr, told.bytesize, told.accessDescCount), (params.dptr, 4096, 1));
    assert_ne!(told.accessDescs, params.accessDescs, "the node has its own descriptors");
    assert_eq!(cu!(m, cuGraphMemFreeNodeGetParams(free, &mut freed)), 0);
    assert_eq!((freed, m.kind(allocate), m.kind(free)), (params.dptr, 10, 11));
    assert_eq!(cu!(m, cuGraphClone(&mut ptr::null_mut(), graph)), 801);
    // Nothing of such a graph can be removed.
    for node in [allocate, fill] {
        assert_eq!(cu!(m, cuGraphDestroyNode(node)), 801);
    }
    assert_eq!(cu!(m, cuGraphRemoveDependencies(graph, &allocate, &fill, 1)), 801);
    let executable = m.ready(graph, 0);
    for _ in 0..2 {
        m.write(out, &[0; 8]);
        m.run(executable, stream);
        assert_eq!(m.read(out, 8), [8; 8]);
    }
    m.end_ready(executable);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    assert_eq!(cu!(m, cuMemFree_v2(out)), 0);
    assert_eq!(cu!(m, cuDeviceGraphMemTrim(0)), 0);
    done(m);
}

#[test]
fn managed_memory_of_a_graph_is_a_devices_and_the_cpus() {
    use CUmemLocationType as Place;
    let m = machine(Settings { strict: true, ..Settings::default() });
    let (graph, stream, mut node) = (m.graph(), m.stream(1), ptr::null_mut());
    let mut params = CUDA_MEM_ALLOC_NODE_PARAMS { bytesize: 64, ..Default::default() };
    let (managed, pinned) =
        (CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED, CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED);
    for (kind, place, id, answer) in [
        (managed, Place::CU_MEM_LOCATION_TYPE_HOST, 0, 801),
        (managed, Place::CU_MEM_LOCATION_TYPE_DEVICE, 99, VALUE),
        (pinned, Place::CU_MEM_LOCATION_TYPE_HOST, 99, 801),
        (pinned, Place::CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, 801),
        (pinned, Place::CU_MEM_LOCATION_TYPE_DEVICE, 99, VALUE),
        (managed, Place::CU_MEM_LOCATION_TYPE_DEVICE, 0, 0),
    ] {
        params.poolProps.allocType = kind;
        params.poolProps.location = CUmemLocation { type_: place, id };
        let added = cu!(m, cuGraphAddMemAllocNode(&mut node, graph, NONE, 0, &mut params));
        assert_eq!(added, answer, "{kind:?} at {place:?} {id}");
    }
    m.add_fill(graph, &[node], bytes(params.dptr, 5, 64));
    let executable = m.ready(graph, 0);
    m.run(executable, stream);
    let mut is_managed = 0_u32;
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED;
    assert_eq!(cu!(m, cuPointerGetAttribute((&raw mut is_managed).cast(), attribute, params.dptr)), 0);
    // SAFETY: the launch has ended, and the CPU may use managed memory.
    let seen = unsafe { ptr::with_exposed_provenance::<u8>(params.dptr as usize).read() };
    assert_eq!((is_managed, seen), (1, 5));
    assert_eq!(cu!(m, cuMemFree_v2(params.dptr)), 0);
    m.end_ready(executable);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    assert_eq!(cu!(m, cuDeviceGraphMemTrim(0)), 0);
    done(m);
}

#[test]
fn a_graph_needs_no_context_for_its_creation() {
    let (m, mut context, mut graph) = (machine(Settings::default()), ptr::null_mut(), ptr::null_mut());
    assert_eq!(cu!(m, cuCtxPopCurrent_v2(&mut context)), 0);
    assert_eq!(cu!(m, cuGraphCreate(&mut graph, 0)), 0);
    m.add_empty(graph, &[]);
    m.end_graph(graph);
    assert_eq!(cu!(m, cuCtxSetCurrent(context)), 0);
    m.finish();
}

#[test]
fn graph_exec_update_accepts_only_a_graph_of_the_same_topology() {
    let m = machine(Settings::default());
    let (stream, memory) = (m.stream(1), m.alloc(16));
    m.write(memory, &[0; 16]);
    let fills = |value, linked: bool| {
        let graph = m.graph();
        let first = m.add_fill(graph, &[], bytes(memory, value, 8));
        let before = [first];
        let second = m.add_fill(graph, if linked { &before } else { &[] }, bytes(memory + 8, value, 8));
        (graph, second)
    };
    let (graph, _) = fills(1, true);
    let executable = m.ready(graph, 0);
    let (other, _) = fills(2, true);
    let mut info = CUgraphExecUpdateResultInfo { result: CUgraphExecUpdateResult(9), ..Default::default() };
    assert_eq!(cu!(m, cuGraphExecUpdate_v2(executable, other, &mut info)), 0);
    assert_eq!((info.result.0, info.errorNode), (0, ptr::null_mut()));
    m.run(executable, stream);
    assert_eq!(m.read(memory, 16), [2; 16]);

    let (loose, second) = fills(3, false);
    let (mut node, mut result) = (ptr::null_mut(), CUgraphExecUpdateResult(9));
    assert_eq!(cu!(m, cuGraphExecUpdate(executable, loose, &mut node, &mut result)), 910);
    assert_eq!((node, result.0), (second, 2), "the topology changed");
    let kinds = m.graph();
    let first = m.add_empty(kinds, &[]);
    m.add_fill(kinds, &[first], bytes(memory, 3, 8));
    assert_eq!(cu!(m, cuGraphExecUpdate_v2(executable, kinds, &mut info)), 910);
    assert_eq!((info.errorNode, info.result.0), (first, 3), "a node became another kind");
    let fewer = m.graph();
    m.add_fill(fewer, &[], bytes(memory, 3, 8));
    assert_eq!(cu!(m, cuGraphExecUpdate_v2(executable, fewer, &mut info)), 910);
    assert_eq!(info.result.0, 2);
    assert_eq!(cu!(m, cuGraphExecUpdate(executable, fewer, &mut node, &mut result)), 910);
    assert_eq!((node, result.0), (ptr::null_mut(), 6), "the first form names another reason");
    m.run(executable, stream);
    assert_eq!(m.read(memory, 16), [2; 16], "a refused update changes nothing");

    // A captured graph and one that was built have nodes of the same kinds.
    m.begin(stream, GLOBAL);
    assert_eq!(cu!(m, cuMemsetD8Async(memory, 5, 8, stream)), 0);
    assert_eq!(cu!(m, cuMemsetD8Async(memory + 8, 6, 8, stream)), 0);
    let captured = m.end(stream);
    assert_eq!(cu!(m, cuGraphExecUpdate_v2(executable, captured, &mut info)), 0);
    m.run(executable, stream);
    assert_eq!(m.read(memory, 16), [[5; 8], [6; 8]].concat());
    let (mut nodes, mut fill) = ([ptr::null_mut(); 2], CUDA_MEMSET_NODE_PARAMS::default());
    assert_eq!(cu!(m, cuGraphGetNodes(captured, nodes.as_mut_ptr(), &mut 2)), 0);
    assert_eq!(cu!(m, cuGraphMemsetNodeGetParams(nodes[1], &mut fill)), 0);
    assert_eq!((fill.dst, fill.value, fill.elementSize, fill.width), (memory + 8, 6, 1, 8));
    [other, loose, kinds, fewer, captured].into_iter().for_each(|graph| m.end_graph(graph));
    m.end_ready(executable);
    assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    m.finish();
}
