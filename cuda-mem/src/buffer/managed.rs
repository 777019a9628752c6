//! Managed memory: advice about its location, and prefetches.
//!
//! The driver works in pages, so buffers on the same page share its advice.

use super::{Access, Buffer};
use crate::error::{call, or_older};
use crate::memory::resource::{Location, kind};
use crate::{Error, Result, Stream};
use bytemuck::AnyBitPattern;
use core::ffi::c_void;
use cuda_sys::{
    CU_DEVICE_INVALID, CU_STREAM_LEGACY, CUdeviceptr, CUmem_advise as Advice, CUmem_range_attribute as Attribute,
    CUmemLocation, CUmemLocationType, CUresult,
};

impl<T, A: Access> Buffer<T, kind::Managed, A> {
    /// Advises the driver that the memory is mostly read. Each reader then gets a copy; a write discards the copies.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias("cuMemAdvise", "CU_MEM_ADVISE_SET_READ_MOSTLY"))]
    pub fn set_read_mostly(&self, read_mostly: bool) -> Result<()> {
        let advice = match read_mostly {
            true => Advice::CU_MEM_ADVISE_SET_READ_MOSTLY,
            false => Advice::CU_MEM_ADVISE_UNSET_READ_MOSTLY,
        };
        self.advise(advice, &Location::Host)
    }

    /// Whether the advice "mostly read" covers all of the memory.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuMemRangeGetAttribute")]
    pub fn is_read_mostly(&self) -> Result<bool> {
        Ok(!self.is_empty() && self.attribute(Attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY)? != 0)
    }

    /// Advises the driver where the memory should lie; `None` withdraws the advice. Nothing moves yet.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// use cuda_mem::memory::{Location, ManagedMemory};
    /// let buffer = cuda_mem::Buffer::<u8, _>::zeroed(&ManagedMemory::new(&context)?, 4096, &stream)?;
    /// buffer.set_preferred_location(Some(&Location::Host))?;
    /// assert_eq!(buffer.preferred_location()?, Some(Location::Host));
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The host has no such node; the driver is older than CUDA 12.2, which knows no nodes: [`Error::Unsupported`].
    #[doc(alias("cuMemAdvise", "CU_MEM_ADVISE_SET_PREFERRED_LOCATION"))]
    pub fn set_preferred_location(&self, location: Option<&Location>) -> Result<()> {
        match location {
            Some(location) => self.advise(Advice::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, location),
            None => self.advise(Advice::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, &Location::Host),
        }
    }

    /// Where the memory should lie. `None` if there is no advice, or different advice for different parts.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuMemRangeGetAttribute")]
    pub fn preferred_location(&self) -> Result<Option<Location>> {
        self.location(
            Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
            Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE,
            Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID,
        )
    }

    /// Advises the driver to keep the memory mapped for a device or for the host, wherever the memory lies.
    ///
    /// # Errors
    ///
    /// The location is a NUMA node: [`Error::InvalidArgument`].
    #[doc(alias("cuMemAdvise", "CU_MEM_ADVISE_SET_ACCESSED_BY"))]
    pub fn add_accessed_by(&self, location: impl Into<Location>) -> Result<()> {
        let location = location.into();
        check_accessor("Buffer::add_accessed_by", &location)?;
        self.advise(Advice::CU_MEM_ADVISE_SET_ACCESSED_BY, &location)
    }

    /// Withdraws that advice. Does nothing for a location that was never advised.
    ///
    /// # Errors
    ///
    /// As [`add_accessed_by`](Self::add_accessed_by).
    #[doc(alias("cuMemAdvise", "CU_MEM_ADVISE_UNSET_ACCESSED_BY"))]
    pub fn remove_accessed_by(&self, location: impl Into<Location>) -> Result<()> {
        let location = location.into();
        check_accessor("Buffer::remove_accessed_by", &location)?;
        self.advise(Advice::CU_MEM_ADVISE_UNSET_ACCESSED_BY, &location)
    }

