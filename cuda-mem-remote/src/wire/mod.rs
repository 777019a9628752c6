//! What peers tell each other, as bytes. Nothing here calls a driver or a socket, or has state.

#[cfg(any(fuzzing, test))]
pub(crate) mod fuzzing;
mod message;
mod ticket;

pub(crate) use message::{MAX_BYTES, MAX_MESSAGE, MAX_NAME, Message, Refusal};
pub(crate) use ticket::Claim;
pub use ticket::{Rights, Ticket, TicketError};
