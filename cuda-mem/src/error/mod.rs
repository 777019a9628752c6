//! The error types of all rooms. Each message names the call, the argument and its value, the limit, and what to do.

mod array_interface;
mod arrow;
mod broken;
pub(crate) mod callback;
mod capture;
pub(crate) mod capture_errors;
#[cfg(feature = "sharing")]
mod channel;
mod damage;
#[cfg(feature = "sharing")]
mod descriptor;
mod dlpack;
pub(crate) mod drop_errors;
mod file;
pub(crate) mod forked;
mod frame;
mod peer;
pub(crate) mod range;
mod refused;
mod signal;
pub(crate) mod size;
mod sleep;
mod slow_wait;
mod system;
mod tensor;
pub(crate) mod told;
mod uuid;
mod view;

use core::fmt;
use cuda_sys::load::{LoadError, WITHOUT_A_GPU};
use cuda_sys::{CUresult, MissingSymbol};
use strided_layout::DataTypeError;

pub use array_interface::ArrayInterfaceError;
pub use arrow::ArrowError;
pub use capture::CaptureRefusal;
#[cfg(feature = "sharing")]
pub use channel::ChannelError;
pub use damage::{Damage, DamagedPlace};
#[cfg(feature = "sharing")]
pub use descriptor::{DescriptorError, ExportKind, MAX_FILE_DESCRIPTORS, PoolId};
pub use dlpack::DlpackError;
pub use file::{FileError, FileErrorCause};
#[doc(hidden)]
pub use forked::check_not_forked;
pub(crate) use forked::{forked, note_loading, unless_forked};
pub use frame::FrameError;
pub use peer::PeerError;
pub use refused::Refused;
pub use signal::SignalError;
pub use sleep::SleepError;
pub use slow_wait::{SlowWait, WaitTarget};
pub use tensor::TensorError;
pub use uuid::Uuid;
pub use view::ViewError;

