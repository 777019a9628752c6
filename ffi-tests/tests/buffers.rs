//! Buffers: what they hold, where their work is ordered, and how they end. Runs on any driver.

use cuda_mem::buffer::{BatchOptions, CopyBatch, Piece, Rows, transfer_scope};
use cuda_mem::memory::kind::{self, Any, Pinned};
use cuda_mem::memory::{
    Accessibility, DeviceMemory, DevicePool, PinnedMemory, PoolOptions, ResourceHandle, SharedResource,
};
use cuda_mem::{Buffer, Error, HostBuffer, Result, Stream};
use ffi_tests::{Bench, pattern, same};
use std::future::Future;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Whether an error is one of a range, with these figures in bytes.
fn outside(error: Error, wanted: (usize, usize, usize)) -> bool {
    matches!(error, Error::OutOfRange { offset, length, size, .. } if (offset, length, size) == wanted)
}

#[test]
fn values_come_back_for_every_resource_and_size() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    let resources: [SharedResource; 2] = [pool.share(), DeviceMemory::new(&context).share()];
    for resource in &resources {
        for length in [0, 1, 2, 255, 1000, 4097, 1 << 20] {
            let bytes = pattern(length, 7);
            let buffer = Buffer::from_slice(resource, &bytes, &stream)?;
            assert_eq!((buffer.len(), buffer.size(), buffer.is_empty()), (length, length, length == 0));
            assert_eq!(buffer.device_pointer() == 0, length == 0);
            same("the copy", &buffer.to_vec()?, &bytes).map_err(|_| ()).expect("the same bytes");
            assert_eq!(buffer.accessibility(), Accessibility::DEVICE);
            assert_eq!(buffer.device_ordinal(), Some(0));
            buffer.close()?;
        }
    }
    assert_eq!(context.take_drop_errors(), Default::default());
    Ok(())
}

#[test]
fn elements_are_typed_and_sizes_are_in_elements() -> Result<()> {
    let Bench { stream, pool, .. } = Bench::new()?;
    let mut words = Buffer::<u32, _>::zeroed(&pool, 10, &stream)?;
    assert_eq!((words.len(), words.size()), (10, 40));
    words.copy_from_slice(7, &[1, 2, 3])?;
    assert_eq!(words.to_vec()?, [0, 0, 0, 0, 0, 0, 0, 1, 2, 3]);
    let mut three = [0u32; 3];
    words.copy_to_slice(6, &mut three)?;
    assert_eq!(three, [0, 1, 2]);
    assert!(outside(words.copy_from_slice(8, &[1, 2, 3]).unwrap_err(), (32, 12, 40)));
    assert!(outside(words.copy_to_slice(11, &mut [0; 0]).unwrap_err(), (44, 0, 40)));
    assert!(outside(words.copy_to_slice(usize::MAX, &mut [0; 2]).unwrap_err(), (usize::MAX, 8, 40)));
    words.copy_from_slice(10, &[])?; // nothing, at the end
    Ok(())
}

#[test]
fn fills_of_every_width() -> Result<()> {
    fn check<T>(bench: &Bench, value: T) -> Result<()>
    where
        T: bytemuck::Pod + PartialEq + std::fmt::Debug,
    {
        let zero = T::zeroed();
        let mut buffer = Buffer::filled(&bench.pool, 65, value, &bench.stream)?;
        assert_eq!(buffer.to_vec()?, vec![value; 65]);
        buffer.fill(3..62, zero)?;
        buffer.fill(10..=10, value)?;
        buffer.fill(65.., value)?;
        let expected: Vec<T> = (0..65).map(|n| if (3..62).contains(&n) && n != 10 { zero } else { value }).collect();
        assert_eq!(buffer.to_vec()?, expected);
        assert!(buffer.fill(60..66, value).is_err());
        Ok(())
    }
    let bench = Bench::new()?;
    check(&bench, 0x42u8)?;
    check(&bench, -2i8)?;
    check(&bench, 0x1234u16)?;
    check(&bench, 0x1234_5678u32)?;
    check(&bench, -1.5f32)?;
    check(&bench, 0x0123_4567_89ab_cdefu64)?;
    check(&bench, [1u64, 2])?; // 16 bytes: a complex number of doubles
    check(&bench, [1.0f32, 2.0, 3.0])?;
    check(&bench, [7u8; 3])?; // one byte repeated has any width
    let refused = Buffer::filled(&bench.pool, 4, [1u8, 2, 3], &bench.stream).unwrap_err();
    assert!(refused.to_string().contains("3 bytes"), "{refused}");
    Ok(())
}

