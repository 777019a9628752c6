//! A second resource for allocations that the first cannot serve.

use super::handle;
use crate::error::callback::or_undo;
use crate::error::unless_forked;
use crate::locks::Mutex;
use crate::memory::resource::{Accessibility, Block, Kind, MemoryResource, ResourceHandle, SharedResource};
use crate::{Context, Error, Result, Stream};
use cuda_sys::CUdeviceptr;
use std::collections::{BTreeMap, HashMap};

handle! {
    /// Allocates from a first resource, and from a second when the first is out of memory. Each block is freed to the
    /// resource that allocated it. Cheap to clone.
    ///
    /// Both resources are of one kind. To fall back to another kind (device to managed memory, for example), pass both
    /// as [`SharedResource`]s: the memory is of kind [`Any`](crate::memory::kind::Any), and addressable where both
    /// kinds are.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// use cuda_mem::{Buffer, adaptor::{Fallback, Limit}, memory::{DeviceMemory, DevicePool}};
    /// let first = Limit::new(&DevicePool::current(&context)?, 100);
    /// let fallback = Fallback::new(&first, &DeviceMemory::new(&context))?;
    /// let small = Buffer::<u8, _>::zeroed(&fallback, 100, &stream)?;
    /// let large = Buffer::<u8, _>::zeroed(&fallback, 1000, &stream)?;
    /// assert_eq!((first.used(), fallback.blocks_of_second()), (100, 1));
    /// drop((small, large));
    /// assert_eq!((first.used(), fallback.blocks_of_second()), (0, 0));
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    Fallback holds Pair
}

impl<K: Kind> Fallback<K> {
    /// Allocates from `first`, and from `second` if `first` fails with an error that [is out of
    /// memory](Error::is_out_of_memory). If both fail, this returns the error of `second`.
    ///
    /// # Errors
    ///
    /// The resources work in different contexts.
    pub fn new<R, S>(first: &R, second: &S) -> Result<Self>
    where
        R: ResourceHandle<Kind = K> + ?Sized,
        S: ResourceHandle<Kind = K> + ?Sized,
    {
        let (first, second) = (first.share(), second.share());
        if first.context() != second.context() {
            let rule = "both resources must work in one context";
            return Err(Error::invalid("Fallback::new", "second", format_args!("of {:?}", second.context()), rule));
        }
        Ok(Self::from_inner(Pair { first, second, of_second: Mutex::default() }))
    }

    /// The number of live blocks of the second resource.
    pub fn blocks_of_second(&self) -> usize {
        self.inner.with(|blocks| blocks.sizes.len())
    }
}

#[derive(Debug)]
struct Pair {
    first: SharedResource,
    second: SharedResource,
    of_second: Mutex<Blocks>,
}

impl Pair {
    fn with<R: Default>(&self, work: impl FnOnce(&mut Blocks) -> R) -> R {
        unless_forked(|| work(&mut self.of_second.lock()))
    }

    /// The resource that allocated the block.
    fn giver(&self, block: Block) -> &SharedResource {
        if self.with(|blocks| blocks.sizes.contains_key(&block.device_pointer())) { &self.second } else { &self.first }
    }

    /// The resource that allocated the block in which the CPU address lies.
    fn giver_of(&self, start: *mut u8) -> &SharedResource {
        if self.with(|blocks| blocks.hold(start.addr())) { &self.second } else { &self.first }
    }
}

