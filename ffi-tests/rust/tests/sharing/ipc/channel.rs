//! Channels: what they carry, and how they fail.

use super::{Outcome, at, checked};
use cuda_mem::Error;
use cuda_mem::ipc::{
    Channel, ChannelError, Descriptor, DescriptorError, Export, Exported, Listener, MAX_MESSAGE, PoolExport,
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use testkit::{in_its_own_process, test_name};

/// A descriptor of a pool's memory, made of bytes.
fn memory() -> Descriptor {
    described(&[2, 0, 0, 0], [1000, 10, 20])
}

/// A descriptor of the same process's pool.
fn pool() -> Descriptor {
    described(&[1, 0, 1, 0], [0; 3])
}

/// A descriptor with this kind and number of files, and with size, offset and length.
fn described(kind: &[u8; 4], numbers: [u64; 3]) -> Descriptor {
    let mut bytes = [0; Descriptor::SIZE];
    bytes[..10].copy_from_slice(b"cmShared\x01\0");
    bytes[at::KIND..at::KIND + 4].copy_from_slice(kind);
    bytes[at::DEVICE..at::POOL].fill(1);
    bytes[at::POOL..at::PROCESS].fill(2);
    for (place, number) in bytes[at::SIZE..at::PAYLOAD].chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes[at::PAYLOAD..at::TAG + 16].fill(6);
    checked(bytes).expect("bytes of a descriptor")
}

/// A message in the format of channels.
pub fn frame(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes(), bytes].concat()
}

/// Sends any bytes with files.
pub fn send_raw(stream: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), std::io::Error> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(200))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(files.is_empty() || control.push(SendAncillaryMessage::ScmRights(files)));
    assert_eq!(sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::empty())?, bytes.len());
    Ok(())
}

/// A channel, and the raw socket at its other end.
fn bare() -> Result<(UnixStream, Channel), Box<dyn std::error::Error>> {
    let (bare, other) = UnixStream::pair()?;
    let mut channel = Channel::from_stream(other)?;
    channel.set_timeout(Some(Duration::from_secs(10)));
    Ok((bare, channel))
}