/// The result of this crate's functions.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why a call failed. Each variant is a cause that a caller can act on.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// # let stream = cuda_mem::Stream::new(&context)?;
/// use cuda_mem::{Buffer, Error, memory::DeviceMemory};
/// match Buffer::<u8, _>::zeroed(&DeviceMemory::new(&context), 1 << 50, &stream) {
///     Err(Error::OutOfMemory { requested, free, .. }) => assert!(free < Some(requested)),
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), cuda_mem::Error>(())
/// ```
///
/// # Every call of the driver
///
/// The `# Errors` of a function leave out what may happen to each function that calls the driver:
///
/// | error | cause | what to do |
/// |---|---|---|
/// | [`Driver`](Self::Driver) with CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED and their like | an earlier kernel failed, which ends the context | mend the kernel; the process must start again |
/// | [`Driver`](Self::Driver) with CUDA_ERROR_CONTAINED | memory of another device or process failed under this context's work, which ends the context | keep shared memory until its users have ended; the process must start again |
/// | [`Driver`](Self::Driver) with CUDA_ERROR_CONTEXT_IS_DESTROYED or CUDA_ERROR_DEINITIALIZED | the context was destroyed or reset, or the process is about to end | drop what belongs to it |
/// | [`Driver`](Self::Driver) with CUDA_ERROR_OUT_OF_MEMORY | the driver has no memory for its own records | free some ([`is_out_of_memory`](Self::is_out_of_memory)) |
/// | [`MissingSymbol`](Self::MissingSymbol) | the driver is older than the function | install a newer one |
/// | [`Forked`](Self::Forked) | the process was forked after it had loaded the driver | start processes with exec |
/// | [`InsideHostFunction`](Self::InsideHostFunction) | a host function called | move the call to another thread |
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The loader did not find a library: install it, or name its path.
    #[error(transparent)]
    Load(Box<LoadError>),

    /// The driver or the vkgdr library is too old and lacks a function.
    #[error(transparent)]
    MissingSymbol(Box<MissingSymbol>),

    /// The driver refused a call.
    #[error(transparent)]
    Driver(#[from] DriverError),

    /// The vkgdr library refused a call. The message is the library's.
    #[error("{call} failed: {message}")]
    Vkgdr {
        /// The function.
        call: &'static str,
        /// The library's message, with the VK_ or CUDA_ code.
        message: Box<str>,
    },

    /// There is not enough memory: free some, or request less.
    #[error("{call}: no room for {requested} bytes on {device} ({free}): {message}", free = FreeBytes(*free))]
    OutOfMemory {
        /// The function.
        call: &'static str,
        /// The requested size, in bytes.
        requested: usize,
        /// The device's name.
        device: Box<str>,
        /// The device's free memory in bytes, if the driver reports it.
        free: Option<usize>,
        /// The message of the driver or the library.
        message: Box<str>,
    },

    /// The allocation would exceed a limit that the program has set ([`adaptor::Limit`](crate::adaptor::Limit)): free
    /// some memory, request less, or raise the limit.
    #[error(
        "{call}: no room for {requested} bytes: {used} bytes of the limit of {limit} are used; free some, or raise it"
    )]
    LimitReached {
        /// The function.
        call: &'static str,
        /// The requested size, in bytes.
        requested: usize,
        /// The allocated size, in bytes.
        used: usize,
        /// The limit, in bytes.
        limit: usize,
    },

    /// A program or kernel wrote outside of a live block ([`adaptor::Guarded`](crate::adaptor::Guarded)).
    #[error(transparent)]
    Damaged(Box<Damage>),

    /// A range lies outside of the memory.
    #[error("{call}: bytes {offset} to {offset}+{length} lie outside of memory of {size} bytes")]
    OutOfRange {
        /// The function.
        call: &'static str,
        /// The start of the range, in bytes.
        offset: usize,
        /// The length of the range, in bytes.
        length: usize,
        /// The size of the memory, in bytes.
        size: usize,
    },

    /// A value is not a multiple of the required number.
    #[error("{call}: {what} {value} must be a multiple of {multiple}")]
    Misaligned {
        /// The function.
        call: &'static str,
        /// The misaligned quantity.
        what: &'static str,
        /// Its value.
        value: usize,
        /// The required divisor.
        multiple: usize,
    },

    /// The resource does not align to so large a multiple: wrap it in [`adaptor::Aligned`](crate::adaptor::Aligned).
    #[error(
        "{call}: alignment is {alignment}, but this resource aligns to {largest} at most: wrap it in `adaptor::Aligned`"
    )]
    Alignment {
        /// The function.
        call: &'static str,
        /// The requested alignment, in bytes: a power of two.
        alignment: usize,
        /// The largest alignment that the resource is sure to serve, in bytes.
        largest: usize,
    },

    /// An argument has a value that the call does not accept.
    #[error("{call}: {argument} is {value}, but {rule}")]
    InvalidArgument {
        /// The function.
        call: &'static str,
        /// The argument.
        argument: &'static str,
        /// Its value.
        value: Box<str>,
        /// The rule that the argument breaks.
        rule: &'static str,
    },

    /// There is no device of this ordinal. The driver's code is CUDA_ERROR_INVALID_DEVICE.
    #[error("cuDeviceGet failed: CUDA_ERROR_INVALID_DEVICE (101): device is {ordinal}, of {}", CountOfDevices(*devices))]
    NoSuchDevice {
        /// The ordinal.
        ordinal: i32,
        /// The number of devices that the process sees.
        devices: usize,
    },

    /// Others still reach the memory, and the call needs it alone: drop the clones and slices first, also those that
    /// other libraries have.
    #[error("{call}: the buffer is shared, {}", sharers(*with_processes))]
    StillShared {
        /// The function.
        call: &'static str,
        /// Whether the memory was exported or imported: it then stays shared.
        with_processes: bool,
    },

    /// A resource failed that is not of this crate: the program's own, or one of another library or language.
    #[error("{resource} failed: {message}")]
    Foreign {
        /// The resource's kind.
        resource: &'static str,
        /// What the resource reported.
        message: Box<str>,
    },

    /// The program canceled the call by its answer to a report of progress. Nothing is left of the call.
    #[error("{call}: the program canceled the call")]
    Canceled {
        /// The function.
        call: &'static str,
    },

    /// A stream captures a graph, so the work would only be recorded, or the call would disturb the capture.
    #[error("{call}: {why}")]
    Capturing {
        /// The function.
        call: &'static str,
        /// What captures, and what to do.
        why: CaptureRefusal,
    },

    /// The time limit of a wait passed before the work was complete.
    #[error("a wait timed out: {0}")]
    WaitTimedOut(Box<SlowWait>),

    /// A view of memory as an array, its layout, or a copy between views is not possible.
    #[error(transparent)]
    View(Box<ViewError>),

    /// This process was forked from one that had loaded the driver, which does not work in a forked process.
    #[error(
        "{call} failed: process {loaded_by} loaded the driver, and this is process {process}, forked from it: the \
         driver does not work in a forked process; start processes with exec (Rust's `Command`, Python's \"spawn\"), \
         or load the driver after the fork"
    )]
    Forked {
        /// The function.
        call: &'static str,
        /// The process that loaded the driver.
        loaded_by: u32,
        /// This process.
        process: u32,
    },

    /// The pool was imported, and the call is only allowed in the process that made the pool.
    #[error(
        "{call}: the pool was imported: only the process that made it may allocate from it, trim it and read its size"
    )]
    ImportedPool {
        /// The function.
        call: &'static str,
    },

    /// A descriptor of another process's memory is invalid or does not match.
    #[cfg(feature = "sharing")]
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),

    /// A channel between processes failed.
    #[cfg(feature = "sharing")]
    #[error(transparent)]
    Channel(#[from] ChannelError),

    /// A wait ended before its condition was met, or a ring cannot continue.
    #[error(transparent)]
    Signal(Box<SignalError>),

    /// One device does not access another device's memory.
    #[error(transparent)]
    Peer(#[from] PeerError),

    /// No frame is available, or a frame is unusable.
    #[error(transparent)]
    Frame(#[from] FrameError),

    /// A pool sleeps, or cannot sleep or wake now.
    #[error(transparent)]
    Sleep(#[from] SleepError),

    /// The name or code is not that of an element type.
    #[error(transparent)]
    DataType(#[from] DataTypeError),

    /// The description of an array is invalid or not supported.
    #[error(transparent)]
    Tensor(#[from] TensorError),

    /// A tensor of another library was refused, or a tensor cannot be exported.
    #[error(transparent)]
    Dlpack(#[from] DlpackError),

    /// An Arrow structure was refused, or cannot be made.
    #[error(transparent)]
    Arrow(#[from] ArrowError),

    /// An array interface of another library was refused, or cannot be made.
    #[error(transparent)]
    ArrayInterface(#[from] ArrayInterfaceError),

    /// A function that the caller provided panicked: a host function, a hook, a resource.
    #[error("{function} panicked: {message}")]
    Panicked {
        /// The function that panicked.
        function: &'static str,
        /// The panic message.
        message: Box<str>,
    },

    /// A host function called the driver or a function of this crate that does.
    #[error(
        "a host function must not call the driver, which may wait for that function: move the work to another thread"
    )]
    InsideHostFunction,

    /// A range of a file was not read.
    #[error(transparent)]
    File(Box<FileError>),

    /// The operating system refused a call.
    #[error("{call} failed: {}{}", std::io::Error::from_raw_os_error(*code), system::advice(call, *code))]
    System {
        /// The function.
        call: &'static str,
        /// The system's error number (errno).
        code: i32,
    },

    /// The driver, the library or the device cannot do this.
    #[error("{feature} is not supported here: it needs {needs}")]
    Unsupported {
        /// The requested feature.
        feature: &'static str,
        /// The requirement.
        needs: Box<str>,
    },
}

impl From<ViewError> for Error {
    fn from(error: ViewError) -> Self {
        Error::View(Box::new(error))
    }
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        Error::Load(Box::new(error))
    }
}

impl From<MissingSymbol> for Error {
    fn from(error: MissingSymbol) -> Self {
        Error::MissingSymbol(Box::new(error))
    }
}

impl From<FileError> for Error {
    fn from(error: FileError) -> Self {
        Error::File(Box::new(error))
    }
}

impl From<SignalError> for Error {
    fn from(error: SignalError) -> Self {
        Error::Signal(Box::new(error))
    }
}

impl Error {
    /// An argument whose value the call does not accept.
    #[cold]
    pub(crate) fn invalid(
        call: &'static str,
        argument: &'static str,
        value: impl fmt::Display,
        rule: &'static str,
    ) -> Self {
        Self::InvalidArgument { call, argument, value: value.to_string().into(), rule }
    }

    /// The driver's code, if the error has one.
    pub fn driver_code(&self) -> Option<CUresult> {
        match self {
            Error::Driver(error) => Some(error.code),
            Error::NoSuchDevice { .. } => Some(CUresult::CUDA_ERROR_INVALID_DEVICE),
            Error::Forked { .. } => Some(CUresult::CUDA_ERROR_NOT_INITIALIZED),
            _ => None,
        }
    }

    /// Whether memory has run out: the device's, or that of a limit. The call may succeed after a free.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Error::OutOfMemory { .. } | Error::LimitReached { .. })
            || self.driver_code() == Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// Whether the context or the driver that the call needs has ended. Its objects then need no freeing.
    pub(crate) fn is_teardown(&self) -> bool {
        matches!(self, Error::Forked { .. })
            || matches!(
                self.driver_code(),
                Some(CUresult::CUDA_ERROR_DEINITIALIZED | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)
            )
    }
}

/// Who shares a buffer, and what follows.
fn sharers(with_processes: bool) -> &'static str {
    match with_processes {
        false => "but no other clone or slice of its memory may exist: drop those first, also those of other libraries",
        true => "with other processes: memory that was exported or imported stays shared",
    }
}

struct CountOfDevices(usize);

impl fmt::Display for CountOfDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("1 device: the only ordinal is 0"),
            count => write!(f, "{count} devices: ordinals begin at 0"),
        }
    }
}

struct FreeBytes(Option<usize>);

impl fmt::Display for FreeBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(free) => write!(f, "{free} bytes free"),
            None => f.write_str("free bytes unknown"),
        }
    }
}

