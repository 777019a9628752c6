//! One worker thread of the soak.

use super::account::{Account, End};
use super::checked_buffer::CheckedBuffer;
use super::progress::Board;
use super::world::{Source, World};
use super::{Done, Trouble, Work};
use crate::timing::Numbers;
use cuda_mem::{Buffer, Error, Stream};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// The maximum number of buffers that a thread holds.
const MOST: usize = 12;

/// The state of a worker thread.
#[derive(Debug)]
pub struct Hands<'a> {
    /// What all threads share.
    pub world: &'a World,
    /// The thread's own streams.
    pub streams: Vec<Stream>,
    /// The thread's own memory.
    pub held: Vec<CheckedBuffer>,
    /// Whether calls may fail.
    pub faults: bool,
    random: Numbers,
    thread: usize,
    board: &'a Board,
    account: &'a Account,
}

impl<'a> Hands<'a> {
    /// Creates a thread's state at the beginning of a round.
    pub fn new(
        world: &'a World,
        board: &'a Board,
        account: &'a Account,
        thread: usize,
        seed: u64,
        faults: bool,
    ) -> Self {
        let (streams, held) = (Vec::new(), Vec::new());
        Self { world, streams, held, faults, random: Numbers(seed), thread, board, account }
    }

    /// Works until `end`, or until something is wrong.
    pub fn work(&mut self, work: &[Work], end: Instant) {
        let weights: usize = work.iter().map(|work| work.weight).sum();
        while Instant::now() < end && !self.board.has_failed() {
            let mut choice = self.below(weights);
            let number = work.iter().position(|work| match choice.checked_sub(work.weight) {
                None => true,
                Some(rest) => {
                    choice = rest;
                    false
                }
            });
            let number = number.unwrap_or(0);
            self.board.step(self.thread, work[number].name);
            let done = catch_unwind(AssertUnwindSafe(|| (work[number].step)(self)));
            let done = done.map(|done| {
                // Misuse seen now comes from this step, or from a step that another thread runs at the same time.
                let misuse = softgpu::misuse();
                match misuse.first() {
                    None => done,
                    Some(misuse) => Err(Trouble::Wrong(format!("misused: {misuse}; the step gave {done:?}"))),
                }
            });
            match self.judge(done.unwrap_or_else(|panic| Err(Trouble::Wrong(format!("a panic: {}", text(&*panic)))))) {
                Ok(end) => self.account.ended(number, end),
                Err(what) => self.board.fail(format!("{}: {what}", self.board.describe(self.thread))),
            }
        }
        self.board.step(self.thread, "end of the round");
        // The thread's buffers go to other threads, or end here.
        while let Some(held) = self.held.pop() {
            self.world.leave(held);
        }
        self.streams.clear();
        self.board.rest(self.thread);
    }

    fn judge(&self, done: Done) -> Result<End, String> {
        match done {
            Ok(()) => Ok(End::Done),
            Err(Trouble::Wrong(what)) => Err(what),
            Err(Trouble::Refused(error @ Error::Damaged(_))) => Err(error.to_string()),
            Err(Trouble::Refused(error)) if error.is_out_of_memory() => Ok(End::NoRoom),
            Err(Trouble::Refused(Error::Unsupported { .. } | Error::MissingSymbol(_))) => Ok(End::Unsupported),
            Err(Trouble::Refused(_)) if self.faults => Ok(End::Refused),
            Err(Trouble::Refused(error)) => Err(format!("an error without a fault: {error}")),
        }
    }

    /// Notes what the step is doing, for the watchdog and for failure reports.
    pub fn doing(&self, what: &'static str) {
        self.board.doing(self.thread, what);
    }

