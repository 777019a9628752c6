//! Any buffer: exclusive, shared or growable.

use crate::locks::{Guard, RwLock};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use cuda_mem::buffer::{Access, GrowableBuffer};
use cuda_mem::memory::VirtualMemory;
use cuda_mem::memory::kind::Any;
use cuda_mem::{Buffer, Error, Result, SharedBuffer, Stream};
use std::sync::{OnceLock, RwLockReadGuard, RwLockWriteGuard};

/// A buffer that several threads use: exclusive, shared or growable.
///
/// Calls that wait take their turn and use an alias of the buffer, without the lock: no other call waits for them,
/// except calls that also wait for the buffer, and calls that may move its memory.
#[derive(Debug)]
pub struct Memory {
    /// Held for a moment, by calls that only look or queue.
    content: RwLock<Content>,
    /// Serialises calls that wait. Taken before the lock.
    turn: RwLock<()>,
    /// The device's address, if it was asked for and stays as it is; otherwise 0.
    address: AtomicU64,
    /// An alias for the CPU's stores and loads, which take no lock. Made at the first of them.
    cpu_alias: OnceLock<Box<SharedBuffer<u8, Any>>>,
}

/// The buffer. Exclusive until it is sliced, because the count of a shared buffer would cost every allocation.
// With a tag of its own: one within the bytes of a buffer takes more instructions.
#[derive(Debug)]
#[repr(u8)]
pub enum Content {
    /// Memory with one owner.
    Exclusive(Buffer<u8, Any>),
    /// Memory with several owners, or one that once had several.
    Shared(SharedBuffer<u8, Any>),
    /// Memory with one owner, which grows.
    Growable(Box<GrowableBuffer<u8, Any>>),
}

/// Evaluates an expression with the buffer of a [`Content`], whatever its variant.
///
/// ```
/// # let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?;
/// # let stream = cuda_mem::Stream::new(&context)?;
/// # let source = cuda_mem_dynamic::Source::from(cuda_mem_dynamic::Resource::Device(cuda_mem::memory::DeviceMemory::new(&context)));
/// # let memory = cuda_mem_dynamic::Memory::new(source.allocate(4096, &stream)?);
/// assert_eq!(cuda_mem_dynamic::with!(&*memory.read(), buffer => buffer.len()), 4096);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[macro_export]
macro_rules! with {
    ($content:expr, $buffer:ident => $body:expr) => {
        match $content {
            $crate::Content::Exclusive($buffer) => $body,
            $crate::Content::Shared($buffer) => $body,
            $crate::Content::Growable($buffer) => $body,
        }
    };
}

/// Evaluates an expression with the `&Buffer` of a [`Content`], for functions that take only a `&Buffer`, not what
/// derefs to one.
#[macro_export]
macro_rules! with_buffer {
    ($content:expr, $buffer:ident => $body:expr) => {
        match $content {
            $crate::Content::Exclusive($buffer) => $body,
            $crate::Content::Shared($buffer) => $body,
            $crate::Content::Growable(growable) => {
                let $buffer = &***growable;
                $body
            }
        }
    };
}

/// Evaluates an expression with the `&mut Buffer` of a [`Content`].
#[macro_export]
macro_rules! with_buffer_mut {
    ($content:expr, $buffer:ident => $body:expr) => {
        match $content {
            $crate::Content::Exclusive($buffer) => $body,
            $crate::Content::Shared($buffer) => $body,
            $crate::Content::Growable(growable) => {
                let $buffer = &mut ***growable;
                $body
            }
        }
    };
}

impl Content {
    /// The range of an offset and a size within the buffer, as [`range`] checks it.
    pub(crate) fn range(&self, call: &'static str, offset: usize, size: usize) -> Result<Range<usize>> {
        range(call, offset, size, with!(self, buffer => buffer.len()))
    }

