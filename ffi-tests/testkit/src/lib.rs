//! What the conformance tests share: loading the libraries under test, patterns of bytes, and the setup of tests.
//!
//! The tests use the libraries that the environment names (`CUDA_MEM_LIBCUDA`, `CUDA_MEM_LIBVKGDR`), else the system's
//! driver, else the software GPU. They print which library they use. Only this crate may depend on all the others; none
//! of them depends on it.
//!
//! A test is a function that takes the driver under test and leaves nothing behind:
//!
//! ```
//! use testkit::alone;
//! alone(|setup| {
//!     let stream = cuda_mem::Stream::new(&setup.context)?;
//!     Ok(stream.synchronize()?)
//! })
//! .expect("the driver serves");
//! ```

pub mod c_calls;
pub mod c_library;
pub mod c_objects;
pub mod cases;
pub mod compilers;
pub mod descriptors;
pub mod each_call;
pub mod forks;
pub mod interface;
pub mod kernel;
pub mod memory_cases;
pub mod pool_workloads;
pub mod random_bytes;
pub mod soak;
pub mod sources;
pub mod suite;
pub mod timing;

use cuda_mem::cuda_sys::{CUresult, MissingSymbol};
use cuda_mem::memory::{DevicePool, DriverPoolOptions};
use cuda_mem::{Context, Driver, DriverError, Error, Stream};
use std::ffi::{CStr, c_char};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};
use suite::Outcome;

/// The libraries under test.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The driver.
    pub driver: Driver,
    /// The first device's primary context.
    pub context: Context,
}

impl Setup {
    /// Loads the driver that the environment names, else the system's driver, else the software GPU.
    ///
    /// # Errors
    ///
    /// The library that the environment names does not load, or the system's driver does not start.
    pub fn from_environment() -> Result<Self, Error> {
        let driver = match Driver::load() {
            Err(Error::Load(_)) if std::env::var_os("CUDA_MEM_LIBCUDA").is_none() => Driver::software()?,
            other => other?,
        };
        let context = driver.device(0)?.primary_context()?;
        Ok(Self { driver, context })
    }

    /// Whether the linked-in software GPU is used.
    pub fn is_software(&self) -> bool {
        &*self.driver.provider().library == "softgpu"
    }

    /// One line that describes the driver in use.
    pub fn describe(&self) -> String {
        let provider = self.driver.provider();
        let device = self.context.device().name().unwrap_or_else(|error| error.to_string());
        let vkgdr = match self.driver.vkgdr() {
            Ok(vkgdr) => vkgdr.provider().library.to_string(),
            Err(error) => error.to_string(),
        };
        let release = provider.version.map_or_else(|| "unknown".to_owned(), |release| release.to_string());
        format!("CUDA {release} of {}, {device}, vkgdr of {vkgdr}", provider.library)
    }
}

/// Waits for the threads of a scope, and returns what they return. The panic of a thread goes on here.
///
/// # Errors
///
/// The first error of a thread.
pub fn joined<'scope, T: 'scope, E: 'scope>(
    threads: impl IntoIterator<Item = ScopedJoinHandle<'scope, Result<T, E>>>,
) -> Result<Vec<T>, E> {
    // Started before the first is waited for, if the iterator starts them.
    let threads: Vec<_> = threads.into_iter().collect();
    threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
}

/// Runs a test while no other test of the process runs, because free memory and the software GPU's ledger are shared by
/// the process. After the test, nothing may be left behind, no drop may have met an error, and no misuse may have
/// happened.
///
/// # Errors
///
/// The test failed, or there is no driver.
///
/// # Panics
///
/// The test left something behind, or misused something.
pub fn alone(test: impl FnOnce(&Setup) -> Outcome) -> Outcome {
    alone_with_misuse(test, |misuse| assert_eq!(misuse, []))
}

/// Runs a test that misuses something on purpose while no other test of the process runs. `look` checks the misuse that
/// the software GPU reports. Nothing may be left behind, as after [`alone`].
///
/// # Errors
///
/// As [`alone`].
///
/// # Panics
///
/// As [`alone`], or `look` panics.
pub fn alone_with_misuse(test: impl FnOnce(&Setup) -> Outcome, look: impl FnOnce(&[softgpu::MisuseReport])) -> Outcome {
    alone_and(test, look, |setup| assert_eq!(softgpu_leaks(setup), None))
}

/// Runs a test alone in the process, as [`alone`], and then waits for what threads of the driver or of cuda-mem still
/// have to free.
///
/// # Errors
///
/// As [`alone`].
///
/// # Panics
///
/// As [`alone`].
pub fn alone_with_late_ends(test: impl FnOnce(&Setup) -> Outcome) -> Outcome {
    let no_misuse = |misuse: &[softgpu::MisuseReport]| assert_eq!(misuse, []);
    alone_and(test, no_misuse, |setup| {
        if !setup.is_software() {
            thread::sleep(Duration::from_millis(200));
            return assert_eq!(softgpu_leaks(setup), None);
        }
        drop(setup);
        let left = softgpu::ledger_within(LIMIT);
        assert!(left.is_empty(), "{left}");
    })
}

