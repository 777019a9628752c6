//! Buffers on their way to other processes, and from them.

use super::allocation::{Allocation, Hold, Origin, Part};
use super::exported::Exported;
use super::{Buffer, SharedBuffer, check_aligned, check_home};
use crate::descriptor::{BlockExport, Descriptor, DescriptorError, ExportKind};
use crate::resource::{Block, Kind, SharedResource};
use crate::{Error, Result, Stream};
use bytemuck::{AnyBitPattern, NoUninit};
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What this process exported, by number, as long as it lives: the driver does not let a process import its own memory
/// as another does, so it gets the same allocation.
static EXPORTED: Mutex<BTreeMap<u64, Own>> = Mutex::new(BTreeMap::new());

struct Own {
    allocation: Weak<Allocation>,
    /// What was said of it.
    export: BlockExport,
    /// What was exported of the block. All of it is shared, and stays so.
    parts: Exported,
}

impl<T: NoUninit + AnyBitPattern, K: Kind> SharedBuffer<T, K> {
    /// Exports this part of the memory to other processes: memory of a pool that is
    /// [shareable](crate::memory::DriverPoolOptions::shareable), or of [`DeviceMemory`](crate::memory::DeviceMemory); and what
    /// was imported, which is passed on. Waits for the buffer's work so far.
    ///
    /// This process goes on to own the memory: it is to live until the others have let go. Work of several processes is
    /// ordered by [shareable events](crate::Event::shareable), or by waiting and a message.
    ///
    /// # Errors
    ///
    /// The resource's memory cannot be exported: what is divided into blocks, by a [`Pool`](crate::pool::Pool) for one, is exported
    /// by no block. An exclusive part of the memory is left, which [`split_at`](crate::Buffer::split_at) made: who has the
    /// driver's handle reaches that too. The driver refuses.
    #[doc(alias("cuMemPoolExportPointer", "cuIpcGetMemHandle"))]
    pub fn export(&self) -> Result<Descriptor> {
        const CALL: &str = "SharedBuffer::export";
        let (part, mut export) = (self.part(), self.export_block(CALL)?);
        if export.kind() == ExportKind::VirtualMemory {
            return Err(Error::Unsupported {
                feature: "sharing virtual memory by a descriptor alone",
                needs: "the files of its physical memory too: VirtualMemory::export gives both".into(),
            });
        }
        self.synchronize()?;
        let number = part.allocation.expose();
        if !export.is_imported() {
            export = export.numbered(number);
            let mut exported = EXPORTED.lock().unwrap_or_else(PoisonError::into_inner);
            // What is gone is forgotten now and then, so that it costs each export little.
            if exported.len().is_power_of_two() {
                exported.retain(|_, own| own.allocation.strong_count() > 0);
            }
            // What was said of it once is said again.
            let own = Own { allocation: Arc::downgrade(&part.allocation), export, parts: Exported::default() };
            let own = exported.entry(number).or_insert(own);
            own.parts.add(self.offset..self.offset + self.size());
            export = own.export;
        }
        Ok(export.part(self.offset, self.size()))
    }

    /// The allocation that this buffer is a part of, as its source describes it to other processes. All exports of buffers
    /// come through here: an export reaches the whole allocation, whatever part it names, so it must be a whole one of its
    /// source, and no part of it may be exclusive.
    pub(crate) fn export_block(&self, call: &'static str) -> Result<BlockExport> {
        let allocation = self.hold.allocation();
        let refused =
            |value: String, rule| Err(Error::InvalidArgument { call, argument: "buffer", value: value.into(), rule });
        let Origin::Resource(resource) = &allocation.origin else {
            return refused("another library's memory".into(), "only memory of a resource can be exported");
        };
        let export = resource.export(allocation.block)?;
        match allocation.exclusive() {
            0 => Ok(export),
            exclusive => refused(
                format!(
                    "bytes {0} to {0}+{1} of memory of which {exclusive} bytes are in exclusive parts",
                    self.offset,
                    self.size()
                ),
                "who imports it reaches what lies beside it too: share or drop the memory's exclusive parts first",
            ),
        }
    }
}

/// Whether a descriptor has the driver's handle of memory that this process exported, and that lives.
pub(crate) fn has_own_handle(descriptor: &Descriptor) -> bool {
    let exported = EXPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    let same = |own: &Own| {
        let known = own.export.descriptor();
        known.kind == descriptor.kind && known.size != 0 && known.payload == descriptor.payload
    };
    exported.values().any(|own| same(own) && own.allocation.strong_count() > 0)
}

