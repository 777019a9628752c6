//! Calls that fail once as if the context or the driver had ended.

use super::hold;
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::{DeviceMemory, ManagedMemory};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Buffer, Stream};
use softgpu::{Fault, Kind, When};
use testkit::suite::Outcome;
use testkit::{Setup, alone_with_late_ends, in_time};

const CODES: [CUresult; 2] = [CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED, CUresult::CUDA_ERROR_DEINITIALIZED];

/// Runs a program for each code, if driver calls can be made to fail.
fn with_each_code(program: fn(&Setup, CUresult) -> Outcome) -> Outcome {
    alone_with_late_ends(|setup| {
        if !setup.is_software() {
            println!("skipped: only the software GPU makes calls fail: set CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        CODES.into_iter().try_for_each(|code| in_time(setup, move |setup| program(setup, code)))
    })
}

/// Each call of the functions fails until the result is dropped.
fn failing(functions: &[&str], code: CUresult) -> impl Drop {
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            softgpu::faults([]);
        }
    }
    softgpu::faults(functions.iter().map(|name| Fault { when: When::Every(1), ..Fault::call(name, 1, code) }));
    End
}

#[test]
fn one_code_of_a_teardown_does_not_end_the_work_of_a_pool() -> Outcome {
    with_each_code(|setup, code| {
        for in_place in [false, true] {
            let stream = Stream::new(&setup.context)?;
            let mut options = PoolOptions::default();
            options.in_place = in_place;
            let pool = Pool::new(&DeviceMemory::new(&setup.context), &options)?;
            let buffer = Buffer::<u8, _>::zeroed(&pool, 1 << 20, &stream)?;
            let open = hold(&stream)?;
            drop(buffer);
            let faults = failing(&["cuEventQuery", "cuStreamQuery"], code);
            let trimmed = pool.trim_to(0);
            assert!(trimmed.is_err() && pool.statistics().reserved.current > 0, "{code:?}, in place {in_place}");
            drop(faults);
            let faults = failing(&["cuEventSynchronize", "cuStreamSynchronize", "cuEventQuery"], code);
            let released = pool.release_unused();
            assert!(released.is_err() && pool.statistics().reserved.current > 0, "{code:?}, in place {in_place}");
            drop((faults, open));
            pool.release_unused()?;
            assert_eq!(pool.statistics().reserved.current, 0);
        }
        Ok(())
    })
}

#[test]
fn one_code_of_a_teardown_frees_no_postponed_memory() -> Outcome {
    with_each_code(|setup, code| {
        let context = setup.driver.device(0)?.create_context()?;
        let stream = Stream::new(&context)?;
        let memory = Buffer::<u8, _>::zeroed(&ManagedMemory::new(&context)?, 4096, &stream)?;
        stream.synchronize()?;
        let live = || softgpu::ledger().entries.iter().filter(|entry| entry.kind == Kind::ManagedMemory).count();
        let faults = failing(&["cuEventSynchronize"], code);
        let open = hold(&stream)?;
        drop(memory);
        drop(open);
        while !stream.is_done()? {
            std::thread::yield_now();
        }
        let refused = Buffer::<u8, _>::uninit(&DeviceMemory::new(&context), 1 << 50, &stream).map(drop);
        let text = refused.expect_err("no device has so much memory").to_string();
        assert_eq!(live(), 1, "nobody knows whether the work is done: {text}");
        drop(faults);
        context.synchronize()?;
        assert_eq!(live(), 0);
        Ok(())
    })
}