fn alone_and(
    test: impl FnOnce(&Setup) -> Outcome,
    look: impl FnOnce(&[softgpu::MisuseReport]),
    end: impl FnOnce(Setup),
) -> Outcome {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let setup = Setup::from_environment()?;
    let misuse = softgpu::misuse().len();
    test(&setup)?;
    assert_eq!(setup.context.take_drop_errors().errors, []);
    look(&softgpu::misuse()[misuse..]);
    end(setup);
    Ok(())
}

/// The name of a test of the calling module, as the test program knows it.
#[macro_export]
macro_rules! test_name {
    ($name:expr) => {
        $crate::name_in(module_path!(), $name)
    };
}

/// The name of a test of a module. [`test_name`] calls it with the caller's module.
pub fn name_in(module: &str, name: &str) -> String {
    // The first part is the program.
    module.split_once("::").map_or_else(|| name.to_owned(), |(_, module)| format!("{module}::{name}"))
}

/// A command that runs one test of this program, ignored or not, in a process of its own. [`test_name`] names the test.
///
/// # Panics
///
/// The system does not know this program.
pub fn in_its_own_process(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", name, "--nocapture", "--include-ignored"]);
    command
}

/// Runs a command of [`in_its_own_process`].
///
/// # Panics
///
/// The test fails, or there is no such test.
pub fn run_alone(command: &mut Command) {
    let output = command.output().expect("the process starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{command:?}: {text}");
}

/// Runs a test of this program in its own process, on a software GPU whose devices have a topology. [`test_name`] names
/// the test.
///
/// # Panics
///
/// The test fails, or there is no such test.
pub fn on_softgpu(name: &str, peers: &str, devices: &str) {
    let mut command = in_its_own_process(name);
    command.env("CUDA_MEM_LIBCUDA", "softgpu").env("SOFTGPU_PEERS", peers).env("SOFTGPU_DEVICES", devices);
    // softgpu heeds it, as the driver does.
    command.env_remove("CUDA_VISIBLE_DEVICES");
    run_alone(&mut command);
}

/// Longer than any program takes, unless it hangs.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Runs a program that may hang. Its thread then keeps everything, so that no drop hangs here.
///
/// # Errors
///
/// The program failed, panicked, or took longer than [`LIMIT`].
pub fn in_time(setup: &Setup, program: impl FnOnce(&Setup) -> Outcome + Send + 'static) -> Outcome {
    let (tell, told) = channel();
    let setup = setup.clone();
    let running = thread::spawn(move || {
        let ended = program(&setup).map_err(|error| error.to_string());
        drop(setup);
        let _ = tell.send(ended);
    });
    match told.recv_timeout(LIMIT) {
        Ok(ended) => {
            running.join().map_err(|_| "the thread panicked in its end")?;
            Ok(ended?)
        }
        Err(RecvTimeoutError::Timeout) => Err("the program hangs".into()),
        Err(RecvTimeoutError::Disconnected) => Err("the program panicked".into()),
    }
}

/// The error of a raw driver call, as this crate's calls report it.
///
/// # Errors
///
/// The driver lacks the function, or refused.
pub fn check_call(call: &'static str, code: Result<CUresult, MissingSymbol>) -> Result<(), Error> {
    match code? {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(DriverError { call, code }.into()),
    }
}

/// Pops the contexts that a failed pop has left on this thread's stack, and discards the errors of drops.
///
/// # Errors
///
/// The driver has no contexts to pop.
pub fn pop_all(driver: &Driver) -> Outcome {
    let mut context = std::ptr::null_mut();
    // SAFETY: the result is writable.
    while unsafe { driver.raw().cuCtxPopCurrent_v2(&mut context) }? == CUresult::CUDA_SUCCESS {}
    driver.take_drop_errors();
    Ok(())
}

/// The objects that most tests of buffers need.
#[derive(Debug)]
pub struct Bench {
    /// The first device's primary context.
    pub context: Context,
    /// A stream of the context.
    pub stream: Stream,
    /// A pool of the context's device.
    pub pool: DevicePool,
}

impl Bench {
    /// Uses the driver that [`Setup::from_environment`] loads.
    ///
    /// # Errors
    ///
    /// There is no driver, or a call fails.
    pub fn new() -> Result<Self, Error> {
        let context = Setup::from_environment()?.context;
        let stream = Stream::new(&context)?;
        let pool = DevicePool::new(&context, &DriverPoolOptions::default())?;
        Ok(Self { context, stream, pool })
    }
}

/// Delays a stream's work for a short time.
///
/// # Errors
///
/// The driver refuses the host function.
pub fn delay(stream: &Stream) -> Result<(), Error> {
    stream.launch_host_function(|| std::thread::sleep(Duration::from_millis(30)))
}

