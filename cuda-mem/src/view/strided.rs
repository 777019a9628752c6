//! Views: memory, a layout, and the type of the elements.

use super::memory::{HostMemory, Memory};
use super::{Order, StridedLayout, ViewError};
use crate::buffer::{Access, Exclusive, Shared};
use crate::context::ForeignOwner;
use crate::resource::{Accessibility, Kind, kind::Any};
use crate::{Buffer, Context, DataType, Element, Error, Result, SharedBuffer, Stream};
use bytemuck::{AnyBitPattern, NoUninit};
use core::fmt;
use core::marker::PhantomData;
use cuda_sys::CUdeviceptr;

/// An array in memory: a layout of elements of one type over a buffer, over a slice of the CPU's, or over memory of
/// another library. All elements lie within that memory: what would not is refused.
///
/// A view borrows its buffer for `'memory`, or shares its ownership: then the lifetime is `'static`. Of a view that is
/// [`Exclusive`] no other reaches the memory, so that the CPU may have it as a slice. A [`Shared`] one can be cloned.
///
/// The layout's offset counts from the memory's begin.
///
/// Elements of less than a byte are packed, as DLPack's are: several share a byte, and the lowest bits are the first.
/// Where each has bytes of its own, say so with [`with_padded_elements`](Self::with_padded_elements).
///
/// ```
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
/// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
/// use cuda_mem::view::Index;
/// let buffer = Buffer::from_slice(&memory, &[0, 1, 2, 3, 4, 5], &stream)?;
/// let matrix = buffer.view(&[2, 3])?;
/// let right = matrix.clone().sliced(&[(..).into(), (1..).into()])?;
/// assert_eq!(right.to_vec::<i32>()?, [1, 2, 4, 5]);
/// assert_eq!(matrix.permuted(&[1, 0])?.to_vec::<i32>()?, [0, 3, 1, 4, 2, 5]);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct StridedView<'memory, A: Access = Shared> {
    pub(super) memory: Memory<'memory>,
    pub(super) layout: StridedLayout,
    data_type: DataType,
    read_only: bool,
    /// Whether elements of less than a byte have bytes of their own.
    padded: bool,
    access: PhantomData<A>,
}

impl<'memory> StridedView<'memory> {
    /// Reads a buffer.
    ///
    /// # Errors
    ///
    /// Elements lie outside of the buffer; the layout's item size is not the type's.
    pub fn borrowed<T: NoUninit, K: Kind, A: Access>(
        buffer: &'memory Buffer<T, K, A>,
        data_type: DataType,
        layout: StridedLayout,
    ) -> Result<Self> {
        Self::checked("StridedView::borrowed", Memory::Borrowed(buffer), data_type, layout, true)
    }

    /// Reads a slice of the CPU's.
    ///
    /// # Errors
    ///
    /// Elements lie outside of the slice; the layout's item size is not the type's.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// use cuda_mem::view::{Order, StridedLayout, StridedView};
    /// let host = [1u8, 2, 3, 4, 5, 6];
    /// let view = StridedView::of_slice(&host, StridedLayout::dense(&[2, 3], 1, Order::C)?)?;
    /// let mut buffer = Buffer::<u8, _>::zeroed(&memory, 6, &stream)?;
    /// buffer.view_mut(&[3, 2])?.copy_from(&view.permuted(&[1, 0])?)?;
    /// assert_eq!(buffer.to_vec()?, [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn of_slice<T: Element + NoUninit>(slice: &'memory [T], layout: StridedLayout) -> Result<Self> {
        let memory = HostMemory {
            start: slice.as_ptr().cast::<u8>().cast_mut(),
            size: size_of_val(slice),
            owner: None,
            borrow: PhantomData,
        };
        Self::checked("StridedView::of_slice", Memory::Host(memory), T::DATA_TYPE, layout, true)
    }
}

