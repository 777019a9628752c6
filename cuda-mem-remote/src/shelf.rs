//! Memory that peers may reach.

use crate::memory::Memory;
use crate::wire::{Claim, Refusal, Rights, Ticket};
use core::ops::Range;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The offers of a program, and the key that signs their tickets: a new one for each [`Remote`](crate::Remote).
#[derive(Debug)]
pub(crate) struct Shelf {
    key: hmac::Key,
    offers: Mutex<Offers>,
}

#[derive(Debug, Default)]
struct Offers {
    last: u64,
    memory: HashMap<u64, Arc<dyn Memory>>,
}

impl Shelf {
    pub fn new() -> crate::Result<Self> {
        let mut key = [0; 32];
        SystemRandom::new().fill(&mut key).map_err(|_| crate::Error::Random)?;
        Ok(Self { key: hmac::Key::new(hmac::HMAC_SHA256, &key), offers: Mutex::default() })
    }

    fn offers(&self) -> std::sync::MutexGuard<'_, Offers> {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn offer(self: &Arc<Self>, memory: Arc<dyn Memory>, rights: Rights) -> Offer {
        let range = 0..memory.size();
        let mut offers = self.offers();
        offers.last += 1;
        let claim = Claim { offer: offers.last, range, rights };
        offers.memory.insert(claim.offer, memory);
        Offer { ticket: claim.sign(&self.key), number: claim.offer, shelf: self.clone() }
    }

    /// The memory that a peer's request means, and its range.
    pub fn find(
        &self,
        ticket: &[u8],
        wanted: Rights,
        start: u64,
        size: u64,
    ) -> Result<(Arc<dyn Memory>, Range<u64>), Refusal> {
        let ticket = Ticket::from_bytes(ticket).map_err(|_| Refusal::Forged)?;
        let claim = Claim::check(&ticket, &self.key).ok_or(Refusal::Forged)?;
        let memory = self.offers().memory.get(&claim.offer).cloned().ok_or(Refusal::Revoked)?;
        if !claim.rights.allow(wanted) {
            return Err(Refusal::Rights);
        }
        let range = claim.part(start, size).ok_or(Refusal::OutOfRange)?;
        Ok((memory, range))
    }
}

/// Memory that peers with its ticket may reach, until this value is dropped. The memory stays alive as long.
///
/// A drop refuses later requests. A transfer that has begun goes on, and keeps the memory alive until its end.
#[derive(Debug)]
#[must_use = "dropping an offer withdraws it"]
pub struct Offer {
    ticket: Ticket,
    number: u64,
    shelf: Arc<Shelf>,
}

impl Offer {
    /// What a peer passes to [`Peer::open`](crate::Peer::open).
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        let memory = self.shelf.offers().memory.remove(&self.number);
        // The memory ends without the lock.
        drop(memory);
    }
}
