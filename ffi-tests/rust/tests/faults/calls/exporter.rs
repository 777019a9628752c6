//! A second process that exports pools for these runs to import. A process cannot import its own exports, so the second
//! process is needed.

use super::Outcome;
use cuda_mem::ipc::{Channel, Descriptor, Export, PoolExport};
use cuda_mem::memory::{DevicePool, DriverPoolOptions, PinnedPool};
use cuda_mem::{Buffer, Driver, Stream};
use std::error::Error as StdError;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use testkit::{in_its_own_process, pattern, test_name};

const ROLE: &str = "CUDA_MEM_TEST_EXPORTER";
const PATIENCE: Duration = Duration::from_secs(60);

/// The second process's exports for one run.
pub struct Exported {
    pub device: (PoolExport, Descriptor),
    pub pinned: (PoolExport, Descriptor),
}

/// The contents of both memories.
pub fn bytes() -> Vec<u8> {
    pattern(1000, 1)
}

/// Exports new pools and memory for each run: if the end of an import failed, the driver still has that import. This
/// process makes no driver call here.
pub fn exported() -> Result<Exported, Box<dyn StdError>> {
    static CHANNEL: Mutex<Option<Channel>> = Mutex::new(None);
    let mut channel = CHANNEL.lock().unwrap_or_else(PoisonError::into_inner);
    if channel.is_none() {
        *channel = Some(start()?);
    }
    let channel = channel.as_mut().ok_or("there is no channel")?;
    channel.send_bytes(b"next")?;
    let mut next = || match (channel.receive()?, channel.receive()?) {
        (Export::Pool(pool), Export::PoolMemory(memory)) => Ok((pool, memory)),
        other => Err(Box::<dyn StdError>::from(format!("{other:?} came"))),
    };
    Ok(Exported { device: next()?, pinned: next()? })
}

fn start() -> Result<Channel, Box<dyn StdError>> {
    let (mut channel, theirs) = Channel::pair()?;
    channel.set_timeout(Some(PATIENCE));
    in_its_own_process(&test_name!("other_process"))
        .env(ROLE, "1")
        .stdin(Stdio::from(OwnedFd::from(theirs.into_stream())))
        .spawn()?;
    Ok(channel)
}

#[test]
#[ignore = "other tests run it in another process"]
fn other_process() -> Outcome {
    if std::env::var_os(ROLE).is_none() {
        return Ok(());
    }
    let mut channel = Channel::from_stream(UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?))?;
    let context = Driver::software()?.device(0)?.primary_context()?;
    let (stream, mut options) = (Stream::new(&context)?, DriverPoolOptions::default());
    options.shareable = true;
    // Continue until the first process ends.
    let mut last = None;
    while channel.receive_bytes().is_ok() {
        let (device, pinned) = (DevicePool::new(&context, &options)?, PinnedPool::on_numa_node(&context, 0, &options)?);
        let one = Buffer::from_slice(&device, &bytes(), &stream)?.into_shared();
        let other = Buffer::from_slice(&pinned, &bytes(), &stream)?.into_shared();
        channel.send(&device.export()?)?;
        channel.send(&one.slice(10..900)?.export()?)?;
        channel.send(&pinned.export()?)?;
        channel.send(&other.export()?)?;
        last = Some((one, other));
    }
    drop(last);
    Ok(())
}
