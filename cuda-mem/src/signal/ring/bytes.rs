//! Ends of rings whose items are bytes, for programs that know an item's size only at run time.

use super::WaitPolicy;
use super::protocol::{RingEnd, RingMemory};
use super::raw::RawMemory;
use crate::{Error, Result};

/// The CPU's side of a ring to the device whose items have a size in bytes that is chosen at run time: it pushes.
/// Slices contain whole items, one after the other. [`Producer`](super::Producer) is the type for items of a Rust type.
///
/// ```
/// use cuda_mem::signal::Signals;
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// let mut ring = Signals::new(&context)?.byte_ring_to_device(4, 12)?; // four items of twelve bytes
/// assert_eq!(ring.push_slice(&[1; 5 * 12])?, 4); // as many as have room
/// assert_eq!((ring.item_size(), ring.room()?), (12, 0));
/// assert!(ring.push_slice(&[1; 13]).is_err(), "no whole items");
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct ByteProducer {
    pub(super) end: RingEnd<RawMemory>,
}

/// The CPU's side of a ring from the device whose items have a size in bytes that is chosen at run time: it pops.
/// Slices contain whole items, one after the other. [`Consumer`](super::Consumer) is the type for items of a Rust type.
///
/// ```
/// use cuda_mem::signal::Signals;
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// let mut ring = Signals::new(&context)?.byte_ring_from_device(4, 12)?;
/// let mut items = [0; 2 * 12];
/// assert_eq!(ring.pop_slice(&mut items)?, 0); // no kernel has pushed any
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct ByteConsumer {
    pub(super) end: RingEnd<RawMemory>,
}

/// Number of items in `bytes` bytes.
fn count(call: &'static str, bytes: usize, item_size: usize) -> Result<usize> {
    if !bytes.is_multiple_of(item_size) {
        return Err(Error::Misaligned { call, what: "the size of the slice", value: bytes, multiple: item_size });
    }
    Ok(bytes / item_size)
}

impl ByteProducer {
    /// The size of an item in bytes.
    pub fn item_size(&self) -> usize {
        self.end.memory.item_size()
    }

    /// Pushes as many of the first items of a slice as have room, and publishes them at once. Returns the number of
    /// items, 0 if the ring is full.
    ///
    /// # Errors
    ///
    /// The slice is no whole number of items: [`Error::Misaligned`]. The other end's index is impossible:
    /// [`SignalError::OutOfStep`](super::SignalError::OutOfStep).
    #[inline]
    pub fn push_slice(&mut self, items: &[u8]) -> Result<usize> {
        const CALL: &str = "ByteProducer::push_slice";
        let count = count(CALL, items.len(), self.item_size())?;
        self.end.push(CALL, items, count)
    }

    /// Pushes at least one item, and waits for room if necessary. Returns the number of items: 0 only if the other end
    /// has closed, or if the slice is empty.
    ///
    /// # Errors
    ///
    /// No room came in time, and nothing was pushed: [`SignalError::TimedOut`](super::SignalError::TimedOut). Otherwise
    /// as [`push_slice`](Self::push_slice); the context has ended; the device has failed.
    pub fn send(&mut self, items: &[u8], policy: &WaitPolicy) -> Result<usize> {
        const CALL: &str = "ByteProducer::send";
        let count = count(CALL, items.len(), self.item_size())?;
        if count == 0 {
            return Ok(0);
        }
        self.end.send(&CALL, policy, |end| end.push(CALL, items, count))
    }
}

impl ByteConsumer {
    /// The size of an item in bytes.
    pub fn item_size(&self) -> usize {
        self.end.memory.item_size()
    }

    /// Pops as many items as the ring has and the slice holds, and frees their slots at once. Returns the number of
    /// items, 0 if the ring is empty.
    ///
    /// # Errors
    ///
    /// As [`ByteProducer::push_slice`].
    #[inline]
    pub fn pop_slice(&mut self, items: &mut [u8]) -> Result<usize> {
        const CALL: &str = "ByteConsumer::pop_slice";
        let count = count(CALL, items.len(), self.item_size())?;
        self.end.pop(CALL, items, count)
    }

    /// Pops at least one item, and waits if necessary. Returns the number of items: 0 only if the other end has closed
    /// and the ring is empty, or if the slice is empty.
    ///
    /// # Errors
    ///
    /// Nothing came in time: [`SignalError::TimedOut`](super::SignalError::TimedOut). Otherwise as
    /// [`pop_slice`](Self::pop_slice); the context has ended; the device has failed.
    pub fn receive(&mut self, items: &mut [u8], policy: &WaitPolicy) -> Result<usize> {
        const CALL: &str = "ByteConsumer::receive";
        let count = count(CALL, items.len(), self.item_size())?;
        if count == 0 {
            return Ok(0);
        }
        self.end.receive(&CALL, policy, |end| end.pop(CALL, items, count))
    }
}
