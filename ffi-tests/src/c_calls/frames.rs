//! Calls of rings of frames. No stream waits for a frame that is not published soon.

use super::Calls;
use cudamem::frames::*;
use cudamem::handles::*;
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
            2..5 => self.make(taken, |made| made.id, |made| cudamem_frame_ring_try_next(ring, made)),
            5 => {
                let options = self.wait();
                // SAFETY: the options are as large as they say.
                self.make(taken, |made| made.id, |made| unsafe { cudamem_frame_ring_next(ring, &options, made) });
            }
            6 => self.tell(|out| cudamem_frame_get_number(frame, out)),
            7 => self.tell(|out| cudamem_frame_get_device_pointer(frame, out)),
            8 => {
                let bytes = self.room(size);
                // SAFETY: the room has that many bytes or is NULL.
                let status = unsafe { cudamem_frame_write(frame, offset, bytes, size) };
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
                    _ => cudamem_frame_record_use(frame, stream),
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
