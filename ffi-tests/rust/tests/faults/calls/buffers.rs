//! Runs with memory of every source.

use super::{Outcome, exporter};
use cuda_mem::buffer::GrowableBuffer;
use cuda_mem::buffer::{CopyBatch, Exclusive, Piece};
use cuda_mem::interchange::arrow::ArrayNode;
use cuda_mem::interchange::dlpack::ManagedTensor;
use cuda_mem::interchange::{Consumer, ExportOptions, Release, SharedTensor, TensorDevice};
use cuda_mem::mapped::{CoherencePolicy, MappedMemory};
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{
    DeviceMemory, DevicePool, DriverPoolOptions, Growth, PhysicalMemory, PhysicalOptions, PinnedMemory, PinnedPool,
    ResourceHandle, SharedResource, VirtualMemory, VirtualOptions,
};
use cuda_mem::view::{Index, Order, StridedLayout, StridedView, ViewCopyOptions};
use cuda_mem::{Buffer, DataType, Driver, Error, Event, Stream, StreamOptions};
use std::sync::Arc;
use testkit::{pattern, same};

/// Page-locked memory so large that it is registered.
pub fn large_pinned_memory(driver: &Driver) -> Outcome {
    const SIZE: usize = 256 << 20;
    let context = driver.device(0)?.primary_context()?;
    let stream = Stream::new(&context)?;
    let buffer = Buffer::filled(&PinnedMemory::new(&context), SIZE, 5u8, &stream)?;
    Ok(buffer.close().map_err(|refused| refused.error)?)
}

/// Every operation of cuda-mem on mapped memory, in one run.
pub fn mapped_memory(driver: &Driver) -> Outcome {
    let device = driver.device(0)?;
    device.name()?;
    device.uuid()?;
    device.pci_bus_id()?;
    device.total_memory()?;
    for context in [device.primary_context()?, device.create_context()?] {
        for wish in [CoherencePolicy::Preferred, CoherencePolicy::ForcedNonCoherent] {
            let resource = MappedMemory::with_coherence(&context, wish)?;
            let mut memory = testkit::mapped(&resource, 4097)?;
            let stream = Stream::new(&context)?;
            memory.store(0, &pattern(4097, 1))?;
            memory.store_scope(|scope| scope.store(100, &[1u8; 7]))?;
            memory.flush(..)?;
            memory.invalidate(50..60)?;
            let mut seen = vec![0u8; 4097];
            memory.load(0, &mut seen)?;
            testkit::fill_on(&mut memory, 64..128, 9, &stream)?;
            same("the fill", &memory.read(64..128)?, &[9; 64])?;
            memory.write(200..300)?.fill(3);
            memory.write(300..400)?.finish()?;
            memory.copy_from_slice(0, &pattern(4097, 2))?;
            memory.copy_to_slice(0, &mut seen)?;
            same("the copy", &seen, &pattern(4097, 2))?;
            testkit::fill_on(&mut memory, .., 4, &stream)?;
            let (left, right) = memory.split_at(2048)?;
            drop(left);
            let shared = right.into_shared();
            shared.cell::<u32>(0)?.store(7)?;
            if shared.cell::<u32>(0)?.load()? != 7 {
                return Err("the word".into());
            }
            let twin = resource.import::<u8>(resource.export(&shared)?, &stream)?;
            let mut word = [0; 4];
            twin.load(0, &mut word)?;
            if word != 7u32.to_ne_bytes() {
                return Err("the twin's word".into());
            }
        }
    }
    Ok(())
}

