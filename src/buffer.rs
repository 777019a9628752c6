//! Buffers
//!
//! A buffer is memory from a resource, or memory that the program lends. It has a home stream: the buffer's copies,
//! fills and free run in that stream's order. Offsets and sizes are in bytes. A size of CUDAMEM_WHOLE_SIZE means
//! everything from the offset on, except where the size also describes host memory.
//!
//! Concurrent calls with one buffer run one after the other. Copies to and from host memory return when they are done;
//! other operations return when they are queued, also while another thread's copy waits.

use crate::call::{
    self, Options, Out, Outcome, bytes, bytes_mut, destroy, drop_object, fill, handle_type, invalid, object, out, run,
};
use crate::handles::cudamem_buffer;
use crate::handles::cudamem_resource;
use crate::handles::cudamem_stream;
use crate::resource::access_flags;
use crate::status::cudamem_status;
use core::ffi::c_void;
use core::mem::size_of;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use cuda_mem::buffer::PeerRoute;
use cuda_mem::{Buffer, Error};
use cuda_mem_dynamic::{Content, Memory, lock_both, with};
use std::sync::Arc;

handle_type!(cudamem_buffer: Memory);

/// Allocates size bytes from a resource. stream becomes the home stream, and its later work may use the memory. The
/// contents are undefined. A size of 0 is allowed.
///
/// Errors: CUDAMEM_ERROR_OUT_OF_MEMORY if there is no room. CUDAMEM_ERROR_INVALID_ARGUMENT if the stream belongs to
/// another device, or if it captures a graph and the resource allocates in stream order. Pools and guarded resources ask
/// the driver about borrowed streams. For a borrowed stream that its owner captures, a general pool (cudamem_pool_create)
/// gives memory that belongs to the graph until the graph and its executables are destroyed. Of streams that this library
/// made, resources only see captures of cudamem_graph_capture: do not capture these with the driver
/// (cuStreamBeginCapture). For device, pinned and managed memory, the driver alone decides what a capture forbids.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_allocate(
    resource: cudamem_resource,
    size: usize,
    stream: cudamem_stream,
    buffer: Out<'_, cudamem_buffer>,
) -> cudamem_status {
    run("cudamem_buffer_allocate", || {
        let buffer = out("buffer", buffer)?;
        let (resource, stream) = (object("resource", resource)?, object("stream", stream)?);
        buffer.write(call::new_handle_with(|| Ok::<_, Error>(Memory::new(resource.allocate(size, &stream)?)))?);
        Ok(())
    })
}

/// The library calls this function when nothing uses the borrowed memory any more, on any thread. user is the program's
/// pointer. The function must not unwind.
pub type cudamem_release_callback = Option<extern "C" fn(user: *mut c_void)>;

/// Calls the program's release callback when the last use of the program's memory has ended.
pub(crate) struct Owner {
    release: cudamem_release_callback,
    user: *mut c_void,
    /// Whether the call that took the memory succeeded. Only then is the callback called.
    armed: AtomicBool,
}

// SAFETY: the header requires a function and a pointer for use on any thread.
unsafe impl Send for Owner {}

// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Owner {
    pub(crate) fn new(release: cudamem_release_callback, user: *mut c_void) -> Arc<Self> {
        Arc::new(Self { release, user, armed: AtomicBool::new(false) })
    }

    /// Enables the callback: the call that took the memory has succeeded.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::Release);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(release) = self.release
            && *self.armed.get_mut()
        {
            release(self.user);
        }
    }
}

/// Uses the program's memory as a buffer: size bytes at pointer, a device or host address. The memory must stay
/// allocated until the library calls release with user, after the last part of the buffer has ended and its work is
/// done, or until that point if release is NULL. After a failure the library does not call release.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the address is 0, or if the memory would extend beyond the address space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_buffer_borrow(
    pointer: u64,
    size: usize,
    stream: cudamem_stream,
    release: cudamem_release_callback,
    user: *mut c_void,
    buffer: Out<'_, cudamem_buffer>,
) -> cudamem_status {
    run("cudamem_buffer_borrow", || {
        let buffer = out("buffer", buffer)?;
        let stream = object("stream", stream)?;
        if release.is_none() {
            // SAFETY: the header requires `size` bytes.
            let borrowed = unsafe { Buffer::from_raw(pointer, size, &stream) }?;
            buffer.write(call::new_handle(Memory::new(borrowed))?);
            return Ok(());
        }
        let owner = Owner::new(release, user);
        // SAFETY: the header requires `size` bytes until the owner ends.
        let owned = unsafe { Buffer::from_raw_with_owner(pointer, size, owner.clone(), &stream) }?;
        buffer.write(call::new_handle(Memory::new(owned))?);
        owner.arm();
        Ok(())
    })
}

