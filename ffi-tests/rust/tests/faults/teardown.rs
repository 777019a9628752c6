//! Drop orders, and contexts and drivers that end before their objects. One test runs at a time, because the ledger
//! applies to the whole process.

use cuda_mem::cuda_sys::CUresult;
use cuda_mem::graph::CaptureMode;
use cuda_mem::mapped::MappedMemory;
use cuda_mem::memory::{DeviceMemory, DevicePool, DriverPoolOptions, ManagedMemory, PinnedMemory, kind};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Buffer, Context, Driver, Error, Event, HostBuffer, Stream};
use softgpu::{Fault, Kind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn assert_nothing_left(driver: &Driver) {
    assert_eq!(driver.take_drop_errors(), Default::default());
    let ledger = softgpu::ledger();
    assert!(ledger.is_empty(), "{ledger}");
}

/// Every kind of value of one context.
struct Everything {
    stream: Stream,
    event: Event,
    memory: testkit::MappedBuffer,
    resource: MappedMemory,
    buffer: Buffer<u8, kind::Device>,
    plain: Buffer<u8, kind::Device>,
    context: Context,
}

fn everything(context: &Context) -> Result<Everything, Error> {
    let resource = MappedMemory::new(context)?;
    let mut memory = testkit::mapped(&resource, 4097)?;
    let stream = Stream::new(context)?;
    let event = Event::new(context)?;
    testkit::fill_on(&mut memory, .., 1, &stream)?;
    event.record(&stream)?;
    let mut buffer = Buffer::filled(&DevicePool::new(context, &DriverPoolOptions::default())?, 1000, 3, &stream)?;
    let plain = Buffer::filled(&DeviceMemory::new(context), 1000, 4, &stream)?;
    buffer.copy_from_buffer(0, &plain, ..)?;
    Ok(Everything { buffer, plain, stream, event, memory, resource, context: context.clone() })
}

#[test]
fn every_order_of_drops_leaves_nothing() -> Result<(), Error> {
    let _alone = alone();
    let driver = Driver::software()?;
    // 720 orders of six values. Each value is dropped while work may still be running.
    let mut orders = vec![vec![]];
    for _ in 0..6 {
        orders = orders
            .into_iter()
            .flat_map(|order: Vec<usize>| {
                (0..6)
                    .filter(|next| !order.contains(next))
                    .map(|next| [order.clone(), vec![next]].concat())
                    .collect::<Vec<_>>()
            })
            .collect();
    }
    assert_eq!(orders.len(), 720);
    for order in orders {
        let context = driver.device(0)?.create_context()?;
        let all = everything(&context)?;
        drop(context);
        let mut values: [Option<Box<dyn std::any::Any>>; 6] = [
            Some(Box::new(all.stream)),
            Some(Box::new(all.event)),
            Some(Box::new(all.memory)),
            Some(Box::new(all.resource)),
            Some(Box::new((all.buffer, all.plain))),
            Some(Box::new(all.context)),
        ];
        for index in order {
            drop(values[index].take());
        }
        assert_nothing_left(&driver);
    }
    Ok(())
}

#[test]
fn a_context_destroyed_by_others_ends_quietly() -> Result<(), Box<dyn std::error::Error>> {
    let _alone = alone();
    let driver = Driver::software()?;
    let context = driver.device(1)?.create_context()?;
    let all = everything(&context)?;
    // SAFETY: the handle is a live context's.
    assert_eq!(unsafe { driver.raw().cuCtxDestroy_v2(context.raw()) }?, CUresult::CUDA_SUCCESS);

    let error = Stream::new(&context).expect_err("the context is gone");
    assert!(
        matches!(
            error.driver_code(),
            Some(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED | CUresult::CUDA_ERROR_INVALID_CONTEXT)
        ),
        "{error}"
    );
    println!("a call in a destroyed context: {error}");
    drop((all, context));
    // The only allowed errors say that the context is gone, and nothing may be left.
    for met in driver.take_drop_errors().errors {
        assert_eq!(met.error.driver_code(), Some(CUresult::CUDA_ERROR_INVALID_CONTEXT), "{met}");
    }
    assert_nothing_left(&driver);
    Ok(())
}

#[test]
fn a_primary_context_reset_by_others_ends_quietly() -> Result<(), Box<dyn std::error::Error>> {
    let _alone = alone();
    let driver = Driver::software()?;
    let context = driver.device(0)?.primary_context()?;
    let all = everything(&context)?;
    // SAFETY: the device exists.
    let reset = unsafe { driver.raw().cuDevicePrimaryCtxReset_v2(context.device().raw()) }?;
    assert_eq!(reset, CUresult::CUDA_SUCCESS);
    drop((all, context));
    driver.take_drop_errors();
    assert_nothing_left(&driver);
    Ok(())
}

#[test]
fn after_the_driver_has_shut_down_drops_are_quiet() -> Result<(), Error> {
    let _alone = alone();
    let driver = Driver::software()?;
    let context = driver.device(0)?.create_context()?;
    let all = everything(&context)?;
    softgpu::shut_down(true);
    let error = Stream::new(&context).expect_err("the driver has shut down");
    assert_eq!(error.driver_code(), Some(CUresult::CUDA_ERROR_DEINITIALIZED), "{error}");
    drop((all, context));
    softgpu::shut_down(false);
    assert_eq!(driver.take_drop_errors(), Default::default());
    // Free what a driver that has shut down would have freed itself. The reset also ends the initialisation.
    softgpu::reset();
    Ok(())
}

#[test]
fn after_a_reset_the_driver_starts_and_old_values_fail() -> Result<(), Error> {
    let _alone = alone();
    let old = Driver::software()?.device(0)?.primary_context()?;
    let unused = Driver::software()?.device(1)?.primary_context()?;
    let mut all = everything(&old)?;
    let host = HostBuffer::from_slice(&PinnedMemory::new(&old), &[5u8; 100])?;
    let pool = Pool::new(&DeviceMemory::new(&old), &PoolOptions::default())?;
    let mut pooled = Buffer::filled(&pool, 1000, 6, &all.stream)?;
    assert!(!softgpu::reset().is_empty());

    // The next use starts the driver again.
    let driver = Driver::software()?;
    let context = driver.device(0)?.primary_context()?;
    let stream = Stream::new(&context)?;
    let fresh = Buffer::filled(&DeviceMemory::new(&context), 1000, 7u8, &stream)?;
    // Values from before the reset fail, and what the CPU addresses is still there.
    assert!(Stream::new(&old).is_err() && Event::new(&old).is_err() && old.memory_info().is_err());
    assert!(all.plain.fill(.., 1).is_err() && all.buffer.to_vec().is_err() && pooled.fill(.., 1).is_err());
    assert!(Buffer::<u8, _>::zeroed(&pool, 1000, &stream).is_err());
    assert!(testkit::mapped(&all.resource, 4096).is_err() && all.event.record(&all.stream).is_err());
    let _either = all.memory.store(0, &[1; 8]);
    assert_eq!(host[..], [5; 100]);
    // Their end takes nothing from the new start.
    drop((all, host, pooled, pool, old));
    assert_eq!(fresh.to_vec()?, [7; 1000]);
    let second = driver.device(1)?.primary_context()?;
    drop(unused);
    assert_eq!(second.memory_info()?.total, 80 << 30);
    drop((fresh, stream, context, second));
    driver.take_drop_errors();
    assert_nothing_left(&driver);
    Ok(())
}

#[test]
fn a_context_is_current_only_while_its_guard_lives() -> Result<(), Box<dyn std::error::Error>> {
    let _alone = alone();
    let driver = Driver::software()?;
    let current = || {
        let mut context = std::ptr::null_mut();
        // SAFETY: the result is writable.
        unsafe { driver.raw().cuCtxGetCurrent(&mut context) }.map(|_| context)
    };
    let (first, second) = (driver.device(0)?.create_context()?, driver.device(1)?.create_context()?);
    assert!(current()?.is_null(), "making contexts leaves none current");
    let outer = first.bind()?;
    {
        let _inner = second.bind()?;
        let _again = second.bind()?;
        assert_eq!(current()?, second.raw());
        let _stream = Stream::new(&first)?; // a call for another context restores the caller's context
        assert_eq!(current()?, second.raw());
    }
    assert_eq!(current()?, first.raw());
    drop(outer);
    assert!(current()?.is_null());
    drop((first, second));
    assert_nothing_left(&driver);
    Ok(())
}

#[test]
fn many_threads_drop_while_streams_run() -> Result<(), Error> {
    let _alone = alone();
    let driver = Driver::software()?;
    let context = driver.device(0)?.primary_context()?;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| -> Result<(), Error> {
                for _ in 0..50 {
                    drop(everything(&context)?);
                }
                Ok(())
            });
        }
    });
    assert_eq!(context.take_drop_errors(), Default::default());
    drop(context);
    assert_nothing_left(&driver);
    Ok(())
}

