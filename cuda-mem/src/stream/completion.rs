//! Futures of the end of work. A callback of the driver wakes the task, so no thread waits.

use crate::error::{CaptureRefusal, DriverError};
use crate::lifetime::capture_numbers::Membership;
use crate::locks::Mutex;
use crate::{Event, Result, Stream};
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context as Task, Poll, Waker};
use cuda_sys::CUresult;
use std::sync::Arc;

/// Wakes a task when the driver has passed a point of a stream, also if work before it failed.
pub(crate) struct Wakeup(Arc<Mutex<Wake>>);

#[derive(Default)]
struct Wake {
    /// The outcome of the work, once the driver has passed the point.
    passed: Option<CUresult>,
    waker: Option<Waker>,
}

impl Wakeup {
    /// Queues the callback.
    pub fn at_end_of(stream: &Stream, call: &'static str) -> Result<Self> {
        let wakeup = Self(Arc::default());
        let shared = wakeup.0.clone();
        stream.tell_end(call, move |outcome| {
            let mut wake = shared.lock();
            wake.passed = Some(outcome);
            let waker = wake.waker.take();
            drop(wake);
            waker.into_iter().for_each(Waker::wake);
        })?;
        Ok(wakeup)
    }

    /// The outcome of the work, or the task to wake at its end in place of the former one.
    pub fn poll(&self, task: &Task<'_>) -> Poll<Result<()>> {
        // Wakers are the program's, so no lock is held while they are cloned and dropped.
        let waker = task.waker().clone();
        let mut wake = self.0.lock();
        let former = match wake.passed {
            None => wake.waker.replace(waker),
            Some(CUresult::CUDA_SUCCESS) => return Poll::Ready(Ok(())),
            Some(code) => return Poll::Ready(Err(DriverError { call: "cuStreamAddCallback", code }.into())),
        };
        drop(wake);
        drop(former);
        Poll::Pending
    }
}

impl Drop for Wakeup {
    fn drop(&mut self) {
        // Nobody polls any more, and the work may take long.
        let waker = self.0.lock().waker.take();
        drop(waker);
    }
}

/// The end of work, as a future. [`Stream::finished`] and [`Event::finished`] make it.
///
/// The driver's callback wakes the task, on a driver thread where driver calls are forbidden. Executors whose wakers only
/// queue the task are suitable, as all common ones are. A drop waits for nothing, and leaves the work as it is.
#[must_use = "a future does nothing unless it is awaited"]
pub struct Completion {
    /// `None` if the work was done already.
    running: Option<(Wakeup, Stream)>,
}

impl Future for Completion {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        match &self.running {
            None => Poll::Ready(Ok(())),
            Some((wakeup, stream)) => wakeup.poll(task).map(|outcome| outcome.and_then(|()| stream.check_released())),
        }
    }
}

impl Stream {
    /// A future of the end of all work queued so far: [`synchronize`](Self::synchronize) for tasks.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// # use std::sync::atomic::{AtomicBool, Ordering};
    /// async fn run(stream: &cuda_mem::Stream) -> Result<(), cuda_mem::Error> {
    ///     let ran = std::sync::Arc::new(AtomicBool::new(false));
    ///     let tell = ran.clone();
    ///     stream.launch_host_function(move || tell.store(true, Ordering::Release))?;
    ///     stream.finished()?.await?;
    ///     assert!(ran.load(Ordering::Acquire));
    ///     Ok(())
    /// }
    /// # let mut task = std::task::Context::from_waker(std::task::Waker::noop());
    /// # let mut running = std::pin::pin!(run(&stream));
    /// # while running.as_mut().poll(&mut task)?.is_pending() {
    /// #     std::thread::yield_now();
    /// # }
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The driver refuses, or the stream captures. Of the future: as [`synchronize`](Self::synchronize).
    #[doc(alias = "cuStreamAddCallback")]
    pub fn finished(&self) -> Result<Completion> {
        let wakeup = Wakeup::at_end_of(self, "Stream::finished")?;
        Ok(Completion { running: Some((wakeup, self.clone())) })
    }
}

impl Event {
    /// A future of the end of the work before the event: [`synchronize`](Self::synchronize) for tasks. A later record of
    /// the event does not change it.
    ///
    /// It takes a stream of its own, so that events may pass in any order. While other work waits for the CPU, as other
    /// futures do, the stream comes from the context's reserve: for more than 32 events at a time, call
    /// [`Context::reserve_streams`](crate::Context::reserve_streams). [`Stream::finished`] takes no stream.
    ///
    /// # Errors
    ///
    /// Earlier work failed. A capture has recorded the event. The reserve is empty, as for
    /// [`Stream::with_options`]. The driver refuses. Of the future: work before the event failed.
    pub fn finished(&self) -> Result<Completion> {
        const CALL: &str = "Event::finished";
        match self.gate().membership() {
            Membership::Free => {}
            // Any stream that waits for the event would join the capture.
            Membership::Here(_) => return Err(CaptureRefusal::RecordsOnly.of(CALL)),
            _ => return Err(CaptureRefusal::OtherThreadsEvent.of(CALL)),
        }
        if self.is_done()? {
            return Ok(Completion { running: None });
        }
        // A stream of its own, because the task may be the first to wait for any of several events.
        let stream = Stream::new(self.context())?;
        stream.wait(self)?;
        let wakeup = Wakeup::at_end_of(&stream, CALL)?;
        Ok(Completion { running: Some((wakeup, stream)) })
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_passed = |(wakeup, _): &(Wakeup, Stream)| wakeup.0.lock().passed.is_some();
        f.debug_struct("Completion").field("is_done", &self.running.as_ref().is_none_or(is_passed)).finish()
    }
}
