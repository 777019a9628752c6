//! Every driver call fails in turn: each time a named error, no panic, no hang, nothing left behind.
//!
//! A run is made once without faults to count its calls; then it is made again for each call, with that call failing.
//! One test at a time: faults and the ledger are one for the process.

use cuda_mem::adaptor::{GuardOptions, Guarded};
use cuda_mem::buffer::{CopyBatch, Exclusive, Rows, transfer_scope};
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::interchange::arrow::ArrayNode;
use cuda_mem::interchange::dlpack::ManagedTensor;
use cuda_mem::interchange::{Consumer, ExportOptions, Release, SharedTensor, TensorDevice};
use cuda_mem::ipc::PoolExport;
use cuda_mem::mapped::{CoherenceWish, MappedResource};
use cuda_mem::memory::{
    DeviceMemory, DevicePool, DriverPoolOptions, GrowableBuffer, Growth, PhysicalMemory, PhysicalOptions, PinnedMemory,
    PinnedPool, ResourceHandle, SharedResource, VirtualMemory, VirtualOptions,
    kind::{Any, Kind},
};
use cuda_mem::pool::{FixedSizeOptions, FixedSizePool, RingOptions, RingPool};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::signal::{Comparison, SignalKernels, Signals, WaitPolicy, Waiter};
use cuda_mem::view::{Index, Order, StridedLayout, StridedView, ViewCopyOptions};
use cuda_mem::{Buffer, DataType, Driver, Error, Event, Stream, StreamOptions};
use ffi_tests::descriptors::{at, flipped};
use ffi_tests::{pattern, same};
use softgpu::Fault;
use std::error::Error as StdError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

type Outcome = Result<(), Box<dyn StdError>>;

/// All that the facade does with mapped memory, in one run.
fn mapped_memory(driver: &Driver) -> Outcome {
    let device = driver.device(0)?;
    device.name()?;
    device.uuid()?;
    device.pci_bus_id()?;
    device.total_memory()?;
    for context in [device.primary_context()?, device.create_context()?] {
        for wish in [CoherenceWish::Preferred, CoherenceWish::ForcedNonCoherent] {
            let resource = MappedResource::with_coherence(&context, wish)?;
            let mut memory = resource.allocate(4097)?;
            let stream = Stream::new(&context)?;
            memory.copy_from_slice(0, &pattern(4097, 1))?;
            memory.store_from_slice(100, &[1u8; 7])?;
            memory.flush(..)?;
            memory.invalidate(50..60)?;
            let mut seen = vec![0u8; 4097];
            memory.device_read(0, &mut seen)?;
            memory.device_fill(64..128, 9, &stream)?;
            same("the fill", &memory.read(64..128)?, &[9; 64])?;
            memory.write(200..300)?.fill(3);
            memory.write(300..400)?.finish()?;
            memory.device_write(0, &pattern(4097, 2))?;
            memory.copy_to_slice(0, &mut seen)?;
            same("the copy", &seen, &pattern(4097, 2))?;
            memory.device_fill(.., 4, &stream)?;
            let (left, right) = memory.split_at(2048)?;
            drop(left);
            let shared = right.into_shared();
            shared.cell::<u32>(0)?.store(7)?;
            if shared.cell::<u32>(0)?.load()? != 7 {
                return Err("the word".into());
            }
            let twin = resource.import(shared.export()?)?;
            let mut word = [0u32];
            twin.copy_to_slice(0, &mut word)?;
            if word != [7] {
                return Err("the twin's word".into());
            }
        }
    }
    Ok(())
}

