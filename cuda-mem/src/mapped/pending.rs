//! Records of the device work that uses a piece of memory.

use crate::{Event, Result, Stream, waiting};
use core::sync::atomic::{AtomicBool, Ordering};
use cuda_sys::CU_STREAM_PER_THREAD;
use std::thread::{self, ThreadId};

/// The streams whose work uses the memory, each with an event after its last recorded work.
#[derive(Default)]
pub(crate) struct Pending(Vec<Use>);

struct Use {
    stream: Stream,
    /// The owning thread of a per-thread default stream.
    thread: Option<ThreadId>,
    /// Marks the end of the work. `None` if no event could be made: then waits are for the whole stream.
    event: Option<std::sync::Arc<Event>>,
    outstanding: AtomicBool,
    /// Only recorded in a capture: the work does not run, and nobody can wait for it.
    captured: bool,
}

/// The calling thread, if the stream is the per-thread default stream.
fn thread_of(stream: &Stream) -> Option<ThreadId> {
    (stream.raw() == CU_STREAM_PER_THREAD).then(|| thread::current().id())
}

impl Use {
    /// Whether this is what the calling thread means by `stream`.
    fn is_of(&self, stream: &Stream) -> bool {
        self.stream == *stream && self.thread == thread_of(stream)
    }

    fn wait(&self) -> Result<()> {
        waiting::while_doing(&"for a CPU access to mapped memory, or for its free", || self.wait_once())
    }

    fn wait_once(&self) -> Result<()> {
        match &self.event {
            Some(event) => event.finish(),
            None if self.thread == thread_of(&self.stream) => self.stream.finish(),
            // The stream belongs to another thread, and this thread has no handle for it.
            None => self.stream.context().synchronize(),
        }
    }

    fn is_done(&self) -> Result<bool> {
        match &self.event {
            Some(event) => event.is_done(),
            None if self.thread == thread_of(&self.stream) => self.stream.is_done(),
            None => Ok(false),
        }
    }
}

impl Pending {
    /// Records the work queued on `stream` so far. Without an event for it, waits for the work; if that fails too,
    /// later waits are for the whole stream, so that no work is forgotten.
    pub fn record(&mut self, stream: &Stream) -> Result<()> {
        self.try_record(stream).inspect_err(|_| {
            self.0.retain(|known| known.captured || !known.is_of(stream));
            let (thread, outstanding) = (thread_of(stream), AtomicBool::new(true));
            let used = Use { stream: stream.clone(), thread, event: None, outstanding, captured: false };
            if used.wait().is_err() {
                self.0.push(used);
            }
        })
    }

    /// As [`record`](Self::record), but after an error the caller must remember the work.
    pub fn try_record(&mut self, stream: &Stream) -> Result<()> {
        let captured = stream.is_capturing()?;
        // Executed work replaces captured work of the same stream; a capture must not reuse the event of executed work.
        self.0.retain(|known| captured || !known.captured || !known.is_of(stream));
        let same = |known: &&mut Use| known.is_of(stream) && known.captured == captured && known.event.is_some();
        if let Some(Use { event: Some(event), outstanding, .. }) = self.0.iter_mut().find(same) {
            // Another part of divided memory may share the event; a new record only makes it wait longer.
            note(event, stream, captured)?;
            *outstanding.get_mut() = true;
            return Ok(());
        }
        let event = Event::new(stream.context())?;
        note(&event, stream, captured)?;
        let thread = thread_of(stream);
        if thread.is_some() {
            // Threads come and go, so forget the finished work of their streams.
            self.0.retain(|known| known.thread.is_none() || known.outstanding.load(Ordering::Acquire));
        }
        let (stream, outstanding) = (stream.clone(), AtomicBool::new(true));
        self.0.push(Use { stream, thread, event: Some(event.into()), outstanding, captured });
        Ok(())
    }

    /// Whether no work was ever recorded.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits for all work, and continues after errors.
    #[inline]
    pub fn wait(&self) -> Result<()> {
        let mut result = Ok(());
        for used in &self.0 {
            if used.outstanding.load(Ordering::Acquire) {
                match used.wait() {
                    Ok(()) => used.outstanding.store(false, Ordering::Release),
                    error => result = result.and(error),
                }
            }
        }
        result
    }

    /// As [`wait`](Self::wait), before an access to the memory. Fails once if work ran before the work that it had to
    /// wait for.
    #[inline]
    pub fn settle(&self) -> Result<()> {
        self.wait()?;
        self.0.iter().try_for_each(|used| used.stream.check_released())
    }

    /// Whether some work may still run after a failed wait.
    pub fn goes_on(&self) -> bool {
        self.0.iter().any(|used| !used.captured && used.outstanding.load(Ordering::Acquire))
    }

    /// Makes later work on `stream` wait for all recorded work.
    pub fn order_before(&self, stream: &Stream) -> Result<()> {
        let outstanding = |used: &&Use| !used.is_of(stream) && used.outstanding.load(Ordering::Acquire);
        self.0.iter().filter(outstanding).try_for_each(|used| match &used.event {
            Some(event) => stream.wait(event),
            None => used.wait(),
        })
    }

    /// Whether all work is done.
    pub fn is_over(&self) -> Result<bool> {
        for used in &self.0 {
            if used.outstanding.load(Ordering::Acquire) {
                if !used.is_done()? {
                    return Ok(false);
                }
                used.outstanding.store(false, Ordering::Release);
            }
        }
        Ok(true)
    }

    /// The same records, for the other part of divided memory.
    pub fn same(&self) -> Self {
        let copy = |used: &Use| Use {
            stream: used.stream.clone(),
            thread: used.thread,
            event: used.event.clone(),
            outstanding: AtomicBool::new(used.outstanding.load(Ordering::Acquire)),
            captured: used.captured,
        };
        Self(self.0.iter().map(copy).collect())
    }
}

/// Records an event at a stream's current end. Unless `captured`, it is an error if the event only became part of a
/// capture.
fn note(event: &Event, stream: &Stream, captured: bool) -> Result<()> {
    if captured { event.record(stream) } else { event.mark(stream).map(drop) }
}
