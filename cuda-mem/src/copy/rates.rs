//! The measured rates between devices, and between each device and the host.

use crate::buffer::Buffer;
use crate::locks::Mutex;
use crate::memory::kind::Device;
use crate::memory::resource::Kind;
use crate::memory::{DeviceMemory, PinnedMemory};
use crate::{Context, Driver, Result, Stream, Topology};
use std::sync::Arc;
use std::time::Instant;

/// The bytes of one copy: enough to hide what a copy costs at its start, few enough for some milliseconds.
const SIZE: usize = 64 << 20;

/// Timed copies of each link; the fastest counts.
const REPEATS: usize = 2;

/// The rate of copies from one device to another, or between a device and page-locked memory of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkRate {
    /// The device that holds the source; `None` for the host.
    pub from: Option<i32>,
    /// The device that holds the destination; `None` for the host.
    pub to: Option<i32>,
    /// The measured rate.
    pub bytes_per_second: u64,
}

impl LinkRate {
    /// A rate that was measured earlier.
    pub const fn new(from: Option<i32>, to: Option<i32>, bytes_per_second: u64) -> Self {
        Self { from, to, bytes_per_second }
    }
}

/// What was measured, by the driver's library.
type Measured = (usize, Arc<[LinkRate]>);

static MEASURED: Mutex<Vec<Measured>> = Mutex::new(Vec::new());

fn measured(driver: &Driver) -> Option<Arc<[LinkRate]>> {
    let all = MEASURED.lock();
    all.iter().find(|(library, _)| *library == driver.library()).map(|(_, rates)| rates.clone())
}

/// A device in the measurement.
struct Side {
    ordinal: i32,
    stream: Stream,
    memory: Buffer<u8, Device>,
}

impl Side {
    fn new(context: &Context) -> Result<Self> {
        let stream = Stream::new(context)?;
        let memory = Buffer::zeroed(&DeviceMemory::new(context), SIZE, &stream)?;
        Ok(Self { ordinal: context.device().ordinal(), stream, memory })
    }
}

impl Topology {
    /// The rates of all ordered pairs of devices, and of each device with page-locked memory of the host. Measured at the
    /// first call in the process, by copies of 64 MiB, which take some milliseconds for each link while nothing else copies,
    /// and kept until the process ends. A copy by the same route as [`Buffer::copy_from_buffer`], so the devices get access
    /// where there is a path.
    ///
    /// The call opens the primary contexts of all devices, and allocates 64 MiB on each and on the host, which it frees.
    ///
    /// ```
    /// let driver = cuda_mem::Driver::software()?; // softgpu; a GPU: Driver::load()
    /// for rate in cuda_mem::Topology::rates(&driver)?.iter() {
    ///     println!("{:?} to {:?}: {} MB/s", rate.from, rate.to, rate.bytes_per_second / 1_000_000);
    /// }
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A device or the host has no room. As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias("cuMemcpyPeerAsync", "cuMemcpyAsync"))]
    pub fn rates(driver: &Driver) -> Result<Arc<[LinkRate]>> {
        if let Some(rates) = measured(driver) {
            return Ok(rates);
        }
        // Not under the lock, because the copies are waited for.
        let rates: Arc<[LinkRate]> = measure(driver)?.into();
        let mut all = MEASURED.lock();
        match all.iter().find(|(library, _)| *library == driver.library()) {
            Some((_, first)) => Ok(first.clone()),
            None => {
                all.push((driver.library(), rates.clone()));
                Ok(rates)
            }
        }
    }
}

fn measure(driver: &Driver) -> Result<Vec<LinkRate>> {
    let contexts: Vec<Context> =
        driver.devices()?.iter().map(|device| device.primary_context()).collect::<Result<_>>()?;
    let mut sides: Vec<Side> = contexts.iter().map(Side::new).collect::<Result<_>>()?;
    let mut rates = Vec::new();
    for (number, context) in contexts.iter().enumerate() {
        let side = &mut sides[number];
        let mut host = Buffer::zeroed(&PinnedMemory::new(context), SIZE, &side.stream)?;
        let device = Some(side.ordinal);
        rates.push(LinkRate { from: None, to: device, bytes_per_second: rate(&mut side.memory, &host)? });
        rates.push(LinkRate { from: device, to: None, bytes_per_second: rate(&mut host, &side.memory)? });
    }
    for to in 0..sides.len() {
        for from in (0..sides.len()).filter(|from| *from != to) {
            let Ok([to, from]) = sides.get_disjoint_mut([to, from]) else { continue };
            let bytes_per_second = rate(&mut to.memory, &from.memory)?;
            rates.push(LinkRate { from: Some(from.ordinal), to: Some(to.ordinal), bytes_per_second });
        }
    }
    Ok(rates)
}

/// The rate of the fastest of some copies, after one that is not timed.
fn rate<K: Kind, L: Kind>(to: &mut Buffer<u8, K>, from: &Buffer<u8, L>) -> Result<u64> {
    let mut least = f64::INFINITY;
    for timed in 0..=REPEATS {
        from.synchronize()?;
        to.synchronize()?;
        let start = Instant::now();
        to.copy_from_buffer(0, from, ..)?;
        to.synchronize()?;
        if timed > 0 {
            least = least.min(start.elapsed().as_secs_f64());
        }
    }
    Ok((SIZE as f64 / least) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "needs the software GPU")]
    fn every_link_is_measured_once() -> Result<()> {
        let driver = Driver::software()?;
        let rates = Topology::rates(&driver)?;
        let mut links: Vec<_> = rates.iter().map(|rate| (rate.from, rate.to)).collect();
        links.sort_unstable();
        let all = [
            (None, Some(0)),
            (None, Some(1)),
            (Some(0), None),
            (Some(0), Some(1)),
            (Some(1), None),
            (Some(1), Some(0)),
        ];
        assert_eq!(links, all);
        assert!(rates.iter().all(|rate| rate.bytes_per_second > 1 << 20), "{rates:?}");
        assert!(Arc::ptr_eq(&rates, &Topology::rates(&driver)?), "the second call measures nothing");
        Ok(())
    }
}
