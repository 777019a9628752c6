//! CPU access to the elements of views, if the CPU can address the memory.

use super::{Extent, StridedLayout, StridedView, ViewError, memory::ViewMemory};
use crate::array::element::data_type;
use crate::buffer::Exclusive;
use crate::cpu::borrowed::{Borrowed, check_read};
use crate::memory::resource::no_slices;
use crate::{Element, Result};
use bytemuck::{AnyBitPattern, NoUninit};
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Range;
use core::slice;

impl StridedView<'_, Exclusive> {
    /// The elements, for the CPU to read. Waits for device work on the memory.
    ///
    /// # Errors
    ///
    /// The elements have another type or are misaligned; the CPU cannot address them; other processes may write the
    /// memory at any time; device work failed.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, Stream, memory::PinnedMemory, view::Index};
    /// # let (memory, stream) = (PinnedMemory::new(&context), Stream::new(&context)?);
    /// let mut buffer = Buffer::from_slice(&memory, &[1.0f32, 2.0, 3.0, 4.0], &stream)?;
    /// let mut columns = buffer.view_mut(&[2, 2])?.permuted(&[1, 0])?;
    /// columns.write::<f32>()?.iter_mut().for_each(|element| *element *= 2.0);
    /// let elements = columns.read::<f32>()?;
    /// assert_eq!(elements.iter().copied().collect::<Vec<_>>(), [2.0, 6.0, 4.0, 8.0]);
    /// assert_eq!((elements.get(&[1, 0]), elements.as_slice()), (Some(&4.0), None));
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn read<T: Element + AnyBitPattern>(&mut self) -> Result<HostElements<'_, T>> {
        let (first, range) = self.elements::<T>("StridedView::read")?;
        if !range.is_empty() {
            self.memory.fetch(range.start, range.len())?;
        }
        check_read(self.memory.host_pointer().wrapping_add(range.start), range.len());
        Ok(HostElements { first, layout: &self.layout, elements: PhantomData })
    }

    /// The elements, for the CPU to write and read. Waits for device work on the memory. Device work queued after the
    /// guard ends sees the writes. To see errors, end the guard with [`finish`](HostElementsMut::finish).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read). The view is read-only, or elements share memory.
    pub fn write<T: Element + NoUninit + AnyBitPattern>(&mut self) -> Result<HostElementsMut<'_, T>> {
        const CALL: &str = "StridedView::write";
        self.check_writable(CALL)?;
        let (first, range) = self.elements::<T>(CALL)?;
        let remembered = !range.is_empty() && self.memory.begin_guard(range.start, range.len())?;
        let borrowed = Borrowed::to_write(self.memory.host_pointer().wrapping_add(range.start), range.len());
        Ok(HostElementsMut {
            first,
            layout: &self.layout,
            memory: &self.memory,
            range,
            remembered,
            borrowed,
            elements: PhantomData,
        })
    }

    /// The address of the element with indices 0, and the bytes of all elements.
    fn elements<T: Element>(&self, call: &'static str) -> Result<(*mut T, Range<usize>)> {
        if self.data_type() != data_type::<T>() {
            return Err(ViewError::ElementType { call, expected: self.data_type(), given: data_type::<T>() }.into());
        }
        let Some(bounds) = self.layout.offset_bounds() else { return Ok((core::ptr::dangling_mut(), 0..0)) };
        if self.memory.host_pointer().is_null() {
            return Err(ViewError::NotOnHost { call }.into());
        }
        let first = self.host_address().cast::<T>();
        if !first.is_aligned() {
            return Err(ViewError::Misaligned { call, address: first.addr(), alignment: align_of::<T>() }.into());
        }
        // All elements lie within the memory (`StridedView::check`), so neither bound is negative.
        let range = *bounds.start() as usize * size_of::<T>()..(*bounds.end() + 1) as usize * size_of::<T>();
        if self.memory.accessibility().processes {
            return Err(no_slices(call));
        }
        Ok((first, range))
    }
}

impl<A: crate::buffer::Access> StridedView<'_, A> {
    /// Checks that the view is writable and that no two elements share memory.
    pub(super) fn check_writable(&self, call: &'static str) -> Result<(), ViewError> {
        if self.is_read_only() {
            return Err(ViewError::ReadOnly { call });
        }
        if !self.layout.is_unique() {
            let (shape, strides) = (self.shape().into(), self.strides().into());
            return Err(ViewError::Repeated { call, shape, strides });
        }
        Ok(())
    }
}

/// The offset of an element from the first one; `None` if the indices are out of range.
fn offset_of(layout: &StridedLayout, indices: &[impl Extent]) -> Option<isize> {
    let indices = || indices.iter().map(|index| index.to_i64());
    let inside = indices().len() == layout.ndim() && indices().zip(layout.shape()).all(|(i, n)| (0..*n).contains(&i));
    inside.then(|| indices().zip(layout.strides()).map(|(index, stride)| index * stride).sum::<i64>() as isize)
}

/// The offsets of all elements from the first one, in C order.
fn offsets(layout: &StridedLayout) -> impl Iterator<Item = isize> {
    let mut index = vec![0; layout.ndim()];
    let mut place = 0;
    (0..layout.volume()).map(move |_| {
        let here = place;
        for axis in (0..index.len()).rev() {
            let (extent, stride) = (layout.shape()[axis], layout.strides()[axis]);
            if index[axis] + 1 < extent {
                index[axis] += 1;
                place += stride;
                break;
            }
            place -= index[axis] * stride;
            index[axis] = 0;
        }
        here as isize
    })
}

