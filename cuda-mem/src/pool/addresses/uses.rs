//! Blocks that work of further streams uses.
//!
//! A use lasts until the free, and the stream may have ended by then, so the free passes no handle to the driver. It notes
//! that the stream's work until now uses the block. Each later call that names the stream records an event behind that
//! work, or the pool waits for the context when memory runs short.

use super::calls::named;
use super::live::UsedBlock;
use super::one::{Addresses, not_null};
use super::table::NotLive;
use crate::driver::context::Liveness;
use crate::memory::resource::Kind;
use crate::pool::shared::SharedPool;
use crate::{Context, Error, Result, Stream, check_not_forked};
use cuda_sys::{CUdeviceptr, CUstream};
use std::sync::Arc;

impl<K: Kind> Addresses<K> {
    /// Notes that work of a further stream uses a block, until the block is freed. The next user then gets the memory after
    /// all work that was queued on that stream before the free. Nothing waits for it now, and the stream may end at any time.
    ///
    /// A null stream is the legacy default stream. If another library captures the stream, the memory also stays until no
    /// work of the graph can run any more.
    ///
    /// After the free, the memory is given out when the program has named the stream in another call, such as this one for
    /// a later block, or when the pool has waited for the context because memory ran short.
    ///
    /// # Errors
    ///
    /// No live block begins at the address, or the resource is no pool: nothing is noted then. The stream is of another
    /// context, or the driver refuses: nobody can tell when that work ends, so the block is held back for good when it is
    /// freed.
    ///
    /// # Safety
    ///
    /// As for [`malloc`](Self::malloc).
    pub unsafe fn record_use(&self, address: CUdeviceptr, stream: CUstream) -> Result<()> {
        // SAFETY: this function's contract.
        unsafe { self.record_use_in("Addresses::record_use", address, stream, &[]) }
    }

    /// Notes that work of a further stream, which may be of one of the `further` contexts, uses a block until it is
    /// freed. Otherwise as [`record_use`](Self::record_use).
    ///
    /// # Safety
    ///
    /// As [`record_use`](Self::record_use).
    pub(super) unsafe fn record_use_in(
        &self,
        call: &'static str,
        address: CUdeviceptr,
        stream: CUstream,
        further: &[&Context],
    ) -> Result<()> {
        check_not_forked(call)?;
        let (core, stream) = (self.core(call)?, not_null(stream));
        let unknown = || self.not_live(call, address, 0, NotLive::Unknown);
        if !self.has(address) {
            return Err(unknown());
        }
        // SAFETY: this function's contract.
        let borrow = |context: &Context| unsafe { Stream::borrow_named(context, stream) }.transpose();
        let mut contexts = [core.context()].into_iter().chain(further.iter().copied());
        // SAFETY: as above.
        let named = contexts.find_map(borrow).unwrap_or_else(|| unsafe { named(call, core.context(), stream) });
        // The value ends after the use is noted, so it records an event, for which blocks that were freed before wait.
        let uses = named.as_ref().map_err(Clone::clone).and_then(|stream| core.uses_by(call, stream));
        let fresh = match uses {
            Ok(uses) => uses,
            Err(error) => {
                self.live.change_uses(address, |used| used.is_held = true);
                return Err(error);
            }
        };
        // Dropped without the lock.
        let mut known = Vec::new();
        let found = self.live.change_uses(address, |used| {
            for one in fresh {
                let list = if used.uses.contains(&one) { &mut known } else { &mut used.uses };
                list.push(one);
            }
        });
        found.ok_or_else(unknown)
    }

    /// Whether a live block begins at an address.
    pub(super) fn has(&self, address: CUdeviceptr) -> bool {
        self.live.has(address)
    }

    /// Frees a block that further streams use. `why` no other block can be freed.
    ///
    /// # Safety
    ///
    /// As [`free`](Self::free).
    #[cold]
    pub(super) unsafe fn free_used(
        &self,
        call: &'static str,
        address: CUdeviceptr,
        size: usize,
        stream: CUstream,
        why: NotLive,
    ) -> Result<()> {
        let used = match self.live.remove_used(address, size) {
            Ok(Some(used)) => used,
            Ok(None) => return Ok(()),
            Err(NotLive::Unknown) => return Err(self.not_live(call, address, size, why)),
            Err(why) => return Err(self.not_live(call, address, size, why)),
        };
        // SAFETY: this function's contract. The block is this thread's, because it has removed it from the map.
        let freed = unsafe { self.deallocate_used(call, &used, not_null(stream)) };
        if freed.is_err() {
            self.live.put_back(address, used);
        }
        freed
    }

    /// # Safety
    ///
    /// As [`free`](Self::free). The block is the caller's alone.
    unsafe fn deallocate_used(&self, call: &'static str, used: &UsedBlock, stream: CUstream) -> Result<()> {
        let (core, block) = (self.core(call)?, used.block);
        // SAFETY: this function's contract.
        let freed = unsafe { named(call, core.context(), stream) }.and_then(|stream| {
            // The program may have another value for the stream, so that this one is not the last.
            stream.note_unmarked_work();
            let by_others = || used.uses.iter().filter(|one| !one.is_by(&stream)).map(|one| one.until_now()).collect();
            let free = || core.deallocate_used(block, &stream, by_others());
            match &core.watch {
                Some(watch) => watch.freed(block, &stream, free),
                None => free(),
            }
        });
        if freed.is_err() && core.context().liveness() != Liveness::Alive {
            // SAFETY: as above, and the context has ended.
            unsafe { self.resource().abandon(block) };
            return Ok(());
        }
        freed
    }

    /// The pool, whose memory can wait for the work of several streams.
    fn core(&self, call: &'static str) -> Result<&Arc<SharedPool>> {
        self.pool().map(|pool| pool.refs.core()).ok_or_else(|| {
            let rule = "it must be a pool: other memory waits for the work of one stream only";
            Error::invalid(call, "resource", "no pool", rule)
        })
    }
}
