//! The built-in kernels.

use super::code::{Code, Wrong};
use super::launch::Launch;
use super::parameters::laid_out;
use super::pieces::{self, Pieces};
use super::ring::{Patience, Ring};
use super::strided::{self, Strided};
use crate::state::checks::races::Touched;
use crate::state::memory::{Range, Use};
use crate::state::modules::{self, Image, Refused, Signature};
use cuda_sys::CUresult;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest wait of a kernel for a word.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Builtin {
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
    /// `cuda_mem_copy_pieces(pieces: 506 words of 8 bytes)`: copies up to 168 pieces of memory; see `pieces`.
    CopyPieces,
    /// `cuda_mem_copy_many_pieces(pieces: 4082 words of 8 bytes)`: as `cuda_mem_copy_pieces`, up to 1360.
    CopyManyPieces,
}

impl Builtin {
    const ALL: [Self; 15] = [
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
        Self::CopyPieces,
        Self::CopyManyPieces,
    ];

    pub(super) fn of_name(name: &str) -> Option<Self> {
        let found = Self::ALL.into_iter().find(|builtin| builtin.base_name() == name);
        found.or_else(|| {
            let (base, size) = name.rsplit_once('_')?;
            let sized = Self::ALL.into_iter().find(|builtin| builtin.base_name() == base)?;
            let is_copy = matches!(sized, Self::CopyStrided | Self::CopyTiles);
            (is_copy && ["1", "2", "4", "8", "16"].contains(&size)).then_some(sized)
        })
    }

    fn base_name(self) -> &'static str {
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
            Self::CopyPieces => "cuda_mem_copy_pieces",
            Self::CopyManyPieces => "cuda_mem_copy_many_pieces",
        }
    }

    /// The sizes of the parameters in bytes. Sizes above 8 are several words, such as a ring's descriptor.
    fn parameters(self) -> &'static [usize] {
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
            Self::CopyPieces => &[8 * pieces::FEW],
            Self::CopyManyPieces => &[8 * pieces::MANY],
        }
    }
}

/// Reads an image: PTX, a cubin, or text that begins with `softgpu kernels` and may name built-in kernels.
pub(crate) fn read(image: &[u8]) -> Result<Image, Refused> {
    match image.strip_prefix(b"softgpu kernels") {
        Some(names) => named(&String::from_utf8_lossy(names)),
        None => modules::read(image),
    }
}

/// Built-in kernels by their names, or all of them.
fn named(names: &str) -> Result<Image, Refused> {
    let names: Vec<_> = names.split([' ', '\t', '\r', '\n', ',', ':', '\0']).filter(|name| !name.is_empty()).collect();
    let signature = |name: &str, builtin: Builtin| {
        let parameters = laid_out(builtin.parameters());
        Signature { name: name.to_owned(), parameters, ..Signature::default() }
    };
    let one = |name: &&str| {
        let refused = || {
            let text = format!("softgpu: `{name}` is no built-in kernel");
            Refused::new(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, text)
        };
        Ok(signature(name, Builtin::of_name(name).ok_or_else(refused)?))
    };
    let signatures = match names.is_empty() {
        true => Builtin::ALL.map(|builtin| signature(builtin.base_name(), builtin)).to_vec(),
        false => names.iter().map(one).collect::<Result<_, _>>()?,
    };
    Image::of_kernels(signatures)
}

