//! Injected faults.

use super::{COUNTS, Counts, FAULTS, want};
use crate::sync::lock;
use crate::table;
use cuda_sys::CUresult;
use std::ffi::{CStr, c_char, c_int};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which calls fail. Calls are counted from 1 since the last call of [`faults`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The call of this number. A program that tries again, as cuda-mem does when memory runs out, may not fail by it.
    Call(u64),
    /// Every k-th call; `Every(1)` is each call.
    Every(u64),
}

/// A fault: a call that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The full name of the function; `None` for any function, with one count for all calls.
    pub function: Option<String>,
    /// Which calls fail.
    pub when: When,
    /// The code that the call answers; for vkgdr functions also a negative Vulkan code, cast.
    pub code: CUresult,
    /// Whether the call does its work anyway, as calls do that report an error of earlier work.
    pub after: bool,
    /// Whether the context that is current at the call answers this code from then on. If none is current, as at calls for
    /// devices and at the first calls of a program, only this call fails.
    pub sticky: bool,
}

impl Fault {
    /// The k-th call of a function fails and does nothing.
    pub fn call(function: &str, k: u64, code: CUresult) -> Self {
        Self { function: Some(function.to_owned()), when: When::Call(k), code, after: false, sticky: false }
    }

    /// The k-th call of any function fails and does nothing.
    pub fn any(k: u64, code: CUresult) -> Self {
        Self { function: None, when: When::Call(k), code, after: false, sticky: false }
    }
}

/// A text that does not describe a fault.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// The text has another form.
    #[error(
        "{0:?} is not a fault: write NAME:K=CODE, with `any` for every function, `*K` for every K-th call, and after \
         CODE `+` if the call shall do its work, `!` if the error shall stay with the context"
    )]
    Form(String),
    /// The driver has no code of this number or name.
    #[error(
        "{0:?} is not a code: write a name or a number of cuda.h, such as CUDA_ERROR_OUT_OF_MEMORY or 2; for a vkgdr function \
         also a negative number of Vulkan's"
    )]
    Code(String),
    /// No function has this name.
    #[error("`{name}` is not a driver or vkgdr function{}", question(*.meant))]
    Function {
        /// The name in the text.
        name: String,
        /// The name with its version, if only the version was missing.
        meant: Option<&'static str>,
    },
}

cuda_sys::debug_as_display!(FaultError);

fn question(meant: Option<&str>) -> String {
    meant.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

static LIST: Mutex<Vec<Fault>> = Mutex::new(Vec::new());
static INJECTED: AtomicU64 = AtomicU64::new(0);

/// Sets the faults, in place of all earlier ones, and counts calls from 0 again. An empty list ends fault injection: calls
/// are then counted only after [`count_calls`](crate::count_calls).
///
/// ```
/// use cuda_sys::CUresult;
/// let init = || unsafe { softgpu::FUNCTIONS.cuInit.unwrap()(0) };
/// softgpu::faults([softgpu::Fault::call("cuInit", 2, CUresult::CUDA_ERROR_NO_DEVICE)]);
/// assert_eq!([init(), init(), init()].map(|code| code.0), [0, 100, 0]);
/// assert_eq!((softgpu::calls(), softgpu::injected()), (3, 1));
/// softgpu::faults([]);
/// ```
pub fn faults(faults: impl IntoIterator<Item = Fault>) {
    let mut list = lock(&LIST);
    *list = faults.into_iter().collect();
    *lock(&COUNTS) = Counts::default();
    INJECTED.store(0, Ordering::Relaxed);
    want(FAULTS, !list.is_empty());
}

/// How many calls failed by a fault since the last call of [`faults`].
pub fn injected() -> u64 {
    INJECTED.load(Ordering::Relaxed)
}

/// Sets the faults that a text [describes](faults_from), for C programs; an empty text ends fault injection. Returns their
/// number, or -1 if the text cannot be read, which a line on standard error explains.
///
/// # Safety
///
/// The text ends with 0.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub unsafe extern "C" fn softgpu_faults(text: *const c_char) -> c_int {
    if text.is_null() {
        eprintln!("softgpu_faults: the text is NULL: pass \"\" to end the injection of faults");
        return -1;
    }
    let set = || {
        // SAFETY: this function's contract.
        let list = faults_from(&unsafe { CStr::from_ptr(text) }.to_string_lossy())?;
        let count = c_int::try_from(list.len()).unwrap_or(c_int::MAX);
        faults(list);
        Ok(count)
    };
    let told = |error: FaultError| eprintln!("softgpu_faults: {error}");
    std::panic::catch_unwind(|| set().map_err(told).unwrap_or(-1)).unwrap_or(-1)
}

/// As [`injected`], for C programs.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub extern "C" fn softgpu_injected() -> u64 {
    injected()
}

