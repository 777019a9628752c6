//! Values of two drivers in one process.

use cuda_mem::buffer::CopyBatch;
use cuda_mem::{Buffer, Driver, Error, Event, MappedMemory, Result, Stream};
use testkit::Bench;

fn refused<T>(outcome: Result<T>) -> Option<&'static str> {
    match outcome {
        Err(Error::InvalidArgument { call, .. }) => Some(call),
        _ => None,
    }
}

#[test]
fn handles_of_a_driver_that_was_loaded_apart_are_refused() -> Result<()> {
    let Bench { context, stream, pool } = Bench::new()?;
    // SAFETY: the software GPU is linked in.
    let apart = unsafe { Driver::builder().cuda("softgpu").vkgdr("softgpu").load() }?;
    let there = apart.device(0)?.primary_context()?;
    let (far, mark, event) = (Stream::new(&there)?, Event::with_timing(&there)?, Event::with_timing(&context)?);
    mark.record(&far)?;
    assert_eq!(refused(event.record(&far)), Some("Event::record"));
    assert_eq!(refused(event.elapsed(&mark)), Some("Event::elapsed"));
    assert_eq!(refused(stream.wait(&mark)), Some("Stream::wait"));
    assert_eq!(refused(stream.join(&far)), Some("Stream::wait"));
    let mut one = Buffer::from_slice(&pool, &[1u8; 64], &stream)?;
    let two = Buffer::from_slice(&pool, &[2u8; 64], &stream)?;
    assert_eq!(refused(one.record_use(&far)), Some("Stream::wait"));
    let mut batch = CopyBatch::new(&far);
    batch.copy(&mut one, 0, &two, ..)?;
    assert_eq!(refused(batch.submit()), Some("Stream::wait"));
    assert_eq!(one.to_vec()?, [1; 64]);
    let mut memory = testkit::mapped(&MappedMemory::new(&context)?, 64)?;
    memory.store(0, &[3u8; 64])?;
    assert_eq!(refused(testkit::fill_on(&mut memory, .., 4, &far)), Some("Buffer::set_stream"));
    assert_eq!(memory.read(..)?[..], [3; 64]);
    Ok(())
}
