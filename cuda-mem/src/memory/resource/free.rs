//! Frees by calls that wait for the whole context.

use crate::driver::context::{Handle, PATIENCE};
use crate::driver::relaxed::RelaxedCalls;
use crate::error::call;
use crate::error::capture_errors::is_for_a_capture;
use crate::lifetime::captures::captures_under_way;
use crate::lifetime::postponed_frees::{EventAfter, PostponedFree, WorkBefore};
use crate::lifetime::waiting::{self, Target};
use crate::{Context, Error, Event, Result, Stream};
use core::time::Duration;
use cuda_sys::{CU_STREAM_PER_THREAD, CUresult};
use std::any::Any;
use std::time::Instant;

/// The work queued on a stream so far.
fn work_of(stream: &Stream) -> WorkBefore {
    // That stream is another one on each thread.
    if stream.raw() == CU_STREAM_PER_THREAD {
        return WorkBefore::All;
    }
    let mark = || {
        let event = Event::new(stream.context())?;
        event.mark(&stream.running("a free")?)?;
        Ok::<_, Error>(event)
    };
    mark().map_or(WorkBefore::All, |event| WorkBefore::Event(EventAfter(event.into_raw())))
}

impl Context {
    /// Sets how many bytes of dropped memory may wait to be freed, 1 GiB by default.
    ///
    /// Some memory can be freed only while no queued work of the context waits for the CPU, as host functions and waits for
    /// flags do: mapped, managed, write-combined and registered memory, and memory of other processes. Beyond the limit, an
    /// allocation of such memory waits up to 10 seconds, then returns [`Error::OutOfMemory`], which names the streams.
    /// Drops never wait.
    pub fn set_postponed_limit(&self, bytes: usize) {
        self.state().frees.set_limit(bytes);
    }

    /// Frees memory by a call that waits for all work of this context, after the work queued on `home` so far, if
    /// given. While queued work waits for the CPU, the free waits; its error is then a drop error.
    ///
    /// `free` runs with the context current, again if a capture forbade it, and never if the context ends first. Its
    /// captured values are dropped afterwards, possibly on another thread.
    pub(crate) fn free_by_waiting(
        &self,
        doing: &'static str,
        size: usize,
        home: Option<&Stream>,
        free: impl FnMut(&cuda_sys::Driver) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.free(doing, (size, home), None::<()>, false, free)
    }

    /// Frees memory by a call that waits for all work of this context, where `free` owns a value of the program, whose
    /// drop runs the program's code. Otherwise as [`free_by_waiting`](Self::free_by_waiting).
    pub(crate) fn free_with_owner(
        &self,
        doing: &'static str,
        size: usize,
        home: Option<&Stream>,
        free: impl FnMut(&cuda_sys::Driver) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.free(doing, (size, home), None::<()>, true, free)
    }

