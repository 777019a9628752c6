//! Code of the program that runs inside of calls: owners of streams and contexts.

use super::hold;
use cuda_mem::memory::{PinnedMemory, RegisterOptions, RegisteredMemory};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::signal::{Comparison, Flag, Signals, Waiter};
use cuda_mem::{Buffer, CaptureMode, Context, Error, Stream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use testkit::suite::Outcome;
use testkit::{LIMIT, alone, alone_with_late_ends, in_time};

/// A pool's whole memory.
const SIZE: usize = 1 << 20;

/// Runs a function when it is dropped, as the owner of another library's handle does.
struct Owner<F: FnMut() + Send + Sync>(F);

impl<F: FnMut() + Send + Sync> Drop for Owner<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A value for a stream that its owner destroys. Its end sends what `end` returns.
fn owned<R: Send + 'static>(stream: &Stream, end: impl Fn() -> R + Send + Sync + 'static) -> (Stream, Receiver<R>) {
    let (tell, told) = channel();
    let (stream, tell) = (stream.clone(), Mutex::new(tell));
    let (context, raw) = (stream.context().clone(), stream.raw());
    let owner = Owner(move || {
        let _stream = &stream;
        let _ = tell.lock().expect("no panic").send(end());
    });
    // SAFETY: the owner holds the stream.
    (unsafe { Stream::borrow_with_owner(&context, raw, Arc::new(owner)) }, told)
}

fn flag(context: &Context) -> Result<Flag<u32>, Error> {
    Signals::new(context)?.flag(Waiter::Device)
}

#[test]
fn an_owner_that_ends_in_a_quiet_moment_may_queue_work() -> Outcome {
    alone_with_late_ends(|setup| {
        in_time(setup, |setup| {
            let (flag, other) = (flag(&setup.context)?, Stream::new(&setup.context)?);
            let queued = other.clone();
            let (theirs, ended) = owned(&Stream::new(&setup.context)?, move || queued.launch_host_function(|| ()));
            flag.wait_on(&theirs, Comparison::Equal, 1)?;
            drop(theirs);
            flag.store(1);
            // Asks whether the stream still waits, in a moment that keeps host functions out.
            setup.context.synchronize()?;
            drop(flag);
            ended.recv_timeout(LIMIT)??;
            other.synchronize()?;
            Ok(())
        })
    })
}

#[test]
fn an_owner_that_ends_while_work_is_queued_may_capture() -> Outcome {
    alone_with_late_ends(|setup| {
        in_time(setup, |setup| {
            let (flag, other) = (flag(&setup.context)?, Stream::new(&setup.context)?);
            let captured = other.clone();
            let capture = move || captured.capture(CaptureMode::ThreadLocal, |_| Ok(())).map(drop);
            let (theirs, ended) = owned(&Stream::new(&setup.context)?, capture);
            flag.store(1);
            flag.wait_on(&theirs, Comparison::Equal, 1)?;
            theirs.synchronize()?;
            drop(theirs);
            // The log of the flag is trimmed while the other stream gets a wait.
            for _ in 0..100 {
                while matches!(flag.wait_on(&other, Comparison::Equal, 1), Err(Error::Capturing { .. })) {
                    thread::yield_now();
                }
            }
            ended.recv_timeout(LIMIT)??;
            other.synchronize()?;
            Ok(())
        })
    })
}

#[test]
fn an_owner_does_not_end_on_the_thread_that_releases_streams() -> Outcome {
    alone_with_late_ends(|setup| {
        in_time(setup, |setup| {
            let signals = Signals::new(&setup.context)?;
            // Such work may write the word, so the signal is not at rest until it is done.
            let used_by = |stream: &Stream| -> Result<Flag<u32>, Error> {
                let flag = signals.flag::<u32>(Waiter::Device)?;
                flag.store(1);
                flag.wait_on(stream, Comparison::Equal, 1)?;
                flag.record_use(stream);
                Ok(flag)
            };
            let name = || thread::current().name().map(str::to_owned);
            let (theirs, ended) = owned(&Stream::new(&setup.context)?, name);
            let held = hold(&theirs)?;
            let flag = used_by(&theirs)?;
            // The thread goes on to look for the sake of another signal: with one part of the work done, the first is at rest.
            let other = Stream::new(&setup.context)?;
            let held_longer = hold(&other)?;
            drop(used_by(&other)?);
            drop((theirs, flag));
            drop(held);
            assert_ne!(ended.recv_timeout(LIMIT)?.as_deref(), Some("cuda-mem signals"));
            drop(held_longer);
            Ok(())
        })
    })
}

#[test]
fn an_owner_that_ends_with_a_loan_may_use_the_memory() -> Outcome {
    alone_with_late_ends(|setup| {
        in_time(setup, |setup| {
            let other = Stream::new(&setup.context)?;
            let registered = RegisteredMemory::new(&setup.context, vec![1u32; 1000], RegisterOptions::default())?;
            let used = registered.clone();
            let (theirs, ended) = owned(&Stream::new(&setup.context)?, move || format!("{used:?}"));
            let held = hold(&other)?;
            // Queued work waits for the CPU, so the end of the loan does not wait.
            drop(registered.buffer(&theirs)?);
            drop((theirs, held));
            drop(registered.buffer(&other)?);
            assert!(ended.recv_timeout(LIMIT)?.contains("lent"));
            Ok(())
        })
    })
}

/// Debug builds panic if a submission that may wait begins under a lock.
#[test]
fn a_pool_orders_streams_without_a_wait_under_its_lock() -> Outcome {
    alone(|setup| {
        let mut options = PoolOptions::default();
        (options.initial, options.maximum) = (SIZE, SIZE);
        let pool = Pool::new(&PinnedMemory::new(&setup.context), &options)?;
        let (first, second) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let held = hold(&first)?;
        drop(Buffer::<u8, _>::uninit(&pool, SIZE, &first)?);
        drop(Buffer::<u8, _>::uninit(&pool, SIZE, &second)?);
        drop(held);
        second.synchronize()?;
        Ok(())
    })
}
