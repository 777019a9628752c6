//! Graphs that are built node by node.

use super::captures::{GLOBAL, begin, end};
use super::lab::codes::*;
use super::lab::{DEVICE_0, Lab, Run, Stop};
use cuda_mem::cuda_sys::*;
use std::ffi::c_void;
use std::ptr;

cases! {
    Shared creation,
    Shared fills,
    Shared copies,
    Shared host_functions,
    Shared edges,
    Shared circles,
    Shared children,
    Alone a_child_of_itself,
    Shared events,
    Shared memory,
    Shared memory_of_wrong_kinds,
    Shared updates,
    Shared switched_off,
    Shared kinds_of_captured_nodes,
}

const NONE: *const CUgraphNode = ptr::null();

pub(super) fn graph(l: &mut Lab) -> Result<CUgraph, Stop> {
    let mut graph = ptr::null_mut();
    need!(l, cuGraphCreate(&mut graph, 0))?;
    l.finally(move |l| drop(call!(l, cuGraphDestroy(graph))));
    Ok(graph)
}

pub(super) fn ready(l: &mut Lab, graph: CUgraph) -> Result<CUgraphExec, Stop> {
    let mut executable = ptr::null_mut();
    need!(l, cuGraphInstantiateWithFlags(&mut executable, graph, 0))?;
    l.finally(move |l| drop(call!(l, cuGraphExecDestroy(executable))));
    Ok(executable)
}

fn run(l: &mut Lab, label: &str, executable: CUgraphExec, stream: CUstream) {
    ask!(l, format!("{label}: launch"), cuGraphLaunch(executable, stream));
    ask!(l, format!("{label}: wait"), cuStreamSynchronize(stream));
}

fn bytes(address: CUdeviceptr, value: u32, count: usize) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS { dst: address, pitch: 0, value, elementSize: 1, width: count, height: 1 }
}

