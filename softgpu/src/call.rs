//! The boundary that every driver call crosses: shells are made here, and what holds for all of them is checked here.

use crate::rig;
use crate::state::{Global, capture, context};
use cuda_sys::CUresult;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

/// What the code behind a shell answers: an error is the code that the driver gives.
pub(crate) type Result<T = ()> = core::result::Result<T, CUresult>;

/// Which calls a refusal does not concern.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing: error names.
    Nothing,
    /// A process in which the driver has not ended: a forked child too, in which it is unfit.
    Process,
    /// A driver that has not ended.
    Library,
    /// An initialised driver.
    Started,
    /// The same, and the current context's lock.
    Locked,
    /// The same, and no capture that forbids unsafe calls to this thread.
    Uncaptured,
}

/// When not 0: the code that every call answers.
static REFUSAL: AtomicU32 = AtomicU32::new(0);

/// Lets every CUDA call answer CUDA_ERROR_DEINITIALIZED, as the driver does while the process ends; or ends that.
///
/// Only cuGetErrorName and cuGetErrorString still answer.
pub fn shut_down(down: bool) {
    refuse(if down { CUresult::CUDA_ERROR_DEINITIALIZED } else { CUresult::CUDA_SUCCESS });
}

/// Sets what every call answers, or ends that with CUDA_SUCCESS.
pub(crate) fn refuse(code: CUresult) {
    REFUSAL.store(code.0, Ordering::Release);
}

/// What every call answers now, if anything.
pub(crate) fn refusal() -> Result {
    match REFUSAL.load(Ordering::Acquire) {
        0 => Ok(()),
        code => Err(CUresult(code)),
    }
}

thread_local! {
    /// Whether this thread runs a host function of a stream.
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Runs a host function of a stream: it must not call the driver.
pub(crate) fn host_function(run: impl FnOnce()) {
    IN_HOST_FUNCTION.with(|inside| inside.set(true));
    run();
    IN_HOST_FUNCTION.with(|inside| inside.set(false));
}

/// Every call of the driver goes through here. No panic leaves it.
#[inline]
pub(crate) fn call(
    name: &'static str,
    needs: Needs,
    arguments: &dyn Fn(&mut String),
    body: impl FnOnce() -> Result,
) -> CUresult {
    if rig::is_wanted() {
        let mut body = Some(body);
        let mut run = || body.take().map_or(CUresult::CUDA_ERROR_UNKNOWN, |body| served(name, needs, body));
        return rig::watched(name, needs, arguments, &mut run);
    }
    served(name, needs, body)
}

#[inline]
fn served(name: &'static str, needs: Needs, body: impl FnOnce() -> Result) -> CUresult {
    let answer = catch_unwind(AssertUnwindSafe(|| {
        if needs != Needs::Nothing {
            refusal().or_else(|code| match needs {
                Needs::Process if code == CUresult::CUDA_ERROR_NOT_INITIALIZED => Ok(()),
                _ => Err(code),
            })?;
            if IN_HOST_FUNCTION.with(Cell::get) {
                return Err(CUresult::CUDA_ERROR_NOT_PERMITTED);
            }
        }
        match needs {
            Needs::Started => drop(Global::get()?),
            Needs::Locked => context::pass(Global::get()?),
            Needs::Uncaptured => {
                context::pass(Global::get()?);
                capture::check_unsafe(Global::get()?)?;
            }
            _ => {}
        }
        body()
    }));
    let code = match answer {
        Ok(Ok(())) => CUresult::CUDA_SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => CUresult::CUDA_ERROR_UNKNOWN,
    };
    rig::after_waiting(name, code)
}

/// Fails with CUDA_ERROR_INVALID_VALUE unless a condition holds.
pub(crate) fn ensure(holds: bool) -> Result {
    if holds { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

/// Fails with CUDA_ERROR_NOT_READY unless work is done.
pub(crate) fn ensure_done(done: bool) -> Result {
    if done { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_READY) }
}

/// Writes a result that the caller must want.
///
/// # Safety
///
/// `out` is null or writable.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> Result {
    ensure(!out.is_null())?;
    // SAFETY: not null, so writable by this function's contract.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes a result that the caller may leave out.
///
/// # Safety
///
/// `out` is null or writable.
pub(crate) unsafe fn offer<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: not null, so writable by this function's contract.
        unsafe { out.write(value) };
    }
}

/// Defines driver functions. A body runs inside [`call`] and in an unsafe context: what it may rely on is the
/// interface's contract, that a pointer is null or valid for what the function reads or writes through it.
macro_rules! driver_calls {
    ($( $(#[doc = $doc:literal])* fn $name:ident[$needs:ident]($($argument:ident: $type:ty),* $(,)?) $body:block )*) => {
        $(
            $(#[doc = $doc])*
            ///
            /// # Safety
            ///
            /// Pointers are null or valid for what the driver's interface says of this function.
            #[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
            #[allow(non_snake_case, clippy::too_many_arguments)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> cuda_sys::CUresult {
                let arguments = |_out: &mut String| {
                    // Writing to a String cannot fail.
                    $(let _ = std::fmt::Write::write_fmt(_out, format_args!("{:?}, ", $argument));)*
                };
                $crate::call::call(stringify!($name), $crate::call::Needs::$needs, &arguments, move || {
                    // SAFETY: the caller keeps the contract stated above; the body checks pointers for null.
                    #[allow(unused_unsafe)]
                    unsafe { $body }
                })
            }
        )*
    };
}
pub(crate) use driver_calls;
