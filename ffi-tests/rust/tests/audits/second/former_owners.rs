//! Hole W: the CPU must not touch memory while the work of its former owner still uses it, although CPU access to
//! shared memory waits for none of the program's later work.

use super::{Held, LATER, LIMIT, SIZE, can_fail, hold, in_time, refused, with_fault};
use cuda_mem::graph::CaptureMode;
use cuda_mem::interchange::{Consumer, ExportOptions};
use cuda_mem::mapped::{CoherencePolicy, MappedMemory};
use cuda_mem::memory::kind::{self, Any};
use cuda_mem::memory::{
    DeviceMemory, DriverPoolOptions, PinnedMemory, PinnedPool, ResourceHandle, SharedResource, VirtualMemory,
    VirtualOptions,
};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::signal::{Comparison, Signals, Waiter};
use cuda_mem::{Buffer, Error, SharedBuffer, Stream};
use std::sync::mpsc::channel;
use std::thread;
use testkit::suite::Outcome;
use testkit::{Setup, alone, same};

/// Sources whose blocks may still be in use by their former owner's work.
pub(super) fn pools(setup: &Setup) -> Result<Vec<(&'static str, SharedResource)>, Error> {
    let (context, options) = (&setup.context, PoolOptions::default());
    let pinned = PinnedMemory::new(context);
    // Each block comes from the heap. Otherwise the thread cache serves the block that its stream freed last.
    let mut without_caches = PoolOptions::default();
    without_caches.cache_capacity = 0;
    let mut all = vec![
        ("a pool", Pool::new(&pinned, &options)?.share()),
        ("a pool without thread caches", Pool::new(&pinned, &without_caches)?.share()),
    ];
    for (name, wish) in [
        ("a pool of mapped memory", CoherencePolicy::Preferred),
        ("a pool of atoms", CoherencePolicy::ForcedNonCoherent),
    ] {
        let mapped = MappedMemory::with_coherence(context, wish);
        match mapped.and_then(|mapped| Pool::new(&mapped, &options)) {
            Err(error @ Error::Unsupported { .. }) => println!("skipped: {name}: {error}"),
            pool => all.push((name, pool?.share())),
        }
    }
    let of_host = VirtualMemory::host(context, &VirtualOptions::default());
    match of_host.and_then(|memory| Pool::new(&memory, &without_caches)) {
        Err(error @ Error::Unsupported { .. }) => println!("skipped: a pool in place: {error}"),
        pool => all.push(("a pool in place", pool?.share())),
    }
    if setup.is_software() {
        // softgpu's pools serve a block again only when its former owner's work is done.
        return Ok(all);
    }
    match PinnedPool::new(context, &DriverPoolOptions::default()) {
        Err(error @ Error::Unsupported { .. }) => println!("skipped: the driver's pool: {error}"),
        pool => all.push(("the driver's pool", pool?.share())),
    }
    Ok(all)
}

/// A block that its former owner's queued work still reads.
pub(super) struct Inherited {
    pub(super) memory: Buffer<u8, Any>,
    pub(super) held: Held,
    /// The former owner's bytes, which are 7s. On the device: a driver itself waits in copies within host memory.
    pub(super) copy: Buffer<u8, kind::Device>,
}

/// How the next owner makes its buffer.
pub(super) type Make = fn(&SharedResource, &Stream) -> Result<Buffer<u8, Any>, Error>;

/// A zeroed buffer has work of its own, an uninitialised one has none.
pub(super) const MAKES: [(&str, u8, Make); 2] = [
    ("zeroed", 0, |pool, stream| Buffer::zeroed(pool, SIZE, stream)),
    ("uninitialised", 7, |pool, stream| {
        // SAFETY: the driver's memory is always initialised bytes, and every byte is a value of `u8`.
        unsafe { Buffer::uninit_assumed(pool, SIZE, stream) }
    }),
];

impl Inherited {
    /// None if the source serves another block.
    pub(super) fn new(
        setup: &Setup,
        pool: &SharedResource,
        stream: &Stream,
        make: Make,
    ) -> Result<Option<Self>, Error> {
        let former = Buffer::<u8, Any>::filled(pool, SIZE, 7, stream)?;
        stream.synchronize()?;
        let mut copy = Buffer::zeroed(&DeviceMemory::new(&setup.context), SIZE, stream)?;
        let held = hold(stream)?;
        copy.copy_from_buffer(0, &former, ..)?;
        let address = former.device_pointer();
        drop(former);
        let memory = make(pool, stream)?;
        Ok((memory.device_pointer() == address).then_some(Self { memory, held, copy }))
    }
}