    /// The program gets the device's address, and may queue kernels that wait for the CPU's stores. So the stores must
    /// wait only for the work until now.
    #[inline]
    pub fn mark_work(&self) {
        let marked = match self {
            Content::Exclusive(buffer) => buffer.mark_work(),
            Content::Growable(growable) => growable.mark_work(),
            // It was marked when it became shared.
            Content::Shared(_) => Ok(()),
        };
        // While the stream captures, no work can be marked. Then the first store waits for the whole stream.
        drop(marked);
    }
}

impl Memory {
    #[inline]
    fn of(content: Content) -> Self {
        let (address, cpu_alias) = (AtomicU64::new(0), OnceLock::new());
        Self { content: RwLock::new(content), turn: RwLock::new(()), address, cpu_alias }
    }

    /// Memory with one owner.
    #[inline]
    pub fn new(buffer: Buffer<u8, Any>) -> Self {
        Self::of(Content::Exclusive(buffer))
    }

    /// Memory with several owners.
    pub fn shared(buffer: SharedBuffer<u8, Any>) -> Self {
        Self::of(Content::Shared(buffer))
    }

    /// A growable buffer without bytes.
    ///
    /// # Errors
    ///
    /// Those of [`GrowableBuffer::with_capacity`].
    pub fn growable(memory: &VirtualMemory<Any>, capacity: usize, stream: &Stream) -> Result<Self> {
        let growable = GrowableBuffer::with_capacity(memory, capacity, stream)?;
        Ok(Self::of(Content::Growable(Box::new(growable))))
    }

    /// Calls `work` with a growable buffer, or returns None: the buffer does not grow, or has been sliced.
    pub fn with_growable<R>(&self, work: impl FnOnce(&mut GrowableBuffer<u8, Any>) -> R) -> Option<R> {
        // Calls that wait use the memory where it is.
        let _turn = self.turn.write();
        match &mut *self.write() {
            Content::Growable(growable) => Some(work(growable)),
            _ => None,
        }
    }

    /// The device's address, and [marks the work](Content::mark_work). Takes no lock from the second call on, if neither
    /// the address changes nor the CPU reaches the memory.
    #[inline]
    pub fn device_pointer(&self) -> u64 {
        match self.address.load(Ordering::Relaxed) {
            0 => self.find_device_pointer(),
            address => address,
        }
    }

    fn find_device_pointer(&self) -> u64 {
        let content = self.read();
        content.mark_work();
        let (address, on_cpu) = with!(&*content, buffer => {
            (buffer.device_pointer(), buffer.accessibility().managed || buffer.host_pointer_if_any().is_some())
        });
        if !on_cpu && !matches!(*content, Content::Growable(_)) {
            self.address.store(address, Ordering::Relaxed);
        }
        address
    }

    /// The memory for the CPU's stores and loads, which are not kept apart from other uses. Takes no lock from the second
    /// call on.
    ///
    /// # Errors
    ///
    /// The process was forked from one that had loaded the driver.
    #[inline]
    pub fn cpu_alias(&self) -> Result<&SharedBuffer<u8, Any>> {
        match self.cpu_alias.get() {
            Some(memory) => Ok(memory),
            None => self.make_cpu_alias(),
        }
    }

    #[cold]
    fn make_cpu_alias(&self) -> Result<&SharedBuffer<u8, Any>> {
        let memory = Box::new(self.slice(0, usize::MAX)?);
        // Another thread may have been faster.
        Ok(self.cpu_alias.get_or_init(|| memory))
    }

    /// Whether the driver moves the memory between device and host.
    pub fn is_managed(&self) -> bool {
        with!(&*self.read(), buffer => buffer.accessibility().managed)
    }

    /// Whether the memory lies in the host.
    pub fn is_of_host(&self) -> bool {
        with!(&*self.read(), buffer => buffer.device_ordinal().is_none())
    }

