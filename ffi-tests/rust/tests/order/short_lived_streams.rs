//! Values that live long and see many streams that do not: they keep neither the streams nor their events. Only the
//! software GPU tells how many there are.

use cuda_mem::adaptor::{GuardOptions, Guarded, Recording, Statistics, Tracking};
use cuda_mem::buffer::GrowableBuffer;
use cuda_mem::copy::CopyEngine;
use cuda_mem::frames::FrameRing;
use cuda_mem::graph::{CaptureMode, GraphOptions};
use cuda_mem::memory::{
    DeviceMemory, DevicePool, DriverPoolOptions, PinnedMemory, ResourceHandle, SharedResource, VirtualMemory,
    VirtualOptions, kind,
};
use cuda_mem::pool::{Pool, PoolOptions, RingOptions, RingPool};
use cuda_mem::signal::{Comparison, SignalError, Signals, Waiter};
use cuda_mem::{Buffer, Error, Stream};
use softgpu::Kind;
use testkit::suite::Outcome;
use testkit::{Setup, alone, same};

const SIZE: usize = 4096;
/// How many streams each value sees.
const STREAMS: usize = 4000;
/// How many streams, and how many events, may stay: the reserve of the context and the caches of the value.
const FEW: usize = 160;

/// Shows each of many streams to `one`, whose values outlive them.
fn see_many(setup: &Setup, mut one: impl FnMut(&Stream) -> Outcome) -> Outcome {
    let count = || [Kind::Stream, Kind::Event].map(|kind| softgpu::ledger().count(kind));
    let before = count();
    for _ in 0..STREAMS {
        one(&Stream::new(&setup.context)?)?;
    }
    if !setup.is_software() {
        println!("skipped: only the software GPU counts streams: set CUDA_MEM_LIBCUDA=softgpu");
        return Ok(());
    }
    let after = count();
    for (what, (before, after)) in ["streams", "events"].into_iter().zip(before.into_iter().zip(after)) {
        if after > before + FEW {
            return Err(format!("{} {what} stayed after {STREAMS} streams had ended", after - before).into());
        }
    }
    Ok(())
}

/// Gets memory from a resource on each of many streams. A buffer of the same resource, which outlives the streams,
/// stays unchanged.
fn allocate_on_many(setup: &Setup, resource: &SharedResource) -> Outcome {
    let home = Stream::new(&setup.context)?;
    let kept = Buffer::<u8, _>::filled(resource, SIZE, 7, &home)?;
    see_many(setup, |stream| {
        drop(Buffer::<u8, _>::filled(resource, SIZE, 9, stream)?);
        Ok(())
    })?;
    same("memory of another stream", &kept.to_vec()?, &[7; SIZE])?;
    Ok(())
}

#[test]
fn a_buffer_keeps_no_stream_of_its_reported_uses() -> Outcome {
    alone(|setup| {
        let home = Stream::new(&setup.context)?;
        let mut buffer = Buffer::<u8, _>::filled(&PinnedMemory::new(&setup.context), SIZE, 7, &home)?;
        see_many(setup, |stream| Ok(buffer.record_use(stream)?))?;
        same("the buffer", &buffer.to_vec()?, &[7; SIZE])?;
        see_many(setup, |stream| {
            buffer.set_stream(stream)?;
            Ok(buffer.record_use(stream)?)
        })
    })
}

/// Reports work that waits for a flag, on a stream that ends. Then the flag ends too.
fn use_by_abandoned_work(setup: &Setup, buffer: &Buffer<u8, kind::Pinned>) -> Outcome {
    let signals = Signals::new(&setup.context)?;
    let (stream, flag) = (Stream::new(&setup.context)?, signals.flag::<u32>(Waiter::Cpu)?);
    flag.wait_on(&stream, Comparison::Equal, 1)?;
    buffer.record_use(&stream)?;
    drop(stream);
    drop(flag);
    Ok(())
}

#[test]
fn an_access_tells_of_abandoned_work_of_a_dropped_stream() -> Outcome {
    alone(|setup| {
        let home = Stream::new(&setup.context)?;
        let mut buffer = Buffer::<u8, _>::filled(&PinnedMemory::new(&setup.context), SIZE, 7, &home)?;
        use_by_abandoned_work(setup, &buffer)?;
        for _ in 0..100 {
            buffer.record_use(&Stream::new(&setup.context)?)?;
        }
        let told = buffer.read(..).map(drop);
        let is_abandoned =
            |error: &Error| matches!(error, Error::Signal(signal) if matches!(**signal, SignalError::Abandoned { .. }));
        assert!(told.as_ref().is_err_and(is_abandoned), "{told:?}");
        same("the buffer", &buffer.read(..)?, &[7; SIZE])?;
        use_by_abandoned_work(setup, &buffer)?;
        drop(buffer);
        // Nobody has got this one.
        let errors = setup.context.take_drop_errors().errors;
        assert!(matches!(&errors[..], [told] if is_abandoned(&told.error)), "{errors:?}");
        Ok(())
    })
}

