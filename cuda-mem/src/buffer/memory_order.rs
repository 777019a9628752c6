//! Orders copies between buffers with different home streams by the memory that they use.
//!
//! Only memory whose address this library alone knows is ordered so: a kernel that the program launches on the home stream
//! reports nothing. For other memory, each copy orders the two streams.

use super::accesses::{Accesses, ReadAfter};
use super::{Access, Buffer};
use crate::lifetime::inside_host_function;
use crate::locks::Mutex;
use crate::memory::resource::Kind;
use crate::stream::Running;
use crate::{Context, Event, Result, Stream, lifetime::waiting};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use once_cell::race::OnceBox;
use std::sync::Arc;

/// The bytes of a whole allocation.
pub(super) const ALL: Range<usize> = 0..usize::MAX;

/// The order of the work on one allocation.
#[derive(Debug, Default)]
pub(super) struct MemoryOrder {
    /// Whether others know the address, and may use it on the home stream.
    is_known_outside: AtomicBool,
    /// Made by the first copy to or from a buffer of another stream.
    accesses: OnceBox<SharedAccesses>,
}

#[derive(Debug, Default)]
struct SharedAccesses {
    list: Mutex<Accesses<Point>>,
    /// Counts work of the home stream.
    worked: AtomicU64,
}

/// An event behind an access.
#[derive(Clone, Debug)]
struct Point(Arc<Event>);

impl PartialEq for Point {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Point {
    fn is_over(&self) -> bool {
        self.0.is_over() == Ok(true)
    }
}

impl MemoryOrder {
    pub fn new(is_known_outside: bool) -> Self {
        Self { is_known_outside: AtomicBool::new(is_known_outside), accesses: OnceBox::new() }
    }

    /// Whether copies are ordered by memory.
    pub fn is_by_memory(&self) -> bool {
        !self.is_known_outside.load(Ordering::SeqCst)
    }

    /// Notes that others get the address. From now on, each copy orders the streams.
    #[inline]
    pub fn tell_address(&self, home: &Stream) {
        if !self.is_known_outside.load(Ordering::Relaxed) {
            self.become_by_streams(home);
        }
    }

    #[cold]
    fn become_by_streams(&self, home: &Stream) {
        // A host function may not call the driver. Its address is for a later call.
        if !inside_host_function() {
            self.is_known_outside.store(true, Ordering::SeqCst);
            self.after_reads(home, &ALL);
        }
    }

