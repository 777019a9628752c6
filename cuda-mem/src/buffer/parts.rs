//! Parts of buffers, and other types for the same memory.

use super::allocation::Allocation;
use super::cpu_gate::CpuGate;
use super::creation::check_aligned;
use super::holder::{AllocationHolder, Hold, Part};
use super::{Access, Buffer, Refused, SharedBuffer};
use crate::memory::resource::{Kind, kind::Any};
use crate::{Error, Result};
use bytemuck::{AnyBitPattern, NoUninit};
use core::ops::RangeBounds;
use core::sync::atomic::Ordering;

impl<T, K: Kind> Buffer<T, K> {
    /// Divides the buffer into two that own the memory jointly: `[0, middle)` and `[middle, len)`. Each may have its
    /// own home stream.
    ///
    /// # Errors
    ///
    /// `middle` lies past the end; or, in non-coherent mapped memory, within an atom, which two parts must not share.
    /// The error returns the buffer.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// let buffer = Buffer::from_slice(&memory, &[1, 2, 3], &stream)?;
    /// let (left, right) = buffer.split_at(1)?;
    /// assert_eq!((left.to_vec()?, right.to_vec()?), (vec![1], vec![2, 3]));
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn split_at(self, middle: usize) -> Result<(Self, Self), Box<Refused<Self>>> {
        if let Err(error) = self.span("Buffer::split_at", middle, 0) {
            return Err(Refused::new(self, error));
        }
        let (offset, length) = (self.offset, self.length);
        let position = offset + middle * size_of::<T>();
        let atom = self.resource().map_or(1, |resource| resource.atom(self.hold.allocation().block));
        if !position.is_multiple_of(atom) && middle != 0 && middle != length {
            let value = middle * size_of::<T>();
            let error = Error::Misaligned { call: "Buffer::split_at", what: "middle", value, multiple: atom };
            return Err(Refused::new(self, error));
        }
        if !self.hold.allocation().is_posted() {
            self.fence_forgotten();
        }
        let right = length - middle;
        let parts = self.hold.into_part().divide(middle * size_of::<T>(), right * size_of::<T>());
        let left = Self::from_hold(AllocationHolder::Part(parts.0), offset, middle);
        Ok((left, Self::from_hold(AllocationHolder::Part(parts.1), position, right)))
    }

    /// Makes the buffer shared, so that it can be sliced and cloned.
    ///
    /// If the CPU can address the memory, its first access to the shared memory waits for the work queued on the home
    /// stream so far, and for the work of the memory's former owner. Later work is not waited for, because a kernel may
    /// wait for the access.
    pub fn into_shared(self) -> SharedBuffer<T, K> {
        if !self.hold.allocation().is_posted() {
            self.fence_forgotten();
        }
        // The CPU waits for the home stream alone.
        self.hold.allocation().order.after_reads(self.stream(), &self.bytes_of_allocation(0..self.len()));
        let Self { hold, offset, length, work, .. } = self;
        let cpu = if hold.allocation().block.is_on_cpu() { CpuGate::behind(hold.home(), work) } else { None };
        Buffer::from_hold(hold.into_part().open(cpu), offset, length)
    }
}

