//! Contexts, streams, events and threads that begin and end in any order.

use crate::soak::checked_buffer::CheckedBuffer;
use crate::soak::{Done, Hands};
use cuda_mem::memory::DeviceMemory;
use cuda_mem::{Buffer, Event, MappedMemory, Stream, StreamOptions};
use std::cell::RefCell;
use std::sync::mpsc::channel;

/// Runs one of these lifetimes.
pub fn step(hands: &mut Hands<'_>) -> Done {
    match hands.below(4) {
        0 => contexts(hands),
        1 => streams(hands),
        2 => threads(hands),
        _ => far(hands),
    }
}

/// A context whose objects do not end in the order of their creation.
fn contexts(hands: &mut Hands<'_>) -> Done {
    hands.doing("a context of its own");
    let context = hands.world.context.device().create_context()?;
    let bytes = hands.bytes(2000);
    let stream = Stream::new(&context)?;
    let buffer = Buffer::from_slice(&DeviceMemory::new(&context), &bytes, &stream)?;
    let event = Event::new(&context)?;
    event.record(&stream)?;
    let mut mapped = crate::mapped(&MappedMemory::new(&context)?, 500)?;
    if hands.chance(2) {
        drop(context);
    }
    hands.same("memory of a context of its own", &buffer.to_vec()?, &bytes)?;
    mapped.store(0, &bytes[..500])?;
    hands.same("mapped memory of a context of its own", &mapped.read(..)?, &bytes[..500])?;
    if hands.chance(2) {
        drop(stream);
        drop(buffer);
    }
    event.synchronize()?;
    Ok(())
}

/// Streams that wait for each other, and whose host functions run in order.
fn streams(hands: &mut Hands<'_>) -> Done {
    hands.doing("streams and events");
    let context = &hands.world.context;
    let (least, greatest) = Stream::priority_range(context)?;
    let mut options = StreamOptions::default();
    options.priority = greatest.min(least);
    let (first, second) = (Stream::with_options(context, options)?, Stream::new(context)?);
    let (start, end) = (Event::with_timing(context)?, Event::with_timing(context)?);
    start.record(&first)?;
    let (sender, receiver) = channel();
    let other = sender.clone();
    first.launch_host_function(move || sender.send(1).unwrap_or_default())?;
    end.record(&first)?;
    second.wait(&end)?;
    second.launch_host_function(move || other.send(2).unwrap_or_default())?;
    drop(first);
    second.join(&Stream::new(context)?)?;
    hands.doing("the wait for streams and events");
    second.synchronize()?;
    let seen: Vec<i32> = receiver.try_iter().collect();
    hands.ensure(seen == [1, 2], || format!("functions of streams ran as {seen:?}"))?;
    hands.ensure(end.is_done()?, || "an event is not done".to_owned())?;
    start.elapsed(&end)?;
    Ok(())
}

thread_local! {
    /// What a thread holds when it ends.
    static LEFT: RefCell<Vec<CheckedBuffer>> = const { RefCell::new(Vec::new()) };
}

/// A thread that ends with live memory of its own and of another thread.
fn threads(hands: &mut Hands<'_>) -> Done {
    let (held, source) = (hands.take()?, hands.source());
    hands.doing("a thread that ends with live memory");
    let context = hands.world.context.clone();
    let size = source.most.min(1000);
    std::thread::scope(|scope| {
        let resource = &source.resource;
        let thread = scope.spawn(move || -> Done {
            let stream = Stream::new(&context)?;
            let buffer = Buffer::filled(resource, size, 9u8, &stream)?;
            LEFT.with_borrow_mut(|left| {
                left.push(CheckedBuffer::new(buffer, vec![9; size], "a thread"));
                left.push(held);
            });
            Ok(())
        });
        thread.join().unwrap_or_else(|panic| Err(crate::soak::hands::text(&*panic).into()))
    })
}

/// Copies to memory of another device, if there is one, and back.
fn far(hands: &mut Hands<'_>) -> Done {
    let Some(far) = &hands.world.far else { return Ok(()) };
    let (stream, far_stream) = (hands.stream()?, Stream::new(far)?);
    let bytes = hands.bytes(3000);
    hands.doing("memory of another device");
    // The other device cannot access memory of pools.
    let mut here = Buffer::from_slice(&DeviceMemory::new(&hands.world.context), &bytes, &stream)?;
    let mut there = Buffer::<u8, _>::zeroed(&DeviceMemory::new(far), bytes.len(), &far_stream)?;
    there.copy_from_buffer(0, &here, ..)?;
    hands.same("memory of another device", &there.to_vec()?, &bytes)?;
    here.fill(.., 0)?;
    here.copy_from_buffer(0, &there, ..)?;
    hands.same("memory that has been to another device", &here.to_vec()?, &bytes)
}
