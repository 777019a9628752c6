//! Copies between buffers: whole, in part, in rows, in batches, between devices.

use super::outside;
use cuda_mem::buffer::{BatchOptions, CopyBatch, Piece};
use cuda_mem::memory::{DevicePool, DriverPoolOptions};
use cuda_mem::{Buffer, Error, Result, Stream};
use testkit::{Bench, pattern};

#[test]
fn copies_between_buffers_are_ordered_over_streams() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    let other = Stream::new(&context)?;
    let length = 1 << 20;
    for round in 0..20u8 {
        let mut source = Buffer::filled(&pool, length, round, &stream)?;
        let mut destination = Buffer::<u8, _>::zeroed(&pool, length, &other)?;
        destination.copy_from_buffer(0, &source, ..)?;
        // The fill is on the first stream, after the copy, which is on the other stream.
        source.fill(.., 255)?;
        drop(source);
        assert_eq!(destination.to_vec()?, vec![round; length]);
    }
    Ok(())
}

#[test]
fn copies_of_parts_and_of_ranges_that_overlap() -> Result<()> {
    let Bench { stream, pool, .. } = Bench::new()?;
    let source = Buffer::from_slice(&pool, &[1u16, 2, 3, 4, 5], &stream)?;
    let mut destination = Buffer::<u16, _>::zeroed(&pool, 4, &stream)?;
    destination.copy_from_buffer(1, &source, 2..4)?;
    assert_eq!(destination.to_vec()?, [0, 3, 4, 0]);
    destination.copy_from_buffer(4, &source, 5..)?;
    assert!(outside(destination.copy_from_buffer(0, &source, ..).unwrap_err(), (0, 10, 8)));
    assert!(outside(destination.copy_from_buffer(0, &source, 5..6).unwrap_err(), (10, 2, 10)));
    destination.copy_within(1..3, 0).unwrap_err();
    destination.copy_within(1..2, 3)?;
    assert_eq!(destination.to_vec()?, [0, 3, 4, 3]);
    let shared = destination.into_shared();
    let mut tail = shared.slice(1..)?;
    assert!(matches!(tail.copy_from_buffer(0, &shared, 0..3), Err(Error::InvalidArgument { .. })));
    Ok(())
}

#[test]
fn between_devices_no_peer_access_is_needed() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    if context.driver().device_count()? < 2 {
        println!("skipped: copies between devices need two devices");
        return Ok(());
    }
    let there = context.driver().device(1)?.primary_context()?;
    let other = Stream::new(&there)?;
    let far_pool = DevicePool::new(&there, &DriverPoolOptions::default())?;
    let bytes = pattern(100_000, 9);
    let here = Buffer::from_slice(&pool, &bytes, &stream)?;
    let mut far = Buffer::<u8, _>::zeroed(&far_pool, 100_000, &other)?;
    far.copy_from_buffer(0, &here, ..)?;
    assert_eq!(far.to_vec()?, bytes);
    let mut back = Buffer::<u8, _>::zeroed(&pool, 10, &stream)?;
    back.copy_from_buffer(0, &far, 99_990..)?;
    assert_eq!(back.to_vec()?, bytes[99_990..]);
    assert!(here.equals(&far)?);

    // The copy back has given access, and the program can take it.
    if context.device().can_access_peer(there.device())? {
        assert_eq!(far_pool.accessible_from()?, [context.device().clone()]);
        far_pool.allow_access(context.device())?;
        far_pool.allow_access(there.device())?;
        back.copy_from_buffer(0, &far, ..10)?;
        assert_eq!(back.to_vec()?, bytes[..10]);
        far_pool.deny_access(context.device())?;
        assert_eq!(far_pool.accessible_from()?, []);
        back.copy_from_buffer(0, &far, 10..20)?;
        assert_eq!(back.to_vec()?, bytes[10..20]);
        assert_eq!(far_pool.accessible_from()?, [], "a copy gives no access that the program has denied");
    }
    assert!(far_pool.deny_access(there.device()).is_err(), "a pool's own device keeps access");
    Ok(())
}

