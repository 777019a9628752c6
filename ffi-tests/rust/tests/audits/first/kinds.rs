//! The CPU's writes to mapped memory, and memory whose kind differs from that of its source.

use super::{SIZE, atoms};
use cuda_mem::adaptor::{Aligned, Fallback, Limit};
use cuda_mem::buffer::CopyBatch;
use cuda_mem::frames::FrameRing;
use cuda_mem::memory::{DeviceMemory, ManagedMemory, PinnedMemory, ResourceHandle, SharedResource, kind};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::signal::Signals;
use cuda_mem::{Buffer, Error, HostBuffer, Stream};
use softgpu::CpuBorrow;
use std::mem;
use testkit::suite::Outcome;
use testkit::{alone, in_time, same};

/// Forgets a guard's writes, and tells softgpu that the guard's borrow is over, because softgpu cannot see it.
fn forget_a_guard(buffer: &mut Buffer<u8, kind::Mapped>, value: u8) -> Result<(), Error> {
    let mut guard = buffer.write(..)?;
    guard.fill(value);
    CpuBorrow::end_all(guard.as_ptr().addr(), guard.len());
    mem::forget(guard);
    Ok(())
}

#[test]
fn a_frame_is_copied_to_a_buffer_of_which_a_guard_was_forgotten() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let stream = Stream::new(&setup.context)?;
            let signals = Signals::new(&setup.context)?;
            let ring = FrameRing::new(&PinnedMemory::new(&setup.context), &signals, 2, SIZE)?;
            let mut buffer = Buffer::<u8, _>::filled(&atoms(&setup.context)?, SIZE, 1, &stream)?;
            forget_a_guard(&mut buffer, 5)?;
            buffer.fill(..SIZE / 2, 2)?;
            let mut frame = ring.next()?;
            // The frame is not published yet, so the copy must not wait for it in the call.
            buffer.copy_from_frame(0, &frame, ..)?;
            frame.write(.., |bytes| bytes.fill(3))?;
            frame.publish().map_err(Error::from)?;
            same("the frame's copy", &buffer.to_vec()?, &[3; SIZE])?;
            Ok(())
        })
    })
}

#[test]
fn batches_and_views_flush_forgotten_writes_but_only_those() -> Outcome {
    alone(|setup| {
        let (stream, memory) = (Stream::new(&setup.context)?, atoms(&setup.context)?);
        let mut other = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), SIZE, &stream)?;
        let mut buffer = Buffer::<u8, _>::zeroed(&memory, SIZE, &stream)?;
        let mut wrong = Vec::new();
        for by_view in [false, true] {
            let name = if by_view { "a view" } else { "a batch" };
            forget_a_guard(&mut buffer, 5)?;
            if by_view {
                other.view_mut(&[64, 64])?.copy_from(&buffer.view(&[64, 64])?)?;
            } else {
                let mut batch = CopyBatch::new(&stream);
                batch.copy(&mut other, 0, &buffer, ..)?;
                batch.submit()?;
            }
            wrong.extend(same(&format!("what {name} read"), &other.to_vec()?, &[5; SIZE]).err());
            other.fill(.., 9)?;
            forget_a_guard(&mut buffer, 6)?;
            if by_view {
                buffer.view_mut(&[64, 64])?.copy_from(&other.view(&[64, 64])?)?;
            } else {
                let mut batch = CopyBatch::new(&stream);
                batch.copy(&mut buffer, 0, &other, ..)?;
                batch.submit()?;
            }
            wrong.extend(same(&format!("what {name} wrote"), &buffer.read(..)?, &[9; SIZE]).err());
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ").into()) }
    })
}

#[test]
fn memory_that_falls_back_to_managed_memory_is_managed() -> Outcome {
    alone(|setup| {
        let managed = match ManagedMemory::new(&setup.context) {
            Err(Error::Unsupported { feature, needs }) => {
                println!("skipped: {feature} needs {needs}");
                return Ok(());
            }
            made => made?.share(),
        };
        let pinned = PinnedMemory::new(&setup.context).share();
        for (first, second) in [(&pinned, &managed), (&managed, &pinned)] {
            let both = Fallback::<kind::Any>::new(first, second)?;
            assert!(both.share().accessibility().managed, "some of its memory is managed");
        }
        assert!(!Fallback::<kind::Any>::new(&pinned, &pinned)?.share().accessibility().managed);
        Ok(())
    })
}

/// Allocates everything that a pool has, and writes it through a value that needs coherent memory.
fn writes_are_kept(name: &str, pool: &SharedResource, stream: &Stream) -> Outcome {
    let mut buffers = Vec::new();
    let error = loop {
        match Buffer::<u8, kind::Any>::filled(pool, 256, 1, stream) {
            Ok(_) if buffers.len() == 600 => return Err(format!("{name} mixed two sorts of memory").into()),
            Ok(buffer) => buffers.push(buffer),
            Err(error) => break error,
        }
    };
    if !matches!(error, Error::InvalidArgument { .. }) {
        return Err(format!("{name}: {error}").into());
    }
    assert!(!buffers.is_empty(), "{name} serves the first sort");
    for buffer in buffers {
        let buffer = buffer.try_into_kind::<kind::Pinned>().map_err(Error::from)?;
        // Memory that may be write-combined gives no slices without a guard. Memory that gives a slice is coherent.
        if let Ok(mut host) = HostBuffer::from_buffer(buffer) {
            host.fill(5);
            same(name, &host.into_buffer(stream).map_err(Error::from)?.to_vec()?, &[5; 256])?;
        }
    }
    Ok(())
}

#[test]
fn a_pool_refuses_memory_of_another_coherence_than_its_first() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let region = 1 << 15;
        let mut options = PoolOptions::default();
        (options.initial, options.smallest_growth, options.largest_growth) = (region, region, region);
        let pinned = Limit::new(&PinnedMemory::new(&setup.context).share(), 1 << 16);
        let mapped = Aligned::<kind::Any>::new(&atoms(&setup.context)?.share(), 256)?;
        let source = Fallback::<kind::Any>::new(&pinned.share(), &mapped.share())?;
        writes_are_kept("a pool", &Pool::new(&source.share(), &options)?.share(), &stream)
    })
}
