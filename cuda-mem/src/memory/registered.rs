//! Memory of the program's own that devices may use.

use super::pinned::device_pointer;
use crate::buffer::{Buffer, Refused};
use crate::context::Liveness;
use crate::error::call;
use crate::resource::{
    Accessibility, Block, MemoryResource, ResourceHandle, SharedResource, check_alignment,
    host::{no_room, out_of_host_memory},
    kind,
};
use crate::{Context, Error, Feature, Result, Stream};
use bytemuck::Pod;
use core::fmt;
use core::ptr::{self, NonNull};
use cuda_sys::{
    CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_IOMEMORY, CU_MEMHOSTREGISTER_PORTABLE,
    CU_MEMHOSTREGISTER_READ_ONLY,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Owns memory of the host that can be registered: a `Vec`, a boxed slice, or a type of the program's own. Elements are
/// plain data, because devices may leave any bytes in them.
///
/// # Safety
///
/// While the owner lives and is not moved, the address and the length stay the same; the memory is valid for reads and
/// writes, and nothing else uses it. The owner's drop reads no element: memory that was allocated from as a resource may
/// hold no values.
pub unsafe trait HostOwner: Send + 'static {
    /// What the memory holds.
    type Element: Pod;

    /// The address of the first element.
    fn as_mut_ptr(&mut self) -> *mut Self::Element;

    /// The number of elements.
    fn length(&self) -> usize;

    /// Whether the memory may be gone as soon as the registration and its buffer were dropped, whatever becomes of this value.
    /// Their drops then wait where they are otherwise put off, while queued work waits for the CPU.
    fn is_borrowed(&self) -> bool {
        false
    }
}

// SAFETY: a vector that nobody changes keeps its elements where they are.
unsafe impl<T: Pod + Send> HostOwner for Vec<T> {
    type Element = T;

    fn as_mut_ptr(&mut self) -> *mut T {
        self.as_mut_ptr()
    }

    fn length(&self) -> usize {
        self.len()
    }
}

// SAFETY: a box keeps its elements where they are.
unsafe impl<T: Pod + Send> HostOwner for Box<[T]> {
    type Element = T;

    fn as_mut_ptr(&mut self) -> *mut T {
        <[T]>::as_mut_ptr(self)
    }

    fn length(&self) -> usize {
        self.len()
    }
}

/// Memory of the host that something else owns.
#[derive(Debug)]
pub struct BorrowedHostMemory<T> {
    start: NonNull<T>,
    length: usize,
}

// SAFETY: whoever borrowed the memory lets this value alone use it, on any thread.
unsafe impl<T: Send> Send for BorrowedHostMemory<T> {}

impl<T: Pod> BorrowedHostMemory<T> {
    /// Memory of `length` elements.
    ///
    /// # Safety
    ///
    /// The memory holds `length` aligned values of `T`, is valid for reads and writes, and stays so, used by nothing
    /// else, until the registration and its buffer have ended. After that, bytes may have no value if the registered memory
    /// was allocated from as a resource. Memory that is only valid for reads will do if nothing writes the buffer: not the
    /// CPU, and no device.
    pub unsafe fn new(start: NonNull<T>, length: usize) -> Self {
        Self { start, length }
    }
}

// SAFETY: the contract of `BorrowedHostMemory::new`.
unsafe impl<T: Pod + Send> HostOwner for BorrowedHostMemory<T> {
    type Element = T;

    fn as_mut_ptr(&mut self) -> *mut T {
        self.start.as_ptr()
    }

    fn length(&self) -> usize {
        self.length
    }

    fn is_borrowed(&self) -> bool {
        true
    }
}

/// How memory is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias("CU_MEMHOSTREGISTER_PORTABLE", "CU_MEMHOSTREGISTER_DEVICEMAP"))]
pub struct RegisterOptions {
    /// All contexts of the process know it as page-locked. On by default.
    pub portable: bool,
    /// Kernels may address it. On by default; with unified addresses it always is.
    pub mapped: bool,
    /// Devices only read it. Needs [`Feature::ReadOnlyHostRegister`].
    #[doc(alias = "CU_MEMHOSTREGISTER_READ_ONLY")]
    pub read_only: bool,
    /// It is memory of another device's, mapped into the process: a capture card's BAR.
    #[doc(alias = "CU_MEMHOSTREGISTER_IOMEMORY")]
    pub io_memory: bool,
}

