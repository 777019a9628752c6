//! Buffers
//!
//! A buffer is memory of a resource, or the program's own. It has a home stream: its copies and fills are done in order of
//! that stream, and so is its free. Offsets and sizes are in bytes; a size of CUDAMEM_WHOLE_SIZE is all from the offset on,
//! but where the size is that of memory of the host too.
//!
//! Threads that call functions with one buffer at the same time do so in turns. Copies to and from the host wait until they
//! are done; others do not.

use crate::call::{
    self, Out, Outcome, bytes, bytes_mut, destroy, drop_object, handle_type, invalid, object, out, range, run,
};
use crate::handle::Kind;
use crate::handles::cudamem_buffer;
use crate::handles::cudamem_resource;
use crate::handles::cudamem_stream;
use crate::memory::{Memory, close, lock_both, with};
use crate::resource::access_flags;
use crate::status::cudamem_status;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering};
use cuda_mem::{Buffer, Error};
use std::sync::Arc;

handle_type!(cudamem_buffer: Memory, Kind::Buffer);

/// Allocates size bytes of a resource. stream becomes the home stream: the memory is for its work from now on. The contents are
/// undefined. A size of 0 is allowed.
///
/// Errors: CUDAMEM_ERROR_OUT_OF_MEMORY if there is no room; CUDAMEM_ERROR_INVALID_ARGUMENT if the stream is of another device, or
/// captures a graph and memory comes in its order. Pools and guarded resources see captures of cudamem_graph_capture only: while the
/// program captures by the driver (cuStreamBeginCapture), do not allocate from them. With device, pinned and managed memory the
/// driver alone says what a capture forbids.
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
        buffer.write(call::new_handle_with(|| Ok(Memory::new(resource.allocate(size, &stream)?)))?);
        Ok(())
    })
}

/// Is called when borrowed memory is used no more, with what was given along with it, on any thread. It must not unwind.
pub type cudamem_release_callback = Option<extern "C" fn(user: *mut c_void)>;

/// Calls the program when the last use of its memory has ended.
pub(crate) struct Owner {
    release: cudamem_release_callback,
    user: *mut c_void,
    /// Whether the program was told that the memory is in use.
    armed: AtomicBool,
}

// SAFETY: the header asks for a function that may be called, with what was given, on any thread.
unsafe impl Send for Owner {}

// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Owner {
    pub(crate) fn new(release: cudamem_release_callback, user: *mut c_void) -> Arc<Self> {
        Arc::new(Self { release, user, armed: AtomicBool::new(false) })
    }

    /// From now on the end is told: the call that took the memory has worked.
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

/// Uses memory of the program's as a buffer: size bytes at pointer, a device's address or one of the host. It must stay
/// allocated until release was called with user, which the end of the last part of the buffer does when its work is done; where
/// release is NULL, until that end. After a failure release is not called.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the address is 0 or the memory would not end within the address space.
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
            // SAFETY: the program promises as many bytes.
            let borrowed = unsafe { Buffer::from_raw(pointer, size, &stream) }?;
            buffer.write(call::new_handle(Memory::new(borrowed))?);
            return Ok(());
        }
        let owner = Owner::new(release, user);
        // SAFETY: as above, until the owner ends.
        let owned = unsafe { Buffer::from_raw_with_owner(pointer, size, owner.clone(), &stream) }?;
        buffer.write(call::new_handle(Memory::new(owned))?);
        owner.arm();
        Ok(())
    })
}

/// Makes a buffer of a part of another, which shares the ownership of the memory: it is freed when the last part of it is
/// destroyed.
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

/// Gives the size in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_get_size(buffer: cudamem_buffer, size: Out<'_, usize>) -> cudamem_status {
    run("cudamem_buffer_get_size", || {
        let size = out("size", size)?;
        size.write(with!(&*object("buffer", buffer)?.read(), buffer => buffer.len()));
        Ok(())
    })
}

/// Gives the address for kernels and for the driver (a CUdeviceptr), valid while a part of the memory lives; 0 where there is no
/// memory. Tell the buffer of work on other streams than its own that uses it: cudamem_buffer_record_use.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_get_device_pointer(buffer: cudamem_buffer, pointer: Out<'_, u64>) -> cudamem_status {
    run("cudamem_buffer_get_device_pointer", || {
        let pointer = out("pointer", pointer)?;
        pointer.write(with!(&*object("buffer", buffer)?.read(), buffer => buffer.device_pointer()));
        Ok(())
    })
}

