//! Forgotten guards: their borrows end without their drops.

use crate::Setup;
use crate::soak::child::{self, Other};
use crate::soak::{Done, Hands};
use cuda_mem::graph::{CaptureMode, RelaxedCalls};
use cuda_mem::memory::PinnedMemory;
use cuda_mem::view::Index;
use cuda_mem::{Buffer, HostBuffer, Stream};
use softgpu::CpuBorrow;

/// Forgets a value, whether its drop does something or not.
fn lose<T>(value: T) {
    std::mem::forget(value);
}

/// Forgets a guard, and tells softgpu that the borrow is over, because softgpu cannot see it.
fn forget<G>(guard: G, bytes: &[u8]) {
    CpuBorrow::end_all(bytes.as_ptr().addr(), bytes.len());
    std::mem::forget(guard);
}

/// Forgets one value.
pub fn step(hands: &mut Hands<'_>) -> Done {
    match hands.below(24) {
        0..8 => buffers(hands),
        8..16 => mapped(hands),
        16..20 => views(hands),
        20..23 => of_the_thread(hands),
        // Driver objects of forgotten values stay until their process ends, so this happens in another process.
        _ => {
            hands.doing("a process that forgets");
            Other::start(child::FORGETTER)?.finish(false)
        }
    }
}

/// Guards of memory that the CPU may use.
fn buffers(hands: &mut Hands<'_>) -> Done {
    let (stream, size) = (hands.stream()?, hands.size(1 << 12));
    let mut model = hands.bytes(size);
    hands.doing("a forgotten guard");
    let mut buffer = Buffer::from_slice(&PinnedMemory::new(&hands.world.context), &model, &stream)?;
    for _ in 0..1 + hands.below(4) {
        let (range, byte) = (hands.range(size), hands.number() as u8);
        lose(buffer.read(range.clone())?);
        let mut guard = buffer.write(range.clone())?;
        guard.fill(byte);
        let bytes: *const [u8] = &*guard;
        // SAFETY: the memory outlives the guard, and nothing writes it until the next call.
        forget(guard, unsafe { &*bytes });
        model[range.clone()].fill(byte);
        if hands.chance(2) {
            let filled = hands.range(size);
            buffer.fill(filled.clone(), !byte)?;
            model[filled].fill(!byte);
        }
    }
    hands.same("memory whose guard was forgotten", &buffer.to_vec()?, &model)
}

/// Guards of mapped memory.
fn mapped(hands: &mut Hands<'_>) -> Done {
    if hands.world.mapped.is_empty() {
        return Ok(());
    }
    let choice = hands.below(hands.world.mapped.len());
    let (resource, stream, size) = (&hands.world.mapped[choice], hands.stream()?, hands.size(1 << 12));
    hands.doing("a forgotten guard of mapped memory");
    let (mut memory, mut model) = (crate::mapped(resource, size)?, hands.bytes(size));
    memory.set_stream(&stream)?;
    memory.store(0, &model)?;
    for _ in 0..1 + hands.below(4) {
        let range = hands.range(size);
        let bytes = hands.bytes(range.len());
        match hands.below(3) {
            0 => lose(memory.read(range)?),
            1 => {
                let mut guard = memory.write(range.clone())?;
                guard.copy_from_slice(&bytes);
                let written: *const [u8] = &*guard;
                // SAFETY: the memory outlives the guard, and nothing writes it until the next call.
                forget(guard, unsafe { &*written });
                model[range].copy_from_slice(&bytes);
            }
            _ => {
                memory.store_scope(|scope| scope.store(range.start, &bytes))?;
                model[range].copy_from_slice(&bytes);
            }
        }
        if hands.chance(2) {
            let (filled, byte) = (hands.range(size), hands.number() as u8);
            memory.fill(filled.clone(), byte)?;
            model[filled].fill(byte);
        }
    }
    // The writes of a forgotten guard are still marked, so the invalidate flushes them to the device first.
    memory.invalidate(..)?;
    let mut seen = vec![0; size];
    memory.copy_to_slice(0, &mut seen)?;
    hands.same("mapped memory whose guard was forgotten", &seen, &model)
}

/// Guards of views.
fn views(hands: &mut Hands<'_>) -> Done {
    let (stream, rows) = (hands.stream()?, 1 + hands.below(60));
    let mut model = hands.bytes(4 * rows);
    hands.doing("a forgotten guard of a view");
    let mut buffer = Buffer::from_slice(&PinnedMemory::new(&hands.world.context), &model, &stream)?;
    let row = hands.below(rows);
    {
        let mut view = buffer.view_mut(&[rows as i64, 4])?.sliced(&[Index::At(row as i64)])?;
        lose(view.read::<u8>()?);
        let mut elements = view.write::<u8>()?;
        let byte = hands.number() as u8;
        elements.iter_mut().for_each(|element| *element = byte);
        model[4 * row..][..4].fill(byte);
        let written: *const [u8] = elements.as_slice().ok_or("a row lies in one piece")?;
        // SAFETY: the buffer outlives the guard, and nothing writes it until the next call.
        forget(elements, unsafe { &*written });
    }
    hands.same("memory whose view's guard was forgotten", &buffer.to_vec()?, &model)
}

/// Forgets what belongs to a thread: bindings and capture modes. The thread ends with its round.
fn of_the_thread(hands: &mut Hands<'_>) -> Done {
    hands.doing("a forgotten binding");
    let (context, bytes) = (hands.world.context.clone(), hands.bytes(100));
    let own = context.device().create_context()?;
    // Use a separate thread, because its context stack stays deeper from now on.
    let thread = std::thread::spawn(move || -> Done<Vec<u8>> {
        lose(own.bind()?);
        drop(own);
        lose(context.bind()?);
        lose(RelaxedCalls::begin(context.driver())?);
        let stream = Stream::new(&context)?;
        Ok(Buffer::from_slice(&PinnedMemory::new(&context), &bytes, &stream)?.to_vec()?.into_iter().rev().collect())
    });
    let seen = thread.join().unwrap_or_else(|panic| Err(crate::soak::hands::text(&*panic).into()))?;
    hands.ensure(seen.len() == 100, || "memory of a thread with forgotten bindings".to_owned())
}

/// Runs in the process that forgets values which hold driver objects: transfers, recordings of captures, streams.
///
/// # Errors
///
/// A step failed, or memory does not hold what it should.
pub fn in_a_process(setup: &Setup) -> Result<(), Box<dyn std::error::Error>> {
    let (stream, pinned) = (Stream::new(&setup.context)?, PinnedMemory::new(&setup.context));
    for byte in 0..20_u8 {
        let mut buffer = Buffer::filled(&pinned, 5000, byte, &stream)?;
        let host = HostBuffer::<u8>::zeroed(&pinned, 5000)?;
        match byte % 4 {
            0 => lose(buffer.download(0, host)?),
            1 => lose(buffer.upload(0, vec![byte; 100])?),
            2 => {
                let part = buffer.try_clone()?;
                // The recorded graph is never instantiated.
                lose(stream.capture(CaptureMode::Relaxed, |_| {
                    lose(part);
                    Ok(())
                }));
            }
            _ => lose((host, Stream::new(&setup.context)?)),
        }
        if buffer.to_vec()? != [byte; 5000] {
            return Err(format!("memory beside the forgotten guard's changed from {byte}").into());
        }
    }
    match softgpu::misuse().first() {
        Some(misuse) => Err(format!("misused: {misuse}").into()),
        None => Ok(()),
    }
}
