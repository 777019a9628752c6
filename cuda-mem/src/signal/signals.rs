//! The memory of a context's signals.

use super::base::Kind;
use super::compare::SignalWord;
use super::memory::{Arena, LineSource, SignalLines};
use super::placement::{Placement, Waiter, why_not};
use super::release::Retired;
use super::ring::{ByteConsumer, ByteProducer, Consumer, Layout, Producer};
use super::{Counter, DeviceCounter, Flag};
use crate::memory::mapped::CoherencePolicy;
use crate::{Buffer, Context, Error, MappedMemory, Result, Stream, check_not_forked};
use bytemuck::Pod;
use core::fmt;
use std::sync::Arc;

/// The memory of a context's flags, counters and rings. Cheap to clone; everything made from it keeps it alive.
///
/// It allocates chunks of 64 KiB when needed, and keeps them until its last clone and everything made from it have
/// ended. That last end waits for the device work that still uses the memory.
///
/// The first one of a context loads this crate's kernels and reserves streams, for which the driver waits for the
/// context's work: make it before data arrives.
///
/// ```
/// use cuda_mem::signal::{Placement, Signals, Waiter};
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// let signals = Signals::new(&context)?;
/// assert_eq!(signals.why_not_mapped(), None);
/// assert_eq!(signals.flag::<u32>(Waiter::Device)?.placement(), Placement::Mapped);
/// assert_eq!(signals.flag::<u64>(Waiter::Cpu)?.placement(), Placement::Pinned);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone)]
pub struct Signals {
    inner: Arc<SignalMemory>,
}

struct SignalMemory {
    retired: Arc<Retired>,
    pinned: Arc<Arena>,
    mapped: Arc<Arena>,
    /// The resource for mapped memory, or what is missing for it.
    resource: Result<MappedMemory, Box<str>>,
    /// Carries no work. It tells whether the device works, and is the home stream of pinned memory.
    stream: Stream,
}

impl Signals {
    /// Uses mapped memory of the context's device, or pinned memory alone if there is no coherent mapped memory.
    ///
    /// # Errors
    ///
    /// There is no memory for a stream.
    pub fn new(context: &Context) -> Result<Self> {
        let resource = MappedMemory::with_coherence(context, CoherencePolicy::Preferred);
        let resource = match resource.and_then(|resource| Ok((coherence(&resource)?, resource))) {
            Ok((None, resource)) => Ok(resource),
            Ok((Some(missing), _)) => Err(missing.into()),
            Err(error) => Err(format!("mapped memory ({error})").into()),
        };
        Self::over(context, resource)
    }

    /// Uses mapped memory of a resource that is already open.
    ///
    /// # Errors
    ///
    /// There is no memory for a stream, or for the allocation that shows whether the memory is coherent.
    pub fn with_resource(resource: &MappedMemory) -> Result<Self> {
        let missing = coherence(resource)?;
        Self::over(resource.context(), missing.map_or_else(|| Ok(resource.clone()), |missing| Err(missing.into())))
    }

    /// Uses pinned memory alone.
    ///
    /// # Errors
    ///
    /// There is no memory for a stream.
    pub fn pinned_only(context: &Context) -> Result<Self> {
        Self::over(context, Err("mapped memory, which the program chose not to use".into()))
    }

    fn over(context: &Context, resource: Result<MappedMemory, Box<str>>) -> Result<Self> {
        let (pinned, mapped) = (Arena::new(Placement::Pinned)?, Arena::new(Placement::Mapped)?);
        let stream = Stream::new(context)?;
        // Otherwise the first wait would take the time for this, while a program's data already arrives.
        context.prepare_cpu_waits();
        Ok(Self { inner: Arc::new(SignalMemory { retired: Retired::new(context), pinned, mapped, resource, stream }) })
    }

    /// What is missing for mapped memory; `None` if it is available.
    pub fn why_not_mapped(&self) -> Option<&str> {
        self.inner.resource.as_ref().err().map(|missing| &**missing)
    }

    /// The best placement of a word that `waiter` waits for.
    pub fn placement_for(&self, waiter: Waiter) -> Placement {
        Placement::nearest(waiter, self.inner.resource.is_ok())
    }

