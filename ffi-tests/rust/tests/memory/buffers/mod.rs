//! Buffers: their contents, the order of their work, and their ends. Runs on any driver.

mod copies;
mod drivers;
mod ownership;
mod pools;
mod transfers;
mod values;

use cuda_mem::Error;

/// Whether an error is an out-of-range error with these figures in bytes.
fn outside(error: Error, wanted: (usize, usize, usize)) -> bool {
    matches!(error, Error::OutOfRange { offset, length, size, .. } if (offset, length, size) == wanted)
}
