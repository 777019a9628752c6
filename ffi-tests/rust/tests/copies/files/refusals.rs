//! Reads of files that cannot be: each error returns the buffer, and names the file, the range, the cause and what to do.

use super::{BLOCK, engine, file};
use cuda_mem::copy::{CopyEngine, FileErrorCause};
use cuda_mem::graph::CaptureMode;
use cuda_mem::memory::{DeviceMemory, kind};
use cuda_mem::{Buffer, Error, Stream};
use std::fs::{File, OpenOptions};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use testkit::suite::Outcome;
use testkit::{alone, pattern, same};

type Unfilled = Buffer<MaybeUninit<u8>, kind::Device>;

/// A read that is refused returns the buffer, which then takes another file.
fn refused(
    engine: &CopyEngine,
    file: impl AsFd,
    offset: u64,
    buffer: Unfilled,
) -> Result<(Error, Unfilled), Box<dyn std::error::Error>> {
    let (size, address) = (buffer.len(), buffer.device_pointer());
    let refusal = *engine.read_file(file, offset, buffer).err().ok_or("the read was not refused")?;
    assert_eq!((refusal.value.len(), refusal.value.device_pointer()), (size, address));
    Ok((refusal.error, refusal.value))
}

fn cause(error: &Error) -> &FileErrorCause {
    match error {
        Error::File(error) => &error.cause,
        other => panic!("{other}"),
    }
}

#[test]
fn files_without_offsets_are_refused_by_their_kind() -> Outcome {
    alone(|setup| {
        let (memory, stream) = (DeviceMemory::new(&setup.context), Stream::new(&setup.context)?);
        let engine = engine(&setup.context, BLOCK)?;
        let mut buffer = Buffer::uninit(&memory, 100, &stream)?;
        let mut error;
        let (pipe, _writer) = std::io::pipe()?;
        let (socket, _peer) = UnixStream::pair()?;
        let (folder, zeros) = (File::open(std::env::temp_dir())?, File::open("/dev/zero")?);
        for (file, kind) in [
            (folder.as_fd(), "a directory"),
            (pipe.as_fd(), "a pipe"),
            (socket.as_fd(), "a socket"),
            (zeros.as_fd(), "a character device"),
        ] {
            (error, buffer) = refused(&engine, file, 0, buffer)?;
            assert_eq!(*cause(&error), FileErrorCause::Kind { kind });
            assert!(error.to_string().contains(&format!("it is {kind}, and only regular files")), "{error}");
        }
        Ok(())
    })
}

#[test]
fn ranges_beyond_a_file_are_refused_by_name_and_size() -> Outcome {
    alone(|setup| {
        let (memory, stream) = (DeviceMemory::new(&setup.context), Stream::new(&setup.context)?);
        let engine = engine(&setup.context, BLOCK)?;
        let bytes = pattern(5000, 1);
        let file = file(&bytes)?;
        let mut buffer = Buffer::uninit(&memory, 100, &stream)?;
        for offset in [4901, 5000, 5001, 1 << 40, i64::MAX as u64, u64::MAX - 99, u64::MAX] {
            let error;
            (error, buffer) = refused(&engine, &file, offset, buffer)?;
            assert_eq!(*cause(&error), FileErrorCause::OutOfRange { file_size: 5000 });
            let text = error.to_string();
            assert!(text.starts_with(&format!("CopyEngine::read_file: 100 bytes from byte {offset} of /")), "{text}");
            assert!(text.ends_with("the file has 5000 bytes; read a range that it has"), "{text}");
        }
        // Files of the kernel have no size.
        let (error, buffer) = refused(&engine, File::open("/proc/self/status")?, 0, buffer)?;
        assert_eq!(*cause(&error), FileErrorCause::OutOfRange { file_size: 0 });
        same("the last bytes", &engine.read_file(&file, 4900, buffer)?.to_vec()?, &bytes[4900..])?;
        Ok(())
    })
}

