//! Memory of other processes, as a source of buffers that each import shares.

use super::imports::Imports;
use super::{from_driver, to_driver};
use crate::descriptor::{BlockExport, Descriptor, DescriptorError, ExportKind, Key};
use crate::error::call;
use crate::resource::{Accessibility, Block, MemoryResource, SharedResource};
use crate::{Context, Error, Event, Feature, Result, Stream};
use core::ptr;
use cuda_sys::{
    CUdeviceptr, CUipcMem_flags, CUipcMemHandle, CUmemPoolPtrExportData, CUmemoryPool, CUpointer_attribute as Attribute,
};
use std::sync::Arc;

type Payload = [u8; 64];

/// What pools' memory is imported by: the library, the pool, the driver's handle of the memory.
type PoolKey = (usize, usize, Payload);

/// Memory of imported pools.
static POOL_MEMORY: Imports<PoolKey, PoolMemory> = Imports::new();

struct PoolMemory {
    pointer: CUdeviceptr,
    extent: usize,
    /// The ends of the work of those who have let go: the free waits for them.
    uses: Vec<Event>,
}

/// What memory of cuMemAlloc is imported by: the context that it is opened in, the driver's handle.
type DeviceKey = ((usize, usize, Option<u64>), Payload);

/// Memory of other processes' cuMemAlloc: address and size.
static DEVICE_MEMORY: Imports<DeviceKey, (CUdeviceptr, usize)> = Imports::new();

/// One import. Not a source of new memory: `allocate` is refused.
#[derive(Debug)]
struct Imported {
    context: Context,
    accessibility: Accessibility,
    /// What it was imported with; it can be passed on.
    descriptor: Descriptor,
    source: Source,
    /// Signs what is said of it when it is passed on, where that is signed.
    signer: Option<Key>,
}

#[derive(Debug)]
enum Source {
    /// Of a pool, which lives as long.
    Pool {
        #[expect(dead_code, reason = "held for its drop")]
        pool: SharedResource,
        key: PoolKey,
    },
    Device(DeviceKey),
    /// No bytes: the driver knows nothing of it.
    Empty,
}

/// Imports memory of a pool that was imported, with the pool's key.
pub(crate) fn import_pool_memory(
    call: &'static str,
    pool: SharedResource,
    raw: CUmemoryPool,
    signer: Key,
    descriptor: &Descriptor,
    stream: &Stream,
) -> Result<(SharedResource, Block)> {
    let context = pool.context();
    if descriptor.size == 0 {
        return Ok(empty(context.clone(), pool.accessibility(), descriptor, Some(signer)));
    }
    let (cuda, _current) = (context.driver().raw(), context.bind()?);
    let key = (context.driver().library(), raw.addr(), descriptor.payload);
    let open = |mut others: &mut dyn Iterator<Item = &PoolMemory>| {
        let (mut pointer, mut data) = (0, CUmemPoolPtrExportData { reserved: descriptor.payload });
        // SAFETY: `pointer` is writable, the data is readable, and the pool lives; the driver checks the data.
        unsafe { call!(cuda.cuMemPoolImportPointer(&mut pointer, raw, &mut data)) }?;
        // Memory that is here under another name is the other's to free.
        if Iterator::any(&mut others, |other| other.pointer == pointer) {
            return Err(DescriptorError::Conflict { call }.into());
        }
        let extent = extent(cuda, pointer).inspect_err(|_| {
            // SAFETY: just imported, and used by nobody.
            let _ = unsafe { call!(cuda.cuMemFreeAsync(pointer, stream.raw())) };
        })?;
        Ok(PoolMemory { pointer, extent, uses: Vec::new() })
    };
    let (pointer, extent) = POOL_MEMORY.acquire(key, open, |memory| (memory.pointer, memory.extent))?;
    let imported = Imported {
        context: context.clone(),
        accessibility: pool.accessibility(),
        descriptor: *descriptor,
        source: Source::Pool { pool: pool.clone(), key },
        signer: Some(signer),
    };
    imported.finish(call, pointer, extent, stream)
}