impl<T, K: Kind> SharedBuffer<T, K> {
    /// A part of the memory, which owns it jointly and has the same bytes. It may be empty, also at the end.
    ///
    /// # Errors
    ///
    /// The range does not lie within the buffer.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// let whole = Buffer::from_slice(&memory, &[1, 2, 3], &stream)?.into_shared();
    /// let mut tail = whole.slice(1..)?;
    /// tail.fill(.., 9)?;
    /// assert_eq!(whole.to_vec()?, [1, 9, 9]);
    /// assert!(tail.slice(2..)?.is_empty());
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let range = self.resolve("Buffer::slice", range)?;
        Ok(Self::from_hold(self.part(), self.offset + range.start * size_of::<T>(), range.len()))
    }

    /// Makes the buffer exclusive, if no other value holds the allocation.
    ///
    /// # Errors
    ///
    /// [`Error::StillShared`]: another value holds the allocation, or another process may access it after an export or
    /// import. The error returns this value.
    pub fn try_into_exclusive(self) -> Result<Buffer<T, K>, Box<Refused<Self>>> {
        let Self { hold, offset, length, .. } = self;
        let cpu = hold.cpu_gate();
        let (hold, with_processes) = match hold.try_into_whole() {
            // Check only now: a clone may have exported the memory before its drop.
            Ok(allocation) if allocation.exposed.load(Ordering::Relaxed) != 0 => {
                (Part::whole(allocation).open(cpu), true)
            }
            Ok(allocation) => return Ok(Buffer::from_hold(AllocationHolder::Whole(allocation), offset, length)),
            Err(hold) => (hold, false),
        };
        let error = Error::StillShared { call: "Buffer::try_into_exclusive", with_processes };
        Err(Refused::new(Self::from_hold(hold, offset, length), error))
    }

    /// Frees the memory in order of the home stream and returns errors, if nothing else holds the memory. A drop is
    /// never refused: the last holder, which may be another library, then frees.
    ///
    /// # Errors
    ///
    /// [`Error::StillShared`]: a clone, a slice, another library or another process holds the memory. The error returns the
    /// buffer.
    pub fn close(self) -> Result<(), Box<Refused<Self>>> {
        let exclusive = self.try_into_exclusive()?;
        exclusive.close().map_err(|refused| {
            let Refused { value, error } = *refused;
            Refused::new(value.into_shared(), error)
        })
    }

    /// Whether two buffers are parts of the same allocation.
    pub fn shares_with(&self, other: &SharedBuffer<T, K>) -> bool {
        core::ptr::eq(self.hold.allocation(), other.hold.allocation())
    }

    /// The bytes, independent of the element type.
    pub(crate) fn bytes(&self) -> SharedBuffer<u8, Any> {
        Buffer::from_hold(self.part(), self.offset, self.size())
    }

    pub(super) fn part(&self) -> Part {
        self.hold.share()
    }
}

impl<T, K: Kind> Clone for SharedBuffer<T, K> {
    fn clone(&self) -> Self {
        Self::from_hold(self.part(), self.offset, self.length)
    }
}

impl<T, K: Kind, A: Access> Buffer<T, K, A> {
    /// The same memory as elements of another type. Both types must accept any bytes and have no padding, because each
    /// may read what the other wrote.
    ///
    /// # Errors
    ///
    /// The size is not a multiple of the other type's; the address is not aligned for it. The error returns the buffer.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// let words = Buffer::from_slice(&memory, &[0x0403_0201u32], &stream)?;
    /// assert_eq!(words.cast::<u8>()?.to_vec()?, 0x0403_0201u32.to_ne_bytes());
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn cast<U>(self) -> Result<Buffer<U, K, A>, Box<Refused<Self>>>
    where
        T: NoUninit + AnyBitPattern,
        U: NoUninit + AnyBitPattern,
    {
        const { assert!(size_of::<U>() != 0, "the elements of a buffer must not be zero-sized") };
        const CALL: &str = "Buffer::cast";
        if !self.size().is_multiple_of(size_of::<U>()) {
            let (value, multiple) = (self.size(), size_of::<U>());
            return Err(Refused::new(self, Error::Misaligned { call: CALL, what: "size", value, multiple }));
        }
        if let Err(error) = check_aligned::<U>(CALL, self.first_byte(), self.host_address().cast()) {
            return Err(Refused::new(self, error));
        }
        let length = self.size() / size_of::<U>();
        Ok(Buffer::with_work(self.hold, self.offset, length, self.work))
    }
}

#[cfg(feature = "sharing")]
impl<T: NoUninit + AnyBitPattern, K: Kind> SharedBuffer<T, K> {
    /// Records that other processes may access the memory, so that it stays shared.
    pub(crate) fn expose(&self) {
        self.hold.allocation().expose();
    }
}

impl Allocation {
    /// Records that another library may access its memory beside us. Such memory is not exported, so it needs no number.
    pub(super) fn expose_foreign(&mut self) {
        *self.exposed.get_mut() = u64::MAX;
    }

    /// Records that other processes may access the memory, and returns their number for it.
    #[cfg(feature = "sharing")]
    pub(super) fn expose(&self) -> u64 {
        use core::sync::atomic::AtomicU64;
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let fresh = NEXT.fetch_add(1, Ordering::Relaxed);
        match self.exposed.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => fresh,
            Err(number) => number,
        }
    }
}