/// Buffers of pools and of plain memory: all their work, and the settings of pools.
pub fn buffers(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.primary_context()?;
    let (stream, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let mut options = DriverPoolOptions::default();
    options.accessible_from = vec![driver.device(1)?];
    let pool = DevicePool::new(&context, &options)?;
    let memory = DeviceMemory::new(&context);
    let mut buffer = Buffer::from_slice(&pool, &pattern(3000, 1), &stream)?;
    let mut plain = Buffer::filled(&memory, 3000, 0x0123_4567_89ab_cdefu64, &other)?;
    plain.fill(1.., 7)?;
    plain.copy_within(..10, 20)?;
    let bytes = plain.cast::<u8>().map_err(Error::from)?;
    buffer.copy_from_buffer(0, &bytes, ..3000)?;
    buffer.equals(&bytes)?;
    let mut batch = CopyBatch::new(&other);
    batch.copy(&mut buffer, 0, &bytes, 0..100)?;
    batch.submit()?;
    // By the kernel, which each new context loads.
    let own = driver.device(0)?.create_context()?;
    let home = Stream::new(&own)?;
    let pieces: Vec<Piece> = (0..200).map(|n| Piece { to: 10 * n, from: 10 * n + 5, length: 7 }).collect();
    let from = Buffer::from_slice(&DeviceMemory::new(&own), &pattern(2010, 3), &home)?;
    let mut to = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&own), 2000, &home)?;
    let mut batch = CopyBatch::new(&home);
    batch.copy_pieces(&mut to, &from, &pieces)?;
    batch.submit()?;
    let copied = to.to_vec()?;
    let is_copied = |piece: &Piece| copied[piece.to..piece.to + 7] == pattern(2010, 3)[piece.from..piece.from + 7];
    if !pieces.iter().all(is_copied) {
        return Err("the pieces".into());
    }
    drop((from, to));
    let upload = buffer.upload(0, pattern(3000, 2)).map_err(Error::from)?;
    let seen = buffer.download(0, vec![0; 3000]).map_err(Error::from)?.wait()?;
    same("the transfers", &seen, &upload.wait()?)?;
    buffer.set_stream(&other)?;
    let (left, right) = buffer.split_at(1000).map_err(Error::from)?;
    left.close().map_err(Error::from)?;
    let shared = right.into_shared();
    let part = shared.slice(5..)?;
    drop(shared);
    let far = driver.device(1)?.primary_context()?;
    let far_stream = Stream::new(&far)?;
    let mut there = Buffer::<u8, _>::zeroed(&DevicePool::current(&far)?, 1995, &far_stream)?;
    there.copy_from_buffer(0, &part, ..)?;
    same("the copy", &there.to_vec()?, &part.to_vec()?)?;
    // SAFETY: the part outlives the view.
    let view = unsafe { Buffer::<u8, Any>::from_raw(part.device_pointer(), 10, &stream) }?;
    drop((view, there));
    pool.attributes()?;
    pool.reset_high_marks()?;
    pool.trim_to(0)?;
    pool.accessible_from()?;
    pool.deny_access(&driver.device(1)?)?;
    part.try_into_exclusive().map_err(Error::from)?.close_on(&stream).map_err(Error::from)?;
    bytes.close().map_err(Error::from)?;
    Ok(())
}

fn view<'a>(buffer: &'a mut Buffer<u8>, layout: &StridedLayout) -> Result<StridedView<'a, Exclusive>, Error> {
    StridedView::exclusive(buffer, DataType::UINT8, layout.clone())
}

/// Copies between strided views: packed by the CPU, by kernels, between devices, with temporary memory of both.
pub fn strided_copies(driver: &Driver) -> Outcome {
    let (context, far) = (driver.device(0)?.primary_context()?, driver.device(1)?.primary_context()?);
    let (stream, other, far_stream) = (Stream::new(&context)?, Stream::new(&context)?, Stream::new(&far)?);
    let device = DevicePool::new(&context, &DriverPoolOptions::default())?.share();
    let (pinned, there) = (PinnedMemory::new(&context).share(), DeviceMemory::new(&far).share());
    let matrix = StridedLayout::dense(&[6, 10], 1, Order::C)?;
    let turned = StridedLayout::dense(&[10, 6], 1, Order::C)?.permuted(&[1, 0])?;
    let even = StridedLayout::dense(&[6, 20], 1, Order::C)?.sliced(&[Index::ALL, Index::ALL.step(2)])?;
    let (bytes, mut seen) = (pattern(120, 1), vec![0u8; 120]);
    let host = |layout: &StridedLayout| StridedView::of_slice(&bytes[..layout.required_size()?], layout.clone());
    let make = |resource: &SharedResource, home: &Stream| Buffer::from_slice(resource, &[0u8; 120], home);
    let mut options = ViewCopyOptions::default();
    for temporary in [None, Some(&pinned), Some(&device)] {
        options.temporary = temporary;
        let (mut near, mut locked) = (make(&device, &stream)?, make(&pinned, &other)?);
        let mut away = make(&there, &far_stream)?;
        view(&mut near, &even)?.copy_from_with(&host(&even)?, &options)?;
        view(&mut locked, &matrix)?.copy_from_with(&view(&mut near, &even)?, &options)?;
        view(&mut away, &turned)?.copy_from_with(&view(&mut near, &even)?, &options)?;
        view(&mut near, &turned)?.copy_from_with(&view(&mut locked, &matrix)?, &options)?;
        let layout = StridedLayout::dense(&[6, 20], 1, Order::F)?.sliced(&[Index::ALL, Index::ALL.step(2)])?;
        let mut back = StridedView::of_mut_slice(&mut seen, layout)?;
        back.copy_from_with(&view(&mut near, &turned)?, &options)?;
        let wanted = host(&even)?.to_vec::<u8>()?;
        same("there and back", &back.into_shared().to_vec::<u8>()?, &wanted)?;
        same("the other device's", &view(&mut away, &turned)?.into_shared().to_vec::<u8>()?, &wanted)?;
    }
    Ok(())
}

