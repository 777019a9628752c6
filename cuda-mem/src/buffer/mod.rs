//! Buffers: typed memory from any resource, with a home stream.
//!
//! A [`Buffer`] is to device memory what a `Vec` is to the heap. Its copies and fills, and the free when it is dropped,
//! run in order on its *home stream*. So the CPU need not wait between them, and work on one stream needs no events. A
//! copy between buffers with different home streams is ordered with what writes their bytes, by events.
//!
//! Offsets and lengths are in elements, as with slices.
//!
//! | to | use |
//! |---|---|
//! | create | [`Buffer::from_slice`], [`zeroed`](Buffer::zeroed), [`filled`](Buffer::filled), [`uninit`](Buffer::uninit); from other libraries' memory: [`from_raw`](Buffer::from_raw) |
//! | copy | [`copy_from_slice`](Buffer::copy_from_slice), [`copy_to_slice`](Buffer::copy_to_slice), [`copy_from_buffer`](Buffer::copy_from_buffer) |
//! | copy in the background | [`upload`](Buffer::upload), [`download`](Buffer::download), [`CopyBatch`] |
//! | pass to other libraries | [`tensor`](SharedBuffer::tensor), and [`interchange`](crate::array::interchange) |
//! | share with other processes | [`export`](Buffer::export), and [`ipc`](crate::ipc) |
//! | divide or reinterpret | [`split_at`](Buffer::split_at), [`slice`](Buffer::slice), [`cast`](Buffer::cast) |
//! | access with the CPU | [`store`](Buffer::store), [`load`](Buffer::load), and as slices [`read`](Buffer::read), [`write`](Buffer::write), if the kind is [`HostAccessible`] |
//! | free | drop, or [`close`](Buffer::close), which returns errors |

mod accesses;
mod alias;
mod allocate;
mod allocation;
mod batch;
mod cell;
pub(crate) mod compare;
mod copy;
mod cpu_gate;
mod creation;
mod engine;
#[cfg(feature = "sharing")]
mod exported;
mod fill;
mod foreign;
mod growable;
mod holder;
mod host;
pub(crate) mod host_buffer;
mod in_place;
pub mod io;
mod managed;
mod managed_range;
mod memory;
mod memory_order;
mod parts;
mod peers;
mod raw;
mod registered;
#[cfg(feature = "sharing")]
mod share;
mod store;
mod transfer;
mod uninit;
mod uses;
mod viewed;
mod virtual_memory;
mod work;

use crate::memory::resource::{Accessibility, HostAccessible, Kind, SharedResource};
use crate::{Context, Error, Result, Stream, lifetime::waiting, memory::resource::kind::Any};
use allocation::{Allocation, Origin};
use bytemuck::AnyBitPattern;
use core::fmt;
use core::marker::PhantomData;
use creation::{check_home, check_stream};
use cuda_sys::CUdeviceptr;
use holder::{AllocationHolder, Hold, Part};

pub use crate::error::Refused;
pub use allocate::Allocate;
pub(crate) use batch::copy_all;
pub(crate) use batch::not_open;
pub use batch::{BatchOptions, BatchWay, CopyBatch, Piece};
pub use cell::{SharedCell, SharedWord};
pub(crate) use cpu_gate::CpuReady;
pub(crate) use foreign::{Claim, Owner, SingleOwner};
pub use growable::GrowableBuffer;
pub use host::{HostRead, HostWrite};
pub use managed_range::ManagedRange;
pub(crate) use memory::Place;
pub use peers::PeerRoute;
pub(crate) use peers::{DeviceRoute, HeldRoute, route};
#[cfg(feature = "sharing")]
pub(crate) use share::has_own_handle;
pub use store::StoreScope;
pub use transfer::{Transfer, TransferDestination, TransferSource};
pub(crate) use viewed::Viewed;
use work::Work;

/// Memory that holds `T`s, of kind `K`.
///
/// Only an exclusive buffer (`A` is [`Exclusive`], the default) has access to its memory. A [`Shared`] buffer may be
/// cloned and sliced, and gives the CPU no slices.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// use cuda_mem::memory::{DevicePool, DriverPoolOptions};
/// use cuda_mem::{Buffer, Stream};
/// let stream = Stream::new(&context)?;
/// let pool = DevicePool::new(&context, &DriverPoolOptions::default())?;
///
/// let mut sum = Buffer::zeroed(&pool, 8, &stream)?;
/// sum.copy_from_slice(2, &[1.0f32, 2.0])?;
/// sum.fill(6.., 9.0)?;
/// assert_eq!(sum.to_vec()?, [0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 9.0, 9.0]);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct Buffer<T = u8, K: Kind = Any, A: Access = Exclusive> {
    hold: A::Hold,
    /// The offset of this part in the allocation, in bytes.
    offset: usize,
    /// In elements.
    length: usize,
    /// Device work for which the CPU must wait. A new buffer has some: the allocation itself is stream-ordered.
    work: Work,
    elements: PhantomData<fn(T) -> T>,
    marker: PhantomData<(K, A)>,
}

/// A buffer whose memory others may access: clones and slices own it jointly.
pub type SharedBuffer<T = u8, K = Any> = Buffer<T, K, Shared>;

