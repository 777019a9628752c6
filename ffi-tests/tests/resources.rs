//! Pinned, registered and managed memory, of every source: what it holds, who reaches it, and how it ends. Runs on any
//! driver; what asks for an older one runs on the software GPU in a process of its own. One test at a time: the ledger
//! is one for the process.

#![expect(clippy::unwrap_used, reason = "what tests have in common panics as they do")]

use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::kind::{Managed, Pinned};
use cuda_mem::memory::{
    Accessibility, Attachment, BorrowedHostMemory, HostAccessible, Location, ManagedMemory, ManagedPool, PinnedMemory,
    PinnedOptions, PinnedPool, PoolAccess, PoolOptions, RegisterOptions, RegisteredMemory, ResourceHandle,
};
use cuda_mem::{Buffer, Error, HostBuffer, Stream};
use ffi_tests::{Setup, softgpu_leaks};
use std::process::Command;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs a test alone, and sees that it leaves nothing behind.
fn alone(test: impl FnOnce(&Setup, &Stream) -> Result<(), Error>) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let setup = Setup::from_environment().unwrap();
    let stream = Stream::new(&setup.context).unwrap();
    if let Err(error) = test(&setup, &stream) {
        panic!("{error}");
    }
    drop(stream);
    assert_eq!(setup.context.take_drop_errors().errors, []);
    if let Some(leaks) = softgpu_leaks(setup) {
        panic!("{leaks}");
    }
}

/// What this machine has of something.
fn supported<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Err(error @ Error::Unsupported { .. }) => {
            println!("skipped: {error}");
            None
        }
        other => Some(other.unwrap()),
    }
}

/// What holds for memory of every source.
fn check<R>(setup: &Setup, stream: &Stream, resource: &R) -> Result<(), Error>
where
    R: ResourceHandle<Kind: HostAccessible>,
{
    // The device fills, the CPU reads; the CPU writes, the device copies.
    let mut buffer = Buffer::filled(resource, 1000, 0x1234_5678u32, stream)?;
    assert!(buffer.read(..)?.iter().all(|word| *word == 0x1234_5678));
    buffer.write(10..20)?.copy_from_slice(&[7; 10]);
    buffer.fill(20..30, 8)?;
    let seen = buffer.to_vec()?;
    assert_eq!(
        (seen[9], &seen[10..20], &seen[20..30], seen[30]),
        (0x1234_5678, &[7; 10][..], &[8; 10][..], 0x1234_5678)
    );
    assert!(buffer.accessibility().covers(Accessibility::BOTH));

    // Two live buffers lie apart; a copy between them.
    let mut other = Buffer::<u32, _>::zeroed(resource, 1000, stream)?;
    assert!(other.device_pointer().abs_diff(buffer.device_pointer()) >= 4000);
    other.copy_from_buffer(0, &buffer, ..)?;
    assert_eq!(other.to_vec()?, buffer.to_vec()?);
    let clone = other.try_clone()?;
    assert_eq!(clone.to_vec()?, other.to_vec()?);

    // Alignment, none, and too much.
    for length in [1, 3, 255, 4097] {
        let odd = Buffer::<u8, _>::zeroed(resource, length, stream)?;
        assert!(odd.device_pointer().is_multiple_of(256), "{:#x}", odd.device_pointer());
    }
    let empty = Buffer::<u64, _>::zeroed(resource, 0, stream)?;
    assert_eq!((empty.len(), empty.device_pointer(), empty.to_vec()?), (0, 0, vec![]));
    empty.close()?;
    let error = Buffer::<u8, _>::uninit(resource, 1 << 60, stream).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { requested, .. } if requested == 1 << 60), "{error}");

    // Another stream, and both ways to end.
    let second = Stream::new(&setup.context)?;
    other.set_stream(&second)?;
    other.fill(.., 1)?;
    buffer.copy_from_buffer(0, &other, ..)?;
    drop(other);
    assert_eq!(buffer.to_vec()?, [1; 1000]);
    buffer.close_on(&second)?;

    // As a slice of the CPU's.
    let host = HostBuffer::from_slice(resource, &[1u16, 2, 3])?;
    assert_eq!(*host.try_clone()?, [1, 2, 3]);
    Ok(())
}

