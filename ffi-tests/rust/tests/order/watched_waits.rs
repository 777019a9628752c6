//! Waits of every kind are reported, by the name of what they wait for.

use cuda_mem::frames::FrameRing;
use cuda_mem::ipc::{Channel, Listener};
use cuda_mem::memory::{DeviceMemory, ManagedMemory, PinnedMemory, PinnedOptions};
use cuda_mem::signal::{Comparison, Signals, WaitPolicy, Waiter};
use cuda_mem::waiting::{self, SlowWait, WaitTarget};
use cuda_mem::{Buffer, Event, MappedMemory, Stream};
use std::ffi::c_void;
use std::fmt::Debug;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, Builder};
use std::time::Duration;
use testkit::suite::Outcome;
use testkit::{Setup, alone};

const LIMIT: Duration = Duration::from_millis(50);
const ENOUGH: Duration = Duration::from_secs(10);

/// Runs `wait` on a thread until the first report of a wait in `call`, then `release`. Returns the report.
fn reported<R: Send + Debug>(call: &str, wait: impl FnOnce() -> R + Send, release: impl FnOnce()) -> (SlowWait, R) {
    let (sender, reports) = channel();
    let sender = Mutex::new(sender);
    waiting::set_limit(Some(LIMIT));
    waiting::set_hook(Some(Arc::new(move |wait| {
        let _ = sender.lock().expect("no panic").send(wait.clone());
    })));
    let result = thread::scope(|scope| {
        let waiting = Builder::new().name("waiter".into()).spawn_scoped(scope, wait).expect("a thread");
        let mut others = Vec::new();
        let report = loop {
            let next = reports.recv_timeout(ENOUGH);
            let report: SlowWait = next.unwrap_or_else(|_| panic!("no report of {call}, but {others:?}"));
            if report.call == call && report.thread.contains("waiter") {
                break report;
            }
            others.push(report);
        };
        release();
        (report, waiting.join().expect("no panic"))
    });
    waiting::set_hook(None);
    waiting::set_limit(Some(waiting::DEFAULT_LIMIT));
    result
}

fn signal(report: &SlowWait) -> &str {
    match &report.target {
        WaitTarget::Signal(signal) => signal,
        other => panic!("{other:?}"),
    }
}

/// Blocks a stream by a host function that cuda-mem does not know. It goes on when the other end sends or ends.
fn block_unseen(stream: &Stream, until: Receiver<()>) -> Outcome {
    unsafe extern "C" fn wait(until: *mut c_void) {
        // SAFETY: `block_unseen` made the pointer from a box, and the driver calls this once.
        let until = unsafe { Box::from_raw(until.cast::<Receiver<()>>()) };
        let _ = until.recv();
    }
    let _current = stream.context().bind()?;
    let until = Box::into_raw(Box::new(until)).cast();
    // SAFETY: the function takes what `until` points to.
    let code = unsafe { stream.context().driver().raw().cuLaunchHostFunc(stream.raw(), Some(wait), until) }?;
    assert_eq!(code.0, 0);
    Ok(())
}

#[test]
fn a_wait_for_a_word_names_flag_and_value() -> Outcome {
    alone(|setup: &Setup| {
        let (signals, stream) = (Signals::new(&setup.context)?, Stream::new(&setup.context)?);
        let ready = signals.flag::<u32>(Waiter::Cpu)?.named("ready");
        ready.store(3);
        // A wait that only spins is seen too.
        let mut spinning = WaitPolicy::within(ENOUGH);
        spinning.spins = u32::MAX;
        for policy in [WaitPolicy::within(ENOUGH), spinning] {
            ready.store(3);
            let wait = || ready.wait(Comparison::AtLeast, 4, &policy);
            let (report, word) = reported("Flag::wait", wait, || ready.store(4));
            assert_eq!((signal(&report), word?), ("flag \"ready\": value 3, needs >= 4", 4));
            let start = "thread \"waiter\" has waited 0.";
            assert!(report.to_string().starts_with(start) && report.awaits.is_empty(), "{report}");
        }

        let count = signals.device_counter::<u64>()?.named("pieces");
        let wait = || count.wait(2, &WaitPolicy::within(ENOUGH));
        let (report, counted) =
            reported("DeviceCounter::wait", wait, || count.store_on(&stream, 2).expect("the stream writes"));
        assert_eq!((signal(&report), counted?), ("counter \"pieces\": value 0, needs >= 2", 2));
        Ok(())
    })
}

#[test]
fn a_wait_for_a_ring_says_if_items_or_room_are_missing() -> Outcome {
    alone(|setup: &Setup| {
        let signals = Signals::new(&setup.context)?;
        let mut full = signals.ring_to_device::<u32>(4)?.named("requests");
        assert_eq!(full.push_slice(&[1, 2, 3, 4])?, 4);
        let soon = WaitPolicy::within(Duration::from_millis(400));
        let (report, sent) = reported("Producer::send", || full.send(&[5], &soon), || ());
        assert_eq!(signal(&report), "ring \"requests\": 4 items pushed, 0 popped, needs room");
        assert!(sent.is_err(), "no kernel pops");

        let mut empty = signals.ring_from_device::<u32>(4)?.named("answers");
        let (report, received) = reported("Consumer::receive", || empty.receive(&mut [0; 2], &soon), || ());
        assert_eq!(signal(&report), "ring \"answers\": 0 items pushed, 0 popped, needs items");
        assert!(received.is_err(), "no kernel pushes");
        Ok(())
    })
}