/// Imports memory of another process's cuMemAlloc.
pub(crate) fn import_device_memory(
    call: &'static str,
    context: &Context,
    descriptor: &Descriptor,
    stream: &Stream,
) -> Result<(SharedResource, Block)> {
    if descriptor.size == 0 {
        return Ok(empty(context.clone(), Accessibility::DEVICE, descriptor, None));
    }
    context.device().require(Feature::Ipc)?;
    let (cuda, _current) = (context.driver().raw(), context.bind()?);
    let key = (context.key(), descriptor.payload);
    // Two handles of one allocation would be counted by the driver itself.
    let open = |_: &mut dyn Iterator<Item = &(CUdeviceptr, usize)>| {
        let (mut pointer, handle) = (0, CUipcMemHandle { reserved: to_driver(descriptor.payload) });
        let flags = CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.0;
        // SAFETY: `pointer` is writable, and the context is current; the driver checks the handle.
        unsafe { call!(cuda.cuIpcOpenMemHandle_v2(&mut pointer, handle, flags)) }?;
        let (mut base, mut size) = (0, 0);
        // SAFETY: both are writable.
        unsafe { call!(cuda.cuMemGetAddressRange_v2(&mut base, &mut size, pointer)) }.inspect_err(|_| {
            // SAFETY: just opened, and used by nobody.
            let _ = unsafe { call!(cuda.cuIpcCloseMemHandle(pointer)) };
        })?;
        Ok((pointer, size - (pointer - base) as usize))
    };
    let (pointer, extent) = DEVICE_MEMORY.acquire(key, open, |memory| *memory)?;
    let imported = Imported {
        context: context.clone(),
        accessibility: Accessibility::DEVICE,
        descriptor: *descriptor,
        source: Source::Device(key),
        signer: None,
    };
    imported.finish(call, pointer, extent, stream)
}

fn empty(
    context: Context,
    accessibility: Accessibility,
    descriptor: &Descriptor,
    signer: Option<Key>,
) -> (SharedResource, Block) {
    let imported = Imported { context, accessibility, descriptor: *descriptor, source: Source::Empty, signer };
    (Arc::new(imported), Block::EMPTY)
}

/// How many bytes the driver has from an imported address on.
fn extent(cuda: &cuda_sys::Driver, pointer: CUdeviceptr) -> Result<usize> {
    let (mut start, mut size): (CUdeviceptr, usize) = (0, 0);
    for (attribute, place) in [
        (Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ptr::from_mut(&mut start).cast()),
        (Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE, ptr::from_mut(&mut size).cast()),
    ] {
        // SAFETY: both attributes are as wide as an address, and so is each place.
        unsafe { call!(cuda.cuPointerGetAttribute(place, attribute, pointer)) }?;
    }
    // Of a host pool's memory drivers give 0 for the start; what was imported begins with its range.
    let start = if start == 0 { pointer } else { start };
    Ok(size.saturating_sub((pointer - start) as usize))
}

/// Describes memory of cuMemAlloc for other processes.
pub(crate) fn export_device_memory(context: &Context, block: Block) -> Result<BlockExport> {
    let mut descriptor = Descriptor::new(ExportKind::DeviceMemory, context)?;
    if block.size == 0 {
        return Ok(BlockExport::own(descriptor, None));
    }
    context.device().require(Feature::Ipc)?;
    let (cuda, _current) = (context.driver().raw(), context.bind()?);
    let (mut handle, mut base, mut size) = (CUipcMemHandle::default(), 0, 0);
    // SAFETY: `handle` is writable, and the block is allocated.
    unsafe { call!(cuda.cuIpcGetMemHandle(&mut handle, block.device_pointer)) }?;
    // The handle is the whole allocation's, wherever in it the address lies.
    // SAFETY: both are writable.
    unsafe { call!(cuda.cuMemGetAddressRange_v2(&mut base, &mut size, block.device_pointer)) }?;
    descriptor.payload = from_driver(handle.reserved);
    descriptor.size = size as u64;
    descriptor.offset = block.device_pointer - base;
    descriptor.length = block.size as u64;
    Ok(BlockExport::own(descriptor, None))
}

impl Imported {
    /// Checks what the driver gave against what the descriptor says, before anybody has it.
    fn finish(
        self,
        call: &'static str,
        pointer: CUdeviceptr,
        extent: usize,
        stream: &Stream,
    ) -> Result<(SharedResource, Block)> {
        let size = self.descriptor.size as usize;
        let block = match self.accessibility.host {
            true => Block::unified(ptr::with_exposed_provenance_mut(pointer as usize), size),
            false => Block::device(pointer, size),
        };
        if let Err(wrong) = self.descriptor.check_extent(call, extent) {
            // SAFETY: just imported, and used by nobody.
            if let Err(error) = unsafe { self.deallocate(block, stream) } {
                self.context.drop_errors().push("letting go of memory whose descriptor is wrong", error);
            }
            return Err(wrong);
        }
        Ok((Arc::new(self), block))
    }