/// Makes a buffer for a part of another buffer. Both share ownership of the memory, which is freed when its last part
/// is destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_slice(
    buffer: cudamem_buffer,
    offset: usize,
    size: usize,
    slice: Out<'_, cudamem_buffer>,
) -> cudamem_status {
    run("cudamem_buffer_slice", || {
        let slice = out("slice", slice)?;
        let part = object("buffer", buffer)?.slice(offset, size)?;
        slice.write(call::new_handle(Memory::shared(part))?);
        Ok(())
    })
}

/// What a buffer is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_buffer_info {
    /// sizeof(cudamem_buffer_info), set by the program.
    pub size: usize,
    /// The size of the buffer in bytes.
    pub length: usize,
    /// Who may address the memory: CUDAMEM_ACCESS_... combined by |.
    pub access: u32,
    /// 0.
    pub reserved: u32,
    /// As cudamem_buffer_get_device_pointer.
    pub device_pointer: u64,
    /// As cudamem_buffer_get_host_pointer; NULL if the CPU does not address the memory.
    pub host_pointer: *mut c_void,
    /// How far a growable buffer grows without moving, in bytes. Of other buffers: length.
    pub capacity: usize,
    /// The size of a growable buffer's physical memory in bytes. Of other buffers: 0.
    pub physical: usize,
    /// The unit of flush and invalidate in bytes: 1 for coherent memory, and for memory that the CPU does not address.
    pub atom: usize,
}

// SAFETY: numbers and an address of 8 bytes, and two numbers of 4 bytes.
unsafe impl Options for cudamem_buffer_info {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Describes a buffer. Set info->size first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_buffer_get_info(
    buffer: cudamem_buffer,
    info: *mut cudamem_buffer_info,
) -> cudamem_status {
    run("cudamem_buffer_get_info", || {
        let memory = object("buffer", buffer)?;
        let content = memory.read();
        content.mark_work();
        let (capacity, physical) = match &*content {
            Content::Growable(growable) => (growable.capacity(), growable.physical_size()),
            other => (with!(other, buffer => buffer.len()), 0),
        };
        let answer = with!(&*content, buffer => cudamem_buffer_info {
            size: size_of::<cudamem_buffer_info>(),
            length: buffer.len(),
            access: access_flags(buffer.accessibility()),
            reserved: 0,
            device_pointer: buffer.device_pointer(),
            host_pointer: buffer.host_pointer_if_any().map_or(ptr::null_mut(), |pointer| pointer.cast()),
            capacity,
            physical,
            atom: buffer.coherence().atom(),
        });
        // SAFETY: the header requires NULL or `size` writable bytes.
        unsafe { fill("info", info, answer) }
    })
}

/// Gets the address for kernels and for the driver (a CUdeviceptr). It is valid while a part of the memory lives, and 0
/// if the buffer has no memory. Record work on other streams than the home stream that uses the memory:
/// cudamem_record_use.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_get_device_pointer(buffer: cudamem_buffer, pointer: Out<'_, u64>) -> cudamem_status {
    run("cudamem_buffer_get_device_pointer", || {
        let pointer = out("pointer", pointer)?;
        pointer.write(object("buffer", buffer)?.device_pointer());
        Ok(())
    })
}

/// Gets the CPU's address. It is valid while a part of the memory lives. Before the CPU reads or writes, wait for
/// device work (cudamem_buffer_synchronize) and, for non-coherent memory, call cudamem_buffer_invalidate. After the CPU
/// has written, call cudamem_buffer_flush.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the CPU does not address the memory.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_get_host_pointer(
    buffer: cudamem_buffer,
    pointer: Out<'_, *mut c_void>,
) -> cudamem_status {
    run("cudamem_buffer_get_host_pointer", || {
        let pointer = out("pointer", pointer)?;
        pointer.write(host_pointer(&*object("buffer", buffer)?)?.cast());
        Ok(())
    })
}

