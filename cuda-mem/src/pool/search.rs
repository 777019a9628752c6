//! The steps that the pool tries in turn when no thread cache serves a request.

use super::growth::Announced;
use super::options::{OutOfMemoryInfo, Reuse};
use super::resizing::ResizingGuard;
use super::shared::{ALLOCATE, MOST_STREAMS, PoolState, SharedPool};
use super::work_order::WorkOrder;
use crate::memory::resource::Block;
use crate::{Error, Result};
use core::time::Duration;
use stream_heap::Effort;

/// How long a request waits for other threads' growths before it grows by itself, and before it is refused. The source
/// of such a growth may be the program's, and may wait for this thread.
const SHORT_WAIT: Duration = Duration::from_millis(100);
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Why the pool has no memory for a request.
pub(super) struct Refusal {
    pub info: OutOfMemoryInfo,
    /// The source's error, if the pool tried to grow.
    pub cause: Option<Error>,
}

/// A request that no thread cache could serve.
#[derive(Clone, Copy)]
pub(super) struct Request<'request> {
    pub size: usize,
    /// The size of the block.
    pub bytes: usize,
    /// The work that uses the block from now on.
    pub order: &'request WorkOrder,
}

impl SharedPool {
    /// Tries all steps in turn, the cheapest first.
    pub fn find(&self, size: usize, bytes: usize, order: &WorkOrder) -> Result<core::result::Result<Block, Refusal>> {
        let (request, mut tries) = (Request { size, bytes, order }, 0);
        loop {
            let mut state = self.state();
            if let Some(block) = self.search(&mut state, request)? {
                return Ok(Ok(block));
            }
            let growths = state.growths;
            // With the search: two threads that found no room would otherwise both grow.
            let announced = self.announce(&mut state);
            drop(state);
            let has_grown = |state: &PoolState| state.growths != growths;
            if announced.is_none() {
                // Another thread's growth may serve this request too.
                self.wait_for_others(SHORT_WAIT, has_grown);
            }
            let turn = self.turn();
            if has_grown(&self.state()) {
                continue;
            }
            let refusal = match self.make_room(request, turn, announced)? {
                Err(refusal) => refusal,
                found => return Ok(found),
            };
            // What others get or return now may suffice, or leave room.
            let others = self.wait_for_others(LONGEST_WAIT, has_grown);
            tries += 1;
            if !has_grown(&self.state()) && (!others || tries == 2) {
                return Ok(Err(refusal));
            }
        }
    }

    /// Looks for memory in the pool's regions, without waiting.
    fn search(&self, state: &mut PoolState, request: Request<'_>) -> Result<Option<Block>> {
        let reuse = self.options.reuse;
        let known: &[Effort] =
            if reuse == Reuse::SameStreamOnly { &[Effort::Ready] } else { &[Effort::Ready, Effort::Passed] };
        if let Some(block) = self.take(state, request, known)? {
            return Ok(Some(block));
        }
        if self.empty_caches(state)
            && let Some(block) = self.take(state, request, known)?
        {
            return Ok(Some(block));
        }
        if reuse == Reuse::SameStreamOnly {
            return Ok(None);
        }
        let PoolState { heap, recorder, .. } = state;
        heap.tags.settle(recorder)?;
        let last = if reuse == Reuse::Wait { Effort::Wait } else { Effort::Ready };
        self.take(state, request, &[Effort::Ready, last])
    }

    pub fn take(&self, state: &mut PoolState, request: Request<'_>, efforts: &[Effort]) -> Result<Option<Block>> {
        state.check_awake(ALLOCATE)?;
        let Request { size, bytes, order } = request;
        for effort in efforts {
            let PoolState { heap, recorder, .. } = state;
            if heap.tags.stream_count() > state.most_streams {
                heap.tags.settle(recorder)?;
                // The next query comes after the count has doubled, so its cost per new stream is small.
                state.most_streams = MOST_STREAMS.max(2 * heap.tags.stream_count());
            }
            let waits = recorder.0.waits;
            if let Some(block) = heap.allocate(bytes as u64, order, *effort, recorder)? {
                if recorder.0.waits != waits
                    && let Some(watch) = &self.watch
                {
                    watch.waited(block, &order.stream);
                }
                state.tally.allocated(size, bytes);
                return Ok(Some(state.noting_former_work(block)));
            }
        }
        Ok(None)
    }

    /// Grows, waits for freed memory, and replaces empty regions until there is room.
    fn make_room(
        &self,
        request: Request<'_>,
        turn: Option<ResizingGuard<'_>>,
        announced: Option<Announced<'_>>,
    ) -> Result<core::result::Result<Block, Refusal>> {
        let mut cause = None;
        if let Some(block) = self.grow(request, &mut cause)? {
            return Ok(Ok(block));
        }
        // The work may wait for a thread that is about to grow the pool.
        drop((turn, announced));
        // After this wait, every stream may use every free range.
        self.wait_for_freed(!request.order.is_recorded())?;
        let _turn = self.turn();
        if let Some(block) = self.take(&mut self.state(), request, &[Effort::Thorough])? {
            return Ok(Ok(block));
        }
        // A pool that grows in place takes its own free chunks first.
        if (self.source.chunks.is_some() || self.release(0)?)
            && let Some(block) = self.grow(request, &mut cause)?
        {
            return Ok(Ok(block));
        }
        // Other threads may have freed memory meanwhile.
        let mut state = self.state();
        let found = match self.search(&mut state, request)? {
            None => self.take(&mut state, request, &[Effort::Thorough])?,
            found => found,
        };
        if let Some(block) = found {
            return Ok(Ok(block));
        }
        Ok(Err(Refusal { info: state.lack(request.size), cause }))
    }
}
