//! Calls of rings of frames. No stream waits for a frame that is not published soon.

use super::Calls;
use core::ptr;
use cudamem::frames::*;
use cudamem::handles::*;
use cudamem::objects::cudamem_record_use;
use cudamem::status::CUDAMEM_SUCCESS;

impl Calls<'_> {
    pub(super) fn frames(&mut self) {
        let (resource, signals) = (self.resource(), self.signal_memory());
        let (ring, frame, stream, buffer) = (self.frame_ring(), self.frame(), self.stream(), self.buffer());
        let (count, size, offset) = (usize::from(self.byte() % 6), usize::from(self.byte()) * 8, self.size());
        let taken = |id| cudamem_frame { id };
        match self.byte() % 12 {
            0 | 1 => self.make(
                |id| cudamem_frame_ring { id },
                |made| made.id,
                |made| cudamem_frame_ring_create(resource, signals, count, size, made),
            ),
            2..5 => self.make(
                taken,
                |made| made.id,
                // SAFETY: there are no options.
                |made| unsafe { cudamem_frame_ring_next(ring, ptr::null(), made) },
            ),
            5 => {
                let options = self.wait();
                // SAFETY: the options are as large as they say.
                self.make(taken, |made| made.id, |made| unsafe { cudamem_frame_ring_next(ring, &options, made) });
            }
            // SAFETY: the struct is as large as it says.
            6 | 7 => self.fill(|info| unsafe { cudamem_frame_get_info(frame, info) }),
            8 => {
                let bytes = self.room(size);
                // SAFETY: the room has that many bytes or is NULL.
                let status = unsafe { cudamem_frame_store(frame, offset, bytes, size) };
                self.count(status);
            }
            9 => {
                let status = cudamem_frame_flush(frame, offset, size);
                self.count(status);
            }
            // Work that waits for the frame runs soon, because the next call ends the frame.
            10 => {
                let queued = match self.byte() % 3 {
                    0 => cudamem_frame_wait_on(frame, stream),
                    1 => cudamem_buffer_copy_from_frame(buffer, offset, frame, 0, size),
                    _ => cudamem_record_use(frame.id, stream),
                };
                self.count(queued);
                let ended = match self.byte() % 3 {
                    0 => cudamem_frame_destroy(frame),
                    _ => cudamem_frame_publish(frame, None),
                };
                self.count(ended);
                if ended != CUDAMEM_SUCCESS {
                    // The ring has ended and has released the waiters.
                    self.count(cudamem_frame_destroy(frame));
                }
            }
            _ => self.tell(|out| cudamem_frame_get_host_pointer(frame, out)),
        }
    }
}
