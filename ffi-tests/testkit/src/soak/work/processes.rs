//! Memory shared with a short-lived process, which is sometimes killed.

use crate::soak::child::{self, Other};
use crate::soak::{Done, Hands, Trouble};
use cuda_mem::ipc::Export;
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{DevicePool, DriverPool};
use cuda_mem::{Buffer, Error};
use std::time::Duration;

/// Runs one process.
pub fn step(hands: &mut Hands<'_>) -> Done {
    let Some(pool) = &hands.world.shareable else { return Ok(()) };
    let killed = hands.chance(2);
    let moment = Duration::from_micros(hands.below(30_000) as u64);
    let done = if hands.chance(2) {
        exported(hands, pool, killed.then_some(moment))
    } else {
        imported(hands, killed.then_some(moment))
    };
    match done {
        // A killed process closes its channel.
        Err(Trouble::Refused(Error::Channel(_))) if killed => Ok(()),
        other => other,
    }
}

/// The other process imports and inverts the memory, and sends a message.
fn exported(hands: &mut Hands<'_>, pool: &DriverPool<Any>, killed: Option<Duration>) -> Done {
    let (stream, bytes) = (hands.stream()?, hands.bytes(5000));
    hands.doing("memory for another process");
    let memory = Buffer::from_slice(pool, &bytes, &stream)?.into_shared();
    memory.synchronize()?;
    let (of_pool, of_memory) = (pool.export()?, memory.export()?);
    let mut other = Other::start(child::IMPORTER)?;
    if let Some(moment) = killed {
        other.kill_after(moment);
    }
    other.channel.send(&of_pool)?;
    other.channel.send(&of_memory)?;
    hands.doing("the wait for another process");
    let seen = other.channel.receive_bytes()?;
    hands.same("what another process saw", &seen, &bytes)?;
    let inverted: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
    hands.same("what another process wrote", &memory.to_vec()?, &inverted)?;
    let Export::PoolMemory(back) = other.channel.receive()? else { return Err("no memory came back".into()) };
    let back = pool.import_buffer::<u8>(&back, &stream)?;
    hands.same("memory that came back", &back.to_vec()?, &inverted)?;
    other.finish(killed.is_some())
}

/// The other process exports the memory. It may have ended while this process uses the memory.
fn imported(hands: &mut Hands<'_>, killed: Option<Duration>) -> Done {
    let stream = hands.stream()?;
    hands.doing("memory of another process");
    let mut other = Other::start(child::EXPORTER)?;
    if let Some(moment) = killed {
        other.kill_after(moment);
    }
    let expected = other.channel.receive_bytes()?;
    let Export::Pool(pool) = other.channel.receive()? else { return Err("no pool came".into()) };
    let Export::PoolMemory(memory) = other.channel.receive()? else { return Err("no memory came".into()) };
    let pool = DevicePool::import(&hands.world.context, pool)?;
    let memory = pool.import_buffer::<u8>(&memory, &stream)?;
    hands.same("another process's memory", &memory.to_vec()?, &expected)?;
    drop(memory);
    stream.synchronize()?;
    drop(pool);
    other.finish(killed.is_some())
}
