//! Handles compared with a model, and used by several threads.

use super::sync::COUNTED;
use super::{Kind, Object, Refusal, find, insert_with, object, remove};
use proptest::prelude::*;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Debug)]
struct Counted(u32);

object!(Counted: Kind::Buffer);

/// Another kind.
#[derive(Debug)]
struct Other;
object!(Other: Kind::Stream);

fn insert<T: Object>(value: T) -> u64 {
    insert_with(|| Ok::<T, ()>(value)).expect("there is room").expect("it is made")
}

fn insert_counted(value: u32) -> u64 {
    insert(Counted(value))
}

fn end(_: &mut Counted) -> Result<(), ()> {
    Ok(())
}

#[test]
fn wrong_handles_are_told_apart() {
    let handle = insert_counted(7);
    let other = insert(Other);
    assert_eq!(find::<Counted>(handle).map(|counted| counted.0).ok(), Some(7));
    assert_eq!(find::<Counted>(0).err(), Some(Refusal::Null));
    assert_eq!(find::<Counted>(other).err(), Some(Refusal::Kind(Kind::Stream)));
    assert_eq!(remove::<Counted, ()>(handle, end), Ok(Ok(())));
    assert_eq!(find::<Counted>(handle).err(), Some(Refusal::Destroyed(Kind::Buffer)));
    assert_eq!(remove::<Counted, ()>(handle, end), Err(Refusal::Destroyed(Kind::Buffer)));
    assert_eq!(remove::<Other, ()>(handle, |_| Ok(())), Err(Refusal::Destroyed(Kind::Buffer)));
    assert_eq!(remove::<Other, ()>(other, |_| Ok(())), Ok(Ok(())));
    assert_eq!(find::<Counted>(other).err(), Some(Refusal::Destroyed(Kind::Stream)));
}

#[test]
fn altered_handle_bits_yield_an_unknown_handle() {
    // Neighbouring handles of both kinds, which a changed bit could turn into each other.
    let handles: Vec<u64> = (0..40).map(insert_counted).collect();
    let others: Vec<u64> = (0..40).map(|_| insert(Other)).collect();
    let (handle, never_made) = (handles[1], Some(Refusal::Unknown));
    for bit in 0..64 {
        assert_eq!(find::<Counted>(handle ^ 1 << bit).err(), never_made, "bit {bit}");
        assert_eq!(find::<Other>(handle ^ 1 << bit).err(), never_made, "bit {bit}");
    }
    // Every kind in a slot that is in use, including kinds without handles and numbers that are no kind.
    for kind in (0..32u64).filter(|kind| *kind != Kind::Buffer as u64) {
        assert_eq!(find::<Counted>(handle & !(31 << 27) | kind << 27).err(), never_made, "kind {kind}");
    }
    // A slot that was never used, a generation before the first, and the next generation.
    assert_eq!(find::<Counted>(handle | 0x7ff_ffff).err(), never_made);
    assert_eq!(find::<Counted>(handle & 0xffff_ffff | 1 << 32).err(), never_made);
    assert_eq!(find::<Counted>(handle + (1 << 32)).err(), never_made);
    assert_eq!(find::<Counted>(u64::MAX).err(), never_made);
    for handle in handles {
        assert_eq!(remove::<Counted, ()>(handle, end), Ok(Ok(())));
        // The slot is vacant, and its next handle does not exist yet.
        assert_eq!(find::<Counted>(handle + (1 << 32)).err(), never_made);
    }
    for other in others {
        assert_eq!(remove::<Other, ()>(other, |_| Ok(())), Ok(Ok(())));
    }
}

#[test]
fn a_refused_end_leaves_the_handle_as_it_was() {
    let handle = insert_counted(1);
    assert_eq!(remove(handle, |_: &mut Counted| Err("not now")), Ok(Err("not now")));
    assert_eq!(find::<Counted>(handle).map(|counted| counted.0).ok(), Some(1));
    assert_eq!(remove(handle, end), Ok(Ok(())));
    assert_eq!(find::<Counted>(handle).err(), Some(Refusal::Destroyed(Kind::Buffer)));
}

#[test]
fn an_end_that_panics_still_ends_the_handle() {
    let handle = insert_counted(1);
    let panicked = std::panic::catch_unwind(|| remove::<Counted, ()>(handle, |_| panic!("while it ends")));
    assert!(panicked.is_err());
    assert_eq!(find::<Counted>(handle).err(), Some(Refusal::Destroyed(Kind::Buffer)));
    let next = insert_counted(2);
    assert_eq!(remove::<Counted, ()>(next, end), Ok(Ok(())));
}

#[test]
fn a_value_that_cannot_be_made_takes_no_slot() {
    let first = insert_counted(1);
    assert_eq!(remove::<Counted, ()>(first, end), Ok(Ok(())));
    assert_eq!(insert_with::<Counted, _>(|| Err("not now")), Ok(Err("not now")));
    assert!(std::panic::catch_unwind(|| insert_with::<Counted, ()>(|| panic!("while it is made"))).is_err());
    let second = insert_counted(2);
    // The same slot with the next generation.
    assert_eq!(second, first + (1 << 32));
    assert_eq!(remove::<Counted, ()>(second, end), Ok(Ok(())));
}

