//! Channels
//!
//! A channel is a Unix stream socket that carries exports with their file descriptors, and short messages of the program's own.
//! What one end sends, the other receives in order. A process that dies is seen: what it sent before arrives, and then
//! CUDAMEM_ERROR_CLOSED.
//!
//! One thread may send while another receives; threads that do the same take turns. The time that a call may take begins with its
//! turn.

use crate::call::{self, Out, Outcome, bytes, bytes_mut, destroy, drop_object, handle_type, invalid, object, out, run};
use crate::handle::Kind;
use crate::handles::cudamem_channel;
use crate::handles::cudamem_export;
use crate::handles::cudamem_listener;
use crate::sharing::{Shared, duplicate};
use crate::status::cudamem_status;
use core::ffi::{c_char, c_void};
use core::time::Duration;
use cuda_mem::Error;
use cuda_mem::ipc::{Channel, Export, Listener};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most bytes of a message.
pub const CUDAMEM_MESSAGE_SIZE: usize = 65536;
const _: () = assert!(CUDAMEM_MESSAGE_SIZE == cuda_mem::ipc::MAX_MESSAGE);

/// A channel behind a handle: each direction has a lock of its own, so that who waits for a message hinders no sender.
#[derive(Debug)]
pub struct Connection {
    sender: Mutex<Channel>,
    receiver: Mutex<Receiver>,
    /// The same socket, for what needs no lock.
    socket: UnixStream,
    timeout: Mutex<Option<Duration>>,
}

#[derive(Debug)]
struct Receiver {
    channel: Channel,
    /// A message that came, and that the program had no room for.
    kept: Option<Vec<u8>>,
}

handle_type!(cudamem_channel: Connection, Kind::Channel);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn system(call: &'static str, error: &std::io::Error) -> Error {
    Error::System { call, code: error.raw_os_error().unwrap_or_default() }
}

impl Connection {
    fn new(channel: Channel) -> Outcome<Self> {
        let clone = || -> cuda_mem::Result<UnixStream> {
            Ok(channel.as_fd().try_clone_to_owned().map_err(|error| system("fcntl", &error))?.into())
        };
        let (sender, socket) = (Channel::from_stream(clone()?)?, clone()?);
        let receiver = Receiver { channel, kept: None };
        Ok(Self { sender: Mutex::new(sender), receiver: Mutex::new(receiver), socket, timeout: Mutex::default() })
    }

    fn sender(&self) -> MutexGuard<'_, Channel> {
        let mut sender = locked(&self.sender);
        sender.set_timeout(*locked(&self.timeout));
        sender
    }

    fn receiver(&self) -> MutexGuard<'_, Receiver> {
        let mut receiver = locked(&self.receiver);
        receiver.channel.set_timeout(*locked(&self.timeout));
        receiver
    }
}

/// Makes a channel's two ends: for threads, and for a child process, which inherits the socket of one
/// (cudamem_channel_get_socket).
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_channel_create_pair(
    one: Out<'_, cudamem_channel>,
    other: Out<'_, cudamem_channel>,
) -> cudamem_status {
    run("cudamem_channel_create_pair", || {
        let (one, other) = (out("one", one)?, out("other", other)?);
        let (left, right) = Channel::pair()?;
        let (left, right) = (Connection::new(left)?, Connection::new(right)?);
        let left: cudamem_channel = call::new_handle(left)?;
        let right = call::new_handle(right).inspect_err(|_| {
            // Just made: it cannot fail.
            let _ = destroy("one", left, drop_object);
        })?;
        one.write(left);
        other.write(right);
        Ok(())
    })
}

/// Uses a connected Unix stream socket of the program's, which is duplicated: the program may close its own. The socket is set
/// to blocking.
///
/// Errors: CUDAMEM_ERROR_SYSTEM if the file descriptor is not open, no socket, or not connected;
/// CUDAMEM_ERROR_INVALID_ARGUMENT if it is another kind of socket.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_channel_open_socket(socket: i32, channel: Out<'_, cudamem_channel>) -> cudamem_status {
    run("cudamem_channel_open_socket", || {
        let channel = out("channel", channel)?;
        let opened = Channel::from_stream(UnixStream::from(duplicate("socket", socket)?))?;
        channel.write(call::new_handle(Connection::new(opened)?)?);
        Ok(())
    })
}

