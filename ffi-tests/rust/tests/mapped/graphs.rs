//! Captures and graphs through cuda-mem, on a GPU and on the software GPU.

use crate::judged;
use cuda_mem::cuda_sys::{CUdeviceptr, CUresult};
use cuda_mem::graph::{CaptureMode, Graph, GraphOptions, RelaxedCalls};
use cuda_mem::memory::GraphMemory;
use cuda_mem::memory::{Block, DeviceMemory};
use cuda_mem::{Buffer, Context, Error, Event, Stream};
use libtest_mimic::Trial;
use std::panic::{AssertUnwindSafe, catch_unwind};
use testkit::Setup;
use testkit::kernel::Kernels;
use testkit::suite::Outcome;

type Test = fn(&Setup, CaptureMode) -> Outcome;

const MODES: [CaptureMode; 3] = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];
const SIZE: usize = 64;

/// Each test, in each mode of capture.
pub fn trials(setup: &Setup) -> Vec<Trial> {
    let tests: [(&str, Test); 11] = [
        ("buffers_of_graphs_end_within_the_capture_or_after_the_launch", buffers),
        ("memory_allocated_and_freed_in_a_graph_serves_each_launch", with_its_free),
        ("memory_left_by_a_launch_is_read_and_given_anew_by_the_next", with_output),
        ("memory_that_is_live_forbids_a_launch_without_auto_free", live),
        ("an_allocation_of_nothing_is_recorded", nothing),
        ("attributes_and_high_marks_outlive_free_and_trim_until_they_are_reset", attributes),
        ("a_stream_captures_from_begin_to_end_and_nothing_runs_meanwhile", state),
        ("a_failed_or_panicking_recording_ends_the_capture", broken_off),
        ("a_stream_that_waits_takes_part_and_must_be_joined_again", forked),
        ("calls_that_a_capture_forbids_lose_it_unless_they_are_relaxed", forbidden),
        ("a_function_that_runs_once_is_not_recorded", once),
    ];
    let mut trials = Vec::new();
    for (name, run) in tests {
        for mode in MODES {
            let setup = setup.clone();
            trials.push(Trial::test(format!("graphs::{name}::{mode:?}"), move || judged(&setup, run(&setup, mode))));
        }
    }
    trials
}

/// Makes a driver call of a test.
macro_rules! raw {
    ($context:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let _current = $context.bind()?;
        let cuda = $context.driver().raw();
        // SAFETY: the tests pass live streams, and memory of the size with which they allocated it.
        match unsafe { cuda.$name($($argument),*) }? {
            CUresult::CUDA_SUCCESS => {}
            code => return Err(format!("{}: {}", stringify!($name), code.name().unwrap_or("?")).into()),
        }
    }};
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn allocate(context: &Context, size: usize, stream: &Stream) -> Result<CUdeviceptr> {
    let mut address = 0;
    raw!(context, cuMemAllocAsync(&mut address, size, stream.raw()));
    Ok(address)
}

fn free(context: &Context, memory: CUdeviceptr, stream: &Stream) -> Result<()> {
    raw!(context, cuMemFreeAsync(memory, stream.raw()));
    stream.synchronize()?;
    Ok(())
}

fn fill(context: &Context, memory: CUdeviceptr, byte: u8) -> Result<()> {
    // The default stream waits for no other stream: a pool's memory exists when the stream reaches the allocation.
    context.synchronize()?;
    raw!(context, cuMemsetD8_v2(memory, byte, SIZE));
    context.synchronize()?;
    Ok(())
}

fn copy(context: &Context, to: CUdeviceptr, from: CUdeviceptr, stream: &Stream) -> Result<()> {
    raw!(context, cuMemcpyDtoDAsync_v2(to, from, SIZE, stream.raw()));
    Ok(())
}

/// Checks that all bytes have one value.
fn expect(context: &Context, memory: CUdeviceptr, byte: u8) -> Result<()> {
    let mut seen = [0; SIZE];
    raw!(context, cuMemcpyDtoH_v2(seen.as_mut_ptr().cast(), memory, SIZE));
    if seen == [byte; SIZE] { Ok(()) } else { Err(format!("{seen:?} in place of {byte}").into()) }
}

