//! Graphs: what a launch does, and the memory that graphs allocate.

use super::captures::{GLOBAL, begin, end};
use super::lab::codes::*;
use super::lab::{FDS, HOST, DEVICE_0, Lab, MIB, NO_HANDLES, Run, Stop, pool_of, text};
use cuda_mem::cuda_sys::*;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

cases! {
    Shared launches,
    Shared an_empty_graph,
    Shared flags_of_instantiation,
    Shared null_arguments,
    Shared memory_with_its_free,
    Shared memory_left_by_a_launch,
    Shared memory_freed_on_launch,
    Shared memory_of_other_pools,
    Shared frees_that_cannot_be_recorded,
    Shared a_second_executable_graph,
    Shared what_the_address_is,
    Shared attributes,
    Shared a_graph_in_a_graph,
    Shared launches_on_two_streams,
    Shared a_launch_goes_on_when_its_graph_ends,
    Shared copies_with_attributes,
}

const AUTO_FREE: u64 = 1;

/// An executable graph that ends with the case.
fn instantiate(l: &mut Lab, graph: CUgraph, flags: u64) -> Result<CUgraphExec, Stop> {
    let mut executable = ptr::null_mut();
    need!(l, cuGraphInstantiateWithFlags(&mut executable, graph, flags))?;
    l.finally(move |l| drop(call!(l, cuGraphExecDestroy(executable))));
    Ok(executable)
}

fn allocate(l: &mut Lab, size: usize, stream: CUstream) -> Result<CUdeviceptr, Stop> {
    let mut address = 0;
    need!(l, cuMemAllocAsync(&mut address, size, stream))?;
    Ok(address)
}

fn run(l: &mut Lab, label: &str, executable: CUgraphExec, stream: CUstream) {
    ask!(l, format!("{label}: launch"), cuGraphLaunch(executable, stream));
    ask!(l, format!("{label}: wait"), cuStreamSynchronize(stream));
}

fn launches(l: &mut Lab) -> Run {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn count(_: *mut c_void) {
        COUNT.fetch_add(1, Ordering::SeqCst);
    }
    let (stream, memory, host) = (l.stream(1)?, l.alloc(64)?, l.host(64)?);
    need!(l, cuMemsetD8_v2(memory, 0, 64))?;
    begin(l, stream, GLOBAL)?;
    need!(l, cuMemcpyHtoDAsync_v2(memory, host.cast(), 4, stream))?;
    need!(l, cuMemsetD8Async(memory + 4, 9, 4, stream))?;
    need!(l, cuLaunchHostFunc(stream, Some(count), ptr::null_mut()))?;
    let graph = end(l, stream)?;
    let executable = instantiate(l, graph, 0)?;
    l.check("before a launch", COUNT.load(Ordering::SeqCst), 0);
    for round in 1..=2 {
        // SAFETY: the host memory has 64 bytes, and no launch is under way.
        unsafe { host.write_bytes(round, 4) };
        run(l, &format!("launch {round}"), executable, stream);
        l.bytes::<8>(format!("launch {round}: memory"), memory);
        l.check(format!("launch {round}: host functions"), COUNT.load(Ordering::SeqCst), round);
    }
    ask!(l, "on the default stream" => OK, cuGraphLaunch(executable, ptr::null_mut()));
    ask!(l, "the context" => OK, cuCtxSynchronize());
    l.check("host functions at the end", COUNT.load(Ordering::SeqCst), 3);
    Ok(())
}

fn an_empty_graph(l: &mut Lab) -> Run {
    let stream = l.stream(1)?;
    begin(l, stream, GLOBAL)?;
    let graph = end(l, stream)?;
    let executable = instantiate(l, graph, 0)?;
    run(l, "empty", executable, stream);
    Ok(())
}