/// The elements of a view, for the CPU to read.
#[must_use = "the call waited for device work to let the CPU read"]
pub struct HostElements<'view, T> {
    /// The element with indices 0.
    first: *mut T,
    layout: &'view StridedLayout,
    elements: PhantomData<&'view [T]>,
}

/// The elements of a view, for the CPU to write. Its end flushes the writes. It stays on its thread, as
/// [`HostWrite`](crate::buffer::HostWrite) does.
#[must_use = "the guard's end flushes the writes"]
pub struct HostElementsMut<'view, T> {
    first: *mut T,
    layout: &'view StridedLayout,
    memory: &'view ViewMemory<'view>,
    /// The bytes of the memory that contain the elements.
    range: Range<usize>,
    /// The result of the memory's `begin_write`.
    remembered: bool,
    borrowed: Borrowed,
    elements: PhantomData<&'view mut [T]>,
}

// SAFETY: as for a slice.
unsafe impl<T: Sync> Send for HostElements<'_, T> {}
// SAFETY: as for a slice.
unsafe impl<T: Sync> Sync for HostElements<'_, T> {}
// SAFETY: as for an exclusive slice.
unsafe impl<T: Sync> Sync for HostElementsMut<'_, T> {}

macro_rules! readers {
    ($($guard:ident),*) => { $(
        impl<T> $guard<'_, T> {
            /// The extents.
            pub fn shape(&self) -> &[i64] {
                self.layout.shape()
            }

            /// The element with these indices; `None` if they are out of range.
            pub fn get(&self, indices: &[impl Extent]) -> Option<&T> {
                let offset = offset_of(self.layout, indices)?;
                // SAFETY: `elements` has checked that every element lies within the memory and is aligned, and any
                // initialized bytes are a `T`. The guard borrows the only view of the memory, and `read` and `write`
                // have waited for its device work.
                Some(unsafe { &*self.first.offset(offset) })
            }

            /// All elements, in C order.
            pub fn iter(&self) -> impl Iterator<Item = &T> {
                // SAFETY: as in `get`.
                offsets(self.layout).map(|offset| unsafe { &*self.first.offset(offset) })
            }

            /// All elements as a slice, if they lie in C order without gaps.
            pub fn as_slice(&self) -> Option<&[T]> {
                let length = self.layout.volume() as usize;
                // SAFETY: as in `get`; the elements are contiguous.
                self.layout.is_contiguous_c().then(|| unsafe { slice::from_raw_parts(self.first, length) })
            }

            /// The elements as an `ndarray` view. `None` only if there are no elements and `ndarray` does not hold such
            /// extents: the product of those that are not 0 must fit into `isize`.
            #[cfg(feature = "ndarray")]
            pub fn array(&self) -> Option<ndarray::ArrayViewD<'_, T>> {
                let (lowest, shape, flipped) = super::ndarray::parts(self.first, self.layout)?;
                // SAFETY: as in `get`; `parts` describes the same elements.
                let mut array = unsafe { ndarray::ArrayViewD::from_shape_ptr(shape, lowest) };
                flipped.into_iter().for_each(|axis| array.invert_axis(ndarray::Axis(axis)));
                Some(array)
            }
        }

        impl<T> fmt::Debug for $guard<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($guard)).field("layout", self.layout).finish_non_exhaustive()
            }
        }
    )* };
}

readers!(HostElements, HostElementsMut);

impl<T> HostElementsMut<'_, T> {
    /// The element with these indices; `None` if they are out of range.
    pub fn get_mut(&mut self, indices: &[impl Extent]) -> Option<&mut T> {
        let offset = offset_of(self.layout, indices)?;
        // SAFETY: as in `get`; this borrows the guard exclusively.
        Some(unsafe { &mut *self.first.offset(offset) })
    }

    /// All elements, in C order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        // SAFETY: as in `get_mut`; `write` has checked that no two elements share memory.
        offsets(self.layout).map(|offset| unsafe { &mut *self.first.offset(offset) })
    }

    /// All elements as a slice, if they lie in C order without gaps.
    pub fn as_mut_slice(&mut self) -> Option<&mut [T]> {
        let length = self.layout.volume() as usize;
        // SAFETY: as in `get_mut`; the elements are contiguous.
        self.layout.is_contiguous_c().then(|| unsafe { slice::from_raw_parts_mut(self.first, length) })
    }

    /// The elements as an `ndarray` view; `None` as for [`array`](Self::array).
    #[cfg(feature = "ndarray")]
    pub fn array_mut(&mut self) -> Option<ndarray::ArrayViewMutD<'_, T>> {
        let (lowest, shape, flipped) = super::ndarray::parts(self.first, self.layout)?;
        // SAFETY: as in `iter_mut`; `parts` describes the same elements.
        let mut array = unsafe { ndarray::ArrayViewMutD::from_shape_ptr(shape, lowest) };
        flipped.into_iter().for_each(|axis| array.invert_axis(ndarray::Axis(axis)));
        Some(array)
    }

    fn post(&self) -> Result<()> {
        self.memory.end_write(self.range.start, self.range.len(), self.remembered)
    }

    /// Ends the guard, and returns its error. A drop reports it as a drop error instead.
    ///
    /// # Errors
    ///
    /// The flush of non-coherent memory failed.
    pub fn finish(self) -> Result<()> {
        let mut guard = ManuallyDrop::new(self);
        let _borrowed = core::mem::take(&mut guard.borrowed);
        guard.post()
    }
}

impl<T> Drop for HostElementsMut<'_, T> {
    fn drop(&mut self) {
        if let Err(error) = self.post()
            && let Some(context) = self.memory.context()
        {
            context.drop_errors().push("flushing the writes of a view's guard", error);
        }
    }
}
