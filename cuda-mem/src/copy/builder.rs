//! How an engine is made.

use super::cache::{self, Identity, ProfileCache};
use super::choice::Choice;
use super::engine::{CopyEngine, Inner};
use super::machine::{check_profile, over_typical};
use super::profile::MachineProfile;
use super::staging::Staging;
use super::threads::{CopyThreads, ThreadPool};
use super::way::{HostSide, Way};
use crate::{Context, Error, Result};
use std::sync::{Arc, Mutex, RwLock};

/// When an engine measures its machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Measuring {
    /// With the first copy of 1 MiB or more whose route is not known yet. That copy takes up to 0.2 s longer.
    #[default]
    AtFirstLargeCopy,
    /// Only by [`CopyEngine::measure`].
    OnRequest,
}

/// How an engine is made.
///
/// ```
/// use cuda_mem::copy::{CopyEngine, Measuring, NoThreads, ProfileCache};
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// let engine = CopyEngine::builder(&context)
///     .threads(std::sync::Arc::new(NoThreads)) // nobody helps the calling thread
///     .measuring(Measuring::OnRequest)
///     .profile_cache(ProfileCache::Off)
///     .build()?;
/// # drop(engine);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "an engine is made by `build`"]
pub struct CopyEngineBuilder {
    pub(super) context: Context,
    pub(super) threads: Option<Arc<dyn CopyThreads>>,
    pub(super) cache: ProfileCache,
    pub(super) profile: Option<MachineProfile>,
    pub(super) measuring: Measuring,
    pub(super) staging: StagingOptions,
}

/// How much page-locked staging an engine may have. It is allocated when it is first needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StagingOptions {
    /// The size of a slot in bytes: the largest piece of a copy that goes through staging at once.
    pub slot_size: usize,
    /// How many slots a copy uses in turns.
    pub slots: usize,
    /// How many copies may use staging at once; others wait.
    pub lanes: usize,
}

impl Default for StagingOptions {
    fn default() -> Self {
        Self { slot_size: 2 << 20, slots: 8, lanes: 4 }
    }
}

/// What a caller decides for one copy.
///
/// ```
/// use cuda_mem::copy::{CopyOptions, Way};
/// let mut options = CopyOptions::default();
/// options.way = Some(Way::Driver);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyOptions {
    /// How the copy is done; by default as the profile says.
    pub way: Option<Way>,
    /// What the host's memory is; by default the driver is asked, for copies that are not small.
    pub host: Option<HostSide>,
}

impl CopyEngineBuilder {
    /// The threads that help; by default the process's pool ([`ThreadPool::shared`]).
    pub fn threads(mut self, threads: Arc<dyn CopyThreads>) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Where profiles are kept.
    pub fn profile_cache(mut self, cache: ProfileCache) -> Self {
        self.cache = cache;
        self
    }

    /// The profile to choose by. None is read then, and nothing is measured but on request.
    pub fn profile(mut self, profile: MachineProfile) -> Self {
        self.profile = Some(profile);
        self
    }

    /// When the machine is measured.
    pub fn measuring(mut self, measuring: Measuring) -> Self {
        self.measuring = measuring;
        self
    }

    /// How much staging there may be.
    pub fn staging(mut self, staging: StagingOptions) -> Self {
        self.staging = staging;
        self
    }

    /// Makes the engine.
    ///
    /// # Errors
    ///
    /// A size or number of the staging is 0; the profile is not valid; the driver refuses.
    pub fn build(self) -> Result<CopyEngine> {
        const CALL: &str = "CopyEngineBuilder::build";
        let StagingOptions { slot_size, slots, lanes } = self.staging;
        if slot_size == 0 || slots == 0 || lanes == 0 {
            return Err(Error::InvalidArgument {
                call: CALL,
                argument: "staging",
                value: format!("{:?}", self.staging).into(),
                rule: "none of its numbers may be 0",
            });
        }
        let threads = self.threads.unwrap_or_else(|| ThreadPool::shared());
        let identity = Identity::of(self.context.device())?;
        let given = self.profile.is_some();
        let file = self.cache.file(&identity);
        let kept = || file.as_deref().and_then(|file| cache::read(file, &identity));
        let measured = match self.profile {
            Some(profile) => check_profile(CALL, profile)?,
            None => kept().unwrap_or_else(|| identity.empty_profile()),
        };
        let inner = Inner {
            staging: Staging::new(&self.context, slot_size, slots, lanes),
            context: self.context,
            streams: Mutex::default(),
            single_thread_upto: Default::default(),
            choice: RwLock::new(Arc::new(Choice::new(MachineProfile::empty(), 1))),
            identity,
            file: file.filter(|_| !given),
            measuring: if given { Measuring::OnRequest } else { self.measuring },
            measured: Mutex::new(measured.clone()),
            threads,
        };
        inner.choose_by(if given { measured } else { over_typical(&measured) });
        Ok(CopyEngine { inner: Arc::new(inner) })
    }
}
