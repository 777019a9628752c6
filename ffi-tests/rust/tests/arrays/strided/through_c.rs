//! The same copies through the C library, over the same memory: its buffers borrow the memory, and its streams are the
//! same streams.

use super::Side;
use core::mem::MaybeUninit;
use core::ptr;
use cuda_mem::view::{StridedLayout, ViewCopyOptions};
use cuda_mem::{SharedBuffer, Stream};
use cudamem::buffer::{cudamem_buffer_borrow, cudamem_buffer_destroy};
use cudamem::context::{cudamem_context_destroy, cudamem_context_open_primary};
use cudamem::data_type::{CUDAMEM_TYPE_OPAQUE, cudamem_data_type};
use cudamem::handles::{cudamem_buffer, cudamem_context, cudamem_resource, cudamem_stream, cudamem_view};
use cudamem::resource::{cudamem_resource_create_device, cudamem_resource_create_pinned, cudamem_resource_destroy};
use cudamem::stream::{cudamem_stream_borrow, cudamem_stream_destroy};
use cudamem::view::{cudamem_view_borrow_host, cudamem_view_create, cudamem_view_destroy, cudamem_view_layout};
use cudamem::view_copy::{
    CUDAMEM_VIEW_COPY_NO_WAIT, CUDAMEM_VIEW_COPY_WAIT, cudamem_view_copy, cudamem_view_copy_options,
};
use testkit::c_calls::{last_message, load};

type Result<T> = std::result::Result<T, String>;

/// Objects of the C library, which end with this value, in reverse order.
#[derive(Default)]
struct Objects(Vec<Box<dyn FnOnce() -> i32>>);

impl Drop for Objects {
    fn drop(&mut self) {
        for end in self.0.drain(..).rev() {
            assert_eq!(end(), 0, "{}", last_message());
        }
    }
}

impl Objects {
    fn add<H: Copy + 'static>(
        &mut self,
        call: impl FnOnce(Option<&mut MaybeUninit<H>>) -> i32,
        end: extern "C" fn(H) -> i32,
    ) -> Result<H> {
        let mut place = MaybeUninit::uninit();
        if call(Some(&mut place)) != 0 {
            return Err(last_message());
        }
        // SAFETY: the call writes the place on success.
        let made = unsafe { place.assume_init() };
        self.0.push(Box::new(move || end(made)));
        Ok(made)
    }

    fn context(&mut self, stream: &Stream) -> Result<cudamem_context> {
        let ordinal = stream.context().device().ordinal();
        self.add(|place| cudamem_context_open_primary(ordinal, place), cudamem_context_destroy)
    }

    fn stream(&mut self, stream: &Stream) -> Result<cudamem_stream> {
        let context = self.context(stream)?;
        // SAFETY: the stream outlives the handle.
        self.add(|place| unsafe { cudamem_stream_borrow(context, stream.raw().cast(), place) }, cudamem_stream_destroy)
    }

    fn buffer(&mut self, buffer: &SharedBuffer<u8>) -> Result<cudamem_buffer> {
        let stream = self.stream(buffer.stream())?;
        let (pointer, size) = (buffer.device_pointer(), buffer.len());
        // SAFETY: the buffer outlives the handle and has the same home stream.
        self.add(
            |place| unsafe { cudamem_buffer_borrow(pointer, size, stream, None, ptr::null_mut(), place) },
            cudamem_buffer_destroy,
        )
    }

    fn view(&mut self, side: &Side, layout: &StridedLayout) -> Result<cudamem_view> {
        let raw = cudamem_view_layout {
            size: size_of::<cudamem_view_layout>(),
            data_type: cudamem_data_type { code: CUDAMEM_TYPE_OPAQUE, bits: 8, lanes: layout.item_size() as u16 },
            flags: 0,
            ndim: layout.ndim(),
            shape: layout.shape().as_ptr(),
            strides: layout.strides().as_ptr(),
            offset: layout.offset(),
        };
        match side {
            Side::Heap(bytes) => {
                let start = bytes.as_ptr().cast_mut().cast();
                // SAFETY: the memory outlives the handle, and only this copy uses it. The lists have that many entries.
                self.add(
                    |place| unsafe { cudamem_view_borrow_host(start, bytes.len(), &raw, None, ptr::null_mut(), place) },
                    cudamem_view_destroy,
                )
            }
            Side::Buffer(buffer) => {
                let buffer = self.buffer(buffer)?;
                // SAFETY: as above.
                self.add(|place| unsafe { cudamem_view_create(buffer, &raw, place) }, cudamem_view_destroy)
            }
        }
    }
}

/// Copies as [`Side::copy_from`] does.
pub fn copy(
    to: &mut Side,
    from: &Side,
    (to_layout, from_layout): (&StridedLayout, &StridedLayout),
    options: &ViewCopyOptions<'_>,
    any_stream: &Stream,
) -> Result<()> {
    load();
    let mut objects = Objects::default();
    let context = objects.context(any_stream)?;
    let mut raw = cudamem_view_copy_options {
        size: size_of::<cudamem_view_copy_options>(),
        flags: options.blocking.map_or(0, |wait| if wait { CUDAMEM_VIEW_COPY_WAIT } else { CUDAMEM_VIEW_COPY_NO_WAIT }),
        reserved: 0,
        stream: cudamem_stream { id: 0 },
        temporary: cudamem_resource { id: 0 },
    };
    if let Some(stream) = options.stream {
        raw.stream = objects.stream(stream)?;
    }
    raw.temporary = match options.temporary {
        None => cudamem_resource { id: 0 },
        Some(resource) if resource.is_on_device() => {
            objects.add(|place| cudamem_resource_create_device(context, place), cudamem_resource_destroy)?
        }
        Some(_) => objects.add(|place| cudamem_resource_create_pinned(context, 0, place), cudamem_resource_destroy)?,
    };
    let (to, from) = (objects.view(to, to_layout)?, objects.view(from, from_layout)?);
    // SAFETY: the options are as large as they say.
    if unsafe { cudamem_view_copy(to, from, &raw) } == 0 { Ok(()) } else { Err(last_message()) }
}
