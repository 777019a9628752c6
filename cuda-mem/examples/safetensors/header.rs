//! The header of a .safetensors file: 8 bytes with its length, then JSON that says where each tensor's bytes lie.

use core::fmt;
use safetensors::tensor::{Metadata, TensorInfo};
use std::io::{self, Read};

/// The longest header that the format allows, in bytes.
pub const LONGEST: u64 = 100_000_000;
/// Where the JSON begins.
pub const JSON: u64 = 8;

/// Where the tensors of a file lie.
pub struct Header {
    /// The offset in the file of the first byte of a tensor.
    pub data: u64,
    /// The size of all tensors, in bytes.
    pub size: usize,
    metadata: Metadata,
}

/// Why a file has no valid header. Each text names the offset.
#[derive(Debug)]
pub enum HeaderError {
    /// The file ends early, or cannot be read.
    Read(io::Error),
    /// The header is longer than the format or the file allows.
    Length { length: u64, file_size: u64 },
    /// The header says what cannot be, such as two tensors with the same bytes.
    Json(serde_json::Error),
    /// The file has not the size of the header and its tensors.
    Size { end: u64, file_size: u64 },
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => write!(f, "the header, from byte 0 on, cannot be read: {error}"),
            Self::Length { length, file_size } => write!(
                f,
                "the header, from byte {JSON} on, has {length} bytes, but the file {file_size}, and the most is {LONGEST}"
            ),
            Self::Json(error) => write!(f, "the header, from byte {JSON} on, is not valid: {error}"),
            Self::Size { end, file_size } => {
                write!(f, "the last tensor ends at byte {end}, but the file has {file_size} bytes")
            }
        }
    }
}

impl core::error::Error for HeaderError {}

impl Header {
    /// Reads the header of a file of `file_size` bytes.
    pub fn read(mut file: impl Read, file_size: u64) -> Result<Self, HeaderError> {
        let mut length = [0; JSON as usize];
        file.read_exact(&mut length).map_err(HeaderError::Read)?;
        let length = u64::from_le_bytes(length);
        if length > LONGEST || length > file_size.saturating_sub(JSON) {
            return Err(HeaderError::Length { length, file_size });
        }
        let mut json = vec![0; length as usize];
        file.read_exact(&mut json).map_err(HeaderError::Read)?;
        // It refuses ranges that overlap, that leave bytes out, and that do not fit their shape.
        let metadata: Metadata = serde_json::from_slice(&json).map_err(HeaderError::Json)?;
        let (data, size) = (JSON + length, metadata.data_len());
        match data.checked_add(size as u64) {
            Some(end) if end == file_size => Ok(Self { data, size, metadata }),
            end => Err(HeaderError::Size { end: end.unwrap_or(u64::MAX), file_size }),
        }
    }

    /// The tensors with their names, in the order of their bytes. Offsets count from [`data`](Self::data).
    pub fn tensors(&self) -> Vec<(String, &TensorInfo)> {
        let mut tensors: Vec<_> = self.metadata.tensors().into_iter().collect();
        tensors.sort_by(|(name, one), (other, two)| (one.data_offsets, name).cmp(&(two.data_offsets, other)));
        tensors
    }
}
