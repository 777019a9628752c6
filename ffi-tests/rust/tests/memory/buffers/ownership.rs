//! Ownership of memory: parts, views, foreign memory, threads.

use super::outside;
use cuda_mem::memory::kind::{self, Any, Pinned};
use cuda_mem::memory::{
    Accessibility, DeviceMemory, DevicePool, PinnedMemory, RegisterOptions, RegisteredMemory, ResourceHandle,
};
use cuda_mem::pool::{Pool, PoolOptions, RingOptions, RingPool};
use cuda_mem::{Buffer, Error, Result, Stream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use testkit::{Bench, delay, pattern};

#[test]
fn slices_share_and_keep_the_memory() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    let used = |pool: &DevicePool| -> Result<usize> { Ok(pool.attributes()?.used) };
    assert_eq!(used(&pool)?, 0);
    let whole = Buffer::from_slice(&pool, &pattern(1000, 3), &stream)?.into_shared();
    let mut part = whole.slice(250..500)?;
    let inner = part.slice(11..)?;
    assert!(part.shares_with(&whole));
    assert_eq!(inner.device_pointer(), whole.device_pointer() + 261);
    part.fill(..10, 0)?;
    assert_eq!(whole.to_vec()?[250..260], [0; 10]);
    assert_eq!(whole.slice(1000..)?.len(), 0);
    assert!(outside(whole.slice(1001..).unwrap_err(), (1001, 0, 1000)));
    assert!(whole.slice(4..2000).is_err());
    drop((whole, part));
    assert_eq!(inner.to_vec()?, pattern(1000, 3)[261..500]);
    stream.synchronize()?;
    assert!(used(&pool)? > 0);
    let alone = inner.try_into_exclusive()?;
    assert_eq!(alone.len(), 239);
    drop(alone);
    stream.synchronize()?;
    assert_eq!(used(&pool)?, 0);
    assert_eq!(context.take_drop_errors(), Default::default());
    Ok(())
}

#[test]
fn the_parts_of_a_divided_buffer_have_streams_of_their_own() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    for _ in 0..20 {
        let buffer = Buffer::<u32, _>::zeroed(&pool, 1 << 18, &stream)?;
        let (mut left, right) = buffer.split_at(1 << 17)?;
        let other = Stream::new(&context)?;
        left.set_stream(&other)?;
        left.fill(.., 7)?;
        let (right, refused) = match right.split_at((1 << 17) + 1) {
            Err(refused) => (refused.value, refused.error),
            Ok(_) => panic!("past the end"),
        };
        assert!(matches!(refused, Error::OutOfRange { .. }));
        drop(right);
        assert_eq!(left.to_vec()?, vec![7; 1 << 17]);
        left.fill(.., 8)?;
        drop(left); // the free waits for the fill, which is on another stream than the allocation
        let again = Buffer::filled(&pool, 1 << 18, 9u32, &stream)?;
        assert_eq!(again.to_vec()?, vec![9; 1 << 18]);
    }
    assert_eq!(context.take_drop_errors(), Default::default());
    Ok(())
}

#[test]
fn shared_parts_keep_the_stream_that_they_were_given() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    let (first, second) = (Stream::new(&context)?, Stream::new(&context)?);
    let whole = Buffer::from_slice(&pool, &pattern(1000, 3), &first)?.into_shared();
    let mut part = whole.slice(100..200)?;
    part.set_stream(&second)?;
    let of_part = part.slice(10..)?;
    assert_eq!((whole.stream(), part.stream(), of_part.stream()), (&first, &second, &second));
    part.fill(.., 1)?;
    part.set_stream(&first)?;
    assert_eq!((part.stream(), of_part.stream()), (&first, &second));
    // The buffers keep both streams, and the fill comes before the free of the memory.
    drop((first, second, whole, part));
    assert_eq!(of_part.to_vec()?, [1; 90]);
    drop(of_part);
    assert_eq!(Buffer::filled(&pool, 1000, 9u8, &stream)?.to_vec()?, [9; 1000]);
    assert_eq!(context.take_drop_errors(), Default::default());
    Ok(())
}

