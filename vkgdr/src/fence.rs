//! The CPU fences that order accesses to mapped device memory, which is write-combining on most machines.

/// Makes every earlier store of this thread visible to the device before any later one.
///
/// Write-combined stores wait in CPU buffers and leave in any order; this empties the buffers.
pub(crate) fn stores() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of the x86-64 baseline; the instruction has no operands.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier over the outer-shareable domain, which holds PCIe devices; it touches no register. Memory is
    // not declared untouched, so the compiler orders its own accesses too.
    unsafe {
        core::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// Keeps later loads of this thread from being served by anything fetched before now.
pub(crate) fn loads() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of the x86-64 baseline; the instruction has no operands. Streaming loads of
    // write-combining memory are ordered by this fence alone.
    unsafe {
        core::arch::x86_64::_mm_mfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as in `stores`.
    unsafe {
        core::arch::asm!("dmb osh", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}
