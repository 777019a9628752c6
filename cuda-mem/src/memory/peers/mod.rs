//! Access of devices to memory of other devices. Each kind of memory has its own call for it; all else is here: when access
//! is given, whether it was verified, and how it ends.
//!
//! [`PeerSource::ensure_access`] answers, and gives access at the first need. [`PeerSource::hold`] keeps an answer true
//! until the work is queued for which it was asked.

mod verify;

use super::device::DeviceMemory;
use super::pool::{PoolAccess, PoolResource};
use super::resource::{MemoryResource, ResourceHandle, SharedResource};
use super::virtual_memory::VirtualMemoryResource;
use crate::driver::context::{AccessDomain, Entered, PeerDecision};
use crate::driver::relaxed::RelaxedCalls;
use crate::error::{PeerError, call};
use crate::{Context, Device, Error, Result};
use cuda_sys::CUresult;
use verify::{by_another_pool, try_out};

/// Memory to which devices get access as a whole.
#[derive(Debug)]
pub struct PeerSource<'a>(Mechanism<'a>);

/// What gives access.
#[derive(Debug)]
enum Mechanism<'a> {
    /// cuCtxEnablePeerAccess, for all memory of cuMemAlloc in a context.
    Plain(&'a Context),
    /// cuMemPoolSetAccess.
    Pool(&'a PoolResource),
    /// cuMemSetAccess.
    Virtual(&'a VirtualMemoryResource),
}

impl<'a> PeerSource<'a> {
    /// A context's plain memory.
    pub(crate) fn plain(context: &'a Context) -> Self {
        Self(Mechanism::Plain(context))
    }

    /// A driver's pool.
    pub(crate) fn pool(pool: &'a PoolResource) -> Self {
        Self(Mechanism::Pool(pool))
    }

    /// Virtual memory.
    pub(crate) fn virtual_memory(memory: &'a VirtualMemoryResource) -> Self {
        Self(Mechanism::Virtual(memory))
    }

    /// Whether a context's device accesses the memory. Gives access at the first need, unless the program denied it. One
    /// load, once decided. Another thread may deny access at any moment: see [`hold`](Self::hold).
    #[inline]
    pub(crate) fn ensure_access(&self, peer: &Context) -> bool {
        match peer.state().peers.recent(self.domain().number()) {
            Some(decision) => decision == PeerDecision::Granted,
            None => self.decide("a copy between devices", peer, false).is_ok(),
        }
    }

    /// Keeps a context's access, or the lack of it, as it is until the result is dropped. Only driver calls that queue
    /// work may be made meanwhile. Gives no access.
    #[inline]
    pub(crate) fn hold(&self, peer: &Context) -> HeldAccess<'a> {
        let domain = self.domain();
        let entered = self.enter();
        let is_given = peer.state().peers.of(domain.number()) == Some(PeerDecision::Granted);
        HeldAccess { is_given, _entered: entered }
    }

    /// Keeps everybody's access as it is until the result is dropped. Only driver calls that queue work may be made
    /// meanwhile.
    pub(crate) fn enter(&self) -> Entered<'a> {
        self.domain().gate.enter()
    }

    /// Gives a context's device access, unless the program denied it.
    pub(crate) fn require(&self, call: &'static str, peer: &Context) -> Result<()> {
        self.decide(call, peer, true)
    }

    /// Gives a context's device access.
    pub(crate) fn allow(&self, call: &'static str, peer: &Context) -> Result<()> {
        self.context().driver().check_same(call, "the device", peer.driver())?;
        self.domain().allow(peer.device().ordinal());
        self.decide(call, peer, true)
    }

    /// Takes a context's device its access, after the work so far of that context and of the memory's own.
    pub(crate) fn deny(&self, call: &'static str, peer: &Context) -> Result<()> {
        self.context().driver().check_same(call, "the device", peer.driver())?;
        // From here on, copies give no access, and rely on none.
        self.domain().deny(peer.device().ordinal());
        let taken = self.take_back(peer, || self.domain().is_denied(peer.device().ordinal()));
        peer.free_postponed();
        taken
    }

    /// Takes back the access of a context's device, once its work and that of the memory's own context is done, and if that
    /// is still due then: a copy that runs on either breaks. Copies that the driver makes with or without access go on
    /// meanwhile. If they did, this waits for them too.
    fn take_back(&self, peer: &Context, is_due: impl Fn() -> bool) -> Result<()> {
        let domain = self.domain();
        let mut round = 0;
        loop {
            let _held_back = (round > 0).then(|| domain.gate.hold_back(round));
            let entries = domain.gate.wait_until_idle();
            peer.wait_for_work()?;
            self.context().wait_for_work()?;
            let _relaxed = RelaxedCalls::begin(peer.driver())?;
            let _changing = domain.change();
            if !is_due() {
                // Another thread has given access meanwhile.
                return Ok(());
            }
            if let Some(_closed) = domain.gate.close(entries) {
                return self.revoke(peer);
            }
            round += 1;
        }
    }

    /// Gives a device access: now, if its primary context exists; else when the first copy needs it.
    pub(crate) fn allow_device(&self, call: &'static str, device: &Device) -> Result<()> {
        self.context().driver().check_same(call, "the device", device.driver())?;
        if device == self.context().device() {
            return Ok(());
        }
        self.check_path(call, device)?;
        if device.has_primary_context()? {
            return self.allow(call, &device.primary_context()?);
        }
        self.domain().allow(device.ordinal());
        match &self.0 {
            Mechanism::Plain(_) => Ok(()),
            // The rights of devices need no context. The first copy verifies them.
            _ => {
                let _changing = self.domain().change();
                let _closed = self.domain().gate.close_when_idle();
                self.set(device, true).map(drop)
            }
        }
    }

    /// Takes a device its access, after the work of its primary context so far.
    pub(crate) fn deny_device(&self, call: &'static str, device: &Device) -> Result<()> {
        self.context().driver().check_same(call, "the device", device.driver())?;
        if device == self.context().device() {
            let rule = "a device always keeps access to its own memory";
            return Err(Error::invalid(call, "device", device.ordinal(), rule));
        }
        if device.has_primary_context()? {
            return self.deny(call, &device.primary_context()?);
        }
        self.domain().deny(device.ordinal());
        match &self.0 {
            Mechanism::Plain(_) => Ok(()),
            _ => {
                let _changing = self.domain().change();
                let _closed = self.domain().gate.close_when_idle();
                self.set(device, false).map(drop)
            }
        }
    }

    fn context(&self) -> &'a Context {
        match self.0 {
            Mechanism::Plain(context) => context,
            Mechanism::Pool(pool) => &pool.context,
            Mechanism::Virtual(memory) => &memory.context,
        }
    }

    fn domain(&self) -> &'a AccessDomain {
        match self.0 {
            Mechanism::Plain(context) => &context.state().domain,
            Mechanism::Pool(pool) => &pool.domain,
            Mechanism::Virtual(memory) => memory.domain(),
        }
    }

    /// Gives access unless that was done before, and verifies it. Copies remember that there never is access, and are
    /// refused at once; if the program asks for access, that is tried again, as after any other failure.
    #[cold]
    fn decide(&self, call: &'static str, peer: &Context, again: bool) -> Result<()> {
        let (owner, ordinal) = (self.context(), peer.device().ordinal());
        let through_host = PeerError::ThroughHost { call, device: ordinal, owner: owner.device().ordinal() };
        loop {
            let number = self.domain().number();
            if !owner.driver().is_same(peer.driver()) || self.domain().is_denied(ordinal) {
                return Err(through_host.into());
            }
            match peer.state().peers.of(number) {
                Some(PeerDecision::Granted) => return Ok(()),
                Some(PeerDecision::Refused) if !again => return Err(through_host.into()),
                _ => {}
            }
            let granted = self.grant(call, peer, number);
            if self.domain().number() != number {
                // Another thread has denied or allowed access meanwhile.
                continue;
            }
            if let Some(decision) = lasting(&granted) {
                peer.state().peers.remember(number, decision);
            }
            return granted;
        }
    }

    /// Gives access and verifies it. `number` is that of the domain.
    fn grant(&self, call: &'static str, peer: &Context, number: u64) -> Result<()> {
        let owner = self.context();
        owner.check_alive()?;
        peer.check_alive()?;
        if owner.device() == peer.device() {
            return Ok(());
        }
        self.check_path(call, peer.device())?;
        // No part of this thread's captures.
        let _relaxed = RelaxedCalls::begin(peer.driver())?;
        let give = |works: &mut dyn FnMut() -> Result<bool>| self.give(call, peer, number, works);
        match self.0 {
            Mechanism::Plain(_) => try_out(&*DeviceMemory::new(owner).share(), peer, give),
            Mechanism::Pool(pool) if pool.is_imported() => by_another_pool(owner, peer, give),
            Mechanism::Pool(pool) => try_out(pool, peer, give),
            Mechanism::Virtual(memory) => try_out(memory, peer, give),
        }
    }

    /// Gives access, and keeps it if `works` finds that it works. One thread at a time does so, and runs no code of the
    /// program meanwhile. An error leaves no access that this call gave.
    fn give(
        &self,
        call: &'static str,
        peer: &Context,
        number: u64,
        works: &mut dyn FnMut() -> Result<bool>,
    ) -> Result<()> {
        let domain = self.domain();
        let changing = domain.change();
        if domain.number() != number || peer.state().peers.of(number) == Some(PeerDecision::Granted) {
            // Another thread was faster.
            return Ok(());
        }
        let closed = domain.gate.close_when_idle();
        let is_new = match &self.0 {
            Mechanism::Plain(_) => enable(call, self.context(), peer)?,
            _ => self.set(peer.device(), true)?,
        };
        drop(closed);
        let error = match works() {
            Ok(true) => {
                peer.state().peers.remember(number, PeerDecision::Granted);
                return Ok(());
            }
            Ok(false) => {
                let (device, owner) = (peer.device().ordinal(), self.context().device().ordinal());
                PeerError::Unverified { call, device, owner }.into()
            }
            Err(error) => error,
        };
        drop(changing);
        let is_refused = || domain.number() == number && peer.state().peers.of(number) != Some(PeerDecision::Granted);
        if (is_new || lasting(&Err(error.clone())).is_some())
            && let Err(error) = self.take_back(peer, is_refused)
            && !error.is_teardown()
        {
            peer.drop_errors().push("taking back access between devices", error);
        }
        Err(error)
    }

    /// Takes access back. No work uses it, and the gate is closed.
    fn revoke(&self, peer: &Context) -> Result<()> {
        match &self.0 {
            Mechanism::Plain(owner) => disable(owner, peer),
            _ => self.set(peer.device(), false).map(drop),
        }
    }

    /// Sets a device's rights to the memory of a pool, or to virtual memory. Whether they were others before.
    fn set(&self, device: &Device, allowed: bool) -> Result<bool> {
        match &self.0 {
            Mechanism::Plain(_) => Ok(false),
            Mechanism::Pool(pool) => {
                let wish = if allowed { PoolAccess::ReadWrite } else { PoolAccess::None };
                let before = pool.access(device.raw())?;
                pool.set_access(device.raw(), wish).map(|()| before != wish)
            }
            Mechanism::Virtual(memory) => memory.set_access(device.raw(), allowed),
        }
    }

    fn check_path(&self, call: &'static str, device: &Device) -> Result<()> {
        let owner = self.context().device();
        // Every device has a path to the host.
        let in_host = matches!(&self.0, Mechanism::Virtual(memory) if memory.accessibility().host);
        if in_host || device.can_access_peer(owner)? {
            return Ok(());
        }
        Err(PeerError::NoPath { call, device: device.ordinal(), owner: owner.ordinal() }.into())
    }
}