/// Connects to the listener of a path.
///
/// Errors: CUDAMEM_ERROR_SYSTEM if nobody listens there, or the file's permissions forbid it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_channel_connect(
    path: *const c_char,
    channel: Out<'_, cudamem_channel>,
) -> cudamem_status {
    run("cudamem_channel_connect", || {
        let channel = out("channel", channel)?;
        // SAFETY: the header's rule for texts.
        let path = unsafe { self::path(path) }?;
        channel.write(call::new_handle(Connection::new(Channel::connect(path)?)?)?);
        Ok(())
    })
}

/// # Safety
///
/// `path` is NULL or a C string that lives through the call.
unsafe fn path<'call>(path: *const c_char) -> Outcome<&'call str> {
    // SAFETY: this function's contract.
    unsafe { call::text("path", path) }?.ok_or_else(|| invalid("path", "NULL", "it names a Unix socket"))
}

/// How long a call may take: more than nothing; infinity is for ever.
fn duration(seconds: f64) -> Outcome<Option<Duration>> {
    match call::time_limit("seconds", seconds)? {
        Some(Duration::ZERO) => Err(invalid("seconds", seconds.to_string(), "it is more than 0; INFINITY is for ever")),
        limit => Ok(limit),
    }
}

/// Sets how long each later send or receive may take in all, in seconds; INFINITY (of math.h), which it is at first, is for
/// ever.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_channel_set_timeout(channel: cudamem_channel, seconds: f64) -> cudamem_status {
    run("cudamem_channel_set_timeout", || {
        let channel = object("channel", channel)?;
        *locked(&channel.timeout) = duration(seconds)?;
        Ok(())
    })
}

/// Gives the socket, valid until the channel is destroyed: to wait for a message together with other things (poll), or to be
/// inherited by a child (dup2). Do not read or write it. A message that cudamem_channel_receive_bytes had no room for has left
/// it.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_channel_get_socket(channel: cudamem_channel, socket: Out<'_, i32>) -> cudamem_status {
    run("cudamem_channel_get_socket", || {
        let socket = out("socket", socket)?;
        socket.write(object("channel", channel)?.socket.as_raw_fd());
        Ok(())
    })
}

/// Sends an export, which stays the program's: cudamem_channel_receive gets it.
///
/// Errors: CUDAMEM_ERROR_CLOSED if the other process is gone; CUDAMEM_ERROR_TIMED_OUT if it does not take it in time;
/// CUDAMEM_ERROR_CHANNEL if an earlier call failed in the middle of a message.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_channel_send(channel: cudamem_channel, exported: cudamem_export) -> cudamem_status {
    run("cudamem_channel_send", || {
        let (channel, shared) = (object("channel", channel)?, object("exported", exported)?);
        Ok(channel.sender().send(shared.export())?)
    })
}

/// Receives an export; cudamem_export_get_info tells what it is, and so which import takes it.
///
/// Errors: as cudamem_channel_send; CUDAMEM_ERROR_DESCRIPTOR if what comes is no export, CUDAMEM_ERROR_CHANNEL if it comes with
/// other files, or is longer than messages are.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_channel_receive(
    channel: cudamem_channel,
    exported: Out<'_, cudamem_export>,
) -> cudamem_status {
    run("cudamem_channel_receive", || {
        let exported = out("exported", exported)?;
        let channel = object("channel", channel)?;
        let mut receiver = channel.receiver();
        let received = match receiver.kept.take() {
            Some(message) => Export::from_parts(&message, Vec::new())?,
            None => receiver.channel.receive()?,
        };
        drop(receiver);
        exported.write(call::new_handle(Shared::new(received))?);
        Ok(())
    })
}

/// Sends a message of size bytes, CUDAMEM_MESSAGE_SIZE at most: cudamem_channel_receive_bytes gets it.
///
/// Errors: as cudamem_channel_send; CUDAMEM_ERROR_CHANNEL if it is longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_channel_send_bytes(
    channel: cudamem_channel,
    source: *const c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_channel_send_bytes", || {
        // SAFETY: the header's rule for bytes.
        let source = unsafe { bytes("source", source, size) }?;
        Ok(object("channel", channel)?.sender().send_bytes(source)?)
    })
}

