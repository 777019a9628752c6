//! Moments when no queued work of a context waits for the CPU.

use super::{Context, ContextState, Handle, Liveness, NamedContext, PATIENCE};
use crate::driver::relaxed::RelaxedCalls;
use crate::driver::stream_reserve::Spare;
use crate::error::call;
use crate::lifetime::captures::WaitWithoutCaptures;
use crate::lifetime::postponed_frees::{EventAfter, FreeDone, Turn};
use crate::lifetime::queued_waits;
use crate::lifetime::waiting::{self, Target};
use crate::lifetime::worker::{ENDS, Waiting};
use crate::lifetime::{Quiet, check_outside};
use crate::{Error, Result};
use std::sync::Weak;
use std::time::{Duration, Instant};

impl Context {
    /// Waits for all work of the context. The driver holds the context's lock meanwhile, which blocks calls of other
    /// threads. So this first waits, without the lock, for a moment when no queued work waits for the CPU, as host
    /// functions and waits for flags do. After ten seconds without such a moment, the driver waits for that work too.
    ///
    /// The driver refuses the wait while a stream of the context captures, and invalidates the capture. So this first waits
    /// for captures of other threads, for a second at most, and captures that begin wait for this call as long.
    ///
    /// # Errors
    ///
    /// Earlier work failed. A stream of the context captures
    /// (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED), and the capture is lost.
    #[doc(alias = "cuCtxSynchronize")]
    pub fn synchronize(&self) -> Result<()> {
        let done = self.wait_for_work();
        self.free_postponed();
        done
    }

    /// Waits for all work of the context, but does not run the frees that were postponed until such a wait. So no code
    /// of the program runs.
    pub(crate) fn wait_for_work(&self) -> Result<()> {
        check_outside()?;
        let call = &"Context::synchronize";
        let wait = || {
            let moment = self.moment_without_captures(call);
            let done = self.wait_for_all();
            drop(moment);
            done
        };
        waiting::during(call, Target::context(self), wait)
    }

    /// Waits for a moment when no queued work waits for the CPU and this crate captures nothing. The result keeps both out;
    /// without captures, or at least without such work, if no better moment comes.
    fn moment_without_captures(&self, call: &'static &'static str) -> (Option<Quiet<'_>>, Option<WaitWithoutCaptures>) {
        let begin = Instant::now();
        while let Some(limit) = PATIENCE.checked_sub(begin.elapsed()) {
            // A capture may wait for the end of a moment, so this does not wait for captures within one.
            let Some(quiet) = self.quiet_moment(call, Some(limit)) else { break };
            if let Some(apart) = WaitWithoutCaptures::begin() {
                return (Some(quiet), Some(apart));
            }
            drop(quiet);
            let Some(apart) = WaitWithoutCaptures::after_captures() else { break };
            if let Some(quiet) = self.try_quiet() {
                return (Some(quiet), Some(apart));
            }
        }
        (self.try_quiet(), None)
    }

    /// Waits for all work of the context, if a moment comes within `limit` in which no queued work waits for the CPU, and
    /// this crate captures nothing then. Whether it waited.
    ///
    /// # Errors
    ///
    /// Earlier work failed. Another library captures a stream of the context: the driver invalidates that capture.
    pub(crate) fn try_synchronize(&self, call: &'static &'static str, limit: Duration) -> Result<bool> {
        check_outside()?;
        let Some(quiet) = self.quiet_moment(call, Some(limit)) else { return Ok(false) };
        let Some(no_captures) = WaitWithoutCaptures::begin() else { return Ok(false) };
        let done = waiting::during(call, Target::context(self), || self.wait_for_all());
        drop((no_captures, quiet));
        done.map(|()| true)
    }

    /// The caller watches the wait.
    fn wait_for_all(&self) -> Result<()> {
        let (cuda, _current) = (self.driver().raw(), self.bind()?);
        #[expect(clippy::disallowed_methods, reason = "watched, by the callers' names")]
        // SAFETY: the context is current.
        unsafe {
            call!(cuda.cuCtxSynchronize())
        }
    }

    /// Waits at most `limit` for a moment when no queued work waits for the CPU. The result keeps such work out.
    pub(crate) fn quiet_moment(&self, call: &'static &'static str, limit: Option<Duration>) -> Option<Quiet<'_>> {
        let register = &self.state().quiet;
        let begin = Instant::now();
        let can_come = || limit.is_none_or(|limit| begin.elapsed() < limit) && self.inner.named.works();
        let wait = || {
            loop {
                let quiet = register.enter_after_waits(can_come);
                let armed = self.inner.named.armed();
                if quiet.is_some() && !armed {
                    return quiet;
                }
                drop(quiet);
                if !can_come() {
                    return None;
                }
                if armed {
                    waiting::nap(Duration::from_millis(1));
                }
            }
        };
        self.try_quiet().or_else(|| waiting::during(call, Target::context(self), wait))
    }

    /// Begins a call that waits for all work of the context. Returns `None` if queued work waits for the CPU.
    pub(crate) fn try_quiet(&self) -> Option<Quiet<'_>> {
        self.inner.named.try_quiet(self.state())
    }

    /// Whether queued work waits for the CPU now.
    pub(crate) fn waits_for_cpu(&self) -> bool {
        self.state().quiet.has_waits() || self.inner.named.armed()
    }

    /// The queued work that waits for the CPU, as texts.
    pub(crate) fn cpu_waits(&self) -> Vec<String> {
        let streams = self.state().quiet.streams().into_iter();
        let functions = streams.map(|raw| format!("stream {raw:#x} waits for the end of a host function"));
        let words = queued_waits::of_streams(self.name());
        functions.chain(words).collect()
    }

    /// Frees the memory that waits for such a moment, if this is one. If another thread frees it now, waits for that.
    pub(crate) fn free_postponed(&self) {
        self.inner.named.free_postponed(self.state());
    }

    /// Lets the worker free the memory that waits for such a moment.
    pub(crate) fn employ_worker(&self) -> Result<()> {
        ENDS.employ(&self.inner.frees)
    }
}

