//! One call of the interface: checks its arguments, turns errors into a status and a message, and stops panics.

mod structs;

use crate::handle::{self, Object, Refusal, Use};
use crate::status::{
    CUDAMEM_ERROR_INVALID_ARGUMENT, CUDAMEM_ERROR_INVALID_HANDLE, CUDAMEM_ERROR_OUT_OF_MEMORY, CUDAMEM_ERROR_PANIC,
    CUDAMEM_SUCCESS, cudamem_status, status_of,
};
use crate::{callbacks, message, rust_names};
use core::any::Any;
use core::ffi::{CStr, c_char, c_void};
use core::fmt;
use core::mem::MaybeUninit;
use core::slice;
use core::time::Duration;
use cuda_mem::{Error, Refused, check_not_forked};
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use structs::{Options, check_fill, fill, options};

/// Why a call failed.
#[derive(Debug)]
pub enum Failure {
    /// cuda-mem returned an error.
    Library(Error),
    /// A handle is invalid, or belongs to another kind of object.
    Handle { argument: &'static str, wanted: &'static [handle::Kind], value: u64, refusal: Refusal },
    /// No handle of the kind is left.
    NoHandles(handle::Kind),
    /// A callback of the program returned an error.
    GivenUp { argument: &'static str, status: cudamem_status },
    /// An argument is out of range.
    Argument { argument: &'static str, value: String, rule: String },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Library(error) => f.write_str(&rust_names::in_c(&error.to_string())),
            Failure::Handle { argument, wanted, value, refusal } => {
                let needed = names(wanted);
                match refusal {
                    Refusal::Null => write!(f, "{argument} is the null handle, but must be {needed}"),
                    Refusal::Kind(kind) => {
                        write!(f, "{argument} ({value:#x}) is {}, but must be {needed}", kind.name())
                    }
                    Refusal::Destroyed(kind) => {
                        write!(f, "{argument} ({value:#x}) was {} that has been destroyed", kind.name())?;
                        if wanted.contains(kind) { Ok(()) } else { write!(f, ", but must be {needed}") }
                    }
                    Refusal::Unknown => write!(
                        f,
                        "{argument} ({value:#x}) is not a handle: this process never made it. It may be uninitialised, \
                         overwritten, or from another process"
                    ),
                }
            }
            Failure::GivenUp { argument, status } => write!(f, "{argument} returned status {status}"),
            Failure::NoHandles(kind) => write!(f, "no handle is left for {}: destroy some", kind.name()),
            Failure::Argument { argument, value, rule } => write!(f, "{argument} is {value}, but {rule}"),
        }
    }
}

/// The names of kinds: "a stream, an event or a graph".
fn names(kinds: &[handle::Kind]) -> String {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    match &names[..] {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        names => names.concat(),
    }
}

/// The result of a call's body.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Where the program wants a result; None if it passed NULL.
pub type Out<'call, T> = Option<&'call mut MaybeUninit<T>>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Library(error)
    }
}

impl<V> From<Box<Refused<V>>> for Failure {
    fn from(refused: Box<Refused<V>>) -> Self {
        Failure::Library(refused.error)
    }
}

/// The C type of a handle.
pub trait Handle: Copy {
    /// The type of the object behind the handle.
    type Object: Object;

    fn new(id: u64) -> Self;
    fn id(self) -> u64;
}

/// Connects a handle type with its object type.
macro_rules! handle_type {
    ($handle:ident: $object:ty $(, $kind:expr)?) => {
        $crate::handle::object!($object: $handle::KIND);
        $(const _: $crate::handle::Kind = $kind;)?

        impl $crate::call::Handle for $handle {
            type Object = $object;

            #[inline]
            fn new(id: u64) -> Self {
                Self { id }
            }

            #[inline]
            fn id(self) -> u64 {
                self.id
            }
        }
    };
}
pub(crate) use handle_type;

/// Finds the object of a handle argument. In a forked process, refuses before the call takes a lock.
#[inline]
pub fn object<H: Handle>(argument: &'static str, handle: H) -> Outcome<Use<H::Object>> {
    check_not_forked("use of a handle")?;
    let wanted = const { &[H::Object::KIND] };
    handle::find(handle.id()).map_err(|refusal| Failure::Handle { argument, wanted, value: handle.id(), refusal })
}

/// Makes a handle for an object. If all handles are in use, the object is dropped.
pub fn new_handle<H: Handle>(object: H::Object) -> Outcome<H> {
    new_handle_with(|| Ok::<_, Failure>(object))
}

/// Makes a handle for the object that `make` returns. `make` runs only once a handle is free.
#[inline]
pub fn new_handle_with<H: Handle, E: Into<Failure>>(make: impl FnOnce() -> Result<H::Object, E>) -> Outcome<H> {
    check_not_forked("making a handle")?;
    match handle::insert_with(make) {
        Ok(made) => Ok(H::new(made.map_err(Into::into)?)),
        Err(handle::Full) => Err(Failure::NoHandles(H::Object::KIND)),
    }
}

