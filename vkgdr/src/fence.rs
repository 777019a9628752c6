//! CPU fences that order accesses to mapped device memory, which is write-combining on most machines.

/// Makes every earlier store of this thread visible to the device before any later store.
///
/// Write-combined stores wait in CPU buffers and leave them in any order. The fence empties the buffers.
pub(crate) fn stores() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of the x86-64 baseline; the instruction has no operands.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction is a barrier over the outer-shareable domain, which includes PCIe devices. It touches no
    // register. The asm block does not claim `nomem`, so the compiler orders its own accesses too.
    unsafe {
        core::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// Prevents later loads of this thread from returning data fetched before the fence.
pub(crate) fn loads() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of the x86-64 baseline; the instruction has no operands. No weaker fence orders streaming
    // loads of write-combining memory.
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
