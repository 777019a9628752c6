//! Code that a Rust program registers for its kernels.

use super::code::{Code, Wrong, kept};
use super::launch::Launch;
use crate::call::host_function;
use crate::state::Global;
use crate::state::checks::races::Touched;
use crate::state::graphs::Condition;
use crate::state::memory::{Range, Use};
use crate::sync::{read, write};
use cuda_sys::CUresult;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Arc, RwLock};

static REGISTERED: RwLock<Option<HashMap<&'static str, Arc<dyn Code>>>> = RwLock::new(None);

pub(super) fn find(name: &str) -> Option<Arc<dyn Code>> {
    read(&REGISTERED).as_ref()?.get(name).cloned()
}

/// Registers the code of a kernel: launches of kernels of this name run it, once each, on the CPU and in stream order.
///
/// A kernel of C++ has the name that PTX shows, such as `_Z5scalePfj`, unless it is declared `extern "C"`. A second
/// registration replaces the first. Registrations stay over a [`reset`](crate::reset).
///
/// The code must not call the driver. Its error, or its panic, becomes the lasting error of the context, as that of a
/// kernel on a device. softgpu knows which memory the arguments point to, and reports its free while the launch is
/// queued. It does not know which bytes the code touches, so with [`Settings::races`](crate::Settings::races) it judges
/// the stream again only after a wait for it.
///
/// ```
/// softgpu::register_kernel("scale", |launch| {
///     let (values, factor, count) = (launch.argument(0)?, launch.argument::<f32>(1)?, launch.argument::<u32>(2)?);
///     let mut all: Vec<f32> = launch.read(values, count as usize)?;
///     all.iter_mut().for_each(|value| *value *= factor);
///     launch.write(values, &all)
/// });
/// ```
pub fn register_kernel(
    name: &str,
    code: impl Fn(&KernelLaunch<'_>) -> Result<(), KernelError> + Send + Sync + 'static,
) {
    let name = kept(name);
    let code = Arc::new(Registered { name, code: Box::new(code) });
    let before = write(&REGISTERED).get_or_insert_default().insert(name, code);
    // The program's code ends here, without the lock.
    drop(before);
}

/// Why the code of a kernel stopped. softgpu makes these errors; the code returns them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The device has no such memory at an address, or may not access it.
    #[error("the kernel has no memory of {size} bytes at {address:#x}")]
    WrongAddress {
        /// The address.
        address: u64,
        /// How many bytes the kernel wanted to access.
        size: usize,
    },
    /// An address is no multiple of the size of an element.
    #[error("the kernel reads or writes elements of {size} bytes at {address:#x}, which is no multiple of that size")]
    Misaligned {
        /// The address.
        address: u64,
        /// The size of an element.
        size: usize,
    },
    /// The kernel has no such parameter, or it has another size.
    #[error("the kernel has no parameter {index} of {size} bytes: its parameters have {sizes:?} bytes")]
    NoArgument {
        /// The number of the parameter, from 0.
        index: usize,
        /// The size that the code asked for.
        size: usize,
        /// The sizes of the kernel's parameters.
        sizes: Vec<usize>,
    },
    /// There is no such conditional handle.
    #[error("{handle:#x} is no conditional handle")]
    NoCondition {
        /// The number.
        handle: u64,
    },
}

mod sealed {
    pub trait Sealed {}
}

/// A type of numbers, which every pattern of bits is a value of.
pub trait Number: Copy + sealed::Sealed + 'static {}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl sealed::Sealed for $number {}
        impl Number for $number {}
    )*};
}
numbers!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64);

/// A launch, as the code of its kernel sees it.
#[derive(Debug)]
pub struct KernelLaunch<'launch> {
    pub(super) launch: &'launch Launch,
    pub(super) name: &'static str,
    pub(super) held: &'launch [Range],
}

