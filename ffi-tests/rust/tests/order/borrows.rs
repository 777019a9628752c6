//! Queued work must not touch memory that the CPU has borrowed. cuda-mem tells softgpu about its guards and loans and
//! makes all necessary waits, so softgpu must have nothing to report.

use cuda_mem::copy::CopyEngine;
use cuda_mem::cuda_sys::{CUdeviceptr, CUresult};
use cuda_mem::graph::CaptureMode;
use cuda_mem::mapped::CoherencePolicy;
use cuda_mem::memory::{DeviceMemory, PinnedMemory};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::view::{Order, StridedLayout, StridedView};
use cuda_mem::{Buffer, HostBuffer, MappedMemory, Stream};
use softgpu::{CpuBorrow, Misuse, MisuseReport};
use std::sync::Once;
use testkit::suite::Outcome;
use testkit::{Setup, alone, alone_with_misuse};

const SIZE: usize = 512;

/// Enables race detection. Settings apply to the whole process and are read when the driver starts.
fn watch() -> Outcome {
    static WATCH: Once = Once::new();
    let mut settings = softgpu::Settings::from_environment()?;
    settings.races = true;
    WATCH.call_once(|| softgpu::configure(settings).expect("the settings are the environment's"));
    Ok(())
}

/// Runs a program that misuses nothing.
fn clean(test: impl FnOnce(&Setup) -> Outcome) -> Outcome {
    watch()?;
    alone(test)
}

/// Queues work that cuda-mem does not know about.
fn fill_unseen(setup: &Setup, stream: &Stream, address: CUdeviceptr, size: usize) -> Outcome {
    let _current = setup.context.bind()?;
    // SAFETY: the memory lives until the stream has been waited for. softgpu detects other uses.
    let answer = unsafe { setup.driver.raw().cuMemsetD8Async(address, 9, size, stream.raw()) }?;
    assert_eq!(answer, CUresult::CUDA_SUCCESS);
    Ok(())
}

/// Runs a program that misuses memory on the software GPU, and checks the later and the earlier use in each report.
fn misused(test: impl FnOnce(&Setup) -> Outcome, expected: &[(&str, &str)]) -> Outcome {
    watch()?;
    let software = Setup::from_environment()?.is_software();
    alone_with_misuse(
        |setup| if setup.is_software() { test(setup) } else { Ok(()) },
        |reports| {
            let borrowed = |report: &&MisuseReport| report.misuse == Misuse::Borrowed;
            let told = reports.iter().filter(borrowed).map(|report| (report.call, report.other.unwrap_or_default()));
            assert_eq!(told.collect::<Vec<_>>(), if software { expected } else { &[] });
        },
    )
}

const READ: &str = "the CPU's borrow to read";
const WRITE: &str = "the CPU's borrow to write";

#[test]
fn work_on_memory_under_a_write_guard_is_reported() -> Outcome {
    misused(
        |setup| {
            let stream = Stream::new(&setup.context)?;
            let mut buffer = Buffer::<u8, _>::zeroed(&PinnedMemory::new(&setup.context), SIZE, &stream)?;
            let address = buffer.device_pointer();
            let guard = buffer.write(10..20)?;
            fill_unseen(setup, &stream, address, 10)?;
            fill_unseen(setup, &stream, address + 19, 10)?;
            guard.finish()?;
            fill_unseen(setup, &stream, address, SIZE)?;
            stream.synchronize()?;
            drop(buffer.write(..)?);
            fill_unseen(setup, &stream, address, SIZE)?;
            stream.synchronize()?;
            for wish in [CoherencePolicy::Preferred, CoherencePolicy::ForcedNonCoherent] {
                let mut mapped = testkit::mapped(&MappedMemory::with_coherence(&setup.context, wish)?, SIZE)?;
                let address = mapped.device_pointer();
                let guard = mapped.write(100..200)?;
                fill_unseen(setup, &stream, address + 150, 1)?;
                stream.synchronize()?;
                guard.finish()?;
                fill_unseen(setup, &stream, address + 150, 1)?;
                stream.synchronize()?;
            }
            let mut view = buffer.view_mut(&[SIZE as i64])?;
            let guard = view.write::<u8>()?;
            fill_unseen(setup, &stream, address, 1)?;
            stream.synchronize()?;
            Ok(guard.finish()?)
        },
        &[("a fill", WRITE); 4],
    )
}

#[test]
fn a_slice_of_memory_that_work_is_still_to_write_is_reported() -> Outcome {
    misused(
        |setup| {
            let (stream, memory) = (Stream::new(&setup.context)?, PinnedMemory::new(&setup.context));
            let mut buffer = Buffer::<u8, _>::zeroed(&memory, SIZE, &stream)?;
            let address = buffer.device_pointer();
            let guard = buffer.read(..)?;
            assert_eq!(guard.len(), SIZE);
            fill_unseen(setup, &stream, address, 1)?;
            assert_eq!(guard.len(), SIZE, "the second look is one too many");
            stream.synchronize()?;
            assert_eq!(guard[0], 9);
            let mut host = HostBuffer::<u8>::zeroed(&memory, SIZE)?;
            fill_unseen(setup, &stream, host.device_pointer() + 5, 1)?;
            host[7] = 1;
            stream.synchronize()?;
            assert_eq!(host[5], 9);
            let mut mapped = testkit::mapped(&MappedMemory::new(&setup.context)?, SIZE)?;
            let address = mapped.device_pointer();
            let guard = mapped.read(..)?;
            fill_unseen(setup, &stream, address, 1)?;
            assert_eq!(guard.len(), SIZE);
            Ok(stream.synchronize()?)
        },
        &[(READ, "a fill"), (WRITE, "a fill"), (READ, "a fill")],
    )
}

