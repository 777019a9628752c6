//! Contexts, and each thread's stack of them.

use super::channels::Channels;
use super::gate::Gate;
use super::limits::Limits;
use super::queue::{Point, Queue};
use crate::call::{Result, refusal};
use crate::rig;
use crate::state::Global;
use crate::state::checks::races::{self, Moment, QueueId, Touched};
use crate::state::handle::next_sequence;
use crate::sync::lock;
use cuda_sys::CUresult;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// How a stream and the legacy default stream wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The legacy default stream. It and all blocking streams wait for each other.
    Legacy,
    /// The stream and the legacy default stream wait for each other.
    Blocking,
    /// Neither waits for the other.
    NonBlocking,
}

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) sequence: u64,
    pub(crate) handle: u64,
    pub(crate) device: usize,
    pub(crate) primary: bool,
    pub(crate) flags: AtomicU32,
    /// A unique number for each life of the context.
    pub(crate) id: AtomicU64,
    /// The contexts whose plain memory it may access, by the numbers of their lives.
    pub(crate) peers: Mutex<HashSet<u64>>,
    pub(crate) limits: Limits,
    /// Held during waits for all work.
    gate: Gate,
    pub(crate) channels: Channels,
    alive: AtomicBool,
    /// The error that stays until the context ends; 0 for none.
    failure: AtomicU32,
    legacy: Arc<Queue>,
    /// The per-thread default streams, by the threads' numbers.
    per_thread: Mutex<HashMap<u64, Arc<Queue>>>,
    /// All queues except the legacy one. The queues of destroyed streams stay while they have work.
    queues: Mutex<Vec<(Role, Weak<Queue>)>>,
}

impl Context {
    pub(crate) fn new(sequence: u64, handle: u64, device: usize, flags: u32, primary: bool) -> Self {
        Self {
            sequence,
            handle,
            device,
            primary,
            flags: AtomicU32::new(flags),
            id: AtomicU64::new(sequence),
            peers: Mutex::default(),
            limits: Limits::default(),
            gate: Gate::default(),
            channels: Channels::default(),
            alive: AtomicBool::new(!primary),
            failure: AtomicU32::new(0),
            legacy: Queue::new(),
            per_thread: Mutex::default(),
            queues: Mutex::default(),
        }
    }

