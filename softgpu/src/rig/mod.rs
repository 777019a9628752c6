//! Test features beyond serving calls: injected faults, counted calls, a trace, errors that stay with a context.
//!
//! While none of them is on, a call pays for one relaxed load.

mod fault;
mod trace;

pub use fault::{Fault, FaultError, When, faults, faults_from, injected, softgpu_faults, softgpu_injected};
pub use trace::{Call, take_trace, trace};

use crate::call::Needs;
use crate::misuse;
use crate::settings::{self, SWITCH, SettingsError, variable};
use crate::state::Global;
use crate::state::contexts::with_stack;
use crate::sync::lock;
use crate::table;
use cuda_sys::CUresult;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

const COUNT: u32 = 1;
const FAULTS: u32 = 2;
const TRACE: u32 = 4;
const STICKY: u32 = 8;
/// Some functions shall be absent, but a library that exports them all cannot hide them.
const ABSENT: u32 = 32;
/// The environment was not read yet.
const UNREAD: u32 = 16;

/// The features that are on, as bits.
static WANTED: AtomicU32 = AtomicU32::new(UNREAD);

fn want(what: u32, on: bool) {
    if on {
        WANTED.fetch_or(what, Ordering::Relaxed);
    } else {
        WANTED.fetch_and(!what, Ordering::Relaxed);
    }
}

#[inline]
pub(crate) fn is_wanted() -> bool {
    WANTED.load(Ordering::Relaxed) != 0
}

/// Whether some context has an error that stays.
#[inline]
fn is_sticky() -> bool {
    WANTED.load(Ordering::Relaxed) & STICKY != 0
}

/// Makes calls check for errors that stay with contexts.
pub(crate) fn watch_sticky() {
    want(STICKY, true);
}

/// Ends these checks. No contexts are left.
pub(crate) fn forget_sticky() {
    want(STICKY, false);
}

/// How often functions were called since counting began.
#[derive(Default)]
struct Counts {
    all: u64,
    of: BTreeMap<&'static str, u64>,
}

static COUNTS: Mutex<Counts> = Mutex::new(Counts { all: 0, of: BTreeMap::new() });

/// Starts counting calls from 0, or stops. While there are [`faults`], calls are counted too.
///
/// ```
/// softgpu::count_calls(true);
/// // SAFETY: the function takes any number.
/// unsafe { softgpu::FUNCTIONS.cuInit.unwrap()(0) };
/// assert_eq!((softgpu::calls(), softgpu::calls_of("cuInit")), (1, 1));
/// softgpu::count_calls(false);
/// ```
pub fn count_calls(on: bool) {
    *lock(&COUNTS) = Counts::default();
    want(COUNT, on);
}

/// How many calls there were since counting began. All CUDA functions count except cuGetErrorName and cuGetErrorString,
/// and so do the vkgdr functions that can fail.
pub fn calls() -> u64 {
    lock(&COUNTS).all
}

/// How many calls of one function there were since counting began.
pub fn calls_of(function: &str) -> u64 {
    lock(&COUNTS).of.get(function).copied().unwrap_or(0)
}

/// Counts a call, and returns its fault if it has one.
fn next(name: &'static str) -> Option<Fault> {
    let wanted = WANTED.load(Ordering::Relaxed);
    if wanted & (COUNT | FAULTS) == 0 {
        return None;
    }
    let mut counts = lock(&COUNTS);
    counts.all += 1;
    let of = counts.of.entry(name).or_default();
    *of += 1;
    let (of, all) = (*of, counts.all);
    drop(counts);
    if wanted & FAULTS == 0 { None } else { fault::meet(name, of, all) }
}

