//! Many small writes in one call.

use super::engine;
use cuda_mem::buffer::Access;
use cuda_mem::copy::{CopyEngine, StagingOptions};
use cuda_mem::mapped::CoherencePolicy;
use cuda_mem::memory::{DeviceMemory, Kind, PinnedMemory};
use cuda_mem::{Buffer, Error, MappedMemory, Stream};
use testkit::suite::Outcome;
use testkit::{alone, pattern, same};

const SIZE: usize = 100_000;

/// Writes of all kinds: separate, adjacent, overlapping, empty, large.
fn writes(source: &[u8]) -> Vec<(usize, &[u8])> {
    let mut writes: Vec<(usize, &[u8])> = (0..500).map(|n| (n * 130 + n % 7, &source[n..n + 1 + n % 100])).collect();
    writes.extend([(70_000, &source[..20_000]), (75_000, &source[5..5000]), (0, &source[..0]), (SIZE, &source[..0])]);
    writes.push((SIZE - 1, &source[9..10]));
    writes
}

fn check<K: Kind, A: Access>(engine: &CopyEngine, memory: &mut Buffer<u8, K, A>, what: &str) -> Outcome {
    let source = pattern(SIZE, 4);
    let mut expected = pattern(SIZE, 1);
    engine.write(memory, 0, &expected)?;
    for (offset, bytes) in writes(&source) {
        expected[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    engine.write_scattered(memory, writes(&source))?;
    let mut seen = vec![0; SIZE];
    engine.read(memory, 0, &mut seen)?;
    same(what, &seen, &expected)?;
    // The third write does not fit. The two writes before it are done.
    let refused = engine.write_scattered(memory, [(0, &[7u8][..]), (1, &[8][..]), (SIZE, &[9][..]), (2, &[9][..])]);
    assert!(
        matches!(refused, Err(Error::OutOfRange { offset: SIZE, length: 1, size: SIZE, .. })),
        "{what}: {refused:?}"
    );
    engine.read(memory, 0, &mut seen)?;
    expected[..2].copy_from_slice(&[7, 8]);
    same(what, &seen, &expected)?;
    Ok(())
}

#[test]
fn writes_are_done_in_their_order_on_every_memory() -> Outcome {
    alone(|setup| {
        let context = &setup.context;
        let stream = Stream::new(context)?;
        let mut small = StagingOptions::default();
        small.slot_size = 1000;
        let builder = || CopyEngine::builder(context);
        for engine in [engine(context)?, builder().staging(small).build()?] {
            check(&engine, &mut testkit::mapped(&MappedMemory::new(context)?, SIZE)?, "mapped")?;
            check(&engine, &mut Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), SIZE, &stream)?, "plain")?;
            let legacy = Stream::legacy_default(context);
            check(
                &engine,
                &mut Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), SIZE, &legacy)?,
                "on the default stream",
            )?;
            check(&engine, &mut Buffer::<u8, _>::zeroed(&PinnedMemory::new(context), SIZE, &stream)?, "pinned")?;
            let resource = MappedMemory::with_coherence(context, CoherencePolicy::ForcedNonCoherent)?;
            check(&engine, &mut testkit::mapped(&resource, SIZE)?, "not coherent")?;
            check(&engine, &mut Buffer::<u8, _>::zeroed(&resource, SIZE, &stream)?, "a buffer, not coherent")?;
        }
        Ok(())
    })
}

#[test]
fn writes_that_lie_apart_are_few_calls_of_the_driver() -> Outcome {
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: only the linked-in software GPU counts calls: CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        let (engine, stream) = (engine(&setup.context)?, Stream::new(&setup.context)?);
        let mut buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), SIZE, &stream)?;
        let source = pattern(100, 1);
        let apart = || (0..900usize).map(|n| (n * 100, &source[..50]));
        engine.write_scattered(&mut buffer, apart())?;
        softgpu::count_calls(true);
        engine.write_scattered(&mut buffer, apart())?;
        let calls = softgpu::calls();
        softgpu::count_calls(false);
        let functions = setup.driver.raw().functions();
        let batches = functions.cuMemcpyBatchAsync_v2.is_some() || functions.cuMemcpyBatchAsync.is_some();
        // Without the batch call, each write is one call. Once a test of this process has captured, a wait takes two
        // calls.
        assert!(calls < if batches { 40 } else { 960 }, "{calls} calls for 900 writes");
        Ok(())
    })
}
