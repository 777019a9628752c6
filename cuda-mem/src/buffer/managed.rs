//! Managed memory: advice on where it should lie, and moves.
//!
//! The driver works in pages: buffers that share a page share its advice.

use super::{Access, Buffer};
use crate::error::call;
use crate::resource::{Location, kind};
use crate::{Error, Result, Stream};
use bytemuck::AnyBitPattern;
use core::ffi::c_void;
use cuda_sys::{
    CU_DEVICE_INVALID, CU_STREAM_LEGACY, CUdeviceptr, CUmem_advise as Advice, CUmem_range_attribute as Attribute,
    CUmemLocation, CUmemLocationType,
};

impl<T, A: Access> Buffer<T, kind::Managed, A> {
    /// Advises the driver that the memory is mostly read: each reader then gets a copy, which a write ends.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    #[doc(alias("cuMemAdvise", "CU_MEM_ADVISE_SET_READ_MOSTLY"))]
    pub fn set_read_mostly(&self, read_mostly: bool) -> Result<()> {
        let advice = match read_mostly {
            true => Advice::CU_MEM_ADVISE_SET_READ_MOSTLY,
            false => Advice::CU_MEM_ADVISE_UNSET_READ_MOSTLY,
        };
        self.advise(advice, &Location::Host)
    }

    /// Whether all of the memory was said to be mostly read.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    #[doc(alias = "cuMemRangeGetAttribute")]
    pub fn is_read_mostly(&self) -> Result<bool> {
        Ok(!self.is_empty() && self.attribute(Attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY)? != 0)
    }

    /// Advises the driver where the memory should lie; `None` takes the advice back. Nothing moves yet.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
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
    /// The host has no such node; the driver is older than CUDA 12.2 and knows no nodes: [`Error::Unsupported`]; the driver
    /// refuses.
    #[doc(alias("cuMemAdvise", "CU_MEM_ADVISE_SET_PREFERRED_LOCATION"))]
    pub fn set_preferred_location(&self, location: Option<&Location>) -> Result<()> {
        match location {
            Some(location) => self.advise(Advice::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, location),
            None => self.advise(Advice::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, &Location::Host),
        }
    }

    /// Where the memory should lie; `None` if nothing was said, or different things of its parts.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    #[doc(alias = "cuMemRangeGetAttribute")]
    pub fn preferred_location(&self) -> Result<Option<Location>> {
        self.location(
            Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
            Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE,
            Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID,
        )
    }

    /// Advises the driver to keep the memory mapped for a device, or for the host, wherever it lies.
    ///
    /// # Errors
    ///
    /// The location is a NUMA node: [`Error::InvalidArgument`]; the driver refuses.
    #[doc(alias("cuMemAdvise", "CU_MEM_ADVISE_SET_ACCESSED_BY"))]
    pub fn add_accessed_by(&self, location: impl Into<Location>) -> Result<()> {
        let location = location.into();
        check_accessor("Buffer::add_accessed_by", &location)?;
        self.advise(Advice::CU_MEM_ADVISE_SET_ACCESSED_BY, &location)
    }

    /// Takes such advice back; for a location that never was advised it does nothing.
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

