//! The imports of this process: each object is imported once and counted.
//!
//! The driver maps memory that is imported twice to one address, and the first free ends both imports. So all importers
//! of one object share one entry here, and the last one frees it. Lookup and import are one step, under a lock. A free
//! may wait for device work, so it runs without the lock; imports wait for it, because it could hit an import that has
//! just received the same address.

use crate::lifetime::waiting::{self, Target};
use crate::locks::{Condvar, Mutex, MutexGuard};
use crate::{Error, Result};
use std::collections::BTreeMap;

/// Counted values by key. The closures of its functions run under the lock, except for the end of a last use. So they must
/// run no code of users, and must call only driver functions that do not wait.
pub(crate) struct Imports<K, V> {
    entries: Mutex<Entries<K, V>>,
    /// Notified at the end of each free.
    freed: Condvar,
}

struct Entries<K, V> {
    here: BTreeMap<K, ImportEntry<V>>,
    /// The keys whose values are being freed.
    ending: Vec<K>,
}

struct ImportEntry<V> {
    value: V,
    users: usize,
}

impl<K: Ord + Clone, V> Imports<K, V> {
    pub const fn new() -> Self {
        Self { entries: Mutex::new(Entries { here: BTreeMap::new(), ending: Vec::new() }), freed: Condvar::new() }
    }

    /// The entries, after the frees for which `key` must wait: its own, or all if it is not here and will be imported.
    fn entries(&self, key: &K, will_import: bool) -> MutexGuard<'_, Entries<K, V>> {
        let call = &"the end of an import";
        let must_wait = |entries: &mut Entries<K, V>| match will_import {
            true => !entries.here.contains_key(key) && !entries.ending.is_empty(),
            false => entries.ending.contains(key),
        };
        waiting::wait_while(call, Target::THREAD, &self.freed, self.entries.lock(), must_wait)
    }

    /// Counts one more user of the value. If it is not here, `open` imports it, and receives all other values.
    pub fn acquire<T>(
        &self,
        key: K,
        open: impl FnOnce(&mut dyn Iterator<Item = &V>) -> Result<V>,
        view: impl FnOnce(&V) -> T,
    ) -> Result<T> {
        // What `open` undoes may fail.
        let mut entries = self.entries(&key, true);
        if let Some(entry) = entries.here.get_mut(&key) {
            entry.users += 1;
            return Ok(view(&entry.value));
        }
        let value = open(&mut entries.here.values().map(|entry| &entry.value))?;
        let seen = view(&value);
        entries.here.insert(key, ImportEntry { value, users: 1 });
        Ok(seen)
    }

    /// Imports a value whose key is known only afterwards, and counts one more user of it: of the one that is here, if
    /// `is_same` finds it.
    pub fn acquire_opened<T>(
        &self,
        open: impl FnOnce() -> Result<(K, V)>,
        is_same: impl Fn(&V, &V) -> bool,
        view: impl FnOnce(&K, &V) -> T,
    ) -> Result<T> {
        let call = &"the end of an import";
        let must_wait = |entries: &mut Entries<K, V>| !entries.ending.is_empty();
        let mut entries = waiting::wait_while(call, Target::THREAD, &self.freed, self.entries.lock(), must_wait);
        let (key, value) = open()?;
        if let Some((key, entry)) = entries.here.iter_mut().find(|(_, entry)| is_same(&entry.value, &value)) {
            entry.users += 1;
            return Ok(view(key, &entry.value));
        }
        let seen = view(&key, &value);
        entries.here.insert(key, ImportEntry { value, users: 1 });
        Ok(seen)
    }

    /// Counts one more user of the value, if it is here.
    pub fn find<T>(&self, key: &K, view: impl FnOnce(&V) -> T) -> Option<T> {
        let mut entries = self.entries(key, false);
        let entry = entries.here.get_mut(key)?;
        entry.users += 1;
        Some(view(&entry.value))
    }

    /// Ends one use. `end` receives whether it was the last, and then frees the value. The entry goes away even if
    /// `end` fails, so the next import asks the driver again. Both stay after an error for which `stays` is true: then the
    /// caller ends the use later, or never, if nobody knows whether its work is done.
    pub fn release<T: Default>(
        &self,
        key: &K,
        stays: impl FnOnce(&Error) -> bool,
        end: impl FnOnce(&mut V, bool) -> Result<T>,
    ) -> Result<T> {
        let mut entries = self.entries(key, false);
        let Some(entry) = entries.here.get_mut(key) else { return Ok(T::default()) };
        if entry.users > 1 {
            let given = end(&mut entry.value, false);
            if !given.as_ref().is_err_and(stays) {
                entry.users -= 1;
            }
            return given;
        }
        let Some((key, mut entry)) = entries.here.remove_entry(key) else { return Ok(T::default()) };
        entries.ending.push(key.clone());
        drop(entries);
        let given = end(&mut entry.value, true);
        let mut entries = self.entries.lock();
        entries.ending.retain(|ending| *ending != key);
        let ended = if given.as_ref().is_err_and(stays) { entries.here.insert(key, entry) } else { Some(entry) };
        drop(entries);
        self.freed.notify_all();
        // Not under the lock, because a value's drop may run any code.
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
    fn values_opened_without_a_key_share_an_entry() {
        let imports = Imports::<u32, u32>::new();
        let same = |one: &u32, other: &u32| one == other;
        imports.acquire(7, |_| Ok(70), |_| ()).unwrap();
        for (key, value, expected) in [(8, 70, 7), (9, 90, 9), (10, 90, 9)] {
            assert_eq!(imports.acquire_opened(|| Ok((key, value)), same, |key, _| *key), Ok(expected));
        }
        let ends: Vec<_> = [7, 7, 9, 9]
            .iter()
            .filter_map(|key| imports.release(key, |_| false, |_, last| Ok(Some(last))).unwrap())
            .collect();
        assert_eq!(ends, [false, true, false, true]);
        assert_eq!(imports.acquire_opened(|| Err(refused()), same, |key, _| *key), Err(refused()));
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
