//! Views
//!
//! A view is an array of any layout in memory: in a buffer's memory, whose ownership it shares, or in host memory. A
//! layout has an element type, extents and strides. A stride is the distance between neighbours along an axis, in
//! elements; it may be negative or 0. All elements must lie within the memory.
//!
//!     int64_t shape[] = {-1, 640};
//!     cudamem_view_layout layout = {0};
//!     layout.size = sizeof layout;
//!     layout.data_type = CUDAMEM_FLOAT32;
//!     layout.ndim = 2;
//!     layout.shape = shape;
//!     cudamem_view_create(buffer, &layout, &view);
//!
//! For views of mapped memory, allocate buffers from its resource. A view never changes; functions for other layouts
//! make another view of the same memory. Elements smaller than a byte are packed: several share a byte, and the lowest
//! bits hold the first.

use crate::buffer::{Owner, cudamem_release_callback};
use crate::call::{
    self, Options, Out, Outcome, check_flags, destroy, drop_object, fill, handle_type, invalid, list, object, options,
    out, run,
};
use crate::data_type::cudamem_data_type;
use crate::handles::cudamem_buffer;
use crate::handles::cudamem_view;
use crate::resource::access_flags;
use crate::status::cudamem_status;
use core::ffi::c_void;
use core::mem::size_of;
use cuda_mem::view::{MAX_DIMENSIONS, Order, StridedLayout, StridedView};
use cuda_mem::{DataType, Error};
use cuda_mem_dynamic::Memory;

handle_type!(cudamem_view: StridedView<'static>);

/// The largest number of axes of a view.
pub const CUDAMEM_MAX_DIMENSIONS: usize = 64;

/// A flag of views: the view is read-only.
pub const CUDAMEM_VIEW_READ_ONLY: u32 = 1;
/// A flag of views: each element smaller than a byte has bytes of its own. No effect on other elements.
pub const CUDAMEM_VIEW_PADDED: u32 = 2;
/// A flag of views: the elements are dense, and the first axis varies fastest, as in Fortran.
pub const CUDAMEM_VIEW_F_ORDER: u32 = 4;
/// A flag of cudamem_view_info: the elements are dense, and the last axis varies fastest, as in C.
pub const CUDAMEM_VIEW_C_ORDER: u32 = 8;
/// A flag of cudamem_view_info: the elements are dense, in some order of the axes.
pub const CUDAMEM_VIEW_DENSE: u32 = 16;
/// A flag of cudamem_view_info: no two elements share memory.
pub const CUDAMEM_VIEW_UNIQUE: u32 = 32;

/// The layout of a view.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_view_layout {
    /// sizeof(cudamem_view_layout).
    pub size: usize,
    /// The type of the elements. Must be set.
    pub data_type: cudamem_data_type,
    /// CUDAMEM_VIEW_READ_ONLY, _PADDED and _F_ORDER, combined by |.
    pub flags: u32,
    /// The number of axes, at most CUDAMEM_MAX_DIMENSIONS. 0 describes an array of one element.
    pub ndim: usize,
    /// The extents, ndim of them. Without strides one extent may be -1: it becomes as large as the memory allows.
    pub shape: *const i64,
    /// The strides in elements, ndim of them. NULL for dense elements, in C order, or in Fortran's order with the flag.
    pub strides: *const i64,
    /// The offset in the memory of the element with indices 0, in elements.
    pub offset: i64,
}

// SAFETY: 8 + 4 + 4 bytes, a number, two pointers and a number of 8 bytes.
unsafe impl Options for cudamem_view_layout {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// A list of numbers that the program passes.
///
/// # Safety
///
/// `pointer` is NULL or readable for `count` numbers during the call.
pub(crate) unsafe fn numbers<'call, T>(argument: &'static str, pointer: *const T, count: usize) -> Outcome<&'call [T]> {
    if count > MAX_DIMENSIONS {
        return Err(invalid(argument, format!("{count} numbers"), format!("it must be at most {MAX_DIMENSIONS}")));
    }
    // SAFETY: this function's contract.
    unsafe { list(argument, pointer, count) }
}

/// A layout that was read, with the view's type and flags.
pub(crate) struct Layout {
    data_type: DataType,
    layout: StridedLayout,
    flags: u32,
}

