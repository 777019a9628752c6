//! Channels
//!
//! A channel is a Unix stream socket that carries exports with their file descriptors, and short messages of the
//! program's own, in order. If the other process dies, everything that it sent still arrives, and then calls fail with
//! CUDAMEM_ERROR_CLOSED.
//!
//! One thread may send while another receives. Concurrent sends run one after the other, and so do concurrent receives;
//! a call's time limit starts when it begins to send or receive.

use crate::call::{self, Out, Outcome, bytes, bytes_mut, destroy, drop_object, handle_type, invalid, object, out, run};
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

/// The largest size of a message in bytes.
pub const CUDAMEM_MESSAGE_SIZE: usize = 65536;
const _: () = assert!(CUDAMEM_MESSAGE_SIZE == cuda_mem::ipc::MAX_MESSAGE);

/// The object behind a channel's handle. Each direction has its own lock, so that a waiting receiver does not block
/// senders.
#[derive(Debug)]
pub struct Connection {
    sender: Mutex<Channel>,
    receiver: Mutex<Receiver>,
    /// The same socket, for operations that need no lock.
    socket: UnixStream,
    timeout: Mutex<Option<Duration>>,
}

#[derive(Debug)]
struct Receiver {
    channel: Channel,
    /// A received message that was larger than the program's buffer. The next receive returns it.
    kept: Option<Vec<u8>>,
}

handle_type!(cudamem_channel: Connection);

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

/// Makes a connected pair of channels: for two threads, or for a child process, which inherits the socket of one
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
            // The handle is new, so this cannot fail.
            let _ = destroy("one", left, drop_object);
        })?;
        one.write(left);
        other.write(right);
        Ok(())
    })
}

/// Makes a channel from the program's connected Unix stream socket. The library duplicates the socket, so the program
/// may close its own. The socket becomes blocking.
///
/// Errors: CUDAMEM_ERROR_SYSTEM if the file descriptor is closed, is not a socket, or is not connected.
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

/// Connects to the listener at a path.
///
/// Errors: CUDAMEM_ERROR_SYSTEM if nothing listens there, or if the file's permissions forbid the connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_channel_connect(
    path: *const c_char,
    channel: Out<'_, cudamem_channel>,
) -> cudamem_status {
    run("cudamem_channel_connect", || {
        let channel = out("channel", channel)?;
        // SAFETY: the header requires NULL or a zero-terminated string.
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
    unsafe { call::text("path", path) }?.ok_or_else(|| invalid("path", "NULL", "it must name a Unix socket"))
}

/// A time limit of more than 0 seconds. Infinity means no limit.
fn duration(seconds: f64) -> Outcome<Option<Duration>> {
    match call::time_limit("seconds", seconds)? {
        Some(Duration::ZERO) => {
            Err(invalid("seconds", seconds.to_string(), "it must be more than 0; INFINITY means no limit"))
        }
        limit => Ok(limit),
    }
}

/// Sets the time limit in seconds for each later send or receive as a whole. INFINITY (from math.h), the initial value,
/// means no limit.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_channel_set_timeout(channel: cudamem_channel, seconds: f64) -> cudamem_status {
    run("cudamem_channel_set_timeout", || {
        let channel = object("channel", channel)?;
        *locked(&channel.timeout) = duration(seconds)?;
        Ok(())
    })
}

/// Gets the socket, valid until the channel is destroyed: to wait for a message together with other files (poll), or
/// for a child to inherit (dup2). Do not read or write it. A message for which cudamem_channel_receive_bytes had no
/// room is no longer in the socket.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_channel_get_socket(channel: cudamem_channel, socket: Out<'_, i32>) -> cudamem_status {
    run("cudamem_channel_get_socket", || {
        let socket = out("socket", socket)?;
        socket.write(object("channel", channel)?.socket.as_raw_fd());
        Ok(())
    })
}

/// Sends an export, which stays the program's. cudamem_channel_receive receives it.
///
/// Errors: CUDAMEM_ERROR_CLOSED if the other process is gone. CUDAMEM_ERROR_TIMED_OUT if it does not receive in time.
/// CUDAMEM_ERROR_CHANNEL if an earlier call failed in the middle of a message.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_channel_send(channel: cudamem_channel, exported: cudamem_export) -> cudamem_status {
    run("cudamem_channel_send", || {
        let (channel, shared) = (object("channel", channel)?, object("exported", exported)?);
        Ok(channel.sender().send(shared.export())?)
    })
}