    /// For whom the memory is kept mapped.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    #[doc(alias = "cuMemRangeGetAttribute")]
    pub fn accessed_by(&self) -> Result<Vec<Location>> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let driver = self.context().driver();
        // All devices, and the host.
        let mut numbers = vec![CU_DEVICE_INVALID; driver.device_count()? + 1];
        self.ask(Attribute::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, &mut numbers)?;
        let locations = numbers.into_iter().map(|number| Location::from_device_number(driver, number));
        locations.filter_map(Result::transpose).collect()
    }

    /// Moves the memory to a location, in stream order.
    ///
    /// # Errors
    ///
    /// The host has no such node; the driver is older than CUDA 12.2 and knows no nodes: [`Error::Unsupported`]; the device has
    /// no concurrent managed access, and the driver refuses.
    #[doc(alias = "cuMemPrefetchAsync")]
    pub fn prefetch(&self, location: impl Into<Location>) -> Result<()> {
        let location = location.into();
        if self.is_empty() {
            return Ok(());
        }
        self.in_order(|home| self.prefetch_on(&location, home))
    }

    /// Where the memory was last sent, as far as the driver has come with that; `None` if nowhere, or its parts to
    /// different places. On drivers before CUDA 12.2 a NUMA node is told as the host.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    #[doc(alias = "cuMemRangeGetAttribute")]
    pub fn last_prefetch_location(&self) -> Result<Option<Location>> {
        self.location(
            Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
            Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE,
            Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID,
        )
    }

    /// Drops the contents, in stream order: the memory holds any bytes until it is written, and is the device's without
    /// having been moved. Where the CPU writes next, [`discard_and_prefetch`](Self::discard_and_prefetch) makes it the
    /// host's.
    ///
    /// The driver can drop contents without a place, too. That is not used: of what is written afterwards by both CPU and
    /// device, driver 580 loses some (docs/conformance.md).
    ///
    /// # Errors
    ///
    /// The driver is older than CUDA 13.0: [`Error::Unsupported`]. The home stream is the legacy default stream, which the
    /// driver refuses here: [`Error::InvalidArgument`]. Else as [`prefetch`](Self::prefetch).
    #[doc(alias("cuMemDiscardBatchAsync", "cuMemDiscardAndPrefetchBatchAsync"))]
    pub fn discard(&mut self) -> Result<()>
    where
        T: AnyBitPattern,
    {
        let home = self.stream().clone();
        Self::discard_batch(&mut [self], &home)
    }

    /// Drops the contents and moves the memory, in stream order, so that what is written next is written there.
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

    /// Moves many buffers in one call, in order of `stream` and of their home streams: all to one location, or each to its
    /// own.
    ///
    /// # Errors
    ///
    /// There are neither as many locations as buffers nor one; else as [`prefetch`](Self::prefetch).
    #[doc(alias = "cuMemPrefetchBatchAsync")]
    pub fn prefetch_batch(buffers: &[&Self], locations: &[Location], stream: &Stream) -> Result<()> {
        const CALL: &str = "Buffer::prefetch_batch";
        let mut batch = Batch::new(buffers.iter().copied());
        batch.locate(CALL, buffers.iter().copied(), locations)?;
        batched(buffers.iter().copied(), stream, || {
            let cuda = stream.context().driver().raw();
            if cuda.functions().cuMemPrefetchBatchAsync.is_none() {
                let places = locations.iter().cycle();
                let mut nonempty = buffers.iter().zip(places).filter(|(buffer, _)| !buffer.is_empty());
                return nonempty.try_for_each(|(buffer, place)| buffer.prefetch_on(place, stream));
            }
            let (_, _ready) = stream.ready()?;
            let (starts, sizes, count) = (batch.starts.as_mut_ptr(), batch.sizes.as_mut_ptr(), batch.starts.len());
            let (places, indices) = (batch.places.as_mut_ptr(), batch.indices.as_mut_ptr());
            // SAFETY: the ranges are managed memory, freed after this in stream order; each array has `count` elements.
            unsafe {
                call!(cuda.cuMemPrefetchBatchAsync(starts, sizes, count, places, indices, count, 0, stream.raw()))
            }
        })
    }

    /// Drops the contents of many buffers in one call, as [`discard`](Self::discard) does: they are the stream's device's.
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
        if cuda.functions().cuMemAdvise_v2.is_none() {
            let device = location.to_device_number()?;
            // SAFETY: the range is managed memory, which lives as long as the buffer.
            return unsafe { call!(cuda.cuMemAdvise(start, size, advice, device)) };
        }
        let location = location.to_raw("Buffer::advise")?;
        // SAFETY: as above.
        unsafe { call!(cuda.cuMemAdvise_v2(start, size, advice, location)) }
    }

    /// Moves the memory, which is not empty, in order of a stream.
    fn prefetch_on(&self, location: &Location, stream: &Stream) -> Result<()> {
        let (cuda, _ready) = stream.ready()?;
        let (start, size) = (self.device_pointer(), self.size());
        if cuda.functions().cuMemPrefetchAsync_v2.is_none() {
            let device = location.to_device_number()?;
            // SAFETY: the range is managed memory, which is freed after this in stream order.
            return unsafe { call!(cuda.cuMemPrefetchAsync(start, size, device, stream.raw())) };
        }
        let location = location.to_raw("Buffer::prefetch")?;
        // SAFETY: as above.
        unsafe { call!(cuda.cuMemPrefetchAsync_v2(start, size, location, 0, stream.raw())) }
    }

    /// A place that the driver tells: by its kind and number, or by the number of a device on older drivers.
    fn location(&self, device: Attribute, kind: Attribute, number: Attribute) -> Result<Option<Location>> {
        if self.is_empty() {
            return Ok(None);
        }
        let driver = self.context().driver();
        if driver.raw().functions().cuMemAdvise_v2.is_none() {
            return Location::from_device_number(driver, self.attribute(device)?);
        }
        let type_ = CUmemLocationType(self.attribute(kind)? as _);
        Location::from_raw(driver, CUmemLocation { type_, id: self.attribute(number)? })
    }

    fn attribute(&self, attribute: Attribute) -> Result<i32> {
        let mut value = [0];
        self.ask(attribute, &mut value)?;
        Ok(value[0])
    }

    /// Asks about the memory, which is not empty.
    fn ask(&self, attribute: Attribute, numbers: &mut [i32]) -> Result<()> {
        let (cuda, _current) = (self.context().driver().raw(), self.context().bind()?);
        let (start, size) = (self.device_pointer(), self.size());
        let (data, room): (*mut c_void, usize) = (numbers.as_mut_ptr().cast(), size_of_val(numbers));
        // SAFETY: `data` is writable for `room` bytes.
        unsafe { call!(cuda.cuMemRangeGetAttribute(data, room, attribute, start, size)) }
    }
}

