//! A log of allocations.

use super::{Adapted, Observe, handle};
use crate::error::callback::call_back;
use crate::error::{check_not_forked, forked, unless_forked};
use crate::lifetime::waiting::{self, Target};
use crate::locks::Mutex;
use crate::memory::resource::{Block, Kind, ResourceHandle};
use crate::{Result, Stream};
use core::time::Duration;
use core::{fmt, mem};
use cuda_sys::CUdeviceptr;
use std::io::{self, Write};
use std::time::SystemTime;

handle! {
    /// Writes each allocation and each free as a line of CSV, in the format of RMM's logs, which RMM's replay benchmark
    /// reads: `Thread,Time,Action,Pointer,Size,Stream`. The time is the time of day (UTC, in microseconds). The action
    /// is `allocate`, `allocate failure`, `free`, or `free failure` after a `free` that the driver refused. Cheap to
    /// clone; the clones share one log.
    ///
    /// An error of the writer stops no allocation: the line is lost, and the log [keeps the error](Self::take_error).
    /// One thread writes at a time; others leave it their lines. So the writer may allocate through this resource, but
    /// must not flush it.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// use cuda_mem::{Buffer, adaptor::Logging, memory::DeviceMemory};
    /// let (reader, writer) = std::io::pipe()?; // or a BufWriter of a File
    /// let logging = Logging::new(&DeviceMemory::new(&context), writer);
    /// drop(Buffer::<u8, _>::zeroed(&logging, 1000, &stream)?);
    /// drop(logging);
    /// let log = std::io::read_to_string(reader)?;
    /// let lines: Vec<_> = log.lines().collect();
    /// assert_eq!(lines[0], "Thread,Time,Action,Pointer,Size,Stream");
    /// assert!(lines[1].contains(",allocate,0x") && lines[2].contains(",free,0x"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Logging holds Adapted<LogSink>
}

impl<K: Kind> Logging<K> {
    /// Logs the allocations from `upstream` through the new handle. Writes the head line now.
    pub fn new<R: ResourceHandle<Kind = K> + ?Sized>(upstream: &R, writer: impl Write + Send + 'static) -> Self {
        let log = LogSink(Mutex::new(Sink::new(writer)));
        log.write("Thread,Time,Action,Pointer,Size,Stream\n".into());
        Self::from_inner(Adapted { adaptor: log, upstream: upstream.share() })
    }

    /// Flushes the writer. Waits while another thread writes.
    ///
    /// # Errors
    ///
    /// The writer failed.
    pub fn flush(&self) -> io::Result<()> {
        check_not_forked("Logging::flush").map_err(io::Error::other)?;
        self.inner.adaptor.flush()
    }

    /// Takes the first error of the writer since the last call.
    pub fn take_error(&self) -> Option<io::Error> {
        unless_forked(|| self.inner.adaptor.with(|sink| sink.error.take()))
    }

    /// The number of lines that the writer refused.
    pub fn lost_lines(&self) -> u64 {
        unless_forked(|| self.inner.adaptor.with(|sink| sink.lost))
    }
}

struct LogSink(Mutex<Sink>);

struct Sink {
    /// None while a thread writes, without the lock: the writer is code of the program.
    writer: Option<Box<dyn Write + Send>>,
    /// Lines for the thread that writes, in the order of the events.
    lines: Vec<String>,
    error: Option<io::Error>,
    lost: u64,
}

impl Sink {
    fn new(writer: impl Write + Send + 'static) -> Self {
        Self { writer: Some(Box::new(writer)), lines: Vec::new(), error: None, lost: 0 }
    }

    fn take_lines(&mut self) -> Option<(Box<dyn Write + Send>, Vec<String>)> {
        if self.lines.is_empty() { None } else { Some((self.writer.take()?, mem::take(&mut self.lines))) }
    }

    /// Takes the writer back. Returns the errors that it does not keep: they are of the writer's own types, whose drops
    /// are code of the program.
    fn put_back(&mut self, writer: Box<dyn Write + Send>, mut errors: Vec<io::Error>) -> Vec<io::Error> {
        self.writer = Some(writer);
        self.lost += errors.len() as u64;
        if self.error.is_none() && !errors.is_empty() {
            self.error = Some(errors.remove(0));
        }
        errors
    }
}

impl LogSink {
    fn with<R>(&self, work: impl FnOnce(&mut Sink) -> R) -> R {
        work(&mut self.0.lock())
    }

