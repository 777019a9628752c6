//! Tasks that asked a question which was refused. Nothing tells when it may be asked again, so they are woken soon.

use super::end_queue::EndQueue;
use super::worker::{WAKES, Waiting};
use crate::locks::later;
use core::task::Waker;
use core::time::Duration;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

/// The time after which a task asks again. A capture, which refuses most such questions, takes longer.
const SOON: Duration = Duration::from_millis(1);

/// The tasks, and when to wake them.
static ASLEEP: EndQueue<(Instant, Waker)> = EndQueue::new();

struct WakesLater;

static FOR_WORKER: LazyLock<Arc<WakesLater>> = LazyLock::new(|| Arc::new(WakesLater));

/// Wakes a task in a moment, on a thread of this crate.
#[cold]
pub(crate) fn wake_later(waker: Waker) {
    ASLEEP.push((Instant::now() + SOON, waker));
    if WAKES.employ(&FOR_WORKER).is_err() {
        // The system starts no thread. The task itself then tries again and again.
        wake(ASLEEP.take_all());
    }
}

fn wake(due: impl IntoIterator<Item = (Instant, Waker)>) {
    for (_, waker) in due {
        // A waker is the program's, and may panic. It runs after the worker's look.
        later::run(move || waker.wake());
    }
}

impl Waiting for WakesLater {
    fn look(&self) -> bool {
        let now = Instant::now();
        wake(core::iter::from_fn(|| ASLEEP.take_first(|(due, _)| *due <= now)));
        !ASLEEP.is_empty()
    }
}