#[test]
fn uninitialised_memory_is_given_values_before_it_is_read() -> Result<()> {
    let Bench { stream, pool, .. } = Bench::new()?;
    let buffer: Buffer<MaybeUninit<u16>, kind::Device> = Buffer::<u16, _>::uninit(&pool, 3, &stream)?;
    let error = buffer.init_from_slice(&[1, 2]).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    let buffer = Buffer::<u16, _>::uninit(&pool, 3, &stream)?.init_from_slice(&[1, 2, 3])?;
    assert_eq!(buffer.to_vec()?, [1, 2, 3]);
    Ok(())
}

#[test]
fn sizes_that_cannot_be_are_refused() -> Result<()> {
    let Bench { stream, pool, .. } = Bench::new()?;
    for length in [usize::MAX, usize::MAX / 8 + 1, isize::MAX as usize / 8 + 1] {
        let error = Buffer::<u64, _>::uninit(&pool, length, &stream).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "length", .. }), "{error}");
    }
    let error = Buffer::<u8, _>::uninit(&pool, 1 << 60, &stream).unwrap_err();
    match &error {
        Error::OutOfMemory { requested, free, .. } => assert!(*requested == 1 << 60 && free.is_some(), "{error}"),
        other => panic!("{other}"),
    }
    Ok(())
}

#[test]
fn copies_between_buffers_are_ordered_over_streams() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    let other = Stream::new(&context)?;
    let length = 1 << 20;
    for round in 0..20u8 {
        let mut source = Buffer::filled(&pool, length, round, &stream)?;
        let mut destination = Buffer::<u8, _>::zeroed(&pool, length, &other)?;
        destination.copy_from_buffer(0, &source, ..)?;
        // In order of the first stream, after the copy, which is the other's.
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
        drop(left); // the free waits for the fill, on another stream than the allocation's
        let again = Buffer::filled(&pool, 1 << 18, 9u32, &stream)?;
        assert_eq!(again.to_vec()?, vec![9; 1 << 18]);
    }
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
fn hex_and_equality() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    let other_stream = Stream::new(&context)?;
    let one = Buffer::from_slice(&pool, &[0x01u8, 0xab, 0xff], &stream)?;
    assert_eq!(one.hex()?, "01abff");
    for length in [1, 7, 8, 9, 1000, 4096, 100_003, 5 << 20] {
        let bytes = pattern(length, 1);
        let left = Buffer::from_slice(&pool, &bytes, &stream)?;
        let mut right = Buffer::from_slice(&DeviceMemory::new(&context), &bytes, &other_stream)?;
        assert!(left.equals(&right)?, "{length}");
        for place in [0, length / 2, length - 1] {
            right.copy_from_slice(place, &[!bytes[place]])?;
            assert!(!left.equals(&right)?, "{length} bytes that differ at {place}");
            right.copy_from_slice(place, &bytes[place..=place])?;
        }
        assert!(left.equals(&right)?);
        let shared = left.into_shared();
        if length > 8 {
            // At an odd address, the bytes are compared one by one.
            let (left, right) = (shared.slice(1..)?, right.into_shared().slice(1..)?);
            assert!(left.equals(&right)?);
            let mut last = right.slice(length - 2..)?;
            last.fill(.., !bytes[length - 1])?;
            assert!(!left.equals(&right)?);
        }
    }
    assert!(!one.equals(&Buffer::from_slice(&pool, &[1u8, 0xab], &stream)?)?);
    let heap = [0x01u8, 0xab, 0xff];
    // SAFETY: the array outlives the buffer.
    let foreign = unsafe { Buffer::<u8, Any>::from_raw(heap.as_ptr() as u64, 3, &stream) }?;
    assert!(one.equals(&foreign)? && foreign.equals(&one)?);
    Ok(())
}