    /// Makes a flag, 0 at first, near `waiter`.
    ///
    /// # Errors
    ///
    /// No memory is left; the device registers no host memory ([`Error::Unsupported`]).
    pub fn flag<W: SignalWord>(&self, waiter: Waiter) -> Result<Flag<W>> {
        self.flag_in(self.placement_for(waiter))
    }

    /// Makes a flag, 0 at first, in memory of the caller's choice.
    ///
    /// # Errors
    ///
    /// As [`flag`](Self::flag). There is no coherent mapped memory: [`Error::Unsupported`].
    pub fn flag_in<W: SignalWord>(&self, placement: Placement) -> Result<Flag<W>> {
        self.word(Kind::Flag, placement)
    }

    /// Makes a word that tells when frames are published, near the device.
    pub(crate) fn frame_word(&self) -> Result<Flag<u32>> {
        self.word(Kind::Frame, self.placement_for(Waiter::Device))
    }

    fn word<W: SignalWord>(&self, kind: Kind, placement: Placement) -> Result<Flag<W>> {
        Ok(Flag::new(self, kind, self.lines(size_of::<W>(), placement)?))
    }

    /// Makes a counter that the CPU counts and the device waits for, 0 at first.
    ///
    /// # Errors
    ///
    /// As [`flag`](Self::flag).
    pub fn counter<W: SignalWord>(&self) -> Result<Counter<W>> {
        Ok(Counter::new(self.word(Kind::Counter, self.placement_for(Waiter::Device))?))
    }

    /// Makes a counter that the device counts and the CPU waits for, 0 at first.
    ///
    /// # Errors
    ///
    /// As [`flag`](Self::flag).
    pub fn device_counter<W: SignalWord>(&self) -> Result<DeviceCounter<W>> {
        Ok(DeviceCounter::new(self.word(Kind::Counter, self.placement_for(Waiter::Cpu))?))
    }

    /// Makes a ring from the CPU to the device, and returns the CPU's side. The capacity is `items`, at most 2^31,
    /// rounded up to a power of two.
    ///
    /// # Errors
    ///
    /// Too many items ([`Error::InvalidArgument`]); no memory is left.
    pub fn ring_to_device<T: Pod>(&self, items: usize) -> Result<Producer<T>> {
        let (consumer, producer) = (self.placement_for(Waiter::Device), self.placement_for(Waiter::Cpu));
        self.ring_to_device_in(items, consumer, producer)
    }

    /// Makes a ring from the CPU to the device in memory of the caller's choice, and returns the CPU's side. `consumer`
    /// is for items and tail, `producer` for the head. The capacity is that of
    /// [`ring_to_device`](Self::ring_to_device).
    ///
    /// # Errors
    ///
    /// As [`ring_to_device`](Self::ring_to_device). There is no coherent mapped memory.
    pub fn ring_to_device_in<T: Pod>(
        &self,
        items: usize,
        consumer: Placement,
        producer: Placement,
    ) -> Result<Producer<T>> {
        let layout = Layout::of::<T>("Signals::ring_to_device", items)?;
        Ok(Producer::new(self, layout, self.lines(layout.size, consumer)?, self.lines(Layout::LINE, producer)?))
    }

    /// Makes a ring from the device to the CPU, and returns the CPU's side. The capacity is `items`, at most 2^31,
    /// rounded up to a power of two.
    ///
    /// # Errors
    ///
    /// As [`ring_to_device`](Self::ring_to_device).
    pub fn ring_from_device<T: Pod>(&self, items: usize) -> Result<Consumer<T>> {
        let (consumer, producer) = (self.placement_for(Waiter::Cpu), self.placement_for(Waiter::Device));
        self.ring_from_device_in(items, consumer, producer)
    }

    /// Makes a ring from the device to the CPU in memory of the caller's choice, and returns the CPU's side. `consumer`
    /// is for items and tail, `producer` for the head. The capacity is that of
    /// [`ring_from_device`](Self::ring_from_device).
    ///
    /// # Errors
    ///
    /// As [`ring_to_device_in`](Self::ring_to_device_in).
    pub fn ring_from_device_in<T: Pod>(
        &self,
        items: usize,
        consumer: Placement,
        producer: Placement,
    ) -> Result<Consumer<T>> {
        let layout = Layout::of::<T>("Signals::ring_from_device", items)?;
        Ok(Consumer::new(self, layout, self.lines(layout.size, consumer)?, self.lines(Layout::LINE, producer)?))
    }

