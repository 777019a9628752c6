//! The kinds of misuse, and reports of it.

use crate::ledger::c_text;
use crate::sync::lock;
use std::collections::VecDeque;
use std::ffi::c_char;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;

/// A kind of misuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Misuse {
    /// Memory was freed a second time.
    DoubleFree,
    /// An address was freed that does not begin an allocation, or that begins one of another kind of memory.
    WrongFree,
    /// A call used freed memory.
    UseAfterFree,
    /// Memory was freed while work that uses it was queued or running: on another stream, if it was freed in stream
    /// order. Some of the driver's calls wait for such work. softgpu keeps the memory until the work is done.
    FreeWhileInUse,
    /// A call that does not wait for another stream touched memory that queued work on that stream was still to write.
    MissingWait,
    /// Work on two streams touched the same bytes, at least one of the two wrote, and no event or wait orders them.
    /// softgpu checks this if [`Settings::races`](crate::Settings::races) is set.
    NoOrder,
    /// Queued work wrote memory that the CPU has [borrowed](crate::CpuBorrow), or read memory that the CPU was writing,
    /// or a copy continued after its borrow of the CPU's memory had ended. softgpu checks this if
    /// [`Settings::races`](crate::Settings::races) is set.
    Borrowed,
    /// The CPU used memory while work that a [former owner](crate::CpuBorrow::new_owner) queued may still use it: nobody
    /// has waited for the end of that work. softgpu checks this if [`Settings::races`](crate::Settings::races) is set.
    FormerOwner,
    /// The CPU or executed work read memory whose bytes only recorded work would have written: a capture recorded it,
    /// and no launch did it. Memory that was written before may be read. softgpu checks this if
    /// [`Settings::races`](crate::Settings::races) is set.
    NeverRan,
    /// A call used a stream that was destroyed. The driver (580.159) crashes in some of these calls, and takes a new stream
    /// for the destroyed one if it has the same handle.
    EndedStream,
    /// A kernel touched an address at which it has no memory.
    WrongAddress,
    /// A device read non-coherent memory that the CPU had written and not flushed.
    MissingFlush,
    /// One thread ended a capture while another thread made a call with a stream of that capture, or waited for all work of
    /// its context. The driver (580.159) crashes then. softgpu checks this if [`Settings::races`](crate::Settings::races) is set.
    EndOfCapture,
    /// A thread destroyed an event that another thread's capture had recorded, before that capture ended. The driver
    /// (580.159) crashes then. softgpu checks this if [`Settings::races`](crate::Settings::races) is set.
    EndOfEvent,
    /// A thread recorded, queried or waited for an event that another thread's capture had recorded, or made a stream
    /// wait for it, before that capture ended. The stream joins the other thread's capture then. The driver (580.159)
    /// crashes if such a call meets the end of the capture. softgpu checks this if
    /// [`Settings::races`](crate::Settings::races) is set.
    ForeignCapture,
    /// A thread changed access between devices while another thread was queuing a copy between devices that uses that
    /// memory, or took access back while such a copy from or to the device that loses it could still run. The driver
    /// (580.159) breaks the context of such a copy. softgpu checks this if
    /// [`Settings::races`](crate::Settings::races) is set.
    AccessChange,
    /// A pool that several streams use was destroyed while it had live blocks, or frees under way. Later calls of other
    /// threads crash in the driver (580.159), although it allows this. softgpu checks this if
    /// [`Settings::races`](crate::Settings::races) is set.
    EndOfPool,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Misuse::DoubleFree => "double free",
            Misuse::WrongFree => "free of an invalid pointer",
            Misuse::UseAfterFree => "use after free",
            Misuse::FreeWhileInUse => "memory freed while queued work uses it",
            Misuse::MissingWait => "memory used without waiting for the work that writes it",
            Misuse::NoOrder => "memory used by unordered work on two streams",
            Misuse::Borrowed => "memory used by queued work while the CPU has borrowed it",
            Misuse::FormerOwner => "memory used by the CPU beside the work of a former owner",
            Misuse::NeverRan => "memory read that only recorded work would have written",
            Misuse::EndedStream => "call with a destroyed stream",
            Misuse::WrongAddress => "kernel access to an invalid address",
            Misuse::MissingFlush => "missing flush",
            Misuse::EndOfCapture => "stream used while another thread ends its capture",
            Misuse::EndOfEvent => "event destroyed while another thread captures it",
            Misuse::ForeignCapture => "event used while another thread captures it",
            Misuse::AccessChange => "access between devices changed beside a copy",
            Misuse::EndOfPool => "pool destroyed before its memory was freed",
        })
    }
}

