//! The built-in kernels, which are softgpu's device work.

use super::ring::{Patience, Ring};
use super::strided;
use crate::call::{Result, ensure};
use crate::misuse::{Misuse, report};
use crate::state::Global;
use crate::state::checks::races::{self, Noted};
use crate::state::contexts::Context;
use crate::state::graphs::capture;
use crate::state::graphs::{Params, Work};
use crate::state::handle::next_sequence;
use crate::state::memory::{Range, Use};
use crate::state::streams::Stream;
use cuda_sys::CUresult;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest wait of a kernel for a word.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Builtin {
    /// `fill_bytes(memory: u64, length: u64, value: u32)`: sets bytes.
    FillBytes,
    /// `increment_u32(memory: u64, count: u64)`: adds 1 to 32-bit words.
    IncrementU32,
    /// `double_bytes(memory: u64, length: u64)`: doubles bytes.
    DoubleBytes,
    /// `spin_until(word: u64, value: u32)`: waits until a word has a value.
    SpinUntil,
    /// `answer(question: u64, answer: u64, count: u32)`: waits for each number from 1 to `count` in one word, and
    /// writes it to the other.
    Answer,
    /// `cuda_mem_differ(left: u64, right: u64, words: u64, length: u64, flag: u64)`: sets a 32-bit word to 1 if two
    /// ranges of bytes differ.
    Differ,
    /// `cuda_mem_echo_flag(question: u64, answer: u64, rounds: u64, patience: u64, ordered: u64)`: sets a word to 1, 2,
    /// ... `rounds`, each when the other word has reached it.
    EchoFlag,
    /// `cuda_mem_echo_ring(requests: ring, answers: ring, patience: u64)`: sends items back until the requests are
    /// closed.
    EchoRing,
    /// `cuda_mem_count_ring(ring, count: u64, patience: u64)`: pushes 0, 1, ... up to `count`.
    CountRing,
    /// `cuda_mem_sum_ring(ring, sum: u64, patience: u64)`: adds up items until the ring is closed, and sets a 64-bit
    /// word.
    SumRing,
    /// `cuda_mem_nothing()`: does nothing.
    Nothing,
    /// `cuda_mem_copy(copy: 41 words of 8 bytes)`: copies words along axes; see `strided`. The names of entries end
    /// with the word's size, such as `cuda_mem_copy_4`.
    CopyStrided,
    /// `cuda_mem_copy_tiles(copy: 41 words of 8 bytes)`: as `cuda_mem_copy`.
    CopyTiles,
}

impl Builtin {
    pub(crate) const ALL: [Self; 13] = [
        Self::FillBytes,
        Self::IncrementU32,
        Self::DoubleBytes,
        Self::SpinUntil,
        Self::Answer,
        Self::Differ,
        Self::EchoFlag,
        Self::EchoRing,
        Self::CountRing,
        Self::SumRing,
        Self::Nothing,
        Self::CopyStrided,
        Self::CopyTiles,
    ];

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let found = Self::ALL.into_iter().find(|builtin| builtin.name() == name);
        found.or_else(|| {
            let (base, size) = name.rsplit_once('_')?;
            let sized = Self::ALL.into_iter().find(|builtin| builtin.name() == base)?;
            let is_copy = matches!(sized, Self::CopyStrided | Self::CopyTiles);
            (is_copy && ["1", "2", "4", "8", "16"].contains(&size)).then_some(sized)
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::FillBytes => "fill_bytes",
            Self::IncrementU32 => "increment_u32",
            Self::DoubleBytes => "double_bytes",
            Self::SpinUntil => "spin_until",
            Self::Answer => "answer",
            Self::Differ => "cuda_mem_differ",
            Self::EchoFlag => "cuda_mem_echo_flag",
            Self::EchoRing => "cuda_mem_echo_ring",
            Self::CountRing => "cuda_mem_count_ring",
            Self::SumRing => "cuda_mem_sum_ring",
            Self::Nothing => "cuda_mem_nothing",
            Self::CopyStrided => "cuda_mem_copy",
            Self::CopyTiles => "cuda_mem_copy_tiles",
        }
    }