    /// Locks the buffer, for calls that look and do not wait.
    #[inline]
    pub fn read(&self) -> Guard<RwLockReadGuard<'_, Content>> {
        self.content.read()
    }

    /// Locks the buffer, for calls that change it or queue work, and do not wait.
    #[inline]
    pub fn write(&self) -> Guard<RwLockWriteGuard<'_, Content>> {
        self.content.write()
    }

    /// Whether this buffer comes first where a call takes two.
    pub(crate) fn is_before(&self, other: &Memory) -> bool {
        core::ptr::from_ref(self).addr() < core::ptr::from_ref(other).addr()
    }

    /// Calls `read`, which may wait, with an alias of the buffer, beside other readers and without the lock.
    ///
    /// # Errors
    ///
    /// Those of `read`; the work of the alias cannot be recorded.
    pub fn read_aside<R, E: From<Error>>(&self, read: impl FnOnce(&Content) -> Result<R, E>) -> Result<R, E> {
        let _turn = self.turn.read();
        self.aside(|alias| read(alias))
    }

    /// Calls `write`, which may wait, with an alias of the buffer, without the lock.
    ///
    /// # Errors
    ///
    /// As [`read_aside`](Self::read_aside).
    pub fn write_aside<R, E: From<Error>>(&self, write: impl FnOnce(&mut Content) -> Result<R, E>) -> Result<R, E> {
        let _turn = self.turn.write();
        self.aside(write)
    }

    fn aside<R, E: From<Error>>(&self, work: impl FnOnce(&mut Content) -> Result<R, E>) -> Result<R, E> {
        // SAFETY: the memory lives as long as this value, and what may move it waits for the caller's turn.
        let mut alias = unsafe {
            match &*self.read() {
                Content::Exclusive(buffer) => Content::Exclusive(buffer.alias()),
                Content::Shared(buffer) => Content::Shared(buffer.alias()),
                Content::Growable(growable) => Content::Exclusive(growable.alias()),
            }
        };
        let done = work(&mut alias);
        let absorbed = match (&*self.read(), alias) {
            (Content::Exclusive(buffer), Content::Exclusive(alias)) => buffer.absorb(alias),
            (Content::Growable(growable), Content::Exclusive(alias)) => growable.absorb(alias),
            (Content::Shared(buffer), Content::Shared(alias)) => buffer.absorb(alias),
            // It was divided meanwhile.
            (content, alias) => {
                let alias = with!(&alias, alias => alias.stream().clone());
                with!(content, buffer => buffer.record_use(&alias))
            }
        };
        done.and_then(|done| Ok(absorbed.map(|()| done)?))
    }

    /// Frees the memory in order of the home stream, if it has one owner. Memory that was divided is freed when its last
    /// part is dropped.
    ///
    /// # Errors
    ///
    /// The driver's, if it refuses to free the memory. The value is then unchanged.
    ///
    /// # Safety
    ///
    /// After a success the caller only drops the value.
    #[inline]
    pub unsafe fn close_in_place(&mut self) -> Result<()> {
        match self.content.get_mut() {
            // SAFETY: the caller drops the buffer next.
            Content::Exclusive(buffer) => unsafe { buffer.close_in_place() },
            // SAFETY: as above.
            Content::Growable(growable) => unsafe { growable.close_in_place() },
            // Dropping the last part frees the memory.
            Content::Shared(_) => Ok(()),
        }
    }

    /// Frees the memory in order of the home stream, if nothing else has a part of the memory. Otherwise refuses.
    ///
    /// # Errors
    ///
    /// [`Error::StillShared`] if a slice, an array, another library or another process has it; the driver's, if it refuses
    /// to free the memory. The value is then unchanged.
    ///
    /// # Safety
    ///
    /// After a success the caller only drops the value.
    #[inline]
    pub unsafe fn close_alone_in_place(&mut self) -> Result<()> {
        match self.content.get_mut() {
            Content::Shared(_) => self.close_shared(),
            // SAFETY: this function's contract.
            _ => unsafe { self.close_in_place() },
        }
    }

    fn close_shared(&mut self) -> Result<()> {
        // It is a part too. The next store or load makes it anew.
        drop(self.cpu_alias.take());
        let Content::Shared(shared) = self.content.get_mut() else { return Ok(()) };
        let stand_in = empty(shared)?.into_shared();
        core::mem::replace(shared, stand_in).close().map_err(|refused| {
            *shared = refused.value;
            refused.error
        })
    }

    /// Calls `work` with a buffer of its own for a range of the memory. That buffer has ended when this returns, so an
    /// exclusive buffer stays exclusive. `size` is `usize::MAX` for everything from `offset` on.
    ///
    /// # Errors
    ///
    /// The range does not lie within the memory; those of `work`.
    pub fn with_part<R, E: From<Error>>(
        &self,
        offset: usize,
        size: usize,
        work: impl FnOnce(SharedBuffer<u8, Any>) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut content = self.write();
        let range = content.range("Memory::with_part", offset, size)?;
        let buffer = match &mut *content {
            Content::Shared(shared) => return work(shared.slice(range)?),
            Content::Exclusive(buffer) => buffer,
            Content::Growable(growable) => growable,
        };
        let stand_in = empty(buffer)?;
        let shared = core::mem::replace(buffer, stand_in).into_shared();
        let done = shared.slice(range).map_err(E::from).and_then(work);
        match shared.try_into_exclusive() {
            Ok(exclusive) => *buffer = exclusive,
            // `work` kept a part of the buffer, so it stays shared.
            Err(refused) => *content = Content::Shared(refused.value),
        }
        done
    }

    /// Makes a buffer of its own for a range of the memory. From now on the memory is shared. `size` is `usize::MAX` for
    /// everything from `offset` on.
    ///
    /// # Errors
    ///
    /// The range does not lie within the memory.
    pub fn slice(&self, offset: usize, size: usize) -> Result<SharedBuffer<u8, Any>> {
        let mut content = self.write();
        let range = content.range("Memory::slice", offset, size)?;
        if !matches!(*content, Content::Shared(_)) {
            // Nothing between here and the assignment can fail, so the placeholder never stays.
            let stand_in = Content::Exclusive(with!(&*content, buffer => empty(buffer))?);
            *content = Content::Shared(match core::mem::replace(&mut *content, stand_in) {
                Content::Exclusive(buffer) => buffer.into_shared(),
                Content::Growable(growable) => growable.into_buffer().into_shared(),
                Content::Shared(shared) => shared,
            });
        }
        match &*content {
            Content::Shared(shared) => Ok(shared.slice(range)?),
            Content::Exclusive(_) | Content::Growable(_) => unreachable!("shared above"),
        }
    }
}

