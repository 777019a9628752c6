//! Routes of copies between devices.

use super::{Access, Buffer, Viewed};
use crate::driver::context::Entered;
use crate::error::PeerError;
use crate::memory::peers::{HeldAccess, PeerSource};
use crate::memory::resource::Kind;
use crate::{Context, Result};

/// The route that a copy between two buffers takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PeerRoute {
    /// Both sides lie on one device.
    SameDevice,
    /// The destination's device reads the source's memory over the link between the devices.
    Direct,
    /// The driver moves the bytes through host memory, because the destination's device does not access the source. Also
    /// named for memory of other libraries, whose source is not known; the driver copies it directly if it can.
    ThroughHost,
    /// At least one side is host memory.
    HostMemory,
}

impl<T, K: Kind, A: Access> Buffer<T, K, A> {
    /// The route of copies from this buffer to another one, such as
    /// [`copy_from_buffer`](Self::copy_from_buffer). Like such a copy, the call gives the destination's device access to
    /// this buffer's source of memory if it can, and verifies it, which takes milliseconds once for each source and device.
    ///
    /// ```
    /// let driver = cuda_mem::Driver::software()?; // softgpu; a GPU: Driver::load()
    /// use cuda_mem::buffer::PeerRoute;
    /// use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// let (near, far) = (driver.device(0)?.primary_context()?, driver.device(1)?.primary_context()?);
    /// let source = Buffer::from_slice(&DeviceMemory::new(&far), &[1u8, 2, 3], &Stream::new(&far)?)?;
    /// let mut copy = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&near), 3, &Stream::new(&near)?)?;
    /// copy.copy_from_buffer(0, &source, ..)?;
    /// assert_eq!(source.route_to(&copy), PeerRoute::Direct); // on a machine without a path: ThroughHost
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    #[doc(alias = "cuDeviceCanAccessPeer")]
    pub fn route_to<U, L: Kind, B: Access>(&self, destination: &Buffer<U, L, B>) -> PeerRoute {
        let context = destination.stream().context();
        route(context, Some(destination), Some(self)).seen(context)
    }

    /// Refuses a copy from this buffer to another one that would go through the host although both lie on devices. Call it
    /// before a copy that must be fast.
    ///
    /// # Errors
    ///
    /// The route would be [`PeerRoute::ThroughHost`]: [`PeerError::ThroughHost`].
    pub fn require_direct_to<U, L: Kind, B: Access>(&self, destination: &Buffer<U, L, B>) -> Result<()> {
        self.require_direct("Buffer::require_direct_to", destination)
    }

    pub(crate) fn require_direct<U, L: Kind, B: Access>(
        &self,
        call: &'static str,
        destination: &Buffer<U, L, B>,
    ) -> Result<()> {
        match (self.route_to(destination), destination.device_ordinal(), self.device_ordinal()) {
            (PeerRoute::ThroughHost, Some(device), Some(owner)) => {
                Err(PeerError::ThroughHost { call, device, owner }.into())
            }
            _ => Ok(()),
        }
    }
}

/// How a context's device copies bytes between two memories: by which access, and whether the driver can do without. All
/// copies and comparisons ask this.
#[derive(Debug)]
pub(crate) struct DeviceRoute<'a> {
    /// Of the destination and the source. None for host memory.
    ordinals: [Option<i32>; 2],
    /// The access that the device needs to the destination and to the source. None for memory that it reaches anyway.
    pub needed: [Option<NeededAccess<'a>>; 2],
}

/// Access that a device needs to the memory of one side of a copy.
#[derive(Debug)]
pub(crate) struct NeededAccess<'a> {
    /// What gives access; None if nothing does.
    source: Option<PeerSource<'a>>,
    /// Whether the memory certainly is the source's.
    is_known: bool,
    /// What gives access to the memory of the other side: a change of that access breaks the copy too.
    other_side: Option<PeerSource<'a>>,
}

/// The route of a copy that a context's device does. Memory that is no buffer is host memory, which is open to all devices.
pub(crate) fn route<'a>(
    context: &Context,
    to: Option<&'a (impl Viewed + ?Sized)>,
    from: Option<&'a (impl Viewed + ?Sized)>,
) -> DeviceRoute<'a> {
    let mut needed = [to.and_then(|to| needed_access(to, context)), from.and_then(|from| needed_access(from, context))];
    if let Some(to) = &mut needed[0] {
        to.other_side = from.and_then(access_to);
    }
    if let Some(from) = &mut needed[1] {
        from.other_side = to.and_then(access_to);
    }
    DeviceRoute { ordinals: [to.and_then(Viewed::device_ordinal), from.and_then(Viewed::device_ordinal)], needed }
}

