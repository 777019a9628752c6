//! What every thread of the process does, for the report on a hang or a crash: its calls down to the driver's and the
//! system's, also while it waits for a plain lock.
//!
//! A thread tells its own stack, in a handler of a signal. So this needs no debugger, which GPU machines often lack.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_void};
use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const DEPTH: usize = 48;
/// Asks a thread for its stack.
const ASK: c_int = libc::SIGUSR2;
/// The signals of a crash.
const CRASHES: [(c_int, &str); 5] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGABRT, "SIGABRT"),
];
/// How long a thread may take to tell its stack. Threads of the driver that block the signal never do.
const ANSWER: Duration = Duration::from_millis(500);
/// How long a crash waits for its report.
const REPORT: Duration = Duration::from_secs(40);

/// The stack of one thread, which its handler writes.
struct Stack {
    /// The thread that may write, 0 after it has.
    thread: AtomicI32,
    count: AtomicUsize,
    frames: [AtomicUsize; DEPTH],
}

impl Stack {
    const fn new() -> Self {
        let thread = AtomicI32::new(0);
        Self { thread, count: AtomicUsize::new(0), frames: [const { AtomicUsize::new(0) }; DEPTH] }
    }

    /// Called in a handler: no allocations, no locks.
    fn fill(&self) {
        let mut frames = [ptr::null_mut::<c_void>(); DEPTH];
        // SAFETY: the array has that many places. `install` has made the first call, which loads the unwinder.
        let count = unsafe { libc::backtrace(frames.as_mut_ptr(), DEPTH as c_int) };
        let count = usize::try_from(count).unwrap_or(0).min(DEPTH);
        for (place, frame) in self.frames.iter().zip(&frames[..count]) {
            place.store(frame.addr(), Ordering::Relaxed);
        }
        self.count.store(count, Ordering::Release);
    }

    fn read(&self) -> Vec<usize> {
        let count = self.count.load(Ordering::Acquire);
        self.frames[..count].iter().map(|frame| frame.load(Ordering::Relaxed)).collect()
    }
}

static ASKED: Stack = Stack::new();
static CRASHED: Stack = Stack::new();
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// The address that the crash names, and the processor's registers.
static ADDRESS: AtomicUsize = AtomicUsize::new(0);
static REGISTERS: [AtomicUsize; 32] = [const { AtomicUsize::new(0) }; 32];
static REPORTED: AtomicBool = AtomicBool::new(false);

/// The system's number of this thread.
pub fn number() -> i32 {
    // SAFETY: the call takes nothing.
    unsafe { libc::gettid() }
}

extern "C" fn answer(_signal: c_int) {
    let own = number();
    if ASKED.thread.load(Ordering::Acquire) == own {
        ASKED.fill();
        ASKED.thread.store(0, Ordering::Release);
    }
}

extern "C" fn crash(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // Of several threads that crash, the first is reported.
    if CRASHED.thread.compare_exchange(0, number(), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        // SAFETY: the system passes both, and the address is set for these signals.
        unsafe {
            ADDRESS.store((*info).si_addr().addr(), Ordering::Relaxed);
            keep_registers(context.cast());
        }
        CRASHED.fill();
        SIGNAL.store(signal, Ordering::Release);
    }
    let pause = libc::timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    for _ in 0..REPORT.as_millis() / 50 {
        if REPORTED.load(Ordering::Acquire) {
            break;
        }
        // SAFETY: the argument lives, and nobody wants the rest.
        unsafe { libc::nanosleep(&pause, ptr::null_mut()) };
    }
    // SAFETY: both calls are allowed in a handler. The signal comes again when this has returned.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// # Safety
///
/// The context is that of a signal.
unsafe fn keep_registers(context: *const libc::ucontext_t) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: this function's contract.
    for (place, value) in REGISTERS.iter().zip(unsafe { (*context).uc_mcontext.gregs }) {
        place.store(value as usize, Ordering::Relaxed);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = context;
}

/// Sets the handlers, and starts the thread that prints the report on a crash.
pub fn install() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // The first call loads the unwinder, which no handler may do.
        Stack::new().fill();
        set(ASK, answer as *const () as usize, libc::SA_RESTART);
        CRASHES.iter().for_each(|(signal, _)| set(*signal, crash as *const () as usize, libc::SA_SIGINFO));
        let watch = || {
            loop {
                std::thread::sleep(Duration::from_millis(50));
                if SIGNAL.load(Ordering::Acquire) != 0 {
                    print!("{}", report_crash());
                    let _ = std::io::Write::flush(&mut std::io::stdout());
                    REPORTED.store(true, Ordering::Release);
                    return;
                }
            }
        };
        // Without the thread there are no reports on crashes.
        let _ = std::thread::Builder::new().name("soak crashes".into()).spawn(watch);
    });
}