/// What an outcome says for all later copies. A lack of memory, say, passes, so the next copy tries again.
fn lasting(outcome: &Result<()>) -> Option<PeerDecision> {
    match outcome {
        Ok(()) => Some(PeerDecision::Granted),
        Err(Error::Peer(PeerError::NoPath { .. } | PeerError::Unverified { .. })) => Some(PeerDecision::Refused),
        Err(_) => None,
    }
}

/// A context's access, which stays as it is while this lives.
#[must_use = "access may change as soon as this is dropped"]
#[derive(Debug)]
pub(crate) struct HeldAccess<'a> {
    /// Whether the context's device certainly has access.
    pub is_given: bool,
    _entered: Entered<'a>,
}

/// Lets a context access another one's plain memory. Whether it could not before.
fn enable(call: &'static str, owner: &Context, peer: &Context) -> Result<bool> {
    let (cuda, _current) = (peer.driver().raw(), peer.bind()?);
    let (device, owner_device) = (peer.device().ordinal(), owner.device().ordinal());
    // SAFETY: both contexts are alive: the caller has checked it, and values hold them.
    let enabled = unsafe { call!(cuda.cuCtxEnablePeerAccess(owner.raw(), 0)) };
    enabled.map(|()| true).or_else(|error| match error.driver_code() {
        // Another library did.
        Some(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) => Ok(false),
        Some(CUresult::CUDA_ERROR_TOO_MANY_PEERS) => {
            Err(PeerError::TooMany { call, device, owner: owner_device }.into())
        }
        Some(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED) => {
            Err(PeerError::NoPath { call, device, owner: owner_device }.into())
        }
        _ => Err(error),
    })
}

