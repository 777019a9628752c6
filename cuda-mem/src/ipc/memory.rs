//! Memory of other processes, as a source of buffers.

use super::imports::Imports;
use super::pool::keep_for_ever;
use crate::buffer::has_own_handle;
use crate::error::capture_errors::is_for_a_capture;
use crate::error::{call, forked};
use crate::lifetime::waiting::{Target, watched};
use crate::memory::DeviceMemory;
use crate::memory::descriptor::{BlockExport, Descriptor, DescriptorError, ExportKind, Key, to_driver};
use crate::memory::peers::PeerSource;
use crate::memory::resource::{Accessibility, Block, MemoryResource, ResourceHandle, SharedResource, kind};
use crate::{Context, Error, Event, Feature, Result, SharedBuffer, Stream};
use bytemuck::{AnyBitPattern, NoUninit};
use core::cell::Cell;
use core::fmt;
use core::ptr;
use cuda_sys::{
    CUdeviceptr, CUipcMem_flags, CUipcMemHandle, CUmemPoolPtrExportData, CUmemoryPool, CUpointer_attribute as Attribute,
};
use std::sync::{Arc, OnceLock};

type Payload = [u8; 64];

/// Key of imported pool memory: the library, the pool, the driver's handle of the memory.
type PoolKey = (usize, usize, Payload);

/// How often the end of a use is tried while the driver does not tell whether its work is done.
const ATTEMPTS: u32 = 3;

/// Memory of imported pools.
static POOL_MEMORY: Imports<PoolKey, PoolMemory> = Imports::new();

struct PoolMemory {
    pointer: CUdeviceptr,
    extent: usize,
    /// An event after the work of each released use. The free waits for all.
    uses: Vec<Event>,
}

/// Key of imported cuMemAlloc memory: the library, the context that opened it, the driver's handle.
type DeviceKey = (usize, (usize, Option<u64>), Payload);

/// cuMemAlloc memory of other processes: address and size.
static DEVICE_MEMORY: Imports<DeviceKey, (CUdeviceptr, Result<usize>)> = Imports::new();

type PoolUse = ImportUse<PoolKey, PoolMemory>;
type DeviceUse = ImportUse<DeviceKey, (CUdeviceptr, Result<usize>)>;

/// One import. It is no source of new memory: `allocate` refuses.
#[derive(Debug)]
struct Imported {
    context: Context,
    accessibility: Accessibility,
    /// The descriptor of the import; exports pass it on.
    descriptor: Descriptor,
    source: Source,
    /// Signs descriptors that are passed on; `None` where this kind of memory is not signed.
    signer: Option<Key>,
    /// The context of the device that holds the memory, if it is not the importing one. Access between the two devices
    /// ends with it.
    #[expect(dead_code, reason = "held for its drop")]
    holder: Option<Context>,
}

#[derive(Debug)]
enum Source {
    /// The pool lives as long as its memory.
    Pool { pool: SharedResource, used: PoolUse },
    /// Shared with the call that closes the memory, which may come later.
    Device(Arc<DeviceUse>),
    /// No bytes: the driver knows nothing of it.
    Empty,
}

/// The one use of shared memory that an import is. A free of the import may be tried again after an error, and the count
/// of uses must go down only once.
struct ImportUse<K: Ord + Clone + 'static, V: 'static> {
    key: K,
    imports: &'static Imports<K, V>,
    /// The result of the end, once the use has ended. One call at a time ends it: that of the owner, or a later one of the
    /// worker, which has the owner's part.
    ended: OnceLock<Result<()>>,
}

impl<K: Ord + Clone, V> ImportUse<K, V> {
    fn new(imports: &'static Imports<K, V>, key: K) -> Self {
        Self { key, imports, ended: OnceLock::new() }
    }

    /// Ends the use by a call that counts it down, unless it has ended. An error that a capture caused leaves the use as
    /// it is, for a later call.
    fn end(&self, count_down: impl FnOnce(&K) -> Result<()>) -> Result<()> {
        if let Some(result) = self.ended.get() {
            return result.clone();
        }
        let result = count_down(&self.key);
        if !result.as_ref().is_err_and(is_for_a_capture) {
            let _ = self.ended.set(result.clone());
        }
        result
    }

    /// Ends the use of memory that is gone, or that no call can free any more.
    fn forget(&self) -> Result<()> {
        self.end(|key| self.imports.release(key, |_| false, |_, _| Ok(())))
    }
}

