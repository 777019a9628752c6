//! The soak: threads do random work over all that cuda-mem has, for as long as is asked. All memory holds bytes that are
//! compared; on the software GPU work is delayed, and in every second round calls fail.
//!
//! A round is a time in which threads work; they end with it. What they share, a world, lives for some rounds: at the end
//! of each round its accounts have to agree with what is held, which is nothing, and at the world's end nothing of it may
//! be left: no entry of the ledger, no file, no thread.

mod account;
pub mod child;
mod faults;
mod figures;
mod hands;
mod held;
pub mod options;
mod panics;
mod progress;
mod report;
mod run;
mod work;
mod world;

pub use account::{Account, End};
pub use figures::Sample;
pub use hands::Hands;
pub use held::Held;
pub use options::Options;
pub use run::run;
pub use work::{WORK, names};
pub use world::World;

use cuda_mem::view::LayoutError;
use cuda_mem::{Error, Refused};
use std::io;

/// Why a step did not end well.
#[derive(Debug)]
pub enum Trouble {
    /// The library refused: where calls fail, it may.
    Refused(Error),
    /// Something is not as it should be, whatever failed.
    Wrong(String),
}

/// What a step gives.
pub type Done<T = ()> = Result<T, Trouble>;

/// A kind of work.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Its name.
    pub name: &'static str,
    /// How often it is done, beside the others.
    pub weight: usize,
    /// One step of it.
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

/// Layouts are computed without the driver.
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

/// Readers and writers put the library's errors into those of std.
impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(inner) => Self::Refused(inner.clone()),
            None => Self::Wrong(format!("an error of the system: {error}")),
        }
    }
}
