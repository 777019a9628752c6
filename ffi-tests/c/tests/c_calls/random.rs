//! Random sequences of calls of the C library, on one thread and on several: no call may crash, reveal a bug, or leave
//! anything behind.

use proptest::prelude::*;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use testkit::c_calls::{Tally, assert_nothing_left, load, run};
use testkit::random_bytes::RandomBytes;
use testkit::{in_its_own_process, test_name};

/// Leftovers can be detected only while no other test runs.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_sequence_of_calls_is_served_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        run(&bytes);
        assert_nothing_left();
    }
}

/// This needs faults, which only the software GPU offers.
#[test]
fn failed_driver_free_leaves_the_buffer_handle_valid() {
    use core::mem::MaybeUninit;
    use cudamem::{buffer::*, context::*, handles::*, resource::*, status::*, stream::*};

    fn made<H>(call: impl FnOnce(Option<&mut MaybeUninit<H>>) -> i32) -> H {
        let mut place = MaybeUninit::uninit();
        assert_eq!(call(Some(&mut place)), CUDAMEM_SUCCESS);
        // SAFETY: the call worked and wrote its result.
        unsafe { place.assume_init() }
    }

    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    load();
    let context: cudamem_context = made(|place| cudamem_context_open_primary(0, place));
    // SAFETY: there are no options.
    let stream = made(|place| unsafe { cudamem_stream_create(context, core::ptr::null(), place) });
    let device = made(|place| cudamem_resource_create_device(context, place));
    let buffer = made(|place| cudamem_buffer_allocate(device, 100, stream, place));
    let code = cuda_mem::cuda_sys::CUresult::CUDA_ERROR_LAUNCH_FAILED;
    softgpu::faults([softgpu::Fault::call("cuMemFree_v2", 1, code)]);
    let refused = cudamem_buffer_destroy(buffer);
    let injected = softgpu::injected();
    softgpu::faults([]);
    if injected > 0 {
        assert_eq!((refused, cudamem_last_driver_code()), (CUDAMEM_ERROR_DRIVER, code.0 as i32));
        assert_ne!(made(|place| cudamem_buffer_get_device_pointer(buffer, place)), 0);
        assert_eq!(cudamem_buffer_destroy(buffer), CUDAMEM_SUCCESS);
    } else {
        println!("skipped: the driver has no faults to inject");
    }
    assert_eq!(cudamem_buffer_destroy(buffer), CUDAMEM_ERROR_INVALID_HANDLE);
    cudamem_resource_destroy(device);
    cudamem_stream_destroy(stream);
    cudamem_context_destroy(context);
    assert_nothing_left();
}

fn random(seed: u64, count: usize) -> Vec<u8> {
    RandomBytes(seed).take(count).collect()
}

#[test]
fn sequences_reach_most_of_the_library() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let Tally { succeeded, refused, kinds } = run(&random(1, 400_000));
    assert!(succeeded > 500 && refused > 500, "{succeeded} succeeded, {refused} were refused");
    // The null handle where there is nothing to return, and every kind except listeners, which need a path.
    assert_eq!(kinds, ((1 << 25) - 1) & !(1 << 22), "kinds of handles that were made: {kinds:#b}");
    assert_nothing_left();
}

/// Runs the beginning of the sequence of the test above, on a thread that ends afterwards. `C_CALLS_BYTES` sets its
/// length, `C_CALLS_SEED` another sequence.
#[test]
#[ignore = "may hang: the test below runs it in a process of its own"]
fn begin_of_a_sequence() {
    let number = |name, usual| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (seed, count) = (number("C_CALLS_SEED", 1), number("C_CALLS_BYTES", 400_000));
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let calls = std::thread::spawn(move || run(&random(seed, count as usize)));
    println!("{:?}", calls.join().expect("no panic"));
}

/// For a driver that hangs: finds the shortest beginning of the sequence that does not end within `C_CALLS_LIMIT`
/// seconds (default 30), between `C_CALLS_LOW` bytes, with which it ends, and `C_CALLS_HIGH`. With `C_CALLS_TRACE=1` a
/// run then prints its last steps.
#[test]
#[ignore = "a search, to be run by hand: --ignored --nocapture the_shortest_sequence_that_hangs"]
fn the_shortest_sequence_that_hangs() {
    let number = |name, usual| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let limit = Duration::from_secs(number("C_CALLS_LIMIT", 30));
    let ends = |bytes: u64| {
        let mut program = in_its_own_process(&test_name!("begin_of_a_sequence"));
        let mut child = program.env("C_CALLS_BYTES", bytes.to_string()).spawn().expect("the program starts");
        let begin = Instant::now();
        while begin.elapsed() < limit {
            if child.try_wait().expect("the process is ours").is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        child.kill().expect("the process is ours");
        child.wait().expect("the process is ours");
        false
    };
    let (mut low, mut high) = (number("C_CALLS_LOW", 0), number("C_CALLS_HIGH", 400_000));
    if ends(high) {
        println!("{high} bytes end");
        return;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match ends(middle) {
            true => low = middle,
            false => high = middle,
        }
        println!("{low} bytes end, {high} hang");
    }
}

#[test]
fn threads_run_independent_call_sequences_without_interference() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    load();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            scope.spawn(move || {
                run(&random(thread, 40_000));
            });
        }
    });
    assert_nothing_left();
}