/// Reads what the environment wants beside [`settings::Settings`], once, at the first call. cuInit fails if a variable
/// cannot be read.
pub(crate) fn read_environment() -> Result<(), SettingsError> {
    static READ: OnceLock<Result<(), SettingsError>> = OnceLock::new();
    let read = || {
        want(UNREAD, false);
        if cfg!(feature = "export-symbols") {
            want(ABSENT, settings::chosen().is_ok_and(|settings| settings.leaves_out()));
        }
        let wrong =
            |name, value: &str, want: String| SettingsError { name, value: value.to_owned(), want: want.into() };
        if let Some(text) = variable("SOFTGPU_FAIL") {
            let list = faults_from(&text);
            faults(list.map_err(|error| wrong("SOFTGPU_FAIL", &text, format!("a list of faults: {error}")))?);
        }
        if let Some(path) = variable("SOFTGPU_TRACE") {
            let opened = trace::to_file(path.as_ref());
            opened.map_err(|error| wrong("SOFTGPU_TRACE", &path, format!("a file that can be written: {error}")))?;
        }
        match variable("SOFTGPU_REPORT").as_deref().map(str::trim) {
            None | Some("0") => {}
            Some("1") => misuse::print(),
            Some(path) if path.contains('/') => {
                let opened = misuse::to_file(path.as_ref());
                opened
                    .map_err(|error| wrong("SOFTGPU_REPORT", path, format!("a file that can be written: {error}")))?;
            }
            Some(other) => {
                return Err(wrong("SOFTGPU_REPORT", other, format!("{SWITCH}, or the path of a file with a `/`")));
            }
        }
        Ok(())
    };
    READ.get_or_init(read).clone()
}

/// Runs a call with the features that are on.
#[cold]
#[inline(never)]
pub(crate) fn watched(
    name: &'static str,
    needs: Needs,
    arguments: &dyn Fn(&mut String),
    run: &mut dyn FnMut() -> CUresult,
) -> CUresult {
    let _told_by_start = read_environment();
    let absent = WANTED.load(Ordering::Relaxed) & ABSENT != 0 && !table::is_served(name);
    let fault = if needs == Needs::Nothing { None } else { next(name) };
    let code = match fault {
        _ if absent => CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER,
        Some(Fault { after: false, code, .. }) => code,
        _ => {
            let code =
                if matches!(needs, Needs::Started | Needs::Locked | Needs::Uncaptured) { sticky(name) } else { None };
            let code = code.unwrap_or_else(&mut *run);
            fault.as_ref().map_or(code, |fault| fault.code)
        }
    };
    if fault.is_some_and(|fault| fault.sticky) {
        fail_context(code);
    }
    if WANTED.load(Ordering::Relaxed) & TRACE != 0 {
        trace::add(name, arguments, i64::from(code.0 as i32));
    }
    code
}

/// The code of a vkgdr call's fault, if it has one.
pub(crate) fn vkgdr_fault(name: &'static str) -> Option<CUresult> {
    if !is_wanted() {
        return None;
    }
    let _told_by_start = read_environment();
    let fault = next(name);
    if WANTED.load(Ordering::Relaxed) & TRACE != 0 {
        trace::add(name, &|_| (), fault.as_ref().map_or(0, |fault| i64::from(fault.code.0 as i32)));
    }
    fault.map(|fault| fault.code)
}

/// Makes an error stay with the current context.
fn fail_context(code: CUresult) {
    let Ok(global) = Global::get() else { return };
    let top = with_stack(global, |contexts| contexts.last().cloned());
    if let Some(context) = top {
        context.fail(code);
    }
}

/// The error that stays with the current context, if the function works in a context.
fn sticky(name: &str) -> Option<CUresult> {
    if !is_sticky() || !is_context_work(name) {
        return None;
    }
    let top = with_stack(Global::get().ok()?, |contexts| contexts.last().cloned())?;
    // A context that has ended answers that it has ended.
    top.failure().filter(|_| top.is_alive())
}

/// Makes a call that waited fail if the work failed meanwhile.
#[inline]
pub(crate) fn after_waiting(name: &'static str, code: CUresult) -> CUresult {
    if is_sticky() && code == CUresult::CUDA_SUCCESS && waits(name) {
        return sticky(name).unwrap_or(code);
    }
    code
}

fn waits(name: &str) -> bool {
    let copies = (name.starts_with("cuMemcpy") || name.starts_with("cuMemset")) && !name.contains("Async");
    copies || name.ends_with("Synchronize") || name.ends_with("Query")
}

/// Whether a function works in a context, and so answers the context's error.
fn is_context_work(name: &str) -> bool {
    let manages =
        ["cuDevice", "cuPointerGet", "cuCtxPush", "cuCtxPop", "cuCtxSet", "cuCtxGet", "cuCtxCreate", "cuCtxDestroy"];
    !manages.iter().any(|prefix| name.starts_with(prefix))
}
