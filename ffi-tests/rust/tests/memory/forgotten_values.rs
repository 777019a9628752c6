//! Values that own something may be forgotten: they leak it, and other uses of the memory still work.
//! docs/reliability.md lists what each forgotten value leaks. This is the only test of its process, because it leaves
//! things behind.

use cuda_mem::adaptor::Statistics;
use cuda_mem::copy::CopyEngine;
use cuda_mem::io::BufferWriter;
use cuda_mem::mapped::MappedMemory;
use cuda_mem::memory::{DeviceMemory, RegisterOptions, RegisteredMemory};
use cuda_mem::signal::{Signals, Waiter};
use cuda_mem::{Buffer, CaptureMode, Event, GraphOptions, Stream};
use std::io::Write;
use std::mem::forget;
use testkit::suite::Outcome;
use testkit::{Setup, delay, pattern, same};

#[test]
fn everything_that_ends_by_itself_may_be_forgotten() -> Outcome {
    let setup = Setup::from_environment()?;
    let (context, device) = (&setup.context, DeviceMemory::new(&setup.context));
    let stream = Stream::new(context)?;
    let mut buffer = Buffer::from_slice(&device, &pattern(4096, 1), &stream)?;
    let mut model = pattern(4096, 1);

    // A transfer owns its host memory, so that memory stays while the copy runs.
    delay(&stream)?;
    forget(buffer.upload(0, vec![7u8; 100])?);
    forget(buffer.download(0, vec![0u8; 4096])?);
    model[..100].fill(7);
    same("after transfers", &buffer.to_vec()?, &model)?;

    // More reads than the engine has lanes: the slice is untouched, and later copies still find staging.
    let engine = CopyEngine::new(context)?;
    let mut host = [0u8; 64];
    for _ in 0..9 {
        delay(&stream)?;
        forget(engine.read_on(&stream, &mut buffer, 0, &mut host)?);
        host.fill(3);
    }
    stream.synchronize()?;
    assert_eq!(host, [3; 64]);
    engine.write_on(&stream, &mut buffer, 0, &[8u8; 100])?;
    model[..100].fill(8);
    engine.read(&buffer, 0, &mut host)?;
    assert_eq!(host, [8; 64]);

    // A writer's staged bytes are lost, as with BufWriter. The bytes that were sent arrive.
    let mut writer = BufferWriter::with_staging(&mut buffer, 128);
    writer.write_all(&[9; 64])?; // sent when its half is full
    writer.write_all(&[10; 32])?;
    forget(writer);
    model[..64].fill(9);
    same("after a writer", &buffer.to_vec()?, &model)?;

    // Graphs, events, streams, sections, signals.
    let graph = stream.capture(CaptureMode::default(), |_| Ok(()))?;
    forget(graph.instantiate(GraphOptions::default())?);
    forget(graph);
    let event = Event::new(context)?;
    event.record(&stream)?;
    forget(event);
    let other = Stream::new(context)?;
    buffer.set_stream(&other)?;
    forget(stream);
    let statistics = Statistics::new(&device);
    forget(statistics.section());
    let second = Buffer::from_slice(&statistics, &[1u8; 16], &other)?;
    assert_eq!(statistics.section().finish().blocks.current, 0);
    assert_eq!(second.to_vec()?, [1; 16]);
    let signals = Signals::new(context)?;
    forget(signals.flag::<u32>(Waiter::Cpu)?);
    forget(signals.ring_to_device::<u32>(8)?);
    forget(signals.ring_from_device::<u32>(8)?);
    let flag = signals.flag::<u32>(Waiter::Cpu)?;
    flag.store(4);
    assert_eq!(flag.load(), 4);

    // Memory: a part, a shared clone, a registration together with its owner.
    let (left, right) = buffer.split_at(2048)?;
    forget(left);
    same("the other part", &right.to_vec()?, &model[2048..])?;
    let registered =
        RegisteredMemory::new(context, vec![1u8; 4096], RegisterOptions::default()).map_err(|refused| refused.error)?;
    let mut lent = registered.buffer(&other)?;
    forget(registered);
    delay(&other)?;
    lent.fill(.., 6)?;
    same("registered memory", &lent.read(..)?, &[6; 4096])?;
    let mapped = testkit::mapped(&MappedMemory::new(context)?, 4096)?;
    let (left, mut right) = mapped.split_at(2048).map_err(|refused| refused.error)?;
    forget(left);
    right.store(0, &[5u8; 8])?;
    assert_eq!(right.read(..8)?[..], [5; 8]);
    // The forgotten part counts as in use, so the memory cannot be exported.
    assert!(right.into_shared().export().is_err());
    assert_eq!(context.take_drop_errors().errors, []);
    assert!(softgpu::misuse().is_empty(), "{:?}", softgpu::misuse());
    Ok(())
}
