//! How the driver's streams are made, kept and given back.

use crate::driver::context::Handle;
use crate::driver::context::PATIENCE;
use crate::driver::relaxed::RelaxedCalls;
use crate::driver::stream_core::StreamCore;
use crate::driver::stream_reserve::{Found, Spare, StreamClass};
use crate::error::call;
use crate::lifetime::Quiet;
use crate::lifetime::capture_numbers::Membership;
use crate::lifetime::waiting::{Target, watched};
use crate::{Context, Error, Result};
use core::ptr;
use core::sync::atomic::Ordering;
use cuda_sys::{CUresult, CUstream};
use std::sync::Arc;

impl Context {
    /// Sets how many streams the context keeps ready, 32 by default, and makes them now.
    ///
    /// [`Stream::new`](crate::Stream::new) takes them while queued work waits for the CPU: a host function that has not
    /// returned, a wait for a flag, counter, ring or frame. A creation by the driver may then wait for that work, and hold
    /// up other threads.
    ///
    /// The context makes the missing streams anew each time before it queues such work while no other is queued. Dropped
    /// streams return to the reserve. 0 switches it off.
    ///
    /// # Errors
    ///
    /// Queued work waits for the CPU for more than 10 seconds ([`Error::InvalidArgument`]).
    pub fn reserve_streams(&self, count: usize) -> Result<()> {
        const CALL: &str = "Context::reserve_streams";
        let state = self.state();
        for Spare { raw, .. } in state.reserve.set_wanted(count) {
            // SAFETY: the stream is ours and idle.
            unsafe { self.destroy(Handle::Stream(raw)) };
        }
        if state.reserve.missing() == 0 {
            return Ok(());
        }
        let _quiet = self.moment_to_create(&CALL)?;
        self.fill_reserve()
    }

    /// Makes the missing streams, if queued work may soon wait for the CPU. The caller holds a quiet moment.
    fn fill_reserve(&self) -> Result<()> {
        let reserve = &self.state().reserve;
        while reserve.missing() > 0 {
            self.end_spare(self.create_stream(StreamClass::USUAL)?);
        }
        Ok(())
    }

    /// Makes the missing streams before work that waits for the CPU: the driver may make none while such work is queued.
    pub(crate) fn fill_reserve_if_quiet(&self) {
        if self.state().reserve.missing() > 0
            && let Some(_quiet) = self.try_quiet()
        {
            let _relaxed = RelaxedCalls::begin(self.driver());
            // If the driver refuses here, the creation of a stream reports the error.
            let _ = self.fill_reserve();
        }
    }

    /// Takes a stream of a class from the reserve, or makes one.
    pub(crate) fn take_stream(&self, class: StreamClass) -> Result<Spare> {
        // The driver crashes on a stream of a context that has ended.
        self.check_alive()?;
        let reserve = &self.state().reserve;
        if let Some(_quiet) = self.try_quiet() {
            return reserve.take_alike(class).map_or_else(|| self.create_stream(class), Ok);
        }
        match reserve.take(class) {
            Some(Found::Alike(spare)) => Ok(spare),
            Some(Found::Channel(Spare { raw, .. })) => {
                let (cuda, _current, _relaxed) =
                    (self.driver().raw(), self.bind()?, RelaxedCalls::begin(self.driver())?);
                // Not queued for another thread: the channel must be free before the next call.
                // SAFETY: the stream is ours and idle.
                self.driver().ends().alone(|| unsafe { call!(cuda.cuStreamDestroy_v2(raw)) })?;
                self.create_stream(class)
            }
            None => {
                let _quiet = self.moment_to_create(&"Stream::new")?;
                self.create_stream(class)
            }
        }
    }

    /// Keeps a stream that nobody has used, or destroys it.
    pub(crate) fn end_spare(&self, spare: Spare) {
        if let Err(Spare { raw, .. }) = self.state().reserve.keep(spare) {
            // SAFETY: the stream is ours, and nobody has used it.
            unsafe { self.destroy(Handle::Stream(raw)) };
        }
    }

    /// Waits for a moment in which the driver may make streams.
    fn moment_to_create(&self, call: &'static &'static str) -> Result<Quiet<'_>> {
        self.quiet_moment(call, Some(PATIENCE)).ok_or_else(|| {
            let rule = "the driver makes streams only while no queued work waits for the CPU: call \
                        Context::reserve_streams before such work, with a number that suffices";
            Error::invalid(call, "the context's work", "waiting for the CPU for more than 10 seconds", rule)
        })
    }

    fn create_stream(&self, class: StreamClass) -> Result<Spare> {
        let StreamClass { flags, priority } = class;
        let (cuda, _current) = (self.driver().raw(), self.bind()?);
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is writable and the context is current.
        unsafe { watched!(Target::context(self), cuda.cuStreamCreateWithPriority(&mut raw, flags.0, priority)) }?;
        Ok(Spare::new(raw, class))
    }

    /// Keeps the stream of a value that is being dropped, if it is as good as a new one. Whether it was kept.
    pub(crate) fn give_stream_back(&self, spare: Spare, core: &Arc<StreamCore>) -> bool {
        let reserve = &self.state().reserve;
        let is_like_new = Arc::strong_count(core) == 1
            && !core.is_altered.load(Ordering::Relaxed)
            && core.gate.membership() == Membership::Free;
        if !is_like_new || reserve.has_enough(spare.class) {
            return false;
        }
        self.is_idle(spare.raw) == Ok(true) && reserve.keep(spare).is_ok()
    }

    /// Whether the work of a stream of this context is done. No capture of another library is invalidated by the
    /// question. The caller keeps the stream alive.
    #[inline]
    pub(crate) fn is_idle(&self, raw: CUstream) -> Result<bool> {
        let _current = self.bind()?;
        let (cuda, _relaxed) = (self.driver().raw(), RelaxedCalls::begin(self.driver())?);
        // SAFETY: the stream lives.
        done(unsafe { call!(cuda.cuStreamQuery(raw)) })
    }
}

/// Maps success to `true` and CUDA_ERROR_NOT_READY to `false`.
#[inline]
pub(crate) fn done(result: Result<()>) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.driver_code() == Some(CUresult::CUDA_ERROR_NOT_READY) => Ok(false),
        Err(error) => Err(error),
    }
}
