//! Managed memory by its address: advice about its location, and prefetches.

use crate::error::{call, or_older};
use crate::memory::resource::Location;
use crate::{Context, Error, Result, Stream};
use core::ffi::c_void;
use cuda_sys::{
    CU_DEVICE_INVALID, CU_STREAM_LEGACY, CUdeviceptr, CUmem_advise as Advice, CUmem_range_attribute as Attribute,
    CUmemLocation, CUmemLocationType, CUresult,
};

/// Managed memory by its address: advice about its location, and prefetches, as for a [`Buffer`](crate::Buffer) of it. Calls
/// order nothing: work runs on the stream that they name.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// use cuda_mem::buffer::ManagedRange;
/// use cuda_mem::{Buffer, Stream, memory::ManagedMemory};
/// let (memory, stream) = (ManagedMemory::new(&context)?, Stream::new(&context)?);
/// let buffer = Buffer::from_slice(&memory, &[1u8, 2, 3], &stream)?;
/// // SAFETY: the range is the buffer's, which lives longer.
/// let range = unsafe { ManagedRange::new(&context, buffer.device_pointer(), buffer.size()) };
/// range.set_read_mostly(true)?;
/// assert!(buffer.is_read_mostly()?);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ManagedRange {
    context: Context,
    start: CUdeviceptr,
    size: usize,
}

impl ManagedRange {
    /// The range of `size` bytes from `start` on.
    ///
    /// # Safety
    ///
    /// The range lies in managed memory that lives as long as this value, and as the work that its calls queue.
    pub unsafe fn new(context: &Context, start: CUdeviceptr, size: usize) -> Self {
        Self { context: context.clone(), start, size }
    }

    fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// As [`Buffer::set_read_mostly`](crate::Buffer::set_read_mostly).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn set_read_mostly(&self, read_mostly: bool) -> Result<()> {
        let advice = match read_mostly {
            true => Advice::CU_MEM_ADVISE_SET_READ_MOSTLY,
            false => Advice::CU_MEM_ADVISE_UNSET_READ_MOSTLY,
        };
        self.advise(advice, &Location::Host)
    }

    /// As [`Buffer::is_read_mostly`](crate::Buffer::is_read_mostly).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn is_read_mostly(&self) -> Result<bool> {
        Ok(!self.is_empty() && self.attribute(Attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY)? != 0)
    }

    /// As [`Buffer::set_preferred_location`](crate::Buffer::set_preferred_location).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn set_preferred_location(&self, location: Option<&Location>) -> Result<()> {
        match location {
            Some(location) => self.advise(Advice::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, location),
            None => self.advise(Advice::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, &Location::Host),
        }
    }

    /// As [`Buffer::preferred_location`](crate::Buffer::preferred_location).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn preferred_location(&self) -> Result<Option<Location>> {
        self.location(
            Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
            Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE,
            Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID,
        )
    }

    /// As [`Buffer::add_accessed_by`](crate::Buffer::add_accessed_by).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn add_accessed_by(&self, location: &Location) -> Result<()> {
        check_accessor("Buffer::add_accessed_by", location)?;
        self.advise(Advice::CU_MEM_ADVISE_SET_ACCESSED_BY, location)
    }

    /// As [`Buffer::remove_accessed_by`](crate::Buffer::remove_accessed_by).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn remove_accessed_by(&self, location: &Location) -> Result<()> {
        check_accessor("Buffer::remove_accessed_by", location)?;
        self.advise(Advice::CU_MEM_ADVISE_UNSET_ACCESSED_BY, location)
    }

    /// As [`Buffer::accessed_by`](crate::Buffer::accessed_by).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn accessed_by(&self) -> Result<Vec<Location>> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let driver = self.context.driver();
        // Room for all devices and the host.
        let mut numbers = vec![CU_DEVICE_INVALID; driver.device_count()? + 1];
        self.ask(Attribute::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, &mut numbers)?;
        let locations = numbers.into_iter().map(|number| Location::from_device_number(driver, number));
        locations.filter_map(Result::transpose).collect()
    }

    /// As [`Buffer::last_prefetch_location`](crate::Buffer::last_prefetch_location).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn last_prefetch_location(&self) -> Result<Option<Location>> {
        self.location(
            Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
            Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE,
            Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID,
        )
    }

    /// Moves ranges in one call: all to one location, or each to its own.
    ///
    /// # Errors
    ///
    /// As [`Buffer::prefetch_batch`](crate::Buffer::prefetch_batch).
    pub fn prefetch_batch(ranges: &[Self], locations: &[Location], stream: &Stream) -> Result<()> {
        Batch::new("ManagedRange::prefetch_batch", ranges, locations)?.prefetch(stream)
    }

    /// Drops the contents of ranges and moves them, in one call: all to one location, or each to its own.
    ///
    /// # Errors
    ///
    /// As [`Buffer::discard_and_prefetch_batch`](crate::Buffer::discard_and_prefetch_batch).
    ///
    /// # Safety
    ///
    /// Nobody needs the contents.
    pub unsafe fn discard_and_prefetch_batch(ranges: &[Self], locations: &[Location], stream: &Stream) -> Result<()> {
        const CALL: &str = "ManagedRange::discard_and_prefetch_batch";
        check_discard(CALL, stream)?;
        // SAFETY: this function's contract.
        unsafe { Batch::new(CALL, ranges, locations)?.discard_and_prefetch(stream) }
    }

    fn advise(&self, advice: Advice, location: &Location) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let (cuda, _current) = (self.context.driver().raw(), self.context.bind()?);
        let (start, size) = (self.start, self.size);
        let place = location.to_raw("Buffer::advise")?;
        // SAFETY: the range is managed memory, as `new` requires.
        let newer = unsafe { call!(cuda.cuMemAdvise_v2(start, size, advice, place)) };
        or_older(newer, || {
            let device = location.to_device_number()?;
            // SAFETY: as above.
            unsafe { call!(cuda.cuMemAdvise(start, size, advice, device)) }
        })
    }

    /// Moves the memory, which is not empty, in order of a stream.
    pub(super) fn prefetch_on(&self, location: &Location, stream: &Stream) -> Result<()> {
        let (cuda, _ready) = stream.ready()?;
        let (start, size) = (self.start, self.size);
        let place = location.to_raw("Buffer::prefetch")?;
        // SAFETY: the range is managed memory, as `new` requires.
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
        let driver = self.context.driver();
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
        let (cuda, _current) = (self.context.driver().raw(), self.context.bind()?);
        let (start, size) = (self.start, self.size);
        let (data, room): (*mut c_void, usize) = (numbers.as_mut_ptr().cast(), size_of_val(numbers));
        // SAFETY: `data` is writable for `room` bytes.
        unsafe { call!(cuda.cuMemRangeGetAttribute(data, room, attribute, start, size)) }
    }
}

