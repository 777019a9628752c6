//! Words and rings through which CPU and GPU tell each other something.

mod frames;
mod signals;
