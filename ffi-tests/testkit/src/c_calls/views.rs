//! Calls of views, and of their exports to other libraries and imports from them.

use super::{Calls, kind};
use core::ffi::{c_char, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use cuda_mem::interchange::arrow::{ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema};
use cuda_mem::interchange::dlpack::{DLManagedTensor, DLManagedTensorVersioned};
use cudamem::array_interface::*;
use cudamem::arrow::*;
use cudamem::arrow_schema::*;
use cudamem::arrow_stream::*;
use cudamem::data_type::*;
use cudamem::dlpack::*;
use cudamem::handles::*;
use cudamem::objects::{cudamem_get_raw, cudamem_record_use};
use cudamem::status::CUDAMEM_SUCCESS;
use cudamem::text::{cudamem_text_destroy, cudamem_text_get};
use cudamem::view::*;
use cudamem::view_copy::*;
use cudamem::view_parts::*;

const VIEW: fn(u64) -> cudamem_view = |id| cudamem_view { id };
const VIEW_ID: fn(cudamem_view) -> u64 = |view| view.id;
const ARRAY: fn(u64) -> cudamem_arrow_array = |id| cudamem_arrow_array { id };
const ARRAY_ID: fn(cudamem_arrow_array) -> u64 = |array| array.id;

/// Frees memory that a view borrowed.
extern "C" fn free(user: *mut c_void) {
    // SAFETY: the memory was boxed when it was borrowed, for one call.
    drop(unsafe { Box::from_raw(user.cast::<Vec<u8>>()) });
}

/// Makes a call whose result is taken apart again at once.
fn result_of<T>(call: impl FnOnce(Option<&mut MaybeUninit<T>>) -> i32) -> (i32, Option<T>) {
    let mut place = MaybeUninit::uninit();
    let status = call(Some(&mut place));
    // SAFETY: the call writes the place on success.
    (status, (status == CUDAMEM_SUCCESS).then(|| unsafe { place.assume_init() }))
}

impl Calls<'_> {
    /// Usually a valid type.
    fn data_type(&mut self) -> cudamem_data_type {
        const TYPES: [(u8, u8, u16); 6] = [(1, 8, 1), (2, 32, 1), (0, 16, 1), (3, 8, 12), (17, 4, 1), (2, 64, 2)];
        match self.byte() {
            0..8 => cudamem_data_type { code: self.byte(), bits: self.byte(), lanes: u16::from(self.byte()) },
            choice => {
                let (code, bits, lanes) = TYPES[choice as usize % TYPES.len()];
                cudamem_data_type { code, bits, lanes }
            }
        }
    }

    /// A small number, sometimes a negative or huge one.
    fn extent(&mut self) -> i64 {
        match self.byte() {
            0..4 => self.number() as i64,
            4..12 => -1,
            12..20 => -i64::from(self.byte() % 5),
            other => i64::from(other % 7),
        }
    }

    fn extents(&mut self) -> [i64; 4] {
        [(); 4].map(|()| self.extent())
    }

    /// Makes one call that creates, changes, copies or exports a view.
    pub(super) fn view_step(&mut self) {
        match self.byte() % 8 {
            0 | 1 => self.make_view(),
            2 | 3 => self.change_view(),
            4 => self.copy_view(),
            5 => self.use_view(),
            6 => self.hand_on(),
            _ => self.arrow(),
        }
    }

    fn make_view(&mut self) {
        let (shape, strides, buffer) = (self.extents(), self.extents(), self.buffer());
        let layout = cudamem_view_layout {
            size: size_of::<cudamem_view_layout>() - usize::from(self.byte() == 0),
            data_type: self.data_type(),
            flags: u32::from(self.byte() % 9),
            ndim: usize::from(self.byte() % 5),
            shape: if self.byte() == 0 { ptr::null() } else { shape.as_ptr() },
            strides: if self.byte() < 128 { ptr::null() } else { strides.as_ptr() },
            offset: if self.byte() < 128 { 0 } else { self.extent() },
        };
        let view = self.view();
        match self.byte() % 4 {
            // SAFETY: the lists have that many entries.
            0 => self.make(VIEW, VIEW_ID, |place| unsafe { cudamem_view_with_layout(view, &layout, place) }),
            1 => {
                let mut memory = Box::new(vec![7; 4096]);
                let (start, size) = (memory.as_mut_ptr().cast(), self.size() % 4097);
                let user: *mut c_void = Box::into_raw(memory).cast();
                let known = self.handles.len();
                // SAFETY: as above; the memory has that many bytes until it is freed.
                self.make(VIEW, VIEW_ID, |place| unsafe {
                    cudamem_view_borrow_host(start, size, &layout, Some(free), user, place)
                });
                if self.handles.len() == known {
                    free(user);
                }
            }
            // SAFETY: as above.
            _ => self.make(VIEW, VIEW_ID, |place| unsafe { cudamem_view_create(buffer, &layout, place) }),
        }
    }

    fn change_view(&mut self) {
        let (view, numbers, count) = (self.view(), self.extents(), usize::from(self.byte() % 5));
        let indices = [(); 4].map(|()| cudamem_index { start: self.extent(), end: self.extent(), step: self.extent() });
        let (data_type, axis) = (self.data_type(), self.extent());
        let choice = self.byte() % 9;
        // SAFETY: the lists have that many entries.
        self.make(VIEW, VIEW_ID, |place| unsafe {
            match choice {
                0 => cudamem_view_reshape(view, numbers.as_ptr(), count, place),
                1 => cudamem_view_permute(view, numbers.as_ptr(), count, place),
                2 => cudamem_view_slice(view, indices.as_ptr(), count, place),
                3 => cudamem_view_broadcast(view, numbers.as_ptr(), count, place),
                4..7 => cudamem_view_flatten(view, place),
                7 => cudamem_view_repack(view, data_type, axis, place),
                _ => cudamem_view_make_read_only(view, place),
            }
        });
    }

    fn info(&mut self, view: cudamem_view) -> Option<cudamem_view_info> {
        let mut info = MaybeUninit::<cudamem_view_info>::zeroed();
        // SAFETY: the struct is as large as it says, and all bytes are a value of it.
        let status = unsafe {
            (*info.as_mut_ptr()).size = size_of::<cudamem_view_info>();
            cudamem_view_get_info(view, info.as_mut_ptr())
        };
        // SAFETY: as above.
        self.count(status).then(|| unsafe { info.assume_init() })
    }

    fn copy_view(&mut self) {
        let (view, source) = (self.view(), self.view());
        let options = cudamem_view_copy_options {
            size: size_of::<cudamem_view_copy_options>(),
            flags: u32::from(self.byte() % 4),
            reserved: u32::from(self.byte() == 0),
            stream: if self.byte() < 200 { cudamem_stream { id: 0 } } else { self.stream() },
            temporary: if self.byte() < 200 { cudamem_resource { id: 0 } } else { self.resource() },
        };
        let options = if self.byte() < 100 { ptr::null() } else { &raw const options };
        let fits = self.info(view).map(|info| info.dense_size as usize).filter(|_| self.byte() > 8);
        let size = fits.unwrap_or_else(|| self.size());
        let room = self.room(size);
        // SAFETY: the room has that many bytes or is NULL.
        let status = unsafe {
            match self.byte() % 3 {
                0 => cudamem_view_copy(view, source, options),
                1 => cudamem_view_write(view, room, size, options),
                _ => cudamem_view_read(view, room, size, options),
            }
        };
        self.count(status);
    }

    fn use_view(&mut self) {
        let (view, stream, data_type) = (self.view(), self.stream(), self.data_type());
        let flags = u32::from(self.byte() % 3);
        match self.byte() % 6 {
            0 => self.make(|id| cudamem_buffer { id }, |made| made.id, |place| cudamem_view_get_buffer(view, place)),
            1 => {
                let status = cudamem_record_use(view.id, stream);
                self.count(status);
            }
            2 => self.make(
                |id| cudamem_text { id },
                |made| made.id,
                |place| cudamem_data_type_get_name(data_type, flags, place),
            ),
            3 => self.make(
                |id| cudamem_text { id },
                |made| made.id,
                |place| cudamem_view_export_array_interface(view, CUDAMEM_ARRAY_INTERFACE_NUMPY, place),
            ),
            4 => {
                let (status, text) = result_of(|place| cudamem_view_export_array_interface(view, 0, place));
                self.count(status);
                let Some(text) = text else { return };
                let (_, characters) = result_of(|place| cudamem_text_get(text, place, None));
                let characters: *const c_char = characters.unwrap_or(ptr::null());
                // SAFETY: the text is the library's, and nothing destroys the view that owns the memory before the next
                // step.
                let (status, again) = result_of(|place| unsafe {
                    cudamem_view_import_array_interface(characters, 0, stream, None, ptr::null_mut(), place)
                });
                self.count(status);
                let ended = again.map_or(CUDAMEM_SUCCESS, |again| cudamem_view_destroy(again));
                self.count(ended);
                let ended = cudamem_text_destroy(text);
                self.count(ended);
            }
            _ => drop(self.info(view)),
        }
    }

    /// Exports a view through DLPack and imports it again.
    fn hand_on(&mut self) {
        let (view, stream) = (self.view(), self.stream());
        let producer = if self.byte() < 128 { cudamem_stream { id: 0 } } else { self.stream() };
        // The export and the import must name the same stream, which orders the two users of the memory.
        let consumer = if producer.id == 0 { stream } else { producer };
        let is_stream = kind(consumer.id) == cudamem_stream::KIND as u64;
        let raw = is_stream.then(|| result_of(|place| cudamem_get_raw(consumer.id, place)).1).flatten();
        // Only an import without a producer waits for its work before it releases the memory.
        let release = i32::from(self.byte() % 4);
        let options = cudamem_dlpack_options {
            size: size_of::<cudamem_dlpack_options>(),
            flags: u32::from(self.byte() % 9),
            release: if producer.id != 0 && release == CUDAMEM_RELEASE_IMMEDIATELY { 0 } else { release },
            // No name of a stream, so the export is refused.
            stream: raw.map_or(-2, |raw: *mut c_void| raw.expose_provenance() as i64),
            resource: if self.byte() < 128 { cudamem_resource { id: 0 } } else { self.resource() },
            device_type: if self.byte() < 200 { 0 } else { i32::from(self.byte() % 15) },
            device_id: 0,
        };
        // SAFETY: the stream lives, because the imported view holds it, or is none. Each tensor is imported once, or deleted.
        unsafe {
            if self.byte() < 64 {
                let (status, tensor) = result_of(|place| cudamem_view_export_dlpack(view, &options, None, place));
                self.count(status);
                let Some(tensor): Option<*mut DLManagedTensor> = tensor else { return };
                let known = self.handles.len();
                self.make(VIEW, VIEW_ID, |place| {
                    cudamem_view_import_dlpack(ptr::null_mut(), tensor, stream, producer, place)
                });
                if let (true, Some(deleter)) = (self.handles.len() == known, (*tensor).deleter) {
                    deleter(tensor);
                }
                return;
            }
            let (status, tensor) = result_of(|place| cudamem_view_export_dlpack(view, &options, place, None));
            self.count(status);
            let Some(tensor): Option<*mut DLManagedTensorVersioned> = tensor else { return };
            let known = self.handles.len();
            self.make(VIEW, VIEW_ID, |place| {
                cudamem_view_import_dlpack(tensor, ptr::null_mut(), stream, producer, place)
            });
            if let (true, Some(deleter)) = (self.handles.len() == known, (*tensor).deleter) {
                deleter(tensor);
            }
        }
    }

    fn arrow(&mut self) {
        let (array, schema, arrays, stream) =
            (self.arrow_array(), self.arrow_schema(), self.arrow_stream(), self.stream());
        let index = [0, 1, 2, CUDAMEM_ARROW_DICTIONARY][usize::from(self.byte() % 4)];
        let schema_kind: fn(u64) -> cudamem_arrow_schema = |id| cudamem_arrow_schema { id };
        match self.byte() % 12 {
            0 | 1 => self.make_array(array),
            2 => {
                let children = [schema; 2];
                let options = cudamem_arrow_schema_options {
                    size: size_of::<cudamem_arrow_schema_options>(),
                    format: if self.byte() == 0 { ptr::null() } else { c"+s".as_ptr() },
                    name: ptr::null(),
                    flags: 2,
                    n_children: if self.byte() < 128 { 0 } else { index % 3 },
                    children: children.as_ptr(),
                    dictionary: cudamem_arrow_schema { id: 0 },
                    n_metadata: 0,
                    metadata_keys: ptr::null(),
                    metadata_values: ptr::null(),
                };
                // SAFETY: the list has that many entries.
                self.make(schema_kind, |made| made.id, |place| unsafe { cudamem_arrow_schema_create(&options, place) });
            }
            3 => {
                let (status, raw) = result_of::<ArrowSchema>(|place| cudamem_arrow_schema_export(schema, place));
                self.count(status);
                let Some(mut raw) = raw else { return };
                // SAFETY: the schema was exported just now.
                self.make(schema_kind, |made| made.id, |place| unsafe { cudamem_arrow_schema_import(&mut raw, place) });
                if let Some(release) = raw.release {
                    // SAFETY: it was not imported.
                    unsafe { release(&mut raw) };
                }
            }
            4 | 5 => {
                let (status, raw) =
                    result_of::<ArrowDeviceArray>(|place| cudamem_arrow_array_export(array, stream, place));
                self.count(status);
                let Some(mut raw) = raw else { return };
                // SAFETY: the array was exported just now.
                self.make(ARRAY, ARRAY_ID, |place| unsafe { cudamem_arrow_array_import(&mut raw, place) });
                if let Some(release) = raw.array.release {
                    // SAFETY: it was not imported.
                    unsafe { release(&mut raw.array) };
                }
            }
            6 => self.make(ARRAY, ARRAY_ID, |place| cudamem_arrow_array_get_child(array, index, place)),
            7 => {
                let size = [0, 1, usize::MAX][usize::from(self.byte() % 3)];
                // SAFETY: each buffer that is present has at least one byte.
                self.make(
                    |id| cudamem_buffer { id },
                    |made| made.id,
                    |place| unsafe { cudamem_arrow_array_get_buffer(array, index, size, stream, place) },
                );
            }
            8 => {
                let list = [array; 2];
                // SAFETY: the list has that many entries.
                let (status, raw) = result_of::<ArrowDeviceArrayStream>(|place| unsafe {
                    cudamem_arrow_stream_export(schema, list.as_ptr(), index % 3, stream, place)
                });
                self.count(status);
                let Some(mut raw) = raw else { return };
                // SAFETY: the stream was exported just now.
                self.make(
                    |id| cudamem_arrow_stream { id },
                    |made| made.id,
                    |place| unsafe { cudamem_arrow_stream_import(&mut raw, place) },
                );
                if let Some(release) = raw.release {
                    // SAFETY: it was not imported.
                    unsafe { release(&mut raw) };
                }
            }
            9 => self.make(ARRAY, ARRAY_ID, |place| cudamem_arrow_stream_next(arrays, place)),
            10 => self.make(schema_kind, |made| made.id, |place| cudamem_arrow_stream_get_schema(arrays, place)),
            _ => {
                let status = cudamem_arrow_array_destroy_after(array, stream);
                self.count(status);
            }
        }
    }

    fn make_array(&mut self, child: cudamem_arrow_array) {
        let buffers = [cudamem_buffer { id: 0 }, self.buffer()];
        let options = cudamem_arrow_array_options {
            size: size_of::<cudamem_arrow_array_options>(),
            length: u64::from(self.byte()),
            null_count: i64::from(self.byte() % 3) - 1,
            offset: if self.byte() == 0 { u64::MAX } else { 0 },
            n_buffers: usize::from(self.byte() % 3),
            buffers: buffers.as_ptr(),
            n_children: usize::from(self.byte() > 128),
            children: &child,
            dictionary: cudamem_arrow_array { id: 0 },
        };
        // SAFETY: the lists have that many entries.
        self.make(ARRAY, ARRAY_ID, |place| unsafe { cudamem_arrow_array_create(&options, place) });
    }
}
