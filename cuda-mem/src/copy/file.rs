//! A range of a file, which threads read in parts.

use super::file_calls::{FileAnswer, FileCall, FileCalls};
use crate::Result;
use crate::error::{FileError, FileErrorCause};
use crate::locks::Mutex;
use core::ops::Range;
use std::ffi::CString;
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// What the offsets, sizes and addresses of direct reads are multiples of.
pub(super) const DIRECT_BLOCK: usize = 4096;

/// A range of a file that is open for reading.
pub(super) struct FileRange<'file> {
    call: &'static str,
    /// The descriptor of the program, which also names the file.
    named: BorrowedFd<'file>,
    /// The same file through the page cache, if the program's descriptor goes past it.
    buffered: Option<OwnedFd>,
    /// The same file past the page cache.
    direct: Option<OwnedFd>,
    offset: u64,
    size: usize,
    calls: Mutex<FileCalls>,
}

/// What a file is, if it has no bytes at offsets.
fn kind_without_offsets(mode: libc::mode_t) -> Option<&'static str> {
    match mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFBLK => None,
        libc::S_IFDIR => Some("a directory"),
        libc::S_IFIFO => Some("a pipe"),
        libc::S_IFSOCK => Some("a socket"),
        libc::S_IFCHR => Some("a character device"),
        _ => Some("of another kind"),
    }
}

