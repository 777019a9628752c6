//! A driver's context by its handle and number, without ownership.

use super::Bound;
use crate::error::{DriverError, call, or_older};
use crate::lifetime::waiting::{Target, What};
use crate::{Device, Driver, Error, Result};
use cuda_sys::{CUcontext, CUresult};

/// Which context is meant. It does not keep the context alive.
#[derive(Clone)]
pub(crate) struct NamedContext {
    pub device: Device,
    pub raw: CUcontext,
    /// Differs for a later context at the same address. Drivers before CUDA 12.0 have no such number.
    pub id: Option<u64>,
}

// SAFETY: a CUcontext is a token that every thread may pass to the driver.
unsafe impl Send for NamedContext {}
// SAFETY: as above.
unsafe impl Sync for NamedContext {}

/// Whether a context still exists. A foreign owner or cuDevicePrimaryCtxReset may have destroyed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Liveness {
    Alive,
    /// The context was destroyed, and with it all objects made in it.
    Gone,
    /// The process is ending and the driver has shut down, or the process was forked. No driver call is allowed.
    DriverGone,
}

impl NamedContext {
    pub fn target(&self) -> Target {
        let context = (self.raw.addr(), self.id);
        Target { what: What::Context, context, device: self.device.ordinal(), ..Target::THREAD }
    }

    pub fn bind(&self) -> Result<Bound<'_>> {
        let driver = self.device.driver();
        let bound = Bound::keep_current(driver, self.raw)?;
        // A real driver accepts a push of a destroyed context, and corrupts its heap at the pop.
        if bound.is_none() && self.liveness() == Liveness::Gone {
            let code = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
            return Err(DriverError { call: "cuCtxPushCurrent_v2", code }.into());
        }
        bound.map_or_else(|| Bound::push(driver, self.raw), Ok)
    }

    pub fn memory_info(&self) -> Result<MemoryInfo> {
        let (cuda, _current) = (self.device.driver().raw(), self.bind()?);
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are writable and the context is current.
        unsafe { call!(cuda.cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok(MemoryInfo { free, total })
    }

    /// Whether queued work may still make progress. A context that has ended or is broken calls no more host functions.
    pub fn works(&self) -> bool {
        // One failed question is no answer.
        self.liveness() == Liveness::Alive && !(self.is_broken() && self.is_broken())
    }

    /// Whether the context is broken, so that none of its work runs any more. A question that fails for another reason
    /// says nothing: a broken context refuses cuMemGetInfo too (H100, driver 580.159), by the code that broke it.
    pub fn is_broken(&self) -> bool {
        self.memory_info().is_err_and(|error| error.may_break_the_context())
    }

    /// Whether a failed call tells the end of the context or of the driver, and with it of all work. One such code is no
    /// answer, so this asks.
    #[cold]
    pub fn is_ended_by(&self, error: &Error) -> bool {
        error.is_teardown() && self.liveness() != Liveness::Alive
    }

    /// A real driver crashes when it destroys a stream of a destroyed context, and accepts a push of such a context.
    /// Only the context's number may be queried at any time, and its interface's release on drivers without numbers. The
    /// end is an answer that the driver gives twice.
    pub fn liveness(&self) -> Liveness {
        match self.ask_liveness() {
            Liveness::Alive => Liveness::Alive,
            end => self.confirm(end),
        }
    }

    #[cold]
    fn confirm(&self, end: Liveness) -> Liveness {
        if self.ask_liveness() == end { end } else { Liveness::Alive }
    }

    #[inline]
    fn ask_liveness(&self) -> Liveness {
        match context_id(self.device.driver(), self.raw) {
            Ok(id) if self.id.is_none_or(|known| known == id) => Liveness::Alive,
            Ok(_) => Liveness::Gone,
            Err(error) => self.told_by(error),
        }
    }

    /// What a refused question for the number tells. Where there are no numbers, the context's interface is asked for, and
    /// a later context at the same address passes for this one.
    #[cold]
    fn told_by(&self, error: Error) -> Liveness {
        let Err(error) = or_older(Err(error), || interface_of(self.device.driver(), self.raw)) else {
            return Liveness::Alive;
        };
        match error.driver_code() {
            _ if matches!(error, Error::Forked { .. }) => Liveness::DriverGone,
            Some(CUresult::CUDA_ERROR_DEINITIALIZED) => Liveness::DriverGone,
            Some(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED | CUresult::CUDA_ERROR_INVALID_CONTEXT) => Liveness::Gone,
            // Any other failure says nothing about the context.
            _ => Liveness::Alive,
        }
    }
}

pub(super) fn context_id(driver: &Driver, raw: CUcontext) -> Result<u64> {
    let (cuda, mut id) = (driver.raw(), 0);
    // SAFETY: `id` is writable; the driver looks the handle up.
    unsafe { call!(cuda.cuCtxGetId(raw, &mut id)) }?;
    Ok(id)
}

/// Asks for the interface of a context, which drivers before CUDA 12.0 tell too. They refuse a context that has ended.
#[cold]
fn interface_of(driver: &Driver, raw: CUcontext) -> Result<()> {
    let (cuda, mut release) = (driver.raw(), 0);
    // SAFETY: `release` is writable; the driver looks the handle up.
    unsafe { call!(cuda.cuCtxGetApiVersion(raw, &mut release)) }
}

/// Memory of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// The free memory.
    pub free: usize,
    /// The total memory.
    pub total: usize,
}
