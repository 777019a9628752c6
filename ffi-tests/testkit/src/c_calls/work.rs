//! Calls that copy, ask, order and wait.

use super::Calls;
use core::ptr;
use cudamem::buffer::*;
use cudamem::context::cudamem_context_reserve_streams;
use cudamem::engine::*;
use cudamem::event::*;
use cudamem::handles::*;
use cudamem::mapped::*;
use cudamem::objects::*;
use cudamem::pool::*;
use cudamem::pool_figures::*;
use cudamem::pool_sleep::*;
use cudamem::resource::*;
use cudamem::stream::*;
use cudamem::text::*;

impl Calls<'_> {
    pub(super) fn copy(&mut self) {
        let (buffer, source, engine) = (self.buffer(), self.buffer(), self.engine());
        let (offset, from, size) = (self.size(), self.size(), self.size());
        let room = self.room(size);
        let word = self.number();
        let value_size = usize::from(self.byte() % 18);
        // SAFETY: the room has that many bytes or is NULL.
        let status = unsafe {
            match self.byte() % 16 {
                0 => cudamem_buffer_write(buffer, offset, room, size),
                1 => cudamem_buffer_read(buffer, offset, room, size),
                2 => cudamem_buffer_copy(buffer, offset, source, from, size),
                3 => cudamem_buffer_fill(buffer, offset, size, self.memory.as_ptr().cast(), value_size),
                4 => cudamem_buffer_flush(buffer, offset, size),
                5 => cudamem_buffer_invalidate(buffer, offset, size),
                6 | 7 => cudamem_buffer_store(buffer, offset, room, size),
                8 | 9 => cudamem_buffer_load(buffer, offset, room, size),
                10 => cudamem_buffer_store_u32(buffer, offset, word as u32),
                11 => cudamem_buffer_store_u64(buffer, offset, word),
                12 | 13 => cudamem_engine_write_buffer(engine, buffer, offset, room, size, ptr::null()),
                _ => cudamem_engine_read_buffer(engine, buffer, offset, room, size, ptr::null()),
            }
        };
        self.count(status);
    }

    pub(super) fn ask(&mut self) {
        let (buffer, other, resource) = (self.buffer(), self.buffer(), self.resource());
        let (stream, event, context, text) = (self.stream(), self.event(), self.context(), self.text());
        let offset = self.size();
        let chosen = self.byte() % 14;
        let raw = [context.id, stream.id, event.id, self.graph().id][usize::from(chosen % 4)];
        // SAFETY: the structs are as large as they say.
        unsafe {
            match chosen {
                0 => self.fill(|info| cudamem_buffer_get_info(buffer, info)),
                1 => self.tell(|place| cudamem_buffer_get_device_pointer(buffer, place)),
                2 => self.tell(|place| cudamem_buffer_get_host_pointer(buffer, place)),
                3 => self.tell(|place| cudamem_buffer_equals(buffer, other, place)),
                4 => self.tell(|place| cudamem_buffer_load_u64(buffer, offset, place)),
                5 => self.tell(|place| cudamem_buffer_load_u32(buffer, offset, place)),
                6 => self.fill(|info| cudamem_resource_get_info(resource, info)),
                7 => self.tell(|place| cudamem_is_done(stream.id, place)),
                8 => self.tell(|place| cudamem_is_done(event.id, place)),
                9 => self.tell(|place| cudamem_get_raw(raw, place)),
                10 => self.make(
                    |id| cudamem_text { id },
                    |made| made.id,
                    |place| cudamem_pool_get_snapshot(resource, place),
                ),
                11 => self.fill(|statistics| cudamem_pool_get_statistics(resource, statistics)),
                12 => self.tell(|place| cudamem_pool_is_asleep(resource, place)),
                _ => self.tell(|place| cudamem_text_get(text, place, None)),
            }
        }
    }

    /// A short time, or an invalid one.
    fn seconds(&mut self) -> f64 {
        [0.0, 1e-6, 1e-3, 1e-3, -1.0, f64::NAN][usize::from(self.byte() % 6)]
    }

    pub(super) fn work(&mut self) {
        let (stream, other, buffer, pool) = (self.stream(), self.stream(), self.buffer(), self.resource());
        let event = self.event();
        let status = match self.byte() % 16 {
            0 => cudamem_buffer_set_stream(buffer, stream),
            1 => cudamem_record_use(buffer.id, stream),
            2 => cudamem_buffer_synchronize(buffer),
            3 => cudamem_buffer_destroy(buffer),
            4 => cudamem_stream_join(stream, other),
            5 => cudamem_stream_wait_event(stream, event),
            6 => cudamem_event_record(event, stream),
            7 => cudamem_stream_synchronize(stream),
            8 => cudamem_pool_trim(pool, self.size()),
            9 => cudamem_pool_release_unused(pool),
            10 => cudamem_pool_reserve(pool, self.size() % (1 << 24)),
            11 => cudamem_buffer_drop(buffer),
            12 => cudamem_synchronize_for(stream.id, self.seconds()),
            13 => cudamem_synchronize_for(event.id, self.seconds()),
            14 => cudamem_context_reserve_streams(self.context(), self.size() % 50),
            _ => cudamem_pool_reset_peaks(pool),
        };
        self.count(status);
    }
}
