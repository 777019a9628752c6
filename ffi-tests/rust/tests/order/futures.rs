//! Transfers, streams and events as futures, on tokio's runtime of one thread. Runs on any driver.

use cuda_mem::cuda_sys::CUresult;
use cuda_mem::graph::CaptureMode;
use cuda_mem::memory::{DeviceMemory, PinnedMemory};
use cuda_mem::signal::{Comparison, Flag, Signals, Waiter};
use cuda_mem::{Buffer, Driver, Error, HostBuffer, Stream};
use softgpu::Fault;
use std::fs;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as Task, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use testkit::suite::Outcome;
use testkit::{LIMIT, alone_with_late_ends, delay, hold};
use tokio::task::JoinSet;
use tokio::time::timeout;

fn block_on<F: Future<Output = Outcome>>(program: F) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async { timeout(LIMIT, program).await.map_err(|_| "the program hangs")? })
}

/// Holds the work of a stream back until its flag is 1. Unlike [`hold`], this lets callbacks of other streams run: a GPU's
/// driver runs all host functions and callbacks of a context on one thread.
fn hold_by_flag(signals: &Signals, stream: &Stream) -> Result<Flag<u32>, Error> {
    let flag = signals.flag::<u32>(Waiter::Device)?;
    flag.wait_on(stream, Comparison::Equal, 1)?;
    Ok(flag)
}

/// Counts how often a task is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

fn threads() -> Result<usize, std::io::Error> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}

#[test]
fn streams_and_events_are_awaited() -> Outcome {
    alone_with_late_ends(|setup| {
        let (first, second) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        block_on(async {
            first.finished()?.await?; // without work
            delay(&first)?;
            let event = first.record()?;
            let held = hold_by_flag(&Signals::new(&setup.context)?, &first)?;
            event.finished()?.await?;
            assert!(event.is_done()? && !first.is_done()?, "only the work before the event is done");
            event.finished()?.await?; // the work is done already

            // The task does other work meanwhile.
            delay(&second)?;
            let (mut ended, mut turns) = (pin!(second.finished()?), 0);
            loop {
                tokio::select! {
                    outcome = &mut ended => break outcome?,
                    () = tokio::time::sleep(Duration::from_millis(1)) => turns += 1,
                }
            }
            assert!(turns > 1, "{turns}");
            held.store(1);
            first.finished()?.await?;
            Ok(())
        })
    })
}

#[test]
fn events_are_awaited_in_the_order_in_which_they_pass() -> Outcome {
    alone_with_late_ends(|setup| {
        // A device has few hardware queues, and a held stream holds up those that share its queue.
        let streams = (0..3).map(|_| Stream::new(&setup.context)).collect::<Result<Vec<_>, _>>()?;
        let signals = Signals::new(&setup.context)?;
        block_on(async {
            let (mut held, mut tasks) = (Vec::new(), JoinSet::new());
            for (number, stream) in streams.iter().enumerate() {
                held.push(hold_by_flag(&signals, stream)?);
                let ended = stream.record()?.finished()?; // the event itself is dropped
                tasks.spawn(async move { ended.await.map(|()| number) });
            }
            for number in (0..3).rev() {
                held.pop().ok_or("each stream is held")?.store(1);
                assert_eq!(tasks.join_next().await.ok_or("it is waited for")???, number);
            }
            Ok(())
        })
    })
}

#[test]
fn a_cancelled_wait_leaves_the_work_as_it_is() -> Outcome {
    alone_with_late_ends(|setup| {
        let stream = Stream::new(&setup.context)?;
        block_on(async {
            let held = hold(&stream)?;
            let event = stream.record()?;
            let soon = Duration::from_millis(5);
            assert!(timeout(soon, stream.finished()?).await.is_err());
            assert!(timeout(soon, event.finished()?).await.is_err());
            drop(stream.finished()?); // never polled
            // Nothing of the task stays with the work that it no longer waits for.
            let woken = Arc::new(Woken::default());
            let waker = Waker::from(woken.clone());
            let mut cancelled = Box::pin(stream.finished()?);
            assert!(cancelled.as_mut().poll(&mut Task::from_waker(&waker)).is_pending());
            drop((cancelled, waker));
            assert_eq!(Arc::strong_count(&woken), 1);
            drop(held);
            event.finished()?.await?;
            stream.finished()?.await?;
            assert_eq!(woken.0.load(Ordering::Acquire), 0);
            Ok(())
        })
    })
}