/// Runs a program with each pool and each way to make the next buffer.
pub(super) fn for_every_block(
    setup: &Setup,
    program: impl Fn(&Stream, Inherited, u8) -> Result<(), String>,
) -> Result<(), Box<dyn std::error::Error>> {
    let (stream, mut wrong) = (Stream::new(&setup.context)?, Vec::new());
    for (name, pool) in pools(setup)? {
        for (how, first, make) in MAKES {
            let Some(inherited) = Inherited::new(setup, &pool, &stream, make)? else {
                assert!(name.starts_with("the driver"), "{name} serves the block that was freed last");
                stream.synchronize()?;
                continue;
            };
            wrong.extend(program(&stream, inherited, first).map_err(|error| format!("{name}, {how}: {error}")).err());
            stream.synchronize()?;
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ").into()) }
}

fn words(error: Error) -> String {
    error.to_string()
}

/// Checks what the former owner has copied, and that a CPU access came after it.
pub(super) fn was_in_order(waited: bool, copy: Buffer<u8, kind::Device>) -> Result<(), String> {
    same("the former owner's copy", &copy.to_vec().map_err(words)?, &[7; SIZE])?;
    if waited { Ok(()) } else { Err("the CPU did not wait for the former owner's work".into()) }
}

// Hole W.
#[test]
fn a_store_waits_for_the_work_of_the_former_owner() -> Outcome {
    alone(|setup| {
        for_every_block(setup, |_, Inherited { memory, held, copy }, _| {
            let letting_go = held.let_go();
            let shared = memory.into_shared();
            shared.store(0, &[9; SIZE]).map_err(words)?;
            was_in_order(letting_go.had_passed(), copy)?;
            same("what was stored", &shared.to_vec().map_err(words)?, &[9; SIZE])
        })
    })
}

// Hole W.
#[test]
fn a_load_waits_for_the_work_of_the_former_owner() -> Outcome {
    alone(|setup| {
        for_every_block(setup, |_, Inherited { memory, held, copy }, first| {
            let letting_go = held.let_go();
            let shared = memory.into_shared();
            let mut seen = [1; SIZE];
            shared.load(0, &mut seen).map_err(words)?;
            was_in_order(letting_go.had_passed(), copy)?;
            same("what was loaded", &seen, &[first; SIZE])
        })
    })
}

// Hole W.
#[test]
fn clones_slices_and_other_threads_wait_for_the_former_owner() -> Outcome {
    alone(|setup| {
        for_every_block(setup, |_, Inherited { memory, held, copy }, _| {
            let letting_go = held.let_go();
            let shared = memory.into_shared();
            let part = shared.slice(SIZE / 2..).map_err(words)?;
            let stored = thread::scope(|threads| {
                threads.spawn(|| shared.clone().store(0, &[9; SIZE / 2])).join().map_err(|_| "a thread panicked")
            })?;
            stored.map_err(words)?;
            part.store(0, &[9; SIZE / 2]).map_err(words)?;
            was_in_order(letting_go.had_passed(), copy)
        })
    })
}

#[test]
fn exclusive_access_waits_for_the_work_of_the_former_owner() -> Outcome {
    alone(|setup| {
        for_every_block(setup, |_, Inherited { mut memory, held, copy }, _| {
            let letting_go = held.let_go();
            memory.store(0, &[9; SIZE]).map_err(words)?;
            was_in_order(letting_go.had_passed(), copy)
        })
    })
}

/// What the program queues behind the conversion, and lets go on by a store.
fn store_is_not_waited_for(stream: &Stream, inherited: Inherited) -> Result<(), String> {
    let Inherited { memory, held, copy } = inherited;
    let letting_go = held.let_go();
    let shared = memory.into_shared();
    let (stored, is_stored) = channel();
    let (tell, told) = channel();
    stream
        .launch_host_function(move || {
            // It goes on after a while, so that a store that waits for it shows as an error.
            let _ = tell.send(is_stored.recv_timeout(LIMIT / 4).is_ok());
        })
        .map_err(words)?;
    shared.store(0, &[9; SIZE]).map_err(words)?;
    let waited = letting_go.had_passed();
    let _ = stored.send(());
    was_in_order(waited, copy)?;
    if told.recv_timeout(LIMIT).is_ok_and(|came| came) {
        Ok(())
    } else {
        Err("the store waited for work that was queued after into_shared".into())
    }
}

// Hole W: the wait for the former owner must not become a wait for the stream.
#[test]
fn a_store_waits_for_no_work_that_waits_for_the_store() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| for_every_block(setup, |stream, block, _| store_is_not_waited_for(stream, block)))
    })
}