/// How a buffer with this access holds its memory.
trait Holding {
    const IS_SHARED: bool;
    type Hold: Hold;
}

/// Whether only one buffer has access to the memory.
#[expect(private_bounds, reason = "no other type is an access")]
pub trait Access: Holding + Send + Sync + 'static {}

/// Only this buffer has access.
#[derive(Clone, Copy, Debug)]
pub struct Exclusive;

/// Others may have access.
#[derive(Clone, Copy, Debug)]
pub struct Shared;

impl Holding for Exclusive {
    const IS_SHARED: bool = false;
    type Hold = AllocationHolder;
}
impl Access for Exclusive {}
impl Holding for Shared {
    const IS_SHARED: bool = true;
    type Hold = Part;
}
impl Access for Shared {}

impl<T, K: Kind, A: Access> Buffer<T, K, A> {
    fn from_hold(hold: A::Hold, offset: usize, length: usize) -> Self {
        Self::with_work(hold, offset, length, Work::new(true))
    }

    #[inline]
    fn with_work(hold: A::Hold, offset: usize, length: usize, work: Work) -> Self {
        Self { hold, offset, length, work, elements: PhantomData, marker: PhantomData }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The size in bytes.
    pub fn size(&self) -> usize {
        self.length * size_of::<T>()
    }

    /// The address of the first element for kernels and the driver, valid while a part of the memory is alive; 0 if
    /// there is no memory. For memory that only the CPU can address, it is the CPU address.
    ///
    /// Work on the home stream may use the address. If work on another stream uses it, call
    /// [`record_use`](Self::record_use). From the first call on, copies from the buffer to one with another home stream order
    /// the two streams: [`copy_from_buffer`](Self::copy_from_buffer).
    pub fn device_pointer(&self) -> CUdeviceptr {
        self.tell_address();
        self.first_byte()
    }

    /// The address, which stays within this library.
    #[inline]
    pub(crate) fn first_byte(&self) -> CUdeviceptr {
        self.hold.allocation().block.device_pointer() + self.offset as CUdeviceptr
    }

    /// The CPU address of the first element. The caller must order accesses through it.
    pub fn host_pointer(&self) -> *mut T
    where
        K: HostAccessible,
    {
        self.tell_address();
        self.host_address()
    }

    /// The CPU address of the first element, for any kind of memory; null if there is none.
    pub(crate) fn host_address(&self) -> *mut T {
        let host_pointer = self.hold.allocation().block.host_pointer();
        if host_pointer.is_null() { core::ptr::null_mut() } else { host_pointer.wrapping_add(self.offset).cast() }
    }

    /// The CPU address of the first element, for a kind known only at run time. `None` if the CPU cannot address the
    /// memory, or there is none. As for [`host_pointer`](Self::host_pointer), the caller must order accesses.
    pub fn host_pointer_if_any(&self) -> Option<*mut T> {
        let pointer = self.host_address();
        self.tell_address();
        (self.accessibility().host && !pointer.is_null()).then_some(pointer)
    }

    /// The home stream, which orders the buffer's work and its free.
    pub fn stream(&self) -> &Stream {
        self.hold.home()
    }

    /// Makes `stream` the home stream, and makes it wait for all work of the buffer so far.
    ///
    /// # Errors
    ///
    /// The stream belongs to another device or is a per-thread default stream; the driver refuses.
    pub fn set_stream(&mut self, stream: &Stream) -> Result<()> {
        const CALL: &str = "Buffer::set_stream";
        match self.hold.allocation().origin() {
            Origin::Resource(resource) => check_home(CALL, resource, stream)?,
            Origin::Foreign(_) => check_stream(CALL, stream)?,
        }
        self.hold.move_to(stream)
    }

    /// Records that work queued on `stream` so far uses this buffer, such as kernels launched with
    /// [`device_pointer`](Self::device_pointer). Later work of the buffer, and its free, wait for that work. The stream may
    /// be of another device, which uses the memory directly.
    ///
    /// # Errors
    ///
    /// The driver refuses; the stream is of another driver.
    pub fn record_use(&self, stream: &Stream) -> Result<()> {
        if !self.accessibility().host {
            let ordered = self.stream().order_after(stream);
            self.mark_busy();
            return ordered;
        }
        let event = match self.work.uses().record(stream) {
            Ok(event) => event,
            // The work may use the memory, so wait for it here, unless it is only recorded in a capture.
            Err(error) => return if stream.is_capturing()? { Err(error) } else { stream.wait_beside_captures() },
        };
        if self.stream() == stream {
            return Ok(());
        }
        let home = self.stream();
        let ordered = home.check_not_capturing("Buffer::record_use").and_then(|()| home.wait(&event));
        if ordered.is_err() {
            self.mark_busy();
        }
        ordered
    }

    /// Waits until all work on the home stream so far is done, and all copies from the buffer on other streams.
    ///
    /// # Errors
    ///
    /// Work failed.
    pub fn synchronize(&self) -> Result<()> {
        // Another thread may make the home stream wait for a read, and forget it.
        self.wait_for_reads()?;
        self.stream().synchronize()
    }

    /// Records device work on the home stream, or for which that stream waits.
    #[inline]
    pub(crate) fn mark_busy(&self) {
        self.hold.allocation().order.note_work();
        self.note_read_in_order();
    }

    /// Waits for the device work, if there may be any.
    #[inline]
    pub(crate) fn settle(&self) -> Result<CpuReady<'_>> {
        if !self.hold.allocation().is_posted() {
            self.fence_forgotten();
        }
        if let Some(noted) = self.work.pending() {
            // First, because another thread may make the home stream wait for a read, and forget it.
            self.wait_for_reads()?;
            waiting::while_doing(&"for a CPU access to a buffer", || {
                self.stream().wait_beside_captures()?;
                self.stream().check_released()
            })?;
            self.work.pass(noted);
        }
        self.work.settle_uses()?;
        self.hold.cpu_ready()
    }

