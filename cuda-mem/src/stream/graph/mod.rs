//! Graphs: work that is captured once and launched often.
//!
//! A stream that captures records its work instead of running it ([`Stream::capture`](crate::Stream::capture)). The
//! [`Graph`] is prepared once ([`Graph::instantiate`]) and then launched as one unit ([`ExecutableGraph::launch`]).
//!
//! While a stream captures in [`CaptureMode::Global`], the driver refuses calls that the capture cannot record, and
//! invalidates the capture: waits, allocations (also from pools), frees, queries of events. [`RelaxedCalls`] lets a
//! thread make such calls anyway. Copies that return when they are done use it for their waits.
//!
//! ```
//! use cuda_mem::graph::{CaptureMode, GraphOptions};
//! use cuda_mem::{Driver, Event, Stream};
//! let context = Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
//! # let kernel = |stream: &Stream| stream.join(stream);
//! let stream = Stream::new(&context)?;
//! let graph = stream.capture(CaptureMode::Global, |stream| kernel(stream))?;
//! let executable = graph.instantiate(GraphOptions::default())?;
//! for _ in 0..3 {
//!     // SAFETY: the objects that the captured work uses live, and nobody else uses them meanwhile.
//!     unsafe { executable.launch(&stream) }?;
//! }
//! stream.synchronize()?;
//! # Ok::<(), cuda_mem::Error>(())
//! ```

mod capture;
mod executable;
mod recording;

pub use crate::driver::relaxed::RelaxedCalls;
pub use crate::error::CaptureRefusal;
pub use capture::{CaptureMode, Graph};
pub use executable::{ExecutableGraph, GraphOptions};
pub(crate) use recording::Recording;
pub(super) use recording::capture_of;
