//! Memory that changes its owner while work of the former owner is queued, and memory that is made beside captures or
//! filled by threads that try to join them.

use crate::soak::{Done, Hands};
use cuda_mem::graph::CaptureMode;
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{PinnedMemory, ResourceHandle, SharedResource};
use cuda_mem::{Buffer, Error, Event, HostBuffer, Stream};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;

/// A pool whose blocks may still be in use by their former owners.
fn pool(hands: &mut Hands<'_>) -> SharedResource {
    let world = hands.world;
    world.pools[hands.below(world.pools.len())].share()
}

/// The CPU uses a block right after its change of owner, while the former owner's download is queued.
pub fn step(hands: &mut Hands<'_>) -> Done {
    let (pool, stream, size) = (pool(hands), hands.stream()?, hands.size(4096));
    let access = pool.accessibility();
    if !access.host {
        return Ok(());
    }
    hands.doing("a block whose former owner's work is queued");
    let (old, new, stored) = (hands.number() as u8, hands.number() as u8, hands.bytes(size));
    let former = Buffer::<u8, Any>::filled(&pool, size, old, &stream)?;
    let place = HostBuffer::<u8>::zeroed(&PinnedMemory::new(&hands.world.context), size)?;
    let download = former.download(0, place)?;
    drop(former);
    let mut next = Buffer::<u8, Any>::filled(&pool, size, new, &stream)?;
    let mut seen = vec![!new; size];
    let stores = hands.chance(2);
    let expected = if stores { stored.clone() } else { vec![new; size] };
    // CPU access to shared managed memory is refused.
    let bytes = if access.managed || hands.chance(2) {
        hands.doing("exclusive CPU access to such a block");
        if stores {
            next.store(0, &stored)?
        } else {
            next.load(0, &mut seen)?
        }
        next.to_vec()?
    } else {
        hands.doing("shared CPU access to such a block");
        let shared = next.into_shared();
        let part = shared.slice(..)?;
        if stores {
            part.store(0, &stored)?
        } else {
            part.load(0, &mut seen)?
        }
        shared.to_vec()?
    };
    hands.same("what the former owner downloaded", &download.wait()?, &vec![old; size])?;
    hands.same("what the next owner has", &bytes, &expected)?;
    if stores { Ok(()) } else { hands.same("what the next owner loaded", &seen, &expected) }
}

/// Another thread makes its stream wait for an event of this thread's capture, and fills memory. The wait and the fill
/// may be refused.
pub fn foreign_joins(hands: &mut Hands<'_>) -> Done {
    hands.doing("a capture that another thread tries to join");
    let context = &hands.world.context;
    let (captured, other) = (Stream::new(context)?, Stream::new(context)?);
    let (event, source) = (Event::new(context)?, hands.source());
    let (size, old, new) = (hands.size(source.most.min(1 << 14)), hands.number() as u8, hands.number() as u8);
    let mut buffer = Buffer::filled(&source.resource, size, old, &other)?;
    // Otherwise the capture may end during the other thread's calls.
    let to_the_end = hands.chance(2);
    let mode = if hands.chance(2) { CaptureMode::ThreadLocal } else { CaptureMode::Relaxed };
    let captures = hands.world.captures.read().unwrap_or_else(PoisonError::into_inner);
    let (recorded, is_recorded) = channel::<()>();
    let (done, is_done) = channel::<()>();
    let (event, other, target) = (&event, &other, &mut buffer);
    let filled = thread::scope(|threads| {
        let joining = threads.spawn(move || {
            let _ = is_recorded.recv();
            let _ = other.wait(event);
            let _ = event.is_done();
            let filled = target.fill(.., new);
            drop(done);
            filled
        });
        // This step does not check whether a graph results.
        let _ = captured.capture(mode, |captured| {
            let marked = event.record(captured);
            drop(recorded);
            if to_the_end {
                let _ = is_done.recv();
            }
            marked
        });
        joining.join()
    });
    drop(captures);
    let filled = filled.map_err(|panic| crate::soak::hands::text(&*panic).to_owned())?;
    let expected = if filled.is_ok() { new } else { old };
    hands.doing("memory of a thread that tried to join a capture");
    hands.same("memory beside a capture", &buffer.to_vec()?, &vec![expected; size])
}

/// Memory that is made in a capture of this thread, or beside captures of another. Each attempt may be refused; what is
/// made must have its values.
pub fn made_beside_captures(hands: &mut Hands<'_>) -> Done {
    hands.doing("memory made beside captures");
    let (stream, source) = (Stream::new(&hands.world.context)?, hands.source());
    let (size, byte) = (hands.size(source.most.min(1 << 14)), hands.number() as u8);
    let make = |number: usize| -> Result<(Buffer<u8, Any>, u8), Error> {
        match number % 3 {
            0 => Ok((Buffer::zeroed(&source.resource, size, &stream)?, 0)),
            1 => Ok((Buffer::filled(&source.resource, size, byte, &stream)?, byte)),
            _ => Ok((Buffer::filled(&source.resource, size, byte, &stream)?.try_clone()?, byte)),
        }
    };
    let captures = hands.world.captures.read().unwrap_or_else(PoisonError::into_inner);
    let mut made = Vec::new();
    if hands.chance(2) {
        let _ = stream.capture(CaptureMode::Relaxed, |_| {
            made.extend((0..3).flat_map(&make));
            Ok(())
        });
    } else {
        let over = AtomicBool::new(false);
        thread::scope(|threads| {
            threads.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _ = stream.capture(CaptureMode::Relaxed, |_| Ok(()));
                    thread::yield_now();
                }
            });
            made.extend((0..6).flat_map(&make));
            over.store(true, Ordering::Relaxed);
        });
    }
    drop(captures);
    for (buffer, byte) in made {
        hands.same("memory made beside captures", &buffer.to_vec()?, &vec![byte; size])?;
    }
    Ok(())
}
