//! Memory of cudarc as buffers.

use super::error_of;
use crate::memory::kind;
use crate::{Buffer, Context, Event, Refused, Result, Stream};
use ::cudarc::driver::{CudaSlice, DevicePtr, DevicePtrMut, SyncOnDrop};
use bytemuck::{AnyBitPattern, NoUninit};
use core::mem::ManuallyDrop;
use cuda_sys::CUdeviceptr;
use std::sync::Arc;

/// A slice of cudarc that a buffer owns.
struct AdoptedSlice<T> {
    slice: Option<CudaSlice<T>>,
    context: Context,
}

impl<T> Drop for AdoptedSlice<T> {
    fn drop(&mut self) {
        // cudarc frees memory of a default stream only where the context is current.
        let _current = self.context.bind();
        drop(self.slice.take());
    }
}

impl<T: NoUninit + AnyBitPattern> Buffer<T, kind::Device> {
    /// Takes memory of cudarc without a copy. Its stream becomes the home stream, and waits for the last read and the
    /// last write that cudarc has recorded for the slice. The drop frees the memory as cudarc does, in order of that stream, after the buffer's work.
    ///
    /// ```
    /// # let Ok(library) = std::env::var("SOFTGPU_LIBRARY") else { return Ok(()) };
    /// # // SAFETY: the tests name softgpu.
    /// # let _loaded = unsafe { cuda_mem::Driver::builder().cuda(library).load() }?;
    /// use cuda_mem::Buffer;
    /// let stream = cudarc::driver::CudaContext::new(0)?.new_stream()?;
    /// let slice = stream.clone_htod(&[1.0f32, 2.0, 3.0])?;
    /// let buffer = Buffer::from_cudarc(slice)?;
    /// assert_eq!(buffer.to_vec()?, [1.0, 2.0, 3.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// cudarc has given the slice away:
    ///
    /// ```compile_fail,E0382
    /// # fn program(stream: std::sync::Arc<cudarc::driver::CudaStream>) -> Result<(), Box<dyn std::error::Error>> {
    /// let slice = stream.clone_htod(&[1.0f32, 2.0, 3.0])?;
    /// let buffer = cuda_mem::Buffer::from_cudarc(slice)?;
    /// stream.clone_dtoh(&slice)?; // moved
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The stream captures, or is a per-thread default stream; cudarc reports an earlier error; as
    /// [`Context::from_cudarc`]. The error returns the slice.
    pub fn from_cudarc(mut slice: CudaSlice<T>) -> Result<Self, Box<Refused<CudaSlice<T>>>> {
        const CALL: &str = "Buffer::from_cudarc";
        let (length, (pointer, stream)) = match order(CALL, &mut slice) {
            Ok(ordered) => (slice.len(), ordered),
            Err(error) => return Err(Refused::new(slice, error)),
        };
        let owner = Arc::new(AdoptedSlice { slice: Some(slice), context: stream.context().clone() });
        // SAFETY: the slice has `length` elements and is alive while its owner is. cudarc frees it in order of its
        // stream, and nobody else has it.
        unsafe { Self::freed_in_order(CALL, pointer, length, owner.clone(), &stream) }.map_err(|error| {
            let slice = Arc::into_inner(owner).and_then(|mut owner| owner.slice.take());
            match slice {
                Some(slice) => Refused::new(slice, error),
                None => unreachable!("a refused call keeps no owner"),
            }
        })
    }
}

/// Makes the slice's stream wait for all of cudarc's work on the slice.
fn order<T>(call: &'static str, slice: &mut CudaSlice<T>) -> Result<(CUdeviceptr, Stream)> {
    let theirs = slice.stream().clone();
    let stream = Stream::from_cudarc(&theirs)?;
    stream.check_not_capturing(call)?;
    // An event that cudarc could not record. It keeps such errors here, until any thread's next call.
    theirs.context().check_err().map_err(|error| error_of(call, error))?;
    // cudarc makes the stream wait too, but nobody can know whether that failed.
    let (pointer, read) = slice.device_ptr(&theirs);
    wait_for(&stream, read)?;
    wait_for(&stream, slice.device_ptr_mut(&theirs).1)?;
    // A capture that has recorded one of the events would now include the stream.
    stream.check_not_capturing(call)?;
    Ok((pointer, stream))
}

/// Makes the stream wait for an event that cudarc has recorded after its last read or write.
fn wait_for(stream: &Stream, last: SyncOnDrop<'_>) -> Result<()> {
    // Its drop would record the event anew.
    let last = ManuallyDrop::new(last);
    let SyncOnDrop::Record(Some((event, _))) = &*last else { return Ok(()) };
    // SAFETY: the event is the context's, and lives while the slice is borrowed. cudarc requires of its users that no other
    // thread captures with it meanwhile.
    let event = unsafe { Event::borrow_raw(stream.context(), event.cu_event().cast()) };
    stream.wait(&event)
}