#[test]
fn a_batch_is_what_its_copies_are_one_by_one() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    let other = Stream::new(&context)?;
    let mut options = BatchOptions::default();
    options.overlap_with_compute = true;
    for batch_stream in [&stream, &other, &Stream::legacy_default(&context)] {
        let source = Buffer::from_slice(&pool, &pattern(10_000, 5), &stream)?;
        let mut targets: Vec<_> =
            (0..20).map(|_| Buffer::<u8, _>::zeroed(&pool, 100, &other)).collect::<Result<_>>()?;
        let mut scattered = Buffer::<u8, _>::zeroed(&pool, 50, &stream)?;
        let pieces: Vec<Piece> = (0..5).map(|n| Piece { to: n * 10, from: n * 1000, length: 7 }).collect();
        let mut batch = CopyBatch::with_options(batch_stream, options);
        for (n, target) in targets.iter_mut().enumerate() {
            batch.copy(target, n, &source, n * 3..n * 3 + 50)?;
        }
        batch.copy_pieces(&mut scattered, &source, &pieces)?;
        assert_eq!(batch.len(), 25);
        batch.submit()?;
        for (n, target) in targets.iter().enumerate() {
            assert_eq!(target.to_vec()?[n..n + 50], pattern(10_000, 5)[n * 3..n * 3 + 50]);
        }
        let bytes = scattered.to_vec()?;
        assert!((0..5).all(|n| bytes[n * 10..n * 10 + 7] == pattern(10_000, 5)[n * 1000..n * 1000 + 7]));
    }
    let source = Buffer::<u8, _>::zeroed(&pool, 10, &stream)?;
    let mut target = Buffer::<u8, _>::zeroed(&pool, 10, &stream)?;
    let mut batch = CopyBatch::new(&stream);
    let clash = [Piece { to: 4, from: 0, length: 3 }, Piece { to: 2, from: 0, length: 3 }];
    let error = batch.copy_pieces(&mut target, &source, &clash).unwrap_err();
    assert!(error.to_string().contains("overlap"), "{error}");
    assert!(batch.is_empty());
    batch.submit()?; // nothing to do
    Ok(())
}

#[test]
fn clones_in_a_batch_must_not_write_the_same_bytes() -> Result<()> {
    let Bench { stream, pool, .. } = Bench::new()?;
    let sources = [1u8, 2].map(|byte| Buffer::filled(&pool, 100, byte, &stream));
    let [one, two] = sources;
    let (one, two) = (one?, two?);
    let mut target = Buffer::<u8, _>::zeroed(&pool, 100, &stream)?.into_shared();
    let [mut clone, mut again, mut last] = [target.clone(), target.clone(), target.clone()];
    let mut tail = target.slice(40..)?;
    let mut batch = CopyBatch::new(&stream);
    batch.copy(&mut target, 20, &one, ..40)?;
    for (offset, range) in [(0, 0..100), (0, 0..21), (30, 0..1), (59, 0..40)] {
        let mut clone = again.clone();
        // The batch borrows its buffers, so each try has a batch of its own.
        let mut clash = CopyBatch::new(&stream);
        clash.copy(&mut again, 20, &one, ..40)?;
        let error = clash.copy(&mut clone, offset, &two, range.clone()).unwrap_err();
        assert!(error.to_string().contains("unordered") && clash.len() == 1, "{offset}, {range:?}: {error}");
    }
    let error = batch.copy(&mut tail, 0, &two, ..10).unwrap_err();
    assert!(error.to_string().contains("elements 0..10"), "{error}");
    batch.copy(&mut clone, 0, &two, ..20)?;
    batch.copy_pieces(
        &mut last,
        &two,
        &[Piece { to: 90, from: 0, length: 10 }, Piece { to: 60, from: 0, length: 5 }],
    )?;
    batch.submit()?;
    let bytes = target.to_vec()?;
    let expected: Vec<u8> =
        [(2, 20), (1, 40), (2, 5), (0, 25), (2, 10)].iter().flat_map(|(b, n)| vec![*b; *n]).collect();
    assert_eq!(bytes, expected);
    Ok(())
}