impl<K: Ord + Clone, V> fmt::Debug for ImportUse<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportUse").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl<K: Ord + Clone, V> Drop for ImportUse<K, V> {
    fn drop(&mut self) {
        if !forked() {
            // An earlier error has been reported.
            let _ = self.forget();
        }
    }
}

/// Imports memory of an imported pool, whose key is `signer`.
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
    // Begun before the imports are locked, because it may wait.
    let ready = stream.ready();
    let open = |mut others: &mut dyn Iterator<Item = &PoolMemory>| {
        let (mut pointer, mut data) = (0, CUmemPoolPtrExportData { reserved: descriptor.payload });
        // SAFETY: `pointer` is writable, the data is readable, and the pool lives; the driver checks the data.
        unsafe { call!(cuda.cuMemPoolImportPointer(&mut pointer, raw, &mut data)) }?;
        // Another import has this memory under another name, and frees it.
        if Iterator::any(&mut others, |other| other.pointer == pointer) {
            return Err(DescriptorError::Conflict { call }.into());
        }
        let extent = extent(cuda, pointer).inspect_err(|_| {
            let Ok((cuda, _)) = &ready else { return };
            // SAFETY: just imported, and nobody uses it yet.
            let _ = unsafe { call!(cuda.cuMemFreeAsync(pointer, stream.raw())) };
        })?;
        Ok(PoolMemory { pointer, extent, uses: Vec::new() })
    };
    let (pointer, extent) = POOL_MEMORY.acquire(key, open, |memory| (memory.pointer, memory.extent))?;
    drop(ready);
    let imported = Imported {
        context: context.clone(),
        accessibility: pool.accessibility(),
        descriptor: *descriptor,
        source: Source::Pool { pool: pool.clone(), used: PoolUse::new(&POOL_MEMORY, key) },
        signer: Some(signer),
        holder: None,
    };
    imported.finish(call, pointer, Ok(extent), stream)
}

impl DeviceMemory {
    /// Imports memory of another process's cuMemAlloc: the part that it exported by [`SharedBuffer::export`], as
    /// elements of type `T`. The other process may write it at any time, so the result is a [`SharedBuffer`].
    ///
    /// `stream` becomes the home stream. Repeated imports share one mapping, which is closed when the last one is
    /// dropped; a drop waits for the stream. In the exporting process, the result is the exported allocation itself.
    ///
    /// The device of this resource uses the memory. If another device holds it, the device of this resource accesses it
    /// over the link between the two, and the buffer counts as memory of this resource's device. The first such import
    /// verifies the access, for which it opens the other device's primary context. A process that uses the memory with
    /// several devices imports it for each of them.
    ///
    /// # Errors
    ///
    /// The descriptor is not of such memory, belongs to a device that the driver does not show, or contradicts the driver;
    /// its part does not hold whole, aligned elements; the memory no longer exists. This resource's device has no path to
    /// the memory, or its access does not work: [`Error::Peer`].
    #[doc(alias("cuIpcOpenMemHandle", "cuIpcCloseMemHandle"))]
    pub fn import_buffer<T>(&self, descriptor: &Descriptor, stream: &Stream) -> Result<SharedBuffer<T, kind::Device>>
    where
        T: NoUninit + AnyBitPattern,
    {
        const CALL: &str = "DeviceMemory::import_buffer";
        let memory = self.share();
        let context = memory.context();
        // The driver does not let a process open its own memory. A descriptor that falsely claims to be of this process
        // is refused.
        let own = has_own_handle(descriptor) || descriptor.claims_own()?;
        let holder = match descriptor.holder(CALL, ExportKind::DeviceMemory, context)? {
            // Memory of this process has a buffer of the device that holds it.
            Some(_) if own => return Err(descriptor.wrong_device(CALL, context.device().uuid()?)),
            Some(device) if descriptor.size != 0 => {
                let holder = device.primary_context()?;
                PeerSource::plain(&holder).require(CALL, context)?;
                Some(holder)
            }
            _ => None,
        };
        SharedBuffer::import(CALL, &memory, descriptor, stream, own, || {
            import_device_memory(CALL, context, holder, descriptor, stream)
        })
    }
}