impl KernelLaunch<'_> {
    /// The number of blocks along each axis.
    pub fn grid(&self) -> [u32; 3] {
        self.launch.shape.grid
    }

    /// The number of threads of a block along each axis.
    pub fn block(&self) -> [u32; 3] {
        self.launch.shape.block
    }

    /// The bytes of shared memory of a block that the launch adds to those that the kernel declares.
    pub fn shared(&self) -> u32 {
        self.launch.shape.shared
    }

    /// An argument, by its number from 0. A pointer is a `u64`.
    ///
    /// # Errors
    ///
    /// [`KernelError::NoArgument`]: the kernel has no such parameter, or one of another size.
    pub fn argument<T: Number>(&self, index: usize) -> Result<T, KernelError> {
        let bytes = self.bytes(index).filter(|bytes| bytes.len() == size_of::<T>()).ok_or_else(|| {
            KernelError::NoArgument { index, size: size_of::<T>(), sizes: self.launch.arguments.sizes() }
        })?;
        // SAFETY: the bytes are as many as the number has, and every pattern is a number.
        Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
    }

    /// The bytes of an argument, such as a structure; `None` if the kernel has fewer parameters.
    pub fn bytes(&self, index: usize) -> Option<&[u8]> {
        self.launch.arguments.value(index)
    }

    /// Reads device memory.
    ///
    /// # Errors
    ///
    /// [`KernelError::WrongAddress`] and [`KernelError::Misaligned`].
    pub fn read<T: Number>(&self, address: u64, count: usize) -> Result<Vec<T>, KernelError> {
        let range = self.memory(address, count, size_of::<T>(), Use::Read).map_err(|wrong| wrong.error(count))?;
        range.check_flushed(self.name);
        let mut values = Vec::with_capacity(count);
        // SAFETY: the range holds its allocation, and is as long as the values, for which there is room. Every pattern
        // of bits is a number.
        unsafe {
            ptr::copy(ptr::with_exposed_provenance(range.address), values.as_mut_ptr(), count);
            values.set_len(count);
        }
        Ok(values)
    }

    /// Writes device memory.
    ///
    /// # Errors
    ///
    /// As of [`read`](Self::read).
    pub fn write<T: Number>(&self, address: u64, values: &[T]) -> Result<(), KernelError> {
        let memory = self.memory(address, values.len(), size_of::<T>(), Use::Write);
        let range = memory.map_err(|wrong| wrong.error(values.len()))?;
        // SAFETY: the range holds its allocation, and is as long as the values.
        unsafe { ptr::copy(values.as_ptr(), ptr::with_exposed_provenance_mut(range.address), values.len()) };
        Ok(())
    }

    /// Sets the value of a conditional handle, as cudaGraphSetConditional does.
    ///
    /// # Errors
    ///
    /// [`KernelError::NoCondition`]: there is no such handle.
    pub fn set_condition(&self, handle: u64, value: u32) -> Result<(), KernelError> {
        let condition = Global::get().ok().and_then(|global| Condition::find(global, handle));
        condition.map(|condition| condition.set(value)).ok_or(KernelError::NoCondition { handle })
    }

    /// Memory of elements of `size` bytes: of what the launch holds, or of what the driver knows now.
    pub(super) fn memory(&self, address: u64, count: usize, size: usize, purpose: Use) -> Result<Range, WrongMemory> {
        let wrong = |(address, code)| WrongMemory { address, size, code };
        if address.is_multiple_of(size as u64)
            && let Some(length) = count.checked_mul(size)
            && let Some(range) = self.held.iter().find_map(|range| range.part_at(address, length))
            && range.block.as_deref().is_some_and(|block| {
                block.allows(self.launch.context.device, purpose) && block.is_reached_by(&self.launch.context)
            })
            && range.is_present()
        {
            return Ok(range);
        }
        self.launch.memory(address, count as u64, size, purpose).map_err(wrong)
    }
}

/// Elements that a kernel has no memory for.
pub(super) struct WrongMemory {
    pub(super) address: u64,
    size: usize,
    pub(super) code: CUresult,
}

impl WrongMemory {
    fn error(self, count: usize) -> KernelError {
        let Self { address, size, code } = self;
        match code {
            CUresult::CUDA_ERROR_MISALIGNED_ADDRESS => KernelError::Misaligned { address, size },
            _ => KernelError::WrongAddress { address, size: count.saturating_mul(size) },
        }
    }
}

type Function = dyn Fn(&KernelLaunch<'_>) -> Result<(), KernelError> + Send + Sync;

struct Registered {
    name: &'static str,
    code: Box<Function>,
}

impl Code for Registered {
    fn name(&self) -> &'static str {
        self.name
    }

    fn hold(&self, launch: &Launch) -> Vec<Range> {
        launch.pointed_to()
    }

    fn touched(&self, _launch: &Launch) -> Option<Vec<Touched>> {
        None
    }

    fn run(&self, launch: &Launch, held: &[Range]) -> Result<(), Wrong> {
        let launch = KernelLaunch { launch, name: self.name, held };
        let mut outcome = Ok(Ok(()));
        host_function(|| outcome = catch_unwind(AssertUnwindSafe(|| (self.code)(&launch))));
        let (text, wrong) = match outcome {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => (error.to_string(), wrong_of(&error)),
            // The panic's own message is on the standard error stream.
            Err(_) => ("its code panicked".to_owned(), (0, CUresult::CUDA_ERROR_LAUNCH_FAILED)),
        };
        eprintln!("softgpu: the kernel `{}` failed: {text}", self.name);
        Err(wrong)
    }
}

/// The code that a device would give.
fn wrong_of(error: &KernelError) -> Wrong {
    match error {
        KernelError::WrongAddress { address, .. } => (*address, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS),
        KernelError::Misaligned { address, .. } => (*address, CUresult::CUDA_ERROR_MISALIGNED_ADDRESS),
        _ => (0, CUresult::CUDA_ERROR_LAUNCH_FAILED),
    }
}
