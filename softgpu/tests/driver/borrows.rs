//! softgpu reports queued work on memory that the CPU has borrowed, independent of the times at which the work runs.

use crate::common::graphs::RELAXED;
use crate::common::{Machine, machine};
use crate::cu;
use cuda_sys::{CUdeviceptr, CUstream};
use softgpu::{Borrow, CpuBorrow, Misuse, Settings};
use std::ptr;
use std::sync::mpsc::channel;

const SIZE: usize = 4096;

/// Two streams and host memory.
struct Host {
    m: Machine,
    one: CUstream,
    two: CUstream,
    bytes: &'static mut [u8],
}

impl Host {
    fn new() -> Self {
        let m = machine(Settings { races: true, ..Settings::default() });
        let (one, two, bytes) = (m.stream(1), m.stream(1), m.host(SIZE));
        Self { m, one, two, bytes }
    }

    fn address(&self) -> usize {
        self.bytes.as_ptr().addr()
    }

    fn borrow(&self, start: usize, borrow: Borrow) -> CpuBorrow {
        CpuBorrow::new(self.address() + start, 100, borrow)
    }

    fn fill(&self, stream: CUstream, start: usize) {
        assert_eq!(cu!(self.m, cuMemsetD8Async((self.address() + start) as CUdeviceptr, 7, 100, stream)), 0);
    }

    /// Reads the host's bytes on a stream.
    fn read(&self, stream: CUstream, to: CUdeviceptr) {
        assert_eq!(cu!(self.m, cuMemcpyHtoDAsync_v2(to, self.bytes.as_ptr().cast(), 100, stream)), 0);
    }

    fn synchronize(&self, stream: CUstream) {
        assert_eq!(cu!(self.m, cuStreamSynchronize(stream)), 0);
    }

    /// The reports: offset, later use, earlier use.
    fn reported(&self) -> Vec<(usize, &'static str, &'static str)> {
        let told = softgpu::misuse().into_iter().filter(|report| report.misuse == Misuse::Borrowed);
        told.map(|report| (report.address as usize - self.address(), report.call, report.other.unwrap())).collect()
    }

    fn finish(self) {
        let Self { m, one, two, bytes } = self;
        for stream in [one, two] {
            assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
            assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
        }
        assert_eq!(cu!(m, cuMemFreeHost(bytes.as_mut_ptr().cast())), 0);
        m.finish();
    }
}

#[test]
fn work_queued_on_cpu_borrowed_memory_reports_both_accesses() {
    let h = Host::new();
    let device = h.m.alloc(SIZE);
    let reading = h.borrow(0, Borrow::Read);
    h.read(h.one, device);
    assert_eq!(h.reported(), [], "both read");
    h.fill(h.one, 50);
    assert_eq!(h.reported(), [(50, "a fill", "the CPU's borrow to read")]);
    let text = softgpu::misuse()[0].to_string();
    assert!(text.contains("the CPU has borrowed it") && text.contains("after the CPU's borrow to read"), "{text}");
    h.synchronize(h.one);
    drop(reading);
    let writing = h.borrow(0, Borrow::Write);
    h.read(h.two, device);
    assert_eq!(h.reported()[1..], [(0, "a copy", "the CPU's borrow to write")]);
    h.synchronize(h.two);
    drop(writing);
    h.fill(h.one, 0);
    h.read(h.one, device);
    assert_eq!(h.reported().len(), 2, "the borrows are over");
    h.synchronize(h.one);
    assert_eq!(cu!(h.m, cuMemFree_v2(device)), 0);
    h.finish();
}

/// A captured join orders nothing outside the graph: the CPU waits for the wrong stream, though the work of the right
/// one is done in every run of this test.
#[test]
fn a_borrow_after_a_join_that_was_only_captured_is_reported() {
    let h = Host::new();
    h.fill(h.one, 0);
    assert_eq!(cu!(h.m, cuStreamBeginCapture_v2(h.two, RELAXED)), 0);
    let mut event = ptr::null_mut();
    assert_eq!(cu!(h.m, cuEventCreate(&mut event, 2)), 0);
    // The event must come from the capturing stream: another stream's event would be refused and would end the capture.
    assert_eq!(cu!(h.m, cuEventRecord(event, h.two)), 0);
    assert_eq!(
        cu!(h.m, cuStreamWaitEvent(h.one, event, 0)),
        0,
        "the stream with the work is in the capture from here on"
    );
    let mut event_of_join = ptr::null_mut();
    assert_eq!(cu!(h.m, cuEventCreate(&mut event_of_join, 2)), 0);
    assert_eq!(cu!(h.m, cuEventRecord(event_of_join, h.one)), 0);
    assert_eq!(cu!(h.m, cuStreamWaitEvent(h.two, event_of_join, 0)), 0);
    let mut graph = ptr::null_mut();
    assert_eq!(cu!(h.m, cuStreamEndCapture(h.two, &mut graph)), 0);
    h.synchronize(h.two);
    while cu!(h.m, cuStreamQuery(h.two)) != 0 {}
    drop(h.borrow(0, Borrow::Read));
    assert_eq!(h.reported(), [(0, "the CPU's borrow to read", "a fill")]);
    h.synchronize(h.one);
    drop(h.borrow(0, Borrow::Write));
    assert_eq!(h.reported().len(), 1, "the host has waited for the right stream");
    for event in [event, event_of_join] {
        assert_eq!(cu!(h.m, cuEventDestroy_v2(event)), 0);
    }
    assert_eq!(cu!(h.m, cuGraphDestroy(graph)), 0);
    h.finish();
}

