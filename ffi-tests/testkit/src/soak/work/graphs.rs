//! Captured and launched work.

use crate::soak::{Done, Hands};
use cuda_mem::graph::{CaptureMode, GraphOptions};
use cuda_mem::memory::DeviceMemory;
use cuda_mem::memory::GraphMemory;
use cuda_mem::{Buffer, Stream};
use std::sync::PoisonError;

/// A graph that fills its own memory and copies it out, launched several times.
pub fn step(hands: &mut Hands<'_>) -> Done {
    let size = hands.size(1 << 14);
    hands.doing("a graph's stream and memory");
    // Global captures forbid calls on all threads, but here other threads go on.
    let mode = if hands.chance(2) { CaptureMode::ThreadLocal } else { CaptureMode::Relaxed };
    let stream = Stream::new(&hands.world.context)?;
    let byte = hands.number() as u8;
    let mut result = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&hands.world.context), size, &stream)?;
    // SAFETY: the memory's buffers end within the capture.
    let memory = unsafe { GraphMemory::new(&hands.world.context) };
    let half = size / 2;
    let captures = hands.world.captures.read().unwrap_or_else(PoisonError::into_inner);
    hands.doing("a capture");
    let graph = stream.capture(mode, |stream| {
        let mut scratch = Buffer::filled(&memory, size, byte, stream)?;
        scratch.fill(half.., !byte)?;
        result.copy_from_buffer(0, &scratch, ..)
    })?;
    drop(captures);
    let executable = graph.instantiate(GraphOptions::default())?;
    drop(graph);
    let mut expected = vec![byte; size];
    expected[half..].fill(!byte);
    for _ in 0..hands.below(4) {
        hands.doing("a launch");
        result.fill(.., 0)?;
        // SAFETY: the one buffer that the graph does not allocate itself lives until the stream has been waited for.
        let launched = unsafe { executable.launch(&stream) };
        if launched.is_err() {
            stream.synchronize()?;
        }
        launched?;
        hands.same("a graph's result", &result.to_vec()?, &expected)?;
    }
    if hands.chance(4) {
        let _captures = hands.world.captures.read().unwrap_or_else(PoisonError::into_inner);
        hands.doing("a capture that is given up");
        let given_up = stream.capture(mode, |stream| {
            drop(Buffer::filled(&memory, size, byte, stream)?);
            Err(cuda_mem::Error::InvalidArgument {
                call: "soak",
                argument: "none",
                value: "".into(),
                rule: "it is to fail",
            })
        });
        hands.ensure(given_up.is_err(), || "a capture whose recording failed gave a graph".to_owned())?;
    }
    if hands.chance(8) {
        hands.doing("a trim of the memory of graphs");
        memory.trim()?;
    }
    Ok(())
}
