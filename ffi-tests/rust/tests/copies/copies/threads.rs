//! Many threads at once on one engine.

use super::{engine, helped};
use cuda_mem::copy::{CopyEngine, CopyOptions, CopyThreads, StagingOptions, ThreadPool, Way};
use cuda_mem::memory::DeviceMemory;
use cuda_mem::{Buffer, MappedMemory, Result, Stream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use testkit::suite::Outcome;
use testkit::{alone, delay, pattern, same};

const SIZES: [usize; 7] = [3, 4096, 70_000, 1 << 20, 9, 300_001, 2 << 20];

#[test]
fn sixteen_threads_copy_at_once_and_every_byte_is_right() -> Outcome {
    alone(|setup| {
        let context = &setup.context;
        let mut staging = StagingOptions::default();
        (staging.slot_size, staging.lanes) = (64 << 10, 3); // fewer lanes than threads
        let shared = CopyEngine::builder(context).staging(staging).threads(Arc::new(ThreadPool::new(3))).build()?;
        for engine in [shared, engine(context)?] {
            let work = |number: usize| -> Result<()> {
                let stream = Stream::new(context)?;
                let mut mapped = testkit::mapped(&MappedMemory::new(context)?, 2 << 20)?;
                let mut plain = Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), 2 << 20, &stream)?;
                for round in 0..14 {
                    let size = SIZES[(round + number) % SIZES.len()];
                    let expected = pattern(size, (number * 16 + round) as u8);
                    let mut seen = vec![0; size];
                    engine.write(&mut mapped, 0, &expected)?;
                    engine.write_on(&stream, &mut plain, 0, &expected)?;
                    engine.read(&mapped, 0, &mut seen)?;
                    assert!(seen == expected, "thread {number}, mapped, {size} bytes");
                    seen.fill(0);
                    let read = engine.read_on(&stream, &mut plain, 0, &mut seen)?;
                    read.wait()?;
                    assert!(seen == expected, "thread {number}, plain, {size} bytes");
                    seen.fill(0);
                    engine.read(&plain, 0, &mut seen)?;
                    assert!(seen == expected, "thread {number}, plain again, {size} bytes");
                }
                Ok(())
            };
            std::thread::scope(|scope| -> Outcome {
                let threads: Vec<_> = (0..16).map(|number| scope.spawn(move || work(number))).collect();
                for thread in threads {
                    thread.join().map_err(|_| "a thread panicked")??;
                }
                Ok(())
            })?;
            engine.trim();
            assert_eq!(engine.reserved_staging(), 0, "all lanes came back");
        }
        Ok(())
    })
}

/// Claims to help, and does nothing.
#[derive(Debug)]
struct Idle;

impl CopyThreads for Idle {
    fn helpers(&self) -> usize {
        3
    }

    fn run(&self, _helpers: usize, _work: &(dyn Fn() + Sync)) {}
}

#[test]
fn what_threads_leave_the_caller_does() -> Outcome {
    alone(|setup| {
        let (context, stream) = (&setup.context, Stream::new(&setup.context)?);
        let engine = helped(context, Idle)?;
        let mut mapped = testkit::mapped(&MappedMemory::new(context)?, 2 << 20)?;
        let mut plain = Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), 2 << 20, &stream)?;
        let mut options = CopyOptions::default();
        for (round, way) in [Way::Cpu { threads: 3 }, Way::Staged { threads: 3 }, Way::Mixed { storing: 2, staging: 2 }]
            .into_iter()
            .enumerate()
        {
            options.way = Some(way);
            let expected = pattern(2 << 20, round as u8);
            let mut seen = vec![0xee; 2 << 20];
            engine.write_with(&mut mapped, 0, &expected, &options)?;
            mapped.load(0, &mut seen)?;
            same(&format!("written by {way}"), &seen, &expected)?;
            seen.fill(0xee);
            if !matches!(way, Way::Mixed { .. }) {
                engine.read_with(&mapped, 0, &mut seen, &options)?;
                same(&format!("read by {way}"), &seen, &expected)?;
            }
        }
        let expected = pattern(2 << 20, 7);
        engine.write_on(&stream, &mut plain, 0, &expected)?;
        same("in order", &plain.to_vec()?, &expected)?;
        Ok(())
    })
}

/// Runs its task, and panics.
#[derive(Debug)]
struct Panicking;

impl CopyThreads for Panicking {
    fn helpers(&self) -> usize {
        3
    }

    fn run(&self, _helpers: usize, work: &(dyn Fn() + Sync)) {
        work();
        panic!("by threads of the program's");
    }
}

#[test]
fn a_panic_of_the_threads_leaves_no_copy_under_way() -> Outcome {
    alone(|setup| {
        let (context, stream) = (&setup.context, Stream::new(&setup.context)?);
        let engine = helped(context, Panicking)?;
        let other = Stream::new(context)?;
        let mut plain = Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), 2 << 20, &other)?;
        let expected = pattern(2 << 20, 7);
        delay(&stream)?;
        let write = catch_unwind(AssertUnwindSafe(|| engine.write_on(&stream, &mut plain, 0, &expected)));
        assert!(write.is_err(), "the panic is the caller's");
        // The memory has no record of that stream, because its work is over.
        assert!(stream.is_done()?);
        same("what was written", &plain.to_vec()?, &expected)?;
        Ok(())
    })
}
