//! The boundary of all driver calls: a macro that defines the C functions, and the checks that they share.

use crate::rig;
use crate::state::Global;
use crate::state::contexts;
use crate::state::graphs::capture;
use crate::sync::lock;
use cuda_sys::CUresult;
use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// The result of the code behind a C function. The error is the code that the driver answers.
pub(crate) type Result<T = ()> = core::result::Result<T, CUresult>;

/// What a call needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing: calls for the names of errors.
    Nothing,
    /// A driver that has not ended. The call also works in a forked child.
    Process,
    /// A driver that has not ended, in the process that loaded it.
    Library,
    /// An initialised driver.
    Started,
    /// As `Started`. The call waits while another call holds the current context's lock.
    Locked,
    /// As `Locked`, and no capture that forbids unsafe calls to this thread.
    Uncaptured,
}

/// What the body of a call gets: the driver's start, or nothing if the call may come before it.
pub(crate) trait Given: Sized {
    fn of(start: Option<&'static Global>) -> Result<Self>;
}

impl Given for &'static Global {
    fn of(start: Option<&'static Global>) -> Result<Self> {
        start.ok_or(CUresult::CUDA_ERROR_NOT_INITIALIZED)
    }
}

impl Given for () {
    fn of(_start: Option<&'static Global>) -> Result {
        Ok(())
    }
}

/// The code that every call answers; 0 for none.
static REFUSAL: AtomicU32 = AtomicU32::new(0);

/// If `down`, every CUDA call answers CUDA_ERROR_DEINITIALIZED, as in the driver while the process ends. If not, calls
/// work again.
///
/// cuGetErrorName and cuGetErrorString always answer.
pub fn shut_down(down: bool) {
    refuse(if down { CUresult::CUDA_ERROR_DEINITIALIZED } else { CUresult::CUDA_SUCCESS });
}

/// Sets the code that every call answers. CUDA_SUCCESS lets calls work again.
pub(crate) fn refuse(code: CUresult) {
    REFUSAL.store(code.0, Ordering::Release);
}

/// Fails with the code that every call answers now, if any.
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

thread_local! {
    /// Whether the null stream is this thread's own default stream: in the per-thread form of a function.
    static NULL_IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Whether the null stream is this thread's own default stream.
pub(crate) fn null_is_own() -> bool {
    NULL_IS_OWN.with(Cell::get)
}

/// Makes a call in which the null stream is this thread's own default stream.
pub(crate) fn with_own_null(call: impl FnOnce() -> CUresult) -> CUresult {
    NULL_IS_OWN.with(|own| own.set(true));
    let code = call();
    NULL_IS_OWN.with(|own| own.set(false));
    code
}

/// The per-thread form of a function.
pub(crate) struct PerThread {
    /// The function's name.
    pub(crate) of: &'static str,
    /// The form's name, which ends with `_ptsz` or `_ptds`.
    pub(crate) name: &'static str,
    pub(crate) address: fn() -> *const c_void,
}

/// Runs a host function of a stream, which must not call the driver.
pub(crate) fn host_function(run: impl FnOnce()) {
    IN_HOST_FUNCTION.with(|inside| inside.set(true));
    run();
    IN_HOST_FUNCTION.with(|inside| inside.set(false));
}

/// Runs a driver call; every call goes through here. No panic leaves it.
#[inline]
pub(crate) fn call<G: Given>(
    name: &'static str,
    needs: Needs,
    arguments: &dyn Fn(&mut String),
    body: impl FnOnce(G) -> Result,
) -> CUresult {
    if rig::is_wanted() {
        let mut body = Some(body);
        let mut run = || body.take().map_or(CUresult::CUDA_ERROR_UNKNOWN, |body| served(name, needs, body));
        return rig::watched(name, needs, arguments, &mut run);
    }
    served(name, needs, body)
}

#[inline]
fn served<G: Given>(name: &'static str, needs: Needs, body: impl FnOnce(G) -> Result) -> CUresult {
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
        let start = match needs {
            Needs::Nothing | Needs::Process | Needs::Library => None,
            Needs::Started | Needs::Locked | Needs::Uncaptured => {
                let global = Global::get()?;
                if needs != Needs::Started {
                    contexts::pass(global);
                }
                if needs == Needs::Uncaptured {
                    capture::check_unsafe(global)?;
                }
                Some(global)
            }
        };
        body(G::of(start)?)
    }));
    let code = match answer {
        Ok(Ok(())) => CUresult::CUDA_SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => CUresult::CUDA_ERROR_UNKNOWN,
    };
    rig::after_waiting(name, code)
}

