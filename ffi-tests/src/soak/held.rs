//! Memory with what it should hold.

use super::{Done, Hands, Trouble};
use cuda_mem::Buffer;
use cuda_mem::memory::kind::Any;

/// A buffer, and the bytes that it should hold.
#[derive(Debug)]
pub struct Held {
    /// The memory.
    pub buffer: Buffer<u8, Any>,
    /// What it should hold.
    pub model: Vec<u8>,
    /// Where the memory is from.
    pub from: &'static str,
}

impl Held {
    /// Compares all bytes.
    ///
    /// # Errors
    ///
    /// They differ; the copy fails.
    pub fn check(&self, hands: &Hands<'_>) -> Done {
        hands.doing("reading all of a buffer");
        let seen = self.buffer.to_vec()?;
        hands.same(self.from, &seen, &self.model)
    }

    /// Writes bytes, here and there, by the driver.
    ///
    /// # Errors
    ///
    /// The copy fails: what the memory holds is not known then.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Trouble> {
        self.buffer.copy_from_slice(offset, bytes)?;
        self.model[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}
