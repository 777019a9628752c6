//! What the conformance tests share: which libraries serve, patterns of bytes, and what a test needs to run.
//!
//! The tests run over whatever the environment names (`CUDA_MEM_LIBCUDA`, `CUDA_MEM_LIBVKGDR`), else over the system's
//! driver, else over the software GPU. They print which it was. This crate alone may know all the others; none knows it.
//!
//! A test is a function that takes the driver under test, and leaves nothing behind:
//!
//! ```
//! use ffi_tests::alone;
//! alone(|setup| {
//!     let stream = cuda_mem::Stream::new(&setup.context)?;
//!     Ok(stream.synchronize()?)
//! })
//! .expect("the driver serves");
//! ```

// README's and the guide's programs too: users copy them.
#![doc(test(attr(deny(warnings))))]

pub mod c_calls;
pub mod c_library;
pub mod c_objects;
pub mod cases;
pub mod compilers;
pub mod descriptors;
#[cfg(doctest)]
mod guide;
pub mod interface;
pub mod kernel;
pub mod memory_cases;
pub mod pool_workloads;
pub mod random_bytes;
pub mod soak;
pub mod sources;
pub mod suite;
pub mod timing;

use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::{DevicePool, DriverPoolOptions};
use cuda_mem::{Context, Driver, Error, Stream};
use std::ffi::{CStr, c_char};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
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
    /// Loads what the environment names, else the system's driver, else the software GPU.
    ///
    /// # Errors
    ///
    /// What the environment names does not load, or the system's driver does not start.
    pub fn from_environment() -> Result<Self, Error> {
        let driver = match Driver::load() {
            Err(Error::Load(_)) if std::env::var_os("CUDA_MEM_LIBCUDA").is_none() => Driver::software()?,
            other => other?,
        };
        let context = driver.device(0)?.primary_context()?;
        Ok(Self { driver, context })
    }

    /// Whether the linked-in software GPU serves.
    pub fn is_software(&self) -> bool {
        &*self.driver.provider().library == "softgpu"
    }

    /// One line on what serves.
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

/// Runs a test while no other of the process does: free memory and the software GPU's ledger are one for the process.
/// Afterwards nothing may be left behind, no drop may have met an error, and nothing may have been misused.
///
/// # Errors
///
/// The test's own, or that there is no driver.
///
/// # Panics
///
/// Something was left behind, or misused.
pub fn alone(test: impl FnOnce(&Setup) -> Outcome) -> Outcome {
    alone_with_misuse(test, |misuse| assert_eq!(misuse, []))
}

/// As [`alone`], of a test that misuses something on purpose: what the software GPU has seen of that is looked at.
///
/// # Errors
///
/// As [`alone`].
///
/// # Panics
///
/// As [`alone`]; `look` does.
pub fn alone_with_misuse(test: impl FnOnce(&Setup) -> Outcome, look: impl FnOnce(&[softgpu::MisuseReport])) -> Outcome {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let setup = Setup::from_environment()?;
    let misuse = softgpu::misuse().len();
    test(&setup)?;
    assert_eq!(setup.context.take_drop_errors().errors, []);
    look(&softgpu::misuse()[misuse..]);
    assert_eq!(softgpu_leaks(setup), None);
    Ok(())
}

/// Takes the contexts off this thread's stack that a failed pop has left there, and forgets the errors of drops.
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

/// What most tests of buffers begin with.
#[derive(Debug)]
pub struct Bench {
    /// The first device's primary context.
    pub context: Context,
    /// A stream of it.
    pub stream: Stream,
    /// A pool of its device.
    pub pool: DevicePool,
}

impl Bench {
    /// On the driver that [`Setup::from_environment`] takes.
    ///
    /// # Errors
    ///
    /// There is no driver, or it refuses.
    pub fn new() -> Result<Self, Error> {
        let context = Setup::from_environment()?.context;
        let stream = Stream::new(&context)?;
        let pool = DevicePool::new(&context, &DriverPoolOptions::default())?;
        Ok(Self { context, stream, pool })
    }
}

/// Holds a stream back for a while.
///
/// # Errors
///
/// The driver refuses.
pub fn delay(stream: &Stream) -> Result<(), Error> {
    stream.launch_host_function(|| std::thread::sleep(Duration::from_millis(30)))
}

/// Bytes that differ by place and by seed.
pub fn pattern(length: usize, seed: u8) -> Vec<u8> {
    // They come again after this many.
    let period = length.min(1 << 16);
    let mut bytes = Vec::with_capacity(length);
    bytes.extend((0..period).map(|index| (index.wrapping_mul(31) ^ (index >> 8)) as u8 ^ seed));
    while bytes.len() < length {
        bytes.extend_from_within(..bytes.len().min(length - bytes.len()));
    }
    bytes
}

/// The first place where two runs of bytes differ, as an error; quick for long ones.
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

/// What the software GPU, linked in or loaded as a library, still has after everything was dropped, if that is not
/// nothing.
pub fn softgpu_leaks(setup: Setup) -> Option<String> {
    let (software, library) = (setup.is_software(), setup.driver.provider().library.clone());
    drop(setup);
    if software {
        let ledger = softgpu::ledger();
        return (!ledger.is_empty()).then(|| ledger.to_string());
    }
    // SAFETY: the library is loaded already, so this runs no start-up code.
    let library = unsafe { libloading::Library::new(&*library) }.ok()?;
    // SAFETY: only softgpu exports these names, with these signatures.
    unsafe {
        let live = library.get::<unsafe extern "C" fn() -> usize>(c"softgpu_ledger_live").ok()?;
        let report = library.get::<unsafe extern "C" fn() -> *mut c_char>(c"softgpu_ledger_report").ok()?;
        if live() == 0 {
            return None;
        }
        let text = report();
        let owned = CStr::from_ptr(text).to_string_lossy().into_owned();
        libc::free(text.cast());
        Some(owned)
    }
}
