//! The roles of the other process.

use super::{Outcome, PATIENCE, ROLE, inverted, nothing_dropped, pattern, same, shareable};
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::graph::CaptureMode;
use cuda_mem::ipc::{Channel, Descriptor, Export, MAX_MESSAGE};
use cuda_mem::memory::kind::Device;
use cuda_mem::memory::{DeviceMemory, DevicePool, PoolAccess, VirtualMemory, VirtualOptions};
use cuda_mem::{Buffer, Error, Event, MappedMemory, SharedBuffer, Stream};
use softgpu::{Fault, When};
use std::error::Error as StdError;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use testkit::Setup;

/// The state of an importing process, with the channel to the test.
pub struct Importer {
    pub setup: Setup,
    pub channel: Channel,
    pub stream: Stream,
    pub pool: Option<DevicePool>,
}

pub fn play(role: &str) -> Outcome {
    if let Some(role) = role.strip_prefix("c_") {
        return super::c_library::play(role);
    }
    let mut channel = Channel::from_stream(UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?))?;
    channel.set_timeout(Some(PATIENCE));
    let setup = Setup::from_environment()?;
    let stream = Stream::new(&setup.context)?;
    let mut importer = Importer { setup, channel, stream, pool: None };
    match role {
        "mirror" => importer.mirror(),
        "relay" => importer.relay(),
        "twice" => importer.twice(),
        "threads" => importer.threads(),
        "captured" => importer.captured(),
        "uses" => importer.uses(),
        "unknown_use" => importer.unknown_use(),
        "holder" => importer.holder(),
        "exporter" => importer.exporter(),
        "pool_only" => importer.pool_only(),
        "access" => importer.access(),
        "event" => importer.event(),
        "forged" => super::forged::play(&mut importer),
        "pairs" => super::pairs::play(&mut importer),
        "replayed" => super::forged::replayed(&mut importer),
        "bare" => super::bare::play(&mut importer),
        "files" => super::files::play(&mut importer),
        "another_device" => super::devices::play(&mut importer),
        "pinned" => super::pinned::play(&mut importer),
        "fork" => importer.fork(),
        other => Err(format!("{ROLE}={other} is not a role").into()),
    }?;
    let Importer { setup, stream, pool, .. } = importer;
    stream.synchronize()?;
    drop(pool);
    nothing_dropped(&setup)
}

impl Importer {
    /// Imports memory of the pool that came before it, or of cuMemAlloc.
    pub fn import(&self, descriptor: &Descriptor, stream: &Stream) -> Result<SharedBuffer<u8, Device>, Error> {
        match &self.pool {
            Some(pool) => pool.import_buffer(descriptor, stream),
            None => DeviceMemory::new(&self.setup.context).import_buffer(descriptor, stream),
        }
    }

    /// Receives memory, and the pool before it if one comes.
    pub fn receive(&mut self) -> Result<Descriptor, Box<dyn StdError>> {
        loop {
            match self.channel.receive()? {
                Export::Pool(pool) => self.pool = Some(DevicePool::import(&self.setup.context, pool)?),
                Export::PoolMemory(descriptor) | Export::DeviceMemory(descriptor) => return Ok(descriptor),
                other => return Err(format!("{other:?} came").into()),
            }
        }
    }

    /// Drops imports while their stream captures. The free is tried again after the capture, but each use must end once.
    fn captured(&mut self) -> Outcome {
        let export = self.receive()?;
        let other = Stream::new(&self.setup.context)?;
        let kept = self.import(&export, &other)?;
        for mode in [CaptureMode::Relaxed, CaptureMode::ThreadLocal, CaptureMode::Global] {
            let dropped = self.import(&export, &self.stream)?;
            self.stream.capture(mode, |_| {
                drop(dropped);
                Ok(())
            })?;
            same("the other import", &kept.to_vec()?, &pattern(5000, 8))?;
        }
        drop(kept);
        other.synchronize()?;
        same("imported anew", &self.import(&export, &self.stream)?.to_vec()?, &pattern(5000, 8))?;
        self.channel.send_bytes(b"done")?;
        Ok(())
    }

    /// Sends back what memory holds, and inverts it, until another message comes.
    fn mirror(&mut self) -> Outcome {
        loop {
            let descriptor = match self.channel.receive() {
                Ok(Export::Pool(pool)) => {
                    self.pool = Some(DevicePool::import(&self.setup.context, pool)?);
                    continue;
                }
                Ok(Export::PoolMemory(descriptor) | Export::DeviceMemory(descriptor)) => descriptor,
                Ok(Export::Mapped(export)) => {
                    let memory = MappedMemory::new(&self.setup.context)?.import::<u8>(export, &self.stream)?;
                    let mut seen = vec![0; memory.len()];
                    memory.load(0, &mut seen)?;
                    memory.store(0, &inverted(&seen))?;
                    self.channel.send_bytes(&(seen.len() as u64).to_le_bytes())?;
                    self.channel.send_bytes(&seen)?;
                    self.channel.send_bytes(b"inverted")?;
                    continue;
                }
                Ok(Export::VirtualMemory(export)) => {
                    let memory = VirtualMemory::new(&self.setup.context, &VirtualOptions::default())?;
                    let memory = memory.import(export, &self.stream)?;
                    self.invert(memory)?;
                    continue;
                }
                // The bytes are not a descriptor.
                Err(Error::Descriptor(_)) => return Ok(()),
                other => return Err(format!("{other:?} came").into()),
            };
            let memory = self.import(&descriptor, &self.stream)?;
            self.invert(memory)?;
        }
    }

