//! What the clones of an engine share, and what it knows about its machine: the profile for choosing ways.

use super::builder::{CopyOptions, Measuring};
use super::cache;
use super::choice::Choice;
use super::engine::{CopyEngine, LARGE};
use super::identity::Identity;
use super::measure;
use super::profile::MachineProfile;
use super::staging::Staging;
use super::threads::CopyThreads;
use super::way::{DeviceSide, Direction, HostSide, Route, Way};
use crate::{Context, Error, Result};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

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

/// Fills the gaps of a profile with the typical figures.
pub(super) fn over_typical(measured: &MachineProfile) -> MachineProfile {
    let mut profile = MachineProfile { routes: MachineProfile::typical().routes, ..measured.clone() };
    measured.routes.iter().for_each(|route| profile.set_route(route.clone()));
    profile
}

/// What the clones of an engine share.
pub(super) struct SharedEngine {
    pub context: Context,
    pub threads: Arc<dyn CopyThreads>,
    pub staging: Staging,
    /// Up to which size one thread's stores and loads are chosen, by direction. Small copies check only this.
    pub single_thread_upto: [AtomicUsize; 2],
    pub choice: RwLock<Arc<Choice>>,
    pub identity: Identity,
    pub file: Option<PathBuf>,
    pub measuring: Measuring,
    /// The figures measured so far; a thread that measures holds the lock.
    pub measured: Mutex<MachineProfile>,
}

impl SharedEngine {
    pub fn choose_by(&self, profile: MachineProfile) {
        let choice = Choice::new(profile, 1 + self.threads.helpers());
        for direction in [Direction::ToDevice, Direction::FromDevice] {
            let upto = choice.single_thread_upto(direction);
            self.single_thread_upto[direction as usize].store(upto, Ordering::Relaxed);
        }
        *self.choice.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(choice);
    }

    pub fn choice(&self) -> Arc<Choice> {
        self.choice.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    #[inline]
    pub fn is_small(&self, direction: Direction, size: usize) -> bool {
        size <= self.single_thread_upto[direction as usize].load(Ordering::Relaxed)
    }

    /// Whether pinned and pageable host memory get the same way.
    pub fn does_not_matter(&self, route: impl Fn(HostSide) -> Route, size: usize) -> bool {
        let choice = self.choice.read().unwrap_or_else(PoisonError::into_inner);
        size < LARGE && choice.way(route(HostSide::Pageable), size) == choice.way(route(HostSide::Pinned), size)
    }

    /// The way of a copy: the caller's choice, otherwise the fastest.
    pub fn way(&self, call: &'static str, route: Route, size: usize, options: &CopyOptions) -> Result<Way> {
        match options.way {
            Some(way) if way.serves(route) => Ok(way),
            Some(way) => {
                let rule = "that way cannot make this copy; use one that Way::all returns for the route";
                Err(Error::invalid(call, "way", format_args!("{way}, for a copy from {route}"), rule))
            }
            None => {
                if size >= LARGE && self.measuring == Measuring::AtFirstLargeCopy {
                    self.measure_once(route);
                }
                Ok(self.choice().way(route, size))
            }
        }
    }

    /// Measures the routes of this type of device memory, unless they are known or another thread measures. After a
    /// failure the typical figures stay in use.
    fn measure_once(&self, route: Route) {
        // Other threads keep copying meanwhile.
        let Ok(mut measured) = self.measured.try_lock() else { return };
        if measured.route(route).is_some() {
            return;
        }
        if let Err(error) = self.measure_into(&mut measured, route.device == DeviceSide::Mapped) {
            self.context.drop_errors().push("measuring the speed of copies (typical figures are used instead)", error);
            // Prevents a retry with every copy.
            measured.set_route(super::typical::route(route));
            self.choose_by(over_typical(&measured));
        }
    }

    fn measure_into(&self, measured: &mut MachineProfile, mapped: bool) -> Result<()> {
        for route in measure::measure(self, mapped)? {
            measured.set_route(route);
        }
        self.choose_by(over_typical(measured));
        if let Some(file) = &self.file
            && let Err(error) = cache::write(file, measured)
        {
            let code = error.raw_os_error().unwrap_or(0);
            let error = Error::System { call: "saving a machine's profile in the cache directory", code };
            self.context.drop_errors().push("saving a machine's profile", error);
        }
        Ok(())
    }
}

impl CopyEngine {
    /// The profile for choosing ways.
    pub fn profile(&self) -> MachineProfile {
        self.inner.choice().profile.clone()
    }

    /// Replaces the profile. The new profile is not saved in the cache directory.
    ///
    /// # Errors
    ///
    /// The profile is not valid.
    pub fn set_profile(&self, profile: MachineProfile) -> Result<()> {
        let profile = check_profile("CopyEngine::set_profile", profile)?;
        let mut measured = self.inner.measured.lock().unwrap_or_else(PoisonError::into_inner);
        *measured = profile.clone();
        self.inner.choose_by(profile);
        Ok(())
    }

    /// Measures the machine, uses the result, and saves it in the cache directory. Takes at most 0.2 s, plus the time
    /// to open mapped memory if the program has not done so. Without mapped memory on the device, measures the other
    /// routes.
    ///
    /// # Errors
    ///
    /// The driver refuses; there is no memory to measure with.
    pub fn measure(&self) -> Result<MachineProfile> {
        let mut measured = self.inner.measured.lock().unwrap_or_else(PoisonError::into_inner);
        *measured = self.inner.identity.empty_profile();
        let mapped = crate::MappedMemory::new(&self.inner.context).is_ok();
        self.inner.measure_into(&mut measured, mapped)?;
        Ok(measured.clone())
    }

    /// The way that a copy of `size` bytes would use.
    pub fn way(&self, route: Route, size: usize) -> Way {
        self.inner.choice().way(route, size)
    }

    /// The file of saved measurements, if they are saved.
    pub fn profile_file(&self) -> Option<&std::path::Path> {
        self.inner.file.as_deref()
    }

    /// Whether, by the profile, registering `size` bytes of pageable memory pays off for `copies` copies. `None` if
    /// that was not measured. Register with [`RegisteredMemory`](crate::memory::RegisteredMemory).
    pub fn pays_to_register(&self, direction: Direction, size: usize, copies: usize) -> Option<bool> {
        let choice = self.inner.choice();
        let route = |host| Route { direction, host, device: DeviceSide::Plain };
        let (pageable, pinned) = (route(HostSide::Pageable), route(HostSide::Pinned));
        let once = choice.profile.estimate(pageable, Way::Registered, size)?;
        let again = choice.profile.estimate(pinned, Way::Driver, size)?;
        let without = choice.profile.estimate(pageable, choice.way(pageable, size), size)?;
        Some(once + again * (copies.max(1) - 1) as f64 <= without * copies.max(1) as f64)
    }
}
