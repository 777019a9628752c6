//! Pools: trimmed, kept, used from several threads, ended with live blocks; rings.

use crate::soak::{Done, Hands};
use cuda_mem::memory::{PinnedMemory, ResourceHandle, VirtualMemory, VirtualOptions};
use cuda_mem::pool::{Pool, PoolOptions, Reuse, RingOptions, RingPool, Snapshot, WhenFull};
use cuda_mem::{Buffer, Error, Stream};

/// Does one operation on a shared pool, or runs the life of a new pool.
pub fn step(hands: &mut Hands<'_>) -> Done {
    let world = hands.world;
    let pool = &world.pools[hands.below(world.pools.len())];
    match hands.below(8) {
        0 => {
            hands.doing("a pool's trim");
            pool.trim_to(hands.below(1 << 20))?;
        }
        1 => {
            hands.doing("a pool's reservation");
            pool.reserve(hands.below(1 << 18))?;
        }
        2 => {
            hands.doing("a pool's unused memory");
            pool.release_unused()?;
        }
        3 => {
            hands.doing("a pool that lets a stream go");
            let stream = hands.stream()?;
            pool.release_stream(&stream)?;
        }
        4 => {
            hands.doing("a pool's figures");
            let snapshot = pool.snapshot();
            let again = Snapshot::from_json(&snapshot.to_json());
            hands.ensure(again.as_ref().is_ok_and(|again| *again == snapshot), || {
                format!("{again:?} is {snapshot:?}")
            })?;
        }
        5 => {
            hands.doing("blocks that go from stream to stream");
            let size = hands.size(4096);
            let source = pool.share();
            for _ in 0..6 {
                let (stream, byte) = (hands.stream()?, hands.number() as u8);
                // The previous owner's fill may still be running.
                let buffer = Buffer::<u8, _>::filled(&source, size, byte, &stream)?;
                if hands.chance(6) {
                    hands.same("a block of another stream's", &buffer.to_vec()?, &vec![byte; size])?;
                }
            }
        }
        _ => own(hands)?,
    }
    Ok(())
}

/// A pool that two threads use, and that ends before the last of its memory.
fn own(hands: &mut Hands<'_>) -> Done {
    let source = hands.source();
    hands.doing("a pool of its own");
    let mut settings = PoolOptions::default();
    (settings.initial, settings.smallest_growth, settings.maximum) = (0, 1 << 16, 1 << 22);
    if source.most < 1 << 16 {
        return Ok(());
    }
    settings.largest_growth = 1 << 16;
    let pool = Pool::new(&source.resource, &settings)?;
    let seeds = [hands.number(), hands.number()];
    let work = |seed: u64| -> Result<Buffer<u8, _>, Error> {
        let (stream, byte) = (Stream::new(pool.context())?, seed as u8);
        let mut last = Buffer::filled(&pool, 1 + (seed >> 8) as usize % 5000, byte, &stream)?;
        for round in 0..20 {
            let other = Buffer::filled(&pool, 1 + (seed >> round) as usize % 9000, byte, &stream)?;
            drop(std::mem::replace(&mut last, other));
        }
        Ok(last)
    };
    let buffers = std::thread::scope(|scope| {
        let threads = seeds.map(|seed| scope.spawn(move || work(seed)));
        threads.map(|thread| thread.join().map_err(|panic| crate::soak::hands::text(&*panic).to_owned()))
    });
    drop(pool);
    for (buffer, seed) in buffers.into_iter().zip(seeds) {
        let buffer = buffer??;
        hands.same("memory of a pool that has ended", &buffer.to_vec()?, &vec![seed as u8; buffer.len()])?;
    }
    Ok(())
}

/// A pool over virtual memory with many chunks. Its blocks are larger and smaller than a chunk and end in any order, so
/// unused chunks move to where a block needs them.
pub fn in_place(hands: &mut Hands<'_>) -> Done {
    /// The pool's size, in chunks.
    const CHUNKS: usize = 8;
    hands.doing("a pool in place");
    let memory = VirtualMemory::new(&hands.world.context, &VirtualOptions::default())?;
    let chunk = memory.granularity();
    let mut settings = PoolOptions::default();
    (settings.initial, settings.smallest_growth, settings.maximum) = (0, chunk, CHUNKS * chunk);
    settings.reuse = [Reuse::Wait, Reuse::WhenPassed, Reuse::SameStreamOnly][hands.below(3)];
    let pool = Pool::new(&memory, &settings)?;
    let mut live: Vec<(Buffer<u8, _>, u8)> = Vec::new();
    for _ in 0..24 {
        let (stream, byte, most) =
            (hands.stream()?, hands.number() as u8, [5000, 2 * chunk, 4 * chunk][hands.below(3)]);
        let size = 1 + hands.below(most);
        match Buffer::filled(&pool, size, byte, &stream) {
            Ok(buffer) => live.push((buffer, byte)),
            Err(error) if error.is_out_of_memory() => live.truncate(1),
            Err(error) => return Err(error.into()),
        }
        if hands.chance(6) {
            hands.doing("a pool in place, trimmed");
            pool.trim_to(hands.below(CHUNKS) * chunk)?;
        }
        if live.len() > 5 {
            let (buffer, byte) = live.swap_remove(hands.below(live.len()));
            hands.doing("a block of a pool in place");
            // Both ends, and a part between that may cross from one chunk to the next.
            for range in [0..buffer.len().min(64), hands.range(buffer.len()), buffer.len() - 1..buffer.len()] {
                let mut seen = vec![!byte; range.len().min(1 << 14)];
                buffer.copy_to_slice(range.start, &mut seen)?;
                hands.same("a block of a pool in place", &seen, &vec![byte; seen.len()])?;
            }
        }
    }
    Ok(())
}

/// Writes through staging memory.
pub fn rings(hands: &mut Hands<'_>) -> Done {
    let world = hands.world;
    let mut held = hands.take()?;
    let range = hands.range(held.model.len());
    let bytes = hands.bytes(range.len());
    let own;
    let ring = if hands.chance(8) {
        hands.doing("a ring of its own");
        let mut settings = RingOptions::default();
        settings.when_full = if hands.chance(2) { WhenFull::Refuse } else { WhenFull::Wait };
        own = RingPool::new(&PinnedMemory::new(&world.context), 4096, &settings)?;
        &own
    } else {
        &world.rings[hands.below(world.rings.len())]
    };
    hands.doing("a ring's upload");
    ring.upload(&mut held.buffer, range.start, &bytes)?;
    held.model[range.clone()].copy_from_slice(&bytes);
    held.did("uploaded through a ring", range);
    if hands.chance(10) {
        hands.doing("a ring's wait");
        ring.synchronize()?;
    }
    held.check(hands)?;
    hands.keep(held);
    Ok(())
}
