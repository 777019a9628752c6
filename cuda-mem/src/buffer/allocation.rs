//! What a buffer owns: memory, its origin, and the stream that orders its work.

use super::foreign::Owner;
use super::memory_order::{ALL, MemoryOrder};
use crate::cpu::host_copy;
use crate::cpu::thread_slots::ThreadSlot;
use crate::driver::context::Liveness;
use crate::error::callback::{call_back, call_through};
use crate::error::check_not_forked;
use crate::lifetime::{drop_after_captures, drop_after_host_function, end_beside_captures, inside_host_function};
use crate::memory::resource::{Accessibility, Block, Keeping, MemoryResource, SharedResource, no_slices};
use crate::{Context, Result, Stream};
use core::mem::ManuallyDrop;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

/// One allocation. It is freed in order of its home stream when it is dropped.
pub(super) struct Allocation {
    pub block: Block,
    origin: ManuallyDrop<Origin>,
    home: ManuallyDrop<Stream>,
    /// A cache has taken the origin and the home stream.
    given_back: bool,
    /// The number under which other processes know the memory, if they may access it; otherwise 0.
    pub exposed: AtomicU64,
    /// How many bytes belong to exclusive parts, if the memory is divided.
    pub exclusive: AtomicUsize,
    /// Set if other processes may write the memory at any time, so that the CPU gets no slices. Only set if the type
    /// makes the memory CPU-accessible; other types give no slices.
    processes: AtomicBool,
    /// The memory was freed or handed out.
    ended: bool,
    /// How many CPU writes may be unflushed: writes of guards that have not ended, and of flushes that failed.
    unposted: AtomicUsize,
    /// What copies on other streams wait for, and later work for them.
    pub order: MemoryOrder,
}

/// Where memory came from, and who frees it.
pub(super) enum Origin {
    /// A resource, which frees it.
    Resource(SharedResource),
    /// Another library, which frees it.
    Foreign(Foreign),
}

/// Memory that this crate does not free.
pub(super) struct Foreign {
    /// Keeps the memory alive, if there is an owner.
    pub owner: Option<Owner>,
    pub accessibility: Accessibility,
    /// The ordinal of the device according to the driver.
    pub device: Option<i32>,
    pub free: OwnersFree,
}

/// When the owner of another library's memory frees it.
pub(super) enum OwnersFree {
    /// Perhaps at once.
    AtOnce,
    /// In order of the allocation's home stream, which needs no further reference.
    AtHome,
    /// In order of a stream.
    InOrderOf(Stream),
}

impl OwnersFree {
    /// In order of `stream`, for memory with this home stream.
    pub fn in_order_of(stream: &Stream, home: &Stream) -> Self {
        if stream.is_clone_of(home) { Self::AtHome } else { Self::InOrderOf(stream.clone()) }
    }
}

impl Foreign {
    /// Memory that this crate's value neither owns nor frees.
    pub fn without_owner(accessibility: Accessibility, device: Option<i32>) -> Self {
        Self { owner: None, accessibility, device, free: OwnersFree::AtOnce }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take() {
            call_through(|| drop(owner));
        }
    }
}

impl Allocation {
    pub fn new(block: Block, origin: Origin, home: Stream) -> Self {
        // The other library knows the address.
        let order = MemoryOrder::new(matches!(origin, Origin::Foreign(_)));
        Self {
            block,
            origin: ManuallyDrop::new(origin),
            home: ManuallyDrop::new(home),
            given_back: false,
            exposed: AtomicU64::new(0),
            exclusive: AtomicUsize::new(0),
            processes: AtomicBool::new(false),
            ended: false,
            unposted: AtomicUsize::new(0),
            order,
        }
    }

    #[inline]
    pub fn origin(&self) -> &Origin {
        self.check_held();
        &self.origin
    }

    /// The free comes after the work on this stream.
    #[inline]
    pub fn home(&self) -> &Stream {
        self.check_held();
        &self.home
    }

    pub fn set_home(&mut self, home: Stream) {
        self.check_held();
        let former = core::mem::replace(&mut *self.home, home);
        if let Origin::Foreign(Foreign { free: free @ OwnersFree::AtHome, .. }) = &mut *self.origin {
            *free = OwnersFree::InOrderOf(former);
        }
    }

