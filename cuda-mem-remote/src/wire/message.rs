//! The messages of a connection.
//!
//! A message is a kind in one byte, its fields as little-endian numbers, and what is left are its bytes: of memory, or of a
//! name. A reader takes no memory by a length that a peer names: each message fits into [`MAX_MESSAGE`] bytes.

use super::ticket::TICKET;

/// The most bytes of memory in a message.
pub(crate) const MAX_BYTES: usize = 65_024;
/// The most bytes of a message: its kind, at most three numbers and a ticket, and bytes of memory.
pub(crate) const MAX_MESSAGE: usize = 1 + 3 * 8 + TICKET + MAX_BYTES;
/// The most bytes in the name of a sequence of frames.
pub(crate) const MAX_NAME: usize = 255;

/// Why a peer does not do what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Refusal {
    /// The ticket is not one of the owner's.
    Forged = 1,
    /// The owner has withdrawn the offer.
    Revoked,
    /// The ticket allows no such access.
    Rights,
    /// The range exceeds the ticket's.
    OutOfRange,
    /// Too many requests are open.
    Busy,
    /// The owner's driver failed.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    /// The sender is alive.
    Heartbeat,
    /// The sender closes the connection.
    Bye,
    /// The sender has frames of this name and size, and calls them by a number.
    Announce { lane: u64, size: u64, name: &'a [u8] },
    /// The receiver has had memory for this many frames so far.
    Credit { lane: u64, frames: u64 },
    /// The receiver expects frames of another size.
    WrongSize { lane: u64, size: u64 },
    /// A piece of a frame. Pieces come in order.
    Frame { lane: u64, number: u64, offset: u64, bytes: &'a [u8] },
    /// The work that makes this frame has failed.
    FrameFailed { lane: u64, number: u64 },
    /// Asks for a range of the owner's memory. The peer that asks chooses the number of the request.
    Fetch { request: u64, start: u64, size: u64, ticket: &'a [u8; TICKET] },
    /// A piece of what was fetched. Pieces come in order.
    Fetched { request: u64, offset: u64, bytes: &'a [u8] },
    /// Asks the owner to take a range that follows.
    Write { request: u64, start: u64, size: u64, ticket: &'a [u8; TICKET] },
    /// A piece of what is to be written. Pieces come in order.
    Written { request: u64, offset: u64, bytes: &'a [u8] },
    /// The work that makes the bytes to be written has failed.
    WriteFailed { request: u64 },
    /// The owner has queued the whole write.
    Done { request: u64 },
    /// The owner refuses a request.
    Refuse { request: u64, why: Refusal },
}

/// These bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl<'a> Message<'a> {
    /// Appends the message.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let mut put = |kind: u8, numbers: &[u64], bytes: &[u8]| {
            to.push(kind);
            numbers.iter().for_each(|number| to.extend(number.to_le_bytes()));
            to.extend_from_slice(bytes);
        };
        match *self {
            Self::Heartbeat => put(0, &[], &[]),
            Self::Bye => put(1, &[], &[]),
            Self::Announce { lane, size, name } => put(2, &[lane, size], name),
            Self::Credit { lane, frames } => put(3, &[lane, frames], &[]),
            Self::WrongSize { lane, size } => put(4, &[lane, size], &[]),
            Self::Frame { lane, number, offset, bytes } => put(5, &[lane, number, offset], bytes),
            Self::FrameFailed { lane, number } => put(6, &[lane, number], &[]),
            Self::Fetch { request, start, size, ticket } => put(7, &[request, start, size], ticket),
            Self::Fetched { request, offset, bytes } => put(8, &[request, offset], bytes),
            Self::Write { request, start, size, ticket } => put(9, &[request, start, size], ticket),
            Self::Written { request, offset, bytes } => put(10, &[request, offset], bytes),
            Self::WriteFailed { request } => put(11, &[request], &[]),
            Self::Done { request } => put(12, &[request], &[]),
            Self::Refuse { request, why } => put(13, &[request], &[why as u8]),
        }
    }

    /// Reads a message, which fills `from`.
    pub fn decode(from: &'a [u8]) -> Result<Self, Malformed> {
        let (&kind, mut rest) = from.split_first().ok_or(Malformed)?;
        let mut number = || -> Result<u64, Malformed> {
            let (first, behind) = rest.split_first_chunk().ok_or(Malformed)?;
            rest = behind;
            Ok(u64::from_le_bytes(*first))
        };
        let message = match kind {
            0 => Self::Heartbeat,
            1 => Self::Bye,
            2 => {
                let (lane, size) = (number()?, number()?);
                return Ok(Self::Announce { lane, size, name: some(rest, MAX_NAME)? });
            }
            3 => Self::Credit { lane: number()?, frames: number()? },
            4 => Self::WrongSize { lane: number()?, size: number()? },
            5 => {
                let (lane, number, offset) = (number()?, number()?, number()?);
                return Ok(Self::Frame { lane, number, offset, bytes: some(rest, MAX_BYTES)? });
            }
            6 => Self::FrameFailed { lane: number()?, number: number()? },
            7 | 9 => {
                let (request, start, size) = (number()?, number()?, number()?);
                let ticket = rest.try_into().map_err(|_| Malformed)?;
                return Ok(match kind {
                    7 => Self::Fetch { request, start, size, ticket },
                    _ => Self::Write { request, start, size, ticket },
                });
            }
            8 | 10 => {
                let (request, offset) = (number()?, number()?);
                let bytes = some(rest, MAX_BYTES)?;
                return Ok(match kind {
                    8 => Self::Fetched { request, offset, bytes },
                    _ => Self::Written { request, offset, bytes },
                });
            }
            11 => Self::WriteFailed { request: number()? },
            12 => Self::Done { request: number()? },
            13 => {
                let request = number()?;
                let (&why, behind) = rest.split_first().ok_or(Malformed)?;
                rest = behind;
                Self::Refuse { request, why: Refusal::from_byte(why).ok_or(Malformed)? }
            }
            _ => return Err(Malformed),
        };
        if rest.is_empty() { Ok(message) } else { Err(Malformed) }
    }
}

/// Bytes of which there must be some.
fn some(bytes: &[u8], most: usize) -> Result<&[u8], Malformed> {
    if bytes.is_empty() || bytes.len() > most { Err(Malformed) } else { Ok(bytes) }
}

impl Refusal {
    const ALL: [Self; 6] = [Self::Forged, Self::Revoked, Self::Rights, Self::OutOfRange, Self::Busy, Self::Failed];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&why| why as u8 == byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(message: &Message<'_>) -> Vec<u8> {
        let mut made = Vec::new();
        message.encode(&mut made);
        made
    }

    proptest! {
        #[test]
        fn messages_come_back_as_they_were(
            (a, b, c) in any::<(u64, u64, u64)>(),
            bytes in prop::collection::vec(any::<u8>(), 1..MAX_NAME),
            ticket in any::<[u8; 32]>(),
            why in 0..Refusal::ALL.len(),
        ) {
            let mut long = [0; TICKET];
            long[..32].copy_from_slice(&ticket);
            for message in [
                Message::Heartbeat,
                Message::Bye,
                Message::Announce { lane: a, size: b, name: &bytes },
                Message::Credit { lane: a, frames: b },
                Message::WrongSize { lane: a, size: b },
                Message::Frame { lane: a, number: b, offset: c, bytes: &bytes },
                Message::FrameFailed { lane: a, number: b },
                Message::Fetch { request: a, start: b, size: c, ticket: &long },
                Message::Fetched { request: a, offset: b, bytes: &bytes },
                Message::Write { request: a, start: b, size: c, ticket: &long },
                Message::Written { request: a, offset: b, bytes: &bytes },
                Message::WriteFailed { request: a },
                Message::Done { request: a },
                Message::Refuse { request: a, why: Refusal::ALL[why] },
            ] {
                let made = whole(&message);
                prop_assert_eq!(Message::decode(&made), Ok(message));
            }
        }
    }

    #[test]
    fn shortened_and_lengthened_messages_are_refused() {
        let fetch = whole(&Message::Fetch { request: 1, start: 2, size: 3, ticket: &[7; TICKET] });
        let refuse = whole(&Message::Refuse { request: 1, why: Refusal::Busy });
        for message in [&fetch, &refuse, &whole(&Message::Heartbeat)] {
            for size in 0..message.len() {
                assert_eq!(Message::decode(&message[..size]), Err(Malformed));
            }
            assert_eq!(Message::decode(&[message, &[0][..]].concat()), Err(Malformed));
        }
        assert_eq!(Message::decode(&vec![8; 17 + MAX_BYTES + 1]), Err(Malformed), "too many bytes");
        assert_eq!(Message::decode(&[14; 9]), Err(Malformed), "a kind that does not exist");
    }
}