fn disable(owner: &Context, peer: &Context) -> Result<()> {
    owner.check_alive()?;
    let (cuda, _current) = (peer.driver().raw(), peer.bind()?);
    // SAFETY: both contexts are alive.
    let disabled = unsafe { call!(cuda.cuCtxDisablePeerAccess(owner.raw())) };
    disabled.or_else(|error| match error.driver_code() {
        Some(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED) => Ok(()),
        _ => Err(error),
    })
}

/// What gives access to a source's memory.
pub(crate) fn source_of<'a>(call: &'static str, resource: &'a SharedResource) -> Result<PeerSource<'a>> {
    resource.peer_source().ok_or_else(|| Error::Unsupported {
        feature: "giving one device access to memory of another",
        needs: format!("{call} of device memory, of a driver pool, of virtual memory, or of a pool over one of these")
            .into(),
    })
}

impl Context {
    /// Lets another context's device access this context's plain memory, present and future: that of
    /// [`DeviceMemory`], and of cuMemAlloc in other libraries. Copies between devices do so
    /// at their first need; kernels that address another device's memory need this call, or
    /// [`ResourceHandle::allow_access`] of the memory's source.
    ///
    /// The first call for two contexts verifies the access by two copies of a few bytes.
    ///
    /// ```
    /// let driver = cuda_mem::Driver::software()?; // softgpu; a GPU: Driver::load()
    /// let (near, far) = (driver.device(0)?.primary_context()?, driver.device(1)?.primary_context()?);
    /// far.allow_access(&near)?; // kernels of device 0 may now use plain memory of device 1
    /// # far.deny_access(&near)?;
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// There is no path between the devices, the device already accesses as many as it can, or the access does not work:
    /// [`Error::Peer`]. One of the contexts has ended.
    #[doc(alias = "cuCtxEnablePeerAccess")]
    pub fn allow_access(&self, peer: &Context) -> Result<()> {
        PeerSource::plain(self).allow("Context::allow_access", peer)
    }

    /// Takes another context's device its access to this context's plain memory. Waits for the work of both contexts first.
    /// From then on, copies between the two go through the host, until the program allows access again.
    ///
    /// # Errors
    ///
    /// Work of one of the contexts failed, or one of the contexts has ended.
    #[doc(alias = "cuCtxDisablePeerAccess")]
    pub fn deny_access(&self, peer: &Context) -> Result<()> {
        PeerSource::plain(self).deny("Context::deny_access", peer)
    }
}