#[test]
fn host_functions_run_once_in_order_and_may_panic() -> Result<(), Error> {
    let _alone = alone();
    let driver = Driver::software()?;
    let context = driver.device(0)?.create_context()?;
    let stream = Stream::new(&context)?;
    let (sender, receiver) = std::sync::mpsc::channel();
    for number in 0..10 {
        let sender = sender.clone();
        stream.launch_host_function(move || {
            sender.send(number).unwrap_or_default();
            assert!(number != 4, "panics on purpose");
        })?;
    }
    stream.synchronize()?;
    drop(sender);
    assert_eq!(receiver.iter().collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    let report = context.take_drop_errors();
    assert_eq!(report.errors.len(), 1, "{report:?}");
    let error = &report.errors[0].error;
    assert_eq!(error.to_string(), "a host function panicked: panics on purpose");

    // This also holds if the panic's payload panics.
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::panic_any("as it is dropped");
        }
    }
    stream.launch_host_function(|| std::panic::panic_any(Bomb))?;
    stream.synchronize()?;
    assert_eq!(context.take_drop_errors().errors.len(), 1);
    drop((stream, context));
    assert_nothing_left(&driver);
    Ok(())
}

#[test]
fn what_is_dropped_in_a_host_function_ends_after_it() -> Result<(), Error> {
    let _alone = alone();
    let driver = Driver::software()?;
    let context = driver.device(0)?.create_context()?;
    let stream = Stream::new(&context)?;
    let other = Stream::new(&context)?;
    let mut graph = None;
    stream.capture(CaptureMode::Relaxed, |_| Ok(())).map(|captured| graph = Some(captured))?;
    let pool = Pool::new(&DeviceMemory::new(&context), &PoolOptions::default())?;
    let (left, mut right) = Buffer::<u8, _>::zeroed(&pool, 4096, &stream)?.split_at(1000)?;
    right.set_stream(&other)?;
    let dropped = (
        Buffer::<u8, _>::zeroed(&PinnedMemory::new(&context), 1 << 20, &stream)?,
        Buffer::<u8, _>::zeroed(&DeviceMemory::new(&context), 1 << 20, &stream)?,
        (left, right, pool),
        (Event::new(&context)?, graph, other, stream.clone(), context.clone()),
    );
    let (sender, receiver) = std::sync::mpsc::channel();
    stream.launch_host_function(move || {
        let stream = dropped.3.3.clone();
        let refused = [stream.synchronize().unwrap_err(), Event::new(stream.context()).unwrap_err()];
        drop(dropped);
        sender.send(refused).unwrap_or_default();
    })?;
    stream.synchronize()?;
    assert_eq!(receiver.recv().unwrap(), [Error::InsideHostFunction, Error::InsideHostFunction]);
    // The last values of all end in a host function too.
    let errors = Arc::new(Mutex::new(Vec::new()));
    let told = errors.clone();
    context.set_drop_error_hook(Some(Arc::new(move |error| told.lock().unwrap().push(error.clone()))));
    stream.clone().launch_host_function(move || drop((stream, context)))?;
    softgpu::ledger_within(Duration::from_secs(20));
    assert_eq!(*errors.lock().unwrap(), []);
    assert_nothing_left(&driver);
    Ok(())
}