    /// Sends back in pieces what memory holds, and inverts it.
    fn invert(&mut self, mut memory: SharedBuffer<u8, Device>) -> Outcome {
        let seen = memory.to_vec()?;
        memory.copy_from_slice(0, &inverted(&seen))?;
        memory.synchronize()?;
        self.channel.send_bytes(&(seen.len() as u64).to_le_bytes())?;
        seen.chunks(MAX_MESSAGE).try_for_each(|piece| self.channel.send_bytes(piece))?;
        self.channel.send_bytes(b"inverted")?;
        Ok(())
    }

    fn relay(&mut self) -> Outcome {
        let descriptor = self.receive()?;
        let memory = self.import(&descriptor, &self.stream)?;
        if let Some(pool) = &self.pool {
            assert!(pool.is_imported());
            self.channel.send(&pool.export()?)?;
        }
        self.channel.send(&memory.slice(100..)?.export()?)?;
        assert_eq!(self.channel.receive_bytes()?, b"end");
        Ok(())
    }

    fn twice(&mut self) -> Outcome {
        let descriptor = self.receive()?;
        let other_stream = Stream::new(&self.setup.context)?;
        let (one, two) = (self.import(&descriptor, &self.stream)?, self.import(&descriptor, &other_stream)?);
        assert_eq!(one.device_pointer(), two.device_pointer());
        drop(one);
        self.stream.synchronize()?;
        same("after the first end", &two.to_vec()?, &pattern(5000, 8))?;
        let one = self.import(&descriptor, &self.stream)?;
        drop(two);
        other_stream.synchronize()?;
        same("after the second end", &one.to_vec()?, &pattern(5000, 8))?;
        drop(one);
        self.stream.synchronize()?;
        let again = self.import(&descriptor, &self.stream)?;
        same("imported anew", &again.to_vec()?, &pattern(5000, 8))?;
        assert!(again.try_into_exclusive().is_err(), "imported memory stays shared");
        self.channel.send_bytes(b"done")?;
        Ok(())
    }

