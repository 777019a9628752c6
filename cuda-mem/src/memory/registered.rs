//! The program's own memory, made usable by devices.

use super::pinned::device_pointer;
use crate::driver::context::Liveness;
use crate::error::{call, forked};
use crate::lifetime::waiting::{Target, watched};
use crate::locks::{Mutex, MutexGuard};
use crate::memory::resource::{
    Accessibility, Block, BlockKind, MemoryResource, ResourceHandle, SharedResource, check_request, check_shape,
    host::{no_room, out_of_host_memory},
    kind,
};
use crate::{Context, Error, Feature, Refused, Result, Stream};
use bytemuck::Pod;
use core::fmt;
use core::ptr::{self, NonNull};
use cuda_sys::{
    CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_IOMEMORY, CU_MEMHOSTREGISTER_PORTABLE,
    CU_MEMHOSTREGISTER_READ_ONLY,
};
use std::sync::Arc;

const ALLOCATE: &str = "RegisteredMemory::allocate";

/// Owns host memory that can be registered: a `Vec`, a boxed slice, or a type of the program. Elements are plain data,
/// because devices may leave any bytes in them.
///
/// # Safety
///
/// While the owner lives and is not moved, its address and length stay the same, the memory is valid for reads and
/// writes (for reads, if it says [`is_read_only`](Self::is_read_only)), and nothing else uses it (or writes it). The owner's drop reads no element, because allocations from the memory as a
/// resource may leave bytes without a value.
pub unsafe trait HostOwner: Send + 'static {
    /// The type of the elements.
    type Element: Pod;

    /// The address of the first element.
    fn as_mut_ptr(&mut self) -> *mut Self::Element;

    /// The number of elements.
    fn length(&self) -> usize;

    /// Whether the memory may disappear as soon as the registration and its buffer are dropped, even if this value
    /// lives on. Their drops then wait, where they would otherwise be deferred because queued work waits for the CPU.
    fn is_borrowed(&self) -> bool {
        false
    }

    /// Whether the memory is valid for reads only. Its registration is then read-only, whatever the options say, and
    /// others may read the memory meanwhile.
    fn is_read_only(&self) -> bool {
        false
    }
}

// SAFETY: a vector that nobody changes keeps its elements in place.
unsafe impl<T: Pod + Send> HostOwner for Vec<T> {
    type Element = T;

    fn as_mut_ptr(&mut self) -> *mut T {
        self.as_mut_ptr()
    }

    fn length(&self) -> usize {
        self.len()
    }
}

// SAFETY: a box keeps its elements in place.
unsafe impl<T: Pod + Send> HostOwner for Box<[T]> {
    type Element = T;

    fn as_mut_ptr(&mut self) -> *mut T {
        <[T]>::as_mut_ptr(self)
    }

    fn length(&self) -> usize {
        self.len()
    }
}

/// Host memory that another object owns.
#[derive(Debug)]
pub struct BorrowedHostMemory<T> {
    start: NonNull<T>,
    length: usize,
    read_only: bool,
}

// SAFETY: the contract of `BorrowedHostMemory::new`: only this value uses the memory, on any thread.
unsafe impl<T: Send> Send for BorrowedHostMemory<T> {}

impl<T: Pod> BorrowedHostMemory<T> {
    /// Memory of `length` elements.
    ///
    /// # Safety
    ///
    /// The memory holds `length` aligned values of `T`, is valid for reads and writes, and stays so, unused by others,
    /// until the registration and its buffer have ended. Afterwards, bytes may have no value if the registered memory
    /// was allocated from as a resource.
    pub unsafe fn new(start: NonNull<T>, length: usize) -> Self {
        Self { start, length, read_only: false }
    }

