//! Cases for memory of every source, for pools over it, and for copies by an engine. The tables run over cuda-mem's own
//! interface and over the C library's.

use crate::interface::{Bytes, Interface, Wrong, refused};
use crate::suite::Outcome;
use crate::{pattern, same};

/// A case over a source of memory.
pub type Case<I> = fn(&I, &<I as Interface>::Resource) -> Outcome;

/// The cases for every source.
pub fn resource_cases<I: Interface>() -> [(&'static str, Case<I>); 6] {
    [
        ("device_and_cpu_see_the_same", device_and_cpu_see_the_same),
        ("allocations_are_aligned_and_apart", allocations_are_aligned_and_apart),
        ("copies_and_fills_stay_in_their_range", copies_and_fills_stay_in_their_range),
        ("parts_share_the_memory", parts_share_the_memory),
        ("copies_are_ordered_over_streams", copies_are_ordered_over_streams),
        ("ranges_outside_are_refused", ranges_outside_are_refused),
    ]
}

/// The cases for a pool over every source.
pub fn pool_cases<I: Interface>() -> [(&'static str, Case<I>); 3] {
    [
        ("a_pool_gives_memory_and_takes_it_back", a_pool_gives_memory_and_takes_it_back),
        ("a_pool_keeps_its_limit", a_pool_keeps_its_limit),
        ("streams_of_a_pool_take_over_in_order", streams_of_a_pool_take_over_in_order),
    ]
}

/// The cases for an engine's copies to and from every source.
pub fn copy_cases<I: Interface>() -> [(&'static str, Case<I>); 2] {
    [
        ("an_engine_copies_every_size", an_engine_copies_every_size),
        ("an_engine_refuses_what_lies_outside", an_engine_refuses_what_lies_outside),
    ]
}

fn contents<B: Bytes>(buffer: &B, size: usize) -> Result<Vec<u8>, crate::interface::Refusal> {
    let mut seen = vec![0; size];
    buffer.read_bytes(0, &mut seen)?;
    Ok(seen)
}

fn words(word: u32, count: usize) -> Vec<u8> {
    word.to_ne_bytes().repeat(count)
}

fn device_and_cpu_see_the_same<I: Interface>(interface: &I, source: &I::Resource) -> Outcome {
    let stream = interface.stream()?;
    let mut buffer = I::allocate(source, 4000, &stream)?;
    I::fill(&mut buffer, 0, 4000, 0x1234_5678)?;
    same("after the device's fill", &contents(&buffer, 4000)?, &words(0x1234_5678, 1000))?;
    if let Some(host) = buffer.host() {
        I::synchronize(&buffer)?;
        buffer.invalidate_bytes(0, 4000)?;
        // SAFETY: the buffer has 4000 bytes there, and no device work is pending.
        let bytes = unsafe { std::slice::from_raw_parts_mut(host, 4000) };
        same("the CPU", bytes, &words(0x1234_5678, 1000))?;
        bytes[40..80].fill(7);
        buffer.flush_bytes(40, 40)?;
        I::fill(&mut buffer, 80, 40, 8)?;
        let seen = contents(&buffer, 4000)?;
        same("the device", &seen[40..120], &[vec![7; 40], words(8, 10)].concat())?;
        same("beside it", &seen[120..], &words(0x1234_5678, 970))?;
    }
    Ok(())
}

fn allocations_are_aligned_and_apart<I: Interface>(interface: &I, source: &I::Resource) -> Outcome {
    let stream = interface.stream()?;
    let mut ranges = Vec::new();
    let mut kept = Vec::new();
    for size in [1, 3, 255, 256, 4097, 100_000] {
        let buffer = I::allocate(source, size, &stream)?;
        let address = I::address(&buffer);
        if !address.is_multiple_of(256) {
            return Err(format!("{size} bytes at {address:#x}").into());
        }
        ranges.push(address..address + size as u64);
        kept.push(buffer);
    }
    ranges.sort_by_key(|range| range.start);
    if let Some(pair) = ranges.windows(2).find(|pair| pair[0].end > pair[1].start) {
        return Err(format!("two allocations share bytes: {pair:x?}").into());
    }
    let empty = I::allocate(source, 0, &stream)?;
    if I::address(&empty) != 0 {
        return Err("no bytes have an address".into());
    }
    refused("a petabyte", I::allocate(source, 1_000_000_000_000_000, &stream), Wrong::Memory)?;
    Ok(())
}

fn copies_and_fills_stay_in_their_range<I: Interface>(interface: &I, source: &I::Resource) -> Outcome {
    let stream = interface.stream()?;
    let mut model = pattern(10_000, 3);
    let (mut buffer, mut other) = (I::allocate(source, 10_000, &stream)?, I::allocate(source, 10_000, &stream)?);
    buffer.write_bytes(0, &model)?;
    for (place, size) in [(0, 1), (1, 3), (63, 65), (4095, 2), (9_999, 1), (10_000, 0)] {
        let bytes = pattern(size, 9);
        buffer.write_bytes(place, &bytes)?;
        model[place..place + size].copy_from_slice(&bytes);
        same("after a write", &contents(&buffer, 10_000)?, &model)?;
    }
    I::fill(&mut buffer, 400, 800, 0xa5a5_0011)?;
    model[400..1200].copy_from_slice(&words(0xa5a5_0011, 200));
    I::fill(&mut other, 0, 10_000, 0)?;
    I::copy(&mut other, 5, &buffer, 300, 2_000)?;
    let mut expected = vec![0; 10_000];
    expected[5..2_005].copy_from_slice(&model[300..2_300]);
    same("after a copy", &contents(&other, 10_000)?, &expected)?;
    I::copy(&mut other, 0, &buffer, 0, 10_000)?;
    if !I::equals(&other, &buffer)? {
        return Err("a copy differs".into());
    }
    other.write_bytes(9_999, &[!model[9_999]])?;
    if I::equals(&other, &buffer)? {
        return Err("a byte's difference is not seen".into());
    }
    same("what was copied from", &contents(&buffer, 10_000)?, &model)?;
    Ok(())
}

fn parts_share_the_memory<I: Interface>(interface: &I, source: &I::Resource) -> Outcome {
    let stream = interface.stream()?;
    let mut whole = I::allocate(source, 1000, &stream)?;
    let mut model = pattern(1000, 5);
    whole.write_bytes(0, &model)?;
    let mut part = I::slice(&whole, 100, 300)?;
    part.write_bytes(10, &[1; 20])?;
    model[110..130].fill(1);
    same("the whole", &contents(&whole, 1000)?, &model)?;
    let other = I::slice(&whole, 500, 500)?;
    I::copy(&mut part, 0, &other, 0, 100)?;
    model.copy_within(500..600, 100);
    refused("a copy onto itself", I::copy(&mut part, 0, &whole, 150, 200), Wrong::Argument)?;
    drop(whole);
    same("a part, of what is left", &contents(&part, 300)?, &model[100..400])?;
    drop(part);
    same("the last part", &contents(&other, 500)?, &model[500..])?;
    refused("a part outside", I::slice(&other, 499, 2), Wrong::Range)?;
    Ok(())
}

fn copies_are_ordered_over_streams<I: Interface>(interface: &I, source: &I::Resource) -> Outcome {
    const SIZE: usize = 1 << 18;
    let (stream, other) = (interface.stream()?, interface.stream()?);
    for round in 0..4u32 {
        let mut from = I::allocate(source, SIZE, &stream)?;
        let mut to = I::allocate(source, SIZE, &other)?;
        if round == 0 {
            I::delay(&stream)?;
        }
        I::fill(&mut from, 0, SIZE, round)?;
        I::copy(&mut to, 0, &from, 0, SIZE)?;
        // The fill is on the first stream, after the copy, which is on the other stream.
        I::fill(&mut from, 0, SIZE, u32::MAX)?;
        drop(from);
        same("the copy", &contents(&to, SIZE)?, &words(round, SIZE / 4))?;
        I::set_stream(&mut to, &stream)?;
        I::fill(&mut to, 0, SIZE, 77)?;
        same("on its new stream", &contents(&to, SIZE)?, &words(77, SIZE / 4))?;
    }
    Ok(())
}

fn ranges_outside_are_refused<I: Interface>(interface: &I, source: &I::Resource) -> Outcome {
    let stream = interface.stream()?;
    let (mut buffer, mut other) = (I::allocate(source, 100, &stream)?, I::allocate(source, 100, &stream)?);
    let before = pattern(100, 8);
    buffer.write_bytes(0, &before)?;
    other.write_bytes(0, &before)?;
    for offset in [97, 100, 101, usize::MAX - 3, usize::MAX] {
        refused("a write", buffer.write_bytes(offset, &[0; 4]), Wrong::Range)?;
        refused("a read", buffer.read_bytes(offset, &mut [0; 4]), Wrong::Range)?;
        refused("a copy to", I::copy(&mut buffer, offset, &other, 0, 4), Wrong::Range)?;
        refused("a part", I::slice(&buffer, offset, 4), Wrong::Range)?;
    }
    refused("a copy from", I::copy(&mut buffer, 0, &other, 97, 4), Wrong::Range)?;
    refused("a fill", I::fill(&mut buffer, 98, 4, 0), Wrong::Range)?;
    refused("half a word", I::fill(&mut buffer, 0, 6, 0), Wrong::Alignment)?;
    refused("a word at 2", I::fill(&mut buffer, 2, 4, 0), Wrong::Alignment)?;
    same("the buffer", &contents(&buffer, 100)?, &before)?;
    buffer.write_bytes(100, &[])?;
    Ok(())
}

fn a_pool_gives_memory_and_takes_it_back<I: Interface>(interface: &I, source: &I::Resource) -> Outcome {
    let (stream, other, pool) = (interface.stream()?, interface.stream()?, I::pool(source, 0)?);
    let sizes = [1, 255, 256, 257, 4096, 100_000, 1 << 20, 5 << 20];
    let mut buffers = Vec::new();
    for (number, size) in sizes.into_iter().enumerate() {
        let mut buffer = I::allocate(&pool, size, if number % 2 == 0 { &stream } else { &other })?;
        buffer.write_bytes(0, &pattern(size, number as u8))?;
        buffers.push(buffer);
    }
    for (number, (buffer, size)) in buffers.iter().zip(sizes).enumerate() {
        same("a buffer", &contents(buffer, size)?, &pattern(size, number as u8))?;
    }
    let figures = I::figures(&pool)?;
    let requested = sizes.iter().sum::<usize>() as u64;
    if (figures.requested, figures.blocks) != (requested, sizes.len() as u64) || figures.reserved < requested {
        return Err(format!("{figures:?}").into());
    }
    let address = I::address(&buffers[4]);
    drop(buffers.remove(4));
    buffers.push(I::allocate(&pool, 4096, &stream)?);
    if buffers.last().map(I::address) != Some(address) {
        return Err("the stream did not get its own block back".into());
    }
    drop(buffers);
    I::release_unused(&pool)?;
    let figures = I::figures(&pool)?;
    if (figures.reserved, figures.blocks) != (0, 0) || figures.total.0 != figures.total.1 {
        return Err(format!("after the end of all buffers: {figures:?}").into());
    }
    // The pool starts again, and memory outlives the pool's handle.
    let mut last = I::allocate(&pool, 100, &stream)?;
    drop(pool);
    last.write_bytes(0, &[3; 100])?;
    same("after that", &contents(&last, 100)?, &[3; 100])?;
    Ok(())
}

fn a_pool_keeps_its_limit<I: Interface>(interface: &I, source: &I::Resource) -> Outcome {
    let (stream, pool) = (interface.stream()?, I::pool(source, 4 << 20)?);
    let first = I::allocate(&pool, 3 << 20, &stream)?;
    refused("beyond the limit", I::allocate(&pool, 2 << 20, &stream), Wrong::Memory)?;
    drop(first);
    let second = I::allocate(&pool, 4 << 20, &stream)?;
    refused("beyond the limit", I::allocate(&pool, 1, &stream), Wrong::Memory)?;
    drop(second);
    Ok(())
}

fn streams_of_a_pool_take_over_in_order<I: Interface>(interface: &I, source: &I::Resource) -> Outcome {
    // A chunk of virtual memory.
    const SIZE: usize = 2 << 20;
    let (one, two, pool) = (interface.stream()?, interface.stream()?, I::pool(source, SIZE as u64)?);
    // Fill the whole pool, and delay the work.
    I::delay(&one)?;
    let mut first = I::allocate(&pool, SIZE, &one)?;
    I::fill(&mut first, 0, SIZE, 1)?;
    drop(first);
    let mut second = I::allocate(&pool, SIZE, &two)?;
    I::fill(&mut second, 0, SIZE, 2)?;
    same("the second stream's memory", &contents(&second, SIZE)?, &words(2, SIZE / 4))?;
    Ok(())
}

fn an_engine_copies_every_size<I: Interface>(interface: &I, source: &I::Resource) -> Outcome {
    const ROOM: usize = (1 << 20) + 200;
    let (stream, engine) = (interface.stream()?, interface.engine()?);
    let mut buffer = I::allocate(source, ROOM, &stream)?;
    let mut model = vec![0u8; ROOM];
    buffer.write_bytes(0, &model)?;
    for size in [0, 1, 4, 63, 64, 65, 4096, 65_539, (1 << 20) + 5] {
        for offset in [0, 3, 64, 127] {
            let bytes = pattern(size, (size ^ offset) as u8);
            I::engine_write(&engine, &mut buffer, offset, &bytes)?;
            model[offset..offset + size].copy_from_slice(&bytes);
            let mut seen = vec![0xee; size + 2];
            I::engine_read(&engine, &buffer, offset, &mut seen[1..=size])?;
            same("what the engine read", &seen[1..=size], &bytes)?;
            if (seen[0], seen[size + 1]) != (0xee, 0xee) {
                return Err(format!("a read of {size} bytes wrote outside").into());
            }
            same("the whole", &contents(&buffer, ROOM)?, &model)?;
        }
    }
    Ok(())
}

fn an_engine_refuses_what_lies_outside<I: Interface>(interface: &I, source: &I::Resource) -> Outcome {
    let (stream, engine) = (interface.stream()?, interface.engine()?);
    let mut buffer = I::allocate(source, 100, &stream)?;
    buffer.write_bytes(0, &[5; 100])?;
    for offset in [97, 100, 101, usize::MAX] {
        refused("a write", I::engine_write(&engine, &mut buffer, offset, &[0; 4]), Wrong::Range)?;
        refused("a read", I::engine_read(&engine, &buffer, offset, &mut [0; 4]), Wrong::Range)?;
    }
    I::engine_write(&engine, &mut buffer, 100, &[])?;
    same("the buffer", &contents(&buffer, 100)?, &[5; 100])?;
    Ok(())
}
