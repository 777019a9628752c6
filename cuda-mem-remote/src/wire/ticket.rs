//! Tickets: what lets a peer reach a range of another host's memory.

use core::fmt;
use core::ops::Range;
use ring::hmac;

/// The bytes of a ticket: what it says, and a tag.
pub(crate) const TICKET: usize = CLAIM + TAG;
/// The bytes of what it says: three numbers, and the rights.
const CLAIM: usize = 3 * 8 + 1;
/// The bytes of its tag: HMAC-SHA256.
const TAG: usize = 32;

/// What a ticket allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rights {
    /// Peers fetch.
    Read,
    /// Peers write.
    Write,
    /// Both.
    ReadWrite,
}

impl Rights {
    /// May a peer with these rights do what `wanted` asks for?
    pub(crate) fn allow(self, wanted: Self) -> bool {
        self == Self::ReadWrite || self == wanted
    }
}

/// Lets peers reach a range of memory that its owner [offers](crate::Remote::offer). A ticket is plain bytes, which the program
/// sends to its peers by any way. The owner signs it; a ticket of other bytes is refused.
///
/// Whoever has the bytes and a connection has the rights. A ticket ends with its [`Offer`](crate::Offer).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket([u8; TICKET]);

impl Ticket {
    /// The size of a ticket in bytes.
    pub const SIZE: usize = TICKET;

    /// The ticket as bytes.
    pub fn as_bytes(&self) -> &[u8; Self::SIZE] {
        &self.0
    }

    /// The ticket of these bytes. Its owner finds out whether it is a real one.
    ///
    /// # Errors
    ///
    /// The bytes have another length than a ticket.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TicketError> {
        bytes.try_into().map(Self).map_err(|_| TicketError::Length { bytes: bytes.len() })
    }

    /// The size of the range in bytes, as the ticket says it.
    pub fn size(&self) -> u64 {
        self.number(2)
    }

    pub(super) fn signed(claim: [u8; CLAIM], key: &hmac::Key) -> Self {
        let mut bytes = [0; TICKET];
        bytes[..CLAIM].copy_from_slice(&claim);
        bytes[CLAIM..].copy_from_slice(hmac::sign(key, &claim).as_ref());
        Self(bytes)
    }

    fn number(&self, index: usize) -> u64 {
        u64::from_le_bytes(self.0[8 * index..][..8].try_into().expect("eight bytes"))
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("offer", &self.number(0)).field("size", &self.size()).finish_non_exhaustive()
    }
}

/// What a ticket says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The number of the offer, which is never used again.
    pub offer: u64,
    /// The bytes of the offered memory.
    pub range: Range<u64>,
    pub rights: Rights,
}

impl Claim {
    pub fn sign(&self, key: &hmac::Key) -> Ticket {
        let mut bytes = [0; CLAIM];
        let numbers = [self.offer, self.range.start, self.range.end - self.range.start];
        for (to, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        bytes[24] = self.rights as u8;
        Ticket::signed(bytes, key)
    }

    /// What a ticket says, if this key has signed it.
    pub fn check(ticket: &Ticket, key: &hmac::Key) -> Option<Self> {
        let (signed, tag) = ticket.0.split_at(CLAIM);
        hmac::verify(key, signed, tag).ok()?;
        let rights = [Rights::Read, Rights::Write, Rights::ReadWrite].into_iter().find(|&it| it as u8 == signed[24])?;
        let (start, size) = (ticket.number(1), ticket.number(2));
        Some(Self { offer: ticket.number(0), range: start..start.checked_add(size)?, rights })
    }

    /// The bytes of the offered memory that a request means: `size` bytes from `start` of the ticket's range on.
    pub fn part(&self, start: u64, size: u64) -> Option<Range<u64>> {
        let begin = self.range.start.checked_add(start)?;
        let end = begin.checked_add(size)?;
        (size > 0 && end <= self.range.end).then_some(begin..end)
    }
}

/// A ticket that does not serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TicketError {
    /// These bytes are no ticket.
    #[error("{bytes} bytes are no ticket, which has {TICKET}: pass the bytes of Ticket::as_bytes")]
    Length {
        /// How many bytes.
        bytes: usize,
    },
    /// The owner has not signed it.
    #[error("the owner has not signed this ticket, or has been started again since: ask it for a new one")]
    Forged,
    /// The owner has dropped the offer.
    #[error("the owner has withdrawn this offer: ask it for a new ticket")]
    Revoked,
    /// The ticket does not allow this.
    #[error("the ticket does not allow {call}: ask its owner for one that does")]
    Rights {
        /// The call.
        call: &'static str,
    },
    /// The range exceeds the ticket's.
    #[error("bytes {start} to {} are not within the {size} bytes of the ticket", .start.saturating_add(*.wanted))]
    OutOfRange {
        /// The first byte.
        start: u64,
        /// How many bytes.
        wanted: u64,
        /// How many the ticket has.
        size: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &[byte; 32])
    }

    #[test]
    fn a_change_of_any_bit_makes_a_ticket_invalid() {
        let claim = Claim { offer: 7, range: 100..300, rights: Rights::Read };
        let ticket = claim.sign(&key(1));
        assert_eq!(Claim::check(&ticket, &key(1)), Some(claim));
        assert_eq!(Claim::check(&ticket, &key(2)), None, "another owner's");
        for bit in 0..8 * TICKET {
            let mut changed = ticket;
            changed.0[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Claim::check(&changed, &key(1)), None, "bit {bit}");
        }
    }

    #[test]
    fn a_part_lies_within_the_range_of_the_ticket() {
        let claim = Claim { offer: 1, range: 100..300, rights: Rights::Read };
        assert_eq!(claim.part(0, 200), Some(100..300));
        assert_eq!(claim.part(199, 1), Some(299..300));
        for (start, size) in [(0, 201), (200, 1), (0, 0), (1 << 63, 1 << 63), (u64::MAX, 1), (1, u64::MAX)] {
            assert_eq!(claim.part(start, size), None, "{size} from {start}");
        }
    }

    #[test]
    fn rights_allow_what_they_name() {
        use Rights::{Read, ReadWrite, Write};
        let allowed = [Read, Write, ReadWrite].map(|rights| [Read, Write].map(|wanted| rights.allow(wanted)));
        assert_eq!(allowed, [[true, false], [false, true], [true, true]]);
    }
}
