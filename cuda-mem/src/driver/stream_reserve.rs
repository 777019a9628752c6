//! Streams that a context keeps ready.
//!
//! On an H100 the driver (580.159) needs a new hardware channel for about every 43rd stream that is alive. While a host
//! function blocks a stream of the context, the creation of such a stream waits for that function and holds the context's
//! lock, so other threads wait too. Channels stay once they are made. So a context makes some streams in a quiet moment,
//! before its first work that waits for the CPU, and hands them out while such work is queued.

use crate::locks::{Mutex, MutexGuard};
use cuda_sys::{CUstream, CUstream_flags};
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many streams a context keeps ready, unless the program asks for another number.
pub(crate) const DEFAULT: usize = 32;

/// What makes streams alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamClass {
    pub flags: CUstream_flags,
    pub priority: i32,
}

impl StreamClass {
    /// The class of the streams that are made ahead.
    pub const USUAL: Self = Self { flags: CUstream_flags::CU_STREAM_NON_BLOCKING, priority: 0 };
}

/// An idle stream of nobody. It was never part of a capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spare {
    pub raw: CUstream,
    pub class: StreamClass,
    /// [`StreamCore::has_plain_frees`](super::stream_core::StreamCore::has_plain_frees) of the values that used it.
    pub has_plain_frees: bool,
}

// SAFETY: a CUstream is a token that every thread may pass to the driver.
unsafe impl Send for Spare {}

/// A stream from the reserve.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// Of the wanted class.
    Alike(Spare),
    /// Of the wanted priority. Its end leaves a channel for the stream that is wanted.
    Channel(Spare),
}

/// The idle streams of a context.
#[derive(Debug)]
pub(crate) struct StreamReserve {
    spares: Mutex<Vec<Spare>>,
    /// Length of `spares`, readable without its lock.
    count: AtomicUsize,
    /// How many of them are of the usual class.
    usual: AtomicUsize,
    /// How many of the usual class are kept ready. As many others may be kept besides.
    wanted: AtomicUsize,
}

impl Default for StreamReserve {
    fn default() -> Self {
        let (spares, [count, usual]) = (Mutex::default(), [const { AtomicUsize::new(0) }; 2]);
        Self { spares, count, usual, wanted: AtomicUsize::new(DEFAULT) }
    }
}

impl Spare {
    /// A new stream.
    pub fn new(raw: CUstream, class: StreamClass) -> Self {
        Self { raw, class, has_plain_frees: false }
    }

    fn is_usual(&self) -> bool {
        self.class == StreamClass::USUAL
    }
}

impl StreamReserve {
    fn change<R>(&self, change: impl FnOnce(&mut Vec<Spare>) -> R) -> R {
        let mut spares: MutexGuard<'_, _> = self.spares.lock();
        let result = change(&mut spares);
        self.count.store(spares.len(), Ordering::Release);
        self.usual.store(spares.iter().filter(|spare| spare.is_usual()).count(), Ordering::Release);
        result
    }

    /// Takes a stream of the wanted class, or else one of its priority.
    pub fn take(&self, wanted: StreamClass) -> Option<Found> {
        self.change(|spares| {
            // The newest: its data is the likeliest to be in a cache.
            if let Some(place) = spares.iter().rposition(|spare| spare.class == wanted) {
                return Some(Found::Alike(spares.swap_remove(place)));
            }
            let place = spares.iter().rposition(|spare| spare.class.priority == wanted.priority)?;
            Some(Found::Channel(spares.swap_remove(place)))
        })
    }

