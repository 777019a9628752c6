//! Memory of other APIs.

use crate::call::{Result, ensure};
use crate::state::Global;
use crate::state::backing::{Mapping, file_size, is_memory_file, open_descriptor};
use crate::state::contexts::Context;
use crate::state::handle::next_sequence;
use crate::state::memory::{Allocation, Origin, Storage};
use crate::sync::lock;
use crate::vulkan;
use cuda_sys::CUresult;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};

#[derive(Debug)]
pub(crate) struct ExternalMemory {
    pub(crate) sequence: u64,
    pub(crate) context: Arc<Context>,
    pub(crate) size: u64,
    fd: OwnedFd,
    vulkan: bool,
    /// The import that proved the descriptor valid. The first mapping uses it.
    first: Mutex<Option<vulkan::Imported>>,
}

impl ExternalMemory {
    /// Imports an opaque file descriptor. The driver owns it only if this succeeds.
    pub(crate) fn import(global: &Global, context: &Arc<Context>, fd: RawFd, size: u64) -> Result<u64> {
        ensure(size > 0)?;
        let unknown = CUresult::CUDA_ERROR_UNKNOWN;
        let borrowed = open_descriptor(fd).map_err(|_| unknown)?;
        let first = if is_memory_file(borrowed) {
            ensure(file_size(borrowed).is_ok_and(|room| size <= room))?;
            None
        } else {
            let vulkan = global.vulkan().ok_or(unknown)?;
            Some(vulkan.import(context.device, borrowed, size)?)
        };
        // SAFETY: the import succeeded, so the driver owns the descriptor from here on, as the interface says.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let vulkan = first.is_some();
        let sequence = next_sequence();
        let memory = Self { sequence, context: context.clone(), size, fd, vulkan, first: Mutex::new(first) };
        Ok(global.externals.insert(sequence, memory).0)
    }

    /// Maps `size` bytes at `offset`.
    pub(crate) fn map(&self, global: &Global, offset: u64, size: u64) -> Result<Arc<Allocation>> {
        ensure(size > 0 && offset.checked_add(size).is_some_and(|end| end <= self.size))?;
        let length = usize::try_from(size).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let storage = if self.vulkan {
            let imported = match lock(&self.first).take() {
                Some(imported) => imported,
                None => {
                    let vulkan = global.vulkan().ok_or(CUresult::CUDA_ERROR_UNKNOWN)?;
                    vulkan.import(self.context.device, self.fd.as_fd(), self.size)?
                }
            };
            Storage::Vulkan(imported.at(offset))
        } else {
            let mapping = Mapping::shared(self.fd.as_fd(), offset, length);
            let hidden = |mapping| Storage::device(mapping, length, global.settings.strict);
            mapping.and_then(hidden).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?
        };
        let block = Allocation::new(&self.context, Origin::Mapped, length, storage, None);
        Ok(global.memory.insert(block.with_contents()))
    }
}