    #[inline]
    fn check_held(&self) {
        assert!(!self.given_back, "memory that was given back has no origin and no home stream");
    }

    /// Takes over what holds for the same memory: its processes, and whether CPU writes are unflushed.
    pub fn inherit(&mut self, same: &Self) {
        self.exposed = AtomicU64::new(same.exposed.load(Ordering::Relaxed));
        self.processes = AtomicBool::new(same.processes.load(Ordering::Relaxed));
        self.unposted = AtomicUsize::new(same.unposted.load(Ordering::Relaxed));
    }

    /// The resource that allocated the memory.
    pub fn resource(&self) -> Option<&SharedResource> {
        match self.origin() {
            Origin::Resource(resource) => Some(resource),
            Origin::Foreign(_) => None,
        }
    }

    pub fn context(&self) -> &Context {
        match self.origin() {
            Origin::Resource(resource) => resource.context(),
            Origin::Foreign(_) => self.home().context(),
        }
    }

    /// How many bytes belong to exclusive parts. 0 for undivided memory, even if its one holder is exclusive.
    #[cfg(feature = "sharing")]
    pub fn exclusive(&self) -> usize {
        self.exclusive.load(Ordering::Acquire)
    }

    pub fn accessibility(&self) -> Accessibility {
        match self.origin() {
            Origin::Resource(resource) => resource.accessibility(),
            Origin::Foreign(foreign) => foreign.accessibility,
        }
    }

    /// Records that the type says from here on that the CPU can address the memory.
    pub fn note_host_kind(&self) {
        if self.accessibility().processes {
            self.processes.store(true, Ordering::Relaxed);
        }
    }

    /// Checks that the CPU may get slices, which nobody else writes.
    #[inline]
    pub fn check_slices(&self, call: &'static str) -> Result<()> {
        if self.processes.load(Ordering::Relaxed) { Err(no_slices(call)) } else { Ok(()) }
    }

    /// Flushes CPU writes in a range of bytes within the allocation.
    pub fn flush(&self, start: *mut u8, length: usize) -> Result<()> {
        match self.origin() {
            Origin::Resource(resource) if length != 0 => {
                // SAFETY: the range is the allocation's, and its owner flushes it.
                unsafe { resource.flush(start, length) }.inspect_err(|_| self.note_unposted())
            }
            _ => Ok(()),
        }
    }

    /// Prepares a range within the allocation for CPU writes. Returns a value for [`end_write`](Self::end_write).
    ///
    /// # Safety
    ///
    /// As [`MemoryResource::begin_write`].
    pub unsafe fn begin_write(&self, start: *mut u8, length: usize) -> Result<bool> {
        match self.origin() {
            Origin::Resource(resource) if length != 0 => {
                // SAFETY: this function's contract.
                let remembered = unsafe { resource.begin_write(start, length) }?;
                if remembered {
                    self.note_unposted();
                }
                Ok(remembered)
            }
            _ => Ok(false),
        }
    }

    /// Prepares a range within the allocation for writes by a guard, which the program may forget. Returns a value for
    /// [`end_write`](Self::end_write).
    ///
    /// # Safety
    ///
    /// As [`begin_write`](Self::begin_write).
    pub unsafe fn begin_guard(&self, start: *mut u8, length: usize) -> Result<bool> {
        // SAFETY: this function's contract.
        let remembered = unsafe { self.begin_write(start, length) }?;
        if !remembered && length != 0 && self.accessibility().write_combined {
            self.note_unposted();
            return Ok(true);
        }
        Ok(remembered)
    }

    /// Fences what forgotten guards have stored to write-combining memory, on whichever threads.
    #[cold]
    pub fn fence_forgotten(&self) {
        if self.accessibility().write_combined {
            host_copy::store_fence_on_all_threads();
        }
    }