/// Gives the address for the CPU, valid while a part of the memory lives. Before the CPU uses it, wait for device work
/// (cudamem_buffer_synchronize) and, in non-coherent memory, call cudamem_buffer_invalidate; after it has written,
/// cudamem_buffer_flush.
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
    let content = memory.read();
    with!(&*content, buffer => buffer.host_pointer_if_any()).ok_or_else(|| {
        invalid("buffer", "memory that the CPU does not address", "it has to be host, managed or mapped memory")
    })
}

/// Tells who may address the memory: access becomes CUDAMEM_ACCESS_... combined by |.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_get_access(buffer: cudamem_buffer, access: Out<'_, u32>) -> cudamem_status {
    run("cudamem_buffer_get_access", || {
        let access = out("access", access)?;
        access.write(access_flags(with!(&*object("buffer", buffer)?.read(), buffer => buffer.accessibility())));
        Ok(())
    })
}

/// Makes stream the home stream: it waits for all work of the buffer so far.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_set_stream(buffer: cudamem_buffer, stream: cudamem_stream) -> cudamem_status {
    run("cudamem_buffer_set_stream", || {
        let (memory, stream) = (object("buffer", buffer)?, object("stream", stream)?);
        Ok(with!(&mut *memory.write(), buffer => buffer.set_stream(&stream))?)
    })
}

/// Tells the buffer of work given to stream so far that uses its memory: what the buffer does from now on waits for that work,
/// its free too.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_record_use(buffer: cudamem_buffer, stream: cudamem_stream) -> cudamem_status {
    run("cudamem_buffer_record_use", || {
        let (memory, stream) = (object("buffer", buffer)?, object("stream", stream)?);
        Ok(with!(&*memory.read(), buffer => buffer.record_use(&stream))?)
    })
}

/// Waits until all work of the home stream so far is done.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_synchronize(buffer: cudamem_buffer) -> cudamem_status {
    run("cudamem_buffer_synchronize", || {
        // Not under the lock: others may go on to use the buffer meanwhile.
        let stream = with!(&*object("buffer", buffer)?.read(), buffer => buffer.stream().clone());
        Ok(stream.synchronize()?)
    })
}

/// Copies size bytes of the host to the buffer, from offset on. Returns when that is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_buffer_write(
    buffer: cudamem_buffer,
    offset: usize,
    source: *const c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_buffer_write", || {
        // SAFETY: the header's rule for bytes.
        let source = unsafe { bytes("source", source, size) }?;
        let memory = object("buffer", buffer)?;
        Ok(with!(&mut *memory.write(), buffer => buffer.copy_from_slice(offset, source))?)
    })
}

/// Copies size bytes of the buffer, from offset on, to the host. Returns when that is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_buffer_read(
    buffer: cudamem_buffer,
    offset: usize,
    destination: *mut c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_buffer_read", || {
        // SAFETY: the header's rule for bytes.
        let destination = unsafe { bytes_mut("destination", destination, size) }?;
        let memory = object("buffer", buffer)?;
        Ok(with!(&*memory.read(), buffer => buffer.copy_to_slice(offset, destination))?)
    })
}

/// Copies size bytes of source, from source_offset on, to the buffer, from offset on, in order of the buffer's stream: after
/// the work of both buffers so far, and before their later work. They may be parts of one memory; the two ranges must not
/// overlap.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_copy(
    buffer: cudamem_buffer,
    offset: usize,
    source: cudamem_buffer,
    source_offset: usize,
    size: usize,
) -> cudamem_status {
    run("cudamem_buffer_copy", || {
        let memory = object("buffer", buffer)?;
        if buffer == source {
            let mut content = memory.write();
            let range = range(source_offset, size, with!(&*content, buffer => buffer.len()))?;
            return Ok(with!(&mut *content, buffer => buffer.copy_within(range, offset))?);
        }
        let source_memory = object("source", source)?;
        let (mut to, from) = lock_both(&memory, buffer, &source_memory, source);
        let range = range(source_offset, size, with!(&*from, source => source.len()))?;
        Ok(with!(&mut *to, buffer => with!(&*from, source => buffer.copy_from_buffer(offset, source, range)))?)
    })
}

