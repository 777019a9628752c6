//! Managed memory. CPU and devices share it already, so softgpu only records where it was moved.

use crate::call::{Result, driver_calls, ensure};
use crate::state::Global;
use crate::state::copies::{Fill, Rows, Side, Word};
use crate::state::memory::{Allocation, Use};
use crate::state::memory::{Notes, Place, same};
use crate::state::streams::Stream;
use crate::sync::lock;
use cuda_sys::{
    CU_DEVICE_CPU, CU_DEVICE_INVALID, CUdevice, CUdeviceptr, CUmem_advise, CUmem_range_attribute, CUmemAttach_flags,
    CUmemLocation, CUmemLocationType, CUresult, CUstream,
};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::ops::Range;
use std::sync::Arc;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

driver_calls! {
    |global: &'static Global|

    /// Moves managed memory to a device or to the host.
    fn cuMemPrefetchAsync[Started, cuMemPrefetchAsync_ptsz](devPtr: CUdeviceptr, count: usize, dstDevice: CUdevice, hStream: CUstream) {
        prefetch(global, devPtr, count, of_device(dstDevice), hStream)
    }

    /// Moves managed memory to a place.
    fn cuMemPrefetchAsync_v2[Started, cuMemPrefetchAsync_v2_ptsz](
        devPtr: CUdeviceptr,
        count: usize,
        location: CUmemLocation,
        flags: c_uint,
        hStream: CUstream,
    ) {
        ensure(flags == 0)?;
        prefetch(global, devPtr, count, location, hStream)
    }

    /// Moves many ranges.
    fn cuMemPrefetchBatchAsync[Started, cuMemPrefetchBatchAsync_ptsz](
        dptrs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        prefetchLocs: *mut CUmemLocation,
        prefetchLocIdxs: *mut usize,
        numPrefetchLocs: usize,
        flags: c_ulonglong,
        hStream: CUstream,
    ) {
        ensure(flags == 0)?;
        let places = places(global, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, count)?;
        let ranges = ranges(global, dptrs, sizes, count)?;
        ranges.into_iter().zip(places).try_for_each(|((at, size), place)| prefetch(global, at, size, place, hStream))
    }

    /// Discards the contents of many ranges. They become zeros.
    fn cuMemDiscardBatchAsync[Started, cuMemDiscardBatchAsync_ptsz](
        dptrs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        flags: c_ulonglong,
        hStream: CUstream,
    ) {
        ensure(flags == 0)?;
        refuse_default(hStream)?;
        ranges(global, dptrs, sizes, count)?.into_iter().try_for_each(|(at, size)| discard(global, at, size, hStream))
    }

    /// Discards the contents of many ranges, and moves the ranges.
    fn cuMemDiscardAndPrefetchBatchAsync[Started, cuMemDiscardAndPrefetchBatchAsync_ptsz](
        dptrs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        prefetchLocs: *mut CUmemLocation,
        prefetchLocIdxs: *mut usize,
        numPrefetchLocs: usize,
        flags: c_ulonglong,
        hStream: CUstream,
    ) {
        ensure(flags == 0)?;
        let places = places(global, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, count)?;
        refuse_default(hStream)?;
        for ((at, size), place) in ranges(global, dptrs, sizes, count)?.into_iter().zip(places) {
            discard(global, at, size, hStream)?;
            prefetch(global, at, size, place, hStream)?;
        }
        Ok(())
    }

    /// Advises the driver on managed memory.
    fn cuMemAdvise[Started](devPtr: CUdeviceptr, count: usize, advice: CUmem_advise, device: CUdevice) {
        advise(global, devPtr, count, advice, of_device(device), |place| check_place(global, place))
    }

    /// Advises the driver on managed memory, for a place.
    fn cuMemAdvise_v2[Started](devPtr: CUdeviceptr, count: usize, advice: CUmem_advise, location: CUmemLocation) {
        advise(global, devPtr, count, advice, location, |place| check_place(global, place).map_err(|_| INVALID))
    }

    /// Returns an attribute of a range of managed memory.
    fn cuMemRangeGetAttribute[Started](
        data: *mut c_void,
        dataSize: usize,
        attribute: CUmem_range_attribute,
        devPtr: CUdeviceptr,
        count: usize,
    ) {
        let block = managed(global, devPtr, count)?;
        let answer = tell(&lock(&block.notes), &range(devPtr, count), attribute, dataSize)?;
        put_numbers(data, &answer)
    }

    /// Returns several attributes of a range of managed memory.
    fn cuMemRangeGetAttributes[Started](
        data: *mut *mut c_void,
        dataSizes: *mut usize,
        attributes: *mut CUmem_range_attribute,
        numAttributes: usize,
        devPtr: CUdeviceptr,
        count: usize,
    ) {
        ensure(!data.is_null() && !dataSizes.is_null() && !attributes.is_null() && numAttributes > 0)?;
        let block = managed(global, devPtr, count)?;
        for n in 0..numAttributes {
            let (attribute, size) = (attributes.add(n).read(), dataSizes.add(n).read());
            let answer = tell(&lock(&block.notes), &range(devPtr, count), attribute, size)?;
            put_numbers(data.add(n).read(), &answer)?;
        }
        Ok(())
    }

    /// Attaches managed memory to a stream. This has no effect here.
    fn cuStreamAttachMemAsync[Started, cuStreamAttachMemAsync_ptsz](hStream: CUstream, dptr: CUdeviceptr, length: usize, flags: c_uint) {
        let stream = Stream::find(global, hStream)?;
        ensure(matches!(flags, 1 | 2 | 4))?;
        // Memory cannot be attached to a default stream alone.
        let single = CUmemAttach_flags(flags) == CUmemAttach_flags::CU_MEM_ATTACH_SINGLE;
        ensure(!single || hStream.addr() > 2)?;
        let block = managed(global, dptr, 1)?;
        ensure(dptr == block.base && (length == 0 || length == block.size))?;
        stream.submit(Vec::new(), || ()).map(drop)
    }
}