/// Buffers of pools and of plain memory: all their work, and pools' settings.
fn buffers(driver: &Driver) -> Outcome {
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
    buffer.copy_rows_from_buffer(Rows::dense(10), &bytes, Rows { offset: 3, pitch: 12 }, 10, 10)?;
    let mut batch = CopyBatch::new(&other);
    batch.copy(&mut buffer, 0, &bytes, 0..100)?;
    batch.submit()?;
    let upload = buffer.upload(0, pattern(3000, 2)).map_err(Error::from)?;
    let seen = buffer.download(0, vec![0; 3000]).map_err(Error::from)?.wait()?;
    same("the transfers", &seen, &upload.wait()?)?;
    transfer_scope(|scope| scope.upload(&mut buffer, 0, &[1, 2, 3]))?;
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
    // SAFETY: the part outlives the view of it.
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
fn strided_copies(driver: &Driver) -> Outcome {
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
fn streams(driver: &Driver) -> Outcome {
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
    second.id()?;
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

/// Virtual memory: allocate, grow in place and elsewhere, shrink, map again, free. After each step that failed, what was
/// there is as it was.
fn virtual_memory(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.primary_context()?;
    let stream = Stream::new(&context)?;
    let mut options = VirtualOptions::default();
    options.shareable = true;
    options.peers = vec![driver.device(1)?];
    let memory = VirtualMemory::new(&context, &options)?;
    let unit = memory.granularity();
    let buffer = Buffer::filled(&memory, 100, 7u8, &stream)?;
    same("a buffer", &buffer.to_vec()?, &[7; 100])?;
    // SAFETY: both buffers are used in order of one stream.
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
fn mapped_buffers(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.primary_context()?;
    let stream = Stream::new(&context)?;
    for wish in [CoherenceWish::Preferred, CoherenceWish::ForcedNonCoherent] {
        let resource = MappedResource::with_coherence(&context, wish)?;
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

/// Exports and imports, with descriptors that seem to be another process's, and with what they are.
fn sharing(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.primary_context()?;
    let (stream, other_stream) = (Stream::new(&context)?, Stream::new(&context)?);
    let mut options = DriverPoolOptions::default();
    options.shareable = true;
    let pool = DevicePool::new(&context, &options)?;
    let memory = Buffer::from_slice(&pool, &pattern(1000, 1), &stream)?.into_shared();
    for foreign in [false, true] {
        let (file, mut of_pool) = pool.export()?.into_parts();
        let mut of_memory = memory.slice(10..900)?.export()?;
        if foreign {
            (of_pool, of_memory) = (flipped(&of_pool, at::NONCE)?, flipped(&of_memory, at::NONCE)?);
        }
        let pool = DevicePool::import(&context, PoolExport::from_parts(file, of_pool))?;
        if pool.is_imported() != foreign {
            return Err("the pool".into());
        }
        let one = pool.import_buffer::<u8>(&of_memory, &stream)?;
        let two = pool.import_buffer::<u8>(&of_memory, &other_stream)?;
        same("one import", &one.to_vec()?, &pattern(1000, 1)[10..900])?;
        drop(one);
        same("another", &two.to_vec()?, &pattern(1000, 1)[10..900])?;
    }
    let pool = PinnedPool::on_numa_node(&context, 0, &options)?;
    let memory = Buffer::from_slice(&pool, &pattern(1000, 3), &stream)?.into_shared();
    let (file, of_pool) = pool.export()?.into_parts();
    let of_memory = flipped(&memory.export()?, at::NONCE)?;
    let import = PinnedPool::import(&context, PoolExport::from_parts(file, flipped(&of_pool, at::NONCE)?))?;
    same("host memory", &import.import_buffer::<u8>(&of_memory, &stream)?.to_vec()?, &pattern(1000, 3))?;

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

/// A pool over several sources: growth, waits, reuse across streams, trimming, the fallback, and its end. After an error the
/// pool goes on.
fn pools(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.primary_context()?;
    let (one, two) = (Stream::new(&context)?, Stream::new(&context)?);
    let mut settings = PoolOptions::default();
    settings.initial = 1 << 16;
    settings.smallest_growth = 1 << 16;
    settings.maximum = 1 << 18;
    settings.front_capacity = 1 << 12;
    pool_work(&Pool::new(&DeviceMemory::new(&context), &settings)?, &one, &two)?;
    pool_work(&Pool::new(&PinnedMemory::new(&context), &settings)?, &one, &two)?;
    let upstream = DevicePool::new(&context, &DriverPoolOptions::default())?;
    pool_work(&Pool::with_fallback(&upstream, &DeviceMemory::new(&context), &settings)?, &one, &two)
}

fn pool_work<K: Kind>(pool: &Pool<K>, one: &Stream, two: &Stream) -> Outcome {
    let work = || -> Outcome {
        let (open, gate) = std::sync::mpsc::channel::<()>();
        // Until the other end is dropped, also by an error.
        one.launch_host_function(move || gate.recv().unwrap_or_default())?;
        drop(Buffer::<u8, _>::uninit(pool, 1 << 16, one)?);
        // The other stream waits; then the pool grows.
        let second = Buffer::<u8, _>::uninit(pool, 1 << 16, two)?;
        drop(open);
        two.synchronize()?;
        let third = Buffer::filled(pool, 1 << 17, 3u8, one)?;
        let small = Buffer::filled(pool, 100, 4u8, one)?;
        same("the third", &third.to_vec()?, &[3; 1 << 17])?;
        drop((second, third, small));
        // All of it, in one piece.
        let large = Buffer::filled(pool, 1 << 18, 5u8, two)?;
        same("the large one", &large.to_vec()?, &[5; 1 << 18])?;
        let beyond = Buffer::filled(pool, 100, 6u8, one);
        drop(large);
        match beyond {
            Err(Error::OutOfMemory { .. }) => {}
            other => drop(other?),
        }
        pool.trim_to(0)?;
        pool.reserve(1 << 17)?;
        pool.release_stream(one)?;
        pool.release_unused()?;
        Ok(())
    };
    let outcome = work();
    let statistics = pool.statistics();
    assert_eq!((statistics.blocks.current, statistics.requested.current), (0, 0), "{outcome:?}");
    if outcome.is_err() {
        // There was one fault; the pool is as good as before.
        let again = Buffer::filled(pool, 1 << 16, 7u8, two)?;
        same("after the fault", &again.to_vec()?, &[7; 1 << 16])?;
    }
    outcome
}

/// A pool of one size and a ring, with memory that goes from stream to stream. What has passed when it is asked for does
/// not depend on time.
fn fixed_and_ring_pools(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.primary_context()?;
    let (stream, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let mut settings = FixedSizeOptions::default();
    settings.blocks_per_slab = 2;
    let pool = FixedSizePool::new(&DeviceMemory::new(&context), 300, &settings)?;
    let (one, two) = (Buffer::filled(&pool, 300, 1u8, &stream)?, Buffer::filled(&pool, 300, 1u8, &stream)?);
    {
        // Ends before the pool does, which waits for the stream.
        let (gate, closed) = std::sync::mpsc::channel::<()>();
        stream.launch_host_function(move || closed.recv().unwrap_or_default())?;
        drop((one, two));
        let waiting = Buffer::filled(&pool, 300, 2u8, &other)?;
        drop(gate);
        same("a block that was waited for", &waiting.to_vec()?, &[2; 300])?;
    }
    stream.synchronize()?;
    other.synchronize()?;
    for number in 0..3u8 {
        let buffers = [&stream, &other, &stream].map(|home| Buffer::filled(&pool, 300, number, home));
        for buffer in buffers {
            let buffer = buffer?;
            same("a block", &buffer.to_vec()?, &[number; 300])?;
            buffer.close().map_err(Error::from)?;
        }
        pool.trim_to(1)?;
    }
    pool.reserve(5)?;
    pool.release_unused()?;

    let ring = RingPool::new(&PinnedMemory::new(&context), 1024, &RingOptions::default())?;
    let mut target = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&context), 1000, &stream)?;
    for home in [&stream, &other, &stream] {
        target.set_stream(home)?;
        ring.upload(&mut target, 0, &pattern(1000, 1))?;
        same("what was uploaded", &target.to_vec()?, &pattern(1000, 1))?;
    }
    ring.synchronize()?;
    Ok(())
}

/// Rings and pools that have to wait for work, as time will have it.
fn rings_under_way(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.primary_context()?;
    let (stream, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let ring = RingPool::new(&PinnedMemory::new(&context), 1024, &RingOptions::default())?;
    let mut target = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&context), 4000, &stream)?;
    let mut settings = FixedSizeOptions::default();
    (settings.blocks_per_slab, settings.maximum) = (1, 320);
    let pool = FixedSizePool::new(&DeviceMemory::new(&context), 320, &settings)?;
    for home in [&stream, &other] {
        home.launch_host_function(|| std::thread::sleep(std::time::Duration::from_millis(2)))?;
        target.set_stream(home)?;
        ring.upload(&mut target, 0, &pattern(4000, 1))?;
        drop(Buffer::filled(&pool, 300, 1u8, home)?);
    }
    same("what was uploaded", &target.to_vec()?, &pattern(4000, 1))?;
    Ok(())
}

/// Guarded memory of the device and of the host, with blocks in quarantine.
fn guarded_memory(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.primary_context()?;
    let stream = Stream::new(&context)?;
    for quarantine in [0, 2000] {
        let mut settings = GuardOptions::default();
        settings.quarantine = quarantine;
        let device = Guarded::new(&DeviceMemory::new(&context), &settings)?;
        let host = Guarded::new(&PinnedMemory::new(&context), &settings)?;
        for number in 0..3u8 {
            let one = Buffer::filled(&device, 500, number, &stream)?;
            let two = Buffer::filled(&host, 500, number, &stream)?;
            same("device memory", &one.to_vec()?, &[number; 500])?;
            same("host memory", &two.to_vec()?, &[number; 500])?;
            one.close().map_err(Error::from)?;
            drop(two);
        }
        if !device.check()?.is_empty() || !host.check()?.is_empty() {
            return Err("damage".into());
        }
        host.release_quarantine();
    }
    Ok(())
}

/// Flags, counters and rings. All work is done before a wait looks, so that how often it looks does not count.
fn signals(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.create_context()?;
    let (stream, patience) = (Stream::new(&context)?, std::time::Duration::from_secs(10));
    let signals = Signals::new(&context)?;
    // A fault while mapped memory is opened is no error: then all is pinned.
    let (question, answer) = (signals.flag::<u32>(Waiter::Device)?, signals.flag::<u32>(Waiter::Cpu)?);
    let kernels = SignalKernels::of(&context)?;
    // It is answered before it is asked for: a kernel that nobody hears of any more must not wait.
    question.store(3);
    kernels.echo_flag(&question, &answer, 3, patience, &stream)?;
    stream.synchronize()?;
    assert_eq!(answer.wait(Comparison::Equal, 3, &WaitPolicy::default())?, 3);
    let (mut ready, done) = (signals.counter::<u64>()?, signals.device_counter::<u64>()?);
    ready.add(1);
    ready.wait_on(&stream, 1)?;
    question.wait_on(&stream, Comparison::NotAllBits, 1)?;
    done.store_on(&stream, 5)?;
    stream.synchronize()?;
    assert_eq!(done.wait(5, &WaitPolicy::default())?, 5);
    let (mut to, mut from) = (signals.ring_to_device::<u64>(8)?, signals.ring_from_device::<u64>(8)?);
    assert_eq!(to.push_slice(&[1, 2, 3])?, 3);
    to.close();
    kernels.echo_ring(&to, &from, patience, &stream)?;
    kernels.nothing(&stream)?;
    stream.synchronize()?;
    let mut items = [0; 4];
    assert_eq!((from.receive(&mut items, &WaitPolicy::default())?, items), (3, [1, 2, 3, 0]));
    Ok(())
}

/// What a drop of the facade calls: where one of these fails, what it would have freed may be left, and is reported.
const ENDING: [&str; 15] = [
    "cuMemFree",
    "cuMemPoolDestroy",
    "cuStreamDestroy",
    "cuEventDestroy",
    "cuEventSynchronize",
    "cuCtxDestroy",
    "cuCtxPopCurrent",
    "cuCtxPushCurrent",
    "cuCtxGetCurrent",
    "cuCtxGetId",
    "cuDevicePrimaryCtxRelease",
    "cuDestroyExternalMemory",
    "cuMemUnmap",
    "cuMemAddressFree",
    "cuMemRelease",
];

/// Memory handed out and taken over by each protocol. The producer's side ends on every path.
fn interchange(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.primary_context()?;
    let (ours, theirs) = (Stream::new(&context)?, Stream::new(&context)?);
    let pinned = PinnedMemory::new(&context).share();
    let buffer = Buffer::<u8, _>::filled(&DeviceMemory::new(&context), 256, 7, &ours)?.into_shared();
    let options = ExportOptions { consumer: Consumer::Stream(&theirs), ..Default::default() };
    let take = |managed: ManagedTensor| -> Result<SharedTensor, Error> {
        // SAFETY: exported just now, and in order.
        unsafe { ManagedTensor::from_versioned(managed.into_versioned())?.check()?.into_shared(&theirs, Some(&ours)) }
    };
    let seen = take(buffer.tensor().to_dlpack(&options)?)?;
    let said = seen.cuda_array_interface()?;
    // SAFETY: the tensor is the owner.
    let again = unsafe { said.import_cuda(Arc::new(seen.clone()), &ours, false) }?;
    same("the array", &again.memory().to_vec()?, &[7; 256])?;
    drop((again, seen));
    let copying = ExportOptions { device: Some(TensorDevice::Cpu), resource: Some(&pinned), ..Default::default() };
    same("the copy", &take(buffer.tensor().to_dlpack(&copying)?)?.memory().to_vec()?, &[7; 256])?;
    let after = ExportOptions { release: Release::AfterContext, ..Default::default() };
    drop(buffer.tensor().to_dlpack(&after)?);
    let bytes = buffer.tensor().memory().clone();
    let node = ArrayNode { length: 256, buffers: vec![None, Some(bytes)], ..Default::default() };
    let array = node.export(&theirs)?.check()?;
    drop(node);
    // SAFETY: exported just now.
    unsafe { array.wait(&ours)? };
    // SAFETY: as above; as large as it is.
    same("the column", &unsafe { array.buffer(array.node().buffers[1], 256, &ours) }?.to_vec()?, &[7; 256])?;
    array.release_after(&ours)?;
    buffer.close().map_err(Error::from)?;
    Ok(())
}

/// Fails each call of a run in turn, with each of these codes; gives how many faults were met.
fn fail_each(name: &str, run: fn(&Driver) -> Outcome) -> Result<u64, Box<dyn StdError>> {
    let driver = Driver::software()?;
    // The first run warms what is made once for the process.
    run(&driver)?;
    softgpu::trace(1 << 20);
    run(&driver)?;
    let calls = softgpu::take_trace().len() as u64;
    softgpu::trace(0);
    assert!(calls > 20, "{name} makes only {calls} calls");
    assert_eq!(driver.take_drop_errors(), Default::default(), "{name} without faults");
    assert!(softgpu::ledger().is_empty(), "{name} without faults: left behind:\n{}", softgpu::ledger());

    let (mut injected, mut left_by_endings) = (0, 0);
    for code in [CUresult::CUDA_ERROR_OUT_OF_MEMORY, CUresult::CUDA_ERROR_UNKNOWN, CUresult(31337)] {
        for number in 1..=calls {
            softgpu::trace(1 << 20);
            softgpu::faults([Fault::any(number, code)]);
            let outcome = run(&driver);
            let (met, made) = (softgpu::injected(), softgpu::calls());
            softgpu::faults([]);
            assert_eq!(met, 1, "{name}: a run with a fault at call {number} of {calls} made only {made} calls");
            injected += met;
            let failed = softgpu::take_trace().into_iter().find(|call| call.result == i64::from(code.0 as i32));
            softgpu::trace(0);
            let call = failed.map_or("none", |call| call.function);
            let what = format!("{name}, call {number} ({call}) fails with {}", code.0);
            let dropped = driver.take_drop_errors().errors;
            if let Err(error) = &outcome {
                let text = error.to_string();
                assert!(met > 0, "{what}: an error without a fault: {text}");
                assert!(error.downcast_ref::<Error>().is_some(), "{what}: no error of the facade: {text}");
                assert!(text.len() > 20 && !text.contains("panicked"), "{what}: {text}");
            }
            // Where the pop failed, the context stays current; that must not make the next run another one.
            while pop(&driver)? {}
            let ledger = softgpu::ledger();
            if !ledger.is_empty() {
                let ends = ENDING.iter().any(|ending| call.starts_with(ending));
                assert!(ends, "{what}: left behind:\n{ledger}");
                assert!(outcome.is_err() || !dropped.is_empty(), "{what}: left behind unseen:\n{ledger}");
                left_by_endings += 1;
                softgpu::reset();
                // SAFETY: 0 is the one value that cuInit takes.
                assert_eq!(unsafe { driver.raw().cuInit(0) }, Ok(CUresult::CUDA_SUCCESS));
            }
        }
    }
    println!("{name}: {calls} calls, {injected} faults; {left_by_endings} in calls that free, and reported");
    Ok(injected)
}

/// Takes a context off this thread's stack, if one is left there.
fn pop(driver: &Driver) -> Result<bool, Box<dyn StdError>> {
    let mut context = std::ptr::null_mut();
    // SAFETY: the result is writable.
    Ok(unsafe { driver.raw().cuCtxPopCurrent_v2(&mut context) }? == CUresult::CUDA_SUCCESS)
}

#[test]
fn interchange_survives_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("interchange", interchange).map(drop)
}

#[test]
fn mapped_memory_survives_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("mapped memory", mapped_memory).map(drop)
}

#[test]
fn buffers_survive_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("buffers", buffers).map(drop)
}

#[test]
fn what_the_driver_does_not_fill_of_the_hosts_memory_the_cpu_fills() -> Outcome {
    let _alone = alone();
    let context = Driver::software()?.device(0)?.primary_context()?;
    let stream = Stream::new(&context)?;
    let mut buffer = Buffer::from_slice(&PinnedMemory::new(&context), &[[1u16, 2]; 10], &stream)?;
    softgpu::faults([Fault::call("cuMemsetD32Async", 1, CUresult::CUDA_ERROR_INVALID_VALUE)]);
    buffer.fill(3..5, [7, 8])?;
    assert_eq!((softgpu::injected(), buffer.to_vec()?[2..6].to_vec()), (1, vec![[1, 2], [7, 8], [7, 8], [1, 2]]));
    softgpu::faults([]);
    Ok(())
}

#[test]
fn strided_copies_survive_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("strided copies", strided_copies).map(|_| ())
}

#[test]
fn streams_survive_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("streams", streams).map(drop)
}