/// Captures a recording that may fail with any error.
fn capture(stream: &Stream, mode: CaptureMode, record: impl FnOnce(&Stream) -> Result<()>) -> Result<Graph> {
    let mut outcome = Ok(());
    let graph = stream.capture(mode, |stream| {
        outcome = record(stream);
        Ok(())
    });
    outcome?;
    Ok(graph?)
}

fn ensure(holds: bool, what: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(what.into()) }
}

fn code<T>(result: std::result::Result<T, Error>) -> Option<CUresult> {
    result.err().and_then(|error| error.driver_code())
}

fn with_its_free(setup: &Setup, mode: CaptureMode) -> Outcome {
    let (context, stream) = (&setup.context, Stream::new(&setup.context)?);
    let kernels = Kernels::new(context)?;
    let out = allocate(context, SIZE, &stream)?;
    fill(context, out, 3)?;
    // Load the kernels before the capture, in which a driver may refuse to load.
    // SAFETY: the memory is the device's, and nothing else uses it.
    unsafe { kernels.double_bytes(out, SIZE as u64, &stream) }?;
    stream.synchronize()?;
    fill(context, out, 3)?;
    let graph = capture(&stream, mode, |stream| {
        let buffer = allocate(context, SIZE, stream)?;
        copy(context, buffer, out, stream)?;
        // SAFETY: as above; the graph has memory there when the kernel runs.
        unsafe { kernels.double_bytes(buffer, SIZE as u64, stream) }?;
        copy(context, out, buffer, stream)?;
        raw!(context, cuMemFreeAsync(buffer, stream.raw()));
        Ok(())
    })?;
    expect(context, out, 3)?;
    let executable = graph.instantiate(GraphOptions::default())?;
    for expected in [6, 12] {
        // SAFETY: the memory and the kernels live until the end of the test, which waits.
        unsafe { executable.launch(&stream) }?;
        stream.synchronize()?;
        expect(context, out, expected)?;
    }
    free(context, out, &stream)
}

fn with_output(setup: &Setup, mode: CaptureMode) -> Outcome {
    let (context, stream) = (&setup.context, Stream::new(&setup.context)?);
    let input = allocate(context, SIZE, &stream)?;
    let mut output = 0;
    let graph = capture(&stream, mode, |stream| {
        output = allocate(context, SIZE, stream)?;
        copy(context, output, input, stream)
    })?;
    let mut options = GraphOptions::default();
    options.auto_free_on_launch = true;
    let executable = graph.instantiate(options)?;
    for byte in [0, 5] {
        fill(context, input, byte)?;
        // SAFETY: the input lives until the end of the test, which waits.
        unsafe { executable.launch(&stream) }?;
        stream.synchronize()?;
        expect(context, output, byte)?;
    }
    free(context, output, &stream)?;
    free(context, input, &stream)
}

fn live(setup: &Setup, mode: CaptureMode) -> Outcome {
    let (context, stream) = (&setup.context, Stream::new(&setup.context)?);
    let mut memory = 0;
    let graph = capture(&stream, mode, |stream| {
        memory = allocate(context, SIZE, stream)?;
        raw!(context, cuMemsetD8Async(memory, 7, SIZE, stream.raw()));
        Ok(())
    })?;
    let executable = graph.instantiate(GraphOptions::default())?;
    for _ in 0..2 {
        // SAFETY: the graph uses only its own memory.
        unsafe { executable.launch(&stream) }?;
        // SAFETY: as above.
        let again = code(unsafe { executable.launch(&stream) });
        ensure(again == Some(CUresult::CUDA_ERROR_INVALID_VALUE), "a launch while its memory is live")?;
        stream.synchronize()?;
        expect(context, memory, 7)?;
        free(context, memory, &stream)?;
    }
    Ok(())
}

fn nothing(setup: &Setup, mode: CaptureMode) -> Outcome {
    let (context, stream) = (&setup.context, Stream::new(&setup.context)?);
    let graph = capture(&stream, mode, |stream| allocate(context, 0, stream).map(drop))?;
    let executable = graph.instantiate(GraphOptions::default())?;
    // SAFETY: the graph uses no memory.
    unsafe { executable.launch(&stream) }?;
    Ok(stream.synchronize()?)
}

