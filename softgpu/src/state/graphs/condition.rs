//! Conditions: values that kernels set, and that decide which bodies of a conditional node run.

use crate::state::Global;
use crate::state::handle::{handle_of, next_sequence};
use crate::sync::lock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// The kind in their handles.
const CONDITION: u64 = 18;

/// The live conditions, by their handles.
pub(crate) type Conditions = Mutex<HashMap<u64, Weak<Condition>>>;

/// A value. It ends with the last graph and the last executable graph that have it.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) handle: u64,
    /// The value with which each launch begins, if each does.
    default: Option<u32>,
    value: AtomicU32,
}

impl Condition {
    /// A condition that begins with a value: once, or at each launch.
    pub(crate) fn make(global: &Global, value: u32, at_each_launch: bool) -> Arc<Self> {
        let handle = handle_of(CONDITION, next_sequence());
        let default = at_each_launch.then_some(value);
        let condition = Arc::new(Self { handle, default, value: AtomicU32::new(value) });
        lock(&global.conditions).insert(handle, Arc::downgrade(&condition));
        condition
    }

    pub(crate) fn find(global: &Global, handle: u64) -> Option<Arc<Self>> {
        lock(&global.conditions).get(&handle)?.upgrade()
    }

    pub(crate) fn set(&self, value: u32) {
        self.value.store(value, Ordering::Release);
    }

    pub(super) fn get(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// Begins a launch.
    pub(super) fn begin(&self) {
        if let Some(value) = self.default {
            self.set(value);
        }
    }
}

impl Drop for Condition {
    fn drop(&mut self) {
        if let Ok(global) = Global::get() {
            lock(&global.conditions).remove(&self.handle);
        }
    }
}
