//! Copies to and from the host that go on while the caller does other things.

use super::{Access, Buffer, Refused};
use crate::borrowed::Borrowed;
use crate::error::call;
use crate::later::{check_outside, drop_later, inside_host_function};
use crate::resource::Kind;
use crate::{Event, Result, Stream};
use bytemuck::{AnyBitPattern, NoUninit};
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context as Task, Poll, Waker};
use cuda_sys::CUdeviceptr;
use std::sync::{Arc, Mutex, PoisonError};

/// Memory of the host that a copy may read while it is owned by the copy.
///
/// # Safety
///
/// `source` gives the same memory after the value was moved, and nothing changes the memory while the value is not
/// touched.
pub unsafe trait TransferSource<T>: Send + 'static {
    /// The elements.
    fn source(&self) -> &[T];
}

/// Memory of the host that a copy may write while it is owned by the copy.
///
/// # Safety
///
/// `destination` gives the same memory after the value was moved, and nothing else reaches the memory.
pub unsafe trait TransferDestination<T>: Send + 'static {
    /// The elements.
    fn destination(&mut self) -> &mut [T];
}

macro_rules! sources {
    ($($owner:ty),*) => { $(
        // SAFETY: the elements lie on the heap (or are static), where a move of the owner leaves them.
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
        // SAFETY: the elements lie on the heap, where a move of the owner leaves them.
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
    /// until the copy is done: wait for it, or await it. From pinned memory the call returns at once; from other memory
    /// the driver may copy it to its own staging first.
    ///
    /// # Errors
    ///
    /// The elements do not fit at `offset`; the driver refuses. The host memory is given back.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// let mut buffer = Buffer::<u32, _>::zeroed(&memory, 4, &stream)?;
    /// let upload = buffer.upload(1, vec![7, 8])?;
    /// let download = buffer.download(0, vec![0; 4])?; // comes after it, in stream order
    /// assert_eq!(download.wait()?, [0, 7, 8, 0]);
    /// assert_eq!(upload.wait()?, [7, 8]); // the vector again
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
        let to = match self.span("Buffer::upload", offset, source.len()) {
            Ok(range) => self.address(range.start),
            Err(error) => return Err(Refused::new(host, error)),
        };
        // SAFETY: both ranges lie within their memory, and the transfer keeps the host's until the copy is done.
        unsafe { self.transfer((host, lent), to, from, size) }
    }

    /// Begins to copy the elements from `offset` on to host memory, in stream order. The transfer owns the host memory
    /// until the copy is done: wait for it, or await it.
    ///
    /// # Errors
    ///
    /// There are fewer elements from `offset` on; the driver refuses. The host memory is given back.
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
        unsafe { self.transfer((host, lent), to, from, size) }
    }

    /// Begins a copy on the home stream.
    ///
    /// # Safety
    ///
    /// Both ranges are valid for `size` bytes until the copy is done; `host` keeps the one of the host so.
    unsafe fn transfer<H: Send + 'static>(
        &self,
        (host, lent): (H, Borrowed),
        to: CUdeviceptr,
        from: CUdeviceptr,
        size: usize,
    ) -> Result<Transfer<H>, Box<Refused<H>>> {
        let home = self.stream();
        // The event is made first: once the copy has begun, its end must be found.
        let submission = home.submission("Buffer::upload");
        let (_submission, event) = match submission.and_then(|it| Ok((it, Event::new(home.context())?))) {
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
        if let Err(error) = begun.and_then(|()| event.mark(home).map(drop)) {
            // Whatever was begun must not go on with memory that is given back. The error is known already.
            drop(_submission);
            let _ = home.complete();
            return Err(Refused::new(host, error));
        }
        Ok(Transfer { state: Some(State { lent, host, event }), stream: home.clone(), waker: None, drop_later })
    }
}

