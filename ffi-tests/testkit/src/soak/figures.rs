//! What the process holds: memory, files, threads. The rules that judge growth do not depend on time.

use std::time::{Duration, Instant};

/// How long to wait for ending threads and closing files.
const SETTLING: Duration = Duration::from_secs(10);

/// What the process holds at one moment, after everything of the library has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Resident memory in bytes.
    pub resident: u64,
    /// Open file descriptors.
    pub files: usize,
    /// Threads.
    pub threads: usize,
}

/// Makes the heap map each large block separately and unmap it when it is freed. Otherwise free pieces between used
/// blocks look like growth until they have reached their maximum.
pub fn steady_heap() {
    // SAFETY: the call only sets a number, as the C library documents.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 64 << 10)
    };
}

impl Sample {
    /// Takes a sample now.
    ///
    /// # Errors
    ///
    /// The system does not report a value.
    pub fn now() -> Result<Self, String> {
        let status = std::fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
        let number = |name: &str| -> Result<u64, String> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let word = line.and_then(|line| line.split_whitespace().next());
            word.and_then(|word| word.parse().ok()).ok_or_else(|| format!("/proc/self/status has no {name}"))
        };
        let files = std::fs::read_dir("/proc/self/fd").map_err(|error| error.to_string())?.count();
        // Subtract the descriptor of the directory listing itself.
        Ok(Self { resident: number("VmRSS:")? << 10, files: files - 1, threads: number("Threads:")? as usize })
    }

    /// Takes a sample when there are no more threads and files than before, or after a time limit. First the heap
    /// returns its free memory to the system.
    ///
    /// # Errors
    ///
    /// As [`now`](Self::now).
    pub fn settled(before: Option<&Self>) -> Result<Self, String> {
        // SAFETY: the call only returns free memory to the system.
        #[cfg(target_env = "gnu")]
        unsafe {
            libc::malloc_trim(0)
        };
        let start = Instant::now();
        loop {
            let now = Self::now()?;
            let flat = before.is_some_and(|before| now.files <= before.files && now.threads <= before.threads);
            if flat || start.elapsed() > SETTLING {
                return Ok(now);
            }
            // Without a sample to compare with, give ending threads some time.
            if before.is_none() && start.elapsed() > SETTLING / 4 {
                return Ok(now);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Judges samples that were taken at equal intervals: the number of files and threads must not exceed that of the first
/// sample, and memory must not grow. The first half of the samples is warm-up and is ignored: with eight threads the
/// heap's arenas are full after some hundred thousand steps (15 MB at first, 22 after twelve samples, and 22 after
/// twenty).
///
/// Growth is the rise of the regression line (least squares) from the first to the last sample. The limit is three
/// standard deviations of the samples from that line, plus 256 KiB for each worker thread: threads take turns with the
/// heap's arenas, and each arena fills up in its own time.
///
/// # Errors
///
/// Something grew. The text has the figures.
pub fn judge(samples: &[Sample], workers: usize) -> Result<String, String> {
    let warm = &samples[samples.len().div_ceil(2).min(samples.len())..];
    let (Some(first), Some(last)) = (samples.first(), warm.last()) else {
        return Ok("too short to judge memory".to_owned());
    };
    let most = |figure: fn(&Sample) -> usize| warm.iter().map(figure).max().unwrap_or(0);
    let (files, threads) = (most(|sample| sample.files), most(|sample| sample.threads));
    let words = format!(
        "memory {} KiB first, {} KiB last; files {} first, {files} most; threads {} first, {threads} most",
        first.resident >> 10,
        last.resident >> 10,
        first.files,
        first.threads,
    );
    if files > first.files || threads > first.threads {
        return Err(format!("files or threads became more: {words}"));
    }
    if warm.len() < 4 {
        return Ok(format!("{words}; too few samples to judge memory"));
    }
    let (growth, scatter) = line(warm);
    let allowed = 3.0 * scatter + (workers << 18) as f64;
    let words = format!("{words}; memory grew by {:.0} KiB, allowed {:.0}", growth / 1024.0, allowed / 1024.0);
    if growth > allowed { Err(words) } else { Ok(words) }
}

/// The rise of the regression line from the first to the last sample, and the samples' standard deviation from it, in
/// bytes.
fn line(samples: &[Sample]) -> (f64, f64) {
    let count = samples.len() as f64;
    let mean = samples.iter().map(|sample| sample.resident as f64).sum::<f64>() / count;
    let middle = (count - 1.0) / 2.0;
    let points = || samples.iter().enumerate().map(|(x, sample)| (x as f64 - middle, sample.resident as f64 - mean));
    let slope = points().map(|(x, y)| x * y).sum::<f64>() / points().map(|(x, _)| x * x).sum::<f64>();
    let scatter = (points().map(|(x, y)| (y - slope * x).powi(2)).sum::<f64>() / count).sqrt();
    (slope * (count - 1.0), scatter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(resident: impl Fn(u64) -> u64) -> Vec<Sample> {
        (0..40).map(|n| Sample { resident: resident(n), files: 5, threads: 2 }).collect()
    }

    #[test]
    fn what_scatters_is_flat_and_what_grows_is_not() {
        let noise = |n: u64| 100_000_000 + n * 7919 % 13 * 1_000_000;
        assert!(judge(&samples(noise), 8).is_ok());
        assert!(judge(&samples(|n| noise(n) + n * 2_000_000), 8).is_err());
        // Memory may grow during warm-up.
        assert!(judge(&samples(|n| if n < 20 { n << 20 } else { 100 << 20 }), 8).is_ok());
        assert!(judge(&samples(noise)[..7], 8).unwrap().contains("too few"));
        assert!(judge(&[], 8).is_ok());
    }

    #[test]
    fn one_file_or_thread_more_is_seen() {
        let mut more = samples(|_| 1 << 20);
        more[30].files = 6;
        assert!(judge(&more, 8).unwrap_err().contains("files 5 first, 6 most"));
        let mut more = samples(|_| 1 << 20);
        more[39].threads = 3;
        assert!(judge(&more, 8).unwrap_err().contains("threads 2 first, 3 most"));
    }

    #[test]
    fn the_process_says_what_it_holds() {
        let before = Sample::now().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let (most, now) = (1 << 40, Sample::now().unwrap());
        assert!(before.resident > 1 << 20 && before.resident < most && before.threads > 0);
        // Other tests of the process open files too.
        assert!(now.files > 3);
        drop(file);
    }
}
