//! Stricter alignment than a resource offers.

use super::{Adapt, Adapted, handle};
use crate::error::callback::or_undo;
use crate::error::unless_forked;
use crate::locks::Mutex;
use crate::memory::resource::{Block, Kind, ResourceHandle, SharedResource, check_shape};
use crate::{Error, Result, Stream};
use core::sync::atomic::{AtomicUsize, Ordering};
use cuda_sys::CUdeviceptr;
use std::collections::HashMap;

handle! {
    /// Aligns blocks to any power of two over a resource that aligns less. If the upstream does not support an
    /// alignment, this allocates up to `alignment - 1` bytes more than requested, and moves the start. Cheap to clone.
    ///
    /// The device address is aligned. If the CPU's address differs, it has the alignment that the caller requested, or
    /// the allocation is refused.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// use cuda_mem::{Buffer, adaptor::Aligned, memory::DeviceMemory};
    /// let aligned = Aligned::new(&DeviceMemory::new(&context), 1 << 16)?; // for GPUDirect, say
    /// let buffer = Buffer::<u8, _>::zeroed(&aligned, 1000, &stream)?;
    /// assert_eq!(buffer.device_pointer() % (1 << 16), 0);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    Aligned holds Adapted<Shifting>
}

const CALL: &str = "Aligned::allocate";

impl<K: Kind> Aligned<K> {
    /// Aligns all blocks to at least `alignment` bytes, or more if an allocation requests more.
    ///
    /// # Errors
    ///
    /// `alignment` is not a power of two.
    pub fn new<R: ResourceHandle<Kind = K> + ?Sized>(upstream: &R, alignment: usize) -> Result<Self> {
        if !alignment.is_power_of_two() {
            return Err(Error::invalid("Aligned::new", "alignment", alignment, "it must be a power of two"));
        }
        let adaptor = Shifting { least: alignment, refused: AtomicUsize::new(usize::MAX), moved: Mutex::default() };
        Ok(Self::from_inner(Adapted { adaptor, upstream: upstream.share() }))
    }
}

#[derive(Debug)]
struct Shifting {
    /// The alignment of all blocks.
    least: usize,
    /// The smallest alignment that the upstream is known to refuse. Larger ones are not requested from it.
    refused: AtomicUsize,
    /// The upstream's blocks, by the shifted device addresses of their aligned parts.
    moved: Mutex<HashMap<CUdeviceptr, Block>>,
}

impl Shifting {
    fn with<R: Default>(&self, work: impl FnOnce(&mut HashMap<CUdeviceptr, Block>) -> R) -> R {
        unless_forked(|| work(&mut self.moved.lock()))
    }

    /// A block that the upstream itself aligns; `None` if it does not support the alignment.
    fn ask(&self, upstream: &SharedResource, size: usize, alignment: usize, stream: &Stream) -> Result<Option<Block>> {
        if alignment >= self.refused.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match upstream.allocate(size, alignment, stream) {
            Err(Error::Alignment { .. }) => {
                self.refused.fetch_min(alignment, Ordering::Relaxed);
                Ok(None)
            }
            other => other.map(Some),
        }
    }
}

/// The part of `block` that begins at a multiple of `alignment` and has `size` bytes.
///
/// # Errors
///
/// The CPU's address of that part is not a multiple of `of_host`.
fn part(block: Block, size: usize, alignment: usize, of_host: usize) -> Result<Block> {
    let shift = block.device_pointer().next_multiple_of(alignment as CUdeviceptr) - block.device_pointer();
    let part = block.part(shift as usize, size);
    // Null is a multiple of everything.
    let value = part.host_pointer().addr();
    if !value.is_multiple_of(of_host) {
        let what = "the aligned block's CPU address";
        return Err(Error::Misaligned { call: CALL, what, value, multiple: of_host });
    }
    Ok(part)
}

// SAFETY: a block is the upstream's own, or an aligned part within a block of the upstream, which belongs to this part
// alone until it is freed.
unsafe impl Adapt for Shifting {
    fn allocate(&self, upstream: &SharedResource, size: usize, asked: usize, stream: &Stream) -> Result<Block> {
        check_shape(CALL, size, asked, usize::MAX)?;
        let alignment = asked.max(self.least);
        if let Some(block) = self.ask(upstream, size, alignment, stream)? {
            return Ok(block);
        }
        let Some(room) = size.checked_add(alignment - 1).filter(|room| *room <= isize::MAX as usize) else {
            let rule = "size and alignment together must fit into isize";
            return Err(Error::invalid(CALL, "size", format_args!("{size} bytes at a multiple of {alignment}"), rule));
        };
        let whole = upstream.allocate(room, 1, stream)?;
        match part(whole, size, alignment, asked) {
            Ok(part) => {
                self.with(|moved| moved.insert(part.device_pointer(), whole));
                Ok(part)
            }
            Err(error) => {
                // SAFETY: the upstream has just returned the block, and nobody uses it.
                if let Err(error) = unsafe { upstream.deallocate(whole, stream) } {
                    upstream.context().drop_errors().push("giving back a block that cannot be aligned", error);
                }
                Err(error)
            }
        }
    }

    unsafe fn deallocate(&self, upstream: &SharedResource, block: Block, stream: &Stream) -> Result<()> {
        // Removed before the free: afterwards another thread may get the address.
        let whole = self.with(|moved| moved.remove(&block.device_pointer()));
        let undo = || {
            if let Some(whole) = whole {
                self.with(|moved| moved.insert(block.device_pointer(), whole));
            }
        };
        // SAFETY: the caller's contract. If this is a part of an upstream block, no other part exists.
        or_undo(|| unsafe { upstream.deallocate(whole.unwrap_or(block), stream) }, undo)
    }

    unsafe fn abandon(&self, upstream: &SharedResource, block: Block) {
        let whole = self.with(|moved| moved.remove(&block.device_pointer()));
        // SAFETY: the caller's contract.
        unsafe { upstream.abandon(whole.unwrap_or(block)) };
    }

    #[cfg(feature = "sharing")]
    fn export(&self, upstream: &SharedResource, block: Block) -> Result<crate::memory::descriptor::BlockExport> {
        if self.with(|moved| moved.contains_key(&block.device_pointer())) {
            return Err(Error::Unsupported {
                feature: "sharing a block that an adaptor has aligned",
                needs: "an upstream resource that supports the alignment itself".into(),
            });
        }
        upstream.export(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr::without_provenance_mut;

    #[test]
    fn parts_are_aligned_and_lie_within_their_block() {
        for alignment in [1, 2, 256, 4096, 1 << 21] {
            for start in [1, 255, 256, 257, 4095, 4096, (1 << 21) - 1, 1 << 21] {
                let whole = Block::device(start, 100 + alignment - 1);
                let part = part(whole, 100, alignment, 1).unwrap();
                assert_eq!(part.device_pointer() % alignment as u64, 0);
                assert!(part.device_pointer() >= start && part.host_pointer().is_null());
                assert!(part.device_pointer() + 100 <= start + whole.size() as u64);
            }
        }
    }

    #[test]
    fn aligned_part_shifts_the_cpu_address_and_checks_its_alignment() {
        let whole = |host| Block::host(0x1100, without_provenance_mut(host), 8191);
        let moved = part(whole(0x9100), 4096, 4096, 16).unwrap();
        assert_eq!((moved.device_pointer(), moved.host_pointer().addr()), (0x2000, 0xa000));
        let error = part(whole(0x9101), 4096, 4096, 16).unwrap_err();
        assert!(matches!(error, Error::Misaligned { value: 0xa001, multiple: 16, .. }), "{error}");
    }
}
