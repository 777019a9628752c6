//! The table of all values of one kind, found by handle.

use super::id::{CAPACITY, Id, KINDS, Kind};
use super::lasting::Begun;
use super::slot::{Closed, GenerationStatus, NotBegun, Slot};
use super::sync;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::LocalKey;

/// A type of value that handles can name.
pub trait Object: Send + Sync + Sized + 'static {
    const KIND: Kind;

    fn table() -> &'static Table<Self>;

    /// The vacant slots that the calling thread caches.
    fn kept() -> &'static LocalKey<RefCell<SpareSlots<Self>>>;
}

/// Why a handle was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The handle is 0.
    Null,
    /// The handle names a value of another kind.
    Kind(Kind),
    /// The handle named a value of this kind, which was destroyed.
    Destroyed(Kind),
    /// This copy of the library never made such a handle.
    Unknown,
}

/// The first chunk has this many slots, and each further chunk twice as many as the one before.
const FIRST: u32 = 64;
const CHUNKS: usize = (CAPACITY / FIRST).ilog2() as usize + 1;
/// How many vacant slots move between a thread and the table at once.
const BATCH: usize = 32;

#[derive(Debug)]
pub struct Table<T> {
    /// Chunks are never freed, so that a stale handle finds its slot.
    chunks: [OnceLock<Box<[Slot<T>]>>; CHUNKS],
    vacant: Mutex<Vacant>,
    /// Held while a thread decides whether it ends a lasting value.
    taking: Mutex<()>,
}

#[derive(Debug)]
struct Vacant {
    indices: Vec<u32>,
    /// Slots from this index on were never used.
    fresh: u32,
}

/// The vacant slots that one thread caches. They return to the table when the thread ends.
#[derive(Debug)]
pub struct SpareSlots<T: Object> {
    indices: Vec<u32>,
    table: &'static Table<T>,
}

impl<T: Object> SpareSlots<T> {
    pub fn new() -> Self {
        Self { indices: Vec::new(), table: T::table() }
    }
}

impl<T: Object> Drop for SpareSlots<T> {
    fn drop(&mut self) {
        // In a forked child, nobody leaves a lock that a thread of the parent held.
        if !sync::forked() {
            self.table.vacant().indices.append(&mut self.indices);
        }
    }
}

/// A use of a value. The value lives until the use ends, on the thread that began it.
pub struct Use<T: Object> {
    slot: &'static Slot<T>,
    /// The slot's index and the generation. One word, because callers move it as one: of two narrow stores, the load would
    /// wait until both have reached the cache.
    handle: u64,
    begun: Begun,
    on_this_thread: PhantomData<*const ()>,
}

/// The history of a kind's handles, whatever the type of its values.
trait History: Sync {
    fn past(&self, index: u32, generation: u32) -> GenerationStatus;
}

/// The tables of the kinds that have had handles, by the kind's number.
static HISTORIES: [OnceLock<&'static dyn History>; KINDS] = [const { OnceLock::new() }; KINDS];

impl<T: Object> History for Table<T> {
    fn past(&self, index: u32, generation: u32) -> GenerationStatus {
        match self.slot(index) {
            Some(slot) if generation >= first_generation(T::KIND, index) => slot.past(generation),
            _ => GenerationStatus::Never,
        }
    }
}

impl<T> Table<T> {
    pub const fn new() -> Self {
        Self {
            chunks: [const { OnceLock::new() }; CHUNKS],
            vacant: Mutex::new(Vacant { indices: Vec::new(), fresh: 0 }),
            taking: Mutex::new(()),
        }
    }

    fn vacant(&self) -> MutexGuard<'_, Vacant> {
        self.vacant.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slot of an index that was used before.
    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        let (chunk, offset) = place(index);
        self.chunks.get(chunk)?.get()?.get(offset)
    }

    /// Adds a batch of vacant indices; adds none if all slots are in use.
    fn refill(&self, indices: &mut Vec<u32>)
    where
        T: Object,
    {
        HISTORIES[T::KIND as usize].get_or_init(|| {
            // Values become lasting only in chunks that are made after this.
            cuda_mem::uses::prepare();
            T::table()
        });
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

/// The first generation of a slot. It is random for each slot, so that a handle with a few changed bits, a handle of
/// another copy of the library in this process, and a handle of another process name nothing here. Most generations are
/// still to come.
fn first_generation(kind: Kind, index: u32) -> u32 {
    static RANDOM: OnceLock<RandomState> = OnceLock::new();
    let hash = RANDOM.get_or_init(RandomState::new).hash_one((kind as u8, index));
    1 + (hash as u32 >> 2)
}

/// The chunk of a slot, and its offset in the chunk.
#[inline]
fn place(index: u32) -> (usize, usize) {
    let number = index + FIRST;
    let chunk = number.ilog2() - FIRST.ilog2();
    (chunk as usize, (number - (FIRST << chunk)) as usize)
}

/// Stores the value that `make` returns, and returns its handle. `make` runs after a slot was found, so that the value
/// moves only once.
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
    // A thread that is ending has no cache.
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
        // SAFETY: an index is in one list of vacant slots at most, and this call has removed it from its list.
        let generation = unsafe { slot.open(value) };
        Id { index, kind: T::KIND, generation }.pack()
    }))
}