#[test]
fn virtual_memory_survives_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("virtual memory", virtual_memory).map(drop)
}

#[test]
fn mapped_buffers_survive_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("mapped buffers", mapped_buffers).map(drop)
}

#[test]
fn pools_survive_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("pools", pools).map(drop)
}

#[test]
fn sharing_survives_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("sharing", sharing).map(drop)
}

#[test]
fn fixed_and_ring_pools_survive_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("pools of one size and rings", fixed_and_ring_pools).map(drop)
}

#[test]
fn a_wait_that_fails_hands_no_memory_out_and_loses_none() -> Outcome {
    let _alone = alone();
    let driver = Driver::software()?;
    rings_under_way(&driver)?;
    let (mut injected, mut failed) = (0, 0);
    for call in ["cuEventQuery", "cuEventSynchronize", "cuEventRecord", "cuEventCreate", "cuStreamWaitEvent"] {
        for number in 1..=8 {
            softgpu::faults([Fault::call(call, number, CUresult::CUDA_ERROR_UNKNOWN)]);
            let outcome = rings_under_way(&driver);
            injected += softgpu::injected();
            softgpu::faults([]);
            if let Err(error) = outcome {
                // Contents that are wrong are an error of another type.
                assert!(error.downcast_ref::<Error>().is_some(), "{call} {number}: {error}");
                failed += 1;
            }
            driver.take_drop_errors();
            assert!(softgpu::ledger().is_empty(), "{call} {number}: left behind:\n{}", softgpu::ledger());
        }
    }
    assert!(injected > 20 && failed > 10, "{injected} faults, {failed} errors");
    Ok(())
}

