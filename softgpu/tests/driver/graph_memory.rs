//! Memory that graphs allocate: its address, its life, its accounting, and its misuse.

use crate::common::graphs::{GLOBAL, MODES, RELAXED, VALUE, done};
use crate::common::machine;
use crate::cu;
use cuda_sys::{CUgraphMem_attribute, CUresult};
use softgpu::{Kind, Misuse, Settings};
use std::ptr;

#[test]
fn graph_memory_address_is_fixed_and_valid_from_launch_to_free() {
    for mode in MODES {
        let m = machine(Settings::default());
        let (stream, out) = (m.stream(1), m.alloc(64));
        m.write(out, &[0; 64]);
        m.begin(stream, mode);
        let block = m.allocate(64, stream);
        assert_eq!(m.allocate(0, stream), 0);
        assert_eq!(cu!(m, cuMemcpyDtoDAsync_v2(block, out, 64, stream)), 0);
        for _ in 0..3 {
            m.increment(block, 16, stream);
        }
        assert_eq!(cu!(m, cuMemcpyDtoDAsync_v2(out, block, 64, stream)), 0);
        assert_eq!(cu!(m, cuMemFreeAsync(block, stream)), 0);
        let graph = m.end(stream);
        assert_eq!(m.nodes(graph), 7);
        assert_eq!(m.graph_memory(), [0; 4]);
        let executable = m.instantiate(graph, 0);
        // A graph with memory has one executable graph at a time.
        let mut second = ptr::null_mut();
        let refused = cu!(m, cuGraphInstantiateWithFlags(&mut second, graph, 0));
        assert_eq!(refused, CUresult::CUDA_ERROR_NOT_SUPPORTED.0);
        m.run(executable, stream);
        assert_eq!(m.read(out, 4), [3, 0, 0, 0]);
        m.run(executable, stream);
        assert_eq!(m.read(out, 4), [6, 0, 0, 0]);
        assert_eq!(softgpu::ledger().count(Kind::GraphMemory), 0);
        assert_eq!(cu!(m, cuGraphExecDestroy(executable)), 0);
        m.ready(graph, 0);
        assert!(softgpu::misuse().is_empty(), "{:?}", softgpu::misuse());
        done(m);
    }
}

#[test]
fn graph_launch_queued_behind_a_free_of_its_memory_is_no_misuse() {
    let m = machine(Settings { seed: Some(3), ..Settings::default() });
    let stream = m.stream(1);
    m.begin(stream, GLOBAL);
    let block = m.allocate(4096, stream);
    for _ in 0..4 {
        assert_eq!(cu!(m, cuMemsetD8Async(block, 7, 4096, stream)), 0);
    }
    let executable = m.ready(m.end(stream), 0);
    for _ in 0..30 {
        m.run(executable, stream);
        assert_eq!(cu!(m, cuMemFreeAsync(block, stream)), 0);
    }
    assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
    assert_eq!(cu!(m, cuGraphExecDestroy(executable)), 0);
    assert_eq!(softgpu::misuse(), []);
    done(m);
}

#[test]
fn memory_that_a_graph_does_not_free_stays_until_it_is_freed() {
    let m = machine(Settings::default());
    let stream = m.stream(1);
    m.begin(stream, GLOBAL);
    let block = m.allocate(4096, stream);
    assert_eq!(cu!(m, cuMemsetD8Async(block, 7, 4096, stream)), 0);
    let executable = m.ready(m.end(stream), 0);
    // Before a launch, the address has no memory.
    let mut bytes = [0_u8; 4];
    assert_eq!(cu!(m, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), block, 4)), VALUE);
    for asynchronous in [true, false] {
        m.run(executable, stream);
        assert_eq!((m.read(block, 2), softgpu::ledger().count(Kind::GraphMemory)), (vec![7, 7], 1));
        // The block is live: another launch would allocate the address twice.
        assert_eq!(cu!(m, cuGraphLaunch(executable, stream)), VALUE);
        let freed = if asynchronous { cu!(m, cuMemFreeAsync(block, stream)) } else { cu!(m, cuMemFree_v2(block)) };
        assert_eq!((freed, cu!(m, cuStreamSynchronize(stream))), (0, 0));
        assert_eq!((cu!(m, cuMemFreeAsync(block, stream)), cu!(m, cuMemFree_v2(block))), (VALUE, VALUE));
    }
    let named: Vec<_> = softgpu::misuse().iter().map(|report| report.misuse).collect();
    let twice = [Misuse::DoubleFree; 2];
    assert_eq!(named, [&[Misuse::UseAfterFree], &twice[..], &twice[..]].concat());
    // A live block outlives the graph.
    m.run(executable, stream);
    assert_eq!(cu!(m, cuGraphExecDestroy(executable)), 0);
    assert_eq!((m.read(block, 1), cu!(m, cuMemFree_v2(block))), (vec![7], 0));
    assert_eq!(cu!(m, cuMemGetAddressRange_v2(ptr::null_mut(), ptr::null_mut(), block)), 500);
    done(m);
}

