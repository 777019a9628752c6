//! Logs.

use super::Text;
use cuda_mem::adaptor::{Limit, Logging};
use cuda_mem::{Buffer, Result};
use std::io::Write;
use testkit::Bench;

#[test]
fn a_log_that_cannot_be_written_stops_nothing() -> Result<()> {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let count = bytes.len().min(self.0);
            self.0 -= count;
            if count == 0 { Err(std::io::Error::other("no space left")) } else { Ok(count) }
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Err(std::io::Error::other("no flush"))
        }
    }
    let Bench { context, stream, pool } = Bench::new()?;
    let logging = Logging::new(&pool, Full(50));
    drop(Buffer::from_slice(&logging, &[1u8, 2, 3], &stream)?);
    drop(Buffer::from_slice(&logging, &[1u8, 2, 3], &stream)?);
    assert_eq!(logging.lost_lines(), 4);
    assert_eq!(logging.take_error().expect("kept").to_string(), "no space left");
    assert!(logging.take_error().is_none());
    assert_eq!(logging.flush().unwrap_err().to_string(), "no flush");
    assert_eq!(context.take_drop_errors(), Default::default());
    Ok(())
}

#[test]
fn a_log_names_thread_time_action_pointer_size_and_stream() -> Result<()> {
    let Bench { stream, pool, .. } = Bench::new()?;
    let log = Text::default();
    let logging = Logging::new(&Limit::new(&pool, 1000), log.clone());
    let buffer = Buffer::<u8, _>::zeroed(&logging, 600, &stream)?;
    let pointer = buffer.device_pointer();
    assert!(Buffer::<u8, _>::zeroed(&logging, 600, &stream).is_err());
    let other = logging.clone();
    std::thread::scope(|scope| scope.spawn(move || drop((buffer, other))).join()).expect("no panic");
    let lines = log.lines();
    assert_eq!(lines[0], "Thread,Time,Action,Pointer,Size,Stream");
    let ends = [
        format!(",allocate,{pointer:#x},600,{:#x}", stream.raw().addr()),
        format!(",allocate failure,0x0,600,{:#x}", stream.raw().addr()),
        format!(",free,{pointer:#x},600,{:#x}", stream.raw().addr()),
    ];
    assert_eq!(lines.len(), 4);
    for (line, end) in lines[1..].iter().zip(&ends) {
        assert!(line.ends_with(end), "{line} {end}");
    }
    let thread = |line: &str| line.split(',').next().expect("a field").parse::<u64>().expect("a number");
    assert_eq!(thread(&lines[1]), thread(&lines[2]));
    assert_ne!(thread(&lines[1]), thread(&lines[3]));
    let time: Vec<_> = lines[1].split(',').nth(1).expect("a time").split([':', '.']).map(str::len).collect();
    assert_eq!(time, [2, 2, 2, 6]);
    Ok(())
}
