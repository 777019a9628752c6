//! Mapped address ranges of this process.

use super::freed;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const PAGE: usize = 4096;

/// A mapped address range of our own. Dropping the value gives it back.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Start and length of the whole mapping, with its guard pages.
    start: usize,
    length: usize,
    /// The start of the usable part.
    base: usize,
    /// Whether a later allocation may have the pages, with their contents.
    reusable: AtomicBool,
}

/// A size rounded up to whole pages.
pub(crate) fn rounded(size: usize) -> io::Result<usize> {
    size.max(1).checked_next_multiple_of(PAGE).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
}

impl Mapping {
    /// Pages between two guard pages. They may contain old data of an earlier allocation, as device memory may.
    pub(crate) fn recycled(size: usize) -> io::Result<Self> {
        let room = rounded(size)?;
        if let Some(start) = freed::take(room + 2 * PAGE) {
            let reusable = AtomicBool::new(true);
            return Ok(Self { start, length: room + 2 * PAGE, base: start + PAGE, reusable });
        }
        let mapping = Self::anonymous(size)?;
        mapping.reusable.store(true, Ordering::Relaxed);
        Ok(mapping)
    }

    /// Addresses that nothing may touch.
    pub(crate) fn untouchable(size: usize) -> io::Result<Self> {
        Self::reserve(rounded(size)?)
    }

    /// Addresses that nothing may touch, at a multiple of `alignment` (a power of two), and at `wish` if that is free.
    pub(crate) fn aligned(size: usize, alignment: usize, wish: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        if wish != 0 && wish.is_multiple_of(alignment) {
            let flags = flags | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: MAP_FIXED_NOREPLACE changes no existing mapping.
            let at = unsafe { libc::mmap(ptr::without_provenance_mut(wish), size, libc::PROT_NONE, flags, -1, 0) };
            if at != libc::MAP_FAILED {
                let start = at.expose_provenance();
                let mapping = Self { start, length: size, base: start, reusable: AtomicBool::new(false) };
                if start == wish {
                    return Ok(mapping);
                }
            }
        }
        let room = size.checked_add(alignment).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        // SAFETY: a new anonymous mapping at an address of the system's choice changes no existing mapping.
        let at = unsafe { libc::mmap(ptr::null_mut(), room, libc::PROT_NONE, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = at.expose_provenance();
        let base = start.next_multiple_of(alignment);
        Ok(Self { start, length: room, base, reusable: AtomicBool::new(false) })
    }

    /// Maps a file over the pages of a range inside this mapping, with the given rights.
    ///
    /// Nobody may use the range meanwhile.
    pub(crate) fn place(&self, at: usize, size: usize, file: BorrowedFd<'_>, rights: i32) -> io::Result<()> {
        self.reusable.store(false, Ordering::Relaxed);
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: the range lies inside this mapping, which this value alone owns.
        let placed = unsafe { libc::mmap(self.inside(at, size), size, rights, flags, file.as_raw_fd(), 0) };
        if placed == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Makes a range inside this mapping inaccessible again, and discards its contents.
    pub(crate) fn clear(&self, at: usize, size: usize) -> io::Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the range lies inside this mapping, which this value alone owns.
        let cleared = unsafe { libc::mmap(self.inside(at, size), size, libc::PROT_NONE, flags, -1, 0) };
        if cleared == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    pub(crate) fn protect(&self, at: usize, size: usize, rights: i32) -> io::Result<()> {
        // SAFETY: the range lies inside this mapping, which this value alone owns.
        let answer = unsafe { libc::mprotect(self.inside(at, size), size, rights) };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn inside(&self, at: usize, size: usize) -> *mut libc::c_void {
        assert!(at >= self.start && at + size <= self.start + self.length, "the range lies outside its mapping");
        ptr::with_exposed_provenance_mut(at)
    }

    /// Zeroed pages between two guard pages. The system commits them when they are touched.
    pub(crate) fn anonymous(size: usize) -> io::Result<Self> {
        let room = rounded(size)?;
        let mapping = Self::reserve(room)?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range lies inside the reservation just made, which nothing else uses.
        if unsafe { libc::mprotect(ptr::without_provenance_mut(mapping.base), room, rights) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(mapping)
    }

    /// A part of a file between two guard pages. Everyone who maps the file sees the same bytes.
    pub(crate) fn shared(file: BorrowedFd<'_>, offset: u64, size: usize) -> io::Result<Self> {
        // Only whole pages can be mapped, so the part may begin inside the first one.
        let within = offset as usize % PAGE;
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let page = libc::off_t::try_from(offset - within as u64).map_err(|_| invalid())?;
        let room = rounded(size.checked_add(within).ok_or_else(invalid)?)?;
        let mut mapping = Self::reserve(room)?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range lies inside the reservation just made, which nothing else uses.
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

    /// Reserves addresses for `room` bytes and a guard page on either side.
    fn reserve(room: usize) -> io::Result<Self> {
        let length = room.checked_add(2 * PAGE).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the system's choice changes no existing mapping.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = start.expose_provenance();
        Ok(Self { start, length, base: start + PAGE, reusable: AtomicBool::new(false) })
    }

    pub(crate) fn base(&self) -> usize {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this type mapped the range, and this value alone owns it. Every user of its addresses holds the value
        // (queued work holds the Arc of its allocation).
        unsafe { freed::give(self.start, self.length, *self.reusable.get_mut()) };
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
        // SAFETY: the mapping has that many bytes, and lives.
        let bytes = unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance::<u8>(mapping.base()), 10_000) };
        assert!(bytes.iter().all(|byte| *byte == 0));
    }
}
