//! Memory that programs name by its address, as malloc and free do: of one resource, or of one pool for each device.

mod calls;
mod live;
mod one;
mod table;
mod uses;

use super::{Pool, PoolOptions};
use crate::memory::{Accessibility, DeviceMemory, kind};
use crate::{Device, Driver, Error, Result};
use cuda_sys::{CUdeviceptr, CUstream};
use std::sync::OnceLock;

pub use one::Addresses;

const MALLOC: &str = "AddressPools::malloc";
const FREE: &str = "AddressPools::free";
const RECORD_USE: &str = "AddressPools::record_use";

/// Device memory that programs free by its address. There is one pool for each device, made at first use over the
/// device's primary context.
///
/// For allocators that other libraries call: they pass an address, a size and a stream's handle, and keep no value.
/// Each device has [`Addresses`] of its pool: a pair takes no lock that all threads share, and allocates no host memory.
///
/// Streams are handles of the driver, of any library. A handle is used only during the calls that name it; the caller
/// may destroy the stream after any call. A null handle is the legacy default stream.
///
/// Nobody tells a pool that a stream has ended. After frees on 128 streams of a context that may have ended, each free on a
/// further stream records an event, which costs about a microsecond. [`Pool::release_unused`](crate::pool::Pool::release_unused)
/// waits for all of them, and the next frees are fast again.
///
/// ```
/// let driver = cuda_mem::Driver::software()?; // softgpu; a GPU: Driver::load()
/// use cuda_mem::{Stream, pool::{AddressPools, PoolOptions}};
/// let pools = AddressPools::new(&driver, &PoolOptions::default())?;
/// let stream = Stream::new(&driver.device(0)?.primary_context()?)?;
/// // SAFETY: the stream lives, and no work uses the memory after the free.
/// unsafe {
///     let address = pools.malloc(1000, 0, stream.raw())?;
///     pools.free(address, 1000, 0, stream.raw())?;
///     assert!(pools.free(address, 1000, 0, stream.raw()).is_err()); // freed twice
/// }
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Debug)]
pub struct AddressPools {
    driver: Driver,
    options: PoolOptions,
    devices: Box<[OnceLock<Addresses<kind::Device>>]>,
}

impl AddressPools {
    /// Pools over [`DeviceMemory`]. Makes no pool yet.
    ///
    /// # Errors
    ///
    /// The driver cannot count its devices.
    pub fn new(driver: &Driver, options: &PoolOptions) -> Result<Self> {
        let devices = (0..driver.device_count()?).map(|_| OnceLock::new()).collect();
        Ok(Self { driver: driver.clone(), options: options.clone(), devices })
    }

    /// Allocates `size` bytes on a device, for work of a stream. 0 bytes have an address too. The address is a multiple
    /// of 256.
    ///
    /// If the stream captures a graph, the memory belongs to the graph, and returns to the pool when it was freed and the
    /// graph has ended.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]; there is no such device; the stream is of another context; this crate captures the
    /// stream ([`Error::Capturing`]).
    ///
    /// # Safety
    ///
    /// `stream` is null, one of the driver's constants for default streams, or a stream of the device's primary context
    /// that lives during the call. No other thread begins or ends a capture of it meanwhile.
    ///
    /// If the pool runs out of memory, it may wait for the context, for work of streams that have ended. The driver then
    /// invalidates captures of the context by other libraries, except those that the pool has memory for.
    #[doc(alias = "cuMemAllocAsync")]
    #[inline]
    pub unsafe fn malloc(&self, size: usize, device: i32, stream: CUstream) -> Result<CUdeviceptr> {
        // SAFETY: this function's contract.
        unsafe { self.device(MALLOC, device)?.malloc_in(MALLOC, size, 1, Accessibility::DEVICE, stream) }
    }

