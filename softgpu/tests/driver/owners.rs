//! softgpu reports the CPU's accesses beside the work of former owners, and reads of bytes that nothing has written.

use crate::common::graphs::RELAXED;
use crate::common::{Machine, machine};
use crate::cu;
use cuda_sys::{CUdeviceptr, CUgraph, CUstream};
use softgpu::{Borrow, CpuBorrow, Misuse, Settings};
use std::ptr;

const SIZE: usize = 4096;

/// A stream, pinned memory and device memory.
struct Memory {
    m: Machine,
    stream: CUstream,
    pinned: CUdeviceptr,
    device: CUdeviceptr,
}

impl Memory {
    fn new() -> Self {
        let m = machine(Settings { races: true, ..Settings::default() });
        let (stream, pinned, device) = (m.stream(1), m.host(SIZE).as_ptr().addr() as CUdeviceptr, m.alloc(SIZE));
        Self { m, stream, pinned, device }
    }

    fn access(&self, start: usize, borrow: Borrow) {
        drop(CpuBorrow::new(self.pinned as usize + start, 100, borrow));
    }

    fn fill(&self, memory: CUdeviceptr) {
        assert_eq!(cu!(self.m, cuMemsetD8Async(memory, 7, 100, self.stream)), 0);
    }

    fn synchronize(&self) {
        assert_eq!(cu!(self.m, cuStreamSynchronize(self.stream)), 0);
    }

    /// Records a fill that no launch has done yet.
    fn record(&self, memory: CUdeviceptr) -> CUgraph {
        self.m.begin(self.stream, RELAXED);
        self.fill(memory);
        self.m.end(self.stream)
    }

    fn launch(&self, graph: CUgraph) {
        let executable = self.m.ready(graph, 0);
        self.m.run(executable, self.stream);
        assert_eq!(cu!(self.m, cuGraphExecDestroy(executable)), 0);
    }

    /// Copies 100 bytes to the CPU's own memory.
    fn download(&self, memory: CUdeviceptr) {
        self.m.read(memory, 100);
    }

    /// The reports: misuse, offset in the pinned memory, later use, earlier use.
    fn reported(&self) -> Vec<(Misuse, u64, &'static str, &'static str)> {
        let told = softgpu::misuse().into_iter();
        told.map(|one| (one.misuse, one.address.wrapping_sub(self.pinned), one.call, one.other.unwrap())).collect()
    }

    fn finish(self) {
        let Self { m, stream, pinned, device } = self;
        assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
        assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
        assert_eq!(cu!(m, cuMemFreeHost(ptr::with_exposed_provenance_mut(pinned as usize))), 0);
        assert_eq!(cu!(m, cuMemFree_v2(device)), 0);
        m.finish();
    }
}

#[test]
fn a_shared_access_beside_work_of_a_former_owner_is_reported() {
    let memory = Memory::new();
    memory.fill(memory.pinned);
    for borrow in [Borrow::SharedRead, Borrow::SharedWrite] {
        memory.access(50, borrow);
        assert_eq!(memory.reported(), [], "the work of the owner");
    }
    CpuBorrow::new_owner(memory.pinned as usize, SIZE);
    memory.access(50, Borrow::SharedRead);
    memory.access(100, Borrow::SharedRead);
    memory.access(50, Borrow::SharedWrite);
    let of_former = |call| (Misuse::FormerOwner, 50, call, "a fill");
    let both = [of_former("the CPU's shared read"), of_former("the CPU's shared write")];
    assert_eq!(memory.reported(), both);
    memory.synchronize();
    memory.fill(memory.pinned);
    memory.access(50, Borrow::SharedWrite);
    assert_eq!(memory.reported(), both);
    memory.finish();
}