// Hole W, with a wait of the device in place of a host function.
#[test]
fn a_store_is_made_beside_a_stream_that_waits_for_a_flag() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let flag = Signals::new(&setup.context)?.flag::<u32>(Waiter::Device)?;
            let round = std::cell::Cell::new(0);
            for_every_block(setup, |stream, Inherited { memory, held, copy }, _| {
                round.set(round.get() + 1);
                let letting_go = held.let_go();
                let shared = memory.into_shared();
                let device = DeviceMemory::new(&setup.context);
                let mut copied = Buffer::<u8, _>::zeroed(&device, SIZE / 2, stream).map_err(words)?;
                flag.wait_on(stream, Comparison::AtLeast, round.get()).map_err(words)?;
                copied.copy_from_buffer(0, &shared, ..SIZE / 2).map_err(words)?;
                shared.store(0, &[9; SIZE / 2]).map_err(words)?;
                let waited = letting_go.had_passed();
                assert!(!stream.is_done().map_err(words)?, "the stream waits for the flag");
                flag.store(round.get());
                was_in_order(waited, copy)?;
                same("what the device copied", &copied.to_vec().map_err(words)?, &[9; SIZE / 2])
            })
        })
    })
}

/// Shares memory in a capture of its stream, and uses it there and later.
fn share_in_a_capture(stream: &Stream, inherited: Inherited, first: u8) -> Result<(), String> {
    let Inherited { memory, held, copy } = inherited;
    let (mut shared, mut wrong) = (None::<SharedBuffer<u8, Any>>, Ok(()));
    let captured = stream.capture(CaptureMode::Relaxed, |_| {
        let memory = shared.insert(memory.into_shared());
        let mut seen = [1; SIZE];
        wrong = refused("a store", memory.store(0, &[9; SIZE]))
            .and(refused("a load", memory.load(0, &mut seen)))
            .and(same("what was not loaded", &seen, &[1; SIZE]));
        Ok(())
    });
    drop(captured.map_err(words)?);
    let shared = shared.ok_or("the capture did not run")?;
    let letting_go = held.let_go();
    let mut seen = [1; SIZE];
    shared.load(0, &mut seen).map_err(words)?;
    let waited = letting_go.had_passed();
    shared.store(0, &[9; SIZE]).map_err(words)?;
    was_in_order(waited, copy)?;
    same("what was loaded", &seen, &[first; SIZE])?;
    wrong
}

// Hole W2: no mark can be recorded on a stream that captures.
#[test]
fn memory_shared_in_a_capture_is_the_cpus_after_the_capture() -> Outcome {
    alone(|setup| in_time(setup, |setup| for_every_block(setup, share_in_a_capture)))
}

// Hole W2. softgpu's faults.
#[test]
fn memory_whose_mark_fails_is_not_touched_under_its_work() -> Outcome {
    alone(|setup| {
        if !can_fail(setup) {
            return Ok(());
        }
        for_every_block(setup, |_, Inherited { memory, held, copy }, _| {
            let letting_go = held.let_go();
            let (shared, _) = with_fault("cuEventRecord", 1, || memory.into_shared());
            // The first access makes the mark, or waits; an error is legal too.
            let (stored, _) = with_fault("cuEventRecord", 1, || shared.store(0, &[9; SIZE]));
            let stored = stored.or_else(|_| shared.store(0, &[9; SIZE]));
            was_in_order(letting_go.had_passed(), copy)?;
            stored.map_err(words)?;
            same("what was stored", &shared.to_vec().map_err(words)?, &[9; SIZE])
        })
    })
}

