//! Views: memory, a layout, and an element type.

use super::memory::{HostMemory, ViewMemory};
use super::{Extent, Order, StridedLayout, ViewError};
use crate::array::element::data_type;
use crate::buffer::{Access, Exclusive, Shared};
use crate::driver::context::ForeignOwner;
use crate::memory::resource::{Accessibility, Kind, kind::Any};
use crate::{Buffer, Context, DataType, Element, Error, Result, SharedBuffer, Stream};
use bytemuck::{AnyBitPattern, NoUninit};
use core::fmt;
use core::marker::PhantomData;
use cuda_sys::CUdeviceptr;

/// An array in memory: a layout and an element type over a buffer, a CPU slice, or the memory of another library. All
/// elements lie within that memory; every constructor checks this.
///
/// A view borrows its buffer for `'memory`, or shares its ownership; then its lifetime is `'static`. Nothing else
/// accesses the memory of an [`Exclusive`] view, so the CPU can access its elements directly. A [`Shared`] view can be
/// cloned.
///
/// The layout's offset counts from the first byte of the memory.
///
/// Elements smaller than a byte are packed as in DLPack: several share a byte, and the first has the lowest bits. If
/// each element occupies whole bytes instead, call [`with_padded_elements`](Self::with_padded_elements).
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
/// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
/// use cuda_mem::view::Index;
/// let buffer = Buffer::from_slice(&memory, &[0, 1, 2, 3, 4, 5], &stream)?;
/// let matrix = buffer.view(&[2, 3])?;
/// let right = matrix.clone().sliced(&[(..).into(), (1..).into()])?;
/// assert_eq!(right.to_vec::<i32>()?, [1, 2, 4, 5]);
/// assert_eq!(matrix.transposed().to_vec::<i32>()?, [0, 3, 1, 4, 2, 5]);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct StridedView<'memory, A: Access = Shared> {
    pub(super) memory: ViewMemory<'memory>,
    pub(super) layout: StridedLayout,
    data_type: DataType,
    read_only: bool,
    /// Whether elements smaller than a byte occupy whole bytes.
    padded: bool,
    access: PhantomData<A>,
}

impl<'memory> StridedView<'memory> {
    /// A read-only view of a buffer.
    ///
    /// # Errors
    ///
    /// Elements lie outside the buffer; the layout's item size differs from the type's.
    pub fn borrowed<T: NoUninit, K: Kind, A: Access>(
        buffer: &'memory Buffer<T, K, A>,
        data_type: DataType,
        layout: StridedLayout,
    ) -> Result<Self> {
        Self::checked("StridedView::borrowed", ViewMemory::Borrowed(buffer), data_type, layout, true)
    }

    /// A read-only view of a CPU slice.
    ///
    /// # Errors
    ///
    /// Elements lie outside the slice; the layout's item size differs from the type's.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// use cuda_mem::view::{Order, StridedLayout, StridedView};
    /// let host = [1u8, 2, 3, 4, 5, 6];
    /// let view = StridedView::of_slice(&host, StridedLayout::dense(&[2, 3], 1, Order::C)?)?;
    /// let mut buffer = Buffer::<u8, _>::zeroed(&memory, 6, &stream)?;
    /// buffer.view_mut(&[3, 2])?.copy_from(&view.transposed())?;
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
        Self::checked("StridedView::of_slice", ViewMemory::Host(memory), data_type::<T>(), layout, true)
    }
}

impl StridedView<'static> {
    /// A writable view that shares the ownership of its buffer, and so keeps the memory alive.
    ///
    /// # Errors
    ///
    /// Elements lie outside the buffer; the layout's item size differs from the type's.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
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
        Self::checked("StridedView::shared", ViewMemory::Shared(buffer.into_bytes()), data_type, layout, false)
    }

    /// A view of an array of the interchange, whose bytes, which were checked, are all of the memory. `padded`: elements
    /// smaller than a byte occupy whole bytes.
    pub(crate) fn of_array(
        memory: SharedBuffer<u8, Any>,
        data_type: DataType,
        layout: StridedLayout,
        read_only: bool,
        padded: bool,
    ) -> Self {
        // A new value, so that the first access of the CPU waits for the stream.
        let memory = ViewMemory::Shared(memory.into_bytes());
        let read_only = read_only || memory.is_read_only();
        let view = Self { memory, layout, data_type, read_only, padded, access: PhantomData };
        debug_assert_eq!(view.check("SharedTensor::into_view"), Ok(()));
        view
    }

    /// A writable view of `size` bytes of CPU memory that another library owns.
    ///
    /// # Errors
    ///
    /// Elements lie outside the memory; the layout's item size differs from the type's.
    ///
    /// # Safety
    ///
    /// The memory stays allocated while `owner` lives, and its bytes are initialized. While a copy uses this view, or a
    /// view made from it, nobody else writes the memory, and nobody reads it if the copy writes it.
    pub unsafe fn of_host_memory(
        start: *mut u8,
        size: usize,
        owner: ForeignOwner,
        data_type: DataType,
        layout: StridedLayout,
    ) -> Result<Self> {
        let memory = HostMemory { start, size, owner: Some(owner), borrow: PhantomData };
        Self::checked("StridedView::of_host_memory", ViewMemory::Host(memory), data_type, layout, false)
    }
}

