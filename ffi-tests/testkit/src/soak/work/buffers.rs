//! Buffers of every source: writes, fills, copies, parts, ends.

use crate::soak::checked_buffer::CheckedBuffer;
use crate::soak::{Done, Hands};
use cuda_mem::buffer::CopyBatch;
use cuda_mem::memory::kind::{Any, Managed, Pinned};
use cuda_mem::{Buffer, Error};

/// Does one operation on memory that the thread holds.
pub fn step(hands: &mut Hands<'_>) -> Done {
    let mut held = hands.take()?;
    match hands.below(18) {
        0..3 => {
            let range = hands.range(held.model.len());
            hands.doing("a write");
            let bytes = hands.bytes(range.len());
            held.write(range.start, &bytes)?;
        }
        3..5 => {
            let (range, byte) = (hands.range(held.model.len()), hands.number() as u8);
            hands.doing("a fill");
            held.buffer.fill(range.clone(), byte)?;
            held.model[range.clone()].fill(byte);
            held.did("filled", range);
        }
        5 => {
            let middle = held.model.len() / 2;
            hands.doing("a copy within");
            held.buffer.copy_within(..middle, middle)?;
            held.model.copy_within(..middle, middle);
            held.did("copied within to", middle..2 * middle);
        }
        6..8 => copied(hands, &mut held)?,
        8 => {
            let range = hands.range(held.model.len());
            let mut seen = vec![0; range.len()];
            hands.doing("a read");
            held.buffer.copy_to_slice(range.start, &mut seen)?;
            held.same(&seen, range)?;
            hands.verified(seen.len());
        }
        9 => {
            let stream = hands.stream()?;
            hands.doing("another home stream");
            held.buffer.set_stream(&stream)?;
            held.did("given another stream", 0..0);
        }
        10 => {
            hands.doing("a division");
            let middle = hands.below(held.model.len() + 1);
            match held.buffer.split_at(middle) {
                Ok((one, two)) => {
                    let right = held.model.split_off(middle);
                    let history = held.history.clone();
                    let mut other = CheckedBuffer { buffer: two, model: right, from: held.from, history };
                    held.buffer = one;
                    held.did("divided", 0..0);
                    if hands.chance(2) {
                        // Work on a part's own stream also precedes the end of the whole.
                        let byte = hands.number() as u8;
                        other.buffer.set_stream(&hands.stream()?)?;
                        other.buffer.fill(.., byte)?;
                        other.model.fill(byte);
                        other.did("filled on a stream of its own", 0..other.model.len());
                    }
                    if hands.chance(2) {
                        hands.keep(other);
                    }
                }
                // The division lies within an atom of non-coherent memory.
                Err(refused) if matches!(refused.error, Error::Misaligned { .. }) => held.buffer = refused.value,
                Err(refused) => return Err(refused.into()),
            }
        }
        11 => match shared(hands, held)? {
            Some(kept) => held = kept,
            None => return Ok(()),
        },
        12 => {
            hands.doing("a buffer's close");
            held.check(hands)?;
            return Ok(held.buffer.close()?);
        }
        13 => {
            let stream = hands.stream()?;
            hands.doing("a buffer's close on a stream");
            return Ok(held.buffer.close_on(&stream)?);
        }
        14 => {
            hands.doing("a buffer's way to another thread");
            hands.world.leave(held);
            match hands.world.take_left() {
                Some(other) => held = other,
                None => return Ok(()),
            }
        }
        15 => {
            hands.doing("a clone");
            let clone = held.buffer.try_clone()?;
            hands.ensure(held.buffer.equals(&clone)?, || "a clone differs".to_owned())?;
            hands.keep(CheckedBuffer::new(clone.into_any(), held.model.clone(), "a clone"));
        }
        16 => {
            held.buffer = touched(hands, held.buffer, &mut held.model)?;
            held.did("seen by the CPU", 0..0);
        }
        _ => {
            hands.doing("memory as words");
            if held.model.len().is_multiple_of(4) && held.buffer.device_pointer().is_multiple_of(4) {
                let word = hands.number() as u32;
                let mut words = held.buffer.cast::<u32>()?;
                words.fill(.., word)?;
                held.model = word.to_ne_bytes().repeat(words.len());
                held.buffer = words.cast::<u8>()?;
                held.did("filled with words", 0..held.model.len());
            }
        }
    }
    if hands.chance(4) {
        held.check(hands)?;
    }
    hands.keep(held);
    Ok(())
}