/// A buffer without bytes.
fn empty<A: Access>(like: &Buffer<u8, Any, A>) -> Result<Buffer<u8, Any>> {
    // SAFETY: a buffer without bytes accesses no memory.
    unsafe { Buffer::from_raw(0, 0, like.stream()) }
}

/// Checks an offset and a size against a length. A size of `usize::MAX` means everything from the offset on.
///
/// # Errors
///
/// [`Error::OutOfRange`], with the name `call`.
pub fn range(call: &'static str, offset: usize, size: usize, length: usize) -> Result<Range<usize>> {
    let size = if size == usize::MAX { length.saturating_sub(offset) } else { size };
    match offset.checked_add(size) {
        Some(end) if end <= length => Ok(offset..end),
        _ => Err(Error::OutOfRange { call, offset, length: size, size: length }),
    }
}

/// Locks two different buffers, always in the same order, so that threads that copy in opposite directions do not
/// deadlock.
pub fn lock_both<'memory>(
    to: &'memory Memory,
    from: &'memory Memory,
) -> (Guard<RwLockWriteGuard<'memory, Content>>, Guard<RwLockReadGuard<'memory, Content>>) {
    if to.is_before(from) {
        let to = to.write();
        (to, from.read())
    } else {
        let from = from.read();
        (to.write(), from)
    }
}
