//! Copies whose host memory ends next to inaccessible pages.

use super::{engine, is_slow};
use cuda_mem::copy::{CopyMethod, CopyOptions, HostSide};
use cuda_mem::{MappedMemory, Result};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use testkit::suite::Outcome;
use testkit::{alone, pattern};

const PAGE: usize = 4096;
const INNER: usize = 3 * PAGE;

/// Accessible pages between two inaccessible ones.
struct Fenced {
    start: *mut u8,
}

impl Fenced {
    fn new() -> rustix::io::Result<Self> {
        let (size, access) = (INNER + 2 * PAGE, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: the memory is new, and only this value uses it.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), size, access, MapFlags::PRIVATE) }?;
        let fenced = Self { start: start.cast() };
        for page in [0, PAGE + INNER] {
            // SAFETY: the pages are this value's, and nothing uses them.
            unsafe { mprotect(fenced.start.add(page).cast(), PAGE, MprotectFlags::empty()) }?;
        }
        Ok(fenced)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the slice covers the pages between the inaccessible ones, and borrows this value.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(PAGE), INNER) }
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's.
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
        let mut memory = testkit::mapped(&MappedMemory::new(&setup.context)?, INNER)?;
        let mut fenced = Fenced::new()?;
        fenced.bytes().copy_from_slice(&pattern(INNER, 3));
        let mut options = CopyOptions::default();
        options.host = Some(HostSide::Pageable);
        for method in
            [CopyMethod::Cpu { threads: 1 }, CopyMethod::Cpu { threads: 2 }, CopyMethod::Staged { threads: 2 }]
        {
            options.method = Some(method);
            // The CPU copies every size. The other methods take longer and copy only some sizes.
            let step = if method == (CopyMethod::Cpu { threads: 1 }) { 1 } else { 97 };
            for size in (0..=INNER / 2).step_by(step) {
                // The device's side at each alignment, the host's side next to either inaccessible page.
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
                    assert!(copy()?, "{method}: {size} bytes at {start}");
                }
            }
        }
        Ok(())
    })
}
