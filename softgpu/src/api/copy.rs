//! Copies.

use crate::Peers;
use crate::call::{Result, driver_calls, ensure};
use crate::state::Global;
use crate::state::contexts::{Context, current};
use crate::state::copies::{Copy, Rows, Side};
use crate::state::memory::{Range, Use};
use cuda_sys::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUcontext, CUdeviceptr, CUmemorytype, CUresult, CUstream};
use std::ffi::c_void;

/// Where one end of a copy may lie.
#[derive(Clone, Copy)]
enum End {
    /// In memory that the driver knows.
    Known(CUdeviceptr),
    /// As `Known`, accessed by the device that owns the memory: a copy between peers needs no peer access.
    Owned(CUdeviceptr),
    /// Anywhere.
    Any(u64),
}

driver_calls! {
    |global: &'static Global|

    /// Copies between any two addresses.
    fn cuMemcpy[Locked, cuMemcpy_ptds](dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize) {
        plain(global, End::Any(dst), End::Any(src), ByteCount, Copy::now)
    }

    /// Copies between any two addresses in stream order.
    fn cuMemcpyAsync[Locked, cuMemcpyAsync_ptsz](dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize, hStream: CUstream) {
        plain(global, End::Any(dst), End::Any(src), ByteCount, |copy| copy.queued(hStream))
    }

    /// Copies from host to device.
    fn cuMemcpyHtoD_v2[Locked, cuMemcpyHtoD_v2_ptds](dstDevice: CUdeviceptr, srcHost: *const c_void, ByteCount: usize) {
        plain(global, End::Known(dstDevice), host(srcHost), ByteCount, Copy::now)
    }

    /// Copies from host to device in stream order.
    fn cuMemcpyHtoDAsync_v2[Locked, cuMemcpyHtoDAsync_v2_ptsz](
        dstDevice: CUdeviceptr,
        srcHost: *const c_void,
        ByteCount: usize,
        hStream: CUstream,
    ) {
        plain(global, End::Known(dstDevice), host(srcHost), ByteCount, |copy| copy.queued(hStream))
    }

    /// Copies from device to host.
    fn cuMemcpyDtoH_v2[Locked, cuMemcpyDtoH_v2_ptds](dstHost: *mut c_void, srcDevice: CUdeviceptr, ByteCount: usize) {
        plain(global, host(dstHost), End::Known(srcDevice), ByteCount, Copy::now)
    }

    /// Copies from device to host in stream order.
    fn cuMemcpyDtoHAsync_v2[Locked, cuMemcpyDtoHAsync_v2_ptsz](
        dstHost: *mut c_void,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
        hStream: CUstream,
    ) {
        plain(global, host(dstHost), End::Known(srcDevice), ByteCount, |copy| copy.queued(hStream))
    }

    /// Copies within device memory.
    fn cuMemcpyDtoD_v2[Locked, cuMemcpyDtoD_v2_ptds](dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize) {
        plain(global, End::Known(dstDevice), End::Known(srcDevice), ByteCount, Copy::now)
    }

    /// Copies within device memory in stream order.
    fn cuMemcpyDtoDAsync_v2[Locked, cuMemcpyDtoDAsync_v2_ptsz](
        dstDevice: CUdeviceptr,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
        hStream: CUstream,
    ) {
        plain(global, End::Known(dstDevice), End::Known(srcDevice), ByteCount, |copy| copy.queued(hStream))
    }

    /// Copies between the memories of two contexts.
    fn cuMemcpyPeer[Locked, cuMemcpyPeer_ptds](
        dstDevice: CUdeviceptr,
        dstContext: CUcontext,
        srcDevice: CUdeviceptr,
        srcContext: CUcontext,
        ByteCount: usize,
    ) {
        peers(global, dstContext, srcContext)?;
        plain(global, End::Owned(dstDevice), End::Owned(srcDevice), ByteCount, Copy::now)
    }

    /// Copies between the memories of two contexts in stream order.
    fn cuMemcpyPeerAsync[Locked, cuMemcpyPeerAsync_ptsz](
        dstDevice: CUdeviceptr,
        dstContext: CUcontext,
        srcDevice: CUdeviceptr,
        srcContext: CUcontext,
        ByteCount: usize,
        hStream: CUstream,
    ) {
        peers(global, dstContext, srcContext)?;
        plain(global, End::Owned(dstDevice), End::Owned(srcDevice), ByteCount, |copy| copy.queued(hStream))
    }

    /// Copies rows.
    fn cuMemcpy2D_v2[Locked, cuMemcpy2D_v2_ptds](pCopy: *const CUDA_MEMCPY2D) {
        rows(global, pCopy.as_ref(), Copy::now)
    }

    /// Copies rows at any pitch.
    fn cuMemcpy2DUnaligned_v2[Locked, cuMemcpy2DUnaligned_v2_ptds](pCopy: *const CUDA_MEMCPY2D) {
        rows(global, pCopy.as_ref(), Copy::now)
    }

    /// Copies rows in stream order.
    fn cuMemcpy2DAsync_v2[Locked, cuMemcpy2DAsync_v2_ptsz](pCopy: *const CUDA_MEMCPY2D, hStream: CUstream) {
        rows(global, pCopy.as_ref(), |copy| copy.queued(hStream))
    }

    /// Copies planes in stream order.
    fn cuMemcpy3DAsync_v2[Locked, cuMemcpy3DAsync_v2_ptsz](pCopy: *const CUDA_MEMCPY3D, hStream: CUstream) {
        planes(global, pCopy.as_ref())?.into_iter().try_for_each(|copy| copy.queued(hStream))
    }
}

