//! Hardware channels. The streams of a context share them; a context takes another one when more streams are alive than
//! its channels serve, and keeps it until the context ends.

use crate::sync::lock;
use std::sync::Mutex;

/// The streams and the channels of one context.
#[derive(Debug, Default)]
pub(crate) struct Channels(Mutex<Count>);

#[derive(Debug, Default)]
struct Count {
    /// The streams that are alive.
    streams: usize,
    /// The channels beyond the first, which the context has from its start.
    more: usize,
}

impl Channels {
    /// Counts a new stream. Returns whether it needs a new channel. `share` streams use one channel; 0 means that one
    /// channel is enough for all.
    pub(crate) fn add(&self, share: usize) -> bool {
        let mut count = lock(&self.0);
        count.streams += 1;
        let needed = (count.streams - 1).checked_div(share).unwrap_or(0);
        let new = needed > count.more;
        count.more = count.more.max(needed);
        new
    }

    pub(crate) fn remove(&self) {
        let mut count = lock(&self.0);
        count.streams = count.streams.saturating_sub(1);
    }

    /// Begins anew, for a new life of the context.
    pub(super) fn reset(&self) {
        *lock(&self.0) = Count::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_made_only_for_more_streams_than_ever_before() {
        let channels = Channels::default();
        let add = |count: usize| (0..count).filter(|_| channels.add(3)).count();
        assert_eq!((add(3), add(1), add(2), add(1)), (0, 1, 0, 1));
        (0..7).for_each(|_| channels.remove());
        assert_eq!((add(7), add(2), add(1)), (0, 0, 1));
        channels.reset();
        assert_eq!((add(3), add(1)), (0, 1));
    }

    #[test]
    fn one_channel_serves_all_streams_if_it_shall() {
        let channels = Channels::default();
        assert!((0..100).all(|_| !channels.add(0)));
    }
}