/// Fills size bytes from offset on with a value of value_size bytes (1, 2, 4, 8 or 16) again and again, by the device, in
/// stream order. Offset and size are multiples of value_size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_buffer_fill(
    buffer: cudamem_buffer,
    offset: usize,
    size: usize,
    value: *const c_void,
    value_size: usize,
) -> cudamem_status {
    run("cudamem_buffer_fill", || {
        // SAFETY: the header's rule for bytes.
        let value = unsafe { bytes("value", value, value_size) }?;
        let memory = object("buffer", buffer)?;
        match value {
            [byte] => {
                let mut content = memory.write();
                let range = range(offset, size, with!(&*content, buffer => buffer.len()))?;
                Ok(with!(&mut *content, buffer => buffer.fill(range, *byte))?)
            }
            [a, b] => fill_with(&memory, offset, size, u16::from_ne_bytes([*a, *b])),
            [a, b, c, d] => fill_with(&memory, offset, size, u32::from_ne_bytes([*a, *b, *c, *d])),
            value if value.len() == 8 || value.len() == 16 => {
                let words: Vec<u32> = value
                    .chunks_exact(4)
                    .map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
                    .collect();
                match *words {
                    [a, b] => fill_with(&memory, offset, size, [a, b]),
                    [a, b, c, d] => fill_with(&memory, offset, size, [a, b, c, d]),
                    _ => unreachable!("8 or 16 bytes are 2 or 4 words"),
                }
            }
            other => Err(invalid("value_size", other.len().to_string(), "it is 1, 2, 4, 8 or 16")),
        }
    })
}

/// Fills a part of the memory as elements of another type.
fn fill_with<T>(memory: &Memory, offset: usize, size: usize, value: T) -> Outcome
where
    T: Copy + bytemuck::NoUninit + bytemuck::AnyBitPattern,
{
    memory.with_part(offset, size, |part| Ok(part.cast::<T>()?.fill(.., value)?))
}

/// Tells whether two buffers hold the same bytes, after the work of both so far. Waits for that.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_equals(
    buffer: cudamem_buffer,
    other: cudamem_buffer,
    equal: Out<'_, bool>,
) -> cudamem_status {
    run("cudamem_buffer_equals", || {
        let equal = out("equal", equal)?;
        let (memory, other_memory) = (object("buffer", buffer)?, object("other", other)?);
        // A lock of one thread that is held twice may never come.
        let same = buffer == other || {
            let (left, right) = lock_both(&memory, buffer, &other_memory, other);
            with!(&*left, left => with!(&*right, right => left.equals(right)))?
        };
        equal.write(same);
        Ok(())
    })
}

/// Makes what the CPU wrote to a range through its address visible to device work given after this. Needed in mapped and
/// write-combined memory; elsewhere it does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_flush(buffer: cudamem_buffer, offset: usize, size: usize) -> cudamem_status {
    run("cudamem_buffer_flush", || {
        on_host_range(buffer, offset, size, |resource, start, size| resource.flush(start, size))
    })
}

/// Makes what the device wrote to a range visible to the CPU, when that work is done. Needed in non-coherent mapped memory and,
/// without concurrent managed access, in managed memory; elsewhere it does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_invalidate(buffer: cudamem_buffer, offset: usize, size: usize) -> cudamem_status {
    run("cudamem_buffer_invalidate", || {
        // SAFETY: C has addresses of the memory, and nobody has references.
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
    let start = host_pointer(&memory)?;
    let content = memory.read();
    let range = range(offset, size, with!(&*content, buffer => buffer.len()))?;
    match with!(&*content, buffer => buffer.resource()) {
        Some(resource) if !range.is_empty() => Ok(work(resource, start.wrapping_add(range.start), range.len())?),
        _ => Ok(()),
    }
}

/// Destroys the handle, and frees the memory in order of the home stream if no other part of it is left. The null handle is
/// allowed.
///
/// Errors: the driver's, if it refuses to free the memory; the handle then stays valid.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_destroy(buffer: cudamem_buffer) -> cudamem_status {
    run("cudamem_buffer_destroy", || destroy("buffer", buffer, close))
}

/// As cudamem_buffer_destroy, in order of another stream, which waits for the work of the home stream. Beside calls of other
/// threads with the buffer it takes its turn.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_destroy_on(buffer: cudamem_buffer, stream: cudamem_stream) -> cudamem_status {
    run("cudamem_buffer_destroy_on", || {
        let stream = object("stream", stream)?;
        if buffer.id != 0 {
            // Apart from the end, which another thread's call may be the one to do.
            let memory = object("buffer", buffer)?;
            with!(&mut *memory.write(), buffer => buffer.set_stream(&stream))?;
        }
        destroy("buffer", buffer, close)
    })
}

/// As cudamem_buffer_destroy, for destructors, which can return no error: where the memory cannot be freed, the function of
/// cudamem_set_drop_error_callback is told, and the handle ends all the same.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_drop(buffer: cudamem_buffer) -> cudamem_status {
    run("cudamem_buffer_drop", || destroy("buffer", buffer, drop_object))
}