    /// Records CPU writes that may be unflushed.
    pub fn note_unposted(&self) {
        self.unposted.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether all CPU writes are flushed, except those of live guards.
    #[inline]
    pub fn is_posted(&self) -> bool {
        self.unposted.load(Ordering::Relaxed) == 0
    }

    /// Records a flush of `size` bytes that had no live guards. A flush of a part says nothing about other parts.
    pub fn note_posted(&self, size: usize) {
        if size == self.block.size() {
            self.unposted.store(0, Ordering::Relaxed);
        }
    }

    /// Flushes the writes that [`begin_write`](Self::begin_write) began.
    pub fn end_write(&self, start: *mut u8, length: usize, remembered: bool) -> Result<()> {
        self.flush(start, length)?;
        if remembered {
            self.unposted.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Waits for the work, and flushes what is unflushed. The block's holder then needs neither before a free.
    pub fn finish(&self) -> Result<()> {
        self.order.after_reads(self.home(), &ALL);
        if self.home().context().liveness() == Liveness::Alive {
            self.home().wait_beside_captures()?;
        }
        match self.origin() {
            Origin::Resource(resource) if !self.is_posted() => self.post_leftovers(resource),
            _ => Ok(()),
        }
    }

    /// Waits for the work so far, then flushes what failed flushes and forgotten guards left. A later flush would
    /// overwrite what the device wrote for the memory's next user. If it fails, the memory is not freed.
    #[cold]
    fn post_leftovers(&self, resource: &SharedResource) -> Result<()> {
        self.fence_forgotten();
        if self.is_coherent() {
            return Ok(());
        }
        if resource.context().liveness() == Liveness::Alive && self.home().context().liveness() == Liveness::Alive {
            self.home().wait_beside_captures()?;
            // SAFETY: all parts are gone, and all borrows of the memory with them.
            unsafe { resource.invalidate(self.block.host_pointer(), self.block.size()) }?;
        }
        Ok(())
    }

    /// The ordinal of the device that holds the memory; `None` for host memory.
    pub fn device(&self) -> Option<i32> {
        match self.origin() {
            Origin::Resource(resource) => resource.is_on_device().then(|| resource.context().device().ordinal()),
            Origin::Foreign(foreign) => foreign.device.filter(|_| !foreign.accessibility.host),
        }
    }

    /// Frees the memory in order of the home stream. Waits for the work if another library frees the memory. Does
    /// nothing if the context has ended.
    ///
    /// After a success the drop does nothing.
    pub fn end(&mut self) -> Result<()> {
        if self.ended {
            return Ok(());
        }
        self.order.free_after_reads(self.home())?;
        if !inside_host_function() && self.keep() {
            return Ok(());
        }
        check_not_forked("freeing a buffer")?;
        match self.origin() {
            Origin::Resource(resource) => {
                let unposted = !self.is_posted();
                if resource.frees_without_context() && !unposted && self.block.device_pointer() != 0 {
                    // SAFETY: as in `free`.
                    unsafe { resource.deallocate(self.block, self.home()) }?;
                } else {
                    // The resource may be the caller's, and panic.
                    let freed = call_back(|| {
                        if unposted {
                            self.post_leftovers(resource)?;
                        }
                        self.free(resource)
                    });
                    freed.unwrap_or_else(|panic| Err(panic.of("a resource")))?;
                }
            }
            // Work cannot use an empty block.
            Origin::Foreign(_) if self.block.size() == 0 => {}
            // The owner may free the memory as soon as this function returns.
            Origin::Foreign(Foreign { free: OwnersFree::AtHome, .. }) => {}
            Origin::Foreign(foreign) if self.home().context().liveness() == Liveness::Alive => match &foreign.free {
                OwnersFree::InOrderOf(stream) if stream == self.home() => {}
                OwnersFree::InOrderOf(stream) if stream.context().liveness() == Liveness::Alive => {
                    stream.order_after_or_wait(self.home())?;
                }
                _ => self.home().wait_beside_captures()?,
            },
            Origin::Foreign(_) => {}
        }
        self.ended = true;
        Ok(())
    }

    fn free(&self, resource: &SharedResource) -> Result<()> {
        // The address, not the size: an empty buffer may also own a block.
        if self.block.device_pointer() == 0 {
            return Ok(());
        }
        if resource.frees_without_context() {
            // SAFETY: as below.
            return unsafe { resource.deallocate(self.block, self.home()) };
        }
        let (context, home) = (resource.context(), self.home());
        let liveness = context.liveness();
        match liveness {
            Liveness::DriverGone => return Ok(()),
            Liveness::Gone => {
                // SAFETY: the block belongs to the resource, `ended` ensures a single free, and all parts are gone.
                unsafe { resource.abandon(self.block) };
                return Ok(());
            }
            Liveness::Alive => {}
        }
        // The home stream may belong to another context of the device. If that context has ended, so has the stream's
        // work.
        let home_is_gone = home.context() != context && home.context().liveness() != Liveness::Alive;
        let default = home_is_gone.then(|| Stream::legacy_default(context));
        // SAFETY: the block belongs to the resource, `ended` ensures a single free, and all parts are gone after
        // ordering the work of their streams before this one.
        unsafe { resource.deallocate(self.block, default.as_ref().unwrap_or(home)) }
    }

    /// Gives up ownership: the drop frees nothing.
    pub fn disown(&mut self) {
        self.ended = true;
    }
}

impl Allocation {
    /// Moves all contents out.
    #[cold]
    fn take(&mut self) -> Self {
        let nowhere = Foreign::without_owner(Accessibility::default(), None);
        Self {
            block: self.block,
            origin: ManuallyDrop::new(core::mem::replace(&mut *self.origin, Origin::Foreign(nowhere))),
            home: ManuallyDrop::new(self.home().clone()),
            given_back: false,
            exposed: AtomicU64::new(*self.exposed.get_mut()),
            exclusive: AtomicUsize::new(*self.exclusive.get_mut()),
            ended: core::mem::replace(&mut self.ended, true),
            unposted: AtomicUsize::new(*self.unposted.get_mut()),
            order: core::mem::take(&mut self.order),
            processes: AtomicBool::new(*self.processes.get_mut()),
        }
    }
}

impl Allocation {
    /// Gives the block back to a cache of its resource, if one takes it at once. The cache may take the references too,
    /// so that the next buffer need not count its own.
    #[inline]
    fn keep(&mut self) -> bool {
        if !self.is_posted() || self.block.device_pointer() == 0 {
            return false;
        }
        let Origin::Resource(resource) = &*self.origin else { return false };
        let Some(inside) = resource.cache_set_id().and_then(|id| ThreadSlot::current().enter(id)) else { return false };
        let owner: *const dyn MemoryResource = Arc::as_ptr(resource);
        let held = (ptr::from_ref(resource), ptr::from_ref(&*self.home));
        // SAFETY: the block belongs to the resource, and `ended` ensures a single free; all parts are gone. The resource
        // lives while the thread is inside, even if the cache takes the references and another thread empties it. This
        // allocation neither uses nor drops them then.
        let kept = unsafe { (*owner).keep(&inside, &self.block, held) };
        drop(inside);
        match kept {
            Keeping::Nothing => return false,
            Keeping::Block => self.ended = true,
            Keeping::BlockAndReferences => (self.ended, self.given_back) = (true, true),
        }
        true
    }

    /// Frees the memory at the end of the allocation.
    fn end_dropped(&mut self) {
        let end = || self.end().or_else(|error| self.context().unless_ended(error));
        let error = match end_beside_captures(end) {
            Ok(true) => return,
            // A free that waits for the home stream fails while that stream captures, and the capture will end.
            Ok(false) => return drop_after_captures(self.take()),
            Err(error) => error,
        };
        self.context().drop_errors().push("freeing a buffer", error);
        // For foreign memory, try once more; if that fails, keep the owner from freeing what the work may still use.
        if matches!(*self.origin, Origin::Foreign(_))
            && self.end().is_err()
            && let Origin::Foreign(foreign) = &mut *self.origin
        {
            core::mem::forget(foreign.owner.take());
        }
    }
}

impl Drop for Allocation {
    #[inline]
    fn drop(&mut self) {
        if inside_host_function() {
            drop_after_host_function(self.take());
        } else {
            self.end_dropped();
        }
        if self.given_back {
            return;
        }
        // SAFETY: nothing uses them any more, and no cache has taken them.
        unsafe {
            ManuallyDrop::drop(&mut self.origin);
            ManuallyDrop::drop(&mut self.home);
        }
    }
}