/// The same, of each resource that drops before what it allocated, and after.
fn check_drop_orders<R>(resource: R, stream: &Stream) -> Result<(), Error>
where
    R: ResourceHandle<Kind: HostAccessible>,
{
    let first = Buffer::filled(&resource, 100, 1u8, stream)?;
    let second = Buffer::filled(&resource, 100, 2u8, stream)?;
    drop(first);
    drop(resource);
    assert_eq!(second.to_vec()?, [2; 100]);
    Ok(())
}

#[test]
fn pinned_memory_is_the_cpus_and_the_devices() {
    alone(|setup, stream| {
        check(setup, stream, &PinnedMemory::new(&setup.context))?;
        check_drop_orders(PinnedMemory::new(&setup.context), stream)?;
        let mut options = PinnedOptions::default();
        (options.portable, options.mapped, options.write_combined) = (false, false, true);
        check(setup, stream, &PinnedMemory::with_options(&setup.context, options))
    });
}

#[test]
fn pinned_pools_are_the_cpus_and_the_devices() {
    alone(|setup, stream| {
        let options = PoolOptions::default();
        let pool = PinnedPool::new(&setup.context, &options)?;
        assert!(pool.is_owned());
        check(setup, stream, &pool)?;
        check_drop_orders(pool, stream)?;
        if let Some(pool) = supported(PinnedPool::near_device(&setup.context, &options)) {
            check(setup, stream, &pool)?;
        }
        if let Some(pool) = supported(PinnedPool::on_numa_node(&setup.context, 0, &options)) {
            check(setup, stream, &pool)?;
        }
        if let Some(pool) = supported(PinnedPool::current(&setup.context)) {
            assert!(!pool.is_owned());
            check(setup, stream, &pool)?;
        }
        Ok(())
    });
}

#[test]
fn managed_memory_is_the_cpus_and_the_devices() {
    alone(|setup, stream| {
        for attachment in [Attachment::Global, Attachment::Host] {
            let Some(memory) = supported(ManagedMemory::with_attachment(&setup.context, attachment)) else { continue };
            check(setup, stream, &memory)?;
            check_drop_orders(memory, stream)?;
        }
        for place in [None, Some(Location::Host), Some(setup.context.device().into()), Some(Location::HostNuma(0))] {
            let mut options = PoolOptions::default();
            options.preferred_location = place.clone();
            let Some(pool) = supported(ManagedPool::new(&setup.context, &options)) else { continue };
            check(setup, stream, &pool)?;
            check_drop_orders(pool, stream)?;
            check(setup, stream, &ManagedPool::current(&setup.context, place.as_ref())?)?;
        }
        Ok(())
    });
}

#[test]
fn all_devices_may_use_a_pinned_pool_or_those_that_are_named() {
    alone(|setup, _stream| {
        let devices = setup.driver.devices()?;
        let pool = PinnedPool::new(&setup.context, &PoolOptions::default())?;
        for device in &devices {
            assert_eq!(pool.access(device)?, PoolAccess::ReadWrite, "device {}", device.ordinal());
        }
        assert_eq!(pool.accessible_from()?, devices);
        if let Some(other) = devices.get(1).filter(|_| pool.is_driver_pool()) {
            let mut options = PoolOptions::default();
            options.accessible_from = vec![setup.context.device().clone()];
            let pool = PinnedPool::new(&setup.context, &options)?;
            assert_eq!(pool.access(setup.context.device())?, PoolAccess::ReadWrite);
            assert_eq!(pool.access(other)?, PoolAccess::None);
            pool.allow_access(other)?;
            assert_eq!(pool.access(other)?, PoolAccess::ReadWrite);
            pool.deny_access(other)?;
            assert_eq!(pool.access(other)?, PoolAccess::None);
        }
        if let Some(managed) = supported(ManagedPool::new(&setup.context, &PoolOptions::default())) {
            assert_eq!(managed.access(setup.context.device())?, PoolAccess::ReadWrite);
            assert!(matches!(managed.deny_access(&devices[devices.len() - 1]), Err(Error::Unsupported { .. })));
        }
        Ok(())
    });
}

