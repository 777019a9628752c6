//! Page-locked staging: lanes, which are sets of slots that one copy borrows.

use crate::driver::relaxed::beside_captures;
use crate::error::call;
use crate::lifetime::waiting::{self, Target};
use crate::locks::{Condvar, Mutex, MutexGuard};
use crate::memory::PinnedMemory;
use crate::{Context, Event, HostBuffer, Result, Stream};
use core::fmt;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::{Deref, DerefMut};
use cuda_sys::CUdeviceptr;
use std::collections::VecDeque;
use std::sync::Arc;

/// A piece of staging, with the event after its last copy.
pub(super) struct StagingSlot {
    /// Leaked if the last copy may still be running.
    memory: ManuallyDrop<HostBuffer<MaybeUninit<u8>>>,
    event: Event,
    /// A copy was queued and may still be running.
    under_way: bool,
    /// The stream of a copy that `event` does not mark.
    unmarked: Option<Stream>,
}

impl StagingSlot {
    fn new(context: &Context, size: usize) -> Result<Self> {
        let event = Event::new(context)?;
        let memory = HostBuffer::uninit(&PinnedMemory::new(context), size)?;
        // From here on, dropping the slot frees the memory.
        Ok(Self { memory: ManuallyDrop::new(memory), event, under_way: false, unmarked: None })
    }

    /// The start of the slot's memory. Its bytes are uninitialized until the first copy.
    pub fn start(&self) -> *mut u8 {
        self.memory.host_address().cast()
    }

    /// The size in bytes.
    pub fn size(&self) -> usize {
        self.memory.len()
    }

    /// Waits until the slot's last copy is done; then the CPU may use the memory.
    pub fn wait(&mut self) -> Result<()> {
        if self.under_way {
            match &self.unmarked {
                None => self.event.wait_beside_captures()?,
                Some(stream) => stream.wait_beside_captures()?,
            }
            (self.under_way, self.unmarked) = (false, None);
        }
        Ok(())
    }

    /// Waits until the slot's last copy is certainly complete, even if the copy failed.
    pub fn settle(&mut self) -> Result<()> {
        if !core::mem::take(&mut self.under_way) {
            return Ok(());
        }
        match self.unmarked.take() {
            None => self.event.wait_certainly(),
            Some(stream) => stream.wait_certainly(),
        }
    }

    /// Whether the slot's last copy is done.
    pub fn is_free(&self) -> Result<bool> {
        let is_done = || self.unmarked.as_ref().map_or_else(|| self.event.is_done(), Stream::is_done);
        Ok(!self.under_way || beside_captures(self.event.context().driver(), is_done)?)
    }

    /// Queues a copy of `size` bytes from byte `begin` on to a device.
    ///
    /// # Safety
    ///
    /// The destination is valid for `size` bytes until the work on `stream` is done.
    pub unsafe fn send(&mut self, begin: usize, to: CUdeviceptr, size: usize, stream: &Stream) -> Result<()> {
        debug_assert!(begin + size <= self.memory.len());
        // SAFETY: this function's contract; nobody touches the slot until its event has passed.
        self.use_with(stream, |slot| unsafe { copy(to, slot + begin as CUdeviceptr, size, stream) })
    }

    /// Queues a copy from a device to the first `size` bytes.
    ///
    /// # Safety
    ///
    /// The source is valid for `size` bytes until the work on `stream` is done.
    pub unsafe fn fetch(&mut self, from: CUdeviceptr, size: usize, stream: &Stream) -> Result<()> {
        debug_assert!(size <= self.memory.len());
        // SAFETY: as in `send`.
        self.use_with(stream, |to| unsafe { copy(to, from, size, stream) })
    }