impl Layout {
    /// Reads the program's layout for memory of `room` bytes. If `room` is None, no extent may be -1.
    ///
    /// # Safety
    ///
    /// As [`options`]; the lists are as long as the layout says.
    pub unsafe fn read(layout: *const cudamem_view_layout, room: Option<usize>) -> Outcome<Self> {
        if layout.is_null() {
            return Err(invalid("layout", "NULL", "it must point to a layout"));
        }
        // SAFETY: this function's contract.
        let said = unsafe { options("layout", layout) }?;
        check_flags("layout.flags", said.flags, CUDAMEM_VIEW_READ_ONLY | CUDAMEM_VIEW_PADDED | CUDAMEM_VIEW_F_ORDER)?;
        let data_type = DataType::try_from(said.data_type)?;
        // SAFETY: this function's contract.
        let shape = unsafe { numbers("layout.shape", said.shape, said.ndim) }?;
        let item_size = data_type.padded_size();
        let in_order = said.flags & CUDAMEM_VIEW_F_ORDER != 0;
        let made = if said.strides.is_null() {
            let padded = said.flags & CUDAMEM_VIEW_PADDED != 0;
            let found = open_extent(data_type, padded, shape, said.offset, room)?;
            let order = if in_order { Order::F } else { Order::C };
            StridedLayout::dense(found.as_deref().unwrap_or(shape), item_size, order)
        } else if in_order {
            return Err(invalid("layout.flags", "CUDAMEM_VIEW_F_ORDER", "it must not be set with strides"));
        } else {
            // SAFETY: this function's contract.
            let strides = unsafe { numbers("layout.strides", said.strides, said.ndim) }?;
            StridedLayout::new(shape, strides, item_size)
        };
        let layout = made.and_then(|made| made.with_offset(said.offset)).map_err(Error::from)?;
        Ok(Self { data_type, layout, flags: said.flags })
    }

    /// A view of the same memory in this layout.
    pub fn of(self, view: StridedView<'static>) -> Outcome<StridedView<'static>> {
        let view = match self.flags & CUDAMEM_VIEW_PADDED {
            0 => view,
            // Emptied first, because the memory may lack room for the current elements with padding.
            _ => bare(view)?.with_padded_elements()?,
        };
        let view = view.with_type_and_layout(self.data_type, self.layout)?;
        Ok(if self.flags & CUDAMEM_VIEW_READ_ONLY == 0 { view } else { view.into_read_only() })
    }
}

/// Replaces an extent of -1; None if the shape has no such extent.
fn open_extent(
    data_type: DataType,
    padded: bool,
    shape: &[i64],
    offset: i64,
    room: Option<usize>,
) -> Outcome<Option<Vec<i64>>> {
    if !shape.contains(&-1) {
        return Ok(None);
    }
    let Some(room) = room else {
        return Err(invalid("layout.shape", "-1", "an extent may be -1 only for a view that is made of memory"));
    };
    let bits = if padded { 8 * data_type.padded_size() } else { data_type.element_bits() };
    // The bits of memory as large as the address space do not fit into 64 bits.
    let (room_bits, bits) = (room as u128 * 8, bits as u128);
    if !room_bits.is_multiple_of(bits) {
        let rule = format!("the memory's {room} bytes must be a whole number of elements of {bits} bits");
        return Err(invalid("layout.shape", "-1", rule));
    }
    let left = i64::try_from(room_bits / bits).unwrap_or(i64::MAX).saturating_sub(offset).max(0);
    let line = StridedLayout::dense(&[left], 1, Order::C).map_err(Error::from)?;
    Ok(Some(line.reshaped(shape).map_err(Error::from)?.shape().to_vec()))
}

/// A layout without elements, which fits into any memory.
pub(crate) fn nothing() -> Outcome<StridedLayout> {
    Ok(StridedLayout::new(&[0], &[1], 1).map_err(Error::from)?)
}

fn bare(view: StridedView<'static>) -> Outcome<StridedView<'static>> {
    Ok(view.with_type_and_layout(DataType::UINT8, nothing()?)?)
}

/// Makes a view of a buffer's memory, whose ownership it shares: the memory is freed when its last part is destroyed.
/// layout must not be NULL.
///
/// Errors: CUDAMEM_ERROR_OUT_OF_RANGE if elements would lie outside of the buffer. CUDAMEM_ERROR_INVALID_ARGUMENT if
/// the layout is invalid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_view_create(
    buffer: cudamem_buffer,
    layout: *const cudamem_view_layout,
    view: Out<'_, cudamem_view>,
) -> cudamem_status {
    run("cudamem_view_create", || {
        let view = out("view", view)?;
        let memory = object("buffer", buffer)?.slice(0, usize::MAX)?;
        // SAFETY: the header requires NULL or `size` bytes.
        let layout = unsafe { Layout::read(layout, Some(memory.len())) }?;
        let whole = StridedView::shared(memory, DataType::UINT8, nothing()?)?;
        view.write(call::new_handle(layout.of(whole)?)?);
        Ok(())
    })
}

/// Makes a view of host memory that the driver need not know: size bytes at pointer. The memory must stay allocated
/// until the library calls release with user, after the last view of it has ended, or until that point if release is
/// NULL. Nothing else may write the memory while the view is read, or use it while the view is written. Copies with it
/// are done when their call returns. After a failure the library does not call release.
///
/// For foreign memory of a device, first make a buffer of it: cudamem_buffer_borrow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_view_borrow_host(
    pointer: *mut c_void,
    size: usize,
    layout: *const cudamem_view_layout,
    release: cudamem_release_callback,
    user: *mut c_void,
    view: Out<'_, cudamem_view>,
) -> cudamem_status {
    run("cudamem_view_borrow_host", || {
        let view = out("view", view)?;
        call::check_bytes("pointer", pointer, size)?;
        // SAFETY: the header requires NULL or `size` bytes.
        let layout = unsafe { Layout::read(layout, Some(size)) }?;
        let owner = Owner::new(release, user);
        // SAFETY: the header requires `size` bytes until the owner ends.
        let whole =
            unsafe { StridedView::of_host_memory(pointer.cast(), size, owner.clone(), DataType::UINT8, nothing()?) }?;
        view.write(call::new_handle(layout.of(whole)?)?);
        owner.arm();
        Ok(())
    })
}