impl StridedView<'static> {
    /// Reads and writes memory whose ownership is shared, for as long as it wants.
    ///
    /// # Errors
    ///
    /// Elements lie outside of the buffer; the layout's item size is not the type's.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// use cuda_mem::DataType;
    /// use cuda_mem::view::{Order, StridedLayout, StridedView};
    /// let bytes = Buffer::from_slice(&memory, &[0u8; 64], &stream)?.into_shared();
    /// let layout = StridedLayout::dense(&[4, 8], 2, Order::F)?;
    /// let view = StridedView::shared(bytes.clone(), DataType::BFLOAT16, layout.clone())?;
    /// assert_eq!((view.strides(), view.device_pointer()), (&[1, 4][..], bytes.device_pointer()));
    /// assert!(StridedView::shared(bytes, DataType::BFLOAT16, layout.with_offset(1)?).is_err(), "it ends too late");
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    #[doc(alias = "from_buffer")]
    pub fn shared<T: NoUninit + AnyBitPattern, K: Kind>(
        buffer: SharedBuffer<T, K>,
        data_type: DataType,
        layout: StridedLayout,
    ) -> Result<Self> {
        Self::checked("StridedView::shared", Memory::Shared(buffer.into_bytes()), data_type, layout, false)
    }

    /// Memory of the CPU that another library has, of `size` bytes.
    ///
    /// # Errors
    ///
    /// Elements lie outside of the memory; the layout's item size is not the type's.
    ///
    /// # Safety
    ///
    /// The memory stays allocated while `owner` lives, and nobody else writes it while this view, or one made of it, is
    /// copied; and nobody reads it while it is written. Its bytes have values.
    pub unsafe fn of_host_memory(
        start: *mut u8,
        size: usize,
        owner: ForeignOwner,
        data_type: DataType,
        layout: StridedLayout,
    ) -> Result<Self> {
        let memory = HostMemory { start, size, owner: Some(owner), borrow: PhantomData };
        Self::checked("StridedView::of_host_memory", Memory::Host(memory), data_type, layout, false)
    }
}

impl<'memory> StridedView<'memory, Exclusive> {
    /// Reads and writes a buffer that nothing else reaches.
    ///
    /// # Errors
    ///
    /// Elements lie outside of the buffer; the layout's item size is not the type's.
    pub fn exclusive<T: NoUninit + AnyBitPattern, K: Kind>(
        buffer: &'memory mut Buffer<T, K>,
        data_type: DataType,
        layout: StridedLayout,
    ) -> Result<Self> {
        Self::checked("StridedView::exclusive", Memory::Borrowed(buffer), data_type, layout, false)
    }

    /// Reads and writes a slice of the CPU's.
    ///
    /// # Errors
    ///
    /// Elements lie outside of the slice; the layout's item size is not the type's.
    pub fn of_mut_slice<T: Element + NoUninit + AnyBitPattern>(
        slice: &'memory mut [T],
        layout: StridedLayout,
    ) -> Result<Self> {
        let memory =
            HostMemory { size: size_of_val(slice), start: slice.as_mut_ptr().cast(), owner: None, borrow: PhantomData };
        Self::checked("StridedView::of_mut_slice", Memory::Host(memory), T::DATA_TYPE, layout, false)
    }

    /// The same view for a shorter time: of it, parts can be taken.
    pub fn reborrow(&mut self) -> StridedView<'_, Exclusive> {
        StridedView { memory: self.memory.reborrow(), layout: self.layout.clone(), access: PhantomData, ..*self }
    }

    /// A view that can be cloned, and only be read.
    pub fn into_shared(self) -> StridedView<'memory> {
        StridedView { read_only: true, ..self.with_access() }
    }
}

impl<T: Element + NoUninit, K: Kind, A: Access> Buffer<T, K, A> {
    /// The buffer as an array of a shape, to be read. One extent may be -1: it is what the others leave.
    ///
    /// # Errors
    ///
    /// The shape has not as many elements as the buffer.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// let buffer = Buffer::from_slice(&memory, &[1u16, 2, 3, 4, 5, 6], &stream)?;
    /// let matrix = buffer.view(&[-1, 3])?;
    /// assert_eq!((matrix.shape(), matrix.is_read_only()), (&[2, 3][..], true));
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn view(&self, shape: &[i64]) -> Result<StridedView<'_>> {
        StridedView::borrowed(self, T::DATA_TYPE, line::<T>(self.len())?.reshaped(shape)?)
    }
}

