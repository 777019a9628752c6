//! The regions and blocks of a pool at one moment.

use super::PoolStatistics;
use crate::trace::Trace;
use serde::{Deserialize, Serialize};

/// The version that this release writes. It also reads version 1, which had more peaks.
pub(super) const FORMAT: u32 = 2;

/// The regions and blocks of a pool at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// The version of the JSON, 2. Later releases may add fields to it.
    pub format: u32,
    /// The ordinal of the context's device.
    pub device: i32,
    /// The unit in bytes: blocks begin and end at its multiples.
    pub granularity: u64,
    /// The pool's regions, in order of their addresses.
    pub regions: Vec<RegionSnapshot>,
    /// The pool's figures.
    pub statistics: PoolStatistics,
    /// The newest events, if the pool records a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
}

/// A region of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RegionSnapshot {
    /// The device address.
    pub address: u64,
    /// The size in bytes.
    pub size: u64,
    /// The parts of the region, in order of their offsets, without gaps.
    pub blocks: Vec<BlockSnapshot>,
}

/// A part of a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BlockSnapshot {
    /// The offset in the region, in bytes.
    pub offset: u64,
    /// The size in bytes.
    pub size: u64,
    /// The state of the part.
    pub state: BlockState,
    /// The driver's handle of the stream that the memory waits for, or is kept for.
    pub stream: Option<u64>,
    /// The name of the block, if it has one.
    pub name: Option<String>,
}

/// The state of a part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BlockState {
    /// A live block.
    Allocated,
    /// A freed block that a front keeps for the stream that freed it.
    InFront,
    /// Free memory that waits for the stream that freed it.
    Pending,
    /// Free memory that every stream may use.
    Free,
}

/// Why a text is no snapshot.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The text is not JSON, is cut off, or has other fields.
    #[error("this is no snapshot of a pool, or it is cut off: {message}")]
    Json {
        /// What is wrong, and where.
        message: Box<str>,
    },
    /// This release does not know the snapshot's version.
    #[error("the snapshot is of format {0}, but this release reads formats 1 and 2: take a new snapshot, or update")]
    Format(u64),
}

/// The field of every format.
#[derive(Deserialize)]
struct Head {
    format: u64,
}

fn parse<'text, T: Deserialize<'text>>(text: &'text str) -> Result<T, SnapshotError> {
    serde_json::from_str(text).map_err(|error| SnapshotError::Json { message: error.to_string().into() })
}

impl Snapshot {
    /// Reads the text of [`to_json`](Self::to_json).
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// # use cuda_mem::{memory::DeviceMemory, pool::{Pool, PoolOptions, Snapshot}};
    /// let snapshot = Pool::new(&DeviceMemory::new(&context), &PoolOptions::default())?.snapshot();
    /// assert_eq!(Snapshot::from_json(&snapshot.to_json())?, snapshot);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The text is no snapshot, or has an unknown format.
    pub fn from_json(text: &str) -> Result<Self, SnapshotError> {
        // First, because another format may have other fields.
        let Head { format } = parse(text)?;
        if !(1..=u64::from(FORMAT)).contains(&format) {
            return Err(SnapshotError::Format(format));
        }
        parse(text)
    }

    /// The snapshot as JSON text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| unreachable!("the snapshot has string keys and finite numbers"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_snapshot_is_refused_with_a_reason() {
        let refused = |text: &str| Snapshot::from_json(text).unwrap_err().to_string();
        assert!(refused("").contains("cut off: EOF"), "{}", refused(""));
        assert!(refused("{\"format\":1,\"regions\":[").contains("cut off: EOF"));
        assert!(refused("{\"format\":1}").contains("missing field"));
        assert!(refused("{\"regions\":[]}").contains("missing field `format`"));
        assert_eq!(
            refused("{\"format\":7}"),
            "the snapshot is of format 7, but this release reads formats 1 and 2: take a new snapshot, or update"
        );
    }

    #[test]
    fn a_snapshot_without_a_trace_has_no_word_of_it() {
        let snapshot = Snapshot {
            format: FORMAT,
            device: 0,
            granularity: 256,
            regions: Vec::new(),
            statistics: PoolStatistics::default(),
            trace: None,
        };
        assert!(!snapshot.to_json().contains("trace"));
        let traced = Snapshot { trace: Some(Trace::default()), ..snapshot.clone() };
        for snapshot in [snapshot, traced] {
            assert_eq!(Snapshot::from_json(&snapshot.to_json()).unwrap(), snapshot);
        }
    }
}
