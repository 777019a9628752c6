//! Page-locked slots through which bytes go out and come in.
//!
//! Each slot has a stream of its own, so that waiting for one waits for no other. A slot goes back to the queue when it is
//! dropped; what its next user does comes after the copies that are still queued.

use crate::wire::MAX_BYTES;
use crate::{Error, Result};
use core::future::Future;
use core::pin::Pin;
use core::task::{Poll, Waker};
use core::time::Duration;
use crossbeam_channel::{Receiver, Sender, unbounded};
use cuda_mem::memory::{PinnedMemory, kind::Pinned};
use cuda_mem::{Buffer, Completion, Context, Event, Stream};
use std::collections::VecDeque;
use std::time::Instant;

/// The size of a slot: a whole number of messages, about 1 MiB.
pub(crate) const SLOT: usize = 16 * MAX_BYTES;

#[derive(Debug)]
pub(crate) struct Staging {
    back: Sender<Buffer<u8, Pinned>>,
    free: Receiver<Buffer<u8, Pinned>>,
}

/// A slot that nobody else has.
#[derive(Debug)]
pub(crate) struct Slot {
    /// `None` only while the slot ends.
    memory: Option<Buffer<u8, Pinned>>,
    back: Sender<Buffer<u8, Pinned>>,
}

impl Staging {
    pub fn new(context: &Context, bytes: usize) -> Result<Self> {
        let (back, free) = unbounded();
        let memory = PinnedMemory::new(context);
        for _ in 0..bytes.div_ceil(SLOT).max(2) {
            // The queue exists, because this function has its other end.
            let _ = back.send(Buffer::zeroed(&memory, SLOT, &Stream::new(context)?)?);
        }
        Ok(Self { back, free })
    }

    /// A free slot. Waits until `until` for one.
    pub fn take(&self, until: Instant) -> Option<Slot> {
        let memory = self.free.recv_deadline(until).ok()?;
        Some(Slot { memory: Some(memory), back: self.back.clone() })
    }
}

impl Slot {
    pub fn memory(&mut self) -> &mut Buffer<u8, Pinned> {
        self.memory.as_mut().expect("only the drop takes it")
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            // Without a queue the memory ends here.
            let _ = self.back.send(memory);
        }
    }
}

/// Bytes on their way to a slot.
pub(crate) struct Staged {
    slot: Slot,
    /// Behind the copy.
    copied: Event,
    /// Wakes the writer, for a copy that takes long.
    completion: Option<Completion>,
    size: usize,
}

/// How long the writer looks at a copy before it asks to be woken: a wake-up costs about as much, and the stream a callback.
const LOOK: Duration = Duration::from_micros(50);

impl Staged {
    /// Takes a slot, and queues the copy of `size` bytes to it.
    pub fn new(
        staging: &Staging,
        size: usize,
        (call, deadline): (&'static str, Duration),
        copy: impl FnOnce(&mut Buffer<u8, Pinned>) -> cuda_mem::Result<()>,
    ) -> Result<Self> {
        let why = "the staging had no free slot: is a stream held up, or RemoteOptions::staging small?";
        let slot = staging.take(Instant::now() + deadline);
        let mut slot = slot.ok_or(Error::TimedOut { call, after: deadline, why })?;
        copy(slot.memory())?;
        let copied = slot.memory().stream().record()?;
        Ok(Self { slot, copied, completion: None, size })
    }

    /// Whether the copy has ended. Until then the waker is called when it may have.
    pub fn poll(&mut self, waker: &Waker) -> Poll<cuda_mem::Result<()>> {
        let completion = match &mut self.completion {
            Some(completion) => completion,
            none => {
                let begin = Instant::now();
                loop {
                    match self.copied.is_done() {
                        Ok(true) => return Poll::Ready(Ok(())),
                        Ok(false) if begin.elapsed() < LOOK => core::hint::spin_loop(),
                        Ok(false) => break,
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
                match self.copied.finished() {
                    Ok(completion) => none.insert(completion),
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
        };
        Pin::new(completion).poll(&mut core::task::Context::from_waker(waker))
    }

    /// The bytes, after the end of the copy.
    pub fn bytes(&mut self) -> cuda_mem::Result<impl core::ops::Deref<Target = [u8]>> {
        let size = self.size;
        self.slot.memory().read(..size)
    }
}

/// The slots whose copies to the device are queued, of one thread.
#[derive(Debug, Default)]
pub(crate) struct Landing {
    flying: VecDeque<(Slot, Event)>,
}

impl Landing {
    /// Gives back the slots whose copies are done. A failed copy is an error of its stream, which the program meets there.
    pub fn sweep(&mut self) {
        while self.flying.front().is_some_and(|(_, event)| !matches!(event.is_done(), Ok(false))) {
            self.flying.pop_front();
        }
    }

    /// A free slot. Waits until `until` for one.
    pub fn take(&mut self, staging: &Staging, until: Instant) -> Option<Slot> {
        loop {
            self.sweep();
            let look = Instant::now() + Duration::from_micros(200);
            if let Some(slot) = staging.take(look.min(until)) {
                return Some(slot);
            }
            if Instant::now() >= until {
                return None;
            }
        }
    }

    pub fn fly(&mut self, slot: Slot, event: Event) {
        self.flying.push_back((slot, event));
    }
}
