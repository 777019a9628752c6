//! The ring, and the slots that hold its frames.

use super::FrameError;
use super::frame::Frame;
use super::phase::{SlotPhase, SlotRelease};
use super::reads::Reads;
use super::turns::{FrameEnd, FrameRingStatistics, SlotClaim, Turns};
use crate::error::{check_not_forked, forked, unless_forked};
use crate::lifetime::waiting::{self, Target};
use crate::locks::{Mutex, MutexGuard};
use crate::memory::resource::{Accessibility, ResourceHandle, kind};
use crate::signal::{Flag, Signals, WaitPolicy, Waited, wait};
use crate::{Buffer, Context, Error, Feature, Result, Stream};
use core::fmt;
use core::time::Duration;
use std::sync::Arc;

/// A ring of frames: pieces of memory of one size that the CPU fills and the device reads, one after the other.
///
/// CPU and device must both address the memory: pinned or mapped memory, coherent or not, pools of these, or managed
/// memory that both may use at the same time. The ring allocates it when it is made, zeroed. A new frame has the bytes
/// of its slot's former frame.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// use cuda_mem::frames::{FrameError, FrameRing};
/// use cuda_mem::{Error, MappedMemory, signal::Signals};
/// let ring = FrameRing::new(&MappedMemory::new(&context)?, &Signals::new(&context)?, 2, 4096)?;
/// let (first, second) = (ring.next()?, ring.next()?);
/// assert!(matches!(ring.next(), Err(Error::Frame(FrameError::AllOpen { frames: 2, .. }))));
/// second.publish()?;
/// first.publish()?;
/// assert_eq!(ring.next()?.number(), 3);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct FrameRing {
    shared: Arc<SharedRing>,
}

/// What a ring and its open frames share.
pub(super) struct SharedRing {
    pub frame_size: usize,
    /// The home stream of the memory. It carries only what must come before a free, and waits for nothing else.
    home: Stream,
    doors: Box<[Arc<Door>]>,
    state: Mutex<Slots>,
}

struct Slots {
    turns: Turns,
    /// The idle slots. A slot is absent while it is claimed, open or lost.
    slots: Box<[Option<FrameSlot>]>,
    dropped: bool,
}

/// The memory of one frame after the other.
pub(super) struct FrameSlot {
    pub index: usize,
    pub memory: Buffer<u8, kind::Pinned>,
    pub door: Arc<Door>,
    pub reads: Mutex<Reads>,
}

/// What the consumers of a slot wait for. The ring keeps it for frames that are open when the ring is dropped.
pub(super) struct Door {
    /// Number of frames of the slot that were published or abandoned.
    pub word: Flag<u32>,
    inside: Mutex<OpenFrame>,
}

/// The slot's open frame.
#[derive(Default)]
struct OpenFrame {
    phase: SlotPhase,
    number: u64,
    /// Number of frames that the slot has had, with this one.
    turn: u32,
    /// Streams that wait for the frame.
    waiters: Vec<Stream>,
}

