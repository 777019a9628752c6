//! A fence on behalf of other threads, for stores that nobody has fenced.

#[cfg(test)]
thread_local! {
    /// How many fences this thread has made.
    pub(crate) static MADE: core::cell::Cell<usize> = const { core::cell::Cell::new(0) };
}

/// Orders all earlier stores of all threads of the process, including those to write-combining memory, before what
/// follows. Takes microseconds. [`store_fence`](super::store_fence) does it for one thread.
///
/// On x86-64 an interrupt drains the write-combining buffers of its processor. The system interrupts every processor that
/// runs a thread of this process; a thread that does not run was interrupted when it stopped. On other processors, what
/// orders the threads also orders their stores.
#[cold]
pub(crate) fn store_fence_on_all_threads() {
    #[cfg(test)]
    MADE.with(|made| made.set(made.get() + 1));
    super::store_fence();
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    interrupt();
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
fn interrupt() {
    use crate::cpu::asymmetric_fence::{interrupt_all_threads, register};
    // The process registers once.
    if interrupt_all_threads() || register() {
        return;
    }
    // The system lacks the call. It also interrupts them to remove a page that was in use.
    let (size, access, kind) = (4096, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the page is new, and nobody else uses it.
    unsafe {
        let page = libc::mmap(core::ptr::null_mut(), size, access, kind, -1, 0);
        if page != libc::MAP_FAILED {
            page.cast::<u8>().write_volatile(1);
            libc::munmap(page, size);
        }
    }
}
