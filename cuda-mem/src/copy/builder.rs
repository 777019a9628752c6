//! Construction of engines.

use super::choice::Choice;
use super::engine::CopyEngine;
use super::machine::{SharedEngine, check_profile};
use super::method::{CopyMethod, HostSide};
use super::profile::MachineProfile;
use super::staging::Staging;
use super::threads::ThreadPool;
use crate::locks::RwLock;
use crate::{Context, Error, Result};
use std::sync::Arc;

/// Options of a new engine.
///
/// ```
/// use cuda_mem::copy::{CopyEngine, MachineProfile};
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// let engine = CopyEngine::builder(&context)
///     .helper_threads(0) // the calling thread copies alone
///     .profile(MachineProfile::typical()) // the default
///     .build()?;
/// # drop(engine);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "`build` makes the engine"]
pub struct CopyEngineBuilder {
    pub(super) context: Context,
    pub(super) helper_threads: Option<usize>,
    pub(super) profile: MachineProfile,
    pub(super) staging: StagingOptions,
}

/// Limits of an engine's page-locked staging. The engine allocates staging at first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StagingOptions {
    /// The size of a slot in bytes: the largest piece of a copy that is staged at once.
    pub slot_size: usize,
    /// How many slots a copy uses in rotation.
    pub slots: usize,
    /// How many copies may use staging at once; other copies wait.
    pub lanes: usize,
}

impl Default for StagingOptions {
    fn default() -> Self {
        Self { slot_size: 2 << 20, slots: 8, lanes: 4 }
    }
}

/// A caller's choices for one copy.
///
/// ```
/// use cuda_mem::copy::{CopyOptions, CopyMethod};
/// let mut options = CopyOptions::default();
/// options.method = Some(CopyMethod::Driver);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyOptions {
    /// The method to copy; by default the fastest by the profile.
    pub method: Option<CopyMethod>,
    /// The type of the host memory; by default the engine asks the driver, except for small copies.
    pub host: Option<HostSide>,
}

impl CopyEngineBuilder {
    /// How many threads of the engine's own help with large copies; 0 for none. They start when first needed. By
    /// default all engines share one pool: one thread fewer than the process has processors, and at most seven.
    pub fn helper_threads(mut self, count: usize) -> Self {
        self.helper_threads = Some(count);
        self
    }

    /// The profile to choose methods by; by default [`MachineProfile::typical`].
    pub fn profile(mut self, profile: MachineProfile) -> Self {
        self.profile = profile;
        self
    }

    /// The limits of the staging.
    pub fn staging(mut self, staging: StagingOptions) -> Self {
        self.staging = staging;
        self
    }

    /// Makes the engine.
    ///
    /// # Errors
    ///
    /// A number in the staging options is 0; the profile is not valid.
    pub fn build(self) -> Result<CopyEngine> {
        const CALL: &str = "CopyEngineBuilder::build";
        let StagingOptions { slot_size, slots, lanes } = self.staging;
        if slot_size == 0 || slots == 0 || lanes == 0 {
            let rule = "each of its numbers must be at least 1";
            return Err(Error::invalid(CALL, "staging", format_args!("{:?}", self.staging), rule));
        }
        let own = |count| Arc::new(ThreadPool::new(count));
        let threads = self.helper_threads.map_or_else(ThreadPool::shared, own);
        let profile = check_profile(CALL, self.profile)?;
        let inner = SharedEngine {
            staging: Staging::new(&self.context, slot_size, slots, lanes),
            context: self.context,
            single_thread_upto: Default::default(),
            choice: RwLock::new(Arc::new(Choice::new(MachineProfile::empty(), 1))),
            threads,
        };
        inner.choose_by(profile);
        Ok(CopyEngine { inner: Arc::new(inner) })
    }
}