impl Code for Builtin {
    fn name(&self) -> &'static str {
        self.base_name()
    }

    /// Only copies: the program may free their memory after them in stream order.
    fn hold(&self, launch: &Launch) -> Vec<Range> {
        match self {
            Self::CopyStrided | Self::CopyTiles => {
                let copy = Strided::of(&launch.values);
                copy.and_then(|copy| launch.memory_of(&copy).ok()).map_or_else(Vec::new, Vec::from)
            }
            // A piece at a wrong address is reported when the kernel runs.
            Self::CopyPieces | Self::CopyManyPieces => Pieces::of(&launch.values).held(launch).unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    fn touched(&self, launch: &Launch) -> Option<Vec<Touched>> {
        self.bytes_touched(launch)
    }

    fn run(&self, launch: &Launch, held: &[Range]) -> Result<(), Wrong> {
        // Each thread works on one element; surplus threads do nothing.
        let count = launch.value(1).min(launch.shape.threads());
        let goes_on = || launch.context.is_alive();
        match self {
            Builtin::FillBytes | Builtin::DoubleBytes if count > 0 => {
                let range = launch.memory(launch.value(0), count, 1, Use::Write)?;
                if *self == Builtin::DoubleBytes {
                    range.check_flushed("double_bytes");
                }
                let start = ptr::with_exposed_provenance_mut::<u8>(range.address);
                if *self == Builtin::FillBytes {
                    // SAFETY: the range holds its allocation.
                    unsafe { start.write_bytes(launch.value(2) as u8, range.length) };
                } else {
                    for n in 0..range.length {
                        // SAFETY: as above. Atomic, because others may use the byte.
                        let byte = unsafe { AtomicU8::from_ptr(start.add(n)) };
                        byte.store(byte.load(Ordering::Relaxed).wrapping_mul(2), Ordering::Relaxed);
                    }
                }
            }
            Builtin::IncrementU32 if count > 0 => {
                let range = launch.memory(launch.value(0), count, 4, Use::Write)?;
                range.check_flushed("increment_u32");
                for n in 0..count as usize {
                    word(&range, 4 * n).fetch_add(1, Ordering::Relaxed);
                }
            }
            Builtin::SpinUntil => {
                let range = launch.memory(launch.value(0), 1, 4, Use::Read)?;
                launch.wait(&range, launch.value(1) as u32);
            }
            Builtin::Answer => {
                let (question, answer) = (
                    launch.memory(launch.value(0), 1, 4, Use::Read)?,
                    launch.memory(launch.value(1), 1, 4, Use::Write)?,
                );
                for number in 1..=launch.value(2) as u32 {
                    if !launch.wait(&question, number) {
                        break;
                    }
                    word(&answer, 0).store(number, Ordering::Release);
                }
            }
            Builtin::Differ => {
                let length = launch.value(3);
                if length > 0 {
                    let left = launch.memory(launch.value(0), length, 1, Use::Read)?;
                    let right = launch.memory(launch.value(1), length, 1, Use::Read)?;
                    let flag = launch.memory(launch.value(4), 1, 4, Use::Write)?;
                    left.check_flushed("cuda_mem_differ");
                    right.check_flushed("cuda_mem_differ");
                    if differ(&left, &right) {
                        word(&flag, 0).store(1, Ordering::Relaxed);
                    }
                }
            }
            Builtin::EchoFlag => {
                let (question, answer) = (
                    launch.memory(launch.value(0), 1, 4, Use::Read)?,
                    launch.memory(launch.value(1), 1, 4, Use::Write)?,
                );
                let mut patience = Patience::new(launch.value(3), &goes_on);
                for number in 1..=launch.value(2) {
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
                let (requests, answers) = (launch.ring(0)?, launch.ring(4)?);
                let mut patience = Patience::new(launch.value(8), &goes_on);
                while let Some(item) = requests.receive(&mut patience) {
                    if !answers.send(item, &mut patience) {
                        break;
                    }
                }
                requests.close_consumer();
                answers.close_producer();
            }
            Builtin::CountRing => {
                let ring = launch.ring(0)?;
                let mut patience = Patience::new(launch.value(5), &goes_on);
                let mut next = 0;
                while next < launch.value(4) && ring.send(next, &mut patience) {
                    next += 1;
                }
                ring.close_producer();
            }
            Builtin::SumRing => {
                let (ring, sum) = (launch.ring(0)?, launch.memory(launch.value(4), 1, 8, Use::Write)?);
                let mut patience = Patience::new(launch.value(5), &goes_on);
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
                if let Some(copy) = Strided::of(&launch.values) {
                    let looked_up = if held.is_empty() { launch.memory_of(&copy)?.to_vec() } else { Vec::new() };
                    if let [to, from] = if held.is_empty() { &looked_up[..] } else { held } {
                        from.check_flushed(self.base_name());
                        copy.run(to, from);
                    }
                }
            }
            Builtin::CopyPieces | Builtin::CopyManyPieces => {
                Pieces::of(&launch.values).run(launch, held, self.base_name())?;
            }
            Builtin::Nothing | Builtin::FillBytes | Builtin::DoubleBytes | Builtin::IncrementU32 => {}
        }
        Ok(())
    }
}

impl Launch {
    /// The ring whose descriptor begins at word `first` of the parameters.
    pub(super) fn ring(&self, first: usize) -> Result<Ring, Wrong> {
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

    pub(super) fn memory_of(&self, copy: &Strided) -> Result<[Range; 2], Wrong> {
        let [to, from] = copy.spans();
        Ok([self.memory(to.0, to.1, 1, Use::Write)?, self.memory(from.0, from.1, 1, Use::Read)?])
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