impl<T: NoUninit + AnyBitPattern, K: Kind> SharedBuffer<T, K> {
    /// Makes a buffer of the part that a descriptor names, of memory that `open` imports for it.
    ///
    /// `open` gives a block that holds the descriptor's allocation, and its resource, of kind `K`. `own` says that the
    /// memory is this process's: by what the kernel and the driver say, or because the descriptor claims it, which may be a
    /// lie, and leads to a refusal then.
    pub(crate) fn import(
        call: &'static str,
        resource: &SharedResource,
        descriptor: &Descriptor,
        stream: &Stream,
        own: bool,
        open: impl FnOnce() -> Result<(SharedResource, Block)>,
    ) -> Result<Self> {
        let size = descriptor.length as usize;
        Self::check_import(call, resource, size, stream)?;
        let (allocation, offset) = if own {
            find_own::<K>(call, resource, descriptor)?
        } else {
            let (resource, block) = open()?;
            let allocation = Allocation::new(block, Origin::Resource(resource), stream.clone());
            allocation.expose();
            (Arc::new(allocation), descriptor.offset as usize)
        };
        Self::part_of(call, allocation, offset, size, stream)
    }

    /// What can be checked before anything is imported.
    pub(crate) fn check_import(
        call: &'static str,
        resource: &SharedResource,
        size: usize,
        stream: &Stream,
    ) -> Result<()> {
        const { assert!(size_of::<T>() != 0, "an element of a buffer has a size") };
        check_home(call, resource, stream)?;
        if !size.is_multiple_of(size_of::<T>()) {
            return Err(Error::Misaligned { call, what: "size", value: size, multiple: size_of::<T>() });
        }
        Ok(())
    }

    /// Notes that other processes may reach the memory, so that it stays shared.
    pub(crate) fn expose(&self) {
        self.part().allocation.expose();
    }

    /// Makes a buffer of a block that was just imported, of a resource of kind `K`: the part of `size` bytes at `offset`,
    /// which lies within it.
    pub(crate) fn from_import(
        call: &'static str,
        resource: SharedResource,
        block: Block,
        offset: usize,
        size: usize,
        stream: &Stream,
    ) -> Result<Self> {
        let allocation = Allocation::new(block, Origin::Resource(resource), stream.clone());
        allocation.expose();
        Self::part_of(call, Arc::new(allocation), offset, size, stream)
    }

    fn part_of(
        call: &'static str,
        allocation: Arc<Allocation>,
        offset: usize,
        size: usize,
        stream: &Stream,
    ) -> Result<Self> {
        let Block { device_pointer, host_pointer, .. } = allocation.block;
        let part = Part::shared(allocation, stream.clone());
        check_aligned::<T>(call, device_pointer + offset as u64, host_pointer.wrapping_add(offset))?;
        Ok(Buffer::from_hold(Hold::Part(part), offset, size / size_of::<T>()))
    }
}

/// The allocation that this process exported, and where in it the part begins.
fn find_own<K: Kind>(
    call: &'static str,
    resource: &SharedResource,
    descriptor: &Descriptor,
) -> Result<(Arc<Allocation>, usize)> {
    let length = descriptor.length as usize;
    let found = {
        let exported = EXPORTED.lock().unwrap_or_else(PoisonError::into_inner);
        exported.get(&descriptor.allocation).and_then(|own| {
            let said = *own.export.descriptor();
            let offset = descriptor.offset.checked_sub(said.offset).map_or(usize::MAX, |offset| offset as usize);
            let named = own.parts.covers(&(offset..offset.saturating_add(length)));
            Some((own.allocation.upgrade()?, said, offset, named))
        })
    };
    let Some((allocation, exported, offset, named)) = found else {
        return Err(DescriptorError::Freed { call }.into());
    };
    // A descriptor may have been changed. Only the part may be another, of what was exported, and with it the tag, which
    // was looked at before.
    let size = allocation.block.size;
    let kind = K::ACCESSIBILITY.is_none_or(|wanted| allocation.accessibility().covers(wanted));
    if !kind
        || (Descriptor { offset: exported.offset, length: exported.length, tag: exported.tag, ..*descriptor })
            != exported
        || allocation.context().driver().library() != resource.context().driver().library()
    {
        return Err(DescriptorError::Forged { call }.into());
    }
    let range = crate::range::span(call, offset, length, size)?;
    if !named {
        let (offset, length) = (descriptor.offset, descriptor.length);
        return Err(DescriptorError::NotExported { call, offset, length }.into());
    }
    Ok((allocation, range.start))
}

impl Allocation {
    /// Notes that other processes may reach the memory; gives the number by which they know it.
    pub(super) fn expose(&self) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let fresh = NEXT.fetch_add(1, Ordering::Relaxed);
        match self.exposed.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => fresh,
            Err(number) => number,
        }
    }
}
