//! Rings of items between the CPU and a kernel: one producer, one consumer.

mod bytes;
mod indices;
mod layout;
#[cfg(all(test, not(miri)))]
mod loom;
mod protocol;
mod raw;
#[cfg(test)]
mod tests;

use super::armed::{self, RingNeed};
use super::memory::SignalLines;
use super::wait::{Waited, wait};
use super::{Placement, SignalError, Signals, WaitPolicy};
use crate::{Result, Stream};
use bytemuck::Pod;
pub use bytes::{ByteConsumer, ByteProducer};
use core::fmt;
use core::marker::PhantomData;
pub(super) use layout::Layout;
pub use layout::RingDescriptor;
use protocol::{RingEnd, RingMemory, RingSide};
use raw::RawMemory;
#[doc(hidden)]
pub use raw::RingHandle;

/// The CPU's end of a ring to the device. It has no clones. A kernel uses the other end, by the
/// [`descriptor`](Self::descriptor) and `cudamem::ring_consumer` of the header.
///
/// Pushing is a few stores, and no driver call. The drop of this end closes the ring: the kernel gets what was pushed,
/// and then learns that nothing more comes. The memory is not reused until the work that
/// [`record_use`](Self::record_use) recorded is done.
///
/// ```
/// use cuda_mem::signal::{Comparison, SignalKernels, Signals, WaitPolicy, Waiter};
/// use std::time::Duration;
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// # let stream = cuda_mem::Stream::new(&context)?;
/// let signals = Signals::new(&context)?;
/// let mut ring = signals.ring_to_device::<u64>(64)?;
/// let sum = signals.flag::<u64>(Waiter::Cpu)?;
/// SignalKernels::of(&context)?.sum_ring(&ring, &sum, Duration::from_secs(10), &stream)?;
///
/// assert!(ring.push(1)?); // there is room
/// ring.send(&[2, 3, 4], &WaitPolicy::default())?; // waits for room where there is none
/// ring.close(); // the kernel adds up what is left, and ends
/// stream.synchronize()?;
/// assert_eq!(sum.load(), 10);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct Producer<T: Pod> {
    end: RingEnd<RawMemory>,
    item: PhantomData<fn(T) -> T>,
}

/// The CPU's end of a ring from the device. It has no clones. A kernel uses the other end, by the
/// [`descriptor`](Self::descriptor) and `cudamem::ring_producer` of the header.
///
/// The drop of this end closes the ring, so a kernel that waits for room learns that none will come. The memory is not
/// reused until the work that [`record_use`](Self::record_use) recorded is done.
///
/// ```
/// use cuda_mem::signal::{SignalKernels, Signals, WaitPolicy};
/// use std::time::Duration;
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// # let stream = cuda_mem::Stream::new(&context)?;
/// let signals = Signals::new(&context)?;
/// let mut ring = signals.ring_from_device::<u64>(64)?;
/// assert_eq!(ring.pop()?, None);
/// SignalKernels::of(&context)?.count_ring(&ring, 1000, Duration::from_secs(10), &stream)?;
///
/// let (mut next, mut items) = (0, [0; 32]);
/// loop {
///     let count = ring.receive(&mut items, &WaitPolicy::default())?;
///     if count == 0 {
///         break; // the kernel has closed its end
///     }
///     for item in &items[..count] {
///         assert_eq!(*item, next);
///         next += 1;
///     }
/// }
/// assert_eq!(next, 1000);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct Consumer<T: Pod> {
    end: RingEnd<RawMemory>,
    item: PhantomData<fn(T) -> T>,
}

impl<T: Pod> Producer<T> {
    /// Pushes an item if there is room. Returns whether it did.
    ///
    /// # Errors
    ///
    /// The other end's index is impossible: [`SignalError::OutOfStep`].
    #[inline]
    pub fn push(&mut self, item: T) -> Result<bool> {
        Ok(self.end.push("Producer::push", bytemuck::bytes_of(&item), 1)? == 1)
    }

    /// Pushes as many of the first items of a slice as have room, and publishes them at once, with one fence. Returns
    /// their number, 0 if the ring is full.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    #[inline]
    pub fn push_slice(&mut self, items: &[T]) -> Result<usize> {
        self.end.push("Producer::push_slice", bytemuck::cast_slice(items), items.len())
    }