fn host_pointer(memory: &Memory) -> Outcome<*mut u8> {
    memory.host_pointer().ok_or_else(|| {
        let rule = "the CPU addresses mapped, host and managed memory only: allocate from such a resource, or copy with \
                    cudamem_buffer_write and cudamem_buffer_read";
        invalid("buffer", "addressable by devices only", rule)
    })
}

/// Makes stream the home stream. It waits for all work on the buffer so far. So a buffer that is destroyed next is
/// freed in order of stream.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_set_stream(buffer: cudamem_buffer, stream: cudamem_stream) -> cudamem_status {
    run("cudamem_buffer_set_stream", || {
        let (memory, stream) = (object("buffer", buffer)?, object("stream", stream)?);
        Ok(with!(&mut *memory.write(), buffer => buffer.set_stream(&stream))?)
    })
}

/// Waits until all work queued on the home stream so far is done.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_synchronize(buffer: cudamem_buffer) -> cudamem_status {
    run("cudamem_buffer_synchronize", || {
        // Waits without the lock, so that other threads can use the buffer meanwhile.
        let stream = with!(&*object("buffer", buffer)?.read(), buffer => buffer.stream().clone());
        Ok(stream.synchronize()?)
    })
}

/// Copies size bytes from host memory to the buffer, at offset. Returns when the copy is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_buffer_write(
    buffer: cudamem_buffer,
    offset: usize,
    source: *const c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_buffer_write", || {
        // SAFETY: the header requires `size` valid bytes.
        let source = unsafe { bytes("source", source, size) }?;
        let memory = object("buffer", buffer)?;
        memory.write_aside(|content| Ok(with!(content, buffer => buffer.copy_from_slice(offset, source))?))
    })
}

/// Copies size bytes of the buffer, from offset on, to host memory. Returns when the copy is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_buffer_read(
    buffer: cudamem_buffer,
    offset: usize,
    destination: *mut c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_buffer_read", || {
        // SAFETY: the header requires `size` valid bytes.
        let destination = unsafe { bytes_mut("destination", destination, size) }?;
        let memory = object("buffer", buffer)?;
        memory.read_aside(|content| Ok(with!(content, buffer => buffer.copy_to_slice(offset, destination))?))
    })
}

/// A route of copies between buffers. The values are CUDAMEM_ROUTE_... .
pub type cudamem_route = i32;

/// Both buffers lie on one device.
pub const CUDAMEM_ROUTE_SAME_DEVICE: cudamem_route = 0;
/// The destination's device reads the source's memory over the link between the devices.
pub const CUDAMEM_ROUTE_DIRECT: cudamem_route = 1;
/// The driver moves the bytes through host memory, because the destination's device does not access the source. Also for
/// memory of other libraries, whose source is not known; the driver copies it directly if it can.
pub const CUDAMEM_ROUTE_THROUGH_HOST: cudamem_route = 2;
/// At least one of the buffers is host memory.
pub const CUDAMEM_ROUTE_HOST_MEMORY: cudamem_route = 3;

/// Gets the route of copies from source to buffer. Like such a copy, the call gives the buffer's device access to the
/// source's memory if it can, and verifies it, which takes milliseconds once for each source and device.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_get_route(
    buffer: cudamem_buffer,
    source: cudamem_buffer,
    route: Out<'_, cudamem_route>,
) -> cudamem_status {
    run("cudamem_buffer_get_route", || {
        let route = out("route", route)?;
        let (to, from) = (object("buffer", buffer)?, object("source", source)?);
        let found = if buffer == source {
            let content = to.read();
            with!(&*content, buffer => buffer.route_to(buffer))
        } else {
            let (to, from) = lock_both(&to, &from);
            with!(&*to, buffer => with!(&*from, source => source.route_to(buffer)))
        };
        route.write(match found {
            PeerRoute::SameDevice => CUDAMEM_ROUTE_SAME_DEVICE,
            PeerRoute::Direct => CUDAMEM_ROUTE_DIRECT,
            PeerRoute::HostMemory => CUDAMEM_ROUTE_HOST_MEMORY,
            _ => CUDAMEM_ROUTE_THROUGH_HOST,
        });
        Ok(())
    })
}