    fn threads(&mut self) -> Outcome {
        let descriptor = self.receive()?;
        let this = &*self;
        let results = std::thread::scope(|scope| {
            let threads = [0; 4].map(|_| {
                scope.spawn(|| -> Result<(), String> {
                    let stream = Stream::new(&this.setup.context).map_err(|error| error.to_string())?;
                    for _ in 0..50 {
                        let memory = this.import(&descriptor, &stream).map_err(|error| error.to_string())?;
                        let seen = memory.to_vec().map_err(|error| error.to_string())?;
                        same("a thread", &seen, &pattern(5000, 8))?;
                    }
                    Ok(())
                })
            });
            threads.map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned()).and_then(|result| result))
        });
        results.into_iter().collect::<Result<Vec<_>, _>>()?;
        self.channel.send_bytes(b"done")?;
        Ok(())
    }

    /// One user releases the memory while its stream's work is delayed. The last user's stream must then wait for that
    /// work.
    fn uses(&mut self) -> Outcome {
        let descriptor = self.receive()?;
        let slow = Stream::new(&self.setup.context)?;
        let (first, last) = (self.import(&descriptor, &slow)?, self.import(&descriptor, &self.stream)?);
        let (open, gate) = std::sync::mpsc::channel::<()>();
        slow.launch_host_function(move || gate.recv_timeout(PATIENCE).unwrap_or_default())?;
        let opener = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            open.send(())
        });
        drop(first);
        drop(last);
        // Memory of cuMemAlloc is released as soon as no queued work waits for the CPU. softgpu would report a release
        // while work uses the memory.
        self.setup.context.synchronize()?;
        assert!(slow.is_done()?, "the context has work left");
        opener.join().map_err(|_| "the opener panicked")??;
        self.channel.send_bytes(b"done")?;
        Ok(())
    }

    /// Nobody learns whether the work of one user is done, so the other user's drop must not free the memory.
    fn unknown_use(&mut self) -> Outcome {
        let descriptor = self.receive()?;
        if self.setup.is_software() && self.pool.is_some() {
            let slow = Stream::new(&self.setup.context)?;
            let (first, last) = (self.import(&descriptor, &slow)?, self.import(&descriptor, &self.stream)?);
            let (open, gate) = std::sync::mpsc::channel::<()>();
            slow.launch_host_function(move || gate.recv().unwrap_or_default())?;
            softgpu::faults(["cuEventCreate", "cuStreamSynchronize"].map(|function| {
                let fault = Fault::call(function, 1, CUresult::CUDA_ERROR_UNKNOWN);
                Fault { when: When::Every(1), ..fault }
            }));
            drop(first);
            softgpu::faults([]);
            assert_eq!(self.setup.context.take_drop_errors().errors.len(), 1);
            softgpu::count_calls(true);
            drop(last);
            assert_eq!(softgpu::calls_of("cuMemFreeAsync"), 0, "freed beside work of its first user");
            softgpu::count_calls(false);
            drop(open);
            slow.synchronize()?;
        }
        self.channel.send_bytes(b"done")?;
        Ok(())
    }

    fn holder(&mut self) -> Outcome {
        let descriptor = self.receive()?;
        let memory = self.import(&descriptor, &self.stream)?;
        assert_eq!(memory.len(), 5000);
        self.channel.send_bytes(b"held")?;
        self.channel.receive_bytes()?;
        Ok(())
    }

    fn exporter(&mut self) -> Outcome {
        let pool = shareable(&self.setup)?;
        let memory = Buffer::from_slice(&pool, &pattern(4000, 1), &self.stream)?.into_shared();
        self.channel.send(&pool.export()?)?;
        self.channel.send(&memory.export()?)?;
        self.channel.receive_bytes()?;
        Ok(())
    }

    fn receive_pool(&mut self) -> Result<DevicePool, Box<dyn StdError>> {
        let Export::Pool(export) = self.channel.receive()? else { return Err("no pool".into()) };
        Ok(DevicePool::import(&self.setup.context, export)?)
    }

    fn pool_only(&mut self) -> Outcome {
        let pool = self.receive_pool()?;
        let refused = |result: Result<(), Error>| matches!(result, Err(Error::ImportedPool { .. }));
        assert!(refused(Buffer::<u8, _>::zeroed(&pool, 100, &self.stream).map(drop)));
        assert!(refused(pool.attributes().map(drop)));
        assert!(refused(pool.trim_to(0)));
        assert!(refused(pool.set_release_threshold(0)));
        assert!(pool.is_imported());
        let id = pool.id().ok_or("an imported pool has a name")?;
        let found = DevicePool::find(&self.setup.context, id).ok_or("it is here")?;
        assert_eq!(found, pool);
        drop(pool);
        assert!(refused(found.trim_to(0)), "one of two is left");
        drop(found);
        assert!(DevicePool::find(&self.setup.context, id).is_none());
        self.channel.send_bytes(b"done")?;
        Ok(())
    }

    fn access(&mut self) -> Outcome {
        let pool = self.receive_pool()?;
        let devices = self.setup.driver.devices()?;
        assert_eq!(pool.access(&devices[0])?, PoolAccess::ReadWrite);
        assert_eq!(pool.access(&devices[1])?, PoolAccess::None);
        pool.allow_access(&devices[1])?;
        assert_eq!(pool.access(&devices[1])?, PoolAccess::ReadWrite);
        pool.deny_access(&devices[1])?;
        assert_eq!(pool.access(&devices[1])?, PoolAccess::None);
        self.channel.send_bytes(b"done")?;
        Ok(())
    }

    fn event(&mut self) -> Outcome {
        let descriptor = self.receive()?;
        let Export::Event(event) = self.channel.receive()? else { return Err("no event".into()) };
        let event = Event::import(&self.setup.context, &event)?;
        assert!(event.export().is_err(), "the driver does not pass events on");
        self.stream.wait(&event)?;
        let memory = self.import(&descriptor, &self.stream)?;
        self.channel.send_bytes(b"waiting")?;
        let seen = memory.to_vec()?;
        assert!(event.is_done()?);
        self.channel.send_bytes(&seen)?;
        Ok(())
    }

    fn fork(&mut self) -> Outcome {
        let (context, parent) = (&self.setup.context, std::process::id());
        let is_forked = |error: Option<Error>| match error {
            Some(Error::Forked { loaded_by, process, .. }) => loaded_by == parent && process == std::process::id(),
            _ => false,
        };
        // SAFETY: the child calls the driver, which refuses at once, and ends without running any clean-up.
        match unsafe { libc::fork() } {
            -1 => Err(std::io::Error::last_os_error().into()),
            0 => {
                let told = is_forked(context.synchronize().err())
                    && is_forked(Stream::new(context).err())
                    && is_forked(self.setup.driver.device(0).err())
                    && context.synchronize().is_err_and(|error| error.to_string().contains("forked"));
                // Values that end in the child must report nothing.
                drop(self.stream.clone());
                // SAFETY: ends the process.
                unsafe { libc::_exit(i32::from(!told)) }
            }
            child => {
                let mut status = 0;
                // SAFETY: the child is ours, and `status` is writable.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                assert_eq!(status, 0, "the forked process got no error");
                context.synchronize()?;
                Ok(())
            }
        }
    }
}
