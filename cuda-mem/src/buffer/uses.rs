//! The reported uses of memory that the CPU addresses: an event after the last reported work of each stream. A CPU
//! access waits for that work alone, not for what was queued on the stream later.

use crate::{Event, Result, Stream, waiting};
use cuda_sys::CU_STREAM_PER_THREAD;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// The streams whose reported work uses the memory.
#[derive(Debug, Default)]
pub(super) struct Uses(Mutex<Vec<Use>>);

#[derive(Clone, Debug)]
struct Use {
    stream: Stream,
    /// The owning thread of a per-thread default stream.
    thread: Option<ThreadId>,
    /// Marks the end of the work.
    event: Arc<Event>,
    /// How often the event was recorded.
    recorded: u64,
    /// The recording for which a wait succeeded.
    passed: u64,
}

/// The calling thread, if the stream is the per-thread default stream.
fn thread_of(stream: &Stream) -> Option<ThreadId> {
    (stream.raw() == CU_STREAM_PER_THREAD).then(|| thread::current().id())
}

impl Uses {
    fn lock(&self) -> MutexGuard<'_, Vec<Use>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the work that the program has reported for the same memory.
    pub fn inherit(&self, same: &Self) {
        let known = same.lock().clone();
        *self.lock() = known;
    }

    /// Whether the program has reported no work.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Reports the work queued on `stream` so far. Returns the event after it.
    ///
    /// # Errors
    ///
    /// The stream captures; the driver refuses. Then the work is not recorded.
    pub fn record(&self, stream: &Stream) -> Result<Arc<Event>> {
        let running = stream.running("Buffer::record_use")?;
        let thread = thread_of(stream);
        let mut uses = self.lock();
        let known = uses.iter_mut().find(|known| known.stream == *stream && known.thread == thread);
        if let Some(known) = known {
            known.event.mark(&running)?;
            known.recorded += 1;
            return Ok(known.event.clone());
        }
        let event = Arc::new(Event::new(stream.context())?);
        event.mark(&running)?;
        // Threads come and go, so forget the finished work of their streams.
        uses.retain(|known| known.thread.is_none() || known.passed != known.recorded);
        uses.push(Use { stream: stream.clone(), thread, event: event.clone(), recorded: 1, passed: 0 });
        Ok(event)
    }

    /// Waits for all reported work, and continues after errors. Fails once if work ran before the work that it had to
    /// wait for.
    pub fn settle(&self) -> Result<()> {
        // Without the lock: another thread may report work meanwhile.
        let waits: Vec<Use> = self.lock().iter().filter(|known| known.passed != known.recorded).cloned().collect();
        let mut result = Ok(());
        for used in waits {
            let waited = waiting::while_doing(&"for a CPU access to a buffer", || used.event.finish());
            result = result.and(waited.and_then(|()| {
                let same = |known: &&mut Use| Arc::ptr_eq(&known.event, &used.event);
                if let Some(known) = self.lock().iter_mut().find(same) {
                    known.passed = known.passed.max(used.recorded);
                }
                used.stream.check_released()
            }));
        }
        result
    }
}
