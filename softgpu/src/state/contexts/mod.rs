//! Contexts, each thread's stack of them, and the queues of their streams' work.

mod channels;
mod context;
pub(crate) mod gate;
mod limits;
pub(crate) mod queue;

pub(crate) use context::{Context, Role, current, pass, with_stack};
pub(crate) use queue::{Point, Queue};
