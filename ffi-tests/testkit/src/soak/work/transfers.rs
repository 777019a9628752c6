//! Copies to and from the host that run beside other work: kept, dropped, scoped.

use crate::soak::{Done, Hands};

/// Uploads and downloads.
pub fn step(hands: &mut Hands<'_>) -> Done {
    let mut held = hands.take()?;
    let range = hands.range(held.model.len());
    let bytes = hands.bytes(range.len());
    match hands.below(4) {
        0 => {
            hands.doing("a transfer, there and back");
            let up = held.buffer.upload(range.start, bytes.clone())?;
            let down = held.buffer.download(range.start, vec![0; range.len()])?;
            hands.same("a download", &down.wait()?, &bytes)?;
            hands.same("what was uploaded", &up.wait()?, &bytes)?;
        }
        1 => {
            hands.doing("transfers that nobody waits for");
            let up = held.buffer.upload(range.start, bytes.clone())?;
            let down = held.buffer.download(range.start, vec![0; range.len()].into_boxed_slice())?;
            drop(down);
            drop(up);
        }
        _ => {
            hands.doing("a transfer asked for its end");
            let up = held.buffer.upload(range.start, bytes.clone())?;
            while !up.is_done()? {
                std::thread::yield_now();
            }
            drop(up);
        }
    }
    held.model[range.clone()].copy_from_slice(&bytes);
    held.did("uploaded", range);
    held.check(hands)?;
    hands.keep(held);
    Ok(())
}
