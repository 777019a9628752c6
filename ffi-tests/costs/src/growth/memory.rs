//! How much host memory cuda-mem and others use.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes that this program has allocated. A driver that is a shared library has an allocator of its own.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static COUNTING: Counting = Counting;

struct Counting;

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATED.fetch_add(size.wrapping_sub(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Host memory in bytes: what this program has allocated, and what is resident of the whole process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostMemory {
    pub allocated: usize,
    pub resident: usize,
}

impl HostMemory {
    pub fn now() -> Self {
        let pages = std::fs::read_to_string("/proc/self/statm").ok();
        let resident = pages.and_then(|text| text.split(' ').nth(1)?.parse::<usize>().ok()).unwrap_or(0) * 4096;
        Self { allocated: ALLOCATED.load(Ordering::Relaxed), resident }
    }
}
