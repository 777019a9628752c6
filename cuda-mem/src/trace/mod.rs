//! Allocation traces: what a program allocated and freed, written down and done again.
//!
//! A [`Trace`] comes from a pool ([`Pool::trace`](crate::pool::Pool::trace)), from any resource by
//! [`adaptor::Recording`](crate::adaptor::Recording), or from a file: this crate's own [format](#format), or the logs of
//! RMM, which [`adaptor::Logging`](crate::adaptor::Logging) writes too. A [`Plan`] is what can be done again of it, and
//! [`replay()`] does it on any source of memory, and tells how fast that was and how much memory it took.
//!
//! ```
//! # let driver = cuda_mem::Driver::software()?;
//! # let context = driver.device(0)?.primary_context()?;
//! use cuda_mem::memory::{DeviceMemory, ResourceHandle};
//! use cuda_mem::trace::{Plan, Trace, replay};
//! let log = "\
//! Thread,Time,Action,Pointer,Size,Stream
//! 7,10:00:00.000001,allocate,0x1000,4096,0x1
//! 7,10:00:00.000002,allocate,0x2000,1024,0x1
//! 7,10:00:00.000003,free,0x1000,4096,0x1
//! ";
//! let plan = Plan::new(&Trace::read(log.as_bytes())?);
//! let report = replay(&plan, &DeviceMemory::new(&context).share())?;
//! assert_eq!((report.allocate.count, report.free.count, report.peak_requested), (2, 1, 5120));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Format
//!
//! Text in UTF-8. The first line is `#cuda-mem-trace,version=1,lost=N`, where N is how many older events are missing. Then
//! CSV as RFC 4180 has it, with the head line `time_ns,thread,action,address,size,stream,name` and a line for each event,
//! oldest first. Columns are found by their names; unknown ones are passed over.
//!
//! | column | |
//! |---|---|
//! | `time_ns` | nanoseconds since the trace began |
//! | `thread` | the system's number of the thread |
//! | `action` | the name of an [`Action`] in small letters: `allocate`, `free`, `free_failure`, `out_of_memory`, `wait`, `grow`, `release` |
//! | `address` | for devices, `0x` and hexadecimal |
//! | `size` | in bytes |
//! | `stream` | the driver's handle, `0x` and hexadecimal |
//! | `name` | of the block, or empty |

mod error;
mod format;
mod latency;
pub(crate) mod name;
mod plan;
mod read;
mod replay;
mod ring;

use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub use error::TraceError;
pub use latency::Latency;
pub use plan::{Operation, Plan, Step};
pub use replay::{ReplayReport, Target, replay};
pub(crate) use ring::Ring;

/// What was allocated and freed, in the order in which it happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// How many older events are missing, because they gave way to newer ones.
    pub lost: u64,
    /// Oldest first.
    pub events: Vec<TraceEvent>,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEvent {
    /// When: nanoseconds since the trace began.
    pub time_ns: u64,
    /// The system's number of the thread.
    pub thread: u64,
    /// What happened.
    pub action: Action,
    /// The address for devices; 0 where there is none.
    pub address: u64,
    /// In bytes: what was asked for, or the size of a region.
    pub size: u64,
    /// The driver's handle of the stream; 0 is also the legacy default stream.
    pub stream: u64,
    /// The [name](crate::adaptor::named) that the thread gave to what it allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Action {
    /// A block was given out.
    Allocate,
    /// A block came back.
    Free,
    /// The free before, of the same block, was refused: the block is there still.
    FreeFailure,
    /// There was no memory for a block.
    OutOfMemory,
    /// The stream was told to wait for other streams, which the block's memory was freed by.
    Wait,
    /// A region was taken from the source.
    Grow,
    /// A region went back to the source.
    Release,
}

impl Action {
    const ALL: [Self; 7] =
        [Self::Allocate, Self::Free, Self::FreeFailure, Self::OutOfMemory, Self::Wait, Self::Grow, Self::Release];

    /// As traces name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allocate => "allocate",
            Self::Free => "free",
            Self::FreeFailure => "free_failure",
            Self::OutOfMemory => "out_of_memory",
            Self::Wait => "wait",
            Self::Grow => "grow",
            Self::Release => "release",
        }
    }
}