impl FrameRing {
    /// Makes a ring of `frames` frames of `frame_size` bytes each. With two frames, the CPU fills one while the device
    /// reads the other. More frames bridge pauses of the consumers.
    ///
    /// # Errors
    ///
    /// There are no frames, or they have no bytes; CPU and device do not both address the memory:
    /// [`Error::InvalidArgument`]. The device cannot make streams wait for words, or cannot use managed memory together
    /// with the CPU: [`Error::Unsupported`]. No memory is left.
    pub fn new<R>(resource: &R, signals: &Signals, frames: usize, frame_size: usize) -> Result<Self>
    where
        R: ResourceHandle + ?Sized,
    {
        let context = signals.context();
        check("frames", frames)?;
        check("frame_size", frame_size)?;
        context.device().require(Feature::StreamMemoryOperations)?;
        let resource = resource.share();
        let accessibility = resource.accessibility();
        if !accessibility.covers(Accessibility::BOTH) {
            return Err(invalid(
                "the resource",
                format!("memory that only the {} addresses", if accessibility.host { "CPU" } else { "device" }),
                "both the CPU and the device must address it: take pinned or mapped memory, or a pool of it",
            ));
        }
        if accessibility.managed {
            context.device().require(Feature::ConcurrentManaged)?;
        }
        let home = Stream::new(context)?;
        let slots: Vec<FrameSlot> = (0..frames)
            .map(|index| {
                let mut memory = Buffer::<u8, kind::Any>::zeroed(&resource, frame_size, &home)?.try_into_kind()?;
                // The read makes the zeros visible to the CPU, and waits for them.
                drop::<crate::buffer::HostRead<'_, u8, kind::Pinned>>(memory.read(..)?);
                let door = Arc::new(Door { word: signals.frame_word()?, inside: Mutex::default() });
                Ok(FrameSlot { index, memory, door, reads: Mutex::default() })
            })
            .collect::<Result<_>>()?;
        let doors = slots.iter().map(|slot| slot.door.clone()).collect();
        let state = Slots { turns: Turns::new(frames), slots: slots.into_iter().map(Some).collect(), dropped: false };
        Ok(Self { shared: Arc::new(SharedRing { frame_size, home, doors, state: Mutex::new(state) }) })
    }

    /// Takes the oldest frame, and waits until all device work that reads its memory is done.
    ///
    /// # Errors
    ///
    /// All frames are taken: [`FrameError::AllOpen`], at once, because no device work could free one. The work failed;
    /// the frame stays in the ring.
    pub fn next(&self) -> Result<Frame> {
        const CALL: &str = "FrameRing::next";
        let taken = self.take(CALL, |reads| waiting::while_doing(&CALL, || reads.wait()).map(|()| true))?;
        Ok(taken.unwrap_or_else(|| unreachable!("a wait without a limit ends with the work, or with an error")))
    }

    /// Takes the oldest frame, if the device work that reads its memory is done.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next).
    pub fn try_next(&self) -> Result<Option<Frame>> {
        self.take("FrameRing::try_next", |_| Ok(false))
    }

    /// Waits until all device work that reads the memory of the oldest frame is done, with a policy and its time limit,
    /// and takes that frame.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{frames::FrameRing, memory::PinnedMemory};
    /// use cuda_mem::signal::{Signals, WaitPolicy};
    /// use std::time::Duration;
    /// let ring = FrameRing::new(&PinnedMemory::new(&context), &Signals::new(&context)?, 2, 4096)?;
    /// let frame = ring.next_with(&WaitPolicy::within(Duration::from_millis(20)))?;
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next); the time is up: [`FrameError::TimedOut`].
    pub fn next_with(&self, policy: &WaitPolicy) -> Result<Frame> {
        const CALL: &str = "FrameRing::next_with";
        let mut waited = Duration::ZERO;
        let health = || self.context().check_alive();
        let target = || Target::event(self.context());
        let taken = self.take(CALL, |reads| {
            match wait(policy, (&CALL, target), || Ok(reads.is_over()?.then_some(())), health)? {
                Waited::For(()) => Ok(true),
                Waited::InVain(time) => {
                    waited = time;
                    Ok(false)
                }
            }
        })?;
        taken.ok_or_else(|| FrameError::TimedOut { call: CALL, waited }.into())
    }

    /// Takes the oldest frame. If device work reads it, `patience` may wait, and tells whether the work is done.
    fn take(&self, call: &'static str, patience: impl FnOnce(&mut Reads) -> Result<bool>) -> Result<Option<Frame>> {
        check_not_forked(call)?;
        let (claim, slot) = {
            let mut state = self.shared.state.lock();
            let Some(claim) = state.turns.claim() else {
                let (frames, captured) = (self.frames(), state.turns.statistics().captured);
                return Err(FrameError::AllOpen { call, frames, open: state.turns.in_use(), captured }.into());
            };
            let slot = state.slots[claim.slot].take();
            (claim, slot)
        };
        // The drop returns the claim, even after an error or a panic.
        let mut held = ClaimedSlot { shared: &self.shared, claim: Some(claim), slot };
        let over = {
            let Some(slot) = &mut held.slot else { unreachable!("a slot that rests is there") };
            let reads = slot.reads.get_mut();
            reads.is_over()? || {
                self.shared.state.lock().turns.overrun();
                patience(reads)?
            }
        };
        Ok(if over { held.open() } else { None })
    }

    /// Number of frames in the ring.
    pub fn frames(&self) -> usize {
        self.shared.doors.len()
    }

    /// The size of a frame in bytes.
    pub fn frame_size(&self) -> usize {
        self.shared.frame_size
    }

    /// The context of the ring.
    pub fn context(&self) -> &Context {
        self.shared.context()
    }

    /// What the ring has done so far. All figures are 0 in a forked process.
    pub fn statistics(&self) -> FrameRingStatistics {
        unless_forked(|| self.shared.state.lock().turns.statistics())
    }
}

