//! When values end, and when driver calls that wait may run.
//!
//! A value ends when the program drops it, if its end may run then. If not, its contents wait in a queue, by the reason:
//!
//! | reason | waits in | ends |
//! |---|---|---|
//! | the drop is in a host function, which must not call the driver | [`host_function`] | when the function has returned, by the worker |
//! | a capture refuses the calls, or holds the stream or the event | [`captures`] | at the end of the last capture of the process, by its thread |
//! | the free waits for the whole context, and queued work waits for the CPU | [`postponed_frees`] | in the next quiet moment, by the worker, or by a call of the program that needs the memory |
//! | another thread is inside a call that destroys a driver object | [`serial_ends`] | next, by that thread |
//! | a dropped stream has frees of plain memory queued, for which the driver would wait | the state of its context | when the stream is idle, by the worker |
//! | streams wait for a signal that was dropped | the signal's memory | when all have passed, by a worker of its own |
//!
//! A `Drop` does three things in this order: if [`inside_host_function`], [`drop_after_host_function`]; if a capture is in
//! the way, [`drop_after_captures`]; otherwise it ends the value, by [`Context::destroy`](crate::Context) for handles and by
//! [`Context::free_by_waiting`](crate::Context) for memory whose free waits.
//!
//! [`quiet`] decides when a call may run that waits for a whole context; it asks [`queued_waits`] for the words that queued
//! work waits for. [`worker`] has the threads that look for moments which no call of the program sees. [`submission`] and
//! [`capture_numbers`] keep captures apart from other calls. [`waiting`] watches every wait; a program that hangs says there
//! what it waits for.
//!
//! How the memory of a buffer is freed is decided by its source, which `Allocation::end` in `buffer/allocation.rs` calls.

mod capture_count;
pub(crate) mod capture_numbers;
pub(crate) mod captures;
pub(crate) mod end_queue;
pub(crate) mod host_function;
#[cfg(all(test, not(miri)))]
mod loom;
pub(crate) mod postponed_frees;
pub(crate) mod queued_frees;
pub(crate) mod queued_waits;
pub(crate) mod quiet;
pub(crate) mod serial_ends;
#[cfg(test)]
mod serial_ends_tests;
pub(crate) mod submission;
mod sync;
pub mod waiting;
mod wake_later;
pub(crate) mod worker;

pub(crate) use captures::{drop_after_captures, end_beside_captures};
pub(crate) use host_function::{
    Inside, check_outside, drop_after_host_function, drop_on_worker, drop_outside, inside_host_function,
};
pub(crate) use postponed_frees::PostponedFrees;
pub(crate) use queued_frees::QueuedFrees;
pub(crate) use quiet::{CpuWait, Quiet, QuietRegister};
pub(crate) use serial_ends::{EndsAlone, SerialEnds};
pub(crate) use wake_later::wake_later;
