//! All values of one kind, found by handle.

use super::id::{CAPACITY, Id, KINDS, Kind};
use super::slot::{Closed, Past, Slot};
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::LocalKey;

/// What handles can stand for.
pub trait Object: Send + Sync + Sized + 'static {
    const KIND: Kind;

    fn table() -> &'static Table<Self>;

    /// The vacant slots that the calling thread keeps.
    fn kept() -> &'static LocalKey<RefCell<Kept<Self>>>;
}

/// Why a handle was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is 0.
    Null,
    /// It stands for a value of another kind.
    Kind(Kind),
    /// It stood for a value of this kind, which was destroyed.
    Destroyed(Kind),
    /// This copy of the library never made such a handle.
    Unknown,
}

/// The first chunk has this many slots, and each further one twice as many.
const FIRST: u32 = 64;
const CHUNKS: usize = (CAPACITY / FIRST).ilog2() as usize + 1;
/// How many vacant slots go between a thread and the table at once.
const BATCH: usize = 32;

#[derive(Debug)]
pub struct Table<T> {
    /// Chunks are never freed, so that a stale handle finds its slot.
    chunks: [OnceLock<Box<[Slot<T>]>>; CHUNKS],
    vacant: Mutex<Vacant>,
}

#[derive(Debug)]
struct Vacant {
    indices: Vec<u32>,
    /// Slots from here on were never used.
    fresh: u32,
}

/// Vacant slots of one thread. It gives them back when it ends.
#[derive(Debug)]
pub struct Kept<T: Object> {
    indices: Vec<u32>,
    table: &'static Table<T>,
}

impl<T: Object> Kept<T> {
    pub fn new() -> Self {
        Self { indices: Vec::new(), table: T::table() }
    }
}

impl<T: Object> Drop for Kept<T> {
    fn drop(&mut self) {
        self.table.vacant().indices.append(&mut self.indices);
    }
}

/// A use of a value: it stays until this ends.
pub struct Use<T: Object> {
    slot: &'static Slot<T>,
    index: u32,
}

/// What handles of a kind have stood for, whatever type its values have.
trait History: Sync {
    fn past(&self, index: u32, generation: u32) -> Past;
}

/// The tables of the kinds of which handles were made, by the kind's number.
static HISTORIES: [OnceLock<&'static dyn History>; KINDS] = [const { OnceLock::new() }; KINDS];

impl<T: Object> History for Table<T> {
    fn past(&self, index: u32, generation: u32) -> Past {
        match self.slot(index) {
            Some(slot) if generation >= first_generation(T::KIND, index) => slot.past(generation),
            _ => Past::Never,
        }
    }
}

impl<T> Table<T> {
    pub const fn new() -> Self {
        Self {
            chunks: [const { OnceLock::new() }; CHUNKS],
            vacant: Mutex::new(Vacant { indices: Vec::new(), fresh: 0 }),
        }
    }

    fn vacant(&self) -> MutexGuard<'_, Vacant> {
        self.vacant.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slot of an index that was given out before.
    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        let (chunk, offset) = place(index);
        self.chunks.get(chunk)?.get()?.get(offset)
    }

    /// A batch of indices; empty when all slots are in use.
    fn refill(&self, indices: &mut Vec<u32>)
    where
        T: Object,
    {
        HISTORIES[T::KIND as usize].get_or_init(|| T::table());
        let mut vacant = self.vacant();
        let kept = vacant.indices.len().saturating_sub(BATCH);
        indices.extend(vacant.indices.drain(kept..));
        while indices.len() < BATCH && vacant.fresh < CAPACITY {
            let (chunk, _) = place(vacant.fresh);
            self.chunks[chunk].get_or_init(|| {
                let indices = (FIRST << chunk) - FIRST..(FIRST << (chunk + 1)) - FIRST;
                indices.map(|index| Slot::new(first_generation(T::KIND, index))).collect()
            });
            indices.push(vacant.fresh);
            vacant.fresh += 1;
        }
    }
}

/// The generation that a slot begins with: another random one for each slot, so that no handle of ours becomes another by a change
/// of some bits, and handles of another copy of the library in this process, or of another process, are none of ours. Most
/// generations are still to come.
fn first_generation(kind: Kind, index: u32) -> u32 {
    static RANDOM: OnceLock<RandomState> = OnceLock::new();
    let hash = RANDOM.get_or_init(RandomState::new).hash_one((kind as u8, index));
    1 + (hash as u32 >> 2)
}

/// Where a slot lies: the chunk, and where in it.
#[inline]
fn place(index: u32) -> (usize, usize) {
    let number = index + FIRST;
    let chunk = number.ilog2() - FIRST.ilog2();
    (chunk as usize, (number - (FIRST << chunk)) as usize)
}