fn buffers(setup: &Setup, mode: CaptureMode) -> Outcome {
    let (context, stream) = (&setup.context, Stream::new(&setup.context)?);
    // SAFETY: the one buffer that leaves its capture is used and freed after each launch, before the next launch.
    let memory = unsafe { GraphMemory::new(context) };
    let refused = Buffer::<u8, _>::uninit(&memory, 1, &stream).expect_err("the stream does not capture");
    ensure(refused.to_string().contains("capture"), "the refusal says why")?;
    let source = Buffer::filled(&DeviceMemory::new(context), SIZE, 3u8, &stream)?;
    let mut escaped = None;
    let graph = stream.capture(mode, |stream| {
        let mut scratch = Buffer::<u8, _>::zeroed(&memory, SIZE, stream)?;
        scratch.copy_from_buffer(0, &source, ..SIZE / 2)?;
        let mut result = Buffer::filled(&memory, SIZE, 9u8, stream)?;
        result.copy_from_buffer(0, &scratch, ..SIZE - 1)?;
        escaped = Some(result);
        Ok(())
    })?;
    let result = escaped.ok_or("the capture ran")?;
    let executable = graph.instantiate(GraphOptions::default())?;
    // SAFETY: `source` is alive.
    unsafe { executable.launch(&stream) }?;
    let mut expected = [[3; SIZE / 2], [0; SIZE / 2]].concat();
    expected[SIZE - 1] = 9;
    ensure(result.to_vec()? == expected, "the graph's work on its buffers")?;
    let block = Block::device(result.device_pointer(), SIZE);
    result.close().map_err(|refused| refused.error)?;
    // The memory is free again, so the graph may be launched again.
    // SAFETY: as above.
    unsafe { executable.launch(&stream) }?;
    // SAFETY: the launch has allocated the same block again, and nothing else uses it.
    let again = unsafe { Buffer::<u8, _>::from_block(block, &memory, SIZE, &stream) }?;
    ensure(again.to_vec()? == expected, "the second launch's work")?;
    drop((again, executable, graph));
    memory.trim()?;
    ensure(context.take_drop_errors().errors.is_empty(), "no drop has failed")?;
    Ok(())
}

fn attributes(setup: &Setup, mode: CaptureMode) -> Outcome {
    let (context, stream) = (&setup.context, Stream::new(&setup.context)?);
    // SAFETY: no buffer is allocated from it.
    let memory = unsafe { GraphMemory::new(context) };
    memory.trim()?;
    memory.reset_high_marks()?;
    let before = memory.attributes()?;
    let mut block = 0;
    let graph = capture(&stream, mode, |stream| {
        block = allocate(context, 1024, stream)?;
        Ok(())
    })?;
    let executable = graph.instantiate(GraphOptions::default())?;
    // SAFETY: the graph uses only its own memory.
    unsafe { executable.launch(&stream) }?;
    stream.synchronize()?;
    let launched = memory.attributes()?;
    ensure(launched.used > before.used && launched.used_high >= launched.used, "use by a launch")?;
    ensure(launched.reserved > 0 && launched.reserved_high >= launched.reserved, "reserve for a launch")?;
    free(context, block, &stream)?;
    let freed = memory.attributes()?;
    ensure(freed.used_high >= launched.used_high && freed.used > 0, "freed memory stays until it is trimmed")?;
    drop(executable);
    drop(graph);
    memory.trim()?;
    let trimmed = memory.attributes()?;
    ensure(trimmed.used <= freed.used && trimmed.reserved <= freed.reserved, "a trim gives back")?;
    ensure(trimmed.used_high >= launched.used_high, "the mark of use stays")?;
    ensure(trimmed.reserved_high >= launched.reserved_high, "the mark of the reserve stays")?;
    memory.reset_high_marks()?;
    let reset = memory.attributes()?;
    ensure(reset.used_high <= trimmed.used_high && reset.reserved_high <= trimmed.reserved_high, "reset marks")?;
    Ok(())
}

fn state(setup: &Setup, mode: CaptureMode) -> Outcome {
    let (context, stream) = (&setup.context, Stream::new(&setup.context)?);
    let memory = allocate(context, SIZE, &stream)?;
    fill(context, memory, 1)?;
    ensure(!stream.is_capturing()?, "a new stream does not capture")?;
    let graph = capture(&stream, mode, |stream| {
        ensure(stream.is_capturing()?, "it captures")?;
        let again = stream.capture(mode, |_| Ok(()));
        ensure(matches!(again, Err(Error::Capturing { .. })), "no capture within a capture")?;
        raw!(context, cuMemsetD8Async(memory, 2, SIZE, stream.raw()));
        Ok(())
    })?;
    ensure(!stream.is_capturing()? && graph.node_count()? == 1, "it has ended, with one node")?;
    expect(context, memory, 1)?;
    free(context, memory, &stream)
}