cuda_sys::debug_as_display!(
    Error,
    DriverError,
    Damage,
    TensorError,
    ArrayInterfaceError,
    ArrowError,
    DlpackError,
    FileError,
    crate::error::FileErrorCause,
    FrameError,
    PeerError,
    SignalError,
    SleepError,
    ViewError,
    crate::DropError,
);

/// A driver call that failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DriverError {
    /// The function.
    pub call: &'static str,
    /// The code that the function returned.
    pub code: CUresult,
}

impl core::error::Error for DriverError {}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.code.name().unwrap_or("a code that this release does not know");
        write!(f, "{} failed: {name} ({})", self.call, self.code.0)?;
        match advice(self.call, self.code) {
            "" => Ok(()),
            advice if self.code == CUresult::CUDA_ERROR_NO_DEVICE => write!(f, ": {advice}{WITHOUT_A_GPU}"),
            advice => write!(f, ": {advice}"),
        }
    }
}

/// The remedy for a code of a driver function; empty if there is none.
fn advice(call: &str, code: CUresult) -> &'static str {
    match code {
        CUresult::CUDA_ERROR_INVALID_HANDLE => match call {
            "cuEventElapsedTime" => "both events must measure times (Event::with_timing) and be recorded",
            "cuEventRecord" => "the event and the stream must be of one context",
            _ => "",
        },
        CUresult::CUDA_ERROR_NOT_READY if call == "cuEventElapsedTime" => {
            "the work before an event is not done: wait for it with Event::synchronize"
        }
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => "free memory, or ask for less",
        CUresult::CUDA_ERROR_NOT_INITIALIZED => "the driver is not initialised in this process",
        CUresult::CUDA_ERROR_DEINITIALIZED => "the driver has shut down, because the process is ending",
        CUresult::CUDA_ERROR_NO_DEVICE => {
            "the driver sees no GPU; look at CUDA_VISIBLE_DEVICES, which the software GPU heeds too, at nvidia-smi, and in a \
             container at --gpus; without a GPU: "
        }
        CUresult::CUDA_ERROR_INVALID_CONTEXT => "the context does not exist, or has been destroyed",
        CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED => "the context has been destroyed",
        CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER => {
            "the driver is older than this call: update it, or for softgpu set SOFTGPU_VERSION"
        }
        CUresult::CUDA_ERROR_NOT_SUPPORTED => "this device or driver does not support it",
        CUresult::CUDA_ERROR_STUB_LIBRARY => {
            "the toolkit's stub was loaded in place of the driver; remove its folder from LD_LIBRARY_PATH"
        }
        CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
            "libcuda and the kernel's driver are of different releases; reboot after an update of the driver"
        }
        CUresult::CUDA_ERROR_CONTAINED => {
            "memory of another device or process failed under work of this context, as when its owner ends; the context \
             stays broken until it is destroyed"
        }
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS | CUresult::CUDA_ERROR_LAUNCH_FAILED => {
            "an earlier kernel broke the context; it stays broken until it is destroyed"
        }
        CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED => "the call is not allowed while a stream captures",
        CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED => {
            "an earlier call was not allowed while a stream captures; look for the first error"
        }
        CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED => {
            "a stream that took part in the capture was not joined again before the capture ended"
        }
        CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT => {
            "the legacy default stream waits for the blocking stream that captures; use a non-blocking one"
        }
        _ => "",
    }
}

