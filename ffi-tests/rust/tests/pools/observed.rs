//! What users can observe of a pool over any driver: its snapshot, its trace, its account of blocks, and replays
//! of traces.

use cuda_mem::adaptor::{LeakReport, Logging, Recording, named};
use cuda_mem::memory::{DeviceMemory, DevicePool, DriverPoolOptions, ResourceHandle, kind};
use cuda_mem::pool::{BlockState, Pool, PoolOptions, Snapshot, Tracked};
use cuda_mem::trace::{Action, Plan, Trace, TraceEvent, replay};
use cuda_mem::{Buffer, Error, Stream};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use testkit::suite::Outcome;
use testkit::{Setup, alone, delay, joined};

fn pool(setup: &Setup, change: impl FnOnce(&mut PoolOptions)) -> Result<Pool<kind::Device>, Error> {
    let mut settings = PoolOptions::default();
    change(&mut settings);
    Pool::new(&DeviceMemory::new(&setup.context), &settings)
}

fn handle_of(stream: &Stream) -> u64 {
    stream.raw().addr() as u64
}

#[test]
fn a_trace_tells_every_allocation_free_wait_and_region() -> Outcome {
    alone(|setup| {
        let (one, two) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let pool = pool(setup, |settings| {
            (settings.initial, settings.maximum, settings.smallest_growth) = (1 << 20, 2 << 20, 1 << 20);
            (settings.trace_capacity, settings.cache_capacity) = (100, 0);
        })?;
        let first = named("first", || Buffer::<u8, _>::uninit(&pool, 1 << 20, &one))?;
        let second = Buffer::<u8, _>::uninit(&pool, 1000, &one)?;
        assert!(Buffer::<u8, _>::uninit(&pool, 2 << 20, &one).is_err_and(|error| error.is_out_of_memory()));
        let address = first.device_pointer();
        delay(&one)?;
        drop(first);
        let taken = Buffer::<u8, _>::uninit(&pool, 1 << 20, &two)?;
        assert_eq!(taken.device_pointer(), address);
        drop((taken, second));
        pool.release_unused()?;

        let trace = pool.trace();
        let seen: Vec<_> = trace.events.iter().map(|event| (event.action, event.size, event.stream)).collect();
        let (mega, one, two) = (1 << 20, handle_of(&one), handle_of(&two));
        let expected = [
            (Action::Grow, mega, 0),
            (Action::Allocate, mega, one),
            (Action::Grow, mega, 0),
            (Action::Allocate, 1000, one),
            (Action::OutOfMemory, 2 * mega, one),
            (Action::Free, mega, one),
            (Action::Wait, mega, two),
            (Action::Allocate, mega, two),
            (Action::Free, mega, two),
            (Action::Free, 1000, one),
            (Action::Release, mega, 0),
            (Action::Release, mega, 0),
        ];
        assert_eq!(seen, expected);
        let names: Vec<_> = trace.events.iter().filter_map(|event| event.name.as_deref()).collect();
        assert_eq!((names, trace.lost), (vec!["first"], 0));
        assert!(trace.events.is_sorted_by_key(|event| event.time_ns));
        let snapshot = pool.snapshot();
        assert_eq!(snapshot.trace.as_ref(), Some(&trace));
        assert_eq!(Snapshot::from_json(&snapshot.to_json())?, snapshot);
        Ok(())
    })
}

#[test]
fn a_trace_keeps_the_newest_events_and_nothing_is_kept_unasked() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let (short, none) = (pool(setup, |settings| settings.trace_capacity = 3)?, pool(setup, |_| {})?);
        for _ in 0..5 {
            drop(Buffer::<u8, _>::uninit(&short, 4096, &stream)?);
            drop(Buffer::<u8, _>::uninit(&none, 4096, &stream)?);
        }
        let trace = short.trace();
        let actions: Vec<_> = trace.events.iter().map(|event| event.action).collect();
        // There were eleven events, including the first region's.
        assert_eq!((actions, trace.lost), (vec![Action::Free, Action::Allocate, Action::Free], 8));
        assert_eq!((none.trace(), none.snapshot().trace), (Trace::default(), None));
        assert!(none.leak_report().is_none());
        Ok(())
    })
}

