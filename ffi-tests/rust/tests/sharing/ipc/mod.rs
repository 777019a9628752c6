//! Sharing between real processes, over any driver. Each test starts this program again as the other process, which
//! runs one of the [`roles`].

mod bare;
mod c_library;
mod channel;
mod devices;
mod files;
mod forged;
mod matrix;
mod own;
mod pairs;
mod pinned;
mod roles;
mod virtual_memory;

use cuda_mem::ipc::{Channel, Export, Exported};
use cuda_mem::memory::kind::Device;
use cuda_mem::memory::{DeviceMemory, DevicePool, DriverPoolOptions};
use cuda_mem::{Buffer, Context, Error, Event, Feature, MappedMemory, SharedBuffer, Stream, Support};
use std::error::Error as StdError;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::time::Duration;
use testkit::descriptors::{at, checked, flipped, forged, part, signed};
use testkit::{Setup, in_its_own_process, pattern, same, test_name};

type Outcome = Result<(), Box<dyn StdError>>;

/// How long the other process may take for one step.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same role, run with cuda-mem and with the C library.
const MIRRORS: [&str; 2] = ["mirror", "c_mirror"];
const ROLE: &str = "CUDA_MEM_TEST_ROLE";

/// Another process, and the channel to it, which is its standard input.
struct Other {
    process: Child,
    channel: Channel,
}

impl Other {
    fn start(role: &str) -> Result<Self, Box<dyn StdError>> {
        let (mut channel, theirs) = Channel::pair()?;
        channel.set_timeout(Some(PATIENCE));
        let process = in_its_own_process(&test_name!("other_process"))
            .env(ROLE, role)
            .stdin(Stdio::from(OwnedFd::from(theirs.into_stream())))
            .spawn()?;
        Ok(Self { process, channel })
    }

    fn finish(mut self) -> Outcome {
        match self.process.wait()? {
            status if status.success() => Ok(()),
            status => Err(format!("the other process failed: {status}").into()),
        }
    }

