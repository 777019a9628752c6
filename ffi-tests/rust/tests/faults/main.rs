//! Every driver call fails once, and contexts break: nothing is lost.

mod adaptors;
mod calls;
mod teardown;