#[test]
fn views_of_other_element_types() -> Result<()> {
    let Bench { stream, pool, .. } = Bench::new()?;
    let bytes = Buffer::from_slice(&pool, &[1u8, 0, 2, 0, 3, 0], &stream)?;
    let halves = bytes.cast::<u16>()?;
    assert_eq!(halves.to_vec()?, [1, 2, 3].map(u16::from_le));
    let refused = halves.cast::<u32>().unwrap_err();
    assert!(matches!(refused.error, Error::Misaligned { value: 6, multiple: 4, .. }), "{refused}");
    let shared = refused.value.cast::<u8>()?.into_shared();
    let odd = shared.slice(1..5)?;
    assert!(matches!(odd.cast::<u16>(), Err(refused) if matches!(refused.error, Error::Misaligned { .. })));
    Ok(())
}

#[test]
fn memory_of_others_is_used_in_three_ownerships() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    // Heap memory, which only the CPU can access.
    let heap = vec![1u32, 2, 3];
    // SAFETY: the vector outlives the buffer.
    let borrowed = unsafe { Buffer::<u32, Any>::from_raw(heap.as_ptr() as u64, 3, &stream) }?;
    assert_eq!(borrowed.accessibility(), Accessibility::HOST);
    assert_eq!((borrowed.device_ordinal(), borrowed.resource().is_none()), (None, true));
    assert!(borrowed.try_clone().is_err());
    let copy = {
        let mut copy = Buffer::<u32, _>::zeroed(&pool, 3, &stream)?;
        copy.copy_from_buffer(0, &borrowed, ..)?;
        copy
    };
    assert_eq!(copy.to_vec()?, heap);
    let mut borrowed = borrowed;
    assert!(matches!(borrowed.fill(.., 1), Err(Error::InvalidArgument { .. })), "devices do not reach the heap");
    drop(borrowed);

    // Memory of another owner, which the buffer holds until the work is done.
    let owner: Arc<AtomicBool> = Arc::default();
    let base = Buffer::from_slice(&pool, &[5u8; 100], &stream)?;
    // SAFETY: the buffer `base` outlives the other.
    let mut owned =
        unsafe { Buffer::<u8, kind::Device>::from_raw_with_owner(base.device_pointer(), 100, owner.clone(), &stream) }?;
    assert_eq!((Arc::strong_count(&owner), owned.device_ordinal()), (2, Some(0)));
    owned.fill(50.., 6)?;
    let shared = owned.into_shared();
    let part = shared.slice(10..20)?;
    drop(shared);
    assert_eq!(Arc::strong_count(&owner), 2, "a part holds the owner");
    drop(part);
    assert_eq!(Arc::strong_count(&owner), 1);
    assert_eq!(base.to_vec()?, [[5; 50], [6; 50]].concat());

    // A block handed over together with its resource.
    let used = pool.attributes()?.used;
    let (block, _, _) = base.into_block()?;
    stream.synchronize()?;
    assert_eq!(pool.attributes()?.used, used, "handing out frees nothing");
    // SAFETY: the block is the pool's, and nothing else uses it.
    let again = unsafe { Buffer::<u8, kind::Device>::from_block(block, &pool, 100, &stream) }?;
    assert_eq!(again.to_vec()?, [[5; 50], [6; 50]].concat());
    again.close()?;
    assert_eq!(context.take_drop_errors(), Default::default());
    Ok(())
}

#[test]
fn into_block_waits_for_all_work_on_the_block() -> Result<()> {
    let Bench { context, stream, .. } = Bench::new()?;
    let pinned = PinnedMemory::new(&context);
    let sources = [
        pinned.share(),
        DeviceMemory::new(&context).share(),
        RegisteredMemory::new(&context, vec![0u8; 4096], RegisterOptions::default())?.share(),
        Pool::new(&pinned, &PoolOptions::default())?.share(),
        RingPool::new(&pinned, 1 << 16, &RingOptions::default())?.share(),
    ];
    for resource in sources {
        let mut buffer = Buffer::<u8, Any>::zeroed(&resource, 4096, &stream)?;
        delay(&stream)?;
        buffer.fill(.., 1)?;
        let (block, resource, home) = buffer.into_block()?;
        assert!(home.is_done()?, "{resource:?}");
        // SAFETY: the block is the resource's, and nothing else uses it.
        let again = unsafe { Buffer::<u8, Any>::from_block(block, &resource, 4096, &home) }?;
        assert_eq!(again.to_vec()?, [1; 4096]);
    }
    assert_eq!(context.take_drop_errors(), Default::default());
    Ok(())
}