fn flags_of_instantiation(l: &mut Lab) -> Run {
    let (stream, memory) = (l.stream(1)?, l.alloc(64)?);
    begin(l, stream, GLOBAL)?;
    need!(l, cuMemsetD8Async(memory, 1, 64, stream))?;
    let graph = end(l, stream)?;
    for flags in [0, 1, 2, 8, 9, 16, u64::MAX] {
        let mut executable = ptr::null_mut();
        if ask!(l, format!("flags {flags:#x}"), cuGraphInstantiateWithFlags(&mut executable, graph, flags)) {
            ask!(l, format!("flags {flags:#x}: destroy") => OK, cuGraphExecDestroy(executable));
        }
    }
    Ok(())
}

fn null_arguments(l: &mut Lab) -> Run {
    let stream = l.stream(1)?;
    begin(l, stream, GLOBAL)?;
    let graph = end(l, stream)?;
    ask!(l, "instantiate nothing", cuGraphInstantiateWithFlags(&mut ptr::null_mut(), ptr::null_mut(), 0));
    ask!(l, "instantiate to nowhere", cuGraphInstantiateWithFlags(ptr::null_mut(), graph, 0));
    ask!(l, "launch nothing", cuGraphLaunch(ptr::null_mut(), stream));
    ask!(l, "destroy no graph", cuGraphDestroy(ptr::null_mut()));
    ask!(l, "destroy no executable graph", cuGraphExecDestroy(ptr::null_mut()));
    Ok(())
}

fn memory_with_its_free(l: &mut Lab) -> Run {
    let (stream, out) = (l.stream(1)?, l.alloc(64)?);
    need!(l, cuMemsetD8_v2(out, 0, 64))?;
    begin(l, stream, GLOBAL)?;
    let mut nothing = 99;
    ask!(l, "nothing", cuMemAllocAsync(&mut nothing, 0, stream));
    l.say("nothing is null", nothing == 0);
    let block = allocate(l, 64, stream)?;
    need!(l, cuMemsetD8Async(block, 5, 64, stream))?;
    need!(l, cuMemcpyDtoDAsync_v2(out, block, 64, stream))?;
    need!(l, cuMemFreeAsync(block, stream))?;
    let graph = end(l, stream)?;
    let mut count = 99;
    ask!(l, "nodes" => OK, cuGraphGetNodes(graph, ptr::null_mut(), &mut count));
    l.say("number of nodes", count);
    let executable = instantiate(l, graph, 0)?;
    for round in 1..=2 {
        need!(l, cuMemsetD8_v2(out, 0, 64))?;
        run(l, &format!("launch {round}"), executable, stream);
        l.bytes::<2>(format!("launch {round}: memory"), out);
    }
    // The graph has freed this already.
    ask!(l, "a free outside", cuMemFreeAsync(block, stream));
    ask!(l, "a synchronous free outside", cuMemFree_v2(block));
    ask!(l, "the stream" => OK, cuStreamSynchronize(stream));
    Ok(())
}

fn memory_left_by_a_launch(l: &mut Lab) -> Run {
    let stream = l.stream(1)?;
    begin(l, stream, GLOBAL)?;
    let block = allocate(l, 4096, stream)?;
    need!(l, cuMemsetD8Async(block, 5, 4096, stream))?;
    let graph = end(l, stream)?;
    let executable = instantiate(l, graph, 0)?;
    ask!(l, "a free before the launch", cuMemFreeAsync(block, stream));
    for (name, asynchronous) in [("cuMemFreeAsync", true), ("cuMemFree", false)] {
        run(l, name, executable, stream);
        l.bytes::<2>(format!("{name}: memory"), block);
        ask!(l, format!("{name}: another launch") => VALUE, cuGraphLaunch(executable, stream));
        if asynchronous {
            ask!(l, name => OK, cuMemFreeAsync(block, stream));
        } else {
            ask!(l, name, cuMemFree_v2(block));
        }
        ask!(l, format!("{name}: wait") => OK, cuStreamSynchronize(stream));
        ask!(l, format!("{name}: again"), cuMemFreeAsync(block, stream));
    }
    // Live memory outlives the executable graph.
    run(l, "the last", executable, stream);
    let _ = call!(l, cuStreamSynchronize(stream));
    l.bytes::<2>("the last: memory", block);
    ask!(l, "the last: free" => OK, cuMemFreeAsync(block, stream));
    ask!(l, "the last: wait for the free" => OK, cuStreamSynchronize(stream));
    Ok(())
}

