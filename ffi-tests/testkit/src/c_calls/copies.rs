//! Calls of copy engines: with options, in stream order, and with many pieces.

use super::{Calls, ROOM};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use cudamem::engine::*;
use cudamem::engine_profile::*;
use cudamem::engine_work::*;
use cudamem::handles::*;
use cudamem::objects::cudamem_is_done;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

impl Calls<'_> {
    pub(super) fn engine_work(&mut self) {
        let (context, engine, buffer, source) = (self.context(), self.engine(), self.buffer(), self.buffer());
        let (stream, pending) = (self.stream(), self.pending_read());
        let (offset, from, size) = (self.size(), self.size(), self.size());
        let room = self.room(size);
        let (method, threads) = (i32::from(self.byte() % 7), u32::from(self.byte() % 4));
        let options = cudamem_copy_options {
            size: size_of::<cudamem_copy_options>(),
            method,
            host: i32::from(self.byte() % 4),
            threads,
            staging_threads: u32::from(method == CUDAMEM_METHOD_MIXED),
            flags: u32::from(self.byte() == 0),
            reserved: 0,
        };
        let complete = cudamem_copy_options {
            method: 0,
            host: 0,
            threads: 0,
            staging_threads: 0,
            flags: CUDAMEM_COPY_COMPLETE,
            ..options
        };
        let pieces = [
            cudamem_piece { offset, source_offset: from, size: size % 100 },
            cudamem_piece { offset: from, source_offset: offset, size: size % 100 },
        ];
        let piece_options = cudamem_pieces_options {
            size: size_of::<cudamem_pieces_options>(),
            way: i32::from(self.byte() % 4),
            reserved: 0,
        };
        let small = size % ROOM;
        let writes = [
            cudamem_scatter { offset, source: self.memory.as_ptr().cast(), size: small },
            cudamem_scatter { offset: from, source: ptr::null(), size: 0 },
        ];
        // SAFETY: the room has that many bytes or is NULL. Options and lists are as large as they say.
        let status = unsafe {
            match self.byte() % 17 {
                0 => return self.make_engine(context),
                1 | 2 => return self.begin_read(engine, stream, buffer, offset, size),
                3 => return self.tell(|out| cudamem_is_done(pending.id, out)),
                4 => return self.tell(|out| cudamem_engine_get_staging(engine, out)),
                5 => cudamem_pending_read_wait(pending),
                6 | 8 => cudamem_engine_write_buffer(engine, buffer, offset, room, size, &options),
                7 | 9 => cudamem_engine_read_buffer(engine, buffer, offset, room, size, &options),
                10 => cudamem_engine_write_buffer_on(engine, stream, buffer, offset, room, size),
                11 => cudamem_engine_write_buffer(engine, buffer, offset, room, size, &complete),
                12 | 13 => cudamem_engine_scatter_to_buffer(engine, buffer, writes.as_ptr(), 2),
                14 => cudamem_buffer_copy_pieces(buffer, source, pieces.as_ptr(), 2, &piece_options, stream),
                15 => return self.read_file(engine, stream, offset as u64, size),
                _ => cudamem_engine_trim(engine),
            }
        };
        self.count(status);
    }

    /// Reads a file of the system, which stays open.
    fn read_file(&mut self, engine: cudamem_engine, stream: cudamem_stream, offset: u64, size: usize) {
        static FILE: OnceLock<File> = OnceLock::new();
        let file = FILE.get_or_init(|| File::open("/proc/self/exe").expect("the program is a file"));
        let (resource, number) = (self.resource(), if self.byte() == 0 { -1 } else { file.as_raw_fd() });
        self.make(
            |id| cudamem_buffer { id },
            |made| made.id,
            |out| cudamem_engine_read_file(engine, number, offset, size, resource, stream, out),
        );
    }

    fn make_engine(&mut self, context: cudamem_context) {
        let options = cudamem_engine_options {
            size: size_of::<cudamem_engine_options>(),
            profile: ptr::null(),
            slot_size: usize::from(self.byte()) * 100,
            slots: u32::from(self.byte() % 4),
            lanes: u32::from(self.byte() % 3),
            threads: u32::from(self.byte() % 3),
            flags: u32::from(self.byte() % 4),
        };
        self.make(
            |id| cudamem_engine { id },
            |made| made.id,
            // SAFETY: the options are as large as they say.
            |out| unsafe { cudamem_engine_create(context, &options, out) },
        );
    }

    /// The destination lives as long as the process, and is reused only much later: another thread may guess the read's
    /// handle and wait for the read while this thread destroys it.
    fn begin_read(
        &mut self,
        engine: cudamem_engine,
        stream: cudamem_stream,
        buffer: cudamem_buffer,
        offset: usize,
        size: usize,
    ) {
        let turn = NEXT_PLACE.fetch_add(1, Ordering::Relaxed) % PLACES;
        let destination = (&raw mut DESTINATIONS).cast::<[u8; PLACE]>().wrapping_add(turn);
        let size = if size > ROOM { size } else { size % PLACE };
        let destination = if size < PLACE { destination.cast() } else { ptr::null_mut() };
        self.make(
            |id| cudamem_pending_read { id },
            |made| made.id,
            // SAFETY: the destination has that many bytes or is NULL, and it stays.
            |out| unsafe { cudamem_engine_read_buffer_on(engine, stream, buffer, offset, destination, size, out) },
        );
    }
}

const PLACE: usize = 256;
const PLACES: usize = 4096;
static NEXT_PLACE: AtomicUsize = AtomicUsize::new(0);
static mut DESTINATIONS: [[u8; PLACE]; PLACES] = [[0; PLACE]; PLACES];