#[test]
fn with_auto_free_a_launch_takes_back_what_the_one_before_left() {
    let m = machine(Settings::default());
    let (stream, input) = (m.stream(1), m.alloc(64));
    m.begin(stream, GLOBAL);
    let output = m.allocate(64, stream);
    assert_eq!(cu!(m, cuMemcpyDtoDAsync_v2(output, input, 64, stream)), 0);
    m.increment(output, 16, stream);
    let executable = m.ready(m.end(stream), 1);
    for round in [0, 5] {
        m.write(input, &[round; 64]);
        m.run(executable, stream);
        assert_eq!(m.read(output, 4), [round + 1, round, round, round]);
        let used = m.graph_memory()[0];
        assert!(used > 0 && used == m.graph_memory()[1]);
    }
    // Also without waits between the launches.
    for _ in 0..20 {
        assert_eq!(cu!(m, cuGraphLaunch(executable, stream)), 0);
    }
    assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
    assert_eq!((m.read(output, 1), cu!(m, cuMemFreeAsync(output, stream))), (vec![6], 0));
    assert!(softgpu::misuse().is_empty(), "{:?}", softgpu::misuse());
    done(m);
}

#[test]
fn graph_memory_attributes_track_use_and_reset_only_high_marks() {
    let m = machine(Settings { memory: 1 << 20, ..Settings::default() });
    let (stream, mut free) = (m.stream(1), 0);
    m.begin(stream, GLOBAL);
    let block = m.allocate(1 << 19, stream);
    let executable = m.ready(m.end(stream), 0);
    m.run(executable, stream);
    let [used, used_high, reserved, reserved_high] = m.graph_memory();
    // All four attributes count reserved memory, in units of 32 MiB.
    assert_eq!([used, used_high, reserved, reserved_high], [32 << 20; 4]);
    assert_eq!((cu!(m, cuMemGetInfo_v2(&mut free, ptr::null_mut())), free), (0, 1 << 19));
    // Freed memory stays with the graphs until a trim, and a trim leaves live memory.
    assert_eq!((cu!(m, cuDeviceGraphMemTrim(0)), m.graph_memory()[0]), (0, used));
    assert_eq!((cu!(m, cuMemFree_v2(block)), m.graph_memory()[0]), (0, used));
    assert_eq!(cu!(m, cuDeviceGraphMemTrim(0)), 0);
    assert_eq!(m.graph_memory(), [0, used_high, 0, reserved_high]);
    assert_eq!((cu!(m, cuMemGetInfo_v2(&mut free, ptr::null_mut())), free), (0, 1 << 20));
    for which in [1, 3] {
        let attribute = CUgraphMem_attribute(which);
        assert_eq!(cu!(m, cuDeviceSetGraphMemAttribute(0, attribute, ptr::from_mut(&mut 1_u64).cast())), VALUE);
        assert_eq!(cu!(m, cuDeviceSetGraphMemAttribute(0, attribute, ptr::from_mut(&mut 0_u64).cast())), 0);
    }
    assert_eq!(m.graph_memory(), [0; 4]);
    // A launch without enough memory fails and leaves nothing behind.
    let all = m.alloc(1 << 20);
    assert_eq!(cu!(m, cuGraphLaunch(executable, stream)), CUresult::CUDA_ERROR_OUT_OF_MEMORY.0);
    assert_eq!((cu!(m, cuMemFree_v2(all)), m.graph_memory()), (0, [0; 4]));
    m.run(executable, stream);
    assert_eq!(cu!(m, cuMemFree_v2(block)), 0);
    done(m);
}

#[test]
fn graph_refuses_to_free_foreign_memory_or_a_block_twice() {
    let m = machine(Settings::default());
    let (stream, plain) = (m.stream(1), m.allocate(64, ptr::null_mut()));
    m.begin(stream, RELAXED);
    // The free is refused, and the capture continues.
    assert_eq!((cu!(m, cuMemFreeAsync(plain, stream)), m.status(stream)), (VALUE, 1));
    let block = m.allocate(64, stream);
    assert_eq!((cu!(m, cuMemFreeAsync(block, stream)), cu!(m, cuMemFreeAsync(block, stream))), (0, VALUE));
    m.lost(stream);
    // The address ended with the capture.
    assert_eq!(cu!(m, cuMemGetAddressRange_v2(ptr::null_mut(), ptr::null_mut(), block)), 500);
    assert_eq!(cu!(m, cuMemFree_v2(plain)), 0);
    done(m);
}

#[test]
fn graph_launch_after_free_is_a_use_after_free_misuse() {
    let m = machine(Settings::default());
    let (stream, memory) = (m.stream(1), m.alloc(64));
    m.begin(stream, GLOBAL);
    assert_eq!(cu!(m, cuMemsetD8Async(memory, 1, 64, stream)), 0);
    let executable = m.ready(m.end(stream), 0);
    // A graph that is not launched does not count as work on the memory.
    assert_eq!((cu!(m, cuMemFree_v2(memory)), softgpu::misuse().len()), (0, 0));
    assert_eq!(cu!(m, cuGraphLaunch(executable, stream)), 0);
    assert_eq!(softgpu::misuse().iter().map(|report| report.misuse).collect::<Vec<_>>(), [Misuse::UseAfterFree]);
    assert_eq!(cu!(m, cuStreamSynchronize(stream)), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS.0);
    m.finish();
}
