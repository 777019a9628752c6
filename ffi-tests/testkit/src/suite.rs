//! The suite over mapped memory: the same cases for every provider, coherence and size.

use crate::interface::{Bytes, MappedBytes, MappedSource, Words, Wrong, refused};
use crate::{MappedBuffer, Setup, mapped, pattern, same};
use cuda_mem::mapped::{CoherencePolicy, MappedMemory};
use cuda_mem::{Error, Stream};
use std::error::Error as StdError;

/// The result of a case. The error is a text.
pub type Outcome = Result<(), Box<dyn StdError>>;

/// The sizes that every case runs with, in bytes.
pub const SIZES: [usize; 8] = [1, 63, 64, 65, 4096, 4097, 1 << 20, 64 << 20];

/// A case of the suite: over memory of one size.
pub type Case = fn(&Setup, &MappedMemory, usize) -> Outcome;

/// A case that holds for every interface.
pub type SharedCase<S> = fn(&S, usize) -> Outcome;

/// The cases that hold for every interface, and their names.
pub fn shared_cases<S: MappedSource>() -> [(&'static str, SharedCase<S>); 6] {
    [
        ("cpu_stores_reach_the_device", cpu_stores_reach_the_device),
        ("device_writes_reach_the_cpu", device_writes_reach_the_cpu),
        ("partial_writes_change_nothing_else", partial_writes_change_nothing_else),
        ("device_writes_in_one_atom_stay", device_writes_in_one_atom_stay),
        ("words_are_volatile_and_in_order", words_are_volatile_and_in_order),
        ("ranges_outside_are_refused", ranges_outside_are_refused),
    ]
}

/// All other cases, named after the property that they check.
pub const CASES: [(&str, Case); 6] = [
    ("guards_flush_and_invalidate", guards_flush_and_invalidate),
    ("a_guard_waits_for_device_work", a_guard_waits_for_device_work),
    ("fills_in_one_atom_stay", fills_in_one_atom_stay),
    ("a_dirty_atom_survives_an_invalidate_beside_it", a_dirty_atom_survives_an_invalidate_beside_it),
    ("parts_share_ownership_and_no_atom", parts_share_ownership_and_no_atom),
    ("guards_and_parts_outside_are_refused", guards_and_parts_outside_are_refused),
];

/// The three coherence wishes and their names.
pub const WISHES: [(&str, CoherencePolicy); 3] = [
    ("preferred", CoherencePolicy::Preferred),
    ("required", CoherencePolicy::Required),
    ("forced_non_coherent", CoherencePolicy::ForcedNonCoherent),
];

/// Offsets to try in memory of a size: around atom boundaries, at the start, at the end.
fn places(size: usize, atom: usize) -> Vec<usize> {
    let unit = atom.max(64);
    let mut places: Vec<usize> = [0, unit, 2 * unit, size / 2 / unit * unit, size / unit * unit, size]
        .into_iter()
        .flat_map(|edge| [-9isize, -2, -1, 0, 1, 2, 9].map(|step| edge.checked_add_signed(step)))
        .flatten()
        .filter(|place| *place <= size)
        .collect();
    places.sort_unstable();
    places.dedup();
    places
}

fn cpu_stores_reach_the_device<S: MappedSource>(resource: &S, size: usize) -> Outcome {
    let mut memory = resource.allocate(size)?;
    let mut seen = vec![0; size];
    for seed in [1, 2] {
        let bytes = pattern(size, seed);
        memory.write_bytes(0, &bytes)?;
        memory.device_read(0, &mut seen)?;
        same("the device", &seen, &bytes)?;
        seen.fill(0);
        memory.read_bytes(0, &mut seen)?;
        same("the CPU", &seen, &bytes)?;
    }
    Ok(())
}

fn device_writes_reach_the_cpu<S: MappedSource>(resource: &S, size: usize) -> Outcome {
    let mut memory = resource.allocate(size)?;
    let mut seen = vec![0; size];
    for seed in [3, 4] {
        let bytes = pattern(size, seed);
        memory.device_write(0, &bytes)?;
        memory.read_bytes(0, &mut seen)?;
        same("the CPU", &seen, &bytes)?;
    }
    Ok(())
}

fn guards_flush_and_invalidate(_: &Setup, resource: &MappedMemory, size: usize) -> Outcome {
    let mut memory = mapped(resource, size)?;
    let (written, bytes) = (pattern(size, 5), pattern(size, 6));
    let mut guard = memory.write(..)?;
    guard.copy_from_slice(&written);
    guard.finish()?;
    let mut seen = vec![0; size];
    memory.copy_to_slice(0, &mut seen)?;
    same("the device, after finish", &seen, &written)?;

    memory.copy_from_slice(0, &bytes)?;
    // Slices of write-combining memory are slow to read, so this checks only a part.
    let part = size - size.min(4096)..size;
    same("the CPU, by a read guard", &memory.read(part.clone())?, &bytes[part.clone()])?;

    memory.write(part.clone())?.fill(0x5a);
    memory.copy_to_slice(0, &mut seen)?;
    same("the device, after a dropped guard", &seen[part.clone()], &vec![0x5a; part.len()])?;
    same("the device, beside the guard", &seen[..part.start], &bytes[..part.start])?;
    Ok(())
}

fn a_guard_waits_for_device_work(setup: &Setup, resource: &MappedMemory, size: usize) -> Outcome {
    let stream = Stream::new(&setup.context)?;
    let mut memory = mapped(resource, size)?;
    memory.set_stream(&stream)?;
    memory.copy_from_slice(0, &vec![0u8; size])?;
    let part = size - size.min(4096)..size;
    for byte in [1u8, 2, 3] {
        // The fill is delayed, so that a guard that does not wait sees the old byte.
        stream.launch_host_function(|| std::thread::sleep(std::time::Duration::from_millis(5)))?;
        memory.fill(.., byte)?;
        same("the CPU", &memory.read(part.clone())?, &vec![byte; part.len()])?;
    }
    stream.launch_host_function(|| std::thread::sleep(std::time::Duration::from_millis(5)))?;
    memory.fill(.., 9)?;
    // The work must not outlive the memory: softgpu reports work on freed memory, and then the stream fails.
    drop(memory);
    stream.synchronize()?;
    Ok(())
}

fn partial_writes_change_nothing_else<S: MappedSource>(resource: &S, size: usize) -> Outcome {
    let mut memory = resource.allocate(size)?;
    let mut model = pattern(size, 7);
    memory.device_write(0, &model)?;
    let places = places(size, memory.atom());
    let mut seed = 0;
    for start in &places {
        for end in places.iter().filter(|end| **end >= *start && **end - *start <= 700) {
            seed += 1;
            let bytes = pattern(end - start, seed as u8);
            memory.write_bytes(*start, &bytes)?;
            model[*start..*end].copy_from_slice(&bytes);
            // What the CPU sees of the range and of its surroundings, and what the device sees.
            let around = start.saturating_sub(300)..size.min(end + 300);
            let mut seen = vec![0; around.len()];
            memory.device_read(around.start, &mut seen)?;
            same(&format!("the device around {start}..{end}"), &seen, &model[around.clone()])?;
            seen.fill(0);
            memory.read_bytes(around.start, &mut seen)?;
            same(&format!("the CPU around {start}..{end}"), &seen, &model[around])?;
        }
    }
    let mut seen = vec![0; size];
    memory.device_read(0, &mut seen)?;
    same("the device, in the end", &seen, &model)?;
    Ok(())
}

/// The device writes again within an atom, before the CPU has fetched the device's earlier writes beside it.
fn device_writes_in_one_atom_stay<S: MappedSource>(resource: &S, size: usize) -> Outcome {
    let (bytes, step) = (pattern(size, 13), (size / 40).max(1));
    let mut memory = resource.allocate(size)?;
    memory.write_bytes(0, &vec![0; size])?;
    let mut shared = resource.allocate_shared(size)?;
    shared.write_bytes(0, &vec![0; size])?;
    for start in (0..size).step_by(step) {
        let part = start..size.min(start + step);
        memory.device_write(part.start, &bytes[part.clone()])?;
        shared.device_write(part.start, &bytes[part])?;
    }
    let mut seen = vec![0; size];
    memory.device_read(0, &mut seen)?;
    same("one owner's device", &seen, &bytes)?;
    memory.read_bytes(0, &mut seen)?;
    same("one owner's CPU", &seen, &bytes)?;
    shared.device_read(0, &mut seen)?;
    same("the device of shared memory", &seen, &bytes)?;
    shared.read_bytes(0, &mut seen)?;
    same("the CPU of shared memory", &seen, &bytes)?;
    Ok(())
}

fn fills_in_one_atom_stay(_: &Setup, resource: &MappedMemory, size: usize) -> Outcome {
    let mut memory = mapped(resource, size)?;
    memory.store(0, &vec![0u8; size])?;
    let mut model = vec![0; size];
    for place in (0..size).step_by((size / 40).max(1)) {
        let part = place..size.min(place + 3);
        memory.fill(part.clone(), place as u8 | 1)?;
        model[part].fill(place as u8 | 1);
    }
    let mut seen = vec![0; size];
    memory.copy_to_slice(0, &mut seen)?;
    same("the device", &seen, &model)?;
    memory.load(0, &mut seen)?;
    same("the CPU", &seen, &model)?;
    Ok(())
}

/// Writes at the beginning as a program does that never drops its guard.
fn write_and_do_not_flush(memory: &mut MappedBuffer, bytes: &[u8]) -> Outcome {
    let mut guard = memory.write(..bytes.len())?;
    guard.copy_from_slice(bytes);
    // The borrow ends here, but softgpu cannot see that.
    softgpu::CpuBorrow::end_all(guard.as_ptr().addr(), guard.len());
    std::mem::forget(guard);
    Ok(())
}

fn a_dirty_atom_survives_an_invalidate_beside_it(_: &Setup, resource: &MappedMemory, size: usize) -> Outcome {
    let mut memory = mapped(resource, size)?;
    memory.copy_from_slice(0, &vec![1u8; size])?;
    let mut first = [0];
    memory.load(0, &mut first)?;
    write_and_do_not_flush(&mut memory, &[2])?;
    // A copy by the driver flushes what guards left behind.
    memory.copy_to_slice(0, &mut first)?;
    same("the device", &first, &[2])?;
    write_and_do_not_flush(&mut memory, &[3])?;
    memory.invalidate(size / 2..)?; // in the same atom for small sizes, outside it for large ones
    memory.invalidate(0..1)?; // always in the same atom
    memory.load(0, &mut first)?;
    same("the CPU", &first, &[3])?;
    memory.copy_to_slice(0, &mut first)?;
    same("the device, in the end", &first, &[3])?;
    Ok(())
}

fn parts_share_ownership_and_no_atom(_: &Setup, resource: &MappedMemory, size: usize) -> Outcome {
    let memory = mapped(resource, size)?;
    let atom = memory.coherence().atom();
    let memory = match (memory.split_at(1), atom) {
        // The memory can always be divided at its end, whatever the atom.
        (Ok((left, right)), _) if atom == 1 || size == 1 => {
            if (left.len(), right.len()) != (1, size - 1) {
                return Err("the parts have other sizes".into());
            }
            drop((left, right));
            mapped(resource, size)?
        }
        (Err(refused), _) if matches!(refused.error, Error::Misaligned { multiple, .. } if multiple == atom) => {
            refused.value
        }
        (other, _) => return Err(format!("dividing at 1 with atoms of {atom} bytes: {other:?}").into()),
    };
    let middle = (size / 2).next_multiple_of(atom).min(size);
    let (mut left, mut right) = memory.split_at(middle)?;
    let bytes = pattern(size, 11);
    right.store(0, &bytes[middle..])?;
    left.store(0, &bytes[..middle])?;
    let mut seen = vec![0; size - middle];
    drop(left); // the other part keeps the memory alive
    right.copy_to_slice(0, &mut seen)?;
    same("the right part", &seen, &bytes[middle..])?;
    Ok(())
}

fn words_are_volatile_and_in_order<S: MappedSource>(resource: &S, size: usize) -> Outcome {
    let mut memory = resource.allocate_shared(size)?;
    for offset in [0, 8, 64, size.saturating_sub(8) / 8 * 8] {
        if offset + 8 > size {
            continue;
        }
        memory.store_u64(offset, 0x0123_4567_89ab_cdef)?;
        let mut seen = [0; 8];
        memory.device_read(offset, &mut seen)?;
        if u64::from_ne_bytes(seen) != 0x0123_4567_89ab_cdef || memory.load_u64(offset)? != u64::from_ne_bytes(seen) {
            return Err(format!("the word at {offset} is {seen:x?}").into());
        }
        memory.device_write(offset, &7u32.to_ne_bytes())?;
        if memory.load_u32(offset)? != 7 {
            return Err(format!("the device's word at {offset} is not seen").into());
        }
        refused("a misaligned word", memory.load_u32(offset + 1), Wrong::Alignment)?;
    }
    refused("a word past the end", memory.load_u64(size.next_multiple_of(8)), Wrong::Range)?;
    Ok(())
}

fn ranges_outside_are_refused<S: MappedSource>(resource: &S, size: usize) -> Outcome {
    let mut memory = resource.allocate(size)?;
    let (bytes, mut room) = ([0u8; 2], [0u8; 2]);
    for offset in [size - 1, size, size + 1, usize::MAX - 1, usize::MAX] {
        refused("a write", memory.write_bytes(offset, &bytes), Wrong::Range)?;
        refused("a read", memory.read_bytes(offset, &mut room), Wrong::Range)?;
        refused("a device's read", memory.device_read(offset, &mut room), Wrong::Range)?;
        refused("a device's write", memory.device_write(offset, &bytes), Wrong::Range)?;
        refused("a flush", memory.flush_bytes(offset, 2), Wrong::Range)?;
        refused("an invalidate", memory.invalidate_bytes(offset, 2), Wrong::Range)?;
    }
    // Empty ranges are valid up to the end of the memory, but not after it.
    memory.write_bytes(size, &[])?;
    memory.read_bytes(size, &mut [])?;
    memory.flush_bytes(size, 0)?;
    refused("a flush of an empty range past the end", memory.flush_bytes(size + 1, 0), Wrong::Range)?;
    Ok(())
}

fn guards_and_parts_outside_are_refused(_: &Setup, resource: &MappedMemory, size: usize) -> Outcome {
    let mut memory = mapped(resource, size)?;
    let refused = |what: &str, result: Result<(), Error>| match result {
        Err(Error::OutOfRange { .. }) => Ok(()),
        other => Err(format!("{what}: {other:?}")),
    };
    for offset in [size - 1, size, size + 1, usize::MAX - 1, usize::MAX] {
        refused("store_scope", memory.store_scope(|scope| scope.store(offset, &[0; 2])))?;
        refused("read", memory.read(offset..=offset.saturating_add(1)).map(drop))?;
        refused("write", memory.write(offset..=offset.saturating_add(1)).map(drop))?;
        refused("flush", memory.flush(offset..=offset.saturating_add(1)))?;
        refused("invalidate", memory.invalidate(offset..=offset.saturating_add(1)))?;
        refused("fill", memory.fill(offset..=offset.saturating_add(1), 0))?;
    }
    drop(memory.read(size..)?);
    let cells = mapped(resource, size)?.into_shared();
    cells.cell::<u8>(size - 1)?.store(0xa5)?;
    refused("a byte past the end", cells.cell::<u8>(size).map(drop))?;
    let other = cells.clone();
    let cells = match cells.try_into_exclusive() {
        Ok(_) => return Err("two values reach exclusive memory".into()),
        Err(refused) => refused.value,
    };
    drop(other);
    let mut alone = cells.try_into_exclusive()?;
    if alone.read(size - 1..)?[..] != [0xa5] {
        return Err("memory lost its contents when it became exclusive".into());
    }
    refused("split_at", memory.split_at(size + 1).map(drop).map_err(Error::from))?;
    Ok(())
}

/// Checks what does not depend on the size.
///
/// # Errors
///
/// An impossible allocation was not refused with its own error.
pub fn impossible_sizes_are_refused<S: MappedSource>(resource: &S) -> Outcome {
    resource.allocate(0)?;
    for size in [1_000_000_000_000_000, usize::MAX / 2 + 1, usize::MAX - 4095, usize::MAX] {
        match resource.allocate(size) {
            Err(refusal) if refusal.wrong == Wrong::Memory => {}
            Err(refusal) if refusal.wrong == Wrong::Argument && isize::try_from(size).is_err() => {}
            // A library may see in advance that no memory can have such a size.
            Err(refusal) if refusal.wrong == Wrong::Other && size > usize::MAX / 2 => {
                println!("{size} bytes: {refusal}");
            }
            Err(refusal) => return Err(format!("{size} bytes: {refusal:?}").into()),
            Ok(_) => return Err(format!("{size} bytes were allocated").into()),
        }
    }
    Ok(())
}

/// Memory keeps its resource alive, in whatever order things are dropped.
///
/// # Errors
///
/// Something was freed too early.
pub fn memory_outlives_its_resource(setup: &Setup) -> Outcome {
    let mut memory = {
        let context = setup.context.device().create_context()?;
        let resource = MappedMemory::new(&context)?;
        mapped(&resource, 4096)?
    };
    memory.store(0, &pattern(4096, 1))?;
    let mut seen = [0; 4096];
    memory.copy_to_slice(0, &mut seen)?;
    same("after resource and context were dropped", &seen, &pattern(4096, 1))?;
    Ok(())
}