    /// The locations for which the memory stays mapped.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuMemRangeGetAttribute")]
    pub fn accessed_by(&self) -> Result<Vec<Location>> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let driver = self.context().driver();
        // Room for all devices and the host.
        let mut numbers = vec![CU_DEVICE_INVALID; driver.device_count()? + 1];
        self.ask(Attribute::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, &mut numbers)?;
        let locations = numbers.into_iter().map(|number| Location::from_device_number(driver, number));
        locations.filter_map(Result::transpose).collect()
    }

    /// Moves the memory to a location, in stream order.
    ///
    /// # Errors
    ///
    /// The host has no such node; the driver is older than CUDA 12.2, which knows no nodes: [`Error::Unsupported`]; the
    /// device has no concurrent managed access.
    #[doc(alias = "cuMemPrefetchAsync")]
    pub fn prefetch(&self, location: impl Into<Location>) -> Result<()> {
        let location = location.into();
        if self.is_empty() {
            return Ok(());
        }
        self.in_order(|home| self.prefetch_on(&location, home))
    }

    /// The last prefetch target that the driver has processed. `None` if there is none, or if parts have different
    /// ones. Drivers before CUDA 12.2 report a NUMA node as the host.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuMemRangeGetAttribute")]
    pub fn last_prefetch_location(&self) -> Result<Option<Location>> {
        self.location(
            Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
            Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE,
            Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID,
        )
    }

    /// Drops the contents, in stream order. The memory holds arbitrary bytes until it is written, and belongs to the
    /// device without a move. If the CPU writes next, use [`discard_and_prefetch`](Self::discard_and_prefetch) with the
    /// host as target.
    ///
    /// The driver can also drop contents without a target. That is not used here: of later writes by both CPU and
    /// device, driver 580 loses some (docs/conformance.md).
    ///
    /// # Errors
    ///
    /// The driver is older than CUDA 13.0: [`Error::Unsupported`]. The home stream is the legacy default stream, which
    /// the driver refuses here: [`Error::InvalidArgument`]. Otherwise as [`prefetch`](Self::prefetch).
    #[doc(alias("cuMemDiscardBatchAsync", "cuMemDiscardAndPrefetchBatchAsync"))]
    pub fn discard(&mut self) -> Result<()>
    where
        T: AnyBitPattern,
    {
        let home = self.stream().clone();
        Self::discard_batch(&mut [self], &home)
    }

    /// Drops the contents and moves the memory, in stream order: later writes happen at the new location.
    ///
    /// # Errors
    ///
    /// As [`discard`](Self::discard) and [`prefetch`](Self::prefetch).
    #[doc(alias = "cuMemDiscardAndPrefetchBatchAsync")]
    pub fn discard_and_prefetch(&mut self, location: impl Into<Location>) -> Result<()>
    where
        T: AnyBitPattern,
    {
        let home = self.stream().clone();
        Self::discard_and_prefetch_batch(&mut [self], &[location.into()], &home)
    }

    /// Moves many buffers in one call, in order of `stream` and of their home streams: all to one location, or each to
    /// its own.
    ///
    /// # Errors
    ///
    /// The number of locations is neither 1 nor that of the buffers. Otherwise as [`prefetch`](Self::prefetch).
    #[doc(alias = "cuMemPrefetchBatchAsync")]
    pub fn prefetch_batch(buffers: &[&Self], locations: &[Location], stream: &Stream) -> Result<()> {
        const CALL: &str = "Buffer::prefetch_batch";
        let mut batch = Batch::new(buffers.iter().copied());
        batch.locate(CALL, buffers.iter().copied(), locations)?;
        batched(buffers.iter().copied(), stream, || {
            let (starts, sizes, count) = (batch.starts.as_mut_ptr(), batch.sizes.as_mut_ptr(), batch.starts.len());
            let (places, indices) = (batch.places.as_mut_ptr(), batch.indices.as_mut_ptr());
            let newer = {
                let (cuda, _ready) = stream.ready()?;
                // SAFETY: the ranges are managed memory, freed after the call in stream order; each array has `count`
                // elements.
                unsafe {
                    call!(cuda.cuMemPrefetchBatchAsync(starts, sizes, count, places, indices, count, 0, stream.raw()))
                }
            };
            or_older(newer, || {
                let places = locations.iter().cycle();
                let mut nonempty = buffers.iter().zip(places).filter(|(buffer, _)| !buffer.is_empty());
                nonempty.try_for_each(|(buffer, place)| buffer.prefetch_on(place, stream))
            })
        })
    }

    /// Drops the contents of many buffers in one call, as [`discard`](Self::discard). The memory then belongs to the
    /// stream's device.
    ///
    /// # Errors
    ///
    /// As [`discard`](Self::discard).
    #[doc(alias("cuMemDiscardBatchAsync", "cuMemDiscardAndPrefetchBatchAsync"))]
    pub fn discard_batch(buffers: &mut [&mut Self], stream: &Stream) -> Result<()>
    where
        T: AnyBitPattern,
    {
        let device = Location::from(stream.context().device().clone());
        Self::discard_and_prefetch_batch(buffers, &[device], stream)
    }

    /// Drops the contents of many buffers and moves them, in one call: all to one location, or each to its own.
    ///
    /// # Errors
    ///
    /// As [`discard`](Self::discard) and [`prefetch_batch`](Self::prefetch_batch).
    #[doc(alias = "cuMemDiscardAndPrefetchBatchAsync")]
    pub fn discard_and_prefetch_batch(buffers: &mut [&mut Self], locations: &[Location], stream: &Stream) -> Result<()>
    where
        T: AnyBitPattern,
    {
        const CALL: &str = "Buffer::discard_and_prefetch_batch";
        check_discard(CALL, stream)?;
        let mut batch = Batch::new(buffers.iter().map(|buffer| &**buffer));
        batch.locate(CALL, buffers.iter().map(|buffer| &**buffer), locations)?;
        batched(buffers.iter().map(|buffer| &**buffer), stream, || {
            let (cuda, _ready) = stream.ready()?;
            let (starts, sizes, count) = (batch.starts.as_mut_ptr(), batch.sizes.as_mut_ptr(), batch.starts.len());
            let (places, indices) = (batch.places.as_mut_ptr(), batch.indices.as_mut_ptr());
            let raw = stream.raw();
            // SAFETY: as for `prefetch_batch`; the buffers are borrowed exclusively, and any bytes are values of `T`.
            unsafe {
                call!(cuda.cuMemDiscardAndPrefetchBatchAsync(starts, sizes, count, places, indices, count, 0, raw))
            }
        })
    }

    fn advise(&self, advice: Advice, location: &Location) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let (cuda, _current) = (self.context().driver().raw(), self.context().bind()?);
        let (start, size) = (self.device_pointer(), self.size());
        let place = location.to_raw("Buffer::advise")?;
        // SAFETY: the range is managed memory, which lives as long as the buffer.
        let newer = unsafe { call!(cuda.cuMemAdvise_v2(start, size, advice, place)) };
        or_older(newer, || {
            let device = location.to_device_number()?;
            // SAFETY: as above.
            unsafe { call!(cuda.cuMemAdvise(start, size, advice, device)) }
        })
    }

    /// Moves the memory, which is not empty, in order of a stream.
    fn prefetch_on(&self, location: &Location, stream: &Stream) -> Result<()> {
        let (cuda, _ready) = stream.ready()?;
        let (start, size) = (self.device_pointer(), self.size());
        let place = location.to_raw("Buffer::prefetch")?;
        // SAFETY: the range is managed memory, which is freed after the call in stream order.
        let newer = unsafe { call!(cuda.cuMemPrefetchAsync_v2(start, size, place, 0, stream.raw())) };
        or_older(newer, || {
            let device = location.to_device_number()?;
            // SAFETY: as above.
            unsafe { call!(cuda.cuMemPrefetchAsync(start, size, device, stream.raw())) }
        })
    }

    /// A location from the driver: by kind and number, or on older drivers by the number of a device.
    fn location(&self, device: Attribute, kind: Attribute, number: Attribute) -> Result<Option<Location>> {
        if self.is_empty() {
            return Ok(None);
        }
        let driver = self.context().driver();
        let type_ = match self.attribute(kind) {
            // Drivers before CUDA 12.2 do not know the attribute.
            Err(error) if error.driver_code() == Some(CUresult::CUDA_ERROR_INVALID_VALUE) => {
                return Location::from_device_number(driver, self.attribute(device)?);
            }
            kind => CUmemLocationType(kind? as _),
        };
        Location::from_raw(driver, CUmemLocation { type_, id: self.attribute(number)? })
    }

    fn attribute(&self, attribute: Attribute) -> Result<i32> {
        let mut value = [0];
        self.ask(attribute, &mut value)?;
        Ok(value[0])
    }

    /// Queries an attribute of memory that is not empty.
    fn ask(&self, attribute: Attribute, numbers: &mut [i32]) -> Result<()> {
        let (cuda, _current) = (self.context().driver().raw(), self.context().bind()?);
        let (start, size) = (self.device_pointer(), self.size());
        let (data, room): (*mut c_void, usize) = (numbers.as_mut_ptr().cast(), size_of_val(numbers));
        // SAFETY: `data` is writable for `room` bytes.
        unsafe { call!(cuda.cuMemRangeGetAttribute(data, room, attribute, start, size)) }
    }
}

