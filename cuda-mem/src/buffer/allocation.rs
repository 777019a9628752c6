//! What a buffer holds: memory, where it came from, and the stream that its work is ordered on.

use crate::beside_captures::{captures_under_way, postpone};
use crate::callback::call_back;
use crate::capture_errors::is_for_a_capture;
use crate::context::{ForeignOwner, Liveness};
use crate::later::{drop_later, inside_host_function};
use crate::resource::{Accessibility, Block, SharedResource, no_slices};
use crate::{Context, Result, Stream};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

/// One allocation. It is freed in order of its home stream when it is dropped.
pub(super) struct Allocation {
    pub block: Block,
    pub origin: Origin,
    /// The free waits for the work of this stream.
    pub home: Stream,
    /// The number by which other processes know the memory, if they may reach it; else 0.
    pub exposed: AtomicU64,
    /// How many bytes are in exclusive parts, where the memory is divided.
    exclusive: AtomicUsize,
    /// Other processes may reach the memory at any time: the CPU gets no slices of it. Said where the compiler knows that the
    /// CPU addresses the memory; of other memory there are none.
    processes: AtomicBool,
    /// Freed already, or handed out.
    ended: bool,
    /// How many writes of the CPU there may be that no device has seen: guards that have not ended, and flushes that
    /// failed.
    unposted: AtomicUsize,
}

/// Where memory came from, and who frees it.
pub(super) enum Origin {
    /// Of a resource, which frees it.
    Resource(SharedResource),
    /// Of another library, which frees it.
    Foreign(Foreign),
}

/// Memory that is not freed here.
pub(super) struct Foreign {
    /// Keeps the memory alive, where there is one.
    pub owner: Option<ForeignOwner>,
    pub accessibility: Accessibility,
    /// The ordinal of the device that the driver names for it.
    pub device: Option<i32>,
    /// The stream that the owner frees in order of, where that is known.
    pub ordered: Option<Stream>,
}

impl Allocation {
    pub fn new(block: Block, origin: Origin, home: Stream) -> Self {
        Self {
            block,
            origin,
            home,
            exposed: AtomicU64::new(0),
            exclusive: AtomicUsize::new(0),
            processes: AtomicBool::new(false),
            ended: false,
            unposted: AtomicUsize::new(0),
        }
    }

    pub fn context(&self) -> &Context {
        match &self.origin {
            Origin::Resource(resource) => resource.context(),
            Origin::Foreign(_) => self.home.context(),
        }
    }

    /// How many bytes of divided memory are in exclusive parts. A whole that is not divided has none, as far as this says.
    pub fn exclusive(&self) -> usize {
        self.exclusive.load(Ordering::Acquire)
    }

    pub fn accessibility(&self) -> Accessibility {
        match &self.origin {
            Origin::Resource(resource) => resource.accessibility(),
            Origin::Foreign(foreign) => foreign.accessibility,
        }
    }

    /// Says that the compiler knows from here on that the CPU addresses the memory.
    pub fn note_host_kind(&self) {
        if self.accessibility().processes {
            self.processes.store(true, Ordering::Relaxed);
        }
    }

    /// Whether slices of the memory may be given, which nobody else writes.
    #[inline]
    pub fn check_slices(&self, call: &'static str) -> Result<()> {
        if self.processes.load(Ordering::Relaxed) { Err(no_slices(call)) } else { Ok(()) }
    }

    /// Posts the CPU's writes of a range that lies within, in bytes.
    pub fn flush(&self, start: *mut u8, length: usize) -> Result<()> {
        match &self.origin {
            Origin::Resource(resource) if length != 0 => resource.flush(start, length).inspect_err(|_| {
                self.unposted.fetch_add(1, Ordering::Relaxed);
            }),
            _ => Ok(()),
        }
    }

    /// Makes a range that lies within ready for writes of the CPU. Gives what [`end_write`](Self::end_write) needs.
    ///
    /// # Safety
    ///
    /// As [`MemoryResource::begin_write`](crate::resource::MemoryResource::begin_write).
    pub unsafe fn begin_write(&self, start: *mut u8, length: usize) -> Result<bool> {
        match &self.origin {
            Origin::Resource(resource) if length != 0 => {
                // SAFETY: this function's contract.
                let remembered = unsafe { resource.begin_write(start, length) }?;
                if remembered {
                    self.unposted.fetch_add(1, Ordering::Relaxed);
                }
                Ok(remembered)
            }
            _ => Ok(false),
        }
    }

    /// Whether no write of the CPU waits to be posted, but for guards that are alive.
    #[inline]
    pub fn is_posted(&self) -> bool {
        self.unposted.load(Ordering::Relaxed) == 0
    }

    /// Notes that so many bytes were posted while none of their guards was alive. That of a part says nothing of the others.
    pub fn note_posted(&self, size: usize) {
        if size == self.block.size {
            self.unposted.store(0, Ordering::Relaxed);
        }
    }

