//! Streams whose work finishes when a test calls for it, and an oracle that knows which work runs before which.

use crate::timeline::{Mark, StreamDriver};

/// For each stream, how many pieces of its work, counted from its first.
pub type Progress<const N: usize> = [u32; N];

/// `N` streams, named by their numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World<const N: usize> {
    /// By stream: the work that runs before the stream's next piece. Includes all of the stream's own work.
    before: [Progress<N>; N],
    /// The finished work.
    done: Progress<N>,
}

/// An event: the work before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Point<const N: usize>(pub Progress<N>);

fn join<const N: usize>(one: &mut Progress<N>, other: &Progress<N>) {
    one.iter_mut().zip(other).for_each(|(one, other)| *one = (*one).max(*other));
}

impl<const N: usize> World<N> {
    pub fn new() -> Self {
        Self { before: [[0; N]; N], done: [0; N] }
    }

    /// Queues a piece of work that uses memory on a stream, and records it in the memory's `last`.
    pub fn work(&mut self, stream: usize, last: &mut Progress<N>) {
        self.before[stream][stream] += 1;
        last[stream] = self.before[stream][stream];
    }

    /// A wait by the program: `stream` waits for all work of `other`.
    pub fn join(&mut self, stream: usize, other: usize) {
        let before = self.before[other];
        join(&mut self.before[stream], &before);
    }

    /// Finishes the work of a stream, and the work that it waits for.
    pub fn complete(&mut self, stream: usize) {
        let before = self.before[stream];
        join(&mut self.done, &before);
    }

    /// Finishes the work before an event.
    pub fn reach(&mut self, event: &Point<N>) {
        join(&mut self.done, &event.0);
    }

    /// The oracle: whether all of the work `last` runs before the stream's next piece of work.
    pub fn is_before(&self, last: &Progress<N>, stream: usize) -> bool {
        let known = last.iter().zip(&self.before[stream]).zip(&self.done);
        known.into_iter().all(|((last, before), done)| last <= before || last <= done)
    }

    /// Whether all of this work is finished.
    #[cfg(test)]
    pub fn is_done(&self, last: &Progress<N>) -> bool {
        last.iter().zip(&self.done).all(|(last, done)| last <= done)
    }

    /// Subtracts the finished work from all counts, so that histories that differ only in their past compare equal.
    /// Returns the finished work.
    #[cfg(test)]
    pub fn rebase(&mut self) -> Progress<N> {
        let done = std::mem::replace(&mut self.done, [0; N]);
        self.before.iter_mut().for_each(|before| rebase(before, &done));
        done
    }
}

/// Subtracts finished work.
#[cfg(test)]
pub fn rebase<const N: usize>(progress: &mut Progress<N>, done: &Progress<N>) {
    progress.iter_mut().zip(done).for_each(|(progress, done)| *progress = progress.saturating_sub(*done));
}

impl<const N: usize> StreamDriver for World<N> {
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

    fn release(&mut self, _stream: usize) {}
}