    /// Memory of `length` elements that nobody may write, for example a mapped file. Its registration is read-only, as
    /// with [`RegisterOptions::read_only`].
    ///
    /// # Safety
    ///
    /// The memory holds `length` aligned values of `T`, is valid for reads, and stays so, written by nobody, until the
    /// registration and its buffer have ended.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// use cuda_mem::memory::{BorrowedHostMemory, RegisteredMemory};
    /// static WEIGHTS: [f32; 4] = [1.0, 2.0, 3.0, 4.0];
    /// // SAFETY: nobody writes the static, and it never ends.
    /// let weights = unsafe { BorrowedHostMemory::read_only((&WEIGHTS[0]).into(), WEIGHTS.len()) };
    /// let mut buffer = RegisteredMemory::new(&context, weights, Default::default())?.buffer(&stream)?;
    /// assert_eq!(buffer.to_vec()?, WEIGHTS);
    /// assert!(buffer.is_read_only() && buffer.fill(.., 0.0).is_err());
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub unsafe fn read_only(start: NonNull<T>, length: usize) -> Self {
        Self { start, length, read_only: true }
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

    fn is_read_only(&self) -> bool {
        self.read_only
    }
}

/// Options of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias("CU_MEMHOSTREGISTER_PORTABLE", "CU_MEMHOSTREGISTER_DEVICEMAP"))]
pub struct RegisterOptions {
    /// All contexts of the process treat it as page-locked. On by default.
    pub portable: bool,
    /// Kernels may address it. On by default, and always on with unified addresses.
    pub mapped: bool,
    /// Nobody writes it while it is registered: neither devices nor the CPU. The buffer refuses writes, its views and
    /// exports are read-only, and the memory serves no allocations. Requires [`Feature::ReadOnlyHostRegister`].
    #[doc(alias = "CU_MEMHOSTREGISTER_READ_ONLY")]
    pub read_only: bool,
    /// The memory belongs to another device and is mapped into the process, for example the BAR of a capture card.
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

/// The program's own memory, page-locked while this value or its buffer lives. The driver copies it as fast as memory
/// that the driver allocated, and kernels may address it. Cheap to clone.
///
/// As a resource it has one block, its memory, which one buffer at a time may use. An allocation from the resource may
/// leave bytes without a value, so [`into_owner`](Self::into_owner) refuses afterwards. Only [`buffer`](Self::buffer)
/// lends the memory with its values.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
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
    inner: Arc<Registration<O>>,
}

struct Registration<O: HostOwner> {
    context: Context,
    options: RegisterOptions,
    /// Whether the owner only borrows the memory.
    borrowed: bool,
    state: Mutex<RegistrationState<O>>,
}

struct RegistrationState<O> {
    /// Present until [`RegisteredMemory::into_owner`] takes it.
    owner: Option<O>,
    /// The memory; empty if it has no bytes or is not registered.
    block: Block,
    /// Whether a buffer uses the memory.
    lent: bool,
    /// The stream of a buffer whose drop did not wait for its work, because queued work waited for the CPU.
    unfinished: Option<Stream>,
    /// Whether it was ever lent without a type, by `allocate`. Bytes may then have no value.
    was_untyped: bool,
}

/// An owner whose memory is registered. While devices may reach the memory, it must not be reused, so a registered
/// owner is leaked instead of dropped.
struct RegisteredOwner<O> {
    owner: Option<O>,
    registered: bool,
}

impl<O> RegisteredOwner<O> {
    /// A method, so that a closure captures the whole value and not its field.
    fn set_registered(&mut self, registered: bool) {
        self.registered = registered;
    }
}

impl<O> Drop for RegisteredOwner<O> {
    fn drop(&mut self) {
        if self.registered {
            core::mem::forget(self.owner.take());
        }
    }
}

impl<O: HostOwner> RegisteredMemory<O> {
    /// Registers memory. The driver locks pages one by one, which takes about 0.1 ms for each MiB.
    ///
    /// # Errors
    ///
    /// The device does not support registering: [`Error::Unsupported`]. Some of the memory is registered already
    /// (CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED), belongs to the driver, or cannot be read, or not written
    /// though the registration is not read-only (CUDA_ERROR_INVALID_VALUE). There is not enough memory, or the limit on locked memory is reached. The owner is
    /// returned.
    pub fn new(context: &Context, owner: O, mut options: RegisterOptions) -> Result<Self, Box<Refused<O>>> {
        const { assert!(size_of::<O::Element>() != 0, "an element of a buffer has a size") };
        options.read_only |= owner.is_read_only();
        if let Err(error) = check_support(context, options) {
            return Err(Refused::new(owner, error));
        }
        let borrowed = owner.is_borrowed();
        let (owner, block) = (Some(owner), Block::EMPTY);
        let state = Mutex::new(RegistrationState { owner, block, lent: false, unfinished: None, was_untyped: false });
        let mut inner = Arc::new(Registration { context: context.clone(), options, borrowed, state });
        let alone = Arc::get_mut(&mut inner).unwrap_or_else(|| unreachable!("nobody else has the new value"));
        if let Err(error) = alone.register() {
            let owner = alone.state.get_mut().owner.take();
            return Err(Refused::new(owner.unwrap_or_else(|| unreachable!("nobody took it")), error));
        }
        Ok(Self { inner })
    }