/// Destroys a handle and ends its object; does nothing for the null handle, and in a forked process, whose parent owns
/// the object. If another thread uses the object, the last
/// user drops it instead. If `end` fails, the handle stays valid.
#[inline]
pub fn destroy<H: Handle>(
    argument: &'static str,
    handle: H,
    end: impl FnOnce(&mut H::Object) -> cuda_mem::Result<()>,
) -> Outcome {
    if handle.id() == 0 || check_not_forked("destroying a handle").is_err() {
        return Ok(());
    }
    let wanted = const { &[H::Object::KIND] };
    // The error is boxed, because `remove` moves its result and almost always returns no error.
    match handle::remove(handle.id(), |object| end(object).map_err(Box::new)) {
        Ok(ended) => ended.map_err(|error| Failure::Library(*error)),
        Err(refusal) => Err(Failure::Handle { argument, wanted, value: handle.id(), refusal }),
    }
}

/// An `end` for objects that are only dropped. Errors of the drop become drop errors.
pub fn drop_object<T>(_: &mut T) -> cuda_mem::Result<()> {
    Ok(())
}

/// The place of a result that must not be NULL.
#[inline]
pub fn out<'call, T>(argument: &'static str, place: Out<'call, T>) -> Outcome<&'call mut MaybeUninit<T>> {
    place.ok_or_else(|| invalid(argument, "NULL", "it must point to where the result goes"))
}

#[cold]
pub fn invalid(argument: &'static str, value: impl Into<String>, rule: impl Into<String>) -> Failure {
    Failure::Argument { argument, value: value.into(), rule: rule.into() }
}

/// Refuses flags that this release does not know.
pub fn check_flags(argument: &'static str, flags: u32, known: u32) -> Outcome {
    match flags & !known {
        0 => Ok(()),
        unknown => {
            Err(invalid(argument, format!("{flags:#x}"), format!("{unknown:#x} is not a flag of this function")))
        }
    }
}

/// Bytes that the call reads.
///
/// # Safety
///
/// `pointer` is NULL or readable for `size` bytes during the call.
pub unsafe fn bytes<'call>(argument: &'static str, pointer: *const c_void, size: usize) -> Outcome<&'call [u8]> {
    check_bytes(argument, pointer, size)?;
    // SAFETY: this function's contract. An empty slice avoids NULL.
    Ok(if size == 0 { &[] } else { unsafe { slice::from_raw_parts(pointer.cast(), size) } })
}

/// Bytes that the call writes.
///
/// # Safety
///
/// `pointer` is NULL or writable for `size` bytes during the call.
pub unsafe fn bytes_mut<'call>(argument: &'static str, pointer: *mut c_void, size: usize) -> Outcome<&'call mut [u8]> {
    check_bytes(argument, pointer, size)?;
    // SAFETY: as above.
    Ok(if size == 0 { &mut [] } else { unsafe { slice::from_raw_parts_mut(pointer.cast(), size) } })
}

/// A list that the call reads.
///
/// # Safety
///
/// `pointer` is NULL or readable for `count` values during the call.
pub unsafe fn list<'call, T>(argument: &'static str, pointer: *const T, count: usize) -> Outcome<&'call [T]> {
    let size = count.checked_mul(size_of::<T>()).filter(|size| *size <= isize::MAX as usize);
    let Some(size) = size else {
        return Err(invalid(argument, format!("{count} entries"), "it must fit into the address space"));
    };
    check_bytes(argument, pointer.cast(), size)?;
    if !pointer.is_aligned() {
        let rule = format!("its address must be a multiple of {}", align_of::<T>());
        return Err(invalid(argument, format!("{pointer:p}"), rule));
    }
    // SAFETY: this function's contract. An empty slice avoids NULL.
    Ok(if count == 0 { &[] } else { unsafe { slice::from_raw_parts(pointer, count) } })
}

/// Checks the address of another library's struct, which must not be NULL.
pub fn check_struct<T>(argument: &'static str, pointer: *const T) -> Outcome {
    if pointer.is_null() {
        return Err(invalid(argument, "NULL", "it must point to a struct"));
    }
    if !pointer.is_aligned() {
        let rule = format!("its address must be a multiple of {}", align_of::<T>());
        return Err(invalid(argument, format!("{pointer:p}"), rule));
    }
    Ok(())
}

#[inline]
pub fn check_bytes(argument: &'static str, pointer: *const c_void, size: usize) -> Outcome {
    if pointer.is_null() && size != 0 {
        return Err(invalid(argument, "NULL", "it must point to as many bytes as the size says"));
    }
    if size > isize::MAX as usize || pointer.addr().checked_add(size).is_none() {
        return Err(invalid(argument, format!("{size} bytes"), "it must fit into the address space"));
    }
    Ok(())
}

/// A text that the program passes, or None for NULL.
///
/// # Safety
///
/// `text` is NULL or a C string that lives through the call.
pub unsafe fn text<'call>(argument: &'static str, text: *const c_char) -> Outcome<Option<&'call str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: this function's contract.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| invalid(argument, format!("{text:?}"), "it must be UTF-8"))
}

