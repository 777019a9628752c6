//! Reads messages and tickets that are made of arbitrary bytes.

use super::ticket::{Claim, TICKET, Ticket};
use super::{MAX_BYTES, MAX_NAME, Message};
use ring::hmac;

/// Reads the bytes as a message and as a ticket.
///
/// # Panics
///
/// A message or a claim is written otherwise than it was read, a cut message is read, or a ticket serves that its owner has not
/// signed.
pub fn read(bytes: &[u8]) {
    message(bytes);
    ticket(bytes);
}

fn message(bytes: &[u8]) {
    let Ok(message) = Message::decode(bytes) else { return };
    let mut written = Vec::new();
    message.encode(&mut written);
    assert!(written == bytes, "{message:?}");
    // The bytes of memory or of a name may be fewer. All else must be whole.
    let least = match message {
        Message::Announce { name, .. } => {
            assert!((1..=MAX_NAME).contains(&name.len()));
            bytes.len() - name.len() + 1
        }
        Message::Frame { bytes: memory, .. }
        | Message::Fetched { bytes: memory, .. }
        | Message::Written { bytes: memory, .. } => {
            assert!((1..=MAX_BYTES).contains(&memory.len()));
            bytes.len() - memory.len() + 1
        }
        _ => bytes.len(),
    };
    for size in 0..least {
        assert!(Message::decode(&bytes[..size]).is_err(), "{size} bytes of {message:?}");
    }
    assert!(Message::decode(&bytes[..least]).is_ok(), "{least} bytes of {message:?}");
}

fn ticket(bytes: &[u8]) {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &[7; 32]);
    let strangers = Ticket::from_bytes(bytes);
    assert_eq!(strangers.is_ok(), bytes.len() == TICKET);
    assert_eq!(strangers.ok().and_then(|ticket| Claim::check(&ticket, &key)), None, "a forged ticket");

    // A ticket of any numbers that the owner has signed, and a request for a part of its range.
    let Some((said, rest)) = bytes.split_first_chunk() else { return };
    let ticket = Ticket::signed(*said, &key);
    let Some(claim) = Claim::check(&ticket, &key) else { return };
    assert!(claim.range.start <= claim.range.end && claim.sign(&key) == ticket, "{claim:?}");
    let Some(([start, size], rest)) = numbers(rest) else { return };
    let part = claim.part(start, size);
    let range = [claim.range.start, claim.range.end, start, size].map(u128::from);
    let is_within = size > 0 && range[0] + range[2] + range[3] <= range[1];
    assert_eq!(part.is_some(), is_within, "{size} from {start} of {claim:?}");
    assert!(part.is_none_or(|part| part.start == claim.range.start + start && part.end - part.start == size));

    // One other byte.
    let [place, change] = rest.first_chunk().copied().unwrap_or([0, 1]);
    let mut changed = *ticket.as_bytes();
    changed[usize::from(place) % TICKET] ^= change.max(1);
    let changed = Ticket::from_bytes(&changed).expect("as long as a ticket");
    assert_eq!(Claim::check(&changed, &key), None, "a changed ticket");
}

fn numbers(bytes: &[u8]) -> Option<([u64; 2], &[u8])> {
    let (start, rest) = bytes.split_first_chunk()?;
    let (size, rest) = rest.split_first_chunk()?;
    Some(([u64::from_le_bytes(*start), u64::from_le_bytes(*size)], rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        /// The fuzz target without a fuzzer.
        #[test]
        fn any_bytes_are_read_or_refused(kind in 0..16_u8, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            super::read(&[&[kind][..], &bytes].concat());
        }
    }
}