#[test]
fn memory_of_others_is_used_in_three_ownerships() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    // Of the heap: the CPU's alone.
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

    // Of another owner, who is held until the work is done.
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

    // Handed over with its resource.
    let used = pool.attributes()?.used;
    let (block, _, _) = base.into_block()?;
    stream.synchronize()?;
    assert_eq!(pool.attributes()?.used, used, "handing out frees nothing");
    // SAFETY: the block is the pool's, and nobody else has it.
    let again = unsafe { Buffer::<u8, kind::Device>::from_block(block, &pool, 100, &stream) }?;
    assert_eq!(again.to_vec()?, [[5; 50], [6; 50]].concat());
    again.close()?;
    assert_eq!(context.take_drop_errors(), Default::default());
    Ok(())
}

#[test]
fn pointers_that_cannot_be_are_refused() -> Result<()> {
    let Bench { stream, pool, .. } = Bench::new()?;
    let device = Buffer::<u64, _>::zeroed(&pool, 4, &stream)?;
    let heap = [0u64; 4];
    let pointer = heap.as_ptr() as u64;
    // SAFETY: no memory is reached: all of these are refused, or have no elements.
    unsafe {
        assert!(matches!(Buffer::<u64, Any>::from_raw(0, 1, &stream), Err(Error::InvalidArgument { .. })));
        assert!(matches!(Buffer::<u64, Any>::from_raw(pointer + 1, 1, &stream), Err(Error::Misaligned { .. })));
        assert!(Buffer::<u64, Any>::from_raw(pointer, usize::MAX / 8, &stream).is_err());
        assert!(Buffer::<u64, Any>::from_raw(u64::MAX - 7, 1, &stream).is_err());
        let error = Buffer::<u64, kind::Device>::from_raw(pointer, 4, &stream).unwrap_err();
        assert!(error.to_string().contains("addressable"), "{error}");
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
fn between_devices_no_peer_access_is_needed() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    if context.driver().device_count()? < 2 {
        println!("skipped: copies between devices need two devices");
        return Ok(());
    }
    let there = context.driver().device(1)?.primary_context()?;
    let other = Stream::new(&there)?;
    let far_pool = DevicePool::new(&there, &PoolOptions::default())?;
    let bytes = pattern(100_000, 9);
    let here = Buffer::from_slice(&pool, &bytes, &stream)?;
    let mut far = Buffer::<u8, _>::zeroed(&far_pool, 100_000, &other)?;
    far.copy_from_buffer(0, &here, ..)?;
    assert_eq!(far.to_vec()?, bytes);
    let mut back = Buffer::<u8, _>::zeroed(&pool, 10, &stream)?;
    back.copy_from_buffer(0, &far, 99_990..)?;
    assert_eq!(back.to_vec()?, bytes[99_990..]);
    assert!(here.equals(&far)?);

    // With access, and without again.
    assert_eq!(far_pool.accessible_from()?, []);
    if there.device().can_access_peer(context.device())? {
        far_pool.allow_access(context.device())?;
        assert_eq!(far_pool.accessible_from()?, [context.device().clone()]);
        far_pool.allow_access(context.device())?;
        far_pool.allow_access(there.device())?;
        back.copy_from_buffer(0, &far, ..10)?;
        assert_eq!(back.to_vec()?, bytes[..10]);
        far_pool.deny_access(context.device())?;
        assert_eq!(far_pool.accessible_from()?, []);
    }
    assert!(far_pool.deny_access(there.device()).is_err(), "a pool's own device keeps access");
    Ok(())
}

#[test]
fn uploads_and_downloads_own_the_host_memory_until_they_are_done() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    let length = 3 << 20;
    let bytes = pattern(length, 4);
    let mut buffer = Buffer::<u8, _>::zeroed(&pool, length + 5, &stream)?;
    let upload = buffer.upload(5, bytes.clone())?;
    let download = buffer.download(0, vec![1; length + 5])?;
    assert_eq!(upload.wait()?, bytes);
    assert_eq!(download.wait()?[5..], bytes);
    let shared: Arc<[u8]> = bytes.into();
    drop(buffer.upload(0, shared.clone())?); // waits
    assert_eq!(Arc::strong_count(&shared), 1);
    static WORDS: [u8; 2] = [8, 9];
    buffer.upload(0, &WORDS[..])?.wait()?;
    drop(buffer.download(0, vec![0; 2].into_boxed_slice())?);
    buffer.download(length + 5, Vec::new())?.wait()?;
    let refused = buffer.upload(length + 4, vec![1; 2]).unwrap_err();
    assert_eq!(refused.value, [1; 2], "the host memory comes back");
    assert!(buffer.download(1, vec![0; length + 5]).is_err());
    assert_eq!(context.take_drop_errors(), Default::default());
    Ok(())
}