#[test]
fn a_wait_for_a_frame_names_frame_and_thread() -> Outcome {
    alone(|setup: &Setup| {
        let (signals, stream) = (Signals::new(&setup.context)?, Stream::new(&setup.context)?);
        let ring = FrameRing::new(&PinnedMemory::new(&setup.context), &signals, 1, 64)?;
        let mut copied = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), 64, &stream)?;
        for number in 1..=2 {
            let take = || ring.next();
            let taken = thread::scope(|scope| {
                let filler = Builder::new().name("filler".into()).spawn_scoped(scope, take).expect("a thread");
                filler.join().expect("no panic")
            });
            let mut frame = taken?;
            copied.copy_from_frame(0, &frame, ..)?;
            frame.write(.., |bytes| bytes.fill(number))?;
            let publish = || drop(frame.publish());
            let (report, read) = reported("Buffer::copy_to_slice", || copied.to_vec(), publish);
            assert_eq!(report.awaits, [format!("frame {number}, taken by thread \"filler\", is not published").into()]);
            assert_eq!(read?, [number; 64]);
        }

        // The CPU waits for the readers of the only frame.
        let (go_on, until) = channel();
        let frame = ring.next()?;
        copied.copy_from_frame(0, &frame, ..)?;
        block_unseen(&stream, until)?;
        frame.record_use(&stream)?;
        frame.publish()?;
        let next = || ring.next_with(&WaitPolicy::within(ENOUGH));
        let (report, taken) = reported("FrameRing::next_with", next, || drop(go_on));
        assert_eq!(report.target, WaitTarget::Event { device: 0 });
        taken?.publish().expect("the ring lives");
        Ok(stream.synchronize()?)
    })
}

#[test]
fn a_driver_call_that_waits_for_all_work_is_reported() -> Outcome {
    alone(|setup: &Setup| {
        let (work, quiet) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let behind = |call: &str, wait: Box<dyn FnOnce() + Send + '_>| -> Outcome {
            let (go_on, until) = channel();
            block_unseen(&work, until)?;
            let (report, ()) = reported(call, wait, || drop(go_on));
            assert_eq!(report.target, WaitTarget::Context { device: 0 }, "{report}");
            Ok(work.synchronize()?)
        };
        // Memory of the default options is freed in stream order.
        let mut options = PinnedOptions::default();
        options.write_combined = true;
        let pinned = Buffer::<u8, _>::zeroed(&PinnedMemory::with_options(&setup.context, options), 64, &quiet)?;
        let managed = Buffer::<u8, _>::zeroed(&ManagedMemory::new(&setup.context)?, 64, &quiet)?;
        let mapped = Buffer::<u8, _>::zeroed(&MappedMemory::new(&setup.context)?, 64, &quiet)?;
        let registered = cuda_mem::memory::RegisteredMemory::new(&setup.context, vec![0u8; 4096], Default::default())
            .map_err(cuda_mem::Error::from)?;
        quiet.synchronize()?;
        behind("cuMemFreeHost", Box::new(|| drop(pinned)))?;
        behind("cuMemFree_v2", Box::new(|| drop(managed)))?;
        behind("cuMemHostUnregister", Box::new(|| drop(registered)))?;
        behind("vkgdr_memory_free", Box::new(|| drop(mapped)))?;
        behind("Context::synchronize", Box::new(|| setup.context.synchronize().expect("it ends")))
    })
}

#[test]
fn a_wait_for_another_process_is_reported() -> Outcome {
    alone(|_: &Setup| {
        let (here, mut there) = Channel::pair()?;
        let mut here = here;
        let receive = || here.receive_bytes();
        let (report, bytes) =
            reported("Channel::receive_bytes", receive, || there.send_bytes(b"late").expect("the other end lives"));
        assert_eq!((report.target, &bytes?[..]), (WaitTarget::Process, &b"late"[..]));

        let path = std::env::temp_dir().join(format!("cuda-mem-watched-{}", std::process::id()));
        let listener = Listener::bind(&path)?;
        let connect = || drop(Channel::connect(&path).expect("the listener lives"));
        let (report, accepted) = reported("Listener::accept", || listener.accept().map(drop), connect);
        assert_eq!(report.target, WaitTarget::Process);
        Ok(accepted?)
    })
}

#[test]
fn a_wait_with_a_limit_of_its_own_is_reported_too() -> Outcome {
    alone(|setup: &Setup| {
        let (stream, event) = (Stream::new(&setup.context)?, Event::new(&setup.context)?);
        let (go_on, until) = channel::<()>();
        stream.launch_host_function(move || {
            let _ = until.recv();
        })?;
        event.record(&stream)?;
        let (report, waited) = reported("Event::synchronize_for", || event.synchronize_for(ENOUGH), || drop(go_on));
        assert_eq!(report.target, WaitTarget::Event { device: 0 });
        waited?;
        Ok(stream.synchronize()?)
    })
}
