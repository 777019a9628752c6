//! What a program does wrong, by name.

use crate::ledger::c_text;
use crate::state::sync::lock;
use std::collections::VecDeque;
use std::ffi::c_char;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

/// What can be done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Misuse {
    /// Memory was freed that had been freed before.
    DoubleFree,
    /// A free was given an address that is no start of a block, or one of another kind of memory.
    WrongFree,
    /// A call was given memory that had been freed.
    UseAfterFree,
    /// Memory was freed while work that uses it was queued or running: in another stream, if it was freed in stream
    /// order. Some of the driver's calls wait for such work; softgpu's all do.
    FreeWhileInUse,
    /// A call that does not wait for it touched memory that queued work of another stream was still to write.
    MissingWait,
    /// Work of two streams touched the same bytes, one of them writing, and no event or wait puts the one before the other;
    /// looked for where [`Settings::races`](crate::Settings::races) is set.
    NoOrder,
    /// Queued work wrote memory that the CPU has [borrowed](crate::CpuBorrow), or read memory that the CPU was writing, or
    /// a copy went on after its borrow of the CPU's memory had ended; looked for where
    /// [`Settings::races`](crate::Settings::races) is set.
    Borrowed,
    /// A kernel touched an address where it has no memory.
    WrongAddress,
    /// A device read non-coherent memory that the CPU had written and not flushed.
    MissingFlush,
    /// One thread ended a capture while another made a call with a stream of it, in which the driver (580.159) crashes;
    /// looked for where [`Settings::races`](crate::Settings::races) is set.
    EndOfCapture,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Misuse::DoubleFree => "double free",
            Misuse::WrongFree => "free of a wrong pointer",
            Misuse::UseAfterFree => "use after free",
            Misuse::FreeWhileInUse => "memory freed while queued work uses it",
            Misuse::MissingWait => "memory used before the work that writes it was waited for",
            Misuse::NoOrder => "memory used by work of two streams that has no order",
            Misuse::Borrowed => "memory used by queued work while the CPU has it",
            Misuse::WrongAddress => "a kernel's access to a wrong address",
            Misuse::MissingFlush => "missing flush",
            Misuse::EndOfCapture => "stream used while another thread ends its capture",
        })
    }
}

/// One thing that was done wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MisuseReport {
    /// What.
    pub misuse: Misuse,
    /// The call in which it showed.
    pub call: &'static str,
    /// The other piece of work, where it takes two.
    pub other: Option<&'static str>,
    /// The address.
    pub address: u64,
    /// The number of the block, as in the [ledger](crate::Entry::sequence), where it is known.
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

/// How many reports are kept; later ones push out the first.
const MOST: usize = 1024;

static REPORTS: Mutex<VecDeque<MisuseReport>> = Mutex::new(VecDeque::new());
/// Whether reports are printed: 0 no, 1 yes, 2 not asked yet.
static PRINT: AtomicU8 = AtomicU8::new(2);

/// What was done wrong since the last [`reset`](crate::reset), the first first; at most the last 1024 things.
///
/// With `SOFTGPU_REPORT=1` each is also printed to standard error when it happens.
pub fn misuse() -> Vec<MisuseReport> {
    lock(&REPORTS).iter().cloned().collect()
}

/// What was done wrong, a line each, as text that the caller frees with `free()`; null when memory is short: for C.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub extern "C" fn softgpu_misuse_report() -> *mut c_char {
    let text = || misuse().iter().map(|report| format!("{report}\n")).collect::<String>();
    std::panic::catch_unwind(|| c_text(&text())).unwrap_or(std::ptr::null_mut())
}

/// Forgets what was done wrong.
pub(crate) fn forget() {
    lock(&REPORTS).clear();
}

/// Notes what was done wrong.
#[cold]
pub(crate) fn report(misuse: Misuse, call: &'static str, address: u64, block: Option<u64>) {
    report_after(misuse, call, address, block, None);
}

/// Notes what was done wrong by two pieces of work.
#[cold]
pub(crate) fn report_after(
    misuse: Misuse,
    call: &'static str,
    address: u64,
    block: Option<u64>,
    other: Option<&'static str>,
) {
    let report = MisuseReport { misuse, call, other, address, block };
    if PRINT.load(Ordering::Relaxed) == 2 {
        let wanted = cuda_sys::load::environment("SOFTGPU_REPORT").is_some_and(|value| value == "1");
        PRINT.store(u8::from(wanted), Ordering::Relaxed);
    }
    if PRINT.load(Ordering::Relaxed) == 1 {
        eprintln!("softgpu: {report}");
    }
    let mut reports = lock(&REPORTS);
    if reports.len() == MOST {
        reports.pop_front();
    }
    reports.push_back(report);
}