#[test]
fn another_device_fills_pinned_memory() {
    alone(|setup, stream| {
        let Some(device) = setup.driver.devices()?.into_iter().nth(1) else {
            println!("skipped: this machine has one device; run it on one with two");
            return Ok(());
        };
        let context = device.primary_context()?;
        let there = Stream::new(&context)?;
        let pool = PinnedPool::new(&setup.context, &PoolOptions::default())?;
        let memory = PinnedMemory::new(&setup.context);
        let mut pooled = Buffer::filled(&pool, 1000, 1u8, stream)?;
        let mut plain = Buffer::filled(&memory, 1000, 1u8, stream)?;
        pooled.set_stream(&there)?;
        plain.set_stream(&there)?;
        pooled.fill(500.., 2)?;
        plain.fill(500.., 2)?;
        assert_eq!(pooled.to_vec()?, plain.to_vec()?);
        assert_eq!((pooled.read(..)?[499], pooled.read(..)?[500]), (1, 2));
        Ok(())
    });
}

#[test]
fn a_pools_attributes_grow_with_its_use_and_can_be_set() {
    alone(|setup, stream| {
        attributes_hold(&PinnedPool::new(&setup.context, &PoolOptions::default())?, stream)?;
        if let Some(pool) = supported(ManagedPool::new(&setup.context, &PoolOptions::default())) {
            attributes_hold(&pool, stream)?;
        }
        Ok(())
    });
}

fn attributes_hold<K: HostAccessible>(pool: &cuda_mem::memory::DriverPool<K>, stream: &Stream) -> Result<(), Error> {
    let new = pool.attributes()?;
    assert_eq!((new.used, new.used_high, new.release_threshold), (0, 0, usize::MAX));
    let buffer = Buffer::<u8, _>::zeroed(pool, 3 << 20, stream)?;
    let one = pool.attributes()?;
    assert!(one.used >= 3 << 20 && one.reserved >= one.used && one.reserved_high >= one.reserved, "{one:?}");
    buffer.close()?;
    stream.synchronize()?;
    let kept = pool.attributes()?;
    assert_eq!((kept.used, kept.reserved), (0, one.reserved));
    assert!(kept.used_high >= 3 << 20);
    pool.reset_high_marks()?;
    assert_eq!(pool.attributes()?.used_high, 0);
    pool.trim_to(0)?;
    let trimmed = pool.attributes()?;
    assert_eq!((trimmed.reserved, trimmed.reserved_high), (0, one.reserved));
    pool.set_release_threshold(1 << 30)?;
    pool.set_reuse_follow_event_dependencies(false)?;
    pool.set_reuse_allow_opportunistic(false)?;
    pool.set_reuse_allow_internal_dependencies(false)?;
    let set = pool.attributes()?;
    assert_eq!(set.release_threshold, 1 << 30);
    assert!(!set.reuse_follow_event_dependencies && !set.reuse_allow_opportunistic);
    assert!(!set.reuse_allow_internal_dependencies);
    // Nothing is kept without a threshold.
    pool.set_release_threshold(0)?;
    drop(Buffer::<u8, _>::zeroed(pool, 1 << 20, stream)?);
    stream.synchronize()?;
    assert_eq!(pool.attributes()?.reserved, 0);
    Ok(())
}

#[test]
fn a_pool_holds_no_more_than_its_limit() {
    alone(|setup, stream| {
        let mut options = PoolOptions::default();
        options.max_size = Some(64 << 20);
        let pool = PinnedPool::new(&setup.context, &options)?;
        let half = Buffer::<u8, _>::zeroed(&pool, 30 << 20, stream)?;
        let error = Buffer::<u8, _>::uninit(&pool, 80 << 20, stream).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        drop(half);
        stream.synchronize()?;
        Buffer::<u8, _>::zeroed(&pool, 60 << 20, stream)?.close()?;
        Ok(())
    });
}

#[test]
fn options_that_cannot_be_are_named() {
    alone(|setup, _stream| {
        let options = PoolOptions::default();
        let mut shareable = PoolOptions::default();
        shareable.shareable = true;
        let context = &setup.context;
        let named = |result: Result<(), Error>, argument: &str| match result {
            Err(Error::InvalidArgument { argument: named, .. }) => assert_eq!(named, argument),
            other => panic!("{argument}: {other:?}"),
        };
        named(PinnedPool::on_numa_node(context, -1, &options).map(drop), "node");
        named(PinnedPool::on_numa_node(context, 4096, &options).map(drop), "node");
        named(PinnedPool::new(context, &shareable).map(drop), "options.shareable");
        if supported(ManagedPool::new(context, &options)).is_some() {
            named(ManagedPool::new(context, &shareable).map(drop), "options.shareable");
            let mut nowhere = PoolOptions::default();
            nowhere.preferred_location = Some(Location::HostNuma(-1));
            named(ManagedPool::new(context, &nowhere).map(drop), "node");
            nowhere.preferred_location = Some(Location::HostNumaCurrent);
            named(ManagedPool::new(context, &nowhere).map(drop), "the preferred location");
        }
        if let Some(pool) = supported(PinnedPool::near_device(context, &shareable)) {
            assert!(pool.is_driver_pool());
        }
        Ok(())
    });
}

