//! The paths through the C library. Its functions are linked in; a program that links the shared library runs some
//! instructions more for each call.

use crate::{Result, count, current_context};
use core::mem::MaybeUninit;
use core::ptr;
use cudamem::buffer::{cudamem_buffer_allocate, cudamem_buffer_destroy, cudamem_buffer_get_device_pointer};
use cudamem::context::cudamem_context_open_primary;
use cudamem::data_type::{CUDAMEM_TYPE_FLOAT, cudamem_data_type};
use cudamem::dlpack::{cudamem_dlpack_options, cudamem_view_export_dlpack, cudamem_view_import_dlpack};
use cudamem::handles::{cudamem_buffer, cudamem_context, cudamem_resource, cudamem_stream, cudamem_view};
use cudamem::mapped::cudamem_buffer_store;
use cudamem::pool::cudamem_pool_create;
use cudamem::resource::{cudamem_resource_create_device, cudamem_resource_create_mapped};
use cudamem::status::cudamem_last_error_message;
use cudamem::stream::cudamem_stream_create;
use cudamem::view::{cudamem_view_create, cudamem_view_destroy, cudamem_view_layout};
use cudamem::view_parts::{cudamem_index, cudamem_view_slice};
use std::ffi::CStr;
use std::hint::black_box;

/// The size of a block.
const SIZE: usize = 1000;

/// Objects that live until the program ends.
struct World {
    context: cudamem_context,
    stream: cudamem_stream,
    pool: cudamem_resource,
}

fn world() -> Result<World> {
    current_context()?;
    let context = made(|place| cudamem_context_open_primary(0, place));
    // SAFETY: there are no options.
    let stream = made(|place| unsafe { cudamem_stream_create(context, ptr::null(), place) });
    let device = made(|place| cudamem_resource_create_device(context, place));
    // SAFETY: there are no options.
    let pool = made(|place| unsafe { cudamem_pool_create(device, ptr::null(), place) });
    Ok(World { context, stream, pool })
}

impl World {
    fn allocate(&self, size: usize) -> cudamem_buffer {
        made(|place| cudamem_buffer_allocate(self.pool, size, self.stream, place))
    }

    fn view(&self) -> cudamem_view {
        let buffer = self.allocate(4 << 20);
        let shape = [1024, 1024];
        let layout = cudamem_view_layout {
            size: size_of::<cudamem_view_layout>(),
            data_type: cudamem_data_type { code: CUDAMEM_TYPE_FLOAT, bits: 32, lanes: 1 },
            flags: 0,
            ndim: 2,
            shape: shape.as_ptr(),
            strides: ptr::null(),
            offset: 0,
        };
        // SAFETY: the list has two entries.
        let view = made(|place| unsafe { cudamem_view_create(buffer, &layout, place) });
        cudamem_buffer_destroy(buffer);
        view
    }
}

#[inline]
fn made<H>(call: impl FnOnce(Option<&mut MaybeUninit<H>>) -> i32) -> H {
    let mut place = MaybeUninit::uninit();
    assert_eq!(call(Some(&mut place)), 0, "{}", last_message());
    // SAFETY: the call worked and wrote its result.
    unsafe { place.assume_init() }
}

#[cold]
fn last_message() -> String {
    let text = cudamem_last_error_message();
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the text ends with a zero and stays until the thread's next failure.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// What a call does beside its own work: it checks a handle and writes a result.
pub(crate) fn handle() -> Result {
    let world = world()?;
    let (buffer, mut pointer) = (world.allocate(SIZE), MaybeUninit::uninit());
    count(|| cudamem_buffer_get_device_pointer(black_box(buffer), Some(&mut pointer)));
    Ok(())
}

pub(crate) fn pool_pair() -> Result {
    let world = world()?;
    count(|| cudamem_buffer_destroy(world.allocate(black_box(SIZE))));
    Ok(())
}

pub(crate) fn store() -> Result {
    let world = world()?;
    let source = made(|place| cudamem_resource_create_mapped(world.context, 0, place));
    let mapped = made(|place| cudamem_buffer_allocate(source, 4096, world.stream, place));
    let word = 5u32.to_ne_bytes();
    // SAFETY: the word has four bytes.
    count(|| unsafe { cudamem_buffer_store(black_box(mapped), 0, black_box(&word).as_ptr().cast(), 4) });
    Ok(())
}

pub(crate) fn view_part() -> Result {
    let world = world()?;
    let view = world.view();
    count(|| {
        let indices = [cudamem_index { start: 5, end: 0, step: 0 }];
        // SAFETY: the list has one entry.
        cudamem_view_destroy(made(|place| unsafe { cudamem_view_slice(view, indices.as_ptr(), 1, place) }))
    });
    Ok(())
}

/// A tensor for a consumer that looks after the order itself.
pub(crate) fn dlpack() -> Result {
    let world = world()?;
    let view = world.view();
    let options = cudamem_dlpack_options {
        size: size_of::<cudamem_dlpack_options>(),
        flags: 0,
        release: 0,
        stream: -1,
        resource: cudamem_resource { id: 0 },
        device_type: 0,
        device_id: 0,
    };
    count(|| {
        // SAFETY: the options are as large as they say, and the tensor is imported once.
        cudamem_view_destroy(unsafe {
            let tensor = made(|place| cudamem_view_export_dlpack(view, &options, place, None));
            made(|place| cudamem_view_import_dlpack(tensor, ptr::null_mut(), world.stream, world.stream, place))
        })
    });
    Ok(())
}
