//! The imports of this process: each object is imported once and counted.
//!
//! The driver maps memory that is imported twice to one address, and the first free ends both imports. So all importers
//! of one object share one entry here, and the last one frees it. One lock covers lookup with import, and release with
//! free: otherwise a free could hit an import that has just received the same address.

use crate::locks::Mutex;
use crate::{Error, Result};
use std::collections::BTreeMap;

/// Counted values by key. The closures of its functions run under the lock, so they must run no code of users, and must
/// call only driver functions that do not wait.
pub(crate) struct Imports<K, V>(Mutex<BTreeMap<K, ImportEntry<V>>>);

struct ImportEntry<V> {
    value: V,
    users: usize,
}

impl<K: Ord, V> Imports<K, V> {
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Counts one more user of the value. If it is not here, `open` imports it, and receives all other values.
    pub fn acquire<T>(
        &self,
        key: K,
        open: impl FnOnce(&mut dyn Iterator<Item = &V>) -> Result<V>,
        view: impl FnOnce(&V) -> T,
    ) -> Result<T> {
        let mut entries = self.0.lock();
        if let Some(entry) = entries.get_mut(&key) {
            entry.users += 1;
            return Ok(view(&entry.value));
        }
        let value = open(&mut entries.values().map(|entry| &entry.value))?;
        let seen = view(&value);
        entries.insert(key, ImportEntry { value, users: 1 });
        Ok(seen)
    }

    /// Counts one more user of the value, if it is here.
    pub fn find<T>(&self, key: &K, view: impl FnOnce(&V) -> T) -> Option<T> {
        let mut entries = self.0.lock();
        let entry = entries.get_mut(key)?;
        entry.users += 1;
        Some(view(&entry.value))
    }

    /// Ends one use. `end` receives whether it was the last, and then frees the value. The entry goes away even if
    /// `end` fails, so the next import asks the driver again. It stays after an error for which `again` is true: then the
    /// caller ends the use later.
    pub fn release<T: Default>(
        &self,
        key: &K,
        again: impl FnOnce(&Error) -> bool,
        end: impl FnOnce(&mut V, bool) -> Result<T>,
    ) -> Result<T> {
        let mut entries = self.0.lock();
        let Some(entry) = entries.get_mut(key) else { return Ok(T::default()) };
        let last = entry.users == 1;
        let given = end(&mut entry.value, last);
        if given.as_ref().is_err_and(again) {
            return given;
        }
        entry.users -= 1;
        let ended = if last { entries.remove(key) } else { None };
        // Not under the lock, because a value's drop may run any code.
        drop(entries);
        drop(ended);
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ends.extend(imports.release(&1, |_| false, |_, last| Ok(Some(last))).unwrap());
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
        assert_eq!(imports.release::<()>(&1, |_| true, |_, _| Err(refused())), Err(refused()));
        let end = |_: &mut u32, last: bool| {
            assert!(last, "the use stayed, to be ended again");
            Err(refused())
        };
        assert_eq!(imports.release::<()>(&1, |_| false, end), Err(refused()));
        assert_eq!(imports.find(&1, |value| *value), None);
        assert_eq!(imports.find(&2, |value| *value), Some(1));
    }
}