    /// A random number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound)
    }

    /// True once in `times` calls on average.
    pub fn chance(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// A random number.
    pub fn number(&mut self) -> u64 {
        self.random.next_number()
    }

    /// A size from 1 to `most` bytes. Every power of two is equally likely.
    pub fn size(&mut self, most: usize) -> usize {
        let room = 1 << self.below(most.ilog2() as usize + 1);
        (1 + self.below(room.max(2) * 2 - 1)).min(most)
    }

    /// A range within `length` bytes. It is empty only if `length` is 0.
    pub fn range(&mut self, length: usize) -> Range<usize> {
        if length == 0 {
            return 0..0;
        }
        let start = self.below(length);
        start..start + 1 + self.below(length - start)
    }

    /// Bytes that were never written before.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 7);
        while bytes.len() < length {
            bytes.extend(self.number().to_ne_bytes());
        }
        bytes.truncate(length);
        bytes
    }

    /// One of the thread's streams, or sometimes a new one in its place.
    ///
    /// # Errors
    ///
    /// The driver refuses a stream.
    pub fn stream(&mut self) -> Result<Stream, Error> {
        if self.streams.len() < 3 || self.chance(100) {
            if self.streams.len() >= 3 {
                let old = self.below(self.streams.len());
                self.streams.swap_remove(old);
            }
            self.streams.push(Stream::new(&self.world.context)?);
        }
        let choice = self.below(self.streams.len());
        Ok(self.streams[choice].clone())
    }

    /// A random source of memory.
    pub fn source(&mut self) -> &'a Source {
        let choice = self.below(self.world.sources.len());
        &self.world.sources[choice]
    }

    /// Allocates memory from a random source and writes new bytes to it.
    ///
    /// # Errors
    ///
    /// There is no room, or the driver refuses.
    pub fn make(&mut self) -> Result<CheckedBuffer, Trouble> {
        let source = self.source();
        let size = self.size(source.most);
        self.make_of(source, size)
    }

    /// Allocates memory of this size from a source.
    ///
    /// # Errors
    ///
    /// As [`make`](Self::make).
    pub fn make_of(&mut self, source: &'a Source, size: usize) -> Result<CheckedBuffer, Trouble> {
        let (stream, resource) = (self.stream()?, &source.resource);
        self.doing(source.name);
        let (buffer, model) = match self.below(4) {
            0 => (Buffer::<u8, _>::zeroed(resource, size, &stream)?, vec![0; size]),
            1 => {
                let byte = self.number() as u8;
                (Buffer::filled(resource, size, byte, &stream)?, vec![byte; size])
            }
            2 => {
                let bytes = self.bytes(size);
                (Buffer::<u8, _>::uninit(resource, size, &stream)?.init_from_slice(&bytes)?, bytes)
            }
            _ => {
                let bytes = self.bytes(size);
                (Buffer::from_slice(resource, &bytes, &stream)?, bytes)
            }
        };
        Ok(CheckedBuffer::new(buffer, model, source.name))
    }

    /// Takes one of the thread's buffers. The caller returns it with [`keep`](Self::keep), unless it fails. Allocates a
    /// new buffer if there are few.
    ///
    /// # Errors
    ///
    /// As [`make`](Self::make).
    pub fn take(&mut self) -> Result<CheckedBuffer, Trouble> {
        if self.held.len() < 3 {
            return self.make();
        }
        let choice = self.below(self.held.len());
        Ok(self.held.swap_remove(choice))
    }

    /// Adds a buffer to the thread's buffers.
    pub fn keep(&mut self, held: CheckedBuffer) {
        if self.held.len() >= MOST {
            let choice = self.below(self.held.len());
            self.held.swap_remove(choice);
        }
        self.held.push(held);
    }

    /// Compares bytes, and counts them as verified.
    ///
    /// # Errors
    ///
    /// They differ.
    pub fn same(&self, what: &str, seen: &[u8], expected: &[u8]) -> Done {
        crate::same(what, seen, expected)?;
        self.verified(seen.len());
        Ok(())
    }

    /// Counts verified bytes.
    pub fn verified(&self, length: usize) {
        self.account.verified(length);
    }

    /// Checks a condition.
    ///
    /// # Errors
    ///
    /// The condition does not hold.
    pub fn ensure(&self, holds: bool, what: impl FnOnce() -> String) -> Done {
        if holds { Ok(()) } else { Err(Trouble::Wrong(what())) }
    }
}

/// The text of a panic.
pub fn text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without words")
}
