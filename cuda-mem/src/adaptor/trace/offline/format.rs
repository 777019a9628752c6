//! Writing traces in this crate's own format.

use super::Trace;
use std::io::{self, Write};

/// The beginning of a trace, before the version.
pub(super) const MARK: &str = "#cuda-mem-trace,";
/// The version that this release writes.
pub(super) const VERSION: &str = "1";
/// The columns in the order in which this release writes them.
const COLUMNS: [&str; 7] = ["time_ns", "thread", "action", "address", "size", "stream", "name"];

impl Trace {
    /// Writes the trace in this crate's [format](crate::adaptor::trace#format).
    ///
    /// ```
    /// use cuda_mem::trace::{Action, Trace, TraceEvent};
    /// let action = Action::Allocate;
    /// let event = TraceEvent { time_ns: 5, thread: 1, action, address: 4096, size: 100, stream: 1, name: None };
    /// let trace = Trace { lost: 0, events: vec![event] };
    /// let mut text = Vec::new();
    /// trace.write(&mut text)?;
    /// assert_eq!(Trace::read(&text[..])?, trace);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The writer failed.
    pub fn write(&self, mut writer: impl Write) -> io::Result<()> {
        writeln!(writer, "{MARK}version={VERSION},lost={}", self.lost)?;
        let mut lines = csv::Writer::from_writer(writer);
        lines.write_record(COLUMNS)?;
        for event in &self.events {
            let [time, thread, size] = [event.time_ns, event.thread, event.size].map(|number| number.to_string());
            let [address, stream] = [event.address, event.stream].map(|number| format!("{number:#x}"));
            let name = event.name.as_deref().unwrap_or_default();
            lines.write_record([&time, &thread, event.action.name(), &address, &size, &stream, name])?;
        }
        lines.flush()
    }
}
