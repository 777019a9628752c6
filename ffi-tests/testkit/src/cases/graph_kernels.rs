//! Kernels and conditions in graphs, and captures into graphs.

use super::captures::GLOBAL;
use super::graph_nodes::{graph, ready};
use super::lab::codes::*;
use super::lab::{Lab, Run, Stop};
use cuda_mem::cuda_sys::*;
use std::ffi::{CString, c_void};
use std::ptr;

cases! {
    Shared launches,
    Shared conditions,
    Shared updates_of_conditions,
    Shared nodes_of_any_kind,
    Shared parameters_of_any_kind,
    Shared pictures,
    Shared captures_into_graphs,
}

fn run(l: &mut Lab, label: &str, executable: CUgraphExec) {
    ask!(l, format!("{label}: launch"), cuGraphLaunch(executable, ptr::null_mut()));
    ask!(l, format!("{label}: wait"), cuCtxSynchronize());
}

fn launches(l: &mut Lab) -> Run {
    let image = CString::new(include_str!("../kernels.ptx")).map_err(|error| Stop(error.to_string()))?;
    let (mut module, mut func, graph) = (ptr::null_mut(), ptr::null_mut(), graph(l)?);
    need!(l, cuModuleLoadData(&mut module, image.as_ptr().cast()))?;
    l.finally(move |l| drop(call!(l, cuModuleUnload(module))));
    need!(l, cuModuleGetFunction(&mut func, module, c"double_bytes".as_ptr()))?;
    let mut memory = l.alloc(64)?;
    need!(l, cuMemsetD8_v2(memory, 3, 64))?;
    let (mut length, mut longer) = (2_u64, 3_u64);
    let mut list: [*mut c_void; 2] = [(&raw mut memory).cast(), (&raw mut length).cast()];
    let params = CUDA_KERNEL_NODE_PARAMS_v2 {
        func,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 32,
        blockDimY: 1,
        blockDimZ: 1,
        kernelParams: list.as_mut_ptr(),
        ..Default::default()
    };
    let mut other: [*mut c_void; 2] = [(&raw mut memory).cast(), (&raw mut longer).cast()];
    let further = CUDA_KERNEL_NODE_PARAMS_v2 { kernelParams: other.as_mut_ptr(), ..params };
    let (mut node, none) = (ptr::null_mut(), ptr::null());
    ask!(l, "no parameters", cuGraphAddKernelNode_v2(&mut node, graph, none, 0, ptr::null()));
    let wrong = CUDA_KERNEL_NODE_PARAMS_v2 { blockDimX: 4096, ..params };
    ask!(l, "too many threads", cuGraphAddKernelNode_v2(&mut node, graph, none, 0, &wrong));
    ask!(l, "add" => OK, cuGraphAddKernelNode_v2(&mut node, graph, none, 0, &params));
    let mut seen = CUDA_KERNEL_NODE_PARAMS_v2::default();
    if ask!(l, "get" => OK, cuGraphKernelNodeGetParams_v2(node, &mut seen)) {
        l.say("get: threads", seen.blockDimX);
        l.say("get: it has a list", !seen.kernelParams.is_null());
    }
    let executable = ready(l, graph)?;
    run(l, "first", executable);
    l.bytes::<4>("first", memory);
    ask!(l, "set in the executable" => OK, cuGraphExecKernelNodeSetParams_v2(executable, node, &further));
    run(l, "second", executable);
    l.bytes::<4>("second", memory);
    let wide = CUDA_KERNEL_NODE_PARAMS_v2 { blockDimX: 64, ..params };
    ask!(l, "set" => OK, cuGraphKernelNodeSetParams_v2(node, &wide));
    ask!(l, "get after set" => OK, cuGraphKernelNodeGetParams_v2(node, &mut seen));
    l.say("get after set: threads", seen.blockDimX);
    for (label, number, value) in [("cooperative", 2, 1_u64), ("priority", 8, 0), ("unknown", 77, 0)] {
        let (attribute, mut words) = (CUlaunchAttributeID(number), [9_u64; 8]);
        if ask!(l, format!("{label}: get"), cuGraphKernelNodeGetAttribute(node, attribute, words.as_mut_ptr().cast())) {
            l.say(format!("{label}: value"), words[0] as u32);
        }
        let words = [value, 0, 0, 0, 0, 0, 0, 0];
        ask!(l, format!("{label}: set"), cuGraphKernelNodeSetAttribute(node, attribute, words.as_ptr().cast()));
    }
    ask!(l, "copy to itself", cuGraphKernelNodeCopyAttributes(node, node));
    Ok(())
}

