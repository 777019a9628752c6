//! A buffer together with the bytes that it should hold.

use super::{Done, Hands, Trouble};
use cuda_mem::Buffer;
use cuda_mem::memory::kind::Any;
use std::collections::VecDeque;
use std::ops::Range;

/// The number of operations that the history keeps.
const REMEMBERED: usize = 16;

/// A buffer, and the bytes that it should hold.
#[derive(Debug)]
pub struct CheckedBuffer {
    /// The memory.
    pub buffer: Buffer<u8, Any>,
    /// The bytes that it should hold.
    pub model: Vec<u8>,
    /// The name of its source.
    pub from: &'static str,
    /// The last operations on it, oldest first.
    pub history: History,
}

/// The last operations on a buffer, for reports of wrong bytes.
#[derive(Clone, Debug, Default)]
pub struct History(VecDeque<String>);

impl History {
    /// Adds an operation.
    pub fn add(&mut self, operation: String) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(operation);
    }
}

impl CheckedBuffer {
    /// A new buffer with its contents.
    pub fn new(buffer: Buffer<u8, Any>, model: Vec<u8>, from: &'static str) -> Self {
        let mut held = Self { buffer, model, from, history: History::default() };
        held.did("made", 0..held.model.len());
        held
    }

    /// Records an operation on a range. The model must already contain the range's new bytes.
    pub fn did(&mut self, what: &str, range: Range<usize>) {
        let (stream, address) = (self.buffer.stream().raw(), self.buffer.device_pointer());
        let bytes = self.model.get(range.clone()).unwrap_or_default();
        let bytes = &bytes[..bytes.len().min(4)];
        self.history.add(format!("{what} {range:?} of {address:#x}+{}: {bytes:02x?}, {stream:?}", self.model.len()));
    }

    /// Compares all bytes.
    ///
    /// # Errors
    ///
    /// The bytes differ, or the copy fails.
    pub fn check(&self, hands: &Hands<'_>) -> Done {
        hands.doing("reading all of a buffer");
        let seen = self.buffer.to_vec()?;
        self.same(&seen, 0..self.model.len())?;
        hands.verified(seen.len());
        Ok(())
    }

    /// Compares bytes read from a range with the model. The error includes the history, and what a second read returns.
    ///
    /// # Errors
    ///
    /// The bytes differ.
    pub fn same(&self, seen: &[u8], range: Range<usize>) -> Result<(), String> {
        crate::same(self.from, seen, &self.model[range.clone()]).map_err(|what| {
            let again = match self.buffer.to_vec() {
                Ok(again) if again[range.clone()] == self.model[range] => "read again they are right".to_owned(),
                Ok(_) => "read again they are wrong too".to_owned(),
                Err(error) => format!("they cannot be read again: {error}"),
            };
            let history: String = self.history.0.iter().map(|one| format!("\n  {one}")).collect();
            format!("{what}; {again}; it was{history}")
        })
    }

    /// Records that a range of another buffer was copied to offset `to` of this one.
    pub fn take_over(&mut self, to: usize, other: &CheckedBuffer, from: Range<usize>) {
        let to = to..to + from.len();
        self.model[to.clone()].copy_from_slice(&other.model[from.clone()]);
        let (stream, address) = (other.buffer.stream().raw(), other.buffer.device_pointer());
        self.did(&format!("copied from {from:?} of {address:#x}, {stream:?}, to"), to);
    }

    /// Writes bytes to the memory, with the driver, and to the model.
    ///
    /// # Errors
    ///
    /// The copy fails. The memory's contents are then unknown.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Trouble> {
        self.buffer.copy_from_slice(offset, bytes)?;
        self.model[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.did("written", offset..offset + bytes.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setup;
    use crate::suite::Outcome;
    use cuda_mem::Stream;
    use cuda_mem::memory::{DeviceMemory, ResourceHandle};

    #[test]
    fn a_wrong_byte_tells_what_was_done_with_its_memory() -> Outcome {
        let setup = Setup::from_environment()?;
        let (memory, stream) = (DeviceMemory::new(&setup.context).share(), Stream::new(&setup.context)?);
        let make = |byte| {
            Buffer::filled(&memory, 8, byte, &stream).map(|buffer| CheckedBuffer::new(buffer, vec![byte; 8], "a test"))
        };
        let (mut held, other) = (make(1)?, make(2)?);
        held.buffer.copy_from_buffer(6, &other.buffer, 0..2)?;
        held.take_over(6, &other, 0..2);
        held.same(&held.buffer.to_vec()?, 0..8)?;
        held.buffer.fill(3..5, 9)?;
        let told = held.same(&held.buffer.to_vec()?, 0..8).expect_err("the model does not know of the fill");
        assert!(
            told.starts_with("a test: byte 3 of 8: [09, 09, 01, 02, 02] in place of [01, 01, 01, 02, 02]"),
            "{told}"
        );
        assert!(told.contains("read again they are wrong too; it was\n  made 0..8 of 0x"), "{told}");
        assert!(told.contains("\n  copied from 0..2 of 0x"), "{told}");
        for _ in 0..2 * REMEMBERED {
            held.did("nothing", 0..0);
        }
        let told = held.same(&[0; 8], 0..8).expect_err("all of it differs");
        assert_eq!(told.lines().count(), 1 + REMEMBERED);
        Ok(())
    }
}