    /// A placeholder for a destroyed context whose handle is still used.
    pub(crate) fn ended(handle: u64) -> Self {
        let context = Self::new(next_sequence(), handle, 0, 0, false);
        context.end();
        context
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// The number of the context's present life.
    pub(crate) fn life(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// Begins a new life of a primary context.
    pub(crate) fn revive(&self) {
        lock(&self.peers).clear();
        self.id.store(next_sequence(), Ordering::Relaxed);
        self.failure.store(0, Ordering::Relaxed);
        self.limits.reset();
        self.channels.reset();
        self.alive.store(true, Ordering::Release);
    }

    /// Ends the context's life. Returns whether it was alive. From now on calls are refused, and waits for words in
    /// memory give up.
    pub(crate) fn end(&self) -> bool {
        self.alive.swap(false, Ordering::AcqRel)
    }

    /// Makes every call that works in this context answer an error from now on. The first error stays.
    pub(crate) fn fail(&self, code: CUresult) {
        let _ = self.failure.compare_exchange(0, code.0, Ordering::AcqRel, Ordering::Relaxed);
        rig::watch_sticky();
    }

    pub(crate) fn failure(&self) -> Option<CUresult> {
        match self.failure.load(Ordering::Acquire) {
            0 => None,
            code => Some(CUresult(code)),
        }
    }

    pub(crate) fn legacy(&self) -> &Arc<Queue> {
        &self.legacy
    }

    pub(crate) fn per_thread(&self) -> Arc<Queue> {
        let thread = with_thread(|thread| thread.number);
        let mut queues = lock(&self.per_thread);
        let mut fresh = false;
        let queue = queues.entry(thread).or_insert_with(|| {
            fresh = true;
            Queue::new()
        });
        if fresh {
            self.adopt(Role::Blocking, queue);
        }
        queue.clone()
    }

    /// Adds the queue of a new stream.
    pub(crate) fn adopt(&self, role: Role, queue: &Arc<Queue>) {
        let mut queues = lock(&self.queues);
        queues.retain(|(_, queue)| queue.strong_count() > 0);
        queues.push((role, Arc::downgrade(queue)));
    }

    /// The work in other streams for which new work of a stream in this role must wait.
    pub(crate) fn before(&self, role: Role) -> Vec<Point> {
        match role {
            Role::NonBlocking => Vec::new(),
            Role::Blocking => self.legacy.pending().into_iter().collect(),
            Role::Legacy => self.pending(|role| role == Role::Blocking),
        }
    }

    /// The other streams after whose work new work of a stream in this role comes.
    pub(crate) fn joined(&self, role: Role) -> Vec<QueueId> {
        match role {
            Role::NonBlocking => Vec::new(),
            Role::Blocking => vec![self.legacy.id],
            Role::Legacy => self.ids(|role| role == Role::Blocking),
        }
    }

    fn ids(&self, select: impl Fn(Role) -> bool) -> Vec<QueueId> {
        let queues = lock(&self.queues);
        let ids = queues.iter().filter(|(role, _)| select(*role)).filter_map(|(_, queue)| Some(queue.upgrade()?.id));
        ids.collect()
    }

    /// For race checks: the ends of the present work of streams, before a wait.
    fn ends(&self, select: impl Fn(Role) -> bool) -> Vec<(QueueId, Moment)> {
        if !races::is_on() {
            return Vec::new();
        }
        let mut ids = self.ids(select);
        ids.push(self.legacy.id);
        ids.into_iter().map(|id| (id, races::moment(id, &[]))).collect()
    }

    fn pending(&self, select: impl Fn(Role) -> bool) -> Vec<Point> {
        let queues = lock(&self.queues);
        queues.iter().filter(|(role, _)| select(*role)).filter_map(|(_, queue)| queue.upgrade()?.pending()).collect()
    }

    /// As the driver does when a program synchronizes the context. Of other calls that wait for it nothing is known.
    pub(crate) fn forget_plain_frees(&self) {
        lock(&self.queues)
            .iter()
            .filter_map(|(_, queue)| queue.upgrade())
            .for_each(|queue| queue.set_has_plain_frees(false));
    }

    pub(crate) fn synchronize(&self) {
        races::see_ended();
        self.wait(|_| true);
    }

    /// Waits for all work with the lock held, so calls of other threads wait behind this call.
    pub(crate) fn finish(&self) {
        let _held = self.gate.hold();
        self.synchronize();
    }

    /// Waits for a point with the lock held.
    pub(crate) fn wait_with_lock(&self, point: &Point) {
        let _held = self.gate.hold();
        point.wait();
    }

    /// Takes a hardware channel: as [`finish`](Self::finish), but says nothing of the end of the work to the caller.
    pub(crate) fn take_channel(&self) {
        let _held = self.gate.hold();
        self.pending(|_| true).iter().chain(&self.legacy.pending()).for_each(Point::wait);
    }

    /// Waits for the default stream of a thread that ends, and closes it.
    fn end_thread(&self, thread: u64) {
        let queue = lock(&self.per_thread).remove(&thread);
        if let Some(queue) = queue {
            self.gate.pass();
            queue.pending().iter().for_each(Point::wait);
            queue.close();
        }
    }

    /// Waits for the work before a synchronous call: the legacy default stream's, and the blocking streams'.
    pub(crate) fn wait_legacy(&self) {
        self.wait(|role| role == Role::Blocking);
    }

    /// Waits for the streams in the selected roles, and for the legacy default stream.
    fn wait(&self, select: impl Fn(Role) -> bool) {
        let ends = self.ends(&select);
        for point in self.pending(&select) {
            point.wait();
        }
        if let Some(point) = self.legacy.pending() {
            point.wait();
        }
        ends.iter().for_each(|(id, moment)| races::settle(*id, moment));
    }

    /// Records the bytes that a synchronous call touches, on the legacy default stream. `waits`: the call returns after
    /// its work.
    pub(crate) fn touch_now(&self, call: &'static str, touched: impl FnOnce() -> Vec<Touched>, waits: bool) {
        if !races::is_on() {
            return;
        }
        let joined = self.joined(Role::Legacy);
        // If the call waits for its work, the caller makes the access, and may have borrowed the memory itself.
        if !waits {
            return drop(races::touch(self.legacy.id, &joined, touched(), call));
        }
        races::touch_at_once(self.legacy.id, &joined, &touched(), call);
        races::observe(&races::moment(self.legacy.id, &joined));
    }

    /// Lets the workers of the per-thread default streams end.
    pub(crate) fn close(&self) {
        for (_, queue) in lock(&self.per_thread).drain() {
            queue.close();
        }
    }
}

/// The state of a thread. Like the driver, softgpu keeps it under a pthread key: on the main thread it exists until the
/// process ends, also in atexit functions and global destructors.
struct Thread {
    number: u64,
    /// The start of the driver that made `contexts`.
    generation: u64,
    /// The stack of contexts; the last one is current.
    contexts: Vec<Arc<Context>>,
}

/// The key; `None` if the system has no more keys.
fn key() -> Option<libc::pthread_key_t> {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: `key` is writable, and `end_thread` takes the boxes that `with_thread` stores.
        (unsafe { libc::pthread_key_create(&mut key, Some(end_thread)) } == 0).then_some(key)
    })
}