impl<T: Element + NoUninit + AnyBitPattern, K: Kind> Buffer<T, K> {
    /// The buffer as an array of a shape, to be read and written. One extent may be -1: it is what the others leave.
    ///
    /// # Errors
    ///
    /// The shape has not as many elements as the buffer.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// use cuda_mem::view::Index;
    /// let row = Buffer::from_slice(&memory, &[1i32, 2, 3], &stream)?;
    /// let mut buffer = Buffer::<i32, _>::zeroed(&memory, 6, &stream)?;
    /// let mut last = buffer.view_mut(&[2, 3])?.sliced(&[Index::At(-1)])?;
    /// last.copy_from(&row.view(&[3])?)?;
    /// assert_eq!(buffer.to_vec()?, [0, 0, 0, 1, 2, 3]);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn view_mut(&mut self, shape: &[i64]) -> Result<StridedView<'_, Exclusive>> {
        let layout = line::<T>(self.len())?.reshaped(shape)?;
        StridedView::exclusive(self, T::DATA_TYPE, layout)
    }
}

impl<T: Element + NoUninit + AnyBitPattern, K: Kind> SharedBuffer<T, K> {
    /// The buffer as an array of a shape, which shares the ownership of the memory. One extent may be -1.
    ///
    /// # Errors
    ///
    /// The shape has not as many elements as the buffer.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// let view = Buffer::from_slice(&memory, &[1.5f32; 6], &stream)?.into_shared().into_view(&[2, 3])?;
    /// let turned = view.clone().permuted(&[1, 0])?; // holds the memory too
    /// drop(view);
    /// assert_eq!(turned.to_vec::<f32>()?, [1.5; 6]);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn into_view(self, shape: &[i64]) -> Result<StridedView<'static>> {
        let layout = line::<T>(self.len())?.reshaped(shape)?;
        StridedView::shared(self, T::DATA_TYPE, layout)
    }
}

/// The layout of a buffer.
fn line<T>(length: usize) -> Result<StridedLayout> {
    // The size fits into isize: so does the length.
    Ok(StridedLayout::dense(&[length as i64], size_of::<T>(), Order::C)?)
}

impl<'memory, A: Access> StridedView<'memory, A> {
    fn checked(
        call: &'static str,
        memory: Memory<'memory>,
        data_type: DataType,
        layout: StridedLayout,
        read_only: bool,
    ) -> Result<Self> {
        let view = Self { memory, layout, data_type, read_only, padded: false, access: PhantomData };
        view.check(call)?;
        Ok(view)
    }

    fn check(&self, call: &'static str) -> Result<(), ViewError> {
        let (expected, found) = (self.data_type.padded_size(), self.layout.item_size());
        if expected != found {
            return Err(ViewError::ItemSize { call, data_type: self.data_type, expected, found });
        }
        let Some(bounds) = self.layout.offset_bounds() else { return Ok(()) };
        let bits = if self.is_packed() { self.data_type.element_bits() } else { found * 8 } as i128;
        let first = (i128::from(*bounds.start()) * bits).div_euclid(8);
        let end = ((i128::from(*bounds.end()) + 1) * bits + 7).div_euclid(8);
        let size = self.memory.size();
        if first < 0 || end > size as i128 {
            return Err(ViewError::OutOfMemory { call, first, end, size });
        }
        Ok(())
    }