/// Makes a stream wait until the sender is used or dropped.
///
/// # Errors
///
/// The driver refuses the host function.
pub fn hold(stream: &Stream) -> Result<Sender<()>, Error> {
    let (open, opened) = channel();
    stream.launch_host_function(move || opened.recv().unwrap_or_default())?;
    Ok(open)
}

/// Bytes that depend on their position and on the seed.
pub fn pattern(length: usize, seed: u8) -> Vec<u8> {
    // The bytes repeat with this period.
    let period = length.min(1 << 16);
    let mut bytes = Vec::with_capacity(length);
    bytes.extend((0..period).map(|index| (index.wrapping_mul(31) ^ (index >> 8)) as u8 ^ seed));
    while bytes.len() < length {
        bytes.extend_from_within(..bytes.len().min(length - bytes.len()));
    }
    bytes
}

/// Returns the first difference between two sequences of bytes as an error. Fast for long sequences.
///
/// # Errors
///
/// They differ.
pub fn same(what: &str, seen: &[u8], expected: &[u8]) -> Result<(), String> {
    if seen == expected {
        return Ok(());
    }
    let place = seen.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(seen.len().min(expected.len()));
    let show = |bytes: &[u8]| format!("{:02x?}", &bytes[place.min(bytes.len())..bytes.len().min(place + 8)]);
    Err(format!("{what}: byte {place} of {}: {} in place of {}", expected.len(), show(seen), show(expected)))
}

/// Returns what the software GPU, linked in or loaded as a library, still holds after everything was dropped, or `None`
/// if it holds nothing. Waits for what a worker of cuda-mem ends.
pub fn softgpu_leaks(setup: Setup) -> Option<String> {
    let (software, library) = (setup.is_software(), setup.driver.provider().library.clone());
    drop(setup);
    if software {
        let ledger = softgpu::ledger_within(LIMIT);
        return (!ledger.is_empty()).then(|| ledger.to_string());
    }
    // SAFETY: the library is loaded already, so this runs no initialisation code.
    let library = unsafe { libloading::Library::new(&*library) }.ok()?;
    // SAFETY: only softgpu exports these names, with these signatures.
    unsafe {
        let live = library.get::<unsafe extern "C" fn() -> usize>(c"softgpu_ledger_live").ok()?;
        let report = library.get::<unsafe extern "C" fn() -> *mut c_char>(c"softgpu_ledger_report").ok()?;
        let begin = Instant::now();
        while live() != 0 && begin.elapsed() < LIMIT {
            thread::sleep(Duration::from_millis(1));
        }
        if live() == 0 {
            return None;
        }
        let text = report();
        let owned = CStr::from_ptr(text).to_string_lossy().into_owned();
        libc::free(text.cast());
        Some(owned)
    }
}

/// Bytes of mapped memory.
pub type MappedBuffer = cuda_mem::Buffer<u8, cuda_mem::memory::kind::Mapped>;

/// Bytes of mapped memory that others may use at the same time.
pub type SharedMapped = cuda_mem::SharedBuffer<u8, cuda_mem::memory::kind::Mapped>;

/// Mapped memory with a home stream of its own, and any contents.
///
/// # Errors
///
/// As [`Buffer::uninit`](cuda_mem::Buffer::uninit).
pub fn mapped(resource: &cuda_mem::MappedMemory, size: usize) -> cuda_mem::Result<MappedBuffer> {
    let stream = Stream::new(resource.context())?;
    // SAFETY: the driver's memory is always initialised bytes, and every byte is a value of `u8`.
    unsafe { cuda_mem::Buffer::uninit_assumed(resource, size, &stream) }
}

/// Fills bytes from `start` on by work that the program queues on any stream, and reports.
///
/// # Errors
///
/// As [`Buffer::record_use`](cuda_mem::Buffer::record_use), or the driver refuses the work.
pub fn fill_reported(
    memory: &mut MappedBuffer,
    start: usize,
    length: usize,
    byte: u8,
    stream: &Stream,
) -> suite::Outcome {
    assert!(start + length <= memory.len(), "{start}+{length} in {}", memory.len());
    let _current = stream.context().bind()?;
    // SAFETY: the range lies in the memory, which learns of the work below, before this exclusive borrow ends.
    let filled = unsafe {
        let to = memory.device_pointer() + start as u64;
        stream.context().driver().raw().cuMemsetD8Async(to, byte, length, stream.raw())
    }?;
    if filled != CUresult::CUDA_SUCCESS {
        return Err(format!("cuMemsetD8Async: {filled:?}").into());
    }
    Ok(memory.record_use(stream)?)
}

/// Fills a range by work on a stream, which becomes the home stream.
///
/// # Errors
///
/// As [`Buffer::set_stream`](cuda_mem::Buffer::set_stream) and [`Buffer::fill`](cuda_mem::Buffer::fill).
pub fn fill_on(
    memory: &mut MappedBuffer,
    range: impl std::ops::RangeBounds<usize>,
    byte: u8,
    stream: &Stream,
) -> cuda_mem::Result<()> {
    memory.set_stream(stream)?;
    memory.fill(range, byte)
}