#[test]
fn a_former_owners_read_forbids_the_cpu_to_write() {
    let memory = Memory::new();
    assert_eq!(cu!(memory.m, cuMemcpyAsync(memory.device, memory.pinned, 100, memory.stream)), 0);
    CpuBorrow::new_owner(memory.pinned as usize, SIZE);
    memory.access(0, Borrow::SharedRead);
    memory.access(0, Borrow::Read);
    assert_eq!(memory.reported(), []);
    memory.access(0, Borrow::SharedWrite);
    memory.access(0, Borrow::Write);
    let of_former = |call| (Misuse::FormerOwner, 0, call, "a copy");
    assert_eq!(memory.reported(), [of_former("the CPU's shared write"), of_former("the CPU's borrow to write")]);
    memory.finish();
}

#[test]
fn what_a_capture_only_recorded_cannot_be_read() {
    let memory = Memory::new();
    let graph = memory.record(memory.pinned);
    memory.access(0, Borrow::Read);
    memory.access(50, Borrow::SharedRead);
    memory.access(100, Borrow::SharedRead);
    let never = |at, call| (Misuse::NeverRan, at, call, "a fill");
    let by_cpu = [never(0, "the CPU's borrow to read"), never(50, "the CPU's shared read")];
    assert_eq!(memory.reported(), by_cpu);
    memory.download(memory.pinned);
    assert_eq!(cu!(memory.m, cuMemcpyAsync(memory.device, memory.pinned, 100, memory.stream)), 0);
    assert_eq!(memory.reported()[2..], [never(0, "a copy"), never(0, "a copy")]);
    memory.launch(graph);
    memory.access(0, Borrow::Read);
    memory.download(memory.pinned);
    assert_eq!(memory.reported().len(), 4, "a launch writes");
    memory.finish();
}

#[test]
fn what_was_written_before_can_be_read_beside_a_capture() {
    let memory = Memory::new();
    memory.fill(memory.device);
    memory.access(0, Borrow::SharedWrite);
    memory.synchronize();
    for place in [memory.device, memory.pinned] {
        let graph = memory.record(place);
        memory.download(place);
        assert_eq!(cu!(memory.m, cuGraphDestroy(graph)), 0);
    }
    assert_eq!(memory.reported(), []);
    // To a new owner, the bytes are as those of a new allocation.
    CpuBorrow::new_owner(memory.device as usize, SIZE);
    memory.download(memory.device);
    assert_eq!(memory.reported(), [], "nothing is recorded");
    let graph = memory.record(memory.device);
    memory.download(memory.device);
    assert_eq!(memory.reported().len(), 1);
    memory.m.write(memory.device, &[1; 100]);
    memory.download(memory.device);
    assert_eq!(memory.reported().len(), 1, "a copy has written them");
    assert_eq!(cu!(memory.m, cuGraphDestroy(graph)), 0);
    memory.finish();
}

#[test]
fn the_launch_of_a_recorded_kernel_writes() {
    let memory = Memory::new();
    memory.m.begin(memory.stream, RELAXED);
    memory.m.increment(memory.device, 25, memory.stream);
    let graph = memory.m.end(memory.stream);
    memory.download(memory.device);
    let told = memory.reported();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].0, told[0].2, told[0].3), (Misuse::NeverRan, "a copy", "increment_u32"));
    memory.launch(graph);
    memory.download(memory.device);
    assert_eq!(memory.reported().len(), 1);
    memory.finish();
}

#[test]
fn registered_memory_comes_with_contents() {
    let memory = Memory::new();
    let mut own = vec![3_u8; SIZE];
    assert_eq!(cu!(memory.m, cuMemHostRegister_v2(own.as_mut_ptr().cast(), SIZE, 0)), 0);
    let graph = memory.record(own.as_ptr().addr() as CUdeviceptr);
    drop(CpuBorrow::new(own.as_ptr().addr(), SIZE, Borrow::Read));
    assert_eq!(memory.reported(), []);
    assert_eq!(cu!(memory.m, cuGraphDestroy(graph)), 0);
    assert_eq!(cu!(memory.m, cuMemHostUnregister(own.as_mut_ptr().cast())), 0);
    memory.finish();
}