    /// The sizes of the parameters in bytes. Sizes above 8 are several words, such as a ring's descriptor.
    pub(crate) fn parameters(self) -> &'static [usize] {
        match self {
            Self::FillBytes | Self::Answer => &[8, 8, 4],
            Self::IncrementU32 | Self::DoubleBytes => &[8, 8],
            Self::SpinUntil => &[8, 4],
            Self::Differ => &[8; 5],
            Self::EchoFlag => &[8; 5],
            Self::EchoRing => &[32, 32, 8],
            Self::CountRing | Self::SumRing => &[32, 8, 8],
            Self::Nothing => &[],
            Self::CopyStrided | Self::CopyTiles => &[8 * strided::WORDS],
        }
    }
}

#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) sequence: u64,
    pub(crate) context: Arc<Context>,
    pub(crate) functions: Vec<(String, u64)>,
}

#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) builtin: Builtin,
    pub(crate) context: Arc<Context>,
}

/// The kernels in an image: PTX text, or text that begins with `softgpu kernels` and may name some.
pub(crate) fn named_in(image: &str) -> Result<Vec<(&str, Builtin)>> {
    let of_name = |name| Builtin::of_name(name).map(|builtin| (name, builtin));
    let unknown = CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU;
    if let Some(names) = image.strip_prefix("softgpu kernels") {
        let names: Vec<_> = names.split([' ', '\t', '\r', '\n', ',', ':']).filter(|name| !name.is_empty()).collect();
        if names.is_empty() {
            return Ok(Builtin::ALL.map(|builtin| (builtin.name(), builtin)).to_vec());
        }
        return names.into_iter().map(|name| of_name(name).ok_or(unknown)).collect();
    }
    if !image.lines().any(|line| line.trim_start().starts_with(".version")) {
        return Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
    }
    let mut words = image.split([' ', '\t', '\r', '\n', '(', ')']).filter(|word| !word.is_empty());
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        if word == ".entry" {
            let builtin = of_name(words.next().ok_or(CUresult::CUDA_ERROR_INVALID_PTX)?).ok_or(unknown)?;
            found.push(builtin);
        }
    }
    Ok(found)
}

impl Module {
    pub(crate) fn load(global: &Global, context: &Arc<Context>, image: &str) -> Result<u64> {
        let make = |(name, builtin): (&str, _)| {
            let function = Function { builtin, context: context.clone() };
            (name.to_owned(), global.functions.insert(next_sequence(), function).0)
        };
        let functions = named_in(image)?.into_iter().map(make).collect();
        let sequence = next_sequence();
        let module = Self { sequence, context: context.clone(), functions };
        Ok(global.modules.insert(sequence, module).0)
    }

    pub(crate) fn unload(&self, global: &Global) {
        for (_, handle) in &self.functions {
            global.functions.remove(*handle);
        }
    }
}

/// A launch: the kernel, its threads, the values of its parameters.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) builtin: Builtin,
    pub(crate) threads: u64,
    pub(crate) values: Vec<u64>,
    pub(crate) context: Arc<Context>,
}

impl Launch {
    /// Queues the kernel, or records it if the stream captures.
    pub(crate) fn begin(self, stream: &Stream) -> Result {
        if capture::enter(stream)? {
            stream.note_recorded(self.builtin.name(), || self.touched().unwrap_or_default());
            return capture::add(stream, Params::Kernel, self.recorded());
        }
        // Held until the copy has run: the program may free the memory after it in stream order.
        let copy = match self.builtin {
            Builtin::CopyStrided | Builtin::CopyTiles => strided::Strided::of(&self.values),
            _ => None,
        };
        let held = copy.and_then(|copy| self.memory_of(&copy).ok());
        let mut noted = self.note(stream);
        let run = move || {
            noted.begin();
            self.run(held.as_ref());
            drop(noted);
        };
        stream.push(Vec::new(), run).map(drop)
    }

