//! The cost of suballocation. It needs no GPU, because it only hands out offsets.
//!
//! `cargo bench -p benches --bench suballocator` runs it. `--brief` is a short run that only shows that it works.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;
use stream_heap::suballocator::{BlockId, Ring, Suballocator, SuballocatorOptions};
use testkit::timing::{Numbers, median};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const GRANULARITY: u64 = 256;

fn main() -> Result<()> {
    let brief = std::env::args().any(|argument| argument == "--brief");
    let (rounds, batch) = if brief { (3, 1_000) } else { (101, 20_000) };
    println!(
        "one thread; an allocation and a free together, median of {rounds} times {batch}; granularity {GRANULARITY} B"
    );

    println!("\n{:>12} {:>10}", "empty", "ns");
    println!("{:>12} {:>10.1}", "suballocator", empty(rounds, batch)?);
    println!("{:>12} {:>10.1}", "ring", ring(rounds, batch)?);

    println!("\nblocks of 256 B to 1 MiB, log-uniform, in a region that they fill to three quarters");
    println!("pair: allocated and freed at once; replaced: a random block freed, another allocated");
    println!(
        "{:>12} {:>10} {:>12} {:>12} {:>10} {:>14}",
        "live blocks", "pair, ns", "replaced, ns", "free ranges", "refused", "fragmentation"
    );
    let counts: &[usize] = if brief { &[1_000, 10_000] } else { &[1_000, 2_000, 10_000, 100_000, 1_000_000] };
    for &count in counts {
        live(count, rounds, batch)?;
    }

    println!("\n1 KiB allocated and freed among holes of 1 KiB");
    println!("{:>12} {:>10}", "holes", "pair, ns");
    let counts: &[usize] = if brief { &[64, 1_024] } else { &[64, 1_024, 4_096, 16_384, 65_536, 1_000_000] };
    for &holes in counts {
        println!("{holes:>12} {:>10.1}", among_holes(holes, rounds, batch)?);
    }

    println!(
        "\na request that every free range misses by one unit, all of them in its class: the exact search at its worst"
    );
    println!("{:>12} {:>10} {:>10}", "free ranges", "first, us", "again, us");
    for &ranges in if brief { &[1_000][..] } else { &[1_000, 100_000] } {
        refused(ranges)?;
    }
    Ok(())
}

fn suballocator(bytes: u64) -> Result<Suballocator> {
    let mut memory = Suballocator::new(SuballocatorOptions { granularity: GRANULARITY })?;
    memory.add_region(bytes.next_multiple_of(GRANULARITY))?;
    Ok(memory)
}

fn empty(rounds: usize, batch: usize) -> Result<f64> {
    let mut memory = suballocator(1 << 30)?;
    median(rounds, batch, || {
        let block = memory.allocate(black_box(4096), black_box(256)).ok_or("full")?;
        memory.free(black_box(block.id))?;
        Ok(())
    })
}

fn ring(rounds: usize, batch: usize) -> Result<f64> {
    let mut ring = Ring::new(1 << 20)?;
    let mut oldest = ring.allocate(5000, 256).ok_or("full")?;
    median(rounds, batch, || {
        let block = ring.allocate(black_box(5000), black_box(256)).ok_or("full")?;
        ring.release(std::mem::replace(&mut oldest, block))?;
        Ok(())
    })
}

fn live(count: usize, rounds: usize, batch: usize) -> Result<()> {
    let mut numbers = Numbers(count as u64);
    let sizes: Vec<u64> = (0..batch * (rounds + 1)).map(|_| numbers.size(8..20)).collect();
    let victims: Vec<u32> = sizes.iter().map(|_| numbers.below(count) as u32).collect();
    let initial: Vec<u64> = (0..count).map(|_| numbers.size(8..20)).collect();
    let mut memory = suballocator(initial.iter().sum::<u64>() / 3 * 4)?;
    memory.reserve(2 * count);
    let mut blocks: Vec<Option<BlockId>> = Vec::with_capacity(count);
    for size in initial {
        blocks.push(Some(memory.allocate(size, 256).ok_or("full")?.id));
    }
    let mut refused = 0;
    let mut replace = |memory: &mut Suballocator, index: usize| -> Result<()> {
        let block = &mut blocks[victims[index] as usize];
        if let Some(id) = block.take() {
            memory.free(id)?;
        }
        *block = memory.allocate(sizes[index], 256).map(|block| block.id);
        refused += usize::from(block.is_none());
        Ok(())
    };
    // Run until the region looks as it does after long use.
    for step in 0..4 * count {
        replace(&mut memory, step % sizes.len())?;
    }
    let mut indices = 0..;
    let pair = median(rounds, batch, || -> Result<()> {
        let block = memory.allocate(sizes[indices.next().unwrap_or(0)], 256).ok_or("full")?;
        memory.free(block.id)?;
        Ok(())
    })?;
    let mut indices = 0..;
    let replaced = median(rounds, batch, || replace(&mut memory, indices.next().unwrap_or(0)))?;
    println!(
        "{:>12} {pair:>10.1} {replaced:>12.1} {:>12} {refused:>10} {:>14.3}",
        memory.block_count(),
        memory.free_range_count(),
        memory.fragmentation()
    );
    Ok(())
}

fn among_holes(holes: usize, rounds: usize, batch: usize) -> Result<f64> {
    let mut memory = suballocator(holes as u64 * 2048)?;
    let mut blocks = Vec::new();
    for _ in 0..2 * holes {
        blocks.push(memory.allocate(1024, 256).ok_or("full")?.id);
    }
    for block in blocks.iter().step_by(2) {
        memory.free(*block)?;
    }
    median(rounds, batch, || {
        let block = memory.allocate(black_box(1024), black_box(256)).ok_or("full")?;
        memory.free(black_box(block.id))?;
        Ok(())
    })
}

fn refused(ranges: usize) -> Result<()> {
    let mut memory = suballocator(ranges as u64 * 1026 * GRANULARITY)?;
    let mut blocks = Vec::new();
    for _ in 0..ranges {
        memory.allocate(1, 1).ok_or("full")?;
        blocks.push(memory.allocate(1025 * GRANULARITY, 1).ok_or("full")?.id);
    }
    for block in blocks {
        memory.free(block)?;
    }
    let mut refusal = || -> Result<f64> {
        let start = Instant::now();
        let block = memory.allocate(black_box(1026 * GRANULARITY), 1);
        let time = start.elapsed();
        if block.is_some() { Err("a block that cannot be".into()) } else { Ok(time.as_secs_f64() * 1e6) }
    };
    println!("{ranges:>12} {:>10.2} {:>10.2}", refusal()?, refusal()?);
    Ok(())
}