    /// Calls `work` with the slot's address, to queue copies on the stream. The slot counts as used until they are
    /// done.
    pub fn use_with(&mut self, stream: &Stream, work: impl FnOnce(CUdeviceptr) -> Result<()>) -> Result<()> {
        let address = self.start().expose_provenance() as CUdeviceptr;
        // A capture would only record the copy.
        let running = stream.running("CopyEngine::copy")?;
        // Set first: the driver may queue the copy and still fail.
        self.under_way = true;
        let queued = work(address).and_then(|()| self.event.mark(&running));
        drop(running);
        queued.or_else(|error| {
            // No event marks the copies, so wait for the stream. If that fails, the slot stays used.
            self.unmarked = Some(stream.clone());
            self.wait().and(Err(error))
        })
    }
}

/// # Safety
///
/// Both ranges are valid for `size` bytes until the work on the stream is done.
unsafe fn copy(to: CUdeviceptr, from: CUdeviceptr, size: usize, stream: &Stream) -> Result<()> {
    let context = stream.context();
    let (cuda, _current) = (context.driver().raw(), context.bind()?);
    // SAFETY: this function's contract.
    unsafe { call!(cuda.cuMemcpyAsync(to, from, size, stream.raw())) }
}

impl Drop for StagingSlot {
    fn drop(&mut self) {
        let context = self.memory.context().clone();
        // A context that has ended has no work left, and its events must not be touched.
        if self.under_way
            && context.liveness() == crate::driver::context::Liveness::Alive
            && let Err(error) = self.wait()
        {
            context.drop_errors().push("waiting for a copy before freeing its staging", error);
            // Retry once: if both waits fail, leak the memory, which the copy may still use.
            if self.wait().is_err() {
                return;
            }
        }
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.memory) };
    }
}

/// What a copy needs for staging: slots, which it uses in rotation.
pub(super) struct Lane {
    pub slots: Vec<StagingSlot>,
}

impl Lane {
    /// Returns when the copies from and to all slots are certainly complete, with the first error of them.
    pub fn settle(&mut self) -> Result<()> {
        let mut settled = Ok(());
        for slot in &mut self.slots {
            settled = settled.and(slot.settle());
        }
        settled
    }
}

/// The lanes of an engine. They are allocated when needed, and kept. Cheap to clone.
#[derive(Clone)]
pub(super) struct Staging {
    lanes: Arc<Lanes>,
}

struct Lanes {
    context: Context,
    slot_size: usize,
    slots: usize,
    most: usize,
    state: Mutex<FreeLanes>,
    returned: Condvar,
}

#[derive(Default)]
struct FreeLanes {
    /// Ordered by return: the copies of the front lane finish first.
    free: VecDeque<Lane>,
    made: usize,
}

impl Staging {
    /// At most `most` lanes of `slots` slots of `slot_size` bytes. No argument is 0.
    pub fn new(context: &Context, slot_size: usize, slots: usize, most: usize) -> Self {
        let (context, state, returned) = (context.clone(), Mutex::default(), Condvar::new());
        Self { lanes: Arc::new(Lanes { context, slot_size, slots: slots.max(1), most: most.max(1), state, returned }) }
    }

    pub fn slot_size(&self) -> usize {
        self.lanes.slot_size
    }

    /// The page-locked memory that exists now, in bytes.
    pub fn reserved(&self) -> usize {
        self.lanes.state().made * self.lanes.slots * self.lanes.slot_size
    }

    /// The unused lanes and all lanes.
    #[cfg(test)]
    pub fn idle(&self) -> (usize, usize) {
        let state = self.lanes.state();
        (state.free.len(), state.made)
    }

    /// Takes a lane. Waits for one if all are in use and no more may be made.
    pub fn take(&self) -> Result<Lease> {
        let Lanes { returned, most, .. } = &*self.lanes;
        let in_use = |state: &mut FreeLanes| state.free.is_empty() && state.made >= *most;
        let call = &"a copy that needs staging that other copies use";
        let mut state = waiting::wait_while(call, Target::THREAD, returned, self.lanes.state(), in_use);
        match state.free.pop_front() {
            Some(lane) => Ok(self.lease(lane)),
            None => self.make(state),
        }
    }