/// The postponed frees of a context, for the worker. It keeps neither the context nor its state alive.
pub(super) struct FreesOfContext {
    pub context: NamedContext,
    pub state: Weak<ContextState>,
}

impl Waiting for FreesOfContext {
    fn look(&self) -> bool {
        self.state.upgrade().is_some_and(|state| {
            self.context.free_postponed(&state);
            if !state.busy.is_empty() && self.context.liveness() == Liveness::Alive {
                self.context.end_streams(&state, false);
            }
            let waits = !state.frees.is_empty() || !state.busy.is_empty();
            waits && self.context.liveness() == Liveness::Alive
        })
    }
}

impl Context {
    /// Destroys a stream when its work is done. Nobody uses it any more.
    pub(crate) fn end_when_idle(&self, stream: Spare) {
        self.state().busy.push(stream);
        // If the system cannot start the thread, the end of the context destroys the stream.
        let _ = self.employ_worker();
    }
}

impl NamedContext {
    /// Destroys the dropped streams whose work is done, or all of them.
    pub fn end_streams(&self, state: &ContextState, all: bool) {
        let driver = self.device.driver();
        let (cuda, Ok(_current)) = (driver.raw(), self.bind()) else { return };
        let _relaxed = RelaxedCalls::begin(driver);
        for stream in state.busy.take_all() {
            // SAFETY: the stream is ours, and its context is alive.
            let query = unsafe { call!(cuda.cuStreamQuery(stream.raw)) };
            // A broken context has ended its work. Another failed question says nothing.
            if !all && query.is_err_and(|error| !(error.may_break_the_context() && self.is_broken())) {
                state.busy.push(stream);
                continue;
            }
            // SAFETY: as above. Nobody uses the stream any more.
            unsafe { Handle::Stream(stream.raw).destroy_now(driver, "destroying a stream") };
        }
    }

    fn try_quiet<'state>(&self, state: &'state ContextState) -> Option<Quiet<'state>> {
        // In this order: a stream that begins to wait for a word later waits until this call is over.
        let quiet = state.quiet.enter()?;
        if self.armed() { None } else { Some(quiet) }
    }

    fn armed(&self) -> bool {
        if !queued_waits::exist() {
            return false;
        }
        let _relaxed = RelaxedCalls::begin(self.device.driver());
        queued_waits::hold((self.raw.addr(), self.id))
    }

    /// Makes the calls that wait, unless queued work waits for the CPU.
    fn free_postponed(&self, state: &ContextState) {
        if state.frees.is_empty() {
            return;
        }
        match self.liveness() {
            Liveness::Alive => {
                let turn = state.frees.turn(self.target());
                if let Some(no_captures) = WaitWithoutCaptures::begin()
                    && let Some(quiet) = self.try_quiet(state)
                {
                    let done = self.run_frees(state, &turn, &quiet);
                    drop((quiet, no_captures, turn));
                    self.report_frees(done);
                }
            }
            Liveness::Gone => state.frees.discard(),
            Liveness::DriverGone => {}
        }
    }

    /// Makes the calls that wait for a quiet moment. [`report_frees`](Self::report_frees) ends what is done.
    pub fn run_frees(&self, state: &ContextState, turn: &Turn<'_>, quiet: &Quiet<'_>) -> Vec<FreeDone> {
        let driver = self.device.driver();
        let is_over = |error: &Error| self.is_ended_by(error) || error.may_break_the_context() && self.is_broken();
        let run = |_current| {
            let _relaxed = RelaxedCalls::begin(driver);
            let run = || state.frees.run(driver.raw(), (turn, quiet), is_over);
            waiting::during(&"a postponed free", self.target(), run)
        };
        self.bind().map(run).unwrap_or_else(|error| state.frees.refused(Vec::new(), &error))
    }

    /// Ends what frees have left, after the moment and the turn.
    pub fn report_frees(&self, done: Vec<FreeDone>) {
        let events: Vec<_> = done.iter().filter_map(FreeDone::event).collect();
        if !events.is_empty()
            && let Ok(_current) = self.bind()
        {
            let driver = self.device.driver();
            let _relaxed = RelaxedCalls::begin(driver);
            for EventAfter(event) in events {
                // SAFETY: the event was the freed memory's alone.
                unsafe { Handle::Event(event).destroy_now(driver, "destroying an event after memory") };
            }
        }
        done.into_iter().for_each(FreeDone::report);
    }
}