#[test]
fn a_transfer_that_is_cancelled_waits_for_its_copy() -> Outcome {
    alone_with_late_ends(|setup| {
        let stream = Stream::new(&setup.context)?;
        let mut buffer = Buffer::<u32, _>::zeroed(&DeviceMemory::new(&setup.context), 2, &stream)?;
        block_on(async {
            delay(&stream)?;
            // An event behind the copy could pass a little later than the copy.
            let delayed = stream.record()?;
            let upload = buffer.upload(0, vec![7, 8])?;
            assert!(timeout(Duration::from_millis(1), upload).await.is_err());
            assert!(delayed.is_done()?, "its drop waited, because the copy reads the vector");
            assert_eq!(buffer.download(0, vec![0; 2])?.await?, [7, 8]);
            Ok(())
        })
    })
}

#[test]
fn many_tasks_of_one_thread_wait_without_threads() -> Outcome {
    alone_with_late_ends(|setup| {
        let memory = PinnedMemory::new(&setup.context);
        let streams = [(); 4].map(|()| Stream::new(&setup.context));
        let streams = streams.into_iter().collect::<Result<Vec<_>, _>>()?;
        block_on(async {
            let held = streams.iter().map(hold).collect::<Result<Vec<_>, _>>()?;
            let before = threads()?;
            let mut tasks = JoinSet::new();
            for number in 0..200_u32 {
                let stream = streams[number as usize % streams.len()].clone();
                let memory = memory.clone();
                // A copy to host memory would wait within the call.
                let mut buffer = Buffer::<u32, _>::zeroed(&DeviceMemory::new(&setup.context), 1000, &stream)?;
                tasks.spawn(async move {
                    let mut source = HostBuffer::<u32>::zeroed(&memory, 1000)?;
                    source.fill(number);
                    buffer.upload(0, source)?.await?;
                    let seen = buffer.download(0, HostBuffer::<u32>::zeroed(&memory, 1000)?)?.await?;
                    stream.finished()?.await?;
                    Ok::<_, Error>(seen.iter().all(|word| *word == number))
                });
            }
            for _ in 0..10 {
                tokio::task::yield_now().await; // each task now awaits its upload
            }
            let during = threads()?;
            assert!(tasks.try_join_next().is_none(), "the streams are held");
            drop(held);
            let mut ended = 0;
            while let Some(task) = tasks.join_next().await {
                assert!(task??);
                ended += 1;
            }
            assert_eq!(ended, 200);
            assert!(during <= before + 2, "{before} threads, and {during} while 200 tasks wait");
            Ok(())
        })
    })
}

#[test]
fn the_last_waker_is_woken_once() -> Outcome {
    alone_with_late_ends(|setup| {
        let stream = Stream::new(&setup.context)?;
        let held = hold(&stream)?;
        let (first, second) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
        let mut ended = pin!(stream.finished()?);
        for woken in [&first, &first, &second] {
            let waker = Waker::from(woken.clone());
            assert!(ended.as_mut().poll(&mut Task::from_waker(&waker)).is_pending());
        }
        assert_eq!(Arc::strong_count(&first), 1, "the former waker is dropped");
        drop(held);
        let begin = Instant::now();
        while second.0.load(Ordering::Acquire) == 0 {
            assert!(begin.elapsed() < LIMIT, "nobody is woken");
            std::thread::yield_now();
        }
        assert!(matches!(ended.as_mut().poll(&mut Task::from_waker(Waker::noop())), Poll::Ready(Ok(()))));
        stream.synchronize()?;
        assert_eq!([&first, &second].map(|woken| woken.0.load(Ordering::Acquire)), [0, 1]);
        Ok(())
    })
}

#[test]
fn captured_streams_and_events_are_not_awaited() -> Outcome {
    alone_with_late_ends(|setup| {
        let stream = Stream::new(&setup.context)?;
        let event = cuda_mem::Event::new(&setup.context)?;
        let graph = stream.capture(CaptureMode::ThreadLocal, |stream| {
            event.record(stream)?;
            assert!(matches!(stream.finished(), Err(Error::Capturing { .. })));
            assert!(matches!(event.finished(), Err(Error::Capturing { .. })));
            Ok(())
        })?;
        drop(graph); // the capture went on
        Ok(())
    })
}

#[test]
fn errors_of_failed_work_come_out_of_futures() -> Outcome {
    let code = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
    let context = Driver::software()?.device(0)?.create_context()?;
    let stream = Stream::new(&context)?;
    block_on(async {
        let held = hold(&stream)?;
        let (ended, event) = (stream.finished()?, stream.record()?.finished()?);
        // From now on the context is broken, as after a kernel with a wrong address.
        softgpu::faults([Fault { sticky: true, ..Fault::call("cuMemGetInfo_v2", 1, code) }]);
        assert!(context.memory_info().is_err());
        softgpu::faults([]);
        drop(held);
        for outcome in [ended.await, event.await] {
            assert_eq!(outcome.expect_err("the work failed").driver_code(), Some(code));
        }
        assert_eq!(stream.finished().map(drop).expect_err("it is broken").driver_code(), Some(code));
        Ok(())
    })?;
    drop((stream, context));
    Ok(())
}
