//! A fence in two halves: a light one for a path that runs often, and a heavy one for the rare path that it must be
//! ordered with.
//!
//! If one thread passes [`light_fence`] and another passes [`heavy_fence`], at least one of them sees what the other
//! stored before its half. Two sequentially consistent fences promise the same, but each costs as much as a locked
//! operation. Where the system can interrupt all threads of the process (membarrier of Linux), the light half costs
//! nothing: the interrupt falls before its store, or after it.
//!
//! The process decides once, in [`prepare`], which must return before its first use of [`light_fence`].

use core::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};
use std::sync::OnceLock;

/// Set if the heavy half interrupts all threads.
static INTERRUPTS: AtomicBool = AtomicBool::new(false);

/// Decides what the halves do. The first call takes microseconds in a process of one thread, and up to 14 ms in others.
pub fn prepare() {
    static PREPARED: OnceLock<()> = OnceLock::new();
    PREPARED.get_or_init(|| INTERRUPTS.store(register(), Ordering::Relaxed));
}

/// The light half.
#[inline]
pub fn light_fence() {
    if INTERRUPTS.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The heavy half. `false` if the system has refused it: a program may forbid the call after [`prepare`]. Then nothing
/// is ordered.
#[cold]
#[must_use]
pub fn heavy_fence() -> bool {
    fence(Ordering::SeqCst);
    !INTERRUPTS.load(Ordering::Relaxed) || interrupt_all_threads()
}

/// Interrupts every processor that runs a thread of this process. A thread that does not run was interrupted when it
/// stopped. `false` if the system lacks the call or refuses it.
#[cfg(all(target_os = "linux", not(miri)))]
pub(super) fn interrupt_all_threads() -> bool {
    // As in linux/membarrier.h.
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    membarrier(PRIVATE_EXPEDITED)
}

/// Whether the process may interrupt all its threads from now on.
#[cfg(all(target_os = "linux", not(miri)))]
pub(super) fn register() -> bool {
    // As in linux/membarrier.h.
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
    membarrier(REGISTER_PRIVATE_EXPEDITED) && interrupt_all_threads()
}

#[cfg(all(target_os = "linux", not(miri)))]
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes numbers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn register() -> bool {
    false
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn interrupt_all_threads() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::hint::spin_loop;
    use core::sync::atomic::AtomicUsize;
    use std::thread;

    /// Waits until both threads have come to this round.
    fn meet(arrived: &AtomicUsize, round: usize) {
        arrived.fetch_add(1, Ordering::AcqRel);
        let mut spins = 0;
        while arrived.load(Ordering::Acquire) < 2 * round {
            spins += 1;
            if spins % 2000 == 0 { thread::yield_now() } else { spin_loop() }
        }
    }

    #[test]
    fn one_of_two_threads_sees_what_the_other_stored() {
        prepare();
        const ROUNDS: usize = if cfg!(miri) { 10 } else { 100_000 };
        let words: Vec<[AtomicBool; 2]> = (0..ROUNDS).map(|_| Default::default()).collect();
        let seen: Vec<[AtomicBool; 2]> = (0..ROUNDS).map(|_| Default::default()).collect();
        let arrived = AtomicUsize::new(0);
        let round_of = |mine: usize, fence: fn()| {
            for (number, (words, seen)) in words.iter().zip(&seen).enumerate() {
                meet(&arrived, number + 1);
                words[mine].store(true, Ordering::Relaxed);
                fence();
                seen[mine].store(words[1 - mine].load(Ordering::Relaxed), Ordering::Relaxed);
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| round_of(0, light_fence));
            round_of(1, || assert!(heavy_fence(), "the system orders threads"));
        });
        let missed = seen.iter().filter(|[one, other]| !one.load(Ordering::Relaxed) && !other.load(Ordering::Relaxed));
        assert_eq!(missed.count(), 0, "rounds of {ROUNDS} in which neither thread saw the other's store");
    }
}
