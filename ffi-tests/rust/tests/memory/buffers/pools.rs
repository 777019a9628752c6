//! The driver's pools, as buffers use them.

use cuda_mem::memory::{DevicePool, DriverPoolOptions};
use cuda_mem::{Buffer, Error, Result};
use testkit::Bench;

#[test]
fn pools_say_what_they_hold_and_do_what_they_are_told() -> Result<()> {
    let Bench { context, stream, .. } = Bench::new()?;
    let mut options = DriverPoolOptions::default();
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
    // SAFETY: the pool outlives the time in which it is current.
    unsafe { pool.make_current() }?;
    assert_eq!(DevicePool::current(&context)?, pool);
    // SAFETY: the driver's own pool lives forever.
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
