//! How buffers hold an allocation: one alone, or several with a part each.

use super::allocation::Allocation;
use super::cpu_gate::{CpuGate, CpuReady};
use super::memory_order::ALL;
use crate::driver::context::Liveness;
use crate::lifetime::{drop_after_captures, drop_after_host_function, end_beside_captures, inside_host_function};
use crate::{Result, Stream};
use core::sync::atomic::Ordering;
use std::sync::Arc;

/// A part of an allocation, which may have its own home stream.
pub(super) struct Part {
    pub allocation: Arc<Allocation>,
    /// None for the home stream of the allocation, which needs no further reference.
    home: Option<Stream>,
    /// How many bytes only this part can access; the allocation's count includes them.
    exclusive: usize,
    /// Keeps the CPU from a shared part until the work from before is done. None if there was none.
    cpu: Option<Arc<CpuGate>>,
}

impl Part {
    /// All of an allocation.
    pub fn whole(allocation: Allocation) -> Self {
        Self { allocation: Arc::new(allocation), home: None, exclusive: 0, cpu: None }
    }

    /// A part that others may access too.
    pub fn shared(allocation: Arc<Allocation>, home: &Stream) -> Self {
        let home = Self::own_home(&allocation, home);
        Self { allocation, home, exclusive: 0, cpu: None }
    }

    /// The home stream to keep beside the allocation's. Another value of the same stream may keep more alive.
    fn own_home(allocation: &Allocation, home: &Stream) -> Option<Stream> {
        (!home.is_clone_of(allocation.home())).then(|| home.clone())
    }

    /// A shared part with the same memory.
    pub fn share(&self) -> Self {
        let (allocation, home) = (self.allocation.clone(), self.home.clone());
        Self { allocation, home, exclusive: 0, cpu: self.cpu.clone() }
    }

    /// Divides an exclusive part into two exclusive parts with these sizes.
    pub fn divide(mut self, left: usize, right: usize) -> (Self, Self) {
        let mut other = self.share();
        // This order never counts fewer exclusive bytes than there are.
        other.count(right);
        self.count(left);
        (self, other)
    }

    /// Makes the part shared. The CPU's first access passes the gate.
    pub fn open(mut self, cpu: Option<Arc<CpuGate>>) -> Self {
        self.count(0);
        self.cpu = cpu;
        self
    }

    /// What the CPU must wait for before it accesses the part.
    pub fn cpu_gate(&self) -> Option<Arc<CpuGate>> {
        self.cpu.clone()
    }

    /// Returns the allocation if nothing else holds it.
    pub fn try_into_whole(self) -> core::result::Result<Allocation, Self> {
        // With a count of 1 this part is the only holder, and nobody else can clone it.
        if Arc::strong_count(&self.allocation) != 1 {
            return Err(self);
        }
        let (home, allocation, cpu) = (self.home.clone(), self.allocation.clone(), self.cpu.clone());
        // The drop orders the part's stream before the allocation's. If it cannot, it keeps the allocation.
        drop(self);
        Arc::try_unwrap(allocation).map_err(|allocation| Self { allocation, home, exclusive: 0, cpu })
    }

    fn count(&mut self, exclusive: usize) {
        if exclusive == self.exclusive {
            return;
        }
        self.allocation.exclusive.fetch_add(exclusive, Ordering::Relaxed);
        self.allocation.exclusive.fetch_sub(self.exclusive, Ordering::Release);
        self.exclusive = exclusive;
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if inside_host_function() {
            let exclusive = core::mem::take(&mut self.exclusive);
            let (allocation, home, cpu) = (self.allocation.clone(), self.home.clone(), self.cpu.take());
            return drop_after_host_function(Self { allocation, home, exclusive, cpu });
        }
        self.count(0);
        let Some(home) = &self.home else { return };
        if home == self.allocation.home() || home.context().liveness() != Liveness::Alive {
            return;
        }
        // Some part's drop frees the memory; that free must come after this part's work.
        let order = || {
            let ordered = self.allocation.home().order_after_or_wait(home);
            ordered.or_else(|error| home.context().unless_ended(error))
        };
        let ended = end_beside_captures(order);
        self.allocation.order.note_work();
        match ended {
            Ok(true) => {}
            // The work may still use the memory, so keep it. A capture that forbids the ordering will end.
            Ok(false) => drop_after_captures(self.share()),
            Err(error) => {
                core::mem::forget(self.share());
                home.context().drop_errors().push("ordering a part's work before its memory is freed", error);
            }
        }
    }
}