    /// Counts work on the home stream that has no event.
    #[inline]
    pub fn note_work(&self) {
        if let Some(accesses) = self.accesses.get() {
            accesses.worked.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Makes the home stream wait for the reads of some bytes by other streams. If it cannot, waits for them here.
    #[inline]
    pub fn after_reads(&self, home: &Stream, bytes: &Range<usize>) {
        if let Some(accesses) = self.accesses.get() {
            accesses
                .each_read(bytes, |event| {
                    home.order_after_event_or_wait(event);
                    Ok(())
                })
                .unwrap_or_default();
        }
    }

    /// The same before the memory is freed.
    ///
    /// # Errors
    ///
    /// The home stream captures: free the memory later.
    #[inline]
    pub fn free_after_reads(&self, home: &Stream) -> Result<()> {
        match self.accesses.get() {
            None => Ok(()),
            Some(accesses) => accesses.each_read(&ALL, |event| home.order_free_after_event(event)),
        }
    }

    /// Waits for the reads of some bytes by other streams.
    pub fn wait_for_reads(&self, bytes: &Range<usize>) -> Result<()> {
        match self.accesses.get() {
            None => Ok(()),
            Some(accesses) => accesses.each_read(bytes, |event| {
                waiting::while_doing(&"for a CPU access to a buffer", || event.wait_beside_captures())
            }),
        }
    }

    fn accesses(&self) -> &SharedAccesses {
        self.accesses.get_or_init(Box::default)
    }
}

impl SharedAccesses {
    /// Deals with each read of some bytes, which is forgotten then.
    #[cold]
    fn each_read(&self, bytes: &Range<usize>, mut done: impl FnMut(&Event) -> Result<()>) -> Result<()> {
        // Without the lock: a submission may wait, and so may `done`.
        let reads = self.list.lock().before_write(bytes);
        for read in reads {
            done(&read.0)?;
            self.list.lock().pass_read(&read);
        }
        Ok(())
    }

    /// The events that a read of some bytes must wait for.
    fn before_read(&self, home: &Stream, bytes: &Range<usize>) -> Result<Vec<Point>> {
        if let ReadAfter::Events(events) = self.list.lock().before_read(bytes, self.worked()) {
            return Ok(events);
        }
        let running = home.running("a copy from a buffer")?;
        let worked = self.worked();
        if home.context().is_idle(home.raw()) == Ok(true) {
            self.list.lock().note_rest(None, worked);
            return Ok(Vec::new());
        }
        let mut list = self.list.lock();
        let worked = self.worked();
        let event = Point(Arc::new(Event::new(home.context())?));
        event.0.mark(&running)?;
        list.note_rest(Some(event.clone()), worked);
        Ok(vec![event])
    }

    fn worked(&self) -> u64 {
        self.worked.load(Ordering::Acquire)
    }

    /// Marks the end of a write that the home stream has queued.
    fn mark_write(&self, running: &Running<'_>, bytes: Range<usize>, point: Point) -> Result<Point> {
        // Under the lock, so that the list is in order of the stream.
        let mut list = self.list.lock();
        point.0.mark(running)?;
        list.note_write(bytes, point.clone(), self.worked.fetch_add(1, Ordering::AcqRel));
        Ok(point)
    }

    /// An event for an access, perhaps of an earlier one that nobody waits for.
    fn unmarked(&self, context: &Context) -> Result<Point> {
        let is_unused = |point: &Point| Arc::strong_count(&point.0) == 1 && point.0.context() == context;
        match self.list.lock().take_spare(is_unused) {
            Some(point) => Ok(point),
            None => Ok(Point(Arc::new(Event::new(context)?))),
        }
    }
}

impl<T, K: Kind, A: Access> Buffer<T, K, A> {
    /// Called before device work on these bytes of the allocation: flushes the writes of forgotten guards, and makes the home
    /// stream wait for the reads of other streams.
    #[inline]
    pub(super) fn prepare_bytes(&self, bytes: &Range<usize>) -> Result<()> {
        self.post_forgotten()?;
        self.hold.allocation().order.after_reads(self.stream(), bytes);
        Ok(())
    }

    /// The same for all of the buffer.
    #[inline]
    pub(crate) fn prepare(&self) -> Result<()> {
        self.prepare_bytes(&self.bytes_of_allocation(0..self.len()))
    }

    /// Where elements lie in the allocation.
    pub(crate) fn bytes_of_allocation(&self, elements: Range<usize>) -> Range<usize> {
        self.offset + elements.start * size_of::<T>()..self.offset + elements.end * size_of::<T>()
    }

    /// Notes that others get the address.
    #[inline]
    pub(crate) fn tell_address(&self) {
        self.hold.allocation().order.tell_address(self.stream());
    }

    /// Waits for the copies from this buffer on other streams.
    pub(super) fn wait_for_reads(&self) -> Result<()> {
        self.hold.allocation().order.wait_for_reads(&self.bytes_of_allocation(0..self.len()))
    }

    /// The order of the allocation, if copies of this buffer are ordered by it.
    fn memory_order(&self) -> Option<&MemoryOrder> {
        let allocation = self.hold.allocation();
        // Clones would have to agree on each access, and a part with its own home stream does not write in order of the
        // allocation's.
        (!A::IS_SHARED && allocation.order.is_by_memory() && self.stream() == allocation.home())
            .then_some(&allocation.order)
    }

    /// Makes `reader` wait for the writes of some bytes of the allocation, for work that only reads them. Returns the order to
    /// note the read in; None if the streams must be ordered instead.
    pub(super) fn begin_read(&self, reader: &Stream, bytes: &Range<usize>) -> Result<Option<&MemoryOrder>> {
        const CALL: &str = "Stream::wait";
        let Some(order) = self.memory_order() else { return Ok(None) };
        // A capture records the order of the streams.
        let Ok(_running) = reader.running(CALL) else { return Ok(None) };
        reader.context().driver().check_same(CALL, "event", self.stream().context().driver())?;
        let accesses = order.accesses();
        for point in accesses.before_read(self.stream(), bytes)? {
            match point.is_over() {
                true => accesses.list.lock().pass(&point),
                false => reader.wait(&point.0)?,
            }
        }
        Ok(Some(order))
    }

    /// Notes work that the home stream has queued: it writes some bytes of this buffer's allocation, and reads some of the
    /// source's.
    pub(super) fn note_copy<L: Kind, B: Access>(
        &self,
        writes: Range<usize>,
        source: &Buffer<T, L, B>,
        order: &MemoryOrder,
        reads: Range<usize>,
    ) -> Result<()> {
        let (home, other, accesses) = (self.stream(), source.stream(), order.accesses());
        let own = self.memory_order().filter(|_| !writes.is_empty());
        let marked = home.running("a copy between buffers").and_then(|running| {
            let point = accesses.unmarked(home.context())?;
            match own {
                Some(own) => own.accesses().mark_write(&running, writes, point),
                None => point.0.mark(&running).map(|()| point),
            }
        });
        if own.is_none() || marked.is_err() {
            self.hold.allocation().order.note_work();
        }
        self.note_read_in_order();
        source.work.note();
        let Ok(point) = marked else { return other.order_work_after_or_wait(home) };
        let surplus = accesses.list.lock().note_read(reads, home.id(), point);
        if let Some(early) = surplus {
            other.order_after_event_or_wait(&early.0);
        }
        if !order.is_by_memory() {
            // Another thread has asked for the address meanwhile.
            order.after_reads(other, &ALL);
        }
        Ok(())
    }

    /// Notes work of the home stream that reads the memory.
    pub(super) fn note_read_in_order(&self) {
        self.work.note();
        self.work.mark_again(self.stream());
    }
}
