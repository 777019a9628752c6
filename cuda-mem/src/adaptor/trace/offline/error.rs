//! Errors of traces.

use std::io;

/// Why a trace cannot be read. Each message names the line and what to do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The reader failed.
    #[error("the trace cannot be read: {0}")]
    Read(#[from] io::Error),
    /// The text has neither this crate's format nor RMM's.
    #[error(
        "line 1 is {first:?}, but a trace begins with `#cuda-mem-trace,version=1,lost=0`, or with RMM's \
         `Thread,Time,Action,Pointer,Size,Stream`"
    )]
    NoTrace {
        /// The beginning of the first line.
        first: String,
    },
    /// This release does not know the version of the format.
    #[error("line 1: the trace is of version {version}, but this release reads version 1: record it anew, or update")]
    Version {
        /// The version in the trace.
        version: String,
    },
    /// A column is missing.
    #[error("line {line}: the head line {head:?} has no column {column}")]
    NoColumn {
        /// The line number of the head line, from 1.
        line: u64,
        /// The name of the missing column.
        column: &'static str,
        /// The head line.
        head: String,
    },
    /// A line has too few fields, or too many: it may be cut off.
    #[error("line {line}: there are {found} fields, but the head line names {expected}: is the trace cut off here?")]
    Fields {
        /// The line number, from 1.
        line: u64,
        /// The number of fields in the head line.
        expected: u64,
        /// The number of fields in this line.
        found: u64,
    },
    /// A field has an invalid value.
    #[error("line {line}, column {column}: the value is {value:?}, but it must be {rule}")]
    Field {
        /// The line number, from 1.
        line: u64,
        /// The name of the column.
        column: &'static str,
        /// The invalid value.
        value: String,
        /// The expected kind of value.
        rule: &'static str,
    },
    /// A line is not UTF-8.
    #[error("line {line} is not UTF-8")]
    NotText {
        /// The line number, from 1.
        line: u64,
    },
}

cuda_sys::debug_as_display!(TraceError);
