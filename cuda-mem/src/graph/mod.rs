//! Graphs: work that is captured once and launched often.
//!
//! A stream that captures records what it is given in place of doing it ([`Stream::capture`](crate::Stream::capture)). The [`Graph`] is made
//! ready ([`Graph::instantiate`]) and then launched as one piece of work ([`ExecutableGraph::launch`]).
//!
//! While a stream captures in [`CaptureMode::Global`], calls that the capture would not notice are refused, and lose
//! it: waits, allocations from pools too, frees, questions about events. [`RelaxedCalls`] lets a thread make them all the
//! same; copies that return when they are done make their waits so.
//!
//! ```
//! use cuda_mem::graph::{CaptureMode, GraphOptions};
//! use cuda_mem::{Driver, Event, Stream};
//! # let driver = Driver::software()?;
//! # let context = driver.device(0)?.primary_context()?;
//! # let kernel = |stream: &Stream| stream.join(stream);
//! let stream = Stream::new(&context)?;
//! let graph = stream.capture(CaptureMode::Global, |stream| kernel(stream))?;
//! let executable = graph.instantiate(GraphOptions::default())?;
//! for _ in 0..3 {
//!     // SAFETY: what the captured work uses lives, and nobody else uses it meanwhile.
//!     unsafe { executable.launch(&stream) }?;
//! }
//! stream.synchronize()?;
//! # Ok::<(), cuda_mem::Error>(())
//! ```

mod capture;
mod executable;
mod memory;

pub use crate::beside_captures::RelaxedCalls;
pub use capture::{CaptureMode, Graph};
pub use executable::{ExecutableGraph, GraphOptions};
pub use memory::{GraphMemory, GraphMemoryAttributes};
