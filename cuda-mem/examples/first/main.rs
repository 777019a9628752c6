//! The first program of README.md.

include!("program.rs");
