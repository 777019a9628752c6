//! Copies whose host's side ends where nothing may be touched.

use crate::{engine, is_slow};
use cuda_mem::copy::{CopyOptions, HostSide, Way};
use cuda_mem::{MappedResource, Result};
use ffi_tests::suite::Outcome;
use ffi_tests::{alone, pattern};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

const PAGE: usize = 4096;
const INNER: usize = 3 * PAGE;

/// Pages that may be read and written, between two that may not.
struct Fenced {
    start: *mut u8,
}

impl Fenced {
    fn new() -> rustix::io::Result<Self> {
        let (size, access) = (INNER + 2 * PAGE, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: new memory, which only this value reaches.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), size, access, MapFlags::PRIVATE) }?;
        let fenced = Self { start: start.cast() };
        for page in [0, PAGE + INNER] {
            // SAFETY: pages of ours that nothing uses.
            unsafe { mprotect(fenced.start.add(page).cast(), PAGE, MprotectFlags::empty()) }?;
        }
        Ok(fenced)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the pages between the fences, borrowed with this value.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(PAGE), INNER) }
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: ours.
        let _ = unsafe { munmap(self.start.cast(), INNER + 2 * PAGE) };
    }
}

#[test]
fn no_copy_touches_a_byte_beyond_its_range() -> Outcome {
    if is_slow() {
        return Ok(());
    }
    alone(|setup| {
        let engine = engine(&setup.context)?;
        let mut memory = MappedResource::new(&setup.context)?.allocate(INNER)?;
        let mut fenced = Fenced::new()?;
        fenced.bytes().copy_from_slice(&pattern(INNER, 3));
        let mut options = CopyOptions::default();
        options.host = Some(HostSide::Pageable);
        for way in [Way::Cpu { threads: 1 }, Way::Cpu { threads: 2 }, Way::Staged { threads: 2 }] {
            options.way = Some(way);
            // Every size by the CPU alone, some by the others, which take longer.
            let step = if way == (Way::Cpu { threads: 1 }) { 1 } else { 97 };
            for size in (0..=INNER / 2).step_by(step) {
                // The device's side at each alignment, the host's at either fence.
                let offset = size % 64;
                for start in [0, INNER - size] {
                    let range = start..start + size;
                    let mut copy = || -> Result<bool> {
                        let source = fenced.bytes()[range.clone()].to_vec();
                        engine.write_with(&mut memory, offset, &fenced.bytes()[range.clone()], &options)?;
                        fenced.bytes()[range.clone()].fill(0);
                        engine.read_with(&memory, offset, &mut fenced.bytes()[range.clone()], &options)?;
                        Ok(fenced.bytes()[range.clone()] == source)
                    };
                    assert!(copy()?, "{way}: {size} bytes at {start}");
                }
            }
        }
        Ok(())
    })
}