fn memory_freed_on_launch(l: &mut Lab) -> Run {
    let (stream, input) = (l.stream(1)?, l.alloc(64)?);
    begin(l, stream, GLOBAL)?;
    let block = allocate(l, 64, stream)?;
    need!(l, cuMemcpyDtoDAsync_v2(block, input, 64, stream))?;
    let graph = end(l, stream)?;
    let executable = instantiate(l, graph, AUTO_FREE)?;
    for round in [1, 5] {
        need!(l, cuMemsetD8_v2(input, round, 64))?;
        run(l, &format!("round {round}"), executable, stream);
        l.bytes::<2>(format!("round {round}: memory"), block);
    }
    ask!(l, "free" => OK, cuMemFreeAsync(block, stream));
    ask!(l, "wait" => OK, cuStreamSynchronize(stream));
    Ok(())
}

fn memory_of_other_pools(l: &mut Lab) -> Run {
    let stream = l.stream(1)?;
    for (name, place, handles) in [("plain", DEVICE_0, NO_HANDLES), ("shared", DEVICE_0, FDS), ("host", HOST, NO_HANDLES)] {
        let (pool, mut block) = (l.pool(&pool_of(place, handles))?, 0);
        begin(l, stream, GLOBAL)?;
        if ask!(l, format!("{name}: allocate"), cuMemAllocFromPoolAsync(&mut block, 64, pool, stream)) {
            ask!(l, format!("{name}: free") => OK, cuMemFreeAsync(block, stream));
        }
        let mut graph = ptr::null_mut();
        if ask!(l, format!("{name}: end"), cuStreamEndCapture(stream, &mut graph)) {
            ask!(l, format!("{name}: destroy") => OK, cuGraphDestroy(graph));
        }
    }
    Ok(())
}

fn frees_that_cannot_be_recorded(l: &mut Lab) -> Run {
    let stream = l.stream(1)?;
    let pooled = allocate(l, 64, ptr::null_mut())?;
    l.finally(move |l| drop(call!(l, cuMemFree_v2(pooled))));
    let plain = l.alloc(64)?;
    for (name, memory) in [("of a pool", pooled), ("of cuMemAlloc", plain), ("of nobody", 64)] {
        let mut status = CUstreamCaptureStatus(77);
        begin(l, stream, GLOBAL)?;
        ask!(l, name, cuMemFreeAsync(memory, stream));
        ask!(l, format!("{name}: asked") => OK, cuStreamIsCapturing(stream, &mut status));
        l.say(format!("{name}: status"), status.0);
        super::captures::discard(l, stream);
    }
    begin(l, stream, GLOBAL)?;
    let block = allocate(l, 64, stream)?;
    ask!(l, "once" => OK, cuMemFreeAsync(block, stream));
    ask!(l, "twice", cuMemFreeAsync(block, stream));
    super::captures::discard(l, stream);
    Ok(())
}

fn a_second_executable_graph(l: &mut Lab) -> Run {
    let stream = l.stream(1)?;
    begin(l, stream, GLOBAL)?;
    let block = allocate(l, 64, stream)?;
    need!(l, cuMemFreeAsync(block, stream))?;
    let graph = end(l, stream)?;
    let (mut one, mut two) = (ptr::null_mut(), ptr::null_mut());
    need!(l, cuGraphInstantiateWithFlags(&mut one, graph, 0))?;
    if ask!(l, "a second", cuGraphInstantiateWithFlags(&mut two, graph, 0)) {
        ask!(l, "destroy the second" => OK, cuGraphExecDestroy(two));
    }
    ask!(l, "destroy the first" => OK, cuGraphExecDestroy(one));
    if ask!(l, "one after it" => OK, cuGraphInstantiateWithFlags(&mut two, graph, 0)) {
        ask!(l, "destroy that" => OK, cuGraphExecDestroy(two));
    }
    Ok(())
}

