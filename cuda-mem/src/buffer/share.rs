//! Exports of buffers to other processes, and imports.

use super::allocation::{Allocation, Origin};
use super::creation::{check_aligned, check_home};
use super::exported::ExportedParts;
use super::holder::{Hold, Part};
use super::{Buffer, SharedBuffer};
use crate::locks::Mutex;
use crate::memory::descriptor::{BlockExport, Descriptor, DescriptorError, ExportKind};
use crate::memory::resource::{Block, Kind, SharedResource};
use crate::{Error, Result, Stream};
use bytemuck::{AnyBitPattern, NoUninit};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// Live exports of this process, by number. The driver does not let a process import its own memory as another process
/// would, so such an import gets the same allocation.
static EXPORTED: Mutex<BTreeMap<u64, OwnExport>> = Mutex::new(BTreeMap::new());

struct OwnExport {
    allocation: Weak<Allocation>,
    /// The returned export.
    export: BlockExport,
    /// The exported parts of the block. The whole block is shared, and stays shared.
    parts: ExportedParts,
}

impl<T: NoUninit + AnyBitPattern, K: Kind> SharedBuffer<T, K> {
    /// Exports this part of the memory to other processes. The memory must come from a
    /// [shareable](crate::memory::DriverPoolOptions::shareable) pool or from
    /// [`DeviceMemory`](crate::memory::DeviceMemory), or be imported memory, which is passed on. Waits for the buffer's
    /// work so far.
    ///
    /// This process still owns the memory, and must keep it until the others have released it. Order work of several
    /// processes with [shareable events](crate::Event::shareable), or with waits and messages.
    ///
    /// # Errors
    ///
    /// The memory cannot be exported: blocks of divided memory cannot, for example those of a
    /// [`Pool`](crate::pool::Pool). An exclusive part exists ([`split_at`](crate::Buffer::split_at) makes such parts),
    /// and the driver's handle would expose it.
    #[doc(alias("cuMemPoolExportPointer", "cuIpcGetMemHandle"))]
    pub fn export(&self) -> Result<Descriptor> {
        const CALL: &str = "SharedBuffer::export";
        let (part, mut export) = (self.part(), self.export_block(CALL)?);
        let (feature, needs) = match export.kind() {
            ExportKind::VirtualMemory => (
                "sharing virtual memory with a descriptor alone",
                "the files of its physical memory as well; VirtualMemory::export returns both",
            ),
            ExportKind::Mapped => {
                ("sharing mapped memory with a descriptor alone", "its file as well; MappedMemory::export returns both")
            }
            _ => ("", ""),
        };
        if !feature.is_empty() {
            return Err(Error::Unsupported { feature, needs: needs.into() });
        }
        self.synchronize()?;
        let number = part.allocation.expose();
        if !export.is_imported() {
            export = export.numbered(number);
            let mut exported = EXPORTED.lock();
            // Remove dead entries only now and then, which costs each export little.
            if exported.len().is_power_of_two() {
                exported.retain(|_, own| own.allocation.strong_count() > 0);
            }
            // A repeated export returns the first description.
            let own =
                OwnExport { allocation: Arc::downgrade(&part.allocation), export, parts: ExportedParts::default() };
            let own = exported.entry(number).or_insert(own);
            own.parts.add(self.offset..self.offset + self.size());
            export = own.export;
        }
        Ok(export.part(self.offset, self.size()))
    }

    /// The source's description of this buffer's allocation, for other processes. All exports of buffers call this. An
    /// export exposes the whole allocation, whatever part it names, so it must be a whole allocation of its source
    /// without exclusive parts.
    pub(crate) fn export_block(&self, call: &'static str) -> Result<BlockExport> {
        self.tell_address();
        let allocation = self.hold.allocation();
        let refused = |value: String, rule| Err(Error::invalid(call, "buffer", value, rule));
        let Origin::Resource(resource) = allocation.origin() else {
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
                "an importer reaches the whole allocation: share or drop its exclusive parts first",
            ),
        }
    }
}

/// Whether a descriptor has the driver's handle of memory that this process exported and still holds.
pub(crate) fn has_own_handle(descriptor: &Descriptor) -> bool {
    let exported = EXPORTED.lock();
    let same = |own: &OwnExport| {
        let known = own.export.descriptor();
        known.kind == descriptor.kind && known.size != 0 && known.payload == descriptor.payload
    };
    exported.values().any(|own| same(own) && own.allocation.strong_count() > 0)
}

impl<T: NoUninit + AnyBitPattern, K: Kind> SharedBuffer<T, K> {
    /// Makes a buffer of the part that a descriptor names, in memory that `open` imports.
    ///
    /// `open` returns a block that contains the descriptor's allocation, and its resource, of kind `K`. `own`: the
    /// memory belongs to this process, as the kernel and the driver report or the descriptor claims. A false claim is
    /// refused.
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

    /// The checks that are possible before an import.
    pub(crate) fn check_import(
        call: &'static str,
        resource: &SharedResource,
        size: usize,
        stream: &Stream,
    ) -> Result<()> {
        const { assert!(size_of::<T>() != 0, "the elements of a buffer must not be zero-sized") };
        check_home(call, resource, stream)?;
        if !size.is_multiple_of(size_of::<T>()) {
            return Err(Error::Misaligned { call, what: "size", value: size, multiple: size_of::<T>() });
        }
        Ok(())
    }

    /// Makes a buffer from a block that was just imported, of a resource of kind `K`: the part of `size` bytes at
    /// `offset`, which lies within the block.
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
        let block = allocation.block;
        let part = Part::shared(allocation, stream);
        check_aligned::<T>(call, block.device_pointer() + offset as u64, block.host_pointer().wrapping_add(offset))?;
        Ok(Buffer::from_hold(part, offset, size / size_of::<T>()))
    }
}

/// Finds an allocation that this process exported, and the part's offset in it.
fn find_own<K: Kind>(
    call: &'static str,
    resource: &SharedResource,
    descriptor: &Descriptor,
) -> Result<(Arc<Allocation>, usize)> {
    let length = descriptor.length as usize;
    let found = {
        let exported = EXPORTED.lock();
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
    // The descriptor may have been changed. Only the part may differ from the export, and with it the tag, which was
    // checked before.
    let size = allocation.block.size();
    let kind = K::ACCESSIBILITY.is_none_or(|wanted| allocation.accessibility().covers(wanted));
    if !kind
        || (Descriptor { offset: exported.offset, length: exported.length, tag: exported.tag, ..*descriptor })
            != exported
        || allocation.context().driver().library() != resource.context().driver().library()
    {
        return Err(DescriptorError::Forged { call }.into());
    }
    let range = crate::error::range::span(call, offset, length, size)?;
    if !named {
        let (offset, length) = (descriptor.offset, descriptor.length);
        return Err(DescriptorError::NotExported { call, offset, length }.into());
    }
    Ok((allocation, range.start))
}
