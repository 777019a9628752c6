//! One suite of calls for every driver: each case makes calls through the raw table and writes down what came back.
//!
//! A case records answers, each a label and a short text: the name of a code, a number, a relation. The answers of a
//! real driver are checked in (`ffi-tests/answers/`); a run over the software GPU is compared with them, and what
//! differs stands in a list with its reason. Where a case knows the answer beforehand it states it, so that a
//! recording that contradicts what is known is noticed.
//!
//! Cases run in child processes ([`runner`]): a crash or a hang of the driver is an answer like another.
//!
//! | here | |
//! |---|---|
//! | [`lab`] | what a case works with: the driver, a current context, helpers whose objects end with the case |
//! | [`child`] | the process that runs cases |
//! | [`runner`] | the process that starts them, with a time limit |
//! | [`recording`] | the answers as a file |
//! | [`compare`] | a run against the recordings and the list of known differences |
//!
//! To add a case: a function in the file of its topic, and its name in that file's `CASES`.
#![allow(clippy::useless_vec, reason = "cases need memory of the heap, not of the stack")]
#![allow(
    clippy::macro_metavars_in_unsafe,
    reason = "the arguments of a driver call are evaluated where the call is made: `ask!` states the contract once"
)]

use lab::{Lab, Run};

/// Makes a driver call and records its code: `ask!(lab, "label", cuName(arguments))`, or, where the answer is known,
/// `ask!(lab, "label" => CODE, cuName(arguments))`. Gives whether it succeeded.
macro_rules! ask {
    ($lab:ident, $label:expr => $expected:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let answer = $crate::cases::call!($lab, $name($($argument),*));
        $lab.code($label, answer, Some($expected))
    }};
    ($lab:ident, $label:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let answer = $crate::cases::call!($lab, $name($($argument),*));
        $lab.code($label, answer, None)
    }};
}

/// Makes a driver call that the case cannot go on without: `need!(lab, cuName(arguments))?`. Only a failure is recorded.
macro_rules! need {
    ($lab:ident, $name:ident($($argument:expr),* $(,)?)) => {{
        let answer = $crate::cases::call!($lab, $name($($argument),*));
        $crate::cases::lab::need(stringify!($name), answer)
    }};
}

/// Makes a driver call of which nothing is recorded.
macro_rules! call {
    ($lab:ident, $name:ident($($argument:expr),* $(,)?)) => {{
        $lab.called(stringify!($name));
        let driver = $lab.driver;
        // SAFETY: the arguments are valid for the call, or wrong in a way that the case asks about: then the process
        // is a child that may crash.
        #[allow(unused_unsafe, clippy::allow_attributes)]
        let answer = unsafe { driver.$name($($argument),*) };
        answer
    }};
}

/// The list of a topic's cases: a word for how each runs, then its function.
macro_rules! cases {
    ($($how:ident $name:ident),* $(,)?) => {
        /// The topic's cases.
        pub const CASES: &[$crate::cases::Case] =
            &[$($crate::cases::Case { name: stringify!($name), run: $name, how: $crate::cases::How::$how }),*];
    };
}

pub(crate) use call;

/// How a case runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// With device 0's primary context current, in a process that other cases of the topic share.
    Shared,
    /// The same, in a process of its own: it may crash, or leave the process unfit.
    Alone,
    /// In a process of its own in which nothing was called yet.
    Bare,
    /// As `Shared`, on a machine with two devices.
    Two,
}

/// One case.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Its function's name.
    pub name: &'static str,
    /// The calls.
    pub run: fn(&mut Lab) -> Run,
    /// Where they are made.
    pub how: How,
}

/// Something that another process does for a case, with bytes from the case.
#[derive(Debug, Clone, Copy)]
pub struct Role {
    /// What the case asks for.
    pub name: &'static str,
    /// The calls.
    pub run: fn(&mut Lab, &[u8]) -> Run,
}

macro_rules! topics {
    ($($topic:ident),* $(,)?) => {
        $(mod $topic;)*
        /// Every topic with its cases.
        pub const TOPICS: &[(&str, &[Case])] = &[$((stringify!($topic), $topic::CASES)),*];
    };
}

pub mod child;
pub mod compare;
pub mod lab;
pub mod recording;
pub mod runner;

topics! {
    start,
    procs,
    devices,
    contexts,
    memory,
    host,
    pools,
    default_pools,
    pool_access,
    vmm,
    vmm_handles,
    streams,
    events,
    captures,
    graphs,
    copies,
    batch,
    fills,
    managed,
    ipc,
    pointers,
    external,
    kernels,
}

/// What other processes do for cases.
pub const ROLES: &[Role] = ipc::ROLES;

/// Finds a case by `topic::name`.
pub fn find(name: &str) -> Option<Case> {
    let (topic, case) = name.split_once("::")?;
    let (_, cases) = TOPICS.iter().find(|(name, _)| *name == topic)?;
    cases.iter().find(|candidate| candidate.name == case).copied()
}
