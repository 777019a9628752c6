//! Prints a status line every ten seconds.

use super::account::{Account, End};
use super::figures::Sample;
use super::progress::Board;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PACE: Duration = Duration::from_secs(10);

/// Prints status lines while it lives.
#[derive(Debug)]
pub struct Reporter {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    /// Reports on these records and counters.
    pub fn new(board: &Arc<Board>, account: &Arc<Account>) -> Self {
        let (board, account, (end, ended)) = (board.clone(), account.clone(), channel::<()>());
        let start = Instant::now();
        let thread = std::thread::spawn(move || {
            while ended.recv_timeout(PACE) == Err(RecvTimeoutError::Timeout) {
                let now = Sample::now().unwrap_or_default();
                println!(
                    "{:>6.0} s: {} steps, {} refused, {} MiB verified; {} MiB resident, {} files, {} threads",
                    start.elapsed().as_secs_f64(),
                    board.steps(),
                    account.total(End::Refused),
                    account.verified_bytes() >> 20,
                    now.resident >> 20,
                    now.files,
                    now.threads,
                );
            }
        });
        Self { end: Some(end), thread: Some(thread) }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // The thread only prints.
            let _ = thread.join();
        }
    }
}

/// The maximum memory that the process ever used, in bytes, if the system reports it.
pub fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}
