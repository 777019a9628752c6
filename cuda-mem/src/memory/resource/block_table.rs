//! What a resource owns behind its blocks.

use crate::locks::RwLock;
use core::mem;
use core::ops::Deref;
use std::collections::BTreeMap;

/// The owner of the memory behind a block.
pub(crate) trait BlockOwner {
    /// Ends the owner at the end of its resource. Leaks the memory, unless a wait has shown that its work is done: the free
    /// of the block failed, and was reported, or nobody deallocated it.
    fn end_with_resource(self);
}

/// The owners of the memory behind a resource's blocks, by address.
#[derive(Debug)]
pub(crate) struct BlockTable<T: BlockOwner>(RwLock<BTreeMap<u64, T>>);

impl<T: BlockOwner> Default for BlockTable<T> {
    fn default() -> Self {
        Self(RwLock::new(BTreeMap::new()))
    }
}

impl<T: BlockOwner> Deref for BlockTable<T> {
    type Target = RwLock<BTreeMap<u64, T>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T: BlockOwner> Drop for BlockTable<T> {
    fn drop(&mut self) {
        let left = mem::take(&mut *self.0.write());
        left.into_values().for_each(T::end_with_resource);
    }
}
