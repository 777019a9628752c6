//! The end of a pool, which comes after the frees of its memory.
//!
//! The driver tears a pool down once the last of its frees is done. If several streams use the pool and it is destroyed
//! before that, later calls of other threads crash in the driver (580.159, docs/measurements/2026-11-28-h200x2-pools.md).

use crate::cpu::asymmetric_fence::{heavy_fence, light_fence, prepare};
use crate::driver::context::Liveness;
use crate::driver::relaxed::RelaxedCalls;
use crate::error::call;
use crate::error::drop_errors::DropErrors;
use crate::locks::Mutex;
use crate::{Context, Driver, Stream};
use core::mem;
use core::sync::atomic::{AtomicU64, Ordering};
use cuda_sys::{CU_STREAM_PER_THREAD, CUmemPool_attribute, CUmemoryPool};
use std::sync::Arc;

const DOING: &str = "destroying a pool";

/// The number of streams from which a list checks which of them are idle.
const LOOK_AT: usize = 8;

/// The streams on which frees of a pool's memory may be under way.
#[derive(Debug)]
pub(crate) struct FreeingStreams {
    /// The number of a stream in the list; 0 if it may not be there.
    last: AtomicU64,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    streams: Vec<Stream>,
    look_at: usize,
}

impl FreeingStreams {
    pub fn new() -> Self {
        prepare();
        Self { last: AtomicU64::new(0), list: Mutex::default() }
    }

    /// Notes a free that was just queued on a stream.
    #[inline]
    pub fn note(&self, stream: &Stream) {
        // Whoever removes the stream clears the number first, and then asks the stream for this free.
        light_fence();
        if self.last.load(Ordering::Relaxed) != stream.id() {
            self.add(stream);
        }
    }

    #[cold]
    fn add(&self, stream: &Stream) {
        let added = stream.kept();
        let mut list = self.list.lock();
        let idle =
            if list.streams.len() >= list.look_at.max(LOOK_AT) { self.remove_idle(&mut list) } else { Vec::new() };
        let is_new = list.streams.iter().all(|known| known.id() != added.id());
        let spare = if is_new {
            list.streams.push(added);
            None
        } else {
            Some(added)
        };
        self.last.store(stream.id(), Ordering::Relaxed);
        drop(list);
        drop((idle, spare));
    }

    /// Removes the streams that are idle. They must be dropped without the lock.
    fn remove_idle(&self, list: &mut List) -> Vec<Stream> {
        self.last.store(0, Ordering::Relaxed);
        let (idle, busy) = match heavy_fence() {
            true => mem::take(&mut list.streams).into_iter().partition(is_idle),
            false => (Vec::new(), mem::take(&mut list.streams)),
        };
        (list.look_at, list.streams) = (2 * busy.len(), busy);
        idle
    }

    pub fn take(&self) -> Vec<Stream> {
        mem::take(&mut self.list.lock().streams)
    }
}

/// Whether the stream has certainly done its work.
fn is_idle(stream: &Stream) -> bool {
    let Ok(_relaxed) = RelaxedCalls::begin(stream.context().driver()) else { return false };
    // That stream is another one on each thread.
    stream.raw() != CU_STREAM_PER_THREAD
        && stream.work_left(None, || stream.is_done(), |event| event.is_done(), Ok(true)) == Ok(Ok(true))
}

/// An own pool without buffers. Its drop destroys it, after the frees under way.
pub(super) struct EndingPool {
    pub context: Context,
    pub raw: CUmemoryPool,
    pub streams: Vec<Stream>,
}

// SAFETY: a CUmemoryPool is a token that every thread may pass to the driver.
unsafe impl Send for EndingPool {}

impl Drop for EndingPool {
    fn drop(&mut self) {
        if self.context.liveness() == Liveness::DriverGone {
            return;
        }
        let drop_errors = self.context.drop_errors().clone();
        let pool = OwnedPool { driver: self.context.driver().clone(), drop_errors, raw: self.raw };
        let streams = mem::take(&mut self.streams);
        if self.context.liveness() != Liveness::Alive || self.wait_for(&streams) {
            return;
        }
        let mut pool = Some(pool);
        let destroyed = self.context.free_after(DOING, &streams, move |_| {
            drop(pool.take());
            Ok(())
        });
        if let Err(error) = destroyed {
            self.context.drop_errors().push(DOING, error);
        }
    }
}

impl EndingPool {
    /// Waits for the frees, unless queued work waits for the CPU. `true` if they are done, and the driver knows it: it takes
    /// back the memory of a free when a program waits for the stream, not when it asks whether the stream is idle.
    fn wait_for(&self, streams: &[Stream]) -> bool {
        if streams.is_empty() {
            return true;
        }
        let Some(_quiet) = self.context.try_quiet() else { return false };
        // Another library's stream may end during a wait.
        streams.iter().all(|stream| match stream.is_kept() || stream.raw() == CU_STREAM_PER_THREAD {
            true => is_idle(stream),
            false => stream.wait_before_free().is_ok(),
        })
    }
}

/// A pool whose drop destroys it. It does not keep its context alive, which the pool outlives.
struct OwnedPool {
    driver: Driver,
    drop_errors: Arc<DropErrors>,
    raw: CUmemoryPool,
}

// SAFETY: as for `EndingPool`.
unsafe impl Send for OwnedPool {}

impl Drop for OwnedPool {
    fn drop(&mut self) {
        const THRESHOLD: CUmemPool_attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // The pool belongs to the device, so no context has to be current.
        let cuda = self.driver.raw();
        let mut kept: u64 = 0;
        // SAFETY: the pool is ours, and its memory has been freed. `kept` is of the attribute's type.
        let destroyed = unsafe {
            // What fails here is no harm: the end of the pool returns its memory too.
            let _ = call!(cuda.cuMemPoolSetAttribute(self.raw, THRESHOLD, (&raw mut kept).cast()));
            let _ = call!(cuda.cuMemPoolTrimTo(self.raw, 0));
            call!(cuda.cuMemPoolDestroy(self.raw))
        };
        if let Err(error) = destroyed
            && !error.is_teardown()
        {
            self.drop_errors.push(DOING, error);
        }
    }
}