    /// Frees memory by a call that waits for all work of this context, as [`free_by_waiting`](Self::free_by_waiting).
    /// While the free waits, [`take_back`](Self::take_back) may return `memory`; then it is not freed.
    pub(crate) fn free_or_reuse<M: Send + 'static>(
        &self,
        doing: &'static str,
        size: usize,
        home: Option<&Stream>,
        memory: Option<M>,
        free: impl FnMut(&cuda_sys::Driver) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.free(doing, (size, home), memory, false, free)
    }

    fn free<M: Send + 'static>(
        &self,
        doing: &'static str,
        (size, home): (usize, Option<&Stream>),
        memory: Option<M>,
        owns: bool,
        mut free: impl FnMut(&cuda_sys::Driver) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let elsewhere = home.filter(|home| home.context() != self);
        // A postponed free waits for the work of this context only.
        if let Some(home) = elsewhere {
            // Waiting for a stream that captures would end the capture.
            home.check_not_capturing(doing)?;
            home.wait_before_free()?;
        }
        let home = home.filter(|home| home.context() == self);
        let work = || home.map_or(WorkBefore::Done, work_of);
        let Some(quiet) = self.try_quiet() else {
            let reusable = memory.map(|memory| Box::new(memory) as Box<dyn Any + Send>);
            self.postpone(doing, (size, work()), reusable, owns, free);
            return Ok(());
        };
        // In relaxed mode, a capture of another stream forbids neither the wait nor the free.
        let ready = RelaxedCalls::begin(self.driver()).and_then(|relaxed| {
            if let Some(home) = home {
                // Waiting for a stream that captures would end the capture.
                home.check_not_capturing(doing)?;
                home.wait_beside_captures()?;
            }
            Ok((relaxed, self.bind()?))
        });
        let freed = ready.is_ok().then(|| free(self.driver().raw()));
        drop((ready, quiet));
        match freed {
            Some(freed) if !freed.as_ref().is_err_and(is_for_a_capture) => freed,
            // A capture, or a call that failed before the free: the worker tries again.
            _ => {
                self.postpone(doing, (size, work()), None, owns, free);
                Ok(())
            }
        }
    }

    /// Frees memory after the work queued on several streams so far. Otherwise as
    /// [`free_by_waiting`](Self::free_by_waiting).
    pub(crate) fn free_after(
        &self,
        doing: &'static str,
        streams: &[Stream],
        free: impl FnMut(&cuda_sys::Driver) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        match self.after_all(streams) {
            Some(last) => self.free_by_waiting(doing, 0, Some(&last), free),
            None => {
                self.postpone(doing, (0, WorkBefore::All), None, false, free);
                Ok(())
            }
        }
    }

    /// A new stream whose work comes after all work of others. `None` if that cannot be.
    fn after_all(&self, streams: &[Stream]) -> Option<Stream> {
        let _relaxed = RelaxedCalls::begin(self.driver()).ok()?;
        let last = Stream::new(self).ok()?;
        for stream in streams {
            // That stream is another one on each thread.
            if stream.raw() == CU_STREAM_PER_THREAD {
                return None;
            }
            stream.work_left(None, || last.order_after(stream), |event| last.wait(&event), Ok(())).ok()?.ok()?;
        }
        Some(last)
    }

    fn postpone(
        &self,
        doing: &'static str,
        (size, work): (usize, WorkBefore),
        reusable: Option<Box<dyn Any + Send>>,
        owns_programs_value: bool,
        free: impl FnMut(&cuda_sys::Driver) -> Result<()> + Send + 'static,
    ) {
        let (free, drop_errors) = (Box::new(free), self.drop_errors().clone());
        self.state().frees.push(PostponedFree { doing, size, free, drop_errors, owns_programs_value, work, reusable });
        // If the system cannot start the thread, a later call of the program frees the memory.
        let _ = self.employ_worker();
    }

    /// Takes back memory whose free waits, and whose work is done: a program whose queued work always waits for the CPU, as
    /// a pipeline one frame ahead does, would free none of it.
    pub(crate) fn take_back<M: Send + 'static>(&self, fits: impl Fn(&M) -> bool) -> Option<M> {
        if self.state().frees.is_empty() {
            return None;
        }
        let (cuda, _current, _relaxed) =
            (self.driver().raw(), self.bind().ok()?, RelaxedCalls::begin(self.driver()).ok()?);
        let fits = |memory: &M, after: EventAfter| {
            // SAFETY: the event lives as long as the free waits.
            fits(memory) && unsafe { call!(cuda.cuEventQuery(after.0)) }.is_ok()
        };
        let (memory, after) = self.state().frees.take_back(fits)?;
        // SAFETY: the event was this memory's alone.
        unsafe { self.destroy(Handle::Event(after.0)) };
        Some(memory)
    }

    /// Frees what waits, before more memory of such a kind is allocated. Beyond the limit, waits for a quiet moment.
    ///
    /// # Errors
    ///
    /// Queued work waits for the CPU for more than 10 seconds.
    pub(crate) fn make_room(&self, call: &'static &'static str, size: usize) -> Result<()> {
        self.free_postponed();
        if self.state().frees.beyond_limit().is_none() { Ok(()) } else { self.wait_for_frees(call, size) }
    }

    #[cold]
    fn wait_for_frees(&self, call: &'static &'static str, size: usize) -> Result<()> {
        let frees = &self.state().frees;
        let is_within = || {
            self.free_postponed();
            Ok(frees.beyond_limit().is_none().then_some(()))
        };
        if waiting::look(call, Target::context(self), PATIENCE, is_within)?.is_some() {
            return Ok(());
        }
        let limit = frees.limit();
        Err(Error::OutOfMemory {
            call,
            requested: size,
            device: self.device().name().unwrap_or_default().into(),
            free: self.memory_info().ok().map(|info| info.free),
            message: format!(
                "{}. The limit is {limit} bytes (Context::set_postponed_limit); let that end, or use memory whose free \
                 never waits (DeviceMemory, PinnedMemory, pools)",
                self.what_waits()
            )
            .into(),
        })
    }

    /// How much dropped memory cannot be freed, and why.
    fn what_waits(&self) -> String {
        let frees = &self.state().frees;
        let bytes = frees.bytes();
        if self.waits_for_cpu() {
            let waits = self.cpu_waits().join(", ");
            format!("{bytes} bytes of dropped memory cannot be freed while queued work waits for the CPU: {waits}")
        } else if captures_under_way() {
            format!("{bytes} bytes of dropped memory cannot be freed while a stream captures a graph")
        } else if let Some(error) = frees.refusal() {
            format!("{bytes} bytes of dropped memory cannot be freed, because the driver refuses ({error})")
        } else {
            format!("{bytes} bytes of dropped memory wait to be freed")
        }
    }

    /// Calls `allocate`, for `size` bytes of device memory if given. If memory has run out, frees what waits, or waits for
    /// frees that are queued, and calls it again if something was freed. `refuse` makes the error from the driver's.
    pub(crate) fn with_room<T>(
        &self,
        size: Option<usize>,
        allocate: impl Fn() -> Result<T>,
        refuse: impl FnOnce(Error) -> Error,
    ) -> Result<T> {
        let (frees, mut begin) = (&self.state().frees, None);
        loop {
            let made = frees.made();
            let error = match allocate() {
                Err(error) if error.driver_code() == Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => error,
                done => return done,
            };
            let limit = PATIENCE.saturating_sub(begin.get_or_insert_with(Instant::now).elapsed());
            self.free_postponed();
            // Another thread may have freed it.
            if frees.made() != made || size.is_some_and(|size| self.await_free(size, limit)) {
                continue;
            }
            let waits = !frees.is_empty();
            return Err(match refuse(error) {
                Error::OutOfMemory { call, requested, device, free, message } if waits => {
                    let message = format!("{message}; {}", self.what_waits()).into();
                    Error::OutOfMemory { call, requested, device, free, message }
                }
                error => error,
            });
        }
    }

    /// After an allocation of `size` bytes has found too little memory: waits at most `limit` until a queued free is
    /// done. `false` if all of them together would not suffice, or if none was done in that time.
    fn await_free(&self, size: usize, limit: Duration) -> bool {
        let frees = &self.state().memory.frees;
        let queued = frees.bytes();
        if queued == 0 || self.memory_info().is_ok_and(|info| info.free.saturating_add(queued) < size) {
            return false;
        }
        let settle = || {
            let (cuda, _current, _relaxed) = (self.driver().raw(), self.bind()?, RelaxedCalls::begin(self.driver())?);
            Ok(frees.settle(cuda))
        };
        waiting::poll(&"an allocation that waits for queued frees", Target::context(self), limit, settle).is_ok()
    }
}