#[test]
fn guarded_memory_survives_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("guarded memory", guarded_memory).map(drop)
}

#[test]
fn signals_survive_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("signals", signals).map(drop)
}

#[test]
fn a_wait_for_a_signal_ends_when_the_device_has_failed() -> Outcome {
    let _alone = alone();
    let context = Driver::software()?.device(0)?.primary_context()?;
    let signals = Signals::new(&context)?;
    let (flag, mut ring) = (signals.flag::<u32>(Waiter::Cpu)?, signals.ring_from_device::<u32>(8)?);
    let mut full = signals.ring_to_device::<u32>(1)?;
    assert!(full.push(1)?);
    // A kernel that went wrong shows in every later call.
    let code = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
    let waits: [&mut dyn FnMut() -> Option<Error>; 3] = [
        &mut || flag.wait(Comparison::Equal, 1, &WaitPolicy::default()).err(),
        &mut || ring.receive(&mut [0], &WaitPolicy::default()).err(),
        &mut || full.send(&[2], &WaitPolicy::default()).err(),
    ];
    for wait in waits {
        softgpu::faults([Fault::call("cuStreamQuery", 2, code)]);
        let error = wait().ok_or("nothing ended the wait")?;
        softgpu::faults([]);
        assert_eq!(error.driver_code(), Some(code), "{error}");
    }
    Ok(())
}

#[test]
fn a_hook_of_drop_errors_may_end_other_values() -> Outcome {
    let _alone = alone();
    let context = Driver::software()?.device(0)?.create_context()?;
    let (stream, event) = (Stream::new(&context)?, Event::new(&context)?);
    let event = Mutex::new(Some(event));
    context.set_drop_error_hook(Some(std::sync::Arc::new(move |_| {
        drop(event.lock().unwrap_or_else(PoisonError::into_inner).take());
    })));
    // The stream is destroyed, and the call says that it was not.
    let mut fault = Fault::call("cuStreamDestroy_v2", 1, CUresult::CUDA_ERROR_UNKNOWN);
    fault.after = true;
    softgpu::faults([fault]);
    drop(stream);
    softgpu::faults([]);
    assert_eq!(context.take_drop_errors().errors.len(), 1);
    context.set_drop_error_hook(None);
    drop(context);
    assert!(softgpu::ledger().is_empty(), "{}", softgpu::ledger());
    Ok(())
}