/// The arrays of a batched call, without empty buffers.
struct Batch {
    starts: Vec<CUdeviceptr>,
    sizes: Vec<usize>,
    places: Vec<CUmemLocation>,
    /// For each place, the first range that it applies to.
    indices: Vec<usize>,
}

impl Batch {
    fn new<'buffers, T: 'buffers, A: Access>(
        buffers: impl Iterator<Item = &'buffers Buffer<T, kind::Managed, A>>,
    ) -> Self {
        let (starts, sizes) =
            buffers.filter(|buffer| !buffer.is_empty()).map(|buffer| (buffer.device_pointer(), buffer.size())).unzip();
        Self { starts, sizes, places: Vec::new(), indices: Vec::new() }
    }

    /// Adds one place per range, in the order of the ranges.
    fn locate<'buffers, T: 'buffers, A: Access>(
        &mut self,
        call: &'static str,
        buffers: impl ExactSizeIterator<Item = &'buffers Buffer<T, kind::Managed, A>>,
        locations: &[Location],
    ) -> Result<()> {
        if locations.len() != 1 && locations.len() != buffers.len() {
            let rule = "it must be 1, or the number of buffers";
            return Err(Error::invalid(call, "the number of locations", locations.len(), rule));
        }
        let located = buffers.zip(locations.iter().cycle()).filter(|(buffer, _)| !buffer.is_empty());
        self.places = located.map(|(_, location)| location.to_raw(call)).collect::<Result<_>>()?;
        self.indices = (0..self.places.len()).collect();
        Ok(())
    }
}