/// The error for a function that the driver exports and does not serve: drivers do so with names of later releases, and
/// packages for forward compatibility with what the kernel's driver lacks.
#[cold]
fn refused_as_newer(call: &'static str) -> Error {
    let symbol = cuda_sys::Functions::SYMBOLS.iter().find(|symbol| symbol.name.to_bytes() == call.as_bytes());
    let since = symbol.map_or_else(|| "a later release".into(), |symbol| format!("CUDA {}", symbol.since));
    let needs = format!(
        "a driver of {since}: this one exports the function, and answers CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER (36); \
         update the driver"
    );
    Error::Unsupported { feature: call, needs: needs.into() }
}

/// The answer of a driver's function, or that of an older form if the driver has no such function, or exports it and
/// does not serve it.
pub(crate) fn or_older<R>(newer: Result<R>, older: impl FnOnce() -> Result<R>) -> Result<R> {
    match newer {
        Err(Error::MissingSymbol(_) | Error::Unsupported { .. }) => older(),
        answer => answer,
    }
}

/// Converts the result of a call through the function table.
#[inline(always)]
pub(crate) fn check(call: &'static str, result: Result<CUresult, MissingSymbol>) -> Result<()> {
    match result {
        Ok(CUresult::CUDA_SUCCESS) => Ok(()),
        refused => Err(refusal(call, refused)),
    }
}

