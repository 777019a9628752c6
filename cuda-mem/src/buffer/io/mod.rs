//! [`Read`](std::io::Read), [`Write`](std::io::Write) and [`Seek`](std::io::Seek) for buffers of bytes.
//!
//! A [`BufferReader`] reads from a buffer and a [`BufferWriter`] writes into it, in stream order with the buffer's
//! other work. Both own or borrow the buffer. They work with code for files: serialisers, decoders, `std::io::copy`.
//!
//! ```
//! let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
//! # let stream = cuda_mem::Stream::new(&context)?;
//! use cuda_mem::io::{BufferReader, BufferWriter};
//! use cuda_mem::{Buffer, memory::DeviceMemory};
//! use std::io::{BufRead, BufReader, Write};
//! let mut buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&context), 1000, &stream)?;
//! let mut writer = BufferWriter::with_staging(&mut buffer, 64 << 10);
//! writeln!(writer, "{} and {}", 6, 7)?;
//! writer.close().map_err(|refused| refused.error)?;
//!
//! let mut line = String::new();
//! BufReader::new(BufferReader::new(&buffer)).read_line(&mut line)?;
//! assert_eq!(line, "6 and 7\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`std::io::Error`] contains this crate's error; `get_ref` and `downcast_ref` return it.

mod bytes;
mod reader;
mod staging;
mod writer;

use crate::{Error, Refused, Result};
use std::io::{self, ErrorKind, SeekFrom};

pub use bytes::{ByteBuffer, ByteBufferMut};
pub use reader::BufferReader;
pub use staging::StagingMemory;
pub use writer::BufferWriter;

impl From<Error> for io::Error {
    /// Keeps this error as the source.
    fn from(error: Error) -> Self {
        let kind = match &error {
            error if error.is_out_of_memory() => ErrorKind::OutOfMemory,
            Error::OutOfRange { .. } | Error::Misaligned { .. } | Error::InvalidArgument { .. } => {
                ErrorKind::InvalidInput
            }
            Error::Unsupported { .. } | Error::MissingSymbol(_) => ErrorKind::Unsupported,
            Error::Load(_) => ErrorKind::NotFound,
            _ => ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

impl<V> From<Box<Refused<V>>> for io::Error {
    /// Drops the value.
    fn from(refused: Box<Refused<V>>) -> Self {
        refused.error.into()
    }
}

/// The target of a seek. The end of the buffer is allowed; beyond it is an error.
fn seek_target(call: &'static str, target: SeekFrom, position: usize, size: usize) -> Result<usize> {
    let (base, offset) = match target {
        SeekFrom::Start(offset) => (0, i128::from(offset)),
        SeekFrom::Current(offset) => (position, i128::from(offset)),
        SeekFrom::End(offset) => (size, i128::from(offset)),
    };
    let sought = base as i128 + offset;
    match usize::try_from(sought) {
        Ok(sought) if sought <= size => Ok(sought),
        Ok(offset) => Err(Error::OutOfRange { call, offset, length: 0, size }),
        Err(_) => Err(Error::invalid(call, "position", sought, "it must lie between 0 and the end of the buffer")),
    }
}

/// How many of `wanted` bytes exist from `offset` on: 0 at the end; beyond it is an error.
fn clamp(call: &'static str, offset: usize, wanted: usize, size: usize) -> Result<usize> {
    match size.checked_sub(offset) {
        Some(rest) => Ok(rest.min(wanted)),
        None => Err(Error::OutOfRange { call, offset, length: wanted, size }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeks_reach_the_very_end_and_not_beyond() {
        let seek = |target| seek_target("seek", target, 3, 10);
        assert_eq!(seek(SeekFrom::Start(10)), Ok(10));
        assert_eq!(seek(SeekFrom::Current(7)), Ok(10));
        assert_eq!(seek(SeekFrom::Current(-3)), Ok(0));
        assert_eq!(seek(SeekFrom::End(0)), Ok(10));
        assert_eq!(seek(SeekFrom::End(-10)), Ok(0));
        assert_eq!(seek(SeekFrom::Start(11)), Err(Error::OutOfRange { call: "seek", offset: 11, length: 0, size: 10 }));
        for target in [SeekFrom::Start(u64::MAX), SeekFrom::Current(i64::MAX), SeekFrom::Current(8), SeekFrom::End(1)] {
            assert!(matches!(seek(target), Err(Error::OutOfRange { .. })), "{target:?}");
        }
        for target in [SeekFrom::Current(-4), SeekFrom::Current(i64::MIN), SeekFrom::End(-11)] {
            assert!(matches!(seek(target), Err(Error::InvalidArgument { .. })), "{target:?}");
        }
        assert_eq!(seek_target("seek", SeekFrom::Start(0), 0, 0), Ok(0));
        assert_eq!(seek_target("seek", SeekFrom::End(0), 0, 0), Ok(0));
    }

    #[test]
    fn counts_end_at_the_end() {
        assert_eq!(clamp("read", 4, 3, 10), Ok(3));
        assert_eq!(clamp("read", 4, usize::MAX, 10), Ok(6));
        assert_eq!(clamp("read", 10, 1, 10), Ok(0));
        assert_eq!(clamp("read", 11, 1, 10), Err(Error::OutOfRange { call: "read", offset: 11, length: 1, size: 10 }));
    }

    #[test]
    fn errors_keep_their_source_and_have_the_kind_of_it() {
        let range = Error::OutOfRange { call: "read", offset: 1, length: 2, size: 3 };
        let limit = Error::LimitReached { call: "allocate", requested: 1, used: 2, limit: 2 };
        let memory =
            Error::OutOfMemory { call: "c", requested: 1, device: "d".into(), free: None, message: "m".into() };
        let unsupported = Error::Unsupported { feature: "f", needs: "n".into() };
        for (error, kind) in [
            (range, ErrorKind::InvalidInput),
            (limit, ErrorKind::OutOfMemory),
            (memory, ErrorKind::OutOfMemory),
            (unsupported, ErrorKind::Unsupported),
        ] {
            let converted = io::Error::from(error.clone());
            assert_eq!((converted.kind(), converted.to_string()), (kind, error.to_string()));
            assert_eq!(converted.get_ref().unwrap().downcast_ref::<Error>(), Some(&error));
        }
    }
}
