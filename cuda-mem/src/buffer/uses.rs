//! The reported uses of memory that the CPU addresses: an event after the last reported work of each stream. A CPU
//! access waits for that work alone, not for what was queued on the stream later.

use crate::error::check_not_forked;
use crate::locks::{Mutex, MutexGuard};
use crate::stream::marks::{Mark, Marks};
use crate::{Event, Result, Stream, lifetime::waiting};
use std::sync::Arc;

/// The reported work that may still use the memory.
#[derive(Debug, Default)]
pub(super) struct Uses(Mutex<Marks>);

impl Uses {
    fn lock(&self) -> MutexGuard<'_, Marks> {
        self.0.lock()
    }

    /// Takes over the work that the program has reported for the same memory.
    pub fn inherit(&self, same: &Self) {
        let known = same.lock().copy();
        *self.lock() = known;
    }

    /// Whether the program has reported no work that may be under way.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Reports the work queued on `stream` so far. Returns the event after it.
    ///
    /// # Errors
    ///
    /// The stream captures. Then the work is not recorded.
    pub fn record(&self, stream: &Stream) -> Result<Arc<Event>> {
        let running = stream.running("Buffer::record_use")?;
        let (event, _ended) = self.lock().note(&running)?;
        Ok(event)
    }

    /// Waits for all reported work, and continues after errors. Fails once if work ran before the work that it had to
    /// wait for.
    pub fn settle(&self) -> Result<()> {
        check_not_forked("a CPU access to a buffer")?;
        // Without the lock: another thread may report work meanwhile.
        let waits: Vec<Mark> = self.lock().iter().cloned().collect();
        let mut result = Ok(());
        for mark in waits {
            let waited = waiting::while_doing(&"for a CPU access to a buffer", || mark.event().wait_beside_captures());
            result = result.and(waited.and_then(|()| {
                let _passed = self.lock().pass(&mark);
                mark.check_released()
            }));
        }
        result
    }
}
