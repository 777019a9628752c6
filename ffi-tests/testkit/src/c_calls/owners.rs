//! Memory right after its change of owner, growable buffers without bytes, and threads that try to join a capture.

use super::Calls;
use core::mem::MaybeUninit;
use core::ptr;
use cudamem::buffer::*;
use cudamem::engine::cudamem_engine_write_buffer;
use cudamem::event::*;
use cudamem::handles::*;
use cudamem::mapped::*;
use cudamem::objects::*;
use cudamem::status::cudamem_status;
use cudamem::stream::cudamem_stream_wait_event;
use cudamem::virtual_memory::*;

impl Calls<'_> {
    pub(super) fn owners(&mut self) {
        match self.byte() % 4 {
            0 => self.grow_from_nothing(),
            _ => self.inherit(),
        }
    }

    /// A buffer ends while a copy of it is queued. The CPU uses the next buffer, which probably has its memory.
    fn inherit(&mut self) {
        let (resource, stream, copy) = (self.resource(), self.stream(), self.buffer());
        let (size, byte) = (8 + usize::from(self.byte()) * 8, self.byte());
        let mut place = MaybeUninit::new(cudamem_buffer { id: 0 });
        let allocated = cudamem_buffer_allocate(resource, size, stream, Some(&mut place));
        if !self.count(allocated) {
            return;
        }
        // SAFETY: the call wrote the handle.
        let former = unsafe { place.assume_init() };
        // A destroy that is refused is repeated at the end.
        self.handles.push(former.id);
        // SAFETY: the value has one byte.
        let filled = unsafe { cudamem_buffer_fill(former, 0, size, ptr::from_ref(&byte).cast(), 1) };
        for status in [filled, cudamem_buffer_copy(copy, 0, former, 0, size), cudamem_buffer_destroy(former)] {
            self.count(status);
        }
        self.make(
            |id| cudamem_buffer { id },
            |made| made.id,
            |place| cudamem_buffer_allocate(resource, size, stream, place),
        );
        self.access_newest(size);
    }

    /// A growable buffer that is used while it has no bytes, grows, and is used by the CPU.
    fn grow_from_nothing(&mut self) {
        let (context, stream, engine) = (self.context(), self.stream(), self.engine());
        let options = cudamem_virtual_options {
            size: size_of::<cudamem_virtual_options>(),
            alignment: 0,
            address_hint: 0,
            peers: ptr::null(),
            peer_count: 0,
            location: i32::from(self.byte() % 3),
            node: 0,
            flags: 0,
            reserved: 0,
        };
        self.make(
            |id| cudamem_resource { id },
            |made| made.id,
            // SAFETY: the options are as large as they say, and name no peers.
            |place| unsafe { cudamem_resource_create_virtual(context, &options, place) },
        );
        let memory = cudamem_resource { id: self.newest() };
        self.make(
            |id| cudamem_buffer { id },
            |made| made.id,
            |place| cudamem_buffer_create_growable(memory, 1, stream, place),
        );
        let (buffer, room) = (cudamem_buffer { id: self.newest() }, self.room(0));
        // SAFETY: the struct is as large as it says, and no bytes are copied.
        unsafe {
            match self.byte() % 4 {
                0 => self.fill(|info| cudamem_buffer_get_info(buffer, info)),
                1 => {
                    let status = cudamem_engine_write_buffer(engine, buffer, 0, room, 0, ptr::null());
                    self.count(status);
                }
                2 => self.tell(|place| cudamem_buffer_get_host_pointer(buffer, place)),
                _ => {}
            }
        }
        let size = 8 + usize::from(self.byte()) * 64;
        self.tell(|moved| cudamem_buffer_grow(buffer, size, moved));
        self.access_newest(size);
    }

    fn newest(&self) -> u64 {
        self.handles.last().copied().unwrap_or(0)
    }

    /// A CPU access to the newest object, if it is a buffer of this size.
    fn access_newest(&mut self, size: usize) {
        let (buffer, room) = (cudamem_buffer { id: self.newest() }, self.room(size));
        // SAFETY: the room has that many bytes or is NULL.
        unsafe {
            let status = match self.byte() % 7 {
                0 => return self.tell(|place| cudamem_buffer_load_u32(buffer, size - 4, place)),
                1 => return self.tell(|place| cudamem_buffer_load_u64(buffer, 0, place)),
                2 => cudamem_buffer_store_u64(buffer, size - 8, 7),
                3 => cudamem_buffer_load(buffer, 0, room, size),
                4 => cudamem_buffer_flush(buffer, 0, size),
                _ => cudamem_buffer_store(buffer, 0, room, size),
            };
            self.count(status);
        }
    }

    /// In a capture of this thread: records an event, which another thread then uses.
    pub(super) fn join_from_another_thread(&mut self, captured: cudamem_stream) {
        let (event, other, buffer) = (self.event(), self.stream(), self.buffer());
        self.count(cudamem_event_record(event, captured));
        let (chosen, byte) = (self.byte(), self.byte());
        let joining = move || -> [cudamem_status; 2] {
            let used = match chosen % 6 {
                0 => cudamem_is_done(event.id, Some(&mut MaybeUninit::uninit())),
                1 => cudamem_synchronize_for(event.id, 1e-4),
                2 => cudamem_event_record(event, other),
                _ => cudamem_stream_wait_event(other, event),
            };
            // SAFETY: the value has one byte.
            [used, unsafe { cudamem_buffer_fill(buffer, 0, 8, ptr::from_ref(&byte).cast(), 1) }]
        };
        for status in std::thread::spawn(joining).join().expect("no call panics") {
            self.count(status);
        }
    }
}