/// The driver refuses to wait for a capturing stream, so nobody has waited for the copy.
#[test]
fn a_loan_that_ends_before_its_copy_was_waited_for_is_reported() {
    let h = Host::new();
    let device = h.m.alloc(SIZE);
    let lent = h.borrow(0, Borrow::LendToWrite);
    let from = h.address();
    assert_eq!(cu!(h.m, cuMemcpyDtoHAsync_v2(ptr::with_exposed_provenance_mut(from), device, 100, h.one)), 0);
    assert_eq!(h.reported(), [], "the copy that it was lent for");
    assert_eq!(cu!(h.m, cuStreamBeginCapture_v2(h.one, RELAXED)), 0);
    assert_eq!(cu!(h.m, cuStreamSynchronize(h.one)), 900, "the stream captures");
    drop(lent);
    assert_eq!(h.reported(), [(0, "the CPU's borrow for a copy that writes", "a copy")]);
    let mut graph = ptr::null_mut();
    let _ = cu!(h.m, cuStreamEndCapture(h.one, &mut graph));
    h.synchronize(h.one);
    drop(h.borrow(0, Borrow::LendToWrite));
    assert_eq!(h.reported().len(), 1);
    if !graph.is_null() {
        assert_eq!(cu!(h.m, cuGraphDestroy(graph)), 0);
    }
    assert_eq!(cu!(h.m, cuMemFree_v2(device)), 0);
    h.finish();
}

/// The CPU fills a frame while the work that reads the frame waits for a flag in memory.
#[test]
fn work_behind_a_word_of_memory_is_compared_when_it_runs() {
    for early in [false, true] {
        let h = Host::new();
        let device = h.m.alloc(SIZE);
        let flag = h.address() + 2048;
        let writing = h.borrow(0, Borrow::Write);
        assert_eq!(cu!(h.m, cuStreamWaitValue32_v2(h.one, flag as CUdeviceptr, 1, 0)), 0);
        h.read(h.one, device);
        assert_eq!(h.reported(), [], "the work waits for the flag");
        let mut writing = Some(writing);
        if !early {
            writing = None;
        }
        // SAFETY: the word lies in live memory, and softgpu accesses it as a device does.
        unsafe { ptr::with_exposed_provenance_mut::<u32>(flag).write_volatile(1) };
        h.synchronize(h.one);
        let expected = [(0, "a copy", "the CPU's borrow to write")];
        assert_eq!(h.reported(), if early { &expected[..] } else { &[] }, "{early}");
        drop(writing);
        assert_eq!(cu!(h.m, cuMemFree_v2(device)), 0);
        h.finish();
    }
}

#[test]
fn calls_that_wait_use_what_their_caller_has_borrowed() {
    let h = Host::new();
    let device = h.m.alloc(SIZE);
    let writing = h.borrow(0, Borrow::Write);
    let to = ptr::with_exposed_provenance_mut(h.address());
    assert_eq!(cu!(h.m, cuMemcpyDtoH_v2(to, device, 100)), 0);
    drop(writing);
    assert_eq!(h.reported(), []);
    assert_eq!(cu!(h.m, cuMemFree_v2(device)), 0);
    h.finish();
}

#[test]
fn borrows_end_with_their_memory_and_where_a_test_ends_them() {
    let h = Host::new();
    std::mem::forget(h.borrow(0, Borrow::Write));
    CpuBorrow::end_all(h.address(), 1);
    h.fill(h.one, 0);
    h.synchronize(h.one);
    assert_eq!(h.reported(), []);
    std::mem::forget(h.borrow(0, Borrow::Write));
    let m = &h.m;
    assert_eq!(cu!(m, cuMemFreeHost(ptr::with_exposed_provenance_mut(h.address()))), 0);
    let again = m.host(SIZE);
    let h = Host { bytes: again, ..h };
    h.fill(h.one, 0);
    h.synchronize(h.one);
    assert_eq!(h.reported(), []);
    h.finish();
}

#[test]
fn without_the_setting_nothing_is_looked_at() {
    let m = machine(Settings::default());
    let (stream, bytes) = (m.stream(1), m.host(SIZE));
    let borrow = CpuBorrow::new(bytes.as_ptr().addr(), SIZE, Borrow::Write);
    let (open, gate) = channel::<()>();
    m.launch(stream, move || gate.recv().unwrap());
    assert_eq!(cu!(m, cuMemsetD8Async(bytes.as_ptr().addr() as CUdeviceptr, 1, SIZE, stream)), 0);
    assert_eq!(softgpu::misuse(), []);
    open.send(()).unwrap();
    drop(borrow);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    assert_eq!(cu!(m, cuMemFreeHost(bytes.as_mut_ptr().cast())), 0);
    m.finish();
}