    /// Frees memory that only work queued on `stream` so far still uses. The stream may be another one than that of the
    /// allocation: the next user gets the memory after the work of this stream.
    ///
    /// # Errors
    ///
    /// The device has no live block of this size at the address: it was freed before, has another size, or is from
    /// elsewhere. The stream is of another context, where the call asks the driver for it. After an error nothing is
    /// freed.
    ///
    /// A pool may have handed the address out again after the first of two frees. Then a second free of the same size
    /// frees the new block.
    ///
    /// # Safety
    ///
    /// As for [`malloc`](Self::malloc). The caller does not use the memory in work that it queues later.
    #[doc(alias = "cuMemFreeAsync")]
    #[inline]
    pub unsafe fn free(&self, address: CUdeviceptr, size: usize, device: i32, stream: CUstream) -> Result<()> {
        // SAFETY: this function's contract.
        unsafe { self.device(FREE, device)?.free_in(FREE, address, size, stream) }
    }

    /// Notes that work of a further stream uses a block, until the block is freed, as [`Addresses::record_use`]. The stream
    /// may be of any device that has a pool here. A null stream is the legacy default stream of the memory's device.
    ///
    /// # Errors
    ///
    /// As [`Addresses::record_use`].
    ///
    /// # Safety
    ///
    /// As for [`malloc`](Self::malloc), but for the device of the stream.
    pub unsafe fn record_use(&self, address: CUdeviceptr, stream: CUstream) -> Result<()> {
        let made = || self.devices.iter().filter_map(OnceLock::get);
        let Some(memory) = made().find(|memory| memory.has(address)) else {
            let rule = "it must be a live address of these pools: this one was freed before, or came from elsewhere";
            return Err(Error::invalid(RECORD_USE, "address", format_args!("{address:#x}"), rule));
        };
        let contexts: Vec<_> = made().filter_map(Addresses::pool).map(|pool| pool.core().context()).collect();
        // SAFETY: this function's contract.
        unsafe { memory.record_use_in(RECORD_USE, address, stream, &contexts) }
    }

    /// Whether a live block of one of the pools begins at an address.
    pub fn contains(&self, address: CUdeviceptr) -> bool {
        self.devices.iter().filter_map(OnceLock::get).any(|memory| memory.has(address))
    }

    /// Gives back the memory of all pools that no work uses, after a wait for the work of freed memory.
    ///
    /// # Errors
    ///
    /// As [`Pool::release_unused`].
    pub fn release_unused(&self) -> Result<()> {
        let mut result = Ok(());
        for pool in self.devices.iter().filter_map(OnceLock::get).filter_map(Addresses::pool) {
            result = result.and(pool.release_unused());
        }
        result
    }

    /// The pool of a device, for statistics and snapshots. Makes it if it is not there yet.
    ///
    /// # Errors
    ///
    /// There is no such device. The device has no memory for the pool's first region.
    pub fn pool(&self, device: i32) -> Result<&Pool<kind::Device>> {
        let made = self.device("AddressPools::pool", device)?.pool();
        Ok(made.unwrap_or_else(|| unreachable!("all are of pools")))
    }

    #[inline]
    fn device(&self, call: &'static str, ordinal: i32) -> Result<&Addresses<kind::Device>> {
        match usize::try_from(ordinal).ok().and_then(|index| self.devices.get(index)) {
            Some(place) => place.get().map_or_else(|| self.make(place, ordinal), Ok),
            None => Err(self.no_device(call, ordinal)),
        }
    }

    #[cold]
    fn no_device(&self, call: &'static str, ordinal: i32) -> Error {
        let value = format!("{ordinal}, of {} devices", self.devices.len());
        Error::invalid(call, "device", value, "it must be the ordinal of a device")
    }

    #[cold]
    fn make<'pools>(
        &'pools self,
        place: &'pools OnceLock<Addresses<kind::Device>>,
        ordinal: i32,
    ) -> Result<&'pools Addresses<kind::Device>> {
        crate::check_not_forked("making a pool")?;
        let make = || Addresses::of_pool(&self.pool_of(&self.driver.device(ordinal)?)?);
        // Nothing is held, because making a pool may run code of the program, which may use this pool. If another thread
        // is faster, its pool stays.
        match make() {
            Ok(made) => Ok(place.get_or_init(|| made)),
            Err(error) => place.get().ok_or(error),
        }
    }

    fn pool_of(&self, device: &Device) -> Result<Pool<kind::Device>> {
        Pool::new(&DeviceMemory::new(&device.primary_context()?), &self.options)
    }
}