#[test]
fn what_is_live_when_the_last_handle_goes_is_reported_once() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let reports: Arc<Mutex<Vec<String>>> = Arc::default();
        let hook = |reports: &Arc<Mutex<Vec<String>>>| {
            let reports = reports.clone();
            Arc::new(move |report: &LeakReport| {
                reports.lock().unwrap_or_else(PoisonError::into_inner).push(report.to_string());
                panic!("a hook's panic goes nowhere");
            })
        };
        let taken = || std::mem::take(&mut *reports.lock().unwrap_or_else(PoisonError::into_inner));

        let tidy = pool(setup, |settings| settings.on_leak = Some(hook(&reports)))?;
        drop(Buffer::<u8, _>::uninit(&tidy, 100, &stream)?);
        drop(tidy);
        assert_eq!(taken(), [""; 0]);

        let leaky = pool(setup, |settings| {
            settings.on_leak = Some(hook(&reports));
            settings.tracking = Tracked::Backtraces;
        })?;
        let clone = leaky.clone();
        let kept = named("kept", || Buffer::<u8, _>::uninit(&leaky, 777, &stream))?;
        drop(Buffer::<u8, _>::uninit(&leaky, 100, &stream)?);
        drop(leaky);
        assert_eq!(taken(), [""; 0], "there is another handle");
        let mut live = clone.leak_report().map(|report| report.blocks).unwrap_or_default();
        assert_eq!((live.len(), live[0].size, live[0].address), (1, 777, kept.device_pointer()));
        assert!(live.remove(0).backtrace.is_some());
        let snapshot = clone.snapshot();
        let names: Vec<_> = snapshot
            .regions
            .iter()
            .flat_map(|region| &region.blocks)
            .filter_map(|block| block.name.as_deref())
            .collect();
        assert_eq!(names, ["kept"]);
        drop(clone);
        let told = taken();
        assert!(told.len() == 1 && told[0].starts_with("1 live block, 777 bytes\n"), "{told:?}");
        // In a stripped program, frames have no names.
        assert!(told[0].contains("777 bytes, kept, ") && told[0].contains(" 0: "), "{told:?}");
        let errors = setup.context.take_drop_errors().errors;
        assert!(errors.len() == 1 && errors[0].to_string().contains("a hook's panic goes nowhere"), "{errors:?}");
        drop(kept);
        Ok(())
    })
}

#[test]
fn tracking_pool_refuses_a_second_free_of_a_block() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let pool = pool(setup, |settings| (settings.tracking, settings.trace_capacity) = (Tracked::Names, 10))?;
        let resource = pool.share();
        let block = resource.allocate(1000, 256, &stream)?;
        // SAFETY: the block was just allocated, and no work uses it.
        unsafe { resource.deallocate(block, &stream) }?;
        for wrong in [block, block.with_size(1001)] {
            // SAFETY: the test checks that such a free is refused and changes nothing.
            let error = unsafe { resource.deallocate(wrong, &stream) }.map_err(|error| error.to_string());
            assert!(
                error.is_err_and(|text| text.contains("Pool::deallocate: block is") && text.contains("freed before"))
            );
        }
        let actions: Vec<_> = pool.trace().events.iter().map(|event| event.action).collect();
        assert_eq!(actions, [Action::Grow, Action::Allocate, Action::Free]);
        assert_eq!(pool.statistics().blocks.current, 0);
        Ok(())
    })
}

/// A writer whose text can be read through clones.
#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn recordings_in_both_formats_replay_on_any_resource() -> Outcome {
    alone(|setup| {
        let log = Text::default();
        let recording = Recording::new(&Logging::new(&DeviceMemory::new(&setup.context), log.clone()), 1000);
        std::thread::scope(|scope| -> Result<(), Error> {
            let own = recording.clone();
            let worker = scope.spawn(move || -> Result<_, Error> {
                let stream = Stream::new(&setup.context)?;
                (1..20usize)
                    .map(|number| Buffer::<u8, _>::uninit(&own, 1000 * number, &stream))
                    .collect::<Result<Vec<_>, _>>()
            });
            let buffers = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            // Freed on another thread, in another order.
            let (odd, even): (Vec<_>, Vec<_>) = buffers.into_iter().partition(|buffer| buffer.len() % 2000 != 0);
            drop((even, odd));
            Ok(())
        })?;
        let mut text = Vec::new();
        recording.trace().write(&mut text)?;
        let ours = Plan::new(&Trace::read(&text[..])?);
        let log = log.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert_eq!(ours, Plan::new(&Trace::read(&log[..])?));
        assert_eq!((ours.operations.len(), ours.blocks, ours.threads, ours.streams), (38, 19, 2, 1));

        let (pool, driver) = (pool(setup, |_| {})?, DevicePool::new(&setup.context, &DriverPoolOptions::default())?);
        for resource in [pool.share(), driver.share(), DeviceMemory::new(&setup.context).share()] {
            let report = replay(&ours, &resource)?;
            assert_eq!((report.allocate.count, report.free.count, report.out_of_memory), (19, 19, 0));
            assert_eq!(report.peak_requested, 190_000);
        }
        let statistics = pool.statistics();
        assert_eq!((statistics.blocks.current, statistics.blocks.total, statistics.requested.total), (0, 19, 190_000));
        Ok(())
    })
}