    fn kill(&mut self) -> Outcome {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// For the role `mirror`: sends memory. The other process must see `expected` in it, and then inverts it.
    fn mirror(&mut self, export: &impl Exported, expected: &[u8]) -> Outcome {
        self.channel.send(export)?;
        self.mirrored(expected)
    }

    /// The other process must see `expected` in the memory that was sent, and then inverts it.
    fn mirrored(&mut self, expected: &[u8]) -> Outcome {
        let length = self.channel.receive_bytes()?;
        assert_eq!(length, (expected.len() as u64).to_le_bytes());
        let mut seen = Vec::new();
        while seen.len() < expected.len() {
            seen.extend(self.channel.receive_bytes()?);
        }
        same("what the other process saw", &seen, expected)?;
        assert_eq!(self.channel.receive_bytes()?, b"inverted");
        Ok(())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // A failed test must leave no process behind. For a process that has ended this does nothing.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
#[ignore = "other tests run it in another process"]
fn other_process() -> Outcome {
    let Ok(role) = std::env::var(ROLE) else { return Ok(()) };
    roles::play(&role)
}

/// Returns a driver that supports the feature, or `None`.
fn setup(feature: Feature) -> Result<Option<Setup>, Box<dyn StdError>> {
    let setup = Setup::from_environment()?;
    if setup.context.device().supports(feature)? == Support::No {
        println!("skipped: the device has no {feature:?}; run it on one that has");
        return Ok(None);
    }
    Ok(Some(setup))
}

fn shareable(setup: &Setup) -> Result<DevicePool, Error> {
    shareable_on(&setup.context)
}

fn shareable_on(context: &Context) -> Result<DevicePool, Error> {
    let mut options = DriverPoolOptions::default();
    options.shareable = true;
    DevicePool::new(context, &options)
}

/// The memory that each test uses: a pool's, and cuMemAlloc's.
#[derive(Clone)]
enum Source {
    Pool(DevicePool),
    Plain(DeviceMemory),
}

impl Source {
    fn all(setup: &Setup) -> Result<Vec<Self>, Error> {
        let device = setup.context.device();
        let mut all = Vec::new();
        if device.supports(Feature::SharedPools)? != Support::No {
            all.push(Self::Pool(shareable(setup)?));
        }
        if device.supports(Feature::Ipc)? != Support::No {
            all.push(Self::Plain(DeviceMemory::new(&setup.context)));
        }
        Ok(all)
    }

    fn shared(&self, bytes: &[u8], stream: &Stream) -> Result<SharedBuffer<u8, Device>, Error> {
        Ok(match self {
            Self::Pool(pool) => Buffer::from_slice(pool, bytes, stream)?.into_shared(),
            Self::Plain(memory) => Buffer::from_slice(memory, bytes, stream)?.into_shared(),
        })
    }

    /// Sends what the other process needs before it gets memory.
    fn introduce(&self, other: &mut Other) -> Outcome {
        if let Self::Pool(pool) = self {
            other.channel.send(&pool.export()?)?;
        }
        Ok(())
    }
}

fn inverted(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| !byte).collect()
}

fn nothing_dropped(setup: &Setup) -> Outcome {
    let report = setup.context.take_drop_errors();
    if report.errors.is_empty() { Ok(()) } else { Err(format!("{:?}", report.errors).into()) }
}

fn sources(test: impl Fn(&Setup, &Source, &Stream) -> Outcome) -> Outcome {
    let setup = Setup::from_environment()?;
    println!("{}", setup.describe());
    for source in Source::all(&setup)? {
        let stream = Stream::new(&setup.context)?;
        test(&setup, &source, &stream)?;
        drop(source);
    }
    Ok(())
}

/// Runs a test with each source and each process that imports from it.
fn mirrors(test: impl Fn(&str, &Source, &Stream) -> Outcome) -> Outcome {
    sources(|_, source, stream| MIRRORS.iter().try_for_each(|role| test(role, source, stream)))
}

#[test]
fn another_process_reads_and_writes_memory_of_every_size() -> Outcome {
    mirrors(|role, source, stream| {
        let mut other = Other::start(role)?;
        source.introduce(&mut other)?;
        for size in [0, 1, 1000, 64 << 10] {
            let bytes = pattern(size, 3);
            let memory = source.shared(&bytes, stream)?;
            other.mirror(&memory.export()?, &bytes)?;
            same("what it wrote", &memory.to_vec()?, &inverted(&bytes))?;
        }
        other.channel.send_bytes(b"end")?;
        other.finish()
    })
}

#[test]
fn a_slice_keeps_its_offset() -> Outcome {
    mirrors(|role, source, stream| {
        let mut other = Other::start(role)?;
        source.introduce(&mut other)?;
        let bytes = pattern(10_000, 4);
        let memory = source.shared(&bytes, stream)?;
        other.mirror(&memory.slice(1000..5003)?.export()?, &bytes[1000..5003])?;
        other.mirror(&memory.slice(10_000..)?.export()?, &[])?;
        other.mirror(&memory.slice(9_999..)?.slice(..1)?.export()?, &bytes[9_999..])?;
        other.channel.send_bytes(b"end")?;
        other.finish()?;
        let mut expected = bytes.clone();
        expected[1000..5003].copy_from_slice(&inverted(&bytes[1000..5003]));
        expected[9_999] = !bytes[9_999];
        same("the whole", &memory.to_vec()?, &expected)?;
        Ok(())
    })
}

#[test]
fn mapped_memory_goes_by_channel() -> Outcome {
    let setup = Setup::from_environment()?;
    let resource = MappedMemory::new(&setup.context)?;
    for role in MIRRORS {
        let memory = testkit::mapped(&resource, 8192)?.into_shared();
        let bytes = pattern(8192, 5);
        memory.store(0, &bytes)?;
        let export = match resource.export(&memory.slice(100..1100)?) {
            Err(Error::MissingSymbol(missing)) => {
                println!("skipped: {missing}");
                return Ok(());
            }
            other => other?,
        };
        let mut other = Other::start(role)?;
        other.mirror(&export, &bytes[100..1100])?;
        other.channel.send_bytes(b"end")?;
        other.finish()?;
        let mut seen = vec![0; 8192];
        memory.load(0, &mut seen)?;
        same("beside the part", &seen[..100], &bytes[..100])?;
        same("what it wrote", &seen[100..1100], &inverted(&bytes[100..1100]))?;
    }
    Ok(())
}

#[test]
fn two_processes_share_one_allocation() -> Outcome {
    sources(|_, source, stream| {
        let bytes = pattern(3000, 6);
        let memory = source.shared(&bytes, stream)?;
        let mut others = [Other::start(MIRRORS[0])?, Other::start(MIRRORS[1])?];
        for (other, expected) in others.iter_mut().zip([bytes.clone(), inverted(&bytes)]) {
            source.introduce(other)?;
            other.mirror(&memory.export()?, &expected)?;
        }
        same("after both", &memory.to_vec()?, &bytes)?;
        for mut other in others {
            other.channel.send_bytes(b"end")?;
            other.finish()?;
        }
        Ok(())
    })
}

#[test]
fn three_pools_and_many_buffers() -> Outcome {
    let Some(setup) = setup(Feature::SharedPools)? else { return Ok(()) };
    let stream = Stream::new(&setup.context)?;
    for role in MIRRORS {
        let mut other = Other::start(role)?;
        for seed in 0..3 {
            let source = Source::Pool(shareable(&setup)?);
            source.introduce(&mut other)?;
            let memories =
                (0..20).map(|n| source.shared(&pattern(100 + n, seed), &stream)).collect::<Result<Vec<_>, _>>()?;
            for (n, memory) in memories.iter().enumerate() {
                other.mirror(&memory.export()?, &pattern(100 + n, seed))?;
                same("what it wrote", &memory.to_vec()?, &inverted(&pattern(100 + n, seed)))?;
            }
        }
        other.channel.send_bytes(b"end")?;
        other.finish()?;
    }
    Ok(())
}

#[test]
fn what_was_imported_is_passed_on() -> Outcome {
    sources(|_, source, stream| {
        let (mut relay, mut last) = (Other::start("relay")?, Other::start("mirror")?);
        let bytes = pattern(2000, 7);
        let memory = source.shared(&bytes, stream)?;
        source.introduce(&mut relay)?;
        relay.channel.send(&memory.slice(500..)?.export()?)?;
        // The relay exports the memory that comes back, without its first 100 bytes.
        if let Source::Pool(_) = source {
            last.channel.send(&relay.channel.receive()?)?;
        }
        let export = relay.channel.receive()?;
        last.mirror(&export, &bytes[600..])?;
        for mut other in [relay, last] {
            other.channel.send_bytes(b"end")?;
            other.finish()?;
        }
        same("the first 600", &memory.slice(..600)?.to_vec()?, &bytes[..600])?;
        same("the rest", &memory.slice(600..)?.to_vec()?, &inverted(&bytes[600..]))?;
        Ok(())
    })
}

/// The other process does everything and reports the result.
fn played_over_memory(role: &str) -> Outcome {
    sources(|setup, source, stream| {
        let mut other = Other::start(role)?;
        let bytes = pattern(5000, 8);
        let memory = source.shared(&bytes, stream)?;
        source.introduce(&mut other)?;
        other.channel.send(&memory.export()?)?;
        assert_eq!(other.channel.receive_bytes()?, b"done");
        other.finish()?;
        same("the memory", &memory.to_vec()?, &bytes)?;
        drop(memory);
        nothing_dropped(setup)
    })
}

#[test]
fn memory_imported_twice_is_one_and_both_ends_are_safe() -> Outcome {
    played_over_memory("twice")?;
    played_over_memory("c_twice")
}

#[test]
fn an_import_that_is_dropped_in_a_capture_ends_once() -> Outcome {
    played_over_memory("captured")
}

#[test]
fn four_threads_import_the_same_memory() -> Outcome {
    played_over_memory("threads")?;
    played_over_memory("c_threads")
}

#[test]
fn the_last_to_let_go_waits_for_the_work_of_all() -> Outcome {
    played_over_memory("uses")
}

#[test]
fn memory_stays_if_nobody_knows_whether_a_use_is_done() -> Outcome {
    played_over_memory("unknown_use")
}

#[test]
fn an_imported_pool_allocates_nothing() -> Outcome {
    let Some(setup) = setup(Feature::SharedPools)? else { return Ok(()) };
    let (pool, mut other) = (shareable(&setup)?, Other::start("pool_only")?);
    other.channel.send(&pool.export()?)?;
    assert_eq!(other.channel.receive_bytes()?, b"done");
    other.finish()
}

#[test]
fn access_of_other_devices_does_not_come_with_the_pool() -> Outcome {
    let Some(setup) = setup(Feature::SharedPools)? else { return Ok(()) };
    let devices = setup.driver.devices()?;
    if devices.len() < 2 || !devices[1].can_access_peer(&devices[0])? {
        println!("skipped: no two devices have a path between them");
        return Ok(());
    }
    let (pool, mut other) = (shareable(&setup)?, Other::start("access")?);
    pool.allow_access(&devices[1])?;
    other.channel.send(&pool.export()?)?;
    assert_eq!(other.channel.receive_bytes()?, b"done");
    other.finish()
}

#[test]
fn an_exporter_that_ends_first_harms_nobody() -> Outcome {
    for (role, killed) in [("exporter", false), ("exporter", true)] {
        let Some(setup) = setup(Feature::SharedPools)? else { return Ok(()) };
        let (stream, mut other) = (Stream::new(&setup.context)?, Other::start(role)?);
        let Export::Pool(pool) = other.channel.receive()? else { return Err("no pool".into()) };
        let pool = DevicePool::import(&setup.context, pool)?;
        let Export::PoolMemory(descriptor) = other.channel.receive()? else { return Err("no memory".into()) };
        let memory = pool.import_buffer::<u8>(&descriptor, &stream)?;
        same("before", &memory.to_vec()?, &pattern(4000, 1))?;
        if killed {
            other.kill()?;
            // Nothing freed it.
            same("after", &memory.to_vec()?, &pattern(4000, 1))?;
        } else {
            other.channel.send_bytes(b"end")?;
            other.finish()?;
            // The exporter has freed it. Its contents are undefined, but it is still mapped.
            assert_eq!(memory.to_vec()?.len(), 4000);
        }
        drop(memory);
        stream.synchronize()?;
        drop(pool);
        nothing_dropped(&setup)?;
    }
    Ok(())
}

#[test]
fn an_importer_that_is_killed_harms_nobody() -> Outcome {
    sources(|setup, source, stream| {
        let mut other = Other::start("holder")?;
        let bytes = pattern(5000, 9);
        let memory = source.shared(&bytes, stream)?;
        source.introduce(&mut other)?;
        other.channel.send(&memory.export()?)?;
        assert_eq!(other.channel.receive_bytes()?, b"held");
        other.kill()?;
        assert!(matches!(other.channel.receive(), Err(Error::Channel(_))), "the channel of a dead process");
        same("the memory", &memory.to_vec()?, &bytes)?;
        drop(memory);
        stream.synchronize()?;
        nothing_dropped(setup)
    })
}

#[test]
fn an_event_orders_the_work_of_two_processes() -> Outcome {
    let Some(setup) = setup(Feature::Ipc)? else { return Ok(()) };
    let stream = Stream::new(&setup.context)?;
    let mut memory = Buffer::filled(&DeviceMemory::new(&setup.context), 1000, 1u8, &stream)?.into_shared();
    let descriptor = memory.export()?;
    let event = Event::shareable(&setup.context)?;
    let mut other = Other::start("event")?;

    let (open, gate) = std::sync::mpsc::channel::<()>();
    stream.launch_host_function(move || gate.recv_timeout(PATIENCE).unwrap_or_default())?;
    memory.fill(.., 9)?;
    event.record(&stream)?;
    other.channel.send(&descriptor)?;
    other.channel.send(&event.export()?)?;
    // The other process's copy waits for the event in its stream. Only after this message the fill may run.
    assert_eq!(other.channel.receive_bytes()?, b"waiting");
    open.send(())?;
    assert_eq!(other.channel.receive_bytes()?, [9; 1000]);
    other.finish()?;

    let plain = Event::new(&setup.context)?;
    assert!(plain.export().is_err(), "an event that was not made for it");
    assert!(event.elapsed(&event).is_err(), "a shareable event has no time stamps");
    Ok(())
}

#[test]
fn a_forked_process_is_told_so() -> Outcome {
    Other::start("fork")?.finish()
}
