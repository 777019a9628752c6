//! Copies in stream order.

use super::engine;
use cuda_mem::copy::{CopyEngine, StagingOptions};
use cuda_mem::mapped::Coherence;
use cuda_mem::memory::DeviceMemory;
use cuda_mem::{Buffer, CaptureMode, Error, MappedMemory, Stream};
use std::time::{Duration, Instant};
use testkit::suite::Outcome;
use testkit::{alone, delay, pattern, same};

#[test]
fn engine_write_follows_earlier_stream_work_without_blocking() -> Outcome {
    alone(|setup| {
        let (engine, stream) = (engine(&setup.context)?, Stream::new(&setup.context)?);
        let resource = MappedMemory::new(&setup.context)?;
        let mut mapped = testkit::mapped(&resource, 4096)?;
        let mut buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), 4096, &stream)?;
        // The first copy allocates the staging memory, which takes time.
        engine.write_on(&stream, &mut buffer, 0, &[0; 64])?;
        stream.synchronize()?;
        delay(&stream)?;
        testkit::fill_on(&mut mapped, .., 1, &stream)?;
        buffer.fill(.., 1)?;
        let mut source = [2u8; 64];
        let began = Instant::now();
        engine.write_on(&stream, &mut mapped, 10, &source)?;
        engine.write_on(&stream, &mut buffer, 10, &source)?;
        let busy = !stream.is_done()?;
        source.fill(9); // it is free again
        if busy {
            println!("two writes on a busy stream: {:?}", began.elapsed());
        }
        let expected: Vec<u8> = (0..4096).map(|place| if (10..74).contains(&place) { 2 } else { 1 }).collect();
        let (mut from_mapped, mut from_buffer) = (vec![0u8; 4096], vec![0u8; 4096]);
        let reads = (
            engine.read_on(&stream, &mut mapped, 0, &mut from_mapped)?,
            engine.read_on(&stream, &mut buffer, 0, &mut from_buffer)?,
        );
        // Later work does not change the bytes that were read.
        testkit::fill_on(&mut mapped, .., 5, &stream)?;
        buffer.fill(.., 5)?;
        reads.0.wait()?;
        reads.1.wait()?;
        same("mapped", &from_mapped, &expected)?;
        same("buffer", &from_buffer, &expected)?;
        mapped.load(0, &mut from_mapped)?;
        assert_eq!((from_mapped[0], from_mapped[4095]), (5, 5), "the memory knows of the stream's work");
        Ok(())
    })
}

#[test]
fn an_idle_stream_has_no_work_to_come_after() -> Outcome {
    alone(|setup| {
        let (engine, stream) = (engine(&setup.context)?, Stream::new(&setup.context)?);
        let mut mapped = testkit::mapped(&MappedMemory::new(&setup.context)?, 4096)?;
        let coherent = mapped.coherence() == Coherence::Coherent;
        engine.write_on(&stream, &mut mapped, 5, b"at once")?;
        let mut seen = [0u8; 7];
        let read = engine.read_on(&stream, &mut mapped, 5, &mut seen)?;
        assert!(!coherent || read.is_done()?);
        read.wait()?;
        assert_eq!(&seen, b"at once");
        if coherent {
            assert_eq!(engine.reserved_staging(), 0, "CPU stores and loads need no staging");
        }
        Ok(())
    })
}

#[test]
fn copies_larger_than_the_staging_come_whole_and_in_order() -> Outcome {
    alone(|setup| {
        let mut staging = StagingOptions::default();
        (staging.slot_size, staging.slots, staging.lanes) = (1000, 3, 2);
        let engine = CopyEngine::builder(&setup.context).staging(staging).build()?;
        let (home, stream) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let mut buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), 100_000, &home)?;
        for round in 0..20u8 {
            delay_briefly(&home)?;
            buffer.fill(.., round)?; // on its home stream, for which the other stream must wait
            let expected = pattern(99_990, round);
            engine.write_on(&stream, &mut buffer, 7, &expected)?;
            let mut seen = vec![0; 99_990];
            engine.read_on(&stream, &mut buffer, 7, &mut seen)?.wait()?;
            same("by small slots", &seen, &expected)?;
            assert_eq!(buffer.to_vec()?[..7], [round; 7]);
        }
        assert!(engine.reserved_staging() <= 2 * 3 * 1000);
        Ok(())
    })
}

fn delay_briefly(stream: &Stream) -> cuda_mem::Result<()> {
    stream.launch_host_function(|| std::thread::sleep(Duration::from_millis(2)))
}

#[test]
fn reads_that_nobody_waits_for_take_nothing_from_others() -> Outcome {
    alone(|setup| {
        let mut staging = StagingOptions::default();
        (staging.slot_size, staging.lanes) = (4096, 2);
        let engine = CopyEngine::builder(&setup.context).staging(staging).build()?;
        let stream = Stream::new(&setup.context)?;
        let mut buffer = Buffer::<u8, _>::from_slice(&DeviceMemory::new(&setup.context), &pattern(10_000, 1), &stream)?;
        let mut rooms = vec![vec![0u8; 5000]; 9];
        let mut reads = Vec::new();
        for room in &mut rooms {
            reads.push(engine.read_on(&stream, &mut buffer, 100, room)?);
        }
        // More copies than there are lanes, while others are still running.
        let mut seen = vec![0; 10_000];
        engine.read(&buffer, 0, &mut seen)?;
        same("beside pending reads", &seen, &pattern(10_000, 1))?;
        drop(reads.pop());
        for read in reads {
            read.wait()?;
        }
        for room in &rooms[..8] {
            same("a pending read", room, &pattern(10_000, 1)[100..5100])?;
        }
        engine.trim();
        assert_eq!(engine.reserved_staging(), 0, "all lanes came back");
        Ok(())
    })
}

#[test]
fn a_stream_that_captures_is_refused_and_its_capture_goes_on() -> Outcome {
    alone(|setup| {
        let (engine, stream) = (engine(&setup.context)?, Stream::new(&setup.context)?);
        let mut buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), 100, &stream)?;
        let mut mapped = testkit::mapped(&MappedMemory::new(&setup.context)?, 100)?;
        let graph = stream.capture(CaptureMode::ThreadLocal, |stream| {
            for refused in [
                engine.write_on(stream, &mut buffer, 0, &[1]),
                engine.write_on(stream, &mut mapped, 0, &[1u8]),
                engine.read_on(stream, &mut buffer, 0, &mut [0]).map(drop),
            ] {
                let text = refused.map_err(|error: Error| error.to_string()).unwrap_err();
                assert!(text.contains("capturing a graph"), "{text}");
            }
            Ok(())
        })?;
        drop(graph);
        Ok(())
    })
}