#[test]
fn replay_frees_on_traced_streams_and_frees_leftover_blocks() -> Outcome {
    alone(|setup| {
        let event = |action, address, stream| TraceEvent {
            time_ns: 0,
            thread: 1,
            action,
            address,
            size: 512,
            stream,
            name: None,
        };
        let events = vec![event(Action::Allocate, 1, 7), event(Action::Allocate, 2, 8), event(Action::Free, 1, 8)];
        let pool = pool(setup, |settings| settings.trace_capacity = 100)?;
        replay(&Plan::new(&Trace { lost: 0, events }), &pool.share())?;
        let events = pool.trace().events;
        let streams: Vec<_> = events.iter().skip(1).map(|event| (event.action, event.stream)).collect();
        let (seven, eight) = (events[1].stream, events[2].stream);
        let (allocate, free) = (Action::Allocate, Action::Free);
        assert_eq!(streams, [(allocate, seven), (allocate, eight), (free, eight), (free, eight)]);
        assert_ne!(seven, eight);
        Ok(())
    })
}

#[test]
fn multithreaded_trace_shows_no_block_allocated_twice() -> Outcome {
    const ROUNDS: usize = 2_000;
    alone(|setup| {
        let pool = pool(setup, |settings| settings.trace_capacity = 1 << 20)?;
        let (shared, begin) = (Stream::new(&setup.context)?, Barrier::new(24));
        std::thread::scope(|scope| -> Result<(), Error> {
            // On machines of few processors more threads than thread caches with an owner, so that some share a thread
            // cache.
            let threads = (0..24usize).map(|number| {
                let (pool, shared, begin) = (&pool, &shared, &begin);
                scope.spawn(move || -> Result<(), Error> {
                    let own = Stream::new(&setup.context);
                    begin.wait();
                    let own = own?;
                    let mut kept = Vec::new();
                    for round in 0..ROUNDS {
                        let stream = if (round + number).is_multiple_of(3) { &own } else { shared };
                        kept.push(Buffer::<u8, _>::uninit(pool, 256 << (round % 4), stream)?);
                        if kept.len() == 4 {
                            kept.swap_remove(round % 3);
                        }
                    }
                    Ok(())
                })
            });
            joined(threads).map(drop)
        })?;
        let trace = pool.trace();
        let plan = Plan::new(&trace);
        assert_eq!((trace.lost, plan.unknown_frees, plan.missing_frees), (0, 0, 0));
        assert_eq!(
            (plan.blocks, plan.operations.len(), plan.threads, plan.streams),
            (24 * ROUNDS, 48 * ROUNDS, 24, 25)
        );
        let statistics = pool.statistics();
        assert_eq!((statistics.blocks.current, statistics.blocks.total), (0, 24 * ROUNDS as u64));
        Ok(())
    })
}

#[test]
fn a_snapshot_shows_every_block() -> Outcome {
    alone(|setup| {
        let (one, two) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let pool = pool(setup, |_| {})?;
        let weights = Buffer::filled(&pool, 1000, 1.0f32, &one)?;
        pool.set_name(weights.device_pointer(), "weights \"0\"");
        let cached = Buffer::filled(&pool, 5000, 1u8, &two)?;
        let large = Buffer::filled(&pool, (1 << 20) + 1, 1u8, &two)?;
        let (open, gate) = std::sync::mpsc::channel();
        two.launch_host_function(move || gate.recv().unwrap_or_default())?;
        drop((cached, large));
        let snapshot = pool.snapshot();
        open.send(())?;
        let [region] = &snapshot.regions[..] else { return Err("one region was expected".into()) };
        let states: Vec<_> = region.blocks.iter().map(|block| (block.state, block.size, block.stream)).collect();
        let handle = |stream: &Stream| Some(stream.raw().addr() as u64);
        let expected = [
            (BlockState::Allocated, 4096, None),
            (BlockState::InCache, 5120, handle(&two)),
            (BlockState::Pending, (1 << 20) + 256, handle(&two)),
            (BlockState::Free, (1 << 20) - 256 - 9216, None),
        ];
        assert_eq!(states, expected);
        let json: serde_json::Value = serde_json::from_str(&snapshot.to_json())?;
        assert_eq!(json["regions"][0]["blocks"][0]["name"], "weights \"0\"");
        assert_eq!(json["regions"][0]["blocks"][1]["state"], "in_cache");
        assert_eq!(json["statistics"]["requested"]["current"], 4000);
        assert_eq!(snapshot.statistics.pending[0].bytes, 5120 + (1 << 20) + 256);
        drop(weights);
        two.synchronize()?;
        one.synchronize()?;
        let snapshot = pool.snapshot();
        let text = snapshot.to_json();
        assert!(!text.contains("weights"), "a name ends with its block: {text}");
        // Nothing waits any more, and all free memory is one range, whatever thread caches keep.
        let statistics = snapshot.statistics;
        assert!(statistics.in_caches > 0);
        assert_eq!((statistics.pending, statistics.fragmentation), (Vec::new(), 0.0));
        assert_eq!(statistics.largest_free, statistics.reserved.current);
        Ok(())
    })
}
