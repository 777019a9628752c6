//! User objects: resources of the program that live as long as graphs that use them.

use crate::call::{Result, ensure, host_function};
use crate::state::Global;
use crate::state::contexts::Queue;
use crate::state::handle::next_sequence;
use crate::sync::lock;
use cuda_sys::CUresult;
use once_cell::sync::Lazy;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

/// The queue on which destructors run, as in the driver: on a thread of its own, not in the call that ends the object.
static DESTRUCTORS: Lazy<Arc<Queue>> = Lazy::new(Queue::new);

/// Waits until the destructors of all user objects that have ended so far have run.
pub fn finish_destructors() {
    if let Some(last) = DESTRUCTORS.pending() {
        last.wait();
    }
}

/// The program's function that ends a resource, with its argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destructor {
    pub(crate) function: unsafe extern "C" fn(*mut c_void),
    pub(crate) data: *mut c_void,
}

impl Destructor {
    /// Ends the resource.
    ///
    /// # Safety
    ///
    /// No other call ends it.
    unsafe fn run(self) {
        // SAFETY: the caller of cuUserObjectCreate vouches for the function and its argument.
        host_function(|| unsafe { (self.function)(self.data) });
    }
}

// SAFETY: softgpu only hands the pointer on. The caller of cuUserObjectCreate vouches that any thread may call the
// function with it.
unsafe impl Send for Destructor {}
// SAFETY: as above.
unsafe impl Sync for Destructor {}

/// Numbers of references. The object ends with the last one.
#[derive(Clone, Copy, Debug, Default)]
struct References {
    /// Those that the program owns.
    own: u64,
    /// Those of graphs, executable graphs and launches.
    shared: u64,
}

#[derive(Debug)]
pub(crate) struct UserObject {
    pub(crate) sequence: u64,
    destructor: Destructor,
    references: Mutex<References>,
}

impl UserObject {
    /// Makes an object of which the program owns `count` references. Returns its handle.
    pub(crate) fn make(global: &Global, destructor: Destructor, count: u32) -> u64 {
        let sequence = next_sequence();
        let references = Mutex::new(References { own: count.into(), shared: 0 });
        global.user_objects.insert(sequence, Self { sequence, destructor, references }).0
    }

    pub(crate) fn find(global: &Global, handle: u64) -> Result<Arc<Self>> {
        global.user_objects.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Adds references that the program owns.
    pub(crate) fn retain(&self, count: u32) {
        lock(&self.references).own += u64::from(count);
    }

    /// Ends references that the program owns.
    pub(crate) fn release(&self, count: u32) -> Result {
        self.change(|references| {
            references.own = references.own.checked_sub(count.into()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
            Ok(())
        })
    }

    /// New references for a graph. If `moved`, they come from those that the program owns.
    pub(crate) fn share(self: &Arc<Self>, count: u64, moved: bool) -> Result<Share> {
        self.change(|references| {
            if moved {
                references.own = references.own.checked_sub(count).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
            }
            references.shared += count;
            Ok(())
        })?;
        Ok(Share { object: self.clone(), count })
    }

    /// Changes the numbers. Ends the object if no reference is left.
    fn change(&self, change: impl FnOnce(&mut References) -> Result) -> Result {
        let mut references = lock(&self.references);
        change(&mut references)?;
        let ends = references.own == 0 && references.shared == 0;
        drop(references);
        if ends {
            self.end();
        }
        Ok(())
    }

    /// Runs the destructor, unless the driver was reset: then the program has lost the object already.
    fn end(&self) {
        let Ok(global) = Global::get() else { return };
        if global.user_objects.remove(global.user_objects.handle(self.sequence)).is_none() {
            return;
        }
        let destructor = self.destructor;
        // If no thread can start, the destructor never runs, and the program's resource leaks.
        // SAFETY: the object left the table above, which happens once.
        let _ = DESTRUCTORS.push(Vec::new(), Box::new(move || unsafe { destructor.run() }));
    }
}

/// References of a graph. They end with the value.
#[derive(Debug)]
pub(crate) struct Share {
    object: Arc<UserObject>,
    count: u64,
}

impl Share {
    /// References of the same object for another graph: one is enough.
    pub(crate) fn again(&self) -> Result<Self> {
        self.object.share(1, false)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let count = self.count;
        let _ = self.object.change(|references| {
            references.shared -= count;
            Ok(())
        });
    }
}

/// The references that a graph holds.
#[derive(Debug, Default)]
pub(crate) struct Shares(Mutex<Vec<Share>>);

impl Shares {
    pub(crate) fn add(&self, share: Share) {
        lock(&self.0).push(share);
    }

    /// Takes `count` references to an object away. Fails if there are fewer.
    pub(crate) fn take(&self, object: &Arc<UserObject>, count: u64) -> Result {
        let mut shares = lock(&self.0);
        let (of_object, mut kept): (Vec<_>, Vec<_>) =
            shares.drain(..).partition(|share| Arc::ptr_eq(&share.object, object));
        let held: u64 = of_object.iter().map(|share| share.count).sum();
        let enough = ensure(count <= held);
        if enough.is_err() {
            kept.extend(of_object);
            *shares = kept;
            return enough;
        }
        let rest = if held > count { Some(object.share(held - count, false)?) } else { None };
        kept.extend(rest);
        *shares = kept;
        drop(shares);
        drop(of_object);
        Ok(())
    }

    /// The references for a graph that is made from this one.
    pub(crate) fn copy(&self) -> Result<Self> {
        let shares = lock(&self.0).iter().map(Share::again).collect::<Result<_>>()?;
        Ok(Self(Mutex::new(shares)))
    }
}
