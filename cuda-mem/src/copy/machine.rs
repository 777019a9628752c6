//! What an engine knows of its machine: the profile that it chooses by, and the streams of its own.

use super::builder::{CopyOptions, Measuring};
use super::cache;
use super::choice::Choice;
use super::engine::{CopyEngine, Inner, LARGE};
use super::measure;
use super::profile::MachineProfile;
use super::way::{DeviceSide, Direction, HostSide, Route, Way};
use crate::{Error, Result, Stream};
use core::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

pub(super) fn check_profile(call: &'static str, profile: MachineProfile) -> Result<MachineProfile> {
    if profile.is_valid() {
        return Ok(profile);
    }
    Err(Error::InvalidArgument {
        call,
        argument: "profile",
        value: format!("of format {}, with {} routes", profile.format, profile.routes.len()).into(),
        rule: "its figures must be above zero, its sizes and routes in growing order, its format this version's",
    })
}

/// A profile whose gaps are filled with the typical figures.
pub(super) fn over_typical(measured: &MachineProfile) -> MachineProfile {
    let mut profile = MachineProfile { routes: MachineProfile::typical().routes, ..measured.clone() };
    measured.routes.iter().for_each(|route| profile.set_route(route.clone()));
    profile
}

impl Inner {
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

    /// Whether the way is the same whatever the host's memory is.
    pub fn does_not_matter(&self, route: impl Fn(HostSide) -> Route, size: usize) -> bool {
        let choice = self.choice.read().unwrap_or_else(PoisonError::into_inner);
        size < LARGE && choice.way(route(HostSide::Pageable), size) == choice.way(route(HostSide::Pinned), size)
    }

    /// A stream of the engine's.
    pub fn stream(&self) -> Result<OwnStream<'_>> {
        let free = self.streams.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let stream = match free {
            Some(stream) => stream,
            None => Stream::new(&self.context)?,
        };
        Ok(OwnStream { inner: self, stream: Some(stream) })
    }

    /// The way of a copy, and whether the caller named it.
    pub fn way(&self, call: &'static str, route: Route, size: usize, options: &CopyOptions) -> Result<Way> {
        match options.way {
            Some(way) if way.serves(route) => Ok(way),
            Some(way) => Err(Error::InvalidArgument {
                call,
                argument: "way",
                value: format!("{way}, for a copy from {route}").into(),
                rule: "that way cannot do this copy: Way::all names those that can",
            }),
            None => {
                if size >= LARGE && self.measuring == Measuring::AtFirstLargeCopy {
                    self.measure_once(route);
                }
                Ok(self.choice().way(route, size))
            }
        }
    }

    /// Measures what the route needs, unless that is known or somebody is at it. A machine that cannot be measured is
    /// served by what is typical.
    fn measure_once(&self, route: Route) {
        // Others copy on meanwhile.
        let Ok(mut measured) = self.measured.try_lock() else { return };
        if measured.route(route).is_some() {
            return;
        }
        if let Err(error) = self.measure_into(&mut measured, route.device == DeviceSide::Mapped) {
            self.context.drop_errors().push("measuring how fast copies are; typical figures serve", error);
            // Not again with every copy.
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
            let error = Error::System { call: "keeping a machine's profile in the cache directory", code };
            self.context.drop_errors().push("keeping a machine's profile", error);
        }
        Ok(())
    }
}

/// A stream that one copy has.
pub(super) struct OwnStream<'engine> {
    inner: &'engine Inner,
    stream: Option<Stream>,
}

impl core::ops::Deref for OwnStream<'_> {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        self.stream.as_ref().unwrap_or_else(|| unreachable!("there until the drop"))
    }
}

impl Drop for OwnStream<'_> {
    fn drop(&mut self) {
        self.inner.streams.lock().unwrap_or_else(PoisonError::into_inner).extend(self.stream.take());
    }
}

impl CopyEngine {
    /// The profile that ways are chosen by.
    pub fn profile(&self) -> MachineProfile {
        self.inner.choice().profile.clone()
    }

    /// Chooses by another profile from now on. It is not kept in the cache directory.
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

    /// Measures the machine, chooses by what was found, and keeps it in the cache directory. Takes 0.2 s or less, and as
    /// much longer as opening mapped memory takes where the program has not done so. On a device without mapped memory,
    /// what there is is measured.
    ///
    /// # Errors
    ///
    /// The driver refuses; there is no memory to measure with.
    pub fn measure(&self) -> Result<MachineProfile> {
        let mut measured = self.inner.measured.lock().unwrap_or_else(PoisonError::into_inner);
        *measured = self.inner.identity.empty_profile();
        let mapped = crate::MappedResource::new(&self.inner.context).is_ok();
        self.inner.measure_into(&mut measured, mapped)?;
        Ok(measured.clone())
    }

    /// The way that a copy of `size` bytes would be done.
    pub fn way(&self, route: Route, size: usize) -> Way {
        self.inner.choice().way(route, size)
    }

    /// Where what is measured is kept, if it is.
    pub fn profile_file(&self) -> Option<&std::path::Path> {
        self.inner.file.as_deref()
    }

    /// Whether it pays to register `size` bytes of pageable memory that is copied `copies` times, by the profile; `None`
    /// where that was not measured. Register with [`RegisteredMemory`](crate::memory::RegisteredMemory).
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