fn linear(to: CUdeviceptr, from: CUdeviceptr, count: usize) -> CUDA_MEMCPY3D {
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

fn add_fill(
    l: &mut Lab,
    graph: CUgraph,
    after: &[CUgraphNode],
    fill: CUDA_MEMSET_NODE_PARAMS,
) -> Result<CUgraphNode, Stop> {
    let (mut node, context) = (ptr::null_mut(), l.context);
    need!(l, cuGraphAddMemsetNode(&mut node, graph, after.as_ptr(), after.len(), &fill, context))?;
    Ok(node)
}

fn add_empty(l: &mut Lab, graph: CUgraph, after: &[CUgraphNode]) -> Result<CUgraphNode, Stop> {
    let mut node = ptr::null_mut();
    need!(l, cuGraphAddEmptyNode(&mut node, graph, after.as_ptr(), after.len()))?;
    Ok(node)
}

fn say_kind(l: &mut Lab, label: &str, node: CUgraphNode) {
    let mut kind = CUgraphNodeType(99);
    ask!(l, format!("kind of {label}") => OK, cuGraphNodeGetType(node, &mut kind));
    l.say(format!("{label} is of kind"), kind.0);
}

fn creation(l: &mut Lab) -> Run {
    let mut made = ptr::null_mut();
    ask!(l, "unknown flags", cuGraphCreate(&mut made, 1));
    ask!(l, "without a result", cuGraphCreate(ptr::null_mut(), 0));
    need!(l, cuCtxSetCurrent(ptr::null_mut()))?;
    if ask!(l, "without a context", cuGraphCreate(&mut made, 0)) {
        ask!(l, "without a context: destroy", cuGraphDestroy(made));
    }
    need!(l, cuCtxSetCurrent(l.context))?;
    let graph = graph(l)?;
    let (mut count, mut clone, mut found) = (7, ptr::null_mut(), ptr::null_mut());
    ask!(l, "roots of an empty graph" => OK, cuGraphGetRootNodes(graph, ptr::null_mut(), &mut count));
    l.say("roots", count);
    let node = add_empty(l, graph, &[])?;
    if ask!(l, "clone" => OK, cuGraphClone(&mut clone, graph)) {
        ask!(l, "node of the clone" => OK, cuGraphNodeFindInClone(&mut found, node, clone));
        l.say("the clone has another node", found != node);
        ask!(l, "node of no clone", cuGraphNodeFindInClone(&mut found, node, graph));
        ask!(l, "destroy the clone" => OK, cuGraphDestroy(clone));
    }
    ask!(l, "destroy the node" => OK, cuGraphDestroyNode(node));
    Ok(())
}

fn fills(l: &mut Lab) -> Run {
    let (graph, stream, memory) = (graph(l)?, l.stream(1)?, l.alloc(64)?);
    need!(l, cuMemsetD8_v2(memory, 0, 64))?;
    let (mut node, context, fill) = (ptr::null_mut(), l.context, bytes(memory, 1, 8));
    for (label, wrong) in [
        ("words of 3 bytes", CUDA_MEMSET_NODE_PARAMS { elementSize: 3, ..fill }),
        ("words of 8 bytes", CUDA_MEMSET_NODE_PARAMS { elementSize: 8, ..fill }),
        ("no words", CUDA_MEMSET_NODE_PARAMS { width: 0, ..fill }),
        ("no rows", CUDA_MEMSET_NODE_PARAMS { height: 0, ..fill }),
        ("no address", CUDA_MEMSET_NODE_PARAMS { dst: 0, ..fill }),
        ("two rows without a pitch", CUDA_MEMSET_NODE_PARAMS { height: 2, ..fill }),
        ("a value beyond a byte", CUDA_MEMSET_NODE_PARAMS { value: 256, ..fill }),
    ] {
        ask!(l, label, cuGraphAddMemsetNode(&mut node, graph, NONE, 0, &wrong, context));
    }
    ask!(l, "without a context", cuGraphAddMemsetNode(&mut node, graph, NONE, 0, &fill, ptr::null_mut()));
    ask!(l, "without parameters", cuGraphAddMemsetNode(&mut node, graph, NONE, 0, ptr::null(), context));
    ask!(l, "without its dependency", cuGraphAddMemsetNode(&mut node, graph, NONE, 1, &fill, context));
    let graph = self::graph(l)?;
    let node = add_fill(l, graph, &[], fill)?;
    say_kind(l, "a fill", node);
    let executable = ready(l, graph)?;
    run(l, "fill", executable, stream);
    l.bytes::<9>("after the fill", memory);
    let mut told = CUDA_MEMSET_NODE_PARAMS::default();
    ask!(l, "parameters" => OK, cuGraphMemsetNodeGetParams(node, &mut told));
    l.say("they are the stated ones", told == fill);
    ask!(l, "change" => OK, cuGraphMemsetNodeSetParams(node, &bytes(memory, 2, 8)));
    let changed = bytes(memory, 3, 8);
    ask!(l, "change what is ready" => OK, cuGraphExecMemsetNodeSetParams(executable, node, &changed, context));
    run(l, "changed", executable, stream);
    l.bytes::<9>("after the changed fill", memory);
    ask!(l, "parameters of another kind", cuGraphMemcpyNodeGetParams(node, &mut CUDA_MEMCPY3D::default()));
    Ok(())
}

fn copies(l: &mut Lab) -> Run {
    let (graph, stream, memory) = (graph(l)?, l.stream(1)?, l.alloc(64)?);
    need!(l, cuMemsetD8_v2(memory, 0, 64))?;
    need!(l, cuMemsetD8_v2(memory, 5, 8))?;
    let (mut node, context, copy) = (ptr::null_mut(), l.context, linear(memory + 16, memory, 8));
    let nothing = CUDA_MEMCPY3D { WidthInBytes: 0, ..copy };
    ask!(l, "nothing", cuGraphAddMemcpyNode(&mut node, graph, NONE, 0, &nothing, context));
    ask!(l, "from nowhere", cuGraphAddMemcpyNode(&mut node, graph, NONE, 0, &linear(memory, 0, 8), context));
    ask!(l, "without a context", cuGraphAddMemcpyNode(&mut node, graph, NONE, 0, &copy, ptr::null_mut()));
    let graph = self::graph(l)?;
    need!(l, cuGraphAddMemcpyNode(&mut node, graph, NONE, 0, &copy, context))?;
    say_kind(l, "a copy", node);
    let executable = ready(l, graph)?;
    let mut told = CUDA_MEMCPY3D::default();
    ask!(l, "parameters" => OK, cuGraphMemcpyNodeGetParams(node, &mut told));
    l.say("the destination is the stated one", told.dstDevice == memory + 16);
    ask!(l, "change" => OK, cuGraphMemcpyNodeSetParams(node, &linear(memory + 32, memory, 8)));
    run(l, "copy", executable, stream);
    let changed = linear(memory + 24, memory, 8);
    ask!(l, "change what is ready" => OK, cuGraphExecMemcpyNodeSetParams(executable, node, &changed, context));
    run(l, "changed", executable, stream);
    l.bytes::<48>("memory", memory);
    Ok(())
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

fn host_functions(l: &mut Lab) -> Run {
    let (graph, mut node, mut told) = (graph(l)?, ptr::null_mut(), CUDA_HOST_NODE_PARAMS::default());
    let params = CUDA_HOST_NODE_PARAMS { fn_: Some(nothing), userData: ptr::without_provenance_mut(5) };
    ask!(l, "no function", cuGraphAddHostNode(&mut node, graph, NONE, 0, &CUDA_HOST_NODE_PARAMS::default()));
    need!(l, cuGraphAddHostNode(&mut node, graph, NONE, 0, &params))?;
    say_kind(l, "a host function", node);
    ask!(l, "parameters" => OK, cuGraphHostNodeGetParams(node, &mut told));
    l.say("their argument", told.userData.addr());
    let executable = ready(l, graph)?;
    ask!(l, "change" => OK, cuGraphHostNodeSetParams(node, &params));
    ask!(l, "change what is ready" => OK, cuGraphExecHostNodeSetParams(executable, node, &params));
    ask!(l, "change to none", cuGraphExecHostNodeSetParams(executable, node, &CUDA_HOST_NODE_PARAMS::default()));
    let mut flags = 7;
    ask!(l, "flags" => OK, cuGraphExecGetFlags(executable, &mut flags));
    l.say("the flags", flags);
    Ok(())
}

fn edges(l: &mut Lab) -> Run {
    let (graph, other) = (graph(l)?, graph(l)?);
    let (one, two, stranger) = (add_empty(l, graph, &[])?, add_empty(l, graph, &[])?, add_empty(l, other, &[])?);
    let three = add_empty(l, graph, &[one, two])?;
    let (mut node, twice) = (ptr::null_mut(), [one; 2]);
    ask!(l, "a dependency twice", cuGraphAddEmptyNode(&mut node, graph, twice.as_ptr(), 2));
    ask!(l, "a dependency of another graph", cuGraphAddEmptyNode(&mut node, graph, &stranger, 1));
    ask!(l, "add" => OK, cuGraphAddDependencies(graph, &one, &two, 1));
    ask!(l, "add again", cuGraphAddDependencies(graph, &one, &two, 1));
    ask!(l, "to itself", cuGraphAddDependencies(graph, &one, &one, 1));
    ask!(l, "to another graph", cuGraphAddDependencies(graph, &one, &stranger, 1));
    ask!(l, "none" => OK, cuGraphAddDependencies(graph, NONE, NONE, 0));
    let (mut from, mut to, mut data) = ([ptr::null_mut(); 5], [ptr::null_mut(); 5], [CUgraphEdgeData::default(); 5]);
    let mut count = 7;
    ask!(l, "number of edges" => OK, cuGraphGetEdges(graph, ptr::null_mut(), ptr::null_mut(), &mut count));
    l.say("edges", count);
    count = 5;
    let (starts, ends, of_edges) = (from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr());
    ask!(l, "edges with data" => OK, cuGraphGetEdges_v2(graph, starts, ends, of_edges, &mut count));
    l.say("edges with data: number", count);
    l.say("the rest is null", from[3].is_null() && to[4].is_null());
    for (label, node) in [("one", one), ("three", three)] {
        count = 5;
        ask!(l, format!("before {label}") => OK, cuGraphNodeGetDependencies(node, starts, &mut count));
        l.say(format!("before {label}: number"), count);
        count = 5;
        ask!(l, format!("after {label}") => OK, cuGraphNodeGetDependentNodes(node, starts, &mut count));
        l.say(format!("after {label}: number"), count);
    }
    count = 5;
    ask!(l, "before, with data" => OK, cuGraphNodeGetDependencies_v2(three, starts, of_edges, &mut count));
    count = 5;
    ask!(l, "after, with data" => OK, cuGraphNodeGetDependentNodes_v2(one, starts, of_edges, &mut count));
    ask!(l, "remove" => OK, cuGraphRemoveDependencies(graph, &one, &two, 1));
    ask!(l, "remove again", cuGraphRemoveDependencies(graph, &one, &two, 1));
    ask!(l, "add with plain data" => OK, cuGraphAddDependencies_v2(graph, &one, &two, &data[0], 1));
    ask!(l, "remove with plain data" => OK, cuGraphRemoveDependencies_v2(graph, &one, &two, &data[0], 1));
    data[0].from_port = 9;
    ask!(l, "add with strange data", cuGraphAddDependencies_v2(graph, &one, &two, &data[0], 1));
    Ok(())
}

fn circles(l: &mut Lab) -> Run {
    let graph = graph(l)?;
    let one = add_empty(l, graph, &[])?;
    let two = add_empty(l, graph, &[one])?;
    ask!(l, "close the circle", cuGraphAddDependencies(graph, &two, &one, 1));
    let (mut executable, mut params) = (ptr::null_mut(), CUDA_GRAPH_INSTANTIATE_PARAMS::default());
    if ask!(l, "instantiate", cuGraphInstantiateWithParams(&mut executable, graph, &mut params)) {
        ask!(l, "destroy", cuGraphExecDestroy(executable));
    }
    l.say("result", params.result_out.0);
    Ok(())
}

fn children(l: &mut Lab) -> Run {
    let (outer, inner, stream, memory) = (graph(l)?, graph(l)?, l.stream(1)?, l.alloc(64)?);
    need!(l, cuMemsetD8_v2(memory, 0, 64))?;
    let fill = add_fill(l, inner, &[], bytes(memory, 4, 8))?;
    let (mut node, mut inside, mut found) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    need!(l, cuGraphAddChildGraphNode(&mut node, outer, NONE, 0, inner))?;
    say_kind(l, "a child", node);
    ask!(l, "its graph" => OK, cuGraphChildGraphNodeGetGraph(node, &mut inside));
    l.say("its graph is a copy", inside != inner);
    ask!(l, "a node of the copy", cuGraphNodeFindInClone(&mut found, fill, inside));
    ask!(l, "change the original" => OK, cuGraphMemsetNodeSetParams(fill, &bytes(memory, 6, 8)));
    let executable = ready(l, outer)?;
    run(l, "child", executable, stream);
    l.bytes::<9>("after the child", memory);
    ask!(l, "update the child" => OK, cuGraphExecChildGraphNodeSetParams(executable, node, inner));
    run(l, "updated", executable, stream);
    l.bytes::<9>("after the updated child", memory);
    Ok(())
}

fn a_child_of_itself(l: &mut Lab) -> Run {
    let (graph, mut node) = (graph(l)?, ptr::null_mut());
    ask!(l, "itself", cuGraphAddChildGraphNode(&mut node, graph, NONE, 0, graph));
    Ok(())
}

fn events(l: &mut Lab) -> Run {
    let (graph, stream, first, second) = (graph(l)?, l.stream(1)?, l.event(2)?, l.event(2)?);
    let (mut wait, mut record, mut told) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    need!(l, cuGraphAddEventWaitNode(&mut wait, graph, NONE, 0, first))?;
    need!(l, cuGraphAddEventRecordNode(&mut record, graph, &wait, 1, first))?;
    say_kind(l, "a wait", wait);
    say_kind(l, "a record", record);
    ask!(l, "no event", cuGraphAddEventRecordNode(&mut ptr::null_mut(), graph, NONE, 0, ptr::null_mut()));
    ask!(l, "set the record's" => OK, cuGraphEventRecordNodeSetEvent(record, second));
    ask!(l, "set the wait's" => OK, cuGraphEventWaitNodeSetEvent(wait, second));
    ask!(l, "the record's" => OK, cuGraphEventRecordNodeGetEvent(record, &mut told));
    l.check("the record's is the new one", told == second, true);
    ask!(l, "the wait's" => OK, cuGraphEventWaitNodeGetEvent(wait, &mut told));
    ask!(l, "the wait's as the record's", cuGraphEventRecordNodeGetEvent(wait, &mut told));
    let executable = ready(l, graph)?;
    ask!(l, "set what is ready: record" => OK, cuGraphExecEventRecordNodeSetEvent(executable, record, first));
    ask!(l, "set what is ready: wait" => OK, cuGraphExecEventWaitNodeSetEvent(executable, wait, second));
    run(l, "events", executable, stream);
    ask!(l, "query" => OK, cuEventQuery(first));
    Ok(())
}

fn allocation(size: usize) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    let mut params = CUDA_MEM_ALLOC_NODE_PARAMS { bytesize: size, ..Default::default() };
    params.poolProps.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = DEVICE_0;
    params
}

fn memory(l: &mut Lab) -> Run {
    let (graph, stream, out) = (graph(l)?, l.stream(1)?, l.alloc(8)?);
    need!(l, cuMemsetD8_v2(out, 0, 8))?;
    let (mut first, mut node, mut last, mut params) =
        (ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), allocation(4096));
    need!(l, cuGraphAddMemAllocNode(&mut first, graph, NONE, 0, &mut params))?;
    l.say("an address", params.dptr != 0);
    let fill = add_fill(l, graph, &[first], bytes(params.dptr, 8, 4096))?;
    let (copy, context) = (linear(out, params.dptr, 8), l.context);
    need!(l, cuGraphAddMemcpyNode(&mut node, graph, &fill, 1, &copy, context))?;
    need!(l, cuGraphAddMemFreeNode(&mut last, graph, &node, 1, params.dptr))?;
    ask!(l, "free again", cuGraphAddMemFreeNode(&mut node, graph, &last, 1, params.dptr));
    say_kind(l, "an allocation", first);
    say_kind(l, "a free", last);
    let (mut told, mut address) = (CUDA_MEM_ALLOC_NODE_PARAMS::default(), 7);
    ask!(l, "parameters" => OK, cuGraphMemAllocNodeGetParams(first, &mut told));
    l.say("their size and address", told.bytesize == 4096 && told.dptr == params.dptr);
    ask!(l, "the freed address" => OK, cuGraphMemFreeNodeGetParams(last, &mut address));
    l.say("it is that of the allocation", address == params.dptr);
    let mut clone = ptr::null_mut();
    ask!(l, "clone", cuGraphClone(&mut clone, graph));
    ask!(l, "destroy the node", cuGraphDestroyNode(first));
    let executable = ready(l, graph)?;
    run(l, "memory", executable, stream);
    l.bytes::<8>("after the launch", out);
    Ok(())
}