fn failure<T: std::fmt::Debug>(result: Result<T, Error>) -> ChannelError {
    match result {
        Err(Error::Channel(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn descriptors_files_and_bytes_arrive_in_order() -> Outcome {
    let (mut here, mut there) = Channel::pair()?;
    let file = OwnedFd::from(std::fs::File::open("/dev/zero")?);
    let (memory, pool) = (memory(), PoolExport::from_parts(file, pool()));
    here.send(&memory)?;
    here.send(&pool)?;
    here.send_bytes(b"")?;
    here.send_bytes(&vec![9; MAX_MESSAGE])?;
    assert!(matches!(there.receive()?, Export::PoolMemory(descriptor) if descriptor == memory));
    let Export::Pool(received) = there.receive()? else { return Err("no pool".into()) };
    assert_eq!(received.descriptor(), pool.descriptor());
    // The file is the same, with a new descriptor that no child inherits.
    let path =
        |fd: BorrowedFd<'_>| std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd)));
    assert_eq!(path(received.as_fd())?, path(pool.as_fd())?);
    assert!(rustix::io::fcntl_getfd(&received)?.contains(rustix::io::FdFlags::CLOEXEC));
    assert_eq!(there.receive_bytes()?, b"");
    assert_eq!(there.receive_bytes()?.len(), MAX_MESSAGE);
    assert!(matches!(failure(here.send_bytes(&vec![9; MAX_MESSAGE + 1])), ChannelError::TooLong { .. }));
    drop(here);
    assert!(matches!(failure(there.receive()), ChannelError::Closed { .. }));
    assert!(matches!(failure(there.send(&memory)), ChannelError::Closed { .. }));
    Ok(())
}

#[test]
fn export_is_reassembled_from_parts_and_can_be_cloned() -> Outcome {
    let file = || std::fs::File::open("/dev/zero").map(OwnedFd::from);
    let (memory, pool) = (memory().to_bytes(), pool().to_bytes());
    assert!(matches!(Export::from_parts(&memory, vec![])?, Export::PoolMemory(_)));
    let export = Export::from_parts(&pool, vec![file()?])?;
    assert_eq!((export.message(), export.file_descriptors().len()), (pool.to_vec(), 1));
    let clone = export.try_clone()?;
    assert_eq!((clone.message(), clone.kind()), (export.message(), export.kind()));
    assert_ne!(clone.file_descriptors()[0].as_raw_fd(), export.file_descriptors()[0].as_raw_fd());
    assert!(matches!(failure(Export::from_parts(&pool, vec![])), ChannelError::FileDescriptors { expected: 1, .. }));
    assert!(matches!(failure(Export::from_parts(&memory, vec![file()?])), ChannelError::FileDescriptors { .. }));
    assert!(matches!(Export::from_parts(&memory[..100], vec![]), Err(Error::Descriptor(_))));
    Ok(())
}

#[test]
fn what_is_no_stream_socket_is_no_channel() -> Outcome {
    let code = |file: OwnedFd| match Channel::from_stream(UnixStream::from(file)) {
        Err(Error::System { code, .. }) => Some(code),
        Err(Error::InvalidArgument { .. }) => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(code(std::fs::File::open("/dev/null")?.into()), Some(libc::ENOTSOCK));
    let (datagrams, _other) = std::os::unix::net::UnixDatagram::pair()?;
    assert_eq!(code(datagrams.into()), None);
    assert_eq!(code(std::net::TcpListener::bind("127.0.0.1:0")?.into()), None);
    let path = std::env::temp_dir().join(format!("cuda-mem-test-listening-{}", std::process::id()));
    let listening = std::os::unix::net::UnixListener::bind(&path)?;
    assert_eq!(code(listening.into()), Some(libc::ENOTCONN));
    std::fs::remove_file(&path)?;
    Ok(())
}

#[test]
fn a_message_in_pieces_is_put_together() -> Outcome {
    let (mut bare, mut channel) = bare()?;
    let sender = std::thread::spawn(move || {
        for byte in frame(&memory().to_bytes()) {
            bare.write_all(&[byte])?;
            std::thread::yield_now();
        }
        Ok::<_, std::io::Error>(bare)
    });
    assert!(matches!(channel.receive()?, Export::PoolMemory(descriptor) if descriptor == memory()));
    sender.join().map_err(|_| "the sender panicked")??;
    Ok(())
}

#[test]
fn a_process_that_ends_in_the_middle_is_an_error_of_its_own() -> Outcome {
    let message = frame(&memory().to_bytes());
    for length in [1, 3, 4, 5, message.len() - 1] {
        let (mut bare, mut channel) = bare()?;
        bare.write_all(&message[..length])?;
        drop(bare);
        assert!(matches!(failure(channel.receive()), ChannelError::Cut { .. }), "{length} bytes");
        assert!(matches!(failure(channel.receive()), ChannelError::Broken { .. }));
        assert!(matches!(failure(channel.send(&memory())), ChannelError::Broken { .. }));
    }
    Ok(())
}

#[test]
fn garbage_and_sizes_out_of_all_proportion_are_refused() -> Outcome {
    let (mut one, mut channel) = bare()?;
    one.write_all(&u32::MAX.to_le_bytes())?;
    assert!(matches!(failure(channel.receive()), ChannelError::TooLong { .. }));
    assert!(matches!(failure(channel.receive()), ChannelError::Broken { .. }));

    // A complete message that is not a descriptor does not affect the channel.
    let (mut one, mut channel) = bare()?;
    let mut changed = memory().to_bytes();
    changed[99] ^= 1;
    for bytes in [&[0; 184][..], b"hello", b"", &changed, &memory().to_bytes()[..100]] {
        one.write_all(&frame(bytes))?;
        let refused = channel.receive();
        assert!(matches!(refused, Err(Error::Descriptor(_))), "{refused:?}");
    }
    one.write_all(&frame(&changed))?;
    assert!(matches!(channel.receive(), Err(Error::Descriptor(DescriptorError::Checksum { .. }))));
    one.write_all(&frame(&memory().to_bytes()))?;
    assert!(channel.receive().is_ok());
    Ok(())
}

#[test]
fn too_few_files_and_too_many_are_errors() -> Outcome {
    let file = std::fs::File::open("/dev/null")?;
    let (memory, pool) = (memory(), pool());
    for (descriptor, count, expected) in [(pool, 0, 1), (pool, 2, 1), (memory, 1, 0)] {
        let (one, mut channel) = bare()?;
        send_raw(&one, &frame(&descriptor.to_bytes()), &vec![file.as_fd(); count])?;
        let error = failure(channel.receive());
        let call = "Channel::receive";
        assert_eq!(error, ChannelError::FileDescriptors { call, expected, received: count });
        // The message was complete, so the next one can be read.
        send_raw(&one, &frame(&pool.to_bytes()), &[file.as_fd()])?;
        assert!(matches!(channel.receive()?, Export::Pool(_)));
    }
    let (one, mut channel) = bare()?;
    send_raw(&one, &frame(&pool.to_bytes()), &vec![file.as_fd(); 100])?;
    assert!(matches!(failure(channel.receive()), ChannelError::FileDescriptors { expected: 64, .. }));
    let (one, mut channel) = bare()?;
    send_raw(&one, &frame(b"bytes"), &[file.as_fd()])?;
    assert!(matches!(failure(channel.receive_bytes()), ChannelError::FileDescriptors { expected: 0, received: 1, .. }));
    Ok(())
}

#[test]
fn nothing_waits_longer_than_it_may() -> Outcome {
    let limit = Duration::from_millis(50);
    let timed = |start: Instant, result: Result<(), Error>| {
        assert!(matches!(failure(result), ChannelError::TimedOut { .. }));
        assert!(start.elapsed() >= limit && start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    };
    let (mut one, mut channel) = bare()?;
    channel.set_timeout(Some(limit));
    timed(Instant::now(), channel.receive().map(drop));
    // Before the first byte nothing is lost.
    one.write_all(&frame(&memory().to_bytes()))?;
    assert!(channel.receive().is_ok());
    // A peer that sends a byte from time to time gets no more time for it.
    let dripping = std::thread::spawn(move || {
        let mut sent = one.write_all(&1000_u32.to_le_bytes());
        while sent.is_ok() {
            sent = one.write_all(&[1]);
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    timed(Instant::now(), channel.receive().map(drop));
    assert!(matches!(failure(channel.receive()), ChannelError::Broken { .. }));
    drop(channel);
    dripping.join().map_err(|_| "the sender panicked")?;

    // Nothing receives the message.
    let (_one, mut channel) = bare()?;
    channel.set_timeout(Some(limit));
    let mut result = Ok(());
    while result.is_ok() {
        let start = Instant::now();
        result = channel.send_bytes(&[0; MAX_MESSAGE]);
        assert!(start.elapsed() < Duration::from_secs(5));
    }
    assert!(matches!(failure(result), ChannelError::TimedOut { .. }));
    Ok(())
}

#[test]
fn a_listener_takes_connections_at_a_path() -> Outcome {
    let path = std::env::temp_dir().join(format!("cuda-mem-test-{}", std::process::id()));
    let mut listener = Listener::bind(&path)?;
    assert!(matches!(Listener::bind(&path), Err(Error::System { call: "bind", code: libc::EADDRINUSE })));
    let mut here = Channel::connect(&path)?;
    let mut there = listener.accept()?;
    here.send(&memory())?;
    assert!(there.receive().is_ok());
    listener.set_timeout(Some(Duration::from_millis(20)))?;
    assert!(matches!(failure(listener.accept()), ChannelError::TimedOut { .. }));
    drop(listener);
    assert!(!path.exists());
    let refused = Channel::connect(&path).err();
    assert!(matches!(refused, Some(Error::System { call: "connect", .. })), "{refused:?}");
    Ok(())
}

#[test]
fn a_listener_removes_the_file_that_it_made_and_no_other() -> Outcome {
    let path = std::env::temp_dir().join(format!("cuda-mem-test-own-{}", std::process::id()));
    // Meanwhile another listener uses the path.
    let listener = Listener::bind(&path)?;
    std::fs::remove_file(&path)?;
    let theirs = Listener::bind(&path)?;
    drop(listener);
    assert!(path.exists());

    // A child that drops its copy must leave the file to the parent.
    // SAFETY: the child drops its copy, which frees memory and closes files, and then ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(theirs);
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(0) };
    }
    let mut status = -1;
    // SAFETY: the process is a child of this one, and the place is writable.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(status == 0 && path.exists());
    Channel::connect(&path)?;
    drop(theirs);
    assert!(!path.exists());

    // A relative path is resolved in the working directory at the time of the call.
    let folder = std::env::temp_dir().join(format!("cuda-mem-test-folder-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let child = in_its_own_process(&test_name!("a_relative_path_for_a_child")).current_dir(&folder).output()?;
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    // The folder is empty.
    Ok(std::fs::remove_dir(&folder)?)
}

#[test]
#[ignore = "run by another test, as a process of its own"]
fn a_relative_path_for_a_child() -> Outcome {
    let folder = std::env::current_dir()?;
    let listener = Listener::bind("socket")?;
    std::env::set_current_dir("/")?;
    Channel::connect(folder.join("socket"))?;
    drop(listener);
    assert!(!folder.join("socket").exists());
    Ok(())
}