/// The arrays of a batched call, without empty ranges.
pub(super) struct Batch {
    ranges: Vec<ManagedRange>,
    locations: Vec<Location>,
    starts: Vec<CUdeviceptr>,
    sizes: Vec<usize>,
    places: Vec<CUmemLocation>,
    /// For each place, the first range that it applies to.
    indices: Vec<usize>,
}

impl Batch {
    pub fn new(call: &'static str, ranges: &[ManagedRange], locations: &[Location]) -> Result<Self> {
        if locations.len() != 1 && locations.len() != ranges.len() {
            let rule = "it must be 1, or the number of buffers";
            return Err(Error::invalid(call, "the number of locations", locations.len(), rule));
        }
        let located = ranges.iter().zip(locations.iter().cycle()).filter(|(range, _)| !range.is_empty());
        let (ranges, locations): (Vec<_>, Vec<_>) =
            located.map(|(range, location)| (range.clone(), location.clone())).unzip();
        Ok(Self {
            starts: ranges.iter().map(|range| range.start).collect(),
            sizes: ranges.iter().map(|range| range.size).collect(),
            places: locations.iter().map(|location| location.to_raw(call)).collect::<Result<_>>()?,
            indices: (0..ranges.len()).collect(),
            ranges,
            locations,
        })
    }

    pub fn prefetch(mut self, stream: &Stream) -> Result<()> {
        let (starts, sizes, count) = (self.starts.as_mut_ptr(), self.sizes.as_mut_ptr(), self.starts.len());
        let (places, indices) = (self.places.as_mut_ptr(), self.indices.as_mut_ptr());
        if count == 0 {
            return Ok(());
        }
        let newer = {
            let (cuda, _ready) = stream.ready()?;
            // SAFETY: the ranges are managed memory, as `ManagedRange::new` requires; each array has `count` elements.
            unsafe {
                call!(cuda.cuMemPrefetchBatchAsync(starts, sizes, count, places, indices, count, 0, stream.raw()))
            }
        };
        or_older(newer, || {
            let mut located = self.ranges.iter().zip(&self.locations);
            located.try_for_each(|(range, location)| range.prefetch_on(location, stream))
        })
    }

    /// # Safety
    ///
    /// Nobody needs the contents of the ranges.
    pub unsafe fn discard_and_prefetch(mut self, stream: &Stream) -> Result<()> {
        let (starts, sizes, count) = (self.starts.as_mut_ptr(), self.sizes.as_mut_ptr(), self.starts.len());
        let (places, indices) = (self.places.as_mut_ptr(), self.indices.as_mut_ptr());
        if count == 0 {
            return Ok(());
        }
        let ((cuda, _ready), raw) = (stream.ready()?, stream.raw());
        // SAFETY: as for `prefetch`; the caller's contract.
        unsafe { call!(cuda.cuMemDiscardAndPrefetchBatchAsync(starts, sizes, count, places, indices, count, 0, raw)) }
    }
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

pub(super) fn check_discard(call: &'static str, stream: &Stream) -> Result<()> {
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