#[test]
fn registered_memory_is_the_programs_own() {
    alone(|setup, stream| {
        let options = RegisterOptions::default();
        let owned = vec![1u16; 5000];
        let address = owned.as_ptr();
        let registered = RegisteredMemory::new(&setup.context, owned, options)?;
        let mut buffer = registered.buffer(stream)?;
        assert_eq!(buffer.host_pointer().cast_const(), address);
        buffer.fill(2500.., 9)?;
        buffer.write(..10)?.fill(5);

        // Once at a time; and not while it is in use.
        assert!(matches!(registered.buffer(stream), Err(Error::OutOfMemory { .. })));
        assert!(matches!(buffer.try_clone(), Err(Error::OutOfMemory { .. })));
        let registered = registered.into_owner().unwrap_err().value;
        buffer.close()?;
        let again = registered.buffer(stream)?;
        assert_eq!(again.to_vec()?[4999], 9);
        drop(again);
        let owned = registered.into_owner()?;
        assert_eq!((owned.as_ptr(), owned[0], owned[10], owned[2500]), (address, 5, 1, 9));

        // The buffer keeps what its resource was dropped with.
        let boxed = RegisteredMemory::new(&setup.context, vec![7u64; 100].into_boxed_slice(), options)?;
        let buffer = boxed.buffer(stream)?;
        drop(boxed);
        assert_eq!(buffer.to_vec()?, [7; 100]);
        drop(buffer);

        let nothing = RegisteredMemory::new(&setup.context, Vec::<u8>::new(), options)?;
        assert!(nothing.buffer(stream)?.is_empty());
        assert!(nothing.into_owner()?.is_empty());
        Ok(())
    });
}

#[test]
fn what_cannot_be_registered_is_given_back_with_the_drivers_reason() {
    alone(|setup, stream| {
        let mut memory = vec![3u8; 20_000];
        let start = NonNull::new(memory.as_mut_ptr().wrapping_add(1)).unwrap();
        // SAFETY: the vector outlives the registrations, and nothing else touches it.
        let borrow = || unsafe { BorrowedHostMemory::new(start, 9_999) };
        // At an odd address, as the driver allows.
        let registered = RegisteredMemory::new(&setup.context, borrow(), RegisterOptions::default())?;
        let refused = RegisteredMemory::new(&setup.context, borrow(), RegisterOptions::default()).unwrap_err();
        assert_eq!(refused.error.driver_code(), Some(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED));
        let mut buffer = registered.buffer(stream)?;
        buffer.fill(.., 4)?;
        buffer.close()?;
        registered.into_owner()?;

        let mut options = RegisterOptions::default();
        options.read_only = true;
        if let Some(registered) =
            supported(RegisteredMemory::new(&setup.context, refused.value, options).map_err(Error::from))
        {
            assert_eq!(registered.buffer(stream)?.to_vec()?, [4; 9_999]);
        }
        // SAFETY: nothing is there; the driver looks before it locks, and refuses.
        let nowhere = unsafe { BorrowedHostMemory::<u8>::new(NonNull::new(4096 as *mut u8).unwrap(), 4096) };
        let refused = RegisteredMemory::new(&setup.context, nowhere, RegisterOptions::default()).unwrap_err();
        assert_eq!(refused.error.driver_code(), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
        assert_eq!((memory[0], memory[1], memory[9_999], memory[10_000]), (3, 4, 4, 3));
        Ok(())
    });
}

#[test]
fn host_buffers_are_slices() {
    alone(|setup, stream| {
        let memory = PinnedMemory::new(&setup.context);
        for length in [0usize, 1, 1000] {
            let bytes: Vec<u8> = (0..length).map(|index| index as u8).collect();
            let mut buffer = HostBuffer::from_slice(&memory, &bytes)?;
            assert_eq!((buffer.len(), buffer.size()), (length, length));
            assert_eq!(buffer.device_pointer() != 0, length != 0);
            assert_eq!(*buffer, *bytes);
            assert_eq!(buffer[length / 4..length / 2], bytes[length / 4..length / 2]);
            let clone = buffer.try_clone()?;
            buffer.fill(255);
            assert_eq!(*clone, *bytes);
            let (address, moved) = (buffer.as_ptr(), Box::new(buffer));
            assert_eq!(moved.as_ptr(), address);
            assert!(moved.iter().all(|byte| *byte == 255));
            moved.close()?;
            assert!(HostBuffer::<u32>::zeroed(&memory, length)?.iter().all(|word| *word == 0));
            let mut fresh = HostBuffer::<u64>::uninit(&memory, length)?;
            fresh.iter_mut().for_each(|element| {
                element.write(6);
            });
            // SAFETY: each element was written.
            assert!(unsafe { fresh.assume_init() }.iter().all(|word| *word == 6));
        }
        // From a buffer and back, with the values.
        let buffer = Buffer::filled(&PinnedPool::new(&setup.context, &PoolOptions::default())?, 10, 1u32, stream)?;
        let mut host = HostBuffer::from_buffer(buffer)?;
        host[3] = 2;
        let buffer = host.into_buffer(stream)?;
        assert_eq!(buffer.to_vec()?, [1, 1, 1, 2, 1, 1, 1, 1, 1, 1]);
        let error = HostBuffer::<u8>::uninit(&memory, usize::MAX).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "length", .. }), "{error}");
        Ok(())
    });
}

