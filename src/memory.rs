//! The object behind a buffer's handle.

use crate::call::{Failure, Outcome, invalid, range};
use crate::handle::Use;
use crate::handles::cudamem_buffer;
use crate::locks::{Guard, RwLock};
use core::sync::atomic::{AtomicU64, Ordering};
use cuda_mem::buffer::Access;
use cuda_mem::buffer::GrowableBuffer;
use cuda_mem::memory::VirtualMemory;
use cuda_mem::memory::kind::Any;
use cuda_mem::{Buffer, SharedBuffer};
use std::sync::{OnceLock, RwLockReadGuard, RwLockWriteGuard};

/// The object behind a buffer's handle.
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
    /// The memory as the CPU's stores and loads use it, beside all other calls. Made at the first of them.
    beside: OnceLock<Box<SharedBuffer<u8, Any>>>,
}

/// The buffer. Exclusive until it is sliced, because the count of a shared buffer would cost every allocation.
#[derive(Debug)]
pub(crate) enum Content {
    Exclusive(Buffer<u8, Any>),
    Shared(SharedBuffer<u8, Any>),
    Growable(Box<GrowableBuffer<u8, Any>>),
}

/// Evaluates an expression with the buffer, whatever its variant.
macro_rules! with {
    ($content:expr, $buffer:ident => $body:expr) => {
        match $content {
            $crate::memory::Content::Exclusive($buffer) => $body,
            $crate::memory::Content::Shared($buffer) => $body,
            $crate::memory::Content::Growable($buffer) => $body,
        }
    };
}
pub(crate) use with;

/// As `with`, for functions that take a `Buffer` and nothing that derefs to one.
macro_rules! with_engine {
    ($content:expr, $buffer:ident => $body:expr) => {
        $crate::memory::with_engine!(as_buffer, $content, $buffer => $body)
    };
    ($as_buffer:ident, $content:expr, $buffer:ident => $body:expr) => {
        match $content {
            $crate::memory::Content::Exclusive($buffer) => $body.map_err($crate::call::Failure::from),
            $crate::memory::Content::Shared($buffer) => $body.map_err($crate::call::Failure::from),
            $crate::memory::Content::Growable(growable) => {
                let $buffer = $crate::memory::$as_buffer(growable);
                $body.map_err($crate::call::Failure::from)
            }
        }
    };
}

pub(crate) use with_engine;

/// As `with_engine`, for functions that change the buffer.
macro_rules! with_engine_mut {
    ($content:expr, $buffer:ident => $body:expr) => {
        $crate::memory::with_engine!(as_buffer_mut, $content, $buffer => $body)
    };
}

pub(crate) use with_engine_mut;

pub(crate) fn as_buffer(growable: &GrowableBuffer<u8, Any>) -> &Buffer<u8, Any> {
    growable
}

pub(crate) fn as_buffer_mut(growable: &mut GrowableBuffer<u8, Any>) -> &mut Buffer<u8, Any> {
    growable
}

impl Content {
    /// The program gets the device's address, and may queue kernels that wait for the CPU's stores. So the stores must
    /// wait only for the work until now.
    #[inline]
    pub(crate) fn mark_work(&self) {
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
        let (address, beside) = (AtomicU64::new(0), OnceLock::new());
        Self { content: RwLock::new(content), turn: RwLock::new(()), address, beside }
    }

    #[inline]
    pub(crate) fn new(buffer: Buffer<u8, Any>) -> Self {
        Self::of(Content::Exclusive(buffer))
    }

    /// Memory with several owners.
    pub(crate) fn shared(buffer: SharedBuffer<u8, Any>) -> Self {
        Self::of(Content::Shared(buffer))
    }

    /// A growable buffer without bytes.
    pub(crate) fn growable(
        memory: &VirtualMemory<Any>,
        capacity: usize,
        stream: &cuda_mem::Stream,
    ) -> cuda_mem::Result<Self> {
        let growable = GrowableBuffer::with_capacity(memory, capacity, stream)?;
        Ok(Self::of(Content::Growable(Box::new(growable))))
    }

    /// Calls `work` with a growable buffer; other buffers are refused.
    pub(crate) fn with_growable<R>(
        &self,
        work: impl FnOnce(&mut GrowableBuffer<u8, Any>) -> cuda_mem::Result<R>,
    ) -> Outcome<R> {
        // Calls that wait use the memory where it is.
        let _turn = self.turn.write();
        match &mut *self.write() {
            Content::Growable(growable) => Ok(work(growable)?),
            _ => {
                let rule = "it must be made by cudamem_buffer_create_growable, and must not be sliced";
                Err(invalid("buffer", "a buffer that does not grow", rule))
            }
        }
    }

    /// The device's address, and [marks the work](Content::mark_work). Takes no lock from the second call on, if neither
    /// the address changes nor the CPU reaches the memory.
    #[inline]
    pub(crate) fn device_pointer(&self) -> u64 {
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
    #[inline]
    pub(crate) fn beside(&self) -> Outcome<&SharedBuffer<u8, Any>> {
        match self.beside.get() {
            Some(memory) => Ok(memory),
            None => self.make_beside(),
        }
    }

    #[cold]
    fn make_beside(&self) -> Outcome<&SharedBuffer<u8, Any>> {
        let memory = Box::new(self.slice(0, usize::MAX)?);
        // Another thread may have been faster.
        Ok(self.beside.get_or_init(|| memory))
    }

    /// Whether the driver moves the memory between device and host.
    pub(crate) fn is_managed(&self) -> bool {
        with!(&*self.read(), buffer => buffer.accessibility().managed)
    }

    /// Whether the memory lies in the host.
    pub(crate) fn is_of_host(&self) -> bool {
        with!(&*self.read(), buffer => buffer.device_ordinal().is_none())
    }

    pub(crate) fn read(&self) -> Guard<RwLockReadGuard<'_, Content>> {
        self.content.read()
    }

