//! Memory of one device, exported to a process that uses it with another device.

use super::roles::Importer;
use super::{Other, Outcome, inverted, nothing_dropped, pattern, same, shareable_on};
use cuda_mem::buffer::{BatchOptions, CopyBatch, PeerRoute};
use cuda_mem::ipc::{Descriptor, Export};
use cuda_mem::memory::kind::Device;
use cuda_mem::memory::{DeviceMemory, DevicePool, ResourceHandle, SharedResource, VirtualMemory, VirtualOptions};
use cuda_mem::view::{Index, ViewCopyOptions};
use cuda_mem::{Buffer, Context, Error, Feature, PeerError, SharedBuffer, Stream, Support, Topology};
use std::error::Error as StdError;
use testkit::{Setup, on_softgpu, test_name};

const SIZE: usize = 6000;

/// What the other device may do with the memory.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u8)]
enum Reach {
    Direct,
    /// The machine has no path between the devices.
    NoPath,
    /// There is a path, which loses what is copied.
    Broken,
}

/// Exports memory of every source of device `owner` to a process that uses it with device `user`.
fn exported(setup: &Setup, owner: i32, user: i32, reach: Reach) -> Outcome {
    let context = setup.driver.device(owner)?.primary_context()?;
    let (stream, device) = (Stream::new(&context)?, context.device());
    let (bytes, mut tested) = (pattern(SIZE, 3), 0);
    let start = || -> Result<Other, Box<dyn StdError>> {
        let mut other = Other::start("another_device")?;
        other.channel.send_bytes(&[owner as u8, user as u8, reach as u8])?;
        Ok(other)
    };
    let has = |feature| device.supports(feature).map(|support| support != Support::No);
    if has(Feature::Ipc)? {
        let (mut other, source) = (start()?, DeviceMemory::new(&context));
        let memory = Buffer::from_slice(&source, &bytes, &stream)?.into_shared();
        other.channel.send(&memory.export()?)?;
        written_and_read("plain memory", other, memory)?;
        tested += 1;
    }
    if has(Feature::SharedPools)? {
        let (mut other, pool) = (start()?, shareable_on(&context)?);
        let memory = Buffer::from_slice(&pool, &bytes, &stream)?.into_shared();
        other.channel.send(&pool.export()?)?;
        other.channel.send(&memory.export()?)?;
        written_and_read("a driver's pool", other, memory)?;
        tested += 1;
    }
    if has(Feature::SharedPhysicalMemory)? {
        let mut options = VirtualOptions::default();
        options.shareable = true;
        let (mut other, source) = (start()?, VirtualMemory::new(&context, &options)?);
        let memory = Buffer::from_slice(&source, &bytes, &stream)?.into_shared();
        other.channel.send(&source.export(&memory)?)?;
        written_and_read("virtual memory", other, memory)?;
        tested += 1;
    }
    assert!(tested > 0 || !setup.is_software(), "the software GPU shares every source");
    if tested < 3 {
        println!("skipped: device {owner} shares {tested} of 3 sources; run this where `cuda-mem doctor` shows all");
    }
    nothing_dropped(setup)
}

/// The exporter's side: it reads what the other process wrote, and writes again.
fn written_and_read(name: &str, mut other: Other, mut memory: SharedBuffer<u8, Device>) -> Outcome {
    let bytes = pattern(SIZE, 3);
    assert_eq!(other.channel.receive_bytes()?, b"written", "{name}");
    same(name, &memory.to_vec()?, &inverted(&bytes))?;
    memory.copy_from_slice(0, &bytes)?;
    memory.synchronize()?;
    other.channel.send_bytes(b"again")?;
    assert_eq!(other.channel.receive_bytes()?, b"done", "{name}");
    other.finish()
}

/// The importer: its device `here` uses memory of device `there`.
struct User {
    there: Context,
    here: Context,
    far: Stream,
    near: Stream,
    reach: Reach,
}

pub fn play(importer: &mut Importer) -> Outcome {
    let message = importer.channel.receive_bytes()?;
    let [owner, user, reach] = message[..] else { return Err("not three numbers".into()) };
    let context = |ordinal| importer.setup.driver.device(i32::from(ordinal))?.primary_context();
    let (there, here): (Context, Context) = (context(owner)?, context(user)?);
    let (far, near) = (Stream::new(&there)?, Stream::new(&here)?);
    let reach = [Reach::Direct, Reach::NoPath, Reach::Broken][usize::from(reach)];
    let user = User { there, here, far, near, reach };
    match importer.channel.receive()? {
        Export::DeviceMemory(descriptor) => user.plain_memory(importer, &descriptor),
        Export::Pool(export) => {
            let pool = DevicePool::import(&user.there, export)?;
            let Export::PoolMemory(descriptor) = importer.channel.receive()? else { return Err("no memory".into()) };
            let memory = pool.import_buffer(&descriptor, &user.far)?;
            user.opened_memory("a driver's pool", importer, &pool.share(), memory)
        }
        Export::VirtualMemory(export) => {
            let source = VirtualMemory::new(&user.there, &VirtualOptions::default())?;
            let memory = source.import(export, &user.far)?;
            user.opened_memory("virtual memory", importer, &source.share(), memory)
        }
        other => Err(format!("{other:?} came").into()),
    }?;
    for context in [&user.there, &user.here] {
        context.synchronize()?;
        assert_eq!(context.take_drop_errors().errors, []);
    }
    importer.channel.send_bytes(b"done")?;
    Ok(())
}

