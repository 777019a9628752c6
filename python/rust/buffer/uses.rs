//! Uses of an open buffer, and the end of one that nobody closed.

use super::Buffer;
use crate::closable::Open;
use crate::detached;
use crate::error::{Outcome, raise, refused};
use crate::signals;
use cuda_mem::buffer::GrowableBuffer;
use cuda_mem::interchange::SharedTensor;
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{Accessibility, SharedResource};
use cuda_mem_dynamic::{Memory, with};
use pyo3::prelude::*;

impl Buffer {
    /// The memory, if the buffer is open.
    #[inline]
    pub fn open(&self) -> Outcome<Open<'_, Memory>> {
        // A forked child takes no lock of an object.
        cuda_mem::check_not_forked("use of a Buffer")?;
        self.memory.open("Buffer")
    }

    /// Copies bytes to the buffer. The copy is done when this returns.
    pub fn write(&self, py: Python<'_>, offset: usize, bytes: &[u8]) -> Outcome {
        let memory = self.open()?;
        let memory: &Memory = &memory;
        let copy = || memory.write_aside(|content| with!(content, buffer => buffer.copy_from_slice(offset, bytes)));
        Ok(signals::detach(py, copy)??)
    }

    /// The whole memory as an array of bytes, which shares its ownership.
    pub fn tensor(&self) -> Outcome<SharedTensor> {
        Ok(self.open()?.slice(0, usize::MAX)?.tensor())
    }

    /// The size, 0 if the buffer is closed.
    pub(super) fn len(&self) -> Outcome<usize> {
        if self.is_closed() { Ok(0) } else { Ok(with!(&*self.open()?.read(), buffer => buffer.len())) }
    }

    pub(super) fn with_growable<R: Send>(
        &self,
        py: Python<'_>,
        call: &str,
        work: impl FnOnce(&mut GrowableBuffer<u8, Any>) -> cuda_mem::Result<R> + Send,
    ) -> Outcome<R> {
        self.views.refuse(call)?;
        let memory = self.open()?;
        let memory: &Memory = &memory;
        match signals::detach(py, || memory.with_growable(work))? {
            Some(done) => Ok(done?),
            None => {
                let text = "the Buffer does not grow: VirtualMemory.allocate_growable makes one that does, until it is \
                            sliced, exported or viewed";
                Err(refused(text))
            }
        }
    }

    pub(super) fn accessibility(&self) -> Outcome<Accessibility> {
        Ok(with!(&*self.open()?.read(), buffer => buffer.accessibility()))
    }

    /// The home stream.
    pub(super) fn home(&self) -> Outcome<cuda_mem::Stream> {
        Ok(with!(&*self.open()?.read(), buffer => buffer.stream().clone()))
    }

    /// Calls `work` with a range that the CPU addresses.
    pub(super) fn on_host(
        &self,
        py: Python<'_>,
        call: &str,
        offset: usize,
        size: Option<usize>,
        work: impl FnOnce(&SharedResource, *mut u8, usize) -> cuda_mem::Result<()> + Send,
    ) -> Outcome {
        let memory = self.host_memory(call)?;
        let memory: &Memory = &memory;
        Ok(py.detach(|| memory.with_host_range(offset, size.unwrap_or(usize::MAX), work))?)
    }

    /// The memory, if the CPU addresses it or it is empty.
    pub(super) fn host_memory(&self, call: &str) -> Outcome<Open<'_, Memory>> {
        let memory = self.open()?;
        if memory.host_pointer().is_none() && with!(&*memory.read(), buffer => !buffer.is_empty()) {
            let text = format!(
                "Buffer.{call}: the CPU does not address this memory: copy it with to_bytes or copy_to, or allocate from \
                 MappedMemory, PinnedMemory or ManagedMemory"
            );
            return Err(raise("ExchangeError", text, None));
        }
        Ok(memory)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // A free that waits may wait for work that calls Python.
        if !self.quick_frees
            && let Some(memory) = self.memory.end()
        {
            detached::end(memory);
        }
    }
}
