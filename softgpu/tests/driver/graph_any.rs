//! Nodes of graphs in one form for all kinds, and graphs as pictures.

use crate::common::machine;
use crate::cu;
use cuda_sys::*;
use softgpu::Settings;
use std::ffi::CString;
use std::ptr;

/// The first release with the form that returns parameters.
const VERSION: u32 = 13020;
const FILL: CUgraphNodeType = CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET;

#[test]
fn parameters_of_any_kind_are_read_and_set() {
    let m = machine(Settings { version: VERSION, ..Settings::default() });
    let (memory, stream, mut graph, mut node) = (m.alloc(8), m.stream(1), ptr::null_mut(), ptr::null_mut());
    assert_eq!(cu!(m, cuMemsetD8_v2(memory, 0, 8)), 0);
    assert_eq!(cu!(m, cuGraphCreate(&mut graph, 0)), 0);
    let fill = CUDA_MEMSET_NODE_PARAMS { dst: memory, pitch: 0, value: 3, elementSize: 1, width: 2, height: 1 };
    let none = ptr::null();
    assert_eq!(cu!(m, cuGraphAddMemsetNode(&mut node, graph, none, 0, &fill, ptr::null_mut())), 0);
    let mut words = [0_u64; 32];
    let params = words.as_mut_ptr();
    assert_eq!(cu!(m, cuGraphNodeGetParams(node, params.cast())), 0);
    // SAFETY: the kind is the first word of 4 bytes, and the parameters of the kind begin at the third word.
    let of_kind = unsafe { &mut *params.add(2).cast::<CUDA_MEMSET_NODE_PARAMS>() };
    // SAFETY: as above.
    assert_eq!(unsafe { params.cast::<CUgraphNodeType>().read() }, FILL);
    assert_eq!((of_kind.dst, of_kind.value, of_kind.width), (memory, 3, 2));
    let executable = m.instantiate(graph, 0);
    of_kind.value = 4;
    assert_eq!(cu!(m, cuGraphNodeSetParams(node, params.cast())), 0);
    m.run(executable, stream);
    assert_eq!(m.read(memory, 3), [3, 3, 0]);
    assert_eq!(cu!(m, cuGraphExecNodeSetParams(executable, node, params.cast())), 0);
    m.run(executable, stream);
    assert_eq!(m.read(memory, 3), [4, 4, 0]);
    // SAFETY: as above.
    unsafe { params.cast::<CUgraphNodeType>().write(CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY) };
    assert_eq!(cu!(m, cuGraphNodeSetParams(node, params.cast())), 1);
    assert_eq!(cu!(m, cuGraphNodeGetParams(node, ptr::null_mut())), 1);
    assert_eq!(cu!(m, cuGraphExecDestroy(executable)), 0);
    assert_eq!(cu!(m, cuGraphDestroy(graph)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
    m.finish();
}

#[test]
fn launches_have_attributes_which_copies_and_changes_keep() {
    let m = machine(Settings::default());
    let image = c".version 8.0\n.target sm_80\n.entry nothing() { ret; }";
    let (module, params) = m.one_thread(image, c"nothing");
    let mut graph = ptr::null_mut();
    assert_eq!(cu!(m, cuGraphCreate(&mut graph, 0)), 0);
    softgpu::register_kernel("nothing", |_| Ok(()));
    let (mut first, mut second, mut empty) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    assert_eq!(cu!(m, cuGraphAddKernelNode_v2(&mut first, graph, ptr::null(), 0, &params)), 0);
    assert_eq!(cu!(m, cuGraphAddKernelNode_v2(&mut second, graph, ptr::null(), 0, &params)), 0);
    assert_eq!(cu!(m, cuGraphAddEmptyNode(&mut empty, graph, ptr::null(), 0)), 0);
    let priority = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY;
    let domain = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
    let get_any = |node, attribute| {
        let mut value = [9_u64; 5];
        let code = cu!(m, cuGraphKernelNodeGetAttribute(node, attribute, value.as_mut_ptr().cast()));
        (code, value[0], value[4])
    };
    let get = |node| get_any(node, priority);
    let set = |node, attribute, value: u64| {
        let words = [value, 0, 0, 0];
        cu!(m, cuGraphKernelNodeSetAttribute(node, attribute, words.as_ptr().cast()))
    };
    assert_eq!(get(first), (0, 0, 9));
    assert_eq!(set(first, priority, 5), 0);
    assert_eq!(cu!(m, cuGraphKernelNodeSetParams_v2(first, &params)), 0);
    assert_eq!((get(first), get(second)), ((0, 5, 9), (0, 0, 9)));
    assert_eq!((set(second, domain, 1), get_any(second, domain)), (0, (0, 1, 9)));
    assert_eq!(cu!(m, cuGraphKernelNodeCopyAttributes(second, first)), 0);
    assert_eq!((get(second), get_any(second, domain)), ((0, 5, 9), (0, 0, 9)));
    let (mut copy, mut of_copy) = (ptr::null_mut(), ptr::null_mut());
    assert_eq!(cu!(m, cuGraphClone(&mut copy, graph)), 0);
    assert_eq!(cu!(m, cuGraphNodeFindInClone(&mut of_copy, first, copy)), 0);
    assert_eq!(get(of_copy), (0, 5, 9));
    assert_eq!([set(first, CUlaunchAttributeID(77), 1), set(empty, priority, 1), get(empty).0], [1; 3]);
    assert_eq!(cu!(m, cuGraphKernelNodeCopyAttributes(first, empty)), 1);
    assert_eq!(cu!(m, cuGraphDestroy(copy)), 0);
    assert_eq!(cu!(m, cuGraphDestroy(graph)), 0);
    assert_eq!(cu!(m, cuModuleUnload(module)), 0);
    m.finish();
}

#[test]
fn a_graph_is_written_for_graphviz() {
    let m = machine(Settings::default());
    let (mut graph, mut inner, mut first, mut second) =
        (ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    assert_eq!(cu!(m, cuGraphCreate(&mut graph, 0)), 0);
    assert_eq!(cu!(m, cuGraphCreate(&mut inner, 0)), 0);
    assert_eq!(cu!(m, cuGraphAddEmptyNode(&mut first, inner, ptr::null(), 0)), 0);
    assert_eq!(cu!(m, cuGraphAddEmptyNode(&mut first, graph, ptr::null(), 0)), 0);
    assert_eq!(cu!(m, cuGraphAddChildGraphNode(&mut second, graph, &first, 1, inner)), 0);
    let file = std::env::temp_dir().join(format!("softgpu-graph-{}.dot", std::process::id()));
    let path = CString::new(file.to_str().unwrap()).unwrap();
    assert_eq!(cu!(m, cuGraphDebugDotPrint(graph, path.as_ptr(), 0)), 0);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(file).unwrap();
    let counts =
        ["digraph", "label=\"EMPTY", "label=\"GRAPH", " -> ", "subgraph"].map(|word| text.matches(word).count());
    assert_eq!(counts, [1, 2, 1, 1, 1], "{text}");
    assert_eq!(text.matches('{').count(), text.matches('}').count());
    assert_eq!(cu!(m, cuGraphDebugDotPrint(graph, c"/there/is/no/folder".as_ptr(), 0)), 304);
    assert_eq!(cu!(m, cuGraphDebugDotPrint(graph, ptr::null(), 0)), 1);
    assert_eq!(cu!(m, cuGraphDestroy(inner)), 0);
    assert_eq!(cu!(m, cuGraphDestroy(graph)), 0);
    m.finish();
}
