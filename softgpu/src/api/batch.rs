//! Many copies in one call.

use super::copy::anywhere;
use crate::call::{Result, driver_calls, ensure, offer};
use crate::state::Global;
use crate::state::copies::Copy;
use crate::state::graphs::capture;
use crate::state::streams::{Stream, meant};
use cuda_sys::{CUdeviceptr, CUmemLocationType, CUmemcpyAttributes, CUmemcpySrcAccessOrder, CUresult, CUstream};

driver_calls! {
    |global: &'static Global|

    /// Queues many copies. If one is wrong, queues none, and returns the index of the wrong one.
    fn cuMemcpyBatchAsync[Locked, cuMemcpyBatchAsync_ptsz](
        dsts: *mut CUdeviceptr,
        srcs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        attrs: *mut CUmemcpyAttributes,
        attrsIdxs: *mut usize,
        numAttrs: usize,
        failIdx: *mut usize,
        hStream: CUstream,
    ) {
        let hStream = meant(hStream);
        // The driver does not touch the index for the null stream.
        if !hStream.is_null() {
            offer(failIdx, NONE);
        }
        batch(global, [dsts, srcs], sizes, count, (attrs, attrsIdxs, numAttrs), hStream).map_err(|(failed, code)| {
            if !hStream.is_null() {
                offer(failIdx, failed);
            }
            code
        })
    }

    /// Queues many copies.
    fn cuMemcpyBatchAsync_v2[Locked, cuMemcpyBatchAsync_v2_ptsz](
        dsts: *mut CUdeviceptr,
        srcs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        attrs: *mut CUmemcpyAttributes,
        attrsIdxs: *mut usize,
        numAttrs: usize,
        hStream: CUstream,
    ) {
        batch(global, [dsts, srcs], sizes, count, (attrs, attrsIdxs, numAttrs), hStream).map_err(|(_, code)| code)
    }

    /// Copies between any two addresses in stream order, with hints.
    fn cuMemcpyWithAttributesAsync[Locked, cuMemcpyWithAttributesAsync_ptsz](
        dst: CUdeviceptr,
        src: CUdeviceptr,
        size: usize,
        attr: *mut CUmemcpyAttributes,
        hStream: CUstream,
    ) {
        batch(global, [&dst, &src], &size, 1, (attr, &0, 1), hStream).map_err(|(_, code)| code)
    }
}

/// The index if the error concerns no single copy.
const NONE: usize = usize::MAX;

/// Sets of attributes, the indices from which they hold, and their number.
type Attributes = (*const CUmemcpyAttributes, *const usize, usize);

/// Checks and queues the copies.
///
/// # Safety
///
/// Each array is null, or as long as the interface says.
unsafe fn batch(
    global: &Global,
    [to, from]: [*const CUdeviceptr; 2],
    sizes: *const usize,
    count: usize,
    attributes: Attributes,
    stream: CUstream,
) -> core::result::Result<(), (usize, CUresult)> {
    let general = |code| (NONE, code);
    ensure(!to.is_null() && !from.is_null() && !sizes.is_null() && count > 0).map_err(general)?;
    // The legacy default stream does not accept batches.
    let stream = meant(stream);
    ensure(stream.addr() > 1).map_err(general)?;
    let on = Stream::find(global, stream).map_err(general)?;
    if capture::enter(&on).map_err(general)? {
        return Err(general(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
    }
    let device = on.context.device;
    // SAFETY: by this function's contract.
    unsafe { check_attributes(global, attributes, count) }.map_err(general)?;
    let mut copies = Vec::new();
    for n in 0..count {
        // SAFETY: by this function's contract.
        let (to, from, size) = unsafe { (to.add(n).read(), from.add(n).read(), sizes.add(n).read()) };
        let copy = ensure(size > 0).and_then(|()| anywhere(global, to, from, size, device));
        copies.push(copy.map_err(|code| (n, code))?);
    }
    copies.into_iter().try_for_each(|copy: Copy| copy.queued(stream)).map_err(general)
}

/// Checks attributes. Each set holds from its index on; the first index is 0.
///
/// # Safety
///
/// The arrays are null or have `kinds` elements.
unsafe fn check_attributes(global: &Global, (attributes, indices, kinds): Attributes, count: usize) -> Result {
    ensure(!attributes.is_null() && !indices.is_null() && kinds > 0 && kinds <= count)?;
    let mut before = None;
    for n in 0..kinds {
        // SAFETY: by this function's contract.
        let (attribute, index) = unsafe { (attributes.add(n).read(), indices.add(n).read()) };
        ensure(index < count && before.map_or(index == 0, |before| before < index))?;
        before = Some(index);
        let order = attribute.srcAccessOrder.0;
        ensure((1..=CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_ANY.0).contains(&order))?;
        ensure(attribute.flags <= 1)?;
        for hint in [attribute.srcLocHint, attribute.dstLocHint] {
            ensure(match hint.type_ {
                CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => global.device(hint.id).is_ok(),
                CUmemLocationType(kind) => kind <= CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT.0,
            })?;
        }
    }
    Ok(())
}
