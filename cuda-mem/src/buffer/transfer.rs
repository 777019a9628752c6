//! Background copies to and from the host.

use super::{Access, Buffer, Refused};
use crate::cpu::borrowed::Borrowed;
use crate::driver::context::Liveness;
use crate::driver::relaxed::beside_captures;
use crate::error::{call, check_not_forked};
use crate::lifetime::{check_outside, drop_after_host_function, inside_host_function, wake_later};
use crate::memory::resource::Kind;
use crate::stream::completion::Wakeup;
use crate::stream::order::{Attempts, Verdict};
use crate::{Error, Event, Result, Stream};
use bytemuck::{AnyBitPattern, NoUninit};
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context as Task, Poll};
use cuda_sys::CUdeviceptr;
use std::sync::Arc;

/// Host memory that a copy may own and read.
///
/// # Safety
///
/// `source` returns the same memory after a move of the value. Nothing changes the memory while the value is not
/// touched.
pub unsafe trait TransferSource<T>: Send + 'static {
    /// The elements.
    fn source(&self) -> &[T];
}

/// Host memory that a copy may own and write.
///
/// # Safety
///
/// `destination` returns the same memory after a move of the value. Nothing else accesses the memory.
pub unsafe trait TransferDestination<T>: Send + 'static {
    /// The elements.
    fn destination(&mut self) -> &mut [T];
}

macro_rules! sources {
    ($($owner:ty),*) => { $(
        // SAFETY: the elements lie on the heap (or are static), so a move of the owner does not move them.
        unsafe impl<T: Send + Sync + 'static> TransferSource<T> for $owner {
            fn source(&self) -> &[T] {
                self
            }
        }
    )* };
}
sources!(Vec<T>, Box<[T]>, Arc<[T]>, &'static [T]);

macro_rules! destinations {
    ($($owner:ty),*) => { $(
        // SAFETY: the elements lie on the heap, so a move of the owner does not move them.
        unsafe impl<T: Send + 'static> TransferDestination<T> for $owner {
            fn destination(&mut self) -> &mut [T] {
                self
            }
        }
    )* };
}
destinations!(Vec<T>, Box<[T]>);

impl<T, K: Kind, A: Access> Buffer<T, K, A> {
    /// Begins to copy host memory to the elements from `offset` on, in stream order. The transfer owns the host memory
    /// until the copy is done: wait for it, or await it. From pinned memory to a device's the call returns at once. For copies
    /// that the CPU makes, within host memory or of more than 64 KiB of other memory, it first waits for earlier work.
    ///
    /// # Errors
    ///
    /// The elements do not fit at `offset`. The error returns the host memory.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// let mut buffer = Buffer::<u32, _>::zeroed(&memory, 4, &stream)?;
    /// let upload = buffer.upload(1, vec![7, 8])?;
    /// let download = buffer.download(0, vec![0; 4])?; // after the upload, in stream order
    /// assert_eq!(download.wait()?, [0, 7, 8, 0]);
    /// assert_eq!(upload.wait()?, [7, 8]); // returns the vector
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    #[doc(alias = "cuMemcpyHtoDAsync")]
    pub fn upload<H: TransferSource<T>>(&mut self, offset: usize, host: H) -> Result<Transfer<H>, Box<Refused<H>>>
    where
        T: NoUninit,
    {
        let source = host.source();
        let lent = Borrowed::lent(source.as_ptr(), size_of_val(source));
        let (from, size) = (source.as_ptr().expose_provenance() as CUdeviceptr, size_of_val(source));
        let range = self.span("Buffer::upload", offset, source.len());
        let to = match range.and_then(|range| self.check_writable("Buffer::upload").map(|()| range)) {
            Ok(range) => self.address(range.start),
            Err(error) => return Err(Refused::new(host, error)),
        };
        // SAFETY: both ranges lie within their memory, and the transfer keeps the host memory until the copy is done.
        unsafe { self.transfer(&"Buffer::upload", (host, lent), true, (to, from), size) }
    }

