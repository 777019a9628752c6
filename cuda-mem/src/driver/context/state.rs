//! What this crate's values for one driver context share.

use super::kept::KeptMemory;
use super::peers::{AccessDomain, PeerDecisions};
use crate::driver::kernels::Kernels;
use crate::driver::stream_core::StreamCores;
use crate::driver::stream_reserve::{Spare, StreamReserve};
use crate::lifetime::end_queue::EndQueue;
use crate::lifetime::{PostponedFrees, QuietRegister};
use crate::locks::Mutex;
use core::fmt;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

#[derive(Default)]
pub(crate) struct ContextState {
    pub quiet: Arc<QuietRegister>,
    pub frees: PostponedFrees,
    pub streams: StreamCores,
    pub reserve: StreamReserve,
    /// Dropped streams that end when their work is done.
    pub busy: EndQueue<Spare>,
    /// What the sources of memory keep.
    pub memory: KeptMemory,
    pub kernels: Kernels,
    /// The context's plain memory, to other devices.
    pub domain: AccessDomain,
    /// Its access to memory of other devices.
    pub peers: PeerDecisions,
}

/// States by library, and by the context's address and number.
type States = BTreeMap<(usize, usize, u64), Weak<ContextState>>;

static STATES: Mutex<States> = Mutex::new(BTreeMap::new());

impl ContextState {
    /// Returns the state of a context. Drivers before CUDA 12.0 do not number contexts. There each value gets its own
    /// state, because a later context at the same address would look the same.
    pub fn of(library: usize, raw: usize, id: Option<u64>) -> Arc<Self> {
        let Some(id) = id else { return Arc::default() };
        let mut states = STATES.lock();
        states.retain(|_, state| state.strong_count() > 0);
        if let Some(state) = states.get(&(library, raw, id)).and_then(Weak::upgrade) {
            return state;
        }
        let state = Arc::default();
        states.insert((library, raw, id), Arc::downgrade(&state));
        state
    }
}

impl fmt::Debug for ContextState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextState").field("frees", &self.frees).finish_non_exhaustive()
    }
}