/// Streams, events, host functions.
pub fn streams(driver: &Driver) -> Outcome {
    let context = driver.device(1)?.primary_context()?;
    context.memory_info()?;
    let (least, greatest) = Stream::priority_range(&context)?;
    let mut options = StreamOptions::default();
    options.priority = greatest.min(least);
    let (first, second) = (Stream::with_options(&context, options)?, Stream::new(&context)?);
    let (start, end) = (Event::with_timing(&context)?, Event::with_timing(&context)?);
    start.record(&first)?;
    let (sender, receiver) = std::sync::mpsc::channel();
    first.launch_host_function(move || sender.send(1).unwrap_or_default())?;
    end.record(&first)?;
    second.wait(&end)?;
    second.join(&first)?;
    assert_ne!(second.id(), first.id());
    second.synchronize()?;
    if receiver.recv()? != 1 || !second.is_done()? || !end.is_done()? {
        return Err("the order".into());
    }
    end.synchronize()?;
    start.elapsed(&end)?;
    Stream::legacy_default(&context).synchronize()?;
    context.synchronize()?;
    Ok(())
}

/// Virtual memory: allocates, grows in place and by moving, shrinks, maps again, frees. A failed step must leave
/// everything unchanged.
pub fn virtual_memory(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.primary_context()?;
    let stream = Stream::new(&context)?;
    let mut options = VirtualOptions::default();
    options.shareable = true;
    options.peers = vec![driver.device(1)?];
    let memory = VirtualMemory::new(&context, &options)?;
    let unit = memory.granularity();
    let buffer = Buffer::filled(&memory, 100, 7u8, &stream)?;
    same("a buffer", &buffer.to_vec()?, &[7; 100])?;
    // SAFETY: both buffers are used in the order of one stream.
    let alias = unsafe { memory.map(&memory.physical_memory(&buffer), &stream) }?;
    buffer.close().map_err(Error::from)?;
    same("its alias", &alias.to_vec()?[..100], &[7; 100])?;
    drop(alias);
    drop(PhysicalMemory::new(&context, 1, &PhysicalOptions::default())?);

    let mut growable = GrowableBuffer::<u8>::with_capacity(&memory, 2 * unit, &stream)?;
    let mut model = Vec::new();
    for (length, moves) in [(10, false), (unit + 1, false), (3 * unit, true), (100, false), (2 * unit, false)] {
        let (before, address, physical) = (growable.len(), growable.device_pointer(), growable.physical_size());
        let done = if length < before {
            growable.shrink_to(length).map(|()| Growth::InPlace)
        } else {
            growable.grow_to(length)
        };
        match done {
            Ok(growth) => {
                assert_eq!((growth == Growth::Moved, growable.device_pointer() != address), (moves, moves));
                model.resize(length, 0);
            }
            Err(error) => {
                let after = (growable.len(), growable.device_pointer(), growable.physical_size());
                assert_eq!(after, (before, address, physical), "a step that failed: {error}");
                same("after a step that failed", &growable.to_vec()?, &model)?;
                return Err(error.into());
            }
        }
        growable.copy_from_slice(0, &pattern(10, length as u8))?;
        model[..10].copy_from_slice(&pattern(10, length as u8));
        same("a growable buffer", &growable.to_vec()?, &model)?;
    }
    growable.into_buffer().close().map_err(Error::from)?;

    let memory = VirtualMemory::host_numa(&context, 0, &VirtualOptions::default())?;
    let mut buffer = Buffer::<u8, _>::zeroed(&memory, 100, &stream)?;
    buffer.write(..)?.fill(5);
    same("memory of the host", &buffer.to_vec()?, &[5; 100])?;
    Ok(())
}

/// Buffers of mapped memory.
pub fn mapped_buffers(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.primary_context()?;
    let stream = Stream::new(&context)?;
    for wish in [CoherencePolicy::Preferred, CoherencePolicy::ForcedNonCoherent] {
        let resource = MappedMemory::with_coherence(&context, wish)?;
        let mut buffer = Buffer::from_slice(&resource, &pattern(4097, 1), &stream)?;
        buffer.write(100..200)?.fill(1);
        buffer.write(200..300)?.finish()?;
        same("the CPU's writes", &buffer.read(100..200)?, &[1; 100])?;
        buffer.fill(.., 3)?;
        same("the device's", &buffer.read(..)?, &[3; 4097])?;
        buffer.close().map_err(Error::from)?;
        drop(Buffer::<u32, _>::zeroed(&resource, 10, &stream)?);
    }
    Ok(())
}