impl User {
    /// Memory that is imported with the device that holds it, and then opened to the other one.
    fn opened_memory(
        &self,
        name: &str,
        importer: &mut Importer,
        source: &SharedResource,
        mut memory: SharedBuffer<u8, Device>,
    ) -> Outcome {
        let route = if self.reach == Reach::Direct { PeerRoute::Direct } else { PeerRoute::ThroughHost };
        self.copies(name, &memory, route)?;
        self.check(name, source.allow_access(self.here.device()))?;
        self.write(importer, &mut memory)?;
        self.kernel_reads(name, &memory, self.reach == Reach::Direct)?;
        source.deny_access(self.here.device())?;
        self.copies(name, &memory, PeerRoute::ThroughHost)
    }

    /// Plain memory is imported for each device that uses it.
    fn plain_memory(&self, importer: &mut Importer, descriptor: &Descriptor) -> Outcome {
        let mut at_home = DeviceMemory::new(&self.there).import_buffer(descriptor, &self.far)?;
        self.copies("plain memory", &at_home, PeerRoute::ThroughHost)?;
        match DeviceMemory::new(&self.here).import_buffer::<u8>(descriptor, &self.near) {
            Ok(mut memory) => {
                self.check("plain memory", Ok(()))?;
                self.copies("plain memory", &memory, PeerRoute::SameDevice)?;
                self.write(importer, &mut memory)?;
                drop(at_home); // the imports end one by one
                self.far.synchronize()?;
                self.kernel_reads("plain memory", &memory, true)
            }
            Err(error) => {
                self.check("plain memory", Err(error))?;
                self.write(importer, &mut at_home)?;
                self.kernel_reads("plain memory", &at_home, false)
            }
        }
    }

    /// Access is given, or refused by the error that names the reason and both devices.
    fn check(&self, name: &str, allowed: cuda_mem::Result<()>) -> Outcome {
        match (self.reach, allowed) {
            (Reach::Direct, Ok(())) => Ok(()),
            (Reach::NoPath, Err(Error::Peer(PeerError::NoPath { device, owner, .. })))
            | (Reach::Broken, Err(Error::Peer(PeerError::Unverified { device, owner, .. })))
                if self.names(device, owner) =>
            {
                Ok(())
            }
            (reach, other) => Err(format!("{name}, {reach:?}: {other:?}").into()),
        }
    }

    fn names(&self, device: i32, owner: i32) -> bool {
        (device, owner) == (self.here.device().ordinal(), self.there.device().ordinal())
    }

    /// Copies ask for access by themselves, and arrive without.
    fn copies(&self, name: &str, memory: &SharedBuffer<u8, Device>, route: PeerRoute) -> Outcome {
        let mut copy = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&self.here), SIZE, &self.near)?;
        copy.copy_from_buffer(0, memory, ..)?;
        same(name, &copy.to_vec()?, &pattern(SIZE, 3))?;
        assert_eq!(memory.route_to(&copy), route, "{name}");
        Ok(())
    }

    /// The device writes the inverse; the exporter looks at it, and writes again.
    fn write(&self, importer: &mut Importer, memory: &mut SharedBuffer<u8, Device>) -> Outcome {
        let mut options = BatchOptions::default();
        options.require_direct = self.reach == Reach::Direct;
        let inverse = Buffer::from_slice(&DeviceMemory::new(&self.here), &inverted(&pattern(SIZE, 3)), &self.near)?;
        let mut batch = CopyBatch::with_options(&self.near, options);
        batch.copy(memory, 0, &inverse, ..)?;
        batch.submit()?;
        memory.synchronize()?;
        importer.channel.send_bytes(b"written")?;
        assert_eq!(importer.channel.receive_bytes()?, b"again");
        Ok(())
    }

    /// A kernel of the device reads every second byte, if it can address the memory.
    fn kernel_reads(&self, name: &str, memory: &SharedBuffer<u8, Device>, can: bool) -> Outcome {
        let even = memory.view(&[60, 100])?.sliced(&[Index::ALL, Index::ALL.step(2)])?;
        let mut half = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&self.here), SIZE / 2, &self.near)?;
        let mut options = ViewCopyOptions::default();
        options.require_direct = true;
        match half.view_mut(&[60, 50])?.copy_from_with(&even, &options) {
            Ok(()) if can => {
                let expected: Vec<u8> = pattern(SIZE, 3).into_iter().step_by(2).collect();
                Ok(same(name, &half.to_vec()?, &expected)?)
            }
            Err(Error::Peer(PeerError::ThroughHost { device, owner, .. })) if !can && self.names(device, owner) => {
                Ok(())
            }
            other => Err(format!("{name}, {:?}: {other:?}", self.reach).into()),
        }
    }
}

#[test]
fn another_process_uses_memory_with_another_device() -> Outcome {
    let setup = Setup::from_environment()?;
    let topology = Topology::of(&setup.driver)?;
    if topology.devices().len() < 2 {
        println!("skipped: two devices are needed; run this on a machine with two, or unset CUDA_MEM_LIBCUDA");
        return Ok(());
    }
    for (owner, user) in [(0, 1), (1, 0)] {
        let link = topology.link(user, owner).ok_or("two devices have a link")?;
        exported(&setup, owner, user, if link.access { Reach::Direct } else { Reach::NoPath })?;
    }
    Ok(())
}

#[test]
fn without_a_path_the_other_process_learns_so_by_name() {
    on_softgpu(&test_name!("part_none"), "none", "2");
}

#[test]
#[ignore = "a part of the test above, which gives it an environment"]
fn part_none() -> Outcome {
    another_process_uses_memory_with_another_device()
}

#[test]
fn the_importer_finds_access_that_loses_copies() {
    on_softgpu(&test_name!("part_broken"), "broken", "2");
}

#[test]
#[ignore = "a part of the test above, which gives it an environment"]
fn part_broken() -> Outcome {
    exported(&Setup::from_environment()?, 0, 1, Reach::Broken)
}