#[test]
fn files_that_end_early_give_no_buffer() -> Outcome {
    alone(|setup| {
        // The kernel says a size of one page, whatever the contents.
        let path = "/sys/kernel/mm/transparent_hugepage/enabled";
        let length = match std::fs::read(path) {
            Ok(contents) if contents.len() < 4096 && std::fs::metadata(path)?.len() == 4096 => contents.len(),
            _ => {
                println!("skipped: a file that is shorter than its size: mount /sys, with transparent huge pages");
                return Ok(());
            }
        };
        let (memory, stream) = (DeviceMemory::new(&setup.context), Stream::new(&setup.context)?);
        for slot in [BLOCK, 1000] {
            let engine = engine(&setup.context, slot)?;
            let buffer = Buffer::uninit(&memory, 4096, &stream)?;
            let (error, buffer) = refused(&engine, File::open(path)?, 0, buffer)?;
            // Of several threads, any may be the first to find its part missing.
            assert!(matches!(cause(&error), FileErrorCause::Ended { at } if *at >= length as u64), "{error}");
            assert!(error.to_string().contains(path), "{error}");
            let bytes = pattern(4096, 1);
            same("a whole file", &engine.read_file(file(&bytes)?, 0, buffer)?.to_vec()?, &bytes)?;
            engine.trim();
            assert_eq!(engine.reserved_staging(), 0, "all lanes came back");
        }
        Ok(())
    })
}

#[test]
fn files_that_are_not_open_for_reading_are_refused() -> Outcome {
    alone(|setup| {
        let (memory, stream) = (DeviceMemory::new(&setup.context), Stream::new(&setup.context)?);
        let engine = engine(&setup.context, BLOCK)?;
        let path = std::env::temp_dir().join(format!("cuda-mem-test-write-only-{}", std::process::id()));
        std::fs::write(&path, pattern(100, 1))?;
        let written = OpenOptions::new().write(true).open(&path)?;
        let named = rustix::fs::open(&path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty())?;
        std::fs::remove_file(&path)?;
        let mut buffer = Buffer::uninit(&memory, 100, &stream)?;
        for file in [written.as_fd(), named.as_fd()] {
            let error;
            (error, buffer) = refused(&engine, file, 0, buffer)?;
            assert_eq!(*cause(&error), FileErrorCause::System { call: "pread", code: libc::EBADF });
            assert!(error.to_string().ends_with("open the file for reading"), "{error}");
        }
        Ok(())
    })
}

#[test]
fn a_descriptor_past_the_page_cache_reads_any_range() -> Outcome {
    alone(|setup| {
        let (memory, stream) = (DeviceMemory::new(&setup.context), Stream::new(&setup.context)?);
        let bytes = pattern(20_000, 1);
        let named = file(&bytes)?;
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&named));
        let flags = rustix::fs::OFlags::DIRECT;
        let Ok(direct) = rustix::fs::open(path, flags, rustix::fs::Mode::empty()) else {
            println!("skipped: the folder for temporary files does not support O_DIRECT: set TMPDIR");
            return Ok(());
        };
        for slot in [1000, 2 * BLOCK] {
            let engine = engine(&setup.context, slot)?;
            let buffer = engine.read_file(&direct, 777, Buffer::uninit(&memory, 15_001, &stream)?)?;
            same("a range", &buffer.to_vec()?, &bytes[777..15_778])?;
        }
        Ok(())
    })
}

#[test]
fn a_captured_stream_reads_no_file_and_stays_captured() -> Outcome {
    alone(|setup| {
        let (memory, stream) = (DeviceMemory::new(&setup.context), Stream::new(&setup.context)?);
        let engine = engine(&setup.context, BLOCK)?;
        let file = file(&pattern(10_000, 1))?;
        let mut buffer = Some(Buffer::uninit(&memory, 10_000, &stream)?);
        let graph = stream.capture(CaptureMode::ThreadLocal, |_| {
            let refusal = *engine.read_file(&file, 0, buffer.take().expect("a buffer")).map(drop).unwrap_err();
            assert!(matches!(refusal.error, Error::Capturing { .. }), "{refusal}");
            buffer = Some(refusal.value);
            Ok(())
        })?;
        drop(graph);
        let buffer = engine.read_file(&file, 0, buffer.take().expect("a buffer"))?;
        same("afterwards", &buffer.to_vec()?, &pattern(10_000, 1))?;
        Ok(())
    })
}

#[test]
fn memory_of_another_device_is_refused() -> Outcome {
    alone(|setup| {
        if setup.driver.device_count()? < 2 {
            println!("skipped: memory of another device: there is only one device");
            return Ok(());
        }
        let other = setup.driver.device(1)?.primary_context()?;
        let (memory, stream) = (DeviceMemory::new(&other), Stream::new(&other)?);
        let engine = engine(&setup.context, BLOCK)?;
        let (error, _) = refused(&engine, file(&[1; 10])?, 0, Buffer::uninit(&memory, 10, &stream)?)?;
        assert!(error.to_string().contains("the memory is of device 1"), "{error}");
        Ok(())
    })
}
