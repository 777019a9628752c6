//! Connections between processes: signals, and a system without room.

use cuda_mem::Error;
use cuda_mem::ipc::{Channel, ChannelError, Listener, MAX_FILE_DESCRIPTORS};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use testkit::suite::Outcome;
use testkit::{LIMIT, in_its_own_process, run_alone, test_name};

/// A signal that interrupts system calls and has no effect.
const SIGNAL: i32 = libc::SIGUSR2;

extern "C" fn nothing(_: i32) {}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("cuda-mem-test-{name}-{}", std::process::id()))
}

/// Runs `wait` on a thread that a signal interrupts every millisecond. Returns its result and how long it took.
pub(crate) fn interrupted<R: Send + 'static>(
    wait: impl FnOnce() -> R + Send + 'static,
) -> Result<(R, Duration), &'static str> {
    // SAFETY: the handler does nothing, and all fields of the struct may be 0. No flag: calls are not restarted.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        assert_eq!(libc::sigaction(SIGNAL, &action, core::ptr::null_mut()), 0);
    }
    let over = Arc::new(AtomicBool::new(false));
    let end = over.clone();
    let (tell, told) = channel();
    let waiting = thread::spawn(move || {
        // SAFETY: it has no requirements.
        let _ = tell.send((unsafe { libc::pthread_self() }, None));
        let start = Instant::now();
        let found = wait();
        let _ = tell.send((0, Some((found, start.elapsed()))));
        // Signals may go to this thread until nobody sends them any more.
        while !end.load(Ordering::Acquire) {
            thread::yield_now();
        }
    });
    let (thread, _) = told.recv().map_err(|_| "the thread has panicked")?;
    let begun = Instant::now();
    let found = loop {
        if let Ok((_, found)) = told.try_recv() {
            break found;
        }
        if begun.elapsed() > LIMIT {
            return Err("the wait does not end");
        }
        // SAFETY: the thread runs until `over` is set.
        unsafe { libc::pthread_kill(thread, SIGNAL) };
        thread::sleep(Duration::from_millis(1));
    };
    over.store(true, Ordering::Release);
    waiting.join().map_err(|_| "the thread has panicked")?;
    found.ok_or("no result")
}

#[test]
fn time_limits_of_connections_hold_under_signals() -> Outcome {
    let limit = Duration::from_millis(100);
    let timed_out = |error| matches!(error, Some(Error::Channel(ChannelError::TimedOut { .. })));
    let file = path("signals");
    let mut listener = Listener::bind(&file)?;
    listener.set_timeout(Some(limit))?;
    let (outcome, took) = interrupted(move || (listener.accept().err(), listener))?;
    assert!(timed_out(outcome.0) && took >= limit, "accept took {took:?}");
    let (mut here, _there) = Channel::pair()?;
    here.set_timeout(Some(limit));
    let (outcome, took) = interrupted(move || (here.receive_bytes().err(), here))?;
    assert!(timed_out(outcome.0) && took >= limit, "a receive took {took:?}");
    Ok(())
}

/// Sends a message of one byte with as many files as a message may have.
fn send_many(socket: &UnixStream, file: &File) -> Outcome {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILE_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd(); MAX_FILE_DESCRIPTORS];
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    sendmsg(socket, &[IoSlice::new(&[1, 0, 0, 0, 1])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Runs a part below in a process of its own, whose limits it changes.
fn part(name: &str) {
    run_alone(&mut in_its_own_process(name));
}

#[test]
fn a_process_without_free_files_says_so_of_itself() {
    part(&test_name!("part_without_free_files"));
}

#[test]
#[ignore = "a part of the test above, which gives it a process"]
fn part_without_free_files() -> Outcome {
    let (bare, there) = UnixStream::pair()?;
    let mut there = Channel::from_stream(there)?;
    let file = path("full");
    let listener = Listener::bind(&file)?;
    send_many(&bare, &File::open("/dev/null")?)?;
    let connecting = UnixStream::connect(&file)?;
    let mut used = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        used.push(file);
    }
    drop(used.pop());
    let error = there.receive().expect_err("there is room for one");
    assert!(matches!(error, Error::Channel(ChannelError::NoFreeFiles { .. })), "{error}");
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    while let Ok(file) = File::open("/dev/null") {
        used.push(file);
    }
    for error in [Channel::pair().err(), listener.accept().err(), Channel::connect(&file).err()] {
        let text = error.expect("there is no room").to_string();
        assert!(text.contains("ulimit -n"), "{text}");
    }
    drop((used, connecting));
    Ok(())
}

#[test]
fn what_is_wrong_with_a_socket_file_is_told_with_advice() -> Outcome {
    let file = path("left");
    let advises = |error: Option<Error>, advice: &str| {
        let text = error.expect("it is refused").to_string();
        assert!(text.contains(advice), "{text}");
    };
    advises(Channel::connect(&file).err(), "start the listening process first");
    drop(std::os::unix::net::UnixListener::bind(&file)?);
    advises(Channel::connect(&file).err(), "nobody listens");
    advises(Listener::bind(&file).err(), "remove it");
    std::fs::remove_file(&file)?;
    let long = std::env::temp_dir().join("x".repeat(108));
    advises(Channel::connect(&long).err(), "107 bytes");
    advises(Listener::bind(&long).err(), "107 bytes");
    Ok(())
}
