//! Orders copies between buffers with different home streams by the memory that they use.
//!
//! Only memory whose address this library alone knows is ordered so: a kernel that the program launches on the home stream
//! reports nothing. For other memory, each copy orders the two streams.

use super::accesses::{Accesses, ReadAfter};
use super::holder::Hold;
use super::{Access, Buffer};
use crate::lifetime::captures::captures_under_way;
use crate::lifetime::inside_host_function;
use crate::locks::Mutex;
use crate::memory::resource::Kind;
use crate::stream::Running;
use crate::{Context, Event, Result, Stream, lifetime::waiting};
use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use once_cell::race::OnceBox;
use std::sync::Arc;

/// The bytes of a whole allocation.
pub(super) const ALL: Range<usize> = 0..usize::MAX;

/// The order of the work on one allocation.
#[derive(Debug, Default)]
pub(super) struct MemoryOrder {
    /// Whether others know the address, and may use it on the home stream: one of the constants below.
    address: AtomicU8,
    /// Made by the first copy to or from a buffer of another stream.
    accesses: OnceBox<SharedAccesses>,
}

/// This library alone knows the address.
const OWN: u8 = 0;
/// Others get the address. The home stream may not wait for all reads yet.
const LEAVING: u8 = 1;
/// Others know the address, and the home stream waits for all earlier reads.
const TOLD: u8 = 2;

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
        Self { address: AtomicU8::new(if is_known_outside { TOLD } else { OWN }), accesses: OnceBox::new() }
    }

    /// Whether copies are ordered by memory.
    pub fn is_by_memory(&self) -> bool {
        self.address.load(Ordering::SeqCst) == OWN
    }

    /// Notes that others get the address. From now on, each copy orders the streams.
    #[inline]
    pub fn tell_address(&self, home: &Stream) {
        if self.address.load(Ordering::Acquire) != TOLD {
            self.become_by_streams(home);
        }
    }

    #[cold]
    fn become_by_streams(&self, home: &Stream) {
        // Before the reads are looked at: a copy of another thread looks at this after it has noted its read.
        self.address.fetch_max(LEAVING, Ordering::SeqCst);
        // A host function may not call the driver: the next call waits for the reads.
        if !inside_host_function() {
            self.after_reads(home, &ALL);
            self.address.store(TOLD, Ordering::Release);
        }
    }

    /// Counts work on the home stream that has no event.
    #[inline]
    pub fn note_work(&self) {
        if let Some(accesses) = self.accesses.get() {
            accesses.worked.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Makes the home stream wait for the reads of some bytes by other streams. If it cannot, waits for them here. In a host
    /// function, which may not call the driver, they stay.
    #[inline]
    pub fn after_reads(&self, home: &Stream, bytes: &Range<usize>) {
        if let Some(accesses) = self.accesses.get() {
            accesses.order_after_reads(home, bytes);
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
    #[cold]
    fn order_after_reads(&self, home: &Stream, bytes: &Range<usize>) {
        if !inside_host_function() {
            let _ = self.each_read(bytes, |event| {
                home.order_after_event_or_wait(event);
                Ok(())
            });
        }
    }

    /// Changes the list. What it has no use for then is dropped without the lock.
    fn change<R>(&self, change: impl FnOnce(&mut Accesses<Point>) -> R) -> R {
        let mut list = self.list.lock();
        let result = change(&mut list);
        let unused = list.take_unused();
        drop(list);
        drop(unused);
        result
    }

    /// Deals with each read of some bytes, which is forgotten then.
    #[cold]
    fn each_read(&self, bytes: &Range<usize>, mut done: impl FnMut(&Event) -> Result<()>) -> Result<()> {
        // Without the lock: a submission may wait, and so may `done`.
        let reads = self.list.lock().before_write(bytes);
        for read in reads {
            done(&read.0)?;
            self.change(|list| list.pass_read(&read));
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
            self.change(|list| list.note_rest(None, worked));
            return Ok(Vec::new());
        }
        let event = Point(Arc::new(Event::new(home.context())?));
        self.change(|list| -> Result<()> {
            let worked = self.worked();
            event.0.mark(&running)?;
            list.note_rest(Some(event.clone()), worked);
            Ok(())
        })?;
        Ok(vec![event])
    }

    fn worked(&self) -> u64 {
        self.worked.load(Ordering::Acquire)
    }

    /// Marks the end of a write that the home stream has queued.
    fn mark_write(&self, running: &Running<'_>, bytes: Range<usize>, point: Point) -> Result<Point> {
        // Under the lock, so that the list is in order of the stream.
        self.change(|list| -> Result<()> {
            // What is counted is queued, so the event comes after it.
            let covered = self.worked();
            point.0.mark(running)?;
            list.note_write(bytes, point.clone(), covered, self.worked.fetch_add(1, Ordering::AcqRel));
            Ok(())
        })?;
        Ok(point)
    }

    /// An event for a read, perhaps of an earlier one that nobody waits for, and how many reads were noted before it is marked.
    fn unmarked(&self, context: &Context) -> Result<(Point, u64)> {
        let is_unused = |point: &Point| Arc::strong_count(&point.0) == 1 && point.0.context() == context;
        let (spare, noted) = self.change(|list| (list.take_spare(is_unused), list.noted()));
        match spare {
            Some(point) => Ok((point, noted)),
            None => Ok((Point(Arc::new(Event::new(context)?)), noted)),
        }
    }
}

impl<T, K: Kind, A: Access> Buffer<T, K, A> {
    /// Called before device work on these bytes of the allocation: flushes the writes of forgotten guards, and makes the home
    /// stream wait for the reads of other streams.
    #[inline]
    pub(super) fn prepare_bytes(&self, bytes: &Range<usize>) -> Result<()> {
        self.before_work()?;
        if captures_under_way() {
            // A launch of the graph reports nothing.
            self.tell_address();
        }
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
        let allocation = self.hold.allocation();
        // Not a part's own stream, which says nothing of other parts.
        allocation.order.tell_address(allocation.home());
    }

    /// Waits for the copies from this buffer on other streams.
    pub(super) fn wait_for_reads(&self) -> Result<()> {
        self.hold.allocation().order.wait_for_reads(&self.bytes_of_allocation(0..self.len()))
    }

    /// The order of the allocation, if copies of this buffer are ordered by it.
    fn memory_order(&self) -> Option<&MemoryOrder> {
        let allocation = self.hold.allocation();
        // Clones would have to agree on each access. A part with its own home stream does not write in order of the
        // allocation's. Other libraries may capture a borrowed stream.
        let is_known = !A::IS_SHARED && allocation.order.is_by_memory() && !self.stream().is_borrowed();
        (is_known && self.stream() == allocation.home()).then_some(&allocation.order)
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
                true => accesses.change(|list| list.pass_write(&point)),
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
            let (point, noted) = accesses.unmarked(home.context())?;
            let marked = match own {
                Some(own) => own.accesses().mark_write(&running, writes, point),
                None => point.0.mark(&running).map(|()| point),
            };
            marked.map(|point| (point, noted))
        });
        if own.is_none() || marked.is_err() {
            self.hold.allocation().order.note_work();
        }
        self.note_read_in_order();
        let Ok((point, noted)) = marked else {
            let ordered = other.order_work_after_or_wait(home);
            source.work.note();
            return ordered;
        };
        let surplus = accesses.change(|list| list.note_read(reads, home.id(), point, noted));
        // Afterwards, so that a wait of the CPU that passes the note has seen the read.
        source.work.note();
        if let Some(early) = surplus {
            other.order_after_event_or_wait(&early.0);
            accesses.change(|list| list.pass_read(&early));
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
        self.mark_again();
    }

    /// Marks the end of the work so far, unless there is none. From now on, [`mark_again`](Self::mark_again) does so after
    /// further work.
    ///
    /// # Errors
    ///
    /// The home stream captures.
    pub(super) fn mark(&self) -> Result<()> {
        let Some(noted) = self.work.pending() else { return Ok(()) };
        // The reads by other streams are noted work too. Nobody notes them again when the home stream waits for them later.
        self.hold.allocation().order.after_reads(self.stream(), &self.bytes_of_allocation(0..self.len()));
        self.work.mark(self.stream(), noted)
    }

    /// Moves an existing mark behind the work so far. Without a mark, does nothing. After a failure there is no mark behind all
    /// work.
    #[inline]
    pub(super) fn mark_again(&self) {
        if self.work.has_mark() {
            let _ = self.mark();
        }
    }
}
