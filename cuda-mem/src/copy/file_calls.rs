//! Which call of the operating system reads the next bytes of a file: pure.

/// A call that reads bytes at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileCall {
    /// Takes bytes from the page cache, and never waits for the disk (`preadv2` with RWF_NOWAIT).
    Cached,
    /// Reads from the disk into the caller's memory, past the page cache (`pread` on a descriptor with O_DIRECT).
    Direct,
    /// Reads through the page cache (`pread`).
    Plain,
}

/// What a call gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileAnswer {
    /// Some of the bytes.
    Bytes,
    /// None of the bytes.
    Nothing,
    /// The file does not support the call.
    Unsupported,
}

/// After a part of which the page cache has nothing, this many parts are read without a look into it. A look in vain
/// makes the system read ahead into the page cache, which the disk then does twice.
const PARTS_BETWEEN_LOOKS: u32 = 15;

/// The calls that are still worth trying for one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileCalls {
    cached: bool,
    direct: bool,
    /// For how many further parts nobody looks into the page cache.
    skips: u32,
}

impl FileCalls {
    /// For a file that is read directly, if `direct`. Otherwise a plain call takes from the page cache too.
    pub fn new(direct: bool) -> Self {
        Self { cached: direct, direct, skips: 0 }
    }

    /// The first call for a part.
    pub fn first(&mut self) -> FileCall {
        if !self.direct {
            return FileCall::Plain;
        }
        let looks = self.cached && self.skips == 0;
        self.skips = self.skips.saturating_sub(1);
        if looks { FileCall::Cached } else { FileCall::Direct }
    }

    /// The call for the rest of a part, after the answer of another.
    pub fn after(&mut self, call: FileCall, answer: FileAnswer) -> FileCall {
        match (call, answer) {
            (FileCall::Cached, FileAnswer::Nothing) => self.skips = PARTS_BETWEEN_LOOKS,
            (FileCall::Cached, FileAnswer::Unsupported) => self.cached = false,
            (FileCall::Direct, FileAnswer::Unsupported) => self.direct = false,
            _ => {}
        }
        match (call, answer) {
            (FileCall::Cached, _) | (FileCall::Direct, FileAnswer::Bytes) if self.direct => FileCall::Direct,
            // Only a plain call tells that a file has ended: some kernels answer so to the others too early.
            _ => FileCall::Plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FileAnswer::{Bytes, Nothing, Unsupported};
    use super::FileCall::{Cached, Direct, Plain};
    use super::*;

    #[test]
    fn cached_bytes_come_first_and_the_disk_gives_the_rest() {
        let mut calls = FileCalls::new(true);
        for _ in 0..100 {
            assert_eq!(calls.first(), Cached);
            assert_eq!(calls.after(Cached, Bytes), Direct);
            assert_eq!(calls.after(Direct, Bytes), Direct);
        }
    }

    #[test]
    fn a_cold_file_is_looked_for_in_the_cache_now_and_then() {
        let mut calls = FileCalls::new(true);
        let mut looks = 0;
        for _ in 0..160 {
            if calls.first() == Cached {
                looks += 1;
                assert_eq!(calls.after(Cached, Nothing), Direct);
            }
        }
        assert_eq!(looks, 10);
    }

    #[test]
    fn what_a_file_does_not_support_is_tried_once() {
        let mut calls = FileCalls::new(true);
        assert_eq!((calls.first(), calls.after(Cached, Unsupported)), (Cached, Direct));
        assert_eq!((calls.first(), calls.after(Direct, Unsupported)), (Direct, Plain));
        assert_eq!(calls, FileCalls { cached: false, direct: false, skips: 0 });
        assert_eq!((calls.first(), calls.after(Plain, Bytes)), (Plain, Plain));
        // Another thread's answer of before.
        assert_eq!(calls.after(Cached, Bytes), Plain);
        assert_eq!(FileCalls::new(false).first(), Plain);
    }

    #[test]
    fn only_a_plain_call_tells_that_a_file_has_ended() {
        let mut calls = FileCalls::new(true);
        assert_eq!(calls.after(Direct, Nothing), Plain);
        assert_eq!(calls.first(), Cached);
    }
}
