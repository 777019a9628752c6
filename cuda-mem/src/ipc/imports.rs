//! What this process has imported, each thing once, with a count.
//!
//! The driver gives memory that is imported twice the same address, and the first free ends it for all. So everything
//! that imports the same thing shares one entry here, and the last one to let go frees. Looking up and importing are one
//! step under the lock, and so are letting go and freeing: else a free could meet an import that has just been given the
//! same address.

use crate::Result;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Values by key, counted. The lock is held while its functions' closures run: these make driver calls that do not wait,
/// and run no code of users.
pub(crate) struct Imports<K, V>(Mutex<BTreeMap<K, Entry<V>>>);

struct Entry<V> {
    value: V,
    users: usize,
}

impl<K: Ord, V> Imports<K, V> {
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Counts one more user of the value, which is imported if it is not here; `open` is given the others.
    pub fn acquire<T>(
        &self,
        key: K,
        open: impl FnOnce(&mut dyn Iterator<Item = &V>) -> Result<V>,
        view: impl FnOnce(&V) -> T,
    ) -> Result<T> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get_mut(&key) {
            entry.users += 1;
            return Ok(view(&entry.value));
        }
        let value = open(&mut entries.values().map(|entry| &entry.value))?;
        let seen = view(&value);
        entries.insert(key, Entry { value, users: 1 });
        Ok(seen)
    }

    /// Counts one more user of the value, if it is here.
    pub fn find<T>(&self, key: &K, view: impl FnOnce(&V) -> T) -> Option<T> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get_mut(key)?;
        entry.users += 1;
        Some(view(&entry.value))
    }

    /// Ends one use: `end` is told whether it was the last, and if so frees the value. What it cannot free is forgotten
    /// all the same: the driver is asked anew for the next import.
    pub fn release<T: Default>(&self, key: &K, end: impl FnOnce(&mut V, bool) -> Result<T>) -> Result<T> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = entries.get_mut(key) else { return Ok(T::default()) };
        let last = entry.users == 1;
        let given = end(&mut entry.value, last);
        entry.users -= 1;
        let ended = if last { entries.remove(key) } else { None };
        // A value's own drop may be anything.
        drop(entries);
        drop(ended);
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn refused() -> Error {
        Error::System { call: "test", code: 1 }
    }

    #[test]
    fn what_is_imported_twice_is_opened_once_and_freed_once() {
        let imports = Imports::<u32, u32>::new();
        assert_eq!(imports.acquire(1, |_| Ok(10), |value| *value), Ok(10));
        assert_eq!(imports.acquire(1, |_| unreachable!(), |value| *value), Ok(10));
        assert_eq!(imports.find(&1, |value| *value), Some(10));
        let mut ends = Vec::new();
        for _ in 0..4 {
            ends.extend(imports.release(&1, |_, last| Ok(Some(last))).unwrap());
        }
        assert_eq!(ends, [false, false, true]);
        assert_eq!(imports.find(&1, |value| *value), None);
    }

    #[test]
    fn what_fails_to_open_or_to_end_is_not_here() {
        let imports = Imports::<u32, u32>::new();
        assert_eq!(imports.acquire(1, |_| Err(refused()), |value| *value), Err(refused()));
        imports.acquire(1, |others| Ok(others.count() as u32), |_| ()).unwrap();
        imports.acquire(2, |others| Ok(others.count() as u32), |_| ()).unwrap();
        assert_eq!(imports.release::<()>(&1, |_, _| Err(refused())), Err(refused()));
        assert_eq!(imports.find(&1, |value| *value), None);
        assert_eq!(imports.find(&2, |value| *value), Some(1));
    }
}