#[test]
fn advice_on_managed_memory_comes_back() {
    alone(advice);
}

#[test]
#[ignore = "a part of the tests below, which give it an environment"]
fn part_old_managed() {
    alone(|setup, stream| {
        advice(setup, stream)?;
        moves(setup, stream)?;
        let buffer = Buffer::<u8, Managed>::zeroed(&ManagedMemory::new(&setup.context)?, 4096, stream)?;
        assert!(matches!(buffer.prefetch(Location::HostNuma(0)), Err(Error::Unsupported { .. })));
        Ok(())
    });
}

fn advice(setup: &Setup, stream: &Stream) -> Result<(), Error> {
    let Some(memory) = supported(ManagedMemory::new(&setup.context)) else { return Ok(()) };
    let buffer = Buffer::<u8, Managed>::zeroed(&memory, 1 << 20, stream)?;
    let device = setup.context.device();
    assert!(!buffer.is_read_mostly()?);
    buffer.set_read_mostly(true)?;
    assert!(buffer.is_read_mostly()?);
    buffer.set_read_mostly(false)?;
    assert!(!buffer.is_read_mostly()?);

    assert_eq!(buffer.preferred_location()?, None);
    for place in [Location::Host, device.into(), Location::HostNuma(0)] {
        match buffer.set_preferred_location(Some(&place)) {
            Err(Error::Unsupported { .. }) => continue,
            other => other?,
        }
        let told = buffer.preferred_location()?;
        // An H200 takes a node of a machine that has one, and goes on naming the place before it.
        if told.as_ref() != Some(&place) && matches!(place, Location::HostNuma(_)) && !setup.is_software() {
            println!("of the advice {place:?}, the driver tells {told:?}");
            continue;
        }
        assert_eq!(told, Some(place));
    }
    let error = buffer.set_preferred_location(Some(&Location::HostNuma(-7))).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. } | Error::Unsupported { .. }), "{error}");
    assert!(buffer.preferred_location()?.is_some(), "refused advice changed what was said");
    buffer.set_preferred_location(None)?;
    assert_eq!(buffer.preferred_location()?, None);

    assert_eq!(buffer.accessed_by()?, []);
    buffer.add_accessed_by(device)?;
    buffer.add_accessed_by(device)?;
    assert_eq!(buffer.accessed_by()?, [Location::from(device)]);
    buffer.add_accessed_by(Location::Host)?;
    assert_eq!(buffer.accessed_by()?.len(), 2);
    let error = buffer.add_accessed_by(Location::HostNuma(0)).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "location", .. }), "{error}");
    buffer.remove_accessed_by(Location::Host)?;
    buffer.remove_accessed_by(Location::Host)?;
    assert_eq!(buffer.accessed_by()?, [Location::from(device)]);

    let empty = Buffer::<u8, Managed>::zeroed(&memory, 0, stream)?;
    empty.set_read_mostly(true)?;
    empty.prefetch(device)?;
    assert_eq!((empty.is_read_mostly()?, empty.preferred_location()?, empty.accessed_by()?), (false, None, vec![]));
    Ok(())
}

