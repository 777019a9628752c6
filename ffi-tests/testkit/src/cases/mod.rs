//! One suite of calls for every driver. Each case makes calls through the raw table and records the answers.
//!
//! An answer is a label and a short text: the name of a code, a number, a relation. The answers of a real driver are
//! checked in (`ffi-tests/answers/`). A run over the software GPU is compared with them, and each difference must be in
//! a list with its reason. If a case knows an answer beforehand, it states that answer, so that a contradicting
//! recording is noticed.
//!
//! Cases run in child processes ([`runner`]): a crash or a hang of the driver is an answer too.
//!
//! | module | contents |
//! |---|---|
//! | [`lab`] | the environment of a case: the driver, a current context, helpers whose objects end with the case |
//! | [`child`] | the process that runs cases |
//! | [`runner`] | the process that starts the child processes, with a time limit |
//! | [`recording`] | the answers as a file |
//! | [`compare`] | the comparison of a run with the recordings and the list of known differences |
//!
//! To add a case, write a function in the file of its topic, and add its name to that file's `CASES`.
#![allow(clippy::useless_vec, reason = "cases need memory of the heap, not of the stack")]
#![allow(
    clippy::macro_metavars_in_unsafe,
    reason = "the arguments of a driver call are evaluated where the call is made: `ask!` states the contract once"
)]

use lab::{Lab, Run};

/// Makes a driver call and records its code: `ask!(lab, "label", cuName(arguments))`, or, if the answer is known,
/// `ask!(lab, "label" => CODE, cuName(arguments))`. Returns whether the call succeeded.
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

/// Makes a driver call without which the case cannot continue: `need!(lab, cuName(arguments))?`. Only a failure is
/// recorded.
macro_rules! need {
    ($lab:ident, $name:ident($($argument:expr),* $(,)?)) => {{
        let answer = $crate::cases::call!($lab, $name($($argument),*));
        $crate::cases::lab::need(stringify!($name), answer)
    }};
}

/// Makes a driver call and records nothing.
macro_rules! call {
    ($lab:ident, $name:ident($($argument:expr),* $(,)?)) => {{
        $lab.called(stringify!($name));
        let driver = $lab.driver;
        // SAFETY: the arguments are valid for the call, or wrong in a way that the case tests. In that case the process
        // is a child that may crash.
        #[allow(unused_unsafe, clippy::allow_attributes)]
        let answer = unsafe { driver.$name($($argument),*) };
        answer
    }};
}

/// The list of a topic's cases: for each case how it runs, then its function.
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
    /// With device 0's primary context current, in a process shared with other cases of the topic.
    Shared,
    /// As `Shared`, but in its own process: the case may crash, or leave the process unusable.
    Alone,
    /// In its own process, in which nothing was called yet.
    Bare,
    /// As `Shared`, on a machine with two devices.
    Two,
}

/// One case.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Its function's name.
    pub name: &'static str,
    /// The function that makes the calls.
    pub run: fn(&mut Lab) -> Run,
    /// How it runs.
    pub how: How,
}

/// A task that another process does for a case, with bytes from the case.
#[derive(Debug, Clone, Copy)]
pub struct Role {
    /// The name by which the case requests it.
    pub name: &'static str,
    /// The function that makes the calls.
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
    newer_forms,
    streams,
    events,
    captures,
    graphs,
    user_objects,
    graph_nodes,
    graph_kernels,
    copies,
    batch,
    fills,
    managed,
    ipc,
    pointers,
    external,
    kernels,
    modules,
}

/// The roles of other processes in cases.
pub const ROLES: &[Role] = ipc::ROLES;

/// Finds a case by `topic::name`.
pub fn find(name: &str) -> Option<Case> {
    let (topic, case) = name.split_once("::")?;
    let (_, cases) = TOPICS.iter().find(|(name, _)| *name == topic)?;
    cases.iter().find(|candidate| candidate.name == case).copied()
}
