//! softgpu reports unordered work of two streams on the same bytes, independent of the times at which the work runs.

use crate::common::graphs::RELAXED;
use crate::common::{Machine, machine};
use crate::cu;
use cuda_sys::{CUdeviceptr, CUevent, CUstream};
use softgpu::{Misuse, MisuseReport, Settings};
use std::ptr;
use std::sync::mpsc::channel;

const SIZE: usize = 4096;

/// Two non-blocking streams, and memory.
struct Two {
    m: Machine,
    one: CUstream,
    two: CUstream,
    memory: CUdeviceptr,
}

impl Two {
    fn new() -> Self {
        Self::of(1)
    }

    fn of(flags: u32) -> Self {
        let m = machine(Settings { races: true, ..Settings::default() });
        let (one, two, memory) = (m.stream(flags), m.stream(flags), m.alloc(SIZE));
        Self { m, one, two, memory }
    }

    /// Fills bytes of the memory on a stream.
    fn fill(&self, stream: CUstream, start: u64, size: usize) {
        assert_eq!(cu!(self.m, cuMemsetD8Async(self.memory + start, 1, size, stream)), 0);
    }

    /// Makes one stream wait for the present work of another.
    fn join(&self, waiter: CUstream, other: CUstream) {
        let event = self.event(other);
        assert_eq!(cu!(self.m, cuStreamWaitEvent(waiter, event, 0)), 0);
        assert_eq!(cu!(self.m, cuEventDestroy_v2(event)), 0);
    }

    /// A new event, recorded after a stream's present work.
    fn event(&self, stream: CUstream) -> CUevent {
        let mut event = ptr::null_mut();
        assert_eq!(cu!(self.m, cuEventCreate(&mut event, 2)), 0);
        assert_eq!(cu!(self.m, cuEventRecord(event, stream)), 0);
        event
    }

    /// The reports: address, later call, earlier call.
    fn reported() -> Vec<(u64, &'static str, &'static str)> {
        // Other kinds of reports depend on the times at which work ran.
        let no_order = |report: &MisuseReport| report.misuse == Misuse::NoOrder;
        let told = softgpu::misuse().into_iter().filter(no_order);
        told.map(|report| (report.address, report.call, report.other.unwrap())).collect()
    }

    /// Ends the work, and checks the reports: offset in the memory, later call, earlier call.
    fn finish(self, expected: &[(u64, &str, &str)]) {
        let Self { m, one, two, memory } = self;
        let told = Self::reported();
        for stream in [one, two] {
            assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
            assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
        }
        assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
        let expected: Vec<_> = expected.iter().map(|(offset, call, other)| (memory + offset, *call, *other)).collect();
        assert_eq!(told, expected);
        assert_eq!(Self::reported(), told, "nothing more at the end");
        m.finish();
    }
}

#[test]
fn unordered_work_on_two_streams_is_reported_after_completion() {
    let t = Two::new();
    t.fill(t.one, 0, 100);
    // The work is done, but the program has not waited for it.
    std::thread::sleep(std::time::Duration::from_millis(20));
    t.fill(t.two, 50, 100);
    t.fill(t.two, 100, 10);
    let text = softgpu::misuse()[0].to_string();
    assert!(text.starts_with("memory used by unordered work on two streams: 0x"), "{text}");
    assert!(text.contains(" in a fill, after a fill, block #"), "{text}");
    t.finish(&[(50, "a fill", "a fill")]);
}

#[test]
fn an_event_orders_what_was_before_it_and_nothing_later() {
    let t = Two::new();
    t.fill(t.one, 0, 100);
    t.join(t.two, t.one);
    t.fill(t.one, 100, 100);
    t.fill(t.two, 0, 100);
    t.fill(t.two, 150, 1);
    // That does not make the first stream wait for the second.
    t.fill(t.one, 10, 1);
    t.finish(&[(150, "a fill", "a fill"), (10, "a fill", "a fill")]);
}

#[test]
fn copies_order_both_their_sides_and_reads_need_none_among_them() {
    let t = Two::new();
    let (other, target) = (t.memory + 2048, t.memory + 1024);
    let copy = |to: CUdeviceptr, from: CUdeviceptr, size: usize, stream| {
        assert_eq!(cu!(t.m, cuMemcpyAsync(to, from, size, stream)), 0);
    };
    // Two reads of the same bytes.
    copy(other, t.memory, 100, t.one);
    copy(other + 100, t.memory, 100, t.two);
    // A write to bytes that the other stream reads.
    t.fill(t.two, 99, 1);
    // A read of bytes that the other stream writes.
    copy(target, other + 100, 1, t.one);
    t.finish(&[(99, "a fill", "a copy"), (2148, "a copy", "a copy")]);
}