#[test]
fn managed_memory_moves_where_it_is_sent() {
    alone(moves);
}

fn moves(setup: &Setup, stream: &Stream) -> Result<(), Error> {
    let Some(memory) = supported(ManagedMemory::new(&setup.context)) else { return Ok(()) };
    let device = setup.context.device();
    let (mut one, mut two) = (
        Buffer::<u8, Managed>::zeroed(&memory, 1 << 20, stream)?,
        Buffer::<u8, Managed>::filled(&memory, 1 << 20, 5, &Stream::new(&setup.context)?)?,
    );
    for place in [Location::from(device), Location::Host] {
        one.prefetch(place.clone())?;
        stream.synchronize()?;
        assert_eq!(one.last_prefetch_location()?, Some(place));
    }
    Buffer::prefetch_batch(&[&one, &two], &[Location::from(device)], stream)?;
    stream.synchronize()?;
    assert_eq!(two.last_prefetch_location()?, Some(device.into()));
    Buffer::prefetch_batch(&[&one, &two], &[Location::from(device), Location::Host], stream)?;
    stream.synchronize()?;
    let places = (one.last_prefetch_location()?, two.last_prefetch_location()?);
    assert_eq!(places, (Some(device.into()), Some(Location::Host)));
    assert_eq!(two.to_vec()?, vec![5; 1 << 20]);
    Buffer::<u8, Managed>::prefetch_batch(&[], &[Location::Host], stream)?;
    let three = [Location::Host, Location::Host, Location::Host];
    let error = Buffer::prefetch_batch(&[&one, &two], &three, stream).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "the number of locations", .. }), "{error}");

    if supported(one.discard()).is_none() {
        return Ok(());
    }
    one.fill(.., 6)?;
    assert_eq!(one.to_vec()?, vec![6; 1 << 20]);
    one.discard_and_prefetch(Location::Host)?;
    Buffer::discard_batch(&mut [&mut one, &mut two], stream)?;
    Buffer::discard_and_prefetch_batch(&mut [&mut one, &mut two], &[device.into()], stream)?;
    one.synchronize()?;
    two.synchronize()?;
    assert_eq!(two.last_prefetch_location()?, Some(device.into()));
    two.set_stream(&Stream::legacy_default(&setup.context))?;
    let error = two.discard().unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "stream", .. }), "{error}");
    Ok(())
}

#[test]
fn threads_that_allocate_and_free_leave_nothing() {
    alone(|setup, _stream| {
        let pool = PinnedPool::new(&setup.context, &PoolOptions::default())?;
        run_threads(setup, &pool);
        assert_eq!(pool.attributes()?.used, 0);
        Ok(())
    });
}

/// Threads with streams of their own: each sees in its memory what it wrote there.
fn run_threads(setup: &Setup, pool: &PinnedPool) {
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                let stream = Stream::new(&setup.context).unwrap();
                let mut kept: Option<Buffer<u8, Pinned>> = None;
                for round in 0..1000usize {
                    let size = 1 + (round * 7919 + usize::from(thread) * 131) % 20_000;
                    let buffer = Buffer::filled(pool, size, thread + 1, &stream).unwrap();
                    if round % 100 == 0 {
                        assert!(buffer.to_vec().unwrap().iter().all(|byte| *byte == thread + 1));
                    }
                    let before = kept.replace(buffer);
                    if let Some(mut before) = before.filter(|_| round % 50 == 1) {
                        assert!(before.read(..).unwrap().iter().all(|byte| *byte == thread + 1));
                    }
                }
                drop(kept);
                stream.synchronize().unwrap();
            });
        }
    });
}

/// Runs one of the parts below on a software GPU of its own, that lacks something.
fn on_softgpu(part: &str, environment: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", part, "--nocapture", "--ignored"]).env("CUDA_MEM_LIBCUDA", "softgpu");
    let output = command.envs(environment.iter().copied()).output().expect("the process starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{part} with {environment:?}: {text}");
}

#[test]
fn a_driver_without_host_pools_is_served_by_slabs() {
    for environment in [("SOFTGPU_ATTRIBUTES", "144=0,142=0"), ("SOFTGPU_VERSION", "11010")] {
        on_softgpu("part_slabs", &[environment]);
    }
    on_softgpu("part_slabs", &[("SOFTGPU_ATTRIBUTES", "144=0,142=0"), ("SOFTGPU_SEED", "5")]);
}