/// Receives a message into as many bytes as capacity says, and gives its size. A message that is longer stays: the call fails,
/// says how long it is, and the next one gets it. CUDAMEM_MESSAGE_SIZE bytes are room for every message.
///
/// Errors: as cudamem_channel_receive; CUDAMEM_ERROR_OUT_OF_RANGE if the message is longer than capacity.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_channel_receive_bytes(
    channel: cudamem_channel,
    destination: *mut c_void,
    capacity: usize,
    size: Out<'_, usize>,
) -> cudamem_status {
    run("cudamem_channel_receive_bytes", || {
        let size = out("size", size)?;
        // SAFETY: the header's rule for bytes.
        let destination = unsafe { bytes_mut("destination", destination, capacity) }?;
        let channel = object("channel", channel)?;
        let mut receiver = channel.receiver();
        let message = match receiver.kept.take() {
            Some(message) => message,
            None => receiver.channel.receive_bytes()?,
        };
        let Some(room) = destination.get_mut(..message.len()) else {
            let (call, length) = ("the message", message.len());
            receiver.kept = Some(message);
            return Err(Error::OutOfRange { call, offset: 0, length, size: capacity }.into());
        };
        room.copy_from_slice(&message);
        size.write(message.len());
        Ok(())
    })
}

/// Ends the connection, for both ends and for all who have duplicates of their sockets: who waits in a call, and who calls
/// later, gets CUDAMEM_ERROR_CLOSED when what was sent before is received. To destroy a channel does not do that: others may
/// have the socket too.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_channel_shut_down(channel: cudamem_channel) -> cudamem_status {
    run("cudamem_channel_shut_down", || {
        match object("channel", channel)?.socket.shutdown(Shutdown::Both) {
            // The other end has gone before.
            Err(error) if error.kind() == std::io::ErrorKind::NotConnected => Ok(()),
            other => Ok(other.map_err(|error| system("shutdown", &error))?),
        }
    })
}

/// Destroys a channel, and closes its socket. A thread that waits in a call with it goes on to wait. The null handle is
/// allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_channel_destroy(channel: cudamem_channel) -> cudamem_status {
    run("cudamem_channel_destroy", || destroy("channel", channel, drop_object))
}

/// A listener behind a handle.
#[derive(Debug)]
pub struct Listening(Mutex<Listener>);

handle_type!(cudamem_listener: Listening, Kind::Listener);

/// Listens for connections at a path, where nothing may be yet. Who may connect, the permissions of the file and of its folder
/// say. The file is removed when the listener is destroyed, by the process that made it, and if it still lies there.
///
/// Errors: CUDAMEM_ERROR_SYSTEM if there is a file already, or the folder's permissions forbid it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_listener_create(
    path: *const c_char,
    listener: Out<'_, cudamem_listener>,
) -> cudamem_status {
    run("cudamem_listener_create", || {
        let listener = out("listener", listener)?;
        // SAFETY: the header's rule for texts.
        let path = unsafe { self::path(path) }?;
        let bound = Listener::bind(path)?;
        listener.write(call::new_handle(Listening(Mutex::new(bound)))?);
        Ok(())
    })
}

/// Waits for a connection, in turns with other threads: from its turn on, seconds at most; INFINITY is for ever.
///
/// Errors: CUDAMEM_ERROR_TIMED_OUT if nobody connects in time.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_listener_accept(
    listener: cudamem_listener,
    seconds: f64,
    channel: Out<'_, cudamem_channel>,
) -> cudamem_status {
    run("cudamem_listener_accept", || {
        let channel = out("channel", channel)?;
        let (listener, limit) = (object("listener", listener)?, duration(seconds)?);
        let mut listener = locked(&listener.0);
        listener.set_timeout(limit)?;
        let accepted = listener.accept()?;
        drop(listener);
        channel.write(call::new_handle(Connection::new(accepted)?)?);
        Ok(())
    })
}

/// Destroys a listener, and removes its file. Channels that it accepted go on. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_listener_destroy(listener: cudamem_listener) -> cudamem_status {
    run("cudamem_listener_destroy", || destroy("listener", listener, drop_object))
}