#[test]
fn pointers_that_cannot_be_are_refused() -> Result<()> {
    let Bench { stream, pool, .. } = Bench::new()?;
    let device = Buffer::<u64, _>::zeroed(&pool, 4, &stream)?;
    let heap = [0u64; 4];
    let pointer = heap.as_ptr() as u64;
    // SAFETY: no memory is accessed, because the calls are refused or the buffers have no elements.
    unsafe {
        assert!(matches!(Buffer::<u64, Any>::from_raw(0, 1, &stream), Err(Error::InvalidArgument { .. })));
        assert!(matches!(Buffer::<u64, Any>::from_raw(pointer + 1, 1, &stream), Err(Error::Misaligned { .. })));
        assert!(Buffer::<u64, Any>::from_raw(pointer, usize::MAX / 8, &stream).is_err());
        assert!(Buffer::<u64, Any>::from_raw(u64::MAX - 7, 1, &stream).is_err());
        let error = Buffer::<u64, kind::Device>::from_raw(pointer, 4, &stream).unwrap_err();
        assert!(error.to_string().contains("accessible"), "{error}");
        assert!(Buffer::<u64, Pinned>::from_raw(device.device_pointer(), 4, &stream).is_err());
        assert!(Buffer::<u64, Any>::from_raw(0, 0, &stream)?.is_empty());
        let block = cuda_mem::memory::Block::device(device.device_pointer(), 32);
        assert!(outside(Buffer::<u64, _>::from_block(block, &pool, 5, &stream).unwrap_err(), (0, 40, 32)));
    }
    Ok(())
}

#[test]
fn home_streams_that_cannot_be_are_refused() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    let per_thread = Stream::per_thread_default(&context);
    let error = Buffer::<u8, _>::zeroed(&pool, 1, &per_thread).unwrap_err();
    assert!(error.to_string().contains("per-thread"), "{error}");
    let mut buffer = Buffer::<u8, _>::zeroed(&pool, 1, &stream)?;
    assert!(buffer.set_stream(&per_thread).is_err());
    let legacy = Stream::legacy_default(&context);
    buffer.set_stream(&legacy)?;
    buffer.fill(.., 3)?;
    assert_eq!(buffer.to_vec()?, [3]);
    if context.driver().device_count()? < 2 {
        println!("skipped: a stream of another device needs two devices");
        return Ok(());
    }
    let elsewhere = Stream::new(&context.driver().device(1)?.primary_context()?)?;
    for error in
        [Buffer::<u8, _>::zeroed(&pool, 1, &elsewhere).unwrap_err(), buffer.set_stream(&elsewhere).unwrap_err()]
    {
        assert!(error.to_string().contains("device 1"), "{error}");
    }
    let refused = buffer.close_on(&elsewhere).unwrap_err();
    assert_eq!(refused.value.to_vec()?, [3], "a refused close gives the buffer back");
    Ok(())
}

#[test]
fn many_threads_drop_buffers_while_streams_run() -> Result<()> {
    let Bench { context, pool, .. } = Bench::new()?;
    let shared = Buffer::from_slice(&pool, &pattern(4096, 2), &Stream::new(&context)?)?.into_shared();
    std::thread::scope(|scope| {
        let work = |seed: u8| -> Result<()> {
            let stream = Stream::new(&context)?;
            for round in 0..1250usize {
                let mut buffer = Buffer::filled(&pool, 1 + round * 7 % 5000, seed, &stream)?;
                let mut part = shared.slice(round % 4096..)?;
                part.set_stream(&stream)?;
                if round % 3 == 0 {
                    buffer.copy_from_buffer(0, &part, ..1)?;
                }
                if round % 100 == 0 {
                    assert!(buffer.to_vec()?[1..].iter().all(|byte| *byte == seed));
                }
            }
            Ok(())
        };
        let threads: Vec<_> = (0..8).map(|seed| scope.spawn(move || work(seed))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    assert_eq!(shared.to_vec()?, pattern(4096, 2));
    drop(shared);
    context.synchronize()?;
    assert_eq!(pool.attributes()?.used, 0);
    assert_eq!(context.take_drop_errors(), Default::default());
    Ok(())
}