    /// The kernel as a node of a graph.
    fn recorded(self) -> Work {
        let launch = Arc::new(self);
        Work::Again(Box::new(move |stream| {
            let (launch, mut noted) = (launch.clone(), launch.note(stream));
            Ok(Box::new(move || {
                noted.begin();
                launch.run(None);
                drop(noted);
            }))
        }))
    }

    /// Records the bytes that the kernel touches as the stream's next work.
    fn note(&self, stream: &Stream) -> Noted {
        if !races::is_on() {
            return Noted::default();
        }
        match self.touched() {
            Some(touched) => stream.touch(self.builtin.name(), || touched),
            None => {
                stream.blur();
                Noted::default()
            }
        }
    }

    pub(super) fn memory_of(&self, copy: &strided::Strided) -> core::result::Result<[Range; 2], (u64, CUresult)> {
        let [to, from] = copy.spans();
        Ok([self.memory(to.0, to.1, 1, Use::Write)?, self.memory(from.0, from.1, 1, Use::Read)?])
    }

    /// Runs the kernel to its end. A wrong address becomes the context's lasting error, as on a device.
    fn run(&self, held: Option<&[Range; 2]>) {
        if self.context.failure().is_some() {
            return;
        }
        if let Err((address, code)) = self.work(held) {
            report(Misuse::WrongAddress, self.builtin.name(), address, None);
            self.context.fail(code);
        }
    }

    pub(super) fn value(&self, n: usize) -> u64 {
        self.values.get(n).copied().unwrap_or(0)
    }

    /// Memory that the kernel touches: `count` elements of `size` bytes.
    pub(super) fn memory(
        &self,
        address: u64,
        count: u64,
        size: usize,
        purpose: Use,
    ) -> core::result::Result<Range, (u64, CUresult)> {
        let illegal = (address, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        if !address.is_multiple_of(size as u64) {
            return Err((address, CUresult::CUDA_ERROR_MISALIGNED_ADDRESS));
        }
        let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(size)).ok_or(illegal)?;
        let global = Global::get().map_err(|code| (address, code))?;
        let range = global.memory.range(address, length, self.context.device, purpose).map_err(|_| illegal)?;
        let reached = range.block.as_deref().is_none_or(|block| block.is_reached_by(&self.context));
        if reached && range.is_present() { Ok(range) } else { Err(illegal) }
    }