fn invalid(argument: &'static str, value: String, rule: &'static str) -> Error {
    Error::invalid("FrameRing::new", argument, value, rule)
}

fn check(argument: &'static str, value: usize) -> Result<()> {
    if value == 0 {
        return Err(invalid(argument, "0".into(), "a ring has at least one frame, of at least one byte"));
    }
    Ok(())
}

/// A claimed slot, on its way to become a frame.
struct ClaimedSlot<'ring> {
    shared: &'ring Arc<SharedRing>,
    claim: Option<SlotClaim>,
    slot: Option<FrameSlot>,
}

impl ClaimedSlot<'_> {
    fn open(mut self) -> Option<Frame> {
        let (claim, slot) = (self.claim.take()?, self.slot.take()?);
        let number = self.shared.state.lock().turns.open(claim);
        let turn = slot.door.open(number);
        Some(Frame::new(self.shared.clone(), slot, number, turn))
    }
}

impl Drop for ClaimedSlot<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            let mut state = self.shared.state.lock();
            state.turns.put_back(&claim);
            state.slots[claim.slot] = self.slot.take();
        }
    }
}

impl SharedRing {
    pub fn context(&self) -> &Context {
        self.home.context()
    }

    /// Takes back the slot of a frame that has ended.
    pub fn take_back(&self, mut slot: FrameSlot, end: FrameEnd) {
        let captured = slot.reads.get_mut().captured();
        {
            let mut state = self.state.lock();
            state.turns.end(slot.index, end, captured);
            if !state.dropped && !captured {
                let index = slot.index;
                state.slots[index] = Some(slot);
                return;
            }
        }
        self.free(slot);
        self.free_if_dropped();
    }

    /// Frees the idle slots if the ring was dropped and left them.
    fn free_if_dropped(&self) {
        let slots: Vec<FrameSlot> = {
            let mut state = self.state.lock();
            if !state.dropped {
                return;
            }
            state.slots.iter_mut().filter_map(Option::take).collect()
        };
        slots.into_iter().for_each(|slot| self.free(slot));
    }

    /// Frees a slot's memory after the work that reads it.
    fn free(&self, slot: FrameSlot) {
        let FrameSlot { memory, reads, .. } = slot;
        let mut reads = reads.into_inner();
        if reads.captured() {
            // A graph may read the memory at any time, even after everything else has ended.
            core::mem::forget(memory);
            return;
        }
        if self.home.context().check_alive().is_ok()
            && let Err(error) = reads.order_before(&self.home).or_else(|_| reads.wait())
        {
            self.home.context().drop_errors().push("waiting for the work on a frame before its memory is freed", error);
            // The work may still run.
            core::mem::forget(memory);
        }
    }
}