/// Prints a text on the standard error stream, once.
pub(crate) fn tell(text: &str) {
    static TOLD: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    if lock(&TOLD).get_or_insert_default().insert(text.to_owned()) {
        eprintln!("{text}");
    }
}

/// Fails with CUDA_ERROR_INVALID_VALUE unless a condition holds.
pub(crate) fn ensure(holds: bool) -> Result {
    if holds { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

/// Fails with CUDA_ERROR_NOT_READY unless work is done.
pub(crate) fn ensure_done(done: bool) -> Result {
    if done { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_READY) }
}

/// Writes a result. Fails if the pointer is null.
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

/// Writes a result unless the pointer is null.
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

/// Defines driver functions. Their bodies get what the first line states, a [`Given`]. A body runs inside [`call`] and
/// in an unsafe context. It may rely on the interface's contract: each pointer is null, or valid for what the function
/// reads or writes through it. The second name in brackets is the function's per-thread form, which counts and fails as
/// the function.
macro_rules! driver_calls {
    (|$given:tt: $kind:ty| $(
        $(#[doc = $doc:literal])*
        fn $name:ident[$needs:ident $(, $own:ident)?]($($argument:ident: $type:ty),* $(,)?) $body:block
    )*) => {
        pub(crate) const PER_THREAD: &[$crate::call::PerThread] = &[$($(
            $crate::call::PerThread {
                of: stringify!($name),
                name: stringify!($own),
                address: || $own as *const std::ffi::c_void,
            },
        )?)*];
        $(
            $crate::call::per_thread_form! { [$($own)?] $name($($argument: $type),*) }
            $(#[doc = $doc])*
            ///
            /// # Safety
            ///
            /// Each pointer is null, or valid for what the driver's interface says of this function.
            #[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
            #[allow(non_snake_case, clippy::too_many_arguments)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> cuda_sys::CUresult {
                let arguments = |_out: &mut String| {
                    // Writing to a String cannot fail.
                    $(let _ = std::fmt::Write::write_fmt(_out, format_args!("{:?}, ", $argument));)*
                };
                #[allow(unused_variables)]
                let body = move |$given: $kind| {
                    // SAFETY: the caller keeps the contract stated above; the body checks pointers for null.
                    #[allow(unused_unsafe)]
                    unsafe { $body }
                };
                $crate::call::call(stringify!($name), $crate::call::Needs::$needs, &arguments, body)
            }
        )*
    };
}
pub(crate) use driver_calls;

/// Defines the per-thread form of a driver function, if it has one.
macro_rules! per_thread_form {
    ([] $($rest:tt)*) => {};
    ([$own:ident] $name:ident($($argument:ident: $type:ty),*)) => {
        #[doc = concat!("As [`", stringify!($name), "`]. The null stream is the thread's own default stream.")]
        ///
        /// # Safety
        ///
        /// As there.
        #[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub unsafe extern "C" fn $own($($argument: $type),*) -> cuda_sys::CUresult {
            // SAFETY: the caller keeps the contract, which is the same.
            $crate::call::with_own_null(|| unsafe { $name($($argument),*) })
        }
    };
}
pub(crate) use per_thread_form;