// SAFETY: the blocks are those of the two resources, unchanged. Live blocks do not overlap, so an address identifies
// the resource to which a block is freed.
unsafe impl MemoryResource for Pair {
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        match self.first.allocate(size, alignment, stream) {
            Err(error) if error.is_out_of_memory() => {}
            other => return other.map(|block| block.within(self.accessibility())),
        }
        let block = self.second.allocate(size, alignment, stream)?;
        self.with(|blocks| blocks.insert(block));
        Ok(block.within(self.accessibility()))
    }

    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        // Removed before the free: afterwards another thread may get the address.
        if !self.with(|blocks| blocks.remove(block)) {
            // SAFETY: the caller's contract; a block that is not the second's is the first's.
            return unsafe { self.first.deallocate(block, stream) };
        }
        // SAFETY: the caller's contract; the second resource allocated the block.
        or_undo(|| unsafe { self.second.deallocate(block, stream) }, || self.with(|blocks| blocks.insert(block)))
    }

    unsafe fn abandon(&self, block: Block) {
        let giver = if self.with(|blocks| blocks.remove(block)) { &self.second } else { &self.first };
        // SAFETY: the caller's contract; `giver` allocated the block.
        unsafe { giver.abandon(block) };
    }

    fn context(&self) -> &Context {
        self.first.context()
    }

    fn accessibility(&self) -> Accessibility {
        let (first, second) = (self.first.accessibility(), self.second.accessibility());
        Accessibility {
            device: first.device && second.device,
            host: first.host && second.host,
            // The stricter rules for CPU accesses apply.
            managed: first.managed || second.managed,
            processes: first.processes || second.processes,
            write_combined: first.write_combined || second.write_combined,
        }
    }

    fn is_on_device(&self) -> bool {
        self.first.is_on_device() || self.second.is_on_device()
    }

    fn atom(&self, block: Block) -> usize {
        self.giver(block).atom(block)
    }

    fn is_coherent(&self, block: Block) -> bool {
        self.giver(block).is_coherent(block)
    }

    #[cfg(feature = "sharing")]
    fn export(&self, block: Block) -> Result<crate::memory::descriptor::BlockExport> {
        self.giver(block).export(block)
    }

    unsafe fn invalidate(&self, start: *mut u8, length: usize) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.giver_of(start).invalidate(start, length) }
    }

    unsafe fn begin_write(&self, start: *mut u8, length: usize) -> Result<bool> {
        // SAFETY: the caller's contract.
        unsafe { self.giver_of(start).begin_write(start, length) }
    }

    unsafe fn store(&self, start: *mut u8, bytes: &[u8]) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.giver_of(start).store(start, bytes) }
    }

    unsafe fn load(&self, start: *mut u8, to: *mut u8, length: usize) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.giver_of(start).load(start, to, length) }
    }

    unsafe fn flush(&self, start: *mut u8, length: usize) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.giver_of(start).flush(start, length) }
    }
}

/// Live blocks, found by either of their addresses.
#[derive(Debug, Default)]
struct Blocks {
    sizes: HashMap<CUdeviceptr, usize>,
    /// The CPU addresses of the blocks: start and end.
    of_host: BTreeMap<usize, usize>,
}

impl Blocks {
    fn insert(&mut self, block: Block) {
        self.sizes.insert(block.device_pointer(), block.size());
        if !block.host_pointer().is_null() {
            let start = block.host_pointer().addr();
            self.of_host.insert(start, start + block.size());
        }
    }

    /// Removes a block; returns whether it was here.
    fn remove(&mut self, block: Block) -> bool {
        self.of_host.remove(&block.host_pointer().addr());
        self.sizes.remove(&block.device_pointer()).is_some()
    }

    /// Whether a CPU address lies in a block.
    fn hold(&self, address: usize) -> bool {
        self.of_host.range(..=address).next_back().is_some_and(|(_, end)| address < *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_by_their_addresses_until_they_are_removed() {
        let at = |host: usize, size| Block::host(7, core::ptr::without_provenance_mut(host), size);
        let mut blocks = Blocks::default();
        blocks.insert(at(0x1000, 16));
        blocks.insert(Block::device(0x5000, 8));
        assert!(!blocks.hold(0xfff) && blocks.hold(0x1000) && blocks.hold(0x100f) && !blocks.hold(0x1010));
        assert!(!blocks.hold(0x5000) && !blocks.hold(0));
        assert!(blocks.remove(at(0x1000, 16)) && !blocks.remove(at(0x1000, 16)));
        assert!(!blocks.hold(0x1000));
        assert!(blocks.remove(Block::device(0x5000, 8)));
        assert!(blocks.sizes.is_empty() && blocks.of_host.is_empty());
    }
}
