//! The memory of words and rings.

use super::Placement;
use super::compare::SignalWord;
use crate::cpu::host_copy::{self, Stores};
use crate::error::{check_not_forked, forked};
use crate::locks::{Mutex, MutexGuard};
use crate::memory::resource::kind;
use crate::memory::{HostOwner, RegisterOptions, RegisteredMemory};
use crate::{Buffer, Context, Error, MappedMemory, Result, SharedBuffer, Stream};
use core::fmt;
use core::ptr::NonNull;
use cuda_sys::CUdeviceptr;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;
use stream_heap::suballocator::{self, BlockId, RegionId, Suballocator, SuballocatorOptions};

/// Alignment of memory that shares no cache line with other memory: today's GPUs move 128 bytes at a time.
pub(super) const LINE: usize = 128;
/// Size in bytes of what is allocated at once.
const CHUNK: usize = 64 << 10;
const PAGE: usize = 4096;

/// Pages that belong to this process. They outlive the context, so that a wait may read them at any time.
struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: this value owns the pages. They are accessed by atomic words and by the ring's protocol only.
unsafe impl Send for Pages {}

impl Pages {
    fn new(size: usize) -> Result<Self> {
        let refusal = || Error::OutOfMemory {
            call: "Signals",
            requested: size,
            device: "the host".into(),
            free: None,
            message: "the system has no memory".into(),
        };
        let layout = Layout::from_size_align(size, PAGE).map_err(|_| refusal())?;
        // SAFETY: the size is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refusal)?;
        Ok(Self { start, layout })
    }
}

// SAFETY: the pages do not move, and are used only for what this module lends.
unsafe impl HostOwner for Pages {
    type Element = u8;

    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    fn length(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the pages with this layout, and nobody else has them.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Memory that CPU and device both address, zeroed.
struct SignalChunk {
    host: NonNull<u8>,
    device: CUdeviceptr,
    #[expect(dead_code, reason = "held for its drop")]
    owner: Owner,
}

#[expect(dead_code, reason = "held for its drop")]
enum Owner {
    Mapped(SharedBuffer<u8, kind::Mapped>),
    Pinned(Buffer<u8, kind::Pinned>),
}

// SAFETY: the address is the owner's memory, which any thread may access by atomic words and by the ring's protocol.
unsafe impl Send for SignalChunk {}
// SAFETY: as above.
unsafe impl Sync for SignalChunk {}

impl SignalChunk {
    fn pinned(context: &Context, stream: &Stream, size: usize) -> Result<Self> {
        let pages = Pages::new(size)?;
        let host = pages.start;
        let registered = RegisteredMemory::new(context, pages, RegisterOptions::default()).map_err(Error::from)?;
        let buffer = registered.buffer(stream)?;
        Ok(Self { host, device: buffer.device_pointer(), owner: Owner::Pinned(buffer) })
    }

    fn mapped(resource: &MappedMemory, stream: &Stream, size: usize) -> Result<Self> {
        // SAFETY: bytes may have any value.
        let memory = unsafe { Buffer::<u8, _>::uninit(resource, size, stream)?.assume_init() }.into_shared();
        memory.store(0, &vec![0u8; size])?;
        let host = NonNull::new(memory.host_pointer()).unwrap_or(NonNull::dangling());
        Ok(Self { host, device: memory.device_pointer(), owner: Owner::Mapped(memory) })
    }
}

/// All chunks of one placement, and their used parts. Chunks stay until the arena ends.
pub(super) struct Arena {
    placement: Placement,
    inner: Mutex<ArenaChunks>,
}

struct ArenaChunks {
    places: Suballocator,
    chunks: Vec<(RegionId, Arc<SignalChunk>)>,
}

impl ArenaChunks {
    /// A free place, and its chunk.
    fn take(&mut self, size: usize) -> Option<(suballocator::Block, Arc<SignalChunk>)> {
        let block = self.places.allocate(size as u64, LINE as u64)?;
        let (_, chunk) = self.chunks.iter().find(|(region, _)| *region == block.region)?;
        Some((block, chunk.clone()))
    }
}

/// The source of an arena's chunks.
pub(super) enum LineSource<'source> {
    Pinned(&'source Context, &'source Stream),
    Mapped(&'source MappedMemory, &'source Stream),
}

impl Arena {
    pub fn new(placement: Placement) -> Result<Arc<Self>> {
        let options = SuballocatorOptions { granularity: LINE as u64 };
        let places = Suballocator::new(options).map_err(|error| no_place(LINE, &error))?;
        Ok(Arc::new(Self { placement, inner: Mutex::new(ArenaChunks { places, chunks: Vec::new() }) }))
    }