/// Ends the state of a thread that ends. Its default streams finish their work first.
unsafe extern "C" fn end_thread(data: *mut c_void) {
    // SAFETY: `with_thread` stored the box, and pthread calls this function once for it.
    let thread = unsafe { Box::from_raw(data.cast::<RefCell<Thread>>()) }.into_inner();
    if refusal().is_ok()
        && let Ok(global) = Global::get()
    {
        global.contexts.all().iter().for_each(|context| context.end_thread(thread.number));
    }
}

fn with_thread<T>(work: impl FnOnce(&mut Thread) -> T) -> T {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let fresh = || {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        RefCell::new(Thread { number, generation: 0, contexts: Vec::new() })
    };
    let Some(key) = key() else { return work(&mut fresh().borrow_mut()) };
    // SAFETY: `key` created the key, and nobody deletes it.
    let mut data = unsafe { libc::pthread_getspecific(key) }.cast::<RefCell<Thread>>();
    if data.is_null() {
        data = Box::into_raw(Box::new(fresh()));
        // SAFETY: as above.
        if unsafe { libc::pthread_setspecific(key, data.cast()) } != 0 {
            // SAFETY: the box was made above, and nothing stored it.
            return work(&mut unsafe { Box::from_raw(data) }.borrow_mut());
        }
    }
    // SAFETY: only this thread uses the box, which stays until the thread ends.
    work(&mut unsafe { &*data }.borrow_mut())
}

pub(crate) fn with_stack<T>(global: &Global, work: impl FnOnce(&mut Vec<Arc<Context>>) -> T) -> T {
    let on = |thread: &mut Thread| {
        if thread.generation != global.generation {
            thread.generation = global.generation;
            thread.contexts.clear();
        }
        work(&mut thread.contexts)
    };
    with_thread(on)
}

/// Waits while another call holds the lock of the current context.
pub(crate) fn pass(global: &Global) {
    let top = with_stack(global, |contexts| contexts.last().cloned());
    if let Some(context) = top {
        context.gate.pass();
    }
}

/// The current context. Fails if it is not alive.
pub(crate) fn current(global: &Global) -> Result<Arc<Context>> {
    let top = with_stack(global, |contexts| contexts.last().cloned());
    let context = top.ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    if context.is_alive() { Ok(context) } else { Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED) }
}