#[test]
#[ignore = "a part of the tests above, which give it an environment"]
fn part_slabs() {
    alone(|setup, stream| {
        let pool = PinnedPool::new(&setup.context, &PoolOptions::default())?;
        assert!(!pool.is_driver_pool() && pool.raw().is_null());
        assert_eq!((&pool, pool == PinnedPool::new(&setup.context, &PoolOptions::default())?), (&pool.clone(), false));
        check(setup, stream, &pool)?;
        run_threads(setup, &pool);
        assert_eq!(pool.attributes()?.used, 0);
        check_drop_orders(pool, stream)?;
        attributes_hold(&PinnedPool::new(&setup.context, &PoolOptions::default())?, stream)?;

        let mut options = PoolOptions::default();
        options.max_size = Some(8 << 20);
        let pool = PinnedPool::new(&setup.context, &options)?;
        for device in setup.driver.devices()? {
            assert_eq!(pool.access(&device)?, PoolAccess::ReadWrite);
            assert!(matches!(pool.deny_access(&device), Err(Error::Unsupported { .. })));
        }
        assert!(matches!(pool.set_reuse_follow_event_dependencies(true), Err(Error::Unsupported { .. })));
        // The limit holds, and what waits for another stream is waited for before there is no room.
        let second = Stream::new(&setup.context)?;
        for _ in 0..20 {
            Buffer::filled(&pool, 6 << 20, 1u8, stream)?.close()?;
            Buffer::filled(&pool, 5 << 20, 2u8, &second)?.close()?;
        }
        let error = Buffer::<u8, _>::uninit(&pool, 9 << 20, stream).unwrap_err();
        assert!(matches!(&error, Error::OutOfMemory { message, .. } if message.contains("8388608")), "{error}");
        assert!(matches!(PinnedPool::on_numa_node(&setup.context, 0, &options), Err(Error::Unsupported { .. })));
        assert!(matches!(PinnedPool::current(&setup.context), Err(Error::Unsupported { .. })));
        Ok(())
    });
}

#[test]
fn a_driver_that_does_not_know_of_host_pools_is_tried() {
    on_softgpu("part_unknown", &[("SOFTGPU_ATTRIBUTES", "144=unknown,142=unknown")]);
}

#[test]
#[ignore = "a part of the tests above, which give it an environment"]
fn part_unknown() {
    alone(|setup, _stream| {
        let options = PoolOptions::default();
        assert!(PinnedPool::new(&setup.context, &options)?.is_driver_pool());
        for (code, serves) in [
            (CUresult::CUDA_ERROR_NOT_SUPPORTED, true),
            (CUresult::CUDA_ERROR_INVALID_VALUE, true),
            (CUresult::CUDA_ERROR_OUT_OF_MEMORY, false),
        ] {
            softgpu::faults([softgpu::Fault::call("cuMemPoolCreate", 1, code)]);
            let pool = PinnedPool::new(&setup.context, &options);
            softgpu::faults([]);
            assert_eq!(pool.is_ok_and(|pool| !pool.is_driver_pool()), serves, "{code:?}");
        }
        Ok(())
    });
}

#[test]
fn old_drivers_move_managed_memory_between_devices_and_the_host() {
    on_softgpu("part_old_managed", &[("SOFTGPU_VERSION", "12010")]);
}

#[test]
fn the_cpu_waits_for_all_work_where_it_shares_no_managed_memory() {
    on_softgpu("part_exclusive_managed", &[("SOFTGPU_ATTRIBUTES", "89=0")]);
}

#[test]
#[ignore = "a part of the tests above, which give it an environment"]
fn part_exclusive_managed() {
    alone(|setup, stream| {
        let memory = ManagedMemory::new(&setup.context)?;
        let mut buffer = Buffer::filled(&memory, 10, 1u8, stream)?;
        softgpu::count_calls(true);
        let before = softgpu::calls_of("cuCtxSynchronize");
        assert_eq!(buffer.read(..)?[9], 1);
        assert_eq!(softgpu::calls_of("cuCtxSynchronize"), before + 1);
        assert!(matches!(ManagedPool::new(&setup.context, &PoolOptions::default()), Err(Error::Unsupported { .. })));
        let error = HostBuffer::<u8>::uninit(&memory, 1).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "the resource", .. }), "{error}");
        Ok(())
    });
}