/// Imports cuMemAlloc memory of another process.
fn import_device_memory(
    call: &'static str,
    context: &Context,
    holder: Option<Context>,
    descriptor: &Descriptor,
    stream: &Stream,
) -> Result<(SharedResource, Block)> {
    if descriptor.size == 0 {
        return Ok(empty(context.clone(), Accessibility::DEVICE, descriptor, None));
    }
    context.device().require(Feature::Ipc)?;
    let (cuda, _current) = (context.driver().raw(), context.bind()?);
    let key = (context.driver().library(), context.name(), descriptor.payload);
    // The driver itself counts two handles of one allocation.
    let open = |_: &mut dyn Iterator<Item = &(CUdeviceptr, Result<usize>)>| {
        let (mut pointer, handle) = (0, CUipcMemHandle { reserved: to_driver(descriptor.payload) });
        let flags = CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.0;
        // SAFETY: `pointer` is writable, and the context is current; the driver checks the handle.
        unsafe { call!(cuda.cuIpcOpenMemHandle_v2(&mut pointer, handle, flags)) }?;
        let (mut base, mut size) = (0, 0);
        // SAFETY: `base` and `size` are writable.
        let range = unsafe { call!(cuda.cuMemGetAddressRange_v2(&mut base, &mut size, pointer)) };
        // After an error, `finish` closes the memory, which may wait.
        Ok((pointer, range.map(|()| size - (pointer - base) as usize)))
    };
    let (pointer, extent) = DEVICE_MEMORY.acquire(key, open, Clone::clone)?;
    let imported = Imported {
        context: context.clone(),
        accessibility: Accessibility::DEVICE,
        descriptor: *descriptor,
        source: Source::Device(Arc::new(DeviceUse::new(&DEVICE_MEMORY, key))),
        signer: None,
        holder,
    };
    imported.finish(call, pointer, extent, stream)
}

fn empty(
    context: Context,
    accessibility: Accessibility,
    descriptor: &Descriptor,
    signer: Option<Key>,
) -> (SharedResource, Block) {
    let imported =
        Imported { context, accessibility, descriptor: *descriptor, source: Source::Empty, signer, holder: None };
    (Arc::new(imported), Block::EMPTY)
}

/// The number of bytes from an imported address to the end of its allocation.
fn extent(cuda: &cuda_sys::Driver, pointer: CUdeviceptr) -> Result<usize> {
    let (mut start, mut size): (CUdeviceptr, usize) = (0, 0);
    for (attribute, place) in [
        (Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ptr::from_mut(&mut start).cast()),
        (Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE, ptr::from_mut(&mut size).cast()),
    ] {
        // SAFETY: both attributes are as wide as an address, and so is each place.
        unsafe { call!(cuda.cuPointerGetAttribute(place, attribute, pointer)) }?;
    }
    // Of host pools, drivers report an offset in the pool as the start. An imported address is the start of its range.
    let before = pointer.checked_sub(start).map_or(0, |before| before as usize);
    Ok(if before < size { size - before } else { size })
}

impl Imported {
    /// Compares the driver's allocation with the descriptor before the import is used.
    fn finish(
        self,
        call: &'static str,
        pointer: CUdeviceptr,
        extent: Result<usize>,
        stream: &Stream,
    ) -> Result<(SharedResource, Block)> {
        let size = self.descriptor.size as usize;
        let block = match self.accessibility.host {
            true => Block::unified(ptr::with_exposed_provenance_mut(pointer as usize), size),
            false => Block::device(pointer, size),
        };
        if let Err(wrong) = extent.and_then(|extent| self.descriptor.check_extent(call, extent)) {
            // SAFETY: just imported, and nobody uses it yet.
            if let Err(error) = unsafe { self.deallocate(block, stream) } {
                self.context.drop_errors().push("freeing imported memory whose descriptor is wrong", error);
            }
            return Err(wrong);
        }
        Ok((Arc::new(self), block))
    }

    /// Ends one use of pool memory. The last one frees it after the work of all. The use ends even if the free fails, unless
    /// a capture caused the failure. If nobody knows whether its work is done, it stays for ever, and with it the memory.
    fn release_pool_memory(&self, key: &PoolKey, stream: &Stream) -> Result<()> {
        let (is_known, mut attempt) = (Cell::new(false), 1);
        loop {
            match self.try_release_pool_memory(key, stream, &is_known) {
                Err(error) if attempt < ATTEMPTS && !is_known.get() && !is_for_a_capture(&error) => attempt += 1,
                Err(error) if !is_for_a_capture(&error) => {
                    // The memory stays, and is known by its pool's handle.
                    keep_for_ever(&self.context, self.descriptor.pool, self.accessibility.host);
                    return Err(error);
                }
                done => return done,
            }
        }
    }