    /// Pushes all items, and waits for room if necessary. Returns the number of pushed items, which is less than all
    /// only if the other end has closed.
    ///
    /// # Errors
    ///
    /// No room came in time: [`SignalError::TimedOut`]; the items before are pushed. The policy's timeout applies to
    /// each wait. Otherwise as [`push`](Self::push); the context has ended; the device has failed.
    pub fn send(&mut self, items: &[T], policy: &WaitPolicy) -> Result<usize> {
        const CALL: &str = "Producer::send";
        // If the other end has closed, nobody would pop the items.
        let (bytes, count) = (bytemuck::cast_slice(items), items.len());
        let mut sent = if self.is_closed() { return Ok(0) } else { self.end.push(CALL, bytes, count)? };
        while sent < count {
            let rest = &bytes[sent * size_of::<T>()..];
            match self.end.send(&CALL, policy, |end| end.push(CALL, rest, count - sent))? {
                0 => break,
                count => sent += count,
            }
        }
        Ok(sent)
    }
}

impl<T: Pod> Consumer<T> {
    /// Pops an item, if the ring has one.
    ///
    /// # Errors
    ///
    /// The other end's index is impossible: [`SignalError::OutOfStep`].
    #[inline]
    pub fn pop(&mut self) -> Result<Option<T>> {
        let mut item = T::zeroed();
        let count = self.end.pop("Consumer::pop", bytemuck::bytes_of_mut(&mut item), 1)?;
        Ok((count == 1).then_some(item))
    }

    /// Pops as many items as the ring has and the slice holds, and frees their slots at once. Returns their number, 0
    /// if the ring is empty.
    ///
    /// # Errors
    ///
    /// As [`pop`](Self::pop).
    #[inline]
    pub fn pop_slice(&mut self, items: &mut [T]) -> Result<usize> {
        let (count, bytes) = (items.len(), bytemuck::cast_slice_mut(items));
        self.end.pop("Consumer::pop_slice", bytes, count)
    }

    /// Pops at least one item, and waits if necessary. Returns the number of items: 0 only if the other end has closed
    /// and the ring is empty, or if the slice is empty.
    ///
    /// # Errors
    ///
    /// Nothing came in time: [`SignalError::TimedOut`]. Otherwise as [`pop`](Self::pop); the context has ended; the
    /// device has failed.
    pub fn receive(&mut self, items: &mut [T], policy: &WaitPolicy) -> Result<usize> {
        const CALL: &str = "Consumer::receive";
        if items.is_empty() {
            return Ok(0);
        }
        let (count, bytes) = (items.len(), bytemuck::cast_slice_mut(items));
        self.end.receive(&CALL, policy, |end| end.pop(CALL, bytes, count))
    }
}

impl RingEnd<RawMemory> {
    /// Waits until `push` has pushed something. Returns the number of items, or 0 if the other end has closed.
    fn send(
        &mut self,
        call: &'static &'static str,
        policy: &WaitPolicy,
        mut push: impl FnMut(&mut Self) -> Result<usize>,
    ) -> Result<usize> {
        let (signals, state) = (self.memory.signals.clone(), self.memory.state.clone());
        let poll = || {
            if self.memory.is_closed(RingSide::Consumer) {
                return Ok(Some(0));
            }
            Ok(Some(push(self)?).filter(|count| *count != 0))
        };
        let target = || armed::of_ring(&state, RingNeed::Room);
        match wait(policy, (call, target), poll, || signals.health())? {
            Waited::For(count) => Ok(count),
            Waited::InVain(waited) => Err(SignalError::TimedOut {
                call,
                what: "the head of the full ring",
                comparison: "at least",
                wanted: u64::from(self.position().wrapping_sub(self.memory.capacity()).wrapping_add(1)),
                seen: u64::from(self.memory.index(RingSide::Consumer)),
                waited,
            }
            .into()),
        }
    }

    /// Waits until `pop` has popped something. Returns the number of items, or 0 if the other end has closed and the
    /// ring is empty.
    fn receive(
        &mut self,
        call: &'static &'static str,
        policy: &WaitPolicy,
        mut pop: impl FnMut(&mut Self) -> Result<usize>,
    ) -> Result<usize> {
        let (signals, state) = (self.memory.signals.clone(), self.memory.state.clone());
        let poll = || {
            // Read this before the items: the other end closes after its last push.
            let closed = self.memory.is_closed(RingSide::Producer);
            let count = pop(self)?;
            Ok((count != 0 || closed).then_some(count))
        };
        let target = || armed::of_ring(&state, RingNeed::Items);
        match wait(policy, (call, target), poll, || signals.health())? {
            Waited::For(count) => Ok(count),
            Waited::InVain(waited) => Err(SignalError::TimedOut {
                call,
                what: "the tail of the empty ring",
                comparison: "at least",
                wanted: u64::from(self.position().wrapping_add(1)),
                seen: u64::from(self.memory.index(RingSide::Producer)),
                waited,
            }
            .into()),
        }
    }
}

