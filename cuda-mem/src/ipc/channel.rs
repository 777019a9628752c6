//! A connection for descriptors and their file descriptors: a Unix stream socket.
//!
//! A message is its length in four little-endian bytes, then its bytes. The file descriptors travel with the first byte
//! (SCM_RIGHTS). No read crosses the end of a message, so they cannot get into the next one.

use super::export::{Export, Exported};
use crate::error::{ChannelError, MAX_FILE_DESCRIPTORS};
use crate::lifetime::waiting::{self, Target};
use crate::{Error, Result};
use core::mem::MaybeUninit;
use core::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketType, recvmsg, sendmsg, sockopt,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The most bytes in a message.
pub const MAX_MESSAGE: usize = 64 << 10;

/// A connection to another process for descriptors and their file descriptors.
///
/// A process that serves several others needs a channel for each.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// use cuda_mem::ipc::{Channel, Export};
/// use cuda_mem::{Buffer, MappedMemory, Stream};
/// let stream = Stream::new(&context)?;
/// let (mut here, mut there) = Channel::pair()?;
/// there.set_timeout(Some(std::time::Duration::from_secs(5)));
///
/// let resource = MappedMemory::new(&context)?;
/// let memory = Buffer::<u8, _>::zeroed(&resource, 4096, &stream)?.into_shared();
/// memory.store(0, b"hello")?;
/// here.send(&resource.export(&memory)?)?;
///
/// let Export::Mapped(export) = there.receive()? else { panic!("mapped memory was sent") };
/// let mut seen = [0u8; 5];
/// resource.import::<u8>(export, &stream)?.load(0, &mut seen)?;
/// assert_eq!(&seen, b"hello");
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Debug)]
pub struct Channel {
    stream: UnixStream,
    timeout: Option<Duration>,
    broken: bool,
}

impl Channel {
    /// Creates two connected ends: for threads, or for a child that inherits one.
    ///
    /// # Errors
    ///
    /// The system refuses: too many files are open.
    pub fn pair() -> Result<(Self, Self)> {
        let (one, other) = UnixStream::pair().map_err(|error| system("socketpair", &error))?;
        Ok((Self::new(one), Self::new(other)))
    }

    /// Uses a connected socket, and sets it to blocking.
    ///
    /// # Errors
    ///
    /// The socket is no Unix stream socket (a program can make a `UnixStream` of any file descriptor) or is not
    /// connected; the system refuses.
    pub fn from_stream(stream: UnixStream) -> Result<Self> {
        let refused = |error: Errno| Error::System { call: "getsockopt", code: error.raw_os_error() };
        let domain = sockopt::socket_domain(&stream).map_err(refused)?;
        let kind = sockopt::socket_type(&stream).map_err(refused)?;
        if domain != AddressFamily::UNIX || kind != SocketType::STREAM {
            let rule = "only Unix stream sockets carry descriptors and files";
            return Err(Error::invalid("Channel::from_stream", "stream", "another socket", rule));
        }
        stream.peer_addr().map_err(|error| system("getpeername", &error))?;
        stream.set_nonblocking(false).map_err(|error| system("ioctl", &error))?;
        Ok(Self::new(stream))
    }

    /// Connects to the [`Listener`] at a path.
    ///
    /// # Errors
    ///
    /// Nobody listens there; the file's permissions forbid it; the path is too long for a socket.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self> {
        const CALL: &str = "Channel::connect";
        let path = path.as_ref();
        check_length(CALL, path)?;
        loop {
            // It waits while the listener has no room, and a signal may interrupt it.
            match waiting::during(&CALL, Target::PROCESS, || UnixStream::connect(path)) {
                Ok(stream) => return Ok(Self::new(stream)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(system("connect", &error)),
            }
        }
    }

    fn new(stream: UnixStream) -> Self {
        Self { stream, timeout: None, broken: false }
    }

    /// Limits the time of each later send or receive. `None`, the initial value, is no limit.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Returns the socket.
    pub fn into_stream(self) -> UnixStream {
        self.stream
    }