fn host<T>(address: *const T) -> End {
    End::Any(address.expose_provenance() as u64)
}

fn range(global: &Global, end: End, length: usize, purpose: Use) -> Result<Range> {
    // Copies reach all devices; only pools restrict the current context's device.
    let device = current(global)?.device;
    match end {
        End::Known(address) => {
            // Like the driver, refuses a block of a host pool as device memory, whatever access was set.
            let block = global.memory.at(address);
            ensure(!block.is_some_and(|block| block.pool.as_ref().is_some_and(|pool| pool.is_host())))?;
            global.memory.range(address, length, device, purpose)
        }
        End::Owned(address) => {
            let owner = global.memory.at(address).map_or(device, |block| block.device);
            global.memory.range(address, length, owner, purpose)
        }
        End::Any(address) => global.memory.any_range(address, length, device, purpose),
    }
}

fn plain(global: &Global, to: End, from: End, length: usize, run: impl FnOnce(Copy) -> Result) -> Result {
    let context = current(global)?;
    if length == 0 {
        return Ok(());
    }
    run(between(global, &context, range(global, to, length, Use::Write)?, range(global, from, length, Use::Read)?)?)
}

pub(super) fn anywhere(
    global: &Global,
    to: CUdeviceptr,
    from: CUdeviceptr,
    length: usize,
    device: usize,
) -> Result<Copy> {
    let memory = &global.memory;
    let to = memory.any_range(to, length, device, Use::Write)?;
    between(global, &*current(global)?, to, memory.any_range(from, length, device, Use::Read)?)
}

/// A copy between two ranges. One that uses broken access between devices writes nothing.
fn between(global: &Global, context: &Context, to: Range, from: Range) -> Result<Copy> {
    let mut copy = Copy::plain(to, from);
    for (host, device) in [(&copy.to, &copy.from), (&copy.from, &copy.to)] {
        if let (Some(host), Some(device)) = (&host.range.block, &device.range.block)
            && host.is_host()
            && host.mapped().is_some()
        {
            // Drivers fail, or crash.
            let reached = device.is_reached_by(context) && device.allows(context.device, Use::Read);
            ensure(device.is_host() || device.is_managed() || reached)?;
        }
    }
    if global.settings.peers == Peers::Broken {
        let device = |side: &Side| side.range.block.clone().filter(|block| !block.is_host() && !block.is_managed());
        if let (Some(to), Some(from)) = (device(&copy.to), device(&copy.from))
            && to.device != from.device
            && [to, from].iter().all(|block| block.is_reached_by(context) && block.allows(context.device, Use::Write))
        {
            copy.rows.count = 0;
        }
    }
    Ok(copy)
}

fn peers(global: &Global, to: CUcontext, from: CUcontext) -> Result {
    // Null is the current context.
    for context in [to, from] {
        if !context.is_null() {
            global.context(context)?;
        }
    }
    Ok(())
}