/// A node of a kind, with its parameters.
fn any<T>(kind: CUgraphNodeType, params: T) -> [u64; 32] {
    let mut words = [0; 32];
    words[0] = kind.0.into();
    assert!(size_of::<T>() <= 29 * 8);
    // SAFETY: the parameters of a kind begin at the third word, and fit.
    unsafe { words[2..].as_mut_ptr().cast::<T>().write(params) };
    words
}

fn conditions(l: &mut Lab) -> Run {
    let (outer, mut handle, none) = (graph(l)?, 0, ptr::null_mut());
    let ctx = l.context;
    ask!(l, "no result", cuGraphConditionalHandleCreate(ptr::null_mut(), outer, ctx, 1, 1));
    ask!(l, "wrong flags", cuGraphConditionalHandleCreate(&mut handle, outer, ctx, 1, 8));
    ask!(l, "no context" => CONTEXT, cuGraphConditionalHandleCreate(&mut handle, outer, ptr::null_mut(), 1, 1));
    ask!(l, "handle" => OK, cuGraphConditionalHandleCreate(&mut handle, outer, ctx, 1, 1));
    let kind = CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL;
    let params = |handle, type_, size| CUDA_CONDITIONAL_NODE_PARAMS { handle, type_, size, ctx, ..Default::default() };
    let (mut node, before, data) = (ptr::null_mut(), ptr::null(), ptr::null());
    let if_ = CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_IF;
    let while_ = CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE;
    for (label, params) in [
        ("no graphs", params(handle, if_, 0)),
        ("three graphs", params(handle, if_, 3)),
        ("two graphs of a loop", params(handle, while_, 2)),
        ("an unknown kind", params(handle, CUgraphConditionalNodeType(9), 1)),
        ("a node without a context", CUDA_CONDITIONAL_NODE_PARAMS { ctx: ptr::null_mut(), ..params(handle, if_, 1) }),
    ] {
        let mut words = any(kind, params);
        ask!(l, label, cuGraphAddNode_v2(&mut node, outer, before, data, 0, words.as_mut_ptr().cast()));
    }
    let mut words = any(kind, params(handle, if_, 1));
    need!(l, cuGraphAddNode_v2(&mut node, outer, before, data, 0, words.as_mut_ptr().cast()))?;
    // SAFETY: the call wrote the address of one handle into the parameters.
    let body = unsafe { (*words[2..].as_ptr().cast::<CUDA_CONDITIONAL_NODE_PARAMS>()).phGraph_out.read() };
    let memory = l.alloc(64)?;
    need!(l, cuMemsetD8_v2(memory, 3, 64))?;
    let fill = CUDA_MEMSET_NODE_PARAMS { dst: memory, pitch: 0, value: 9, elementSize: 1, width: 2, height: 1 };
    ask!(l, "a fill in the body" => OK, cuGraphAddMemsetNode(&mut node, body, before, 0, &fill, none));
    let executable = ready(l, outer)?;
    run(l, "if", executable);
    l.bytes::<4>("if", memory);
    let mut copy = ptr::null_mut();
    if ask!(l, "copy", cuGraphClone(&mut copy, outer)) {
        ask!(l, "copy: destroy", cuGraphDestroy(copy));
    }
    Ok(())
}

