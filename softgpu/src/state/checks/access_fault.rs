//! A signal handler for forbidden accesses by the CPU. It prints a line that names the memory, and then lets the fault
//! take its usual course.

use crate::state::Global;
use crate::state::backing::freed;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The earlier signal handler.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

pub(crate) fn install() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let mut before = Box::new(MaybeUninit::<libc::sigaction>::zeroed());
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: a zeroed sigaction is valid, and the handler only does what is allowed in one.
        unsafe {
            let action = action.assume_init_mut();
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            if libc::sigaction(libc::SIGSEGV, action, before.as_mut_ptr()) == 0 {
                BEFORE.store(Box::leak(before).as_mut_ptr(), Ordering::Release);
            }
        }
    });
}

extern "C" fn on_fault(_signal: c_int, about: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the system passes a valid structure.
    let address = unsafe { (*about).si_addr() }.addr() as u64;
    let known = Global::get().ok().and_then(|global| global.memory.try_at(address));
    if known.is_some_and(|hidden| hidden) {
        say("device memory", address);
    } else if freed::try_is_dead(address) {
        say("freed memory", address);
    }
    // The fault happens again after the return, and reaches the earlier handler.
    // SAFETY: the pointer is null, or points to what sigaction wrote.
    unsafe { libc::sigaction(libc::SIGSEGV, BEFORE.load(Ordering::Acquire), ptr::null_mut()) };
}

/// Prints a line without allocating.
fn say(what: &str, address: u64) {
    let mut digits = [0_u8; 16];
    for (n, digit) in digits.iter_mut().enumerate() {
        let value = (address >> (60 - 4 * n) & 15) as usize;
        *digit = b"0123456789abcdef"[value];
    }
    let start = digits.iter().position(|digit| *digit != b'0').unwrap_or(15);
    for part in [b"softgpu: the CPU touched ".as_slice(), what.as_bytes(), b" at 0x", &digits[start..], b"\n"] {
        // SAFETY: the bytes are valid, and a signal handler may call write.
        unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
    }
}