fn broken_off(setup: &Setup, mode: CaptureMode) -> Outcome {
    let stream = Stream::new(&setup.context)?;
    let own = Error::InvalidArgument { call: "test", argument: "a", value: "b".into(), rule: "is c" };
    let failed = stream.capture(mode, |_| Err(own.clone()));
    ensure(failed.err() == Some(own), "the recording's own error")?;
    ensure(!stream.is_capturing()?, "an error ends the capture")?;
    let panicked = catch_unwind(AssertUnwindSafe(|| stream.capture(mode, |_| std::panic::resume_unwind(Box::new(())))));
    ensure(panicked.is_err() && !stream.is_capturing()?, "a panic ends the capture")?;
    ensure(setup.context.take_drop_errors().errors.is_empty(), "both ends are quiet")?;
    let graph = stream.capture(mode, |_| Ok(()))?;
    ensure(graph.node_count()? == 0, "the stream captures again")?;
    Ok(())
}

fn forked(setup: &Setup, mode: CaptureMode) -> Outcome {
    let (context, one, two) = (&setup.context, Stream::new(&setup.context)?, Stream::new(&setup.context)?);
    let memory = allocate(context, 2 * SIZE, &one)?;
    one.synchronize()?;
    let (fork, join) = (Event::new(context)?, Event::new(context)?);
    let record = |stream: &Stream, joined: bool| {
        fork.record(stream)?;
        two.wait(&fork)?;
        raw!(context, cuMemsetD8Async(memory, 1, SIZE, stream.raw()));
        raw!(context, cuMemsetD8Async(memory + SIZE as u64, 2, SIZE, two.raw()));
        if joined {
            join.record(&two)?;
            stream.wait(&join)?;
        }
        Ok(())
    };
    let mut outcome = Ok(());
    let unjoined = one.capture(mode, |stream| {
        outcome = record(stream, false);
        Ok(())
    });
    outcome?;
    ensure(code(unjoined) == Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED), "a stream that is not joined")?;
    ensure(!two.is_capturing()?, "it captures no longer")?;
    let graph = capture(&one, mode, |stream| record(stream, true))?;
    let executable = graph.instantiate(GraphOptions::default())?;
    // SAFETY: the memory lives until the end of the test, which waits.
    unsafe { executable.launch(&one) }?;
    one.synchronize()?;
    expect(context, memory, 1)?;
    expect(context, memory + SIZE as u64, 2)?;
    free(context, memory, &one)
}

fn forbidden(setup: &Setup, mode: CaptureMode) -> Outcome {
    let (context, stream) = (&setup.context, Stream::new(&setup.context)?);
    let allocate = || -> Result<()> {
        let mut memory = 0;
        raw!(context, cuMemAlloc_v2(&mut memory, SIZE));
        raw!(context, cuMemFree_v2(memory));
        Ok(())
    };
    let mut refused = false;
    let lost = stream.capture(mode, |_| {
        refused = allocate().is_err();
        Ok(())
    });
    let expected = (mode != CaptureMode::Relaxed).then_some(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ensure(refused == expected.is_some() && code(lost) == expected, "a plain allocation beside a capture")?;
    let graph = capture(&stream, mode, |_| {
        let _relaxed = RelaxedCalls::begin(context.driver())?;
        allocate()
    })?;
    ensure(graph.node_count()? == 0, "nothing of it is recorded")?;
    Ok(())
}

fn once(setup: &Setup, mode: CaptureMode) -> Outcome {
    let stream = Stream::new(&setup.context)?;
    let mut answer = None;
    let graph = stream.capture(mode, |stream| {
        answer = stream.launch_host_function(|| ()).err();
        Ok(())
    })?;
    let refused = matches!(answer, Some(Error::Capturing { .. }));
    ensure(refused, "a host function beside a capture")?;
    ensure(graph.node_count()? == 0, "it is not recorded")?;
    Ok(())
}
