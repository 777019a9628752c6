//! What to do about errors of the operating system.

/// The end of an error's text: the cause and the remedy, where the system's own words name neither.
pub(super) fn advice(call: &str, code: i32) -> &'static str {
    match (call, code) {
        (_, libc::EMFILE) => {
            ": this process has no free file descriptor: close files, or raise the limit (`ulimit -n`, RLIMIT_NOFILE)"
        }
        (_, libc::ENFILE) => ": the system has too many open files: close some, or raise fs.file-max",
        ("sendmsg", libc::ETOOMANYREFS) => {
            ": too many files are on their way: wait until the other processes have received them, or raise the limit of \
             open files (`ulimit -n`)"
        }
        ("connect", libc::ECONNREFUSED) => {
            ": nobody listens at this socket file: a process that was killed leaves its file, so start the listening \
             process again, at this path after the file is removed"
        }
        ("connect", libc::ENOENT) => ": there is no such socket file: start the listening process first",
        ("bind", libc::EADDRINUSE) => {
            ": a file exists at this path: another listener is alive (Channel::connect then succeeds), or a process that \
             was killed has left the file: remove it"
        }
        ("pread", libc::EBADF) => ": open the file for reading",
        ("pread", libc::EIO) => {
            ": the disk, or the server of the file, cannot read these bytes: look at the kernel's log"
        }
        ("open", libc::EINVAL) => {
            ": the descriptor was opened with O_DIRECT, and the file cannot be opened again without it"
        }
        _ => "",
    }
}