/// The place for a device number, by which the older functions name places.
fn of_device(device: CUdevice) -> CUmemLocation {
    match device {
        CU_DEVICE_CPU => CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST, id: 0 },
        id => CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id },
    }
}

fn check_place(global: &Global, place: CUmemLocation) -> Result {
    match place.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => global.device(place.id).map(drop),
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => {
            Ok(())
        }
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => ensure(place.id == 0),
        _ => Err(INVALID),
    }
}

/// The managed allocation that contains a range.
fn managed(global: &Global, address: CUdeviceptr, size: usize) -> Result<Arc<Allocation>> {
    ensure(size > 0)?;
    let block = global.memory.at(address).ok_or(INVALID)?;
    ensure(block.is_managed())?;
    ensure(size as u64 <= block.size as u64 - (address - block.base))?;
    Ok(block)
}

/// The addresses of a range that [`managed`] has checked.
fn range(address: CUdeviceptr, size: usize) -> Range<u64> {
    address..address.saturating_add(size as u64)
}

/// A place as notes keep it.
fn noted(place: CUmemLocation) -> Place {
    let host = place.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST;
    (place.type_, if host { CU_DEVICE_CPU } else { place.id })
}

/// Refuses the legacy default stream, on which contents cannot be discarded.
fn refuse_default(stream: CUstream) -> Result {
    ensure(stream.addr() > 1)
}

fn prefetch(global: &Global, address: CUdeviceptr, size: usize, place: CUmemLocation, stream: CUstream) -> Result {
    let stream = Stream::find(global, stream)?;
    check_place(global, place)?;
    let block = managed(global, address, size)?;
    stream
        .submit(Vec::new(), move || {
            lock(&block.notes).prefetched.set(range(address, size), Some(noted(place)));
        })
        .map(drop)
}

fn discard(global: &Global, address: CUdeviceptr, size: usize, stream: CUstream) -> Result {
    managed(global, address, size)?;
    let device = Stream::find(global, stream)?.context.device;
    let range = global.memory.range(address, size, device, Use::Write)?;
    let to = Side { range, pitch: size };
    Fill { to, rows: Rows { width: size, count: 1 }, word: Word::Byte(0) }.queued(stream)
}

/// The ranges of a batch.
///
/// # Safety
///
/// The arrays are null or have `count` elements.
unsafe fn ranges(
    global: &Global,
    addresses: *const CUdeviceptr,
    sizes: *const usize,
    count: usize,
) -> Result<Vec<(CUdeviceptr, usize)>> {
    ensure(!addresses.is_null() && !sizes.is_null() && count > 0)?;
    // SAFETY: by this function's contract.
    let ranges: Vec<_> = (0..count).map(|n| unsafe { (addresses.add(n).read(), sizes.add(n).read()) }).collect();
    for (address, size) in &ranges {
        managed(global, *address, *size)?;
    }
    Ok(ranges)
}