    /// Lends the whole memory, with its values.
    pub(crate) fn lend_all(&self, stream: &Stream) -> Result<Block> {
        let size = self.inner.state().block.size();
        self.inner.lend(size, align_of::<O::Element>(), stream, false)
    }

    /// Takes back what was lent, once the work of `stream` is done or known.
    ///
    /// # Safety
    ///
    /// As [`MemoryResource::deallocate`].
    pub(super) unsafe fn give_back(&self, block: Block, stream: &Stream) -> Result<()> {
        // SAFETY: this function's contract.
        unsafe { self.inner.deallocate(block, stream) }
    }

    /// Takes back what was lent and not used.
    pub(crate) fn end_loan(&self) {
        self.inner.state().lent = false;
    }

    /// Ends the registration and returns the owner. The buffer must have ended before, which waits for its work.
    ///
    /// # Errors
    ///
    /// A buffer or a clone of this value is left; the memory was allocated as a resource. This value is returned.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// use cuda_mem::HostBuffer;
    /// use cuda_mem::memory::{RegisterOptions, RegisteredMemory};
    /// let registered = RegisteredMemory::new(&context, vec![1u32; 1000], RegisterOptions::default())?;
    /// drop(HostBuffer::<u64>::uninit(&registered, 500)?);
    /// assert!(registered.into_owner().is_err(), "some of the numbers may have no value");
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn into_owner(mut self) -> Result<O, Box<Refused<Self>>> {
        let refusal =
            |value: &str, rule| Error::invalid("RegisteredMemory::into_owner", "the registered memory", value, rule);
        let ended = "its buffer must have been closed or dropped, and its clones too";
        let Some(inner) = Arc::get_mut(&mut self.inner) else {
            return Err(Refused::new(self, refusal("in use", ended)));
        };
        if inner.state().was_untyped {
            let rule = "memory that was allocated from as a resource may hold no values: lend it only by `buffer`";
            return Err(Refused::new(self, refusal("lent without a type", rule)));
        }
        match inner.unregister() {
            Ok(Some(owner)) => Ok(owner),
            Ok(None) => Err(Refused::new(self, refusal("gone", ended))),
            Err(error) => Err(Refused::new(self, error)),
        }
    }

    /// The context in which the memory was registered.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }
}

const DOING: &str = "ending a registration of host memory";

fn check_support(context: &Context, options: RegisterOptions) -> Result<()> {
    context.device().require(Feature::HostRegister)?;
    if options.read_only {
        context.device().require(Feature::ReadOnlyHostRegister)?;
    }
    Ok(())
}

impl<O: HostOwner> Registration<O> {
    fn register(&mut self) -> Result<()> {
        let (context, state) = (&self.context, self.state.get_mut());
        let Some(owner) = &mut state.owner else { return Ok(()) };
        let (start, size) = (HostOwner::as_mut_ptr(owner).cast::<u8>(), owner.length() * size_of::<O::Element>());
        if size == 0 {
            return Ok(());
        }
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        // SAFETY: the memory belongs to the owner, which lives here until the registration ends.
        unsafe { call!(cuda.cuMemHostRegister_v2(start.cast(), size, self.options.flags())) }
            .map_err(|error| out_of_host_memory("RegisteredMemory::new", error, size))?;
        // From now on, kernels and copies of this process use the address.
        let _ = start.expose_provenance();
        let device_pointer = device_pointer(context, start).inspect_err(|_| {
            let _quiet = context.quiet_moment(&"the end of a registration of host memory", None);
            // SAFETY: registered above, and unused.
            let unregister = || unsafe { watched!(Target::context(context), cuda.cuMemHostUnregister(start.cast())) };
            // Try twice: nobody else can end the registration. The caller gets the first error.
            if let Err(error) = unregister().or_else(|_| unregister()) {
                context.drop_errors().push(DOING, error);
            }
        })?;
        let block = Block::host(device_pointer, start, size);
        state.block = if self.options.read_only { block.of_kind(BlockKind::ReadOnly) } else { block };
        Ok(())
    }
}

impl<O: HostOwner> Registration<O> {
    fn state(&self) -> MutexGuard<'_, RegistrationState<O>> {
        self.state.lock()
    }

