//! Copies by the CPU, of every size at every alignment of either side, with a kernel on the other side and guard bytes
//! around.

use super::{engine, is_slow};
use cuda_mem::copy::{CopyEngine, CopyMethod, CopyOptions, HostSide};
use cuda_mem::{MappedMemory, Stream};
use testkit::MappedBuffer;
use testkit::kernel::Kernels;
use testkit::suite::Outcome;
use testkit::{alone, pattern, same};

const LARGEST: usize = 4100;
const GUARD: usize = 64;
const EMPTY: u8 = 0xEE;

/// The offset of the copy of each size.
struct Layout {
    copies: Vec<(usize, usize)>,
    room: usize,
}

impl Layout {
    /// A layout for copies of these sizes that begin at `alignment` past a multiple of 64.
    fn new(sizes: &[usize], alignment: usize) -> Self {
        let mut at = 0;
        let place = |size: &usize| {
            let start = (at + GUARD).next_multiple_of(64) + alignment;
            at = start + size;
            (start, *size)
        };
        let copies: Vec<_> = sizes.iter().map(place).collect();
        Self { copies, room: at + GUARD }
    }
}

struct Bench<'memory> {
    engine: CopyEngine,
    kernels: Kernels,
    stream: Stream,
    memory: &'memory mut MappedBuffer,
    /// The bytes to copy, from each alignment on.
    source: Vec<u8>,
    seen: Vec<u8>,
    expected: Vec<u8>,
}

impl Bench<'_> {
    /// Writes with the CPU, lets a kernel double all bytes, checks what the device sees, and reads with the CPU.
    fn check(&mut self, sizes: &[usize], device: usize, host: usize) -> Outcome {
        let mut options = CopyOptions::default();
        (options.method, options.host) = (Some(CopyMethod::Cpu { threads: 1 }), Some(HostSide::Pageable));
        let layout = Layout::new(sizes, device);
        testkit::fill_on(self.memory, ..layout.room, EMPTY, &self.stream)?;
        let expected = &mut self.expected[..layout.room];
        expected.fill(EMPTY);
        let aligned = self.source.as_ptr().align_offset(64) + host;
        for (start, size) in &layout.copies {
            let bytes = &self.source[aligned..][..*size];
            self.engine.write_with(self.memory, *start, bytes, &options)?;
            expected[*start..][..*size].copy_from_slice(bytes);
        }
        let length = layout.room as u64;
        // SAFETY: the memory records the work and waits for it.
        unsafe { self.kernels.double_bytes(self.memory.device_pointer(), length, &self.stream) }?;
        self.memory.record_use(&self.stream)?;
        expected.iter_mut().for_each(|byte| *byte = byte.wrapping_mul(2));
        self.memory.copy_to_slice(0, &mut self.seen[..layout.room])?;
        let what = format!("device at {device}, host at {host}");
        same(&what, &self.seen[..layout.room], expected)?;
        let mut room = vec![EMPTY; LARGEST + 64 + 2 * GUARD];
        let untouched = room.clone();
        let aligned = room.as_ptr().align_offset(64) + host;
        for (start, size) in &layout.copies {
            let (begin, end) = (aligned, aligned + size);
            self.engine.read_with(&*self.memory, *start, &mut room[begin..end], &options)?;
            same(&format!("{what}: read of {size}"), &room[begin..end], &expected[*start..][..*size])?;
            room[begin..end].fill(EMPTY);
            same(&format!("{what}: outside a read of {size}"), &room, &untouched)?;
        }
        Ok(())
    }
}

#[test]
fn every_size_to_4100_at_every_alignment_of_either_side() -> Outcome {
    if is_slow() {
        return Ok(());
    }
    let exhaustive = std::env::var_os("CUDA_MEM_EXHAUSTIVE").is_some();
    let all: Vec<usize> = (0..=LARGEST).collect();
    // The sizes at which one kind of access replaces another, and sizes around whole lines, unrolled loops and pages.
    let edges = (0..=200).chain(250..=262).chain(506..=518).chain(1018..=1030).chain(4090..=LARGEST);
    let edges: Vec<usize> = edges.collect();
    alone(|setup| {
        let room = Layout::new(&all, 63).room;
        let mut memory = testkit::mapped(&MappedMemory::new(&setup.context)?, room)?;
        let mut bench = Bench {
            engine: engine(&setup.context)?,
            kernels: Kernels::new(&setup.context)?,
            stream: Stream::new(&setup.context)?,
            memory: &mut memory,
            source: pattern(LARGEST + 192, 5),
            seen: vec![0; room],
            expected: vec![0; room],
        };
        for device in 0..64 {
            for host in 0..64 {
                // Without CUDA_MEM_EXHAUSTIVE, all sizes run with each alignment of each side twice, and the edges with
                // each pair.
                let whole = exhaustive || host == device * 7 % 64 || host == (device * 11 + 32) % 64;
                bench.check(if whole { &all } else { &edges }, device, host)?;
            }
        }
        Ok(())
    })
}
