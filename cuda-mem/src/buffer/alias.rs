//! A second value for a buffer's memory, for calls of the C library that wait: other threads use the handle meanwhile.

use super::allocation::{Allocation, Foreign, Origin};
use super::holder::Hold;
use super::work::Work;
use super::{Access, Buffer};
use crate::Result;
use crate::memory::resource::Kind;

impl<T, K: Kind, A: Access> Buffer<T, K, A> {
    /// A second value for the memory, with the same home stream, which owns nothing.
    ///
    /// # Safety
    ///
    /// The memory stays allocated, and where it is, while the result lives. The caller then calls
    /// [`absorb`](Self::absorb) with it. Nobody else accesses, without a lock, the bytes that it accesses.
    #[doc(hidden)]
    #[must_use]
    pub unsafe fn alias(&self) -> Self {
        // Copies by the two values do not know of each other.
        self.tell_address();
        Self::with_work(self.hold.alias(), self.offset, self.length, self.work.alias())
    }

    /// Takes note of what an [`alias`](Self::alias) has queued, after a success or an error.
    ///
    /// # Errors
    ///
    /// The home stream has changed meanwhile, and cannot wait for the alias's work.
    #[doc(hidden)]
    pub fn absorb(&self, alias: Self) -> Result<()> {
        let ordered = match alias.stream() == self.stream() {
            true => Ok(()),
            false => self.stream().order_after_or_wait(alias.stream()),
        };
        self.mark_busy();
        if !alias.hold.allocation().is_posted() {
            self.hold.allocation().note_unposted();
        }
        ordered
    }
}

impl Allocation {
    /// The same memory, which the result does not free.
    pub(super) fn alias(&self) -> Self {
        let origin = match self.origin() {
            Origin::Resource(resource) => Origin::Resource(resource.clone()),
            Origin::Foreign(Foreign { accessibility, device, .. }) => {
                Origin::Foreign(Foreign::without_owner(*accessibility, *device))
            }
        };
        let mut alias = Self::new(self.block, origin, self.home().clone());
        alias.order.tell_address(alias.home());
        alias.inherit(self);
        alias.disown();
        alias
    }
}

impl Work {
    /// The same work, as far as it is known now.
    fn alias(&self) -> Self {
        let alias = Self::new(self.pending().is_some());
        if self.has_uses() {
            alias.uses().inherit(self.uses());
        }
        alias
    }
}