/// Parses faults such as `cuMemAlloc_v2:3=CUDA_ERROR_OUT_OF_MEMORY,cuMemAlloc_v2:9=700!`, the form of the environment's
/// `SOFTGPU_FAIL`. A code is a name or a number.
///
/// # Errors
///
/// A part is not a fault, or names a function or a code that does not exist.
pub fn faults_from(text: &str) -> Result<Vec<Fault>, FaultError> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(one).collect()
}

fn one(part: &str) -> Result<Fault, FaultError> {
    let wrong = || FaultError::Form(part.to_owned());
    let (call, code) = part.split_once('=').ok_or_else(wrong)?;
    let (name, k) = call.split_once(':').ok_or_else(wrong)?;
    let (number, every) = k.strip_prefix('*').map_or((k, false), |rest| (rest, true));
    let number: u64 = number.parse().ok().filter(|number| *number > 0).ok_or_else(wrong)?;
    let code_text = code.trim_end_matches(['+', '!']);
    let marks = &code[code_text.len()..];
    if name.is_empty() || code_text.is_empty() {
        return Err(wrong());
    }
    if name != "any" && !table::is_known(name) {
        return Err(FaultError::Function { name: name.to_owned(), meant: table::meant(name) });
    }
    let code = code_of(code_text, name.starts_with("vkgdr_")).ok_or_else(|| FaultError::Code(code_text.to_owned()))?;
    Ok(Fault {
        function: (name != "any").then(|| name.to_owned()),
        when: if every { When::Every(number) } else { When::Call(number) },
        code,
        after: marks.contains('+'),
        sticky: marks.contains('!'),
    })
}

/// The code of a number or name. vkgdr's functions also answer codes of Vulkan and their own, which are negative.
fn code_of(text: &str, of_vkgdr: bool) -> Option<CUresult> {
    match text.parse::<i32>() {
        Ok(number) if of_vkgdr && number < 0 => Some(CUresult(number as u32)),
        Ok(number) => Some(CUresult(u32::try_from(number).ok()?)).filter(|code| number != 0 && code.name().is_some()),
        // The highest code is CUDA_ERROR_UNKNOWN.
        Err(_) => (1..=CUresult::CUDA_ERROR_UNKNOWN.0).map(CUresult).find(|code| code.name() == Some(text)),
    }
}

/// The fault for a call that is the `of`-th of its function and the `all`-th of all calls.
pub(super) fn meet(name: &str, of: u64, all: u64) -> Option<Fault> {
    let list = lock(&LIST);
    let meets = |fault: &&Fault| {
        let number = match &fault.function {
            None => all,
            Some(function) if function == name => of,
            Some(_) => return false,
        };
        match fault.when {
            When::Call(k) => number == k,
            When::Every(k) => k > 0 && number.is_multiple_of(k),
        }
    };
    let fault = list.iter().find(meets).cloned();
    if fault.is_some() {
        INJECTED.fetch_add(1, Ordering::Relaxed);
    }
    fault
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_from_text_and_what_is_none_is_named() {
        let list = faults_from("cuMemAlloc_v2:3=2, any:*17=700!,vkgdr_open:1=-3+").unwrap();
        assert_eq!(list[0], Fault::call("cuMemAlloc_v2", 3, CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        let stays =
            Fault { when: When::Every(17), sticky: true, ..Fault::any(1, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS) };
        assert_eq!(list[1], stays);
        assert_eq!((list[2].code.0 as i32, list[2].after), (-3, true));
        for bad in ["x", "x:1", "x:0=2", ":1=2", "x:1=", "x:k=2"] {
            assert_eq!(faults_from(bad), Err(FaultError::Form(bad.to_owned())));
        }
        let named = faults_from("cuMemAlloc_v2:3=CUDA_ERROR_OUT_OF_MEMORY,any:1=CUDA_ERROR_UNKNOWN!").unwrap();
        assert_eq!(named[0], list[0]);
        assert_eq!((named[1].code, named[1].sticky), (CUresult::CUDA_ERROR_UNKNOWN, true));
        for bad in ["0", "9999", "-3", "2?", "CUDA_ERROR_NONE", "CUDA_SUCCESS"] {
            assert_eq!(faults_from(&format!("cuInit:1={bad}")), Err(FaultError::Code(bad.to_owned())));
        }
        let refused = |text| faults_from(text).unwrap_err().to_string();
        let text = refused("cuMemFreeAsync:1=2,cuMemcpyHtoD:1=2");
        assert_eq!(text, "`cuMemcpyHtoD` is not a driver or vkgdr function; did you mean `cuMemcpyHtoD_v2`?");
        assert_eq!(refused("vkgdr_close_all:1=2"), "`vkgdr_close_all` is not a driver or vkgdr function");
    }
}
