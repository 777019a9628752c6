//! Buffers on their way to other processes, and from them.

use super::allocation::{Allocation, Hold, Origin, Part};
use super::exported::Exported;
use super::{Buffer, SharedBuffer, check_aligned, check_home};
use crate::descriptor::{Descriptor, DescriptorError};
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
    /// What was said of it; its part is the whole block.
    descriptor: Descriptor,
    /// What was exported of the block. All of it is shared, and stays so; the rest may be in exclusive hands.
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
    /// The resource's memory cannot be exported; the driver refuses.
    #[doc(alias("cuMemPoolExportPointer", "cuIpcGetMemHandle"))]
    pub fn export(&self) -> Result<Descriptor> {
        let part = self.part();
        let Origin::Resource(resource) = &part.allocation.origin else {
            return Err(Error::InvalidArgument {
                call: "SharedBuffer::export",
                argument: "the buffer",
                value: "another library's memory".into(),
                rule: "only memory of a resource can be exported",
            });
        };
        self.synchronize()?;
        let mut descriptor = resource.export(part.allocation.block)?;
        let number = part.allocation.expose();
        if descriptor.is_own()? {
            descriptor.allocation = number;
            let mut exported = EXPORTED.lock().unwrap_or_else(PoisonError::into_inner);
            // What is gone is forgotten now and then, so that it costs each export little.
            if exported.len().is_power_of_two() {
                exported.retain(|_, own| own.allocation.strong_count() > 0);
            }
            // What was said of it once is said again.
            let own = Own { allocation: Arc::downgrade(&part.allocation), descriptor, parts: Exported::default() };
            let own = exported.entry(number).or_insert(own);
            own.parts.add(self.offset..self.offset + self.size());
            descriptor = own.descriptor;
        }
        descriptor.offset += self.offset as u64;
        descriptor.length = self.size() as u64;
        Ok(descriptor)
    }
}

impl<T: NoUninit + AnyBitPattern, K: Kind> SharedBuffer<T, K> {
    /// Makes a buffer of the part that a descriptor names, of memory that `open` imports for it.
    ///
    /// `open` gives a block that holds the descriptor's allocation, and its resource, of kind `K`.
    pub(crate) fn import(
        call: &'static str,
        resource: &SharedResource,
        descriptor: &Descriptor,
        stream: &Stream,
        open: impl FnOnce() -> Result<(SharedResource, Block)>,
    ) -> Result<Self> {
        let size = descriptor.length as usize;
        Self::check_import(call, resource, size, stream)?;
        let (allocation, offset) = if descriptor.is_own()? {
            own::<K>(call, resource, descriptor)?
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

    /// Checks that no exclusive part of the memory is left: for exports by which more is reached than this part.
    pub(crate) fn check_all_shared(&self, call: &'static str) -> Result<()> {
        let exclusive = self.part().allocation.exclusive();
        if exclusive == 0 {
            return Ok(());
        }
        Err(Error::InvalidArgument {
            call,
            argument: "buffer",
            value: format!(
                "bytes {} to {}+{} of memory of which {exclusive} bytes are in exclusive parts",
                self.offset,
                self.offset,
                self.size()
            )
            .into(),
            rule: "who imports it reaches what lies beside it too: share or drop the memory's exclusive parts first",
        })
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
fn own<K: Kind>(
    call: &'static str,
    resource: &SharedResource,
    descriptor: &Descriptor,
) -> Result<(Arc<Allocation>, usize)> {
    let length = descriptor.length as usize;
    let found = {
        let exported = EXPORTED.lock().unwrap_or_else(PoisonError::into_inner);
        exported.get(&descriptor.allocation).and_then(|own| {
            let offset =
                descriptor.offset.checked_sub(own.descriptor.offset).map_or(usize::MAX, |offset| offset as usize);
            let named = own.parts.covers(&(offset..offset.saturating_add(length)));
            Some((own.allocation.upgrade()?, own.descriptor, offset, named))
        })
    };
    let Some((allocation, exported, offset, named)) = found else {
        return Err(DescriptorError::Freed { call }.into());
    };
    // A descriptor may have been changed. Only the part may be another, of what was exported.
    let size = allocation.block.size;
    let kind = K::ACCESSIBILITY.is_none_or(|wanted| allocation.accessibility() == wanted);
    if !kind
        || (Descriptor { offset: exported.offset, length: exported.length, ..*descriptor }) != exported
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
