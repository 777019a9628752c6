//! Hole U: what a capture records has not run, so it has initialised nothing.

use super::{SIZE, refused};
use cuda_mem::graph::CaptureMode;
use cuda_mem::interchange::SharedTensor;
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{
    DeviceMemory, ManagedMemory, PinnedMemory, RegisterOptions, RegisteredMemory, ResourceHandle, SharedResource,
};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Buffer, Error, SharedBuffer, Stream};
use std::fmt::Debug;
use testkit::suite::Outcome;
use testkit::{Setup, alone, same};

/// Makes a source of memory.
type Make = fn(&Setup) -> Result<SharedResource, Error>;

/// Sources that allocate in a capture of relaxed mode, and a pool, which does not.
const SOURCES: [(&str, Make); 5] = [
    ("pinned memory", |setup| Ok(PinnedMemory::new(&setup.context).share())),
    ("device memory", |setup| Ok(DeviceMemory::new(&setup.context).share())),
    ("a pool", |setup| Ok(Pool::new(&DeviceMemory::new(&setup.context), &PoolOptions::default())?.share())),
    ("managed memory", |setup| Ok(ManagedMemory::new(&setup.context)?.share())),
    // It is one block, so each buffer needs memory of its own.
    (REGISTERED, |setup| {
        Ok(RegisteredMemory::new(&setup.context, vec![0u8; SIZE], RegisterOptions::default())?.share())
    }),
];
const REGISTERED: &str = "registered memory";

/// The sources that the device has.
fn sources(setup: &Setup) -> Result<Vec<(&'static str, Make)>, Error> {
    let mut all = Vec::new();
    for (name, make) in SOURCES {
        match make(setup) {
            Err(error @ Error::Unsupported { .. }) => println!("skipped: {name}: {error}"),
            source => {
                drop(source?);
                all.push((name, make));
            }
        }
    }
    Ok(all)
}

/// Makes a value on a stream that this thread captures, and on one that has joined. Both must be refused.
fn is_never_made<V: Debug>(make: impl Fn(&SharedResource, &Stream) -> Result<V, Error>) -> Outcome {
    alone(|setup| {
        let (stream, joined) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let mut wrong = Vec::new();
        for (name, source) in sources(setup)? {
            let (one, two) = (source(setup)?, source(setup)?);
            stream.capture(CaptureMode::Relaxed, |stream| {
                wrong.extend(refused(name, make(&one, stream)).err());
                joined.join(stream)?;
                wrong.extend(refused(&format!("{name}, on a stream that joined"), make(&two, &joined)).err());
                stream.join(&joined)
            })?;
            make(&one, &stream).map_err(|error| format!("{name}, after the capture: {error}"))?;
            make(&two, &joined).map_err(|error| format!("{name}, after the capture: {error}"))?;
            stream.synchronize()?;
            joined.synchronize()?;
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ").into()) }
    })
}

// Hole U.
#[test]
fn a_capture_makes_no_zeroed_buffer() -> Outcome {
    is_never_made(|source, stream| Buffer::<u8, Any>::zeroed(source, SIZE, stream))
}

// Hole U.
#[test]
fn a_capture_makes_no_filled_buffer() -> Outcome {
    is_never_made(|source, stream| Buffer::<u32, Any>::filled(source, SIZE / 4, 0x0102_0304, stream))
}

#[test]
fn a_capture_makes_no_buffer_of_a_slice() -> Outcome {
    is_never_made(|source, stream| Buffer::<u8, Any>::from_slice(source, &[7; SIZE], stream))
}

/// Copies memory that was made before the capture. In the capture this must be refused.
fn is_never_copied<V>(
    of: impl Fn(Buffer<u8, Any>) -> V,
    copy: impl Fn(&SharedResource, &V) -> Result<SharedBuffer<u8, Any>, Error>,
    without: &[&str],
) -> Outcome {
    alone(|setup| {
        let (stream, mut wrong) = (Stream::new(&setup.context)?, Vec::new());
        for (name, source) in sources(setup)? {
            if without.contains(&name) {
                continue;
            }
            let original = of(Buffer::<u8, Any>::filled(&source(setup)?, SIZE, 7, &stream)?);
            let target = source(setup)?;
            stream.capture(CaptureMode::Relaxed, |_| {
                wrong.extend(refused(name, copy(&target, &original)).err());
                Ok(())
            })?;
            let copied = copy(&target, &original).map_err(|error| format!("{name}, after the capture: {error}"))?;
            same(name, &copied.to_vec()?, &[7; SIZE])?;
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ").into()) }
    })
}

// Hole U.
#[test]
fn a_capture_makes_no_clone_of_a_buffer() -> Outcome {
    let copy = |_: &SharedResource, original: &Buffer<u8, Any>| Ok(original.try_clone()?.into_shared());
    // Registered memory has no room for a clone.
    is_never_copied(|buffer| buffer, copy, &[REGISTERED])
}

// Hole U.
#[test]
fn a_capture_makes_no_copy_of_an_array() -> Outcome {
    let copy = |target: &SharedResource, array: &SharedTensor| Ok(array.copied(target)?.memory()?.clone());
    is_never_copied(|buffer| buffer.into_shared().tensor(), copy, &[])
}
