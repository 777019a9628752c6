//! One other device's host link: its staging, and the pieces of a copy that pass through it.

use super::links::SLOTS;
use super::method::Direction;
use crate::buffer::{Buffer, DeviceRoute, HeldRoute, Viewed, route};
use crate::error::call;
use crate::memory::DeviceMemory;
use crate::memory::kind::Device;
use crate::{Context, Event, Result, Stream};
use core::mem::MaybeUninit;
use core::ops::Range;
use cuda_sys::CUdeviceptr;

/// A copy between host memory and a device.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    pub call: &'static str,
    pub direction: Direction,
    pub device: &'a dyn Viewed,
    pub device_at: CUdeviceptr,
    pub host: &'a dyn Viewed,
    pub host_at: CUdeviceptr,
    /// In bytes.
    pub size: usize,
}

impl Job<'_> {
    /// Orders a place on the device's side and one on the host's side: to, from.
    pub fn ends<P>(&self, device: P, host: P) -> (P, P) {
        match self.direction {
            Direction::ToDevice => (device, host),
            Direction::FromDevice => (host, device),
        }
    }
}

/// Events around the work of a link.
pub(super) struct Timer {
    pub begin: Event,
    pub end: Event,
}

impl Timer {
    pub fn new(context: &Context) -> Result<Self> {
        Ok(Self { begin: Event::with_timing(context)?, end: Event::with_timing(context)? })
    }
}

/// Another device's link. Between two copies, all work on the staging is before the end of its home stream.
pub(super) struct Link {
    /// The device whose memory is copied.
    near: Context,
    /// Copies between the devices, by the near one.
    peer: Stream,
    /// Its home stream makes the copies over the host link.
    staging: Buffer<MaybeUninit<u8>, Device>,
    slots: [Slot; SLOTS],
}

/// A quarter of the staging: the events after its last copies.
struct Slot {
    over_host_link: Event,
    between_devices: Event,
}

impl Link {
    pub fn new(near: &Context, far: &Context, piece: usize) -> Result<Self> {
        let staging = Buffer::<u8, _>::uninit(&DeviceMemory::new(far), SLOTS * piece, &Stream::new(far)?)?;
        let slot =
            || -> Result<Slot> { Ok(Slot { over_host_link: Event::new(far)?, between_devices: Event::new(near)? }) };
        let slots = [slot()?, slot()?, slot()?, slot()?];
        Ok(Self { near: near.clone(), peer: Stream::new(near)?, staging, slots })
    }

    /// The context of the device whose link it is.
    pub fn context(&self) -> &Context {
        self.staging.context()
    }

    /// The stream of the copies over the host link.
    pub fn host_stream(&self) -> &Stream {
        self.staging.stream()
    }

    pub fn staging_size(&self) -> usize {
        self.staging.len()
    }

    /// The largest piece in bytes.
    pub fn piece(&self) -> usize {
        self.staging.len() / SLOTS
    }

    /// What the copies between the devices, and those over the host link, need access to.
    fn routes<'a>(&'a self, job: &Job<'a>) -> [(&'a Context, DeviceRoute<'a>); 2] {
        let far = self.context();
        let between = route(&self.near, Some(&self.staging), Some(job.device));
        [(&self.near, between), (far, route(far, Some(&self.staging), Some(job.host)))]
    }

    /// Whether the devices certainly access what they copy. Gives access at the first need.
    pub fn ensure_access(&self, job: &Job<'_>) -> bool {
        self.routes(job).iter().all(|(context, route)| route.ensure_access(context))
    }

    /// Keeps the access as it is. Only driver calls that queue work may be made meanwhile.
    pub fn hold<'a>(&'a self, job: &Job<'a>) -> [HeldRoute<'a>; 2] {
        self.routes(job).map(|(context, route)| route.hold(context))
    }

    /// Orders a copy after the work of `home`.
    pub fn order_after(&self, home: &Stream, direction: Direction) -> Result<()> {
        self.host_stream().order_work_after(home)?;
        match direction {
            Direction::ToDevice => Ok(()),
            // The copies between the devices are the first.
            Direction::FromDevice => self.peer.order_work_after(self.host_stream()),
        }
    }

    /// Orders later work of `home`, and of the staging, after a copy.
    pub fn order_before(&self, home: &Stream) -> Result<()> {
        let ended = self.host_stream().order_work_after_or_wait(&self.peer);
        let ordered = home.order_work_after_or_wait(self.host_stream());
        self.staging.mark_busy();
        ended.and(ordered)
    }

    /// Queues one piece of a copy: the `turn`-th of this link.
    pub fn queue(&self, job: &Job<'_>, range: Range<usize>, turn: usize) -> Result<()> {
        let slot = &self.slots[turn % SLOTS];
        let staging = self.staging.address(turn % SLOTS * self.piece());
        let (device, host) = (job.device_at + range.start as CUdeviceptr, job.host_at + range.start as CUdeviceptr);
        let over_host_link = || {
            let (to, from) = job.ends(staging, host);
            // SAFETY: the ranges lie within their memory. The host's is freed after its home stream's work, which comes after
            // the copy; nothing else uses the slot until its event.
            unsafe { copy(self.host_stream(), to, from, range.len()) }?;
            slot.over_host_link.mark(&self.host_stream().running(job.call)?)
        };
        let between_devices = || {
            let (to, from) = job.ends((device, job.device.context()), (staging, self.context()));
            // SAFETY: as above, for the device's memory.
            unsafe { copy_between(&self.peer, to, from, range.len()) }?;
            slot.between_devices.mark(&self.peer.running(job.call)?)
        };
        let is_used = turn >= SLOTS;
        match job.direction {
            Direction::ToDevice => {
                if is_used {
                    self.host_stream().wait(&slot.between_devices)?;
                }
                over_host_link()?;
                self.peer.wait(&slot.over_host_link)?;
                between_devices()
            }
            Direction::FromDevice => {
                if is_used {
                    self.peer.wait(&slot.over_host_link)?;
                }
                between_devices()?;
                self.host_stream().wait(&slot.between_devices)?;
                over_host_link()
            }
        }
    }
}

/// Queues a copy.
///
/// # Safety
///
/// Both ranges are valid for `size` bytes until the work on the stream is done.
pub(super) unsafe fn copy(stream: &Stream, to: CUdeviceptr, from: CUdeviceptr, size: usize) -> Result<()> {
    let (cuda, _ready) = stream.ready()?;
    // SAFETY: this function's contract.
    unsafe { call!(cuda.cuMemcpyAsync(to, from, size, stream.raw())) }
}

/// Queues a copy between devices.
///
/// # Safety
///
/// As [`copy`].
unsafe fn copy_between(
    stream: &Stream,
    (to, to_context): (CUdeviceptr, &Context),
    (from, from_context): (CUdeviceptr, &Context),
    size: usize,
) -> Result<()> {
    let (cuda, _ready) = stream.ready()?;
    let (to_context, from_context) = (to_context.raw(), from_context.raw());
    // SAFETY: this function's contract.
    unsafe { call!(cuda.cuMemcpyPeerAsync(to, to_context, from, from_context, size, stream.raw())) }
}
