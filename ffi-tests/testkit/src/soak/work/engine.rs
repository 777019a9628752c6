//! Copies of an engine, in every way, for memory of every source.

use crate::soak::{Done, Hands};
use cuda_mem::copy::CopyOptions;

/// Does one copy to the device or back.
pub fn step(hands: &mut Hands<'_>) -> Done {
    let (mut held, engine) = (hands.take()?, &hands.world.engine);
    let range = hands.range(held.model.len());
    let bytes = hands.bytes(range.len());
    match hands.below(5) {
        0 => {
            hands.doing("an engine's write");
            engine.write(&mut held.buffer, range.start, &bytes)?;
        }
        1 => {
            hands.doing("an engine's complete write");
            engine.write_complete(&mut held.buffer, range.start, &bytes)?;
        }
        2 => {
            hands.doing("an engine's write in order");
            let stream = hands.stream()?;
            engine.write_on(&stream, &mut held.buffer, range.start, &bytes)?;
        }
        3 => {
            hands.doing("an engine's scattered writes");
            let middle = bytes.len() / 2;
            let parts = [(range.start, &bytes[..middle]), (range.start + middle, &bytes[middle..])];
            engine.write_scattered(&mut held.buffer, parts)?;
        }
        _ => {
            hands.doing("an engine's write with options");
            engine.write_with(&mut held.buffer, range.start, &bytes, &CopyOptions::default())?;
        }
    }
    held.model[range.clone()].copy_from_slice(&bytes);
    held.did("written by the engine", range.clone());
    let mut seen = vec![0; range.len()];
    match hands.below(3) {
        0 => {
            hands.doing("an engine's read");
            engine.read(&held.buffer, range.start, &mut seen)?;
            hands.same("an engine's read", &seen, &bytes)?;
        }
        1 => {
            hands.doing("an engine's read in order");
            let stream = hands.stream()?;
            let pending = engine.read_on(&stream, &mut held.buffer, range.start, &mut seen)?;
            if hands.chance(4) {
                drop(pending);
            } else {
                pending.wait()?;
                hands.same("an engine's read in order", &seen, &bytes)?;
            }
        }
        _ => held.check(hands)?,
    }
    if hands.chance(200) {
        hands.doing("an engine's trim");
        engine.trim();
    }
    hands.keep(held);
    Ok(())
}
