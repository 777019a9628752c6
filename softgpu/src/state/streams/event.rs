//! Events: points in streams, and the times at which the streams passed them.

use super::stream::Stream;
use crate::call::Result;
use crate::misuse::Misuse;
use crate::state::checks::races::{self, Moment};
use crate::state::contexts::Context;
use crate::state::contexts::Point;
use crate::state::graphs::capture::{self, Place};
use crate::state::sharing::SharedEvent;
use crate::sync::lock;
use cuda_sys::CUresult;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) sequence: u64,
    pub(crate) context: Arc<Context>,
    pub(crate) timed: bool,
    shared: Option<Arc<SharedEvent>>,
    last: Mutex<Last>,
}

/// Its last recording.
#[derive(Debug, Default)]
enum Last {
    #[default]
    Never,
    Stream(Record),
    Capture(Place),
}

#[derive(Clone, Debug)]
struct Record {
    /// `None` if it passed at once.
    point: Option<Point>,
    time: Arc<OnceLock<Instant>>,
    /// The work before the recording.
    moment: Moment,
}

impl Event {
    /// An event. With `shared` it is shared with other processes.
    pub(crate) fn new(sequence: u64, context: Arc<Context>, timed: bool, shared: Option<SharedEvent>) -> Self {
        Self { sequence, context, timed, shared: shared.map(Arc::new), last: Mutex::default() }
    }

    pub(crate) fn shared(&self) -> Option<&SharedEvent> {
        self.shared.as_deref()
    }

    /// Records the event after the work that the stream has now.
    pub(crate) fn record(&self, stream: &Stream) -> Result {
        if capture::enter(stream)? {
            if self.shared.is_some() {
                return Err(capture::refuse(stream, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
            }
            *lock(&self.last) = Last::Capture(capture::place(stream)?);
            return Ok(());
        }
        let moment = stream.moment();
        if let Some(shared) = self.shared.clone() {
            let recording = shared.record();
            *lock(&self.last) = Last::Stream(Record { point: None, time: Arc::default(), moment });
            if stream.is_idle() {
                shared.pass(recording);
                return Ok(());
            }
            return stream.submit(Vec::new(), move || shared.pass(recording)).map(drop);
        }
        let time = Arc::new(OnceLock::new());
        let point = if stream.is_idle() {
            let _ = time.set(Instant::now());
            None
        } else {
            let time = time.clone();
            Some(stream.submit(Vec::new(), move || {
                let _ = time.set(Instant::now());
            })?)
        };
        *lock(&self.last) = Last::Stream(Record { point, time, moment });
        Ok(())
    }

    /// Reports a misuse if another thread still captures what the event marks.
    pub(crate) fn check_thread(&self, misuse: Misuse, call: &'static str) {
        if let Last::Capture(place) = &*lock(&self.last) {
            place.check_thread(misuse, call, self.sequence);
        }
    }

    /// Whether the event has passed or was never recorded.
    pub(crate) fn passed(&self) -> bool {
        let moment = self.moment();
        let passed = match &self.shared {
            Some(shared) => shared.pending().is_none(),
            None => self.pending().is_none(),
        };
        if passed {
            races::observe(&moment);
        }
        passed
    }

    pub(crate) fn wait(&self) {
        let moment = self.moment();
        if let Some(shared) = &self.shared {
            if let Some(recording) = shared.pending() {
                shared.wait(recording, || self.context.is_alive());
            }
        } else if let Some(point) = self.pending() {
            point.wait();
        }
        races::observe(&moment);
    }

    /// Makes later work of a stream wait until the event's last recording has passed.
    pub(crate) fn hold(&self, stream: &Stream) -> Result {
        if let Some(place) = self.place() {
            return place.join(stream);
        }
        if capture::enter(stream)? {
            // A capture cannot wait for an event that was recorded outside of it. An event that was never recorded
            // needs no wait.
            let never = self.shared.is_none() && matches!(*lock(&self.last), Last::Never);
            let isolation = CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
            return if never { Ok(()) } else { Err(capture::refuse(stream, isolation)) };
        }
        stream.follow(&self.moment());
        if let Some(shared) = self.shared.clone() {
            // Another process may have recorded the event after unknown work.
            stream.blur();
            let Some(recording) = shared.pending() else { return Ok(()) };
            let context = stream.context.clone();
            return stream.submit(Vec::new(), move || shared.wait(recording, || context.is_alive())).map(drop);
        }
        match self.pending() {
            Some(point) => stream.submit(vec![point], || ()).map(drop),
            None => Ok(()),
        }
    }

    /// The work before the event's last recording in this process.
    fn moment(&self) -> Moment {
        if !races::is_on() {
            return Moment::default();
        }
        match &*lock(&self.last) {
            Last::Stream(record) => record.moment.clone(),
            Last::Never | Last::Capture(_) => Moment::default(),
        }
    }

    /// The point that must pass before the event has; `None` if it has passed or was never recorded.
    fn pending(&self) -> Option<Point> {
        match &*lock(&self.last) {
            Last::Stream(record) => record.point.clone().filter(|point| !point.passed()),
            Last::Never | Last::Capture(_) => None,
        }
    }

    /// Its point in a capture, if its last recording was in one.
    pub(crate) fn place(&self) -> Option<Place> {
        match &*lock(&self.last) {
            Last::Capture(place) => Some(place.clone()),
            Last::Never | Last::Stream(_) => None,
        }
    }

    fn time(&self) -> Result<Instant> {
        let last = match &*lock(&self.last) {
            Last::Stream(record) => record.clone(),
            Last::Never | Last::Capture(_) => return Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
        };
        if last.point.is_some_and(|point| !point.passed()) {
            return Err(CUresult::CUDA_ERROR_NOT_READY);
        }
        last.time.get().copied().ok_or(CUresult::CUDA_ERROR_NOT_READY)
    }

    /// Milliseconds from one event to another.
    pub(crate) fn elapsed(start: &Event, end: &Event) -> Result<f32> {
        if !(start.timed && end.timed) {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let (from, to) = (start.time()?, end.time()?);
        let forward = to.saturating_duration_since(from).as_secs_f32();
        let backward = from.saturating_duration_since(to).as_secs_f32();
        Ok((forward - backward) * 1e3)
    }
}
