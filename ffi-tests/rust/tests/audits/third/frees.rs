//! Frees by calls that wait, and values that end beside captures.

use super::streams::{destroy, foreign};
use super::{hold, hold_unknown};
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::graph::{CaptureMode, RelaxedCalls};
use cuda_mem::memory::{DeviceMemory, ManagedMemory, VirtualMemory, VirtualOptions, kind};
use cuda_mem::{Buffer, Context, DropError, Error, MappedMemory, Stream};
use softgpu::{Fault, Kind, When};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use testkit::suite::Outcome;
use testkit::{LIMIT, Setup, alone, alone_with_late_ends, check_call, in_time, on_softgpu, test_name};

const SIZE: usize = 4096;

/// Whether driver calls can be made to fail. Otherwise says that the test is skipped.
fn can_fail(setup: &Setup) -> bool {
    if !setup.is_software() {
        println!("skipped: only the software GPU makes calls fail: set CUDA_MEM_LIBCUDA=softgpu");
    }
    setup.is_software()
}

/// Faults that end with this value, also after a panic.
struct Faults;

impl Faults {
    fn begin(faults: impl IntoIterator<Item = Fault>) -> Self {
        softgpu::faults(faults);
        Self
    }

    /// Every call of a function fails.
    fn each(function: &str, code: CUresult) -> Self {
        Self::begin([Fault { when: When::Every(1), ..Fault::call(function, 1, code) }])
    }

    /// One call of a function does its work, and reports an error.
    fn after(function: &str) -> Self {
        Self::begin([Fault { after: true, ..Fault::call(function, 1, CUresult::CUDA_ERROR_UNKNOWN) }])
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        softgpu::faults([]);
    }
}

fn managed(context: &Context, home: &Stream) -> Result<Buffer<u8, kind::Managed>, Error> {
    let memory = Buffer::zeroed(&ManagedMemory::new(context)?, SIZE, home)?;
    home.synchronize()?;
    Ok(memory)
}

fn live(kind: Kind) -> usize {
    softgpu::ledger().entries.iter().filter(|entry| entry.kind == kind).count()
}

