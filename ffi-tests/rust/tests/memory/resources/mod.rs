//! Pinned, registered and managed memory from every source: its contents, its accessibility, and its end. Runs on any
//! driver. Tests that need an older driver run on the software GPU in their own process. One test runs at a time,
//! because the ledger applies to the whole process.

#![expect(clippy::unwrap_used, reason = "what tests have in common panics as they do")]

mod host;
mod large;
mod managed;
mod old_drivers;
mod pools;

use cuda_mem::memory::{Accessibility, HostAccessible, ResourceHandle};
use cuda_mem::{Buffer, Error, HostBuffer, Stream};
use std::sync::{Mutex, PoisonError};
use testkit::{Setup, softgpu_leaks};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs a test alone, and checks that it leaves nothing behind.
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

/// Turns an unsupported feature into `None`, and prints what is missing.
fn supported<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Err(error @ Error::Unsupported { .. }) => {
            println!("skipped: {error}");
            None
        }
        other => Some(other.unwrap()),
    }
}

/// Checks memory of every source.
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

    // Two live buffers do not overlap. Copies between them.
    let mut other = Buffer::<u32, _>::zeroed(resource, 1000, stream)?;
    assert!(other.device_pointer().abs_diff(buffer.device_pointer()) >= 4000);
    other.copy_from_buffer(0, &buffer, ..)?;
    assert_eq!(other.to_vec()?, buffer.to_vec()?);
    let clone = other.try_clone()?;
    assert_eq!(clone.to_vec()?, other.to_vec()?);

    // Odd lengths, empty buffers, and sizes that are too large.
    for length in [1, 3, 255, 4097] {
        let odd = Buffer::<u8, _>::zeroed(resource, length, stream)?;
        assert!(odd.device_pointer().is_multiple_of(256), "{:#x}", odd.device_pointer());
    }
    let empty = Buffer::<u64, _>::zeroed(resource, 0, stream)?;
    assert_eq!((empty.len(), empty.device_pointer(), empty.to_vec()?), (0, 0, vec![]));
    empty.close()?;
    let error = Buffer::<u8, _>::uninit(resource, 1 << 60, stream).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { requested, .. } if requested == 1 << 60), "{error}");

    // Another stream, and both ways to end a buffer.
    let second = Stream::new(&setup.context)?;
    other.set_stream(&second)?;
    other.fill(.., 1)?;
    buffer.copy_from_buffer(0, &other, ..)?;
    drop(other);
    assert_eq!(buffer.to_vec()?, [1; 1000]);
    let buffer_is_write_combined = buffer.accessibility().write_combined;
    buffer.close_on(&second)?;

    // As a CPU slice, which has no guard to fence write-combined memory.
    let host = HostBuffer::from_slice(resource, &[1u16, 2, 3]);
    if buffer_is_write_combined {
        let refused = host.expect_err("it is write-combined").to_string();
        assert!(refused.contains("not write-combined"), "{refused}");
        return Ok(());
    }
    assert_eq!(*host?.try_clone()?, [1, 2, 3]);
    Ok(())
}

/// Checks resources that are dropped before their buffers, and after.
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
