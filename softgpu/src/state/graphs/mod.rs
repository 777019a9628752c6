//! Graphs: how they are captured or built, and their launches.

pub(crate) mod capture;
mod condition;
mod executable;
mod graph;
mod node;
mod user_object;

pub(crate) use condition::{Condition, Conditions};
pub(crate) use executable::{Executable, Mismatch, freeing};
pub(crate) use graph::{Entry, Graph, GraphOfNode, Inner};
pub(crate) use node::{Allocated, Bodies, KernelParams, Node, Params, Work, handle, sequence_in};
pub(crate) use user_object::{Destructor, UserObject};

pub use user_object::finish_destructors;
