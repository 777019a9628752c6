//! Routes of copies between devices.

use super::{Access, Buffer};
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
        match (self.device_ordinal(), destination.device_ordinal()) {
            (Some(from), Some(to)) if from == to => PeerRoute::SameDevice,
            (Some(_), Some(_)) if self.is_near(destination.stream().context()) => PeerRoute::Direct,
            (Some(_), Some(_)) => PeerRoute::ThroughHost,
            _ => PeerRoute::HostMemory,
        }
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

    /// The access that a context's device needs before it can use the memory. None if it needs none.
    pub(crate) fn far_from(&self, context: &Context) -> Option<FarMemory<'_>> {
        let source = self.resource().and_then(|resource| resource.peer_source());
        match self.device_ordinal() {
            Some(own) if own == context.device().ordinal() => None,
            // Memory of another library may be plain, which the driver then copies directly, or a pool's.
            Some(_) if self.resource().is_none() => {
                Some(FarMemory { source: Some(PeerSource::plain(self.context())), is_known: false, beside: None })
            }
            Some(_) => Some(FarMemory { source, is_known: true, beside: None }),
            // Host memory is open to all devices, unless its source opens it to each.
            None => source.map(|source| FarMemory { source: Some(source), is_known: true, beside: None }),
        }
    }

    /// What gives devices access to the memory, as far as this library knows.
    pub(crate) fn accessed(&self) -> Option<PeerSource<'_>> {
        match self.resource() {
            Some(resource) => resource.peer_source(),
            // Memory of another library may be plain.
            None => self.device_ordinal().map(|_| PeerSource::plain(self.context())),
        }
    }

    /// Whether the memory lies on the device of a context, or the device certainly accesses it. Gives access at the first
    /// need.
    pub(crate) fn is_near(&self, context: &Context) -> bool {
        self.far_from(context).is_none_or(|far| far.is_reached_by(context))
    }

    /// Whether the memory is host memory that its source opens to each device.
    pub(crate) fn is_opened_to_each(&self) -> bool {
        self.device_ordinal().is_none() && self.resource().is_some_and(|it| it.peer_source().is_some())
    }
}

/// Memory that a device reaches only by access to it.
#[derive(Debug)]
pub(crate) struct FarMemory<'a> {
    /// What gives access; None if nothing does.
    source: Option<PeerSource<'a>>,
    /// Whether the memory certainly is the source's.
    is_known: bool,
    /// What gives others access to the copying device's own memory.
    beside: Option<PeerSource<'a>>,
}

impl<'a> FarMemory<'a> {
    /// The same, in a copy whose other side is memory of the copying device: a change of access to that memory breaks the
    /// copy too.
    pub fn beside(self, own: Option<PeerSource<'a>>) -> Self {
        Self { beside: own, ..self }
    }

    /// Whether the context's device certainly accesses the memory. Gives access at the first need.
    pub fn is_reached_by(&self, context: &Context) -> bool {
        let is_given = self.source.as_ref().is_some_and(|source| source.is_reached_by(context));
        is_given && self.is_known
    }

    /// Keeps a context's access as it is until the result is dropped, and that of others to the memory beside. Only driver
    /// calls that queue work may be made meanwhile.
    pub fn hold(&self, context: &Context) -> HeldReach<'a> {
        let access = self.source.as_ref().map(|source| source.hold(context));
        HeldReach {
            is_reached: self.is_known && access.as_ref().is_some_and(|access| access.is_given),
            _access: access,
            _beside: self.beside.as_ref().map(PeerSource::enter),
        }
    }
}

/// A device's access to a buffer, which stays as it is while this lives.
#[must_use = "access may change as soon as this is dropped"]
#[derive(Debug)]
pub(crate) struct HeldReach<'a> {
    /// Whether the device certainly accesses the memory.
    pub is_reached: bool,
    _access: Option<HeldAccess<'a>>,
    _beside: Option<Entered<'a>>,
}
