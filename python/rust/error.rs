//! Errors of cuda-mem as exceptions.

use crate::names::in_python;
use cuda_mem::pool::SleepError;
use cuda_mem::{Error, Refused};
use pyo3::prelude::*;
use std::cell::Cell;
use std::ops::ControlFlow;

/// What a method returns. `?` turns an error of cuda-mem into its exception.
pub type Outcome<T = ()> = Result<T, Failure>;

/// An exception.
pub struct Failure(PyErr);

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        failure.0
    }
}

impl<E: Into<Error>> From<E> for Failure
where
    E: NotPython,
{
    fn from(error: E) -> Self {
        failed(&error.into())
    }
}

/// Errors that are cuda-mem's. `PyErr` is not one.
pub trait NotPython {}
impl NotPython for Error {}
impl NotPython for cuda_mem::interchange::TensorError {}
impl NotPython for cuda_mem::interchange::dlpack::DlpackError {}
impl NotPython for cuda_mem::interchange::array_interface::ArrayInterfaceError {}
impl NotPython for cuda_mem::DataTypeError {}
impl NotPython for cuda_mem::ipc::DescriptorError {}
impl NotPython for cuda_mem::cuda_sys::MissingSymbol {}
impl<V> NotPython for Box<Refused<V>> {}

/// The name of the exception's class for an error.
fn class_of(error: &Error) -> &'static str {
    match error {
        error if error.is_out_of_memory() => "OutOfMemoryError",
        Error::InvalidArgument { .. }
        | Error::OutOfRange { .. }
        | Error::Misaligned { .. }
        | Error::Alignment { .. }
        | Error::Peer(_) => "ArgumentError",
        Error::StillShared { .. } => "SharedError",
        Error::File(_) => "FileError",
        Error::View(_) | Error::Tensor(_) | Error::Dlpack(_) | Error::DataType(_) | Error::ArrayInterface(_) => {
            "ExchangeError"
        }
        Error::Capturing { .. } => "CaptureError",
        Error::Forked { .. } => "ForkedError",
        Error::WaitTimedOut(_) | Error::Sleep(SleepError::Busy { .. }) => "WaitTimeoutError",
        Error::Sleep(SleepError::Asleep { .. }) => "AsleepError",
        Error::Sleep(_) => "SleepError",
        Error::Unsupported { .. } | Error::MissingSymbol(_) => "UnsupportedError",
        Error::Load(_) => "LoadError",
        Error::Driver(_) | Error::NoSuchDevice { .. } | Error::Vkgdr { .. } => "DriverError",
        _ => "Error",
    }
}

thread_local! {
    /// The exception by which a function of the program canceled a call on this thread.
    static CANCELED_BY: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Calls a function of the program within a call of cuda-mem. Its exception cancels the call, which then raises it.
pub fn cancels_by(function: impl FnOnce(Python<'_>) -> PyResult<()>) -> ControlFlow<()> {
    match Python::attach(function) {
        Ok(()) => ControlFlow::Continue(()),
        Err(exception) => {
            CANCELED_BY.set(Some(exception));
            ControlFlow::Break(())
        }
    }
}

fn failed(error: &Error) -> Failure {
    if let Error::Canceled { .. } = error
        && let Some(exception) = CANCELED_BY.take()
    {
        return Failure(exception);
    }
    failed_as(class_of(error), error)
}

/// The exception of an error of the driver's own pools and allocations: no room is the driver's error too.
pub fn failed_of_driver(error: &Error) -> Failure {
    failed_as(if error.is_out_of_memory() { "DriverOutOfMemoryError" } else { class_of(error) }, error)
}

/// The exception of an error, of another class than most of its kind.
pub fn failed_as(class: &'static str, error: &Error) -> Failure {
    raise(class, in_python(&error.to_string()), error.driver_code().map(|code| code.0))
}

/// An exception of a class of `cuda_mem._errors`, with the driver's code if it has one.
pub fn raise(class: &'static str, text: impl Into<String>, code: Option<u32>) -> Failure {
    let text = text.into();
    Python::attach(|py| {
        let made = py.import("cuda_mem._errors").and_then(|module| module.getattr(class)).and_then(|class| {
            let exception = class.call1((text,))?;
            exception.setattr("code", code)?;
            Ok(exception)
        });
        Failure(match made {
            Ok(exception) => PyErr::from_value(exception),
            Err(error) => error,
        })
    })
}

/// The exception of a refused argument.
pub fn refused(text: impl Into<String>) -> Failure {
    raise("ArgumentError", text, None)
}

/// A value for a text, with its type: `"a" (str)`.
pub fn shown(value: &Bound<'_, PyAny>) -> String {
    let kind = value.get_type().qualname().map_or_else(|_| "an object".to_owned(), |name| name.to_string());
    match value.repr() {
        Ok(text) => format!("{:.80} ({kind})", text.to_string_lossy()),
        Err(_) => kind,
    }
}
