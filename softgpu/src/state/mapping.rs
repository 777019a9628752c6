//! Address ranges of this process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// The size of a page.
pub(crate) const PAGE: usize = 4096;

/// A range of addresses of our own, given back when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Start and length of all that is mapped, the guard pages with it.
    start: usize,
    length: usize,
    /// Where the usable part begins.
    base: usize,
}

fn rounded(size: usize) -> io::Result<usize> {
    size.max(1).checked_next_multiple_of(PAGE).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
}

impl Mapping {
    /// Fresh zeros between two pages that nothing may touch, committed as they are touched.
    pub(crate) fn anonymous(size: usize) -> io::Result<Self> {
        let room = rounded(size)?;
        let mapping = Self::reserve(room)?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range lies inside the reservation just made, which nothing else knows of.
        if unsafe { libc::mprotect(ptr::without_provenance_mut(mapping.base), room, rights) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(mapping)
    }

    /// A part of a file, seen by all who map it, between two pages that nothing may touch.
    pub(crate) fn shared(file: BorrowedFd<'_>, offset: u64, size: usize) -> io::Result<Self> {
        // Pages are what can be mapped: the part begins somewhere in the first one.
        let within = offset as usize % PAGE;
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let page = libc::off_t::try_from(offset - within as u64).map_err(|_| invalid())?;
        let room = rounded(size.checked_add(within).ok_or_else(invalid)?)?;
        let mut mapping = Self::reserve(room)?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range lies inside the reservation just made, which nothing else knows of.
        let at = unsafe {
            let base = ptr::without_provenance_mut(mapping.base);
            libc::mmap(base, room, rights, libc::MAP_SHARED | libc::MAP_FIXED, file.as_raw_fd(), page)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        mapping.base = at.expose_provenance() + within;
        Ok(mapping)
    }

    /// Addresses for `room` bytes and a guard page on either side.
    fn reserve(room: usize) -> io::Result<Self> {
        let length = room.checked_add(2 * PAGE).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the system's choice disturbs nothing.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = start.expose_provenance();
        Ok(Self { start, length, base: start + PAGE })
    }

    /// Where the usable part begins.
    pub(crate) fn base(&self) -> usize {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `reserve` and belongs to this value alone; whoever uses its addresses
        // holds the value (queued work holds the Arc of its allocation).
        unsafe { libc::munmap(ptr::without_provenance_mut(self.start), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_sizes_are_errors() {
        for size in [usize::MAX, usize::MAX - PAGE, 1 << 62] {
            assert!(Mapping::anonymous(size).is_err());
        }
    }

    #[test]
    fn fresh_memory_is_page_aligned_and_holds_zeros() {
        let mapping = Mapping::anonymous(10_000).unwrap();
        assert_eq!(mapping.base() % PAGE, 0);
        // SAFETY: the mapping has that many bytes and lives.
        let bytes = unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance::<u8>(mapping.base()), 10_000) };
        assert!(bytes.iter().all(|byte| *byte == 0));
    }
}
