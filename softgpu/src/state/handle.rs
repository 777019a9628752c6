//! Handles: numbers that are never reused. softgpu recognises stale and invented handles, and never follows a caller's
//! value as a pointer.

use crate::sync::{read, write};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

/// The next sequence number. One sequence counts the objects of all kinds for the whole life of the process.
static SEQUENCE: AtomicU64 = AtomicU64::new(1);

pub(crate) fn next_sequence() -> u64 {
    SEQUENCE.fetch_add(1, Ordering::Relaxed)
}

/// The handle for a sequence number and a kind (from 1). Its low 4 bits are clear, as in an address.
pub(crate) fn handle_of(tag: u64, sequence: u64) -> u64 {
    tag << 44 | sequence << 4
}

/// The live objects of one kind.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    tag: u64,
    live: RwLock<HashMap<u64, Arc<T>, BuildHasherDefault<Spread>>>,
}

impl<T> Handles<T> {
    /// A table for the kind `tag` (from 1).
    pub(crate) fn new(tag: u64) -> Self {
        Self { tag, live: RwLock::default() }
    }

    pub(crate) fn handle(&self, sequence: u64) -> u64 {
        handle_of(self.tag, sequence)
    }

    /// Stores an object under the handle of its sequence number. Returns both.
    pub(crate) fn insert(&self, sequence: u64, object: T) -> (u64, Arc<T>) {
        let object = Arc::new(object);
        let handle = self.handle(sequence);
        write(&self.live).insert(handle, object.clone());
        (handle, object)
    }

    /// Stores an object under its handle again.
    pub(crate) fn put_back(&self, sequence: u64, object: &Arc<T>) -> u64 {
        let handle = self.handle(sequence);
        write(&self.live).insert(handle, object.clone());
        handle
    }

    pub(crate) fn get(&self, handle: u64) -> Option<Arc<T>> {
        read(&self.live).get(&handle).cloned()
    }

    /// Whether the handle is, or was, that of an object of this kind.
    pub(crate) fn was_issued(&self, handle: u64) -> bool {
        let sequence = handle >> 4 & ((1 << 40) - 1);
        sequence < SEQUENCE.load(Ordering::Relaxed) && handle == self.handle(sequence)
    }

    pub(crate) fn remove(&self, handle: u64) -> Option<Arc<T>> {
        write(&self.live).remove(&handle)
    }

    /// Whether a handle of this kind was ever given out, even if its object is gone.
    pub(crate) fn was_given(&self, handle: u64) -> bool {
        handle >> 44 == self.tag && handle & 15 == 0 && {
            let sequence = (handle & ((1 << 44) - 1)) >> 4;
            sequence > 0 && sequence < SEQUENCE.load(Ordering::Relaxed)
        }
    }

    /// Removes and returns the objects that `select` accepts.
    pub(crate) fn remove_where(&self, mut select: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        write(&self.live).extract_if(|_, object| select(object)).map(|(_, object)| object).collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        read(&self.live).values().cloned().collect()
    }
}

/// A hasher. Handles are distinct already, so one multiplication spreads them enough.
#[derive(Debug, Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_values_are_never_reused_and_stale_ones_are_detected() {
        let table = Handles::new(3);
        let (first, _) = table.insert(next_sequence(), "first");
        let (second, _) = table.insert(next_sequence(), "second");
        assert_ne!(first, second);
        assert_eq!(table.remove(first).as_deref(), Some(&"first"));
        assert!(table.get(first).is_none() && table.remove(first).is_none() && table.was_given(first));
        assert!(!table.was_given(0) && !table.was_given(first | 1) && !table.was_given(table.handle(1 << 39)));
        assert!(!Handles::<()>::new(4).was_given(first));
        assert_eq!(table.remove_where(|name| *name == "second").len(), 1);
        assert!(table.all().is_empty());
    }
}
