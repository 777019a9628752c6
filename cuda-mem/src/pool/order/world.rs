//! Streams whose work is done when a test says so, and the oracle: what work comes before what.

use super::{Clock, Mark, Waiting};

/// A number of pieces of work for each stream: all up to it.
pub(in super::super) type Progress<const N: usize> = [u32; N];

/// `N` streams, which are named by their numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct World<const N: usize> {
    /// The work that comes before what a stream is given next; its own work is all that it was given.
    before: [Progress<N>; N],
    /// The work that is done.
    done: Progress<N>,
}

/// An event: the work before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct Point<const N: usize>(pub Progress<N>);

fn join<const N: usize>(one: &mut Progress<N>, other: &Progress<N>) {
    one.iter_mut().zip(other).for_each(|(one, other)| *one = (*one).max(*other));
}

impl<const N: usize> World<N> {
    pub fn new() -> Self {
        Self { before: [[0; N]; N], done: [0; N] }
    }

    /// Gives a stream one piece of work that uses memory; `last` then covers it.
    pub fn work(&mut self, stream: usize, last: &mut Progress<N>) {
        self.before[stream][stream] += 1;
        last[stream] = self.before[stream][stream];
    }

    /// The user's own wait: `stream` waits for all work of `other`.
    pub fn join(&mut self, stream: usize, other: usize) {
        let before = self.before[other];
        join(&mut self.before[stream], &before);
    }

    /// The work of a stream gets done, and what it waits for before.
    pub fn complete(&mut self, stream: usize) {
        let before = self.before[stream];
        join(&mut self.done, &before);
    }

    /// The work before an event gets done.
    pub fn reach(&mut self, event: &Point<N>) {
        join(&mut self.done, &event.0);
    }

    /// The oracle: whether all this work comes before what the stream is given next.
    pub fn is_before(&self, last: &Progress<N>, stream: usize) -> bool {
        let known = last.iter().zip(&self.before[stream]).zip(&self.done);
        known.into_iter().all(|((last, before), done)| last <= before || last <= done)
    }

    /// Counts anew from what is done, so that histories that differ in nothing else are the same. Gives what to take off.
    #[cfg(test)]
    pub fn rebase(&mut self) -> Progress<N> {
        let done = std::mem::replace(&mut self.done, [0; N]);
        self.before.iter_mut().for_each(|before| rebase(before, &done));
        done
    }
}

/// Takes what is done off.
#[cfg(test)]
pub(in super::super) fn rebase<const N: usize>(progress: &mut Progress<N>, done: &Progress<N>) {
    progress.iter_mut().zip(done).for_each(|(progress, done)| *progress = progress.saturating_sub(*done));
}

impl<const N: usize> Clock for World<N> {
    type Stream = usize;
    type Event = Point<N>;
    type Error = ();

    fn record(&mut self, stream: &usize) -> Result<Mark<Point<N>>, ()> {
        Ok(Mark::Event(Point(self.before[*stream])))
    }

    fn has_passed(&mut self, event: &Point<N>) -> Result<bool, ()> {
        Ok(event.0.iter().zip(&self.done).all(|(before, done)| before <= done))
    }

    fn wait(&mut self, stream: &usize, event: &Point<N>) -> Result<bool, ()> {
        join(&mut self.before[*stream], &event.0);
        Ok(true)
    }

    fn retire(&mut self, _event: Point<N>) {}

    fn let_go(&mut self, _stream: usize) {}
}

impl<const N: usize> Waiting for World<N> {
    fn synchronize(&mut self, event: &Point<N>) -> Result<(), ()> {
        self.reach(event);
        Ok(())
    }
}