/// The place of each range of a batch. A place holds from its index on.
///
/// # Safety
///
/// The arrays are null or have `places` elements.
unsafe fn places(
    global: &Global,
    at: *const CUmemLocation,
    indices: *const usize,
    places: usize,
    count: usize,
) -> Result<Vec<CUmemLocation>> {
    ensure(!at.is_null() && !indices.is_null() && places > 0 && places <= count)?;
    // SAFETY: by this function's contract.
    let starts: Vec<_> = (0..places).map(|n| unsafe { (indices.add(n).read(), at.add(n).read()) }).collect();
    let rising = starts.windows(2).all(|pair| pair[0].0 < pair[1].0);
    ensure(starts[0].0 == 0 && rising && starts[places - 1].0 < count)?;
    starts.iter().try_for_each(|(_, place)| check_place(global, *place))?;
    let of = |n: usize| starts.iter().rev().find(|(start, _)| *start <= n).map(|(_, place)| *place);
    (0..count).map(|n| of(n).ok_or(INVALID)).collect()
}

/// Records advice. `check_place` checks the place if the advice has one.
fn advise(
    global: &Global,
    address: CUdeviceptr,
    size: usize,
    advice: CUmem_advise,
    place: CUmemLocation,
    check_place: impl Fn(CUmemLocation) -> Result,
) -> Result {
    let block = managed(global, address, size)?;
    let (mut notes, range) = (lock(&block.notes), range(address, size));
    match advice {
        CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY => notes.read_mostly.set(range, true),
        CUmem_advise::CU_MEM_ADVISE_UNSET_READ_MOSTLY => notes.read_mostly.set(range, false),
        CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION => {
            check_place(place)?;
            notes.preferred.set(range, Some(noted(place)));
        }
        CUmem_advise::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION => notes.preferred.set(range, None),
        CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY => {
            check_place(place).and_then(|()| check_accessor(place))?;
            notes.accessed_by.retain(|other| !same(*other, place));
            notes.accessed_by.push(place);
        }
        CUmem_advise::CU_MEM_ADVISE_UNSET_ACCESSED_BY => {
            check_place(place).and_then(|()| check_accessor(place))?;
            notes.accessed_by.retain(|other| !same(*other, place));
        }
        _ => return Err(INVALID),
    }
    Ok(())
}

/// Devices access memory, and the host as a whole.
fn check_accessor(place: CUmemLocation) -> Result {
    ensure(matches!(
        place.type_,
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST
    ))
}

/// A place as a device number.
fn number(place: Option<Place>) -> c_int {
    match place {
        Some((CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id)) => id,
        Some(_) => CU_DEVICE_CPU,
        None => CU_DEVICE_INVALID,
    }
}

/// An attribute of a range of managed memory, as the numbers that fill `size` bytes.
fn tell(notes: &Notes, range: &Range<u64>, attribute: CUmem_range_attribute, size: usize) -> Result<Vec<c_int>> {
    use CUmem_range_attribute as A;
    ensure(size >= 4 && size.is_multiple_of(4))?;
    if attribute == A::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY {
        let named = notes.accessed_by.iter().map(|place| number(Some(noted(*place))));
        return Ok(named.chain(std::iter::repeat(CU_DEVICE_INVALID)).take(size / 4).collect());
    }
    ensure(size == 4)?;
    let kind = |place: Option<Place>| place.map_or(0, |(kind, _)| kind.0 as c_int);
    let id = |place: Option<Place>| place.map_or(CU_DEVICE_INVALID, |(_, id)| id);
    let (preferred, prefetched) = (notes.preferred.get(range), notes.prefetched.get(range));
    Ok(vec![match attribute {
        A::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY => c_int::from(notes.read_mostly.get(range)),
        A::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION => number(preferred),
        A::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION => number(prefetched),
        A::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE => kind(preferred),
        A::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID => id(preferred),
        A::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE => kind(prefetched),
        A::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID => id(prefetched),
        _ => return Err(INVALID),
    }])
}

/// Writes numbers.
///
/// # Safety
///
/// `out` is null or has room for them.
unsafe fn put_numbers(out: *mut c_void, numbers: &[c_int]) -> Result {
    ensure(!out.is_null())?;
    // SAFETY: by this function's contract; callers need not align.
    numbers.iter().enumerate().for_each(|(n, number)| unsafe { out.cast::<c_int>().add(n).write_unaligned(*number) });
    Ok(())
}