/// What a view is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_view_info {
    /// sizeof(cudamem_view_info), set by the program.
    pub size: usize,
    /// The type of the elements.
    pub data_type: cudamem_data_type,
    /// CUDAMEM_VIEW_... combined by |.
    pub flags: u32,
    /// The number of axes.
    pub ndim: usize,
    /// The extents, valid until the view is destroyed.
    pub shape: *const i64,
    /// The strides in elements, valid until the view is destroyed.
    pub strides: *const i64,
    /// The offset in the memory of the element with indices 0, in elements.
    pub offset: i64,
    /// The number of elements.
    pub elements: u64,
    /// The size of the elements when dense, in bytes: what cudamem_view_read writes.
    pub dense_size: u64,
    /// The address of the element with indices 0 for kernels and for the driver (a CUdeviceptr); for host memory that
    /// the driver does not know, its host address. Record work that uses the view with cudamem_record_use.
    pub device_pointer: u64,
    /// The CPU's address of the element with indices 0; NULL if the CPU does not address the memory.
    pub host_pointer: *mut c_void,
    /// CUDAMEM_ACCESS_... combined by |.
    pub access: u32,
    /// The ordinal of the device that the memory lies on; -1 for host memory.
    pub device: i32,
}

// SAFETY: 8 + 4 + 4 bytes, eight numbers and pointers of 8 bytes, and 4 + 4.
unsafe impl Options for cudamem_view_info {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// The size of the elements when dense, in bytes.
pub(crate) fn dense_size(view: &StridedView<'_>) -> usize {
    let (elements, data_type) = (view.layout().volume() as usize, view.data_type());
    match view.is_packed() {
        true => data_type.packed_size(elements).unwrap_or(usize::MAX),
        false => elements * data_type.padded_size(),
    }
}

/// Describes a view. Set info->size first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_view_get_info(view: cudamem_view, info: *mut cudamem_view_info) -> cudamem_status {
    run("cudamem_view_get_info", || {
        let view = object("view", view)?;
        let layout = view.layout();
        let flags = [
            (view.is_read_only(), CUDAMEM_VIEW_READ_ONLY),
            (view.data_type().is_sub_byte() && !view.is_packed(), CUDAMEM_VIEW_PADDED),
            (layout.is_contiguous_f(), CUDAMEM_VIEW_F_ORDER),
            (layout.is_contiguous_c(), CUDAMEM_VIEW_C_ORDER),
            (layout.is_contiguous(), CUDAMEM_VIEW_DENSE),
            (layout.is_unique(), CUDAMEM_VIEW_UNIQUE),
        ];
        let answer = cudamem_view_info {
            size: size_of::<cudamem_view_info>(),
            data_type: view.data_type().into(),
            flags: flags.iter().filter(|(is, _)| *is).map(|(_, flag)| flag).sum(),
            ndim: layout.ndim(),
            shape: layout.shape().as_ptr(),
            strides: layout.strides().as_ptr(),
            offset: layout.offset(),
            elements: layout.volume() as u64,
            dense_size: dense_size(&view) as u64,
            device_pointer: view.device_pointer(),
            host_pointer: view.host_pointer().cast(),
            access: access_flags(view.accessibility()),
            device: view.device_ordinal().unwrap_or(-1),
        };
        // SAFETY: the header requires NULL or `size` writable bytes.
        unsafe { fill("info", info, answer) }
    })
}

