//! Many threads at once on one engine.

use super::engine;
use cuda_mem::copy::{CopyEngine, StagingOptions};
use cuda_mem::memory::DeviceMemory;
use cuda_mem::{Buffer, MappedMemory, Result, Stream};
use testkit::suite::Outcome;
use testkit::{alone, pattern};

const SIZES: [usize; 7] = [3, 4096, 70_000, 1 << 20, 9, 300_001, 2 << 20];

#[test]
fn sixteen_threads_copy_at_once_and_every_byte_is_right() -> Outcome {
    alone(|setup| {
        let context = &setup.context;
        let mut staging = StagingOptions::default();
        (staging.slot_size, staging.lanes) = (64 << 10, 3); // fewer lanes than threads
        let shared = CopyEngine::builder(context).staging(staging).helper_threads(3).build()?;
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