fn memory_of_wrong_kinds(l: &mut Lab) -> Run {
    let (graph, memory, mut node) = (graph(l)?, l.alloc(64)?, ptr::null_mut());
    let mut params = CUDA_MEM_ALLOC_NODE_PARAMS { bytesize: 64, ..Default::default() };
    ask!(l, "no kind", cuGraphAddMemAllocNode(&mut node, graph, NONE, 0, &mut params));
    ask!(l, "no bytes", cuGraphAddMemAllocNode(&mut node, graph, NONE, 0, &mut allocation(0)));
    params = allocation(64);
    params.poolProps.handleTypes = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    ask!(l, "for other processes", cuGraphAddMemAllocNode(&mut node, graph, NONE, 0, &mut params));
    params = allocation(64);
    params.poolProps.location.id = 99;
    ask!(l, "of no device", cuGraphAddMemAllocNode(&mut node, graph, NONE, 0, &mut params));
    params.poolProps.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST;
    ask!(l, "of the host", cuGraphAddMemAllocNode(&mut node, graph, NONE, 0, &mut params));
    ask!(l, "free of other memory", cuGraphAddMemFreeNode(&mut node, graph, NONE, 0, memory));
    ask!(l, "free of 0", cuGraphAddMemFreeNode(&mut node, graph, NONE, 0, 0));
    Ok(())
}

