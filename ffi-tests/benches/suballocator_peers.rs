//! The cost of suballocation here and in other crates: offsets only, no GPU. `--brief` only shows that it works.
//!
//! The peers' sizes are in units of 256 bytes; ours are in bytes. `offset-allocator` also takes constant time, but
//! sorts sizes into classes and refuses a request that fits into none of the larger classes. `range-alloc` searches all
//! free ranges for the best one.

use std::error::Error;
use std::hint::black_box;
use std::ops::Range;
use stream_heap::suballocator::{BlockId, Suballocator, SuballocatorOptions};
use testkit::timing::{Numbers, median};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const UNIT: u64 = 256;

/// An allocator that divides a number of units.
trait Divider: Sized {
    const NAME: &'static str;
    type Block;
    fn new(units: u32, blocks: usize) -> Result<Self>;
    fn allocate(&mut self, units: u32) -> Option<Self::Block>;
    fn free(&mut self, block: Self::Block) -> Result<()>;
}

impl Divider for Suballocator {
    const NAME: &'static str = "cuda-mem";
    type Block = BlockId;

    fn new(units: u32, blocks: usize) -> Result<Self> {
        let mut memory = Suballocator::new(SuballocatorOptions { granularity: UNIT })?;
        memory.add_region(u64::from(units) * UNIT)?;
        memory.reserve(blocks);
        Ok(memory)
    }

    fn allocate(&mut self, units: u32) -> Option<BlockId> {
        self.allocate(u64::from(units) * UNIT, UNIT).map(|block| block.id)
    }

    fn free(&mut self, block: BlockId) -> Result<()> {
        self.free(block)?;
        Ok(())
    }
}

impl Divider for offset_allocator::Allocator<u32> {
    const NAME: &'static str = "offset-allocator";
    type Block = offset_allocator::Allocation<u32>;

    fn new(units: u32, blocks: usize) -> Result<Self> {
        // Free ranges take up nodes too.
        Ok(Self::with_max_allocs(units, u32::try_from(2 * blocks + 16)?))
    }

    fn allocate(&mut self, units: u32) -> Option<Self::Block> {
        self.allocate(units)
    }

    fn free(&mut self, block: Self::Block) -> Result<()> {
        self.free(block);
        Ok(())
    }
}

impl Divider for range_alloc::RangeAllocator<u32> {
    const NAME: &'static str = "range-alloc";
    type Block = Range<u32>;

    fn new(units: u32, _blocks: usize) -> Result<Self> {
        Ok(Self::new(0..units))
    }

    fn allocate(&mut self, units: u32) -> Option<Self::Block> {
        self.allocate_range(units).ok()
    }

    fn free(&mut self, block: Self::Block) -> Result<()> {
        self.free_range(block);
        Ok(())
    }
}

fn main() -> Result<()> {
    let brief = std::env::args().any(|argument| argument == "--brief");
    println!("one thread; ns, medians; replaced: of 256 B to 1 MiB, in a region that the blocks fill to nine tenths");
    println!("{:>18} {:>20} {:>10} {:>10}", "", "workload", "ns", "refused");
    run::<Suballocator>(brief)?;
    run::<offset_allocator::Allocator<u32>>(brief)?;
    run::<range_alloc::RangeAllocator<u32>>(brief)
}

fn run<D: Divider>(brief: bool) -> Result<()> {
    let (rounds, batch) = if brief { (3, 200) } else { (31, 5_000) };
    println!("{:>18} {:>20} {:>10.1}", D::NAME, "pair, empty", pair::<D>(0, rounds, batch)?);
    for holes in if brief { &[64][..] } else { &[64, 1_024, 65_536] } {
        let name = format!("pair, {holes} holes");
        println!("{:>18} {name:>20} {:>10.1}", D::NAME, pair::<D>(*holes, rounds, batch)?);
    }
    for live in if brief { &[100][..] } else { &[1_000, 2_000, 10_000] } {
        let (time, refused) = replaced::<D>(*live, rounds, batch)?;
        let name = format!("replaced, {live} live");
        println!("{:>18} {name:>20} {time:>10.1} {:>9.2}%", D::NAME, refused * 100.0);
    }
    Ok(())
}

/// Allocates and frees 1 KiB among holes of 1 KiB, no two of which are neighbours.
fn pair<D: Divider>(holes: usize, rounds: usize, batch: usize) -> Result<f64> {
    const UNITS: u32 = 4;
    let mut memory = D::new((2 * u32::try_from(holes)? + 1) * UNITS, 2 * holes + 1)?;
    let mut kept = Vec::new();
    let mut freed = Vec::new();
    for _ in 0..holes {
        freed.push(memory.allocate(UNITS).ok_or("full")?);
        kept.push(memory.allocate(UNITS).ok_or("full")?);
    }
    for block in freed {
        memory.free(block)?;
    }
    median(rounds, batch, || {
        let block = memory.allocate(black_box(UNITS)).ok_or("full")?;
        memory.free(black_box(block))
    })
}

/// Frees a random block and allocates another. Returns the time of both, and the share of refused allocations.
fn replaced<D: Divider>(live: usize, rounds: usize, batch: usize) -> Result<(f64, f64)> {
    let mut numbers = Numbers(live as u64);
    let sizes: Vec<u32> = (0..live).map(|_| numbers.size(0..12) as u32).collect();
    let units = sizes.iter().map(|size| u64::from(*size)).sum::<u64>() * 10 / 9;
    let mut memory = D::new(u32::try_from(units)?, live)?;
    let mut blocks: Vec<Option<D::Block>> = sizes.iter().map(|size| memory.allocate(*size)).collect();
    let (mut asked, mut refused) = (0u64, 0u64);
    let mut step = || -> Result<()> {
        let place = &mut blocks[numbers.below(live)];
        if let Some(block) = place.take() {
            memory.free(block)?;
        }
        *place = memory.allocate(numbers.size(0..12) as u32);
        asked += 1;
        refused += u64::from(place.is_none());
        Ok(())
    };
    // Run until the region looks as it does after long use.
    for _ in 0..4 * live {
        step()?;
    }
    let time = median(rounds, batch, &mut step)?;
    Ok((time, refused as f64 / asked as f64))
}
