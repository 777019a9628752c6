//! Detects `fork`: the parent's Vulkan and CUDA objects are useless in the child, and dangerous to touch.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);
static WATCHING: AtomicBool = AtomicBool::new(false);

extern "C" fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// A number that differs between a process and its forked children. Each object stores it when it is made.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Starts to watch for `fork`. Call it before the first object is made.
pub(crate) fn watch() {
    if !WATCHING.swap(true, Ordering::Relaxed) {
        // SAFETY: `forked` is async-signal-safe (one atomic addition). It lives as long as this library: the linker
        // flag `nodelete` keeps the library mapped, and without that flag glibc deregisters the handler together with
        // the library. A failure (ENOMEM) only means that a child is not detected.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    }
}
