//! Device work that uses a piece of memory, as far as it was told.

use crate::{Event, Result, Stream, waiting};
use core::sync::atomic::{AtomicBool, Ordering};
use cuda_sys::CU_STREAM_PER_THREAD;
use std::thread::{self, ThreadId};

/// The streams whose work uses the memory, each with an event after the last of it.
#[derive(Default)]
pub(crate) struct Pending(Vec<Use>);

struct Use {
    stream: Stream,
    /// Whose it is, where each thread has its own of that name.
    thread: Option<ThreadId>,
    /// Marks the end of the work. None where there is no such event: then the whole stream is waited for.
    event: Option<std::sync::Arc<Event>>,
    outstanding: AtomicBool,
    /// Recorded in a capture: nothing is done, and nobody can wait for it.
    captured: bool,
}

/// The calling thread, if the stream is another one on another thread.
fn thread_of(stream: &Stream) -> Option<ThreadId> {
    (stream.raw() == CU_STREAM_PER_THREAD).then(|| thread::current().id())
}

impl Use {
    /// Whether it is of a stream, as the calling thread names it.
    fn is_of(&self, stream: &Stream) -> bool {
        self.stream == *stream && self.thread == thread_of(stream)
    }

    fn wait(&self) -> Result<()> {
        waiting::while_doing(&"for a CPU access to mapped memory, or its end", || self.wait_once())
    }

    fn wait_once(&self) -> Result<()> {
        match &self.event {
            Some(event) => event.finish(),
            None if self.thread == thread_of(&self.stream) => self.stream.finish(),
            // Another thread's stream, for which this thread has no name.
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
    /// Remembers the work given to `stream` so far. Where no event can be had for it, it waits for the work; where that
    /// fails too, later waits wait for the whole stream, so that no work is forgotten.
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

    /// The same, and where it fails the work is the caller's to remember.
    pub fn try_record(&mut self, stream: &Stream) -> Result<()> {
        let captured = stream.is_capturing()?;
        // What was captured is no work to wait for once there is some, and must not take the event of work before it.
        self.0.retain(|known| captured || !known.captured || !known.is_of(stream));
        let same = |known: &&mut Use| known.is_of(stream) && known.captured == captured && known.event.is_some();
        if let Some(Use { event: Some(event), outstanding, .. }) = self.0.iter_mut().find(same) {
            // The event may be shared with another part of divided memory, whose wait a new record would only prolong.
            note(event, stream, captured)?;
            *outstanding.get_mut() = true;
            return Ok(());
        }
        let event = Event::new(stream.context())?;
        note(&event, stream, captured)?;
        let thread = thread_of(stream);
        if thread.is_some() {
            // Threads come and go: what they have done is forgotten.
            self.0.retain(|known| known.thread.is_none() || known.outstanding.load(Ordering::Acquire));
        }
        let (stream, outstanding) = (stream.clone(), AtomicBool::new(true));
        self.0.push(Use { stream, thread, event: Some(event.into()), outstanding, captured });
        Ok(())
    }

    /// Whether there was never any.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits for all of it, whatever cannot be waited for.
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

    /// As [`wait`](Self::wait), before an access to the memory: it fails, once, if work ran without what it was to wait for.
    #[inline]
    pub fn settle(&self) -> Result<()> {
        self.wait()?;
        self.0.iter().try_for_each(|used| used.stream.check_released())
    }

    /// Whether some of it may go on, after a wait for it failed.
    pub fn goes_on(&self) -> bool {
        self.0.iter().any(|used| !used.captured && used.outstanding.load(Ordering::Acquire))
    }

    /// Lets work given to `stream` from now on wait for all of it.
    pub fn order_before(&self, stream: &Stream) -> Result<()> {
        let outstanding = |used: &&Use| !used.is_of(stream) && used.outstanding.load(Ordering::Acquire);
        self.0.iter().filter(outstanding).try_for_each(|used| match &used.event {
            Some(event) => stream.wait(event),
            None => used.wait(),
        })
    }

    /// Whether all of it is done.
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

    /// For the other part of divided memory: the same work.
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

/// Sets an event to a stream's present end; of work that is being done, it is an error if the event only marks what a
/// capture recorded.
fn note(event: &Event, stream: &Stream, captured: bool) -> Result<()> {
    if captured { event.record(stream) } else { event.mark(stream).map(drop) }
}