/// The arrays of a batched call. Empty buffers have no place in it.
struct Batch {
    starts: Vec<CUdeviceptr>,
    sizes: Vec<usize>,
    places: Vec<CUmemLocation>,
    /// The range that each place begins to hold from.
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

    /// Adds the places: one for each range, in the order of the ranges.
    fn locate<'buffers, T: 'buffers, A: Access>(
        &mut self,
        call: &'static str,
        buffers: impl ExactSizeIterator<Item = &'buffers Buffer<T, kind::Managed, A>>,
        locations: &[Location],
    ) -> Result<()> {
        if locations.len() != 1 && locations.len() != buffers.len() {
            return Err(Error::InvalidArgument {
                call,
                argument: "the number of locations",
                value: locations.len().to_string().into(),
                rule: "there must be one for all buffers, or one for each",
            });
        }
        let located = buffers.zip(locations.iter().cycle()).filter(|(buffer, _)| !buffer.is_empty());
        self.places = located.map(|(_, location)| location.to_raw(call)).collect::<Result<_>>()?;
        self.indices = (0..self.places.len()).collect();
        Ok(())
    }
}

/// Does work on `stream` that uses all of the buffers: after their work so far, and before their later.
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
    others().try_for_each(|buffer| stream.follow_for_work(buffer.stream()))?;
    work()?;
    let joined = others().try_for_each(|buffer| buffer.stream().follow_work(stream));
    buffers.clone().for_each(Buffer::mark_busy);
    joined
}

/// The driver takes devices and the host as a whole.
fn check_accessor(call: &'static str, location: &Location) -> Result<()> {
    match location {
        Location::Device(_) | Location::Host => Ok(()),
        Location::HostNuma(_) | Location::HostNumaCurrent => Err(Error::InvalidArgument {
            call,
            argument: "location",
            value: format!("{location:?}").into(),
            rule: "memory is accessed by devices and by the host as a whole",
        }),
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
    Err(Error::InvalidArgument {
        call,
        argument: "stream",
        value: "the legacy default stream".into(),
        rule: "the driver drops contents in order of other streams only: make one with Stream::new",
    })
}