fn set(signal: c_int, handler: usize, flags: c_int) {
    // SAFETY: the handlers only call what handlers may call, and the structure is complete.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        libc::sigaction(signal, &action, ptr::null_mut());
    }
}

/// Ends the process without a report on the crash: the caller has reported.
pub fn abort() -> ! {
    // SAFETY: the call only forgets the handler.
    unsafe { libc::signal(libc::SIGABRT, libc::SIG_DFL) };
    std::process::abort()
}

fn report_crash() -> String {
    let (signal, thread) = (SIGNAL.load(Ordering::Acquire), CRASHED.thread.load(Ordering::Acquire));
    let name = CRASHES.iter().find(|(known, _)| *known == signal).map_or("a signal", |(_, name)| name);
    let mut told = format!("CRASHED: {name} on thread {thread}, address {:#x}", ADDRESS.load(Ordering::Relaxed));
    // In the order of the system's header.
    const NAMES: [&str; 17] = [
        "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rdi", "rsi", "rbp", "rbx", "rdx", "rax", "rcx", "rsp",
        "rip",
    ];
    for (name, value) in NAMES.iter().zip(&REGISTERS) {
        let _ = write!(told, ", {name} {:#x}", value.load(Ordering::Relaxed));
    }
    told.push('\n');
    told + &report()
}