impl<'memory> StridedView<'memory, Exclusive> {
    /// A writable view of a buffer that it borrows exclusively.
    ///
    /// # Errors
    ///
    /// Elements lie outside the buffer; the layout's item size differs from the type's.
    pub fn exclusive<T: NoUninit + AnyBitPattern, K: Kind>(
        buffer: &'memory mut Buffer<T, K>,
        data_type: DataType,
        layout: StridedLayout,
    ) -> Result<Self> {
        Self::checked("StridedView::exclusive", ViewMemory::Borrowed(buffer), data_type, layout, false)
    }

    /// A writable view of a CPU slice.
    ///
    /// # Errors
    ///
    /// Elements lie outside the slice; the layout's item size differs from the type's.
    pub fn of_mut_slice<T: Element + NoUninit + AnyBitPattern>(
        slice: &'memory mut [T],
        layout: StridedLayout,
    ) -> Result<Self> {
        let memory =
            HostMemory { size: size_of_val(slice), start: slice.as_mut_ptr().cast(), owner: None, borrow: PhantomData };
        Self::checked("StridedView::of_mut_slice", ViewMemory::Host(memory), data_type::<T>(), layout, false)
    }

    /// The same view, borrowed for a shorter time. Use it to take parts without giving up the view.
    pub fn reborrow(&mut self) -> StridedView<'_, Exclusive> {
        StridedView { memory: self.memory.reborrow(), layout: self.layout.clone(), access: PhantomData, ..*self }
    }

    /// Converts to a read-only view, which can be cloned.
    pub fn into_shared(self) -> StridedView<'memory> {
        StridedView { read_only: true, ..self.with_access() }
    }
}

impl<T: Element + NoUninit, K: Kind, A: Access> Buffer<T, K, A> {
    /// The buffer as a read-only array of this shape. One extent may be -1; it is computed from the others.
    ///
    /// # Errors
    ///
    /// The shape and the buffer differ in their number of elements.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// let buffer = Buffer::from_slice(&memory, &[1u16, 2, 3, 4, 5, 6], &stream)?;
    /// let matrix = buffer.view(&[-1, 3])?;
    /// assert_eq!((matrix.shape(), matrix.is_read_only()), (&[2, 3][..], true));
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn view(&self, shape: &[impl Extent]) -> Result<StridedView<'_>> {
        StridedView::borrowed(self, data_type::<T>(), line::<T>(self.len())?.reshaped(shape)?)
    }
}

impl<T: Element + NoUninit + AnyBitPattern, K: Kind> Buffer<T, K> {
    /// The buffer as a writable array of this shape. One extent may be -1; it is computed from the others.
    ///
    /// # Errors
    ///
    /// The shape and the buffer differ in their number of elements.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
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
    pub fn view_mut(&mut self, shape: &[impl Extent]) -> Result<StridedView<'_, Exclusive>> {
        let layout = line::<T>(self.len())?.reshaped(shape)?;
        StridedView::exclusive(self, data_type::<T>(), layout)
    }
}

impl<T: Element + NoUninit + AnyBitPattern, K: Kind> SharedBuffer<T, K> {
    /// The buffer as a writable array of this shape, which owns the buffer. One extent may be -1; it is computed from
    /// the others.
    ///
    /// # Errors
    ///
    /// The shape and the buffer differ in their number of elements.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// let view = Buffer::from_slice(&memory, &[1.5f32; 6], &stream)?.into_shared().into_view(&[2, 3])?;
    /// let turned = view.clone().transposed(); // holds the memory too
    /// drop(view);
    /// assert_eq!(turned.to_vec::<f32>()?, [1.5; 6]);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn into_view(self, shape: &[impl Extent]) -> Result<StridedView<'static>> {
        let layout = line::<T>(self.len())?.reshaped(shape)?;
        StridedView::shared(self, data_type::<T>(), layout)
    }
}