/// Copies size bytes of source, from source_offset on, to the buffer, at offset. The copy runs in order of the buffer's
/// home stream: after all work on both buffers so far, and before their later work. Both buffers may be parts of one
/// memory, but the two ranges must not overlap.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_copy(
    buffer: cudamem_buffer,
    offset: usize,
    source: cudamem_buffer,
    source_offset: usize,
    size: usize,
) -> cudamem_status {
    run("cudamem_buffer_copy", || {
        let (memory, source) = (object("buffer", buffer)?, object("source", source)?);
        Ok(memory.copy_from(offset, &source, source_offset, size)?)
    })
}

/// Fills size bytes from offset on with copies of a value of value_size bytes (1, 2, 4, 8 or 16). The device does it,
/// in stream order. offset and size must be multiples of value_size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_buffer_fill(
    buffer: cudamem_buffer,
    offset: usize,
    size: usize,
    value: *const c_void,
    value_size: usize,
) -> cudamem_status {
    run("cudamem_buffer_fill", || {
        // SAFETY: the header requires `size` valid bytes.
        let value = unsafe { bytes("value", value, value_size) }?;
        let memory = object("buffer", buffer)?;
        if !matches!(value.len(), 1 | 2 | 4 | 8 | 16) {
            return Err(invalid("value_size", value.len().to_string(), "it must be 1, 2, 4, 8 or 16"));
        }
        Ok(memory.fill(offset, size, value)?)
    })
}

/// Checks whether two buffers hold the same bytes after all work on both so far. Waits for that work.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_equals(
    buffer: cudamem_buffer,
    other: cudamem_buffer,
    equal: Out<'_, bool>,
) -> cudamem_status {
    run("cudamem_buffer_equals", || {
        let equal = out("equal", equal)?;
        let (memory, other_memory) = (object("buffer", buffer)?, object("other", other)?);
        let same = memory.equals(&other_memory)?;
        equal.write(same);
        Ok(())
    })
}

/// Makes CPU writes to a range visible to device work that is queued later. Mapped and write-combined memory need this;
/// for other memory the call does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_flush(buffer: cudamem_buffer, offset: usize, size: usize) -> cudamem_status {
    run("cudamem_buffer_flush", || {
        // SAFETY: the range is the buffer's, whose users the C program keeps apart.
        on_host_range(buffer, offset, size, |resource, start, size| unsafe { resource.flush(start, size) })
    })
}

/// Makes device writes to a range visible to the CPU, once the device work is done. Non-coherent mapped memory and
/// managed memory without concurrent managed access need this; for other memory the call does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_invalidate(buffer: cudamem_buffer, offset: usize, size: usize) -> cudamem_status {
    run("cudamem_buffer_invalidate", || {
        // SAFETY: C programs hold addresses of the memory only, so no Rust reference to it exists.
        on_host_range(buffer, offset, size, |resource, start, size| unsafe { resource.invalidate(start, size) })
    })
}

fn on_host_range(
    buffer: cudamem_buffer,
    offset: usize,
    size: usize,
    work: impl FnOnce(&cuda_mem::memory::SharedResource, *mut u8, usize) -> Result<(), Error>,
) -> Outcome {
    let memory = object("buffer", buffer)?;
    host_pointer(&memory)?;
    Ok(memory.with_host_range(offset, size, work)?)
}

/// Destroys the handle. If no other part of the memory is left, the memory is freed in order of the home stream. The
/// null handle is allowed.
///
/// Errors: the driver's, if it refuses to free the memory. The handle then stays valid.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_destroy(buffer: cudamem_buffer) -> cudamem_status {
    run("cudamem_buffer_destroy", || {
        // SAFETY: `destroy` drops the object after a success.
        destroy("buffer", buffer, |memory| unsafe { memory.close_in_place() })
    })
}

/// As cudamem_buffer_destroy, for destructors, which cannot return errors. If the memory cannot be freed, the library
/// reports the error to the callback of cudamem_set_drop_error_callback, and the handle ends all the same.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_drop(buffer: cudamem_buffer) -> cudamem_status {
    run("cudamem_buffer_drop", || destroy("buffer", buffer, drop_object))
}
