//! The soak: threads do random work with every part of cuda-mem for a given time. All memory holds bytes that are
//! compared. On the software GPU work is delayed, and in every second round calls fail.
//!
//! A round is a time span in which threads work; the threads end with it. The objects that they share, a world, live
//! for several rounds. At the end of each round, nothing is held, so the world's accounts must all be 0. At the world's
//! end nothing of it may be left: no entry of the ledger, no file, no thread.

mod account;
mod checked_buffer;
pub mod child;
mod faults;
mod figures;
mod hands;
pub mod options;
mod panics;
mod progress;
mod report;
mod run;
pub mod threads;
mod work;
mod world;

pub use account::{Account, End};
pub use checked_buffer::CheckedBuffer;
pub use figures::Sample;
pub use hands::Hands;
pub use options::Options;
pub use run::run;
pub use work::{WORK, names};
pub use world::World;

use cuda_mem::view::LayoutError;
use cuda_mem::{Error, Refused};
use std::io;

/// Why a step failed.
#[derive(Debug)]
pub enum Trouble {
    /// The library refused a call, which is allowed while calls may fail.
    Refused(Error),
    /// Something is wrong, and no planned fault excuses it.
    Wrong(String),
}

/// The result of a step.
pub type Done<T = ()> = Result<T, Trouble>;

/// A kind of work.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Its name.
    pub name: &'static str,
    /// How often it is done, relative to the other kinds.
    pub weight: usize,
    /// Does one step.
    pub step: fn(&mut Hands<'_>) -> Done,
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl<V> From<Box<Refused<V>>> for Trouble {
    fn from(refused: Box<Refused<V>>) -> Self {
        Self::Refused(Error::from(refused))
    }
}

/// Layouts are computed without the driver, so no fault can make them fail.
impl From<LayoutError> for Trouble {
    fn from(error: LayoutError) -> Self {
        Self::Wrong(format!("a layout: {error}"))
    }
}

impl From<String> for Trouble {
    fn from(what: String) -> Self {
        Self::Wrong(what)
    }
}

impl From<&str> for Trouble {
    fn from(what: &str) -> Self {
        Self::Wrong(what.to_owned())
    }
}

/// Readers and writers wrap the library's errors in those of std.
impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(inner) => Self::Refused(inner.clone()),
            None => Self::Wrong(format!("an error of the system: {error}")),
        }
    }
}