/// A conditional node, whose last body writes a byte.
fn deciding(
    l: &mut Lab,
    (kind, size): (CUgraphConditionalNodeType, u32),
    (memory, value): (CUdeviceptr, u32),
) -> Result<CUgraph, Stop> {
    let (outer, mut handle, mut node, ctx) = (graph(l)?, 0, ptr::null_mut(), l.context);
    need!(l, cuGraphConditionalHandleCreate(&mut handle, outer, ctx, 1, 1))?;
    let params = CUDA_CONDITIONAL_NODE_PARAMS { handle, type_: kind, size, ctx, ..Default::default() };
    let mut words = any(CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL, params);
    let (none, words) = (ptr::null(), words.as_mut_ptr());
    need!(l, cuGraphAddNode_v2(&mut node, outer, none, ptr::null(), 0, words.cast()))?;
    // SAFETY: the call wrote the address of as many handles into the parameters, which live.
    let body = unsafe {
        let graphs = (*words.add(2).cast::<CUDA_CONDITIONAL_NODE_PARAMS>()).phGraph_out;
        graphs.add(size as usize - 1).read()
    };
    let fill = CUDA_MEMSET_NODE_PARAMS { dst: memory, pitch: 0, value, elementSize: 1, width: 1, height: 1 };
    need!(l, cuGraphAddMemsetNode(&mut node, body, none, 0, &fill, ptr::null_mut()))?;
    Ok(outer)
}

fn updates_of_conditions(l: &mut Lab) -> Run {
    let memory = l.alloc(64)?;
    need!(l, cuMemsetD8_v2(memory, 0, 64))?;
    let if_ = CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_IF;
    let switch = CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_SWITCH;
    let first = deciding(l, (switch, 2), (memory, 1))?;
    let executable = ready(l, first)?;
    run(l, "first", executable);
    for (label, form) in [("another handle", (switch, 2)), ("another type", (if_, 2)), ("another size", (switch, 3))] {
        let other = deciding(l, form, (memory, form.1))?;
        let mut info = CUgraphExecUpdateResultInfo { result: CUgraphExecUpdateResult(7), ..Default::default() };
        ask!(l, label, cuGraphExecUpdate_v2(executable, other, &mut info));
        l.say(format!("{label}: result"), info.result.0);
        l.say(format!("{label}: names a node"), !info.errorNode.is_null());
        run(l, label, executable);
        l.bytes::<1>(label, memory);
    }
    Ok(())
}

fn nodes_of_any_kind(l: &mut Lab) -> Run {
    let (outer, mut node, before, data) = (graph(l)?, ptr::null_mut(), ptr::null(), ptr::null());
    ask!(l, "no parameters", cuGraphAddNode_v2(&mut node, outer, before, data, 0, ptr::null_mut()));
    let memory = l.alloc(64)?;
    let fill = CUDA_MEMSET_NODE_PARAMS { dst: memory, pitch: 0, value: 9, elementSize: 1, width: 2, height: 1 };
    for (label, mut words) in [
        ("empty", any(CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY, ())),
        ("a fill", any(CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET, (fill, ptr::null_mut::<c_void>()))),
        ("an unknown kind", any(CUgraphNodeType(99), ())),
    ] {
        if ask!(l, label, cuGraphAddNode_v2(&mut node, outer, before, data, 0, words.as_mut_ptr().cast())) {
            let mut kind = CUgraphNodeType(99);
            ask!(l, format!("{label}: kind"), cuGraphNodeGetType(node, &mut kind));
            l.say(format!("{label}: kind"), kind.0);
        }
    }
    let mut words = any(CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY, ());
    ask!(l, "by the first form" => OK, cuGraphAddNode(&mut node, outer, before, 0, words.as_mut_ptr().cast()));
    let executable = ready(l, outer)?;
    run(l, "all", executable);
    l.bytes::<2>("all", memory);
    Ok(())
}