#[test]
fn rows_touch_their_bytes_alone() {
    let t = Two::new();
    // Columns of a matrix of 16 columns; each stream has some.
    assert_eq!(cu!(t.m, cuMemsetD2D8Async(t.memory, 16, 1, 8, 10, t.one)), 0);
    assert_eq!(cu!(t.m, cuMemsetD2D8Async(t.memory + 8, 16, 2, 8, 10, t.two)), 0);
    assert_eq!(cu!(t.m, cuMemsetD2D8Async(t.memory + 15, 16, 2, 8, 10, t.two)), 0);
    t.finish(&[(16, "a fill", "a fill")]);
}

#[test]
fn whatever_the_host_waits_for_comes_before_what_it_begins() {
    type Wait = fn(&Two);
    let waits: [Wait; 7] = [
        |t| assert_eq!(cu!(t.m, cuStreamSynchronize(t.one)), 0),
        |t| assert_eq!(cu!(t.m, cuCtxSynchronize()), 0),
        |t| while cu!(t.m, cuStreamQuery(t.one)) != 0 {},
        |t| {
            let event = t.event(t.one);
            assert_eq!(cu!(t.m, cuEventSynchronize(event)), 0);
            assert_eq!(cu!(t.m, cuEventDestroy_v2(event)), 0);
        },
        |t| {
            let event = t.event(t.one);
            while cu!(t.m, cuEventQuery(event)) != 0 {}
            assert_eq!(cu!(t.m, cuEventDestroy_v2(event)), 0);
        },
        |t| {
            // A copy to pageable memory returns only when it is done.
            let mut seen = [0_u8; 4];
            let to = seen.as_mut_ptr().expose_provenance() as CUdeviceptr;
            assert_eq!(cu!(t.m, cuMemcpyAsync(to, t.memory, 4, t.one)), 0);
        },
        |t| {
            // A host function tells the host.
            let (sender, receiver) = channel();
            t.m.launch(t.one, move || sender.send(()).unwrap());
            receiver.recv().unwrap();
        },
    ];
    for wait in waits {
        let t = Two::new();
        t.fill(t.one, 0, 100);
        wait(&t);
        t.fill(t.two, 0, 100);
        t.finish(&[]);
    }
}

#[test]
fn context_synchronize_orders_the_work_of_a_destroyed_stream() {
    for waits in [false, true] {
        let t = Two::new();
        let gone = t.m.stream(1);
        t.fill(gone, 0, 100);
        assert_eq!(cu!(t.m, cuStreamDestroy_v2(gone)), 0);
        // The work is done by now, but the program cannot know that.
        std::thread::sleep(std::time::Duration::from_millis(20));
        if waits {
            assert_eq!(cu!(t.m, cuCtxSynchronize()), 0);
        }
        t.fill(t.two, 0, 100);
        t.finish(if waits { &[] } else { &[(0, "a fill", "a fill")] });
    }
}

#[test]
fn the_default_stream_and_blocking_streams_wait_for_each_other() {
    let t = Two::of(0);
    t.fill(t.one, 0, 100);
    t.fill(ptr::null_mut(), 0, 100);
    t.fill(t.two, 0, 100);
    assert_eq!(cu!(t.m, cuMemsetD8_v2(t.memory, 1, 100)), 0);
    t.fill(t.one, 0, 100);
    // Two blocking streams do not wait for each other.
    t.fill(t.two, 0, 1);
    t.finish(&[(0, "a fill", "a fill")]);

    // A synchronous fill waits for the default stream only, so it is not ordered with a non-blocking stream.
    let t = Two::new();
    t.fill(t.one, 0, 100);
    assert_eq!(cu!(t.m, cuMemsetD8_v2(t.memory, 1, 100)), 0);
    t.finish(&[(0, "a fill", "a fill")]);
}

