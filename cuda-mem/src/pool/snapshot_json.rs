//! Snapshots of pools as JSON.

use super::snapshot::{FORMAT, Snapshot};
use serde::Deserialize;

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

cuda_sys::debug_as_display!(SnapshotError);

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
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
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
    use crate::adaptor::trace::Trace;
    use crate::pool::PoolStatistics;

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
