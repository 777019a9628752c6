//! The driver's own calls, as a program would write them.

use cuda_mem::cuda_sys::{CUdeviceptr, CUresult};
use cuda_mem::{Context, DriverError, Result, Stream};

fn check(call: &'static str, answer: Result<CUresult, cuda_mem::cuda_sys::MissingSymbol>) -> Result<()> {
    match answer? {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(DriverError { call, code }.into()),
    }
}

/// Enables access, as a program does by hand. It may be enabled already, or impossible.
pub(super) fn enable_access(peer: &Context, owner: &Context) -> Result<()> {
    let _current = peer.bind()?;
    // SAFETY: both contexts are alive.
    let answer = unsafe { peer.driver().raw().cuCtxEnablePeerAccess(owner.raw(), 0) };
    match check("cuCtxEnablePeerAccess", answer) {
        Err(error) if error.driver_code() == Some(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) => Ok(()),
        Err(error) if error.driver_code() == Some(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED) => Ok(()),
        other => other,
    }
}

/// Memory of a context, and the stream of its copies.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) context: &'a Context,
    pub(super) address: CUdeviceptr,
}

/// Queues a copy by cuMemcpyPeerAsync on a stream of the destination, where this library's copies run too.
///
/// # Safety
///
/// Both ranges stay valid until the copy is done.
pub(super) unsafe fn copy(to: Place<'_>, from: Place<'_>, size: usize, stream: &Stream) -> Result<()> {
    let _current = stream.context().bind()?;
    let (to_context, from_context) = (to.context.raw(), from.context.raw());
    // SAFETY: this function's contract.
    let answer = unsafe {
        stream.context().driver().raw().cuMemcpyPeerAsync(
            to.address,
            to_context,
            from.address,
            from_context,
            size,
            stream.raw(),
        )
    };
    check("cuMemcpyPeerAsync", answer)
}

/// Queues a copy between page-locked host memory and a device by cuMemcpyAsync.
///
/// # Safety
///
/// Both ranges stay valid until the copy is done.
pub(super) unsafe fn copy_with_host(to: CUdeviceptr, from: CUdeviceptr, size: usize, stream: &Stream) -> Result<()> {
    let _current = stream.context().bind()?;
    // SAFETY: this function's contract.
    let answer = unsafe { stream.context().driver().raw().cuMemcpyAsync(to, from, size, stream.raw()) };
    check("cuMemcpyAsync", answer)
}

/// Waits for a stream by cuStreamSynchronize.
pub(super) fn wait(stream: &Stream) -> Result<()> {
    let _current = stream.context().bind()?;
    // SAFETY: the stream is alive.
    let answer = unsafe { stream.context().driver().raw().cuStreamSynchronize(stream.raw()) };
    check("cuStreamSynchronize", answer)
}