    /// Sets `is_known` once the work of this use, or of all uses if it is the last one, comes before what the stream does.
    fn try_release_pool_memory(&self, key: &PoolKey, stream: &Stream, is_known: &Cell<bool>) -> Result<()> {
        // A capture would take in the event, and end at the wait.
        let running = stream.running("freeing memory of another process")?;
        let use_ends = match Event::new(stream.context()).and_then(|event| event.mark(&running).map(|()| event)) {
            Ok(event) => Ok(Some(event)),
            // Without an event nobody could wait for the work later.
            Err(_) => stream.wait_before_free().or_else(|error| stream.context().unless_ended(error)).map(|()| None),
        };
        let ready = stream.ready();
        let stays = |error: &Error| !is_known.get() || is_for_a_capture(error);
        // Events are dropped after the lock, because a hook of the program may run.
        let _passed = POOL_MEMORY.release(key, stays, |memory, last| {
            let use_ends = use_ends?;
            if !last {
                // Others still use it. Passed events would only accumulate here.
                let (passed, mut pending): (Vec<_>, Vec<_>) =
                    core::mem::take(&mut memory.uses).into_iter().partition(|event| event.is_done() == Ok(true));
                pending.extend(use_ends);
                memory.uses = pending;
                is_known.set(true);
                return Ok(passed);
            }
            let (cuda, _) = ready.as_ref().map_err(Error::clone)?;
            memory.uses.iter().try_for_each(|event| stream.wait(event).or_else(|_| event.wait_beside_captures()))?;
            is_known.set(true);
            // SAFETY: the count guarantees one free per import, and this stream has waited for all uses.
            unsafe { call!(cuda.cuMemFreeAsync(memory.pointer, stream.raw())) }?;
            let mut passed = core::mem::take(&mut memory.uses);
            passed.extend(use_ends);
            Ok(passed)
        })?;
        Ok(())
    }

    /// Ends one use of cuMemAlloc memory, after waiting for the stream: the driver does not close in stream order.
    fn release_device_memory(&self, used: &Arc<DeviceUse>, stream: &Stream) -> Result<()> {
        let (used, size, target) = (used.clone(), self.descriptor.size as usize, Target::context(&self.context));
        let close = move |cuda: &cuda_sys::Driver| {
            used.end(|key| {
                DEVICE_MEMORY.release(key, is_for_a_capture, |(pointer, _), last| match last {
                    // SAFETY: the count guarantees one close per open, and each user's work is done.
                    true => unsafe { watched!(target, cuda.cuIpcCloseMemHandle(*pointer)) },
                    false => Ok(()),
                })
            })
        };
        self.context.free_by_waiting("closing memory of another process", size, Some(stream), close)
    }
}

// SAFETY: it allocates no blocks. The imported ones are the driver's, and live until their last use ends.
unsafe impl MemoryResource for Imported {
    fn allocate(&self, _size: usize, _alignment: usize, _stream: &Stream) -> Result<Block> {
        Err(Error::ImportedPool { call: "Buffer::uninit" })
    }

    unsafe fn deallocate(&self, _block: Block, stream: &Stream) -> Result<()> {
        match &self.source {
            Source::Pool { used, .. } => used.end(|key| self.release_pool_memory(key, stream)),
            Source::Device(used) => self.release_device_memory(used, stream),
            Source::Empty => Ok(()),
        }
    }

    unsafe fn abandon(&self, _block: Block) {
        // The memory ended with its context. Only the count remains.
        // An earlier error has been reported.
        let _ = match &self.source {
            Source::Pool { used, .. } => used.forget(),
            Source::Device(used) => used.forget(),
            Source::Empty => Ok(()),
        };
    }

    fn context(&self) -> &Context {
        &self.context
    }

    fn accessibility(&self) -> Accessibility {
        self.accessibility
    }

    fn peer_source(&self) -> Option<PeerSource<'_>> {
        match &self.source {
            Source::Pool { pool, .. } => pool.peer_source(),
            // The driver opened it for one device. Access to the context's plain memory does not include it.
            Source::Device(_) | Source::Empty => None,
        }
    }

    fn export(&self, _block: Block) -> Result<BlockExport> {
        Ok(BlockExport::imported(self.descriptor, self.signer))
    }
}
