//! What a pool looks like at one moment.

use super::PoolStatistics;
use crate::trace::Trace;
use serde::{Deserialize, Serialize};

/// The version of the JSON that is written. Version 1 had peaks that this one does not have, and is read too.
pub(super) const FORMAT: u32 = 2;

/// What a pool looks like at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// The version of the JSON: 2. Fields are only ever added to it.
    pub format: u32,
    /// The ordinal of the context's device.
    pub device: i32,
    /// The unit that all blocks begin and end at, in bytes.
    pub granularity: u64,
    /// What the pool has of its source, in order of the addresses.
    pub regions: Vec<RegionSnapshot>,
    /// The pool's figures.
    pub statistics: PoolStatistics,
    /// The newest events, if the pool keeps them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
}

/// Memory of the pool's source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RegionSnapshot {
    /// The address for devices.
    pub address: u64,
    /// In bytes.
    pub size: u64,
    /// What it is divided into, in order of the offsets, without gaps.
    pub blocks: Vec<BlockSnapshot>,
}

/// A part of a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BlockSnapshot {
    /// Where it begins in the region, in bytes.
    pub offset: u64,
    /// In bytes.
    pub size: u64,
    /// What it is used for.
    pub state: BlockState,
    /// The driver's handle of the stream that the memory waits for, or is kept for.
    pub stream: Option<u64>,
    /// The name that it was given.
    pub name: Option<String>,
}

/// What a part of a region is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BlockState {
    /// A block that was given out.
    Allocated,
    /// A freed block that a front keeps for its stream.
    InFront,
    /// Free memory that other streams than its own have to wait for.
    Pending,
    /// Free memory that every stream may have.
    Free,
}

/// Why text is no snapshot.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// It is no JSON, is cut off, or has other fields.
    #[error("this is no snapshot of a pool, or it is cut off: {message}")]
    Json {
        /// What is wrong, and where.
        message: Box<str>,
    },
    /// It is of a version that is not known here.
    #[error("the snapshot is of format {0}, but this release reads formats 1 and 2: take it anew, or update")]
    Format(u64),
}

/// What every format has.
#[derive(Deserialize)]
struct Head {
    format: u64,
}

fn parse<'text, T: Deserialize<'text>>(text: &'text str) -> Result<T, SnapshotError> {
    serde_json::from_str(text).map_err(|error| SnapshotError::Json { message: error.to_string().into() })
}

impl Snapshot {
    /// Reads what [`to_json`](Self::to_json) wrote.
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
    /// The text is no snapshot, or of another format.
    pub fn from_json(text: &str) -> Result<Self, SnapshotError> {
        // The number first: another format may have other fields.
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
            "the snapshot is of format 7, but this release reads formats 1 and 2: take it anew, or update"
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
