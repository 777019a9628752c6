//! Long waits are reported, and waits with a time limit end. This is one test, because hook and limit apply to the
//! whole process.

use cuda_mem::memory::PinnedMemory;
use cuda_mem::waiting::{self, SlowWait, WaitTarget};
use cuda_mem::{Buffer, Error, Event, Stream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testkit::suite::Outcome;
use testkit::{Setup, alone};

const LIMIT: Duration = Duration::from_millis(100);
const ENOUGH: Duration = Duration::from_secs(20);

/// The next report of a wait in a call.
fn report(reports: &Receiver<SlowWait>, call: &str) -> SlowWait {
    loop {
        let wait = reports.recv_timeout(ENOUGH).expect("the wait is reported");
        if wait.call == call {
            return wait;
        }
    }
}

#[test]
fn a_wait_that_takes_long_is_told_and_goes_on() -> Outcome {
    let (sender, reports) = channel();
    let sender = Mutex::new(sender);
    waiting::set_limit(Some(LIMIT));
    waiting::set_hook(Some(Arc::new(move |wait| {
        let _ = sender.lock().expect("no panic").send(wait.clone());
        panic!("a hook's panic ends neither the wait nor the watch");
    })));
    alone(|setup: &Setup| {
        let stream = Stream::new(&setup.context)?;
        let mut buffer = Buffer::<u8, _>::zeroed(&PinnedMemory::new(&setup.context), 64, &stream)?;
        stream.synchronize()?;

        let (go_on, waits) = channel::<()>();
        stream.launch_host_function(move || {
            let _ = waits.recv();
        })?;
        buffer.fill(.., 7)?;
        let event = Event::new(&setup.context)?;
        event.record(&stream)?;

        // With a limit, the wait returns an error that says what it waited for.
        let start = Instant::now();
        for result in [stream.synchronize_for(LIMIT), event.synchronize_for(LIMIT)] {
            let error = result.expect_err("the work is held back");
            let Error::WaitTimedOut(wait) = &error else { return Err(error.into()) };
            assert!(wait.waited >= LIMIT && error.to_string().contains("device 0"), "{error}");
        }
        assert!(start.elapsed() < ENOUGH);

        // Without a limit, the wait is reported more than once, and ends with the work.
        let stream_handle = stream.raw().addr();
        std::thread::scope(|scope| -> Result<(), Error> {
            let reader = std::thread::Builder::new().name("reader".into());
            let reading = reader.spawn_scoped(scope, || buffer.read(..).map(|bytes| bytes[0])).expect("a thread");
            let first = report(&reports, "Stream::synchronize");
            assert!(first.waited >= LIMIT, "{first}");
            assert!(first.thread.contains("reader") && first.doing.contains("CPU access to a buffer"), "{first}");
            assert_eq!(first.target, WaitTarget::Stream { raw: stream_handle, device: 0 });
            let second = report(&reports, "Stream::synchronize");
            assert!(second.waited >= first.waited * 2, "{second}");
            go_on.send(()).expect("the function waits");
            assert_eq!(reading.join().expect("no panic")?, 7);
            Ok(())
        })?;
        stream.synchronize_for(ENOUGH)?;
        event.synchronize_for(Duration::ZERO)?;

        // No more reports come.
        waiting::set_limit(None);
        while reports.try_recv().is_ok() {}
        stream.launch_host_function(|| std::thread::sleep(3 * LIMIT))?;
        stream.synchronize()?;
        assert!(reports.try_recv().is_err());
        Ok(())
    })?;
    waiting::set_hook(None);
    waiting::set_limit(Some(waiting::DEFAULT_LIMIT));
    Ok(())
}