impl Default for RegisterOptions {
    fn default() -> Self {
        Self { portable: true, mapped: true, read_only: false, io_memory: false }
    }
}

impl RegisterOptions {
    fn flags(self) -> u32 {
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        flag(self.portable, CU_MEMHOSTREGISTER_PORTABLE)
            | flag(self.mapped, CU_MEMHOSTREGISTER_DEVICEMAP)
            | flag(self.read_only, CU_MEMHOSTREGISTER_READ_ONLY)
            | flag(self.io_memory, CU_MEMHOSTREGISTER_IOMEMORY)
    }
}

/// Memory of the program's own, page-locked for as long as this value or its buffer lives. The driver copies it as fast
/// as memory that it allocated, and kernels may address it. Cheap to clone.
///
/// As a resource it has one block, its memory, which one buffer at a time may have. Whoever allocates the block may leave it
/// without values, so the owner does not come back after that: only [`buffer`](Self::buffer) lends the memory with its values.
///
/// ```
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// # let stream = cuda_mem::Stream::new(&context)?;
/// use cuda_mem::memory::{RegisterOptions, RegisteredMemory};
/// let registered = RegisteredMemory::new(&context, vec![1u32; 1000], RegisterOptions::default())?;
/// let mut buffer = registered.buffer(&stream)?;
/// buffer.fill(500.., 2)?; // by the device, in the vector's memory
/// buffer.close()?; // waits for the device
/// let samples = registered.into_owner()?;
/// assert_eq!((samples[499], samples[500]), (1, 2));
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[doc(alias("cuMemHostRegister", "cuMemHostUnregister"))]
pub struct RegisteredMemory<O: HostOwner> {
    inner: Arc<Inner<O>>,
}

struct Inner<O: HostOwner> {
    context: Context,
    options: RegisterOptions,
    /// Whether the owner only borrows the memory.
    borrowed: bool,
    state: Mutex<State<O>>,
}

struct State<O> {
    /// There until [`RegisteredMemory::into_owner`] takes it.
    owner: Option<O>,
    /// The memory; empty if it has no bytes, or is not registered.
    block: Block,
    /// Whether a buffer has the memory.
    lent: bool,
    /// The stream of a buffer that ended while its work waited for the CPU, and so before its work.
    unfinished: Option<Stream>,
    /// Whether it was ever lent as a resource's, without a type: then bytes of it may have no value.
    was_untyped: bool,
}

/// An owner whose memory is registered. Memory that devices may reach must not become other memory, so it is dropped only
/// after the registration.
struct Owned<O> {
    owner: Option<O>,
    registered: bool,
}

impl<O> Owned<O> {
    /// A method, so that a closure takes the whole and not its field.
    fn set_registered(&mut self, registered: bool) {
        self.registered = registered;
    }
}

impl<O> Drop for Owned<O> {
    fn drop(&mut self) {
        if self.registered {
            core::mem::forget(self.owner.take());
        }
    }
}

impl<O: HostOwner> RegisteredMemory<O> {
    /// Registers memory. Pages are locked, one by one: this takes some 0.1 ms for each MiB.
    ///
    /// # Errors
    ///
    /// The device does not register memory: [`Error::Unsupported`]. Some of the memory is registered already
    /// (CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED), is the driver's, or cannot be read and written
    /// (CUDA_ERROR_INVALID_VALUE). There is no room, or the limit on locked memory is reached. The owner is given back.
    pub fn new(context: &Context, owner: O, options: RegisterOptions) -> Result<Self, Box<Refused<O>>> {
        const { assert!(size_of::<O::Element>() != 0, "an element of a buffer has a size") };
        if let Err(error) = check_support(context, options) {
            return Err(Refused::new(owner, error));
        }
        let borrowed = owner.is_borrowed();
        let (owner, block) = (Some(owner), Block::EMPTY);
        let state = Mutex::new(State { owner, block, lent: false, unfinished: None, was_untyped: false });
        let memory = Self { inner: Arc::new(Inner { context: context.clone(), options, borrowed, state }) };
        match memory.inner.register() {
            Ok(()) => Ok(memory),
            Err(error) => {
                let owner = memory.inner.state().owner.take();
                Err(Refused::new(owner.unwrap_or_else(|| unreachable!("nobody else has the new value")), error))
            }
        }
    }