#[test]
fn memory_of_a_pool_begins_and_ends_in_the_order_of_a_stream() {
    let t = Two::new();
    let mut block = 0;
    assert_eq!(cu!(t.m, cuMemAllocAsync(&mut block, 256, t.one)), 0);
    // The memory does not exist yet for the other stream.
    assert_eq!(cu!(t.m, cuMemsetD8Async(block, 1, 256, t.two)), 0);
    t.join(t.two, t.one);
    assert_eq!(cu!(t.m, cuMemsetD8Async(block, 1, 256, t.two)), 0);
    // The free does not wait for the other stream.
    assert_eq!(cu!(t.m, cuStreamSynchronize(t.one)), 0);
    assert_eq!(cu!(t.m, cuMemFreeAsync(block, t.one)), 0);
    assert_eq!(Two::reported(), [(block, "a fill", "cuMemAllocAsync"), (block, "cuMemFreeAsync", "a fill")]);
    assert_eq!(cu!(t.m, cuCtxSynchronize()), 0);
}

#[test]
fn memory_that_was_freed_begins_anew_for_who_gets_it() {
    let t = Two::new();
    for _ in 0..4 {
        for stream in [t.one, t.two] {
            let mut block = 0;
            assert_eq!(cu!(t.m, cuMemAllocAsync(&mut block, 256, stream)), 0);
            assert_eq!(cu!(t.m, cuMemsetD8Async(block, 1, 256, stream)), 0);
            assert_eq!(cu!(t.m, cuMemFreeAsync(block, stream)), 0);
            let plain = t.m.alloc(256);
            assert_eq!(cu!(t.m, cuMemsetD8Async(plain, 1, 256, stream)), 0);
            assert_eq!(cu!(t.m, cuStreamSynchronize(stream)), 0);
            assert_eq!(cu!(t.m, cuMemFree_v2(plain)), 0);
        }
    }
    t.finish(&[]);
}

#[test]
fn a_launch_touches_what_its_graph_does() {
    let t = Two::new();
    t.m.begin(t.one, RELAXED);
    t.fill(t.one, 0, 100);
    let graph = t.m.end(t.one);
    let executable = t.m.ready(graph, 0);
    // Recording does not touch the memory.
    t.fill(t.two, 0, 10);
    t.m.run(executable, t.one);
    assert_eq!(cu!(t.m, cuStreamSynchronize(t.one)), 0);
    // A launch waits for the launch before it, on any stream.
    t.m.run(executable, t.one);
    t.m.run(executable, t.two);
    assert_eq!(cu!(t.m, cuStreamSynchronize(t.two)), 0);
    assert_eq!(cu!(t.m, cuGraphExecDestroy(executable)), 0);
    t.finish(&[(0, "a graph's fill", "a fill")]);
}

#[test]
fn nothing_is_said_of_streams_that_wait_for_words_in_memory() {
    let t = Two::new();
    let word = t.memory + 1024;
    assert_eq!(cu!(t.m, cuMemsetD8_v2(word, 0, 4)), 0);
    // The second stream waits for a word that the first one writes later.
    assert_eq!(cu!(t.m, cuStreamWaitValue32_v2(t.two, word, 1, 0)), 0);
    t.fill(t.two, 0, 100);
    t.fill(t.one, 0, 100);
    assert_eq!(cu!(t.m, cuStreamWriteValue32_v2(t.one, word, 1, 0)), 0);
    assert_eq!(cu!(t.m, cuStreamSynchronize(t.two)), 0);
    // From here on the order is known again.
    t.fill(t.one, 200, 100);
    t.fill(t.two, 200, 100);
    t.finish(&[(200, "a fill", "a fill")]);
}

#[test]
fn nothing_is_looked_at_unless_it_is_wished() {
    let m = machine(Settings::default());
    let (one, two, memory) = (m.stream(1), m.stream(1), m.alloc(SIZE));
    for stream in [one, two] {
        assert_eq!(cu!(m, cuMemsetD8Async(memory, 1, SIZE, stream)), 0);
        assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
    }
    assert_eq!(cu!(m, cuMemsetD8Async(memory, 1, SIZE, one)), 0);
    assert_eq!(cu!(m, cuMemsetD8Async(memory, 1, SIZE, two)), 0);
    assert_eq!(cu!(m, cuCtxSynchronize()), 0);
    assert_eq!(softgpu::misuse(), []);
    for stream in [one, two] {
        assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    }
    assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
    m.finish();
}