/// Makes a buffer of the view's memory, for functions that take buffers. Both share ownership.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT for a view that is read-only, or that is of host memory without a buffer.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_view_get_buffer(view: cudamem_view, buffer: Out<'_, cudamem_buffer>) -> cudamem_status {
    run("cudamem_view_get_buffer", || {
        let buffer = out("buffer", buffer)?;
        let view = object("view", view)?;
        let Some(memory) = view.buffer() else {
            let value = if view.is_read_only() { "read-only" } else { "a view of host memory" };
            return Err(invalid("view", value, "it must be a writable view of a buffer"));
        };
        buffer.write(call::new_handle(Memory::shared(memory.clone()))?);
        Ok(())
    })
}

/// Destroys the handle. If no other part of the memory is left, it is freed in order of its home stream. A failed free
/// goes to the callback of cudamem_set_drop_error_callback. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_view_destroy(view: cudamem_view) -> cudamem_status {
    run("cudamem_view_destroy", || destroy("view", view, drop_object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(shape: &[i64], strides: Option<&[i64]>, room: Option<usize>, flags: u32) -> Outcome<Layout> {
        let layout = cudamem_view_layout {
            size: size_of::<cudamem_view_layout>(),
            data_type: DataType::FLOAT32.into(),
            flags,
            ndim: shape.len(),
            shape: shape.as_ptr(),
            strides: strides.map_or(core::ptr::null(), <[i64]>::as_ptr),
            offset: 2,
        };
        // SAFETY: the struct is as large as its size field says, and so are the lists.
        unsafe { Layout::read(&layout, room) }
    }

    #[test]
    fn a_layout_is_read_as_the_program_says_it() {
        let dense = read(&[2, 3], None, Some(0), 0).unwrap();
        assert_eq!((dense.layout.strides(), dense.layout.offset()), (&[3, 1][..], 2));
        assert_eq!(read(&[2, 3], None, None, CUDAMEM_VIEW_F_ORDER).unwrap().layout.strides(), [1, 2]);
        assert_eq!(read(&[2, 3], Some(&[-5, 0]), None, 0).unwrap().layout.strides(), [-5, 0]);
        assert!(read(&[2, 3], Some(&[3, 1]), None, CUDAMEM_VIEW_F_ORDER).is_err(), "strides say the order");
        assert!(read(&[2, 3], None, None, CUDAMEM_VIEW_C_ORDER).is_err(), "that flag is only told");
    }

    #[test]
    fn an_open_extent_is_what_the_memory_has_room_for() {
        let shape = |room| read(&[3, -1], None, room, 0).map(|layout| layout.layout.shape().to_vec());
        assert_eq!(shape(Some(4 * (2 + 12))).unwrap(), [3, 4]);
        assert_eq!(shape(Some(8)).unwrap(), [3, 0], "the offset takes all");
        assert!(shape(Some(4 * (2 + 13))).is_err() && shape(Some(57)).is_err(), "no whole number");
        assert!(shape(Some(usize::MAX - 7)).is_err(), "more than 63 bits of bytes");
        assert!(shape(None).is_err() && read(&[-1, -1], None, Some(8), 0).is_err());
    }
}