    /// Posts the writes that [`begin_write`](Self::begin_write) began.
    pub fn end_write(&self, start: *mut u8, length: usize, remembered: bool) -> Result<()> {
        self.flush(start, length)?;
        if remembered {
            self.unposted.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Waits for the work, and posts what no flush did: whoever has the block then needs to do neither before it is
    /// freed.
    pub fn finish(&self) -> Result<()> {
        if self.home.context().liveness() == Liveness::Alive {
            self.home.drain()?;
        }
        match &self.origin {
            Origin::Resource(resource) if !self.is_posted() => self.post_leftovers(resource),
            _ => Ok(()),
        }
    }

    /// Posts what failed flushes and forgotten guards left, when the work so far is done. Else it would be posted at some time over what the
    /// device wrote for the memory's next user. While that fails, the memory is not freed.
    #[cold]
    fn post_leftovers(&self, resource: &SharedResource) -> Result<()> {
        if resource.context().liveness() == Liveness::Alive && self.home.context().liveness() == Liveness::Alive {
            self.home.drain()?;
            // SAFETY: all parts are gone, and with them what borrowed the memory.
            unsafe { resource.invalidate(self.block.host_pointer, self.block.size) }?;
        }
        Ok(())
    }

    /// The ordinal of the device that the memory lies on; none for memory of the host.
    pub fn device(&self) -> Option<i32> {
        match &self.origin {
            Origin::Resource(resource) => resource.is_on_device().then(|| resource.context().device().ordinal()),
            Origin::Foreign(foreign) => foreign.device.filter(|_| !foreign.accessibility.host),
        }
    }

    /// Frees the memory in order of the home stream; waits for the work on memory that is another's to free. Memory of
    /// a context that has ended needs nothing.
    ///
    /// After a success the value's drop does nothing.
    pub fn end(&mut self) -> Result<()> {
        if self.ended {
            return Ok(());
        }
        match &self.origin {
            Origin::Resource(resource) => {
                let unposted = !self.is_posted();
                if resource.frees_without_context() && !unposted && self.block.device_pointer != 0 {
                    // SAFETY: as in `free`.
                    unsafe { resource.deallocate(self.block, &self.home) }?;
                } else {
                    // The resource may be the caller's own.
                    let freed = call_back(|| {
                        if unposted {
                            self.post_leftovers(resource)?;
                        }
                        self.free(resource)
                    });
                    freed.unwrap_or_else(|panic| Err(panic.of("a resource")))?;
                }
            }
            // There is no memory that work could use.
            Origin::Foreign(_) if self.block.size == 0 => {}
            // Its owner may free it as soon as this returns.
            Origin::Foreign(foreign) if self.home.context().liveness() == Liveness::Alive => match &foreign.ordered {
                Some(stream) if stream.context().liveness() != Liveness::Alive => self.home.finish()?,
                Some(stream) if *stream == self.home => {}
                Some(stream) => stream.follow_or_wait(&self.home)?,
                None => self.home.finish()?,
            },
            Origin::Foreign(_) => {}
        }
        self.ended = true;
        Ok(())
    }

    fn free(&self, resource: &SharedResource) -> Result<()> {
        // Addresses may be held for a buffer of no bytes, too.
        if self.block.device_pointer == 0 {
            return Ok(());
        }
        if resource.frees_without_context() {
            // SAFETY: as below.
            return unsafe { resource.deallocate(self.block, &self.home) };
        }
        let (context, home) = (resource.context(), &self.home);
        let liveness = context.liveness();
        match liveness {
            Liveness::DriverGone => return Ok(()),
            Liveness::Gone => {
                // SAFETY: the block is the resource's and `ended` says that it was not freed before; all parts are gone.
                unsafe { resource.abandon(self.block) };
                return Ok(());
            }
            Liveness::Alive => {}
        }
        // The home stream may be of another context of the device. When that has ended, so has the stream's work.
        let home_is_gone = home.context() != context && home.context().liveness() != Liveness::Alive;
        let default = home_is_gone.then(|| Stream::legacy_default(context));
        // SAFETY: the block is the resource's and `ended` says that it was not freed before; all parts are gone, and
        // have joined their streams to this one.
        unsafe { resource.deallocate(self.block, default.as_ref().unwrap_or(home)) }
    }

    /// Hands the memory out: the drop frees nothing.
    pub fn disown(&mut self) {
        self.ended = true;
    }
}

impl Allocation {
    /// Moves all that it holds out.
    #[cold]
    fn take(&mut self) -> Self {
        let nowhere = Foreign { owner: None, accessibility: Accessibility::default(), device: None, ordered: None };
        Self {
            block: self.block,
            origin: core::mem::replace(&mut self.origin, Origin::Foreign(nowhere)),
            home: self.home.clone(),
            exposed: AtomicU64::new(*self.exposed.get_mut()),
            exclusive: AtomicUsize::new(*self.exclusive.get_mut()),
            ended: core::mem::replace(&mut self.ended, true),
            unposted: AtomicUsize::new(*self.unposted.get_mut()),
            processes: AtomicBool::new(*self.processes.get_mut()),
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if inside_host_function() {
            return drop_later(self.take());
        }
        let Err(mut error) = self.end() else { return };
        if error.is_teardown() {
            return;
        }
        // A free that waits for the home stream fails while that captures. The capture will end.
        if captures_under_way() {
            // Where it has ended already, the value comes back, and its drop tries again.
            drop(postpone(Box::new(self.take())));
            return;
        }
        if is_for_a_capture(&error) {
            // It has ended since.
            match self.end() {
                Ok(()) => return,
                Err(again) => error = again,
            }
        }
        self.context().drop_errors().push("freeing a buffer", error);
        // Of foreign memory once more, to be sure: else the owner must not free what the work may go on with.
        if matches!(self.origin, Origin::Foreign(_))
            && self.end().is_err()
            && let Origin::Foreign(foreign) = &mut self.origin
        {
            core::mem::forget(foreign.owner.take());
        }
    }
}

/// One of the parts of an allocation, with a home stream of its own.
pub(super) struct Part {
    pub allocation: Arc<Allocation>,
    pub home: Stream,
    /// How many bytes this part alone reaches, and the allocation counts as such.
    exclusive: usize,
}

impl Part {
    /// A part that others may reach too.
    pub fn shared(allocation: Arc<Allocation>, home: Stream) -> Self {
        Self { allocation, home, exclusive: 0 }
    }

    /// The same memory, shared.
    pub fn share(&self) -> Self {
        Self::shared(self.allocation.clone(), self.home.clone())
    }

    /// Divides what one value alone reaches into two parts of so many bytes, each of which is alone too.
    pub fn divide(mut self, left: usize, right: usize) -> (Self, Self) {
        let mut other = self.share();
        // In this order: never fewer are counted than there are.
        other.count(right);
        self.count(left);
        (self, other)
    }

    /// Opens it to others.
    pub fn open(mut self) -> Self {
        self.count(0);
        self
    }

    fn count(&mut self, exclusive: usize) {
        self.allocation.exclusive.fetch_add(exclusive, Ordering::Relaxed);
        self.allocation.exclusive.fetch_sub(self.exclusive, Ordering::Release);
        self.exclusive = exclusive;
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if inside_host_function() {
            let exclusive = core::mem::take(&mut self.exclusive);
            return drop_later(Self { allocation: self.allocation.clone(), home: self.home.clone(), exclusive });
        }
        self.count(0);
        if self.home == self.allocation.home || self.home.context().liveness() != Liveness::Alive {
            return;
        }
        // The free, which some part's end brings about, comes after this part's work.
        if let Err(error) = self.allocation.home.follow_or_wait(&self.home)
            && !error.is_teardown()
        {
            // The work may go on with the memory, which stays. A capture that forbids the ordering will end.
            if let Err(part) = postpone(Box::new(self.share())) {
                self.home.context().drop_errors().push("ordering a part's work before its memory is freed", error);
                core::mem::forget(part);
            }
        }
    }
}

/// The holder of an allocation. A buffer that was never divided needs no count.
pub(super) enum Hold {
    Whole(Allocation),
    Part(Part),
}

impl Hold {
    #[inline]
    pub fn allocation(&self) -> &Allocation {
        match self {
            Hold::Whole(allocation) => allocation,
            Hold::Part(part) => &part.allocation,
        }
    }

    #[inline]
    pub fn home(&self) -> &Stream {
        match self {
            Hold::Whole(allocation) => &allocation.home,
            Hold::Part(part) => &part.home,
        }
    }

    /// Makes it possible to hold the allocation in parts.
    pub fn into_part(self) -> Part {
        match self {
            Hold::Whole(allocation) => {
                let home = allocation.home.clone();
                Part::shared(Arc::new(allocation), home)
            }
            Hold::Part(part) => part,
        }
    }

    /// The allocation itself, if nothing else holds it.
    pub fn try_into_whole(self) -> core::result::Result<Allocation, Self> {
        match self {
            Hold::Whole(allocation) => Ok(allocation),
            // Only the last holder gets past the count, and nobody can clone what it alone has.
            Hold::Part(part) if Arc::strong_count(&part.allocation) == 1 => {
                let (home, allocation) = (part.home.clone(), part.allocation.clone());
                // Joins the part's stream to the allocation's.
                drop(part);
                Arc::try_unwrap(allocation).map_err(|allocation| Hold::Part(Part::shared(allocation, home)))
            }
            part => Err(part),
        }
    }

    /// Orders later work on `stream`, after all work so far.
    pub fn move_to(&mut self, stream: &Stream) -> Result<()> {
        stream.follow(self.home())?;
        match self {
            Hold::Whole(allocation) => allocation.home = stream.clone(),
            Hold::Part(part) => part.home = stream.clone(),
        }
        Ok(())
    }
}
