//! Notices `fork`: Vulkan and CUDA objects of the parent are useless, and dangerous to touch, in the child.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);
static WATCHING: AtomicBool = AtomicBool::new(false);

extern "C" fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// A number that differs between a process and its forked children. Objects remember it when they are made.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Starts to watch for `fork`. Called before the first object is made.
pub(crate) fn watch() {
    if !WATCHING.swap(true, Ordering::Relaxed) {
        // SAFETY: `forked` is async-signal-safe (one atomic addition) and lives as long as this library, which the
        // linker flag `nodelete` keeps mapped and which glibc deregisters with its object otherwise. A failure
        // (ENOMEM) only means that a child is not warned.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    }
}
