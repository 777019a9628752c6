//! Captures beside work, with joins, changes of the home stream and ends of memory in them: what a capture records
//! orders nothing now.

use crate::soak::{Done, Hands};
use cuda_mem::graph::CaptureMode;
use cuda_mem::memory::PinnedMemory;
use cuda_mem::{Buffer, Event, HostBuffer, Stream};
use std::sync::PoisonError;

/// A capture that contains calls which order streams or copy for the CPU. The calls may be refused.
pub fn step(hands: &mut Hands<'_>) -> Done {
    hands.doing("streams that a capture may draw in");
    // No other thread uses these streams.
    let context = &hands.world.context;
    let (home, captured) = (Stream::new(context)?, Stream::new(context)?);
    let (source, byte) = (hands.source(), hands.number() as u8);
    let size = hands.size(source.most.min(1 << 14));
    let mut buffer = Buffer::filled(&source.resource, size, byte, &home)?;
    let mut host = HostBuffer::<u8>::zeroed(&PinnedMemory::new(context), size)?;
    let mode = if hands.chance(2) { CaptureMode::ThreadLocal } else { CaptureMode::Relaxed };
    let from = if hands.chance(2) { home.clone() } else { captured.clone() };
    let captures = hands.world.captures.read().unwrap_or_else(PoisonError::into_inner);
    hands.doing("a capture beside work");
    let mut copied = false;
    // This step does not check whether the calls are refused, or whether a graph results.
    let _ = from.capture(mode, |_| {
        for _ in 0..1 + hands.below(4) {
            match hands.below(7) {
                0 => drop(buffer.set_stream(&captured)),
                1 => drop(home.join(&captured)),
                2 => drop(captured.join(&home)),
                3 => drop(buffer.record_use(&captured)),
                4 | 5 => copied |= buffer.copy_to_slice(0, &mut host).is_ok(),
                _ => drop(Event::new(captured.context()).and_then(|event| {
                    event.record(&captured)?;
                    home.wait(&event)
                })),
            }
        }
        Ok(())
    });
    if hands.chance(2) {
        hands.doing("memory that ends in a capture");
        let byte = !byte;
        let mut ends = Buffer::filled(&source.resource, size, byte, &home)?;
        ends.copy_from_buffer(0, &buffer, ..)?;
        let _ = captured.capture(CaptureMode::Relaxed, |_| {
            drop(ends);
            Ok(())
        });
    }
    drop(captures);
    hands.doing("memory after a capture");
    if copied {
        hands.same("what was copied in a capture", &host, &vec![byte; size])?;
    }
    hands.same("memory after a capture", &buffer.to_vec()?, &vec![byte; size])?;
    // The CPU is the next owner of the memory.
    drop(buffer);
    host.fill(!byte);
    hands.same("memory of the CPU's after a capture", &host, &vec![!byte; size])
}

/// Memory that moves between streams by joins, events and home streams.
pub fn joins(hands: &mut Hands<'_>) -> Done {
    let mut held = hands.take()?;
    for _ in 0..1 + hands.below(6) {
        let (one, two) = (hands.stream()?, hands.stream()?);
        match hands.below(5) {
            0 => {
                hands.doing("a join");
                one.join(&two)?;
                two.join(&one)?;
            }
            1 => {
                hands.doing("a wait for an event");
                let event = Event::new(&hands.world.context)?;
                event.record(&one)?;
                two.wait(&event)?;
            }
            2 => {
                hands.doing("a use by another stream");
                held.buffer.record_use(&one)?;
                held.did("used by another stream", 0..0);
            }
            3 => {
                hands.doing("a fill on another home stream");
                let (range, byte) = (hands.range(held.model.len()), hands.number() as u8);
                held.buffer.set_stream(&one)?;
                held.buffer.fill(range.clone(), byte)?;
                held.model[range.clone()].fill(byte);
                held.did("filled on another stream", range);
            }
            _ => {
                hands.doing("two changes of the home stream");
                held.buffer.set_stream(&one)?;
                held.buffer.set_stream(&two)?;
                held.did("given other streams", 0..0);
            }
        }
    }
    held.check(hands)?;
    hands.keep(held);
    Ok(())
}
