//! Traces after their recording: written to files, read from files, and replayed.

mod error;
mod format;
mod latency;
mod plan;
mod read;
mod replay;

use super::{Action, Trace, TraceEvent};

pub use error::TraceError;
pub use latency::Latency;
pub use plan::{Operation, Plan, Step};
pub use replay::{ReplayReport, Target, replay};
