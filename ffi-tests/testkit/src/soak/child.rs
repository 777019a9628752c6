//! The second process: this program, started again.

use super::{Done, Trouble};
use crate::Setup;
use cuda_mem::buffer::CopyBatch;
use cuda_mem::ipc::{Channel, Export};
use cuda_mem::memory::kind::Device;
use cuda_mem::memory::{DeviceMemory, DevicePool, DriverPoolOptions, VirtualMemory, VirtualOptions};
use cuda_mem::{Buffer, Error, SharedBuffer, Stream};
use std::error::Error as StdError;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The environment variable that tells a process its role.
pub const ROLE: &str = "CUDA_MEM_SOAK_ROLE";
/// Imports memory, sends what it holds, and inverts it.
pub const IMPORTER: &str = "importer";
/// Imports memory of the first device, and inverts it by the second device.
pub const OTHER_DEVICE: &str = "importer on another device";
/// Exports memory, and ends when the first process says so.
pub const EXPORTER: &str = "exporter";

/// Forgets values that hold driver objects.
pub const FORGETTER: &str = "forgetter";

/// How long a process may take for one step.
const PATIENCE: Duration = Duration::from_secs(50);

/// The second process, and the channel to it, which is its standard input.
#[derive(Debug)]
pub struct Other {
    process: Child,
    /// The channel to the process.
    pub channel: Channel,
    killer: Option<std::thread::JoinHandle<()>>,
}

impl Other {
    /// Starts the process in a role.
    ///
    /// # Errors
    ///
    /// The system refuses a process or a socket.
    pub fn start(role: &str) -> Done<Self> {
        let (mut channel, theirs) = Channel::pair()?;
        channel.set_timeout(Some(PATIENCE));
        let process = Command::new(std::env::current_exe()?)
            .env(ROLE, role)
            .stdin(Stdio::from(OwnedFd::from(theirs.into_stream())))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { process, channel, killer: None })
    }

    /// Kills the process after a delay.
    pub fn kill_after(&mut self, moment: Duration) {
        let process = self.process.id();
        self.killer = Some(std::thread::spawn(move || {
            let start = Instant::now();
            std::thread::sleep(moment.saturating_sub(start.elapsed()));
            // SAFETY: the process is our child, and nothing waits for it before this thread has ended.
            unsafe { libc::kill(process as libc::pid_t, libc::SIGKILL) };
        }));
    }

    /// Tells the process to end, and waits until it has ended.
    ///
    /// # Errors
    ///
    /// It failed, and was not killed.
    pub fn finish(mut self, killed: bool) -> Done {
        let told = self.channel.send_bytes(b"end");
        self.wait_for_killer();
        let status = self.process.wait()?;
        if !killed {
            told?;
            if !status.success() {
                return Err(Trouble::Wrong(format!("the other process failed: {status}")));
            }
        }
        Ok(())
    }

    fn wait_for_killer(&mut self) {
        if let Some(killer) = self.killer.take() {
            // The thread's result does not matter.
            let _ = killer.join();
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.wait_for_killer();
        // Leave no process behind. For a process that has ended this does nothing.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs the role of the second process, if this is the second process.
///
/// # Errors
///
/// A step failed.
pub fn play() -> Option<Result<(), Box<dyn StdError>>> {
    let role = std::env::var(ROLE).ok()?;
    Some(match role.as_str() {
        IMPORTER => import(),
        OTHER_DEVICE => import_for_another_device(),
        EXPORTER => export(),
        FORGETTER => forget(),
        other => Err(format!("{ROLE}={other} is not a role").into()),
    })
}

fn channel() -> Result<Channel, Box<dyn StdError>> {
    let mut channel = Channel::from_stream(UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?))?;
    channel.set_timeout(Some(PATIENCE));
    Ok(channel)
}

fn import() -> Result<(), Box<dyn StdError>> {
    let (mut channel, setup) = (channel()?, Setup::from_environment()?);
    let stream = Stream::new(&setup.context)?;
    let Export::Pool(pool) = channel.receive()? else { return Err("no pool came".into()) };
    let Export::PoolMemory(descriptor) = channel.receive()? else { return Err("no memory came".into()) };
    let pool = DevicePool::import(&setup.context, pool)?;
    let mut memory = pool.import_buffer::<u8>(&descriptor, &stream)?;
    let seen = memory.to_vec()?;
    let inverted: Vec<u8> = seen.iter().map(|byte| !byte).collect();
    memory.copy_from_slice(0, &inverted)?;
    memory.synchronize()?;
    channel.send_bytes(&seen)?;
    // The first process must recognise its own memory in this export.
    channel.send(&memory.export()?)?;
    channel.receive_bytes()?;
    Ok(())
}

fn import_for_another_device() -> Result<(), Box<dyn StdError>> {
    let (mut channel, setup) = (channel()?, Setup::from_environment()?);
    let (there, here) = (&setup.context, setup.driver.device(1)?.primary_context()?);
    let (far, near) = (Stream::new(there)?, Stream::new(&here)?);
    let mut memory: SharedBuffer<u8, Device> = match channel.receive()? {
        Export::Pool(pool) => {
            let Export::PoolMemory(descriptor) = channel.receive()? else { return Err("no memory came".into()) };
            DevicePool::import(there, pool)?.import_buffer(&descriptor, &far)?
        }
        Export::DeviceMemory(descriptor) => match DeviceMemory::new(&here).import_buffer(&descriptor, &near) {
            Err(Error::Peer(_)) => DeviceMemory::new(there).import_buffer(&descriptor, &far)?,
            imported => imported?,
        },
        Export::VirtualMemory(export) => VirtualMemory::new(there, &VirtualOptions::default())?.import(export, &far)?,
        other => return Err(format!("{other:?} came").into()),
    };
    let plain = DeviceMemory::new(&here);
    let mut copy = Buffer::<u8, _>::zeroed(&plain, memory.len(), &near)?;
    copy.copy_from_buffer(0, &memory, ..)?;
    let seen = copy.to_vec()?;
    let inverted: Vec<u8> = seen.iter().map(|byte| !byte).collect();
    let inverted = Buffer::from_slice(&plain, &inverted, &near)?;
    let mut batch = CopyBatch::new(&near);
    batch.copy(&mut memory, 0, &inverted, ..)?;
    batch.submit()?;
    memory.synchronize()?;
    channel.send_bytes(&seen)?;
    channel.receive_bytes()?;
    Ok(())
}

fn forget() -> Result<(), Box<dyn StdError>> {
    softgpu::configure(super::run::watching(softgpu::Settings::from_environment()?))?;
    super::work::forget_in_a_process(&Setup::from_environment()?)?;
    channel()?.receive_bytes()?;
    Ok(())
}

fn export() -> Result<(), Box<dyn StdError>> {
    let (mut channel, setup) = (channel()?, Setup::from_environment()?);
    let (stream, mut options) = (Stream::new(&setup.context)?, DriverPoolOptions::default());
    options.shareable = true;
    let pool = DevicePool::new(&setup.context, &options)?;
    let bytes = crate::pattern(4000, std::process::id() as u8);
    let memory = Buffer::from_slice(&pool, &bytes, &stream)?.into_shared();
    memory.synchronize()?;
    channel.send_bytes(&bytes)?;
    channel.send(&pool.export()?)?;
    channel.send(&memory.export()?)?;
    channel.receive_bytes()?;
    Ok(())
}