fn parameters_of_any_kind(l: &mut Lab) -> Run {
    let (outer, memory, mut node) = (graph(l)?, l.alloc(64)?, ptr::null_mut());
    need!(l, cuMemsetD8_v2(memory, 0, 64))?;
    let fill = CUDA_MEMSET_NODE_PARAMS { dst: memory, pitch: 0, value: 3, elementSize: 1, width: 2, height: 1 };
    need!(l, cuGraphAddMemsetNode(&mut node, outer, ptr::null(), 0, &fill, ptr::null_mut()))?;
    let executable = ready(l, outer)?;
    // Drivers before 13.2 cannot return them.
    let mut words = any(CUgraphNodeType(99), ());
    if ask!(l, "get", cuGraphNodeGetParams(node, words.as_mut_ptr().cast())) {
        l.say("get: kind", words[0] as u32);
    }
    let kind = CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET;
    let mut words = any(kind, (CUDA_MEMSET_NODE_PARAMS { value: 4, ..fill }, ptr::null_mut::<c_void>()));
    ask!(l, "set" => OK, cuGraphNodeSetParams(node, words.as_mut_ptr().cast()));
    run(l, "set", executable);
    l.bytes::<3>("set", memory);
    ask!(l, "set in the executable" => OK, cuGraphExecNodeSetParams(executable, node, words.as_mut_ptr().cast()));
    run(l, "set in the executable", executable);
    l.bytes::<3>("set in the executable", memory);
    let mut words = any(CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY, ());
    ask!(l, "another kind", cuGraphNodeSetParams(node, words.as_mut_ptr().cast()));
    ask!(l, "no parameters", cuGraphNodeSetParams(node, ptr::null_mut()));
    Ok(())
}

fn pictures(l: &mut Lab) -> Run {
    let (outer, mut node) = (graph(l)?, ptr::null_mut());
    need!(l, cuGraphAddEmptyNode(&mut node, outer, ptr::null(), 0))?;
    let file = std::env::temp_dir().join(format!("graph-{}.dot", std::process::id()));
    let path = CString::new(file.to_string_lossy().into_owned()).map_err(|error| Stop(error.to_string()))?;
    ask!(l, "write" => OK, cuGraphDebugDotPrint(outer, path.as_ptr(), 0));
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    drop(std::fs::remove_file(file));
    l.say("it is a graph", text.contains("digraph"));
    l.say("it names the kind", text.contains("EMPTY"));
    ask!(l, "no folder", cuGraphDebugDotPrint(outer, c"/there/is/no/folder".as_ptr(), 0));
    ask!(l, "no path", cuGraphDebugDotPrint(outer, ptr::null(), 0));
    Ok(())
}

fn captures_into_graphs(l: &mut Lab) -> Run {
    let (outer, stream, memory) = (graph(l)?, l.stream(0)?, l.alloc(64)?);
    let (mut first, data) = (ptr::null_mut(), ptr::null());
    need!(l, cuGraphAddEmptyNode(&mut first, outer, ptr::null(), 0))?;
    ask!(l, "not capturing", cuStreamUpdateCaptureDependencies_v2(stream, &mut first, data, 1, 0));
    ask!(l, "begin" => OK, cuStreamBeginCaptureToGraph(stream, outer, &first, data, 1, GLOBAL));
    ask!(l, "fill" => OK, cuMemsetD8Async(memory, 3, 4, stream));
    ask!(l, "add" => OK, cuStreamUpdateCaptureDependencies_v2(stream, &mut first, data, 1, 0));
    ask!(l, "add by the first form" => OK, cuStreamUpdateCaptureDependencies(stream, &mut first, 1, 0));
    ask!(l, "wrong flags", cuStreamUpdateCaptureDependencies_v2(stream, &mut first, data, 1, 7));
    ask!(l, "fill again" => OK, cuMemsetD8Async(memory, 4, 2, stream));
    let mut graph = ptr::null_mut();
    ask!(l, "end" => OK, cuStreamEndCapture(stream, &mut graph));
    l.say("the same graph", graph == outer);
    let mut count = 0;
    need!(l, cuGraphGetNodes(outer, ptr::null_mut(), &mut count))?;
    l.say("nodes", count);
    Ok(())
}