    /// Begins to copy the elements from `offset` on to host memory, in stream order. The transfer owns the host memory
    /// until the copy is done: wait for it, or await it.
    ///
    /// # Errors
    ///
    /// The range exceeds the buffer. The error returns the host memory.
    #[doc(alias = "cuMemcpyDtoHAsync")]
    pub fn download<H: TransferDestination<T>>(
        &self,
        offset: usize,
        mut host: H,
    ) -> Result<Transfer<H>, Box<Refused<H>>>
    where
        T: AnyBitPattern,
    {
        let destination = host.destination();
        let size = size_of_val(destination);
        let lent = Borrowed::lent_to_write(destination.as_ptr(), size);
        let to = destination.as_mut_ptr().expose_provenance() as CUdeviceptr;
        let from = match self.span("Buffer::download", offset, destination.len()) {
            Ok(range) => self.address(range.start),
            Err(error) => return Err(Refused::new(host, error)),
        };
        // SAFETY: as in `upload`.
        unsafe { self.transfer(&"Buffer::download", (host, lent), false, (to, from), size) }
    }

    /// Queues a copy on the home stream.
    ///
    /// # Safety
    ///
    /// Both ranges are valid for `size` bytes until the copy is done; `host` keeps the host range valid.
    unsafe fn transfer<H: Send + 'static>(
        &self,
        call: &'static &'static str,
        (host, lent): (H, Borrowed),
        is_upload: bool,
        (to, from): (CUdeviceptr, CUdeviceptr),
        size: usize,
    ) -> Result<Transfer<H>, Box<Refused<H>>> {
        let home = self.stream();
        if let Err(error) = self.drain_before_transfer(call, is_upload, if is_upload { from } else { to }, size) {
            return Err(Refused::new(host, error));
        }
        // Event first: once the copy is queued, the transfer must be able to wait for it.
        let running = home.running(call);
        let (running, event) = match running.and_then(|it| Ok((it, Event::new(home.context())?))) {
            Ok(begun) => begun,
            Err(error) => return Err(Refused::new(host, error)),
        };
        let begun = match size {
            0 => Ok(()),
            _ => self.in_order(|home| {
                let (cuda, _current) = (home.context().driver().raw(), home.context().bind()?);
                // SAFETY: this function's contract.
                unsafe { call!(cuda.cuMemcpyAsync(to, from, size, home.raw())) }
            }),
        };
        if let Err(error) = begun.and_then(|()| event.mark(&running)) {
            // Queued work must not use memory that this returns, so wait. The first error counts.
            drop(running);
            let _ = home.wait_certainly();
            return Err(Refused::new(host, error));
        }
        Ok(Transfer {
            state: Some(RunningCopy { lent, host, event }),
            stream: home.clone(),
            wakeup: None,
            failed: Attempts::default(),
            drop_inside: drop_after_host_function,
        })
    }
}

/// A copy in progress, and the host memory that it owns. Its drop waits for the copy.
///
/// It is also a [`Future`]: the driver's callback wakes the task, on a driver thread where driver calls are forbidden.
/// Executors whose wakers only queue the task are suitable, as all common ones are. While a capture or an error keeps the
/// driver from telling whether the copy is done, the task is woken each millisecond and asks again. The result is an error
/// only if the copy or earlier work failed, which drops the host memory.
#[must_use = "dropping a transfer waits for it"]
pub struct Transfer<H> {
    /// `None` after the host memory was returned.
    state: Option<RunningCopy<H>>,
    stream: Stream,
    /// Queued by the first poll that finds the copy in progress.
    wakeup: Option<Wakeup>,
    /// The questions of polls that failed.
    failed: Attempts,
    /// [`drop_after_host_function`] for this type, stored where the compiler knows that the type is `Send`.
    drop_inside: fn(Self),
}

struct RunningCopy<H> {
    /// Ends before the host memory.
    lent: Borrowed,
    host: H,
    event: Event,
}

// Nothing accesses the host memory through a shared reference, so it needs no pinning.
impl<H> Unpin for Transfer<H> {}

