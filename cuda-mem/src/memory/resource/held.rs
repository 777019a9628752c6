//! The references that a buffer holds beside its block. A pool keeps those of freed buffers for the next ones, so that
//! a pair counts no references.

use super::SharedResource;
use crate::Stream;

/// What keeps a buffer's resource and its home stream alive.
#[derive(Debug)]
pub struct Held {
    pub resource: SharedResource,
    pub home: Stream,
}

/// What a resource's cache has taken of a freed buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    Nothing,
    Block,
    BlockAndReferences,
}
