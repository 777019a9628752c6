//! Graphs: how they are captured or built, and their launches.

pub(crate) mod capture;
mod executable;
mod graph;
mod node;
mod user_object;

pub(crate) use executable::{Executable, Mismatch, freeing};
pub(crate) use graph::{Entry, Graph, GraphOfNode, Inner};
pub(crate) use node::{Allocated, Node, Params, Work, handle, sequence_in};
pub(crate) use user_object::{Destructor, UserObject};

pub use user_object::finish_destructors;
