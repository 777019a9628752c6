//! The process-wide Vulkan instances and devices. All handles share them, and they outlive the last handle.
//!
//! The driver takes a tenth of a second to create them; a lookup here takes microseconds. Nothing is destroyed at
//! process exit, so no destructor of a static calls the driver.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::device::Device;
use crate::error::Error;
use crate::instance::Instance;
use crate::{library, process};

#[derive(Default)]
struct CachedObjects {
    // Declared before the instances, because devices must be dropped first.
    devices: Vec<Arc<Device>>,
    /// Holds one instance, unless different devices need different Vulkan libraries.
    instances: Vec<Arc<Instance>>,
}

struct Cache {
    generation: u32,
    state: Mutex<CachedObjects>,
}

static CURRENT: AtomicPtr<Cache> = AtomicPtr::new(ptr::null_mut());

/// Locks the cache of this process. A forked child starts with an empty cache and abandons its parent's: another thread
/// may have held that lock, and the child must not touch the parent's driver objects.
fn current() -> MutexGuard<'static, CachedObjects> {
    process::watch();
    let generation = process::generation();
    let cache = loop {
        let seen = CURRENT.load(Ordering::Acquire);
        // SAFETY: every pointer stored here came from Box::into_raw and is never freed.
        if let Some(cache) = unsafe { seen.as_ref() }
            && cache.generation == generation
        {
            break cache;
        }
        let fresh = Box::into_raw(Box::new(Cache { generation, state: Mutex::default() }));
        if CURRENT.compare_exchange(seen, fresh, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // SAFETY: no other thread has seen `fresh`.
            drop(unsafe { Box::from_raw(fresh) });
        }
    };
    cache.state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the library's cached instance, or creates it.
fn instance_of(state: &mut CachedObjects, library: &str) -> Result<Arc<Instance>, Error> {
    if let Some(instance) = state.instances.iter().find(|one| one.library == library) {
        return Ok(Arc::clone(instance));
    }
    let instance = Arc::new(Instance::create(library)?);
    state.instances.push(Arc::clone(&instance));
    Ok(instance)
}

/// Returns the library's shared instance.
#[cfg(feature = "describe")]
pub(crate) fn instance(library: &str) -> Result<Arc<Instance>, Error> {
    instance_of(&mut current(), library)
}

/// Returns the shared device with this UUID, from the first library that has it.
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
                // Release the instances of libraries that have no such device.
                state.instances.retain(|instance| Arc::strong_count(instance) > 1);
                return Ok(device);
            }
            Err(error) => failures.push(error),
        }
    }
    // Release the instances, so that the next attempt queries the drivers again: the machine or the environment may
    // have changed by then.
    state.instances.retain(|instance| Arc::strong_count(instance) > 1);
    Err(library::none_works(failures))
}

/// Removes a device that the driver declared lost. The next open creates a new device.
pub(crate) fn forget(device: &Arc<Device>) {
    current().devices.retain(|one| !Arc::ptr_eq(one, device));
}

/// Destroys every object that no handle uses.
pub(crate) fn trim() {
    let mut state = current();
    // References are only added under this lock, so a count of one cannot grow here.
    state.devices.retain(|device| Arc::strong_count(device) > 1);
    state.instances.retain(|instance| Arc::strong_count(instance) > 1);
}
