//! The process-wide instances and devices, shared by all handles and kept after the last one closes.
//!
//! Creating them takes the driver a tenth of a second; finding them here takes microseconds. Nothing is destroyed at
//! process exit: no driver call runs from a destructor of a static.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::device::Device;
use crate::error::Error;
use crate::instance::Instance;
use crate::{library, process};

#[derive(Default)]
struct State {
    // Before the instances: a device is dropped first.
    devices: Vec<Arc<Device>>,
    /// One, unless different devices need different Vulkan libraries.
    instances: Vec<Arc<Instance>>,
}

struct Cache {
    generation: u32,
    state: Mutex<State>,
}

static CURRENT: AtomicPtr<Cache> = AtomicPtr::new(ptr::null_mut());

/// The cache of this process. A forked child abandons its parent's, whose lock another thread may have held and whose
/// driver objects it must not touch, and starts an empty one.
fn current() -> MutexGuard<'static, State> {
    process::watch();
    let generation = process::generation();
    let cache = loop {
        let seen = CURRENT.load(Ordering::Acquire);
        // SAFETY: a pointer that was stored here came from Box::into_raw and is never freed.
        if let Some(cache) = unsafe { seen.as_ref() }
            && cache.generation == generation
        {
            break cache;
        }
        let fresh = Box::into_raw(Box::new(Cache { generation, state: Mutex::default() }));
        if CURRENT.compare_exchange(seen, fresh, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // SAFETY: nobody else has seen `fresh`.
            drop(unsafe { Box::from_raw(fresh) });
        }
    };
    cache.state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The instance of a library, kept or new.
fn instance_of(state: &mut State, library: &str) -> Result<Arc<Instance>, Error> {
    if let Some(instance) = state.instances.iter().find(|one| one.library == library) {
        return Ok(Arc::clone(instance));
    }
    let instance = Arc::new(Instance::create(library)?);
    state.instances.push(Arc::clone(&instance));
    Ok(instance)
}

/// The shared instance of a library.
pub(crate) fn instance(library: &str) -> Result<Arc<Instance>, Error> {
    instance_of(&mut current(), library)
}

/// The shared device with this UUID, from the first library that has it.
pub(crate) fn device(uuid: [u8; 16]) -> Result<Arc<Device>, Error> {
    let mut state = current();
    if let Some(device) = state.devices.iter().find(|device| device.uuid == uuid) {
        return Ok(Arc::clone(device));
    }
    let mut failures = Vec::new();
    for library in library::candidates() {
        match instance_of(&mut state, &library).and_then(|instance| Device::open(&instance, uuid)) {
            Ok(device) => {
                let device = Arc::new(device);
                state.devices.push(Arc::clone(&device));
                // Libraries that were tried in vain are let go.
                state.instances.retain(|instance| Arc::strong_count(instance) > 1);
                return Ok(device);
            }
            Err(error) => failures.push(error),
        }
    }
    // The next attempt asks the drivers anew: the machine or the environment may have changed by then.
    state.instances.retain(|instance| Arc::strong_count(instance) > 1);
    Err(library::none_works(failures))
}

/// Forgets a device that the driver declared lost: the next open creates a new one.
pub(crate) fn forget(device: &Arc<Device>) {
    current().devices.retain(|one| !Arc::ptr_eq(one, device));
}

/// Destroys everything that no handle uses.
pub(crate) fn trim() {
    let mut state = current();
    // References are only added under this lock, so a count of one cannot grow here.
    state.devices.retain(|device| Arc::strong_count(device) > 1);
    state.instances.retain(|instance| Arc::strong_count(instance) > 1);
}