    /// Takes a stream of just this class.
    pub fn take_alike(&self, wanted: StreamClass) -> Option<Spare> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.change(|spares| {
            let place = spares.iter().rposition(|spare| spare.class == wanted)?;
            Some(spares.swap_remove(place))
        })
    }

    /// Keeps an idle stream. Returns it if there are enough. Streams of other classes take no place of the usual ones.
    pub fn keep(&self, spare: Spare) -> Result<(), Spare> {
        self.change(|spares| {
            let same = spares.iter().filter(|kept| kept.is_usual() == spare.is_usual()).count();
            if same >= self.wanted.load(Ordering::Relaxed) {
                return Err(spare);
            }
            spares.push(spare);
            Ok(())
        })
    }

    /// Whether no more streams of a class are kept.
    pub fn has_enough(&self, class: StreamClass) -> bool {
        let usual = self.usual.load(Ordering::Acquire);
        let others = self.count.load(Ordering::Acquire).saturating_sub(usual);
        let same = if class == StreamClass::USUAL { usual } else { others };
        same >= self.wanted.load(Ordering::Relaxed)
    }

    /// How many streams of the usual class are missing.
    #[inline]
    pub fn missing(&self) -> usize {
        self.wanted.load(Ordering::Relaxed).saturating_sub(self.usual.load(Ordering::Acquire))
    }

    /// Sets how many streams are kept. Returns those beyond that number.
    pub fn set_wanted(&self, wanted: usize) -> Vec<Spare> {
        self.wanted.store(wanted, Ordering::Relaxed);
        self.change(|spares| {
            let (mut usual, mut others) = core::mem::take(spares).into_iter().partition::<Vec<_>, _>(Spare::is_usual);
            let mut beyond = usual.split_off(wanted.min(usual.len()));
            beyond.extend(others.split_off(wanted.min(others.len())));
            spares.extend(usual.into_iter().chain(others));
            beyond
        })
    }

    /// Takes all streams.
    pub fn take_all(&self) -> Vec<Spare> {
        self.change(core::mem::take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr::without_provenance_mut;

    fn spare(number: usize, priority: i32) -> Spare {
        Spare::new(without_provenance_mut(number), StreamClass { priority, ..StreamClass::USUAL })
    }

    #[test]
    fn a_reserve_keeps_as_many_streams_as_wanted() {
        let reserve = StreamReserve::default();
        assert_eq!(reserve.missing(), DEFAULT);
        assert!(reserve.set_wanted(2).is_empty());
        assert!(reserve.keep(spare(1, 0)).is_ok() && reserve.keep(spare(2, 0)).is_ok());
        assert!(reserve.keep(spare(3, 0)).is_err() && reserve.missing() == 0);
        assert_eq!(reserve.set_wanted(1).len(), 1);
        assert_eq!((reserve.take_all().len(), reserve.missing()), (1, 1));
    }

    #[test]
    fn other_streams_take_no_place_of_the_usual_ones() {
        let reserve = StreamReserve::default();
        assert!(reserve.set_wanted(2).is_empty());
        assert!(reserve.keep(spare(1, -5)).is_ok() && reserve.keep(spare(2, -5)).is_ok());
        assert!(reserve.keep(spare(3, -4)).is_err() && reserve.missing() == 2);
        assert!(reserve.keep(spare(4, 0)).is_ok() && reserve.missing() == 1);
        assert_eq!(reserve.set_wanted(1).len(), 1);
        assert_eq!((reserve.missing(), reserve.take_all().len()), (0, 2));
    }

    #[test]
    fn a_stream_of_another_class_gives_its_channel() {
        let reserve = StreamReserve::default();
        for it in [spare(1, 0), spare(2, -5)] {
            reserve.keep(it).expect("there is room");
        }
        let blocking = StreamClass { flags: CUstream_flags::CU_STREAM_DEFAULT, priority: 0 };
        assert!(reserve.take_alike(blocking).is_none());
        assert!(matches!(reserve.take(blocking), Some(Found::Channel(spare)) if spare.raw.addr() == 1));
        assert!(reserve.take(blocking).is_none(), "another priority has other channels");
        let urgent = StreamClass { priority: -5, ..StreamClass::USUAL };
        assert!(matches!(reserve.take(urgent), Some(Found::Alike(spare)) if spare.raw.addr() == 2));
    }
}