/// One misuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MisuseReport {
    /// The kind.
    pub misuse: Misuse,
    /// The call that showed it.
    pub call: &'static str,
    /// The earlier use, for a misuse of two uses.
    pub other: Option<&'static str>,
    /// The address.
    pub address: u64,
    /// The number of the allocation, as in the [ledger](crate::Entry::sequence), if it is known.
    pub block: Option<u64>,
}

impl fmt::Display for MisuseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:#x} in {}", self.misuse, self.address, self.call)?;
        if let Some(other) = self.other {
            write!(f, ", after {other}")?;
        }
        self.block.map_or(Ok(()), |block| write!(f, ", block #{block}"))
    }
}

/// How many reports are kept; the oldest one goes first.
const MOST: usize = 1024;

static REPORTS: Mutex<VecDeque<MisuseReport>> = Mutex::new(VecDeque::new());

/// Where each report is also written when the misuse happens.
enum Written {
    Nowhere,
    ToStandardError,
    ToFile(File),
}

static WRITTEN: Mutex<Written> = Mutex::new(Written::Nowhere);

/// The misuse since the last [`reset`](crate::reset), oldest first; at most the last 1024 reports.
///
/// With `SOFTGPU_REPORT=1` softgpu also prints each report to standard error when the misuse happens, and with the path of a
/// file, such as `SOFTGPU_REPORT=/tmp/misuse`, it appends each to that file, as one line.
pub fn misuse() -> Vec<MisuseReport> {
    lock(&REPORTS).iter().cloned().collect()
}

/// The misuse as text, one line for each report, for C programs. The caller frees the text with `free()`. Null when
/// memory is short.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub extern "C" fn softgpu_misuse_report() -> *mut c_char {
    let text = || misuse().iter().map(|report| format!("{report}\n")).collect::<String>();
    std::panic::catch_unwind(|| c_text(&text())).unwrap_or(std::ptr::null_mut())
}

/// Prints reports from now on.
pub(crate) fn print() {
    *lock(&WRITTEN) = Written::ToStandardError;
}

/// Appends reports to a file from now on. Several processes may have the same file.
pub(crate) fn to_file(path: &Path) -> io::Result<()> {
    *lock(&WRITTEN) = Written::ToFile(OpenOptions::new().create(true).append(true).open(path)?);
    Ok(())
}

/// Deletes all reports.
pub(crate) fn forget() {
    lock(&REPORTS).clear();
}

/// Reports a misuse.
#[cold]
pub(crate) fn report(misuse: Misuse, call: &'static str, address: u64, block: Option<u64>) {
    report_after(misuse, call, address, block, None);
}

/// Reports a misuse of two uses; `other` is the earlier one.
#[cold]
pub(crate) fn report_after(
    misuse: Misuse,
    call: &'static str,
    address: u64,
    block: Option<u64>,
    other: Option<&'static str>,
) {
    let report = MisuseReport { misuse, call, other, address, block };
    match &mut *lock(&WRITTEN) {
        Written::Nowhere => {}
        Written::ToStandardError => eprintln!("softgpu: {report}"),
        // One write, so that lines of several processes stay whole. A failed write must not disturb the program.
        Written::ToFile(file) => drop(file.write_all(format!("{report}\n").as_bytes())),
    }
    let mut reports = lock(&REPORTS);
    if reports.len() == MOST {
        reports.pop_front();
    }
    reports.push_back(report);
}