    /// Makes a ring from the CPU to the device for items of `item_size` bytes, and returns the CPU's side. The capacity
    /// is that of [`ring_to_device`](Self::ring_to_device).
    ///
    /// # Errors
    ///
    /// As there; `item_size` is 0.
    pub fn byte_ring_to_device(&self, items: usize, item_size: usize) -> Result<ByteProducer> {
        let (consumer, producer) = (self.placement_for(Waiter::Device), self.placement_for(Waiter::Cpu));
        self.byte_ring_to_device_in(items, item_size, consumer, producer)
    }

    /// Makes a ring from the CPU to the device for items of `item_size` bytes in memory of the caller's choice, and
    /// returns the CPU's side. Placements as for [`ring_to_device_in`](Self::ring_to_device_in).
    ///
    /// # Errors
    ///
    /// As there; `item_size` is 0.
    pub fn byte_ring_to_device_in(
        &self,
        items: usize,
        item_size: usize,
        consumer: Placement,
        producer: Placement,
    ) -> Result<ByteProducer> {
        let layout = Layout::of_size("Signals::byte_ring_to_device", items, item_size)?;
        Ok(ByteProducer::new(self, layout, self.lines(layout.size, consumer)?, self.lines(Layout::LINE, producer)?))
    }

    /// Makes a ring from the device to the CPU for items of `item_size` bytes, and returns the CPU's side. The capacity
    /// is that of [`ring_from_device`](Self::ring_from_device).
    ///
    /// # Errors
    ///
    /// As there; `item_size` is 0.
    pub fn byte_ring_from_device(&self, items: usize, item_size: usize) -> Result<ByteConsumer> {
        let (consumer, producer) = (self.placement_for(Waiter::Cpu), self.placement_for(Waiter::Device));
        self.byte_ring_from_device_in(items, item_size, consumer, producer)
    }

    /// Makes a ring from the device to the CPU for items of `item_size` bytes in memory of the caller's choice, and
    /// returns the CPU's side. Placements as for [`ring_from_device_in`](Self::ring_from_device_in).
    ///
    /// # Errors
    ///
    /// As there; `item_size` is 0.
    pub fn byte_ring_from_device_in(
        &self,
        items: usize,
        item_size: usize,
        consumer: Placement,
        producer: Placement,
    ) -> Result<ByteConsumer> {
        let layout = Layout::of_size("Signals::byte_ring_from_device", items, item_size)?;
        Ok(ByteConsumer::new(self, layout, self.lines(layout.size, consumer)?, self.lines(Layout::LINE, producer)?))
    }

    /// The context of the memory.
    pub fn context(&self) -> &Context {
        self.inner.stream.context()
    }

    pub(super) fn retired(&self) -> &Arc<Retired> {
        &self.inner.retired
    }

    fn lines(&self, size: usize, placement: Placement) -> Result<SignalLines> {
        check_not_forked("making a signal")?;
        let inner = &self.inner;
        inner.retired.tend();
        match (placement, &inner.resource) {
            (Placement::Pinned, _) => inner.pinned.allocate(size, LineSource::Pinned(self.context(), &inner.stream)),
            (Placement::Mapped, Ok(resource)) => {
                inner.mapped.allocate(size, LineSource::Mapped(resource, &inner.stream))
            }
            (Placement::Mapped, Err(missing)) => {
                Err(Error::Unsupported { feature: "a signal in mapped memory", needs: missing.clone() })
            }
        }
    }

    /// Fails if the context has ended or the device has failed, so that no wait can succeed any more.
    pub(super) fn health(&self) -> Result<()> {
        self.context().check_alive()?;
        self.inner.stream.is_done().map(drop)
    }
}

impl Drop for SignalMemory {
    fn drop(&mut self) {
        // All flags and rings have ended. So kernels that wait for a ring find it closed, and end.
        self.retired.wait();
    }
}

/// Why the resource's memory cannot hold signals, if so. Only allocated memory tells its coherence.
fn coherence(resource: &MappedMemory) -> Result<Option<&'static str>> {
    let stream = Stream::new(resource.context())?;
    Ok(why_not(Buffer::<u8, _>::uninit(resource, 1, &stream)?.coherence()))
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals")
            .field("context", self.context())
            .field("why_not_mapped", &self.why_not_mapped())
            .finish_non_exhaustive()
    }
}