/// Copies from another buffer: at once, in rows, or in a batch.
fn copied(hands: &mut Hands<'_>, held: &mut CheckedBuffer) -> Done {
    let other = hands.take()?;
    let length = hands.size(held.model.len().min(other.model.len()).max(1));
    if length > held.model.len().min(other.model.len()) {
        hands.keep(other);
        return Ok(());
    }
    let to = hands.below(held.model.len() - length + 1);
    let from = hands.below(other.model.len() - length + 1);
    match hands.below(2) {
        0 => {
            hands.doing("a copy");
            held.buffer.copy_from_buffer(to, &other.buffer, from..from + length)?;
            held.take_over(to, &other, from..from + length);
        }
        _ => {
            hands.doing("a batch of copies");
            let stream = hands.stream()?;
            let mut batch = CopyBatch::new(&stream);
            batch.copy(&mut held.buffer, to, &other.buffer, from..from + length)?;
            batch.submit()?;
            held.take_over(to, &other, from..from + length);
        }
    }
    hands.keep(other);
    Ok(())
}

/// Shares memory, writes through a part, and makes the memory exclusive again, unless other parts exist.
fn shared(hands: &mut Hands<'_>, held: CheckedBuffer) -> Done<Option<CheckedBuffer>> {
    hands.doing("shared memory");
    let CheckedBuffer { buffer, mut model, from, mut history } = held;
    history.add("shared, written through a part".to_owned());
    let range = hands.range(model.len());
    let whole = buffer.into_shared();
    let mut part = whole.slice(range.clone())?;
    let twin = whole.clone();
    let bytes = hands.bytes(range.len());
    part.copy_from_slice(0, &bytes)?;
    model[range].copy_from_slice(&bytes);
    // The part's own stream is ordered with the whole's stream.
    hands.same("a part's whole", &twin.to_vec()?, &model)?;
    drop(twin);
    let exclusive = if hands.chance(2) {
        drop(part);
        whole.try_into_exclusive()
    } else {
        // Only the part remains.
        drop(whole);
        model = bytes;
        part.try_into_exclusive()
    };
    match exclusive {
        Ok(buffer) => Ok(Some(CheckedBuffer { buffer, model, from, history })),
        // The other part of the divided allocation still exists.
        Err(refused) if matches!(refused.error, Error::StillShared { .. }) => {
            hands.same("shared memory that stays shared", &refused.value.to_vec()?, &model)?;
            Ok(None)
        }
        Err(refused) => Err(refused.into()),
    }
}

/// Lets the CPU read and write the memory, if it can.
fn touched(hands: &mut Hands<'_>, buffer: Buffer<u8, Any>, model: &mut [u8]) -> Done<Buffer<u8, Any>> {
    macro_rules! by_the_cpu {
        ($buffer:expr) => {{
            let (mut buffer, range) = ($buffer, hands.range(model.len()));
            hands.doing("the CPU's accesses");
            // The CPU may only copy memory that other processes may write at any time.
            if matches!(buffer.read(..0), Err(Error::InvalidArgument { argument: "the memory", .. })) {
                let mut seen = vec![0; range.len()];
                buffer.copy_to_slice(range.start, &mut seen)?;
                hands.same("what the CPU copies", &seen, &model[range])?;
                return Ok(buffer.into_any());
            }
            hands.same("what the CPU sees", &buffer.read(range.clone())?, &model[range.clone()])?;
            let bytes = hands.bytes(range.len());
            let mut guard = buffer.write(range.clone())?;
            guard.copy_from_slice(&bytes);
            guard.finish()?;
            model[range].copy_from_slice(&bytes);
            Ok(buffer.into_any())
        }};
    }
    match buffer.try_into_kind::<Pinned>() {
        Ok(buffer) => by_the_cpu!(buffer),
        Err(refused) => match refused.value.try_into_kind::<Managed>() {
            Ok(buffer) => by_the_cpu!(buffer),
            Err(refused) => Ok(refused.value),
        },
    }
}