/// Runs a future to its end on this thread, which sleeps until it is woken.
fn block_on<F: Future>(future: F) -> (F::Output, usize) {
    struct Unpark(std::thread::Thread, AtomicUsize);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.unpark();
        }
    }
    let unpark = Arc::new(Unpark(std::thread::current(), AtomicUsize::new(0)));
    let waker = unpark.clone().into();
    let mut future = std::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            return (output, unpark.1.load(Ordering::Relaxed));
        }
        std::thread::park();
    }
}

#[test]
fn transfers_can_be_awaited() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    let mut buffer = Buffer::<u8, _>::zeroed(&pool, 1000, &stream)?;
    // The stream is held up, so that the first poll finds the copy waiting.
    let (hold, held) = std::sync::mpsc::channel::<()>();
    stream.launch_host_function(move || {
        let _ = held.recv();
    })?;
    let pinned = PinnedMemory::new(&context);
    let upload = buffer.upload(0, HostBuffer::from_slice(&pinned, &pattern(1000, 1))?)?;
    let download = buffer.download(0, HostBuffer::zeroed(&pinned, 1000)?)?;
    let release = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(hold);
    });
    let (outcome, wakes) = block_on(async { Ok::<_, Error>((upload.await?, download.await?)) });
    let (sent, received) = outcome?;
    assert_eq!(*sent, *received);
    assert!(wakes >= 1, "the driver's callback has woken the task");
    release.join().expect("the holder ends");
    Ok(())
}

#[test]
fn scopes_borrow_the_host_memory_and_wait() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    let other = Stream::new(&context)?;
    let (mut one, mut two) =
        (Buffer::<u8, _>::zeroed(&pool, 1 << 20, &stream)?, Buffer::<u8, _>::zeroed(&pool, 1 << 20, &other)?);
    let bytes = pattern(1 << 20, 6);
    let (mut first, mut second) = (vec![0; 1 << 20], vec![0; 100]);
    let answer = transfer_scope(|scope| {
        scope.upload(&mut one, 0, &bytes)?;
        scope.upload(&mut two, 100, &bytes[..100])?;
        scope.download(&one, 0, &mut first)?;
        scope.download(&two, 100, &mut second)?;
        Ok(42)
    })?;
    assert_eq!((answer, &first, &second[..]), (42, &bytes, &bytes[..100]));
    let error = transfer_scope(|scope| scope.upload(&mut one, 1, &bytes)).unwrap_err();
    assert!(outside(error, (1, 1 << 20, 1 << 20)));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        transfer_scope(|scope| -> Result<()> {
            scope.upload(&mut one, 0, &bytes)?;
            panic!("in the scope")
        })
    }));
    assert!(panicked.is_err() && stream.is_done()?, "a panic waits too");
    Ok(())
}

