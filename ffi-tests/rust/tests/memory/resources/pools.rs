//! Pools of pinned and managed memory: access, attributes, limits, options.

use super::{alone, check, check_drop_orders, supported};
use cuda_mem::memory::kind::Pinned;
use cuda_mem::memory::{
    DriverPoolOptions, HostAccessible, Location, ManagedPool, PinnedPool, PoolAccess, ResourceHandle,
};
use cuda_mem::{Buffer, Error, Stream};
use testkit::Setup;

#[test]
fn pinned_pools_are_the_cpus_and_the_devices() {
    alone(|setup, stream| {
        let options = DriverPoolOptions::default();
        let Some(pool) = supported(PinnedPool::new(&setup.context, &options)) else { return Ok(()) };
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
fn all_devices_may_use_a_pinned_pool_or_those_that_are_named() {
    alone(|setup, _stream| {
        let devices = setup.driver.devices()?;
        let Some(pool) = supported(PinnedPool::new(&setup.context, &DriverPoolOptions::default())) else {
            return Ok(());
        };
        for device in &devices {
            assert_eq!(pool.access(device)?, PoolAccess::ReadWrite, "device {}", device.ordinal());
        }
        assert_eq!(pool.accessible_from()?, devices);
        if let Some(other) = devices.get(1) {
            let mut options = DriverPoolOptions::default();
            options.accessible_from = vec![setup.context.device().clone()];
            let pool = PinnedPool::new(&setup.context, &options)?;
            assert_eq!(pool.access(setup.context.device())?, PoolAccess::ReadWrite);
            assert_eq!(pool.access(other)?, PoolAccess::None);
            pool.allow_access(other)?;
            assert_eq!(pool.access(other)?, PoolAccess::ReadWrite);
            pool.deny_access(other)?;
            assert_eq!(pool.access(other)?, PoolAccess::None);
        }
        if let Some(managed) = supported(ManagedPool::new(&setup.context, &DriverPoolOptions::default())) {
            assert_eq!(managed.access(setup.context.device())?, PoolAccess::ReadWrite);
            assert!(matches!(managed.deny_access(&devices[devices.len() - 1]), Err(Error::Unsupported { .. })));
        }
        Ok(())
    });
}

#[test]
fn a_pools_attributes_grow_with_its_use_and_can_be_set() {
    alone(|setup, stream| {
        if let Some(pool) = supported(PinnedPool::new(&setup.context, &DriverPoolOptions::default())) {
            attributes_hold(&pool, stream)?;
        }
        if let Some(pool) = supported(ManagedPool::new(&setup.context, &DriverPoolOptions::default())) {
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
    // Without a threshold the pool keeps nothing.
    pool.set_release_threshold(0)?;
    drop(Buffer::<u8, _>::zeroed(pool, 1 << 20, stream)?);
    stream.synchronize()?;
    assert_eq!(pool.attributes()?.reserved, 0);
    Ok(())
}

#[test]
fn a_pool_holds_no_more_than_its_limit() {
    alone(|setup, stream| {
        let mut options = DriverPoolOptions::default();
        options.max_size = Some(64 << 20);
        let Some(pool) = supported(PinnedPool::new(&setup.context, &options)) else { return Ok(()) };
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
        let options = DriverPoolOptions::default();
        let mut shareable = DriverPoolOptions::default();
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
            let mut nowhere = DriverPoolOptions::default();
            nowhere.preferred_location = Some(Location::HostNuma(-1));
            named(ManagedPool::new(context, &nowhere).map(drop), "node");
            nowhere.preferred_location = Some(Location::HostNumaCurrent);
            named(ManagedPool::new(context, &nowhere).map(drop), "the preferred location");
        }
        supported(PinnedPool::near_device(context, &shareable));
        Ok(())
    });
}

#[test]
fn threads_that_allocate_and_free_leave_nothing() {
    alone(|setup, _stream| {
        let Some(pool) = supported(PinnedPool::new(&setup.context, &DriverPoolOptions::default())) else {
            return Ok(());
        };
        run_threads(setup, &pool);
        assert_eq!(pool.attributes()?.used, 0);
        Ok(())
    });
}

/// Each thread has its own streams and must read back what it wrote.
pub fn run_threads(setup: &Setup, pool: &(impl ResourceHandle<Kind = Pinned> + Sync)) {
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
