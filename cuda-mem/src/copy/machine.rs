//! What the clones of an engine share, and what it knows about its machine: the profile for choosing methods.

use super::builder::CopyOptions;
use super::choice::Choice;
use super::engine::{CopyEngine, LARGE};
use super::method::{CopyMethod, DeviceSide, Direction, HostSide, Route};
use super::profile::MachineProfile;
use super::staging::Staging;
use super::threads::ThreadPool;
use crate::locks::RwLock;
use crate::{Context, Error, Result};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

pub(super) fn check_profile(call: &'static str, profile: MachineProfile) -> Result<MachineProfile> {
    if profile.is_valid() {
        return Ok(profile);
    }
    Err(Error::invalid(
        call,
        "profile",
        format_args!("of format {}, with {} routes", profile.format, profile.routes.len()),
        "its times must be above 0, its sizes and routes in ascending order, and its format that of this version",
    ))
}

/// What the clones of an engine share.
pub(super) struct SharedEngine {
    pub context: Context,
    pub threads: Arc<ThreadPool>,
    pub staging: Staging,
    /// Up to which size one thread's stores and loads are chosen, by direction. Small copies check only this.
    pub single_thread_upto: [AtomicUsize; 2],
    pub choice: RwLock<Arc<Choice>>,
}

impl SharedEngine {
    pub fn choose_by(&self, profile: MachineProfile) {
        let choice = Choice::new(profile, 1 + self.threads.helpers());
        for direction in [Direction::ToDevice, Direction::FromDevice] {
            let upto = choice.single_thread_upto(direction);
            self.single_thread_upto[direction as usize].store(upto, Ordering::Relaxed);
        }
        *self.choice.write() = Arc::new(choice);
    }

    pub fn choice(&self) -> Arc<Choice> {
        self.choice.read().clone()
    }

    #[inline]
    pub fn is_small(&self, direction: Direction, size: usize) -> bool {
        size <= self.single_thread_upto[direction as usize].load(Ordering::Relaxed)
    }

    /// Whether pinned and pageable host memory get the same method.
    pub fn does_not_matter(&self, route: impl Fn(HostSide) -> Route, size: usize) -> bool {
        let choice = self.choice.read();
        size < LARGE && choice.method(route(HostSide::Pageable), size) == choice.method(route(HostSide::Pinned), size)
    }

    /// The way of a copy: the caller's choice, otherwise the fastest.
    pub fn method(&self, call: &'static str, route: Route, size: usize, options: &CopyOptions) -> Result<CopyMethod> {
        match options.method {
            Some(method) if method.serves(route) => Ok(method),
            Some(method) => {
                let rule = "that method cannot make this copy; use one that CopyMethod::all returns for the route";
                Err(Error::invalid(call, "method", format_args!("{method}, for a copy from {route}"), rule))
            }
            None => Ok(self.choice().method(route, size)),
        }
    }
}

impl CopyEngine {
    /// The profile for choosing methods.
    pub fn profile(&self) -> MachineProfile {
        self.inner.choice().profile.clone()
    }

    /// Replaces the profile.
    ///
    /// # Errors
    ///
    /// The profile is not valid.
    pub fn set_profile(&self, profile: MachineProfile) -> Result<()> {
        let profile = check_profile("CopyEngine::set_profile", profile)?;
        self.inner.choose_by(profile);
        Ok(())
    }

    /// The method that a copy of `size` bytes would use.
    pub fn method(&self, route: Route, size: usize) -> CopyMethod {
        self.inner.choice().method(route, size)
    }

    /// Whether, by the profile, registering `size` bytes of pageable memory pays off for `copies` copies. `None` if
    /// that was not measured. Register with [`RegisteredMemory`](crate::memory::RegisteredMemory).
    pub fn pays_to_register(&self, direction: Direction, size: usize, copies: usize) -> Option<bool> {
        let choice = self.inner.choice();
        let route = |host| Route { direction, host, device: DeviceSide::Plain };
        let (pageable, pinned) = (route(HostSide::Pageable), route(HostSide::Pinned));
        let once = choice.profile.estimate(pageable, CopyMethod::Registered, size)?;
        let again = choice.profile.estimate(pinned, CopyMethod::Driver, size)?;
        let without = choice.profile.estimate(pageable, choice.method(pageable, size), size)?;
        Some(once + again * (copies.max(1) - 1) as f64 <= without * copies.max(1) as f64)
    }
}