    /// Takes an uncounted lane, for a holder that may keep it long. Nobody waits for it, and the call does not wait.
    pub fn take_apart(&self) -> Result<Lease> {
        let mut state = self.lanes.state();
        let free = state.free.pop_front();
        state.made -= usize::from(free.is_some());
        drop(state);
        let lane = match free {
            Some(lane) => {
                // A counted lane may now replace it.
                self.lanes.returned.notify_one();
                lane
            }
            None => self.lanes.make()?,
        };
        Ok(Lease { lanes: self.lanes.clone(), lane: Some(lane), counts: false })
    }

    fn lease(&self, lane: Lane) -> Lease {
        Lease { lanes: self.lanes.clone(), lane: Some(lane), counts: true }
    }

    /// Makes a lane without the lock, because the driver takes time.
    fn make(&self, mut state: MutexGuard<'_, FreeLanes>) -> Result<Lease> {
        state.made += 1;
        drop(state);
        match self.lanes.make() {
            Ok(lane) => Ok(self.lease(lane)),
            Err(error) => {
                self.lanes.state().made -= 1;
                self.lanes.returned.notify_one();
                Err(error)
            }
        }
    }

    /// Frees unused lanes.
    pub fn trim(&self) {
        let free = {
            let mut state = self.lanes.state();
            state.made -= state.free.len();
            core::mem::take(&mut state.free)
        };
        self.lanes.returned.notify_all();
        drop(free);
    }
}

impl Lanes {
    fn make(&self) -> Result<Lane> {
        let slots = (0..self.slots).map(|_| StagingSlot::new(&self.context, self.slot_size));
        Ok(Lane { slots: slots.collect::<Result<_>>()? })
    }

    fn state(&self) -> MutexGuard<'_, FreeLanes> {
        self.state.lock()
    }
}

/// A lane in use by one copy. Its drop, also during a panic, returns the lane.
pub(super) struct Lease {
    lanes: Arc<Lanes>,
    lane: Option<Lane>,
    /// Whether the lane counts towards the limit.
    counts: bool,
}

impl Deref for Lease {
    type Target = Lane;

    fn deref(&self) -> &Lane {
        self.lane.as_ref().unwrap_or_else(|| unreachable!("present until the drop"))
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Lane {
        self.lane.as_mut().unwrap_or_else(|| unreachable!("present until the drop"))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.lanes.state();
        if !self.counts {
            if state.made == self.lanes.most {
                drop(state);
                // The limit is reached: wait for the copies, and free the lane.
                return drop(self.lane.take());
            }
            state.made += 1;
        }
        state.free.extend(self.lane.take());
        drop(state);
        self.lanes.returned.notify_one();
    }
}

impl fmt::Debug for Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staging")
            .field("slot_size", &self.lanes.slot_size)
            .field("most", &self.lanes.most)
            .field("reserved", &self.reserved())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Driver;

    #[test]
    #[cfg_attr(miri, ignore = "needs the software GPU")]
    fn lanes_are_made_when_needed_and_come_back() {
        let context = Driver::software().unwrap().device(0).unwrap().primary_context().unwrap();
        let staging = Staging::new(&context, 4096, 2, 2);
        assert_eq!(staging.reserved(), 0);
        let first = staging.take().unwrap();
        let second = staging.take().unwrap();
        assert_eq!((staging.reserved(), staging.idle()), (2 * 2 * 4096, (0, 2)));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| staging.take().map(drop));
            drop(first);
            waiting.join().unwrap().unwrap();
        });
        let apart = staging.take_apart().unwrap();
        assert_eq!(staging.idle(), (0, 1));
        let more = (staging.take().unwrap(), staging.take_apart().unwrap());
        drop(second);
        assert_eq!(staging.idle(), (1, 2));
        drop((apart, more)); // the limit is two: the uncounted lanes are freed
        assert_eq!(staging.idle(), (2, 2));
        staging.trim();
        assert_eq!((staging.reserved(), staging.idle()), (0, (0, 0)));
    }
}