#[test]
fn rows_go_where_they_belong() -> Result<()> {
    let Bench { stream, pool, .. } = Bench::new()?;
    let (width, height, pitch) = (37, 23, 50);
    let host: Vec<u32> = (0..pitch * height as u32 as usize).map(|n| n as u32).collect();
    let mut image = Buffer::<u32, _>::zeroed(&pool, 3 + pitch * height, &stream)?;
    image.copy_rows_from_slice(Rows { offset: 3, pitch }, &host, Rows { offset: 2, pitch: 41 }, width, height)?;
    let mut expected = vec![0; 3 + pitch * height];
    for row in 0..height {
        expected[3 + row * pitch..][..width].copy_from_slice(&host[2 + row * 41..][..width]);
    }
    assert_eq!(image.to_vec()?, expected);
    let mut dense = Buffer::<u32, _>::zeroed(&pool, width * height, &stream)?;
    dense.copy_rows_from_buffer(Rows::dense(width), &image, Rows { offset: 3, pitch }, width, height)?;
    let mut back = vec![0; width * height];
    dense.copy_rows_to_slice(Rows::dense(width), &mut back, Rows::dense(width), width, height)?;
    assert!((0..height).all(|row| back[row * width..][..width] == host[2 + row * 41..][..width]));
    let late = Rows { offset: 4, pitch };
    assert!(dense.copy_rows_from_buffer(Rows::dense(width), &image, late, width + 10, height).is_err());
    assert!(image.copy_rows_to_slice(Rows { offset: 3, pitch: 5 }, &mut back, Rows::dense(6), 6, 2).is_err());
    dense.copy_rows_from_buffer(Rows::dense(0), &image, Rows::dense(0), 0, 7)?;
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
fn the_kind_is_forgotten_and_known_again() -> Result<()> {
    let Bench { stream, pool, .. } = Bench::new()?;
    let buffer = Buffer::from_slice(&pool, &[1u8, 2], &stream)?.into_any();
    let refused = buffer.try_into_kind::<Pinned>().unwrap_err();
    assert!(refused.to_string().contains("addressable"), "{refused}");
    let buffer: Buffer<u8, kind::Device> = refused.value.try_into_kind()?;
    assert_eq!(buffer.to_vec()?, [1, 2]);
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

#[test]
fn pools_say_what_they_hold_and_do_what_they_are_told() -> Result<()> {
    let Bench { context, stream, .. } = Bench::new()?;
    let mut options = PoolOptions::default();
    options.max_size = Some(256 << 20);
    options.reuse_allow_opportunistic = false;
    let pool = DevicePool::new(&context, &options)?;
    let before = pool.attributes()?;
    assert_eq!((before.used, before.used_high, before.release_threshold), (0, 0, usize::MAX));
    assert!(before.reuse_follow_event_dependencies && !before.reuse_allow_opportunistic);
    let buffer = Buffer::<u8, _>::zeroed(&pool, 40 << 20, &stream)?;
    drop(buffer);
    stream.synchronize()?;
    let after = pool.attributes()?;
    assert!(after.used == 0 && after.used_high >= 40 << 20, "{after:?}");
    assert!(after.reserved >= 40 << 20, "an owned pool keeps its memory: {after:?}");
    pool.reset_high_marks()?;
    assert_eq!(pool.attributes()?.used_high, 0);
    pool.trim_to(0)?;
    assert!(pool.attributes()?.reserved < 40 << 20);
    pool.set_release_threshold(1 << 20)?;
    pool.set_reuse_follow_event_dependencies(false)?;
    pool.set_reuse_allow_internal_dependencies(false)?;
    let set = pool.attributes()?;
    assert_eq!(set.release_threshold, 1 << 20);
    assert!(!set.reuse_follow_event_dependencies && !set.reuse_allow_internal_dependencies);
    assert!(matches!(Buffer::<u8, _>::zeroed(&pool, 512 << 20, &stream), Err(Error::OutOfMemory { .. })));

    assert!(pool.is_owned());
    let (current, default) = (DevicePool::current(&context)?, DevicePool::default_of(&context)?);
    assert!(!current.is_owned() && !default.is_owned());
    assert_eq!(current, default);
    // SAFETY: the pool outlives its turn.
    unsafe { pool.make_current() }?;
    assert_eq!(DevicePool::current(&context)?, pool);
    // SAFETY: the driver's own pool lives for ever.
    unsafe { default.make_current() }?;
    assert_eq!(DevicePool::current(&context)?, default);
    Ok(())
}

#[test]
fn a_pool_outlives_its_handle_while_it_has_buffers() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    let buffer = Buffer::from_slice(&pool, &[3u8; 10], &stream)?;
    drop(pool);
    assert_eq!(buffer.to_vec()?, [3; 10]);
    let clone = buffer.try_clone()?;
    drop((buffer, stream));
    assert_eq!(clone.to_vec()?, [3; 10]);
    clone.close()?;
    assert_eq!(context.take_drop_errors(), Default::default());
    Ok(())
}