impl<H> Transfer<H> {
    /// Waits for the copy, and returns the host memory.
    ///
    /// # Errors
    ///
    /// The copy or earlier work failed; or a host function called this ([`Error::InsideHostFunction`](crate::Error)).
    /// Either drops the host memory.
    pub fn wait(mut self) -> Result<H> {
        // After this error the drop hands the copy to another thread.
        check_outside()?;
        match self.finish() {
            Some(outcome) => outcome,
            None => unreachable!("a future that returned the memory no longer exists"),
        }
    }

    /// Waits for the copy, and returns the host memory, if it was not returned before.
    fn finish(&mut self) -> Option<Result<H>> {
        let RunningCopy { lent: _lent, host, event } = self.state.take()?;
        Some(event.wait_certainly().map(|()| host))
    }

    /// Whether the copy is done.
    ///
    /// # Errors
    ///
    /// The copy or earlier work failed.
    pub fn is_done(&self) -> Result<bool> {
        self.state.as_ref().map_or(Ok(true), |state| state.event.is_done())
    }

    /// Returns the host memory after the copy.
    fn take(&mut self) -> H {
        match self.state.take() {
            Some(state) => state.host,
            None => panic!("a transfer must not be polled after it has returned its memory"),
        }
    }

    /// Asks whether the copy is over, and is done for certain. If not, the end of the stream's work wakes the task.
    ///
    /// # Errors
    ///
    /// A question was refused or failed, which says nothing of the copy.
    fn ask(&mut self, call: &'static str, task: &Task<'_>) -> Result<Poll<bool>> {
        match beside_captures(self.stream.context().driver(), || self.is_done()) {
            Ok(true) => return Ok(Poll::Ready(true)),
            Ok(false) => {}
            Err(error) if self.wakeup.is_none() => return Err(error),
            // The callback tells.
            Err(_) => {}
        }
        let wakeup = match &mut self.wakeup {
            Some(wakeup) => wakeup,
            none => none.insert(Wakeup::at_end_of(&self.stream, call)?),
        };
        Ok(wakeup.poll(task).map(|_| false))
    }

    /// Whether a question that failed with this error may get an answer later. If not, a wait does.
    fn is_refused(&mut self, error: Error) -> bool {
        let context = self.stream.context();
        let is_alive = context.liveness() == Liveness::Alive;
        let is_over = |error: &Error| context.is_broken_by(error);
        matches!(error, Error::InsideHostFunction) || is_alive && self.failed.add(error, is_over) == Verdict::Again
    }
}

impl<H> Future for Transfer<H> {
    type Output = Result<H>;

    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        const CALL: &str = "polling a transfer";
        check_not_forked(CALL)?;
        let this = self.get_mut();
        match this.ask(CALL, task) {
            Ok(Poll::Pending) => {
                this.failed = Attempts::default();
                Poll::Pending
            }
            Ok(Poll::Ready(true)) => Poll::Ready(Ok(this.take())),
            // The stream has passed the callback, so it has passed the event, which has the outcome.
            Ok(Poll::Ready(false)) => Poll::Ready(this.finish().unwrap_or_else(|| Ok(this.take()))),
            Err(error) => {
                if this.is_refused(error) {
                    wake_later(task.waker().clone());
                    return Poll::Pending;
                }
                Poll::Ready(this.finish().unwrap_or_else(|| Ok(this.take())))
            }
        }
    }
}

impl<H> fmt::Debug for Transfer<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer")
            .field("event", &self.state.as_ref().map(|state| &state.event))
            .finish_non_exhaustive()
    }
}

impl<H> Drop for Transfer<H> {
    fn drop(&mut self) {
        // A context that has ended has no work left, and its events must not be touched.
        if self.state.is_none() || self.stream.context().liveness() != Liveness::Alive {
            return;
        }
        if inside_host_function() {
            let (state, stream, drop_inside) = (self.state.take(), self.stream.clone(), self.drop_inside);
            return drop_inside(Self { state, stream, wakeup: None, failed: Attempts::default(), drop_inside });
        }
        if let Some(Err(error)) = self.finish() {
            self.stream.context().drop_errors().push("waiting for a copy whose transfer was dropped", error);
        }
    }
}