fn updates(l: &mut Lab) -> Run {
    let (graph, stream, memory) = (graph(l)?, l.stream(1)?, l.alloc(64)?);
    need!(l, cuMemsetD8_v2(memory, 0, 64))?;
    let first = add_fill(l, graph, &[], bytes(memory, 1, 8))?;
    add_fill(l, graph, &[first], bytes(memory + 8, 1, 8))?;
    let executable = ready(l, graph)?;
    let same = self::graph(l)?;
    let first = add_fill(l, same, &[], bytes(memory, 2, 8))?;
    add_fill(l, same, &[first], bytes(memory + 8, 3, 8))?;
    let mut info = CUgraphExecUpdateResultInfo { result: CUgraphExecUpdateResult(7), ..Default::default() };
    ask!(l, "the same shape" => OK, cuGraphExecUpdate_v2(executable, same, &mut info));
    l.say("the same shape: result", info.result.0);
    run(l, "updated", executable, stream);
    l.bytes::<17>("after the update", memory);
    let loose = self::graph(l)?;
    add_fill(l, loose, &[], bytes(memory, 4, 8))?;
    add_fill(l, loose, &[], bytes(memory + 8, 4, 8))?;
    let other = self::graph(l)?;
    let first = add_empty(l, other, &[])?;
    add_fill(l, other, &[first], bytes(memory, 4, 8))?;
    let fewer = self::graph(l)?;
    add_fill(l, fewer, &[], bytes(memory, 4, 8))?;
    for (label, graph) in [("without the edge", loose), ("another kind", other), ("fewer nodes", fewer)] {
        ask!(l, label, cuGraphExecUpdate_v2(executable, graph, &mut info));
        l.say(format!("{label}: result"), info.result.0);
        l.say(format!("{label}: names a node"), !info.errorNode.is_null());
    }
    let (mut node, mut result) = (ptr::null_mut(), CUgraphExecUpdateResult(7));
    ask!(l, "by the first form", cuGraphExecUpdate(executable, fewer, &mut node, &mut result));
    l.say("by the first form: result", result.0);
    run(l, "refused", executable, stream);
    l.bytes::<17>("after refused updates", memory);
    Ok(())
}