/// The stack of another thread; `None` if it does not answer.
fn ask(thread: i32) -> Option<Vec<usize>> {
    if CRASHED.thread.load(Ordering::Acquire) == thread {
        return Some(CRASHED.read());
    }
    ASKED.thread.store(thread, Ordering::Release);
    // SAFETY: the handler is set, and the numbers are of this process.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, ASK) };
    let begin = Instant::now();
    while sent == 0 && begin.elapsed() < ANSWER {
        if ASKED.thread.load(Ordering::Acquire) == 0 {
            return Some(ASKED.read());
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    // A late answer finds that it is not wanted.
    let is_late = ASKED.thread.compare_exchange(thread, 0, Ordering::AcqRel, Ordering::Relaxed).is_err();
    is_late.then(|| ASKED.read())
}

/// What all threads do. Threads that do the same are told together.
pub fn report() -> String {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let numbers = fs::read_dir("/proc/self/task").map(|tasks| {
        tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse::<i32>().ok()).collect::<Vec<_>>()
    });
    let (own, mut heads, mut stacks) = (number(), Vec::new(), Vec::new());
    for thread in numbers.unwrap_or_default() {
        let of = |file| fs::read_to_string(format!("/proc/self/task/{thread}/{file}")).unwrap_or_default();
        let (name, waits, call) = (of("comm"), of("wchan"), of("syscall"));
        let call = call.split_whitespace().next().unwrap_or("unknown");
        heads.push(format!("thread {thread}, {}, kernel function {waits}, system call {call}", name.trim()));
        stacks.push(if thread == own { None } else { ask(thread) });
    }
    let names = Names::of(stacks.iter().flatten().flatten().copied());
    let mut told = String::new();
    let mut is_told = vec![false; heads.len()];
    for place in 0..heads.len() {
        if std::mem::replace(&mut is_told[place], true) {
            continue;
        }
        let _ = writeln!(told, "  {}", heads[place]);
        match &stacks[place] {
            None => told.push_str("    it tells no stack\n"),
            Some(stack) => {
                for other in place + 1..heads.len() {
                    if stacks[other].as_ref() == Some(stack) {
                        is_told[other] = true;
                        let _ = writeln!(told, "  {}", heads[other]);
                    }
                }
                // The first frames are the handler's.
                stack.iter().for_each(|frame| names.write(&mut told, *frame));
            }
        }
    }
    told
}

/// Where addresses lie, and the names of the functions.
struct Names {
    places: BTreeMap<usize, (String, usize, Option<String>)>,
    /// The functions of the program by their offsets, from addr2line.
    own: BTreeMap<usize, String>,
}

impl Names {
    fn of(addresses: impl Iterator<Item = usize>) -> Self {
        let places: BTreeMap<_, _> = addresses.filter_map(|address| Some((address, place(address)?))).collect();
        let program = std::env::current_exe().unwrap_or_default();
        let file = program.file_name().unwrap_or_default().to_string_lossy();
        let offsets: Vec<_> =
            places.values().filter(|place| place.0 == file).map(|place| format!("{:#x}", place.1)).collect();
        let mut own = BTreeMap::new();
        // A program that is not there, or that knows no names, adds none.
        let asked = Command::new("timeout").args(["20", "addr2line", "-aCfipe"]).arg(&program).args(&offsets).output();
        let text = asked.map(|asked| String::from_utf8_lossy(&asked.stdout).into_owned()).unwrap_or_default();
        for line in text.lines() {
            let told = line.strip_prefix("0x").and_then(|line| line.split_once(": "));
            let offset = told.and_then(|(offset, _)| usize::from_str_radix(offset, 16).ok());
            match (offset, told) {
                (Some(offset), Some((_, name))) if !name.starts_with("??") => {
                    own.insert(offset, name.to_owned());
                }
                (Some(_), _) => {}
                // A function that was inlined into the one before.
                _ => {
                    if let Some(mut last) = own.last_entry() {
                        let _ = write!(last.get_mut(), "\n      {}", line.trim());
                    }
                }
            }
        }
        Self { places, own }
    }

    fn write(&self, told: &mut String, address: usize) {
        let _ = match self.places.get(&address) {
            None => writeln!(told, "    {address:#x}"),
            Some((file, offset, name)) => {
                let name = self.own.get(offset).or(name.as_ref()).map_or("", String::as_str);
                writeln!(told, "    {file}+{offset:#x} {name}")
            }
        };
    }
}

/// The file in which an address lies, the offset there, and the exported function, if one is near.
fn place(address: usize) -> Option<(String, usize, Option<String>)> {
    // SAFETY: the structure is written by the call, and its texts live as long as the files are loaded.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(ptr::without_provenance(address), &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        let text = |text: *const _| CStr::from_ptr(text).to_string_lossy().into_owned();
        let file = text(info.dli_fname);
        let file = file.rsplit('/').next().unwrap_or_default().to_owned();
        let name = (!info.dli_sname.is_null()).then(|| text(info.dli_sname));
        Some((file, address - info.dli_fbase.addr(), name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// A thread that waits for a lock, by this function.
    #[inline(never)]
    fn wait_for_a_plain_lock(lock: &Mutex<()>, begun: std::sync::mpsc::Sender<i32>) {
        let _ = begun.send(number());
        drop(lock.lock());
    }

    #[test]
    fn a_report_tells_who_waits_for_a_plain_lock() {
        install();
        let (lock, (begun, has_begun)) = (Mutex::new(()), channel());
        std::thread::scope(|threads| {
            let held = lock.lock();
            threads.spawn(|| wait_for_a_plain_lock(&lock, begun));
            let thread = has_begun.recv().expect("it begins");
            // It reaches the lock at some moment.
            let begin = Instant::now();
            let mut told = String::new();
            while begin.elapsed() < crate::LIMIT && !told.contains("lock_contended") {
                let all = report();
                let from = all.find(&format!("thread {thread}, ")).expect("the thread is told");
                let end = all[from..].find("\n  thread ").map_or(all.len(), |end| from + end);
                all[from..end].clone_into(&mut told);
                if Names::of([wait_for_a_plain_lock as *const () as usize].into_iter()).own.is_empty() {
                    // Without addr2line there are only offsets.
                    assert!(told.matches("+0x").count() > 3, "{told}");
                    break;
                }
            }
            drop(held);
            assert!(told.contains("+0x"), "{told}");
        });
    }

    #[test]
    #[ignore = "another test runs it, in a process of its own"]
    fn part_crashes() {
        install();
        let (begun, has_begun) = channel::<()>();
        std::thread::Builder::new()
            .name("the other one".into())
            .spawn(move || {
                drop(begun);
                std::thread::park();
            })
            .expect("a thread");
        let _ = has_begun.recv();
        // SAFETY: none; the program is to crash.
        unsafe { ptr::without_provenance_mut::<u8>(0x10).write_volatile(1) };
    }

    #[test]
    fn a_crash_is_reported_with_all_threads_and_ends_by_its_signal() {
        use std::os::unix::process::ExitStatusExt;
        let part = ["--exact", "soak::threads::tests::part_crashes", "--ignored", "--nocapture"];
        let ran = Command::new(std::env::current_exe().expect("this program")).args(part).output().expect("it runs");
        let told = String::from_utf8_lossy(&ran.stdout);
        assert!(told.contains("CRASHED: SIGSEGV on thread ") && told.contains("address 0x10"), "{told}");
        assert!(told.contains(", the other one, "), "{told}");
        assert_eq!(ran.status.signal(), Some(libc::SIGSEGV), "{told}");
    }
}