#[cold]
fn refusal(call: &'static str, refused: Result<CUresult, MissingSymbol>) -> Error {
    match refused {
        Ok(CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER) => refused_as_newer(call),
        Ok(code) => forked::refusal(call, code),
        Err(missing) => missing.into(),
    }
}

/// Calls a driver function through the table and checks its result: `call!(driver.cuMemAlloc_v2(&mut p, size))`. In a
/// forked process, refuses without a call.
macro_rules! call {
    ($driver:ident . $function:ident ( $($argument:expr),* $(,)? )) => {
        if $crate::error::forked() {
            Err($crate::error::forked::error(stringify!($function)))
        } else {
            $crate::error::check(stringify!($function), $driver.$function($($argument),*))
        }
    };
}
pub(crate) use call;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_error_names_call_code_and_remedy() {
        let error = DriverError { call: "cuInit", code: CUresult::CUDA_ERROR_NO_DEVICE };
        let text = error.to_string();
        assert!(text.starts_with("cuInit failed: CUDA_ERROR_NO_DEVICE (100): the driver sees no GPU"), "{text}");
        assert!(text.ends_with(&format!("without a GPU: {WITHOUT_A_GPU}")), "{text}");
        let error = DriverError { call: "cuInit", code: CUresult(31337) };
        assert_eq!(error.to_string(), "cuInit failed: a code that this release does not know (31337)");
    }

    #[test]
    fn what_main_prints_of_an_error_is_its_text() {
        let driver = DriverError { call: "cuInit", code: CUresult::CUDA_ERROR_NO_DEVICE };
        let missing = MissingSymbol {
            name: "cuNew",
            interface: "CUDA",
            since: cuda_sys::Release::new(99, 0),
            library: "libcuda".into(),
            version: None,
            is_softgpu: false,
        };
        let load = LoadError { what: "a library", attempts: Vec::new(), remedy: "install it".into() };
        let refused = crate::Refused { value: (), error: driver.into() };
        let errors: [&dyn core::error::Error; 5] = [&driver, &Error::from(driver), &missing, &load, &refused];
        for error in errors {
            assert_eq!(format!("{error:?}"), error.to_string());
        }
        let message = "why".into();
        assert_eq!(format!("{:?}", Error::Panicked { function: "a hook", message }), "a hook panicked: why");
    }

    #[test]
    fn refusals_of_shared_memory_say_who_shares_it() {
        let text = |with_processes| Error::StillShared { call: "Buffer::close", with_processes }.to_string();
        assert!(
            text(false).starts_with("Buffer::close: the buffer is shared, but no other clone or slice"),
            "{}",
            text(false)
        );
        assert!(text(true).contains("exported or imported stays shared"), "{}", text(true));
        let foreign = Error::Foreign { resource: "a heap", message: "it is stuck".into() };
        assert_eq!(foreign.to_string(), "a heap failed: it is stuck");
    }

    #[test]
    fn errors_are_small_enough_to_return() {
        assert!(size_of::<Error>() <= 72, "{}", size_of::<Error>());
    }
}