/// Waits until something is true.
fn eventually(what: &str, is_true: impl Fn() -> bool) -> Result<(), String> {
    let begin = Instant::now();
    while !is_true() {
        if begin.elapsed() > LIMIT / 2 {
            return Err(format!("never: {what}"));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Drops memory whose free then waits for the end of a host function, and lets that function end.
fn drop_beside_a_host_function<T>(context: &Context, memory: T) -> Result<(), Error> {
    let held = Stream::new(context)?;
    let open = hold(&held)?;
    drop(memory);
    drop(open);
    // Not a wait: tests make waits for events fail. A hook may capture meanwhile.
    let _relaxed = RelaxedCalls::begin(context.driver())?;
    while !held.is_done()? {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The driver does not tell whether the work is done: it says so of a capture of another library.
#[test]
fn an_allocation_names_dropped_memory_that_cannot_be_freed() -> Outcome {
    alone(|setup| {
        if !can_fail(setup) {
            return Ok(());
        }
        in_time(setup, |setup| {
            let (context, stream) = (&setup.context, Stream::new(&setup.context)?);
            let memory = managed(context, &stream)?;
            let faults = Faults::each("cuEventSynchronize", CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
            drop_beside_a_host_function(context, memory)?;
            let refused = Buffer::<u8, _>::uninit(&DeviceMemory::new(context), 1 << 50, &stream).map(drop);
            let text = refused.expect_err("no device has so much memory").to_string();
            assert!(text.contains("4096 bytes of dropped memory cannot be freed"), "{text}");
            assert!(text.contains("cuEventSynchronize failed"), "{text}");
            drop(faults);
            context.synchronize()?;
            assert_eq!(live(Kind::ManagedMemory), 0);
            Ok(())
        })
    })
}

/// As above, with a capture of this thread, which no other thread can end.
#[test]
fn an_allocation_ends_while_its_thread_captures_for_another() -> Outcome {
    use cuda_mem::cuda_sys::CUstreamCaptureMode;
    alone(|setup| {
        in_time(setup, |setup| {
            let (context, stream) = (&setup.context, Stream::new(&setup.context)?);
            let (cuda, _current) = (setup.driver.raw(), context.bind()?);
            let (other, mut graph) = (foreign(context)?, std::ptr::null_mut());
            let memory = managed(context, &stream)?;
            let held = Stream::new(context)?;
            let open = hold(&held)?;
            drop(memory);
            let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
            // SAFETY: the stream lives.
            check_call("cuStreamBeginCapture", unsafe { cuda.cuStreamBeginCapture_v2(other, mode) })?;
            drop(open);
            // The capture may be invalid, and the call refused for it. It must return.
            let refused = Buffer::<u8, _>::uninit(&DeviceMemory::new(context), 1 << 50, &stream);
            assert!(refused.is_err());
            // SAFETY: the stream lives, and the place is writable. The capture may be invalid.
            unsafe {
                let _ = cuda.cuStreamEndCapture(other, &mut graph)?;
                if !graph.is_null() {
                    check_call("cuGraphDestroy", cuda.cuGraphDestroy(graph))?;
                }
            }
            destroy(context, other)?;
            context.synchronize()?;
            Ok(())
        })
    })
}

#[test]
fn deferred_memory_is_freed_during_a_foreign_capture() -> Outcome {
    use cuda_mem::cuda_sys::CUstreamCaptureMode;
    alone(|setup| {
        in_time(setup, |setup| {
            let (context, stream) = (&setup.context, Stream::new(&setup.context)?);
            let (cuda, _current) = (setup.driver.raw(), context.bind()?);
            let (other, mut graph) = (foreign(context)?, std::ptr::null_mut());
            let memory = managed(context, &stream)?;
            let held = Stream::new(context)?;
            let open = hold(&held)?;
            drop(memory);
            let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
            // SAFETY: the stream lives.
            check_call("cuStreamBeginCapture", unsafe { cuda.cuStreamBeginCapture_v2(other, mode) })?;
            drop(open);
            if setup.is_software() {
                eventually("the memory is freed", || live(Kind::ManagedMemory) == 0)?;
            } else {
                thread::sleep(Duration::from_millis(300));
            }
            // SAFETY: the stream lives, and the place is writable.
            check_call("cuStreamEndCapture", unsafe { cuda.cuStreamEndCapture(other, &mut graph) })?;
            // SAFETY: the graph is ours.
            check_call("cuGraphDestroy", unsafe { cuda.cuGraphDestroy(graph) })?;
            Ok(destroy(context, other)?)
        })
    })
}

/// Sets a hook that runs `work` on the first error, and tells what came of it.
fn on_drop_error<R: Send + 'static>(context: &Context, work: impl FnOnce() -> R + Send + 'static) -> Receiver<R> {
    let (tell, told) = channel();
    let work = Mutex::new(Some((work, tell)));
    context.set_drop_error_hook(Some(Arc::new(move |_: &DropError| {
        let work = work.lock().expect("no panic").take();
        if let Some((work, tell)) = work {
            let _ = tell.send(work());
        }
    })));
    told
}

fn capture(stream: &Stream) -> Result<(), Error> {
    stream.capture(CaptureMode::Global, |_| Ok(())).map(drop)
}

#[test]
fn a_hook_told_of_a_postponed_free_may_capture() -> Outcome {
    alone(|setup| {
        if !can_fail(setup) {
            return Ok(());
        }
        in_time(setup, |setup| {
            let (context, stream) = (&setup.context, Stream::new(&setup.context)?);
            let memory = managed(context, &stream)?;
            let captured = on_drop_error(context, move || {
                capture(&stream)?;
                // Another thread may too, while the hook waits for it.
                thread::spawn(move || capture(&stream)).join().expect("no panic")
            });
            let _faults = Faults::after("cuMemFree_v2");
            drop_beside_a_host_function(context, memory)?;
            context.synchronize()?;
            captured.recv_timeout(LIMIT / 2)??;
            context.set_drop_error_hook(None);
            assert_eq!(context.take_drop_errors().errors.len(), 1);
            Ok(())
        })
    })
}

#[test]
fn a_hook_may_wait_for_a_thread_that_ends_its_context() -> Outcome {
    alone_with_late_ends(|setup| {
        if !can_fail(setup) {
            return Ok(());
        }
        in_time(setup, |setup| {
            let context = setup.driver.device(0)?.create_context()?;
            let (told, tell) = channel();
            let (ended, end) = channel::<()>();
            let in_hook = on_drop_error(&context, move || {
                let _ = told.send(());
                end.recv_timeout(LIMIT / 2)
            });
            let memory = managed(&context, &Stream::new(&context)?)?;
            let held = Stream::new(&context)?;
            let open = hold(&held)?;
            drop(memory);
            let faults = Faults::after("cuMemFree_v2");
            drop((held, open));
            // The worker frees, because no other call does.
            tell.recv_timeout(LIMIT / 2)?;
            drop(context);
            ended.send(())?;
            in_hook.recv_timeout(LIMIT / 2)??;
            drop(faults);
            setup.driver.take_drop_errors();
            Ok(())
        })
    })
}

#[test]
fn postponed_memory_stays_until_a_wait_for_its_work_succeeds() -> Outcome {
    alone(|setup| {
        if !can_fail(setup) {
            return Ok(());
        }
        for code in [CUresult::CUDA_ERROR_OUT_OF_MEMORY, CUresult::CUDA_ERROR_UNKNOWN] {
            in_time(setup, move |setup| {
                let memory = managed(&setup.context, &Stream::new(&setup.context)?)?;
                let faults = Faults::each("cuEventSynchronize", code);
                drop_beside_a_host_function(&setup.context, memory)?;
                // A second refusal: the first one has freed nothing.
                eventually("the driver is asked again", || softgpu::injected() > 1)?;
                assert_eq!(live(Kind::ManagedMemory), 1);
                drop(faults);
                eventually("the memory is freed", || live(Kind::ManagedMemory) == 0)?;
                assert_eq!(setup.context.take_drop_errors().errors, []);
                Ok(())
            })?;
        }
        Ok(())
    })
}

#[test]
fn memory_is_leaked_and_reported_if_its_wait_stays_refused() -> Outcome {
    alone(|setup| {
        if !can_fail(setup) {
            return Ok(());
        }
        in_time(setup, |setup| {
            let context = &setup.context;
            let memory = managed(context, &Stream::new(context)?)?;
            let address = memory.device_pointer();
            let faults = Faults::each("cuEventSynchronize", CUresult::CUDA_ERROR_OUT_OF_MEMORY);
            let told = on_drop_error(context, || ());
            drop_beside_a_host_function(context, memory)?;
            told.recv_timeout(LIMIT / 2)?;
            drop(faults);
            context.set_drop_error_hook(None);
            let errors = context.take_drop_errors().errors;
            assert_eq!((errors.len(), errors[0].doing), (1, "freeing managed memory"));
            context.synchronize()?;
            assert_eq!(live(Kind::ManagedMemory), 1);
            let _current = context.bind()?;
            // SAFETY: nobody frees the leaked memory any more.
            check_call("cuMemFree", unsafe { setup.driver.raw().cuMemFree_v2(address) })?;
            Ok(())
        })
    })
}

/// The last value for the context frees, because no worker does any more.
#[test]
fn a_context_that_ends_asks_again_before_it_frees() -> Outcome {
    alone_with_late_ends(|setup| {
        if !can_fail(setup) {
            return Ok(());
        }
        in_time(setup, |setup| {
            // Of earlier tests.
            setup.driver.take_drop_errors();
            let context = setup.driver.device(0)?.create_context()?;
            let memory = managed(&context, &Stream::new(&context)?)?;
            let open = hold(&Stream::new(&context)?)?;
            drop(memory);
            let _faults =
                Faults::begin((1..4).map(|k| Fault::call("cuEventSynchronize", k, CUresult::CUDA_ERROR_UNKNOWN)));
            drop(open);
            drop(context);
            assert_eq!(setup.driver.take_drop_errors().errors, []);
            assert_eq!((live(Kind::ManagedMemory), softgpu::injected()), (0, 3));
            Ok(())
        })
    })
}

#[test]
fn a_failed_question_for_the_context_does_not_end_its_memory() -> Outcome {
    use CUresult as C;
    const NO_ANSWERS: [CUresult; 3] =
        [C::CUDA_ERROR_INVALID_VALUE, C::CUDA_ERROR_INVALID_HANDLE, C::CUDA_ERROR_UNKNOWN];
    const ENDS: [CUresult; 3] =
        [C::CUDA_ERROR_CONTEXT_IS_DESTROYED, C::CUDA_ERROR_INVALID_CONTEXT, C::CUDA_ERROR_DEINITIALIZED];
    alone(|setup| {
        if !can_fail(setup) {
            return Ok(());
        }
        let each = NO_ANSWERS.map(|code| (When::Every(1), code));
        let one = (1..12).flat_map(|k| [NO_ANSWERS, ENDS].concat().into_iter().map(move |code| (When::Call(k), code)));
        for (when, code) in each.into_iter().chain(one) {
            in_time(setup, move |setup| {
                let stream = Stream::new(&setup.context)?;
                let memory = MappedMemory::new(&setup.context)?;
                let buffer = Buffer::<u8, _>::zeroed(&memory, SIZE, &stream)?;
                stream.synchronize()?;
                let before = live(Kind::VkgdrMemory);
                let open = hold(&stream)?;
                let faults = Faults::begin([Fault { when, ..Fault::call("cuCtxGetId", 1, code) }]);
                drop(buffer);
                assert_eq!(live(Kind::VkgdrMemory), before, "{when:?} {code:?}: freed under its work");
                drop((faults, open));
                setup.context.synchronize()?;
                drop(memory);
                assert_eq!(setup.context.take_drop_errors().errors, []);
                Ok(())
            })?;
        }
        Ok(())
    })
}

/// The codes of exporters that end under a copy, of kernels, of external devices and of MPS.
#[test]
fn a_copy_in_a_context_that_breaks_returns_an_error() -> Outcome {
    use CUresult as C;
    let codes = [
        C::CUDA_ERROR_CONTAINED,
        C::CUDA_ERROR_ILLEGAL_ADDRESS,
        C::CUDA_ERROR_TENSOR_MEMORY_LEAK,
        C::CUDA_ERROR_EXTERNAL_DEVICE,
        C::CUDA_ERROR_MPS_CLIENT_TERMINATED,
    ];
    alone_with_late_ends(|setup| {
        if !can_fail(setup) {
            return Ok(());
        }
        for code in codes {
            in_time(setup, move |setup| {
                let context = setup.driver.device(0)?.create_context()?;
                let stream = Stream::new(&context)?;
                let mut buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&context), SIZE, &stream)?;
                stream.synchronize()?;
                let faults = Faults::begin(["cuStreamSynchronize", "cuEventSynchronize"].map(|function| Fault {
                    sticky: true,
                    after: true,
                    ..Fault::call(function, 1, code)
                }));
                let copied = buffer.copy_from_slice(0, &[1; SIZE]);
                assert_eq!(copied.expect_err("the context broke").driver_code(), Some(code));
                drop((buffer, stream, context, faults));
                setup.driver.take_drop_errors();
                Ok(())
            })?;
        }
        Ok(())
    })
}

/// Every call before a free may fail. Only the free itself may leave the memory.
#[test]
fn a_free_is_made_later_if_a_call_before_it_fails() -> Outcome {
    alone(|setup| {
        if !can_fail(setup) {
            return Ok(());
        }
        for function in ["cuThreadExchangeStreamCaptureMode", "cuEventSynchronize", "cuStreamSynchronize"] {
            in_time(setup, move |setup| {
                let memory = managed(&setup.context, &Stream::new(&setup.context)?)?;
                let faults = Faults::begin([Fault::call(function, 1, CUresult::CUDA_ERROR_UNKNOWN)]);
                drop(memory);
                eventually("the memory is freed", || live(Kind::ManagedMemory) == 0)?;
                drop(faults);
                assert_eq!(setup.context.take_drop_errors().errors, []);
                Ok(())
            })?;
        }
        Ok(())
    })
}

/// In its own process, because the memory is left.
#[test]
fn memory_whose_wait_failed_outlives_its_resource() {
    on_softgpu(&test_name!("leaves_memory_whose_wait_failed"), "none", "1");
}

#[test]
#[ignore = "leaves memory: the test above runs it"]
fn leaves_memory_whose_wait_failed() -> Outcome {
    let setup = Setup::from_environment()?;
    let (context, stream) = (&setup.context, Stream::new(&setup.context)?);
    let mapped = MappedMemory::new(context)?;
    let own = VirtualMemory::new(context, &VirtualOptions::default())?;
    let buffers = (Buffer::<u8, _>::zeroed(&mapped, SIZE, &stream)?, Buffer::<u8, _>::zeroed(&own, SIZE, &stream)?);
    stream.synchronize()?;
    // A free by the library waits for host functions that it knows of.
    let open = hold_unknown(&stream)?;
    let refused = ["cuStreamSynchronize", "cuStreamQuery", "cuEventSynchronize", "cuEventQuery", "cuEventRecord"];
    let code = CUresult::CUDA_ERROR_UNKNOWN;
    let faults = Faults::begin(refused.map(|name| Fault { when: When::Every(1), ..Fault::call(name, 1, code) }));
    drop(buffers);
    drop((mapped, own));
    assert_eq!((live(Kind::VkgdrMemory), live(Kind::Mapping)), (1, 1), "freed under its work");
    drop(faults);
    drop(open);
    stream.synchronize()?;
    assert_eq!(context.take_drop_errors().errors.len(), 2);
    Ok(())
}

#[test]
fn a_capture_whose_end_failed_is_not_taken_for_ended() -> Outcome {
    alone(|setup| {
        if !can_fail(setup) {
            return Ok(());
        }
        in_time(setup, |setup| {
            let stream = Stream::new(&setup.context)?;
            let mut memory = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), SIZE, &stream)?;
            // One failure is made good.
            let faults = Faults::begin([Fault::call("cuStreamEndCapture", 1, CUresult::CUDA_ERROR_UNKNOWN)]);
            capture(&stream)?;
            drop(faults);
            let faults = Faults::each("cuStreamEndCapture", CUresult::CUDA_ERROR_UNKNOWN);
            let failed = capture(&stream).expect_err("no call ends the capture").to_string();
            assert!(failed.contains("cuStreamEndCapture"), "{failed}");
            drop(faults);
            // The driver would only record the copy.
            assert!(stream.is_capturing()?);
            memory.copy_from_slice(0, &[7; SIZE]).expect_err("the stream captures");
            let (mut graph, _current) = (std::ptr::null_mut(), setup.context.bind()?);
            // SAFETY: the stream lives, and the place is writable.
            let ended = unsafe { setup.driver.raw().cuStreamEndCapture(stream.raw(), &mut graph) };
            check_call("cuStreamEndCapture", ended)?;
            // SAFETY: the graph is ours.
            check_call("cuGraphDestroy", unsafe { setup.driver.raw().cuGraphDestroy(graph) })?;
            memory.copy_from_slice(0, &[7; SIZE])?;
            assert_eq!(memory.to_vec()?, [7; SIZE]);
            Ok(())
        })
    })
}