#[test]
fn shared_and_device_memory_keep_no_stream_of_their_uses() -> Outcome {
    alone(|setup| {
        let home = Stream::new(&setup.context)?;
        let device = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), SIZE, &home)?;
        see_many(setup, |stream| Ok(device.record_use(stream)?))?;
        let pinned = Buffer::<u8, _>::zeroed(&PinnedMemory::new(&setup.context), SIZE, &home)?;
        see_many(setup, |stream| Ok(pinned.record_use(stream)?))
    })
}

#[test]
fn a_ring_of_frames_keeps_no_stream_of_its_readers() -> Outcome {
    alone(|setup| {
        let signals = Signals::new(&setup.context)?;
        let ring = FrameRing::new(&PinnedMemory::new(&setup.context), &signals, 2, SIZE)?;
        see_many(setup, |stream| {
            let frame = ring.next()?;
            frame.wait_on(stream)?;
            frame.record_use(stream)?;
            frame.publish().map_err(Error::from)?;
            Ok(stream.synchronize()?)
        })?;
        // One frame, read by all.
        let frame = ring.next()?;
        see_many(setup, |stream| Ok(frame.record_use(stream)?))?;
        frame.publish().map_err(Error::from)?;
        Ok(())
    })
}

#[test]
fn signals_keep_no_stream_that_used_them() -> Outcome {
    alone(|setup| {
        let signals = Signals::new(&setup.context)?;
        let (flag, mut counter) = (signals.flag::<u32>(Waiter::Cpu)?, signals.counter::<u32>()?);
        counter.add(1);
        see_many(setup, |stream| {
            flag.store_on(stream, 1)?;
            flag.wait_on(stream, Comparison::Equal, 1)?;
            counter.wait_on(stream, 1)?;
            Ok(stream.synchronize()?)
        })
    })
}

#[test]
fn pools_keep_no_stream_that_freed_memory() -> Outcome {
    alone(|setup| {
        let device = DeviceMemory::new(&setup.context);
        for (name, resource) in [
            ("a pool", Pool::new(&device, &PoolOptions::default())?.share()),
            (
                "a pool of pinned memory",
                Pool::new(&PinnedMemory::new(&setup.context), &PoolOptions::default())?.share(),
            ),
            ("a ring", RingPool::new(&device, 2 * STREAMS * SIZE, &RingOptions::default())?.share()),
            ("a pool of the driver", DevicePool::new(&setup.context, &DriverPoolOptions::default())?.share()),
        ] {
            allocate_on_many(setup, &resource).map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(())
    })
}

#[test]
fn a_pool_in_place_keeps_no_stream_that_freed_memory() -> Outcome {
    alone(|setup| match VirtualMemory::new(&setup.context, &VirtualOptions::default()) {
        Ok(memory) => allocate_on_many(setup, &Pool::new(&memory, &PoolOptions::default())?.share()),
        Err(error) => {
            println!("skipped: {error}");
            Ok(())
        }
    })
}

#[test]
fn adaptors_keep_no_stream_that_freed_memory() -> Outcome {
    alone(|setup| {
        let device = DeviceMemory::new(&setup.context);
        for (name, resource) in [
            ("guarded", Guarded::new(&device, &GuardOptions::default())?.share()),
            ("statistics", Statistics::new(&device).share()),
            ("tracking", Tracking::new(&device).share()),
            ("recording", Recording::new(&device, 64).share()),
        ] {
            allocate_on_many(setup, &resource).map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(())
    })
}

#[test]
fn a_growing_buffer_keeps_no_former_home() -> Outcome {
    alone(|setup| {
        let memory = match VirtualMemory::new(&setup.context, &VirtualOptions::default()) {
            Ok(memory) => memory,
            Err(error) => {
                println!("skipped: {error}");
                return Ok(());
            }
        };
        let mut buffer = GrowableBuffer::<u8>::with_capacity(&memory, SIZE, &Stream::new(&setup.context)?)?;
        see_many(setup, |stream| {
            buffer.set_stream(stream)?;
            let _ = buffer.grow_to(buffer.len() + 1)?;
            Ok(())
        })
    })
}

#[test]
fn a_copy_engine_keeps_no_stream_of_its_copies() -> Outcome {
    alone(|setup| {
        let engine = CopyEngine::new(&setup.context)?;
        let mut buffer =
            Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), SIZE, &Stream::new(&setup.context)?)?;
        see_many(setup, |stream| {
            buffer.set_stream(stream)?;
            Ok(engine.write(&mut buffer, 0, &[7; SIZE])?)
        })?;
        same("the buffer", &buffer.to_vec()?, &[7; SIZE])?;
        Ok(())
    })
}

#[test]
fn graphs_keep_no_stream_that_captured_or_ran_them() -> Outcome {
    alone(|setup| {
        let home = Stream::new(&setup.context)?;
        let graph = home.capture(CaptureMode::ThreadLocal, |_| Ok(()))?.instantiate(GraphOptions::default())?;
        see_many(setup, |stream| {
            drop(stream.capture(CaptureMode::ThreadLocal, |_| Ok(()))?);
            // SAFETY: the graph is empty, so it uses no memory.
            Ok(unsafe { graph.launch(stream) }?)
        })
    })
}
