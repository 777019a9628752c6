//! Memory of a peer.

use super::Handle;
use super::frames::{bounds, within};
use super::link::{Outgoing, Request, Way};
use super::operation::Operation;
use super::pieces::send;
use crate::memory::{Memory, why};
use crate::wire::{Rights, Ticket};
use crate::{Error, Result, TicketError};
use core::ops::RangeBounds;
use cuda_mem::buffer::Access;
use cuda_mem::memory::Kind;
use cuda_mem::{Buffer, SharedBuffer};
use std::sync::Arc;
use std::time::Instant;

/// Memory of a peer, by its ticket: [`Peer::open`](crate::Peer::open).
#[derive(Clone, Debug)]
pub struct RemoteMemory {
    peer: Arc<Handle>,
    ticket: Ticket,
}

impl RemoteMemory {
    pub(super) fn new(peer: Arc<Handle>, ticket: Ticket) -> Self {
        Self { peer, ticket }
    }

    /// The size in bytes, as the ticket says it.
    pub fn size(&self) -> u64 {
        self.ticket.size()
    }

    /// Copies a range of the peer's memory to the bytes of a buffer from `offset` on: after the work of both home streams so far.
    /// When the operation has succeeded, the last copy is queued on the buffer's home stream, whose later work comes after it.
    ///
    /// The call waits for nothing. If the operation fails, some bytes of the destination may have changed. After its end nothing
    /// more is queued.
    ///
    /// # Errors
    ///
    /// The bytes do not lie within the ticket's or do not fit into the buffer; the peer is gone. The owner's errors come with the
    /// operation: [`Error::Ticket`], [`Error::Owner`].
    pub fn fetch<K: Kind>(
        &self,
        range: impl RangeBounds<usize>,
        destination: &SharedBuffer<u8, K>,
        offset: usize,
    ) -> Result<Operation> {
        const CALL: &str = "RemoteMemory::fetch";
        let (start, size) = self.range(CALL, &range)?;
        let room = destination.len().saturating_sub(offset) as u64;
        if size > room {
            return Err(Error::Size {
                call: CALL,
                what: "the range",
                value: size,
                limit: room,
                rule: "those from the offset on",
            });
        }
        let destination: Arc<dyn Memory> = Arc::new(destination.clone());
        let (request, operation) = self.ask(CALL, Some((destination, offset as u64, size)), (start, size))?;
        self.peer.link.send(self.question(Rights::Read, request, (start, size)));
        Ok(operation)
    }

    /// Copies a range of a buffer to the peer's memory from `offset` on, after the work of both home streams so far. When the
    /// operation has succeeded, the owner has queued the last copy.
    ///
    /// Later work of the buffer's stream may overwrite the range. The call waits for no stream, unless the buffer is memory of the
    /// host: there it waits for the stream's work, as copies by the CPU do. While the staging is full it
    /// waits for the network, up to [`RemoteOptions::deadline`](crate::RemoteOptions). If the operation fails, some bytes of the
    /// peer's memory may have changed.
    ///
    /// # Errors
    ///
    /// The range does not lie within the buffer or does not fit into the ticket's; the peer is gone; the deadline passed. The
    /// owner's errors come with the operation: [`Error::Ticket`], [`Error::Owner`].
    pub fn write<K: Kind, A: Access>(
        &self,
        offset: usize,
        source: &Buffer<u8, K, A>,
        range: impl RangeBounds<usize>,
    ) -> Result<Operation> {
        const CALL: &str = "RemoteMemory::write";
        let (from, to) = within(CALL, &range, source.len())?;
        let place = self.range(CALL, &(offset..offset.saturating_add(to - from)))?;
        let (request, operation) = self.ask(CALL, None, place)?;
        let link = &self.peer.link;
        link.send(self.question(Rights::Write, request, place));
        let sent = send(link, Way::Written { request }, 0, (from as u64, place.1), |start, slot| {
            source.download(start, slot).map_err(why)
        });
        if let Err(error) = sent {
            link.state().requests.remove(&request);
            return Err(error);
        }
        Ok(operation)
    }

    /// The begin and the size of a range, checked against the ticket.
    fn range(&self, call: &'static str, range: &impl RangeBounds<usize>) -> Result<(u64, u64)> {
        self.peer.link.check(call)?;
        let size = self.ticket.size();
        let (start, end) = bounds(range, usize::try_from(size).unwrap_or(usize::MAX));
        let (start, wanted) = (start as u64, end.saturating_sub(start) as u64);
        if wanted == 0 || start + wanted > size {
            return Err(TicketError::OutOfRange { start, wanted, size }.into());
        }
        Ok((start, wanted))
    }

    fn ask(
        &self,
        call: &'static str,
        destination: Option<(Arc<dyn Memory>, u64, u64)>,
        range: (u64, u64),
    ) -> Result<(u64, Operation)> {
        let link = &self.peer.link;
        let until = Instant::now() + link.remote.options.deadline;
        let (answer, operation) = Operation::new(link, call, until);
        let request = link.number();
        let asked = Request { call, destination, range, ticket_size: self.ticket.size(), until, ends: false, answer };
        let mut state = link.state();
        if let Some(cause) = state.gone {
            drop(state);
            return Err(link.peer_gone(cause));
        }
        state.requests.insert(request, asked);
        Ok((request, operation))
    }

    fn question(&self, rights: Rights, request: u64, (start, size): (u64, u64)) -> Outgoing {
        Outgoing::Ask { request, rights, start, size, ticket: Box::new(self.ticket) }
    }
}