fn what_the_address_is(l: &mut Lab) -> Run {
    use CUpointer_attribute as A;
    let stream = l.stream(1)?;
    begin(l, stream, GLOBAL)?;
    let block = allocate(l, 4096, stream)?;
    let graph = end(l, stream)?;
    let executable = instantiate(l, graph, 0)?;
    for when in ["before the launch", "after the launch", "after the free"] {
        if when == "after the launch" {
            run(l, when, executable, stream);
        } else if when == "after the free" {
            need!(l, cuMemFreeAsync(block, stream))?;
            need!(l, cuStreamSynchronize(stream))?;
        }
        for (name, attribute) in
            [("kind", A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE), ("device", A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)]
        {
            let value = l.pointer::<u32>(attribute, block);
            l.say(format!("{when}: {name}"), value);
        }
        let (mut base, mut size) = (0, 0);
        if ask!(l, format!("{when}: range"), cuMemGetAddressRange_v2(&mut base, &mut size, block)) {
            l.say(format!("{when}: begins there"), base == block);
            l.say(format!("{when}: size"), size);
        }
    }
    Ok(())
}

fn attributes(l: &mut Lab) -> Run {
    use CUgraphMem_attribute as A;
    const ALL: [(&str, A); 4] = [
        ("used", A::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT),
        ("used at most", A::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH),
        ("reserved", A::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT),
        ("reserved at most", A::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH),
    ];
    fn show(l: &mut Lab, when: &str) {
        for (name, attribute) in ALL {
            let mut value = 0_u64;
            let asked = call!(l, cuDeviceGetGraphMemAttribute(0, attribute, ptr::from_mut(&mut value).cast()));
            l.say(format!("{when}: {name}"), if asked == Ok(OK) { value.to_string() } else { text(asked) });
        }
    }
    let stream = l.stream(1)?;
    // Memory that earlier cases left.
    need!(l, cuDeviceGraphMemTrim(0))?;
    for (_, attribute) in [ALL[1], ALL[3]] {
        need!(l, cuDeviceSetGraphMemAttribute(0, attribute, ptr::from_mut(&mut 0_u64).cast()))?;
    }
    show(l, "at first");
    begin(l, stream, GLOBAL)?;
    let block = allocate(l, 3 * MIB, stream)?;
    let graph = end(l, stream)?;
    show(l, "captured");
    let mut executable = ptr::null_mut();
    need!(l, cuGraphInstantiateWithFlags(&mut executable, graph, 0))?;
    show(l, "instantiated");
    need!(l, cuGraphLaunch(executable, stream))?;
    need!(l, cuStreamSynchronize(stream))?;
    show(l, "launched");
    ask!(l, "trim" => OK, cuDeviceGraphMemTrim(0));
    show(l, "trimmed while live");
    need!(l, cuMemFreeAsync(block, stream))?;
    need!(l, cuStreamSynchronize(stream))?;
    show(l, "freed");
    ask!(l, "trim again" => OK, cuDeviceGraphMemTrim(0));
    show(l, "trimmed");
    need!(l, cuGraphExecDestroy(executable))?;
    show(l, "ended");
    for (name, attribute) in ALL {
        for value in [1_u64, 0] {
            let mut value = value;
            let data = ptr::from_mut(&mut value).cast();
            ask!(l, format!("set {name} to {value}"), cuDeviceSetGraphMemAttribute(0, attribute, data));
        }
    }
    show(l, "reset");
    Ok(())
}