    /// The memory as a buffer, with the values that it has. `stream` becomes the home stream. The registration lasts until
    /// the buffer has ended, even if this value ends before.
    ///
    /// # Errors
    ///
    /// Another buffer has it: [`Error::OutOfMemory`]. The stream cannot be its home.
    pub fn buffer(&self, stream: &Stream) -> Result<Buffer<O::Element, kind::Pinned>> {
        let size = self.inner.state().block.size;
        let block = self.inner.lend(size, align_of::<O::Element>(), stream, false)?;
        let length = block.size / size_of::<O::Element>();
        // SAFETY: the block is the owner's memory, lent just now, and holds that many values.
        unsafe { Buffer::from_block(block, self, length, stream) }.inspect_err(|_| self.inner.state().lent = false)
    }

    /// Ends the registration, and gives the memory back. Its buffer has to have ended, which waited for its work.
    ///
    /// # Errors
    ///
    /// A buffer or a clone of this value is left; the memory was allocated as a resource's; the driver refuses. This value
    /// is given back.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// use cuda_mem::HostBuffer;
    /// use cuda_mem::memory::{RegisterOptions, RegisteredMemory};
    /// let registered = RegisteredMemory::new(&context, vec![1u32; 1000], RegisterOptions::default())?;
    /// drop(HostBuffer::<u64>::uninit(&registered, 500)?);
    /// assert!(registered.into_owner().is_err(), "some of the numbers may have no value");
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn into_owner(mut self) -> Result<O, Box<Refused<Self>>> {
        let refusal = |value: &str, rule| Error::InvalidArgument {
            call: "RegisteredMemory::into_owner",
            argument: "the registered memory",
            value: value.into(),
            rule,
        };
        let ended = "its buffer must have been closed or dropped, and its clones too";
        let Some(inner) = Arc::get_mut(&mut self.inner) else {
            return Err(Refused::new(self, refusal("in use", ended)));
        };
        if inner.state().was_untyped {
            let rule = "memory that was allocated from as a resource may hold no values: lend it by `buffer` alone";
            return Err(Refused::new(self, refusal("lent without a type", rule)));
        }
        match inner.unregister() {
            Ok(Some(owner)) => Ok(owner),
            Ok(None) => Err(Refused::new(self, refusal("gone", ended))),
            Err(error) => Err(Refused::new(self, error)),
        }
    }

    /// The context that the memory was registered in.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }
}

fn check_support(context: &Context, options: RegisterOptions) -> Result<()> {
    context.device().require(Feature::HostRegister)?;
    if options.read_only {
        context.device().require(Feature::ReadOnlyHostRegister)?;
    }
    Ok(())
}

impl<O: HostOwner> Inner<O> {
    fn register(&self) -> Result<()> {
        let mut state = self.state();
        let Some(owner) = &mut state.owner else { return Ok(()) };
        let (start, size) = (HostOwner::as_mut_ptr(owner).cast::<u8>(), owner.length() * size_of::<O::Element>());
        if size == 0 {
            return Ok(());
        }
        let (cuda, _current) = (self.context.driver().raw(), self.context.bind()?);
        // SAFETY: the memory is the owner's, which lives here until it is no longer registered.
        unsafe { call!(cuda.cuMemHostRegister_v2(start.cast(), size, self.options.flags())) }
            .map_err(|error| out_of_host_memory("RegisteredMemory::new", error, size))?;
        // Kernels and copies of this process take the address from now on.
        let _ = start.expose_provenance();
        match device_pointer(&self.context, start) {
            Ok(device_pointer) => {
                state.block = Block { device_pointer, host_pointer: start, size };
                Ok(())
            }
            Err(error) => {
                // SAFETY: registered above, and used by nothing. The first error is the one to tell.
                let _ = unsafe { call!(cuda.cuMemHostUnregister(start.cast())) };
                Err(error)
            }
        }
    }
}