/// Each slice lies in page-locked memory that a guard has lent, and returns to the guard when the copy is done.
#[test]
fn copies_out_of_and_into_what_a_guard_has_are_no_misuse() -> Outcome {
    clean(|setup| {
        let stream = Stream::new(&setup.context)?;
        let mut pinned = Buffer::<u8, _>::zeroed(&PinnedMemory::new(&setup.context), SIZE, &stream)?;
        let mut device = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), SIZE, &stream)?;
        let mut mapped = testkit::mapped(&MappedMemory::new(&setup.context)?, SIZE)?;
        let engine = CopyEngine::new(&setup.context)?;
        let mut host = pinned.write(..)?;
        host.fill(3);
        device.copy_from_slice(0, &host)?;
        host.fill(4);
        device.copy_to_slice(0, &mut host[10..20])?;
        assert_eq!(host[9..21], [&[4][..], &[3; 10], &[4]].concat());
        engine.write(&mut device, 0, &host[..])?;
        engine.read(&device, 0, &mut host[..])?;
        engine.write(&mut mapped, 0, &host[..])?;
        mapped.copy_from_slice(0, &host)?;
        mapped.copy_to_slice(0, &mut host)?;
        let shape = [SIZE as i64];
        let line = StridedLayout::dense(&shape, 1, Order::C)?;
        device.view_mut(&shape)?.copy_from(&StridedView::of_slice(&host[..], line.clone())?)?;
        StridedView::of_mut_slice(&mut host[..], line)?.copy_from(&device.view(&shape)?)?;
        host.finish()?;
        let lent = HostBuffer::<u8>::zeroed(&PinnedMemory::new(&setup.context), SIZE)?;
        let lent = device.upload(0, lent)?.wait()?;
        drop(device.download(0, lent)?);
        Ok(())
    })
}

/// The CPU must not conclude from one stream that the other stream's work is done, because a captured join orders
/// nothing now.
#[test]
fn cpu_read_after_a_captured_join_waits_for_pending_work() -> Outcome {
    clean(|setup| {
        let (p, q) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
            for captured in [&p, &q] {
                let mut buffer = Buffer::<u8, _>::zeroed(&PinnedMemory::new(&setup.context), SIZE, &p)?;
                buffer.fill(.., 7)?;
                // This test does not check whether the call is refused, or whether there is a graph.
                let _ = captured.capture(mode, |_| buffer.set_stream(&q));
                assert!(buffer.read(..)?.iter().all(|byte| *byte == 7));
                buffer.fill(.., 8)?;
                let _ = captured.capture(mode, |_| p.join(&q).and_then(|()| q.join(&p)));
                assert!(buffer.write(..)?.iter().all(|byte| *byte == 8));
            }
        }
        Ok(())
    })
}

#[test]
fn host_buffer_gets_no_memory_with_work_pending_from_a_capture() -> Outcome {
    clean(|setup| {
        let (p, q) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let pool = Pool::new(&PinnedMemory::new(&setup.context), &PoolOptions::default())?;
        for divided in [false, true] {
            let mut buffer = Buffer::<u8, _>::zeroed(&pool, SIZE, &p)?;
            buffer.fill(.., 7)?;
            if divided {
                let (one, mut two) = buffer.split_at(SIZE / 2).map_err(|refused| refused.error)?;
                two.set_stream(&q)?;
                two.fill(.., 8)?;
                let _ = q.capture(CaptureMode::Relaxed, |_| {
                    drop(two);
                    Ok(())
                });
                buffer = one;
            }
            let _ = p.capture(CaptureMode::Relaxed, |_| {
                drop(buffer);
                Ok(())
            });
            let mut next = HostBuffer::<u8>::zeroed(&pool, SIZE)?;
            next.fill(1);
            assert!(next.iter().all(|byte| *byte == 1));
        }
        Ok(())
    })
}

#[test]
fn borrowed_copies_are_done_at_their_end_beside_captures_too() -> Outcome {
    clean(|setup| {
        let (stream, captured) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let buffer = Buffer::filled(&DeviceMemory::new(&setup.context), SIZE, 7u8, &stream)?;
        for mode in [CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
            let mut host = HostBuffer::<u8>::zeroed(&PinnedMemory::new(&setup.context), SIZE)?;
            let _ = captured.capture(mode, |captured| {
                buffer.copy_to_slice(0, &mut host)?;
                assert!(host.iter().all(|byte| *byte == 7));
                stream.join(captured)?;
                // The capture has the stream now.
                assert!(buffer.copy_to_slice(0, &mut host).is_err());
                assert!(host.iter().all(|byte| *byte == 7));
                Ok(())
            });
            assert!(host.iter().all(|byte| *byte == 7));
        }
        Ok(())
    })
}

#[test]
fn a_forgotten_guard_holds_nothing_back() -> Outcome {
    clean(|setup| {
        let stream = Stream::new(&setup.context)?;
        let mut buffer = Buffer::<u8, _>::zeroed(&PinnedMemory::new(&setup.context), SIZE, &stream)?;
        for byte in 1..4 {
            let _forgotten = std::mem::ManuallyDrop::new(buffer.read(..)?);
            let mut guard = buffer.write(..)?;
            guard.fill(byte);
            // The borrow ends here, but softgpu cannot see that.
            CpuBorrow::end_all(guard.as_ptr().addr(), SIZE);
            std::mem::forget(guard);
            assert_eq!(buffer.to_vec()?, [byte; SIZE]);
            buffer.fill(.., 0)?;
        }
        Ok(())
    })
}