fn switched_off(l: &mut Lab) -> Run {
    let (graph, stream, memory) = (graph(l)?, l.stream(1)?, l.alloc(64)?);
    need!(l, cuMemsetD8_v2(memory, 0, 64))?;
    let fill = add_fill(l, graph, &[], bytes(memory, 1, 8))?;
    let empty = add_empty(l, graph, &[fill])?;
    let (executable, mut on) = (ready(l, graph)?, 7);
    ask!(l, "off" => OK, cuGraphNodeSetEnabled(executable, fill, 0));
    ask!(l, "is it on" => OK, cuGraphNodeGetEnabled(executable, fill, &mut on));
    l.say("it is on", on);
    run(l, "off", executable, stream);
    l.bytes::<8>("while it is off", memory);
    ask!(l, "on" => OK, cuGraphNodeSetEnabled(executable, fill, 1));
    run(l, "on", executable, stream);
    l.bytes::<8>("while it is on", memory);
    ask!(l, "an empty node off", cuGraphNodeSetEnabled(executable, empty, 0));
    Ok(())
}

fn kinds_of_captured_nodes(l: &mut Lab) -> Run {
    let (stream, memory, host, event) = (l.stream(1)?, l.alloc(64)?, l.host(64)?, l.event(2)?);
    let (mut block, mut nodes) = (0, [ptr::null_mut(); 8]);
    begin(l, stream, GLOBAL)?;
    need!(l, cuMemcpyHtoDAsync_v2(memory, host.cast(), 8, stream))?;
    need!(l, cuMemsetD32Async(memory, 5, 8, stream))?;
    need!(l, cuLaunchHostFunc(stream, Some(nothing), ptr::null_mut()))?;
    need!(l, cuMemAllocAsync(&mut block, 64, stream))?;
    need!(l, cuMemFreeAsync(block, stream))?;
    need!(l, cuEventRecordWithFlags(event, stream, 1))?;
    need!(l, cuStreamWaitEvent(stream, event, 1))?;
    need!(l, cuStreamWriteValue32_v2(stream, memory, 1, 0))?;
    let graph = end(l, stream)?;
    let mut count = 8;
    ask!(l, "nodes" => OK, cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
    l.say("number of nodes", count);
    let names = ["copy", "fill", "host function", "allocation", "free", "record", "wait", "word"];
    for (label, node) in names.into_iter().zip(nodes) {
        say_kind(l, label, node);
    }
    let mut fill = CUDA_MEMSET_NODE_PARAMS::default();
    ask!(l, "parameters of the fill" => OK, cuGraphMemsetNodeGetParams(nodes[1], &mut fill));
    l.say("the fill", format!("{} words of {} bytes, {} rows", fill.width, fill.elementSize, fill.height));
    Ok(())
}