    pub(crate) fn write(&self) -> Guard<RwLockWriteGuard<'_, Content>> {
        self.content.write()
    }

    /// Calls `read`, which may wait, with an alias of the buffer, beside other readers and without the lock.
    pub(crate) fn read_aside<R>(&self, read: impl FnOnce(&Content) -> Outcome<R>) -> Outcome<R> {
        let _turn = self.turn.read();
        self.aside(|alias| read(alias))
    }

    /// Calls `write`, which may wait, with an alias of the buffer, without the lock.
    pub(crate) fn write_aside<R>(&self, write: impl FnOnce(&mut Content) -> Outcome<R>) -> Outcome<R> {
        let _turn = self.turn.write();
        self.aside(write)
    }

    fn aside<R>(&self, work: impl FnOnce(&mut Content) -> Outcome<R>) -> Outcome<R> {
        // SAFETY: the memory lives as long as this value, and what may move it waits for the caller's turn.
        let mut alias = unsafe {
            match &*self.read() {
                Content::Exclusive(buffer) => Content::Exclusive(buffer.alias()),
                Content::Shared(buffer) => Content::Shared(buffer.alias()),
                Content::Growable(growable) => Content::Exclusive(as_buffer(growable).alias()),
            }
        };
        let done = work(&mut alias);
        let absorbed = match (&*self.read(), alias) {
            (Content::Exclusive(buffer), Content::Exclusive(alias)) => buffer.absorb(alias),
            (Content::Growable(growable), Content::Exclusive(alias)) => as_buffer(growable).absorb(alias),
            (Content::Shared(buffer), Content::Shared(alias)) => buffer.absorb(alias),
            // It was divided meanwhile.
            (content, alias) => {
                let alias = with!(&alias, alias => alias.stream().clone());
                with!(content, buffer => buffer.record_use(&alias))
            }
        };
        done.and_then(|done| Ok(absorbed.map(|()| done)?))
    }

    pub(crate) fn get_mut(&mut self) -> &mut Content {
        self.content.get_mut()
    }

    /// Calls `work` with a buffer of its own for a range of the memory. That buffer has ended when this returns, so an
    /// exclusive buffer stays exclusive.
    pub(crate) fn with_part<R>(
        &self,
        offset: usize,
        size: usize,
        work: impl FnOnce(SharedBuffer<u8, Any>) -> Outcome<R>,
    ) -> Outcome<R> {
        let mut content = self.write();
        let range = range(offset, size, with!(&*content, buffer => buffer.len()))?;
        let buffer = match &mut *content {
            Content::Shared(shared) => return work(shared.slice(range)?),
            Content::Exclusive(buffer) => buffer,
            Content::Growable(growable) => as_buffer_mut(growable),
        };
        let stand_in = empty(buffer)?;
        let shared = core::mem::replace(buffer, stand_in).into_shared();
        let done = shared.slice(range).map_err(Failure::from).and_then(work);
        match shared.try_into_exclusive() {
            Ok(exclusive) => *buffer = exclusive,
            // `work` kept a part of the buffer, so it stays shared.
            Err(refused) => *content = Content::Shared(refused.value),
        }
        done
    }

    /// Makes a buffer of its own for a range of the memory. From now on the memory is shared.
    pub(crate) fn slice(&self, offset: usize, size: usize) -> Outcome<SharedBuffer<u8, Any>> {
        let mut content = self.write();
        let length = with!(&*content, buffer => buffer.len());
        let range = range(offset, size, length)?;
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
fn empty<A: Access>(like: &Buffer<u8, Any, A>) -> Outcome<Buffer<u8, Any>> {
    // SAFETY: a buffer without bytes accesses no memory.
    Ok(unsafe { Buffer::from_raw(0, 0, like.stream()) }?)
}

/// Locks two buffers in the order of their handles, so that threads that copy in opposite directions do not deadlock.
pub(crate) fn lock_both<'memory>(
    to: &'memory Use<Memory>,
    to_handle: cudamem_buffer,
    from: &'memory Use<Memory>,
    from_handle: cudamem_buffer,
) -> (Guard<RwLockWriteGuard<'memory, Content>>, Guard<RwLockReadGuard<'memory, Content>>) {
    if to_handle.id < from_handle.id {
        let to = to.write();
        (to, from.read())
    } else {
        let from = from.read();
        (to.write(), from)
    }
}

#[inline]
pub(crate) fn close(memory: &mut Memory) -> cuda_mem::Result<()> {
    match memory.get_mut() {
        // SAFETY: on success the caller drops the buffer next; on failure it is unchanged.
        Content::Exclusive(buffer) => unsafe { buffer.close_in_place() },
        // SAFETY: as above.
        Content::Growable(growable) => unsafe { growable.close_in_place() },
        // Dropping the last part frees the memory.
        Content::Shared(_) => Ok(()),
    }
}