/// Puts the value that `make` gives into the table; gives its handle. The value is made where a slot is found already, so
/// that it is moved once.
///
/// # Errors
///
/// `Ok(Err(_))`: `make` failed. `Err(_)`: all handles of the kind are in use, and `make` was not called.
#[inline]
pub fn insert_with<T: Object, E>(make: impl FnOnce() -> Result<T, E>) -> Result<Result<u64, E>, Full> {
    let index = T::kept().try_with(|kept| {
        let mut kept = kept.borrow_mut();
        let found = kept.indices.pop();
        found.or_else(|| {
            T::table().refill(&mut kept.indices);
            kept.indices.pop()
        })
    });
    // A thread that is ending keeps no slots.
    let index = index.unwrap_or_else(|_| {
        let mut indices = Vec::new();
        T::table().refill(&mut indices);
        let index = indices.pop();
        T::table().vacant().indices.append(&mut indices);
        index
    });
    let Some((index, slot)) = index.and_then(|index| Some((index, T::table().slot(index)?))) else { return Err(Full) };
    let vacancy = Vacancy::<T> { index, object: PhantomData };
    Ok(make().map(|value| {
        core::mem::forget(vacancy);
        // SAFETY: an index in a list of vacant slots is in no other, and was taken out of it by us.
        let generation = unsafe { slot.open(value) };
        Id { index, kind: T::KIND, generation }.pack()
    }))
}

/// All handles of a kind are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The index of a vacant slot that is in no list; back in one when this ends.
struct Vacancy<T: Object> {
    index: u32,
    object: PhantomData<T>,
}

impl<T: Object> Drop for Vacancy<T> {
    #[inline]
    fn drop(&mut self) {
        let kept = T::kept().try_with(|kept| {
            let indices = &mut kept.borrow_mut().indices;
            indices.push(self.index);
            if indices.len() > 2 * BATCH {
                let rest = indices.split_off(BATCH);
                T::table().vacant().indices.extend(rest);
            }
        });
        if kept.is_err() {
            T::table().vacant().indices.push(self.index);
        }
    }
}

/// Finds a value, and keeps it until the use ends.
///
/// # Errors
///
/// The handle stands for no value of this kind.
#[inline]
pub fn find<T: Object>(handle: u64) -> Result<Use<T>, Refusal> {
    if let Some((index, generation)) = Id::of_kind(handle, T::KIND)
        && let Some(slot) = T::table().slot(index)
        && slot.enter(generation)
    {
        return Ok(Use { slot, index });
    }
    Err(refusal::<T>(handle))
}

/// Ends a value: `end` does what may fail, and then it is dropped. In use by others, it is dropped by the last of them.
///
/// # Errors
///
/// `Ok(Err(_))`: `end` failed, and the handle stands for the value as before. `Err(_)`: the handle stands for no value of this
/// kind.
#[inline]
pub fn remove<T: Object, E>(handle: u64, end: impl FnOnce(&mut T) -> Result<(), E>) -> Result<Result<(), E>, Refusal> {
    let Some((index, generation)) = Id::of_kind(handle, T::KIND) else { return Err(refusal::<T>(handle)) };
    let Some(slot) = T::table().slot(index) else { return Err(refusal::<T>(handle)) };
    match slot.close(generation) {
        Closed::Taken => {}
        Closed::InUse => return Ok(Ok(())),
        Closed::Gone => return Err(refusal::<T>(handle)),
    }
    let taken = Taken { slot, index };
    // SAFETY: taken above, and not discarded.
    match unsafe { slot.with_value(end) } {
        Ok(()) => {
            taken.discard();
            Ok(Ok(()))
        }
        Err(error) => {
            core::mem::forget(taken);
            // SAFETY: as above.
            unsafe { slot.reopen() };
            Ok(Err(error))
        }
    }
}

/// A slot that is taken; vacant when this ends. A value that was not discarded by then is lost: its end has panicked.
struct Taken<T: Object> {
    slot: &'static Slot<T>,
    index: u32,
}

impl<T: Object> Taken<T> {
    #[inline]
    fn discard(self) {
        // SAFETY: whoever makes this has taken the slot; this is its end.
        unsafe { self.slot.discard() };
    }
}

impl<T: Object> Drop for Taken<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: whoever makes this has taken the slot.
        if unsafe { self.slot.vacate() } {
            drop(Vacancy::<T> { index: self.index, object: PhantomData });
        }
    }
}

#[cold]
fn refusal<T: Object>(handle: u64) -> Refusal {
    if handle == 0 {
        return Refusal::Null;
    }
    let Some(id) = Id::unpack(handle) else { return Refusal::Unknown };
    let history = HISTORIES[id.kind as usize].get();
    match history.map_or(Past::Never, |history| history.past(id.index, id.generation)) {
        Past::Never => Refusal::Unknown,
        Past::Open if id.kind != T::KIND => Refusal::Kind(id.kind),
        // Also where an end was refused since the value was looked for.
        Past::Open | Past::Over => Refusal::Destroyed(id.kind),
    }
}

impl<T: Object> Use<T> {
    /// Ends a value that was destroyed while it was used.
    #[cold]
    fn end_late(&self) {
        Taken { slot: self.slot, index: self.index }.discard();
    }
}

impl<T: Object> Deref for Use<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: entered when this was made, and left when it ends.
        unsafe { self.slot.value() }
    }
}

impl<T: Object> Drop for Use<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: entered when this was made.
        if unsafe { self.slot.leave() } {
            self.end_late();
        }
    }
}

impl<T: Object> fmt::Debug for Use<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Use").field("kind", &T::KIND).field("index", &self.index).finish_non_exhaustive()
    }
}