/// Runs `work`, which uses all buffers on `stream`: after their work so far, and before their later work.
fn batched<'buffers, T: 'buffers, A: Access>(
    buffers: impl Iterator<Item = &'buffers Buffer<T, kind::Managed, A>> + Clone,
    stream: &Stream,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let mut buffers = buffers.filter(|buffer| !buffer.is_empty()).peekable();
    if buffers.peek().is_none() {
        return Ok(());
    }
    buffers.clone().try_for_each(Buffer::post_forgotten)?;
    let others = || buffers.clone().filter(|buffer| buffer.stream() != stream);
    others().try_for_each(|buffer| stream.order_work_after(buffer.stream()))?;
    // After an error, some of the work may be queued.
    let worked = work();
    let joined = others().try_for_each(|buffer| buffer.stream().order_work_after_or_wait(stream));
    buffers.clone().for_each(Buffer::mark_busy);
    worked.and(joined)
}

/// This advice takes only devices and the host as a whole.
fn check_accessor(call: &'static str, location: &Location) -> Result<()> {
    match location {
        Location::Device(_) | Location::Host => Ok(()),
        Location::HostNuma(_) | Location::HostNumaCurrent => {
            let rule = "it must be Location::Device or Location::Host";
            Err(Error::invalid(call, "location", format_args!("{location:?}"), rule))
        }
    }
}

fn check_discard(call: &'static str, stream: &Stream) -> Result<()> {
    if stream.context().driver().raw().functions().cuMemDiscardAndPrefetchBatchAsync.is_none() {
        return Err(Error::Unsupported {
            feature: "dropping the contents of managed memory",
            needs: "a driver of CUDA 13.0".into(),
        });
    }
    if !stream.raw().is_null() && stream.raw() != CU_STREAM_LEGACY {
        return Ok(());
    }
    let rule = "the driver drops contents only in order of other streams; make one with Stream::new";
    Err(Error::invalid(call, "stream", "the legacy default stream", rule))
}
