//! Random sequences of calls of the C library, on one thread and on several: no crash, no defect, and nothing left behind.

use ffi_tests::c_calls::{Tally, load, run};
use proptest::prelude::*;
use std::sync::{Mutex, PoisonError};

/// What is left behind can be seen only where no other test runs.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// On the software GPU that is linked in; others keep no ledger here.
fn check_ledger() -> Result<(), TestCaseError> {
    let left = softgpu::ledger();
    prop_assert!(left.is_empty(), "left behind: {left}");
    prop_assert_eq!(softgpu::misuse(), vec![]);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_sequence_of_calls_is_served_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        run(&bytes);
        check_ledger()?;
    }
}

#[test]
fn sequences_reach_most_of_the_library() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut state = 1u64;
    let bytes: Vec<u8> = (0..400_000)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        })
        .collect();
    let Tally { succeeded, refused } = run(&bytes);
    assert!(succeeded > 500 && refused > 500, "{succeeded} succeeded, {refused} were refused");
    check_ledger().expect("nothing is left");
}

#[test]
fn threads_with_sequences_of_their_own_do_not_disturb_each_other() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    load();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            scope.spawn(move || {
                let mut state = thread;
                let mut next = || {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (state >> 56) as u8
                };
                run(&(0..40_000).map(|_| next()).collect::<Vec<u8>>());
            });
        }
    });
    check_ledger().expect("nothing is left");
}