    /// Sends an export, which the other end [receives](Self::receive).
    ///
    /// # Errors
    ///
    /// [`Error::Channel`]: the other process has ended or does not receive in time; or the export has more than
    /// [`MAX_FILE_DESCRIPTORS`] file descriptors.
    pub fn send(&mut self, export: &impl Exported) -> Result<()> {
        self.send_message(&"Channel::send", &export.message(), &export.file_descriptors())
    }

    /// Receives an export that the other end [sends](Self::send).
    ///
    /// # Errors
    ///
    /// [`Error::Channel`]: the other process has ended, sends nothing in time, or sends something else;
    /// [`Error::Descriptor`]: the message is not a descriptor.
    pub fn receive(&mut self) -> Result<Export> {
        const CALL: &str = "Channel::receive";
        let (bytes, files) = self.receive_message(&CALL)?;
        Export::from_message(CALL, &bytes, files)
    }

    /// Sends bytes of the program, which the other end [receives](Self::receive_bytes).
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send); or `bytes` is longer than [`MAX_MESSAGE`].
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.send_message(&"Channel::send_bytes", bytes, &[])
    }

    /// Receives bytes of the program.
    ///
    /// # Errors
    ///
    /// [`Error::Channel`]: as [`receive`](Self::receive); or file descriptors came with the bytes.
    pub fn receive_bytes(&mut self) -> Result<Vec<u8>> {
        const CALL: &str = "Channel::receive_bytes";
        let (bytes, files) = self.receive_message(&CALL)?;
        match files.len() {
            0 => Ok(bytes),
            received => Err(ChannelError::FileDescriptors { call: CALL, expected: 0, received }.into()),
        }
    }

    fn send_message(&mut self, call: &'static &'static str, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Result<()> {
        self.check(call)?;
        if bytes.len() > MAX_MESSAGE {
            return Err(ChannelError::TooLong { call, length: bytes.len(), limit: MAX_MESSAGE }.into());
        }
        if files.len() > MAX_FILE_DESCRIPTORS {
            return Err(ChannelError::TooManyFiles { call, count: files.len(), limit: MAX_FILE_DESCRIPTORS }.into());
        }
        let frame = [&(bytes.len() as u32).to_le_bytes(), bytes].concat();
        let deadline = Deadline::new(call, self.timeout);
        let mut sent = 0;
        while sent < frame.len() {
            let files = if sent == 0 { files } else { &[] };
            match self.send_part(&deadline, &frame[sent..], files) {
                Ok(count) => sent += count,
                Err(error) => return Err(self.failed(error, sent > 0)),
            }
        }
        Ok(())
    }

    fn send_part(&self, deadline: &Deadline, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILE_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        // There is room: the caller has limited the number of files.
        let fits = files.is_empty() || control.push(SendAncillaryMessage::ScmRights(files));
        debug_assert!(fits);
        loop {
            let remaining = deadline.remaining()?;
            self.stream.set_write_timeout(remaining).map_err(|error| system("setsockopt", &error))?;
            let send = || sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
            match waiting::during(deadline.call, Target::PROCESS, send) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(deadline.passed()),
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(ChannelError::Closed { call: deadline.call }.into()),
                Err(error) => return Err(Error::System { call: "sendmsg", code: error.raw_os_error() }),
                Ok(count) => return Ok(count),
            }
        }
    }

    fn receive_message(&mut self, call: &'static &'static str) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
        self.check(call)?;
        let deadline = Deadline::new(call, self.timeout);
        let mut files = Vec::new();
        let mut length = [0; 4];
        self.fill(&deadline, &mut length, &mut files, false)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_MESSAGE {
            return Err(self.failed(ChannelError::TooLong { call, length, limit: MAX_MESSAGE }.into(), true));
        }
        let mut bytes = vec![0; length];
        self.fill(&deadline, &mut bytes, &mut files, true)?;
        Ok((bytes, files))
    }

    /// Fills `bytes`. The caller's drop of `files` closes them.
    fn fill(&mut self, deadline: &Deadline, bytes: &mut [u8], files: &mut Vec<OwnedFd>, within: bool) -> Result<()> {
        let (mut received, expected) = (0, bytes.len());
        while received < expected {
            let within = within || received > 0;
            match self.receive_part(deadline, &mut bytes[received..], files) {
                Ok(0) if within => {
                    let cut = ChannelError::Cut { call: deadline.call, received, expected };
                    return Err(self.failed(cut.into(), true));
                }
                Ok(0) => return Err(ChannelError::Closed { call: deadline.call }.into()),
                Ok(count) => received += count,
                Err(error) => {
                    // The files came with bytes that are lost now.
                    let lost = matches!(
                        error,
                        Error::Channel(ChannelError::FileDescriptors { .. } | ChannelError::NoFreeFiles { .. })
                    );
                    return Err(self.failed(error, within || lost));
                }
            }
        }
        Ok(())
    }

    fn receive_part(&self, deadline: &Deadline, bytes: &mut [u8], files: &mut Vec<OwnedFd>) -> Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILE_DESCRIPTORS))];
        loop {
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let remaining = deadline.remaining()?;
            self.stream.set_read_timeout(remaining).map_err(|error| system("setsockopt", &error))?;
            let slices = &mut [IoSliceMut::new(bytes)];
            let receive = || recvmsg(&self.stream, slices, &mut control, RecvFlags::CMSG_CLOEXEC);
            let message = match waiting::during(deadline.call, Target::PROCESS, receive) {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Err(deadline.passed()),
                Err(Errno::CONNRESET) => return Ok(0),
                Err(error) => return Err(Error::System { call: "recvmsg", code: error.raw_os_error() }),
                Ok(message) => message,
            };
            let before = files.len();
            for ancillary in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = ancillary {
                    files.extend(rights);
                }
            }
            let (truncated, received) = (message.flags.contains(ReturnFlags::CTRUNC), files.len() - before);
            if truncated && received < MAX_FILE_DESCRIPTORS {
                // There was room for more, so this process has no free descriptors, or may not have these.
                return Err(ChannelError::NoFreeFiles { call: deadline.call, received }.into());
            }
            if truncated || files.len() > MAX_FILE_DESCRIPTORS {
                // The system has closed the files that did not fit.
                let (expected, received) = (MAX_FILE_DESCRIPTORS, files.len().max(MAX_FILE_DESCRIPTORS));
                return Err(ChannelError::FileDescriptors { call: deadline.call, expected, received }.into());
            }
            return Ok(message.bytes);
        }
    }

    fn check(&self, call: &'static str) -> Result<()> {
        if self.broken { Err(ChannelError::Broken { call }.into()) } else { Ok(()) }
    }

    /// Neither end can find the next message after a failure within one, so this shuts the channel down.
    fn failed(&mut self, error: Error, within: bool) -> Error {
        if within {
            self.broken = true;
            // Fails if the other end has already closed.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
        error
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The time limit of one call.
struct Deadline {
    call: &'static &'static str,
    limit: Duration,
    end: Option<Instant>,
}

impl Deadline {
    fn new(call: &'static &'static str, timeout: Option<Duration>) -> Self {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Self { call, limit: timeout.unwrap_or_default(), end }
    }

    /// The remaining time; `None` without a limit.
    fn remaining(&self) -> Result<Option<Duration>> {
        let Some(end) = self.end else { return Ok(None) };
        match end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(self.passed()),
            // The system counts microseconds, and 0 is no limit.
            left => Ok(Some(left.max(Duration::from_micros(1)))),
        }
    }

    /// Waits until a connection or bytes may have come.
    fn wait_for(&self, socket: &impl AsFd) -> Result<()> {
        // More than the system's clock holds is no limit.
        let time = self.remaining()?.and_then(|left| Timespec::try_from(left).ok());
        let wait = || poll(&mut [PollFd::new(socket, PollFlags::IN)], time.as_ref());
        match waiting::during(self.call, Target::PROCESS, wait) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(Error::System { call: "poll", code: error.raw_os_error() }),
        }
    }

    fn passed(&self) -> Error {
        ChannelError::TimedOut { call: self.call, limit: self.limit }.into()
    }
}