/// How a buffer holds an allocation: a shared buffer by a [`Part`], an exclusive one by an [`AllocationHolder`].
pub(super) trait Hold: Sized + Send + Sync {
    fn allocation(&self) -> &Allocation;
    fn home(&self) -> &Stream;
    /// Whether the allocation is undivided.
    fn is_whole(&self) -> bool;
    /// Whether [`cpu_ready`](Self::cpu_ready) would return at once.
    fn is_cpu_ready(&self) -> bool;
    /// Waits for the work from before the memory became shared. Exclusive memory waits for its home stream instead.
    fn cpu_ready(&self) -> Result<CpuReady<'_>>;
    /// The same memory for an alias of the buffer, which frees nothing.
    fn alias(&self) -> Self;
    /// Changes the home stream.
    fn set_home(&mut self, stream: &Stream);

    /// Orders later work on `stream`, after all work so far.
    fn move_to(&mut self, stream: &Stream) -> Result<()> {
        // What the former home stream waits for, the new one waits for too.
        self.allocation().order.after_reads(self.allocation().home(), &ALL);
        stream.order_after(self.home())?;
        self.allocation().order.note_work();
        self.set_home(stream);
        Ok(())
    }
}

impl Hold for Part {
    #[inline]
    fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    #[inline]
    fn home(&self) -> &Stream {
        self.home.as_ref().unwrap_or_else(|| self.allocation.home())
    }

    #[inline]
    fn is_whole(&self) -> bool {
        false
    }

    #[inline]
    fn is_cpu_ready(&self) -> bool {
        self.cpu.as_ref().is_none_or(|gate| gate.is_open())
    }

    #[inline]
    fn cpu_ready(&self) -> Result<CpuReady<'_>> {
        self.cpu.as_ref().map_or(Ok(CpuReady::after_wait()), |gate| gate.pass(self.home()))
    }

    fn alias(&self) -> Self {
        self.share()
    }

    fn set_home(&mut self, stream: &Stream) {
        self.home = Self::own_home(&self.allocation, stream);
    }
}

/// How an exclusive buffer holds an allocation. An undivided buffer needs no reference count.
pub(super) enum AllocationHolder {
    Whole(Allocation),
    Part(Part),
}

impl Hold for AllocationHolder {
    #[inline]
    fn allocation(&self) -> &Allocation {
        match self {
            AllocationHolder::Whole(allocation) => allocation,
            AllocationHolder::Part(part) => &part.allocation,
        }
    }

    #[inline]
    fn home(&self) -> &Stream {
        match self {
            AllocationHolder::Whole(allocation) => allocation.home(),
            AllocationHolder::Part(part) => part.home(),
        }
    }

    #[inline]
    fn is_whole(&self) -> bool {
        matches!(self, AllocationHolder::Whole(_))
    }

    #[inline]
    fn is_cpu_ready(&self) -> bool {
        match self {
            AllocationHolder::Whole(_) => true,
            AllocationHolder::Part(part) => part.is_cpu_ready(),
        }
    }

    #[inline]
    fn cpu_ready(&self) -> Result<CpuReady<'_>> {
        match self {
            AllocationHolder::Whole(_) => Ok(CpuReady::after_wait()),
            AllocationHolder::Part(part) => part.cpu_ready(),
        }
    }

    fn alias(&self) -> Self {
        match self {
            AllocationHolder::Whole(allocation) => AllocationHolder::Whole(allocation.alias()),
            AllocationHolder::Part(part) => AllocationHolder::Part(part.share()),
        }
    }

    fn set_home(&mut self, stream: &Stream) {
        match self {
            AllocationHolder::Whole(allocation) => allocation.set_home(stream.clone()),
            AllocationHolder::Part(part) => part.set_home(stream),
        }
    }
}

impl AllocationHolder {
    /// Converts to a part, which permits several holders.
    pub fn into_part(self) -> Part {
        match self {
            AllocationHolder::Whole(allocation) => Part::whole(allocation),
            AllocationHolder::Part(part) => part,
        }
    }
}