/// A copy under way, and the host memory that it owns. Dropping it waits for the copy.
///
/// It is a [`Future`] too: the driver's callback wakes the task. The waker is called on a thread of the driver's, where no
/// driver call may be made; executors that only queue the task, as all common ones do, are right.
#[must_use = "dropping a transfer waits for it"]
pub struct Transfer<H> {
    /// None once the host memory was given back.
    state: Option<State<H>>,
    stream: Stream,
    waker: Option<Arc<Mutex<Wake>>>,
    /// [`drop_later`] of this type, which is known to be `Send` where it is made.
    drop_later: fn(Self),
}

struct State<H> {
    /// Ends before the host memory.
    lent: Borrowed,
    host: H,
    event: Event,
}

#[derive(Default)]
struct Wake {
    passed: bool,
    waker: Option<Waker>,
}

// The host memory is not touched through a shared reference, and needs no pinning.
impl<H> Unpin for Transfer<H> {}

impl<H> Transfer<H> {
    /// Waits for the copy, and gives the host memory back.
    ///
    /// # Errors
    ///
    /// The copy, or work before it, failed; or this is a host function ([`Error::InsideHostFunction`](crate::Error)). The host
    /// memory is dropped.
    pub fn wait(mut self) -> Result<H> {
        // The drop then leaves the copy to another thread.
        check_outside()?;
        match self.finish() {
            Some(outcome) => outcome,
            None => unreachable!("the future has given the memory out, and was consumed"),
        }
    }

    /// Waits for the copy, and gives the host memory back, if it is there.
    fn finish(&mut self) -> Option<Result<H>> {
        let State { lent: _lent, host, event } = self.state.take()?;
        Some(event.complete().map(|()| host))
    }

    /// Whether the copy is done.
    ///
    /// # Errors
    ///
    /// The copy, or work before it, failed.
    pub fn is_done(&self) -> Result<bool> {
        self.state.as_ref().map_or(Ok(true), |state| state.event.is_done())
    }

    /// The host memory, when the copy is done.
    fn take(&mut self) -> H {
        match self.state.take() {
            Some(state) => state.host,
            None => panic!("a transfer was polled after it had given its memory back"),
        }
    }

    /// Lets the driver wake a task when the stream has come so far. Asked once; later polls only change the task.
    fn wake_later(&mut self, task: &Task<'_>) -> Result<Poll<()>> {
        if let Some(wake) = &self.waker {
            let mut wake = wake.lock().unwrap_or_else(PoisonError::into_inner);
            if wake.passed {
                return Ok(Poll::Ready(()));
            }
            wake.waker = Some(task.waker().clone());
            return Ok(Poll::Pending);
        }
        let wake = Arc::new(Mutex::new(Wake { passed: false, waker: Some(task.waker().clone()) }));
        self.waker = Some(wake.clone());
        // The waker is the caller's, and may wait for a thread that waits in the driver.
        self.stream.launch_host_function(move || {
            let waker = {
                let mut wake = wake.lock().unwrap_or_else(PoisonError::into_inner);
                wake.passed = true;
                wake.waker.take()
            };
            waker.into_iter().for_each(Waker::wake);
        })?;
        Ok(Poll::Pending)
    }
}

impl<H> Future for Transfer<H> {
    type Output = Result<H>;

    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        match this.is_done() {
            Ok(true) => return Poll::Ready(Ok(this.take())),
            Ok(false) => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
        match this.wake_later(task) {
            Ok(Poll::Pending) => Poll::Pending,
            // The stream has passed the callback, so it has passed the event.
            Ok(Poll::Ready(())) => Poll::Ready(this.finish().unwrap_or_else(|| Ok(this.take()))),
            Err(error) => Poll::Ready(Err(error)),
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
        // A context that is gone has no work left, and its events must not be touched.
        if self.state.is_none() || self.stream.context().liveness() != crate::context::Liveness::Alive {
            return;
        }
        if inside_host_function() {
            let (state, stream, drop_later) = (self.state.take(), self.stream.clone(), self.drop_later);
            return drop_later(Self { state, stream, waker: None, drop_later });
        }
        if let Some(Err(error)) = self.finish() {
            self.stream.context().drop_errors().push("waiting for a copy whose transfer was dropped", error);
        }
    }
}