/// Whether a range lies within a file, whose size is `None` if its end is not known, as that of a block device.
fn lies_within(offset: u64, size: usize, file_size: Option<u64>) -> bool {
    let largest = i64::MAX as u64;
    (size as u64).checked_add(offset).is_some_and(|end| end <= file_size.unwrap_or(largest).min(largest))
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

impl<'file> FileRange<'file> {
    /// Checks that the file has the range. With `direct`, parts may be read past the page cache.
    pub fn open(
        call: &'static str,
        file: BorrowedFd<'file>,
        offset: u64,
        size: usize,
        direct: bool,
    ) -> Result<Self, FileError> {
        let calls = Mutex::new(FileCalls::new(false));
        let mut range = Self { call, named: file, buffered: None, direct: None, offset, size, calls };
        // SAFETY: zeros are a value of it, and the call only writes it.
        let (mut status, number) = (unsafe { core::mem::zeroed::<libc::stat>() }, file.as_raw_fd());
        // SAFETY: as above; the descriptor is borrowed.
        if unsafe { libc::fstat(number, &mut status) } != 0 {
            return Err(range.refused("fstat", errno()));
        }
        if let Some(kind) = kind_without_offsets(status.st_mode) {
            return Err(range.error(FileErrorCause::Kind { kind }));
        }
        // SAFETY: the descriptor is borrowed.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
        // Opened again below, the file would be readable.
        if flags & libc::O_ACCMODE == libc::O_WRONLY || flags & libc::O_PATH != 0 {
            return Err(range.refused("pread", libc::EBADF));
        }
        let file_size = (status.st_mode & libc::S_IFMT == libc::S_IFREG).then_some(status.st_size as u64);
        if !lies_within(offset, size, file_size) {
            return Err(range.error(FileErrorCause::OutOfRange { file_size: file_size.unwrap_or(i64::MAX as u64) }));
        }
        if flags & libc::O_DIRECT != 0 {
            range.buffered = Some(range.open_again(0).map_err(|code| range.refused("open", code))?);
        }
        if direct && size > 0 {
            // Some file systems refuse it. They are read through the page cache.
            range.direct = range.open_again(libc::O_DIRECT).ok();
            range.calls = Mutex::new(FileCalls::new(range.direct.is_some()));
        }
        Ok(range)
    }

    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.named.as_raw_fd())
    }

    /// A descriptor of its own for the same file.
    fn open_again(&self, flags: i32) -> Result<OwnedFd, i32> {
        let path = CString::new(self.path()).map_err(|_| libc::ENOENT)?;
        // SAFETY: the path is a string that ends with 0.
        match unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC | flags) } {
            -1 => Err(errno()),
            // SAFETY: it is open, and nobody else knows it.
            number => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
        }
    }

    fn buffered(&self) -> RawFd {
        self.buffered.as_ref().map_or(self.named.as_raw_fd(), AsRawFd::as_raw_fd)
    }

    #[cold]
    fn error(&self, cause: FileErrorCause) -> FileError {
        let file = match fs::read_link(self.path()) {
            Ok(path) => path.display().to_string(),
            Err(_) => format!("file descriptor {}", self.named.as_raw_fd()),
        };
        FileError { call: self.call, file: file.into(), offset: self.offset, size: self.size, cause }
    }

    #[cold]
    fn refused(&self, call: &'static str, code: i32) -> FileError {
        self.error(FileErrorCause::System { call, code })
    }

    /// By how many bytes the range begins after a multiple of [`DIRECT_BLOCK`], which the parts of direct reads count from.
    pub fn skew(&self) -> usize {
        if self.direct.is_some() { (self.offset % DIRECT_BLOCK as u64) as usize } else { 0 }
    }

    /// Reads a part: the bytes `part` after the start of the range less its [skew](Self::skew). Only a complete read
    /// returns `Ok`.
    ///
    /// # Safety
    ///
    /// `to` may be written for the length of the part, with direct reads for the next multiple of [`DIRECT_BLOCK`]. Nobody
    /// else uses these bytes meanwhile.
    pub unsafe fn read(&self, to: *mut u8, part: Range<usize>) -> Result<(), FileError> {
        let (offset, length) = (self.offset - self.skew() as u64 + part.start as u64, part.len());
        let (mut done, mut call) = (0, self.calls.lock().first());
        while done < length {
            // A direct call begins at a block, and so may read bytes again.
            let begin = if call == FileCall::Direct { done / DIRECT_BLOCK * DIRECT_BLOCK } else { done };
            // SAFETY: this function's contract.
            let answer = match unsafe { self.call(call, to.add(begin), length - begin, offset + begin as u64) } {
                Ok(count) if begin + count > done => {
                    done = (begin + count).min(length);
                    FileAnswer::Bytes
                }
                Ok(_) if call == FileCall::Plain => {
                    return Err(self.error(FileErrorCause::Ended { at: offset + done as u64 }));
                }
                Ok(_) => FileAnswer::Nothing,
                Err(libc::EAGAIN) if call == FileCall::Cached => FileAnswer::Nothing,
                // EFAULT: the system cannot look up the pages of this memory, as it must for direct reads.
                Err(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS | libc::EFAULT) if call != FileCall::Plain => {
                    FileAnswer::Unsupported
                }
                Err(code) => return Err(self.refused("pread", code)),
            };
            call = self.calls.lock().after(call, answer);
        }
        Ok(())
    }

    /// Makes one call, and returns how many bytes it read, or the error number.
    ///
    /// # Safety
    ///
    /// As [`read`](Self::read).
    unsafe fn call(&self, call: FileCall, to: *mut u8, length: usize, offset: u64) -> Result<usize, i32> {
        let at = offset as libc::off_t;
        loop {
            // SAFETY: this function's contract; the descriptors are open.
            let count = unsafe {
                match (call, &self.direct) {
                    (FileCall::Cached, _) => {
                        let place = libc::iovec { iov_base: to.cast(), iov_len: length };
                        libc::preadv2(self.buffered(), &place, 1, at, libc::RWF_NOWAIT)
                    }
                    (FileCall::Direct, Some(direct)) => {
                        libc::pread(direct.as_raw_fd(), to.cast(), length.next_multiple_of(DIRECT_BLOCK), at)
                    }
                    _ => libc::pread(self.buffered(), to.cast(), length, at),
                }
            };
            match usize::try_from(count) {
                Ok(count) => return Ok(count),
                Err(_) => match errno() {
                    libc::EINTR => {}
                    code => return Err(code),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    #[test]
    fn ranges_lie_within_the_file_and_the_largest_offset() {
        assert!(lies_within(0, 0, Some(0)) && lies_within(3, 7, Some(10)) && lies_within(10, 0, Some(10)));
        assert!(!lies_within(3, 8, Some(10)) && !lies_within(11, 0, Some(10)) && !lies_within(0, 1, Some(0)));
        let largest = i64::MAX as u64;
        assert!(lies_within(largest - 1, 1, None) && !lies_within(largest, 1, None));
        assert!(!lies_within(u64::MAX, 1, None) && !lies_within(u64::MAX, 2, Some(u64::MAX)));
    }

    #[test]
    fn only_regular_files_and_block_devices_have_offsets() {
        assert_eq!(kind_without_offsets(libc::S_IFREG | 0o644), None);
        assert_eq!(kind_without_offsets(libc::S_IFBLK), None);
        for kind in [libc::S_IFDIR, libc::S_IFIFO, libc::S_IFSOCK, libc::S_IFCHR, libc::S_IFLNK] {
            assert!(kind_without_offsets(kind).is_some());
        }
    }

    /// A file in the system's folder, which has no name any more.
    fn file(bytes: &[u8], name: &str) -> File {
        let path = std::env::temp_dir().join(format!("cuda-mem-file-{name}-{}", std::process::id()));
        let mut options = fs::OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    #[repr(align(4096))]
    struct Slot([u8; 5 * DIRECT_BLOCK]);

    #[test]
    #[cfg_attr(miri, ignore = "reads files")]
    fn parts_come_whole_by_every_call_and_at_every_skew() {
        let bytes: Vec<u8> = (0..5 * DIRECT_BLOCK).map(|at| (at / 7 + at) as u8).collect();
        let file = file(&bytes, "parts");
        for offset in [0, 1, 511, 4095, 4096, 5000] {
            for direct in [false, true] {
                for [cached, past] in [[true, true], [false, true], [true, false], [false, false]] {
                    let size = 3 * DIRECT_BLOCK - 9;
                    let mut range = FileRange::open("test", file.as_fd(), offset, size, direct).unwrap();
                    if !cached {
                        range.calls.lock().after(FileCall::Cached, FileAnswer::Unsupported);
                    }
                    if !past {
                        range.calls.lock().after(FileCall::Direct, FileAnswer::Unsupported);
                        range.direct = None;
                    }
                    let (mut slot, skew) = (Slot([0xee; 5 * DIRECT_BLOCK]), range.skew());
                    for part in [DIRECT_BLOCK..skew + size, 0..DIRECT_BLOCK] {
                        // SAFETY: the slot has room for the parts, and a block after them.
                        unsafe { range.read(slot.0.as_mut_ptr().add(part.start), part) }.unwrap();
                    }
                    assert_eq!(slot.0[skew..skew + size], bytes[offset as usize..][..size], "offset {offset}");
                }
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads files")]
    fn a_file_that_shrinks_is_no_complete_read() {
        for (left, direct) in [(0, true), (100, true), (4096, true), (4100, true), (4100, false), (8191, false)] {
            let file = file(&[1; 3 * DIRECT_BLOCK], "shrinks");
            let range = FileRange::open("test", file.as_fd(), 0, 2 * DIRECT_BLOCK, direct).unwrap();
            file.set_len(left).unwrap();
            let mut slot = Slot([0; 5 * DIRECT_BLOCK]);
            // SAFETY: the slot is larger than the part.
            let error = unsafe { range.read(slot.0.as_mut_ptr(), 0..2 * DIRECT_BLOCK) }.unwrap_err();
            assert_eq!(error.cause, FileErrorCause::Ended { at: left });
            assert!(error.to_string().starts_with("test: 8192 bytes from byte 0 of /"), "{error}");
        }
    }
}
