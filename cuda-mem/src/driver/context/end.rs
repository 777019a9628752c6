//! The end of a context.

use super::{ContextOwner, ContextOwnership, ContextState, Handle, Liveness};
use crate::error::DriverError;
use crate::lifetime::waiting::{self, watched};
use crate::lifetime::worker::ENDS;
use crate::lifetime::{drop_after_host_function, drop_outside, inside_host_function};
use cuda_sys::CUresult;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to ask for the end of the work before the last frees, if the driver refuses to tell.
const LAST_TRIES: Duration = Duration::from_secs(2);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(1);

impl ContextOwner {
    /// Makes the calls that wait, before the last value for the context ends. If the context ends too, this first waits
    /// for work that waits for the CPU, because the driver would wait for it with its lock held.
    fn finish_frees(&mut self) {
        let Some(mut state) = Arc::into_inner(core::mem::take(&mut self.state)) else { return };
        self.end_reserve(&state);
        self.run_last_frees(&state);
        if !state.busy.is_empty() && self.named.liveness() == Liveness::Alive {
            self.named.end_streams(&state, true);
        }
        let liveness = self.named.liveness();
        if liveness != Liveness::DriverGone {
            let current = self.named.bind();
            let alive = liveness == Liveness::Alive && current.is_ok();
            state.memory.end(self.named.device.driver(), self.named.target(), alive);
        }
    }

    fn take(&mut self) -> Self {
        Self {
            named: self.named.clone(),
            ownership: core::mem::replace(&mut self.ownership, ContextOwnership::Borrowed(None)),
            start: self.start,
            drop_errors: self.drop_errors.clone(),
            state: core::mem::take(&mut self.state),
            frees: self.frees.clone(),
        }
    }

    fn run_last_frees(&self, state: &ContextState) {
        let waits = !state.frees.is_empty()
            || !state.busy.is_empty()
            || !matches!(self.ownership, ContextOwnership::Borrowed(_));
        if !waits || self.named.liveness() != Liveness::Alive {
            return;
        }
        let begin = Instant::now();
        let run = || {
            while let Some(quiet) = state.quiet.enter_after_waits(|| self.named.works()) {
                let turn = state.frees.turn(self.named.target());
                let done = self.named.run_frees(state, &turn, &quiet);
                drop((quiet, turn));
                self.named.report_frees(done);
                if state.frees.is_empty() || begin.elapsed() >= LAST_TRIES {
                    break;
                }
                waiting::nap(PAUSE);
            }
        };
        waiting::during(&"the end of a context", self.named.target(), run);
        if !state.frees.is_empty() {
            // Nobody tries again after the end. The driver refuses, or the context is broken.
            let unknown = || DriverError { call: "cuEventSynchronize", code: CUresult::CUDA_ERROR_UNKNOWN }.into();
            let refusal = state.frees.refusal().or_else(|| self.named.memory_info().err());
            self.named.report_frees(state.frees.give_up(&refusal.unwrap_or_else(unknown)));
        }
    }

    /// Destroys the streams that the last value for the context has kept.
    fn end_reserve(&self, state: &ContextState) {
        let spares = state.reserve.take_all();
        if spares.is_empty() || self.named.liveness() != Liveness::Alive {
            return;
        }
        let driver = self.named.device.driver();
        let Ok(_current) = self.named.bind() else { return };
        for spare in spares {
            // SAFETY: the stream is ours and idle, and its context is alive.
            unsafe { Handle::Stream(spare.raw).destroy_now(driver, "destroying a stream of the reserve") };
        }
    }
}

impl Drop for ContextOwner {
    fn drop(&mut self) {
        if inside_host_function() {
            return drop_after_host_function(self.take());
        }
        // The worker must not hold the state, and must not free while the context ends.
        ENDS.dismiss(&self.frees);
        self.finish_frees();
        let liveness = self.named.liveness();
        let driver = self.named.device.driver();
        let cuda = driver.raw();
        let target = self.named.target();
        let end = || match self.ownership {
            _ if liveness == Liveness::DriverGone => Ok(()),
            // A reset of softgpu has ended the count. Those of its present start belong to others.
            ContextOwnership::Primary if self.start != driver.start_number() => Ok(()),
            // SAFETY: the count is ours, and no object is left in the context: objects hold their context.
            ContextOwnership::Primary => unsafe {
                watched!(target, cuda.cuDevicePrimaryCtxRelease_v2(self.named.device.raw()))
            },
            // SAFETY: the context is ours, and no object is left in it.
            ContextOwnership::Owned if liveness == Liveness::Alive => unsafe {
                watched!(target, cuda.cuCtxDestroy_v2(self.named.raw))
            },
            ContextOwnership::Owned | ContextOwnership::Borrowed(_) => Ok(()),
        };
        match driver.ends().alone(end) {
            // If another library has reset the primary context, there is no count left to release.
            Err(_) if liveness != Liveness::Alive => {}
            Err(error) => driver.drop_errors().push("ending a context", error),
            Ok(()) => {}
        }
        // Errors that nobody took go to the driver's list.
        driver.drop_errors().inherit(&self.drop_errors);
        if let ContextOwnership::Borrowed(owner) = &mut self.ownership
            && let Some(owner) = owner.take()
        {
            drop_outside(owner);
        }
    }
}