impl<'a> DeviceRoute<'a> {
    /// Whether the context's device certainly accesses both sides. Gives access at the first need.
    pub fn ensure_access(&self, context: &Context) -> bool {
        self.needed.iter().flatten().all(|needed| needed.ensure(context))
    }

    /// Whether a side is host memory that its source opens to each device. The driver fails or crashes on a copy with it by
    /// a device that does not access both sides.
    pub fn has_opened_host_memory(&self) -> bool {
        self.ordinals.iter().zip(&self.needed).any(|(ordinal, needed)| ordinal.is_none() && needed.is_some())
    }

    /// The ordinals of the destination and the source, if they are two devices.
    pub fn between_devices(&self) -> Option<[i32; 2]> {
        match self.ordinals {
            [Some(to), Some(from)] if to != from => Some([to, from]),
            _ => None,
        }
    }

    /// The route as the program sees it. Gives access at the first need.
    fn seen(&self, context: &Context) -> PeerRoute {
        match self.ordinals {
            [Some(to), Some(from)] if to == from => PeerRoute::SameDevice,
            [Some(_), Some(_)] if self.ensure_access(context) => PeerRoute::Direct,
            [Some(_), Some(_)] => PeerRoute::ThroughHost,
            _ => PeerRoute::HostMemory,
        }
    }

    /// Keeps a context's access to both sides as it is until the result is dropped, and that of others. Only driver calls
    /// that queue work may be made meanwhile.
    pub fn hold(&self, context: &Context) -> HeldRoute<'a> {
        self.hold_sides(context, [true; 2])
    }

    /// The same for some of the sides: the destination, the source.
    pub fn hold_sides(&self, context: &Context, [to, from]: [bool; 2]) -> HeldRoute<'a> {
        let hold = |side: usize| self.needed[side].as_ref().map(|needed| needed.hold(context));
        let held = [if to { hold(0) } else { None }, if from { hold(1) } else { None }];
        HeldRoute { is_reached: held.iter().flatten().all(|held| held.is_reached), _held: held }
    }
}

impl<'a> NeededAccess<'a> {
    /// Whether the context's device certainly accesses the memory. Gives access at the first need.
    pub fn ensure(&self, context: &Context) -> bool {
        let is_given = self.source.as_ref().is_some_and(|source| source.ensure_access(context));
        is_given && self.is_known
    }

    fn hold(&self, context: &Context) -> HeldSide<'a> {
        let access = self.source.as_ref().map(|source| source.hold(context));
        HeldSide {
            is_reached: self.is_known && access.as_ref().is_some_and(|access| access.is_given),
            _access: access,
            _other_side: self.other_side.as_ref().map(PeerSource::enter),
        }
    }
}

/// The access that a context's device needs before it can use the memory. None if it needs none.
fn needed_access<'a>(memory: &'a (impl Viewed + ?Sized), context: &Context) -> Option<NeededAccess<'a>> {
    let ordinal = memory.device_ordinal();
    if ordinal == Some(context.device().ordinal()) {
        return None;
    }
    let source = access_to(memory);
    // Host memory is open to all devices, unless its source opens it to each. Memory of another library may be plain, which
    // the driver then copies directly, or a pool's.
    let is_needed = ordinal.is_some() || source.is_some();
    is_needed.then(|| NeededAccess { source, is_known: memory.resource().is_some(), other_side: None })
}

/// What gives devices access to the memory, as far as this library knows.
fn access_to<'a>(memory: &'a (impl Viewed + ?Sized)) -> Option<PeerSource<'a>> {
    match memory.resource() {
        Some(resource) => resource.peer_source(),
        // Memory of another library may be plain.
        None => memory.device_ordinal().map(|_| PeerSource::plain(memory.context())),
    }
}

/// A device's access to both sides of a copy, which stays as it is while this lives.
#[must_use = "access may change as soon as this is dropped"]
#[derive(Debug)]
pub(crate) struct HeldRoute<'a> {
    /// Whether the device certainly accesses the memory.
    pub is_reached: bool,
    _held: [Option<HeldSide<'a>>; 2],
}

#[derive(Debug)]
struct HeldSide<'a> {
    is_reached: bool,
    _access: Option<HeldAccess<'a>>,
    _other_side: Option<Entered<'a>>,
}