/// The layout of a buffer of `length` elements.
fn line<T>(length: usize) -> Result<StridedLayout> {
    Ok(StridedLayout::dense(&[length], size_of::<T>(), Order::C)?)
}

impl<'memory, A: Access> StridedView<'memory, A> {
    fn checked(
        call: &'static str,
        memory: ViewMemory<'memory>,
        data_type: DataType,
        layout: StridedLayout,
        read_only: bool,
    ) -> Result<Self> {
        let read_only = read_only || memory.is_read_only();
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
            return Err(ViewError::OutOfBounds { call, first, end, size });
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
    /// Elements lie outside the memory; the layout's item size differs from the type's.
    pub fn with_layout(mut self, layout: StridedLayout) -> Result<Self> {
        self.layout = layout;
        self.check("StridedView::with_layout")?;
        Ok(self)
    }

    /// The same elements as another type of the same size.
    ///
    /// # Errors
    ///
    /// The type has another size. To change type and layout together, call
    /// [`with_type_and_layout`](Self::with_type_and_layout).
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

    /// Declares that each element smaller than a byte occupies whole bytes. Other elements do not change.
    ///
    /// # Errors
    ///
    /// With whole bytes for each element, elements lie outside the memory.
    #[doc(alias = "IS_SUBBYTE_TYPE_PADDED")]
    pub fn with_padded_elements(mut self) -> Result<Self> {
        self.padded = true;
        self.check("StridedView::with_padded_elements")?;
        Ok(self)
    }

    /// The same view, read-only.
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

    /// Whether the view is read-only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether several elements share a byte.
    pub fn is_packed(&self) -> bool {
        self.data_type.is_sub_byte() && !self.padded
    }

    /// Which processors can address the memory.
    pub fn accessibility(&self) -> Accessibility {
        self.memory.accessibility()
    }

    /// The ordinal of the memory's device; `None` for host memory.
    pub fn device_ordinal(&self) -> Option<i32> {
        self.memory.device_ordinal()
    }

    /// The context of the memory; `None` for CPU memory that the driver does not know.
    pub fn context(&self) -> Option<&Context> {
        self.memory.context()
    }

    /// The home stream of the memory; `None` for CPU memory that the driver does not know.
    pub fn stream(&self) -> Option<&Stream> {
        self.memory.stream()
    }

    /// The buffer, if the view shares its ownership and is writable, because a buffer is writable.
    #[doc(alias = "exporting_obj")]
    pub fn buffer(&self) -> Option<&SharedBuffer<u8, Any>> {
        self.shared_memory().filter(|_| !self.read_only)
    }

    /// The buffer, if the view shares its ownership, even if the view is read-only. The caller must not write the
    /// buffer then.
    pub(crate) fn shared_memory(&self) -> Option<&SharedBuffer<u8, Any>> {
        match &self.memory {
            ViewMemory::Shared(buffer) => Some(buffer),
            _ => None,
        }
    }

    /// The address of the element with indices 0, for kernels and the driver; the CPU's address if only the CPU can
    /// address the memory. If elements share bytes, the address of the byte in which that element begins.
    ///
    /// Report work that uses the address with [`record_use`](Self::record_use).
    pub fn device_pointer(&self) -> CUdeviceptr {
        self.memory.tell_address();
        self.memory.address().wrapping_add_signed(self.first_byte())
    }

    /// The CPU's address of the element with indices 0; null if the CPU cannot address the memory. The caller orders
    /// accesses through it with device work.
    pub fn host_pointer(&self) -> *mut u8 {
        self.memory.tell_address();
        self.host_address()
    }

    /// The same address, which stays within this library.
    pub(crate) fn host_address(&self) -> *mut u8 {
        let start = self.memory.host_pointer();
        if start.is_null() { start } else { start.wrapping_offset(self.first_byte() as isize) }
    }

    /// The offset of the element with indices 0 in the memory, in bytes. It may lie outside if there are no elements.
    fn first_byte(&self) -> i64 {
        match self.is_packed() {
            true => (i128::from(self.layout.offset()) * self.data_type.element_bits() as i128).div_euclid(8) as i64,
            false => self.layout.byte_offset(),
        }
    }

    /// Records that work queued on `stream` uses this memory, such as a kernel that was launched with
    /// [`device_pointer`](Self::device_pointer). Later operations of the buffer, and its free, wait for that work.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    pub fn record_use(&self, stream: &Stream) -> Result<()> {
        self.memory.record_use(stream)
    }

    /// Changes the layout without a check: the new layout must contain only elements of the old one.
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
            .field(
                "device_pointer",
                &format_args!("{:#x}", self.memory.address().wrapping_add_signed(self.first_byte())),
            )
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