    fn with_access<B: Access>(self) -> StridedView<'memory, B> {
        let Self { memory, layout, data_type, read_only, padded, .. } = self;
        StridedView { memory, layout, data_type, read_only, padded, access: PhantomData }
    }

    /// The same memory in another layout.
    ///
    /// # Errors
    ///
    /// Elements lie outside of the memory; the layout's item size is not the type's.
    pub fn with_layout(mut self, layout: StridedLayout) -> Result<Self> {
        self.layout = layout;
        self.check("StridedView::with_layout")?;
        Ok(self)
    }

    /// The same elements as another type of the same size.
    ///
    /// # Errors
    ///
    /// The type has another size: change the layout with it, by [`with_type_and_layout`](Self::with_type_and_layout).
    pub fn with_data_type(self, data_type: DataType) -> Result<Self> {
        let layout = self.layout.clone();
        self.with_type_and_layout(data_type, layout)
    }

    /// The same memory as elements of another type, in another layout.
    ///
    /// # Errors
    ///
    /// As [`with_layout`](Self::with_layout).
    pub fn with_type_and_layout(mut self, data_type: DataType, layout: StridedLayout) -> Result<Self> {
        (self.data_type, self.layout) = (data_type, layout);
        self.check("StridedView::with_type_and_layout")?;
        Ok(self)
    }

    /// Elements of less than a byte that have bytes of their own each. No change for others.
    ///
    /// # Errors
    ///
    /// Elements lie outside of the memory then.
    #[doc(alias = "IS_SUBBYTE_TYPE_PADDED")]
    pub fn with_padded_elements(mut self) -> Result<Self> {
        self.padded = true;
        self.check("StridedView::with_padded_elements")?;
        Ok(self)
    }

    /// The same view, only to be read.
    #[must_use]
    pub fn into_read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// The layout.
    pub fn layout(&self) -> &StridedLayout {
        &self.layout
    }

    /// The extents.
    pub fn shape(&self) -> &[i64] {
        self.layout.shape()
    }

    /// The strides, in elements.
    pub fn strides(&self) -> &[i64] {
        self.layout.strides()
    }

    /// The type of the elements.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// Whether the view may only be read.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether elements share bytes with their neighbours.
    pub fn is_packed(&self) -> bool {
        self.data_type.is_sub_byte() && !self.padded
    }

    /// Who may address the memory.
    pub fn accessibility(&self) -> Accessibility {
        self.memory.accessibility()
    }

    /// The ordinal of the device that the memory lies on; none for memory of the host.
    pub fn device_ordinal(&self) -> Option<i32> {
        self.memory.device_ordinal()
    }

    /// The context that the memory belongs to; none for memory of the CPU that the driver does not know.
    pub fn context(&self) -> Option<&Context> {
        self.memory.context()
    }

    /// The stream that the memory's work is ordered on; none for memory of the CPU that the driver does not know.
    pub fn stream(&self) -> Option<&Stream> {
        self.memory.stream()
    }

    /// The buffer whose ownership the view shares, if it does and may be written: a buffer may be.
    #[doc(alias = "exporting_obj")]
    pub fn buffer(&self) -> Option<&SharedBuffer<u8, Any>> {
        self.shared_memory().filter(|_| !self.read_only)
    }

    /// As [`buffer`](Self::buffer), also of a view that is read-only, which the caller keeps so.
    pub(crate) fn shared_memory(&self) -> Option<&SharedBuffer<u8, Any>> {
        match &self.memory {
            Memory::Shared(buffer) => Some(buffer),
            _ => None,
        }
    }

    /// The address of the element of indices 0, for kernels and for the driver; of memory of the CPU alone, its address
    /// there. Of elements that share bytes, the byte in which the first begins.
    ///
    /// Tell the view of work that uses the address: [`record_use`](Self::record_use).
    pub fn device_pointer(&self) -> CUdeviceptr {
        self.memory.address().wrapping_add_signed(self.first_byte())
    }

    /// The CPU's address of the element of indices 0; null where it does not address the memory. Accesses through it are
    /// the caller's care, ordering too.
    pub fn host_pointer(&self) -> *mut u8 {
        let start = self.memory.host_pointer();
        if start.is_null() { start } else { start.wrapping_offset(self.first_byte() as isize) }
    }

    /// Where the element of indices 0 lies in the memory. Without elements it may lie anywhere.
    fn first_byte(&self) -> i64 {
        match self.is_packed() {
            true => (i128::from(self.layout.offset()) * self.data_type.element_bits() as i128).div_euclid(8) as i64,
            false => self.layout.byte_offset(),
        }
    }

    /// Tells the memory of work given to `stream` so far that uses it: kernels that were launched with
    /// [`device_pointer`](Self::device_pointer). What the buffer does from now on waits for that work, its free too.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    pub fn record_use(&self, stream: &Stream) -> Result<()> {
        self.memory.record_use(stream)
    }

    /// A change of the layout that reaches no further than it does: a part, or the same elements in another shape.
    pub(super) fn map_layout(
        mut self,
        change: impl FnOnce(&StridedLayout) -> Result<StridedLayout, super::LayoutError>,
    ) -> Result<Self> {
        self.layout = change(&self.layout)?;
        Ok(self)
    }
}

impl Clone for StridedView<'_> {
    fn clone(&self) -> Self {
        Self { memory: self.memory.clone(), layout: self.layout.clone(), access: PhantomData, ..*self }
    }
}

impl<A: Access> fmt::Debug for StridedView<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StridedView")
            .field("device_pointer", &format_args!("{:#x}", self.device_pointer()))
            .field("data_type", &format_args!("{}", self.data_type))
            .field("layout", &self.layout)
            .field("read_only", &self.read_only)
            .field("accessibility", &self.accessibility())
            .finish_non_exhaustive()
    }
}

impl From<super::LayoutError> for Error {
    fn from(error: super::LayoutError) -> Self {
        ViewError::from(error).into()
    }
}