#[test]
fn a_value_in_use_ends_with_its_last_use() {
    let handle = insert_counted(3);
    let (first, second) = (find::<Counted>(handle), find::<Counted>(handle));
    assert_eq!(remove::<Counted, ()>(handle, |_| panic!("it is in use")), Ok(Ok(())));
    assert_eq!(find::<Counted>(handle).err(), Some(Refusal::Destroyed(Kind::Buffer)));
    drop(first);
    assert_eq!(second.map(|counted| counted.0).ok(), Some(3));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    /// Tries every handle ever made after each step: live handles give their value, and all others are refused.
    #[test]
    fn handles_are_as_a_list_of_what_lives(steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..100)) {
        let mut made: Vec<(u64, bool)> = Vec::new();
        for (insert, which) in steps {
            if insert || made.is_empty() {
                let handle = insert_counted(made.len() as u32);
                prop_assert!(!made.iter().any(|(old, _)| *old == handle));
                made.push((handle, true));
            } else {
                let which = which.index(made.len());
                let (handle, lives) = &mut made[which];
                let expected = if *lives { Ok(Ok(())) } else { Err(Refusal::Destroyed(Kind::Buffer)) };
                prop_assert_eq!(remove::<Counted, ()>(*handle, end), expected);
                *lives = false;
            }
            for (value, (handle, lives)) in made.iter().enumerate() {
                prop_assert_eq!(find::<Counted>(*handle).map(|counted| counted.0).ok(), lives.then_some(value as u32));
            }
        }
        for (handle, _) in made {
            let _ = remove::<Counted, ()>(handle, end);
        }
    }
}

/// A value that counts its end, and that shows whether it has ended.
#[derive(Debug)]
struct Watched {
    lives: AtomicBool,
    ends: Arc<AtomicU64>,
}

impl Watched {
    fn new(ends: &Arc<AtomicU64>) -> Self {
        Self { lives: AtomicBool::new(true), ends: ends.clone() }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.lives.store(false, Ordering::Relaxed);
        self.ends.fetch_add(1, Ordering::Relaxed);
    }
}

object!(Watched: Kind::Event);

/// Makes a value that was used so often.
fn insert_used(uses: u64, ends: &Arc<AtomicU64>) -> u64 {
    let handle = insert(Watched::new(ends));
    for _ in 0..uses {
        assert!(find::<Watched>(handle).is_ok());
    }
    handle
}

fn threads_use_and_destroy(uses: u64) {
    const THREADS: u64 = 4;
    let rounds = if cfg!(miri) { 7 } else { 5000 };
    let ends = Arc::new(AtomicU64::new(0));
    let made = AtomicU64::new(0);
    let handles: Vec<AtomicU64> = (0..8).map(|_| Default::default()).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (handles, ends, made) = (&handles, &ends, &made);
            scope.spawn(move || {
                for round in 0..rounds {
                    let place = &handles[((round * 7 + thread) % 8) as usize];
                    // Threads pass handles to each other with the same ordering as any other value.
                    let old = place.load(Ordering::Acquire);
                    if let Ok(found) = find::<Watched>(old) {
                        for _ in 0..20 {
                            assert!(found.lives.load(Ordering::Relaxed), "a value in use has ended");
                        }
                    }
                    if round % 3 == 0 {
                        let new = insert_used(uses, ends);
                        made.fetch_add(1, Ordering::Relaxed);
                        let old = place.swap(new, Ordering::AcqRel);
                        assert!(old == 0 || remove::<Watched, ()>(old, |_| Ok(())).is_ok());
                    }
                }
            });
        }
    });
    for place in handles {
        let handle = place.into_inner();
        assert!(handle == 0 || remove::<Watched, ()>(handle, |_| Ok(())).is_ok());
    }
    assert_eq!(ends.load(Ordering::Relaxed), made.into_inner());
}

#[test]
fn threads_that_share_and_destroy_values_never_see_partial_ones() {
    threads_use_and_destroy(0);
}

#[test]
fn threads_that_use_and_destroy_lasting_values_see_whole_ones() {
    // One of the threads makes the value lasting, or the thread that made it.
    threads_use_and_destroy(COUNTED - 1);
    threads_use_and_destroy(COUNTED);
}

/// More than a thread has words.
const MANY: usize = 20;

#[test]
fn a_lasting_value_ends_with_its_last_use_in_any_order() {
    for last in [0, 3, 7, 8, MANY - 1] {
        let ends = Arc::new(AtomicU64::new(0));
        let handle = insert_used(COUNTED, &ends);
        let mut uses: Vec<_> = (0..MANY).map(|_| find::<Watched>(handle).expect("it is open")).collect();
        let kept = uses.swap_remove(last);
        assert_eq!(remove::<Watched, ()>(handle, |_| panic!("it is in use")), Ok(Ok(())));
        assert_eq!(find::<Watched>(handle).err(), Some(Refusal::Destroyed(Kind::Event)));
        drop(uses);
        assert!(kept.lives.load(Ordering::Relaxed) && ends.load(Ordering::Relaxed) == 0);
        drop(kept);
        assert_eq!(ends.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_thread_that_ends_may_use_a_lasting_value() {
    struct UsesAtEnd(u64, Arc<AtomicU64>);
    impl Drop for UsesAtEnd {
        fn drop(&mut self) {
            let Ok(found) = find::<Watched>(self.0) else { panic!("it is open") };
            assert_eq!(remove::<Watched, ()>(self.0, |_| panic!("it is in use")), Ok(Ok(())));
            assert!(found.lives.load(Ordering::Relaxed));
            self.1.fetch_add(10, Ordering::Relaxed);
        }
    }
    thread_local!(static AT_END: RefCell<Option<UsesAtEnd>> = const { RefCell::new(None) });
    let ends = Arc::new(AtomicU64::new(0));
    let handle = insert_used(COUNTED, &ends);
    let thread = std::thread::spawn({
        let ends = ends.clone();
        // The thread gets a number by its first use, and gives it back before `UsesAtEnd` is dropped.
        move || {
            AT_END.set(Some(UsesAtEnd(handle, ends)));
            drop(find::<Watched>(handle));
        }
    });
    thread.join().expect("no thread panics");
    assert_eq!(ends.load(Ordering::Relaxed), 11);
}