/// One side of a copy of rows, as the descriptor states it.
struct Stated {
    kind: CUmemorytype,
    host: u64,
    device: CUdeviceptr,
    pitch: usize,
    x: usize,
    y: usize,
}

impl Stated {
    fn side(&self, global: &Global, rows: Rows, purpose: Use) -> Result<Side> {
        let make = match self.kind {
            CUmemorytype::CU_MEMORYTYPE_HOST => End::Any as fn(u64) -> End,
            CUmemorytype::CU_MEMORYTYPE_DEVICE => End::Known,
            CUmemorytype::CU_MEMORYTYPE_UNIFIED => End::Any,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        let base = if self.kind == CUmemorytype::CU_MEMORYTYPE_HOST { self.host } else { self.device };
        let right = self.x.checked_add(rows.width).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        // Without a pitch, each row begins where the one before ends.
        let pitch = if self.pitch == 0 { right } else { self.pitch };
        ensure(rows.count <= 1 && self.y == 0 || right <= pitch)?;
        let start = || (self.y.checked_mul(pitch)?).checked_add(self.x);
        let length = || (rows.count - 1).checked_mul(pitch)?.checked_add(rows.width);
        let (Some(start), Some(length)) = (start(), length()) else {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        };
        ensure(base != 0)?;
        let address = base.checked_add(start as u64).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        Ok(Side { range: range(global, make(address), length, purpose)?, pitch })
    }
}

fn rows(global: &Global, copy: Option<&CUDA_MEMCPY2D>, run: impl FnOnce(Copy) -> Result) -> Result {
    let copy = copy.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    current(global)?;
    let rows = Rows { width: copy.WidthInBytes, count: copy.Height };
    if rows.width == 0 || rows.count == 0 {
        return Ok(());
    }
    let from = Stated {
        kind: copy.srcMemoryType,
        host: copy.srcHost.expose_provenance() as u64,
        device: copy.srcDevice,
        pitch: copy.srcPitch,
        x: copy.srcXInBytes,
        y: copy.srcY,
    };
    let to = Stated {
        kind: copy.dstMemoryType,
        host: copy.dstHost.expose_provenance() as u64,
        device: copy.dstDevice,
        pitch: copy.dstPitch,
        x: copy.dstXInBytes,
        y: copy.dstY,
    };
    run(Copy { to: to.side(global, rows, Use::Write)?, from: from.side(global, rows, Use::Read)?, rows })
}

/// The planes of a copy, each as a copy of rows. All are checked before the first one begins.
pub(super) fn planes(global: &Global, copy: Option<&CUDA_MEMCPY3D>) -> Result<Vec<Copy>> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let copy = copy.ok_or(invalid)?;
    current(global)?;
    let rows = Rows { width: copy.WidthInBytes, count: copy.Height };
    if rows.width == 0 || rows.count == 0 {
        return Ok(vec![]);
    }
    // The first row of a plane. Without a height, each plane begins where the one before ends.
    let row = |plane: usize, z: usize, y: usize, height: usize| {
        let end = y.checked_add(rows.count).ok_or(invalid)?;
        let height = if height == 0 { end } else { height };
        ensure(copy.Depth <= 1 || end <= height)?;
        z.checked_add(plane).and_then(|plane| plane.checked_mul(height)?.checked_add(y)).ok_or(invalid)
    };
    let plane = |plane: usize| {
        let from = Stated {
            kind: copy.srcMemoryType,
            host: copy.srcHost.expose_provenance() as u64,
            device: copy.srcDevice,
            pitch: copy.srcPitch,
            x: copy.srcXInBytes,
            y: row(plane, copy.srcZ, copy.srcY, copy.srcHeight)?,
        };
        let to = Stated {
            kind: copy.dstMemoryType,
            host: copy.dstHost.expose_provenance() as u64,
            device: copy.dstDevice,
            pitch: copy.dstPitch,
            x: copy.dstXInBytes,
            y: row(plane, copy.dstZ, copy.dstY, copy.dstHeight)?,
        };
        Ok(Copy { to: to.side(global, rows, Use::Write)?, from: from.side(global, rows, Use::Read)?, rows })
    };
    (0..copy.Depth).map(plane).collect()
}
