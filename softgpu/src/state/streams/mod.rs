//! Streams and events: how work is queued, and when it has passed.

mod event;
mod stream;

pub(crate) use event::Event;
pub(crate) use stream::{Stream, meant};