/// Accepts connections at a path. The drop removes the file, unless another process made it or it was replaced.
///
/// The permissions of the file and its folder decide who may connect.
///
/// ```
/// use cuda_mem::ipc::{Channel, Listener};
/// let path = std::env::temp_dir().join(format!("cuda-mem-{}.socket", std::process::id()));
/// let listener = Listener::bind(&path)?;
/// let there = std::thread::spawn(move || Channel::connect(path)?.send_bytes(b"hello")); // in another process
/// assert_eq!(listener.accept()?.receive_bytes()?, b"hello");
/// # there.join().expect("no panic")?;
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Debug)]
pub struct Listener {
    #[expect(dead_code, reason = "held for its drop")]
    file: SocketFile,
    listener: UnixListener,
    timeout: Option<Duration>,
}

/// The file of a listener.
#[derive(Debug)]
struct SocketFile {
    /// Absolute, because the process may change its working directory.
    path: PathBuf,
    /// Device and inode, which identify the file; `None` if the system did not report them.
    identity: Option<(u64, u64)>,
    /// The process that made it: a forked child must not remove it.
    process: u32,
}

impl SocketFile {
    fn identity_of(path: &Path) -> Option<(u64, u64)> {
        let file = std::fs::symlink_metadata(path).ok()?;
        Some((file.dev(), file.ino()))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = self.identity.is_some() && self.identity == Self::identity_of(&self.path);
        if is_ours && self.process == std::process::id() {
            // Fails if somebody else removes the file meanwhile.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Creates a socket file and listens there.
    ///
    /// # Errors
    ///
    /// A file exists there already; the folder's permissions forbid it; the path is too long for a socket.
    pub fn bind(path: impl AsRef<Path>) -> Result<Self> {
        let given = path.as_ref();
        check_length("Listener::bind", given)?;
        let path = std::path::absolute(given).map_err(|error| system("getcwd", &error))?;
        // Not the absolute path, because a socket's path is limited to about a hundred bytes.
        let listener = UnixListener::bind(given).map_err(|error| system("bind", &error))?;
        listener.set_nonblocking(true).map_err(|error| system("ioctl", &error))?;
        let identity = SocketFile::identity_of(&path);
        let file = SocketFile { path, identity, process: std::process::id() };
        Ok(Self { file, listener, timeout: None })
    }

    /// Limits the time of each [`accept`](Self::accept). `None`, the initial value, is no limit.
    ///
    /// # Errors
    ///
    /// The time is 0.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<()> {
        if timeout == Some(Duration::ZERO) {
            return Err(Error::invalid("Listener::set_timeout", "timeout", "0", "it must be longer"));
        }
        self.timeout = timeout;
        Ok(())
    }

    /// Waits for a connection.
    ///
    /// # Errors
    ///
    /// Nobody connects in time; the system refuses.
    pub fn accept(&self) -> Result<Channel> {
        let deadline = Deadline::new(&"Listener::accept", self.timeout);
        loop {
            // Does not wait: the system's own wait would begin anew after each signal, with the whole time.
            match self.listener.accept() {
                Ok((stream, _)) => return Channel::from_stream(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => deadline.wait_for(&self.listener)?,
                // Whoever connected has given up.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(system("accept", &error)),
            }
        }
    }
}

/// The longest path of a socket on Linux, in bytes.
const LONGEST_PATH: usize = 107;

/// Checks that a path fits into a socket's address.
fn check_length(call: &'static str, path: &Path) -> Result<()> {
    match path.as_os_str().len() {
        ..=LONGEST_PATH => Ok(()),
        length => {
            let value = format_args!("{} ({length} bytes)", path.display());
            let rule = "a socket's path has at most 107 bytes: use a shorter one, or one from the working directory on";
            Err(Error::invalid(call, "path", value, rule))
        }
    }
}

/// Converts a system error. An error of the standard library itself becomes EINVAL.
fn system(call: &'static str, error: &io::Error) -> Error {
    Error::System { call, code: error.raw_os_error().unwrap_or(libc::EINVAL) }
}