    /// The context of the memory.
    pub fn context(&self) -> &Context {
        self.hold.allocation().context()
    }

    /// The ordinal of the device that holds the memory; `None` for host memory.
    pub fn device_ordinal(&self) -> Option<i32> {
        self.hold.allocation().device()
    }

    /// Who may address the memory.
    pub fn accessibility(&self) -> Accessibility {
        self.hold.allocation().accessibility()
    }

    /// Whether the CPU may use the memory like the heap once the device work on it is done.
    pub(crate) fn is_coherent(&self) -> bool {
        self.hold.allocation().is_coherent()
    }

    /// The resource that allocated the memory; `None` for memory of other libraries.
    pub fn resource(&self) -> Option<&SharedResource> {
        self.hold.allocation().resource()
    }

    /// Drops the kind from the type, for programs that choose it at run time.
    pub fn into_any(self) -> Buffer<T, Any, A> {
        Buffer::with_work(self.hold, self.offset, self.length, self.work)
    }

    /// Restores the kind in the type, if the memory is accessible as it requires.
    ///
    /// # Errors
    ///
    /// It is not. The error returns the buffer.
    pub fn try_into_kind<L: Kind>(self) -> Result<Buffer<T, L, A>, Box<Refused<Self>>> {
        let accessibility = self.accessibility();
        if L::ACCESSIBILITY.is_none_or(|wanted| accessibility.covers(wanted)) {
            self.hold.allocation().note_host_kind();
            return Ok(Buffer::with_work(self.hold, self.offset, self.length, self.work));
        }
        let (value, rule) = (format!("{accessibility:?}"), "it must be accessible to everybody that the kind names");
        Err(Refused::new(self, Error::invalid("Buffer::try_into_kind", "the buffer's memory", value, rule)))
    }
}

impl<T, K: Kind> Buffer<T, K> {
    #[inline]
    fn whole(allocation: Allocation, length: usize, work: Work) -> Self {
        if K::ACCESSIBILITY.is_some_and(|accessibility| accessibility.host) {
            allocation.note_host_kind();
        }
        Self::with_work(AllocationHolder::Whole(allocation), 0, length, work)
    }

    /// Frees the memory in order of the home stream, as a drop does, but returns errors. For a part it frees nothing:
    /// the last part frees divided memory.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// let buffer = Buffer::from_slice(&memory, &[1u8, 2, 3], &stream)?;
    /// match buffer.close() {
    ///     Ok(()) => {}
    ///     // The error returns the buffer: try later, or let its drop try.
    ///     Err(refused) => eprintln!("{} elements are still there: {}", refused.value.len(), refused.error),
    /// }
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The driver refuses. The error returns the buffer.
    #[doc(alias("cuMemFree", "cuMemFreeAsync", "cuMemFreeHost"))]
    pub fn close(mut self) -> Result<(), Box<Refused<Self>>> {
        match &mut self.hold {
            AllocationHolder::Whole(allocation) => match allocation.end() {
                Ok(()) => Ok(()),
                Err(error) => Err(Refused::new(self, error)),
            },
            AllocationHolder::Part(_) => Ok(()),
        }
    }

    /// Frees the memory in order of another stream, which first waits for the work on the home stream, and returns
    /// errors. For a part it frees nothing, as [`close`](Self::close).
    ///
    /// # Errors
    ///
    /// As [`close`](Self::close), and as [`set_stream`](Self::set_stream).
    pub fn close_on(mut self, stream: &Stream) -> Result<(), Box<Refused<Self>>> {
        match self.set_stream(stream) {
            Ok(()) => self.close(),
            Err(error) => Err(Refused::new(self, error)),
        }
    }
}

impl<T, K: Kind, A: Access> fmt::Debug for Buffer<T, K, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("device_pointer", &format_args!("{:#x}", self.first_byte()))
            .field("len", &self.length)
            .field("element_size", &size_of::<T>())
            .field("accessibility", &self.accessibility())
            .finish_non_exhaustive()
    }
}

/// The address of a slice and its size in bytes, for a copy that may write any bytes.
pub(crate) fn bytes_of_mut<T: AnyBitPattern>(slice: &mut [T]) -> (*mut u8, usize) {
    (slice.as_mut_ptr().cast(), size_of_val(slice))
}
