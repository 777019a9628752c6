//! What is wrong with a trace.

use std::io;

/// Why a trace cannot be read. Each text names the line, and what to do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The reader failed.
    #[error("the trace cannot be read: {0}")]
    Read(#[from] io::Error),
    /// Neither format.
    #[error(
        "line 1 is {first:?}, but a trace begins with `#cuda-mem-trace,version=1,lost=0`, or with RMM's \
         `Thread,Time,Action,Pointer,Size,Stream`"
    )]
    NoTrace {
        /// The beginning of the first line.
        first: String,
    },
    /// A version of the format that is not known here.
    #[error("line 1: the trace is of version {version}, but this release reads version 1: record it anew, or update")]
    Version {
        /// What it says.
        version: String,
    },
    /// A column is missing.
    #[error("line {line}: the head line {head:?} has no column {column}")]
    NoColumn {
        /// Of the head line, from 1.
        line: u64,
        /// Which one.
        column: &'static str,
        /// The head line.
        head: String,
    },
    /// A line has too few fields, or too many: it may be cut off.
    #[error("line {line}: there are {found} fields, but the head line names {expected}: is the trace cut off here?")]
    Fields {
        /// From 1.
        line: u64,
        /// How many the head line names.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// A field has no value that can be read.
    #[error("line {line}, column {column}: the value is {value:?}, but it has to be {rule}")]
    Field {
        /// From 1.
        line: u64,
        /// Which one.
        column: &'static str,
        /// What is there.
        value: String,
        /// What should be there.
        rule: &'static str,
    },
    /// A line is not UTF-8.
    #[error("line {line} is not UTF-8")]
    NotText {
        /// From 1.
        line: u64,
    },
}
