//! Allocation traces: records of a program's allocations and frees, and their replay.
//!
//! A [`Trace`] comes from a pool ([`Pool::trace`](crate::pool::Pool::trace)), from any resource by
//! [`adaptor::Recording`](crate::adaptor::Recording), or from a file. Files have this crate's own [format](#format), or
//! are RMM logs, which [`adaptor::Logging`](crate::adaptor::Logging) writes too. A [`Plan`] holds the replayable part
//! of a trace. [`replay()`] runs it on any source of memory, and measures the time and the memory that it took. To write,
//! read and replay traces, enable the feature `trace`.
//!
//! ```
//! let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
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
//! Text in UTF-8. The first line is `#cuda-mem-trace,version=1,lost=N`, where N is the number of older events that are
//! missing. CSV as of RFC 4180 follows: the head line `time_ns,thread,action,address,size,stream,name` and a line for
//! each event, oldest first. A reader finds columns by name and ignores unknown ones.
//!
//! | column | value |
//! |---|---|
//! | `time_ns` | nanoseconds since the trace began |
//! | `thread` | the operating system's id of the thread |
//! | `action` | the name of an [`Action`] in small letters: `allocate`, `free`, `free_failure`, `out_of_memory`, `wait`, `grow`, `release` |
//! | `address` | the device address, `0x` and hexadecimal |
//! | `size` | in bytes |
//! | `stream` | the driver's handle, `0x` and hexadecimal |
//! | `name` | the block's name, or empty |

pub(crate) mod name;
#[cfg(feature = "trace")]
mod offline;
mod ring;

use std::sync::Arc;

#[cfg(feature = "trace")]
pub use offline::{Latency, Operation, Plan, ReplayReport, Step, Target, TraceError, replay};
pub(crate) use ring::Ring;

/// Allocations and frees, in the order in which they happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
pub struct Trace {
    /// The number of older events that are missing, because newer ones replaced them.
    pub lost: u64,
    /// Oldest first.
    pub events: Vec<TraceEvent>,
}

/// One event of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
pub struct TraceEvent {
    /// The time of the event: nanoseconds since the trace began.
    pub time_ns: u64,
    /// The operating system's id of the thread.
    pub thread: u64,
    /// What happened.
    pub action: Action,
    /// The device address; 0 if there is none.
    pub address: u64,
    /// The requested size, or the size of a region, in bytes.
    pub size: u64,
    /// The driver's handle of the stream; 0 is also the legacy default stream.
    pub stream: u64,
    /// The [name](crate::adaptor::named) that the thread gave its allocations.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub name: Option<Arc<str>>,
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Action {
    /// A block was allocated.
    Allocate,
    /// A block was freed.
    Free,
    /// The preceding free of the same block was refused: the block is still live.
    FreeFailure,
    /// There was no memory for a block.
    OutOfMemory,
    /// The stream was made to wait for the other streams on which the block's memory was freed.
    Wait,
    /// A pool took a region from its source.
    Grow,
    /// A pool returned a region to its source.
    Release,
}

impl Action {
    #[cfg(feature = "trace")]
    const ALL: [Self; 7] =
        [Self::Allocate, Self::Free, Self::FreeFailure, Self::OutOfMemory, Self::Wait, Self::Grow, Self::Release];

    /// The name in traces.
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