    /// Ends one use of a pool's memory. The last one frees it, when the work of all is done.
    fn release_pool_memory(&self, key: &PoolKey, stream: &Stream) -> Result<()> {
        let (cuda, current) = (self.context.driver().raw(), stream.context().bind());
        // Before the lock: what may call a hook of the program's is not done under it.
        let use_ends = match Event::new(stream.context()).and_then(|event| event.mark(stream).map(|_| event)) {
            Ok(event) => Ok(Some(event)),
            // Without an event nobody can wait for the work later.
            Err(_) => stream.finish().map(|()| None),
        };
        // Whatever fails, the use ends.
        let passed = POOL_MEMORY.release(key, |memory, last| {
            let use_ends = use_ends?;
            if !last {
                // Others go on. What has passed needs no wait, and would only gather here.
                let (passed, mut pending): (Vec<_>, Vec<_>) =
                    core::mem::take(&mut memory.uses).into_iter().partition(|event| event.is_done() == Ok(true));
                pending.extend(use_ends);
                memory.uses = pending;
                return Ok(passed);
            }
            current.as_ref().map_err(Error::clone)?;
            memory.uses.iter().try_for_each(|event| stream.wait(event).or_else(|_| event.finish()))?;
            // SAFETY: imported once and freed once: the count says so. All uses come before on this stream.
            unsafe { call!(cuda.cuMemFreeAsync(memory.pointer, stream.raw())) }?;
            let mut passed = core::mem::take(&mut memory.uses);
            passed.extend(use_ends);
            Ok(passed)
        })?;
        drop(passed);
        Ok(())
    }

    /// Ends one use of memory of cuMemAlloc, when the stream's work is done: closing is not in stream order.
    fn release_device_memory(&self, key: &DeviceKey, stream: &Stream) -> Result<()> {
        let mut used = DeviceUse(Some(*key));
        let close = move |cuda: &cuda_sys::Driver| used.end(Some(cuda));
        self.context.free_by_waiting("closing memory of another process", Some(stream), close)
    }
}

/// One use of memory of cuMemAlloc. Whatever fails, it ends.
struct DeviceUse(Option<DeviceKey>);

impl DeviceUse {
    /// Ends the use, and closes the memory if it was the last and the driver may be called.
    fn end(&mut self, cuda: Option<&cuda_sys::Driver>) -> Result<()> {
        let Some(key) = self.0.take() else { return Ok(()) };
        DEVICE_MEMORY.release(&key, |(pointer, _), last| match cuda {
            // SAFETY: opened once and closed once: the count says so. Each user's work is done.
            Some(cuda) if last => unsafe { call!(cuda.cuIpcCloseMemHandle(*pointer)) },
            _ => Ok(()),
        })
    }
}

impl Drop for DeviceUse {
    fn drop(&mut self) {
        let ended = self.end(None);
        debug_assert!(ended.is_ok());
    }
}

// SAFETY: it gives no blocks; those that the imports make are the driver's, and live until the last is let go.
unsafe impl MemoryResource for Imported {
    fn allocate(&self, _size: usize, _alignment: usize, _stream: &Stream) -> Result<Block> {
        Err(Error::ImportedPool { call: "Buffer::uninit" })
    }

    unsafe fn deallocate(&self, _block: Block, stream: &Stream) -> Result<()> {
        match &self.source {
            Source::Pool { key, .. } => self.release_pool_memory(key, stream),
            Source::Device(key) => self.release_device_memory(key, stream),
            Source::Empty => Ok(()),
        }
    }

    unsafe fn abandon(&self, _block: Block) {
        // The context has ended, and the memory with it: only the count is left to end.
        let forgotten = match &self.source {
            Source::Pool { key, .. } => POOL_MEMORY.release(key, |_, _| Ok(())),
            Source::Device(key) => DEVICE_MEMORY.release(key, |_, _| Ok(())),
            Source::Empty => Ok(()),
        };
        debug_assert!(forgotten.is_ok());
    }

    fn context(&self) -> &Context {
        &self.context
    }

    fn accessibility(&self) -> Accessibility {
        self.accessibility
    }

    fn export(&self, _block: Block) -> Result<BlockExport> {
        Ok(BlockExport::imported(self.descriptor, self.signer))
    }
}