/// A name that the program passes. NULL is refused.
///
/// # Safety
///
/// As [`text`].
pub unsafe fn name<'call>(name: *const c_char) -> Outcome<&'call str> {
    // SAFETY: this function's contract.
    unsafe { text("name", name) }?.ok_or_else(|| invalid("name", "NULL", "it must be a text"))
}

/// A time limit in seconds. Infinity means no limit, which is None.
pub fn time_limit(argument: &'static str, seconds: f64) -> Outcome<Option<Duration>> {
    if seconds == f64::INFINITY {
        return Ok(None);
    }
    let refuse = |_| invalid(argument, seconds.to_string(), "it must be 0 or more seconds; INFINITY means no limit");
    Duration::try_from_secs_f64(seconds).map(Some).map_err(refuse)
}

/// Runs the body of a function. An error becomes a status and the thread's message; a panic becomes
/// CUDAMEM_ERROR_PANIC.
#[inline]
pub fn run(call: &'static str, body: impl FnOnce() -> Outcome) -> cudamem_status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => CUDAMEM_SUCCESS,
        Ok(Err(failure)) => fail(call, failure),
        Err(payload) => panicked(call, payload),
    }
}

#[cold]
fn fail(call: &'static str, failure: Failure) -> cudamem_status {
    let (status, driver_code) = match &failure {
        Failure::Library(error) => (status_of(error), error.driver_code().map_or(0, |code| code.0 as i32)),
        Failure::Handle { .. } => (CUDAMEM_ERROR_INVALID_HANDLE, 0),
        Failure::NoHandles(_) => (CUDAMEM_ERROR_OUT_OF_MEMORY, 0),
        Failure::GivenUp { status, .. } => (*status, 0),
        Failure::Argument { .. } => (CUDAMEM_ERROR_INVALID_ARGUMENT, 0),
    };
    report(call, status, driver_code, &failure.to_string())
}

#[cold]
fn panicked(call: &'static str, payload: Box<dyn Any + Send>) -> cudamem_status {
    let text = payload.downcast_ref::<&str>().copied();
    let words =
        text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a message");
    let words = format!("a bug in libcudamem: {words}");
    // The payload's drop may panic, and so may the drop of the second panic's payload. The second payload is leaked.
    if let Err(second) = catch_unwind(AssertUnwindSafe(move || drop(payload))) {
        core::mem::forget(second);
    }
    report(call, CUDAMEM_ERROR_PANIC, 0, &words)
}

fn report(call: &'static str, status: cudamem_status, driver_code: i32, text: &str) -> cudamem_status {
    message::set(driver_code, format!("{call}: {text}"), |text| callbacks::log(status, text));
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{CUDAMEM_ERROR_OUT_OF_RANGE, cudamem_last_error_message};
    use core::sync::atomic::{AtomicU32, Ordering};

    fn last() -> String {
        let text = cudamem_last_error_message();
        assert!(!text.is_null());
        // SAFETY: the message belongs to this thread, and no other call changes it here.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    #[test]
    fn an_error_becomes_a_status_and_a_message() {
        assert!(cudamem_last_error_message().is_null());
        assert_eq!(run("t", || Ok(())), CUDAMEM_SUCCESS);
        assert_eq!(run("cudamem_load", || out::<u32>("release", None).map(drop)), CUDAMEM_ERROR_INVALID_ARGUMENT);
        assert_eq!(last(), "cudamem_load: release is NULL, but it must point to where the result goes");
        let beyond = Error::OutOfRange { call: "Buffer::slice", offset: 1, length: 2, size: 2 };
        assert_eq!(run("t", || Err(beyond.into())), CUDAMEM_ERROR_OUT_OF_RANGE);
        assert_eq!(last(), "t: bytes 1 to 1+2 lie outside of memory of 2 bytes");
    }

    #[test]
    fn times_are_numbers_of_seconds_or_infinite() {
        assert_eq!(time_limit("seconds", 0.25).ok(), Some(Some(Duration::from_millis(250))));
        assert_eq!(time_limit("seconds", 0.0).ok(), Some(Some(Duration::ZERO)));
        assert_eq!(time_limit("seconds", f64::INFINITY).ok(), Some(None));
        for wrong in [-1.0, f64::NAN, f64::NEG_INFINITY, 1e30] {
            assert!(time_limit("seconds", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_panic_stops_at_the_boundary_even_one_whose_payload_panics() {
        // Zero-sized, so that the leaked payload holds no memory.
        struct Bomb;
        static LEFT: AtomicU32 = AtomicU32::new(2);
        impl Drop for Bomb {
            fn drop(&mut self) {
                if LEFT.fetch_sub(1, Ordering::Relaxed) > 0 {
                    std::panic::panic_any(Self);
                }
            }
        }
        assert_eq!(run("t", || panic!("words {}", 7)), CUDAMEM_ERROR_PANIC);
        assert_eq!(last(), "t: a bug in libcudamem: words 7");
        assert_eq!(run("t", || std::panic::panic_any(Bomb)), CUDAMEM_ERROR_PANIC);
        assert_eq!(LEFT.load(Ordering::Relaxed), 1, "the second payload is not dropped");
    }
}
