//! Copies of views
//!
//! Copies between two views of one type and shape, whatever their layouts and wherever their memory lies, in stream
//! order: after all work on both memories so far, and before their later work. Nothing is converted.
//!
//! Copies between host and device are done when the call returns. Copies within devices are only queued. The options
//! can change either.

use crate::call::{Options, Outcome, bytes, bytes_mut, check_flags, invalid, object, options, run};
use crate::handle::Use;
use crate::handles::cudamem_resource;
use crate::handles::cudamem_stream;
use crate::handles::cudamem_view;
use crate::status::cudamem_status;
use crate::view::{dense_size, nothing};
use core::ffi::c_void;
use core::mem::size_of;
use cuda_mem::memory::SharedResource;
use cuda_mem::view::{Order, StridedLayout, StridedView, ViewCopyOptions};
use cuda_mem::{DataType, Error, Stream};
use std::sync::Arc;

/// A flag of cudamem_view_copy_options: return when the copy is done.
pub const CUDAMEM_VIEW_COPY_WAIT: u32 = 1;
/// A flag of cudamem_view_copy_options: return when the copy is queued. Copies with host memory that the driver does
/// not know are waited for all the same.
pub const CUDAMEM_VIEW_COPY_NO_WAIT: u32 = 2;
/// A flag of cudamem_view_copy_options: refuse a copy between devices that would go through the host
/// (CUDAMEM_ERROR_NO_ACCESS).
pub const CUDAMEM_VIEW_COPY_DIRECT: u32 = 4;

/// How views are copied. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_view_copy_options {
    /// sizeof(cudamem_view_copy_options).
    pub size: usize,
    /// CUDAMEM_VIEW_COPY_... .
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
    /// The stream that orders the copy, on the device of the destination, or otherwise of the source. The null handle
    /// selects the memory's home stream.
    pub stream: cudamem_stream,
    /// The resource for temporary memory, if some is needed: of the host or of the device, as the resource has it. The
    /// null handle selects the heap, and the device's current pool.
    pub temporary: cudamem_resource,
}

// SAFETY: 8 + 4 + 4 bytes, and two handles of 8 bytes.
unsafe impl Options for cudamem_view_copy_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Options with the objects that their handles name.
struct CopySettings {
    stream: Option<Use<Stream>>,
    temporary: Option<SharedResource>,
    blocking: Option<bool>,
    require_direct: bool,
}

impl CopySettings {
    /// # Safety
    ///
    /// As [`options`].
    unsafe fn read(given: *const cudamem_view_copy_options) -> Outcome<Self> {
        // SAFETY: this function's contract.
        let said = unsafe { options("options", given) }?;
        check_flags(
            "options.flags",
            said.flags,
            CUDAMEM_VIEW_COPY_WAIT | CUDAMEM_VIEW_COPY_NO_WAIT | CUDAMEM_VIEW_COPY_DIRECT,
        )?;
        let require_direct = said.flags & CUDAMEM_VIEW_COPY_DIRECT != 0;
        check_flags("options.reserved", said.reserved, 0)?;
        let blocking = match said.flags & !CUDAMEM_VIEW_COPY_DIRECT {
            0 => None,
            CUDAMEM_VIEW_COPY_WAIT => Some(true),
            CUDAMEM_VIEW_COPY_NO_WAIT => Some(false),
            _ => return Err(invalid("options.flags", "both _WAIT and _NO_WAIT", "it must have at most one of them")),
        };
        let stream = if said.stream.id == 0 { None } else { Some(object("options.stream", said.stream)?) };
        let temporary = match said.temporary.id {
            0 => None,
            _ => Some(object("options.temporary", said.temporary)?.share()),
        };
        Ok(Self { stream, temporary, blocking, require_direct })
    }

    fn options(&self) -> ViewCopyOptions<'_> {
        let mut options = ViewCopyOptions::default();
        options.stream = self.stream.as_deref();
        options.temporary = self.temporary.as_ref();
        options.blocking = self.blocking;
        options.require_direct = self.require_direct;
        options
    }
}

/// Copies the elements of source to view, which has the same type and shape. options may be NULL.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if types or shapes differ, if view is read-only or has elements that share
/// memory, or if the two overlap without being the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_view_copy(
    view: cudamem_view,
    source: cudamem_view,
    options: *const cudamem_view_copy_options,
) -> cudamem_status {
    run("cudamem_view_copy", || {
        // SAFETY: the header requires NULL or `size` bytes.
        let chosen = unsafe { CopySettings::read(options) }?;
        let (view, source) = (object("view", view)?, object("source", source)?);
        // Copies through a clone, because views are immutable. The memory is the same.
        Ok((*view).clone().copy_from_with(&source, &chosen.options())?)
    })
}

/// A dense view, in C order, of host memory with elements like those of another view.
///
/// # Safety
///
/// The memory lives for `size` bytes while the view, or one made from it, does. Only the view writes it.
unsafe fn line(start: *mut u8, size: usize, like: &StridedView<'static>) -> Outcome<StridedView<'static>> {
    let wanted = dense_size(like);
    if size != wanted {
        return Err(invalid("size", size.to_string(), format!("it must be {wanted}, the size of the view's elements")));
    }
    let layout = StridedLayout::dense(like.shape(), like.data_type().padded_size(), Order::C).map_err(Error::from)?;
    // SAFETY: this function's contract. The memory needs no owner.
    let view = unsafe { StridedView::of_host_memory(start, size, Arc::new(()), DataType::UINT8, nothing()?) }?;
    let view = if like.is_packed() { view } else { view.with_padded_elements()? };
    Ok(view.with_type_and_layout(like.data_type(), layout)?)
}

/// Copies size bytes of dense elements in C order from host memory to a view. Returns when the copy is done. options
/// may be NULL.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if size is not the dense_size of cudamem_view_info.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_view_write(
    view: cudamem_view,
    source: *const c_void,
    size: usize,
    options: *const cudamem_view_copy_options,
) -> cudamem_status {
    run("cudamem_view_write", || {
        // SAFETY: the header requires valid bytes and options.
        let (source, chosen) = unsafe { (bytes("source", source, size)?, CopySettings::read(options)?) };
        let view = object("view", view)?;
        // SAFETY: the program's bytes live through the call. The copy only reads them, and is then done.
        let line = unsafe { line(source.as_ptr().cast_mut(), size, &view) }?;
        Ok((*view).clone().copy_from_with(&line, &chosen.options())?)
    })
}

/// Copies the elements of a view to size bytes of host memory, dense and in C order. Returns when the copy is done.
/// options may be NULL.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if size is not the dense_size of cudamem_view_info.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_view_read(
    view: cudamem_view,
    destination: *mut c_void,
    size: usize,
    options: *const cudamem_view_copy_options,
) -> cudamem_status {
    run("cudamem_view_read", || {
        // SAFETY: the header requires valid bytes and options.
        let (destination, chosen) =
            unsafe { (bytes_mut("destination", destination, size)?, CopySettings::read(options)?) };
        let view = object("view", view)?;
        // SAFETY: the program's bytes live through the call, and the copy is then done.
        let mut line = unsafe { line(destination.as_mut_ptr(), size, &view) }?;
        Ok(line.copy_from_with(&view, &chosen.options())?)
    })
}
