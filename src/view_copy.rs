//! Copies of views
//!
//! Between views of one type and shape, whatever their layouts and wherever their memory lies, in stream order: after the work
//! of both memories so far, and before their later work. Nothing is converted.
//!
//! Copies between host and device are done when the call returns, and those within devices when they have begun, unless the
//! options say otherwise.

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

/// A flag of cudamem_view_copy_options: the call returns when the copy is done.
pub const CUDAMEM_VIEW_COPY_WAIT: u32 = 1;
/// A flag of cudamem_view_copy_options: the call returns when the copy has begun. Memory of the host that the driver does not know is
/// waited for all the same.
pub const CUDAMEM_VIEW_COPY_NO_WAIT: u32 = 2;

/// How views are copied. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_view_copy_options {
    /// sizeof(cudamem_view_copy_options).
    pub size: usize,
    /// CUDAMEM_VIEW_COPY_... .
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// What the copy is ordered on, of the device that the destination lies on, or else the source. The null handle is the home
    /// stream of the memory.
    pub stream: cudamem_stream,
    /// Where temporary memory comes from, if some is needed: of the host or of the device, as the resource has it. The null
    /// handle is the heap, and the device's current pool.
    pub temporary: cudamem_resource,
}

// SAFETY: 8 + 4 + 4 bytes, and two handles of 8.
unsafe impl Options for cudamem_view_copy_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Options with the objects that they name.
struct Chosen {
    stream: Option<Use<Stream>>,
    temporary: Option<SharedResource>,
    blocking: Option<bool>,
}

impl Chosen {
    /// # Safety
    ///
    /// As [`options`].
    unsafe fn read(given: *const cudamem_view_copy_options) -> Outcome<Self> {
        // SAFETY: this function's contract.
        let said = unsafe { options("options", given) }?;
        check_flags("options.flags", said.flags, CUDAMEM_VIEW_COPY_WAIT | CUDAMEM_VIEW_COPY_NO_WAIT)?;
        check_flags("options.reserved", said.reserved, 0)?;
        let blocking = match said.flags {
            0 => None,
            CUDAMEM_VIEW_COPY_WAIT => Some(true),
            CUDAMEM_VIEW_COPY_NO_WAIT => Some(false),
            _ => return Err(invalid("options.flags", "both", "a copy is waited for, or it is not")),
        };
        let stream = if said.stream.id == 0 { None } else { Some(object("options.stream", said.stream)?) };
        let temporary = match said.temporary.id {
            0 => None,
            _ => Some(object("options.temporary", said.temporary)?.share()),
        };
        Ok(Self { stream, temporary, blocking })
    }

    fn options(&self) -> ViewCopyOptions<'_> {
        let mut options = ViewCopyOptions::default();
        options.stream = self.stream.as_deref();
        options.temporary = self.temporary.as_ref();
        options.blocking = self.blocking;
        options
    }
}

/// Copies the elements of source to view, which has the same type and shape. options may be NULL.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if types or shapes differ, if view may only be read or has elements that share memory,
/// or if the two overlap without being the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_view_copy(
    view: cudamem_view,
    source: cudamem_view,
    options: *const cudamem_view_copy_options,
) -> cudamem_status {
    run("cudamem_view_copy", || {
        // SAFETY: the header's rule for options.
        let chosen = unsafe { Chosen::read(options) }?;
        let (view, source) = (object("view", view)?, object("source", source)?);
        // Its own value, since views do not change; the memory is the same.
        Ok((*view).clone().copy_from_with(&source, &chosen.options())?)
    })
}

/// Elements without gaps in C order, like those of a view, in memory of the host.
///
/// # Safety
///
/// The memory is there for `size` bytes while the view or one made of it is; it is written only through it.
unsafe fn line(start: *mut u8, size: usize, like: &StridedView<'static>) -> Outcome<StridedView<'static>> {
    let wanted = dense_size(like);
    if size != wanted {
        return Err(invalid("size", size.to_string(), format!("the view's elements have {wanted} bytes")));
    }
    let layout = StridedLayout::dense(like.shape(), like.data_type().padded_size(), Order::C).map_err(Error::from)?;
    // SAFETY: this function's contract; nothing has to be held.
    let view = unsafe { StridedView::of_host_memory(start, size, Arc::new(()), DataType::UINT8, nothing()?) }?;
    let view = if like.is_packed() { view } else { view.with_padded_elements()? };
    Ok(view.with_type_and_layout(like.data_type(), layout)?)
}

/// Copies elements of the host to a view: size bytes, which lie without gaps in C order. Returns when that is done. options may
/// be NULL.
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
        // SAFETY: the header's rules for bytes and options.
        let (source, chosen) = unsafe { (bytes("source", source, size)?, Chosen::read(options)?) };
        let view = object("view", view)?;
        // SAFETY: the program's bytes during the call, which are only read, and waited for.
        let line = unsafe { line(source.as_ptr().cast_mut(), size, &view) }?;
        Ok((*view).clone().copy_from_with(&line, &chosen.options())?)
    })
}

/// Copies the elements of a view to the host: size bytes, where they lie without gaps in C order. Returns when that is done.
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
        // SAFETY: the header's rules for bytes and options.
        let (destination, chosen) = unsafe { (bytes_mut("destination", destination, size)?, Chosen::read(options)?) };
        let view = object("view", view)?;
        // SAFETY: the program's bytes during the call, which are waited for.
        let mut line = unsafe { line(destination.as_mut_ptr(), size, &view) }?;
        Ok(line.copy_from_with(&view, &chosen.options())?)
    })
}