/// The common functions of all ends.
macro_rules! ends {
    ($($end:ident $(<$item:ident>)? closes $side:ident before $other:ident, $count:ident is $counted:ident;)*) => { $(
        impl$(<$item: Pod>)? $end$(<$item>)? {
            pub(super) fn new(
                signals: &Signals,
                layout: Layout,
                consumer: SignalLines,
                producer: SignalLines,
            ) -> Self {
                let end = RingEnd::new(RawMemory::new(signals, layout, consumer, producer));
                Self { end, $(item: PhantomData::<fn($item) -> $item>)? }
            }

            /// Number of items that this end can push or pop now.
            ///
            /// # Errors
            ///
            /// The other end's index is impossible: [`SignalError::OutOfStep`].
            pub fn $count(&mut self) -> Result<usize> {
                const CALL: &str = concat!(stringify!($end), "::", stringify!($count));
                Ok(self.end.$counted(CALL, u32::MAX)? as usize)
            }

            /// Whether the other end has closed: it pops no more items, or pushes none after those in the ring.
            pub fn is_closed(&self) -> bool {
                self.end.memory.is_closed(RingSide::$other)
            }

            /// Closes this end, as its drop does. The other end still gets the items that were pushed, and waits for
            /// nothing more.
            pub fn close(&mut self) {
                self.end.memory.close(RingSide::$side);
            }

            /// What a kernel needs to use the other end. One kernel at a time may use it, with one thread; the next
            /// kernel continues where it ended.
            pub fn descriptor(&self) -> RingDescriptor {
                self.end.memory.descriptor()
            }

            /// Records that work queued on `stream` so far uses the ring: kernels that were launched with its
            /// descriptor. The ring's memory is not reused until that work is done.
            pub fn record_use(&self, stream: &Stream) {
                self.end.memory.record_use(stream);
            }

            /// Names the ring in reports of long waits: `ring "requests"` in place of `ring #3`.
            #[must_use]
            pub fn named(self, name: &str) -> Self {
                self.set_name(name);
                self
            }

            /// Names a ring that is in use, in reports of long waits.
            pub fn set_name(&self, name: &str) {
                self.end.memory.set_name(name);
            }

            /// The end for threads that neither push nor pop.
            #[doc(hidden)]
            pub fn handle(&self) -> RingHandle {
                self.end.memory.handle(RingSide::$side)
            }

            /// Number of items that the ring holds.
            pub fn capacity(&self) -> usize {
                self.end.memory.capacity() as usize
            }

            /// The placements of the consumer's memory (items and tail) and of the producer's memory (head).
            pub fn placements(&self) -> (Placement, Placement) {
                self.end.memory.placements()
            }

            /// The [`Signals`] that made the ring.
            pub fn signals(&self) -> &Signals {
                &self.end.memory.signals
            }

            /// Sets both indices of an unused ring to `position`, to test what happens after 2^32 items.
            #[doc(hidden)]
            #[must_use]
            pub fn at_position(mut self, position: u32) -> Self {
                self.end.memory.publish(RingSide::Producer, position);
                self.end.memory.publish(RingSide::Consumer, position);
                self.end.restart(position);
                self
            }
        }

        impl$(<$item: Pod>)? Drop for $end$(<$item>)? {
            fn drop(&mut self) {
                self.end.memory.close(RingSide::$side);
            }
        }

        impl$(<$item: Pod>)? fmt::Debug for $end$(<$item>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($end))
                    .field("descriptor", &self.descriptor())
                    .field("position", &self.end.position())
                    .field("closed", &self.is_closed())
                    .finish()
            }
        }
    )* };
}
ends!(
    Producer<T> closes Producer before Consumer, room is room;
    Consumer<T> closes Consumer before Producer, available is filled;
    ByteProducer closes Producer before Consumer, room is room;
    ByteConsumer closes Consumer before Producer, available is filled;
);
