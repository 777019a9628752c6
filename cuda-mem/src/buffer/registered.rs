//! The program's own memory as a buffer.

use crate::memory::kind;
use crate::memory::{HostOwner, RegisteredMemory};
use crate::{Buffer, Result, Stream};

impl<O: HostOwner> RegisteredMemory<O> {
    /// The memory as a buffer, with its values. `stream` becomes the home stream. The registration lasts until the
    /// buffer has ended, even if this value ends before.
    ///
    /// # Errors
    ///
    /// Another buffer uses the memory: [`Error::OutOfMemory`](crate::Error::OutOfMemory). The stream cannot be its home.
    pub fn buffer(&self, stream: &Stream) -> Result<Buffer<O::Element, kind::Pinned>> {
        let block = self.lend_all(stream)?;
        let length = block.size() / size_of::<O::Element>();
        // SAFETY: the block is the owner's memory, has just been lent, and holds that many values.
        unsafe { Buffer::from_block(block, self, length, stream) }.inspect_err(|_| self.end_loan())
    }
}