// Hole D2.
#[test]
fn memory_of_the_legacy_stream_is_shared_in_a_capture_at_once() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let legacy = Stream::legacy_default(&setup.context);
            let mut options = cuda_mem::StreamOptions::default();
            options.blocking = true;
            let blocking = Stream::with_options(&setup.context, options)?;
            for wish in [CoherencePolicy::Preferred, CoherencePolicy::ForcedNonCoherent] {
                let mapped = MappedMemory::with_coherence(&setup.context, wish)?;
                let mut memory = Buffer::<u8, kind::Mapped>::zeroed(&mapped, SIZE, &legacy)?;
                legacy.synchronize()?;
                let held = hold(&legacy)?;
                memory.fill(.., 7)?;
                let mut shared = None;
                let mut wrong = Ok(());
                blocking.capture(CaptureMode::Relaxed, |_| {
                    let memory = shared.insert(memory.into_shared());
                    assert!(!held.has_passed(), "the program lets the stream go only after the capture");
                    let mut seen = [1];
                    if memory.load(0, &mut seen).is_ok() {
                        wrong = Err("the CPU did not wait for the fill");
                    }
                    Ok(())
                })?;
                thread::sleep(LATER / 10);
                let letting_go = held.let_go();
                let shared = shared.ok_or("the capture did not run")?;
                let mut seen = [1; SIZE];
                shared.load(0, &mut seen)?;
                assert!(letting_go.had_passed(), "the CPU did not wait for the fill");
                same("what was loaded", &seen, &[7; SIZE])?;
                wrong?;
            }
            Ok(())
        })
    })
}

#[test]
fn exclusive_flush_preserves_pending_writes_of_the_former_owner() -> Outcome {
    alone(|setup| {
        for_every_block(setup, |_, Inherited { mut memory, held, copy }, _| {
            let letting_go = held.let_go();
            memory.flush(..).map_err(|error| error.to_string())?;
            let passed = letting_go.had_passed();
            was_in_order(true, copy).map_err(|error| format!("{error}, waited: {passed}"))
        })
    })
}

#[test]
fn shared_flush_preserves_pending_writes_of_the_former_owner() -> Outcome {
    alone(|setup| {
        for_every_block(setup, |_, Inherited { memory, held, copy }, _| {
            let letting_go = held.let_go();
            memory.into_shared().flush(..).map_err(|error| error.to_string())?;
            let passed = letting_go.had_passed();
            was_in_order(true, copy).map_err(|error| format!("{error}, waited: {passed}"))
        })
    })
}

#[test]
fn store_waits_for_the_former_owner_after_refused_exclusivity() -> Outcome {
    alone(|setup| {
        let elsewhere = Stream::new(&setup.context)?;
        for_every_block(setup, |stream, Inherited { memory, held, copy }, _| {
            let mut shared = memory.into_shared();
            shared.set_stream(&elsewhere).map_err(|error| error.to_string())?;
            let mut kept = Some(shared);
            let captured = stream.capture(CaptureMode::Relaxed, |stream| {
                elsewhere.join(stream)?;
                let refused = kept.take().and_then(|shared| shared.try_into_exclusive().err());
                kept = refused.map(|refused| refused.value);
                stream.join(&elsewhere)
            });
            captured.map_err(|error| error.to_string())?;
            let shared = kept.ok_or("it became exclusive")?;
            let letting_go = held.let_go();
            shared.store(0, &[9; SIZE]).map_err(|error| error.to_string())?;
            was_in_order(letting_go.had_passed(), copy)
        })
    })
}

/// Pinned memory that goes out as a tensor and comes back, while work from before uses it.
#[test]
fn memory_that_comes_back_as_a_tensor_waits_for_its_producer() -> Outcome {
    alone(|setup| {
        for_every_block(setup, |_, Inherited { memory, held, copy }, _| {
            let shared = memory.into_shared();
            let theirs = Stream::new(&setup.context).map_err(|error| error.to_string())?;
            let options = ExportOptions { consumer: Consumer::Stream(&theirs), ..ExportOptions::default() };
            let exported = shared.tensor().to_dlpack(&options).map_err(|error| error.to_string())?;
            let back = exported.check().map_err(|error| error.to_string())?;
            // SAFETY: as above.
            let back = unsafe { back.into_shared(&theirs, None) }.map_err(|error| error.to_string())?;
            let letting_go = held.let_go();
            let bytes = back.memory().map_err(|error| error.to_string())?.clone();
            let stored = bytes.store(0, &[9; SIZE]);
            let passed = letting_go.had_passed();
            drop((back, bytes));
            match stored {
                Ok(()) => was_in_order(passed, copy),
                Err(error) => was_in_order(true, copy).map_err(|more| format!("{error}: {more}")),
            }
        })
    })
}