/// The worker frees memory, the program's hook hears of a failure there, and drops the last value of the context.
#[test]
fn a_context_that_ends_on_the_worker_leaves_nothing() -> Result<(), Error> {
    let _alone = alone();
    let driver = Driver::software()?;
    let context = driver.device(0)?.primary_context()?;
    // Another library's count keeps the driver's context alive, with all that this crate might leave in it.
    let (cuda, mut raw) = (driver.raw(), std::ptr::null_mut());
    // SAFETY: `raw` is writable.
    assert_eq!(unsafe { cuda.cuDevicePrimaryCtxRetain(&mut raw, 0) }, Ok(CUresult::CUDA_SUCCESS));

    let last = Arc::new(Mutex::new(None));
    let (ended, in_hook) = (last.clone(), Arc::new(AtomicUsize::new(0)));
    let calls = in_hook.clone();
    context.set_drop_error_hook(Some(Arc::new(move |_| {
        calls.fetch_add(1, Ordering::Relaxed);
        drop(ended.lock().unwrap().take());
    })));
    let (go_on, told) = std::sync::mpsc::channel();
    let stream = Stream::new(&context)?;
    let buffer = Buffer::<u8, _>::zeroed(&ManagedMemory::new(&context)?, 4096, &stream)?;
    stream.launch_host_function(move || told.recv().unwrap_or_default())?;
    // the free of managed memory waits for the whole context, so it waits until the host function has returned.
    drop((buffer, stream));
    softgpu::faults([Fault::call("cuMemFree_v2", 1, CUresult::CUDA_ERROR_UNKNOWN)]);
    *last.lock().unwrap() = Some(context);
    go_on.send(()).expect("the host function waits");

    // The failed free leaves its memory, and kernels stay as long as the driver's context.
    let may_be_left = [Kind::PrimaryContext, Kind::ManagedMemory, Kind::Module];
    let is_over = || softgpu::ledger().entries.iter().all(|entry| may_be_left.contains(&entry.kind));
    let begin = Instant::now();
    while (!is_over() || last.lock().unwrap().is_some()) && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(1));
    }
    softgpu::faults([]);
    assert_eq!(in_hook.load(Ordering::Relaxed), 1);
    assert!(is_over(), "{}", softgpu::ledger());
    // SAFETY: the count is ours. It was the last one, so the context ends with the memory whose free failed.
    assert_eq!(unsafe { cuda.cuDevicePrimaryCtxRelease_v2(0) }, Ok(CUresult::CUDA_SUCCESS));
    let left = softgpu::ledger_within(Duration::from_secs(20));
    assert!(left.is_empty(), "{left}");
    assert_eq!(driver.take_drop_errors().errors.len(), 1, "the injected one");
    Ok(())
}