/// Exports and imports of this process's memory and of another process's.
pub fn sharing(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.primary_context()?;
    let (stream, other_stream) = (Stream::new(&context)?, Stream::new(&context)?);
    let mut options = DriverPoolOptions::default();
    options.shareable = true;
    let pool = DevicePool::new(&context, &options)?;
    let memory = Buffer::from_slice(&pool, &exporter::bytes(), &stream)?.into_shared();
    let (theirs, ours) = (exporter::exported()?, (pool.export()?, memory.slice(10..900)?.export()?));
    for (foreign, (of_pool, of_memory)) in [(false, &ours), (true, &theirs.device)] {
        let pool = DevicePool::import(&context, of_pool.try_clone()?)?;
        if pool.is_imported() != foreign {
            return Err("the pool".into());
        }
        let one = pool.import_buffer::<u8>(of_memory, &stream)?;
        let two = pool.import_buffer::<u8>(of_memory, &other_stream)?;
        same("one import", &one.to_vec()?, &exporter::bytes()[10..900])?;
        drop(one);
        same("another", &two.to_vec()?, &exporter::bytes()[10..900])?;
    }
    let (of_pool, of_memory) = &theirs.pinned;
    let import = PinnedPool::import(&context, of_pool.try_clone()?)?;
    same("host memory", &import.import_buffer::<u8>(of_memory, &stream)?.to_vec()?, &exporter::bytes())?;
    let pool = PinnedPool::on_numa_node(&context, 0, &options)?;
    let memory = Buffer::from_slice(&pool, &pattern(1000, 3), &stream)?.into_shared();
    same("its own", &pool.import_buffer::<u8>(&memory.export()?, &stream)?.to_vec()?, &pattern(1000, 3))?;

    let mut options = VirtualOptions::default();
    options.shareable = true;
    let virtual_memory = VirtualMemory::new(&context, &options)?;
    let memory = Buffer::from_slice(&virtual_memory, &pattern(1000, 4), &stream)?.into_shared();
    let import = virtual_memory.import::<u8>(virtual_memory.export(&memory.slice(10..)?)?, &stream)?;
    same("virtual memory", &import.to_vec()?, &pattern(1000, 4)[10..])?;

    let plain = DeviceMemory::new(&context);
    let memory = Buffer::from_slice(&plain, &pattern(100, 2), &stream)?.into_shared();
    same("plain memory", &plain.import_buffer::<u8>(&memory.export()?, &stream)?.to_vec()?, &pattern(100, 2))?;
    let event = Event::shareable(&context)?;
    event.record(&stream)?;
    event.export()?;
    Ok(())
}

/// Memory exported and imported through each protocol. The producer's side must end on every path.
pub fn interchange(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.primary_context()?;
    let (ours, theirs) = (Stream::new(&context)?, Stream::new(&context)?);
    let pinned = PinnedMemory::new(&context).share();
    let buffer = Buffer::<u8, _>::filled(&DeviceMemory::new(&context), 256, 7, &ours)?.into_shared();
    let options = ExportOptions { consumer: Consumer::Stream(&theirs), ..Default::default() };
    let take = |managed: ManagedTensor| -> Result<SharedTensor, Error> {
        // SAFETY: the tensor was exported just now, and its stream orders the memory.
        unsafe { ManagedTensor::from_versioned(managed.into_versioned())?.check()?.into_shared(&theirs, Some(&ours)) }
    };
    let seen = take(buffer.tensor().to_dlpack(&options)?)?;
    let said = seen.cuda_array_interface()?;
    // SAFETY: the tensor owns the memory.
    let again = unsafe { said.import_cuda(Arc::new(seen.clone()), &ours, false) }?;
    same("the array", &again.memory()?.to_vec()?, &[7; 256])?;
    drop((again, seen));
    let copying = ExportOptions { device: Some(TensorDevice::Cpu), resource: Some(&pinned), ..Default::default() };
    same("the copy", &take(buffer.tensor().to_dlpack(&copying)?)?.memory()?.to_vec()?, &[7; 256])?;
    let after = ExportOptions { release: Release::AfterContext, ..Default::default() };
    drop(buffer.tensor().to_dlpack(&after)?);
    let bytes = buffer.tensor().memory()?.clone();
    let node = ArrayNode { length: 256, buffers: vec![None, Some(bytes)], ..Default::default() };
    let array = node.export(&theirs)?.check()?;
    drop(node);
    // SAFETY: the array was exported just now.
    unsafe { array.wait(&ours)? };
    // SAFETY: as above, and the buffer has 256 bytes.
    same("the column", &unsafe { array.buffer(array.node().buffers[1], 256, &ours) }?.to_vec()?, &[7; 256])?;
    array.release_after(&ours)?;
    buffer.close().map_err(Error::from)?;
    Ok(())
}
