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

use super::memory::Lines;
use super::wait::{Waited, wait};
use super::{Placement, SignalError, Signals, WaitPolicy};
use crate::{Result, Stream};
use bytemuck::Pod;
pub use bytes::{ByteConsumer, ByteProducer};
use core::fmt;
pub(super) use layout::Layout;
pub use layout::RingDescriptor;
use protocol::{End, RingMemory, Side};
use raw::Memory;

/// The CPU's end of a ring to the device. There is one, and it is not cloned; the other end is a kernel's, by the
/// [`descriptor`](Self::descriptor) and `cudamem::ring_consumer` of the header.
///
/// Pushing is a few stores and no call of the driver. Its end closes the ring: the kernel gets what was pushed, and then
/// learns that nothing more comes. The memory serves nothing else until the work is done that
/// [`record_use`](Self::record_use) told of.
///
/// ```
/// use cuda_mem::signal::{Comparison, SignalKernels, Signals, WaitPolicy, Waiter};
/// use std::time::Duration;
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
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
    end: End<T, Memory>,
}

/// The CPU's end of a ring from the device. There is one, and it is not cloned; the other end is a kernel's, by the
/// [`descriptor`](Self::descriptor) and `cudamem::ring_producer` of the header.
///
/// Its end closes the ring, so that a kernel that waits for room learns that none will come. The memory serves nothing else
/// until the work is done that [`record_use`](Self::record_use) told of.
///
/// ```
/// use cuda_mem::signal::{SignalKernels, Signals, WaitPolicy};
/// use std::time::Duration;
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
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
    end: End<T, Memory>,
}

impl<T: Pod> Producer<T> {
    pub(super) fn new(signals: &Signals, layout: Layout, consumer: Lines, producer: Lines) -> Self {
        Self { end: End::new(Memory::new(signals, layout, consumer, producer)) }
    }

    /// Pushes an item if there is room; says whether.
    ///
    /// # Errors
    ///
    /// The other end's index cannot be: [`SignalError::OutOfStep`].
    #[inline]
    pub fn push(&mut self, item: T) -> Result<bool> {
        Ok(self.end.push(core::slice::from_ref(&item))? == 1)
    }

    /// Pushes the first items of a slice, as many as have room, and publishes them at once: one fence for all. Gives how
    /// many; 0 if the ring is full.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    #[inline]
    pub fn push_slice(&mut self, items: &[T]) -> Result<usize> {
        self.end.push(items)
    }

    /// Pushes all items, and waits for room where there is none. Gives how many were pushed: fewer than all only if the
    /// other end has closed.
    ///
    /// # Errors
    ///
    /// No room came in time: [`SignalError::TimedOut`]; the items before are pushed. The policy's time is for each wait.
    /// Otherwise as [`push`](Self::push), or the context has ended, or the device has failed.
    pub fn send(&mut self, items: &[T], policy: &WaitPolicy) -> Result<usize> {
        // Nobody pops what is pushed to an end that has closed.
        let mut sent = if self.is_closed() { return Ok(0) } else { self.end.push(items)? };
        while sent < items.len() {
            match self.end.send("Producer::send", policy, |end| end.push(&items[sent..]))? {
                0 => break,
                count => sent += count,
            }
        }
        Ok(sent)
    }

    /// How many items have room now.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub fn room(&mut self) -> Result<usize> {
        Ok(self.end.room(u32::MAX)? as usize)
    }

    /// Whether the other end has closed: nobody pops any more.
    pub fn is_closed(&self) -> bool {
        RingMemory::<T>::is_closed(&self.end.memory, Side::Consumer)
    }

    /// Says that no more items come. The other end gets those that were pushed. A drop does it too.
    pub fn close(&mut self) {
        RingMemory::<T>::close(&self.end.memory, Side::Producer);
    }
}

impl<T: Pod> Consumer<T> {
    pub(super) fn new(signals: &Signals, layout: Layout, consumer: Lines, producer: Lines) -> Self {
        Self { end: End::new(Memory::new(signals, layout, consumer, producer)) }
    }

    /// Pops an item, if there is one.
    ///
    /// # Errors
    ///
    /// The other end's index cannot be: [`SignalError::OutOfStep`].
    #[inline]
    pub fn pop(&mut self) -> Result<Option<T>> {
        let mut item = T::zeroed();
        let count = self.end.pop(core::slice::from_mut(&mut item))?;
        Ok((count == 1).then_some(item))
    }

    /// Pops as many items as are there, at most as many as the slice holds, and frees their slots at once. Gives how many;
    /// 0 if the ring is empty.
    ///
    /// # Errors
    ///
    /// As [`pop`](Self::pop).
    #[inline]
    pub fn pop_slice(&mut self, items: &mut [T]) -> Result<usize> {
        self.end.pop(items)
    }

    /// Pops at least one item, and waits where there is none. Gives how many: 0 only if the other end has closed and the
    /// ring is empty, or if the slice is.
    ///
    /// # Errors
    ///
    /// Nothing came in time: [`SignalError::TimedOut`]. Otherwise as [`pop`](Self::pop), or the context has ended, or the
    /// device has failed.
    pub fn receive(&mut self, items: &mut [T], policy: &WaitPolicy) -> Result<usize> {
        if items.is_empty() {
            return Ok(0);
        }
        self.end.receive("Consumer::receive", policy, |end| end.pop(items))
    }