impl<O: HostOwner> Inner<O> {
    fn state(&self) -> MutexGuard<'_, State<O>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends the memory to work of a stream, with the values that it has, or without a type.
    fn lend(&self, size: usize, alignment: usize, stream: &Stream, untyped: bool) -> Result<Block> {
        const CALL: &str = "RegisteredMemory::allocate";
        let mut state = self.state();
        let address = state.block.device_pointer as usize;
        if state.lent || size > state.block.size {
            let what = if state.lent { "which a buffer has" } else { "which is smaller" };
            return Err(no_room(CALL, size, format!("registered memory is one block, {what}")));
        }
        check_alignment(CALL, alignment, 1 << address.trailing_zeros().min(usize::BITS - 1))?;
        if let Some(unfinished) = &state.unfinished {
            stream.follow(unfinished)?;
            state.unfinished = None;
        }
        state.lent = state.block.size != 0;
        state.was_untyped |= untyped;
        Ok(state.block)
    }

    /// Ends the registration and gives the owner. A context that has ended has ended it too.
    fn unregister(&mut self) -> Result<Option<O>> {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.block.size != 0 {
            let context = &self.context;
            let unregister = || {
                let _quiet = context.quiet_moment(&"the end of a registration of host memory", None);
                let (cuda, _current) = (context.driver().raw(), context.bind()?);
                state.unfinished.as_ref().map_or(Ok(()), Stream::drain)?;
                // SAFETY: registered by us, no buffer has it, and what used it is done.
                unsafe { call!(cuda.cuMemHostUnregister(state.block.host_pointer.cast())) }
            };
            match unregister() {
                Err(error) if !error.is_teardown() => return Err(error),
                _ => state.block = Block::EMPTY,
            }
        }
        Ok(state.owner.take())
    }
}

impl<O: HostOwner> Drop for Inner<O> {
    fn drop(&mut self) {
        const DOING: &str = "ending a registration of host memory";
        if self.borrowed || self.context.liveness() != Liveness::Alive {
            if let Err(error) = self.unregister() {
                core::mem::forget(self.state().owner.take());
                self.context.drop_errors().push(DOING, error);
            }
            return;
        }
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.block.size == 0 {
            return;
        }
        let address = state.block.host_pointer.expose_provenance();
        let mut owned = Owned { owner: state.owner.take(), registered: true };
        let unregister = move |cuda: &cuda_sys::Driver| {
            // SAFETY: registered by us; no buffer has it, and what used it is done.
            let ended = unsafe { call!(cuda.cuMemHostUnregister(ptr::with_exposed_provenance_mut(address))) };
            owned.set_registered(ended.as_ref().is_err_and(|error| !error.is_teardown()));
            ended
        };
        if let Err(error) = self.context.free_by_waiting(DOING, state.unfinished.as_ref(), unregister) {
            self.context.drop_errors().push(DOING, error);
        }
    }
}

impl<O: HostOwner> Clone for RegisteredMemory<O> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

// SAFETY: the memory is registered, with an address for devices.
unsafe impl<O: HostOwner> ResourceHandle for RegisteredMemory<O> {
    type Kind = kind::Pinned;

    fn share(&self) -> SharedResource {
        self.inner.clone()
    }
}

// SAFETY: the owner's memory is lent once at a time, and stays registered while it is lent: who has the block has the
// resource too.
unsafe impl<O: HostOwner> MemoryResource for Inner<O> {
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        self.lend(size, alignment, stream, true)
    }

    unsafe fn deallocate(&self, _block: Block, stream: &Stream) -> Result<()> {
        // The owner has the memory back when it is no longer registered. Borrowed memory may be gone when this returns.
        let waits_for_cpu = !self.borrowed && self.context.waits_for_cpu();
        let unfinished = waits_for_cpu.then(|| stream.clone());
        if unfinished.is_none() {
            stream.drain()?;
        }
        let mut state = self.state();
        state.lent = false;
        state.unfinished = unfinished;
        Ok(())
    }

    unsafe fn abandon(&self, _block: Block) {
        self.state().lent = false;
    }

    fn context(&self) -> &Context {
        &self.context
    }

    fn accessibility(&self) -> Accessibility {
        Accessibility::BOTH
    }
}

impl<O: HostOwner> fmt::Debug for RegisteredMemory<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<O: HostOwner> fmt::Debug for Inner<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("RegisteredMemory")
            .field("block", &state.block)
            .field("lent", &state.lent)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_the_drivers_flags() {
        assert_eq!(RegisterOptions::default().flags(), 3);
        let all = RegisterOptions { portable: false, mapped: false, read_only: true, io_memory: true };
        assert_eq!(all.flags(), 12);
    }
}