impl Door {
    /// Opens a frame. Returns the value of the word that its consumers wait for.
    fn open(&self, number: u64) -> u32 {
        let mut inside = self.inside.lock();
        inside.phase.open();
        inside.number = number;
        self.word.set_frame(number);
        inside.turn = inside.turn.wrapping_add(1);
        inside.waiters.clear();
        inside.turn
    }

    /// Adds a stream that is about to wait for the frame. Returns whether it did not wait before.
    pub fn enter(&self, call: &'static str, stream: &Stream) -> Result<bool> {
        let mut inside = self.still_open(call)?;
        let is_new = !inside.waiters.contains(stream);
        if is_new {
            inside.waiters.push(stream.clone());
        }
        Ok(is_new)
    }

    /// Removes a stream whose only wait was refused.
    pub fn leave(&self, stream: &Stream) {
        self.inside.lock().waiters.retain(|waiter| waiter != stream);
    }

    /// Begins a write by the CPU, which lasts until the result is dropped.
    pub fn write(&self, call: &'static str) -> Result<SlotWriting<'_>> {
        self.still_open(call)?.phase.begin_write();
        Ok(SlotWriting { door: self })
    }

    fn still_open(&self, call: &'static str) -> Result<MutexGuard<'_, OpenFrame>> {
        check_not_forked(call)?;
        let inside = self.inside.lock();
        if inside.phase.is_open() {
            return Ok(inside);
        }
        Err(FrameError::RingDropped { call, frame: inside.number }.into())
    }

    /// Publishes the frame, which releases the work that waits for it.
    pub fn publish(&self, call: &'static str) -> Result<()> {
        // Dropped without the lock. Streams that the program has dropped end here.
        let (turn, _waiters) = {
            let mut inside = self.still_open(call)?;
            let _now = inside.phase.end();
            (inside.turn, core::mem::take(&mut inside.waiters))
        };
        // The store comes after all earlier writes of this thread, to any memory.
        self.word.store(turn);
        Ok(())
    }

    /// Ends a frame that was not published.
    pub fn abandon(&self) {
        let mut inside = self.inside.lock();
        if inside.phase.end() == SlotRelease::Now {
            self.release(inside, "the frame was dropped");
        }
    }

    /// Ends the frame because the ring is dropped. Returns whether the CPU is writing it, so that consumers still wait.
    fn close(&self) -> bool {
        let mut inside = self.inside.lock();
        let release = inside.phase.close();
        let writing = inside.phase.is_open();
        if release == SlotRelease::Now {
            self.release(inside, "the ring was dropped");
        }
        writing
    }

    fn release(&self, mut inside: MutexGuard<'_, OpenFrame>, why: &'static str) {
        let (waiters, turn) = (core::mem::take(&mut inside.waiters), inside.turn);
        let error: Error = FrameError::Abandoned { frame: inside.number, why }.into();
        drop(inside);
        // First the error: a thread that sees the work done must see it.
        waiters.iter().for_each(|stream| stream.abandon(error.clone()));
        self.word.store(turn);
    }
}

/// A write of the frame by the CPU, until this is dropped.
pub(super) struct SlotWriting<'door> {
    door: &'door Door,
}

impl Drop for SlotWriting<'_> {
    fn drop(&mut self) {
        let mut inside = self.door.inside.lock();
        if inside.phase.end_write() == SlotRelease::Now {
            self.door.release(inside, "the ring was dropped");
        }
    }
}

impl Drop for FrameRing {
    fn drop(&mut self) {
        if forked() {
            return;
        }
        self.shared.state.lock().dropped = true;
        // Release all open frames before waiting for anything: consumers may wait for them.
        let written = self.shared.doors.iter().filter(|door| door.close()).count();
        if written == 0 {
            self.shared.free_if_dropped();
        }
        // Otherwise a free could wait for a frame that another thread writes. That frame's end frees the rest.
    }
}

impl fmt::Debug for FrameRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameRing")
            .field("frames", &self.frames())
            .field("frame_size", &self.frame_size())
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}
