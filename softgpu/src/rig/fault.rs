//! Faults that a test injects.

use super::{COUNTS, Counts, FAULTS, want};
use crate::state::sync::lock;
use crate::table;
use cuda_sys::CUresult;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which call fails, counted from 1 since [`faults`] was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// One call.
    Call(u64),
    /// Every k-th call.
    Every(u64),
}

/// A failure of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The function by its full name; `None` for any: then all calls are counted together.
    pub function: Option<String>,
    /// Which call.
    pub when: When,
    /// What it answers. For vkgdr functions also a negative Vulkan code, cast.
    pub code: CUresult,
    /// Whether the call does its work all the same, as calls do that report what earlier work met.
    pub after: bool,
    /// Whether the current context answers so from then on.
    pub sticky: bool,
}

impl Fault {
    /// The k-th call of a function fails and does nothing.
    pub fn call(function: &str, k: u64, code: CUresult) -> Self {
        Self { function: Some(function.to_owned()), when: When::Call(k), code, after: false, sticky: false }
    }

    /// The k-th call of whatever function fails and does nothing.
    pub fn any(k: u64, code: CUresult) -> Self {
        Self { function: None, when: When::Call(k), code, after: false, sticky: false }
    }
}

/// A text that describes no fault.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// The form is another.
    #[error(
        "{0:?} is no fault: write NAME:K=CODE, with `any` for every function, `*K` for every K-th call, and after \
         CODE `+` to let the call do its work, `!` to let the context keep the error"
    )]
    Form(String),
    /// No table has the function.
    #[error("`{name}` is no function of the driver's table or vkgdr's{}", question(*.meant))]
    Function {
        /// What the text has.
        name: String,
        /// The name with its version, if that is what lacks.
        meant: Option<&'static str>,
    },
}

cuda_sys::debug_as_display!(FaultError);

fn question(meant: Option<&str>) -> String {
    meant.map(|name| format!("; is `{name}` meant?")).unwrap_or_default()
}

static LIST: Mutex<Vec<Fault>> = Mutex::new(Vec::new());
static INJECTED: AtomicU64 = AtomicU64::new(0);

/// Sets the faults that calls meet, instead of those that were set before, and counts calls from 0 again. Without
/// faults this ends.
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

/// How many faults calls met since [`faults`] was called.
pub fn injected() -> u64 {
    INJECTED.load(Ordering::Relaxed)
}

/// The faults of a text such as `cuMemAlloc_v2:3=2,any:17=700!`, the form of the environment's `SOFTGPU_FAIL`.
///
/// # Errors
///
/// A part is no fault, or of a function that there is not.
pub fn faults_from(text: &str) -> Result<Vec<Fault>, FaultError> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(one).collect()
}

fn one(part: &str) -> Result<Fault, FaultError> {
    let wrong = || FaultError::Form(part.to_owned());
    let (call, code) = part.split_once('=').ok_or_else(wrong)?;
    let (name, k) = call.split_once(':').ok_or_else(wrong)?;
    let (number, every) = k.strip_prefix('*').map_or((k, false), |rest| (rest, true));
    let number: u64 = number.parse().ok().filter(|number| *number > 0).ok_or_else(wrong)?;
    let digits = code.trim_end_matches(['+', '!']);
    let value: i32 = digits.parse().ok().filter(|value| *value != 0).ok_or_else(wrong)?;
    let marks = &code[digits.len()..];
    if name.is_empty() {
        return Err(wrong());
    }
    if name != "any" && !table::is_known(name) {
        return Err(FaultError::Function { name: name.to_owned(), meant: table::meant(name) });
    }
    Ok(Fault {
        function: (name != "any").then(|| name.to_owned()),
        when: if every { When::Every(number) } else { When::Call(number) },
        code: CUresult(value as u32),
        after: marks.contains('+'),
        sticky: marks.contains('!'),
    })
}

/// The fault of a call that is the `of`-th of its function, and the `all`-th of all.
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
        for bad in ["x", "x:1", "x:0=2", ":1=2", "x:1=0", "x:k=2", "x:1=2?"] {
            assert_eq!(faults_from(bad), Err(FaultError::Form(bad.to_owned())));
        }
        let refused = |text| faults_from(text).unwrap_err().to_string();
        let text = refused("cuMemFreeAsync:1=2,cuMemcpyHtoD:1=2");
        assert_eq!(text, "`cuMemcpyHtoD` is no function of the driver's table or vkgdr's; is `cuMemcpyHtoD_v2` meant?");
        assert_eq!(refused("vkgdr_close_all:1=2"), "`vkgdr_close_all` is no function of the driver's table or vkgdr's");
    }
}