fn a_graph_in_a_graph(l: &mut Lab) -> Run {
    let (stream, memory) = (l.stream(1)?, l.alloc(64)?);
    for (name, allocates) in [("plain", false), ("with memory", true)] {
        begin(l, stream, GLOBAL)?;
        need!(l, cuMemsetD8Async(memory, 7, 64, stream))?;
        if allocates {
            let block = allocate(l, 64, stream)?;
            need!(l, cuMemFreeAsync(block, stream))?;
        }
        let inner = end(l, stream)?;
        let inner = instantiate(l, inner, 0)?;
        begin(l, stream, GLOBAL)?;
        let recorded = ask!(l, format!("{name}: launch while recording"), cuGraphLaunch(inner, stream));
        if !recorded {
            super::captures::discard(l, stream);
            continue;
        }
        let outer = end(l, stream)?;
        let mut count = 99;
        ask!(l, format!("{name}: nodes") => OK, cuGraphGetNodes(outer, ptr::null_mut(), &mut count));
        l.say(format!("{name}: number of nodes"), count);
        let outer = instantiate(l, outer, 0)?;
        need!(l, cuMemsetD8_v2(memory, 0, 64))?;
        run(l, name, outer, stream);
        l.bytes::<2>(format!("{name}: memory"), memory);
    }
    Ok(())
}

fn launches_on_two_streams(l: &mut Lab) -> Run {
    let (one, two, memory) = (l.stream(1)?, l.stream(1)?, l.alloc(2 * MIB)?);
    begin(l, one, GLOBAL)?;
    need!(l, cuMemcpyDtoDAsync_v2(memory, memory + MIB as u64, MIB, one))?;
    let graph = end(l, one)?;
    let executable = instantiate(l, graph, 0)?;
    for _ in 0..4 {
        ask!(l, "here" => OK, cuGraphLaunch(executable, one));
        ask!(l, "there" => OK, cuGraphLaunch(executable, two));
    }
    ask!(l, "wait here" => OK, cuStreamSynchronize(one));
    ask!(l, "wait there" => OK, cuStreamSynchronize(two));
    Ok(())
}

fn a_launch_goes_on_when_its_graph_ends(l: &mut Lab) -> Run {
    let (stream, memory) = (l.stream(1)?, l.alloc(MIB)?);
    need!(l, cuMemsetD8_v2(memory, 0, MIB))?;
    begin(l, stream, GLOBAL)?;
    need!(l, cuMemsetD8Async(memory, 3, MIB, stream))?;
    let mut graph = ptr::null_mut();
    need!(l, cuStreamEndCapture(stream, &mut graph))?;
    let mut executable = ptr::null_mut();
    need!(l, cuGraphInstantiateWithFlags(&mut executable, graph, 0))?;
    ask!(l, "destroy the graph" => OK, cuGraphDestroy(graph));
    ask!(l, "launch" => OK, cuGraphLaunch(executable, stream));
    ask!(l, "destroy the executable graph" => OK, cuGraphExecDestroy(executable));
    ask!(l, "wait" => OK, cuStreamSynchronize(stream));
    l.bytes::<2>("memory", memory);
    Ok(())
}

fn copies_with_attributes(l: &mut Lab) -> Run {
    let (stream, memory) = (l.stream(1)?, l.alloc(64)?);
    need!(l, cuMemsetD8_v2(memory, 4, 64))?;
    for (name, order) in [("no order", 0), ("stream order", 1), ("during the call", 2), ("any order", 3), ("unknown", 4)] {
        let mut attributes = CUmemcpyAttributes { srcAccessOrder: CUmemcpySrcAccessOrder(order), ..Default::default() };
        ask!(l, name, cuMemcpyWithAttributesAsync(memory + 32, memory, 32, &mut attributes, stream));
    }
    ask!(l, "wait" => OK, cuStreamSynchronize(stream));
    Ok(())
}