/// Receives an export. cudamem_export_get_info returns its kind, which decides the function that imports it.
///
/// Errors: as cudamem_channel_send. CUDAMEM_ERROR_DESCRIPTOR if the message is not an export. CUDAMEM_ERROR_CHANNEL if
/// it comes with the wrong files, or is longer than messages may be.
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

/// Sends a message of size bytes, at most CUDAMEM_MESSAGE_SIZE. cudamem_channel_receive_bytes receives it.
///
/// Errors: as cudamem_channel_send. CUDAMEM_ERROR_CHANNEL if the message is longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_channel_send_bytes(
    channel: cudamem_channel,
    source: *const c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_channel_send_bytes", || {
        // SAFETY: the header requires `size` valid bytes.
        let source = unsafe { bytes("source", source, size) }?;
        Ok(object("channel", channel)?.sender().send_bytes(source)?)
    })
}

/// Receives a message into a buffer of capacity bytes, and stores its size. If the message is longer, the call fails
/// with its length in the error text, and the next call gets the message. CUDAMEM_MESSAGE_SIZE bytes hold every
/// message.
///
/// Errors: as cudamem_channel_receive. CUDAMEM_ERROR_OUT_OF_RANGE if the message is longer than capacity.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_channel_receive_bytes(
    channel: cudamem_channel,
    destination: *mut c_void,
    capacity: usize,
    size: Out<'_, usize>,
) -> cudamem_status {
    run("cudamem_channel_receive_bytes", || {
        let size = out("size", size)?;
        // SAFETY: the header requires `size` valid bytes.
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

/// Shuts the connection down, for both ends and for all duplicates of their sockets. Waiting and later calls receive
/// what was sent before, and then fail with CUDAMEM_ERROR_CLOSED. Destroying a channel does not do this, because other
/// processes may have the socket too.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_channel_shut_down(channel: cudamem_channel) -> cudamem_status {
    run("cudamem_channel_shut_down", || {
        match object("channel", channel)?.socket.shutdown(Shutdown::Both) {
            // The other end was closed first.
            Err(error) if error.kind() == std::io::ErrorKind::NotConnected => Ok(()),
            other => Ok(other.map_err(|error| system("shutdown", &error))?),
        }
    })
}

/// Destroys a channel and closes its socket. Calls of other threads that wait on the channel go on waiting. The null
/// handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_channel_destroy(channel: cudamem_channel) -> cudamem_status {
    run("cudamem_channel_destroy", || destroy("channel", channel, drop_object))
}

/// The object behind a listener's handle.
#[derive(Debug)]
pub struct Listening(Mutex<Listener>);

handle_type!(cudamem_listener: Listening);

/// Listens for connections at a path where no file exists yet. The permissions of the file and of its folder decide who
/// may connect. The process that made the listener removes the file when it destroys the listener, if the file is still
/// the same.
///
/// Errors: CUDAMEM_ERROR_SYSTEM if a file exists already, or if the folder's permissions forbid it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_listener_create(
    path: *const c_char,
    listener: Out<'_, cudamem_listener>,
) -> cudamem_status {
    run("cudamem_listener_create", || {
        let listener = out("listener", listener)?;
        // SAFETY: the header requires NULL or a zero-terminated string.
        let path = unsafe { self::path(path) }?;
        let bound = Listener::bind(path)?;
        listener.write(call::new_handle(Listening(Mutex::new(bound)))?);
        Ok(())
    })
}

/// Waits for a connection, for at most seconds; INFINITY means no limit. Concurrent calls wait one after the other,
/// each for its own time.
///
/// Errors: CUDAMEM_ERROR_TIMED_OUT if nothing connects in time.
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

/// Destroys a listener and removes its file. Channels that it accepted stay open. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_listener_destroy(listener: cudamem_listener) -> cudamem_status {
    run("cudamem_listener_destroy", || destroy("listener", listener, drop_object))
}