    fn write(&self, line: String) {
        if forked() {
            return;
        }
        self.with(|sink| sink.lines.push(line));
        self.write_rest();
    }

    /// Writes what waits, unless another thread writes.
    fn write_rest(&self) {
        // Each thread looks again after its own writes, so no line stays behind.
        while let Some((mut writer, lines)) = self.with(Sink::take_lines) {
            let written = lines.iter().map(|line| guarded(|| writer.write_all(line.as_bytes())));
            let errors = written.filter_map(io::Result::err).collect();
            let rest = self.with(|sink| sink.put_back(writer, errors));
            rest.into_iter().for_each(|error| drop(call_back(|| drop(error))));
        }
    }

    fn flush(&self) -> io::Result<()> {
        let mut writer = None;
        waiting::pause_until(&"Logging::flush", Target::THREAD, || {
            writer = self.with(|sink| sink.writer.take());
            writer.is_some()
        });
        let Some(mut writer) = writer else { return Ok(()) };
        let flushed = guarded(|| writer.flush());
        self.with(|sink| sink.writer = Some(writer));
        // Lines that came meanwhile.
        self.write_rest();
        flushed
    }

    fn note(&self, action: &str, pointer: CUdeviceptr, size: usize, stream: Option<&Stream>) {
        // SAFETY: gettid only returns a number.
        let thread = unsafe { libc::gettid() };
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.write(line(thread, time, action, pointer, size, stream.map_or(0, |stream| stream.raw().addr())));
    }
}

/// Turns a panic of the writer into an error, because a panic in the drop of a buffer may abort the process.
fn guarded(work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let panicked = |text: &str| io::Error::other(format!("the writer of a log panicked: {text}"));
    call_back(work).unwrap_or_else(|panic| Err(panicked(panic.text())))
}

/// Formats one line. `time` is the time since 1970.
fn line(thread: i32, time: Duration, action: &str, pointer: CUdeviceptr, size: usize, stream: usize) -> String {
    let (seconds, microseconds) = (time.as_secs(), time.subsec_micros());
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let time = format_args!("{hour:02}:{minute:02}:{second:02}.{microseconds:06}").to_string();
    format!("{thread},{time},{action},{pointer:#x},{size},{stream:#x}\n")
}

impl Observe for LogSink {
    type Free = ();

    fn allocated(&self, size: usize, stream: &Stream, block: &Result<Block>) {
        match block {
            Ok(block) => self.note("allocate", block.device_pointer(), block.size(), Some(stream)),
            Err(_) => self.note("allocate failure", 0, size, Some(stream)),
        }
    }

    fn freeing(&self, block: Block, stream: Option<&Stream>) -> Result<()> {
        self.note("free", block.device_pointer(), block.size(), stream);
        Ok(())
    }

    fn free_failed(&self, block: Block, stream: &Stream, (): ()) {
        self.note("free failure", block.device_pointer(), block.size(), Some(stream));
    }
}

impl fmt::Debug for LogSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The error and the formatter may be the program's, and must not run their code under the lock.
        let (lost, error) = self.with(|sink| (sink.lost, sink.error.as_ref().map(io::Error::kind)));
        f.debug_struct("Log").field("lost", &lost).field("error", &error).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::callback::tests::Nested;

    #[test]
    fn lines_have_the_form_of_rmm() {
        let time = Duration::from_micros(((23 * 60 + 4) * 60 + 5) * 1_000_000 + 86_400_000_000 + 42);
        let text = line(140_202, time, "allocate", 0x7f00_dead_be00, 1024, 0x10);
        assert_eq!(text, "140202,23:04:05.000042,allocate,0x7f00deadbe00,1024,0x10\n");
        assert_eq!(line(1, Duration::ZERO, "free", 0, 0, 0), "1,00:00:00.000000,free,0x0,0,0x0\n");
    }

    #[test]
    fn errors_and_panics_of_the_writer_are_kept() {
        struct Bad(u32);
        impl Write for Bad {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 += 1;
                match self.0 {
                    2 => Err(io::Error::other("full")),
                    3 => std::panic::panic_any(Nested(2)),
                    _ => Ok(bytes.len()),
                }
            }
            fn flush(&mut self) -> io::Result<()> {
                Err(io::Error::other("no flush"))
            }
        }
        let log = LogSink(Mutex::new(Sink::new(Bad(0))));
        (0..4).for_each(|_| log.write("line\n".into()));
        log.with(|sink| {
            assert_eq!((sink.lost, sink.error.take().unwrap().to_string().as_str()), (2, "full"));
        });
    }
}