    /// The ring whose descriptor begins at word `first` of the parameters.
    fn ring(&self, first: usize) -> core::result::Result<Ring, (u64, CUresult)> {
        let [consumer, producer, items] = [0, 1, 2].map(|n| self.value(first + n));
        let capacity = self.value(first + 3) as u32;
        if !capacity.is_power_of_two() {
            return Err((items, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
        }
        Ok(Ring {
            consumer: self.memory(consumer, 2, 4, Use::Write)?,
            producer: self.memory(producer, 2, 4, Use::Write)?,
            items: self.memory(items, capacity.into(), 8, Use::Write)?,
            capacity,
        })
    }

    fn work(&self, held: Option<&[Range; 2]>) -> core::result::Result<(), (u64, CUresult)> {
        // Each thread works on one element; surplus threads do nothing.
        let count = self.value(1).min(self.threads);
        let goes_on = || self.context.is_alive();
        match self.builtin {
            Builtin::FillBytes | Builtin::DoubleBytes if count > 0 => {
                let range = self.memory(self.value(0), count, 1, Use::Write)?;
                if self.builtin == Builtin::DoubleBytes {
                    range.check_flushed("double_bytes");
                }
                let start = ptr::with_exposed_provenance_mut::<u8>(range.address);
                if self.builtin == Builtin::FillBytes {
                    // SAFETY: the range holds its allocation.
                    unsafe { start.write_bytes(self.value(2) as u8, range.length) };
                } else {
                    for n in 0..range.length {
                        // SAFETY: as above. Atomic, because others may use the byte.
                        let byte = unsafe { AtomicU8::from_ptr(start.add(n)) };
                        byte.store(byte.load(Ordering::Relaxed).wrapping_mul(2), Ordering::Relaxed);
                    }
                }
            }
            Builtin::IncrementU32 if count > 0 => {
                let range = self.memory(self.value(0), count, 4, Use::Write)?;
                range.check_flushed("increment_u32");
                for n in 0..count as usize {
                    word(&range, 4 * n).fetch_add(1, Ordering::Relaxed);
                }
            }
            Builtin::SpinUntil => {
                let range = self.memory(self.value(0), 1, 4, Use::Read)?;
                self.wait(&range, self.value(1) as u32);
            }
            Builtin::Answer => {
                let (question, answer) =
                    (self.memory(self.value(0), 1, 4, Use::Read)?, self.memory(self.value(1), 1, 4, Use::Write)?);
                for number in 1..=self.value(2) as u32 {
                    if !self.wait(&question, number) {
                        break;
                    }
                    word(&answer, 0).store(number, Ordering::Release);
                }
            }
            Builtin::Differ => {
                let length = self.value(3);
                if length > 0 {
                    let left = self.memory(self.value(0), length, 1, Use::Read)?;
                    let right = self.memory(self.value(1), length, 1, Use::Read)?;
                    let flag = self.memory(self.value(4), 1, 4, Use::Write)?;
                    left.check_flushed("cuda_mem_differ");
                    right.check_flushed("cuda_mem_differ");
                    if differ(&left, &right) {
                        word(&flag, 0).store(1, Ordering::Relaxed);
                    }
                }
            }
            Builtin::EchoFlag => {
                let (question, answer) =
                    (self.memory(self.value(0), 1, 4, Use::Read)?, self.memory(self.value(1), 1, 4, Use::Write)?);
                let mut patience = Patience::new(self.value(3), &goes_on);
                for number in 1..=self.value(2) {
                    let number = number as u32;
                    patience.renew();
                    // Compared as by the driver: a word that wrapped around counts as ahead.
                    while word(&question, 0).load(Ordering::Acquire).wrapping_sub(number) > i32::MAX as u32 {
                        if patience.is_over() {
                            return Ok(());
                        }
                    }
                    word(&answer, 0).store(number, Ordering::Release);
                }
            }
            Builtin::EchoRing => {
                let (requests, answers) = (self.ring(0)?, self.ring(4)?);
                let mut patience = Patience::new(self.value(8), &goes_on);
                while let Some(item) = requests.receive(&mut patience) {
                    if !answers.send(item, &mut patience) {
                        break;
                    }
                }
                requests.close_consumer();
                answers.close_producer();
            }
            Builtin::CountRing => {
                let ring = self.ring(0)?;
                let mut patience = Patience::new(self.value(5), &goes_on);
                let mut next = 0;
                while next < self.value(4) && ring.send(next, &mut patience) {
                    next += 1;
                }
                ring.close_producer();
            }
            Builtin::SumRing => {
                let (ring, sum) = (self.ring(0)?, self.memory(self.value(4), 1, 8, Use::Write)?);
                let mut patience = Patience::new(self.value(5), &goes_on);
                let mut total = 0_u64;
                while let Some(item) = ring.receive(&mut patience) {
                    total = total.wrapping_add(item);
                }
                ring.close_consumer();
                // SAFETY: aligned and inside the range, which holds its allocation.
                let word = unsafe { AtomicU64::from_ptr(ptr::with_exposed_provenance_mut(sum.address)) };
                word.store(total, Ordering::Release);
            }
            Builtin::CopyStrided | Builtin::CopyTiles => {
                if let Some(copy) = strided::Strided::of(&self.values) {
                    let looked_up = if held.is_none() { Some(self.memory_of(&copy)?) } else { None };
                    if let Some([to, from]) = held.or(looked_up.as_ref()) {
                        from.check_flushed(self.builtin.name());
                        copy.run(to, from);
                    }
                }
            }
            Builtin::Nothing | Builtin::FillBytes | Builtin::DoubleBytes | Builtin::IncrementU32 => {}
        }
        Ok(())
    }

    /// Waits until a word has a value. Returns false after ten seconds, or if the context ends.
    fn wait(&self, range: &Range, value: u32) -> bool {
        let start = Instant::now();
        let mut turns = 0_u32;
        while word(range, 0).load(Ordering::Acquire) != value {
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(64) {
                if start.elapsed() > PATIENCE || !self.context.is_alive() {
                    return false;
                }
                // The writer of the word may need this processor.
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        true
    }
}

/// Whether the bytes of two ranges of one length differ.
fn differ(left: &Range, right: &Range) -> bool {
    let (one, other) = (ptr::with_exposed_provenance(left.address), ptr::with_exposed_provenance(right.address));
    // SAFETY: the ranges hold their allocations.
    unsafe { libc::memcmp(one, other, left.length.min(right.length)) != 0 }
}

pub(super) fn word(range: &Range, offset: usize) -> &AtomicU32 {
    // SAFETY: aligned and inside the range (checked when the range was made), which holds its allocation.
    unsafe { AtomicU32::from_ptr(ptr::with_exposed_provenance_mut(range.address + offset)) }
}

/// Checks the shape of a launch. Returns the number of threads.
pub(crate) fn threads(grid: [u32; 3], block: [u32; 3], shared: u32) -> Result<u64> {
    let (most_blocks, most_threads) = ([i32::MAX as u32, 65535, 65535], [1024, 1024, 64]);
    for (sizes, most) in [(grid, most_blocks), (block, most_threads)] {
        ensure(sizes.iter().zip(most).all(|(size, most)| *size > 0 && *size <= most))?;
    }
    let product = |sizes: [u32; 3]| sizes.iter().fold(1_u64, |all, size| all.saturating_mul(u64::from(*size)));
    ensure(product(block) <= 1024 && shared <= 48 << 10)?;
    Ok(product(grid).saturating_mul(product(block)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_name_kernels_and_what_is_unknown_is_refused() {
        let ptx =
            |name: &str| format!(".version 6.4\n.target sm_50\n.visible .entry {name}(.param .u64 a)\n{{ ret; }}");
        assert_eq!(named_in(&ptx("double_bytes")), Ok(vec![("double_bytes", Builtin::DoubleBytes)]));
        assert_eq!(named_in(&ptx("cuda_mem_copy_16")), Ok(vec![("cuda_mem_copy_16", Builtin::CopyStrided)]));
        assert_eq!(named_in(&ptx("cuda_mem_copy_3")), Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU));
        assert_eq!(named_in(&ptx("answer_4")), Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU));
        assert_eq!(named_in(&ptx("matmul")), Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU));
        assert_eq!(named_in("softgpu kernels").map(|all| all.len()), Ok(Builtin::ALL.len()));
        assert_eq!(named_in("softgpu kernels: answer"), Ok(vec![("answer", Builtin::Answer)]));
        assert_eq!(named_in("softgpu kernels: x"), Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU));
        assert_eq!(named_in("int main"), Err(CUresult::CUDA_ERROR_INVALID_IMAGE));
    }

    #[test]
    fn launches_keep_to_the_limits_of_the_device() {
        assert_eq!(threads([3, 2, 1], [32, 1, 1], 0), Ok(192));
        for (grid, block) in
            [([0, 1, 1], [1; 3]), ([1, 65536, 1], [1; 3]), ([1; 3], [1, 1, 65]), ([1; 3], [1024, 2, 1])]
        {
            assert_eq!(threads(grid, block, 0), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        }
        assert_eq!(threads([1; 3], [1; 3], 1 << 20), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    }
}