    /// How many items are there now.
    ///
    /// # Errors
    ///
    /// As [`pop`](Self::pop).
    pub fn available(&mut self) -> Result<usize> {
        Ok(self.end.filled(u32::MAX)? as usize)
    }

    /// Whether the other end has closed. Items that it pushed before may still be there.
    pub fn is_closed(&self) -> bool {
        RingMemory::<T>::is_closed(&self.end.memory, Side::Producer)
    }

    /// Says that no more items are popped, so that the other end need not wait for room. A drop does it too.
    pub fn close(&mut self) {
        RingMemory::<T>::close(&self.end.memory, Side::Consumer);
    }
}

impl<T: Pod> End<T, Memory> {
    /// Waits until `push` has pushed something: how many items, or 0 if the other end has closed.
    fn send(
        &mut self,
        call: &'static str,
        policy: &WaitPolicy,
        mut push: impl FnMut(&mut Self) -> Result<usize>,
    ) -> Result<usize> {
        let signals = self.memory.signals.clone();
        let poll = || {
            if RingMemory::<T>::is_closed(&self.memory, Side::Consumer) {
                return Ok(Some(0));
            }
            Ok(Some(push(self)?).filter(|count| *count != 0))
        };
        match wait(policy, poll, || signals.health())? {
            Waited::For(count) => Ok(count),
            Waited::InVain(waited) => Err(SignalError::TimedOut {
                call,
                what: "the head of the full ring",
                comparison: "at least",
                wanted: {
                    let capacity = RingMemory::<T>::capacity(&self.memory);
                    u64::from(self.position().wrapping_sub(capacity).wrapping_add(1))
                },
                seen: u64::from(RingMemory::<T>::index(&self.memory, Side::Consumer)),
                waited,
            }
            .into()),
        }
    }

    /// Waits until `pop` has popped something: how many items, or 0 if the other end has closed and the ring is empty.
    fn receive(
        &mut self,
        call: &'static str,
        policy: &WaitPolicy,
        mut pop: impl FnMut(&mut Self) -> Result<usize>,
    ) -> Result<usize> {
        let signals = self.memory.signals.clone();
        let poll = || {
            // Closing comes after the last push: so this is asked first.
            let closed = RingMemory::<T>::is_closed(&self.memory, Side::Producer);
            let count = pop(self)?;
            Ok((count != 0 || closed).then_some(count))
        };
        match wait(policy, poll, || signals.health())? {
            Waited::For(count) => Ok(count),
            Waited::InVain(waited) => Err(SignalError::TimedOut {
                call,
                what: "the tail of the empty ring",
                comparison: "at least",
                wanted: u64::from(self.position().wrapping_add(1)),
                seen: u64::from(RingMemory::<T>::index(&self.memory, Side::Producer)),
                waited,
            }
            .into()),
        }
    }
}

/// What both ends have.
macro_rules! ends {
    ($($end:ident<$item:ty> $(of $of:ident)? closes $side:ident),*) => { $(
        impl$(<$of: Pod>)? $end$(<$of>)? {
            /// What a kernel gets to use the other end. One kernel at a time, with one thread, may use it; the next one
            /// goes on where it ended.
            pub fn descriptor(&self) -> RingDescriptor {
                self.end.memory.descriptor()
            }

            /// Tells the ring that work given to `stream` so far uses it: kernels that were launched with its
            /// descriptor. The ring's memory serves nothing else until that
            /// work is done.
            pub fn record_use(&self, stream: &Stream) {
                self.end.memory.record_use(stream);
            }

            /// Gives the ring a name, for reports of waits that take long: `ring "requests"` in place of `ring #3`.
            #[must_use]
            pub fn named(self, name: &str) -> Self {
                self.set_name(name);
                self
            }

            /// As [`named`](Self::named), of a ring that is in use.
            pub fn set_name(&self, name: &str) {
                self.end.memory.set_name(name);
            }

            /// How many items the ring holds.
            pub fn capacity(&self) -> usize {
                RingMemory::<$item>::capacity(&self.end.memory) as usize
            }

            /// Where the consumer's memory lies (items and tail), and the producer's (the head).
            pub fn placements(&self) -> (Placement, Placement) {
                self.end.memory.placements()
            }

            /// The memory that the ring is of.
            pub fn signals(&self) -> &Signals {
                &self.end.memory.signals
            }

            /// A ring that nobody has used yet, with both indices at `position`: for tests of what happens after 2^32
            /// items.
            #[doc(hidden)]
            #[must_use]
            pub fn at_position(mut self, position: u32) -> Self {
                RingMemory::<$item>::publish(&self.end.memory, Side::Producer, position);
                RingMemory::<$item>::publish(&self.end.memory, Side::Consumer, position);
                self.end.restart(position);
                self
            }
        }

        impl$(<$of: Pod>)? Drop for $end$(<$of>)? {
            fn drop(&mut self) {
                RingMemory::<$item>::close(&self.end.memory, Side::$side);
            }
        }

        impl$(<$of: Pod>)? fmt::Debug for $end$(<$of>)? {
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
    Producer<T> of T closes Producer,
    Consumer<T> of T closes Consumer,
    ByteProducer<u8> closes Producer,
    ByteConsumer<u8> closes Consumer
);