    /// Lends the memory to work of a stream, with its values or, if `untyped`, without.
    fn lend(&self, size: usize, alignment: usize, stream: &Stream, untyped: bool) -> Result<Block> {
        let mut state = self.state();
        let address = state.block.device_pointer() as usize;
        if state.lent || size > state.block.size() {
            let what = if state.lent { "which a buffer uses" } else { "which is smaller" };
            return Err(no_room(ALLOCATE, size, format!("registered memory is one block, {what}")));
        }
        // The whole memory may be empty.
        check_shape(ALLOCATE, size.max(1), alignment, 1 << address.trailing_zeros().min(usize::BITS - 1))?;
        state.lent = state.block.size() != 0;
        let (block, unfinished) = (state.block, state.unfinished.take());
        // Without the lock: the order may wait for another thread, and the drop of the stream runs the program's code.
        drop(state);
        if let Err(error) = unfinished.as_ref().map_or(Ok(()), |unfinished| stream.order_after(unfinished)) {
            let mut state = self.state();
            (state.lent, state.unfinished) = (false, unfinished);
            return Err(error);
        }
        self.state().was_untyped |= untyped;
        Ok(block)
    }

    /// Ends the registration and returns the owner. The end of the context has ended the registration too.
    fn unregister(&mut self) -> Result<Option<O>> {
        let state = self.state.get_mut();
        if state.block.size() != 0 {
            let context = &self.context;
            let unregister = || {
                let _quiet = context.quiet_moment(&"the end of a registration of host memory", None);
                let (cuda, _current) = (context.driver().raw(), context.bind()?);
                state.unfinished.as_ref().map_or(Ok(()), Stream::wait_beside_captures)?;
                // SAFETY: we registered the memory, no buffer uses it, and its work is done.
                unsafe {
                    watched!(Target::context(context), cuda.cuMemHostUnregister(state.block.host_pointer().cast()))
                }
            };
            match unregister() {
                Err(error) if !context.is_ended_by(&error) => return Err(error),
                _ => state.block = Block::EMPTY,
            }
        }
        Ok(state.owner.take())
    }
}

impl<O: HostOwner> Drop for Registration<O> {
    fn drop(&mut self) {
        if forked() {
            return;
        }
        if self.borrowed || self.context.liveness() != Liveness::Alive {
            if let Err(error) = self.unregister() {
                core::mem::forget(self.state().owner.take());
                self.context.drop_errors().push(DOING, error);
            }
            return;
        }
        let state = self.state.get_mut();
        if state.block.size() == 0 {
            return;
        }
        let address = state.block.host_pointer().expose_provenance();
        let mut owned = RegisteredOwner { owner: state.owner.take(), registered: true };
        let target = Target::context(&self.context);
        let unregister = move |cuda: &cuda_sys::Driver| {
            let memory = ptr::with_exposed_provenance_mut(address);
            // SAFETY: we registered the memory; no buffer uses it, and its work is done.
            let ended = unsafe { watched!(target, cuda.cuMemHostUnregister(memory)) };
            owned.set_registered(ended.as_ref().is_err_and(|error| !error.is_teardown()));
            ended
        };
        if let Err(error) =
            self.context.free_with_owner(DOING, state.block.size(), state.unfinished.as_ref(), unregister)
        {
            self.context.drop_errors().push(DOING, error);
        }
    }
}

impl<O: HostOwner> Clone for RegisteredMemory<O> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

// SAFETY: the memory is registered and has a device address.
unsafe impl<O: HostOwner> ResourceHandle for RegisteredMemory<O> {
    type Kind = kind::Pinned;

    fn share(&self) -> SharedResource {
        self.inner.clone()
    }
}

// SAFETY: the owner's memory is lent once at a time and stays registered meanwhile, because the holder of the block
// also holds the resource.
unsafe impl<O: HostOwner> MemoryResource for Registration<O> {
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        if self.options.read_only {
            let rule = "nobody may write it: use `buffer`, which has its values";
            return Err(Error::invalid(ALLOCATE, "the memory", "registered as read-only", rule));
        }
        // `lend` knows which alignment the memory has.
        check_request(ALLOCATE, (size, alignment), usize::MAX, &self.context, stream)?;
        self.lend(size, alignment, stream, true)
    }

    unsafe fn deallocate(&self, _block: Block, stream: &Stream) -> Result<()> {
        // The owner gets the memory back only after the registration. Borrowed memory may disappear when this returns.
        let waits_for_cpu = !self.borrowed && self.context.waits_for_cpu();
        let unfinished = waits_for_cpu.then(|| stream.clone());
        if unfinished.is_none() {
            stream.wait_beside_captures()?;
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

impl<O: HostOwner> fmt::Debug for Registration<O> {
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
