//! Calls for sharing between processes and for channels, in random sequences.

use super::Calls;
use core::mem::MaybeUninit;
use core::ptr;
use cudamem::channel::*;
use cudamem::handles::*;
use cudamem::sharing::*;
use cudamem::status::*;

/// No other process answers, so no call may wait for long.
const PATIENCE: f64 = 0.0002;

impl Calls<'_> {
    /// Makes a call that creates an export.
    fn make_export(&mut self, call: impl FnOnce(Option<&mut MaybeUninit<cudamem_export>>) -> i32) {
        self.make(|id| cudamem_export { id }, |made| made.id, call);
    }

    /// Makes a call that creates a channel, and limits the channel's waits to `PATIENCE`.
    fn make_channel(&mut self, call: impl FnOnce(Option<&mut MaybeUninit<cudamem_channel>>) -> i32) {
        let before = self.handles.len();
        self.make(|id| cudamem_channel { id }, |made| made.id, call);
        if let Some(id) = self.handles.get(before) {
            assert_eq!(cudamem_channel_set_timeout(cudamem_channel { id: *id }, PATIENCE), CUDAMEM_SUCCESS);
        }
    }

    pub(super) fn share(&mut self) {
        match self.byte() % 4 {
            0 => self.export_something(),
            1 => self.import_something(),
            2 => self.use_export(),
            _ => self.use_channel(),
        }
    }

    fn export_something(&mut self) {
        let (buffer, resource, event) = (self.buffer(), self.resource(), self.event());
        match self.byte() % 5 {
            0 => self.make_export(|place| cudamem_buffer_export(buffer, cudamem_resource { id: 0 }, place)),
            1 | 4 => self.make_export(|place| cudamem_buffer_export(buffer, resource, place)),
            2 => self.make_export(|place| cudamem_resource_export(resource, place)),
            _ => self.make_export(|place| cudamem_event_export(event, place)),
        }
    }

    fn import_something(&mut self) {
        let (context, resource, stream, export) = (self.context(), self.resource(), self.stream(), self.exported());
        match self.byte() % 4 {
            0 | 1 => self.make(
                |id| cudamem_buffer { id },
                |made| made.id,
                |place| cudamem_buffer_import(resource, export, stream, place),
            ),
            2 => self.make(
                |id| cudamem_resource { id },
                |made| made.id,
                |place| cudamem_resource_import(context, export, place),
            ),
            _ => self.make(
                |id| cudamem_event { id },
                |made| made.id,
                |place| cudamem_event_import(context, export, place),
            ),
        }
    }

    fn use_export(&mut self) {
        let export = self.exported();
        match self.byte() % 4 {
            // SAFETY: the struct is as large as it says.
            0 => self.fill(|info| unsafe { cudamem_export_get_info(export, info) }),
            _ => self.rebuild(export),
        }
    }

    /// Takes an export apart, sometimes changes it, and puts it together again.
    fn rebuild(&mut self, export: cudamem_export) {
        // SAFETY: the struct consists of numbers and addresses, for which zero is a valid value.
        let mut info: cudamem_export_info = unsafe { core::mem::zeroed() };
        info.size = size_of::<cudamem_export_info>();
        // SAFETY: the struct is as large as it says.
        let told = unsafe { cudamem_export_get_info(export, &mut info) };
        let told = self.count(told);
        let mut copy = vec![0u8; usize::from(self.byte())];
        if told && !self.byte().is_multiple_of(4) {
            // SAFETY: the call worked, and the export lives, because only this sequence has its handle.
            copy = unsafe { core::slice::from_raw_parts(info.bytes.cast(), info.byte_count) }.to_vec();
        }
        let (mut place, mut number) = (ptr::null(), usize::from(self.byte() == 0) * 100);
        if told && !self.byte().is_multiple_of(4) {
            (place, number) = (info.files, info.file_count as usize);
        }
        if let (0..128, Some(byte)) = (self.byte(), copy.get_mut(usize::from(self.byte()))) {
            *byte ^= 1 << (self.byte() % 8);
        }
        // SAFETY: the vector has its bytes. The files are the export's; the call does not read beyond the maximum
        // number of files.
        self.make_export(|made| unsafe {
            cudamem_export_create(copy.as_ptr().cast(), copy.len(), place, number, made)
        });
    }

    fn use_channel(&mut self) {
        let (channel, export, listener) = (self.channel(), self.exported(), self.listener());
        let size = self.size() % (1 << 17);
        let room = self.room(size);
        let seconds = [PATIENCE, 0.0, -1.0, f64::NAN][usize::from(self.byte() % 4)];
        let nowhere = c"/nowhere/at/all".as_ptr();
        match self.byte() % 12 {
            0 => {
                let mut other = MaybeUninit::new(cudamem_channel { id: 0 });
                self.make_channel(|place| cudamem_channel_create_pair(place, Some(&mut other)));
                // SAFETY: the place was null before.
                let other = unsafe { other.assume_init() };
                if other.id != 0 {
                    assert_eq!(cudamem_channel_set_timeout(other, PATIENCE), CUDAMEM_SUCCESS);
                    self.handles.push(other.id);
                }
            }
            1 => {
                let mut socket = MaybeUninit::new(-1);
                let status = cudamem_channel_get_socket(channel, Some(&mut socket));
                self.count(status);
                // Use only a channel's own socket: another number could be a file of the test.
                // SAFETY: the place was -1 before.
                let socket = unsafe { socket.assume_init() };
                self.make_channel(|place| cudamem_channel_open_socket(socket, place));
            }
            2 => self.make_export(|place| cudamem_channel_receive(channel, place)),
            3 => self.tell(|place| {
                // SAFETY: the room has that many bytes or is NULL.
                unsafe { cudamem_channel_receive_bytes(channel, room, size, place) }
            }),
            // SAFETY: the path is a text.
            4 => self.make_channel(|place| unsafe { cudamem_channel_connect(nowhere, place) }),
            5 => self.make_channel(|place| cudamem_listener_accept(listener, seconds, place)),
            6 => self.make(
                |id| cudamem_listener { id },
                |made| made.id,
                // SAFETY: the path is a text, or NULL.
                |place| unsafe { cudamem_listener_create(if seconds > 0.0 { nowhere } else { ptr::null() }, place) },
            ),
            choice => {
                let status = match choice {
                    7 => cudamem_channel_shut_down(channel),
                    8 => cudamem_channel_set_timeout(channel, seconds),
                    // SAFETY: the room has that many bytes or is NULL.
                    9 => unsafe { cudamem_channel_send_bytes(channel, room, size) },
                    _ => cudamem_channel_send(channel, export),
                };
                self.count(status);
            }
        }
    }
}