/// All handles of a kind are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The index of a vacant slot that is in no list. Dropping it puts the index back into one.
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

/// Finds a value, and keeps it alive until the use ends.
///
/// # Errors
///
/// The handle names no value of this kind.
#[inline]
pub fn find<T: Object>(handle: u64) -> Result<Use<T>, Refusal> {
    let Some((index, generation)) = Id::of_kind(handle, T::KIND) else { return Err(refusal::<T>(handle)) };
    let Some(slot) = T::table().slot(index) else { return Err(refusal::<T>(handle)) };
    match slot.enter(generation, &T::table().taking) {
        Ok(begun) => Ok(Use { slot, handle, begun, on_this_thread: PhantomData }),
        Err(NotBegun::Gone) => Err(refusal::<T>(handle)),
        Err(NotBegun::Taken) => {
            end_late(slot, index);
            Err(refusal::<T>(handle))
        }
    }
}

/// Ends a value: `end` does everything that may fail, and then the value is dropped. If other threads use the value,
/// the last of them drops it instead.
///
/// # Errors
///
/// `Ok(Err(_))`: `end` failed, and the handle names the value as before. `Err(_)`: the handle names no value of this
/// kind.
#[inline]
pub fn remove<T: Object, E>(handle: u64, end: impl FnOnce(&mut T) -> Result<(), E>) -> Result<Result<(), E>, Refusal> {
    let Some((index, generation)) = Id::of_kind(handle, T::KIND) else { return Err(refusal::<T>(handle)) };
    let Some(slot) = T::table().slot(index) else { return Err(refusal::<T>(handle)) };
    match slot.close(generation, &T::table().taking) {
        Closed::Taken => {}
        Closed::InUse => return Ok(Ok(())),
        Closed::Gone => return Err(refusal::<T>(handle)),
    }
    let taken = Taken { slot, index };
    // SAFETY: this call has taken the slot, and has not discarded the value.
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

/// A taken slot. Dropping it vacates the slot. If the value was not discarded by then, its end has panicked, and it is
/// leaked.
struct Taken<T: Object> {
    slot: &'static Slot<T>,
    index: u32,
}

impl<T: Object> Taken<T> {
    #[inline]
    fn discard(self) {
        // SAFETY: whoever makes a `Taken` has taken the slot, and this method consumes it.
        unsafe { self.slot.discard() };
    }
}

impl<T: Object> Drop for Taken<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: whoever makes a `Taken` has taken the slot.
        if unsafe { self.slot.vacate() } {
            drop(Vacancy::<T> { index: self.index, object: PhantomData });
        }
    }
}

/// What a number is that names no object of a wanted kind.
#[cold]
pub fn refuse(handle: u64) -> Refusal {
    if handle == 0 {
        return Refusal::Null;
    }
    let Some(id) = Id::unpack(handle) else { return Refusal::Unknown };
    let history = HISTORIES[id.kind as usize].get();
    match history.map_or(GenerationStatus::Never, |history| history.past(id.index, id.generation)) {
        GenerationStatus::Never => Refusal::Unknown,
        GenerationStatus::Open => Refusal::Kind(id.kind),
        GenerationStatus::Over => Refusal::Destroyed(id.kind),
    }
}

#[cold]
fn refusal<T: Object>(handle: u64) -> Refusal {
    match refuse(handle) {
        // The handle's end was refused after the lookup.
        Refusal::Kind(kind) if kind == T::KIND => Refusal::Destroyed(kind),
        refusal => refusal,
    }
}

/// Ends a value that was destroyed while it was in use. The caller has taken the slot.
#[cold]
fn end_late<T: Object>(slot: &'static Slot<T>, index: u32) {
    Taken { slot, index }.discard();
}

impl<T: Object> Deref for Use<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the slot was entered when this use was made, and is left when it ends.
        unsafe { self.slot.value() }
    }
}

impl<T: Object> Drop for Use<T> {
    #[inline]
    fn drop(&mut self) {
        let (index, generation) = Id::parts(self.handle);
        // SAFETY: this generation was entered when this use was made.
        if unsafe { self.slot.leave(self.begun.take(), generation, &T::table().taking) } {
            end_late(self.slot, index);
        }
    }
}

impl<T: Object> fmt::Debug for Use<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Use").field("kind", &T::KIND).field("index", &Id::parts(self.handle).0).finish_non_exhaustive()
    }
}