    fn lock(&self) -> MutexGuard<'_, ArenaChunks> {
        self.inner.lock()
    }

    /// Allocates whole lines of 128 bytes, zeroed.
    pub fn allocate(self: &Arc<Self>, size: usize, source: LineSource<'_>) -> Result<SignalLines> {
        check_not_forked("Signals")?;
        let (block, chunk) = loop {
            if let Some(found) = self.lock().take(size) {
                break found;
            }
            // Without the lock: this may wait. If other threads are faster, they use a part of the chunk.
            let size = size.next_multiple_of(CHUNK);
            let chunk = match source {
                LineSource::Pinned(context, stream) => SignalChunk::pinned(context, stream, size)?,
                LineSource::Mapped(resource, stream) => SignalChunk::mapped(resource, stream, size)?,
            };
            let mut inner = self.lock();
            let region = inner.places.add_region(size as u64).map_err(|error| no_place(size, &error))?;
            inner.chunks.push((region, Arc::new(chunk)));
        };
        // SAFETY: the block lies within the chunk.
        let host = unsafe { chunk.host.add(block.offset as usize) };
        let device = chunk.device + block.offset;
        let place = Arc::new(LinePlace { arena: self.clone(), chunk, id: block.id });
        let lines = SignalLines { host, device, placement: self.placement, place };
        lines.clear(size);
        Ok(lines)
    }
}

#[cold]
fn no_place(requested: usize, why: &dyn fmt::Display) -> Error {
    let device = "the host".into();
    Error::OutOfMemory { call: "Signals", requested, device, free: None, message: why.to_string().into() }
}

/// A part of a chunk. Its drop returns it to the arena, and comes after all device work that uses it.
struct LinePlace {
    arena: Arc<Arena>,
    #[expect(dead_code, reason = "held for its drop")]
    chunk: Arc<SignalChunk>,
    id: BlockId,
}

impl Drop for LinePlace {
    fn drop(&mut self) {
        if forked() {
            return;
        }
        // The ID is valid: only this value has it.
        let _ = self.arena.lock().places.free(self.id);
    }
}

/// Some 128-byte lines of a chunk. Clones are the same lines.
#[derive(Clone)]
pub(super) struct SignalLines {
    host: NonNull<u8>,
    device: CUdeviceptr,
    placement: Placement,
    #[expect(dead_code, reason = "held for its drop")]
    place: Arc<LinePlace>,
}

// SAFETY: the address lies in the chunk, which any thread may access by atomic words and by the ring's protocol.
unsafe impl Send for SignalLines {}
// SAFETY: as above.
unsafe impl Sync for SignalLines {}

impl SignalLines {
    /// CPU address of a byte in the lines.
    #[inline]
    pub fn host(&self, offset: usize) -> *mut u8 {
        // Within the chunk: callers know how much they allocated.
        self.host.as_ptr().wrapping_add(offset)
    }

    /// Device address of a byte in the lines.
    pub fn device(&self, offset: usize) -> CUdeviceptr {
        self.device + offset as CUdeviceptr
    }

    pub fn placement(&self) -> Placement {
        self.placement
    }

    fn clear(&self, size: usize) {
        let zeros = [0u8; LINE];
        let mut stores = Stores::begin();
        for offset in (0..size).step_by(LINE) {
            // SAFETY: only this value has the lines, which are `size` bytes long.
            unsafe { stores.store(zeros.as_ptr(), self.host(offset), LINE.min(size - offset)) };
        }
    }

    /// Reads the word at a byte offset. The caller sees what the word's writer did before the write.
    ///
    /// # Safety
    ///
    /// The word lies within the lines, is aligned, and is only accessed as words of this size.
    #[inline]
    pub unsafe fn load<W: SignalWord>(&self, offset: usize) -> W {
        // SAFETY: this function's contract; the chunk lives.
        unsafe { W::load(self.host(offset)) }
    }

    /// Writes the word at a byte offset, after all earlier writes of this thread to any memory, and posts it.
    ///
    /// # Safety
    ///
    /// As [`load`](Self::load).
    #[inline]
    pub unsafe fn store<W: SignalWord>(&self, offset: usize, value: W) {
        // Earlier writes may be to write-combining memory, which keeps no order without a fence.
        host_copy::store_fence();
        // SAFETY: this function's contract; the chunk lives.
        unsafe { W::store(self.host(offset), value) };
        if self.placement() == Placement::Mapped {
            // Without this fence, the CPU would hold the write back until more writes follow.
            host_copy::store_fence();
        }
    }
}
